/* Events and signals. */
#include "promise_support.h"

#include <weft/promise_stream.h>
#include <weft/react.h>

#include <criterion/criterion.h>
#include <string.h>

static void send(struct promise_event *e, int64_t value)
{
    cr_assert_eq(promise_event_send(e, weft_num(value)), 0);
}

static void set(struct promise_signal *s, int64_t value)
{
    cr_assert_eq(promise_signal_set(s, weft_num(value)), 0);
}

static void noted(union weft_value value, void *name)
{
    note(name);
    note_number(value.num);
}

/* Notes the occurrences. */
static struct promise_event *see(struct promise_event *e, const char *name)
{
    struct promise_event *seen =
        promise_event_observe(promise_event_ref(e), noted, (void *)(uintptr_t)name);

    cr_assert_not_null(seen);
    return seen;
}

static struct promise_event *see_changes(struct promise_signal *s, const char *name)
{
    return promise_event_observe(promise_signal_changes(promise_signal_ref(s)), noted,
                                 (void *)(uintptr_t)name);
}

static int plus(union weft_value in, void *ctx, union weft_value *out)
{
    *out = weft_num(in.num + (intptr_t)ctx);
    return 0;
}

static int fails_on_13(union weft_value in, void *ctx, union weft_value *out)
{
    (void)ctx;
    if (in.num == 13)
        return -EDOM;
    if (in.num == 14)
        return 1;
    *out = in;
    return 0;
}

static bool odd(union weft_value value, void *ctx)
{
    (void)ctx;
    return value.num % 2 != 0;
}

static int sum(union weft_value state, union weft_value in, void *ctx, union weft_value *out)
{
    (void)ctx;
    *out = weft_num(state.num + in.num);
    return 0;
}

static int lift_calls;

/* a * 100 + b */
static int pair(union weft_value a, union weft_value b, void *ctx, union weft_value *out)
{
    (void)ctx;
    lift_calls++;
    *out = weft_num(a.num * 100 + b.num);
    return 0;
}

static void hook(int err, void *ctx)
{
    note(ctx);
    note_number(err);
}

/* ---- events ---- */

static struct promise *events_body(void)
{
    struct promise_event *e = promise_event_create(NULL), *seen[4];

    seen[0] = see(e, "e");
    seen[1] = promise_event_observe(
        promise_event_map(promise_event_ref(e), plus, (void *)(intptr_t)10), noted, "m");
    seen[2] =
        promise_event_observe(promise_event_filter(promise_event_ref(e), odd, NULL), noted, "f");
    seen[3] = promise_event_observe(
        promise_event_fold(promise_event_ref(e), sum, weft_num(100), NULL), noted, "s");
    send(e, 1);
    assert_trace("e1 m11 f1 s101 ");
    send(e, 2);
    assert_trace("e2 m12 s103 ");
    promise_event_unref(seen[1]);
    send(e, 3);
    assert_trace("e3 f3 s106 "); /* a dropped node is not updated */
    promise_event_unref(seen[0]);
    promise_event_unref(seen[2]);
    promise_event_unref(seen[3]);
    send(e, 4);
    assert_trace("");
    promise_event_unref(e);
    return NULL;
}

Test(promise_react, map_filter_fold_and_dropping)
{
    run_promises(events_body);
}

static struct promise *several_body(void)
{
    struct promise_event *e = promise_event_create(NULL), *other = promise_event_create(NULL);
    struct promise_event *plus10 =
        promise_event_map(promise_event_ref(e), plus, (void *)(intptr_t)10);
    struct promise_event *list[3] = {promise_event_ref(other), promise_event_ref(plus10),
                                     promise_event_ref(e)};
    struct promise_event *merged[3] = {promise_event_ref(other), promise_event_ref(plus10),
                                       promise_event_ref(e)};
    struct promise_event *a, *b;

    a = promise_event_observe(promise_event_select(list, 3), noted, "s");
    b = promise_event_observe(promise_event_merge(merged, 3, sum, weft_num(1000), NULL), noted,
                              "m");
    send(e, 1);
    assert_trace("s11 m1012 "); /* the first in the list; all of them, once */
    send(other, 7);
    assert_trace("s7 m1007 ");
    promise_event_unref(a);
    promise_event_unref(b);
    promise_event_unref(plus10);
    promise_event_unref(other);
    promise_event_unref(e);
    return NULL;
}

Test(promise_react, select_and_merge_see_simultaneous_occurrences)
{
    run_promises(several_body);
}

static struct promise *failing_body(void)
{
    struct promise_event *e = promise_event_create(NULL), *seen;

    promise_set_error_hook(hook, "hook");
    seen = promise_event_observe(promise_event_filter_map(promise_event_ref(e), fails_on_13, NULL),
                                 noted, "e");
    send(e, 13);
    assert_trace("hook-33 ");
    send(e, 14);
    assert_trace("");
    send(e, 15);
    assert_trace("e15 ");
    promise_set_error_hook(NULL, NULL);
    promise_event_unref(seen);
    promise_event_unref(e);
    return NULL;
}

