/* The objects of weft/sync.h for promises alone, as in a library without fibers. */
#include "promise_support.h"

#include <weft/sync.h>

#include <criterion/criterion.h>

/* ---- channel ---- */

static struct weft_channel channel;
static union weft_value room[2];

static struct promise *channel_body(void)
{
    struct promise *a, *b, *c, *d;

    weft_channel_init(&channel, room, 2, NULL);
    a = promise_channel_recv(&channel);
    b = promise_channel_recv(&channel);
    watch(a, "a");
    watch(b, "b");
    take_value(promise_channel_send(&channel, weft_num(1)), 0);
    take_value(promise_channel_send(&channel, weft_num(2)), 0);
    assert_trace("a=1 b=2 ");
    take_value(promise_channel_send(&channel, weft_num(3)), 0);
    take_value(promise_channel_send(&channel, weft_num(4)), 0);
    c = promise_channel_send(&channel, weft_num(5));
    d = promise_channel_send(&channel, weft_num(6));
    watch(c, "c");
    watch(d, "d");
    promise_cancel(d);
    assert_trace("d!-125 ");
    take_value(promise_channel_recv(&channel), 3);
    assert_trace("c=0 ");
    take_value(promise_channel_recv(&channel), 4);
    take_value(promise_channel_recv(&channel), 5);
    take_error(d, -ECANCELED);
    d = promise_channel_recv(&channel);
    weft_channel_close(&channel);
    take_error(d, -ENODATA);
    take_error(promise_channel_send(&channel, weft_num(7)), -EPIPE);
    weft_channel_finish(&channel);
    promise_unref(a);
    promise_unref(b);
    promise_unref(c);
    return NULL;
}

Test(sync_promise, channel)
{
    run_promises(channel_body);
}

/* Callbacks that use the channel that they were called for. */

static struct promise *receive_again(union weft_value value, void *unused)
{
    (void)unused;
    note_number(value.num);
    if (value.num == 0)
        return promise_fulfilled(weft_num(0));
    return promise_bind(promise_channel_recv(&channel), receive_again, NULL);
}

static struct promise *send_next(union weft_value value, void *left)
{
    intptr_t n = (intptr_t)left;

    (void)value;
    if (n < 0)
        return promise_fulfilled(weft_num(0));
    return promise_bind(promise_channel_send(&channel, weft_num(n)), send_next, (void *)(n - 1));
}

static struct promise *loops_body(void)
{
    struct promise *sender, *receiver;

    for (size_t capacity = 0; capacity <= 2; capacity++) {
        weft_channel_init(&channel, room, capacity, NULL);
        receiver = promise_bind(promise_channel_recv(&channel), receive_again, NULL);
        sender = promise_bind(promise_fulfilled(weft_num(0)), send_next, (void *)5);
        take_value(receiver, 0);
        take_value(sender, 0);
        assert_trace("5 4 3 2 1 0 ");
        weft_channel_init(&channel, room, capacity, NULL);
        sender = promise_bind(promise_fulfilled(weft_num(0)), send_next, (void *)5);
        receiver = promise_bind(promise_channel_recv(&channel), receive_again, NULL);
        take_value(receiver, 0);
        take_value(sender, 0);
        assert_trace("5 4 3 2 1 0 ");
    }
    return NULL;
}

Test(sync_promise, loops_over_a_channel)
{
    run_promises(loops_body);
}

static int count_down(union weft_value value, void *left)
{
    (void)value;
    --*(int *)left;
    return 0;
}

static struct promise *many_body(void)
{
    int count = slow_tools() ? 2000 : 100000, left = count;
    size_t before;

    weft_channel_init(&channel, NULL, 0, NULL);
    before = promise__live();
    for (int i = 0; i < count; i++) {
        struct promise *p = promise_channel_recv(&channel);

        promise_on_success(p, count_down, &left);
        promise_unref(p);
    }
    for (int i = 0; i < count; i++)
        take_value(promise_channel_send(&channel, weft_num(i)), 0);
    cr_assert_eq(left, 0);
    cr_assert_eq(promise__live(), before);
    return NULL;
}

Test(sync_promise, memory_stays_flat)
{
    run_promises(many_body);
}

static struct promise *owned_body(void)
{
    struct weft_channel *c = weft_channel_create(1, destroy_box);
    struct promise *p;
    void *mine = boxed(3);

    take_value(promise_channel_send(c, weft_ptr(boxed(1))), 0);
    promise_unref(promise_channel_recv(c));
    cr_assert_eq(destroyed, 1);
    p = promise_channel_recv(c);
    promise_unref(p);
    take_value(promise_channel_send(c, weft_ptr(boxed(2))), 0);
    cr_assert_eq(destroyed, 2);
    take_value(promise_channel_send(c, weft_ptr(boxed(2))), 0);
    p = promise_channel_send(c, weft_ptr(mine));
    promise__fail_after(0);
    take_error(promise_channel_recv(c), -ENOMEM);
    promise__fail_after(SIZE_MAX);
    weft_channel_destroy(c);
    take_error(p, -ECANCELED);
    cr_assert_eq(destroyed, 3);
    cr_assert_eq(unboxed(mine), 3);
    return NULL;
}

Test(sync_promise, items_that_own_memory)
{
    run_promises(owned_body);
}

/* ---- the others ---- */

static struct weft_rwlock rwlock;

static struct promise *rwlock_body(void)
{
    struct promise *w, *r, *s;

