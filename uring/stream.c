/* stream.c: streams: one request, many results.
 *
 * Where the kernel has multishot operations a stream arms one of them, and arms it again when the
 * kernel ends it for reasons of its own. Elsewhere it repeats: accept; or a poll, and then a receive
 * that doesn't wait. In both cases:
 *   - A stream that holds as many items as it may is not armed (a multishot operation is cancelled):
 *     it goes on when the last of them has been taken.
 *   - A stream that finds no buffer stands in one of the pool's lines, in which each buffer given back
 *     arms the first; streams that somebody reads go before the others. As long as anybody stands
 *     there, others that hold an item aren't armed either, and then stand in line themselves; so one
 *     busy connection can't keep all buffers going round.
 *   - Without a descriptor to accept with, a stream is armed again when the runtime has closed one,
 *     or after a pause that doubles from try to try.
 * No path arms again at once what has just failed for want of something.
 */
#include "stream_internal.h"
#include "timer.h"

#include <stdlib.h>
#include <unistd.h>

#define MOST_ITEMS 32          /* that a stream keeps; a multishot operation may bring some more */
#define FIRST_WAIT WEFT_MS(10) /* without descriptors */
#define LAST_WAIT  WEFT_SEC(1)
#define QUIET      WEFT_SEC(60) /* between two reports of it */

enum kind { ACCEPT, RECV, POLL };

struct ring_stream {
    struct ring_op op;
    struct weft_runtime *rt;
    struct ring__reader *reader;
    enum kind kind;
    int fd;
    uint32_t how;   /* accept's flags, poll's events */
    int end;        /* what ended it, 0 or negative */
    bool ended;     /* no more results will come */
    bool closed;    /* by its owner: freed when nothing is in flight */
    bool armed;     /* the operation is in flight */
    bool stopping;  /* ... and has been asked to end, because nobody takes what it brings */
    bool repeating; /* no multishot operation here */
    bool readable;  /* repeating: the poll is over, a receive is next */
    unsigned count; /* items kept */
    unsigned most;  /* items it may keep */

    struct ring_stream *resting, **resting_link; /* the engine's list; NULL: not on it */

    unsigned events; /* poll */

    /* accept */
    int *fds;
    unsigned first_fd, fds_room;
    int64_t pause;
    weft_time quiet; /* until then the lack of descriptors is not told again */
    struct weft_timer timer;
    struct ring_stream *starved, **starved_link; /* the engine's list; NULL: not on it */

    /* recv */
    struct ring_buffers *buffers;
    uint32_t first, last;
    struct ring__line *line; /* of the pool's that it stands in; NULL: none */
    struct ring_stream *next_in_line, **line_link;
    bool hungry;   /* in line, and there are bytes in its socket */
    bool promised; /* armed, and one of the pool's `promised` */
};

static struct ring__engine *engine_of(const struct ring_stream *s)
{
    return (struct ring__engine *)(void *)s->rt->engine;
}

/* ---- with nothing in flight: who closes the descriptor must find them all the same ---- */

static void rest(struct ring_stream *s)
{
    struct ring_stream **head = &engine_of(s)->resting[(unsigned)s->fd % RING__RESTING];

    s->resting = *head;
    s->resting_link = head;
    if (*head != NULL)
        (*head)->resting_link = &s->resting;
    *head = s;
    engine_of(s)->resting_count++;
}

static void rest_no_more(struct ring_stream *s)
{
    if (s->resting_link == NULL)
        return;
    *s->resting_link = s->resting;
    if (s->resting != NULL)
        s->resting->resting_link = s->resting_link;
    s->resting_link = NULL;
    engine_of(s)->resting_count--;
}

static void end(struct ring_stream *s, int error)
{
    rest_no_more(s);
    if (!s->ended) {
        s->ended = true;
        s->end = error;
    }
}

/* The last thing a function does: the reader may close the stream. */
static void notify(struct ring_stream *s)
{
    struct ring__reader *reader = s->reader;

    if (reader != NULL && (s->count > 0 || s->ended)) {
        s->reader = NULL;
        reader->ready(reader, s);
    }
}

