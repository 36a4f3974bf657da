/* Each function of weft/promise_result.h, on promises settled now and later. */
#include "test_promise_modules.h"

#include <weft/promise_result.h>

static struct promise *later(struct promise **resolver)
{
    *resolver = promise_create_task();
    return promise_ref(*resolver);
}

static void resolve(struct promise *resolver, int64_t result)
{
    if (result < 0)
        promise_reject(resolver, (int)result);
    else
        promise_resolve(resolver, weft_num(result));
    promise_unref(resolver);
}

MODULE_TEST(promise_result, to_result)
{
    struct promise *r, *p;

    cr_value(promise_to_result(promise_fulfilled(weft_num(5))), 5);
    cr_value(promise_to_result(promise_rejected(-EIO)), -EIO);
    cr_value(promise_to_result(NULL), -EINVAL);
    p = promise_to_result(later(&r));
    resolve(r, -EPIPE);
    cr_value(p, -EPIPE);
    p = promise_to_result(later(&r));
    promise_cancel(p);
    promise_unref(r);
    cr_value(p, -ECANCELED);
    return NULL;
}

MODULE_TEST(promise_result, to_result_keeps_ownership)
{
    promise_unref(promise_to_result(promise_fulfilled_owned(malloc(4), free)));
    return NULL;
}

MODULE_TEST(promise_result, check_result)
{
    struct promise *r, *p;

    cr_value(promise_check_result(promise_fulfilled(weft_num(5))), 5);
    cr_rejected(promise_check_result(promise_fulfilled(weft_num(-EIO))), -EIO);
    cr_rejected(promise_check_result(promise_fulfilled(weft_num(INT64_MIN))), -EINVAL);
    cr_rejected(promise_check_result(promise_rejected(-EPERM)), -EPERM);
    cr_rejected(promise_check_result(promise_to_result(promise_rejected(-EAGAIN))), -EAGAIN);
    p = promise_check_result(promise_to_result(later(&r)));
    resolve(r, -EPIPE);
    cr_rejected(p, -EPIPE);
    return NULL;
}

static int64_t halve(union weft_value value, void *ctx)
{
    say("%s ", (const char *)ctx);
    return value.num % 2 == 0 ? value.num / 2 : -EDOM;
}

MODULE_TEST(promise_result, bind_result)
{
    struct promise *r, *p;

    cr_value(promise_bind_result(promise_fulfilled(weft_num(8)), halve, "a"), 4);
    cr_rejected(promise_bind_result(promise_fulfilled(weft_num(7)), halve, "b"), -EDOM);
    cr_rejected(promise_bind_result(promise_rejected(-EIO), halve, "c"), -EIO);
    p = promise_bind_result(later(&r), halve, "d");
    cr_pending(p);
    resolve(r, 12);
    cr_value(p, 6);
    p = promise_bind_result(later(&r), halve, "e");
    resolve(r, 13);
    cr_rejected(p, -EDOM);
    p = promise_bind_result(later(&r), halve, "f");
    promise_cancel(p);
    promise_unref(r);
    cr_rejected(p, -ECANCELED);
    promise_unref(promise_bind_result(promise_create(), halve, "g")); /* abandoned */
    cr_rejected(promise_bind_result(promise_create(), NULL, NULL), -EINVAL);
    told("a b d e ");
    return NULL;
}

static int soften(int err, void *ctx)
{
    say("%s ", (const char *)ctx);
    return err == -EIO ? -EAGAIN : err == -EPERM ? 3 : err;
}

