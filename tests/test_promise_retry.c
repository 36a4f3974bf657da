/* weft/promise_retry.h. */
#include "test_promise_modules.h"

#include <weft/promise_retry.h>

static uint64_t succeeds_at; /* 0: never */

static struct promise *attempt(uint64_t number, void *ctx)
{
    struct promise *p = number == succeeds_at ? promise_fulfilled(weft_num((int64_t)number * 10))
                                              : promise_rejected(-(int)(100 + number));

    say("%s%llu ", (const char *)ctx, (unsigned long long)number);
    return p;
}

static struct promise *after_pause(union weft_value value, void *ctx)
{
    (void)value;
    return ctx;
}

static struct promise *attempt_later(uint64_t number, void *ctx)
{
    return promise_bind(promise_pause(), after_pause, attempt(number, ctx));
}

static void succeed_at(uint64_t number)
{
    succeeds_at = number;
}

MODULE_TEST(promise_retry, succeeds_at_once)
{
    succeed_at(1);
    cr_value(promise_retry(5, attempt, "a"), 10);
    told("a1 ");
    return NULL;
}

MODULE_TEST(promise_retry, succeeds_after_failures)
{
    succeed_at(3);
    cr_value(promise_retry(5, attempt, "a"), 30);
    told("a1 a2 a3 ");
    return NULL;
}

MODULE_TEST(promise_retry, n_times_is_at_most_n_plus_one)
{
    succeed_at(0);
    cr_rejected(promise_retry(3, attempt, "a"), -104);
    told("a1 a2 a3 a4 ");
    cr_rejected(promise_retry(0, attempt, "a"), -101);
    told("a1 ");
    succeed_at(4);
    cr_value(promise_retry(3, attempt, "a"), 40);
    told("a1 a2 a3 a4 ");
    cr_rejected(promise_retry(2, attempt, "a"), -103);
    told("a1 a2 a3 ");
    return NULL;
}

MODULE_TEST(promise_retry, negative_n_is_an_error)
{
    cr_rejected(promise_retry(-1, attempt, "a"), -EINVAL);
    cr_rejected(promise_retry(INT64_MIN, attempt, "a"), -EINVAL);
    cr_rejected(promise_retry(1, NULL, "a"), -EINVAL);
    told("");
    return NULL;
}

static struct promise *check(union weft_value value, void *ctx)
{
    told(ctx);
    return value.num == 30 ? promise_fulfilled(value) : promise_rejected(-EBADMSG);
}

MODULE_TEST(promise_retry, attempts_that_take_time)
{
    succeed_at(3);
    return promise_bind(promise_retry(5, attempt_later, "a"), check, "a1 a2 a3 ");
}

static struct promise *check_error(int err, void *ctx)
{
    told(ctx);
    return err == -103 ? promise_fulfilled(weft_num(0)) : promise_rejected(-EBADMSG);
}

MODULE_TEST(promise_retry, attempts_that_take_time_and_fail)
{
    succeed_at(0);
    return promise_catch(promise_retry(2, attempt_later, "a"), check_error, "a1 a2 a3 ");
}

static enum promise_verdict judge(int err, uint64_t number, void *ctx)
{
    say("%s%d/%llu ", (const char *)ctx, err, (unsigned long long)number);
    return err == -102 ? PROMISE_FATAL : PROMISE_RETRY;
}

MODULE_TEST(promise_retry, a_fatal_error_ends_it)
{
    struct promise_retry_options options = PROMISE_RETRY_OPTIONS_INIT;

    succeed_at(3);
    options.judge = judge;
    options.ctx = "j";
    options.base = -1;
    cr_rejected(promise_retry_with(5, attempt, "a", &options), -102);
    told("a1 j-101/1 a2 j-102/2 ");
    /* not asked about the last */
    cr_rejected(promise_retry_with(0, attempt, "a", &options), -101);
    told("a1 ");
    return NULL;
}

static int64_t delay(uint64_t number, void *ctx)
{
    say("%s%llu ", (const char *)ctx, (unsigned long long)number);
    return number == 2 ? 0 : (int64_t)number * 1000;
}

static weft_time began;

static struct promise *check_delays(union weft_value value, void *ctx)
{
    (void)ctx;
    cr_assert_geq(weft_now(), began + 4000);
    told("a1 d1 a2 d2 a3 d3 a4 ");
    return promise_fulfilled(value);
}

MODULE_TEST(promise_retry, with_sleep)
{
    struct promise_retry_options options = PROMISE_RETRY_OPTIONS_INIT;

    succeed_at(4);
    options.delay = delay;
    options.ctx = "d";
    began = weft_now();
    return promise_bind(promise_retry_with(5, attempt, "a", &options), check_delays, NULL);
}

static struct promise *check_default(union weft_value value, void *ctx)
{
    (void)ctx;
    /* 1 * 100 us * 2, then 2 * 100 us * 4 cut to 500 us */
    cr_assert_geq(weft_now(), began + WEFT_US(700));
    return promise_fulfilled(value);
}

MODULE_TEST(promise_retry, with_sleep_by_default)
{
    struct promise_retry_options options = PROMISE_RETRY_OPTIONS_INIT;

    succeed_at(3);
    options.base = WEFT_US(100);
    options.longest = WEFT_US(500);
    began = weft_now();
    return promise_bind(promise_retry_with(5, attempt, "a", &options), check_default, NULL);
}

