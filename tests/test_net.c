/* Bound sockets: their flags, their families, and what they refuse. No runtime is needed. */
#include "io_support.h"

#include <criterion/criterion.h>

static const char *port_of(int fd)
{
    static char text[16];

    snprintf(text, sizeof text, "%d", ring_local_port(fd));
    return text;
}

static bool can_connect(bool v6, int port)
{
    struct sockaddr_storage address;
    socklen_t len = loopback(&address, v6, port);
    int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), rc;

    rc = connect(fd, (struct sockaddr *)&address, len);
    close(fd);
    return rc == 0;
}

static void need_v6(void)
{
    int fd = ring_listen("::1", "0", 1);

    if (fd < 0)
        cr_skip_test("no IPv6 loopback: %s", strerror(-fd));
    close(fd);
}

/* With the flag many may have a port, if all have it; each connection goes to one of them. */
Test(net, listeners_that_share_a_port)
{
    int fds[3], count = 0, alone;
    const char *port;

    for (int i = 0; i < 3; i++) {
        fds[i] = ring_listen_with("127.0.0.1", i == 0 ? "0" : port, 64, RING_REUSEPORT);
        cr_assert(fds[i] >= 0, "%d", fds[i]);
        cr_assert(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
        fcntl(fds[i], F_SETFL, O_NONBLOCK);
        port = port_of(fds[i]);
    }
    cr_assert_eq(ring_listen("127.0.0.1", port, 1), -EADDRINUSE);
    for (int i = 0; i < 20; i++)
        cr_assert(can_connect(false, ring_local_port(fds[0])));
    for (int i = 0; i < 3; i++) {
        for (int fd; (fd = accept(fds[i], NULL, NULL)) >= 0; count++)
            close(fd);
        close(fds[i]);
    }
    cr_assert_eq(count, 20);
    alone = ring_listen_with("127.0.0.1", "0", 1, 0);
    cr_assert(alone >= 0, "%d", alone);
    cr_assert_eq(ring_listen_with("127.0.0.1", port_of(alone), 1, RING_REUSEPORT), -EADDRINUSE);
    close(alone);
}

Test(net, families)
{
    int fd;

    need_v6();
    fd = ring_listen_with(NULL, "0", 8, 0);
    cr_assert(can_connect(true, ring_local_port(fd)) && can_connect(false, ring_local_port(fd)));
    close(fd);
    fd = ring_listen_with(NULL, NULL, 8, RING_V6ONLY | RING_REUSEPORT);
    cr_assert(can_connect(true, ring_local_port(fd)));
    cr_assert(!can_connect(false, ring_local_port(fd)));
    close(fd);
    fd = ring_listen_with("::", "0", 8, RING_V6ONLY);
    cr_assert(can_connect(true, ring_local_port(fd)));
    cr_assert(!can_connect(false, ring_local_port(fd)));
    close(fd);
}

Test(net, what_is_refused)
{
    for (int udp = 0; udp < 2; udp++) {
        static const struct {
            const char *host, *service;
            unsigned flags;
        } cases[] = {
            {"localhost", "1", 0},    {"", "1", 0},           {"127.0.0.1", "no service", 0},
            {"127.0.0.1", "", 0},     {"127.0.0.1", "-1", 0}, {"127.0.0.1", "65536", 0},
            {"::1%no-zone", "0", 0},  {NULL, "70000", 0},     {"127.0.0.1", "0", RING_V6ONLY},
            {"127.0.0.1", "0", 0x80}, {NULL, "0", RING_IPV4},
        };

        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            int fd = udp ? ring_bind_udp(cases[i].host, cases[i].service, cases[i].flags)
                         : ring_listen_with(cases[i].host, cases[i].service, 1, cases[i].flags);

            cr_assert_eq(fd, -EINVAL, "%zu: %d", i, fd);
        }
        errno = 77;
        cr_assert_eq(udp ? ring_bind_udp("192.0.2.1", "0", 0) : ring_listen("192.0.2.1", "0", 1),
                     -EADDRNOTAVAIL);
        cr_assert_eq(errno, 77);
    }
}

static void expect_datagram(int to, const char *text, bool v6_peer)
{
    struct sockaddr_storage from;
    socklen_t len = sizeof from;
    char buf[16];

    cr_assert_eq(recvfrom(to, buf, sizeof buf, 0, (struct sockaddr *)&from, &len),
                 (ssize_t)strlen(text));
    cr_assert(memcmp(buf, text, strlen(text)) == 0);
    cr_assert_eq(from.ss_family, v6_peer ? AF_INET6 : AF_INET);
}

static int sender_to(int fd, bool v6)
{
    struct sockaddr_storage address;
    socklen_t len = loopback(&address, v6, ring_local_port(fd));
    int sender = socket(v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    cr_assert_eq(connect(sender, (struct sockaddr *)&address, len), 0);
    return sender;
}

Test(net, udp)
{
    int fd = ring_bind_udp("127.0.0.1", "0", 0), sender, shared, other;

    cr_assert(fd >= 0, "%d", fd);
    cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    cr_assert(ring_local_port(fd) > 0);
    sender = sender_to(fd, false);
    cr_assert_eq(send(sender, "one", 3, 0), 3);
    expect_datagram(fd, "one", false);
    close(sender);
    /* nobody takes the port over, unless both want it so */
    cr_assert_eq(ring_bind_udp("127.0.0.1", port_of(fd), 0), -EADDRINUSE);
    cr_assert_eq(ring_bind_udp("127.0.0.1", port_of(fd), RING_REUSEPORT), -EADDRINUSE);
    close(fd);
    shared = ring_bind_udp("127.0.0.1", "0", RING_REUSEPORT);
    other = ring_bind_udp("127.0.0.1", port_of(shared), RING_REUSEPORT);
    cr_assert(shared >= 0 && other >= 0, "%d %d", shared, other);
    close(shared);
    close(other);
}

Test(net, udp_of_both_families)
{
    int fd, sender;

    need_v6();
    fd = ring_bind_udp(NULL, NULL, 0);
    for (int v6 = 0; v6 < 2; v6++) {
        sender = sender_to(fd, v6);
        cr_assert_eq(send(sender, "two", 3, 0), 3);
        expect_datagram(fd, "two", true);
        close(sender);
    }
    close(fd);
}
