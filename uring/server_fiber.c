/* server_fiber.c: fiber_serve.
 *
 * One scope holds everything: the connections' fibers, and a daemon that waits for signals. The calling
 * fiber takes connections from the stream, or waits until there are few enough of them. No fiber in
 * the scope fails, so what cancels the scope is either whoever cancels the caller, or here: the grace
 * is over, or a second signal has come.
 */
#include <weft/io.h>
#include <weft/scope.h>

#include "fiber_internal.h"
#include "ring_internal.h"
#include "server.h"
#include "timer.h"

#include <stdlib.h>

struct serving {
    struct ring__server base; /* must be first */
    int (*serve)(int fd, void *ctx);
    struct fiber_scope scope;
    struct fiber_options options;

    /* The calling fiber waits until there are no more than `most` connections. */
    struct fiber_wait wait;
    struct weft_timer limit;
    struct fiber *fiber;
    size_t most;
    bool waits;
    int result;
};

struct connection {
    struct ring__connection base; /* must be first */
    struct serving *serving;
};

/* ---- waiting for connections to end ---- */

static void wake(struct serving *s, int result)
{
    if (!s->waits)
        return;
    s->waits = false;
    s->result = result;
    weft__timer_stop(s->base.rt, &s->limit);
    fiber__wake(s->base.rt, s->fiber);
}

static void wait_cancelled(struct fiber_wait *wait)
{
    wake(weft__container(wait, struct serving, wait), -ECANCELED);
}

static void wait_expired(struct weft_timer *timer)
{
    wake(weft__container(timer, struct serving, limit), -ETIMEDOUT);
}

/* 0, -ECANCELED or -ETIMEDOUT. Stopping ends it too. */
static int wait_for_connections(struct serving *s, size_t most, weft_time deadline)
{
    int rc = fiber_check();

    if (rc < 0 || s->base.server->connections <= most)
        return rc;
    s->most = most;
    s->waits = true;
    s->wait = (struct fiber_wait){
        .cancel = wait_cancelled, .what = "connections to end", .detail = s->base.server->listener};
    weft_timer_init(&s->limit, wait_expired);
    if (deadline != WEFT_FOREVER)
        weft__timer_start(s->base.rt, &s->limit, deadline);
    fiber__park(s->base.rt, s->fiber, &s->wait);
    return s->result;
}

static void stopped(struct ring__server *base)
{
    wake((struct serving *)base, 0);
}

/* ---- connections ---- */

static void end_connection(struct serving *s, struct connection *c, int result)
{
    ring__server_failed(&s->base, c->base.fd, result);
    (void)fiber_close(c->base.fd);
    ring__server_remove(&s->base, &c->base);
    if (s->base.server->connections <= s->most)
        wake(s, 0);
    free(c);
}

static int64_t connection_main(void *arg)
{
    struct connection *c = arg;
    struct serving *s = c->serving;

    end_connection(s, c, s->serve(c->base.fd, s->base.server->ctx));
    return 0;
}

static void begin(struct ring__server *base, int fd)
{
    struct serving *s = (struct serving *)base;
    struct connection *c = malloc(sizeof *c);
    int rc = -ENOMEM;

    if (c != NULL) {
        c->serving = s;
        ring__server_add(base, &c->base, fd);
        rc = fiber_scope_spawn_with(&s->scope, connection_main, c, &s->options);
        if (rc == 0)
            return;
        ring__server_remove(base, &c->base);
        free(c);
    }
    ring__server_failed(base, fd, rc);
    (void)ring__close(base->rt, fd);
}

/* ---- all of it ---- */

static void cancel_connections(struct serving *s)
{
    ring__server_cancels(&s->base);
    fiber_scope_cancel(&s->scope);
}

/* The first signal stops the server, the second one its connections. */
static int64_t watch_signals(void *arg)
{
    struct serving *s = arg;
    int rc;

    while ((rc = fiber_signals_wait(s->base.signals, NULL, WEFT_FOREVER)) > 0) {
        if (s->base.server->signal_count++ == 0) {
            ring__server_stop(&s->base);
        } else {
            cancel_connections(s);
            return 0;
        }
    }
    return rc;
}

/* Until it is stopped, 0; what the listener said; or -ECANCELED. */
static int accept_all(struct serving *s)
{
    struct weft_server *server = s->base.server;
    int rc, error;

    for (;;) {
        rc = wait_for_connections(s, ring__server_bound(&s->base) - 1, WEFT_FOREVER);
        if (rc < 0 || server->stopping)
            return rc;
        rc = fiber_stream_next(s->base.stream, NULL, WEFT_FOREVER);
        if (rc >= 0) {
            begin(&s->base, rc);
            continue;
        }
        if (server->stopping)
            return fiber_check();
        error = ring__server_listener_error(&s->base, rc);
        return error < 0 ? error : rc;
    }
}

static void close_listener(struct weft_server *server)
{
    int listener = server->listener;

    server->listener = -1;
    (void)fiber_close(listener); /* negative: harmless */
}

/* Gives the connections their time; then there may still be some, cancelled. */
static void drain(struct serving *s)
{
    close_listener(s->base.server);
    if (wait_for_connections(s, 0, s->base.deadline) == -ETIMEDOUT)
        cancel_connections(s);
}

int fiber_serve_at(struct weft_server *server, int (*serve)(int fd, void *ctx), const char *where)
{
    struct weft_runtime *rt = weft__rt;
    struct serving s = {.base = {.begin = begin, .stopped = stopped, .where = where},
                        .serve = serve,
                        .fiber = fiber__self(rt)};
    int rc, closed;

    if (s.fiber == NULL)
        return fiber__cannot_wait(rt);
    if (serve == NULL || !ring__server_fits(server))
        return -EINVAL;
    rc = ring__server_open(&s.base, server);
    if (rc < 0) {
        close_listener(server);
        return rc;
    }
    s.options = (struct fiber_options){.size = sizeof s.options,
                                       .name = ring__server_name(&s.base),
                                       .stack_size = server->stack_size,
                                       .where = where};
    (void)fiber_scope_open(&s.scope, WEFT_FOREVER); /* nothing can fail: we are in a fiber */
    if (s.base.signals != NULL)
        rc = fiber_scope_daemon(&s.scope, watch_signals, &s);
    if (rc == 0)
        rc = accept_all(&s);
    ring__server_stop(&s.base);
    drain(&s);
    closed = fiber_scope_close(&s.scope, 0);
    ring__server_finish(&s.base);
    if (closed < 0 && closed != -ECANCELED)
        return closed;
    if (rc < 0 && rc != -ECANCELED)
        return rc;
    return fiber_check() < 0 ? -ECANCELED : (int)server->cancelled;
}
