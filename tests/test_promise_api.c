/* Each function of weft/promise.h, in the states its argument can be in. */
#include "test_promise.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__has_include)
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#endif
#endif
#ifndef RUNNING_ON_VALGRIND
#define RUNNING_ON_VALGRIND 0
#endif

/* ---- making and looking ---- */

PROMISE_TEST(api, create)
{
    struct promise *p = promise_create();

    cr_pending(p);
    promise_resolve(p, weft_num(3));
    cr_value(p, 3);
    promise_unref(p);
}

PROMISE_TEST(api, create_task)
{
    struct promise *p = promise_create_task();

    promise_cancel(p);
    cr_rejected(p, -ECANCELED);
    promise_unref(p);
}

PROMISE_TEST(api, fulfilled)
{
    struct promise *p = promise_fulfilled(weft_num(1));

    cr_value(p, 1);
    promise_unref(p);
}

PROMISE_TEST(api, rejected)
{
    struct promise *p = promise_rejected(-EIO), *odd = promise_rejected(5);

    cr_rejected(p, -EIO);
    cr_rejected(odd, -EINVAL);
    promise_unref(p);
    promise_unref(odd);
}

static void count_destroyed(void *ptr)
{
    ++*(int *)ptr;
}

PROMISE_TEST(api, fulfilled_owned)
{
    int destroyed = 0;
    union weft_value value;
    struct promise *p = promise_fulfilled_owned(&destroyed, count_destroyed);

    cr_assert_eq(promise_poll(p, &value, NULL), PROMISE_FULFILLED);
    cr_assert_eq(value.ptr, &destroyed);
    cr_assert_eq(destroyed, 0);
    promise_unref(p);
    cr_assert_eq(destroyed, 1);
    promise_unref(promise_fulfilled_owned(&destroyed, NULL));
    promise__fail_after(0);
    promise_unref(promise_fulfilled_owned(&destroyed, count_destroyed));
    promise__fail_after(SIZE_MAX);
    cr_assert_eq(destroyed, 2);
}

PROMISE_TEST(api, from_result)
{
    struct promise *p = promise_from_result(12), *q = promise_from_result(-EPIPE);

    cr_value(p, 12);
    cr_rejected(q, -EPIPE);
    promise_unref(p);
    promise_unref(q);
}

PROMISE_TEST(api, state)
{
    struct promise *p = promise_create();

    cr_assert_eq(promise_state(p), PROMISE_PENDING);
    promise_resolve(p, weft_num(1));
    cr_assert_eq(promise_state(p), PROMISE_FULFILLED);
    promise_unref(p);
    p = promise_rejected(-EIO);
    cr_assert_eq(promise_state(p), PROMISE_REJECTED);
    cr_assert_eq(promise_state(NULL), PROMISE_REJECTED);
    promise_unref(p);
}

PROMISE_TEST(api, poll)
{
    struct promise *p = promise_create();
    union weft_value value = weft_num(9);
    int err = 9;

    cr_assert_eq(promise_poll(p, &value, &err), PROMISE_PENDING);
    cr_assert_eq(value.num, 9);
    promise_reject(p, -EIO);
    cr_assert_eq(promise_poll(p, &value, &err), PROMISE_REJECTED);
    cr_assert_eq(err, -EIO);
    cr_assert_eq(promise_poll(NULL, &value, &err), PROMISE_REJECTED);
    cr_assert_eq(err, -EINVAL);
    promise_unref(p);
    p = promise_fulfilled(weft_num(4));
    cr_assert_eq(promise_poll(p, NULL, NULL), PROMISE_FULFILLED);
    cr_assert_eq(promise_poll(p, &value, &err), PROMISE_FULFILLED);
    cr_assert_eq(value.num, 4);
    promise_unref(p);
}

PROMISE_TEST(api, ref)
{
    struct promise *p = promise_create();

    cr_assert_eq(promise_ref(p), p);
    promise_unref(p);
    cr_pending(p);
    promise_unref(p);
    cr_assert_null(promise_ref(NULL));
}

PROMISE_TEST(api, unref)
{
    struct promise *p = promise_create();

    promise_unref(promise_bind(promise_ref(p), tell_bind, "never"));
    cr_assert_eq(promise__live(), 2);
    promise_unref(p);
    cr_assert_eq(promise__live(), 0);
    promise_unref(NULL);
}

PROMISE_TEST(api, resolve)
{
    struct promise *p = promise_create(), *q = promise_create_task();

    promise_on_success(p, tell_success, "p");
    cr_assert_eq(promise_resolve(p, weft_num(1)), 0);
    told("p(1) ");
    cr_assert_eq(promise_resolve(p, weft_num(0)), -EALREADY);
    promise_cancel(q);
    cr_assert_eq(promise_resolve(q, weft_num(0)), 0); /* canceled: silently nothing */
    cr_rejected(q, -ECANCELED);
    cr_assert_eq(promise_resolve(NULL, weft_num(0)), -EINVAL);
    promise_unref(p);
    promise_unref(q);
}

PROMISE_TEST(api, reject)
{
    struct promise *p = promise_create(), *q = promise_create_task();

    promise_on_failure(p, tell_failure, "p");
    cr_assert_eq(promise_reject(p, 0), -EINVAL);
    cr_assert_eq(promise_reject(p, -EIO), 0);
    told("p!-5 ");
    cr_assert_eq(promise_reject(p, -EPERM), -EALREADY);
    promise_cancel(q);
    cr_assert_eq(promise_reject(q, -EIO), 0);
    cr_rejected(q, -ECANCELED);
    cr_assert_eq(promise_reject(NULL, -EIO), -EINVAL);
    promise_unref(p);
    promise_unref(q);
}

