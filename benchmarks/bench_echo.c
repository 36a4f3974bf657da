/* bench_echo: the throughput of an echo server and its clients, in one thread.
 *
 * 100 TCP connections over loopback; on each the client sends 64 bytes and waits until they have come
 * back, 1000 times. Clients and server are the same program and the same thread, so no core waits for
 * another, and there is always something to batch: what is measured is how much an implementation
 * gets done with a system call, and what it adds to each message.
 *
 *   raw-uring        a loop on liburing, in direct order; the better one of its two set-ups is the floor
 *   raw-uring-eager  likewise, but a send and the next receive go out together
 *   raw-epoll        a loop on epoll
 *   weft-fiber-*     weft in direct style, a fiber for each end, on io_uring and on epoll
 *   weft-promise-*   weft's promises, a loop of binds for each end, likewise
 *   libuv            libuv
 *
 * On io_uring each with both of a ring's set-ups, DEFER_TASKRUN ("defer") and COOP_TASKRUN ("coop").
 *
 * Why it is fair: exchange.h says what every implementation does, the same at both ends; new
 * connections each time, made before the clock starts; one thread; the implementations alternate; the
 * messages are checked.
 */
#include "exchange.h"

#include <stdio.h>
#include <string.h>

#define CONNECTIONS 100
#define TRIPS       1000
#define BYTES       64

/* Returns system calls a round trip; 0: not counted. */
static double measure(struct bench_cell *cell, const struct exchange_impl *impl)
{
    const struct exchange exchange = {
        .pairs = CONNECTIONS, .trips = TRIPS, .bytes = BYTES, .tcp = true};
    struct exchange_result result;

    if (!exchange_measure(cell, impl, exchange, &result))
        return 0;
    bench_add(cell, (double)cell->ops * 1e9 / (double)result.ns);
    return (double)result.calls / (double)cell->ops;
}

static void print_table(const struct bench_cell cells[], const double calls[], int count)
{
    const struct bench_cell *floor = exchange_floor(cells, count);

    printf("%-26s %11s %10s %10s %14s %7s\n", "thousand round trips / s", "max", "median",
           "floor / it", "calls a trip", "rounds");
    for (int i = 0; i < count; i++) {
        const struct bench_cell *cell = &cells[i];

        printf("  %-19s %-5s", cell->impl, cell->mode != NULL ? cell->mode : "");
        if (cell->rounds == 0) {
            printf(" %s\n", cell->remark);
            continue;
        }
        printf(" %10.1f %10.1f", cell->best / 1000, bench_median(cell) / 1000);
        if (floor != NULL)
            printf(" %10.2f", floor->best / cell->best);
        else
            printf(" %10s", "-");
        if (calls[i] > 0)
            printf(" %14.3f", calls[i]);
        else
            printf(" %14s", "-");
        printf(" %7d\n", cell->rounds);
    }
}

int main(int argc, char **argv)
{
    static struct bench_cell cells[EXCHANGE_IMPLS];
    const struct exchange_impl *impls[EXCHANGE_IMPLS];
    struct bench_options options = {.rounds = 7};
    double calls[EXCHANGE_IMPLS] = {0};
    int count;

    bench_options_parse(&options, argc, argv,
                        "Measures round trips over 100 TCP connections, in thousands a second.");
    count = exchange_pick(&options, impls);
    for (int i = 0; i < count; i++)
        cells[i] = (struct bench_cell){.impl = impls[i]->impl,
                                       .mode = impls[i]->mode,
                                       .bytes = BYTES,
                                       .ops = (long)CONNECTIONS * TRIPS,
                                       .most = true};

    for (int round = 0; round < options.rounds; round++)
        for (int i = 0; i < count; i++)
            if (bench_again(&cells[i]))
                calls[i] = measure(&cells[i], impls[i]);
    if (!options.json) {
        print_table(cells, calls, count);
        return 0;
    }
    for (int i = 0; i < count; i++)
        bench_json("echo", &cells[i], "ops_per_s");
    return 0;
}
