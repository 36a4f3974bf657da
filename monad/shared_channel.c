/* shared_channel.c: sending to and receiving from a shared channel as promises. The wait is behind the
 * promise in its block; the promise is there before anything is moved, so no item is lost for lack of
 * memory. */
#include "shared_channel.h"

#include "promise_internal.h"

struct waiting {
    struct weft__shared_wait wait;
    void (*destroy)(void *ptr); /* of the item received */
};

static void settle(struct waiting *w, int status, union weft_value value)
{
    struct promise *promise = promise__of_extra(w);

    if (status == 0 && w->destroy != NULL)
        promise__settle_owned(promise, value.ptr, w->destroy);
    else
        promise__settle(promise, status, value);
}

static void sent(struct weft__shared_wait *wait)
{
    settle(weft__container(wait, struct waiting, wait), wait->status, weft_num(0));
}

static void received(struct weft__shared_wait *wait)
{
    settle(weft__container(wait, struct waiting, wait), wait->status, wait->value);
}

static void evicted(struct weft__shared_wait *wait)
{
    (void)wait; /* the promise goes with its runtime */
}

static void cancel(struct promise *promise)
{
    struct waiting *w = promise__extra(promise);

    if (weft__shared_leave(&w->wait))
        settle(w, -ECANCELED, weft_num(0));
}

static struct promise *create(struct weft_runtime *rt, struct waiting **w,
                              void (*over)(struct weft__shared_wait *wait),
                              void (*destroy)(void *ptr))
{
    struct promise *promise;
    void *extra;

    promise = promise__create_operation(rt, sizeof **w, cancel, &extra);
    *w = extra;
    if (extra != NULL) {
        (*w)->wait.over = over;
        (*w)->wait.evicted = evicted;
        (*w)->destroy = destroy;
    }
    return promise;
}

struct promise *promise_shared_channel_send(struct weft_shared_channel *channel,
                                            union weft_value value)
{
    struct weft_runtime *rt = weft__rt;
    struct promise *promise;
    struct waiting *w;
    int rc;

    if (rt == NULL)
        return promise_rejected(-EINVAL);
    rc = weft__shared_send(rt, channel, value, NULL);
    if (rc != WEFT__SHARED_WAITS)
        return promise_from_result(rc);
    promise = create(rt, &w, sent, NULL);
    if (w == NULL)
        return promise;
    rc = weft__shared_send(rt, channel, value, &w->wait);
    if (rc != WEFT__SHARED_WAITS)
        settle(w, rc, weft_num(0));
    return promise;
}

struct promise *promise_shared_channel_recv(struct weft_shared_channel *channel)
{
    struct weft_runtime *rt = weft__rt;
    union weft_value value = weft_num(0);
    struct promise *promise;
    struct waiting *w;
    int rc;

    if (rt == NULL || channel == NULL)
        return promise_rejected(-EINVAL);
    promise = create(rt, &w, received, weft__shared_destroy(channel));
    if (w == NULL)
        return promise;
    rc = weft__shared_recv(rt, channel, &value, &w->wait);
    if (rc != WEFT__SHARED_WAITS)
        settle(w, rc, value);
    return promise;
}
