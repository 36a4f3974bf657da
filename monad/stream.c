/* stream.c: the core of streams: sources, positions, readers.
 *
 * A stream is a position of its own in front of a source that it shares with its clones. The
 * elements between the two are a ring of settled promises. Readers that can't be served stand in
 * the stream's queue:
 *   - the queue is empty, or its first reader wants more than there is (closed: than there will
 *     be);
 *   - a reader that takes elements holds up all behind it; one that only looks holds up nobody;
 *   - elements stay in the ring until the reader in front can have all it wants, so that a canceled
 *     one has taken nothing. What arrives goes to every stream's ring, and then `serve` gives the
 *     readers what is theirs.
 *
 * A source that is a function is called while some queue isn't empty, one call at a time. The
 * user's code that runs in between (that function, a test of get_while, a destructor) may do
 * anything to the stream: whoever calls it holds what it needs, and looks again afterwards.
 */
#include "promise_streams.h"

#include <stdlib.h>

/* ---- the ring ---- */

static struct promise **slot(struct promise_stream *stream, size_t index)
{
    return &stream->ring[(stream->first + index) & (stream->room - 1)];
}

/* Room for one more element. */
static int reserve(struct promise_stream *stream)
{
    size_t room = stream->room == 0 ? 4 : stream->room * 2;
    struct promise **ring;

    if (stream->count < stream->room)
        return 0;
    ring = malloc(room * sizeof(struct promise *));
    if (ring == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < stream->count; i++)
        ring[i] = *slot(stream, i);
    free(stream->ring);
    stream->ring = ring;
    stream->first = 0;
    stream->room = room;
    return 0;
}

static void append(struct promise_stream *stream, struct promise *element)
{
    *slot(stream, stream->count++) = element;
}

static struct promise *take_first(struct promise_stream *stream)
{
    struct promise *element = *slot(stream, 0);

    stream->first = (stream->first + 1) & (stream->room - 1);
    stream->count--;
    return element;
}

static void drop(struct promise_stream *stream, size_t count)
{
    while (count-- > 0 && stream->count > 0)
        promise__object_release(take_first(stream));
}

/* The first `count` elements, taken or only looked at. NULL: no memory. */
static struct promise_values *collect(struct promise_stream *stream, size_t count, bool take)
{
    struct promise_values *values = promise__values(count);

    if (values == NULL)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        struct promise *element = take ? take_first(stream) : *slot(stream, i);

        if (!take)
            promise__retain(element);
        values->value[i] = promise__element_value(element);
        values->source[i] = element;
    }
    values->count = count;
    return values;
}

struct promise_values *promise__values(size_t count)
{
    struct promise_values *values;

    if (count > SIZE_MAX / 32)
        return NULL;
    values = malloc(sizeof *values + count * (sizeof(union weft_value) + sizeof(struct promise *)));
    if (values == NULL)
        return NULL;
    values->count = 0;
    values->value = (union weft_value *)(void *)(values + 1);
    values->source = (struct promise **)(void *)(values->value + count);
    return values;
}

/* ---- a push that waits ---- */

struct push_wait {
    struct promise__wait wait;
    struct source *source;
    struct promise *element;
};

/* The waiting push goes in, if there is room or somebody waits for more. It has reserved its
 * place. */
static bool admit(struct promise_stream *stream)
{
    struct push_wait *pusher = stream->source->pusher;

    if (pusher == NULL ||
        (stream->count >= stream->source->size && promise__waits_empty(&stream->readers)))
        return false;
    stream->source->pusher = NULL;
    append(stream, pusher->element);
    promise__wake(&pusher->wait, 0, weft_num(0), NULL);
    return true;
}

/* The value is its caller's again. */
static void withdraw(struct push_wait *pusher)
{
    pusher->source->pusher = NULL;
    if (!promise__immediate(pusher->element))
        pusher->element->destroy = NULL;
    promise__object_release(pusher->element);
}

static void cancel_push(struct promise *p)
{
    withdraw(promise__extra(p));
}

/* ---- readers ---- */

