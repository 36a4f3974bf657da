/* sequence.c: bind, map, catch, try_bind, finalize: what happens when one promise follows
 * another. */
#include "promise_internal.h"

/* ---- on a pending promise: the result waits ---- */

/* The pending result of an operation on pending `p`, which it consumes. */
static inline __attribute__((always_inline)) struct promise *derive(struct promise__state *st,
                                                                    enum promise__kind kind,
                                                                    struct promise *p,
                                                                    union promise__fn fn, void *ctx)
{
    struct promise *x = promise__under(st, p), *q = promise__new(st, kind, PROMISE__PENDING);

    if (weft__unlikely(q == NULL)) {
        promise__release(st, p);
        return promise__enomem;
    }
    q->fn = fn;
    q->ctx = ctx;
    q->operand = p;
    q->storage = weft__storage_ref(st->rt->strand->storage);
    promise__list_push(x, &q->link);
    x->link.flags |= PROMISE__ACTIVE;
    return q;
}

/* ---- on a settled promise: the callback runs at once ---- */

/* A call to be made on the base stack, for a fiber. */
struct call {
    struct promise__state *st;
    enum promise__kind kind;
    struct promise *p, *result;
    union promise__fn fn, other;
    void *ctx;
};

/* promise_finalize's cleanup for settled `p`, whose reference is consumed: then p's own outcome. */
static struct promise *finalize_settled(struct promise__state *st, struct promise *p,
                                        promise_thunk_fn *cleanup, void *ctx)
{
    struct promise *c = promise__or_invalid(cleanup(ctx)), *x, *q, *outcome, room;

    x = promise__look(st, c, &room);
    switch (promise__flags(x)) {
    case PROMISE__FULFILLED:
        promise__release(st, c);
        return p;
    case PROMISE__REJECTED:
        promise__release(st, p);
        return c;
    default:
        outcome = promise__handle(st, p);
        promise__retain(outcome);
        promise__release(st, p);
        q = derive(st, PROMISE__CLEANUP, c, (union promise__fn){NULL}, outcome);
        if (q == promise__enomem)
            promise__release(st, outcome);
        return q;
    }
}

static struct promise *run_call(struct call *call)
{
    union weft_value in = weft_num(0), out = weft_num(0);
    int status;

    switch (call->kind) {
    case PROMISE__BIND:
        (void)promise__take(call->st, call->p, &in);
        return call->fn.bind(in, call->ctx);
    case PROMISE__CATCH:
        status = promise__take(call->st, call->p, &in);
        return call->fn.catch_(status, call->ctx);
    case PROMISE__MAP:
        (void)promise__take(call->st, call->p, &in);
        status = call->fn.map(in, call->ctx, &out);
        return status < 0 ? promise__error(status) : promise_fulfilled(out);
    case PROMISE__FINALIZE:
        return finalize_settled(call->st, call->p, call->fn.thunk, call->ctx);
    default: /* promise_call */
        return call->fn.thunk(call->ctx);
    }
}

static void run_call_on_base(void *arg)
{
    struct call *call = arg;

    call->result = run_call(call);
}

static __attribute__((noinline)) struct promise *call_from_strand(struct call call)
{
    promise__on_base(call.st, run_call_on_base, &call);
    return call.result;
}

/* The handle to go on with, and the state, for an operation on `p`; false: it has failed
 * already. */
static inline bool enter(struct promise__state **st, struct promise **p, const char *function)
{
    *st = promise__tls;
    if (weft__unlikely(*p == NULL))
        *p = promise__einval;
    if (weft__unlikely(*st == NULL)) {
        *st = promise__state_get(); /* the promise is an immediate one */
        if (*st == NULL)
            return false;
    }
    return PROMISE__VALID(*st, *p, function);
}

/* True if settled `p` is rejected. */
static inline bool failed(struct promise__state *st, struct promise *p)
{
    return promise__immediate(p) ? promise__immediate_failed(p)
                                 : promise__flags(promise__under(st, p)) == PROMISE__REJECTED;
}

#define FN(member, f) ((union promise__fn){.member = (f)})
#define FROM_FIBER(kind, p, fn, ctx) \
    call_from_strand((struct call){st, (kind), (p), NULL, (fn), {NULL}, (ctx)})

static __attribute__((noinline)) struct promise *bind(struct promise *promise, promise_bind_fn *fn,
                                                      void *ctx)
{
    struct promise__state *st;
    union weft_value value;

    if (weft__unlikely(!enter(&st, &promise, "promise_bind")))
        return promise__einval;
    if (promise__pending(st, promise))
        return derive(st, PROMISE__BIND, promise, FN(bind, fn), ctx);
    if (failed(st, promise))
        return promise;
    if (weft__unlikely(!weft__is_base(st->rt)))
        return FROM_FIBER(PROMISE__BIND, promise, FN(bind, fn), ctx);
    (void)promise__take(st, promise, &value);
    return fn(value, ctx);
}

