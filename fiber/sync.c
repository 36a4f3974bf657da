/* sync.c: the fiber forms of weft/sync.h. Each first tries; the wait, its deadline's timer and what
 * the object needs are on the fiber's own stack. */
#include "fiber_sync.h"

#include <weft/scope.h>

_Static_assert(sizeof(void *) != 8 || sizeof(struct fiber_pool_options) == 80, "part of the ABI");

/* ---- waiting ---- */

static void end(struct fiber__sync *s, int status)
{
    s->wait.status = status;
    weft__timer_stop(s->rt, &s->timer);
    fiber__wake(s->rt, s->fiber);
}

void fiber__sync_woken(struct weft_waiter *waiter)
{
    struct fiber__sync *s = weft__container(waiter, struct fiber__sync, wait.waiter);

    fiber__wake(s->rt, s->fiber);
}

static void woken_in_time(struct weft_waiter *waiter)
{
    struct fiber__sync *s = weft__container(waiter, struct fiber__sync, wait.waiter);

    end(s, s->wait.status);
}

void fiber__sync_cancel(struct fiber_wait *park)
{
    struct fiber__sync *s = weft__container(park, struct fiber__sync, park);

    if (s->leave(&s->wait, -ECANCELED))
        end(s, -ECANCELED);
}

static void expired(struct weft_timer *timer)
{
    struct fiber__sync *s = weft__container(timer, struct fiber__sync, timer);

    if (s->leave(&s->wait, -ETIMEDOUT))
        end(s, -ETIMEDOUT);
}

void fiber__sync_set_deadline(struct fiber__sync *s, weft_time deadline)
{
    s->wait.waiter.wake = woken_in_time;
    weft_timer_init(&s->timer, expired);
    weft__timer_start(s->rt, &s->timer, deadline);
}

/* Whether it is worth waiting. */
static inline bool is_now(weft_time deadline)
{
    return deadline <= WEFT_NOWAIT;
}

/* ---- mutex ---- */

static __attribute__((noinline)) int wait_for_mutex(struct weft_runtime *rt, struct fiber *self,
                                                    struct weft_mutex *mutex, weft_time deadline)
{
    struct fiber__sync s;

    if (is_now(deadline))
        return -ETIMEDOUT;
    fiber__sync_begin(&s, rt, self, weft__mutex_leave, "a mutex", deadline);
    weft__mutex_enter(mutex, &s.wait);
    return fiber__sync_park(&s);
}

int fiber_mutex_lock(struct weft_mutex *mutex, weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    struct fiber *self = fiber__self(rt);
    int rc = fiber__sync_may(rt, self, mutex);

    if (weft__unlikely(rc < 0))
        return rc;
    rc = weft__mutex_lock(mutex, &self->strand);
    return weft__likely(rc != WEFT__WAITS) ? rc : wait_for_mutex(rt, self, mutex, deadline);
}

int fiber_mutex_with_lock(struct weft_mutex *mutex, int (*fn)(void *arg), void *arg,
                          weft_time deadline)
{
    int rc = fn == NULL ? -EINVAL : fiber_mutex_lock(mutex, deadline);

    if (rc < 0)
        return rc;
    rc = fn(arg);
    weft_mutex_unlock(mutex);
    return rc;
}

/* ---- condition ---- */

int fiber_condition_wait(struct weft_condition *condition, struct weft_mutex *mutex,
                         weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    struct fiber *self = fiber__self(rt);
    int rc = fiber__sync_may(rt, self, condition);
    struct fiber__sync s;

    if (rc < 0)
        return rc;
    if (mutex != NULL && !weft__is_owner(rt, mutex->owner))
        return -EPERM;
    if (is_now(deadline))
        return -ETIMEDOUT;
    fiber__sync_begin(&s, rt, self, weft__condition_leave, "a condition", deadline);
    if (mutex != NULL)
        s.wait.owner = mutex->owner; /* as before, if that was nobody in particular */
    /* What passing the mutex on sets off may already signal, or cancel: then it is in the run queue,
     * and no wait must be said to be going on. */
    self->wait = &s.park;
    weft__condition_enter(condition, mutex, &s.wait);
    weft__after_wakes(rt);
    fiber__park(rt, self, self->wait);
    return s.wait.status;
}

/* ---- read-write lock ---- */

static inline __attribute__((always_inline)) int lock_rwlock(struct weft_rwlock *lock, bool writes,
                                                             weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    struct fiber *self = fiber__self(rt);
    int rc = fiber__sync_may(rt, self, lock);
    struct fiber__sync s;

    if (rc < 0)
        return rc;
    rc = weft__rwlock_lock(lock, &self->strand, writes);
    if (rc != WEFT__WAITS)
        return rc;
    if (is_now(deadline))
        return -ETIMEDOUT;
    fiber__sync_begin(&s, rt, self, weft__rwlock_leave,
                      writes ? "a lock to write" : "a lock to read", deadline);
    weft__rwlock_enter(lock, &s.wait, writes);
    return fiber__sync_park(&s);
}

