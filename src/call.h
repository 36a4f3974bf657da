/* call.h: a call from one runtime to another: how it goes there, and how its end comes back.
 *
 * "Here" is the runtime that calls, "there" the one that is called. The memory of a call belongs to
 * who calls, but for the time between weft__call_send and `done`, in which `there` has it. It may be
 * a fiber's stack: `done` comes once nothing of the call is left there.
 *
 *     here:  weft__call_send      weft__call_cancel (any time, once)     done, or lost
 *     there:            begin                   cancel    weft__call_end
 *
 * Everything that is sent there is one count in `abroad`: the call itself, and the request for its
 * end. Who takes the last count away sends the call back, so a request that comes too late finds the
 * call still there.
 *
 * When the runtime there ends, it evicts the calls that are still open. When the runtime here has
 * ended, a call that comes back is lost: `lost` is called where it is noticed.
 */
#ifndef WEFT_CALL_H
#define WEFT_CALL_H

#include "inbox.h"
#include "runtime_internal.h"

struct weft__call;

struct weft__call_class {
    /* There, on the base stack, with the caller's local values bound: begins. Then weft__call_end is
     * called, once, at once or later. */
    void (*begin)(struct weft__call *call);
    /* There: it is to end soon. At most once, between begin and weft__call_end. */
    void (*cancel)(struct weft__call *call);
    /* There: the runtime ends, and waits no longer. Calls weft__call_end, or a task in the inbox will. */
    void (*evict)(struct weft__call *call);
    /* Here, on the base stack: it is over, and the call's memory the caller's again. */
    void (*done)(struct weft__call *call);
    /* Instead, on any thread: the runtime here has ended. An owned value is destroyed already. */
    void (*lost)(struct weft__call *call);
};

/* The way of a call that doesn't go straight: through a pool. It may be cancelled before it begins. */
struct weft__call_route {
    void (*left)(struct weft__call *call); /* there, when it is over, before it goes back */
    void (*back)(struct weft__call *call); /* last, on any thread: before `done` or `lost` */
};

struct weft__call {
    const struct weft__call_class *class;
    const struct weft__call_route *route; /* NULL: straight */
    void *remote;                         /* what is done there: the class's */
    void *job;                            /* the route's */
    struct weft_task go, stop;
    struct weft__guest guest; /* there, while it runs */
    struct weft_inbox *here, *there;
    struct weft__storage *locals; /* a copy of the caller's, until they are bound there */
    atomic_uint abroad;
    atomic_bool cancel_sent;
    bool outside; /* both inboxes are held; else they are of one cluster */
    bool over;    /* there: it has ended */

    /* its outcome */
    int status;
    union weft_value value;
    void (*destroy)(void *ptr); /* whoever takes the value takes this, too; NULL: not owned */
};

/* Here: sends a call, whose class is set. 0: `done` or `lost` will be called; -ESHUTDOWN, -ENOMEM:
 * neither. */
int weft__call_send(struct weft_runtime *rt, struct weft__call *call, struct weft_inbox *there);

/* The same in steps, for a call whose way is decided later; its route may be set after prepare. */
int weft__call_prepare(struct weft_runtime *rt, struct weft__call *call, bool outside);
void weft__call_discard(struct weft__call *call); /* prepared, and not pushed */

/* Any thread. 0, and then the inbox must be nudged (weft__inbox_nudge); -ESHUTDOWN. */
int weft__call_push(struct weft__call *call, struct weft_inbox *there);

/* Any thread: a prepared call goes nowhere, and comes back with this status. */
void weft__call_return(struct weft__call *call, int status);

/* Here, until it is done: asks for its end. Does nothing the second time. */
void weft__call_cancel(struct weft__call *call);

/* There: it is over. A value with `destroy` is the call's from now on. */
void weft__call_end(struct weft__call *call, int status, union weft_value value,
                    void (*destroy)(void *ptr));

#endif
