/* Lwt's core suite, the groups about one promise and what follows it. docs/conformance.md says which
 * group is where. */
#include "test_promise.h"

#include <errno.h>

/* ---- callbacks ---- */

static struct promise *fail_bind(union weft_value value, void *ctx)
{
    say("%s(%lld) ", (const char *)ctx, (long long)value.num);
    return promise_rejected(-ERANGE);
}

static struct promise *fail_catch(int err, void *ctx)
{
    say("%s!%d ", (const char *)ctx, err);
    return promise_rejected(-ERANGE);
}

static struct promise *fail_thunk(void *ctx)
{
    say("%s ", (const char *)ctx);
    return promise_rejected(-ERANGE);
}

static int fail_map(union weft_value value, void *ctx, union weft_value *out)
{
    (void)out;
    say("%s(%lld) ", (const char *)ctx, (long long)value.num);
    return -ERANGE;
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

static int fail_success(union weft_value value, void *ctx)
{
    say("%s(%lld) ", (const char *)ctx, (long long)value.num);
    return -ERANGE;
}

static int fail_failure(int err, void *ctx)
{
    say("%s!%d ", (const char *)ctx, err);
    return -ERANGE;
}

static int fail_done(void *ctx)
{
    say("%s ", (const char *)ctx);
    return -ERANGE;
}

#define OK(n)  promise_fulfilled(weft_num(n))
#define BAD(e) promise_rejected(e)

/* Checks the promise, which it consumes. */
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

static void unsettled(struct promise *p)
{
    cr_pending(p);
    promise_unref(p);
}

/* ---- making and resolving ---- */

PROMISE_TEST(conformance, trivial_promises)
{
    const int64_t values[] = {0, 1, -1, INT64_MAX, INT64_MIN};
    const int errors[] = {-1, -EINVAL, -ECANCELED, -100001};

    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        gives(OK(values[i]), values[i]);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        fails(BAD(errors[i]), errors[i]);
    gives(promise_from_result(0), 0);
    gives(promise_from_result(INT64_MAX), INT64_MAX);
    fails(promise_from_result(-EPIPE), -EPIPE);
    fails(promise_from_result(INT64_MIN), -EINVAL);
    gives(promise_fulfilled(weft_ptr(NULL)), 0);
    {
        struct promise *p = promise_fulfilled(weft_ptr(&test_log));
        union weft_value value;

        cr_assert_eq(promise_poll(p, &value, NULL), PROMISE_FULFILLED);
        cr_assert_eq(value.ptr, &test_log);
        promise_unref(p);
    }
}

PROMISE_TEST(conformance, initial_promises)
{
    for (int task = 0; task < 2; task++)
        for (int error = 0; error < 2; error++) {
            struct promise *p = task ? promise_create_task() : promise_create();

            cr_pending(p);
            if (error) {
                cr_assert_eq(promise_reject(p, -EIO), 0);
                fails(p, -EIO);
            } else {
                cr_assert_eq(promise_resolve(p, weft_num(8)), 0);
                gives(p, 8);
            }
        }
}

static int settle_again(struct promise *p, int way)
{
    switch (way) {
    case 0:
        return promise_resolve(p, weft_num(9));
    case 1:
        return promise_reject(p, -EPERM);
    case 2:
        return promise_resolve_owned(p, test_log, NULL);
    case 3:
        return promise_resolve_later(p, weft_num(9));
    case 4:
        return promise_reject_later(p, -EPERM);
    default:
        return promise_resolve_later_owned(p, test_log, NULL);
    }
}

PROMISE_TEST(conformance, double_resolve)
{
    for (int task = 0; task < 2; task++)
        for (int error = 0; error < 2; error++)
            for (int way = 0; way < 6; way++) {
                struct promise *p = task ? promise_create_task() : promise_create();

                if (error)
                    promise_reject(p, -EIO);
                else
                    promise_resolve(p, weft_num(1));
                cr_assert_eq(settle_again(p, way), -EALREADY);
                if (error)
                    fails(p, -EIO);
                else
                    gives(p, 1);
            }
}

PROMISE_TEST(conformance, resolve_canceled)
{
    for (int way = 0; way < 6; way++) {
        struct promise *p = promise_create_task();

        promise_cancel(p);
        cr_assert_eq(settle_again(p, way), 0);
        fails(p, -ECANCELED);
    }
}

/* ---- sequence ---- */

/* Everything a sequence operation can be on: settled at the call, or later. */
enum { AT_CALL, LATER };

static struct promise *operand(int when)
{
    struct promise *p = promise_create();

    if (when == AT_CALL)
        promise_resolve(p, weft_num(1));
    return p;
}

static struct promise *bad_operand(int when)
{
    struct promise *p = promise_create();

    if (when == AT_CALL)
        promise_reject(p, -EIO);
    return p;
}

/* Settles what is still pending, after the result was found pending too; consumes the operand. */
static void settle_operand(struct promise *p, struct promise *q, int error)
{
    if (is_pending(p)) {
        cr_pending(q);
        if (error)
            promise_reject(p, -EIO);
        else
            promise_resolve(p, weft_num(1));
    }
    promise_unref(p);
}

PROMISE_TEST(conformance, bind)
{
    struct promise *p, *q, *r, *three[3];

    for (int when = AT_CALL; when <= LATER; when++) {
        p = operand(when);
        q = promise_bind(promise_ref(p), tell_bind, "b");
        settle_operand(p, q, 0);
        gives(q, 1);
        told("b(1) ");
        p = operand(when);
        q = promise_bind(promise_ref(p), fail_bind, "b");
        settle_operand(p, q, 0);
        fails(q, -ERANGE);
        told("b(1) ");
        p = bad_operand(when);
        q = promise_bind(promise_ref(p), tell_bind, "never");
        settle_operand(p, q, 1);
        fails(q, -EIO);
        told("");
        r = promise_create(); /* the callback's promise is pending */
        p = operand(when);
        q = promise_bind(promise_ref(p), give_promise, r);
        settle_operand(p, q, 0);
        cr_pending(q);
        promise_resolve(r, weft_num(5));
        gives(q, 5);
        promise_unref(r);
    }
    q = promise_bind(promise_create(), tell_bind, "never"); /* never settled */
    unsettled(q);
    told("");

    p = promise_create(); /* a chain of two, and an inner one that is settled */
    r = OK(6);
    q = promise_bind(promise_bind(promise_ref(p), tell_bind, "1"), give_promise, r);
    promise_resolve(p, weft_num(1));
    told("1(1) ");
    gives(q, 6);
    promise_unref(p);
    promise_unref(r);

    p = promise_create(); /* three on one */
    for (int i = 0; i < 3; i++)
        three[i] = promise_bind(promise_ref(p), tell_bind, i == 0 ? "0" : i == 1 ? "1" : "2");
    promise_resolve(p, weft_num(4));
    told("2(4) 1(4) 0(4) ");
    for (int i = 0; i < 3; i++)
        gives(three[i], 4);
    q = promise_bind(promise_ref(p), give_promise, p); /* the very promise it was bound on */
    gives(q, 4);
    promise_unref(p);
    p = promise_create();
    q = promise_bind(promise_ref(p), give_promise, p);
    promise_resolve(p, weft_num(3));
    gives(q, 3);
    promise_unref(p);
}

static struct promise *bind_again(union weft_value value, void *ctx)
{
    return promise_bind(promise_fulfilled(weft_num(value.num + 1)), tell_bind, ctx);
}

static struct promise *own_result(union weft_value value, void *ctx)
{
    (void)value;
    return promise_ref(*(struct promise **)ctx);
}

PROMISE_TEST(conformance, bind_nested_proxies_and_cycles)
{
    struct promise *p = promise_create(), *q, *a, *b, *c, *inner;

    q = promise_bind(promise_ref(p), bind_again, "in");
    promise_resolve(p, weft_num(1));
    told("in(2) ");
    gives(q, 2);
    promise_unref(p);

    p = promise_create(); /* three made one: c <- b <- a <- inner */
    inner = promise_create();
    a = promise_bind(promise_ref(p), give_promise, inner);
    b = promise_bind(promise_ref(p), give_promise, a);
    c = promise_bind(promise_ref(p), give_promise, b);
    promise_resolve(p, weft_num(0));
    cr_pending(a);
    cr_pending(c);
    promise_resolve(inner, weft_num(7));
    gives(a, 7);
    gives(b, 7);
    gives(c, 7);
    promise_unref(inner);
    promise_unref(p);

    p = promise_create(); /* a callback that returns its own result */
    q = promise_bind(promise_ref(p), own_result, &q);
    promise_resolve(p, weft_num(0));
    promise_on_termination(q, tell_done, "never");
    told("");
    unsettled(q);
    promise_unref(p);
}

PROMISE_TEST(conformance, map)
{
    for (int when = AT_CALL; when <= LATER; when++) {
        struct promise *p = operand(when), *q = promise_map(promise_ref(p), tell_map, "m");

        settle_operand(p, q, 0);
        gives(q, 2);
        p = operand(when);
        q = promise_map(promise_ref(p), fail_map, "m");
        settle_operand(p, q, 0);
        fails(q, -ERANGE);
        told("m(1) m(1) ");
        p = bad_operand(when);
        q = promise_map(promise_ref(p), tell_map, "never");
        settle_operand(p, q, 1);
        fails(q, -EIO);
        told("");
    }
    unsettled(promise_map(promise_create(), tell_map, "never"));
}

PROMISE_TEST(conformance, catch)
{
    struct promise *p, *q, *r;

    for (int when = AT_CALL; when <= LATER; when++) {
        p = operand(when);
        q = promise_catch(promise_ref(p), tell_catch, "never");
        settle_operand(p, q, 0);
        gives(q, 1);
        p = bad_operand(when);
        q = promise_catch(promise_ref(p), tell_catch, "c");
        settle_operand(p, q, 1);
        gives(q, -EIO);
        p = bad_operand(when);
        q = promise_catch(promise_ref(p), fail_catch, "c");
        settle_operand(p, q, 1);
        fails(q, -ERANGE);
        told("c!-5 c!-5 ");
        r = promise_create();
        p = bad_operand(when);
        q = promise_catch(promise_ref(p), give_for_error, r);
        settle_operand(p, q, 1);
        cr_pending(q);
        promise_resolve(r, weft_num(2));
        gives(q, 2);
        promise_unref(r);
    }
    gives(promise_catch(promise_call(fail_thunk, "thunk"), tell_catch, "c"), -ERANGE);
    told("thunk c!-34 ");
    unsettled(promise_catch(promise_create(), tell_catch, "never"));
}

PROMISE_TEST(conformance, try_bind)
{
    struct promise *p, *q, *r;

    for (int when = AT_CALL; when <= LATER; when++) {
        p = operand(when);
        q = promise_try_bind(promise_ref(p), tell_bind, tell_catch, "t");
        settle_operand(p, q, 0);
        gives(q, 1);
        p = bad_operand(when);
        q = promise_try_bind(promise_ref(p), tell_bind, tell_catch, "t");
        settle_operand(p, q, 1);
        gives(q, -EIO);
        p = operand(when);
        q = promise_try_bind(promise_ref(p), fail_bind, tell_catch, "t");
        settle_operand(p, q, 0);
        fails(q, -ERANGE); /* the handler is not for its sibling's failure */
        p = bad_operand(when);
        q = promise_try_bind(promise_ref(p), tell_bind, fail_catch, "t");
        settle_operand(p, q, 1);
        fails(q, -ERANGE);
        told("t(1) t!-5 t(1) t!-5 ");
        for (int error = 0; error < 2; error++) {
            r = promise_create();
            p = error ? bad_operand(when) : operand(when);
            q = promise_try_bind(promise_ref(p), give_promise, give_for_error, r);
            settle_operand(p, q, error);
            cr_pending(q);
            promise_resolve(r, weft_num(2));
            gives(q, 2);
            promise_unref(r);
        }
    }
    gives(promise_try_bind(promise_call(fail_thunk, "thunk"), tell_bind, tell_catch, "t"), -ERANGE);
    told("thunk t!-34 ");
    unsettled(promise_try_bind(promise_create(), tell_bind, tell_catch, "never"));
}

PROMISE_TEST(conformance, finalize)
{
    struct promise *p, *q, *r;

    for (int when = AT_CALL; when <= LATER; when++)
        for (int error = 0; error < 2; error++) {
            p = error ? bad_operand(when) : operand(when);
            q = promise_finalize(promise_ref(p), tell_thunk, "f");
            settle_operand(p, q, error);
            if (error)
                fails(q, -EIO);
            else
                gives(q, 1);
            p = error ? bad_operand(when) : operand(when);
            q = promise_finalize(promise_ref(p), fail_thunk, "f");
            settle_operand(p, q, error);
            fails(q, -ERANGE); /* the cleanup's error wins */
            told("f f ");
            for (int cleanup_error = 0; cleanup_error < 2; cleanup_error++) {
                r = promise_create();
                p = error ? bad_operand(when) : operand(when);
                q = promise_finalize(promise_ref(p), give_for_nothing, r);
                settle_operand(p, q, error);
                cr_pending(q); /* until the cleanup is through */
                if (cleanup_error)
                    promise_reject(r, -EPERM);
                else
                    promise_resolve(r, weft_num(99));
                if (error || cleanup_error)
                    fails(q, cleanup_error ? -EPERM : -EIO);
                else
                    gives(q, 1);
                promise_unref(r);
            }
        }
    fails(promise_finalize(promise_call(fail_thunk, "thunk"), tell_thunk, "f"), -ERANGE);
    told("thunk f ");
    unsettled(promise_finalize(promise_create(), tell_thunk, "never"));
}

/* ---- the result becomes one with another promise while its callback runs ---- */

static struct promise *merge_now(void *ctx)
{
    promise_resolve(ctx, weft_num(0)); /* `outer` is one with our result from now on */
    return OK(9);
}

static struct promise *merge_bind(union weft_value value, void *ctx)
{
    (void)value;
    return merge_now(ctx);
}

static struct promise *merge_catch(int err, void *ctx)
{
    (void)err;
    return merge_now(ctx);
}

static int merge_map(union weft_value value, void *ctx, union weft_value *out)
{
    (void)value;
    promise_unref(merge_now(ctx));
    out->num = 9;
    return 0;
}

static struct promise *sequence(int op, struct promise *p, void *ctx)
{
    switch (op) {
    case 0:
        return promise_bind(p, merge_bind, ctx);
    case 1:
        return promise_map(p, merge_map, ctx);
    case 2:
        return promise_catch(p, merge_catch, ctx);
    case 3:
    case 4:
        return promise_try_bind(p, merge_bind, merge_catch, ctx);
    default:
        return promise_finalize(p, merge_now, ctx);
    }
}

PROMISE_TEST(conformance, one_with_another_while_the_callback_runs)
{
    for (int op = 0; op <= 6; op++) {
        bool error = op == 2 || op == 4 || op == 6;
        struct promise *p = promise_create(), *trigger = promise_create();
        struct promise *q = sequence(op, promise_ref(p), trigger);
        struct promise *outer = promise_bind(promise_ref(trigger), give_promise, q);

        promise_on_termination(q, tell_done, "q");
        promise_on_termination(outer, tell_done, "outer");
        if (error)
            promise_reject(p, -EIO);
        else
            promise_resolve(p, weft_num(1));
        told("outer q ");
        if (op == 6) {
            fails(q, -EIO);
            fails(outer, -EIO);
        } else {
            gives(q, op == 5 ? 1 : 9);
            gives(outer, op == 5 ? 1 : 9);
        }
        promise_unref(p);
        promise_unref(trigger);
    }
}

/* ---- on the side ---- */

/* What is told for each outcome, with `attach` before it and after. */
static void on_the_side(void (*attach)(struct promise *p, bool fail), const char *success,
                        const char *failure)
{
    for (int fail = 0; fail < 2; fail++)
        for (int error = 0; error < 2; error++)
            for (int when = AT_CALL; when <= LATER; when++) {
                struct promise *p = error ? bad_operand(when) : operand(when);
                const char *expected = error ? failure : success;
                char with_hook[64];

                promise_set_error_hook(tell_error, "hook");
                attach(p, fail);
                if (when == LATER)
                    told("");
                settle_operand(p, p, error);
                snprintf(with_hook, sizeof with_hook, "%s%s", expected,
                         fail && expected[0] != '\0' ? "hook!-34 " : "");
                told(with_hook);
            }
    {
        struct promise *p = promise_create();

        attach(p, false);
        promise_unref(p); /* never settled */
        told("");
    }
}

static void attach_success(struct promise *p, bool fail)
{
    cr_assert_eq(promise_on_success(p, fail ? fail_success : tell_success, "s"), 0);
}

static void attach_failure(struct promise *p, bool fail)
{
    cr_assert_eq(promise_on_failure(p, fail ? fail_failure : tell_failure, "f"), 0);
}

static void attach_termination(struct promise *p, bool fail)
{
    cr_assert_eq(promise_on_termination(p, fail ? fail_done : tell_done, "t"), 0);
}

static void attach_any(struct promise *p, bool fail)
{
    cr_assert_eq(promise_on_any(p, fail ? fail_success : tell_success,
                                fail ? fail_failure : tell_failure, "a"),
                 0);
}

PROMISE_TEST(conformance, on_success)
{
    on_the_side(attach_success, "s(1) ", "");
}

PROMISE_TEST(conformance, on_failure)
{
    on_the_side(attach_failure, "", "f!-5 ");
}

PROMISE_TEST(conformance, on_termination)
{
    on_the_side(attach_termination, "t ", "t ");
}

PROMISE_TEST(conformance, on_any)
{
    on_the_side(attach_any, "a(1) ", "a!-5 ");
}

PROMISE_TEST(conformance, async)
{
    struct promise *p;

    promise_set_error_hook(tell_error, "hook");
    cr_assert_eq(promise_async(promise_call(tell_thunk, "at once")), 0);
    cr_assert_eq(promise_async(promise_call(fail_thunk, "failing")), 0);
    told("at once failing hook!-34 ");
    for (int error = 0; error < 2; error++) {
        p = promise_create();
        cr_assert_eq(promise_async(promise_ref(p)), 0);
        settle_operand(p, p, error);
        told(error ? "hook!-5 " : "");
    }
}

PROMISE_TEST(conformance, dont_wait)
{
    struct promise *p;

    promise_set_error_hook(tell_error, "hook");
    promise_dont_wait(promise_call(tell_thunk, "at once"), tell_error, "h");
    promise_dont_wait(promise_call(fail_thunk, "failing"), tell_error, "h");
    told("at once failing h!-34 ");
    for (int error = 0; error < 2; error++) {
        p = promise_create();
        promise_dont_wait(promise_ref(p), tell_error, "h");
        settle_operand(p, p, error);
        told(error ? "h!-5 " : "");
    }
}

PROMISE_TEST(conformance, ignore_result)
{
    struct promise *p;

    promise_set_error_hook(tell_error, "hook");
    cr_assert_eq(promise_ignore_result(OK(1)), 0);
    cr_assert_eq(promise_ignore_result(BAD(-EIO)), -EIO);
    told("");
    for (int error = 0; error < 2; error++) {
        p = promise_create();
        cr_assert_eq(promise_ignore_result(promise_ref(p)), 0);
        settle_operand(p, p, error);
        told(error ? "hook!-5 " : "");
    }
}

/* ---- looking ---- */

PROMISE_TEST(conformance, state_query)
{
    struct promise *p = OK(1), *q = BAD(-EIO), *r = promise_create(), *trigger = promise_create();
    struct promise *proxy = promise_bind(promise_ref(trigger), give_promise, r);
    union weft_value value = weft_num(0);
    int err = 0;

    cr_assert_eq(promise_state(p), PROMISE_FULFILLED);
    cr_assert_eq(promise_state(q), PROMISE_REJECTED);
    cr_assert_eq(promise_state(r), PROMISE_PENDING);
    promise_resolve(trigger, weft_num(0));
    cr_assert_eq(promise_state(proxy), PROMISE_PENDING);
    cr_assert_eq(promise_poll(proxy, &value, &err), PROMISE_PENDING);
    promise_resolve(r, weft_num(6));
    cr_assert_eq(promise_state(proxy), PROMISE_FULFILLED);
    cr_assert_eq(promise_poll(proxy, &value, &err), PROMISE_FULFILLED);
    cr_assert_eq(value.num, 6);
    cr_assert_eq(err, 0);
    cr_assert_eq(promise_poll(q, &value, &err), PROMISE_REJECTED);
    cr_assert_eq(err, -EIO);
    promise_unref(p);
    promise_unref(q);
    promise_unref(r);
    promise_unref(proxy);
    promise_unref(trigger);
}

/* ---- wakeup and wakeup_later ---- */

static int resolve_inner(void *ctx)
{
    cr_assert_eq(promise_resolve(ctx, weft_num(2)), 0);
    say("back ");
    return 0;
}

PROMISE_TEST(conformance, wakeup)
{
    struct promise *p = promise_create(), *inner = promise_create();

    promise_on_success(inner, tell_success, "inner");
    promise_on_termination(p, resolve_inner, inner);
    promise_resolve(p, weft_num(1));
    told("inner(2) back ");
    promise_unref(p);
    promise_unref(inner);
}

static int reject;

static int settle_later(void *ctx)
{
    cr_assert_eq(reject ? promise_reject_later(ctx, -EIO) : promise_resolve_later(ctx, weft_num(2)),
                 0);
    say("%s back ", promise_state(ctx) == PROMISE_PENDING ? "?" : "settled");
    for (int way = 0; way < 6; way++)
        cr_assert_eq(settle_again(ctx, way), -EALREADY);
    return 0;
}

PROMISE_TEST(conformance, wakeup_later)
{
    for (reject = 0; reject < 2; reject++) {
        struct promise *p = promise_create(), *inner = promise_create();

        promise_on_termination(inner, tell_done, "inner");
        promise_on_termination(p, tell_done, "sibling");
        promise_on_termination(p, settle_later, inner);
        promise_resolve(p, weft_num(1));
        told("settled back sibling inner ");
        promise_unref(p);
        promise_unref(inner);

        p = promise_create(); /* at the top: at once */
        promise_on_termination(p, tell_done, "now");
        settle_later(p);
        told("now settled back ");
        promise_unref(p);
    }
}
