/* attempt.c: one function for each row of the table: do_NAME does the operation by plain system calls.
 * A row without one doesn't compile.
 *
 * An attempt that must not wait never blocks, whatever the descriptor's O_NONBLOCK says: sockets are
 * told so for each call (MSG_DONTWAIT), files by RWF_NOWAIT. Where neither is to be had:
 *   - accept sets O_NONBLOCK on the listener, and leaves it set: taking it back would let another
 *     process that shares the listener block in the moment between;
 *   - connect sets it for the call alone;
 *   - a read or write of what knows no RWF_NOWAIT (pipes and sockets before 6.4, terminals) asks
 *     poll(2) first;
 *   - splice sets O_NONBLOCK for the call alone on an end that is no pipe.
 * errno is a scratch register here: the callers of public functions see it unchanged.
 */
#include "attempt.h"
#include "ring_internal.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define RING__P_PIDFD 3

#ifndef RWF_NOWAIT
#define RWF_NOWAIT 0x00000008
#endif

bool ring__refused_nowait;

static inline int result(ssize_t rc)
{
    return rc < 0 ? -errno : (int)rc;
}

static inline void *pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

/* The events of `events` that hold now, or, if `timeout` is -1, as soon as one does. */
static int poll_one(int fd, short events, int timeout)
{
    struct pollfd pollfd = {.fd = fd, .events = events};
    int rc;

    do
        rc = poll(&pollfd, 1, timeout);
    while (rc < 0 && errno == EINTR);
    return rc < 0 ? -errno : pollfd.revents;
}

int ring__poll_now(int fd, short events)
{
    return poll_one(fd, events, 0);
}

/* ---- reading and writing ---- */

typedef ssize_t transfer_fn(int fd, const struct iovec *iov, int count, off_t offset, int flags);

/* Without RWF_NOWAIT. A pipe that polls as writable takes PIPE_BUF bytes at once (pipe(7)); of a
 * terminal that is the best guess. */
static int transfer_when_ready(transfer_fn *go, int fd, const struct iovec *iov, int count,
                               off_t offset)
{
    bool out = go == pwritev2;
    struct iovec piece = {0};
    struct stat about;
    int flags, rc;

    if (fstat(fd, &about) < 0)
        return -errno;
    if (S_ISREG(about.st_mode) || S_ISBLK(about.st_mode) || S_ISDIR(about.st_mode))
        return RING__WOULD_BLOCK;
    if (S_ISSOCK(about.st_mode)) {
        struct msghdr message = {.msg_iov = pointer((uintptr_t)iov), .msg_iovlen = (size_t)count};

        return result(out ? sendmsg(fd, &message, MSG_DONTWAIT)
                          : recvmsg(fd, &message, MSG_DONTWAIT));
    }
    flags = fcntl(fd, F_GETFL);
    if (flags < 0)
        return -errno;
    if (!(flags & O_NONBLOCK)) {
        rc = poll_one(fd, out ? POLLOUT : POLLIN, 0);
        if (rc <= 0)
            return rc == 0 ? -EAGAIN : rc;
        if (out) {
            for (int i = 0; i < count && piece.iov_len == 0; i++)
                piece = iov[i];
            if (piece.iov_len > PIPE_BUF)
                piece.iov_len = PIPE_BUF;
            iov = &piece;
            count = 1;
        }
    }
    return result(go(fd, iov, count, offset, 0));
}

static int transfer_at(transfer_fn *go, int fd, const struct iovec *iov, int count, off_t offset,
                       bool wait)
{
    int rc = -EOPNOTSUPP;

    if (wait || !ring__refused_nowait)
        rc = result(go(fd, iov, count, offset, wait ? 0 : RWF_NOWAIT));
    return rc == -EOPNOTSUPP && !wait ? transfer_when_ready(go, fd, iov, count, offset) : rc;
}

static int transfer(transfer_fn *go, const struct ring_op *op, const struct iovec *iov, int count,
                    bool wait)
{
    off_t offset = (off_t)op->off;
    int rc = transfer_at(go, op->fd, iov, count, offset, wait);

    if (rc == -ESPIPE && offset != -1) /* what has no position has no use for one */
        rc = transfer_at(go, op->fd, iov, count, -1, wait);
    return rc;
}

