/* Operations by plain system calls: each one, waiting and not; and what goes to the pool because it may
 * have to wait for a disk. */
#include "attempt.h"
#include "denied.h"
#include "io_support.h"
#include "offload.h"
#include "ring_internal.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

/* An attempt at a prepared operation. */
#define ATTEMPT(name, wait, ...)                                                     \
    (ring__prepare_##name(memset(&op, 0, sizeof op) __VA_OPT__(, ) __VA_ARGS__) == 0 \
         ? ring__attempt(&op, wait)                                                  \
         : -EFAULT)

static struct ring_op op;
static char block[1 << 17];

Test(attempt, never_waits_for_a_socket)
{
    char buf[8];
    int tcp[2], n;

    make_tcp(tcp);
    cr_assert_eq(ATTEMPT(nop, false), 0);
    cr_assert_eq(ATTEMPT(recv, false, tcp[0], buf, 8, 0), -EAGAIN);
    cr_assert_eq(ATTEMPT(read, false, tcp[0], buf, 8, -1), -EAGAIN);
    cr_assert_eq(ATTEMPT(poll, false, tcp[0], POLLIN), -EAGAIN);
    cr_assert_eq(ATTEMPT(poll, false, tcp[0], POLLOUT), POLLOUT);
    while ((n = ATTEMPT(send, false, tcp[0], block, sizeof block, 0)) > 0)
        ;
    cr_assert_eq(n, -EAGAIN);
    cr_assert_eq(ATTEMPT(write, false, tcp[0], block, sizeof block, -1), -EAGAIN);
    cr_assert_eq(ATTEMPT(poll, false, tcp[0], POLLOUT), -EAGAIN);
    cr_assert_eq(ATTEMPT(poll, false, 1 << 20, POLLOUT), -EBADF);
    cr_assert_eq(fcntl(tcp[0], F_GETFL) & O_NONBLOCK, 0, "and that without a flag of the file's");
    close_pair(tcp);
}

Test(attempt, waits_if_it_may)
{
    char buf[8];
    int pair[2];

    make_pair(pair);
    for (int nonblocking = 0; nonblocking < 2; nonblocking++) {
        fcntl(pair[0], F_SETFL, nonblocking ? O_NONBLOCK : 0);
        send_soon(pair[1], "late");
        cr_assert_eq(ATTEMPT(recv, true, pair[0], buf, 8, 0), 4);
        send_soon(pair[1], "late");
        cr_assert_eq(ATTEMPT(read, true, pair[0], buf, 8, -1), 4);
        send_soon(pair[1], "late");
        cr_assert_eq(ATTEMPT(poll, true, pair[0], POLLIN), POLLIN);
        cr_assert_eq(ATTEMPT(recv, true, pair[0], buf, 8, MSG_DONTWAIT), 4);
        cr_assert_eq(ATTEMPT(recv, true, pair[0], buf, 8, MSG_DONTWAIT), -EAGAIN);
    }
    join_sender();
    close_pair(pair);
}

Test(attempt, connects_in_two_steps)
{
    struct sockaddr_storage address;
    int listener = ring_listen("127.0.0.1", "0", 1), fd, rc, refused;
    socklen_t len = loopback(&address, false, ring_local_port(listener));

    cr_assert_eq(ATTEMPT(accept, false, listener, NULL, NULL, 0), -EAGAIN);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(ATTEMPT(connect, false, fd, (struct sockaddr *)&address, len), -EINPROGRESS);
    op.state |= RING__CONNECTING;
    while ((rc = ring__attempt(&op, false)) == -EINPROGRESS)
        sched_yield();
    cr_assert_eq(rc, 0);
    rc = ATTEMPT(accept, false, listener, NULL, NULL, 0);
    cr_assert(rc >= 0);
    close(rc);
    close(fd);

    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(ATTEMPT(connect, true, fd, (struct sockaddr *)&address, len), 0, "in one");
    close(fd);
    close(listener);

    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    refused = ATTEMPT(connect, false, fd, (struct sockaddr *)&address, len);
    op.state |= RING__CONNECTING;
    while (refused == -EINPROGRESS)
        refused = ring__attempt(&op, false);
    cr_assert_eq(refused, -ECONNREFUSED);
    close(fd);
}

