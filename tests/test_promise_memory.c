/* Who owns what: values with destructors, abandoned promises, operations, and no memory. */
#include "test_promise.h"

#include <errno.h>
#include <stdlib.h>

_Static_assert(sizeof(struct promise__callback) <= 64, "one block");
_Static_assert(sizeof(struct promise_queue) == 3 * sizeof(void *), "part of the interface");
_Static_assert(sizeof(struct promise_values) == 24, "part of the interface");
_Static_assert(sizeof(struct promise_split) == 40, "part of the interface");

static int destroyed;

static void destroy(void *ptr)
{
    destroyed++;
    free(ptr);
}

static struct promise *owned(void)
{
    return promise_fulfilled_owned(malloc(1), destroy);
}

static struct promise *take(union weft_value value, void *ctx)
{
    (void)ctx;
    free(value.ptr); /* the value is ours */
    return promise_fulfilled(weft_num(1));
}

static struct promise *borrow(union weft_value value, void *ctx)
{
    (void)value;
    (void)ctx;
    return promise_fulfilled(weft_num(1));
}

PROMISE_TEST(memory, an_untaken_value_is_destroyed)
{
    struct promise *p = owned();

    promise_ref(p);
    promise_unref(p);
    cr_assert_eq(destroyed, 0);
    promise_unref(p);
    cr_assert_eq(destroyed, 1);
}

PROMISE_TEST(memory, the_last_reference_takes_the_value)
{
    struct promise *p = owned();

    promise_unref(promise_bind(owned(), take, NULL));
    cr_assert_eq(destroyed, 0);
    promise_unref(promise_bind(promise_ref(p), borrow, NULL));
    cr_assert_eq(destroyed, 0);
    promise_unref(p);
    cr_assert_eq(destroyed, 1);
}

PROMISE_TEST(memory, a_pending_bind_takes_the_value_of_an_operation)
{
    void *extra;
    struct promise *p = promise__create_operation(weft__rt, 8, NULL, &extra);
    struct promise *q = promise_bind(p, take, NULL);

    promise__settle_owned(promise__of_extra(extra), malloc(1), destroy);
    cr_value(q, 1);
    cr_assert_eq(destroyed, 0);
    promise_unref(q);
}

PROMISE_TEST(memory, a_value_passes_through)
{
    struct promise *p = promise_create(), *q, *r, *s;

    q = promise_catch(promise_ref(p), tell_catch, "never");
    r = promise_protected(promise_ref(p));
    s = promise_bind(promise_no_cancel(promise_ref(r)), borrow, NULL);
    promise_resolve_owned(p, malloc(1), destroy);
    promise_unref(p);
    promise_unref(q);
    promise_unref(s);
    cr_assert_eq(destroyed, 0);
    promise_unref(r);
    cr_assert_eq(destroyed, 1);
}

PROMISE_TEST(memory, a_value_moves_to_the_result)
{
    void *extra;
    struct promise *p = promise__create_operation(weft__rt, 0, NULL, &extra);
    struct promise *q = promise_catch(promise_catch(p, tell_catch, ""), tell_catch, "");

    promise__settle_owned(promise__of_extra(extra), malloc(1), destroy);
    cr_assert_null(q->source); /* no chain of owners behind it */
    cr_assert_eq(promise__live(), 1);
    promise_unref(promise_bind(q, take, NULL));
    cr_assert_eq(destroyed, 0);
}

PROMISE_TEST(memory, owned_values_of_canceled_and_settled_promises)
{
    struct promise *p = promise_create_task();
    void *ptr = malloc(1);

    promise_cancel(p);
    cr_assert_eq(promise_resolve_owned(p, ptr, destroy), 0);
    cr_assert_eq(destroyed, 1);
    promise_unref(p);
    p = promise_fulfilled(weft_num(0));
    ptr = malloc(1);
    cr_assert_eq(promise_resolve_owned(p, ptr, destroy), -EINVAL); /* still ours */
    cr_assert_eq(destroyed, 1);
    promise_unref(p);
    p = promise_create();
    promise_resolve(p, weft_num(0));
    cr_assert_eq(promise_resolve_later_owned(p, ptr, destroy), -EALREADY);
    free(ptr);
    promise_unref(p);
}

