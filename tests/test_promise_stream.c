/* Streams. */
#include "promise_support.h"

#include <weft/promise_stream.h>

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static void push(struct promise_stream *s, int64_t value)
{
    cr_assert_eq(promise_stream_push(s, weft_num(value)), 0);
}

static struct promise_stream *numbers(int first, int last)
{
    struct promise_stream *s = promise_stream_create(NULL);

    for (int i = first; i <= last; i++)
        push(s, i);
    cr_assert_eq(promise_stream_close(s), 0);
    return s;
}

/* ---- pushing and getting ---- */

static struct promise *push_body(void)
{
    struct promise_stream *s = promise_stream_create(NULL);
    struct promise *a, *b;

    push(s, 1);
    push(s, 2);
    cr_assert_eq(promise_stream_available(s), 2);
    take_value(promise_stream_get(s), 1);
    take_value(promise_stream_get(s), 2);
    a = promise_stream_get(s);
    b = promise_stream_get(s);
    assert_pending(a);
    push(s, 3);
    take_value(a, 3);
    assert_pending(b);
    push(s, 4);
    take_value(b, 4);
    a = promise_stream_get(s);
    cr_assert_eq(promise_stream_close(s), 0);
    take_error(a, -ENODATA);
    take_error(promise_stream_get(s), -ENODATA);
    promise_stream_unref(s);
    return NULL;
}

Test(promise_stream, readers_get_an_element_each_in_order)
{
    run_promises(push_body);
}

static struct promise *closed_body(void)
{
    struct promise_stream *s = promise_stream_create(NULL);
    struct promise *closed = promise_stream_closed(s), *second = promise_stream_closed(s);

    push(s, 1);
    promise_cancel(closed);
    assert_pending(closed);
    cr_assert_eq(promise_resolve(closed, weft_num(1)), -EINVAL);
    cr_assert(!promise_stream_is_closed(s));
    cr_assert_eq(promise_stream_close(s), 0);
    take_value(closed, 0);
    take_value(second, 0);
    take_value(promise_stream_closed(s), 0);
    cr_assert(promise_stream_is_closed(s));
    cr_assert_eq(promise_stream_close(s), -EPIPE);
    cr_assert_eq(promise_stream_push(s, weft_num(2)), -EPIPE);
    take_error(promise_stream_push_wait(s, weft_num(2)), -EPIPE);
    take_value(promise_stream_get(s), 1); /* what was there stays */
    take_error(promise_stream_get(s), -ENODATA);
    promise_stream_unref(s);
    return NULL;
}

Test(promise_stream, a_push_after_close_fails)
{
    run_promises(closed_body);
}

static struct promise *owned_body(void)
{
    struct promise_stream *s = promise_stream_create(destroy_box), *clone;
    struct promise *p;
    union weft_value value = weft_num(0);

    cr_assert_eq(promise_stream_push(s, weft_ptr(boxed(1))), 0);
    cr_assert_eq(promise_stream_push(s, weft_ptr(boxed(2))), 0);
    promise_unref(promise_stream_get(s));
    cr_assert_eq(destroyed, 1);
    clone = promise_stream_clone(s);
    promise_unref(promise_stream_get(s));
    cr_assert_eq(destroyed, 1); /* the clone still has it */
    promise_unref(promise_stream_get(clone));
    cr_assert_eq(destroyed, 2);
    promise_stream_unref(clone);
    p = promise_stream_get(s);
    cr_assert_eq(promise_stream_push(s, weft_ptr(boxed(3))), 0);
    cr_assert_eq(promise_poll(p, &value, NULL), PROMISE_FULFILLED);
    cr_assert_eq(*(int64_t *)value.ptr, 3);
    promise_unref(p);
    cr_assert_eq(destroyed, 3);
    cr_assert_eq(promise_stream_push(s, weft_ptr(boxed(4))), 0);
    promise_stream_unref(s);
    cr_assert_eq(destroyed, 4);
    return NULL;
}

Test(promise_stream, elements_are_owned)
{
    run_promises(owned_body);
}

static struct promise *cancel_body(void)
{
    struct promise_stream *s = promise_stream_create(NULL);
    struct promise *a, *b, *c;

    a = promise_stream_get(s);
    b = promise_stream_get(s);
    c = promise_stream_get(s);
    promise_cancel(b);
    take_error(b, -ECANCELED);
    push(s, 1);
    push(s, 2);
    push(s, 3);
    take_value(a, 1);
    take_value(c, 2);
    take_value(promise_stream_get(s), 3); /* nothing is lost */
    promise_stream_unref(s);
    return NULL;
}

Test(promise_stream, canceling_a_reader_disturbs_nobody)
{
    run_promises(cancel_body);
}

static struct promise_stream *racing;
static struct promise *racer;

static int push_then_cancel(void *ctx)
{
    (void)ctx;
    push(racing, 5);
    promise_cancel(racer);
    return 0;
}

static struct promise *race_body(void)
{
    struct promise *p = promise_create();

    racing = promise_stream_create(NULL);
    racer = promise_stream_get(racing);
    watch(racer, "r");
    promise_on_termination(p, push_then_cancel, NULL);
    promise_resolve(p, weft_num(0));
    assert_trace("r=5 ");
    promise_unref(p);
    promise_unref(racer);
    promise_stream_unref(racing);
    return NULL;
}

Test(promise_stream, a_cancel_after_the_push_comes_too_late)
{
    run_promises(race_body);
}

/* ---- a function as the source ---- */

static int calls;
static struct promise *source_waits;

static struct promise *source(void *ctx)
{
    (void)ctx;
    calls++;
    if (source_waits != NULL)
        return promise_ref(source_waits);
    if (calls > 5)
        return promise_rejected(-ENODATA);
    return promise_fulfilled(weft_num(calls));
}

