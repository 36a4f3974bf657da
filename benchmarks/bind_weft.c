/* bind_weft.c: what a bind costs with weft; one program for the library with fibers and one for the
 * library without. Public API, defaults throughout, all on the base stack under promise_run: the
 * two differ in nothing but what else is in the library. See bench_bind.c.
 *
 * In a pending bind the resolver's reference is kept across the bind (promise_ref), as whoever is to
 * resolve a promise must; that is timed, its release is not: it goes with the making of the promise.
 */
#include "harness.h"

#include <weft/promise.h>
#include <weft/runtime.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHAIN 1000 /* resolved: binds between two looks at the result */
#define BATCH 256  /* pending */

struct plan {
    long ops;
    long left; /* serial: pauses to come */
    int64_t began, ns;
    uint64_t blocks; /* serial: in use when it began */
    double blocks_per_op, bytes_per_op;
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

/* A result's value; ends the program if there is none. */
static int64_t look(struct promise *result)
{
    union weft_value value = weft_num(0);

    expect(promise_poll(result, &value, NULL) == PROMISE_FULFILLED, "a bind has no result");
    return value.num;
}

static uint64_t blocks_in_use(void)
{
    struct weft_stats stats = {.size = sizeof(stats)};

    expect(weft_stats(&stats) == 0, "no counters");
    return stats.promises;
}

/* ---- time --------------------------------------------------------------------------------- */

static void resolved(long ops)
{
    for (long done = 0; done < ops; done += CHAIN) {
        struct promise *promise = promise_fulfilled(weft_num(0));

        for (int i = 0; i < CHAIN; i++)
            promise = promise_bind(promise, add_one, NULL);
        expect(look(promise) == CHAIN, "a bind is missing");
        promise_unref(promise);
    }
}

static struct promise *time_resolved(void *arg)
{
    struct plan *plan = arg;
    int64_t began;

    resolved(plan->ops / 10);
    began = bench_now();
    resolved(plan->ops);
    plan->ns = bench_now() - began;
    return promise_fulfilled(weft_num(0));
}

/* Returns ns. */
static int64_t pending_batch(void)
{
    struct promise *sources[BATCH], *results[BATCH];
    int64_t began, ended, sum = 0;

    for (int i = 0; i < BATCH; i++)
        sources[i] = promise_create();
    began = bench_now();
    for (int i = 0; i < BATCH; i++)
        results[i] = promise_bind(promise_ref(sources[i]), add_one, NULL);
    for (int i = 0; i < BATCH; i++)
        promise_resolve(sources[i], weft_num(i));
    for (int i = 0; i < BATCH; i++) {
        sum += look(results[i]) - i;
        promise_unref(results[i]);
    }
    ended = bench_now();
    for (int i = 0; i < BATCH; i++)
        promise_unref(sources[i]);
    expect(sum == BATCH, "a bind is missing");
    return ended - began;
}

static struct promise *time_pending(void *arg)
{
    struct plan *plan = arg;

    for (long done = 0; done < plan->ops / 10; done += BATCH)
        pending_batch();
    for (long done = 0; done < plan->ops; done += BATCH)
        plan->ns += pending_batch();
    return promise_fulfilled(weft_num(0));
}

static struct promise *pause_next(union weft_value none, void *ctx)
{
    struct plan *plan = ctx;

    if (--plan->left == 0)
        return promise_fulfilled(none);
    return promise_bind(promise_pause(), pause_next, plan);
}

static struct promise *serial(struct plan *plan, long ops)
{
    plan->left = ops;
    return promise_bind(promise_pause(), pause_next, plan);
}

static struct promise *serial_over(union weft_value none, void *arg)
{
    struct plan *plan = arg;

    plan->ns = bench_now() - plan->began;
    expect(blocks_in_use() == plan->blocks, "the chain keeps blocks");
    return promise_fulfilled(none);
}

static struct promise *serial_warm(union weft_value none, void *arg)
{
    struct plan *plan = arg;

    (void)none;
    plan->blocks = blocks_in_use();
    plan->began = bench_now();
    return promise_bind(serial(plan, plan->ops), serial_over, plan);
}

static struct promise *time_serial(void *arg)
{
    struct plan *plan = arg;

    return promise_bind(serial(plan, plan->ops / 10), serial_warm, plan);
}

/* ---- memory ------------------------------------------------------------------------------- */

struct usage {
    double blocks, bytes;
};

static double resident_bytes(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    char line[256];
    long kilobytes = -1;

    expect(file != NULL, "cannot read /proc/self/smaps_rollup");
    while (kilobytes < 0 && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, "Rss:", 4) == 0)
            kilobytes = strtol(line + 4, NULL, 10);
    fclose(file);
    expect(kilobytes >= 0, "/proc/self/smaps_rollup has no Rss");
    return (double)kilobytes * 1024;
}

