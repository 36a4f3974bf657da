/* needs: fibers */
/* fiber_select: exactly one case happens, and the others leave nothing behind. */
#include "test_sync.h"

#include "allocations.h"
#include "io_support.h"

#include <weft/io.h>

#include <limits.h>

static struct weft_channel one, other;
static union weft_value room[2];
static struct weft_event event;

static void begin(void)
{
    weft_channel_init(&one, NULL, 0, NULL);
    weft_channel_init(&other, room, 1, NULL);
    weft_event_init(&event);
}

static void check_nobody_waits(void)
{
    cr_assert(one.senders == NULL && one.receivers == NULL);
    cr_assert(other.senders == NULL && other.receivers == NULL);
    cr_assert_null(event.waits);
}

static bool does_io(void)
{
    return strcmp(weft_engine_name(), "null") != 0;
}

/* Receives from either, and tells which. */
static int64_t recv_either(void *unused)
{
    struct fiber_case cases[2];
    int which;

    (void)unused;
    fiber_case_recv(&cases[0], &one);
    fiber_case_recv(&cases[1], &other);
    which = fiber_select(cases, 2, WEFT_FOREVER);
    if (which >= 0 && cases[which].result == 0)
        tell("%d:%d ", which, (int)cases[which].value.num);
    else
        tell("%d!%d ", which, which >= 0 ? cases[which].result : 0);
    return which;
}

static struct promise *start(fiber_fn *fn)
{
    struct promise *p = fiber_spawn(fn, NULL);

    settle();
    return p;
}

SYNC_TEST(sync_select, the_first_to_come_is_the_only_one)
{
    struct promise *p;

    begin();
    p = start(recv_either);
    cr_assert_eq(weft_channel_try_send(&one, weft_num(1)), 0);
    cr_assert_eq(weft_channel_try_send(&one, weft_num(2)), -EAGAIN, "it receives once");
    check_nobody_waits();
    cr_assert_eq(weft_channel_try_send(&other, weft_num(3)), 0, "into its room");
    cr_assert_eq(outcome(p), 0);
    p = start(recv_either);
    cr_assert_eq(outcome(p), 1);
    p = start(recv_either);
    weft_channel_close(&other);
    cr_assert_eq(outcome(p), 1);
    check_nobody_waits();
    expect("0:1 1:3 1!-61 ");
}

static int64_t send_either(void *unused)
{
    struct fiber_case cases[2];
    int which;

    (void)unused;
    fiber_case_send(&cases[0], &one, weft_num(10));
    fiber_case_send(&cases[1], &other, weft_num(20));
    which = fiber_select(cases, 2, WEFT_FOREVER);
    tell("%d:%d ", which, which >= 0 ? cases[which].result : 0);
    return which;
}

SYNC_TEST(sync_select, a_send_that_does_not_happen_keeps_its_item)
{
    union weft_value value;
    struct promise *p;

    begin();
    cr_assert_eq(weft_channel_try_send(&other, weft_num(1)), 0); /* it is full */
    p = start(send_either);
    expect("");
    cr_assert_eq(weft_channel_try_recv(&other, &value), 0);
    cr_assert_eq(value.num, 1);
    cr_assert_eq(weft_channel_try_recv(&one, &value), -EAGAIN, "that item was not sent");
    cr_assert_eq(outcome(p), 1);
    cr_assert_eq(weft_channel_try_recv(&other, &value), 0);
    cr_assert_eq(value.num, 20);
    cr_assert_eq(weft_channel_try_recv(&other, &value), -EAGAIN);
    check_nobody_waits();

    cr_assert_eq(weft_channel_try_send(&other, weft_num(1)), 0);
    p = start(send_either);
    cr_assert_eq(weft_channel_try_recv(&one, &value), 0);
    cr_assert_eq(value.num, 10);
    cr_assert_eq(weft_channel_try_recv(&other, &value), 0);
    cr_assert_eq(value.num, 1);
    cr_assert_eq(weft_channel_try_recv(&other, &value), -EAGAIN);
    cr_assert_eq(outcome(p), 0);
    cr_assert_eq(weft_channel_try_send(&other, weft_num(1)), 0);
    p = start(send_either);
    weft_channel_close(&one);
    cr_assert_eq(outcome(p), 0);
    expect("1:0 0:0 0:-32 ");
    check_nobody_waits();
}

