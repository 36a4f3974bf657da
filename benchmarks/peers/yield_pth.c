/* yield_pth.c: what a yield costs with GNU Pth: pth_yield(NULL), stacks of weft's size.
 *
 * Pth returns to a scheduler thread in between, which looks at events and signals and reads the
 * clock. It is a library of its time, shown for scale. It also walks a list at each yield, so its
 * cost grows with the number of fibers (70 us at 10,000): large counts are skipped.
 */
#include "yield.h"

#include <pth.h>

#define MOST_FIBERS 1000

static void *fiber_main(void *arg)
{
    struct yield_plan *plan = arg;

    YIELD_FIBER(plan, pth_yield(NULL));
    return NULL;
}

int main(int argc, char **argv)
{
    struct yield_plan *plan = calloc(1, sizeof(*plan));
    pth_attr_t attr;
    pth_t last = NULL;

    if (plan == NULL)
        bench_die("out of memory");
    yield_plan_read(plan, argc, argv);
    if (plan->fibers > MOST_FIBERS)
        yield_skip("its cost grows with the number of fibers");
    if (!pth_init())
        yield_skip("pth_init failed");
    attr = pth_attr_new();
    pth_attr_set(attr, PTH_ATTR_STACK_SIZE, (unsigned int)YIELD_STACK);
    pth_attr_set(attr, PTH_ATTR_JOINABLE, TRUE);
    for (long i = 0; i < plan->fibers; i++) {
        last = pth_spawn(attr, fiber_main, plan);
        if (last == NULL)
            yield_skip("pth_spawn has no memory for as many");
    }
    pth_join(last, NULL);
    return yield_plan_print(plan);
}
