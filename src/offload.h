/* offload.h: work that must block, on a thread of a bounded pool. */
#ifndef WEFT_OFFLOAD_H
#define WEFT_OFFLOAD_H

#include "runtime_internal.h"

/* One piece of such work, embedded in memory of its own (not on a fiber's stack: it may outlive the
 * runtime). Exactly one of `done` and `drop` is called, last; either may free the job. */
struct weft__job {
    void (*run)(struct weft__job *job);  /* on a pool thread; signals are blocked there */
    void (*done)(struct weft__job *job); /* afterwards, on the runtime's base stack */
    void (*drop)(struct weft__job *job); /* instead, on any thread: the runtime has ended */
    struct weft_task task;
    struct weft_inbox *inbox;
    struct weft__job *next, **link; /* in its queue; link is NULL from the moment a thread has it */
    int kind;
};

/* Each kind has its own queue and its own bound on threads at work, so that names nobody answers for
 * hold up nothing but other names. */
enum weft__job_kind { WEFT__JOB_WORK, WEFT__JOB_LOOKUP, WEFT__JOB_KINDS };

/* Hands a job over. Returns 0, or -ENOMEM or -EAGAIN when there is no thread and none can be made.
 * Until it is done the runtime doesn't take itself for deadlocked; its end doesn't wait for jobs. */
int weft__offload(struct weft_runtime *rt, struct weft__job *job, enum weft__job_kind kind);

/* Takes back a job that no thread has begun. True: it is the caller's again, and neither `done` nor
 * `drop` will be called; false: it is under way. For a job handed over and not done yet; on the
 * runtime's thread. */
bool weft__offload_withdraw(struct weft__job *job);

/* For tests: threads alive, and jobs that are queued or under way. */
unsigned weft__offload_threads(unsigned *jobs);

#endif
