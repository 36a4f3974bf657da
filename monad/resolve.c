/* resolve.c: settling promises and running what waits for them.
 *
 * promise__run is the one place where waiters run. It works on a stack of frames, each a settled
 * promise (or a pick that is canceling its losers), linked through the promises themselves. A
 * waiter that settles another promise pushes that one's frame, so what depends on it runs to the
 * end before the next waiter of the first: Lwt's order, depth first, without recursion. A frame
 * whose list has become empty leaves the stack before its last waiter runs, so that chains stay
 * short.
 *
 * A user's callback that settles a promise runs promise__run inside promise__run (depth 2). What
 * promise_resolve_later put off runs when the outermost one is through with a root frame.
 */
#include "promise_internal.h"

/* ---- settling ---- */

static void settled(struct promise__stack *stack, struct promise *p, unsigned state)
{
    promise__set_state(p, state);
    p->link.kind = PROMISE__PLAIN;
    if (p->waiters != NULL)
        promise__push(stack, p);
}

void promise__settle_error(struct promise__stack *stack, struct promise *p, int status)
{
    p->value = weft_num(0);
    p->destroy = NULL;
    p->source = NULL;
    p->status = status;
    settled(stack, p, PROMISE__REJECTED);
}

void promise__settle_value(struct promise__stack *stack, struct promise *p, union weft_value value,
                           void (*destroy)(void *))
{
    p->value = value;
    p->destroy = destroy;
    p->source = NULL;
    p->status = 0;
    settled(stack, p, PROMISE__FULFILLED);
}

void promise__settle_like(struct promise__state *st, struct promise__stack *stack,
                          struct promise *p, struct promise *x, bool last)
{
    p->value = x->value;
    p->destroy = NULL;
    p->source = NULL;
    p->status = x->status;
    if (last) {
        p->destroy = x->destroy;
        p->source = x->source;
        x->destroy = NULL;
        x->source = NULL;
    } else if (x->source != NULL || x->destroy != NULL) {
        p->source = x->source != NULL ? x->source : x;
        p->source->link.count++;
    }
    (void)st;
    settled(stack, p, promise__flags(x));
}

/* ---- merging ---- */

/* Pending `inner` becomes one with pending `outer`, whose role is over: outer takes over inner's
 * waiters, after its own, and inner's role. What is left of inner is a proxy for those who hold it
 * besides the caller, whose reference is consumed. */
static void merge(struct promise__state *st, struct promise *outer, struct promise *inner)
{
    promise__list_join(outer, inner);
    outer->link.flags |= inner->link.flags & (PROMISE__ACTIVE | PROMISE__CANCELERS);
    outer->link.kind = inner->link.kind;
    switch (inner->link.kind) {
    case PROMISE__OPERATION:
    case PROMISE__ALARM:
    case PROMISE__JOB:
        outer->link.kind = PROMISE__REQUEST;
        outer->operand = inner; /* keeps fn: its memory follows it and can't move */
        break;
    case PROMISE__REQUEST:
        outer->operand = inner->operand;
        break;
    case PROMISE__QUEUED:
        outer->ctx = inner->ctx;
        promise__queue_replace(inner, outer);
        break;
    case PROMISE__GROUPED:
        outer->fn = inner->fn;
        outer->fn.group->result = outer;
        if (outer->fn.group->link.flags & PROMISE__FIRED) {
            outer->link.count++;
            inner->link.count--; /* not the last: the callback's result is another one */
        }
        break;
    case PROMISE__PLAIN:
    case PROMISE__TASK:
        break;
    default:
        outer->fn = inner->fn;
        outer->ctx = inner->ctx;
        outer->operand = inner->operand;
        outer->storage = inner->storage;
        promise__list_replace(&inner->link, &outer->link);
        break;
    }
    if (inner->link.count == 1) { /* nobody does: the usual end of a callback's result */
        promise__block_free(st, &inner->link);
        return;
    }
    inner->link.count--;
    promise__set_state(inner, PROMISE__PROXY);
    inner->target = outer;
    outer->link.count++;
}

void promise__become(struct promise__state *st, struct promise__stack *stack, struct promise *q,
                     struct promise *r)
{
    struct promise *outer = promise__under(st, q), *inner;

