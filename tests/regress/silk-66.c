/* needs: fibers */
/* ClickHouse/silk#66, boostorg/context#323, #331 and more: compilers keep the address of a thread-local,
 * errno for one, in a register across a call; a fiber that went on in another thread then used the first
 * one's.
 *
 * Fibers of weft stay in their thread: whatever wakes them, thread-locals are the same after a wait, and
 * each fiber of each of several threads finds its own thread's.
 */
#include "fiber_internal.h"
#include "io_support.h"

#include <weft/io.h>
#include <weft/promise.h>

#include <criterion/criterion.h>
#include <pthread.h>

#define THREADS 3
#define FIBERS  8

static _Thread_local long mine;
static const struct setup *on;
static struct weft_inbox *inboxes[THREADS];
static pthread_barrier_t barrier;

struct ticket {
    struct weft_task task;
    struct promise *done;
};

static void redeem(struct weft_task *task)
{
    promise_resolve(weft__container(task, struct ticket, task)->done, weft_num(0));
}

struct deliverer {
    struct ticket *ticket;
    struct weft_inbox *to;
};

static void *deliver(void *arg)
{
    struct deliverer *d = arg;

    cr_assert_eq(weft_post(d->to, &d->ticket->task), 0);
    return NULL;
}

static int64_t stay(void *arg)
{
    long number = (intptr_t)arg;
    pthread_t self = pthread_self();
    long *here = &mine;
    int *error = &errno, pair[2];
    char byte;

    make_pair(pair);
    for (int i = 0; i < 20; i++) {
        struct ticket ticket = {.task = {.run = redeem}, .done = promise_create()};
        struct deliverer d = {&ticket, inboxes[number]};
        pthread_t thread;

        switch (i % 4) {
        case 0:
            fiber_yield();
            break;
        case 1:
            fiber_sleep(WEFT_US(20));
            break;
        case 2:
            cr_assert_eq(write(pair[1], "x", 1), 1);
            cr_assert_eq(fiber_recv(pair[0], &byte, 1, 0, WEFT_FOREVER), 1);
            break;
        default: /* woken by another thread */
            cr_assert_eq(pthread_create(&thread, NULL, deliver, &d), 0);
            cr_assert_eq(fiber_await(promise_ref(ticket.done), NULL, WEFT_FOREVER), 0);
            pthread_join(thread, NULL);
            break;
        }
        promise_unref(ticket.done);
        cr_assert(pthread_equal(self, pthread_self()));
        cr_assert_eq(&mine, here);
        cr_assert_eq(&errno, error);
        cr_assert_eq(mine, number);
    }
    close_pair(pair);
    return 0;
}

static int stay_main(void *arg)
{
    struct promise *fibers[FIBERS];
    long number = (intptr_t)arg;

    mine = number;
    inboxes[number] = weft_inbox_ref();
    for (int i = 0; i < FIBERS; i++)
        fibers[i] = fiber_spawn(stay, arg);
    cr_assert_eq(fiber_await(promise_join(fibers, FIBERS), NULL, WEFT_FOREVER), 0);
    weft_inbox_unref(inboxes[number]);
    return 0;
}

static void *run_thread(void *arg)
{
    struct weft_options options = WEFT_OPTIONS_INIT;

    options.engine = on->engine;
    options.ring_flags = on->flags;
    options.sq_entries = on->sq_entries;
    options.cq_entries = on->cq_entries;
    pthread_barrier_wait(&barrier);
    cr_assert_eq(weft_run(stay_main, arg, &options), 0);
    return NULL;
}

Test(silk_66, fibers_stay_in_their_thread)
{
    pthread_barrier_init(&barrier, NULL, THREADS);
    EACH_IO_SETUP(setup)
    {
        pthread_t threads[THREADS];

        on = setup;
        for (intptr_t i = 0; i < THREADS; i++)
            cr_assert_eq(pthread_create(&threads[i], NULL, run_thread, (void *)i), 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
    }
    pthread_barrier_destroy(&barrier);
}
