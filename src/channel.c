/* channel.c: the channel, but for what is inline in sync_core.h.
 *
 * Somebody waits to send only while the channel is full, and to receive only while it is empty and
 * nobody waits to send. Both queues have somebody only if that is one fiber_select, which doesn't
 * serve itself. */
#include "sync_core.h"

#include <stdlib.h>

_Static_assert(sizeof(struct weft_channel) == 96, "part of the ABI");

bool weft__channel_leave_send(struct weft__wait *wait, int why)
{
    (void)why;
    weft__remove(&((struct weft_channel *)wait->object)->senders, wait);
    return true;
}

bool weft__channel_leave_recv(struct weft__wait *wait, int why)
{
    (void)why;
    weft__remove(&((struct weft_channel *)wait->object)->receivers, wait);
    return true;
}

void weft_channel_init(struct weft_channel *channel, union weft_value *items, size_t capacity,
                       void (*destroy)(void *ptr))
{
    if (channel != NULL)
        *channel = (struct weft_channel){
            .items = items, .capacity = items != NULL ? capacity : 0, .destroy = destroy};
}

void weft_channel_finish(struct weft_channel *channel)
{
    struct weft_runtime *rt = weft__rt;

    if (channel == NULL)
        return;
    channel->closed = true;
    while (channel->count > 0) {
        void *item = channel->items[channel->first].ptr;

        channel->first = weft__channel_at(channel, 1);
        channel->count--;
        if (channel->destroy != NULL)
            channel->destroy(item);
    }
    if (rt == NULL) { /* it has ended, and what waited with it */
        channel->senders = channel->receivers = NULL;
        return;
    }
    weft__wake_all(&channel->senders, -ECANCELED);
    weft__wake_all(&channel->receivers, -ECANCELED);
    weft__after_wakes(rt);
}

struct weft_channel *weft_channel_create(size_t capacity, void (*destroy)(void *ptr))
{
    struct weft_channel *channel;

    if (capacity > (SIZE_MAX / 2 - sizeof *channel) / sizeof *channel->items)
        return NULL;
    channel = malloc(sizeof *channel + capacity * sizeof *channel->items);
    if (channel != NULL)
        weft_channel_init(channel, (union weft_value *)(void *)(channel + 1), capacity, destroy);
    return channel;
}

void weft_channel_destroy(struct weft_channel *channel)
{
    weft_channel_finish(channel);
    free(channel);
}

void weft_channel_close(struct weft_channel *channel)
{
    struct weft_runtime *rt = weft__rt;

    if (channel == NULL)
        return;
    channel->closed = true;
    if (rt == NULL)
        return;
    weft__wake_all(&channel->senders, -EPIPE);
    weft__wake_all(&channel->receivers, -ENODATA);
    weft__after_wakes(rt);
}

bool weft_channel_is_closed(const struct weft_channel *channel)
{
    return channel == NULL || channel->closed;
}

size_t weft_channel_count(const struct weft_channel *channel)
{
    return channel != NULL ? channel->count : 0;
}

int weft_channel_try_send(struct weft_channel *channel, union weft_value value)
{
    struct weft_runtime *rt = weft__rt;
    int rc;

    if (rt == NULL || channel == NULL)
        return -EINVAL;
    rc = weft__channel_send(channel, value);
    weft__after_wakes(rt);
    return rc == WEFT__WAITS ? -EAGAIN : rc;
}

int weft_channel_try_recv(struct weft_channel *channel, union weft_value *value)
{
    struct weft_runtime *rt = weft__rt;
    int rc;

    if (rt == NULL || channel == NULL || value == NULL)
        return -EINVAL;
    rc = weft__channel_recv(channel, value);
    weft__after_wakes(rt);
    return rc == WEFT__WAITS ? -EAGAIN : rc;
}
