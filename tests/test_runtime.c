/* The runtime without fibers' help: tasks, passes, timers, posts, options, ends. Works in a lean
 * build too: main runs as a callback there, and as a fiber otherwise. */
#include "harness.h"
#include "runtime_internal.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char trace[4096];

static void note(const char *what)
{
    strncat(trace, what, sizeof trace - strlen(trace) - 1);
}

#define EACH_SETUP(s) for (const struct setup *s = setups; s < setups + setups_count; s++)

/* ---- what runs in what order; the runtime is kept by weft__run until the test says so ---- */

static void (*body)(struct weft_runtime *rt);

static void start_body(struct weft_runtime *rt, void *arg)
{
    (void)arg;
    body(rt);
}

static int run_body(const struct setup *setup, void (*fn)(struct weft_runtime *))
{
    struct weft_options options = setup_options(setup);

    body = fn;
    trace[0] = '\0';
    return weft__run(start_body, NULL, &options);
}

struct step {
    struct weft_task task;
    const char *name;
    int left;
    bool last;
};

static void run_step(struct weft_task *task)
{
    struct step *step = (struct step *)task;

    note(step->name);
    if (step->left-- > 0)
        weft_task_queue(task);
    else if (step->last)
        weft__main_ended(weft__rt, 5);
}

static struct step steps[3];

static void fifo_body(struct weft_runtime *rt)
{
    (void)rt;
    for (int i = 0; i < 3; i++) {
        steps[i] = (struct step){.name = &"a\0b\0c"[i * 2], .left = 2, .last = i == 2};
        cr_assert_eq(weft_task_init(&steps[i].task, run_step), 0);
        weft_task_queue(&steps[i].task);
    }
}

Test(runtime, tasks_run_first_in_first_out)
{
    EACH_SETUP(setup)
    {
        cr_assert_eq(run_body(setup, fifo_body), 5, "%s", setup->name);
        cr_assert_str_eq(trace, "abcabcabc", "%s", setup->name);
    }
}

static struct weft_task after;

static void run_after(struct weft_task *task)
{
    (void)task;
    note("!");
}

static void run_pass_step(struct weft_task *task)
{
    note("x");
    if (((struct step *)task)->left-- > 0) {
        weft__after_poll(weft__rt, &after);
        weft_task_queue(task);
    } else {
        weft__main_ended(weft__rt, 0);
    }
}

static void after_poll_body(struct weft_runtime *rt)
{
    (void)rt;
    after.run = run_after;
    steps[0] = (struct step){.left = 3};
    cr_assert_eq(weft_task_init(&steps[0].task, run_pass_step), 0);
    weft_task_queue(&steps[0].task);
}

Test(runtime, after_poll_comes_before_the_next_pass)
{
    EACH_SETUP(setup)
    {
        cr_assert_eq(run_body(setup, after_poll_body), 0);
        cr_assert_str_eq(trace, "x!x!x!x", "%s", setup->name);
    }
}

/* More tasks than the queue begins with, queued from a pass under way. */
#define CROWD 5000
static struct step crowd[CROWD];
static int crowd_ran;

static void run_crowd(struct weft_task *task)
{
    cr_assert_eq((struct step *)task - crowd, crowd_ran % CROWD);
    if (++crowd_ran == 3 * CROWD)
        weft__main_ended(weft__rt, 0);
    else if (crowd_ran <= 2 * CROWD)
        weft_task_queue(task);
}

static void crowd_body(struct weft_runtime *rt)
{
    (void)rt;
    crowd_ran = 0;
    for (int i = 0; i < CROWD; i++) {
        cr_assert_eq(weft_task_init(&crowd[i].task, run_crowd), 0);
        weft_task_queue(&crowd[i].task);
    }
}

Test(runtime, the_queue_grows_and_keeps_order)
{
    EACH_SETUP(setup)
    cr_assert_eq(run_body(setup, crowd_body), 0, "%s", setup->name);
}

static void reserve_body(struct weft_runtime *rt)
{
    size_t before = rt->reserved;
    struct weft_task task;

    for (int i = 0; i < 1000; i++) {
        cr_assert_eq(weft_task_init(&task, run_after), 0);
        weft_task_finish(&task);
    }
    cr_assert_eq(rt->reserved, before);
    cr_assert_eq(weft_task_init(NULL, run_after), -EINVAL);
    cr_assert_eq(weft_task_init(&task, NULL), -EINVAL);
    cr_assert_eq(weft__reserve(rt, SIZE_MAX / 16), -ENOMEM);
    cr_assert_eq(rt->reserved, before);
    weft__main_ended(rt, 0);
}

Test(runtime, places_are_given_back)
{
    cr_assert_eq(run_body(&setups[0], reserve_body), 0);
}

