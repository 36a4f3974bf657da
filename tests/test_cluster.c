/* needs: fibers */
/* Clusters: all runtimes start or none; the first failure stops all; stopping; rest and deadlock. */
#include "cluster.h"
#include "cluster_support.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>
#include <weft/fiber.h>
#include <weft/promise.h>
#include <weft/shared_channel.h>

/* ---- all run ---- */

struct seen {
    pthread_t thread[8];
    struct weft_cluster *cluster;
    atomic_uint mains;
};

static int look_around(struct weft_cluster *cluster, unsigned index, void *arg)
{
    struct seen *seen = arg;

    cr_assert_eq(weft_cluster_current(), cluster);
    cr_assert_eq(weft_cluster_index(), (int)index);
    cr_assert_eq(weft_cluster_inbox(cluster, index), weft__rt->inbox);
    cr_assert_not_null(fiber_self());
    seen->thread[index] = pthread_self();
    seen->cluster = cluster;
    atomic_fetch_add(&seen->mains, 1);
    return (int)index;
}

Test(cluster, each_runtime_runs_main)
{
    int alone = threads();

    EACH_SETUP(setup)
    {
        struct weft_cluster_options options = cluster_options(setup, 4);
        struct seen seen = {0};

        cr_assert_eq(weft_cluster_run(look_around, &seen, &options), 0, "%s", setup->name);
        cr_assert_eq(seen.mains, 4);
        cr_assert(pthread_equal(seen.thread[0], pthread_self()));
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < i; j++)
                cr_assert(!pthread_equal(seen.thread[i], seen.thread[j]));
        cr_assert_null(weft_cluster_current());
        cr_assert_eq(weft_cluster_index(), -EINVAL);
        await_threads(alone);
    }
}

static int count_up(struct weft_cluster *cluster, unsigned index, void *arg)
{
    cr_assert_eq(weft_cluster_count(cluster), weft_cpu_count());
    cr_assert_lt(index, weft_cpu_count());
    cr_assert_null(weft_cluster_inbox(cluster, weft_cpu_count()));
    atomic_fetch_add((atomic_uint *)arg, 1);
    return 0;
}

Test(cluster, one_for_each_cpu_by_default)
{
    atomic_uint mains = 0;

    cr_assert_eq(weft_cluster_run(count_up, &mains, NULL), 0);
    cr_assert_eq(mains, weft_cpu_count());
}

Test(cluster, one_runtime_alone)
{
    EACH_SETUP(setup)
    {
        struct weft_cluster_options options = cluster_options(setup, 1);
        struct seen seen = {0};

        cr_assert_eq(weft_cluster_run(look_around, &seen, &options), 0, "%s", setup->name);
        cr_assert_eq(seen.mains, 1);
    }
}

/* ---- bad input ---- */

static int not_run(struct weft_cluster *cluster, unsigned index, void *arg)
{
    (void)cluster;
    (void)index;
    (void)arg;
    abort();
}

static int in_a_runtime(void *unused)
{
    (void)unused;
    return weft_cluster_run(not_run, NULL, NULL);
}

Test(cluster, bad_input)
{
    struct weft_cluster_options options = cluster_options(&setups[0], 2), bad = options;
    struct weft_cluster *cluster = NULL;

    cr_assert_eq(weft_cluster_run(NULL, NULL, &options), -EINVAL);
    cr_assert_eq(weft_cluster_start(NULL, not_run, NULL, &options), -EINVAL);
    bad.size = sizeof bad + 8;
    cr_assert_eq(weft_cluster_run(not_run, NULL, &bad), -EINVAL);
    bad.size = 4;
    cr_assert_eq(weft_cluster_run(not_run, NULL, &bad), -EINVAL);
    bad = options;
    bad.count = 1025;
    cr_assert_eq(weft_cluster_start(&cluster, not_run, NULL, &bad), -EINVAL);
    bad.count = 2;
    bad.mains = 3;
    cr_assert_eq(weft_cluster_start(&cluster, not_run, NULL, &bad), -EINVAL);
    cr_assert_null(cluster);
    cr_assert_eq(weft_cluster_join(NULL), -EINVAL);
    weft_cluster_stop(NULL);
    cr_assert_eq(weft_cluster_count(NULL), 0);
    cr_assert_null(weft_cluster_inbox(NULL, 0));
    cr_assert_null(weft_cluster_next(NULL));
    cr_assert_eq(run_on(&setups[0], in_a_runtime, NULL), -EBUSY);
    cr_assert(report_contains("weft_cluster_start"));
}

