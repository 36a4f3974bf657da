/* weft/promise_sequence.h: a doubly linked list that may change while it is gone through.
 *
 * Nodes are embedded in your own objects, and everything but promise_sequence_length and the walks
 * is O(1) and allocates nothing. While a sequence is gone through, its callback may remove and free
 * any node, the current one and its neighbours included, and add others: those added ahead will be
 * visited.
 *
 * A sequence and its nodes must not move, and belong to one thread; no runtime is needed but for
 * tasks. Since 0.1.
 */
#ifndef WEFT_PROMISE_SEQUENCE_H
#define WEFT_PROMISE_SEQUENCE_H

#include <weft/promise.h>

WEFT_BEGIN_DECLS

/* A place in a sequence. Zero-initialise or promise_node_init before the first use. All fields are
 * private. */
struct promise_node {
    struct promise_node *next, *prev;
    uintptr_t kind;
};

/* All fields are private. */
struct promise_sequence {
    struct promise_node head;
};

/* An object from its node. */
#define PROMISE_NODE_OF(node, type, member) \
    ((type *)(void *)((char *)(node)-offsetof(type, member)))

/* A node that is in no sequence. */
WEFT_API void promise_node_init(struct promise_node *node);

/* True if the node is in a sequence. */
WEFT_API bool promise_node_linked(const struct promise_node *node);

/* An empty sequence. It needs no end: remove its nodes, or leave it and them behind together. */
WEFT_API void promise_sequence_init(struct promise_sequence *sequence);

/* True if it has no node. */
WEFT_API bool promise_sequence_empty(const struct promise_sequence *sequence);

/* How many nodes it has: goes through it. */
WEFT_API size_t promise_sequence_length(const struct promise_sequence *sequence);

/* Adds a node at the left or right end. It must be in no sequence. */
WEFT_API void promise_sequence_add_l(struct promise_sequence *sequence, struct promise_node *node);
WEFT_API void promise_sequence_add_r(struct promise_sequence *sequence, struct promise_node *node);

/* Takes the leftmost or rightmost node out and returns it; NULL: it is empty. */
WEFT_API struct promise_node *promise_sequence_take_l(struct promise_sequence *sequence);
WEFT_API struct promise_node *promise_sequence_take_r(struct promise_sequence *sequence);

/* Takes a node out of its sequence, whichever that is; does nothing if it is in none. */
WEFT_API void promise_sequence_remove(struct promise_node *node);

/* Moves all nodes of `from`, in their order, to the left or right end of `to`; `from` is empty
 * then. Not while `from` is being gone through: that walk would go on in `to`. */
WEFT_API void promise_sequence_transfer_l(struct promise_sequence *from,
                                          struct promise_sequence *to);
WEFT_API void promise_sequence_transfer_r(struct promise_sequence *from,
                                          struct promise_sequence *to);

typedef void promise_node_fn(struct promise_node *node, void *ctx);
typedef bool promise_node_test_fn(struct promise_node *node, void *ctx);
typedef union weft_value promise_node_fold_fn(union weft_value so_far, struct promise_node *node,
                                              void *ctx);

/* Calls fn for each node, from the left or from the right. */
WEFT_API void promise_sequence_iter_l(struct promise_sequence *sequence, promise_node_fn *fn,
                                      void *ctx);
WEFT_API void promise_sequence_iter_r(struct promise_sequence *sequence, promise_node_fn *fn,
                                      void *ctx);

/* fn(... fn(initial, first) ..., last), from the left or from the right. */
WEFT_API union weft_value promise_sequence_fold_l(struct promise_sequence *sequence,
                                                  promise_node_fold_fn *fn,
                                                  union weft_value initial, void *ctx);
WEFT_API union weft_value promise_sequence_fold_r(struct promise_sequence *sequence,
                                                  promise_node_fold_fn *fn,
                                                  union weft_value initial, void *ctx);

/* The first node, from the left or from the right, for which the test holds, or NULL. */
WEFT_API struct promise_node *promise_sequence_find_l(struct promise_sequence *sequence,
                                                      promise_node_test_fn *test, void *ctx);
WEFT_API struct promise_node *promise_sequence_find_r(struct promise_sequence *sequence,
                                                      promise_node_test_fn *test, void *ctx);

/* ---- Tasks -------------------------------------------------------------------------------- */

/* A new task (promise_create_task) with a node of its own at the left or right end. Canceling it
 * takes the node out. While it is in the sequence nobody can settle it. Once it is taken out, by
 * promise_sequence_take_l, _r or _remove, promise_node_task gives the task: that reference was the
 * sequence's, and is now the caller's, who settles the task and gives it back (promise_unref). The
 * result is a reference, never NULL; rejected with -ENOMEM, or -EINVAL without a runtime or a
 * sequence. Runtime's thread; tasks left in a sequence are gone when the runtime ends. */
WEFT_API WEFT_NODISCARD struct promise *
promise_sequence_add_task_l(struct promise_sequence *sequence);
WEFT_API WEFT_NODISCARD struct promise *
promise_sequence_add_task_r(struct promise_sequence *sequence);

/* The task that a node is of, borrowed from whoever has the sequence's reference; NULL for NULL and
 * for other nodes. */
WEFT_API struct promise *promise_node_task(struct promise_node *node);

WEFT_END_DECLS

#endif
