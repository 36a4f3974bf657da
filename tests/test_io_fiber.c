/* needs: fibers */
/* Every operation as a fiber calls it: what it does, its deadline, its cancellation. */
#include "fiber_internal.h"
#include "io_support.h"
#include "ring_internal.h"

static weft_time far; /* the suite's deadline */

#define COMMA_BEFORE(...)   __VA_ARGS__ __VA_OPT__(, )
#define DO(name, ...)       fiber_##name(COMMA_BEFORE(__VA_ARGS__) far)
#define DO_POLL(fd, events) DO(poll, fd, events)
#define DO_CLOSE(fd)        fiber_close(fd)
#include "io_suite.h"

#define ON_EACH_SETUP(main)                                                               \
    EACH_IO_SETUP(setup)                                                                  \
    {                                                                                     \
        cr_assert_eq(run_on(setup, main, NULL), 0, "%s: %s", setup->name, report_text()); \
    }

static int suite_main(void *unused)
{
    (void)unused;
    far = WEFT_FOREVER;
    run_suite();
    far = weft_after(WEFT_SEC(1000));
    run_suite();
    cr_assert(weft__rt->timers == NULL, "no deadline is left behind");
    return 0;
}

Test(io_fiber, each_does_what_it_should)
{
    ON_EACH_SETUP(suite_main);
}

/* ---- where a fiber function may not be called ---- */

static struct weft_task callback;
static int called;

static void call_from_base(struct weft_task *task)
{
    char buf[1];

    (void)task;
    cr_assert_eq(fiber_nop(WEFT_FOREVER), -EDEADLK);
    cr_assert_eq(fiber_recv(0, buf, 1, 0, WEFT_NOWAIT), -EDEADLK);
    cr_assert_eq(fiber_recv_all(0, buf, 0, 0, NULL, WEFT_NOWAIT), -EDEADLK);
    cr_assert_eq(fiber_close(0), -EDEADLK);
    cr_assert_eq(fiber_connect_host("127.0.0.1", "1", WEFT_FOREVER), -EDEADLK);
    cr_assert_eq(fiber_connect_unix("@x", WEFT_FOREVER), -EDEADLK);
    called = 1;
}

static int base_main(void *unused)
{
    (void)unused;
    called = 0;
    cr_assert_eq(weft_task_init(&callback, call_from_base), 0);
    weft_task_queue(&callback);
    while (!called)
        fiber_yield();
    weft_task_finish(&callback);
    return 0;
}

static int no_io_main(void *unused)
{
    (void)unused;
    cr_assert_eq(fiber_nop(WEFT_FOREVER), -ENOSYS);
    cr_assert_eq(fiber_nop(weft_after(1)), -ENOSYS);
    cr_assert_eq(fiber_close(-1), -EBADF);
    cr_assert_eq(fiber_close(dup(1)), 0, "closing needs no engine");
    return 0;
}