/* ---- arming ---- */

static void prepare(struct ring_stream *s)
{
    int rc = 0;

    switch (s->kind) {
    case ACCEPT:
        rc = s->repeating ? ring__prepare_accept(&s->op, s->fd, NULL, NULL, (int)s->how)
                          : ring__prepare_accept_multi(&s->op, s->fd, (int)s->how);
        break;
    case RECV:
        if (!s->repeating)
            rc = ring__prepare_recv_multi(&s->op, s->fd, s->buffers->group);
        else if (s->readable)
            rc = ring__prepare_recv_chosen(&s->op, s->fd, s->buffers->group);
        else
            rc = ring__prepare_poll(&s->op, s->fd, POLLIN);
        break;
    case POLL:
        rc = s->repeating ? ring__prepare_poll(&s->op, s->fd, (short)s->how)
                          : ring__prepare_poll_multi(&s->op, s->fd, (short)s->how);
        break;
    }
    (void)rc; /* there are no pointers that could be wrong */
}

static void arm(struct ring_stream *s)
{
    int rc;

    if (s->armed || s->ended || s->line != NULL || s->starved_link != NULL || s->count >= s->most)
        return;
    prepare(s);
    rc = ring__submit(s->rt, &s->op);
    if (rc == -EOPNOTSUPP && !s->repeating) {
        s->repeating = true;
        prepare(s);
        rc = ring__submit(s->rt, &s->op);
    }
    if (rc < 0) {
        end(s, rc);
    } else {
        s->armed = true;
        rest_no_more(s);
    }
}

/* Enough for now: the operation is to bring no more. */
static void stop(struct ring_stream *s)
{
    if (!s->stopping) {
        s->stopping = true;
        ring__cancel(s->rt, &s->op);
    }
}

/* ---- without buffers ---- */

static void stand_in_line(struct ring_stream *s, struct ring__line *line, bool hungry)
{
    s->line = line;
    s->hungry = hungry;
    s->next_in_line = NULL;
    s->line_link = line->tail;
    *line->tail = s;
    line->tail = &s->next_in_line;
}

static void leave_line(struct ring_stream *s)
{
    if (s->line == NULL)
        return;
    *s->line_link = s->next_in_line;
    if (s->next_in_line != NULL)
        s->next_in_line->line_link = s->line_link;
    else
        s->line->tail = s->line_link;
    s->line = NULL;
}

static void keep_promise(struct ring_stream *s)
{
    if (s->promised) {
        s->promised = false;
        s->buffers->promised--;
    }
}

void ring__buffers_serve(struct ring_buffers *buffers)
{
    buffers->refs++;
    for (;;) {
        unsigned taken = buffers->used + buffers->promised;
        struct ring_stream *s = NULL;

        if (taken < buffers->count)
            s = buffers->wanted.first;
        if (s == NULL && taken < buffers->count - buffers->count / 4)
            s = buffers->unread.first;
        if (s == NULL)
            break;
        leave_line(s);
        arm(s);
        if (s->armed && s->hungry) {
            s->promised = true;
            buffers->promised++;
        }
        notify(s);
    }
    ring__buffers_release(buffers);
}

/* Others wait for buffers: who has one lets them go first. */
static bool gives_way(const struct ring_stream *s)
{
    return s->kind == RECV &&
           (s->buffers->wanted.first != NULL || s->buffers->unread.first != NULL);
}

/* ---- without descriptors ---- */

static void leave_starved(struct ring_stream *s)
{
    if (s->starved_link == NULL)
        return;
    *s->starved_link = s->starved;
    if (s->starved != NULL)
        s->starved->starved_link = s->starved_link;
    s->starved_link = NULL;
    weft__timer_stop(s->rt, &s->timer);
}

static void retry(struct ring_stream *s)
{
    leave_starved(s);
    arm(s);
    notify(s);
}

static void pause_over(struct weft_timer *timer)
{
    retry(weft__container(timer, struct ring_stream, timer));
}

