/* Mailboxes. */
#include "promise_support.h"

#include <weft/promise_sync.h>

#include <criterion/criterion.h>

static struct promise_mvar mvar;

static struct promise *basic_body(void)
{
    union weft_value value = weft_num(0);

    promise_mvar_init(&mvar, NULL);
    cr_assert(promise_mvar_is_empty(&mvar));
    cr_assert(!promise_mvar_take_available(&mvar, &value));
    take_value(promise_mvar_put(&mvar, weft_num(3)), 0);
    cr_assert(!promise_mvar_is_empty(&mvar));
    take_value(promise_mvar_take(&mvar), 3);
    cr_assert(promise_mvar_is_empty(&mvar));
    take_value(promise_mvar_put(&mvar, weft_num(4)), 0);
    cr_assert(promise_mvar_take_available(&mvar, &value));
    cr_assert_eq(value.num, 4);
    cr_assert(promise_mvar_is_empty(&mvar));
    promise_mvar_finish(&mvar);
    return NULL;
}

Test(promise_mvar, put_and_take)
{
    run_promises(basic_body);
}

static struct promise *writers_body(void)
{
    struct promise *a, *b, *c;
    union weft_value value = weft_num(0);

    promise_mvar_init(&mvar, NULL);
    promise_unref(promise_mvar_put(&mvar, weft_num(1)));
    a = promise_mvar_put(&mvar, weft_num(2));
    b = promise_mvar_put(&mvar, weft_num(3));
    c = promise_mvar_put(&mvar, weft_num(4));
    watch(a, "a");
    watch(b, "b");
    watch(c, "c");
    take_value(promise_mvar_take(&mvar), 1);
    assert_trace("a=0 "); /* the first writer is in */
    cr_assert(promise_mvar_take_available(&mvar, &value));
    cr_assert_eq(value.num, 2);
    assert_trace("b=0 ");
    take_value(promise_mvar_take(&mvar), 3);
    assert_trace("c=0 ");
    take_value(promise_mvar_take(&mvar), 4);
    cr_assert(promise_mvar_is_empty(&mvar));
    promise_unref(a);
    promise_unref(b);
    promise_unref(c);
    promise_mvar_finish(&mvar);
    return NULL;
}

Test(promise_mvar, writers_wait_in_order)
{
    run_promises(writers_body);
}

static struct promise *takers_body(void)
{
    struct promise *a, *b;

    promise_mvar_init(&mvar, NULL);
    a = promise_mvar_take(&mvar);
    b = promise_mvar_take(&mvar);
    watch(a, "a");
    watch(b, "b");
    take_value(promise_mvar_put(&mvar, weft_num(1)), 0);
    assert_trace("a=1 ");
    cr_assert(promise_mvar_is_empty(&mvar));
    take_value(promise_mvar_put(&mvar, weft_num(2)), 0);
    assert_trace("b=2 ");
    promise_unref(a);
    promise_unref(b);
    promise_mvar_finish(&mvar);
    return NULL;
}

Test(promise_mvar, takers_wait_in_order)
{
    run_promises(takers_body);
}

static struct promise *cancel_body(void)
{
    struct promise *a, *b;

    promise_mvar_init(&mvar, NULL);
    a = promise_mvar_take(&mvar);
    b = promise_mvar_take(&mvar);
    promise_cancel(a);
    take_error(a, -ECANCELED);
    promise_unref(promise_mvar_put(&mvar, weft_num(1)));
    take_value(b, 1);

    promise_unref(promise_mvar_put(&mvar, weft_num(2)));
    a = promise_mvar_put(&mvar, weft_num(3));
    b = promise_mvar_put(&mvar, weft_num(4));
    promise_cancel(a);
    take_error(a, -ECANCELED);
    take_value(promise_mvar_take(&mvar), 2);
    take_value(b, 0);
    take_value(promise_mvar_take(&mvar), 4); /* 3 was not put */
    cr_assert(promise_mvar_is_empty(&mvar));
    promise_mvar_finish(&mvar);
    return NULL;
}

