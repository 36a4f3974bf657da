/* wake_raw_uring.h: how one ring can wake another thread's: a round trip between two threads that each
 * wait in a ring of their own, by hand on liburing. */
#ifndef BENCH_PEERS_WAKE_RAW_URING_H
#define BENCH_PEERS_WAKE_RAW_URING_H

#include <stdbool.h>
#include <stdint.h>

/* The nanoseconds of so many round trips. by_message: with IORING_OP_MSG_RING, in the same system call
 * that waits; else by writing an eventfd that the other ring reads. -1: the kernel has no such message. */
int64_t wake_raw_uring(long trips, bool by_message);

#endif
