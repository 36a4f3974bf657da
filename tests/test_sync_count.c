/* needs: fibers */
/* The objects that count: semaphore, event, barrier. */
#include "test_sync.h"

/* ---- semaphore ---- */

static struct weft_semaphore semaphore;

struct taker {
    const char *name;
    int64_t units;
    weft_time deadline;
};

static int64_t take(void *arg)
{
    struct taker *t = arg;
    int rc = fiber_semaphore_acquire(&semaphore, t->units, t->deadline);

    tell("%s%s ", t->name, rc == 0 ? "" : "!");
    return rc;
}

static struct promise *start(struct taker *t)
{
    struct promise *p = fiber_spawn(take, t);

    settle();
    return p;
}

SYNC_TEST(sync_semaphore, units_are_taken_in_order)
{
    struct taker a = {"a", 1, WEFT_FOREVER}, b = {"b", 3, WEFT_FOREVER}, c = {"c", 1, WEFT_FOREVER};
    struct promise *pa, *pb, *pc, *q;

    weft_semaphore_init(&semaphore, 2);
    cr_assert_eq(fiber_semaphore_acquire(&semaphore, 2, WEFT_NOWAIT), 0);
    cr_assert_eq(fiber_semaphore_acquire(&semaphore, 1, WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert_eq(weft_semaphore_try_acquire(&semaphore, 1), -EAGAIN);
    pa = start(&a);
    pb = start(&b);
    q = promise_semaphore_acquire(&semaphore, 2);
    pc = start(&c);
    expect("");
    cr_assert_eq(weft_semaphore_release(&semaphore, 2), 0);
    settle();
    expect("a ");
    cr_assert_eq(weft_semaphore_units(&semaphore), 1, "not enough for the next, and c is behind");
    cr_assert_eq(weft_semaphore_try_acquire(&semaphore, 1), -EAGAIN, "nobody overtakes");
    cr_assert_eq(weft_semaphore_release(&semaphore, 5), 0);
    cr_assert_eq(promise_state(q), PROMISE_FULFILLED);
    settle();
    expect("b c ");
    cr_assert_eq(weft_semaphore_units(&semaphore), 0);
    cr_assert_eq(outcome(pa), 0);
    cr_assert_eq(outcome(pb), 0);
    cr_assert_eq(outcome(pc), 0);
    cr_assert_eq(outcome(q), 0);
}

static int note_promise(void *unused)
{
    (void)unused;
    tell("q ");
    return 0;
}

/* Who wants much and gives up waiting holds up nobody behind it. */
SYNC_TEST(sync_semaphore, leaving_lets_the_next_in)
{
    for (int how = 0; how < 3; how++) {
        struct taker big = {"big", 10, how == 1 ? weft_after(WEFT_MS(1)) : WEFT_FOREVER};
        struct taker small = {"small", 1, WEFT_FOREVER};
        struct promise *pbig, *psmall, *q;

        weft_semaphore_init(&semaphore, 2);
        pbig = how == 2 ? promise_semaphore_acquire(&semaphore, 10) : start(&big);
        psmall = start(&small);
        q = promise_semaphore_acquire(&semaphore, 1);
        promise_on_termination(q, note_promise, NULL);
        if (how == 1)
            cr_assert_eq(outcome(pbig), -ETIMEDOUT);
        else
            cr_assert_eq(cancelled(pbig), -ECANCELED);
        settle();
        cr_assert_eq(outcome(psmall), 0);
        cr_assert_eq(outcome(q), 0);
        cr_assert(strstr(told, "q ") != NULL, "its callback has run: %s", told);
        cr_assert_eq(weft_semaphore_units(&semaphore), 0);
        told[0] = '\0';
    }
}

SYNC_TEST(sync_semaphore, a_cancelled_waiter_takes_nothing)
{
    struct taker a = {"a", 1, WEFT_FOREVER};
    struct promise *p;

    weft_semaphore_init(&semaphore, 0);
    p = start(&a);
    cr_assert_eq(cancelled(p), -ECANCELED);
    cr_assert_eq(weft_semaphore_release(&semaphore, 1), 0);
    cr_assert_eq(weft_semaphore_units(&semaphore), 1);
    cr_assert_eq(fiber_semaphore_acquire(&semaphore, 1, WEFT_NOWAIT), 0);
    /* units that have been handed over are the fiber's */
    p = start(&a);
    cr_assert_eq(weft_semaphore_release(&semaphore, 1), 0);
    cr_assert_eq(cancelled(p), 0);
    cr_assert_eq(weft_semaphore_units(&semaphore), 0);
    told[0] = '\0';
}

static int acquire_on_base(void)
{
    return fiber_semaphore_acquire(&semaphore, 1, WEFT_FOREVER);
}

SYNC_TEST(sync_semaphore, bad_numbers_and_the_end)
{
    struct taker a = {"a", 1, WEFT_FOREVER};
    struct promise *p, *q;

    weft_semaphore_init(&semaphore, -5);
    cr_assert_eq(weft_semaphore_units(&semaphore), 0);
    cr_assert_eq(on_base(acquire_on_base), -EDEADLK);
    for (int64_t bad = -1; bad <= 0; bad++) {
        cr_assert_eq(fiber_semaphore_acquire(&semaphore, bad, WEFT_FOREVER), -EINVAL);
        cr_assert_eq(weft_semaphore_try_acquire(&semaphore, bad), -EINVAL);
        cr_assert_eq(weft_semaphore_release(&semaphore, bad), -EINVAL);
        cr_assert_eq(outcome(promise_semaphore_acquire(&semaphore, bad)), -EINVAL);
    }
    cr_assert_eq(weft_semaphore_release(&semaphore, INT64_MAX), 0);
    cr_assert_eq(weft_semaphore_release(&semaphore, 1), -EOVERFLOW);
    cr_assert_eq(weft_semaphore_units(&semaphore), INT64_MAX);
    weft_semaphore_init(&semaphore, 0);
    p = start(&a);
    q = promise_semaphore_acquire(&semaphore, 1);
    weft_semaphore_finish(&semaphore);
    cr_assert_eq(outcome(p), -ECANCELED);
    cr_assert_eq(outcome(q), -ECANCELED);
    cr_assert_eq(fiber_semaphore_acquire(NULL, 1, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(weft_semaphore_try_acquire(NULL, 1), -EINVAL);
    cr_assert_eq(weft_semaphore_release(NULL, 1), -EINVAL);
    cr_assert_eq(outcome(promise_semaphore_acquire(NULL, 1)), -EINVAL);
    cr_assert_eq(weft_semaphore_units(NULL), 0);
    weft_semaphore_init(NULL, 1);
    weft_semaphore_finish(NULL);
    told[0] = '\0';
}

/* ---- event ---- */

static struct weft_event event;

static int64_t wait_for_event(void *name)
{
    int rc = fiber_event_wait(&event, WEFT_FOREVER);

    tell("%s%d ", (char *)name, rc);
    return rc;
}

static int event_on_base(void)
{
    return fiber_event_wait(&event, WEFT_FOREVER);
}

SYNC_TEST(sync_event, stays_set_until_it_is_reset)
{
    struct promise *a, *b, *p, *q;

    weft_event_init(&event);
    cr_assert(!weft_event_is_set(&event));
    cr_assert_eq(fiber_event_wait(&event, WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert_eq(fiber_event_wait(&event, weft_after(WEFT_US(50))), -ETIMEDOUT);
    a = fiber_spawn(wait_for_event, "a");
    b = fiber_spawn(wait_for_event, "b");
    settle();
    p = promise_event_wait(&event);
    q = promise_event_wait(&event);
    cr_assert_eq(cancelled(b), -ECANCELED);
    cr_assert_eq(cancelled(q), -ECANCELED);
    expect("b-125 ");
    weft_event_set(&event);
    weft_event_reset(&event);
    cr_assert_eq(outcome(a), 0, "whoever waited then goes on");
    cr_assert_eq(outcome(p), 0);
    cr_assert_eq(fiber_event_wait(&event, WEFT_NOWAIT), -ETIMEDOUT);
    weft_event_set(&event);
    weft_event_set(&event);
    cr_assert(weft_event_is_set(&event));
    cr_assert_eq(fiber_event_wait(&event, WEFT_NOWAIT), 0);
    cr_assert_eq(outcome(promise_event_wait(&event)), 0);
    cr_assert_eq(on_base(event_on_base), -EDEADLK);
    weft_event_reset(&event);
    a = fiber_spawn(wait_for_event, "c");
    settle();
    p = promise_event_wait(&event);
    weft_event_finish(&event);
    cr_assert_eq(outcome(a), -ECANCELED);
    cr_assert_eq(outcome(p), -ECANCELED);
    expect("a0 c-125 ");
    cr_assert_eq(fiber_event_wait(NULL, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(outcome(promise_event_wait(NULL)), -EINVAL);
    cr_assert(!weft_event_is_set(NULL));
    weft_event_init(NULL);
    weft_event_set(NULL);
    weft_event_reset(NULL);
    weft_event_finish(NULL);
}

/* ---- barrier ---- */

static struct weft_barrier barrier;

static int64_t meet(void *name)
{
    for (int round = 0; round < 3; round++) {
        int rc = fiber_barrier_wait(&barrier, WEFT_FOREVER);

        tell("%s%d", (char *)name, round);
        if (rc != 0)
            tell("(%d)", rc);
        tell(" ");
        if (rc < 0)
            return rc;
    }
    return 0;
}

SYNC_TEST(sync_barrier, all_wait_for_the_last_round_after_round)
{
    struct promise *a, *b, *c;

    weft_barrier_init(&barrier, 3);
    a = fiber_spawn(meet, "a");
    b = fiber_spawn(meet, "b");
    settle();
    expect("");
    c = fiber_spawn(meet, "c");
    cr_assert_eq(outcome(a), 0);
    cr_assert_eq(outcome(b), 0);
    cr_assert_eq(outcome(c), 0);
    /* the last one goes on at once, and is the first to wait again */
    expect("c0(1) a0 b0 b1(1) c1 a1 a2(1) b2 c2 ");
}

SYNC_TEST(sync_barrier, who_gives_up_has_not_come)
{
    struct promise *a, *p, *q;

    weft_barrier_init(&barrier, 3);
    a = fiber_spawn(meet, "a");
    settle();
    p = promise_barrier_wait(&barrier);
    cr_assert_eq(cancelled(a), -ECANCELED);
    cr_assert_eq(fiber_barrier_wait(&barrier, weft_after(WEFT_US(50))), -ETIMEDOUT);
    cr_assert_eq(fiber_barrier_wait(&barrier, WEFT_NOWAIT), -ETIMEDOUT);
    q = promise_barrier_wait(&barrier);
    cr_assert_eq(cancelled(q), -ECANCELED);
    cr_assert_eq(promise_state(p), PROMISE_PENDING);
    q = promise_barrier_wait(&barrier);
    cr_assert_eq(fiber_barrier_wait(&barrier, WEFT_NOWAIT), 1, "the last one needs no wait");
    cr_assert_eq(outcome(p), 0);
    cr_assert_eq(outcome(q), 0);
    expect("a0(-125) ");
    weft_barrier_init(&barrier, 2);
    a = fiber_spawn(meet, "a");
    settle();
    cr_assert_eq(outcome(promise_barrier_wait(&barrier)), 1);
    settle();
    weft_barrier_finish(&barrier);
    cr_assert_eq(outcome(a), -ECANCELED);
    expect("a0 a1(-125) ");
}

static int barrier_on_base(void)
{
    return fiber_barrier_wait(&barrier, WEFT_FOREVER);
}

SYNC_TEST(sync_barrier, odd_numbers)
{
    weft_barrier_init(&barrier, 0);
    cr_assert_eq(fiber_barrier_wait(&barrier, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(outcome(promise_barrier_wait(&barrier)), -EINVAL);
    weft_barrier_init(&barrier, 1);
    cr_assert_eq(fiber_barrier_wait(&barrier, WEFT_FOREVER), 1);
    cr_assert_eq(fiber_barrier_wait(&barrier, WEFT_NOWAIT), 1);
    cr_assert_eq(on_base(barrier_on_base), -EDEADLK);
    cr_assert_eq(fiber_barrier_wait(NULL, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(outcome(promise_barrier_wait(NULL)), -EINVAL);
    weft_barrier_init(NULL, 1);
    weft_barrier_finish(NULL);
}
