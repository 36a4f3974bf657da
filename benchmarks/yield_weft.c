/* yield_weft.c: what a yield costs with weft; one program for each of its context switches.
 *
 * The public API only, the engine that is chosen by default, nothing switched off: a pass of N
 * yields includes its poll of the ring. See peers/yield.h for what is timed.
 */
#include "peers/yield.h"

#include <weft/fiber.h>
#include <weft/runtime.h>

#include <string.h>

static int64_t fiber_main(void *arg)
{
    struct yield_plan *plan = arg;

    YIELD_FIBER(plan, fiber_yield());
    return 0;
}

static int weft_main(void *arg)
{
    struct yield_plan *plan = arg;
    int result;

    for (long i = 1; i < plan->fibers; i++) {
        result = fiber_detach(fiber_main, plan);
        if (result < 0)
            yield_skip(strerror(-result));
    }
    /* The last one to start is the last one to end. */
    return fiber_await(fiber_spawn(fiber_main, plan), NULL, WEFT_FOREVER);
}

int main(int argc, char **argv)
{
    struct yield_plan *plan = calloc(1, sizeof(*plan));
    int result;

    if (plan == NULL)
        bench_die("out of memory");
    yield_plan_read(plan, argc, argv);
    result = weft_run(weft_main, plan, NULL);
    if (result < 0)
        bench_die("weft_run: %s", strerror(-result));
    return yield_plan_print(plan);
}
