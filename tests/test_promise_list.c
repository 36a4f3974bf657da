/* Each function of weft/promise_list.h: what it gives, and what all of them share: order of calls,
 * errors, canceling, bounds, memory. */
#include "allocations.h"
#include "test_promise_modules.h"

#include <weft/promise_list.h>
#if WEFT_HAS_FIBERS
#include <weft/fiber.h>
#endif

typedef struct promise *list_fn(const void *items, size_t count, size_t size, promise_item_fn *fn,
                                void *ctx);
typedef struct promise *bounded_fn(size_t max, const void *items, size_t count, size_t size,
                                   promise_item_fn *fn, void *ctx);

struct function {
    const char *name;
    list_fn *s, *p;
    bounded_fn *n;
    int64_t go_on; /* an element's value that decides nothing */
    bool question;
    bool owns; /* the result is a struct promise_values or promise_partition */
};

static const struct function functions[] = {
    {"iter", promise_iter_s, promise_iter_p, promise_iter_n, 1, false, false},
    {"map", promise_map_s, promise_map_p, promise_map_n, 1, false, true},
    {"filter_map", promise_filter_map_s, promise_filter_map_p, promise_filter_map_n, 1, false,
     true},
    {"filter", promise_filter_s, promise_filter_p, promise_filter_n, 1, false, true},
    {"partition", promise_partition_s, promise_partition_p, promise_partition_n, 1, false, true},
    {"exists", promise_exists_s, promise_exists_p, promise_exists_n, 0, true, false},
    {"for_all", promise_for_all_s, promise_for_all_p, promise_for_all_n, 1, true, false},
    {"find", promise_find_s, promise_find_p, promise_find_n, 0, true, false},
};

#define EACH(f) for (const struct function *f = functions; f < functions + 8; f++)

/* ---- elements under control: each waits until it is settled by hand ---- */

#define MOST 16

static struct promise *made[MOST];
static size_t running, most_running;

static struct promise *wait_for(size_t i, void *item, void *ctx)
{
    (void)item;
    (void)ctx;
    say("%zu", i);
    made[i] = promise_create_task();
    if (++running > most_running)
        most_running = running;
    return promise_ref(made[i]);
}

static void settle(size_t i, int64_t result)
{
    struct promise *p = made[i];

    made[i] = NULL;
    running--;
    if (result < 0)
        promise_reject(p, (int)result);
    else
        promise_resolve(p, weft_num(result));
    promise_unref(p);
}

static void forget(void)
{
    for (size_t i = 0; i < MOST; i++) {
        promise_unref(made[i]);
        made[i] = NULL;
    }
    running = most_running = 0;
    test_log[0] = '\0';
}

/* ---- in series ---- */

MODULE_TEST(promise_list, s_calls_the_next_when_the_one_before_is_fulfilled)
{
    EACH(f)
    {
        struct promise *p = f->s(NULL, 3, 0, wait_for, NULL);

        told("0");
        settle(0, f->go_on);
        told("1");
        cr_pending(p);
        settle(1, f->go_on);
        settle(2, f->go_on);
        told("2");
        cr_assert_neq(promise_state(p), PROMISE_PENDING, "%s", f->name);
        promise_unref(p);
        forget();
    }
    return NULL;
}

MODULE_TEST(promise_list, s_stops_at_the_first_failure)
{
    EACH(f)
    {
        struct promise *p = f->s(NULL, 3, 0, wait_for, NULL);

        settle(0, f->go_on);
        settle(1, -EIO);
        told("01");
        cr_rejected(p, -EIO);
        forget();
    }
    return NULL;
}

/* ---- in parallel ---- */

MODULE_TEST(promise_list, p_calls_all_elements_before_waiting)
{
    EACH(f)
    {
        struct promise *p = f->p(NULL, 4, 0, wait_for, NULL);

        told("0123");
        settle(2, f->go_on);
        settle(0, f->go_on);
        settle(3, f->go_on);
        cr_pending(p);
        settle(1, f->go_on);
        cr_assert_neq(promise_state(p), PROMISE_PENDING, "%s", f->name);
        promise_unref(p);
        forget();
    }
    return NULL;
}

/* Element 1 settles what element 0 waits for. */
static struct promise *depends_on_a_later_one(size_t i, void *item, void *ctx)
{
    struct promise *p;

    (void)item;
    if (i == 0) {
        made[0] = promise_create();
        return promise_ref(made[0]);
    }
    p = promise_fulfilled(weft_num(*(int64_t *)ctx));
    if (i == 1)
        settle(0, *(int64_t *)ctx);
    return p;
}

MODULE_TEST(promise_list, p_elements_may_depend_on_later_ones)
{
    EACH(f)
    {
        int64_t go_on = f->go_on;
        struct promise *p = f->p(NULL, 3, 0, depends_on_a_later_one, &go_on);

        cr_assert_neq(promise_state(p), PROMISE_PENDING, "%s", f->name);
        promise_unref(p);
        p = f->n(2, NULL, 3, 0, depends_on_a_later_one, &go_on);
        cr_assert_neq(promise_state(p), PROMISE_PENDING, "%s", f->name);
        promise_unref(p);
        forget();
    }
    return NULL;
}