/* Both take the value if they settle the promise, or it was canceled, and leave it if not. */
static void owned(int (*resolve)(struct promise *promise, void *ptr, void (*destroy)(void *ptr)))
{
    int destroyed = 0;
    struct promise *p = promise_create(), *q = promise_create_task();

    cr_assert_eq(resolve(p, &destroyed, count_destroyed), 0);
    cr_assert_eq(resolve(p, &destroyed, count_destroyed), -EALREADY);
    cr_assert_eq(destroyed, 0);
    promise_unref(p);
    cr_assert_eq(destroyed, 1);
    promise_cancel(q);
    cr_assert_eq(resolve(q, &destroyed, count_destroyed), 0);
    cr_assert_eq(destroyed, 2);
    cr_assert_eq(resolve(NULL, &destroyed, count_destroyed), -EINVAL);
    cr_assert_eq(destroyed, 2);
    promise_unref(q);
}

PROMISE_TEST(api, resolve_owned)
{
    owned(promise_resolve_owned);
}

PROMISE_TEST(api, resolve_later_owned)
{
    owned(promise_resolve_later_owned);
}

struct later {
    struct promise *p;
    bool reject;
};

static int settle_later(void *ctx)
{
    struct later *later = ctx;
    int rc = later->reject ? promise_reject_later(later->p, -EIO)
                           : promise_resolve_later(later->p, weft_num(2));

    say("%d:%s ", rc, is_pending(later->p) ? "?" : "settled");
    return 0;
}

/* At once at the top, after everything else in a callback. */
static void later(bool reject)
{
    struct later of = {promise_create(), reject};
    struct promise *trigger = promise_create();

    promise_on_termination(of.p, tell_done, "p");
    promise_on_termination(trigger, tell_done, "sibling");
    promise_on_termination(trigger, settle_later, &of);
    promise_resolve(trigger, weft_num(0));
    told("0:settled sibling p ");
    promise_unref(of.p);
    of.p = promise_create();
    promise_on_termination(of.p, tell_done, "p");
    settle_later(&of);
    settle_later(&of);
    told("p 0:settled -114:settled ");
    promise_unref(of.p);
    promise_unref(trigger);
}

PROMISE_TEST(api, resolve_later)
{
    later(false);
    cr_assert_eq(promise_resolve_later(NULL, weft_num(0)), -EINVAL);
}

PROMISE_TEST(api, reject_later)
{
    struct promise *p = promise_create();

    later(true);
    cr_assert_eq(promise_reject_later(p, 1), -EINVAL);
    cr_pending(p);
    promise_unref(p);
}

PROMISE_TEST(api, only_resolvers_settle)
{
    struct promise *p = promise_create(), *q = promise_bind(promise_ref(p), tell_bind, "");
    struct promise *r = promise_create(), *outer = promise_bind(promise_ref(p), give_promise, r);

    cr_assert_eq(promise_resolve(q, weft_num(0)), -EINVAL);
    promise_resolve(p, weft_num(0));
    cr_assert_eq(promise_resolve(outer, weft_num(0)),
                 -EINVAL); /* one with r, but not its resolver */
    cr_assert_eq(promise_resolve(r, weft_num(1)), 0);
    cr_value(outer, 1);
    test_log[0] = '\0';
    promise_unref(p);
    promise_unref(q);
    promise_unref(r);
    promise_unref(outer);
}

/* ---- sequence ---- */

static int fail_map(union weft_value in, void *ctx, union weft_value *out)
{
    (void)in;
    (void)ctx;
    (void)out;
    return -ERANGE;
}

static struct promise *fail_bind(union weft_value value, void *ctx)
{
    (void)value;
    (void)ctx;
    return promise_rejected(-ERANGE);
}

static struct promise *no_promise(union weft_value value, void *ctx)
{
    (void)value;
    (void)ctx;
    return NULL;
}

PROMISE_TEST(api, bind)
{
    struct promise *p, *q;

    p = promise_bind(promise_rejected(-EIO), tell_bind, "never");
    cr_rejected(p, -EIO);
    promise_unref(p);
    p = promise_bind(promise_fulfilled(weft_num(1)), fail_bind, NULL);
    cr_rejected(p, -ERANGE);
    promise_unref(p);
    p = promise_bind(NULL, tell_bind, "never");
    cr_rejected(p, -EINVAL);
    promise_unref(p);
    q = promise_create();
    p = promise_bind(promise_ref(q), no_promise, NULL);
    promise_resolve(q, weft_num(0));
    cr_rejected(p, -EINVAL);
    promise_unref(p);
    promise_unref(q);
    told("");
}

PROMISE_TEST(api, map)
{
    struct promise *p, *q = promise_create(), *r;

    p = promise_map(promise_fulfilled(weft_num(1)), tell_map, "m");
    cr_value(p, 2);
    promise_unref(p);
    p = promise_map(promise_fulfilled(weft_num(1)), fail_map, NULL);
    cr_rejected(p, -ERANGE);
    promise_unref(p);
    p = promise_map(promise_ref(q), fail_map, NULL);
    r = promise_map(promise_ref(q), tell_map, "m");
    promise_resolve(q, weft_num(5));
    cr_rejected(p, -ERANGE);
    cr_value(r, 6);
    told("m(1) m(5) ");
    promise_unref(p);
    promise_unref(q);
    promise_unref(r);
}

