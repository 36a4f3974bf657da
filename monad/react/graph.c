/* graph.c: nodes, ranks and steps. See graph.h.
 *
 * A thread's graph exists as long as it has nodes. Its heap has room for all of them, so a step
 * itself needs memory only for the values that functions make. Steps asked for while one is running
 * are queued.
 */
#include "graph.h"

#include <stdlib.h>

struct entry {
    size_t rank;    /* when it was queued: the node's may be higher by now */
    uint64_t order; /* of queueing, among equal ranks */
    struct promise__node *node;
};

struct step {
    struct promise__node *node; /* counted */
    struct promise *cell;       /* counted; NULL: the node's `delayed` */
};

struct graph {
    size_t nodes;
    struct entry *heap;
    size_t heap_count, heap_room;
    uint64_t queued;    /* how many ever */
    struct step *steps; /* a ring; room is a power of two */
    size_t steps_first, steps_count, steps_room;
    struct promise__node *touched, *effects, **effects_end;
    bool running;  /* a step, or its effects */
    bool updating; /* a step */
};

static _Thread_local struct graph *graph;

bool promise_react_updating(void)
{
    return graph != NULL && graph->updating;
}

bool promise__graph_update(bool updating)
{
    bool before = graph->updating;

    graph->updating = updating;
    return before;
}

static void drop_graph(void)
{
    struct graph *g = graph;

    if (g == NULL || g->nodes > 0 || g->running)
        return;
    graph = NULL;
    free(g->heap);
    free(g->steps);
    free(g);
}

/* Room for one more node. */
static int join_graph(void)
{
    struct entry *grown;

    if (graph == NULL) {
        graph = calloc(1, sizeof *graph);
        if (graph == NULL)
            return -ENOMEM;
        graph->effects_end = &graph->effects;
    }
    if (graph->nodes == graph->heap_room) {
        size_t room = graph->heap_room == 0 ? 16 : graph->heap_room * 2;

        grown = realloc(graph->heap, room * sizeof *grown);
        if (grown == NULL) {
            drop_graph();
            return -ENOMEM;
        }
        graph->heap = grown;
        graph->heap_room = room;
    }
    graph->nodes++;
    return 0;
}

/* ---- the heap ---- */

static bool before(const struct entry *a, const struct entry *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->order < b->order;
}

static void heap_push(struct graph *g, struct promise__node *node)
{
    struct entry entry = {node->rank, g->queued++, node};
    size_t i = g->heap_count++;

    while (i > 0 && before(&entry, &g->heap[(i - 1) / 2])) {
        g->heap[i] = g->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    g->heap[i] = entry;
}

static struct entry heap_pop(struct graph *g)
{
    struct entry top = g->heap[0], last = g->heap[--g->heap_count];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < g->heap_count) {
        if (child + 1 < g->heap_count && before(&g->heap[child + 1], &g->heap[child]))
            child++;
        if (!before(&g->heap[child], &last))
            break;
        g->heap[i] = g->heap[child];
        i = child;
    }
    g->heap[i] = last;
    return top;
}

static void queue(struct graph *g, struct promise__node *node)
{
    if (node->queued)
        return;
    node->queued = true;
    promise__retain(node->self);
    heap_push(g, node);
}

/* ---- edges and ranks ---- */

static struct promise__edge *edge_of(struct weft_link *link)
{
    return weft__container(link, struct promise__edge, link);
}

static void link_edge(struct promise__edge *edge, struct promise__node *from)
{
    struct weft_link *head = &from->dependents;

    edge->from = from;
    promise__retain(from->self);
    edge->link.prev = head->prev;
    edge->link.next = head;
    head->prev->next = &edge->link;
    head->prev = &edge->link;
}

static void unlink_edge(struct promise__state *st, struct promise__edge *edge)
{
    struct promise__node *from = edge->from;

    if (from == NULL)
        return;
    edge->link.prev->next = edge->link.next;
    edge->link.next->prev = edge->link.prev;
    edge->from = NULL;
    promise__release(st, from->self);
}

/* Raises a node's rank, and those of all that depend on it as far as they must. True if
 * `watched` is among those. */
static bool raise_rank(struct promise__node *node, size_t rank, const struct promise__node *watched)
{
    struct promise__node *list = node;
    bool met = node == watched;

    node->rank = rank;
    node->raising = true;
    node->raised = NULL;
    while (list != NULL) {
        struct promise__node *from = list;

        list = from->raised;
        from->raising = false;
        for (struct weft_link *l = from->dependents.next; l != &from->dependents; l = l->next) {
            struct promise__node *to = edge_of(l)->to;

            met = met || to == watched;
            if (to->rank > from->rank)
                continue;
            to->rank = from->rank + 1;
            if (to->raising)
                continue;
            to->raising = true;
            to->raised = list;
            list = to;
        }
    }
    return met;
}

int promise__node_connect(struct promise__state *st, struct promise__edge *edge,
                          struct promise__node *from)
{
    struct promise__node *node = edge->to;

