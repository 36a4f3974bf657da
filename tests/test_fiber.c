/* needs: fibers */
/* Fibers: order, direct hand-off, sleeping, locals, names, cancellation at the end, misuse. */
#include "fiber_internal.h"
#include "harness.h"

#include <criterion/criterion.h>
#include <fenv.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EACH_SETUP(s) for (const struct setup *s = setups; s < setups + setups_count; s++)

static char trace[4096];

static void note(const char *what)
{
    strncat(trace, what, sizeof trace - strlen(trace) - 1);
}

static int run_each(weft_main_fn *main, const char *expected)
{
    EACH_SETUP(setup)
    {
        trace[0] = '\0';
        cr_assert_eq(run_on(setup, main, NULL), 0, "%s: %s", setup->name, report_text());
        cr_assert_str_eq(trace, expected, "%s", setup->name);
    }
    return 0;
}

/* ---- order ---- */

static int64_t three_times(void *name)
{
    for (int i = 0; i < 3; i++) {
        note(name);
        cr_assert_eq(fiber_yield(), 0);
    }
    return 0;
}

static int order_main(void *arg)
{
    (void)arg;
    note("m");
    cr_assert_eq(fiber_detach(three_times, "a"), 0);
    cr_assert_eq(fiber_detach(three_times, "b"), 0);
    note("m");
    for (int i = 0; i < 4; i++) {
        fiber_yield();
        note("m");
    }
    return 0;
}

Test(fiber, run_queue_is_first_in_first_out)
{
    run_each(order_main, "mmabmabmabmm");
}

static struct weft_task task;

static void run_task(struct weft_task *t)
{
    (void)t;
    cr_assert_null(fiber_self());
    note("t");
}

static int mixed_main(void *arg)
{
    (void)arg;
    weft_task_init(&task, run_task);
    fiber_detach(three_times, "a");
    weft_task_queue(&task);
    fiber_detach(three_times, "b");
    for (int i = 0; i < 4; i++)
        fiber_yield();
    weft_task_finish(&task);
    return 0;
}

Test(fiber, tasks_and_fibers_share_the_queue)
{
    run_each(mixed_main, "atbabab");
}

static int alone_main(void *arg)
{
    struct weft_stats before = {.size = sizeof before}, after = before;

    (void)arg;
    weft_stats(&before);
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(fiber_yield(), 0);
    weft_stats(&after);
    cr_assert_geq(after.passes - before.passes, 1000);
    cr_assert_eq(after.enters, before.enters, "a yield entered the kernel");
    return 0;
}

Test(fiber, a_lone_fiber_yields_by_passes_without_system_calls)
{
    run_each(alone_main, "");
}

static int timer_main(void *arg)
{
    weft_time until = weft_after(WEFT_MS(2));
    struct weft_stats stats = {.size = sizeof stats};

    (void)arg;
    fiber_detach(three_times, "");
    while (weft_now() < until)
        fiber_yield();
    cr_assert_eq(fiber_sleep(WEFT_MS(1)), 0);
    cr_assert_geq(weft_now(), until + WEFT_MS(1));
    for (int i = 0; i < 4; i++) /* on a slow machine it may be at its first turn still */
        fiber_yield();
    weft_stats(&stats);
    cr_assert_eq(stats.fibers, 1);
    return 0;
}

Test(fiber, sleeps_and_is_never_early)
{
    run_each(timer_main, "");
}

static int64_t sleeper(void *arg)
{
    struct weft_timer *t = arg;

    cr_assert_eq(fiber_sleep_until(t->at), 0);
    cr_assert_geq(weft_now(), t->at);
    note(t->order == 0 ? "0" : t->order == 1 ? "1" : "2");
    return 0;
}

static int sleepers_main(void *arg)
{
    weft_time now = weft_now();
    struct weft_timer at[3] = {
        {.at = now + WEFT_MS(3), .order = 2},
        {.at = now + WEFT_MS(1), .order = 0},
        {.at = now + WEFT_MS(2), .order = 1},
    };

    (void)arg;
    for (int i = 0; i < 3; i++)
        fiber_detach(sleeper, &at[i]);
    fiber_sleep_until(now + WEFT_MS(4));
    cr_assert_eq(fiber_sleep_until(WEFT_NOWAIT), 0);
    cr_assert_eq(fiber_sleep(-1), 0);
    return 0;
}

