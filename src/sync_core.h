/* sync_core.h: what the objects of weft/sync.h are made of, for both styles that wait for them.
 *
 * Each object comes as a few functions on a struct weft__wait, which stands on the waiting side's own
 * memory: on a fiber's stack, behind a promise, in a case of fiber_select.
 *
 *     rc = weft__X_...(object, ...)     does it now if that can be: 0 or a negative errno is the
 *                                       outcome; WEFT__WAITS: nothing was done, one has to wait
 *     weft__X_enter(object, wait)       takes a place in the queue
 *     weft__X_leave(wait, why)          gives the place up. True: it is over, with `why`. False: the
 *                                       wait goes on and wake will be called: what was handed over
 *                                       already, or must be taken back first, can't be left any more
 *
 * Whoever hands something over changes the object, takes the wait out of the queue, sets its status
 * and value, and calls wake, once. wake queues a fiber or settles a promise; no user code runs inside.
 * What a settled promise sets off is run by weft__after_wakes, with which each public function ends
 * that may have woken somebody: by then it is through with the object, which may be gone afterwards.
 */
#ifndef WEFT_SYNC_CORE_H
#define WEFT_SYNC_CORE_H

#include <weft/sync.h>

#include "runtime_internal.h"
#include "waiter.h"

#include <errno.h>

#define WEFT__WAITS 1 /* a result beside 0 and the negative ones */
#define WEFT__RUNS  2 /* of once: the caller is to make the value; of a pool: the member */
#define WEFT__STALE \
    3 /* of a pool: the caller is to end this member, and then to make another one */

/* An owner that is no strand: a promise, or a callback. */
#define WEFT__ANYBODY ((void *)1)

/* link.flags */
#define WEFT__WRITES  1u /* of a read-write lock */
#define WEFT__RETURNS 2u /* to the mutex that it had: nothing ends that, its outcome is there */

struct weft__wait {
    struct weft_waiter waiter;
    union weft_value value; /* the item; how many units; what a signal says, until then where */
    void *object;           /* what leave needs; of a condition: the mutex to take again */
    void *owner;            /* whose the object will be */
    int status;             /* the outcome */
};

/* ---- queues: a circle of links, by its first one; NULL: empty ---- */

static inline void weft__enter(struct weft_link **queue, struct weft__wait *wait)
{
    struct weft_link *link = &wait->waiter.link, *first = *queue;

    if (first == NULL) {
        link->next = link->prev = link;
        *queue = link;
        return;
    }
    link->next = first;
    link->prev = first->prev;
    first->prev->next = link;
    first->prev = link;
}

/* Takes out a wait that is in the queue. */
static inline void weft__remove(struct weft_link **queue, struct weft__wait *wait)
{
    struct weft_link *link = &wait->waiter.link, *next = link->next;

    if (next == link) {
        *queue = NULL;
    } else {
        link->prev->next = next;
        next->prev = link->prev;
        if (*queue == link)
            *queue = next;
    }
    link->next = NULL;
}

static inline struct weft__wait *weft__first(struct weft_link *queue)
{
    return weft__container(queue, struct weft__wait, waiter.link);
}

/* Takes the first one out of a queue that has one. */
static inline struct weft__wait *weft__pop(struct weft_link **queue)
{
    struct weft__wait *first = weft__first(*queue);

    weft__remove(queue, first);
    return first;
}

/* Of a wait that is in no queue any more. Its memory may be gone afterwards. */
static inline void weft__wake(struct weft__wait *wait, int status)
{
    wait->status = status;
    wait->waiter.wake(&wait->waiter);
}

static inline void weft__wake_all(struct weft_link **queue, int status)
{
    while (*queue != NULL)
        weft__wake(weft__pop(queue), status);
}

/* The end of an object: wakes all with -ECANCELED, if there still is a runtime to wake them in. */
void weft__finish_waits(struct weft_link **queue);

static inline void weft__after_wakes(struct weft_runtime *rt)
{
    void (*settle)(struct weft_runtime *) = rt->after_wakes;

    if (weft__unlikely(settle != NULL)) {
        rt->after_wakes = NULL;
        settle(rt);
    }
}

