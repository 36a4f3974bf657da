/* spawn.h: what every program of bench_spawn does: bench_spawn_<impl> MODE OPS.
 *
 *   warm-single  one fiber at a time: start it, give way to it, it ends; its stack is used again
 *   warm-batch   1000 at a time: start them, give way, they end
 *   join         1000 at a time, each of which is then waited for by its handle
 *   cold         OPS fibers at a time in a fresh process: no stack has been touched before
 *   prefilled    the same after their stacks were made ready in bulk (not timed)
 *   prefill      the making ready alone
 *
 * A fiber does nothing but count. The warm modes and join run once before they are timed. Printed is ns per
 * fiber, from the start of the first to the end of the last.
 */
#ifndef BENCH_PEERS_SPAWN_H
#define BENCH_PEERS_SPAWN_H

#include "../harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPAWN_BATCH 1000
#define SPAWN_STACK (64 * 1024) /* as weft's */

struct spawn_plan {
    const char *mode;
    long ops;
    long ended; /* fibers that have */
    int64_t ns;
};

static inline bool spawn_is(const struct spawn_plan *plan, const char *mode)
{
    return strcmp(plan->mode, mode) == 0;
}

static inline void spawn_plan_read(struct spawn_plan *plan, int argc, char **argv)
{
    if (argc != 3)
        bench_die("takes two arguments, MODE and OPS; bench_spawn runs it");
    plan->mode = argv[1];
    plan->ops = strtol(argv[2], NULL, 10);
    plan->ended = 0;
    plan->ns = 0;
    if (plan->ops <= 0)
        bench_die("OPS must be positive");
}

/* For a program that cannot do what is asked. */
static inline __attribute__((noreturn)) void spawn_skip(const char *why)
{
    printf("%s\n", why);
    fflush(stdout);
    _Exit(BENCH_SKIPPED);
}

static inline int spawn_plan_print(const struct spawn_plan *plan)
{
    printf("%.4f\n", (double)plan->ns / (double)plan->ops);
    fflush(stdout);
    _Exit(0);
}

#endif
