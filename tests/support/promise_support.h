/* promise_support.h: running a promise test on each engine, with nothing of it left alive. */
#ifndef WEFT_TEST_PROMISE_SUPPORT_H
#define WEFT_TEST_PROMISE_SUPPORT_H

#include "harness.h"
#include "promise_internal.h"

#include <weft/promise.h>

/* Runs body() on the base stack of a runtime of each engine. It may return a
 * promise, which is waited for; NULL: it is through. Afterwards no promise may be alive. The
 * trace is empty when it begins. */
void run_promises(struct promise *(*body)(void));

/* A trace of what has happened. */
void note(const char *what);
void note_number(int64_t number);
void assert_trace(const char *expected); /* and empties it */

/* The state of a promise, borrowed. */
void assert_pending(struct promise *p);
void assert_value(struct promise *p, int64_t value);
void assert_error(struct promise *p, int err);

/* The same, and gives the reference back. */
void take_value(struct promise *p, int64_t value);
void take_error(struct promise *p, int err);

/* The values of a struct promise_values, as "1 2 3"; gives the reference back. */
void take_values(struct promise *p, const char *expected);

/* Notes "name=value " or "name!error " when the promise settles. Borrows. */
void watch(struct promise *p, const char *name);

/* A value whose destruction is counted. */
extern int destroyed;
void *boxed(int64_t number);
int64_t unboxed(void *box); /* frees it */
void destroy_box(void *box);

#endif
