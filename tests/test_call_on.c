/* needs: fibers */
/* Functions called in fibers of other runtimes: results, deadlines, cancelling, which runtime ends
 * first, and a soak of all of it. */
#include "allocations.h"
#include "cluster_support.h"
#include "fiber_internal.h"
#include "ring_internal.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <semaphore.h>
#include <weft/fiber.h>
#include <weft/promise.h>
#include <weft/scope.h>
#include <weft/shared_channel.h>

/* Runs main as runtime 0 of `count`, whose others serve. */
static int run_cluster(const struct setup *setup, unsigned count, weft_cluster_main_fn *main)
{
    struct weft_cluster_options options = cluster_options(setup, count);

    options.mains = 1;
    return weft_cluster_run(main, NULL, &options);
}

/* ---- results ---- */

static struct weft_runtime *caller;

static int64_t add_one(void *arg)
{
    cr_assert_not_null(fiber_self());
    cr_assert_neq(weft__rt, caller);
    return *(int64_t *)arg + 1;
}

static int64_t sleep_then(void *arg)
{
    int rc = fiber_sleep(WEFT_MS(1));

    return rc < 0 ? rc : *(int64_t *)arg;
}

static int64_t fail(void *arg)
{
    (void)arg;
    return -ENOTDIR;
}

static int64_t fail_oddly(void *arg)
{
    (void)arg;
    return -100000;
}

static int64_t pointer(void *arg)
{
    return (int64_t)(intptr_t)arg;
}

