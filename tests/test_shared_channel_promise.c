/* Shared channels: what never waits, from any thread; and as promises of different runtimes. Without
 * fibers. */
#include "allocations.h"
#include "cluster_support.h"
#include "promise_internal.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <semaphore.h>
#include <weft/promise.h>
#include <weft/shared_channel.h>

static int destroyed;

static void count_destroy(void *ptr)
{
    destroyed++;
    free(ptr);
}

static void *item(int number)
{
    int *p = malloc(sizeof *p);

    cr_assert_not_null(p);
    *p = number;
    return p;
}

/* ---- without waiting, without a runtime ---- */

Test(shared_channel_promise, what_never_waits)
{
    struct weft_shared_channel *channel = weft_shared_channel_create(NULL, 2, count_destroy);
    union weft_value value;
    void *left = item(4);

    cr_assert_eq(weft_shared_channel_try_recv(channel, &value), -EAGAIN);
    for (int round = 0; round < 5; round++) { /* round the ring */
        cr_assert_eq(weft_shared_channel_try_send(channel, weft_ptr(item(1))), 0);
        cr_assert_eq(weft_shared_channel_try_send(channel, weft_ptr(item(2))), 0);
        cr_assert_eq(weft_shared_channel_try_send(channel, weft_ptr(left)), -EAGAIN);
        cr_assert_eq(weft_shared_channel_count(channel), 2);
        for (int i = 1; i <= 2; i++) {
            cr_assert_eq(weft_shared_channel_try_recv(channel, &value), 0);
            cr_assert_eq(*(int *)value.ptr, i);
            free(value.ptr);
        }
    }
    cr_assert_eq(weft_shared_channel_try_send(channel, weft_ptr(item(3))), 0);
    cr_assert(!weft_shared_channel_is_closed(channel));
    weft_shared_channel_close(channel);
    weft_shared_channel_close(channel);
    cr_assert(weft_shared_channel_is_closed(channel));
    cr_assert_eq(weft_shared_channel_try_send(channel, weft_ptr(left)), -EPIPE);
    cr_assert_eq(weft_shared_channel_try_recv(channel, &value), 0);
    cr_assert_eq(*(int *)value.ptr, 3);
    free(value.ptr);
    free(left);
    cr_assert_eq(weft_shared_channel_try_recv(channel, &value), -ENODATA);
    weft_shared_channel_unref(channel);
    cr_assert_eq(destroyed, 0);

    channel = weft_shared_channel_create(NULL, 3, count_destroy);
    cr_assert_eq(weft_shared_channel_try_send(channel, weft_ptr(item(1))), 0);
    cr_assert_eq(weft_shared_channel_try_recv(channel, &value), 0);
    free(value.ptr);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(weft_shared_channel_try_send(channel, weft_ptr(item(i))), 0);
    cr_assert_eq(weft_shared_channel_ref(channel), channel);
    weft_shared_channel_unref(channel);
    cr_assert_eq(destroyed, 0);
    weft_shared_channel_unref(channel);
    cr_assert_eq(destroyed, 3);
}

Test(shared_channel_promise, bad_input)
{
    struct weft_shared_channel *channel = weft_shared_channel_create(NULL, 0, NULL);
    struct promise *p;
    union weft_value value;
    int error = 0;

    cr_assert_null(weft_shared_channel_create(NULL, SIZE_MAX, NULL));
    cr_assert_null(weft_shared_channel_create(NULL, SIZE_MAX / 8, NULL));
    cr_assert_eq(weft_shared_channel_try_send(NULL, weft_num(0)), -EINVAL);
    cr_assert_eq(weft_shared_channel_try_recv(NULL, &value), -EINVAL);
    cr_assert_eq(weft_shared_channel_try_recv(channel, NULL), -EINVAL);
    cr_assert_eq(weft_shared_channel_try_send(channel, weft_num(0)), -EAGAIN); /* room for none */
    cr_assert_null(weft_shared_channel_ref(NULL));
    weft_shared_channel_unref(NULL);
    weft_shared_channel_close(NULL);
    cr_assert(!weft_shared_channel_is_closed(NULL));
    cr_assert_eq(weft_shared_channel_count(NULL), 0);
    p = promise_shared_channel_recv(channel); /* no runtime */
    cr_assert_eq(promise_poll(p, NULL, &error), PROMISE_REJECTED);
    cr_assert_eq(error, -EINVAL);
    p = promise_shared_channel_send(channel, weft_num(1));
    cr_assert_eq(promise_poll(p, NULL, &error), PROMISE_REJECTED);
    cr_assert_eq(error, -EINVAL);
    weft_shared_channel_unref(channel);
}

