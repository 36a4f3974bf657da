/* needs: fibers */
/* Pools of workers, used by fibers: waiting for a turn, deadlines, cancelling, and a soak. */
#include "allocations.h"
#include "cluster_support.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>
#include <weft/fiber.h>
#include <weft/promise.h>
#include <weft/scope.h>
#include <weft/signals.h>
#include <weft/workers.h>

static struct weft_workers *pool;

static void create_pool(const struct setup *setup, unsigned count, unsigned limit)
{
    static struct weft_options runtime;
    struct weft_workers_options options = WEFT_WORKERS_OPTIONS_INIT;

    runtime = setup_options(setup);
    options.count = count;
    options.limit = limit;
    options.runtime = &runtime;
    cr_assert_eq(weft_workers_create(&pool, &options), 0, "%s", setup->name);
}

static void end_pool(void)
{
    cr_assert_eq(weft_workers_destroy(pool, WEFT_WORKERS_DRAIN), 0);
}

static void with_pool(unsigned count, unsigned limit, weft_main_fn *main)
{
    EACH_SETUP(setup)
    {
        create_pool(setup, count, limit);
        cr_assert_eq(run_on(setup, main, NULL), 0, "%s", setup->name);
        end_pool();
    }
}

/* ---- results ---- */

static const struct weft_key shared_key = {.name = "request", .flags = WEFT_KEY_SHARED};

static int64_t add_values(void *arg)
{
    cr_assert_not_null(fiber_self());
    return *(int64_t *)arg + *(int64_t *)weft_get(&shared_key);
}

static int64_t fail(void *arg)
{
    (void)arg;
    return -ENOTDIR;
}

static int64_t sleep_a_little(void *arg)
{
    int rc = fiber_sleep(WEFT_MS(1));

    return rc < 0 ? rc : *(int64_t *)arg;
}

static atomic_int freed;

static void count_free(void *arg)
{
    (void)arg;
    atomic_fetch_add(&freed, 1);
}