static void answer(int64_t value)
{
    struct promise *p = source_waits;

    source_waits = NULL;
    if (value < 0)
        promise_reject(p, (int)value);
    else
        promise_resolve(p, weft_num(value));
    promise_unref(p);
}

static void release_noted(void *ctx)
{
    note(ctx);
}

static struct promise_stream *from(void)
{
    calls = 0;
    source_waits = NULL;
    return promise_stream_from(source, "released", release_noted);
}

static struct promise *from_body(void)
{
    struct promise_stream *s = from();
    struct promise *a, *b, *c;

    source_waits = promise_create();
    a = promise_stream_get(s);
    b = promise_stream_get(s);
    c = promise_stream_get(s);
    cr_assert_eq(calls, 1, "the readers share one call");
    answer(100);
    take_value(a, 100);
    take_value(b, 2); /* further calls, one each */
    take_value(c, 3);
    cr_assert_eq(calls, 3);
    take_value(promise_stream_get(s), 4);
    take_value(promise_stream_get(s), 5);
    take_error(promise_stream_get(s), -ENODATA);
    take_error(promise_stream_get(s), -ENODATA);
    cr_assert_eq(calls, 6, "not called again after its end");
    cr_assert(promise_stream_is_closed(s));
    assert_trace("");
    promise_stream_unref(s);
    assert_trace("released");
    return NULL;
}

Test(promise_stream, from_calls_its_function_on_demand)
{
    run_promises(from_body);
}

static struct promise *from_cancel_body(void)
{
    struct promise_stream *s = from();
    struct promise *task = promise_create_task(), *p;

    source_waits = promise_ref(task);
    p = promise_stream_get(s);
    promise_cancel(p);
    take_error(p, -ECANCELED);
    assert_pending(task); /* protected */
    answer(7);
    take_value(promise_stream_get(s), 7); /* what came for it is kept */
    promise_unref(task);
    promise_stream_unref(s);
    assert_trace("released");
    return NULL;
}

Test(promise_stream, a_canceled_reader_does_not_cancel_the_source)
{
    run_promises(from_cancel_body);
}

static struct promise *from_error_body(void)
{
    struct promise_stream *s = from();
    struct promise *a, *b;

    source_waits = promise_create();
    a = promise_stream_get(s);
    b = promise_stream_get(s);
    answer(-EIO);
    take_error(a, -EIO);
    take_value(b, 2); /* usable as before */
    source_waits = promise_rejected(-EPROTO);
    take_error(promise_stream_get(s), -EPROTO);
    take_error(promise_stream_peek(s), -EPROTO);
    take_error(promise_stream_is_empty(s), -EPROTO);
    take_error(promise_stream_junk(s), -EPROTO);
    take_error(promise_stream_nget(s, 2), -EPROTO);
    promise_unref(source_waits);
    source_waits = NULL;
    calls = 3;
    take_value(promise_stream_get(s), 4);
    promise_stream_unref(s);
    assert_trace("released");
    return NULL;
}

Test(promise_stream, an_error_of_the_source_rejects_the_read_and_no_more)
{
    run_promises(from_error_body);
}

static struct promise *abandon_body(void)
{
    struct promise_stream *s = from();
    struct promise *task = promise_create_task(), *p;

    source_waits = promise_ref(task);
    p = promise_stream_get(s);
    promise_stream_unref(s);
    take_error(p, -ENODATA);
    assert_error(task, -ECANCELED); /* nobody wants it */
    assert_trace("released");
    promise_unref(task);
    promise_unref(source_waits);
    source_waits = NULL;

    s = from(); /* one that can't be canceled */
    source_waits = promise_create();
    p = promise_stream_get(s);
    promise_stream_unref(s);
    take_error(p, -ENODATA);
    assert_trace("");
    answer(1);
    assert_trace("released");
    return NULL;
}

Test(promise_stream, the_last_reference_ends_it)
{
    run_promises(abandon_body);
}

static int next_number(void *ctx, union weft_value *out)
{
    int *n = ctx;

    if (*n == 3)
        return -ENODATA;
    *out = weft_num(++*n);
    return 0;
}

static int next_box(void *ctx, union weft_value *out)
{
    (void)ctx;
    *out = weft_ptr(boxed(1));
    return 0;
}

static struct promise *direct_body(void)
{
    int n = 0;
    struct promise_stream *s = promise_stream_from_direct(next_number, &n, NULL, NULL);
    union weft_value values[] = {{.num = 7}, {.num = 8}};

    take_value(promise_stream_peek(s), 1);
    take_values(promise_stream_nget(s, 2), "1 2");
    take_values(promise_stream_nget(s, 5), "3");
    take_error(promise_stream_get(s), -ENODATA);
    promise_stream_unref(s);
    s = promise_stream_from_direct(next_box, NULL, NULL, destroy_box);
    promise_unref(promise_stream_nget(s, 10));
    cr_assert_eq(destroyed, 10);
    promise_stream_unref(s);
    s = promise_stream_of_values(values, 2, NULL);
    take_values(promise_stream_collect(s), "7 8");
    return NULL;
}

Test(promise_stream, from_direct_and_of_values)
{
    run_promises(direct_body);
}

/* ---- bounded ---- */

static struct promise *bounded_body(void)
{
    struct promise_stream *s = promise_stream_create_bounded(2, NULL);
    struct promise *a, *p;

