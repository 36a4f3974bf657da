/* blocking.c: fibers that wait for a call on a thread of the pool.
 *
 * fiber_blocking is an operation as those on descriptors are: all of it is on the fiber's stack, and
 * it ends when the call has. fiber_blocking_owned keeps the call in memory of its own, which whoever is
 * there last frees: the fiber, or, if that has given up, the call's end. */
#include "fiber_internal.h"
#include "offload.h"
#include "timer.h"

#include <stdlib.h>

/* A fiber that waits for a job's end. */
struct awaiter {
    struct fiber_wait wait;
    struct weft_timer deadline;
    struct weft_runtime *rt;
    struct fiber *fiber;
    int result;
    /* The wait is to end for this reason: 0, or nonzero if it cannot. */
    int (*give_up)(struct awaiter *awaiter);
};

static void awaiter_end(struct awaiter *a, int result)
{
    a->result = result;
    a->wait.cancel = NULL;
    weft__timer_stop(a->rt, &a->deadline);
    fiber__wake(a->rt, a->fiber);
}

static void expired(struct weft_timer *timer)
{
    struct awaiter *a = weft__container(timer, struct awaiter, deadline);

    if (a->give_up(a) == 0)
        awaiter_end(a, -ETIMEDOUT);
}

static void cancelled(struct fiber_wait *wait)
{
    struct awaiter *a = weft__container(wait, struct awaiter, wait);

    if (a->give_up(a) == 0)
        awaiter_end(a, a->fiber->cancelled);
}

/* 0, or why the caller cannot wait for a call. */
static inline __attribute__((always_inline)) int enter(struct weft_runtime *rt,
                                                       weft_blocking_fn *fn, weft_time deadline)
{
    const struct fiber *self = fiber__self(rt);

    if (self == NULL)
        return fiber__cannot_wait(rt);
    if (fn == NULL)
        return -EINVAL;
    if (self->cancelled)
        return self->cancelled;
    return deadline <= WEFT_NOWAIT ? -ETIMEDOUT : 0;
}

static int await_end(struct weft_runtime *rt, struct awaiter *a, weft_time deadline)
{
    a->wait = (struct fiber_wait){.cancel = cancelled, .what = "a blocking call", .detail = -1};
    a->rt = rt;
    a->fiber = fiber__current(rt);
    weft_timer_init(&a->deadline, expired);
    if (deadline != WEFT_FOREVER)
        weft__timer_start(rt, &a->deadline, deadline);
    fiber__park(rt, a->fiber, &a->wait);
    return a->result;
}

/* ---- on the fiber's stack ---- */

struct call {
    struct weft_job job;
    struct awaiter awaiter;
    atomic_size_t *calls;
    weft_blocking_fn *fn;
    void *arg;
    int result;
};

static void call_run(struct weft_job *job)
{
    struct call *call = weft__container(job, struct call, job);

    call->result = weft__call_result(call->fn(call->arg));
}

static void call_done(struct weft_job *job)
{
    struct call *call = weft__container(job, struct call, job);

    atomic_fetch_sub(call->calls, 1);
    awaiter_end(&call->awaiter, call->result);
}

/* The engine has failed, and the runtime waits for this before it frees the stack. */
static void call_drop(struct weft_job *job)
{
    atomic_fetch_sub(weft__container(job, struct call, job)->calls, 1);
}

static int call_give_up(struct awaiter *awaiter)
{
    struct call *call = weft__container(awaiter, struct call, awaiter);

    if (!weft_offload_withdraw(&call->job))
        return -EALREADY;
    atomic_fetch_sub(call->calls, 1);
    return 0;
}

int fiber_blocking(weft_blocking_fn *fn, void *arg, weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    int rc = enter(rt, fn, deadline);
    struct call call;

    if (rc < 0)
        return rc;
    call.job.run = call_run;
    call.job.done = call_done;
    call.job.drop = call_drop;
    call.awaiter.give_up = call_give_up;
    call.calls = &((struct fiber_layer *)rt->layer[WEFT__LAYER_FIBER])->calls;
    call.fn = fn;
    call.arg = arg;
    rc = weft__offload(rt, &call.job, WEFT__JOB_CALL);
    if (rc < 0)
        return rc;
    atomic_fetch_add(call.calls, 1);
    return await_end(rt, &call.awaiter, deadline);
}

/* ---- in memory of its own ---- */

struct owned_call {
    struct weft_job job;
    struct owned_awaiter *awaiter; /* NULL: it has given up */
    weft_blocking_fn *fn;
    void *arg;
    void (*free_arg)(void *arg);
    int result;
};

struct owned_awaiter {
    struct awaiter awaiter;
    struct owned_call *call; /* NULL: left to itself */
};

static void free_arg_of(struct owned_call *call)
{
    if (call->free_arg != NULL)
        call->free_arg(call->arg);
}

static void owned_run(struct weft_job *job)
{
    struct owned_call *call = weft__container(job, struct owned_call, job);

    call->result = weft__call_result(call->fn(call->arg));
}

static void owned_drop(struct weft_job *job)
{
    struct owned_call *call = weft__container(job, struct owned_call, job);

    free_arg_of(call);
    free(call);
}

static void owned_done(struct weft_job *job)
{
    struct owned_call *call = weft__container(job, struct owned_call, job);

    if (call->awaiter != NULL)
        awaiter_end(&call->awaiter->awaiter, call->result);
    else
        owned_drop(job);
}

static int owned_give_up(struct awaiter *awaiter)
{
    struct owned_awaiter *a = weft__container(awaiter, struct owned_awaiter, awaiter);

    if (!weft_offload_withdraw(&a->call->job)) {
        a->call->awaiter = NULL;
        a->call = NULL;
    }
    return 0;
}

static int owned_begin(struct weft_runtime *rt, struct owned_awaiter *a, weft_blocking_fn *fn,
                       void *arg, void (*free_arg)(void *arg))
{
    struct owned_call *call = malloc(sizeof *call);
    int rc;

    if (call == NULL)
        return -ENOMEM;
    *call = (struct owned_call){
        .job = {.run = owned_run, .done = owned_done, .drop = owned_drop},
        .awaiter = a,
        .fn = fn,
        .arg = arg,
        .free_arg = free_arg,
    };
    a->call = call;
    a->awaiter.give_up = owned_give_up;
    rc = weft__offload(rt, &call->job, WEFT__JOB_CALL);
    if (rc < 0)
        free(call);
    return rc;
}

int fiber_blocking_owned(weft_blocking_fn *fn, void *arg, void (*free_arg)(void *arg),
                         weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    struct owned_awaiter a;
    int rc = enter(rt, fn, deadline);

    if (rc == 0)
        rc = owned_begin(rt, &a, fn, arg, free_arg);
    if (rc == 0) {
        rc = await_end(rt, &a.awaiter, deadline);
        if (a.call == NULL)
            return rc;
        free(a.call);
    }
    if (rc < 0 && free_arg != NULL)
        free_arg(arg);
    return rc;
}
