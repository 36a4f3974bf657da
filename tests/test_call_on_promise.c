/* Functions that give promises, called on other runtimes: outcomes, ownership, cancelling, and which
 * runtime ends first. Without fibers. */
#include "allocations.h"
#include "cluster_support.h"
#include "promise_internal.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <semaphore.h>
#include <weft/promise.h>
#include <weft/promise_time.h>

#define CALLS 8

/* What runs in one test: servers, and here a runtime that calls them. */
static struct weft_cluster *servers;
static struct outcome {
    struct promise *promise; /* NULL: settled */
    int status;
    int64_t number;
    bool freed; /* its context, when the promise was settled */
} outcome[CALLS];
static atomic_int freed[CALLS];
static sem_t all_freed;

static void start_servers(const struct setup *setup, unsigned count)
{
    struct weft_cluster_options options = cluster_options(setup, count);

    memset(outcome, 0, sizeof outcome);
    memset(freed, 0, sizeof freed);
    sem_init(&all_freed, 0, 0);
    cr_assert_eq(weft_cluster_start(&servers, NULL, NULL, &options), 0, "%s", setup->name);
}

static void stop_servers(void)
{
    weft_cluster_stop(servers);
    cr_assert_eq(weft_cluster_join(servers), 0);
}

static int run_here(const struct setup *setup, promise_thunk_fn *main)
{
    struct weft_options options = setup_options(setup);

    return promise_run(main, NULL, &options, NULL);
}

static struct weft_inbox *server(unsigned index)
{
    return weft_cluster_inbox(servers, index);
}

static void count_free(void *ctx)
{
    atomic_fetch_add((atomic_int *)ctx, 1);
    sem_post(&all_freed);
}

static struct promise *succeeded(union weft_value value, void *arg)
{
    struct outcome *o = arg;

    o->status = 0;
    o->number = value.num;
    o->freed = freed[o - outcome] > 0;
    o->promise = NULL;
    return promise_fulfilled(weft_num(0));
}

static struct promise *failed(int error, void *arg)
{
    struct outcome *o = arg;

    o->status = error;
    o->freed = freed[o - outcome] > 0;
    o->promise = NULL;
    return promise_fulfilled(weft_num(0));
}

/* Calls fn on a server as number `i`; a promise fulfilled once the outcome stands in outcome[i]. */
static struct promise *call(unsigned i, unsigned on, promise_thunk_fn *fn)
{
    outcome[i].promise = promise_call_on(server(on), fn, &freed[i], count_free);
    return promise_try_bind(promise_ref(outcome[i].promise), succeeded, failed, &outcome[i]);
}

static void let_go(unsigned i)
{
    promise_unref(outcome[i].promise);
}

/* ---- outcomes ---- */

static struct weft_runtime *caller;

static struct promise *give_number(void *ctx)
{
    (void)ctx;
    cr_assert(weft__is_base(weft__rt));
    cr_assert_neq(weft__rt, caller);
    return promise_fulfilled(weft_num(42));
}

static struct promise *give_big_number(void *ctx)
{
    (void)ctx;
    return promise_fulfilled(weft_num(INT64_MAX - 5)); /* in a block */
}

static struct promise *fail_now(void *ctx)
{
    (void)ctx;
    return promise_rejected(-ENOTDIR);
}

static struct promise *give_nothing(void *ctx)
{
    (void)ctx;
    return NULL;
}

static struct promise *tell_slept(union weft_value value, void *ctx)
{
    (void)ctx;
    return promise_fulfilled(weft_num(value.num + 7));
}

static struct promise *sleep_there(void *ctx)
{
    return promise_bind(promise_sleep(WEFT_MS(1)), tell_slept, ctx);
}

static struct promise *sleep_and_fail(void *ctx)
{
    return promise_with_timeout(WEFT_MS(1), promise_bind(promise_create(), tell_slept, ctx));
}

static struct promise *call_all(void *unused)
{
    struct promise *all[CALLS];

    (void)unused;
    caller = weft__rt;
    all[0] = call(0, 0, give_number);
    all[1] = call(1, 1, give_big_number);
    all[2] = call(2, 0, fail_now);
    all[3] = call(3, 1, give_nothing);
    all[4] = call(4, 0, sleep_there);
    all[5] = call(5, 1, sleep_and_fail);
    for (int i = 0; i < 6; i++) {
        cr_assert_eq(promise_state(outcome[i].promise), PROMISE_PENDING);
        let_go((unsigned)i);
    }
    return promise_join(all, 6);
}