    weft_rwlock_init(&rwlock);
    take_value(promise_rwlock_read(&rwlock), 0);
    take_value(promise_rwlock_read(&rwlock), 0);
    w = promise_rwlock_write(&rwlock);
    r = promise_rwlock_read(&rwlock);
    s = promise_rwlock_read(&rwlock);
    watch(w, "w");
    watch(r, "r");
    watch(s, "s");
    cr_assert_eq(weft_rwlock_unlock(&rwlock), 0);
    assert_trace("");
    cr_assert_eq(weft_rwlock_unlock(&rwlock), 0);
    assert_trace("w=0 ");
    cr_assert_eq(weft_rwlock_unlock(&rwlock), 0);
    assert_trace("r=0 s=0 ");
    promise_unref(w);
    w = promise_rwlock_write(&rwlock);
    promise_unref(r);
    r = promise_rwlock_read(&rwlock);
    watch(r, "r");
    assert_trace("");
    promise_cancel(w); /* it was all that the reader waited for */
    assert_trace("r=0 ");
    take_error(w, -ECANCELED);
    take_value(r, 0);
    take_value(s, 0);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(weft_rwlock_unlock(&rwlock), i < 3 ? 0 : -EPERM);
    return NULL;
}

Test(sync_promise, rwlock)
{
    run_promises(rwlock_body);
}

static struct promise *count_body(void)
{
    struct weft_semaphore semaphore;
    struct weft_barrier barrier;
    struct weft_event event;
    struct promise *a, *b, *c;

    weft_semaphore_init(&semaphore, 1);
    take_value(promise_semaphore_acquire(&semaphore, 1), 0);
    a = promise_semaphore_acquire(&semaphore, 5);
    b = promise_semaphore_acquire(&semaphore, 1);
    watch(a, "a");
    watch(b, "b");
    cr_assert_eq(weft_semaphore_release(&semaphore, 1), 0);
    assert_trace("");
    promise_cancel(a);
    assert_trace("a!-125 b=0 ");
    take_error(a, -ECANCELED);
    take_value(b, 0);

    weft_event_init(&event);
    a = promise_event_wait(&event);
    b = promise_event_wait(&event);
    watch(a, "a");
    watch(b, "b");
    weft_event_set(&event);
    assert_trace("a=0 b=0 ");
    take_value(a, 0);
    take_value(b, 0);
    take_value(promise_event_wait(&event), 0);
    weft_event_reset(&event);
    a = promise_event_wait(&event);
    weft_event_finish(&event);
    take_error(a, -ECANCELED);

    weft_barrier_init(&barrier, 3);
    a = promise_barrier_wait(&barrier);
    b = promise_barrier_wait(&barrier);
    promise_cancel(a);
    take_error(a, -ECANCELED);
    a = promise_barrier_wait(&barrier);
    assert_pending(a);
    c = promise_barrier_wait(&barrier);
    take_value(a, 0);
    take_value(b, 0);
    take_value(c, 1);
    return NULL;
}

Test(sync_promise, semaphore_event_barrier)
{
    run_promises(count_body);
}

static struct weft_once once;
static struct promise *making;

static struct promise *make(void *ctx)
{
    note(ctx);
    return promise_ref(making);
}

static struct promise *once_body(void)
{
    struct promise *a, *b, *c;

    weft_once_init(&once, NULL);
    making = promise_create_task();
    a = promise_once_get(&once, make, "a ");
    b = promise_once_get(&once, make, "b ");
    c = promise_once_get(&once, make, "c ");
    assert_trace("a ");
    promise_unref(making);
    making = promise_create();
    promise_cancel(a);
    take_error(a, -ECANCELED);
    assert_trace("b ");
    promise_resolve(making, weft_num(INT64_MIN));
    take_value(b, INT64_MIN);
    take_value(c, INT64_MIN);
    take_value(promise_once_get(&once, make, "d "), INT64_MIN);
    assert_trace("");
    promise_unref(making);
    weft_once_finish(&once);
    return NULL;
}

Test(sync_promise, once)
{
    run_promises(once_body);
}

/* ---- without memory nothing has begun ---- */

static struct promise *no_memory_body(void)
{
    struct weft_semaphore semaphore;
    struct weft_barrier barrier;
    struct weft_event event;

    weft_semaphore_init(&semaphore, 0);
    weft_event_init(&event);
    weft_barrier_init(&barrier, 2);
    weft_rwlock_init(&rwlock);
    take_value(promise_rwlock_write(&rwlock), 0);
    weft_channel_init(&channel, NULL, 0, NULL);
    weft_once_init(&once, NULL);
    promise__fail_after(0);
    take_error(promise_semaphore_acquire(&semaphore, 1), -ENOMEM);
    take_error(promise_event_wait(&event), -ENOMEM);
    take_error(promise_barrier_wait(&barrier), -ENOMEM);
    take_error(promise_rwlock_read(&rwlock), -ENOMEM);
    take_error(promise_rwlock_write(&rwlock), -ENOMEM);
    take_error(promise_channel_send(&channel, weft_num(1)), -ENOMEM);
    take_error(promise_channel_recv(&channel), -ENOMEM);
    take_error(promise_once_get(&once, make, "x"), -ENOMEM);
    promise__fail_after(SIZE_MAX);
    cr_assert_eq(weft_semaphore_release(&semaphore, 1), 0);
    cr_assert_eq(weft_semaphore_units(&semaphore), 1);
    cr_assert_eq(weft_rwlock_unlock(&rwlock), 0);
    cr_assert_eq(weft_rwlock_unlock(&rwlock), -EPERM);
    cr_assert_eq(weft_channel_try_send(&channel, weft_num(1)), -EAGAIN);
    return NULL;
}

Test(sync_promise, no_memory)
{
    run_promises(no_memory_body);
}