int fiber_rwlock_read(struct weft_rwlock *lock, weft_time deadline)
{
    return lock_rwlock(lock, false, deadline);
}

int fiber_rwlock_write(struct weft_rwlock *lock, weft_time deadline)
{
    return lock_rwlock(lock, true, deadline);
}

/* ---- semaphore ---- */

static __attribute__((noinline)) int wait_for_units(struct weft_runtime *rt, struct fiber *self,
                                                    struct weft_semaphore *semaphore, int64_t units,
                                                    weft_time deadline)
{
    struct fiber__sync s;

    if (is_now(deadline))
        return -ETIMEDOUT;
    fiber__sync_begin(&s, rt, self, weft__semaphore_leave, "a semaphore", deadline);
    weft__semaphore_enter(semaphore, &s.wait, units);
    return fiber__sync_park(&s);
}

int fiber_semaphore_acquire(struct weft_semaphore *semaphore, int64_t units, weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    struct fiber *self = fiber__self(rt);
    int rc = fiber__sync_may(rt, self, semaphore);

    if (weft__unlikely(rc < 0))
        return rc;
    rc = weft__semaphore_acquire(semaphore, units);
    return weft__likely(rc != WEFT__WAITS) ? rc
                                           : wait_for_units(rt, self, semaphore, units, deadline);
}

/* ---- event ---- */

int fiber_event_wait(struct weft_event *event, weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    struct fiber *self = fiber__self(rt);
    int rc = fiber__sync_may(rt, self, event);
    struct fiber__sync s;

    if (rc < 0 || event->set)
        return rc;
    if (is_now(deadline))
        return -ETIMEDOUT;
    fiber__sync_begin(&s, rt, self, weft__event_leave, "an event", deadline);
    weft__event_enter(event, &s.wait);
    return fiber__sync_park(&s);
}

/* ---- barrier ---- */

int fiber_barrier_wait(struct weft_barrier *barrier, weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    struct fiber *self = fiber__self(rt);
    int rc = fiber__sync_may(rt, self, barrier);
    struct fiber__sync s;

    if (rc < 0)
        return rc;
    rc = weft__barrier_arrive(barrier);
    if (rc != WEFT__WAITS) {
        weft__after_wakes(rt);
        return rc < 0 ? rc : 1;
    }
    if (is_now(deadline))
        return -ETIMEDOUT;
    fiber__sync_begin(&s, rt, self, weft__barrier_leave, "a barrier", deadline);
    weft__barrier_enter(barrier, &s.wait);
    return fiber__sync_park(&s);
}

/* ---- once ---- */

int fiber_once_get(struct weft_once *once, int (*fn)(void *arg, union weft_value *value), void *arg,
                   union weft_value *value, weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    struct fiber *self = fiber__self(rt);
    int rc = fiber__sync_may(rt, self, fn == NULL ? NULL : once);
    union weft_value made;
    struct fiber__sync s;

    if (rc < 0)
        return rc;
    rc = weft__once_begin(once, &self->strand);
    made = once->value;
    if (rc == WEFT__WAITS) {
        if (is_now(deadline))
            return -ETIMEDOUT;
        fiber__sync_begin(&s, rt, self, weft__once_leave, "a value being made", deadline);
        weft__once_enter(once, &s.wait);
        rc = fiber__sync_park(&s);
        made = s.wait.value;
    }
    if (rc == WEFT__RUNS) {
        made = weft_num(0);
        rc = fn(arg, &made);
        if (rc > 0)
            rc = 0;
        weft__once_made(once, rc, made);
        weft__after_wakes(rt);
    }
    if (rc == 0 && value != NULL)
        *value = made;
    return rc;
}

/* ---- channel ---- */

static __attribute__((noinline)) int wait_to_send(struct weft_runtime *rt, struct fiber *self,
                                                  struct weft_channel *channel,
                                                  union weft_value value, weft_time deadline)
{
    struct fiber__sync s;

    if (is_now(deadline))
        return -ETIMEDOUT;
    fiber__sync_begin(&s, rt, self, weft__channel_leave_send, "a channel to send", deadline);
    weft__channel_enter_send(channel, &s.wait, value);
    return fiber__sync_park(&s);
}

int fiber_channel_send(struct weft_channel *channel, union weft_value value, weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    struct fiber *self = fiber__self(rt);
    int rc = fiber__sync_may(rt, self, channel);

    if (weft__unlikely(rc < 0))
        return rc;
    rc = weft__channel_send(channel, value);
    if (rc == WEFT__WAITS)
        return wait_to_send(rt, self, channel, value, deadline);
    weft__after_wakes(rt);
    return rc;
}

static __attribute__((noinline)) int wait_to_recv(struct weft_runtime *rt, struct fiber *self,
                                                  struct weft_channel *channel,
                                                  union weft_value *value, weft_time deadline)
{
    struct fiber__sync s;
    int rc;

