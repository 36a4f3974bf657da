/* sync.c: the promise forms of weft/sync.h. A wait is in the memory behind its promise; the promise is
 * settled in place by whoever wakes it, and weft__after_wakes runs its callbacks. */
#include "promise_sync.h"

/* ---- waiting ---- */

static void run_callbacks(struct weft_runtime *rt)
{
    (void)rt;
    promise__flush(promise__tls);
}

static void settle(struct promise__sync *sync, int status)
{
    struct promise__state *st = promise__tls;

    if (status > 0)
        status = PROMISE__SYNC_RUNS;
    promise__settle_later_owned(st, promise__of_extra(sync), status, sync->wait.value,
                                status == 0 ? sync->destroy : NULL);
    if (st->deferred != NULL)
        st->rt->after_wakes = run_callbacks;
}

static void woken(struct weft_waiter *waiter)
{
    struct promise__sync *sync = weft__container(waiter, struct promise__sync, wait.waiter);

    settle(sync, sync->wait.status);
}

/* The promise is an alarm: its cancel rejects it, then and there. */
static void leave(struct promise *p)
{
    struct promise__sync *sync = promise__extra(p);

    sync->leave(&sync->wait, -ECANCELED);
}

struct promise *promise__sync_make(struct promise__state *st,
                                   bool (*leave_fn)(struct weft__wait *wait, int why),
                                   struct weft__wait **wait)
{
    struct promise__sync *sync;
    void *memory;
    struct promise *p = promise__create_operation(st->rt, sizeof *sync, leave, &memory);

    *wait = NULL;
    if (memory == NULL)
        return p;
    p->link.kind = PROMISE__ALARM;
    sync = memory;
    memset(sync, 0, sizeof *sync);
    sync->wait.waiter.wake = woken;
    sync->wait.owner = WEFT__ANYBODY;
    sync->leave = leave_fn;
    *wait = &sync->wait;
    return p;
}

/* What needs no wait. */
static struct promise *at_once(struct promise__state *st, int rc)
{
    weft__after_wakes(st->rt);
    return rc < 0 ? promise__error(rc) : promise__immediate_of(weft_num(rc));
}

/* ---- mutex ---- */

struct promise *promise_mutex_lock(struct weft_mutex *mutex)
{
    struct promise__state *st = promise__state_get();
    struct weft__wait *wait;
    struct promise *p;
    int rc;

    if (st == NULL || mutex == NULL)
        return st == NULL ? promise__no_state() : promise__einval;
    PROMISE__ENTER(st);
    rc = weft__mutex_lock(mutex, WEFT__ANYBODY);
    if (rc != WEFT__WAITS)
        return at_once(st, rc);
    p = promise__sync_make(st, weft__mutex_leave, &wait);
    if (wait != NULL)
        weft__mutex_enter(mutex, wait);
    return p;
}

struct locked_job {
    struct promise__job job;
    struct weft_mutex *mutex;
    promise_thunk_fn *fn;
    void *ctx;
};

static struct promise *through(struct promise__job *job, struct promise *settled)
{
    struct weft_mutex *mutex = ((struct locked_job *)(void *)job)->mutex;

    promise__job_end_like(job, settled);
    weft_mutex_unlock(mutex);
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

struct promise *promise_mutex_with_lock(struct weft_mutex *mutex, promise_thunk_fn *fn, void *ctx)
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

/* ---- condition ---- */

/* The promise is an operation: it settles when it has its mutex again, and only then. */
static void stop_waiting(struct promise *p)
{
    struct promise__sync *sync = promise__extra(p);

    if (sync->leave(&sync->wait, -ECANCELED))
        settle(sync, -ECANCELED);
}

struct promise *promise_condition_wait(struct weft_condition *condition, struct weft_mutex *mutex)
{
    struct promise__state *st = promise__state_get();
    struct weft__wait *wait;
    struct promise *p;

