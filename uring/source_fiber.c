/* source_fiber.c: fibers that wait for a process, a signal or a file event. Wait and deadline live
 * on the fiber's stack. Whoever ends the wait undoes the other two at once: it has taken nothing
 * that could be lost. */
#include <weft/process.h>
#include <weft/signals.h>
#include <weft/watch.h>

#include "fiber_internal.h"
#include "source.h"
#include "timer.h"

struct awaiter {
    struct ring__wait wait;
    struct fiber_wait parked;
    struct weft_timer deadline;
    struct weft_runtime *rt;
    struct fiber *fiber;
    struct ring__source *source;
};

static void taken(struct weft_waiter *waiter)
{
    struct awaiter *a = weft__container(waiter, struct awaiter, wait.waiter);

    weft__timer_stop(a->rt, &a->deadline);
    fiber__wake(a->rt, a->fiber);
}

static void give_up(struct awaiter *a, int reason)
{
    ring__source_leave(a->source, &a->wait);
    a->wait.res = reason;
    taken(&a->wait.waiter);
}

static void expired(struct weft_timer *timer)
{
    give_up(weft__container(timer, struct awaiter, deadline), -ETIMEDOUT);
}

static void cancelled(struct fiber_wait *parked)
{
    struct awaiter *a = weft__container(parked, struct awaiter, parked);

    give_up(a, a->fiber->cancelled);
}

/* Whether the caller may wait: 0, -EINVAL, -EDEADLK, -ECANCELED. */
static inline __attribute__((always_inline)) int enter_wait(struct weft_runtime *rt,
                                                            const struct ring__source *source)
{
    const struct fiber *self = fiber__self(rt);

    if (self == NULL)
        return fiber__cannot_wait(rt);
    return source == NULL ? -EINVAL : self->cancelled;
}

static int wait_for(struct weft_runtime *rt, struct ring__source *source, void *out,
                    weft_time deadline)
{
    struct awaiter a;
    int rc = ring__source_try(rt, source, out);

    if (rc != -EAGAIN)
        return rc;
    if (deadline <= WEFT_NOWAIT)
        return -ETIMEDOUT;
    a.wait.waiter.wake = taken;
    a.wait.out = out;
    rc = ring__source_wait(rt, source, &a.wait);
    if (rc < 0)
        return rc;
    a.parked = (struct fiber_wait){.cancel = cancelled, .what = source->class->what, .detail = -1};
    a.rt = rt;
    a.fiber = fiber__current(rt);
    a.source = source;
    weft_timer_init(&a.deadline, expired);
    if (deadline != WEFT_FOREVER)
        weft__timer_start(rt, &a.deadline, deadline);
    fiber__park(rt, a.fiber, &a.parked);
    return a.wait.res;
}

int fiber_process_wait(struct weft_process *process, weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    struct ring__source *source = ring__process_source(process);
    int rc = enter_wait(rt, source), known = ring__process_known(process);

    if (known != -EAGAIN && fiber__self(rt) != NULL)
        return known;
    return rc < 0 ? rc : wait_for(rt, source, NULL, deadline);
}

int fiber_signals_wait(struct weft_signals *signals, struct signalfd_siginfo *info,
                       weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    struct ring__source *source = ring__signals_source(signals);
    int rc = enter_wait(rt, source);

    return rc < 0 ? rc : wait_for(rt, source, info, deadline);
}

int fiber_watch_next(struct weft_watch *watch, struct weft_watch_event *event, weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    struct ring__source *source = ring__watch_source(watch);
    int rc = enter_wait(rt, source);

    return rc < 0 ? rc : wait_for(rt, source, event, deadline);
}