    cr_assert_eq(promise_stream_size(s), 2);
    take_value(promise_stream_push_wait(s, weft_num(1)), 0);
    push(s, 2);
    cr_assert_eq(promise_stream_push(s, weft_num(3)), -ENOBUFS);
    p = promise_stream_push_wait(s, weft_num(3));
    assert_pending(p);
    take_error(promise_stream_push_wait(s, weft_num(4)), -ENOBUFS);
    cr_assert_eq(promise_stream_available(s), 2);
    take_value(promise_stream_get(s), 1);
    take_value(p, 0);
    cr_assert_eq(promise_stream_available(s), 2);
    take_value(promise_stream_get(s), 2);
    take_value(promise_stream_get(s), 3);
    a = promise_stream_get(s);
    take_value(promise_stream_push_wait(s, weft_num(5)), 0);
    take_value(a, 5);
    cr_assert_null(promise_stream_clone(s));
    promise_stream_unref(s);
    return NULL;
}

Test(promise_stream, a_push_beyond_the_bound_waits_and_another_fails)
{
    run_promises(bounded_body);
}

static struct promise *bounded_cancel_body(void)
{
    struct promise_stream *s = promise_stream_create_bounded(1, destroy_box);
    void *box = boxed(2);
    struct promise *p, *q;
    union weft_value value;

    cr_assert_eq(promise_stream_push(s, weft_ptr(boxed(1))), 0);
    p = promise_stream_push_wait(s, weft_ptr(box));
    promise_cancel(p);
    take_error(p, -ECANCELED);
    cr_assert_eq(unboxed(box), 2); /* withdrawn: the caller's again */
    p = promise_stream_push_wait(s, weft_ptr(boxed(3)));
    promise_unref(promise_stream_get(s));
    take_value(p, 0);
    q = promise_stream_get(s);
    promise_poll(q, &value, NULL);
    cr_assert_eq(*(int64_t *)value.ptr, 3);
    promise_unref(q);
    promise_stream_unref(s);
    cr_assert_eq(destroyed, 2);
    return NULL;
}

Test(promise_stream, canceling_a_waiting_push_withdraws_its_element)
{
    run_promises(bounded_cancel_body);
}

static struct promise *bounded_close_body(void)
{
    struct promise_stream *s = promise_stream_create_bounded(1, NULL);
    struct promise *p, *r;

    push(s, 1);
    p = promise_stream_push_wait(s, weft_num(2));
    promise_stream_close(s);
    take_error(p, -EPIPE);
    take_value(promise_stream_get(s), 1);
    take_error(promise_stream_get(s), -ENODATA);
    promise_stream_unref(s);

    s = promise_stream_create_bounded(1, NULL);
    r = promise_stream_get(s);
    promise_stream_close(s);
    take_error(r, -ENODATA);
    promise_stream_unref(s);

    s = promise_stream_create_bounded(0, NULL);
    p = promise_stream_push_wait(s, weft_num(2));
    promise_stream_unref(s);
    take_error(p, -EPIPE);
    return NULL;
}

Test(promise_stream, closing_a_bounded_one_wakes_both_sides)
{
    run_promises(bounded_close_body);
}

static struct promise *rendezvous_body(void)
{
    struct promise_stream *s = promise_stream_create_bounded(0, NULL);
    struct promise *p, *r;

    p = promise_stream_push_wait(s, weft_num(1));
    assert_pending(p);
    take_value(promise_stream_peek(s), 1);
    take_value(promise_stream_get(s), 1);
    take_value(p, 0);
    r = promise_stream_get(s);
    push(s, 2);
    take_value(r, 2);
    cr_assert_eq(promise_stream_push(s, weft_num(3)), -ENOBUFS);
    cr_assert_eq(promise_stream_resize(s, 1), 0);
    push(s, 3);
    p = promise_stream_push_wait(s, weft_num(4));
    cr_assert_eq(promise_stream_resize(s, 2), 0);
    take_value(p, 0);
    take_values(promise_stream_get_available(s, 10), "3 4");
    promise_stream_unref(s);
    return NULL;
}

Test(promise_stream, bounds_of_nothing_and_resizing)
{
    run_promises(rendezvous_body);
}

static struct promise *bounded_more_body(void)
{
    struct promise_stream *s = promise_stream_create_bounded(1, NULL);
    struct promise *p, *r;

    r = promise_stream_nget(s, 3); /* more than there is room for */
    take_value(promise_stream_push_wait(s, weft_num(1)), 0);
    take_value(promise_stream_push_wait(s, weft_num(2)), 0);
    take_value(promise_stream_push_wait(s, weft_num(3)), 0);
    take_values(r, "1 2 3");
    push(s, 4);
    p = promise_stream_push_wait(s, weft_num(5));
    take_values(promise_stream_npeek(s, 1), "4");
    assert_pending(p); /* that needed no room */
    take_values(promise_stream_npeek(s, 2), "4 5");
    take_value(p, 0);
    promise_stream_unref(s);
    return NULL;
}

Test(promise_stream, a_reader_of_more_than_the_bound_is_served)
{
    run_promises(bounded_more_body);
}

/* ---- other reads ---- */

static struct promise *peek_body(void)
{
    struct promise_stream *s = promise_stream_create(NULL);
    struct promise *a, *b, *c, *d;

    a = promise_stream_peek(s);
    b = promise_stream_get(s);
    c = promise_stream_peek(s);
    d = promise_stream_get(s);
    push(s, 1);
    take_value(a, 1);
    take_value(b, 1);
    assert_pending(c); /* a get in its place would take the next */
    push(s, 2);
    take_value(c, 2);
    take_value(d, 2);
    push(s, 3);
    push(s, 4);
    take_value(promise_stream_peek(s), 3);
    take_values(promise_stream_npeek(s, 2), "3 4");
    a = promise_stream_npeek(s, 3);
    assert_pending(a);
    take_value(promise_stream_get(s), 3); /* lookers hold up nobody */
    push(s, 5);
    push(s, 6);
    take_values(a, "4 5 6");
    a = promise_stream_npeek(s, 9);
    promise_stream_close(s);
    take_values(a, "4 5 6");
    take_values(promise_stream_npeek(s, 9), "4 5 6");
    promise_stream_unref(s);
    return NULL;
}

