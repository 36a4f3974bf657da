/* net.c: sockets to listen on, and addresses of local ones. System calls that never wait; usable
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

/* A bound, listening socket, or a negative errno. */
static int listen_at(const struct sockaddr *address, socklen_t len, int backlog, bool dual)
{
    const int one = 1, zero = 0;
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), error;

    if (fd < 0)
        return -errno;
    if (address->sa_family != AF_UNIX)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (dual)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(fd, address, len) == 0 && listen(fd, backlog > 0 ? backlog : INT_MAX) == 0)
        return fd;
    error = -errno;
    close(fd);
    return error;
}

int ring_listen(const char *host, const char *service, int backlog)
{
    union ring__address address;
    struct ring__entry entry;
    int port = ring__service_port(service), saved = errno, fd;

    if (port < 0)
        return -EINVAL;
    if (host != NULL) {
        fd = ring__resolve_numeric(host, service, 0, &entry) == 0
                 ? listen_at(&entry.address.any, entry.info.ai_addrlen, backlog, false)
                 : -EINVAL;
    } else {
        memset(&address, 0, sizeof address);
        address.v6.sin6_family = AF_INET6;
        address.v6.sin6_port = htons((uint16_t)port);
        fd = listen_at(&address.any, sizeof address.v6, backlog, true);
        if (fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL) { /* a system without IPv6 */
            memset(&address, 0, sizeof address);
            address.v4.sin_family = AF_INET;
            address.v4.sin_port = htons((uint16_t)port);
            fd = listen_at(&address.any, sizeof address.v4, backlog, false);
        }
    }
    errno = saved;
    return fd;
}

int ring_listen_unix(const char *path, int backlog)
{
    union ring__address address;
    socklen_t len;
    int saved = errno, fd = ring__local_address(path, &address, &len);

    if (fd == 0)
        fd = listen_at(&address.any, len, backlog, false);
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