PROMISE_TEST(memory, choose_and_pick_pass_the_winners_value)
{
    struct promise *(*const races[])(struct promise *const[], size_t) = {promise_choose,
                                                                         promise_pick};

    for (int i = 0; i < 2; i++) {
        void *extra;
        struct promise *pair[2] = {promise__create_operation(weft__rt, 0, NULL, &extra),
                                   promise_create_task()};
        struct promise *q = promise_bind(races[i](pair, 2), take, NULL);

        promise__settle_owned(promise__of_extra(extra), malloc(1), destroy);
        cr_value(q, 1);
        promise_unref(q);
    }
    cr_assert_eq(destroyed, 0);
}

PROMISE_TEST(memory, values_keep_their_promises)
{
    struct promise *p = owned(), *pair[] = {promise_ref(p), owned()};
    struct promise *q = promise_all(pair, 2);

    promise_unref(p);
    cr_assert_eq(destroyed, 0);
    promise_unref(q);
    cr_assert_eq(destroyed, 2);
}

static int take_values(union weft_value value, void *ctx, union weft_value *out)
{
    const struct promise_values *values = value.ptr;

    *out = weft_num((int64_t)values->count);
    promise_values_destroy(value.ptr);
    (void)ctx;
    return 0;
}

static int take_split(union weft_value value, void *ctx, union weft_value *out)
{
    struct promise_split *split = value.ptr;

    *(struct promise **)ctx = split->pending[0];
    split->pending[0] = NULL;
    *out = weft_num((int64_t)split->pending_count);
    promise_split_destroy(split);
    return 0;
}

PROMISE_TEST(memory, values_and_splits_are_taken)
{
    struct promise *a = promise_create(), *left = NULL;
    struct promise *pair[] = {promise_ref(a), owned()};
    struct promise *q = promise_map(promise_all(pair, 2), take_values, NULL);
    struct promise *other[] = {promise_create(), promise_ref(a)};
    struct promise *r = promise_map(promise_nchoose_split(other, 2), take_split, &left);

    promise_resolve(a, weft_num(0));
    cr_value(q, 2);
    cr_value(r, 1);
    cr_pending(left);
    cr_assert_eq(destroyed, 1);
    promise_unref(left);
    promise_unref(a);
    promise_unref(q);
    promise_unref(r);
}

static void release_another(void *ptr)
{
    destroyed++;
    promise_unref(ptr);
}

PROMISE_TEST(memory, destructors_may_release_promises)
{
    struct promise *p = promise_fulfilled(weft_num(0));

    for (int i = 0; i < 100000; i++)
        p = promise_fulfilled_owned(p, release_another);
    promise_unref(p);
    cr_assert_eq(destroyed, 100000);
}

/* ---- abandoned promises ---- */

PROMISE_TEST(memory, an_abandoned_promise_takes_its_waiters_along)
{
    struct promise *p = promise_create_task(), *pair[2];

    promise_on_success(p, tell_success, "never");
    promise_on_cancel(p, tell_done, "never");
    promise_unref(promise_try_bind(promise_ref(p), tell_bind, tell_catch, "never"));
    promise_unref(promise_finalize(promise_ref(p), tell_thunk, "never"));
    promise_async(promise_map(promise_ref(p), tell_map, "never"));
    pair[0] = promise_ref(p);
    pair[1] = promise_ref(p);
    promise_unref(promise_all(pair, 2));
    pair[0] = promise_ref(p);
    pair[1] = promise_create();
    promise_async(promise_choose(pair, 2));
    promise_unref(p);
    cr_assert_eq(promise__live(), 0);
    told("");
}

PROMISE_TEST(memory, an_unobserved_bind_still_runs)
{
    struct promise *p = promise_create();

    promise_unref(promise_bind(promise_bind(promise_ref(p), tell_bind, "a"), tell_bind, "b"));
    promise_resolve(p, weft_num(1));
    told("a(1) b(1) ");
    promise_unref(p);
}

PROMISE_TEST(memory, an_unobserved_pick_still_cancels)
{
    struct promise *work = promise_create(), *task = promise_create_task();
    struct promise *pair[2] = {promise_ref(work), promise_bind(promise_ref(task), tell_bind, "")};

    promise_on_cancel(task, tell_done, "canceled");
    promise_unref(task); /* only the pick can reach it now */
    promise_unref(promise_pick(pair, 2));
    promise_resolve(work, weft_num(0));
    told("canceled ");
    promise_unref(work);
}

PROMISE_TEST(memory, a_protected_promise_outlives_its_original)
{
    struct promise *p = promise_create(), *q = promise_protected(promise_ref(p));
    struct promise *r = promise_no_cancel(promise_ref(p));

    promise_unref(p);
    cr_pending(q);
    promise_cancel(q);
    cr_rejected(q, -ECANCELED);
    promise_cancel(r);
    cr_pending(r);
    promise_unref(q);
    promise_unref(r);
}