enum mode { GET, PEEK, IS_EMPTY, NGET, NPEEK, GET_WHILE, JUNK };

struct reader {
    struct promise__wait wait;
    struct promise_stream *stream;
    enum mode mode;
    size_t wanted;
    size_t tested; /* get_while: how many have passed */
    bool stopped;  /* get_while: the next one hasn't */
    promise_stream_test_fn *test;
    void *ctx;
    struct weft_waiter left; /* after a cancel */
};

static bool takes(enum mode mode)
{
    return mode == GET || mode >= NGET ? mode != NPEEK : false;
}

/* get_while: tests what is there. The reader is the first that takes, and is held. */
static void run_tests(struct promise_stream *stream, struct reader *reader)
{
    while (!reader->stopped && reader->tested < stream->count &&
           reader->wait.waiter.link.next != NULL) {
        struct promise *element = *slot(stream, reader->tested);
        bool passes;

        promise__retain(element);
        passes = reader->test(promise__element_value(element), reader->ctx);
        promise__object_release(element);
        if (passes)
            reader->tested++;
        else
            reader->stopped = true;
    }
}

static bool ready(const struct promise_stream *stream, const struct reader *reader)
{
    return stream->source->closed ||
           (reader->mode == GET_WHILE ? reader->stopped : stream->count >= reader->wanted);
}

static void finish_with_values(struct promise_stream *stream, struct reader *reader, size_t count)
{
    struct promise_values *values = collect(stream, count, takes(reader->mode));

    if (values == NULL)
        promise__wake(&reader->wait, -ENOMEM, weft_num(0), NULL);
    else
        promise__wake(&reader->wait, 0, weft_ptr(values), promise_values_destroy);
}

/* Gives a reader that is ready what it wants. True if the user's code has run. */
static bool finish(struct promise__state *st, struct promise_stream *stream, struct reader *reader)
{
    size_t count = stream->count < reader->wanted ? stream->count : reader->wanted;

    switch (reader->mode) {
    case GET:
    case PEEK:
        if (count == 0) {
            promise__wake(&reader->wait, -ENODATA, weft_num(0), NULL);
        } else if (reader->mode == GET) {
            promise__wake_like(st, &reader->wait, take_first(stream));
        } else {
            promise__retain(*slot(stream, 0));
            promise__wake_like(st, &reader->wait, *slot(stream, 0));
        }
        return false;
    case IS_EMPTY:
        promise__wake(&reader->wait, 0, weft_num(count == 0), NULL);
        return false;
    case NGET:
    case NPEEK:
        finish_with_values(stream, reader, count);
        return false;
    case GET_WHILE:
        finish_with_values(stream, reader, reader->tested);
        return false;
    case JUNK:
    default:
        promise__wake(&reader->wait, 0, weft_num(0), NULL);
        drop(stream, count);
        return true;
    }
}

static struct reader *reader_of(struct promise__wait *wait)
{
    return (struct reader *)(void *)wait;
}

/* Runs the first taker's tests, if it has any. True if it had: then everything may be different. */
static bool test(struct promise_stream *stream, struct reader *reader)
{
    struct promise *p;

    if (reader->mode != GET_WHILE || reader->stopped || reader->tested >= stream->count)
        return false;
    p = promise__of_extra(reader);
    promise__retain(p);
    run_tests(stream, reader);
    promise__object_release(p);
    return true;
}

/* Goes through the queue once. True: begin again. */
static bool serve_round(struct promise__state *st, struct promise_stream *stream)
{
    struct promise__wait *wait = promise__waits_first(&stream->readers), *next;

    for (; wait != NULL; wait = next) {
        struct reader *reader = reader_of(wait);

        next = promise__waits_next(&stream->readers, wait);
        if (test(stream, reader))
            return true;
        if (ready(stream, reader)) {
            if (finish(st, stream, reader))
                return true;
        } else if (takes(reader->mode)) {
            return false;
        }
    }
    return false;
}

