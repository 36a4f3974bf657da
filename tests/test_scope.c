/* needs: fibers */
/* Scopes: what they wait for, how failures and cancellation spread, and what they give back. */
#include "fiber_internal.h"
#include "harness.h"
#include "io_support.h"

#include <weft/io.h>
#include <weft/promise.h>
#include <weft/scope.h>

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static char told[1024];

static void tell(const char *text)
{
    strncat(told, text, sizeof told - strlen(told) - 1);
}

static void expect(const char *text)
{
    cr_assert_str_eq(told, text);
    told[0] = '\0';
}

#define ON_EACH_SETUP(main)                                                         \
    for (size_t i_ = 0; i_ < setups_count; i_++) {                                  \
        told[0] = '\0';                                                             \
        cr_assert_eq(run_on(&setups[i_], main, NULL), 0, "%s: %s", setups[i_].name, \
                     report_text());                                                \
    }

static int64_t say(void *text)
{
    fiber_yield();
    tell(text);
    return 0;
}

static int64_t fail_soon(void *text)
{
    fiber_yield();
    tell(text);
    return -EIO;
}

static int64_t wait_for_ever(void *text)
{
    int rc = fiber_sleep_until(WEFT_FOREVER);

    tell(text);
    cr_assert_eq(fiber_sleep(0), -ECANCELED, "cancellation is a state");
    return rc;
}

static int waits_main(void *unused)
{
    struct fiber_scope scope;

    (void)unused;
    cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_scope_spawn(&scope, say, "a "), 0);
    cr_assert_eq(fiber_scope_spawn(&scope, say, "b "), 0);
    expect("");
    cr_assert_eq(fiber_scope_close(&scope, 7), 7);
    expect("a b ");
    cr_assert_eq(fiber_scope_failure_count(&scope), 0);
    cr_assert_eq(fiber_scope_spawn(&scope, say, "late"), -EINVAL);
    return 0;
}

Test(scope, waits_for_its_fibers)
{
    ON_EACH_SETUP(waits_main);
}

static int fails_main(void *unused)
{
    struct fiber_options options = {.size = sizeof options, .name = "loser", .where = "here:1"};
    struct fiber_failure failure;
    struct fiber_scope scope;

    (void)unused;
    cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_scope_spawn(&scope, wait_for_ever, "one "), 0);
    cr_assert_eq(fiber_scope_spawn_with(&scope, fail_soon, "failed ", &options), 0);
    cr_assert_eq(fiber_scope_spawn(&scope, wait_for_ever, "two "), 0);
    /* its owner is in it, too */
    cr_assert_eq(fiber_sleep_until(WEFT_FOREVER), -ECANCELED);
    cr_assert_eq(fiber_cancel_reason(), -EIO);
    cr_assert_eq(fiber_scope_spawn(&scope, say, "late "), -ECANCELED);
    cr_assert_eq(fiber_scope_close(&scope, -ECANCELED), -EIO);
    cr_assert_eq(fiber_check(), 0);
    cr_assert_eq(fiber_cancel_reason(), 0);
    expect("failed two one ");
    cr_assert_eq(fiber_scope_failure_count(&scope), 1);
    cr_assert_eq(fiber_scope_failure(&scope, 0, &failure), 0);
    cr_assert_eq(failure.error, -EIO);
    cr_assert_str_eq(failure.name, "loser");
    cr_assert_str_eq(failure.where, "here:1");
    cr_assert_eq(fiber_scope_failure(&scope, 1, &failure), -ENOENT);
    return 0;
}

Test(scope, a_failure_cancels_the_others_at_once)
{
    ON_EACH_SETUP(fails_main);
}

static int64_t fail_when_cancelled(void *error)
{
    (void)fiber_sleep_until(WEFT_FOREVER);
    return -(int64_t)(intptr_t)error;
}

static int later_main(void *unused)
{
    struct fiber_failure failure;
    struct fiber_scope scope;

    (void)unused;
    cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
    for (intptr_t i = 1; i <= 6; i++)
        cr_assert_eq(fiber_scope_spawn(&scope, fail_when_cancelled, (void *)i), 0);
    fiber_yield();
    cr_assert_eq(fiber_scope_close(&scope, -EPIPE), -EPIPE);
    cr_assert_eq(fiber_scope_failure_count(&scope), 7);
    cr_assert_eq(fiber_scope_failure(&scope, 0, &failure), 0);
    cr_assert_eq(failure.error, -EPIPE);
    cr_assert_str_eq(failure.name, "main");
    cr_assert_eq(fiber_scope_failure(&scope, 1, &failure), 0);
    cr_assert_lt(failure.error, 0);
    cr_assert_eq(fiber_scope_failure(&scope, FIBER_SCOPE_FAILURES, NULL), -ENOENT);
    return 0;
}

