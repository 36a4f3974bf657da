/* await_call_on.c: a fiber of another runtime, or of a worker, whose result is a promise here. */
#include <weft/cluster.h>

#include "call_on.h"
#include "caller.h"
#include "workers.h"

struct spawned {
    struct promise__caller here; /* must be first */
    struct fiber__remote remote;
    struct weft__work work; /* of a job */
};

static const struct weft__call_class call_class = {
    .begin = fiber__remote_begin,
    .cancel = fiber__remote_cancel,
    .evict = fiber__remote_evict,
    .done = promise__caller_done,
    .lost = promise__caller_lost,
};

static struct spawned *create(struct weft_runtime *rt, fiber_fn *fn, void *arg,
                              void (*free_arg)(void *arg), const char *where,
                              struct promise **promise)
{
    struct spawned *spawned = (struct spawned *)promise__caller_create(
        rt, sizeof *spawned, &call_class, arg, free_arg, promise);

    if (spawned != NULL) {
        spawned->remote = (struct fiber__remote){fn, arg, where, NULL};
        spawned->here.call.remote = &spawned->remote;
    }
    return spawned;
}

struct promise *fiber_spawn_on_at(struct weft_inbox *there, int64_t (*fn)(void *arg), void *arg,
                                  void (*free_arg)(void *arg), const char *where)
{
    struct weft_runtime *rt = weft__rt;
    struct promise *promise;
    struct spawned *spawned;

    if (rt == NULL || there == NULL || fn == NULL)
        return promise__caller_refuse(-EINVAL, arg, free_arg);
    spawned = create(rt, fn, arg, free_arg, where, &promise);
    if (spawned != NULL)
        promise__caller_sent(&spawned->here, weft__call_send(rt, &spawned->here.call, there));
    return promise;
}

struct promise *fiber_submit_at(struct weft_workers *workers, unsigned weight,
                                int64_t (*fn)(void *arg), void *arg, void (*free_arg)(void *arg),
                                const char *where)
{
    struct weft_runtime *rt = weft__rt;
    struct promise *promise;
    struct spawned *spawned;

    if (rt == NULL || fn == NULL)
        return promise__caller_refuse(-EINVAL, arg, free_arg);
    spawned = create(rt, fn, arg, free_arg, where, &promise);
    if (spawned != NULL) {
        spawned->here.give_up = weft__work_cancel;
        promise__caller_sent(
            &spawned->here,
            weft__work_submit(rt, workers, weight, &spawned->here.call, &spawned->work, false));
    }
    return promise;
}
