/* sync.h: what every program of bench_sync does: bench_sync_<impl> MODE OPS.
 *
 *   channel-pingpong  two fibers send an item to each other through two channels without room; an
 *                     operation is one item
 *   channel-buffered  one fiber sends OPS items to another through a channel with room for 128
 *   mutex-handover    10 fibers lock a mutex, give way with it in hand, and unlock it: so it is
 *                     always contended; an operation is one such turn
 *   mutex-free        one fiber locks and unlocks a free mutex
 *   semaphore         100 fibers share 4 units: take one, give way, put it back; an operation is one
 *                     such turn
 *   select-two        two fibers send through a channel without room each, a third waits for
 *                     whichever comes first; an operation is one item received
 *
 * Each mode runs once with a tenth of OPS before it is timed. Printed is ns per operation, from before
 * the first fiber starts to after the last has ended. An item is its number, and the receiver checks
 * that the sum is right.
 */
#ifndef BENCH_PEERS_SYNC_H
#define BENCH_PEERS_SYNC_H

#include "../harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SYNC_ROOM    128
#define SYNC_LOCKERS 10
#define SYNC_TAKERS  100
#define SYNC_UNITS   4

struct sync_plan {
    const char *mode;
    long ops;
};

static inline bool sync_is(const struct sync_plan *plan, const char *mode)
{
    return strcmp(plan->mode, mode) == 0;
}

static inline void sync_plan_read(struct sync_plan *plan, int argc, char **argv)
{
    if (argc != 3)
        bench_die("takes two arguments, MODE and OPS; bench_sync runs it");
    plan->mode = argv[1];
    plan->ops = strtol(argv[2], NULL, 10);
    if (plan->ops < 1000 || plan->ops % 1000 != 0)
        bench_die("OPS must be a multiple of 1000");
}

/* For a program that cannot do what is asked. */
static inline __attribute__((noreturn)) void sync_skip(const char *why)
{
    printf("%s\n", why);
    fflush(stdout);
    _Exit(BENCH_SKIPPED);
}

/* What was received, or done, is what should have been. */
static inline void sync_check(const char *mode, int64_t found, int64_t expected)
{
    if (found != expected)
        bench_die("%s: %lld instead of %lld", mode, (long long)found, (long long)expected);
}

static inline int sync_print(int64_t ns, long ops)
{
    printf("%.4f\n", (double)ns / (double)ops);
    fflush(stdout);
    _Exit(0);
}

#endif