    if (st == NULL || condition == NULL)
        return st == NULL ? promise__no_state() : promise__einval;
    PROMISE__ENTER(st);
    if (mutex != NULL && !weft__is_owner(st->rt, mutex->owner))
        return promise__error(-EPERM);
    p = promise__sync_make(st, weft__condition_leave, &wait);
    if (wait == NULL)
        return p;
    p->link.kind = PROMISE__OPERATION;
    p->fn.cancel = stop_waiting;
    if (mutex != NULL)
        wait->owner = mutex->owner; /* a fiber's mutex stays the fiber's */
    weft__condition_enter(condition, mutex, wait);
    weft__after_wakes(st->rt);
    return p;
}

static void tell(struct weft_condition *condition, int status, union weft_value value, bool all)
{
    struct promise__state *st = promise__state_get();

    if (st == NULL || condition == NULL)
        return;
    /* No callback runs in between, so nobody can come back. */
    while (weft__condition_tell(condition, status, value) && all)
        ;
    weft__after_wakes(st->rt);
}

void promise_condition_signal(struct weft_condition *condition, union weft_value value)
{
    tell(condition, 0, value, false);
}

void promise_condition_broadcast(struct weft_condition *condition, union weft_value value)
{
    tell(condition, 0, value, true);
}

void promise_condition_broadcast_error(struct weft_condition *condition, int err)
{
    tell(condition, err < 0 ? err : -EINVAL, weft_num(0), true);
}

/* ---- read-write lock ---- */

static struct promise *lock_rwlock(struct promise__state *st, struct weft_rwlock *lock, bool writes)
{
    struct weft__wait *wait;
    struct promise *p;
    int rc;

    if (st == NULL || lock == NULL)
        return st == NULL ? promise__no_state() : promise__einval;
    rc = weft__rwlock_lock(lock, WEFT__ANYBODY, writes);
    if (rc != WEFT__WAITS)
        return at_once(st, rc);
    p = promise__sync_make(st, weft__rwlock_leave, &wait);
    if (wait != NULL)
        weft__rwlock_enter(lock, wait, writes);
    return p;
}

struct promise *promise_rwlock_read(struct weft_rwlock *lock)
{
    struct promise__state *st = promise__state_get();

    PROMISE__ENTER(st);
    return lock_rwlock(st, lock, false);
}

struct promise *promise_rwlock_write(struct weft_rwlock *lock)
{
    struct promise__state *st = promise__state_get();

    PROMISE__ENTER(st);
    return lock_rwlock(st, lock, true);
}

/* ---- semaphore, event, barrier ---- */

struct promise *promise_semaphore_acquire(struct weft_semaphore *semaphore, int64_t units)
{
    struct promise__state *st = promise__state_get();
    struct weft__wait *wait;
    struct promise *p;
    int rc;

    if (st == NULL || semaphore == NULL)
        return st == NULL ? promise__no_state() : promise__einval;
    PROMISE__ENTER(st);
    rc = weft__semaphore_acquire(semaphore, units);
    if (rc != WEFT__WAITS)
        return at_once(st, rc);
    p = promise__sync_make(st, weft__semaphore_leave, &wait);
    if (wait != NULL)
        weft__semaphore_enter(semaphore, wait, units);
    return p;
}

struct promise *promise_event_wait(struct weft_event *event)
{
    struct promise__state *st = promise__state_get();
    struct weft__wait *wait;
    struct promise *p;

    if (st == NULL || event == NULL)
        return st == NULL ? promise__no_state() : promise__einval;
    PROMISE__ENTER(st);
    if (event->set)
        return at_once(st, 0);
    p = promise__sync_make(st, weft__event_leave, &wait);
    if (wait != NULL)
        weft__event_enter(event, wait);
    return p;
}

struct promise *promise_barrier_wait(struct weft_barrier *barrier)
{
    struct promise__state *st = promise__state_get();
    struct weft__wait *wait;
    struct promise *p;
    int rc;

    if (st == NULL || barrier == NULL)
        return st == NULL ? promise__no_state() : promise__einval;
    PROMISE__ENTER(st);
    rc = weft__barrier_arrive(barrier);
    if (rc != WEFT__WAITS)
        return at_once(st, rc < 0 ? rc : 1);
    p = promise__sync_make(st, weft__barrier_leave, &wait);
    if (wait != NULL)
        weft__barrier_enter(barrier, wait);
    return p;
}

/* ---- once ---- */

struct once_job {
    struct promise__job job;
    struct weft_once *once;
    promise_thunk_fn *fn;
    void *ctx;
};

static struct promise *made(struct promise__job *job, struct promise *settled)
{
    struct weft_once *once = ((struct once_job *)(void *)job)->once;
    union weft_value value = weft_num(0);
    int status = promise__job_take(job, settled, &value);

