/* Pools of workers: turns, weights, the limit, cancelling before and after a job has begun, and both
 * ways to end a pool. Without fibers. */
#include "allocations.h"
#include "cluster.h"
#include "cluster_support.h"
#include "promise_internal.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <weft/promise.h>
#include <weft/workers.h>

static struct weft_workers *pool;
static struct weft_options worker_options;

static struct weft_workers_options pool_options(const struct setup *setup, unsigned count)
{
    struct weft_workers_options options = WEFT_WORKERS_OPTIONS_INIT;

    worker_options = setup_options(setup);
    options.count = count;
    options.runtime = &worker_options;
    return options;
}

static void create_pool(const struct setup *setup, unsigned count, unsigned limit)
{
    struct weft_workers_options options = pool_options(setup, count);

    options.limit = limit;
    cr_assert_eq(weft_workers_create(&pool, &options), 0, "%s", setup->name);
}

static int run_here(promise_thunk_fn *main)
{
    struct weft_options options = setup_options(&setups[0]);

    return promise_run(main, NULL, &options, NULL);
}

/* ---- results ---- */

static atomic_int freed;

static void count_free(void *ctx)
{
    (void)ctx;
    atomic_fetch_add(&freed, 1);
}

static struct promise *square(void *ctx)
{
    int64_t n = (int64_t)(intptr_t)ctx;

    cr_assert(weft__is_base(weft__rt));
    return promise_fulfilled(weft_num(n * n));
}

static struct promise *add_up(union weft_value value, void *sum)
{
    *(int64_t *)sum += value.num;
    return promise_fulfilled(weft_num(0));
}

static int64_t sum;

static struct promise *square_all(void *unused)
{
    struct promise *all[200];

    (void)unused;
    sum = 0;
    freed = 0;
    for (int i = 0; i < 200; i++)
        all[i] = promise_bind(
            promise_submit(pool, i % 2 ? WEFT_CPU : 10, square, (void *)(intptr_t)i, count_free),
            add_up, &sum);
    return promise_join(all, 200);
}

Test(workers_promise, results)
{
    EACH_SETUP(setup)
    {
        create_pool(setup, 3, 0);
        cr_assert_eq(weft_workers_count(pool), 3);
        cr_assert_eq(run_here(square_all), 0, "%s", setup->name);
        cr_assert_eq(sum, 199 * 200 * 399 / 6);
        cr_assert_eq(freed, 200);
        cr_assert_eq(weft_workers_waiting(pool), 0);
        cr_assert_eq(weft_workers_destroy(pool, WEFT_WORKERS_DRAIN), 0);
    }
}

static struct promise *submit_badly(void *unused)
{
    static const unsigned weights[] = {0, 101, UINT32_MAX};

    (void)unused;
    freed = 0;
    for (int i = 0; i < 4; i++) {
        struct promise *p = i < 3 ? promise_submit(pool, weights[i], square, NULL, count_free)
                                  : promise_submit(pool, 1, NULL, NULL, count_free);
        int error = 0;

        cr_assert_eq(promise_poll(p, NULL, &error), PROMISE_REJECTED);
        cr_assert_eq(error, -EINVAL);
        promise_unref(p);
        cr_assert_eq(freed, i + 1);
    }
    return promise_fulfilled(weft_num(0));
}

Test(workers_promise, bad_input)
{
    struct weft_workers_options options = pool_options(&setups[0], 1), bad = options;
    struct weft_workers *none = NULL;
    struct promise *p;
    int error = 0;

    bad.size = 4;
    cr_assert_eq(weft_workers_create(&none, &bad), -EINVAL);
    bad.size = sizeof bad + 8;
    cr_assert_eq(weft_workers_create(&none, &bad), -EINVAL);
    bad = options;
    bad.count = 5000;
    cr_assert_eq(weft_workers_create(&none, &bad), -EINVAL);
    cr_assert_eq(weft_workers_create(NULL, &options), -EINVAL);
    cr_assert_null(none);
    cr_assert_eq(weft_workers_destroy(NULL, WEFT_WORKERS_DRAIN), -EINVAL);
    create_pool(&setups[0], 1, 0);
    cr_assert_eq(weft_workers_destroy(pool, (enum weft_workers_end)7), -EINVAL);
    cr_assert_eq(run_here(submit_badly), 0);
    p = promise_submit(pool, 1, square, NULL, count_free); /* no runtime */
    cr_assert_eq(promise_poll(p, NULL, &error), PROMISE_REJECTED);
    cr_assert_eq(error, -EINVAL);
    cr_assert_eq(weft_workers_destroy(pool, WEFT_WORKERS_CANCEL), 0);
}

