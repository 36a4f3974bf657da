/* bench_promise: what the promises' central operations cost.
 *
 *   resolved-bind   a chain of binds, each on the settled result of the last one
 *   resolved-map    the same with maps
 *   pending-bind    a bind on a pending promise, and the resolution that runs its callback
 *   pause-parallel  1000 chains of 1000 pauses side by side: a pause and the bind that waits for it
 *   pause-serial    one such chain: in addition a whole turn of the loop for each pause
 *   fiber-bind      resolved-bind, called by a fiber
 *   await-settled   fiber_await of a settled promise (with its making)
 *   await-resolve   two fibers: each resolves the promise the other awaits, and awaits its own
 *                   (one creation, resolution, wait and switch an operation)
 *
 * Why it is fair: public API only, each operation includes making and freeing its promises, nothing
 * is kept for later. A resolved chain is what Lwt's benchmark of the same name does: one `return`
 * and one bind an operation. A build without fibers measures all but the last three, for comparison.
 */
#include "harness.h"

#include <weft/promise.h>
#include <weft/runtime.h>
#if WEFT_HAS_FIBERS
#include <weft/fiber.h>
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHAIN  1000
#define CHAINS 1000

/* One measurement: what to do, how often, and how long it took. */
struct task {
    long ops;
    int64_t ns;
    void *state;
};

static void expect(bool true_enough, const char *what)
{
    if (!true_enough)
        bench_die("%s", what);
}

static struct promise *add_one(union weft_value value, void *ctx)
{
    (void)ctx;
    return promise_fulfilled(weft_num(value.num + 1));
}

static int map_one(union weft_value in, void *ctx, union weft_value *out)
{
    (void)ctx;
    *out = weft_num(in.num + 1);
    return 0;
}

/* ---- at once ------------------------------------------------------------------------------ */

static void bind_chains(long ops)
{
    for (long done = 0; done < ops; done += CHAIN) {
        struct promise *promise = promise_fulfilled(weft_num(0));
        union weft_value value = weft_num(0);

        for (int i = 0; i < CHAIN; i++)
            promise = promise_bind(promise, add_one, NULL);
        promise_poll(promise, &value, NULL);
        expect(value.num == CHAIN, "a bind is missing");
        promise_unref(promise);
    }
}

static void map_chains(long ops)
{
    for (long done = 0; done < ops; done += CHAIN) {
        struct promise *promise = promise_fulfilled(weft_num(0));
        union weft_value value = weft_num(0);

        for (int i = 0; i < CHAIN; i++)
            promise = promise_map(promise, map_one, NULL);
        promise_poll(promise, &value, NULL);
        expect(value.num == CHAIN, "a map is missing");
        promise_unref(promise);
    }
}

static void pending_binds(long ops)
{
    int64_t sum = 0;

    for (long i = 0; i < ops; i++) {
        struct promise *source = promise_create();
        struct promise *result = promise_bind(promise_ref(source), add_one, NULL);
        union weft_value value = weft_num(0);

        promise_resolve(source, weft_num(i));
        promise_poll(result, &value, NULL);
        sum += value.num - i;
        promise_unref(source);
        promise_unref(result);
    }
    expect(sum == ops, "a pending bind is missing");
}

/* Measured on the base stack, where callbacks run. */
static struct promise *at_once(struct task *task, void (*work)(long ops))
{
    int64_t began;

    work(task->ops / 10);
    began = bench_now();
    work(task->ops);
    task->ns = bench_now() - began;
    return promise_fulfilled(weft_num(0));
}

static struct promise *resolved_bind(void *task)
{
    return at_once(task, bind_chains);
}

static struct promise *resolved_map(void *task)
{
    return at_once(task, map_chains);
}

static struct promise *pending_bind(void *task)
{
    return at_once(task, pending_binds);
}

/* ---- pauses ------------------------------------------------------------------------------- */

static struct promise *pause_chain(union weft_value left, void *ctx);

static struct promise *pause_next(union weft_value none, void *ctx)
{
    long *left = ctx;

    (void)none;
    return pause_chain(weft_num(--*left), left);
}

static struct promise *pause_chain(union weft_value left, void *ctx)
{
    if (left.num == 0)
        return promise_fulfilled(left);
    return promise_bind(promise_pause(), pause_next, ctx);
}

struct pauses {
    struct task *task;
    int64_t began;
    long left[CHAINS];
    struct promise *chains[CHAINS];
};

static struct promise *pauses_over(union weft_value none, void *ctx)
{
    struct pauses *pauses = ctx;

    (void)none;
    pauses->task->ns = bench_now() - pauses->began;
    return promise_fulfilled(weft_num(0));
}

static struct promise *pauses_start(struct task *task, long chains)
{
    struct pauses *pauses = task->state;

    pauses->task = task;
    pauses->began = bench_now();
    for (long i = 0; i < chains; i++) {
        pauses->left[i] = task->ops / chains;
        pauses->chains[i] = pause_chain(weft_num(pauses->left[i]), &pauses->left[i]);
    }
    return promise_bind(promise_join(pauses->chains, (size_t)chains), pauses_over, pauses);
}

static struct promise *pause_parallel(void *task)
{
    return pauses_start(task, CHAINS);
}

