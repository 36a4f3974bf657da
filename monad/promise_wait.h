/* promise_wait.h: what locks, mailboxes, pools, streams and events are made of: queues of waits,
 * jobs, and counted objects.
 *
 * A wait stands in a queue until somebody hands it an outcome. It is embedded on the waiting side's
 * own memory: behind a promise's block (promise__wait_create), or wherever else a struct
 * weft_waiter may stand, a stack included. Queues are FIFO, and a wait leaves in O(1) without
 * knowing its queue. Whoever wakes a wait has changed its own state first; from then on a cancel
 * comes too late.
 *
 * No callback runs inside: a promise that is settled here has its callbacks put off
 * (promise_resolve_later everywhere), and each public function ends with promise__flush, which runs
 * them if no settlement is going on. So an object never changes under the hands of the function
 * that works on it.
 */
#ifndef PROMISE_WAIT_H
#define PROMISE_WAIT_H

#include "promise_internal.h"

/* ---- queues of waits ---- */

struct promise__waits {
    struct weft_link head; /* of a circle */
};

/* The outcome is set by whoever wakes it, and means what the same fields of a promise mean. */
struct promise__wait {
    struct weft_waiter waiter;
    union weft_value value;
    void (*destroy)(void *ptr);
    struct promise *source; /* counted */
    int status;
};

static inline void promise__waits_init(struct promise__waits *waits)
{
    waits->head = (struct weft_link){.next = &waits->head, .prev = &waits->head};
}

static inline bool promise__waits_empty(const struct promise__waits *waits)
{
    return waits->head.next == &waits->head;
}

/* The wait after `wait`, or the first one; NULL: there is none. */
static inline struct promise__wait *promise__waits_next(const struct promise__waits *waits,
                                                        const struct promise__wait *wait)
{
    struct weft_link *next = wait != NULL ? wait->waiter.link.next : waits->head.next;

    return next == &waits->head ? NULL : weft__container(next, struct promise__wait, waiter.link);
}

static inline struct promise__wait *promise__waits_first(const struct promise__waits *waits)
{
    return promise__waits_next(waits, NULL);
}

static inline void promise__waits_append(struct promise__waits *waits, struct promise__wait *wait)
{
    struct weft_link *link = &wait->waiter.link, *last = waits->head.prev;

    link->prev = last;
    link->next = &waits->head;
    last->next = link;
    waits->head.prev = link;
}

/* Harmless if it is in no queue. */
static inline void promise__wait_remove(struct promise__wait *wait)
{
    struct weft_link *link = &wait->waiter.link;

    if (link->next == NULL)
        return;
    link->prev->next = link->next;
    link->next->prev = link->prev;
    link->next = NULL;
}

/* Takes the wait out and hands it its outcome: 0 and a value, or a negative status. Its memory
 * may be gone afterwards. */
static inline void promise__wake(struct promise__wait *wait, int status, union weft_value value,
                                 void (*destroy)(void *ptr))
{
    promise__wait_remove(wait);
    wait->status = status;
    wait->value = value;
    wait->destroy = destroy;
    wait->source = NULL;
    wait->waiter.wake(&wait->waiter);
}

/* The same, with the outcome of settled `x`, one reference of which is consumed. */
void promise__wake_like(struct promise__state *st, struct promise__wait *wait, struct promise *x);

/* Makes a task that waits: `size` bytes that begin with a struct promise__wait, the rest zeroed.
 * A cancel takes it out of its queue; `cancel`, if not NULL, does so and what else there is to
 * do without running user code. NULL in *wait: no memory, and the promise says so. */
struct promise *promise__wait_make(struct promise__state *st, size_t size,
                                   void (*cancel)(struct promise *promise),
                                   struct promise__wait **wait);

static inline struct promise *promise__wait_create(struct promise__state *st,
                                                   struct promise__waits *waits)
{
    struct promise__wait *wait;
    struct promise *p = promise__wait_make(st, sizeof *wait, NULL, &wait);

    if (wait != NULL)
        promise__waits_append(waits, wait);
    return p;
}

/* Cancels all that wait. */
void promise__waits_finish(struct promise__waits *waits);

/* ---- callbacks put off ---- */

/* `x` has just been settled by hand: its callbacks run with the next flush. */
void promise__defer(struct promise__state *st, struct promise *x);

