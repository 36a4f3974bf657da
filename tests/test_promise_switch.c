/* Switches. */
#include "promise_support.h"

#include <weft/promise_sync.h>

#include <criterion/criterion.h>

static struct promise *pending[2];

static struct promise *hook(void *name)
{
    note(name);
    return promise_fulfilled(weft_num(0));
}

static struct promise *failing_hook(void *name)
{
    note(name);
    return promise_rejected(-EIO);
}

static struct promise *pending_hook(void *slot)
{
    struct promise **p = slot;

    note("p");
    return promise_ref(*p);
}

static struct promise *order_body(void)
{
    struct promise_switch *sw = promise_switch_create();

    cr_assert(promise_switch_is_on(sw));
    cr_assert_eq(promise_switch_add_hook(sw, hook, "a"), 0);
    cr_assert_eq(promise_switch_add_hook(sw, hook, "b"), 0);
    take_value(promise_switch_add_hook_or_exec(sw, hook, "c"), 0);
    assert_trace("");
    take_value(promise_switch_turn_off(sw), 0);
    assert_trace("cba");
    cr_assert(!promise_switch_is_on(sw));
    promise_switch_unref(sw);
    return NULL;
}

Test(promise_switch, hooks_are_called_newest_first)
{
    run_promises(order_body);
}

static struct promise *once_body(void)
{
    struct promise_switch *sw = promise_switch_create();

    promise_switch_add_hook(sw, hook, "a");
    take_value(promise_switch_turn_off(sw), 0);
    assert_trace("a");
    take_value(promise_switch_turn_off(sw), 0);
    assert_trace("");
    cr_assert_eq(promise_switch_add_hook(sw, hook, "b"), -ESHUTDOWN);
    take_value(promise_switch_add_hook_or_exec(sw, hook, "c"), 0);
    assert_trace("c");
    take_error(promise_switch_add_hook_or_exec(sw, failing_hook, "d"), -EIO);
    assert_trace("d");
    promise_switch_unref(sw);
    return NULL;
}

Test(promise_switch, is_turned_off_once)
{
    run_promises(once_body);
}

static struct promise *wait_body(void)
{
    struct promise_switch *sw = promise_switch_create();
    struct promise *off;

    pending[0] = promise_create();
    pending[1] = promise_create();
    promise_switch_add_hook(sw, pending_hook, &pending[0]);
    promise_switch_add_hook(sw, failing_hook, "x");
    promise_switch_add_hook(sw, pending_hook, &pending[1]);
    off = promise_switch_turn_off(sw);
    assert_trace("pxp"); /* all at once, also after a failure */
    assert_pending(off);
    promise_resolve(pending[0], weft_num(0));
    assert_pending(off);
    promise_resolve(pending[1], weft_num(0));
    take_error(off, -EIO);
    promise_unref(pending[0]);
    promise_unref(pending[1]);
    promise_switch_unref(sw);
    return NULL;
}

Test(promise_switch, turning_off_waits_for_all_and_reports_the_error)
{
    run_promises(wait_body);
}

static struct promise_switch *kept;

static struct promise *body(struct promise_switch *sw, void *ctx)
{
    cr_assert(promise_switch_is_on(sw));
    kept = promise_switch_ref(sw);
    promise_switch_add_hook(sw, hook, "h");
    return promise_ref(ctx);
}

static void with(struct promise *outcome)
{
    struct promise *p = promise_switch_with(body, outcome);
    bool waits = promise_state(outcome) == PROMISE_PENDING;
    int err = 0;

    if (waits) {
        assert_trace("");
        assert_pending(p);
        cr_assert(promise_switch_is_on(kept));
        promise_resolve(outcome, weft_num(6));
    }
    assert_trace("h");
    cr_assert(!promise_switch_is_on(kept));
    promise_switch_unref(kept);
    if (promise_poll(outcome, NULL, &err) == PROMISE_REJECTED)
        take_error(p, err);
    else
        take_value(p, 6);
    promise_unref(outcome);
}

static struct promise *with_body(void)
{
    with(promise_fulfilled(weft_num(6)));
    with(promise_rejected(-EPERM));
    with(promise_create());
    return NULL;
}

Test(promise_switch, with_turns_it_off_on_any_outcome)
{
    run_promises(with_body);
}

static struct promise *failing_body(struct promise_switch *sw, void *ctx)
{
    promise_switch_add_hook(sw, failing_hook, "x");
    promise_switch_add_hook(sw, pending_hook, &pending[0]);
    return promise_ref(ctx);
}

static struct promise *with_error_body(void)
{
    struct promise *outcome = promise_fulfilled_owned(boxed(1), destroy_box), *p;

    pending[0] = promise_create();
    p = promise_switch_with(failing_body, outcome);
    promise_unref(outcome);
    assert_pending(p);
    promise_resolve(pending[0], weft_num(0));
    take_error(p, -EIO); /* a failing hook's error wins */
    cr_assert_eq(destroyed, 1);
    promise_unref(pending[0]);
    assert_trace("px");
    return NULL;
}

Test(promise_switch, a_failing_hooks_error_is_the_result)
{
    run_promises(with_error_body);
}

static struct promise *cancel_body(void)
{
    struct promise *task = promise_create_task(), *p = promise_switch_with(body, task);

    promise_cancel(p);
    take_error(p, -ECANCELED);
    assert_trace("h");
    promise_switch_unref(kept);
    promise_unref(task);
    return NULL;
}

Test(promise_switch, with_can_be_canceled)
{
    run_promises(cancel_body);
}

static struct promise *none_body(void)
{
    struct promise_switch *sw = promise_switch_create();

    cr_assert(promise_switch_is_on(NULL));
    cr_assert_eq(promise_switch_add_hook(NULL, hook, "x"), 0);
    take_value(promise_switch_turn_off(NULL), 0);
    promise_switch_unref(NULL);
    promise_switch_add_hook(sw, hook, "x"); /* dropped with the last reference */
    cr_assert_eq(promise_switch_ref(sw), sw);
    promise_switch_unref(sw);
    promise_switch_unref(sw);
    assert_trace("");
    return NULL;
}

Test(promise_switch, no_switch_and_a_dropped_one)
{
    run_promises(none_body);
}

static struct promise *abandoned_main(void *arg)
{
    (void)arg;
    (void)!promise_switch_add_hook(promise_switch_create(), hook, "x");
    return promise_fulfilled(weft_num(0));
}

Test(promise_switch, the_runtimes_end_frees_what_is_left)
{
    struct weft_options options = setup_options(&setups[0]);

    cr_assert_eq(promise_run(abandoned_main, NULL, &options, NULL), 0);
}
