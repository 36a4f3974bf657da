/* wait.c: see promise_wait.h. A woken wait's promise is settled in place; when its callbacks run
 * is the promise layer's queue of deferred settlements. */
#include "promise_wait.h"

/* ---- callbacks put off ---- */

/* A frame for `x`, whose reference is the frame's. */
static void enqueue(struct promise__state *st, struct promise *x)
{
    if (st->search != NULL) { /* settled by a cancel function: the search's owner runs it */
        x->link.next = st->search->top;
        st->search->top = &x->link;
        return;
    }
    x->link.next = NULL;
    if (st->deferred == NULL)
        st->deferred = x;
    else
        st->deferred_last->link.next = &x->link;
    st->deferred_last = x;
}

void promise__defer(struct promise__state *st, struct promise *x)
{
    if (x->waiters == NULL || weft__unlikely(st->stopped))
        return;
    if (!(x->link.flags & PROMISE__ACTIVE) && st->depth == 0 && st->search == NULL) {
        while (x->waiters != NULL) { /* only wakes tasks: no callback, no frame */
            struct weft_waiter *waiter = (struct weft_waiter *)(void *)promise__list_pop(x);

            waiter->wake(waiter);
        }
        return;
    }
    x->link.count++;
    enqueue(st, x);
}

static void run_deferred(void *arg)
{
    struct promise__stack none = {NULL};

    promise__run(arg, &none);
}

void promise__flush_slow(struct promise__state *st)
{
    if (st->search == NULL && !st->stopped)
        promise__call_on_base(st, run_deferred, st);
}

/* Gives the promise of an operation its outcome, and the operation's reference back. */
static void settle(struct promise__state *st, struct promise *operation, int status,
                   union weft_value value, void (*destroy)(void *ptr), struct promise *source)
{
    struct promise *x = promise__under(st, operation);

    x->value = value;
    x->destroy = destroy;
    x->source = source;
    x->status = status;
    x->link.kind = PROMISE__PLAIN;
    promise__set_state(x, status < 0 ? PROMISE__REJECTED : PROMISE__FULFILLED);
    promise__defer(st, x);
    promise__release(st, operation);
}

void promise__settle_later(struct promise__state *st, struct promise *p, int status,
                           union weft_value value)
{
    settle(st, p, status, value, NULL, NULL);
}

void promise__settle_later_owned(struct promise__state *st, struct promise *p, int status,
                                 union weft_value value, void (*destroy)(void *ptr))
{
    settle(st, p, status, value, destroy, NULL);
}

/* ---- waits ---- */

static void settle_wait(struct weft_waiter *waiter)
{
    struct promise__wait *wait = weft__container(waiter, struct promise__wait, waiter);

    settle(promise__tls, promise__of_extra(wait), wait->status, wait->value, wait->destroy,
           wait->source);
}

static void leave(struct promise *p)
{
    promise__wait_remove(promise__extra(p));
}

struct promise *promise__wait_make(struct promise__state *st, size_t size,
                                   void (*cancel)(struct promise *promise),
                                   struct promise__wait **wait)
{
    void *memory;
    struct promise *p =
        promise__create_operation(st->rt, size, cancel != NULL ? cancel : leave, &memory);

    *wait = memory;
    if (memory == NULL)
        return p;
    memset(memory, 0, size);
    p->link.kind = PROMISE__ALARM; /* a cancel rejects it at once */
    (*wait)->waiter.wake = settle_wait;
    return p;
}

/* The outcome of settled `x` into the four fields. `refs`: how many references are the caller's
 * business; if there are no others, the value moves, else x is kept as its owner. Consumes one
 * reference. */
static void take_outcome(struct promise__state *st, struct promise *handle, uint32_t refs,
                         struct promise__wait *out)
{
    struct promise room, *x = promise__look(st, handle, &room);

    out->destroy = NULL;
    out->source = NULL;
    out->status = promise__flags(x) == PROMISE__FULFILLED ? 0 : x->status;
    out->value = out->status == 0 ? x->value : weft_num(0);
    if (out->status == 0 && (x->destroy != NULL || x->source != NULL)) {
        if (handle == x && x->link.count == refs && x->waiters == NULL) {
            out->destroy = x->destroy;
            out->source = x->source;
            x->destroy = NULL;
            x->source = NULL;
        } else {
            out->source = x->source != NULL ? x->source : x;
            promise__retain(out->source);
        }
    }
    promise__release(st, handle);
}

