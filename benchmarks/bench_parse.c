/* bench_parse: what a byte costs that a parser takes from a buffered reader. needs: fibers
 *
 * /dev/zero is read through a buffer of 64 KiB, one byte at a time, and each byte is looked at:
 *
 *   weft         fiber_reader_byte on a struct fiber_reader, in a fiber, on the default engine
 *   plain        a loop over a buffer that read(2) fills, position and end in local variables
 *   stdio        getc_unlocked
 *   memory       a loop over a buffer that is full from the start: no reading at all
 *
 * With --threads N each of N threads does all of it, weft on a runtime of its own; the figure is the
 * slowest thread's. Runtimes share nothing, so more threads, each on a processor of its own, should
 * take no longer for a byte.
 *
 * Why it is fair: the same number of bytes, the same size of buffer and the same test of each byte,
 * which may leave the loop, so that no compiler makes it a loop over vectors; opening and setting up
 * come before the clock starts; the threads start together; the implementations alternate. That
 * weft's reads go through its engine, and the others' straight to the kernel, is a part of its
 * figure.
 */
#include "harness.h"

#include <weft/buffered.h>
#include <weft/runtime.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER (64 << 10)
#define BYTES  (8L << 20) /* a few milliseconds: a good chance not to be interrupted */

struct job {
    int (*parse)(struct job *job); /* 0 or a negative errno; sets ns */
    pthread_barrier_t *start;
    int fd;
    unsigned char *buffer;
    int64_t ns;
    int result;
};

static int64_t begin(const struct job *job)
{
    pthread_barrier_wait(job->start);
    return bench_now();
}

/* ---- the implementations ------------------------------------------------------------------ */

static int weft_main(void *arg)
{
    struct job *job = arg;
    struct fiber_reader reader;
    int64_t began;
    int byte = fiber_reader_init(&reader, job->fd, -1, job->buffer, BUFFER);

    began = begin(job);
    for (long i = 0; i < BYTES && byte == 0; i++)
        byte = fiber_reader_byte(&reader, WEFT_FOREVER);
    job->ns = bench_now() - began;
    fiber_reader_finish(&reader);
    return byte;
}

static int parse_weft(struct job *job)
{
    return weft_run(weft_main, job, NULL);
}

static int parse_plain(struct job *job)
{
    const int64_t began = begin(job);
    const unsigned char *at = job->buffer, *end = at;
    int byte = 0;

    for (long i = 0; i < BYTES && byte == 0; i++) {
        if (at == end) {
            const ssize_t got = read(job->fd, job->buffer, BUFFER);

            if (got <= 0)
                return got < 0 ? -errno : -ENODATA;
            at = job->buffer;
            end = at + got;
        }
        byte = *at++;
    }
    job->ns = bench_now() - began;
    return byte;
}

static int parse_stdio(struct job *job)
{
    FILE *file = fdopen(dup(job->fd), "r");
    int64_t began;
    int byte = 0;

    if (file == NULL)
        return -errno;
    setvbuf(file, (char *)job->buffer, _IOFBF, BUFFER);
    began = begin(job);
    for (long i = 0; i < BYTES && byte == 0; i++)
        byte = getc_unlocked(file);
    job->ns = bench_now() - began;
    fclose(file);
    return byte;
}

static int parse_memory(struct job *job)
{
    const int64_t began = begin(job);
    const unsigned char *at = job->buffer, *end = at + BUFFER;
    int byte = 0;

    for (long i = 0; i < BYTES && byte == 0; i++) {
        if (at == end)
            at = job->buffer;
        /* For all the compiler knows it has changed since the last time round. */
        __asm__ volatile("" : : "r"(at) : "memory");
        byte = *at++;
    }
    job->ns = bench_now() - began;
    return byte;
}

static const struct {
    const char *name;
    int (*parse)(struct job *job);
} impls[] = {
    {"weft", parse_weft},
    {"plain", parse_plain},
    {"stdio", parse_stdio},
    {"memory", parse_memory},
};
#define IMPLS ((int)(sizeof(impls) / sizeof(impls[0])))

