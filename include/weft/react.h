/* weft/react.h: events and signals: values that follow from other values.
 *
 * An event occurs now and then, with a value; a signal has a value at all times, which changes now
 * and then. Primitive ones are sent or set; the others are defined by what they are made of, and
 * followed up by themselves.
 *
 * Update steps. A send or set is a step: first all that depends on it is updated, each node once
 * and after everything it depends on, so that no function ever sees one half of a change. Then the
 * step's effects are carried out, in the order in which they came up: observers are called, streams
 * pushed to, and what waits for promise_event_next settled.
 *
 * Suspending within a step would show a half-done update to others, so it is an error everywhere:
 *   - node functions (of map, filter, fold, lift2, ...) give values, not promises, and run on the
 *     base stack, where fiber_ functions that would suspend give -EDEADLK;
 *   - a send or set out of a node function, or out of what it causes, would be a step within a
 *     step: -EDEADLK, and nothing is done;
 *   - a send or set out of an effect gives 0, is queued, and becomes the next step when all effects
 *     of this one are through. What waits for promise_event_next is settled as by
 *     promise_resolve_later.
 *
 * Values. A primitive may have a destroy function: its values are then the graph's from the send
 * on, and each is destroyed when no signal, stream or promise has it any more; all others borrow
 * it: node functions, and what follows from them, for as long as the step goes on.
 * promise_event_own and promise_signal_own do the same for the values that a node function makes.
 * Passing a value on (filter, select, hold, changes, limit, next, streams) shares it.
 *
 * References. Both are reference counted. Functions that build on an event or signal CONSUME the
 * reference they are given, in case of errors too; those that send, set or look BORROW it. A node
 * holds what it is made of; the other way round nothing is held: a node that is dropped is no
 * longer updated, at once. Without memory or runtime NULL is given, and NULL given makes NULL.
 *
 * A node function that fails (a negative errno) makes no occurrence or change, and the error goes
 * to the hook of promise_set_error_hook; so does -ENOMEM.
 *
 * Unless a comment says otherwise: called on the runtime's thread, callbacks and fibers alike;
 * never suspends; since 0.1.
 */
#ifndef WEFT_REACT_H
#define WEFT_REACT_H

#include <weft/base.h>
#include <weft/promise.h>
#include <weft/promise_stream.h>

WEFT_BEGIN_DECLS

struct promise_event;
struct promise_signal;

/* Sets *out. Returns 0 or a negative errno; in filter_map also 1: there is nothing. */
typedef int promise_react_fn(union weft_value in, void *ctx, union weft_value *out);
typedef int promise_react_fold_fn(union weft_value state, union weft_value in, void *ctx,
                                  union weft_value *out);
typedef int promise_react_lift_fn(union weft_value a, union weft_value b, void *ctx,
                                  union weft_value *out);
typedef bool promise_react_test_fn(union weft_value value, void *ctx);
typedef void promise_react_effect_fn(union weft_value value, void *ctx);

/* True if a change from a to b is none. */
typedef bool promise_react_equal_fn(union weft_value a, union weft_value b);

/* True while nodes are being updated: sends are refused. */
WEFT_API bool promise_react_updating(void);

/* ---- Events ------------------------------------------------------------------------------- */

/* A primitive event. `destroy` (NULL: none): see above. */
WEFT_API WEFT_NODISCARD struct promise_event *promise_event_create(void (*destroy)(void *ptr));

/* One reference more, which it returns, or less: the last one ends the event, at once. NULL is fine. */
WEFT_API struct promise_event *promise_event_ref(struct promise_event *event);
WEFT_API void promise_event_unref(struct promise_event *event);

/* An occurrence of a primitive event, with `value`.
 * Returns 0; or, the value still being the caller's: -EDEADLK: within a node function; -ENOMEM;
 * -EINVAL: NULL, not primitive. */
WEFT_API int promise_event_send(struct promise_event *event, union weft_value value);

/* The values that this event's own function makes are destroyed with `destroy`. For map,
 * filter_map, fold and merge (not their first state; of a merge's intermediate states those that
 * its function does not give back); returns the event. */
WEFT_API struct promise_event *promise_event_own(struct promise_event *event,
                                                 void (*destroy)(void *ptr));

/* Occurs with what fn makes of the value; filter_map: unless that is nothing. */
WEFT_API WEFT_NODISCARD struct promise_event *promise_event_map(struct promise_event *event,
                                                                promise_react_fn *fn, void *ctx);
WEFT_API WEFT_NODISCARD struct promise_event *
promise_event_filter_map(struct promise_event *event, promise_react_fn *fn, void *ctx);

/* Occurs with the values for which test is true. */
WEFT_API WEFT_NODISCARD struct promise_event *
promise_event_filter(struct promise_event *event, promise_react_test_fn *test, void *ctx);