Test(scope, later_failures_are_kept)
{
    ON_EACH_SETUP(later_main);
}

/* ---- deadlines ---- */

static int deadline_main(void *unused)
{
    struct fiber_scope outer, inner;

    (void)unused;
    /* the earlier one counts, wherever it stands */
    cr_assert_eq(fiber_scope_open(&outer, weft_after(WEFT_MS(1))), 0);
    cr_assert_eq(fiber_scope_open(&inner, weft_after(WEFT_SEC(1000))), 0);
    cr_assert_eq(fiber_sleep(WEFT_SEC(2000)), -ECANCELED);
    cr_assert_eq(fiber_cancel_reason(), -ETIMEDOUT);
    cr_assert_eq(fiber_scope_close(&inner, -ECANCELED), -ECANCELED);
    cr_assert_eq(fiber_scope_close(&outer, -ECANCELED), -ETIMEDOUT);
    cr_assert_eq(fiber_scope_open(&outer, weft_after(WEFT_SEC(1000))), 0);
    cr_assert_eq(fiber_scope_open(&inner, WEFT_NOWAIT), 0);
    cr_assert_eq(fiber_sleep(WEFT_SEC(2000)), -ECANCELED);
    cr_assert_eq(fiber_scope_close(&inner, -ECANCELED), -ETIMEDOUT);
    cr_assert_eq(fiber_sleep(0), 0);
    cr_assert_eq(fiber_scope_close(&outer, 0), 0);
    /* what is through in time, or in spite of it, is through */
    cr_assert_eq(fiber_scope_open(&outer, weft_after(WEFT_US(1))), 0);
    while (!fiber_scope_cancelled(&outer))
        fiber_yield();
    cr_assert_eq(fiber_scope_close(&outer, 5), 5);
    cr_assert(weft__rt->timers == NULL);
    return 0;
}

Test(scope, deadlines_nest)
{
    ON_EACH_SETUP(deadline_main);
}

/* What was cancelled from outside was not cut short by a deadline that passes afterwards, while it
 * cleans up or releases: so that is no failure for those around it. */
static void outlast(void *deadline)
{
    cr_assert_eq(fiber_check(), 0);
    while (weft_now() <= *(weft_time *)deadline)
        cr_assert_eq(fiber_yield(), 0);
    cr_assert_eq(fiber_yield(), 0);
    cr_assert_eq(fiber_yield(), 0);
}

static int outlast_shielded(void *deadline)
{
    outlast(deadline);
    return 0;
}

static int64_t outlives_its_deadline(void *shielded)
{
    weft_time deadline = weft_after(WEFT_MS(5));
    struct fiber_resource resource;
    struct fiber_scope scope;
    int rc;

    cr_assert_eq(fiber_scope_open(&scope, deadline), 0);
    if (shielded == NULL)
        fiber_scope_attach(&scope, &resource, outlast, &deadline);
    rc = fiber_sleep_until(WEFT_FOREVER);
    cr_assert_eq(rc, -ECANCELED);
    if (shielded != NULL)
        (void)fiber_shield(outlast_shielded, &deadline);
    cr_assert_eq(fiber_cancel_reason(), -ECANCELED);
    rc = fiber_scope_close(&scope, rc);
    cr_assert_eq(rc, -ECANCELED);
    return rc;
}

static int outlive_main(void *unused)
{
    struct fiber_scope scope;

    (void)unused;
    for (intptr_t shielded = 0; shielded < 2; shielded++) {
        cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
        cr_assert_eq(fiber_scope_spawn(&scope, outlives_its_deadline, (void *)shielded), 0);
        fiber_yield();
        fiber_scope_cancel(&scope);
        cr_assert_eq(fiber_scope_close(&scope, 3), 3);
    }
    cr_assert(weft__rt->timers == NULL);
    return 0;
}

Test(scope, a_cancellation_beats_a_later_deadline)
{
    ON_EACH_SETUP(outlive_main);
}

/* ---- cancelling ---- */

