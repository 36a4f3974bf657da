/* io_suite.h: what each operation does, whatever its form. Included by a test of one form, which
 * defines before:
 *   DO(name, ...)     performs the operation with these arguments and no deadline; its result
 *   DO_POLL(fd, events), DO_CLOSE(fd)    the two with names or arguments of their own
 */
#ifndef WEFT_TEST_IO_SUITE_H
#define WEFT_TEST_IO_SUITE_H

#include "io_suite_files.h"
#include "io_suite_messages.h"
#include "io_support.h"

#include <weft/io.h>

#include <criterion/criterion.h>
#include <limits.h>

static void suite_nop(void)
{
    cr_assert_eq(DO(nop), 0);
}

/* openat, write, read, writev, readv, fsync, statx, close */
static void suite_file(void)
{
    char path[] = "/tmp/weft-test-XXXXXX", a[8] = "", b[8] = "";
    const struct iovec out[] = {{"ab", 2}, {"cde", 3}};
    const struct iovec in[] = {{a, 1}, {b, 7}};
    struct statx about;
    int fd = mkstemp(path);

    cr_assert(fd >= 0);
    close(fd);
    fd = DO(openat, AT_FDCWD, path, O_RDWR, 0);
    cr_assert(fd >= 0, "%d", fd);
    cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    cr_assert_eq(DO(write, fd, "hello", 5, -1), 5);
    cr_assert_eq(DO(write, fd, "J", 1, 0), 1);
    cr_assert_eq(DO(read, fd, a, sizeof a, 1), 4);
    cr_assert_arr_eq(a, "ello", 4);
    cr_assert_eq(lseek(fd, 0, SEEK_CUR), 5, "an explicit offset leaves the position alone");
    cr_assert_eq(DO(read, fd, a, sizeof a, -1), 0, "-1 is the position: at the end");
    lseek(fd, 0, SEEK_SET);
    cr_assert_eq(DO(read, fd, a, 2, -1), 2);
    cr_assert_arr_eq(a, "Je", 2);
    cr_assert_eq(lseek(fd, 0, SEEK_CUR), 2);
    cr_assert_eq(DO(writev, fd, out, 2, 2), 5);
    cr_assert_eq(DO(readv, fd, in, 2, 2), 5);
    cr_assert(a[0] == 'a' && memcmp(b, "bcde", 4) == 0);
    cr_assert_eq(DO(fsync, fd, false), 0);
    cr_assert_eq(DO(fsync, fd, true), 0);
    cr_assert_eq(DO(statx, AT_FDCWD, path, 0, STATX_SIZE, &about), 0);
    cr_assert_eq(about.stx_size, 7);
    cr_assert_eq(DO_CLOSE(fd), 0);
    cr_assert_eq(fcntl(fd, F_GETFD), -1);
    unlink(path);
    cr_assert_eq(DO(openat, AT_FDCWD, path, O_RDONLY, 0), -ENOENT);
    cr_assert_eq(DO(statx, AT_FDCWD, path, 0, STATX_SIZE, &about), -ENOENT);
}

/* More pieces than the kernel takes at a time are an operation that is short, and no error. */
static void suite_pieces(void)
{
    static struct iovec many[IOV_MAX + 1];
    static char bytes[IOV_MAX + 1];
    int ends[2];

    make_pipe(ends);
    for (int i = 0; i <= IOV_MAX; i++)
        many[i] = (struct iovec){&bytes[i], 1};
    cr_assert_eq(DO(writev, ends[1], many, IOV_MAX + 1, -1), IOV_MAX);
    cr_assert_eq(DO(writev, ends[1], many, 1, -1), 1);
    cr_assert_eq(DO(readv, ends[0], many, IOV_MAX + 1, -1), IOV_MAX);
    cr_assert_eq(DO(readv, ends[0], many, -1, -1), -EINVAL);
    cr_assert_eq(DO(readv, ends[0], many, IOV_MAX + 1, -1), 1);
    close_pair(ends);
}

