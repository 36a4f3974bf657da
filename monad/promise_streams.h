/* promise_streams.h: a stream and its source, for stream.c; what else is built of streams uses
 * the public face and promise__values. */
#ifndef PROMISE_STREAM_INTERNAL_H
#define PROMISE_STREAM_INTERNAL_H

#include "promise_wait.h"

#include <weft/promise_stream.h>

enum source_kind {
    SOURCE_PUSH,
    SOURCE_BOUNDED, /* one stream only */
    SOURCE_EVENT,   /* pushed into by the library */
    SOURCE_FROM,    /* these are called */
    SOURCE_DIRECT
};

struct push_wait;

struct source {
    struct promise *self; /* held by the streams, and by a call that goes on */
    struct promise_stream *streams;
    enum source_kind kind;
    bool closed;
    bool pulling; /* a call is being made, or goes on */
    bool tests;   /* there has been a get_while: serving may run user code */
    union {
        promise_thunk_fn *from;
        promise_stream_next_fn *direct;
    } fn;
    void *ctx;
    void (*release)(void *ctx);
    void (*destroy)(void *ptr);
    struct promise *awaited;       /* the call's */
    struct weft_waiter waiter;     /* in its list */
    struct weft__storage *storage; /* in force when it was made */
    struct promise *closing;       /* promise_stream_closed's; NULL: nobody has asked */
    size_t size;
    struct push_wait *pusher;
};

struct promise_stream {
    struct promise *self;
    struct source *source;
    struct promise_stream *prev, *next; /* of the same source */
    struct promise **ring;              /* settled promises; room is a power of two */
    size_t first, count, room;
    struct promise__waits readers;
    bool serving, again;
};

/* A block for `count` values, none in it yet. NULL: no memory. */
struct promise_values *promise__values(size_t count);

/* A stream that promise__stream_deliver pushes into. release(ctx) when it is gone, and at once
 * if it can't be made. */
struct promise_stream *promise__stream_of_pushes(void *ctx, void (*release)(void *ctx),
                                                 struct source **source);

/* The next element, a settled promise, is consumed. On the base stack; without memory it is
 * reported. */
void promise__stream_deliver(struct promise__state *st, struct source *source,
                             struct promise *element);

#endif