struct promise *promise_bind(struct promise *promise, promise_bind_fn *fn, void *ctx)
{
    const struct weft_runtime *rt = weft__rt;

    PROMISE__ENTER(promise__tls);
    /* The common case, without a frame: the value is in the handle, and this is the base stack. */
    if (weft__likely(promise__immediate(promise) && !promise__immediate_failed(promise) &&
                     rt != NULL && weft__is_base(rt)))
        return fn(promise__immediate_value(promise), ctx);
    return bind(promise, fn, ctx);
}

struct promise *promise_map(struct promise *promise, promise_map_fn *fn, void *ctx)
{
    struct promise__state *st;
    struct call call;

    if (weft__unlikely(!enter(&st, &promise, __func__)))
        return promise__einval;
    PROMISE__ENTER(st);
    if (promise__pending(st, promise))
        return derive(st, PROMISE__MAP, promise, FN(map, fn), ctx);
    if (failed(st, promise))
        return promise;
    call = (struct call){st, PROMISE__MAP, promise, NULL, FN(map, fn), {NULL}, ctx};
    return PROMISE__MADE(weft__likely(weft__is_base(st->rt)) ? run_call(&call)
                                                             : call_from_strand(call));
}

struct promise *promise_catch(struct promise *promise, promise_catch_fn *handler, void *ctx)
{
    struct promise__state *st;
    union weft_value value;
    int status;

    if (weft__unlikely(!enter(&st, &promise, __func__)))
        return promise__einval;
    PROMISE__ENTER(st);
    if (promise__pending(st, promise))
        return derive(st, PROMISE__CATCH, promise, FN(catch_, handler), ctx);
    if (!failed(st, promise))
        return promise;
    if (weft__unlikely(!weft__is_base(st->rt)))
        return FROM_FIBER(PROMISE__CATCH, promise, FN(catch_, handler), ctx);
    status = promise__take(st, promise, &value);
    return handler(status, ctx);
}

struct promise *promise_try_bind(struct promise *promise, promise_bind_fn *fn,
                                 promise_catch_fn *handler, void *ctx)
{
    struct promise__state *st;
    struct promise__callback *pair;
    struct promise *q;

    if (weft__unlikely(!enter(&st, &promise, __func__)))
        return promise__einval;
    PROMISE__ENTER(st);
    if (!promise__pending(st, promise))
        return failed(st, promise) ? promise_catch(promise, handler, ctx)
                                   : promise_bind(promise, fn, ctx);
    pair = promise__callback_new(st, PROMISE__PAIR);
    if (pair == NULL) {
        promise__release(st, promise);
        return promise__enomem;
    }
    pair->fn.bind = fn;
    pair->other.catch_ = handler;
    q = derive(st, PROMISE__TRY, promise, FN(pair, pair), ctx);
    if (q == promise__enomem)
        promise__block_free(st, &pair->link);
    return q;
}

struct promise *promise_finalize(struct promise *promise, promise_thunk_fn *cleanup, void *ctx)
{
    struct promise__state *st;

    if (weft__unlikely(!enter(&st, &promise, __func__)))
        return promise__einval;
    PROMISE__ENTER(st);
    if (promise__pending(st, promise))
        return derive(st, PROMISE__FINALIZE, promise, FN(thunk, cleanup), ctx);
    if (weft__unlikely(!weft__is_base(st->rt)))
        return FROM_FIBER(PROMISE__FINALIZE, promise, FN(thunk, cleanup), ctx);
    return finalize_settled(st, promise, cleanup, ctx);
}

struct promise *promise_call(promise_thunk_fn *fn, void *ctx)
{
    struct promise__state *st = promise__state_get();
    struct promise *p;

    if (st == NULL)
        return promise__no_state();
    PROMISE__ENTER(st);
    p = weft__is_base(st->rt) ? fn(ctx)
                              : FROM_FIBER(PROMISE__PLAIN, promise__einval, FN(thunk, fn), ctx);
    return p != NULL ? p : promise__einval;
}

/* ---- when the operand settles ---- */

/* q stops being a waiter on `p`, which the frame holds: what is left are its callback and
 * storage. */
static inline void leave_operand(struct promise__state *st, struct promise *q)
{
    struct promise *operand = q->operand;

    if (operand != NULL)
        promise__release(st, operand);
}

/* The waiter just run is p's last, and nobody but the frame holds p. */
static inline bool last(const struct promise *p)
{
    return p->link.count == 1 && p->waiters == NULL;
}

/* p's outcome is q's. */
static void pass(struct promise__state *st, struct promise__stack *stack, struct promise *p,
                 struct promise *q)
{
    if (q->link.count == 0 && q->waiters == NULL) {
        promise__block_free(st, &q->link); /* for nobody */
        return;
    }
    q->link.count++;
    promise__settle_like(st, stack, q, p, last(p));
    promise__release(st, q);
}

