/* shared_channel.c: fibers that wait for a shared channel: all of it on their own stacks. */
#include "shared_channel.h"

#include "fiber_internal.h"
#include "timer.h"

struct waiting {
    struct weft__shared_wait wait;
    struct fiber_wait fiber_wait;
    struct weft_timer deadline;
    struct weft_runtime *rt;
    struct fiber *fiber;
};

static void over(struct weft__shared_wait *wait)
{
    struct waiting *w = weft__container(wait, struct waiting, wait);

    weft__timer_stop(w->rt, &w->deadline);
    w->fiber_wait.cancel = NULL;
    fiber__wake(w->rt, w->fiber);
}

static void evicted(struct weft__shared_wait *wait)
{
    (void)wait; /* the engine has failed, and the fiber never runs again */
}

static void give_up(struct waiting *w, int why)
{
    if (!weft__shared_leave(&w->wait))
        return; /* it has happened: `over` comes */
    w->wait.status = why;
    over(&w->wait);
}

static void expired(struct weft_timer *timer)
{
    give_up(weft__container(timer, struct waiting, deadline), -ETIMEDOUT);
}

static void cancelled(struct fiber_wait *wait)
{
    give_up(weft__container(wait, struct waiting, fiber_wait), -ECANCELED);
}

static int await_end(struct weft_runtime *rt, struct waiting *w, const char *what,
                     weft_time deadline)
{
    w->fiber_wait = (struct fiber_wait){.cancel = cancelled, .what = what, .detail = -1};
    w->rt = rt;
    w->fiber = fiber__current(rt);
    weft_timer_init(&w->deadline, expired);
    if (deadline != WEFT_FOREVER)
        weft__timer_start(rt, &w->deadline, deadline);
    fiber__park(rt, w->fiber, &w->fiber_wait);
    return w->wait.status;
}

int fiber_shared_channel_send(struct weft_shared_channel *channel, union weft_value value,
                              weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    const struct fiber *self = fiber__self(rt);
    struct waiting w;
    int rc;

    if (self == NULL)
        return fiber__cannot_wait(rt);
    if (self->cancelled)
        return self->cancelled;
    w.wait.over = over;
    w.wait.evicted = evicted;
    rc = weft__shared_send(rt, channel, value, deadline <= WEFT_NOWAIT ? NULL : &w.wait);
    if (rc != WEFT__SHARED_WAITS)
        return rc;
    return deadline <= WEFT_NOWAIT ? -ETIMEDOUT
                                   : await_end(rt, &w, "room in a shared channel", deadline);
}

int fiber_shared_channel_recv(struct weft_shared_channel *channel, union weft_value *value,
                              weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    const struct fiber *self = fiber__self(rt);
    struct waiting w;
    int rc;

    if (self == NULL)
        return fiber__cannot_wait(rt);
    if (self->cancelled)
        return self->cancelled;
    if (value == NULL)
        return -EINVAL;
    w.wait.over = over;
    w.wait.evicted = evicted;
    rc = weft__shared_recv(rt, channel, value, deadline <= WEFT_NOWAIT ? NULL : &w.wait);
    if (rc != WEFT__SHARED_WAITS)
        return rc;
    if (deadline <= WEFT_NOWAIT)
        return -ETIMEDOUT;
    rc = await_end(rt, &w, "an item of a shared channel", deadline);
    if (rc == 0)
        *value = w.wait.value;
    return rc;
}
