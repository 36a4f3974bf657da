/* Timers: order, stopping, restarting from a callback, against a plain model. */
#include "harness.h"
#include "timer.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#define MANY 500

static struct item {
    struct weft_timer timer;
    int id;
} items[MANY];

static int fired[MANY * 4], fired_count;

static void fire(struct weft_timer *timer)
{
    fired[fired_count++] = weft__container(timer, struct item, timer)->id;
}

static struct weft_runtime *bare_runtime(void)
{
    static struct weft_runtime rt;

    memset(&rt, 0, sizeof rt);
    rt.firing = -1;
    weft__rt = &rt;
    fired_count = 0;
    for (int i = 0; i < MANY; i++) {
        items[i].id = i;
        weft_timer_init(&items[i].timer, fire);
    }
    return &rt;
}

Test(timer, fires_in_order_of_time)
{
    struct weft_runtime *rt = bare_runtime();
    const weft_time at[] = {50, 10, 40, 20, 30};
    const int order[] = {1, 3, 4, 2, 0};

    for (int i = 0; i < 5; i++)
        weft_timer_start(&items[i].timer, at[i]);
    weft__timers_fire(rt, 35);
    cr_assert_eq(fired_count, 3);
    weft__timers_fire(rt, 100);
    cr_assert_eq(fired_count, 5);
    for (int i = 0; i < 5; i++)
        cr_assert_eq(fired[i], order[i]);
    cr_assert_null(rt->timers);
}

Test(timer, equal_times_fire_in_order_of_start)
{
    struct weft_runtime *rt = bare_runtime();

    for (int i = 0; i < MANY; i++)
        weft_timer_start(&items[i].timer, 7);
    weft__timers_fire(rt, 7);
    cr_assert_eq(fired_count, MANY);
    for (int i = 0; i < MANY; i++)
        cr_assert_eq(fired[i], i);
}

Test(timer, stop_is_harmless_unless_running)
{
    struct weft_runtime *rt = bare_runtime();

    weft_timer_stop(&items[0].timer);
    cr_assert(!weft_timer_running(&items[0].timer));
    weft_timer_start(&items[0].timer, 5);
    cr_assert(weft_timer_running(&items[0].timer));
    weft_timer_stop(&items[0].timer);
    weft_timer_stop(&items[0].timer);
    cr_assert(!weft_timer_running(&items[0].timer));
    weft__timers_fire(rt, 100);
    cr_assert_eq(fired_count, 0);
}

static void again(struct weft_timer *timer)
{
    fired[fired_count++] = 0;
    weft_timer_start(timer, 1);
}

Test(timer, one_that_restarts_itself_in_the_past_fires_once_a_poll)
{
    struct weft_runtime *rt = bare_runtime();

    weft_timer_init(&items[0].timer, again);
    weft_timer_start(&items[0].timer, 10);
    weft__timers_fire(rt, 50);
    cr_assert_eq(fired_count, 1);
    weft__timers_fire(rt, 51);
    cr_assert_eq(fired_count, 2);
}

static void stop_the_next(struct weft_timer *timer)
{
    struct item *item = weft__container(timer, struct item, timer);

    fired[fired_count++] = item->id;
    weft_timer_stop(&items[item->id + 1].timer);
}

Test(timer, one_due_may_be_stopped_by_another)
{
    struct weft_runtime *rt = bare_runtime();

    for (int i = 0; i < 4; i++) {
        weft_timer_init(&items[i].timer, stop_the_next);
        weft_timer_start(&items[i].timer, 5);
    }
    weft__timers_fire(rt, 5);
    cr_assert_eq(fired_count, 2);
    cr_assert_eq(fired[0], 0);
    cr_assert_eq(fired[1], 2);
}

/* Random starts, stops and polls against a model that sorts. */
Test(timer, agrees_with_a_model)
{
    for (unsigned seed = 1; seed <= 20; seed++) {
        struct weft_runtime *rt = bare_runtime();
        weft_time at[MANY] = {0}, now = 0;
        uint64_t started[MANY] = {0}, clock = 0;
        bool running[MANY] = {false};

        srand(seed);
        for (int step = 0; step < 4000; step++) {
            int i = rand() % MANY;

            if (rand() % 3 != 0) {
                if (!running[i]) {
                    at[i] = now + 1 + rand() % 50;
                    started[i] = clock++;
                    running[i] = true;
                    weft_timer_start(&items[i].timer, at[i]);
                }
            } else if (rand() % 2) {
                weft_timer_stop(&items[i].timer);
                running[i] = false;
            } else {
                now += rand() % 10;
                fired_count = 0;
                weft__timers_fire(rt, now);
                for (int k = 0; k < fired_count; k++) {
                    int best = -1;

                    for (int j = 0; j < MANY; j++)
                        if (running[j] && at[j] <= now &&
                            (best < 0 || at[j] < at[best] ||
                             (at[j] == at[best] && started[j] < started[best])))
                            best = j;
                    cr_assert_eq(fired[k], best, "seed %u step %d", seed, step);
                    running[best] = false;
                }
                for (int j = 0; j < MANY; j++)
                    cr_assert(!running[j] || at[j] > now, "seed %u: timer %d is late", seed, j);
            }
            cr_assert_eq(weft_timer_running(&items[i].timer), running[i]);
        }
    }
}
