/* needs: fibers */
/* What I/O allocates: a fiber's operation nothing, a promise's its block. Counted by standing in
 * front of the allocator. */
#include "allocations.h"
#include "io_support.h"
#include "runtime_internal.h"

#include <weft/io.h>
#include <weft/promise.h>

#include <criterion/criterion.h>

static int echo[2], again[2];

static int64_t echo_fiber(void *arg)
{
    char buf[64];
    int n;

    (void)arg;
    while ((n = fiber_recv(echo[1], buf, sizeof buf, 0, weft_after(WEFT_SEC(99)))) > 0)
        cr_assert_eq(fiber_send_all(echo[1], buf, (size_t)n, 0, NULL, WEFT_FOREVER), 0);
    return n;
}

/* Messages, pairs, and what is in a file on its way to a socket. */
static void use_messages(int file)
{
    char buf[64];
    struct iovec iov = {buf, sizeof buf};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    int pair[2], ends[2];

    cr_assert_eq(fiber_socketpair(AF_UNIX, SOCK_STREAM, 0, pair, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_pipe(ends, 0, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_sendfile(pair[0], file, 0, 5, NULL, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_recvmsg(pair[1], &message, 0, WEFT_FOREVER), 5);
    iov.iov_len = 5;
    cr_assert_eq(fiber_sendmsg(pair[1], &message, 0, WEFT_FOREVER), 5);
    cr_assert_eq(fiber_recvfrom(pair[0], buf, 5, 0, NULL, NULL, WEFT_FOREVER), 5);
    cr_assert_eq(fiber_sendto(pair[1], buf, 5, 0, NULL, 0, WEFT_FOREVER), 5);
    cr_assert_eq(fiber_send_zc(pair[1], buf, 5, 0, WEFT_FOREVER), 5);
    cr_assert_eq(fiber_splice(pair[0], -1, ends[1], -1, 10, 0, WEFT_FOREVER), 10);
    cr_assert_eq(fiber_close(ends[0]), 0);
    cr_assert_eq(fiber_close(ends[1]), 0);
    cr_assert_eq(fiber_close(pair[0]), 0);
    cr_assert_eq(fiber_close(pair[1]), 0);
}

static void use_everything(int listener, const struct sockaddr *address, socklen_t len,
                           struct ring_addresses *list)
{
    char buf[64] = "hello", service[16];
    const struct iovec iov = {buf, 5};
    struct statx about;
    int fd, peer;

    cr_assert_eq(fiber_nop(WEFT_FOREVER), 0);
    cr_assert_eq(fiber_send(echo[0], buf, 5, 0, WEFT_FOREVER), 5);
    cr_assert_eq(fiber_recv_all(echo[0], buf, 5, 0, NULL, weft_after(WEFT_SEC(99))), 0);
    cr_assert_eq(fiber_recv(echo[0], buf, 5, 0, WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert_eq(fiber_poll(echo[0], POLLIN, weft_after(1)), -ETIMEDOUT);
    fd = fiber_socket(AF_INET, SOCK_STREAM, 0, WEFT_FOREVER);
    cr_assert_eq(fiber_connect(fd, address, len, WEFT_FOREVER), 0);
    peer = fiber_accept(listener, NULL, NULL, 0, WEFT_FOREVER);
    cr_assert_eq(fiber_shutdown(fd, SHUT_WR, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_close(fd), 0);
    cr_assert_eq(fiber_close(peer), 0);
    snprintf(service, sizeof service, "%d", ring_local_port(listener));
    fd = fiber_connect_host("127.0.0.1", service, weft_after(WEFT_SEC(99)));
    cr_assert(fd >= 0);
    cr_assert_eq(fiber_close(fd), 0);
    fd = fiber_connect_any(list, WEFT_FOREVER);
    cr_assert(fd >= 0);
    cr_assert_eq(fiber_close(fd), 0);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(fiber_close(fiber_accept(listener, NULL, NULL, 0, WEFT_FOREVER)), 0);
    fd = fiber_openat(AT_FDCWD, "/tmp", O_TMPFILE | O_RDWR, 0600, WEFT_FOREVER);
    cr_assert(fd >= 0);
    cr_assert_eq(fiber_writev(fd, &iov, 1, 0, WEFT_FOREVER), 5);
    cr_assert_eq(fiber_readv(fd, &iov, 1, 0, WEFT_FOREVER), 5);
    cr_assert_eq(fiber_write_all(fd, buf, 5, 0, NULL, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_read_all(fd, buf, 5, 0, NULL, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_fsync(fd, true, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &about, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_ftruncate(fd, 5, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_fadvise(fd, 0, 0, POSIX_FADV_NORMAL, WEFT_FOREVER), 0);
    use_messages(fd);
    cr_assert_eq(fiber_close(fd), 0);
}

static int fiber_main(void *unused)
{
    int listener = ring_listen("127.0.0.1", "0", 4);
    struct sockaddr_storage address;
    socklen_t len = loopback(&address, false, ring_local_port(listener));
    struct ring_addresses *list;
    size_t before = 0;
    char service[16];

    (void)unused;
    snprintf(service, sizeof service, "%d", ring_local_port(listener));
    cr_assert_eq(fiber_resolve_host("127.0.0.1", service, 0, &list, WEFT_FOREVER), 0);
    make_pair(echo);
    cr_assert_eq(fiber_detach(echo_fiber, NULL), 0);
    for (int i = 0; i < 20; i++) {
        if (i == 2)
            before = allocations;
        use_everything(listener, (struct sockaddr *)&address, len, list);
    }
    cr_assert_eq(allocations, before);
    ring_addresses_destroy(list);
    close(echo[0]);
    close(listener);
    return 0;
}

Test(io_alloc, a_fiber_operation_allocates_nothing)
{
    EACH_IO_SETUP(setup)
    {
        if (is_plain(setup))
            continue; /* the pool may make a thread */
        cr_assert_eq(run_on(setup, fiber_main, NULL), 0, "%s", setup->name);
        close(echo[1]);
    }
}

/* Blocks come from free lists: after the first few the allocator is not asked any more. */
static int promise_main(void *unused)
{
    size_t before = 0;
    char buf[8];

    (void)unused;
    make_pair(again);
    for (int i = 0; i < 200; i++) {
        union weft_value n;

        if (i == 100)
            before = allocations;
        cr_assert_eq(fiber_await(promise_send(again[0], "x", 1, 0, WEFT_FOREVER), &n, WEFT_FOREVER),
                     0);
        cr_assert_eq(fiber_await(promise_recv(again[1], buf, 8, 0, weft_after(WEFT_SEC(99))), &n,
                                 WEFT_FOREVER),
                     0);
        cr_assert_eq(n.num, 1);
    }
    cr_assert_eq(allocations, before);
    close_pair(again);
    return 0;
}

Test(io_alloc, a_promise_operation_takes_a_block_from_a_list)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_on(setup, promise_main, NULL), 0, "%s", setup->name);
    }
}