PROMISE_TEST(api, catch)
{
    struct promise *p, *q = promise_create();

    p = promise_catch(promise_fulfilled(weft_num(1)), tell_catch, "c");
    cr_value(p, 1);
    promise_unref(p);
    p = promise_catch(promise_rejected(-EIO), tell_catch, "c");
    cr_value(p, -EIO);
    promise_unref(p);
    p = promise_catch(promise_ref(q), tell_catch, "c");
    promise_reject(q, -EPERM);
    cr_value(p, -EPERM);
    told("c!-5 c!-1 ");
    promise_unref(p);
    promise_unref(q);
}

PROMISE_TEST(api, try_bind)
{
    struct promise *p, *a = promise_create(), *b = promise_create();

    promise_unref(promise_try_bind(promise_fulfilled(weft_num(1)), tell_bind, tell_catch, "t"));
    promise_unref(promise_try_bind(promise_rejected(-EIO), tell_bind, tell_catch, "t"));
    p = promise_try_bind(promise_ref(a), tell_bind, tell_catch, "a");
    promise_unref(promise_try_bind(promise_ref(b), tell_bind, tell_catch, "b"));
    promise_resolve(a, weft_num(2));
    promise_reject(b, -EIO);
    told("t(1) t!-5 a(2) b!-5 ");
    cr_value(p, 2);
    promise_unref(p);
    promise_unref(a);
    promise_unref(b);
    a = promise_create();
    promise_unref(promise_try_bind(a, tell_bind, tell_catch, "dropped"));
}

static struct promise *give_ref(void *ctx)
{
    return promise_ref(ctx);
}

PROMISE_TEST(api, finalize)
{
    struct promise *cleanup = promise_create_task(), *p = promise_create(), *q, *r, *bad;

    q = promise_finalize(promise_fulfilled(weft_num(4)), give_ref, cleanup);
    r = promise_finalize(promise_ref(p), give_ref, cleanup);
    promise_resolve(p, weft_num(5));
    cr_pending(q);
    cr_pending(r);
    promise_resolve(cleanup, weft_num(0));
    cr_value(q, 4);
    cr_value(r, 5);
    promise_unref(q);
    promise_unref(r);
    promise_unref(cleanup);
    cleanup = promise_create_task();
    q = promise_finalize(promise_ref(p), give_ref, cleanup);
    promise_cancel(q); /* reaches the cleanup, whose error then wins */
    cr_rejected(cleanup, -ECANCELED);
    cr_rejected(q, -ECANCELED);
    promise_unref(q);
    promise_unref(cleanup);
    bad = promise_rejected(-ERANGE);
    q = promise_finalize(promise_rejected(-EIO), give_ref, bad);
    cr_rejected(q, -ERANGE);
    promise_unref(q);
    promise_unref(bad);
    promise_unref(p);
}

PROMISE_TEST(api, call)
{
    struct promise *p = promise_call(tell_thunk, "now");

    told("now ");
    promise_unref(p);
}

/* ---- on the side ---- */

static int fail_done(void *ctx)
{
    (void)ctx;
    return -ECHILD;
}

/* ok, bad, canceled: settled before, or with `when` after, the callback is attached. */
static void side(void (*attach)(struct promise *p), const char *at_once, const char *later)
{
    for (int when = 0; when < 2; when++) {
        struct promise *list[3];

        for (int i = 0; i < 3; i++) {
            list[i] = promise_create();
            if (when == 1)
                attach(list[i]);
            if (i == 0)
                promise_resolve(list[i], weft_num(1));
            else
                promise_reject(list[i], i == 1 ? -EIO : -ECANCELED);
            if (when == 0)
                attach(list[i]);
            say("| ");
            promise_unref(list[i]);
        }
        told(when == 0 ? at_once : later);
    }
}

static void attach_success(struct promise *p)
{
    cr_assert_eq(promise_on_success(p, tell_success, "s"), 0);
}

PROMISE_TEST(api, on_success)
{
    side(attach_success, "s(1) | | | ", "s(1) | | | ");
    cr_assert_eq(promise_on_success(NULL, tell_success, ""), -EINVAL);
}

static void attach_failure(struct promise *p)
{
    cr_assert_eq(promise_on_failure(p, tell_failure, "f"), 0);
}

PROMISE_TEST(api, on_failure)
{
    side(attach_failure, "| f!-5 | f!-125 | ", "| f!-5 | f!-125 | ");
    cr_assert_eq(promise_on_failure(NULL, tell_failure, ""), -EINVAL);
}

static void attach_termination(struct promise *p)
{
    cr_assert_eq(promise_on_termination(p, tell_done, "t"), 0);
}

PROMISE_TEST(api, on_termination)
{
    side(attach_termination, "t | t | t | ", "t | t | t | ");
    cr_assert_eq(promise_on_termination(NULL, tell_done, ""), -EINVAL);
}

static void attach_any(struct promise *p)
{
    cr_assert_eq(promise_on_any(p, tell_success, tell_failure, "a"), 0);
    cr_assert_eq(promise_on_any(p, NULL, NULL, NULL), 0); /* NULL functions are skipped */
}

PROMISE_TEST(api, on_any)
{
    side(attach_any, "a(1) | a!-5 | a!-125 | ", "a(1) | a!-5 | a!-125 | ");
    cr_assert_eq(promise_on_any(NULL, tell_success, tell_failure, ""), -EINVAL);
}

