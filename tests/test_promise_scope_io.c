/* Two tasks, one serves a connection and waits for the next one, the other fails. With promises alone,
 * which are Lwt's, the failure is told when both are through: never, unless a client comes. In a scope
 * it is told at once, and the sockets are closed. (Fibers: scope/one_waits_for_a_connection_...) */
#include "io_support.h"
#include "ring_internal.h"

#include <weft/io.h>
#include <weft/promise.h>
#include <weft/promise_sync.h>

#include <criterion/criterion.h>

static int listener, served, client, closed;

/* ---- one task: accepts a connection, keeps it, and waits for another one ---- */

static struct promise *wait_for_another(union weft_value fd, void *ctx)
{
    (void)ctx;
    served = (int)fd.num;
    return promise_accept(listener, NULL, NULL, 0, WEFT_FOREVER);
}

static struct promise *hang_up(void *ctx)
{
    (void)ctx;
    closed++;
    return promise_close(served);
}

static struct promise *serve(void)
{
    return promise_finalize(
        promise_bind(promise_accept(listener, NULL, NULL, 0, WEFT_FOREVER), wait_for_another, NULL),
        hang_up, NULL);
}

/* ---- the other ---- */

static struct promise *fail(union weft_value ignored, void *ctx)
{
    (void)ignored;
    (void)ctx;
    return promise_rejected(-EDOM);
}

/* ---- both ---- */

static int connect_client(void)
{
    struct sockaddr_storage address;
    socklen_t len = loopback(&address, false, ring_local_port(listener));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    cr_assert_eq(connect(fd, (struct sockaddr *)&address, len), 0);
    return fd;
}

/* Until the first task waits for another connection. */
static void begin(struct promise *tasks[2], struct promise **trigger)
{
    listener = ring_listen("127.0.0.1", "0", 8);
    cr_assert_geq(listener, 0);
    served = -1;
    closed = 0;
    *trigger = promise_create();
    tasks[0] = serve();
    tasks[1] = promise_bind(promise_ref(*trigger), fail, NULL);
    client = connect_client();
    while (served < 0)
        turn();
}

static void trip(struct promise *trigger)
{
    cr_assert_eq(promise_resolve(trigger, weft_num(0)), 0);
    promise_unref(trigger);
}

static int error_of(struct promise *p)
{
    int error = 0;

    while (promise_state(p) == PROMISE_PENDING)
        turn();
    cr_assert_eq(promise_poll(p, NULL, &error), PROMISE_REJECTED);
    promise_unref(p);
    return error;
}

/* What the client sees: 0, the end; -EAGAIN, nothing. */
static int seen_by_client(void)
{
    char byte;

    return recv(client, &byte, 1, MSG_DONTWAIT) < 0 ? -errno : 0;
}

static void finish(void)
{
    cr_assert_eq(seen_by_client(), 0);
    cr_assert_eq(closed, 1);
    cr_assert_eq(weft__rt->engine->in_flight, 0, "something is still waited for");
    close(client);
    close(listener);
}

static void on_each_setup(void (*body)(void))
{
    EACH_IO_SETUP(setup)
    {
        int before = open_descriptors();

        cr_assert_eq(run_by_hand(setup, body), 0, "%s", setup->name);
        cr_assert_eq(open_descriptors(), before, "%s: descriptors are left", setup->name);
    }
}

/* ---- promises alone ---- */

static void join_body(void)
{
    struct promise *tasks[2], *trigger, *both, *accepted;
    union weft_value another;
    int late;

    begin(tasks, &trigger);
    accepted = promise_ref(tasks[0]);
    both = promise_join(tasks, 2);
    trip(trigger);
    for (int i = 0; i < 20; i++) {
        struct promise *pause = promise_nop(WEFT_FOREVER);

        while (promise_state(pause) == PROMISE_PENDING)
            turn();
        promise_unref(pause);
    }
    cr_assert_eq(promise_state(both), PROMISE_PENDING, "the failure is known, and not told");
    cr_assert_eq(seen_by_client(), -EAGAIN, "the connection is held");
    late = connect_client();
    cr_assert_eq(error_of(both), -EDOM, "told, when somebody happened to come");
    /* Nobody used it, and nobody closes it: the join has dropped it. */
    cr_assert_eq(promise_poll(accepted, &another, NULL), PROMISE_FULFILLED);
    close((int)another.num);
    promise_unref(accepted);
    close(late);
    finish();
}

Test(promise_scope_io, a_join_waits_for_a_client_to_tell_the_failure)
{
    on_each_setup(join_body);
}

/* The nearest that promises alone have: the first to settle, whatever it is, ends the other; but
 * nobody waits for the other's end. */
static void pick_body(void)
{
    struct promise *tasks[2], *trigger, *first;

    begin(tasks, &trigger);
    first = promise_pick(tasks, 2);
    trip(trigger);
    cr_assert_eq(error_of(first), -EDOM);
    while (weft__rt->engine->in_flight > 0)
        turn();
    finish();
}

Test(promise_scope_io, a_pick_tells_it_and_waits_for_nobody)
{
    on_each_setup(pick_body);
}

/* ---- a scope ---- */

static void scope_body(void)
{
    struct promise *tasks[2], *trigger;
    struct promise_scope *scope = promise_scope_create();

    begin(tasks, &trigger);
    cr_assert_eq(promise_scope_add(scope, tasks[0]), 0);
    cr_assert_eq(promise_scope_add(scope, tasks[1]), 0);
    trip(trigger);
    cr_assert_eq(error_of(promise_scope_close(scope)), -EDOM);
    finish(); /* all is through: the scope has waited for it */
}

Test(promise_scope_io, a_scope_tells_it_at_once_and_closes_the_sockets)
{
    on_each_setup(scope_body);
}