/* Occurs whenever one of the events does; if several do in one step, with the value of the one
 * that is first in the list. The array is copied. */
WEFT_API WEFT_NODISCARD struct promise_event *
promise_event_select(struct promise_event *const events[], size_t count);

/* The same, with fn(... fn(init, first value) ..., last value) of all that occur in one step. */
WEFT_API WEFT_NODISCARD struct promise_event *
promise_event_merge(struct promise_event *const events[], size_t count, promise_react_fold_fn *fn,
                    union weft_value init, void *ctx);

/* state = fn(state, value) at each occurrence; occurs with the new state. */
WEFT_API WEFT_NODISCARD struct promise_event *promise_event_fold(struct promise_event *event,
                                                                 promise_react_fold_fn *fn,
                                                                 union weft_value init, void *ctx);

/* Occurs as `first` does until `events` occurs, whose values are struct promise_event *
 * (borrowed, and then held), and from then on as the newest of those does, in that step already. */
WEFT_API WEFT_NODISCARD struct promise_event *promise_event_switch(struct promise_event *first,
                                                                   struct promise_event *events);

/* Occurs as the event does, but not while the promise of pace(ctx), which is called after each
 * occurrence, is pending: what comes then is dropped but for the last, which occurs, in a step
 * of its own, when that promise is settled. */
WEFT_API WEFT_NODISCARD struct promise_event *
promise_event_limit(struct promise_event *event, promise_thunk_fn *pace, void *ctx);

/* Calls fn after each step in which the event occurs, as long as the result is held, which
 * occurs as the event does. */
WEFT_API WEFT_NODISCARD struct promise_event *
promise_event_observe(struct promise_event *event, promise_react_effect_fn *fn, void *ctx);

/* The value of the event's next occurrence. A task; borrows the event. Rejected with -ENODATA if
 * nobody holds the event any more. */
WEFT_API WEFT_NODISCARD struct promise *promise_event_next(struct promise_event *event);

/* The occurrences from now on as a stream. The stream holds the event. */
WEFT_API WEFT_NODISCARD struct promise_stream *promise_event_to_stream(struct promise_event *event);

/* Occurs with each element of the stream, which is read from the next pause on, as long as the
 * event is held. An error of the stream ends the reading and goes to the error hook. */
WEFT_API WEFT_NODISCARD struct promise_event *
promise_stream_to_event(struct promise_stream *stream);

/* ---- Signals ------------------------------------------------------------------------------ */

/* In all of these, `equal` NULL means: the same pointer or number. */

/* A primitive signal. If it can't be made, `init` is still the caller's. */
WEFT_API WEFT_NODISCARD struct promise_signal *promise_signal_create(union weft_value init,
                                                                     promise_react_equal_fn *equal,
                                                                     void (*destroy)(void *ptr));

/* As of events. */
WEFT_API struct promise_signal *promise_signal_ref(struct promise_signal *signal);
WEFT_API void promise_signal_unref(struct promise_signal *signal);

/* Sets a primitive signal, as promise_event_send. An equal value is no step and changes nothing;
 * it is destroyed. */
WEFT_API int promise_signal_set(struct promise_signal *signal, union weft_value value);

/* The value now, borrowed until the next step. NULL: 0. */
WEFT_API union weft_value promise_signal_value(const struct promise_signal *signal);

/* As promise_event_own, for map and lift2, the value they have now included. */
WEFT_API struct promise_signal *promise_signal_own(struct promise_signal *signal,
                                                   void (*destroy)(void *ptr));

/* What fn makes of the value. It is called at once, as within a step, when all memory is there; if
 * it fails then, the result is NULL. */
WEFT_API WEFT_NODISCARD struct promise_signal *promise_signal_map(struct promise_signal *signal,
                                                                  promise_react_fn *fn, void *ctx,
                                                                  promise_react_equal_fn *equal);

/* What fn makes of two values. */
WEFT_API WEFT_NODISCARD struct promise_signal *
promise_signal_lift2(struct promise_signal *a, struct promise_signal *b, promise_react_lift_fn *fn,
                     void *ctx, promise_react_equal_fn *equal);

/* `init`, which is borrowed as long as the signal has it, and then the value of the event's last
 * occurrence. */
WEFT_API WEFT_NODISCARD struct promise_signal *promise_signal_hold(struct promise_event *event,
                                                                   union weft_value init,
                                                                   promise_react_equal_fn *equal);

/* The value of the signal that is the value (struct promise_signal *, borrowed, and then held)
 * of `signals`. */
WEFT_API WEFT_NODISCARD struct promise_signal *promise_signal_switch(struct promise_signal *signals,
                                                                     promise_react_equal_fn *equal);

/* Occurs with the new value at each change. */
WEFT_API WEFT_NODISCARD struct promise_event *promise_signal_changes(struct promise_signal *signal);

WEFT_END_DECLS

#endif
