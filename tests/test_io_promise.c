/* Every operation as a promise; works in a build without fibers. */
#include "io_support.h"
#include "ring_internal.h"

#include <weft/promise.h>

static weft_time far; /* the suite's deadline */

#define COMMA_BEFORE(...)   __VA_ARGS__ __VA_OPT__(, )
#define DO(name, ...)       outcome_of(promise_##name(COMMA_BEFORE(__VA_ARGS__) far))
#define DO_POLL(fd, events) DO(poll_fd, fd, events)
#define DO_CLOSE(fd)        outcome_of(promise_close(fd))
#include "io_suite.h"

static void suite_body(void)
{
    far = WEFT_FOREVER;
    run_suite();
    far = weft_after(WEFT_SEC(1000));
    run_suite();
    cr_assert(weft__rt->timers == NULL, "no deadline is left behind");
    cr_assert_eq(weft__rt->engine->in_flight, 0);
}

Test(io_promise, each_does_what_it_should)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, suite_body), 0, "%s", setup->name);
    }
}

static void no_io_body(void)
{
    cr_assert_eq(outcome_of(promise_nop(WEFT_FOREVER)), -ENOSYS);
    cr_assert_eq(outcome_of(promise_close(-1)), -EBADF);
    cr_assert_eq(outcome_of(promise_close(dup(1))), 0);
}

Test(io_promise, without_an_engine)
{
    struct promise *p = promise_nop(WEFT_FOREVER);
    int error = 0;

    cr_assert_eq(promise_poll(p, NULL, &error), PROMISE_REJECTED);
    cr_assert_eq(error, -EINVAL);
    promise_unref(p);
    p = promise_close(1);
    cr_assert_eq(promise_poll(p, NULL, &error), PROMISE_REJECTED);
    promise_unref(p);
    p = promise_connect_host("127.0.0.1", "1", WEFT_FOREVER);
    cr_assert_eq(promise_poll(p, NULL, &error), PROMISE_REJECTED);
    promise_unref(p);
    cr_assert_eq(run_by_hand(&setups[0], no_io_body), 0);
}

/* ---- deadlines and cancels ---- */

static int pipe_ends[2], other_ends[2];

static struct promise *start_waiting(int which, int pair[2], int listener, weft_time deadline)
{
    static char buf[8];
    static struct iovec iov = {buf, sizeof buf};
    static struct msghdr message;
    static struct sockaddr_storage from;
    static socklen_t len;

    message = (struct msghdr){.msg_iov = &iov, .msg_iovlen = 1};
    len = sizeof from;

    switch (which) {
    case 0:
        return promise_read(pair[0], buf, 1, -1, deadline);
    case 1:
        return promise_readv(pair[0], &iov, 1, -1, deadline);
    case 2:
        return promise_recv(pair[0], buf, 1, 0, deadline);
    case 3:
        return promise_accept(listener, NULL, NULL, 0, deadline);
    case 4:
        return promise_poll_fd(pair[0], POLLIN, deadline);
    case 5:
        return promise_recv_all(pair[0], buf, 8, 0, NULL, deadline);
    case 6:
        return promise_recvmsg(pair[0], &message, 0, deadline);
    case 7:
        return promise_recvfrom(pair[0], buf, 1, 0, (struct sockaddr *)&from, &len, deadline);
    case 8:
        return promise_splice(pair[0], -1, pipe_ends[1], -1, 1, 0, deadline);
    case 9:
        return promise_splice(pipe_ends[0], -1, pair[0], -1, 1, 0, deadline);
    case 10:
        return promise_tee(pipe_ends[0], other_ends[1], 1, 0, deadline);
    default:
        return promise_read_all(pair[0], buf, 8, -1, NULL, deadline);
    }
}

static void ends_body(void)
{
    int pair[2], listener = ring_listen("127.0.0.1", "0", 4);

    make_pair(pair);
    make_pipe(pipe_ends);
    make_pipe(other_ends);
    for (int i = 0; i < 12; i++) {
        struct promise *p;

        cr_assert_eq(outcome_of(start_waiting(i, pair, listener, weft_after(WEFT_MS(1)))),
                     -ETIMEDOUT, "%d", i);
        cr_assert_eq(outcome_of(start_waiting(i, pair, listener, weft_now() - 1)), -ETIMEDOUT);
        cr_assert_eq(outcome_of(start_waiting(i, pair, listener, WEFT_NOWAIT)), -ETIMEDOUT);
        for (int submitted = 0; submitted < 2; submitted++) {
            p = start_waiting(i, pair, listener,
                              submitted ? WEFT_FOREVER : weft_after(WEFT_SEC(9)));
            if (submitted)
                weft__rt->engine->class->turn(weft__rt->engine, WEFT_NOWAIT);
            promise_cancel(p);
            cr_assert_eq(promise_state(p), PROMISE_PENDING, "a cancel is a request");
            promise_cancel(p);
            cr_assert_eq(outcome_of(p), -ECANCELED, "%d", i);
        }
    }
    cr_assert(weft__rt->timers == NULL);
    close(listener);
    close_pair(pipe_ends);
    close_pair(other_ends);
    close_pair(pair);
}