static int do_read(const struct ring_op *op, bool wait)
{
    const struct iovec iov = {pointer(op->addr), op->len};

    return transfer(preadv2, op, &iov, 1, wait);
}

static int do_write(const struct ring_op *op, bool wait)
{
    const struct iovec iov = {pointer(op->addr), op->len};

    return transfer(pwritev2, op, &iov, 1, wait);
}

static int do_readv(const struct ring_op *op, bool wait)
{
    return transfer(preadv2, op, pointer(op->addr), (int)op->len, wait);
}

static int do_writev(const struct ring_op *op, bool wait)
{
    return transfer(pwritev2, op, pointer(op->addr), (int)op->len, wait);
}

/* ---- sockets: never blocking; whoever may wait waits for the descriptor ---- */

static int do_recv(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(recv(op->fd, pointer(op->addr), op->len, (int)op->how | MSG_DONTWAIT));
}

static int do_send(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(send(op->fd, pointer(op->addr), op->len, (int)op->how | MSG_DONTWAIT));
}

/* The flags that were, with O_NONBLOCK set now, or a negative errno. */
static int set_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || (!(flags & O_NONBLOCK) && fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0))
        return -errno;
    return flags;
}

static int do_recvmsg(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(recvmsg(op->fd, pointer(op->addr), (int)op->how | MSG_DONTWAIT));
}

static int do_sendmsg(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(sendmsg(op->fd, pointer(op->addr), (int)op->how | MSG_DONTWAIT));
}

static int do_sendto(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(sendto(op->fd, pointer(op->addr), op->len, (int)op->how | MSG_DONTWAIT,
                         pointer(op->off), (socklen_t)op->own.extra));
}

/* With a copy. Without one, the kernel tells only on a socket's error queue when it is over. */
static int do_send_zc(const struct ring_op *op, bool wait)
{
    return do_send(op, wait);
}

static int do_accept(const struct ring_op *op, bool wait)
{
    int rc = set_nonblocking(op->fd);

    (void)wait;
    if (rc < 0)
        return rc;
    return result(accept4(op->fd, pointer(op->addr), pointer(op->off), (int)op->how));
}

static int do_connect(const struct ring_op *op, bool wait)
{
    int rc, flags, error = 0;
    socklen_t size = sizeof error;

    if (!(op->state & RING__CONNECTING)) {
        flags = set_nonblocking(op->fd);
        if (flags < 0)
            return flags;
        rc = result(connect(op->fd, pointer(op->addr), (socklen_t)op->off));
        if (!(flags & O_NONBLOCK))
            fcntl(op->fd, F_SETFL, flags);
        if (rc != -EINPROGRESS || !wait)
            return rc;
    }
    rc = poll_one(op->fd, POLLOUT,
                  wait ? -1 : 0); /* before the error is read, which comes with it */
    if (rc <= 0)
        return rc == 0 ? -EINPROGRESS : rc;
    return getsockopt(op->fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 ? -errno : -error;
}

static int do_socket(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(socket(op->fd, (int)op->off, (int)op->len));
}

static int do_socketpair(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(socketpair(op->fd, (int)op->off, (int)op->len, pointer(op->addr)));
}

static int do_pipe(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(pipe2(pointer(op->addr), (int)op->how));
}

/* A local address is a file that is made. */
static int do_bind_fd(const struct ring_op *op, bool wait)
{
    const struct sockaddr *address = pointer(op->addr);

    if (!wait && op->off > sizeof address->sa_family && address->sa_family == AF_UNIX)
        return RING__WOULD_BLOCK;
    return result(bind(op->fd, address, (socklen_t)op->off));
}

static int do_listen_fd(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(listen(op->fd, (int)op->len));
}

static int do_shutdown(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(shutdown(op->fd, (int)op->len));
}

static int do_poll(const struct ring_op *op, bool wait)
{
    int rc = poll_one(op->fd, (short)op->how, wait ? -1 : 0);

    if (rc <= 0)
        return rc == 0 ? -EAGAIN : rc;
    return rc & POLLNVAL ? -EBADF : rc;
}

/* ---- files ---- */

/* A FIFO is opened without waiting for its other end, as io_uring does it: a thread that waited for
 * that could not be called back. */
static int do_openat(const struct ring_op *op, bool wait)
{
    const int makes = O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY);
    int flags = (int)op->how, own = flags & (O_NONBLOCK | O_PATH) ? 0 : O_NONBLOCK, fd;

    if (wait) {
        fd = result(openat(op->fd, pointer(op->addr), flags | own, (mode_t)op->len));
        if (fd == -EAGAIN && own != 0) /* somebody's lease must be broken first */
            return result(openat(op->fd, pointer(op->addr), flags, (mode_t)op->len));
    } else {
        struct open_how how = {.flags = (uint32_t)(flags | own), .resolve = RESOLVE_CACHED};

        /* what the caches know needs no thread (5.12); what is more complicated does */
        fd = flags & makes ? -1 : (int)syscall(SYS_openat2, op->fd, op->addr, &how, sizeof how);
        if (fd < 0)
            return RING__WOULD_BLOCK;
    }
    if (fd >= 0 && own != 0)
        fcntl(fd, F_SETFL, flags);
    return fd;
}

