/* needs: fibers */
/* A file to a socket: every byte once and in order, also when it is ended in the middle. */
#include "fiber_internal.h"
#include "io_support.h"
#include "ring_internal.h"

#include <weft/io.h>
#include <weft/promise.h>

#include <criterion/criterion.h>
#include <sys/resource.h>

#define ON_EACH_SETUP(main)                                                               \
    EACH_IO_SETUP(setup)                                                                  \
    {                                                                                     \
        cr_assert_eq(run_on(setup, main, NULL), 0, "%s: %s", setup->name, report_text()); \
    }

enum { SIZE = 10 << 20, SMALL = 300000 };

static char content[SIZE], received[SIZE + 1];

static int make_file(void)
{
    int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    cr_assert(fd >= 0);
    for (size_t i = 0; i < SIZE; i++)
        content[i] = (char)(i * 31 >> 3 ^ i >> 11);
    cr_assert_eq(pwrite(fd, content, SIZE, 0), SIZE);
    return fd;
}

/* The two forms behind one: the result of a fiber's, with 0 for the number. */
static bool as_promise;

static int send_file(int out, int in, int64_t offset, size_t len, size_t *done, weft_time deadline)
{
    union weft_value sent;
    int rc;

    if (!as_promise)
        return fiber_sendfile(out, in, offset, len, done, deadline);
    rc = fiber_await(promise_sendfile(out, in, offset, len, done, deadline), &sent, WEFT_FOREVER);
    if (rc == 0 && done != NULL)
        cr_assert_eq((size_t)sent.num, *done);
    return rc;
}

/* A reader that takes little at a time, and gives way between. */
struct reader {
    int fd;
    size_t piece, count;
    bool ended;
};

static int64_t read_fiber(void *arg)
{
    struct reader *r = arg;
    int n;

    while ((n = fiber_recv(r->fd, received + r->count,
                           r->count + r->piece > sizeof received ? sizeof received - r->count
                                                                 : r->piece,
                           0, WEFT_FOREVER)) > 0) {
        r->count += (size_t)n;
        fiber_yield();
    }
    r->ended = true;
    return 0;
}

static void read_all(struct reader *r, int out)
{
    shutdown(out, SHUT_WR);
    while (!r->ended)
        fiber_nop(WEFT_FOREVER);
}

/* All of it, to a slow reader, whose end the sender cannot fill: sockets in both modes. */
static int whole_main(void *unused)
{
    int file = make_file(), before = open_descriptors();
    const int little = 1 << 16;

    (void)unused;
    for (int mode = 0; mode < 2; mode++) {
        struct reader r = {.piece = 50000};
        size_t done = 77;
        int tcp[2];

        make_tcp(tcp);
        setsockopt(tcp[0], SOL_SOCKET, SO_SNDBUF, &little, sizeof little);
        fcntl(tcp[0], F_SETFL, mode == 0 ? O_NONBLOCK : 0);
        r.fd = tcp[1];
        cr_assert_eq(fiber_detach(read_fiber, &r), 0);
        cr_assert_eq(send_file(tcp[0], file, 0, SIZE, &done, WEFT_FOREVER), 0);
        cr_assert_eq(done, SIZE);
        read_all(&r, tcp[0]);
        cr_assert_eq(r.count, SIZE);
        cr_assert_eq(memcmp(received, content, SIZE), 0);
        cr_assert_eq(fcntl(tcp[0], F_GETFL) & O_NONBLOCK, mode == 0 ? O_NONBLOCK : 0);
        close_pair(tcp);
    }
    cr_assert_eq(open_descriptors(), before);
    close(file);
    return 0;
}

Test(io_sendfile, ten_megabytes_to_a_slow_reader, .timeout = 300)
{
    for (int form = 0; form < 2; form++) {
        as_promise = form;
        ON_EACH_SETUP(whole_main);
    }
}

/* Ended again and again, by its deadline and by a cancel, and gone on with from what it said: no byte
 * is lost or sent twice. */
struct sender {
    struct fiber *self;
    int out, in, result;
    int64_t offset;
    size_t done;
    bool ended;
};

static int64_t send_fiber(void *arg)
{
    struct sender *s = arg;

    s->self = fiber_self();
    s->result =
        send_file(s->out, s->in, s->offset, SMALL - (size_t)s->offset, &s->done, WEFT_FOREVER);
    s->ended = true;
    return 0;
}