Test(fiber, sleepers_wake_in_order)
{
    run_each(sleepers_main, "012");
}

/* ---- many ---- */

static long alive, finished;

static int64_t crowd(void *arg)
{
    char frame[512];

    memset(frame, (int)(intptr_t)arg, sizeof frame);
    alive++;
    for (int i = 0; i < 3; i++)
        fiber_yield();
    for (size_t i = 0; i < sizeof frame; i++)
        cr_assert_eq((unsigned char)frame[i], (unsigned char)(intptr_t)arg);
    finished++;
    return 0;
}

static int crowd_main(void *arg)
{
    long n = slow_tools() ? 500 : 20000;

    (void)arg;
    for (int round = 0; round < 3; round++) {
        alive = finished = 0;
        for (long i = 0; i < n; i++)
            cr_assert_eq(fiber_detach(crowd, (void *)(intptr_t)i), 0);
        for (int i = 0; i < 5; i++)
            fiber_yield();
        cr_assert_eq(alive, n);
        cr_assert_eq(finished, n);
    }
    return 0;
}

Test(fiber, a_crowd_keeps_its_stacks_apart)
{
    run_each(crowd_main, "");
}

/* ---- the base stack ---- */

static void on_base(void *arg)
{
    struct weft_runtime *rt = weft__rt;

    cr_assert(weft__is_base(rt));
    cr_assert_null(fiber_self());
    cr_assert_eq(fiber_yield(), -EDEADLK);
    cr_assert_eq(fiber_sleep(1), -EDEADLK);
    cr_assert_eq(fiber_check(), -EDEADLK);
    cr_assert_eq(fiber_stack_left(), 0);
    cr_assert_eq(fiber_set_name("x"), -EINVAL);
    cr_assert_eq(fiber_detach(three_times, "a"), 0);
    ++*(int *)arg;
}

static void on_base_nested(void *arg)
{
    weft__on_base(weft__rt, on_base, arg);
}

static int base_main(void *arg)
{
    struct fiber *self = fiber_self();
    int calls = 0;

    (void)arg;
    weft__on_base(weft__rt, on_base, &calls);
    cr_assert_eq(calls, 1);
    cr_assert_eq(fiber_self(), self);
    weft__on_base(weft__rt, on_base_nested, &calls);
    cr_assert_eq(calls, 2);
    cr_assert_eq(fiber_self(), self);
    for (int i = 0; i < 4; i++)
        fiber_yield();
    return 0;
}

Test(fiber, calls_on_the_base_stack_cannot_wait_but_may_spawn)
{
    run_each(base_main, "aaaaaa");
}

Test(fiber, without_a_runtime)
{
    struct fiber_options options = {.size = sizeof options};

    cr_assert_null(fiber_self());
    cr_assert_eq(fiber_yield(), -EINVAL);
    cr_assert_eq(fiber_sleep(1), -EINVAL);
    cr_assert_eq(fiber_check(), -EINVAL);
    cr_assert_eq(fiber_detach(three_times, "a"), -EINVAL);
    cr_assert_eq(fiber_detach_with(three_times, "a", &options), -EINVAL);
    cr_assert_eq(fiber_prefill(1), -EINVAL);
    fiber_dump();
}

/* ---- options, names, locals ---- */

static int64_t named(void *arg)
{
    cr_assert_str_eq(fiber_name(fiber_self()), arg);
    cr_assert_eq(fiber_set_name("another name"), 0);
    cr_assert_str_eq(fiber_name(fiber_self()), "another name");
    note("n");
    return 0;
}

static int64_t deep(void *arg)
{
    char big[200000];

    (void)arg;
    memset(big, 1, sizeof big);
    __asm__ volatile("" : : "r"(big) : "memory"); /* clang else keeps only what is used */
    cr_assert_gt(fiber_stack_left(), 1000);
    note("d");
    return big[512];
}

static int64_t small(void *arg)
{
    (void)arg;
    cr_assert_leq(fiber_stack_left(), STACKS_MIN_SIZE);
    note("s");
    return 0;
}