Test(promise_react, a_failing_function_makes_no_occurrence)
{
    run_promises(failing_body);
}

static struct promise *next_body(void)
{
    struct promise_event *e = promise_event_create(NULL);
    struct promise *a = promise_event_next(e), *b = promise_event_next(e), *c;

    promise_cancel(b);
    take_error(b, -ECANCELED);
    send(e, 1);
    take_value(a, 1);
    send(e, 2);
    c = promise_event_next(e);
    assert_pending(c);
    send(e, 3);
    take_value(c, 3);
    c = promise_event_next(e);
    promise_event_unref(e);
    take_error(c, -ENODATA);
    take_error(promise_event_next(NULL), -EINVAL);
    return NULL;
}

Test(promise_react, next_is_the_next_occurrence)
{
    run_promises(next_body);
}

/* ---- signals ---- */

static struct promise *signals_body(void)
{
    struct promise_signal *s = promise_signal_create(weft_num(1), NULL, NULL), *m;
    struct promise_event *seen;

    m = promise_signal_map(promise_signal_ref(s), plus, (void *)(intptr_t)10, NULL);
    cr_assert_eq(promise_signal_value(m).num, 11);
    seen = see_changes(m, "m");
    set(s, 2);
    cr_assert_eq(promise_signal_value(s).num, 2);
    cr_assert_eq(promise_signal_value(m).num, 12);
    set(s, 2); /* no change, no step */
    assert_trace("m12 ");
    promise_event_unref(seen);
    promise_signal_unref(m);
    promise_signal_unref(s);
    return NULL;
}

Test(promise_react, signals_have_values_and_change)
{
    run_promises(signals_body);
}

static struct promise *diamond_body(void)
{
    struct promise_signal *s = promise_signal_create(weft_num(1), NULL, NULL), *a, *b, *c, *d;
    struct promise_event *seen;

    a = promise_signal_map(promise_signal_ref(s), plus, (void *)(intptr_t)1, NULL);
    b = promise_signal_map(promise_signal_ref(a), plus, (void *)(intptr_t)1, NULL);
    c = promise_signal_map(promise_signal_ref(b), plus, (void *)(intptr_t)1, NULL);
    d = promise_signal_lift2(promise_signal_ref(c), promise_signal_ref(s), pair, NULL, NULL);
    cr_assert_eq(promise_signal_value(d).num, 401);
    seen = see_changes(d, "d");
    lift_calls = 0;
    set(s, 2);
    assert_trace("d502 "); /* never 402 or 501 */
    cr_assert_eq(lift_calls, 1);
    promise_event_unref(seen);
    promise_signal_unref(a);
    promise_signal_unref(b);
    promise_signal_unref(c);
    promise_signal_unref(d);
    promise_signal_unref(s);
    return NULL;
}

Test(promise_react, a_diamond_sees_one_consistent_update)
{
    run_promises(diamond_body);
}

static bool same_tens(union weft_value a, union weft_value b)
{
    return a.num / 10 == b.num / 10;
}

static struct promise *equal_body(void)
{
    struct promise_signal *s = promise_signal_create(weft_num(1), NULL, NULL), *m, *n;
    struct promise_event *seen;

    m = promise_signal_map(promise_signal_ref(s), plus, NULL, same_tens);
    n = promise_signal_map(promise_signal_ref(m), plus, NULL, NULL);
    seen = see_changes(n, "n");
    set(s, 5);
    assert_trace("");
    cr_assert_eq(promise_signal_value(m).num, 1);
    set(s, 15);
    assert_trace("n15 ");
    promise_event_unref(seen);
    promise_signal_unref(m);
    promise_signal_unref(n);
    promise_signal_unref(s);
    return NULL;
}

Test(promise_react, equality_stops_changes)
{
    run_promises(equal_body);
}

static struct promise *hold_body(void)
{
    struct promise_event *e = promise_event_create(destroy_box), *seen;
    struct promise_signal *s;

    s = promise_signal_hold(promise_event_ref(e), weft_ptr(NULL), NULL);
    cr_assert_null(promise_signal_value(s).ptr);
    cr_assert_eq(promise_event_send(e, weft_ptr(boxed(1))), 0);
    cr_assert_eq(destroyed, 0); /* the signal has it */
    cr_assert_eq(*(int64_t *)promise_signal_value(s).ptr, 1);
    cr_assert_eq(promise_event_send(e, weft_ptr(boxed(2))), 0);
    cr_assert_eq(destroyed, 1);
    promise_signal_unref(s);
    cr_assert_eq(destroyed, 2);
    cr_assert_eq(promise_event_send(e, weft_ptr(boxed(3))), 0); /* for nobody */
    cr_assert_eq(destroyed, 3);
    seen = promise_signal_changes(promise_signal_hold(e, weft_num(0), NULL));
    promise_event_unref(seen);
    return NULL;
}

