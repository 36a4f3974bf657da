/* engine_null.c: an engine without I/O. It sleeps on a semaphore, which a wake-up from any thread or
 * signal handler may post. Core and promises are tested on it. */
#include "engine.h"

#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <time.h>

struct null_engine {
    struct weft__engine engine;
    sem_t wakes;
    uint64_t sleeps;
};

static int null_create(struct weft__engine **engine, const struct weft_options *options, char *why,
                       size_t why_size)
{
    struct null_engine *null = calloc(1, sizeof *null);

    (void)options;
    (void)why;
    (void)why_size;
    if (null == NULL)
        return -ENOMEM;
    null->engine.class = &weft__engine_null;
    sem_init(&null->wakes, 0, 0);
    *engine = &null->engine;
    return 0;
}

static void null_destroy(struct weft__engine *engine)
{
    struct null_engine *null = (struct null_engine *)engine;

    sem_destroy(&null->wakes);
    free(null);
}

static bool null_quiet(struct weft__engine *engine)
{
    (void)engine;
    return true;
}

static int null_turn(struct weft__engine *engine, weft_time until)
{
    struct null_engine *null = (struct null_engine *)engine;

    if (until == WEFT_NOWAIT)
        return 0;
    null->sleeps++;
    if (until == WEFT_FOREVER) {
        sem_wait(&null->wakes); /* EINTR: returning early is allowed */
    } else {
        struct timespec ts = {.tv_sec = (time_t)(until / 1000000000),
                              .tv_nsec = (long)(until % 1000000000)};

        sem_clockwait(&null->wakes, CLOCK_MONOTONIC, &ts);
    }
    return 0;
}

static void null_wake(struct weft__engine *engine)
{
    sem_post(&((struct null_engine *)engine)->wakes);
}

static void null_cancel_all(struct weft__engine *engine)
{
    (void)engine;
}

static void null_stats(const struct weft__engine *engine, struct weft_stats *stats)
{
    stats->enters += ((const struct null_engine *)engine)->sleeps;
}

const struct weft__engine_class weft__engine_null = {
    .name = "null",
    .create = null_create,
    .destroy = null_destroy,
    .quiet = null_quiet,
    .turn = null_turn,
    .wake = null_wake,
    .cancel_all = null_cancel_all,
    .stats = null_stats,
};
