/* Each function of weft/promise_time.h. Times are only ever asserted not to be early. */
#include "test_promise_modules.h"

#include <weft/promise_time.h>

#define LONG  WEFT_SEC(1000)
#define SHORT WEFT_MS(1)

static bool no_timer(void)
{
    return weft__rt->timers == NULL;
}

static weft_time began;

static struct promise *timed_out(int err, void *ctx)
{
    cr_assert_eq(err, -ETIMEDOUT);
    cr_assert_geq(weft_now(), began + SHORT);
    cr_assert(no_timer());
    say("%s", (const char *)ctx);
    return promise_fulfilled(weft_num(0));
}

MODULE_TEST(promise_time, timeout)
{
    began = weft_now();
    return promise_catch(promise_timeout(SHORT), timed_out, "");
}

MODULE_TEST(promise_time, timeout_at)
{
    began = weft_now() - SHORT;
    return promise_catch(promise_timeout_at(began), timed_out, ""); /* a time past: next pass */
}

MODULE_TEST(promise_time, a_canceled_timeout_is_released_at_once)
{
    struct promise *p = promise_timeout(LONG);

    cr_pending(p);
    cr_assert_not(no_timer());
    promise_cancel(p);
    cr_assert(no_timer());
    cr_rejected(p, -ECANCELED);
    return NULL;
}

MODULE_TEST(promise_time, timeout_without_memory)
{
    promise__fail_after(0);
    cr_rejected(promise_timeout(LONG), -ENOMEM);
    promise__fail_after(SIZE_MAX);
    return NULL;
}

/* ---- with_timeout ---- */

MODULE_TEST(promise_time, with_timeout_the_promise_wins)
{
    struct promise *r = promise_create(), *p = promise_with_timeout(LONG, promise_ref(r));

    cr_pending(p);
    promise_resolve(r, weft_num(3));
    promise_unref(r);
    cr_assert(no_timer(), "the timer is still there");
    cr_value(p, 3);
    return NULL;
}

MODULE_TEST(promise_time, with_timeout_the_promise_fails)
{
    struct promise *r = promise_create(), *p = promise_with_timeout(LONG, promise_ref(r));

    promise_reject(r, -EIO);
    promise_unref(r);
    cr_assert(no_timer());
    cr_rejected(p, -EIO);
    return NULL;
}

static int tell_cancel(void *ctx)
{
    say("%s", (const char *)ctx);
    return 0;
}

static struct promise *slow;

static struct promise *check_slow(union weft_value value, void *ctx)
{
    (void)ctx;
    told("canceled timeout");
    cr_rejected(slow, -ECANCELED);
    return promise_fulfilled(value);
}

MODULE_TEST(promise_time, with_timeout_the_time_wins)
{
    slow = promise_create_task();
    promise_on_cancel(slow, tell_cancel, "canceled ");
    began = weft_now();
    return promise_bind(
        promise_catch(promise_with_timeout(SHORT, promise_ref(slow)), timed_out, "timeout"),
        check_slow, NULL);
}

static struct promise *check_uncanceled(union weft_value value, void *ctx)
{
    (void)ctx;
    cr_pending(slow);
    promise_resolve(slow, weft_num(1));
    promise_unref(slow);
    return promise_fulfilled(value);
}

MODULE_TEST(promise_time, with_timeout_of_a_promise_that_cannot_be_canceled)
{
    slow = promise_create();
    began = weft_now();
    return promise_bind(
        promise_catch(promise_with_timeout(SHORT, promise_ref(slow)), timed_out, ""),
        check_uncanceled, NULL);
}

MODULE_TEST(promise_time, with_timeout_of_a_settled_promise)
{
    cr_value(promise_with_timeout(LONG, promise_fulfilled(weft_num(1))), 1);
    cr_value(promise_with_timeout(0, promise_fulfilled(weft_num(1))), 1);
    cr_rejected(promise_with_timeout(LONG, promise_rejected(-EIO)), -EIO);
    cr_rejected(promise_with_timeout(LONG, NULL), -EINVAL);
    cr_assert(no_timer());
    return NULL;
}

MODULE_TEST(promise_time, canceling_with_timeout)
{
    struct promise *task = promise_create_task(),
                   *p = promise_with_timeout(LONG, promise_ref(task));

    promise_cancel(p);
    cr_assert(no_timer());
    cr_rejected(p, -ECANCELED);
    cr_rejected(task, -ECANCELED);
    return NULL;
}

