/* weft/promise_list.h: a callback that gives a promise, for each element of an array.
 *
 * The array is given as base address, number of elements and size of one; PROMISE_ITEMS(array) is
 * these three for an array variable. It is borrowed: it must stay until the result has settled.
 * Without an array (items NULL, size 0) the callback has only the index: that is a counting loop.
 *
 * Each function has three forms:
 *   _s  in series: the next element is called once the promise of the one before is fulfilled;
 *   _p  in parallel: all elements are called, in order, before anything is waited for;
 *   _n  in parallel, at most `max` at a time: as one is fulfilled, the next is called, in order.
 *
 * What they share. An element whose promise is settled already is taken on the spot: no memory is
 * kept of it (but its value, in map), and any number of them is gone through in a loop. Canceling
 * the result cancels the elements that are pending; an element that is canceled rejects the result,
 * as any failure does. After a failure _s and _n call no more elements; _p has called all. The
 * result waits for all elements that have been called (exists, for_all and find excepted: see
 * there), and is rejected with the error that was first in time, where those present at the call
 * count in the order of the list. That is promise_join's rule.
 *
 * Errors besides the callbacks': -ENOMEM, -EINVAL (no callback, max is 0, no runtime). The result
 * is a new reference, never NULL. `ctx` is handed to the callback and never freed. Callbacks run on
 * the base stack. Called on the runtime's thread, callbacks and fibers alike; never suspends; since
 * 0.1.
 */
#ifndef WEFT_PROMISE_LIST_H
#define WEFT_PROMISE_LIST_H

#include <weft/promise.h>

WEFT_BEGIN_DECLS

#define PROMISE_ITEMS(array) (array), sizeof(array) / sizeof *(array), sizeof *(array)

/* Called with an element's index and address; returns a promise (consumed; NULL counts as one
 * rejected with -EINVAL). What its value means is said with each function; a "yes" is a value other
 * than 0. */
typedef struct promise *promise_item_fn(size_t index, void *item, void *ctx);

/* The same with the value so far: if it has a destructor, it is the callback's, unless somebody
 * else holds its promise. */
typedef struct promise *promise_fold_fn(union weft_value so_far, size_t index, void *item,
                                        void *ctx);

/* "An element" as a value is its address, or its index as a number where there is no array. */

/* Calls fn for each element, and drops the values. Fulfilled with 0. */
WEFT_API WEFT_NODISCARD struct promise *promise_iter_s(const void *items, size_t count, size_t size,
                                                       promise_item_fn *fn, void *ctx);
WEFT_API WEFT_NODISCARD struct promise *promise_iter_p(const void *items, size_t count, size_t size,
                                                       promise_item_fn *fn, void *ctx);
WEFT_API WEFT_NODISCARD struct promise *promise_iter_n(size_t max, const void *items, size_t count,
                                                       size_t size, promise_item_fn *fn, void *ctx);

/* The callbacks' values, in the order of the elements: a struct promise_values that the promise
 * owns (promise_values_destroy). It holds the promises of values that have a destructor; the source
 * of any other value is NULL. */
WEFT_API WEFT_NODISCARD struct promise *promise_map_s(const void *items, size_t count, size_t size,
                                                      promise_item_fn *fn, void *ctx);
WEFT_API WEFT_NODISCARD struct promise *promise_map_p(const void *items, size_t count, size_t size,
                                                      promise_item_fn *fn, void *ctx);
WEFT_API WEFT_NODISCARD struct promise *promise_map_n(size_t max, const void *items, size_t count,
                                                      size_t size, promise_item_fn *fn, void *ctx);

/* As map, without the values that are 0 or NULL. */
WEFT_API WEFT_NODISCARD struct promise *
promise_filter_map_s(const void *items, size_t count, size_t size, promise_item_fn *fn, void *ctx);
WEFT_API WEFT_NODISCARD struct promise *
promise_filter_map_p(const void *items, size_t count, size_t size, promise_item_fn *fn, void *ctx);
WEFT_API WEFT_NODISCARD struct promise *promise_filter_map_n(size_t max, const void *items,
                                                             size_t count, size_t size,
                                                             promise_item_fn *fn, void *ctx);

/* The elements for which the callback says yes, in order: a struct promise_values (sources are
 * NULL). */