static void serve(struct promise__state *st, struct promise_stream *stream)
{
    if (stream->serving) {
        stream->again = true;
        return;
    }
    stream->serving = true;
    promise__retain(stream->self);
    do {
        stream->again = false;
    } while (serve_round(st, stream) || admit(stream) || stream->again);
    stream->serving = false;
    promise__release(st, stream->self);
}

/* ---- arrival ---- */

/* Serves all streams of a source. Any of them may go meanwhile. */
static void serve_all(struct promise__state *st, struct source *source)
{
    struct promise_stream *stream = source->streams, *next;

    if (stream != NULL)
        promise__retain(stream->self);
    for (; stream != NULL; stream = next) {
        serve(st, stream);
        next = stream->next;
        if (next != NULL)
            promise__retain(next->self);
        promise__release(st, stream->self);
    }
}

/* An element, a reference, for all streams but `except`. 0, or -ENOMEM and nothing has been
 * done. */
static int deliver(struct promise__state *st, struct source *source, struct promise *element,
                   struct promise_stream *except)
{
    struct promise_stream *stream;

    for (stream = source->streams; stream != NULL; stream = stream->next)
        if (stream != except && reserve(stream) < 0)
            return -ENOMEM;
    for (stream = source->streams; stream != NULL; stream = stream->next)
        if (stream != except) {
            promise__retain(element);
            append(stream, element);
        }
    promise__release(st, element);
    serve_all(st, source);
    return 0;
}

static void source_ended(struct promise__state *st, struct source *source)
{
    struct push_wait *pusher = source->pusher;
    struct promise *closing = source->closing;

    if (source->closed)
        return;
    source->closed = true;
    source->closing = NULL;
    if (pusher != NULL) {
        withdraw(pusher);
        promise__wake(&pusher->wait, -EPIPE, weft_num(0), NULL);
    }
    serve_all(st, source);
    if (closing != NULL)
        promise__settle_later(st, closing, 0, weft_num(0));
}

/* The source has failed: for the first reader of each stream that waits. */
static void source_failed(struct source *source, int err)
{
    for (struct promise_stream *stream = source->streams; stream != NULL; stream = stream->next) {
        struct promise__wait *first = promise__waits_first(&stream->readers);

        if (first != NULL)
            promise__wake(first, err, weft_num(0), NULL);
    }
    /* What the failed reader held up may be there already. */
    serve_all(promise__tls, source);
}

/* What the source function gave, settled, a reference. If it is for `reader`, which hasn't had
 * to wait, that gets it: returned, with a reference. */
static struct promise *arrived(struct promise__state *st, struct source *source, struct promise *p,
                               struct promise_stream *reader)
{
    struct promise *x = promise__handle(st, p);
    union weft_value value;
    int err = promise__outcome(st, x, &value);

    if (err == 0) {
        if (x != p) {
            promise__retain(x);
            promise__release(st, p);
        }
        if (reader != NULL)
            promise__retain(x);
        if (reader != NULL && source->streams == reader && reader->next == NULL)
            promise__release(st, x);
        else if (deliver(st, source, x, reader) < 0) {
            promise__release(st, x);
            source_failed(source, -ENOMEM);
        }
        return reader != NULL ? x : NULL;
    }
    if (reader == NULL)
        promise__release(st, p);
    if (err == -ENODATA)
        source_ended(st, source);
    else
        source_failed(source, err);
    return reader != NULL ? p : NULL;
}

static struct promise *call_source(struct promise__state *st, struct source *source)
{
    struct promise *cell;
    int err;

    if (source->kind == SOURCE_FROM) {
        cell = promise__or_invalid(source->fn.from(source->ctx));
        return PROMISE__VALID(st, cell, "the result of a callback") ? cell : promise__einval;
    }
    cell = promise__cell(st, weft_num(0), NULL);
    if (cell == NULL)
        return promise__enomem;
    err = source->fn.direct(source->ctx, &cell->value);
    if (err >= 0) {
        cell->destroy = source->destroy;
        return cell;
    }
    promise__release(st, cell);
    return promise_rejected(err);
}

static void pull(struct promise__state *st, struct source *source);