MODULE_TEST(promise_time, with_deadline)
{
    struct promise *r = promise_create(), *p = promise_with_deadline(WEFT_FOREVER, promise_ref(r));

    promise_resolve(r, weft_num(3));
    promise_unref(r);
    cr_value(p, 3);
    cr_assert(no_timer());
    began = weft_now() - SHORT;
    return promise_catch(promise_with_deadline(began, promise_create_task()), timed_out, "");
}

static struct promise *give(void *ctx)
{
    return promise_ref(ctx);
}

MODULE_TEST(promise_time, call_with_timeout)
{
    struct promise *r = promise_create(), *p = promise_call_with_timeout(LONG, give, r);

    promise_resolve(r, weft_num(3));
    promise_unref(r);
    cr_value(p, 3);
    cr_rejected(promise_call_with_timeout(LONG, give, NULL), -EINVAL);
    cr_rejected(promise_call_with_timeout(LONG, NULL, NULL), -EINVAL);
    began = weft_now();
    r = promise_create_task();
    p = promise_catch(promise_call_with_timeout(SHORT, give, r), timed_out, "");
    promise_unref(r);
    return p;
}

MODULE_TEST(promise_time, many_timeouts_leave_nothing)
{
    for (int i = 0; i < (slow_tools() ? 1000 : 100000); i++) {
        struct promise *r = promise_create(), *p = promise_with_timeout(LONG, promise_ref(r));

        promise_resolve(r, weft_num(i));
        promise_unref(r);
        cr_value(p, i);
    }
    cr_assert(no_timer());
    return NULL;
}

MODULE_TEST(promise_time, with_timeout_without_memory)
{
    for (size_t n = 0; n < 5; n++) {
        struct promise *task = promise_create_task(), *p;

        promise__fail_after(n);
        p = promise_with_timeout(0, promise_ref(task));
        promise__fail_after(SIZE_MAX);
        if (promise_state(p) == PROMISE_PENDING)
            promise_cancel(p);
        else
            cr_assert_eq(error_of(p), -ENOMEM);
        promise_unref(p);
        promise_unref(task);
    }
    return promise_sleep(SHORT); /* a timer whose pick could not be made is over by then */
}

/* ---- the timer ---- */

static struct promise_timer timer, other;
static struct promise *fired;
static int count;

static int fire_once(void *ctx)
{
    cr_assert_not(promise_timer_running(&timer));
    cr_assert_geq(weft_now(), began + SHORT);
    count++;
    promise_resolve(fired, weft_num(0));
    promise_unref(fired);
    say("%s", (const char *)ctx);
    return 0;
}

static struct promise *once(union weft_value value, void *ctx)
{
    (void)ctx;
    cr_assert_eq(count, 1);
    cr_assert(no_timer());
    return promise_fulfilled(value);
}

static struct promise *begin(void)
{
    count = 0;
    began = weft_now();
    fired = promise_create();
    return promise_bind(promise_ref(fired), once, NULL);
}

MODULE_TEST(promise_time, timer_init)
{
    cr_assert_eq(promise_timer_init(&timer, 0, fire_once, NULL), -EINVAL);
    cr_assert_eq(promise_timer_init(&timer, -1, fire_once, NULL), -EINVAL);
    cr_assert_eq(promise_timer_init(&timer, 1, NULL, NULL), -EINVAL);
    cr_assert_eq(promise_timer_init(NULL, 1, fire_once, NULL), -EINVAL);
    cr_assert_eq(promise_timer_init(&timer, 1, fire_once, NULL), 0);
    cr_assert_not(promise_timer_running(&timer));
    return NULL;
}

MODULE_TEST(promise_time, timer_fires_once)
{
    struct promise *p = begin();

    promise_timer_init(&timer, SHORT, fire_once, "");
    cr_assert_eq(promise_timer_start(&timer), 0);
    cr_assert(promise_timer_running(&timer));
    return p;
}

MODULE_TEST(promise_time, timer_started_twice_fires_once)
{
    struct promise *p = begin();

    promise_timer_init(&timer, SHORT, fire_once, "");
    promise_timer_start(&timer);
    promise_timer_start(&timer);
    return p;
}