static int get_results(void *unused)
{
    int64_t n = 40, more = 2;
    union weft_value value = weft_num(0);
    size_t before;

    (void)unused;
    freed = 0;
    weft_set(&shared_key, &more);
    cr_assert_eq(fiber_work(pool, WEFT_CPU, add_values, &n, WEFT_FOREVER), 42);
    cr_assert_eq(fiber_work(pool, WEFT_CPU, fail, &n, WEFT_FOREVER), -ENOTDIR);
    cr_assert_eq(fiber_work(pool, 10, sleep_a_little, &n, weft_after(WEFT_SEC(60))), 40);
    cr_assert_eq(fiber_work(pool, 0, fail, &n, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_work(pool, 101, fail, &n, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_work(pool, 1, NULL, &n, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_work(pool, 1, fail, &n, WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert_eq(
        fiber_await(fiber_submit(pool, 1, sleep_a_little, &n, count_free), &value, WEFT_FOREVER),
        0);
    cr_assert_eq(value.num, 40);
    cr_assert_eq(fiber_await(fiber_submit(pool, 0, fail, &n, count_free), NULL, WEFT_FOREVER),
                 -EINVAL);
    cr_assert_eq(fiber_await(fiber_submit(pool, 1, NULL, &n, count_free), NULL, WEFT_FOREVER),
                 -EINVAL);
    cr_assert_eq(freed, 3);
    weft_set(&shared_key, NULL);
    before = allocations;
    for (int i = 0; i < 50; i++)
        cr_assert_eq(fiber_work(pool, WEFT_CPU, sleep_a_little, &n, WEFT_FOREVER), 40);
    cr_assert_eq(allocations, before); /* waiting allocates nothing */
    return 0;
}

Test(workers, results)
{
    with_pool(2, 0, get_results);
    cr_assert_eq(fiber_work(pool, 1, fail, NULL, WEFT_FOREVER), -EINVAL);
}

/* ---- turns ---- */

static sem_t begun, may_end;
static atomic_int ran;

static int64_t hold_worker(void *unused)
{
    (void)unused;
    sem_post(&begun);
    while (sem_wait(&may_end) < 0)
        ;
    return 0;
}

static int64_t count_run(void *unused)
{
    (void)unused;
    atomic_fetch_add(&ran, 1);
    return 0;
}

static int64_t work_in_turn(void *unused)
{
    return fiber_work(pool, WEFT_CPU, count_run, unused, WEFT_FOREVER);
}

/* However many fibers wait, none is refused; those that don't wait are. Who gives up before its turn is
 * never run. */
static int wait_for_turns(void *unused)
{
    struct promise *holder, *waiting[30], *refused;
    struct fiber_scope scope;

    (void)unused;
    sem_init(&begun, 0, 0);
    sem_init(&may_end, 0, 0);
    ran = freed = 0;
    holder = fiber_submit(pool, WEFT_CPU, hold_worker, NULL, NULL);
    while (sem_wait(&begun) < 0)
        ;
    for (int i = 0; i < 30; i++)
        waiting[i] = fiber_spawn(work_in_turn, NULL);
    fiber_yield();
    cr_assert_eq(weft_workers_waiting(pool), 30);
    promise_unref(fiber_submit(pool, WEFT_CPU, count_run, NULL, count_free));
    refused = fiber_submit(pool, WEFT_CPU, count_run, NULL, count_free);
    cr_assert_eq(fiber_await(refused, NULL, WEFT_FOREVER), -EAGAIN);
    cr_assert_eq(weft_workers_waiting(pool), 31);

    cr_assert_eq(fiber_work(pool, WEFT_CPU, count_run, NULL, weft_after(WEFT_MS(1))), -ETIMEDOUT);
    fiber_scope_open(&scope, weft_after(WEFT_MS(1)));
    cr_assert_eq(fiber_work(pool, WEFT_CPU, count_run, NULL, WEFT_FOREVER), -ECANCELED);
    cr_assert_eq(fiber_scope_close(&scope, -ECANCELED), -ETIMEDOUT);
    promise_cancel(waiting[7]);
    cr_assert_eq(fiber_await(waiting[7], NULL, WEFT_FOREVER), -ECANCELED);
    cr_assert_eq(weft_workers_waiting(pool), 30);
    cr_assert_eq(ran, 0);
    sem_post(&may_end);
    for (int i = 0; i < 30; i++)
        if (i != 7)
            cr_assert_eq(fiber_await(waiting[i], NULL, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_await(holder, NULL, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_work(pool, WEFT_CPU, count_run, NULL, WEFT_FOREVER), 0);
    cr_assert_eq(ran, 29 + 1 + 1);
    return 0;
}

Test(workers, turns)
{
    with_pool(1, 1, wait_for_turns);
}

/* A deadline that passes while it runs cancels it, and what it does then counts. */
static int64_t wait_for_ever(void *ended)
{
    int rc = fiber_sleep_until(WEFT_FOREVER);

    ++*(int *)ended;
    return rc;
}

static int64_t compute(void *ended)
{
    fiber_sleep_until(WEFT_FOREVER);
    return ++*(int *)ended;
}

static int cut_short(void *unused)
{
    int ended = 0;

    (void)unused;
    cr_assert_eq(fiber_work(pool, WEFT_CPU, wait_for_ever, &ended, weft_after(WEFT_MS(5))),
                 -ETIMEDOUT);
    cr_assert_leq(ended, 1);
    ended = 0;
    cr_assert_eq(fiber_work(pool, WEFT_CPU, compute, &ended, weft_after(WEFT_MS(20))),
                 ended == 1 ? 1 : -ETIMEDOUT);
    return 0;
}

Test(workers, cut_short)
{
    with_pool(1, 1, cut_short);
}

/* A runtime that waits for a worker alone is not deadlocked. Its end cancels what it waits for. */
static int64_t begin_and_wait(void *ended)
{
    atomic_fetch_add(&ran, 1);
    return wait_for_ever(ended);
}

static int stop_meanwhile(struct weft_cluster *cluster, unsigned index, void *unused)
{
    int ended = 0;
    int64_t rc;

    (void)unused;
    if (index == 0) {
        while (ran < 2)
            fiber_yield();
        weft_cluster_stop(cluster);
        return 0;
    }
    rc = fiber_work(pool, 50, begin_and_wait, &ended, WEFT_FOREVER);
    return ended == 1 ? (int)rc : -EPROTO;
}

Test(workers, a_stopped_runtime_cancels_its_jobs)
{
    EACH_SETUP(setup)
    {
        struct weft_cluster_options options = cluster_options(setup, 3);

        ran = 0;
        create_pool(setup, 1, 0);
        cr_assert_eq(weft_cluster_run(stop_meanwhile, NULL, &options), 0, "%s", setup->name);
        end_pool();
    }
}

/* A job that is given up when its pool, which ends, has let go of it, but has not given it back yet. The
 * one before it is of a runtime that has ended, so what it owns is freed by who ends the pool. */
static sem_t freeing, may_free;

static void free_slowly(void *unused)
{
    (void)unused;
    sem_post(&freeing);
    while (sem_wait(&may_free) < 0)
        ;
}

static int leave_job(void *unused)
{
    (void)unused;
    promise_unref(fiber_submit(pool, WEFT_CPU, hold_worker, NULL, NULL));
    while (sem_wait(&begun) < 0)
        ;
    promise_unref(fiber_submit(pool, WEFT_CPU, count_run, NULL, free_slowly));
    return 0;
}

static void *cancel_pool(void *unused)
{
    cr_assert_eq(weft_workers_destroy(pool, WEFT_WORKERS_CANCEL), 0);
    return unused;
}

static int give_up_late(void *ending)
{
    struct promise *job = fiber_submit(pool, WEFT_CPU, count_run, NULL, count_free);
    int rc;

    cr_assert_eq(pthread_create(ending, NULL, cancel_pool, NULL), 0);
    while (sem_wait(&freeing) < 0)
        ;
    promise_cancel(job);
    sem_post(&may_free);
    rc = fiber_await(job, NULL, WEFT_FOREVER);
    sem_post(&may_end);
    return rc;
}

Test(workers, given_up_while_its_pool_ends)
{
    EACH_SETUP(setup)
    {
        pthread_t ending;

        sem_init(&begun, 0, 0);
        sem_init(&may_end, 0, 0);
        sem_init(&freeing, 0, 0);
        sem_init(&may_free, 0, 0);
        ran = freed = 0;
        create_pool(setup, 1, 0);
        cr_assert_eq(run_on(setup, leave_job, NULL), 0, "%s", setup->name);
        cr_assert_eq(run_on(setup, give_up_late, &ending), -ESHUTDOWN, "%s", setup->name);
        pthread_join(ending, NULL);
        cr_assert_eq(ran, 0);
        cr_assert_eq(freed, 1);
    }
}

/* ---- pinned callers ---- */

static cpu_set_t all_cpus;

static bool has_all_cpus(void)
{
    cpu_set_t mine;

    CPU_ZERO(&mine);
    return sched_getaffinity(0, sizeof mine, &mine) == 0 && CPU_EQUAL(&mine, &all_cpus);
}

static int64_t job_with_all_cpus(void *unused)
{
    (void)unused;
    return has_all_cpus();
}

static int block_with_all_cpus(void *unused)
{
    (void)unused;
    return has_all_cpus();
}

static int start_from_pinned(struct weft_cluster *cluster, unsigned index, void *unused)
{
    cpu_set_t mine;

    (void)cluster;
    (void)index;
    cr_assert_eq(sched_getaffinity(0, sizeof mine, &mine), 0);
    cr_assert_eq(CPU_COUNT(&mine), 1);
    cr_assert_eq(weft_cpu_count(), (unsigned)CPU_COUNT(&all_cpus));
    cr_assert_eq(weft_workers_count(NULL), (unsigned)CPU_COUNT(&all_cpus));
    cr_assert_eq(fiber_work(NULL, WEFT_CPU, job_with_all_cpus, unused, WEFT_FOREVER), 1);
    cr_assert_eq(fiber_blocking(block_with_all_cpus, unused, WEFT_FOREVER), 1);
    return 0;
}

/* The threads that a pinned runtime starts for others are not pinned with it. */
Test(workers, of_a_pinned_runtime)
{
    struct weft_cluster_options options = cluster_options(&setups[0], 1);

    CPU_ZERO(&all_cpus);
    cr_assert_eq(sched_getaffinity(0, sizeof all_cpus, &all_cpus), 0);
    if (CPU_COUNT(&all_cpus) < 2)
        cr_skip_test("one cpu");
    options.pin = true;
    cr_assert_eq(weft_cluster_run(start_from_pinned, NULL, &options), 0);
    cr_assert(has_all_cpus());
}

/* ---- signals ---- */

static int blocked(int signal)
{
    sigset_t mine;

    return pthread_sigmask(SIG_SETMASK, NULL, &mine) == 0 ? sigismember(&mine, signal) : -1;
}

static int64_t job_of_quiet(void *unused)
{
    (void)unused;
    return blocked(SIGTERM) == 1 && blocked(SIGUSR1) == 1 && blocked(SIGSEGV) == 0;
}

static int block_of_quiet(void *unused)
{
    return (int)job_of_quiet(unused);
}

static int take_signal(void *unused)
{
    const int wanted = SIGUSR1;
    struct weft_signals *signals;

    cr_assert_eq(fiber_work(pool, WEFT_CPU, job_of_quiet, unused, WEFT_FOREVER), 1);
    cr_assert_eq(fiber_blocking(block_of_quiet, unused, WEFT_FOREVER), 1);
    cr_assert_eq(blocked(SIGTERM), 0);
    cr_assert_eq(weft_signals_create(&signals, &wanted, 1), 0);
    cr_assert_eq(kill(getpid(), SIGUSR1), 0);
    cr_assert_eq(fiber_signals_wait(signals, NULL, WEFT_FOREVER), SIGUSR1);
    weft_signals_destroy(signals);
    return 0;
}

/* Signals are for the program's threads, though workers were there before these were held. */
Test(workers, take_no_signals)
{
    with_pool(2, 0, take_signal);
}

/* ---- soak ---- */

/* Fibers of three runtimes use a pool in every form, give up at any moment, and jobs submit jobs. */
struct soak {
    uint64_t random;
    int depth;
};

static atomic_long made, gone, ended;

static uint64_t draw(struct soak *s)
{
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return s->random >> 11;
}

static void free_soak(void *s)
{
    atomic_fetch_add(&gone, 1);
    free(s);
}

static struct soak *derive(struct soak *s)
{
    struct soak *next = malloc(sizeof *next);

    cr_assert_not_null(next);
    *next = (struct soak){draw(s) | 1, s->depth - 1};
    atomic_fetch_add(&made, 1);
    return next;
}

static int64_t job(void *arg)
{
    struct soak *s = arg;

    switch (draw(s) % 4) {
    case 0:
        fiber_sleep((int64_t)(draw(s) % 30000));
        break;
    case 1:
        fiber_yield();
        break;
    case 2:
        if (s->depth > 0) /* not waited for: it may be that there is no other worker */
            promise_unref(
                fiber_submit(pool, 1 + (unsigned)(draw(s) % 100), job, derive(s), free_soak));
        break;
    default:
        break;
    }
    atomic_fetch_add(&ended, 1);
    return 1;
}

static int64_t use_pool(void *arg)
{
    struct soak *s = arg;

    for (int i = 0; i < (slow_tools() ? 20 : 150); i++) {
        unsigned weight = 1 + (unsigned)(draw(s) % 100);
        struct soak next = {draw(s) | 1, 2};
        struct promise *promise;

        switch (draw(s) % 5) {
        case 0:
            fiber_work(pool, weight, job, &next, WEFT_FOREVER);
            break;
        case 1:
            fiber_work(pool, weight, job, &next, weft_after((int64_t)(draw(s) % 100000)));
            break;
        case 2:
            promise_unref(fiber_submit(pool, weight, job, derive(s), free_soak));
            break;
        case 3:
            promise = fiber_submit(pool, weight, job, derive(s), free_soak);
            if (draw(s) % 2)
                fiber_yield();
            promise_cancel(promise);
            fiber_await(promise, NULL, WEFT_FOREVER);
            break;
        default:
            fiber_await(fiber_submit(pool, weight, job, derive(s), free_soak), NULL,
                        weft_after((int64_t)(draw(s) % 50000)));
        }
    }
    return 0;
}

static uint64_t seed;
static struct soak soaks[3][4];

static int soak_main(struct weft_cluster *cluster, unsigned index, void *unused)
{
    struct promise *fibers[4];

    (void)unused;
    for (unsigned i = 0; i < 4; i++) {
        soaks[index][i] = (struct soak){seed * 7919 + index * 104729 + i * 31 + 1, 2};
        fibers[i] = fiber_spawn(use_pool, &soaks[index][i]);
    }
    if (index == 2 && seed % 3 == 0) {
        fiber_sleep((int64_t)(seed * 100000 % 1000000));
        weft_cluster_stop(cluster);
    }
    for (int i = 0; i < 4; i++)
        fiber_await(fibers[i], NULL, WEFT_FOREVER);
    return 0;
}

Test(workers, soak)
{
    int seeds = slow_tools() ? 3 : 15;

    for (seed = 1; seed <= (uint64_t)seeds; seed++) {
        const struct setup *setup = &setups[seed % setups_count];
        struct weft_cluster_options options = cluster_options(setup, 3);

        made = gone = ended = 0;
        create_pool(setup, 1 + (unsigned)(seed % 3), 20);
        cr_assert_eq(weft_cluster_run(soak_main, NULL, &options), 0, "seed %d", (int)seed);
        cr_assert_eq(
            weft_workers_destroy(pool, seed % 2 ? WEFT_WORKERS_DRAIN : WEFT_WORKERS_CANCEL), 0);
        cr_assert_eq(made, gone, "seed %d: %ld made, %ld freed", (int)seed, made, gone);
        if (seed % 3 != 0)
            cr_assert_gt(ended, 10);
    }
}
