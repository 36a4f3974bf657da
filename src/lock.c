/* lock.c: mutex, condition, read-write lock.
 *
 * While somebody waits for a mutex it is locked: unlocking passes it on. Whoever waits at a condition
 * with a mutex in hand moves from the condition's queue straight into the mutex's, whatever has ended
 * its wait, and is woken when it has the mutex.
 */
#include "sync_core.h"

#include <stdlib.h>

_Static_assert(sizeof(struct weft_mutex) == 32 && sizeof(struct weft_condition) == 32 &&
                   sizeof(struct weft_rwlock) == 32,
               "part of the ABI");

/* ---- mutex ---- */

bool weft__mutex_leave(struct weft__wait *wait, int why)
{
    struct weft_mutex *mutex = wait->object;

    (void)why;
    weft__remove(&mutex->waits, wait);
    return true;
}

void weft_mutex_init(struct weft_mutex *mutex)
{
    if (mutex != NULL)
        *mutex = (struct weft_mutex){0};
}

void weft_mutex_finish(struct weft_mutex *mutex)
{
    if (mutex != NULL)
        weft__finish_waits(&mutex->waits);
}

struct weft_mutex *weft_mutex_create(void)
{
    return calloc(1, sizeof(struct weft_mutex));
}

void weft_mutex_destroy(struct weft_mutex *mutex)
{
    weft_mutex_finish(mutex);
    free(mutex);
}

int weft_mutex_try_lock(struct weft_mutex *mutex)
{
    struct weft_runtime *rt = weft__rt;
    int rc = rt == NULL || mutex == NULL ? -EINVAL : weft__mutex_lock(mutex, weft__self(rt));

    return rc == WEFT__WAITS ? -EAGAIN : rc;
}

int weft_mutex_unlock(struct weft_mutex *mutex)
{
    struct weft_runtime *rt = weft__rt;

    if (weft__unlikely(rt == NULL || mutex == NULL))
        return -EINVAL;
    if (weft__unlikely(!weft__is_owner(rt, mutex->owner)))
        return -EPERM;
    weft__mutex_pass(mutex);
    weft__after_wakes(rt);
    return 0;
}

void weft_mutex_poison(struct weft_mutex *mutex)
{
    struct weft_runtime *rt = weft__rt;
    struct weft_link *returning = NULL;

    if (rt == NULL || mutex == NULL)
        return;
    mutex->poisoned = true;
    while (mutex->waits != NULL) {
        struct weft__wait *wait = weft__pop(&mutex->waits);

        if (wait->waiter.link.flags & WEFT__RETURNS)
            weft__enter(&returning, wait);
        else
            weft__wake(wait, -EOWNERDEAD);
    }
    mutex->waits = returning;
    weft__after_wakes(rt);
}

void weft_mutex_clear(struct weft_mutex *mutex)
{
    if (mutex != NULL)
        mutex->poisoned = false;
}

bool weft_mutex_is_locked(const struct weft_mutex *mutex)
{
    return mutex != NULL && mutex->owner != NULL;
}

bool weft_mutex_is_awaited(const struct weft_mutex *mutex)
{
    return mutex != NULL && mutex->waits != NULL;
}

bool weft_mutex_is_poisoned(const struct weft_mutex *mutex)
{
    return mutex != NULL && mutex->poisoned;
}

/* ---- condition ---- */

/* The wait, out of the condition's queue, has this outcome as soon as it has its mutex. True: at
 * once. */
static bool take_mutex_again(struct weft__wait *wait, int status)
{
    struct weft_mutex *mutex = wait->object;

    wait->status = status;
    if (mutex == NULL)
        return true;
    if (mutex->owner == NULL) {
        mutex->owner = wait->owner;
        return true;
    }
    wait->waiter.link.flags = WEFT__RETURNS;
    weft__enter(&mutex->waits, wait);
    return false;
}

bool weft__condition_leave(struct weft__wait *wait, int why)
{
    struct weft_condition *condition = wait->value.ptr;

    if (wait->waiter.link.flags & WEFT__RETURNS)
        return false;
    weft__remove(&condition->waits, wait);
    return take_mutex_again(wait, why);
}

bool weft__condition_tell(struct weft_condition *condition, int status, union weft_value value)
{
    struct weft__wait *wait;

    if (condition->waits == NULL)
        return false;
    wait = weft__pop(&condition->waits);
    wait->value = value;
    if (take_mutex_again(wait, status))
        wait->waiter.wake(&wait->waiter);
    return true;
}

