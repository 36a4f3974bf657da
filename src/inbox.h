/* inbox.h: work from other threads. See inbox.c. */
#ifndef WEFT_INBOX_H
#define WEFT_INBOX_H

#include "runtime_internal.h"

struct weft_inbox {
    _Atomic(struct weft_task *) head; /* newest first; CLOSED: the runtime has ended */
    atomic_bool asleep;
    atomic_size_t users;
    atomic_size_t refs;    /* on the memory; one is the runtime's until it ends */
    atomic_size_t holders; /* of the others: who may still post */
    struct weft__engine *engine;
    const struct weft_cluster
        *cluster; /* whose runtime it is; NULL: of none. Only to be compared */

    /* Counters for other threads. `told` is even, or odd while they are being written; 0: never. */
    atomic_uint told;
    _Atomic uint64_t counters[sizeof(struct weft_stats) / sizeof(uint64_t)];
    struct weft_task tell;
    atomic_bool asked; /* `tell` is posted */
};
_Static_assert(sizeof(struct weft_stats) % sizeof(uint64_t) == 0, "copied in words");

struct weft_inbox *weft__inbox_create(struct weft__engine *engine);

/* True if something has been posted. */
static inline bool weft__inbox_pending(const struct weft_inbox *inbox)
{
    return atomic_load_explicit(&inbox->head, memory_order_relaxed) != NULL;
}

/* True if somebody besides the runtime holds a reference: more may come. */
static inline bool weft__inbox_held(const struct weft_inbox *inbox)
{
    return atomic_load(&inbox->holders) > 0;
}

/* Says that the runtime is about to sleep, so that a post must wake the engine. False: something
 * has been posted already, don't sleep; or it is `lonely` (nothing but a post can wake it), and
 * nobody can post any more. */
bool weft__inbox_sleep(struct weft_inbox *inbox, bool lonely);

static inline void weft__inbox_awake(struct weft_inbox *inbox)
{
    atomic_store_explicit(&inbox->asleep, false, memory_order_relaxed);
}

/* The same where nobody else can post: only this thread can let others, as the engine may before it
 * waits, and they then see what it wrote before. So no fence is needed. False: somebody can, or has
 * posted. */
static inline bool weft__inbox_sleep_alone(struct weft_inbox *inbox)
{
    /* the head last: what the last one posted before it left is seen */
    if (inbox->cluster != NULL || weft__inbox_held(inbox) || weft__inbox_pending(inbox))
        return false;
    atomic_store_explicit(&inbox->asleep, true, memory_order_relaxed);
    return true;
}

/* Runs what had been posted when it was called. True if there was anything. */
bool weft__inbox_run(struct weft_inbox *inbox);

/* Refuses what is posted from now on, if nothing is left to run (else false), and waits for those
 * who are still in weft_post: after that no thread touches the engine. */
bool weft__inbox_close(struct weft_inbox *inbox);

/* Writes the counters down for other threads. Runtime's thread. */
void weft__inbox_tell(struct weft_inbox *inbox);

/* weft_post in two steps, for those who hand over under a lock and wake when they have left it. After
 * a push that returned 0 there must be one nudge; in between the engine stays. */
int weft__inbox_push(struct weft_inbox *inbox, struct weft_task *task);
void weft__inbox_nudge(struct weft_inbox *inbox);

/* One more reference as weft_inbox_ref gives them, given back by weft_inbox_unref. Any thread that
 * has one, or the runtime's. */
void weft__inbox_hold(struct weft_inbox *inbox);

/* A reference to the memory alone, for those who don't count as outside; as the runtime's own. */
void weft__inbox_retain(struct weft_inbox *inbox);
void weft__inbox_release(struct weft_inbox *inbox);

#endif
