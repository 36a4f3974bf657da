/* signal.c: signals. A signal's node has a value cell at all times. */
#include "graph.h"

static union weft_value value_of(const struct promise__node *node, size_t edge)
{
    return node->edge[edge].from->value->value;
}

/* The new value that a function made, unless it is equal to the old one. */
static struct promise *made(struct promise__state *st, struct promise__node *node, int result,
                            union weft_value out)
{
    if (result < 0) {
        promise__report_error(st, result);
        return NULL;
    }
    if (promise__node_equal(node, node->value->value, out)) {
        if (node->own != NULL)
            node->own(out.ptr);
        return NULL;
    }
    return promise__node_cell(st, out, node->own);
}

/* ... that a source has. */
static struct promise *shared(struct promise__node *node, struct promise *cell)
{
    if (promise__node_equal(node, node->value->value, cell->value))
        return NULL;
    return promise__cell_ref(cell);
}

static struct promise_signal *signal_node(const struct promise__node_class *class,
                                          struct promise__node *const sources[], size_t count,
                                          size_t spare, struct promise *value,
                                          promise_react_equal_fn *equal)
{
    struct promise__node *node;

    if (value == NULL) {
        for (size_t i = 0; i < count; i++)
            promise__node_unref(sources[i]);
        return NULL;
    }
    node = promise__node_create(class, sources, count, spare, value);
    if (node != NULL)
        node->equal = equal;
    return promise__node_signal(node);
}

static struct promise *first_value(union weft_value value, void (*destroy)(void *ptr))
{
    struct promise__state *st = promise__state_get();

    return st != NULL ? promise__cell(st, value, destroy) : NULL;
}

/* ---- primitive ---- */

static const struct promise__node_class primitive = {.signal = true, .primitive = true};

struct promise_signal *promise_signal_create(union weft_value init, promise_react_equal_fn *equal,
                                             void (*destroy)(void *ptr))
{
    struct promise *value = first_value(init, NULL);
    struct promise_signal *signal = signal_node(&primitive, NULL, 0, 0, value, equal);

    return promise_signal_own(signal, destroy);
}

struct promise_signal *promise_signal_ref(struct promise_signal *signal)
{
    if (signal != NULL)
        promise__retain(promise__signal_node(signal)->self);
    return signal;
}

void promise_signal_unref(struct promise_signal *signal)
{
    promise__node_unref(promise__signal_node(signal));
}

int promise_signal_set(struct promise_signal *signal, union weft_value value)
{
    struct promise__node *node = promise__signal_node(signal);

    return promise__node_send(node, value, node != NULL ? node->own : NULL);
}

union weft_value promise_signal_value(const struct promise_signal *signal)
{
    return signal != NULL ? promise__signal_node(signal)->value->value : weft_num(0);
}

struct promise_signal *promise_signal_own(struct promise_signal *signal, void (*destroy)(void *ptr))
{
    struct promise__node *node = promise__signal_node(signal);

    if (node != NULL) {
        node->own = destroy;
        node->value->destroy = destroy;
    }
    return signal;
}

/* ---- map, lift2 ---- */

/* Calls of node functions at the making, on the base stack. */
struct first_call {
    promise_react_fn *map;
    promise_react_lift_fn *lift;
    union weft_value a, b, out;
    void *ctx;
    int result;
};

static void first_call(void *arg)
{
    struct first_call *call = arg;

    call->result = call->map != NULL ? call->map(call->a, call->ctx, &call->out)
                                     : call->lift(call->a, call->b, call->ctx, &call->out);
}

/* The first value of a node that is complete but for it. NULL if the function fails. */
static struct promise_signal *begin(struct promise_signal *signal, struct first_call *call)
{
    struct promise__node *node = promise__signal_node(signal);
    bool before;

    if (signal == NULL)
        return NULL;
    before = promise__graph_update(true);
    promise__call_on_base(promise__tls, first_call, call);
    promise__graph_update(before);
    if (call->result < 0) {
        promise_signal_unref(signal);
        return NULL;
    }
    node->value->value = call->out;
    return signal;
}

