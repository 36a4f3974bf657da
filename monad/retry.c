/* retry.c: promise_retry: one attempt after the other, in a loop as long as they settle at once. */
#include <weft/promise_retry.h>

#include "follow.h"

#include <stdlib.h>

_Static_assert(sizeof(void *) != 8 || sizeof(struct promise_retry_options) == 80,
               "part of the ABI");

#define BASE WEFT_SEC(2)

struct retry {
    struct promise__step step;
    promise_attempt_fn *attempt;
    void *ctx;
    uint64_t retries, number; /* of the attempt under way */
    bool waiting;             /* between two attempts */
    struct promise_retry_options options;
};

int64_t promise_backoff(uint64_t attempt, int64_t base)
{
    int64_t delay;

    if (base <= 0 || attempt == 0)
        return 0;
    if (attempt > 62 || __builtin_mul_overflow(base, (int64_t)attempt, &delay) ||
        delay > INT64_MAX >> attempt)
        return INT64_MAX;
    return delay * ((int64_t)1 << attempt);
}

static int64_t delay_of(const struct retry *retry)
{
    const struct promise_retry_options *o = &retry->options;
    int64_t delay;

    if (o->delay != NULL)
        return o->delay(retry->number, o->ctx);
    delay = promise_backoff(retry->number, o->base);
    return o->longest > 0 && delay > o->longest ? o->longest : delay;
}

static void drop_retry(struct promise__step *step)
{
    free(step);
}

/* Whether settled `p`, an attempt's promise, calls for another attempt. */
static bool again(const struct retry *retry, struct promise *p)
{
    const struct promise_retry_options *o = &retry->options;
    int err;

    if (promise_poll(p, NULL, &err) != PROMISE_REJECTED || err == -ECANCELED ||
        retry->number > retry->retries)
        return false;
    return o->judge == NULL || o->judge(err, retry->number, o->ctx) == PROMISE_RETRY;
}

/* Goes on with settled `p`: an attempt's, or (NULL) nothing. */
static struct promise *go_on(struct promise__state *st, struct retry *retry, struct promise *p)
{
    for (;;) {
        if (p != NULL) {
            int64_t delay;

            if (!again(retry, p)) {
                free(retry);
                return p;
            }
            promise__release(st, p);
            delay = delay_of(retry);
            if (delay > 0) {
                retry->waiting = true;
                return promise__follow(st, promise_sleep(delay), &retry->step, false);
            }
        }
        p = retry->attempt(++retry->number, retry->ctx);
        if (p == NULL)
            p = promise__einval;
        if (promise__pending(st, p))
            return promise__follow(st, p, &retry->step, true);
    }
}

static struct promise *resume_retry(struct promise__step *step, struct promise *settled)
{
    struct promise__state *st = promise__tls;
    struct retry *retry = (struct retry *)(void *)step;

    if (retry->waiting) {
        retry->waiting = false;
        promise__release(st, settled);
        settled = NULL;
    }
    return go_on(st, retry, settled);
}

static struct promise *start(void *arg)
{
    return go_on(promise__tls, arg, NULL);
}

struct promise *promise_retry_with(int64_t retries, promise_attempt_fn *attempt, void *ctx,
                                   const struct promise_retry_options *options)
{
    struct promise__state *st = promise__state_get();
    struct retry *retry;

    if (st == NULL)
        return promise__no_state();
    if (retries < 0 || attempt == NULL ||
        (options != NULL && options->size != sizeof(struct promise_retry_options)))
        return promise_rejected(-EINVAL);
    retry = calloc(1, sizeof *retry);
    if (retry == NULL)
        return promise__enomem;
    retry->step.run = resume_retry;
    retry->step.drop = drop_retry;
    retry->attempt = attempt;
    retry->ctx = ctx;
    retry->retries = (uint64_t)retries;
    if (options != NULL)
        retry->options = *options;
    if (retry->options.base == 0)
        retry->options.base = BASE;
    return promise_call(start, retry);
}

struct promise *promise_retry(int64_t retries, promise_attempt_fn *attempt, void *ctx)
{
    const struct promise_retry_options options = {.size = sizeof options, .base = -1};

    return promise_retry_with(retries, attempt, ctx, &options);
}
