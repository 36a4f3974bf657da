/* callback.c: callbacks on the side, which settle nothing: promise_on_*, async, dont_wait,
 * ignore_result, and the hook for the errors that nobody handles. */
#include "promise_internal.h"

#include <stdlib.h>
#include <string.h>

static void default_hook(struct promise__state *st, int err)
{
    weft__report(st->rt, "an error that nobody handles: %s (%d)", weft_strerror(err), err);
    exit(2);
}

void promise__report_error(struct promise__state *st, int err)
{
    if (st->hook != NULL)
        st->hook(err, st->hook_ctx);
    else
        default_hook(st, err);
}

struct promise__callback *promise__callback_new(struct promise__state *st, enum promise__kind kind)
{
    struct promise__callback *callback =
        (void *)promise__block(st, PROMISE__CLASS(sizeof(struct promise__callback)));

    if (callback == NULL)
        return NULL;
    callback->link.next = NULL;
    callback->link.kind = (uint8_t)kind;
    callback->link.flags = 0;
    callback->storage = NULL;
    return callback;
}

void promise__callback_free(struct promise__state *st, struct promise__callback *callback)
{
    weft__storage_unref(callback->storage);
    promise__block_free(st, &callback->link);
}

void promise__callback_attach(struct promise__state *st, struct promise *x,
                              struct promise__callback *callback)
{
    callback->storage = weft__storage_ref(st->rt->strand->storage);
    promise__list_push(x, &callback->link);
    x->link.flags |= PROMISE__ACTIVE;
    if (callback->link.kind == PROMISE__ON_CANCEL)
        x->link.flags |= PROMISE__CANCELERS;
}

/* ---- calling ---- */

/* What a callback is for, with everything to call it. */
struct side_call {
    struct promise__state *st;
    struct promise *x;
    enum promise__kind kind;
    union promise__fn fn, other;
    void *ctx;
};

/* True if the callback is for the outcome of `x`, settled. */
static bool concerns(const struct side_call *call)
{
    const struct promise *x = call->x;

    switch (call->kind) {
    case PROMISE__ON_SUCCESS:
        return promise__flags(x) == PROMISE__FULFILLED;
    case PROMISE__ON_CANCEL:
        return promise__flags(x) == PROMISE__REJECTED && x->status == -ECANCELED;
    case PROMISE__ON_TERMINATION:
        return true;
    case PROMISE__ON_ANY:
        return promise__flags(x) == PROMISE__FULFILLED ? call->fn.success != NULL
                                                       : call->other.failure != NULL;
    default:
        return promise__flags(x) == PROMISE__REJECTED;
    }
}

static void perform(void *arg)
{
    const struct side_call *call = arg;
    const struct promise *x = call->x;
    int err = 0;

    switch (call->kind) {
    case PROMISE__ON_SUCCESS:
        err = call->fn.success(x->value, call->ctx);
        break;
    case PROMISE__ON_FAILURE:
        err = call->fn.failure(x->status, call->ctx);
        break;
    case PROMISE__ON_ANY:
        err = promise__flags(x) == PROMISE__FULFILLED ? call->fn.success(x->value, call->ctx)
                                                      : call->other.failure(x->status, call->ctx);
        break;
    case PROMISE__ON_TERMINATION:
    case PROMISE__ON_CANCEL:
        err = call->fn.done(call->ctx);
        break;
    case PROMISE__DONT_WAIT:
        call->fn.error(x->status, call->ctx);
        break;
    default:
        err = x->status;
        break;
    }
    if (weft__unlikely(err < 0))
        promise__report_error(call->st, err);
}

void promise__fire_callback(struct promise__state *st, struct promise *p,
                            struct promise__callback *callback)
{
    struct side_call call = {st,           p, callback->link.kind, callback->fn, callback->other,
                             callback->ctx};

    if (concerns(&call)) {
        promise__set_storage(st, callback->storage);
        promise__block_free(st, &callback->link);
        perform(&call);
    } else {
        promise__callback_free(st, callback);
    }
}

/* Attaches a callback to a pending promise, makes it for a settled one. Borrows `promise`. */
static int attach(struct promise *promise, enum promise__kind kind, union promise__fn fn,
                  union promise__fn other, void *ctx, const char *function)
{
    struct promise__state *st = promise__state_get();
    struct promise__callback *callback;
    struct promise room;
    struct side_call call;

    if (st == NULL)
        return promise__no_state_error();
    if (promise == NULL || !PROMISE__VALID(st, promise, function))
        return -EINVAL;
    call = (struct side_call){st, promise__look(st, promise, &room), kind, fn, other, ctx};
    if (promise__flags(call.x) != PROMISE__PENDING) {
        if (!concerns(&call))
            return 0;
        promise__retain(call.x);
        if (weft__is_base(st->rt))
            perform(&call);
        else
            promise__on_base(st, perform, &call);
        promise__release(st, call.x);
        return 0;
    }
    callback = promise__callback_new(st, kind);
    if (callback == NULL)
        return -ENOMEM;
    callback->fn = fn;
    callback->other = other;
    callback->ctx = ctx;
    promise__callback_attach(st, call.x, callback);
    return 0;
}

#define FN(member, f) ((union promise__fn){.member = (f)})
#define NO_FN         ((union promise__fn){NULL})

int promise_on_success(struct promise *promise, promise_success_fn *fn, void *ctx)
{
    return attach(promise, PROMISE__ON_SUCCESS, FN(success, fn), NO_FN, ctx, __func__);
}

int promise_on_failure(struct promise *promise, promise_failure_fn *fn, void *ctx)
{
    return attach(promise, PROMISE__ON_FAILURE, FN(failure, fn), NO_FN, ctx, __func__);
}

int promise_on_termination(struct promise *promise, promise_done_fn *fn, void *ctx)
{
    return attach(promise, PROMISE__ON_TERMINATION, FN(done, fn), NO_FN, ctx, __func__);
}

int promise_on_any(struct promise *promise, promise_success_fn *success,
                   promise_failure_fn *failure, void *ctx)
{
    return attach(promise, PROMISE__ON_ANY, FN(success, success), FN(failure, failure), ctx,
                  __func__);
}

int promise_on_cancel(struct promise *promise, promise_done_fn *fn, void *ctx)
{
    return attach(promise, PROMISE__ON_CANCEL, FN(done, fn), NO_FN, ctx, __func__);
}

int promise_async(struct promise *promise)
{
    int rc;

    if (promise == NULL)
        promise = promise__einval;
    rc = attach(promise, PROMISE__TO_HOOK, NO_FN, NO_FN, NULL, __func__);
    promise_unref(promise);
    return rc;
}

int promise_dont_wait(struct promise *promise, promise_error_fn *handler, void *ctx)
{
    int rc;

    if (promise == NULL)
        promise = promise__einval;
    rc = attach(promise, PROMISE__DONT_WAIT, FN(error, handler), NO_FN, ctx, __func__);
    promise_unref(promise);
    return rc;
}

int promise_ignore_result(struct promise *promise)
{
    int err = -EINVAL;

    if (promise_poll(promise, NULL, &err) == PROMISE_REJECTED) {
        promise_unref(promise);
        return err;
    }
    return promise_async(promise);
}
