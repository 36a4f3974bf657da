/* The rules of docs/promises.md, one test each. */
#include "test_promise.h"

#include <errno.h>

static void say_state(struct promise *p)
{
    say("%s ", is_pending(p) ? "?" : promise_state(p) == PROMISE_FULFILLED ? "ok" : "err");
}

static int tell_state(void *ctx)
{
    say_state(ctx);
    return 0;
}

/* ---- state and settling ---- */

PROMISE_TEST(rules, r01_a_settled_promise_never_changes)
{
    struct promise *p = promise_create();

    cr_pending(p);
    cr_assert_eq(promise_resolve(p, weft_num(1)), 0);
    cr_assert_eq(promise_resolve(p, weft_num(2)), -EALREADY);
    cr_assert_eq(promise_reject(p, -EIO), -EALREADY);
    cr_value(p, 1);
    promise_unref(p);
}

PROMISE_TEST(rules, r02_waiters_cancelers_and_a_way_to_cancel)
{
    struct promise *wait = promise_create(), *task = promise_create_task();
    struct promise *follower = promise_bind(promise_ref(task), tell_bind, "f");

    promise_cancel(wait);
    cr_pending(wait);
    promise_on_cancel(task, tell_done, "cancel");
    promise_on_termination(task, tell_done, "end");
    promise_cancel(follower);
    told("cancel end ");
    cr_rejected(follower, -ECANCELED);
    promise_unref(follower);
    promise_unref(wait);
    promise_unref(task);
}

PROMISE_TEST(rules, r03_the_loop_is_at_rest_between_callbacks)
{
    struct promise *p = promise_create();

    promise_on_success(p, tell_success, "p");
    promise_resolve_later(p, weft_num(1)); /* at rest: not later at all */
    told("p(1) ");
    cr_assert_eq(promise__tls->depth, 0);
    promise_unref(p);
}

PROMISE_TEST(rules, r04_the_state_is_set_before_any_waiter_runs)
{
    struct promise *p = promise_create();

    promise_on_termination(p, tell_state, p);
    promise_resolve(p, weft_num(1));
    told("ok ");
    promise_unref(p);
}

struct pair {
    struct promise *a, *b;
};

static int resolve_b_later(void *ctx)
{
    struct pair *pair = ctx;

    promise_resolve_later(pair->b, weft_num(2));
    say_state(pair->b);
    say("returned ");
    return 0;
}

PROMISE_TEST(rules, r05_later_defers_only_inside_a_callback)
{
    struct pair pair = {promise_create(), promise_create()};

    promise_on_success(pair.b, tell_success, "b");
    promise_on_termination(pair.a, tell_done, "second");
    promise_on_termination(pair.a, resolve_b_later, &pair);
    promise_resolve(pair.a, weft_num(1));
    told("ok returned second b(2) ");
    promise_unref(pair.a);
    promise_unref(pair.b);
}

static int resolve_b_now(void *ctx)
{
    promise_resolve(((struct pair *)ctx)->b, weft_num(2));
    say("returned ");
    return 0;
}

PROMISE_TEST(rules, r06_the_outermost_run_drains_what_was_deferred)
{
    struct pair inner = {promise_create(), promise_create()};
    struct pair outer = {promise_create(), promise_ref(inner.a)};

    promise_on_success(inner.b, tell_success, "deferred");
    promise_on_termination(inner.a, resolve_b_later, &inner);
    promise_on_termination(outer.a, tell_done, "last");
    promise_on_termination(outer.a, resolve_b_now, &outer);
    promise_resolve(outer.a, weft_num(1)); /* the nested resolve drains nothing */
    told("ok returned returned last deferred(2) ");
    promise_unref(inner.a);
    promise_unref(inner.b);
    promise_unref(outer.a);
    promise_unref(outer.b);
}

static int cancel_it(void *ctx)
{
    promise_cancel(ctx);
    return 0;
}

