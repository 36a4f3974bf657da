/* Conditions of promises. */
#include "promise_support.h"

#include <weft/promise_sync.h>

#include <criterion/criterion.h>

static struct weft_condition condition;
static struct weft_mutex mutex;

static void begin(void)
{
    weft_condition_init(&condition);
    weft_mutex_init(&mutex);
}

static struct promise *end(void)
{
    weft_condition_finish(&condition);
    weft_mutex_finish(&mutex);
    return NULL;
}

static struct promise *basic_body(void)
{
    struct promise *p;

    begin();
    p = promise_condition_wait(&condition, NULL);
    assert_pending(p);
    promise_condition_signal(&condition, weft_num(7));
    take_value(p, 7);
    return end();
}

Test(promise_condition, a_signal_wakes_with_its_value)
{
    run_promises(basic_body);
}

static struct promise *mutex_body(void)
{
    struct promise *p;

    begin();
    promise_unref(promise_mutex_lock(&mutex));
    p = promise_condition_wait(&condition, &mutex);
    cr_assert(!weft_mutex_is_locked(&mutex), "wait unlocks");
    promise_condition_signal(&condition, weft_num(1));
    cr_assert(weft_mutex_is_locked(&mutex), "and locks again");
    take_value(p, 1);

    p = promise_condition_wait(&condition, &mutex);
    promise_unref(promise_mutex_lock(&mutex)); /* somebody else */
    promise_condition_signal(&condition, weft_num(2));
    assert_pending(p);
    weft_mutex_unlock(&mutex);
    take_value(p, 2);
    cr_assert(weft_mutex_is_locked(&mutex));
    weft_mutex_unlock(&mutex);
    return end();
}

Test(promise_condition, wait_unlocks_and_locks_again)
{
    run_promises(mutex_body);
}

static struct promise *order_body(void)
{
    struct promise *a, *b, *c;

    begin();
    a = promise_condition_wait(&condition, NULL);
    b = promise_condition_wait(&condition, NULL);
    c = promise_condition_wait(&condition, NULL);
    promise_cancel(b);
    take_error(b, -ECANCELED);
    promise_condition_signal(&condition, weft_num(1));
    take_value(a, 1);
    assert_pending(c);
    promise_condition_signal(&condition, weft_num(2));
    take_value(c, 2);
    promise_condition_signal(&condition, weft_num(3)); /* for nobody: not remembered */
    a = promise_condition_wait(&condition, NULL);
    assert_pending(a);
    promise_condition_signal(&condition, weft_num(4));
    take_value(a, 4);
    return end();
}

Test(promise_condition, signals_are_in_order_and_not_remembered)
{
    run_promises(order_body);
}

static struct promise *wait_again(union weft_value value, void *ctx)
{
    note(ctx);
    note_number(value.num);
    return promise_condition_wait(&condition, NULL);
}

static struct promise *broadcast_body(void)
{
    struct promise *a, *b;

    begin();
    a = promise_bind(promise_condition_wait(&condition, NULL), wait_again, "a");
    b = promise_bind(promise_condition_wait(&condition, NULL), wait_again, "b");
    promise_condition_broadcast(&condition, weft_num(5));
    assert_trace("a5 b5 "); /* those who come back wait for the next */
    assert_pending(a);
    assert_pending(b);
    promise_condition_broadcast_error(&condition, -EPROTO);
    take_error(a, -EPROTO);
    take_error(b, -EPROTO);
    promise_condition_broadcast(&condition, weft_num(6));
    promise_condition_broadcast_error(&condition, -EIO);
    return end();
}

Test(promise_condition, broadcast_wakes_those_who_wait_now)
{
    run_promises(broadcast_body);
}

static struct promise *error_body(void)
{
    struct promise *p;

    begin();
    promise_unref(promise_mutex_lock(&mutex));
    p = promise_condition_wait(&condition, &mutex);
    promise_condition_broadcast_error(&condition, -EPROTO);
    take_error(p, -EPROTO);
    cr_assert(weft_mutex_is_locked(&mutex));
    p = promise_condition_wait(&condition, &mutex);
    promise_cancel(p);
    take_error(p, -ECANCELED);
    cr_assert(weft_mutex_is_locked(&mutex), "locked after a cancel, too");
    return end();
}

Test(promise_condition, the_mutex_is_locked_again_on_any_outcome)
{
    run_promises(error_body);
}

static struct promise *contended_body(void)
{
    struct promise *p;

    begin();
    promise_unref(promise_mutex_lock(&mutex));
    p = promise_condition_wait(&condition, &mutex);
    promise_unref(promise_mutex_lock(&mutex));
    promise_cancel(p);
    assert_pending(p); /* it has to have the mutex first */
    promise_cancel(p); /* and that can't be interrupted */
    assert_pending(p);
    weft_mutex_unlock(&mutex);
    take_error(p, -ECANCELED);
    cr_assert(weft_mutex_is_locked(&mutex));
    return end();
}

Test(promise_condition, locking_again_cannot_be_canceled)
{
    run_promises(contended_body);
}

static struct promise *finish_body(void)
{
    struct weft_condition *c = weft_condition_create();
    struct promise *p = promise_condition_wait(c, NULL);

    weft_condition_destroy(c);
    take_error(p, -ECANCELED);
    weft_condition_destroy(NULL);
    take_error(promise_condition_wait(NULL, NULL), -EINVAL);
    promise_condition_signal(NULL, weft_num(0));
    promise_condition_broadcast(NULL, weft_num(0));
    return NULL;
}

Test(promise_condition, finish_cancels_those_who_wait)
{
    run_promises(finish_body);
}

static struct promise *flat_body(void)
{
    int rounds = slow_tools() ? 20000 : 500000;
    size_t before;

    begin();
    promise_unref(promise_mutex_lock(&mutex));
    before = promise__live();
    for (int i = 0; i < rounds; i++) {
        struct promise *p = promise_condition_wait(&condition, &mutex);

        if (i % 2 == 0)
            promise_cancel(p);
        promise_condition_signal(&condition, weft_num(i));
        promise_unref(p);
    }
    cr_assert_eq(promise__live(), before);
    return end();
}

Test(promise_condition, memory_stays_flat)
{
    run_promises(flat_body);
}

static struct promise *no_memory_body(void)
{
    struct promise *p;

    begin();
    promise_unref(promise_mutex_lock(&mutex));
    promise__fail_after(0);
    take_error(promise_condition_wait(&condition, &mutex), -ENOMEM);
    cr_assert(weft_mutex_is_locked(&mutex));
    promise__fail_after(1); /* that is all that it ever takes */
    p = promise_condition_wait(&condition, &mutex);
    promise__fail_after(0);
    take_value(promise_mutex_lock(&mutex), 0);
    promise_condition_signal(&condition, weft_num(1));
    assert_pending(p);
    cr_assert_eq(weft_mutex_unlock(&mutex), 0);
    promise__fail_after(SIZE_MAX);
    take_value(p, 1);
    cr_assert(weft_mutex_is_locked(&mutex));
    return end();
}

Test(promise_condition, without_memory_the_mutex_stays_locked)
{
    run_promises(no_memory_body);
}