static void source_settled(struct weft_waiter *waiter)
{
    struct promise__state *st = promise__tls;
    struct source *source = weft__container(waiter, struct source, waiter);
    struct promise *p = source->awaited;

    promise__set_storage(st, source->storage);
    source->storage = NULL;
    source->awaited = NULL;
    source->pulling = false;
    (void)arrived(st, source, p, NULL);
    pull(st, source);
    promise__release(st, source->self);
}

/* The call just made goes on: source_settled, which holds the source. */
static void await_source(struct promise__state *st, struct source *source, struct promise *p)
{
    source->awaited = p;
    source->waiter.wake = source_settled;
    source->storage = weft__storage_ref(st->rt->strand->storage);
    promise__retain(source->self);
    promise__attach(st, p, &source->waiter);
    promise__under(st, p)->link.flags |= PROMISE__ACTIVE; /* the next call is user code */
    if (source->streams == NULL)                          /* they have gone meanwhile */
        promise_cancel(p);
}

static bool wanted(const struct source *source)
{
    for (const struct promise_stream *s = source->streams; s != NULL; s = s->next)
        if (!promise__waits_empty(&s->readers))
            return true;
    return false;
}

/* Calls the source as long as somebody waits for it. */
static void pull(struct promise__state *st, struct source *source)
{
    if (source->kind < SOURCE_FROM)
        return;
    promise__retain(source->self);
    while (!source->pulling && !source->closed && wanted(source)) {
        struct promise *p;

        source->pulling = true;
        p = call_source(st, source);
        if (promise__pending(st, p)) {
            await_source(st, source, p);
            continue;
        }
        source->pulling = false;
        (void)arrived(st, source, p, NULL);
    }
    promise__release(st, source->self);
}

/* ---- reading ---- */

static void serve_after_cancel(struct weft_waiter *waiter)
{
    struct reader *reader = weft__container(waiter, struct reader, left);
    struct promise_stream *stream = reader->stream;

    serve(promise__tls, stream);
    pull(promise__tls, stream->source);
    promise__object_release(stream->self);
    promise__object_release(promise__of_extra(reader));
}

/* Those behind a canceled reader may have what it waited for. Tests are user code, which no
 * cancel may run: so it is done with the callbacks of the canceled promise. */
static void leave_queue(struct promise *p)
{
    struct promise__state *st = promise__tls;
    struct reader *reader = promise__extra(p);

    promise__wait_remove(&reader->wait);
    if (reader->stream->count == 0 || promise__waits_empty(&reader->stream->readers))
        return;
    promise__retain(reader->stream->self);
    promise__retain(p);
    reader->left.wake = serve_after_cancel;
    promise__attach(st, p, &reader->left);
    promise__under(st, p)->link.flags |= PROMISE__ACTIVE;
}

struct read_call {
    struct promise__state *st;
    struct promise_stream *stream; /* held */
    enum mode mode;
    size_t wanted;
    promise_stream_test_fn *test;
    void *ctx;
    struct promise *result;
};

static struct promise *values_now(struct promise_stream *stream, size_t count, bool take)
{
    struct promise_values *values = collect(stream, count, take);

    return values != NULL ? promise_fulfilled_owned(values, promise_values_destroy)
                          : promise__enomem;
}

/* A get or peek that can be served now, without a reader. */
static struct promise *read_now(struct promise__state *st, struct promise_stream *stream,
                                enum mode mode)
{
    struct promise *element;

    if (mode == PEEK) {
        element = *slot(stream, 0);
        promise__retain(element);
        return element;
    }
    element = take_first(stream);
    if (stream->source->pusher != NULL)
        serve(st, stream);
    return element;
}

/* Nobody waits and nothing is there: a get calls the source for itself. NULL: it has to wait. */
static struct promise *get_from_source(struct promise__state *st, struct promise_stream *stream)
{
    struct source *source = stream->source;
    struct promise *p, *result = NULL;

    source->pulling = true;
    p = call_source(st, source);
    if (promise__pending(st, p)) {
        await_source(st, source, p);
    } else {
        source->pulling = false;
        result = arrived(st, source, p, stream);
    }
    pull(st, source); /* others may have come meanwhile */
    return result;
}