PROMISE_TEST(rules, r07_a_waiter_removed_before_its_turn_is_skipped)
{
    struct promise *p = promise_create();
    struct promise *q = promise_protected(promise_ref(p));

    promise_on_success(q, tell_success, "never");
    promise_on_termination(p, cancel_it, q); /* runs first, and takes q off p's list */
    promise_resolve(p, weft_num(1));
    told("");
    cr_rejected(q, -ECANCELED);
    promise_unref(p);
    promise_unref(q);
}

PROMISE_TEST(rules, r08_depth_first)
{
    struct promise *p = promise_create(), *q;

    promise_on_success(p, tell_success, "sibling");
    q = promise_bind(promise_bind(promise_ref(p), tell_bind, "first"), tell_bind, "its follower");
    promise_resolve(p, weft_num(1));
    told("first(1) its follower(1) sibling(1) ");
    promise_unref(p);
    promise_unref(q);
}

static int resolve_next(void *ctx)
{
    struct pair *pair = ctx;

    say("%d ", (int)promise__tls->depth);
    if (pair->b != NULL)
        promise_resolve(pair->b, weft_num(0));
    return 0;
}

PROMISE_TEST(rules, r09_no_depth_at_which_settling_is_deferred)
{
    enum { N = 60 };
    struct pair pair[N];
    char expected[8 * N] = "";

    for (int i = 0; i < N; i++)
        pair[i].a = promise_create();
    for (int i = 0; i < N; i++) {
        pair[i].b = i + 1 < N ? pair[i + 1].a : NULL;
        promise_on_termination(pair[i].a, resolve_next, &pair[i]);
        sprintf(expected + strlen(expected), "%d ", i + 1);
    }
    promise_resolve(pair[0].a, weft_num(0));
    told(expected);
    for (int i = 0; i < N; i++)
        promise_unref(pair[i].a);
}

/* ---- order ---- */

PROMISE_TEST(rules, r10_the_last_attached_runs_first)
{
    struct promise *p = promise_create_task();

    promise_on_success(p, tell_success, "1");
    promise_on_cancel(p, tell_done, "c1");
    promise_on_termination(p, tell_done, "2");
    promise_on_cancel(p, tell_done, "c2");
    promise_cancel(p);
    told("c2 c1 2 ");
    promise_unref(p);
}

PROMISE_TEST(rules, r11_merged_lists_outer_first)
{
    struct promise *p = promise_create(), *inner = promise_create();
    struct promise *outer = promise_bind(promise_ref(p), give_promise, inner);

    promise_on_success(inner, tell_success, "inner1");
    promise_on_success(outer, tell_success, "outer1");
    promise_on_success(inner, tell_success, "inner2");
    promise_on_success(outer, tell_success, "outer2");
    promise_resolve(p, weft_num(0));
    promise_on_success(inner, tell_success, "later1");
    promise_on_success(outer, tell_success, "later2");
    promise_resolve(inner, weft_num(5));
    told("later2(5) later1(5) outer2(5) outer1(5) inner2(5) inner1(5) ");
    cr_value(outer, 5);
    promise_unref(p);
    promise_unref(inner);
    promise_unref(outer);
}

PROMISE_TEST(rules, r12_cancel_callbacks_first_also_when_rejected_by_hand)
{
    struct promise *p = promise_create();

    promise_on_cancel(p, tell_done, "cancel");
    promise_on_failure(p, tell_failure, "fail");
    promise_reject(p, -ECANCELED);
    told("cancel fail!-125 ");
    promise_unref(p);
}

/* ---- at once, or attached ---- */

static int bind_in_the_gap(void *ctx)
{
    struct pair *pair = ctx;

    promise_resolve_later(pair->b, weft_num(2));
    promise_unref(promise_bind(promise_ref(pair->b), tell_bind, "gap"));
    return 0;
}

PROMISE_TEST(rules, r13_settled_operands_call_back_at_once)
{
    struct pair pair = {promise_create(), promise_create()};
    struct promise *q = promise_bind(promise_fulfilled(weft_num(1)), tell_bind, "bind");

    told("bind(1) ");
    cr_value(q, 1);
    promise_unref(q);
    promise_on_success(pair.b, tell_success, "queued");
    promise_on_termination(pair.a, bind_in_the_gap, &pair);
    promise_resolve(pair.a, weft_num(0));
    told("gap(2) queued(2) ");
    promise_unref(pair.a);
    promise_unref(pair.b);
}