/* Who the running code is to an owner. */
static inline void *weft__self(struct weft_runtime *rt)
{
    return weft__is_base(rt) ? WEFT__ANYBODY : (void *)rt->strand;
}

static inline bool weft__is_owner(const struct weft_runtime *rt, const void *owner)
{
    return owner == (const void *)rt->strand || owner == WEFT__ANYBODY;
}

/* ---- mutex and condition ---- */

static inline int weft__mutex_lock(struct weft_mutex *mutex, void *self)
{
    if (weft__unlikely(mutex->poisoned))
        return -EOWNERDEAD;
    if (weft__likely(mutex->owner == NULL)) {
        mutex->owner = self;
        return 0;
    }
    return mutex->owner == self && self != WEFT__ANYBODY ? -EDEADLK : WEFT__WAITS;
}

/* wait->owner is set. */
static inline void weft__mutex_enter(struct weft_mutex *mutex, struct weft__wait *wait)
{
    wait->object = mutex;
    wait->status = 0;
    wait->waiter.link.flags = 0;
    weft__enter(&mutex->waits, wait);
}

bool weft__mutex_leave(struct weft__wait *wait, int why);

/* Hands a locked mutex to the first who waits. */
static inline void weft__mutex_pass(struct weft_mutex *mutex)
{
    struct weft__wait *next;

    if (weft__likely(mutex->waits == NULL)) {
        mutex->owner = NULL;
        return;
    }
    next = weft__pop(&mutex->waits);
    mutex->owner = next->owner;
    next->waiter.wake(&next->waiter); /* its status says why it wanted the mutex */
}

/* `mutex` (NULL: none) is the owner's, and passed on. wait->owner is set. */
static inline void weft__condition_enter(struct weft_condition *condition, struct weft_mutex *mutex,
                                         struct weft__wait *wait)
{
    wait->object = mutex;
    wait->value.ptr = condition;
    wait->waiter.link.flags = 0;
    weft__enter(&condition->waits, wait);
    if (mutex != NULL)
        weft__mutex_pass(mutex);
}

bool weft__condition_leave(struct weft__wait *wait, int why);

/* Tells the first who waits; false: nobody does. */
bool weft__condition_tell(struct weft_condition *condition, int status, union weft_value value);

/* ---- read-write lock ---- */

int weft__rwlock_lock(struct weft_rwlock *lock, void *self, bool writes);
void weft__rwlock_enter(struct weft_rwlock *lock, struct weft__wait *wait, bool writes);
bool weft__rwlock_leave(struct weft__wait *wait, int why);

/* ---- semaphore ---- */

static inline int weft__semaphore_acquire(struct weft_semaphore *semaphore, int64_t units)
{
    if (weft__unlikely(units < 1))
        return -EINVAL;
    if (semaphore->units < units || semaphore->waits != NULL)
        return WEFT__WAITS;
    semaphore->units -= units;
    return 0;
}

static inline void weft__semaphore_enter(struct weft_semaphore *semaphore, struct weft__wait *wait,
                                         int64_t units)
{
    wait->object = semaphore;
    wait->value.num = units;
    weft__enter(&semaphore->waits, wait);
}

bool weft__semaphore_leave(struct weft__wait *wait, int why);

/* ---- event ---- */

static inline void weft__event_enter(struct weft_event *event, struct weft__wait *wait)
{
    wait->object = event;
    weft__enter(&event->waits, wait);
}

bool weft__event_leave(struct weft__wait *wait, int why);

/* ---- barrier ---- */

/* 0: it is the last one to come. */
int weft__barrier_arrive(struct weft_barrier *barrier);
void weft__barrier_enter(struct weft_barrier *barrier, struct weft__wait *wait);
bool weft__barrier_leave(struct weft__wait *wait, int why);

/* ---- once ---- */

/* WEFT__RUNS: the caller makes the value, and calls weft__once_made; a wait can end with that, too. */
int weft__once_begin(struct weft_once *once, void *self);
void weft__once_enter(struct weft_once *once, struct weft__wait *wait);
bool weft__once_leave(struct weft__wait *wait, int why);
void weft__once_made(struct weft_once *once, int status, union weft_value value);

/* ---- channel ---- */