static void read_stream(void *arg)
{
    struct read_call *call = arg;
    struct promise__state *st = call->st;
    struct promise_stream *stream = call->stream;
    struct source *source = stream->source;
    struct promise__wait *wait;
    struct reader *reader;

    if (promise__waits_empty(&stream->readers)) {
        if (call->mode <= PEEK && (stream->count > 0 || source->pusher == NULL)) {
            if (stream->count == 0 && source->closed) {
                call->result = promise_rejected(-ENODATA);
                return;
            }
            if (stream->count > 0)
                call->result = read_now(st, stream, call->mode);
            else if (call->mode == GET && source->kind >= SOURCE_FROM && !source->pulling)
                call->result = get_from_source(st, stream);
            if (call->result != NULL)
                return;
        }
    }
    call->result = promise__wait_make(st, sizeof *reader, leave_queue, &wait);
    if (wait == NULL)
        return;
    reader = reader_of(wait);
    reader->stream = stream;
    reader->mode = call->mode;
    reader->wanted = call->wanted;
    reader->test = call->test;
    reader->ctx = call->ctx;
    promise__waits_append(&stream->readers, wait);
    serve(st, stream);
    pull(st, source);
}

static struct promise *start_read(struct promise_stream *stream, enum mode mode, size_t count,
                                  promise_stream_test_fn *test_fn, void *ctx)
{
    struct promise__state *st = promise__state_get();
    struct read_call call = {st, stream, mode, count, test_fn, ctx, NULL};

    if (st == NULL || stream == NULL)
        return st == NULL ? promise__no_state() : promise__einval;
    PROMISE__ENTER(st);
    if (mode == GET_WHILE)
        stream->source->tests = true;
    promise__retain(stream->self); /* what is called may drop the last reference */
    if (stream->source->kind >= SOURCE_FROM || stream->source->tests)
        promise__call_on_base(st, read_stream, &call);
    else
        read_stream(&call);
    promise__release(st, stream->self);
    promise__flush(st);
    return call.result;
}

struct promise *promise_stream_get(struct promise_stream *stream)
{
    return start_read(stream, GET, 1, NULL, NULL);
}

struct promise *promise_stream_peek(struct promise_stream *stream)
{
    return start_read(stream, PEEK, 1, NULL, NULL);
}

struct promise *promise_stream_nget(struct promise_stream *stream, size_t count)
{
    return start_read(stream, NGET, count, NULL, NULL);
}

struct promise *promise_stream_npeek(struct promise_stream *stream, size_t count)
{
    return start_read(stream, NPEEK, count, NULL, NULL);
}

struct promise *promise_stream_get_while(struct promise_stream *stream,
                                         promise_stream_test_fn *test_fn, void *ctx)
{
    if (test_fn == NULL)
        return promise__einval;
    return start_read(stream, GET_WHILE, SIZE_MAX, test_fn, ctx);
}

struct promise *promise_stream_junk(struct promise_stream *stream)
{
    return start_read(stream, JUNK, 1, NULL, NULL);
}

struct promise *promise_stream_njunk(struct promise_stream *stream, size_t count)
{
    return start_read(stream, JUNK, count, NULL, NULL);
}

struct promise *promise_stream_is_empty(struct promise_stream *stream)
{
    return start_read(stream, IS_EMPTY, 1, NULL, NULL);
}

/* ---- without waiting ---- */

size_t promise_stream_available(const struct promise_stream *stream)
{
    /* What is there behind a reader that waits for more isn't for others. */
    if (stream == NULL)
        return 0;
    for (const struct promise__wait *wait = promise__waits_first(&stream->readers); wait != NULL;
         wait = promise__waits_next(&stream->readers, wait))
        if (takes(((const struct reader *)(const void *)wait)->mode))
            return 0;
    return stream->count;
}

/* Elements have been taken from a stream whose readers were content with fewer: room for a push. */
static void taken(struct promise__state *st, struct promise_stream *stream)
{
    if (stream->source->pusher != NULL)
        serve(st, stream);
    promise__flush(st);
}

