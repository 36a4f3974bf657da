/* Lwt's core suite: local values, pause, the tidying of waiter lists, long recursions; and what
 * weft_set means in a callback. */
#include "harness.h"
#include "test_promise.h"

#if WEFT_HAS_FIBERS
#include <weft/fiber.h>
#endif

#include <weft/ring.h>

#include <errno.h>

/* ---- local values ---- */

static const struct weft_key key = {.name = "key"}, other_key = {.name = "other"};
static char one[] = "one", two[] = "two";

static void say_locals(void)
{
    const char *a = weft_get(&key), *b = weft_get(&other_key);

    say("%s", a != NULL ? a : "-");
    if (b != NULL)
        say("+%s", b);
    say(" ");
}

static void in_two(void *ctx)
{
    (void)ctx;
    say_locals();
}

static void in_one(void *ctx)
{
    say_locals();
    promise_with_value(&key, two, in_two, ctx);
    say_locals();
    promise_with_value(&key, NULL, in_two, ctx); /* blanked */
    say_locals();
    promise_with_value(&other_key, two, in_two, ctx); /* independent */
    say_locals();
}

PROMISE_TEST(conformance, storage)
{
    say_locals();
    cr_assert_eq(promise_with_value(&key, one, in_one, NULL), 0);
    say_locals();
    told("- one two one - one one+two one - ");
}

static struct promise *locals_thunk(void *ctx)
{
    (void)ctx;
    say_locals();
    return promise_fulfilled(weft_num(0));
}

static struct promise *locals_bind(union weft_value value, void *ctx)
{
    (void)value;
    return locals_thunk(ctx);
}

static struct promise *locals_catch(int err, void *ctx)
{
    (void)err;
    return locals_thunk(ctx);
}

static int locals_map(union weft_value value, void *ctx, union weft_value *out)
{
    *out = value;
    promise_unref(locals_thunk(ctx));
    return 0;
}

static int locals_success(union weft_value value, void *ctx)
{
    (void)value;
    promise_unref(locals_thunk(ctx));
    return 0;
}

static int locals_failure(int err, void *ctx)
{
    (void)err;
    promise_unref(locals_thunk(ctx));
    return 0;
}

static int locals_done(void *ctx)
{
    promise_unref(locals_thunk(ctx));
    return 0;
}

static void locals_error(int err, void *ctx)
{
    (void)err;
    promise_unref(locals_thunk(ctx));
}

/* Everything that attaches a callback; those that run when `p` is fulfilled, rejected, canceled. */
static void attach_everything(void *p)
{
    promise_unref(promise_bind(promise_ref(p), locals_bind, NULL));
    promise_unref(promise_map(promise_ref(p), locals_map, NULL));
    promise_unref(promise_catch(promise_ref(p), locals_catch, NULL));
    promise_unref(promise_try_bind(promise_ref(p), locals_bind, locals_catch, NULL));
    promise_unref(promise_finalize(promise_ref(p), locals_thunk, NULL));
    promise_on_success(p, locals_success, NULL);
    promise_on_failure(p, locals_failure, NULL);
    promise_on_termination(p, locals_done, NULL);
    promise_on_any(p, locals_success, locals_failure, NULL);
    promise_on_cancel(p, locals_done, NULL);
    promise_dont_wait(promise_ref(p), locals_error, NULL);
}

static void settle_with_values(void *p)
{
    say_locals();
    promise_resolve(p, weft_num(0));
    say_locals(); /* the caller's own are intact */
}

static void reject_with_values(void *p)
{
    promise_reject(p, -EIO);
    say_locals();
}

static void cancel_with_values(void *p)
{
    promise_cancel(p);
    say_locals();
}

PROMISE_TEST(conformance, storage_snapshots)
{
    void (*const settle[])(void *) = {settle_with_values, reject_with_values, cancel_with_values};
    const char *const expected[] = {
        "two one one one one one one one two ", /* bind map try finalize success termination any */
        "one one one one one one one two ", /* catch try finalize failure termination any dont_wait */
        "one one one one one one one one two ", /* and on_cancel */
    };

    for (int i = 0; i < 3; i++) {
        struct promise *p = promise_create_task();

        promise_with_value(&key, one, attach_everything, p);
        told("");
        promise_with_value(&key, two, settle[i], p);
        told(expected[i]);
        say_locals();
        told("- ");
        promise_with_value(&key, two, attach_everything, p); /* at once: the caller's */
        cr_assert_null(strstr(test_log, "one"));
        cr_assert_not_null(strstr(test_log, "two"));
        test_log[0] = '\0';
        promise_unref(p);
    }
}

