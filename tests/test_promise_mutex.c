/* Mutexes of promises. */
#include "promise_support.h"

#include <weft/promise_sync.h>

#include <criterion/criterion.h>

static struct promise *basic_body(void)
{
    struct weft_mutex m;

    weft_mutex_init(&m);
    cr_assert(!weft_mutex_is_locked(&m));
    take_value(promise_mutex_lock(&m), 0);
    cr_assert(weft_mutex_is_locked(&m));
    cr_assert(!weft_mutex_is_awaited(&m));
    weft_mutex_unlock(&m);
    cr_assert(!weft_mutex_is_locked(&m));
    weft_mutex_unlock(&m); /* does nothing */
    cr_assert(!weft_mutex_is_locked(&m));
    weft_mutex_finish(&m);
    return NULL;
}

Test(promise_mutex, a_free_one_is_locked_at_once)
{
    run_promises(basic_body);
}

static struct promise *order_body(void)
{
    struct weft_mutex *m = weft_mutex_create();
    struct promise *first = promise_mutex_lock(m), *a, *b, *c;

    a = promise_mutex_lock(m);
    b = promise_mutex_lock(m);
    c = promise_mutex_lock(m);
    watch(a, "a");
    watch(b, "b");
    watch(c, "c");
    cr_assert(weft_mutex_is_awaited(m));
    weft_mutex_unlock(m);
    cr_assert(weft_mutex_is_locked(m), "it was free in between");
    assert_trace("a=0 ");
    weft_mutex_unlock(m);
    weft_mutex_unlock(m);
    assert_trace("b=0 c=0 ");
    cr_assert(weft_mutex_is_locked(m));
    weft_mutex_unlock(m);
    cr_assert(!weft_mutex_is_locked(m));
    promise_unref(first);
    promise_unref(a);
    promise_unref(b);
    promise_unref(c);
    weft_mutex_destroy(m);
    return NULL;
}

Test(promise_mutex, is_handed_over_in_order)
{
    run_promises(order_body);
}

static struct weft_mutex mutex;

static int unlock_in_callback(void *ctx)
{
    (void)ctx;
    note("u");
    weft_mutex_unlock(&mutex);
    note("U ");
    return 0;
}

static struct promise *later_body(void)
{
    struct promise *p = promise_create(), *waiting;

    weft_mutex_init(&mutex);
    promise_unref(promise_mutex_lock(&mutex));
    waiting = promise_mutex_lock(&mutex);
    watch(waiting, "w");
    promise_on_termination(p, unlock_in_callback, NULL);
    promise_resolve(p, weft_num(0));
    assert_trace("uU w=0 "); /* the lock is handed over at once, its callbacks run afterwards */
    promise_unref(p);
    promise_unref(waiting);
    weft_mutex_finish(&mutex);
    return NULL;
}

Test(promise_mutex, unlock_does_not_run_the_next_ones_callbacks_inside_a_callback)
{
    run_promises(later_body);
}

static struct promise *cancel_body(void)
{
    struct promise *a, *b;

    weft_mutex_init(&mutex);
    promise_unref(promise_mutex_lock(&mutex));
    a = promise_mutex_lock(&mutex);
    b = promise_mutex_lock(&mutex);
    promise_cancel(a);
    take_error(a, -ECANCELED);
    assert_pending(b);
    weft_mutex_unlock(&mutex);
    take_value(b, 0);
    cr_assert(weft_mutex_is_locked(&mutex));
    weft_mutex_unlock(&mutex);
    cr_assert(!weft_mutex_is_locked(&mutex));
    weft_mutex_finish(&mutex);
    return NULL;
}

Test(promise_mutex, a_canceled_waiter_leaves)
{
    run_promises(cancel_body);
}

static struct promise *handed;

static int hand_over_and_cancel(void *ctx)
{
    (void)ctx;
    weft_mutex_unlock(&mutex); /* handed over: the state is set, the callbacks aren't run */
    assert_value(handed, 0);
    promise_cancel(handed);
    assert_value(handed, 0);
    return 0;
}

static struct promise *too_late_body(void)
{
    struct promise *p = promise_create();

    weft_mutex_init(&mutex);
    promise_unref(promise_mutex_lock(&mutex));
    handed = promise_mutex_lock(&mutex);
    watch(handed, "h");
    promise_on_termination(p, hand_over_and_cancel, NULL);
    promise_resolve(p, weft_num(0));
    assert_trace("h=0 ");
    cr_assert(weft_mutex_is_locked(&mutex));
    weft_mutex_unlock(&mutex);
    cr_assert(!weft_mutex_is_locked(&mutex));
    promise_unref(handed);
    promise_unref(p);
    weft_mutex_finish(&mutex);
    return NULL;
}

Test(promise_mutex, who_has_been_handed_the_lock_cannot_be_canceled)
{
    run_promises(too_late_body);
}

/* ---- with_lock ---- */

