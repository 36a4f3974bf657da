/* promise_internal.h: the promise, its waiters, and what other layers may do with promises.
 *
 * ---- For other layers ----
 *
 * A promise for an operation (I/O, a timer, a fiber's end):
 *
 *     struct promise *p = promise__create_operation(rt, sizeof(struct my_op), my_cancel, &op);
 *     ... start op; give p to the user ...
 *     promise__settle(promise__of_extra(op), status, value);     when it is over, exactly once
 *
 * The block holds the promise and `extra` bytes (aligned to 16) behind it. The user has one
 * reference, the operation another one, which promise__settle gives back; so the extra memory lives
 * at least until then. my_cancel(p) is called at most once, when somebody cancels the promise or
 * one derived from it. It is a request: the promise stays pending until it is settled. It must run
 * no user code. It may call promise__settle: the callbacks then run after the search for tasks is
 * over.
 *
 * Waiting (fiber_await): promise__pending, promise__attach, promise__detach, promise__outcome,
 * promise__take. See there.
 *
 * ---- The promise ----
 *
 * A promise is one block of 64 bytes. Pending, it has a list of waiters, and a role: what will
 * settle it and how it is canceled. The result of promise_bind is itself the waiter on its operand,
 * so role, callback, captured local values and list pointers are one block. Settled, the same bytes
 * hold the outcome. When a callback returns a pending promise, the result takes over that promise's
 * waiters and role, and the other one is freed (resolve.c, merge), or, as long as somebody holds it,
 * is a proxy that points to the result; so a loop keeps one block.
 *
 * References (link.count). Counted: the user's, an operation's, a queue's, a frame's (below), a
 * proxy's on its target, and a derived promise's on its operand as long as the derived one is
 * itself counted: through it a cancel can come. Not counted: the waiter list, which keeps each
 * waiter in it alive. So a promise that nobody observes still runs its callback, and a pending
 * promise whose count is zero and that stands in no list can never settle: it is freed with all its
 * waiters. Promises that keep each other alive in a circle are left to a tracing pass (collect.c).
 *
 * Running. Callbacks are run by promise__run from an explicit stack of frames, linked through the
 * settled promises themselves: no recursion, no allocation.
 */
#ifndef PROMISE_INTERNAL_H
#define PROMISE_INTERNAL_H

#include <weft/promise.h>

#include "runtime_internal.h"
#include "waiter.h"

#include <errno.h>
#include <string.h>

/* What a link is part of, and a pending promise's role. */
enum promise__kind {
    PROMISE__WAITER, /* struct weft_waiter, in memory that isn't ours */
    PROMISE__FREE,

    PROMISE__PLAIN,     /* settled by a resolver, or by nobody yet; a cancel does nothing */
    PROMISE__TASK,      /* ...; a cancel rejects it */
    PROMISE__QUEUED,    /* a task that stands in a queue (ctx) which holds a reference */
    PROMISE__OPERATION, /* settled by promise__settle; a cancel calls fn.cancel(itself), once */
    PROMISE__ALARM,     /* the same, but a cancel rejects it at once */
    PROMISE__JOB,       /* the same, but a cancel goes on to what it waits for (wait.c) */
    PROMISE__REQUEST,   /* one with an operation, alarm or job (operand, not counted) */

    PROMISE__BIND, /* these stand in the operand's list */
    PROMISE__MAP,
    PROMISE__CATCH,
    PROMISE__TRY,      /* fn.pair */
    PROMISE__FINALIZE, /* before the cleanup */
    PROMISE__CLEANUP,  /* waits for the cleanup (operand); ctx is the promise with the outcome */
    PROMISE__PROTECTED,
    PROMISE__NO_CANCEL,
    PROMISE__WRAP,

    PROMISE__GROUPED, /* settled by fn.group */

    PROMISE__GROUP, /* struct promise__group */
    PROMISE__SLOT,  /* struct promise__slot */
    PROMISE__PAIR,  /* struct promise__callback that is only memory */

    PROMISE__ON_SUCCESS, /* struct promise__callback in a list */
    PROMISE__ON_FAILURE,
    PROMISE__ON_TERMINATION,
    PROMISE__ON_ANY,
    PROMISE__ON_CANCEL,
    PROMISE__DONT_WAIT,
    PROMISE__TO_HOOK
};