Test(workers_promise, overcommitment_is_reported)
{
    create_pool(&setups[0], weft_cpu_count(), 0);
    cr_assert(!report_contains("worker threads"));
    cr_assert_eq(weft_workers_destroy(pool, WEFT_WORKERS_DRAIN), 0);
    create_pool(&setups[0], weft_cpu_count() + 1, 0);
    cr_assert(report_contains("worker threads"));
    cr_assert_eq(weft_workers_destroy(pool, WEFT_WORKERS_DRAIN), 0);
}

static atomic_int threads_to_come;

static int few_threads(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                       void *arg)
{
    return atomic_fetch_sub(&threads_to_come, 1) > 0 ? pthread_create(thread, attributes, run, arg)
                                                     : EAGAIN;
}

Test(workers_promise, no_thread)
{
    struct weft_workers_options options = pool_options(&setups[0], 3);
    int alone = threads();

    weft__thread_create = few_threads;
    threads_to_come = 2;
    pool = NULL;
    cr_assert_eq(weft_workers_create(&pool, &options), -EAGAIN);
    cr_assert_null(pool);
    cr_assert(report_contains("no thread"));
    await_threads(alone);
}

/* ---- turns and weights: jobs that end when they are told ---- */

#define JOBS 8

static sem_t begun, may_end[JOBS];
static atomic_int beginnings, order[64], side_by_side, most;

static void reset_jobs(void)
{
    sem_init(&begun, 0, 0);
    for (int i = 0; i < JOBS; i++)
        sem_init(&may_end[i], 0, 0);
    beginnings = side_by_side = most = freed = 0;
}

static void await(sem_t *semaphore)
{
    while (sem_wait(semaphore) < 0)
        ;
}

/* Blocks its worker until it is told to end. */
static struct promise *held(void *ctx)
{
    int job = (int)(intptr_t)ctx;

    order[atomic_fetch_add(&beginnings, 1)] = job;
    sem_post(&begun);
    await(&may_end[job]);
    return promise_fulfilled(weft_num(job));
}

static struct promise *submit_held(unsigned weight, int job)
{
    return promise_submit(pool, weight, held, (void *)(intptr_t)job, count_free);
}

static int error_of(struct promise *p)
{
    int error = 0;

    promise_poll(p, NULL, &error);
    return error;
}

static struct promise *jobs[JOBS];

/* On one worker: 0 runs, 1 and 2 wait, the limit is 2; 1 is cancelled, so 3 has room. */
static struct promise *take_turns(void *unused)
{
    (void)unused;
    reset_jobs();
    jobs[0] = submit_held(WEFT_CPU, 0);
    await(&begun);
    jobs[1] = submit_held(WEFT_CPU, 1);
    jobs[2] = submit_held(1, 2);
    cr_assert_eq(weft_workers_waiting(pool), 2);
    cr_assert_eq(weft_workers_running(pool), 1);
    jobs[3] = submit_held(1, 3);
    cr_assert_eq(error_of(jobs[3]), -EAGAIN);
    cr_assert_eq(freed, 1);
    promise_unref(jobs[3]);
    promise_cancel(jobs[1]);
    promise_cancel(jobs[1]);
    cr_assert_eq(weft_workers_waiting(pool), 1);
    jobs[3] = submit_held(1, 3);
    for (int i = 0; i < 4; i++)
        sem_post(&may_end[i]);
    return promise_join((struct promise *const[]){jobs[0], jobs[2], jobs[3]}, 3);
}

Test(workers_promise, turns_and_the_limit)
{
    EACH_SETUP(setup)
    {
        create_pool(setup, 1, 2);
        cr_assert_eq(run_here(take_turns), 0, "%s", setup->name);
        cr_assert_eq(freed, 5);
        cr_assert_eq(beginnings, 3); /* the cancelled one has never begun */
        cr_assert_eq(order[0], 0);
        cr_assert_eq(order[1], 2);
        cr_assert_eq(order[2], 3);
        cr_assert_eq(weft_workers_destroy(pool, WEFT_WORKERS_DRAIN), 0);
    }
}