void weft_condition_init(struct weft_condition *condition)
{
    if (condition != NULL)
        *condition = (struct weft_condition){0};
}

void weft_condition_finish(struct weft_condition *condition)
{
    struct weft_runtime *rt = weft__rt;

    if (condition == NULL)
        return;
    if (rt == NULL) {
        condition->waits = NULL;
        return;
    }
    while (weft__condition_tell(condition, -ECANCELED, weft_num(0)))
        ;
    weft__after_wakes(rt);
}

struct weft_condition *weft_condition_create(void)
{
    return calloc(1, sizeof(struct weft_condition));
}

void weft_condition_destroy(struct weft_condition *condition)
{
    weft_condition_finish(condition);
    free(condition);
}

void weft_condition_signal(struct weft_condition *condition)
{
    struct weft_runtime *rt = weft__rt;

    if (rt == NULL || condition == NULL)
        return;
    weft__condition_tell(condition, 0, weft_num(0));
    weft__after_wakes(rt);
}

void weft_condition_broadcast(struct weft_condition *condition)
{
    struct weft_runtime *rt = weft__rt;

    if (rt == NULL || condition == NULL)
        return;
    while (weft__condition_tell(condition, 0, weft_num(0)))
        ;
    weft__after_wakes(rt);
}

/* ---- read-write lock ---- */

int weft__rwlock_lock(struct weft_rwlock *lock, void *self, bool writes)
{
    if (lock->writer != NULL)
        return lock->writer == self && self != WEFT__ANYBODY ? -EDEADLK : WEFT__WAITS;
    if (lock->waits != NULL || (writes && lock->readers > 0))
        return WEFT__WAITS;
    if (writes)
        lock->writer = self;
    else
        lock->readers++;
    return 0;
}

void weft__rwlock_enter(struct weft_rwlock *lock, struct weft__wait *wait, bool writes)
{
    wait->object = lock;
    wait->waiter.link.flags = writes ? WEFT__WRITES : 0;
    weft__enter(&lock->waits, wait);
}

/* Lets those in who are first and can be: one writer, or all readers up to the next writer. */
static void let_in(struct weft_rwlock *lock)
{
    while (lock->waits != NULL && lock->writer == NULL) {
        struct weft__wait *wait = weft__first(lock->waits);

        if (!(wait->waiter.link.flags & WEFT__WRITES))
            lock->readers++;
        else if (lock->readers == 0)
            lock->writer = wait->owner;
        else
            return;
        weft__remove(&lock->waits, wait);
        weft__wake(wait, 0);
    }
}

bool weft__rwlock_leave(struct weft__wait *wait, int why)
{
    struct weft_rwlock *lock = wait->object;

    (void)why;
    weft__remove(&lock->waits, wait);
    let_in(lock); /* readers may have waited behind it */
    return true;
}

void weft_rwlock_init(struct weft_rwlock *lock)
{
    if (lock != NULL)
        *lock = (struct weft_rwlock){0};
}

void weft_rwlock_finish(struct weft_rwlock *lock)
{
    if (lock != NULL)
        weft__finish_waits(&lock->waits);
}

static int try_lock(struct weft_rwlock *lock, bool writes)
{
    struct weft_runtime *rt = weft__rt;
    int rc = rt == NULL || lock == NULL ? -EINVAL : weft__rwlock_lock(lock, weft__self(rt), writes);

    return rc == WEFT__WAITS ? -EAGAIN : rc;
}

int weft_rwlock_try_read(struct weft_rwlock *lock)
{
    return try_lock(lock, false);
}

int weft_rwlock_try_write(struct weft_rwlock *lock)
{
    return try_lock(lock, true);
}

int weft_rwlock_unlock(struct weft_rwlock *lock)
{
    struct weft_runtime *rt = weft__rt;

    if (rt == NULL || lock == NULL)
        return -EINVAL;
    if (lock->writer != NULL) {
        if (!weft__is_owner(rt, lock->writer))
            return -EPERM;
        lock->writer = NULL;
    } else if (lock->readers > 0) {
        lock->readers--;
    } else {
        return -EPERM;
    }
    let_in(lock);
    weft__after_wakes(rt);
    return 0;
}

int weft_rwlock_downgrade(struct weft_rwlock *lock)
{
    struct weft_runtime *rt = weft__rt;

    if (rt == NULL || lock == NULL)
        return -EINVAL;
    if (lock->writer == NULL || !weft__is_owner(rt, lock->writer))
        return -EPERM;
    lock->writer = NULL;
    lock->readers = 1;
    let_in(lock);
    weft__after_wakes(rt);
    return 0;
}