static struct usage usage(void)
{
    return (struct usage){(double)blocks_in_use(), resident_bytes()};
}

/* The growth since `before`, an operation; the most of all calls counts. */
static void count_growth(struct plan *plan, const struct usage *before)
{
    const struct usage now = usage();
    const double blocks = (now.blocks - before->blocks) / (double)plan->ops;
    const double bytes = (now.bytes - before->bytes) / (double)plan->ops;

    if (blocks > plan->blocks_per_op)
        plan->blocks_per_op = blocks;
    if (bytes > plan->bytes_per_op)
        plan->bytes_per_op = bytes;
}

/* Room for one promise an operation, touched already. */
static struct promise **room(const struct plan *plan)
{
    struct promise **promises = malloc((size_t)plan->ops * sizeof(struct promise *));

    if (promises == NULL)
        bench_die("out of memory");
    for (long i = 0; i < plan->ops; i++)
        promises[i] = promise_fulfilled(weft_num(0));
    return promises;
}

static void drop(struct promise **promises, const struct plan *plan)
{
    for (long i = 0; i < plan->ops; i++)
        promise_unref(promises[i]);
    free(promises);
}

static struct promise *memory_resolved(void *arg)
{
    struct plan *plan = arg;
    struct promise **results = room(plan);
    struct usage before;

    usage();
    before = usage();
    for (long i = 0; i < plan->ops; i++)
        results[i] = promise_bind(
            i == 0 ? promise_fulfilled(weft_num(0)) : promise_ref(results[i - 1]), add_one, NULL);
    count_growth(plan, &before);
    drop(results, plan);
    return promise_fulfilled(weft_num(0));
}

static struct promise *memory_pending(void *arg)
{
    struct plan *plan = arg;
    struct promise **sources = room(plan), **results = room(plan);
    struct usage before;

    for (long i = 0; i < plan->ops; i++)
        sources[i] = promise_create();
    usage();
    before = usage();
    for (long i = 0; i < plan->ops; i++)
        results[i] = promise_bind(promise_ref(sources[i]), add_one, NULL);
    count_growth(plan, &before);
    for (long i = 0; i < plan->ops; i++)
        promise_resolve(sources[i], weft_num(i));
    count_growth(plan, &before);
    drop(results, plan);
    drop(sources, plan);
    return promise_fulfilled(weft_num(0));
}

static struct promise *memory_serial(void *arg)
{
    struct plan *plan = arg;
    struct promise **results = room(plan);
    struct usage before;

    usage();
    before = usage();
    for (long i = 0; i < plan->ops; i++)
        results[i] = promise_bind(promise_pause(), add_one, NULL);
    count_growth(plan, &before);
    drop(results, plan);
    return promise_fulfilled(weft_num(0));
}

/* ---- the program -------------------------------------------------------------------------- */

static const struct task {
    const char *name;
    promise_thunk_fn *time, *memory;
} tasks[] = {
    {"resolved", time_resolved, memory_resolved},
    {"pending", time_pending, memory_pending},
    {"serial", time_serial, memory_serial},
};
#define TASKS ((int)(sizeof(tasks) / sizeof(tasks[0])))

int main(int argc, char **argv)
{
    struct plan plan = {0};
    promise_thunk_fn *work = NULL;
    bool timed;
    int result;

    if (argc != 4)
        bench_die("takes three arguments, WHAT, CASE and OPS; bench_bind runs it");
    timed = strcmp(argv[1], "time") == 0;
    for (int i = 0; i < TASKS; i++)
        if (strcmp(argv[2], tasks[i].name) == 0)
            work = timed ? tasks[i].time : tasks[i].memory;
    plan.ops = strtol(argv[3], NULL, 10);
    if (work == NULL || plan.ops <= 0 || (!timed && strcmp(argv[1], "memory") != 0))
        bench_die("cannot do '%s %s %s'", argv[1], argv[2], argv[3]);
    result = promise_run(work, &plan, NULL, NULL);
    if (result < 0)
        bench_die("promise_run: %s", strerror(-result));
    if (timed)
        printf("%.4f\n", (double)plan.ns / (double)plan.ops);
    else
        printf("%.2f %.2f\n", plan.bytes_per_op, plan.blocks_per_op);
    return 0;
}
