/* Files and buffers that the ring knows beforehand: the same results, and no file that outlives its
 * descriptor. */
#include "io_support.h"
#include "ring_internal.h"

#include <weft/io.h>
#include <weft/promise.h>

#include <criterion/criterion.h>

static const struct setup *current;

#define ON_EACH_SETUP(body, files)                                            \
    EACH_IO_SETUP(setup)                                                      \
    {                                                                         \
        struct weft_options options = setup_options(setup);                   \
                                                                              \
        current = setup;                                                      \
        options.registered_files = files;                                     \
        cr_assert_eq(run_by_hand_with(&options, body), 0, "%s", setup->name); \
    }

#define DO(name, ...) outcome_of(promise_##name(__VA_ARGS__, WEFT_FOREVER))

/* ---- files ---- */

static void use(int pair[2])
{
    const struct iovec out[] = {{"a", 1}, {"bcd", 3}};
    char buf[8], other[8];
    const struct iovec in[] = {{buf, 2}, {other, 2}};

    cr_assert_eq(DO(send, pair[0], "hello", 5, 0), 5);
    cr_assert_eq(DO(poll_fd, pair[1], POLLIN), POLLIN);
    cr_assert_eq(DO(recv, pair[1], buf, 8, 0), 5);
    cr_assert_arr_eq(buf, "hello", 5);
    cr_assert_eq(DO(write, pair[1], "x", 1, -1), 1);
    cr_assert_eq(DO(read, pair[0], buf, 8, -1), 1);
    cr_assert_eq(DO(writev, pair[0], out, 2, -1), 4);
    cr_assert_eq(DO(readv, pair[1], in, 2, -1), 4);
    cr_assert(memcmp(buf, "ab", 2) == 0 && memcmp(other, "cd", 2) == 0);
}

static void files_body(void)
{
    int pair[2], again[2], before = open_descriptors();
    char buf[8];

    make_pair(pair);
    cr_assert_eq(ring_register_fd(pair[0]), 0);
    cr_assert_eq(ring_register_fd(pair[1]), 0);
    cr_assert_eq(ring_register_fd(pair[1]), 0, "it is already");
    use(pair);
    /* in non-blocking mode, through a poll */
    fcntl(pair[1], F_SETFL, O_NONBLOCK);
    send_soon(pair[0], "late");
    cr_assert_eq(DO(recv, pair[1], buf, 8, 0), 4);
    join_sender();
    cr_assert_eq(ring_unregister_fd(pair[1]), 0);
    cr_assert_eq(ring_unregister_fd(pair[1]), 0, "it is not any more");
    use(pair);
    cr_assert_eq(ring_register_fd(pair[1]), 0);
    use(pair);
    /* closed, the file is gone: the peer sees that, and the number is another file's */
    cr_assert_eq(outcome_of(promise_close(pair[0])), 0);
    cr_assert_eq(DO(recv, pair[1], buf, 8, 0), 0);
    make_pair(again);
    cr_assert(again[0] == pair[0] || again[1] == pair[0]);
    use(again);
    cr_assert_eq(outcome_of(promise_close(pair[1])), 0);
    close_pair(again);
    cr_assert_eq(open_descriptors(), before);
}

Test(ring_registered, files)
{
    ON_EACH_SETUP(files_body, 16);
    ON_EACH_SETUP(files_body, 2);
    ON_EACH_SETUP(files_body, 0);
    /* more than the kernel gives: things go as without */
    ON_EACH_SETUP(files_body, 65535);
    ON_EACH_SETUP(files_body, UINT_MAX);
}

/* The table is in use indeed: a close behind the runtime's back is not noticed. */
static void behind_body(void)
{
    struct kept send;
    char buf[8];
    int pair[2];

    make_pair(pair);
    cr_assert_eq(ring_register_fd(pair[0]), 0);
    close(pair[0]);
    cr_assert_eq(ring_send(&keep(&send)->op, pair[0], "still", 5, 0), 0);
    if (is_plain(current)) {
        cr_assert_eq(result_of(&send), -EBADF);
    } else {
        cr_assert_eq(result_of(&send), 5);
        cr_assert_eq(recv(pair[1], buf, 8, 0), 5);
    }
    cr_assert_eq(ring_unregister_fd(pair[0]), 0);
    cr_assert_eq(recv(pair[1], buf, 8, 0), 0);
    close(pair[1]);
}