static void attach_cancel(struct promise *p)
{
    promise_on_termination(p, tell_done, "t");
    cr_assert_eq(promise_on_cancel(p, tell_done, "c"), 0);
    promise_on_termination(p, tell_done, "t");
}

PROMISE_TEST(api, on_cancel)
{
    side(attach_cancel, "t t | t t | t c t | ", "t t | t t | c t t | ");
    cr_assert_eq(promise_on_cancel(NULL, tell_done, ""), -EINVAL);
}

PROMISE_TEST(api, on_callbacks_at_once)
{
    struct promise *ok = promise_fulfilled(weft_num(1)), *bad = promise_rejected(-EIO);
    struct promise *canceled = promise_rejected(-ECANCELED), *list[] = {ok, bad, canceled};

    for (int i = 0; i < 3; i++) {
        promise_on_success(list[i], tell_success, "s");
        promise_on_failure(list[i], tell_failure, "f");
        promise_on_termination(list[i], tell_done, "t");
        promise_on_any(list[i], tell_success, tell_failure, "a");
        promise_on_cancel(list[i], tell_done, "c");
        say("| ");
    }
    told("s(1) t a(1) | f!-5 t a!-5 | f!-125 t a!-125 c | ");
    promise_unref(ok);
    promise_unref(bad);
    promise_unref(canceled);
    cr_assert_eq(promise_on_success(NULL, tell_success, ""), -EINVAL);
}

PROMISE_TEST(api, on_callbacks_later)
{
    struct promise *list[3] = {promise_create(), promise_create(), promise_create()};

    for (int i = 0; i < 3; i++) {
        promise_on_success(list[i], tell_success, "s");
        promise_on_failure(list[i], tell_failure, "f");
        promise_on_termination(list[i], tell_done, "t");
        promise_on_any(list[i], tell_success, NULL, "a");
        promise_on_cancel(list[i], tell_done, "c");
    }
    promise_resolve(list[0], weft_num(1));
    promise_reject(list[1], -EIO);
    promise_reject(list[2], -ECANCELED);
    told("a(1) t s(1) t f!-5 c t f!-125 ");
    for (int i = 0; i < 3; i++)
        promise_unref(list[i]);
}

PROMISE_TEST(api, set_error_hook)
{
    struct promise *p = promise_create();

    cr_assert_eq(promise_set_error_hook(tell_error, "hook"), 0);
    promise_on_termination(p, fail_done, NULL);
    promise_resolve(p, weft_num(0));
    promise_on_termination(p, fail_done, NULL);
    told("hook!-10 hook!-10 ");
    promise_unref(p);
}

PROMISE_TEST(api, async)
{
    struct promise *p = promise_create();

    promise_set_error_hook(tell_error, "hook");
    cr_assert_eq(promise_async(promise_ref(p)), 0);
    cr_assert_eq(promise_async(promise_fulfilled(weft_num(0))), 0);
    promise_async(promise_rejected(-EIO));
    promise_async(NULL);
    promise_reject(p, -EPERM);
    told("hook!-5 hook!-22 hook!-1 ");
    promise_unref(p);
}

PROMISE_TEST(api, dont_wait)
{
    struct promise *p = promise_create(), *q = promise_create();

    promise_dont_wait(promise_ref(p), tell_error, "p");
    promise_dont_wait(promise_ref(q), tell_error, "q");
    promise_dont_wait(promise_rejected(-EIO), tell_error, "now");
    promise_reject(p, -EPERM);
    promise_resolve(q, weft_num(0));
    told("now!-5 p!-1 ");
    promise_unref(p);
    promise_unref(q);
}

PROMISE_TEST(api, ignore_result)
{
    struct promise *p = promise_create();

    promise_set_error_hook(tell_error, "hook");
    cr_assert_eq(promise_ignore_result(promise_rejected(-EIO)), -EIO);
    cr_assert_eq(promise_ignore_result(promise_fulfilled(weft_num(0))), 0);
    cr_assert_eq(promise_ignore_result(NULL), -EINVAL);
    cr_assert_eq(promise_ignore_result(promise_ref(p)), 0);
    promise_reject(p, -EPERM);
    told("hook!-1 ");
    promise_unref(p);
}

static void die_of_an_error(void)
{
    promise_async(promise_rejected(-EIO));
}

Test(api, default_error_hook)
{
    int status = 0;
    pid_t child;

    if (RUNNING_ON_VALGRIND) /* it would report what Criterion has not freed when the child exits */
        return;
    child = fork();
    if (child == 0) {
        in_runtime(die_of_an_error);
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status));
    cr_assert_eq(WEXITSTATUS(status), 2);
}

/* ---- many ---- */

PROMISE_TEST(api, all)
{
    struct promise *p[3] = {promise_create(), promise_fulfilled(weft_num(2)), promise_create()};
    struct promise *q;
    const struct promise_values *values;

    for (int i = 0; i < 3; i++)
        promise_ref(p[i]);
    q = promise_all(p, 3);
    promise_resolve(p[2], weft_num(3));
    promise_resolve(p[0], weft_num(1));
    values = (const void *)(intptr_t)value_of_promise(q);
    cr_assert_eq(values->count, 3);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(values->value[i].num, i + 1);
        promise_unref(p[i]);
    }
    promise_unref(q);
    q = promise_all(NULL, 1);
    cr_rejected(q, -EINVAL);
    promise_unref(q);
}

