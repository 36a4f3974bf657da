/* operation.c: the raw form of every operation, and the bookkeeping of those in flight. */
#include "ring_internal.h"

#include <stdlib.h>

const struct ring__row_info ring__rows[RING__ROWS] = {
#define OPERATION(name, opcode, ready, traits, ...) [RING__ROW_##name] = {#name, ready, traits},
#include "operations.def"
};

#define STREAM_OPERATION(...) /* streams submit them */
#define OPERATION(name, opcode, ready, traits, parameters, arguments, ...) \
    int ring_##name(struct ring_op *op RING__AFTER parameters)             \
    {                                                                      \
        struct weft_runtime *rt = weft__rt;                                \
        int error;                                                         \
                                                                           \
        if (weft__unlikely(rt == NULL))                                    \
            return -EINVAL;                                                \
        error = ring__prepare_##name(op RING__AFTER arguments);            \
        return error != 0 ? error : ring__submit(rt, op);                  \
    }
#include "operations.def"

void ring_cancel(struct ring_op *op)
{
    ring__cancel(weft__rt, op);
}

/* ---- in flight ---- */

int ring__engine_init(struct ring__engine *engine, unsigned entries)
{
    unsigned buckets = 64;

    while (buckets < entries && buckets < 1u << 16)
        buckets *= 2;
    engine->buckets = calloc(buckets, sizeof *engine->buckets);
    if (engine->buckets == NULL)
        return -ENOMEM;
    engine->bucket_mask = buckets - 1;
    engine->closing = NULL;
    engine->starved = NULL;
    engine->base.in_flight = 0;
    return 0;
}

void ring__engine_finish(struct ring__engine *engine)
{
    free(engine->buckets);
}

/* ---- closing ---- */

static struct ring__closing *closing_of(const struct ring__engine *engine, int fd)
{
    struct ring__closing *closing = engine->closing;

    while (closing != NULL && closing->fd != fd)
        closing = closing->next;
    return closing;
}

static bool is_busy(const struct ring__engine *engine, int fd)
{
    const struct ring_op *op = *ring__bucket(engine, fd);

    while (op != NULL && !ring__is_on(op, fd))
        op = op->same;
    return op != NULL;
}

bool ring__is_closing(const struct ring__engine *engine, const struct ring_op *op)
{
    return ring__rows[op->row].traits & RING__ON_FD && closing_of(engine, op->fd) != NULL;
}

void ring__reported_slow(struct ring__engine *engine, int fd)
{
    struct ring__closing *closing = closing_of(engine, fd);

    if (closing != NULL && closing->clear != NULL && !is_busy(engine, fd)) {
        void (*clear)(struct ring__closing *) = closing->clear;

        closing->clear = NULL;
        clear(closing);
    }
}

int ring__close_begin(struct weft_runtime *rt, struct ring__closing *closing)
{
    struct ring__engine *engine = (struct ring__engine *)(void *)rt->engine;
    int fd = closing->fd, busy = 0;

    if (fd < 0)
        return -EBADF;
    if (rt->engine->class->submit == NULL) {
        closing->fd = -1;
        return 0;
    }
    if (engine->closing != NULL && closing_of(engine, fd) != NULL)
        return -EBADF;
    for (struct ring_op *op = *ring__bucket(engine, fd); op != NULL; op = op->same) {
        if (ring__is_on(op, fd)) {
            ring__cancel(rt, op);
            busy = 1;
        }
    }
    if (!busy) {
        closing->fd = -1;
        return 0;
    }
    closing->next = engine->closing;
    engine->closing = closing;
    return 1;
}

void ring__close_finish(struct weft_runtime *rt, struct ring__closing *closing)
{
    struct ring__engine *engine = (struct ring__engine *)(void *)rt->engine;

    if (closing->fd < 0)
        return;
    for (struct ring__closing **link = &engine->closing; *link != NULL; link = &(*link)->next) {
        if (*link == closing) {
            *link = closing->next;
            return;
        }
    }
}
