/* graph.h: the nodes behind events and signals, and the update steps.
 *
 * A node holds its sources (edges); sources know their dependents, but do not hold them. A node's
 * rank is above those of its sources, so a step that works off a heap of nodes by rank updates each
 * node once, after all it depends on. Values are settled promises ("cells"), shared wherever they
 * go.
 *
 * Within a step `now` is the cell of what occurred (an event), or of the new value (a signal); a
 * signal's, and a fold's, `value` is what it has, and `old` what it had when the step began.
 */
#ifndef PROMISE_REACT_GRAPH_H
#define PROMISE_REACT_GRAPH_H

#include "promise_wait.h"

#include <weft/react.h>

struct promise__node;

struct promise__edge {
    struct weft_link link;      /* in from->dependents */
    struct promise__node *from; /* counted; NULL: none */
    struct promise__node *to;
};

struct promise__node_class {
    bool signal, primitive;
    /* The cell (a reference) of what follows from the sources' `now` and `value`; NULL: nothing.
     * May queue the node again. */
    struct promise *(*update)(struct promise__state *st, struct promise__node *node);
    /* Carries out the effect of an occurrence, after the step. Borrows the cell. NULL: none. */
    void (*effect)(struct promise__state *st, struct promise__node *node, struct promise *cell);
    /* The node goes; not called at the runtime's end. NULL: nothing to do. */
    void (*leave)(struct promise__state *st, struct promise__node *node);
};

struct promise__node {
    struct promise *self; /* counts the references */
    const struct promise__node_class *class;
    size_t rank;
    struct weft_link dependents; /* of a circle of edges */
    struct promise *now, *value, *old;
    struct promise__waits nexts;
    union {
        promise_react_fn *map;
        promise_react_test_fn *test;
        promise_react_fold_fn *fold;
        promise_react_lift_fn *lift;
        promise_react_effect_fn *effect;
        promise_thunk_fn *pace;
    } fn;
    void *ctx;
    promise_react_equal_fn *equal;
    void (*own)(void *ptr);
    struct weft__storage *storage; /* in force when it was made, and when its functions run */
    union weft_value init;         /* merge */
    void *extra;                   /* to a stream: its source; of a stream: what reads it */
    struct promise *pace;          /* limit: pending; counted */
    struct weft_waiter paced;      /* limit: waits for that */
    struct promise *delayed;       /* limit: the last occurrence meanwhile */
    bool queued;                   /* in the heap, which holds it */
    struct promise__node *touched; /* the next one in the step's list, which holds it */
    struct promise__node *effects; /* likewise */
    struct promise *effect_cell;
    struct promise__node *raised; /* the next one whose dependents' ranks are to be raised */
    bool raising;                 /* it is in that list */
    size_t count;
    struct promise__edge edge[];
};

/* Both public types are nodes. */
static inline struct promise__node *promise__event_node(const struct promise_event *event)
{
    return (struct promise__node *)(void *)(uintptr_t)event;
}

static inline struct promise__node *promise__signal_node(const struct promise_signal *signal)
{
    return (struct promise__node *)(void *)(uintptr_t)signal;
}

static inline struct promise_event *promise__node_event(struct promise__node *node)
{
    return (struct promise_event *)(void *)node;
}

static inline struct promise_signal *promise__node_signal(struct promise__node *node)
{
    return (struct promise_signal *)(void *)node;
}

/* A node of the `count` sources (NULL: a failure before), whose references it consumes in any
 * case, with room for `spare` more edges. `value` (a reference, consumed; NULL: none) is its
 * first value. NULL: no memory. */
struct promise__node *promise__node_create(const struct promise__node_class *class,
                                           struct promise__node *const sources[], size_t count,
                                           size_t spare, struct promise *value);
void promise__node_unref(struct promise__node *node);

/* A cell for a value just made; a value that can't have one is destroyed, and that reported. */
struct promise *promise__node_cell(struct promise__state *st, union weft_value value,
                                   void (*destroy)(void *ptr));

/* Makes `from` (borrowed; NULL: none) the source at an edge in place of what was there. Returns
 * -ELOOP if it depends on the node: then there is none; 1 if the node's rank had to be raised,
 * and it is queued again; else 0. */
int promise__node_connect(struct promise__state *st, struct promise__edge *edge,
                          struct promise__node *from);

static inline bool promise__node_equal(const struct promise__node *node, union weft_value a,
                                       union weft_value b)
{
    return node->equal != NULL ? node->equal(a, b) : a.num == b.num;
}

/* A step from outside: `value` on a primitive node. */
int promise__node_send(struct promise__node *node, union weft_value value,
                       void (*destroy)(void *ptr));

/* A step of its own as soon as may be, for a node that isn't sent from outside. `cell` is
 * consumed; NULL: the node's `delayed`. */
/* Says that node functions run now; returns what was said before. There is a node. */
bool promise__graph_update(bool updating);

int promise__node_inject(struct promise__state *st, struct promise__node *node,
                         struct promise *cell);

static inline struct promise *promise__cell_ref(struct promise *cell)
{
    if (cell != NULL)
        promise__retain(cell);
    return cell;
}

#endif