static int64_t recv_and_send_itself(void *unused)
{
    struct fiber_case cases[2];
    int which;

    (void)unused;
    fiber_case_send(&cases[0], &one, weft_num(10));
    fiber_case_recv(&cases[1], &one);
    which = fiber_select(cases, 2, WEFT_FOREVER);
    if (which >= 0)
        tell("%d:%d,%d ", which, cases[which].result, (int)cases[which].value.num);
    return which;
}

SYNC_TEST(sync_select, does_not_serve_itself_but_another_one)
{
    struct promise *p, *q;
    int64_t a, b;

    begin();
    p = start(recv_and_send_itself);
    expect("");
    q = start(recv_and_send_itself);
    a = outcome(p);
    b = outcome(q);
    cr_assert_eq(a + b, 1, "one sends, one receives");
    check_nobody_waits();
    p = start(recv_and_send_itself);
    cr_assert_eq(weft_channel_try_send(&one, weft_num(5)), 0);
    cr_assert_eq(outcome(p), 1);
    check_nobody_waits();
    told[0] = '\0';
}

/* The same channel twice. */
SYNC_TEST(sync_select, a_channel_can_stand_in_several_cases)
{
    struct fiber_case cases[3];
    struct promise *p;
    int which;

    begin();
    for (int i = 0; i < 3; i++)
        fiber_case_recv(&cases[i], &one);
    p = promise_channel_send(&one, weft_num(1));
    which = fiber_select(cases, 3, WEFT_FOREVER);
    cr_assert(which >= 0 && which < 3);
    cr_assert_eq(cases[which].value.num, 1);
    cr_assert_eq(outcome(p), 0);
    for (int i = 0; i < 3; i++)
        fiber_case_recv(&cases[i], &one);
    cr_assert_eq(fiber_select(cases, 3, weft_after(WEFT_US(50))), -ETIMEDOUT);
    check_nobody_waits();
}

/* ---- which of several ---- */

SYNC_TEST(sync_select, of_several_none_is_starved)
{
    enum { CASES = 5, ROUNDS = 10000 };
    struct fiber_case cases[CASES];
    struct weft_event events[CASES];
    int happened[CASES] = {0};

    for (int i = 0; i < CASES; i++) {
        weft_event_init(&events[i]);
        weft_event_set(&events[i]);
    }
    for (int n = 0; n < ROUNDS; n++) {
        int which;

        for (int i = 0; i < CASES; i++)
            fiber_case_event(&cases[i], &events[i]);
        which = fiber_select(cases, CASES, WEFT_NOWAIT);
        cr_assert(which >= 0 && which < CASES);
        happened[which]++;
        cr_assert_eq(fiber_select_in_order(cases, CASES, WEFT_FOREVER), 0);
    }
    for (int i = 0; i < CASES; i++)
        cr_assert(happened[i] > ROUNDS / CASES - 10 && happened[i] < ROUNDS / CASES + 10,
                  "case %d: %d times", i, happened[i]);
    /* in order, the first that can */
    for (int first = 1; first < CASES; first++) {
        weft_event_reset(&events[first - 1]);
        cr_assert_eq(fiber_select_in_order(cases, CASES, WEFT_FOREVER), first);
    }
}

/* A channel that always has something does not keep a descriptor and a time from being seen. */
SYNC_TEST(sync_select, costly_cases_are_not_starved)
{
    struct fiber_case cases[3];
    int pair[2], happened[3] = {0};

    begin();
    make_pair(pair);
    cr_assert_eq(write(pair[1], "x", 1), 1);
    weft_event_set(&event);
    for (int n = 0; n < 300; n++) {
        int which;

        fiber_case_event(&cases[0], &event);
        fiber_case_poll(&cases[1], pair[0], POLLIN);
        fiber_case_time(&cases[2], weft_now());
        which = fiber_select(cases, 3, WEFT_FOREVER);
        cr_assert(which >= 0);
        happened[which]++;
    }
    for (int i = 0; i < 3; i++)
        cr_assert(happened[i] > 90, "case %d: %d times", i, happened[i]);
    cr_assert_eq(fiber_select_in_order(cases, 3, WEFT_FOREVER), 0);
    fiber_case_time(&cases[0], weft_after(WEFT_SEC(100)));
    cr_assert_eq(fiber_select_in_order(cases, 3, WEFT_NOWAIT), 1, "nothing else is ready");
    cr_assert_eq(cases[1].result, POLLIN);
    close_pair(pair);
}

