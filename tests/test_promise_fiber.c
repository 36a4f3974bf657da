/* needs: fibers */
/* Promises and fibers: callbacks run on the base stack, waiting is a plain wake, local values
 * follow. */
#include "test_promise.h"

#include <weft/fiber.h>

#include <errno.h>
#include <stdlib.h>

static void quiet_run(weft_main_fn *main, void *arg, int expected)
{
    struct weft_options options = WEFT_OPTIONS_INIT;

    options.report = quiet_report;
    cr_assert_eq(weft_run(main, arg, &options), expected);
}

#define FIBER_TEST(name)                 \
    static int name##_main(void *arg);   \
    Test(promise_fiber, name)            \
    {                                    \
        quiet_run(name##_main, NULL, 0); \
    }                                    \
    static int name##_main(void *arg __attribute__((unused)))

static struct promise *tell_strand(union weft_value value, void *ctx)
{
    say("%s:%s ", (const char *)ctx, fiber_self() == NULL ? "base" : "fiber");
    return promise_fulfilled(value);
}

static int map_strand(union weft_value value, void *ctx, union weft_value *out)
{
    promise_unref(tell_strand(value, ctx));
    *out = value;
    return 0;
}

static struct promise *catch_strand(int err, void *ctx)
{
    return tell_strand(weft_num(err), ctx);
}

static struct promise *thunk_strand(void *ctx)
{
    return tell_strand(weft_num(0), ctx);
}

static int done_strand(void *ctx)
{
    promise_unref(tell_strand(weft_num(0), ctx));
    return 0;
}

static void count_strand(size_t count, void *ctx)
{
    (void)count;
    done_strand(ctx);
}

FIBER_TEST(callbacks_run_on_the_base_stack)
{
    struct promise *p = promise_create_task(), *q, *pair[2];

    promise_unref(promise_bind(promise_fulfilled(weft_num(0)), tell_strand, "bind"));
    promise_unref(promise_map(promise_fulfilled(weft_num(0)), map_strand, "map"));
    promise_unref(promise_catch(promise_rejected(-EIO), catch_strand, "catch"));
    promise_unref(promise_finalize(promise_rejected(-EIO), thunk_strand, "finalize"));
    promise_unref(promise_call(thunk_strand, "call"));
    q = promise_bind(promise_ref(p), tell_strand, "later");
    promise_on_cancel(p, done_strand, "on_cancel");
    promise_on_termination(p, done_strand, "on");
    promise_cancel(q);
    promise_on_termination(q, done_strand, "at once");
    promise_unref(q);
    promise_unref(p);
    told("bind:base map:base catch:base finalize:base call:base on_cancel:base on:base at "
         "once:base ");

    p = promise_create_task();
    promise_on_cancel(p, done_strand, "loser");
    pair[0] = p;
    pair[1] = promise_fulfilled(weft_num(0));
    promise_unref(promise_pick(pair, 2));
    promise_set_pause_notifier(count_strand, "notifier");
    p = promise_bind(promise_pause(), tell_strand, "paused");
    promise_wakeup_paused();
    promise_unref(p);
    told("loser:base notifier:base paused:base ");
    cr_assert_not_null(fiber_self());
    return 0;
}

static const struct weft_key key = {.name = "key"};

static struct promise *tell_key(union weft_value value, void *ctx)
{
    const char *bound = weft_get(&key);

    (void)ctx;
    say("%s ", bound != NULL ? bound : "none");
    return promise_fulfilled(value);
}

FIBER_TEST(local_values_follow)
{
    struct promise *p = promise_create(), *q;

    weft_set(&key, "fiber's");
    promise_unref(promise_bind(promise_fulfilled(weft_num(0)), tell_key, NULL));
    q = promise_bind(promise_ref(p), tell_key, NULL);
    weft_set(&key, "later");
    promise_resolve(p, weft_num(0));
    say("%s ", (const char *)weft_get(&key));
    told("fiber's fiber's later ");
    promise_unref(p);
    promise_unref(q);
    return 0;
}

static int64_t await_it(void *arg)
{
    union weft_value value = weft_num(0);
    int rc = fiber_await(promise_ref(arg), &value, WEFT_FOREVER);

    say("%d:%lld ", rc, (long long)value.num);
    return 0;
}

FIBER_TEST(many_fibers_await_one_promise)
{
    struct promise *p = promise_create();

    for (int i = 0; i < 3; i++)
        fiber_detach(await_it, p);
    fiber_yield();
    cr_assert(!(p->link.flags & PROMISE__ACTIVE)); /* settling it will not switch stacks */
    promise_resolve(p, weft_num(5));
    told("");
    fiber_yield();
    told("0:5 0:5 0:5 ");
    promise_unref(p);
    return 0;
}

FIBER_TEST(a_deadline_leaves_the_list)
{
    struct promise *p = promise_create();
    union weft_value value;

    cr_assert_eq(fiber_await(promise_ref(p), &value, weft_after(1)), -ETIMEDOUT);
    cr_assert_null(p->waiters);
    cr_assert_eq(fiber_await(promise_ref(p), &value, WEFT_NOWAIT), -ETIMEDOUT);
    promise_resolve(p, weft_num(3));
    cr_assert_eq(fiber_await(p, &value, WEFT_NOWAIT), 0);
    cr_assert_eq(value.num, 3);
    cr_assert_eq(promise__live(), 0);
    return 0;
}

static int64_t resolve_it(void *arg)
{
    promise_resolve(arg, weft_num(4));
    promise_unref(arg);
    return 11;
}

FIBER_TEST(awaiting_what_a_bind_has_become)
{
    struct promise *trigger = promise_create(), *inner = promise_create();
    struct promise *q = promise_bind(promise_ref(trigger), give_promise, inner);
    struct promise *spawned;
    union weft_value value;

    fiber_detach(resolve_it, trigger);
    spawned = fiber_spawn(resolve_it, inner);
    cr_assert_eq(fiber_await(q, &value, WEFT_FOREVER), 0);
    cr_assert_eq(value.num, 4);
    cr_assert_eq(fiber_await(spawned, &value, WEFT_FOREVER), 0);
    cr_assert_eq(value.num, 11);
    cr_assert_eq(promise__live(), 0);
    return 0;
}

static void count_destroyed(void *ptr)
{
    ++*(int *)ptr;
}

FIBER_TEST(the_last_reference_takes_the_value)
{
    int destroyed = 0;
    union weft_value value;
    struct promise *p = promise_fulfilled_owned(&destroyed, count_destroyed);

    cr_assert_eq(fiber_await(promise_ref(p), &value, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_await(p, &value, WEFT_FOREVER), 0);
    cr_assert_eq(value.ptr, &destroyed);
    cr_assert_eq(destroyed, 0);
    p = promise_fulfilled_owned(&destroyed, count_destroyed);
    cr_assert_eq(fiber_await(p, NULL, WEFT_FOREVER), 0);
    cr_assert_eq(destroyed, 1);
    return 0;
}

static struct promise *await_in_callback(union weft_value value, void *ctx)
{
    int *rc = ctx;

    *rc = fiber_await(promise_create(), &value, WEFT_FOREVER);
    return promise_fulfilled(value);
}

FIBER_TEST(awaiting_in_a_callback_is_an_error)
{
    int rc = 0;

    promise_unref(promise_bind(promise_fulfilled(weft_num(0)), await_in_callback, &rc));
    cr_assert_eq(rc, -EDEADLK);
    return 0;
}

FIBER_TEST(sleeping_promises_and_fibers_mix)
{
    struct promise *pair[2] = {promise_sleep(WEFT_SEC(1000)), promise_sleep(WEFT_MS(1))};
    union weft_value value;

    cr_assert_eq(fiber_await(promise_pick(pair, 2), &value, WEFT_FOREVER), 0);
    cr_assert_eq(promise__live(), 0);
    return 0;
}
