/* event.c: events made of events. */
#include "graph.h"

#include <stdlib.h>

static struct promise *now(const struct promise__node *node, size_t edge)
{
    return node->edge[edge].from != NULL ? node->edge[edge].from->now : NULL;
}

/* What a function made, as a cell: `result` is what it returned. */
static struct promise *made(struct promise__state *st, struct promise__node *node, int result,
                            union weft_value out)
{
    if (result == 0)
        return promise__node_cell(st, out, node->own);
    if (result < 0)
        promise__report_error(st, result);
    return NULL;
}

static struct promise_event *event(const struct promise__node_class *class,
                                   struct promise_event *const events[], size_t count, size_t spare,
                                   struct promise *value)
{
    return promise__node_event(promise__node_create(
        class, (struct promise__node *const *)(const void *)events, count, spare, value));
}

/* ---- primitive ---- */

static const struct promise__node_class primitive = {.primitive = true};

struct promise_event *promise_event_create(void (*destroy)(void *ptr))
{
    struct promise_event *result = event(&primitive, NULL, 0, 0, NULL);

    return promise_event_own(result, destroy);
}

struct promise_event *promise_event_ref(struct promise_event *ev)
{
    if (ev != NULL)
        promise__retain(promise__event_node(ev)->self);
    return ev;
}

void promise_event_unref(struct promise_event *ev)
{
    promise__node_unref(promise__event_node(ev));
}

int promise_event_send(struct promise_event *ev, union weft_value value)
{
    struct promise__node *node = promise__event_node(ev);

    return promise__node_send(node, value, node != NULL ? node->own : NULL);
}

struct promise_event *promise_event_own(struct promise_event *ev, void (*destroy)(void *ptr))
{
    if (ev != NULL)
        promise__event_node(ev)->own = destroy;
    return ev;
}

/* ---- of one event ---- */

static struct promise *update_map(struct promise__state *st, struct promise__node *node)
{
    struct promise *in = now(node, 0);
    union weft_value out = weft_num(0);

    return in == NULL ? NULL : made(st, node, node->fn.map(in->value, node->ctx, &out), out);
}

static const struct promise__node_class map = {.update = update_map};

struct promise_event *promise_event_map(struct promise_event *ev, promise_react_fn *fn, void *ctx)
{
    struct promise_event *result = event(&map, &ev, 1, 0, NULL);

    if (result != NULL) {
        promise__event_node(result)->fn.map = fn;
        promise__event_node(result)->ctx = ctx;
    }
    return result;
}

struct promise_event *promise_event_filter_map(struct promise_event *ev, promise_react_fn *fn,
                                               void *ctx)
{
    return promise_event_map(ev, fn, ctx); /* that a function gives nothing is no matter */
}

static struct promise *update_filter(struct promise__state *st, struct promise__node *node)
{
    struct promise *in = now(node, 0);

    (void)st;
    return in != NULL && node->fn.test(in->value, node->ctx) ? promise__cell_ref(in) : NULL;
}

static const struct promise__node_class filter = {.update = update_filter};

struct promise_event *promise_event_filter(struct promise_event *ev, promise_react_test_fn *test,
                                           void *ctx)
{
    struct promise_event *result = event(&filter, &ev, 1, 0, NULL);

    if (result != NULL) {
        promise__event_node(result)->fn.test = test;
        promise__event_node(result)->ctx = ctx;
    }
    return result;
}

static struct promise *update_fold(struct promise__state *st, struct promise__node *node)
{
    struct promise *in = now(node, 0), *cell;
    union weft_value out = weft_num(0);

    if (in == NULL)
        return NULL;
    cell = made(st, node, node->fn.fold(node->value->value, in->value, node->ctx, &out), out);
    if (cell != NULL) {
        node->old = node->value;
        node->value = promise__cell_ref(cell);
    }
    return cell;
}

static const struct promise__node_class fold = {.update = update_fold};

struct promise_event *promise_event_fold(struct promise_event *ev, promise_react_fold_fn *fn,
                                         union weft_value init, void *ctx)
{
    struct promise__state *st = promise__state_get();
    struct promise *state = st != NULL ? promise__cell(st, init, NULL) : NULL;
    struct promise_event *result;