/* link.flags of a promise. The two lowest bits are the state. */
#define PROMISE__PENDING   0u
#define PROMISE__FULFILLED 1u
#define PROMISE__REJECTED  2u
#define PROMISE__PROXY     3u
#define PROMISE__STATE     3u
#define PROMISE__ACTIVE    8u    /* not only struct weft_waiter among the waiters */
#define PROMISE__CANCELERS 0x10u /* on_cancel callbacks among the waiters */
#define PROMISE__RESOLVER  0x20u /* this handle may settle it */
#define PROMISE__ROOT      0x40u /* frame: the outermost one */
#define PROMISE__STARTED   0x80u /* frame: has begun */

struct promise__group;
struct promise__callback;

union promise__fn {
    promise_bind_fn *bind;
    promise_map_fn *map;
    promise_catch_fn *catch_;
    promise_thunk_fn *thunk;
    promise_success_fn *success;
    promise_failure_fn *failure;
    promise_done_fn *done;
    promise_error_fn *error;
    void (*cancel)(struct promise *promise);
    struct promise__callback *pair;
    struct promise__group *group;
};

struct promise {
    struct weft_link link; /* as a waiter; on a stack, in a queue; count: references */
    union {
        struct weft_link *waiters; /* first to run; NULL: none */
        struct promise *target;    /* proxy */
    };
    union {
        struct { /* pending, by role */
            union promise__fn fn;
            void *ctx;
            struct promise *operand;
            struct weft__storage *storage;
        };
        struct { /* settled */
            union weft_value value;
            void (*destroy)(void *ptr); /* NULL: no owned value, or taken */
            struct promise *source;     /* who owns the value in its place; counted */
            int status;
        };
    };
#ifndef NDEBUG
    struct promise__state *owner;
    const void *where; /* the call that made it */
#endif
};

#ifdef NDEBUG
_Static_assert(sizeof(struct promise) == 64, "a promise with a pending bind is one cache line");
#endif

/* A callback on the side; also what doesn't fit a promise (promise_try_bind's two functions). */
struct promise__callback {
    struct weft_link link;
    union promise__fn fn, other;
    void *ctx;
    struct weft__storage *storage;
};

/* One operand of a group: the waiter in its list, and the handle. */
struct promise__slot {
    struct weft_link link;   /* count: index of the slot */
    struct promise *operand; /* counted; NULL: given up */
};

enum promise__op {
    PROMISE__JOIN,
    PROMISE__ALL,
    PROMISE__CHOOSE,
    PROMISE__PICK,
    PROMISE__NCHOOSE,
    PROMISE__NPICK,
    PROMISE__SPLIT
};

/* A combinator on several pending promises. Its memory is owned by the result as long as that has
 * the role GROUPED, then by the frame that fires it. */
struct promise__group {
    struct weft_link link;  /* on a stack; count: slots in a list; flags: enum promise__op */
    struct promise *result; /* the representative */
    uint32_t size, cursor;  /* slots; the next one to cancel */
    int32_t status;         /* the outcome found so far */
    uint32_t searched;      /* the next slot to search */
    void *payload;          /* what the result's value will be; or (pick) the winner, counted */
    uint64_t epoch;         /* the search that came here last */
    struct promise__slot slot[];
};

#if defined(__SANITIZE_ADDRESS__)
#define PROMISE__ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PROMISE__ASAN 1
#endif
#endif
#ifndef PROMISE__ASAN
#define PROMISE__ASAN 0
#endif
#if PROMISE__ASAN || !defined(NDEBUG)
#define PROMISE__CHECKED_BLOCKS 1
#else
#define PROMISE__CHECKED_BLOCKS 0
#endif

#define PROMISE__CLASSES 9 /* blocks of 64 * n bytes, n < 9; larger ones are the system's */

struct promise__slab;
struct promise__large;

/* Frames waiting to run, top first. */
struct promise__stack {
    struct weft_link *top;
};