Test(promise_stream, peek_and_npeek_leave_elements)
{
    run_promises(peek_body);
}

static struct promise *nget_body(void)
{
    struct promise_stream *s = promise_stream_create(NULL);
    struct promise *a, *b, *c;

    take_values(promise_stream_nget(s, 0), "");
    a = promise_stream_get(s);
    b = promise_stream_nget(s, 3);
    c = promise_stream_get(s);
    for (int i = 1; i <= 4; i++)
        push(s, i);
    take_value(a, 1);
    take_values(b, "2 3 4"); /* successive elements, whoever else reads */
    assert_pending(c);
    push(s, 5);
    take_value(c, 5);

    a = promise_stream_nget(s, 3);
    b = promise_stream_get(s);
    push(s, 6);
    push(s, 7);
    cr_assert_eq(promise_stream_available(s), 0); /* they are spoken for */
    assert_pending(b);
    promise_cancel(a);
    take_error(a, -ECANCELED);
    take_value(b, 6); /* nothing is lost by that */
    take_value(promise_stream_get(s), 7);

    a = promise_stream_nget(s, 3);
    push(s, 8);
    promise_stream_close(s);
    take_values(a, "8");
    take_values(promise_stream_nget(s, 3), "");
    promise_stream_unref(s);
    return NULL;
}

Test(promise_stream, nget_takes_successive_elements)
{
    run_promises(nget_body);
}

static bool below(union weft_value value, void *ctx)
{
    note_number(value.num);
    return value.num < *(int *)ctx;
}

static struct promise *while_body(void)
{
    struct promise_stream *s = promise_stream_create(NULL);
    struct promise *a, *b, *c;
    int limit = 3, other = 100;

    push(s, 1);
    push(s, 2);
    push(s, 3);
    take_values(promise_stream_get_while(s, below, &limit), "1 2");
    assert_trace("1 2 3 ");
    take_value(promise_stream_get(s), 3);
    a = promise_stream_get_while(s, below, &limit);
    b = promise_stream_get(s);
    push(s, 2);
    assert_trace("2 ");
    push(s, 4);
    assert_trace("4 ");
    take_values(a, "2");
    take_value(b, 4);
    a = promise_stream_nget(s, 2);
    b = promise_stream_get_while(s, below, &other);
    c = promise_stream_get(s);
    push(s, 5);
    assert_trace("");
    promise_cancel(a); /* now the tests of the next run, with the callbacks */
    assert_trace("5 ");
    take_error(a, -ECANCELED);
    assert_pending(b);
    promise_cancel(b);
    take_error(b, -ECANCELED);
    take_value(c, 5);
    a = promise_stream_get_while(s, below, &other);
    push(s, 6);
    promise_stream_close(s);
    take_values(a, "6");
    take_values(promise_stream_get_while(s, below, &other), "");
    promise_stream_unref(s);
    return NULL;
}

Test(promise_stream, get_while_stops_before_the_first_that_fails)
{
    run_promises(while_body);
}

static struct promise_stream *nested;
static struct promise *nested_read;

static bool meddle(union weft_value value, void *ctx)
{
    (void)ctx;
    if (value.num == 1) {
        push(nested, 2);
        promise_unref(promise_stream_peek(nested));
    } else if (value.num == 2) {
        promise_cancel(nested_read);
    } else {
        promise_stream_unref(nested);
        nested = NULL;
    }
    return true;
}

static struct promise *meddle_body(void)
{
    nested = promise_stream_create(NULL);
    nested_read = promise_stream_get_while(nested, meddle, NULL);
    push(nested, 1);
    take_error(nested_read, -ECANCELED);
    take_values(promise_stream_get_available(nested, 9), "1 2");
    nested_read = promise_stream_get_while(nested, meddle, NULL);
    push(nested, 3);
    take_error(nested_read, -ENODATA);
    return NULL;
}

Test(promise_stream, a_test_may_do_anything_to_the_stream)
{
    run_promises(meddle_body);
}

static struct promise *available_body(void)
{
    struct promise_stream *s = promise_stream_create(NULL);
    struct promise *a;

    take_values(promise_stream_get_available(s, 5), "");
    for (int i = 1; i <= 5; i++)
        push(s, i);
    take_values(promise_stream_get_available(s, 2), "1 2");
    take_values(promise_stream_get_available(s, SIZE_MAX), "3 4 5");
    push(s, 6);
    push(s, 7);
    take_value(promise_stream_last_new(s), 7);
    a = promise_stream_last_new(s);
    assert_pending(a);
    push(s, 8);
    take_value(a, 8);
    push(s, 9);
    promise_stream_junk_available(s);
    cr_assert_eq(promise_stream_available(s), 0);
    promise_stream_unref(s);
    return NULL;
}

Test(promise_stream, what_is_available_is_read_without_waiting)
{
    run_promises(available_body);
}

static struct promise *junk_body(void)
{
    struct promise_stream *s = promise_stream_create(NULL);
    struct promise *a, *b;

    push(s, 1);
    push(s, 2);
    take_value(promise_stream_junk(s), 0);
    take_value(promise_stream_get(s), 2);
    a = promise_stream_njunk(s, 2);
    b = promise_stream_is_empty(s);
    push(s, 3);
    push(s, 4);
    take_value(a, 0);
    assert_pending(b);
    push(s, 5);
    take_value(b, 0);
    take_value(promise_stream_is_empty(s), 0);
    take_value(promise_stream_get(s), 5);
    a = promise_stream_is_empty(s);
    b = promise_stream_junk(s);
    promise_stream_close(s);
    take_value(a, 1);
    take_value(b, 0);
    take_value(promise_stream_is_empty(s), 1);
    promise_stream_unref(s);
    return NULL;
}