static int64_t nest(void *depth)
{
    struct fiber_scope scope;
    int rc = fiber_scope_open(&scope, WEFT_FOREVER);

    cr_assert_eq(rc, 0);
    if ((intptr_t)depth > 0) {
        cr_assert_eq(fiber_scope_spawn(&scope, nest, (void *)((intptr_t)depth - 1)), 0);
        cr_assert_eq(fiber_scope_spawn(&scope, nest, (void *)((intptr_t)depth - 1)), 0);
    } else {
        rc = fiber_sleep_until(WEFT_FOREVER);
        cr_assert_eq(rc, -ECANCELED);
        tell("x");
    }
    return fiber_scope_close(&scope, rc);
}

static int tree_main(void *unused)
{
    struct fiber_scope scope;

    (void)unused;
    cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_scope_spawn(&scope, nest, (void *)4), 0);
    for (int i = 0; i < 10; i++)
        fiber_yield();
    fiber_scope_cancel(&scope);
    fiber_scope_cancel(&scope);
    cr_assert_eq(fiber_scope_close(&scope, 3), 3);
    expect("xxxxxxxxxxxxxxxx");
    return 0;
}

Test(scope, cancelling_reaches_the_whole_tree)
{
    ON_EACH_SETUP(tree_main);
}

static int64_t own_scope(void *arg)
{
    struct fiber_scope outer, inner;
    int rc;

    (void)arg;
    cr_assert_eq(fiber_scope_open(&outer, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_scope_spawn(&outer, wait_for_ever, "child "), 0);
    cr_assert_eq(fiber_scope_open(&inner, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_scope_spawn(&inner, wait_for_ever, "grandchild "), 0);
    rc = fiber_sleep_until(WEFT_FOREVER);
    rc = fiber_scope_close(&inner, rc);
    cr_assert_eq(rc, -ECANCELED);
    rc = fiber_scope_close(&outer, rc);
    cr_assert_eq(fiber_check(), -ECANCELED, "it is itself cancelled");
    return rc;
}

static int promise_main(void *unused)
{
    struct fiber_scope scope;
    struct promise *p = fiber_spawn(own_scope, NULL);

    (void)unused;
    fiber_yield();
    fiber_yield();
    promise_cancel(p);
    cr_assert_eq(fiber_await(p, NULL, WEFT_FOREVER), -ECANCELED);
    expect("child grandchild ");
    /* a fiber of a scope whose failure is its promise's */
    cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
    p = fiber_scope_promise(&scope, fail_soon, "failed ");
    cr_assert_eq(fiber_await(p, NULL, WEFT_FOREVER), -EIO);
    p = fiber_scope_promise(&scope, wait_for_ever, "waited ");
    fiber_yield();
    promise_cancel(p);
    promise_unref(p);
    cr_assert_eq(fiber_scope_close(&scope, 0), 0);
    expect("failed waited ");
    cr_assert_eq(fiber_await(fiber_scope_promise(NULL, say, ""), NULL, WEFT_FOREVER), -EINVAL);
    return 0;
}

Test(scope, cancelling_a_fiber_cancels_its_scopes)
{
    ON_EACH_SETUP(promise_main);
}

static bool in_long_shield;

static int clean_up(void *text)
{
    cr_assert_eq(fiber_check(), 0);
    cr_assert_eq(fiber_sleep(WEFT_US(10)), 0);
    while (in_long_shield)
        cr_assert_eq(fiber_yield(), 0);
    tell(text);
    return 42;
}

static int64_t shielding(void *unused)
{
    int rc = fiber_sleep_until(WEFT_FOREVER);

    (void)unused;
    cr_assert_eq(rc, -ECANCELED);
    cr_assert_eq(fiber_shield(clean_up, "clean "), 42);
    cr_assert_eq(fiber_check(), -ECANCELED);
    return rc;
}

static int long_shield(void *unused)
{
    (void)unused;
    in_long_shield = true;
    for (int i = 0; i < 20; i++)
        cr_assert_eq(fiber_yield(), 0);
    tell("through ");
    in_long_shield = false;
    return 0;
}

static int64_t shielded_first(void *unused)
{
    (void)unused;
    cr_assert_eq(fiber_shield(long_shield, NULL), 0);
    return fiber_check();
}

static int shield_main(void *unused)
{
    struct fiber_scope scope;

    (void)unused;
    cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_scope_spawn(&scope, shielding, NULL), 0);
    cr_assert_eq(fiber_scope_spawn(&scope, shielded_first, NULL), 0);
    fiber_yield();
    fiber_scope_cancel(&scope);
    cr_assert_eq(fiber_scope_close(&scope, 0), 0);
    expect("through clean ");
    return 0;
}

Test(scope, a_shield_keeps_cancellation_out)
{
    for (size_t i = 0; i < setups_count; i++) {
        told[0] = '\0';
        (void)run_on(&setups[i], shield_main, NULL);
    }
}

/* The runtime ends: every fiber is cancelled, and what it has open. */
static int64_t at_the_end(void *unused)
{
    struct fiber_scope scope;
    int rc;

    (void)unused;
    cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_scope_spawn(&scope, wait_for_ever, "child "), 0);
    rc = fiber_sleep_until(WEFT_FOREVER);
    cr_assert_eq(fiber_shield(clean_up, "clean "), 42);
    rc = fiber_scope_close(&scope, rc);
    tell("end ");
    return rc;
}