/* send, sendmsg, recv, shutdown on a pair; what the peer's end looks like */
static void suite_pair(void)
{
    struct iovec out[] = {{"ab", 2}, {"cde", 3}};
    const struct msghdr message = {.msg_iov = out, .msg_iovlen = 2};
    char buf[16];
    int pair[2];

    make_pair(pair);
    cr_assert_eq(DO(send, pair[0], "hello", 5, 0), 5);
    cr_assert_eq(DO(recv, pair[1], buf, sizeof buf, MSG_PEEK), 5);
    cr_assert_eq(DO(recv, pair[1], buf, sizeof buf, 0), 5);
    cr_assert_arr_eq(buf, "hello", 5);
    cr_assert_eq(DO(sendmsg, pair[0], &message, 0), 5);
    cr_assert_eq(DO(recv, pair[1], buf, sizeof buf, 0), 5);
    cr_assert_arr_eq(buf, "abcde", 5);
    cr_assert_eq(DO(write, pair[1], "x", 1, -1), 1, "-1 is for what has no position, too");
    cr_assert_eq(DO(read, pair[0], buf, sizeof buf, -1), 1);
    cr_assert_eq(DO(recv, pair[0], buf, sizeof buf, MSG_DONTWAIT), -EAGAIN);
    cr_assert_eq(DO_POLL(pair[0], POLLOUT), POLLOUT);
    cr_assert_eq(DO(shutdown, pair[0], SHUT_WR), 0);
    cr_assert_eq(DO(recv, pair[1], buf, sizeof buf, 0), 0);
    cr_assert_eq(DO_CLOSE(pair[1]), 0);
    cr_assert(DO_POLL(pair[0], POLLIN) & POLLHUP);
    cr_assert_eq(DO(send, pair[0], "x", 1, 0), -EPIPE, "and no SIGPIPE");
    cr_assert_eq(DO(sendmsg, pair[0], &message, 0), -EPIPE);
    cr_assert_eq(DO_CLOSE(pair[0]), 0);
}

