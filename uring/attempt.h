/* attempt.h: an operation done by plain system calls: what the epoll engine does with every row of
 * the table, and the io_uring engine with those that its kernel has no opcode for; here, or, if it
 * may block, on a thread of the pool.
 */
#ifndef RING_ATTEMPT_H
#define RING_ATTEMPT_H

#include "offload.h"
#include "runtime_internal.h"

#include <limits.h>
#include <semaphore.h>

struct ring_op;
struct ring__engine;

/* Only a thread that may block can do it: a disk, or a file system, is in the way. */
#define RING__WOULD_BLOCK INT_MIN

/* Does an operation by what its fields say. Returns its result, >= 0 or a negative errno.
 *
 * wait: false: never blocks. Instead it returns
 *   -EAGAIN            nothing to be had before the descriptor is ready (the row says for what)
 *   -EINPROGRESS       a connect is under way: set RING__CONNECTING, attempt again when writable
 *   RING__WOULD_BLOCK  for a thread of the pool
 *   -EINTR             a signal came in between: attempt again
 * wait: true: blocks until there is a result. Any thread; the op is only read. */
int ring__attempt(const struct ring_op *op, bool wait);

/* The same, not waiting, with the faults that are being injected. */
int ring__attempt_faulty(struct ring__engine *engine, const struct ring_op *op);

/* Whether an operation that found nothing waits for it, rather than reporting -EAGAIN. */
bool ring__may_wait(const struct ring_op *op);

/* Before a poll stands in for it: chooses what to poll. 0, or a negative errno that is its result. */
int ring__await(struct ring_op *op);

/* What that is. */
void ring__awaited(const struct ring_op *op, int *fd, short *events);

/* No attempt will be made any more. Returns the descriptor that attempts have made, to be closed; -1:
 * none. */
int ring__attempts_over(const struct ring_op *op);
/* The events of `events` that hold now, or a negative errno. */
int ring__poll_now(int fd, short events);

/* For tests: the kernel is made not to know RWF_NOWAIT for any file. */
extern bool ring__refused_nowait;

/* ---- on the pool ---- */

/* As many jobs as the pool has threads for them; what is more waits in the engine's own queue, through
 * the operations themselves, so that nothing is allocated. */
enum { RING__JOBS = 16 };

struct ring__job {
    struct weft_job job;
    struct ring__engine *engine;
    struct ring_op *op; /* NULL: free */
    int res;
};

/* A part of every engine that does I/O. */
struct ring__offload {
    struct ring__job jobs[RING__JOBS];
    struct ring_op *queue, **queue_tail;
    unsigned busy; /* jobs in use */
    sem_t dropped; /* posted for each job that ends after the runtime's inbox has closed */
};

void ring__offload_init(struct ring__engine *engine);

/* Waits for the jobs of a runtime that failed and could not drain them. */
void ring__offload_finish(struct ring__engine *engine);

/* Hands an operation in flight to the pool. Its result is reported on the base stack; never from
 * here. Until then its memory, and what it points to, are a pool thread's. */
void ring__offload(struct ring__engine *engine, struct ring_op *op);

/* Takes an operation back that the pool has not begun. True: it is the engine's again, undone. False:
 * it is under way, and ends when it ends. */
bool ring__offload_withdraw(struct ring__engine *engine, struct ring_op *op);

#endif