static int end_main(void *unused)
{
    (void)unused;
    cr_assert_eq(fiber_detach(at_the_end, NULL), 0);
    fiber_yield();
    fiber_yield();
    return 0;
}

Test(scope, the_runtimes_end_is_a_cancellation)
{
    for (size_t i = 0; i < setups_count; i++) {
        told[0] = '\0';
        cr_assert_eq(run_on(&setups[i], end_main, NULL), 0);
        expect("child clean end ");
    }
}

/* ---- daemons ---- */

static int daemon_main(void *unused)
{
    struct fiber_scope scope;

    (void)unused;
    cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_scope_daemon(&scope, wait_for_ever, "daemon "), 0);
    cr_assert_eq(fiber_scope_spawn(&scope, say, "fiber "), 0);
    cr_assert_eq(fiber_scope_close(&scope, 1), 1);
    expect("fiber daemon ");
    cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_scope_daemon(&scope, fail_soon, "failed "), 0);
    cr_assert_eq(fiber_sleep_until(WEFT_FOREVER), -ECANCELED);
    cr_assert_eq(fiber_scope_close(&scope, 1), -EIO);
    expect("failed ");
    return 0;
}

Test(scope, daemons_dont_keep_it_open)
{
    ON_EACH_SETUP(daemon_main);
}

/* ---- resources ---- */

static void give_back(void *text)
{
    cr_assert_eq(fiber_yield(), 0, "not cancelled, whatever happened");
    tell(text);
}

static int resources_main(void *unused)
{
    struct fiber_resource a, b, c, d, memory;
    struct fiber_scope outer, inner;

    (void)unused;
    cr_assert_eq(fiber_scope_open(&outer, WEFT_FOREVER), 0);
    fiber_scope_attach(&outer, &a, give_back, "a ");
    cr_assert_eq(fiber_scope_open(&inner, WEFT_FOREVER), 0);
    fiber_scope_attach(&inner, &b, give_back, "b ");
    fiber_scope_attach(&inner, &c, give_back, "c ");
    fiber_scope_attach(&inner, &d, give_back, "d ");
    fiber_scope_attach_memory(&inner, &memory, malloc(10));
    fiber_resource_move(&c, &outer);
    fiber_resource_detach(&d);
    fiber_resource_detach(&d);
    cr_assert_eq(fiber_scope_spawn(&inner, say, "fiber "), 0);
    cr_assert_eq(fiber_scope_close(&inner, -EIO), -EIO);
    expect("fiber b ");
    fiber_scope_attach(&outer, &d, give_back, "d ");
    fiber_resource_release(&d);
    expect("d ");
    fiber_scope_cancel(&outer);
    cr_assert_eq(fiber_sleep(0), -ECANCELED);
    cr_assert_eq(fiber_scope_close(&outer, -ECANCELED), -ECANCELED);
    expect("c a ");
    return 0;
}

Test(scope, resources_are_released_newest_first)
{
    ON_EACH_SETUP(resources_main);
}

/* A scope that releases its resources has waited for its fibers: no more are started. */
static struct fiber_scope *releasing;
static struct promise *given;

static void start_more(void *unused)
{
    (void)unused;
    cr_assert_eq(fiber_scope_spawn(releasing, say, "late "), -ECANCELED);
    cr_assert_eq(fiber_scope_daemon(releasing, say, "late "), -ECANCELED);
    cr_assert_eq(fiber_await(fiber_scope_promise(releasing, say, "late "), NULL, WEFT_FOREVER),
                 -ECANCELED);
    cr_assert_eq(fiber_scope_hold(releasing, promise_ref(given)), -ECANCELED);
    fiber_scope_cancel(releasing);
    cr_assert_eq(fiber_yield(), 0, "not even now");
    tell("released ");
}