Test(io_promise, deadlines_and_cancels)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, ends_body), 0, "%s", setup->name);
    }
}

/* What was done is told, cancelled or not. */
static void done_body(void)
{
    struct promise *p;
    int pair[2];
    char buf[8];

    make_pair(pair);
    cr_assert_eq(write(pair[1], "data", 4), 4);
    p = promise_recv(pair[0], buf, sizeof buf, 0, WEFT_FOREVER);
    promise_cancel(p);
    cr_assert_eq(outcome_of(p), 4);
    cr_assert_eq(write(pair[1], "data", 4), 4);
    cr_assert_eq(outcome_of(promise_recv(pair[0], buf, sizeof buf, 0, WEFT_NOWAIT)), 4);
    close_pair(pair);
}

Test(io_promise, completion_beats_cancel_and_deadline)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, done_body), 0, "%s", setup->name);
    }
}

/* ---- exactly so many bytes ---- */

static void exact_body(void)
{
    static char out[1 << 18], in[1 << 18];
    size_t sent = 1, received = 1;
    struct promise *send, *receive;
    char path[] = "/tmp/weft-test-XXXXXX";
    int pair[2], fd;

    make_pair(pair);
    for (size_t i = 0; i < sizeof out; i++)
        out[i] = (char)(i * 31 >> 3);
    ring__faults(weft__rt)->short_io = 20;
    send = promise_send_all(pair[0], out, sizeof out, 0, &sent, WEFT_FOREVER);
    receive = promise_recv_all(pair[1], in, sizeof in, 0, &received, weft_after(WEFT_SEC(1000)));
    cr_assert_eq(outcome_of(send), sizeof out);
    cr_assert_eq(outcome_of(receive), sizeof in);
    cr_assert(sent == sizeof out && received == sizeof in);
    cr_assert(memcmp(in, out, sizeof in) == 0);
    /* what is there at once is taken at once, be it in two pieces */
    cr_assert_eq(write(pair[0], "abcdef", 6), 6);
    ring__faults(weft__rt)->short_io = 1;
    receive = promise_recv_all(pair[1], in, 6, 0, &received, WEFT_NOWAIT);
    cr_assert_eq(outcome_of(receive), 6);
    receive = promise_recv_all(pair[1], in, 6, 0, &received, WEFT_NOWAIT);
    cr_assert_eq(outcome_of(receive), -ETIMEDOUT);
    cr_assert_eq(received, 0);
    cr_assert_eq(outcome_of(promise_send_all(pair[0], "abc", 3, 0, NULL, WEFT_FOREVER)), 3);
    receive = promise_read_all(pair[1], in, 5, -1, &received, weft_after(WEFT_MS(1)));
    cr_assert_eq(outcome_of(receive), -ETIMEDOUT);
    cr_assert_eq(received, 3);
    cr_assert_eq(outcome_of(promise_write_all(pair[0], "ab", 2, -1, NULL, WEFT_FOREVER)), 2);
    close(pair[0]);
    receive = promise_recv_all(pair[1], in, 5, 0, &received, WEFT_FOREVER);
    cr_assert_eq(outcome_of(receive), -ENODATA);
    cr_assert_eq(received, 2);
    cr_assert_eq(outcome_of(promise_recv_all(pair[1], NULL, 0, 0, NULL, WEFT_FOREVER)), 0);
    cr_assert_eq(outcome_of(promise_recv_all(pair[1], NULL, 1, 0, NULL, WEFT_FOREVER)), -EFAULT);
    close(pair[1]);

    fd = mkstemp(path);
    unlink(path);
    ring__faults(weft__rt)->short_io = 7;
    cr_assert_eq(outcome_of(promise_write_all(fd, "0123456789", 10, 5, NULL, WEFT_FOREVER)), 10);
    cr_assert_eq(outcome_of(promise_read_all(fd, in, 10, 5, NULL, WEFT_FOREVER)), 10);
    cr_assert_arr_eq(in, "0123456789", 10);
    close(fd);
}

Test(io_promise, exactly_so_many_bytes)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, exact_body), 0, "%s", setup->name);
    }
}

/* ---- connecting ---- */