static struct promise *gives(void *ctx)
{
    cr_assert(weft_mutex_is_locked(&mutex));
    note("f");
    return promise_ref(ctx);
}

static void one_outcome(struct promise *outcome, bool waits, int status)
{
    struct promise *p;

    if (waits)
        promise_unref(promise_mutex_lock(&mutex));
    p = promise_mutex_with_lock(&mutex, gives, outcome);
    if (waits) {
        assert_pending(p);
        assert_trace("");
        weft_mutex_unlock(&mutex);
    }
    assert_trace("f");
    if (promise_state(outcome) == PROMISE_PENDING) {
        assert_pending(p);
        cr_assert(weft_mutex_is_locked(&mutex));
        if (status < 0)
            promise_reject(outcome, status);
        else
            promise_resolve(outcome, weft_num(status));
    }
    cr_assert(!weft_mutex_is_locked(&mutex));
    if (status < 0)
        take_error(p, status);
    else
        take_value(p, status);
    promise_unref(outcome);
}

static struct promise *outcomes_body(void)
{
    weft_mutex_init(&mutex);
    for (int waits = 0; waits < 2; waits++) {
        one_outcome(promise_fulfilled(weft_num(3)), waits, 3);
        one_outcome(promise_rejected(-EIO), waits, -EIO);
        one_outcome(promise_create(), waits, 4);
        one_outcome(promise_create(), waits, -EPERM);
        one_outcome(NULL, waits, -EINVAL);
    }
    weft_mutex_finish(&mutex);
    return NULL;
}

Test(promise_mutex, with_lock_unlocks_on_any_outcome)
{
    run_promises(outcomes_body);
}

static struct promise *with_lock_cancel_body(void)
{
    struct promise *task = promise_create_task(), *p, *q;

    weft_mutex_init(&mutex);
    promise_unref(promise_mutex_lock(&mutex));
    p = promise_mutex_with_lock(&mutex, gives, task);
    promise_cancel(p); /* while it waits */
    take_error(p, -ECANCELED);
    p = promise_mutex_with_lock(&mutex, gives, task);
    q = promise_mutex_with_lock(&mutex, gives, task);
    weft_mutex_unlock(&mutex);
    assert_trace("f");
    promise_cancel(p); /* while it has the lock: what fn returned is canceled */
    take_error(p, -ECANCELED);
    assert_trace("f"); /* the next */
    take_error(q, -ECANCELED);
    cr_assert(!weft_mutex_is_locked(&mutex));
    promise_unref(task);
    weft_mutex_finish(&mutex);
    return NULL;
}

Test(promise_mutex, with_lock_can_be_canceled)
{
    run_promises(with_lock_cancel_body);
}

static struct promise *owned(void *ctx)
{
    (void)ctx;
    return promise_fulfilled_owned(boxed(5), destroy_box);
}

static struct promise *owned_body(void)
{
    weft_mutex_init(&mutex);
    promise_unref(promise_mutex_with_lock(&mutex, owned, NULL));
    cr_assert_eq(destroyed, 1);
    promise_unref(promise_mutex_lock(&mutex));
    promise_unref(promise_mutex_with_lock(&mutex, owned, NULL));
    weft_mutex_unlock(&mutex);
    cr_assert_eq(destroyed, 2);
    cr_assert(!weft_mutex_is_locked(&mutex));
    weft_mutex_finish(&mutex);
    return NULL;
}

Test(promise_mutex, with_lock_passes_owned_values)
{
    run_promises(owned_body);
}

static struct promise *finish_body(void)
{
    struct promise *p, *q;

    weft_mutex_init(&mutex);
    promise_unref(promise_mutex_lock(&mutex));
    p = promise_mutex_lock(&mutex);
    q = promise_mutex_with_lock(&mutex, gives, NULL);
    weft_mutex_finish(&mutex);
    take_error(p, -ECANCELED);
    take_error(q, -ECANCELED);
    take_error(promise_mutex_lock(NULL), -EINVAL);
    take_error(promise_mutex_with_lock(NULL, gives, NULL), -EINVAL);
    weft_mutex_unlock(NULL);
    return NULL;
}

Test(promise_mutex, finish_cancels_those_who_wait)
{
    run_promises(finish_body);
}

static struct promise *flat_body(void)
{
    int rounds = slow_tools() ? 20000 : 1000000;
    struct weft_mutex m;
    size_t before;

    weft_mutex_init(&m);
    before = promise__live();
    for (int i = 0; i < rounds; i++) {
        struct promise *a, *b, *c;

        promise_unref(promise_mutex_lock(&m));
        a = promise_mutex_lock(&m);
        b = promise_mutex_lock(&m);
        c = promise_mutex_lock(&m);
        promise_cancel(b);
        weft_mutex_unlock(&m);
        weft_mutex_unlock(&m);
        weft_mutex_unlock(&m);
        promise_unref(a);
        promise_unref(b);
        promise_unref(c);
    }
    cr_assert_eq(promise__live(), before);
    cr_assert(!weft_mutex_is_locked(&m));
    weft_mutex_finish(&m);
    return NULL;
}