static void twice_body(struct weft_runtime *rt)
{
    struct weft_task task;

    (void)rt;
    weft_task_queue(NULL);
    cr_assert_eq(weft_task_init(&task, run_after), 0);
    for (int i = 0; i < 10; i++)
        weft_task_queue(&task);
}

Test(runtime, queueing_twice_ends_in_words_before_memory_is_hurt, .signal = SIGABRT)
{
    run_body(&setups[0], twice_body);
}

/* ---- timers through the loop ---- */

static struct weft_timer timers[3];

static void tick(struct weft_timer *timer)
{
    cr_assert_geq(weft_now(), timer->at);
    note(timer == &timers[0] ? "0" : timer == &timers[1] ? "1" : "2");
    if (timer == &timers[2])
        weft__main_ended(weft__rt, 0);
}

static void timer_body(struct weft_runtime *rt)
{
    weft_time now = weft_now();

    (void)rt;
    for (int i = 0; i < 3; i++)
        weft_timer_init(&timers[i], tick);
    weft_timer_start(&timers[2], now + WEFT_MS(3));
    weft_timer_start(&timers[0], now + WEFT_MS(1));
    weft_timer_start(&timers[1], now + WEFT_MS(2));
}

Test(runtime, timers_fire_in_order_and_never_early)
{
    EACH_SETUP(setup)
    {
        cr_assert_eq(run_body(setup, timer_body), 0);
        cr_assert_str_eq(trace, "012", "%s", setup->name);
    }
}

/* A task that always queues itself again must not keep timers from firing. */
static void spin(struct weft_task *task)
{
    if (trace[0] == '\0')
        weft_task_queue(task);
}

static void starve_body(struct weft_runtime *rt)
{
    (void)rt;
    weft_timer_init(&timers[2], tick);
    weft_timer_start(&timers[2], weft_after(WEFT_MS(1)));
    cr_assert_eq(weft_task_init(&steps[0].task, spin), 0);
    weft_task_queue(&steps[0].task);
}

Test(runtime, a_busy_queue_does_not_starve_timers)
{
    EACH_SETUP(setup)
    cr_assert_eq(run_body(setup, starve_body), 0, "%s", setup->name);
}

/* ---- posts ---- */

#define POSTS 20000

struct post {
    struct weft_task task;
    int thread, number;
};

static struct post *posts;
static int last_of[2], got;
static struct weft_inbox *inbox;

static void run_post(struct weft_task *task)
{
    struct post *post = (struct post *)task;

    cr_assert_eq(post->number, last_of[post->thread]++);
    if (++got == 2 * POSTS)
        weft__main_ended(weft__rt, 0);
}

static void *poster(void *arg)
{
    struct post *mine = arg;

    for (int i = 0; i < POSTS; i++) {
        if (i % 97 == 0)
            sched_yield(); /* let the runtime fall asleep now and then */
        cr_assert_eq(weft_post(inbox, &mine[i].task), 0);
    }
    weft_inbox_unref(inbox);
    return NULL;
}

static pthread_t threads[2];

static void post_body(struct weft_runtime *rt)
{
    (void)rt;
    for (int t = 0; t < 2; t++) {
        inbox = weft_inbox_ref();
        cr_assert_not_null(inbox);
        pthread_create(&threads[t], NULL, poster, posts + t * POSTS);
    }
}

Test(runtime, posts_of_a_thread_come_in_order_and_none_is_lost)
{
    EACH_SETUP(setup)
    {
        posts = calloc(2 * POSTS, sizeof *posts);
        got = last_of[0] = last_of[1] = 0;
        for (int i = 0; i < 2 * POSTS; i++)
            posts[i] = (struct post){{.run = run_post}, i / POSTS, i % POSTS};
        cr_assert_eq(run_body(setup, post_body), 0, "%s", setup->name);
        for (int t = 0; t < 2; t++)
            pthread_join(threads[t], NULL);
        free(posts);
    }
}

/* One post at a time to a runtime that sleeps: a lost wake-up would hang. */
static void run_ping(struct weft_task *task)
{
    struct post *post = (struct post *)task;

    if (++got == post->number)
        weft__main_ended(weft__rt, 0);
    __atomic_store_n(&post->thread, 1, __ATOMIC_RELEASE);
}

static void *pinger(void *arg)
{
    struct post *post = arg;

    for (int i = 0; i < post->number; i++) {
        post->thread = 0;
        cr_assert_eq(weft_post(inbox, &post->task), 0);
        while (!__atomic_load_n(&post->thread, __ATOMIC_ACQUIRE))
            sched_yield();
    }
    weft_inbox_unref(inbox);
    return NULL;
}

static struct post ping;

