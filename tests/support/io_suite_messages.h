/* io_suite_messages.h: the part of io_suite.h about messages, datagrams, pipes and sockets. */
#ifndef WEFT_TEST_IO_SUITE_MESSAGES_H
#define WEFT_TEST_IO_SUITE_MESSAGES_H

#include "io_support.h"
#include "letter.h"

#include <weft/io.h>

#include <criterion/criterion.h>
#include <sys/epoll.h>

/* sendmsg, recvmsg, with two descriptors, which reach the same files */
static void suite_messages(void)
{
    struct letter l;
    int pair[2], ends[2], got[4];
    char buf[4];

    make_pair(pair);
    make_pipe(ends);
    cr_assert_eq(DO(sendmsg, pair[0], letter_with(&l, "hello", ends, 2), 0), 5);
    cr_assert_eq(DO(recvmsg, pair[1], letter_to_fill(&l), 0), 5);
    cr_assert_arr_eq(l.text, "hello", 5);
    cr_assert_eq(letter_fds(&l, got), 2);
    cr_assert(fcntl(got[0], F_GETFD) & FD_CLOEXEC && fcntl(got[1], F_GETFD) & FD_CLOEXEC);
    cr_assert_eq(write(got[1], "pipe", 4), 4);
    cr_assert_eq(read(ends[0], buf, 4), 4);
    cr_assert_arr_eq(buf, "pipe", 4);
    close_pair(got);
    close_pair(ends);
    /* without, and what flags say */
    cr_assert_eq(DO(recvmsg, pair[1], letter_to_fill(&l), MSG_DONTWAIT), -EAGAIN);
    send_soon(pair[0], "late");
    cr_assert_eq(DO(recvmsg, pair[1], letter_to_fill(&l), MSG_PEEK), 4);
    cr_assert_eq(DO(recvmsg, pair[1], letter_to_fill(&l), 0), 4);
    cr_assert_eq(letter_fds(&l, got), 0);
    join_sender();
    close(pair[0]);
    cr_assert_eq(DO(recvmsg, pair[1], letter_to_fill(&l), 0), 0);
    cr_assert_eq(DO(sendmsg, pair[1], letter_with(&l, "x", NULL, 0), 0), -EPIPE, "and no SIGPIPE");
    close(pair[1]);
}

/* sendto and its receiver on UDP in both families; a datagram too long is cut, and recvmsg says so */
static void suite_datagrams(void)
{
    for (int v6 = 0; v6 < 2; v6++) {
        struct sockaddr_storage to, from, own;
        socklen_t len = loopback(&to, v6, 0), own_len = sizeof own;
        int family = v6 ? AF_INET6 : AF_INET;
        int a = DO(socket, family, SOCK_DGRAM, 0), b = DO(socket, family, SOCK_DGRAM, 0);
        struct letter l;

        if (a < 0 || DO(bind_fd, a, (struct sockaddr *)&to, len) < 0) {
            close(a);
            close(b);
            continue; /* a system without IPv6 */
        }
        cr_assert_eq(DO(bind_fd, b, (struct sockaddr *)&to, len), 0);
        loopback(&to, v6, ring_local_port(b));
        cr_assert_eq(DO(sendto, a, "ping", 4, 0, (struct sockaddr *)&to, len), 4);
        letter_to_fill(&l)->msg_name = &from;
        l.header.msg_namelen = sizeof from;
        l.piece.iov_len = 3;
        cr_assert_eq(DO(recvmsg, b, &l.header, 0), 3);
        cr_assert_arr_eq(l.text, "pin", 3);
        cr_assert(l.header.msg_flags & MSG_TRUNC);
        getsockname(a, (struct sockaddr *)&own, &own_len);
        cr_assert_eq(l.header.msg_namelen, len);
        if (!v6)
            cr_assert_eq(((struct sockaddr_in *)&from)->sin_port,
                         ((struct sockaddr_in *)&own)->sin_port);
        /* an answer to the sender; connected, no address is needed */
        cr_assert_eq(DO(sendto, b, "", 0, 0, (struct sockaddr *)&from, l.header.msg_namelen), 0);
        cr_assert_eq(DO(connect, a, (struct sockaddr *)&to, len), 0);
        cr_assert_eq(DO(recvmsg, a, letter_to_fill(&l), 0), 0, "an empty datagram");
        cr_assert_eq(DO(sendto, a, "more", 4, 0, NULL, 0), 4);
        cr_assert_eq(DO(recvmsg, b, letter_to_fill(&l), 0), 4);
        cr_assert_eq(DO(sendto, b, "x", 1, 0, NULL, 0), -EDESTADDRREQ);
        cr_assert_eq(DO(sendto, b, "x", 1, 0, (struct sockaddr *)&to, 3), -EINVAL);
        cr_assert_eq(DO(sendto, b, "x", 1, 0, (struct sockaddr *)&to, 1 << 20), -EINVAL);
        close(a);
        close(b);
    }
}