    unlink_edge(st, edge);
    if (from == NULL)
        return 0;
    if (from->rank >= node->rank) {
        if (raise_rank(node, from->rank + 1, from))
            return -ELOOP;
        link_edge(edge, from);
        if (!graph->updating)
            return 0;
        queue(graph, node);
        return 1;
    }
    link_edge(edge, from);
    return 0;
}

/* ---- steps ---- */

struct promise *promise__node_cell(struct promise__state *st, union weft_value value,
                                   void (*destroy)(void *ptr))
{
    struct promise *cell = promise__cell(st, value, destroy);

    if (cell == NULL) {
        if (destroy != NULL)
            destroy(value.ptr);
        promise__report_error(st, -ENOMEM);
    }
    return cell;
}

static void use_storage(struct promise__state *st, const struct promise__node *node)
{
    if (st->rt->base.storage != node->storage)
        promise__set_storage(st, weft__storage_ref(node->storage));
}

/* `cell`, a reference, is what occurred. */
static void occur(struct graph *g, struct promise__node *node, struct promise *cell)
{
    node->now = cell;
    node->touched = g->touched;
    g->touched = node;
    promise__retain(node->self);
    if (node->class->signal) {
        node->old = node->value;
        node->value = promise__cell_ref(cell);
    }
    if (node->class->effect != NULL || !promise__waits_empty(&node->nexts)) {
        node->effect_cell = promise__cell_ref(cell);
        node->effects = NULL;
        *g->effects_end = node;
        g->effects_end = &node->effects;
        promise__retain(node->self);
    }
    for (struct weft_link *l = node->dependents.next; l != &node->dependents; l = l->next)
        queue(g, edge_of(l)->to);
}

static void update_all(struct promise__state *st, struct graph *g)
{
    while (g->heap_count > 0) {
        struct entry entry = heap_pop(g);
        struct promise__node *node = entry.node;
        struct promise *cell;

        if (node->rank > entry.rank) {
            heap_push(g, node);
            continue;
        }
        node->queued = false;
        if (node->self->link.count > 1 && node->now == NULL) { /* else nobody holds it any more */
            use_storage(st, node);
            cell = node->class->update(st, node);
            if (cell != NULL)
                occur(g, node, cell);
        }
        promise__release(st, node->self);
    }
}

static void forget_touched(struct promise__state *st, struct graph *g)
{
    while (g->touched != NULL) {
        struct promise__node *node = g->touched;
        struct promise *now = node->now, *old = node->old;

        g->touched = node->touched;
        node->now = NULL;
        node->old = NULL;
        promise__release(st, now);
        if (old != NULL)
            promise__release(st, old);
        promise__release(st, node->self);
    }
}

static void carry_out(struct promise__state *st, struct promise__node *node, struct promise *cell)
{
    struct promise__wait *wait;

    if (node->class->effect != NULL) {
        use_storage(st, node);
        node->class->effect(st, node, cell);
    }
    while ((wait = promise__waits_first(&node->nexts)) != NULL)
        promise__wake_like(st, wait, promise__cell_ref(cell));
}

static void carry_out_all(struct promise__state *st, struct graph *g)
{
    while (g->effects != NULL) {
        struct promise__node *node = g->effects;
        struct promise *cell = node->effect_cell;

        g->effects = node->effects;
        if (g->effects == NULL)
            g->effects_end = &g->effects;
        node->effect_cell = NULL;
        if (node->self->link.count > 1)
            carry_out(st, node, cell);
        promise__release(st, cell);
        promise__release(st, node->self);
    }
}

/* What is to occur on a node that begins a step; NULL: nothing. Consumes the cell. */
static struct promise *first_cell(struct promise__state *st, struct promise__node *node,
                                  struct promise *cell)
{
    if (cell == NULL) {
        cell = node->delayed;
        node->delayed = NULL;
    } else if (node->class->signal && promise__node_equal(node, node->value->value, cell->value)) {
        promise__release(st, cell);
        cell = NULL;
    }
    return cell;
}

static void run_steps(void *arg)
{
    struct promise__state *st = arg;
    struct graph *g = graph;
    struct weft__storage *saved = weft__storage_ref(st->rt->base.storage);

    g->running = true;
    while (g->steps_count > 0) {
        struct step step = g->steps[g->steps_first];
        struct promise *cell;

        g->steps_first = (g->steps_first + 1) & (g->steps_room - 1);
        g->steps_count--;
        if (st->stopped || step.node->self->link.count == 1) {
            cell = NULL;
            if (step.cell != NULL)
                promise__release(st, step.cell);
        } else {
            cell = first_cell(st, step.node, step.cell);
        }
        if (cell != NULL) {
            g->updating = true;
            occur(g, step.node, cell);
            update_all(st, g);
            g->updating = false;
            forget_touched(st, g);
            carry_out_all(st, g);
        }
        promise__release(st, step.node->self);
    }
    g->running = false;
    promise__set_storage(st, saved);
    drop_graph();
}

