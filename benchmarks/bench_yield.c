/* bench_yield: what giving way to the next fiber costs. needs: fibers
 *
 * N fibers yield in turn, one million yields in all, for N from 1 to 100,000. Each implementation
 * is a program of its own (bench_yield_<impl>, peers/yield.h says what it does), since two builds
 * of the library do not fit into one process and no implementation shall profit from another's warm
 * heap. A round runs every implementation at every count once; the minimum of the rounds counts.
 *
 *   floor          no library: a loop over an array of contexts with weft's native switch
 *   weft-native    weft, its public API and default engine, nothing switched off
 *   weft-fcontext  the same library built with WEFT_CONTEXT=fcontext
 *   fcontext-bare  no library: the floor's loop with Boost.Context's fcontext jumps
 *   eio-model      a C model of how Eio schedules; a model, not Eio
 *   boost-fiber    Boost.Fiber
 *   pth            GNU Pth
 *   swapcontext    no library: the floor's loop with swapcontext(3)
 *
 * Why it is fair: all do the same number of yields in the same order (checked), on stacks of the
 * same size; only the yields are timed, by the fibers themselves; what only some of them do between
 * two fibers (weft: the poll of its ring once a pass) is part of what they are and is not left out.
 */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPS 1000000

static const char *const impls[] = {"floor",     "weft-native", "weft-fcontext", "fcontext-bare",
                                    "eio-model", "boost-fiber", "pth",           "swapcontext"};
#define IMPLS ((int)(sizeof(impls) / sizeof(impls[0])))

static void measure(struct bench_cell *cell)
{
    char fibers[24];

    snprintf(fibers, sizeof(fibers), "%ld", cell->fibers);
    bench_measure(cell, "bench_yield", fibers);
}

static const struct bench_cell *find(const struct bench_cell *cells, int count, const char *impl)
{
    for (int i = 0; i < count; i++)
        if (strcmp(cells[i].impl, impl) == 0)
            return &cells[i];
    return NULL;
}

static void print_ratio(const struct bench_cell *cell, const struct bench_cell *to)
{
    if (to == NULL || to->rounds == 0)
        printf(" %13s", "-");
    else
        printf(" %13.2f", cell->best / to->best);
}

/* All implementations at one count. */
static void print_table(const struct bench_cell *cells, int count)
{
    const struct bench_cell *floor = find(cells, count, "floor");
    const struct bench_cell *boost = find(cells, count, "boost-fiber");
    const struct bench_cell *bare = find(cells, count, "fcontext-bare");

    printf("\n%ld fiber%s\n", cells[0].fibers, cells[0].fibers == 1 ? "" : "s");
    printf("  %-14s %9s %9s %13s %13s %13s %7s\n", "", "min, ns", "median", "/ floor",
           "/ boost-fiber", "/ fcontext", "rounds");
    for (int i = 0; i < count; i++) {
        if (cells[i].rounds == 0) {
            printf("  %-14s %s\n", cells[i].impl, cells[i].remark);
            continue;
        }
        printf("  %-14s %9.2f %9.2f", cells[i].impl, cells[i].best, bench_median(&cells[i]));
        print_ratio(&cells[i], floor);
        print_ratio(&cells[i], boost);
        print_ratio(&cells[i], bare);
        printf(" %7d\n", cells[i].rounds);
    }
}

int main(int argc, char **argv)
{
    struct bench_options options = {
        .rounds = 9, .counts = {1, 10, 100, 1000, 10000, 100000}, .count = 6};
    struct bench_cell *cells;
    int wanted = 0, total;

    bench_options_parse(&options, argc, argv, "Measures the cost of a yield, in ns.");
    for (int i = 0; i < IMPLS; i++)
        wanted += bench_wanted(&options, impls[i]);
    if (wanted == 0)
        bench_die("no implementation '%s'", options.impl);
    total = wanted * options.count;
    cells = calloc((size_t)total, sizeof(*cells));
    if (cells == NULL)
        bench_die("out of memory");

    for (int c = 0, at = 0; c < options.count; c++) {
        for (int i = 0; i < IMPLS; i++) {
            if (!bench_wanted(&options, impls[i]))
                continue;
            cells[at].impl = impls[i];
            cells[at].fibers = options.counts[c];
            cells[at].ops = OPS;
            at++;
        }
    }
    for (int round = 0; round < options.rounds; round++)
        for (int i = 0; i < total; i++)
            if (bench_again(&cells[i]))
                measure(&cells[i]);

    for (int i = 0; i < total; i += wanted) {
        if (!options.json)
            print_table(&cells[i], wanted);
        else
            for (int k = 0; k < wanted; k++)
                bench_json("yield", &cells[i + k], "ns_per_op");
    }
    free(cells);
    return 0;
}
