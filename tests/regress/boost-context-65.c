/* needs: fibers */
/* boostorg/context#65: AddressSanitizer was told of a switch before it took place, and believed from then
 * on to be amid one: faults were reported with a wrong stack or not at all, and leaving frames at once
 * (longjmp, exceptions) raised false alarms.
 *
 * A fault planted in a fiber is reported with all frames of the fiber; leaving frames at once, in fibers
 * that have waited before, raises none. The second is a test without AddressSanitizer too.
 */
#include "context.h"
#include "fiber_internal.h"
#include "harness.h"

#include <weft/promise.h>

#include <criterion/criterion.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- leaving frames at once ---- */

static __attribute__((noinline)) void deep(jmp_buf back, int levels)
{
    volatile char frame[300];

    frame[0] = (char)levels;
    frame[299] = frame[0];
    fiber_yield();
    if (levels == 0)
        longjmp(back, 1);
    if (levels > 0) /* always */
        deep(back, levels - 1);
    frame[1] = frame[299];
}

/* The same part of the stack in another layout: what stands there must not be taken for a red zone. */
static __attribute__((noinline)) int again(void)
{
    volatile char frame[2500];
    int sum = 0;

    for (size_t i = 0; i < sizeof frame; i++)
        frame[i] = (char)i;
    fiber_yield();
    for (size_t i = 0; i < sizeof frame; i++)
        sum += frame[i];
    return sum;
}

static int64_t leave_frames(void *arg)
{
    jmp_buf back;

    for (volatile int i = 0; i < 5; i++) {
        if (setjmp(back) == 0)
            deep(back, 4);
        again();
    }
    ++*(int *)arg;
    return 0;
}

static int leave_main(void *unused)
{
    struct promise *fibers[10];
    int ended = 0;

    (void)unused;
    for (int i = 0; i < 10; i++)
        fibers[i] = fiber_spawn(leave_frames, &ended);
    cr_assert_eq(fiber_await(promise_join(fibers, 10), NULL, WEFT_FOREVER), 0);
    cr_assert_eq(ended, 10);
    return 0;
}

#ifdef WEFT__ASAN

/* Runs body in a child whose reports come back here; how it ended. */
static int report_of(void (*body)(void), char *report, size_t size)
{
    size_t used = 0;
    int ends[2], status;
    ssize_t n;
    pid_t child;

    cr_assert_eq(pipe(ends), 0);
    child = fork();
    if (child == 0) {
        close(ends[0]);
        __sanitizer_set_report_fd((void *)(intptr_t)ends[1]);
        body();
        _exit(0);
    }
    close(ends[1]);
    while (used + 1 < size && (n = read(ends[0], report + used, size - 1 - used)) > 0)
        used += (size_t)n;
    report[used] = '\0';
    close(ends[0]);
    cr_assert_eq(waitpid(child, &status, 0), child);
    return status;
}

static void leave_body(void)
{
    if (run_on(&setups[0], leave_main, NULL) != 0)
        _exit(1);
}

Test(boost_context_65, frames_may_be_left_at_once)
{
    static char report[10000];

    cr_assert_eq(report_of(leave_body, report, sizeof report), 0, "%s", report);
    cr_assert_str_empty(report, "%s", report);
}

static char *volatile block;

__attribute__((noinline)) static void write_beyond(void)
{
    block[8] = 1;
}

__attribute__((noinline)) static int64_t faulty_fiber(void *unused)
{
    (void)unused;
    fiber_yield();
    block = malloc(8);
    write_beyond();
    return 0;
}

static int fault_main(void *unused)
{
    (void)unused;
    return fiber_await(fiber_spawn(faulty_fiber, NULL), NULL, WEFT_FOREVER);
}

static void fault_body(void)
{
    weft_run(fault_main, NULL, NULL);
}

Test(boost_context_65, a_fault_is_reported_with_the_whole_stack)
{
    static char report[100000];
    static const char *const parts[] = {"heap-buffer-overflow", "write_beyond", "faulty_fiber",
                                        "fiber_main", "8-byte region"};

    cr_assert_neq(report_of(fault_body, report, sizeof report), 0);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        cr_assert_not_null(strstr(report, parts[i]), "no %s in: %s", parts[i], report);
}

#else

Test(boost_context_65, frames_may_be_left_at_once)
{
    cr_assert_eq(run_on(&setups[0], leave_main, NULL), 0, "%s", report_text());
}

#endif
