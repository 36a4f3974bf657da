/* needs: fibers */
/* Stacks: guards that fault, both ways to make them, reuse, memory given back, limits in words. */
#include "fiber_internal.h"
#include "harness.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static struct stacks *stacks_of(struct weft_runtime *rt)
{
    return &((struct fiber_layer *)rt->layer[WEFT__LAYER_FIBER])->stacks;
}

static size_t resident(void)
{
    size_t total = 0, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    cr_assert_eq(fscanf(f, "%zu %zu", &total, &pages), 2);
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* ---- guards ---- */

static __attribute__((noinline)) int sink(volatile char *frame, int depth)
{
    volatile char more[1024];

    more[0] = frame[0];
    return depth > 1000000 ? more[0] : sink(more, depth + 1) + more[0];
}

static int64_t overflows(void *arg)
{
    volatile char first = 0;

    (void)arg;
    return sink(&first, 0);
}

static bool with_mprotect;

static int overflow_main(void *arg)
{
    (void)arg;
    if (with_mprotect)
        stacks_of(weft__rt)->guard = STACK_GUARD_MPROTECT;
    /* more than the first batch, so that the guards are of the kind asked for */
    for (int i = 0; i < 100; i++)
        fiber_detach(overflows, NULL);
    fiber_yield();
    return 0;
}

static void dies_of_overflow(bool mprotects)
{
    pid_t pid;
    int status;

    if (on_valgrind())
        cr_skip_test("valgrind reports the access itself");
    with_mprotect = mprotects;
    pid = fork();
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL); /* not the test runner's, not a sanitizer's */
        signal(SIGBUS, SIG_DFL);
        run_on(&setups[0], overflow_main, NULL);
        _exit(0);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "status %x", (unsigned)status);
}

Test(stacks, overflow_meets_a_guard)
{
    dies_of_overflow(false);
}

Test(stacks, overflow_meets_a_guard_made_by_mprotect)
{
    dies_of_overflow(true);
}

/* ---- reuse and giving back ---- */

static int64_t touches(void *arg)
{
    char deep[32 * 1024];

    (void)arg;
    memset(deep, 1, sizeof deep);
    __asm__ volatile("" : : "r"(deep) : "memory"); /* clang else keeps only what is used */
    fiber_yield();
    return deep[0];
}

static int reuse_main(void *arg)
{
    struct weft_stats stats = {.size = sizeof stats};

    (void)arg;
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 100; i++)
            fiber_detach(touches, NULL);
        fiber_yield();
        fiber_yield();
    }
    weft_stats(&stats);
    cr_assert_eq(stats.fibers, 1);
    cr_assert_lt(stats.stacks, 400);
    return 0;
}

Test(stacks, are_used_again)
{
    cr_assert_eq(run_on(&setups[0], reuse_main, NULL), 0);
}

#define MANY 4000

static int trim_main(void *arg)
{
    size_t before, high, low;

    (void)arg;
    before = resident();
    for (int i = 0; i < MANY; i++)
        cr_assert_eq(fiber_detach(touches, NULL), 0);
    fiber_yield();
    high = resident();
    /* the kernel counts resident pages roughly */
    cr_assert_gt(high - before, (size_t)MANY * 24 * 1024);
    fiber_yield();           /* all have ended */
    fiber_sleep(WEFT_MS(1)); /* the runtime idles */
    low = resident();
    cr_assert_lt(low - before, (size_t)MANY * 8 * 1024, "%zu, then %zu, then %zu", before, high,
                 low);
    /* and they still work */
    for (int i = 0; i < MANY; i++)
        cr_assert_eq(fiber_detach(touches, NULL), 0);
    fiber_yield();
    fiber_yield();
    return 0;
}

Test(stacks, memory_above_the_watermark_goes_back)
{
    struct weft_options options = setup_options(&setups[0]);

    if (slow_tools())
        cr_skip_test("resident memory is the tool's here");
    cr_assert_eq(weft_run(trim_main, NULL, &options), 0);
    /* with next to nothing allowed even the first pages go */
    options.stack_watermark = 65536;
    cr_assert_eq(weft_run(trim_main, NULL, &options), 0);
}

static int trim_one_by_one_main(void *arg)
{
    stacks_of(weft__rt)->vectors = false;
    return trim_main(arg);
}

Test(stacks, memory_goes_back_without_vectored_advice_too)
{
    if (slow_tools())
        cr_skip_test("resident memory is the tool's here");
    cr_assert_eq(run_on(&setups[0], trim_one_by_one_main, NULL), 0);
}

