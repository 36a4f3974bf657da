/* needs: fibers */
/* Streams: many results of one request, with slow readers, without buffers, without descriptors. */
#include "fiber_internal.h"
#include "io_support.h"
#include "ring_internal.h"
#include "stream_internal.h"

#include <weft/io.h>
#include <weft/promise.h>

#include <criterion/criterion.h>
#include <sys/resource.h>

#define ON_EACH_SETUP(main)                                                               \
    EACH_IO_SETUP(setup)                                                                  \
    {                                                                                     \
        int before_ = open_descriptors();                                                 \
                                                                                          \
        cr_assert_eq(run_on(setup, main, NULL), 0, "%s: %s", setup->name, report_text()); \
        cr_assert_eq(open_descriptors(), before_, "%s: descriptors", setup->name);        \
    }

static socklen_t local_address(struct sockaddr_un *address, int listener)
{
    socklen_t len = sizeof *address;

    cr_assert_eq(getsockname(listener, (struct sockaddr *)address, &len), 0);
    return len;
}

static int listener_at(struct sockaddr_un *address, socklen_t *len)
{
    char name[64];
    int listener;

    snprintf(name, sizeof name, "@weft-stream-%d", (int)getpid());
    listener = ring_listen_unix(name, 4096);
    cr_assert_geq(listener, 0);
    *len = local_address(address, listener);
    return listener;
}

static int client_of(const struct sockaddr_un *address, socklen_t len)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    cr_assert_eq(connect(fd, (const struct sockaddr *)address, len), 0);
    return fd;
}

static void put(int fd, const char *text)
{
    cr_assert_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* The next item is `text`, perhaps in pieces. */
static void expect_text(struct ring_stream *stream, const char *text)
{
    while (*text != '\0') {
        struct ring_item item;
        int n = fiber_stream_next(stream, &item, WEFT_FOREVER);

        cr_assert_gt(n, 0, "%d", n);
        cr_assert_eq((size_t)n, item.len);
        cr_assert_eq(memcmp(item.data, text, item.len), 0);
        text += n;
        ring_item_release(&item);
        cr_assert_null(item.buffers);
        ring_item_release(&item);
    }
}

/* ---- accept ---- */

static int accept_main(void *unused)
{
    struct sockaddr_un address;
    struct ring_stream *stream;
    int listener, clients[150];
    socklen_t len;

    (void)unused;
    listener = listener_at(&address, &len);
    cr_assert_eq(ring_stream_accept(&stream, listener, 0), 0);
    cr_assert_eq(fiber_stream_next(stream, NULL, WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert_eq(ring_stream_try(stream, NULL), -EAGAIN);
    /* More than a stream keeps: the rest waits in the backlog. */
    for (int i = 0; i < 150; i++) {
        clients[i] = client_of(&address, len);
        if (i % 50 == 0)
            fiber_nop(WEFT_FOREVER);
    }
    for (int i = 0; i < 150; i++) {
        int fd = fiber_stream_next(stream, NULL, WEFT_FOREVER);
        char byte;

        cr_assert_geq(fd, 0, "%d", fd);
        cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        put(clients[i], "x"); /* in order */
        cr_assert_eq(recv(fd, &byte, 1, MSG_DONTWAIT), 1);
        close(fd);
        close(clients[i]);
    }
    ring_stream_close(stream);
    cr_assert_eq(fiber_close(listener), 0);
    return 0;
}

Test(ring_stream, accept)
{
    ON_EACH_SETUP(accept_main);
}

/* What nobody has taken is closed with the stream. */
static int accept_left_main(void *unused)
{
    struct sockaddr_un address;
    struct ring_stream *stream;
    int listener, clients[10];
    socklen_t len;
    char byte;

    (void)unused;
    listener = listener_at(&address, &len);
    cr_assert_eq(ring_stream_accept(&stream, listener, SOCK_NONBLOCK), 0);
    for (int i = 0; i < 10; i++)
        clients[i] = client_of(&address, len);
    for (int i = 0; i < 5; i++)
        fiber_nop(WEFT_FOREVER);
    ring_stream_close(stream);
    for (int i = 0; i < 5; i++)
        fiber_nop(WEFT_FOREVER);
    cr_assert_eq(fiber_close(listener), 0);
    for (int i = 0; i < 10; i++) {
        cr_assert_leq(recv(clients[i], &byte, 1, 0), 0);
        close(clients[i]);
    }
    return 0;
}

Test(ring_stream, close_gives_back_what_was_not_taken)
{
    ON_EACH_SETUP(accept_left_main);
}

/* No descriptor is left: said once, connections wait, and the next close lets one in. */
static int starved_main(void *unused)
{
    struct rlimit limit, small;
    struct sockaddr_un address;
    struct ring_stream *stream;
    int listener, clients[3], spare[64], spares = 0, fd;
    socklen_t len;
    uint64_t passes;
    struct weft_stats stats = {.size = sizeof stats};

    (void)unused;
    listener = listener_at(&address, &len);
    for (int i = 0; i < 3; i++)
        clients[i] = client_of(&address, len);
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    small = limit;
    small.rlim_cur = (rlim_t)clients[2] + 1 + 8;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &small), 0);
    while (spares < 64 && (spare[spares] = dup(listener)) >= 0)
        spares++;
    cr_assert_lt(spares, 64);
    cr_assert_eq(ring_stream_accept(&stream, listener, 0), 0);
    cr_assert_eq(fiber_stream_next(stream, NULL, weft_after(WEFT_MS(50))), -ETIMEDOUT);
    cr_assert(report_contains("new connections wait until one is closed"));
    cr_assert_eq(weft_stats(&stats), 0);
    passes = stats.passes;
    cr_assert_eq(fiber_stream_next(stream, NULL, weft_after(WEFT_MS(100))), -ETIMEDOUT);
    cr_assert_eq(weft_stats(&stats), 0);
    cr_assert_lt(stats.passes - passes, 50, "it spins");
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(fiber_close(spare[--spares]), 0);
        fd = fiber_stream_next(stream, NULL, weft_after(WEFT_SEC(20)));
        cr_assert_geq(fd, 0, "%d", fd);
        spare[spares++] = fd;
    }
    cr_assert_eq(fiber_stream_next(stream, NULL, WEFT_NOWAIT), -ETIMEDOUT);
    ring_stream_close(stream);
    while (spares > 0)
        close(spare[--spares]);
    for (int i = 0; i < 3; i++)
        close(clients[i]);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_assert_eq(fiber_close(listener), 0);
    return 0;
}