static void ping_body(struct weft_runtime *rt)
{
    (void)rt;
    got = 0;
    ping = (struct post){{.run = run_ping}, 0, slow_tools() ? 500 : 5000};
    inbox = weft_inbox_ref();
    pthread_create(&threads[0], NULL, pinger, &ping);
}

Test(runtime, a_sleeping_runtime_is_woken_by_each_post)
{
    EACH_SETUP(setup)
    {
        cr_assert_eq(run_body(setup, ping_body), 0, "%s", setup->name);
        pthread_join(threads[0], NULL);
    }
}

static struct weft_inbox *kept;

static void keep_body(struct weft_runtime *rt)
{
    kept = weft_inbox_ref();
    weft__main_ended(rt, 0);
}

Test(runtime, an_inbox_outlives_its_runtime_and_refuses)
{
    struct post post = {{.run = run_post}, 0, 0};

    EACH_SETUP(setup)
    {
        cr_assert_eq(run_body(setup, keep_body), 0);
        cr_assert_eq(weft_post(kept, &post.task), -ESHUTDOWN);
        weft_inbox_unref(kept);
    }
    weft_inbox_unref(NULL);
}

static struct post in_handler;

static void handler(int sig)
{
    (void)sig;
    weft_post(inbox, &in_handler.task);
}

static void run_from_handler(struct weft_task *task)
{
    (void)task;
    weft_inbox_unref(inbox);
    weft__main_ended(weft__rt, 0);
}

static void *killer(void *arg)
{
    pthread_kill(*(pthread_t *)arg, SIGUSR1);
    return NULL;
}

static pthread_t loop_thread;

static void signal_body(struct weft_runtime *rt)
{
    (void)rt;
    inbox = weft_inbox_ref();
    in_handler.task.run = run_from_handler;
    loop_thread = pthread_self();
    pthread_create(&threads[0], NULL, killer, &loop_thread);
}

Test(runtime, a_signal_handler_may_post)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};

    sigaction(SIGUSR1, &action, NULL);
    EACH_SETUP(setup)
    {
        cr_assert_eq(run_body(setup, signal_body), 0, "%s", setup->name);
        pthread_join(threads[0], NULL);
    }
}

/* ---- ends and errors ---- */

static void nothing_body(struct weft_runtime *rt)
{
    (void)rt;
}

Test(runtime, nothing_left_to_wait_for_is_a_deadlock)
{
    EACH_SETUP(setup)
    {
        cr_assert_eq(run_body(setup, nothing_body), -EDEADLK, "%s", setup->name);
        cr_assert(report_contains("deadlock"), "%s", report_text());
    }
}

static void *drop_later(void *arg)
{
    (void)arg;
    sched_yield();
    weft_inbox_unref(inbox);
    return NULL;
}

static void held_body(struct weft_runtime *rt)
{
    (void)rt;
    inbox = weft_inbox_ref();
    pthread_create(&threads[0], NULL, drop_later, NULL);
}

Test(runtime, a_held_inbox_puts_the_deadlock_off_until_it_is_dropped)
{
    EACH_SETUP(setup)
    {
        cr_assert_eq(run_body(setup, held_body), -EDEADLK, "%s", setup->name);
        pthread_join(threads[0], NULL);
    }
}

static int return_arg(void *arg)
{
    return *(int *)arg;
}

Test(runtime, returns_what_main_returned)
{
    int result = 7;

    EACH_SETUP(setup)
    cr_assert_eq(run_on(setup, return_arg, &result), 7, "%s", setup->name);
    result = -3;
    cr_assert_eq(run_on(&setups[0], return_arg, &result), -3);
    cr_assert_null(weft_current());
}

static int nest(void *arg)
{
    cr_assert_not_null(weft_current());
    return weft_run(return_arg, arg, NULL);
}

Test(runtime, nested_run_is_refused_and_names_the_outer_one)
{
    int result = 1;

    cr_assert_eq(run_on(&setups[0], nest, &result), -EBUSY);
    cr_assert(report_contains("engine null"), "%s", report_text());
}

Test(runtime, bad_options_are_refused_in_words)
{
    struct weft_options options = setup_options(&setups[0]);
    int result = 0;

    options.engine = "steam";
    cr_assert_eq(weft_run(return_arg, &result, &options), -EINVAL);
    cr_assert(report_contains("\"steam\""), "%s", report_text());
    options = setup_options(&setups[0]);
    options.size = 1;
    cr_assert_eq(weft_run(return_arg, &result, &options), -EINVAL);
    options.size = sizeof options + 1;
    cr_assert_eq(weft_run(return_arg, &result, &options), -EINVAL);
    cr_assert_eq(weft_run(NULL, NULL, NULL), -EINVAL);
}