Test(promise_stream, junk_and_is_empty)
{
    run_promises(junk_body);
}

static struct promise *clone_body(void)
{
    struct promise_stream *s = promise_stream_create(NULL), *t;
    struct promise *a;

    push(s, 1);
    push(s, 2);
    take_value(promise_stream_get(s), 1);
    t = promise_stream_clone(s);
    push(s, 3);
    take_value(promise_stream_get(s), 2);
    take_value(promise_stream_get(s), 3);
    a = promise_stream_get(s);
    take_values(promise_stream_get_available(t, 9), "2 3");
    push(t, 4); /* the source is one */
    take_value(a, 4);
    take_value(promise_stream_get(t), 4);
    promise_stream_unref(s);
    push(t, 5);
    promise_stream_close(t);
    take_values(promise_stream_collect(t), "5");

    s = from();
    t = promise_stream_clone(s);
    take_value(promise_stream_get(s), 1);
    take_value(promise_stream_get(t), 1);
    source_waits = promise_create();
    a = promise_stream_get(t);
    answer(-EIO);
    take_error(a, -EIO);
    promise_stream_unref(s);
    promise_stream_unref(t);
    return NULL;
}

Test(promise_stream, a_clone_has_its_own_position)
{
    run_promises(clone_body);
}

/* ---- built of others ---- */

static int twice(union weft_value in, void *ctx, union weft_value *out)
{
    (void)ctx;
    if (in.num == 13)
        return -EDOM;
    *out = weft_num(in.num * 2);
    return 0;
}

static struct promise *paused_twice(union weft_value value, void *ctx)
{
    struct promise *p = promise_pause(), *q;

    (void)ctx;
    q = promise_bind(p, (promise_bind_fn *)ctx, (void *)(intptr_t)value.num);
    return q;
}

static struct promise *double_of_ctx(union weft_value value, void *ctx)
{
    (void)value;
    return promise_fulfilled(weft_num((intptr_t)ctx * 2));
}

static bool odd(union weft_value value, void *ctx)
{
    (void)ctx;
    return value.num % 2 != 0;
}

static struct promise *odd_twice(union weft_value value, void *ctx)
{
    (void)ctx;
    return value.num % 2 != 0 ? promise_fulfilled(weft_num(value.num * 2))
                              : promise_rejected(-ENOMSG);
}

static struct promise *map_body(void)
{
    struct promise_stream *up = promise_stream_create(NULL), *s;
    struct promise *p;

    take_values(promise_stream_collect(promise_stream_map(numbers(1, 3), twice, NULL)), "2 4 6");
    take_values(promise_stream_collect(promise_stream_filter(numbers(1, 7), odd, NULL)), "1 3 5 7");
    take_values(promise_stream_collect(promise_stream_filter_map(numbers(1, 5), odd_twice, NULL)),
                "2 6 10");
    s = promise_stream_map(promise_stream_ref(up), twice, NULL);
    p = promise_stream_get(s);
    push(up, 13);
    take_error(p, -EDOM);
    push(up, 4);
    take_value(promise_stream_get(s), 8); /* usable as before */
    p = promise_stream_get(s);
    promise_stream_unref(s); /* its read in the stream before is canceled */
    take_error(p, -ENODATA);
    push(up, 5);
    take_value(promise_stream_get(up), 5);

    s = promise_stream_filter(promise_stream_ref(up), odd, NULL);
    p = promise_stream_get(s);
    push(up, 2);
    push(up, 4);
    assert_pending(p);
    push(up, 5);
    take_value(p, 5);
    p = promise_stream_get(s);
    promise_stream_close(up);
    take_error(p, -ENODATA);
    promise_stream_unref(s);
    promise_stream_unref(up);
    return NULL;
}

Test(promise_stream, map_filter_and_filter_map)
{
    run_promises(map_body);
}

static struct promise *check_doubles(union weft_value value, void *ctx)
{
    struct promise_values *values = value.ptr;

    (void)ctx;
    cr_assert_eq(values->count, 4);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(values->value[i].num, 2 * (i + 1));
    promise_values_destroy(values);
    return promise_fulfilled(weft_num(0));
}

static struct promise *map_wait_body(void)
{
    struct promise_stream *s =
        promise_stream_map_wait(numbers(1, 4), paused_twice, (void *)(uintptr_t)double_of_ctx);

    return promise_bind(promise_stream_collect(s), check_doubles, NULL);
}

Test(promise_stream, map_wait_waits)
{
    run_promises(map_wait_body);
}

static struct promise *append_body(void)
{
    struct promise_stream *streams = promise_stream_create(NULL), *a = promise_stream_create(NULL),
                          *s;
    struct promise *p;

    take_values(promise_stream_collect(promise_stream_append(numbers(1, 2), numbers(3, 4))),
                "1 2 3 4");
    take_values(promise_stream_collect(promise_stream_append(numbers(1, 0), numbers(3, 4))), "3 4");
    for (int i = 1; i <= 3; i++)
        cr_assert_eq(promise_stream_push(streams, weft_ptr(numbers(i, 2 * i))), 0);
    promise_stream_close(streams);
    take_values(promise_stream_collect(promise_stream_concat(streams)), "1 2 2 3 4 3 4 5 6");
    s = promise_stream_append(promise_stream_ref(a), numbers(8, 8));
    p = promise_stream_get(s);
    push(a, 7);
    take_value(p, 7);
    p = promise_stream_get(s);
    promise_stream_close(a);
    take_value(p, 8);
    take_error(promise_stream_get(s), -ENODATA);
    promise_stream_unref(s);
    promise_stream_unref(a);
    return NULL;
}