static void connect_body(void)
{
    int before = open_descriptors(), listener = ring_listen("127.0.0.1", "0", 16), fd;
    char service[16], name[64];
    struct promise *p;

    snprintf(service, sizeof service, "%d", ring_local_port(listener));
    fd = outcome_of(promise_connect_host("127.0.0.1", service, weft_after(WEFT_SEC(99))));
    cr_assert(fd >= 0);
    cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
    fd = outcome_of(promise_connect_host("localhost", service, WEFT_FOREVER));
    cr_assert(fd >= 0, "%d", fd);
    close(fd);
    /* ended while the name is looked up, and while it connects; dropped at both points */
    p = promise_connect_host("localhost", service, WEFT_FOREVER);
    promise_cancel(p);
    cr_assert_eq(outcome_of(p), -ECANCELED);
    cr_assert_eq(outcome_of(promise_connect_host("localhost", service, WEFT_NOWAIT)), -ETIMEDOUT);
    promise_unref(promise_connect_host("localhost", service, WEFT_FOREVER));
    promise_unref(promise_connect_host("127.0.0.1", service, WEFT_FOREVER));
    p = promise_connect_host("127.0.0.1", service, WEFT_FOREVER);
    promise_cancel(p);
    fd = outcome_of(p);
    cr_assert(fd >= 0 || fd == -ECANCELED);
    if (fd >= 0)
        close(fd);
    cr_assert_eq(outcome_of(promise_connect_host("127.0.0.1", NULL, WEFT_FOREVER)), -EINVAL);
    while (weft__rt->engine->in_flight > 0)
        turn();
    close(listener);
    cr_assert_eq(outcome_of(promise_connect_host("127.0.0.1", service, WEFT_FOREVER)),
                 -ECONNREFUSED);
    cr_assert_eq(outcome_of(promise_connect_host("localhost", service, WEFT_FOREVER)),
                 -ECONNREFUSED);
    snprintf(name, sizeof name, "@weft-promise-%d", (int)getpid());
    cr_assert_eq(outcome_of(promise_connect_unix(name, WEFT_FOREVER)), -ECONNREFUSED);
    cr_assert_eq(outcome_of(promise_connect_unix(NULL, WEFT_FOREVER)), -EINVAL);
    listener = ring_listen_unix(name, 4);
    fd = outcome_of(promise_connect_unix(name, WEFT_FOREVER));
    cr_assert(fd >= 0);
    close(fd);
    fd = outcome_of(promise_connect_unix(name, WEFT_NOWAIT));
    cr_assert(fd >= 0 || fd == -ETIMEDOUT);
    if (fd >= 0)
        close(fd);
    promise_unref(promise_connect_unix(name, WEFT_FOREVER));
    while (weft__rt->engine->in_flight > 0)
        turn();
    close(listener);
    cr_assert_eq(open_descriptors(), before);
}

Test(io_promise, connecting_by_name)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, connect_body), 0, "%s", setup->name);
    }
}

/* A lookup that is under way when the runtime ends is left to the pool. */
static void leave_lookup_body(void)
{
    promise_unref(promise_connect_host("localhost", "1", WEFT_FOREVER));
    promise_unref(promise_connect_host("localhost", "1", weft_after(WEFT_SEC(1000))));
}

Test(io_promise, the_end_leaves_lookups_behind)
{
    for (int i = 0; i < 20; i++)
        EACH_IO_SETUP(setup)
        {
            cr_assert_eq(run_by_hand(setup, leave_lookup_body), 0, "%s", setup->name);
        }
}

/* ---- close ---- */

static void close_body(void)
{
    struct promise *receive, *poll, *close_it, *twice;
    int tcp[2];
    char buf[1];

    make_tcp(tcp);
    receive = promise_recv(tcp[0], buf, 1, 0, WEFT_FOREVER);
    poll = promise_poll_fd(tcp[0], POLLIN, weft_after(WEFT_SEC(99)));
    close_it = promise_close(tcp[0]);
    twice = promise_close(tcp[0]);
    cr_assert_eq(promise_state(close_it), PROMISE_PENDING);
    cr_assert_eq(outcome_of(promise_recv(tcp[0], buf, 1, 0, WEFT_FOREVER)), -EBADF);
    cr_assert_eq(outcome_of(twice), -EBADF);
    promise_cancel(close_it);
    cr_assert_eq(outcome_of(close_it), 0, "it cannot be cancelled");
    cr_assert_eq(recv(tcp[1], buf, 1, 0), 0, "the peer sees the end at once");
    cr_assert_eq(outcome_of(receive), -ECANCELED);
    cr_assert_eq(outcome_of(poll), -ECANCELED);
    close(tcp[1]);
}

Test(io_promise, close_ends_what_is_in_flight)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, close_body), 0, "%s", setup->name);
    }
}
