/* switch.c: hooks to be called together, once. */
#include "promise_wait.h"

#include <weft/promise_sync.h>

#include <stdlib.h>

struct hook {
    struct hook *older;
    promise_thunk_fn *fn;
    void *ctx;
};

struct promise_switch {
    struct promise *self; /* counts the references */
    struct hook *newest;
    size_t count;
    bool off;
};

static void destroy(void *object)
{
    struct promise_switch *sw = object;

    while (sw->newest != NULL) {
        struct hook *hook = sw->newest;

        sw->newest = hook->older;
        free(hook);
    }
    free(sw);
}

struct promise_switch *promise_switch_create(void)
{
    struct promise__state *st = promise__state_get();
    struct promise_switch *sw = st != NULL ? calloc(1, sizeof *sw) : NULL;

    if (sw == NULL)
        return NULL;
    PROMISE__ENTER(st);
    sw->self = promise__object(st, sw, destroy);
    if (sw->self == NULL) {
        free(sw);
        return NULL;
    }
    return sw;
}

struct promise_switch *promise_switch_ref(struct promise_switch *sw)
{
    if (sw != NULL)
        promise__retain(sw->self);
    return sw;
}

void promise_switch_unref(struct promise_switch *sw)
{
    if (sw != NULL && promise__tls != NULL)
        promise__object_release(sw->self);
}

bool promise_switch_is_on(const struct promise_switch *sw)
{
    return sw == NULL || !sw->off;
}

int promise_switch_add_hook(struct promise_switch *sw, promise_thunk_fn *fn, void *ctx)
{
    struct hook *hook;

    if (sw == NULL)
        return 0;
    if (fn == NULL)
        return -EINVAL;
    if (sw->off)
        return -ESHUTDOWN;
    hook = malloc(sizeof *hook);
    if (hook == NULL)
        return -ENOMEM;
    *hook = (struct hook){sw->newest, fn, ctx};
    sw->newest = hook;
    sw->count++;
    return 0;
}

struct promise *promise_switch_add_hook_or_exec(struct promise_switch *sw, promise_thunk_fn *hook,
                                                void *ctx)
{
    if (sw != NULL && sw->off && hook != NULL)
        return promise_call(hook, ctx);
    return promise_from_result(promise_switch_add_hook(sw, hook, ctx));
}

struct hooks_call {
    struct hook *newest;
    struct promise **promises;
};

static void call_hooks(void *arg)
{
    struct hooks_call *call = arg;
    size_t i = 0;

    while (call->newest != NULL) {
        struct hook hook = *call->newest;

        free(call->newest);
        call->newest = hook.older;
        call->promises[i++] = promise__or_invalid(hook.fn(hook.ctx));
    }
}

struct promise *promise_switch_turn_off(struct promise_switch *sw)
{
    struct promise__state *st = promise__state_get();
    struct hooks_call call;
    struct promise *result;
    size_t count;

    if (st == NULL)
        return promise__no_state();
    PROMISE__ENTER(st);
    if (sw == NULL || sw->off || sw->count == 0) {
        if (sw != NULL)
            sw->off = true;
        return promise_fulfilled(weft_num(0));
    }
    count = sw->count;
    call.promises = malloc(count * sizeof *call.promises);
    if (call.promises == NULL)
        return promise__enomem;
    call.newest = sw->newest;
    sw->newest = NULL;
    sw->count = 0;
    sw->off = true;
    promise__call_on_base(st, call_hooks, &call);
    result = promise_join(call.promises, count);
    free(call.promises);
    return result;
}

/* ---- with a switch ---- */

struct with_job {
    struct promise__job job;
    struct promise_switch *sw;
    struct promise *outcome; /* of what the switch was for */
};

static struct promise *turned_off(struct promise__job *job, struct promise *settled)
{
    struct with_job *self = (struct with_job *)(void *)job;
    struct promise *outcome = self->outcome;

    if (promise_state(settled) == PROMISE_FULFILLED) {
        promise_unref(settled);
        job->framed = false;
        settled = outcome;
    } else {
        promise_unref(outcome);
    }
    promise__job_end_like(job, settled);
    return NULL;
}

static struct promise *body_through(struct promise__job *job, struct promise *settled)
{
    struct with_job *self = (struct with_job *)(void *)job;
    struct promise *off;

    self->outcome = settled;
    job->step = turned_off;
    off = promise_switch_turn_off(self->sw);
    promise_switch_unref(self->sw);
    return off;
}

struct body_call {
    promise_switch_fn *fn;
    struct promise_switch *sw;
    void *ctx;
};

static struct promise *call_body(void *arg)
{
    struct body_call *call = arg;

    return call->fn(call->sw, call->ctx);
}

struct promise *promise_switch_with(promise_switch_fn *fn, void *ctx)
{
    struct promise__state *st = promise__state_get();
    struct body_call call = {fn, NULL, ctx};
    struct with_job *job;
    struct promise *p;

    if (st == NULL || fn == NULL)
        return st == NULL ? promise__no_state() : promise__einval;
    PROMISE__ENTER(st);
    call.sw = promise_switch_create();
    if (call.sw == NULL)
        return promise__enomem;
    p = promise__job_create(st, sizeof *job, body_through, &job);
    if (job == NULL) {
        promise_switch_unref(call.sw);
        return p;
    }
    job->sw = call.sw;
    promise__job_start(&job->job, promise_call(call_body, &call));
    promise__flush(st);
    return p;
}
