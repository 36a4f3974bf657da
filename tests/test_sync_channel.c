/* needs: fibers */
/* Channels: each item to one receiver, in order; what a cancellation, a deadline and closing do to it;
 * fibers and promises at the same channel. */
#include "test_sync.h"

#include "allocations.h"

static struct weft_channel channel;
static union weft_value room[4];

static void begin(size_t capacity)
{
    weft_channel_init(&channel, room, capacity, NULL);
}

static int64_t send(void *number)
{
    int rc = fiber_channel_send(&channel, weft_ptr(number), WEFT_FOREVER);

    tell("s%d:%d ", (int)(intptr_t)number, rc);
    return rc;
}

static int64_t recv(void *name)
{
    union weft_value value = weft_num(-1);
    int rc = fiber_channel_recv(&channel, &value, WEFT_FOREVER);

    tell("%s:%d,%d ", (char *)name, rc, (int)value.num);
    return rc < 0 ? rc : value.num;
}

static struct promise *sender(intptr_t number)
{
    struct promise *p = fiber_spawn(send, (void *)number);

    settle();
    return p;
}

static struct promise *receiver(const char *name)
{
    struct promise *p = fiber_spawn(recv, (void *)name);

    settle();
    return p;
}

static int64_t recv_now(void)
{
    union weft_value value;
    int rc = fiber_channel_recv(&channel, &value, WEFT_NOWAIT);

    return rc < 0 ? rc : value.num;
}

static int send_now(int64_t number)
{
    return fiber_channel_send(&channel, weft_num(number), WEFT_NOWAIT);
}

SYNC_TEST(sync_channel, without_room_sender_and_receiver_meet)
{
    struct promise *a, *b, *c;

    begin(0);
    cr_assert_eq(send_now(1), -ETIMEDOUT);
    cr_assert_eq(recv_now(), -ETIMEDOUT);
    a = sender(1);
    b = sender(2);
    expect("");
    cr_assert_eq(weft_channel_count(&channel), 0);
    cr_assert_eq(recv_now(), 1);
    expect("");
    settle();
    expect("s1:0 ");
    cr_assert_eq(recv_now(), 2);
    cr_assert_eq(outcome(a), 0);
    cr_assert_eq(outcome(b), 0);
    expect("s2:0 ");
    a = receiver("a");
    b = receiver("b");
    cr_assert_eq(send_now(3), 0);
    cr_assert_eq(send_now(4), 0);
    cr_assert_eq(send_now(5), -ETIMEDOUT);
    c = sender(6);
    expect("a:0,3 b:0,4 ");
    cr_assert_eq(recv_now(), 6);
    cr_assert_eq(outcome(a), 3);
    cr_assert_eq(outcome(b), 4);
    cr_assert_eq(outcome(c), 0);
    told[0] = '\0';
}

SYNC_TEST(sync_channel, items_stay_in_order)
{
    for (size_t capacity = 1; capacity <= 4; capacity++) {
        struct promise *senders[3];
        int64_t next = 0, last = 0;

        begin(capacity);
        for (int round = 0; round < 5; round++) {
            for (size_t i = 0; i < capacity; i++)
                cr_assert_eq(send_now(next++), 0);
            cr_assert_eq(send_now(99), -ETIMEDOUT);
            cr_assert_eq(weft_channel_count(&channel), capacity);
            for (int i = 0; i < 3; i++)
                senders[i] = sender(next++);
            /* those who wait come in as there is room, before anybody new */
            cr_assert_eq(recv_now(), last++);
            cr_assert_eq(send_now(99), -ETIMEDOUT);
            cr_assert_eq(weft_channel_count(&channel), capacity);
            while (last < next)
                cr_assert_eq(recv_now(), last++);
            for (int i = 0; i < 3; i++)
                cr_assert_eq(outcome(senders[i]), 0);
            /* an offset of one for the next round */
            cr_assert_eq(send_now(next++), 0);
            cr_assert_eq(recv_now(), last++);
        }
        cr_assert_eq(recv_now(), -ETIMEDOUT);
        told[0] = '\0';
    }
}

