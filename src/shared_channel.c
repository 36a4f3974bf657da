/* shared_channel.c: a queue of items under a lock, and two queues of those who wait.
 *
 * Only one of these is ever not empty: the senders' (the channel is full then) or the receivers' (it
 * is empty). Who comes and finds somebody waiting hands over directly: under the lock it takes the
 * other out of the queue, leaves the item with it, and pushes its task into its runtime's inbox; so
 * a wait that is in no queue has a task on its way, and can't be given up any more. That runtime is
 * woken after the lock is left.
 *
 * A thread without a runtime waits on a condition variable of its own, on its stack: it is signalled
 * under the lock, which the thread must have again before it goes on.
 *
 * No user code runs, nothing is allocated and no runtime is woken under the lock, which no thread holds
 * for longer than a few dozen instructions.
 */
#include "shared_channel.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define WAKES 16 /* at a time, when it is closed */

struct weft_shared_channel {
    pthread_mutex_t lock;
    atomic_size_t refs;
    const struct weft_cluster *cluster;
    void (*destroy)(void *ptr);
    struct queue {
        struct weft__shared_wait *first; /* a circle; NULL: empty */
    } senders, receivers;
    bool closed;
    size_t capacity, first, count;
    union weft_value items[];
};

/* ---- queues ---- */

static void enter(struct queue *queue, struct weft__shared_wait *wait)
{
    struct weft__shared_wait *first = queue->first;

    if (first == NULL) {
        wait->next = wait->prev = wait;
        queue->first = wait;
        return;
    }
    wait->next = first;
    wait->prev = first->prev;
    first->prev->next = wait;
    first->prev = wait;
}

static void leave(struct queue *queue, struct weft__shared_wait *wait)
{
    struct weft__shared_wait *next = wait->next;

    if (next == wait) {
        queue->first = NULL;
    } else {
        wait->prev->next = next;
        next->prev = wait->prev;
        if (queue->first == wait)
            queue->first = next;
    }
    wait->next = NULL;
}

/* Ends the wait of the first in the queue. Its memory may be gone afterwards. Returns its inbox, to be
 * nudged after the lock is left; NULL: a thread, which has been told. */
static struct weft_inbox *wake_first(struct queue *queue, int status)
{
    struct weft__shared_wait *wait = queue->first;
    struct weft_inbox *inbox = wait->inbox;

    leave(queue, wait);
    wait->status = status;
    if (inbox == NULL)
        pthread_cond_signal(wait->changed);
    else /* it is open: a runtime that ends evicts its guests first */
        weft__inbox_push(inbox, &wait->task);
    return inbox;
}

static void unlock(struct weft_shared_channel *channel, struct weft_inbox *woken)
{
    pthread_mutex_unlock(&channel->lock);
    if (woken != NULL)
        weft__inbox_nudge(woken);
}

static size_t at(const struct weft_shared_channel *channel, size_t offset)
{
    size_t index = channel->first + offset;

    return index < channel->capacity ? index : index - channel->capacity;
}

/* ---- waiting ---- */

/* The wait is over, on its own thread. */
static void depart(struct weft__shared_wait *wait)
{
    struct weft_shared_channel *channel = wait->channel;

    weft__guest_remove(&wait->guest);
    if (channel->cluster == NULL)
        weft_inbox_unref(wait->inbox);
    weft_shared_channel_unref(channel);
}

static void run_over(struct weft_task *task)
{
    struct weft__shared_wait *wait = weft__container(task, struct weft__shared_wait, task);

    depart(wait);
    wait->over(wait);
}

static void evict(struct weft__guest *guest)
{
    struct weft__shared_wait *wait = weft__container(guest, struct weft__shared_wait, guest);

    if (weft__shared_leave(wait))
        wait->evicted(wait);
}

static void arrive(struct weft_runtime *rt, struct weft_shared_channel *channel,
                   struct weft__shared_wait *wait, struct queue *queue)
{
    wait->channel = channel;
    wait->sends = queue == &channel->senders;
    enter(queue, wait);
    if (rt == NULL) {
        wait->inbox = NULL;
        return;
    }
    wait->task.run = run_over;
    wait->inbox = rt->inbox;
    weft_shared_channel_ref(channel);
    weft__guest_add(rt, &wait->guest, evict);
    if (channel->cluster == NULL) /* from outside, for all we know */
        weft__inbox_hold(wait->inbox);
}

