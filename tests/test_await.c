/* needs: fibers */
/* Fibers waiting for promises, and promises of fibers. */
#include "fiber_internal.h"
#include "harness.h"
#include "promise_internal.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define EACH_SETUP(s) for (const struct setup *s = setups; s < setups + setups_count; s++)

static char trace[4096];

static void note(const char *what)
{
    strncat(trace, what, sizeof trace - strlen(trace) - 1);
}

static size_t live_at_end;

/* Each test's main, and then nothing of it may be alive. */
struct guarded {
    weft_main_fn *main;
};

static int guarded_main(void *arg)
{
    int rc = ((struct guarded *)arg)->main(NULL);

    live_at_end = promise__live();
    return rc;
}

static void run_each(weft_main_fn *main, const char *expected)
{
    struct guarded guarded = {main};

    EACH_SETUP(setup)
    {
        trace[0] = '\0';
        cr_assert_eq(run_on(setup, guarded_main, &guarded), 0, "%s: %s", setup->name,
                     report_text());
        cr_assert_str_eq(trace, expected, "%s", setup->name);
        cr_assert_eq(live_at_end, 0, "%s: %zu promises left", setup->name, live_at_end);
    }
}

static int64_t returns(void *arg)
{
    return (int64_t)(intptr_t)arg;
}

static int results_main(void *arg)
{
    union weft_value value = weft_num(-1);

    (void)arg;
    cr_assert_eq(fiber_await(fiber_spawn(returns, (void *)7), &value, WEFT_FOREVER), 0);
    cr_assert_eq(value.num, 7);
    cr_assert_eq(fiber_await(fiber_spawn(returns, (void *)-(intptr_t)EPIPE), &value, WEFT_FOREVER),
                 -EPIPE);
    cr_assert_eq(value.num, 7);
    cr_assert_eq(fiber_await(fiber_spawn(returns, (void *)-(intptr_t)100000), NULL, WEFT_FOREVER),
                 -EINVAL);
    promise_unref(fiber_spawn(returns, NULL)); /* dropped: it runs all the same */
    fiber_yield();
    return 0;
}

Test(await, a_fibers_result_comes_through_its_promise)
{
    run_each(results_main, "");
}

static int settled_main(void *arg)
{
    struct weft_stats before = {.size = sizeof before}, after = before;
    union weft_value value;

    (void)arg;
    weft_stats(&before);
    for (int i = 0; i < 100; i++) {
        cr_assert_eq(fiber_await(promise_fulfilled(weft_num(i)), &value, WEFT_NOWAIT), 0);
        cr_assert_eq(value.num, i);
        cr_assert_eq(fiber_await(promise_rejected(-EIO), &value, WEFT_FOREVER), -EIO);
    }
    weft_stats(&after);
    cr_assert_eq(before.passes, after.passes, "a settled promise made the fiber give way");
    return 0;
}

Test(await, a_settled_promise_does_not_switch)
{
    run_each(settled_main, "");
}

static struct promise *shared;

static int64_t waits(void *name)
{
    union weft_value value;

    cr_assert_eq(fiber_await(promise_ref(shared), &value, WEFT_FOREVER), 0);
    cr_assert_eq(value.num, 5);
    note(name);
    return 0;
}

static int shared_main(void *arg)
{
    (void)arg;
    shared = promise_create();
    fiber_detach(waits, "a");
    fiber_detach(waits, "b");
    fiber_detach(waits, "c");
    fiber_yield();
    note("r");
    cr_assert_eq(promise_resolve(shared, weft_num(5)), 0);
    note("R"); /* waking is queueing: nobody has run yet */
    cr_assert_eq(promise_resolve(shared, weft_num(6)), -EALREADY);
    fiber_yield();
    fiber_yield();
    promise_unref(shared);
    return 0;
}

Test(await, all_waiters_of_a_promise_are_woken)
{
    /* the last attached is woken first: Lwt's order, for fibers too */
    run_each(shared_main, "rRcba");
}

