/* needs: fibers */
/* Shared channels for fibers: deadlines, cancelling, and many senders and receivers that give up at any
 * moment: each item arrives once, or its sender still has it. */
#include "allocations.h"
#include "cluster_support.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <weft/fiber.h>
#include <weft/promise.h>
#include <weft/scope.h>
#include <weft/shared_channel.h>

static struct weft_shared_channel *channel;

/* ---- one runtime ---- */

static int64_t send_one(void *number)
{
    return fiber_shared_channel_send(channel, weft_num((int64_t)(intptr_t)number), WEFT_FOREVER);
}

static int64_t receive_one(void *unused)
{
    union weft_value value = weft_num(-1);
    int rc = fiber_shared_channel_recv(channel, &value, WEFT_FOREVER);

    (void)unused;
    return rc < 0 ? rc : value.num;
}

static int64_t result_of_fiber(struct promise *promise)
{
    union weft_value value = weft_num(0);
    int rc = fiber_await(promise, &value, WEFT_FOREVER);

    return rc < 0 ? rc : value.num;
}

static int in_one(void *unused)
{
    struct promise *a, *b, *c;
    union weft_value value = weft_num(0);

    (void)unused;
    cr_assert_eq(fiber_shared_channel_recv(channel, &value, WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert_eq(fiber_shared_channel_recv(channel, &value, weft_after(WEFT_MS(1))), -ETIMEDOUT);
    cr_assert_eq(fiber_shared_channel_recv(channel, NULL, WEFT_NOWAIT), -EINVAL);
    cr_assert_eq(fiber_shared_channel_recv(NULL, &value, WEFT_NOWAIT), -EINVAL);
    cr_assert_eq(fiber_shared_channel_send(NULL, value, WEFT_NOWAIT), -EINVAL);
    cr_assert_eq(fiber_shared_channel_send(channel, weft_num(1), WEFT_NOWAIT), 0);
    cr_assert_eq(fiber_shared_channel_send(channel, weft_num(2), WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert_eq(fiber_shared_channel_send(channel, weft_num(2), weft_after(WEFT_MS(1))),
                 -ETIMEDOUT);
    cr_assert_eq(fiber_shared_channel_recv(channel, &value, WEFT_NOWAIT), 0);
    cr_assert_eq(value.num, 1);

    /* who is cancelled while it waits takes nothing; who has been handed an item has it */
    a = fiber_spawn(receive_one, NULL);
    b = fiber_spawn(receive_one, NULL);
    c = fiber_spawn(receive_one, NULL);
    fiber_yield();
    promise_cancel(b);
    cr_assert_eq(weft_shared_channel_try_send(channel, weft_num(7)), 0);
    promise_cancel(a);
    cr_assert_eq(weft_shared_channel_try_send(channel, weft_num(8)), 0);
    cr_assert_eq(result_of_fiber(a), 7);
    cr_assert_eq(result_of_fiber(b), -ECANCELED);
    cr_assert_eq(result_of_fiber(c), 8);

    a = fiber_spawn(send_one, (void *)1); /* fits */
    b = fiber_spawn(send_one, (void *)2);
    c = fiber_spawn(send_one, (void *)3);
    fiber_yield();
    promise_cancel(b);
    cr_assert_eq(result_of_fiber(a), 0);
    cr_assert_eq(result_of_fiber(b), -ECANCELED);
    cr_assert_eq(fiber_shared_channel_recv(channel, &value, WEFT_FOREVER), 0);
    cr_assert_eq(value.num, 1);
    promise_cancel(c);
    cr_assert_eq(result_of_fiber(c), 0); /* too late */
    cr_assert_eq(fiber_shared_channel_recv(channel, &value, WEFT_FOREVER), 0);
    cr_assert_eq(value.num, 3);

    a = fiber_spawn(receive_one, NULL);
    fiber_yield();
    weft_shared_channel_close(channel);
    cr_assert_eq(result_of_fiber(a), -ENODATA);
    cr_assert_eq(fiber_shared_channel_send(channel, weft_num(1), WEFT_FOREVER), -EPIPE);
    cr_assert_eq(fiber_shared_channel_recv(channel, &value, WEFT_FOREVER), -ENODATA);
    return 0;
}

Test(shared_channel, in_one_runtime)
{
    union weft_value value;

    EACH_SETUP(setup)
    {
        channel = weft_shared_channel_create(NULL, 1, NULL);
        cr_assert_eq(run_on(setup, in_one, NULL), 0, "%s", setup->name);
        weft_shared_channel_unref(channel);
    }
    channel = weft_shared_channel_create(NULL, 1, NULL);
    cr_assert_eq(fiber_shared_channel_recv(channel, &value, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_shared_channel_send(channel, weft_num(1), WEFT_FOREVER), -EINVAL);
    weft_shared_channel_unref(channel);
}

/* ---- two runtimes: a wait allocates nothing, and passing to and fro goes on ---- */

#define ROUNDS (slow_tools() ? 100 : 5000)

static struct weft_shared_channel *back;

static int ping_pong(struct weft_cluster *cluster, unsigned index, void *unused)
{
    struct weft_shared_channel *out = index == 0 ? channel : back;
    struct weft_shared_channel *in = index == 0 ? back : channel;
    union weft_value value = weft_num(0);
    size_t before = 0;

    (void)cluster;
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        if (i == 50)
            before = allocations;
        if (index == 0)
            cr_assert_eq(fiber_shared_channel_send(out, weft_num(i), WEFT_FOREVER), 0);
        cr_assert_eq(fiber_shared_channel_recv(in, &value, weft_after(WEFT_SEC(60))), 0);
        cr_assert_eq(value.num, i);
        if (index == 1)
            cr_assert_eq(fiber_shared_channel_send(out, value, WEFT_FOREVER), 0);
    }
    cr_assert_eq(allocations, before);
    return 0;
}

Test(shared_channel, to_and_fro)
{
    for (size_t capacity = 0; capacity < 2; capacity++)
        EACH_SETUP(setup)
        {
            struct weft_cluster_options options = cluster_options(setup, 2);

            channel = weft_shared_channel_create(NULL, capacity, NULL);
            back = weft_shared_channel_create(NULL, capacity, NULL);
            cr_assert_eq(weft_cluster_run(ping_pong, NULL, &options), 0, "%s", setup->name);
            weft_shared_channel_unref(channel);
            weft_shared_channel_unref(back);
        }
}

/* ---- closing under load ---- */

static int receive_until_closed(struct weft_cluster *cluster, unsigned index, void *unused)
{
    struct promise *fibers[50];
    int closed = 0;

    (void)cluster;
    (void)unused;
    for (int i = 0; i < 50; i++)
        fibers[i] = fiber_spawn(receive_one, NULL);
    fiber_yield();
    if (index == 0)
        weft_shared_channel_close(channel);
    for (int i = 0; i < 50; i++)
        closed += result_of_fiber(fibers[i]) == -ENODATA;
    return closed == 50 ? 0 : -EPROTO;
}

/* More than are woken at a time, of several runtimes. */
Test(shared_channel, closing_wakes_all)
{
    EACH_SETUP(setup)
    {
        struct weft_cluster_options options = cluster_options(setup, 3);

        channel = weft_shared_channel_create(NULL, 1, NULL);
        cr_assert_eq(weft_cluster_run(receive_until_closed, NULL, &options), 0, "%s", setup->name);
        weft_shared_channel_unref(channel);
    }
}

/* ---- a deadlock ---- */

static int all_wait(struct weft_cluster *cluster, unsigned index, void *unused)
{
    (void)index;
    channel = weft_shared_channel_create(cluster, 1, NULL);
    promise_unref(fiber_spawn_on(weft_cluster_inbox(cluster, 1), receive_one, NULL, NULL));
    return (int)receive_one(unused);
}

Test(shared_channel, a_deadlock_is_seen)
{
    EACH_SETUP(setup)
    {
        struct weft_cluster_options options = cluster_options(setup, 2);

        options.mains = 1;
        cr_assert_eq(weft_cluster_run(all_wait, NULL, &options), -EDEADLK, "%s", setup->name);
        cr_assert(report_contains("waits for an item of a shared channel"));
        weft_shared_channel_unref(channel);
    }
}

/* ---- soak ---- */

/* Senders and receivers of three runtimes; each wait has a random deadline, or is cancelled by another
 * fiber, or neither. Who could not send an item keeps it, and tries again with the next number: the
 * sums must agree, and each sender's items arrive in order. */
#define RUNTIMES 3
#define SENDERS  4 /* in each */
#define SOAK     (slow_tools() ? 40 : 2000)

static atomic_long sent_count, sent_sum, received_count, received_sum;

struct soak {
    uint64_t random;
    int64_t who;
};

static uint64_t draw(struct soak *s)
{
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return s->random >> 11;
}

static weft_time some_deadline(struct soak *s)
{
    switch (draw(s) % 4) {
    case 0:
        return WEFT_NOWAIT;
    case 1:
        return weft_after((int64_t)(draw(s) % 20000));
    default:
        return WEFT_FOREVER;
    }
}

static int64_t sender(void *arg)
{
    struct soak *s = arg;

    for (int64_t i = 1; i <= SOAK;) {
        int rc = fiber_shared_channel_send(channel, weft_num(s->who << 32 | i), some_deadline(s));

        if (rc == 0) {
            atomic_fetch_add(&sent_count, 1);
            atomic_fetch_add(&sent_sum, i);
            i++;
        } else if (rc != -ETIMEDOUT) {
            return rc == -ECANCELED && weft_stopping() ? 0 : rc;
        }
        if (draw(s) % 8 == 0)
            fiber_yield();
    }
    return 0;
}

static int64_t receive_with(void *arg)
{
    struct soak *s = arg;
    union weft_value value = weft_num(0);
    int rc = fiber_shared_channel_recv(channel, &value, some_deadline(s));

    if (rc < 0)
        return rc;
    atomic_fetch_add(&received_count, 1);
    atomic_fetch_add(&received_sum, value.num & 0xffffffff);
    return value.num;
}

/* Order is looked at by each receiver for itself. */
static int64_t receiver(void *arg)
{
    struct soak *s = arg;
    int64_t last[RUNTIMES * SENDERS] = {0};

    for (;;) {
        int64_t got;

        if (draw(s) % 3 == 0) { /* in a fiber that is cancelled at some moment */
            struct promise *promise = fiber_spawn(receive_with, s);

            for (uint64_t n = draw(s) % 3; n > 0; n--)
                fiber_yield();
            promise_cancel(promise);
            got = result_of_fiber(promise);
        } else {
            got = receive_with(s);
        }
        if (got >= 0) {
            int64_t who = got >> 32, number = got & 0xffffffff;

            cr_assert_gt(number, last[who]);
            last[who] = number;
        } else if (got == -ENODATA || weft_stopping()) {
            return 0;
        } else {
            cr_assert(got == -ETIMEDOUT || got == -ECANCELED, "%d", (int)got);
            fiber_yield();
        }
    }
}

static uint64_t seed;
static atomic_int senders_left;
static struct soak soaks[RUNTIMES][2 * SENDERS];

static void expect_end(struct promise *promise)
{
    int rc = fiber_await(promise, NULL, WEFT_FOREVER);

    cr_assert(rc == 0 || (rc == -ECANCELED && weft_stopping()), "%d", rc);
}

static int soak_main(struct weft_cluster *cluster, unsigned index, void *unused)
{
    struct soak *s = soaks[index];
    struct promise *senders[SENDERS], *receivers[SENDERS];

    (void)unused;
    for (unsigned i = 0; i < 2 * SENDERS; i++) {
        s[i].random = seed * 7919 + index * 104729 + i * 31 + 1;
        s[i].who = index * SENDERS + i % SENDERS;
    }
    for (int i = 0; i < SENDERS; i++) {
        senders[i] = fiber_spawn(sender, &s[i]);
        receivers[i] = fiber_spawn(receiver, &s[SENDERS + i]);
    }
    if (index == 1 && seed % 4 == 0) { /* in the midst of it */
        fiber_sleep((int64_t)(draw(s) % WEFT_MS(2)));
        weft_cluster_stop(cluster);
    }
    for (int i = 0; i < SENDERS; i++)
        expect_end(senders[i]);
    if (atomic_fetch_sub(&senders_left, 1) == 1)
        weft_shared_channel_close(channel);
    for (int i = 0; i < SENDERS; i++)
        expect_end(receivers[i]);
    return 0;
}

Test(shared_channel, soak)
{
    const size_t capacities[] = {0, 1, 3, 50};
    int seeds = slow_tools() ? 4 : 24;

    for (seed = 1; seed <= (uint64_t)seeds; seed++) {
        struct weft_cluster_options options =
            cluster_options(&setups[seed % setups_count], RUNTIMES);
        union weft_value value;

        sent_count = sent_sum = received_count = received_sum = 0;
        senders_left = RUNTIMES;
        channel = weft_shared_channel_create(NULL, capacities[seed / 2 % 4], NULL);
        cr_assert_eq(weft_cluster_run(soak_main, NULL, &options), 0, "seed %d", (int)seed);
        if (seed % 4 != 0)
            cr_assert_eq(sent_count, (long)RUNTIMES * SENDERS * SOAK);
        while (weft_shared_channel_try_recv(channel, &value) == 0) { /* after an early end */
            cr_assert_eq(seed % 4, 0);
            received_count++;
            received_sum += value.num & 0xffffffff;
        }
        cr_assert_eq(received_count, sent_count, "seed %d", (int)seed);
        cr_assert_eq(received_sum, sent_sum, "seed %d", (int)seed);
        weft_shared_channel_unref(channel);
    }
}