bool weft__shared_leave(struct weft__shared_wait *wait)
{
    struct weft_shared_channel *channel = wait->channel;
    bool left;

    pthread_mutex_lock(&channel->lock);
    left = wait->next != NULL;
    if (left)
        leave(wait->sends ? &channel->senders : &channel->receivers, wait);
    pthread_mutex_unlock(&channel->lock);
    if (left)
        depart(wait);
    return left;
}

static int check(const struct weft_runtime *rt, const struct weft_shared_channel *channel)
{
    if (channel == NULL)
        return -EINVAL;
    if (channel->cluster != NULL && (rt == NULL || rt->inbox->cluster != channel->cluster))
        return -EPERM;
    return 0;
}

int weft__shared_send(struct weft_runtime *rt, struct weft_shared_channel *channel,
                      union weft_value value, struct weft__shared_wait *wait)
{
    struct weft_inbox *woken = NULL;
    int rc = check(rt, channel);

    if (rc < 0)
        return rc;
    pthread_mutex_lock(&channel->lock);
    if (channel->closed) {
        rc = -EPIPE;
    } else if (channel->receivers.first != NULL) {
        channel->receivers.first->value = value;
        woken = wake_first(&channel->receivers, 0);
    } else if (channel->count < channel->capacity) {
        channel->items[at(channel, channel->count)] = value;
        channel->count++;
    } else {
        rc = WEFT__SHARED_WAITS;
        if (wait != NULL) {
            wait->value = value;
            arrive(rt, channel, wait, &channel->senders);
        }
    }
    unlock(channel, woken);
    return rc;
}

int weft__shared_recv(struct weft_runtime *rt, struct weft_shared_channel *channel,
                      union weft_value *value, struct weft__shared_wait *wait)
{
    struct weft__shared_wait *sender;
    struct weft_inbox *woken = NULL;
    int rc = check(rt, channel);

    if (rc < 0)
        return rc;
    pthread_mutex_lock(&channel->lock);
    sender = channel->senders.first;
    if (channel->count > 0) {
        *value = channel->items[channel->first];
        channel->first = at(channel, 1);
        channel->count--;
        if (sender != NULL) {
            channel->items[at(channel, channel->count)] = sender->value;
            channel->count++;
            woken = wake_first(&channel->senders, 0);
        }
    } else if (sender != NULL) { /* there is room for none */
        *value = sender->value;
        woken = wake_first(&channel->senders, 0);
    } else if (channel->closed) {
        rc = -ENODATA;
    } else {
        rc = WEFT__SHARED_WAITS;
        if (wait != NULL)
            arrive(rt, channel, wait, &channel->receivers);
    }
    unlock(channel, woken);
    return rc;
}

/* ---- the public rest ---- */

struct weft_shared_channel *weft_shared_channel_create(const struct weft_cluster *cluster,
                                                       size_t capacity, void (*destroy)(void *ptr))
{
    struct weft_shared_channel *channel;
    pthread_mutexattr_t spinning;

    if (capacity > (SIZE_MAX / 2 - sizeof *channel) / sizeof channel->items[0])
        return NULL;
    channel = calloc(1, sizeof *channel + capacity * sizeof channel->items[0]);
    if (channel == NULL)
        return NULL;
    pthread_mutexattr_init(&spinning); /* a little, before it sleeps */
    pthread_mutexattr_settype(&spinning, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&channel->lock, &spinning);
    pthread_mutexattr_destroy(&spinning);
    atomic_init(&channel->refs, 1);
    channel->cluster = cluster;
    channel->destroy = destroy;
    channel->capacity = capacity;
    return channel;
}

struct weft_shared_channel *weft_shared_channel_ref(struct weft_shared_channel *channel)
{
    if (channel != NULL)
        atomic_fetch_add(&channel->refs, 1);
    return channel;
}

void weft_shared_channel_unref(struct weft_shared_channel *channel)
{
    if (channel == NULL || atomic_fetch_sub(&channel->refs, 1) > 1)
        return;
    for (size_t i = 0; i < channel->count && channel->destroy != NULL; i++)
        channel->destroy(channel->items[at(channel, i)].ptr);
    pthread_mutex_destroy(&channel->lock);
    free(channel);
}

void (*weft__shared_destroy(const struct weft_shared_channel *channel))(void *ptr)
{
    return channel->destroy;
}

