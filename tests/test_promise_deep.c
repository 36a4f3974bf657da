/* Nothing about promises recurses: chains of a million, settled, merged, canceled and released on a
 * small stack; and long-lived promises keep nothing of what came and went. */
#include "test_promise.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || !defined(__OPTIMIZE__)
#define DEEP        100000
#define SMALL_STACK ((size_t)512 << 10)
#else
#define DEEP        1000000
#define SMALL_STACK ((size_t)96 << 10)
#endif

static void *thread_body(void *body)
{
    void (*run)(void);

    memcpy(&run, body, sizeof run);
    in_runtime(run);
    return NULL;
}

/* Runs the body on a thread whose stack, the base stack, is small. */
static void on_small_stack(void (*body)(void))
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

#define DEEP_TEST(suite, name)          \
    static void suite##_##name(void);   \
    Test(suite, name)                   \
    {                                   \
        on_small_stack(suite##_##name); \
    }                                   \
    static void suite##_##name(void)

static struct promise *add_one(union weft_value value, void *ctx)
{
    (void)ctx;
    return promise_fulfilled(weft_num(value.num + 1));
}

static struct promise *chain(struct promise *p, size_t n)
{
    while (n-- > 0)
        p = promise_bind(p, add_one, NULL);
    return p;
}

DEEP_TEST(deep, pending_binds)
{
    struct promise *root = promise_create(), *end = chain(promise_ref(root), DEEP);

    cr_assert_eq(promise__live(), DEEP + 1);
    promise_resolve(root, weft_num(0));
    cr_value(end, DEEP);
    promise_unref(root);
    promise_unref(end);
}

DEEP_TEST(deep, rejection_through_pending_binds)
{
    struct promise *root = promise_create(), *end = chain(promise_ref(root), DEEP);

    promise_reject(root, -EIO);
    cr_rejected(end, -EIO);
    promise_unref(root);
    promise_unref(end);
}

DEEP_TEST(deep, cancel_from_the_end)
{
    struct promise *root = promise_create_task(), *end = chain(promise_ref(root), DEEP);

    promise_cancel(end);
    cr_rejected(end, -ECANCELED);
    promise_unref(root);
    promise_unref(end);
}

DEEP_TEST(deep, release_from_the_end_then_the_root)
{
    struct promise *root = promise_create();

    promise_unref(chain(promise_ref(root), DEEP)); /* the callbacks will still run */
    cr_assert_eq(promise__live(), DEEP + 1);
    promise_unref(root); /* nobody can settle it now */
    cr_assert_eq(promise__live(), 0);
}

DEEP_TEST(deep, release_from_the_root_then_the_end)
{
    struct promise *root = promise_create(), *end = chain(promise_ref(root), DEEP);

    promise_unref(root);
    cr_assert_eq(promise__live(), DEEP + 1);
    promise_unref(end);
    cr_assert_eq(promise__live(), 0);
}

/* Each one's callback returns the one before. */
static void each_returned_by_the_next(bool forwards)
{
    struct promise **trigger = calloc(DEEP, sizeof *trigger), **p = calloc(DEEP + 1, sizeof *p);

    p[0] = promise_create();
    for (size_t i = 0; i < DEEP; i++) {
        trigger[i] = promise_create();
        p[i + 1] = promise_bind(promise_ref(trigger[i]), give_promise, p[i]);
    }
    for (size_t i = 0; i < DEEP; i++)
        promise_resolve(trigger[forwards ? i : DEEP - 1 - i], weft_num(0));
    promise_resolve(p[0], weft_num(42));
    for (size_t i = 0; i <= DEEP; i++)
        cr_value(p[forwards ? i : DEEP - i], 42);
    for (size_t i = 0; i < DEEP; i++)
        promise_unref(trigger[i]);
    for (size_t i = 0; i <= DEEP; i++)
        promise_unref(p[i]);
    free(trigger);
    free(p);
}

DEEP_TEST(deep, each_returned_by_the_next_forwards)
{
    each_returned_by_the_next(true);
}

DEEP_TEST(deep, each_returned_by_the_next_backwards)
{
    each_returned_by_the_next(false);
}

DEEP_TEST(deep, a_long_path_to_the_representative)
{
    struct promise *first = promise_create(), *p = promise_ref(first);

    for (size_t i = 0; i < DEEP; i++) {
        struct promise *trigger = promise_create();
        struct promise *q = promise_bind(promise_ref(trigger), give_promise, p);

        promise_resolve(trigger, weft_num(0));
        promise_unref(trigger);
        promise_unref(p);
        p = q;
    }
    cr_assert_leq(promise__live(), 2 + (size_t)DEEP);
    cr_assert_eq(promise_resolve(first, weft_num(5)), 0);
    cr_value(p, 5);
    cr_value(first, 5);
    promise_unref(p);
    promise_unref(first);
}

static struct promise *nested_races(struct promise *root, size_t n,
                                    struct promise *(*race)(struct promise *const[], size_t),
                                    struct promise **tasks)
{
    struct promise *p = promise_ref(root);

    for (size_t i = 0; i < n; i++) {
        struct promise *pair[2];

        tasks[i] = promise_create_task();
        pair[0] = promise_ref(tasks[i]);
        pair[1] = p;
        p = race(pair, 2);
    }
    return p;
}

static void nested(struct promise *(*race)(struct promise *const[], size_t), bool cancel,
                   bool losers)
{
    enum { N = DEEP / 4 };
    struct promise *root = promise_create_task(), **tasks = calloc(N, sizeof *tasks);
    struct promise *end = nested_races(root, N, race, tasks);

    if (cancel) {
        promise_cancel(end);
        cr_rejected(end, -ECANCELED);
        losers = true;
    } else {
        promise_resolve(root, weft_num(0));
        cr_assert(!is_pending(end) || race == promise_join);
    }
    for (size_t i = 0; i < N; i++) {
        cr_assert_eq(is_pending(tasks[i]), !losers);
        promise_unref(tasks[i]);
    }
    promise_unref(root);
    promise_unref(end);
    free(tasks);
}

DEEP_TEST(deep, nested_picks_settle)
{
    nested(promise_pick, false, true);
}

DEEP_TEST(deep, nested_picks_cancel)
{
    nested(promise_pick, true, true);
}

DEEP_TEST(deep, nested_chooses)
{
    nested(promise_choose, false, false);
    nested(promise_choose, true, false);
}

DEEP_TEST(deep, nested_npicks)
{
    nested(promise_npick, false, true);
    nested(promise_npick, true, true);
}

DEEP_TEST(deep, nested_joins)
{
    nested(promise_join, false, false);
    nested(promise_join, true, false);
}

DEEP_TEST(deep, nested_values_are_released)
{
    struct promise *p = promise_fulfilled(weft_num(0));

    for (size_t i = 0; i < DEEP; i++)
        p = promise_all(&p, 1);
    promise_unref(p);
}

DEEP_TEST(deep, nested_wrappers)
{
    struct promise *root = promise_create_task(), *p = promise_ref(root);

    for (size_t i = 0; i < DEEP / 3; i++)
        p = promise_wrap_in_cancelable(p);
    promise_cancel(p);
    cr_rejected(root, -ECANCELED);
    promise_unref(p);
    promise_unref(root);
    root = promise_create_task();
    p = promise_ref(root);
    for (size_t i = 0; i < DEEP / 3; i++)
        p = promise_protected(promise_no_cancel(p));
    promise_unref(p); /* nobody waits: they all leave */
    cr_assert_eq(promise__live(), 1);
    promise_unref(root);
}

struct recursion {
    size_t left;
};

static struct promise *again(union weft_value value, void *ctx)
{
    struct recursion *r = ctx;

    if (r->left-- == 0)
        return promise_fulfilled(value);
    return promise_bind(promise_fulfilled(weft_num(value.num + 1)), again, ctx);
}

DEEP_TEST(deep, recursion_over_settled_binds)
{
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && defined(NDEBUG)
    struct recursion r = {10 * DEEP}; /* two tail calls a step */
#else
    struct recursion r = {500};
#endif
    size_t steps = r.left;
    struct promise *p = again(weft_num(0), &r);

    cr_value(p, (int64_t)steps);
    cr_assert_eq(promise__live(), 0); /* the value is in the handle */
    promise_unref(p);
}

/* ---- flat memory ---- */

static struct promise *race2(struct promise *(*race)(struct promise *const[], size_t),
                             struct promise *a, struct promise *b)
{
    struct promise *const both[] = {promise_ref(a), b};

    return race(both, 2);
}

PROMISE_TEST(flat, lost_races_leave_nothing)
{
    struct promise *(*const races[])(struct promise *const[], size_t) = {
        promise_choose, promise_nchoose, promise_nchoose_split};
    struct promise *stop = promise_create();

    for (size_t k = 0; k < 3; k++)
        for (int i = 0; i < 100000 / 3; i++) {
            struct promise *work = promise_create();
            struct promise *q = race2(races[k], stop, promise_ref(work));

            promise_resolve(work, weft_num(i));
            promise_unref(work);
            promise_unref(q);
            cr_assert_eq(promise__live(), 1);
        }
    promise_unref(stop);
}

PROMISE_TEST(flat, wrappers_leave_nothing)
{
    struct promise *p = promise_create();

    for (int i = 0; i < 100000; i++) {
        struct promise *q = promise_protected(promise_ref(p));
        struct promise *r = promise_wrap_in_cancelable(promise_ref(p));

        promise_cancel(q);
        promise_cancel(r);
        promise_unref(q);
        promise_unref(r);
        promise_unref(promise_no_cancel(promise_ref(p)));
        promise_unref(promise_protected(promise_ref(p)));
        promise_unref(promise_wrap_in_cancelable(promise_ref(p)));
        cr_assert_eq(promise__live(), 1);
        cr_assert_null(p->waiters);
    }
    promise_unref(p);
}

PROMISE_TEST(flat, a_canceled_loser_leaves_nothing)
{
    struct promise *stop = promise_create();

    for (int i = 0; i < 10000; i++) {
        struct promise *task = promise_create_task();
        struct promise *q = race2(promise_pick, stop, promise_protected(promise_ref(task)));

        promise_cancel(q);
        promise_unref(q);
        cr_assert_eq(promise__live(), 2);
        promise_unref(task);
    }
    promise_unref(stop);
}

PROMISE_TEST(flat, many_concurrent_races_on_one_promise)
{
    enum { N = 20000 };
    struct promise *stop = promise_create_task();
    struct promise **work = calloc(N, sizeof *work), **q = calloc(N, sizeof *q);

    for (int i = 0; i < N; i++) {
        work[i] = promise_create_task();
        q[i] = race2(i % 2 ? promise_pick : promise_choose, i % 2 ? work[i] : stop,
                     promise_ref(i % 2 ? stop : work[i]));
    }
    for (int i = 0; i < N; i += 4) { /* oldest, middle, newest: each leaves in O(1) */
        promise_resolve(work[i], weft_num(i));
        cr_value(q[i], i);
    }
    promise_resolve(stop, weft_num(-1));
    for (int i = 0; i < N; i++) {
        cr_value(q[i], i % 4 ? -1 : i);
        promise_unref(q[i]);
        promise_unref(work[i]);
    }
    promise_unref(stop);
    free(work);
    free(q);
}

PROMISE_TEST(flat, many_callbacks_return_one_shared_promise)
{
    enum { N = 5000 };
    struct promise *shared = promise_create(), *trigger = promise_create();
    struct promise *q[N];
    int64_t sum = 0;

    for (int i = 0; i < N; i++) {
        q[i] = promise_bind(promise_ref(trigger), give_promise, shared);
        promise_unref(promise_bind(promise_ref(shared), add_one, NULL));
    }
    promise_resolve(trigger, weft_num(0));
    promise_resolve(shared, weft_num(1));
    for (int i = 0; i < N; i++) {
        sum += value_of_promise(q[i]);
        promise_unref(q[i]);
    }
    cr_assert_eq(sum, N);
    promise_unref(shared);
    promise_unref(trigger);
}

PROMISE_TEST(flat, circles_are_found_by_tracing_before_memory_grows)
{
    for (int i = 0; i < 100000; i++) {
        struct promise *a = promise_create_task();
        struct promise *q = race2(promise_pick, a, promise_create_task());

        promise_unref(a);
        promise_unref(q); /* unobserved, and nobody can settle the operands */
    }
    cr_assert_lt(promise__live(), 50000);
    promise__collect(promise__tls);
    cr_assert_eq(promise__live(), 0);
}