static int call_results(struct weft_cluster *cluster, unsigned index, void *unused)
{
    struct weft_inbox *there = weft_cluster_inbox(cluster, 1);
    int64_t n = (int64_t)1 << 40;

    (void)index;
    (void)unused;
    caller = weft__rt;
    cr_assert_eq(fiber_call_on(there, add_one, &n, WEFT_FOREVER), n + 1);
    cr_assert_eq(fiber_call_on(there, sleep_then, &n, WEFT_FOREVER), n);
    cr_assert_eq(fiber_call_on(there, fail, NULL, WEFT_FOREVER), -ENOTDIR);
    cr_assert_eq(fiber_call_on(there, fail_oddly, NULL, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_call_on(there, pointer, &n, weft_after(WEFT_SEC(60))),
                 (int64_t)(intptr_t)&n);
    /* one's own runtime is a runtime like the others */
    cr_assert_eq(fiber_call_on(weft_cluster_inbox(cluster, 0), sleep_then, &n, WEFT_FOREVER), n);
    cr_assert_eq(fiber_call_on(NULL, fail, NULL, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_call_on(there, NULL, NULL, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_call_on(there, fail, NULL, WEFT_NOWAIT), -ETIMEDOUT);
    return 0;
}

Test(call_on, results)
{
    EACH_SETUP(setup)
    {
        cr_assert_eq(run_cluster(setup, 2, call_results), 0, "%s", setup->name);
    }
    cr_assert_eq(fiber_call_on(NULL, fail, NULL, WEFT_FOREVER), -EINVAL);
}

/* A call of a fiber allocates nothing here. */
static int count_allocations(struct weft_cluster *cluster, unsigned index, void *unused)
{
    struct weft_inbox *there = weft_cluster_inbox(cluster, 1);
    size_t before;
    int64_t n = 1;

    (void)index;
    (void)unused;
    cr_assert_eq(fiber_call_on(there, sleep_then, &n, WEFT_FOREVER), 1);
    before = allocations;
    for (int i = 0; i < 100; i++)
        cr_assert_eq(fiber_call_on(there, add_one, &n, weft_after(WEFT_SEC(60))), 2);
    cr_assert_eq(allocations, before);
    return 0;
}

Test(call_on, without_allocation)
{
    cr_assert_eq(run_cluster(&setups[1], 2, count_allocations), 0);
}

/* ---- deadlines and cancelling ---- */

static int64_t wait_for_ever(void *arg)
{
    int rc = fiber_sleep_until(WEFT_FOREVER);

    ++*(int *)arg; /* on the caller's stack: it is still there */
    return rc;
}

static int64_t ignore_cancel(void *arg)
{
    fiber_sleep_until(WEFT_FOREVER);
    return ++*(int *)arg;
}

static int64_t call_for_ever(void *arg)
{
    int ended = 0;
    int64_t rc = fiber_call_on(arg, wait_for_ever, &ended, WEFT_FOREVER);

    return ended == 1 ? rc : -EPROTO;
}

static int cut_calls(struct weft_cluster *cluster, unsigned index, void *unused)
{
    struct weft_inbox *there = weft_cluster_inbox(cluster, 1);
    struct fiber_scope scope;
    struct promise *promise;
    int ended = 0;

    (void)index;
    (void)unused;
    cr_assert_eq(fiber_call_on(there, wait_for_ever, &ended, weft_after(WEFT_MS(1))), -ETIMEDOUT);
    cr_assert_eq(ended, 1);
    cr_assert_eq(fiber_call_on(there, wait_for_ever, &ended, weft_after(-1)), -ETIMEDOUT);
    cr_assert_geq(ended, 1);
    /* what it does counts, late or not */
    ended = 0;
    cr_assert_eq(fiber_call_on(there, ignore_cancel, &ended, weft_after(WEFT_MS(1))), 1);
    /* the caller is cancelled: at once, and when it is under way */
    promise = fiber_spawn(call_for_ever, there);
    fiber_yield();
    promise_cancel(promise);
    cr_assert_eq(fiber_await(promise, NULL, WEFT_FOREVER), -ECANCELED);
    promise = fiber_spawn(call_for_ever, there);
    cr_assert_eq(fiber_sleep(WEFT_MS(1)), 0);
    promise_cancel(promise);
    cr_assert_eq(fiber_await(promise, NULL, WEFT_FOREVER), -ECANCELED);
    /* so it is by the deadline of a scope */
    ended = 0;
    fiber_scope_open(&scope, weft_after(WEFT_MS(1)));
    cr_assert_eq(fiber_call_on(there, wait_for_ever, &ended, WEFT_FOREVER), -ECANCELED);
    cr_assert_eq(fiber_call_on(there, wait_for_ever, &ended, WEFT_FOREVER), -ECANCELED);
    cr_assert_eq(ended, 1);
    cr_assert_eq(fiber_scope_close(&scope, -ECANCELED), -ETIMEDOUT);
    return 0;
}

Test(call_on, cut_short)
{
    EACH_SETUP(setup)
    {
        cr_assert_eq(run_cluster(setup, 2, cut_calls), 0, "%s", setup->name);
    }
}

/* ---- as promises ---- */

static atomic_int freed;

static void count_free(void *arg)
{
    (void)arg;
    atomic_fetch_add(&freed, 1);
}

static int spawn_there(struct weft_cluster *cluster, unsigned index, void *unused)
{
    struct weft_inbox *there = weft_cluster_inbox(cluster, 1);
    int64_t n = 7;
    int ended = 0;
    union weft_value value = weft_num(0);
    struct promise *promise;

    (void)index;
    (void)unused;
    freed = 0;
    promise = fiber_spawn_on(there, sleep_then, &n, count_free);
    cr_assert_eq(freed, 0);
    cr_assert_eq(fiber_await(promise, &value, WEFT_FOREVER), 0);
    cr_assert_eq(value.num, 7);
    cr_assert_eq(freed, 1);
    cr_assert_eq(fiber_await(fiber_spawn_on(there, fail, NULL, NULL), NULL, WEFT_FOREVER),
                 -ENOTDIR);
    promise = fiber_spawn_on(there, wait_for_ever, &ended, count_free);
    cr_assert_eq(fiber_await(promise_ref(promise), NULL, weft_after(WEFT_MS(1))), -ETIMEDOUT);
    cr_assert_eq(freed, 1);
    promise_cancel(promise);
    cr_assert_eq(promise_state(promise), PROMISE_PENDING); /* until it has ended */
    cr_assert_eq(fiber_await(promise, NULL, WEFT_FOREVER), -ECANCELED);
    cr_assert_eq(ended, 1);
    cr_assert_eq(freed, 2);
    /* dropped, it goes on; a call that is answered later was there later */
    promise_unref(fiber_spawn_on(there, add_one, &n, count_free));
    cr_assert_eq(fiber_call_on(there, add_one, &n, WEFT_FOREVER), 8);
    cr_assert_eq(freed, 3);
    cr_assert_eq(fiber_await(fiber_spawn_on(NULL, fail, NULL, count_free), NULL, WEFT_FOREVER),
                 -EINVAL);
    cr_assert_eq(fiber_await(fiber_spawn_on(there, NULL, NULL, count_free), NULL, WEFT_FOREVER),
                 -EINVAL);
    cr_assert_eq(freed, 5);
    return 0;
}

Test(call_on, spawned_there)
{
    EACH_SETUP(setup)
    {
        cr_assert_eq(run_cluster(setup, 2, spawn_there), 0, "%s", setup->name);
    }
}

/* ---- who ends first: two runtimes by themselves, of no cluster ---- */

static struct weft_inbox *other;
static sem_t other_runs;
static const struct setup *other_setup;
static int other_result;
static bool other_stops;

static int run_other(void *unused)
{
    int rc;

    (void)unused;
    other = weft_inbox_ref();
    sem_post(&other_runs);
    rc = fiber_sleep_until(WEFT_FOREVER);
    return rc == -ECANCELED && other_stops ? 0 : rc;
}

static void *run_other_thread(void *unused)
{
    struct weft_options options = setup_options(other_setup);

    (void)unused;
    other_result = weft_run(run_other, NULL, &options);
    return NULL;
}

static void with_other(const struct setup *setup, weft_main_fn *main, bool stops)
{
    struct weft_options options = setup_options(setup);
    pthread_t thread;

    freed = 0;
    other_setup = setup;
    other_stops = stops;
    sem_init(&other_runs, 0, 0);
    pthread_create(&thread, NULL, run_other_thread, NULL);
    while (sem_wait(&other_runs) < 0)
        ;
    cr_assert_eq(weft_run(main, &thread, &options), 0, "%s", setup->name);
    weft_inbox_unref(other);
    if (!stops)
        pthread_join(thread, NULL);
    cr_assert_eq(other_result, stops ? 0 : -EDEADLK); /* nobody could stop it any more */
}

static int64_t stop_runtime(void *arg)
{
    (void)arg;
    weft_stop();
    return 3;
}

static int other_ends(void *thread)
{
    struct promise *waits, *late;
    int ended = 0;
    int64_t n = 7;

    waits = fiber_spawn_on(other, wait_for_ever, &ended, count_free);
    cr_assert_eq(fiber_call_on(other, add_one, &n, WEFT_FOREVER), 8);
    cr_assert_eq(fiber_call_on(other, stop_runtime, NULL, WEFT_FOREVER), 3);
    late = fiber_spawn_on(other, fail, NULL, count_free); /* it stops, or has ended */
    cr_assert_eq(fiber_await(waits, NULL, WEFT_FOREVER), -ECANCELED);
    cr_assert_eq(ended, 1);
    cr_assert_eq(fiber_await(late, NULL, WEFT_FOREVER), -ESHUTDOWN);
    cr_assert_eq(freed, 2);
    pthread_join(*(pthread_t *)thread, NULL);
    cr_assert_eq(fiber_call_on(other, fail, NULL, WEFT_FOREVER), -ESHUTDOWN);
    cr_assert_eq(fiber_await(fiber_spawn_on(other, fail, NULL, count_free), NULL, WEFT_FOREVER),
                 -ESHUTDOWN);
    cr_assert_eq(freed, 3);
    return 0;
}

Test(call_on, the_runtime_there_ends)
{
    EACH_SETUP(setup)
    {
        with_other(setup, other_ends, true);
    }
}

/* A fiber that shields itself outlives its caller's runtime. */
static sem_t ended_there;

static int nap(void *unused)
{
    (void)unused;
    return fiber_sleep(WEFT_MS(1));
}

static int64_t end_slowly(void *arg)
{
    (void)arg;
    fiber_shield(nap, NULL);
    sem_post(&ended_there);
    return 0;
}

static int end_here(void *unused)
{
    (void)unused;
    for (int i = 0; i < 3; i++)
        promise_unref(fiber_spawn_on(other, end_slowly, NULL, count_free));
    return 0;
}

Test(call_on, the_runtime_here_ends)
{
    EACH_SETUP(setup)
    {
        sem_init(&ended_there, 0, 0);
        with_other(setup, end_here, false);
        for (int i = 0; i < 3; i++)
            cr_assert_eq(sem_trywait(&ended_there), 0);
        cr_assert_eq(freed, 3);
    }
}

/* Two that wait for each other's fibers are no deadlock, for they might cancel. They end together when
 * one is stopped. */
static int64_t call_back(void *inbox)
{
    int ended = 0;

    return fiber_call_on(inbox, wait_for_ever, &ended, WEFT_FOREVER);
}

static int64_t stop_later(void *unused)
{
    (void)unused;
    fiber_sleep(WEFT_MS(2));
    return fiber_call_on(other, stop_runtime, NULL, WEFT_FOREVER);
}

static int wait_for_each_other(void *thread)
{
    struct weft_inbox *here = weft_inbox_ref();
    int64_t rc;

    fiber_detach(stop_later, NULL);
    rc = fiber_call_on(other, call_back, here, WEFT_FOREVER);
    weft_inbox_unref(here);
    pthread_join(*(pthread_t *)thread, NULL);
    return rc == -ECANCELED ? 0 : (int)rc;
}

Test(call_on, no_deadlock_between_runtimes)
{
    EACH_SETUP(setup)
    {
        with_other(setup, wait_for_each_other, true);
    }
}

/* In one cluster it is one, and found. */
static int64_t call_and_wait(void *unused)
{
    (void)unused;
    return fiber_await(promise_create(), NULL, WEFT_FOREVER);
}

static int wait_for_a_waiter(struct weft_cluster *cluster, unsigned index, void *unused)
{
    (void)index;
    return (int)fiber_call_on(weft_cluster_inbox(cluster, 1), call_and_wait, unused, WEFT_FOREVER);
}

Test(call_on, a_deadlock_across_a_cluster)
{
    EACH_SETUP(setup)
    {
        cr_assert_eq(run_cluster(setup, 2, wait_for_a_waiter), -EDEADLK, "%s", setup->name);
        cr_assert(report_contains("waits for a call on another runtime"));
    }
}

/* ---- an engine that fails ---- */

static struct weft_shared_channel *channel;
static atomic_int in_place;

static int64_t receive_item(void *unused)
{
    union weft_value value;

    (void)unused;
    atomic_fetch_add(&in_place, 1);
    return fiber_shared_channel_recv(channel, &value, WEFT_FOREVER);
}

static int64_t be_called(void *ended)
{
    atomic_fetch_add(&in_place, 1);
    return wait_for_ever(ended);
}

static int64_t call_other(void *inbox)
{
    int ended = 0;

    return fiber_call_on(inbox, be_called, &ended, WEFT_FOREVER);
}

/* Runtime 0 has fibers that wait for others and fibers of others, and then its engine fails. */
static int fail_in_the_midst(struct weft_cluster *cluster, unsigned index, void *unused)
{
    int ended = 0;
    int64_t rc;

    (void)unused;
    if (index == 1) {
        rc = fiber_call_on(weft_cluster_inbox(cluster, 0), be_called, &ended, WEFT_FOREVER);
        cr_assert(rc == -ESHUTDOWN, "%d", (int)rc);
        return 0;
    }
    fiber_detach(receive_item, NULL);
    fiber_detach(call_other, weft_cluster_inbox(cluster, 1));
    promise_unref(promise_shared_channel_recv(channel));
    while (in_place < 3)
        fiber_yield();
    ring__faults(weft__rt)->enter_error = -ENXIO;
    ring__faults(weft__rt)->enter = 1000;
    return fiber_sleep(1);
}

Test(call_on, an_engine_fails)
{
    EACH_IO_SETUP(setup)
    {
        struct weft_cluster_options options = cluster_options(setup, 2);

        in_place = 0;
        channel = weft_shared_channel_create(NULL, 0, NULL);
        cr_assert_eq(weft_cluster_run(fail_in_the_midst, NULL, &options), -ENXIO, "%s",
                     setup->name);
        /* nobody stands in the channel any more */
        cr_assert_eq(weft_shared_channel_try_send(channel, weft_num(1)), -EAGAIN);
        weft_shared_channel_unref(channel);
    }
}

/* ---- no memory ---- */

static int64_t lose_memory(void *unused)
{
    (void)unused;
    allocations_fail_after(0);
    return 0;
}

static int64_t big_frame(void *unused)
{
    (void)unused;
    return 5;
}

/* So many fibers at once that they need new stacks, there, where there is no memory for them. */
static int exhaust_there(struct weft_cluster *cluster, unsigned index, void *unused)
{
    struct weft_inbox *there = weft_cluster_inbox(cluster, 1);
    struct promise *promises[3000];
    int lacking = 0;

    (void)index;
    (void)unused;
    freed = 0;
    cr_assert_eq(fiber_call_on(there, lose_memory, NULL, WEFT_FOREVER), 0);
    for (int i = 0; i < 3000; i++)
        promises[i] = fiber_spawn_on(there, big_frame, NULL, count_free);
    for (int i = 0; i < 3000; i++) {
        int rc = fiber_await(promises[i], NULL, WEFT_FOREVER);

        cr_assert(rc == 0 || rc == -ENOMEM, "%d", rc);
        lacking += rc == -ENOMEM;
    }
    if (ALLOCATIONS_CAN_FAIL)
        cr_assert_gt(lacking, 0);
    cr_assert_eq(freed, 3000);
    return 0;
}

Test(call_on, without_memory_there)
{
    cr_assert_eq(run_cluster(&setups[0], 2, exhaust_there), 0);
}

static int exhaust_here(struct weft_cluster *cluster, unsigned index, void *unused)
{
    struct weft_inbox *there = weft_cluster_inbox(cluster, 1);

    (void)index;
    (void)unused;
    for (size_t allowed = 0;; allowed++) {
        struct promise *promise;
        int error = 0;

        freed = 0;
        allocations_fail_after(allowed);
        promise = fiber_spawn_on(there, big_frame, NULL, count_free);
        allocations_fail_after(SIZE_MAX);
        if (promise_poll(promise, NULL, &error) == PROMISE_PENDING) {
            cr_assert_eq(fiber_await(promise, NULL, WEFT_FOREVER), 0);
            return 0;
        }
        cr_assert_eq(error, -ENOMEM);
        cr_assert_eq(freed, 1);
        promise_unref(promise);
    }
}

Test(call_on, without_memory_here)
{
    cr_assert_eq(run_cluster(&setups[0], 2, exhaust_here), 0);
}

/* ---- local values ---- */

static const struct weft_key shared_key = {.name = "request", .flags = WEFT_KEY_SHARED};
static const struct weft_key own_key = {.name = "connection"};

static int64_t look_at_values(void *value)
{
    return weft_get(&shared_key) == value && weft_get(&own_key) == NULL ? 0 : -EPROTO;
}

static int call_with_values(struct weft_cluster *cluster, unsigned index, void *unused)
{
    struct weft_inbox *there = weft_cluster_inbox(cluster, 1);
    int value;

    (void)index;
    (void)unused;
    weft_set(&shared_key, &value);
    weft_set(&own_key, &value);
    cr_assert_eq(fiber_call_on(there, look_at_values, &value, WEFT_FOREVER), 0);
    cr_assert_eq(
        fiber_await(fiber_spawn_on(there, look_at_values, &value, NULL), NULL, WEFT_FOREVER), 0);
    weft_set(&shared_key, NULL);
    cr_assert_eq(fiber_call_on(there, look_at_values, NULL, WEFT_FOREVER), 0);
    return 0;
}

Test(call_on, local_values)
{
    EACH_SETUP(setup)
    {
        cr_assert_eq(run_cluster(setup, 2, call_with_values), 0, "%s", setup->name);
    }
}

/* ---- soak ---- */

/* Fibers of all runtimes call each other, in both forms and several levels deep, cut calls short, drop
 * promises, and the cluster is stopped in the midst of it. Every argument is freed once. */
#define LEVELS 4

struct work {
    struct weft_cluster *cluster;
    uint64_t random;
    int level;
    bool owned;
};

static atomic_long made, gone;

static uint64_t draw(struct work *work)
{
    work->random ^= work->random << 13;
    work->random ^= work->random >> 7;
    work->random ^= work->random << 17;
    return work->random >> 11;
}

static void free_work(void *work)
{
    atomic_fetch_add(&gone, 1);
    free(work);
}

static struct work *derive(struct work *work)
{
    struct work *next = malloc(sizeof *next);

    cr_assert_not_null(next);
    *next = (struct work){work->cluster, draw(work) | 1, work->level - 1, true};
    atomic_fetch_add(&made, 1);
    return next;
}

static int64_t do_work(void *arg)
{
    struct work *work = arg;
    unsigned count = weft_cluster_count(work->cluster);

    for (int i = 0; i < 3 && work->level > 0; i++) {
        struct weft_inbox *there =
            weft_cluster_inbox(work->cluster, (unsigned)(draw(work) % count));
        struct work next = {work->cluster, draw(work) | 1, work->level - 1, false};
        struct promise *promise;

        switch (draw(work) % 6) {
        case 0:
            fiber_call_on(there, do_work, &next, WEFT_FOREVER);
            break;
        case 1:
            fiber_call_on(there, do_work, &next, weft_after((int64_t)(draw(work) % 200000)));
            break;
        case 2:
            promise_unref(fiber_spawn_on(there, do_work, derive(work), free_work));
            break;
        case 3:
            promise = fiber_spawn_on(there, do_work, derive(work), free_work);
            if (draw(work) % 2)
                fiber_yield();
            promise_cancel(promise);
            fiber_await(promise, NULL, WEFT_FOREVER);
            break;
        case 4:
            promise = fiber_spawn_on(there, do_work, derive(work), free_work);
            fiber_await(promise, NULL, weft_after((int64_t)(draw(work) % 100000)));
            break;
        default:
            fiber_sleep((int64_t)(draw(work) % 50000));
        }
    }
    return work->level;
}

static uint64_t seed;
static bool stop_early;

static int soak_main(struct weft_cluster *cluster, unsigned index, void *unused)
{
    struct work work = {cluster, seed * 7919 + index * 104729 + 1, LEVELS, false};
    int rounds = slow_tools() ? 2 : 12;

    (void)unused;
    for (int i = 0; i < rounds && !weft_stopping(); i++) {
        work.level = LEVELS;
        do_work(&work);
        if (stop_early && index == 1 && i == rounds / 2)
            weft_cluster_stop(cluster);
    }
    return 0;
}

Test(call_on, soak)
{
    int seeds = slow_tools() ? 2 : 15;

    for (seed = 1; seed <= (uint64_t)seeds; seed++) {
        const struct setup *setup = &setups[seed % setups_count];
        struct weft_cluster_options options = cluster_options(setup, 3);

        made = gone = 0;
        stop_early = seed % 3 == 0;
        cr_assert_eq(weft_cluster_run(soak_main, NULL, &options), 0, "seed %d", (int)seed);
        cr_assert_eq(made, gone, "seed %d: %ld made, %ld freed", (int)seed, made, gone);
    }
}

/* All runtimes call each other for a while, and then wait for nothing: that is seen as the end, always,
 * and never before. */
static atomic_int finished;

static int come_to_rest(struct weft_cluster *cluster, unsigned index, void *unused)
{
    struct work work = {cluster, seed * 7919 + index * 104729 + 1, 0, false};

    for (uint64_t n = draw(&work) % 6; n > 0; n--) {
        struct weft_inbox *there = weft_cluster_inbox(cluster, (unsigned)(draw(&work) % 3));

        if (draw(&work) % 2)
            cr_assert_eq(fiber_call_on(there, pointer, &work, WEFT_FOREVER),
                         (int64_t)(intptr_t)&work);
        else
            promise_unref(fiber_spawn_on(there, call_and_wait, unused, NULL));
    }
    atomic_fetch_add(&finished, 1);
    return fiber_await(promise_create(), NULL, WEFT_FOREVER);
}

Test(call_on, all_come_to_rest)
{
    for (seed = 1; seed <= (slow_tools() ? 20 : 600); seed++) {
        struct weft_cluster_options options = cluster_options(&setups[seed % setups_count], 3);

        finished = 0;
        cr_assert_eq(weft_cluster_run(come_to_rest, NULL, &options), -EDEADLK, "seed %d",
                     (int)seed);
        cr_assert_eq(finished, 3, "seed %d", (int)seed);
    }
}