Test(promise_mvar, canceled_ones_leave)
{
    run_promises(cancel_body);
}

static struct promise *taking;

static int put_and_cancel(void *ctx)
{
    (void)ctx;
    promise_unref(promise_mvar_put(&mvar, weft_num(9)));
    promise_cancel(taking); /* too late: it has the value */
    return 0;
}

static struct promise *race_body(void)
{
    struct promise *p = promise_create();

    promise_mvar_init(&mvar, NULL);
    taking = promise_mvar_take(&mvar);
    watch(taking, "t");
    promise_on_termination(p, put_and_cancel, NULL);
    promise_resolve(p, weft_num(0));
    assert_trace("t=9 ");
    promise_unref(p);
    promise_unref(taking);
    promise_mvar_finish(&mvar);
    return NULL;
}

Test(promise_mvar, a_value_handed_over_is_not_lost_to_a_cancel)
{
    run_promises(race_body);
}

static struct promise *owned_body(void)
{
    struct promise_mvar *m = promise_mvar_create(destroy_box);
    struct promise *taker, *canceled;
    union weft_value value;
    void *box = boxed(3);

    promise_unref(promise_mvar_put(m, weft_ptr(boxed(1))));
    cr_assert(promise_mvar_take_available(m, &value));
    cr_assert_eq(unboxed(value.ptr), 1);
    promise_unref(promise_mvar_put(m, weft_ptr(boxed(2))));
    promise_unref(promise_mvar_take(m)); /* untaken */
    cr_assert_eq(destroyed, 1);
    taker = promise_mvar_take(m);
    promise_unref(promise_mvar_put(m, weft_ptr(boxed(2))));
    promise_unref(taker);
    cr_assert_eq(destroyed, 2);
    promise_unref(promise_mvar_put(m, weft_ptr(boxed(2))));
    canceled = promise_mvar_put(m, weft_ptr(box));
    promise_cancel(canceled);
    take_error(canceled, -ECANCELED);
    cr_assert_eq(unboxed(box), 3); /* still the caller's */
    canceled = promise_mvar_put(m, weft_ptr(boxed(4)));
    promise_mvar_destroy(m);
    take_error(canceled, -ECANCELED);
    cr_assert_eq(destroyed, 4);
    promise_mvar_destroy(NULL);
    return NULL;
}

Test(promise_mvar, values_are_owned)
{
    run_promises(owned_body);
}

static struct promise *flat_body(void)
{
    int rounds = slow_tools() ? 20000 : 500000;
    size_t before;

    promise_mvar_init(&mvar, NULL);
    before = promise__live();
    for (int i = 0; i < rounds; i++) {
        struct promise *p = promise_mvar_take(&mvar), *q = promise_mvar_take(&mvar);

        promise_cancel(p);
        promise_unref(promise_mvar_put(&mvar, weft_num(i)));
        promise_unref(p);
        promise_unref(q);
    }
    cr_assert_eq(promise__live(), before);
    promise_mvar_finish(&mvar);
    return NULL;
}

Test(promise_mvar, memory_stays_flat)
{
    run_promises(flat_body);
}

static struct promise *no_memory_body(void)
{
    struct promise *p;

    promise_mvar_init(&mvar, NULL);
    promise__fail_after(0);
    p = promise_mvar_put(&mvar, weft_num(1));
    take_error(p, -ENOMEM);
    cr_assert(promise_mvar_is_empty(&mvar));
    promise__fail_after(SIZE_MAX);
    promise_unref(promise_mvar_put(&mvar, weft_num(1)));
    promise__fail_after(0);
    take_error(promise_mvar_take(&mvar), -ENOMEM);
    promise__fail_after(SIZE_MAX);
    take_value(promise_mvar_take(&mvar), 1);
    promise_mvar_finish(&mvar);
    return NULL;
}

Test(promise_mvar, without_memory_no_value_is_lost)
{
    run_promises(no_memory_body);
}