static const struct weft_key key = {.name = "key"};

static int say_key(void *ctx)
{
    const char *bound = weft_get(&key);

    (void)ctx;
    say("%s ", bound != NULL ? bound : "none");
    return 0;
}

static struct promise *tell_key(union weft_value value, void *ctx)
{
    say_key(ctx);
    return promise_fulfilled(value);
}

static void attach_tell_key(void *ctx)
{
    struct pair *pair = ctx;

    pair->b = promise_bind(promise_ref(pair->a), tell_key, NULL);
    promise_on_cancel(pair->a, say_key, NULL);
}

PROMISE_TEST(rules, r14_pending_operands_get_a_waiter_that_remembers_local_values)
{
    struct pair pair = {promise_create(), NULL};

    promise_with_value(&key, "inside", attach_tell_key, &pair);
    cr_assert_null(weft_get(&key));
    promise_resolve(pair.a, weft_num(0));
    told("inside ");
    promise_unref(pair.a);
    promise_unref(pair.b);
}

static void resolve_with_key(void *ctx)
{
    promise_resolve(ctx, weft_num(0));
    say("%s ", (const char *)weft_get(&key));
}

PROMISE_TEST(rules, r15_local_values_are_put_back_around_callbacks)
{
    struct pair pair = {promise_create(), NULL};

    attach_tell_key(&pair);
    promise_with_value(&key, "resolver's", resolve_with_key, pair.a);
    told("none resolver's ");
    promise_unref(pair.a);
    promise_unref(pair.b);
    pair.a = promise_create_task();
    promise_with_value(&key, "inside", attach_tell_key, &pair);
    promise_cancel(pair.a);
    told("inside ");
    promise_unref(pair.a);
    promise_unref(pair.b);
}

static void tell_nested(void *ctx)
{
    say_key(NULL);
    if (ctx != NULL)
        promise_with_value(&key, ctx, tell_nested, NULL);
    say_key(NULL);
}

PROMISE_TEST(rules, r16_with_value_binds_for_the_call)
{
    promise_with_value(&key, "outer", tell_nested, "inner");
    say_key(NULL);
    told("outer inner inner outer none ");
}

static void handle_with_key(int err, void *ctx)
{
    (void)err;
    say_key(ctx);
}

static void dont_wait_inside(void *ctx)
{
    promise_dont_wait(promise_ref(ctx), handle_with_key, NULL);
}

PROMISE_TEST(rules, r17_the_handler_of_dont_wait_has_the_local_values_of_the_call)
{
    struct promise *p = promise_create();

    promise_with_value(&key, "call's", dont_wait_inside, p);
    promise_reject(p, -EIO);
    told("call's ");
    promise_unref(p);
}

/* ---- sequence ---- */

static struct promise *give_own_result(union weft_value value, void *ctx)
{
    (void)value;
    return promise_ref(*(struct promise **)ctx);
}

static struct promise *give_nothing(void *ctx)
{
    (void)ctx;
    return NULL;
}

PROMISE_TEST(rules, r18_the_result_is_canceled_through_the_operand)
{
    struct promise *task = promise_create_task(), *wait = promise_create();
    struct promise *q = promise_bind(promise_map(promise_ref(task), tell_map, "m"), tell_bind, "b");
    struct promise *r = promise_bind(promise_ref(wait), tell_bind, "b");

    promise_cancel(q);
    cr_rejected(task, -ECANCELED);
    cr_rejected(q, -ECANCELED);
    promise_cancel(r);
    cr_pending(r);
    told("");
    promise_unref(task);
    promise_unref(wait);
    promise_unref(q);
    promise_unref(r);
}

