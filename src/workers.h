/* workers.h: a call that goes to whichever worker has time. See workers.c. */
#ifndef WEFT_WORKERS_INTERNAL_H
#define WEFT_WORKERS_INTERNAL_H

#include <weft/workers.h>

#include "call.h"

/* Beside the call, in its memory. Private to workers.c. */
struct weft__work {
    struct weft_workers *workers;
    struct weft__call *call;
    struct weft__work *next, **link; /* in the queue; link NULL: not in it */
    unsigned weight, worker;
    bool waited_for;
};

/* Submits a call whose class is set. waited_for: the pool's limit doesn't count. 0: `done` or `lost`
 * will be called; a negative errno: neither. */
int weft__work_submit(struct weft_runtime *rt, struct weft_workers *workers, unsigned weight,
                      struct weft__call *call, struct weft__work *work, bool waited_for);

/* Instead of weft__call_cancel: a job that has not begun never begins. */
void weft__work_cancel(struct weft__call *call);

#endif
