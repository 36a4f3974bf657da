/* A thread of the kernel that splices from a socket into a pipe, and waits for the socket, holds the pipe
 * locked: whoever writes to the pipe meanwhile, or reads what is in it, stops in the system call; in the
 * thread of a runtime, that is everybody. So no splice may wait in the kernel.
 */
#include "io_support.h"
#include "ring_internal.h"

#include <criterion/criterion.h>

static void exchange(const int ends[2])
{
    struct kept op;
    char byte;

    cr_assert_eq(ring_write(&keep(&op)->op, ends[1], "x", 1, -1), 0);
    cr_assert_eq(result_of(&op), 1);
    cr_assert_eq(ring_read(&keep(&op)->op, ends[0], &byte, 1, -1), 0);
    cr_assert_eq(result_of(&op), 1);
    cr_assert_eq(byte, 'x');
}

static void splice_body(void)
{
    struct kept splice;
    int tcp[2], pair[2], ends[2];
    char buf[8] = {0};

    make_tcp(tcp);
    make_pair(pair);
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    for (int i = 0; i < 4; i++) {
        const int *from = i % 2 ? tcp : pair;

        cr_assert_eq(ring_splice(&keep(&splice)->op, from[0], -1, ends[1], -1, 8, 0), 0);
        for (int n = 0; n < 100; n++) {
            exchange(ends); /* while the splice waits; if it is a thread's, sooner or later */
            sched_yield();
        }
        cr_assert_eq(splice.calls, 0);
        if (i < 2) {
            cr_assert_eq(write(from[1], "now", 3), 3);
            cr_assert_eq(result_of(&splice), 3);
            cr_assert_eq(read(ends[0], buf, sizeof buf), 3);
        } else {
            ring_cancel(&splice.op);
            cr_assert_eq(result_of(&splice), -ECANCELED);
        }
    }
    /* the other way, into a socket that takes no more */
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    while (write(pair[0], buf, sizeof buf) > 0)
        ;
    fcntl(pair[0], F_SETFL, 0);
    cr_assert_eq(write(ends[1], "y", 1), 1);
    cr_assert_eq(ring_splice(&keep(&splice)->op, ends[0], -1, pair[0], -1, 1, 0), 0);
    for (int n = 0; n < 100; n++) {
        struct kept op;

        cr_assert_eq(ring_write(&keep(&op)->op, ends[1], "z", 1, -1), 0);
        cr_assert_eq(result_of(&op), 1);
    }
    cr_assert_eq(splice.calls, 0);
    ring_cancel(&splice.op);
    cr_assert_eq(result_of(&splice), -ECANCELED);
    cr_assert_eq(read(ends[0], buf, 2), 2);
    cr_assert(buf[0] == 'y' && buf[1] == 'z', "what was not sent has not left the pipe");
    close_pair(tcp);
    close_pair(pair);
    close_pair(ends);
}

Test(splice_locks_pipe, who_uses_the_pipe_is_not_stopped)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, splice_body), 0, "%s", setup->name);
    }
}
