/* weft/promise_stream.h: streams: values that come one after the other, read with promises.
 *
 * A stream has a source (a function, or whoever pushes) and a position. Reading takes the element
 * at the position. A read that has to wait is a task; readers that wait together are served in the
 * order in which they came, each with an element of its own. Canceling a reader disturbs neither
 * the source nor the other readers, and no element is lost by it. The end of a stream is the status
 * -ENODATA.
 *
 * Elements are settled promises: what a source function gives, or what a push makes. A read gives
 * that promise, or one that shares its value. So the values' ownership is that of promises: an
 * element that is read once is the reader's; if there are clones, the value belongs to all of them.
 *
 * References. A stream is reference counted. Functions that build on a stream (map, filter, append,
 * choose, fold, ...) CONSUME the reference they are given, as promises do; those that read, push or
 * look BORROW it. Without memory or runtime a function that gives a stream gives NULL, and NULL
 * given for a stream makes NULL, or a promise rejected with -EINVAL: so calls can be nested and
 * only the outcome looked at. The last reference ends the stream: those who still wait for it are
 * rejected with -ENODATA.
 *
 * Unless a comment says otherwise: called on the runtime's thread, callbacks and fibers alike;
 * never suspends; since 0.1. Callbacks run on the base stack. Functions that give a promise never
 * return NULL: without memory it is rejected with -ENOMEM. Promises of callbacks are consumed.
 */
#ifndef WEFT_PROMISE_STREAM_H
#define WEFT_PROMISE_STREAM_H

#include <weft/base.h>
#include <weft/promise.h>

WEFT_BEGIN_DECLS

struct promise_stream;

/* True if the element is to be kept. The value is borrowed. */
typedef bool promise_stream_test_fn(union weft_value value, void *ctx);

/* The next element: 0 and *out; -ENODATA at the end; another negative errno. */
typedef int promise_stream_next_fn(void *ctx, union weft_value *out);

/* One step of a fold: gives the next state. A state or element with a destructor is the callback's,
 * unless somebody else holds its promise. */
typedef struct promise *promise_stream_fold_fn(union weft_value state, union weft_value value,
                                               void *ctx);

/* ---- Making ------------------------------------------------------------------------------- */

/* A stream of what promise_stream_push puts into it. `destroy` (NULL: none) is for elements that
 * are dropped unread. */
WEFT_API WEFT_NODISCARD struct promise_stream *promise_stream_create(void (*destroy)(void *ptr));

/* The same, with room for `size` elements that nobody has read yet; a push beyond that waits.
 * With 0 each push waits for its reader. */
WEFT_API WEFT_NODISCARD struct promise_stream *
promise_stream_create_bounded(size_t size, void (*destroy)(void *ptr));

/* A stream of what fn(ctx) gives. It is called when an element is wanted and none is on its way;
 * the readers that wait meanwhile share the call: the first of them gets what it gives.
 * Fulfilled: an element; rejected with -ENODATA: the end, fn is not called any more; rejected
 * otherwise: that one read is rejected (in each clone), and the stream stays usable. Canceling a
 * reader does not cancel fn's promise. release(ctx) (NULL: none) is called when the stream is
 * gone, and at once if it cannot be made. */
WEFT_API WEFT_NODISCARD struct promise_stream *promise_stream_from(promise_thunk_fn *fn, void *ctx,
                                                                   void (*release)(void *ctx));

/* The same, of a function that does not wait. */
WEFT_API WEFT_NODISCARD struct promise_stream *
promise_stream_from_direct(promise_stream_next_fn *fn, void *ctx, void (*release)(void *ctx),
                           void (*destroy)(void *ptr));

/* A stream of the `count` values, which are its own from now on, and destroyed if it cannot be made;
 * the array is copied. */
WEFT_API WEFT_NODISCARD struct promise_stream *
promise_stream_of_values(const union weft_value values[], size_t count, void (*destroy)(void *ptr));

/* Another stream with the same source, which begins at this one's position and goes its own way.
 * Borrows. NULL also for a bounded stream. */
WEFT_API WEFT_NODISCARD struct promise_stream *promise_stream_clone(struct promise_stream *stream);

/* One reference more, which it returns, or less. NULL is fine. */
WEFT_API struct promise_stream *promise_stream_ref(struct promise_stream *stream);
WEFT_API void promise_stream_unref(struct promise_stream *stream);

/* ---- Pushing ------------------------------------------------------------------------------ */

/* Puts `value` at the end: to the first reader, or after the elements not read yet. The clones see
 * it too. A bounded stream must have room, or a reader.
 * Returns 0, and the value is the stream's; or it is still the caller's: -EPIPE: closed;
 * -ENOBUFS: no room; -ENOMEM; -EINVAL: NULL, or the source is a function. */
WEFT_API int promise_stream_push(struct promise_stream *stream, union weft_value value);

/* The same, but waits for room in a bounded stream; a task. Only one push can wait.
 * Returns a promise fulfilled (with 0) when the value is in the stream; or rejected, and the
 * value is still the caller's: -ECANCELED: withdrawn; -EPIPE: the stream is closed, or was while
 * the push waited; -ENOBUFS: another push waits. If the stream's last reference goes while the
 * push waits, it is rejected with -EPIPE. */
WEFT_API WEFT_NODISCARD struct promise *promise_stream_push_wait(struct promise_stream *stream,
                                                                 union weft_value value);

/* Closes a stream that is pushed into: those who read it find the elements still there, then the
 * end. Readers that wait see the end now; a push that waits fails with -EPIPE.
 * Returns 0; -EPIPE if it is closed already; -EINVAL as push. */
WEFT_API int promise_stream_close(struct promise_stream *stream);

