/* needs: fibers */
/* alibaba/PhotonLibOS#1270: an operation on a coroutine's stack was left behind, with its completion
 * still to come, when there was no submission entry for its timer or for its cancel, and on the cancel's
 * own path. The completion was then written into whatever stood in that place of the stack.
 *
 * Here fibers read an empty pipe, on their stacks, and are ended in every way while the submission
 * queue is full: when the call returns its frame is written over, and stays as it is when bytes come.
 */
#include "fiber_internal.h"
#include "io_support.h"
#include "ring_internal.h"

#include <weft/io.h>
#include <weft/promise.h>

#include <criterion/criterion.h>

enum way { AT_ONCE, LATE, CANCELLED, WAYS };

struct victim {
    struct fiber *self;
    int fd, result;
    enum way way;
    bool returned, unchanged;
};

static __attribute__((noinline)) int read_on_stack(const struct victim *v)
{
    char buf[256];
    weft_time deadline = v->way == AT_ONCE ? WEFT_NOWAIT
                         : v->way == LATE  ? weft_after(WEFT_US(50))
                                           : WEFT_FOREVER;

    return fiber_read(v->fd, buf, sizeof buf, -1, deadline);
}

/* Where the frames above were, and waits there: does anything else write to it? */
static __attribute__((noinline)) bool stand_in_its_place(void)
{
    volatile unsigned char here[2048];

    for (size_t i = 0; i < sizeof here; i++)
        here[i] = 0xa7;
    for (int i = 0; i < 6; i++)
        fiber_nop(WEFT_FOREVER);
    for (size_t i = 0; i < sizeof here; i++)
        if (here[i] != 0xa7)
            return false;
    return true;
}

static int64_t victim(void *arg)
{
    struct victim *v = arg;

    v->self = fiber_self();
    v->result = read_on_stack(v);
    v->returned = true;
    v->unchanged = v->way == CANCELLED || stand_in_its_place();
    return 0;
}

static int full_queue_main(void *unused)
{
    struct ring__faults *faults = ring__faults(weft__rt);
    struct weft_stats stats = {.size = sizeof stats};

    (void)unused;
    for (int round = 0; round < 60; round++) {
        struct victim v = {.way = (enum way)(round % WAYS)};
        struct promise *crowd[24], *p;
        int ends[2];
        char buf[8];

        cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
        v.fd = ends[0];
        p = fiber_spawn(victim, &v);
        for (int i = 0; i < 24; i++)
            crowd[i] = promise_nop(WEFT_FOREVER);
        faults->no_room = round / WAYS; /* none for the operation, for its cancel, for both */
        fiber_yield();
        if (v.way == CANCELLED) {
            if (round % 2)
                fiber_nop(WEFT_FOREVER);
            faults->no_room = round / WAYS;
            fiber__cancel(weft__rt, v.self);
        }
        while (!v.returned)
            fiber_yield();
        cr_assert_eq(v.result, v.way == CANCELLED ? -ECANCELED : -ETIMEDOUT, "%d: %d", round,
                     v.result);
        cr_assert_eq(write(ends[1], "for none", 8), 8);
        cr_assert_eq(fiber_await(p, NULL, WEFT_FOREVER), 0);
        cr_assert(v.unchanged, "%d: the kernel wrote into a frame that is gone", round);
        cr_assert_eq(fiber_await(promise_join(crowd, 24), NULL, WEFT_FOREVER), 0);
        cr_assert_eq(read(ends[0], buf, sizeof buf), 8, "a read that had ended took bytes");
        weft_stats(&stats);
        cr_assert_eq(stats.in_flight, 0);
        close(ends[0]);
        close(ends[1]);
    }
    return 0;
}

Test(photon_1270, an_operation_outlives_no_frame)
{
    run_on_each_io_setup(full_queue_main);
}
