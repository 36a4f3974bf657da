/* exchange.c: the sockets, and the list of implementations. */
#include "exchange.h"

#include <weft/base.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#if WEFT_HAS_FIBERS
#define FIBER exchange_fiber
#else
#define FIBER NULL
#endif
#if BENCH_HAS_LIBUV
#define LIBUV exchange_libuv
#else
#define LIBUV NULL
#endif

const struct exchange_impl exchange_impls[] = {
    {.impl = "raw-uring", .mode = "defer", .run = exchange_raw_uring},
    {.impl = "raw-uring", .mode = "coop", .run = exchange_raw_uring},
    {.impl = "weft-fiber-uring", .mode = "defer", .run = FIBER, .engine = "uring"},
    {.impl = "weft-fiber-uring", .mode = "coop", .run = FIBER, .engine = "uring"},
    {.impl = "weft-promise-uring", .mode = "defer", .run = exchange_promise, .engine = "uring"},
    {.impl = "weft-promise-uring", .mode = "coop", .run = exchange_promise, .engine = "uring"},
    {.impl = "raw-uring-eager", .mode = "defer", .run = exchange_raw_uring, .eager = true},
    {.impl = "raw-uring-eager", .mode = "coop", .run = exchange_raw_uring, .eager = true},
    {.impl = "raw-epoll", .run = exchange_raw_epoll},
    {.impl = "weft-fiber-epoll", .run = FIBER, .engine = "epoll"},
    {.impl = "weft-promise-epoll", .run = exchange_promise, .engine = "epoll"},
    {.impl = "libuv", .run = LIBUV},
    {.impl = NULL},
};
_Static_assert(sizeof(exchange_impls) / sizeof(exchange_impls[0]) == EXCHANGE_IMPLS + 1,
               "EXCHANGE_IMPLS is their number");

int exchange_pick(const struct bench_options *options,
                  const struct exchange_impl *picked[EXCHANGE_IMPLS])
{
    int count = 0;

    for (const struct exchange_impl *impl = exchange_impls; impl->impl != NULL; impl++)
        if (bench_wanted(options, impl->impl))
            picked[count++] = impl;
    if (count == 0)
        bench_die("no implementation '%s'", options->impl);
    return count;
}

/* ---- sockets ------------------------------------------------------------------------------ */

static int listen_on_loopback(int backlog, struct sockaddr_in *address)
{
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t length = sizeof(*address);

    *address = (struct sockaddr_in){.sin_family = AF_INET};
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (listener < 0 || bind(listener, (struct sockaddr *)address, length) != 0 ||
        listen(listener, backlog) != 0 ||
        getsockname(listener, (struct sockaddr *)address, &length) != 0)
        bench_die("no listening socket: %s", strerror(errno));
    return listener;
}

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

static void open_sides(struct exchange *exchange)
{
    const int count = 2 * exchange->pairs;
    struct sockaddr_in address;
    int listener = -1, pair[2];

    exchange->sides = calloc((size_t)count, sizeof(*exchange->sides));
    if (exchange->sides == NULL)
        bench_die("out of memory");
    if (exchange->tcp)
        listener = listen_on_loopback(exchange->pairs, &address);
    for (int i = 0; i < count; i++) {
        struct exchange_side *side = &exchange->sides[i];

        if (i % 2 == 0) {
            if (exchange->tcp)
                connect_pair(listener, &address, pair);
            else if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
                bench_die("socketpair: %s", strerror(errno));
        }
        side->fd = pair[i % 2];
        side->client = i % 2 == 0;
        side->buffer = malloc(exchange->bytes + EXCHANGE_SLACK);
        if (side->buffer == NULL)
            bench_die("out of memory");
        memset(side->buffer, i, exchange->bytes + EXCHANGE_SLACK);
    }
    if (listener >= 0)
        close(listener);
}

static void close_sides(struct exchange *exchange)
{
    for (int i = 0; i < 2 * exchange->pairs; i++) {
        close(exchange->sides[i].fd);
        free(exchange->sides[i].buffer);
    }
    free(exchange->sides);
}

/* Every message is the client's first one still, at either end. */
static void check(const struct exchange *exchange)
{
    for (int i = 0; i < 2 * exchange->pairs; i++)
        for (size_t at = 0; at < exchange->bytes; at++)
            if (exchange->sides[i].buffer[at] != (char)(i & ~1))
                bench_die("a message was damaged");
}

/* ---- measuring ---------------------------------------------------------------------------- */

bool exchange_measure(struct bench_cell *cell, const struct exchange_impl *impl,
                      struct exchange exchange, struct exchange_result *result)
{
    const int64_t began = bench_now();

    *result = (struct exchange_result){.ns = 0};
    if (impl->run == NULL) {
        snprintf(cell->remark, sizeof(cell->remark), "not built");
        return false;
    }
    open_sides(&exchange);
    impl->run(&exchange, impl, result);
    memcpy(cell->remark, result->remark, sizeof(cell->remark));
    if (result->remark[0] == '\0')
        check(&exchange);
    close_sides(&exchange);
    cell->spent += bench_now() - began;
    return result->remark[0] == '\0';
}

const struct bench_cell *exchange_floor(const struct bench_cell cells[], int count)
{
    const struct bench_cell *floor = NULL;

    for (int i = 0; i < count; i++)
        if (cells[i].rounds > 0 && strcmp(cells[i].impl, "raw-uring") == 0 &&
            (floor == NULL ||
             (floor->most ? cells[i].best > floor->best : cells[i].best < floor->best)))
            floor = &cells[i];
    return floor;
}
