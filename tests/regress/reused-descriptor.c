/* needs: fibers */
/* A descriptor is closed, and its number is another file's at once: whatever was going on with the old
 * file ends, and takes nothing from the new one; also what had nothing in flight just then: a transfer
 * between two pieces, a stream that waits for a buffer, for a reader or for a descriptor. */
#include "io_support.h"
#include "ring_internal.h"

#include <weft/io.h>
#include <weft/promise.h>

#include <criterion/criterion.h>
#include <sys/resource.h>

/* Closes pair[0], whose number is then that of a new pair's end, with "new" to be read from it. */
static void renew(int pair[2], int fresh[2])
{
    int fds[2];

    cr_assert_eq(fiber_close(pair[0]), 0);
    make_pair(fds);
    if (fds[0] != pair[0]) {
        cr_assert_eq(dup3(fds[0], pair[0], O_CLOEXEC), pair[0]);
        close(fds[0]);
    }
    fresh[0] = pair[0];
    fresh[1] = fds[1];
    cr_assert_eq(write(fresh[1], "new", 3), 3);
}

static void expect_untouched(const int fresh[2])
{
    char buf[8];

    cr_assert_eq(recv(fresh[0], buf, sizeof buf, MSG_DONTWAIT), 3);
    cr_assert_arr_eq(buf, "new", 3);
    close(fresh[0]);
    close(fresh[1]);
}

/* ---- between two pieces ---- */

struct receiver {
    int fd, result;
    size_t moved;
    char buf[6];
    bool ended;
};

static int64_t receive_all(void *arg)
{
    struct receiver *r = arg;

    r->result = fiber_recv_all(r->fd, r->buf, sizeof r->buf, 0, &r->moved, WEFT_FOREVER);
    r->ended = true;
    return 0;
}

static int pieces_main(void *unused)
{
    (void)unused;
    for (int i = 0; i < 8; i++) {
        int pair[2], fresh[2];
        struct receiver r = {0};
        struct promise *p = NULL;

        make_pair(pair);
        r.fd = pair[0];
        if (i % 2)
            p = promise_recv_all(r.fd, r.buf, sizeof r.buf, 0, &r.moved, WEFT_FOREVER);
        else
            cr_assert_eq(fiber_detach(receive_all, &r), 0);
        fiber_yield();
        cr_assert_eq(write(pair[1], "old", 3), 3);
        /* the first piece is reported, and this fiber may run before the other one */
        for (int n = i / 2; n > 0; n--)
            fiber_nop(WEFT_FOREVER);
        renew(pair, fresh);
        while (p == NULL && !r.ended)
            fiber_yield();
        if (p != NULL)
            r.result = fiber_await(p, NULL, WEFT_FOREVER);
        cr_assert_eq(r.result, -ECANCELED, "%d: %d", i, r.result);
        cr_assert(r.moved == 0 || r.moved == 3);
        expect_untouched(fresh);
        close(pair[1]);
    }
    return 0;
}

Test(reused_descriptor, between_two_pieces)
{
    run_on_each_io_setup(pieces_main);
}

/* ---- a stream that waits for a buffer ---- */

static int buffers_main(void *unused)
{
    struct ring_stream *first, *second;
    struct ring_buffers *buffers;
    struct ring_item item, other;
    int pairs[2][2], fresh[2];

    (void)unused;
    cr_assert_eq(ring_buffers_create(&buffers, 1, 8), 0);
    make_pair(pairs[0]);
    make_pair(pairs[1]);
    cr_assert_eq(ring_stream_recv(&first, pairs[0][0], buffers), 0);
    cr_assert_eq(write(pairs[0][1], "a", 1), 1);
    cr_assert_eq(fiber_stream_next(first, &item, WEFT_FOREVER), 1);
    cr_assert_eq(ring_stream_recv(&second, pairs[1][0], buffers), 0);
    cr_assert_eq(write(pairs[1][1], "b", 1), 1);
    cr_assert_eq(fiber_stream_next(second, &other, WEFT_NOWAIT), -ETIMEDOUT);
    for (int i = 0; i < 3; i++)
        fiber_nop(WEFT_FOREVER);
    renew(pairs[1], fresh);
    ring_item_release(&item); /* which is what the second one has waited for */
    for (int i = 0; i < 3; i++)
        fiber_nop(WEFT_FOREVER);
    cr_assert_eq(fiber_stream_next(second, &other, WEFT_NOWAIT), -ECANCELED);
    expect_untouched(fresh);
    close(pairs[1][1]);
    ring_stream_close(first);
    ring_stream_close(second);
    cr_assert_eq(ring_buffers_used(buffers), 0);
    ring_buffers_destroy(buffers);
    cr_assert_eq(fiber_close(pairs[0][0]), 0);
    close(pairs[0][1]);
    return 0;
}