void promise__wake_like(struct promise__state *st, struct promise__wait *wait, struct promise *x)
{
    promise__wait_remove(wait);
    take_outcome(st, x, 1, wait);
    wait->waiter.wake(&wait->waiter);
}

void promise__waits_finish(struct promise__waits *waits)
{
    struct promise__state *st = promise__tls;
    struct promise__wait *wait;

    if (st == NULL) /* the runtime has ended, and what waited with it */
        return;
    while ((wait = promise__waits_first(waits)) != NULL)
        promise__wake(wait, -ECANCELED, weft_num(0), NULL);
}

/* ---- jobs ---- */

static void resume(struct weft_waiter *waiter);

struct promise *promise__job_create(struct promise__state *st, size_t size, promise__step_fn *step,
                                    void *job_pointer)
{
    void *memory;
    struct promise *p = promise__create_operation(st->rt, size, NULL, &memory);

    memcpy(job_pointer, &memory, sizeof memory);
    if (memory != NULL) {
        struct promise__job *job = memory;

        memset(memory, 0, size);
        job->step = step;
        job->waiter.wake = resume;
        p->link.kind = PROMISE__JOB;
        p->storage = NULL;
    }
    return p;
}

/* Waits for pending `p`, a reference, with the local values now in force: they are kept in the job's
 * promise, where the runtime's end finds them. */
static void await(struct promise__state *st, struct promise__job *job, struct promise *p)
{
    job->awaited = p;
    promise__of_extra(job)->storage = weft__storage_ref(st->rt->strand->storage);
    promise__attach(st, p, &job->waiter);
    promise__under(st, p)->link.flags |= PROMISE__ACTIVE; /* a step is user code */
}

static void run_job(struct promise__state *st, struct promise__job *job, struct promise *p)
{
    while (p != NULL) {
        if (!PROMISE__VALID(st, p, "the result of a callback"))
            p = promise__einval;
        if (promise__pending(st, p)) {
            await(st, job, p);
            return;
        }
        p = job->step(job, p);
        if (p != NULL) /* else the job is gone */
            job->framed = false;
    }
}

static void resume(struct weft_waiter *waiter)
{
    struct promise__state *st = promise__tls;
    struct promise__job *job = weft__container(waiter, struct promise__job, waiter);
    struct promise *p = job->awaited, *self = promise__of_extra(job);

    promise__set_storage(st, self->storage);
    self->storage = NULL;
    job->awaited = NULL;
    job->framed = true;
    run_job(st, job, p);
}

struct job_call {
    struct promise__state *st;
    struct promise__job *job;
    struct promise *first;
};

static void start_job(void *arg)
{
    struct job_call *call = arg;

    run_job(call->st, call->job, call->first);
}

void promise__job_start(struct promise__job *job, struct promise *first)
{
    struct job_call call = {promise__tls, job, first};

    promise__call_on_base(call.st, start_job, &call);
}

void promise__job_end(struct promise__job *job, int status, union weft_value value,
                      void (*destroy)(void *ptr))
{
    settle(promise__tls, promise__of_extra(job), status, value, destroy, NULL);
}

void promise__job_end_like(struct promise__job *job, struct promise *settled)
{
    struct promise__state *st = promise__tls;
    struct promise__wait outcome;

    take_outcome(st, settled, job->framed ? 2 : 1, &outcome);
    settle(st, promise__of_extra(job), outcome.status, outcome.value, outcome.destroy,
           outcome.source);
}

int promise__job_take(struct promise__job *job, struct promise *settled, union weft_value *value)
{
    struct promise__state *st = promise__tls;
    struct promise__wait outcome;

    take_outcome(st, settled, job->framed ? 2 : 1, &outcome);
    *value = outcome.value;
    if (outcome.source != NULL) {
        if (outcome.source->link.count == 1)
            outcome.source->destroy = NULL;
        promise__release(st, outcome.source);
    }
    return outcome.status;
}

struct promise *promise__job_keep(struct promise__job *job, struct promise *settled)
{
    struct promise__state *st = promise__tls;
    struct promise__wait outcome;
    struct promise *kept;

    if (promise__immediate(settled))
        return settled;
    take_outcome(st, settled, job->framed ? 2 : 1, &outcome);
    if (outcome.status < 0)
        return promise__error(outcome.status);
    kept = promise__cell(st, outcome.value, outcome.destroy);
    if (kept != NULL) {
        kept->source = outcome.source;
        return kept;
    }
    if (outcome.source != NULL)
        promise__release(st, outcome.source);
    if (outcome.destroy != NULL)
        outcome.destroy(outcome.value.ptr);
    return promise__enomem;
}
