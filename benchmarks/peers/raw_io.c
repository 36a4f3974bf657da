/* raw_io.c: messages to and fro on liburing, without fibers or callbacks: what bench_io compares
 * with.
 *
 * One loop, one io_uring_submit_and_wait a turn, single-shot receives. As in raw_http.c, a side's
 * send and its next receive go to the kernel together, the receive is told to wait before it looks,
 * and a send that succeeds posts no completion. That is the best that these operations allow, and
 * more than direct-style code can do, which learns of its send before it receives. So there is a
 * stepwise form too, which does one after the other: what it costs above the first is the price of
 * the order, and what direct-style code costs above it is the price of the library.
 */
#include "raw_io.h"

#include "../harness.h"

#include <liburing.h>

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define SQ_ENTRIES 512

struct side {
    int fd;
    bool client;
    bool sending;     /* stepwise: what completes next is the send */
    unsigned current; /* the buffer being received into; the other one may still be going out */
    unsigned got;
    long left; /* client: round trips to go */
    char buffer[2][RAW_MESSAGE];
};

struct loop {
    struct io_uring ring;
    bool stepwise;
    long unfinished; /* clients */
};

static struct io_uring_sqe *next_sqe(struct loop *loop)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&loop->ring);

    while (sqe == NULL) {
        const int result = io_uring_submit(&loop->ring);

        if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY)
            bench_die("io_uring_submit: %s", strerror(-result));
        sqe = io_uring_get_sqe(&loop->ring);
    }
    return sqe;
}

static void queue_receive(struct loop *loop, struct side *side)
{
    struct io_uring_sqe *sqe = next_sqe(loop);

    io_uring_prep_recv(sqe, side->fd, side->buffer[side->current] + side->got,
                       RAW_MESSAGE - side->got, 0);
    if (!loop->stepwise)
        sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
    io_uring_sqe_set_data(sqe, side);
}

/* Sends what the current buffer holds, and receives into the other one. */
static void queue_exchange(struct loop *loop, struct side *side)
{
    struct io_uring_sqe *sqe = next_sqe(loop);

    io_uring_prep_send(sqe, side->fd, side->buffer[side->current], RAW_MESSAGE,
                       MSG_NOSIGNAL | MSG_WAITALL);
    side->current ^= 1;
    side->got = 0;
    side->sending = loop->stepwise;
    if (loop->stepwise) {
        io_uring_sqe_set_data(sqe, side);
    } else {
        io_uring_sqe_set_flags(sqe, IOSQE_CQE_SKIP_SUCCESS);
        io_uring_sqe_set_data(sqe, NULL);
        queue_receive(loop, side);
    }
}

static void sent(struct loop *loop, struct side *side, int result)
{
    if (result != RAW_MESSAGE)
        bench_die("send: %s", result < 0 ? strerror(-result) : "short");
    side->sending = false;
    queue_receive(loop, side);
}

static void received(struct loop *loop, struct side *side, int result)
{
    if (result <= 0)
        bench_die("recv: %s", result == 0 ? "end of stream" : strerror(-result));
    side->got += (unsigned)result;
    if (side->got < RAW_MESSAGE)
        queue_receive(loop, side);
    else if (!side->client || --side->left > 0)
        queue_exchange(loop, side);
    else
        loop->unfinished--;
}

static void run(struct loop *loop)
{
    while (loop->unfinished > 0) {
        const int result = io_uring_submit_and_wait(&loop->ring, 1);
        struct io_uring_cqe *cqe;
        unsigned head, seen = 0;

        if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY)
            bench_die("io_uring_submit_and_wait: %s", strerror(-result));
        io_uring_for_each_cqe(&loop->ring, head, cqe)
        {
            struct side *side = io_uring_cqe_get_data(cqe);

            seen++;
            if (side != NULL && side->sending)
                sent(loop, side, cqe->res);
            else if (side != NULL)
                received(loop, side, cqe->res);
            else if (cqe->res < 0)
                bench_die("send: %s", strerror(-cqe->res));
        }
        io_uring_cq_advance(&loop->ring, seen);
    }
}

long long raw_io_run(int (*pairs)[2], int count, long trips, unsigned setup_flags, bool stepwise)
{
    struct loop *loop = calloc(1, sizeof(*loop));
    struct side *sides = calloc((size_t)count * 2, sizeof(*sides));
    long long began, ended;
    int result;

    if (loop == NULL || sides == NULL)
        bench_die("out of memory");
    result = io_uring_queue_init(SQ_ENTRIES, &loop->ring, setup_flags);
    if (result < 0) {
        free(sides);
        free(loop);
        return result;
    }
    io_uring_register_ring_fd(&loop->ring); /* saves a little; older kernels can't */
    loop->stepwise = stepwise;
    loop->unfinished = count;

    began = bench_now();
    for (int i = 0; i < count; i++) {
        struct side *client = &sides[2 * i], *server = client + 1;

        client->fd = pairs[i][0];
        client->client = true;
        client->left = trips;
        server->fd = pairs[i][1];
        queue_receive(loop, server);
        queue_exchange(loop, client);
    }
    run(loop);
    ended = bench_now();

    /* the servers' last receives go with the ring */
    io_uring_queue_exit(&loop->ring);
    free(sides);
    free(loop);
    return ended - began;
}