static int start_more_main(void *unused)
{
    struct fiber_resource resource;
    struct fiber_scope scope;

    (void)unused;
    for (int with_fibers = 0; with_fibers < 2; with_fibers++) {
        releasing = &scope;
        given = promise_create_task();
        cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
        fiber_scope_attach(&scope, &resource, start_more, NULL);
        if (with_fibers) {
            cr_assert_eq(fiber_scope_spawn(&scope, say, ""), 0);
            cr_assert_eq(fiber_scope_daemon(&scope, wait_for_ever, ""), 0);
        }
        cr_assert_eq(fiber_scope_close(&scope, 4), 4);
        expect("released ");
        promise_unref(given);
        for (int i = 0; i < 4; i++)
            fiber_yield();
        expect("");
    }
    return 0;
}

Test(scope, starts_no_fibers_while_it_releases)
{
    ON_EACH_SETUP(start_more_main);
}

/* ---- promises ---- */

static int hold_main(void *unused)
{
    struct promise *good = promise_create_task(), *bad = promise_create_task();
    struct promise *left = promise_create_task();
    struct fiber_scope scope;
    int error = 0;

    (void)unused;
    cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_scope_hold(&scope, promise_ref(good)), 0);
    cr_assert_eq(fiber_scope_hold(&scope, promise_ref(bad)), 0);
    cr_assert_eq(fiber_scope_hold(&scope, promise_ref(left)), 0);
    fiber_yield();
    promise_resolve(good, weft_num(1));
    promise_reject(bad, -EPIPE);
    cr_assert_eq(fiber_scope_close(&scope, 0), -EPIPE);
    cr_assert_eq(promise_poll(left, NULL, &error), PROMISE_REJECTED);
    cr_assert_eq(error, -ECANCELED);
    promise_unref(good);
    promise_unref(bad);
    promise_unref(left);
    /* refused: it is cancelled */
    cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
    fiber_scope_cancel(&scope);
    left = promise_create_task();
    cr_assert_eq(fiber_scope_hold(&scope, promise_ref(left)), -ECANCELED);
    cr_assert_eq(promise_state(left), PROMISE_REJECTED);
    promise_unref(left);
    cr_assert_eq(fiber_scope_hold(&scope, NULL), -EINVAL);
    cr_assert_eq(fiber_scope_close(&scope, 0), 0);
    return 0;
}

Test(scope, promises_belong_to_it)
{
    ON_EACH_SETUP(hold_main);
}

/* It fails after the scope has been cancelled, and before the fiber that waits for it has seen that. */
static int hold_late_main(void *unused)
{
    struct promise *p = promise_create_task();
    struct fiber_scope scope;

    (void)unused;
    cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_scope_hold(&scope, promise_ref(p)), 0);
    fiber_yield();
    fiber_scope_cancel(&scope);
    cr_assert_eq(promise_reject(p, -EPIPE), 0);
    cr_assert_eq(fiber_scope_close(&scope, 0), -EPIPE);
    promise_unref(p);
    return 0;
}

Test(scope, a_failure_beside_a_cancellation_is_not_lost)
{
    ON_EACH_SETUP(hold_late_main);
}

/* Two tasks, one waits for a connection, the other fails: the scope ends at once with the second
 * one's error. */
static int64_t accept_one(void *listener)
{
    return fiber_accept(*(int *)listener, NULL, NULL, 0, WEFT_FOREVER);
}

static int seed_main(void *unused)
{
    int listener = ring_listen("127.0.0.1", "0", 0), before = open_descriptors();
    struct fiber_call calls[] = {{accept_one, &listener, 0}, {fail_soon, "failed ", 0}};

    (void)unused;
    cr_assert_eq(fiber_all(calls, 2, 0), -EIO);
    cr_assert_eq(calls[0].result, -ECANCELED);
    cr_assert_eq(calls[1].result, -EIO);
    expect("failed ");
    cr_assert_eq(open_descriptors(), before);
    cr_assert_eq(fiber_close(listener), 0);
    return 0;
}

Test(scope, one_waits_for_a_connection_the_other_fails)
{
    EACH_IO_SETUP(setup)
    {
        told[0] = '\0';
        cr_assert_eq(run_on(setup, seed_main, NULL), 0, "%s", setup->name);
    }
}

/* The same with a connection in its hands, which the other's failure finds open. */
static int held = -1;