struct promise__state {
    struct weft_link *free[PROMISE__CLASSES];
    struct weft_runtime *rt;
    size_t live;                              /* blocks in use */
    uint32_t depth;                           /* promise__run within promise__run */
    bool dropping;                            /* a promise__release is going through `dead` */
    bool destroying;                          /* ... through `doomed` */
    bool fail;                                /* fail_after counts */
    bool stopped;                             /* no callback runs any more */
    struct promise *deferred, *deferred_last; /* settled by promise_resolve_later, oldest first */
    struct promise *dead;                     /* to be freed */
    struct promise *doomed;                   /* to be freed, with a destructor to call first */
    struct promise__stack *search;            /* a search is on: what is settled goes there */
    uint64_t epoch;
    size_t fail_after; /* blocks that may still be had */
#if PROMISE__CHECKED_BLOCKS
    struct weft_link *free_last[PROMISE__CLASSES]; /* oldest first: use after release shows */
    size_t free_count[PROMISE__CLASSES];
#endif
    size_t suspects;  /* references dropped that may have left a circle */
    size_t collected; /* blocks that tracing has freed in all */
    struct promise__slab *slabs;
    char *spare, *spare_end; /* slabs to come */
    struct promise__large *large;
    char *fresh[PROMISE__CLASSES], *fresh_end[PROMISE__CLASSES];
    struct promise__slab *fresh_slab[PROMISE__CLASSES];

    struct promise_queue paused;
    size_t paused_count;
    promise_count_fn *notifier;
    void *notifier_ctx;
    struct weft_task wake_paused;
    bool wake_registered;

    promise_error_fn *hook;
    void *hook_ctx;
    const void *where; /* debug: the call being served */
};

/* ---- immediate promises ----
 *
 * A settled promise whose value or error fits a word but two bits is its own handle: there is no
 * block and nothing to count. Bit 0 tells it from a pointer, bit 1 an error from a value. The value
 * fits if it is a number that needs no more than 62 bits, as all pointers of user space are. */

static inline bool promise__immediate(const struct promise *p)
{
    return ((uintptr_t)p & 1) != 0;
}

static inline bool promise__immediate_failed(const struct promise *p)
{
    return ((uintptr_t)p & 2) != 0;
}

static inline union weft_value promise__immediate_value(const struct promise *p)
{
    return weft_num((intptr_t)p >> 2);
}

static inline int promise__immediate_error(const struct promise *p)
{
    return (int)((intptr_t)p >> 2);
}

static inline bool promise__immediate_fits(union weft_value value)
{
    return (int64_t)((intptr_t)((uint64_t)value.num << 2) >> 2) == value.num;
}

static inline struct promise *promise__immediate_of(union weft_value value)
{
    return (struct promise *)(uintptr_t)((uint64_t)value.num << 2 | 1);
}

/* Rejected with `err` < 0. */
static inline struct promise *promise__error(int err)
{
    return (struct promise *)((uintptr_t)(intptr_t)err << 2 | 3);
}

#define promise__enomem promise__error(-ENOMEM)
#define promise__einval promise__error(-EINVAL)

/* What NULL counts as. */
static inline struct promise *promise__or_invalid(struct promise *p)
{
    return weft__likely(p != NULL) ? p : promise__einval;
}

/* The calling thread's state; NULL before the first promise of a runtime, and without one. */
extern _Thread_local struct promise__state *promise__tls;

struct promise__state *promise__state_slow(void);

/* The state, made on first use; NULL without a runtime or memory. */
static inline struct promise__state *promise__state_get(void)
{
    struct promise__state *st = promise__tls;

    return weft__likely(st != NULL) ? st : promise__state_slow();
}

#ifdef NDEBUG
#define PROMISE__ENTRY                  static
#define PROMISE__ENTER(st)              ((void)0)
#define PROMISE__MADE(p)                (p)
#define PROMISE__MADE_AT(p, where)      ((void)(where))
#define PROMISE__VALID(st, p, function) ((void)(function), true)
#else
/* Remember who calls; refuse promises that are freed or another runtime's. What public functions
 * share is inlined into them, or they would be the callers. */
#define PROMISE__ENTRY static inline __attribute__((always_inline))
#define PROMISE__ENTER(st) \
    ((st) != NULL ? (void)((st)->where = __builtin_return_address(0)) : (void)0)
#define PROMISE__VALID(st, p, function) promise__valid((st), (p), (function))
/* The caller also made `p`, through another public function. */
#define PROMISE__MADE(p)                promise__made((p), __builtin_return_address(0))
#define PROMISE__MADE_AT(p, where)      ((void)promise__made((p), (where)))
static inline struct promise *promise__made(struct promise *p, const void *where)
{
    if (!promise__immediate(p))
        p->where = where;
    return p;
}
bool promise__valid(struct promise__state *st, const struct promise *p, const char *function);
#endif