/* ---- weft_set in a callback ---- */

static int set_two(void *ctx)
{
    (void)ctx;
    cr_assert_eq(weft_set(&key, two), 0);
    say_locals();
    return 0;
}

static struct promise *set_two_in_bind(union weft_value value, void *ctx)
{
    set_two(ctx);
    return promise_fulfilled(value);
}

/* A callback called at once is a part of its caller; one called later is not. */
static void set_at_once_and_later(void)
{
    struct promise *p = promise_create();

    promise_unref(promise_bind(promise_fulfilled(weft_num(0)), set_two_in_bind, NULL));
    say_locals();
    weft_set(&key, one);
    promise_on_termination(p, set_two, NULL);
    promise_unref(promise_bind(promise_ref(p), set_two_in_bind, NULL));
    promise_on_termination(p, locals_done, NULL);
    promise_resolve(p, weft_num(0));
    say_locals();
    promise_on_termination(p, set_two, NULL);
    say_locals();
    weft_set(&key, NULL);
    say_locals();
    told("two two one two two one two two - ");
    promise_unref(p);
}

static struct promise *set_inside(void *ctx)
{
    promise_unref(promise_bind(promise_fulfilled(weft_num(0)), set_two_in_bind, ctx));
    return promise_fulfilled(weft_num(0));
}

static void set_in_with_value(void *ctx)
{
    promise_unref(promise_call(set_inside, ctx));
    say_locals();
}

PROMISE_TEST(locals, weft_set_in_a_callback)
{
    set_at_once_and_later();
    promise_with_value(&key, one, set_in_with_value, NULL); /* for the time of the call */
    say_locals();
    told("two two - ");
}

#if WEFT_HAS_FIBERS
static int set_in_a_fiber(void *arg)
{
    (void)arg;
    cr_assert_not_null(fiber_self());
    set_at_once_and_later();
    promise_with_value(&key, one, set_in_with_value, NULL);
    say_locals();
    told("two two - ");
    return 0;
}

Test(locals, weft_set_in_a_fibers_callback)
{
    cr_assert_eq(run_on(&setups[0], set_in_a_fiber, NULL), 0);
}
#endif

/* What the loop calls finds nothing of what the callback before it has bound. */
static struct weft_timer timers[3];
static struct weft_task posted[3];
static struct ring_op ops[3];
static struct promise *completed;

static void set_in_timer(struct weft_timer *timer)
{
    (void)timer;
    say_locals();
    weft_set(&key, one);
}

static void set_in_task(struct weft_task *task)
{
    (void)task;
    say_locals();
    weft_set(&key, one);
}

static void set_in_completion(struct ring_op *op, int res, unsigned flags)
{
    (void)res;
    (void)flags;
    set_in_task(NULL);
    if (op == &ops[2]) {
        promise_resolve(completed, weft_num(0));
        promise_unref(completed);
    }
}

/* Three operations complete in one turn. */
static struct promise *set_from_completions(void *arg)
{
    (void)arg;
    completed = promise_create();
    for (int i = 0; i < 3; i++) {
        ops[i] = (struct ring_op){.done = set_in_completion};
        cr_assert_eq(ring_nop(&ops[i]), 0);
    }
    return promise_ref(completed);
}

static struct promise *set_from_the_loop(void *arg)
{
    struct weft_inbox *inbox = weft_inbox_ref();

    (void)arg;
    for (int i = 0; i < 3; i++) {
        weft_timer_init(&timers[i], set_in_timer);
        weft_timer_start(&timers[i], weft_now());
        posted[i].run = set_in_task;
        cr_assert_eq(weft_post(inbox, &posted[i]), 0);
    }
    weft_inbox_unref(inbox);
    weft_set(&key, two);
    return promise_bind(promise_pause(), locals_bind, NULL);
}

Test(locals, the_loop_forgets_after_each_callback)
{
    for (size_t i = 0; i < setups_count; i++) {
        struct weft_options options = setup_options(&setups[i]);

        cr_assert_eq(promise_run(set_from_the_loop, NULL, &options, NULL), 0);
        told("- - - - - - two ");
        if (strcmp(setups[i].engine, "null") == 0)
            continue;
        options = setup_options(&setups[i]);
        cr_assert_eq(promise_run(set_from_completions, NULL, &options, NULL), 0);
        told("- - - ");
    }
}

