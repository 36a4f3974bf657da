/* weft/workers.h: pools of workers: a fixed set of runtimes that take jobs from any other runtime, for
 * work that would keep the caller's thread busy.
 *
 *     int64_t rc = fiber_work(NULL, WEFT_CPU, compress, &block, WEFT_FOREVER);
 *     struct promise *p = promise_submit(NULL, WEFT_CPU, parse, text, free);
 *
 * Each job says how much of a worker it needs, its weight, in hundredths. A worker takes jobs as long
 * as they don't need more than all of it: one that computes (WEFT_CPU) runs alone, twenty that mostly
 * wait for I/O (5) side by side. Jobs begin in the order in which they were submitted, whatever their
 * weight, on the worker that is the least loaded; they never move. For calls that block the thread
 * without computing there is another pool: they want more threads than there are cpus, these don't.
 *
 * Workers take none of the process's signals: these go to the program's threads.
 *
 * One pool a process is enough, and more than one overcommits the cpus: libraries take a pool from
 * their caller, or the process's own (NULL). Creating more workers than cpus is allowed, and reported.
 *
 * A job runs in a fiber, or as a callback that gives a promise, and may do there whatever runtimes can
 * do. Local values are inherited as by calls on another runtime (weft/cluster.h). A job that waits for
 * another job of the same pool keeps its place meanwhile: if all do, none goes on.
 */
#ifndef WEFT_WORKERS_H
#define WEFT_WORKERS_H

#include <weft/base.h>
#include <weft/runtime.h>

WEFT_BEGIN_DECLS

struct promise;

struct weft_workers;

/* The weight of a job that computes: all of a worker. */
#define WEFT_CPU 100u

/* How a pool is set up. Zero-initialise, set `size`, then what you need:
 *     struct weft_workers_options o = WEFT_WORKERS_OPTIONS_INIT;
 * A field of 0 or NULL means the default. All fields are public. */
struct weft_workers_options {
    size_t size;      /* sizeof(struct weft_workers_options), for later growth */
    unsigned count;   /* workers, at most 1024; default: weft_cpu_count() */
    unsigned limit;   /* jobs that may wait for a worker, and nobody for them; default 1024 */
    bool pin;         /* each worker on one cpu */
    const char *name; /* of the threads, copied, cut at 10 bytes; default "work" */
    const struct weft_options *runtime; /* of every worker */
    uint64_t reserved[6];
};
#define WEFT_WORKERS_OPTIONS_INIT                   \
    {                                               \
        .size = sizeof(struct weft_workers_options) \
    }

/* Makes a pool; waits until its workers run. Returns 0 and *workers, or what weft_cluster_start
 * returns. Any thread. Since 0.1. */
WEFT_API int weft_workers_create(struct weft_workers **workers,
                                 const struct weft_workers_options *options);

enum weft_workers_end {
    WEFT_WORKERS_DRAIN, /* jobs that were submitted run to their end */
    WEFT_WORKERS_CANCEL /* those that have not begun never do (-ESHUTDOWN), the others are cancelled */
};

/* Ends a pool and frees it: takes no more jobs, and waits, blocking the calling thread, until the
 * workers have ended. Nobody may submit from then on but its own jobs, which get -ESHUTDOWN.
 * Returns 0; -EDEADLK on one of its own workers, -ECHILD in a child of fork, -EINVAL for NULL: nothing
 * is done. Any other thread. Since 0.1. */
WEFT_API int weft_workers_destroy(struct weft_workers *workers, enum weft_workers_end how);

/* How it is just now. Any thread; NULL: the process's own pool. Since 0.1. */
WEFT_API unsigned weft_workers_count(struct weft_workers *workers); /* workers; 0: can't be had */
WEFT_API size_t weft_workers_waiting(struct weft_workers *workers); /* jobs that have not begun */
WEFT_API size_t weft_workers_running(struct weft_workers *workers);

/* ---- Jobs --------------------------------------------------------------------------------------
 *
 * workers: NULL: the process's own pool, made when it is first used, with the default options; it
 * ends with the process.
 * weight: 1 to 100, hundredths of a worker.
 *
 * A job that is given up before it has begun never begins; one that has begun is cancelled, as calls
 * on another runtime are.
 *
 * Errors beside those of the job's own:
 *   -EAGAIN     as many jobs as the pool's limit wait already: submit again when one has ended
 *   -ESHUTDOWN  the pool ends: the job was not begun. (Of promises also: was given up.)
 *   -ENOMEM     no memory, here or there; for the process's own pool also what weft_cluster_start says
 *   -EINVAL     no runtime here, a bad weight, a NULL function
 *   -ECHILD     in a child of fork
 * Runtime's thread, callbacks too unless they suspend. Since 0.1. */

/* Calls fn(ctx) on a worker, on its base stack, and follows the promise that it returns, as
 * promise_call_on does; the job lasts until that is settled. Never NULL. The limit counts. */
WEFT_API WEFT_NODISCARD struct promise *promise_submit(struct weft_workers *workers,
                                                       unsigned weight,
                                                       struct promise *(*fn)(void *ctx), void *ctx,
                                                       void (*free_ctx)(void *ctx));

#if WEFT_HAS_FIBERS
/* Runs fn(arg) in a fiber of a worker, and waits for its result, and before for its turn: however many
 * fibers wait, no job is refused. Deadline, cancellation, `arg` and results are as for fiber_call_on:
 * nothing is allocated here, and when it returns nobody uses arg. Fiber only. */
#define fiber_work(workers, weight, fn, arg, deadline) \
    fiber_work_at((workers), (weight), (fn), (arg), (deadline), WEFT_HERE)
FIBER_SUSPENDS WEFT_API int64_t fiber_work_at(struct weft_workers *workers, unsigned weight,
                                              int64_t (*fn)(void *arg), void *arg,
                                              weft_time deadline, const char *where);

/* The same as a promise of the result, never NULL, as fiber_spawn_on gives it. The limit counts. */
#define fiber_submit(workers, weight, fn, arg, free_arg) \
    fiber_submit_at((workers), (weight), (fn), (arg), (free_arg), WEFT_HERE)
WEFT_API WEFT_NODISCARD struct promise *fiber_submit_at(struct weft_workers *workers,
                                                        unsigned weight, int64_t (*fn)(void *arg),
                                                        void *arg, void (*free_arg)(void *arg),
                                                        const char *where);
#endif

WEFT_END_DECLS

#endif
