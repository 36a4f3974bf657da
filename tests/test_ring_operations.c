/* Every operation in its raw form, on every set-up; no fibers, no promises. */
#include "io_support.h"
#include "ring_internal.h"

static int raw_result(int submitted, struct kept *kept)
{
    return submitted < 0 ? submitted : result_of(kept);
}

static struct kept raw;

#define COMMA(...)          __VA_OPT__(, ) __VA_ARGS__
#define DO(name, ...)       raw_result(ring_##name(&keep(&raw)->op COMMA(__VA_ARGS__)), &raw)
#define DO_POLL(fd, events) DO(poll, fd, events)
#define DO_CLOSE(fd)        DO(close, fd)
#include "io_suite.h"

Test(ring_operations, each_does_what_it_should)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, run_suite), 0, "%s", setup->name);
    }
}

/* 40 completions into a queue of 8: none is lost, though the queue looks empty after 8 (pitfall 14). */
static void forty_body(void)
{
    struct kept nops[40];

    for (int i = 0; i < 40; i++)
        cr_assert_eq(ring_nop(&keep(&nops[i])->op), 0);
    for (int i = 0; i < 40; i++)
        cr_assert_eq(result_of(&nops[i]), 0);
    cr_assert_eq(weft__rt->engine->in_flight, 0);
    cr_assert(weft__rt->engine->class->quiet(weft__rt->engine));
}

Test(ring_operations, a_small_completion_queue_loses_nothing)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, forty_body), 0, "%s", setup->name);
    }
}

/* What doesn't fit the submission queue goes in its order, and fails nowhere (pitfall 8). */
static void order_body(void)
{
    static char bytes[600];
    struct kept writes[600], receive;
    char buf[600];
    int ends[2];

    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    for (int i = 0; i < 600; i++) {
        bytes[i] = (char)(i * 7);
        cr_assert_eq(ring_write(&keep(&writes[i])->op, ends[1], &bytes[i], 1, -1), 0);
    }
    for (int i = 0; i < 600; i++)
        cr_assert_eq(result_of(&writes[i]), 1);
    cr_assert_eq(ring_read(&keep(&receive)->op, ends[0], buf, sizeof buf, -1), 0);
    cr_assert_eq(result_of(&receive), 600);
    cr_assert_arr_eq(buf, bytes, 600);
    close_pair(ends);
}

Test(ring_operations, a_full_submission_queue_keeps_the_order)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, order_body), 0, "%s", setup->name);
    }
}

/* Of what is asked for together, receives go to the kernel last, in their order: they find at once what
 * is sent meanwhile. One that is cancelled before it goes does what it can do at once, too. */
static void receives_body(void)
{
    struct kept send, receives[100];
    char sent[100], got[100];
    int pair[2];

    make_pair(pair);
    for (int i = 0; i < 100; i++) {
        sent[i] = (char)(i * 7);
        cr_assert_eq(ring_recv(&keep(&receives[i])->op, pair[0], &got[i], 1, MSG_DONTWAIT), 0);
        if (i % 3 == 0)
            ring_cancel(&receives[i].op);
    }
    cr_assert_eq(ring_send(&keep(&send)->op, pair[1], sent, sizeof sent, 0), 0);
    for (int i = 0; i < 100; i++)
        cr_assert_eq(result_of(&receives[i]), 1, "receive %d: %d", i, receives[i].res);
    cr_assert_eq(result_of(&send), 100);
    cr_assert_arr_eq(got, sent, 100);
    close_pair(pair);
}

Test(ring_operations, receives_go_last)
{
    EACH_IO_SETUP(setup)
    {
        if (strcmp(setup->engine, "uring") == 0)
            cr_assert_eq(run_by_hand(setup, receives_body), 0, "%s", setup->name);
    }
}

