/* bench_sync: what locks, channels, a semaphore and select cost. needs: fibers
 *
 * Six small programs (peers/sync.h says which), each written with what the implementation has for the
 * purpose: weft's sync.h, Go's channels, sync.Mutex and select, Boost.Fiber's channels, mutex and
 * condition variable.
 *
 *   weft-native, weft-fcontext   weft with each of its context switches
 *   go-1                         Go on one processor
 *   go                           Go on as many as there are: what a Go program gets by itself
 *   boost-fiber                  Boost.Fiber
 *
 * Why it is fair: all do the same operations as often, which the programs check by a sum; none is
 * given a deadline or a context to watch, which costs each of them extra; only the operations are
 * timed, after the same warm-up; each round of each mode is a process of its own; they alternate.
 * Go's goroutines may run at the same time, weft's and Boost's fibers don't: "go" is there to
 * show what that does to programs whose parts only wait for each other. Boost's objects work across
 * threads and pay for that; so do Go's.
 */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPS 100000 /* a few milliseconds: a round has a good chance not to be interrupted */

static const char *const impls[] = {"weft-native", "weft-fcontext", "go-1", "go", "boost-fiber"};
static const char *const modes[] = {"channel-pingpong", "channel-buffered", "mutex-handover",
                                    "mutex-free",       "semaphore",        "select-two"};
#define IMPLS ((int)(sizeof(impls) / sizeof(impls[0])))
#define MODES ((int)(sizeof(modes) / sizeof(modes[0])))

static void print_table(const struct bench_cell *cells, int count)
{
    const struct bench_cell *first = &cells[0];

    printf("\n%s\n", first->mode);
    printf("  %-14s %10s %10s %10s %7s\n", "", "min, ns", "median", "/ first", "rounds");
    for (int i = 0; i < count; i++) {
        if (cells[i].rounds == 0) {
            printf("  %-14s %s\n", cells[i].impl, cells[i].remark);
            continue;
        }
        printf("  %-14s %10.2f %10.2f", cells[i].impl, cells[i].best, bench_median(&cells[i]));
        if (first->rounds > 0)
            printf(" %10.2f", cells[i].best / first->best);
        else
            printf(" %10s", "-");
        printf(" %7d\n", cells[i].rounds);
    }
}

int main(int argc, char **argv)
{
    struct bench_options options = {.rounds = 15};
    struct bench_cell cells[IMPLS * MODES];
    int wanted = 0, total = 0;

    bench_options_parse(&options, argc, argv,
                        "Measures what locks, channels and select cost, in ns per operation.");
    memset(cells, 0, sizeof(cells));
    for (int m = 0; m < MODES; m++) {
        for (int i = 0; i < IMPLS; i++) {
            if (!bench_wanted(&options, impls[i]))
                continue;
            cells[total].impl = impls[i];
            cells[total].mode = modes[m];
            cells[total].ops = OPS;
            total++;
        }
    }
    if (total == 0)
        bench_die("no implementation '%s'", options.impl);
    wanted = total / MODES;

    for (int round = 0; round < options.rounds; round++)
        for (int i = 0; i < total; i++)
            if (bench_again(&cells[i]))
                bench_measure(&cells[i], "bench_sync", cells[i].mode);

    for (int i = 0; i < total; i += wanted) {
        if (!options.json)
            print_table(&cells[i], wanted);
        else
            for (int k = 0; k < wanted; k++)
                bench_json("sync", &cells[i + k], "ns_per_op");
    }
    return 0;
}