/* ---- blocks (block.c) ---- */

struct weft_link *promise__block_slow(struct promise__state *st, size_t class);
void *promise__block_sized(struct promise__state *st, size_t size);
void promise__block_free_slow(struct promise__state *st, struct weft_link *block);

#define PROMISE__CLASS(size) (((size) + 63) / 64)

/* A block of a small class (link.size set), or NULL. */
static inline struct weft_link *promise__block(struct promise__state *st, size_t class)
{
    struct weft_link *block = st->free[class];

    if (PROMISE__CHECKED_BLOCKS || weft__unlikely(block == NULL || st->fail))
        return promise__block_slow(st, class);
    st->free[class] = block->next;
    st->live++;
    return block;
}

static inline void promise__block_recycle(struct promise__state *st, struct weft_link *block,
                                          size_t class)
{
    block->kind = PROMISE__FREE;
    block->next = st->free[class];
    st->free[class] = block;
    st->live--;
}

static inline void promise__block_free(struct promise__state *st, struct weft_link *block)
{
    if (PROMISE__CHECKED_BLOCKS || weft__unlikely(block->size == 0)) {
        promise__block_free_slow(st, block);
        return;
    }
    promise__block_recycle(st, block, block->size);
}

/* ---- the promise itself ---- */

static inline struct promise *promise__of_link(struct weft_link *link)
{
    return weft__container(link, struct promise, link);
}

static inline unsigned promise__flags(const struct promise *p)
{
    return p->link.flags & PROMISE__STATE;
}

static inline void promise__set_state(struct promise *p, unsigned state)
{
    p->link.flags = (uint8_t)((p->link.flags & ~PROMISE__STATE) | state);
}

/* A pending promise with one reference, no role and no waiters; NULL: no memory. */
static inline struct promise *promise__new(struct promise__state *st, enum promise__kind kind,
                                           unsigned flags)
{
    struct weft_link *block = promise__block(st, PROMISE__CLASS(sizeof(struct promise)));
    struct promise *p;

    if (weft__unlikely(block == NULL))
        return NULL;
    p = promise__of_link(block);
    p->link.next = NULL;
    p->link.count = 1; /* these four: one store */
    p->link.size = PROMISE__CLASS(sizeof(struct promise));
    p->link.kind = (uint8_t)kind;
    p->link.flags = (uint8_t)flags;
    p->waiters = NULL;
#ifndef NDEBUG
    p->owner = st;
    p->where = st->where;
#endif
    return p;
}

static inline void promise__retain(struct promise *p)
{
    if (!promise__immediate(p))
        p->link.count++;
}

void promise__dropped(struct promise__state *st, struct promise *p);

/* One reference less. */
static inline void promise__release(struct promise__state *st, struct promise *p)
{
    if (!promise__immediate(p) && --p->link.count == 0)
        promise__dropped(st, p);
}

/* The same for one that is settled, and no proxy. */
static inline void promise__release_settled(struct promise__state *st, struct promise *p)
{
    if (--p->link.count > 0)
        return;
    if (weft__likely(p->source == NULL && p->destroy == NULL && p->waiters == NULL))
        promise__block_free(st, &p->link);
    else
        promise__dropped(st, p);
}

struct promise *promise__under_slow(struct promise__state *st, struct promise *p);

/* The promise that `p`, which is no immediate one, is one with. */
static inline struct promise *promise__under(struct promise__state *st, struct promise *p)
{
    if (weft__unlikely(promise__flags(p) == PROMISE__PROXY))
        return promise__under_slow(st, p);
    return p;
}

/* The same for any handle: an immediate promise is written out in the caller's `room`, to be looked
 * at there as a settled promise that somebody else holds too. */
static inline struct promise *promise__look(struct promise__state *st, struct promise *p,
                                            struct promise *room)
{
    if (!promise__immediate(p))
        return promise__under(st, p);
    room->link.next = NULL;
    room->link.count = UINT32_MAX / 2;
    room->link.size = 0;
    room->link.kind = PROMISE__PLAIN;
    room->waiters = NULL;
    room->value = weft_num(0);
    room->destroy = NULL;
    room->source = NULL;
    room->status = 0;
    if (promise__immediate_failed(p)) {
        room->link.flags = PROMISE__REJECTED;
        room->status = promise__immediate_error(p);
    } else {
        room->link.flags = PROMISE__FULFILLED;
        room->value = promise__immediate_value(p);
    }
    return room;
}

