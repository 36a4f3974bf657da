/* net.c: bound sockets, and addresses of local ones. System calls that never wait; usable
 * without a runtime. errno is left as it was. */
#include "ring_internal.h"

#include <string.h>
#include <unistd.h>

int ring__local_address(const char *path, union ring__address *address, socklen_t *len)
{
    size_t size = path == NULL ? 0 : strlen(path);

    if (size == 0)
        return -EINVAL;
    if (size >= sizeof address->local.sun_path)
        return -ENAMETOOLONG;
    memset(&address->local, 0, sizeof address->local);
    address->local.sun_family = AF_UNIX;
    memcpy(address->local.sun_path, path, size);
    *len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size);
    if (path[0] == '@')
        address->local.sun_path[0] = '\0'; /* abstract: exactly these bytes */
    else
        *len += 1;
    return 0;
}

int ring__stream_socket(int family)
{
    int saved = errno, fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        fd = -errno;
    errno = saved;
    return fd;
}

int ring__close_now(int fd)
{
    int saved = errno, rc = close(fd) < 0 ? -errno : 0;

    errno = saved;
    return rc == -EINTR ? 0 : rc; /* the descriptor is gone all the same */
}

enum { V6ONLY_AS_SYSTEM = -1 };

/* A bound socket of that type, or a negative errno; sets errno. */
static int bind_to(const struct sockaddr *address, socklen_t len, int type, unsigned flags,
                   int v6only)
{
    const int one = 1;
    int fd = socket(address->sa_family, type | SOCK_CLOEXEC, 0), error;

    if (fd < 0)
        return -errno;
    /* (not for datagrams: there it would let another socket take the port over) */
    if ((address->sa_family == AF_UNIX || type != SOCK_STREAM ||
         setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0) &&
        (!(flags & RING_REUSEPORT) ||
         setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one) == 0) &&
        (v6only == V6ONLY_AS_SYSTEM ||
         setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6only, sizeof v6only) == 0) &&
        bind(fd, address, len) == 0)
        return fd;
    error = -errno;
    close(fd);
    return error;
}

/* The same at every address of this machine. */
static int bind_to_all(int port, int type, unsigned flags)
{
    union ring__address address = {
        .v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)}};
    int fd = bind_to(&address.any, sizeof address.v6, type, flags, (flags & RING_V6ONLY) != 0);

    if ((fd != -EAFNOSUPPORT && fd != -EADDRNOTAVAIL) || flags & RING_V6ONLY)
        return fd;
    /* a system without IPv6 */
    address =
        (union ring__address){.v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)}};
    return bind_to(&address.any, sizeof address.v4, type, flags, V6ONLY_AS_SYSTEM);
}

static int bind_host(const char *host, const char *service, int type, unsigned flags)
{
    int port = ring__service_port(service);
    struct ring__entry entry;

    if (port < 0 || flags & ~(RING_REUSEPORT | RING_V6ONLY))
        return -EINVAL;
    if (host == NULL)
        return bind_to_all(port, type, flags);
    if (ring__resolve_numeric(host, service, 0, &entry) != 0 ||
        (flags & RING_V6ONLY && entry.info.ai_family != AF_INET6))
        return -EINVAL;
    return bind_to(&entry.address.any, entry.info.ai_addrlen, type, flags,
                   flags & RING_V6ONLY ? 1 : V6ONLY_AS_SYSTEM);
}

/* Makes a bound socket listen; passes an error on. */
static int listen_on(int fd, int backlog)
{
    int error;

    if (fd < 0 || listen(fd, backlog > 0 ? backlog : INT_MAX) == 0)
        return fd;
    error = -errno;
    close(fd);
    return error;
}

int ring_listen_with(const char *host, const char *service, int backlog, unsigned flags)
{
    int saved = errno, fd = listen_on(bind_host(host, service, SOCK_STREAM, flags), backlog);

    errno = saved;
    return fd;
}

int ring_listen(const char *host, const char *service, int backlog)
{
    return ring_listen_with(host, service, backlog, 0);
}

int ring_listen_unix(const char *path, int backlog)
{
    union ring__address address;
    socklen_t len;
    int saved = errno, fd = ring__local_address(path, &address, &len);

    if (fd == 0)
        fd = listen_on(bind_to(&address.any, len, SOCK_STREAM, 0, V6ONLY_AS_SYSTEM), backlog);
    errno = saved;
    return fd;
}

int ring_bind_udp(const char *host, const char *service, unsigned flags)
{
    int saved = errno, fd = bind_host(host, service, SOCK_DGRAM, flags);

    errno = saved;
    return fd;
}

int ring_local_port(int fd)
{
    union ring__address address;
    socklen_t len = sizeof address;
    int saved = errno, port;

    if (getsockname(fd, &address.any, &len) < 0)
        port = -errno;
    else if (address.any.sa_family == AF_INET)
        port = ntohs(address.v4.sin_port);
    else if (address.any.sa_family == AF_INET6)
        port = ntohs(address.v6.sin6_port);
    else
        port = -EAFNOSUPPORT;
    errno = saved;
    return port;
}