static inline size_t weft__channel_at(const struct weft_channel *channel, size_t offset)
{
    size_t at = channel->first + offset;

    return at < channel->capacity ? at : at - channel->capacity;
}

static inline int weft__channel_send(struct weft_channel *channel, union weft_value value)
{
    if (channel->receivers != NULL) {
        struct weft__wait *receiver = weft__pop(&channel->receivers);

        receiver->value = value;
        weft__wake(receiver, 0);
        return 0;
    }
    if (weft__unlikely(channel->closed))
        return -EPIPE;
    if (channel->count == channel->capacity)
        return WEFT__WAITS;
    channel->items[weft__channel_at(channel, channel->count)] = value;
    channel->count++;
    return 0;
}

static inline int weft__channel_recv(struct weft_channel *channel, union weft_value *value)
{
    struct weft__wait *sender;

    if (channel->count > 0) {
        *value = channel->items[channel->first];
        channel->first = weft__channel_at(channel, 1);
        channel->count--;
        if (channel->senders == NULL)
            return 0;
        sender = weft__pop(&channel->senders);
        channel->items[weft__channel_at(channel, channel->count)] = sender->value;
        channel->count++;
    } else if (channel->senders != NULL) {
        sender = weft__pop(&channel->senders);
        *value = sender->value;
    } else {
        return channel->closed ? -ENODATA : WEFT__WAITS;
    }
    sender->value = weft_num(0); /* it is not the sender's any more */
    weft__wake(sender, 0);
    return 0;
}

/* Whether one would not have to wait. */
static inline bool weft__channel_can_send(const struct weft_channel *channel)
{
    return channel->receivers != NULL || channel->closed || channel->count < channel->capacity;
}

static inline bool weft__channel_can_recv(const struct weft_channel *channel)
{
    return channel->count > 0 || channel->senders != NULL || channel->closed;
}

/* The item that a receive would give now; there is one. */
static inline union weft_value weft__channel_next(const struct weft_channel *channel)
{
    return channel->count > 0 ? channel->items[channel->first]
                              : weft__first(channel->senders)->value;
}

static inline void weft__channel_enter_send(struct weft_channel *channel, struct weft__wait *wait,
                                            union weft_value value)
{
    wait->object = channel;
    wait->value = value;
    weft__enter(&channel->senders, wait);
}

static inline void weft__channel_enter_recv(struct weft_channel *channel, struct weft__wait *wait)
{
    wait->object = channel;
    weft__enter(&channel->receivers, wait);
}

bool weft__channel_leave_send(struct weft__wait *wait, int why);
bool weft__channel_leave_recv(struct weft__wait *wait, int why);

/* ---- pool ---- */

/* Counted: by its maker, and by each use. */
struct weft_pool {
    struct weft_link *waits;
    size_t waiting;
    size_t count, max;      /* places taken: by members, and by uses that make or end one */
    union weft_value *free; /* a ring of `room`, which is enough for all places taken */
    size_t free_first, free_count, room;
    size_t stale;        /* so many free ones, the first, are of an earlier generation */
    uint64_t generation; /* members of an earlier one are to be disposed of */
    size_t refs;
    bool destroyed;
};

static inline struct weft_pool *weft__pool_ref(struct weft_pool *pool)
{
    pool->refs++;
    return pool;
}

void weft__pool_unref(struct weft_pool *pool);

/* 0: *member; WEFT__RUNS: a place for a new one; WEFT__STALE. A wait can end with the first two.
 * -ENOMEM, -ECANCELED. */
int weft__pool_take(struct weft_pool *pool, union weft_value *member);
void weft__pool_enter(struct weft_pool *pool, struct weft__wait *wait);
bool weft__pool_leave(struct weft__wait *wait, int why);

/* A member is free; a place is free. */
void weft__pool_give(struct weft_pool *pool, union weft_value member);
void weft__pool_leave_place(struct weft_pool *pool);

/* A free member, which is not given to anybody else, or false. It keeps its place. */
bool weft__pool_withdraw(struct weft_pool *pool, union weft_value *member);

/* Begins a new generation: the free members are stale, and to be withdrawn while there are such. */
void weft__pool_renew(struct weft_pool *pool);

#endif