Test(ring_stream, without_descriptors_connections_wait)
{
    if (on_valgrind())
        cr_skip_test("valgrind tells the kernel no limit of descriptors");
    ON_EACH_SETUP(starved_main);
}

/* ---- recv ---- */

static int recv_main(void *unused)
{
    struct ring_buffers *buffers;
    struct ring_stream *stream;
    struct ring_item item;
    int pair[2];

    (void)unused;
    make_pair(pair);
    cr_assert_eq(ring_buffers_create(&buffers, 8, 4), 0);
    cr_assert_eq(ring_stream_recv(&stream, pair[0], buffers), 0);
    cr_assert_eq(fiber_stream_next(stream, &item, WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert_eq(ring_buffers_used(buffers), 0, "an idle stream holds no buffer");
    put(pair[1], "hello");
    expect_text(stream, "hello");
    put(pair[1], "much more than all the buffers together can hold at any time");
    expect_text(stream, "much more than all the buffers together can hold at any time");
    put(pair[1], "end");
    shutdown(pair[1], SHUT_WR);
    expect_text(stream, "end");
    cr_assert_eq(fiber_stream_next(stream, &item, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_stream_next(stream, &item, WEFT_FOREVER), 0);
    cr_assert_eq(ring_buffers_used(buffers), 0);
    ring_stream_close(stream);
    ring_buffers_destroy(buffers);
    close_pair(pair);
    return 0;
}

Test(ring_stream, recv)
{
    ON_EACH_SETUP(recv_main);
}

/* The pool, the stream and its descriptor may go before the item. */
static int item_last_main(void *unused)
{
    struct ring_buffers *buffers;
    struct ring_stream *stream;
    struct ring_item item;
    int pair[2];

    (void)unused;
    make_pair(pair);
    cr_assert_eq(ring_buffers_create(&buffers, 2, 100), 0);
    cr_assert_eq(ring_stream_recv(&stream, pair[0], buffers), 0);
    put(pair[1], "last");
    cr_assert_eq(fiber_stream_next(stream, &item, WEFT_FOREVER), 4);
    ring_stream_close(stream);
    ring_buffers_destroy(buffers);
    close_pair(pair);
    fiber_nop(WEFT_FOREVER);
    cr_assert_eq(memcmp(item.data, "last", 4), 0);
    ring_item_release(&item);
    return 0;
}

Test(ring_stream, items_outlive_their_stream_and_pool)
{
    ON_EACH_SETUP(item_last_main);
}

static int nonblocking_main(void *unused)
{
    struct ring_buffers *buffers;
    struct ring_stream *stream;
    int pair[2];

    (void)unused;
    make_pair(pair);
    cr_assert_eq(fcntl(pair[0], F_SETFL, O_NONBLOCK), 0);
    cr_assert_eq(ring_buffers_create(&buffers, 4, 16), 0);
    cr_assert_eq(ring_stream_recv(&stream, pair[0], buffers), 0);
    for (int i = 0; i < 20; i++) {
        fiber_nop(WEFT_FOREVER);
        put(pair[1], "nonblocking ");
        expect_text(stream, "nonblocking ");
    }
    ring_stream_close(stream);
    ring_buffers_destroy(buffers);
    close_pair(pair);
    return 0;
}

Test(ring_stream, a_nonblocking_descriptor_waits_all_the_same)
{
    ON_EACH_SETUP(nonblocking_main);
}

/* A stream first in line that has nothing to receive any more doesn't keep the others waiting. */
static int line_main(void *unused)
{
    struct ring_stream *streams[4];
    struct ring_buffers *buffers;
    struct ring_item item;
    int pairs[4][2];

    (void)unused;
    cr_assert_eq(ring_buffers_create(&buffers, 1, 4), 0);
    for (int i = 0; i < 4; i++) {
        make_pair(pairs[i]);
        cr_assert_eq(ring_stream_recv(&streams[i], pairs[i][0], buffers), 0);
        put(pairs[i][1], "text");
    }
    cr_assert_eq(fiber_stream_next(streams[0], &item, WEFT_FOREVER), 4);
    fiber_sleep(WEFT_MS(1)); /* the others have found no buffer */
    ring_stream_close(streams[1]);
    cr_assert_eq(fiber_close(pairs[2][0]), 0);
    ring_item_release(&item);
    expect_text(streams[3], "text");
    cr_assert_lt(fiber_stream_next(streams[2], &item, WEFT_FOREVER), 0);
    for (int i = 0; i < 4; i++) {
        if (i != 1)
            ring_stream_close(streams[i]);
        close(pairs[i][1]);
        if (i != 2)
            close(pairs[i][0]);
    }
    ring_buffers_destroy(buffers);
    return 0;
}

Test(ring_stream, the_line_moves_on)
{
    ON_EACH_SETUP(line_main);
}

/* ---- many streams, few buffers, at random: each byte comes once and in order ---- */

struct connection {
    struct ring_stream *stream;
    int pair[2];
    uint32_t sent, received, total;
};

static uint32_t seed;

static uint32_t random_below(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 17;
    seed ^= seed << 5;
    return seed % n;
}

static int64_t receiver(void *arg)
{
    struct connection *c = arg;
    struct ring_item item;
    int n;

    while ((n = fiber_stream_next(c->stream, &item, WEFT_FOREVER)) > 0) {
        for (int i = 0; i < n; i++)
            cr_assert_eq((unsigned char)item.data[i], (unsigned char)(c->received++ * 7));
        for (uint32_t i = random_below(3); i > 0; i--)
            fiber_yield();
        ring_item_release(&item);
        if (random_below(4) == 0)
            fiber_nop(WEFT_FOREVER);
    }
    cr_assert_eq(n, 0, "%d", n);
    return 0;
}

static int64_t sender(void *arg)
{
    struct connection *c = arg;
    unsigned char bytes[64];

    while (c->sent < c->total) {
        uint32_t n = 1 + random_below(sizeof bytes);

        if (n > c->total - c->sent)
            n = c->total - c->sent;
        for (uint32_t i = 0; i < n; i++)
            bytes[i] = (unsigned char)((c->sent + i) * 7);
        cr_assert_eq(fiber_send_all(c->pair[1], bytes, n, 0, NULL, WEFT_FOREVER), 0);
        c->sent += n;
        for (uint32_t i = random_below(3); i > 0; i--)
            fiber_yield();
    }
    shutdown(c->pair[1], SHUT_WR);
    return 0;
}

static int many_main(void *unused)
{
    const unsigned pools[] = {1, 3, 16};
    uint32_t bytes = slow_tools() ? 300 : 2000;

    (void)unused;
    for (size_t round = 0; round < 3; round++) {
        struct connection connections[20] = {0};
        struct promise *fibers[40];
        struct ring_buffers *buffers;

        seed = (uint32_t)(12345 + round);
        cr_assert_eq(ring_buffers_create(&buffers, pools[round], 13), 0);
        for (int i = 0; i < 20; i++) {
            struct connection *c = &connections[i];

            make_pair(c->pair);
            c->total = bytes;
            cr_assert_eq(ring_stream_recv(&c->stream, c->pair[0], buffers), 0);
            fibers[2 * i] = fiber_spawn(receiver, c);
            fibers[2 * i + 1] = fiber_spawn(sender, c);
        }
        cr_assert_eq(fiber_await(promise_join(fibers, 40), NULL, WEFT_FOREVER), 0);
        cr_assert_eq(ring_buffers_used(buffers), 0);
        for (int i = 0; i < 20; i++) {
            cr_assert_eq(connections[i].received, bytes);
            ring_stream_close(connections[i].stream);
            close_pair(connections[i].pair);
        }
        ring_buffers_destroy(buffers);
    }
    return 0;
}

Test(ring_stream, many_streams_share_few_buffers)
{
    ON_EACH_SETUP(many_main);
}

/* ---- poll ---- */

static int poll_main(void *unused)
{
    struct ring_stream *stream;
    char bytes[10];
    int pair[2];

    (void)unused;
    make_pair(pair);
    cr_assert_eq(ring_stream_poll(&stream, pair[0], POLLIN), 0);
    cr_assert_eq(fiber_stream_next(stream, NULL, WEFT_NOWAIT), -ETIMEDOUT);
    for (int i = 0; i < 5; i++) {
        put(pair[1], "x");
        cr_assert_eq(fiber_stream_next(stream, NULL, WEFT_FOREVER), POLLIN);
        cr_assert_eq(recv(pair[0], bytes, sizeof bytes, MSG_DONTWAIT), 1);
    }
    close(pair[1]);
    cr_assert(fiber_stream_next(stream, NULL, WEFT_FOREVER) & (POLLHUP | POLLIN));
    ring_stream_close(stream);
    cr_assert_eq(fiber_close(pair[0]), 0);
    return 0;
}

Test(ring_stream, poll)
{
    ON_EACH_SETUP(poll_main);
}

/* ---- ends ---- */

struct reading {
    struct fiber *self;
    struct ring_stream *stream;
    int result;
    bool ended;
};

static int64_t read_one(void *arg)
{
    struct reading *r = arg;
    struct ring_item item;

    r->self = fiber_self();
    r->result = fiber_stream_next(r->stream, &item, WEFT_FOREVER);
    if (r->result > 0)
        ring_item_release(&item);
    r->ended = true;
    return 0;
}

static int ends_main(void *unused)
{
    struct ring_buffers *buffers;
    struct ring_item item;
    struct reading r;
    int pair[2];

    (void)unused;
    cr_assert_eq(ring_buffers_create(&buffers, 4, 100), 0);
    for (int way = 0; way < 4; way++) {
        make_pair(pair);
        r = (struct reading){0};
        cr_assert_eq(ring_stream_recv(&r.stream, pair[0], buffers), 0);
        cr_assert_eq(fiber_detach(read_one, &r), 0);
        fiber_nop(WEFT_FOREVER);
        cr_assert_eq(fiber_stream_next(r.stream, &item, WEFT_FOREVER), -EBUSY);
        cr_assert_eq(ring_stream_try(r.stream, &item), -EBUSY);
        switch (way) {
        case 0: /* the stream is closed */
            ring_stream_close(r.stream);
            r.stream = NULL;
            break;
        case 1: /* the reader is cancelled: the next one gets all */
            fiber__cancel(weft__rt, r.self);
            put(pair[1], "all");
            expect_text(r.stream, "all");
            break;
        case 2: /* the descriptor is closed */
            cr_assert_eq(fiber_close(pair[0]), 0);
            pair[0] = -1;
            break;
        default: /* an item comes, and then the stream is closed before the reader runs */
            put(pair[1], "it");
            while (r.stream != NULL && !r.ended) {
                fiber_nop(WEFT_FOREVER);
                if (ring_stream_try(r.stream, &item) != -EBUSY) {
                    ring_stream_close(r.stream);
                    r.stream = NULL;
                }
            }
            break;
        }
        while (!r.ended)
            fiber_yield();
        cr_assert_eq(r.result, way == 3 ? 2 : -ECANCELED, "%d: %d", way, r.result);
        ring_stream_close(r.stream);
        if (pair[0] >= 0)
            close(pair[0]);
        close(pair[1]);
        fiber_nop(WEFT_FOREVER);
    }
    cr_assert_eq(ring_buffers_used(buffers), 0);
    ring_buffers_destroy(buffers);
    return 0;
}

Test(ring_stream, ends)
{
    ON_EACH_SETUP(ends_main);
}

static int misuse_main(void *unused)
{
    struct ring_buffers *buffers;
    struct ring_stream *stream;
    struct ring_item item;
    int pair[2], file;

    (void)unused;
    make_pair(pair);
    cr_assert_eq(ring_buffers_create(NULL, 1, 1), -EINVAL);
    cr_assert_eq(ring_buffers_create(&buffers, 0, 1), -EINVAL);
    cr_assert_eq(ring_buffers_create(&buffers, 1, 0), -EINVAL);
    cr_assert_eq(ring_buffers_create(&buffers, 100000, 1), -EINVAL);
    cr_assert_eq(ring_buffers_create(&buffers, 2, 8), 0);
    cr_assert_eq(ring_stream_recv(&stream, pair[0], NULL), -EINVAL);
    cr_assert_eq(ring_stream_recv(NULL, pair[0], buffers), -EINVAL);
    cr_assert_eq(ring_stream_recv(&stream, -1, buffers), -EBADF);
    cr_assert_eq(fiber_stream_next(NULL, &item, WEFT_FOREVER), -EFAULT);
    cr_assert_eq(ring_stream_recv(&stream, pair[0], buffers), 0);
    cr_assert_eq(fiber_stream_next(stream, NULL, WEFT_FOREVER), -EFAULT);
    ring_stream_close(stream);
    ring_stream_close(NULL);
    ring_item_release(NULL);
    /* what the descriptor can't do is the first item */
    cr_assert_eq(ring_stream_accept(&stream, pair[0], 0), 0);
    cr_assert(fiber_stream_next(stream, NULL, WEFT_FOREVER) < 0);
    ring_stream_close(stream);
    file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    cr_assert_eq(ring_stream_recv(&stream, file, buffers), 0);
    cr_assert_eq(fiber_stream_next(stream, &item, WEFT_FOREVER), -ENOTSOCK);
    cr_assert_eq(fiber_stream_next(stream, &item, WEFT_FOREVER), -ENOTSOCK);
    ring_stream_close(stream);
    close(file);
    ring_buffers_destroy(buffers);
    ring_buffers_destroy(NULL);
    close_pair(pair);
    return 0;
}

/* There are 65536 numbers for pools, which may be used again. */
static int many_pools_main(void *unused)
{
    struct ring_buffers *first, *next;
    bool shared;

    (void)unused;
    cr_assert_eq(ring_buffers_create(&first, 1, 8), 0);
    shared = first->shared;
    for (int i = 0; i < (shared ? 66000 : 1); i++) {
        cr_assert_eq(ring_buffers_create(&next, 1, 8), 0);
        cr_assert_eq(next->shared, shared, "%d", i);
        if (shared)
            cr_assert_neq(next->group, first->group);
        ring_buffers_destroy(next);
    }
    ring_buffers_destroy(first);
    return 0;
}

Test(ring_stream, pools_come_and_go)
{
    EACH_ENGINE(setup)
    {
        if (strcmp(setup->engine, "null") != 0)
            cr_assert_eq(run_on(setup, many_pools_main, NULL), 0, "%s", setup->name);
    }
}

Test(ring_stream, misuse)
{
    struct ring_buffers *buffers;
    struct ring_stream *stream;

    cr_assert_eq(ring_buffers_create(&buffers, 1, 1), -EINVAL);
    cr_assert_eq(ring_stream_accept(&stream, 0, 0), -EINVAL);
    ON_EACH_SETUP(misuse_main);
}

/* ---- as promises ---- */

static int promises_main(void *unused)
{
    struct ring_buffers *buffers;
    struct ring_stream *stream;
    struct ring_item item = {0};
    struct promise *p;
    union weft_value value;
    int pair[2];

    (void)unused;
    make_pair(pair);
    cr_assert_eq(ring_buffers_create(&buffers, 4, 16), 0);
    cr_assert_eq(ring_stream_recv(&stream, pair[0], buffers), 0);
    p = promise_ring_stream_next(stream, &item, WEFT_FOREVER);
    cr_assert_eq(promise_state(p), PROMISE_PENDING);
    put(pair[1], "first");
    cr_assert_eq(fiber_await(p, &value, WEFT_FOREVER), 0);
    cr_assert_eq(value.num, 5);
    cr_assert_eq(memcmp(item.data, "first", 5), 0);
    ring_item_release(&item);
    /* cancelled, late, dropped: the item is the next one's */
    p = promise_ring_stream_next(stream, &item, WEFT_FOREVER);
    promise_cancel(promise_ref(p));
    promise_unref(p);
    cr_assert_eq(fiber_await(p, NULL, WEFT_FOREVER), -ECANCELED);
    p = promise_ring_stream_next(stream, &item, WEFT_NOWAIT);
    cr_assert_eq(fiber_await(p, NULL, WEFT_FOREVER), -ETIMEDOUT);
    promise_unref(promise_ring_stream_next(stream, &item, WEFT_FOREVER));
    put(pair[1], "second");
    for (int i = 0; i < 3; i++)
        fiber_nop(WEFT_FOREVER);
    expect_text(stream, "second");
    /* the stream is closed under it */
    p = promise_ring_stream_next(stream, &item, WEFT_FOREVER);
    ring_stream_close(stream);
    cr_assert_eq(fiber_await(p, NULL, WEFT_FOREVER), -ECANCELED);
    cr_assert_eq(
        fiber_await(promise_ring_stream_next(NULL, &item, WEFT_FOREVER), NULL, WEFT_FOREVER),
        -EFAULT);
    ring_buffers_destroy(buffers);
    close_pair(pair);
    return 0;
}

Test(ring_stream, as_promises)
{
    ON_EACH_SETUP(promises_main);
}

/* The runtime ends while fibers read streams. */
static int64_t read_and_close(void *arg)
{
    struct reading *r = arg;

    read_one(r);
    ring_stream_close(r->stream);
    return 0;
}

static struct reading abandoned[2];

static int end_main(void *arg)
{
    struct ring_buffers *buffers;
    struct sockaddr_un address;
    socklen_t len;
    int *fds = arg;

    make_pair(fds);
    fds[2] = listener_at(&address, &len);
    cr_assert_eq(ring_buffers_create(&buffers, 4, 16), 0);
    cr_assert_eq(ring_stream_recv(&abandoned[0].stream, fds[0], buffers), 0);
    cr_assert_eq(ring_stream_accept(&abandoned[1].stream, fds[2], 0), 0);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(fiber_detach(read_and_close, &abandoned[i]), 0);
    fiber_nop(WEFT_FOREVER);
    ring_buffers_destroy(buffers);
    return 0;
}

Test(ring_stream, the_runtime_ends_under_readers)
{
    EACH_IO_SETUP(setup)
    {
        int fds[3], before = open_descriptors();

        cr_assert_eq(run_on(setup, end_main, fds), 0, "%s", setup->name);
        cr_assert_eq(abandoned[0].result, -ECANCELED);
        cr_assert_eq(abandoned[1].result, -ECANCELED);
        close_pair(fds);
        close(fds[2]);
        cr_assert_eq(open_descriptors(), before);
    }
}