Test(promise_react, hold_owns_what_the_event_sent)
{
    run_promises(hold_body);
}

static int make_box(union weft_value in, void *ctx, union weft_value *out)
{
    (void)ctx;
    *out = weft_ptr(boxed(in.num));
    return 0;
}

static bool equal_boxes(union weft_value a, union weft_value b)
{
    return *(int64_t *)a.ptr == *(int64_t *)b.ptr;
}

static struct promise *own_body(void)
{
    struct promise_event *e = promise_event_create(NULL), *boxes;
    struct promise_signal *s = promise_signal_create(weft_num(1), NULL, NULL), *m;
    struct promise *next;
    union weft_value value;

    boxes = promise_event_own(promise_event_map(promise_event_ref(e), make_box, NULL), destroy_box);
    send(e, 1);
    cr_assert_eq(destroyed, 1);
    next = promise_event_next(boxes);
    send(e, 2);
    cr_assert_eq(destroyed, 1); /* shared with whoever waited */
    cr_assert_eq(promise_poll(next, &value, NULL), PROMISE_FULFILLED);
    cr_assert_eq(*(int64_t *)value.ptr, 2);
    promise_unref(next);
    cr_assert_eq(destroyed, 2);
    promise_event_unref(boxes);
    promise_event_unref(e);

    m = promise_signal_own(promise_signal_map(promise_signal_ref(s), make_box, NULL, equal_boxes),
                           destroy_box);
    set(s, 2);
    cr_assert_eq(destroyed, 3);
    promise_signal_unref(m);
    cr_assert_eq(destroyed, 4);
    promise_signal_unref(s);
    s = promise_signal_create(weft_ptr(boxed(1)), equal_boxes, destroy_box);
    cr_assert_eq(promise_signal_set(s, weft_ptr(boxed(1))), 0);
    cr_assert_eq(destroyed, 5); /* equal: destroyed at once */
    cr_assert_eq(promise_signal_set(s, weft_ptr(boxed(2))), 0);
    cr_assert_eq(destroyed, 6);
    promise_signal_unref(s);
    cr_assert_eq(destroyed, 7);
    return NULL;
}

Test(promise_react, values_are_destroyed_when_nobody_has_them)
{
    run_promises(own_body);
}

/* ---- dynamic graphs ---- */

static struct promise *switch_body(void)
{
    struct promise_signal *s = promise_signal_create(weft_num(1), NULL, NULL), *deep = s, *which,
                          *sw, *both;
    struct promise_event *seen;

    promise_signal_ref(deep);
    for (int i = 0; i < 10; i++)
        deep =
            promise_signal_map(deep, plus, (void *)(intptr_t)1, NULL); /* rank 10, value s + 10 */
    which = promise_signal_create(weft_ptr(s), NULL, NULL);
    sw = promise_signal_switch(promise_signal_ref(which), NULL);
    both = promise_signal_lift2(promise_signal_ref(sw), promise_signal_ref(s), pair, NULL, NULL);
    seen = see_changes(both, "b");
    set(s, 2);
    assert_trace("b202 ");
    cr_assert_eq(promise_signal_set(which, weft_ptr(deep)), 0); /* ranks rise */
    assert_trace("b1202 ");
    lift_calls = 0;
    set(s, 3);
    assert_trace("b1303 ");
    cr_assert_eq(lift_calls, 1);
    promise_signal_unref(deep);
    cr_assert_eq(promise_signal_set(which, weft_ptr(s)), 0);
    assert_trace("b303 ");
    promise_event_unref(seen);
    promise_signal_unref(both);
    promise_signal_unref(sw);
    promise_signal_unref(which);
    promise_signal_unref(s);
    return NULL;
}

Test(promise_react, ranks_follow_a_switch)
{
    run_promises(switch_body);
}

/* Chooses between two signals by the value of a third, in the same step as they change. */
static struct promise_signal *choices[2];

static int choose(union weft_value in, void *ctx, union weft_value *out)
{
    (void)ctx;
    *out = weft_ptr(choices[in.num % 2]);
    return 0;
}

static struct promise *switch_in_step_body(void)
{
    struct promise_signal *s = promise_signal_create(weft_num(0), NULL, NULL), *sw;
    struct promise_event *seen;

