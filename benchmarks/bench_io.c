/* bench_io: messages between fibers over sockets, beside liburing loops. needs: fibers
 *
 *   ping-pong  two fibers, a Unix socket pair, 64 bytes to and fro: the latency of one round trip
 *   echo       100 TCP connections over loopback with a fiber at each end, 1000 times 64 bytes to
 *              and fro on each, all at a time and in one process: the throughput
 *
 * weft runs direct-style code (fiber_send_all, fiber_recv_all) on its default engine. The others
 * are loops written on liburing by hand (peers/raw_io.c): raw-defer and raw-coop do their best, on
 * a ring set up with DEFER_TASKRUN or with COOP_TASKRUN; raw-stepwise sends, learns of that, then
 * receives, as direct-style code does, with DEFER_TASKRUN.
 *
 * Why it is fair: the same sockets, messages and number of round trips, connections made before the
 * clock starts, one thread and one ring each, single-shot receives; the implementations alternate.
 */
#include "harness.h"
#include "peers/raw_io.h"

#include <weft/fiber.h>
#include <weft/io.h>
#include <weft/runtime.h>

#include <liburing.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MESSAGE    RAW_MESSAGE
#define MOST_PAIRS 100
#define IMPLS      4
#define WORKLOADS  2

static const char *const impls[IMPLS] = {"weft", "raw-stepwise", "raw-defer", "raw-coop"};

static const struct workload {
    const char *mode;
    int pairs;
    long trips;
    bool tcp;
} workloads[WORKLOADS] = {
    {"ping-pong", 1, 50000, false},
    {"echo", MOST_PAIRS, 1000, true},
};

/* ---- sockets ------------------------------------------------------------------------------ */

