/* bench_bind: what a bind costs, beside real Lwt: time, and memory.
 *
 *   resolved  a chain of binds, each on the settled result of the last one; the callback returns a
 *             fresh fulfilled promise (Lwt.bind, Lwt.return; promise_bind, promise_fulfilled)
 *   pending   a bind on a pending promise, the resolution that runs its callback, and a look at the
 *             result (Lwt.bind, Lwt.wakeup, Lwt.state; promise_bind, promise_resolve, promise_poll);
 *             256 at a time: bind all, resolve all, look at all. The pending promises and the arrays
 *             are made and dropped between the batches, where the clock doesn't run
 *   serial    one chain of pauses, each with a bind, through the loop (Lwt.pause under Lwt_main.run;
 *             promise_pause under promise_run)
 *
 * Bytes and allocations an operation are counted apart, in a process that isn't timed:
 *
 *   weft  how much more is in use while 100,000 operations are held (serial: while as many pauses
 *         with their binds are under way side by side): blocks by weft_stats, bytes by the resident
 *         set, with all that the allocator adds. A block taken and freed within one operation would
 *         not show, but there is none; a serial chain is checked to keep as many as it began with
 *   Lwt   what OCaml has handed out meanwhile: bytes by Gc.allocated_bytes, allocations by
 *         Gc.Memprof, which sees each one at a rate of 1; an OCaml that has none (5.0 to 5.2) leaves
 *         the count out. Pending promises made beforehand and looks at results don't count
 *
 * Why it is fair: both do the same operations in the same order on the same numbers, through calls
 * that neither compiler sees through; no callback needs a closure of its own. Both use one clock,
 * bench_now, and their defaults: engine, size of the minor heap. Making and freeing what an operation
 * takes is timed; for Lwt that is the minor collections that fall due, which find little alive.
 * Lwt's loop enters the kernel once for two pauses (Lwt_main wakes them before and after), weft's
 * looks at the ring once for each: that is their design.
 *
 * weft-lean is the library built without fibers: promises must cost the same with fibers and without.
 * Each is a program bench_bind_IMPL: WHAT CASE OPS. WHAT is `time`, and it prints ns an operation,
 * having run a tenth of OPS before; or `memory`, and it prints bytes and, if it can, allocations.
 */
#include "harness.h"

#include <weft/config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const impls[] = {
#if WEFT_HAS_FIBERS
    "weft",
#endif
    "weft-lean",
    "lwt",
};
/* A few milliseconds each, so that a round has a good chance not to be interrupted. */
static const struct mode {
    const char *name;
    long ops;
} modes[] = {{"resolved", 2000000}, {"pending", 102400}, {"serial", 50000}};
#define IMPLS      ((int)(sizeof(impls) / sizeof(impls[0])))
#define MODES      ((int)(sizeof(modes) / sizeof(modes[0])))
#define MEMORY_OPS 100000

struct row {
    struct bench_cell time;
    double bytes, allocs; /* an operation; negative: not known */
};

/* What the program of the row's implementation prints. */
static int run(struct row *row, const char *what, long ops, double figures[BENCH_FIGURES])
{
    char name[64], first[16], mode[16], count[24];
    char *path, *argv[5];
    int printed;

    snprintf(name, sizeof(name), "bench_bind_%s", row->time.impl);
    snprintf(first, sizeof(first), "%s", what);
    snprintf(mode, sizeof(mode), "%s", row->time.mode);
    snprintf(count, sizeof(count), "%ld", ops);
    path = bench_sibling(name);
    argv[0] = path;
    argv[1] = first;
    argv[2] = mode;
    argv[3] = count;
    argv[4] = NULL;
    printed = bench_child(argv, figures, row->time.remark, sizeof(row->time.remark));
    free(path);
    return printed;
}

static void measure_time(struct row *row)
{
    double figures[BENCH_FIGURES];
    const int64_t began = bench_now();

    if (run(row, "time", row->time.ops, figures) > 0)
        bench_add(&row->time, figures[0]);
    row->time.spent += bench_now() - began;
}

