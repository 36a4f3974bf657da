/* exchange_raw_epoll.c: the exchange as a loop on epoll, without a library.
 *
 * Sockets are registered once, edge-triggered. A send is tried at once; a receive waits for its event
 * first, since what it waits for was hardly ever there before; after a message is complete nothing
 * more can be there. So a message costs one send, one recv and its share of an epoll_wait.
 */
#include "../exchange.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS 256

struct side {
    const struct exchange_side *io;
    bool sending;
    size_t moved;
    long left; /* round trips */
};

struct loop {
    int epoll;
    size_t bytes;
    int unfinished; /* sides */
    struct side *sides;
    uint64_t calls;
};

/* Moves what can be moved now; true if the message is complete. */
static bool move(struct loop *loop, struct side *side)
{
    while (side->moved < loop->bytes) {
        char *at = side->io->buffer + side->moved;
        const size_t rest = loop->bytes - side->moved;
        const ssize_t result = side->sending ? send(side->io->fd, at, rest, MSG_NOSIGNAL)
                                             : recv(side->io->fd, at, rest, 0);

        loop->calls++;
        if (result < 0 && errno == EAGAIN)
            return false;
        if (result <= 0)
            bench_die("%s: %s", side->sending ? "send" : "recv",
                      result == 0 ? "end of stream" : strerror(errno));
        side->moved += (size_t)result;
        if ((size_t)result < rest)
            return false; /* the socket is full, or empty: an event tells when it no longer is */
    }
    side->moved = 0;
    return true;
}

static void step(struct loop *loop, struct side *side)
{
    while (move(loop, side)) {
        if (side->sending != side->io->client && --side->left == 0) {
            loop->unfinished--;
            return;
        }
        side->sending = !side->sending;
        if (!side->sending)
            return;
    }
}

static void run(struct loop *loop)
{
    struct epoll_event events[EVENTS];

    for (int i = 0, count = loop->unfinished; i < count; i++)
        if (loop->sides[i].sending)
            step(loop, &loop->sides[i]);
    while (loop->unfinished > 0) {
        const int count = epoll_wait(loop->epoll, events, EVENTS, -1);

        loop->calls++;
        if (count < 0 && errno != EINTR)
            bench_die("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < count; i++) {
            struct side *side = events[i].data.ptr;

            if (side->left > 0 && events[i].events & (side->sending ? EPOLLOUT : EPOLLIN))
                step(loop, side);
        }
    }
}

void exchange_raw_epoll(const struct exchange *exchange, const struct exchange_impl *impl,
                        struct exchange_result *result)
{
    const int count = 2 * exchange->pairs;
    struct loop loop = {.bytes = exchange->bytes, .unfinished = count};

    (void)impl;
    loop.sides = calloc((size_t)count, sizeof(*loop.sides));
    loop.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (loop.sides == NULL || loop.epoll < 0)
        bench_die("epoll_create1: %s", strerror(errno));
    for (int i = 0; i < count; i++) {
        const struct exchange_side *io = &exchange->sides[i];
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET,
                                    .data.ptr = &loop.sides[i]};

        loop.sides[i] = (struct side){io, io->client, 0, exchange->trips};
        if (fcntl(io->fd, F_SETFL, O_NONBLOCK) != 0 ||
            epoll_ctl(loop.epoll, EPOLL_CTL_ADD, io->fd, &event) != 0)
            bench_die("epoll_ctl: %s", strerror(errno));
    }
    result->ns = bench_now();
    run(&loop);
    result->ns = bench_now() - result->ns;
    result->calls = loop.calls;
    close(loop.epoll);
    free(loop.sides);
}
