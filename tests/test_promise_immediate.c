/* Settled promises that are their own handle: they behave as those with a block do, wherever a
 * promise can be given, and cost none. */
#include "test_promise.h"

#include <weft/promise_list.h>

#include <stdlib.h>

#define LARGEST  (INT64_MAX / 4)
#define SMALLEST (-LARGEST - 1)

static const int64_t fit[] = {0, 1, -1, 2, 3, 4, 7, -4, LARGEST, LARGEST - 1, SMALLEST};
static const int64_t too_large[] = {LARGEST + 1, SMALLEST - 1, INT64_MAX, INT64_MIN};

#define EACH(i, array) for (size_t i = 0; i < sizeof(array) / sizeof *(array); i++)

PROMISE_TEST(immediate, values_at_the_limits)
{
    EACH(i, fit)
    {
        struct promise *p = promise_fulfilled(weft_num(fit[i]));

        cr_assert_not_null(p);
        cr_assert_eq(promise__live(), 0);
        cr_value(p, fit[i]);
        cr_assert_eq(promise_ref(p), p);
        promise_unref(p);
        cr_value(p, fit[i]);
        promise_unref(p);
    }
    EACH(i, too_large)
    {
        struct promise *p = promise_fulfilled(weft_num(too_large[i]));

        cr_assert_eq(promise__live(), 1);
        cr_value(p, too_large[i]);
        promise_unref(p);
    }
    for (int err = -1; err > -5000; err--)
        cr_rejected(promise_rejected(err), err);
    cr_rejected(promise_rejected(INT32_MIN), INT32_MIN);
    cr_rejected(promise_rejected(0), -EINVAL);
    cr_assert_eq(promise__live(), 0);
}

PROMISE_TEST(immediate, pointers_fit)
{
    char on_the_stack;
    void *pointers[] = {NULL, &on_the_stack, malloc(1), (void *)(uintptr_t)test_log};

    EACH(i, pointers)
    {
        union weft_value value = weft_num(1);
        struct promise *p = promise_fulfilled(weft_ptr(pointers[i]));

        cr_assert_eq(promise_poll(p, &value, NULL), PROMISE_FULFILLED);
        cr_assert_eq(value.ptr, pointers[i]);
        promise_unref(p);
    }
    cr_assert_eq(promise__live(), 0);
    free(pointers[2]);
}

/* ---- each function gets each kind of settled promise ---- */

/* The same outcome in a handle and in a block. */
static struct promise *value_of_kind(int kind)
{
    struct promise *p;

    if (kind == 0)
        return promise_fulfilled(weft_num(5));
    p = promise_create();
    cr_assert_eq(promise_resolve(p, weft_num(5)), 0);
    return p;
}

static struct promise *error_of_kind(int kind)
{
    struct promise *p;

    if (kind == 0)
        return promise_rejected(-EIO);
    p = promise_create();
    cr_assert_eq(promise_reject(p, -EIO), 0);
    return p;
}

static struct promise *give_pending(void *ctx)
{
    return promise_ref(ctx);
}

static struct promise *bind_pending(union weft_value value, void *ctx)
{
    (void)value;
    return promise_ref(ctx);
}

static void check_value(struct promise *p, int64_t value)
{
    cr_value(p, value);
    promise_unref(p);
}

static void check_error(struct promise *p, int err)
{
    cr_rejected(p, err);
    promise_unref(p);
}

static struct promise *value_back(union weft_value value, void *kind)
{
    cr_assert_eq(value.num, 5);
    return value_of_kind(*(int *)kind);
}

static struct promise *error_back(int err, void *kind)
{
    cr_assert_eq(err, -EIO);
    return error_of_kind(*(int *)kind);
}

static struct promise *value_thunk(void *kind)
{
    return value_of_kind(*(int *)kind);
}

static struct promise *error_thunk(void *kind)
{
    return error_of_kind(*(int *)kind);
}

static int add_one(union weft_value in, void *ctx, union weft_value *out)
{
    (void)ctx;
    *out = weft_num(in.num + 1);
    return 0;
}

