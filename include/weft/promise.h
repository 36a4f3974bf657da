/* weft/promise.h: callback style: promises.
 *
 * A promise is pending, fulfilled (with a value) or rejected (with a negative errno), and settles
 * at most once; canceled means rejected with -ECANCELED. The semantics are those of Lwt's core, to
 * the order of each callback (docs/promises.md); a promise and its resolver are the same object.
 *
 * References. A promise is reference counted. A function that builds on a promise CONSUMES the
 * reference it is given, in every case, errors too: promise_bind(promise_sleep(ns), step, ctx)
 * leaks nothing, and promise_ref keeps one. Functions that only look, settle, cancel or attach a
 * callback (promise_state, promise_resolve, promise_cancel, promise_on_*) BORROW it. Each comment
 * says which. No function returns NULL: out of memory is a promise rejected with -ENOMEM, no runtime
 * one rejected with -EINVAL, and NULL given for a promise counts as one rejected with -EINVAL. A
 * handle is opaque: that of a settled promise may hold the value and be no address, and two equal
 * ones need not be the same promise.
 *
 * Values. Whoever consumes the last reference of a fulfilled promise (a bind's callback,
 * fiber_await) takes its value; otherwise the value is borrowed and lives as long as somebody holds
 * the promise. A value with a destructor that nobody has taken is destroyed with the promise.
 *
 * Callbacks run on the base stack, also when a fiber causes them, and must not wait. One that gives
 * a promise reports failure by returning a rejected one; one that gives a value or nothing returns
 * 0 or a negative errno. A pending promise that nobody holds any more, and that therefore nobody
 * can settle, is freed with everything that waits for it: those callbacks are dropped without being
 * called.
 *
 * Unless a comment says otherwise: called on the runtime's thread, callbacks and fibers alike;
 * never suspends; since 0.1.
 */
#ifndef WEFT_PROMISE_H
#define WEFT_PROMISE_H

#include <weft/base.h>
#include <weft/runtime.h>

WEFT_BEGIN_DECLS

struct promise;

enum promise_state { PROMISE_PENDING, PROMISE_FULFILLED, PROMISE_REJECTED };

/* ---- Callbacks ---------------------------------------------------------------------------- */

typedef struct promise *promise_thunk_fn(void *ctx);
typedef struct promise *promise_bind_fn(union weft_value value, void *ctx);
typedef struct promise *promise_catch_fn(int err, void *ctx);
typedef int promise_map_fn(union weft_value in, void *ctx, union weft_value *out);
typedef int promise_success_fn(union weft_value value, void *ctx);
typedef int promise_failure_fn(int err, void *ctx);
typedef int promise_done_fn(void *ctx);
typedef void promise_error_fn(int err, void *ctx);
typedef void promise_count_fn(size_t count, void *ctx);

/* ---- Making ------------------------------------------------------------------------------- */

/* A pending promise that promise_cancel does not touch. (Lwt: wait.)
 * Returns one reference; whoever has one may settle it. */
WEFT_API WEFT_NODISCARD struct promise *promise_create(void);

/* A pending promise that promise_cancel rejects with -ECANCELED. (Lwt: task.) */
WEFT_API WEFT_NODISCARD struct promise *promise_create_task(void);

/* A promise fulfilled with `value`. A pointer, or a number of at most 62 bits, is kept in the handle
 * itself: no allocation, nothing to fail, no runtime needed. A larger number takes a block. */
WEFT_API WEFT_NODISCARD struct promise *promise_fulfilled(union weft_value value);

/* A promise fulfilled with `ptr`, which it owns: destroy(ptr) is called when the promise is freed
 * with its value untaken, and at once if the promise cannot be made. */
WEFT_API WEFT_NODISCARD struct promise *promise_fulfilled_owned(void *ptr,
                                                                void (*destroy)(void *ptr));

/* A promise rejected with `err`, a negative errno (anything else counts as -EINVAL). It is kept in
 * the handle: no allocation, no runtime needed. */
WEFT_API WEFT_NODISCARD struct promise *promise_rejected(int err);

/* What a call that returns a negative errno or a number >= 0 says, as a promise. */
WEFT_API WEFT_NODISCARD struct promise *promise_from_result(int64_t result);

/* One more reference to `promise`; returns it. NULL is fine. */
WEFT_API struct promise *promise_ref(struct promise *promise);