Test(promise_stream, append_and_concat)
{
    run_promises(append_body);
}

static struct promise *choose_body(void)
{
    struct promise_stream *in[] = {promise_stream_create(NULL), promise_stream_create(NULL),
                                   promise_stream_create(NULL)};
    struct promise_stream *s, *held[3];
    struct promise *p;

    for (int i = 0; i < 3; i++)
        held[i] = promise_stream_ref(in[i]);
    s = promise_stream_choose(in, 3);
    p = promise_stream_get(s);
    push(held[1], 1);
    take_value(p, 1);
    push(held[2], 2);
    push(held[0], 3);
    take_value(promise_stream_get(s), 2); /* in turn, beginning after the last */
    take_value(promise_stream_get(s), 3);
    promise_stream_close(held[1]); /* dropped */
    p = promise_stream_get(s);
    assert_pending(p);
    promise_stream_close(held[0]);
    push(held[2], 4);
    take_value(p, 4);
    promise_stream_close(held[2]);
    take_error(promise_stream_get(s), -ENODATA);
    promise_stream_unref(s);
    for (int i = 0; i < 3; i++)
        promise_stream_unref(held[i]);

    held[0] = promise_stream_create(NULL);
    in[0] = promise_stream_ref(held[0]);
    s = promise_stream_choose(in, 1);
    p = promise_stream_get(s);
    promise_stream_unref(s);
    take_error(p, -ENODATA);
    push(held[0], 5); /* its read was canceled */
    take_value(promise_stream_get(held[0]), 5);
    promise_stream_unref(held[0]);
    s = promise_stream_choose(NULL, 0);
    take_error(promise_stream_get(s), -ENODATA);
    promise_stream_unref(s);
    return NULL;
}

Test(promise_stream, choose_drops_streams_that_have_ended)
{
    run_promises(choose_body);
}

static struct promise *step_waits;

static struct promise *visit(union weft_value value, void *ctx)
{
    (void)ctx;
    note_number(value.num);
    if (value.num == 13)
        return promise_rejected(-EDOM);
    return step_waits != NULL ? promise_ref(step_waits) : promise_fulfilled(weft_num(0));
}

static struct promise *add(union weft_value state, union weft_value value, void *ctx)
{
    (void)ctx;
    return promise_fulfilled(weft_num(state.num + value.num));
}

static struct promise *nodata(union weft_value value, void *ctx)
{
    (void)value;
    (void)ctx;
    return promise_rejected(-ENODATA);
}

static struct promise *iter_body(void)
{
    struct promise_stream *s;
    struct promise *p;

    step_waits = NULL;
    take_value(promise_stream_iter(numbers(1, 3), visit, NULL), 0);
    assert_trace("1 2 3 ");
    take_value(promise_stream_fold(numbers(1, 4), add, weft_num(100), NULL), 110);
    take_error(promise_stream_iter(numbers(12, 14), visit, NULL), -EDOM);
    assert_trace("12 13 ");
    take_error(promise_stream_iter(numbers(1, 1), nodata, NULL),
               -ENODATA); /* not the stream's end */

    s = promise_stream_create(NULL);
    p = promise_stream_iter(promise_stream_ref(s), visit, NULL);
    step_waits = promise_create();
    push(s, 1);
    push(s, 2);
    assert_trace("1 "); /* one after the other */
    promise_resolve(step_waits, weft_num(0));
    promise_unref(step_waits);
    step_waits = promise_create_task();
    assert_trace("2 ");
    push(s, 3);
    assert_trace("3 ");
    promise_cancel(p);
    take_error(p, -ECANCELED);
    assert_error(step_waits, -ECANCELED);
    promise_unref(step_waits);
    step_waits = NULL;
    p = promise_stream_iter(promise_stream_ref(s), visit, NULL);
    promise_cancel(p);
    take_error(p, -ECANCELED);
    push(s, 4);
    take_value(promise_stream_get(s), 4);
    p = promise_stream_collect(promise_stream_ref(s));
    push(s, 5);
    push(s, 6);
    assert_pending(p);
    promise_stream_close(s);
    take_values(p, "5 6");
    promise_stream_unref(s);
    take_error(promise_stream_iter(NULL, visit, NULL), -EINVAL);
    take_error(promise_stream_collect(promise_stream_map(NULL, twice, NULL)), -EINVAL);
    take_error(promise_stream_get(NULL), -EINVAL);
    return NULL;
}

Test(promise_stream, iter_fold_and_collect_are_serial)
{
    run_promises(iter_body);
}

static struct promise *take_box(union weft_value value, void *ctx)
{
    (void)ctx;
    note_number(unboxed(value.ptr));
    return promise_fulfilled(weft_num(0));
}

static struct promise *iter_owned_body(void)
{
    struct promise_stream *s = promise_stream_create(destroy_box);
    struct promise *p;

    promise_stream_push(s, weft_ptr(boxed(1)));
    p = promise_stream_iter(promise_stream_ref(s), take_box, NULL);
    promise_stream_push(s, weft_ptr(boxed(2)));
    promise_stream_push(s, weft_ptr(boxed(3)));
    promise_stream_close(s);
    take_value(p, 0);
    promise_stream_unref(s);
    assert_trace("1 2 3 ");
    cr_assert_eq(destroyed, 0); /* the callback has taken them */
    return NULL;
}

Test(promise_stream, iter_hands_ownership_over)
{
    run_promises(iter_owned_body);
}

/* ---- size ---- */

static int count_up(void *ctx, union weft_value *out)
{
    int64_t *left = ctx;

    *out = weft_num(1);
    return (*left)-- > 0 ? 0 : -ENODATA;
}

