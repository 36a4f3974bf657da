/* call_on.c: a function that gives a promise, called on another runtime, or on a worker; here a promise
 * follows it.
 *
 * There, the call waits for the promise as a fiber would: its waiter is woken while the promise's
 * callbacks run, and looks at the outcome afterwards, in a task, when all others are through with it.
 */
#include <weft/cluster.h>

#include "caller.h"
#include "workers.h"

struct remote {
    struct promise__caller here; /* must be first */
    struct weft__work work;      /* of a job */
    struct promise *(*fn)(void *ctx);

    /* there */
    struct promise *promise; /* NULL: fn has not returned, or it is over */
    struct weft_waiter waiter;
    struct weft_task settled;
    bool woken;
};

/* ---- there ---- */

/* Gives up a reference of fulfilled `promise`; the value goes over with its destructor if nobody else
 * holds it. */
static union weft_value move_value(struct promise__state *st, struct promise *promise,
                                   void (**destroy)(void *ptr))
{
    struct promise room, *x = promise__look(st, promise, &room), *holder;
    union weft_value value = x->value;

    *destroy = NULL;
    if (promise__immediate(promise))
        return value;
    if (promise != x) { /* a proxy: it holds x, too */
        promise__retain(x);
        promise__release(st, promise);
    }
    holder = x->source != NULL ? x->source : x;
    if (x->link.count == 1 && holder->link.count == 1)
        *destroy = holder->destroy;
    if (x->link.count == 1)
        return promise__take_last(st, x);
    promise__release(st, x);
    return value;
}

static void end(struct remote *r)
{
    struct promise__state *st = promise__state_get();
    struct promise *promise = r->promise;
    union weft_value value = weft_num(0);
    void (*destroy)(void *ptr) = NULL;
    int status = promise__outcome(st, promise, &value);

    r->promise = NULL;
    if (status == 0)
        value = move_value(st, promise, &destroy);
    else
        promise_unref(promise);
    weft__call_end(&r->here.call, status, value, destroy);
}

static void run_settled(struct weft_task *task)
{
    end(weft__container(task, struct remote, settled));
}

static void woken(struct weft_waiter *waiter)
{
    struct remote *r = weft__container(waiter, struct remote, waiter);

    r->woken = true;
    r->settled.run = run_settled;
    weft_post(weft__rt->inbox, &r->settled);
}

static void begin(struct weft__call *call)
{
    struct remote *r = (struct remote *)call;
    struct promise__state *st = promise__state_get();

    if (weft__rt->stopping || st == NULL) {
        weft__call_end(call, st == NULL ? -ENOMEM : -ESHUTDOWN, weft_num(0), NULL);
        return;
    }
    r->promise = promise_call(r->fn, r->here.arg);
    if (!promise__pending(st, r->promise)) {
        end(r);
        return;
    }
    r->waiter = (struct weft_waiter){.wake = woken};
    promise__attach(st, r->promise, &r->waiter);
}

static void cancel(struct weft__call *call)
{
    promise_cancel(((struct remote *)call)->promise);
}

static void evict(struct weft__call *call)
{
    struct remote *r = (struct remote *)call;

    if (r->woken) /* run_settled is in the inbox */
        return;
    promise__detach(&r->waiter);
    promise_unref(r->promise);
    r->promise = NULL;
    weft__call_end(call, -ESHUTDOWN, weft_num(0), NULL);
}

/* ---- here ---- */

static const struct weft__call_class call_class = {
    .begin = begin,
    .cancel = cancel,
    .evict = evict,
    .done = promise__caller_done,
    .lost = promise__caller_lost,
};

struct promise *promise_call_on(struct weft_inbox *there, struct promise *(*fn)(void *ctx),
                                void *ctx, void (*free_ctx)(void *ctx))
{
    struct weft_runtime *rt = weft__rt;
    struct promise__caller *caller;
    struct promise *promise;

    if (rt == NULL || there == NULL || fn == NULL)
        return promise__caller_refuse(-EINVAL, ctx, free_ctx);
    caller =
        promise__caller_create(rt, sizeof(struct remote), &call_class, ctx, free_ctx, &promise);
    if (caller != NULL) {
        ((struct remote *)caller)->fn = fn;
        promise__caller_sent(caller, weft__call_send(rt, &caller->call, there));
    }
    return promise;
}

struct promise *promise_submit(struct weft_workers *workers, unsigned weight,
                               struct promise *(*fn)(void *ctx), void *ctx,
                               void (*free_ctx)(void *ctx))
{
    struct weft_runtime *rt = weft__rt;
    struct promise__caller *caller;
    struct promise *promise;

    if (rt == NULL || fn == NULL)
        return promise__caller_refuse(-EINVAL, ctx, free_ctx);
    caller =
        promise__caller_create(rt, sizeof(struct remote), &call_class, ctx, free_ctx, &promise);
    if (caller != NULL) {
        struct remote *r = (struct remote *)caller;

        r->fn = fn;
        caller->give_up = weft__work_cancel;
        promise__caller_sent(
            caller, weft__work_submit(rt, workers, weight, &caller->call, &r->work, false));
    }
    return promise;
}