/* The same, with a struct open_how in the operation. */
static int do_openat2(const struct ring_op *op, bool wait)
{
    const uint64_t makes = O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY);
    struct open_how how = {op->more[0], op->more[1], op->more[2]};
    uint64_t flags = how.flags, own = flags & (O_NONBLOCK | O_PATH) ? 0 : O_NONBLOCK;
    int fd;

    if (!wait) {
        if (flags & makes)
            return RING__WOULD_BLOCK;
        how.resolve |= RESOLVE_CACHED;
    }
    how.flags |= own;
    fd = result(syscall(SYS_openat2, op->fd, op->addr, &how, sizeof how));
    if (!wait && fd < 0)
        return RING__WOULD_BLOCK;
    if (fd == -EAGAIN && own != 0) {
        how.flags = flags;
        return result(syscall(SYS_openat2, op->fd, op->addr, &how, sizeof how));
    }
    if (fd >= 0 && own != 0)
        fcntl(fd, F_SETFL, (int)flags);
    return fd;
}

static int do_open_beneath(const struct ring_op *op, bool wait)
{
    return do_openat2(op, wait);
}

static int do_fsync(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(op->how & RING__DATASYNC ? fdatasync(op->fd) : fsync(op->fd));
}

static int do_statx(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(statx(op->fd, pointer(op->addr), (int)op->how, op->len, pointer(op->off)));
}

/* Closing may write what a file system has kept back. */
static int do_close(const struct ring_op *op, bool wait)
{
    struct stat about;

    if (!wait && fstat(op->fd, &about) == 0 && S_ISREG(about.st_mode))
        return RING__WOULD_BLOCK;
    return ring__close_now(op->fd);
}

static int do_sync_file_range(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(sync_file_range(op->fd, (off_t)op->off, (off_t)op->more[0], op->how));
}

static int do_fallocate(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(fallocate(op->fd, (int)op->len, (off_t)op->off, (off_t)op->addr));
}

static int do_ftruncate(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(ftruncate(op->fd, (off_t)op->off));
}

static int do_fadvise(const struct ring_op *op, bool wait)
{
    (void)wait;
    return -posix_fadvise(op->fd, (off_t)op->off, (off_t)op->more[0], (int)op->how);
}

static int do_madvise(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(madvise(pointer(op->addr), (size_t)op->more[0], (int)op->how));
}

static int do_unlinkat(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(unlinkat(op->fd, pointer(op->addr), (int)op->how));
}

static int do_renameat(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(renameat2(op->fd, pointer(op->addr), (int)op->len, pointer(op->off), op->how));
}

static int do_mkdirat(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(mkdirat(op->fd, pointer(op->addr), (mode_t)op->len));
}

static int do_linkat(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(linkat(op->fd, pointer(op->addr), (int)op->len, pointer(op->off), (int)op->how));
}

static int do_symlinkat(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(symlinkat(pointer(op->addr), op->fd, pointer(op->off)));
}