/* ---- one runtime, by hand: who waits, and who gives up ---- */

static int run_once(const struct setup *setup, promise_thunk_fn *main)
{
    struct weft_options options = setup_options(setup);

    return promise_run(main, NULL, &options, NULL);
}

static struct weft_shared_channel *channel;

#define SEND(n) promise_shared_channel_send(channel, weft_num(n))
#define RECV()  promise_shared_channel_recv(channel)

static enum promise_state state_of(struct promise *p, int *error)
{
    *error = 0;
    return promise_poll(p, NULL, error);
}

static void expect_error(struct promise *p, int wanted)
{
    int error;

    cr_assert_eq(state_of(p, &error), PROMISE_REJECTED);
    cr_assert_eq(error, wanted);
    promise_unref(p);
}

static void expect_pending(struct promise *p)
{
    cr_assert_eq(promise_state(p), PROMISE_PENDING);
}

static void expect_number(struct promise *p, int64_t number)
{
    union weft_value value = weft_num(0);

    cr_assert_eq(promise_poll(p, &value, NULL), PROMISE_FULFILLED);
    cr_assert_eq(value.num, number);
    promise_unref(p);
}

/* What is handed over comes in the next turn of the loop; then `next` runs. */
static struct promise *next(promise_bind_fn *fn)
{
    return promise_bind(promise_pause(), fn, NULL);
}

static struct promise *p[8];

static struct promise *waited_2(union weft_value value, void *ctx)
{
    (void)value;
    (void)ctx;
    expect_number(p[0], 7); /* the second receiver was cancelled: the third has the item */
    expect_error(p[1], -ECANCELED);
    expect_number(p[2], 8);
    /* closed: who waits to receive is told, in order or not */
    p[0] = RECV();
    p[1] = RECV();
    weft_shared_channel_close(channel);
    return promise_pause();
}

static struct promise *waited_3(union weft_value value, void *ctx)
{
    (void)value;
    (void)ctx;
    expect_error(p[0], -ENODATA);
    expect_error(p[1], -ENODATA);
    expect_error(RECV(), -ENODATA);
    expect_error(SEND(1), -EPIPE);
    return promise_fulfilled(weft_num(0));
}

static struct promise *receivers(void *unused)
{
    (void)unused;
    for (int i = 0; i < 3; i++)
        expect_pending(p[i] = RECV());
    promise_cancel(p[1]);
    cr_assert_eq(weft_shared_channel_try_send(channel, weft_num(7)), 0);
    /* it has been handed over: too late */
    promise_cancel(p[0]);
    expect_pending(p[0]);
    cr_assert_eq(weft_shared_channel_try_send(channel, weft_num(8)), 0);
    return promise_bind(next(waited_2), waited_3, NULL);
}

static struct promise *sent_2(union weft_value value, void *ctx)
{
    (void)value;
    (void)ctx;
    expect_number(p[0], 0);
    expect_number(p[2], 0);
    expect_error(p[3], -EPIPE);
    return promise_fulfilled(weft_num(0));
}

static struct promise *senders(void *unused)
{
    int64_t room = (int64_t)weft_shared_channel_count(channel);
    union weft_value value;

    (void)unused;
    for (int i = 0; i < 4; i++)
        expect_pending(p[i] = SEND(10 + i));
    promise_cancel(p[1]);
    expect_error(p[1], -ECANCELED); /* its item has not been sent */
    for (int64_t i = 0; i < room; i++) {
        cr_assert_eq(weft_shared_channel_try_recv(channel, &value), 0);
        cr_assert_eq(value.num, i);
    }
    cr_assert_eq(weft_shared_channel_try_recv(channel, &value), 0);
    cr_assert_eq(value.num, 10);
    promise_cancel(p[0]);
    expect_pending(p[0]); /* it has been sent */
    if (room == 0) {
        cr_assert_eq(weft_shared_channel_try_recv(channel, &value), 0);
        cr_assert_eq(value.num, 12);
        weft_shared_channel_close(channel); /* the last one still waits */
    } else {
        cr_assert_eq(weft_shared_channel_count(channel), 2);
        cr_assert_eq(weft_shared_channel_try_recv(channel, &value), 0);
        cr_assert_eq(value.num, 12);
        cr_assert_eq(weft_shared_channel_try_recv(channel, &value), 0);
        cr_assert_eq(value.num, 13);
        p[4] = SEND(20);
        expect_number(p[4], 0);
        promise_unref(p[3]);
        cr_assert_eq(weft_shared_channel_try_send(channel, weft_num(21)), 0);
        expect_pending(p[3] = SEND(22));
        weft_shared_channel_close(channel);
        for (int i = 0; i < 2; i++) { /* what is in it can still be had */
            expect_number(RECV(), 20 + i);
        }
        expect_error(RECV(), -ENODATA);
    }
    return next(sent_2);
}

