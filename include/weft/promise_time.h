/* weft/promise_time.h: timeouts. (promise_sleep is in promise.h.)
 *
 * Times are nanoseconds: a duration from now, or an absolute weft_time. Nothing fires early. A
 * timer that is no longer needed is stopped at once: it holds neither memory nor the loop.
 *
 * Called on the runtime's thread, callbacks and fibers alike; never suspends; since 0.1.
 */
#ifndef WEFT_PROMISE_TIME_H
#define WEFT_PROMISE_TIME_H

#include <weft/promise.h>

WEFT_BEGIN_DECLS

/* A task rejected with -ETIMEDOUT once `ns` nanoseconds have passed, or `at` has come. Canceling it
 * stops the timer. Never NULL; -ENOMEM, -EINVAL without a runtime. */
WEFT_API WEFT_NODISCARD struct promise *promise_timeout(int64_t ns);
WEFT_API WEFT_NODISCARD struct promise *promise_timeout_at(weft_time at);

/* The outcome of `promise` (consumed), or -ETIMEDOUT if it is still pending when the time is over:
 * then it is canceled. It is promise_pick on a timeout and the promise, so if `promise` can't be
 * canceled it goes on, and the result is rejected all the same. A promise that is settled already
 * is returned. Never NULL; -ENOMEM, -EINVAL. */
WEFT_API WEFT_NODISCARD struct promise *promise_with_timeout(int64_t ns, struct promise *promise);
WEFT_API WEFT_NODISCARD struct promise *promise_with_deadline(weft_time at,
                                                              struct promise *promise);

/* The same for the promise that fn(ctx) gives; the time runs from before the call. */
WEFT_API WEFT_NODISCARD struct promise *promise_call_with_timeout(int64_t ns, promise_thunk_fn *fn,
                                                                  void *ctx);

/* ---- A timer to start again and again ----------------------------------------------------- */

/* Calls `action` when `delay` nanoseconds have passed since the last start, once for each start: an
 * inactivity timeout is started anew at each activity, a periodic timer by its own action. It lives
 * in your memory, allocates nothing, and must not move while it runs. All fields are private. */
struct promise_timer {
    struct weft_timer timer;
    int64_t delay;
    promise_done_fn *action;
    void *ctx;
    uint64_t reserved[2];
};

/* Prepares a timer, stopped. `action(ctx)` runs on the base stack; a negative errno from it goes to
 * the error hook. Returns 0, or -EINVAL: delay is not above 0, or no action. */
WEFT_API int promise_timer_init(struct promise_timer *timer, int64_t delay, promise_done_fn *action,
                                void *ctx);

/* Starts it, from now; one that runs is started anew. Returns 0, or -EINVAL without a runtime. */
WEFT_API int promise_timer_start(struct promise_timer *timer);

/* Stops it; does nothing unless it runs. A running timer must be stopped before its memory ends. */
WEFT_API void promise_timer_stop(struct promise_timer *timer);

/* Sets another delay; one that runs is started anew. Returns 0, or -EINVAL: delay is not above 0,
 * and nothing has changed. */
WEFT_API int promise_timer_change(struct promise_timer *timer, int64_t delay);

/* True from a start until it fires or is stopped. */
WEFT_API bool promise_timer_running(const struct promise_timer *timer);

WEFT_END_DECLS

#endif
