/* stream_build.c: streams made of streams. Each is a stream of a function that reads the one
 * before it, so nothing is read before somebody asks, and an element that nobody has asked for
 * stays where it is. Canceling such a function's promise cancels the read in the stream before. */
#include "promise_streams.h"

#include <stdlib.h>

/* What one stream is made of, with a function. */
struct stage {
    struct promise_stream *stream, *second;
    union {
        promise_map_fn *map;
        promise_bind_fn *bind;
        promise_stream_test_fn *test;
    } fn;
    void *ctx;
};

static void release_stage(void *ctx)
{
    struct stage *stage = ctx;

    promise_stream_unref(stage->stream);
    promise_stream_unref(stage->second);
    free(stage);
}

/* Consumes the streams in `model`. */
static struct promise_stream *build(promise_thunk_fn *read, const struct stage *model)
{
    struct stage *stage = model->stream != NULL ? malloc(sizeof *stage) : NULL;

    if (stage == NULL) {
        promise_stream_unref(model->stream);
        promise_stream_unref(model->second);
        return NULL;
    }
    *stage = *model;
    return promise_stream_from(read, stage, release_stage);
}

/* ---- map ---- */

static struct promise *read_map(void *ctx)
{
    struct stage *stage = ctx;

    return promise_map(promise_stream_get(stage->stream), stage->fn.map, stage->ctx);
}

struct promise_stream *promise_stream_map(struct promise_stream *stream, promise_map_fn *fn,
                                          void *ctx)
{
    return build(read_map, &(struct stage){.stream = stream, .fn = {.map = fn}, .ctx = ctx});
}

static struct promise *read_map_wait(void *ctx)
{
    struct stage *stage = ctx;

    return promise_bind(promise_stream_get(stage->stream), stage->fn.bind, stage->ctx);
}

struct promise_stream *promise_stream_map_wait(struct promise_stream *stream, promise_bind_fn *fn,
                                               void *ctx)
{
    return build(read_map_wait, &(struct stage){.stream = stream, .fn = {.bind = fn}, .ctx = ctx});
}

/* ---- reading until something is right ----
 *
 * Jobs that read on until they have an element. Their stage outlives them: the stream that waits
 * for the job's promise holds it. */

struct search {
    struct promise__job job;
    struct stage *stage;
};

static struct promise *search(struct stage *stage, promise__step_fn *step, struct promise *first)
{
    struct promise__state *st = promise__tls;
    struct search *job;
    struct promise *p = promise__job_create(st, sizeof *job, step, &job);

    if (job == NULL) {
        promise_cancel(first);
        promise_unref(first);
        return p;
    }
    job->stage = stage;
    promise__job_start(&job->job, first);
    return p;
}

static struct stage *stage_of(struct promise__job *job)
{
    return ((struct search *)(void *)job)->stage;
}

static bool passes(const struct stage *stage, struct promise *settled)
{
    union weft_value value;

    if (promise_poll(settled, &value, NULL) != PROMISE_FULFILLED)
        return true; /* an error is passed on */
    return stage->fn.test(value, stage->ctx);
}

static struct promise *filter_step(struct promise__job *job, struct promise *settled)
{
    struct stage *stage = stage_of(job);

    if (passes(stage, settled)) {
        promise__job_end_like(job, settled);
        return NULL;
    }
    promise_unref(settled);
    return promise_stream_get(stage->stream);
}

static struct promise *read_filter(void *ctx)
{
    struct stage *stage = ctx;
    struct promise *p = promise_stream_get(stage->stream);

    while (promise_state(p) != PROMISE_PENDING) {
        if (passes(stage, p))
            return p;
        promise_unref(p);
        p = promise_stream_get(stage->stream);
    }
    return search(stage, filter_step, p);
}

struct promise_stream *promise_stream_filter(struct promise_stream *stream,
                                             promise_stream_test_fn *test, void *ctx)
{
    return build(read_filter, &(struct stage){.stream = stream, .fn = {.test = test}, .ctx = ctx});
}

