/* mutex.c: a lock for promises. While somebody waits, the mutex is locked: unlock hands it over. */
#include "promise_wait.h"

#include <weft/promise_sync.h>

#include <stdlib.h>

struct mutex {
    struct promise__waits waits;
    bool locked;
};
_Static_assert(sizeof(struct mutex) <= sizeof(struct promise_mutex), "the public face of a mutex");

static struct mutex *mutex_of(struct promise_mutex *mutex)
{
    return (struct mutex *)(void *)mutex;
}

static const struct mutex *const_mutex_of(const struct promise_mutex *mutex)
{
    return (const struct mutex *)(const void *)mutex;
}

void promise_mutex_init(struct promise_mutex *mutex)
{
    struct mutex *m = mutex_of(mutex);

    promise__waits_init(&m->waits);
    m->locked = false;
}

void promise_mutex_finish(struct promise_mutex *mutex)
{
    promise__waits_finish(&mutex_of(mutex)->waits);
    if (promise__tls != NULL)
        promise__flush(promise__tls);
}

struct promise_mutex *promise_mutex_create(void)
{
    struct promise_mutex *mutex = malloc(sizeof *mutex);

    if (mutex != NULL)
        promise_mutex_init(mutex);
    return mutex;
}

void promise_mutex_destroy(struct promise_mutex *mutex)
{
    if (mutex == NULL)
        return;
    promise_mutex_finish(mutex);
    free(mutex);
}

struct promise *promise_mutex_lock(struct promise_mutex *mutex)
{
    struct promise__state *st = promise__state_get();
    struct mutex *m = mutex_of(mutex);
    struct promise *p;

    if (st == NULL || m == NULL)
        return st == NULL ? promise__no_state() : promise__einval;
    PROMISE__ENTER(st);
    if (m->locked)
        return promise__wait_create(st, &m->waits);
    p = promise__cell(st, weft_num(0), NULL);
    if (p == NULL)
        return promise__enomem;
    m->locked = true;
    return p;
}

void promise_mutex_unlock(struct promise_mutex *mutex)
{
    struct mutex *m = mutex_of(mutex);
    struct promise__wait *first;

    if (m == NULL)
        return;
    first = promise__waits_first(&m->waits);
    if (first == NULL) {
        m->locked = false;
        return;
    }
    promise__wake(first, 0, weft_num(0), NULL);
    if (promise__tls != NULL)
        promise__flush(promise__tls);
}

bool promise_mutex_is_locked(const struct promise_mutex *mutex)
{
    return mutex != NULL && const_mutex_of(mutex)->locked;
}

bool promise_mutex_is_empty(const struct promise_mutex *mutex)
{
    return mutex == NULL || promise__waits_empty(&const_mutex_of(mutex)->waits);
}

/* ---- with_lock ---- */

struct locked_job {
    struct promise__job job;
    struct promise_mutex *mutex;
    promise_thunk_fn *fn;
    void *ctx;
};

static struct promise *through(struct promise__job *job, struct promise *settled)
{
    struct promise_mutex *mutex = ((struct locked_job *)(void *)job)->mutex;

    promise__job_end_like(job, settled);
    promise_mutex_unlock(mutex);
    return NULL;
}

static struct promise *has_lock(struct promise__job *job, struct promise *settled)
{
    struct locked_job *self = (struct locked_job *)(void *)job;

    if (promise_state(settled) == PROMISE_REJECTED) {
        promise__job_end_like(job, settled);
        return NULL;
    }
    promise_unref(settled);
    job->step = through;
    return promise__or_invalid(self->fn(self->ctx));
}

struct promise *promise_mutex_with_lock(struct promise_mutex *mutex, promise_thunk_fn *fn,
                                        void *ctx)
{
    struct promise__state *st = promise__state_get();
    struct locked_job *job;
    struct promise *p;

    if (st == NULL || mutex == NULL || fn == NULL)
        return st == NULL ? promise__no_state() : promise__einval;
    PROMISE__ENTER(st);
    p = promise__job_create(st, sizeof *job, has_lock, &job);
    if (job == NULL)
        return p;
    job->mutex = mutex;
    job->fn = fn;
    job->ctx = ctx;
    promise__job_start(&job->job, promise_mutex_lock(mutex));
    promise__flush(st);
    return p;
}
