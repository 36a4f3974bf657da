/* needs: fibers
 * proxy.c: a TCP proxy: what a client sends goes to a server elsewhere, and what that says comes back.
 * The bytes never enter this process: they move from socket to socket through a pipe of the kernel's.
 *
 * A connection is two fibers, one for each direction, in one scope. What one peer does, the other
 * sees: an end is passed on as an end of that direction alone, and the other direction goes on; a
 * reset is passed on as a reset, so that nobody takes half an answer for a whole one. If either
 * direction fails, the other is cancelled.
 */
#include "program.h"

#include <poll.h>

enum { PIECE = 64 * 1024 }; /* what a pipe holds */

struct proxy {
    struct program program;
    const char *to_host, *to_port;
    long connect_ms, idle_ms, drain_ms;
};

struct link {
    struct proxy *proxy;
    int client, server;
    weft_time active; /* when something has last moved, in either direction */
};

struct direction {
    struct link *link;
    int from, to;
    int pipe[2];
};

/* A direction may rest while the other is busy: what counts is the whole. */
static int wait_until(const struct link *link, int fd, short events)
{
    int64_t idle = WEFT_MS(link->proxy->idle_ms);
    weft_time seen;
    int rc;

    do {
        seen = link->active;
        rc = fiber_poll(fd, events, seen + idle);
    } while (rc == -ETIMEDOUT && link->active != seen);
    return rc;
}

/* Empties the pipe, which holds `length` bytes. */
static int drain_pipe(struct direction *d, int length)
{
    int moved;

    while (length > 0) {
        moved = wait_until(d->link, d->to, POLLOUT);
        if (moved >= 0)
            moved = fiber_splice(d->pipe[0], -1, d->to, -1, (size_t)length, 0, WEFT_FOREVER);
        if (moved < 0)
            return moved;
        length -= moved;
        d->link->active = weft_now();
    }
    return 0;
}

static int move_all(struct direction *d)
{
    int moved;

    for (;;) {
        moved = wait_until(d->link, d->from, POLLIN);
        if (moved >= 0)
            moved = fiber_splice(d->from, -1, d->pipe[1], -1, PIECE, 0, WEFT_FOREVER);
        if (moved <= 0)
            return moved;
        d->link->active = weft_now();
        moved = drain_pipe(d, moved);
        if (moved < 0)
            return moved;
    }
}

static int64_t forward(void *arg)
{
    struct direction *d = arg;
    int rc = fiber_pipe(d->pipe, 0, WEFT_FOREVER);

    if (rc < 0)
        return rc;
    rc = move_all(d);
    fiber_close(d->pipe[0]);
    fiber_close(d->pipe[1]);
    /* The half close: this direction is through, the other may have much to say yet. */
    return rc == 0 ? fiber_shutdown(d->to, SHUT_WR, WEFT_FOREVER) : rc;
}

/* Closing the socket will reset the connection. */
static void will_reset(int fd)
{
    struct linger now = {.l_onoff = 1};

    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

static int serve(int fd, void *ctx)
{
    struct proxy *proxy = ctx;
    struct link link = {.proxy = proxy, .client = fd, .active = weft_now()};
    int rc;

    link.server =
        fiber_connect_host(proxy->to_host, proxy->to_port, weft_after(WEFT_MS(proxy->connect_ms)));
    if (link.server < 0) {
        will_reset(fd);
        return link.server;
    }
    struct direction there = {&link, link.client, link.server, {-1, -1}};
    struct direction back = {&link, link.server, link.client, {-1, -1}};
    rc = fiber_both(forward, &there, forward, &back);
    if (rc < 0) {
        will_reset(link.client);
        will_reset(link.server);
    }
    fiber_close(link.server);
    return rc;
}

/* What peers do to each other is no news here; that nobody could be reached is. */
static void tell(int fd, int error, void *ctx)
{
    const struct proxy *proxy = ctx;

    (void)fd;
    if (error != -ECONNRESET && error != -EPIPE && error != -ETIMEDOUT && error != -ENOTCONN)
        fprintf(stderr, "%s, port %s: %s\n", proxy->to_host, proxy->to_port, weft_strerror(error));
}

static int run(void *arg)
{
    struct proxy *proxy = arg;
    struct weft_server server = program_server(&proxy->program);
    long spare;
    int result;

    server.name = "proxied";
    server.ctx = proxy;
    server.on_failure = tell;
    server.grace = WEFT_MS(proxy->drain_ms);
    /* Two sockets and two pipes each; the program itself has some, too. */
    spare = program_descriptors() - 16;
    server.max_connections = spare > 6 ? (size_t)spare / 6 : 1;
    result = fiber_serve(&server, serve);
    printf("%llu connections, %llu failed\n", (unsigned long long)server.accepted,
           (unsigned long long)server.failed);
    return result;
}

int main(int argc, char **argv)
{
    static struct proxy proxy = {.to_host = "127.0.0.1",
                                 .to_port = "80",
                                 .connect_ms = 10000,
                                 .idle_ms = 600000,
                                 .drain_ms = 10000};
    struct program *program = &proxy.program;
    int status;

    program_init(program, "Passes each connection on to a server elsewhere.");
    program_word(program, "to-host", "the server's name or address", &proxy.to_host);
    program_word(program, "to-port", "its port", &proxy.to_port);
    program_setting(program, "connect-ms", "how long connecting to it may take", &proxy.connect_ms,
                    1, 3600000);
    program_setting(program, "idle-ms", "how long nothing may move", &proxy.idle_ms, 1, 86400000);
    program_setting(program, "drain-ms", "how long connections may last when stopping",
                    &proxy.drain_ms, 0, 3600000);
    program_read_settings(program, argc, argv);
    status = program_open(program);
    return status != 0 ? status : program_end(program, weft_run(run, &proxy, NULL));
}