PROMISE_TEST(api, both)
{
    struct promise *p = promise_create();
    struct promise *q = promise_both(promise_fulfilled(weft_num(1)), promise_ref(p));
    const struct promise_values *pair;

    cr_pending(q);
    promise_resolve(p, weft_num(2));
    pair = (const void *)(intptr_t)value_of_promise(q);
    cr_assert_eq(pair->count, 2);
    cr_assert_eq(pair->value[0].num, 1);
    cr_assert_eq(pair->value[1].num, 2);
    cr_assert_eq(pair->source[1], p);
    promise_unref(q);
    promise_unref(p);
    q = promise_both(promise_fulfilled(weft_num(1)), NULL);
    cr_rejected(q, -EINVAL);
    promise_unref(q);
}

PROMISE_TEST(api, join)
{
    struct promise *p[2] = {promise_fulfilled(weft_num(1)), promise_create()}, *q;

    promise_ref(p[1]);
    q = promise_join(p, 2);
    cr_pending(q);
    promise_resolve(p[1], weft_num(0));
    cr_value(q, 0);
    promise_unref(q);
    promise_unref(p[1]);
}

PROMISE_TEST(api, one_promise_twice)
{
    struct promise *(*const ops[])(struct promise *const[], size_t) = {
        promise_join,  promise_choose,        promise_pick, promise_nchoose,
        promise_npick, promise_nchoose_split, promise_all};

    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        struct promise *p = promise_create(), *const twice[] = {promise_ref(p), promise_ref(p)};
        struct promise *q = ops[i](twice, 2);

        promise_resolve(p, weft_num(1));
        cr_assert_eq(promise_state(q), PROMISE_FULFILLED);
        if (i >= 3) {
            const struct promise_values *values = (const void *)(intptr_t)value_of_promise(q);

            cr_assert_eq(values->count, 2);
        }
        promise_unref(q);
        promise_unref(p);
    }
}

typedef struct promise *race_fn(struct promise *const[], size_t);

static struct promise *race2(race_fn *race, struct promise *a, struct promise *b)
{
    struct promise *const list[] = {promise_ref(a), promise_ref(b)};

    return race(list, 2);
}

/* b wins; afterwards a is canceled or not. The result is the caller's. */
static struct promise *won(race_fn *race, bool cancels)
{
    struct promise *a = promise_create_task(), *b = promise_create(), *q = race2(race, a, b);

    cr_pending(q);
    promise_resolve(b, weft_num(6));
    cr_assert_eq(is_pending(a), !cancels);
    promise_unref(a);
    promise_unref(b);
    return q;
}

static void fails_with(struct promise *q, int err)
{
    cr_rejected(q, err);
    promise_unref(q);
}

/* A rejected operand, here the second, and no operands. */
static void lost(race_fn *race)
{
    struct promise *ok = promise_fulfilled(weft_num(1)), *bad = promise_rejected(-EIO);

    fails_with(race2(race, ok, bad), -EIO);
    fails_with(race2(race, ok, NULL), -EINVAL);
    fails_with(race(NULL, 0), -EINVAL);
    fails_with(race(NULL, 2), -EINVAL);
    promise_unref(ok);
    promise_unref(bad);
}

PROMISE_TEST(api, choose)
{
    struct promise *q = won(promise_choose, false);

    cr_value(q, 6);
    promise_unref(q);
    lost(promise_choose);
}

PROMISE_TEST(api, pick)
{
    struct promise *q = won(promise_pick, true);

    cr_value(q, 6);
    promise_unref(q);
    lost(promise_pick);
}

static void one_value(struct promise *q)
{
    const struct promise_values *values = (const void *)(intptr_t)value_of_promise(q);

    cr_assert_eq(values->count, 1);
    cr_assert_eq(values->value[0].num, 6);
    promise_unref(q);
}

PROMISE_TEST(api, nchoose)
{
    one_value(won(promise_nchoose, false));
    lost(promise_nchoose);
}

PROMISE_TEST(api, npick)
{
    one_value(won(promise_npick, true));
    lost(promise_npick);
}

PROMISE_TEST(api, nchoose_split)
{
    struct promise *q = won(promise_nchoose_split, false);
    const struct promise_split *split = (const void *)(intptr_t)value_of_promise(q);

    cr_assert_eq(split->values.count, 1);
    cr_assert_eq(split->values.value[0].num, 6);
    cr_assert_eq(split->pending_count, 1);
    cr_pending(split->pending[0]);
    promise_unref(q);
    lost(promise_nchoose_split);
}

static int keep_value(union weft_value value, void *ctx, union weft_value *out)
{
    *(void **)ctx = value.ptr; /* the last reference: it is ours now */
    *out = weft_num(0);
    return 0;
}

PROMISE_TEST(api, values_destroy)
{
    struct promise *p = promise_create(), *list[] = {promise_ref(p)};
    void *values = NULL;
    struct promise *q;

    promise_resolve(p, weft_num(1));
    q = promise_map(promise_all(list, 1), keep_value, &values);
    promise_unref(q);
    cr_assert_eq(p->link.count, 2);
    promise_values_destroy(values);
    cr_assert_eq(p->link.count, 1);
    promise_values_destroy(NULL);
    promise_unref(p);
}