static void connect_pair(int listener, const struct sockaddr_in *address, int pair[2])
{
    const int on = 1;

    pair[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (pair[0] < 0 || connect(pair[0], (const struct sockaddr *)address, sizeof(*address)) != 0)
        bench_die("connect: %s", strerror(errno));
    pair[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (pair[1] < 0)
        bench_die("accept4: %s", strerror(errno));
    for (int i = 0; i < 2; i++)
        setsockopt(pair[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static void open_pairs(const struct workload *workload, int (*pairs)[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof(address);
    int listener;

    if (!workload->tcp) {
        for (int i = 0; i < workload->pairs; i++)
            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pairs[i]) != 0)
                bench_die("socketpair: %s", strerror(errno));
        return;
    }
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) != 0 ||
        listen(listener, workload->pairs) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0)
        bench_die("no listening socket: %s", strerror(errno));
    for (int i = 0; i < workload->pairs; i++)
        connect_pair(listener, &address, pairs[i]);
    close(listener);
}

static void close_pairs(const struct workload *workload, int (*pairs)[2])
{
    for (int i = 0; i < workload->pairs; i++) {
        close(pairs[i][0]);
        close(pairs[i][1]);
    }
}

/* ---- weft --------------------------------------------------------------------------------- */

struct side {
    int fd;
    long trips;
};

struct run {
    const struct workload *workload;
    int (*pairs)[2];
    struct side *sides;
    int64_t ns;
};

static int64_t client(void *arg)
{
    struct side *side = arg;
    char message[MESSAGE] = {0};
    int result = 0;

    for (long i = 0; i < side->trips && result == 0; i++) {
        result = fiber_send_all(side->fd, message, sizeof(message), 0, NULL, WEFT_FOREVER);
        if (result == 0)
            result = fiber_recv_all(side->fd, message, sizeof(message), 0, NULL, WEFT_FOREVER);
    }
    return result;
}

/* Ends when main does: its receive is cancelled. */
static int64_t server(void *arg)
{
    struct side *side = arg;
    char message[MESSAGE];
    int result;

    do {
        result = fiber_recv_all(side->fd, message, sizeof(message), 0, NULL, WEFT_FOREVER);
        if (result == 0)
            result = fiber_send_all(side->fd, message, sizeof(message), 0, NULL, WEFT_FOREVER);
    } while (result == 0);
    return result;
}

static int weft_main(void *arg)
{
    struct run *run = arg;
    struct promise *ends[MOST_PAIRS];
    const int64_t began = bench_now();
    int result = 0;

    for (int i = 0; i < run->workload->pairs && result == 0; i++) {
        struct side *side = &run->sides[2 * i];

        side[0] = (struct side){run->pairs[i][0], run->workload->trips};
        side[1] = (struct side){run->pairs[i][1], run->workload->trips};
        result = fiber_detach(server, &side[1]);
        if (result == 0)
            ends[i] = fiber_spawn(client, &side[0]);
    }
    for (int i = 0; i < run->workload->pairs && result == 0; i++)
        result = fiber_await(ends[i], NULL, WEFT_FOREVER);
    run->ns = bench_now() - began;
    return result;
}

static int64_t weft_run_workload(const struct workload *workload, int (*pairs)[2])
{
    struct run run = {.workload = workload, .pairs = pairs};
    int result;

    run.sides = calloc((size_t)workload->pairs * 2, sizeof(*run.sides));
    if (run.sides == NULL)
        bench_die("out of memory");
    result = weft_run(weft_main, &run, NULL);
    if (result < 0)
        bench_die("weft: %s", strerror(-result));
    free(run.sides);
    return run.ns;
}

/* ---- the driver --------------------------------------------------------------------------- */

static void measure(struct bench_cell *cell, const struct workload *workload)
{
    int(*pairs)[2] = calloc((size_t)workload->pairs, sizeof(*pairs));
    const int64_t began = bench_now();
    int64_t ns;

    if (pairs == NULL)
        bench_die("out of memory");
    open_pairs(workload, pairs);
    if (strcmp(cell->impl, "weft") == 0)
        ns = weft_run_workload(workload, pairs);
    else
        ns = raw_io_run(pairs, workload->pairs, workload->trips,
                        strcmp(cell->impl, "raw-coop") == 0
                            ? IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN
                            : IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
                        strcmp(cell->impl, "raw-stepwise") == 0);
    close_pairs(workload, pairs);
    free(pairs);
    if (ns < 0)
        snprintf(cell->remark, sizeof(cell->remark), "no such ring: %s", strerror((int)-ns));
    else
        bench_add(cell, (double)ns / 1000 / (double)cell->ops);
    cell->spent += bench_now() - began;
}

static void print_ratio(double value, double to)
{
    if (to > 0)
        printf(" %11.2f", value / to);
    else
        printf(" %11s", "-");
}

static void print_table(const struct bench_cell *cells, int count)
{
    double raw = 0, stepwise = 0;

    for (int i = 0; i < count; i++)
        if (cells[i].rounds > 0 && strncmp(cells[i].impl, "raw", 3) == 0 &&
            (raw <= 0 || cells[i].best < raw))
            raw = cells[i].best;
    for (int i = 0; i < count; i++)
        if (strcmp(cells[i].impl, "raw-stepwise") == 0 && cells[i].rounds > 0)
            stepwise = cells[i].best;
    printf("\n%s\n", cells[0].mode);
    printf("  %-12s %22s %9s %14s %11s %7s\n", "", "us a round trip: min", "median", "thousand / s",
           "/ best raw", "rounds");
    for (int i = 0; i < count; i++) {
        if (cells[i].rounds == 0) {
            printf("  %-12s %s\n", cells[i].impl, cells[i].remark);
            continue;
        }
        printf("  %-12s %22.2f %9.2f %14.1f", cells[i].impl, cells[i].best, bench_median(&cells[i]),
               1000 / cells[i].best);
        print_ratio(cells[i].best, raw);
        print_ratio(cells[i].best, stepwise);
        printf(" %7d\n", cells[i].rounds);
    }
}

int main(int argc, char **argv)
{
    struct bench_options options = {.rounds = 5};
    struct bench_cell cells[WORKLOADS][IMPLS];
    int wanted = 0;

    bench_options_parse(&options, argc, argv,
                        "Measures round trips over sockets, in us: weft and raw liburing loops.");
    memset(cells, 0, sizeof(cells));
    for (int i = 0; i < IMPLS; i++) {
        if (!bench_wanted(&options, impls[i]))
            continue;
        for (int w = 0; w < WORKLOADS; w++) {
            cells[w][wanted].impl = impls[i];
            cells[w][wanted].mode = workloads[w].mode;
            cells[w][wanted].ops = workloads[w].trips * workloads[w].pairs;
        }
        wanted++;
    }
    if (wanted == 0)
        bench_die("no implementation '%s'", options.impl);

    for (int round = 0; round < options.rounds; round++)
        for (int w = 0; w < WORKLOADS; w++)
            for (int i = 0; i < wanted; i++)
                if (bench_again(&cells[w][i]))
                    measure(&cells[w][i], &workloads[w]);
    for (int w = 0; w < WORKLOADS; w++) {
        if (!options.json)
            print_table(cells[w], wanted);
        else
            for (int i = 0; i < wanted; i++)
                bench_json("io", &cells[w][i], "us_per_op");
    }
    return 0;
}