static struct promise *long_body(void)
{
    int64_t rounds = slow_tools() ? 20000 : 1000000, left = rounds;
    struct promise_stream *s = promise_stream_from_direct(count_up, &left, NULL, NULL);
    size_t before;

    s = promise_stream_filter(promise_stream_map(s, twice, NULL), odd, NULL); /* nothing passes */
    take_value(promise_stream_fold(s, add, weft_num(0), NULL), 0);
    left = rounds;
    s = promise_stream_from_direct(count_up, &left, NULL, NULL);
    take_value(promise_stream_fold(s, add, weft_num(0), NULL), rounds);

    s = promise_stream_create(NULL);
    before = promise__live();
    for (int64_t i = 0; i < rounds; i++) {
        struct promise *p = promise_stream_get(s);

        promise_cancel(p);
        promise_unref(p);
    }
    cr_assert_eq(promise__live(), before);
    for (int64_t i = 0; i < rounds; i++) {
        push(s, i);
        take_value(promise_stream_get(s), i);
    }
    cr_assert_eq(promise__live(), before);
    promise_stream_unref(s);
    return NULL;
}

Test(promise_stream, long_streams_need_no_stack_and_no_memory)
{
    run_promises(long_body);
}

static struct promise *many_readers_body(void)
{
    int count = slow_tools() ? 2000 : 100000;
    struct promise_stream *s = from();
    struct promise *first;

    source_waits = promise_create();
    first = promise_stream_get(s);
    for (int i = 1; i < count; i++)
        promise_unref(promise_stream_get(s));
    calls = -count;
    answer(1);
    take_value(first, 1);
    cr_assert_eq(calls, -1);
    promise_stream_unref(s);
    return NULL;
}

Test(promise_stream, many_readers_are_served_in_a_loop)
{
    run_promises(many_readers_body);
}

static struct promise *no_memory_body(void)
{
    struct promise_stream *s = promise_stream_create(NULL);

    promise__fail_after(0);
    cr_assert_eq(promise_stream_push(s, weft_num(INT64_MAX)), -ENOMEM);
    cr_assert_null(promise_stream_create(NULL));
    promise__fail_after(SIZE_MAX);
    push(s, 2);
    promise__fail_after(0);
    take_value(promise_stream_get(s), 2);
    take_error(promise_stream_get(s), -ENOMEM);
    take_error(promise_stream_nget(s, 2), -ENOMEM);
    promise__fail_after(SIZE_MAX);
    for (size_t i = 0; i < 12; i++) {
        struct promise *p;

        push(s, 3);
        promise__fail_after(i);
        p = promise_stream_collect(promise_stream_filter(promise_stream_ref(s), odd, NULL));
        promise__fail_after(SIZE_MAX);
        promise_cancel(p);
        promise_unref(p);
        promise_stream_junk_available(s);
    }
    promise_stream_unref(s);
    return NULL;
}

Test(promise_stream, without_memory_nothing_is_lost)
{
    run_promises(no_memory_body);
}

static struct promise *abandoned_main(void *arg)
{
    struct promise_stream *s = promise_stream_create(destroy_box);

    (void)arg;
    (void)!promise_stream_push(s, weft_ptr(boxed(1)));
    promise_unref(promise_stream_collect(promise_stream_filter(promise_stream_ref(s), odd, NULL)));
    promise_unref(promise_stream_get_while(s, odd, NULL));
    return promise_fulfilled(weft_num(0));
}

Test(promise_stream, the_runtimes_end_frees_what_is_left)
{
    struct weft_options options = setup_options(&setups[0]);

    cr_assert_eq(promise_run(abandoned_main, NULL, &options, NULL), 0);
}

/* ---- sources that let go, and memory that ends ---- */

static struct promise_stream *dropped;
static struct promise *given;

static struct promise *drops_its_stream(void *ctx)
{
    (void)ctx;
    promise_stream_unref(dropped);
    return promise_ref(given);
}

static struct promise *drop_body(void)
{
    given = promise_fulfilled(weft_num(1));
    dropped = promise_stream_from(drops_its_stream, NULL, NULL);
    take_value(promise_stream_get(dropped), 1);
    for (int i = 0; i < 2; i++) {
        given = promise_create_task();
        dropped = promise_stream_from(drops_its_stream, NULL, NULL);
        take_error(i == 0 ? promise_stream_get(dropped) : promise_stream_is_empty(dropped),
                   -ENODATA);
        take_error(given, -ECANCELED);
    }
    return NULL;
}

Test(promise_stream, a_source_may_drop_its_stream)
{
    run_promises(drop_body);
}

static struct promise *choose_no_memory_body(void)
{
    struct promise_stream *a = promise_stream_create(NULL), *b = promise_stream_create(NULL);
    bool waits = false;

    for (size_t i = 0; !waits; i++) {
        struct promise_stream *both[2] = {promise_stream_ref(a), promise_stream_ref(b)};
        struct promise_stream *s = promise_stream_choose(both, 2);
        struct promise *p;

        promise__fail_after(i);
        p = promise_stream_get(s);
        promise__fail_after(SIZE_MAX);
        waits = promise_state(p) == PROMISE_PENDING;
        if (!waits) {
            take_error(p, -ENOMEM);
            p = promise_stream_get(s); /* it stays usable, and nothing is lost */
        }
        push(b, (int64_t)i);
        take_value(p, (int64_t)i);
        promise_stream_unref(s);
    }
    promise_stream_unref(a);
    promise_stream_unref(b);
    return NULL;
}

Test(promise_stream, a_choice_without_memory_fails)
{
    run_promises(choose_no_memory_body);
}

static struct promise *sum_in_box(union weft_value state, union weft_value value, void *ctx)
{
    int64_t sum = unboxed(state.ptr) + value.num;