MODULE_TEST(promise_list, p_waits_for_all_after_a_failure)
{
    EACH(f)
    {
        struct promise *p = f->p(NULL, 3, 0, wait_for, NULL);

        settle(1, -EIO);
        if (!f->question) {
            cr_pending(p);
            settle(0, f->go_on);
            cr_pending(p);
            settle(2, -EPERM); /* not the first */
        }
        cr_rejected(p, -EIO);
        forget();
    }
    return NULL;
}

/* ---- bounded ---- */

MODULE_TEST(promise_list, n_never_runs_more_than_max)
{
    EACH(f)
    {
        struct promise *p = f->n(3, NULL, 10, 0, wait_for, NULL);
        size_t order[] = {1, 0, 3, 2, 4, 5, 8, 9, 7, 6};

        told("012");
        for (int i = 0; i < 10; i++) {
            cr_pending(p);
            settle(order[i], f->go_on);
        }
        told("3456789");
        cr_assert_eq(most_running, 3, "%s: %zu", f->name, most_running);
        cr_assert_neq(promise_state(p), PROMISE_PENDING, "%s", f->name);
        promise_unref(p);
        forget();
    }
    return NULL;
}

MODULE_TEST(promise_list, n_of_one_is_serial_and_of_many_parallel)
{
    EACH(f)
    {
        struct promise *p = f->n(1, NULL, 3, 0, wait_for, NULL);

        told("0");
        promise_unref(p);
        forget();
        p = f->n(SIZE_MAX, NULL, 3, 0, wait_for, NULL);
        told("012");
        promise_unref(p);
        forget();
    }
    return NULL;
}

MODULE_TEST(promise_list, n_calls_no_more_after_a_failure)
{
    EACH(f)
    {
        struct promise *p = f->n(2, NULL, 5, 0, wait_for, NULL);

        settle(1, -EIO);
        if (!f->question) {
            cr_pending(p); /* element 0 is still running */
            settle(0, f->go_on);
        }
        told("01");
        cr_rejected(p, -EIO);
        forget();
    }
    return NULL;
}

MODULE_TEST(promise_list, n_of_zero_is_an_error)
{
    EACH(f)
    {
        cr_rejected(f->n(0, NULL, 5, 0, wait_for, NULL), -EINVAL);
        cr_rejected(f->n(0, NULL, 0, 0, wait_for, NULL), -EINVAL);
    }
    told("");
    return NULL;
}

/* ---- failing callbacks ---- */

static struct promise *fail_at_2(size_t i, void *item, void *ctx)
{
    (void)item;
    say("%zu", i);
    return i == 2   ? promise_rejected(-EIO)
           : i == 3 ? NULL
                    : promise_fulfilled(weft_num(*(int64_t *)ctx));
}

MODULE_TEST(promise_list, a_failing_callback_rejects_the_result)
{
    EACH(f)
    {
        int64_t go_on = f->go_on;

        cr_rejected(f->s(NULL, 5, 0, fail_at_2, &go_on), -EIO);
        told("012");
        cr_rejected(f->p(NULL, 5, 0, fail_at_2, &go_on), -EIO); /* not element 3's -EINVAL */
        told("01234");
        cr_rejected(f->n(2, NULL, 5, 0, fail_at_2, &go_on), -EIO);
        told("012");
    }
    return NULL;
}

static struct promise *fail(size_t i, void *item, void *ctx)
{
    (void)item;
    (void)ctx;
    return i == 0 ? NULL : promise_rejected(-EIO);
}

MODULE_TEST(promise_list, null_for_a_promise_or_a_callback)
{
    EACH(f)
    {
        cr_rejected(f->s(NULL, 2, 0, fail, NULL), -EINVAL);
        cr_rejected(f->p(NULL, 2, 0, fail, NULL), -EINVAL);
        cr_rejected(f->n(2, NULL, 2, 0, fail, NULL), -EINVAL);
        cr_rejected(f->s(NULL, 2, 0, NULL, NULL), -EINVAL);
        cr_rejected(f->p(NULL, 0, 0, NULL, NULL), -EINVAL);
    }
    return NULL;
}

/* 0 and 1 wait; 2 rejects 1 and then 0; 3 fails at once. */
static struct promise *several_failures(size_t i, void *item, void *ctx)
{
    if (i < 2)
        return wait_for(i, item, ctx);
    if (i == 3)
        return promise_rejected(-EDOM);
    settle(1, -1);
    settle(0, -2);
    return promise_rejected(-3);
}

MODULE_TEST(promise_list, errors_present_at_the_call_count_in_list_order)
{
    EACH(f)
    {
        cr_rejected(f->p(NULL, 4, 0, several_failures, NULL), -2);
        forget();
        cr_rejected(f->n(9, NULL, 4, 0, several_failures, NULL), -2);
        forget();
    }
    return NULL;
}

MODULE_TEST(promise_list, later_errors_count_in_order_of_time)
{
    EACH(f)
    {
        struct promise *p = f->p(NULL, 3, 0, wait_for, NULL);

        settle(2, -1);
        settle(0, -2);
        settle(1, -3);
        cr_rejected(p, -1);
        forget();
        p = f->n(3, NULL, 5, 0, wait_for, NULL);
        settle(2, -1);
        settle(0, -2);
        settle(1, -3);
        cr_rejected(p, -1);
        forget();
    }
    return NULL;
}

/* ---- canceling ---- */