/* Zero copy, and where there is none: on a local socket, and on a pipe. */
static void suite_zero_copy(void)
{
    int pair[2], tcp[2], ends[2];
    char buf[8];

    make_tcp(tcp);
    make_pair(pair);
    cr_assert_eq(DO(send_zc, tcp[0], "hello", 5, 0), 5);
    cr_assert_eq(DO(recv, tcp[1], buf, sizeof buf, 0), 5);
    cr_assert_arr_eq(buf, "hello", 5);
    cr_assert_eq(DO(send_zc, tcp[0], buf, 0, 0), 0);
    cr_assert_eq(DO(send_zc, pair[0], "local", 5, 0), 5);
    cr_assert_eq(DO(recv, pair[1], buf, sizeof buf, 0), 5);
    cr_assert_arr_eq(buf, "local", 5);
    make_pipe(ends);
    cr_assert_eq(DO(send_zc, ends[1], "x", 1, 0), -ENOTSOCK);
    close(pair[1]);
    cr_assert_eq(DO(send_zc, pair[0], "x", 1, 0), -EPIPE, "and no SIGPIPE");
    close(tcp[1]);
    shutdown(tcp[0], SHUT_WR);
    cr_assert_eq(DO(send_zc, tcp[0], "x", 1, 0), -EPIPE);
    close(pair[0]);
    close(tcp[0]);
    close_pair(ends);
}

/* socketpair, pipe, bind_fd, listen_fd */
static void suite_makers(void)
{
    struct sockaddr_storage address;
    socklen_t len = loopback(&address, false, 0);
    int pair[2], ends[2], listener, fd, peer;
    char buf[4];

    cr_assert_eq(DO(socketpair, AF_UNIX, SOCK_STREAM, 0, pair), 0);
    cr_assert_eq(DO(pipe, ends, 0), 0);
    for (int i = 0; i < 2; i++)
        cr_assert(fcntl(pair[i], F_GETFD) & FD_CLOEXEC && fcntl(ends[i], F_GETFD) & FD_CLOEXEC);
    cr_assert_eq(DO(send, pair[0], "x", 1, 0), 1);
    cr_assert_eq(DO(recv, pair[1], buf, 1, 0), 1);
    cr_assert_eq(DO(write, ends[1], "x", 1, -1), 1);
    cr_assert_eq(DO(read, ends[0], buf, 1, -1), 1);
    close_pair(pair);
    close_pair(ends);
    cr_assert_eq(DO(socketpair, AF_INET, SOCK_STREAM, 0, pair), -EOPNOTSUPP);
    cr_assert_eq(DO(pipe, ends, 1 << 20), -EINVAL);

    listener = DO(socket, AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(DO(bind_fd, listener, (struct sockaddr *)&address, len), 0);
    cr_assert_eq(DO(listen_fd, listener, 4), 0);
    loopback(&address, false, ring_local_port(listener));
    fd = DO(socket, AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(DO(bind_fd, fd, (struct sockaddr *)&address, len), -EADDRINUSE);
    cr_assert_eq(DO(connect, fd, (struct sockaddr *)&address, len), 0);
    peer = DO(accept, listener, NULL, NULL, 0);
    cr_assert(peer >= 0);
    cr_assert_eq(DO(bind_fd, fd, (struct sockaddr *)&address, 1), -EINVAL);
    close(peer);
    close(fd);
    close(listener);
}

/* splice, tee: through pipes, from and to files and sockets; their errors; an end without a reader */
static void suite_pipes(void)
{
    int a[2], b[2], tcp[2], file;
    char buf[16];

    make_pipe(a);
    make_pipe(b);
    make_tcp(tcp);
    file = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    cr_assert_eq(pwrite(file, "0123456789", 10, 0), 10);
    /* file, pipe, another pipe and both, socket, pipe, file */
    cr_assert_eq(DO(splice, file, 2, a[1], -1, 100, 0), 8);
    cr_assert_eq(lseek(file, 0, SEEK_CUR), 0);
    cr_assert_eq(DO(tee, a[0], b[1], 4, 0), 4);
    cr_assert_eq(DO(splice, a[0], -1, b[1], -1, 3, 0), 3);
    cr_assert_eq(DO(splice, b[0], -1, tcp[0], -1, 100, 0), 7);
    cr_assert_eq(DO(recv, tcp[1], buf, sizeof buf, MSG_WAITALL | MSG_PEEK | MSG_DONTWAIT), 7);
    cr_assert_arr_eq(buf, "2345234", 7);
    cr_assert_eq(DO(splice, tcp[1], -1, b[1], -1, 100, 0), 7);
    cr_assert_eq(DO(splice, b[0], -1, file, 10, 100, 0), 7);
    cr_assert_eq(pread(file, buf, sizeof buf, 8), 9);
    cr_assert_arr_eq(buf, "892345234", 9);
    /* its own position; the end */
    cr_assert_eq(DO(splice, file, -1, b[1], -1, 5, 0), 5);
    cr_assert_eq(lseek(file, 0, SEEK_CUR), 5);
    cr_assert_eq(DO(splice, file, 1000, b[1], -1, 5, 0), 0);
    /* either end may be the one to wait for */
    cr_assert_eq(DO(read, a[0], buf, 8, -1), 5);
    cr_assert_eq(DO(read, b[0], buf, 8, -1), 5);
    cr_assert_eq(DO(splice, a[0], -1, b[1], -1, 5, SPLICE_F_NONBLOCK), -EAGAIN);
    cr_assert_eq(DO(tee, a[0], b[1], 5, SPLICE_F_NONBLOCK), -EAGAIN);
    send_soon(tcp[0], "late");
    cr_assert_eq(DO(splice, tcp[1], -1, a[1], -1, 100, 0), 4);
    join_sender();
    cr_assert_eq(DO(read, a[0], buf, 8, -1), 4);
    cr_assert_eq(DO(splice, a[0], -1, b[1], -1, 0, 0), 0);
    cr_assert_eq(DO(splice, file, 0, tcp[0], -1, 5, 0), -EINVAL, "neither is a pipe");
    cr_assert_eq(DO(splice, a[0], 3, tcp[0], -1, 5, 0), -ESPIPE);
    cr_assert_eq(DO(splice, -1, -1, b[1], -1, 5, 0), -EBADF);
    cr_assert_eq(DO(splice, a[0], -1, -1, -1, 5, 0), -EBADF);
    cr_assert_eq(DO(tee, a[0], file, 5, 0), -EINVAL);
    cr_assert_eq(write(a[1], "x", 1), 1);
    close(b[0]);
    cr_assert_eq(DO(splice, a[0], -1, b[1], -1, 5, 0), -EPIPE, "and no SIGPIPE");
    cr_assert_eq(DO(tee, a[0], b[1], 5, 0), -EPIPE);
    close(a[1]);
    cr_assert_eq(DO(read, a[0], buf, 8, -1), 1);
    cr_assert_eq(DO(splice, a[0], -1, tcp[0], -1, 5, 0), 0, "no writer: the end");
    close(a[0]);
    close(b[1]);
    close(file);
    close_pair(tcp);
}

static void suite_epoll_ctl(void)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 7};
    int epoll = epoll_create1(EPOLL_CLOEXEC), pair[2];

    make_pair(pair);
    cr_assert_eq(DO(epoll_ctl, epoll, EPOLL_CTL_ADD, pair[0], &event), 0);
    cr_assert_eq(DO(epoll_ctl, epoll, EPOLL_CTL_ADD, pair[0], &event), -EEXIST);
    cr_assert_eq(DO(epoll_ctl, epoll, EPOLL_CTL_MOD, pair[0], NULL), -EFAULT);
    cr_assert_eq(write(pair[1], "x", 1), 1);
    memset(&event, 0, sizeof event);
    cr_assert_eq(epoll_wait(epoll, &event, 1, -1), 1);
    cr_assert_eq(event.data.u32, 7);
    cr_assert_eq(DO(epoll_ctl, epoll, EPOLL_CTL_DEL, pair[0], NULL), 0);
    cr_assert_eq(DO(epoll_ctl, epoll, EPOLL_CTL_DEL, pair[0], NULL), -ENOENT);
    close(epoll);
    close_pair(pair);
}

