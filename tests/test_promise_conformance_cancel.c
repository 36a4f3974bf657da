/* Lwt's core suite, the groups about cancel, and the order of what a cancel causes. */
#include "test_promise.h"

#include <errno.h>

static struct promise *fail_thunk(void *ctx)
{
    say("%s ", (const char *)ctx);
    return promise_rejected(-ERANGE);
}

static struct promise *give_for_error(int err, void *ctx)
{
    (void)err;
    return promise_ref(ctx);
}

static struct promise *give_for_nothing(void *ctx)
{
    return promise_ref(ctx);
}

static void attach_all(struct promise *p, const char *name)
{
    promise_on_success(p, tell_success, (void *)(intptr_t)name);
    promise_on_failure(p, tell_failure, (void *)(intptr_t)name);
    promise_on_termination(p, tell_done, (void *)(intptr_t)name);
    promise_on_any(p, tell_success, tell_failure, (void *)(intptr_t)name);
}

static void gives(struct promise *p, int64_t value)
{
    cr_value(p, value);
    promise_unref(p);
}

static void fails(struct promise *p, int err)
{
    cr_rejected(p, err);
    promise_unref(p);
}

/* ---- cancel ---- */

static int cancel_and_say(void *ctx)
{
    promise_cancel(ctx);
    say("back ");
    return 0;
}

PROMISE_TEST(conformance, cancel)
{
    struct promise *p = promise_fulfilled(weft_num(1)), *q = promise_rejected(-EIO);
    struct promise *wait = promise_create(), *task = promise_create_task(), *other;

    promise_cancel(p);
    promise_cancel(q);
    promise_cancel(wait);
    gives(p, 1);
    fails(q, -EIO);
    cr_pending(wait);
    promise_cancel(task);
    promise_cancel(task);
    cr_rejected(task, -ECANCELED);
    promise_unref(task);
    task = promise_create_task(); /* callbacks see it */
    attach_all(task, "c");
    promise_cancel(task);
    told("c!-125 c c!-125 ");
    promise_unref(task);
    task = promise_create_task(); /* nested: the callbacks at once */
    other = promise_create_task();
    promise_on_termination(other, tell_done, "other");
    promise_on_termination(task, cancel_and_say, other);
    promise_cancel(task);
    told("other back ");
    promise_unref(task);
    promise_unref(other);
    promise_unref(wait);
}

PROMISE_TEST(conformance, on_cancel)
{
    struct promise *p = promise_create_task();

    promise_on_termination(p, tell_done, "1");
    promise_on_cancel(p, tell_done, "c1");
    promise_on_failure(p, tell_failure, "2");
    promise_on_cancel(p, tell_done, "c2");
    promise_on_termination(p, tell_done, "3");
    promise_cancel(p);
    told("c2 c1 3 2!-125 1 ");
    promise_on_cancel(p, tell_done, "at once");
    told("at once ");
    promise_unref(p);
    for (int error = 0; error < 2; error++) {
        p = promise_create_task();
        promise_on_cancel(p, tell_done, "never");
        if (error)
            promise_reject(p, -EIO);
        else
            promise_resolve(p, weft_num(1));
        promise_on_cancel(p, tell_done, "never");
        promise_unref(p);
    }
    told("");
    p = promise_create(); /* by hand */
    promise_on_cancel(p, tell_done, "by hand");
    promise_reject(p, -ECANCELED);
    told("by hand ");
    promise_unref(p);
}

/* ---- wrappers ---- */

static void mirrors(struct promise *(*wrap)(struct promise *))
{
    struct promise *p, *q, *trigger, *wrapped;

    gives(wrap(promise_fulfilled(weft_num(1))), 1);
    fails(wrap(promise_rejected(-EIO)), -EIO);
    for (int task = 0; task < 2; task++)
        for (int error = 0; error < 2; error++) {
            p = task ? promise_create_task() : promise_create();
            q = wrap(promise_ref(p));
            cr_pending(q);
            if (error)
                promise_reject(p, -EIO);
            else
                promise_resolve(p, weft_num(3));
            if (error)
                fails(q, -EIO);
            else
                gives(q, 3);
            promise_unref(p);
        }
    for (int cancel = 0; cancel < 2; cancel++) { /* as a proxy: what a callback returns */
        p = promise_create_task();
        trigger = promise_create();
        wrapped = wrap(promise_ref(p));
        q = promise_bind(promise_ref(trigger), give_promise, wrapped);
        promise_resolve(trigger, weft_num(0));
        promise_unref(wrapped);
        cr_pending(q);
        if (cancel)
            promise_cancel(q);
        promise_resolve(p, weft_num(4));
        cr_assert_eq(promise_state(q) == PROMISE_FULFILLED, !cancel || wrap == promise_no_cancel);
        promise_unref(trigger);
        promise_unref(p);
        promise_unref(q);
    }
}