/* What has a kernel without RWF_NOWAIT, and what no kernel has it for. */
static void read_and_write(int in, int out, bool is_bounded)
{
    const struct iovec pieces[] = {{NULL, 0}, {block, sizeof block}};
    char buf[8];
    int n, all = 0;

    cr_assert_eq(ATTEMPT(read, false, in, buf, 8, -1), -EAGAIN);
    cr_assert_eq(ATTEMPT(write, false, out, "hello", 5, -1), 5);
    cr_assert_eq(ATTEMPT(read, false, in, buf, 8, -1), 5);
    cr_assert_arr_eq(buf, "hello", 5);
    cr_assert_eq(ATTEMPT(write, false, out, "hello", 5, 12345), 5, "no position: no offset");
    cr_assert_eq(ATTEMPT(read, false, in, buf, 8, 0), 5);
    /* far more than there is room for: in pieces, and never waiting */
    while ((n = ATTEMPT(writev, false, out, pieces, 2, -1)) > 0) {
        cr_assert(!is_bounded || n <= PIPE_BUF);
        all += n;
    }
    cr_assert_eq(n, -EAGAIN);
    cr_assert_gt(all, 0);
    while (all > 0) {
        n = ATTEMPT(read, false, in, block, sizeof block, -1);
        cr_assert(n > 0, "%d", n);
        all -= n;
    }
    cr_assert_eq(ATTEMPT(read, false, in, buf, 8, -1), -EAGAIN);
}

Test(attempt, pipes_and_sockets_without_rwf_nowait)
{
    int ends[2], pair[2];

    for (int refused = 0; refused < 2; refused++) {
        ring__refused_nowait = refused;
        for (int nonblocking = 0; nonblocking < 2; nonblocking++) {
            cr_assert_eq(pipe2(ends, O_CLOEXEC | (nonblocking ? O_NONBLOCK : 0)), 0);
            read_and_write(ends[0], ends[1], refused && !nonblocking);
            close(ends[1]);
            cr_assert_eq(ATTEMPT(read, false, ends[0], block, 8, -1), 0);
            close(ends[0]);
        }
        make_pair(pair);
        read_and_write(pair[0], pair[1], false);
        cr_assert_eq(fcntl(pair[0], F_GETFL) & O_NONBLOCK, 0);
        close_pair(pair);
    }
    cr_assert_eq(ATTEMPT(read, false, -1, block, 8, -1), -EBADF);
}