struct promise *promise_stream_get_available(struct promise_stream *stream, size_t max)
{
    struct promise__state *st = promise__state_get();
    size_t count = promise_stream_available(stream);
    struct promise *p;

    if (st == NULL || stream == NULL)
        return st == NULL ? promise__no_state() : promise__einval;
    PROMISE__ENTER(st);
    p = values_now(stream, count < max ? count : max, true);
    taken(st, stream);
    return p;
}

void promise_stream_junk_available(struct promise_stream *stream)
{
    if (stream == NULL || promise__tls == NULL)
        return;
    promise__retain(stream->self);
    drop(stream, promise_stream_available(stream));
    taken(promise__tls, stream);
    promise__object_release(stream->self);
}

struct promise *promise_stream_last_new(struct promise_stream *stream)
{
    size_t count = promise_stream_available(stream);
    struct promise *p;

    if (count == 0)
        return promise_stream_get(stream);
    promise__retain(stream->self);
    drop(stream, count - 1);
    p = promise_stream_get(stream);
    promise__object_release(stream->self);
    return p;
}

/* ---- pushing ---- */

struct push_call {
    struct promise__state *st;
    struct promise_stream *stream;
    struct promise *element; /* a reference */
    int status;
};

static void deliver_push(void *arg)
{
    struct push_call *call = arg;
    struct source *source = call->stream->source;

    promise__retain(source->self);
    call->status = deliver(call->st, source, call->element, NULL);
    promise__release(call->st, source->self);
}

static bool has_room(const struct promise_stream *stream)
{
    return stream->source->kind != SOURCE_BOUNDED ||
           (stream->source->pusher == NULL &&
            (stream->count < stream->source->size || !promise__waits_empty(&stream->readers)));
}

/* Puts an element in, there being room. If it fails the value is still the caller's. */
static int push(struct promise__state *st, struct promise_stream *stream, struct promise *element)
{
    struct push_call call = {st, stream, element, 0};

    if (stream->source->tests)
        promise__call_on_base(st, deliver_push, &call);
    else
        deliver_push(&call);
    if (call.status < 0) {
        promise__disown(st, element);
    }
    return call.status;
}

static int check_push(struct promise__state *st, const struct promise_stream *stream)
{
    if (st == NULL || stream == NULL || stream->source->kind > SOURCE_BOUNDED)
        return -EINVAL;
    return stream->source->closed ? -EPIPE : 0;
}

/* A lone get in front of an empty ring: no element need be made. */
static bool hand_over(struct promise_stream *stream, union weft_value value)
{
    struct promise__wait *first = promise__waits_first(&stream->readers);

    if (first == NULL || reader_of(first)->mode != GET || stream->count > 0 ||
        stream->prev != NULL || stream->next != NULL || stream->serving)
        return false;
    promise__wake(first, 0, value, stream->source->destroy);
    return true;
}

int promise_stream_push(struct promise_stream *stream, union weft_value value)
{
    struct promise__state *st = promise__state_get();
    struct promise *element;
    int err = check_push(st, stream);

    if (err < 0)
        return err;
    PROMISE__ENTER(st);
    if (!has_room(stream))
        return -ENOBUFS;
    if (!hand_over(stream, value)) {
        element = promise__element(st, value, stream->source->destroy);
        if (element == NULL)
            return -ENOMEM;
        err = push(st, stream, element);
    }
    promise__flush(st);
    return err;
}

struct promise *promise_stream_push_wait(struct promise_stream *stream, union weft_value value)
{
    struct promise__state *st = promise__state_get();
    struct promise *p, *element;
    struct push_wait *pusher;
    struct promise__wait *wait;
    int err = check_push(st, stream);