MODULE_TEST(promise_time, timer_stop)
{
    promise_timer_init(&timer, SHORT, fire_once, "");
    promise_timer_stop(&timer); /* does nothing */
    promise_timer_start(&timer);
    promise_timer_stop(&timer);
    cr_assert_not(promise_timer_running(&timer));
    cr_assert(no_timer());
    return promise_sleep(2 * SHORT); /* it would fire, and crash */
}

MODULE_TEST(promise_time, timer_change_before_start)
{
    struct promise *p = begin();

    promise_timer_init(&timer, LONG, fire_once, "");
    cr_assert_eq(promise_timer_change(&timer, SHORT), 0);
    cr_assert_not(promise_timer_running(&timer));
    promise_timer_start(&timer);
    return p;
}

MODULE_TEST(promise_time, timer_change_after_start)
{
    struct promise *p = begin();

    promise_timer_init(&timer, LONG, fire_once, "");
    promise_timer_start(&timer);
    cr_assert_eq(promise_timer_change(&timer, 0), -EINVAL);
    cr_assert_eq(promise_timer_change(&timer, SHORT), 0);
    cr_assert(promise_timer_running(&timer));
    return p;
}

MODULE_TEST(promise_time, timer_restart_puts_it_off)
{
    struct promise *p = begin();
    weft_time until = weft_after(SHORT);

    promise_timer_init(&timer, SHORT, fire_once, "");
    promise_timer_start(&timer);
    while (weft_now() < until)
        ;
    began = weft_now();
    promise_timer_start(&timer); /* it was due */
    return p;
}

static int tick(void *ctx)
{
    if (++count == 5) {
        promise_resolve(fired, weft_num(0));
        promise_unref(fired);
    } else {
        cr_assert_eq(promise_timer_start(ctx), 0);
    }
    return 0;
}

static struct promise *five(union weft_value value, void *ctx)
{
    (void)ctx;
    cr_assert_eq(count, 5);
    cr_assert_geq(weft_now(), began + 5 * SHORT);
    return promise_fulfilled(value);
}

MODULE_TEST(promise_time, timer_periodic)
{
    count = 0;
    began = weft_now();
    fired = promise_create();
    promise_timer_init(&timer, SHORT, tick, &timer);
    promise_timer_start(&timer);
    return promise_bind(promise_ref(fired), five, NULL);
}

static int tell_timer(void *ctx)
{
    say("%s", (const char *)ctx);
    return 0;
}

static struct promise *in_order(union weft_value value, void *ctx)
{
    told(ctx);
    return promise_fulfilled(value);
}

MODULE_TEST(promise_time, two_timers)
{
    promise_timer_init(&timer, 2 * SHORT, tell_timer, "b");
    promise_timer_init(&other, SHORT, tell_timer, "a");
    promise_timer_start(&timer);
    promise_timer_start(&other);
    return promise_bind(promise_sleep(3 * SHORT), in_order, "ab");
}

MODULE_TEST(promise_time, two_timers_the_first_stopped)
{
    promise_timer_init(&timer, SHORT, tell_timer, "a");
    promise_timer_init(&other, SHORT, tell_timer, "b");
    promise_timer_start(&timer);
    promise_timer_start(&other);
    promise_timer_stop(&timer);
    return promise_bind(promise_sleep(2 * SHORT), in_order, "b");
}

static int failing(void *ctx)
{
    (void)ctx;
    return -EIO;
}

static void hook(int err, void *ctx)
{
    cr_assert_eq(err, -EIO);
    say("%s", (const char *)ctx);
}

MODULE_TEST(promise_time, a_timers_error_goes_to_the_hook)
{
    promise_set_error_hook(hook, "hook");
    promise_timer_init(&timer, SHORT, failing, NULL);
    promise_timer_start(&timer);
    return promise_bind(promise_sleep(2 * SHORT), in_order, "hook");
}

Test(promise_time, outside_a_runtime)
{
    cr_assert_eq(error_of(promise_timeout(1)), -EINVAL);
    cr_assert_eq(error_of(promise_with_timeout(1, NULL)), -EINVAL);
    cr_assert_eq(promise_timer_init(&timer, 1, tell_timer, NULL), 0);
    cr_assert_eq(promise_timer_start(&timer), -EINVAL);
    promise_timer_stop(&timer);
}
