/* caller.h: a promise here that follows a call on another runtime (src/call.h).
 *
 * The call is in memory of its own: the promise, and the runtime here, may be gone before it is over.
 */
#ifndef PROMISE_CALLER_H
#define PROMISE_CALLER_H

#include "call.h"
#include "promise_internal.h"

struct promise__caller {
    struct weft__call call; /* must be first */
    void (*give_up)(struct weft__call *call);
    void (*free_arg)(void *arg); /* NULL: nothing */
    void *arg;
    struct promise__called *called; /* behind the promise */
};

/* Memory of `size` bytes that begins with a caller, and *promise, which follows it; the call is to be
 * sent. NULL: *promise is rejected and all is done. */
struct promise__caller *promise__caller_create(struct weft_runtime *rt, size_t size,
                                               const struct weft__call_class *class, void *arg,
                                               void (*free_arg)(void *arg),
                                               struct promise **promise);

/* rc: what sending has said; negative: rejects the promise. */
void promise__caller_sent(struct promise__caller *caller, int rc);

/* Of the call's class. */
void promise__caller_done(struct weft__call *call);
void promise__caller_lost(struct weft__call *call);

/* For a call that cannot even be made. */
struct promise *promise__caller_refuse(int error, void *arg, void (*free_arg)(void *arg));

#endif