Test(shared_channel_promise, waiting_and_giving_up)
{
    EACH_SETUP(setup)
    {
        for (size_t capacity = 0; capacity <= 2; capacity += 2) {
            channel = weft_shared_channel_create(NULL, capacity, NULL);
            cr_assert_eq(run_once(setup, receivers), 0, "%s", setup->name);
            weft_shared_channel_unref(channel);
            channel = weft_shared_channel_create(NULL, capacity, NULL);
            for (size_t i = 0; i < capacity; i++)
                cr_assert_eq(weft_shared_channel_try_send(channel, weft_num((int64_t)i)), 0);
            cr_assert_eq(run_once(setup, senders), 0, "%s", setup->name);
            weft_shared_channel_unref(channel);
        }
    }
}

/* ---- the end of a runtime ---- */

static struct promise *leave_waiting(void *unused)
{
    (void)unused;
    for (int i = 0; i < 3; i++)
        promise_unref(RECV()); /* dropped or not, they stand in the queue */
    return promise_fulfilled(weft_num(0));
}

static struct promise *leave_sending(void *unused)
{
    (void)unused;
    for (int i = 0; i < 3; i++)
        p[i] = SEND(i);
    return promise_fulfilled(weft_num(0));
}

static struct promise *leave_handed(void *unused)
{
    (void)unused;
    p[0] = RECV();
    p[1] = RECV();
    cr_assert_eq(weft_shared_channel_try_send(channel, weft_ptr(item(1))), 0);
    return promise_fulfilled(weft_num(0));
}

Test(shared_channel_promise, a_runtime_ends_that_waits)
{
    EACH_SETUP(setup)
    {
        union weft_value value;

        channel = weft_shared_channel_create(NULL, 0, NULL);
        cr_assert_eq(run_once(setup, leave_waiting), 0, "%s", setup->name);
        cr_assert_eq(weft_shared_channel_try_send(channel, weft_num(1)), -EAGAIN);
        cr_assert_eq(run_once(setup, leave_sending), 0, "%s", setup->name);
        cr_assert_eq(weft_shared_channel_try_recv(channel, &value), -EAGAIN);
        weft_shared_channel_unref(channel);

        /* an item on its way to a runtime that ends is that runtime's */
        channel = weft_shared_channel_create(NULL, 0, count_destroy);
        destroyed = 0;
        cr_assert_eq(run_once(setup, leave_handed), 0, "%s", setup->name);
        cr_assert_eq(destroyed, 1);
        cr_assert_eq(weft_shared_channel_try_recv(channel, &value), -EAGAIN);
        weft_shared_channel_unref(channel);
    }
}

/* ---- between runtimes ---- */

#define RUNTIMES 3
#define ITEMS    (slow_tools() ? 60 : 3000)

/* Each runtime of the cluster sends ITEMS and receives ITEMS; items say who sent them and in which
 * order. */
static struct traffic {
    int sent, received;
    int last[RUNTIMES]; /* by each sender */
    int64_t sum;
} traffic[RUNTIMES];

static struct promise *send_on(union weft_value value, void *arg)
{
    struct traffic *t = arg;
    int64_t who = t - traffic;

    (void)value;
    if (t->sent == ITEMS)
        return promise_fulfilled(weft_num(0));
    t->sent++;
    return promise_bind(SEND(who << 32 | t->sent), send_on, t);
}

static struct promise *receive_on(struct traffic *t);

static struct promise *received(union weft_value value, void *arg)
{
    struct traffic *t = arg;
    int who = (int)(value.num >> 32), number = (int)(value.num & 0xffffffff);

    cr_assert_gt(number, t->last[who], "%d from %d after %d", number, who, t->last[who]);
    t->last[who] = number;
    t->sum += number;
    t->received++;
    return receive_on(t);
}

static struct promise *receive_on(struct traffic *t)
{
    if (t->received == ITEMS)
        return promise_fulfilled(weft_num(0));
    return promise_bind(RECV(), received, t);
}

static struct promise *run_traffic(void *arg)
{
    struct promise *both[2] = {send_on(weft_num(0), arg), receive_on(arg)};

    return promise_join(both, 2);
}

static struct weft_cluster *servers;

static struct promise *run_all_traffic(void *unused)
{
    struct promise *all[RUNTIMES];