PROMISE_TEST(conformance, protected)
{
    struct promise *p = promise_create_task(), *q;

    mirrors(promise_protected);
    q = promise_protected(promise_ref(p));
    promise_cancel(q);
    cr_rejected(q, -ECANCELED);
    cr_pending(p);
    promise_resolve(p, weft_num(1)); /* changes nothing */
    cr_rejected(q, -ECANCELED);
    promise_unref(p);
    promise_unref(q);
    p = promise_create_task(); /* the original may be canceled by itself */
    q = promise_protected(promise_ref(p));
    promise_cancel(p);
    cr_rejected(q, -ECANCELED);
    promise_unref(p);
    promise_unref(q);
}

PROMISE_TEST(conformance, no_cancel)
{
    struct promise *p = promise_create_task(), *q;

    mirrors(promise_no_cancel);
    q = promise_no_cancel(promise_ref(p));
    promise_cancel(q);
    cr_pending(p);
    cr_pending(q);
    promise_cancel(p);
    cr_rejected(q, -ECANCELED);
    promise_unref(p);
    promise_unref(q);
}

PROMISE_TEST(conformance, wrap_in_cancelable)
{
    mirrors(promise_wrap_in_cancelable);
    for (int task = 0; task < 2; task++) {
        struct promise *p = task ? promise_create_task() : promise_create();
        struct promise *q = promise_wrap_in_cancelable(promise_ref(p));

        promise_cancel(q);
        cr_rejected(q, -ECANCELED);
        cr_assert_eq(is_pending(p), !task);
        cr_assert_eq(promise_resolve(p, weft_num(1)), 0); /* task: canceled, nothing */
        cr_rejected(q, -ECANCELED);
        promise_unref(p);
        promise_unref(q);
    }
}

/* ---- through a sequence ---- */

enum { BIND, MAP, CATCH, TRY_BIND, FINALIZE };

/* The operation on `p`; what it returns at its next step is `next`. */
static struct promise *follow(int op, struct promise *p, struct promise *next)
{
    switch (op) {
    case BIND:
        return promise_bind(promise_ref(p), give_promise, next);
    case MAP:
        return promise_map(promise_ref(p), tell_map, "m");
    case CATCH:
        return promise_catch(promise_ref(p), give_for_error, next);
    case TRY_BIND:
        return promise_try_bind(promise_ref(p), give_promise, give_for_error, next);
    default:
        return promise_finalize(promise_ref(p), give_for_nothing, next);
    }
}

/* On an operand that can't be canceled: nothing. On a task: operand and result, unless a handler
 * says otherwise; on_cancel runs on what is canceled. */
static void cancel_first_step(int op)
{
    struct promise *p = promise_create(), *ok = promise_fulfilled(weft_num(8)), *q;

    q = follow(op, p, ok);
    promise_on_cancel(q, tell_done, "never");
    promise_cancel(q);
    cr_pending(p);
    cr_pending(q);
    promise_unref(q);
    promise_unref(p);
    p = promise_create_task();
    q = follow(op, p, ok);
    promise_on_cancel(p, tell_done, "p");
    promise_on_cancel(q, tell_done, "q");
    promise_cancel(q);
    cr_rejected(p, -ECANCELED);
    if (op == CATCH || op == TRY_BIND) {
        cr_value(q, 8);
        told("p ");
    } else {
        cr_rejected(q, -ECANCELED);
        told("p q ");
    }
    promise_unref(q);
    promise_unref(p);
    promise_unref(ok);
}

/* Once the callback has returned a promise, a cancel reaches that one. */
static void cancel_second_step(int op, bool error)
{
    for (int task = 0; task < 2; task++) {
        struct promise *p = promise_create_task();
        struct promise *next = task ? promise_create_task() : promise_create();
        struct promise *q = follow(op, p, next);

        promise_on_cancel(next, tell_done, "next");
        promise_on_cancel(q, tell_done, "q");
        if (error)
            promise_reject(p, -EIO);
        else
            promise_resolve(p, weft_num(1));
        promise_cancel(q);
        if (task) {
            cr_rejected(next, -ECANCELED);
            cr_rejected(q, -ECANCELED);
            told(op == FINALIZE ? "next q " : "q next ");
        } else {
            cr_pending(next);
            cr_pending(q);
            told("");
        }
        promise_unref(q);
        promise_unref(p);
        promise_unref(next);
    }
}

