/* test_sync.h: what the tests of locks and channels share: a trace, bodies that run as main on each
 * set-up, and fibers whose result is looked at. */
#ifndef TEST_SYNC_H
#define TEST_SYNC_H

#include "fiber_internal.h"
#include "harness.h"
#include "promise_internal.h"

#include <weft/fiber.h>
#include <weft/promise.h>
#include <weft/scope.h>
#include <weft/sync.h>

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static char told[4096];

static inline __attribute__((format(printf, 1, 2))) void tell(const char *format, ...)
{
    size_t used = strlen(told);
    va_list args;

    va_start(args, format);
    vsnprintf(told + used, sizeof told - used, format, args);
    va_end(args);
}

#define expect(text)                  \
    do {                              \
        cr_assert_str_eq(told, text); \
        told[0] = '\0';               \
    } while (0)

/* Runs body as main, on each set-up. Afterwards no timer is running, nothing is in flight, no promise
 * is alive. */
static inline int run_sync_body(void *body)
{
    size_t before = 0;

    if (promise__state_get() != NULL)
        before = promise__live();
    ((void (*)(void))(uintptr_t)body)();
    for (int i = 0; i < 3; i++)
        fiber_yield();
    cr_assert(weft__rt->timers == NULL, "a timer is left running");
    cr_assert_eq(weft__rt->engine->in_flight, 0);
    cr_assert_eq(promise__live(), before, "%zu promises are left", promise__live() - before);
    cr_assert_null(weft__rt->after_wakes);
    return 0;
}

static inline void run_on_each_setup(void (*body)(void))
{
    for (size_t i = 0; i < setups_count; i++) {
        told[0] = '\0';
        cr_assert_eq(run_on(&setups[i], run_sync_body, (void *)(uintptr_t)body), 0, "%s: %s",
                     setups[i].name, report_text());
    }
}

#define SYNC_TEST(suite, title)             \
    static void suite##_##title(void);      \
    Test(suite, title)                      \
    {                                       \
        run_on_each_setup(suite##_##title); \
    }                                       \
    static void suite##_##title(void)

/* Lets everything run that can. */
static inline void settle(void)
{
    for (int i = 0; i < 4; i++)
        fiber_yield();
}

/* The result of a fiber of fiber_spawn, or the outcome of any promise, which is consumed. */
static inline int64_t outcome(struct promise *promise)
{
    union weft_value value = weft_num(0);
    int rc = fiber_await(promise, &value, weft_after(WEFT_SEC(60)));

    return rc < 0 ? rc : value.num;
}

/* Cancels a fiber, or any promise, and gives its outcome. */
static inline int64_t cancelled(struct promise *promise)
{
    promise_cancel(promise);
    return outcome(promise);
}

/* Passes the time until `at` without giving way. */
static inline void spin_until(weft_time at)
{
    while (weft_now() < at)
        ;
}

struct base_call {
    int (*fn)(void);
    int result;
};

static inline int run_base_call(void *call)
{
    ((struct base_call *)call)->result = ((struct base_call *)call)->fn();
    return 0;
}

/* Calls fn as a callback, and gives what it returns. */
static inline int on_base(int (*fn)(void))
{
    struct base_call call = {fn, 1};
    struct promise *promise = promise_create();

    promise_on_termination(promise, run_base_call, &call);
    promise_resolve(promise, weft_num(0));
    promise_unref(promise);
    return call.result;
}

#endif