PROMISE_TEST(rules, r19_the_other_outcome_passes_through)
{
    struct promise *p = promise_create(), *ok = promise_create();
    struct promise *bound = promise_bind(promise_ref(p), tell_bind, "b");
    struct promise *mapped = promise_map(promise_ref(p), tell_map, "m");
    struct promise *caught = promise_catch(promise_ref(ok), tell_catch, "c");

    promise_reject(p, -EIO);
    promise_resolve(ok, weft_num(3));
    told("");
    cr_rejected(bound, -EIO);
    cr_rejected(mapped, -EIO);
    cr_value(caught, 3);
    promise_unref(p);
    promise_unref(ok);
    promise_unref(bound);
    promise_unref(mapped);
    promise_unref(caught);
}

PROMISE_TEST(rules, r20_what_the_callback_returns_is_the_result)
{
    struct promise *p = promise_create(), *pending = promise_create_task();
    struct promise *failed = promise_rejected(-EPERM), *self, *q, *r;

    q = promise_bind(promise_ref(p), give_promise, pending);
    r = promise_bind(promise_ref(p), give_promise, failed);
    promise_resolve(p, weft_num(0));
    cr_pending(q);
    cr_rejected(r, -EPERM);
    promise_cancel(q); /* one with the task now */
    cr_rejected(pending, -ECANCELED);
    cr_rejected(q, -ECANCELED);
    promise_unref(p);
    promise_unref(q);
    promise_unref(r);

    p = promise_create();
    self = promise_bind(promise_ref(p), give_own_result, &self);
    promise_resolve(p, weft_num(0));
    cr_pending(self);
    promise_unref(self);
    promise_unref(p);
    promise_unref(pending);
    promise_unref(failed);
}

static struct promise *merge_meanwhile(union weft_value value, void *ctx)
{
    struct pair *pair = ctx; /* a: resolving it makes us one with another promise */

    (void)value;
    promise_resolve(pair->a, weft_num(0));
    return promise_fulfilled(weft_num(9));
}

PROMISE_TEST(rules, r21_one_with_another_promise_while_the_callback_runs)
{
    struct promise *p = promise_create(), *trigger = promise_create();
    struct pair pair = {trigger, NULL};
    struct promise *q = promise_bind(promise_ref(p), merge_meanwhile, &pair);
    struct promise *outer = promise_bind(promise_ref(trigger), give_promise, q);

    promise_resolve(p, weft_num(0));
    cr_value(q, 9);
    cr_value(outer, 9);
    promise_unref(p);
    promise_unref(q);
    promise_unref(trigger);
    promise_unref(outer);
}

static struct promise *pause_again(union weft_value value, void *ctx)
{
    int *left = ctx;

    if (--*left == 0)
        return promise_fulfilled(value);
    return promise_bind(promise_pause(), pause_again, ctx);
}

PROMISE_TEST(rules, r22_a_loop_keeps_one_promise)
{
    int left = 1000;
    struct promise *q = promise_bind(promise_pause(), pause_again, &left);

    for (int i = 0; i < 999; i++) {
        promise_wakeup_paused();
        cr_assert_eq(promise__live(), 2);
    }
    promise_wakeup_paused();
    cr_value(q, 0);
    promise_unref(q);
}

PROMISE_TEST(rules, r23_finalize_is_a_bind_on_the_cleanup_for_either_outcome)
{
    struct promise *p = promise_create(), *f = promise_create(), *cleanup = promise_create();
    struct promise *q = promise_finalize(promise_ref(p), tell_thunk, "cleanup");
    struct promise *r = promise_finalize(promise_ref(f), tell_thunk, "cleanup");
    struct promise *s, *t;

    promise_resolve(p, weft_num(1));
    promise_reject(f, -EIO);
    told("cleanup cleanup ");
    cr_value(q, 1);
    cr_rejected(r, -EIO);
    s = promise_finalize(p, give_nothing, NULL);
    cr_rejected(s, -EINVAL); /* the cleanup returned NULL */
    promise_unref(q);
    promise_unref(r);
    promise_unref(s);
    t = promise_bind(promise_ref(cleanup), give_promise, f);
    promise_resolve(cleanup, weft_num(0));
    cr_rejected(t, -EIO);
    promise_unref(t);
    promise_unref(cleanup);
    promise_unref(f);
}