/* ---- the driver --------------------------------------------------------------------------- */

static void *run_job(void *arg)
{
    struct job *job = arg;

    job->result = job->parse(job);
    return NULL;
}

static void measure(struct bench_cell *cell, int (*parse)(struct job *job))
{
    struct job *jobs = calloc((size_t)cell->threads, sizeof(*jobs));
    pthread_t *threads = calloc((size_t)cell->threads, sizeof(*threads));
    const int64_t began = bench_now();
    pthread_barrier_t start;
    int64_t slowest = 0;

    if (jobs == NULL || threads == NULL)
        bench_die("out of memory");
    pthread_barrier_init(&start, NULL, (unsigned)cell->threads);
    for (long i = 0; i < cell->threads; i++) {
        jobs[i].parse = parse;
        jobs[i].start = &start;
        jobs[i].buffer = calloc(1, BUFFER);
        jobs[i].fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
        if (jobs[i].buffer == NULL || jobs[i].fd < 0)
            bench_die("/dev/zero: %s", strerror(errno));
        if (pthread_create(&threads[i], NULL, run_job, &jobs[i]) != 0)
            bench_die("no thread");
    }
    for (long i = 0; i < cell->threads; i++) {
        pthread_join(threads[i], NULL);
        if (jobs[i].result != 0)
            bench_die("%s: %s", cell->impl, strerror(abs(jobs[i].result)));
        if (jobs[i].ns > slowest)
            slowest = jobs[i].ns;
        close(jobs[i].fd);
        free(jobs[i].buffer);
    }
    pthread_barrier_destroy(&start);
    free(threads);
    free(jobs);
    bench_add(cell, (double)slowest / (double)cell->ops);
    cell->spent += bench_now() - began;
}

static void print_table(const struct bench_cell *cells, int count)
{
    double plain = 0;

    for (int i = 0; i < count; i++)
        if (strcmp(cells[i].impl, "plain") == 0)
            plain = cells[i].best;
    printf("\n%ld thread%s\n", cells[0].threads, cells[0].threads == 1 ? "" : "s");
    printf("  %-8s %18s %9s %9s %7s\n", "", "ns a byte: min", "median", "- plain", "rounds");
    for (int i = 0; i < count; i++) {
        printf("  %-8s %18.3f %9.3f", cells[i].impl, cells[i].best, bench_median(&cells[i]));
        if (plain > 0)
            printf(" %+9.3f", cells[i].best - plain);
        else
            printf(" %9s", "-");
        printf(" %7d\n", cells[i].rounds);
    }
}

int main(int argc, char **argv)
{
    struct bench_options options = {.rounds = 30, .threads = {1}, .thread_count = 1};
    struct bench_cell cells[BENCH_MAX_COUNTS][IMPLS];
    int which[IMPLS], wanted = 0;

    bench_options_parse(&options, argc, argv,
                        "Measures taking bytes one by one from /dev/zero, in ns a byte.");
    memset(cells, 0, sizeof(cells));
    for (int i = 0; i < IMPLS; i++)
        if (bench_wanted(&options, impls[i].name))
            which[wanted++] = i;
    if (wanted == 0)
        bench_die("no implementation '%s'", options.impl);
    for (int t = 0; t < options.thread_count; t++) {
        for (int i = 0; i < wanted; i++) {
            cells[t][i].impl = impls[which[i]].name;
            cells[t][i].threads = options.threads[t];
            cells[t][i].ops = BYTES;
        }
    }

    for (int round = 0; round < options.rounds; round++)
        for (int t = 0; t < options.thread_count; t++)
            for (int i = 0; i < wanted; i++)
                if (bench_again(&cells[t][i]))
                    measure(&cells[t][i], impls[which[i]].parse);
    for (int t = 0; t < options.thread_count; t++) {
        if (!options.json)
            print_table(cells[t], wanted);
        else
            for (int i = 0; i < wanted; i++)
                bench_json("parse", &cells[t][i], "ns_per_byte");
    }
    return 0;
}