/* One reference less; the last frees the promise. NULL is fine. Releasing long chains does not
 * recurse. */
WEFT_API void promise_unref(struct promise *promise);

/* ---- Settling ----------------------------------------------------------------------------- */

/* Settles a promise made by promise_create or promise_create_task, and runs all callbacks that
 * depend on it, depth first, newest first, before it returns. Borrows the promise. Returns 0, also
 * if it was canceled (then nothing happens); -EALREADY if it is settled otherwise; -EINVAL if it is
 * NULL, or the result of a combinator, which only that settles. promise_reject gives -EINVAL for an
 * err that isn't negative. From a fiber: the callbacks run on the base stack; if no callback waits,
 * only fibers, there is no switch at all. */
WEFT_API int promise_resolve(struct promise *promise, union weft_value value);
WEFT_API int promise_reject(struct promise *promise, int err);

/* promise_resolve with a value that the promise owns from now on. If the result isn't 0 it is still
 * the caller's. */
WEFT_API int promise_resolve_owned(struct promise *promise, void *ptr, void (*destroy)(void *ptr));

/* The same, but inside a callback of another promise's settlement: the promise is settled at once,
 * its callbacks run when the outermost settlement is through. Elsewhere as above. */
WEFT_API int promise_resolve_later(struct promise *promise, union weft_value value);
WEFT_API int promise_resolve_later_owned(struct promise *promise, void *ptr,
                                         void (*destroy)(void *ptr));
WEFT_API int promise_reject_later(struct promise *promise, int err);

/* ---- Looking ------------------------------------------------------------------------------ */

/* The promise's state. Borrows it. NULL is rejected. */
WEFT_API enum promise_state promise_state(struct promise *promise);

/* The state, and what goes with it: *value (may be NULL) is set if fulfilled, and borrowed; *err
 * (may be NULL) if rejected. Borrows the promise. */
WEFT_API enum promise_state promise_poll(struct promise *promise, union weft_value *value,
                                         int *err);

/* ---- In sequence -------------------------------------------------------------------------- */

/* Each of these consumes `promise` and returns a new reference. If the promise is settled, the
 * callback is called at once, before the function returns; otherwise when it settles, with the
 * local values (weft_get) of this call. `ctx` is handed to the callback and never freed. Canceling
 * the result cancels the promise; once the callback has returned a promise, the result is one with
 * that promise in every respect. A callback that returns NULL rejects with -EINVAL. */

/* Fulfilled: fn(value, ctx) gives the result. Rejected: the result is, with the same error.
 * A resolved bind costs one or two ns and allocates nothing; its callback is a tail call. */
WEFT_API WEFT_NODISCARD struct promise *promise_bind(struct promise *promise, promise_bind_fn *fn,
                                                     void *ctx);

/* Fulfilled: fn sets *out and returns 0, or a negative errno that rejects the result. */
WEFT_API WEFT_NODISCARD struct promise *promise_map(struct promise *promise, promise_map_fn *fn,
                                                    void *ctx);

/* Rejected: handler(err, ctx) gives the result. Fulfilled: the result is, with the same value. */
WEFT_API WEFT_NODISCARD struct promise *promise_catch(struct promise *promise,
                                                      promise_catch_fn *handler, void *ctx);

/* Fulfilled: fn(value, ctx) gives the result. Rejected: handler(err, ctx) does. */
WEFT_API WEFT_NODISCARD struct promise *promise_try_bind(struct promise *promise,
                                                         promise_bind_fn *fn,
                                                         promise_catch_fn *handler, void *ctx);

/* Settled either way: cleanup(ctx), and when what it returns is fulfilled, the promise's own
 * outcome; when that is rejected, its error instead. */
WEFT_API WEFT_NODISCARD struct promise *promise_finalize(struct promise *promise,
                                                         promise_thunk_fn *cleanup, void *ctx);

/* Calls fn(ctx) now, on the base stack, and returns what it returns. Lwt's forms that take a
 * function are written with it: promise_catch(promise_call(f, ctx), handler, ctx). */
WEFT_API WEFT_NODISCARD struct promise *promise_call(promise_thunk_fn *fn, void *ctx);

/* ---- Callbacks on the side ---------------------------------------------------------------- */

/* Attach a callback and borrow the promise. Called at once if it is settled. The callback returns
 * 0, or a negative errno that goes to the error hook. Result: 0, -ENOMEM, -EINVAL. NULL functions
 * in promise_on_any are skipped. */
