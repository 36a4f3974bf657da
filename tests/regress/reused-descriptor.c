/* needs: fibers */
/* A descriptor is closed, and its number is another file's at once: whatever was going on with the old
 * file ends, and takes nothing from the new one; also what had nothing in flight just then: a transfer
 * between two pieces, a stream that waits for a buffer, for a reader or for a descriptor. */
#include "io_support.h"
#include "ring_internal.h"

#include <weft/buffered.h>
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

static int64_t read_line(void *arg)
{
    struct receiver *r = arg;
    struct fiber_reader reader;

    cr_assert_eq(fiber_reader_init(&reader, r->fd, -1, r->buf, sizeof r->buf), 0);
    r->result = fiber_reader_line(&reader, 0, NULL, WEFT_FOREVER);
    r->moved = fiber_reader_buffered(&reader, NULL);
    r->ended = true;
    return 0;
}

static int pieces_main(void *unused)
{
    (void)unused;
    for (int i = 0; i < 16; i++) {
        int pair[2], fresh[2];
        struct receiver r = {0};
        struct promise *p = NULL;

        make_pair(pair);
        r.fd = pair[0];
        if (i % 2)
            p = promise_recv_all(r.fd, r.buf, sizeof r.buf, 0, &r.moved, WEFT_FOREVER);
        else
            cr_assert_eq(fiber_detach(i < 8 ? receive_all : read_line, &r), 0);
        fiber_yield();
        cr_assert_eq(write(pair[1], "old", 3), 3);
        /* the first piece is reported, and this fiber may run before the other one */
        for (int n = i % 8 / 2; n > 0; n--)
            fiber_nop(WEFT_FOREVER);
        renew(pair, fresh);
        while (p == NULL && !r.ended)
            fiber_yield();
        if (p != NULL)
            r.result = fiber_await(p, NULL, WEFT_FOREVER);
        /* a reader's next operation may come while the descriptor is being closed */
        cr_assert(r.result == -ECANCELED || (i >= 8 && r.result == -EBADF), "%d: %d", i, r.result);
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

/* ---- a file on its way to a socket: while one of the two is in use, the other is not ---- */

#define FILE_SIZE ((size_t)1 << 20)

enum carrier { FIBER, PROMISE, WRITER, CARRIERS };

struct courier {
    int out, in, result;
    size_t moved;
    enum carrier carrier;
    bool ended;
};

/* What is scheduled is the writer's only piece: it goes in as many operations as it takes. */
static int write_file(const struct courier *c)
{
    static char text[FILE_SIZE];
    char buffer[16];
    struct fiber_writer w;

    memset(text, 'a', sizeof text);
    cr_assert_eq(fiber_writer_init(&w, c->out, -1, buffer, sizeof buffer), 0);
    cr_assert_eq(fiber_writer_schedule(&w, text, sizeof text, WEFT_FOREVER), 0);
    return fiber_writer_flush(&w, WEFT_FOREVER);
}

static int64_t send_file(void *arg)
{
    struct courier *c = arg;

    if (c->carrier == WRITER)
        c->result = write_file(c);
    else if (c->carrier == PROMISE)
        c->result =
            fiber_await(promise_sendfile(c->out, c->in, 0, FILE_SIZE, &c->moved, WEFT_FOREVER),
                        NULL, WEFT_FOREVER);
    else
        c->result = fiber_sendfile(c->out, c->in, 0, FILE_SIZE, &c->moved, WEFT_FOREVER);
    c->ended = true;
    return 0;
}

static int file_of(char byte)
{
    static char text[FILE_SIZE];
    int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    memset(text, byte, sizeof text);
    cr_assert_eq(write(fd, text, sizeof text), (ssize_t)sizeof text);
    return fd;
}

/* Takes all that has come; whether it is `byte` alone, and how much. */
static size_t drained(int fd, char byte)
{
    size_t total = 0;
    char buf[4096];
    ssize_t n;

    while ((n = recv(fd, buf, sizeof buf, MSG_DONTWAIT)) > 0) {
        for (ssize_t i = 0; i < n; i++)
            cr_assert_eq(buf[i], byte);
        total += (size_t)n;
    }
    return total;
}

/* The socket is renewed, or the file, after so many turns: 0: while the pipe is first filled. */
static void renew_on_the_way(enum carrier carrier, bool renew_file, int turns)
{
    struct courier c = {.carrier = carrier};
    int pair[2], fresh[2] = {-1, -1};
    size_t got = 0, astray = 0;

    make_pair(pair);
    c.out = pair[0];
    c.in = file_of('a');
    cr_assert_eq(fiber_detach(send_file, &c), 0);
    fiber_yield();
    while (turns-- > 0) {
        fiber_nop(WEFT_FOREVER);
        if (!renew_file)
            drained(pair[1], 'a');
    }
    if (renew_file) {
        int other = file_of('b');

        cr_assert_eq(fiber_close(c.in), 0);
        cr_assert_eq(dup3(other, c.in, O_CLOEXEC), c.in);
        close(other);
    } else {
        renew(pair, fresh);
    }
    while (!c.ended) {
        if (renew_file)
            got += drained(pair[1], 'a');
        else
            astray += drained(fresh[1], 'a');
        fiber_nop(WEFT_FOREVER);
    }
    cr_assert_eq(astray, 0, "bytes for another file's number");
    cr_assert(c.result == -ECANCELED || (carrier == WRITER && c.result == -EBADF), "%d", c.result);
    if (renew_file) {
        cr_assert_eq(c.moved, got + drained(pair[1], 'a'));
        close(pair[0]);
    } else {
        cr_assert_eq(drained(fresh[1], 'a'), 0, "what is not its own");
        expect_untouched(fresh);
    }
    close(pair[1]);
    close(c.in);
}

static int file_main(void *unused)
{
    (void)unused;
    for (int turns = 0; turns < 4; turns++) {
        for (int carrier = 0; carrier < CARRIERS; carrier++)
            renew_on_the_way((enum carrier)carrier, false, turns);
        renew_on_the_way(FIBER, true, turns);
        renew_on_the_way(PROMISE, true, turns);
    }
    return 0;
}

Test(reused_descriptor, a_file_on_its_way)
{
    run_on_each_io_setup(file_main);
}