/* True once the source has ended, even if elements are still to be read. NULL: true. */
WEFT_API bool promise_stream_is_closed(const struct promise_stream *stream);

/* A promise fulfilled (with 0) once the source has ended. It cannot be canceled. */
WEFT_API WEFT_NODISCARD struct promise *promise_stream_closed(struct promise_stream *stream);

/* Elements that can be read without waiting, and (a bounded stream) the room for them, which can be
 * changed: a push that waits goes in if there is room now. */
WEFT_API size_t promise_stream_available(const struct promise_stream *stream);
WEFT_API size_t promise_stream_size(const struct promise_stream *stream);
WEFT_API int promise_stream_resize(struct promise_stream *stream, size_t size);

/* ---- Reading ------------------------------------------------------------------------------ */

/* These borrow the stream. Several elements are given as a struct promise_values, which the
 * promise owns; the end of the stream is no error for those, only a smaller count, perhaps 0. */

/* Takes the next element. */
WEFT_API WEFT_NODISCARD struct promise *promise_stream_get(struct promise_stream *stream);

/* The next element, which stays: the value is borrowed. It is the one that a get in this place
 * would take. */
WEFT_API WEFT_NODISCARD struct promise *promise_stream_peek(struct promise_stream *stream);

/* Takes the next `count` elements: the readers that come later wait until it has them all. */
WEFT_API WEFT_NODISCARD struct promise *promise_stream_nget(struct promise_stream *stream,
                                                            size_t count);

/* The next `count` elements, which stay. */
WEFT_API WEFT_NODISCARD struct promise *promise_stream_npeek(struct promise_stream *stream,
                                                             size_t count);

/* Takes elements as long as test(value, ctx) is true; the first for which it isn't stays. */
WEFT_API WEFT_NODISCARD struct promise *
promise_stream_get_while(struct promise_stream *stream, promise_stream_test_fn *test, void *ctx);

/* Takes what can be read without waiting, at most `max` elements. Never waits. */
WEFT_API WEFT_NODISCARD struct promise *promise_stream_get_available(struct promise_stream *stream,
                                                                     size_t max);

/* Takes what can be read without waiting and gives the last of it; if there is nothing, the next
 * element. */
WEFT_API WEFT_NODISCARD struct promise *promise_stream_last_new(struct promise_stream *stream);

/* Takes an element, or `count` of them, and drops them: fulfilled (with 0) when that is done, or
 * at the end of the stream. */
WEFT_API WEFT_NODISCARD struct promise *promise_stream_junk(struct promise_stream *stream);
WEFT_API WEFT_NODISCARD struct promise *promise_stream_njunk(struct promise_stream *stream,
                                                             size_t count);

/* Drops what can be read without waiting. */
WEFT_API void promise_stream_junk_available(struct promise_stream *stream);

/* Fulfilled with 1 at the end of the stream, and with 0 once there is an element. */
WEFT_API WEFT_NODISCARD struct promise *promise_stream_is_empty(struct promise_stream *stream);

/* ---- Building ----------------------------------------------------------------------------- */

/* These consume the streams they are given; what they give reads them on demand. An error of the
 * source is one of the read, as -ENODATA from a callback is the end; after other errors the
 * stream stays usable. */

/* Of each element what fn makes of it. promise_stream_map_wait's fn may wait. */
WEFT_API WEFT_NODISCARD struct promise_stream *promise_stream_map(struct promise_stream *stream,
                                                                  promise_map_fn *fn, void *ctx);
WEFT_API WEFT_NODISCARD struct promise_stream *
promise_stream_map_wait(struct promise_stream *stream, promise_bind_fn *fn, void *ctx);

/* The elements for which test is true. */
WEFT_API WEFT_NODISCARD struct promise_stream *
promise_stream_filter(struct promise_stream *stream, promise_stream_test_fn *test, void *ctx);

/* Of each element what fn makes of it, without those for which it is rejected with -ENOMSG. */
WEFT_API WEFT_NODISCARD struct promise_stream *
promise_stream_filter_map(struct promise_stream *stream, promise_bind_fn *fn, void *ctx);

/* All elements of the first, then all of the second. */
WEFT_API WEFT_NODISCARD struct promise_stream *promise_stream_append(struct promise_stream *first,
                                                                     struct promise_stream *second);

/* All elements of all streams that are the values (struct promise_stream *, a reference each) of
 * `streams`. */
WEFT_API WEFT_NODISCARD struct promise_stream *
promise_stream_concat(struct promise_stream *streams);

/* The elements of several streams (the array is copied), as they come. Streams that have ended
 * are let go; the end comes when all have. */
WEFT_API WEFT_NODISCARD struct promise_stream *
promise_stream_choose(struct promise_stream *const streams[], size_t count);

/* ---- Reading to the end ------------------------------------------------------------------- */

/* These consume the stream, and stop at the first error, of the stream or of fn, which is then
 * theirs.
 * Canceling the result cancels what it waits for. */

/* Calls fn with each element, the next when the promise that it gives is settled. Fulfilled with
 * 0. */
WEFT_API WEFT_NODISCARD struct promise *promise_stream_iter(struct promise_stream *stream,
                                                            promise_bind_fn *fn, void *ctx);

/* state = fn(state, element, ctx) for each element, as in iter. Fulfilled with the last state, as fn
 * gave it: owned if it was; a state that no step takes is destroyed. */
WEFT_API WEFT_NODISCARD struct promise *promise_stream_fold(struct promise_stream *stream,
                                                            promise_stream_fold_fn *fn,
                                                            union weft_value state, void *ctx);

/* All elements, as a struct promise_values, which the promise owns. */
WEFT_API WEFT_NODISCARD struct promise *promise_stream_collect(struct promise_stream *stream);

WEFT_END_DECLS

#endif