    choices[0] = promise_signal_map(promise_signal_ref(s), plus, (void *)(intptr_t)100, NULL);
    choices[1] = promise_signal_ref(s);
    for (int i = 0; i < 5; i++)
        choices[1] = promise_signal_map(choices[1], plus, (void *)(intptr_t)200, NULL);
    sw = promise_signal_switch(promise_signal_map(promise_signal_ref(s), choose, NULL, NULL), NULL);
    seen = see_changes(sw, "w");
    cr_assert_eq(promise_signal_value(sw).num, 100);
    set(s, 1); /* the new one isn't up to date when it is switched to */
    assert_trace("w1001 ");
    set(s, 2);
    assert_trace("w102 ");
    set(s, 3);
    assert_trace("w1003 ");
    promise_event_unref(seen);
    promise_signal_unref(sw);
    promise_signal_unref(choices[0]);
    promise_signal_unref(choices[1]);
    promise_signal_unref(s);
    return NULL;
}

Test(promise_react, a_switch_within_a_step_sees_the_new_value)
{
    run_promises(switch_in_step_body);
}

static struct promise *event_switch_body(void)
{
    struct promise_event *a = promise_event_create(NULL), *b = promise_event_create(NULL);
    struct promise_event *changes = promise_event_create(NULL), *seen;

    seen = promise_event_observe(
        promise_event_switch(promise_event_ref(a), promise_event_ref(changes)), noted, "s");
    send(a, 1);
    send(b, 2);
    assert_trace("s1 ");
    promise_event_send(changes, weft_ptr(b));
    send(a, 3);
    send(b, 4);
    assert_trace("s4 ");
    promise_event_unref(b); /* held by the switch */
    promise_event_send(changes, weft_ptr(a));
    send(a, 5);
    assert_trace("s5 ");
    promise_event_unref(seen);
    promise_event_unref(changes);
    promise_event_unref(a);
    return NULL;
}

Test(promise_react, an_event_can_be_switched)
{
    run_promises(event_switch_body);
}

static struct promise *loop_body(void)
{
    struct promise_signal *zero = promise_signal_create(weft_num(0), NULL, NULL);
    struct promise_signal *which = promise_signal_create(weft_ptr(zero), NULL, NULL), *sw, *next;

    promise_set_error_hook(hook, "hook");
    sw = promise_signal_switch(promise_signal_ref(which), NULL);
    next = promise_signal_map(promise_signal_ref(sw), plus, (void *)(intptr_t)1, NULL);
    cr_assert_eq(promise_signal_set(which, weft_ptr(next)), 0);
    assert_trace("hook-40 "); /* ELOOP */
    cr_assert_eq(promise_signal_value(sw).num, 0);
    cr_assert_eq(promise_signal_set(which, weft_ptr(sw)), 0);
    assert_trace("hook-40 ");
    set(zero, 5);
    cr_assert_eq(promise_signal_set(which, weft_ptr(zero)), 0);
    cr_assert_eq(promise_signal_value(next).num, 6);
    promise_set_error_hook(NULL, NULL);
    promise_signal_unref(next);
    promise_signal_unref(sw);
    promise_signal_unref(which);
    promise_signal_unref(zero);
    return NULL;
}

Test(promise_react, a_loop_is_refused)
{
    run_promises(loop_body);
}

static struct promise_event *made_inside, *inside_source, *inside_seen;

static int make_inside(union weft_value in, void *ctx, union weft_value *out)
{
    (void)ctx;
    if (made_inside == NULL) {
        made_inside =
            promise_event_map(promise_event_ref(inside_source), plus, (void *)(intptr_t)50);
        inside_seen = see(made_inside, "i");
    }
    *out = in;
    return 0;
}

static struct promise *inside_body(void)
{
    struct promise_event *m;

    made_inside = NULL;
    inside_source = promise_event_create(NULL);
    m = promise_event_map(promise_event_ref(inside_source), make_inside, NULL);
    send(inside_source, 1);
    assert_trace("i51 "); /* it takes part in the step it was made in */
    promise_event_unref(m);
    promise_event_unref(inside_seen);
    promise_event_unref(made_inside);
    promise_event_unref(inside_source);
    return NULL;
}

Test(promise_react, a_node_made_within_a_step_takes_part)
{
    run_promises(inside_body);
}

static struct promise_event *victim;

static int drop_victim(union weft_value in, void *ctx, union weft_value *out)
{
    (void)ctx;
    promise_event_unref(victim);
    victim = NULL;
    *out = in;
    return 0;
}

static struct promise *drop_body(void)
{
    struct promise_event *e = promise_event_create(NULL), *killer, *late;

    killer = promise_event_map(promise_event_ref(e), drop_victim, NULL);
    late = promise_event_map(promise_event_map(promise_event_ref(e), plus, NULL), plus, NULL);
    victim = promise_event_observe(late, noted, "v");
    send(e, 1);
    assert_trace("");
    promise_event_unref(killer);
    promise_event_unref(e);
    return NULL;
}

Test(promise_react, a_node_dropped_within_a_step_is_not_updated)
{
    run_promises(drop_body);
}

/* ---- steps ---- */

static struct promise_event *target;
static int nested_result;