static void suite_message_arguments(void)
{
    struct sockaddr_storage address;
    struct letter l;
    int pair[2];

    loopback(&address, false, 0);
    make_pair(pair);
    cr_assert_eq(DO(recvmsg, pair[0], NULL, 0), -EFAULT);
    cr_assert_eq(DO(sendmsg, pair[0], NULL, 0), -EFAULT);
    cr_assert_eq(DO(recvmsg, -1, letter_to_fill(&l), 0), -EBADF);
    cr_assert_eq(DO(sendmsg, 1 << 20, letter_with(&l, "x", NULL, 0), 0), -EBADF);
    cr_assert_eq(DO(sendto, pair[0], NULL, 1, 0, NULL, 0), -EFAULT);
    cr_assert_eq(DO(sendto, pair[0], "x", 1, 0, NULL, 16), -EFAULT);
    cr_assert_eq(DO(sendto, -1, "x", 1, 0, (struct sockaddr *)&address, 16), -EBADF);
    cr_assert_eq(DO(send_zc, pair[0], NULL, 1, 0), -EFAULT);
    cr_assert_eq(DO(send_zc, -1, "x", 1, 0), -EBADF);
    cr_assert_eq(DO(bind_fd, pair[0], NULL, 0), -EFAULT);
    cr_assert_eq(DO(bind_fd, -1, (struct sockaddr *)&address, 16), -EBADF);
    cr_assert_eq(DO(listen_fd, -1, 1), -EBADF);
    cr_assert_eq(DO(socketpair, AF_UNIX, SOCK_STREAM, 0, NULL), -EFAULT);
    cr_assert_eq(DO(pipe, NULL, 0), -EFAULT);
    cr_assert_eq(DO(epoll_ctl, -1, EPOLL_CTL_DEL, pair[0], NULL), -EBADF);
    close_pair(pair);
}

#endif