static struct promise *abandon_everything(void *arg)
{
    struct promise *p = promise_create(), *pair[2] = {promise_ref(p), promise_create_task()};

    (void)arg;
    promise_unref(promise_fulfilled_owned(malloc(1), destroy));
    promise_on_success(owned(), tell_success, ""); /* never released */
    test_log[0] = '\0';
    promise_async(promise_pick(pair, 2));
    promise_unref(promise_bind(promise_pause(), tell_bind, "never"));
    promise_unref(promise_bind(promise_sleep(WEFT_SEC(1000)), tell_bind, "never"));
    pair[0] = promise_create();
    pair[1] = owned();
    return promise_bind(promise_fulfilled(weft_num(0)), tell_bind, "end");
}

Test(memory, the_runtime_frees_what_is_left)
{
    struct weft_options options = WEFT_OPTIONS_INIT;

    options.report = quiet_report;
    cr_assert_eq(promise_run(abandon_everything, NULL, &options, NULL), 0);
    cr_assert_eq(destroyed, 3);
    told("end(0) ");
}

/* ---- operations ---- */

static struct promise *asked;

static void ask(struct promise *p)
{
    cr_assert_null(asked, "asked twice");
    asked = p;
}

static void settle_at_once(struct promise *p)
{
    promise__settle(p, -ECANCELED, weft_num(0));
}

PROMISE_TEST(memory, a_cancel_is_a_request_to_an_operation)
{
    void *extra;
    struct promise *p = promise__create_operation(weft__rt, 100, ask, &extra);
    struct promise *q = promise_bind(promise_ref(p), tell_bind, "b");

    cr_assert_eq((uintptr_t)extra % 16, 0);
    memset(extra, 0xff, 100);
    promise_cancel(q);
    cr_assert_eq(asked, p);
    cr_pending(p);
    promise_cancel(q);
    promise_cancel(p);
    promise__settle(promise__of_extra(extra), 0, weft_num(5)); /* it was done before */
    told("b(5) ");
    cr_value(p, 5);
    promise_unref(p);
    promise_unref(q);
}

PROMISE_TEST(memory, a_cancel_reaches_an_operation_through_a_merge)
{
    void *extra;
    struct promise *p = promise__create_operation(weft__rt, 1000, ask, &extra); /* a large block */
    struct promise *trigger = promise_create();
    struct promise *q = promise_bind(promise_ref(trigger), give_promise, p);

    promise_unref(trigger);
    promise_unref(p);
    promise_unref(promise_ref(q));
    cr_pending(q);
    cr_assert_null(asked);
    promise__settle(p, -EIO, weft_num(0));
    promise_unref(q);

    p = promise__create_operation(weft__rt, 1000, ask, &extra);
    trigger = promise_create();
    q = promise_bind(promise_ref(trigger), give_promise, p);
    promise_resolve(trigger, weft_num(0));
    promise_unref(p);
    promise_cancel(q);
    cr_assert_eq(asked, p);
    cr_pending(q);
    promise__settle(p, -ECANCELED, weft_num(0));
    cr_rejected(q, -ECANCELED);
    promise_unref(q);
    promise_unref(trigger);
}

PROMISE_TEST(memory, an_operation_that_settles_when_asked)
{
    void *extra;
    struct promise *p = promise__create_operation(weft__rt, 0, settle_at_once, &extra);
    struct promise *task = promise_create_task();
    struct promise *both = promise_both(promise_ref(p), promise_ref(task));

    promise_on_termination(p, tell_done, "operation");
    promise_on_termination(task, tell_done, "task");
    promise_cancel(both);
    told("task operation "); /* as if both were tasks: last found first */
    promise_unref(p);
    promise_unref(task);
    promise_unref(both);
}

PROMISE_TEST(memory, a_dropped_operation_lives_until_it_is_settled)
{
    void *extra;
    struct promise *p = promise__create_operation(weft__rt, 16, NULL, &extra);

    promise_on_success(p, tell_success, "s");
    promise_unref(p);
    memset(extra, 0, 16);
    promise__settle(promise__of_extra(extra), 0, weft_num(1));
    told("s(1) ");
}

/* ---- no memory ---- */

/* Runs `attempt` with 0, 1, 2, ... blocks to be had, until it is content. */
static void starve(bool (*attempt)(void))
{
    for (size_t i = 0;; i++) {
        bool content;

        cr_assert_lt(i, 100);
        promise__fail_after(i);
        content = attempt();
        promise__fail_after(SIZE_MAX);
        cr_assert_eq(promise__live(), 0, "%zu blocks left after %zu", promise__live(), i);
        if (content)
            return;
    }
}