static int64_t serve_and_accept(void *listener)
{
    int fd = fiber_accept(*(int *)listener, NULL, NULL, 0, WEFT_FOREVER), rc;

    held = fd;
    rc = fiber_accept(*(int *)listener, NULL, NULL, 0, WEFT_FOREVER);
    cr_assert_eq(fiber_close(fd), 0);
    return rc;
}

static int64_t fail_beside(void *unused)
{
    (void)unused;
    fiber_set_name("beside");
    while (held < 0)
        if (fiber_yield() < 0)
            return -ECANCELED;
    return -EDOM;
}

static int held_main(void *unused)
{
    int listener = ring_listen("127.0.0.1", "0", 8), client;
    struct sockaddr_storage address;
    socklen_t len;
    struct fiber_failure failure;
    struct fiber_scope scope;
    char byte;

    (void)unused;
    held = -1;
    cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_scope_spawn(&scope, serve_and_accept, &listener), 0);
    cr_assert_eq(fiber_scope_spawn(&scope, fail_beside, NULL), 0);
    len = loopback(&address, false, ring_local_port(listener));
    client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(client, (struct sockaddr *)&address, len), 0); /* the backlog takes it */
    cr_assert_eq(fiber_scope_close(&scope, 0), -EDOM);
    cr_assert_eq(fiber_scope_failure(&scope, 0, &failure), 0);
    cr_assert_str_eq(failure.name, "beside");
    cr_assert(strstr(failure.where, "test_scope.c") != NULL);
    cr_assert_eq(recv(client, &byte, 1, MSG_DONTWAIT), 0, "closed by now");
    cr_assert_eq(weft__rt->engine->in_flight, 0);
    close(client);
    cr_assert_eq(fiber_close(listener), 0);
    return 0;
}

Test(scope, a_failure_closes_the_others_sockets)
{
    run_on_each_io_setup(held_main);
}

/* ---- several at once ---- */

static size_t running, most_running;

static int count_running(size_t index, void *item, void *ctx)
{
    cr_assert_eq(*(int *)item, (int)index * 3);
    running++;
    if (running > most_running)
        most_running = running;
    fiber_yield();
    running--;
    ++*(int *)ctx;
    return *(int *)item == 3 * 50 ? -EDOM : 0;
}

static int64_t number(void *n)
{
    for (intptr_t i = (intptr_t)n; i >= 0; i--)
        if (fiber_yield() < 0)
            return -ECANCELED;
    return (intptr_t)n;
}

static int many_main(void *unused)
{
    struct fiber_call calls[] = {
        {number, (void *)9, 0}, {number, (void *)2, 0}, {number, (void *)5, 0}};
    struct fiber_call bad[] = {{fail_soon, "", 0}, {number, (void *)4, 0}, {wait_for_ever, "", 0}};
    struct fiber_call all_bad[] = {{fail_soon, "", 0}, {fail_soon, "", 0}};
    int items[60], done = 0;

    (void)unused;
    for (int i = 0; i < 60; i++)
        items[i] = 3 * i;
    most_running = running = 0;
    cr_assert_eq(fiber_map(count_running, items, 40, sizeof *items, &done, 7), 0);
    cr_assert_eq(done, 40);
    cr_assert_eq(most_running, 7);
    cr_assert_eq(fiber_map(count_running, items, 60, sizeof *items, &done, 1), -EDOM);
    cr_assert_eq(done, 40 + 51);
    cr_assert_eq(fiber_map(count_running, NULL, 0, 1, &done, 0), 0);
    cr_assert_eq(fiber_map(NULL, items, 1, 1, &done, 0), -EINVAL);
    cr_assert_eq(fiber_all(calls, 3, 2), 0);
    cr_assert_eq(calls[0].result + calls[1].result + calls[2].result, 16);
    cr_assert_eq(fiber_all(NULL, 0, 0), 0);
    cr_assert_eq(fiber_all(NULL, 1, 0), -EINVAL);
    cr_assert_eq(fiber_first(calls, 3), 1);
    cr_assert_eq(calls[0].result, -ECANCELED);
    cr_assert_eq(calls[1].result, 2);
    cr_assert_eq(fiber_first(bad, 3), 0);
    cr_assert_eq(fiber_any(bad, 3), 1);
    cr_assert_eq(bad[1].result, 4);
    cr_assert_eq(fiber_any(all_bad, 2), -EIO);
    cr_assert_eq(fiber_first(NULL, 0), -EINVAL);
    cr_assert_eq(fiber_both(number, (void *)1, number, (void *)2), 0);
    cr_assert_eq(fiber_both(number, (void *)1, NULL, NULL), -EINVAL);
    return 0;
}