Test(promise_mutex, memory_stays_flat)
{
    run_promises(flat_body);
}

static struct promise *many_body(void)
{
    int count = slow_tools() ? 2000 : 100000;

    weft_mutex_init(&mutex);
    promise_unref(promise_mutex_lock(&mutex));
    for (int i = 0; i < count; i++)
        promise_unref(promise_mutex_with_lock(&mutex, gives, promise__einval));
    weft_mutex_unlock(&mutex); /* each lets the next one in, without recursion */
    cr_assert(!weft_mutex_is_locked(&mutex));
    weft_mutex_finish(&mutex);
    return NULL;
}

Test(promise_mutex, a_long_queue_needs_no_stack)
{
    run_promises(many_body);
}

static struct promise *no_memory_body(void)
{
    struct promise *p;

    weft_mutex_init(&mutex);
    promise__fail_after(0);
    take_value(promise_mutex_lock(&mutex), 0); /* what needs no wait needs no memory */
    take_error(promise_mutex_lock(&mutex), -ENOMEM);
    cr_assert(!weft_mutex_is_awaited(&mutex));
    for (size_t i = 0; i < 2; i++) {
        promise__fail_after(i);
        p = promise_mutex_with_lock(&mutex, gives, promise__einval);
        promise__fail_after(SIZE_MAX);
        take_error(p, -ENOMEM);
        cr_assert(!weft_mutex_is_awaited(&mutex), "nobody's wait is left in the queue");
    }
    promise__fail_after(2); /* the job and its wait: that is all it ever takes */
    p = promise_mutex_with_lock(&mutex, gives, promise__error(-EIO));
    promise__fail_after(0);
    assert_pending(p);
    weft_mutex_unlock(&mutex);
    promise__fail_after(SIZE_MAX);
    take_error(p, -EIO);
    cr_assert(!weft_mutex_is_locked(&mutex));
    weft_mutex_finish(&mutex);
    return NULL;
}

Test(promise_mutex, without_memory_nobody_waits)
{
    run_promises(no_memory_body);
}

/* ---- jobs in jobs ---- */

static struct promise *gives_ref(void *ctx)
{
    return promise_ref(ctx);
}

/* A section that waits for `p`, a reference, which it consumes. */
static struct promise *section(struct weft_mutex *m, struct promise *p)
{
    struct promise *q = promise_mutex_with_lock(m, gives_ref, p);

    promise_unref(p);
    return q;
}

static struct promise *nested_body(void)
{
    size_t count = slow_tools() ? 2000 : 100000;
    struct weft_mutex *mutexes = calloc(count, sizeof *mutexes);
    struct promise *p = promise_create_task();

    for (size_t i = 0; i < count; i++) {
        weft_mutex_init(&mutexes[i]);
        p = section(&mutexes[i], p);
    }
    promise_cancel(p);
    take_error(p, -ECANCELED);
    for (size_t i = 0; i < count; i++)
        cr_assert(!weft_mutex_is_locked(&mutexes[i]));
    free(mutexes);
    return NULL;
}

Test(promise_mutex, canceling_nested_sections_needs_no_stack)
{
    run_promises(nested_body);
}

static struct promise *shared_body(void)
{
    enum { COUNT = 64 }; /* every other path to the task doubles: 2^64 of them */
    struct weft_mutex mutexes[COUNT];
    struct promise *p = promise_create_task();

    for (size_t i = 0; i < COUNT; i++) {
        struct promise *twice[2] = {p, promise_ref(p)};

        weft_mutex_init(&mutexes[i]);
        p = section(&mutexes[i], promise_join(twice, 2));
    }
    promise_cancel(p);
    take_error(p, -ECANCELED);
    return NULL;
}

Test(promise_mutex, a_cancel_visits_a_section_once)
{
    run_promises(shared_body);
}

static const struct weft_key local = {.name = "local"};

static struct promise *section_bound(union weft_value value, void *ctx)
{
    (void)value;
    return promise_mutex_with_lock(ctx, gives_ref, NULL);
}

static struct promise *once_more(union weft_value value, void *ctx)
{
    (void)value;
    (void)ctx;
    return promise_pause();
}

static struct promise *end_main(void *arg)
{
    static struct weft_mutex m; /* outlives the runtime */
    struct promise *p = promise_create_task();

    (void)arg;
    weft_mutex_init(&m);
    cr_assert_eq(weft_set(&local, &m), 0);
    promise_unref(promise_mutex_with_lock(&m, gives_ref, p));
    promise_unref(promise_bind(promise_pause(), section_bound, &m)); /* it becomes one with it */
    promise_unref(p);
    return promise_bind(promise_pause(), once_more, NULL);
}

Test(promise_mutex, the_runtimes_end_frees_what_sections_bound)
{
    cr_assert_eq(promise_run(end_main, NULL, NULL, NULL), 0);
}
