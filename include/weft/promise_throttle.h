/* weft/promise_throttle.h: so many a second, by key.
 *
 * For each key at most `rate` pass in a period; who comes later waits for the next period, in
 * order; and when `max` wait already, all keys together, they are turned away. A key's period
 * begins when the first one passes. (So in a span that straddles two periods up to 2 * rate may
 * pass.)
 *
 * A key takes memory for about a period, and only as others come it is looked whether it can go. A
 * throttle has one timer, which runs only while somebody waits.
 *
 * Called on the runtime's thread, callbacks and fibers alike; never suspends; since 0.1.
 */
#ifndef WEFT_PROMISE_THROTTLE_H
#define WEFT_PROMISE_THROTTLE_H

#include <weft/promise.h>

WEFT_BEGIN_DECLS

struct promise_throttle;

/* Makes a throttle: `rate` (at least 1) passes per `period` (ns, above 0; WEFT_SEC(1) as a rule)
 * and key, and at most `max` waiting. Returns 0 and sets *throttle; or -EINVAL, -ENOMEM. */
WEFT_API int promise_throttle_create(struct promise_throttle **throttle, uint64_t rate,
                                     int64_t period, size_t max);

/* Ends it; those waiting are canceled. NULL is fine. Also when its runtime has ended and no other
 * has begun on this thread. */
WEFT_API void promise_throttle_destroy(struct promise_throttle *throttle);

/* Asks to pass. Fulfilled with 1: passes, now or when its turn comes; with 0: turned away, at once.
 * `name` is copied; numbers and names are different keys. While it waits it is a task, and leaves
 * the queue when canceled. Never NULL; -ENOMEM, -EINVAL (no throttle, no name, no runtime). */
WEFT_API WEFT_NODISCARD struct promise *promise_throttle_wait(struct promise_throttle *throttle,
                                                              uint64_t key);
WEFT_API WEFT_NODISCARD struct promise *
promise_throttle_wait_name(struct promise_throttle *throttle, const char *name);

/* How many wait, and how many keys there are. */
WEFT_API size_t promise_throttle_waiting(const struct promise_throttle *throttle);
WEFT_API size_t promise_throttle_keys(const struct promise_throttle *throttle);

WEFT_END_DECLS

#endif