MODULE_TEST(promise_list, canceling_an_element_rejects_the_whole)
{
    EACH(f)
    {
        struct promise *p = f->s(NULL, 3, 0, wait_for, NULL);

        settle(0, f->go_on);
        promise_cancel(made[1]);
        told("01");
        cr_rejected(p, -ECANCELED);
        forget();

        p = f->p(NULL, 2, 0, wait_for, NULL);
        promise_cancel(made[0]);
        if (!f->question)
            settle(1, f->go_on);
        cr_rejected(p, -ECANCELED);
        forget();

        p = f->n(2, NULL, 4, 0, wait_for, NULL);
        promise_cancel(made[0]);
        if (!f->question)
            settle(1, f->go_on);
        told("01");
        cr_rejected(p, -ECANCELED);
        forget();
    }
    return NULL;
}

MODULE_TEST(promise_list, canceling_the_result_reaches_the_elements)
{
    EACH(f)
    {
        struct promise *p = f->s(NULL, 3, 0, wait_for, NULL);

        settle(0, f->go_on);
        promise_cancel(p);
        cr_rejected(promise_ref(made[1]), -ECANCELED);
        cr_rejected(p, -ECANCELED);
        told("01");
        forget();

        p = f->p(NULL, 3, 0, wait_for, NULL);
        settle(1, f->go_on);
        promise_cancel(p);
        cr_rejected(promise_ref(made[0]), -ECANCELED);
        cr_rejected(promise_ref(made[2]), -ECANCELED);
        cr_rejected(p, -ECANCELED);
        forget();

        p = f->n(2, NULL, 5, 0, wait_for, NULL);
        settle(0, f->go_on);
        promise_cancel(p);
        cr_rejected(promise_ref(made[1]), -ECANCELED);
        cr_rejected(promise_ref(made[2]), -ECANCELED);
        cr_rejected(p, -ECANCELED);
        told("012");
        forget();
    }
    return NULL;
}

static struct promise *wait_stubbornly(size_t i, void *item, void *ctx)
{
    struct promise *p = wait_for(i, item, ctx);

    return i == 0 ? promise_no_cancel(p) : p;
}

MODULE_TEST(promise_list, a_cancel_reaches_whatever_element_is_pending_then)
{
    EACH(f)
    {
        struct promise *p = f->s(NULL, 3, 0, wait_stubbornly, NULL);

        promise_cancel(p); /* nothing to cancel */
        cr_pending(p);
        settle(0, f->go_on);
        promise_cancel(p);
        cr_rejected(p, -ECANCELED);
        told("01");
        forget();
    }
    return NULL;
}

/* ---- memory ---- */

MODULE_TEST(promise_list, abandoned_elements_leave_nothing)
{
    EACH(f)
    {
        for (int kept = 0; kept < 2; kept++) {
            struct promise *result[3];

            result[0] = f->s(NULL, 3, 0, wait_for, NULL);
            settle(0, f->go_on);
            forget(); /* nobody can settle them any more */
            result[1] = f->p(NULL, 3, 0, wait_for, NULL);
            settle(0, f->go_on);
            forget();
            result[2] = f->n(2, NULL, 5, 0, wait_for, NULL);
            settle(0, f->go_on);
            forget();
            for (int i = 0; i < 3; i++) {
                cr_pending(result[i]);
                promise_unref(result[i]);
            }
        }
    }
    return NULL;
}

MODULE_TEST(promise_list, a_dropped_result_goes_on)
{
    EACH(f)
    {
        promise_unref(f->s(NULL, 3, 0, wait_for, NULL));
        settle(0, f->go_on);
        settle(1, f->go_on);
        settle(2, f->go_on);
        told("012");
        promise_unref(f->n(2, NULL, 3, 0, wait_for, NULL));
        settle(0, f->go_on);
        settle(1, f->go_on);
        settle(2, f->go_on);
        told("012");
        promise_unref(f->p(NULL, 3, 0, wait_for, NULL));
        forget();
    }
    return NULL;
}

MODULE_TEST(promise_list, without_memory)
{
    EACH(f)
    {
        for (size_t n = 0; n < 40; n++) {
            struct promise *results[3];

            for (int form = 0; form < 3; form++) {
                struct promise *p;

                promise__fail_after(n);
                p = form == 0   ? f->s(NULL, 2, 0, wait_for, NULL)
                    : form == 1 ? f->p(NULL, 2, 0, wait_for, NULL)
                                : f->n(2, NULL, 3, 0, wait_for, NULL);
                promise__fail_after(SIZE_MAX);
                results[form] = p;
                for (size_t i = 0; i < 3; i++)
                    if (made[i] != NULL && promise_state(made[i]) == PROMISE_PENDING)
                        settle(i, f->go_on);
                if (promise_state(p) == PROMISE_REJECTED && !(strcmp(f->name, "find") == 0))
                    cr_assert_eq(error_of(p), -ENOMEM);
                forget();
            }
            for (int form = 0; form < 3; form++)
                promise_unref(results[form]);
        }
    }
    return NULL;
}

MODULE_TEST(promise_list, without_memory_outside_of_blocks)
{
    EACH(f)
    {
        for (size_t n = 0; n < 12; n++)
            for (int form = 0; form < 3; form++) {
                struct promise *p;

                allocations_fail_after(n);
                p = form == 0   ? f->s(NULL, 3, 0, wait_for, NULL)
                    : form == 1 ? f->p(NULL, 3, 0, wait_for, NULL)
                                : f->n(2, NULL, 3, 0, wait_for, NULL);
                allocations_fail_after(SIZE_MAX);
                for (size_t i = 0; i < 3; i++)
                    if (made[i] != NULL && promise_state(made[i]) == PROMISE_PENDING)
                        settle(i, f->go_on);
                promise_unref(p);
                forget();
            }
    }
    return NULL;
}

