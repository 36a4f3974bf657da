/* needs: fibers */
/* ocsigen/lwt#432, #500: long chains of promises that depend on each other were resolved recursively, and
 * overflowed the stack.
 *
 * A million binds, resolved from a small fiber and from the scheduler (whose own stack is made small by
 * test_promise_deep, for every kind of chain); and one that grows while it is resolved.
 */
#include "harness.h"
#include "promise_internal.h"

#include <weft/fiber.h>
#include <weft/promise.h>

#include <criterion/criterion.h>

#define DEEP (PROMISE__ASAN ? 50000 : 1000000)

static struct promise *add_one(union weft_value value, void *ctx)
{
    (void)ctx;
    return promise_fulfilled(weft_num(value.num + 1));
}

static struct promise *chain(struct promise *p)
{
    for (int i = 0; i < DEEP; i++)
        p = promise_bind(p, add_one, NULL);
    return p;
}

static int64_t resolve_deep(void *unused)
{
    struct promise *root = promise_create(), *end = chain(promise_ref(root));
    union weft_value value;

    (void)unused;
    promise_resolve(root, weft_num(0));
    promise_unref(root);
    cr_assert_eq(fiber_await(end, &value, WEFT_FOREVER), 0);
    cr_assert_eq(value.num, DEEP);
    return 1;
}

static int small_main(void *unused)
{
    struct fiber_options options = {.size = sizeof options, .stack_size = 16384};
    union weft_value value;

    (void)unused;
#if PROMISE__ASAN
    options.stack_size = 0;
#endif
    cr_assert_eq(fiber_await(fiber_spawn_with(resolve_deep, NULL, &options), &value, WEFT_FOREVER),
                 0);
    cr_assert_eq(value.num, 1);
    cr_assert_eq(promise__live(), 0);
    return 0;
}

Test(lwt_432, from_a_small_fiber)
{
    for (const struct setup *s = setups; s < setups + 2; s++)
        cr_assert_eq(run_on(s, small_main, NULL), 0, "%s: %s", s->name, report_text());
}

static struct promise *scheduled(void *unused)
{
    (void)unused;
    return chain(promise_pause());
}

Test(lwt_432, from_the_scheduler)
{
    for (const struct setup *s = setups; s < setups + 2; s++) {
        struct weft_options options = setup_options(s);
        union weft_value value;

        cr_assert_eq(promise_run(scheduled, NULL, &options, &value), 0, "%s", report_text());
        cr_assert_eq(value.num, DEEP);
    }
}

/* Each link is made when the last one is resolved: the loop of a server. */
static struct promise *next_link(union weft_value value, void *left)
{
    int *n = left;

    if (--*n == 0)
        return promise_fulfilled(value);
    return promise_bind(*n % 1000 == 0 ? promise_pause() : promise_fulfilled(value), next_link, n);
}

static struct promise *growing(void *left)
{
    return promise_bind(promise_pause(), next_link, left);
}

Test(lwt_432, that_grows_while_it_is_resolved)
{
    for (const struct setup *s = setups; s < setups + 2; s++) {
        struct weft_options options = setup_options(s);
        int left = DEEP;

        cr_assert_eq(promise_run(growing, &left, &options, NULL), 0, "%s", report_text());
        cr_assert_eq(left, 0);
    }
}