    if (weft__unlikely(r == NULL || !PROMISE__VALID(st, r, "the result of a callback")))
        r = promise__einval;
    if (promise__immediate(r)) {
        if (promise__flags(outer) == PROMISE__PENDING) {
            if (promise__immediate_failed(r))
                promise__settle_error(stack, outer, promise__immediate_error(r));
            else
                promise__settle_value(stack, outer, promise__immediate_value(r), NULL);
        }
        promise__release(st, q);
        return;
    }
    inner = promise__under(st, r);
    if (inner != outer && promise__flags(outer) == PROMISE__PENDING) {
        if (promise__flags(inner) == PROMISE__PENDING) {
            if (r != inner) { /* a proxy of it: let go of that first */
                inner->link.count++;
                promise__release(st, r);
            }
            merge(st, outer, inner);
            promise__release(st, q);
            return;
        }
        promise__settle_like(st, stack, outer, inner, r == inner && inner->link.count == 1);
    }
    promise__release(st, r);
    promise__release(st, q);
}

/* ---- running ---- */

/* Callbacks for cancellation come first, whatever the order of attachment. */
static void cancelers_first(struct promise *p)
{
    struct weft_link *first = p->waiters, *last = first->prev, *node = first, *end;
    struct weft_link *cancelers = NULL, **cancelers_end = &cancelers;
    struct weft_link *others = NULL, **others_end = &others, *prev = NULL;

    for (;;) {
        struct weft_link *next = node == last ? NULL : node->next;

        if (node->kind == PROMISE__ON_CANCEL) {
            *cancelers_end = node;
            cancelers_end = &node->next;
        } else {
            *others_end = node;
            others_end = &node->next;
        }
        if (next == NULL)
            break;
        node = next;
    }
    *others_end = NULL;
    *cancelers_end = others;
    p->waiters = end = cancelers;
    for (node = p->waiters; node != NULL; node = node->next) {
        if (prev != NULL)
            node->prev = prev;
        prev = node;
        end = node;
    }
    p->waiters->prev = end;
    end->next = promise__tag(p);
}

static inline void start(struct promise__state *st, struct promise *p)
{
    (void)st;
    p->link.flags |= PROMISE__STARTED;
    if (weft__unlikely(p->link.flags & PROMISE__CANCELERS) && p->waiters != NULL &&
        promise__flags(p) == PROMISE__REJECTED && p->status == -ECANCELED)
        cancelers_first(p);
}

/* One waiter of `p`, settled. */
static inline void run_waiter(struct promise__state *st, struct promise__stack *stack,
                              struct promise *p, struct weft_link *node)
{
    switch (node->kind) {
    case PROMISE__WAITER: {
        struct weft_waiter *waiter = (struct weft_waiter *)(void *)node;

        waiter->wake(waiter);
        break;
    }
    case PROMISE__SLOT:
        promise__fire_slot(st, stack, p, (struct promise__slot *)(void *)node);
        break;
    case PROMISE__ON_SUCCESS:
    case PROMISE__ON_FAILURE:
    case PROMISE__ON_TERMINATION:
    case PROMISE__ON_ANY:
    case PROMISE__ON_CANCEL:
    case PROMISE__DONT_WAIT:
    case PROMISE__TO_HOOK:
        promise__fire_callback(st, p, (struct promise__callback *)(void *)node);
        break;
    default:
        promise__fire(st, stack, p, promise__of_link(node));
        break;
    }
}

/* Runs frames until there are none, and what was put off if this is the outermost run. */
static void run_frames(struct promise__state *st, struct promise__stack *stack)
{
    for (;;) {
        struct weft_link *frame = stack->top, *node;
        struct promise *p;
        bool wrapped;

        if (weft__unlikely(st->depth == 1 && st->deferred != NULL) &&
            (frame == NULL ||
             (frame->kind != PROMISE__GROUP &&
              (frame->flags & (PROMISE__ROOT | PROMISE__STARTED)) == PROMISE__ROOT))) {
            p = st->deferred;
            st->deferred = p->link.next != NULL ? promise__of_link(p->link.next) : NULL;
            p->link.next = frame;
            stack->top = &p->link;
            start(st, p);
            continue;
        }
        if (frame == NULL)
            break;
        if (weft__unlikely(frame->kind == PROMISE__GROUP)) {
            promise__group_step(st, stack, (struct promise__group *)(void *)frame);
            continue;
        }
        p = promise__of_link(frame);
        if (!(frame->flags & PROMISE__STARTED))
            start(st, p);
        node = p->waiters;
        /* A canceled promise_wrap_in_cancelable: its own cancel callback is the last one. */
        wrapped = p->link.kind == PROMISE__WRAP && p->source != NULL;
        if (weft__unlikely(wrapped) && (node == NULL || node->kind != PROMISE__ON_CANCEL)) {
            struct promise *source = p->source;

            p->source = NULL;
            promise__search(st, stack, source);
            promise__release(st, source);
            continue;
        }
        if (weft__unlikely(node == NULL)) {
            stack->top = frame->next;
            frame->next = NULL;
            promise__release(st, p);
            continue;
        }
        promise__list_pop(p);
        if (p->waiters == NULL && !wrapped) {
            stack->top = frame->next;
            frame->next = NULL;
            run_waiter(st, stack, p, node);
            promise__release(st, p);
        } else {
            run_waiter(st, stack, p, node);
        }
    }
}