WEFT_API int promise_on_success(struct promise *promise, promise_success_fn *fn, void *ctx);
WEFT_API int promise_on_failure(struct promise *promise, promise_failure_fn *fn, void *ctx);
WEFT_API int promise_on_termination(struct promise *promise, promise_done_fn *fn, void *ctx);
WEFT_API int promise_on_any(struct promise *promise, promise_success_fn *success,
                            promise_failure_fn *failure, void *ctx);

/* Called if the promise is canceled (rejected with -ECANCELED, by whatever means), before all other
 * callbacks of the promise; at once if it is canceled already; never if it is settled otherwise. */
WEFT_API int promise_on_cancel(struct promise *promise, promise_done_fn *fn, void *ctx);

/* The end of a promise that nobody waits for; all consume it. Its value is dropped; an error, now
 * or later, goes to the error hook (async), to the handler (dont_wait), or, now: is the result,
 * later: to the hook (ignore_result). Result: 0, -ENOMEM, -EINVAL; ignore_result: the error too. */
WEFT_API int promise_async(struct promise *promise);
WEFT_API int promise_dont_wait(struct promise *promise, promise_error_fn *handler, void *ctx);
WEFT_API int promise_ignore_result(struct promise *promise);

/* Where errors go that nobody handles: promise_async, promise_ignore_result, failing side
 * callbacks. Per runtime; it belongs to the application. NULL: the default, which reports the error
 * and exits the process with status 2. Result: 0, -ENOMEM or -EINVAL without a runtime. */
WEFT_API int promise_set_error_hook(promise_error_fn *hook, void *ctx);

/* ---- Many promises ------------------------------------------------------------------------ */

/* These consume one reference of each of the `count` promises (a promise listed twice needs two),
 * and copy the array. Canceling the result cancels every operand. No operands: -EINVAL, except for
 * join and all. */

/* The values of several promises. It holds the promises, and they their values. The promise that
 * all, both, nchoose and npick give owns it; whoever has taken it calls promise_values_destroy (NULL is
 * fine). All fields are to be read. */
struct promise_values {
    size_t count;
    union weft_value *value; /* `count` of them */
    struct promise **source; /* the promises they are of */
};
WEFT_API void promise_values_destroy(void *values);

/* What nchoose_split gives: the values, and the promises still pending. `pending[i]` is a reference
 * that the split owns; to take it, set the entry to NULL. The rest is to be read. Whoever has taken it
 * calls promise_split_destroy (NULL is fine). */
struct promise_split {
    struct promise_values values;
    size_t pending_count;
    struct promise **pending;
};
WEFT_API void promise_split_destroy(void *split);

/* Waits for all, also after a failure. Fulfilled with 0, or rejected with the first error. */
WEFT_API WEFT_NODISCARD struct promise *promise_join(struct promise *const promises[],
                                                     size_t count);

/* The same, fulfilled with a struct promise_values in the order of the operands. */
WEFT_API WEFT_NODISCARD struct promise *promise_all(struct promise *const promises[], size_t count);
WEFT_API WEFT_NODISCARD struct promise *promise_both(struct promise *first, struct promise *second);

/* The outcome of the first to settle. If some are settled already: the first rejected one, else the
 * first fulfilled one. */
WEFT_API WEFT_NODISCARD struct promise *promise_choose(struct promise *const promises[],
                                                       size_t count);

/* The same, and cancels the others (the losers' callbacks run before those of the result). If some
 * are settled already: the first rejected one; else goes through the operands, canceling each until
 * one is found settled, and cancels the rest. */
WEFT_API WEFT_NODISCARD struct promise *promise_pick(struct promise *const promises[],
                                                     size_t count);

/* When one settles: the values of all that are fulfilled by then (a struct promise_values, in
 * order), or the error of the first that is rejected. npick then cancels the others. */
WEFT_API WEFT_NODISCARD struct promise *promise_nchoose(struct promise *const promises[],
                                                        size_t count);
WEFT_API WEFT_NODISCARD struct promise *promise_npick(struct promise *const promises[],
                                                      size_t count);

/* As nchoose, with the promises still pending too: a struct promise_split. */
WEFT_API WEFT_NODISCARD struct promise *promise_nchoose_split(struct promise *const promises[],
                                                              size_t count);