PROMISE_TEST(immediate, in_sequence)
{
    for (int kind = 0; kind < 2; kind++) {
        check_value(promise_bind(value_of_kind(kind), value_back, &kind), 5);
        check_error(promise_bind(error_of_kind(kind), value_back, &kind), -EIO);
        check_value(promise_map(value_of_kind(kind), add_one, NULL), 6);
        check_error(promise_map(error_of_kind(kind), add_one, NULL), -EIO);
        check_value(promise_catch(value_of_kind(kind), error_back, &kind), 5);
        check_error(promise_catch(error_of_kind(kind), error_back, &kind), -EIO);
        check_value(promise_try_bind(value_of_kind(kind), value_back, error_back, &kind), 5);
        check_error(promise_try_bind(error_of_kind(kind), value_back, error_back, &kind), -EIO);
        check_value(promise_finalize(value_of_kind(kind), value_thunk, &kind), 5);
        check_error(promise_finalize(value_of_kind(kind), error_thunk, &kind), -EIO);
        check_error(promise_finalize(error_of_kind(kind), value_thunk, &kind), -EIO);
        check_value(promise_protected(value_of_kind(kind)), 5);
        check_value(promise_no_cancel(value_of_kind(kind)), 5);
        check_error(promise_wrap_in_cancelable(error_of_kind(kind)), -EIO);
    }
}

/* A pending result that a callback's settled promise settles. */
PROMISE_TEST(immediate, as_a_callbacks_result)
{
    for (int kind = 0; kind < 2; kind++) {
        struct promise *source = promise_create(), *gate = promise_create(), *p[8];

        p[0] = promise_bind(promise_ref(source), value_back, &kind);
        p[1] = promise_try_bind(promise_ref(source), value_back, error_back, &kind);
        p[2] = promise_finalize(promise_ref(source), value_thunk, &kind);
        p[3] = promise_finalize(promise_ref(source), error_thunk, &kind);
        p[4] = promise_finalize(promise_ref(source), give_pending, gate);
        p[5] = promise_finalize(value_of_kind(kind), give_pending, gate);
        p[6] = promise_finalize(error_of_kind(kind), give_pending, gate);
        p[7] = promise_bind(promise_ref(source), bind_pending, gate);
        cr_assert_eq(promise_resolve(source, weft_num(5)), 0);
        check_value(p[0], 5);
        check_value(p[1], 5);
        check_value(p[2], 5);
        check_error(p[3], -EIO);
        for (int i = 4; i < 8; i++)
            cr_pending(p[i]);
        cr_assert_eq(promise_resolve(gate, weft_num(9)), 0);
        check_value(p[4], 5);
        check_value(p[5], 5);
        check_error(p[6], -EIO);
        check_value(p[7], 9);
        promise_unref(source);
        promise_unref(gate);
    }
}

/* A cleanup dropped while it waits gives back an outcome that needs no giving back. */
PROMISE_TEST(immediate, outcome_of_an_abandoned_cleanup)
{
    for (int kind = 0; kind < 2; kind++) {
        struct promise *gate = promise_create();

        promise_unref(promise_finalize(value_of_kind(kind), give_pending, gate));
        promise_unref(gate);
    }
}

static int note_value(union weft_value value, void *ctx)
{
    (void)ctx;
    say("=%lld ", (long long)value.num);
    return 0;
}

static int note_error(int err, void *ctx)
{
    (void)ctx;
    say("!%d ", err);
    return 0;
}

static int note_end(void *ctx)
{
    say("%s ", (const char *)ctx);
    return 0;
}

static void note_failure(int err, void *ctx)
{
    (void)ctx;
    say("failed %d ", err);
}