/* ---- the other kinds ---- */

static int64_t set_event(void *unused)
{
    (void)unused;
    weft_event_set(&event);
    return 0;
}

SYNC_TEST(sync_select, events_and_times)
{
    weft_time at = weft_after(WEFT_MS(1));
    struct fiber_case cases[4];

    begin();
    fiber_case_event(&cases[0], &event);
    fiber_case_recv(&cases[1], &one);
    fiber_case_time(&cases[2], at);
    fiber_case_time(&cases[3], WEFT_FOREVER);
    cr_assert_eq(fiber_select(cases, 4, weft_after(WEFT_SEC(100))), 2);
    cr_assert_eq(cases[2].result, 0);
    cr_assert(weft_now() >= at);
    check_nobody_waits();
    fiber_case_time(&cases[2], weft_after(WEFT_SEC(100)));
    cr_assert_eq(fiber_detach(set_event, NULL), 0);
    cr_assert_eq(fiber_select(cases, 4, weft_after(WEFT_SEC(100))), 0);
    cr_assert_eq(cases[0].result, 0);
    check_nobody_waits();
    weft_event_reset(&event);
    cr_assert_eq(fiber_select(cases, 4, weft_after(WEFT_US(100))), -ETIMEDOUT);
    cr_assert_eq(fiber_select(cases, 4, WEFT_NOWAIT), -ETIMEDOUT);
    fiber_case_time(&cases[1], WEFT_NOWAIT);
    cr_assert_eq(fiber_select(cases, 4, WEFT_NOWAIT), 1);
}

static struct promise *pending;

static int64_t resolve_pending(void *unused)
{
    (void)unused;
    promise_resolve(pending, weft_num(INT64_MAX));
    return 0;
}

static int64_t reject_pending(void *unused)
{
    (void)unused;
    promise_reject(pending, -EPROTO);
    return 0;
}

SYNC_TEST(sync_select, promises_are_borrowed)
{
    struct fiber_case cases[2];
    struct promise *never = promise_create_task();

    begin();
    for (int rejected = 0; rejected < 2; rejected++) {
        pending = promise_create();
        fiber_case_promise(&cases[0], never);
        fiber_case_promise(&cases[1], pending);
        cr_assert_eq(fiber_detach(rejected ? reject_pending : resolve_pending, NULL), 0);
        cr_assert_eq(fiber_select(cases, 2, WEFT_FOREVER), 1);
        cr_assert_eq(cases[1].result, rejected ? -EPROTO : 0);
        if (!rejected)
            cr_assert_eq(cases[1].value.num, INT64_MAX);
        cases[1].result = 1;
        cr_assert_eq(fiber_select_in_order(cases, 2, WEFT_FOREVER), 1, "settled already");
        cr_assert_eq(cases[1].result, rejected ? -EPROTO : 0);
        cr_assert_eq(outcome(pending), rejected ? -EPROTO : INT64_MAX);
    }
    cr_assert_eq(promise_state(never), PROMISE_PENDING, "not cancelled either");
    fiber_case_promise(&cases[0], promise__error(-EIO)); /* no block at all */
    cr_assert_eq(fiber_select(cases, 1, WEFT_FOREVER), 0);
    cr_assert_eq(cases[0].result, -EIO);
    fiber_case_promise(&cases[0], NULL);
    cr_assert_eq(fiber_select(cases, 1, WEFT_FOREVER), 0);
    cr_assert_eq(cases[0].result, -EINVAL);
    cr_assert_eq(cancelled(never), -ECANCELED);
}

static int64_t write_one(void *fd)
{
    cr_assert_eq(write((int)(intptr_t)fd, "x", 1), 1);
    return 0;
}

