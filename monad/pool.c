/* pool.c: members shared by promises that use them in turn. Who has which member, and who waits for
 * one, is src/pool.c; here is what a use does with it.
 *
 * A use is a job: take, validate, (dispose, create), use, (dispose). A use that is handed a place
 * makes its member itself, so an error of that reaches the use that it concerns, and a cancel too.
 * Members know in which generation they were taken; clear begins a new one.
 */
#include "promise_sync.h"

#include <weft/promise_sync.h>

#include <stdlib.h>

_Static_assert(sizeof(void *) != 8 || sizeof(struct promise_pool_options) == 80, "part of the ABI");

struct promise_pool {
    struct promise *self;
    struct promise_pool_options options;
    struct weft_pool *members; /* counted */
    bool destroyed;
};

static void leave_place(struct promise_pool *pool)
{
    weft__pool_leave_place(pool->members);
    weft__after_wakes(promise__tls->rt);
}

static void give_back(struct promise_pool *pool, union weft_value member)
{
    weft__pool_give(pool->members, member);
    weft__after_wakes(promise__tls->rt);
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
    if (!ok || pool->destroyed || use->generation != pool->members->generation)
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
    use->generation = use->pool->members->generation;
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

static struct promise *has_member(struct promise__job *job)
{
    struct use *use = use_of(job);
    struct promise_pool_options *options = &use->pool->options;

    if (options->validate == NULL)
        return use_member(job);
    job->step = validated;
    return promise__or_invalid(options->validate(use->member, options->ctx));
}

/* Settled: a member, or a place for one, or neither. */
static struct promise *waited(struct promise__job *job, struct promise *settled)
{
    int err = 0;

    if (promise_poll(settled, &use_of(job)->member, &err) == PROMISE_REJECTED &&
        err != PROMISE__SYNC_RUNS)
        return end(job, settled);
    promise_unref(settled);
    return err == 0 ? has_member(job) : create_member(job);
}

static struct promise *begin(struct promise__job *job, struct promise *settled)
{
    struct use *use = use_of(job);
    struct weft__wait *wait;
    struct promise *p;
    int rc = weft__pool_take(use->pool->members, &use->member);

    (void)settled;                                    /* immediate */
    use->generation = use->pool->members->generation; /* a clear may concern what it waits for */
    if (rc == 0)
        return has_member(job);
    if (rc == WEFT__RUNS)
        return create_member(job);
    if (rc == WEFT__STALE) {
        job->step = invalid_disposed;
        return dispose(use->pool, use->member);
    }
    if (rc < 0)
        return end(job, promise__error(rc));
    job->step = waited;
    p = promise__sync_make(promise__tls, weft__pool_leave, &wait);
    if (wait != NULL)
        weft__pool_enter(use->pool->members, wait);
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
    p = promise__job_create(st, sizeof *use, begin, &use);
    if (use == NULL)
        return p;
    use->pool = pool;
    use->fn = fn;
    use->ctx = ctx;
    promise__retain(pool->self);
    promise__job_start(&use->job, promise__immediate_of(weft_num(0)));
    promise__flush(st);
    return p;
}

size_t promise_pool_waiting(const struct promise_pool *pool)
{
    return pool != NULL ? weft_pool_waiting(pool->members) : 0;
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
    count = weft_pool_free(pool->members);
    p = promise__job_create(st, sizeof *clearing + count * sizeof(union weft_value), cleared,
                            &clearing);
    if (clearing == NULL)
        return p;
    weft__pool_renew(pool->members);
    clearing->pool = pool;
    clearing->members = (union weft_value *)(void *)(clearing + 1);
    while (weft__pool_withdraw(pool->members, &clearing->members[clearing->count]))
        clearing->count++;
    promise__retain(pool->self);
    promise__job_start(&clearing->job, promise_fulfilled(weft_num(0)));
    promise__flush(st);
    return p;
}

/* ---- life ---- */

static void destroy(void *object)
{
    struct promise_pool *pool = object;

    weft__pool_unref(pool->members);
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
    pool->members = weft_pool_create(max);
    pool->self = pool->members != NULL ? promise__object(st, pool, destroy) : NULL;
    if (pool->self == NULL) {
        weft_pool_destroy(pool->members);
        free(pool);
        return NULL;
    }
    pool->options = *options;
    return pool;
}

struct weft_pool *promise_pool_members(struct promise_pool *pool)
{
    return pool != NULL ? pool->members : NULL;
}

/* Without memory to do it one after the other. */
static void dispose_of_all(void *arg)
{
    struct promise_pool *pool = arg;
    union weft_value member;

    while (weft__pool_withdraw(pool->members, &member))
        (void)promise_async(dispose(pool, member));
}

void promise_pool_destroy(struct promise_pool *pool)
{
    struct promise__state *st = promise__tls;
    struct promise *clearing;

    if (pool == NULL || st == NULL)
        return;
    pool->destroyed = true;
    weft_pool_destroy(weft__pool_ref(pool->members)); /* for those who use it; it stays */
    clearing = promise_pool_clear(pool);
    if (clearing == promise__enomem)
        promise__call_on_base(st, dispose_of_all, pool);
    else
        (void)promise_async(clearing);
    promise__object_release(pool->self);
    promise__flush(st);
}
