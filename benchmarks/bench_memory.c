/* bench_memory: what a parked fiber occupies, and that a million of them park. needs: fibers
 *
 * A child process parks that many fibers and reports its growth per fiber: resident memory twice,
 * by /proc/self/statm and by smaps_rollup, which count differently, and the page tables that the
 * spread of the stacks costs, which neither of them counts; and the time until all are parked.
 *
 * Why it is fair: nothing is subtracted but what the process had before the first fiber; slabs,
 * free lists, the run queue's room and everything else that grows with fibers is included.
 */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const impls[] = {"weft-native", "weft-fcontext"};
static const char *const modes[] = {"resident", "rollup", "page-tables", "park"};
#define IMPLS ((int)(sizeof(impls) / sizeof(impls[0])))
#define MODES ((int)(sizeof(modes) / sizeof(modes[0])))

/* One child gives the figures of all modes. */
static void measure(struct bench_cell cells[MODES])
{
    char name[64], fibers[24];
    char *path, *argv[3];
    double figures[BENCH_FIGURES];
    const int64_t began = bench_now();
    int count;

    snprintf(name, sizeof(name), "bench_memory_%s", cells[0].impl);
    snprintf(fibers, sizeof(fibers), "%ld", cells[0].fibers);
    path = bench_sibling(name);
    argv[0] = path;
    argv[1] = fibers;
    argv[2] = NULL;
    count = bench_child(argv, figures, cells[0].remark, sizeof(cells[0].remark));
    for (int m = 0; m < MODES; m++) {
        if (count == MODES)
            bench_add(&cells[m], figures[m]);
        else
            memcpy(cells[m].remark, cells[0].remark, sizeof(cells[m].remark));
    }
    free(path);
    cells[0].spent += bench_now() - began;
}

static void print_table(const struct bench_cell (*cells)[MODES], int count)
{
    printf("  %-14s %9s %15s %15s %15s %10s %7s\n", "", "fibers", "bytes by statm", "by smaps",
           "page tables", "parked, s", "rounds");
    for (int i = 0; i < count; i++) {
        const struct bench_cell *row = cells[i];

        if (row[0].rounds == 0) {
            printf("  %-14s %9ld %s\n", row[0].impl, row[0].fibers, row[0].remark);
            continue;
        }
        printf("  %-14s %9ld %15.0f %15.0f %15.0f %10.2f %7d\n", row[0].impl, row[0].fibers,
               row[0].best, row[1].best, row[2].best, row[3].best * (double)row[0].fibers / 1e9,
               row[0].rounds);
    }
}

int main(int argc, char **argv)
{
    struct bench_options options = {.rounds = 3, .counts = {100000, 1000000}, .count = 2};
    struct bench_cell cells[IMPLS * BENCH_MAX_COUNTS][MODES];
    int count = 0;

    bench_options_parse(&options, argc, argv, "Measures the memory of a parked fiber, in bytes.");
    memset(cells, 0, sizeof(cells));
    for (int c = 0; c < options.count; c++) {
        for (int i = 0; i < IMPLS; i++) {
            if (!bench_wanted(&options, impls[i]))
                continue;
            for (int m = 0; m < MODES; m++) {
                cells[count][m].impl = impls[i];
                cells[count][m].mode = modes[m];
                cells[count][m].fibers = cells[count][m].ops = options.counts[c];
            }
            count++;
        }
    }
    if (count == 0)
        bench_die("no implementation '%s'", options.impl);

    for (int round = 0; round < options.rounds; round++)
        for (int i = 0; i < count; i++)
            if (bench_again(&cells[i][0]))
                measure(cells[i]);
    if (!options.json) {
        print_table((const struct bench_cell(*)[MODES])cells, count);
        return 0;
    }
    for (int i = 0; i < count; i++)
        for (int m = 0; m < MODES; m++)
            bench_json("memory", &cells[i][m],
                       strcmp(modes[m], "park") == 0 ? "ns_per_op" : "bytes_per_fiber");
    return 0;
}