/* ---- all or none ---- */

static void break_third(unsigned index, struct weft_options *options, void *arg)
{
    (void)arg;
    if (index == 2)
        options->engine = "none such";
}

Test(cluster, no_main_is_called_if_a_runtime_cannot_start)
{
    int alone = threads();

    EACH_SETUP(setup)
    {
        struct weft_cluster_options options = cluster_options(setup, 4);
        struct weft_cluster *cluster = NULL;
        int descriptors = open_descriptors();

        options.set_up = break_third;
        cr_assert_eq(weft_cluster_run(not_run, NULL, &options), -EINVAL, "%s", setup->name);
        cr_assert(report_contains("none such"));
        cr_assert_eq(weft_cluster_start(&cluster, not_run, NULL, &options), -EINVAL);
        cr_assert_null(cluster);
        await_threads(alone);
        cr_assert_eq(open_descriptors(), descriptors);
    }
}

static atomic_int threads_to_come;

static int few_threads(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                       void *arg)
{
    return atomic_fetch_sub(&threads_to_come, 1) > 0 ? pthread_create(thread, attributes, run, arg)
                                                     : EAGAIN;
}

Test(cluster, no_main_is_called_if_a_thread_cannot_be_had)
{
    int alone = threads();

    weft__thread_create = few_threads;
    for (int n = 0; n < 3; n++) {
        struct weft_cluster_options options = cluster_options(&setups[n % 2], 4);
        struct weft_cluster *cluster = NULL;

        threads_to_come = n;
        cr_assert_eq(weft_cluster_run(not_run, NULL, &options), -EAGAIN);
        cr_assert(report_contains("no thread"));
        threads_to_come = n;
        cr_assert_eq(weft_cluster_start(&cluster, not_run, NULL, &options), -EAGAIN);
        cr_assert_null(cluster);
        await_threads(alone);
    }
}

/* ---- failures and stopping ---- */

static int64_t sleep_long(void *ended)
{
    int rc = fiber_sleep_until(WEFT_FOREVER);

    atomic_fetch_add((atomic_uint *)ended, 1);
    return rc;
}

static int fail_or_sleep(struct weft_cluster *cluster, unsigned index, void *arg)
{
    (void)cluster;
    if (fiber_detach(sleep_long, arg) < 0)
        return -ENOMEM;
    fiber_yield();
    if (index == 1)
        return -EADDRINUSE;
    return fiber_sleep_until(WEFT_FOREVER);
}

Test(cluster, the_first_failure_stops_all)
{
    EACH_SETUP(setup)
    {
        struct weft_cluster_options options = cluster_options(setup, 3);
        atomic_uint ended = 0;

        cr_assert_eq(weft_cluster_run(fail_or_sleep, &ended, &options), -EADDRINUSE, "%s",
                     setup->name);
        cr_assert_eq(ended, 3); /* all fibers, those of the stopped ones too */
    }
}

static int sleep_until_stopped(struct weft_cluster *cluster, unsigned index, void *arg)
{
    (void)cluster;
    (void)index;
    (void)arg;
    return fiber_sleep_until(WEFT_FOREVER);
}

Test(cluster, stopped_from_outside)
{
    int alone = threads();

    EACH_SETUP(setup)
    {
        struct weft_cluster_options options = cluster_options(setup, 3);
        struct weft_cluster *cluster;

        cr_assert_eq(weft_cluster_start(&cluster, sleep_until_stopped, NULL, &options), 0);
        cr_assert_eq(threads(), alone + 3);
        weft_cluster_stop(cluster);
        weft_cluster_stop(cluster);
        cr_assert_eq(weft_cluster_join(cluster), 0, "%s", setup->name);
        await_threads(alone);
    }
}

