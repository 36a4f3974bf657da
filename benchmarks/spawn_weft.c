/* spawn_weft.c: what starting and ending a fiber costs with weft; one program for each of its
 * context switches. fiber_detach and fiber_yield, and fiber_spawn and fiber_await in the mode "join";
 * defaults throughout. See peers/spawn.h.
 */
#include "peers/spawn.h"

#include <weft/fiber.h>
#include <weft/runtime.h>

static int64_t fiber_main(void *arg)
{
    struct spawn_plan *plan = arg;

    plan->ended++;
    return 0;
}

/* Starts plan->ops fibers, `batch` at a time, and sees each batch end. */
static void spawn(struct spawn_plan *plan, long batch)
{
    const int64_t began = bench_now();

    plan->ended = 0;
    for (long left = plan->ops; left > 0; left -= batch) {
        for (long i = 0; i < batch; i++) {
            const int result = fiber_detach(fiber_main, plan);

            if (result < 0)
                spawn_skip(strerror(-result));
        }
        fiber_yield();
    }
    plan->ns = bench_now() - began;
    if (plan->ended != plan->ops)
        bench_die("%ld of %ld fibers have ended", plan->ended, plan->ops);
}

/* The same with a promise of each fiber's end. */
static void spawn_and_join(struct spawn_plan *plan)
{
    static struct promise *promises[SPAWN_BATCH];
    const int64_t began = bench_now();

    plan->ended = 0;
    for (long left = plan->ops; left > 0; left -= SPAWN_BATCH) {
        for (int i = 0; i < SPAWN_BATCH; i++)
            promises[i] = fiber_spawn(fiber_main, plan);
        for (int i = 0; i < SPAWN_BATCH; i++) {
            const int result = fiber_await(promises[i], NULL, WEFT_FOREVER);

            if (result < 0)
                spawn_skip(strerror(-result));
        }
    }
    plan->ns = bench_now() - began;
    if (plan->ended != plan->ops)
        bench_die("%ld of %ld fibers have ended", plan->ended, plan->ops);
}

static void prefill(struct spawn_plan *plan)
{
    const int64_t began = bench_now();
    const int result = fiber_prefill((size_t)plan->ops);

    plan->ns = bench_now() - began;
    if (result < 0)
        spawn_skip(strerror(-result));
}

static int weft_main(void *arg)
{
    struct spawn_plan *plan = arg;

    if (spawn_is(plan, "warm-single")) {
        spawn(plan, 1);
        spawn(plan, 1);
    } else if (spawn_is(plan, "warm-batch")) {
        spawn(plan, SPAWN_BATCH);
        spawn(plan, SPAWN_BATCH);
    } else if (spawn_is(plan, "join")) {
        spawn_and_join(plan);
        spawn_and_join(plan);
    } else if (spawn_is(plan, "cold")) {
        spawn(plan, plan->ops);
    } else if (spawn_is(plan, "prefilled")) {
        prefill(plan);
        spawn(plan, plan->ops);
    } else if (spawn_is(plan, "prefill")) {
        prefill(plan);
    } else {
        spawn_skip("no such mode");
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct spawn_plan *plan = calloc(1, sizeof(*plan));
    int result;

    if (plan == NULL)
        bench_die("out of memory");
    spawn_plan_read(plan, argc, argv);
    result = weft_run(weft_main, plan, NULL);
    if (result < 0)
        bench_die("weft_run: %s", strerror(-result));
    return spawn_plan_print(plan);
}