    if (state == NULL) {
        promise_event_unref(ev);
        return NULL;
    }
    result = event(&fold, &ev, 1, 0, state);
    if (result != NULL) {
        promise__event_node(result)->fn.fold = fn;
        promise__event_node(result)->ctx = ctx;
    }
    return result;
}

/* ---- of several ---- */

static struct promise *update_select(struct promise__state *st, struct promise__node *node)
{
    (void)st;
    for (size_t i = 0; i < node->count; i++)
        if (now(node, i) != NULL)
            return promise__cell_ref(now(node, i));
    return NULL;
}

static const struct promise__node_class select_class = {.update = update_select};

struct promise_event *promise_event_select(struct promise_event *const events[], size_t count)
{
    return event(&select_class, events, count, 0, NULL);
}

static struct promise *update_merge(struct promise__state *st, struct promise__node *node)
{
    union weft_value state = node->init, out;
    bool any = false;

    for (size_t i = 0; i < node->count; i++) {
        struct promise *in = now(node, i);
        int result;

        if (in == NULL)
            continue;
        out = weft_num(0);
        result = node->fn.fold(state, in->value, node->ctx, &out);
        if (any && node->own != NULL && (result != 0 || out.ptr != state.ptr))
            node->own(state.ptr);
        if (result != 0)
            return made(st, node, result, out);
        state = out;
        any = true;
    }
    return any ? promise__node_cell(st, state, node->own) : NULL;
}

static const struct promise__node_class merge = {.update = update_merge};

struct promise_event *promise_event_merge(struct promise_event *const events[], size_t count,
                                          promise_react_fold_fn *fn, union weft_value init,
                                          void *ctx)
{
    struct promise_event *result = event(&merge, events, count, 0, NULL);

    if (result != NULL) {
        promise__event_node(result)->fn.fold = fn;
        promise__event_node(result)->ctx = ctx;
        promise__event_node(result)->init = init;
    }
    return result;
}

/* ---- switch: edge 0 is the event of events, edge 1 the one in force ---- */

static struct promise *update_switch(struct promise__state *st, struct promise__node *node)
{
    struct promise *change = now(node, 0);

    if (change != NULL && change->value.ptr != node->edge[1].from) {
        int result = promise__node_connect(st, &node->edge[1], change->value.ptr);

        if (result < 0)
            promise__report_error(st, result);
        if (result != 0)
            return NULL;
    }
    return promise__cell_ref(now(node, 1));
}

static const struct promise__node_class switch_class = {.update = update_switch};

struct promise_event *promise_event_switch(struct promise_event *first,
                                           struct promise_event *events)
{
    struct promise_event *const sources[] = {events, first};

    return event(&switch_class, sources, 2, 0, NULL);
}

/* ---- observe, next ---- */

static struct promise *update_same(struct promise__state *st, struct promise__node *node)
{
    (void)st;
    return promise__cell_ref(now(node, 0));
}

static void observed(struct promise__state *st, struct promise__node *node, struct promise *cell)
{
    (void)st;
    node->fn.effect(cell->value, node->ctx);
}

static const struct promise__node_class observe = {.update = update_same, .effect = observed};

struct promise_event *promise_event_observe(struct promise_event *ev, promise_react_effect_fn *fn,
                                            void *ctx)
{
    struct promise_event *result = event(&observe, &ev, 1, 0, NULL);

    if (result != NULL) {
        promise__event_node(result)->fn.effect = fn;
        promise__event_node(result)->ctx = ctx;
    }
    return result;
}

struct promise *promise_event_next(struct promise_event *ev)
{
    struct promise__state *st = promise__state_get();

    if (st == NULL || ev == NULL)
        return st == NULL ? promise__no_state() : promise__einval;
    PROMISE__ENTER(st);
    return promise__wait_create(st, &promise__event_node(ev)->nexts);
}

/* ---- changes of a signal ---- */

static const struct promise__node_class changes = {.update = update_same};

struct promise_event *promise_signal_changes(struct promise_signal *signal)
{
    struct promise__node *source = promise__signal_node(signal);

    return promise__node_event(promise__node_create(&changes, &source, 1, 0, NULL));
}
