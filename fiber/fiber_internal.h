/* fiber_internal.h: the fiber, and the protocol by which one parks and is woken.
 *
 * To wait for X: put a struct fiber_wait (and what X needs) on the fiber's own stack, register with
 * X, call fiber__park. X (or the deadline, or a cancellation) ends the wait by calling fiber__wake
 * exactly once; whoever calls it must first make sure nobody else will. fiber__park returns when the
 * fiber has been woken; all results stand in the waiting side's own memory.
 *
 * fiber_wait.cancel is called at most once, on any strand, when the fiber is cancelled while parked:
 * it either undoes the registration and calls fiber__wake, or starts an end that will wake later (an
 * operation in the kernel: the wake comes with its completion).
 */
#ifndef WEFT_FIBER_INTERNAL_H
#define WEFT_FIBER_INTERNAL_H

#include <weft/fiber.h>

#include "context.h"
#include "runtime_internal.h"
#include "stacks.h"

#include <errno.h>

#define FIBER_NAME_SIZE 24

/* A fiber's last act, on its own stack: its result goes to who asked for it. */
typedef void fiber_ended(struct weft_runtime *rt, struct fiber *fiber, int64_t result);

struct fiber_wait {
    void (*cancel)(struct fiber_wait *wait); /* NULL: this wait cannot be cut short */
    const char *what;                        /* for reports: "promise", "recv" */
    int64_t detail;                          /* for reports: a descriptor; -1: none */
};

/* At the top of its own stack: the struct, the saved registers and the first frames share a page,
 * and what a switch reads shares a line. */
struct fiber {
    struct weft__strand strand; /* task (run, next) and local values; must be first */
    struct context context;
    int cancelled;     /* 0 or -ECANCELED: what a wait returns; what a switch here hands over */
    bool is_cancelled; /* itself, not only a scope that it is in */
    bool is_daemon;
    struct fiber_wait *wait; /* NULL: runnable or running */
    fiber_fn *fn;
    void *arg;
    fiber_ended *ended; /* who wants the result; NULL: nobody */
    void *owner;        /* theirs */
    const char *where;
    struct stack *stack;

    struct fiber_scope *scope, *birth; /* innermost; the one it was spawned into; NULL: none */
    struct fiber *next_member, **member_link;
    char name[FIBER_NAME_SIZE];
} __attribute__((aligned(64)));

/* What the fiber layer keeps for a runtime. */
struct fiber_layer {
    struct context base; /* the base stack, while a fiber runs */
#if !CONTEXT_HAS_CALL
    /* a fiber's request to the base stack: run this and resume me */
    void (*call)(void *arg);
    void *call_arg;
    struct fiber *caller;
#endif
    size_t alive;
    atomic_size_t calls; /* of fiber_blocking, each on a fiber's stack */
    int default_class;
    struct stacks stacks;
};

/* The running fiber; only valid off the base stack. */
static inline struct fiber *fiber__current(const struct weft_runtime *rt)
{
    return (struct fiber *)(void *)rt->strand;
}

/* Parks the running fiber until fiber__wake. Doesn't look at cancellation: callers check
 * fiber->cancelled before they register. */
void fiber__park(struct weft_runtime *rt, struct fiber *self, struct fiber_wait *wait);

/* Makes a parked fiber runnable: at the tail of the queue, never at once. Never allocates. */
static inline void fiber__wake(struct weft_runtime *rt, struct fiber *fiber)
{
    fiber->wait = NULL;
    weft__queue_entry(rt, (uintptr_t)&fiber->strand.task);
}

/* A new fiber, queued; its result goes to `ended` (on its own stack, as its last act). 0 and *started
 * (may be NULL), -ENOMEM, -EINVAL, -ECANCELED while stopping. */
int fiber__start(struct weft_runtime *rt, fiber_fn *fn, void *arg,
                 const struct fiber_options *options, const char *where, fiber_ended *ended,
                 void *owner, struct fiber **started);

/* What a fiber ends with, as an errno: 0 if it has ended well; so is an end with -ECANCELED of one that
 * has been cancelled. */
static inline int fiber__error(const struct fiber *fiber, int64_t result)
{
    if (weft__likely(result >= 0) || (result == -ECANCELED && fiber->cancelled != 0))
        return 0;
    return result < -4095 ? -EINVAL : (int)result;
}

/* A failed fiber whose result nobody will see. */
void fiber__report_failure(struct weft_runtime *rt, const struct fiber *fiber, int error);

/* The running fiber, or NULL on the base stack and without a runtime. */
static inline struct fiber *fiber__running(const struct weft_runtime *rt)
{
    return rt == NULL || weft__is_base(rt) ? NULL : fiber__current(rt);
}

/* The same if it may wait: NULL also in WEFT_NO_SUSPEND. */
static inline struct fiber *fiber__self(const struct weft_runtime *rt)
{
    return rt == NULL || rt->strand == rt->pinned ? NULL : fiber__current(rt);
}

/* Why the caller can't wait: -EINVAL without a runtime, -EDEADLK on the base stack and, with a
 * report, in WEFT_NO_SUSPEND. `call` is the place of the public function's call. */
int fiber__refuse(struct weft_runtime *rt, const void *call);

/* What a function that needs a fiber, but doesn't wait, returns without one. */
static inline int fiber__none(const struct weft_runtime *rt)
{
    return rt == NULL ? -EINVAL : -EDEADLK;
}

static inline __attribute__((always_inline)) int fiber__cannot_wait(struct weft_runtime *rt)
{
    return fiber__refuse(rt, __builtin_return_address(0));
}

/* Cancels: level-triggered; what it waits for ends with -ECANCELED, and so does each later wait. The
 * scopes that it has open are cancelled with it. (scope.c) */
void fiber__cancel(struct weft_runtime *rt, struct fiber *fiber);

#endif