/* A disk may be in the way, so a thread must do it. */
Test(attempt, files_are_for_threads)
{
    char path[] = "/tmp/weft-test-XXXXXX";
    int fd = mkstemp(path), rc;
    struct statx about;

    cr_assert_eq(ATTEMPT(fsync, false, fd, false), RING__WOULD_BLOCK);
    cr_assert_eq(ATTEMPT(fsync, true, fd, false), 0);
    cr_assert_eq(ATTEMPT(statx, false, AT_FDCWD, path, 0, STATX_SIZE, &about), RING__WOULD_BLOCK);
    cr_assert_eq(ATTEMPT(statx, true, AT_FDCWD, path, 0, STATX_SIZE, &about), 0);
    ring__refused_nowait = true;
    cr_assert_eq(ATTEMPT(write, false, fd, "hello", 5, -1), RING__WOULD_BLOCK);
    cr_assert_eq(ATTEMPT(write, true, fd, "hello", 5, -1), 5);
    cr_assert_eq(ATTEMPT(read, false, fd, block, 5, 0), RING__WOULD_BLOCK);
    cr_assert_eq(ATTEMPT(read, true, fd, block, 5, 0), 5);
    cr_assert_eq(ATTEMPT(close, false, fd), RING__WOULD_BLOCK);
    cr_assert_eq(ATTEMPT(close, true, fd), 0);
    cr_assert_eq(ATTEMPT(openat, false, AT_FDCWD, path, O_RDWR | O_CREAT, 0), RING__WOULD_BLOCK);
    fd = ATTEMPT(openat, true, AT_FDCWD, path, O_RDWR | O_APPEND, 0);
    cr_assert(fd >= 0);
    cr_assert_eq(fcntl(fd, F_GETFL) & (O_NONBLOCK | O_APPEND), O_APPEND, "just as asked for");
    close(fd);
    fd = ATTEMPT(openat, true, AT_FDCWD, path, O_RDWR | O_NONBLOCK, 0);
    cr_assert_eq(fcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    close(fd);
    unlink(path);
    cr_assert_eq(ATTEMPT(openat, true, AT_FDCWD, path, O_RDWR, 0), -ENOENT);
    rc = ATTEMPT(openat, false, AT_FDCWD, "/", O_RDONLY | O_DIRECTORY, 0);
    cr_assert(rc >= 0 || rc == RING__WOULD_BLOCK, "%d", rc); /* as the kernel's caches have it */
    if (rc >= 0)
        close(rc);
}

/* A FIFO is opened without its other end, even by a thread, which could not be called back. */
Test(attempt, a_fifo_without_another_end)
{
    char path[] = "/tmp/weft-test-XXXXXX";
    int fd = mkstemp(path);

    close(fd);
    unlink(path);
    cr_assert_eq(mkfifo(path, 0600), 0);
    for (int wait = 0; wait < 2; wait++) {
        fd = ATTEMPT(openat, wait, AT_FDCWD, path, O_RDONLY, 0);
        cr_assert(fd >= 0 || fd == RING__WOULD_BLOCK);
        if (fd >= 0)
            cr_assert_eq(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
        close(fd);
    }
    cr_assert_eq(ATTEMPT(openat, true, AT_FDCWD, path, O_WRONLY, 0), -ENXIO);
    unlink(path);
}

/* ---- on the pool, for every engine ---- */

static struct ring__engine *engine_of_this(void)
{
    return (struct ring__engine *)(void *)weft__rt->engine;
}

static void offload(struct kept *kept)
{
    kept->op.own.moved = 0;
    ring__begin(engine_of_this(), &kept->op);
    ring__offload(engine_of_this(), &kept->op);
}

/* A file that nobody else may open while it is leased: an open that a thread waits in until the lease
 * is given back. */
static char leased[32];
static int lease;

static void begin_lease(void)
{
    strcpy(leased, "/tmp/weft-test-XXXXXX");
    signal(SIGIO, SIG_IGN);
    close(mkstemp(leased));
    lease = open(leased, O_RDONLY | O_CLOEXEC);
    cr_assert(lease >= 0);
    cr_assert_eq(fcntl(lease, F_SETLEASE, F_RDLCK), 0);
}

static void end_lease(void)
{
    cr_expect_eq(fcntl(lease, F_SETLEASE, F_UNLCK), 0);
    close(lease);
}

/* Only when all opens are over: a thread may have taken one and not begun it yet. */
static void remove_leased(void)
{
    unlink(leased);
}

/* An open of the leased file, under way on a thread. */
static void begin_open(struct kept *kept)
{
    cr_assert_eq(ring__prepare_openat(&keep(kept)->op, AT_FDCWD, leased, O_WRONLY | O_CLOEXEC, 0),
                 0);
    offload(kept);
    while (ring__offload_withdraw(engine_of_this(), &kept->op)) {
        sched_yield();
        ring__offload(engine_of_this(), &kept->op);
    }
}

static void prepare_statx(struct kept *kept)
{
    static struct statx about;

    cr_assert_eq(ring__prepare_statx(&keep(kept)->op, AT_FDCWD, "/", 0, STATX_TYPE, &about), 0);
}

/* More than there are threads: each is done, and told on the base stack. */
static void many_body(void)
{
    static struct kept many[100];

    for (int i = 0; i < 100; i++) {
        prepare_statx(&many[i]);
        offload(&many[i]);
        cr_assert_eq(many[i].calls, 0);
        cr_assert_leq(engine_of_this()->offload.busy, RING__JOBS);
    }
    for (int i = 0; i < 100; i++)
        cr_assert_eq(result_of(&many[i]), 0);
    cr_assert_eq(weft__rt->engine->in_flight, 0);
    cr_assert_eq(engine_of_this()->offload.busy, 0);
}

Test(attempt, many_on_the_pool)
{
    EACH_IO_SETUP(setup)
    cr_assert_eq(run_by_hand(setup, many_body), 0, "%s", setup->name);
}

/* What is under way ends when it ends. What is not can be had back. */
static void withdraw_body(void)
{
    static struct kept stuck[RING__JOBS], waiting[4];

    begin_lease();
    for (int i = 0; i < RING__JOBS; i++)
        begin_open(&stuck[i]);
    for (int i = 0; i < 4; i++) {
        prepare_statx(&waiting[i]);
        offload(&waiting[i]);
    }
    cr_assert(ring__offload_withdraw(engine_of_this(), &waiting[1].op));
    ring__finish(engine_of_this(), &waiting[1].op, -ECANCELED, 0);
    cr_assert(!ring__offload_withdraw(engine_of_this(), &stuck[0].op));
    end_lease();
    for (int i = 0; i < RING__JOBS; i++) {
        cr_assert(result_of(&stuck[i]) >= 0, "%d", stuck[i].res);
        close(stuck[i].res);
    }
    for (int i = 0; i < 4; i++)
        cr_assert_eq(result_of(&waiting[i]), i == 1 ? -ECANCELED : 0);
    remove_leased();
}

Test(attempt, a_job_is_taken_back)
{
    EACH_IO_SETUP(setup)
    cr_assert_eq(run_by_hand(setup, withdraw_body), 0, "%s", setup->name);
}

/* The same by ring_cancel, on the engine that does all its file I/O so. */
static const struct setup epoll = {"epoll", "epoll", 0, 0, 0};

static void cancel_body(void)
{
    static struct kept stuck[RING__JOBS], waiting, again;

    begin_lease();
    for (int i = 0; i < RING__JOBS; i++)
        begin_open(&stuck[i]);
    prepare_statx(&waiting);
    offload(&waiting);
    ring_cancel(&waiting.op);
    ring_cancel(&stuck[0].op);
    cr_assert_eq(result_of(&waiting), -ECANCELED);
    cr_assert_eq(ring_fsync(&keep(&again)->op, lease, false), 0);
    ring_cancel(&again.op);
    cr_assert_eq(result_of(&again), -ECANCELED, "not begun: it would have to wait");
    cr_assert_eq(stuck[0].calls, 0);
    end_lease();
    for (int i = 0; i < RING__JOBS; i++) {
        cr_assert(result_of(&stuck[i]) >= 0, "completion beats cancellation: %d", stuck[i].res);
        close(stuck[i].res);
    }
    remove_leased();
}

Test(attempt, a_job_is_cancelled)
{
    cr_assert_eq(run_by_hand(&epoll, cancel_body), 0, "%s", report_text());
}

/* The end of a runtime waits for what is under way, even if its engine has failed. */
static struct kept last;
static sem_t over;

static void *end_lease_when_over(void *unused)
{
    while (sem_wait(&over) < 0)
        ;
    for (int i = 0; i < 1000; i++)
        sched_yield();
    end_lease();
    return unused;
}

static void end_body(void)
{
    begin_lease();
    begin_open(&last);
    sem_post(&over);
}

static void fail_body(void)
{
    struct ring__faults *faults = ring__faults(weft__rt);

    end_body();
    faults->enter = INT_MAX;
    faults->enter_error = -ENXIO;
}

static int end_with(const struct setup *setup, void (*body)(void))
{
    pthread_t thread;
    int rc;

    sem_init(&over, 0, 0);
    cr_assert_eq(pthread_create(&thread, NULL, end_lease_when_over, NULL), 0);
    rc = run_by_hand(setup, body);
    pthread_join(thread, NULL);
    open_descriptors(); /* waits for the pool */
    remove_leased();
    return rc;
}

Test(attempt, the_end_waits_for_what_is_under_way)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(end_with(setup, end_body), 0, "%s", setup->name);
        cr_assert_eq(last.calls, 1, "%s", setup->name);
        cr_assert(last.res >= 0);
        close(last.res);
    }
}