static struct promise *left_pending(void *ctx)
{
    (void)ctx;
    EACH(f)
    {
        promise_unref(f->s(NULL, 3, 0, wait_for, NULL));
        promise_unref(f->p(NULL, 3, 0, wait_for, NULL));
        promise_unref(f->n(2, NULL, 3, 0, wait_for, NULL));
    }
    return promise_fulfilled(weft_num(0));
}

Test(promise_list, the_runtime_ends_while_elements_are_pending)
{
    for (const struct setup *s = setups; s < setups + setups_count; s++) {
        struct weft_options options = setup_options(s);

        cr_assert_eq(promise_run(left_pending, NULL, &options, NULL), 0);
        memset(made, 0, sizeof made);
    }
}

Test(promise_list, outside_a_runtime)
{
    EACH(f)
    {
        cr_assert_eq(error_of(f->s(NULL, 3, 0, wait_for, NULL)), -EINVAL);
        cr_assert_eq(error_of(f->p(NULL, 3, 0, wait_for, NULL)), -EINVAL);
        cr_assert_eq(error_of(f->n(2, NULL, 3, 0, wait_for, NULL)), -EINVAL);
    }
}

/* ---- many elements ---- */

static struct promise *at_once(size_t i, void *item, void *ctx)
{
    (void)i;
    (void)item;
    return promise_fulfilled(weft_num(*(int64_t *)ctx));
}

MODULE_TEST(promise_list, ten_million_settled_elements)
{
    EACH(f)
    {
        size_t count =
            module_rounds(f->s == promise_iter_s || f->s == promise_map_s ? 10000000 : 1000000);
        int64_t go_on = f->go_on;
        size_t before = promise__live();

        promise_unref(f->s(NULL, count, 0, at_once, &go_on));
        promise_unref(f->p(NULL, count / 10, 0, at_once, &go_on));
        promise_unref(f->n(5, NULL, count / 10, 0, at_once, &go_on));
        cr_assert_eq(promise__live(), before);
    }
    return NULL;
}

/* Nothing is held per element while a serial walk goes through settled ones. */
static struct promise *watch(size_t i, void *item, void *ctx)
{
    static size_t live;

    (void)item;
    if (i == 1000)
        live = promise__live();
    if (i > 1000)
        cr_assert_eq(promise__live(), live);
    return promise_fulfilled(weft_num(*(int64_t *)ctx));
}

MODULE_TEST(promise_list, settled_elements_take_no_blocks)
{
    EACH(f)
    {
        int64_t go_on = f->go_on;

        promise_unref(f->s(NULL, 3000, 0, watch, &go_on));
        promise_unref(f->p(NULL, 3000, 0, watch, &go_on));
        promise_unref(f->n(7, NULL, 3000, 0, watch, &go_on));
    }
    return NULL;
}

static size_t live_in_series;

static struct promise *pause_each(size_t i, void *item, void *ctx)
{
    (void)item;
    (void)ctx;
    if (i == 1000)
        live_in_series = promise__live();
    if (i > 1000)
        cr_assert_leq(promise__live(), live_in_series);
    return promise_pause();
}

MODULE_TEST(promise_list, many_pending_elements_in_series_keep_memory_flat)
{
    return promise_iter_s(NULL, module_rounds(500000), 0, pause_each, NULL);
}

static struct promise *chain;

static struct promise *pass_on(union weft_value value, void *ctx)
{
    (void)ctx;
    return promise_fulfilled(value);
}

/* Each element waits for the one before it, all settle in one go. */
static struct promise *chained(size_t i, void *item, void *ctx)
{
    (void)i;
    (void)item;
    (void)ctx;
    chain = promise_bind(chain, pass_on, NULL);
    return promise_ref(chain);
}

MODULE_TEST(promise_list, a_million_elements_that_settle_one_through_the_other)
{
    EACH(f)
    {
        size_t count =
            module_rounds(f->s == promise_iter_s || f->s == promise_exists_s ? 1000000 : 100000);
        struct promise *start = promise_create(), *p, *q;

        chain = promise_ref(start);
        p = f->p(NULL, count, 0, chained, NULL);
        q = f->n(100, NULL, count, 0, chained, NULL);
        cr_pending(p);
        promise_resolve(start, weft_num(f->go_on));
        promise_unref(start);
        promise_unref(chain);
        cr_assert_neq(promise_state(p), PROMISE_PENDING, "%s", f->name);
        cr_assert_neq(promise_state(q), PROMISE_PENDING, "%s", f->name);
        promise_unref(p);
        promise_unref(q);
    }
    return NULL;
}

/* Each call settles what another lane waits for, which calls the next within it: a recursion over
 * the elements, if nothing stops it. */
static struct promise *waiting[4096];
static size_t waiting_count;

static struct promise *settle_another(size_t i, void *item, void *ctx)
{
    static int depth;