/* Jobs that wait, as I/O does: how many are side by side is a matter of weight. */
static struct promise *leave_side(union weft_value value, void *ctx)
{
    (void)ctx;
    atomic_fetch_sub(&side_by_side, 1);
    return promise_fulfilled(value);
}

static struct promise *nap(void *ctx)
{
    int now = atomic_fetch_add(&side_by_side, 1) + 1, before = most;

    while (now > before && !atomic_compare_exchange_weak(&most, &before, now))
        ;
    return promise_bind(promise_sleep(WEFT_MS(1)), leave_side, ctx);
}

static unsigned nap_weight;

static struct promise *nap_all(void *unused)
{
    struct promise *all[40];

    (void)unused;
    reset_jobs();
    for (int i = 0; i < 40; i++)
        all[i] = promise_submit(pool, nap_weight, nap, NULL, NULL);
    return promise_join(all, 40);
}

Test(workers_promise, weights)
{
    static const struct {
        unsigned weight;
        int most;
    } cases[] = {{100, 2}, {51, 2}, {50, 4}, {34, 4}, {10, 20}, {1, 40}};

    EACH_SETUP(setup)
    {
        create_pool(setup, 2, 0);
        for (int i = 0; i < 6; i++) {
            nap_weight = cases[i].weight;
            cr_assert_eq(run_here(nap_all), 0, "%s", setup->name);
            cr_assert_leq(most, cases[i].most, "%s: %d of weight %u", setup->name, (int)most,
                          nap_weight);
            if (nap_weight <= 10) /* far more than there are workers */
                cr_assert_gt(most, 2);
        }
        cr_assert_eq(weft_workers_destroy(pool, WEFT_WORKERS_DRAIN), 0);
    }
}

/* A light one that came later doesn't overtake a heavy one that waits for room. */
static struct promise *keep_order(void *unused)
{
    (void)unused;
    reset_jobs();
    jobs[0] = submit_held(1, 0);
    await(&begun);
    jobs[1] = submit_held(WEFT_CPU, 1);
    jobs[2] = submit_held(1, 2);
    cr_assert_eq(weft_workers_waiting(pool), 2);
    for (int i = 0; i < 3; i++)
        sem_post(&may_end[i]);
    return promise_join(jobs, 3);
}

Test(workers_promise, nobody_is_overtaken)
{
    create_pool(&setups[0], 1, 0);
    cr_assert_eq(run_here(keep_order), 0);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(order[i], i);
    cr_assert_eq(weft_workers_destroy(pool, WEFT_WORKERS_DRAIN), 0);
}

/* ---- canceling what runs ---- */

static atomic_int canceled_there;

static int note_cancel(void *ctx)
{
    (void)ctx;
    atomic_fetch_add(&canceled_there, 1);
    return 0;
}

static struct promise *wait_for_cancel(void *ctx)
{
    struct promise *p = promise_create_task();

    (void)ctx;
    promise_on_cancel(p, note_cancel, NULL);
    sem_post(&begun);
    return p;
}

static struct promise *follow_cancel(int error, void *ctx)
{
    (void)ctx;
    return error == -ECANCELED ? promise_fulfilled(weft_num(0)) : promise_rejected(-EPROTO);
}

static struct promise *cancel_running(void *unused)
{
    struct promise *p;

    (void)unused;
    reset_jobs();
    p = promise_submit(pool, WEFT_CPU, wait_for_cancel, NULL, count_free);
    await(&begun);
    promise_cancel(p);
    cr_assert_eq(promise_state(p), PROMISE_PENDING);
    return promise_catch(p, follow_cancel, NULL);
}

Test(workers_promise, canceling_what_runs)
{
    EACH_SETUP(setup)
    {
        canceled_there = 0;
        create_pool(setup, 1, 0);
        cr_assert_eq(run_here(cancel_running), 0, "%s", setup->name);
        cr_assert_eq(canceled_there, 1);
        cr_assert_eq(freed, 1);
        cr_assert_eq(weft_workers_running(pool), 0);
        cr_assert_eq(weft_workers_destroy(pool, WEFT_WORKERS_DRAIN), 0);
    }
}

/* ---- the end of the pool ---- */

static void *end_pool(void *how)
{
    int rc = weft_workers_destroy(pool, (enum weft_workers_end)(intptr_t)how);

    cr_assert_eq(rc, 0);
    return NULL;
}

static pthread_t ender;
static enum weft_workers_end ending;

static struct promise *keep_error(int error, void *out)
{
    *(int *)out = error;
    return promise_fulfilled(weft_num(0));
}

