/* Long-lived promises keep nothing of what came and went, counted in blocks and in calls of the
 * allocator; work on one list is bounded; and a million of anything needs no stack, neither the base
 * stack's nor a fiber's. */
#include "allocations.h"
#include "harness.h"
#include "test_promise.h"

#if WEFT_HAS_FIBERS
#include <weft/fiber.h>
#endif

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static size_t smaller_on_slow_tools(size_t count)
{
    return slow_tools() ? count / 20 : count;
}

/* Does `once` many times: after the first hundred the blocks are as many as before each, and no
 * memory is asked for but the `values` pieces that each result owns. */
static void flat(void (*once)(struct promise *p), struct promise *p, size_t times, size_t values)
{
    size_t live = promise__live(), before = 0;

    times = smaller_on_slow_tools(times);
    for (size_t i = 0; i < times; i++) {
        if (i == 100)
            before = allocations;
        once(p);
        if (promise__live() != live)
            cr_assert_fail("%zu blocks after %zu times, %zu before", promise__live(), i, live);
    }
    if (before != 0)
        cr_assert_leq(allocations - before, times * values, "%zu calls", allocations - before);
    cr_assert_null(p->waiters);
}

/* ---- races ---- */

static struct promise *race2(struct promise *(*race)(struct promise *const[], size_t),
                             struct promise *a, struct promise *b)
{
    struct promise *const both[] = {a, b};

    return race(both, 2);
}

static void lose(struct promise *stop, struct promise *(*race)(struct promise *const[], size_t))
{
    struct promise *work = promise_create();
    struct promise *q = race2(race, promise_ref(stop), promise_ref(work));

    promise_resolve(work, weft_num(1));
    promise_unref(work);
    promise_unref(q);
}

static void lose_choose(struct promise *stop)
{
    lose(stop, promise_choose);
}

static void lose_pick(struct promise *stop)
{
    lose(stop, promise_pick);
}

static void lose_nchoose(struct promise *stop)
{
    lose(stop, promise_nchoose);
}

static void lose_npick(struct promise *stop)
{
    lose(stop, promise_npick);
}

static void lose_nchoose_split(struct promise *stop)
{
    lose(stop, promise_nchoose_split);
}

/* Dropped before anybody settles it. */
static void drop_choose(struct promise *stop)
{
    promise_unref(race2(promise_choose, promise_ref(stop), promise_create()));
}

PROMISE_TEST(flat, a_million_races_against_one_promise)
{
    struct promise *stop = promise_create();

    flat(lose_choose, stop, 400000, 0);
    flat(lose_pick, stop, 400000, 0);
    flat(lose_nchoose, stop, 100000, 1);
    flat(lose_npick, stop, 100000, 1);
    flat(lose_nchoose_split, stop, 100000, 1);
    flat(drop_choose, stop, 100000, 0);
    promise_unref(stop);
}

/* ---- wrappers ---- */

static void cancel_protected(struct promise *p)
{
    struct promise *q = promise_protected(promise_ref(p));

    promise_cancel(q);
    promise_unref(q);
}

static void cancel_wrapped(struct promise *p)
{
    struct promise *q = promise_wrap_in_cancelable(promise_ref(p));

    promise_cancel(q);
    promise_unref(q);
}

static void drop_protected(struct promise *p)
{
    promise_unref(promise_protected(promise_ref(p)));
}

static void drop_wrapped(struct promise *p)
{
    promise_unref(promise_wrap_in_cancelable(promise_ref(p)));
}

static void drop_no_cancel(struct promise *p)
{
    promise_unref(promise_no_cancel(promise_ref(p)));
}

PROMISE_TEST(flat, a_million_canceled_protections)
{
    struct promise *p = promise_create_task();

    flat(cancel_protected, p, 1000000, 0);
    flat(drop_protected, p, 200000, 0);
    cr_pending(p);
    promise_unref(p);
}

PROMISE_TEST(flat, a_million_canceled_wrappers)
{
    struct promise *p = promise_create(); /* a task would be canceled with the first */

    flat(cancel_wrapped, p, 1000000, 0);
    flat(drop_wrapped, p, 200000, 0);
    cr_pending(p);
    promise_unref(p);
}

