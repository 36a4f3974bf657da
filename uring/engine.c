/* engine.c: what every engine that does I/O has: the operations in flight, closing, waking, forks. */
#include "ring_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- life ---- */

int ring__engine_init(struct ring__engine *engine, unsigned entries,
                      const struct weft_options *options, char *why, size_t why_size)
{
    unsigned buckets = 64;
    struct {
        uint8_t alive;
        unsigned left;
    } * page;
    int rc = -ENOMEM;

    while (buckets < entries && buckets < 1u << 15)
        buckets *= 2;
    engine->options = options;
    engine->closing = NULL;
    engine->base.in_flight = 0;
    engine->bucket_mask = buckets - 1;
    engine->buckets = calloc(buckets + 1, sizeof *engine->buckets);
    if (engine->buckets == NULL)
        return -ENOMEM;
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        goto no_page;
    madvise(page, sizeof *page, MADV_WIPEONFORK);
    page->alive = 1;
    engine->alive = &page->alive;
    engine->left = &page->left;
    engine->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (engine->wake_fd < 0) {
        rc = -errno;
        ring__explain_descriptors(rc, why, why_size);
        goto no_eventfd;
    }
    ring__offload_init(engine);
    return 0;

no_eventfd:
    munmap(page, sizeof *page);
no_page:
    free(engine->buckets);
    return rc;
}

void ring__engine_finish(struct ring__engine *engine)
{
    ring__offload_finish(engine);
    close(engine->wake_fd);
    munmap((void *)(uintptr_t)engine->alive, 1);
    free(engine->buckets);
}

void ring__explain_descriptors(int error, char *why, size_t size)
{
    if (error == -EMFILE || error == -ENFILE)
        snprintf(why, size, "no descriptor is left for the engine (%s): raise %s",
                 error == -EMFILE ? "EMFILE" : "ENFILE",
                 error == -EMFILE ? "ulimit -n" : "the sysctl fs.file-max");
    else
        snprintf(why, size, "the engine cannot be set up: %s", strerror(-error));
}

int ring__refuse_fork(const struct ring__engine *engine)
{
    weft__report_to(engine->options,
                    "this process is a child of fork(2), and the runtime's I/O belongs "
                    "to its parent: call exec or _exit, or run a runtime of its own");
    return -ECHILD;
}

void ring__engine_stats(const struct weft__engine *base, struct weft_stats *stats)
{
    const struct ring__engine *engine = (const struct ring__engine *)(const void *)base;

    stats->enters += engine->enters;
    stats->submitted += engine->submitted;
    stats->completed += engine->completed;
}

struct ring__faults *ring__faults(struct weft_runtime *rt)
{
    struct ring__engine *engine = (struct ring__engine *)(void *)rt->engine;

    if (rt->engine->class->submit == NULL)
        return NULL;
    engine->faulty = true;
    *engine->left = 0;
    return &engine->faults;
}

/* ---- waking ---- */

void ring__wake(struct weft__engine *engine)
{
    const uint64_t one = 1;
    int saved = errno; /* may run in a signal handler */
    ssize_t written =
        write(((const struct ring__engine *)(const void *)engine)->wake_fd, &one, sizeof one);

    (void)written; /* cannot fail: the counter is far from full */
    errno = saved;
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

bool ring__is_busy(const struct ring__engine *engine, int fd)
{
    return next_on(engine, fd, NULL) != NULL;
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
    engine->closes = true;
    *engine->left = 0;
    return 1;
}

static void forget(struct weft__engine *engine, int fd)
{
    if (engine->class->forget != NULL)
        engine->class->forget(engine, fd);
}

void ring__forget(struct weft_runtime *rt, int fd)
{
    forget(rt->engine, fd);
}

static int close_of(struct weft__engine *engine, int fd)
{
    forget(engine, fd);
    return ring__close_now(fd);
}

int ring__close(struct weft_runtime *rt, int fd)
{
    return close_of(rt->engine, fd);
}

int ring__end_odd(struct ring__engine *engine, const struct ring_op *op)
{
    int own = ring__attempts_over(op);

    if (own >= 0)
        close_of(&engine->base, own);
    return ring__second_fd(op);
}

void ring__close_finish(struct weft_runtime *rt, struct ring__closing *closing)
{
    struct ring__engine *engine = (struct ring__engine *)(void *)rt->engine;

    if (closing->fd < 0)
        return;
    for (struct ring__closing **link = &engine->closing; *link != NULL; link = &(*link)->next) {
        if (*link == closing) {
            *link = closing->next;
            engine->closes = engine->closing != NULL;
            return;
        }
    }
}
