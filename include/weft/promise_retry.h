/* weft/promise_retry.h: trying again.
 *
 * Called on the runtime's thread, callbacks and fibers alike; never suspends; since 0.1.
 */
#ifndef WEFT_PROMISE_RETRY_H
#define WEFT_PROMISE_RETRY_H

#include <weft/promise.h>

WEFT_BEGIN_DECLS

/* One attempt; they are numbered from 1. The promise it returns says how it went: fulfilled, it has
 * succeeded; rejected, it may be worth another attempt. Runs on the base stack. */
typedef struct promise *promise_attempt_fn(uint64_t attempt, void *ctx);

enum promise_verdict { PROMISE_RETRY, PROMISE_FATAL };

/* Whether the error of an attempt is worth another one. Not asked after the last one that is
 * allowed, nor about -ECANCELED, which always ends it. */
typedef enum promise_verdict promise_judge_fn(int err, uint64_t attempt, void *ctx);

/* Nanoseconds to wait after a failed attempt; 0 or less: none. */
typedef int64_t promise_delay_fn(uint64_t attempt, void *ctx);

/* Zero-initialise (PROMISE_RETRY_OPTIONS_INIT), then set what you need. All fields are public. */
struct promise_retry_options {
    size_t size;             /* sizeof(struct promise_retry_options), for later growth */
    promise_judge_fn *judge; /* NULL: every error is worth another attempt */
    promise_delay_fn *delay; /* NULL: promise_backoff(attempt, base), at most `longest` */
    void *ctx;               /* for these two */
    int64_t base;            /* ns; 0: 2 seconds; below 0: don't wait */
    int64_t longest;         /* ns; 0: no limit */
    uint64_t reserved[4];
};
#define PROMISE_RETRY_OPTIONS_INIT                   \
    {                                                \
        .size = sizeof(struct promise_retry_options) \
    }

/* Calls attempt(1, ctx), and when that is rejected attempt(2, ctx), and so on: at most `retries`
 * more times, so retries + 1 in all, one after the other without a wait. Fulfilled with the value
 * of the attempt that succeeded, or rejected with the error of the last one; -EINVAL if retries is
 * negative or attempt is NULL, -ENOMEM. Never NULL. Canceling the result cancels the attempt that
 * is under way, and no other follows. */
WEFT_API WEFT_NODISCARD struct promise *promise_retry(int64_t retries, promise_attempt_fn *attempt,
                                                      void *ctx);

/* The same with options (copied; NULL: all defaults), and a wait between attempts, which canceling
 * the result ends as well. -EINVAL also if options->size is unknown. */
WEFT_API WEFT_NODISCARD struct promise *
promise_retry_with(int64_t retries, promise_attempt_fn *attempt, void *ctx,
                   const struct promise_retry_options *options);

/* attempt * base * 2^attempt nanoseconds, at most INT64_MAX: with the default base of 2 seconds
 * that is 4, 16, 48, 128, ... seconds. No randomness; a base of 0 or less gives 0. Any thread. */
WEFT_API int64_t promise_backoff(uint64_t attempt, int64_t base);

WEFT_END_DECLS

#endif
