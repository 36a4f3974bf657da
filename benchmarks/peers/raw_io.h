/* raw_io.h: the workloads of bench_io as hand-written liburing loops. */
#ifndef BENCH_PEERS_RAW_IO_H
#define BENCH_PEERS_RAW_IO_H

#include <stdbool.h>

#define RAW_MESSAGE 64

/* On `count` pairs of connected sockets, the first of each pair sends a message of RAW_MESSAGE
 * bytes and the second sends it back, `trips` times each, all pairs at a time, on one ring set up
 * with `setup_flags` (IORING_SETUP_*). stepwise: a side learns of its send before it receives, as
 * direct-style code does. Returns ns in all; a negative errno if there is no such ring. */
long long raw_io_run(int (*pairs)[2], int count, long trips, unsigned setup_flags, bool stepwise);

#endif