static int outcomes[JOBS];

static struct promise *end_while_busy(void *unused)
{
    struct promise *all[4];

    (void)unused;
    reset_jobs();
    memset(outcomes, 0, sizeof outcomes);
    all[0] = submit_held(WEFT_CPU, 0);
    await(&begun);
    for (int i = 1; i < 4; i++)
        all[i] = submit_held(WEFT_CPU, i);
    pthread_create(&ender, NULL, end_pool, (void *)(intptr_t)ending);
    while (ending == WEFT_WORKERS_CANCEL && weft_workers_waiting(pool) > 0)
        sched_yield();
    for (int i = 0; i < 4; i++) {
        sem_post(&may_end[i]);
        all[i] = promise_catch(all[i], keep_error, &outcomes[i]);
    }
    return promise_join(all, 4);
}

Test(workers_promise, ended_while_busy)
{
    EACH_SETUP(setup)
    {
        int alone = threads();

        for (int how = 0; how < 2; how++) {
            ending = how == 0 ? WEFT_WORKERS_DRAIN : WEFT_WORKERS_CANCEL;
            create_pool(setup, 1, 0);
            cr_assert_eq(run_here(end_while_busy), 0, "%s", setup->name);
            pthread_join(ender, NULL);
            cr_assert_eq(outcomes[0], 0); /* it had begun, and ended as it wanted */
            for (int i = 1; i < 4; i++)
                cr_assert_eq(outcomes[i], how == 0 ? 0 : -ESHUTDOWN);
            cr_assert_eq(beginnings, how == 0 ? 4 : 1);
            cr_assert_eq(freed, 4);
        }
        await_threads(alone);
    }
}

/* A job submits to its own pool while that ends, and can't end it. */
static struct promise *submit_inside(void *ctx)
{
    (void)ctx;
    sem_post(&begun);
    await(&may_end[0]);
    cr_assert_eq(weft_workers_destroy(pool, WEFT_WORKERS_DRAIN), -EDEADLK);
    return promise_submit(pool, 1, square, NULL, count_free);
}

static struct promise *end_under_submitter(void *unused)
{
    struct promise *p;

    (void)unused;
    reset_jobs();
    p = promise_submit(pool, WEFT_CPU, submit_inside, NULL, count_free);
    await(&begun);
    pthread_create(&ender, NULL, end_pool, (void *)(intptr_t)WEFT_WORKERS_CANCEL);
    sched_yield();
    sem_post(&may_end[0]);
    return promise_catch(p, keep_error, &outcomes[0]);
}

Test(workers_promise, jobs_in_jobs)
{
    EACH_SETUP(setup)
    {
        create_pool(setup, 2, 0);
        outcomes[0] = 0;
        cr_assert_eq(run_here(end_under_submitter), 0, "%s", setup->name);
        pthread_join(ender, NULL);
        cr_assert(outcomes[0] == 0 || outcomes[0] == -ESHUTDOWN, "%d", outcomes[0]);
        cr_assert_eq(freed, 2);
    }
}

/* A runtime that ends leaves its jobs to the pool. */
static struct promise *leave_jobs(void *unused)
{
    (void)unused;
    reset_jobs();
    for (int i = 0; i < 4; i++)
        promise_unref(submit_held(WEFT_CPU, i));
    await(&begun);
    return promise_fulfilled(weft_num(0));
}

Test(workers_promise, the_runtime_here_ends)
{
    EACH_SETUP(setup)
    {
        create_pool(setup, 1, 0);
        cr_assert_eq(run_here(leave_jobs), 0, "%s", setup->name);
        cr_assert_eq(freed, 0);
        for (int i = 0; i < 4; i++)
            sem_post(&may_end[i]);
        cr_assert_eq(weft_workers_destroy(pool, WEFT_WORKERS_DRAIN), 0);
        cr_assert_eq(freed, 4);
        cr_assert_eq(beginnings, 4);
    }
}

/* A job that stops its worker: others go to those that are left; without any they are refused. */
static struct promise *stop_worker(void *ctx)
{
    (void)ctx;
    weft_stop();
    return promise_fulfilled(weft_num(0));
}

static struct promise *stop_workers(void *unused)
{
    struct promise *all[2];

    (void)unused;
    for (int i = 0; i < 2; i++)
        all[i] = promise_submit(pool, WEFT_CPU, stop_worker, NULL, NULL);
    return promise_join(all, 2);
}

