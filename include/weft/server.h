/* weft/server.h: a server's life: it accepts connections, bounds how many there are, and comes to an
 * orderly end.
 *
 *     struct weft_server server = WEFT_SERVER_INIT;
 *     server.listener = ring_listen(NULL, "8080", SOMAXCONN);
 *     rc = fiber_serve(&server, echo);               until SIGINT or SIGTERM
 *
 * Stopping, by a signal or by weft_server_stop: no connection is accepted any more; those there are
 * may come to their end within `grace`; then they are cancelled, and waited for. A second signal
 * cancels them at once.
 *
 * Nothing that happens to one connection ends the server: one that fails is told of, and closed. When
 * there is no descriptor for another one (EMFILE), it waits in the listener's backlog, and the
 * runtime's report says so, once a minute at most.
 */
#ifndef WEFT_SERVER_H
#define WEFT_SERVER_H

#include <weft/base.h>

WEFT_BEGIN_DECLS

struct promise;
struct weft_signals;

/* Begin with WEFT_SERVER_INIT, set `listener`, then what you need. The memory is the caller's, and
 * must stay until the server has ended; then it can be used again. */
struct weft_server {
    size_t size;  /* sizeof(struct weft_server), for later growth */
    int listener; /* a listening socket, the server's from the call on: it is closed, and this -1,
                       * when the server stops, so that clients are refused; also if it can't begin.
                       * A dup(2) of it would listen on */
    const char *name; /* of the connections' fibers, and in reports; NULL: "connection" */
    void *ctx;        /* handed to all functions below, and to serve */

    size_t max_connections; /* served at a time. One more may have been accepted, the others wait in
                             * the listener's backlog. 0: three quarters of the descriptors that
                             * the process may have (RLIMIT_NOFILE) */
    int64_t grace;          /* ns for connections to end by themselves; negative: for ever */
    size_t stack_size;      /* bytes, of the connections' fibers; 0: the runtime's default */

    struct weft_signals *signals; /* that stop it, lent; NULL: SIGINT and SIGTERM, which are held
                                   * (weft/signals.h) while the server runs */
    bool ignores_signals;         /* none stops it */

    /* When it stops, the reading side of each connection is shut: a serve that reads finds what has
     * been received, and then the end, as if the client had sent it. For protocols in which whoever
     * reads has nothing else to do. */
    bool ends_reading;

    /* Called when it stops, once: a chance to end connections that rest. It can't suspend (-EDEADLK).
     * NULL: nothing. */
    void (*on_stop)(void *ctx);

    /* Called when serve's result is negative, but for -ECANCELED, while fd is still open; also with
     * -ENOMEM when a connection could not be begun. NULL: the runtime's report tells who failed, but
     * nothing of -ECONNRESET, -EPIPE and -ETIMEDOUT, which peers cause, and of -ENOMEM once a minute
     * at most. */
    void (*on_failure)(int fd, int error, void *ctx);

    /* To be read, at any time. */
    size_t connections; /* now */
    uint64_t accepted;
    uint64_t failed;
    size_t cancelled; /* connections there were when their time was up */
    unsigned signal_count;
    bool stopping;

    void *reserved[8]; /* private */
};
/* clang-format off */
#define WEFT_SERVER_INIT {.size = sizeof(struct weft_server), .listener = -1, .grace = WEFT_SEC(10)}
/* clang-format on */

#if WEFT_HAS_FIBERS
/* Serves until it is stopped and the last connection has ended: each in a fiber of its own, which
 * runs serve(fd, server->ctx) and may wait as it likes. When serve returns the descriptor is closed,
 * and must not have been before. Its result is 0 or more, or a negative errno.
 *
 * Returns server->cancelled: 0 if all connections ended by themselves. -ECANCELED when the calling
 * fiber was cancelled, and with it, at once, the connections; what the listener said when it can't
 * accept any more (-EBADF: it was closed; -EINVAL: it doesn't listen), after the same orderly end as
 * by a signal; -EINVAL, too, and then nothing has happened, for NULL, a wrong size, or a server that
 * is running; -ENOMEM, -EMFILE, -ENOSYS; -EDEADLK on the base stack. Fiber only; suspends;
 * cancellation point. Since 0.1. */
#define fiber_serve(server, serve) fiber_serve_at((server), (serve), WEFT_HERE)
FIBER_SUSPENDS WEFT_API int fiber_serve_at(struct weft_server *server,
                                           int (*serve)(int fd, void *ctx), const char *where);
#endif

/* The same in promise style: serve returns a promise (consumed), of the connection's end. Canceling
 * the result cancels the connections. Never NULL; fulfilled with server->cancelled, or rejected as
 * above. Never suspends. Runtime's thread, callbacks too. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_serve(struct weft_server *server,
                                                      struct promise *(*serve)(int fd, void *ctx));

/* Begins to stop it: the last connection ends at most `grace` from now. A second call changes nothing;
 * NULL and a server that doesn't run are fine. Runtime's thread, callbacks too; doesn't suspend.
 * Since 0.1. */
WEFT_API void weft_server_stop(struct weft_server *server);

WEFT_END_DECLS

#endif