Test(attempt, the_end_of_a_failed_engine_does_so_too)
{
    EACH_IO_SETUP(setup)
    {
        int before = open_descriptors();

        cr_assert_eq(end_with(setup, fail_body), -ENXIO, "%s", setup->name);
        cr_assert(report_contains("engine failed") || last.calls == 0, "%s", report_text());
        cr_assert_eq(open_descriptors(), before, "%s: nobody has got what was opened", setup->name);
    }
}

/* No thread to be had: late is better than never. */
static void no_thread_body(void)
{
    struct kept kept[3];
    unsigned jobs;

    for (int i = 0; i < 3; i++) {
        prepare_statx(&kept[i]);
        offload(&kept[i]);
        cr_assert_eq(kept[i].calls, 0, "not from within");
    }
    for (int i = 0; i < 3; i++)
        cr_assert_eq(result_of(&kept[i]), 0);
    cr_assert_eq(weft__offload_threads(&jobs), 0);
}

Test(attempt, without_threads)
{
    const struct rlimit none = {0, 0};

    if (slow_tools() || !become_ordinary(4 << 20))
        return; /* the tools want the user they began with */
    cr_assert_eq(setrlimit(RLIMIT_NPROC, &none), 0);
    EACH_IO_SETUP(setup)
    {
        int rc = run_by_hand(setup, no_thread_body);

        cr_assert_eq(rc, 0, "%s: %d %s", setup->name, rc, report_text());
    }
}
