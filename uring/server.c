/* server.c: see server.h. */
#include "server.h"

#include <weft/ring.h>

#include "ring_internal.h"
#include "stream_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define QUIET WEFT_SEC(60) /* between two reports of no memory */

_Static_assert(sizeof(struct weft_server) == 192, "the size of a public struct is fixed");

static struct ring__server *running(const struct weft_server *server)
{
    return server->reserved[0];
}

static size_t default_bound(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return SIZE_MAX;
    return limit.rlim_cur / 4 * 3 + 1;
}

bool ring__server_fits(const struct weft_server *server)
{
    return server != NULL && server->size == sizeof *server && running(server) == NULL;
}

int ring__server_open(struct ring__server *s, struct weft_server *server)
{
    int rc;

    s->rt = weft__rt;
    rc = ring_stream_accept(&s->stream, server->listener, RING__ONE_BY_ONE);
    if (rc < 0)
        return rc;
    s->signals = server->ignores_signals ? NULL : server->signals;
    if (s->signals == NULL && !server->ignores_signals) {
        rc = weft_signals_create(&s->signals, NULL, 0);
        if (rc < 0) {
            ring_stream_close(s->stream);
            return rc;
        }
    }
    s->server = server;
    s->open = NULL;
    s->quiet = 0;
    s->default_bound = default_bound();
    server->connections = server->cancelled = 0;
    server->accepted = server->failed = 0;
    server->signal_count = 0;
    server->stopping = false;
    server->reserved[0] = s;
    return 0;
}

void ring__server_finish(struct ring__server *s)
{
    ring_stream_close(s->stream);
    if (s->signals != s->server->signals)
        weft_signals_destroy(s->signals);
    s->server->reserved[0] = NULL;
}

/* ---- connections ---- */

void ring__server_add(struct ring__server *s, struct ring__connection *c, int fd)
{
    s->server->accepted++;
    s->server->connections++;
    c->fd = fd;
    c->next = s->open;
    c->link = &s->open;
    if (c->next != NULL)
        c->next->link = &c->next;
    s->open = c;
    if (s->server->stopping && s->server->ends_reading)
        (void)shutdown(fd, SHUT_RD);
}

void ring__server_remove(struct ring__server *s, struct ring__connection *c)
{
    *c->link = c->next;
    if (c->next != NULL)
        c->next->link = c->link;
    s->server->connections--;
}

static const char *describe_peer(int fd, char *text, size_t size)
{
    union {
        struct sockaddr any;
        struct sockaddr_in in4;
        struct sockaddr_in6 in6;
        struct sockaddr_storage room;
    } peer;
    socklen_t len = sizeof peer;
    char host[INET6_ADDRSTRLEN];

    if (getpeername(fd, &peer.any, &len) != 0)
        return "a client that has gone";
    if (peer.any.sa_family == AF_INET &&
        inet_ntop(AF_INET, &peer.in4.sin_addr, host, sizeof host) != NULL)
        snprintf(text, size, "%s:%u", host, ntohs(peer.in4.sin_port));
    else if (peer.any.sa_family == AF_INET6 &&
             inet_ntop(AF_INET6, &peer.in6.sin6_addr, host, sizeof host) != NULL)
        snprintf(text, size, "[%s]:%u", host, ntohs(peer.in6.sin6_port));
    else
        return "a local client";
    return text;
}

static bool is_peers_doing(int error)
{
    return error == -ECONNRESET || error == -EPIPE || error == -ETIMEDOUT;
}

/* Without memory every connection fails, as fast as clients come. */
static bool is_told(struct ring__server *s, int error)
{
    if (error != -ENOMEM)
        return false;
    if (weft_now() < s->quiet)
        return true;
    s->quiet = weft_after(QUIET);
    return false;
}

void ring__server_failed(struct ring__server *s, int fd, int error)
{
    struct weft_server *server = s->server;
    char peer[INET6_ADDRSTRLEN + 8];

    if (error >= 0 || error == -ECANCELED)
        return;
    server->failed++;
    if (server->on_failure != NULL)
        server->on_failure(fd, error, server->ctx);
    else if (!is_peers_doing(error) && !is_told(s, error))
        weft__report(s->rt, "%s from %s (served at %s) failed: %s (%d)", ring__server_name(s),
                     describe_peer(fd, peer, sizeof peer), s->where, weft_strerror(error), error);
}

/* ---- stopping ---- */

/* A stream that has ended says so again; else it was not the stream. */
int ring__server_listener_error(struct ring__server *s, int error)
{
    int rc;

    if (error != -ECANCELED)
        return error;
    rc = ring_stream_try(s->stream, NULL);
    if (rc >= 0)
        (void)ring__close(s->rt, rc);
    /* Closed by somebody else: the number may be another file's by now. */
    if (rc == -ECANCELED)
        s->server->listener = -1;
    return rc == -ECANCELED ? -EBADF : rc < 0 && rc != -EAGAIN ? rc : 0;
}

void ring__server_stop(struct ring__server *s)
{
    struct weft_server *server = s->server;
    struct ring_stream *stream = s->stream;
    int fd;

    if (server->stopping)
        return;
    server->stopping = true;
    s->deadline = server->grace < 0 ? WEFT_FOREVER : weft_after(server->grace);
    s->stream = NULL;
    if (server->ends_reading)
        for (struct ring__connection *c = s->open; c != NULL; c = c->next)
            (void)shutdown(c->fd, SHUT_RD);
    /* To their clients those accepted already are connected as the others are. */
    while ((fd = ring_stream_try(stream, NULL)) >= 0)
        s->begin(s, fd);
    ring_stream_close(stream);
    /* a fiber that waited in it could find the server gone */
    if (server->on_stop != NULL)
        WEFT_NO_SUSPEND
        {
            server->on_stop(server->ctx);
        }
    s->stopped(s);
}

void weft_server_stop(struct weft_server *server)
{
    if (server != NULL && running(server) != NULL)
        ring__server_stop(running(server));
}
