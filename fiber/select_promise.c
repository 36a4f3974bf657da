/* select_promise.c: a promise as a case of fiber_select. With await.c and await_call_on.c one of
 * the files that see both fibers and promises. */
#include "promise_internal.h"
#include "select.h"

static bool ready(struct fiber_case *c)
{
    return !promise__pending(promise__tls, c->object);
}

/* Looks at a settled promise. */
static void happen(struct fiber_case *c)
{
    c->result = promise__outcome(promise__tls, c->object, &c->value);
}

static void settled(struct weft_waiter *waiter)
{
    struct fiber_case *c = fiber__case_of(waiter);

    happen(c);
    fiber__case_happened(c);
}

static int attach(struct fiber_case *c)
{
    struct weft_waiter *waiter = FIBER__CASE_ROOM(c, struct weft_waiter);

    *waiter = (struct weft_waiter){.wake = settled};
    promise__attach(promise__tls, c->object, waiter);
    return 0;
}

static bool detach(struct fiber_case *c)
{
    promise__detach(FIBER__CASE_ROOM(c, struct weft_waiter));
    return true;
}

void fiber_case_promise(struct fiber_case *c, struct promise *promise)
{
    static const struct fiber_case_kind kind = {
        .ready = ready,
        .happen = happen,
        .attach = attach,
        .detach = detach,
    };

    (void)fiber__case_set(c, &kind, promise__or_invalid(promise));
}