static int ends_main(void *unused)
{
    int file = make_file(), before = open_descriptors(), pair[2], rounds = 0, rc = -1;
    struct reader r = {.piece = 3000};
    const int little = 4096;
    struct sender s = {.in = file};

    (void)unused;
    make_pair(pair);
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &little, sizeof little);
    s.out = pair[0];
    r.fd = pair[1];
    for (; rc != 0; rounds++) {
        if (rounds == 40) /* the reader begins late, so that there is an end for sure */
            cr_assert_eq(fiber_detach(read_fiber, &r), 0);
        if (rounds % 2) {
            rc = send_file(pair[0], file, s.offset, SMALL - (size_t)s.offset, &s.done,
                           weft_after(WEFT_MS(1)));
            cr_assert(rc == 0 || rc == -ETIMEDOUT, "%d", rc);
        } else {
            s.ended = false;
            cr_assert_eq(fiber_detach(send_fiber, &s), 0);
            for (int i = 0; i < rounds % 7; i++)
                fiber_nop(WEFT_FOREVER);
            fiber_yield();
            fiber__cancel(weft__rt, s.self);
            while (!s.ended)
                fiber_yield();
            rc = s.result;
            cr_assert(rc == 0 || rc == -ECANCELED, "%d", rc);
        }
        s.offset += (int64_t)s.done;
    }
    cr_assert_eq(s.offset, SMALL);
    read_all(&r, pair[0]);
    cr_assert_eq(r.count, SMALL);
    cr_assert_eq(memcmp(received, content, SMALL), 0);
    close_pair(pair);
    cr_assert_eq(open_descriptors(), before);
    close(file);
    return rounds > 40 ? 0 : -1;
}

Test(io_sendfile, ended_and_gone_on_with, .timeout = 300)
{
    as_promise = false;
    ON_EACH_SETUP(ends_main);
}

/* The same as a promise, which is cancelled itself. */
static int promise_ends_main(void *unused)
{
    int file = make_file(), before = open_descriptors(), pair[2], rounds = 0, rc = -1;
    struct reader r = {.piece = 3000};
    const int little = 4096;
    int64_t offset = 0;
    size_t done;

    (void)unused;
    make_pair(pair);
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &little, sizeof little);
    r.fd = pair[1];
    for (; rc != 0; rounds++) {
        weft_time deadline = rounds % 2 ? weft_after(WEFT_MS(1)) : WEFT_FOREVER;
        struct promise *p =
            promise_sendfile(pair[0], file, offset, SMALL - (size_t)offset, &done, deadline);

        if (rounds == 40)
            cr_assert_eq(fiber_detach(read_fiber, &r), 0);
        for (int i = 0; i < rounds % 7; i++)
            fiber_nop(WEFT_FOREVER);
        if (rounds % 2 == 0)
            promise_cancel(p);
        rc = fiber_await(p, NULL, WEFT_FOREVER);
        cr_assert(rc == 0 || rc == (rounds % 2 ? -ETIMEDOUT : -ECANCELED), "%d", rc);
        offset += (int64_t)done;
    }
    cr_assert_eq(offset, SMALL);
    read_all(&r, pair[0]);
    cr_assert_eq(r.count, SMALL);
    cr_assert_eq(memcmp(received, content, SMALL), 0);
    close_pair(pair);
    cr_assert_eq(open_descriptors(), before);
    close(file);
    return rounds > 40 ? 0 : -1;
}

Test(io_sendfile, a_promise_ended_and_gone_on_with, .timeout = 300)
{
    ON_EACH_SETUP(promise_ends_main);
}