/* ---- many promises ---- */

static struct promise *with2(struct promise *(*combine)(struct promise *const[], size_t),
                             struct promise *a, struct promise *b)
{
    struct promise *const both[] = {promise_ref(a), promise_ref(b)};

    return combine(both, 2);
}

PROMISE_TEST(rules, r24_a_race_is_in_every_list_until_the_first)
{
    struct promise *a = promise_create(), *b = promise_create_task();
    struct promise *q = with2(promise_choose, a, b);

    promise_resolve(a, weft_num(1));
    cr_value(q, 1);
    cr_assert_null(b->waiters);
    promise_unref(q);
    promise_unref(a);
    a = promise_create();
    q = with2(promise_choose, a, b);
    promise_cancel(q);
    cr_rejected(b, -ECANCELED);
    cr_rejected(q, -ECANCELED);
    cr_pending(a);
    promise_unref(a);
    promise_unref(b);
    promise_unref(q);
}

PROMISE_TEST(rules, r25_what_each_race_does_with_the_first)
{
    struct promise *a = promise_create(), *b = promise_create_task(), *q, *r;
    const struct promise_values *values;
    const struct promise_split *split;

    q = with2(promise_pick, a, b);
    promise_on_termination(b, tell_state, q);
    promise_resolve(a, weft_num(1));
    told("? "); /* the loser's callbacks run before the result is settled */
    cr_rejected(b, -ECANCELED);
    cr_value(q, 1);
    promise_unref(q);
    promise_unref(a);
    promise_unref(b);

    a = promise_create();
    b = promise_create_task();
    q = with2(promise_nchoose, a, b);
    r = with2(promise_nchoose_split, a, b);
    promise_resolve(a, weft_num(1));
    values = (const void *)(intptr_t)value_of_promise(q);
    cr_assert_eq(values->count, 1);
    cr_assert_eq(values->value[0].num, 1);
    split = (const void *)(intptr_t)value_of_promise(r);
    cr_assert_eq(split->values.count, 1);
    cr_assert_eq(split->pending_count, 1);
    cr_assert_eq(split->pending[0], b);
    promise_unref(q);
    promise_unref(r);
    promise_unref(a);

    a = promise_create();
    q = with2(promise_npick, a, b);
    promise_resolve(a, weft_num(2));
    values = (const void *)(intptr_t)value_of_promise(q);
    cr_assert_eq(values->count, 1);
    cr_rejected(b, -ECANCELED);
    promise_unref(q);
    promise_unref(a);
    promise_unref(b);
}

PROMISE_TEST(rules, r26_with_operands_settled_at_the_call)
{
    struct promise *ok = promise_fulfilled(weft_num(1)), *bad = promise_rejected(-EIO);
    struct promise *task = promise_create_task(), *q;

    q = with2(promise_choose, ok, bad);
    cr_rejected(q, -EIO);
    promise_unref(q);
    q = with2(promise_choose, task, ok);
    cr_value(q, 1);
    cr_pending(task);
    promise_unref(q);
    q = with2(promise_pick, task, bad);
    cr_rejected(q, -EIO);
    cr_rejected(task, -ECANCELED);
    promise_unref(q);
    promise_unref(task);
    task = promise_create_task();
    q = with2(promise_pick, ok, task);
    cr_value(q, 1);
    cr_rejected(task, -ECANCELED);
    promise_unref(q);
    promise_unref(task);
    task = promise_create_task();
    {
        struct promise *const three[] = {promise_ref(task), promise_ref(task), promise_ref(ok)};

        q = promise_pick(three, 3); /* the second mention is found canceled */
    }
    cr_rejected(q, -ECANCELED);
    promise_unref(q);
    promise_unref(task);
    promise_unref(ok);
    promise_unref(bad);
}

