/* needs: fibers */
/* Mutexes: hand-over, owners, cancellation, deadlines, poison; fibers and promises in one queue. */
#include "test_sync.h"

#include "allocations.h"

static struct weft_mutex mutex;

static int64_t lock_and_tell(void *name)
{
    int rc = fiber_mutex_lock(&mutex, WEFT_FOREVER);

    tell("%s%d ", (char *)name, rc);
    return rc;
}

/* Takes its turn, and ends it in the next pass. */
static int64_t turn(void *name)
{
    int rc = fiber_mutex_lock(&mutex, WEFT_FOREVER);

    tell("%s", (char *)name);
    if (rc == 0) {
        cr_assert(weft_mutex_is_locked(&mutex));
        fiber_yield();
        cr_assert_eq(weft_mutex_unlock(&mutex), 0);
    }
    return rc;
}

static int64_t unlock(void *unused)
{
    (void)unused;
    return weft_mutex_unlock(&mutex);
}

static int64_t try_lock(void *unused)
{
    (void)unused;
    return weft_mutex_try_lock(&mutex);
}

static int lock_on_base(void)
{
    return fiber_mutex_lock(&mutex, WEFT_FOREVER);
}

static int unlock_on_base(void)
{
    return weft_mutex_unlock(&mutex);
}

static int try_lock_on_base(void)
{
    return weft_mutex_try_lock(&mutex);
}