    (void)unused;
    for (int i = 0; i < RUNTIMES; i++)
        all[i] = promise_call_on(weft_cluster_inbox(servers, (unsigned)i), run_traffic, &traffic[i],
                                 NULL);
    return promise_join(all, RUNTIMES);
}

Test(shared_channel_promise, many_senders_and_receivers)
{
    const size_t capacities[] = {0, 1, 7};

    for (int c = 0; c < 3; c++)
        EACH_SETUP(setup)
        {
            struct weft_cluster_options options = cluster_options(setup, RUNTIMES);
            int64_t sum = 0;

            memset(traffic, 0, sizeof traffic);
            channel = weft_shared_channel_create(NULL, capacities[c], NULL);
            cr_assert_eq(weft_cluster_start(&servers, NULL, NULL, &options), 0);
            cr_assert_eq(run_once(&setups[0], run_all_traffic), 0, "%s", setup->name);
            for (int i = 0; i < RUNTIMES; i++)
                sum += traffic[i].sum;
            cr_assert_eq(sum, (int64_t)RUNTIMES * ITEMS * (ITEMS + 1) / 2);
            cr_assert_eq(weft_cluster_join(servers), 0);
            weft_shared_channel_unref(channel);
        }
}

/* A plain thread feeds a runtime that has nothing else to do. */
static void *feed(void *unused)
{
    (void)unused;
    for (int i = 1; i <= ITEMS; i++)
        while (weft_shared_channel_try_send(channel, weft_num(i)) == -EAGAIN)
            sched_yield();
    return NULL;
}

static struct promise *be_fed(void *unused)
{
    (void)unused;
    return receive_on(&traffic[0]);
}

Test(shared_channel_promise, fed_by_a_plain_thread)
{
    EACH_SETUP(setup)
    {
        pthread_t thread;

        memset(traffic, 0, sizeof traffic);
        channel = weft_shared_channel_create(NULL, 4, NULL);
        pthread_create(&thread, NULL, feed, NULL);
        cr_assert_eq(run_once(setup, be_fed), 0, "%s", setup->name);
        pthread_join(thread, NULL);
        weft_shared_channel_unref(channel);
    }
}

/* Threads without a runtime wait, too: with a deadline, until it is closed, and beside each other. */
static void *block_to_receive(void *sum)
{
    union weft_value value;
    int rc;

    while ((rc = weft_shared_channel_recv(channel, &value, WEFT_FOREVER)) == 0)
        *(int64_t *)sum += value.num;
    return (void *)(intptr_t)rc;
}

static void *block_to_send(void *unused)
{
    (void)unused;
    for (int i = 1; i <= ITEMS; i++)
        cr_assert_eq(weft_shared_channel_send(channel, weft_num(i), WEFT_FOREVER), 0);
    return NULL;
}

static void *block_on_full(void *unused)
{
    (void)unused;
    return (void *)(intptr_t)weft_shared_channel_send(channel, weft_num(1), WEFT_FOREVER);
}

Test(shared_channel_promise, threads_block)
{
    for (size_t capacity = 0; capacity < 3; capacity++) {
        pthread_t senders[2], receivers[2];
        int64_t sums[2] = {0};
        union weft_value value = weft_num(7);
        void *result;

        channel = weft_shared_channel_create(NULL, capacity, NULL);
        cr_assert_eq(weft_shared_channel_recv(channel, &value, WEFT_NOWAIT), -ETIMEDOUT);
        cr_assert_eq(weft_shared_channel_recv(channel, &value, weft_after(WEFT_MS(1))), -ETIMEDOUT);
        cr_assert_eq(value.num, 7);
        for (size_t i = 0; i < capacity; i++)
            cr_assert_eq(weft_shared_channel_send(channel, value, WEFT_NOWAIT), 0);
        cr_assert_eq(weft_shared_channel_send(channel, value, WEFT_NOWAIT), -ETIMEDOUT);
        cr_assert_eq(weft_shared_channel_send(channel, value, weft_after(WEFT_MS(1))), -ETIMEDOUT);
        cr_assert_eq(weft_shared_channel_count(channel), capacity);
        for (size_t i = 0; i < capacity; i++)
            cr_assert_eq(weft_shared_channel_recv(channel, &value, WEFT_FOREVER), 0);

        for (int i = 0; i < 2; i++) {
            pthread_create(&senders[i], NULL, block_to_send, NULL);
            pthread_create(&receivers[i], NULL, block_to_receive, &sums[i]);
        }
        for (int i = 0; i < 2; i++)
            pthread_join(senders[i], NULL);
        weft_shared_channel_close(channel);
        for (int i = 0; i < 2; i++) {
            pthread_join(receivers[i], &result);
            cr_assert_eq((intptr_t)result, -ENODATA);
        }
        cr_assert_eq(sums[0] + sums[1], (int64_t)ITEMS * (ITEMS + 1));
        cr_assert_eq(weft_shared_channel_send(channel, value, WEFT_FOREVER), -EPIPE);
        cr_assert_eq(weft_shared_channel_recv(channel, NULL, WEFT_FOREVER), -EINVAL);
        cr_assert_eq(weft_shared_channel_send(NULL, value, WEFT_FOREVER), -EINVAL);
        weft_shared_channel_unref(channel);
    }
}