/* The answer to a cancel is not the operation's: that comes by itself, once (pitfall 24). */
static void cancel_body(void)
{
    struct kept ops[50], poll;
    int pair[2];
    char buf[8];

    make_pair(pair);
    for (int i = 0; i < 50; i++)
        cr_assert_eq(ring_recv(&keep(&ops[i])->op, pair[0], buf, sizeof buf, 0), 0);
    cr_assert_eq(ring_poll(&keep(&poll)->op, pair[0], POLLIN), 0);
    for (int i = 0; i < 50; i++) {
        ring_cancel(&ops[i].op);
        ring_cancel(&ops[i].op); /* asking twice is harmless */
    }
    ring_cancel(&poll.op);
    for (int i = 0; i < 50; i++)
        cr_assert_eq(result_of(&ops[i]), -ECANCELED);
    cr_assert_eq(result_of(&poll), -ECANCELED);
    /* what can be done at once is done, cancelled or not */
    cr_assert_eq(write(pair[1], "data", 4), 4);
    cr_assert_eq(ring_recv(&keep(&ops[0])->op, pair[0], buf, sizeof buf, 0), 0);
    ring_cancel(&ops[0].op);
    cr_assert_eq(result_of(&ops[0]), 4);
    /* the op's memory, used again at once, is not hit by what was asked for its last use */
    cr_assert_eq(write(pair[1], "data", 4), 4);
    for (int i = 0; i < 100; i++) {
        cr_assert_eq(ring_recv(&keep(&ops[0])->op, pair[0], buf, sizeof buf, MSG_PEEK), 0);
        ring_cancel(&ops[0].op);
        cr_assert_eq(result_of(&ops[0]), 4);
        cr_assert_eq(ring_poll(&keep(&ops[0])->op, pair[1], POLLIN), 0);
        if (i == 0)
            cr_assert_eq(weft__rt->engine->class->turn(weft__rt->engine, WEFT_NOWAIT), 0);
        cr_assert_eq(ops[0].calls, 0);
        cr_assert_eq(write(pair[0], "", 1), 1);
        cr_assert_eq(result_of(&ops[0]), POLLIN);
        cr_assert_eq(read(pair[1], buf, 1), 1);
    }
    close_pair(pair);
}

Test(ring_operations, a_cancel_is_a_request)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, cancel_body), 0, "%s", setup->name);
    }
}

/* The end of a runtime ends what is in flight; each op is told, none is left (pitfall 30). */
static struct kept left[60];
static int left_pair[2];

static void leave_body(void)
{
    static char buf[8];

    make_pair(left_pair);
    for (int i = 0; i < 60; i++)
        cr_assert_eq(ring_recv(&keep(&left[i])->op, left_pair[0], buf, sizeof buf, 0), 0);
    for (int i = 0; i < 10; i++)
        ring_cancel(&left[i].op); /* some requests are on their way, too */
}

Test(ring_operations, the_end_reaps_everything)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, leave_body), 0, "%s", setup->name);
        for (int i = 0; i < 60; i++)
            cr_assert(left[i].calls == 1 && left[i].res == -ECANCELED, "%s: op %d: %d calls, %d",
                      setup->name, i, left[i].calls, left[i].res);
        close_pair(left_pair);
    }
}

/* Repeating itself for ever must not keep the runtime from ending. */
static struct kept forever;

static void again(struct ring_op *op, int res, unsigned flags)
{
    (void)flags;
    forever.res = res;
    if (ring_nop(op) == 0)
        return;
    forever.calls++;
}

static void forever_body(void)
{
    keep(&forever)->op.done = again;
    cr_assert_eq(ring_nop(&forever.op), 0);
}

Test(ring_operations, the_end_takes_no_new_operation)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, forever_body), 0, "%s", setup->name);
        cr_assert_eq(forever.calls, 1);
    }
}

/* While a descriptor is being closed, operations on it are refused; its number may be another file's
 * soon. */
struct closing_test {
    struct ring__closing closing;
    int cleared;
};

static void note_clear(struct ring__closing *closing)
{
    weft__container(closing, struct closing_test, closing)->cleared++;
}