Test(ring_registered, a_table_is_used)
{
    ON_EACH_SETUP(behind_body, 4);
}

/* What is asked for before its descriptor is closed reaches the file; so with ring_close, in one turn. */
static void close_body(void)
{
    struct kept sends[20], close_it;
    int pair[2];
    char buf[32];

    for (int i = 0; i < 10; i++) {
        make_pair(pair);
        cr_assert_eq(ring_register_fd(pair[0]), 0);
        for (int j = 0; j < 20; j++)
            cr_assert_eq(ring_send(&keep(&sends[j])->op, pair[0], "x", 1, 0), 0);
        cr_assert_eq(ring_close(&keep(&close_it)->op, pair[0]), 0);
        for (int j = 0; j < 20; j++)
            cr_assert_eq(result_of(&sends[j]), 1, "%d", j);
        cr_assert_eq(result_of(&close_it), 0);
        cr_assert_eq(recv(pair[1], buf, sizeof buf, MSG_DONTWAIT), 20);
        cr_assert_eq(recv(pair[1], buf, sizeof buf, MSG_DONTWAIT), 0, "and then it is closed");
        close(pair[1]);
    }
}

Test(ring_registered, what_was_asked_for_before_a_close)
{
    ON_EACH_SETUP(close_body, 4);
}

static void limits_body(void)
{
    bool has_table = !is_plain(current) || current->flags & SETUP_PLAIN;
    struct kept receive;
    int pair[2], other[2];
    char buf[1];

    make_pair(pair);
    make_pair(other);
    cr_assert_eq(ring_register_fd(pair[0]), 0);
    cr_assert_eq(ring_register_fd(pair[1]), 0);
    cr_assert_eq(ring_register_fd(other[0]), has_table ? -ENFILE : 0);
    use(other);
    /* not while something is in flight */
    cr_assert_eq(ring_recv(&keep(&receive)->op, pair[0], buf, 1, 0), 0);
    cr_assert_eq(ring_unregister_fd(pair[0]), -EBUSY);
    cr_assert_eq(ring_cancel_fd(pair[0]), 1);
    cr_assert_eq(result_of(&receive), -ECANCELED);
    cr_assert_eq(ring_unregister_fd(pair[0]), 0);
    cr_assert_eq(ring_register_fd(other[0]), 0, "a place is free again");
    use(other);
    use(pair);
    cr_assert_eq(ring_register_fd(-1), -EBADF);
    cr_assert_eq(ring_register_fd(1 << 20), -EBADF);
    cr_assert_eq(ring_unregister_fd(-1), -EBADF);
    cr_assert_eq(ring_unregister_fd(1 << 20), 0);
    close_pair(pair); /* at the end nothing keeps them open */
    cr_assert_eq(outcome_of(promise_close(other[0])), 0);
    close(other[1]);
}

static void no_io_body(void)
{
    cr_assert_eq(ring_register_fd(0), -ENOSYS);
    cr_assert_eq(ring_unregister_fd(0), -ENOSYS);
    cr_assert_eq(ring_register_buffers(NULL, 1), -ENOSYS);
    cr_assert_eq(ring_unregister_buffers(), -ENOSYS);
}

Test(ring_registered, limits)
{
    int before = open_descriptors();

    ON_EACH_SETUP(limits_body, 2);
    cr_assert_eq(open_descriptors(), before);
    cr_assert_eq(ring_register_fd(0), -EINVAL);
    cr_assert_eq(ring_unregister_fd(0), -EINVAL);
    cr_assert_eq(ring_register_buffers(NULL, 1), -EINVAL);
    cr_assert_eq(ring_unregister_buffers(), -EINVAL);
    cr_assert_eq(run_by_hand(&setups[0], no_io_body), 0);
}

