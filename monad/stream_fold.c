/* stream_fold.c: jobs that read a stream to its end. */
#include "promise_streams.h"

#include <stdlib.h>

struct folding {
    struct promise__job job;
    struct promise_stream *stream; /* a reference */
    promise_bind_fn *each;
    promise_stream_fold_fn *fold;
    void *ctx;
    struct promise *state; /* settled, and its value's owner */
};

static struct folding *folding_of(struct promise__job *job)
{
    return (struct folding *)(void *)job;
}

/* Ends with the outcome of `settled`, the step's argument or the state. */
static struct promise *end_fold(struct promise__job *job, struct promise *settled)
{
    struct promise_stream *stream = folding_of(job)->stream;

    promise__job_end_like(job, settled);
    promise_stream_unref(stream);
    return NULL;
}

static struct promise *fold_step(struct promise__job *job, struct promise *settled);

static struct promise *folded(struct promise__job *job, struct promise *settled)
{
    struct folding *folding = folding_of(job);

    if (promise_state(settled) == PROMISE_REJECTED)
        return end_fold(job, settled);
    if (folding->fold != NULL) {
        settled = promise__job_keep(job, settled);
        if (promise_state(settled) == PROMISE_REJECTED) /* no memory */
            return end_fold(job, settled);
        folding->state = settled;
    } else {
        promise_unref(settled);
    }
    job->step = fold_step;
    return promise_stream_get(folding->stream);
}

static struct promise *fold_step(struct promise__job *job, struct promise *settled)
{
    struct folding *folding = folding_of(job);
    struct promise *state = folding->state;
    union weft_value value, so_far = weft_num(0);
    int err = 0;

    if (promise_poll(settled, NULL, &err) == PROMISE_REJECTED) {
        if (err != -ENODATA) {
            promise_unref(state);
            return end_fold(job, settled);
        }
        promise_unref(settled);
        job->framed = false;
        return end_fold(job, state);
    }
    (void)promise__job_take(job, settled, &value);
    job->step = folded;
    if (folding->fold == NULL)
        return promise__or_invalid(folding->each(value, folding->ctx));
    folding->state = NULL;
    (void)promise__take(promise__tls, state, &so_far);
    return promise__or_invalid(folding->fold(so_far, value, folding->ctx));
}

static struct promise *start(struct promise_stream *stream, promise_bind_fn *each,
                             promise_stream_fold_fn *fold, union weft_value state, void *ctx)
{
    struct promise__state *st = promise__state_get();
    struct folding *folding;
    struct promise *p, *first;

    if (st == NULL || stream == NULL || (each == NULL && fold == NULL)) {
        promise_stream_unref(stream);
        return st == NULL ? promise__no_state() : promise__einval;
    }
    PROMISE__ENTER(st);
    first = promise_fulfilled(state);
    if (promise_state(first) == PROMISE_REJECTED) {
        promise_stream_unref(stream);
        return first;
    }
    p = promise__job_create(st, sizeof *folding, fold_step, &folding);
    if (folding == NULL) {
        promise_unref(first);
        promise_stream_unref(stream);
        return p;
    }
    folding->stream = stream;
    folding->each = each;
    folding->fold = fold;
    folding->ctx = ctx;
    folding->state = first;
    promise__job_start(&folding->job, promise_stream_get(stream));
    promise__flush(st);
    return p;
}

struct promise *promise_stream_iter(struct promise_stream *stream, promise_bind_fn *fn, void *ctx)
{
    return start(stream, fn, NULL, weft_num(0), ctx);
}

struct promise *promise_stream_fold(struct promise_stream *stream, promise_stream_fold_fn *fn,
                                    union weft_value state, void *ctx)
{
    return start(stream, NULL, fn, state, ctx);
}

/* ---- collect ---- */

struct elements {
    struct promise **element;
    size_t count, room;
};

struct collecting {
    struct promise__job job;
    struct promise_stream *stream;
    struct promise *owner; /* of the elements, so that the runtime's end frees them */
};

static void destroy_elements(void *memory)
{
    struct elements *elements = memory;

    for (size_t i = 0; i < elements->count; i++)
        promise_unref(elements->element[i]);
    free(elements->element);
    free(elements);
}

static int add(struct elements *elements, struct promise *element)
{
    if (elements->count == elements->room) {
        size_t room = elements->room == 0 ? 16 : elements->room * 2;
        struct promise **grown = realloc(elements->element, room * sizeof(struct promise *));

        if (grown == NULL)
            return -ENOMEM;
        elements->element = grown;
        elements->room = room;
    }
    elements->element[elements->count++] = element;
    return 0;
}

/* The end of a job that reads `stream`. */
static struct promise *end(struct promise__job *job, struct promise_stream *stream, int status,
                           union weft_value value, void (*destroy)(void *))
{
    promise__job_end(job, status, value, destroy);
    promise_stream_unref(stream);
    return NULL;
}

/* The error of a settled promise, consumed; 0: it is fulfilled, and still the caller's. */
static int failure(struct promise *settled)
{
    int err = 0;

    if (promise_poll(settled, NULL, &err) == PROMISE_REJECTED)
        promise_unref(settled);
    return err;
}

static struct promise *collected(struct promise__job *job, int err)
{
    struct collecting *collecting = (struct collecting *)(void *)job;
    struct elements *elements = collecting->owner->value.ptr;
    struct promise_values *values = NULL;
    struct promise *owner = collecting->owner;

    if (err == 0) {
        values = promise__values(elements->count);
        err = values != NULL ? 0 : -ENOMEM;
    }
    if (err == 0) {
        for (size_t i = 0; i < elements->count; i++) {
            values->source[i] = elements->element[i];
            (void)promise_poll(elements->element[i], &values->value[i], NULL);
        }
        values->count = elements->count;
        elements->count = 0;
        end(job, collecting->stream, 0, weft_ptr(values), promise_values_destroy);
    } else {
        end(job, collecting->stream, err, weft_num(0), NULL);
    }
    promise_unref(owner);
    return NULL;
}

static struct promise *collect_step(struct promise__job *job, struct promise *settled)
{
    struct collecting *collecting = (struct collecting *)(void *)job;
    int err = failure(settled);

    if (err == -ENODATA)
        return collected(job, 0);
    if (err == 0 && add(collecting->owner->value.ptr, settled) < 0) {
        promise_unref(settled);
        err = -ENOMEM;
    }
    return err < 0 ? collected(job, err) : promise_stream_get(collecting->stream);
}

struct promise *promise_stream_collect(struct promise_stream *stream)
{
    struct promise__state *st = promise__state_get();
    struct elements *elements = NULL;
    struct promise *p, *owner = NULL;
    struct collecting *collecting;

    if (st == NULL || stream == NULL) {
        promise_stream_unref(stream);
        return st == NULL ? promise__no_state() : promise__einval;
    }
    PROMISE__ENTER(st);
    elements = calloc(1, sizeof *elements);
    if (elements != NULL)
        owner = promise__object(st, elements, destroy_elements);
    if (owner == NULL) {
        free(elements);
        promise_stream_unref(stream);
        return promise__enomem;
    }
    p = promise__job_create(st, sizeof *collecting, collect_step, &collecting);
    if (collecting == NULL) {
        promise_unref(owner);
        promise_stream_unref(stream);
        return p;
    }
    collecting->stream = stream;
    collecting->owner = owner;
    promise__job_start(&collecting->job, promise_stream_get(stream));
    promise__flush(st);
    return p;
}