MODULE_TEST(promise_result, map_error)
{
    struct promise *r, *p;

    cr_value(promise_map_error(promise_fulfilled(weft_num(8)), soften, "a"), 8);
    cr_rejected(promise_map_error(promise_rejected(-EIO), soften, "b"), -EAGAIN);
    cr_rejected(promise_map_error(promise_rejected(-EPERM), soften, "c"), -EINVAL);
    p = promise_map_error(later(&r), soften, "d");
    resolve(r, -EIO);
    cr_rejected(p, -EAGAIN);
    p = promise_map_error(later(&r), soften, "e");
    resolve(r, 5);
    cr_value(p, 5);
    p = promise_map_error(later(&r), soften, "f");
    promise_cancel(p);
    promise_unref(r);
    cr_rejected(p, -ECANCELED);
    promise_unref(promise_map_error(promise_create(), soften, "g"));
    cr_rejected(promise_map_error(NULL, soften, "h"), -EINVAL);
    told("b c d f h ");
    return NULL;
}

MODULE_TEST(promise_result, map_error_keeps_ownership)
{
    struct promise *r = promise_create(), *p = promise_map_error(promise_ref(r), soften, "a");
    union weft_value value;

    promise_resolve_owned(r, malloc(8), free);
    promise_unref(r);
    cr_assert_eq(promise_poll(p, &value, NULL), PROMISE_FULFILLED);
    memset(value.ptr, 1, 8);
    promise_unref(p);
    promise_unref(promise_map_error(promise_fulfilled_owned(malloc(8), free), soften, "b"));
    return NULL;
}

static struct promise *even(union weft_value value, void *ctx)
{
    say("%s(%lld) ", (const char *)ctx, (long long)value.num);
    return value.num % 2 == 0 ? promise_fulfilled(value) : promise_rejected(-EDOM);
}

MODULE_TEST(promise_result, iter_ok)
{
    struct promise *r, *p;

    cr_value(promise_iter_ok(promise_fulfilled(weft_num(2)), even, "a"), 0);
    cr_rejected(promise_iter_ok(promise_fulfilled(weft_num(1)), even, "b"), -EDOM);
    cr_value(promise_iter_ok(promise_rejected(-EIO), even, "c"), 0);
    p = promise_iter_ok(later(&r), even, "d");
    resolve(r, 4);
    cr_value(p, 0);
    p = promise_iter_ok(later(&r), even, "e");
    resolve(r, -EIO);
    cr_value(p, 0);
    told("a(2) b(1) d(4) ");
    return NULL;
}

static struct promise *known(int err, void *ctx)
{
    say("%s(%d) ", (const char *)ctx, err);
    return err == -EIO ? promise_fulfilled(weft_num(9)) : promise_rejected(err);
}

MODULE_TEST(promise_result, iter_error)
{
    struct promise *r, *p;

    cr_value(promise_iter_error(promise_rejected(-EIO), known, "a"), 0);
    cr_rejected(promise_iter_error(promise_rejected(-1), known, "b"), -1);
    cr_value(promise_iter_error(promise_fulfilled_owned(malloc(3), free), known, "c"), 0);
    p = promise_iter_error(later(&r), known, "d");
    resolve(r, -EIO);
    cr_value(p, 0);
    p = promise_iter_error(later(&r), known, "e");
    promise_resolve_owned(r, malloc(3), free);
    promise_unref(r);
    cr_value(p, 0);
    told("a(-5) b(-1) d(-5) ");
    return NULL;
}

MODULE_TEST(promise_result, without_memory)
{
    for (size_t n = 0; n < 12; n++) {
        struct promise *r = promise_create(), *s = promise_create(), *p, *q;

        promise__fail_after(n);
        p = promise_map_error(promise_ref(r), soften, "");
        q = promise_bind_result(promise_ref(s), halve, "");
        promise__fail_after(SIZE_MAX);
        promise_reject(r, -EIO);
        promise_resolve(s, weft_num(4));
        if (promise_state(q) == PROMISE_FULFILLED)
            cr_value(q, 2);
        else
            cr_rejected(q, -ENOMEM);
        cr_assert(error_of(p) == -ENOMEM || error_of(p) == -EAGAIN);
        promise_unref(p);
        promise_unref(r);
        promise_unref(s);
        test_log[0] = '\0';
    }
    return NULL;
}