static int do_fgetxattr(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(fgetxattr(op->fd, pointer(op->addr), pointer(op->off), op->len));
}

static int do_fsetxattr(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(fsetxattr(op->fd, pointer(op->addr), pointer(op->off), op->len, (int)op->how));
}

static int do_getxattr(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(getxattr(pointer(op->more[0]), pointer(op->addr), pointer(op->off), op->len));
}

static int do_setxattr(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(
        setxattr(pointer(op->more[0]), pointer(op->addr), pointer(op->off), op->len, (int)op->how));
}

/* ---- pipes ---- */

/* Holds a SIGPIPE back, and drops it afterwards: io_uring raises none, as a kernel thread does it. One
 * that was held back before, by the program, is left alone. */
struct hush {
    sigset_t before;
    bool was_pending;
};

static void hush_begin(struct hush *hush)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set, &hush->before);
    hush->was_pending =
        sigismember(&hush->before, SIGPIPE) && sigpending(&set) == 0 && sigismember(&set, SIGPIPE);
}

static void hush_end(const struct hush *hush, int rc)
{
    const struct timespec now = {0};
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    if (rc == -EPIPE && !hush->was_pending)
        sigtimedwait(&set, NULL, &now);
    pthread_sigmask(SIG_SETMASK, &hush->before, NULL);
}

/* An end of a splice: 1 when a disk may be in the way, 0 when not, or a negative errno. *flags: to be
 * restored; -1: nothing is. A pipe needs no flag: SPLICE_F_NONBLOCK is for it. */
static int ready_end(int fd, int *flags)
{
    struct stat about;

    if (fstat(fd, &about) < 0)
        return -errno;
    if (S_ISFIFO(about.st_mode))
        return 0;
    if (S_ISREG(about.st_mode) || S_ISBLK(about.st_mode))
        return 1;
    *flags = set_nonblocking(fd);
    return *flags < 0 ? *flags : 0;
}

/* Both ends. */
static int ready_ends(const struct ring_op *op, int *in_flags, int *out_flags)
{
    int in, out;

    if (op->how & RING__FROM_PIPE) {
        *out_flags = set_nonblocking(op->fd);
        return *out_flags < 0 ? *out_flags : 0;
    }
    in = ready_end(ring__second_fd(op), in_flags);
    out = in < 0 ? in : ready_end(op->fd, out_flags);
    return out < 0 ? out : in | out;
}

static void restore_end(int fd, int flags)
{
    if (flags >= 0 && !(flags & O_NONBLOCK))
        fcntl(fd, F_SETFL, flags);
}

/* Neither here nor on a thread does it wait for an end of it that is not ready. */
static int do_splice(const struct ring_op *op, bool wait)
{
    int in = ring__second_fd(op), in_flags = -1, out_flags = -1;
    int rc = ready_ends(op, &in_flags, &out_flags);
    off_t in_offset = (off_t)op->addr, out_offset = (off_t)op->off;
    struct hush hush;

    if (rc > 0 && !wait) {
        rc = RING__WOULD_BLOCK;
    } else if (rc >= 0) {
        hush_begin(&hush);
        rc = result(splice(in, in_offset == -1 ? NULL : &in_offset, op->fd,
                           out_offset == -1 ? NULL : &out_offset, op->len,
                           (op->how & ~RING__FROM_PIPE) | SPLICE_F_NONBLOCK));
        hush_end(&hush, rc);
    }
    restore_end(op->fd, out_flags);
    restore_end(in, in_flags);
    return rc;
}

static int do_tee(const struct ring_op *op, bool wait)
{
    struct hush hush;
    int rc;

    (void)wait;
    hush_begin(&hush);
    rc = result(tee(ring__second_fd(op), op->fd, op->len, op->how | SPLICE_F_NONBLOCK));
    hush_end(&hush, rc);
    return rc;
}

/* ---- other waits ---- */

static int do_epoll_ctl(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(epoll_ctl(op->fd, (int)op->len, (int)op->off, pointer(op->addr)));
}

/* Only a blocked thread can wait for a futex, and nothing gets it out of that again. */
static int do_futex_wait(const struct ring_op *op, bool wait)
{
    (void)wait;
    return __atomic_load_n((const uint32_t *)pointer(op->addr), __ATOMIC_SEQ_CST) != op->off
               ? -EAGAIN
               : -ENOTSUP;
}