static int64_t park(void *arg)
{
    (void)arg;
    fiber_sleep_until(WEFT_FOREVER);
    return 0;
}

static int parked_main(void *arg)
{
    size_t before, after, n = 20000;

    (void)arg;
    fiber_prefill(1);
    before = resident();
    for (size_t i = 0; i < n; i++)
        cr_assert_eq(fiber_detach(park, NULL), 0);
    fiber_yield();
    after = resident();
    cr_assert_lt((after - before) / n, 4300, "%zu bytes a fiber", (after - before) / n);
    return 0;
}

Test(stacks, a_parked_fiber_holds_one_page)
{
    if (slow_tools())
        cr_skip_test("resident memory is the tool's here");
    cr_assert_eq(run_on(&setups[0], parked_main, NULL), 0);
}

static int prefill_main(void *arg)
{
    struct weft_stats stats = {.size = sizeof stats};
    struct rusage before, after;

    (void)arg;
    cr_assert_eq(fiber_prefill(1000), 0);
    weft_stats(&stats);
    cr_assert_geq(stats.stacks, 1000);
    cr_assert_eq(fiber_prefill(1000), 0); /* they are there already */
    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < 1000; i++)
        fiber_detach(park, NULL);
    fiber_yield();
    getrusage(RUSAGE_SELF, &after);
    if (!slow_tools())
        cr_assert_lt(after.ru_minflt - before.ru_minflt, 200);
    return 0;
}

Test(stacks, prefilled_ones_cost_no_page_fault)
{
    cr_assert_eq(run_on(&setups[0], prefill_main, NULL), 0);
}

/* ---- limits ---- */

static int limit_main(void *arg)
{
    struct rlimit limit = {.rlim_cur = (rlim_t)2 << 30, .rlim_max = RLIM_INFINITY};
    struct fiber_options options = {.size = sizeof options, .stack_size = (size_t)64 << 20};
    int rc = 0;

    (void)arg;
    setrlimit(RLIMIT_AS, &limit);
    for (int i = 0; i < 1000 && rc == 0; i++)
        rc = fiber_detach_with(park, NULL, &options);
    cr_assert_eq(rc, -ENOMEM);
    cr_assert(report_contains("RLIMIT_AS"), "%s", report_text());
    /* the runtime goes on */
    cr_assert_eq(fiber_yield(), 0);
    return 3;
}

Test(stacks, running_out_is_an_error_that_names_the_limit)
{
    if (slow_tools())
        cr_skip_test("the tool needs the address space");
    cr_assert_eq(run_on(&setups[0], limit_main, NULL), 3);
}

static int map_count_main(void *arg)
{
    long limit = 0, made = 0;
    FILE *f = fopen("/proc/sys/vm/max_map_count", "r");
    int rc = 0;

    (void)arg;
    cr_assert_eq(fscanf(f, "%ld", &limit), 1);
    fclose(f);
    if (limit > 100000)
        return 3; /* too many to try */
    stacks_of(weft__rt)->guard = STACK_GUARD_MPROTECT;
    while (rc == 0 && made < limit) {
        rc = fiber_detach(park, NULL);
        made += rc == 0;
    }
    cr_assert_eq(rc, -ENOMEM, "%ld stacks", made);
    cr_assert_gt(made, limit / 2 - 1000);
    cr_assert(report_contains("vm.max_map_count"), "%s", report_text());
    return 3;
}

Test(stacks, guards_by_mprotect_end_at_max_map_count)
{
    if (slow_tools())
        cr_skip_test("a tool's own mappings count too");
    cr_assert_eq(run_on(&setups[0], map_count_main, NULL), 3);
}

static int classes_main(void *arg)
{
    (void)arg;
    cr_assert_eq(fiber__stacks_class(0), fiber__stacks_class(STACKS_MIN_SIZE));
    cr_assert_eq(fiber__stacks_class(STACKS_MIN_SIZE + 1),
                 fiber__stacks_class(STACKS_MIN_SIZE) + 1);
    cr_assert_eq(fiber__stacks_class(STACKS_MAX_SIZE), 40);
    cr_assert_eq(fiber__stacks_class(STACKS_MAX_SIZE + 1), -EINVAL);
    return 0;
}

Test(stacks, classes)
{
    cr_assert_eq(classes_main(NULL), 0);
}
