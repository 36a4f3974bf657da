/* exchange_raw_uring.c: the exchange as a loop on liburing, without fibers or callbacks.
 *
 * One io_uring_submit_and_wait a turn; single-shot receives on ordinary descriptors; MSG_WAITALL, so
 * that the kernel itself goes on with a message that doesn't fit. In direct order what a turn asks for
 * is sorted: first all sends, then all receives. A receive whose message is sent in the same turn
 * then finds it at once and needs no poll.
 *
 * eager: a side's send and its next receive go to the kernel together, into two buffers, the receive
 * is told to wait before it looks, and a send that succeeds posts no completion. Direct-style code
 * cannot do that: it learns of its send before it receives.
 */
#include "../exchange.h"

#include <liburing.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define SQ_ENTRIES 512

struct side {
    int fd;
    bool client, sending;
    char *buffer, *other; /* eager: the other one may still be going out */
    size_t moved;
    long left; /* round trips */
};

struct loop {
    struct io_uring ring;
    size_t bytes;
    bool eager;
    int unfinished; /* sides */
    struct side *sides;
    struct side **receivers; /* of this turn */
    int receiver_count;
    uint64_t calls;
};

static int check(int result)
{
    if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY)
        bench_die("io_uring_enter: %s", strerror(-result));
    return result;
}

static struct io_uring_sqe *next_sqe(struct loop *loop)
{
    struct io_uring_sqe *sqe;

    while ((sqe = io_uring_get_sqe(&loop->ring)) == NULL) {
        loop->calls++;
        check(io_uring_submit(&loop->ring));
    }
    return sqe;
}

static void queue_send(struct loop *loop, struct side *side)
{
    struct io_uring_sqe *sqe = next_sqe(loop);

    io_uring_prep_send(sqe, side->fd, side->buffer + side->moved, loop->bytes - side->moved,
                       MSG_NOSIGNAL | MSG_WAITALL);
    io_uring_sqe_set_data(sqe, side);
}

static struct io_uring_sqe *queue_receive(struct loop *loop, struct side *side)
{
    struct io_uring_sqe *sqe = next_sqe(loop);

    io_uring_prep_recv(sqe, side->fd, side->buffer + side->moved, loop->bytes - side->moved,
                       MSG_WAITALL);
    io_uring_sqe_set_data(sqe, side);
    return sqe;
}

static void queue(struct loop *loop, struct side *side)
{
    if (side->sending)
        queue_send(loop, side);
    else
        loop->receivers[loop->receiver_count++] = side;
}

static void queue_eagerly(struct loop *loop, struct side *side, bool receive)
{
    struct io_uring_sqe *sqe = next_sqe(loop);
    char *sent = side->buffer;

    io_uring_prep_send(sqe, side->fd, sent, loop->bytes, MSG_NOSIGNAL | MSG_WAITALL);
    io_uring_sqe_set_flags(sqe, IOSQE_CQE_SKIP_SUCCESS);
    io_uring_sqe_set_data(sqe, NULL);
    if (receive) {
        side->buffer = side->other;
        side->other = sent;
        queue_receive(loop, side)->ioprio |= IORING_RECVSEND_POLL_FIRST;
    }
}

static bool is_last(struct loop *loop, struct side *side)
{
    if (--side->left > 0)
        return false;
    loop->unfinished--;
    return true;
}

static void completed(struct loop *loop, struct side *side, int result)
{
    if (result <= 0)
        bench_die("%s: %s", side->sending ? "send" : "recv",
                  result == 0 ? "end of stream" : strerror(-result));
    side->moved += (size_t)result;
    if (side->moved < loop->bytes) {
        queue(loop, side);
        return;
    }
    side->moved = 0;
    if (loop->eager) {
        if (!is_last(loop, side))
            queue_eagerly(loop, side, true);
        else if (!side->client)
            queue_eagerly(loop, side, false);
    } else if (side->sending == side->client || !is_last(loop, side)) {
        side->sending = !side->sending;
        queue(loop, side);
    }
}

static void start(struct loop *loop)
{
    for (struct side *side = loop->sides; side < loop->sides + loop->unfinished; side++) {
        if (!loop->eager)
            queue(loop, side);
        else if (side->client)
            queue_eagerly(loop, side, true);
        else
            queue_receive(loop, side);
    }
}

static void run(struct loop *loop)
{
    while (loop->unfinished > 0) {
        struct io_uring_cqe *cqe;
        unsigned head, seen = 0;

        for (int i = 0; i < loop->receiver_count; i++)
            queue_receive(loop, loop->receivers[i]);
        loop->receiver_count = 0;
        loop->calls++;
        check(io_uring_submit_and_wait(&loop->ring, 1));
        io_uring_for_each_cqe(&loop->ring, head, cqe)
        {
            struct side *side = io_uring_cqe_get_data(cqe);

            seen++;
            if (side != NULL)
                completed(loop, side, cqe->res);
            else if (cqe->res < 0)
                bench_die("send: %s", strerror(-cqe->res));
        }
        io_uring_cq_advance(&loop->ring, seen);
    }
}

static bool set_up(struct loop *loop, const struct exchange_impl *impl, char *remark, size_t size)
{
    const unsigned flags =
        strcmp(impl->mode, "coop") == 0 ? IORING_SETUP_COOP_TASKRUN : IORING_SETUP_DEFER_TASKRUN;
    const int result =
        io_uring_queue_init(SQ_ENTRIES, &loop->ring, IORING_SETUP_SINGLE_ISSUER | flags);

    if (result < 0) {
        snprintf(remark, size, "no such ring: %s", strerror(-result));
        return false;
    }
    io_uring_register_ring_fd(&loop->ring); /* saves a little; older kernels can't */
    return true;
}

void exchange_raw_uring(const struct exchange *exchange, const struct exchange_impl *impl,
                        struct exchange_result *result)
{
    const int count = 2 * exchange->pairs;
    struct loop loop = {.bytes = exchange->bytes, .eager = impl->eager, .unfinished = count};
    char *others = malloc((size_t)count * exchange->bytes);

    loop.sides = calloc((size_t)count, sizeof(*loop.sides));
    loop.receivers = calloc((size_t)count, sizeof(struct side *));
    if (loop.sides == NULL || loop.receivers == NULL || others == NULL)
        bench_die("out of memory");
    memset(others, 0, (size_t)count * exchange->bytes);
    for (int i = 0; i < count; i++) {
        const struct exchange_side *side = &exchange->sides[i];

        loop.sides[i] = (struct side){side->fd,
                                      side->client,
                                      side->client,
                                      side->buffer,
                                      others + (size_t)i * exchange->bytes,
                                      0,
                                      exchange->trips};
    }
    if (set_up(&loop, impl, result->remark, sizeof(result->remark))) {
        result->ns = bench_now();
        start(&loop);
        run(&loop);
        result->ns = bench_now() - result->ns;
        result->calls = loop.calls;
        io_uring_queue_exit(&loop.ring);
    }
    free(loop.sides);
    free(loop.receivers);
    free(others);
}