Test(io_fiber, callers_that_cannot_wait)
{
    cr_assert_eq(fiber_nop(WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_close(1), -EINVAL);
    cr_assert_eq(fiber_connect_host("127.0.0.1", "1", WEFT_FOREVER), -EINVAL);
    cr_assert_eq(run_on(&setups[0], no_io_main, NULL), 0);
    ON_EACH_SETUP(base_main);
}

/* ---- operations that wait: one of each, on something that never happens ---- */

struct never {
    int pair[2], full, listener, connecting[3], empty[2], jammed[2];
    struct sockaddr_storage address;
    socklen_t len;
};

static void never_init(struct never *n)
{
    int pair[2];

    make_pair(n->pair);
    make_pair(pair);
    fill_up(pair[0]);
    make_pipe(n->empty);
    make_pipe(n->jammed);
    fill_up(n->jammed[1]);
    n->full = pair[0];
    n->connecting[2] = pair[1];
    /* a listener whose queue is full lets the next connection wait */
    n->listener = ring_listen("127.0.0.1", "0", 1);
    n->len = loopback(&n->address, false, ring_local_port(n->listener));
    for (int i = 0; i < 2; i++) {
        n->connecting[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        cr_assert_eq(connect(n->connecting[i], (struct sockaddr *)&n->address, n->len), 0);
    }
}

static void never_finish(struct never *n)
{
    close_pair(n->pair);
    close_pair(n->empty);
    close_pair(n->jammed);
    close(n->full);
    close(n->listener);
    for (int i = 0; i < 3; i++)
        close(n->connecting[i]);
}

enum { WAITING = 19 };

static int wait_for_never(struct never *n, int which, weft_time deadline)
{
    static char block[65536];
    struct iovec iov = {block, sizeof block};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    struct sockaddr_storage from;
    socklen_t len = sizeof from;
    int fd, rc;

    switch (which) {
    case 0:
        return fiber_read(n->pair[0], block, 1, -1, deadline);
    case 1:
        return fiber_write(n->full, block, sizeof block, -1, deadline);
    case 2:
        return fiber_readv(n->pair[0], &iov, 1, -1, deadline);
    case 3:
        return fiber_writev(n->full, &iov, 1, -1, deadline);
    case 4:
        return fiber_recv(n->pair[0], block, 1, 0, deadline);
    case 5:
        return fiber_send(n->full, block, sizeof block, 0, deadline);
    case 6:
        return fiber_accept(n->pair[0] >= 0 ? n->connecting[2] : -1, NULL, NULL, 0, deadline);
    case 7:
        return fiber_poll(n->pair[0], POLLIN, deadline);
    case 8:
        return fiber_recvmsg(n->pair[0], &message, 0, deadline);
    case 9:
        return fiber_sendmsg(n->full, &message, 0, deadline);
    case 10:
        return fiber_recvfrom(n->pair[0], block, 1, 0, (struct sockaddr *)&from, &len, deadline);
    case 11:
        return fiber_sendto(n->full, block, sizeof block, 0, NULL, 0, deadline);
    case 12:
        return fiber_send_zc(n->full, block, sizeof block, 0, deadline);
    case 13:
        return fiber_splice(n->empty[0], -1, n->jammed[1], -1, 1, 0, deadline);
    case 14:
        return fiber_splice(n->empty[0], -1, n->pair[0], -1, 1, 0, deadline);
    case 15:
        return fiber_splice(n->jammed[0], -1, n->full, -1, 1, 0, deadline);
    case 16:
        return fiber_splice(n->pair[0], -1, n->empty[1], -1, 1, 0, deadline);
    case 17:
        return fiber_tee(n->empty[0], n->jammed[1], 1, 0, deadline);
    default:
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        rc = fiber_connect(fd, (struct sockaddr *)&n->address, n->len, deadline);
        close(fd);
        return rc;
    }
}

static int accept_never(struct never *n, weft_time deadline)
{
    int listener = ring_listen("127.0.0.1", "0", 1), rc;

    (void)n;
    rc = fiber_accept(listener, NULL, NULL, 0, deadline);
    close(listener);
    return rc;
}

static int wait_once(struct never *n, int which, weft_time deadline)
{
    return which == 6 ? accept_never(n, deadline) : wait_for_never(n, which, deadline);
}

static int deadline_main(void *unused)
{
    struct never n;

    (void)unused;
    never_init(&n);
    for (int i = 0; i < WAITING; i++) {
        cr_assert_eq(wait_once(&n, i, weft_after(WEFT_MS(1))), -ETIMEDOUT, "%d", i);
        cr_assert_eq(wait_once(&n, i, weft_now() - 1), -ETIMEDOUT, "%d", i);
        cr_assert_eq(wait_once(&n, i, 1), -ETIMEDOUT, "%d", i);
        cr_assert_eq(wait_once(&n, i, WEFT_NOWAIT), -ETIMEDOUT, "%d", i);
        cr_assert_eq(wait_once(&n, i, -5), -ETIMEDOUT, "%d", i);
    }
    cr_assert(weft__rt->timers == NULL);
    cr_assert_eq(weft__rt->engine->in_flight, 0);
    never_finish(&n);
    return 0;
}

Test(io_fiber, deadlines)
{
    ON_EACH_SETUP(deadline_main);
}

/* WEFT_NOWAIT does what can be done now: completion beats deadline. */
static int nowait_main(void *unused)
{
    struct sockaddr_storage address;
    int pair[2], listener, fd, peer;
    struct statx about;
    socklen_t len;
    char buf[8];

    (void)unused;
    make_pair(pair);
    cr_assert_eq(fiber_nop(WEFT_NOWAIT), 0);
    cr_assert_eq(fiber_send(pair[1], "now", 3, 0, WEFT_NOWAIT), 3);
    cr_assert_eq(fiber_poll(pair[0], POLLIN, WEFT_NOWAIT), POLLIN);
    cr_assert_eq(fiber_recv(pair[0], buf, sizeof buf, 0, WEFT_NOWAIT), 3);
    cr_assert_eq(fiber_recv(pair[0], buf, sizeof buf, 0, WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert_eq(fiber_write(pair[1], "now", 3, -1, weft_now() - 1), 3, "past is as good");
    cr_assert_eq(fiber_read(pair[0], buf, sizeof buf, -1, weft_now() - 1), 3);
    listener = ring_listen("127.0.0.1", "0", 1);
    len = loopback(&address, false, ring_local_port(listener));
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(fiber_accept(listener, NULL, NULL, 0, WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert_eq(connect(fd, (struct sockaddr *)&address, len), 0);
    peer = fiber_accept(listener, NULL, NULL, 0, WEFT_NOWAIT);
    cr_assert(peer >= 0, "%d", peer);
    close(peer);
    close(fd);
    close(listener);
    /* the disk's answer comes when it comes: these either did it or did nothing */
    fd = fiber_statx(AT_FDCWD, "/", 0, STATX_TYPE, &about, WEFT_NOWAIT);
    cr_assert(fd == 0 || fd == -ETIMEDOUT, "%d", fd);
    fd = fiber_openat(AT_FDCWD, "/dev/null", O_RDONLY, 0, WEFT_NOWAIT);
    cr_assert(fd >= 0 || fd == -ETIMEDOUT, "%d", fd);
    if (fd >= 0)
        cr_assert_eq(fiber_close(fd), 0);
    close_pair(pair);
    return 0;
}

Test(io_fiber, what_can_be_done_now_is_done)
{
    ON_EACH_SETUP(nowait_main);
}

/* ---- cancellation ---- */

struct victim {
    struct fiber *self;
    struct never *never;
    int which, result, again;
    bool ended;
};

static int64_t victim_fiber(void *arg)
{
    struct victim *v = arg;
    struct weft_stats before = {.size = sizeof before}, after = before;
    char buf[1] = {0};

    v->self = fiber_self();
    v->result =
        wait_once(v->never, v->which, v->which % 2 ? WEFT_FOREVER : weft_after(WEFT_SEC(99)));
    /* cancelled already: it starts nothing, be there room for it or not */
    weft_stats(&before);
    v->again = fiber_send(v->never->pair[0], buf, 1, 0, WEFT_FOREVER);
    cr_assert_eq(fiber_recv_all(0, buf, 0, 0, NULL, WEFT_FOREVER), -ECANCELED);
    cr_assert_eq(fiber_connect_host("127.0.0.1", "1", WEFT_FOREVER), -ECANCELED);
    weft_stats(&after);
    cr_assert_eq(before.submitted, after.submitted);
    v->ended = true;
    return 0;
}

static int cancel_main(void *unused)
{
    struct never n;

    (void)unused;
    never_init(&n);
    for (int parked = 0; parked < 2; parked++) {
        for (int i = 0; i < WAITING; i++) {
            struct victim v = {.never = &n, .which = i};

            cr_assert_eq(fiber_detach(victim_fiber, &v), 0);
            fiber_yield(); /* it has started its operation ... */
            if (parked)
                cr_assert_eq(fiber_nop(WEFT_FOREVER), 0); /* ... and the kernel has it */
            fiber__cancel(weft__rt, v.self);
            while (!v.ended)
                fiber_yield();
            cr_assert_eq(v.result, -ECANCELED, "%d", i);
            cr_assert_eq(v.again, -ECANCELED, "%d", i);
        }
    }
    cr_assert(weft__rt->timers == NULL);
    cr_assert_eq(weft__rt->engine->in_flight, 0);
    never_finish(&n);
    return 0;
}

Test(io_fiber, cancellation)
{
    ON_EACH_SETUP(cancel_main);
}

/* Data are either delivered, cancelled or not, or still there: never taken and lost. */
static int64_t receiver_fiber(void *arg)
{
    struct victim *v = arg;
    char buf[8];

    v->self = fiber_self();
    v->result = fiber_recv(v->never->pair[0], buf, sizeof buf, 0, WEFT_FOREVER);
    v->ended = true;
    return 0;
}

static int beats_main(void *unused)
{
    struct never n;
    struct victim v = {.never = &n};

    (void)unused;
    make_pair(n.pair);
    cr_assert_eq(fiber_detach(receiver_fiber, &v), 0);
    fiber_yield();
    cr_assert_eq(fiber_nop(WEFT_FOREVER), 0);
    cr_assert_eq(write(n.pair[1], "data", 4), 4);
    fiber__cancel(weft__rt, v.self);
    while (!v.ended)
        fiber_yield();
    cr_assert(v.result == 4 || (v.result == -ECANCELED && recv(n.pair[0], &v, 8, 0) == 4), "%d",
              v.result);
    close_pair(n.pair);
    return 0;
}

Test(io_fiber, a_cancelled_receive_loses_nothing)
{
    ON_EACH_SETUP(beats_main);
}

/* ---- exactly so many bytes ---- */

#define BULK (1 << 20)

static char bulk_out[BULK], bulk_in[BULK];

static int64_t bulk_writer(void *arg)
{
    int fd = (int)(intptr_t)arg;
    size_t done = 0;

    cr_assert_eq(fiber_send_all(fd, bulk_out, BULK / 2, 0, &done, WEFT_FOREVER), 0);
    cr_assert_eq(done, BULK / 2);
    cr_assert_eq(
        fiber_write_all(fd, bulk_out + BULK / 2, BULK / 2, -1, NULL, weft_after(WEFT_SEC(1000))),
        0);
    return 0;
}

static int bulk_main(void *unused)
{
    char path[] = "/tmp/weft-test-XXXXXX";
    size_t done = 77;
    int pair[2], fd;

    (void)unused;
    make_pair(pair);
    for (int i = 0; i < BULK; i++)
        bulk_out[i] = (char)(i * 31 >> 3);
    memset(bulk_in, 0, BULK);
    ring__faults(weft__rt)->short_io = 20;
    cr_assert_eq(fiber_detach(bulk_writer, (void *)(intptr_t)pair[1]), 0);
    cr_assert_eq(fiber_recv_all(pair[0], bulk_in, BULK / 2, 0, NULL, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_read_all(pair[0], bulk_in + BULK / 2, BULK / 2, -1, &done, WEFT_FOREVER), 0);
    cr_assert_eq(done, BULK / 2);
    cr_assert(memcmp(bulk_in, bulk_out, BULK) == 0);

    /* the deadline, and the end, in the middle: the bytes done are told */
    cr_assert_eq(write(pair[1], "abc", 3), 3);
    cr_assert_eq(fiber_recv_all(pair[0], bulk_in, 5, 0, &done, weft_after(WEFT_MS(1))), -ETIMEDOUT);
    cr_assert_eq(done, 3);
    cr_assert_eq(write(pair[1], "ab", 2), 2);
    close(pair[1]);
    cr_assert_eq(fiber_read_all(pair[0], bulk_in, 5, -1, &done, WEFT_FOREVER), -ENODATA);
    cr_assert_eq(done, 2);
    cr_assert_eq(fiber_send_all(pair[0], bulk_in, 5, 0, &done, WEFT_FOREVER), -EPIPE);
    cr_assert_eq(done, 0);
    cr_assert_eq(fiber_recv_all(pair[0], NULL, 0, 0, &done, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_recv_all(pair[0], NULL, 5, 0, &done, WEFT_FOREVER), -EFAULT);
    close(pair[0]);

    /* at explicit offsets */
    fd = mkstemp(path);
    unlink(path);
    ring__faults(weft__rt)->short_io = 7;
    cr_assert_eq(fiber_write_all(fd, "0123456789", 10, 5, &done, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_read_all(fd, bulk_in, 10, 5, &done, WEFT_FOREVER), 0);
    cr_assert_arr_eq(bulk_in, "0123456789", 10);
    cr_assert_eq(fiber_read_all(fd, bulk_in, 100, 10, &done, WEFT_FOREVER), -ENODATA);
    cr_assert_eq(done, 5);
    close(fd);
    return 0;
}

Test(io_fiber, exactly_so_many_bytes)
{
    ON_EACH_SETUP(bulk_main);
}

/* ---- connecting ---- */

static int connect_main(void *unused)
{
    int before = open_descriptors(), listener, fd, peer;
    char service[16], name[64];

    (void)unused;
    listener = ring_listen("127.0.0.1", "0", 4);
    snprintf(service, sizeof service, "%d", ring_local_port(listener));
    fd = fiber_connect_host("127.0.0.1", service, WEFT_FOREVER);
    cr_assert(fd >= 0, "%d", fd);
    cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    peer = fiber_accept(listener, NULL, NULL, 0, WEFT_FOREVER);
    cr_assert(peer >= 0);
    cr_assert_eq(fiber_close(peer), 0);
    cr_assert_eq(fiber_close(fd), 0);
    /* a name: looked up on another thread; the ipv6 address, if it has one, is refused */
    fd = fiber_connect_host("localhost", service, weft_after(WEFT_SEC(100)));
    cr_assert(fd >= 0, "%d", fd);
    cr_assert_eq(fiber_close(fd), 0);
    cr_assert_eq(fiber_close(listener), 0);
    cr_assert_eq(fiber_connect_host("127.0.0.1", service, WEFT_FOREVER), -ECONNREFUSED);
    cr_assert_eq(fiber_connect_host("localhost", service, WEFT_FOREVER), -ECONNREFUSED);
    cr_assert_eq(fiber_connect_host("localhost", service, WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert_eq(fiber_connect_host(NULL, service, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_connect_host("", service, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_connect_host("127.0.0.1", NULL, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_connect_host("127.0.0.1", "no such service", WEFT_FOREVER), -EINVAL);

    snprintf(name, sizeof name, "@weft-test-%d", (int)getpid());
    cr_assert_eq(fiber_connect_unix(name, WEFT_FOREVER), -ECONNREFUSED);
    cr_assert_eq(fiber_connect_unix("/tmp/weft-test-is-not-here", WEFT_FOREVER), -ENOENT);
    cr_assert_eq(fiber_connect_unix("", WEFT_FOREVER), -EINVAL);
    listener = ring_listen_unix(name, 4);
    fd = fiber_connect_unix(name, WEFT_FOREVER);
    cr_assert(fd >= 0);
    peer = fiber_accept(listener, NULL, NULL, 0, WEFT_FOREVER);
    cr_assert(peer >= 0);
    cr_assert_eq(fiber_send(fd, "x", 1, 0, WEFT_FOREVER), 1);
    cr_assert_eq(fiber_recv(peer, name, 1, 0, WEFT_FOREVER), 1);
    cr_assert_eq(fiber_close(peer), 0);
    cr_assert_eq(fiber_close(fd), 0);
    cr_assert_eq(fiber_close(listener), 0);
    cr_assert_eq(open_descriptors(), before);
    return 0;
}

Test(io_fiber, connecting_by_name)
{
    ON_EACH_SETUP(connect_main);
}

/* ---- the end ---- */

static int64_t wait_for_ever(void *fd)
{
    char byte;

    return fiber_recv(*(int *)fd, &byte, 1, 0, WEFT_FOREVER);
}

/* An engine that fails ends the runtime, whoever waits. */
static int failing_main(void *pair)
{
    struct ring__faults *faults = ring__faults(weft__rt);

    cr_assert_eq(fiber_detach(wait_for_ever, pair), 0);
    cr_assert_eq(fiber_yield(), 0);
    faults->enter = 1;
    faults->enter_error = -ENXIO;
    return fiber_nop(WEFT_FOREVER);
}

Test(io_fiber, an_engine_that_fails_ends_the_runtime)
{
    EACH_IO_SETUP(setup)
    {
        int pair[2];

        if (strcmp(setup->engine, "uring") != 0)
            continue;
        make_pair(pair);
        cr_assert_eq(run_on(setup, failing_main, pair), -ENXIO, "%s", setup->name);
        cr_assert(report_contains("the uring engine failed: "), "%s", report_text());
        close_pair(pair);
    }
}