/* The cleanup has been run and returned `c`: then the outcome of `p` (a reference) for q
 * (another). */
static void cleanup_result(struct promise__state *st, struct promise__stack *stack,
                           struct promise *p, struct promise *q, struct promise *c)
{
    struct promise *z = promise__under(st, q), *x, room;

    c = promise__or_invalid(c);
    x = promise__look(st, c, &room);
    if (promise__flags(z) != PROMISE__PENDING || promise__flags(x) == PROMISE__REJECTED) {
        promise__become(st, stack, q, c);
        promise__release(st, p);
        return;
    }
    if (promise__flags(x) == PROMISE__FULFILLED || x == z) {
        if (x != z)
            promise__settle_like(st, stack, z, p, p->link.count == 1);
        promise__release(st, c);
        promise__release(st, p);
    } else {
        z->link.kind = PROMISE__CLEANUP;
        z->ctx = p;
        z->operand = c;
        z->storage = NULL;
        promise__list_push(x, &z->link);
        x->link.flags |= PROMISE__ACTIVE;
    }
    promise__release(st, q);
}

/* The cleanup's promise p is settled: the outcome of the promise that q finalizes, which q holds as its
 * context, or p's error. */
static inline void finish_cleanup(struct promise__state *st, struct promise__stack *stack,
                                  struct promise *p, struct promise *q)
{
    struct weft__storage *storage = q->storage;
    struct promise *finalized = q->ctx;

    leave_operand(st, q);
    weft__storage_unref(storage);
    q->link.count++;
    q->link.kind = PROMISE__PLAIN;
    if (promise__flags(p) == PROMISE__FULFILLED) {
        struct promise room, *outcome = promise__look(st, finalized, &room);

        promise__settle_like(st, stack, q, outcome, outcome->link.count == 1);
    } else {
        promise__settle_like(st, stack, q, p, last(p));
    }
    promise__release(st, finalized);
    promise__release(st, q);
}

/* q, which is held and has no role any more, becomes what fn makes of p's value. */
static inline void fire_map(struct promise__state *st, struct promise__stack *stack,
                            struct promise *p, struct promise *q, promise_map_fn *fn, void *ctx)
{
    union weft_value value = weft_num(0);
    int status = fn(promise__value_for(st, p), ctx, &value);
    struct promise *r = promise__under(st, q);

    if (promise__flags(r) == PROMISE__PENDING) {
        if (status < 0)
            promise__settle_error(stack, r, status);
        else
            promise__settle_value(stack, r, value, NULL);
    }
    promise__release(st, q);
}

void promise__fire(struct promise__state *st, struct promise__stack *stack, struct promise *p,
                   struct promise *q)
{
    bool ok = promise__flags(p) == PROMISE__FULFILLED;
    enum promise__kind kind = q->link.kind;
    union promise__fn fn = q->fn;
    struct weft__storage *storage = q->storage;
    struct promise__callback *pair = NULL;
    void *ctx = q->ctx;
    struct promise *r;

    switch (kind) {
    case PROMISE__NO_CANCEL:
    case PROMISE__PROTECTED:
        pass(st, stack, p, q);
        return;
    case PROMISE__WRAP:
        leave_operand(st, q);
        pass(st, stack, p, q);
        return;
    case PROMISE__BIND:
    case PROMISE__MAP:
    case PROMISE__CATCH:
        leave_operand(st, q);
        if (ok != (kind != PROMISE__CATCH)) {
            weft__storage_unref(storage);
            pass(st, stack, p, q);
            return;
        }
        break;
    case PROMISE__CLEANUP:
        finish_cleanup(st, stack, p, q);
        return;
    default:
        leave_operand(st, q);
        break;
    }

    /* From here on q has no role, and is held until the callback has returned: it may meanwhile
     * become one with another promise. */
    q->link.kind = PROMISE__PLAIN;
    q->link.count++;
    promise__set_storage(st, storage);
    switch (kind) {
    case PROMISE__MAP:
        fire_map(st, stack, p, q, fn.map, ctx);
        return;
    case PROMISE__FINALIZE:
        p->link.count++; /* its outcome is still needed */
        cleanup_result(st, stack, p, q, fn.thunk(ctx));
        return;
    case PROMISE__TRY:
        pair = fn.pair;
        fn = ok ? pair->fn : pair->other;
        promise__block_free(st, &pair->link);
        r = ok ? fn.bind(promise__value_for(st, p), ctx) : fn.catch_(p->status, ctx);
        break;
    case PROMISE__CATCH:
        r = fn.catch_(p->status, ctx);
        break;
    default:
        r = fn.bind(promise__value_for(st, p), ctx);
        break;
    }
    promise__become(st, stack, q, r);
}
