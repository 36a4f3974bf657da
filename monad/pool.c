/* pool.c: members shared by promises that use them in turn.
 *
 * `count` is the places taken: by members, free or in use, and by uses that are about to make one.
 * While somebody waits no member is free and all places are taken. A place that becomes free goes
 * to the first who waits, whose wait then ends with NO_MEMBER: it makes its member itself, so an
 * error of that reaches the use that it concerns, and a cancel too. Room for all places' members is
 * made when a place is taken, so giving a member back cannot fail.
 *
 * A use is a job: acquire, validate, (dispose, create), use, (dispose). Members know in which
 * generation they were taken; clear begins a new one.
 */
#include "promise_wait.h"

#include <weft/promise_sync.h>

#include <stdlib.h>

#define NO_MEMBER (-ENOKEY) /* within this file */

struct promise_pool {
    struct promise *self;
    struct promise_pool_options options;
    struct promise__waits waits;
    size_t waiting;
    size_t count, max;
    union weft_value *free; /* a ring of `room` */
    size_t free_first, free_count, room;
    uint64_t generation;
    bool destroyed;
};

/* ---- members ---- */

static union weft_value take_free(struct promise_pool *pool)
{
    union weft_value member = pool->free[pool->free_first];

    pool->free_first = (pool->free_first + 1) % pool->room;
    pool->free_count--;
    return member;
}

/* Takes a place, and makes room for its member. */
static int take_place(struct promise_pool *pool)
{
    if (pool->count == pool->room) {
        size_t room = pool->room == 0 ? 4 : pool->room * 2;
        union weft_value *ring = room > pool->room ? calloc(room, sizeof *ring) : NULL;

        if (ring == NULL)
            return -ENOMEM;
        for (size_t i = 0; i < pool->free_count; i++)
            ring[i] = pool->free[(pool->free_first + i) % pool->room];
        free(pool->free);
        pool->free = ring;
        pool->free_first = 0;
        pool->room = room;
    }
    pool->count++;
    return 0;
}

/* A place has become free. */
static void leave_place(struct promise_pool *pool)
{
    struct promise__wait *first = promise__waits_first(&pool->waits);

    if (first == NULL) {
        pool->count--;
        return;
    }
    pool->waiting--;
    promise__wake(first, NO_MEMBER, weft_num(0), NULL);
    promise__flush(promise__tls);
}

/* A member can be used again. */
static void give_back(struct promise_pool *pool, union weft_value member)
{
    struct promise__wait *first = promise__waits_first(&pool->waits);

    if (first == NULL) {
        pool->free[(pool->free_first + pool->free_count++) % pool->room] = member;
        return;
    }
    pool->waiting--;
    promise__wake(first, 0, member, NULL);
    promise__flush(promise__tls);
}

static struct promise *dispose(struct promise_pool *pool, union weft_value member)
{
    if (pool->options.dispose == NULL)
        return promise_fulfilled(weft_num(0));
    return promise__or_invalid(pool->options.dispose(member, pool->options.ctx));
}

/* ---- a use ---- */

struct use {
    struct promise__job job;
    struct promise_pool *pool; /* counted */
    promise_bind_fn *fn;
    void *ctx;
    union weft_value member;
    uint64_t generation;
    struct promise *outcome; /* kept while the member is disposed of */
};

struct pool_wait {
    struct promise__wait wait;
    struct promise_pool *pool;
};

static struct use *use_of(struct promise__job *job)
{
    return (struct use *)(void *)job;
}

static struct promise *end(struct promise__job *job, struct promise *outcome)
{
    struct promise_pool *pool = use_of(job)->pool;

    promise__job_end_like(job, outcome);
    promise__object_release(pool->self);
    return NULL;
}

/* The same, of a use whose place is without a member. */
static struct promise *end_without_member(struct promise__job *job, struct promise *outcome)
{
    struct promise_pool *pool = use_of(job)->pool;

    promise__job_end_like(job, outcome);
    leave_place(pool);
    promise__object_release(pool->self);
    return NULL;
}

/* The member is disposed of, or not: then that error is the outcome. */
static struct promise *end_disposed(struct promise__job *job, struct promise *settled)
{
    struct use *use = use_of(job);
    struct promise *outcome = use->outcome;