static int do_futex_wake(const struct ring_op *op, bool wait)
{
    int what = op->fd == ring__futex_flags(true) ? FUTEX_WAKE : FUTEX_WAKE | FUTEX_PRIVATE_FLAG;

    (void)wait;
    if (op->off == 0) /* which the old system call takes for 1 */
        return 0;
    return result(syscall(SYS_futex, op->addr, what, (int)op->off, NULL, NULL, 0));
}

static int do_waitid(const struct ring_op *op, bool wait)
{
    siginfo_t own, *info = op->off != 0 ? pointer(op->off) : &own;
    int options = (int)op->own.extra;

    (void)wait;
    info->si_pid = 0;
    if (waitid((idtype_t)op->len, (id_t)op->fd, info, options | WNOHANG) < 0)
        return -errno;
    return info->si_pid == 0 && !(options & WNOHANG) ? -EAGAIN : 0;
}

static int do_nop(const struct ring_op *op, bool wait)
{
    (void)op;
    (void)wait;
    return 0;
}

/* ---- the table ---- */

static int (*const attempts[RING__ROWS])(const struct ring_op *op, bool wait) = {
#define STREAM_OPERATION(...) /* of engines with such operations only */
#define OPERATION(name, ...)  [RING__ROW_##name] = do_##name,
#include "operations.def"
};

bool ring__may_wait(const struct ring_op *op)
{
    const struct ring__row_info *row = &ring__rows[op->row];

    return row->ready != 0 && !(row->traits & RING__MSG && op->how & MSG_DONTWAIT) &&
           !(op->row >= RING__TWO_FDS && op->how & SPLICE_F_NONBLOCK);
}

/* A pidfd tells the end of one process. It is kept in `addr`, plus 1. */
static int await_child(struct ring_op *op)
{
    int fd;

    if (op->own.extra & (WSTOPPED | WCONTINUED) || (op->len != P_PID && op->len != RING__P_PIDFD))
        return -ENOTSUP;
    if (op->len == P_PID && op->addr == 0) {
        fd = result(syscall(SYS_pidfd_open, op->fd, 0));
        if (fd < 0)
            return fd == -ENOSYS ? -ENOTSUP : fd;
        op->addr = (uint64_t)fd + 1;
    }
    return 0;
}

int ring__await(struct ring_op *op)
{
    if (op->row == RING__ROW_waitid)
        return await_child(op);
    if (op->row >= RING__TWO_FDS) /* each in turn: the result doesn't tell which one is not ready */
        op->state ^= RING__SECOND;
    return 0;
}

void ring__awaited(const struct ring_op *op, int *fd, short *events)
{
    *fd = op->fd;
    *events = ring__rows[op->row].ready;
    if (op->row >= RING__TWO_FDS) {
        *fd = op->state & RING__SECOND ? ring__second_fd(op) : op->fd;
        *events = op->state & RING__SECOND ? POLLIN : POLLOUT;
    } else if (op->row == RING__ROW_waitid && op->addr != 0) {
        *fd = (int)op->addr - 1;
    }
}

int ring__attempts_over(const struct ring_op *op)
{
    return op->row == RING__ROW_waitid ? (int)op->addr - 1 : -1;
}

int ring__attempt(const struct ring_op *op, bool wait)
{
    const struct ring__row_info *row = &ring__rows[op->row];
    int rc;

    if (row->traits & RING__BLOCKS && !wait)
        return RING__WOULD_BLOCK;
    for (;;) {
        rc = attempts[op->row](op, wait);
        if (!wait || op->row >= RING__ODD || (rc != -EINTR && rc != -EAGAIN))
            return rc;
        if (rc == -EAGAIN) {
            if (!ring__may_wait(op))
                return rc;
            poll_one(op->fd, row->ready, -1);
        }
    }
}

