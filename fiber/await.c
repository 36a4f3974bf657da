/* await.c: where fibers and promises meet: a fiber waits for a promise, and a fiber's end settles one.
 * The only file that sees both.
 *
 * Waiting allocates nothing: the waiter, and the timer of a deadline, are on the fiber's own stack.
 * Whoever ends the wait first (the promise, the deadline, a cancellation) undoes the other two at
 * once, so a stale one never fires.
 */
#include "fiber_internal.h"
#include "promise_internal.h"
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
    if (weft__unlikely(rt == NULL || weft__is_base(rt))) {
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

/* The fiber holds its promise as an operation does: until it has ended. */
static void settle(struct weft_runtime *rt, struct fiber *fiber, int64_t result)
{
    (void)rt;
    promise__settle(fiber->owner, result < 0 ? (int)(result < -4095 ? -EINVAL : result) : 0,
                    weft_num(result));
}

static struct promise *spawn(fiber_fn *fn, void *arg, const struct fiber_options *options,
                             const char *where)
{
    struct weft_runtime *rt = weft__rt;
    struct promise *promise;
    void *extra;
    int rc;

    if (rt == NULL)
        return promise_rejected(-EINVAL);
    promise = promise__create_operation(rt, 0, NULL, &extra);
    if (extra == NULL)
        return promise;
    rc = fiber__start(rt, fn, arg, options, where, settle, promise);
    if (rc < 0)
        promise__settle(promise, rc, weft_num(0));
    return promise;
}

struct promise *fiber_spawn_at(fiber_fn *fn, void *arg, const char *where)
{
    return spawn(fn, arg, NULL, where);
}

struct promise *fiber_spawn_with(fiber_fn *fn, void *arg, const struct fiber_options *options)
{
    return spawn(fn, arg, options, NULL);
}