static int options_main(void *arg)
{
    struct fiber_options options = {.size = sizeof options, .name = "a name"};

    (void)arg;
    cr_assert_eq(fiber_detach_with(named, "a name", &options), 0);
    options.name = "a name that is too long to be kept whole";
    cr_assert_eq(fiber_detach_with(named, "a name that is too long", &options), 0);
    options.name = NULL;
    options.stack_size = 300000;
    cr_assert_eq(fiber_detach_with(deep, NULL, &options), 0);
    options.stack_size = 1;
    cr_assert_eq(fiber_detach_with(small, NULL, &options), 0);
    options.stack_size = (size_t)1 << 45;
    cr_assert_eq(fiber_detach_with(deep, NULL, &options), -EINVAL);
    options.size = 3;
    cr_assert_eq(fiber_detach_with(deep, NULL, &options), -EINVAL);
    options.size = sizeof options + 8;
    cr_assert_eq(fiber_detach_with(deep, NULL, &options), -EINVAL);
    cr_assert_eq(fiber_detach(NULL, NULL), -EINVAL);
    cr_assert_str_eq(fiber_name(fiber_self()), "main");
    cr_assert_str_eq(fiber_name(NULL), "");
    fiber_yield();
    return 0;
}

Test(fiber, options)
{
    run_each(options_main, "nnds");
}

static int64_t stack_size(void *arg)
{
    *(size_t *)arg = fiber_stack_left();
    return 0;
}

static int default_size_main(void *arg)
{
    fiber_detach(stack_size, arg);
    fiber_yield();
    return 0;
}

Test(fiber, the_default_stack_size_can_be_set)
{
    struct weft_options options = setup_options(&setups[0]);
    size_t left = 0;

    options.stack_size = 1 << 20;
    cr_assert_eq(weft_run(default_size_main, &left, &options), 0);
    cr_assert_gt(left, 1 << 19);
    options.stack_size = (size_t)1 << 60;
    cr_assert_eq(weft_run(default_size_main, &left, &options), -EINVAL);
}

static const struct weft_key key = {.name = "key"};
static int v1, v2;

static int64_t heir(void *arg)
{
    (void)arg;
    cr_assert_eq(weft_get(&key), &v1);
    fiber_yield();
    cr_assert_eq(weft_get(&key), &v1, "another fiber's binding was seen");
    cr_assert_eq(weft_set(&key, NULL), 0);
    fiber_yield();
    cr_assert_null(weft_get(&key));
    note("h");
    return 0;
}

static int locals_main(void *arg)
{
    (void)arg;
    cr_assert_null(weft_get(&key));
    cr_assert_eq(weft_set(&key, &v1), 0);
    fiber_detach(heir, NULL);
    fiber_yield();
    cr_assert_eq(weft_set(&key, &v2), 0);
    for (int i = 0; i < 4; i++)
        fiber_yield();
    cr_assert_eq(weft_get(&key), &v2);
    cr_assert_eq(weft_set(NULL, &v2), -EINVAL);
    return 0;
}

Test(fiber, locals_are_inherited_and_then_the_fibers_own)
{
    run_each(locals_main, "h");
}

/* ---- the end ---- */

static int64_t waits_for_ever(void *arg)
{
    int rc = fiber_sleep_until(WEFT_FOREVER);

    (void)arg;
    cr_assert_eq(rc, -ECANCELED);
    cr_assert_eq(fiber_check(), -ECANCELED);
    cr_assert_eq(fiber_sleep(WEFT_SEC(100)), -ECANCELED);
    cr_assert_eq(fiber_yield(), -ECANCELED);
    cr_assert_eq(fiber_detach(waits_for_ever, NULL), -ECANCELED);
    cr_assert(weft_stopping());
    note("c");
    return 0;
}

static int64_t yields_for_ever(void *arg)
{
    (void)arg;
    while (fiber_yield() == 0)
        ;
    note("y");
    return 0;
}

static int end_main(void *arg)
{
    (void)arg;
    fiber_detach(waits_for_ever, NULL);
    fiber_detach(yields_for_ever, NULL);
    fiber_yield();
    cr_assert(!weft_stopping());
    cr_assert_eq(fiber_check(), 0);
    return 0;
}

