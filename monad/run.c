/* run.c: promise_run, a runtime whose main is a promise; and promise_with_value. */
#include "promise_internal.h"

struct run {
    struct weft_waiter waiter;
    struct weft_runtime *rt;
    promise_thunk_fn *main;
    void *arg;
    struct promise *promise;
    union weft_value value;
};

static void finished(struct run *run)
{
    int status = promise__take(promise__tls, run->promise, &run->value);

    weft__main_ended(run->rt, status);
}

static void main_settled(struct weft_waiter *waiter)
{
    finished(weft__container(waiter, struct run, waiter));
}

static void start(struct weft_runtime *rt, void *arg)
{
    struct run *run = arg;
    struct promise__state *st = promise__state_get();

    run->rt = rt;
    if (st == NULL) {
        weft__main_ended(rt, -ENOMEM);
        return;
    }
    run->promise = run->main(run->arg);
    if (run->promise == NULL)
        run->promise = promise__einval;
    if (promise__pending(st, run->promise)) {
        run->waiter.wake = main_settled;
        promise__attach(st, run->promise, &run->waiter);
    } else {
        finished(run);
    }
}

int promise_run(promise_thunk_fn *main, void *arg, const struct weft_options *options,
                union weft_value *out)
{
    struct run run = {.main = main, .arg = arg};
    int status;

    if (main == NULL)
        return -EINVAL;
    status = weft__run(start, &run, options);
    if (status == 0 && out != NULL)
        *out = run.value;
    return status;
}

int promise_with_value(const struct weft_key *key, void *value, void (*fn)(void *ctx), void *ctx)
{
    struct weft_runtime *rt = weft__rt;
    struct weft__storage *saved, *bound, *left;
    struct weft__strand *strand;
    int rc;

    if (rt == NULL || key == NULL || fn == NULL)
        return -EINVAL;
    strand = rt->strand;
    rc = weft__storage_bind(strand->storage, key, value, &bound);
    if (rc < 0)
        return rc;
    saved = strand->storage;
    strand->storage = bound;
    fn(ctx);
    left = strand->storage;
    strand->storage = saved;
    weft__storage_unref(left);
    return 0;
}
