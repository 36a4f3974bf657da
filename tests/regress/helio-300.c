/* needs: fibers */
/* romange/helio#300, #592: fibers that yielded in a loop kept timers, I/O and other threads' work from
 * ever being looked at.
 *
 * Loops of yields, of pauses and of settled promises run until a receive, a timer, and a post of another
 * thread have come: a loop that starves them never ends.
 */
#include "fiber_internal.h"
#include "io_support.h"

#include <weft/io.h>
#include <weft/promise.h>

#include <criterion/criterion.h>
#include <pthread.h>

enum { RECEIVED = 1, FIRED = 2, POSTED = 4, ALL = 7 };

static int seen;
static struct weft_task posted;

static void note_post(struct weft_task *task)
{
    (void)task;
    seen |= POSTED;
}

static void *post_soon(void *inbox)
{
    sched_yield();
    posted.run = note_post;
    cr_assert_eq(weft_post(inbox, &posted), 0);
    return NULL;
}

static int64_t receive(void *arg)
{
    char buf[8];

    cr_assert_eq(fiber_recv(*(int *)arg, buf, sizeof buf, 0, WEFT_FOREVER), 4);
    seen |= RECEIVED;
    return 0;
}

static void note_timer(struct weft_timer *timer)
{
    (void)timer;
    seen |= FIRED;
}

static int64_t yield_until_all(void *unused)
{
    (void)unused;
    while (seen != ALL)
        fiber_yield();
    return 0;
}

static struct promise *pause_again(union weft_value value, void *arg)
{
    (void)value;
    (void)arg;
    if (seen == ALL)
        return promise_fulfilled(weft_num(0));
    return promise_bind(promise_pause(), pause_again, NULL);
}

static int64_t settle_until_all(void *unused)
{
    (void)unused;
    while (seen != ALL) { /* fibers that end and begin, and never wait for anything slow */
        struct promise *p = promise_create();

        promise_resolve_later(p, weft_num(0));
        cr_assert_eq(fiber_await(p, NULL, WEFT_FOREVER), 0);
        fiber_yield();
    }
    return 0;
}

static int busy_main(void *unused)
{
    struct weft_inbox *inbox = weft_inbox_ref();

    (void)unused;
    for (int kind = 0; kind < 4; kind++) {
        struct promise *busy[3], *receiver;
        struct weft_timer timer;
        pthread_t thread;
        int pair[2], count = 0;

        make_pair(pair);
        seen = 0;
        receiver = fiber_spawn(receive, pair);
        weft_timer_init(&timer, note_timer);
        weft_timer_start(&timer, weft_after(WEFT_US(100)));
        if (kind == 0 || kind == 3)
            busy[count++] = fiber_spawn(yield_until_all, NULL);
        if (kind == 1 || kind == 3)
            busy[count++] = promise_bind(promise_pause(), pause_again, NULL);
        if (kind == 2 || kind == 3)
            busy[count++] = fiber_spawn(settle_until_all, NULL);
        send_soon(pair[1], "soon");
        cr_assert_eq(pthread_create(&thread, NULL, post_soon, inbox), 0);
        cr_assert_eq(fiber_await(promise_join(busy, (size_t)count), NULL, WEFT_FOREVER), 0);
        cr_assert_eq(fiber_await(receiver, NULL, WEFT_FOREVER), 0);
        pthread_join(thread, NULL);
        join_sender();
        close_pair(pair);
    }
    weft_inbox_unref(inbox);
    return 0;
}

Test(helio_300, busy_fibers_starve_nobody)
{
    run_on_each_io_setup(busy_main);
}