/* Settles pending `p`, which nobody else settles, and consumes the reference. */
void promise__settle_later(struct promise__state *st, struct promise *p, int status,
                           union weft_value value);
/* The same with a value that the promise owns (destroy NULL: it doesn't). */
void promise__settle_later_owned(struct promise__state *st, struct promise *p, int status,
                                 union weft_value value, void (*destroy)(void *ptr));

void promise__flush_slow(struct promise__state *st);

static inline void promise__flush(struct promise__state *st)
{
    if (st->deferred != NULL && st->depth == 0)
        promise__flush_slow(st);
}

/* promise__cell without a block if the handle can hold the value. */
static inline struct promise *promise__element(struct promise__state *st, union weft_value value,
                                               void (*destroy)(void *ptr))
{
    if (destroy == NULL && promise__immediate_fits(value))
        return promise__immediate_of(value);
    return promise__cell(st, value, destroy);
}

/* Gives a cell or element back, and its value to the caller. */
static inline void promise__disown(struct promise__state *st, struct promise *element)
{
    if (!promise__immediate(element))
        element->destroy = NULL;
    promise__release(st, element);
}

static inline union weft_value promise__element_value(const struct promise *element)
{
    return promise__immediate(element) ? promise__immediate_value(element) : element->value;
}

/* ---- jobs ----
 *
 * A job is a computation in steps behind one promise, in the memory behind it. A step gets a
 * settled promise (a reference) and gives the next one to wait for, or NULL after it has ended the
 * job; it may set job->step. Steps run on the base stack, with the local values of the place that
 * started the job; settled promises are worked off in a loop. Waiting takes no memory, so a job that
 * has begun gets to its end. Canceling the job's promise cancels what it waits for. */

struct promise__job;
typedef struct promise *promise__step_fn(struct promise__job *job, struct promise *settled);

struct promise__job {
    struct weft_waiter waiter; /* in the list of the awaited promise */
    struct promise *awaited;   /* counted; NULL: a step is running */
    promise__step_fn *step;
    uint64_t epoch; /* the search that came here last */
    bool framed;    /* the settled promise is held by the frame that woke the job, too */
};

/* `size` bytes that begin with a struct promise__job, zeroed. *job NULL: no memory, the promise
 * says so. */
struct promise *promise__job_create(struct promise__state *st, size_t size, promise__step_fn *step,
                                    void *job_pointer);

/* Begins by waiting for `first`. Consumes the reference. */
void promise__job_start(struct promise__job *job, struct promise *first);

/* Settles the job's promise and gives up the job: the last thing a step does. */
void promise__job_end(struct promise__job *job, int status, union weft_value value,
                      void (*destroy)(void *ptr));
/* ... with the outcome of `settled`, consumed: a step's argument, or any other settled promise. */
void promise__job_end_like(struct promise__job *job, struct promise *settled);

/* Consumes a step's argument: its status, and its value if it is fulfilled: the caller's, if
 * nobody else holds it. */
int promise__job_take(struct promise__job *job, struct promise *settled, union weft_value *value);

/* Consumes a step's argument: its outcome, as a promise to be kept for a later step, or rejected with
 * -ENOMEM. Whoever takes that (promise__take) has the value, unless somebody else holds it. */
struct promise *promise__job_keep(struct promise__job *job, struct promise *settled);

/* ---- counted objects ----
 *
 * The count of an object is that of a promise whose value it is. So references are given back in
 * chains without recursion, leaks show where those of promises do, and the runtime's end destroys
 * what is left: destroy(object) is then called with promise__tls == NULL, in no order, and may only
 * free what is the object's alone. */

static inline struct promise *promise__object(struct promise__state *st, void *object,
                                              void (*destroy)(void *object))
{
    return promise__cell(st, weft_ptr(object), destroy);
}

static inline void promise__object_release(struct promise *self)
{
    if (promise__tls != NULL)
        promise__release(promise__tls, self);
}

/* ---- running on the base stack ---- */

/* fn(arg), on the base stack with the caller's local values. */
static inline void promise__call_on_base(struct promise__state *st, void (*fn)(void *arg),
                                         void *arg)
{
    if (weft__likely(weft__is_base(st->rt)))
        fn(arg);
    else
        promise__on_base(st, fn, arg);
}

#endif