static int stop_all(struct weft_cluster *cluster, unsigned index, void *arg)
{
    (void)arg;
    if (index == 2)
        weft_cluster_stop(cluster);
    return fiber_sleep_until(WEFT_FOREVER);
}

Test(cluster, stopped_from_inside)
{
    EACH_SETUP(setup)
    {
        struct weft_cluster_options options = cluster_options(setup, 3);

        cr_assert_eq(weft_cluster_run(stop_all, NULL, &options), 0, "%s", setup->name);
    }
}

static struct weft_cluster *signalled;

static void stop_in_handler(int signal)
{
    (void)signal;
    weft_cluster_stop(signalled);
}

Test(cluster, stopped_by_a_signal_handler)
{
    struct sigaction action = {.sa_handler = stop_in_handler, .sa_flags = SA_ONSTACK};

    sigaction(SIGUSR1, &action, NULL);
    EACH_SETUP(setup)
    {
        struct weft_cluster_options options = cluster_options(setup, 3);

        cr_assert_eq(weft_cluster_start(&signalled, sleep_until_stopped, NULL, &options), 0);
        kill(getpid(), SIGUSR1); /* on whichever thread */
        cr_assert_eq(weft_cluster_join(signalled), 0, "%s", setup->name);
    }
}

static int join_oneself(struct weft_cluster *cluster, unsigned index, void *arg)
{
    (void)index;
    (void)arg;
    return weft_cluster_join(cluster) == -EDEADLK ? 0 : -EPROTO;
}

/* One runtime ends while the others go on: nothing waits for it but what is said to. */
static int end_early(struct weft_cluster *cluster, unsigned index, void *arg)
{
    (void)arg;
    if (index == 1)
        return 0;
    while (weft_cluster_next(cluster) == weft_cluster_inbox(cluster, 1) ||
           weft_cluster_next(cluster) == weft_cluster_inbox(cluster, 1))
        fiber_yield();
    for (int i = 0; i < 6; i++)
        if (weft_cluster_next(cluster) == NULL)
            return -EPROTO;
    return index == 0 ? join_oneself(cluster, 0, NULL) : 0;
}

Test(cluster, one_ends_early)
{
    EACH_SETUP(setup)
    {
        struct weft_cluster_options options = cluster_options(setup, 3);

        cr_assert_eq(weft_cluster_run(end_early, NULL, &options), 0, "%s", setup->name);
    }
}

/* ---- rest ---- */

static int wait_for_nothing(struct weft_cluster *cluster, unsigned index, void *arg)
{
    (void)cluster;
    (void)arg;
    (void)index;
    return fiber_await(promise_create(), NULL, WEFT_FOREVER);
}

Test(cluster, a_deadlock_of_all)
{
    EACH_SETUP(setup)
    {
        struct weft_cluster_options options = cluster_options(setup, 3);
        struct weft_cluster *cluster;

        cr_assert_eq(weft_cluster_run(wait_for_nothing, NULL, &options), -EDEADLK, "%s",
                     setup->name);
        cr_assert(report_contains("in any runtime of the cluster"));
        cr_assert(report_contains("waits for a promise"));
        /* who has started it may post until he joins */
        cr_assert_eq(weft_cluster_start(&cluster, wait_for_nothing, NULL, &options), 0);
        cr_assert_eq(weft_cluster_join(cluster), -EDEADLK, "%s", setup->name);
    }
}

/* Two of three wait, the third one alone has a timer; then nobody has anything. */
static int one_sleeps(struct weft_cluster *cluster, unsigned index, void *arg)
{
    if (index == 0) {
        int rc = fiber_sleep(WEFT_MS(20));

        if (rc < 0)
            return rc;
        atomic_store((atomic_bool *)arg, true);
    }
    return wait_for_nothing(cluster, index, NULL);
}

Test(cluster, one_that_still_can_do_something_is_waited_for)
{
    EACH_SETUP(setup)
    {
        struct weft_cluster_options options = cluster_options(setup, 3);
        atomic_bool slept = false;

        cr_assert_eq(weft_cluster_run(one_sleeps, &slept, &options), -EDEADLK, "%s", setup->name);
        cr_assert(slept);
    }
}

