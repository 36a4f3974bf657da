/* weft/offload.h: calls that block, on threads of a pool: what has no form that waits without
 * blocking the runtime's thread (a database's client library, a compression, a name service).
 *
 *     int rows = fiber_blocking(query, &request, WEFT_FOREVER);    weft/fiber.h
 *     promise_blocking(query, request, free)                       weft/promise_blocking.h
 *     weft_offload(&request->job)                                  here: what both are made of
 *
 * The pool is one a process, shared by its runtimes. It starts a thread when a call finds none free,
 * up to a bound (32, see weft_offload_limit); calls beyond it wait their turn, first come, first
 * served. A thread that has had nothing to do for five seconds ends. weft's own work that blocks (files
 * under the epoll engine, name lookups) has bounds of its own: neither keeps the other waiting.
 *
 * On a pool thread every signal is blocked but those of a thread's own faults, the stack has 1 MiB, and
 * there is no runtime: nothing of weft may be called there but weft_now, weft_after, weft_post,
 * weft_inbox_unref, and the process functions that need no runtime. A call that has begun cannot be
 * broken off, by nobody: what can be given up is the wait for it.
 */
#ifndef WEFT_OFFLOAD_H
#define WEFT_OFFLOAD_H

#include <weft/base.h>
#include <weft/runtime.h>

WEFT_BEGIN_DECLS

/* A call that blocks: returns >= 0, or a negative errno (anything below -4095 counts as -EINVAL).
 * What it leaves in errno is nobody's concern. */
typedef int weft_blocking_fn(void *arg);

/* One piece of work for the pool: embed it in memory that isn't a stack's (it may outlive the runtime),
 * set the three functions, and find your object from its address. The rest is private.
 *
 * run is called once, on a pool thread. Afterwards one of the other two is called, once: done, on the
 * runtime's base stack; or, if the runtime has ended meanwhile, drop, on a pool thread. From that call
 * on the job is the caller's again, and may be freed, or handed over again, right in it. drop may be
 * NULL if there is nothing to free. */
struct weft_job {
    void (*run)(struct weft_job *job);
    void (*done)(struct weft_job *job);
    void (*drop)(struct weft_job *job);

    struct weft_task task;
    struct weft_inbox *inbox;
    struct weft_job *next, **link;
    int kind;
    uint64_t reserved[2];
};

#ifdef __cplusplus
static_assert(sizeof(void *) != 8 || sizeof(struct weft_job) == 88, "part of the ABI");
#else
_Static_assert(sizeof(void *) != 8 || sizeof(struct weft_job) == 88, "part of the ABI");
#endif

/* Hands a job to the pool. As long as it is there the runtime doesn't take itself for deadlocked; its
 * end doesn't wait for jobs (`drop`).
 *
 * Returns 0: done or drop will be called; -EAGAIN or -ENOMEM: there is no thread and none can be
 * made; -EINVAL without a runtime, or for a NULL. After an error the job is the caller's as before.
 * Runtime's thread, callbacks too; doesn't suspend. Since 0.1. */
WEFT_API WEFT_NODISCARD int weft_offload(struct weft_job *job);

/* Takes back a job that no thread has begun. True: it is the caller's again, and none of its functions
 * will be called; false: it has begun, and done or drop will be. For a job that was handed over and
 * is not done. Runtime's thread, callbacks too; doesn't suspend. Since 0.1. */
WEFT_API bool weft_offload_withdraw(struct weft_job *job);

/* Sets the bound on threads that run the program's calls (fiber_blocking, promise_blocking,
 * weft_offload): 1 to 4096. What waits begins at once where the new bound allows it; threads above it
 * end their calls first. Returns the bound until now, or -EINVAL. Any thread, with or without a
 * runtime; doesn't suspend. Since 0.1. */
WEFT_API int weft_offload_limit(unsigned threads);

WEFT_END_DECLS

#endif
