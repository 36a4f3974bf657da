/* offload.h: the pool from the inside: whose jobs are whose, and how it is doing. */
#ifndef WEFT_OFFLOAD_INTERNAL_H
#define WEFT_OFFLOAD_INTERNAL_H

#include <weft/offload.h>

#include "runtime_internal.h"

#include <errno.h>

/* Each kind has its own queue and its own bound on threads at work, so that names nobody answers for
 * hold up nothing but other names, and the program's calls nothing of weft's. */
enum weft__job_kind {
    WEFT__JOB_WORK,   /* an engine's: I/O on files */
    WEFT__JOB_LOOKUP, /* names */
    WEFT__JOB_CALL,   /* the program's */
    WEFT__JOB_KINDS
};

/* weft_offload for any kind. rt: the calling thread's. */
int weft__offload(struct weft_runtime *rt, struct weft_job *job, enum weft__job_kind kind);

/* What a call's result means: >= 0, or a negative errno. */
static inline int weft__call_result(int result)
{
    return result < -4095 ? -EINVAL : result;
}

void weft__offload_stats(struct weft_stats *stats);

/* For tests: threads alive, and jobs that are queued or under way. */
unsigned weft__offload_threads(unsigned *jobs);

/* For tests: how long a thread waits for work before it ends, in ns. */
extern _Atomic int64_t weft__offload_patience;

#endif