Test(runtime, the_environment_names_an_engine)
{
    struct weft_options options = setup_options(&setups[0]);
    int result = 4;

    options.engine = NULL;
    setenv("WEFT_ENGINE", "null", 1);
    cr_assert_eq(weft_run(return_arg, &result, &options), 4);
    setenv("WEFT_ENGINE", "steam", 1);
    cr_assert_eq(weft_run(return_arg, &result, &options), -EINVAL);
    setenv("WEFT_ENGINE", "", 1);
    cr_assert_eq(weft_run(return_arg, &result, &options), 4);
}

static int look(void *arg)
{
    struct weft_stats stats = {.size = sizeof stats};

    cr_assert_str_eq(weft_engine_name(), arg);
    cr_assert_eq(weft_stats(&stats), 0);
    cr_assert_eq(stats.in_flight, 0);
    stats.size = 0;
    cr_assert_eq(weft_stats(&stats), -EINVAL);
    cr_assert_eq(weft_stats(NULL), -EINVAL);
    return 0;
}

Test(runtime, tells_its_engine_and_counters)
{
    struct weft_stats stats = {.size = sizeof stats};

    EACH_SETUP(setup)
    cr_assert_eq(run_on(setup, look, (void *)(uintptr_t)setup->engine), 0);
    cr_assert_null(weft_engine_name());
    cr_assert_eq(weft_stats(&stats), -EINVAL);
    cr_assert_eq(weft_stop(), -EINVAL);
    cr_assert(!weft_stopping());
}

/* ---- counters, told to other threads ---- */

struct watched {
    struct weft_inbox *inbox;
    struct weft_task done;
    struct weft_timer timers[3];
    uint64_t seen;
};

static void *watch(void *arg)
{
    struct watched *w = arg;
    struct weft_stats stats = {.size = sizeof stats};
    int rc;

    /* three timers are all it has: it sleeps, and tells when it is asked */
    do {
        rc = weft_inbox_stats(w->inbox, &stats);
        cr_assert(rc == 0 || rc == -EAGAIN, "%d", rc);
        sched_yield();
    } while (rc != 0 || stats.timers != 3);
    w->seen = stats.passes;
    cr_assert_eq(weft_post(w->inbox, &w->done), 0);
    return NULL;
}

static void end_watch(struct weft_task *task)
{
    struct watched *w = weft__container(task, struct watched, done);

    for (int i = 0; i < 3; i++)
        weft_timer_stop(&w->timers[i]);
    weft__main_ended(weft__rt, 0);
}

static void no_fire(struct weft_timer *timer)
{
    (void)timer;
    cr_assert_fail();
}

static void start_watch(struct weft_runtime *rt, void *arg)
{
    struct watched *w = arg;
    pthread_t thread;

    (void)rt;
    w->inbox = weft_inbox_ref();
    w->done.run = end_watch;
    for (int i = 0; i < 3; i++) {
        weft_timer_init(&w->timers[i], no_fire);
        weft_timer_start(&w->timers[i], weft_after(WEFT_SEC(1000 + i)));
    }
    cr_assert_eq(pthread_create(&thread, NULL, watch, w), 0);
    cr_assert_eq(pthread_detach(thread), 0);
}

Test(runtime, tells_its_counters_to_other_threads)
{
    EACH_SETUP(setup)
    {
        struct weft_options options = setup_options(setup);
        struct weft_stats stats = {.size = sizeof stats};
        struct watched w = {0};

        cr_assert_eq(weft__run(start_watch, &w, &options), 0);
        /* the last ones stay */
        cr_assert_eq(weft_inbox_stats(w.inbox, &stats), 0);
        cr_assert_geq(stats.passes, w.seen);
        cr_assert_eq(stats.timers, 0);
        stats.size = 0;
        cr_assert_eq(weft_inbox_stats(w.inbox, &stats), -EINVAL);
        cr_assert_eq(weft_inbox_stats(NULL, &stats), -EINVAL);
        weft_inbox_unref(w.inbox);
    }
}

static void fork_body(struct weft_runtime *rt)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        int result = 9;
        bool ok = weft_current() == NULL && weft_stop() == -EINVAL &&
                  run_on(&setups[1], return_arg, &result) == 9;

        _exit(ok ? 0 : 1);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    weft__main_ended(rt, 0);
}

Test(runtime, a_forked_child_has_no_runtime_and_may_start_its_own)
{
    if (on_valgrind())
        cr_skip_test("it reports what the child leaves behind");
    EACH_SETUP(setup)
    cr_assert_eq(run_body(setup, fork_body), 0, "%s", setup->name);
}

Test(runtime, time_saturates)
{
    cr_assert_eq(weft_after(WEFT_FOREVER), WEFT_FOREVER);
    cr_assert_leq(weft_after(-5), weft_now());
    cr_assert_geq(weft_after(1000), weft_now() - WEFT_SEC(60));
    cr_assert_str_eq(weft_version(), WEFT_VERSION_STRING);
}
