/* weft/promise_throttle.h. */
#include "test_promise_modules.h"

#include <weft/promise_throttle.h>

#define LONG  WEFT_SEC(1000)
#define SHORT WEFT_MS(1)

static struct promise_throttle *throttle;

static void create(uint64_t rate, int64_t period, size_t max)
{
    cr_assert_eq(promise_throttle_create(&throttle, rate, period, max), 0);
}

static void destroy(void)
{
    promise_throttle_destroy(throttle);
    cr_assert_null(weft__rt->timers, "a timer is left");
}

Test(promise_throttle, create)
{
    cr_assert_eq(promise_throttle_create(&throttle, 0, 1, 1), -EINVAL);
    cr_assert_eq(promise_throttle_create(&throttle, 1, 0, 1), -EINVAL);
    cr_assert_eq(promise_throttle_create(NULL, 1, 1, 1), -EINVAL);
    cr_assert_eq(promise_throttle_create(&throttle, 1, 1, 0), 0);
    promise_throttle_destroy(throttle);
    promise_throttle_destroy(NULL);
}

MODULE_TEST(promise_throttle, passes_up_to_the_rate)
{
    struct promise *waits;

    create(3, LONG, 10);
    for (int i = 0; i < 3; i++)
        cr_value(promise_throttle_wait(throttle, 7), 1);
    cr_assert_null(weft__rt->timers, "a timer for nobody");
    waits = promise_throttle_wait(throttle, 7);
    cr_pending(waits);
    cr_assert_eq(promise_throttle_waiting(throttle), 1);
    cr_value(promise_throttle_wait(throttle, 8), 1); /* another key */
    cr_assert_eq(promise_throttle_keys(throttle), 2);
    destroy();
    cr_rejected(waits, -ECANCELED);
    return NULL;
}

MODULE_TEST(promise_throttle, turns_away_beyond_max)
{
    struct promise *p, *q;

    create(1, LONG, 2);
    cr_value(promise_throttle_wait(throttle, 1), 1);
    cr_value(promise_throttle_wait(throttle, 2), 1);
    p = promise_throttle_wait(throttle, 1);
    q = promise_throttle_wait(throttle, 2);
    cr_value(promise_throttle_wait(throttle, 1), 0); /* max is for all keys */
    cr_value(promise_throttle_wait(throttle, 2), 0);
    cr_value(promise_throttle_wait(throttle, 3), 1);
    promise_cancel(p); /* makes room */
    cr_rejected(p, -ECANCELED);
    p = promise_throttle_wait(throttle, 1);
    cr_pending(p);
    destroy();
    cr_rejected(p, -ECANCELED);
    cr_rejected(q, -ECANCELED);
    create(1, LONG, 0);
    cr_value(promise_throttle_wait(throttle, 1), 1);
    cr_value(promise_throttle_wait(throttle, 1), 0);
    destroy();
    return NULL;
}

static weft_time began;
static int passed;

static int pass(union weft_value value, void *ctx)
{
    int number = (int)(intptr_t)ctx;

    cr_assert_eq(value.num, 1);
    cr_assert_eq(passed++, number, "%d overtook", number);
    cr_assert_geq(weft_now(), began + number / 2 * SHORT, "%d is early", number);
    return 0;
}

static struct promise *pause_first(union weft_value value, void *ctx)
{
    (void)value;
    (void)ctx;
    return promise_pause();
}

static struct promise *end(union weft_value value, void *ctx)
{
    (void)ctx;
    cr_assert_eq(passed, 7);
    cr_assert_eq(promise_throttle_waiting(throttle), 0);
    destroy();
    return promise_fulfilled(value);
}

MODULE_TEST(promise_throttle, the_queue_moves_each_period_in_order)
{
    struct promise *p[7];

    create(2, SHORT, 100);
    passed = 0;
    began = weft_now();
    for (int i = 0; i < 7; i++) {
        p[i] = promise_throttle_wait(throttle, 1);
        promise_on_success(p[i], pass, (void *)(intptr_t)i);
    }
    /* the callbacks above were attached first, and so run last */
    return promise_bind(promise_bind(promise_join(p, 7), pause_first, NULL), end, NULL);
}

static struct promise *again(union weft_value value, void *ctx)
{
    (void)ctx;
    cr_value(promise_throttle_wait(throttle, 1), 1);
    cr_assert_eq(promise_throttle_keys(throttle), 1, "the other key is still there");
    destroy();
    return promise_fulfilled(value);
}

MODULE_TEST(promise_throttle, a_period_passes_and_idle_keys_go)
{
    create(1, SHORT, 0);
    cr_value(promise_throttle_wait(throttle, 1), 1);
    cr_value(promise_throttle_wait(throttle, 2), 1);
    return promise_bind(promise_sleep(SHORT), again, NULL);
}