/* ---- filter_map ---- */

static struct promise *filter_map_step(struct promise__job *job, struct promise *settled);

static struct promise *filter_mapped(struct promise__job *job, struct promise *settled)
{
    int err = 0;

    if (promise_poll(settled, NULL, &err) != PROMISE_REJECTED || err != -ENOMSG) {
        promise__job_end_like(job, settled);
        return NULL;
    }
    promise_unref(settled);
    job->step = filter_map_step;
    return promise_stream_get(stage_of(job)->stream);
}

static struct promise *filter_map_step(struct promise__job *job, struct promise *settled)
{
    struct stage *stage = stage_of(job);
    union weft_value value;

    if (promise_state(settled) == PROMISE_REJECTED) {
        promise__job_end_like(job, settled);
        return NULL;
    }
    (void)promise__job_take(job, settled, &value);
    job->step = filter_mapped;
    return promise__or_invalid(stage->fn.bind(value, stage->ctx));
}

static struct promise *read_filter_map(void *ctx)
{
    struct stage *stage = ctx;

    return search(stage, filter_map_step, promise_stream_get(stage->stream));
}

struct promise_stream *promise_stream_filter_map(struct promise_stream *stream, promise_bind_fn *fn,
                                                 void *ctx)
{
    return build(read_filter_map,
                 &(struct stage){.stream = stream, .fn = {.bind = fn}, .ctx = ctx});
}

/* ---- append, concat ---- */

static struct promise *first_failed(int err, void *ctx)
{
    struct stage *stage = ctx;

    if (err != -ENODATA)
        return promise_rejected(err);
    promise_stream_unref(stage->stream);
    stage->stream = stage->second;
    stage->second = NULL;
    return promise_stream_get(stage->stream);
}

static struct promise *read_append(void *ctx)
{
    struct stage *stage = ctx;
    struct promise *p = promise_stream_get(stage->stream);

    return stage->second != NULL ? promise_catch(p, first_failed, stage) : p;
}

struct promise_stream *promise_stream_append(struct promise_stream *first,
                                             struct promise_stream *second)
{
    if (first == NULL || second == NULL) {
        promise_stream_unref(first);
        promise_stream_unref(second);
        return NULL;
    }
    return build(read_append, &(struct stage){.stream = first, .second = second});
}

/* `second` is the stream that is being read; NULL: the next one is to be. */
static struct promise *concat_next(struct promise__job *job, struct promise *settled);

static struct promise *concat_step(struct promise__job *job, struct promise *settled)
{
    struct stage *stage = stage_of(job);
    int err = 0;

    if (promise_poll(settled, NULL, &err) != PROMISE_REJECTED || err != -ENODATA) {
        promise__job_end_like(job, settled);
        return NULL;
    }
    promise_unref(settled);
    promise_stream_unref(stage->second);
    stage->second = NULL;
    job->step = concat_next;
    return promise_stream_get(stage->stream);
}

static struct promise *concat_next(struct promise__job *job, struct promise *settled)
{
    struct stage *stage = stage_of(job);
    union weft_value value;

    if (promise_state(settled) == PROMISE_REJECTED) {
        promise__job_end_like(job, settled);
        return NULL;
    }
    (void)promise__job_take(job, settled, &value);
    stage->second = value.ptr;
    job->step = concat_step;
    return promise_stream_get(stage->second);
}

static struct promise *read_concat(void *ctx)
{
    struct stage *stage = ctx;

    if (stage->second != NULL)
        return search(stage, concat_step, promise_stream_get(stage->second));
    return search(stage, concat_next, promise_stream_get(stage->stream));
}

struct promise_stream *promise_stream_concat(struct promise_stream *streams)
{
    return build(read_concat, &(struct stage){.stream = streams});
}

/* ---- choose ----
 *
 * Each stream has a read going on; what it gives is kept until somebody asks for it. */