/* ---- Canceling ---------------------------------------------------------------------------- */

/* Asks for the tasks behind a promise to be canceled: goes from a combinator's result to its
 * operands, back to the tasks, rejects them all with -ECANCELED and then runs their callbacks.
 * Operations in the kernel are asked to end, and settle when they have. Does nothing to settled
 * promises and to those of promise_create; does not stop a computation. Borrows; NULL is fine. */
WEFT_API void promise_cancel(struct promise *promise);

/* Three wrappers, by what a cancel does. Each consumes the promise and follows its outcome.
 *
 *                        canceling the result ...   reaches the promise
 *   promise_protected            rejects it now             no
 *   promise_no_cancel            does nothing               no
 *   promise_wrap_in_cancelable   rejects it now             yes
 */
WEFT_API WEFT_NODISCARD struct promise *promise_protected(struct promise *promise);
WEFT_API WEFT_NODISCARD struct promise *promise_no_cancel(struct promise *promise);
WEFT_API WEFT_NODISCARD struct promise *promise_wrap_in_cancelable(struct promise *promise);

/* ---- Pausing and sleeping ----------------------------------------------------------------- */

/* A task fulfilled (with 0) after the next poll of the engine: a loop that pauses starves
 * nobody. */
WEFT_API WEFT_NODISCARD struct promise *promise_pause(void);

/* How many promises have been paused since the last wake-up, those canceled meanwhile included. */
WEFT_API size_t promise_paused_count(void);

/* Calls notifier(paused count, ctx) at each promise_pause; NULL: nobody. Result: 0, -ENOMEM,
 * -EINVAL. */
WEFT_API int promise_set_pause_notifier(promise_count_fn *notifier, void *ctx);

/* Wakes the paused promises now, those paused meanwhile excepted. The runtime does so after each
 * poll. */
WEFT_API void promise_wakeup_paused(void);

/* Forgets the paused promises: they stay pending. */
WEFT_API void promise_abandon_paused(void);

/* A task fulfilled (with 0) once the time has come. Canceling it stops the timer. */
WEFT_API WEFT_NODISCARD struct promise *promise_sleep_until(weft_time at);
WEFT_API WEFT_NODISCARD struct promise *promise_sleep(int64_t ns);

/* ---- Queues of tasks ---------------------------------------------------------------------- */

/* A queue of tasks that wait for something, from which a canceled one leaves by itself: what locks,
 * pools and mailboxes are made of. (Lwt: add_task_l, add_task_r.) All fields are private. */
struct promise_queue {
    void *reserved[3];
};

/* init and finish: no allocation; finish lets go of those still in it, which stay pending. */
WEFT_API void promise_queue_init(struct promise_queue *queue);
WEFT_API void promise_queue_finish(struct promise_queue *queue);
WEFT_API bool promise_queue_empty(const struct promise_queue *queue);

/* A new task at the end, or at the front. One reference is the caller's, another the queue's. */
WEFT_API WEFT_NODISCARD struct promise *promise_queue_append(struct promise_queue *queue);
WEFT_API WEFT_NODISCARD struct promise *promise_queue_prepend(struct promise_queue *queue);

/* Takes the first task out, to be settled and given back by the caller; NULL if there is none.
 * Settle it with promise_resolve_later to hand over something that a cancel must not lose. */
WEFT_API struct promise *promise_queue_take(struct promise_queue *queue);

/* ---- Local values and running ------------------------------------------------------------- */

/* Calls fn(ctx) here, with `key` bound to `value` (NULL: unbound), and puts the old binding back.
 * Callbacks attached inside see the value. Result: 0, or -ENOMEM, -EINVAL and fn is not called. */
WEFT_API int promise_with_value(const struct weft_key *key, void *value, void (*fn)(void *ctx),
                                void *ctx);

/* weft_run for promise style: makes a runtime, calls main(arg) on the base stack, and runs until
 * the promise it returns (consumed) has settled; the rest is then abandoned. *out (may be NULL)
 * receives the value; one with a destructor is the caller's if main's was the last reference.
 * Returns 0 or the promise's error; what weft_run returns if the runtime could not start; -EDEADLK
 * if nothing is left that could settle it. Any thread without a runtime. */
WEFT_API int promise_run(promise_thunk_fn *main, void *arg, const struct weft_options *options,
                         union weft_value *out);

WEFT_END_DECLS

#endif