    if (st == NULL)
        return promise__no_state();
    if (err < 0)
        return promise_rejected(err);
    PROMISE__ENTER(st);
    if (stream->source->pusher != NULL)
        return promise_rejected(-ENOBUFS);
    if (has_room(stream)) {
        p = promise__cell(st, weft_num(0), NULL);
        if (p == NULL)
            return promise__enomem;
        err = promise_stream_push(stream, value);
        if (err == 0)
            return p;
        promise__release(st, p);
        return promise_rejected(err);
    }
    if (reserve(stream) < 0)
        return promise__enomem;
    element = promise__element(st, value, stream->source->destroy);
    if (element == NULL)
        return promise__enomem;
    p = promise__wait_make(st, sizeof *pusher, cancel_push, &wait);
    if (wait == NULL) {
        promise__disown(st, element);
        return p;
    }
    pusher = (struct push_wait *)(void *)wait;
    pusher->source = stream->source;
    pusher->element = element;
    stream->source->pusher = pusher;
    return p;
}

struct close_call {
    struct promise__state *st;
    struct source *source;
};

static void close_source(void *arg)
{
    struct close_call *call = arg;

    source_ended(call->st, call->source);
}

int promise_stream_close(struct promise_stream *stream)
{
    struct promise__state *st = promise__state_get();
    int err = check_push(st, stream);
    struct close_call call;

    if (err < 0)
        return err;
    call = (struct close_call){st, stream->source};
    promise__retain(stream->source->self);
    if (stream->source->tests)
        promise__call_on_base(st, close_source, &call);
    else
        close_source(&call);
    promise__release(st, call.source->self);
    promise__flush(st);
    return 0;
}

bool promise_stream_is_closed(const struct promise_stream *stream)
{
    return stream == NULL || stream->source->closed;
}

struct promise *promise_stream_closed(struct promise_stream *stream)
{
    struct promise__state *st = promise__state_get();

    if (st == NULL || stream == NULL)
        return st == NULL ? promise__no_state() : promise__einval;
    PROMISE__ENTER(st);
    if (stream->source->closed)
        return promise_fulfilled(weft_num(0));
    if (stream->source->closing == NULL) {
        stream->source->closing = promise__new(st, PROMISE__PLAIN, PROMISE__PENDING);
        if (stream->source->closing == NULL)
            return promise__enomem;
    }
    return promise_ref(stream->source->closing);
}

size_t promise_stream_size(const struct promise_stream *stream)
{
    return stream != NULL ? stream->source->size : 0;
}

int promise_stream_resize(struct promise_stream *stream, size_t size)
{
    struct promise__state *st = promise__state_get();

    if (st == NULL || stream == NULL || stream->source->kind != SOURCE_BOUNDED)
        return -EINVAL;
    stream->source->size = size;
    taken(st, stream);
    return 0;
}

/* ---- life ---- */

static void destroy_source(void *object)
{
    struct source *source = object;

    if (source->release != NULL)
        source->release(source->ctx);
    weft__storage_unref(source->storage);
    free(source);
}

/* The last of a source's streams has gone. */
static void abandon_source(struct promise__state *st, struct source *source)
{
    source_ended(st, source);
    /* What it waits for is for nobody. */
    if (source->awaited != NULL)
        promise_cancel(source->awaited);
}

static void destroy_stream(void *object)
{
    struct promise_stream *stream = object;
    struct promise__state *st = promise__tls;
    struct source *source = stream->source;
    struct promise__wait *wait;

    if (st != NULL) {
        *(stream->prev != NULL ? &stream->prev->next : &source->streams) = stream->next;
        if (stream->next != NULL)
            stream->next->prev = stream->prev;
        while ((wait = promise__waits_first(&stream->readers)) != NULL)
            promise__wake(wait, -ENODATA, weft_num(0), NULL);
        while (stream->count > 0)
            promise__release(st, take_first(stream));
        if (source->streams == NULL)
            abandon_source(st, source);
        promise__release(st, source->self);
    }
    free(stream->ring);
    free(stream);
    if (st != NULL)
        promise__flush(st);
}

static struct promise_stream *new_stream(struct promise__state *st, struct source *source)
{
    struct promise_stream *stream = calloc(1, sizeof *stream);