SYNC_TEST(sync_channel, closing_wakes_and_what_is_there_can_be_received)
{
    struct promise *a, *b, *p;

    begin(2);
    a = receiver("a");
    p = promise_channel_recv(&channel);
    cr_assert(!weft_channel_is_closed(&channel));
    weft_channel_close(&channel);
    cr_assert(weft_channel_is_closed(&channel));
    cr_assert_eq(outcome(a), -ENODATA);
    cr_assert_eq(outcome(p), -ENODATA);
    expect("a:-61,-1 ");

    begin(2);
    cr_assert_eq(send_now(1), 0);
    cr_assert_eq(send_now(2), 0);
    a = sender(3);
    p = promise_channel_send(&channel, weft_num(4));
    b = sender(5);
    weft_channel_close(&channel);
    weft_channel_close(&channel);
    cr_assert_eq(outcome(a), -EPIPE);
    cr_assert_eq(outcome(p), -EPIPE);
    cr_assert_eq(outcome(b), -EPIPE);
    expect("s3:-32 s5:-32 ");
    cr_assert_eq(send_now(6), -EPIPE);
    cr_assert_eq(weft_channel_try_send(&channel, weft_num(6)), -EPIPE);
    cr_assert_eq(outcome(promise_channel_send(&channel, weft_num(6))), -EPIPE);
    cr_assert_eq(recv_now(), 1);
    cr_assert_eq(outcome(promise_channel_recv(&channel)), 2);
    cr_assert_eq(recv_now(), -ENODATA);
    cr_assert_eq(outcome(promise_channel_recv(&channel)), -ENODATA);
    cr_assert_eq(outcome(receiver("b")), -ENODATA);
    told[0] = '\0';
}

/* Whoever leaves takes the item along, and takes nothing with it. */
SYNC_TEST(sync_channel, a_cancelled_send_keeps_its_item)
{
    for (size_t capacity = 0; capacity <= 1; capacity++)
        for (int out = 0; out < 3; out++) {
            struct promise *p[3];

            begin(capacity);
            if (capacity == 1)
                cr_assert_eq(send_now(9), 0);
            p[0] = sender(0);
            p[1] = promise_channel_send(&channel, weft_num(1));
            p[2] = sender(2);
            cr_assert_eq(cancelled(p[out]), -ECANCELED);
            if (capacity == 1)
                cr_assert_eq(recv_now(), 9);
            for (int i = 0; i < 3; i++)
                if (i != out)
                    cr_assert_eq(recv_now(), i);
            cr_assert_eq(recv_now(), -ETIMEDOUT);
            for (int i = 0; i < 3; i++)
                if (i != out)
                    cr_assert_eq(outcome(p[i]), 0);
            told[0] = '\0';
        }
}

SYNC_TEST(sync_channel, a_cancelled_receive_takes_nothing)
{
    for (int out = 0; out < 3; out++) {
        struct promise *p[3];
        int64_t next = 1;

        begin(0);
        p[0] = receiver("a");
        p[1] = promise_channel_recv(&channel);
        p[2] = receiver("b");
        cr_assert_eq(cancelled(p[out]), -ECANCELED);
        cr_assert_eq(send_now(1), 0);
        cr_assert_eq(send_now(2), 0);
        cr_assert_eq(send_now(3), -ETIMEDOUT);
        for (int i = 0; i < 3; i++)
            if (i != out)
                cr_assert_eq(outcome(p[i]), next++);
        told[0] = '\0';
    }
}

static int64_t recv_until(void *at)
{
    union weft_value value;
    int rc = fiber_channel_recv(&channel, &value, *(weft_time *)at);

    return rc < 0 ? rc : value.num;
}

static int64_t send_until(void *at)
{
    return fiber_channel_send(&channel, weft_num(5), *(weft_time *)at);
}

SYNC_TEST(sync_channel, deadlines)
{
    weft_time soon = weft_after(WEFT_MS(1)), past = weft_now();
    struct promise *a, *b, *c, *d;

    begin(0);
    a = fiber_spawn(recv_until, &soon);
    b = fiber_spawn(recv_until, &past);
    cr_assert_eq(outcome(a), -ETIMEDOUT);
    cr_assert_eq(outcome(b), -ETIMEDOUT);
    soon = weft_after(WEFT_MS(1));
    c = fiber_spawn(send_until, &soon);
    d = fiber_spawn(send_until, &past);
    cr_assert_eq(outcome(c), -ETIMEDOUT);
    cr_assert_eq(outcome(d), -ETIMEDOUT);
    cr_assert_eq(recv_now(), -ETIMEDOUT);
    cr_assert_eq(send_now(1), -ETIMEDOUT);
}

/* Begins to wait with a deadline that is soon, but not yet. */
static struct promise *wait_shortly(fiber_fn *fn, weft_time *at)
{
    for (;;) {
        struct promise *p;

        *at = weft_after(WEFT_MS(2));
        p = fiber_spawn(fn, at);
        settle();
        if (channel.senders != NULL || channel.receivers != NULL)
            return p;
        cr_assert_eq(outcome(p), -ETIMEDOUT); /* a slow machine: once more */
    }
}

