/* server_promise.c: promise_serve.
 *
 * The server is an operation behind its promise, and goes on in steps: a connection has come or gone,
 * a signal has come, the time is up. Each connection is a job: it waits for what serve returned, then
 * for the descriptor's close. Once begun, neither needs memory to get to its end (but for the
 * promise of a close, without which the close is done at once).
 *
 * Whatever may call the user's code, and with it end the server, is followed by go_on as the last act:
 * nobody touches the server afterwards. `busy` keeps it from ending in the midst of a step.
 */
#include <weft/io.h>
#include <weft/promise.h>

#include "promise_wait.h"
#include "ring_internal.h"
#include "server.h"
#include "stream_internal.h"
#include "timer.h"

#include <errno.h>
#include <string.h>

struct serving {
    struct ring__server base; /* must be first */
    struct promise *(*serve)(int fd, void *ctx);
    struct ring__reader reader;
    struct ring__closing closing; /* of `listener` */
    struct weft_timer timer;      /* begins it; then: the connections' time is up */
    struct weft__guest guest;     /* to be told of the runtime's end */
    struct promise *watch;        /* the wait for signals; NULL: none */
    struct ring__connection *cancelled;
    unsigned busy;
    int listener; /* while it is being closed */
    bool begun, reading, stopped, closed, over;
    int error; /* what the listener said, or -ECANCELED */
};

struct connection {
    struct promise__job job;      /* must be first */
    struct ring__connection base; /* in the list of those to be cancelled, or in the other */
    struct serving *serving;
    struct promise *self; /* a reference, to cancel it by */
    bool closing;         /* the descriptor is promise_close's */
};

static void go_on(struct serving *s);

/* ---- connections ---- */

static struct promise *closed(struct promise__job *job, struct promise *settled)
{
    struct connection *c = weft__container(job, struct connection, job);
    struct serving *s = c->serving;
    struct promise *self = c->self;
    int error = 0;

    if (promise_poll(settled, NULL, &error) == PROMISE_REJECTED && error == -ENOMEM)
        (void)ring__close(s->base.rt, c->base.fd);
    promise_unref(settled);
    ring__server_remove(&s->base, &c->base);
    promise__job_end(job, 0, weft_num(0), NULL);
    promise_unref(self);
    go_on(s);
    return NULL;
}

static struct promise *conversation_over(struct promise__job *job, struct promise *settled)
{
    struct connection *c = weft__container(job, struct connection, job);
    int error = 0;

    (void)promise_poll(settled, NULL, &error);
    promise_unref(settled);
    c->serving->busy++;
    ring__server_failed(&c->serving->base, c->base.fd, error);
    c->serving->busy--;
    job->step = closed;
    c->closing = true;
    return promise_close(c->base.fd);
}

static void begin_on_base(void *arg)
{
    struct connection *c = arg;
    struct promise *first = c->serving->serve(c->base.fd, c->serving->base.server->ctx);

    promise__job_start(&c->job, first != NULL ? first : promise_rejected(-EINVAL));
}

static void begin(struct ring__server *base, int fd)
{
    struct serving *s = (struct serving *)base;
    struct promise__state *st = promise__tls;
    struct promise__job *job;
    struct promise *self =
        promise__job_create(st, sizeof(struct connection), conversation_over, &job);
    struct connection *c = weft__container(job, struct connection, job);

    if (job == NULL) {
        promise_unref(self);
        ring__server_failed(base, fd, -ENOMEM);
        (void)ring__close(base->rt, fd);
        return;
    }
    c->serving = s;
    c->self = self;
    c->closing = false;
    ring__server_add(base, &c->base, fd);
    s->busy++;
    promise__call_on_base(st, begin_on_base, c);
    s->busy--;
}

/* Each moves to another list first: a cancel may end any of them, and run anything. */
static void cancel_connections(struct serving *s)
{
    struct ring__connection *c;

    ring__server_cancels(&s->base);
    s->busy++;
    while ((c = s->base.open) != NULL) {
        s->base.open = c->next;
        if (c->next != NULL)
            c->next->link = &s->base.open;
        c->next = s->cancelled;
        c->link = &s->cancelled;
        if (c->next != NULL)
            c->next->link = &c->next;
        s->cancelled = c;
        promise_cancel(weft__container(c, struct connection, base)->self);
    }
    s->busy--;
}

/* ---- signals ---- */

static int signalled(union weft_value signal, void *ctx);

/* 0, or why it can't wait for them. */
static int watch_signals(struct serving *s)
{
    int error = 0;

    promise_unref(s->watch);
    s->watch = NULL;
    if (s->base.signals == NULL)
        return 0;
    s->watch = promise_signals_wait(s->base.signals, NULL, WEFT_FOREVER);
    (void)promise_poll(s->watch, NULL, &error);
    return error < 0 ? error : promise_on_success(s->watch, signalled, s);
}

/* The first signal stops the server, the second one its connections. */
static int signalled(union weft_value signal, void *ctx)
{
    struct serving *s = ctx;

    (void)signal;
    s->busy++;
    if (s->base.server->signal_count++ == 0) {
        (void)watch_signals(s); /* without memory: then only time ends it */
        ring__server_stop(&s->base);
    } else {
        cancel_connections(s);
    }
    s->busy--;
    go_on(s);
    return 0;
}

/* ---- all of it ---- */

