/* needs: fibers */
/* boostorg/fiber#128 and #166: a fiber in a timed wait for a condition was both notified and timed out,
 * and so stood in the ready queue twice. (#194: the notifier touched a condition that the woken side had
 * destroyed.)
 *
 * Deadlines and signals meet here as often as can be: each wait ends once, for one of the two reasons,
 * a signal wakes one waiter or is told to have found none, and a condition may be gone as soon as who
 * waited for it runs.
 */
#include "fiber_internal.h"
#include "harness.h"
#include "promise_internal.h"

#include <weft/promise.h>
#include <weft/promise_sync.h>

#include <criterion/criterion.h>

#define WAITERS 5

static struct weft_condition condition;
static long woken, late, signalled;
static int waiting;
static bool over;

static int64_t wait_again_and_again(void *arg)
{
    intptr_t number = (intptr_t)arg;

    for (long i = 0; !over; i++) {
        struct promise *p = promise_condition_wait(&condition, NULL);
        union weft_value value = {.num = -1};
        int rc;

        waiting++;
        rc = fiber_await(promise_ref(p), &value, weft_after(WEFT_US((i * 7 + number * 13) % 120)));
        waiting--;
        if (rc == -ETIMEDOUT) { /* the wait is not over before its place in the queue is given up */
            promise_cancel(p);
            rc = promise_poll(p, &value, NULL) == PROMISE_FULFILLED ? 0 : -ETIMEDOUT;
        }
        promise_unref(p);
        if (rc == 0) {
            cr_assert_eq(value.num, 42);
            woken++;
        } else {
            cr_assert_eq(rc, -ETIMEDOUT);
            late++;
        }
    }
    return 0;
}

static int condition_main(void *unused)
{
    struct promise *waiters[WAITERS];
    long rounds = slow_tools() ? 1000 : 6000;

    (void)unused;
    woken = late = signalled = 0;
    waiting = 0;
    over = false;
    weft_condition_init(&condition);
    for (intptr_t i = 0; i < WAITERS; i++)
        waiters[i] = fiber_spawn(wait_again_and_again, (void *)i);
    for (long i = 0; i < rounds; i++) {
        int alive = 0;

        for (int n = 0; n < WAITERS; n++)
            alive += promise_state(waiters[n]) == PROMISE_PENDING;
        cr_assert_eq(alive, WAITERS);
        promise_condition_signal(&condition, weft_num(42));
        signalled++;
        if (i % 3 == 0)
            fiber_sleep(WEFT_US(i % 50));
        else
            fiber_yield();
    }
    over = true;
    promise_condition_broadcast(&condition, weft_num(42));
    cr_assert_eq(fiber_await(promise_join(waiters, WAITERS), NULL, WEFT_FOREVER), 0);
    cr_assert_eq(waiting, 0);
    cr_assert_leq(woken, signalled + WAITERS, "a signal has woken two");
    cr_assert(woken > 0 && late > 0, "%ld woken, %ld late", woken, late);
    weft_condition_finish(&condition);
    return 0;
}

Test(boost_fiber_128, a_timed_wait_ends_once, .timeout = 120)
{
    for (const struct setup *s = setups; s < setups + setups_count; s++)
        cr_assert_eq(run_on(s, condition_main, NULL), 0, "%s: %s", s->name, report_text());
}

/* 194: the one that is woken destroys the condition while the notifier is still in its call. */
static int64_t wait_and_destroy(void *arg)
{
    struct weft_condition *mine = arg;
    int rc = fiber_await(promise_condition_wait(mine, NULL), NULL, WEFT_FOREVER);

    weft_condition_destroy(mine);
    return rc;
}

static int destroy_now(union weft_value value, void *arg)
{
    (void)value;
    weft_condition_destroy(arg);
    return 0;
}

static int destroy_main(void *unused)
{
    (void)unused;
    for (int i = 0; i < 200; i++) {
        struct weft_condition *mine = weft_condition_create();
        struct promise *p;

        if (i % 2) { /* in a fiber, which runs later */
            p = fiber_spawn(wait_and_destroy, mine);
            fiber_yield();
        } else { /* in a callback, which runs inside of the call */
            p = promise_condition_wait(mine, NULL);
            promise_on_success(p, destroy_now, mine);
        }
        if (i % 4 < 2)
            promise_condition_signal(mine, weft_num(0));
        else
            promise_condition_broadcast(mine, weft_num(0));
        cr_assert_eq(fiber_await(p, NULL, WEFT_FOREVER), 0);
    }
    return 0;
}

Test(boost_fiber_128, a_condition_destroyed_under_its_notifier)
{
    for (const struct setup *s = setups; s < setups + setups_count; s++)
        cr_assert_eq(run_on(s, destroy_main, NULL), 0, "%s: %s", s->name, report_text());
}
