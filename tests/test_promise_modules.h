/* test_promise_modules.h: what the tests of the modules above the promise core share.
 *
 * MODULE_TEST(suite, name) runs its body on the base stack of a runtime, on each set-up. The body
 * returns the promise to wait for (consumed), or NULL. When that is fulfilled no block of the body
 * may be left. Bodies tell what happens with say() and compare with told().
 */
#ifndef TEST_PROMISE_MODULES_H
#define TEST_PROMISE_MODULES_H

#include <criterion/criterion.h>

#include <weft/promise.h>

#include "harness.h"
#include "promise_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct promise *module_body_fn(void);

static char test_log[8192];
static module_body_fn *module_body;
static size_t module_left;
static bool module_first; /* on the first set-up */

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

static inline struct promise *module_start(union weft_value value, void *ctx)
{
    struct promise *p = module_body();

    (void)ctx;
    return p != NULL ? p : promise_fulfilled(value);
}

/* After this no frame of the body's promise is left. */
static inline struct promise *module_pause(union weft_value value, void *ctx)
{
    (void)value;
    (void)ctx;
    promise__collect(promise__tls);
    return promise_pause();
}

static inline struct promise *module_count(union weft_value value, void *ctx)
{
    (void)ctx;
    module_left = promise__live();
    return promise_fulfilled(value);
}

static inline struct promise *module_main(void *ctx)
{
    struct promise *p = promise_bind(promise_pause(), module_start, ctx);

    return promise_bind(promise_bind(p, module_pause, NULL), module_count, NULL);
}

static inline struct promise *module_nothing(void)
{
    return NULL;
}

static inline void module_run(const struct setup *setup, module_body_fn *body)
{
    struct weft_options options = setup_options(setup);
    size_t own;
    int rc;

    module_first = setup == setups;
    module_body = module_nothing;
    cr_assert_eq(promise_run(module_main, NULL, &options, NULL), 0, "%s", setup->name);
    own = module_left;
    module_body = body;
    test_log[0] = '\0';
    rc = promise_run(module_main, NULL, &options, NULL);
    cr_assert_eq(rc, 0, "%s: %d %s", setup->name, rc, report_text());
    cr_assert_eq(module_left, own, "%s: %zu blocks left", setup->name, module_left - own);
}

/* How many rounds a big test makes: `full` once, fewer where only the set-up differs or tools are
 * slow. */
static inline size_t module_rounds(size_t full)
{
    return module_first && !slow_tools() ? full : full / 500;
}

#define MODULE_TEST(suite, name)                                             \
    static struct promise *suite##_##name##_body(void);                      \
    Test(suite, name)                                                        \
    {                                                                        \
        for (const struct setup *s = setups; s < setups + setups_count; s++) \
            module_run(s, suite##_##name##_body);                            \
    }                                                                        \
    static struct promise *suite##_##name##_body(void)

/* ---- promises ---- */

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

#define cr_pending(p) cr_assert_eq(promise_state(p), PROMISE_PENDING)

/* These consume the promise. */
#define cr_value(p, n)                                   \
    do {                                                 \
        struct promise *cr_promise = (p);                \
        cr_assert_eq(value_of_promise(cr_promise), (n)); \
        promise_unref(cr_promise);                       \
    } while (0)
#define cr_rejected(p, e)                        \
    do {                                         \
        struct promise *cr_promise = (p);        \
        cr_assert_eq(error_of(cr_promise), (e)); \
        promise_unref(cr_promise);               \
    } while (0)

#endif