static struct promise *refused(void *unused)
{
    (void)unused;
    return promise_catch(promise_submit(pool, 1, square, NULL, count_free), keep_error,
                         &outcomes[0]);
}

Test(workers_promise, stopped_workers)
{
    EACH_SETUP(setup)
    {
        freed = 0;
        create_pool(setup, 2, 0);
        cr_assert_eq(run_here(stop_workers), 0, "%s", setup->name);
        do { /* they end soon */
            outcomes[0] = 0;
            cr_assert_eq(run_here(refused), 0);
            sched_yield();
        } while (outcomes[0] == 0);
        cr_assert_eq(outcomes[0], -ESHUTDOWN);
        cr_assert_eq(weft_workers_destroy(pool, WEFT_WORKERS_DRAIN), 0);
    }
}

/* ---- the process's own pool, memory, fork ---- */

static struct promise *use_own(void *unused)
{
    struct promise *all[10];

    (void)unused;
    sum = 0;
    for (int i = 0; i < 10; i++)
        all[i] = promise_bind(promise_submit(NULL, WEFT_CPU, square, (void *)(intptr_t)i, NULL),
                              add_up, &sum);
    return promise_join(all, 10);
}

Test(workers_promise, the_own_pool_of_the_process)
{
    cr_assert_eq(weft_workers_waiting(NULL), 0);
    cr_assert_eq(run_here(use_own), 0);
    cr_assert_eq(sum, 285);
    cr_assert_eq(weft_workers_count(NULL), weft_cpu_count());
}

static struct promise *use_parents(void *unused)
{
    (void)unused;
    return promise_submit(pool, 1, square, NULL, NULL);
}

/* The parent's workers don't count in a child. */
Test(workers_promise, a_child_of_fork_has_cpus_of_its_own)
{
    struct weft_workers_options options = pool_options(&setups[0], weft_cpu_count());
    struct weft_workers *others;
    int status;
    pid_t child;

    if (slow_tools())
        return; /* as below */
    create_pool(&setups[0], weft_cpu_count(), 0);
    child = fork();
    if (child == 0) {
        bool good = weft_workers_create(&others, &options) == 0 &&
                    !report_contains("worker threads") &&
                    weft_workers_destroy(others, WEFT_WORKERS_DRAIN) == 0;

        _exit(good ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_assert_eq(weft_workers_destroy(pool, WEFT_WORKERS_DRAIN), 0);
}

Test(workers_promise, a_child_of_fork_has_pools_of_its_own)
{
    int status;
    pid_t child;

    if (slow_tools())
        return; /* to them, the threads that a fork leaves behind are leaks of the child */
    create_pool(&setups[0], 1, 0);
    cr_assert_eq(run_here(use_own), 0);
    child = fork();
    if (child == 0) {
        bool good = weft_workers_destroy(pool, WEFT_WORKERS_DRAIN) == -ECHILD;

        good &= run_here(use_parents) == -ECHILD;
        good &= run_here(use_own) == 0 && sum == 285;
        _exit(good ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_assert_eq(run_here(use_own), 0);
    cr_assert_eq(weft_workers_destroy(pool, WEFT_WORKERS_DRAIN), 0);
}

static int failures;

static struct promise *submit_with_little_memory(void *unused)
{
    (void)unused;
    for (size_t allowed = 0;; allowed++) {
        struct promise *p;

        freed = 0;
        allocations_fail_after(allowed);
        p = promise_submit(pool, 1, square, NULL, count_free);
        allocations_fail_after(SIZE_MAX);
        if (promise_state(p) == PROMISE_PENDING)
            return p;
        failures++;
        cr_assert_eq(error_of(p), -ENOMEM);
        cr_assert_eq(freed, 1);
        promise_unref(p);
    }
}

Test(workers_promise, without_memory)
{
    create_pool(&setups[0], 1, 0);
    cr_assert_eq(run_here(submit_with_little_memory), 0);
    if (ALLOCATIONS_CAN_FAIL) {
        struct weft_workers_options options = pool_options(&setups[0], 1);
        struct weft_workers *none = NULL;

        cr_assert_geq(failures, 1);
        allocations_fail_after(0);
        cr_assert_eq(weft_workers_create(&none, &options), -ENOMEM);
        allocations_fail_after(SIZE_MAX);
        cr_assert_null(none);
    }
    cr_assert_eq(weft_workers_destroy(pool, WEFT_WORKERS_DRAIN), 0);
}
