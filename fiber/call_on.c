/* call_on.c: a function called in a fiber of another runtime, or of a worker, and waited for.
 *
 * Deadline and cancellation ask for the end of the fiber there, and go on waiting for it: what it has
 * done counts, and the memory of the call is on the stack of the fiber that waits here.
 */
#include "call_on.h"

#include <weft/cluster.h>

#include "timer.h"
#include "workers.h"

#include <stdlib.h>

/* ---- there ---- */

static void ended(struct weft_runtime *rt, struct fiber *fiber, int64_t result)
{
    (void)rt;
    weft__call_end(fiber->owner, result < 0 ? (int)(result < -4095 ? -EINVAL : result) : 0,
                   weft_num(result), NULL);
}

void fiber__remote_begin(struct weft__call *call)
{
    struct fiber__remote *remote = call->remote;
    int rc = fiber__start(weft__rt, remote->fn, remote->arg, NULL, remote->where, ended, call,
                          &remote->fiber);

    if (rc < 0)
        weft__call_end(call, rc == -ECANCELED ? -ESHUTDOWN : rc, weft_num(0), NULL);
}

void fiber__remote_cancel(struct weft__call *call)
{
    fiber__cancel(weft__rt, ((struct fiber__remote *)call->remote)->fiber);
}

/* The engine has failed, and no fiber runs any more. */
void fiber__remote_evict(struct weft__call *call)
{
    weft__call_end(call, -ESHUTDOWN, weft_num(0), NULL);
}

/* ---- here ---- */

struct caller {
    struct weft__call call; /* must be first */
    struct fiber__remote remote;
    struct weft__work work; /* of a job */
    struct fiber_wait wait;
    struct weft_timer deadline;
    struct weft__guest guest;
    struct weft_runtime *rt;
    struct fiber *fiber;
    int reason; /* why its end was asked for; 0: it was not */
    void (*give_up)(struct weft__call *call);
};

static void done(struct weft__call *call)
{
    struct caller *caller = (struct caller *)call;

    weft__guest_remove(&caller->guest);
    weft__timer_stop(caller->rt, &caller->deadline);
    caller->wait.cancel = NULL;
    fiber__wake(caller->rt, caller->fiber);
}

/* Cannot be: the caller is there until the call comes back. */
static __attribute__((noreturn)) void lost(struct weft__call *call)
{
    (void)call;
    abort();
}

static void give_up(struct caller *caller, int reason)
{
    if (caller->reason == 0) {
        caller->reason = reason;
        caller->give_up(&caller->call);
    }
}

static void expired(struct weft_timer *timer)
{
    give_up(weft__container(timer, struct caller, deadline), -ETIMEDOUT);
}

static void cancelled(struct fiber_wait *wait)
{
    give_up(weft__container(wait, struct caller, wait), -ECANCELED);
}

/* The engine here has failed. */
static void evict(struct weft__guest *guest)
{
    give_up(weft__container(guest, struct caller, guest), -ECANCELED);
}

static const struct weft__call_class call_class = {
    .begin = fiber__remote_begin,
    .cancel = fiber__remote_cancel,
    .evict = fiber__remote_evict,
    .done = done,
    .lost = lost,
};

/* 0, or why the calling fiber can't wait, or not for that. call: the public function's. */
static int prepare(struct caller *caller, fiber_fn *fn, void *arg, const char *where,
                   weft_time deadline, const void *call)
{
    struct weft_runtime *rt = weft__rt;
    const struct fiber *self = fiber__self(rt);

    if (self == NULL)
        return fiber__refuse(rt, call);
    if (fn == NULL)
        return -EINVAL;
    if (self->cancelled)
        return self->cancelled;
    if (deadline <= WEFT_NOWAIT)
        return -ETIMEDOUT;
    caller->call.class = &call_class;
    caller->call.remote = &caller->remote;
    caller->remote = (struct fiber__remote){fn, arg, where, NULL};
    return 0;
}

/* Waits for the call, which has been sent; give_up is set. */
static int64_t await_end(struct weft_runtime *rt, struct caller *caller, const char *what,
                         weft_time deadline)
{
    int status;

    caller->wait = (struct fiber_wait){.cancel = cancelled, .what = what, .detail = -1};
    caller->rt = rt;
    caller->fiber = fiber__current(rt);
    caller->reason = 0;
    weft__guest_add(rt, &caller->guest, evict);
    weft_timer_init(&caller->deadline, expired);
    if (deadline != WEFT_FOREVER)
        weft__timer_start(rt, &caller->deadline, deadline);
    fiber__park(rt, caller->fiber, &caller->wait);
    status = caller->call.status;
    if (status == 0)
        return caller->call.value.num;
    return status == -ECANCELED && caller->reason != 0 ? caller->reason : status;
}

int64_t fiber_call_on_at(struct weft_inbox *there, int64_t (*fn)(void *arg), void *arg,
                         weft_time deadline, const char *where)
{
    struct weft_runtime *rt = weft__rt;
    struct caller caller;
    int rc = prepare(&caller, fn, arg, where, deadline, __builtin_return_address(0));

    caller.give_up = weft__call_cancel;
    if (rc == 0)
        rc = there == NULL ? -EINVAL : weft__call_send(rt, &caller.call, there);
    return rc < 0 ? rc : await_end(rt, &caller, "a call on another runtime", deadline);
}

int64_t fiber_work_at(struct weft_workers *workers, unsigned weight, int64_t (*fn)(void *arg),
                      void *arg, weft_time deadline, const char *where)
{
    struct weft_runtime *rt = weft__rt;
    struct caller caller;
    int rc = prepare(&caller, fn, arg, where, deadline, __builtin_return_address(0));

    caller.give_up = weft__work_cancel;
    if (rc == 0)
        rc = weft__work_submit(rt, workers, weight, &caller.call, &caller.work, true);
    return rc < 0 ? rc : await_end(rt, &caller, "a worker", deadline);
}