SYNC_TEST(sync_channel, what_was_handed_over_stays_so)
{
    struct promise *p;
    weft_time at;

    begin(0);
    p = wait_shortly(recv_until, &at);
    cr_assert_eq(send_now(7), 0);
    spin_until(at);
    cr_assert_eq(cancelled(p), 7);

    p = wait_shortly(send_until, &at);
    cr_assert_eq(recv_now(), 5);
    spin_until(at);
    cr_assert_eq(cancelled(p), 0);

    p = promise_channel_recv(&channel);
    cr_assert_eq(send_now(8), 0);
    cr_assert_eq(cancelled(p), 8);
    p = promise_channel_send(&channel, weft_num(9));
    cr_assert_eq(recv_now(), 9);
    cr_assert_eq(cancelled(p), 0);
}

SYNC_TEST(sync_channel, a_cancelled_fiber_does_nothing)
{
    struct fiber_scope scope;

    begin(1);
    cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
    fiber_scope_cancel(&scope);
    cr_assert_eq(send_now(1), -ECANCELED);
    cr_assert_eq(weft_channel_count(&channel), 0);
    cr_assert_eq(weft_channel_try_send(&channel, weft_num(2)), 0, "this one isn't a wait");
    cr_assert_eq(recv_now(), -ECANCELED);
    cr_assert_eq(fiber_scope_close(&scope, 0), 0);
    cr_assert_eq(recv_now(), 2);
}

/* ---- promises ---- */

static int told_at_once(union weft_value value, void *name)
{
    tell("%s%d ", (char *)name, (int)value.num);
    return 0;
}

static struct promise *telling(struct promise *p, const char *name)
{
    promise_on_success(p, told_at_once, (void *)name);
    return p;
}

SYNC_TEST(sync_channel, fibers_and_promises_stand_in_one_queue)
{
    struct promise *a, *p, *b, *q;

    begin(0);
    a = receiver("a");
    p = telling(promise_channel_recv(&channel), "p");
    b = receiver("b");
    q = telling(promise_channel_recv(&channel), "q");
    for (int i = 1; i <= 4; i++)
        cr_assert_eq(send_now(i), 0);
    expect("p2 q4 ");
    settle();
    expect("a:0,1 b:0,3 ");
    cr_assert_eq(outcome(a), 1);
    cr_assert_eq(outcome(p), 2);
    cr_assert_eq(outcome(b), 3);
    cr_assert_eq(outcome(q), 4);
    /* the other way round */
    a = sender(1);
    p = telling(promise_channel_send(&channel, weft_num(2)), "p");
    b = sender(3);
    cr_assert_eq(outcome(promise_channel_recv(&channel)), 1);
    cr_assert_eq(recv_now(), 2);
    expect("p0 ");
    cr_assert_eq(recv_now(), 3);
    cr_assert_eq(outcome(a), 0);
    cr_assert_eq(outcome(p), 0);
    cr_assert_eq(outcome(b), 0);
    expect("s1:0 s3:0 ");
    /* at once */
    begin(1);
    cr_assert_eq(outcome(promise_channel_send(&channel, weft_num(1))), 0);
    p = promise_channel_send(&channel, weft_num(2));
    cr_assert_eq(outcome(promise_channel_recv(&channel)), 1);
    cr_assert_eq(outcome(p), 0);
    cr_assert_eq(outcome(promise_channel_recv(&channel)), 2);
}

/* An item that is too large for a handle, and too little memory for it. */
SYNC_TEST(sync_channel, a_receive_without_memory_takes_nothing)
{
    begin(1);
    cr_assert_eq(send_now(INT64_MIN), 0);
    promise__fail_after(0);
    cr_assert_eq(outcome(promise_channel_recv(&channel)), -ENOMEM);
    promise__fail_after(SIZE_MAX);
    cr_assert_eq(outcome(promise_channel_recv(&channel)), INT64_MIN);
    promise__fail_after(0);
    cr_assert_eq(outcome(promise_channel_recv(&channel)), -ENOMEM);
    cr_assert_eq(send_now(1), 0);
    cr_assert_eq(outcome(promise_channel_send(&channel, weft_num(2))), -ENOMEM);
    cr_assert_eq(outcome(promise_channel_recv(&channel)), 1, "this one needs none");
    promise__fail_after(SIZE_MAX);
    cr_assert_eq(recv_now(), -ETIMEDOUT);
}

