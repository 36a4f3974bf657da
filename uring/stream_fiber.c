/* stream_fiber.c: the next item of a stream, for fibers. The item is taken at the moment it is there:
 * the stream may be gone when the fiber runs. */
#include <weft/io.h>

#include "fiber_internal.h"
#include "stream_internal.h"
#include "timer.h"

struct next {
    struct ring__reader reader;
    struct fiber_wait wait;
    struct weft_timer deadline;
    struct weft_runtime *rt;
    struct fiber *fiber;
    struct ring_stream *stream;
    struct ring_item *item;
    int res;
};

static void next_end(struct next *n, int res)
{
    n->res = res;
    n->wait.cancel = NULL;
    weft__timer_stop(n->rt, &n->deadline);
    fiber__wake(n->rt, n->fiber);
}

static void next_ready(struct ring__reader *reader, struct ring_stream *stream)
{
    struct next *n = weft__container(reader, struct next, reader);

    next_end(n, stream != NULL ? ring__stream_take(stream, n->item) : -ECANCELED);
}

static void next_cancel(struct fiber_wait *wait)
{
    struct next *n = weft__container(wait, struct next, wait);

    ring__stream_leave(n->stream);
    next_end(n, n->fiber->cancelled);
}

static void next_expire(struct weft_timer *timer)
{
    struct next *n = weft__container(timer, struct next, deadline);

    ring__stream_leave(n->stream);
    next_end(n, -ETIMEDOUT);
}

int fiber_stream_next(struct ring_stream *stream, struct ring_item *item, weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    struct fiber *self = fiber__self(rt);
    struct next n;
    int rc;

    if (self == NULL)
        return fiber__cannot_wait(rt);
    if (self->cancelled)
        return self->cancelled;
    rc = ring__stream_check(stream, item);
    if (rc == 0)
        rc = ring__stream_take(stream, item);
    if (rc != RING__NOTHING)
        return rc;
    n.reader.ready = next_ready;
    n.wait = (struct fiber_wait){
        .cancel = next_cancel, .what = "stream", .detail = ring__stream_fd(stream)};
    n.rt = rt;
    n.fiber = self;
    n.stream = stream;
    n.item = item;
    weft_timer_init(&n.deadline, next_expire);
    ring__stream_wait(stream, &n.reader);
    if (deadline != WEFT_FOREVER) /* a past one: what the engine's next turn brings is taken yet */
        weft__timer_start(rt, &n.deadline, deadline);
    fiber__park(rt, self, &n.wait);
    return n.res;
}