/* ---- pause ---- */

static int pause_again(void *ctx)
{
    *(struct promise **)ctx = promise_pause();
    return 0;
}

static void notify_and_pause(size_t count, void *ctx)
{
    say("n%zu ", count);
    if (count == 1)
        *(struct promise **)ctx = promise_pause();
}

static void notify_and_wake(size_t count, void *ctx)
{
    (void)ctx;
    say("n%zu ", count);
    promise_wakeup_paused();
}

PROMISE_TEST(conformance, pause)
{
    struct promise *p, *q, *r = NULL;

    cr_assert_eq(promise_paused_count(), 0);
    promise_wakeup_paused(); /* none */
    p = promise_pause();
    cr_assert_eq(promise_paused_count(), 1);
    cr_pending(p);
    promise_wakeup_paused();
    cr_value(p, 0);
    cr_assert_eq(promise_paused_count(), 0);
    promise_unref(p);
    p = promise_pause(); /* several, and one made while waking */
    q = promise_pause();
    promise_on_termination(p, pause_again, &r);
    cr_assert_eq(promise_paused_count(), 2);
    promise_wakeup_paused();
    cr_value(p, 0);
    cr_value(q, 0);
    cr_pending(r);
    cr_assert_eq(promise_paused_count(), 1);
    promise_wakeup_paused();
    cr_value(r, 0);
    promise_unref(p);
    promise_unref(q);
    promise_unref(r);

    r = NULL; /* a pause in the notifier */
    promise_set_pause_notifier(notify_and_pause, &r);
    p = promise_pause();
    told("n1 n2 ");
    promise_set_pause_notifier(NULL, NULL);
    promise_wakeup_paused();
    cr_value(p, 0);
    cr_value(r, 0);
    promise_unref(p);
    promise_unref(r);
    promise_set_pause_notifier(notify_and_wake, NULL); /* a wake in the notifier */
    p = promise_pause();
    told("n1 ");
    cr_value(p, 0);
    cr_assert_eq(promise_paused_count(), 0);
    promise_unref(p);
}

/* ---- callback cleanup, tailrec ---- */

static void lose_races(struct promise *p, int times)
{
    for (int i = 0; i < times; i++) {
        struct promise *winner = promise_create(), *list[] = {promise_ref(p), winner};
        struct promise *q;

        promise_ref(winner);
        q = promise_choose(list, 2);
        promise_resolve(winner, weft_num(i));
        cr_value(q, i);
        promise_unref(winner);
        promise_unref(q);
    }
}

PROMISE_TEST(conformance, callback_cleanup)
{
    struct promise *p = promise_create(), *trigger = promise_create(), *proxy;

    promise_on_success(p, tell_success, "before");
    lose_races(p, 43);
    promise_on_success(p, tell_success, "after");
    promise_resolve(p, weft_num(1));
    told("after(1) before(1) ");
    promise_unref(p);

    p = promise_create(); /* twice 22, through a proxy */
    proxy = promise_bind(promise_ref(trigger), give_promise, p);
    promise_on_success(proxy, tell_success, "proxy");
    promise_on_success(p, tell_success, "before");
    lose_races(p, 22);
    promise_resolve(trigger, weft_num(0));
    lose_races(proxy, 22);
    promise_on_success(p, tell_success, "after");
    promise_resolve(p, weft_num(1));
    told("after(1) proxy(1) before(1) ");
    promise_unref(p);
    promise_unref(proxy);
    promise_unref(trigger);
}

static struct promise *step(union weft_value value, void *ctx)
{
    size_t *left = ctx;

    if (--*left == 0)
        return promise_fulfilled(value);
    return promise_bind(promise_fulfilled(weft_num(value.num + 1)), step, ctx);
}

/* The tail call in `step` is the user's compiler's. */
PROMISE_TEST(conformance, tailrec)
{
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
    size_t steps = on_valgrind() ? 100000 : 10000000, left = steps;
#else
    size_t steps = 1000, left = steps;
#endif
    struct promise *p = promise_bind(promise_fulfilled(weft_num(1)), step, &left);

    cr_value(p, (int64_t)steps);
    promise_unref(p);
}
