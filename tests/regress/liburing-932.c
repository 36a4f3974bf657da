/* needs: fibers */
/* axboe/liburing#932, #568: a socket is closed while a receive is pending: the receive never ends, and the
 * peer is told nothing, since the request in the kernel keeps the socket open.
 *
 * Closing ends what is in flight, waits until it is over, and only then closes: the peer sees the end at
 * once, and a fiber that tries again finds the descriptor bad. */
#include "fiber_internal.h"
#include "io_support.h"

#include <weft/io.h>
#include <weft/promise.h>

#include <criterion/criterion.h>

struct reader {
    int fd, result;
    bool ended;
};

static int64_t recv_fiber(void *arg)
{
    struct reader *r = arg;
    char buf[8];

    r->result = fiber_recv(r->fd, buf, sizeof buf, 0, WEFT_FOREVER);
    r->ended = true;
    return 0;
}

/* Starts its receive again and again, as long as there is no error but a cancel. */
static int64_t stubborn_fiber(void *arg)
{
    struct reader *r = arg;
    char buf[8];

    do
        r->result = fiber_recv(r->fd, buf, sizeof buf, 0, WEFT_FOREVER);
    while (r->result == -ECANCELED);
    r->ended = true;
    return 0;
}

static int close_main(void *unused)
{
    (void)unused;
    for (int i = 0; i < 6; i++) {
        struct reader a = {.fd = -1}, b = a, stubborn = a;
        struct promise *p;
        int tcp[2], rc;
        char buf[1];

        make_tcp(tcp);
        a.fd = b.fd = stubborn.fd = tcp[0];
        cr_assert_eq(fiber_detach(recv_fiber, &a), 0);
        cr_assert_eq(fiber_detach(recv_fiber, &b), 0);
        cr_assert_eq(fiber_detach(stubborn_fiber, &stubborn), 0);
        fiber_yield();
        if (i % 2)
            fiber_nop(WEFT_FOREVER);
        p = promise_poll_fd(tcp[0], POLLIN, WEFT_FOREVER);
        rc = i < 4 ? fiber_close(tcp[0]) : fiber_await(promise_close(tcp[0]), NULL, WEFT_FOREVER);
        cr_assert_eq(rc, 0);
        cr_assert_eq(fcntl(tcp[0], F_GETFD), -1);
        cr_assert_eq(recv(tcp[1], buf, 1, 0), 0, "the peer sees the end at once");
        while (!a.ended || !b.ended || !stubborn.ended)
            fiber_yield();
        cr_assert(a.result == -ECANCELED && b.result == -ECANCELED, "%d %d", a.result, b.result);
        cr_assert_eq(stubborn.result, -EBADF);
        cr_assert_eq(fiber_await(p, NULL, WEFT_FOREVER), -ECANCELED);
        close(tcp[1]);
    }
    return 0;
}

Test(liburing_932, close_ends_what_is_in_flight)
{
    run_on_each_io_setup(close_main);
}

/* A cancelled fiber still closes. */
struct closer {
    struct fiber *self;
    int fd, result;
    bool ended;
};

static int64_t close_fiber(void *arg)
{
    struct closer *c = arg;

    c->self = fiber_self();
    fiber_sleep_until(WEFT_FOREVER);
    c->result = fiber_close(c->fd);
    c->ended = true;
    return 0;
}

static int shielded_main(void *unused)
{
    struct closer c = {0};
    struct reader r = {0};
    int pair[2];

    (void)unused;
    make_pair(pair);
    c.fd = r.fd = pair[0];
    cr_assert_eq(fiber_detach(recv_fiber, &r), 0);
    cr_assert_eq(fiber_detach(close_fiber, &c), 0);
    fiber_yield();
    fiber__cancel(weft__rt, c.self);
    while (!c.ended || !r.ended)
        fiber_yield();
    cr_assert_eq(c.result, 0);
    cr_assert_eq(r.result, -ECANCELED);
    cr_assert_eq(fcntl(pair[0], F_GETFD), -1);
    close(pair[1]);
    return 0;
}

Test(liburing_932, close_is_shielded)
{
    run_on_each_io_setup(shielded_main);
}
