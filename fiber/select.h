/* select.h: what a case of fiber_select can be. Each kind is a table of functions, so that the kinds
 * of other parts of the library (promises, descriptors) are told to it from outside.
 *
 * A selection goes through its cases and, if none can happen, attaches all and parks. The first case
 * to report fiber__case_happened decides it: at once, in the same call, all the others are detached,
 * so no second one can happen. A kind that can't be detached at once (an operation in the kernel)
 * reports fiber__case_detached later; until then the fiber isn't woken, because the case's memory is
 * still in use. Deadline and cancellation decide in the same way, for no case.
 */
#ifndef FIBER_SELECT_H
#define FIBER_SELECT_H

#include <weft/sync.h>

#include "fiber_internal.h"
#include "timer.h"

struct fiber_case_kind {
    const char *what;
    /* Whether the case can happen now. */
    bool (*ready)(struct fiber_case *c);
    /* Lets a case happen that is ready. */
    void (*happen)(struct fiber_case *c);
    /* Has the case reported. 0, or a negative errno: with this result it has happened. Reports
     * nothing itself. */
    int (*attach)(struct fiber_case *c);
    /* The end of a case that hasn't reported. True: now; false: it will be reported. */
    bool (*detach)(struct fiber_case *c);
    bool costly; /* ready is a system call: asked only if another case would go before this one */
};

struct fiber_selection {
    struct weft_runtime *rt;
    struct fiber *fiber;
    struct fiber_case *cases;
    size_t count;     /* of those attached */
    size_t detaching; /* of those not yet detached */
    int outcome;      /* the index, or a negative errno; UNDECIDED */
    struct fiber_wait park;
    struct weft_timer timer;
};

/* The kind's part of a case. */
#define FIBER__CASE_ROOM(c, type)                                                           \
    (__extension__({                                                                        \
        _Static_assert(sizeof(type) <= sizeof((c)->room), "more than a case has room for"); \
        (type *)(void *)(c)->room;                                                          \
    }))

static inline struct fiber_case *fiber__case_of(void *room)
{
    return weft__container(room, struct fiber_case, room);
}

/* False, and nothing is done, for no case. */
static inline bool fiber__case_set(struct fiber_case *c, const struct fiber_case_kind *kind,
                                   void *object)
{
    if (weft__unlikely(c == NULL))
        return false;
    c->kind = kind;
    c->object = object;
    c->result = 0;
    return true;
}

/* c->result and c->value are set. */
void fiber__case_happened(struct fiber_case *c);
void fiber__case_detached(struct fiber_case *c);

#endif
