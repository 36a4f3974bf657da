/* source.h: what waiting for a process, for signals and for file events has in common: a descriptor
 * that becomes readable when there is something, and a queue of those who wait for it.
 *
 * Nothing is ever read ahead of a waiter: when the poll says that there is something, it is taken for
 * the first in the queue, at once, by a system call that doesn't wait. So a wait that is cancelled, or
 * late, has taken nothing, and leaves at once: only the poll is the kernel's, and it belongs to the
 * source, not to a waiter. There is a poll (or, for want of one, a timer) while somebody waits.
 *
 * A source is in memory of its own, which outlives its user's interest in it: ring__source_close
 * ends all waits, and the memory goes when the poll's last completion has come.
 */
#ifndef RING_SOURCE_H
#define RING_SOURCE_H

#include "ring_internal.h"

#include "waiter.h"

/* One who waits, embedded in the waiting side's memory. When it is woken it stands in no queue any
 * more, and `res` is what it waited for, or a negative errno. */
struct ring__wait {
    struct weft_waiter waiter;
    void *out; /* where what is taken goes; the source's kind says what that is */
    int res;
};

struct ring__source;

struct ring__source_class {
    const char *what; /* for reports */
    bool timed;       /* if there is nothing to poll, ask again and again */
    /* Takes what there is: >= 0, or a negative errno for who asks; -EAGAIN: nothing. Doesn't wait. */
    int (*take)(struct ring__source *source, void *out);
    /* Closed, and nothing refers to it any more: free all of it. */
    void (*free)(struct ring__source *source);
};

struct ring__source {
    const struct ring__source_class *class;
    struct ring_op op; /* the poll */
    struct weft_timer again;
    int64_t interval;
    struct weft_link waits;  /* head of a circle, first come first */
    uint64_t runtime;        /* where it was last used: the waits of another one are gone */
    struct weft_runtime *rt; /* the same */
    int fd;                  /* -1: none */
    bool polling;            /* the op is in flight */
    bool vain;               /* it found something, but there was nothing to take */
    bool delivering;
    bool closed;
};

void ring__source_init(struct ring__source *source, const struct ring__source_class *class, int fd);

/* Takes something if there is something, and nobody came before. -EAGAIN: wait. */
int ring__source_try(struct weft_runtime *rt, struct ring__source *source, void *out);

/* Queues a wait, `wake` and `out` of which are set, after ring__source_try has found nothing. 0, and
 * it will be woken, on the base stack; or a negative errno, and it won't. */
int ring__source_wait(struct weft_runtime *rt, struct ring__source *source,
                      struct ring__wait *wait);

/* Takes a wait that hasn't been woken out of the queue. */
void ring__source_leave(struct ring__source *source, struct ring__wait *wait);

/* Wakes all with -ECANCELED. The source may be gone afterwards. */
void ring__source_close(struct ring__source *source);

/* ---- the three kinds: the source to wait on, NULL if there is none ---- */

struct weft_process;
struct weft_signals;
struct weft_watch;

struct ring__source *ring__process_source(struct weft_process *process);
struct ring__source *ring__signals_source(struct weft_signals *signals);
struct ring__source *ring__watch_source(struct weft_watch *watch);

/* A status that is known already, or -EAGAIN; asks nobody. */
int ring__process_known(const struct weft_process *process);

/* ---- faults on purpose, for tests ---- */

/* Makes processes start, and be waited for, as if the kernel knew no pidfd. */
extern bool ring__no_pidfd;

#endif