Test(shared_channel_promise, closing_ends_the_wait_of_a_thread)
{
    pthread_t thread;
    void *result;

    channel = weft_shared_channel_create(NULL, 0, NULL);
    pthread_create(&thread, NULL, block_on_full, NULL);
    weft_shared_channel_close(channel); /* before it waits, or while */
    pthread_join(thread, &result);
    cr_assert_eq((intptr_t)result, -EPIPE);
    weft_shared_channel_unref(channel);
}

static struct promise *cannot_block(void *unused)
{
    union weft_value value;

    (void)unused;
    cr_assert_eq(weft_shared_channel_send(channel, weft_num(1), WEFT_FOREVER), -EDEADLK);
    cr_assert_eq(weft_shared_channel_recv(channel, &value, WEFT_FOREVER), -EDEADLK);
    return promise_fulfilled(weft_num(0));
}

Test(shared_channel_promise, a_runtime_does_not_block)
{
    channel = weft_shared_channel_create(NULL, 1, NULL);
    cr_assert_eq(run_once(&setups[0], cannot_block), 0);
    cr_assert_eq(weft_shared_channel_count(channel), 0);
    weft_shared_channel_unref(channel);
}

/* ---- a cluster's own ---- */

static struct promise *use_foreign(void *unused)
{
    (void)unused;
    expect_error(RECV(), -EPERM);
    expect_error(SEND(1), -EPERM);
    return promise_fulfilled(weft_num(0));
}

static void wait_there(struct weft_task *task)
{
    (void)task;
    expect_pending(p[weft_cluster_index()] = RECV());
}

/* Only its runtimes may use it; and when all of them wait for it, that's the end. */
Test(shared_channel_promise, of_one_cluster_only)
{
    EACH_SETUP(setup)
    {
        struct weft_cluster_options options = cluster_options(setup, 2);
        struct weft_task tasks[2] = {{.run = wait_there}, {.run = wait_there}};
        union weft_value value;

        cr_assert_eq(weft_cluster_start(&servers, NULL, NULL, &options), 0);
        channel = weft_shared_channel_create(servers, 1, NULL);
        cr_assert_eq(weft_shared_channel_try_send(channel, weft_num(1)), -EPERM);
        cr_assert_eq(weft_shared_channel_try_recv(channel, &value), -EPERM);
        cr_assert_eq(weft_shared_channel_send(channel, weft_num(1), WEFT_FOREVER), -EPERM);
        cr_assert_eq(run_once(&setups[0], use_foreign), 0);
        for (unsigned i = 0; i < 2; i++)
            weft_post(weft_cluster_inbox(servers, i), &tasks[i]);
        cr_assert_eq(weft_cluster_join(servers), 0, "%s", setup->name);
        weft_shared_channel_unref(channel);
    }
}

/* ---- no memory ---- */

static struct promise *without_blocks(void *unused)
{
    (void)unused;
    promise_unref(promise_create()); /* the state */
    promise__fail_after(0);
    expect_error(RECV(), -ENOMEM); /* the item stays */
    expect_number(SEND(2), 0);     /* needs none */
    expect_error(SEND(3), -ENOMEM);
    promise__fail_after(SIZE_MAX);
    expect_number(RECV(), 1);
    expect_number(RECV(), 2);
    return promise_fulfilled(weft_num(0));
}

Test(shared_channel_promise, without_memory)
{
    channel = weft_shared_channel_create(NULL, 2, NULL);
    cr_assert_eq(weft_shared_channel_try_send(channel, weft_num(1)), 0);
    cr_assert_eq(run_once(&setups[0], without_blocks), 0);
    weft_shared_channel_unref(channel);
    if (ALLOCATIONS_CAN_FAIL) {
        allocations_fail_after(0);
        channel = weft_shared_channel_create(NULL, 2, NULL);
        allocations_fail_after(SIZE_MAX);
        cr_assert_null(channel);
    }
}
