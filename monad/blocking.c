/* blocking.c: promises of calls on the pool's threads.
 *
 * The job is in memory of its own, since it may outlive the runtime, and with it the promise. It holds
 * the promise as an operation does; behind the promise there is only the way back, for a cancel. */
#include <weft/promise_blocking.h>

#include "offload.h"
#include "promise_internal.h"

#include <stdlib.h>

struct call {
    struct weft_job job;
    struct promise *promise;
    weft_blocking_fn *fn;
    void *arg;
    void (*free_arg)(void *arg);
    int result;
};

static void call_run(struct weft_job *job)
{
    struct call *call = weft__container(job, struct call, job);

    call->result = weft__call_result(call->fn(call->arg));
}

/* The promise is settled, or gone with its runtime. */
static void call_free(struct weft_job *job)
{
    struct call *call = weft__container(job, struct call, job);

    if (call->free_arg != NULL)
        call->free_arg(call->arg);
    free(call);
}

static void call_done(struct weft_job *job)
{
    struct call *call = weft__container(job, struct call, job);

    promise__settle(call->promise, call->result < 0 ? call->result : 0, weft_num(call->result));
    call_free(job);
}

static void call_withdrawn(struct weft_task *task)
{
    call_done(weft__container(task, struct weft_job, task));
}

static void call_cancel(struct promise *promise)
{
    struct call *call = *(struct call **)promise__extra(promise);

    if (!weft_offload_withdraw(&call->job))
        return;
    /* user code, free_arg and the promise's callbacks, must not run inside a cancel: later */
    call->result = -ECANCELED;
    call->job.task.run = call_withdrawn;
    (void)weft_post(weft__rt->inbox, &call->job.task);
}

/* Nothing will be called but this. */
static struct promise *refuse(struct promise *promise, void *arg, void (*free_arg)(void *arg))
{
    if (free_arg != NULL)
        free_arg(arg);
    return promise;
}

struct promise *promise_blocking(weft_blocking_fn *fn, void *arg, void (*free_arg)(void *arg))
{
    struct weft_runtime *rt = weft__rt;
    struct promise *promise;
    struct call *call;
    void *extra;
    int rc;

    if (rt == NULL || fn == NULL)
        return refuse(promise_rejected(-EINVAL), arg, free_arg);
    call = malloc(sizeof *call);
    if (call == NULL)
        return refuse(promise_rejected(-ENOMEM), arg, free_arg);
    promise = promise__create_operation(rt, sizeof call, call_cancel, &extra);
    if (extra == NULL) {
        free(call);
        return refuse(promise, arg, free_arg);
    }
    *(struct call **)extra = call;
    *call = (struct call){
        .job = {.run = call_run, .done = call_done, .drop = call_free},
        .promise = promise,
        .fn = fn,
        .arg = arg,
        .free_arg = free_arg,
    };
    rc = weft__offload(rt, &call->job, WEFT__JOB_CALL);
    if (rc < 0) { /* else it is the pool's */
        call->result = rc;
        call_done(&call->job);
    }
    return promise;
}