struct branch {
    struct promise_stream *stream;
    struct promise *read; /* NULL: none is going on */
};

struct choice {
    size_t count, next; /* branches; the one to look at first */
    struct promise **reads;
    struct branch branch[];
};

static void release_choice(void *ctx)
{
    struct choice *choice = ctx;

    for (size_t i = 0; i < choice->count; i++) {
        promise_cancel(choice->branch[i].read);
        promise_unref(choice->branch[i].read);
        promise_stream_unref(choice->branch[i].stream);
    }
    free(choice);
}

/* The outcome of a branch that is through with a read; NULL: there is none. Ended ones are let
 * go. */
static struct promise *take_settled(struct choice *choice)
{
    size_t i = 0;

    while (i < choice->count) {
        size_t at = (choice->next + i) % choice->count;
        struct branch *branch = &choice->branch[at];
        struct promise *read;
        int err = 0;

        if (branch->read == NULL)
            branch->read = promise_stream_get(branch->stream);
        if (promise_poll(branch->read, NULL, &err) == PROMISE_PENDING) {
            i++;
            continue;
        }
        read = branch->read;
        branch->read = NULL;
        if (err != -ENODATA) {
            choice->next = at + 1;
            return read;
        }
        promise_unref(read);
        read = NULL;
        promise_stream_unref(branch->stream);
        /* The others keep their order. */
        memmove(branch, branch + 1, (choice->count - at - 1) * sizeof *branch);
        choice->count--;
        if (choice->next > at)
            choice->next--;
    }
    return NULL;
}

struct choose_job {
    struct promise__job job;
    struct choice *choice;
};

/* The first of the branches' reads to be through; the others go on. Only the end of the stream
 * cancels it, and then all of them. */
static struct promise *any(struct choice *choice)
{
    for (size_t i = 0; i < choice->count; i++)
        choice->reads[i] = promise_ref(choice->branch[i].read);
    return promise_choose(choice->reads, choice->count);
}

static struct promise *choose_step(struct promise__job *job, struct promise *settled)
{
    struct choice *choice = ((struct choose_job *)(void *)job)->choice;
    struct promise *p;
    int err = 0;

    (void)promise_poll(settled, NULL, &err);
    promise_unref(settled);
    job->framed = false;
    p = take_settled(choice);
    if (p == NULL && choice->count > 0 && err == -ENODATA) /* of a branch: on with the others */
        return any(choice);
    /* Without any branch's outcome, the error is that of waiting for them. */
    promise__job_end_like(job, p != NULL ? p : promise_rejected(err));
    return NULL;
}

static struct promise *read_choose(void *ctx)
{
    struct promise__state *st = promise__tls;
    struct choice *choice = ctx;
    struct choose_job *job;
    struct promise *p = take_settled(choice);

    if (p != NULL)
        return p;
    if (choice->count == 0)
        return promise_rejected(-ENODATA);
    p = promise__job_create(st, sizeof *job, choose_step, &job);
    if (job == NULL)
        return p;
    job->choice = choice;
    promise__job_start(&job->job, any(choice));
    return p;
}

struct promise_stream *promise_stream_choose(struct promise_stream *const streams[], size_t count)
{
    size_t each = sizeof(struct branch) + sizeof(struct promise *);
    struct choice *choice = count < SIZE_MAX / 64 ? calloc(1, sizeof *choice + count * each) : NULL;
    bool complete = choice != NULL && (streams != NULL || count == 0);

    for (size_t i = 0; i < count; i++)
        complete = complete && streams[i] != NULL;
    if (!complete) {
        for (size_t i = 0; streams != NULL && i < count; i++)
            promise_stream_unref(streams[i]);
        free(choice);
        return NULL;
    }
    choice->count = count;
    choice->reads = (struct promise **)(void *)&choice->branch[count];
    for (size_t i = 0; i < count; i++)
        choice->branch[i].stream = streams[i];
    return promise_stream_from(read_choose, choice, release_choice);
}
