/* call.c: see call.h. */
#include "call.h"

#include <errno.h>

static void let_go(struct weft__call *call)
{
    weft__storage_unref(call->locals);
    call->locals = NULL;
    if (call->outside) {
        weft_inbox_unref(call->here);
        weft_inbox_unref(call->there);
    }
    if (call->route != NULL)
        call->route->back(call);
}

static void run_back(struct weft_task *task)
{
    struct weft__call *call = weft__container(task, struct weft__call, go);

    let_go(call);
    call->class->done(call);
}

/* One count less; the last sends the call back. */
static void come_back(struct weft__call *call)
{
    if (atomic_fetch_sub(&call->abroad, 1) > 1)
        return;
    call->go.run = run_back;
    if (weft_post(call->here, &call->go) == 0)
        return;
    let_go(call);
    if (call->destroy != NULL)
        call->destroy(call->value.ptr);
    call->class->lost(call);
}

static void evict(struct weft__guest *guest)
{
    struct weft__call *call = weft__container(guest, struct weft__call, guest);

    call->class->evict(call);
}

static void run_go(struct weft_task *task)
{
    struct weft__call *call = weft__container(task, struct weft__call, go);
    struct weft_runtime *rt = weft__rt;

    weft__guest_add(rt, &call->guest, evict);
    if (call->route != NULL && atomic_load(&call->cancel_sent)) {
        weft__call_end(call, -ECANCELED, weft_num(0), NULL);
        return;
    }
    weft__forget_locals(rt);
    rt->base.storage = call->locals; /* forgotten by the loop, after the task */
    call->locals = NULL;
    call->class->begin(call);
}

static void run_stop(struct weft_task *task)
{
    struct weft__call *call = weft__container(task, struct weft__call, stop);

    if (!call->over)
        call->class->cancel(call);
    come_back(call);
}

int weft__call_prepare(struct weft_runtime *rt, struct weft__call *call, bool outside)
{
    int rc = weft__storage_export(rt->strand->storage, &call->locals);

    if (rc < 0)
        return rc;
    call->go.run = run_go;
    call->stop.run = run_stop;
    call->here = rt->inbox;
    call->there = NULL;
    call->outside = outside;
    call->over = false;
    call->route = NULL;
    call->destroy = NULL;
    call->value = weft_num(0);
    atomic_init(&call->abroad, 1);
    atomic_init(&call->cancel_sent, false);
    if (outside)
        weft__inbox_hold(call->here);
    return 0;
}

void weft__call_discard(struct weft__call *call)
{
    let_go(call);
}

int weft__call_push(struct weft__call *call, struct weft_inbox *there)
{
    int rc;

    if (call->outside)
        weft__inbox_hold(there);
    call->there = there;
    rc = weft__inbox_push(there, &call->go);
    if (rc < 0) {
        call->there = NULL;
        if (call->outside)
            weft_inbox_unref(there);
    }
    return rc;
}

int weft__call_send(struct weft_runtime *rt, struct weft__call *call, struct weft_inbox *there)
{
    bool outside = rt->inbox->cluster == NULL || rt->inbox->cluster != there->cluster;
    int rc = weft__call_prepare(rt, call, outside);

    if (rc < 0)
        return rc;
    rc = weft__call_push(call, there);
    if (rc < 0)
        weft__call_discard(call);
    else
        weft__inbox_nudge(there);
    return rc;
}

void weft__call_return(struct weft__call *call, int status)
{
    call->status = status;
    come_back(call);
}

void weft__call_cancel(struct weft__call *call)
{
    unsigned count = atomic_load(&call->abroad);

    if (atomic_exchange(&call->cancel_sent, true))
        return;
    do {
        if (count == 0) /* it is on its way back */
            return;
    } while (!atomic_compare_exchange_weak(&call->abroad, &count, count + 1));
    if (weft_post(call->there, &call->stop) < 0)
        come_back(call); /* the runtime there has ended, and the call with it */
}

void weft__call_end(struct weft__call *call, int status, union weft_value value,
                    void (*destroy)(void *ptr))
{
    weft__guest_remove(&call->guest);
    call->over = true;
    call->status = status;
    call->value = value;
    call->destroy = destroy;
    if (call->route != NULL)
        call->route->left(call);
    come_back(call);
}