/* The handle under which settled `p` is kept: its proxies may go. */
static inline struct promise *promise__handle(struct promise__state *st, struct promise *p)
{
    return promise__immediate(p) ? p : promise__under(st, p);
}

/* Frees settled `p`, whose only reference is the caller's, and takes its value. */
union weft_value promise__take_last(struct promise__state *st, struct promise *p);

/* Gives up a reference of fulfilled `x` through its handle `p`, and takes the value if it was the
 * last. */
static inline union weft_value promise__consume(struct promise__state *st, struct promise *p,
                                                struct promise *x)
{
    union weft_value value = x->value;

    if (weft__likely(p == x && p->link.count == 1 && p->source == NULL)) {
        promise__block_free(st, &p->link);
        return value;
    }
    if (p != x) {
        x->link.count++;
        promise__release(st, p);
    }
    if (x->link.count == 1)
        return promise__take_last(st, x);
    promise__release(st, x);
    return value;
}

void promise__drop_source(struct promise__state *st, struct promise *p);

/* The value of `p` for a callback, taken if it is the last to see it. */
static inline union weft_value promise__value_for(struct promise__state *st, struct promise *p)
{
    if (p->link.count == 1 && p->waiters == NULL) {
        p->destroy = NULL;
        if (weft__unlikely(p->source != NULL))
            promise__drop_source(st, p);
    }
    return p->value;
}

/* ---- waiter lists ----
 *
 * The first node's prev is the last node; the last node's next is its owner, tagged. So joining two
 * lists is O(1), and so is removing a node, wherever merging has carried it, without knowing whose
 * list it is in. */

static inline bool promise__tagged(const struct weft_link *next)
{
    return ((uintptr_t)next & 1) != 0;
}

static inline struct weft_link *promise__tag(struct promise *owner)
{
    return (struct weft_link *)(void *)((char *)owner + 1);
}

static inline struct promise *promise__untag(struct weft_link *next)
{
    return (struct promise *)(void *)((char *)next - 1);
}

static inline void promise__list_push(struct promise *owner, struct weft_link *node)
{
    struct weft_link *first = owner->waiters;

    if (first == NULL) {
        node->next = promise__tag(owner);
        node->prev = node;
    } else {
        node->next = first;
        node->prev = first->prev;
        first->prev = node;
    }
    owner->waiters = node;
}

static inline struct weft_link *promise__list_pop(struct promise *owner)
{
    struct weft_link *node = owner->waiters;

    if (promise__tagged(node->next)) {
        owner->waiters = NULL;
    } else {
        node->next->prev = node->prev;
        owner->waiters = node->next;
    }
    node->next = NULL;
    return node;
}

/* Takes a node off its list. Returns the owner if that has become empty, else NULL. */
static inline struct promise *promise__list_remove(struct weft_link *node)
{
    struct weft_link *next = node->next, *prev = node->prev;
    struct promise *emptied = NULL;

    if (promise__tagged(next)) {
        struct promise *owner = promise__untag(next);

        if (prev == node) {
            owner->waiters = NULL;
            emptied = owner;
        } else {
            prev->next = next;
            owner->waiters->prev = prev;
        }
    } else if (promise__tagged(prev->next)) { /* first: prev is the last */
        promise__untag(prev->next)->waiters = next;
        next->prev = prev;
    } else {
        prev->next = next;
        next->prev = prev;
    }
    node->next = NULL;
    return emptied;
}

/* Puts `node` where `old` stands. */
static inline void promise__list_replace(struct weft_link *old, struct weft_link *node)
{
    struct weft_link *next = old->next, *prev = old->prev;

    node->next = next;
    node->prev = prev == old ? node : prev;
    if (promise__tagged(next)) {
        struct promise *owner = promise__untag(next);

        if (prev == old) {
            owner->waiters = node;
        } else {
            prev->next = node;
            owner->waiters->prev = node;
        }
    } else {
        next->prev = node;
        if (promise__tagged(prev->next))
            promise__untag(prev->next)->waiters = node;
        else
            prev->next = node;
    }
    old->next = NULL;
}