static struct promise *update_map(struct promise__state *st, struct promise__node *node)
{
    union weft_value out = weft_num(0);
    int result = node->fn.map(value_of(node, 0), node->ctx, &out);

    return made(st, node, result, out);
}

static const struct promise__node_class map = {.signal = true, .update = update_map};

struct promise_signal *promise_signal_map(struct promise_signal *signal, promise_react_fn *fn,
                                          void *ctx, promise_react_equal_fn *equal)
{
    struct promise__node *source = promise__signal_node(signal);
    struct first_call call = {.map = fn, .ctx = ctx};
    struct promise_signal *result;

    if (source == NULL)
        return NULL;
    result = signal_node(&map, &source, 1, 0, first_value(weft_num(0), NULL), equal);
    if (result != NULL) {
        promise__signal_node(result)->fn.map = fn;
        promise__signal_node(result)->ctx = ctx;
        call.a = value_of(promise__signal_node(result), 0);
    }
    return begin(result, &call);
}

static struct promise *update_lift2(struct promise__state *st, struct promise__node *node)
{
    union weft_value out = weft_num(0);
    int result = node->fn.lift(value_of(node, 0), value_of(node, 1), node->ctx, &out);

    return made(st, node, result, out);
}

static const struct promise__node_class lift2 = {.signal = true, .update = update_lift2};

struct promise_signal *promise_signal_lift2(struct promise_signal *a, struct promise_signal *b,
                                            promise_react_lift_fn *fn, void *ctx,
                                            promise_react_equal_fn *equal)
{
    struct promise__node *const sources[] = {promise__signal_node(a), promise__signal_node(b)};
    struct first_call call = {.lift = fn, .ctx = ctx};
    struct promise_signal *result;

    result = signal_node(&lift2, sources, 2, 0, first_value(weft_num(0), NULL), equal);
    if (result != NULL) {
        promise__signal_node(result)->fn.lift = fn;
        promise__signal_node(result)->ctx = ctx;
        call.a = value_of(promise__signal_node(result), 0);
        call.b = value_of(promise__signal_node(result), 1);
    }
    return begin(result, &call);
}

/* ---- hold, switch ---- */

static struct promise *update_hold(struct promise__state *st, struct promise__node *node)
{
    struct promise *in = node->edge[0].from->now;

    (void)st;
    return in != NULL ? shared(node, in) : NULL;
}

static const struct promise__node_class hold = {.signal = true, .update = update_hold};

struct promise_signal *promise_signal_hold(struct promise_event *event, union weft_value init,
                                           promise_react_equal_fn *equal)
{
    struct promise__node *source = promise__event_node(event);

    return signal_node(&hold, &source, 1, 0, first_value(init, NULL), equal);
}

/* Edge 0 is the signal of signals, edge 1 the one in force. */
static struct promise *update_switch(struct promise__state *st, struct promise__node *node)
{
    struct promise__node *inner = value_of(node, 0).ptr;

    if (inner != node->edge[1].from) {
        int result = promise__node_connect(st, &node->edge[1], inner);

        if (result < 0)
            promise__report_error(st, result);
        if (result != 0)
            return NULL;
    }
    return node->edge[1].from != NULL ? shared(node, node->edge[1].from->value) : NULL;
}

static const struct promise__node_class switch_class = {.signal = true, .update = update_switch};

struct promise_signal *promise_signal_switch(struct promise_signal *signals,
                                             promise_react_equal_fn *equal)
{
    struct promise__node *source = promise__signal_node(signals);
    struct promise__node *inner = source != NULL ? source->value->value.ptr : NULL;
    struct promise__node *sources[2] = {source, inner};

    if (inner == NULL) {
        promise_signal_unref(signals);
        return NULL;
    }
    promise__retain(inner->self);
    return signal_node(&switch_class, sources, 2, 0, promise__cell_ref(inner->value), equal);
}
