/* yield.h: what every program of bench_yield does: bench_yield_<impl> FIBERS OPS.
 *
 * FIBERS fibers are started; each yields a few times to warm up and then OPS / FIBERS times to be
 * measured. The first fiber reads the clock when it begins the measured yields and again when its
 * last one returns: in between, every fiber has been left exactly OPS / FIBERS times. So neither
 * starting nor ending a fiber is timed.
 *
 * That holds only if the order is first in, first out. It is checked: fibers must begin and end the
 * measured part in the order in which they first ran, else the program fails.
 */
#ifndef BENCH_PEERS_YIELD_H
#define BENCH_PEERS_YIELD_H

#include "../harness.h"

#include <stdio.h>
#include <stdlib.h>

#define YIELD_STACK    (64 * 1024) /* as weft's */
#define YIELD_WARM_OPS 200000

struct yield_plan {
    long fibers;
    long warm;   /* yields of each fiber that are not measured */
    long passes; /* yields of each fiber that are */
    int64_t began, ended;
    long entered, begun, finished; /* fibers that are so far */
    bool in_order;
};

static inline void yield_begin(struct yield_plan *plan, long index)
{
    if (plan->begun++ != index)
        plan->in_order = false;
    if (index == 0)
        plan->began = bench_now();
}

static inline void yield_end(struct yield_plan *plan, long index)
{
    if (index == 0)
        plan->ended = bench_now();
    if (plan->finished++ != index)
        plan->in_order = false;
}

/* A fiber's whole work; `yield` is a statement. A macro, so that no implementation pays for a call
 * that its users would not. */
#define YIELD_FIBER(plan, yield)                                               \
    do {                                                                       \
        const long yield_index = (plan)->entered++;                            \
        for (long yield_left = (plan)->warm; yield_left > 0; yield_left--) {   \
            yield;                                                             \
        }                                                                      \
        yield_begin(plan, yield_index);                                        \
        for (long yield_left = (plan)->passes; yield_left > 0; yield_left--) { \
            yield;                                                             \
        }                                                                      \
        yield_end(plan, yield_index);                                          \
    } while (0)

/* For a program that cannot do what is asked. */
static inline __attribute__((noreturn)) void yield_skip(const char *why)
{
    printf("%s\n", why);
    fflush(stdout);
    _Exit(BENCH_SKIPPED);
}

static inline void yield_plan_read(struct yield_plan *plan, int argc, char **argv)
{
    long ops;

    if (argc != 3)
        bench_die("takes two arguments, FIBERS and OPS; bench_yield runs it");
    plan->fibers = strtol(argv[1], NULL, 10);
    ops = strtol(argv[2], NULL, 10);
    if (plan->fibers <= 0 || ops < plan->fibers)
        bench_die("FIBERS must be positive and OPS no less than FIBERS");
    plan->passes = ops / plan->fibers;
    plan->warm = YIELD_WARM_OPS / plan->fibers;
    plan->began = plan->ended = 0;
    plan->entered = plan->begun = plan->finished = 0;
    plan->in_order = true;
}

/* Prints ns per yield. The fibers need not be taken down, the process ends. */
static inline int yield_plan_print(const struct yield_plan *plan)
{
    if (!plan->in_order || plan->finished != plan->fibers)
        bench_die("the fibers did not run in order (%ld of %ld have finished)", plan->finished,
                  plan->fibers);
    printf("%.4f\n",
           (double)(plan->ended - plan->began) / ((double)plan->passes * (double)plan->fibers));
    fflush(stdout);
    _Exit(0);
}

#endif