/* Appends `inner`'s list to `outer`'s. */
static inline void promise__list_join(struct promise *outer, struct promise *inner)
{
    struct weft_link *a = outer->waiters, *b = inner->waiters, *last;

    if (b == NULL)
        return;
    last = b->prev;
    if (a == NULL) {
        outer->waiters = b;
    } else {
        a->prev->next = b;
        b->prev = a->prev;
        a->prev = last;
    }
    last->next = promise__tag(outer);
    inner->waiters = NULL;
}

/* A block fulfilled with a value that it owns if destroy isn't NULL. NULL: no memory, and the value
 * is still the caller's. */
struct promise *promise__cell(struct promise__state *st, union weft_value value,
                              void (*destroy)(void *ptr));

/* ---- settling and running (resolve.c) ---- */

/* A frame for a settled promise: its waiters are to run. */
static inline void promise__push(struct promise__stack *stack, struct promise *p)
{
    p->link.count++;
    p->link.next = stack->top;
    stack->top = &p->link;
}

/* Settles pending `p` (role left, fields free) with an error, or with `x`'s outcome (takes the
 * value if `last`: nobody else will look at x), and pushes its frame if anybody waits. */
void promise__settle_error(struct promise__stack *stack, struct promise *p, int status);
void promise__settle_value(struct promise__stack *stack, struct promise *p, union weft_value value,
                           void (*destroy)(void *));
void promise__settle_like(struct promise__state *st, struct promise__stack *stack,
                          struct promise *p, struct promise *x, bool last);

/* Runs the frames on the stack and all that follows from them. On the base stack. */
void promise__run(struct promise__state *st, struct promise__stack *stack);

/* The result `q` of a callback that returned `r`: settles or merges. Consumes both references. */
void promise__become(struct promise__state *st, struct promise__stack *stack, struct promise *q,
                     struct promise *r);

/* Calls fn(arg) on the base stack with the running strand's local values, which it may change. */
void promise__on_base(struct promise__state *st, void (*fn)(void *arg), void *arg);

/* Puts `storage`, a reference, in force on the base stack. */
static inline void promise__set_storage(struct promise__state *st, struct weft__storage *storage)
{
    struct weft__storage *old = st->rt->base.storage;

    st->rt->base.storage = storage;
    weft__storage_unref(old);
}

void promise__report_error(struct promise__state *st, int err); /* to the hook */

/* What a call gives that finds no state: no runtime, or no memory for its state. Nothing it has
 * been given needs to be released: promises without a runtime are immediate. */
struct promise *promise__no_state(void);
int promise__no_state_error(void);

/* ---- sequence.c, callback.c, combine.c, cancel.c, pause.c ---- */

void promise__fire(struct promise__state *st, struct promise__stack *stack, struct promise *p,
                   struct promise *q);
void promise__fire_callback(struct promise__state *st, struct promise *p,
                            struct promise__callback *callback);
void promise__callback_free(struct promise__state *st, struct promise__callback *callback);
struct promise__callback *promise__callback_new(struct promise__state *st, enum promise__kind kind);
void promise__callback_attach(struct promise__state *st, struct promise *x,
                              struct promise__callback *callback);

void promise__fire_slot(struct promise__state *st, struct promise__stack *stack, struct promise *p,
                        struct promise__slot *slot);
void promise__group_step(struct promise__state *st, struct promise__stack *stack,
                         struct promise__group *group);
void promise__group_operand_died(struct promise__state *st, struct promise__slot *slot);
void promise__group_unobserved(struct promise__state *st, struct promise *q);

/* group->link.flags: the operation, and what has happened. A pick that has fired still is what its
 * result is canceled through, until it has canceled all operands and settles it; it then holds a
 * reference on the result. */
#define PROMISE__OP      0xfu
#define PROMISE__FIRED   0x40u
#define PROMISE__SUSPECT 0x80u /* may be in a circle */

static inline struct promise__group *promise__slot_group(struct promise__slot *slot)
{
    return weft__container(slot - slot->link.count, struct promise__group, slot);
}

void promise__search(struct promise__state *st, struct promise__stack *stack, struct promise *p);

/* Frees what a group has beyond its block, at the runtime's end. */
void promise__group_discard(struct promise__group *group);

void promise__pause_init(struct promise__state *st);
/* A promise that `fire` settles at a time, and a cancel rejects at once, its timer stopped. The timer
 * is its extra memory. */