static struct weft_inbox *given;
static sem_t given_out;

static void *give_back(void *unused)
{
    (void)unused;
    while (sem_wait(&given_out) < 0)
        ;
    sched_yield();
    weft_inbox_unref(given);
    return NULL;
}

static int held_from_outside(struct weft_cluster *cluster, unsigned index, void *arg)
{
    if (index == 1) {
        given = weft_inbox_ref();
        sem_post(&given_out);
    }
    return wait_for_nothing(cluster, index, arg);
}

Test(cluster, a_reference_outside_is_waited_for)
{
    for (int i = 0; i < (slow_tools() ? 5 : 100); i++) {
        struct weft_cluster_options options = cluster_options(&setups[i % setups_count], 3);
        pthread_t thread;

        sem_init(&given_out, 0, 0);
        pthread_create(&thread, NULL, give_back, NULL);
        cr_assert_eq(weft_cluster_run(held_from_outside, NULL, &options), -EDEADLK);
        pthread_join(thread, NULL);
    }
}

/* ---- those that serve ---- */

static atomic_uint served;

static void run_serve(struct weft_task *task)
{
    free(task);
    atomic_fetch_add(&served, 1);
}

static void post_one(struct weft_inbox *inbox)
{
    struct weft_task *task = calloc(1, sizeof *task);

    task->run = run_serve;
    cr_assert_eq(weft_post(inbox, task), 0);
}

static int post_around(struct weft_cluster *cluster, unsigned index, void *arg)
{
    (void)arg;
    cr_assert_eq(index, 0);
    for (int i = 0; i < 300; i++)
        post_one(weft_cluster_next(cluster));
    return 0;
}

Test(cluster, those_that_serve_end_with_the_last_main)
{
    EACH_SETUP(setup)
    {
        struct weft_cluster_options options = cluster_options(setup, 3);

        options.mains = 1;
        served = 0;
        cr_assert_eq(weft_cluster_run(post_around, NULL, &options), 0, "%s", setup->name);
        cr_assert_eq(served, 300);
    }
}

Test(cluster, those_that_only_serve_end_when_all_is_done)
{
    EACH_SETUP(setup)
    {
        struct weft_cluster_options options = cluster_options(setup, 3);
        struct weft_cluster *cluster;

        served = 0;
        cr_assert_eq(weft_cluster_start(&cluster, NULL, NULL, &options), 0);
        for (unsigned i = 0; i < 300; i++)
            post_one(weft_cluster_inbox(cluster, i % 3));
        cr_assert_eq(weft_cluster_join(cluster), 0, "%s", setup->name);
        cr_assert_eq(served, 300);
        /* and when they are stopped, done or not */
        cr_assert_eq(weft_cluster_start(&cluster, NULL, NULL, &options), 0);
        weft_cluster_stop(cluster);
        cr_assert_eq(weft_cluster_join(cluster), 0, "%s", setup->name);
    }
}

/* A main that waits while others serve, and nobody has anything to do: its deadlock, not theirs. */
Test(cluster, a_deadlock_among_those_that_serve)
{
    struct weft_cluster_options options = cluster_options(&setups[0], 3);

    options.mains = 1;
    cr_assert_eq(weft_cluster_run(wait_for_nothing, NULL, &options), -EDEADLK);
}

/* ---- cpus and threads ---- */

static int check_pin(struct weft_cluster *cluster, unsigned index, void *arg)
{
    cpu_set_t set;

    (void)cluster;
    (void)arg;
    (void)index;
    if (sched_getaffinity(0, sizeof set, &set) < 0 || CPU_COUNT(&set) != 1)
        return -EPROTO;
    return 0;
}

static int check_name(struct weft_cluster *cluster, unsigned index, void *arg)
{
    char name[16], wanted[16];

    (void)cluster;
    (void)arg;
    snprintf(wanted, sizeof wanted, "frontserve-%u", index);
    pthread_getname_np(pthread_self(), name, sizeof name);
    return index == 0 || strcmp(name, wanted) == 0 ? 0 : -EPROTO;
}