static bool no_memory(struct promise *p)
{
    int err = 0;

    if (promise_poll(p, NULL, &err) == PROMISE_REJECTED) {
        cr_assert_eq(err, -ENOMEM);
        return true;
    }
    return false;
}

static bool try_sequence(void)
{
    struct promise *p = promise_create(), *q;
    bool failed;

    q = promise_finalize(
        promise_try_bind(promise_map(promise_bind(promise_ref(p), borrow, NULL), tell_map, ""),
                         borrow, tell_catch, ""),
        tell_thunk, "");
    promise_resolve(p, weft_num(0));
    failed = no_memory(q) || no_memory(p);
    test_log[0] = '\0';
    promise_unref(q);
    promise_unref(p);
    return !failed;
}

static bool try_groups(void)
{
    struct promise *(*const ops[])(struct promise *const[], size_t) = {
        promise_join,    promise_all,   promise_choose,       promise_pick,
        promise_nchoose, promise_npick, promise_nchoose_split};
    bool failed = false;

    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        struct promise *a = promise_create(), *b = promise_create();
        struct promise *const pending[] = {promise_ref(a), promise_ref(b)};
        struct promise *q = ops[i](pending, 2);

        promise_resolve(a, weft_num(0));
        promise_resolve(b, weft_num(0));
        failed = failed || no_memory(q);
        promise_unref(a);
        promise_unref(b);
        promise_unref(q);
    }
    return !failed;
}

static bool try_others(void)
{
    struct promise_queue queue;
    struct promise *p = promise_create_task(), *q = promise_protected(promise_ref(p));
    struct promise *r = promise_pause(), *s = promise_sleep(1), *t = owned(), *u;
    bool failed = no_memory(p) || no_memory(q) || no_memory(r) || no_memory(s) || no_memory(t);
    int rc = promise_on_success(p, tell_success, "");

    promise_queue_init(&queue);
    u = promise_queue_append(&queue);
    failed = failed || no_memory(u) || rc == -ENOMEM || promise_async(promise_ref(p)) == -ENOMEM;
    promise_cancel(s);
    promise_cancel(r);
    promise_wakeup_paused();
    promise_queue_finish(&queue);
    promise_unref(p);
    promise_unref(q);
    promise_unref(r);
    promise_unref(s);
    promise_unref(t);
    promise_unref(u);
    return !failed;
}

PROMISE_TEST(memory, none_for_sequences)
{
    starve(try_sequence);
}

PROMISE_TEST(memory, none_for_groups)
{
    starve(try_groups);
}

PROMISE_TEST(memory, none_for_others)
{
    promise_set_error_hook(tell_error, "");
    starve(try_others);
    test_log[0] = '\0';
}

PROMISE_TEST(memory, none_is_a_shared_promise)
{
    struct promise *p, *q;

    promise__fail_after(0);
    p = promise_create();
    q = promise_fulfilled(weft_num(INT64_MAX));
    cr_assert_eq(p, q);
    cr_rejected(p, -ENOMEM);
    for (int i = 0; i < 3; i++)
        promise_unref(p);
    promise_unref(q);
    cr_rejected(p, -ENOMEM);
    promise__fail_after(SIZE_MAX);
}

#ifndef NDEBUG
/* ---- misuse, in a debug build ---- */

static char reported[400];

static void keep_report(void *ctx, const char *line)
{
    (void)ctx;
    snprintf(reported, sizeof reported, "%s", line);
}

static struct promise *misuse(void *arg)
{
    struct promise *p = promise_create();

    (void)arg;
    promise_ref(p);
    promise_unref(p);
    promise_unref(p);
#if !PROMISE__ASAN
    promise_unref(p);
    cr_assert_not_null(strstr(reported, "has been freed"));
    cr_assert_eq(promise_resolve(p, weft_num(0)), -EINVAL);
#endif
    p = promise_bind(promise_create(), borrow, NULL);
    cr_assert_eq(promise_resolve(p, weft_num(0)), -EINVAL);
    cr_assert_not_null(strstr(reported, "alone may settle it"));
    return promise_fulfilled(weft_num(0)); /* p is left over */
}

Test(memory, misuse_is_reported)
{
    struct weft_options options = WEFT_OPTIONS_INIT;

    options.report = keep_report;
    cr_assert_eq(promise_run(misuse, NULL, &options, NULL), 0);
    cr_assert_not_null(strstr(reported, "still held"), "%s", reported);
}
#endif
