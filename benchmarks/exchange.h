/* exchange.h: what bench_pingpong and bench_echo have in common: messages to and fro on pairs of
 * connected stream sockets, all pairs at a time, both ends of each in one thread.
 *
 * On each pair the client sends a message and receives it back, `trips` times; the server receives
 * one and sends it back, as often. Every implementation works in direct order, at either end alike:
 * a side asks for its next transfer when it has learned that the one before is complete. (Only
 * raw-uring-eager doesn't: it shows what the order costs.) The clock starts before the first transfer
 * is asked for and stops when the last side is through; connecting, rings and loops come before it.
 */
#ifndef BENCH_EXCHANGE_H
#define BENCH_EXCHANGE_H

#include "harness.h"

struct exchange_side {
    int fd; /* blocking; who sets O_NONBLOCK may leave it set */
    bool client;
    char *buffer; /* a message, and EXCHANGE_SLACK: a read that isn't full has emptied the socket */
};
#define EXCHANGE_SLACK 1

struct exchange {
    struct exchange_side *sides; /* a client, its server, the next client, ... */
    int pairs;
    long trips;
    size_t bytes; /* a message's */
    bool tcp;     /* over loopback; else Unix socket pairs */
};

struct exchange_result {
    int64_t ns;
    uint64_t calls;   /* system calls, if they were counted */
    char remark[120]; /* why there is no result; "": there is one */
};

struct exchange_impl;

/* Runs the exchange once; `result` is zero before. Ends the program if a transfer fails. */
typedef void exchange_fn(const struct exchange *exchange, const struct exchange_impl *impl,
                         struct exchange_result *result);

/* An implementation in one set-up. */
struct exchange_impl {
    const char *impl;
    const char *mode;   /* the ring's set-up, "defer" or "coop"; NULL: there is no ring */
    exchange_fn *run;   /* NULL: not built */
    const char *engine; /* weft's */
    bool eager;         /* raw-uring's */
};

exchange_fn exchange_fiber, exchange_promise, exchange_raw_uring, exchange_raw_epoll,
    exchange_libuv;

/* What is measured; ends with .impl NULL. */
extern const struct exchange_impl exchange_impls[];
#define EXCHANGE_IMPLS 12

/* Picks the implementations that the options name; returns how many, ends the program if none. */
int exchange_pick(const struct bench_options *options,
                  const struct exchange_impl *picked[EXCHANGE_IMPLS]);

/* Makes the sockets and buffers, lets an implementation run once, frees them. False if there is no
 * result; then cell->remark says why. */
bool exchange_measure(struct bench_cell *cell, const struct exchange_impl *impl,
                      struct exchange exchange, struct exchange_result *result);

/* The floor: the better one of raw-uring's set-ups; NULL if neither was measured. */
const struct bench_cell *exchange_floor(const struct bench_cell cells[], int count);

#endif
