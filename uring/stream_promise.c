/* stream_promise.c: the next item of a stream, as a promise. */
#include <weft/io.h>

#include "promise_internal.h"
#include "stream_internal.h"
#include "timer.h"

struct next {
    struct ring__reader reader;
    struct weft_timer deadline;
    struct weft_runtime *rt;
    struct ring_stream *stream;
    struct ring_item *item;
};

static void next_end(struct next *n, int res)
{
    struct promise *p = promise__of_extra(n);

    weft__timer_stop(n->rt, &n->deadline);
    promise__settle(p, res < 0 ? res : 0, weft_num(res));
}

static void next_ready(struct ring__reader *reader, struct ring_stream *stream)
{
    struct next *n = weft__container(reader, struct next, reader);
    bool unwanted =
        stream == NULL || ring__ended(n->rt) || promise__is_abandoned(promise__of_extra(n));

    next_end(n, unwanted ? -ECANCELED : ring__stream_take(stream, n->item));
}

static void next_cancel(struct promise *p)
{
    struct next *n = promise__extra(p);

    ring__stream_leave(n->stream);
    next_end(n, -ECANCELED);
}

static void next_expire(struct weft_timer *timer)
{
    struct next *n = weft__container(timer, struct next, deadline);

    ring__stream_leave(n->stream);
    next_end(n, -ETIMEDOUT);
}

struct promise *promise_ring_stream_next(struct ring_stream *stream, struct ring_item *item,
                                         weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    struct promise *p;
    struct next *n;
    void *extra;
    int rc;

    if (rt == NULL)
        return promise_rejected(-EINVAL);
    rc = ring__stream_check(stream, item);
    if (rc < 0)
        return promise_rejected(rc);
    p = promise__create_operation(rt, sizeof *n, next_cancel, &extra);
    if (extra == NULL)
        return p;
    n = extra;
    n->reader.ready = next_ready;
    n->rt = rt;
    n->stream = stream;
    n->item = item;
    weft_timer_init(&n->deadline, next_expire);
    rc = ring__stream_take(stream, item);
    if (rc != RING__NOTHING) {
        next_end(n, rc);
        return p;
    }
    ring__stream_wait(stream, &n->reader);
    if (deadline != WEFT_FOREVER)
        weft__timer_start(rt, &n->deadline, deadline);
    return p;
}