    if (is_now(deadline))
        return -ETIMEDOUT;
    fiber__sync_begin(&s, rt, self, weft__channel_leave_recv, "a channel to receive", deadline);
    weft__channel_enter_recv(channel, &s.wait);
    rc = fiber__sync_park(&s);
    if (rc == 0)
        *value = s.wait.value;
    return rc;
}

int fiber_channel_recv(struct weft_channel *channel, union weft_value *value, weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    struct fiber *self = fiber__self(rt);
    int rc = fiber__sync_may(rt, self, value == NULL ? NULL : channel);

    if (weft__unlikely(rc < 0))
        return rc;
    rc = weft__channel_recv(channel, value);
    if (rc == WEFT__WAITS)
        return wait_to_recv(rt, self, channel, value, deadline);
    weft__after_wakes(rt);
    return rc;
}

/* ---- pool ---- */

static int check_options(const struct fiber_pool_options *options)
{
    return options == NULL || options->size < sizeof *options || options->create == NULL ? -EINVAL
                                                                                         : 0;
}

struct disposal {
    const struct fiber_pool_options *options;
    union weft_value member;
};

static int dispose_shielded(void *arg)
{
    const struct disposal *disposal = arg;

    disposal->options->dispose(disposal->options->ctx, disposal->member);
    return 0;
}

/* The end of a member; its place stays taken. */
static void dispose(const struct fiber_pool_options *options, union weft_value member)
{
    struct disposal disposal = {options, member};

    if (options->dispose != NULL)
        (void)fiber_shield(dispose_shielded, &disposal);
}

static void leave_place(struct weft_runtime *rt, struct weft_pool *pool)
{
    weft__pool_leave_place(pool);
    weft__after_wakes(rt);
}

static void give_back(struct weft_runtime *rt, struct weft_pool *pool,
                      const struct fiber_pool_options *options, union weft_value member,
                      uint64_t generation, bool good)
{
    if (good && generation == pool->generation) {
        weft__pool_give(pool, member);
        weft__after_wakes(rt);
        return;
    }
    dispose(options, member);
    leave_place(rt, pool);
}

/* A member, or a place for one: as weft__pool_take, but waits. */
static int take(struct weft_runtime *rt, struct fiber *self, struct weft_pool *pool,
                union weft_value *member, weft_time deadline)
{
    int rc = weft__pool_take(pool, member);
    struct fiber__sync s;

    if (rc != WEFT__WAITS)
        return rc;
    if (is_now(deadline))
        return -ETIMEDOUT;
    fiber__sync_begin(&s, rt, self, weft__pool_leave, "a pool", deadline);
    weft__pool_enter(pool, &s.wait);
    rc = fiber__sync_park(&s);
    *member = s.wait.value;
    return rc;
}

static int use(struct weft_runtime *rt, struct fiber *self, struct weft_pool *pool,
               const struct fiber_pool_options *options,
               int (*fn)(union weft_value member, void *arg), void *arg, weft_time deadline)
{
    uint64_t generation = pool->generation; /* a clear while it waits may concern what it gets */
    union weft_value member;
    int rc = take(rt, self, pool, &member, deadline);

    if (rc < 0)
        return rc;
    if (rc == 0 && self->cancelled) { /* since it was handed over: unused */
        give_back(rt, pool, options, member, generation, true);
        return -ECANCELED;
    }
    if (rc == WEFT__STALE ||
        (rc == 0 && options->validate != NULL && !options->validate(options->ctx, member))) {
        dispose(options, member);
        rc = WEFT__RUNS;
    }
    if (rc == WEFT__RUNS) {
        generation = pool->generation;
        rc = self->cancelled || pool->destroyed ? -ECANCELED
                                                : options->create(options->ctx, &member);
        if (rc < 0) {
            leave_place(rt, pool);
            return rc;
        }
    }
    rc = fn(member, arg);
    give_back(rt, pool, options, member, generation,
              rc >= 0 || options->check == NULL || options->check(options->ctx, member, rc));
    return rc;
}

int fiber_pool_use(struct weft_pool *pool, const struct fiber_pool_options *options,
                   int (*fn)(union weft_value member, void *arg), void *arg, weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    struct fiber *self = fiber__self(rt);
    int rc = fiber__sync_may(rt, self, fn == NULL || check_options(options) < 0 ? NULL : pool);

    if (rc < 0)
        return rc;
    weft__pool_ref(pool);
    rc = use(rt, self, pool, options, fn, arg, deadline);
    weft__pool_unref(pool);
    return rc;
}

int fiber_pool_clear(struct weft_pool *pool, const struct fiber_pool_options *options)
{
    struct weft_runtime *rt = weft__rt;
    struct fiber *self = fiber__self(rt);
    union weft_value member;

    if (self == NULL)
        return fiber__cannot_wait(rt);
    if (pool == NULL || check_options(options) < 0)
        return -EINVAL;
    weft__pool_ref(pool);
    weft__pool_renew(pool);
    while (pool->stale > 0 && weft__pool_withdraw(pool, &member)) {
        dispose(options, member);
        leave_place(rt, pool);
    }
    weft__pool_unref(pool);
    return 0;
}