PROMISE_TEST(conformance, cancel_bind)
{
    cancel_first_step(BIND);
    cancel_second_step(BIND, false);
}

PROMISE_TEST(conformance, cancel_map)
{
    cancel_first_step(MAP);
}

PROMISE_TEST(conformance, cancel_catch)
{
    cancel_first_step(CATCH);
    cancel_second_step(CATCH, true);
}

PROMISE_TEST(conformance, cancel_try_bind)
{
    cancel_first_step(TRY_BIND);
    cancel_second_step(TRY_BIND, false);
    cancel_second_step(TRY_BIND, true);
}

PROMISE_TEST(conformance, cancel_finalize)
{
    struct promise *p = promise_create_task();
    struct promise *q = promise_finalize(promise_ref(p), fail_thunk, "cleanup");

    cancel_first_step(FINALIZE);
    cancel_second_step(FINALIZE, false);
    cancel_second_step(FINALIZE, true);
    promise_cancel(q);
    told("cleanup ");
    cr_rejected(q, -ERANGE); /* the cleanup's error in its place */
    promise_unref(p);
    promise_unref(q);
}

PROMISE_TEST(conformance, cancel_with_direct_handler)
{
    struct promise *p = promise_create_task();

    promise_on_success(p, tell_success, "never");
    promise_cancel(p);
    told("");
    promise_unref(p);
    p = promise_create_task();
    promise_on_any(p, NULL, tell_failure, "any");
    promise_on_termination(p, tell_done, "termination");
    promise_on_failure(p, tell_failure, "failure");
    promise_cancel(p);
    told("failure!-125 termination any!-125 ");
    promise_unref(p);
}

/* ---- through several ---- */

typedef struct promise *combine_fn(struct promise *const[], size_t);

static struct promise *with2(combine_fn *combine, struct promise *a, struct promise *b)
{
    struct promise *const list[] = {promise_ref(a), promise_ref(b)};

    return combine(list, 2);
}

/* Only promises that cannot be canceled: nothing. */
static void of_waits(combine_fn *combine)
{
    struct promise *a = promise_create(), *b = promise_create(), *q = with2(combine, a, b);

    promise_cancel(q);
    cr_pending(a);
    cr_pending(b);
    cr_pending(q);
    promise_resolve(a, weft_num(1));
    promise_resolve(b, weft_num(2));
    cr_assert_eq(promise_state(q), PROMISE_FULFILLED);
    promise_unref(a);
    promise_unref(b);
    promise_unref(q);
}

/* A task among them. */
static void of_a_task(combine_fn *combine, bool waits_for_all)
{
    struct promise *a = promise_create(), *b = promise_create_task(), *q = with2(combine, a, b);

    promise_cancel(q);
    cr_pending(a);
    cr_rejected(b, -ECANCELED);
    if (waits_for_all) {
        cr_pending(q);
        promise_resolve(a, weft_num(1));
    }
    cr_rejected(q, -ECANCELED);
    promise_unref(a);
    promise_unref(b);
    promise_unref(q);
    a = promise_create_task();
    b = promise_create_task();
    q = with2(combine, a, b);
    promise_cancel(q);
    cr_rejected(a, -ECANCELED);
    cr_rejected(b, -ECANCELED);
    cr_rejected(q, -ECANCELED);
    promise_unref(a);
    promise_unref(b);
    promise_unref(q);
}

PROMISE_TEST(conformance, cancel_join)
{
    struct promise *a = promise_create_task(), *q;

    of_waits(promise_join);
    of_a_task(promise_join, true);
    of_waits(promise_all);
    of_a_task(promise_all, true);
    promise_on_cancel(a, tell_done, "once");
    q = with2(promise_join, a, a); /* reached twice */
    promise_cancel(q);
    told("once ");
    cr_rejected(q, -ECANCELED);
    promise_unref(a);
    promise_unref(q);
}

PROMISE_TEST(conformance, cancel_choose)
{
    of_waits(promise_choose);
    of_a_task(promise_choose, false);
}

PROMISE_TEST(conformance, cancel_pick)
{
    of_waits(promise_pick);
    of_a_task(promise_pick, false);
}

PROMISE_TEST(conformance, cancel_nchoose)
{
    of_waits(promise_nchoose);
    of_a_task(promise_nchoose, false);
}

PROMISE_TEST(conformance, cancel_npick)
{
    of_waits(promise_npick);
    of_a_task(promise_npick, false);
}