/* socket, connect, accept on TCP, in both families */
static void suite_tcp(void)
{
    static const char *const hosts[] = {"127.0.0.1", "::1", NULL};

    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        int listener = ring_listen(hosts[i], "0", 8), port, fd, peer, pending;
        bool v6 = i == 1;
        struct sockaddr_storage address, from;
        socklen_t len, from_len = sizeof from;

        if (listener == -EADDRNOTAVAIL || listener == -EAFNOSUPPORT)
            continue; /* a system without IPv6 */
        cr_assert(listener >= 0, "%d", listener);
        port = ring_local_port(listener);
        cr_assert(port > 0);
        len = loopback(&address, v6, port);
        fd = DO(socket, v6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
        cr_assert(fd >= 0);
        cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        cr_assert_eq(DO(connect, fd, (struct sockaddr *)&address, len), 0);
        peer = DO(accept, listener, (struct sockaddr *)&from, &from_len, 0);
        cr_assert(peer >= 0, "%d", peer);
        cr_assert(fcntl(peer, F_GETFD) & FD_CLOEXEC);
        cr_assert_eq(from.ss_family, i == 0 ? AF_INET : AF_INET6);
        pending = DO(send, fd, "ping", 4, 0);
        cr_assert_eq(pending, 4);
        char buf[8];
        cr_assert_eq(DO(recv, peer, buf, sizeof buf, MSG_WAITALL | MSG_DONTWAIT), 4);
        cr_assert_eq(DO_CLOSE(fd), 0);
        cr_assert_eq(DO(recv, peer, buf, sizeof buf, 0), 0);
        cr_assert_eq(DO_CLOSE(peer), 0);
        cr_assert_eq(DO_CLOSE(listener), 0);
        /* nobody listens any more */
        fd = DO(socket, v6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
        cr_assert_eq(DO(connect, fd, (struct sockaddr *)&address, len), -ECONNREFUSED);
        cr_assert_eq(DO_CLOSE(fd), 0);
    }
}

/* A descriptor with O_NONBLOCK waits all the same. */
static void suite_nonblocking(void)
{
    char buf[8];
    int pair[2];

    make_pair(pair);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    send_soon(pair[1], "late");
    cr_assert_eq(DO(recv, pair[0], buf, sizeof buf, 0), 4);
    send_soon(pair[1], "later");
    cr_assert_eq(DO(read, pair[0], buf, sizeof buf, -1), 5);
    cr_assert_eq(DO(recv, pair[0], buf, sizeof buf, MSG_DONTWAIT), -EAGAIN);
    join_sender();
    close_pair(pair);
}

/* A reset, and a peer that is gone. */
static void suite_reset(void)
{
    const struct linger linger = {1, 0};
    int tcp[2];
    char buf[8];

    make_tcp(tcp);
    setsockopt(tcp[1], SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    close(tcp[1]);
    cr_assert_eq(DO(recv, tcp[0], buf, sizeof buf, 0), -ECONNRESET);
    cr_assert_eq(DO(send, tcp[0], "x", 1, 0), -EPIPE);
    cr_assert_eq(DO_CLOSE(tcp[0]), 0);
}

/* Errors say what is wrong. */
static void suite_arguments(void)
{
    struct statx about;
    char buf[1] = {0};
    int pair[2];

    make_pair(pair);
    cr_assert_eq(DO(read, -1, buf, 1, -1), -EBADF);
    cr_assert_eq(DO(recv, -1, buf, 1, 0), -EBADF);
    cr_assert_eq(DO(send, 1 << 20, buf, 1, 0), -EBADF);
    cr_assert_eq(DO(accept, -1, NULL, NULL, 0), -EBADF);
    cr_assert_eq(DO_POLL(-1, POLLIN), -EBADF);
    cr_assert_eq(DO_CLOSE(-1), -EBADF);
    cr_assert_eq(DO_CLOSE(1 << 20), -EBADF);
    cr_assert_eq(DO(read, pair[0], NULL, 1, -1), -EFAULT);
    cr_assert_eq(DO(write, pair[0], NULL, 1, -1), -EFAULT);
    cr_assert_eq(DO(readv, pair[0], NULL, 1, -1), -EFAULT);
    cr_assert_eq(DO(writev, pair[0], NULL, 1, -1), -EFAULT);
    cr_assert_eq(DO(readv, pair[0], NULL, -1, -1), -EFAULT);
    cr_assert_eq(DO(recv, pair[0], NULL, 1, 0), -EFAULT);
    cr_assert_eq(DO(send, pair[0], NULL, 1, 0), -EFAULT);
    cr_assert_eq(DO(sendmsg, pair[0], NULL, 0), -EFAULT);
    cr_assert_eq(DO(connect, pair[0], NULL, 0), -EFAULT);
    cr_assert_eq(DO(accept, pair[0], (struct sockaddr *)&about, NULL, 0), -EFAULT);
    cr_assert_eq(DO(openat, AT_FDCWD, NULL, O_RDONLY, 0), -EFAULT);
    cr_assert_eq(DO(statx, AT_FDCWD, NULL, 0, 0, &about), -EFAULT);
    cr_assert_eq(DO(statx, AT_FDCWD, "/", 0, 0, NULL), -EFAULT);
    cr_assert_eq(DO(accept, pair[0], NULL, NULL, 0), -EINVAL, "it doesn't listen");
    cr_assert_eq(DO(socket, 12345, SOCK_STREAM, 0), -EAFNOSUPPORT);
    /* more than fits an int: cut, not refused */
    cr_assert_eq(DO(write, pair[0], buf, 0, -1), 0);
    close_pair(pair);
}

static void (*const suite[])(void) = {
    suite_nop,         suite_file,
    suite_pair,        suite_tcp,
    suite_nonblocking, suite_reset,
    suite_arguments,   suite_messages,
    suite_datagrams,   suite_zero_copy,
    suite_makers,      suite_pipes,
    suite_epoll_ctl,   suite_message_arguments,
    suite_space,       suite_names,
    suite_pieces,      suite_beneath,
    suite_attributes,  suite_futex,
    suite_waitid,
};

static void run_suite(void)
{
    int before = open_descriptors();

    for (size_t i = 0; i < sizeof suite / sizeof suite[0]; i++)
        suite[i]();
    cr_assert_eq(open_descriptors(), before);
}

#endif