Test(scope, several_at_once)
{
    ON_EACH_SETUP(many_main);
}

static int64_t race_in_vain(void *unused)
{
    struct fiber_call calls[] = {{wait_for_ever, "one ", 0}, {wait_for_ever, "two ", 0}};

    (void)unused;
    cr_assert_eq(fiber_first(calls, 2), -ECANCELED);
    cr_assert_eq(fiber_any(calls, 2), -ECANCELED);
    cr_assert_eq(fiber_all(calls, 2, 0), -ECANCELED);
    return -ECANCELED;
}

static int vain_main(void *unused)
{
    struct promise *p = fiber_spawn(race_in_vain, NULL);

    (void)unused;
    fiber_yield();
    fiber_yield();
    promise_cancel(p);
    cr_assert_eq(fiber_await(p, NULL, WEFT_FOREVER), -ECANCELED);
    expect("two one ");
    return 0;
}

Test(scope, races_are_cancelled)
{
    ON_EACH_SETUP(vain_main);
}

/* Who ends with -ECANCELED though nobody cancelled it has failed; what else fails tells more. */
static int64_t end_cancelled(void *text)
{
    tell(text);
    return -ECANCELED;
}

static int end_item_cancelled(size_t index, void *item, void *ctx)
{
    (void)item;
    ++*(int *)ctx;
    return index == 0 ? -ECANCELED : 0;
}

static int cancelled_one_main(void *unused)
{
    struct fiber_call calls[] = {{end_cancelled, "a ", 0}, {say, "b ", 0}};
    int items[3] = {0}, done = 0;

    (void)unused;
    cr_assert_eq(fiber_all(calls, 2, 1), -ECANCELED);
    cr_assert_eq(calls[0].result, -ECANCELED);
    cr_assert_eq(calls[1].result, -ECANCELED, "not begun");
    expect("a ");
    cr_assert_eq(fiber_map(end_item_cancelled, items, 3, sizeof *items, &done, 1), -ECANCELED);
    cr_assert_eq(done, 1);
    cr_assert_eq(fiber_any(calls, 2), 1);
    cr_assert_eq(fiber_first(calls, 2), 0);
    return 0;
}

Test(scope, cancelled_by_nobody)
{
    ON_EACH_SETUP(cancelled_one_main);
}

static int cancelled_cause_main(void *unused)
{
    struct fiber_scope scope;
    struct fiber_failure failure;
    struct promise *p;

    (void)unused;
    /* the scope ends at once, and with it */
    cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_scope_spawn(&scope, end_cancelled, "a "), 0);
    cr_assert_eq(fiber_scope_spawn(&scope, wait_for_ever, "b "), 0);
    cr_assert_eq(fiber_scope_close(&scope, 0), -ECANCELED);
    expect("a b ");
    cr_assert_eq(fiber_scope_failure_count(&scope), 1);
    cr_assert_eq(fiber_scope_failure(&scope, 0, &failure), 0);
    cr_assert_eq(failure.error, -ECANCELED);

    /* a failure with another error tells more */
    cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_scope_spawn(&scope, fail_when_cancelled, (void *)(intptr_t)EIO), 0);
    cr_assert_eq(fiber_scope_spawn(&scope, end_cancelled, "a "), 0);
    cr_assert_eq(fiber_scope_close(&scope, 0), -EIO);
    cr_assert_eq(fiber_scope_failure_count(&scope), 2);

    /* the owner is no exception */
    cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_scope_spawn(&scope, wait_for_ever, ""), 0);
    cr_assert_eq(fiber_scope_close(&scope, -ECANCELED), -ECANCELED);
    cr_assert_eq(fiber_scope_failure_count(&scope), 1);

    /* one whose result is a promise's tells it there */
    cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), 0);
    p = fiber_scope_promise(&scope, end_cancelled, "");
    cr_assert_eq(fiber_await(p, NULL, WEFT_FOREVER), -ECANCELED);
    cr_assert_eq(fiber_scope_close(&scope, 0), 0);

    /* without a scope it is reported */
    cr_assert(strstr(report_text(), "end_cancelled") == NULL);
    cr_assert_eq(fiber_detach(end_cancelled, ""), 0);
    fiber_yield();
    cr_assert(strstr(report_text(), "failed") != NULL, "%s", report_text());
    return 0;
}