void promise__run(struct promise__state *st, struct promise__stack *stack)
{
    struct weft__storage *saved = weft__storage_ref(st->rt->base.storage);

    for (struct weft_link *root = stack->top; root != NULL; root = root->next)
        root->flags |= PROMISE__ROOT;
    st->depth++;
    run_frames(st, stack);
    st->depth--;
    promise__set_storage(st, saved);
}

/* promise__run with one frame, for `p`, whose reference is the frame's. With one waiter, as is usual,
 * the frame would leave the stack before it has done anything: there is none. */
static __attribute__((noinline)) void run_one(struct promise__state *st, struct promise *p)
{
    struct promise__stack stack = {NULL};
    struct weft_link *node = p->waiters;

    if (weft__likely(promise__tagged(node->next) && node->kind == PROMISE__BIND &&
                     promise__flags(p) == PROMISE__FULFILLED && st->deferred == NULL)) {
        struct promise *q = promise__of_link(node);
        struct weft__storage *saved = weft__storage_ref(st->rt->base.storage);

        st->depth++;
        p->waiters = NULL;
        node->next = NULL;
        /* promise__fire, for what happens most */
        if (q->operand != NULL)
            promise__release(st, q->operand);
        q->link.kind = PROMISE__PLAIN;
        q->link.count++;
        promise__set_storage(st, q->storage);
        promise__become(st, &stack, q, q->fn.bind(promise__value_for(st, p), q->ctx));
        promise__release_settled(st, p);
        if (weft__unlikely(stack.top != NULL || st->deferred != NULL))
            run_frames(st, &stack);
        st->depth--;
        promise__set_storage(st, saved);
        return;
    }
    p->link.next = NULL;
    stack.top = &p->link;
    promise__run(st, &stack);
}

struct base_call {
    struct weft_runtime *rt;
    struct weft__strand *caller;
    void (*fn)(void *arg);
    void *arg;
};

/* Both ways: a callback made at once is a part of its caller, so what it binds stays bound there, as
 * it does when the caller is on the base stack itself. */
static void swap_storage(struct base_call *call)
{
    struct weft__storage *storage = call->rt->base.storage;

    call->rt->base.storage = call->caller->storage;
    call->caller->storage = storage;
}

static void on_base(void *arg)
{
    struct base_call *call = arg;

    swap_storage(call);
    call->fn(call->arg);
    swap_storage(call);
}

void promise__on_base(struct promise__state *st, void (*fn)(void *arg), void *arg)
{
    struct base_call call = {st->rt, st->rt->strand, fn, arg};

    weft__on_base(st->rt, on_base, &call);
}

/* ---- the settling of a promise from outside ---- */

struct run_call {
    struct promise__state *st;
    struct promise__stack *stack;
};

static void run_call(void *arg)
{
    struct run_call *call = arg;

    promise__run(call->st, call->stack);
}

/* The last one woken may release `p`: the caller need not have a reference, if all waiters do. */
static void wake_all(struct promise *p)
{
    struct weft_waiter *waiter;
    bool last;

    do {
        waiter = (struct weft_waiter *)(void *)promise__list_pop(p);
        last = p->waiters == NULL;
        waiter->wake(waiter);
    } while (!last);
}

/* The waiters of `p`, just settled; `p` is held by the caller. */
static inline void run_settled(struct promise__state *st, struct promise *p, bool later)
{
    struct promise__stack stack = {NULL};

    if (p->waiters == NULL || weft__unlikely(st->stopped))
        return;
    if (later && st->depth > 0) {
        p->link.count++;
        p->link.next = NULL;
        if (st->deferred == NULL)
            st->deferred = p;
        else
            st->deferred_last->link.next = &p->link;
        st->deferred_last = p;
        return;
    }
    if (weft__unlikely(st->search != NULL)) { /* settled by its cancel function */
        promise__push(st->search, p);
        return;
    }
    if (!(p->link.flags & PROMISE__ACTIVE)) {
        wake_all(p);
        return;
    }
    if (weft__likely(weft__is_base(st->rt))) {
        p->link.count++;
        run_one(st, p);
    } else {
        struct run_call call = {st, &stack};

        promise__push(&stack, p);
        promise__on_base(st, run_call, &call);
    }
}

