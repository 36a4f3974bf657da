/* server.h: what both styles' servers have in common: the stream of connections, their list, and how
 * stopping begins.
 *
 * A server is open from ring__server_open to ring__server_finish; all connections have been removed
 * by then. ring__server_stop is the only way from serving to stopping, whoever causes it.
 */
#ifndef RING_SERVER_H
#define RING_SERVER_H

#include <weft/ring_stream.h>
#include <weft/server.h>
#include <weft/signals.h>

#include "runtime_internal.h"

/* The beginning of a style's own struct, which it allocates and frees. */
struct ring__connection {
    struct ring__connection *next, **link;
    int fd;
};

struct ring__server {
    struct weft_server *server;
    struct weft_runtime *rt;
    struct ring__connection *open;
    struct ring_stream *stream; /* NULL: stopping */
    struct weft_signals *signals;
    const char *where;
    weft_time deadline; /* stopping: when the connections' time is up */
    weft_time quiet;    /* until then the lack of memory is not told again */
    size_t default_bound;

    /* Begins to serve a connection. */
    void (*begin)(struct ring__server *s, int fd);
    /* It has begun to stop: the listener is to be closed, and who waits for room is to look. (Who waits
     * for the stream finds -ECANCELED anyway.) */
    void (*stopped)(struct ring__server *s);
};

/* Whether it can be opened at all: else there must not be done anything to it. */
bool ring__server_fits(const struct weft_server *server);

/* 0, and the stream has begun; else there is nothing to finish but the listener to be closed. begin and
 * stopped are set. */
int ring__server_open(struct ring__server *s, struct weft_server *server);
void ring__server_finish(struct ring__server *s);

/* In and out of the list and the count. */
void ring__server_add(struct ring__server *s, struct ring__connection *c, int fd);
void ring__server_remove(struct ring__server *s, struct ring__connection *c);

/* Counts, and tells of, what serve returned. */
void ring__server_failed(struct ring__server *s, int fd, int error);

void ring__server_stop(struct ring__server *s);

/* To be called by whoever cancels the connections, before. There may be more than one reason to; only
 * the first finds all of them, a later one those that take their time to end. */
static inline void ring__server_cancels(struct ring__server *s)
{
    if (s->server->cancelled == 0)
        s->server->cancelled = s->server->connections;
}

/* What the listener has said when waiting for a connection ended with `error`: 0, if it was the one who
 * waited that was cancelled. */
int ring__server_listener_error(struct ring__server *s, int error);

static inline size_t ring__server_bound(const struct ring__server *s)
{
    return s->server->max_connections != 0 ? s->server->max_connections : s->default_bound;
}

static inline bool ring__server_has_room(const struct ring__server *s)
{
    return s->server->connections < ring__server_bound(s);
}

static inline const char *ring__server_name(const struct ring__server *s)
{
    return s->server->name != NULL ? s->server->name : "connection";
}

#endif