Test(scope, cancelled_by_nobody_is_a_failure)
{
    ON_EACH_SETUP(cancelled_cause_main);
}

/* A race that is cancelled while some still run was not lost by the one that has failed. */
static int64_t race_half_lost(void *unused)
{
    struct fiber_call calls[] = {{fail_soon, "failed ", 0}, {wait_for_ever, "waited ", 0}};

    (void)unused;
    return fiber_any(calls, 2);
}

static int half_lost_main(void *unused)
{
    struct promise *p = fiber_spawn(race_half_lost, NULL);

    (void)unused;
    for (int i = 0; i < 4; i++)
        fiber_yield();
    promise_cancel(p);
    cr_assert_eq(fiber_await(p, NULL, WEFT_FOREVER), -ECANCELED);
    expect("failed waited ");
    return 0;
}

Test(scope, a_cancelled_race_has_not_failed)
{
    ON_EACH_SETUP(half_lost_main);
}

/* ---- misuse ---- */

static int misuse_main(void *unused)
{
    struct fiber_scope outer, inner;

    (void)unused;
    cr_assert_eq(fiber_scope_open(NULL, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_scope_close(NULL, 0), -EINVAL);
    cr_assert_eq(fiber_scope_open(&outer, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_scope_open(&inner, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_scope_close(&outer, 0), -EINVAL);
    cr_assert(report_contains("not the one that this fiber opened last"));
    cr_assert_eq(fiber_scope_close(&inner, 0), 0);
    cr_assert_eq(fiber_scope_close(&inner, 0), -EINVAL);
    cr_assert_eq(fiber_scope_close(&outer, 0), 0);
    cr_assert_eq(fiber_scope_spawn(NULL, say, ""), -EINVAL);
    cr_assert_eq(fiber_shield(NULL, NULL), -EINVAL);
    fiber_scope_cancel(&outer);
    fiber_scope_fail(NULL, -EIO);
    fiber_resource_release(NULL);
    return 0;
}

Test(scope, misuse)
{
    struct fiber_scope scope;

    cr_assert_eq(fiber_scope_open(&scope, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_cancel_reason(), 0);
    cr_assert_eq(run_on(&setups[0], misuse_main, NULL), 0);
}

static int64_t leave_open(void *unused)
{
    static struct fiber_scope scope;

    (void)unused;
    return fiber_scope_open(&scope, WEFT_FOREVER);
}

static int leave_open_main(void *unused)
{
    (void)unused;
    return fiber_await(fiber_spawn(leave_open, NULL), NULL, WEFT_FOREVER);
}

Test(scope, a_fiber_must_not_end_with_one_open, .signal = SIGABRT)
{
    (void)weft_run(leave_open_main, NULL, NULL);
}

static int leave_open_shielded(void *scope)
{
    return fiber_scope_open(scope, WEFT_FOREVER);
}

static int shield_open_main(void *unused)
{
    static struct fiber_scope scope;

    (void)unused;
    return fiber_shield(leave_open_shielded, &scope);
}

Test(scope, a_shield_must_not_end_with_one_open, .signal = SIGABRT)
{
    (void)weft_run(shield_open_main, NULL, NULL);
}

/* A failure that nobody sees is told once. */
static int detached_main(void *unused)
{
    struct fiber_options options = {.size = sizeof options, .name = "lonely", .where = "there.c:7"};

    (void)unused;
    cr_assert_eq(fiber_detach_with(fail_soon, "", &options), 0);
    fiber_yield();
    fiber_yield();
    cr_assert(report_contains("\"lonely\" (spawned at there.c:7)"));
    cr_assert(report_contains("Input/output error"));
    return 0;
}

Test(scope, failures_that_nobody_sees_are_reported)
{
    cr_assert_eq(run_on(&setups[0], detached_main, NULL), 0);
}

static int dropped_main(void *unused)
{
    (void)unused;
    promise_unref(fiber_spawn_with(
        fail_soon, "",
        &(struct fiber_options){.size = sizeof(struct fiber_options), .name = "dropped"}));
    promise_unref(fiber_spawn(say, ""));
    fiber_yield();
    fiber_yield();
    cr_assert(report_contains("\"dropped\""));
    return 0;
}

Test(scope, failures_of_dropped_promises_are_reported)
{
    cr_assert_eq(run_on(&setups[0], dropped_main, NULL), 0);
}
