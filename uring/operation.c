/* operation.c: the raw form of every operation, and the bookkeeping of those in flight. */
#include "ring_internal.h"

#include <stdlib.h>
#include <string.h>

#define RING__SCM_PIDFD 4 /* since 6.5 */

const struct ring__row_info ring__rows[RING__ROWS] = {
#define OPERATION(name, opcode, ready, traits, ...) [RING__ROW_##name] = {#name, ready, traits},
#include "operations.def"
};

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
    engine->buckets = calloc(buckets + 1, sizeof *engine->buckets);
    if (engine->buckets == NULL)
        return -ENOMEM;
    engine->bucket_mask = buckets - 1;
    engine->closing = NULL;
    engine->attempted = NULL;
    engine->base.in_flight = 0;
    ring__offload_init(engine);
    return 0;
}

void ring__engine_finish(struct ring__engine *engine)
{
    ring__offload_finish(engine);
    free(engine->buckets);
}

/* ---- descriptors that operations make ---- */

/* Descriptors that came with a message stand in its control data. Whoever looks at the message later
 * must not find them there. */
static bool discard_received(struct msghdr *message)
{
    bool any = false;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (c->cmsg_level != SOL_SOCKET ||
            (c->cmsg_type != SCM_RIGHTS && c->cmsg_type != RING__SCM_PIDFD))
            continue;
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (fd >= 0)
                ring__close_now(fd);
            any = true;
        }
    }
    if (any)
        message->msg_controllen = 0;
    return any;
}

bool ring__discard(const struct ring_op *op, int res)
{
    uint16_t traits = ring__rows[op->row].traits;
    int *pair = (int *)(uintptr_t)op->addr;

    if (res < 0)
        return false;
    if (op->row == RING__ROW_recvmsg)
        return discard_received((struct msghdr *)(uintptr_t)op->addr);
    if (traits & RING__MAKES_FD)
        ring__close_now(res);
    if (traits & RING__MAKES_PAIR) {
        ring__close_now(pair[0]);
        ring__close_now(pair[1]);
    }
    return traits & (RING__MAKES_FD | RING__MAKES_PAIR);
}

/* ---- closing ---- */

static struct ring__closing *closing_of(const struct ring__engine *engine, int fd)
{
    struct ring__closing *closing = engine->closing;

    while (closing != NULL && closing->fd != fd)
        closing = closing->next;
    return closing;
}

/* The first operation on `fd` from `op` on in its bucket. */
static struct ring_op *first_on(struct ring_op *op, int fd)
{
    while (op != NULL && !ring__is_on(op, fd))
        op = op->same;
    return op;
}

/* The next operation in flight on `fd` after `op`; NULL: the first. */
static struct ring_op *next_on(const struct ring__engine *engine, int fd, struct ring_op *op)
{
    bool was_two = op != NULL && op->row >= RING__TWO_FDS;

    op = first_on(op != NULL ? op->same : *ring__bucket(engine, fd), fd);
    return op != NULL || was_two ? op : first_on(engine->buckets[engine->bucket_mask + 1], fd);
}

bool ring__is_closing(const struct ring__engine *engine, const struct ring_op *op)
{
    int second = ring__second_fd(op);

    return ring__rows[op->row].traits & RING__ON_FD &&
           (closing_of(engine, op->fd) != NULL ||
            (second >= 0 && closing_of(engine, second) != NULL));
}

void ring__reported_slow(struct ring__engine *engine, int fd)
{
    struct ring__closing *closing = closing_of(engine, fd);

    if (closing != NULL && closing->clear != NULL && next_on(engine, fd, NULL) == NULL) {
        void (*clear)(struct ring__closing *) = closing->clear;

        closing->clear = NULL;
        clear(closing);
    }
}

static int cancel_all_on(struct weft_runtime *rt, int fd)
{
    const struct ring__engine *engine = (const struct ring__engine *)(void *)rt->engine;
    int count = 0;

    for (struct ring_op *op = NULL; (op = next_on(engine, fd, op)) != NULL; count++)
        ring__cancel(rt, op);
    return count;
}

int ring_cancel_fd(int fd)
{
    struct weft_runtime *rt = weft__rt;

    if (rt == NULL)
        return -EINVAL;
    if (rt->engine->class->submit == NULL)
        return -ENOSYS;
    return fd < 0 ? -EBADF : cancel_all_on(rt, fd);
}

int ring__close_begin(struct weft_runtime *rt, struct ring__closing *closing)
{
    struct ring__engine *engine = (struct ring__engine *)(void *)rt->engine;
    int fd = closing->fd;

    if (fd < 0)
        return -EBADF;
    if (rt->engine->class->submit == NULL) {
        closing->fd = -1;
        return 0;
    }
    if (engine->closing != NULL && closing_of(engine, fd) != NULL)
        return -EBADF;
    if (cancel_all_on(rt, fd) == 0) {
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