    if (stream == NULL)
        return NULL;
    stream->self = promise__object(st, stream, destroy_stream);
    if (stream->self == NULL) {
        free(stream);
        return NULL;
    }
    promise__waits_init(&stream->readers);
    stream->source = source;
    stream->next = source->streams;
    if (stream->next != NULL)
        stream->next->prev = stream;
    source->streams = stream;
    promise__retain(source->self);
    return stream;
}

/* A stream of a new source, a copy of `model`; if that fails, its ctx is released. */
static struct promise_stream *make(const struct source *model)
{
    struct promise__state *st = promise__state_get();
    struct source *source = st != NULL ? malloc(sizeof *source) : NULL;
    struct promise_stream *stream;

    if (source == NULL) {
        if (model->release != NULL)
            model->release(model->ctx);
        return NULL;
    }
    *source = *model;
    source->self = promise__object(st, source, destroy_source);
    if (source->self == NULL) {
        destroy_source(source);
        return NULL;
    }
    stream = new_stream(st, source);
    promise__release(st, source->self);
    return stream;
}

struct promise_stream *promise_stream_create(void (*destroy)(void *ptr))
{
    return make(&(struct source){.kind = SOURCE_PUSH, .destroy = destroy});
}

struct promise_stream *promise_stream_create_bounded(size_t size, void (*destroy)(void *ptr))
{
    return make(&(struct source){.kind = SOURCE_BOUNDED, .destroy = destroy, .size = size});
}

struct promise_stream *promise__stream_of_pushes(void *ctx, void (*release)(void *ctx),
                                                 struct source **source)
{
    struct promise_stream *stream =
        make(&(struct source){.kind = SOURCE_EVENT, .ctx = ctx, .release = release});

    *source = stream != NULL ? stream->source : NULL;
    return stream;
}

void promise__stream_deliver(struct promise__state *st, struct source *source,
                             struct promise *element)
{
    promise__retain(source->self);
    if (deliver(st, source, element, NULL) < 0) {
        promise__release(st, element);
        promise__report_error(st, -ENOMEM);
    }
    promise__release(st, source->self);
}

struct promise_stream *promise_stream_from(promise_thunk_fn *fn, void *ctx,
                                           void (*release)(void *ctx))
{
    return make(
        &(struct source){.kind = SOURCE_FROM, .fn = {.from = fn}, .ctx = ctx, .release = release});
}

struct promise_stream *promise_stream_from_direct(promise_stream_next_fn *fn, void *ctx,
                                                  void (*release)(void *ctx),
                                                  void (*destroy)(void *ptr))
{
    return make(&(struct source){.kind = SOURCE_DIRECT,
                                 .fn = {.direct = fn},
                                 .ctx = ctx,
                                 .release = release,
                                 .destroy = destroy});
}

struct promise_stream *promise_stream_of_values(const union weft_value values[], size_t count,
                                                void (*destroy)(void *ptr))
{
    struct promise_stream *stream = promise_stream_create(destroy);

    for (size_t i = 0; i < count; i++) {
        if (stream != NULL && promise_stream_push(stream, values[i]) == 0)
            continue;
        if (destroy != NULL)
            destroy(values[i].ptr);
        promise_stream_unref(stream);
        stream = NULL;
    }
    (void)promise_stream_close(stream);
    return stream;
}

struct promise_stream *promise_stream_clone(struct promise_stream *stream)
{
    struct promise__state *st = promise__state_get();
    struct promise_stream *clone;

    if (st == NULL || stream == NULL || stream->source->kind == SOURCE_BOUNDED)
        return NULL;
    clone = new_stream(st, stream->source);
    for (size_t i = 0; i < stream->count && clone != NULL; i++) {
        if (reserve(clone) < 0) {
            promise_stream_unref(clone);
            return NULL;
        }
        promise__retain(*slot(stream, i));
        append(clone, *slot(stream, i));
    }
    return clone;
}

struct promise_stream *promise_stream_ref(struct promise_stream *stream)
{
    if (stream != NULL)
        promise__retain(stream->self);
    return stream;
}

void promise_stream_unref(struct promise_stream *stream)
{
    if (stream != NULL && promise__tls != NULL)
        promise__object_release(stream->self);
}
