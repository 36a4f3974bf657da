/* needs: fibers */
/* Conditions: order, what is remembered, and the mutex that is taken again whatever has happened. */
#include "test_sync.h"

static struct weft_mutex mutex;
static struct weft_condition condition;

static void begin(void)
{
    weft_mutex_init(&mutex);
    weft_condition_init(&condition);
}

static void lock(void)
{
    cr_assert_eq(fiber_mutex_lock(&mutex, WEFT_FOREVER), 0);
}

static void unlock(void)
{
    cr_assert_eq(weft_mutex_unlock(&mutex), 0, "it should be the caller's");
}

struct waiter {
    const char *name;
    weft_time deadline;
};

/* Waits once, and has the mutex afterwards, in any case. */
static int64_t wait_once(void *arg)
{
    struct waiter *w = arg;
    int rc = fiber_mutex_lock(&mutex, WEFT_FOREVER);

    cr_assert_eq(rc, 0);
    rc = fiber_condition_wait(&condition, &mutex, w->deadline);
    tell("%s%d ", w->name, rc);
    cr_assert_eq(mutex.owner, (void *)fiber_self());
    unlock();
    return rc;
}

static struct waiter a = {"a", WEFT_FOREVER}, b = {"b", WEFT_FOREVER}, c = {"c", WEFT_FOREVER};

SYNC_TEST(sync_condition, signals_go_to_the_first_and_are_not_remembered)
{
    struct promise *pa, *pb, *pc;

    begin();
    weft_condition_signal(&condition);
    weft_condition_broadcast(&condition);
    pa = fiber_spawn(wait_once, &a);
    pb = fiber_spawn(wait_once, &b);
    pc = fiber_spawn(wait_once, &c);
    settle();
    cr_assert(!weft_mutex_is_locked(&mutex), "waiting gives it up");
    expect("");
    weft_condition_signal(&condition);
    cr_assert(weft_mutex_is_locked(&mutex), "whoever is signalled has it already");
    settle();
    expect("a0 ");
    weft_condition_broadcast(&condition);
    settle();
    settle();
    expect("b0 c0 ");
    cr_assert_eq(outcome(pa), 0);
    cr_assert_eq(outcome(pb), 0);
    cr_assert_eq(outcome(pc), 0);
}

SYNC_TEST(sync_condition, whoever_is_signalled_waits_for_the_mutex_in_turn)
{
    struct promise *pa, *pb, *p;

    begin();
    pa = fiber_spawn(wait_once, &a);
    pb = fiber_spawn(wait_once, &b);
    settle();
    lock();
    p = promise_mutex_lock(&mutex); /* before the signals */
    weft_condition_broadcast(&condition);
    settle();
    expect("");
    cr_assert_eq(promise_state(p), PROMISE_PENDING);
    unlock();
    settle();
    expect("");
    cr_assert_eq(outcome(p), 0);
    unlock();
    settle();
    expect("a0 b0 ");
    cr_assert_eq(outcome(pa), 0);
    cr_assert_eq(outcome(pb), 0);
    cr_assert(!weft_mutex_is_locked(&mutex));
}

SYNC_TEST(sync_condition, a_cancelled_wait_takes_the_mutex_again)
{
    struct promise *pa, *pb;

    begin();
    pa = fiber_spawn(wait_once, &a);
    pb = fiber_spawn(wait_once, &b);
    settle();
    cr_assert_eq(cancelled(pa), -ECANCELED, "the mutex is free");
    expect("a-125 ");
    lock();
    promise_cancel(pb); /* the mutex is not free */
    settle();
    expect("");
    cr_assert(weft_mutex_is_awaited(&mutex));
    promise_cancel(pb);
    weft_condition_signal(&condition); /* it isn't there any more */
    settle();
    expect("");
    unlock();
    cr_assert_eq(outcome(pb), -ECANCELED);
    expect("b-125 ");
    cr_assert(!weft_mutex_is_locked(&mutex));
}

/* Its result is no failure of its scope. */
static int64_t wait_in_scope(void *arg)
{
    (void)wait_once(arg);
    return 0;
}

SYNC_TEST(sync_condition, a_scope_cancels_it_and_a_deadline_too)
{
    struct waiter soon = {"s", weft_after(WEFT_US(100))}, late = {"l", weft_after(WEFT_SEC(900))};
    struct fiber_scope scope;

    begin();
    cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_scope_spawn(&scope, wait_in_scope, &late), 0);
    cr_assert_eq(outcome(fiber_spawn(wait_once, &soon)), -ETIMEDOUT, "the mutex is free");
    lock();
    fiber_scope_cancel(&scope);
    unlock();
    cr_assert_eq(fiber_scope_close(&scope, 0), 0);
    expect("s-110 l-125 ");

    for (;;) {
        soon.deadline = weft_after(WEFT_MS(2));
        cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
        cr_assert_eq(fiber_scope_spawn(&scope, wait_in_scope, &soon), 0);
        settle();
        lock();
        if (condition.waits != NULL)
            break;
        unlock(); /* a slow machine: once more */
        cr_assert_eq(fiber_scope_close(&scope, 0), 0);
        told[0] = '\0';
    }
    while (!weft_mutex_is_awaited(&mutex)) /* until the deadline has passed */
        fiber_yield();
    fiber_scope_cancel(&scope); /* too late: it comes back for the other reason */
    settle();
    expect("");
    unlock();
    cr_assert_eq(fiber_scope_close(&scope, 0), 0);
    expect("s-110 ");
}