struct promise *promise__alarm(struct promise__state *st, weft_time at,
                               void (*fire)(struct weft_timer *timer));

void promise__queue_leave(struct promise__state *st, struct promise *p);
void promise__queue_replace(struct promise *old, struct promise *p);

/* Takes a waiter off its list. If that leaves behind a promise that only mirrors another one, for
 * nobody, that goes too. */
void promise__unlink(struct promise__state *st, struct weft_link *node);

/* ---- tracing (collect.c) ---- */

/* Frees all promises that nobody can reach and nobody can settle. Returns how many blocks. */
size_t promise__collect(struct promise__state *st);

/* Reports promises that somebody outside still holds: the pending ones, or all; debug builds say
 * who made each. */
void promise__report_live(struct promise__state *st, bool pending_only);

/* ---- for tests ---- */

/* Blocks in use. */
size_t promise__live(void);
/* From now on `count` blocks can be had, then none; SIZE_MAX: as many as there are. */
void promise__fail_after(size_t count);

/* ---- for other layers ---- */

/* The extra memory is aligned to 16. */
#define PROMISE__EXTRA ((sizeof(struct promise) + 15) / 16 * 16)

/* See the top. Two references: the caller's and the operation's. cancel may be NULL. Never NULL:
 * without memory it is a promise rejected with -ENOMEM, and *extra_memory is NULL. */
struct promise *promise__create_operation(struct weft_runtime *rt, size_t extra,
                                          void (*cancel)(struct promise *promise),
                                          void **extra_memory);
static inline struct promise *promise__of_extra(void *extra)
{
    return (struct promise *)(void *)((char *)extra - PROMISE__EXTRA);
}
static inline void *promise__extra(struct promise *p)
{
    return (char *)p + PROMISE__EXTRA;
}

/* Settles an operation's promise: status 0 and the value, or a negative status. Gives the
 * operation's reference back, and with it the extra memory. Runs the callbacks: on the base stack;
 * on a fiber they are run there just the same. */
void promise__settle(struct promise *promise, int status, union weft_value value);
void promise__settle_owned(struct promise *promise, void *ptr, void (*destroy)(void *ptr));

/* Whether nobody has an operation's promise and nothing waits for it, but for the operation itself. */
static inline bool promise__is_abandoned(const struct promise *p)
{
    while (p->link.count == 1) {
        if (promise__flags(p) != PROMISE__PROXY)
            return p->waiters == NULL;
        p = p->target;
    }
    return false;
}

/* True if `promise` (a handle) is pending. */
static inline bool promise__pending(struct promise__state *st, struct promise *promise)
{
    return !promise__immediate(promise) &&
           promise__flags(promise__under(st, promise)) == PROMISE__PENDING;
}

/* Puts a waiter in the list of a pending promise; the caller keeps its reference. waiter->wake is
 * called once the promise is settled, with the waiter off the list. */
static inline void promise__attach(struct promise__state *st, struct promise *promise,
                                   struct weft_waiter *waiter)
{
    waiter->link.kind = PROMISE__WAITER;
    promise__list_push(promise__under(st, promise), &waiter->link);
}

/* Takes it off again; harmless if it isn't on a list. */
static inline void promise__detach(struct weft_waiter *waiter)
{
    if (waiter->link.next != NULL)
        (void)promise__list_remove(&waiter->link); /* its owner is held by the waiting side */
}

/* A settled promise's status, 0 or negative, and its value, borrowed. */
static inline int promise__outcome(struct promise__state *st, struct promise *promise,
                                   union weft_value *value)
{
    struct promise room, *x = promise__look(st, promise, &room);

    if (promise__flags(x) == PROMISE__FULFILLED) {
        *value = x->value;
        return 0;
    }
    return x->status;
}

/* The same, and consumes the reference: the value is the caller's if it was the last. */
static inline int promise__take(struct promise__state *st, struct promise *promise,
                                union weft_value *value)
{
    struct promise *x;
    int status;

    if (promise__immediate(promise))
        return promise__outcome(st, promise, value);
    x = promise__under(st, promise);
    if (weft__likely(promise__flags(x) == PROMISE__FULFILLED)) {
        *value = promise__consume(st, promise, x);
        return 0;
    }
    status = x->status;
    promise__release(st, promise);
    return status;
}

#endif