PROMISE_TEST(immediate, callbacks_on_the_side)
{
    for (int kind = 0; kind < 2; kind++) {
        struct promise *value = value_of_kind(kind), *error = error_of_kind(kind);
        struct promise *canceled = promise_rejected(-ECANCELED);

        cr_assert_eq(promise_on_success(value, note_value, NULL), 0);
        cr_assert_eq(promise_on_success(error, note_value, NULL), 0);
        cr_assert_eq(promise_on_failure(value, note_error, NULL), 0);
        cr_assert_eq(promise_on_failure(error, note_error, NULL), 0);
        cr_assert_eq(promise_on_any(value, note_value, note_error, NULL), 0);
        cr_assert_eq(promise_on_any(error, note_value, note_error, NULL), 0);
        cr_assert_eq(promise_on_termination(value, note_end, "end"), 0);
        cr_assert_eq(promise_on_cancel(error, note_end, "not canceled"), 0);
        cr_assert_eq(promise_on_cancel(canceled, note_end, "canceled"), 0);
        told("=5 !-5 =5 !-5 end canceled ");
        promise_cancel(value);
        promise_cancel(error);
        cr_assert_eq(promise_dont_wait(value, note_failure, NULL), 0);
        cr_assert_eq(promise_dont_wait(promise_ref(error), note_failure, NULL), 0);
        told("failed -5 ");
        cr_assert_eq(promise_ignore_result(error), -EIO);
    }
}

PROMISE_TEST(immediate, is_no_resolver)
{
    struct promise *p = promise_fulfilled(weft_num(1));

    cr_assert_eq(promise_resolve(p, weft_num(2)), -EINVAL);
    cr_assert_eq(promise_reject(p, -EIO), -EINVAL);
    cr_assert_eq(promise_resolve_later(promise_rejected(-EIO), weft_num(2)), -EINVAL);
    cr_value(p, 1);
}

/* ---- as an operand ---- */

static const char *values_text(struct promise *p)
{
    static char text[200];
    union weft_value value = weft_ptr(NULL);
    const struct promise_values *values;
    int err = 0;

    text[0] = '\0';
    if (promise_poll(p, &value, &err) == PROMISE_REJECTED) {
        snprintf(text, sizeof text, "!%d", err);
    } else {
        values = value.ptr;
        for (size_t i = 0; i < values->count; i++) {
            snprintf(text + strlen(text), sizeof text - strlen(text), "%lld ",
                     (long long)values->value[i].num);
            if (values->source[i] != NULL)
                cr_value(values->source[i], values->value[i].num);
        }
    }
    promise_unref(p);
    return text;
}

typedef struct promise *combine_fn(struct promise *const promises[], size_t count);

PROMISE_TEST(immediate, as_an_operand_of_settled_ones)
{
    for (int kind = 0; kind < 2; kind++) {
        struct promise *good[] = {promise_fulfilled(weft_num(1)), value_of_kind(kind)};
        struct promise *bad[] = {value_of_kind(kind), error_of_kind(kind),
                                 promise_rejected(-EPIPE)};

#define TAKE(p) (promise_ref((p)[0]), promise_ref((p)[1]), (p))
        cr_assert_str_eq(values_text(promise_all(TAKE(good), 2)), "1 5 ");
        cr_assert_str_eq(values_text(promise_nchoose(TAKE(good), 2)), "1 5 ");
        cr_assert_str_eq(values_text(promise_npick(TAKE(good), 2)), "1 5 ");
        check_value(promise_choose(TAKE(good), 2), 1);
        check_value(promise_pick(TAKE(good), 2), 1);
        check_value(promise_join(TAKE(good), 2), 0);
        check_error(promise_all(TAKE(bad), 3), -EIO);
        check_error(promise_join(TAKE(bad), 3), -EIO);
        check_error(promise_choose(TAKE(bad), 3), -EIO);
        check_error(promise_pick(TAKE(bad), 3), -EIO);
        check_error(promise_npick(TAKE(bad), 3), -EIO);
        check_error(promise_nchoose(TAKE(bad), 3), -EIO);
        check_error(promise_nchoose_split(TAKE(bad), 3), -EIO);
#undef TAKE
        promise_unref(good[1]);
        promise_unref(bad[0]);
        promise_unref(bad[1]);
    }
}