Test(call_on_promise, outcomes)
{
    EACH_SETUP(setup)
    {
        start_servers(setup, 2);
        cr_assert_eq(run_here(setup, call_all), 0, "%s", setup->name);
        cr_assert_eq(outcome[0].status, 0);
        cr_assert_eq(outcome[0].number, 42);
        cr_assert_eq(outcome[1].number, INT64_MAX - 5);
        cr_assert_eq(outcome[2].status, -ENOTDIR);
        cr_assert_eq(outcome[3].status, -EINVAL);
        cr_assert_eq(outcome[4].number, 7);
        cr_assert_eq(outcome[5].status, -ETIMEDOUT);
        for (int i = 0; i < 6; i++) {
            cr_assert(!outcome[i].freed, "%d: freed before it was settled", i);
            cr_assert_eq(freed[i], 1);
        }
        cr_assert_eq(weft_cluster_join(servers), 0); /* nothing is left to be done there */
    }
}

static struct promise *call_badly(void *unused)
{
    struct promise *p[2];

    (void)unused;
    p[0] = promise_call_on(NULL, give_number, &freed[0], count_free);
    p[1] = promise_call_on(server(0), NULL, &freed[1], count_free);
    for (int i = 0; i < 2; i++) {
        int error = 0;

        cr_assert_eq(promise_poll(p[i], NULL, &error), PROMISE_REJECTED);
        cr_assert_eq(error, -EINVAL);
        cr_assert_eq(freed[i], 1);
        promise_unref(p[i]);
    }
    return promise_fulfilled(weft_num(0));
}

Test(call_on_promise, bad_input)
{
    struct promise *p;
    int error = 0;

    start_servers(&setups[0], 1);
    cr_assert_eq(run_here(&setups[0], call_badly), 0);
    p = promise_call_on(server(0), give_number, &freed[2], count_free); /* no runtime here */
    cr_assert_eq(promise_poll(p, NULL, &error), PROMISE_REJECTED);
    cr_assert_eq(error, -EINVAL);
    cr_assert_eq(freed[2], 1);
    stop_servers();
}

/* ---- there and back, many times ---- */

#define HOPS (slow_tools() ? 100 : 2000)

static struct promise *hop(void *ctx);

static struct promise *hopped(union weft_value value, void *ctx)
{
    (void)ctx;
    return promise_fulfilled(weft_num(value.num + 1));
}

static struct promise *hop(void *ctx)
{
    int left = (int)(intptr_t)ctx;

    if (left == 0)
        return promise_fulfilled(weft_num(0));
    return promise_bind(
        promise_call_on(server((unsigned)left % 3), hop, (void *)(intptr_t)(left - 1), NULL),
        hopped, NULL);
}

static struct promise *check_hops(union weft_value value, void *ctx)
{
    (void)ctx;
    cr_assert_eq(value.num, HOPS);
    return promise_fulfilled(value);
}

static struct promise *hop_around(void *unused)
{
    (void)unused;
    return promise_bind(hop((void *)(intptr_t)HOPS), check_hops, NULL);
}

Test(call_on_promise, calls_in_calls)
{
    EACH_SETUP(setup)
    {
        start_servers(setup, 3);
        cr_assert_eq(run_here(setup, hop_around), 0, "%s", setup->name);
        cr_assert_eq(weft_cluster_join(servers), 0);
    }
}

/* ---- values with a destructor ---- */

static atomic_int destroyed;
static pthread_t destroyed_on;

static void destroy_value(void *ptr)
{
    destroyed_on = pthread_self();
    atomic_fetch_add(&destroyed, 1);
    free(ptr);
}

static struct promise *give_owned(void *ctx)
{
    int *value = malloc(sizeof *value);

    (void)ctx;
    *value = 5;
    return promise_fulfilled_owned(value, destroy_value);
}

static struct promise *settle_owned(union weft_value unused, void *promise)
{
    int *value = malloc(sizeof *value);

    (void)unused;
    *value = 5;
    promise_resolve_owned(promise, value, destroy_value);
    promise_unref(promise);
    return promise_fulfilled(weft_num(0));
}

/* Pending; nobody but the call holds it when it is settled. */
static struct promise *give_owned_later(void *ctx)
{
    struct promise *p = promise_create();

    (void)ctx;
    promise_unref(promise_bind(promise_pause(), settle_owned, promise_ref(p)));
    return p;
}