SYNC_TEST(sync_condition, a_signal_beats_what_comes_after)
{
    struct waiter w = {"w", 0};
    struct promise *p;

    begin();
    for (;;) {
        w.deadline = weft_after(WEFT_MS(2));
        p = fiber_spawn(wait_once, &w);
        settle();
        lock();
        if (condition.waits != NULL)
            break;
        unlock(); /* a slow machine: once more */
        cr_assert_eq(outcome(p), -ETIMEDOUT);
        told[0] = '\0';
    }
    weft_condition_signal(&condition);
    spin_until(w.deadline);
    settle(); /* the timer fires */
    promise_cancel(p);
    settle();
    expect("");
    unlock();
    cr_assert_eq(outcome(p), 0);
    expect("w0 ");
}

static int64_t wait_for_somebody_elses(void *unused)
{
    (void)unused;
    return fiber_condition_wait(&condition, &mutex, WEFT_FOREVER);
}

static int wait_on_base(void)
{
    return fiber_condition_wait(&condition, NULL, WEFT_FOREVER);
}

SYNC_TEST(sync_condition, misuse_changes_nothing)
{
    struct fiber_scope scope;

    begin();
    cr_assert_eq(fiber_condition_wait(&condition, &mutex, WEFT_FOREVER), -EPERM);
    cr_assert_eq(outcome(promise_condition_wait(&condition, &mutex)), -EPERM);
    lock();
    cr_assert_eq(outcome(fiber_spawn(wait_for_somebody_elses, NULL)), -EPERM);
    cr_assert_eq(fiber_condition_wait(NULL, &mutex, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(on_base(wait_on_base), -EDEADLK);
    cr_assert_eq(fiber_condition_wait(&condition, &mutex, WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
    fiber_scope_cancel(&scope);
    cr_assert_eq(fiber_condition_wait(&condition, &mutex, WEFT_FOREVER), -ECANCELED);
    cr_assert_eq(fiber_scope_close(&scope, 0), 0);
    unlock();
    weft_condition_signal(NULL);
    weft_condition_broadcast(NULL);
    weft_condition_init(NULL);
    weft_condition_finish(NULL);
    weft_condition_destroy(NULL);
}

static int64_t wait_without(void *unused)
{
    (void)unused;
    return fiber_condition_wait(&condition, NULL, WEFT_FOREVER);
}

SYNC_TEST(sync_condition, needs_no_mutex)
{
    struct promise *p, *q, *r;

    begin();
    p = fiber_spawn(wait_without, NULL);
    settle();
    q = promise_condition_wait(&condition, NULL);
    r = fiber_spawn(wait_without, NULL);
    settle();
    weft_condition_signal(&condition);
    cr_assert_eq(outcome(p), 0);
    promise_condition_signal(&condition, weft_num(9));
    cr_assert_eq(outcome(q), 9);
    promise_condition_broadcast_error(&condition, -EPROTO);
    cr_assert_eq(outcome(r), -EPROTO);
    p = fiber_spawn(wait_without, NULL);
    settle();
    weft_condition_finish(&condition);
    cr_assert_eq(outcome(p), -ECANCELED);
}

static int64_t unlock_it(void *unused)
{
    (void)unused;
    return weft_mutex_unlock(&mutex);
}

static int64_t signal_it(void *unused)
{
    (void)unused;
    weft_condition_signal(&condition);
    return 0;
}

/* A mutex that was nobody's in particular is so afterwards. */
SYNC_TEST(sync_condition, a_fiber_can_wait_with_a_promises_mutex)
{
    begin();
    cr_assert_eq(outcome(promise_mutex_lock(&mutex)), 0);
    cr_assert_eq(fiber_detach(signal_it, NULL), 0);
    cr_assert_eq(fiber_condition_wait(&condition, &mutex, WEFT_FOREVER), 0);
    cr_assert_eq(outcome(fiber_spawn(unlock_it, NULL)), 0);
}

SYNC_TEST(sync_condition, poison_does_not_keep_the_mutex_from_who_comes_back)
{
    struct promise *p, *q;

    begin();
    p = fiber_spawn(wait_once, &a);
    settle();
    lock();
    q = promise_mutex_lock(&mutex);
    weft_condition_signal(&condition);
    weft_mutex_poison(&mutex);
    cr_assert_eq(outcome(q), -EOWNERDEAD);
    unlock();
    cr_assert_eq(outcome(p), 0);
    expect("a0 ");
    cr_assert(weft_mutex_is_poisoned(&mutex));
    /* and not from who is signalled when it is poisoned already */
    weft_mutex_clear(&mutex);
    p = fiber_spawn(wait_once, &b);
    settle();
    weft_mutex_poison(&mutex);
    weft_condition_signal(&condition);
    cr_assert_eq(outcome(p), 0);
    expect("b0 ");
}

/* ---- what giving up the mutex sets off ---- */

static struct promise *self;

static struct promise *signal_at_once(void *unused)
{
    (void)unused;
    tell("signals ");
    weft_condition_signal(&condition);
    return promise_fulfilled(weft_num(0));
}

static struct promise *cancel_at_once(void *unused)
{
    (void)unused;
    tell("cancels ");
    promise_cancel(self);
    promise_cancel(self);
    return promise_fulfilled(weft_num(0));
}

static int64_t wait_while_others_act(void *fn)
{
    struct promise *p;
    int rc;

    lock();
    p = promise_mutex_with_lock(&mutex, (promise_thunk_fn *)(uintptr_t)fn, NULL);
    rc = fiber_condition_wait(&condition, &mutex, WEFT_FOREVER);
    tell("%d ", rc);
    unlock();
    promise_unref(p);
    return rc;
}

static int unlock_and_signal(void *unused)
{
    (void)unused;
    tell("signals ");
    unlock();
    weft_condition_signal(&condition);
    return 0;
}

static int64_t wait_while_others_unlock(void *unused)
{
    struct promise *p;
    int rc;

    (void)unused;
    lock();
    p = promise_mutex_lock(&mutex);
    promise_on_termination(p, unlock_and_signal, NULL);
    rc = fiber_condition_wait(&condition, &mutex, WEFT_FOREVER);
    tell("%d ", rc);
    unlock();
    promise_unref(p);
    return rc;
}

static int64_t cancel_self(void *unused)
{
    (void)unused;
    tell("cancels ");
    promise_cancel(self);
    return 0;
}

static int64_t yield_and_tell(void *name)
{
    for (int i = 0; i < 3; i++) {
        fiber_yield();
        tell("%s", (char *)name);
    }
    return 0;
}

/* The mutex goes to a promise whose callback runs before the fiber has parked. */
SYNC_TEST(sync_condition, a_signal_before_the_fiber_has_parked_is_seen)
{
    struct promise *other;

    begin();
    self = fiber_spawn(wait_while_others_act, (void *)(uintptr_t)signal_at_once);
    other = fiber_spawn(yield_and_tell, ".");
    settle();
    cr_assert_eq(outcome(self), 0);
    cr_assert_eq(outcome(other), 0);
    expect("signals 0 ...");

    self = fiber_spawn(wait_while_others_act, (void *)(uintptr_t)cancel_at_once);
    other = fiber_spawn(yield_and_tell, ".");
    settle();
    cr_assert_eq(outcome(self), -ECANCELED);
    cr_assert_eq(outcome(other), 0);
    expect("cancels -125 ...");

    /* cancelled after the signal, and before it runs again */
    self = fiber_spawn(wait_while_others_unlock, NULL);
    other = fiber_spawn(cancel_self, NULL);
    settle();
    cr_assert_eq(outcome(self), 0);
    cr_assert_eq(outcome(other), 0);
    expect("signals cancels 0 ");
}

/* ---- promises ---- */

static struct promise *locked_then_wait(void *unused)
{
    (void)unused;
    return promise_condition_wait(&condition, &mutex);
}

SYNC_TEST(sync_condition, a_promise_takes_the_mutex_again)
{
    struct promise *p, *q;

    begin();
    p = promise_mutex_with_lock(&mutex, locked_then_wait, NULL);
    cr_assert(!weft_mutex_is_locked(&mutex));
    lock();
    weft_condition_signal(&condition);
    cr_assert_eq(promise_state(p), PROMISE_PENDING);
    unlock();
    cr_assert_eq(outcome(p), 0);
    cr_assert(!weft_mutex_is_locked(&mutex));

    p = promise_mutex_with_lock(&mutex, locked_then_wait, NULL);
    q = promise_mutex_with_lock(&mutex, locked_then_wait, NULL);
    lock();
    promise_cancel(p);
    weft_condition_broadcast(&condition);
    cr_assert_eq(promise_state(p), PROMISE_PENDING);
    cr_assert_eq(promise_state(q), PROMISE_PENDING);
    unlock();
    cr_assert_eq(outcome(p), -ECANCELED);
    cr_assert_eq(outcome(q), 0);
    cr_assert(!weft_mutex_is_locked(&mutex));
}

/* Called by a fiber: the mutex stays the fiber's. */
SYNC_TEST(sync_condition, a_fibers_mutex_comes_back_to_the_fiber)
{
    struct promise *p;

    begin();
    lock();
    p = promise_condition_wait(&condition, &mutex);
    cr_assert(!weft_mutex_is_locked(&mutex));
    weft_condition_signal(&condition);
    cr_assert_eq(fiber_mutex_lock(&mutex, WEFT_FOREVER), -EDEADLK);
    unlock();
    cr_assert_eq(outcome(p), 0);
}
