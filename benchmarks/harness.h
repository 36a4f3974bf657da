/* harness.h: what the benchmark programs share: a clock, options, child processes, results.
 *
 * A benchmark is a driver that measures each of its cells (one implementation in one configuration)
 * once a round, all cells in turn, and keeps each cell's minimum. So a slow moment of the machine
 * costs one round of every implementation and not one implementation. Cells that need a process of
 * their own (another build of the library, a fresh address space) run as children: the child prints
 * its figures on one line and exits with 0, or prints why it cannot and exits with BENCH_SKIPPED.
 *
 * Also included by C++ peers.
 */
#ifndef BENCH_HARNESS_H
#define BENCH_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BENCH_SKIPPED    77 /* a child's exit status */
#define BENCH_FIGURES    6  /* figures a child may print */
#define BENCH_MAX_COUNTS 16

/* Nanoseconds of CLOCK_MONOTONIC. */
int64_t bench_now(void);

/* Ends the program with a message on stderr. */
void bench_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* ---- options ---- */

struct bench_options {
    int rounds;
    bool json;
    const char *impl;              /* comma-separated names; NULL: all */
    long counts[BENCH_MAX_COUNTS]; /* --fibers; the defaults if not given */
    int count;
    long threads[BENCH_MAX_COUNTS]; /* --threads; likewise */
    int thread_count;
    long sizes[BENCH_MAX_COUNTS]; /* --bytes; likewise */
    int size_count;
};

/* Fills `options` from the command line; those preset are the defaults. `about` is one sentence for
 * --help. --fibers is accepted if options->count is preset, --threads if options->thread_count is,
 * --bytes if options->size_count is. Ends the program on a bad option. */
void bench_options_parse(struct bench_options *options, int argc, char **argv, const char *about);

/* True if --impl names `impl` or is absent. */
bool bench_wanted(const struct bench_options *options, const char *impl);

/* ---- children ---- */

/* The path of a program in this program's folder; to be freed. */
char *bench_sibling(const char *name);

/* Starts argv[0]. Its stdout can be read from *output. It is killed when this program ends, however
 * that comes about. Returns its pid; ends the program if it cannot be started. */
pid_t bench_start(char *const argv[], int *output);

/* Ends and reaps a child of bench_start by its pid. */
void bench_stop(pid_t pid);

/* Waits for a child of bench_start to end; returns its status as waitpid(2) gives it. */
int bench_reap(pid_t pid);

/* Reads what a child prints, up to `size` - 1 bytes, until `until` occurs in it (NULL: until it
 * closes its stdout); terminates it with a NUL. False if that takes more than `seconds`. */
bool bench_read(int output, char *text, size_t size, const char *until, int seconds);

/* Runs a child to its end. Returns the number of figures it printed; 0 if it skipped or failed,
 * with the cause in `remark`. */
int bench_child(char *const argv[], double figures[BENCH_FIGURES], char *remark, size_t size);

/* ---- results ---- */

struct bench_cell {
    const char *impl;
    const char *mode;   /* NULL: none */
    long fibers;        /* 0: doesn't apply */
    long threads;       /* 0: doesn't apply */
    long bytes;         /* a message's; 0: doesn't apply */
    long ops;           /* operations a round */
    double best;        /* minimum over the rounds */
    bool most;          /* maximum instead: more is better */
    int rounds;         /* rounds measured */
    int64_t spent;      /* ns, to bound a slow cell */
    char remark[120];   /* why there is no figure; "": there is one */
    double values[100]; /* one a round, for the median */
};

/* Adds one round's figure. */
void bench_add(struct bench_cell *cell, double value);

/* Runs the program PROGRAM_IMPL beside this one, with `first` and the cell's ops as its arguments, and
 * adds the figure that it prints, or says in the cell's remark why there is none. */
void bench_measure(struct bench_cell *cell, const char *program, const char *first);

/* True as long as a cell should be measured again: it hasn't failed, and hasn't used up its share
 * of time (BENCH_CELL_NS; every cell gets two rounds). */
bool bench_again(const struct bench_cell *cell);
#define BENCH_CELL_NS INT64_C(8000000000)

/* The median of the rounds. */
double bench_median(const struct bench_cell *cell);

/* One JSON object on a line: {"bench":...,"impl":...,["mode":...,]["fibers":...,]["threads":...,]
 * ["bytes":...,]"ops":...,"<unit>":...,"rounds":...}; a cell without a figure says why on stderr. */
void bench_json(const char *bench, const struct bench_cell *cell, const char *unit);

#ifdef __cplusplus
}
#endif

#endif