/* A mirror of the one that owns the value. */
static struct promise *give_owned_wrapped(void *ctx)
{
    return promise_no_cancel(give_owned_later(ctx));
}

static struct promise *kept;

static struct promise *give_shared(void *ctx)
{
    kept = give_owned(ctx);
    return promise_ref(kept);
}

static struct promise *drop_shared(void *ctx)
{
    (void)ctx;
    promise_unref(kept);
    return promise_fulfilled(weft_num(0));
}

static struct promise *check_owned(union weft_value value, void *ctx)
{
    (void)ctx;
    cr_assert_eq(*(int *)value.ptr, 5);
    return promise_fulfilled(weft_num(0));
}

static promise_thunk_fn *owned_fn;

static struct promise *look_and_drop(void *unused)
{
    struct promise *p = promise_call_on(server(0), owned_fn, NULL, NULL);

    (void)unused;
    return promise_bind(promise_ref(p), check_owned, NULL); /* p is left to the end */
}

static struct promise *take(union weft_value value, void *ctx)
{
    (void)ctx;
    destroy_value(value.ptr);
    return promise_fulfilled(weft_num(0));
}

static struct promise *look_and_take(void *unused)
{
    (void)unused;
    return promise_bind(promise_call_on(server(0), owned_fn, NULL, NULL), take, NULL);
}

static struct promise *look_at_shared(void *unused)
{
    (void)unused;
    return promise_bind(promise_call_on(server(0), give_shared, NULL, NULL), check_owned, NULL);
}

static struct promise *drop_shared_there(void *unused)
{
    (void)unused;
    return promise_call_on(server(0), drop_shared, NULL, NULL);
}

Test(call_on_promise, values_with_a_destructor)
{
    promise_thunk_fn *const functions[] = {give_owned, give_owned_later, give_owned_wrapped};

    EACH_SETUP(setup)
    {
        start_servers(setup, 1);
        for (int i = 0; i < 3; i++) {
            owned_fn = functions[i];
            destroyed = 0;
            cr_assert_eq(run_here(setup, look_and_drop), 0, "%s", setup->name);
            cr_assert_eq(destroyed, 1, "%s, %d", setup->name, i);
            cr_assert(pthread_equal(destroyed_on, pthread_self()));
            cr_assert_eq(run_here(setup, look_and_take), 0, "%s", setup->name);
            cr_assert_eq(destroyed, 2, "%s, %d", setup->name, i);
        }
        /* held by another there: borrowed here, and destroyed there */
        destroyed = 0;
        cr_assert_eq(run_here(setup, look_at_shared), 0, "%s", setup->name);
        cr_assert_eq(destroyed, 0);
        cr_assert_eq(run_here(setup, drop_shared_there), 0, "%s", setup->name);
        cr_assert_eq(destroyed, 1);
        cr_assert(!pthread_equal(destroyed_on, pthread_self()));
        stop_servers();
    }
}

/* ---- canceling ---- */

static atomic_int canceled_there;

static int note_cancel(void *ctx)
{
    (void)ctx;
    atomic_fetch_add(&canceled_there, 1);
    return 0;
}

static struct promise *wait_there(void *ctx)
{
    struct promise *p = promise_create_task();

    (void)ctx;
    promise_on_cancel(p, note_cancel, NULL);
    return p;
}

static struct promise *never_there(void *ctx)
{
    (void)ctx;
    return promise_no_cancel(promise_create_task());
}

static struct promise *cancel_first(void *ctx)
{
    promise_cancel(outcome[0].promise);
    promise_cancel(outcome[0].promise);
    let_go(0);
    return promise_fulfilled(weft_ptr(ctx));
}

static struct promise *cancel_first_v(union weft_value value, void *ctx)
{
    (void)value;
    return cancel_first(ctx);
}

/* At once: the request follows the call; and when the call has long begun there. */
static struct promise *cancel_at_once(void *unused)
{
    struct promise *p = call(0, 0, wait_there);

    cancel_first(unused);
    return p;
}

static struct promise *cancel_later(void *unused)
{
    struct promise *p = call(0, 0, wait_there);

    return promise_join((struct promise *const[]){p, promise_bind(promise_sleep(WEFT_MS(2)),
                                                                  cancel_first_v, unused)},
                        2);
}

/* It races the result. */
static struct promise *cancel_settled(void *unused)
{
    struct promise *p = call(0, 0, give_number);