static void end(struct serving *s)
{
    struct promise *watch = s->watch;
    int cancelled = (int)s->base.server->cancelled;

    s->over = true;
    weft__guest_remove(&s->guest);
    weft__timer_stop(s->base.rt, &s->timer);
    promise_cancel(watch);
    promise_unref(watch);
    ring__server_finish(&s->base);
    promise__settle(promise__of_extra(s), s->error, weft_num(cancelled));
}

static void stop_for(struct serving *s, int error)
{
    if (s->error == 0)
        s->error = error;
    ring__server_stop(&s->base);
}

/* Takes connections as long as there are any, and room for them. */
static void accept_some(struct serving *s)
{
    int rc;

    while (!s->base.server->stopping && !s->reading && ring__server_has_room(&s->base)) {
        rc = ring__stream_take(s->base.stream, NULL);
        if (rc >= 0) {
            begin(&s->base, rc);
        } else if (rc == RING__NOTHING) {
            s->reading = true;
            ring__stream_wait(s->base.stream, &s->reader);
        } else {
            stop_for(s, ring__server_listener_error(&s->base, rc));
        }
    }
}

static void go_on(struct serving *s)
{
    if (s->busy > 0 || s->over || !s->begun)
        return;
    s->busy++;
    accept_some(s);
    s->busy--;
    if (s->stopped && s->closed && s->base.server->connections == 0)
        end(s);
}

static void ready(struct ring__reader *reader, struct ring_stream *stream)
{
    struct serving *s = weft__container(reader, struct serving, reader);

    (void)stream;
    s->reading = false;
    if (!ring__ended(s->base.rt)) /* else evict does what there is to be done */
        go_on(s);
}

static void close_all(struct ring__connection *list)
{
    for (; list != NULL; list = list->next)
        if (!weft__container(list, struct connection, base)->closing)
            (void)ring__close_now(list->fd);
}

/* The runtime has ended, and with it all that was in flight: nobody is told any more. */
static void evict(struct weft__guest *guest)
{
    struct serving *s = weft__container(guest, struct serving, guest);

    weft__guest_remove(guest);
    s->over = true;
    close_all(s->base.open);
    close_all(s->cancelled);
    promise_unref(s->watch);
    ring__server_finish(&s->base);
    (void)ring__close_now(s->base.server->listener); /* negative: harmless */
    s->base.server->listener = -1;
}

static void listener_clear(struct ring__closing *closing)
{
    struct serving *s = weft__container(closing, struct serving, closing);

    ring__close_finish(s->base.rt, closing);
    (void)ring__close(s->base.rt, s->listener);
    s->closed = true;
    go_on(s);
}

static void close_listener(struct serving *s)
{
    int rc;

    s->closing.clear = listener_clear;
    s->closing.fd = s->listener = s->base.server->listener;
    s->base.server->listener = -1;
    rc = ring__close_begin(s->base.rt, &s->closing);
    if (rc == 0)
        listener_clear(&s->closing);
    else if (rc < 0)
        s->closed = true;
}

static void stopped(struct ring__server *base)
{
    struct serving *s = (struct serving *)base;

    s->busy++;
    s->stopped = true;
    close_listener(s);
    s->busy--;
    if (base->deadline != WEFT_FOREVER && s->error != -ECANCELED && s->begun)
        weft__timer_start(base->rt, &s->timer, base->deadline);
    go_on(s);
}

static void timer_fired(struct weft_timer *timer)
{
    struct serving *s = weft__container(timer, struct serving, timer);

    s->busy++;
    if (s->error == -ECANCELED) {
        s->begun = true;
        ring__server_stop(&s->base);
        cancel_connections(s);
    } else if (!s->begun) {
        s->begun = true;
        if (s->stopped && s->base.deadline != WEFT_FOREVER)
            weft__timer_start(s->base.rt, &s->timer, s->base.deadline);
    } else {
        cancel_connections(s);
    }
    s->busy--;
    go_on(s);
}

/* No user code may run here: it is done in the next pass. */
static void cancel(struct promise *promise)
{
    struct serving *s = promise__extra(promise);

    if (s->over || s->error == -ECANCELED)
        return;
    s->error = -ECANCELED;
    weft__timer_stop(s->base.rt, &s->timer);
    weft__timer_start(s->base.rt, &s->timer, WEFT_NOWAIT);
}

struct promise *promise_serve(struct weft_server *server,
                              struct promise *(*serve)(int fd, void *ctx))
{
    struct weft_runtime *rt = weft__rt;
    struct serving *s;
    struct promise *promise;
    void *extra;
    int rc;

    if (rt == NULL || serve == NULL || !ring__server_fits(server))
        return promise_rejected(-EINVAL);
    promise = promise__create_operation(rt, sizeof *s, cancel, &extra);
    if (extra == NULL)
        return promise;
    s = extra;
    memset(s, 0, sizeof *s);
    s->base.begin = begin;
    s->base.stopped = stopped;
    s->base.where = "promise_serve";
    s->serve = serve;
    s->reader.ready = ready;
    weft_timer_init(&s->timer, timer_fired);
    rc = ring__server_open(&s->base, server);
    if (rc == 0) {
        rc = watch_signals(s);
        if (rc < 0) {
            promise_cancel(s->watch);
            promise_unref(s->watch);
            ring__server_finish(&s->base);
        }
    }
    if (rc < 0) {
        promise_unref(promise_close(server->listener));
        server->listener = -1;
        s->over = true;
        promise__settle(promise, rc, weft_num(0));
        return promise;
    }
    weft__guest_add(rt, &s->guest, evict);
    weft__timer_start(rt, &s->timer, WEFT_NOWAIT);
    return promise;
}
