/* shared_channel.h: waiting for a shared channel, for both styles. See shared_channel.c. */
#ifndef WEFT_SHARED_CHANNEL_INTERNAL_H
#define WEFT_SHARED_CHANNEL_INTERNAL_H

#include <weft/shared_channel.h>

#include "inbox.h"
#include "runtime_internal.h"

#define WEFT__SHARED_WAITS 1 /* a result beside 0 and the negative ones */

/* Somebody who waits: on its own memory, which stays until it is over. Set over, left and destroy.
 * Between the lines the channel's lock guards; the rest is the waiting runtime's. */
struct weft__shared_wait {
    /* The wait has ended by itself; on the base stack. status, and for a receiver value, are set. */
    void (*over)(struct weft__shared_wait *wait);
    /* The runtime ends: the wait was given up, and nothing has come. */
    void (*evicted)(struct weft__shared_wait *wait);
    struct weft_task task; /* posted when it is over */
    struct weft__guest guest;
    struct weft_shared_channel *channel;
    struct weft_inbox *inbox; /* NULL: of a thread without a runtime, which has the next instead */
    pthread_cond_t *changed;
    /* ---- */
    struct weft__shared_wait *next, *prev; /* in the queue; next NULL: in none */
    bool sends;
    int status;
    union weft_value value;
    /* ---- */
};

/* Does it now, or puts `wait` in the queue and returns WEFT__SHARED_WAITS: then `over` will be called,
 * unless weft__shared_leave says otherwise. wait NULL: WEFT__SHARED_WAITS alone. rt NULL: none. */
int weft__shared_send(struct weft_runtime *rt, struct weft_shared_channel *channel,
                      union weft_value value, struct weft__shared_wait *wait);
int weft__shared_recv(struct weft_runtime *rt, struct weft_shared_channel *channel,
                      union weft_value *value, struct weft__shared_wait *wait);

/* Gives a wait up. True: nothing has come, and nothing will. False: `over` is on its way. */
bool weft__shared_leave(struct weft__shared_wait *wait);

void (*weft__shared_destroy(const struct weft_shared_channel *channel))(void *ptr);

#endif