Test(fiber, mains_end_cancels_the_rest_and_waits_for_it)
{
    EACH_SETUP(setup)
    {
        trace[0] = '\0';
        cr_assert_eq(run_on(setup, end_main, NULL), 0);
        cr_assert(strchr(trace, 'c') && strchr(trace, 'y'), "%s: %s", setup->name, trace);
    }
}

static int64_t stops(void *arg)
{
    (void)arg;
    fiber_yield();
    cr_assert_eq(weft_stop(), 0);
    cr_assert_eq(weft_stop(), 0);
    return 0;
}

static int stopped_main(void *arg)
{
    (void)arg;
    fiber_detach(stops, NULL);
    return fiber_sleep_until(WEFT_FOREVER) == -ECANCELED ? 11 : 0;
}

Test(fiber, stop_cancels_main_too)
{
    EACH_SETUP(setup)
    cr_assert_eq(run_on(setup, stopped_main, NULL), 11, "%s", setup->name);
}

static int64_t parked(void *arg)
{
    (void)arg;
    fiber_sleep_until(WEFT_FOREVER);
    return 0;
}

static int deadlock_main(void *arg)
{
    struct fiber_options options = {.size = sizeof options, .name = "sleepy", .where = WEFT_HERE};

    (void)arg;
    fiber_detach_with(parked, NULL, &options);
    fiber_sleep_until(WEFT_FOREVER);
    return 0;
}

Test(fiber, deadlock_names_every_parked_fiber)
{
    EACH_SETUP(setup)
    {
        cr_assert_eq(run_on(setup, deadlock_main, NULL), -EDEADLK, "%s", setup->name);
        cr_assert(report_contains("deadlock"));
        cr_assert(report_contains("\"sleepy\", spawned at "), "%s", report_text());
        cr_assert(report_contains("test_fiber.c:"), "%s", report_text());
        cr_assert(report_contains("\"main\""), "%s", report_text());
        cr_assert(report_contains("waits for sleep"), "%s", report_text());
    }
}

static int dump_main(void *arg)
{
    (void)arg;
    fiber_detach(parked, NULL);
    fiber_yield();
    fiber_detach(parked, NULL);
    fiber_dump();
    return 0;
}

Test(fiber, dump_tells_states_apart)
{
    cr_assert_eq(run_on(&setups[0], dump_main, NULL), 0);
    cr_assert(report_contains("is running"));
    cr_assert(report_contains("is runnable"));
    cr_assert_not(report_contains("\"\""), "%s", report_text()); /* for fibers without a name */
    cr_assert(report_contains("waits for sleep"));
}

/* ---- processors and processes ---- */

static int64_t rounds_up(void *arg)
{
    (void)arg;
    fesetround(FE_UPWARD);
    fiber_yield();
    fesetround(FE_TONEAREST);
    return 0;
}

static int fenv_main(void *arg)
{
    bool leaked;

    (void)arg;
    fiber_detach(rounds_up, NULL);
    fiber_yield();
    leaked = fegetround() == FE_UPWARD;
    fiber_yield();
#ifdef WEFT_CONTEXT_NATIVE
    cr_assert(leaked, "native: control words are the thread's, as fiber.h says");
#else
    cr_assert(!leaked, "fcontext: control words are the fiber's, as fiber.h says");
#endif
    return 0;
}

Test(fiber, control_words_belong_where_the_header_says)
{
    cr_assert_eq(run_on(&setups[0], fenv_main, NULL), 0);
}

static int64_t forks(void *arg)
{
    pid_t pid = fork();
    int status;

    (void)arg;
    if (pid == 0) {
        bool ok = fiber_self() == NULL && fiber_yield() == -EINVAL &&
                  fiber_detach(parked, NULL) == -EINVAL;

        _exit(ok ? 0 : 1);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    pid = fork();
    if (pid == 0) {
        fclose(stderr);
        return 0; /* into a runtime that does not exist in the child */
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    return 0;
}

static int fork_main(void *arg)
{
    (void)arg;
    fiber_detach(forks, NULL);
    fiber_yield();
    return 0;
}

Test(fiber, a_forked_child_cannot_reach_the_parents_runtime)
{
    if (on_valgrind())
        cr_skip_test("it reports what the child leaves behind");
    EACH_SETUP(setup)
    cr_assert_eq(run_on(setup, fork_main, NULL), 0, "%s", setup->name);
}