PROMISE_TEST(api, split_destroy)
{
    struct promise *p = promise_create(), *left = promise_create();
    struct promise *list[] = {promise_ref(p), promise_ref(left)};
    void *split = NULL;

    promise_resolve(p, weft_num(1));
    promise_unref(promise_map(promise_nchoose_split(list, 2), keep_value, &split));
    cr_assert_eq(p->link.count + left->link.count, 4);
    promise_split_destroy(split);
    cr_assert_eq(p->link.count + left->link.count, 2);
    promise_split_destroy(NULL);
    promise_unref(p);
    promise_unref(left);
}

PROMISE_TEST(api, choose_and_nchoose_split_at_the_call)
{
    struct promise *p[4] = {promise_create(), promise_fulfilled(weft_num(1)), promise_create(),
                            promise_fulfilled(weft_num(2))};
    struct promise *q, *r;
    const struct promise_split *split;

    for (int i = 0; i < 4; i++) {
        promise_ref(p[i]);
        promise_ref(p[i]);
    }
    q = promise_choose(p, 4);
    cr_value(q, 1);
    r = promise_nchoose_split(p, 4);
    split = (const void *)(intptr_t)value_of_promise(r);
    cr_assert_eq(split->values.count, 2);
    cr_assert_eq(split->pending_count, 2);
    cr_assert_eq(split->pending[0], p[2]); /* backwards, here */
    cr_assert_eq(split->pending[1], p[0]);
    promise_unref(q);
    promise_unref(r);
    for (int i = 0; i < 4; i++)
        promise_unref(p[i]);
}

/* ---- cancel ---- */

PROMISE_TEST(api, cancel)
{
    struct promise *p = promise_fulfilled(weft_num(1)), *shared = promise_create_task();
    struct promise *q = promise_both(promise_bind(promise_ref(shared), tell_bind, ""),
                                     promise_bind(promise_ref(shared), tell_bind, ""));

    promise_cancel(NULL);
    promise_cancel(p);
    cr_value(p, 1);
    promise_on_cancel(shared, tell_done, "once");
    promise_cancel(q);
    told("once ");
    cr_rejected(q, -ECANCELED);
    promise_cancel(q);
    promise_unref(p);
    promise_unref(q);
    promise_unref(shared);
}

static struct promise *depends_on_itself(union weft_value value, void *ctx)
{
    (void)value;
    return promise_bind(promise_ref(*(struct promise **)ctx), tell_bind, "never");
}

PROMISE_TEST(api, cancel_of_a_circle_ends)
{
    struct promise *p = promise_create(), *q = NULL, *r;

    q = promise_bind(promise_ref(p), depends_on_itself, &q);
    promise_resolve(p, weft_num(0));
    cr_pending(q);
    promise_cancel(q);
    cr_pending(q);
    r = promise_both(promise_ref(q), promise_create_task());
    promise_cancel(r);
    promise_unref(r);
    promise_unref(p);
    promise_unref(q);
}

PROMISE_TEST(api, protected_canceled_with_its_original)
{
    struct promise *p = promise_create_task(), *q = promise_protected(promise_ref(p));
    struct promise *r = promise_both(promise_ref(q), promise_ref(p));

    promise_cancel(r); /* Lwt crashes here */
    cr_rejected(p, -ECANCELED);
    cr_rejected(q, -ECANCELED);
    cr_rejected(r, -ECANCELED);
    promise_unref(p);
    promise_unref(q);
    promise_unref(r);
}

/* The table of the three wrappers. */
static void wrapper(struct promise *(*wrap)(struct promise *promise), bool rejects, bool reaches)
{
    struct promise *p = promise_create_task(), *q = wrap(promise_ref(p));

    promise_cancel(q);
    cr_assert_eq(is_pending(q), !rejects);
    cr_assert_eq(is_pending(p), !reaches);
    promise_unref(q);
    q = wrap(promise_ref(p));
    promise_resolve(p, weft_num(1));
    if (!reaches)
        cr_value(q, 1);
    promise_unref(p);
    promise_unref(q);
    q = wrap(NULL);
    cr_rejected(q, -EINVAL);
}

PROMISE_TEST(api, protected)
{
    wrapper(promise_protected, true, false);
}

PROMISE_TEST(api, no_cancel)
{
    wrapper(promise_no_cancel, false, false);
}

PROMISE_TEST(api, wrap_in_cancelable)
{
    wrapper(promise_wrap_in_cancelable, true, true);
}

/* ---- queues ---- */

PROMISE_TEST(api, queue_init)
{
    struct promise_queue queue;

    memset(&queue, 0xff, sizeof queue);
    promise_queue_init(&queue);
    cr_assert(promise_queue_empty(&queue));
    promise_queue_finish(&queue);
}

PROMISE_TEST(api, queue_finish)
{
    struct promise_queue queue;
    struct promise *p;

    promise_queue_init(&queue);
    p = promise_queue_append(&queue);
    promise_queue_finish(&queue);
    cr_assert(promise_queue_empty(&queue));
    cr_pending(p);
    cr_assert_eq(p->link.count, 1);
    promise_unref(p);
}

PROMISE_TEST(api, queue_empty)
{
    struct promise_queue queue;
    struct promise *p;

    promise_queue_init(&queue);
    cr_assert(promise_queue_empty(&queue));
    p = promise_queue_append(&queue);
    cr_assert(!promise_queue_empty(&queue));
    promise_cancel(p);
    cr_assert(promise_queue_empty(&queue));
    promise_unref(p);
}

