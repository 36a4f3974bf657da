/* time.c: timeouts, and a timer that can be started again. */
#include <weft/promise_time.h>

#include "promise_internal.h"

_Static_assert(sizeof(void *) != 8 || sizeof(struct promise_timer) == 88, "part of the ABI");

/* ---- timeouts ---- */

static void expire(struct weft_timer *timer)
{
    promise__settle(promise__of_extra(timer), -ETIMEDOUT, weft_num(0));
}

struct promise *promise_timeout_at(weft_time at)
{
    struct promise__state *st = promise__state_get();

    if (st == NULL)
        return promise__no_state();
    PROMISE__ENTER(st);
    return PROMISE__MADE(promise__alarm(st, at, expire));
}

struct promise *promise_timeout(int64_t ns)
{
    return promise_timeout_at(weft_after(ns));
}

struct promise *promise_with_deadline(weft_time at, struct promise *promise)
{
    struct promise *operands[2] = {NULL, promise};

    if (promise_state(promise) != PROMISE_PENDING)
        return promise != NULL ? promise : promise_rejected(-EINVAL);
    operands[0] = promise_timeout_at(at);
    return promise_pick(operands, 2);
}

struct promise *promise_with_timeout(int64_t ns, struct promise *promise)
{
    return promise_with_deadline(weft_after(ns), promise);
}

struct promise *promise_call_with_timeout(int64_t ns, promise_thunk_fn *fn, void *ctx)
{
    weft_time at = weft_after(ns);

    if (fn == NULL)
        return promise_rejected(-EINVAL);
    return promise_with_deadline(at, promise_call(fn, ctx));
}

/* ---- a timer ---- */

static void fire(struct weft_timer *timer)
{
    struct promise_timer *t = weft__container(timer, struct promise_timer, timer);
    struct promise__state *st = promise__state_get();
    struct weft__storage *saved;
    int rc;

    if (st == NULL || st->stopped) /* no callback runs any more */
        return;
    saved = weft__storage_ref(st->rt->base.storage);
    rc = t->action(t->ctx); /* may end t */
    promise__set_storage(st, saved);
    if (rc < 0)
        promise__report_error(st, rc);
}

int promise_timer_init(struct promise_timer *timer, int64_t delay, promise_done_fn *action,
                       void *ctx)
{
    if (timer == NULL || delay <= 0 || action == NULL)
        return -EINVAL;
    *timer = (struct promise_timer){.delay = delay, .action = action, .ctx = ctx};
    weft_timer_init(&timer->timer, fire);
    return 0;
}

int promise_timer_start(struct promise_timer *timer)
{
    if (weft__rt == NULL || timer == NULL)
        return -EINVAL;
    weft_timer_stop(&timer->timer);
    weft_timer_start(&timer->timer, weft_after(timer->delay));
    return 0;
}

void promise_timer_stop(struct promise_timer *timer)
{
    if (weft__rt != NULL && timer != NULL)
        weft_timer_stop(&timer->timer);
}

int promise_timer_change(struct promise_timer *timer, int64_t delay)
{
    if (delay <= 0)
        return -EINVAL;
    timer->delay = delay;
    return promise_timer_running(timer) ? promise_timer_start(timer) : 0;
}

bool promise_timer_running(const struct promise_timer *timer)
{
    return weft_timer_running(&timer->timer);
}