/* ---- items that own memory ---- */

static int destroyed;

static void destroy(void *item)
{
    destroyed += *(int *)item;
    free(item);
}

static void *item(int number)
{
    int *p = malloc(sizeof *p);

    *p = number;
    return p;
}

SYNC_TEST(sync_channel, items_are_destroyed_by_whoever_has_them)
{
    struct weft_channel *c = weft_channel_create(2, destroy);
    union weft_value value;
    struct promise *p, *q, *kept;
    void *mine = item(4);

    destroyed = 0;
    cr_assert_eq(fiber_channel_send(c, weft_ptr(item(1)), WEFT_NOWAIT), 0);
    cr_assert_eq(fiber_channel_recv(c, &value, WEFT_NOWAIT), 0);
    cr_assert_eq(*(int *)value.ptr, 1);
    free(value.ptr);
    /* a promise owns what nobody takes from it */
    p = promise_channel_recv(c);
    cr_assert_eq(fiber_channel_send(c, weft_ptr(item(10)), WEFT_NOWAIT), 0);
    promise_unref(p);
    cr_assert_eq(destroyed, 10);
    cr_assert_eq(fiber_channel_send(c, weft_ptr(item(20)), WEFT_NOWAIT), 0);
    promise_unref(promise_channel_recv(c));
    cr_assert_eq(destroyed, 30);
    p = promise_channel_recv(c);
    kept = promise_ref(p);
    cr_assert_eq(fiber_channel_send(c, weft_ptr(item(100)), WEFT_NOWAIT), 0);
    cr_assert_eq(fiber_await(p, &value, WEFT_NOWAIT), 0);
    cr_assert_eq(*(int *)value.ptr, 100);
    cr_assert_eq(destroyed, 30);
    promise_unref(kept);
    cr_assert_eq(destroyed, 130);
    /* the end: what is in it goes, what isn't yet is the sender's */
    cr_assert_eq(fiber_channel_send(c, weft_ptr(item(200)), WEFT_NOWAIT), 0);
    cr_assert_eq(fiber_channel_send(c, weft_ptr(item(300)), WEFT_NOWAIT), 0);
    q = promise_channel_send(c, weft_ptr(mine));
    weft_channel_destroy(c);
    cr_assert_eq(outcome(q), -ECANCELED);
    cr_assert_eq(destroyed, 630);
    free(mine);
    weft_channel_destroy(NULL);
}

static struct weft_channel *drained;
static int received;

static void destroy_and_drain(void *ptr)
{
    union weft_value value;

    destroy(ptr);
    cr_assert_eq(weft_channel_try_send(drained, weft_num(0)), -EPIPE);
    while (weft_channel_try_recv(drained, &value) == 0) {
        received += *(int *)value.ptr;
        free(value.ptr);
    }
}

SYNC_TEST(sync_channel, an_items_destroy_may_use_the_channel)
{
    struct promise *sent;

    drained = weft_channel_create(2, destroy_and_drain);
    destroyed = received = 0;
    cr_assert_eq(fiber_channel_send(drained, weft_ptr(item(1)), WEFT_NOWAIT), 0);
    cr_assert_eq(fiber_channel_send(drained, weft_ptr(item(10)), WEFT_NOWAIT), 0);
    sent = promise_channel_send(drained, weft_ptr(item(100)));
    weft_channel_finish(drained);
    cr_assert_eq(destroyed, 1);
    cr_assert_eq(received, 110);
    cr_assert_eq(outcome(sent), 0);
    cr_assert_eq(weft_channel_count(drained), 0);
    weft_channel_destroy(drained);
}

/* ---- misuse and the rest ---- */

static int send_on_base(void)
{
    return fiber_channel_send(&channel, weft_num(1), WEFT_FOREVER);
}

static int recv_on_base(void)
{
    union weft_value value;

    return fiber_channel_recv(&channel, &value, WEFT_FOREVER);
}

static int try_on_base(void)
{
    union weft_value value;
    int rc = weft_channel_try_recv(&channel, &value);

    return rc < 0 ? rc : (int)value.num;
}

