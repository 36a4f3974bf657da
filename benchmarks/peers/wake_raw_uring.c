/* wake_raw_uring.c: see wake_raw_uring.h. */
#include "wake_raw_uring.h"

#include "../harness.h"

#include <liburing.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { WOKEN = 1, TOLD = 2 }; /* user_data */

struct side {
    struct side *other;
    long trips;
    bool by_message, begins;
    struct io_uring ring;
    int event;
    uint64_t value;
};

static pthread_barrier_t both_ready;

static struct io_uring_sqe *next_sqe(struct side *side)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&side->ring);

    if (sqe == NULL)
        bench_die("no submission entry is free");
    return sqe;
}

static void read_event(struct side *side)
{
    struct io_uring_sqe *sqe = next_sqe(side);

    io_uring_prep_read(sqe, side->event, &side->value, sizeof side->value, 0);
    sqe->user_data = WOKEN;
}

static void tell(struct side *side)
{
    const uint64_t one = 1;

    if (side->by_message) {
        struct io_uring_sqe *sqe = next_sqe(side);

        io_uring_prep_msg_ring(sqe, side->other->ring.ring_fd, 0, WOKEN, 0);
        sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
        sqe->user_data = TOLD;
    } else if (write(side->other->event, &one, sizeof one) != sizeof one) {
        bench_die("eventfd: write");
    }
}

static void wait_to_be_told(struct side *side)
{
    for (bool told = false; !told;) {
        struct io_uring_cqe *cqe;
        unsigned head, seen = 0;

        if (io_uring_submit_and_wait(&side->ring, 1) < 0)
            bench_die("io_uring_enter");
        io_uring_for_each_cqe(&side->ring, head, cqe)
        {
            if (cqe->user_data == TOLD || cqe->res < 0)
                bench_die("a message was not delivered: %s", strerror(-cqe->res));
            told = true;
            seen++;
        }
        io_uring_cq_advance(&side->ring, seen);
    }
    if (!side->by_message)
        read_event(side);
}

static void *run(void *arg)
{
    struct side *side = arg;
    int64_t began;

    /* on the thread that uses it, as a ring for one thread must be */
    if (io_uring_queue_init(64, &side->ring,
                            IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN) < 0)
        bench_die("no ring");
    io_uring_register_ring_fd(&side->ring);
    if (!side->by_message)
        read_event(side);
    pthread_barrier_wait(&both_ready);
    began = bench_now();
    for (long i = 0; i < side->trips; i++) {
        if (side->begins)
            tell(side);
        wait_to_be_told(side);
        if (!side->begins)
            tell(side);
    }
    io_uring_submit(&side->ring);
    side->value = (uint64_t)(bench_now() - began);
    pthread_barrier_wait(&both_ready);
    io_uring_queue_exit(&side->ring);
    return NULL;
}

int64_t wake_raw_uring(long trips, bool by_message)
{
    struct io_uring_probe *probe = io_uring_get_probe();
    bool known = probe != NULL && io_uring_opcode_supported(probe, IORING_OP_MSG_RING);
    struct side sides[2] = {{.other = &sides[1], .begins = true}, {.other = &sides[0]}};
    pthread_t threads[2];

    io_uring_free_probe(probe);
    if (by_message && !known)
        return -1;
    pthread_barrier_init(&both_ready, NULL, 2);
    for (int i = 0; i < 2; i++) {
        sides[i].trips = trips;
        sides[i].by_message = by_message;
        sides[i].event = eventfd(0, EFD_CLOEXEC);
        if (sides[i].event < 0 || pthread_create(&threads[i], NULL, run, &sides[i]) != 0)
            bench_die("no eventfd, or no thread");
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        close(sides[i].event);
    }
    pthread_barrier_destroy(&both_ready);
    return (int64_t)sides[0].value;
}
