/* promise.c: making, looking at and releasing promises.
 *
 * Releasing never recurses: what is to be freed goes on a list in the state (linked through the
 * promises) that the outermost call works off. Structure is taken down first; value destructors,
 * which are the user's and may release more, run when nothing is half done.
 */
#include "block.h"

#include <stdlib.h>

/* ---- making ---- */

PROMISE__ENTRY struct promise *make(enum promise__kind kind, unsigned flags)
{
    struct promise__state *st = promise__state_get();
    struct promise *p;

    if (weft__unlikely(st == NULL))
        return promise__no_state();
    PROMISE__ENTER(st);
    p = promise__new(st, kind, flags);
    return weft__likely(p != NULL) ? p : promise__enomem;
}

struct promise *promise_create(void)
{
    return make(PROMISE__PLAIN, PROMISE__PENDING | PROMISE__RESOLVER);
}

struct promise *promise_create_task(void)
{
    return make(PROMISE__TASK, PROMISE__PENDING | PROMISE__RESOLVER);
}

struct promise *promise__cell(struct promise__state *st, union weft_value value,
                              void (*destroy)(void *ptr))
{
    struct promise *p = promise__new(st, PROMISE__PLAIN, PROMISE__FULFILLED);

    if (weft__unlikely(p == NULL))
        return NULL;
    p->value = value;
    p->destroy = destroy;
    p->source = NULL;
    p->status = 0;
    return p;
}

/* A block with a value that a handle can't hold, or has to own. */
static __attribute__((noinline)) struct promise *
fulfilled(union weft_value value, void (*destroy)(void *ptr), const void *where)
{
    struct promise__state *st = promise__state_get();
    struct promise *p;

    if (weft__unlikely(st == NULL))
        return promise__no_state();
    p = promise__cell(st, value, destroy);
    if (weft__unlikely(p == NULL))
        return promise__enomem;
    PROMISE__MADE_AT(p, where);
    return p;
}

struct promise *promise_fulfilled(union weft_value value)
{
    if (weft__likely(promise__immediate_fits(value)))
        return promise__immediate_of(value);
    return fulfilled(value, NULL, __builtin_return_address(0));
}

struct promise *promise_fulfilled_owned(void *ptr, void (*destroy)(void *ptr))
{
    struct promise *p;

    if (destroy == NULL)
        return promise_fulfilled(weft_ptr(ptr));
    p = fulfilled(weft_ptr(ptr), destroy, __builtin_return_address(0));
    if (weft__unlikely(promise__immediate(p))) /* no memory */
        destroy(ptr);
    return p;
}

struct promise *promise_rejected(int err)
{
    return promise__error(err < 0 ? err : -EINVAL);
}

struct promise *promise_from_result(int64_t result)
{
    if (result >= 0)
        return PROMISE__MADE(promise_fulfilled(weft_num(result)));
    return promise__error(result < INT32_MIN ? -EINVAL : (int)result);
}

struct promise *promise__create_operation(struct weft_runtime *rt, size_t extra,
                                          void (*cancel)(struct promise *promise),
                                          void **extra_memory)
{
    struct promise__state *st = promise__state_get();
    struct promise *p;

    (void)rt;
    *extra_memory = NULL;
    if (weft__unlikely(st == NULL))
        return promise__no_state();
    PROMISE__ENTER(st);
    if (extra > SIZE_MAX / 4)
        return promise__enomem;
    p = promise__block_sized(st, PROMISE__EXTRA + extra);
    if (weft__unlikely(p == NULL))
        return promise__enomem;
    p->link.next = NULL;
    p->link.count = 2;
    p->link.kind = PROMISE__OPERATION;
    p->link.flags = PROMISE__PENDING;
    p->waiters = NULL;
    p->fn.cancel = cancel;
#ifndef NDEBUG
    p->owner = st;
    p->where = st->where;
#endif
    *extra_memory = promise__extra(p);
    return p;
}

/* ---- looking ---- */

struct promise *promise__under_slow(struct promise__state *st, struct promise *p)
{
    /* Shortens the path by half as it goes. */
    while (promise__flags(p) == PROMISE__PROXY) {
        struct promise *target = p->target;

        if (promise__flags(target) == PROMISE__PROXY) {
            struct promise *next = target->target;

            p->target = next;
            if (target->link.count == 1) { /* p's: its reference on `next` becomes p's */
                promise__block_free(st, &target->link);
            } else {
                target->link.count--;
                next->link.count++;
            }
            target = next;
        }
        p = target;
    }
    return p;
}