PROMISE_TEST(immediate, as_an_operand_among_pending_ones)
{
    for (int kind = 0; kind < 2; kind++) {
        struct promise *gate = promise_create_task(), *split;
        struct promise *mixed[] = {value_of_kind(kind), gate};
        struct promise *failing[] = {error_of_kind(kind), gate};
        struct promise *all, *join, *failed;
        union weft_value value;

        promise_ref(gate);
        all = promise_all((promise_ref(mixed[0]), promise_ref(gate), mixed), 2);
        join = promise_join((promise_ref(mixed[0]), promise_ref(gate), mixed), 2);
        failed = promise_join(failing, 2);
        split = promise_nchoose_split((promise_ref(gate), mixed), 2);
        cr_assert_eq(promise_poll(split, &value, NULL), PROMISE_FULFILLED);
        cr_assert_eq(((struct promise_split *)value.ptr)->values.count, 1);
        cr_assert_eq(((struct promise_split *)value.ptr)->pending_count, 1);
        promise_unref(split);
        cr_assert_eq(promise_resolve(gate, weft_num(2)), 0);
        cr_assert_str_eq(values_text(all), "5 2 ");
        check_value(join, 0);
        check_error(failed, -EIO);
        promise_unref(gate);
    }
}

/* ---- what the modules keep of it ---- */

static struct promise *echo(size_t index, void *item, void *ctx)
{
    (void)index;
    (void)ctx;
    return promise_fulfilled(weft_num(*(int64_t *)item));
}

PROMISE_TEST(immediate, through_the_lists)
{
    int64_t items[] = {1, LARGEST + 1, -7};

    cr_assert_str_eq(values_text(promise_map_p(items, 3, sizeof *items, echo, NULL)),
                     "1 2305843009213693952 -7 ");
    cr_assert_str_eq(values_text(promise_map_s(items, 3, sizeof *items, echo, NULL)),
                     "1 2305843009213693952 -7 ");
}

PROMISE_TEST(immediate, the_statistics_count_blocks)
{
    struct weft_stats stats = {.size = sizeof stats};
    struct promise *small = promise_fulfilled(weft_num(1)), *block = promise_create();

    cr_assert_eq(weft_stats(&stats), 0);
    cr_assert_eq(stats.promises, 1);
    promise_unref(small);
    promise_unref(block);
    cr_assert_eq(weft_stats(&stats), 0);
    cr_assert_eq(stats.promises, 0);
}

/* ---- without memory, without a runtime ---- */

PROMISE_TEST(immediate, needs_no_memory)
{
    promise__fail_after(0);
    check_value(promise_bind(promise_fulfilled(weft_num(5)), value_back, &(int){0}), 5);
    check_value(promise_map(promise_fulfilled(weft_num(5)), add_one, NULL), 6);
    check_error(promise_from_result(-EIO), -EIO);
    check_error(promise_fulfilled(weft_num(INT64_MIN)), -ENOMEM);
    promise__fail_after(SIZE_MAX);
}

Test(immediate, needs_no_runtime)
{
    union weft_value value = weft_num(0);
    struct promise *p = promise_fulfilled(weft_num(5));

    cr_assert_eq(promise_poll(promise_ref(p), &value, NULL), PROMISE_FULFILLED);
    cr_assert_eq(value.num, 5);
    cr_rejected(promise_rejected(-EIO), -EIO);
    cr_assert_eq(promise_resolve(p, value), -EINVAL);
    promise_cancel(p);
    promise_unref(p);
    promise_unref(p);
    /* but nothing runs, and no block can be made */
    cr_rejected(promise_bind(p, value_back, &(int){0}), -EINVAL);
    cr_rejected(promise_map(p, add_one, NULL), -EINVAL);
    cr_rejected(promise_all(&p, 1), -EINVAL);
    cr_rejected(promise_fulfilled(weft_num(INT64_MAX)), -EINVAL);
    cr_assert_eq(promise_on_success(p, note_value, NULL), -EINVAL);
}
