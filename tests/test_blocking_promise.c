/* Promises of calls on pool threads, and the raw form; works in a build without fibers. */
#include "io_support.h"
#include "offload.h"
#include "promise_internal.h"

#include <weft/promise_blocking.h>
#include <weft/promise_time.h>

#include <criterion/criterion.h>
#include <limits.h>
#include <semaphore.h>

#define ON_EACH_SETUP(body)                                                            \
    for (const struct setup *setup = setups; setup < setups + setups_count; setup++) { \
        cr_assert_eq(run_by_hand(setup, body), 0, "%s", setup->name);                  \
    }

static sem_t gate, arrived;
static atomic_int called, freed;

static void prepare(void)
{
    sem_init(&gate, 0, 0);
    sem_init(&arrived, 0, 0);
    atomic_store(&called, 0);
    atomic_store(&freed, 0);
}

static void down(sem_t *sem)
{
    while (sem_wait(sem) < 0)
        ;
}

static int echo(void *arg)
{
    atomic_fetch_add(&called, 1);
    return arg != NULL ? *(int *)arg : 0;
}

static int wait_at_gate(void *arg)
{
    sem_post(&arrived);
    down(&gate);
    return echo(arg);
}

static void note_free(void *arg)
{
    free(arg);
    atomic_fetch_add(&freed, 1);
}

static int *number(int n)
{
    int *owned = malloc(sizeof *owned);

    *owned = n;
    return owned;
}

static void until_freed(int count)
{
    while (atomic_load(&freed) < count)
        turn();
    cr_assert_eq(atomic_load(&freed), count);
}

/* ---- outcomes ---- */

static int seen;

/* The argument is still there when the promise's callbacks run. */
static struct promise *look_at_arg(union weft_value value, void *arg)
{
    cr_assert_eq(*(int *)arg, (int)value.num);
    cr_assert_eq(atomic_load(&freed), 0);
    cr_assert(weft__is_base(weft__rt));
    seen++;
    return promise_fulfilled(value);
}

static struct promise *call_again(union weft_value value, void *arg)
{
    (void)arg;
    return promise_blocking(echo, number((int)value.num + 1), note_free);
}

static void outcomes_body(void)
{
    static const struct {
        int returned, expected;
    } results[] = {{0, 0},         {INT_MAX, INT_MAX}, {-1, -1},
                   {-4095, -4095}, {-4096, -EINVAL},   {INT_MIN, -EINVAL}};
    int here = 8, *arg;

    prepare();
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        cr_assert_eq(outcome_of(promise_blocking(echo, number(results[i].returned), note_free)),
                     results[i].expected);
        until_freed((int)i + 1);
    }
    cr_assert_eq(outcome_of(promise_blocking(echo, &here, NULL)), 8);
    cr_assert_eq(
        outcome_of(promise_bind(promise_bind(promise_blocking(echo, &here, NULL), call_again, NULL),
                                call_again, NULL)),
        10);
    prepare();
    seen = 0;
    arg = number(77);
    cr_assert_eq(outcome_of(promise_bind(promise_blocking(echo, arg, note_free), look_at_arg, arg)),
                 77);
    cr_assert_eq(seen, 1);
    until_freed(1);
    promise_unref(promise_blocking(echo, number(1), note_free)); /* dropped: called all the same */
    until_freed(2);
    cr_assert_eq(atomic_load(&called), 2);
}

Test(blocking_promise, outcomes)
{
    ON_EACH_SETUP(outcomes_body);
}

static void many_body(void)
{
    static struct promise *all[1000];

    prepare();
    for (int i = 0; i < 1000; i++)
        all[i] = promise_blocking(echo, number(i), note_free);
    cr_assert_eq(outcome_of(promise_join(all, 1000)), 0);
    cr_assert_eq(atomic_load(&called), 1000);
    until_freed(1000);
}

Test(blocking_promise, a_thousand_calls)
{
    ON_EACH_SETUP(many_body);
}

/* ---- cancelling ---- */

static int failures;

static int note_failure(int error, void *ctx)
{
    cr_assert_eq(error, -ECANCELED);
    cr_assert_eq(atomic_load(&freed), *(int *)ctx, "callbacks come before free_arg");
    failures++;
    return 0;
}

static void cancel_body(void)
{
    int limit = weft_offload_limit(1), none = 0;
    struct promise *running, *queued, *late;

    prepare();
    failures = 0;
    running = promise_blocking(wait_at_gate, number(4), note_free);
    down(&arrived);
    /* not begun: never begins */
    queued = promise_blocking(echo, number(5), note_free);
    cr_assert_eq(promise_on_failure(queued, note_failure, &none), 0);
    late = promise_with_timeout(WEFT_MS(1), promise_blocking(echo, number(6), note_free));
    promise_cancel(queued);
    cr_assert_eq(atomic_load(&freed), 0, "no code of the user's runs inside a cancel");
    cr_assert_eq(failures, 0);
    cr_assert_eq(outcome_of(queued), -ECANCELED);
    cr_assert_eq(failures, 1);
    until_freed(1);
    cr_assert_eq(outcome_of(late), -ETIMEDOUT);
    until_freed(2);
    cr_assert_eq(atomic_load(&called), 0);
    /* begun: completion beats it */
    promise_cancel(running);
    cr_assert_eq(promise_state(running), PROMISE_PENDING);
    sem_post(&gate);
    cr_assert_eq(outcome_of(running), 4);
    until_freed(3);

    /* the wait can be given up; the memory is safe */
    late = promise_with_timeout(WEFT_MS(1), promise_blocking(wait_at_gate, number(7), note_free));
    down(&arrived); /* no timer fires meanwhile */
    cr_assert_eq(outcome_of(late), -ETIMEDOUT);
    cr_assert_eq(atomic_load(&freed), 3);
    sem_post(&gate);
    until_freed(4);
    weft_offload_limit((unsigned)limit);
}

