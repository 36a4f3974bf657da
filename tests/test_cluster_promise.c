/* Clusters whose mains use promises, in builds with fibers and without: where main is a callback, its
 * runtime goes on until nothing is left in any. */
#include "cluster_support.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <weft/promise.h>
#if WEFT_HAS_FIBERS
#include <weft/fiber.h>
#endif

/* The main function's end: when `promise` (consumed) is settled. */
static int until(struct promise *promise)
{
#if WEFT_HAS_FIBERS
    return fiber_await(promise, NULL, WEFT_FOREVER);
#else
    promise_unref(promise);
    return 0;
#endif
}

/* ---- all call each other ---- */

static atomic_int called[3];

static struct promise *be_called(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
    return promise_sleep(WEFT_MS(1));
}

/* With fibers, one whose main is over takes no calls any more. */
static struct promise *too_late(int error, void *unused)
{
    (void)unused;
    return WEFT_HAS_FIBERS && error == -ESHUTDOWN ? promise_fulfilled(weft_num(0))
                                                  : promise_rejected(error);
}

static int call_all(struct weft_cluster *cluster, unsigned index, void *unused)
{
    struct promise *all[3];

    (void)unused;
    (void)index;
    for (unsigned i = 0; i < 3; i++)
        all[i] = promise_catch(
            promise_call_on(weft_cluster_inbox(cluster, i), be_called, &called[i], NULL), too_late,
            NULL);
    return until(promise_join(all, 3));
}

Test(cluster_promise, mains_that_call_each_other)
{
    EACH_SETUP(setup)
    {
        struct weft_cluster_options options = cluster_options(setup, 3);

        for (int i = 0; i < 3; i++)
            called[i] = 0;
        cr_assert_eq(weft_cluster_run(call_all, NULL, &options), 0, "%s", setup->name);
        for (int i = 0; i < 3 && !WEFT_HAS_FIBERS; i++)
            cr_assert_eq(called[i], 3);
        cr_assert_geq(called[0] + called[1] + called[2], 3);
    }
}

/* ---- failures and stops ---- */

static int one_fails(struct weft_cluster *cluster, unsigned index, void *unused)
{
    (void)cluster;
    (void)unused;
    if (index == 1)
        return -EADDRINUSE;
    return until(promise_sleep_until(WEFT_FOREVER - 1));
}

Test(cluster_promise, the_first_failure_stops_all)
{
    EACH_SETUP(setup)
    {
        struct weft_cluster_options options = cluster_options(setup, 3);

        cr_assert_eq(weft_cluster_run(one_fails, NULL, &options), -EADDRINUSE, "%s", setup->name);
    }
}

static int sleep_long(struct weft_cluster *cluster, unsigned index, void *unused)
{
    (void)unused;
    if (index == 2)
        weft_cluster_stop(cluster);
    return until(promise_sleep_until(WEFT_FOREVER - 1));
}

Test(cluster_promise, stopped)
{
    EACH_SETUP(setup)
    {
        struct weft_cluster_options options = cluster_options(setup, 3);

        cr_assert_eq(weft_cluster_run(sleep_long, NULL, &options), 0, "%s", setup->name);
    }
}

/* ---- rest ---- */

static struct promise *never(void *unused)
{
    (void)unused;
    return promise_create();
}

static int wait_for_next(struct weft_cluster *cluster, unsigned index, void *unused)
{
    struct weft_inbox *there = weft_cluster_inbox(cluster, (index + 1) % 3);

    return until(promise_call_on(there, never, unused, NULL));
}

/* A main that waits is in a deadlock; one that only has left something is not. */
Test(cluster_promise, nothing_left)
{
    EACH_SETUP(setup)
    {
        struct weft_cluster_options options = cluster_options(setup, 3);

        cr_assert_eq(weft_cluster_run(wait_for_next, NULL, &options),
                     WEFT_HAS_FIBERS ? -EDEADLK : 0, "%s", setup->name);
    }
}