static void starve(struct ring_stream *s, int error)
{
    struct ring_stream **head = &engine_of(s)->starved;

    if (weft_now() >= s->quiet) {
        weft__report(s->rt, "accept on descriptor %d: %s; new connections wait until one is closed",
                     s->fd, strerror(-error));
        s->quiet = weft_after(QUIET);
    }
    s->pause = s->pause == 0 ? FIRST_WAIT : s->pause * 2 < LAST_WAIT ? s->pause * 2 : LAST_WAIT;
    s->starved = *head;
    s->starved_link = head;
    if (*head != NULL)
        (*head)->starved_link = &s->starved;
    *head = s;
    weft__timer_start(s->rt, &s->timer, weft_after(s->pause));
}

/* ---- results ---- */

static void keep_fd(struct ring_stream *s, int fd)
{
    s->pause = 0;
    if (s->count == s->fds_room) {
        unsigned room = s->fds_room == 0 ? 8 : s->fds_room * 2;
        int *fds = malloc(room * sizeof *fds);

        if (fds == NULL) {
            ring__close_now(fd); /* the client sees it, and can come again */
            return;
        }
        for (unsigned i = 0; i < s->count; i++)
            fds[i] = s->fds[(s->first_fd + i) % s->fds_room];
        free(s->fds);
        s->fds = fds;
        s->first_fd = 0;
        s->fds_room = room;
    }
    s->fds[(s->first_fd + s->count) % s->fds_room] = fd;
    s->count++;
}

static void keep_buffer(struct ring_stream *s, uint32_t index, uint32_t len)
{
    struct ring__record *records = s->buffers->records;

    records[index].len = len;
    records[index].next = RING__NO_BUFFER;
    if (s->count == 0)
        s->first = index;
    else
        records[s->last].next = index;
    s->last = index;
    s->count++;
}

/* A connection that failed before it was accepted says nothing about the next one: the errors that
 * accept(2) tells to treat so. */
static bool is_passing(int error)
{
    switch (error) {
    case -ECONNABORTED:
    case -EHOSTDOWN:
    case -EHOSTUNREACH:
    case -EINTR:
    case -ENETDOWN:
    case -ENETUNREACH:
    case -ENONET:
    case -ENOPROTOOPT:
    case -EPERM:
    case -EPROTO:
        return true;
    default:
        return false;
    }
}

static bool is_want(int error)
{
    return error == -EMFILE || error == -ENFILE || error == -ENOMEM || error == -ENOBUFS;
}

/* A receive that a poll has announced, into a buffer of ours. */
static int receive(struct ring_stream *s)
{
    uint32_t index = ring__buffer_take(s->buffers);
    ssize_t n;

    if (index == RING__NO_BUFFER)
        return -ENOBUFS;
    do
        n = recv(s->fd, ring__buffer(s->buffers, index), s->buffers->size, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        keep_buffer(s, index, (uint32_t)n);
        return (int)n;
    }
    n = n < 0 ? -errno : 0;
    ring__buffer_give(s->buffers, index);
    return (int)n;
}

static int received(struct ring_stream *s, int res, unsigned flags)
{
    bool was_poll = s->repeating && !s->readable;

    keep_promise(s);
    s->readable = false;
    if (was_poll && res > 0) {
        if (s->buffers->shared) { /* then the kernel chooses one */
            s->readable = true;
            return res;
        }
        res = receive(s);
    } else if (flags & RING__BUFFER) {
        s->buffers->used++;
        if (res > 0)
            keep_buffer(s, flags >> RING__BUFFER_SHIFT, (uint32_t)res);
        else
            ring__buffer_give(s->buffers, flags >> RING__BUFFER_SHIFT);
    }
    if (res <= 0 && res != -ENOBUFS && res != -EAGAIN && res != -EINTR)
        end(s, res);
    return res;
}

