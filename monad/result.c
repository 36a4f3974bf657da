/* result.c: promises from and to results, and functions on one side of an outcome. */
#include <weft/promise_result.h>

#include "follow.h"

#include <stdlib.h>

/* ---- numbers ---- */

static struct promise *as_number(int err, void *ctx)
{
    (void)ctx;
    return promise_fulfilled(weft_num(err));
}

struct promise *promise_to_result(struct promise *promise)
{
    return promise_catch(promise, as_number, NULL);
}

static int check(union weft_value value, void *ctx, union weft_value *out)
{
    (void)ctx;
    *out = value;
    if (value.num >= 0)
        return 0;
    return value.num < INT32_MIN ? -EINVAL : (int)value.num;
}

struct promise *promise_check_result(struct promise *promise)
{
    return promise_map(promise, check, NULL);
}

/* ---- callbacks of other shapes ---- */

struct apply {
    struct promise__step step;
    promise_result_fn *result;
    promise_map_error_fn *map_error; /* or this one */
    void *ctx;
};

struct apply_call {
    struct promise__state *st;
    struct promise *promise;
    struct apply apply;
};

/* Consumes `p`, settled. */
static struct promise *apply(struct promise__state *st, const struct apply *a, struct promise *p)
{
    union weft_value value = weft_num(0);
    bool ok = promise_state(p) == PROMISE_FULFILLED;
    int status;

    if (ok != (a->result != NULL))
        return p;
    status = promise__take(st, p, &value);
    return ok ? promise_from_result(a->result(value, a->ctx))
              : promise_rejected(a->map_error(status, a->ctx));
}

static struct promise *run_apply(struct promise__step *step, struct promise *settled)
{
    struct apply a = *(struct apply *)(void *)step;

    free(step);
    return apply(promise__tls, &a, settled);
}

static void drop_apply(struct promise__step *step)
{
    free(step);
}

static struct promise *start_apply(void *arg)
{
    struct apply_call *call = arg;
    struct apply *a;

    if (!promise__pending(call->st, call->promise))
        return apply(call->st, &call->apply, call->promise);
    a = malloc(sizeof *a);
    if (a == NULL) {
        promise__release(call->st, call->promise);
        return promise__enomem;
    }
    *a = call->apply;
    return promise__follow(call->st, call->promise, &a->step, a->result == NULL);
}

static struct promise *apply_to(struct promise *promise, promise_result_fn *result,
                                promise_map_error_fn *map_error, void *ctx)
{
    struct apply_call call = {promise__state_get(),
                              promise != NULL ? promise : promise__einval,
                              {{run_apply, drop_apply}, result, map_error, ctx}};

    if (call.st == NULL)
        return promise__no_state();
    if (result == NULL && map_error == NULL) {
        promise_unref(promise);
        return promise_rejected(-EINVAL);
    }
    return promise_call(start_apply, &call);
}

struct promise *promise_bind_result(struct promise *promise, promise_result_fn *fn, void *ctx)
{
    return apply_to(promise, fn, NULL, ctx);
}

struct promise *promise_map_error(struct promise *promise, promise_map_error_fn *fn, void *ctx)
{
    return apply_to(promise, NULL, fn, ctx);
}

/* ---- one side ---- */

static struct promise *done(int err, void *ctx)
{
    (void)err;
    (void)ctx;
    return promise_fulfilled(weft_num(0));
}

/* `p` without its value. */
static struct promise *without_value(struct promise *p)
{
    return promise_join(&p, 1);
}

struct promise *promise_iter_ok(struct promise *promise, promise_bind_fn *fn, void *ctx)
{
    return without_value(promise_try_bind(promise, fn, done, ctx));
}

struct promise *promise_iter_error(struct promise *promise, promise_catch_fn *handler, void *ctx)
{
    return without_value(promise_catch(promise, handler, ctx));
}