    if (promise_state(settled) == PROMISE_REJECTED) {
        promise_unref(outcome);
        return end_without_member(job, settled);
    }
    promise_unref(settled);
    job->framed = false;
    return end_without_member(job, outcome);
}

static struct promise *dispose_and_end(struct promise__job *job, struct promise *outcome)
{
    struct use *use = use_of(job);

    use->outcome = outcome;
    job->step = end_disposed;
    return dispose(use->pool, use->member);
}

static struct promise *used(struct promise__job *job, struct promise *settled)
{
    struct use *use = use_of(job);
    struct promise_pool *pool = use->pool;
    union weft_value member;
    bool ok = true;

    if (promise_state(settled) == PROMISE_REJECTED && pool->options.check != NULL)
        ok = pool->options.check(use->member, pool->options.ctx);
    if (!ok || pool->destroyed || use->generation != pool->generation)
        return dispose_and_end(job, settled);
    member = use->member;
    promise__job_end_like(job, settled); /* before the next in turn goes on */
    give_back(pool, member);
    promise__object_release(pool->self);
    return NULL;
}

static struct promise *use_member(struct promise__job *job)
{
    struct use *use = use_of(job);

    job->step = used;
    return promise__or_invalid(use->fn(use->member, use->ctx));
}

static struct promise *created(struct promise__job *job, struct promise *settled)
{
    struct use *use = use_of(job);

    if (promise_state(settled) == PROMISE_REJECTED)
        return end_without_member(job, settled);
    (void)promise__job_take(job, settled, &use->member);
    use->generation = use->pool->generation;
    return use_member(job);
}

static struct promise *create_member(struct promise__job *job)
{
    struct promise_pool_options *options = &use_of(job)->pool->options;

    job->step = created;
    return promise__or_invalid(options->create(options->ctx));
}

/* A member that wasn't valid is disposed of: another one in its place. */
static struct promise *invalid_disposed(struct promise__job *job, struct promise *settled)
{
    if (promise_state(settled) == PROMISE_REJECTED)
        return end_without_member(job, settled);
    promise_unref(settled);
    return create_member(job);
}

static struct promise *validated(struct promise__job *job, struct promise *settled)
{
    struct use *use = use_of(job);
    union weft_value valid = weft_num(0);

    if (promise_poll(settled, &valid, NULL) == PROMISE_REJECTED)
        return dispose_and_end(job, settled);
    promise_unref(settled);
    if (valid.num != 0)
        return use_member(job);
    job->step = invalid_disposed;
    return dispose(use->pool, use->member);
}

/* Settled: a member, or NO_MEMBER and a place, or neither. */
static struct promise *acquired(struct promise__job *job, struct promise *settled)
{
    struct use *use = use_of(job);
    struct promise_pool_options *options = &use->pool->options;
    int err = 0;

    if (promise_poll(settled, &use->member, &err) == PROMISE_REJECTED && err != NO_MEMBER)
        return end(job, settled);
    promise_unref(settled);
    if (err == NO_MEMBER)
        return create_member(job);
    use->generation = use->pool->generation;
    if (options->validate == NULL)
        return use_member(job);
    job->step = validated;
    return promise__or_invalid(options->validate(use->member, options->ctx));
}

static void leave_queue(struct promise *p)
{
    struct pool_wait *wait = promise__extra(p);

    promise__wait_remove(&wait->wait);
    wait->pool->waiting--;
}

/* A member (fulfilled), or a place for one (NO_MEMBER), or a wait for either. */
static struct promise *acquire(struct promise__state *st, struct promise_pool *pool)
{
    struct promise__wait *wait;
    struct promise *p;

    if (pool->free_count > 0) {
        p = promise__cell(st, weft_num(0), NULL);
        if (p == NULL)
            return promise__enomem;
        p->value = take_free(pool);
        return p;
    }
    if (pool->count < pool->max) {
        if (take_place(pool) < 0)
            return promise__enomem;
        return promise__error(NO_MEMBER);
    }
    p = promise__wait_make(st, sizeof(struct pool_wait), leave_queue, &wait);
    if (wait == NULL)
        return p;
    ((struct pool_wait *)(void *)wait)->pool = pool;
    promise__waits_append(&pool->waits, wait);
    pool->waiting++;
    return p;
}