    promise__job_end(job, status, value, NULL);
    weft__once_made(once, status, value);
    weft__after_wakes(promise__tls->rt);
    return NULL;
}

static struct promise *make(struct promise__job *job)
{
    struct once_job *self = (struct once_job *)(void *)job;

    job->step = made;
    return promise__or_invalid(self->fn(self->ctx));
}

static struct promise *waited(struct promise__job *job, struct promise *settled)
{
    int err = 0;

    if (promise_poll(settled, NULL, &err) == PROMISE_REJECTED && err == PROMISE__SYNC_RUNS) {
        promise_unref(settled);
        return make(job);
    }
    promise__job_end_like(job, settled);
    return NULL;
}

static struct promise *begin(struct promise__job *job, struct promise *settled)
{
    struct promise__state *st = promise__tls;
    struct weft_once *once = ((struct once_job *)(void *)job)->once;
    struct weft__wait *wait;
    struct promise *p;
    int rc;

    (void)settled; /* immediate */
    rc = weft__once_begin(once, WEFT__ANYBODY);
    if (rc == WEFT__RUNS)
        return make(job);
    if (rc != WEFT__WAITS) {
        promise__job_end(job, rc, once->value, NULL);
        return NULL;
    }
    job->step = waited;
    p = promise__sync_make(st, weft__once_leave, &wait);
    if (wait != NULL)
        weft__once_enter(once, wait);
    return p;
}

struct promise *promise_once_get(struct weft_once *once, promise_thunk_fn *fn, void *ctx)
{
    struct promise__state *st = promise__state_get();
    struct once_job *job;
    struct promise *p;

    if (st == NULL || once == NULL || fn == NULL)
        return st == NULL ? promise__no_state() : promise__einval;
    PROMISE__ENTER(st);
    p = promise__job_create(st, sizeof *job, begin, &job);
    if (job == NULL)
        return p;
    job->once = once;
    job->fn = fn;
    job->ctx = ctx;
    promise__job_start(&job->job, promise__immediate_of(weft_num(0)));
    promise__flush(st);
    return p;
}

/* ---- channel ---- */

struct promise *promise_channel_send(struct weft_channel *channel, union weft_value value)
{
    struct promise__state *st = promise__state_get();
    struct weft__wait *wait;
    struct promise *p;
    int rc;

    if (st == NULL || channel == NULL)
        return st == NULL ? promise__no_state() : promise__einval;
    PROMISE__ENTER(st);
    rc = weft__channel_send(channel, value);
    if (rc != WEFT__WAITS)
        return at_once(st, rc);
    p = promise__sync_make(st, weft__channel_leave_send, &wait);
    if (wait != NULL)
        weft__channel_enter_send(channel, wait, value);
    return p;
}

/* There is an item. Nothing is taken if there is no memory for its promise. */
static struct promise *recv_now(struct promise__state *st, struct weft_channel *channel)
{
    union weft_value value = weft__channel_next(channel);
    struct promise *p = promise__element(st, value, channel->destroy);

    if (p == NULL)
        return promise__enomem;
    (void)weft__channel_recv(channel, &value);
    weft__after_wakes(st->rt);
    return p;
}

struct promise *promise_channel_recv(struct weft_channel *channel)
{
    struct promise__state *st = promise__state_get();
    struct weft__wait *wait;
    struct promise *p;

    if (st == NULL || channel == NULL)
        return st == NULL ? promise__no_state() : promise__einval;
    PROMISE__ENTER(st);
    if (channel->count > 0 || channel->senders != NULL)
        return recv_now(st, channel);
    if (channel->closed)
        return promise__error(-ENODATA);
    p = promise__sync_make(st, weft__channel_leave_recv, &wait);
    if (wait != NULL) {
        weft__container(wait, struct promise__sync, wait)->destroy = channel->destroy;
        weft__channel_enter_recv(channel, wait);
    }
    return p;
}
