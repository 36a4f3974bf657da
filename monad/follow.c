/* follow.c: see follow.h.
 *
 * The wait is promise_all on the step's owner and the promise. With `errors`, a rejection is first
 * made a value: a number owned by the destructor `error`, which nothing else uses, so that it is
 * known again whatever the promise's own values are.
 */
#include "follow.h"

#include <stdlib.h>

static void drop(void *ptr)
{
    struct promise__step *step = ptr;

    step->drop(step);
}

static void error(void *ptr)
{
    (void)ptr;
}

static struct promise *as_value(int err, void *ctx)
{
    (void)ctx;
    return promise_fulfilled_owned((void *)(intptr_t)err, error);
}

/* Settled `p`, or the rejected promise that it stands for. */
static struct promise *as_settled(struct promise__state *st, struct promise *p)
{
    struct promise room, *x = promise__look(st, p, &room), *rejected;

    if (promise__flags(x) != PROMISE__FULFILLED || x->destroy != error)
        return p;
    rejected = promise_rejected((int)(intptr_t)x->value.ptr);
    promise__release(st, p);
    return rejected;
}

static struct promise *resume(union weft_value value, void *ctx)
{
    struct promise__state *st = promise__tls;
    struct promise_values *values = value.ptr;
    struct promise *owner = values->source[0], *p = values->source[1];
    union weft_value step = weft_ptr(NULL);

    (void)ctx;
    values->count = 0;
    promise_values_destroy(values);
    (void)promise__take(st, owner, &step); /* its last reference: the step is ours */
    p = as_settled(st, p);
    return ((struct promise__step *)step.ptr)->run(step.ptr, p);
}

struct promise *promise__follow(struct promise__state *st, struct promise *promise,
                                struct promise__step *step, bool errors)
{
    struct promise *operands[2];

    if (promise == NULL)
        promise = promise__einval;
    if (!promise__pending(st, promise)) {
        if (errors || promise_state(promise) == PROMISE_FULFILLED)
            return step->run(step, promise);
        step->drop(step);
        return promise;
    }
    operands[0] = promise_fulfilled_owned(step, drop);
    if (promise__immediate(operands[0])) { /* no memory, and the step is dropped */
        promise__release(st, promise);
        return operands[0];
    }
    operands[1] = errors ? promise_catch(promise, as_value, NULL) : promise;
    return promise_bind(promise_all(operands, 2), resume, NULL);
}