    (void)ctx;
    if (value.num < 0)
        return promise_rejected((int)value.num);
    return promise_fulfilled_owned(boxed(sum), destroy_box);
}

static struct promise *fold_state_body(void)
{
    struct promise_stream *s = promise_stream_create(NULL);
    struct promise *p =
        promise_stream_fold(promise_stream_ref(s), sum_in_box, weft_ptr(boxed(0)), NULL);
    union weft_value value = weft_ptr(NULL);

    push(s, 1);
    push(s, 2);
    promise_cancel(p); /* while the fold has a state */
    take_error(p, -ECANCELED);
    cr_assert_eq(destroyed, 1);

    p = promise_stream_fold(promise_stream_ref(s), sum_in_box, weft_ptr(boxed(0)), NULL);
    push(s, 1);
    push(s, -EIO); /* this step has it */
    take_error(p, -EIO);
    cr_assert_eq(destroyed, 1);

    push(s, 1); /* these are there already */
    push(s, 2);
    p = promise_stream_fold(promise_stream_ref(s), sum_in_box, weft_ptr(boxed(0)), NULL);
    push(s, 3);
    push(s, 4);
    cr_assert_eq(promise_stream_close(s), 0);
    cr_assert_eq(promise_poll(p, &value, NULL), PROMISE_FULFILLED);
    cr_assert_eq(*(int64_t *)value.ptr, 10);
    cr_assert_eq(destroyed, 1);
    promise_unref(p);
    cr_assert_eq(destroyed, 2, "the last state is the result's");
    promise_stream_unref(s);
    destroyed = 0;
    return NULL;
}

Test(promise_stream, a_fold_owns_its_state)
{
    run_promises(fold_state_body);
}

static struct promise *of_values_body(void)
{
    union weft_value values[8];

    for (size_t fail = 0;; fail++) {
        struct promise_stream *s;

        for (size_t i = 0; i < 8; i++)
            values[i] = weft_ptr(boxed((int64_t)i));
        destroyed = 0;
        promise__fail_after(fail);
        s = promise_stream_of_values(values, 8, destroy_box);
        promise__fail_after(SIZE_MAX);
        cr_assert_eq(destroyed, s == NULL ? 8 : 0);
        if (s == NULL)
            continue;
        promise_stream_unref(s);
        cr_assert_eq(destroyed, 8);
        return NULL;
    }
}

Test(promise_stream, of_values_takes_all_values_or_destroys_them)
{
    run_promises(of_values_body);
}

/* ---- random use against a model ---- */

#define MODEL 64

/* A reader of the model: what it wants, and what it must get. */
struct expected {
    struct promise *promise;
    size_t wanted;
    bool takes, several;
};

static struct model {
    int64_t element[MODEL];
    size_t elements;
    struct expected reader[MODEL];
    size_t readers;
} model;

static uint64_t seed;

static unsigned random_below(unsigned limit)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % limit;
}

static void check_reader(const struct expected *reader)
{
    char text[512] = "";

    if (!reader->several) {
        take_value(reader->promise, model.element[0]);
        return;
    }
    for (size_t i = 0; i < reader->wanted; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", i > 0 ? " " : "",
                 (int)model.element[i]);
    take_values(reader->promise, text);
}

static void remove_reader(size_t i)
{
    memmove(&model.reader[i], &model.reader[i + 1],
            (model.readers - i - 1) * sizeof model.reader[0]);
    model.readers--;
}

static void remove_elements(size_t count)
{
    memmove(model.element, model.element + count,
            (model.elements - count) * sizeof model.element[0]);
    model.elements -= count;
}

/* Those who can be served have been; all others wait. */
static void settle_model(void)
{
    for (size_t i = 0; i < model.readers;) {
        const struct expected *reader = &model.reader[i];

        if (reader->wanted <= model.elements) {
            check_reader(reader);
            if (reader->takes)
                remove_elements(reader->wanted);
            remove_reader(i);
        } else if (reader->takes) {
            break;
        } else {
            i++;
        }
    }
    for (size_t i = 0; i < model.readers; i++)
        assert_pending(model.reader[i].promise);
}

static void read_randomly(struct promise_stream *s)
{
    struct expected reader = {NULL, 1, random_below(2) != 0, random_below(2) != 0};

    if (model.readers == MODEL)
        return;
    if (reader.several) {
        reader.wanted = random_below(5);
        reader.promise = reader.takes ? promise_stream_nget(s, reader.wanted)
                                      : promise_stream_npeek(s, reader.wanted);
    } else {
        reader.promise = reader.takes ? promise_stream_get(s) : promise_stream_peek(s);
    }
    model.reader[model.readers++] = reader;
}

static struct promise *random_body(void)
{
    int rounds = slow_tools() ? 20000 : 300000;
    struct promise_stream *s = promise_stream_create(NULL);
    int64_t next = 0;

    memset(&model, 0, sizeof model);
    seed = 1;
    for (int round = 0; round < rounds; round++) {
        unsigned what = random_below(10);

        if (what < 4 && model.elements < MODEL) {
            push(s, ++next);
            model.element[model.elements++] = next;
        } else if (what < 8) {
            read_randomly(s);
        } else if (model.readers > 0) {
            size_t i = random_below((unsigned)model.readers);

            promise_cancel(model.reader[i].promise);
            take_error(model.reader[i].promise, -ECANCELED);
            remove_reader(i);
        }
        settle_model();
    }
    while (model.readers > 0) {
        promise_unref(model.reader[0].promise);
        remove_reader(0);
    }
    promise_stream_unref(s);
    return NULL;
}

Test(promise_stream, random_use_agrees_with_a_model)
{
    run_promises(random_body);
}