/* Queues a step, and runs it if none is running. 0, or -ENOMEM and nothing is consumed. */
static int ask_for_step(struct promise__state *st, struct promise__node *node, struct promise *cell)
{
    struct graph *g = graph;

    if (g->steps_count == g->steps_room) {
        size_t room = g->steps_room == 0 ? 4 : g->steps_room * 2;
        struct step *grown = malloc(room * sizeof *grown);

        if (grown == NULL)
            return -ENOMEM;
        for (size_t i = 0; i < g->steps_count; i++)
            grown[i] = g->steps[(g->steps_first + i) & (g->steps_room - 1)];
        free(g->steps);
        g->steps = grown;
        g->steps_first = 0;
        g->steps_room = room;
    }
    promise__retain(node->self);
    g->steps[(g->steps_first + g->steps_count++) & (g->steps_room - 1)] = (struct step){node, cell};
    if (!g->running) {
        promise__call_on_base(st, run_steps, st);
        promise__flush(st);
    }
    return 0;
}

int promise__node_send(struct promise__node *node, union weft_value value,
                       void (*destroy)(void *ptr))
{
    struct promise__state *st = promise__tls;
    struct promise *cell;
    int err;

    if (st == NULL || node == NULL || !node->class->primitive)
        return -EINVAL;
    if (graph->updating)
        return -EDEADLK;
    cell = promise__cell(st, value, destroy);
    if (cell == NULL)
        return -ENOMEM;
    err = ask_for_step(st, node, cell);
    if (err < 0) {
        cell->destroy = NULL;
        promise__release(st, cell);
    }
    return err;
}

int promise__node_inject(struct promise__state *st, struct promise__node *node,
                         struct promise *cell)
{
    int err = ask_for_step(st, node, cell);

    if (err < 0) {
        if (cell != NULL)
            promise__release(st, cell);
        promise__report_error(st, err);
    }
    return err;
}

/* ---- life ---- */

static void destroy(void *object)
{
    struct promise__state *st = promise__tls;
    struct promise__node *node = object;
    struct promise__wait *wait;

    if (st != NULL) {
        if (node->class->leave != NULL)
            node->class->leave(st, node);
        while ((wait = promise__waits_first(&node->nexts)) != NULL)
            promise__wake(wait, -ENODATA, weft_num(0), NULL);
        for (size_t i = 0; i < node->count; i++)
            unlink_edge(st, &node->edge[i]);
        if (node->value != NULL)
            promise__release(st, node->value);
    }
    weft__storage_unref(node->storage);
    free(node);
    graph->nodes--;
    drop_graph();
    if (st != NULL)
        promise__flush(st);
}

static void release_sources(struct promise__node *const sources[], size_t count)
{
    for (size_t i = 0; i < count; i++)
        promise__node_unref(sources[i]);
}

static struct promise__node *new_node(struct promise__state *st, size_t count)
{
    struct promise__node *node;

    if (count > SIZE_MAX / 2 / sizeof(struct promise__edge) || join_graph() < 0)
        return NULL;
    node = calloc(1, sizeof *node + count * sizeof(struct promise__edge));
    if (node != NULL)
        node->self = promise__object(st, node, destroy);
    if (node == NULL || node->self == NULL) {
        free(node);
        graph->nodes--;
        drop_graph();
        return NULL;
    }
    node->count = count;
    return node;
}

struct promise__node *promise__node_create(const struct promise__node_class *class,
                                           struct promise__node *const sources[], size_t count,
                                           size_t spare, struct promise *value)
{
    struct promise__state *st = promise__state_get();
    struct promise__node *node = NULL;
    bool complete = st != NULL;

    for (size_t i = 0; i < count; i++)
        complete = complete && sources[i] != NULL;
    if (complete)
        node = new_node(st, count + spare);
    if (node == NULL) {
        release_sources(sources, count);
        if (st != NULL && value != NULL)
            promise__release(st, value);
        return NULL;
    }
    node->class = class;
    node->value = value;
    node->dependents = (struct weft_link){.next = &node->dependents, .prev = &node->dependents};
    promise__waits_init(&node->nexts);
    node->storage = weft__storage_ref(st->rt->strand->storage);
    for (size_t i = 0; i < node->count; i++)
        node->edge[i].to = node;
    for (size_t i = 0; i < count; i++) {
        if (sources[i]->rank >= node->rank)
            node->rank = sources[i]->rank + 1;
        link_edge(&node->edge[i], sources[i]);
        promise__release(st, sources[i]->self); /* the edge has its own */
    }
    /* Made within a step: it takes part, if there is something for it. */
    for (size_t i = 0; i < count; i++)
        if (sources[i]->now != NULL)
            queue(graph, node);
    return node;
}

void promise__node_unref(struct promise__node *node)
{
    if (node != NULL && promise__tls != NULL)
        promise__object_release(node->self);
}
