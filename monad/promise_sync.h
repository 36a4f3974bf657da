/* promise_sync.h: how a promise waits for one of the objects of weft/sync.h. See sync_core.h. */
#ifndef PROMISE_SYNC_INTERNAL_H
#define PROMISE_SYNC_INTERNAL_H

#include <weft/sync.h>

#include "promise_wait.h"
#include "sync_core.h"

/* What WEFT__RUNS is as a rejection; only jobs of this folder see it. */
#define PROMISE__SYNC_RUNS (-ENOKEY)

/* Behind the promise. */
struct promise__sync {
    struct weft__wait wait;
    bool (*leave)(struct weft__wait *wait, int why);
    void (*destroy)(void *ptr); /* of the value, if it is the promise's own */
};

/* A pending promise and its wait, to be entered into a queue; a cancel takes it out again. *wait NULL:
 * no memory, and the promise says so. */
struct promise *promise__sync_make(struct promise__state *st,
                                   bool (*leave)(struct weft__wait *wait, int why),
                                   struct weft__wait **wait);

#endif