    sched_yield();
    cancel_first(unused);
    return p;
}

Test(call_on_promise, canceling)
{
    EACH_SETUP(setup)
    {
        start_servers(setup, 1);
        canceled_there = 0;
        cr_assert_eq(run_here(setup, cancel_at_once), 0, "%s", setup->name);
        cr_assert_eq(outcome[0].status, -ECANCELED);
        cr_assert_eq(canceled_there, 1);
        cr_assert_eq(freed[0], 1);
        cr_assert_eq(run_here(setup, cancel_later), 0, "%s", setup->name);
        cr_assert_eq(outcome[0].status, -ECANCELED);
        cr_assert_eq(canceled_there, 2);
        cr_assert_eq(freed[0], 2);
        for (int i = 0; i < (slow_tools() ? 5 : 50); i++) {
            cr_assert_eq(run_here(setup, cancel_settled), 0, "%s", setup->name);
            cr_assert_eq(outcome[0].status, 0); /* fulfilled at once there, in the same task */
            cr_assert_eq(outcome[0].number, 42);
            cr_assert_eq(freed[0], 3 + i);
        }
        stop_servers();
    }
}

/* ---- who ends first ---- */

static struct promise *stop_there(void *ctx)
{
    (void)ctx;
    weft_cluster_stop(servers);
    return promise_fulfilled(weft_num(0));
}

/* The second can't be canceled, and would never be settled; the third comes when it stops already. */
static struct promise *end_there(void *unused)
{
    struct promise *all[4];

    (void)unused;
    all[0] = call(0, 0, wait_there);
    all[1] = call(1, 0, never_there);
    all[2] = call(2, 0, stop_there);
    all[3] = call(3, 0, sleep_there);
    for (unsigned i = 0; i < 4; i++)
        let_go(i);
    return promise_join(all, 4);
}

static struct promise *call_the_dead(void *unused)
{
    struct promise *p = call(4, 0, give_number);

    (void)unused;
    cr_assert_eq(outcome[4].status, -ESHUTDOWN);
    return p;
}

Test(call_on_promise, the_runtime_there_ends)
{
    EACH_SETUP(setup)
    {
        start_servers(setup, 1);
        cr_assert_eq(run_here(setup, end_there), 0, "%s", setup->name);
        cr_assert_eq(outcome[0].status, -ESHUTDOWN);
        cr_assert_eq(outcome[1].status, -ESHUTDOWN);
        cr_assert_eq(outcome[2].status, 0);
        /* it has begun before the stop came; it may even have slept long enough */
        cr_assert(outcome[3].status == -ESHUTDOWN || outcome[3].status == 0, "%d",
                  outcome[3].status);
        for (int i = 0; i < 4; i++)
            cr_assert_eq(freed[i], 1);
        while (weft_cluster_next(servers) != NULL)
            sched_yield();
        cr_assert_eq(run_here(setup, call_the_dead), 0);
        cr_assert_eq(freed[4], 1);
        stop_servers();
    }
}

static sem_t may_end;

static struct promise *settle_when_told(void *ctx)
{
    (void)ctx;
    while (sem_wait(&may_end) < 0) /* blocks the runtime there: it is told when this one is gone */
        ;
    return give_owned(NULL);
}

static struct promise *leave_behind(void *unused)
{
    (void)unused;
    promise_unref(promise_call_on(server(0), settle_when_told, &freed[0], count_free));
    promise_unref(promise_call_on(server(0), never_there, &freed[1], count_free));
    promise_unref(promise_call_on(server(0), give_number, &freed[2], count_free));
    return promise_fulfilled(weft_num(0));
}

Test(call_on_promise, the_runtime_here_ends)
{
    EACH_SETUP(setup)
    {
        start_servers(setup, 1);
        sem_init(&may_end, 0, 0);
        destroyed = 0;
        cr_assert_eq(run_here(setup, leave_behind), 0, "%s", setup->name);
        sem_post(&may_end);
        stop_servers();
        for (int i = 0; i < 3; i++)
            cr_assert_eq(freed[i], 1);
        cr_assert_eq(destroyed, 1);
    }
}

/* ---- rest ---- */

static struct promise *wait_for_other(void *ctx)
{
    return promise_call_on(server(1), (promise_thunk_fn *)never_there, ctx, NULL);
}

static void begin_waiting(struct weft_task *task)
{
    (void)task;
    promise_unref(wait_for_other(NULL));
}