PROMISE_TEST(flat, a_million_dropped_no_cancels)
{
    struct promise *p = promise_create_task();

    flat(drop_no_cancel, p, 1000000, 0);
    cr_pending(p);
    promise_unref(p);
}

/* A reader under a pick, the lost protection of a long-lived promise: the classic leak. */
static void read_under_pick(struct promise *p)
{
    struct promise *work = promise_create();
    struct promise *q = race2(promise_pick, promise_protected(promise_ref(p)), promise_ref(work));

    promise_resolve(work, weft_num(1));
    promise_unref(work);
    promise_unref(q);
}

PROMISE_TEST(flat, protections_that_lose_a_pick)
{
    struct promise *p = promise_create_task();

    flat(read_under_pick, p, 200000, 0);
    cr_pending(p);
    promise_unref(p);
}

/* ---- loops ---- */

struct loop {
    size_t left, live, before, calls;
};

static struct promise *lap(union weft_value value, void *ctx)
{
    struct loop *loop = ctx;

    if (loop->left % 1000 == 0) {
        if (loop->live == 0) {
            loop->live = promise__live();
            loop->before = allocations;
        }
        cr_assert_leq(promise__live(), loop->live);
    }
    if (--loop->left == 0) {
        loop->calls = allocations - loop->before;
        return promise_fulfilled(value);
    }
    return promise_bind(promise_pause(), lap, ctx);
}

static struct promise *start_loop(void *ctx)
{
    return promise_bind(promise_pause(), lap, ctx);
}

static void run_loop(const struct setup *setup, size_t steps)
{
    struct weft_options options = setup_options(setup);
    struct loop loop = {.left = smaller_on_slow_tools(steps)};

    cr_assert_eq(promise_run(start_loop, &loop, &options, NULL), 0);
    cr_assert_eq(loop.left, 0);
    cr_assert_leq(loop.live, 4);
    cr_assert_eq(loop.calls, 0, "%s: %zu calls of the allocator", setup->name, loop.calls);
}

Test(flat, two_million_binds_and_pauses)
{
    run_loop(&setups[0], 2000000);
}

Test(flat, binds_and_pauses_on_each_engine)
{
    EACH_ENGINE(setup)
    run_loop(setup, 200000);
}

/* Both outcomes and a cleanup in each lap: no loop of tail calls, so a fiber's. */
#if WEFT_HAS_FIBERS
static struct promise *fail(union weft_value value, void *ctx)
{
    (void)value;
    (void)ctx;
    return promise_rejected(-EAGAIN);
}

static int fiber_laps(void *arg)
{
    size_t steps = smaller_on_slow_tools(200000), live = 0, before = 0;

    (void)arg;
    for (size_t i = 0; i < steps; i++) {
        struct promise *p = promise_finalize(
            promise_catch(promise_bind(promise_pause(), fail, NULL), tell_catch, "c"), tell_thunk,
            "f");

        cr_assert_eq(fiber_await(p, NULL, WEFT_FOREVER), 0);
        told("c!-11 f ");
        if (i == 1000) {
            live = promise__live();
            before = allocations;
        }
    }
    cr_assert_eq(promise__live(), live);
    cr_assert_eq(allocations, before);
    return 0;
}

Test(flat, a_fibers_loop_over_catch_and_finalize)
{
    cr_assert_eq(run_on(&setups[0], fiber_laps, NULL), 0);
}
#endif

/* ---- bounded work ---- */