PROMISE_TEST(conformance, cancel_nchoose_split)
{
    of_waits(promise_nchoose_split);
    of_a_task(promise_nchoose_split, false);
}

/* ---- the order of a cancel ---- */

static struct promise *join2(struct promise *a, struct promise *b)
{
    return with2(promise_join, a, b);
}

static struct promise *choose2(struct promise *a, struct promise *b)
{
    return with2(promise_choose, a, b);
}

static struct promise *pick2(struct promise *a, struct promise *b)
{
    return with2(promise_pick, a, b);
}

static struct promise *both2(struct promise *a, struct promise *b)
{
    return promise_both(promise_ref(a), promise_ref(b));
}

static struct promise *(*const groups[])(struct promise *a, struct promise *b) = {join2, choose2,
                                                                                  pick2, both2};
#define GROUPS (sizeof groups / sizeof *groups)

static int see_the_other(void *ctx)
{
    say("%s ", is_pending(ctx) ? "pending" : "canceled");
    return 0;
}

/* Both tasks are canceled before either's callbacks run, and the last found runs first. */
PROMISE_TEST(cancel_order, all_tasks_first)
{
    for (size_t i = 0; i < GROUPS; i++) {
        struct promise *a = promise_create_task(), *b = promise_create_task();
        struct promise *q = groups[i](a, b);

        promise_on_termination(a, see_the_other, b);
        promise_on_cancel(a, tell_done, "a:");
        promise_on_termination(b, see_the_other, a);
        promise_on_cancel(b, tell_done, "b:");
        promise_cancel(q);
        told("b: canceled a: canceled ");
        promise_unref(a);
        promise_unref(b);
        promise_unref(q);
    }
}

static int resolve_sibling(void *ctx)
{
    say("%d ", promise_resolve(ctx, weft_num(7)));
    return 0;
}

PROMISE_TEST(cancel_order, a_callback_cannot_resolve_a_sibling)
{
    for (size_t i = 0; i < GROUPS; i++) {
        struct promise *a = promise_create_task(), *b = promise_create_task();
        struct promise *q = groups[i](a, b);

        promise_on_cancel(a, resolve_sibling, b);
        promise_on_cancel(b, resolve_sibling, a);
        promise_cancel(q);
        told("0 0 "); /* canceled: silently nothing */
        fails(a, -ECANCELED);
        fails(b, -ECANCELED);
        fails(q, -ECANCELED);
    }
}

PROMISE_TEST(cancel_order, a_task_reached_twice_is_canceled_once)
{
    for (size_t i = 0; i < GROUPS; i++) {
        struct promise *task = promise_create_task();
        struct promise *a = promise_bind(promise_ref(task), tell_bind, "never");
        struct promise *b = promise_map(promise_ref(task), tell_map, "never");
        struct promise *q = groups[i](a, b);

        promise_on_cancel(task, tell_done, "once");
        promise_cancel(q);
        told("once ");
        fails(q, -ECANCELED);
        promise_unref(task);
        promise_unref(a);
        promise_unref(b);
    }
}

PROMISE_TEST(cancel_order, the_caller_sees_everything_done)
{
    for (size_t i = 0; i < GROUPS; i++) {
        struct promise *a = promise_create_task(), *b = promise_create_task();
        struct promise *q = groups[i](a, b), *end;

        end = promise_finalize(
            promise_catch(promise_bind(promise_ref(q), tell_bind, "never"), tell_catch, "caught"),
            tell_thunk, "cleanup");
        promise_cancel(end);
        told("caught!-125 cleanup ");
        gives(end, -ECANCELED);
        promise_unref(a);
        promise_unref(b);
        promise_unref(q);
    }
}

PROMISE_TEST(cancel_order, protected_then_its_source_resolves)
{
    struct promise *p = promise_create_task(), *q = promise_protected(promise_ref(p));

    promise_on_termination(q, tell_done, "q");
    promise_on_cancel(q, resolve_sibling, p); /* Lwt resolves q twice here, and crashes */
    promise_on_success(p, tell_success, "p");
    promise_cancel(q);
    told("p(7) 0 q ");
    gives(p, 7);
    fails(q, -ECANCELED);
}

PROMISE_TEST(cancel_order, one_task_twice_in_a_pick)
{
    struct promise *p = promise_create_task(), *q = pick2(p, p);

    promise_on_termination(q, tell_done, "result");
    promise_on_termination(p, tell_done, "task");
    promise_resolve(p, weft_num(1));
    told("task result ");
    gives(q, 1);
    promise_unref(p);
}