/* What the operation brought, and what it comes to: res, or what the receive after a poll said. */
static int result(struct ring_stream *s, int res, unsigned flags)
{
    if (res == -ECANCELED && s->stopping) {
        if (s->kind == RECV)
            keep_promise(s);
        return res;
    }
    /* What the kernel has no multishot operation for, or not for a descriptor with O_NONBLOCK. */
    if (!s->repeating && !(flags & RING__MORE) &&
        (res == -EINVAL || res == -EAGAIN || res == -EOPNOTSUPP)) {
        if (s->kind == RECV)
            keep_promise(s);
        s->repeating = true;
        return 0;
    }
    switch (s->kind) {
    case ACCEPT:
        if (res >= 0)
            keep_fd(s, res);
        else if (!is_passing(res) && !is_want(res))
            end(s, res);
        return res;
    case RECV:
        return received(s, res, flags);
    default:
        if (res < 0) {
            end(s, res);
        } else {
            s->events |= (unsigned)res;
            s->count = 1;
        }
        return res;
    }
}

/* Gives back what nobody has taken, and the memory unless the kernel is still at work. */
static void give_up(struct ring_stream *s);

/* A stream that isn't armed goes on, unless it holds items and had better wait. */
static void go_on(struct ring_stream *s)
{
    if (!gives_way(s))
        arm(s);
    else if (s->count == 0 && !s->armed && !s->ended && s->line == NULL)
        stand_in_line(s, &s->buffers->unread, false);
}

static void done(struct ring_op *op, int res, unsigned flags)
{
    struct ring_stream *s = weft__container(op, struct ring_stream, op);
    struct ring_buffers *buffers = s->buffers;

    if (buffers != NULL)
        buffers->refs++;
    res = result(s, res, flags);
    if (flags & RING__MORE) {
        if (s->kind != POLL && (s->count >= s->most || (s->count > 0 && gives_way(s))))
            stop(s);
    } else {
        s->armed = s->stopping = false;
        if (s->ended)
            ;
        else if (s->kind == ACCEPT && is_want(res))
            starve(s, res);
        else if (s->kind == RECV && res == -ENOBUFS)
            stand_in_line(s, s->reader != NULL ? &buffers->wanted : &buffers->unread, true);
        else
            go_on(s);
        if (!s->armed && !s->ended)
            rest(s);
    }
    if (s->closed)
        give_up(s);
    else
        notify(s);
    if (buffers != NULL) {
        ring__buffers_serve(buffers);
        ring__buffers_release(buffers);
    }
}

/* ---- taking ---- */

static int take_fd(struct ring_stream *s)
{
    int fd = s->fds[s->first_fd];

    s->first_fd = (s->first_fd + 1) % s->fds_room;
    s->count--;
    return fd;
}

static uint32_t take_buffer(struct ring_stream *s)
{
    uint32_t index = s->first;

    s->first = s->buffers->records[index].next;
    s->count--;
    return index;
}

int ring__stream_take(struct ring_stream *s, struct ring_item *item)
{
    int res;

    if (s->count == 0 && s->line != NULL && s->line == &s->buffers->unread) { /* not any more */
        leave_line(s);
        stand_in_line(s, &s->buffers->wanted, s->hungry);
        ring__buffers_serve(s->buffers);
    }
    if (s->count == 0)
        return s->ended ? s->end : RING__NOTHING;
    switch (s->kind) {
    case ACCEPT:
        res = take_fd(s);
        break;
    case RECV:
        item->index = take_buffer(s);
        item->buffers = s->buffers;
        item->data = ring__buffer(s->buffers, item->index);
        item->len = s->buffers->records[item->index].len;
        s->buffers->refs++;
        res = (int)item->len;
        break;
    default:
        res = (int)s->events;
        s->events = 0;
        s->count = 0;
        break;
    }
    if (s->count == 0)
        go_on(s);
    return res;
}

int ring__stream_check(const struct ring_stream *stream, const struct ring_item *item)
{
    if (stream == NULL || (stream->kind == RECV && item == NULL))
        return -EFAULT;
    return stream->reader != NULL ? -EBUSY : 0;
}

void ring__stream_wait(struct ring_stream *stream, struct ring__reader *reader)
{
    stream->reader = reader;
}

void ring__stream_leave(struct ring_stream *stream)
{
    stream->reader = NULL;
}

int ring__stream_fd(const struct ring_stream *stream)
{
    return stream->fd;
}

