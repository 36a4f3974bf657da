/* await.c: where fibers and promises meet: a fiber waits for a promise, and a fiber's end settles one.
 * Only this file, await_call_on.c and select_promise.c see both.
 *
 * Waiting allocates nothing: the waiter, and the timer of a deadline, are on the fiber's own stack.
 * Whoever ends the wait first (the promise, the deadline, a cancellation) undoes the other two at
 * once, so a stale one never fires.
 */
#include "fiber_internal.h"
#include "promise_internal.h"
#include "scope.h"
#include "timer.h"

struct awaiter {
    struct weft_waiter waiter;
    struct fiber_wait wait;
    struct weft_timer timer;
    struct weft_runtime *rt;
    struct fiber *fiber;
    int result;
};

static void end_wait(struct awaiter *awaiter, int result)
{
    promise__detach(&awaiter->waiter);
    weft__timer_stop(awaiter->rt, &awaiter->timer);
    awaiter->result = result;
    fiber__wake(awaiter->rt, awaiter->fiber);
}

static void settled(struct weft_waiter *waiter)
{
    end_wait(weft__container(waiter, struct awaiter, waiter), 0);
}

static void expired(struct weft_timer *timer)
{
    end_wait(weft__container(timer, struct awaiter, timer), -ETIMEDOUT);
}

static void cancelled(struct fiber_wait *wait)
{
    end_wait(weft__container(wait, struct awaiter, wait), -ECANCELED);
}

static int wait_for(struct weft_runtime *rt, struct promise__state *st, struct promise *promise,
                    weft_time deadline)
{
    struct fiber *self = fiber__current(rt);
    struct awaiter awaiter;

    if (self->cancelled)
        return self->cancelled;
    if (deadline == WEFT_NOWAIT)
        return -ETIMEDOUT;
    awaiter.waiter = (struct weft_waiter){.wake = settled};
    awaiter.wait = (struct fiber_wait){.cancel = cancelled, .what = "a promise", .detail = -1};
    awaiter.rt = rt;
    awaiter.fiber = self;
    awaiter.result = 0;
    weft_timer_init(&awaiter.timer, expired);
    promise__attach(st, promise, &awaiter.waiter);
    if (deadline != WEFT_FOREVER)
        weft__timer_start(rt, &awaiter.timer, deadline);
    fiber__park(rt, self, &awaiter.wait);
    return awaiter.result;
}

int fiber_await(struct promise *promise, union weft_value *value, weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    struct promise__state *st;
    union weft_value here;
    int rc;

    if (weft__unlikely(promise == NULL))
        return -EINVAL;
    if (weft__unlikely(fiber__self(rt) == NULL)) {
        promise_unref(promise);
        return fiber__cannot_wait(rt);
    }
    st = promise__state_get(); /* NULL without memory for it: then the promise is immediate */
    if (promise__pending(st, promise)) {
        rc = wait_for(rt, st, promise, deadline);
        if (weft__unlikely(rc < 0)) {
            promise_unref(promise);
            return rc;
        }
    }
    if (value != NULL)
        return promise__take(st, promise, value);
    rc = promise__outcome(st, promise, &here);
    promise_unref(promise);
    return rc;
}

/* ---- a fiber's result as a promise ----
 *
 * The fiber holds its promise as an operation does: until it has ended. Canceling the promise
 * cancels the fiber. */

struct result {
    struct fiber *fiber; /* NULL: not begun, or over */
};

static void settle(struct fiber *fiber, int64_t result)
{
    struct result *r = fiber->owner;

    r->fiber = NULL;
    if (weft__unlikely(fiber__error(fiber, result) != 0) &&
        promise__is_abandoned(promise__of_extra(r)))
        fiber__report_failure(weft__rt, fiber, fiber__error(fiber, result));
    promise__settle(promise__of_extra(r), result < 0 ? (int)(result < -4095 ? -EINVAL : result) : 0,
                    weft_num(result));
}

static void ended(struct weft_runtime *rt, struct fiber *fiber, int64_t result)
{
    (void)rt;
    settle(fiber, result);
}

static void ended_in_scope(struct weft_runtime *rt, struct fiber *fiber, int64_t result)
{
    settle(fiber, result);
    fiber__scope_left(rt, fiber, 0, result == -ECANCELED);
}

static void cancel_fiber(struct promise *promise)
{
    struct result *r = promise__extra(promise);

    if (r->fiber != NULL)
        fiber__cancel(weft__rt, r->fiber);
}

static struct promise *spawn(struct fiber_scope *scope, fiber_fn *fn, void *arg,
                             const struct fiber_options *options, const char *where)
{
    struct weft_runtime *rt = weft__rt;
    struct promise *promise;
    struct result *r;
    void *extra;
    int rc;

    if (rt == NULL)
        return promise_rejected(-EINVAL);
    promise = promise__create_operation(rt, sizeof *r, cancel_fiber, &extra);
    if (extra == NULL)
        return promise;
    r = extra;
    r->fiber = NULL;
    rc = scope == NULL
             ? fiber__start(rt, fn, arg, options, where, ended, r, &r->fiber)
             : fiber__scope_start(scope, fn, arg, options, where, ended_in_scope, r, &r->fiber);
    if (rc < 0)
        promise__settle(promise, rc, weft_num(0));
    return promise;
}

struct promise *fiber_spawn_at(fiber_fn *fn, void *arg, const char *where)
{
    return spawn(NULL, fn, arg, NULL, where);
}

struct promise *fiber_spawn_with(fiber_fn *fn, void *arg, const struct fiber_options *options)
{
    return spawn(NULL, fn, arg, options, NULL);
}

struct promise *fiber_scope_promise_at(struct fiber_scope *scope, fiber_fn *fn, void *arg,
                                       const char *where)
{
    return scope == NULL ? promise_rejected(-EINVAL) : spawn(scope, fn, arg, NULL, where);
}

/* ---- a promise in a scope: a fiber waits for it ---- */

static int await_held(void *promise)
{
    return fiber_await(promise, NULL, WEFT_FOREVER);
}

static int64_t hold(void *promise)
{
    (void)fiber_await(promise_ref(promise), NULL, WEFT_FOREVER);
    /* It may have failed since a cancellation woke this fiber: that is not to be lost. */
    if (promise_state(promise) != PROMISE_PENDING)
        return fiber_await(promise, NULL, WEFT_NOWAIT);
    promise_cancel(promise);
    return fiber_shield(await_held, promise); /* as for a fiber: until it has really ended */
}

int fiber_scope_hold_at(struct fiber_scope *scope, struct promise *promise, const char *where)
{
    int rc;

    if (promise == NULL)
        return -EINVAL;
    rc = fiber_scope_spawn_at(scope, hold, promise, where);
    if (rc < 0) {
        promise_cancel(promise);
        promise_unref(promise);
    }
    return rc;
}