Test(blocking_promise, cancelling)
{
    ON_EACH_SETUP(cancel_body);
}

/* ---- the end of the runtime ---- */

static int end_limit;

static void end_body(void)
{
    end_limit = weft_offload_limit(2);
    for (int i = 0; i < 6; i++) {
        struct promise *p = promise_blocking(wait_at_gate, number(i), note_free);

        if (i == 5)
            promise_cancel(p); /* withdrawn, and its turn has not come */
        promise_unref(p);
    }
    down(&arrived);
    down(&arrived);
}

Test(blocking_promise, the_end_of_the_runtime)
{
    for (const struct setup *setup = setups; setup < setups + setups_count; setup++) {
        prepare();
        cr_assert_eq(run_by_hand(setup, end_body), 0, "%s", setup->name);
        cr_assert_eq(atomic_load(&freed), 1, "the canceled one");
        for (int i = 0; i < 5; i++)
            sem_post(&gate);
        while (atomic_load(&freed) < 6)
            sched_yield();
        cr_assert_eq(atomic_load(&called), 5);
        weft_offload_limit((unsigned)end_limit);
    }
}

/* ---- misuse, and want ---- */

static void no_memory_body(void)
{
    prepare();
    promise_unref(promise_pause()); /* there is a state */
    cr_assert_eq(outcome_of(promise_blocking(NULL, number(1), note_free)), -EINVAL);
    promise__fail_after(0);
    cr_assert_eq(outcome_of(promise_blocking(echo, number(1), note_free)), -ENOMEM);
    promise__fail_after(SIZE_MAX);
    cr_assert_eq(atomic_load(&freed), 2);
    cr_assert_eq(atomic_load(&called), 0);
}

Test(blocking_promise, misuse)
{
    prepare();
    cr_assert_eq(outcome_of(promise_blocking(echo, number(1), note_free)), -EINVAL);
    cr_assert_eq(atomic_load(&freed), 1);
    ON_EACH_SETUP(no_memory_body);
}

/* ---- the raw form ---- */

struct work {
    struct weft_job job;
    int runs, rounds;
    bool done;
};

static void work_run(struct weft_job *job)
{
    weft__container(job, struct work, job)->runs++;
}

/* May hand it over again, right here. */
static void work_done(struct weft_job *job)
{
    struct work *work = weft__container(job, struct work, job);

    if (--work->rounds > 0)
        cr_assert_eq(weft_offload(job), 0);
    else
        work->done = true;
}

static void gate_run(struct weft_job *job)
{
    (void)job;
    wait_at_gate(NULL);
}

static void raw_body(void)
{
    struct work work = {.job = {.run = work_run, .done = work_done}, .rounds = 5};
    struct work busy = {.job = {.run = gate_run, .done = work_done}, .rounds = 1};
    struct weft_job bad = {.run = work_run};
    int limit = weft_offload_limit(1);

    prepare();
    cr_assert_eq(weft_offload(NULL), -EINVAL);
    cr_assert_eq(weft_offload(&bad), -EINVAL);
    cr_assert_eq(weft_offload(&work.job), 0);
    while (!work.done)
        turn();
    cr_assert_eq(work.runs, 5);

    cr_assert_eq(weft_offload(&busy.job), 0);
    down(&arrived);
    cr_assert(!weft_offload_withdraw(&busy.job), "it has begun");
    work = (struct work){.job = {.run = work_run, .done = work_done}, .rounds = 1};
    cr_assert_eq(weft_offload(&work.job), 0);
    cr_assert(weft_offload_withdraw(&work.job));
    cr_assert_eq(weft_offload(&work.job), 0, "it can be handed over again");
    sem_post(&gate);
    while (!work.done || !busy.done)
        turn();
    cr_assert_eq(work.runs, 1);
    weft_offload_limit((unsigned)limit);
}

Test(blocking_promise, raw)
{
    struct work work = {.job = {.run = work_run, .done = work_done}};

    cr_assert_eq(weft_offload(&work.job), -EINVAL, "without a runtime");
    ON_EACH_SETUP(raw_body);
}

/* A job without `drop` is simply forgotten when the runtime ends. */
static struct work forgotten;

static void forget_body(void)
{
    forgotten = (struct work){.job = {.run = gate_run, .done = work_done}, .rounds = 1};
    cr_assert_eq(weft_offload(&forgotten.job), 0);
    down(&arrived);
}

Test(blocking_promise, without_drop)
{
    for (const struct setup *setup = setups; setup < setups + setups_count; setup++) {
        unsigned jobs;

        prepare();
        cr_assert_eq(run_by_hand(setup, forget_body), 0, "%s", setup->name);
        sem_post(&gate);
        while (weft__offload_threads(&jobs), jobs > 0)
            sched_yield();
        cr_assert(!forgotten.done);
    }
}