PROMISE_TEST(api, queue_append)
{
    struct promise_queue queue;
    struct promise *a, *b, *none = promise_queue_append(NULL);

    cr_rejected(none, -EINVAL);
    promise_queue_init(&queue);
    a = promise_queue_append(&queue);
    b = promise_queue_append(&queue);
    cr_assert_eq(promise_resolve(a, weft_num(1)), 0); /* settled, it leaves too */
    cr_assert_eq(promise_queue_take(&queue), b);
    promise_unref(a);
    promise_unref(b);
    promise_unref(b);
}

PROMISE_TEST(api, queue_prepend)
{
    struct promise_queue queue;
    struct promise *a, *b;

    promise_queue_init(&queue);
    a = promise_queue_append(&queue);
    b = promise_queue_prepend(&queue);
    cr_assert_eq(promise_queue_take(&queue), b);
    promise_queue_finish(&queue);
    promise_unref(a);
    promise_unref(b);
    promise_unref(b);
}

PROMISE_TEST(api, queue_take)
{
    struct promise_queue queue;
    struct promise *p, *taken;

    promise_queue_init(&queue);
    cr_assert_null(promise_queue_take(&queue));
    p = promise_queue_append(&queue);
    taken = promise_queue_take(&queue);
    cr_assert_eq(taken, p);
    cr_assert_null(promise_queue_take(&queue));
    cr_assert_eq(promise_resolve(taken, weft_num(3)), 0);
    cr_value(p, 3);
    promise_unref(taken);
    promise_unref(p);
}

PROMISE_TEST(api, queue)
{
    struct promise_queue queue;
    struct promise *a, *b, *c, *taken;

    promise_queue_init(&queue);
    cr_assert(promise_queue_empty(&queue));
    cr_assert_null(promise_queue_take(&queue));
    a = promise_queue_append(&queue);
    b = promise_queue_append(&queue);
    c = promise_queue_prepend(&queue);
    promise_cancel(a); /* leaves by itself */
    taken = promise_queue_take(&queue);
    cr_assert_eq(taken, c);
    cr_assert_eq(promise_resolve_later(taken, weft_num(1)), 0);
    promise_cancel(c); /* too late */
    cr_value(c, 1);
    promise_unref(taken);
    promise_queue_finish(&queue);
    cr_pending(b);
    promise_unref(a);
    promise_unref(b);
    promise_unref(c);
}

PROMISE_TEST(api, queued_task_returned_by_a_callback)
{
    struct promise_queue queue;
    struct promise *trigger = promise_create(), *task, *q, *taken;

    promise_queue_init(&queue);
    task = promise_queue_append(&queue);
    promise_unref(promise_queue_append(&queue));
    q = promise_bind(promise_ref(trigger), give_promise, task);
    promise_unref(task);
    promise_resolve(trigger, weft_num(0));
    taken = promise_queue_take(&queue);
    cr_assert_eq(promise_resolve(taken, weft_num(8)), 0);
    promise_unref(taken);
    cr_value(q, 8);
    promise_queue_finish(&queue);
    promise_unref(q);
    promise_unref(trigger);
}

/* ---- pause, sleep, run ---- */

PROMISE_TEST(api, pause)
{
    struct promise *p = promise_pause();

    cr_pending(p);
    promise_wakeup_paused();
    cr_value(p, 0);
    promise_unref(p);
    p = promise_pause();
    promise_cancel(p);
    cr_rejected(p, -ECANCELED);
    promise_unref(p);
    promise_wakeup_paused();
}

PROMISE_TEST(api, paused_count)
{
    cr_assert_eq(promise_paused_count(), 0);
    promise_unref(promise_pause());
    promise_unref(promise_pause());
    cr_assert_eq(promise_paused_count(), 2);
    promise_wakeup_paused();
    cr_assert_eq(promise_paused_count(), 0);
}

PROMISE_TEST(api, set_pause_notifier)
{
    cr_assert_eq(promise_set_pause_notifier(tell_count, "n"), 0);
    promise_unref(promise_pause());
    promise_unref(promise_pause());
    told("n1 n2 ");
    cr_assert_eq(promise_set_pause_notifier(NULL, NULL), 0);
    promise_unref(promise_pause());
    told("");
    promise_wakeup_paused();
}

PROMISE_TEST(api, wakeup_paused)
{
    struct promise *p = promise_pause(), *q = promise_pause();

    promise_on_termination(q, tell_done, "q");
    promise_on_termination(p, tell_done, "p");
    promise_wakeup_paused();
    told("p q ");
    promise_unref(p);
    promise_unref(q);
    promise_wakeup_paused();
}

PROMISE_TEST(api, abandon_paused)
{
    struct promise *p = promise_pause();

    promise_abandon_paused();
    cr_assert_eq(promise_paused_count(), 0);
    promise_wakeup_paused();
    cr_pending(p);
    promise_unref(p);
}

PROMISE_TEST(api, notifier_may_pause_and_wake)
{
    struct promise *p = promise_pause();

    promise_set_pause_notifier(tell_count, "n");
    promise_wakeup_paused();
    cr_value(p, 0);
    promise_unref(p);
    p = promise_pause();
    told("n1 ");
    promise_cancel(p);
    promise_unref(p);
    promise_wakeup_paused();
}

static struct promise *tell_slept(union weft_value value, void *ctx)
{
    say("slept ");
    return promise_fulfilled(ctx != NULL ? weft_ptr(ctx) : value);
}

static struct promise *sleeper(void *arg)
{
    struct promise *canceled = promise_sleep(WEFT_SEC(1000));

