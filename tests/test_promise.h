/* test_promise.h: what the promise tests share.
 *
 * PROMISE_TEST runs its body as a callback on the base stack of a runtime of its own, and checks
 * that the body leaves no block behind. Bodies tell what happens with say() and compare with
 * told().
 */
#ifndef TEST_PROMISE_H
#define TEST_PROMISE_H

#include <criterion/criterion.h>

#include <weft/promise.h>

#include "promise_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static char test_log[8192];

static inline __attribute__((format(printf, 1, 2))) void say(const char *format, ...)
{
    size_t used = strlen(test_log);
    va_list args;

    va_start(args, format);
    vsnprintf(test_log + used, sizeof test_log - used, format, args);
    va_end(args);
}

/* What has been said since the last told(). */
#define told(expected)                          \
    do {                                        \
        cr_assert_str_eq(test_log, (expected)); \
        test_log[0] = '\0';                     \
    } while (0)

static inline void quiet_report(void *ctx, const char *line)
{
    (void)ctx;
    (void)line;
}

static inline struct promise *test_body(void *body)
{
    void (*run)(void);

    memcpy(&run, body, sizeof run);
    run();
    if (promise__tls != NULL)
        promise__collect(promise__tls);
    cr_assert_eq(promise__live(), 0, "%zu blocks left", promise__live());
    return promise_fulfilled(weft_num(7));
}

static inline void in_runtime(void (*body)(void))
{
    struct weft_options options = WEFT_OPTIONS_INIT;
    union weft_value value = weft_num(0);

    options.report = quiet_report;
    cr_assert_eq(promise_run(test_body, &body, &options, &value), 0);
    cr_assert_eq(value.num, 7);
}

#define PROMISE_TEST(suite, name)     \
    static void suite##_##name(void); \
    Test(suite, name)                 \
    {                                 \
        in_runtime(suite##_##name);   \
    }                                 \
    static void suite##_##name(void)

/* ---- callbacks that tell; ctx is what they say ---- */

static inline struct promise *tell_bind(union weft_value value, void *ctx)
{
    say("%s(%lld) ", (const char *)ctx, (long long)value.num);
    return promise_fulfilled(value);
}

static inline struct promise *tell_catch(int err, void *ctx)
{
    say("%s!%d ", (const char *)ctx, err);
    return promise_fulfilled(weft_num(err));
}

static inline int tell_map(union weft_value value, void *ctx, union weft_value *out)
{
    say("%s(%lld) ", (const char *)ctx, (long long)value.num);
    out->num = value.num + 1;
    return 0;
}

static inline struct promise *tell_thunk(void *ctx)
{
    say("%s ", (const char *)ctx);
    return promise_fulfilled(weft_num(0));
}

static inline int tell_success(union weft_value value, void *ctx)
{
    say("%s(%lld) ", (const char *)ctx, (long long)value.num);
    return 0;
}

static inline int tell_failure(int err, void *ctx)
{
    say("%s!%d ", (const char *)ctx, err);
    return 0;
}

static inline int tell_done(void *ctx)
{
    say("%s ", (const char *)ctx);
    return 0;
}

static inline void tell_error(int err, void *ctx)
{
    say("%s!%d ", (const char *)ctx, err);
}

static inline void tell_count(size_t count, void *ctx)
{
    say("%s%zu ", (const char *)ctx, count);
}

/* A bind callback that returns the promise `ctx`, a reference of it. */
static inline struct promise *give_promise(union weft_value value, void *ctx)
{
    (void)value;
    return promise_ref(ctx);
}

static inline int64_t value_of_promise(struct promise *p)
{
    union weft_value value = weft_num(-1000);

    cr_assert_eq(promise_poll(p, &value, NULL), PROMISE_FULFILLED);
    return value.num;
}

static inline int error_of(struct promise *p)
{
    int err = 0;

    cr_assert_eq(promise_poll(p, NULL, &err), PROMISE_REJECTED);
    return err;
}

static inline bool is_pending(struct promise *p)
{
    return promise_state(p) == PROMISE_PENDING;
}

#define cr_pending(p)     cr_assert(is_pending(p))
#define cr_value(p, n)    cr_assert_eq(value_of_promise(p), (n))
#define cr_rejected(p, e) cr_assert_eq(error_of(p), (e))

#endif
