/* timer.h: timers for those who have the runtime at hand. See timer.c. */
#ifndef WEFT_TIMER_H
#define WEFT_TIMER_H

#include "runtime_internal.h"

void weft__timer_start(struct weft_runtime *rt, struct weft_timer *timer, weft_time at);
void weft__timer_stop(struct weft_runtime *rt, struct weft_timer *timer);

/* Fires every timer due at `now`, in order. On the base stack. */
void weft__timers_fire(struct weft_runtime *rt, weft_time now);

#endif
