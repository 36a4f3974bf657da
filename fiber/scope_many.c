/* scope_many.c: several functions at once, each in a fiber of one scope. */
#include "scope.h"

#include <limits.h>

_Static_assert(sizeof(void *) != 8 || sizeof(struct fiber_call) == 24, "part of the ABI");

/* ---- all ---- */

/* Work handed out in order to as many fibers as may run at once. */
struct work {
    int (*one)(struct work *work, size_t index);
    size_t next, count;
    void *items, *ctx;
    size_t size;
    fiber_item_fn *item;
};

static int64_t worker(void *arg)
{
    struct work *work = arg;

    while (work->next < work->count) {
        int rc = fiber_check();

        if (rc < 0)
            return rc;
        rc = work->one(work, work->next++);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int run(struct work *work, size_t at_once)
{
    struct fiber_scope scope;
    int rc = fiber_scope_open(&scope, WEFT_FOREVER);

    if (rc < 0)
        return rc;
    rc = scope.cancelled ? -ECANCELED : 0;
    if (at_once == 0 || at_once > work->count)
        at_once = work->count;
    for (size_t i = 0; i < at_once && rc == 0; i++)
        rc = fiber_scope_spawn(&scope, worker, work);
    return fiber_scope_close(&scope, rc);
}

static int one_call(struct work *work, size_t index)
{
    struct fiber_call *call = (struct fiber_call *)work->items + index;

    call->result = call->fn(call->arg);
    return call->result >= 0 ? 0 : call->result < -4095 ? -EINVAL : (int)call->result;
}

/* True if each has a function; sets the results of those that are never begun. */
static bool prepare(struct fiber_call *calls, size_t count)
{
    if (calls == NULL && count > 0)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (calls[i].fn == NULL)
            return false;
        calls[i].result = -ECANCELED;
    }
    return true;
}

int fiber_all(struct fiber_call *calls, size_t count, size_t at_once)
{
    struct work work = {.one = one_call, .count = count, .items = calls};

    return prepare(calls, count) ? run(&work, at_once) : -EINVAL;
}

int fiber_both(fiber_fn *first, void *first_arg, fiber_fn *second, void *second_arg)
{
    struct fiber_call calls[] = {{first, first_arg, 0}, {second, second_arg, 0}};

    return fiber_all(calls, 2, 0);
}

static int one_item(struct work *work, size_t index)
{
    return work->item(index, (char *)work->items + index * work->size, work->ctx);
}

int fiber_map(fiber_item_fn *fn, void *items, size_t count, size_t size, void *ctx, size_t at_once)
{
    struct work work = {
        .one = one_item, .count = count, .items = items, .size = size, .ctx = ctx, .item = fn};

    return fn != NULL && (items != NULL || count == 0) ? run(&work, at_once) : -EINVAL;
}

/* ---- races ---- */

struct race {
    struct fiber_scope scope;
    struct fiber_call *calls;
    size_t next, winner;
    int error; /* of the first that failed */
    bool won, only_good;
    bool cut; /* one of them has been cancelled, before there was a winner */
};

static int64_t racer(void *arg)
{
    struct race *race = arg;
    size_t index = race->next++; /* they begin in order */
    struct fiber_call *call = &race->calls[index];

    if (fiber_check() == 0)
        call->result = call->fn(call->arg);
    if (race->won)
        return 0;
    if (call->result == -ECANCELED && fiber_scope_cancelled(&race->scope)) {
        race->cut = true;
        return 0;
    }
    if (race->only_good && call->result < 0) {
        if (race->error == 0)
            race->error = call->result < -4095 ? -EINVAL : (int)call->result;
        return 0;
    }
    race->won = true;
    race->winner = index;
    fiber_scope_cancel(&race->scope);
    return 0;
}

static int run_race(struct fiber_call *calls, size_t count, bool only_good)
{
    struct race race = {.calls = calls, .only_good = only_good};
    int rc;

    if (count == 0 || count > INT_MAX || !prepare(calls, count))
        return -EINVAL;
    rc = fiber_scope_open(&race.scope, WEFT_FOREVER);
    if (rc < 0)
        return rc;
    rc = race.scope.cancelled ? -ECANCELED : 0;
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = fiber_scope_spawn(&race.scope, racer, &race);
    rc = fiber_scope_close(&race.scope, rc);
    if (race.won)
        return (int)race.winner;
    if (rc < 0)
        return rc;
    return race.error != 0 && !race.cut ? race.error : -ECANCELED;
}

int fiber_first(struct fiber_call *calls, size_t count)
{
    return run_race(calls, count, false);
}

int fiber_any(struct fiber_call *calls, size_t count)
{
    return run_race(calls, count, true);
}
