/* caller.c: see caller.h. */
#include "caller.h"

#include <stdlib.h>

struct promise__called {
    struct promise__caller *caller; /* NULL: it is over */
};

static void destroy(struct promise__caller *caller)
{
    if (caller->free_arg != NULL)
        caller->free_arg(caller->arg);
    free(caller);
}

void promise__caller_done(struct weft__call *call)
{
    struct promise__caller *caller = (struct promise__caller *)call;
    struct promise *promise = promise__of_extra(caller->called);

    caller->called->caller = NULL;
    if (call->destroy != NULL)
        promise__settle_owned(promise, call->value.ptr, call->destroy);
    else
        promise__settle(promise, call->status, call->value);
    destroy(caller);
}

void promise__caller_lost(struct weft__call *call)
{
    destroy((struct promise__caller *)call);
}

static void cancel(struct promise *promise)
{
    const struct promise__called *called = promise__extra(promise);

    if (called->caller != NULL)
        called->caller->give_up(&called->caller->call);
}

struct promise *promise__caller_refuse(int error, void *arg, void (*free_arg)(void *arg))
{
    if (free_arg != NULL)
        free_arg(arg);
    return promise_rejected(error);
}

struct promise__caller *promise__caller_create(struct weft_runtime *rt, size_t size,
                                               const struct weft__call_class *class, void *arg,
                                               void (*free_arg)(void *arg),
                                               struct promise **promise)
{
    struct promise__caller *caller = calloc(1, size);
    void *extra = NULL;

    if (caller != NULL)
        *promise = promise__create_operation(rt, sizeof *caller->called, cancel, &extra);
    if (extra == NULL) {
        free(caller);
        *promise = promise__caller_refuse(-ENOMEM, arg, free_arg);
        return NULL;
    }
    caller->call.class = class;
    caller->give_up = weft__call_cancel;
    caller->free_arg = free_arg;
    caller->arg = arg;
    caller->called = extra;
    caller->called->caller = caller;
    return caller;
}

void promise__caller_sent(struct promise__caller *caller, int rc)
{
    if (rc >= 0)
        return;
    caller->called->caller = NULL;
    promise__settle(promise__of_extra(caller->called), rc, weft_num(0));
    destroy(caller);
}
