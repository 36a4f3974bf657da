/* io_support.h: sockets to test with, and a driver for the engine without fibers. */
#ifndef WEFT_TEST_IO_SUPPORT_H
#define WEFT_TEST_IO_SUPPORT_H

#include "harness.h"

#include <weft/ring.h>

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* The set-ups whose engine does I/O. */
#define EACH_IO_SETUP(s)                                                 \
    for (const struct setup *s = setups; s < setups + setups_count; s++) \
        if (strcmp(s->engine, "null") != 0)

void make_pair(int pair[2]); /* a socketpair */
void make_tcp(int tcp[2]);   /* a TCP connection through the loopback; [1] was accepted */
void close_pair(int pair[2]);
void make_pipe(int ends[2]);
void fill_up(int fd); /* until it would have to wait; of a pipe or a socket */
socklen_t loopback(struct sockaddr_storage *address, bool v6, int port);

/* A thread that writes `text` as soon as it is scheduled; one at a time. */
void send_soon(int fd, const char *text);
void join_sender(void);

/* Runs main on each of these set-ups: it returns 0, and leaves no descriptor open. */
void run_on_each_io_setup(weft_main_fn *main);

int open_descriptors(void); /* of this process, when no thread looks a name up any more */

/* ---- without fibers: the body drives the engine by hand, on the base stack ---- */

/* Runs body in a runtime of that set-up; returns what weft_run would. */
int run_by_hand(const struct setup *setup, void (*body)(void));
int run_by_hand_with(const struct weft_options *options, void (*body)(void));

/* One turn of the engine, of the inbox and of timers; may wait. */
void turn(void);

/* An operation whose result is kept. */
struct kept {
    struct ring_op op;
    int res, calls;
};
struct kept *keep(struct kept *kept);

/* Turns until it is done; its result. */
int result_of(struct kept *kept);

/* Turns the engine until the promise is settled; its number or error. Consumes it. */
struct promise;
int outcome_of(struct promise *p);

#endif
