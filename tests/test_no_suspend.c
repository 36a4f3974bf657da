/* needs: fibers */
/* WEFT_NO_SUSPEND: what would suspend is refused, with both places; all else goes on. */
#include "harness.h"

#include <weft/io.h>
#include <weft/process.h>
#include <weft/promise.h>
#include <weft/scope.h>
#include <weft/signals.h>
#include <weft/sync.h>
#include <weft/watch.h>

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static int calls;

#ifdef NDEBUG
static struct promise *count_call(union weft_value value, void *unused)
{
    (void)unused;
    calls++;
    cr_assert_eq(fiber_yield(), -EDEADLK, "a callback");
    return promise_fulfilled(value);
}

static int never_called(void *arg)
{
    (void)arg;
    abort();
}

static int refused_main(void *arg)
{
    const struct setup *setup = arg;
    struct promise *p = promise_create(), *q;
    struct weft_mutex mutex = {0};
    struct fiber_scope scope;
    char byte;
    int rounds = 0;

    cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
    q = promise_bind(promise_ref(p), count_call, NULL);
    calls = 0;
    WEFT_NO_SUSPEND
    {
        rounds++;
        cr_assert_eq(fiber_yield(), -EDEADLK);
        cr_assert(report_contains("WEFT_NO_SUSPEND"));
        cr_assert(report_contains("test_no_suspend.c:"));
        cr_assert_eq(fiber_sleep(0), -EDEADLK);
        cr_assert_eq(fiber_await(promise_ref(p), NULL, WEFT_FOREVER), -EDEADLK);
        cr_assert_eq(fiber_read(0, &byte, 1, -1, WEFT_FOREVER), -EDEADLK);
        cr_assert_eq(fiber_close(-1), -EDEADLK);
        cr_assert_eq(fiber_stream_next(NULL, NULL, WEFT_NOWAIT), -EDEADLK);
        cr_assert_eq(fiber_scope_close(&scope, 0), -EDEADLK);
        cr_assert_eq(fiber_blocking(never_called, NULL, WEFT_FOREVER), -EDEADLK);
        cr_assert_eq(fiber_blocking_owned(never_called, NULL, NULL, WEFT_FOREVER), -EDEADLK);
        cr_assert_eq(fiber_process_wait(NULL, WEFT_FOREVER), -EDEADLK);
        cr_assert_eq(fiber_mutex_lock(&mutex, WEFT_FOREVER), -EDEADLK);
        cr_assert_eq(fiber_rwlock_read(NULL, WEFT_FOREVER), -EDEADLK);
        cr_assert_eq(fiber_condition_wait(NULL, NULL, WEFT_FOREVER), -EDEADLK);
        cr_assert_eq(fiber_channel_send(NULL, weft_num(0), WEFT_FOREVER), -EDEADLK);
        cr_assert_eq(fiber_select(NULL, 0, WEFT_NOWAIT), -EDEADLK);
        cr_assert_eq(weft_mutex_try_lock(&mutex), 0, "this one waits for nobody");
        cr_assert_eq(weft_mutex_unlock(&mutex), 0);
        cr_assert_eq(fiber_signals_wait(NULL, NULL, WEFT_NOWAIT), -EDEADLK);
        cr_assert_eq(fiber_watch_next(NULL, NULL, WEFT_NOWAIT), -EDEADLK);
        /* what doesn't suspend is as ever, callbacks on the base stack too */
        cr_assert_not_null(fiber_self());
        cr_assert_eq(fiber_check(), 0);
        cr_assert_eq(promise_resolve(p, weft_num(3)), 0);
        cr_assert_eq(calls, 1);
        WEFT_NO_SUSPEND
        {
            cr_assert_eq(fiber_yield(), -EDEADLK);
        }
        cr_assert_eq(fiber_yield(), -EDEADLK, "%s", setup->name);
    }
    cr_assert_eq(rounds, 1);
    cr_assert_eq(fiber_yield(), 0);
    promise_unref(p);
    promise_unref(q);
    cr_assert_eq(fiber_scope_close(&scope, 0), 0);
    return 0;
}

Test(no_suspend, refuses_what_would_suspend)
{
    for (size_t i = 0; i < setups_count; i++) {
        cr_assert_eq(run_on(&setups[i], refused_main, (void *)(uintptr_t)&setups[i]), 0);
    }
}
#else
static int aborted_main(void *unused)
{
    (void)unused;
    WEFT_NO_SUSPEND
    {
        (void)fiber_yield();
    }
    return 0;
}

Test(no_suspend, a_debug_build_aborts, .signal = SIGABRT)
{
    (void)weft_run(aborted_main, NULL, NULL);
}
#endif

static int leave_by_return(void)
{
    WEFT_NO_SUSPEND
    {
        return 1;
    }
    return 0;
}

static int left_main(void *unused)
{
    (void)unused;
    cr_assert_eq(leave_by_return(), 1);
    cr_assert_eq(fiber_yield(), 0);
    WEFT_NO_SUSPEND
    {
        break;
    }
    cr_assert_eq(fiber_yield(), 0);
    for (int i = 0; i < 3; i++) {
        WEFT_NO_SUSPEND
        {
            if (i == 1)
                continue;
            WEFT_NO_SUSPEND
            {
                goto out;
            }
        }
out:
        cr_assert_eq(fiber_yield(), 0);
    }
    return 0;
}

Test(no_suspend, may_be_left_in_any_way)
{
    WEFT_NO_SUSPEND
    {
        calls = -1; /* without a runtime: only code */
    }
    cr_assert_eq(calls, -1);
    for (size_t i = 0; i < setups_count; i++)
        cr_assert_eq(run_on(&setups[i], left_main, NULL), 0);
}