MODULE_TEST(promise_retry, options)
{
    struct promise_retry_options options = {.size = 3};
    struct promise *p;

    cr_rejected(promise_retry_with(1, attempt, "a", &options), -EINVAL);
    succeed_at(2);
    p = promise_retry_with(1, attempt, "a", NULL); /* sleeps 4 seconds */
    cr_pending(p);
    cr_assert_geq(weft__rt->timers->at, weft_now() + WEFT_SEC(3));
    promise_cancel(p);
    cr_assert_null(weft__rt->timers);
    cr_rejected(p, -ECANCELED);
    told("a1 ");
    return NULL;
}

MODULE_TEST(promise_retry, backoff)
{
    cr_assert_eq(promise_backoff(0, 5), 0);
    cr_assert_eq(promise_backoff(1, WEFT_SEC(2)), WEFT_SEC(4));
    cr_assert_eq(promise_backoff(2, WEFT_SEC(2)), WEFT_SEC(16));
    cr_assert_eq(promise_backoff(3, WEFT_SEC(2)), WEFT_SEC(48));
    cr_assert_eq(promise_backoff(4, WEFT_SEC(2)), WEFT_SEC(128));
    cr_assert_eq(promise_backoff(3, 0), 0);
    cr_assert_eq(promise_backoff(3, -1), 0);
    cr_assert_eq(promise_backoff(62, 1), INT64_MAX);
    cr_assert_eq(promise_backoff(57, 1), 57 * ((int64_t)1 << 57));
    cr_assert_eq(promise_backoff(58, 1), INT64_MAX);
    cr_assert_eq(promise_backoff(63, 1), INT64_MAX);
    cr_assert_eq(promise_backoff(UINT64_MAX, 1), INT64_MAX);
    cr_assert_eq(promise_backoff(2, INT64_MAX), INT64_MAX);
    return NULL;
}

static struct promise *task;

static struct promise *attempt_task(uint64_t number, void *ctx)
{
    say("%s%llu ", (const char *)ctx, (unsigned long long)number);
    return promise_ref(task);
}

MODULE_TEST(promise_retry, a_cancel_is_not_retried)
{
    struct promise_retry_options options = PROMISE_RETRY_OPTIONS_INIT;
    struct promise *p;

    options.judge = judge;
    options.ctx = "j";
    task = promise_create_task();
    p = promise_retry_with(5, attempt_task, "a", &options);
    cr_pending(p);
    promise_cancel(p);
    cr_rejected(p, -ECANCELED);
    cr_rejected(task, -ECANCELED);
    told("a1 ");
    return NULL;
}

static struct promise *gives_null(uint64_t number, void *ctx)
{
    (void)number;
    (void)ctx;
    return NULL;
}

MODULE_TEST(promise_retry, null_is_a_failure)
{
    cr_rejected(promise_retry(2, gives_null, NULL), -EINVAL);
    return NULL;
}

static struct promise *gives_owned(uint64_t number, void *ctx)
{
    (void)ctx;
    return number < 2 ? promise_rejected(-EIO) : promise_fulfilled_owned(malloc(4), free);
}

MODULE_TEST(promise_retry, the_value_stays_owned)
{
    union weft_value value;
    struct promise *p = promise_retry(2, gives_owned, NULL);

    cr_assert_eq(promise_poll(p, &value, NULL), PROMISE_FULFILLED);
    memset(value.ptr, 1, 4);
    promise_unref(p);
    return NULL;
}

static struct promise *fails(uint64_t number, void *ctx)
{
    (void)ctx;
    return number == 1000000 ? promise_fulfilled(weft_num(1)) : promise_rejected(-EIO);
}

MODULE_TEST(promise_retry, a_million_attempts)
{
    cr_value(promise_retry(INT64_MAX, fails, NULL), 1);
    return NULL;
}

static struct promise *fails_later(uint64_t number, void *ctx)
{
    (void)ctx;
    if (number == 1000)
        return promise_pause();
    return promise_bind(promise_pause(), after_pause, promise_rejected(-EIO));
}

static struct promise *flat(union weft_value value, void *ctx)
{
    (void)ctx;
    cr_assert_lt(promise__live(), 20);
    return promise_fulfilled(value);
}

MODULE_TEST(promise_retry, many_pending_attempts_keep_memory_flat)
{
    return promise_bind(promise_retry(INT64_MAX, fails_later, NULL), flat, NULL);
}

MODULE_TEST(promise_retry, abandoned)
{
    task = promise_create();
    promise_unref(promise_retry(5, attempt_task, "a"));
    promise_unref(task); /* nobody can settle it any more */
    return NULL;
}

MODULE_TEST(promise_retry, without_memory)
{
    for (size_t n = 0; n < 12; n++) {
        struct promise *p;

        task = promise_create();
        promise__fail_after(n);
        p = promise_retry(1, attempt_task, "a");
        promise__fail_after(SIZE_MAX);
        promise_reject(task, -EIO);
        promise_unref(task);
        cr_assert(error_of(p) == -EIO || error_of(p) == -ENOMEM);
        promise_unref(p);
        test_log[0] = '\0';
    }
    return NULL;
}