static int deadline_main(void *arg)
{
    struct promise *p = promise_create();
    weft_time until = weft_after(WEFT_MS(1));

    (void)arg;
    cr_assert_eq(fiber_await(promise_ref(p), NULL, WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert_eq(fiber_await(promise_ref(p), NULL, 1), -ETIMEDOUT);
    cr_assert_eq(fiber_await(promise_ref(p), NULL, until), -ETIMEDOUT);
    cr_assert_geq(weft_now(), until);
    cr_assert_eq(promise_resolve(p, weft_num(1)), 0); /* nothing stale is woken */
    cr_assert_eq(fiber_await(p, NULL, weft_after(WEFT_SEC(100))), 0);
    cr_assert_null(weft__rt->timers, "a deadline was left behind");
    return 0;
}

Test(await, deadlines)
{
    run_each(deadline_main, "");
}

static int64_t resolves_late(void *arg)
{
    fiber_sleep(WEFT_MS(1));
    promise_resolve(arg, weft_num(3));
    promise_unref(arg);
    return 0;
}

static int before_deadline_main(void *arg)
{
    struct promise *p = promise_create();
    union weft_value value;

    (void)arg;
    fiber_detach(resolves_late, promise_ref(p));
    cr_assert_eq(fiber_await(p, &value, weft_after(WEFT_SEC(100))), 0);
    cr_assert_eq(value.num, 3);
    cr_assert_null(weft__rt->timers);
    return 0;
}

Test(await, a_promise_settled_in_time_stops_the_deadline)
{
    run_each(before_deadline_main, "");
}

/* ---- callbacks and the base stack ---- */

static struct promise *in_callback(union weft_value value, void *ctx)
{
    struct promise *p = promise_create();

    cr_assert_null(fiber_self(), "a callback ran on a fiber's stack");
    cr_assert_eq(fiber_await(promise_ref(p), NULL, WEFT_FOREVER), -EDEADLK);
    cr_assert_eq(fiber_await(promise_fulfilled(value), NULL, WEFT_FOREVER), -EDEADLK);
    promise_unref(p);
    note(ctx);
    return promise_fulfilled(value);
}

static int callback_main(void *arg)
{
    struct promise *p = promise_create(), *q;
    union weft_value value;

    (void)arg;
    q = promise_bind(promise_ref(p), in_callback, "x");
    note("1");
    promise_resolve(p, weft_num(9));
    note("2"); /* the callback has run before promise_resolve returned */
    cr_assert_eq(fiber_await(q, &value, WEFT_FOREVER), 0);
    cr_assert_eq(value.num, 9);
    cr_assert_eq(fiber_await(promise_bind(p, in_callback, "y"), &value, WEFT_FOREVER), 0);
    return 0;
}

Test(await, callbacks_run_on_the_base_stack_and_cannot_wait)
{
    run_each(callback_main, "1x2y");
}

Test(await, misuse_outside)
{
    cr_assert_eq(fiber_await(NULL, NULL, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_await(promise_fulfilled(weft_num(1)), NULL, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_await(fiber_spawn(returns, NULL), NULL, WEFT_FOREVER), -EINVAL);
}

static int failing_spawn_main(void *arg)
{
    struct fiber_options options = {.size = sizeof options, .stack_size = (size_t)1 << 60};

    (void)arg;
    cr_assert_eq(fiber_await(fiber_spawn(NULL, NULL), NULL, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_await(fiber_spawn_with(returns, NULL, &options), NULL, WEFT_FOREVER),
                 -EINVAL);
    promise__fail_after(0);
    cr_assert_eq(fiber_await(fiber_spawn(returns, NULL), NULL, WEFT_FOREVER), -ENOMEM);
    promise__fail_after(SIZE_MAX);
    cr_assert_eq(fiber_await(NULL, NULL, WEFT_FOREVER), -EINVAL);
    return 0;
}

Test(await, a_failing_spawn_is_a_rejected_promise)
{
    run_each(failing_spawn_main, "");
}

/* ---- ownership ---- */

static int destroyed;

static void destroy(void *ptr)
{
    destroyed++;
    free(ptr);
}

static int owned_main(void *arg)
{
    union weft_value value;
    struct promise *p;

    (void)arg;
    destroyed = 0;
    /* the last reference: the value is the caller's */
    cr_assert_eq(fiber_await(promise_fulfilled_owned(malloc(8), destroy), &value, WEFT_FOREVER), 0);
    cr_assert_eq(destroyed, 0);
    free(value.ptr);
    /* shared: borrowed while somebody holds it */
    p = promise_fulfilled_owned(malloc(8), destroy);
    cr_assert_eq(fiber_await(promise_ref(p), &value, WEFT_FOREVER), 0);
    cr_assert_eq(destroyed, 0);
    promise_unref(p);
    cr_assert_eq(destroyed, 1);
    /* nobody wants it: destroyed, not leaked */
    cr_assert_eq(fiber_await(promise_fulfilled_owned(malloc(8), destroy), NULL, WEFT_FOREVER), 0);
    cr_assert_eq(destroyed, 2);
    return 0;
}

Test(await, values_with_destructors_change_hands_as_promised)
{
    run_each(owned_main, "");
}

/* ---- cancellation ---- */

static int64_t is_cancelled(void *arg)
{
    struct promise *p = arg;

    cr_assert_eq(fiber_await(promise_ref(p), NULL, WEFT_FOREVER), -ECANCELED);
    cr_assert_eq(fiber_await(promise_ref(p), NULL, weft_after(WEFT_SEC(100))), -ECANCELED);
    /* what has been settled still comes */
    cr_assert_eq(fiber_await(promise_fulfilled(weft_num(1)), NULL, WEFT_FOREVER), 0);
    promise_unref(p);
    note("c");
    return 0;
}

static int cancel_main(void *arg)
{
    (void)arg;
    fiber_detach(is_cancelled, promise_create());
    fiber_yield();
    return 0;
}

Test(await, the_end_of_main_cancels_waiters)
{
    EACH_SETUP(setup)
    {
        trace[0] = '\0';
        cr_assert_eq(run_on(setup, cancel_main, NULL), 0);
        cr_assert_str_eq(trace, "c");
    }
}

static int deadlock_main(void *arg)
{
    struct promise *p = promise_create();
    int rc;

    (void)arg;
    rc = fiber_await(promise_ref(p), NULL, WEFT_FOREVER);
    cr_assert_eq(rc, -ECANCELED);
    promise_unref(p);
    return 0;
}

Test(await, a_promise_nobody_settles_is_a_deadlock)
{
    EACH_SETUP(setup)
    {
        cr_assert_eq(run_on(setup, deadlock_main, NULL), -EDEADLK);
        cr_assert(report_contains("waits for a promise"), "%s", report_text());
    }
}

/* ---- ping-pong through promises: each wake goes to the right fiber ---- */

static struct promise *ping, *pong;
static int rounds;

static int64_t echoes(void *arg)
{
    (void)arg;
    for (int i = 0; i < rounds; i++) {
        union weft_value value;

        cr_assert_eq(fiber_await(ping, &value, WEFT_FOREVER), 0);
        cr_assert_eq(value.num, i);
        ping = promise_create();
        promise_resolve(pong, weft_num(i * 2));
    }
    return 0;
}

static int pingpong_main(void *arg)
{
    struct promise *echo;

    (void)arg;
    rounds = 1000;
    ping = promise_create();
    pong = promise_create();
    echo = fiber_spawn(echoes, NULL);
    for (int i = 0; i < rounds; i++) {
        struct promise *mine = promise_ref(ping);
        union weft_value value;

        fiber_yield();
        promise_resolve(mine, weft_num(i));
        promise_unref(mine);
        cr_assert_eq(fiber_await(promise_ref(pong), &value, WEFT_FOREVER), 0);
        cr_assert_eq(value.num, i * 2);
        promise_unref(pong);
        pong = promise_create();
    }
    cr_assert_eq(fiber_await(echo, NULL, WEFT_FOREVER), 0);
    promise_unref(ping);
    promise_unref(pong);
    return 0;
}

Test(await, ping_pong)
{
    run_each(pingpong_main, "");
}