    (void)item;
    if (i < 4096) {
        waiting[waiting_count] = promise_create();
        return promise_ref(waiting[waiting_count++]);
    }
    if (waiting_count > 0) {
        struct promise *p = waiting[--waiting_count];

        cr_assert_lt(++depth, 100);
        promise_resolve(p, weft_num(*(int64_t *)ctx));
        depth--;
        promise_unref(p);
    }
    return promise_fulfilled(weft_num(*(int64_t *)ctx));
}

static struct promise *drop_value(union weft_value value, void *ctx)
{
    const struct function *f = ctx;

    if (f->owns && strcmp(f->name, "partition") == 0)
        promise_partition_destroy(value.ptr);
    else if (f->owns)
        promise_values_destroy(value.ptr);
    return promise_fulfilled(weft_num(0));
}

static struct promise *drop_error(int err, void *ctx)
{
    (void)ctx;
    return err == -ENOENT ? promise_fulfilled(weft_num(0)) : promise_rejected(err);
}

static int64_t zero = 0, one = 1;

MODULE_TEST(promise_list, lanes_that_wake_each_other_do_not_recurse)
{
    struct promise *p[8];

    for (int k = 0; k < 8; k++) {
        const struct function *f = &functions[k];
        struct promise *first;

        waiting_count = 0;
        p[k] = promise_try_bind(f->n(4097, NULL, 12000, 0, settle_another, f->go_on ? &one : &zero),
                                drop_value, drop_error, (void *)(uintptr_t)f);
        while (waiting_count > 0) {
            first = waiting[--waiting_count];
            promise_resolve(first, weft_num(f->go_on));
            promise_unref(first);
        }
    }
    return promise_join(p, 8);
}

/* ---- what each gives ---- */

static int numbers[] = {3, 1, 4, 1, 5};

/* ctx: how far the element's promise is: 0 settled, 1 pauses first */
static int pausing;

static struct promise *delayed(union weft_value value, void *ctx)
{
    (void)value;
    return promise_fulfilled(weft_num((int64_t)(intptr_t)ctx));
}

static struct promise *give(int64_t value)
{
    if (pausing == 0)
        return promise_fulfilled(weft_num(value));
    return promise_bind(promise_pause(), delayed, (void *)(intptr_t)value);
}

static struct promise *square(size_t i, void *item, void *ctx)
{
    int n = *(int *)item;

    (void)ctx;
    cr_assert_eq(item, &numbers[i]);
    return give(n * n);
}

static struct promise *square_odd_index(size_t i, void *item, void *ctx)
{
    return i % 2 == 0 ? give(0) : square(i, item, ctx);
}

static struct promise *above_2(size_t i, void *item, void *ctx)
{
    (void)ctx;
    cr_assert_eq(item, &numbers[i]);
    return give(*(int *)item > 2);
}

static struct promise *above_9(size_t i, void *item, void *ctx)
{
    (void)i;
    (void)ctx;
    return give(*(int *)item > 9);
}

static struct promise *is_4(size_t i, void *item, void *ctx)
{
    (void)i;
    (void)ctx;
    return give(*(int *)item == 4);
}

static struct promise *not_4(size_t i, void *item, void *ctx)
{
    (void)i;
    (void)ctx;
    return give(*(int *)item != 4);
}

typedef void check_fn(union weft_value value);

static struct promise *check(union weft_value value, void *ctx)
{
    check_fn *fn;

    memcpy(&fn, ctx, sizeof fn);
    fn(value);
    return promise_fulfilled(weft_num(0));
}

/* The three forms over `numbers`, with settled and with pausing elements, one after the other. */
struct forms {
    list_fn *s, *p;
    bounded_fn *n;
    promise_item_fn *fn;
    check_fn *check;
};

static struct promise *one_form(size_t i, void *item, void *ctx)
{
    struct forms *forms = ctx;
    struct promise *p;

    (void)item;
    pausing = i >= 3;
    switch (i % 3) {
    case 0:
        p = forms->s(PROMISE_ITEMS(numbers), forms->fn, NULL);
        break;
    case 1:
        p = forms->p(PROMISE_ITEMS(numbers), forms->fn, NULL);
        break;
    default:
        p = forms->n(2, PROMISE_ITEMS(numbers), forms->fn, NULL);
        break;
    }
    cr_assert_eq(promise_state(p) == PROMISE_PENDING, i >= 3);
    return promise_bind(p, check, &forms->check);
}

static struct promise *all_forms(const struct forms *forms)
{
    static struct forms now;

    now = *forms;
    return promise_iter_s(NULL, 6, 0, one_form, &now);
}

