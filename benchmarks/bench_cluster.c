/* bench_cluster: what it costs to have to do with another thread. needs: fibers
 *
 *   call         a fiber calls a function on another runtime, and waits for its result: fiber_call_on
 *   spawn        the same as a promise that is awaited: fiber_spawn_on
 *   ping         one item to another runtime and one back, through two shared channels without room
 *   items        items through one shared channel with room for 256, from one runtime to another
 *   work         a job for a pool of one worker, waited for
 *   pipes        for scale: a byte through a pipe to another thread and one back, with read(2), write(2)
 *   condition    for scale: the same with a mutex and condition variables
 *   eventfd      for scale: two rings by hand on liburing, each wakes the other by its eventfd
 *   message      for scale: the same by a message from ring to ring (IORING_OP_MSG_RING)
 *
 * In call to work both runtimes are of one cluster of two (work: a cluster of one and its pool), on the
 * default engine. The figure is nanoseconds a round trip, or an item. One operation is under way at a
 * time but for items, so in most the other side sleeps, and waking it is most of the figure, as with
 * pipes and conditions.
 */
#include "harness.h"
#include "peers/wake_raw_uring.h"

#include <weft/weft.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRIPS 2000L
#define ITEMS 50000L
#define ROOM  256

static struct weft_shared_channel *there, *back;
static int64_t took;

static int64_t nothing(void *arg)
{
    (void)arg;
    return 1;
}

static void check(bool good)
{
    if (!good)
        bench_die("an operation failed");
}

static void take(struct weft_shared_channel *channel)
{
    union weft_value value;

    check(fiber_shared_channel_recv(channel, &value, WEFT_FOREVER) == 0);
}

static void give(struct weft_shared_channel *channel)
{
    check(fiber_shared_channel_send(channel, weft_num(1), WEFT_FOREVER) == 0);
}

/* ---- what is measured: runtime 0 does it, with runtime 1 ---- */

static void call(struct weft_inbox *other)
{
    for (long i = 0; i < TRIPS; i++)
        check(fiber_call_on(other, nothing, NULL, WEFT_FOREVER) == 1);
}

static void spawn(struct weft_inbox *other)
{
    for (long i = 0; i < TRIPS; i++)
        check(fiber_await(fiber_spawn_on(other, nothing, NULL, NULL), NULL, WEFT_FOREVER) == 0);
}

static void ping(struct weft_inbox *other)
{
    (void)other;
    for (long i = 0; i < TRIPS; i++) {
        give(there);
        take(back);
    }
}

static void pong(void)
{
    for (long i = 0; i < TRIPS; i++) {
        take(there);
        give(back);
    }
}

static void give_items(struct weft_inbox *other)
{
    (void)other;
    for (long i = 0; i < ITEMS; i++)
        give(there);
    take(back); /* when all have come */
}

static void take_items(void)
{
    for (long i = 0; i < ITEMS; i++)
        take(there);
    give(back);
}

static struct weft_workers *workers;

static void work(struct weft_inbox *other)
{
    (void)other;
    for (long i = 0; i < TRIPS; i++)
        check(fiber_work(workers, WEFT_CPU, nothing, NULL, WEFT_FOREVER) == 1);
}

static const struct pair {
    const char *name;
    void (*here)(struct weft_inbox *other);
    void (*there)(void);
    long ops;
    size_t room;
} pairs[] = {
    {"call", call, NULL, TRIPS, 0}, {"spawn", spawn, NULL, TRIPS, 0},
    {"ping", ping, pong, TRIPS, 0}, {"items", give_items, take_items, ITEMS, ROOM},
    {"work", work, NULL, TRIPS, 0},
};
#define PAIRS ((int)(sizeof(pairs) / sizeof(pairs[0])))

static int run_pair(struct weft_cluster *cluster, unsigned index, void *arg)
{
    const struct pair *pair = arg;

    if (index == 1) {
        pair->there();
    } else {
        const int64_t began = bench_now();

        pair->here(weft_cluster_inbox(cluster, 1));
        took = bench_now() - began;
    }
    return 0;
}

static int measure_pair(const struct pair *pair)
{
    struct weft_cluster_options options = WEFT_CLUSTER_OPTIONS_INIT;
    struct weft_workers_options one = WEFT_WORKERS_OPTIONS_INIT;
    int rc;

    one.count = 1;
    options.count = pair->here == work ? 1 : 2;
    options.mains = pair->there == NULL ? 1 : 2;
    there = weft_shared_channel_create(NULL, pair->room, NULL);
    back = weft_shared_channel_create(NULL, pair->room, NULL);
    check(there != NULL && back != NULL);
    if (pair->here == work)
        check(weft_workers_create(&workers, &one) == 0);
    rc = weft_cluster_run(run_pair, (void *)(uintptr_t)pair, &options);
    if (pair->here == work)
        check(weft_workers_destroy(workers, WEFT_WORKERS_DRAIN) == 0);
    weft_shared_channel_unref(there);
    weft_shared_channel_unref(back);
    return rc;
}