SYNC_TEST(sync_select, descriptors)
{
    struct fiber_case cases[3];
    char byte;
    int pair[2];

    if (!does_io()) {
        begin();
        make_pair(pair);
        fiber_case_recv(&cases[0], &one);
        fiber_case_poll(&cases[1], pair[0], POLLIN);
        cr_assert_eq(fiber_select(cases, 2, WEFT_FOREVER), 1);
        cr_assert_eq(cases[1].result, -ENOSYS);
        check_nobody_waits();
        close_pair(pair);
        return;
    }
    for (int round = 0; round < 20; round++) {
        begin();
        make_pair(pair);
        fiber_case_recv(&cases[0], &one);
        fiber_case_poll(&cases[1], pair[0], POLLIN);
        fiber_case_poll(&cases[2], pair[1], POLLIN);
        cr_assert_eq(fiber_detach(write_one, (void *)(intptr_t)pair[1]), 0);
        cr_assert_eq(fiber_select(cases, 3, WEFT_FOREVER), 1);
        cr_assert_eq(cases[1].result, POLLIN);
        cr_assert_eq(weft__rt->engine->in_flight, 0, "the other poll is over");
        check_nobody_waits();
        cr_assert_eq(read(pair[0], &byte, 1), 1);
        /* the channel is first: the polls end, and take nothing with them */
        fiber_case_recv(&cases[0], &one);
        fiber_case_poll(&cases[1], pair[0], POLLIN);
        fiber_case_poll(&cases[2], pair[1], POLLIN);
        pending = promise_channel_send(&one, weft_num(1));
        cr_assert_eq(fiber_select(cases, 3, WEFT_FOREVER), 0);
        cr_assert_eq(outcome(pending), 0);
        fiber_case_poll(&cases[1], pair[0], POLLIN);
        fiber_case_poll(&cases[2], pair[1], POLLIN);
        cr_assert_eq(fiber_detach(set_event, NULL), 0);
        fiber_case_event(&cases[0], &event);
        cr_assert_eq(fiber_select(cases, 3, WEFT_FOREVER), 0);
        cr_assert_eq(weft__rt->engine->in_flight, 0);
        weft_event_reset(&event);
        cr_assert_eq(fiber_select(cases, 3, weft_after(WEFT_US(200))), -ETIMEDOUT);
        cr_assert_eq(weft__rt->engine->in_flight, 0);
        close_pair(pair);
    }
}

static int polled;

static int64_t select_on_polls(void *unused)
{
    struct fiber_case cases[3];

    (void)unused;
    fiber_case_recv(&cases[0], &one);
    fiber_case_poll(&cases[1], polled, POLLIN);
    fiber_case_poll(&cases[2], polled, POLLPRI);
    return fiber_select(cases, 3, WEFT_FOREVER);
}

static int64_t select_result(void *unused)
{
    struct fiber_case c;
    int which;

    (void)unused;
    fiber_case_poll(&c, polled, POLLIN);
    which = fiber_select(&c, 1, WEFT_FOREVER);
    return which < 0 ? which : c.result;
}

SYNC_TEST(sync_select, a_wait_with_polls_can_be_cancelled_and_closed)
{
    struct promise *p;
    int pair[2];

    if (!does_io())
        return;
    begin();
    make_pair(pair);
    polled = pair[0];
    p = start(select_on_polls);
    promise_cancel(p);
    cr_assert_eq(weft_channel_try_send(&one, weft_num(1)), -EAGAIN, "it is not there any more");
    cr_assert_eq(outcome(p), -ECANCELED);
    check_nobody_waits();
    cr_assert_eq(weft__rt->engine->in_flight, 0);
    /* an item handed over is delivered, though the polls take their time to end */
    p = start(select_on_polls);
    cr_assert_eq(weft_channel_try_send(&one, weft_num(1)), 0);
    promise_cancel(p);
    cr_assert_eq(outcome(p), 0);
    p = start(select_result);
    cr_assert_eq(fiber_close(pair[0]), 0);
    cr_assert_eq(outcome(p), -ECANCELED);
    close(pair[1]);
    polled = -1;
    cr_assert_lt(outcome(start(select_result)), 0);
}

