/* weft/promise_blocking.h: promises of calls that block: see weft/offload.h. */
#ifndef WEFT_PROMISE_BLOCKING_H
#define WEFT_PROMISE_BLOCKING_H

#include <weft/offload.h>
#include <weft/promise.h>

WEFT_BEGIN_DECLS

/* Calls fn(arg) on a pool thread. Fulfilled with the number that it returns, or rejected with its
 * negative errno; rejected with -EAGAIN or -ENOMEM, and fn is not called, when there is no thread or
 * no memory; -EINVAL without a runtime or fn. Never NULL.
 *
 * arg: is fn's until the call has ended. free_arg(arg) (NULL: the caller sees to arg, which must then
 * last as long as the call) is called exactly once in every case, when fn has returned, or will not be
 * called at all: after the promise is settled, so that callbacks attached before may still use arg; on
 * the base stack, or on a pool thread if the runtime has ended meanwhile.
 *
 * Canceling asks for the end: a call that has not begun never begins, and the promise is rejected with
 * -ECANCELED in the loop's next turn. One that has begun goes on, and the promise follows it: completion
 * beats cancellation. To stop waiting for it all the same, wrap the promise (promise_with_timeout,
 * promise_wrap_in_cancelable, promise_pick): its memory is safe in any case. Dropping the promise
 * changes nothing. The runtime's end doesn't wait for it.
 * Runtime's thread, callbacks too; doesn't suspend. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_blocking(weft_blocking_fn *fn, void *arg,
                                                         void (*free_arg)(void *arg));

WEFT_END_DECLS

#endif