/* Once is enough: the figures don't depend on the moment. */
static void measure_memory(struct row *row)
{
    double figures[BENCH_FIGURES];
    const int printed = run(row, "memory", MEMORY_OPS, figures);

    row->bytes = printed > 0 ? figures[0] : -1;
    row->allocs = printed > 1 ? figures[1] : -1;
}

/* The row of the same case for Lwt; NULL: it isn't there. */
static const struct row *peer(const struct row *rows, int count, const struct row *row)
{
    for (int i = 0; i < count; i++)
        if (strcmp(rows[i].time.impl, "lwt") == 0 && rows[i].time.mode == row->time.mode &&
            rows[i].time.rounds > 0)
            return &rows[i];
    return NULL;
}

static void print_known(int width, int places, double value)
{
    if (value < 0)
        printf(" %*s", width, "-");
    else
        printf(" %*.*f", width, places, value);
}

static void print_table(const struct row *rows, int count)
{
    printf("  %-10s %-9s %10s %10s %9s %9s %9s %7s\n", "", "", "min, ns", "median", "bytes",
           "allocs", "/ lwt", "rounds");
    for (int i = 0; i < count; i++) {
        const struct bench_cell *cell = &rows[i].time;
        const struct row *lwt = peer(rows, count, &rows[i]);

        if (cell->rounds == 0) {
            printf("  %-10s %-9s %s\n", cell->impl, cell->mode, cell->remark);
            continue;
        }
        printf("  %-10s %-9s %10.2f %10.2f", cell->impl, cell->mode, cell->best,
               bench_median(cell));
        print_known(9, 1, rows[i].bytes);
        print_known(9, 2, rows[i].allocs);
        print_known(9, 3, lwt != NULL ? cell->best / lwt->time.best : -1);
        printf(" %7d\n", cell->rounds);
    }
}

static void json_known(const char *name, double value)
{
    if (value < 0)
        printf("\"%s\":null,", name);
    else
        printf("\"%s\":%.2f,", name, value);
}

static void print_json(const struct row *row)
{
    const struct bench_cell *cell = &row->time;

    if (cell->rounds == 0) {
        bench_json("bind", cell, "ns_per_op"); /* says why, on stderr */
        return;
    }
    printf("{\"bench\":\"bind\",\"impl\":\"%s\",\"case\":\"%s\",\"ops\":%ld,\"ns_per_op\":%.2f,",
           cell->impl, cell->mode, cell->ops, cell->best);
    json_known("bytes_per_op", row->bytes);
    json_known("allocs_per_op", row->allocs);
    printf("\"rounds\":%d}\n", cell->rounds);
}

int main(int argc, char **argv)
{
    struct bench_options options = {.rounds = 15};
    struct row rows[IMPLS * MODES];
    int count = 0;

    bench_options_parse(&options, argc, argv,
                        "Measures what a bind costs beside Lwt: ns, bytes and allocations.");
    memset(rows, 0, sizeof(rows));
    for (int m = 0; m < MODES; m++) {
        for (int i = 0; i < IMPLS; i++) {
            if (!bench_wanted(&options, impls[i]))
                continue;
            rows[count].time.impl = impls[i];
            rows[count].time.mode = modes[m].name;
            rows[count].time.ops = modes[m].ops;
            count++;
        }
    }
    if (count == 0)
        bench_die("no implementation '%s'", options.impl);

    for (int i = 0; i < count; i++)
        measure_memory(&rows[i]);
    for (int round = 0; round < options.rounds; round++)
        for (int i = 0; i < count; i++)
            if (bench_again(&rows[i].time))
                measure_time(&rows[i]);
    if (!options.json) {
        print_table(rows, count);
        return 0;
    }
    for (int i = 0; i < count; i++)
        print_json(&rows[i]);
    return 0;
}