int ring_stream_try(struct ring_stream *stream, struct ring_item *item)
{
    int rc = ring__stream_check(stream, item);

    if (rc == 0)
        rc = ring__stream_take(stream, item);
    return rc == RING__NOTHING ? -EAGAIN : rc;
}

/* ---- life ---- */

static void give_up(struct ring_stream *s)
{
    while (s->count > 0) {
        if (s->kind == ACCEPT)
            ring__close_now(take_fd(s));
        else if (s->kind == RECV)
            ring__buffer_give(s->buffers, take_buffer(s));
        else
            s->count = 0;
    }
    if (s->armed)
        return;
    if (s->buffers != NULL) {
        keep_promise(s);
        ring__buffers_serve(s->buffers);
        ring__buffers_release(s->buffers);
    }
    free(s->fds);
    free(s);
}

static unsigned most_items(enum kind kind, const struct ring_buffers *buffers)
{
    if (kind == POLL)
        return 1;
    if (kind == ACCEPT || buffers->count / 4 > MOST_ITEMS)
        return MOST_ITEMS;
    return buffers->count >= 4 ? buffers->count / 4 : 1;
}

static int create(struct ring_stream **out, enum kind kind, int fd, struct ring_buffers *buffers,
                  uint32_t how)
{
    struct weft_runtime *rt = weft__rt;
    struct ring_stream *s;

    if (rt == NULL || out == NULL || (kind == RECV && (buffers == NULL || buffers->rt != rt)))
        return -EINVAL;
    if (rt->engine->class->submit == NULL)
        return -ENOSYS;
    if (fd < 0)
        return -EBADF;
    s = calloc(1, sizeof *s);
    if (s == NULL)
        return -ENOMEM;
    s->op.done = done;
    s->rt = rt;
    s->kind = kind;
    s->fd = fd;
    s->how = how & ~(uint32_t)RING__ONE_BY_ONE;
    s->buffers = buffers;
    s->repeating = how & RING__ONE_BY_ONE || (kind == RECV && !buffers->shared);
    s->most = how & RING__ONE_BY_ONE ? 1 : most_items(kind, buffers);
    weft_timer_init(&s->timer, pause_over);
    arm(s);
    if (s->ended) { /* it could not even begin */
        int error = s->end;

        free(s);
        return error;
    }
    if (buffers != NULL)
        buffers->refs++;
    *out = s;
    return 0;
}

int ring_stream_accept(struct ring_stream **stream, int fd, int flags)
{
    return create(stream, ACCEPT, fd, NULL, (uint32_t)flags);
}

int ring_stream_recv(struct ring_stream **stream, int fd, struct ring_buffers *buffers)
{
    return create(stream, RECV, fd, buffers, 0);
}

int ring_stream_poll(struct ring_stream **stream, int fd, short events)
{
    return create(stream, POLL, fd, NULL, (uint16_t)events);
}

static struct ring_stream *resting_on(const struct ring__engine *engine, int fd)
{
    struct ring_stream *s = engine->resting[(unsigned)fd % RING__RESTING];

    while (s != NULL && s->fd != fd)
        s = s->resting;
    return s;
}

void ring__closed_slow(struct ring__engine *engine, int fd)
{
    struct ring_stream *s;

    while ((s = resting_on(engine, fd)) != NULL) {
        struct ring_buffers *buffers = s->buffers;

        end(s, -ECANCELED);
        leave_starved(s);
        if (buffers != NULL) {
            buffers->refs++;
            leave_line(s);
        }
        notify(s);
        if (buffers != NULL) {
            ring__buffers_serve(buffers);
            ring__buffers_release(buffers);
        }
    }
    while (engine->starved != NULL)
        retry(engine->starved);
}

void ring_stream_close(struct ring_stream *stream)
{
    struct ring__reader *reader;

    if (stream == NULL || stream->closed)
        return;
    reader = stream->reader;
    stream->reader = NULL;
    stream->closed = true;
    end(stream, -ECANCELED);
    leave_starved(stream);
    if (stream->kind == RECV)
        leave_line(stream);
    if (stream->armed)
        stop(stream);
    give_up(stream);
    if (reader != NULL)
        reader->ready(reader, NULL);
}