void weft_shared_channel_close(struct weft_shared_channel *channel)
{
    struct weft_inbox *woken[WAKES];
    unsigned count;

    if (channel == NULL)
        return;
    do { /* those who wait can't become more, once it is closed */
        count = 0;
        pthread_mutex_lock(&channel->lock);
        channel->closed = true;
        while (count < WAKES && channel->senders.first != NULL)
            woken[count++] = wake_first(&channel->senders, -EPIPE);
        while (count < WAKES && channel->receivers.first != NULL)
            woken[count++] = wake_first(&channel->receivers, -ENODATA);
        pthread_mutex_unlock(&channel->lock);
        for (unsigned i = 0; i < count; i++)
            if (woken[i] != NULL)
                weft__inbox_nudge(woken[i]);
    } while (count == WAKES);
}

bool weft_shared_channel_is_closed(struct weft_shared_channel *channel)
{
    bool closed = false;

    if (channel != NULL) {
        pthread_mutex_lock(&channel->lock);
        closed = channel->closed;
        pthread_mutex_unlock(&channel->lock);
    }
    return closed;
}

size_t weft_shared_channel_count(struct weft_shared_channel *channel)
{
    size_t count = 0;

    if (channel != NULL) {
        pthread_mutex_lock(&channel->lock);
        count = channel->count;
        pthread_mutex_unlock(&channel->lock);
    }
    return count;
}

int weft_shared_channel_try_send(struct weft_shared_channel *channel, union weft_value value)
{
    int rc = weft__shared_send(weft__rt, channel, value, NULL);

    return rc == WEFT__SHARED_WAITS ? -EAGAIN : rc;
}

int weft_shared_channel_try_recv(struct weft_shared_channel *channel, union weft_value *value)
{
    int rc = value == NULL ? -EINVAL : weft__shared_recv(weft__rt, channel, value, NULL);

    return rc == WEFT__SHARED_WAITS ? -EAGAIN : rc;
}

/* ---- threads without a runtime ---- */

/* A deadline for pthread_cond_timedwait on CLOCK_MONOTONIC. */
static struct timespec to_timespec(weft_time at)
{
    return (struct timespec){.tv_sec = at / WEFT_SEC(1), .tv_nsec = at % WEFT_SEC(1)};
}

static int await_end(struct weft__shared_wait *wait, weft_time deadline)
{
    struct weft_shared_channel *channel = wait->channel;
    struct timespec until = to_timespec(deadline);
    int rc = 0;

    pthread_mutex_lock(&channel->lock);
    while (wait->next != NULL && rc == 0)
        rc = deadline == WEFT_FOREVER
                 ? pthread_cond_wait(wait->changed, &channel->lock)
                 : pthread_cond_timedwait(wait->changed, &channel->lock, &until);
    if (wait->next != NULL) {
        leave(wait->sends ? &channel->senders : &channel->receivers, wait);
        wait->status = -ETIMEDOUT;
    }
    pthread_mutex_unlock(&channel->lock);
    return wait->status;
}

/* Sends *value, or receives it. */
static int transfer(struct weft_shared_channel *channel, union weft_value *value, bool sends,
                    weft_time deadline)
{
    struct weft__shared_wait wait, *may_wait = deadline <= WEFT_NOWAIT ? NULL : &wait;
    pthread_condattr_t monotonic;
    pthread_cond_t changed;
    int rc;

    if (weft__rt != NULL)
        return -EDEADLK;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    wait.changed = &changed;
    rc = sends ? weft__shared_send(NULL, channel, *value, may_wait)
               : weft__shared_recv(NULL, channel, value, may_wait);
    if (rc == WEFT__SHARED_WAITS && may_wait == NULL) {
        rc = -ETIMEDOUT;
    } else if (rc == WEFT__SHARED_WAITS) {
        rc = await_end(&wait, deadline);
        if (rc == 0)
            *value = wait.value;
    }
    pthread_cond_destroy(&changed);
    return rc;
}

int weft_shared_channel_send(struct weft_shared_channel *channel, union weft_value value,
                             weft_time deadline)
{
    return transfer(channel, &value, true, deadline);
}

int weft_shared_channel_recv(struct weft_shared_channel *channel, union weft_value *value,
                             weft_time deadline)
{
    return value == NULL ? -EINVAL : transfer(channel, value, false, deadline);
}