SYNC_TEST(sync_mutex, belongs_to_its_fiber)
{
    weft_mutex_init(&mutex);
    cr_assert(!weft_mutex_is_locked(&mutex));
    cr_assert_eq(weft_mutex_unlock(&mutex), -EPERM);
    cr_assert_eq(fiber_mutex_lock(&mutex, WEFT_NOWAIT), 0);
    cr_assert(weft_mutex_is_locked(&mutex));
    cr_assert(!weft_mutex_is_awaited(&mutex));
    cr_assert_eq(fiber_mutex_lock(&mutex, WEFT_FOREVER), -EDEADLK);
    cr_assert_eq(weft_mutex_try_lock(&mutex), -EDEADLK);
    cr_assert_eq(outcome(fiber_spawn(try_lock, NULL)), -EAGAIN);
    cr_assert_eq(outcome(fiber_spawn(unlock, NULL)), -EPERM);
    cr_assert_eq(on_base(unlock_on_base), -EPERM);
    cr_assert_eq(on_base(try_lock_on_base), -EAGAIN);
    cr_assert_eq(on_base(lock_on_base), -EDEADLK);
    cr_assert_eq(weft_mutex_unlock(&mutex), 0);
    cr_assert_eq(weft_mutex_unlock(&mutex), -EPERM);
    /* one that nobody in particular has */
    cr_assert_eq(on_base(try_lock_on_base), 0);
    cr_assert_eq(fiber_mutex_lock(&mutex, WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert_eq(outcome(fiber_spawn(unlock, NULL)), 0);
    /* nothing at all */
    cr_assert_eq(fiber_mutex_lock(NULL, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_mutex_with_lock(&mutex, NULL, NULL, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(weft_mutex_try_lock(NULL), -EINVAL);
    cr_assert_eq(weft_mutex_unlock(NULL), -EINVAL);
    cr_assert_eq(outcome(promise_mutex_lock(NULL)), -EINVAL);
    cr_assert(!weft_mutex_is_locked(NULL) && !weft_mutex_is_awaited(NULL));
    weft_mutex_poison(NULL);
    weft_mutex_clear(NULL);
    weft_mutex_init(NULL);
    weft_mutex_finish(NULL);
    weft_mutex_finish(&mutex);
}

Test(sync_mutex, needs_a_runtime)
{
    cr_assert_eq(fiber_mutex_lock(&mutex, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(weft_mutex_try_lock(&mutex), -EINVAL);
    cr_assert_eq(weft_mutex_unlock(&mutex), -EINVAL);
    weft_mutex_finish(&mutex);
}

SYNC_TEST(sync_mutex, is_handed_over_in_order)
{
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    struct promise *fibers[5];

    cr_assert_eq(fiber_mutex_lock(&mutex, WEFT_FOREVER), 0);
    for (int i = 0; i < 5; i++)
        fibers[i] = fiber_spawn(turn, (void *)names[i]);
    settle();
    expect("");
    cr_assert(weft_mutex_is_awaited(&mutex));
    cr_assert_eq(weft_mutex_unlock(&mutex), 0);
    cr_assert(weft_mutex_is_locked(&mutex), "it is not free in between");
    cr_assert_eq(weft_mutex_unlock(&mutex), -EPERM, "and not the unlocker's any more");
    cr_assert_eq(weft_mutex_try_lock(&mutex), -EAGAIN, "nobody overtakes");
    cr_assert_eq(fiber_mutex_lock(&mutex, WEFT_FOREVER), 0, "but comes after those who wait");
    expect("abcde");
    cr_assert(!weft_mutex_is_awaited(&mutex));
    cr_assert_eq(weft_mutex_unlock(&mutex), 0);
    for (int i = 0; i < 5; i++)
        cr_assert_eq(outcome(fibers[i]), 0);
}

SYNC_TEST(sync_mutex, a_cancelled_waiter_leaves_its_place)
{
    static const char *const names[] = {"a", "b", "c", "d", "e"};

    for (int out = 0; out < 5; out++) {
        struct promise *fibers[5];
        char rest[8] = "";

        cr_assert_eq(fiber_mutex_lock(&mutex, WEFT_FOREVER), 0);
        for (int i = 0; i < 5; i++)
            fibers[i] = fiber_spawn(turn, (void *)names[i]);
        settle();
        cr_assert_eq(cancelled(fibers[out]), -ECANCELED);
        expect(names[out]);
        cr_assert_eq(weft_mutex_unlock(&mutex), 0);
        for (int i = 0; i < 5; i++)
            if (i != out) {
                cr_assert_eq(outcome(fibers[i]), 0);
                strcat(rest, names[i]);
            }
        expect(rest);
        cr_assert(!weft_mutex_is_locked(&mutex));
    }
}

static int64_t lock_until(void *at)
{
    int rc = fiber_mutex_lock(&mutex, *(weft_time *)at);

    tell("%d ", rc);
    return rc;
}

SYNC_TEST(sync_mutex, a_wait_ends_at_its_deadline)
{
    weft_time soon = weft_after(WEFT_MS(1)), late = weft_after(WEFT_SEC(1000)), past = weft_now();
    struct promise *a, *b, *c;

    cr_assert_eq(fiber_mutex_lock(&mutex, WEFT_FOREVER), 0);
    a = fiber_spawn(lock_until, &soon);
    b = fiber_spawn(lock_until, &late);
    c = fiber_spawn(lock_until, &past);
    cr_assert_eq(outcome(c), -ETIMEDOUT);
    cr_assert_eq(outcome(a), -ETIMEDOUT);
    cr_assert(weft_mutex_is_awaited(&mutex));
    cr_assert_eq(weft_mutex_unlock(&mutex), 0);
    cr_assert_eq(outcome(b), 0);
    /* nobody unlocks it */
    weft_mutex_init(&mutex);
    told[0] = '\0';
}

static int64_t lock_then_wait(void *at)
{
    int rc = fiber_mutex_lock(&mutex, *(weft_time *)at);

    tell("%d %d ", rc, fiber_check());
    if (rc == 0)
        cr_assert_eq(weft_mutex_unlock(&mutex), 0);
    return rc;
}

SYNC_TEST(sync_mutex, what_was_handed_over_stays_so)
{
    struct promise *fiber, *promise;
    weft_time at;

    cr_assert_eq(fiber_mutex_lock(&mutex, WEFT_FOREVER), 0);
    for (;;) {
        at = weft_after(WEFT_MS(2));
        fiber = fiber_spawn(lock_then_wait, &at);
        settle();
        if (weft_mutex_is_awaited(&mutex))
            break;
        cr_assert_eq(outcome(fiber), -ETIMEDOUT); /* a slow machine: once more */
        told[0] = '\0';
    }
    cr_assert_eq(weft_mutex_unlock(&mutex), 0);
    spin_until(at); /* its deadline passes before it runs */
    cr_assert_eq(outcome(fiber), 0);
    expect("0 0 ");

    at = WEFT_FOREVER;
    cr_assert_eq(fiber_mutex_lock(&mutex, WEFT_FOREVER), 0);
    fiber = fiber_spawn(lock_then_wait, &at);
    settle();
    cr_assert_eq(weft_mutex_unlock(&mutex), 0);
    cr_assert_eq(cancelled(fiber), 0);
    expect("0 -125 ");

    cr_assert_eq(fiber_mutex_lock(&mutex, WEFT_FOREVER), 0);
    promise = promise_mutex_lock(&mutex);
    cr_assert_eq(weft_mutex_unlock(&mutex), 0);
    cr_assert_eq(cancelled(promise), 0);
    cr_assert(weft_mutex_is_locked(&mutex));
    cr_assert_eq(weft_mutex_unlock(&mutex), 0);
}

static int lock_in_shield(void *unused)
{
    (void)unused;
    return fiber_mutex_lock(&mutex, WEFT_FOREVER);
}

SYNC_TEST(sync_mutex, a_cancelled_fiber_takes_nothing)
{
    struct fiber_scope scope;

    cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
    fiber_scope_cancel(&scope);
    cr_assert_eq(fiber_mutex_lock(&mutex, WEFT_FOREVER), -ECANCELED);
    cr_assert(!weft_mutex_is_locked(&mutex));
    cr_assert_eq(fiber_shield(lock_in_shield, NULL), 0);
    cr_assert(weft_mutex_is_locked(&mutex));
    cr_assert_eq(weft_mutex_unlock(&mutex), 0);
    cr_assert_eq(fiber_scope_close(&scope, 0), 0);
}

SYNC_TEST(sync_mutex, poison_is_for_those_who_want_it_and_can_be_cleared)
{
    struct promise *a, *b, *p;

    weft_mutex_init(&mutex);
    cr_assert_eq(fiber_mutex_lock(&mutex, WEFT_FOREVER), 0);
    a = fiber_spawn(lock_and_tell, "a");
    settle();
    p = promise_mutex_lock(&mutex);
    b = fiber_spawn(lock_and_tell, "b");
    settle();
    weft_mutex_poison(&mutex);
    cr_assert(weft_mutex_is_poisoned(&mutex));
    cr_assert_eq(outcome(a), -EOWNERDEAD);
    cr_assert_eq(outcome(p), -EOWNERDEAD);
    cr_assert_eq(outcome(b), -EOWNERDEAD);
    told[0] = '\0';
    cr_assert(!weft_mutex_is_awaited(&mutex));
    cr_assert(weft_mutex_is_locked(&mutex), "it is the owner's as before");
    cr_assert_eq(weft_mutex_unlock(&mutex), 0);
    cr_assert_eq(fiber_mutex_lock(&mutex, WEFT_FOREVER), -EOWNERDEAD);
    cr_assert_eq(weft_mutex_try_lock(&mutex), -EOWNERDEAD);
    cr_assert_eq(outcome(promise_mutex_lock(&mutex)), -EOWNERDEAD);
    cr_assert(!weft_mutex_is_locked(&mutex));
    weft_mutex_clear(&mutex);
    cr_assert(!weft_mutex_is_poisoned(&mutex));
    cr_assert_eq(fiber_mutex_lock(&mutex, WEFT_FOREVER), 0);
    cr_assert_eq(weft_mutex_unlock(&mutex), 0);
}

/* ---- both styles ---- */

static int tell_promise(void *name)
{
    tell("%s ", (char *)name);
    return 0;
}

static struct promise *telling(const char *name)
{
    struct promise *p = promise_mutex_lock(&mutex);

    promise_on_termination(p, tell_promise, (void *)name);
    return p;
}

SYNC_TEST(sync_mutex, fibers_and_promises_stand_in_one_queue)
{
    struct promise *a, *p, *b, *q, *r;

    cr_assert_eq(fiber_mutex_lock(&mutex, WEFT_FOREVER), 0);
    a = fiber_spawn(lock_and_tell, "a");
    settle();
    p = telling("p");
    b = fiber_spawn(turn, "b ");
    settle();
    q = telling("q");
    r = telling("r");
    promise_cancel(q);
    expect("q ");
    cr_assert_eq(weft_mutex_unlock(&mutex), 0);
    expect(""); /* a has it, and has not run yet */
    cr_assert_eq(weft_mutex_unlock(&mutex), -EPERM);
    settle();
    expect("a0 ");
    /* a has ended with it: a fiber of the same memory is as good as a */
    weft_mutex_finish(&mutex);
    expect("p r ");
    settle();
    expect("b ");
    cr_assert_eq(outcome(a), 0);
    cr_assert_eq(outcome(p), -ECANCELED);
    cr_assert_eq(outcome(b), -ECANCELED);
    cr_assert_eq(outcome(q), -ECANCELED);
    cr_assert_eq(outcome(r), -ECANCELED);

    weft_mutex_init(&mutex);
    cr_assert_eq(fiber_mutex_lock(&mutex, WEFT_FOREVER), 0);
    p = telling("p");
    b = fiber_spawn(turn, "b ");
    settle();
    q = telling("q");
    cr_assert_eq(weft_mutex_unlock(&mutex), 0);
    expect("p "); /* its callback has run when unlock returns */
    cr_assert_eq(weft_mutex_unlock(&mutex), 0, "what a promise has is anybody's to unlock");
    settle();
    expect("b q ");
    cr_assert_eq(weft_mutex_unlock(&mutex), 0);
    cr_assert_eq(outcome(p), 0);
    cr_assert_eq(outcome(b), 0);
    cr_assert_eq(outcome(q), 0);
    cr_assert(!weft_mutex_is_locked(&mutex));
}

/* ---- with the lock ---- */

static int section(void *result)
{
    cr_assert(weft_mutex_is_locked(&mutex));
    fiber_yield();
    return (int)(intptr_t)result;
}

static struct promise *promise_section(void *unused)
{
    (void)unused;
    tell("s ");
    return promise_fulfilled(weft_num(8));
}

SYNC_TEST(sync_mutex, with_lock_unlocks)
{
    struct promise *p;

    cr_assert_eq(fiber_mutex_with_lock(&mutex, section, (void *)7, WEFT_FOREVER), 7);
    cr_assert_eq(fiber_mutex_with_lock(&mutex, section, (void *)-EIO, WEFT_FOREVER), -EIO);
    cr_assert_eq(fiber_mutex_lock(&mutex, WEFT_FOREVER), 0);
    p = promise_mutex_with_lock(&mutex, promise_section, NULL);
    cr_assert_eq(fiber_mutex_with_lock(&mutex, section, NULL, WEFT_FOREVER), -EDEADLK);
    cr_assert_eq(weft_mutex_unlock(&mutex), 0);
    expect("s ");
    cr_assert_eq(outcome(p), 8);
    cr_assert(!weft_mutex_is_locked(&mutex));
}

/* ---- the rest ---- */

SYNC_TEST(sync_mutex, waiting_allocates_nothing)
{
    struct promise *fibers[3];
    size_t before;

    cr_assert_eq(fiber_mutex_lock(&mutex, WEFT_FOREVER), 0);
    for (int i = 0; i < 3; i++)
        fibers[i] = fiber_spawn(turn, "x");
    before = allocations;
    settle();
    cr_assert_eq(weft_mutex_unlock(&mutex), 0);
    settle();
    settle();
    cr_assert_eq(allocations, before);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(outcome(fibers[i]), 0);
    expect("xxx");
}

SYNC_TEST(sync_mutex, destroy_ends_the_waits)
{
    struct weft_mutex *m = weft_mutex_create();
    struct promise *p;

    cr_assert_eq(fiber_mutex_lock(m, WEFT_FOREVER), 0);
    p = promise_mutex_lock(m);
    weft_mutex_destroy(m);
    cr_assert_eq(outcome(p), -ECANCELED);
    weft_mutex_destroy(NULL);
}

static int deadlock_main(void *unused)
{
    (void)unused;
    weft_mutex_init(&mutex);
    promise_unref(promise_mutex_lock(&mutex));
    cr_assert_eq(fiber_mutex_lock(&mutex, WEFT_FOREVER), -ECANCELED);
    return 0;
}

Test(sync_mutex, a_deadlock_says_who_waits_for_what)
{
    cr_assert_eq(run_on(&setups[0], deadlock_main, NULL), -EDEADLK);
    cr_assert(report_contains("\"main\", spawned at weft_run, waits for a mutex"), "%s",
              report_text());
}