Test(cluster, pinned_and_named)
{
    struct weft_cluster_options options = cluster_options(&setups[0], 3);
    cpu_set_t before, after;

    CPU_ZERO(&before);
    CPU_ZERO(&after);
    options.pin = true;
    sched_getaffinity(0, sizeof before, &before);
    cr_assert_eq(weft_cluster_run(check_pin, NULL, &options), 0);
    sched_getaffinity(0, sizeof after, &after);
    cr_assert(CPU_EQUAL(&before, &after));
    options.pin = false;
    options.name = "frontserver";
    cr_assert_eq(weft_cluster_run(check_name, NULL, &options), 0);
}

/* ---- fork ---- */

Test(cluster, a_child_of_fork_has_no_cluster)
{
    struct weft_cluster_options options = cluster_options(&setups[0], 2);
    struct weft_cluster *cluster;
    int status;
    pid_t child;

    if (slow_tools())
        return; /* to them, the threads that a fork leaves behind are leaks of the child */
    cr_assert_eq(weft_cluster_start(&cluster, sleep_until_stopped, NULL, &options), 0);
    child = fork();
    if (child == 0) {
        struct seen seen = {0};
        bool good = weft_cluster_join(cluster) == -ECHILD;

        weft_cluster_stop(cluster);
        good &= weft_cluster_run(look_around, &seen, &options) == 0 && seen.mains == 2;
        _exit(good ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    weft_cluster_stop(cluster);
    cr_assert_eq(weft_cluster_join(cluster), 0);
}

/* ---- descriptors that are handed out ---- */

#define HANDED 40

static struct weft_shared_channel *handed;
static int outer[HANDED]; /* the peers of those handed out */
static atomic_int taken;

static void close_number(void *number)
{
    close((int)(intptr_t)number);
}

static void close_box(void *box)
{
    if (*(int *)box >= 0)
        close(*(int *)box);
    free(box);
}

static int64_t take_box(void *box)
{
    close(*(int *)box);
    *(int *)box = -1;
    atomic_fetch_add(&taken, 1);
    return 0;
}

/* By turns in a call that owns it, and through a channel that owns what is in it. */
static int hand_out(struct weft_cluster *cluster)
{
    for (int i = 0; i < HANDED; i++) {
        int pair[2], *box;

        make_pair(pair);
        outer[i] = pair[0];
        if (i % 2 == 0) {
            if (fiber_shared_channel_send(handed, weft_num(pair[1]), WEFT_FOREVER) < 0)
                close(pair[1]);
            continue;
        }
        box = malloc(sizeof *box);
        cr_assert_not_null(box);
        *box = pair[1];
        promise_unref(fiber_spawn_on(weft_cluster_inbox(cluster, 1), take_box, box, close_box));
        fiber_yield();
    }
    return 0;
}

/* Takes some, and ends; what comes then is nobody's. */
static int take_some(void)
{
    union weft_value fd;

    for (int i = 0; i < HANDED / 4; i++) {
        if (fiber_shared_channel_recv(handed, &fd, WEFT_FOREVER) < 0)
            return -EPROTO;
        close((int)fd.num);
        atomic_fetch_add(&taken, 1);
    }
    return 0;
}

static int give_or_take(struct weft_cluster *cluster, unsigned index, void *unused)
{
    (void)unused;
    return index == 0 ? hand_out(cluster) : take_some();
}

Test(cluster, no_descriptor_is_lost_with_the_runtime_it_was_for)
{
    EACH_SETUP(setup)
    {
        struct weft_cluster_options options = cluster_options(setup, 2);
        int before = open_descriptors();

        taken = 0;
        handed = weft_shared_channel_create(NULL, HANDED, close_number);
        cr_assert_eq(weft_cluster_run(give_or_take, NULL, &options), 0, "%s", setup->name);
        weft_shared_channel_unref(handed);
        cr_assert_geq(taken, HANDED / 4);
        for (int i = 0; i < HANDED; i++) {
            char byte;

            cr_assert_eq(read(outer[i], &byte, 1), 0, "%d is still open somewhere", i);
            close(outer[i]);
        }
        cr_assert_eq(open_descriptors(), before);
    }
}