/* ---- buffers ---- */

enum { SIZE = 1 << 18 };

static _Alignas(4096) char first[SIZE], second[SIZE], outside[SIZE];

static void buffers_body(void)
{
    const struct iovec both[] = {{first, SIZE}, {second, SIZE / 2}};
    struct kept within, beyond;
    int file = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), tcp[2], ends[2];
    struct promise *send;

    for (size_t i = 0; i < SIZE; i++)
        first[i] = (char)(i * 31 >> 3);
    memset(second, 0, SIZE);
    cr_assert_eq(ring_register_buffers(both, 2), 0);
    cr_assert_eq(DO(write, file, first, SIZE, 0), SIZE);
    cr_assert_eq(DO(read, file, second, SIZE / 2, SIZE / 2), SIZE / 2);
    cr_assert_eq(memcmp(second, first + SIZE / 2, SIZE / 2), 0);
    /* part of it beyond the buffer's end; one byte; none */
    cr_assert_eq(DO(read, file, second + 100, SIZE - 100, 100), SIZE - 100);
    cr_assert_eq(memcmp(second + 100, first + 100, SIZE - 100), 0);
    cr_assert_eq(DO(read, file, second + SIZE / 2 - 1, 1, 7), 1);
    cr_assert_eq(second[SIZE / 2 - 1], first[7]);
    cr_assert_eq(DO(read, file, second + SIZE / 2, 0, 7), 0);
    cr_assert_eq(DO(read, file, outside, SIZE, 0), SIZE);
    cr_assert_eq(memcmp(outside, first, SIZE), 0);
    cr_assert_eq(DO(read, -1, second, 10, 0), -EBADF);
    /* zero copy */
    make_tcp(tcp);
    send = promise_send_zc(tcp[0], first, 10000, 0, WEFT_FOREVER);
    memset(outside, 0, SIZE);
    cr_assert_eq(DO(recv, tcp[1], outside, 10000, MSG_WAITALL), 10000);
    cr_assert_eq(outcome_of(send), 10000);
    cr_assert_eq(memcmp(outside, first, 10000), 0);
    /* where zero copy cannot be had */
    make_pipe(ends);
    cr_assert_eq(DO(send_zc, ends[1], first, 10, 0), -ENOTSOCK);
    /* not while one is in use */
    cr_assert_eq(ring_read(&keep(&within)->op, ends[0], first + 5, 5, -1), 0);
    cr_assert_eq(ring_read(&keep(&beyond)->op, ends[0], outside, 5, -1), 0);
    cr_assert_eq(weft__rt->engine->class->turn(weft__rt->engine, WEFT_NOWAIT), 0);
    cr_assert_eq(ring_unregister_buffers(), is_plain(current) ? 0 : -EBUSY);
    ring_cancel(&within.op);
    cr_assert_eq(result_of(&within), -ECANCELED);
    cr_assert_eq(ring_unregister_buffers(), 0);
    cr_assert_eq(ring_unregister_buffers(), 0);
    ring_cancel(&beyond.op);
    cr_assert_eq(result_of(&beyond), -ECANCELED);
    cr_assert_eq(DO(read, file, second, SIZE, 0), SIZE);
    cr_assert_eq(memcmp(second, first, SIZE), 0);
    cr_assert_eq(ring_register_buffers(both, 1), 0, "once more");
    cr_assert_eq(DO(read, file, first, SIZE, 0), SIZE);
    cr_assert_eq(ring_register_buffers(both, 1),
                 is_plain(current) && !(current->flags & SETUP_PLAIN) ? 0 : -EBUSY);
    cr_assert_eq(ring_register_buffers(NULL, 1), -EFAULT);
    cr_assert_eq(ring_register_buffers(both, 0), -EINVAL);
    cr_assert_eq(ring_register_buffers(both, 65), -EINVAL);
    close(file);
    close_pair(ends);
    close_pair(tcp);
}

Test(ring_registered, buffers)
{
    ON_EACH_SETUP(buffers_body, 0);
    ON_EACH_SETUP(buffers_body, 4);
}
