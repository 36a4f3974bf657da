/* follow.h: a step that owns its context: what runs after a promise, with memory of its own.
 *
 * promise_bind's ctx is not owned: a callback dropped with an abandoned promise would leak it. A
 * step is put in a fulfilled promise that owns it, and that promise is waited for together with the
 * other one; so it is freed in every case: the promise is rejected or abandoned, or the runtime
 * ends.
 */
#ifndef PROMISE_FOLLOW_H
#define PROMISE_FOLLOW_H

#include "promise_internal.h"

/* Embed it first. Exactly one of the two is called. run owns the step and `settled`, a reference;
 * drop frees the step, must run no user code, and finds no state if the runtime ends. */
struct promise__step {
    struct promise *(*run)(struct promise__step *step, struct promise *settled);
    void (*drop)(struct promise__step *step);
};

/* Consumes `promise` and the step. Fulfilled (or with `errors` also rejected): step->run gives the
 * result. Else the result is rejected with the same error. If the promise is settled, that happens
 * now: a loop looks first, lest it recurse. On the base stack. */
struct promise *promise__follow(struct promise__state *st, struct promise *promise,
                                struct promise__step *step, bool errors);

#endif