struct promise *promise_pool_use(struct promise_pool *pool, promise_bind_fn *fn, void *ctx)
{
    struct promise__state *st = promise__state_get();
    struct promise *p;
    struct use *use;

    if (st == NULL || pool == NULL || fn == NULL)
        return st == NULL ? promise__no_state() : promise__einval;
    PROMISE__ENTER(st);
    if (pool->destroyed)
        return promise_rejected(-ECANCELED);
    p = promise__job_create(st, sizeof *use, acquired, &use);
    if (use == NULL)
        return p;
    use->pool = pool;
    use->fn = fn;
    use->ctx = ctx;
    promise__retain(pool->self);
    promise__job_start(&use->job, acquire(st, pool));
    promise__flush(st);
    return p;
}

size_t promise_pool_waiting(const struct promise_pool *pool)
{
    return pool != NULL ? pool->waiting : 0;
}

/* ---- clear ---- */

struct clearing {
    struct promise__job job;
    struct promise_pool *pool; /* counted */
    union weft_value *members;
    size_t count, next;
    int status;
};

static struct promise *cleared(struct promise__job *job, struct promise *settled)
{
    struct clearing *clearing = (struct clearing *)(void *)job;
    struct promise_pool *pool = clearing->pool;
    int err = 0;

    if (clearing->next > 0) { /* else it only stands for the beginning */
        if (promise_poll(settled, NULL, &err) == PROMISE_REJECTED && clearing->status == 0)
            clearing->status = err;
        leave_place(pool);
    }
    promise_unref(settled);
    if (clearing->next < clearing->count)
        return dispose(pool, clearing->members[clearing->next++]);
    promise__job_end(job, clearing->status, weft_num(0), NULL);
    promise__object_release(pool->self);
    return NULL;
}

struct promise *promise_pool_clear(struct promise_pool *pool)
{
    struct promise__state *st = promise__state_get();
    struct clearing *clearing;
    struct promise *p;
    size_t count;

    if (st == NULL || pool == NULL)
        return st == NULL ? promise__no_state() : promise__einval;
    PROMISE__ENTER(st);
    count = pool->free_count;
    p = promise__job_create(st, sizeof *clearing + count * sizeof(union weft_value), cleared,
                            &clearing);
    if (clearing == NULL)
        return p;
    pool->generation++;
    clearing->pool = pool;
    clearing->members = (union weft_value *)(void *)(clearing + 1);
    for (clearing->count = 0; clearing->count < count; clearing->count++)
        clearing->members[clearing->count] = take_free(pool);
    promise__retain(pool->self);
    promise__job_start(&clearing->job, promise_fulfilled(weft_num(0)));
    promise__flush(st);
    return p;
}

/* ---- life ---- */

static void destroy(void *object)
{
    struct promise_pool *pool = object;

    free(pool->free);
    free(pool);
}

struct promise_pool *promise_pool_create(size_t max, const struct promise_pool_options *options)
{
    struct promise__state *st = promise__state_get();
    struct promise_pool *pool;

    if (st == NULL || max == 0 || options == NULL || options->size < sizeof *options ||
        options->create == NULL)
        return NULL;
    PROMISE__ENTER(st);
    pool = calloc(1, sizeof *pool);
    if (pool == NULL)
        return NULL;
    pool->self = promise__object(st, pool, destroy);
    if (pool->self == NULL) {
        free(pool);
        return NULL;
    }
    pool->options = *options;
    pool->max = max;
    promise__waits_init(&pool->waits);
    return pool;
}

/* Without memory to do it one after the other. */
static void dispose_of_all(void *arg)
{
    struct promise_pool *pool = arg;

    while (pool->free_count > 0)
        (void)promise_async(dispose(pool, take_free(pool)));
}

void promise_pool_destroy(struct promise_pool *pool)
{
    struct promise__state *st = promise__tls;
    struct promise *clearing;

    if (pool == NULL || st == NULL)
        return;
    pool->destroyed = true;
    pool->waiting = 0;
    promise__waits_finish(&pool->waits);
    clearing = promise_pool_clear(pool);
    if (clearing == promise__enomem)
        promise__call_on_base(st, dispose_of_all, pool);
    else
        (void)promise_async(clearing);
    promise__object_release(pool->self);
    promise__flush(st);
}
