/* weft/promise_result.h: results and promises.
 *
 * Lwt_result adds a second kind of failure, the Error of a result, to a promise that can itself be
 * rejected. Here there is one: a result is >= 0 or a negative errno, and so is a promise's outcome.
 * So most of that module is there already:
 *
 *     return, ok            promise_fulfilled         bind, bind_lwt     promise_bind
 *     fail, error           promise_rejected          map                promise_map
 *     lift                  promise_from_result       bind_error         promise_catch
 *     both                  promise_both              catch              promise_to_result
 *
 * What is left is below. Each function consumes `promise` and returns a new reference, never NULL;
 * the callback is called as promise_bind's is, with the same rules for `ctx`, canceling and local
 * values. Called on the runtime's thread, callbacks and fibers alike; never suspends; since 0.1.
 */
#ifndef WEFT_PROMISE_RESULT_H
#define WEFT_PROMISE_RESULT_H

#include <weft/promise.h>

WEFT_BEGIN_DECLS

/* Makes a result of an outcome: always fulfilled, with the number that `promise` is fulfilled with,
 * or with the negative errno that it is rejected with. A value with a destructor stays owned.
 * (Rejected all the same with -ENOMEM, if `promise` is pending and there is no memory to wait.) */
WEFT_API WEFT_NODISCARD struct promise *promise_to_result(struct promise *promise);

/* The other way: fulfilled with a negative number: rejected with that errno (below -2^31: -EINVAL);
 * else unchanged. Not for promises of pointers. */
WEFT_API WEFT_NODISCARD struct promise *promise_check_result(struct promise *promise);

/* Fulfilled: fn's result, >= 0 or a negative errno, is the outcome. Rejected: unchanged. */
typedef int64_t promise_result_fn(union weft_value value, void *ctx);
WEFT_API WEFT_NODISCARD struct promise *promise_bind_result(struct promise *promise,
                                                            promise_result_fn *fn, void *ctx);

/* Rejected: rejected with what fn makes of the error (-EINVAL if that isn't negative). Fulfilled:
 * unchanged. */
typedef int promise_map_error_fn(int err, void *ctx);
WEFT_API WEFT_NODISCARD struct promise *promise_map_error(struct promise *promise,
                                                          promise_map_error_fn *fn, void *ctx);

/* Looks at one side only. iter_ok: fulfilled: waits for fn(value, ctx); rejected: the error is
 * dropped. iter_error: rejected: waits for handler(err, ctx); fulfilled: the value is dropped.
 * Fulfilled with 0, or rejected with the callback's error. */
WEFT_API WEFT_NODISCARD struct promise *promise_iter_ok(struct promise *promise,
                                                        promise_bind_fn *fn, void *ctx);
WEFT_API WEFT_NODISCARD struct promise *promise_iter_error(struct promise *promise,
                                                           promise_catch_fn *handler, void *ctx);

WEFT_END_DECLS

#endif
