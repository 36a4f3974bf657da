/* Scopes of promises: the first failure cancels the others, and all are waited for. */
#include "promise_support.h"

#include <weft/promise_sync.h>

#include <criterion/criterion.h>
#include <errno.h>

static struct promise_scope *filled(struct promise *tasks[], size_t count)
{
    struct promise_scope *scope = promise_scope_create();

    for (size_t i = 0; i < count; i++) {
        tasks[i] = promise_create_task();
        cr_assert_eq(promise_scope_add(scope, promise_ref(tasks[i])), 0);
    }
    return scope;
}

static void drop(struct promise *tasks[], size_t count)
{
    for (size_t i = 0; i < count; i++)
        promise_unref(tasks[i]);
}

static struct promise *all_well_body(void)
{
    struct promise *tasks[3], *result = promise_scope_close(filled(tasks, 3));

    for (int i = 0; i < 3; i++) {
        assert_pending(result);
        cr_assert_eq(promise_resolve(tasks[i], weft_num(i)), 0);
    }
    take_value(result, 0);
    drop(tasks, 3);
    take_value(promise_scope_close(promise_scope_create()), 0);
    return NULL;
}

Test(promise_scope, waits_for_all)
{
    run_promises(all_well_body);
}

static struct promise *failure_body(void)
{
    struct promise *tasks[3], *stubborn = promise_create(), *result;
    struct promise_scope *scope = filled(tasks, 3);

    for (int i = 0; i < 3; i++)
        watch(tasks[i], i == 0 ? "a" : i == 1 ? "b" : "c");
    cr_assert_eq(promise_scope_add(scope, promise_ref(stubborn)), 0);
    result = promise_scope_close(scope);
    watch(result, "all");
    cr_assert_eq(promise_reject(tasks[1], -EIO), 0);
    assert_trace("b!-5 c!-125 a!-125 "); /* the newest first */
    assert_pending(result);              /* one can't be canceled */
    cr_assert_eq(promise_reject(stubborn, -EPIPE), 0);
    assert_trace("all!-5 ");
    take_error(result, -EIO);
    promise_unref(stubborn);
    drop(tasks, 3);
    return NULL;
}

Test(promise_scope, a_failure_cancels_the_others)
{
    run_promises(failure_body);
}

static struct promise *cancel_body(void)
{
    struct promise *tasks[2], *late = promise_create_task(), *result;
    struct promise_scope *scope = filled(tasks, 2);

    promise_scope_cancel(scope);
    cr_assert_eq(promise_scope_add(scope, promise_ref(late)), 0);
    assert_error(late, -ECANCELED);
    take_error(promise_scope_close(scope), -ECANCELED);
    promise_unref(late);
    drop(tasks, 2);
    result = promise_scope_close(filled(tasks, 2));
    promise_cancel(result);
    assert_error(tasks[0], -ECANCELED);
    assert_error(tasks[1], -ECANCELED);
    take_error(result, -ECANCELED);
    drop(tasks, 2);
    /* one is canceled by somebody else: the others go on */
    result = promise_scope_close(filled(tasks, 2));
    promise_cancel(tasks[0]);
    assert_pending(tasks[1]);
    cr_assert_eq(promise_resolve(tasks[1], weft_num(1)), 0);
    take_error(result, -ECANCELED);
    drop(tasks, 2);
    return NULL;
}

Test(promise_scope, canceling)
{
    run_promises(cancel_body);
}

/* Everything happens inside a callback of a member. */
static struct promise_scope *reentered;

static int add_more(int err, void *ctx)
{
    struct promise *more = promise_create_task();

    (void)err;
    cr_assert_eq(promise_scope_add(reentered, promise_ref(more)), 0);
    assert_error(more, -ECANCELED);
    promise_unref(more);
    *(struct promise **)ctx = promise_scope_close(reentered);
    return 0;
}

static struct promise *reentrant_body(void)
{
    struct promise *tasks[3], *result = NULL;

    reentered = filled(tasks, 3);
    cr_assert_eq(promise_on_failure(tasks[2], add_more, &result), 0);
    cr_assert_eq(promise_reject(tasks[0], -EIO), 0);
    take_error(result, -EIO);
    drop(tasks, 3);
    return NULL;
}

Test(promise_scope, may_be_used_in_its_members_callbacks)
{
    run_promises(reentrant_body);
}

static int close_it(int err, void *ctx)
{
    (void)err;
    *(struct promise **)ctx = promise_scope_close(reentered);
    return 0;
}

static struct promise *close_in_cancel_body(void)
{
    struct promise *tasks[2], *result = NULL;

    reentered = filled(tasks, 2);
    cr_assert_eq(promise_on_failure(tasks[1], close_it, &result), 0);
    promise_scope_cancel(reentered);
    take_error(result, -ECANCELED);
    drop(tasks, 2);
    return NULL;
}

Test(promise_scope, may_be_closed_while_it_is_canceled)
{
    run_promises(close_in_cancel_body);
}

/* One that is closed, one that is open, each with promises that nobody settles. The tools would see what
 * is left. */
static struct promise *end_main(void *unused)
{
    struct promise *tasks[2];

    (void)unused;
    promise_unref(promise_scope_close(filled(tasks, 2)));
    drop(tasks, 2);
    (void)filled(tasks, 2);
    drop(tasks, 2);
    return promise_fulfilled(weft_num(0));
}

Test(promise_scope, the_runtimes_end_frees_it)
{
    cr_assert_eq(promise_run(end_main, NULL, NULL, NULL), 0);
}

static struct promise *errors_body(void)
{
    struct promise_scope *scope;
    struct promise *task = promise_create_task(), *result;

    promise__fail_after(0);
    cr_assert_null(promise_scope_create());
    promise__fail_after(SIZE_MAX);
    scope = promise_scope_create();
    cr_assert_eq(promise_scope_add(NULL, promise_ref(task)), -EINVAL);
    assert_error(task, -ECANCELED);
    promise_unref(task);
    cr_assert_eq(promise_scope_add(scope, NULL), -EINVAL);
    task = promise_create_task();
    promise__fail_after(0);
    cr_assert_eq(promise_scope_add(scope, promise_ref(task)), -ENOMEM);
    result = promise_scope_close(scope);
    promise__fail_after(SIZE_MAX);
    take_error(result, -ENOMEM);
    assert_error(task, -ECANCELED);
    promise_unref(task);
    take_value(promise_scope_close(scope), 0);
    take_error(promise_scope_close(NULL), -EINVAL);
    promise_scope_cancel(NULL);
    return NULL;
}

Test(promise_scope, errors)
{
    cr_assert_null(promise_scope_create());
    run_promises(errors_body);
}

Test(promise_scope, errors_have_sentences)
{
    cr_assert_str_eq(weft_strerror(0), "success");
    cr_assert_str_eq(weft_strerror(-ECANCELED), "cancelled");
    cr_assert_str_eq(weft_strerror(-EIO), "Input/output error");
    cr_assert_str_eq(weft_strerror(-99999), "an unknown error");
    for (int err = -1; err > -140; err--)
        cr_assert_not_null(weft_strerror(err));
}