static void closing_body(void)
{
    struct closing_test c = {.closing = {.clear = note_clear}}, d = c;
    struct kept receive, poll, other;
    int pair[2];
    char buf[1];

    make_pair(pair);
    c.closing.fd = d.closing.fd = pair[0];
    cr_assert_eq(ring__close_begin(weft__rt, &c.closing), 0, "nothing in flight");
    ring__close_finish(weft__rt, &c.closing);

    cr_assert_eq(ring_recv(&keep(&receive)->op, pair[0], buf, 1, 0), 0);
    cr_assert_eq(ring_poll(&keep(&poll)->op, pair[0], POLLIN), 0);
    /* same bucket, and another file; not a descriptor at all */
    cr_assert_eq(ring_recv(&keep(&other)->op, pair[1], buf, 1, 0), 0);
    c.closing.fd = pair[0];
    cr_assert_eq(ring__close_begin(weft__rt, &c.closing), 1);
    cr_assert_eq(ring__close_begin(weft__rt, &d.closing), -EBADF, "twice");
    cr_assert_eq(ring_send(&keep(&raw)->op, pair[0], "", 1, 0), -EBADF);
    while (c.cleared == 0)
        turn();
    cr_assert(receive.calls == 1 && poll.calls == 1 && other.calls == 0);
    cr_assert_eq(receive.res, -ECANCELED);
    cr_assert_eq(ring_send(&keep(&raw)->op, pair[0], "", 1, 0), -EBADF);
    ring__close_finish(weft__rt, &c.closing);
    cr_assert_eq(ring_send(&keep(&raw)->op, pair[0], "x", 1, 0), 0);
    cr_assert_eq(result_of(&other), 1);
    cr_assert_eq(c.cleared, 1);
    cr_assert_eq(result_of(&raw), 1);
    close_pair(pair);
}

Test(ring_operations, closing_waits_for_what_is_in_flight)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, closing_body), 0, "%s", setup->name);
    }
}

/* Where there is no engine, or one without I/O. */
static void no_io_body(void)
{
    cr_assert_eq(ring_nop(&keep(&raw)->op), -ENOSYS);
    cr_assert_eq(ring_recv(&keep(&raw)->op, 0, NULL, 1, 0), -EFAULT);
    cr_assert_eq(raw.calls, 0);
}

Test(ring_operations, an_engine_without_io_says_so)
{
    cr_assert_eq(ring_nop(&keep(&raw)->op), -EINVAL);
    cr_assert_eq(run_by_hand(&setups[0], no_io_body), 0);
}

/* ---- sockets to listen on ---- */

Test(ring_listen, takes_numbers_only_and_never_waits)
{
    int fd;

    cr_assert_eq(ring_listen("localhost", "0", 0), -EINVAL);
    cr_assert_eq(ring_listen("127.0.0.1", "no such service", 0), -EINVAL);
    cr_assert_eq(ring_listen("127.0.0.1", "65536", 0), -EINVAL);
    cr_assert_eq(ring_listen("127.0.0.1", "", 0), -EINVAL);
    cr_assert_eq(ring_listen("192.0.2.1", "0", 0), -EADDRNOTAVAIL);
    fd = ring_listen(NULL, NULL, 0);
    cr_assert(fd >= 0);
    cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    cr_assert(ring_local_port(fd) > 0);
    close(fd);
    cr_assert_eq(ring_local_port(fd), -EBADF);
}

Test(ring_listen, local_sockets)
{
    char name[64], long_name[200];
    struct sockaddr_un address;
    int fd, other;

    snprintf(name, sizeof name, "@weft-test-%d", (int)getpid());
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    cr_assert_eq(ring_listen_unix(NULL, 0), -EINVAL);
    cr_assert_eq(ring_listen_unix("", 0), -EINVAL);
    cr_assert_eq(ring_listen_unix(long_name, 0), -ENAMETOOLONG);
    fd = ring_listen_unix(name, 0);
    cr_assert(fd >= 0);
    other = ring_listen_unix(name, 0);
    cr_assert_eq(other, -EADDRINUSE);
    cr_assert_eq(ring_local_port(fd), -EAFNOSUPPORT);
    close(fd);
    snprintf(name, sizeof name, "/tmp/weft-test-%d.sock", (int)getpid());
    fd = ring_listen_unix(name, 0);
    cr_assert(fd >= 0);
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, name);
    other = socket(AF_UNIX, SOCK_STREAM, 0);
    cr_assert_eq(connect(other, (struct sockaddr *)&address, sizeof address), 0);
    close(other);
    close(fd);
    unlink(name);
}