SYNC_TEST(sync_channel, misuse)
{
    union weft_value value;

    begin(1);
    cr_assert_eq(on_base(send_on_base), -EDEADLK);
    cr_assert_eq(on_base(recv_on_base), -EDEADLK);
    cr_assert_eq(on_base(try_on_base), -EAGAIN);
    cr_assert_eq(weft_channel_try_send(&channel, weft_num(7)), 0);
    cr_assert_eq(weft_channel_try_send(&channel, weft_num(8)), -EAGAIN);
    cr_assert_eq(on_base(try_on_base), 7);
    cr_assert_eq(fiber_channel_send(NULL, weft_num(1), WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_channel_recv(NULL, &value, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_channel_recv(&channel, NULL, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(weft_channel_try_send(NULL, weft_num(1)), -EINVAL);
    cr_assert_eq(weft_channel_try_recv(NULL, &value), -EINVAL);
    cr_assert_eq(weft_channel_try_recv(&channel, NULL), -EINVAL);
    cr_assert_eq(outcome(promise_channel_send(NULL, weft_num(1))), -EINVAL);
    cr_assert_eq(outcome(promise_channel_recv(NULL)), -EINVAL);
    cr_assert(weft_channel_is_closed(NULL));
    cr_assert_eq(weft_channel_count(NULL), 0);
    weft_channel_init(NULL, NULL, 0, NULL);
    weft_channel_close(NULL);
    weft_channel_finish(NULL);
    cr_assert_null(weft_channel_create(SIZE_MAX / 4, NULL));
    weft_channel_init(&channel, NULL, 5, NULL);
    cr_assert_eq(send_now(1), -ETIMEDOUT, "room without memory is none");
}

static int64_t send_many(void *unused)
{
    (void)unused;
    for (int i = 0; i < 100; i++)
        cr_assert_eq(fiber_channel_send(&channel, weft_num(i), WEFT_FOREVER), 0);
    return 0;
}

static int64_t recv_many(void *unused)
{
    union weft_value value;

    (void)unused;
    for (int i = 0; i < 100; i++) {
        cr_assert_eq(fiber_channel_recv(&channel, &value, WEFT_FOREVER), 0);
        cr_assert_eq(value.num, i);
    }
    return 0;
}

SYNC_TEST(sync_channel, waiting_allocates_nothing)
{
    struct promise *a, *b;
    size_t before;

    begin(0);
    a = fiber_spawn(send_many, NULL);
    b = fiber_spawn(recv_many, NULL);
    before = allocations;
    for (int i = 0; i < 300; i++)
        fiber_yield();
    cr_assert_eq(allocations, before);
    cr_assert_eq(outcome(a), 0);
    cr_assert_eq(outcome(b), 0);
}

static int after_the_runtime(void *unused)
{
    (void)unused;
    begin(0);
    promise_unref(promise_channel_recv(&channel));
    promise_unref(promise_channel_send(&channel, weft_num(1)));
    promise_unref(promise_channel_recv(&channel));
    return 0;
}

Test(sync_channel, ends_with_its_runtime_or_after_it)
{
    union weft_value value;

    cr_assert_eq(run_on(&setups[0], after_the_runtime, NULL), 0);
    cr_assert_eq(weft_channel_try_send(&channel, weft_num(1)), -EINVAL);
    cr_assert_eq(weft_channel_try_recv(&channel, &value), -EINVAL);
    weft_channel_close(&channel);
    weft_channel_finish(&channel);
}

/* A value that the runtime's end destroys may own what promises wait for. */
static struct weft_semaphore semaphore;
static bool seen_runtime;

static void destroy_channel(void *owned)
{
    seen_runtime |= weft_current() != NULL || weft_engine_name() != NULL;
    weft_channel_destroy(owned);
}

static void release_unit(void *unused)
{
    (void)unused;
    cr_assert_eq(weft_semaphore_release(&semaphore, 1), -EINVAL, "there is no runtime any more");
}

static int own_what_is_awaited(void *unused)
{
    static struct promise *held[2]; /* nobody gives them back */
    struct weft_channel *owned = weft_channel_create(0, NULL);

    (void)unused;
    held[0] = promise_create();
    held[1] = promise_create();
    cr_assert_eq(promise_resolve_owned(held[0], owned, destroy_channel), 0);
    promise_unref(promise_channel_recv(owned));
    promise_unref(promise_channel_recv(owned));
    weft_semaphore_init(&semaphore, 0);
    cr_assert_eq(promise_resolve_owned(held[1], &semaphore, release_unit), 0);
    promise_unref(promise_semaphore_acquire(&semaphore, 1));
    return 0;
}

Test(sync_channel, the_runtimes_end_destroys_one_that_is_waited_for)
{
    cr_assert_eq(run_on(&setups[0], own_what_is_awaited, NULL), 0);
    cr_assert_not(seen_runtime);
    weft_semaphore_finish(&semaphore);
}