/* Sets the outcome of pending `x`, and leaves its frame to the caller. */
static inline void set_outcome(struct promise *x, int status, union weft_value value,
                               void (*destroy)(void *))
{
    x->value = value;
    x->destroy = destroy;
    x->source = NULL;
    x->status = status;
    x->link.kind = PROMISE__PLAIN;
    promise__set_state(x, status < 0 ? PROMISE__REJECTED : PROMISE__FULFILLED);
}

static __attribute__((noinline)) int not_resolvable(struct promise__state *st, struct promise *p,
                                                    const char *function)
{
    if (st != NULL && p != NULL)
        weft__report(st->rt,
                     "%s: promise %p is the result of an operation, which alone may settle it",
                     function, (void *)p);
    return -EINVAL;
}

static inline int resolve(struct promise *p, int status, union weft_value value,
                          void (*destroy)(void *), bool later, const char *function)
{
    struct promise__state *st = promise__tls;
    struct promise *x;

    if (weft__unlikely(st == NULL || p == NULL || !PROMISE__VALID(st, p, function)))
        return -EINVAL;
    if (weft__unlikely(promise__immediate(p) || !(p->link.flags & PROMISE__RESOLVER)))
        return not_resolvable(st, p, function);
    x = promise__under(st, p);
    if (weft__unlikely(promise__flags(x) != PROMISE__PENDING)) {
        if (promise__flags(x) != PROMISE__REJECTED || x->status != -ECANCELED)
            return -EALREADY;
        if (destroy != NULL)
            destroy(value.ptr);
        return 0;
    }
    if (x->link.kind == PROMISE__QUEUED)
        promise__queue_leave(st, x);
    set_outcome(x, status, value, destroy);
    run_settled(st, x, later);
    return 0;
}

int promise_resolve(struct promise *promise, union weft_value value)
{
    return resolve(promise, 0, value, NULL, false, "promise_resolve");
}

int promise_resolve_owned(struct promise *promise, void *ptr, void (*destroy)(void *ptr))
{
    return resolve(promise, 0, weft_ptr(ptr), destroy, false, "promise_resolve_owned");
}

int promise_reject(struct promise *promise, int err)
{
    if (err >= 0)
        return -EINVAL;
    return resolve(promise, err, weft_num(0), NULL, false, "promise_reject");
}

int promise_resolve_later(struct promise *promise, union weft_value value)
{
    return resolve(promise, 0, value, NULL, true, "promise_resolve_later");
}

int promise_resolve_later_owned(struct promise *promise, void *ptr, void (*destroy)(void *ptr))
{
    return resolve(promise, 0, weft_ptr(ptr), destroy, true, "promise_resolve_later_owned");
}

int promise_reject_later(struct promise *promise, int err)
{
    if (err >= 0)
        return -EINVAL;
    return resolve(promise, err, weft_num(0), NULL, true, "promise_reject_later");
}

static __attribute__((noinline)) void settle(struct promise *p, int status, union weft_value value,
                                             void (*destroy)(void *))
{
    struct promise__state *st = promise__tls;
    struct promise *x;

    if (weft__unlikely(st == NULL))
        return;
    x = promise__under(st, p);
    if (weft__unlikely(st->stopped || promise__flags(x) != PROMISE__PENDING)) {
        if (destroy != NULL)
            destroy(value.ptr);
        promise__release(st, p);
        return;
    }
    set_outcome(x, status, value, destroy);
    if (p == x && x->waiters != NULL && (x->link.flags & PROMISE__ACTIVE) && st->search == NULL &&
        weft__is_base(st->rt)) {
        /* The operation's reference becomes the frame's, so that the last waiter takes the
         * value. */
        run_one(st, x);
        return;
    }
    run_settled(st, x, false);
    promise__release(st, p);
}

void promise__settle(struct promise *promise, int status, union weft_value value)
{
    struct promise__state *st = promise__tls;

    if (weft__likely(st != NULL && !st->stopped && promise__flags(promise) == PROMISE__PENDING &&
                     promise->waiters != NULL && (promise->link.flags & PROMISE__ACTIVE) &&
                     st->search == NULL && weft__is_base(st->rt))) {
        set_outcome(promise, status, value, NULL);
        run_one(st, promise);
        return;
    }
    settle(promise, status, value, NULL);
}

void promise__settle_owned(struct promise *promise, void *ptr, void (*destroy)(void *ptr))
{
    settle(promise, 0, weft_ptr(ptr), destroy);
}

/* ---- errors that nobody handles ---- */

int promise_set_error_hook(promise_error_fn *hook, void *ctx)
{
    struct promise__state *st = promise__state_get();

    if (st == NULL)
        return promise__no_state_error();
    st->hook = hook;
    st->hook_ctx = ctx;
    return 0;
}