static struct promise *pause_serial(void *task)
{
    return pauses_start(task, 1);
}

/* ---- fibers ------------------------------------------------------------------------------- */

#if WEFT_HAS_FIBERS
static int await_settled(void *arg)
{
    struct task *task = arg;
    int64_t began = 0, sum = 0;

    for (long i = -task->ops / 10; i < task->ops; i++) {
        union weft_value value;

        if (i == 0) {
            began = bench_now();
            sum = 0;
        }
        if (fiber_await(promise_fulfilled(weft_num(1)), &value, WEFT_FOREVER) == 0)
            sum += value.num;
    }
    task->ns = bench_now() - began;
    expect(sum == task->ops, "an await is missing");
    return 0;
}

/* What each of the two awaits. */
struct table {
    struct task *task;
    struct promise *awaited[2];
};

static void hand_over(struct table *table, int me, long turns)
{
    for (long i = 0; i < turns; i++) {
        struct promise *other = table->awaited[!me], *own = promise_create();

        table->awaited[me] = promise_ref(own);
        promise_resolve(other, weft_num(i));
        promise_unref(other);
        expect(fiber_await(own, NULL, WEFT_FOREVER) == 0, "an await failed");
    }
}

static int64_t second_player(void *arg)
{
    struct table *table = arg;
    struct promise *own = promise_create();

    table->awaited[1] = promise_ref(own);
    expect(fiber_await(own, NULL, WEFT_FOREVER) == 0, "an await failed");
    hand_over(table, 1, table->task->ops / 2 + table->task->ops / 20 - 1);
    promise_resolve(table->awaited[0], weft_num(0));
    promise_unref(table->awaited[0]);
    return 0;
}

/* The same chains from a fiber: each callback runs on the base stack all the same. */
static int fiber_bind(void *arg)
{
    promise_unref(at_once(arg, bind_chains));
    return 0;
}

static int await_resolve(void *arg)
{
    struct table table = {.task = arg};
    struct promise *second = fiber_spawn(second_player, &table);
    int64_t began;

    fiber_yield();
    hand_over(&table, 0, table.task->ops / 20);
    began = bench_now();
    hand_over(&table, 0, table.task->ops / 2);
    table.task->ns = bench_now() - began;
    return fiber_await(second, NULL, WEFT_FOREVER);
}
#endif

/* ---- the driver --------------------------------------------------------------------------- */

/* Mostly a few milliseconds each, so that a round has a good chance not to be interrupted. */
static const struct mode {
    const char *name;
    long ops;
    promise_thunk_fn *promises; /* what promise_run runs, or ... */
    weft_main_fn *fibers;       /* ... what weft_run runs */
} modes[] = {
    {"resolved-bind", 500000, resolved_bind, NULL},
    {"resolved-map", 500000, resolved_map, NULL},
    {"pending-bind", 100000, pending_bind, NULL},
    {"pause-parallel", (long)CHAIN *CHAINS, pause_parallel, NULL},
    {"pause-serial", 100000, pause_serial, NULL},
#if WEFT_HAS_FIBERS
    {"fiber-bind", 500000, NULL, fiber_bind},
    {"await-settled", 500000, NULL, await_settled},
    {"await-resolve", 200000, NULL, await_resolve},
#endif
};
#define MODES ((int)(sizeof(modes) / sizeof(modes[0])))

static void measure(struct bench_cell *cell, const struct mode *mode)
{
    struct task task = {.ops = mode->ops, .state = calloc(1, sizeof(struct pauses))};
    const int64_t began = bench_now();
    int result;

    if (task.state == NULL)
        bench_die("out of memory");
    result = mode->promises != NULL ? promise_run(mode->promises, &task, NULL, NULL)
                                    : weft_run(mode->fibers, &task, NULL);
    if (result < 0)
        bench_die("%s: %s", mode->name, strerror(-result));
    bench_add(cell, (double)task.ns / (double)task.ops);
    free(task.state);
    cell->spent += bench_now() - began;
}

int main(int argc, char **argv)
{
    struct bench_options options = {.rounds = 15};
    struct bench_cell cells[MODES];

    bench_options_parse(&options, argc, argv, "Measures the promises' central operations, in ns.");
    if (!bench_wanted(&options, BENCH_WEFT))
        bench_die("the only implementation here is " BENCH_WEFT);
    memset(cells, 0, sizeof(cells));
    for (int m = 0; m < MODES; m++) {
        cells[m].impl = BENCH_WEFT;
        cells[m].mode = modes[m].name;
        cells[m].ops = modes[m].ops;
    }
    for (int round = 0; round < options.rounds; round++)
        for (int m = 0; m < MODES; m++)
            if (bench_again(&cells[m]))
                measure(&cells[m], &modes[m]);

    if (!options.json)
        printf("  %-15s %9s %9s %7s\n", BENCH_WEFT, "min, ns", "median", "rounds");
    for (int m = 0; m < MODES; m++) {
        if (options.json)
            bench_json("promise", &cells[m], "ns_per_op");
        else
            printf("  %-15s %9.2f %9.2f %7d\n", cells[m].mode, cells[m].best,
                   bench_median(&cells[m]), cells[m].rounds);
    }
    return 0;
}