/* Positions, ends, errors. */
static int edges_main(void *unused)
{
    int file = make_file(), before = open_descriptors(), pair[2], ends[2];
    struct rlimit limit, none;
    size_t done = 77;
    char buf[64];

    (void)unused;
    make_pair(pair);
    make_pipe(ends);
    /* the file's own position moves by what was sent; an explicit one leaves it alone */
    cr_assert_eq(lseek(file, 100, SEEK_SET), 100);
    cr_assert_eq(send_file(pair[0], file, -1, 10, &done, WEFT_FOREVER), 0);
    cr_assert_eq(lseek(file, 0, SEEK_CUR), 110);
    cr_assert_eq(recv(pair[1], buf, sizeof buf, 0), 10);
    cr_assert_arr_eq(buf, content + 100, 10);
    cr_assert_eq(send_file(pair[0], file, 7, 10, &done, WEFT_FOREVER), 0);
    cr_assert_eq(lseek(file, 0, SEEK_CUR), 110);
    cr_assert_eq(recv(pair[1], buf, sizeof buf, 0), 10);
    cr_assert_arr_eq(buf, content + 7, 10);
    /* the end: sooner than asked for; all there is */
    cr_assert_eq(send_file(pair[0], file, SIZE - 5, 6, &done, WEFT_FOREVER), -ENODATA);
    cr_assert_eq(done, 5);
    cr_assert_eq(send_file(pair[0], file, SIZE - 4, SIZE_MAX, &done, WEFT_FOREVER), 0);
    cr_assert_eq(done, 4);
    cr_assert_eq(recv(pair[1], buf, sizeof buf, 0), 9);
    cr_assert_eq(send_file(pair[0], file, SIZE, SIZE_MAX, NULL, WEFT_FOREVER), 0);
    cr_assert_eq(send_file(pair[0], file, 0, 0, &done, WEFT_FOREVER), 0);
    cr_assert_eq(done, 0);
    /* a pipe will do */
    cr_assert_eq(send_file(ends[1], file, 0, 64, NULL, WEFT_FOREVER), 0);
    cr_assert_eq(read(ends[0], buf, sizeof buf), 64);
    cr_assert_arr_eq(buf, content, 64);
    /* what is wrong */
    cr_assert_eq(send_file(pair[0], pair[1], -1, 1, &done, WEFT_FOREVER), -ESPIPE);
    cr_assert_eq(send_file(pair[0], ends[0], 0, 1, &done, WEFT_FOREVER), -ESPIPE);
    cr_assert_eq(send_file(pair[0], -1, 0, 1, &done, WEFT_FOREVER), -EBADF);
    cr_assert_eq(send_file(-1, file, 0, 1, &done, WEFT_FOREVER), -EBADF);
    cr_assert_eq(send_file(pair[0], file, -2, 1, &done, WEFT_FOREVER), -EINVAL);
    getrlimit(RLIMIT_NOFILE, &limit);
    none = limit;
    none.rlim_cur = (rlim_t)file + 1;
    setrlimit(RLIMIT_NOFILE, &none);
    while (dup(file) >= 0)
        ;
    cr_assert_eq(send_file(pair[0], file, 0, 1, &done, WEFT_FOREVER), -EMFILE);
    setrlimit(RLIMIT_NOFILE, &limit);
    cr_assert_eq(done, 0);
    /* the peer is gone: told, without a signal; the position is where nothing was sent from */
    close(pair[1]);
    cr_assert_eq(lseek(file, 50, SEEK_SET), 50);
    cr_assert_eq(send_file(pair[0], file, -1, 100000, &done, WEFT_FOREVER), -EPIPE);
    cr_assert_eq(done, 0);
    cr_assert_eq(lseek(file, 0, SEEK_CUR), 50);
    close(pair[0]);
    close(ends[0]);
    cr_assert_eq(send_file(ends[1], file, 0, 1, &done, WEFT_FOREVER), -EPIPE);
    close(ends[1]);
    cr_assert_eq(open_descriptors(), before);
    close(file);
    return 0;
}

Test(io_sendfile, positions_ends_and_errors)
{
    for (int form = 0; form < 2; form++) {
        as_promise = form;
        ON_EACH_SETUP(edges_main);
    }
}

static bool is_in_flight_to(int fd)
{
    const struct ring__engine *engine = (const struct ring__engine *)(void *)weft__rt->engine;
    const struct ring_op *op = engine->buckets[engine->bucket_mask + 1];

    while (op != NULL && op->fd != fd)
        op = op->same;
    return op != NULL;
}

/* Closing the socket ends it. */
static int close_main(void *unused)
{
    struct sender s = {.in = make_file()};
    int pair[2];

    (void)unused;
    make_pair(pair);
    fill_up(pair[0]);
    s.out = pair[0];
    cr_assert_eq(fiber_detach(send_fiber, &s), 0);
    while (!is_in_flight_to(pair[0]))
        fiber_nop(WEFT_FOREVER);
    cr_assert_eq(fiber_close(pair[0]), 0);
    while (!s.ended)
        fiber_yield();
    cr_assert_eq(s.result, -ECANCELED, "%d", s.result);
    cr_assert_eq(s.done, 0);
    close(s.in);
    close(pair[1]);
    return 0;
}

Test(io_sendfile, closing_ends_it)
{
    as_promise = false;
    ON_EACH_SETUP(close_main);
}
