/* scope.h: scopes, for the other files of this folder. */
#ifndef FIBER_SCOPE_INTERNAL_H
#define FIBER_SCOPE_INTERNAL_H

#include <weft/scope.h>

#include "fiber_internal.h"

/* Starts a fiber in `scope`; `ended` must call fiber__scope_left: its failure, or 0, and whether it has
 * ended because it was cancelled. */
int fiber__scope_start(struct fiber_scope *scope, fiber_fn *fn, void *arg,
                       const struct fiber_options *options, const char *where, fiber_ended *ended,
                       void *owner, struct fiber **started);

/* A fiber of `scope` ends with `error`, 0 or negative: its last act. */
void fiber__scope_left(struct weft_runtime *rt, struct fiber *fiber, int error, bool interrupted);

#endif
