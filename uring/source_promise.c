/* source_promise.c: promises of a process's end, a signal, a file event. Wait and deadline live
 * behind the promise, if it has to wait at all. A cancel and a deadline settle it at once: it has taken
 * nothing that could be lost. */
#include <weft/process.h>
#include <weft/signals.h>
#include <weft/watch.h>

#include "promise_internal.h"
#include "source.h"
#include "timer.h"

struct request {
    struct ring__wait wait;
    struct weft_timer deadline;
    struct weft_runtime *rt;
    struct ring__source *source;
};

static void taken(struct weft_waiter *waiter)
{
    struct request *r = weft__container(waiter, struct request, wait.waiter);

    weft__timer_stop(r->rt, &r->deadline);
    promise__settle(promise__of_extra(r), r->wait.res < 0 ? r->wait.res : 0, weft_num(r->wait.res));
}

static void give_up(struct request *r, int reason)
{
    ring__source_leave(r->source, &r->wait);
    r->wait.res = reason;
    taken(&r->wait.waiter);
}

static void expired(struct weft_timer *timer)
{
    give_up(weft__container(timer, struct request, deadline), -ETIMEDOUT);
}

static void cancelled(struct promise *p)
{
    give_up(promise__extra(p), -ECANCELED);
}

static struct promise *wait_for(struct ring__source *source, void *out, weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    struct request *r;
    struct promise *p;
    void *extra;
    int rc;

    if (rt == NULL || source == NULL)
        return promise_rejected(-EINVAL);
    rc = ring__source_try(rt, source, out);
    if (rc == -EAGAIN && deadline <= WEFT_NOWAIT)
        rc = -ETIMEDOUT;
    if (rc != -EAGAIN)
        return promise_from_result(rc);
    p = promise__create_operation(rt, sizeof *r, cancelled, &extra);
    if (extra == NULL)
        return p;
    r = extra;
    r->wait.waiter.wake = taken;
    r->wait.out = out;
    r->rt = rt;
    r->source = source;
    weft_timer_init(&r->deadline, expired);
    rc = ring__source_wait(rt, source, &r->wait);
    if (rc < 0)
        promise__settle(p, rc, weft_num(0));
    else if (deadline != WEFT_FOREVER)
        weft__timer_start(rt, &r->deadline, deadline);
    return p;
}

struct promise *promise_process_wait(struct weft_process *process, weft_time deadline)
{
    int known = ring__process_known(process);

    if (known != -EAGAIN && weft__rt != NULL)
        return promise_from_result(known);
    return wait_for(ring__process_source(process), NULL, deadline);
}

struct promise *promise_signals_wait(struct weft_signals *signals, struct signalfd_siginfo *info,
                                     weft_time deadline)
{
    return wait_for(ring__signals_source(signals), info, deadline);
}

struct promise *promise_watch_next(struct weft_watch *watch, struct weft_watch_event *event,
                                   weft_time deadline)
{
    return wait_for(ring__watch_source(watch), event, deadline);
}
