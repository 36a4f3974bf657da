/* needs: fibers */
/* ocaml-multicore/eio#805: of nested choices the inner one was cancelled with the outer, and told that
 * as a result of its own.
 *
 * When the outer choice is made the inner one ends with -ECANCELED, all of its branches have ended, and
 * the outer result is the winner's; an inner choice that is made by itself disturbs nothing.
 */
#include "harness.h"

#include <weft/fiber.h>
#include <weft/scope.h>

#include <criterion/criterion.h>
#include <errno.h>

static int ended;
static int inner_result;

static int64_t wait_for_ever(void *unused)
{
    int rc = fiber_sleep_until(WEFT_FOREVER);

    (void)unused;
    ended++;
    return rc;
}

static int64_t wait_a_moment(void *arg)
{
    for (int i = (int)(intptr_t)arg; i > 0; i--)
        if (fiber_yield() < 0)
            return -ECANCELED;
    return 5;
}

static int64_t inner_choice(void *arg)
{
    struct fiber_call calls[3] = {{.fn = wait_for_ever},
                                  {.fn = wait_for_ever},
                                  {.fn = arg != NULL ? wait_a_moment : wait_for_ever, .arg = arg}};

    inner_result = fiber_first(calls, 3);
    if (inner_result < 0)
        cr_assert_eq(fiber_check(), -ECANCELED, "it is the outer one that was cancelled");
    else
        cr_assert_eq(fiber_check(), 0);
    return inner_result;
}

static int nested_main(void *unused)
{
    struct fiber_call outer[2] = {{.fn = inner_choice}, {.fn = wait_a_moment, .arg = (void *)4}};

    (void)unused;
    ended = 0;
    cr_assert_eq(fiber_first(outer, 2), 1);
    cr_assert_eq(outer[1].result, 5);
    cr_assert_eq(outer[0].result, -ECANCELED);
    cr_assert_eq(inner_result, -ECANCELED);
    cr_assert_eq(ended, 3);

    /* the inner one first */
    outer[0] = (struct fiber_call){.fn = inner_choice, .arg = (void *)2};
    outer[1] = (struct fiber_call){.fn = wait_for_ever};
    ended = 0;
    cr_assert_eq(fiber_first(outer, 2), 0);
    cr_assert_eq(outer[0].result, 2);
    cr_assert_eq(outer[1].result, -ECANCELED);
    cr_assert_eq(inner_result, 2);
    cr_assert_eq(ended, 3);
    cr_assert_eq(fiber_check(), 0);
    return 0;
}

Test(eio_805, nested_choices)
{
    for (const struct setup *s = setups; s < setups + setups_count; s++)
        cr_assert_eq(run_on(s, nested_main, NULL), 0, "%s: %s", s->name, report_text());
}