static double cpu_time(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Time per element of work(n) may not grow with n; 40 times more elements tell a list that is gone
 * through for each of them. */
static void bounded(void (*work)(size_t n), size_t n)
{
    double small = 1e9, large = 1e9;

    if (slow_tools()) {
        work(n / 20);
        return;
    }
    for (int i = 0; i < 3; i++) {
        double start = cpu_time(), middle;

        for (int k = 0; k < 40; k++)
            work(n / 40);
        middle = cpu_time();
        work(n);
        small = middle - start < small ? middle - start : small;
        large = cpu_time() - middle < large ? cpu_time() - middle : large;
    }
    cr_assert_lt(large, small * 15 + 0.005, "%f s, and %f s in portions", large, small);
}

/* n races on one promise, half of them decided by their other operand, oldest, newest and middle
 * ones; the rest by the common one. */
static void concurrent(struct promise *(*race)(struct promise *const[], size_t), size_t n)
{
    struct promise *stop = promise_create(), *canceled = promise_create_task();
    struct promise **work = calloc(n, sizeof *work), **q = calloc(n, sizeof *q);

    for (size_t i = 0; i < n; i++) {
        work[i] = i % 4 == 3 ? promise_ref(canceled) : promise_create_task();
        q[i] = race2(race, promise_ref(stop), promise_ref(work[i]));
    }
    for (size_t i = 0; i < n; i += 4) {
        size_t at = i % 8 != 0 ? n - i : i;

        if (at % 4 == 0 && at < n)
            promise_resolve(work[at], weft_num(1));
    }
    promise_cancel(canceled);
    promise_resolve(stop, weft_num(2));
    for (size_t i = 0; i < n; i++) {
        cr_assert(!is_pending(q[i]));
        promise_unref(work[i]);
        promise_unref(q[i]);
    }
    promise_unref(stop);
    promise_unref(canceled);
    free(work);
    free(q);
}

static void concurrent_picks(size_t n)
{
    concurrent(promise_pick, n);
}

static void concurrent_chooses(size_t n)
{
    concurrent(promise_choose, n);
}

PROMISE_TEST(bounded, twenty_thousand_picks_on_one_promise)
{
    bounded(concurrent_picks, 20000);
}

PROMISE_TEST(bounded, twenty_thousand_chooses_on_one_promise)
{
    bounded(concurrent_chooses, 20000);
}

/* n binds return one promise that n wait for already. */
static void share(size_t n)
{
    struct promise *shared = promise_create(), *trigger = promise_create();
    struct promise **q = calloc(n, sizeof *q), **waiting = calloc(n, sizeof *waiting);

    for (size_t i = 0; i < n; i++) {
        q[i] = promise_bind(promise_ref(trigger), give_promise, shared);
        waiting[i] = promise_protected(promise_ref(shared));
    }
    promise_resolve(trigger, weft_num(0));
    promise_resolve(shared, weft_num(7));
    for (size_t i = 0; i < n; i++) {
        cr_value(q[i], 7);
        cr_value(waiting[i], 7);
        promise_unref(q[i]);
        promise_unref(waiting[i]);
    }
    promise_unref(shared);
    promise_unref(trigger);
    free(q);
    free(waiting);
}

PROMISE_TEST(bounded, five_thousand_binds_return_one_promise)
{
    bounded(share, 5000);
}

/* ---- removing nodes ---- */

enum { OLDEST, MIDDLE, NEWEST };

static void remove_one(int which, bool merged)
{
    const char *const left[] = {"newest(1) middle(1) ", "newest(1) oldest(1) ",
                                "middle(1) oldest(1) "};
    static char names[3][8] = {"oldest", "middle", "newest"};
    struct promise *p = promise_create(), *node[3], *trigger = promise_create(), *outer = NULL;

    for (int i = 0; i < 3; i++) {
        node[i] = promise_protected(promise_ref(p));
        promise_on_success(node[i], tell_success, names[i]);
    }
    if (merged) {
        outer = promise_bind(promise_ref(trigger), give_promise, p);
        promise_resolve(trigger, weft_num(0));
    }
    promise_cancel(node[which]);
    promise_resolve(p, weft_num(1));
    told(left[which]);
    for (int i = 0; i < 3; i++)
        promise_unref(node[i]);
    promise_unref(p);
    promise_unref(trigger);
    promise_unref(outer);
}

PROMISE_TEST(removal, the_oldest_a_middle_and_the_newest_waiter)
{
    for (int which = OLDEST; which <= NEWEST; which++)
        remove_one(which, false);
}

PROMISE_TEST(removal, after_a_merge)
{
    for (int which = OLDEST; which <= NEWEST; which++)
        remove_one(which, true);
}

/* ---- a million of it, on small stacks ---- */

#if PROMISE__ASAN || !defined(__OPTIMIZE__)
#define SMALL_STACK ((size_t)512 << 10)
#else
#define SMALL_STACK ((size_t)96 << 10)
#endif

static size_t million(void)
{
    return slow_tools() ? 50000 : 1000000;
}

static struct promise *add_one(union weft_value value, void *ctx)
{
    (void)ctx;
    return promise_fulfilled(weft_num(value.num + 1));
}

static void pending_binds(void)
{
    size_t n = million();
    struct promise *root = promise_create(), *end = promise_ref(root);

    for (size_t i = 0; i < n; i++)
        end = promise_bind(end, add_one, NULL);
    promise_resolve(root, weft_num(0));
    cr_value(end, (int64_t)n);
    promise_unref(root);
    promise_unref(end);
}

static void each_returned_by_the_next(bool forwards)
{
    size_t n = million();
    struct promise **trigger = calloc(n, sizeof *trigger), **p = calloc(n + 1, sizeof *p);

    p[0] = promise_create();
    for (size_t i = 0; i < n; i++) {
        trigger[i] = promise_create();
        p[i + 1] = promise_bind(promise_ref(trigger[i]), give_promise, p[i]);
    }
    for (size_t i = 0; i < n; i++)
        promise_resolve(trigger[forwards ? i : n - 1 - i], weft_num(0));
    promise_resolve(p[0], weft_num(42));
    for (size_t i = 0; i <= n; i++)
        cr_value(p[i], 42);
    for (size_t i = 0; i < n; i++) {
        promise_unref(trigger[i]);
        promise_unref(p[forwards ? i : n - i]);
    }
    promise_unref(p[forwards ? n : 0]);
    free(trigger);
    free(p);
}

static void returned_forwards(void)
{
    each_returned_by_the_next(true);
}

static void returned_backwards(void)
{
    each_returned_by_the_next(false);
}

/* Merged one after the other while only the two ends are held: the path from one to the other. */
static void merged(void)
{
    struct promise *first = promise_create(), *p = promise_ref(first);

    for (size_t i = 0, n = million(); i < n; i++) {
        struct promise *trigger = promise_create();
        struct promise *q = promise_bind(promise_ref(trigger), give_promise, p);

        promise_resolve(trigger, weft_num(0));
        promise_unref(trigger);
        promise_unref(p);
        p = q;
    }
    promise_cancel(first); /* a look-up through all of them */
    cr_assert_eq(promise_resolve(first, weft_num(5)), 0);
    cr_value(p, 5);
    promise_unref(p);
    promise_unref(first);
}

static void *thread_body(void *body)
{
    void (*run)(void);

    memcpy(&run, body, sizeof run);
    in_runtime(run);
    return NULL;
}

static void on_base_stack(void (*body)(void))
{
    pthread_attr_t attr;
    pthread_t thread;

    setenv("WEFT_ENGINE", "null", 1);
    pthread_attr_init(&attr);
    cr_assert_eq(pthread_attr_setstacksize(&attr, SMALL_STACK), 0);
    cr_assert_eq(pthread_create(&thread, &attr, thread_body, &body), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
}

Test(million, pending_binds)
{
    on_base_stack(pending_binds);
}

Test(million, each_returned_by_the_next)
{
    on_base_stack(returned_forwards);
    on_base_stack(returned_backwards);
}

Test(million, merged)
{
    on_base_stack(merged);
}

#if WEFT_HAS_FIBERS
static int64_t fiber_body(void *body)
{
    void (*run)(void);

    memcpy(&run, body, sizeof run);
    run();
    return 1;
}

static int spawn_small(void *body)
{
    struct fiber_options options = {.size = sizeof options,
                                    .stack_size = PROMISE__ASAN ? 65536 : 16384};
    union weft_value value = weft_num(0);

    cr_assert_eq(fiber_await(fiber_spawn_with(fiber_body, body, &options), &value, WEFT_FOREVER),
                 0);
    cr_assert_eq(value.num, 1);
    cr_assert_eq(promise__live(), 0);
    return 0;
}

static void in_small_fiber(void (*body)(void))
{
    cr_assert_eq(run_on(&setups[0], spawn_small, &body), 0);
}

Test(million, pending_binds_in_a_small_fiber)
{
    in_small_fiber(pending_binds);
}

Test(million, each_returned_by_the_next_in_a_small_fiber)
{
    in_small_fiber(returned_forwards);
    in_small_fiber(returned_backwards);
}

Test(million, merged_in_a_small_fiber)
{
    in_small_fiber(merged);
}
#endif
