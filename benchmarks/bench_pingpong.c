/* bench_pingpong: the latency of a round trip between two sides in one thread.
 *
 * A message of 1 byte to 256 KiB goes over a Unix socket pair and comes back. Nothing else is there to
 * do meanwhile, so nothing can be batched: what is measured is the way through the kernel and back,
 * twice, and what an implementation adds to it. The longest message doesn't fit into the socket's
 * buffer: it is sent and received in pieces.
 *
 *   raw-uring        a loop on liburing, in direct order; the better one of its two set-ups is the floor
 *   raw-uring-eager  likewise, but a send and the next receive go out together
 *   raw-epoll        a loop on epoll
 *   weft-fiber-*     weft in direct style, on io_uring and on epoll
 *   weft-promise-*   weft's promises, likewise
 *   libuv            libuv
 *
 * On io_uring each with both of a ring's set-ups, DEFER_TASKRUN ("defer") and COOP_TASKRUN ("coop").
 *
 * Why it is fair: exchange.h says what every implementation does, the same at both ends; new sockets
 * and buffers of the same kind each time, made before the clock starts; one thread, the
 * implementations alternate; the messages are checked.
 */
#include "exchange.h"

#include <stdio.h>
#include <string.h>

/* About as long for each size. */
static long trips(long bytes)
{
    return 4000 / (1 + bytes / 16384) + 1;
}

static void measure(struct bench_cell *cell, const struct exchange_impl *impl)
{
    const struct exchange exchange = {.pairs = 1, .trips = cell->ops, .bytes = (size_t)cell->bytes};
    struct exchange_result result;

    if (exchange_measure(cell, impl, exchange, &result))
        bench_add(cell, (double)result.ns / 1000 / (double)cell->ops);
}

static void print_name(const struct bench_cell *cell)
{
    printf("  %-19s %-5s", cell->impl, cell->mode != NULL ? cell->mode : "");
}

static void print_head(const char *what, const struct bench_options *options)
{
    printf("\n%-26s", what);
    for (int s = 0; s < options->size_count; s++)
        printf(" %7ld B", options->sizes[s]);
    printf("\n");
}

static void print_tables(const struct bench_cell (*cells)[EXCHANGE_IMPLS], int count,
                         const struct bench_options *options)
{
    print_head("us a round trip, min", options);
    for (int i = 0; i < count; i++) {
        print_name(&cells[0][i]);
        for (int s = 0; s < options->size_count && cells[s][i].rounds > 0; s++)
            printf(" %9.2f", cells[s][i].best);
        printf("%s%s\n", cells[0][i].rounds > 0 ? "" : " ", cells[0][i].remark);
    }
    print_head("/ floor", options);
    for (int i = 0; i < count; i++) {
        print_name(&cells[0][i]);
        for (int s = 0; s < options->size_count; s++) {
            const struct bench_cell *floor = exchange_floor(cells[s], count);

            if (floor != NULL && cells[s][i].rounds > 0)
                printf(" %9.2f", cells[s][i].best / floor->best);
            else
                printf(" %9s", "-");
        }
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    static struct bench_cell cells[BENCH_MAX_COUNTS][EXCHANGE_IMPLS];
    const struct exchange_impl *impls[EXCHANGE_IMPLS];
    struct bench_options options = {
        .rounds = 40, .sizes = {1, 64, 1024, 16384, 262144}, .size_count = 5};
    int count;

    bench_options_parse(&options, argc, argv,
                        "Measures round trips over a socket pair, in us, on one connection.");
    count = exchange_pick(&options, impls);
    for (int s = 0; s < options.size_count; s++)
        for (int i = 0; i < count; i++)
            cells[s][i] = (struct bench_cell){.impl = impls[i]->impl,
                                              .mode = impls[i]->mode,
                                              .bytes = options.sizes[s],
                                              .ops = trips(options.sizes[s])};

    for (int round = 0; round < options.rounds; round++)
        for (int s = 0; s < options.size_count; s++)
            for (int i = 0; i < count; i++)
                if (bench_again(&cells[s][i]))
                    measure(&cells[s][i], impls[i]);
    if (!options.json) {
        print_tables(cells, count, &options);
        return 0;
    }
    for (int i = 0; i < count; i++)
        for (int s = 0; s < options.size_count; s++)
            bench_json("pingpong", &cells[s][i], "us_per_op");
    return 0;
}