WEFT_API WEFT_NODISCARD struct promise *
promise_filter_s(const void *items, size_t count, size_t size, promise_item_fn *fn, void *ctx);
WEFT_API WEFT_NODISCARD struct promise *
promise_filter_p(const void *items, size_t count, size_t size, promise_item_fn *fn, void *ctx);
WEFT_API WEFT_NODISCARD struct promise *promise_filter_n(size_t max, const void *items,
                                                         size_t count, size_t size,
                                                         promise_item_fn *fn, void *ctx);

/* What partition gives: the elements with a yes and those without, each in order. The promise owns
 * it; whoever has taken it calls promise_partition_destroy (NULL is fine). */
struct promise_partition {
    struct promise_values yes, no;
};
WEFT_API void promise_partition_destroy(void *partition);

/* Fulfilled with a struct promise_partition of the elements. */
WEFT_API WEFT_NODISCARD struct promise *
promise_partition_s(const void *items, size_t count, size_t size, promise_item_fn *fn, void *ctx);
WEFT_API WEFT_NODISCARD struct promise *
promise_partition_p(const void *items, size_t count, size_t size, promise_item_fn *fn, void *ctx);
WEFT_API WEFT_NODISCARD struct promise *promise_partition_n(size_t max, const void *items,
                                                            size_t count, size_t size,
                                                            promise_item_fn *fn, void *ctx);

/* Fulfilled with fn(... fn(fn(initial, first), second) ..., last); right: from the last to the
 * first. Each call needs the value before it, so there is no parallel form. */
WEFT_API WEFT_NODISCARD struct promise *promise_fold_left_s(const void *items, size_t count,
                                                            size_t size, promise_fold_fn *fn,
                                                            union weft_value initial, void *ctx);
WEFT_API WEFT_NODISCARD struct promise *promise_fold_right_s(const void *items, size_t count,
                                                             size_t size, promise_fold_fn *fn,
                                                             union weft_value initial, void *ctx);

/* Questions. The result settles as soon as one element decides: a yes in exists and find, a no in
 * for_all, a failure in all three. It is the first in time; of several present at the call a
 * failure before an answer, and the first in the list among equals (promise_choose's rule). _s and
 * _n then call no more elements; those called go on, and what they give is dropped. If none
 * decides:
 *
 *   exists     fulfilled with 1 (some element has a yes), else with 0
 *   for_all    fulfilled with 0 (some element has a no), else with 1
 *   find       fulfilled with the element, else rejected with -ENOENT */
WEFT_API WEFT_NODISCARD struct promise *
promise_exists_s(const void *items, size_t count, size_t size, promise_item_fn *fn, void *ctx);
WEFT_API WEFT_NODISCARD struct promise *
promise_exists_p(const void *items, size_t count, size_t size, promise_item_fn *fn, void *ctx);
WEFT_API WEFT_NODISCARD struct promise *promise_exists_n(size_t max, const void *items,
                                                         size_t count, size_t size,
                                                         promise_item_fn *fn, void *ctx);

/* Whether all have a yes; settles with the first no, as above. */
WEFT_API WEFT_NODISCARD struct promise *
promise_for_all_s(const void *items, size_t count, size_t size, promise_item_fn *fn, void *ctx);
WEFT_API WEFT_NODISCARD struct promise *
promise_for_all_p(const void *items, size_t count, size_t size, promise_item_fn *fn, void *ctx);
WEFT_API WEFT_NODISCARD struct promise *promise_for_all_n(size_t max, const void *items,
                                                          size_t count, size_t size,
                                                          promise_item_fn *fn, void *ctx);

/* The first element that has a yes, as above. */
WEFT_API WEFT_NODISCARD struct promise *promise_find_s(const void *items, size_t count, size_t size,
                                                       promise_item_fn *fn, void *ctx);
WEFT_API WEFT_NODISCARD struct promise *promise_find_p(const void *items, size_t count, size_t size,
                                                       promise_item_fn *fn, void *ctx);
WEFT_API WEFT_NODISCARD struct promise *promise_find_n(size_t max, const void *items, size_t count,
                                                       size_t size, promise_item_fn *fn, void *ctx);

WEFT_END_DECLS

#endif
