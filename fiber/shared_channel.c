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

/* Sends *value, or receives it. call: the public function's. */
static int transfer(struct weft_shared_channel *channel, union weft_value *value, bool sends,
                    weft_time deadline, const void *call)
{
    struct weft_runtime *rt = weft__rt;
    const struct fiber *self = fiber__self(rt);
    struct waiting w;
    struct weft__shared_wait *wait = deadline <= WEFT_NOWAIT ? NULL : &w.wait;
    int rc;

    if (self == NULL)
        return fiber__refuse(rt, call);
    if (self->cancelled)
        return self->cancelled;
    if (value == NULL)
        return -EINVAL;
    w.wait.over = over;
    w.wait.evicted = evicted;
    rc = sends ? weft__shared_send(rt, channel, *value, wait)
               : weft__shared_recv(rt, channel, value, wait);
    if (rc != WEFT__SHARED_WAITS)
        return rc;
    if (wait == NULL)
        return -ETIMEDOUT;
    rc = await_end(rt, &w, sends ? "room in a shared channel" : "an item of a shared channel",
                   deadline);
    if (rc == 0)
        *value = w.wait.value;
    return rc;
}

int fiber_shared_channel_send(struct weft_shared_channel *channel, union weft_value value,
                              weft_time deadline)
{
    return transfer(channel, &value, true, deadline, __builtin_return_address(0));
}

int fiber_shared_channel_recv(struct weft_shared_channel *channel, union weft_value *value,
                              weft_time deadline)
{
    return transfer(channel, value, false, deadline, __builtin_return_address(0));
}