static int send_inside(union weft_value in, void *ctx, union weft_value *out)
{
    (void)ctx;
    cr_assert(promise_react_updating());
    nested_result = promise_event_send(target, weft_num(99));
    *out = in;
    return 0;
}

static int send_in_callback(void *ctx)
{
    (void)ctx;
    nested_result = promise_event_send(target, weft_num(98));
    return 0;
}

static int resolve_inside(union weft_value in, void *ctx, union weft_value *out)
{
    promise_resolve(ctx, weft_num(0));
    *out = in;
    return 0;
}

static struct promise *nested_body(void)
{
    struct promise_event *e = promise_event_create(NULL), *m, *seen;
    struct promise *p = promise_create();

    target = promise_event_create(NULL);
    seen = see(target, "t");
    m = promise_event_map(promise_event_ref(e), send_inside, NULL);
    send(e, 1);
    cr_assert_eq(nested_result, -EDEADLK);
    promise_event_unref(m);
    m = promise_event_map(promise_event_ref(e), resolve_inside, p);
    promise_on_termination(p, send_in_callback, NULL);
    nested_result = 0;
    send(e, 2);
    cr_assert_eq(nested_result, -EDEADLK); /* also what a node function causes */
    cr_assert(!promise_react_updating());
    assert_trace("");
    promise_unref(p);
    promise_event_unref(m);
    promise_event_unref(seen);
    promise_event_unref(target);
    promise_event_unref(e);
    return NULL;
}

Test(promise_react, a_step_within_a_step_is_refused)
{
    run_promises(nested_body);
}

static void count_down(union weft_value value, void *ctx)
{
    cr_assert(!promise_react_updating());
    if (value.num > 0)
        cr_assert_eq(promise_event_send(ctx, weft_num(value.num - 1)), 0);
    note("<");
    note_number(value.num);
}

static struct promise *queued_body(void)
{
    struct promise_event *e = promise_event_create(NULL), *seen[3];

    seen[0] = see(e, "a");
    seen[1] = promise_event_observe(promise_event_ref(e), count_down, e);
    seen[2] = see(e, "b");
    send(e, 2);
    assert_trace("a2 <2 b2 a1 <1 b1 a0 <0 b0 "); /* one step after the other */
    for (int i = 0; i < 3; i++)
        promise_event_unref(seen[i]);
    promise_event_unref(e);
    return NULL;
}

Test(promise_react, a_send_out_of_an_effect_is_the_next_step)
{
    run_promises(queued_body);
}

static void count_silently(union weft_value value, void *ctx)
{
    if (value.num > 0)
        promise_event_send(ctx, weft_num(value.num - 1));
    else
        note("end");
}

static struct promise *long_body(void)
{
    int rounds = slow_tools() ? 20000 : 1000000;
    struct promise_event *e = promise_event_create(NULL), *seen;
    size_t before;

    seen = promise_event_observe(promise_event_ref(e), count_silently, e);
    before = promise__live();
    send(e, rounds);
    assert_trace("end");
    for (int i = 0; i < rounds; i++) {
        struct promise *next = promise_event_next(e);

        promise_cancel(next);
        promise_unref(next);
        promise_event_unref(promise_event_map(promise_event_ref(e), plus, NULL));
    }
    cr_assert_eq(promise__live(), before);
    promise_event_unref(seen);
    promise_event_unref(e);
    return NULL;
}

Test(promise_react, steps_need_no_stack_and_no_memory)
{
    run_promises(long_body);
}

static struct promise *deep_body(void)
{
    int count = slow_tools() ? 2000 : 100000;
    struct promise_event *e = promise_event_create(NULL), *m = promise_event_ref(e), *seen;

    for (int i = 0; i < count; i++)
        m = promise_event_map(m, plus, (void *)(intptr_t)1);
    seen = promise_event_observe(m, noted, "d");
    send(e, 0);
    note_number(-count);
    promise_event_unref(seen); /* all of it, without recursion */
    if (slow_tools())
        assert_trace("d2000 -2000 ");
    else
        assert_trace("d100000 -100000 ");
    promise_event_unref(e);
    return NULL;
}

Test(promise_react, deep_graphs_need_no_stack)
{
    run_promises(deep_body);
}

/* ---- streams and time ---- */

static struct promise *to_stream_body(void)
{
    struct promise_event *e = promise_event_create(NULL);
    struct promise_stream *s = promise_event_to_stream(promise_event_ref(e)), *t;
    struct promise *p;