enum promise_state promise_poll(struct promise *promise, union weft_value *value, int *err)
{
    struct promise__state *st = promise__tls;
    struct promise *x, room;

    if (promise == NULL || !PROMISE__VALID(st, promise, __func__)) {
        if (err != NULL)
            *err = -EINVAL;
        return PROMISE_REJECTED;
    }
    x = promise__look(st, promise, &room);
    switch (promise__flags(x)) {
    case PROMISE__FULFILLED:
        if (value != NULL)
            *value = x->value;
        return PROMISE_FULFILLED;
    case PROMISE__REJECTED:
        if (err != NULL)
            *err = x->status;
        return PROMISE_REJECTED;
    default:
        return PROMISE_PENDING;
    }
}

enum promise_state promise_state(struct promise *promise)
{
    return promise_poll(promise, NULL, NULL);
}

/* ---- references ---- */

struct promise *promise_ref(struct promise *promise)
{
    if (promise == NULL || !PROMISE__VALID(promise__tls, promise, __func__))
        return promise;
    promise__retain(promise);
    return promise;
}

void promise_unref(struct promise *promise)
{
    struct promise__state *st = promise__tls;

    /* Without a state the runtime is ending, and all promises with it. */
    if (promise == NULL || promise__immediate(promise) || st == NULL ||
        !PROMISE__VALID(st, promise, __func__))
        return;
    if (promise->link.count > 1 && promise__flags(promise) == PROMISE__PENDING &&
        (promise->link.flags & PROMISE__ACTIVE))
        st->suspects++;
    promise__release(st, promise);
}

union weft_value promise__take_last(struct promise__state *st, struct promise *p)
{
    union weft_value value = p->value;
    struct promise *source = p->source;

    p->destroy = NULL;
    p->source = NULL;
    if (source != NULL) {
        if (source->link.count == 1)
            source->destroy = NULL;
        promise__release(st, source);
    }
    promise__release(st, p);
    return value;
}

void promise__drop_source(struct promise__state *st, struct promise *p)
{
    struct promise *source = p->source;

    p->source = NULL;
    if (source->link.count == 1)
        source->destroy = NULL;
    promise__release(st, source);
}

/* ---- releasing ----
 *
 * A promise whose count has become zero is
 *   - settled, or a proxy: freed;
 *   - pending, and some list keeps it: no cancel can come through it any more, so it lets go of its
 *     operand; if it only mirrors that, and nobody waits, it leaves the list and is freed;
 *   - pending, in no list: it will never settle; freed, and all its waiters with it. */

static bool in_list(const struct promise *p)
{
    return p->link.next != NULL && p->link.kind >= PROMISE__BIND && p->link.kind <= PROMISE__WRAP;
}

static bool mirror(const struct promise *p)
{
    return p->link.kind >= PROMISE__PROTECTED && p->link.kind <= PROMISE__WRAP;
}

static void dead(struct promise__state *st, struct promise *p)
{
    if (promise__flags(p) == PROMISE__PENDING) {
        if (p->link.flags & PROMISE__STARTED) /* on the list already */
            return;
        p->link.flags |= PROMISE__STARTED;
    }
    p->link.next = st->dead != NULL ? &st->dead->link : NULL;
    st->dead = p;
}

void promise__unlink(struct promise__state *st, struct weft_link *node)
{
    struct promise *owner = promise__list_remove(node);

    if (owner != NULL && owner->link.count == 0 && promise__flags(owner) == PROMISE__PENDING &&
        (mirror(owner) || owner->link.kind == PROMISE__GROUPED))
        promise__dropped(st, owner);
}

/* What a derived promise has besides its place in a list, its operand excepted. */
static void free_role(struct promise__state *st, struct promise *p)
{
    switch (p->link.kind) {
    case PROMISE__TRY:
        promise__block_free(st, &p->fn.pair->link);
        break;
    case PROMISE__CLEANUP:
        promise__release(st, p->ctx);
        break;
    default:
        break;
    }
    if (p->link.kind >= PROMISE__BIND && p->link.kind <= PROMISE__CLEANUP)
        weft__storage_unref(p->storage);
}