MODULE_TEST(promise_throttle, names)
{
    char name[] = "alice";

    create(1, LONG, 0);
    cr_value(promise_throttle_wait_name(throttle, name), 1);
    name[0] = 'b';
    cr_value(promise_throttle_wait_name(throttle, "alice"), 0);
    cr_value(promise_throttle_wait_name(throttle, "blice"), 1);
    cr_value(promise_throttle_wait_name(throttle, ""), 1);
    cr_value(promise_throttle_wait_name(throttle, ""), 0);
    cr_value(promise_throttle_wait(throttle, 0), 1); /* a number is no name */
    cr_value(promise_throttle_wait(throttle, 0), 0);
    cr_value(promise_throttle_wait(throttle, UINT64_MAX), 1);
    cr_assert_eq(promise_throttle_keys(throttle), 5);
    cr_rejected(promise_throttle_wait_name(throttle, NULL), -EINVAL);
    cr_rejected(promise_throttle_wait(NULL, 1), -EINVAL);
    destroy();
    return NULL;
}

MODULE_TEST(promise_throttle, cancel)
{
    struct promise *p[4];

    create(1, LONG, 10);
    for (int i = 0; i < 4; i++)
        p[i] = promise_throttle_wait(throttle, 1);
    cr_value(p[0], 1);
    cr_assert_not_null(weft__rt->timers);
    for (int i = 1; i < 4; i++) {
        promise_cancel(p[i]);
        cr_rejected(p[i], -ECANCELED);
        cr_assert_eq(promise_throttle_waiting(throttle), (size_t)(3 - i));
    }
    cr_assert_null(weft__rt->timers, "a timer for nobody");
    destroy();
    return NULL;
}

static struct promise *others[3];

static struct promise *cancels_the_next(union weft_value value, void *ctx)
{
    (void)ctx;
    promise_cancel(others[1]);
    cr_rejected(promise_ref(others[1]), -ECANCELED);
    cr_pending(others[2]);
    /* and ends the throttle, with one whose turn has come */
    promise_throttle_destroy(throttle);
    return promise_fulfilled(value);
}

static struct promise *look_at_others(union weft_value value, void *ctx)
{
    (void)ctx;
    cr_rejected(others[1], -ECANCELED);
    cr_value(others[2], 1);
    return promise_fulfilled(value);
}

MODULE_TEST(promise_throttle, callbacks_may_do_anything)
{
    struct promise *p;

    for (;;) { /* until all of it happens in one period */
        create(3, SHORT, 10);
        for (int i = 0; i < 3; i++)
            cr_value(promise_throttle_wait(throttle, 1), 1);
        for (int i = 0; i < 3; i++)
            others[i] = promise_throttle_wait(throttle, 1);
        if (promise_throttle_waiting(throttle) == 3)
            break;
        destroy();
        for (int i = 0; i < 3; i++)
            promise_unref(others[i]);
    }
    p = promise_bind(others[0], cancels_the_next, NULL);
    p = promise_bind(p, pause_first, NULL);
    return promise_bind(p, look_at_others, NULL);
}

static int asks_again(int err, void *ctx)
{
    (void)ctx;
    cr_assert_eq(err, -ECANCELED);
    passed++;
    return 0;
}

MODULE_TEST(promise_throttle, destroy_cancels_those_who_wait)
{
    struct promise *p[20];

    passed = 0;
    create(1, LONG, 20);
    for (int i = 0; i < 20; i++) {
        p[i] = promise_throttle_wait(throttle, (uint64_t)(i % 3));
        promise_on_failure(p[i], asks_again, NULL);
    }
    destroy();
    cr_assert_eq(passed, 17);
    for (int i = 0; i < 20; i++)
        promise_unref(p[i]);
    return NULL;
}

MODULE_TEST(promise_throttle, many_keys)
{
    const uint64_t count = slow_tools() ? 1000 : 50000;

    create(1, LONG, 0);
    for (int round = 0; round < 2; round++)
        for (uint64_t i = 0; i < count; i++)
            cr_value(promise_throttle_wait(throttle, i * 0x9e3779b97f4a7c15u), round == 0);
    cr_assert_eq(promise_throttle_keys(throttle), count);
    destroy();
    return NULL;
}

MODULE_TEST(promise_throttle, without_memory)
{
    create(1, LONG, 10);
    cr_value(promise_throttle_wait(throttle, 1), 1);
    promise__fail_after(0);
    cr_rejected(promise_throttle_wait(throttle, 1), -ENOMEM);
    promise__fail_after(SIZE_MAX);
    cr_assert_eq(promise_throttle_waiting(throttle), 0);
    destroy();
    return NULL;
}

static struct promise *leaves_waiting(void *ctx)
{
    (void)ctx;
    create(1, LONG, 10);
    for (int i = 0; i < 3; i++)
        others[i] = promise_throttle_wait(throttle, 1);
    return promise_fulfilled(weft_num(0));
}

static void quiet(void *ctx, const char *line)
{
    (void)ctx;
    (void)line;
}

Test(promise_throttle, destroy_after_the_runtime)
{
    struct weft_options options = WEFT_OPTIONS_INIT;

    options.report = quiet;
    cr_assert_eq(promise_run(leaves_waiting, NULL, &options, NULL), 0);
    promise_throttle_destroy(throttle);
}
