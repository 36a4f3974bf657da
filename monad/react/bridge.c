/* bridge.c: events and time: streams to events and back, and limit. */
#include "graph.h"
#include "promise_streams.h"

static struct promise *source_now(const struct promise__node *node)
{
    return node->edge[0].from->now;
}

/* ---- event to stream: the stream's source holds the node, which knows the source ---- */

static struct promise *update_stream(struct promise__state *st, struct promise__node *node)
{
    (void)st;
    return promise__cell_ref(source_now(node));
}

static void push(struct promise__state *st, struct promise__node *node, struct promise *cell)
{
    promise__stream_deliver(st, node->extra, promise__cell_ref(cell));
}

static void unref_node(void *node)
{
    promise__node_unref(node);
}

static const struct promise__node_class to_stream = {.update = update_stream, .effect = push};

struct promise_stream *promise_event_to_stream(struct promise_event *event)
{
    struct promise__node *source = promise__event_node(event);
    struct promise__node *node = promise__node_create(&to_stream, &source, 1, 0, NULL);
    struct source *stream_source;
    struct promise_stream *stream;

    if (node == NULL)
        return NULL;
    stream = promise__stream_of_pushes(node, unref_node, &stream_source);
    if (stream != NULL)
        node->extra = stream_source;
    return stream;
}

/* ---- stream to event ---- */

struct reading {
    struct promise__job job;
    struct promise__node *node; /* NULL: gone */
    struct promise_stream *stream;
};

/* The event happens with the value of `settled`, a reference. */
static void inject(struct promise__state *st, struct promise__node *node, struct promise *settled)
{
    struct promise *cell = promise__handle(st, settled);

    if (promise__immediate(cell)) {
        cell = promise__cell(st, promise__immediate_value(cell), NULL);
        if (cell == NULL) {
            promise__report_error(st, -ENOMEM);
            return;
        }
    } else {
        promise__retain(cell);
        promise__release(st, settled);
    }
    (void)promise__node_inject(st, node, cell);
}

static struct promise *read_step(struct promise__job *job, struct promise *settled)
{
    struct reading *reading = (struct reading *)(void *)job;
    struct promise__state *st = promise__tls;
    struct promise_stream *stream = reading->stream;
    int err = 0;

    if (reading->node == NULL)
        err = -ECANCELED;
    else
        (void)promise_poll(settled, NULL, &err);
    if (err == 0) {
        inject(st, reading->node, settled);
        if (reading->node != NULL) /* else it is known to be canceled */
            return promise_stream_get(stream);
    } else {
        if (reading->node != NULL) {
            reading->node->extra = NULL;
            if (err != -ENODATA)
                promise__report_error(st, err);
        }
        promise__release(st, settled);
    }
    promise__job_end(job, 0, weft_num(0), NULL);
    promise_stream_unref(stream);
    return NULL;
}

static struct promise *read_first(struct promise__job *job, struct promise *settled)
{
    struct reading *reading = (struct reading *)(void *)job;

    if (reading->node == NULL || promise_state(settled) == PROMISE_REJECTED)
        return read_step(job, settled);
    promise_unref(settled);
    job->step = read_step;
    return promise_stream_get(reading->stream);
}

static void stop_reading(struct promise__state *st, struct promise__node *node)
{
    struct reading *reading = node->extra;

    (void)st;
    if (reading == NULL)
        return;
    reading->node = NULL;
    promise_cancel(promise__of_extra(reading));
}

static const struct promise__node_class of_stream = {.leave = stop_reading};

struct promise_event *promise_stream_to_event(struct promise_stream *stream)
{
    struct promise__state *st = promise__state_get();
    struct promise__node *node =
        stream != NULL ? promise__node_create(&of_stream, NULL, 0, 0, NULL) : NULL;
    struct reading *reading = NULL;

    if (node != NULL)
        promise_unref(promise__job_create(st, sizeof *reading, read_first, &reading));
    if (reading == NULL) {
        promise__node_unref(node);
        promise_stream_unref(stream);
        return NULL;
    }
    reading->node = node;
    reading->stream = stream;
    node->extra = reading;
    promise__job_start(&reading->job, promise_pause());
    return promise__node_event(node);
}

/* ---- limit ---- */

static void end_pace(struct promise__state *st, struct promise__node *node)
{
    struct promise *pace = node->pace;

    if (pace == NULL)
        return;
    node->pace = NULL;
    promise__detach(&node->paced);
    promise__release(st, pace);
}

static void drop_delayed(struct promise__state *st, struct promise__node *node)
{
    struct promise *delayed = node->delayed;

    node->delayed = NULL;
    if (delayed != NULL)
        promise__release(st, delayed);
}

static struct promise *update_limit(struct promise__state *st, struct promise__node *node)
{
    struct promise *in = source_now(node);

    if (in == NULL)
        return NULL;
    drop_delayed(st, node); /* this one is newer */
    if (node->pace != NULL && promise__pending(st, node->pace)) {
        node->delayed = promise__cell_ref(in);
        return NULL;
    }
    end_pace(st, node); /* settled, but its callbacks have not run yet */
    return promise__cell_ref(in);
}

static void pace_settled(struct weft_waiter *waiter)
{
    struct promise__state *st = promise__tls;
    struct promise__node *node = weft__container(waiter, struct promise__node, paced);

    promise__retain(node->self);
    end_pace(st, node);
    if (node->delayed != NULL)
        (void)promise__node_inject(st, node, NULL);
    promise__release(st, node->self);
}

static void begin_pace(struct promise__state *st, struct promise__node *node, struct promise *cell)
{
    struct promise *pace = promise__or_invalid(node->fn.pace(node->ctx));

    (void)cell;
    if (!promise__pending(st, pace)) {
        promise__release(st, pace);
        return;
    }
    end_pace(st, node);
    node->pace = pace;
    node->paced.wake = pace_settled;
    promise__attach(st, pace, &node->paced);
    promise__under(st, pace)->link.flags |= PROMISE__ACTIVE; /* a step is user code */
}

static void leave_limit(struct promise__state *st, struct promise__node *node)
{
    end_pace(st, node);
    drop_delayed(st, node);
}

static const struct promise__node_class limit = {
    .update = update_limit, .effect = begin_pace, .leave = leave_limit};

struct promise_event *promise_event_limit(struct promise_event *event, promise_thunk_fn *pace,
                                          void *ctx)
{
    struct promise__node *source = promise__event_node(event);
    struct promise__node *node = promise__node_create(&limit, &source, 1, 0, NULL);

    if (node != NULL) {
        node->fn.pace = pace;
        node->ctx = ctx;
    }
    return promise__node_event(node);
}
