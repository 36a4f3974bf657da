/* call_on.h: a fiber that runs on behalf of another runtime. */
#ifndef FIBER_CALL_ON_H
#define FIBER_CALL_ON_H

#include "call.h"
#include "fiber_internal.h"

struct fiber__remote {
    fiber_fn *fn;
    void *arg;
    const char *where;
    struct fiber *fiber;
};

/* Of the class of a call whose `remote` is a struct fiber__remote. */
void fiber__remote_begin(struct weft__call *call);
void fiber__remote_cancel(struct weft__call *call);
void fiber__remote_evict(struct weft__call *call);

#endif