/* Calls inside a cluster don't keep it from seeing that nothing can happen any more. */
Test(call_on_promise, calls_at_rest)
{
    EACH_SETUP(setup)
    {
        struct weft_task task = {.run = begin_waiting};

        start_servers(setup, 2);
        cr_assert_eq(weft_post(server(0), &task), 0);
        cr_assert_eq(weft_cluster_join(servers), 0, "%s", setup->name);
    }
}

static struct promise *wait_long(void *unused)
{
    struct promise *p = call(0, 0, never_there);

    (void)unused;
    let_go(0);
    return p;
}

/* From outside it is different: who called can still cancel. It ends when the servers do. */
static void *stop_soon(void *unused)
{
    (void)unused;
    weft_cluster_stop(servers);
    return NULL;
}

Test(call_on_promise, a_call_from_outside_is_waited_for)
{
    EACH_SETUP(setup)
    {
        pthread_t thread;

        start_servers(setup, 1);
        pthread_create(&thread, NULL, stop_soon, NULL);
        cr_assert_eq(run_here(setup, wait_long), 0, "%s", setup->name);
        cr_assert_eq(outcome[0].status, -ESHUTDOWN);
        pthread_join(thread, NULL);
        stop_servers();
    }
}

/* ---- no memory ---- */

static int failures;

static struct promise *call_with_little_memory(void *unused)
{
    (void)unused;
    for (size_t allowed = 0;; allowed++) {
        struct promise *p;
        int error = 0;

        freed[0] = 0;
        allocations_fail_after(allowed);
        p = promise_call_on(server(0), give_number, &freed[0], count_free);
        allocations_fail_after(SIZE_MAX);
        if (promise_poll(p, NULL, &error) == PROMISE_PENDING)
            return p;
        failures++;
        cr_assert_eq(error, -ENOMEM);
        cr_assert_eq(freed[0], 1);
        promise_unref(p);
    }
}

static struct promise *call_without_blocks(void *unused)
{
    struct promise *p;
    int error = 0;

    (void)unused;
    promise_unref(promise_create()); /* the state */
    promise__fail_after(0);
    p = promise_call_on(server(0), give_number, &freed[0], count_free);
    promise__fail_after(SIZE_MAX);
    cr_assert_eq(promise_poll(p, NULL, &error), PROMISE_REJECTED);
    cr_assert_eq(error, -ENOMEM);
    cr_assert_eq(freed[0], 1);
    promise_unref(p);
    return promise_fulfilled(weft_num(0));
}

Test(call_on_promise, without_memory)
{
    start_servers(&setups[0], 1);
    cr_assert_eq(run_here(&setups[0], call_with_little_memory), 0);
    if (ALLOCATIONS_CAN_FAIL)
        cr_assert_geq(failures, 1);
    freed[0] = 0;
    cr_assert_eq(run_here(&setups[0], call_without_blocks), 0);
    stop_servers();
}

/* ---- local values ---- */

static const struct weft_key shared_key = {.name = "request", .flags = WEFT_KEY_SHARED};
static const struct weft_key own_key = {.name = "connection"};
static int a_value, another_value;

static struct promise *look_at_values(void *ctx)
{
    (void)ctx;
    if (weft_get(&shared_key) != &a_value || weft_get(&own_key) != NULL)
        return promise_rejected(-EPROTO);
    weft_set(&shared_key, &another_value); /* there, for this call */
    return promise_fulfilled(weft_num(0));
}

static struct promise *see_nothing(void *ctx)
{
    (void)ctx;
    return weft_get(&shared_key) == NULL ? promise_fulfilled(weft_num(0))
                                         : promise_rejected(-EPROTO);
}

static struct promise *then_see_nothing(union weft_value value, void *ctx)
{
    (void)value;
    weft_set(&shared_key, NULL);
    return promise_call_on(server(0), see_nothing, ctx, NULL);
}

static struct promise *call_with_values(void *ctx)
{
    weft_set(&shared_key, &a_value);
    weft_set(&own_key, &a_value);
    return promise_bind(promise_call_on(server(0), look_at_values, ctx, NULL), then_see_nothing,
                        ctx);
}

Test(call_on_promise, local_values)
{
    EACH_SETUP(setup)
    {
        start_servers(setup, 1);
        cr_assert_eq(run_here(setup, call_with_values), 0, "%s", setup->name);
        cr_assert_eq(weft_cluster_join(servers), 0);
    }
}
