/* fiber_sync.h: how a fiber waits for one of the objects of weft/sync.h.
 *
 *     struct fiber__sync s;
 *     fiber__sync_begin(&s, rt, self, weft__X_leave, "an X", deadline);
 *     weft__X_enter(object, &s.wait);
 *     rc = fiber__sync_park(&s);
 *
 * Whoever ends the wait (a hand-over, the deadline, a cancellation) makes the other two unable to.
 */
#ifndef FIBER_SYNC_INTERNAL_H
#define FIBER_SYNC_INTERNAL_H

#include <weft/sync.h>

#include "fiber_internal.h"
#include "sync_core.h"
#include "timer.h"

struct fiber__sync {
    struct weft__wait wait;
    struct fiber_wait park;
    struct weft_runtime *rt;
    struct fiber *fiber;
    bool (*leave)(struct weft__wait *wait, int why);
    struct weft_timer timer; /* unused without a deadline */
};

/* Whether the caller may wait for `object`: 0, or -EINVAL, -EDEADLK, -ECANCELED. In the public
 * function itself, whose caller may be named in a report. */
static inline __attribute__((always_inline)) int
fiber__sync_may(struct weft_runtime *rt, const struct fiber *self, const void *object)
{
    if (weft__unlikely(self == NULL))
        return fiber__cannot_wait(rt);
    if (weft__unlikely(object == NULL))
        return -EINVAL;
    return self->cancelled;
}

void fiber__sync_woken(struct weft_waiter *waiter);
void fiber__sync_cancel(struct fiber_wait *park);
void fiber__sync_set_deadline(struct fiber__sync *s, weft_time deadline);

static inline __attribute__((always_inline)) void
fiber__sync_begin(struct fiber__sync *s, struct weft_runtime *rt, struct fiber *self,
                  bool (*leave)(struct weft__wait *wait, int why), const char *what,
                  weft_time deadline)
{
    s->wait.waiter.wake = fiber__sync_woken;
    s->wait.owner = &self->strand;
    s->park.cancel = fiber__sync_cancel;
    s->park.what = what;
    s->park.detail = -1;
    s->rt = rt;
    s->fiber = self;
    s->leave = leave;
    s->timer.prev = NULL; /* not running */
    if (weft__unlikely(deadline != WEFT_FOREVER))
        fiber__sync_set_deadline(s, deadline);
}

/* Returns the wait's status. */
static inline __attribute__((always_inline)) int fiber__sync_park(struct fiber__sync *s)
{
    fiber__park(s->rt, s->fiber, &s->park);
    if (weft__unlikely(s->wait.status < 0)) /* leaving may have woken others, but run nothing */
        weft__after_wakes(s->rt);
    return s->wait.status;
}

#endif