PROMISE_TEST(rules, r27_no_operands)
{
    struct promise *(*const races[])(struct promise *const[], size_t) = {
        promise_choose, promise_pick, promise_nchoose, promise_npick, promise_nchoose_split};
    struct promise *q;

    for (size_t i = 0; i < sizeof races / sizeof *races; i++) {
        q = races[i](NULL, 0);
        cr_rejected(q, -EINVAL);
        promise_unref(q);
    }
    q = promise_join(NULL, 0);
    cr_value(q, 0);
    promise_unref(q);
    q = promise_all(NULL, 0);
    cr_assert_eq(((struct promise_values *)(intptr_t)value_of_promise(q))->count, 0);
    promise_unref(q);
}

PROMISE_TEST(rules, r28_join_waits_for_all_and_gives_the_first_error)
{
    struct promise *a = promise_create(), *b = promise_create(), *q, *r;

    q = with2(promise_join, a, b);
    r = with2(promise_all, a, b);
    promise_reject(b, -EIO);
    cr_pending(q);
    promise_reject(a, -EPERM);
    cr_rejected(q, -EIO);
    cr_rejected(r, -EIO);
    promise_unref(q);
    promise_unref(r);
    q = with2(promise_join, a, b); /* now the first in the list */
    cr_rejected(q, -EPERM);
    promise_unref(q);
    promise_unref(a);
    promise_unref(b);
    a = promise_create();
    q = promise_both(promise_ref(a), promise_ref(a));
    promise_resolve(a, weft_num(4));
    {
        const struct promise_values *pair = (const void *)(intptr_t)value_of_promise(q);

        cr_assert_eq(pair->count, 2);
        cr_assert_eq(pair->value[0].num + pair->value[1].num, 8);
    }
    promise_unref(q);
    promise_unref(a);
}

PROMISE_TEST(rules, r29_a_lost_race_leaves_nothing_behind)
{
    struct promise *stop = promise_create();

    for (int i = 0; i < 100; i++) {
        struct promise *work = promise_create(), *q = with2(promise_choose, stop, work);

        promise_resolve(work, weft_num(i));
        promise_unref(work);
        promise_unref(q);
        cr_assert_null(stop->waiters);
        cr_assert_eq(promise__live(), 1);
    }
    promise_unref(stop);
}

/* ---- cancel ---- */

PROMISE_TEST(rules, r30_all_tasks_are_canceled_before_any_callback_last_found_first)
{
    struct promise *a = promise_create_task(), *b = promise_create_task();
    struct promise *q = with2(promise_join, a, b);

    promise_on_termination(a, tell_state, b);
    promise_on_termination(a, tell_done, "a:");
    promise_on_termination(b, tell_state, a);
    promise_on_termination(b, tell_done, "b:");
    promise_cancel(q);
    told("b: err a: err ");
    promise_unref(a);
    promise_unref(b);
    promise_unref(q);
}

PROMISE_TEST(rules, r31_deferred_work_of_one_task_runs_before_the_next_tasks_callbacks)
{
    struct promise *a = promise_create_task(), *b = promise_create_task();
    struct pair later = {NULL, promise_create()};
    struct promise *q = with2(promise_join, a, b);

    promise_on_success(later.b, tell_success, "deferred");
    promise_on_termination(a, tell_done, "a");
    promise_on_termination(b, resolve_b_later, &later);
    promise_cancel(q);
    told("ok returned deferred(2) a ");
    promise_unref(a);
    promise_unref(b);
    promise_unref(later.b);
    promise_unref(q);
}

PROMISE_TEST(rules, r32_protected)
{
    struct promise *p = promise_create_task(), *q = promise_protected(promise_ref(p));
    struct promise *r = promise_protected(promise_ref(p));

    promise_cancel(q);
    cr_rejected(q, -ECANCELED);
    cr_pending(p);
    promise_resolve(p, weft_num(1));
    cr_value(r, 1);
    promise_unref(p);
    promise_unref(q);
    promise_unref(r);
}