    send(e, 1);
    send(e, 2);
    take_values(promise_stream_get_available(s, 9), "1 2");
    p = promise_stream_get(s);
    t = promise_stream_clone(s);
    send(e, 3);
    take_value(p, 3);
    take_value(promise_stream_get(t), 3);
    cr_assert_eq(promise_stream_push(s, weft_num(4)), -EINVAL);
    cr_assert_eq(promise_stream_close(s), -EINVAL);
    promise_stream_unref(s);
    send(e, 4);
    take_value(promise_stream_get(t), 4);
    promise_stream_unref(t); /* nobody: the node goes */
    send(e, 5);
    promise_event_unref(e);
    e = promise_event_create(NULL);
    s = promise_event_to_stream(e); /* the stream holds it */
    promise_stream_unref(s);
    cr_assert_null(promise_event_to_stream(NULL));
    return NULL;
}

Test(promise_react, events_become_streams)
{
    run_promises(to_stream_body);
}

static struct promise_stream *feeding;
static struct promise_event *fed, *fed_seen;

static struct promise *then_stop(union weft_value value, void *ctx)
{
    (void)value;
    (void)ctx;
    assert_trace("f3 ");
    promise_event_unref(fed_seen);
    promise_event_unref(fed);
    promise_stream_push(feeding, weft_num(4));
    assert_trace("");
    take_value(promise_stream_get(feeding), 4); /* the reading has stopped */
    promise_stream_unref(feeding);
    return promise_fulfilled(weft_num(0));
}

static struct promise *after_pause(union weft_value value, void *ctx)
{
    (void)value;
    (void)ctx;
    assert_trace("f1 f2 ");
    promise_stream_push(feeding, weft_num(3));
    return promise_bind(promise_pause(), then_stop, NULL);
}

static struct promise *of_stream_body(void)
{
    feeding = promise_stream_create(NULL);
    promise_stream_push(feeding, weft_num(1));
    promise_stream_push(feeding, weft_num(2));
    fed = promise_stream_to_event(promise_stream_ref(feeding));
    fed_seen = see(fed, "f");
    cr_assert_eq(promise_event_send(fed, weft_num(9)), -EINVAL); /* not primitive */
    assert_trace("");
    return promise_bind(promise_pause(), after_pause, NULL);
}

Test(promise_react, streams_become_events)
{
    run_promises(of_stream_body);
}

static struct promise *source_error(void *ctx)
{
    (void)ctx;
    return promise_rejected(-EIO);
}

static struct promise *check_error(union weft_value value, void *ctx)
{
    (void)value;
    (void)ctx;
    assert_trace("hook-5 ");
    promise_set_error_hook(NULL, NULL);
    promise_event_unref(fed);
    return promise_fulfilled(weft_num(0));
}

static struct promise *of_stream_error_body(void)
{
    promise_set_error_hook(hook, "hook");
    fed = promise_stream_to_event(promise_stream_from(source_error, NULL, NULL));
    promise_event_unref(promise_stream_to_event(promise_stream_create(NULL))); /* dropped at once */
    return promise_bind(promise_pause(), check_error, NULL);
}

Test(promise_react, a_streams_error_ends_the_event)
{
    run_promises(of_stream_error_body);
}

static struct promise *pace_promise;

static struct promise *pace(void *ctx)
{
    (void)ctx;
    note("p ");
    return promise_ref(pace_promise);
}

static void go_on(void)
{
    struct promise *p = pace_promise;

    pace_promise = promise_create();
    promise_resolve(p, weft_num(0));
    promise_unref(p);
}

static struct promise *limit_body(void)
{
    struct promise_event *e = promise_event_create(destroy_box), *seen;

    promise_event_unref(e);
    e = promise_event_create(NULL);
    pace_promise = promise_create();
    seen = promise_event_observe(promise_event_limit(promise_event_ref(e), pace, NULL), noted, "l");
    send(e, 1);
    assert_trace("p l1 ");
    send(e, 2);
    send(e, 3);
    send(e, 4);
    assert_trace("");
    go_on();
    assert_trace("p l4 "); /* all but the last are dropped */
    go_on();
    assert_trace("");
    send(e, 5);
    assert_trace("p l5 ");
    send(e, 6);
    promise_event_unref(seen); /* with one delayed */
    go_on();
    assert_trace("");
    promise_unref(pace_promise);
    promise_event_unref(e);
    return NULL;
}

Test(promise_react, limit_drops_but_the_last)
{
    run_promises(limit_body);
}

static struct promise_event *coinciding;

static int push_in_callback(void *ctx)
{
    (void)ctx;
    send(coinciding, 8);
    return 0;
}

static struct promise *coincide_body(void)
{
    struct promise_event *seen;

    coinciding = promise_event_create(NULL);
    pace_promise = promise_create();
    seen = promise_event_observe(promise_event_limit(promise_event_ref(coinciding), pace, NULL),
                                 noted, "l");
    send(coinciding, 1);
    assert_trace("p l1 ");
    send(coinciding, 7);
    /* This callback runs before limit's own: its push finds the promise settled, the older one
     * waiting. */
    promise_on_termination(pace_promise, push_in_callback, NULL);
    go_on();
    assert_trace("p l8 ");
    send(coinciding, 9);
    assert_trace("");
    go_on();
    assert_trace("p l9 ");
    promise_event_unref(seen);
    promise_unref(pace_promise);
    promise_event_unref(coinciding);
    return NULL;
}