/* ---- for scale ---- */

static int to[2], from[2];

static void *echo_bytes(void *unused)
{
    char byte;

    for (long i = 0; i < TRIPS; i++)
        check(read(to[0], &byte, 1) == 1 && write(from[1], &byte, 1) == 1);
    return unused;
}

static void pipes(void)
{
    char byte = 1;

    for (long i = 0; i < TRIPS; i++)
        check(write(to[1], &byte, 1) == 1 && read(from[0], &byte, 1) == 1);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turns[2] = {PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER};
static int turn;

static void take_turns(int mine)
{
    pthread_mutex_lock(&lock);
    for (long i = 0; i < TRIPS; i++) {
        while (turn != mine)
            pthread_cond_wait(&turns[mine], &lock);
        turn = !mine;
        pthread_cond_signal(&turns[turn]);
    }
    while (mine == 0 && turn != 0) /* the last one comes back */
        pthread_cond_wait(&turns[0], &lock);
    pthread_mutex_unlock(&lock);
}

static void *other_turns(void *unused)
{
    take_turns(1);
    return unused;
}

static void condition(void)
{
    take_turns(0);
}

static int measure_threads(void (*here)(void), void *(*other)(void *))
{
    pthread_t thread;
    int64_t began;

    turn = 0;
    check(pipe(to) == 0 && pipe(from) == 0);
    check(pthread_create(&thread, NULL, other, NULL) == 0);
    began = bench_now();
    here();
    took = bench_now() - began;
    pthread_join(thread, NULL);
    for (int i = 0; i < 2; i++) {
        close(to[i]);
        close(from[i]);
    }
    return 0;
}

static int measure_pipes(void)
{
    return measure_threads(pipes, echo_bytes);
}

static int measure_condition(void)
{
    return measure_threads(condition, other_turns);
}

static int measure_eventfd(void)
{
    took = wake_raw_uring(TRIPS, false);
    return 0;
}

static int measure_message(void)
{
    took = wake_raw_uring(TRIPS, true);
    return took < 0 ? -EOPNOTSUPP : 0;
}

static const struct scale {
    const char *name;
    int (*measure)(void);
} scales[] = {
    {"pipes", measure_pipes},
    {"condition", measure_condition},
    {"eventfd", measure_eventfd},
    {"message", measure_message},
};

/* ---- the driver ---- */

#define IMPLS (PAIRS + (int)(sizeof(scales) / sizeof(scales[0])))

static const char *name_of(int impl)
{
    return impl < PAIRS ? pairs[impl].name : scales[impl - PAIRS].name;
}

static void measure(struct bench_cell *cell, int impl)
{
    const int64_t began = bench_now();
    int rc = impl < PAIRS ? measure_pair(&pairs[impl]) : scales[impl - PAIRS].measure();

    if (rc == -EOPNOTSUPP)
        snprintf(cell->remark, sizeof(cell->remark), "skipped: the kernel has no such thing");
    else if (rc != 0)
        bench_die("%s: %s", cell->impl, weft_strerror(rc));
    else
        bench_add(cell, (double)took / (double)cell->ops);
    cell->spent += bench_now() - began;
}

int main(int argc, char **argv)
{
    struct bench_options options = {.rounds = 20};
    struct bench_cell cells[IMPLS];

    bench_options_parse(&options, argc, argv,
                        "Measures calls, channels and jobs between threads, in ns each.");
    memset(cells, 0, sizeof(cells));
    for (int i = 0; i < IMPLS; i++) {
        cells[i].impl = name_of(i);
        cells[i].ops = i < PAIRS ? pairs[i].ops : TRIPS;
    }
    for (int round = 0; round < options.rounds; round++)
        for (int i = 0; i < IMPLS; i++)
            if (bench_wanted(&options, cells[i].impl) && bench_again(&cells[i]))
                measure(&cells[i], i);

    if (!options.json)
        printf("  %-10s %9s %9s %7s\n", "", "ns: min", "median", "rounds");
    for (int i = 0; i < IMPLS; i++) {
        if (!bench_wanted(&options, cells[i].impl))
            continue;
        if (options.json)
            bench_json("cluster", &cells[i], "ns");
        else if (cells[i].rounds == 0)
            printf("  %-10s %s\n", cells[i].impl, cells[i].remark);
        else
            printf("  %-10s %9.1f %9.1f %7d\n", cells[i].impl, cells[i].best,
                   bench_median(&cells[i]), cells[i].rounds);
    }
    return 0;
}