Test(reused_descriptor, a_stream_without_buffers)
{
    run_on_each_io_setup(buffers_main);
}

/* ---- one whose items nobody takes ---- */

static int full_main(void *unused)
{
    struct ring_buffers *buffers;
    struct ring_stream *stream;
    struct ring_item item;
    int pair[2], fresh[2], taken = 0, rc;

    (void)unused;
    cr_assert_eq(ring_buffers_create(&buffers, 4, 8), 0);
    make_pair(pair);
    cr_assert_eq(ring_stream_recv(&stream, pair[0], buffers), 0);
    for (int i = 0; i < 8; i++) {
        cr_assert_eq(write(pair[1], "old", 3), 3);
        fiber_nop(WEFT_FOREVER);
    }
    for (int i = 0; i < 3; i++)
        fiber_nop(WEFT_FOREVER);
    renew(pair, fresh);
    while ((rc = fiber_stream_next(stream, &item, WEFT_NOWAIT)) > 0) {
        cr_assert_neq(item.data[0], 'n');
        ring_item_release(&item);
        taken++;
    }
    cr_assert_eq(rc, -ECANCELED);
    cr_assert_gt(taken, 0, "what had come before is still there");
    expect_untouched(fresh);
    ring_stream_close(stream);
    close(pair[1]);
    ring_buffers_destroy(buffers);
    return 0;
}

Test(reused_descriptor, a_stream_that_nobody_reads)
{
    run_on_each_io_setup(full_main);
}

/* ---- one that waits for a descriptor: who reads it is told at once ---- */

struct acceptor {
    struct ring_stream *stream;
    int result;
    bool ended;
};

static int64_t accept_next(void *arg)
{
    struct acceptor *a = arg;

    a->result = fiber_stream_next(a->stream, NULL, WEFT_FOREVER);
    a->ended = true;
    return 0;
}

static int starved_main(void *unused)
{
    int listener = ring_listen("127.0.0.1", "0", 4), client;
    struct acceptor a = {0};
    struct sockaddr_storage address;
    struct rlimit limit, all;
    socklen_t len;

    (void)unused;
    len = loopback(&address, false, ring_local_port(listener));
    client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    getrlimit(RLIMIT_NOFILE, &all);
    limit = all;
    limit.rlim_cur = (rlim_t)client + 1; /* none is left */
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_assert_eq(ring_stream_accept(&a.stream, listener, 0), 0);
    cr_assert_eq(fiber_detach(accept_next, &a), 0);
    cr_assert_eq(connect(client, (struct sockaddr *)&address, len), 0);
    while (!report_contains("new connections wait"))
        fiber_nop(WEFT_FOREVER);
    cr_assert(!a.ended);
    cr_assert_eq(fiber_close(listener), 0);
    while (!a.ended)
        fiber_yield();
    cr_assert_eq(a.result, -ECANCELED);
    ring_stream_close(a.stream);
    setrlimit(RLIMIT_NOFILE, &all);
    close(client);
    return 0;
}

Test(reused_descriptor, a_stream_without_descriptors)
{
    if (on_valgrind())
        cr_skip_test("valgrind tells the kernel no limit of descriptors");
    run_on_each_io_setup(starved_main);
}