Test(promise_react, limit_has_no_race_between_its_promise_and_a_push)
{
    run_promises(coincide_body);
}

static struct promise *null_body(void)
{
    cr_assert_null(promise_event_map(NULL, plus, NULL));
    cr_assert_null(promise_event_filter(promise_event_map(NULL, plus, NULL), odd, NULL));
    cr_assert_null(promise_signal_map(NULL, plus, NULL, NULL));
    cr_assert_null(promise_signal_lift2(promise_signal_create(weft_num(0), NULL, NULL), NULL, pair,
                                        NULL, NULL));
    cr_assert_null(promise_signal_switch(NULL, NULL));
    cr_assert_null(promise_stream_to_event(NULL));
    cr_assert_eq(promise_event_send(NULL, weft_num(0)), -EINVAL);
    cr_assert_eq(promise_signal_set(NULL, weft_num(0)), -EINVAL);
    promise_event_unref(NULL);
    promise_signal_unref(NULL);
    return NULL;
}

Test(promise_react, null_makes_null)
{
    run_promises(null_body);
}

static struct promise *no_memory_body(void)
{
    struct promise_event *e = promise_event_create(NULL), *m, *seen;

    promise_set_error_hook(hook, "hook");
    m = promise_event_map(promise_event_ref(e), plus, NULL);
    seen = see(m, "m");
    promise__fail_after(0);
    cr_assert_eq(promise_event_send(e, weft_num(1)), -ENOMEM);
    cr_assert_null(promise_event_map(promise_event_ref(e), plus, NULL));
    cr_assert_null(promise_event_fold(promise_event_ref(e), sum, weft_num(0), NULL));
    promise__fail_after(1);
    send(e, 1); /* the map's value can't be made */
    promise__fail_after(SIZE_MAX);
    assert_trace("hook-12 ");
    send(e, 2);
    assert_trace("m2 ");
    promise_set_error_hook(NULL, NULL);
    promise_event_unref(seen);
    promise_event_unref(m);
    promise_event_unref(e);
    return NULL;
}

Test(promise_react, without_memory_the_graph_stays_consistent)
{
    run_promises(no_memory_body);
}

/* ---- random graphs against a recomputation ---- */

#define INPUTS 4
#define NODES  40

/* A node's value is a function of its operands' values; one kind chooses between two of them. */
static struct random_node {
    struct promise_signal *signal;
    int kind, a, b, c;
} random_nodes[NODES];

static int64_t inputs[INPUTS];
static uint64_t seed;
static int updates[NODES];

static unsigned random_below(unsigned limit)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % limit;
}

static int64_t recompute(int i)
{
    const struct random_node *n = &random_nodes[i];

    switch (n->kind) {
    case 0:
        return inputs[i];
    case 1:
        return recompute(n->a) / 2;
    case 2:
        return (recompute(n->a) * 3 + recompute(n->b)) % 101;
    default:
        return recompute(recompute(n->a) % 2 != 0 ? n->b : n->c);
    }
}

static int halve(union weft_value in, void *ctx, union weft_value *out)
{
    int i = (int)(intptr_t)ctx;

    cr_assert_eq(in.num, recompute(random_nodes[i].a), "not up to date");
    updates[i]++;
    *out = weft_num(in.num / 2);
    return 0;
}

static int mix(union weft_value a, union weft_value b, void *ctx, union weft_value *out)
{
    int i = (int)(intptr_t)ctx;

    cr_assert_eq(a.num, recompute(random_nodes[i].a), "not up to date");
    cr_assert_eq(b.num, recompute(random_nodes[i].b), "not up to date");
    updates[i]++;
    *out = weft_num((a.num * 3 + b.num) % 101);
    return 0;
}

static int pick(union weft_value in, void *ctx, union weft_value *out)
{
    const struct random_node *n = ctx;

    *out = weft_ptr(random_nodes[in.num % 2 != 0 ? n->b : n->c].signal);
    return 0;
}

static struct promise_signal *operand(int i)
{
    return promise_signal_ref(random_nodes[i].signal);
}

static void make_random_graph(void)
{
    for (int i = 0; i < NODES; i++) {
        struct random_node *n = &random_nodes[i];
        void *ctx = (void *)(intptr_t)i;

        n->kind = i < INPUTS ? 0 : 1 + (int)random_below(3);
        if (i > 0) {
            n->a = (int)random_below((unsigned)i);
            n->b = (int)random_below((unsigned)i);
            n->c = (int)random_below((unsigned)i);
        }
        if (n->kind == 0) {
            inputs[i] = 0;
            n->signal = promise_signal_create(weft_num(0), NULL, NULL);
        } else if (n->kind == 1) {
            n->signal = promise_signal_map(operand(n->a), halve, ctx, NULL);
        } else if (n->kind == 2) {
            n->signal = promise_signal_lift2(operand(n->a), operand(n->b), mix, ctx, NULL);
        } else {
            n->signal =
                promise_signal_switch(promise_signal_map(operand(n->a), pick, n, NULL), NULL);
        }
    }
}

