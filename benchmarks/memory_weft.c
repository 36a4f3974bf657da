/* memory_weft.c: what a parked fiber of weft's occupies; one program for each of its context
 * switches. Takes the number of fibers; prints bytes per fiber by /proc/self/statm, by
 * smaps_rollup, and of page tables, and ns per fiber until all are parked. Public API, defaults
 * throughout.
 *
 * A fiber is parked in fiber_sleep_until(WEFT_FOREVER), the plainest wait, from the fiber's first
 * frame: what a real one has on its stack above that comes in addition.
 */
#include "harness.h"

#include <weft/fiber.h>
#include <weft/runtime.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct parking {
    long count, begun;
    double resident, rollup, tables, ns;
};

static int64_t fiber_main(void *arg)
{
    struct parking *parking = arg;

    parking->begun++;
    return fiber_sleep_until(WEFT_FOREVER);
}

static double resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    long pages = 0;

    if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1)
        bench_die("cannot read /proc/self/statm");
    fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* The value of "Field:   123 kB" in a file of /proc/self, in bytes. */
static double field_bytes(const char *path, const char *field)
{
    FILE *file = fopen(path, "re");
    char line[256];
    long kilobytes = -1;

    if (file == NULL)
        bench_die("cannot read %s", path);
    while (kilobytes < 0 && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, field, strlen(field)) == 0)
            kilobytes = strtol(line + strlen(field), NULL, 10);
    fclose(file);
    if (kilobytes < 0)
        bench_die("%s has no %s", path, field);
    return (double)kilobytes * 1024;
}

static int weft_main(void *arg)
{
    struct parking *parking = arg;
    double resident, rollup, tables;
    int64_t began;

    /* once through everything that allocates when it is first used */
    field_bytes("/proc/self/smaps_rollup", "Rss:");
    resident = resident_bytes();
    rollup = field_bytes("/proc/self/smaps_rollup", "Rss:");
    tables = field_bytes("/proc/self/status", "VmPTE:");

    began = bench_now();
    for (long i = 0; i < parking->count; i++) {
        const int result = fiber_detach(fiber_main, parking);

        if (result < 0) {
            printf("%ld fibers, then: %s\n", i, strerror(-result));
            fflush(stdout);
            _Exit(BENCH_SKIPPED);
        }
    }
    fiber_yield();
    parking->ns = (double)(bench_now() - began);
    if (parking->begun != parking->count)
        bench_die("%ld of %ld fibers are parked", parking->begun, parking->count);

    parking->resident = resident_bytes() - resident;
    parking->rollup = field_bytes("/proc/self/smaps_rollup", "Rss:") - rollup;
    parking->tables = field_bytes("/proc/self/status", "VmPTE:") - tables;
    return 0;
}

int main(int argc, char **argv)
{
    struct parking parking = {0};
    int result;

    parking.count = argc == 2 ? strtol(argv[1], NULL, 10) : 0;
    if (parking.count <= 0)
        bench_die("takes the number of fibers; bench_memory runs it");
    result = weft_run(weft_main, &parking, NULL);
    if (result < 0)
        bench_die("weft_run: %s", strerror(-result));
    printf("%.2f %.2f %.2f %.2f\n", parking.resident / (double)parking.count,
           parking.rollup / (double)parking.count, parking.tables / (double)parking.count,
           parking.ns / (double)parking.count);
    return 0;
}