int ring__attempt_faulty(struct ring__engine *engine, const struct ring_op *op)
{
    struct ring__faults *faults = &engine->faults;

    /* a poll that finds nothing has looked */
    if (faults->result > 0 && (faults->result_error != -EAGAIN || op->row != RING__ROW_poll)) {
        faults->result--;
        return faults->result_error;
    }
    if (faults->short_io > 0 && op->len > 1 &&
        (op->row == RING__ROW_read || op->row == RING__ROW_write || op->row == RING__ROW_recv ||
         op->row == RING__ROW_send)) {
        struct ring_op piece = *op;

        faults->short_io--;
        piece.len = 1;
        return ring__attempt(&piece, false);
    }
    return ring__attempt(op, false);
}

/* ---- on the pool ---- */

static void start_jobs(struct ring__engine *engine);

static void run_job(struct weft_job *job)
{
    struct ring__job *j = weft__container(job, struct ring__job, job);

    j->res = ring__attempt(j->op, true);
}

static struct ring_op *free_job(struct ring__job *j)
{
    struct ring_op *op = j->op;

    j->op = NULL;
    j->engine->offload.busy--;
    op->state &= (uint16_t)~RING__OFFLOADED;
    return op;
}

static void job_done(struct weft_job *job)
{
    struct ring__job *j = weft__container(job, struct ring__job, job);
    struct ring__engine *engine = j->engine;
    int res = j->res;
    struct ring_op *op = free_job(j);

    start_jobs(engine);
    engine->attempted(engine, op, res);
}

static void job_done_here(struct weft_task *task)
{
    job_done(weft__container(task, struct weft_job, task));
}

/* The runtime has failed, and its engine waits for this job alone. Nobody takes the result. */
static void job_dropped(struct weft_job *job)
{
    struct ring__job *j = weft__container(job, struct ring__job, job);

    if (ring__rows[j->op->row].traits & RING__MAKES_FD && j->res >= 0)
        ring__close_now(j->res);
    sem_post(&j->engine->offload.dropped);
}

/* As many as there are jobs for. Without a thread, and without hope of one, they are done here and
 * now: late is better than never. */
static void start_jobs(struct ring__engine *engine)
{
    struct ring__offload *offload = &engine->offload;

    while (offload->queue != NULL && offload->busy < RING__JOBS) {
        struct ring__job *j = offload->jobs;

        while (j->op != NULL)
            j++;
        offload->busy++;
        j->op = offload->queue;
        ring__remove(&offload->queue_tail, j->op);
        j->job = (struct weft_job){.run = run_job, .done = job_done, .drop = job_dropped};
        if (weft__offload(weft__rt, &j->job, WEFT__JOB_WORK) < 0) {
            run_job(&j->job);
            j->job.task.run = job_done_here;
            weft_post(weft__rt->inbox, &j->job.task);
        }
    }
}

void ring__offload(struct ring__engine *engine, struct ring_op *op)
{
    op->state |= RING__OFFLOADED;
    ring__append(&engine->offload.queue_tail, op);
    start_jobs(engine);
}

bool ring__offload_withdraw(struct ring__engine *engine, struct ring_op *op)
{
    struct ring__offload *offload = &engine->offload;

    for (struct ring__job *j = offload->jobs; j < offload->jobs + RING__JOBS; j++) {
        if (j->op == op) {
            if (!weft_offload_withdraw(&j->job))
                return false;
            free_job(j);
            start_jobs(engine);
            return true;
        }
    }
    ring__remove(&offload->queue_tail, op);
    op->state &= (uint16_t)~RING__OFFLOADED;
    return true;
}

void ring__offload_init(struct ring__engine *engine)
{
    struct ring__offload *offload = &engine->offload;

    for (int i = 0; i < RING__JOBS; i++)
        offload->jobs[i] = (struct ring__job){.engine = engine};
    offload->queue = NULL;
    offload->queue_tail = &offload->queue;
    offload->busy = 0;
    sem_init(&offload->dropped, 0, 0);
}

void ring__offload_finish(struct ring__engine *engine)
{
    struct ring__offload *offload = &engine->offload;

    for (struct ring__job *j = offload->jobs; j < offload->jobs + RING__JOBS; j++)
        if (j->op != NULL && !weft_offload_withdraw(&j->job))
            while (sem_wait(&offload->dropped) < 0)
                ;
    sem_destroy(&offload->dropped);
}