static struct promise *random_body(void)
{
    int graphs = slow_tools() ? 5 : 100;

    seed = 1;
    for (int graph = 0; graph < graphs; graph++) {
        make_random_graph();
        for (int round = 0; round < 50; round++) {
            int i = (int)random_below(INPUTS);

            memset(updates, 0, sizeof updates);
            inputs[i] = random_below(50);
            set(random_nodes[i].signal, inputs[i]);
            for (int j = 0; j < NODES; j++) {
                cr_assert_eq(promise_signal_value(random_nodes[j].signal).num, recompute(j));
                cr_assert_leq(updates[j], 1);
            }
        }
        for (int i = 0; i < NODES; i++) /* in some order */
            promise_signal_unref(random_nodes[(i * 7 + 3) % NODES].signal);
    }
    return NULL;
}

Test(promise_react, random_graphs_agree_with_a_recomputation)
{
    run_promises(random_body);
}

static struct promise *abandoned_main(void *arg)
{
    struct promise_event *e = promise_event_create(destroy_box);

    (void)arg;
    (void)promise_signal_value(promise_signal_hold(promise_event_ref(e), weft_num(0), NULL));
    pace_promise = promise_create();
    (void)!promise_event_observe(promise_event_limit(promise_event_ref(e), pace, NULL), noted, "x");
    promise_event_send(e, weft_ptr(boxed(1)));
    promise_event_send(e, weft_ptr(boxed(2)));
    (void)!promise_event_to_stream(promise_event_ref(e));
    (void)!promise_stream_to_event(promise_stream_create(NULL));
    return promise_fulfilled(weft_num(0));
}

Test(promise_react, the_runtimes_end_frees_what_is_left)
{
    struct weft_options options = setup_options(&setups[0]);

    for (int i = 0; i < 2; i++)
        cr_assert_eq(promise_run(abandoned_main, NULL, &options, NULL), 0);
}

/* ---- the first value of map and lift2 ---- */

static struct promise_signal *first_source;
static int first_sets;

static int set_source(union weft_value in, void *ctx, union weft_value *out)
{
    (void)ctx;
    first_sets = promise_signal_set(first_source, weft_num(in.num + 1));
    *out = in;
    return 0;
}

static int boxed_value(union weft_value in, void *ctx, union weft_value *out)
{
    ++*(int *)ctx;
    *out = weft_ptr(boxed(in.num));
    return 0;
}

static struct promise *first_body(void)
{
    struct promise_signal *mapped;
    int calls = 0;

    first_source = promise_signal_create(weft_num(1), NULL, NULL);
    mapped = promise_signal_map(promise_signal_ref(first_source), set_source, NULL, NULL);
    cr_assert_eq(first_sets, -EDEADLK);
    cr_assert_eq(promise_signal_value(mapped).num, 1);
    promise_signal_unref(mapped);
    /* without memory for the node nothing is made that could be lost */
    for (size_t i = 0; i < 3; i++) {
        promise__fail_after(i);
        mapped = promise_signal_map(promise_signal_ref(first_source), boxed_value, &calls, NULL);
        promise__fail_after(SIZE_MAX);
        if (mapped != NULL)
            break;
        cr_assert_eq(calls, 0);
    }
    cr_assert_eq(calls, 1);
    promise_signal_unref(promise_signal_own(mapped, destroy_box));
    cr_assert_eq(destroyed, 1);
    promise_signal_unref(first_source);
    return NULL;
}

Test(promise_react, the_first_value_is_made_as_within_a_step)
{
    run_promises(first_body);
}

static int keep_box(union weft_value state, union weft_value in, void *ctx, union weft_value *out)
{
    (void)in;
    (void)ctx;
    *out = state.ptr != NULL ? state : weft_ptr(boxed(7));
    return 0;
}

static struct promise *merge_body(void)
{
    struct promise_event *source = promise_event_create(NULL), *both[2], *merged;

    for (int i = 0; i < 2; i++)
        both[i] = promise_event_ref(source);
    merged = promise_event_own(promise_event_merge(both, 2, keep_box, weft_ptr(NULL), NULL),
                               destroy_box);
    cr_assert_eq(promise_event_send(source, weft_num(1)), 0);
    cr_assert_eq(destroyed, 1);
    promise_event_unref(merged);
    promise_event_unref(source);
    return NULL;
}

Test(promise_react, a_merge_may_give_its_state_back)
{
    run_promises(merge_body);
}