#define ALL_FORMS(name, fn, check) \
    all_forms(                     \
        &(struct forms){promise_##name##_s, promise_##name##_p, promise_##name##_n, fn, check})

static void is_zero(union weft_value value)
{
    cr_assert_eq(value.num, 0);
}

static void is_one(union weft_value value)
{
    cr_assert_eq(value.num, 1);
}

static void holds(const struct promise_values *values, size_t count, const int64_t *expected)
{
    cr_assert_eq(values->count, count);
    for (size_t i = 0; i < count; i++) {
        cr_assert_eq(values->value[i].num, expected[i]);
        cr_assert_null(values->source[i]);
    }
}

static void holds_items(const struct promise_values *values, size_t count, const size_t *expected)
{
    cr_assert_eq(values->count, count);
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(values->value[i].ptr, &numbers[expected[i]]);
}

MODULE_TEST(promise_list, iter)
{
    return ALL_FORMS(iter, square, is_zero);
}

static void are_squares(union weft_value value)
{
    holds(value.ptr, 5, (int64_t[]){9, 1, 16, 1, 25});
    promise_values_destroy(value.ptr);
}

MODULE_TEST(promise_list, map)
{
    return ALL_FORMS(map, square, are_squares);
}

static void are_some_squares(union weft_value value)
{
    holds(value.ptr, 2, (int64_t[]){1, 1});
    promise_values_destroy(value.ptr);
}

MODULE_TEST(promise_list, filter_map)
{
    return ALL_FORMS(filter_map, square_odd_index, are_some_squares);
}

static void are_above_2(union weft_value value)
{
    holds_items(value.ptr, 3, (size_t[]){0, 2, 4});
    promise_values_destroy(value.ptr);
}

MODULE_TEST(promise_list, filter)
{
    return ALL_FORMS(filter, above_2, are_above_2);
}

static void are_both(union weft_value value)
{
    struct promise_partition *partition = value.ptr;

    holds_items(&partition->yes, 3, (size_t[]){0, 2, 4});
    holds_items(&partition->no, 2, (size_t[]){1, 3});
    promise_partition_destroy(partition);
}

MODULE_TEST(promise_list, partition)
{
    return ALL_FORMS(partition, above_2, are_both);
}

MODULE_TEST(promise_list, exists_true)
{
    return ALL_FORMS(exists, is_4, is_one);
}

MODULE_TEST(promise_list, exists_false)
{
    return ALL_FORMS(exists, above_9, is_zero);
}

MODULE_TEST(promise_list, for_all_true)
{
    return ALL_FORMS(for_all, square, is_one);
}

MODULE_TEST(promise_list, for_all_false)
{
    return ALL_FORMS(for_all, not_4, is_zero);
}

static void is_item_2(union weft_value value)
{
    cr_assert_eq(value.ptr, &numbers[2]);
}

MODULE_TEST(promise_list, find)
{
    return ALL_FORMS(find, is_4, is_item_2);
}

static struct promise *not_found(int err, void *ctx)
{
    (void)ctx;
    return err == -ENOENT ? promise_fulfilled(weft_num(0)) : promise_rejected(err);
}

static struct promise *unexpected(union weft_value value, void *ctx)
{
    (void)value;
    (void)ctx;
    return promise_rejected(-EBADMSG);
}

MODULE_TEST(promise_list, find_not_found)
{
    struct promise *p[6];

    for (pausing = 0; pausing < 2; pausing++) {
        struct promise **q = p + 3 * pausing;

        q[0] = promise_find_s(PROMISE_ITEMS(numbers), above_9, NULL);
        q[1] = promise_find_p(PROMISE_ITEMS(numbers), above_9, NULL);
        q[2] = promise_find_n(2, PROMISE_ITEMS(numbers), above_9, NULL);
    }
    for (int i = 0; i < 6; i++)
        p[i] = promise_try_bind(p[i], unexpected, not_found, NULL);
    return promise_join(p, 6);
}

MODULE_TEST(promise_list, no_elements)
{
    EACH(f)
    {
        struct promise *p[3] = {f->s(NULL, 0, 0, wait_for, NULL), f->p(NULL, 0, 0, wait_for, NULL),
                                f->n(2, NULL, 0, 0, wait_for, NULL)};

        for (int i = 0; i < 3; i++) {
            union weft_value value = weft_num(-1);

            if (strcmp(f->name, "find") == 0) {
                cr_rejected(p[i], -ENOENT);
                continue;
            }
            cr_assert_eq(promise_poll(p[i], &value, NULL), PROMISE_FULFILLED);
            if (f->owns)
                cr_assert_eq(((struct promise_values *)value.ptr)->count, 0);
            else
                cr_assert_eq(value.num, strcmp(f->name, "for_all") == 0);
            promise_unref(p[i]);
        }
    }
    told("");
    return NULL;
}

MODULE_TEST(promise_list, elements_without_an_array_are_their_indices)
{
    union weft_value value;
    struct promise *p = promise_find_p(NULL, 9, 0, wait_for, NULL);

    settle(7, 1);
    cr_value(p, 7);
    forget();
    p = promise_filter_p(NULL, 3, 0, wait_for, NULL);
    settle(2, 1);
    settle(1, 0);
    settle(0, 1);
    cr_assert_eq(promise_poll(p, &value, NULL), PROMISE_FULFILLED);
    holds(value.ptr, 2, (int64_t[]){0, 2});
    promise_unref(p);
    forget();
    return NULL;
}

/* ---- questions are answered by the first element that decides ---- */

MODULE_TEST(promise_list, questions_are_answered_at_once)
{
    EACH(f)
    {
        int64_t decides = !f->go_on;

        if (!f->question)
            continue;
        for (int form = 0; form < 2; form++) {
            struct promise *p =
                form == 0 ? f->p(NULL, 4, 0, wait_for, NULL) : f->n(3, NULL, 6, 0, wait_for, NULL);

            told(form == 0 ? "0123" : "012");
            settle(2, decides);
            cr_value(p, strcmp(f->name, "find") == 0 ? 2 : decides);
            cr_pending(made[1]); /* goes on */
            settle(0, -EIO);     /* concerns nobody */
            settle(1, f->go_on);
            told("");
            forget();
        }
    }
    return NULL;
}

/* 0 waits, 1 fails, 2 decides; or 1 decides, 2 too. */
static struct promise *decide(size_t i, void *item, void *ctx)
{
    const int64_t *result = ctx;

    if (i == 0)
        return wait_for(i, item, ctx);
    say("%zu", i);
    return result[i] < 0 ? promise_rejected((int)result[i])
                         : promise_fulfilled(weft_num(result[i]));
}

MODULE_TEST(promise_list, questions_decided_at_the_call)
{
    EACH(f)
    {
        int64_t decides = !f->go_on;
        bool finds = strcmp(f->name, "find") == 0;

        if (!f->question)
            continue;
        cr_rejected(f->p(NULL, 4, 0, decide, (int64_t[]){0, decides, -5, -6}), -5);
        told("0123"); /* all the same */
        forget();
        cr_value(f->p(NULL, 3, 0, decide, (int64_t[]){0, decides, decides}), finds ? 1 : decides);
        told("012");
        forget();
        cr_value(f->n(3, NULL, 3, 0, decide, (int64_t[]){0, decides, -5}), finds ? 1 : decides);
        told("01");
        forget();
        cr_value(f->s(NULL, 2, 0, at_once, (int64_t[]){decides}), finds ? 0 : decides);
    }
    return NULL;
}

/* ---- fold ---- */

static struct promise *digits(union weft_value so_far, size_t i, void *item, void *ctx)
{
    (void)ctx;
    cr_assert_eq(item, &numbers[i]);
    return give(so_far.num * 10 + *(int *)item);
}

static struct promise *is_number(union weft_value value, void *ctx)
{
    cr_assert_eq(value.num, *(int64_t *)ctx);
    return promise_fulfilled(weft_num(0));
}

MODULE_TEST(promise_list, fold_left_s)
{
    static int64_t expected = 731415;

    pausing = 0;
    cr_value(promise_fold_left_s(PROMISE_ITEMS(numbers), digits, weft_num(7), NULL), expected);
    cr_value(promise_fold_left_s(numbers, 0, sizeof(int), digits, weft_num(7), NULL), 7);
    pausing = 1;
    return promise_bind(promise_fold_left_s(PROMISE_ITEMS(numbers), digits, weft_num(7), NULL),
                        is_number, &expected);
}

MODULE_TEST(promise_list, fold_right_s)
{
    static int64_t expected = 751413;

    pausing = 0;
    cr_value(promise_fold_right_s(PROMISE_ITEMS(numbers), digits, weft_num(7), NULL), expected);
    cr_value(promise_fold_right_s(numbers, 0, sizeof(int), digits, weft_num(7), NULL), 7);
    pausing = 1;
    return promise_bind(promise_fold_right_s(PROMISE_ITEMS(numbers), digits, weft_num(7), NULL),
                        is_number, &expected);
}

static struct promise *fold_fails(union weft_value so_far, size_t i, void *item, void *ctx)
{
    (void)item;
    (void)ctx;
    say("%zu", i);
    return i == 1 ? promise_rejected(-EIO) : promise_fulfilled(so_far);
}

static struct promise *fold_waits(union weft_value so_far, size_t i, void *item, void *ctx)
{
    (void)so_far;
    return wait_for(i, item, ctx);
}

MODULE_TEST(promise_list, fold_fails_and_cancels)
{
    struct promise *p;

    cr_rejected(promise_fold_left_s(NULL, 4, 0, fold_fails, weft_num(0), NULL), -EIO);
    told("01");
    cr_rejected(promise_fold_right_s(NULL, 4, 0, fold_fails, weft_num(0), NULL), -EIO);
    told("321");
    cr_rejected(promise_fold_left_s(NULL, 4, 0, NULL, weft_num(0), NULL), -EINVAL);
    p = promise_fold_left_s(NULL, 3, 0, fold_waits, weft_num(0), NULL);
    settle(0, 1);
    promise_cancel(p);
    told("01");
    cr_rejected(p, -ECANCELED);
    forget();
    p = promise_fold_right_s(NULL, 3, 0, fold_waits, weft_num(0), NULL);
    settle(2, 1);
    promise_cancel(made[1]);
    told("21");
    cr_rejected(p, -ECANCELED);
    forget();
    return NULL;
}

static struct promise *fold_owned(union weft_value so_far, size_t i, void *item, void *ctx)
{
    int *sum = malloc(sizeof *sum);

    (void)i;
    (void)ctx;
    *sum = *(int *)item + (so_far.ptr != NULL ? *(int *)so_far.ptr : 0);
    free(so_far.ptr); /* the callback's, now */
    if (pausing == 2 && i == 3) {
        free(sum);
        return promise_rejected(-EIO);
    }
    return promise_fulfilled_owned(sum, free);
}

MODULE_TEST(promise_list, fold_values_with_destructors_change_hands)
{
    struct promise *p;
    union weft_value value;

    pausing = 0;
    p = promise_fold_left_s(PROMISE_ITEMS(numbers), fold_owned, weft_ptr(NULL), NULL);
    cr_assert_eq(promise_poll(p, &value, NULL), PROMISE_FULFILLED);
    cr_assert_eq(*(int *)value.ptr, 14);
    promise_unref(p);
    pausing = 2;
    cr_rejected(promise_fold_left_s(PROMISE_ITEMS(numbers), fold_owned, weft_ptr(NULL), NULL),
                -EIO);
    return NULL;
}

static struct promise *add_one(union weft_value so_far, size_t i, void *item, void *ctx)
{
    (void)i;
    (void)item;
    (void)ctx;
    return promise_fulfilled(weft_num(so_far.num + 1));
}

MODULE_TEST(promise_list, fold_over_ten_million)
{
    size_t count = module_rounds(10000000);

    cr_value(promise_fold_left_s(NULL, count, 0, add_one, weft_num(0), NULL), (int64_t)count);
    cr_value(promise_fold_right_s(NULL, count, 0, add_one, weft_num(0), NULL), (int64_t)count);
    return NULL;
}

/* ---- values with destructors ---- */

static struct promise *owned(size_t i, void *item, void *ctx)
{
    int *copy = malloc(sizeof *copy);
    struct promise *p = promise_create();

    (void)ctx;
    *copy = *(int *)item;
    if (i % 2 == 0 || pausing == 0) {
        promise_unref(p);
        return promise_fulfilled_owned(copy, free);
    }
    made[i] = promise_ref(p);
    promise_resolve_owned(made[i], copy, free);
    return p;
}

static struct promise *owned_later(size_t i, void *item, void *ctx)
{
    (void)item;
    (void)ctx;
    made[i] = promise_create();
    return promise_ref(made[i]);
}

static void owned_settle(size_t i)
{
    int *copy = malloc(sizeof *copy);
    struct promise *p = made[i];

    *copy = numbers[i];
    made[i] = NULL;
    promise_resolve_owned(p, copy, free);
    promise_unref(p);
}

MODULE_TEST(promise_list, map_holds_values_with_destructors)
{
    for (int form = 0; form < 6; form++) {
        struct promise *p;
        union weft_value value;
        struct promise_values *values;
        promise_item_fn *fn = form < 3 ? owned : owned_later;

        pausing = 1;
        p = form % 3 == 0   ? promise_map_s(PROMISE_ITEMS(numbers), fn, NULL)
            : form % 3 == 1 ? promise_map_p(PROMISE_ITEMS(numbers), fn, NULL)
                            : promise_filter_map_n(5, PROMISE_ITEMS(numbers), fn, NULL);
        if (form >= 3)
            for (size_t i = 0; i < 5; i++)
                owned_settle(i);
        forget();
        cr_assert_eq(promise_poll(p, &value, NULL), PROMISE_FULFILLED);
        values = value.ptr;
        cr_assert_eq(values->count, 5);
        for (size_t i = 0; i < 5; i++)
            cr_assert_eq(*(int *)values->value[i].ptr, numbers[i]);
        promise_unref(p);
    }
    return NULL;
}

MODULE_TEST(promise_list, the_others_drop_values_with_destructors)
{
    EACH(f)
    {
        pausing = 1;
        promise_unref(f->s(PROMISE_ITEMS(numbers), owned, NULL));
        forget();
        promise_unref(f->p(PROMISE_ITEMS(numbers), owned, NULL));
        forget();
        promise_unref(f->n(2, PROMISE_ITEMS(numbers), owned, NULL));
        forget();
    }
    return NULL;
}

/* ---- local values; fibers ---- */

static const struct weft_key key = {.name = "key"};
static list_fn *called;
static struct promise *walk;

static struct promise *sees_value(size_t i, void *item, void *ctx)
{
    (void)item;
    say("%s", (const char *)weft_get(&key));
    (void)ctx;
    return wait_for(i, item, ctx);
}

static void start_walk(void *ctx)
{
    walk = called(NULL, 2, 0, sees_value, ctx);
}

MODULE_TEST(promise_list, callbacks_see_the_local_values_of_the_call)
{
    EACH(f)
    {
        called = f->s;
        promise_with_value(&key, "v", start_walk, NULL);
        settle(0, f->go_on);
        told("v0v1");
        promise_unref(walk);
        forget();
    }
    return NULL;
}

#if WEFT_HAS_FIBERS
static struct promise *on_base(size_t i, void *item, void *ctx)
{
    (void)item;
    (void)ctx;
    cr_assert_null(fiber_self(), "a callback ran on a fiber's stack");
    return i % 2 == 0 ? promise_pause() : promise_fulfilled(weft_num(1));
}

static int fiber_main(void *arg)
{
    (void)arg;
    EACH(f)
    {
        int rc = fiber_await(f->s(NULL, 4, 0, on_base, NULL), NULL, WEFT_FOREVER);

        cr_assert(rc == 0, "%s: %d", f->name, rc);
        rc = fiber_await(f->p(NULL, 4, 0, on_base, NULL), NULL, WEFT_FOREVER);
        cr_assert(rc == 0, "%s: %d", f->name, rc);
        rc = fiber_await(f->n(2, NULL, 4, 0, on_base, NULL), NULL, WEFT_FOREVER);
        cr_assert(rc == 0, "%s: %d", f->name, rc);
    }
    /* the elements that a decided question left behind */
    cr_assert_eq(fiber_await(promise_pause(), NULL, WEFT_FOREVER), 0);
    cr_assert_eq(promise__live(), 0);
    return 0;
}

Test(promise_list, on_a_fiber)
{
    for (const struct setup *s = setups; s < setups + setups_count; s++)
        cr_assert_eq(run_on(s, fiber_main, NULL), 0, "%s: %s", s->name, report_text());
}
#endif