/* A descriptor that the kernel refuses: that is what happens. */
SYNC_TEST(sync_select, a_bad_descriptor_is_a_result)
{
    struct fiber_case cases[3];
    int which;

    if (!does_io())
        return;
    begin();
    fiber_case_recv(&cases[0], &one);
    fiber_case_event(&cases[1], &event);
    fiber_case_poll(&cases[2], 1 << 20, POLLIN);
    which = fiber_select(cases, 3, WEFT_FOREVER);
    cr_assert_eq(which, 2);
    cr_assert(cases[2].result == -EBADF || cases[2].result & POLLNVAL, "%d", cases[2].result);
    check_nobody_waits();
    cr_assert_eq(fiber_select(cases, 3, WEFT_NOWAIT), 2);
    cr_assert_eq(cases[2].result, -EBADF);
}

/* ---- cancellation, misuse ---- */

static int64_t select_nothing(void *deadline)
{
    return fiber_select(NULL, 0, *(weft_time *)deadline);
}

static int select_on_base(void)
{
    struct fiber_case c;

    fiber_case_event(&c, &event);
    return fiber_select(&c, 1, WEFT_FOREVER);
}

SYNC_TEST(sync_select, cancellation_and_misuse)
{
    weft_time forever = WEFT_FOREVER, soon = weft_after(WEFT_US(100));
    struct fiber_case cases[2];
    struct fiber_scope scope;
    struct promise *p;

    begin();
    p = start(recv_either);
    cr_assert_eq(cancelled(p), -ECANCELED);
    check_nobody_waits();
    p = start(recv_either);
    cr_assert_eq(weft_channel_try_send(&one, weft_num(4)), 0);
    cr_assert_eq(cancelled(p), 0, "it had the item");
    expect("-125!0 0:4 ");
    p = fiber_spawn(select_nothing, &forever);
    settle();
    cr_assert_eq(cancelled(p), -ECANCELED);
    cr_assert_eq(outcome(fiber_spawn(select_nothing, &soon)), -ETIMEDOUT);
    cr_assert_eq(fiber_select(NULL, 0, WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert_eq(fiber_select(NULL, 1, WEFT_NOWAIT), -EINVAL);
    cr_assert_eq(fiber_select(cases, (size_t)INT_MAX, WEFT_NOWAIT), -EINVAL);
    cr_assert_eq(on_base(select_on_base), -EDEADLK);

    weft_event_set(&event);
    fiber_case_event(&cases[0], &event);
    fiber_case_recv(&cases[1], NULL);
    cr_assert_eq(fiber_select_in_order(cases, 2, WEFT_FOREVER), 0);
    weft_event_reset(&event);
    cr_assert_eq(fiber_select(cases, 2, WEFT_FOREVER), 1);
    cr_assert_eq(cases[1].result, -EINVAL);
    fiber_case_send(&cases[1], NULL, weft_num(1));
    cr_assert_eq(fiber_select(cases, 2, WEFT_FOREVER), 1);
    fiber_case_event(&cases[1], NULL);
    cr_assert_eq(fiber_select(cases, 2, WEFT_FOREVER), 1);

    /* no case; one that was not set up */
    fiber_case_send(NULL, &one, weft_num(1));
    fiber_case_recv(NULL, &one);
    fiber_case_event(NULL, &event);
    fiber_case_time(NULL, WEFT_NOWAIT);
    fiber_case_promise(NULL, NULL);
    fiber_case_poll(NULL, 0, POLLIN);
    memset(&cases[1], 0, sizeof cases[1]);
    cr_assert_eq(fiber_select(cases, 2, WEFT_FOREVER), 1);
    cr_assert_eq(cases[1].result, -EINVAL);

    cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
    fiber_scope_cancel(&scope);
    weft_event_set(&event);
    cr_assert_eq(fiber_select(cases, 2, WEFT_FOREVER), -ECANCELED);
    cr_assert_eq(fiber_scope_close(&scope, 0), 0);
}

static int64_t select_many(void *unused)
{
    (void)unused;
    for (int i = 0; i < 50; i++)
        (void)recv_either(NULL);
    return 0;
}

SYNC_TEST(sync_select, waiting_allocates_nothing)
{
    struct promise *p;
    size_t before;

    begin();
    p = fiber_spawn(select_many, NULL);
    before = allocations;
    for (int i = 0; i < 50; i++) {
        fiber_yield();
        cr_assert_eq(weft_channel_try_send(i % 3 ? &one : &other, weft_num(i)), 0);
    }
    fiber_yield();
    cr_assert_eq(allocations, before);
    cr_assert_eq(outcome(p), 0);
    told[0] = '\0';
}