/* The promise that `node` waited for has been freed, pending. */
void promise__abandon(struct promise__state *st, struct weft_link *node)
{
    struct promise *q;

    switch (node->kind) {
    case PROMISE__WAITER:
        break; /* cannot be: it holds a reference */
    case PROMISE__SLOT:
        promise__group_operand_died(st, (struct promise__slot *)(void *)node);
        break;
    case PROMISE__BIND:
    case PROMISE__MAP:
    case PROMISE__CATCH:
    case PROMISE__TRY:
    case PROMISE__FINALIZE:
    case PROMISE__CLEANUP:
    case PROMISE__NO_CANCEL:
    case PROMISE__PROTECTED:
    case PROMISE__WRAP:
        q = promise__of_link(node);
        free_role(st, q);
        q->link.kind =
            mirror(q) && node->kind != PROMISE__NO_CANCEL ? PROMISE__TASK : PROMISE__PLAIN;
        if (q->link.count == 0)
            dead(st, q);
        break;
    default:
        promise__callback_free(st, (struct promise__callback *)(void *)node);
        break;
    }
}

static void abandon_all(struct promise__state *st, struct promise *p)
{
    while (p->waiters != NULL)
        promise__abandon(st, promise__list_pop(p));
}

static void take_down(struct promise__state *st, struct promise *p)
{
    switch (promise__flags(p)) {
    case PROMISE__PROXY:
        promise__release(st, p->target);
        break;
    case PROMISE__PENDING:
        if (p->link.kind == PROMISE__GROUPED) {
            promise__group_unobserved(st, p);
            return;
        }
        abandon_all(st, p);
        break;
    default:
        abandon_all(st, p); /* none, unless the runtime is ending */
        if (p->source != NULL)
            promise__release(st, p->source);
        if (p->destroy != NULL) {
            p->link.next = st->doomed != NULL ? &st->doomed->link : NULL;
            st->doomed = p;
            return;
        }
        break;
    }
    promise__block_free(st, &p->link);
}

void promise__take_all_down(struct promise__state *st)
{
    if (!st->dropping) {
        st->dropping = true;
        while (st->dead != NULL) {
            struct promise *p = st->dead;

            st->dead = p->link.next != NULL ? promise__of_link(p->link.next) : NULL;
            p->link.next = NULL;
            p->link.flags &= (uint8_t)~PROMISE__STARTED;
            take_down(st, p);
        }
        st->dropping = false;
    }
    if (st->dropping || st->destroying)
        return;
    st->destroying = true;
    while (st->doomed != NULL) {
        struct promise *p = st->doomed;
        void (*destroy)(void *) = p->destroy;
        void *ptr = p->value.ptr;

        st->doomed = p->link.next != NULL ? promise__of_link(p->link.next) : NULL;
        promise__block_free(st, &p->link);
        destroy(ptr);
    }
    st->destroying = false;
}

void promise__dropped(struct promise__state *st, struct promise *p)
{
    for (;;) {
        struct promise *operand;

        if (weft__likely(promise__flags(p) != PROMISE__PENDING)) {
            if (weft__likely(promise__flags(p) != PROMISE__PROXY && p->source == NULL &&
                             p->destroy == NULL && p->waiters == NULL)) {
                promise__block_free(st, &p->link);
                return;
            }
        } else if (in_list(p)) {
            operand = p->link.kind == PROMISE__NO_CANCEL || p->link.kind == PROMISE__PROTECTED
                          ? NULL
                          : p->operand;
            p->operand = NULL;
            if (mirror(p) && p->waiters == NULL) {
                struct promise *owner = promise__list_remove(&p->link);

                promise__block_free(st, &p->link);
                /* Nobody but the list kept the owner, and it is a mirror too, for nobody. */
                if (operand == NULL && owner != NULL && owner->link.count == 0 &&
                    promise__flags(owner) == PROMISE__PENDING &&
                    (mirror(owner) || owner->link.kind == PROMISE__GROUPED)) {
                    p = owner;
                    continue;
                }
            }
            if (operand == NULL || --operand->link.count > 0)
                return;
            p = operand;
            continue;
        }
        dead(st, p);
        promise__take_all_down(st);
        return;
    }
}