PROMISE_TEST(rules, r33_no_cancel)
{
    struct promise *p = promise_create_task(), *q = promise_no_cancel(promise_ref(p));

    promise_cancel(q);
    cr_pending(q);
    cr_pending(p);
    promise_reject(p, -EIO);
    cr_rejected(q, -EIO);
    promise_unref(p);
    promise_unref(q);
}

PROMISE_TEST(rules, r34_wrap_in_cancelable)
{
    struct promise *p = promise_create_task(), *q = promise_wrap_in_cancelable(promise_ref(p));

    promise_on_cancel(p, tell_state, q);
    promise_on_cancel(q, tell_done, "older");
    promise_on_cancel(q, tell_state, p);
    promise_on_termination(q, tell_done, "after");
    promise_cancel(q); /* its own cancel callbacks, then the original's, then its waiters */
    told("? older err after ");
    promise_unref(p);
    promise_unref(q);
    p = promise_create();
    q = promise_wrap_in_cancelable(promise_ref(p));
    promise_cancel(q);
    cr_rejected(q, -ECANCELED);
    cr_pending(p);
    promise_resolve(p, weft_num(1));
    promise_unref(p);
    promise_unref(q);
}

PROMISE_TEST(rules, r35_the_wrappers_return_a_settled_promise_itself)
{
    struct promise *p = promise_fulfilled(weft_num(1));

    cr_assert_eq(promise_protected(p), p);
    cr_assert_eq(promise_no_cancel(p), p);
    cr_assert_eq(promise_wrap_in_cancelable(p), p);
    promise_unref(p);
}

/* ---- pause ---- */

PROMISE_TEST(rules, r36_pause_counts_and_notifies)
{
    struct promise *p, *q;

    promise_set_pause_notifier(tell_count, "n");
    p = promise_pause();
    q = promise_pause();
    told("n1 n2 ");
    cr_assert_eq(promise_paused_count(), 2);
    promise_wakeup_paused();
    cr_value(p, 0);
    promise_unref(p);
    promise_unref(q);
}

PROMISE_TEST(rules, r37_a_canceled_pause_still_counts)
{
    struct promise *p = promise_pause(), *q = promise_pause();

    promise_cancel(p);
    cr_rejected(p, -ECANCELED);
    cr_assert_eq(promise_paused_count(), 2);
    promise_wakeup_paused();
    cr_assert_eq(promise_paused_count(), 0);
    cr_value(q, 0);
    promise_unref(p);
    promise_unref(q);
}

static int pause_one(void *ctx)
{
    *(struct promise **)ctx = promise_pause();
    return 0;
}

PROMISE_TEST(rules, r38_a_wakeup_wakes_one_generation_in_order)
{
    struct promise *p = promise_pause(), *q = promise_pause(), *next = NULL;

    promise_on_termination(q, tell_done, "q");
    promise_on_termination(p, pause_one, &next);
    promise_on_termination(p, tell_done, "p");
    promise_wakeup_paused();
    told("p q ");
    cr_pending(next);
    cr_assert_eq(promise_paused_count(), 1);
    promise_wakeup_paused();
    cr_value(next, 0);
    promise_unref(p);
    promise_unref(q);
    promise_unref(next);
}

PROMISE_TEST(rules, r39_abandoned_pauses_stay_pending)
{
    struct promise *p = promise_pause(), *q;

    promise_abandon_paused();
    cr_assert_eq(promise_paused_count(), 0);
    q = promise_pause();
    promise_cancel(p); /* detached: disturbs nobody */
    cr_rejected(p, -ECANCELED);
    promise_wakeup_paused();
    cr_value(q, 0);
    promise_unref(p);
    promise_unref(q);
}

PROMISE_TEST(rules, r40_a_new_notifier_replaces_the_old_one)
{
    promise_set_pause_notifier(tell_count, "old");
    promise_set_pause_notifier(tell_count, "new");
    promise_unref(promise_pause());
    promise_set_pause_notifier(NULL, NULL);
    promise_unref(promise_pause());
    told("new1 ");
    promise_abandon_paused();
}