    promise_cancel(canceled);
    cr_rejected(canceled, -ECANCELED);
    promise_unref(canceled);
    return promise_bind(promise_sleep(WEFT_MS(2)), tell_slept, arg);
}

Test(api, sleep)
{
    weft_time start = weft_now();
    union weft_value value = weft_num(0);
    int local;

    cr_assert_eq(promise_run(sleeper, &local, NULL, &value), 0);
    cr_assert_eq(value.ptr, &local);
    cr_assert_geq(weft_now() - start, WEFT_MS(2));
    told("slept ");
}

static struct promise *sleep_merged(void *arg)
{
    struct promise *trigger = promise_create(), *sleeping = promise_sleep(WEFT_SEC(1000)), *q;

    (void)arg;
    q = promise_bind(promise_ref(trigger), give_promise, sleeping);
    promise_resolve(trigger, weft_num(0));
    promise_unref(trigger);
    promise_cancel(q); /* reaches the timer through what q has become */
    cr_rejected(q, -ECANCELED);
    cr_rejected(sleeping, -ECANCELED);
    promise_unref(sleeping);
    promise_unref(q);
    cr_assert_eq(promise__live(), 0);
    return promise_rejected(-ERANGE);
}

static struct promise *sleep_until_then(void *at)
{
    return promise_bind(promise_sleep_until(*(weft_time *)at), tell_slept, NULL);
}

Test(api, sleep_until)
{
    weft_time at = weft_now() + WEFT_MS(3);

    cr_assert_eq(promise_run(sleep_until_then, &at, NULL, NULL), 0);
    cr_assert_geq(weft_now(), at);
    cr_assert_eq(promise_run(sleep_until_then, &at, NULL, NULL), 0); /* past: at the next poll */
    told("slept slept ");
}

static struct promise *give_number(void *arg)
{
    return promise_fulfilled(weft_num(*(int *)arg));
}

static struct promise *run_again(void *arg)
{
    return promise_from_result(promise_run(give_number, arg, NULL, NULL));
}

Test(api, run)
{
    union weft_value value = weft_num(0);
    struct weft_options options = WEFT_OPTIONS_INIT;
    int number = 12;

    cr_assert_eq(promise_run(give_number, &number, NULL, &value), 0);
    cr_assert_eq(value.num, 12);
    cr_assert_eq(promise_run(give_number, &number, NULL, NULL), 0);
    options.engine = "none such";
    options.report = quiet_report;
    cr_assert_eq(promise_run(give_number, &number, &options, NULL), -EINVAL);
    cr_assert_eq(promise_run(run_again, &number, NULL, NULL), -EBUSY);
}

Test(api, run_returns_the_error)
{
    cr_assert_eq(promise_run(sleep_merged, NULL, NULL, NULL), -ERANGE);
}

static struct promise *never(void *arg)
{
    (void)arg;
    return promise_create();
}

static struct promise *nothing(void *arg)
{
    (void)arg;
    return NULL;
}

Test(api, run_reports_a_deadlock)
{
    struct weft_options options = WEFT_OPTIONS_INIT;

    options.report = quiet_report;
    cr_assert_eq(promise_run(never, NULL, &options, NULL), -EDEADLK);
    cr_assert_eq(promise_run(nothing, NULL, &options, NULL), -EINVAL);
    cr_assert_eq(promise_run(NULL, NULL, &options, NULL), -EINVAL);
}

static struct promise *pause_many(union weft_value value, void *ctx)
{
    int *left = ctx;

    return --*left == 0 ? promise_fulfilled(value) : promise_bind(promise_pause(), pause_many, ctx);
}

static struct promise *pause_main(void *arg)
{
    return promise_bind(promise_pause(), pause_many, arg);
}

Test(api, the_runtime_wakes_paused_promises)
{
    int left = 1000;

    cr_assert_eq(promise_run(pause_main, &left, NULL, NULL), 0);
    cr_assert_eq(left, 0);
}

static const struct weft_key key = {.name = "key"};

static void tell_bound(void *ctx)
{
    (void)ctx;
    say("%s ", (const char *)weft_get(&key));
}

PROMISE_TEST(api, with_value)
{
    cr_assert_eq(promise_with_value(&key, "x", tell_bound, NULL), 0);
    cr_assert_null(weft_get(&key));
    told("x ");
    cr_assert_eq(promise_with_value(NULL, "x", tell_bound, NULL), -EINVAL);
}

Test(api, without_a_runtime)
{
    struct promise *p = promise_create(), *const list[] = {p};

    cr_rejected(p, -EINVAL);
    promise_unref(p);
    cr_rejected(promise_bind(promise_fulfilled(weft_num(0)), tell_bind, ""), -EINVAL);
    cr_rejected(promise_all(list, 1), -EINVAL);
    cr_rejected(promise_pause(), -EINVAL);
    cr_rejected(promise_sleep(1), -EINVAL);
    cr_assert_eq(promise_resolve(p, weft_num(0)), -EINVAL);
    cr_assert_eq(promise_on_success(p, tell_success, ""), -EINVAL);
    cr_assert_eq(promise_paused_count(), 0);
    promise_cancel(p);
    promise_wakeup_paused();
    promise_abandon_paused();
    cr_assert_eq(promise_with_value(&key, "x", tell_bound, NULL), -EINVAL);
    cr_assert_eq(promise_set_error_hook(NULL, NULL), -EINVAL);
}
