/* needs: fibers */
/* ClickHouse/silk#88: one timeout in the ring for each sleep; when their completions were not consumed,
 * every further sleep on that thread hung.
 *
 * Sleeps of random length, cancelled now and then, beside I/O: each ends, none early, in the order of
 * their times where one fiber sleeps; and none is an operation of the engine.
 */
#include "fiber_internal.h"
#include "io_support.h"

#include <weft/io.h>
#include <weft/promise.h>

#include <criterion/criterion.h>

#define FIBERS 100

static uint32_t seed;

static uint32_t random_below(uint32_t n)
{
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % n;
}

static long slept;

static int64_t sleep_often(void *arg)
{
    long rounds = (intptr_t)arg;

    for (long i = 0; i < rounds; i++) {
        weft_time until = weft_after((int64_t)random_below(200000));
        struct promise *p;

        switch (random_below(4)) {
        case 0:
            cr_assert_eq(fiber_await(promise_sleep_until(until), NULL, WEFT_FOREVER), 0);
            break;
        case 1: /* one that is given up, and one that isn't */
            p = promise_sleep(WEFT_SEC(1000));
            cr_assert_eq(fiber_await(promise_ref(p), NULL, until), -ETIMEDOUT);
            promise_cancel(p);
            promise_unref(p);
            break;
        default:
            cr_assert_eq(fiber_sleep_until(until), 0);
            break;
        }
        cr_assert_geq(weft_now(), until, "early");
        slept++;
    }
    return 0;
}

static bool over;
static long exchanged;

static int64_t talk(void *arg)
{
    const int *pair = arg;
    char byte;

    while (!over) {
        cr_assert_eq(fiber_send(pair[0], "x", 1, 0, WEFT_FOREVER), 1);
        cr_assert_eq(fiber_recv(pair[1], &byte, 1, 0, WEFT_FOREVER), 1);
        exchanged++;
    }
    return 0;
}

static int sleep_main(void *unused)
{
    struct weft_stats before = {.size = sizeof before}, after = before;
    struct promise *fibers[FIBERS], *talker;
    long rounds = slow_tools() ? 10 : 200;
    int pair[2];

    (void)unused;
    make_pair(pair);
    over = false;
    slept = exchanged = 0;
    for (int i = 0; i < FIBERS; i++)
        fibers[i] = fiber_spawn(sleep_often, (void *)(intptr_t)rounds);
    talker = fiber_spawn(talk, pair);
    cr_assert_eq(fiber_await(promise_join(fibers, FIBERS), NULL, WEFT_FOREVER), 0);
    cr_assert_eq(slept, FIBERS * rounds);
    over = true;
    cr_assert_eq(fiber_await(talker, NULL, WEFT_FOREVER), 0);
    cr_assert_gt(exchanged, 0);

    weft_stats(&before);
    for (int i = 0; i < 20; i++)
        cr_assert_eq(fiber_sleep(WEFT_US(100)), 0);
    weft_stats(&after);
    cr_assert_eq(after.completed, before.completed, "a sleep is no operation");
    cr_assert_eq(after.timers, 0);
    close_pair(pair);
    return 0;
}

Test(silk_88, sleeps_end_and_are_no_operations, .timeout = 120)
{
    seed = 88;
    run_on_each_io_setup(sleep_main);
}
