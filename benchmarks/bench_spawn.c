/* bench_spawn: what starting and ending a fiber costs. needs: fibers
 *
 * Detached fibers that do nothing, with warm stacks (one at a time, and 1000 at a time; a million that
 * are joined, 1000 at a time), with stacks that no one has touched (10,000 at a time in a fresh process:
 * page faults), and with stacks made ready in bulk (fiber_prefill, whose own cost is the mode "prefill"). See
 * peers/spawn.h.
 *
 * Why it is fair: each implementation starts, runs and ends the same number of fibers; each round
 * of each mode is a process of its own, so all begin with the same cold or warm state; they
 * alternate. The floor's yield (bench_yield, 1000 fibers) is measured in the same rounds, for the
 * ratio: a spawn costs so many of the cheapest switches. Go starts goroutines with "go" and has
 * their ends counted by a WaitGroup; "go-1" is Go on one processor, "go" on as many as there are.
 */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A few milliseconds each, so that a round has a good chance not to be interrupted. */
#define WARM_OPS  200000
#define JOIN_OPS  1000000
#define COLD_OPS  10000
#define YIELD_OPS 1000000

static const char *const impls[] = {"weft-native", "weft-fcontext", "boost-fiber", "go-1", "go"};
static const struct mode {
    const char *name;
    long ops;
} modes[] = {
    {"warm-single", WARM_OPS}, {"warm-batch", WARM_OPS}, {"join", JOIN_OPS},
    {"cold", COLD_OPS},        {"prefilled", COLD_OPS},  {"prefill", COLD_OPS},
};
#define IMPLS ((int)(sizeof(impls) / sizeof(impls[0])))
#define MODES ((int)(sizeof(modes) / sizeof(modes[0])))

static void print_table(const struct bench_cell *cells, int count, const struct bench_cell *floor)
{
    printf("  %-14s %-12s %10s %10s %14s %7s\n", "", "", "min, ns", "median", "/ floor yield",
           "rounds");
    for (int i = 0; i < count; i++) {
        if (cells[i].rounds == 0) {
            printf("  %-14s %-12s %s\n", cells[i].impl, cells[i].mode, cells[i].remark);
            continue;
        }
        printf("  %-14s %-12s %10.1f %10.1f", cells[i].impl, cells[i].mode, cells[i].best,
               bench_median(&cells[i]));
        if (floor->rounds > 0)
            printf(" %14.2f", cells[i].best / floor->best);
        else
            printf(" %14s", "-");
        printf(" %7d\n", cells[i].rounds);
    }
    if (floor->rounds > 0)
        printf("  %-14s %-12s %10.2f %10.2f %14.2f %7d\n", floor->impl, floor->mode, floor->best,
               bench_median(floor), 1.0, floor->rounds);
}

int main(int argc, char **argv)
{
    struct bench_options options = {.rounds = 15};
    struct bench_cell cells[IMPLS * MODES];
    struct bench_cell floor = {.impl = "floor", .mode = "yield", .fibers = 1000, .ops = YIELD_OPS};
    int count = 0;

    bench_options_parse(&options, argc, argv,
                        "Measures the cost of starting and ending a detached fiber, in ns.");
    memset(cells, 0, sizeof(cells));
    for (int m = 0; m < MODES; m++) {
        for (int i = 0; i < IMPLS; i++) {
            if (!bench_wanted(&options, impls[i]))
                continue;
            cells[count].impl = impls[i];
            cells[count].mode = modes[m].name;
            cells[count].ops = modes[m].ops;
            count++;
        }
    }
    if (count == 0)
        bench_die("no implementation '%s'", options.impl);

    for (int round = 0; round < options.rounds; round++) {
        for (int i = 0; i < count; i++)
            if (bench_again(&cells[i]))
                bench_measure(&cells[i], "bench_spawn", cells[i].mode);
        if (bench_again(&floor))
            bench_measure(&floor, "bench_yield", "1000");
    }
    if (!options.json) {
        print_table(cells, count, &floor);
        return 0;
    }
    for (int i = 0; i < count; i++)
        bench_json("spawn", &cells[i], "ns_per_op");
    bench_json("spawn", &floor, "ns_per_op");
    return 0;
}
