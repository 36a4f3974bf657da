/* attempt.c: one function for each row of the table: do_NAME does the operation by plain system calls.
 * A row without one doesn't compile.
 *
 * An attempt that must not wait never blocks, whatever the descriptor's O_NONBLOCK says: sockets are
 * told so for each call (MSG_DONTWAIT), files by RWF_NOWAIT. Where neither is to be had:
 *   - accept sets O_NONBLOCK on the listener, and leaves it set: taking it back would let another
 *     process that shares the listener block in the moment between;
 *   - connect sets it for the call alone;
 *   - a read or write of what knows no RWF_NOWAIT (pipes and sockets before 6.4, terminals) asks
 *     poll(2) first.
 * errno is a scratch register here: the callers of public functions see it unchanged.
 */
#include "attempt.h"
#include "ring_internal.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

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

static int do_sendmsg(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(sendmsg(op->fd, pointer(op->addr), (int)op->how | MSG_DONTWAIT));
}

static int do_socket(const struct ring_op *op, bool wait)
{
    (void)wait;
    return result(socket(op->fd, (int)op->off, (int)op->len));
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

int ring__attempt(const struct ring_op *op, bool wait)
{
    const struct ring__row_info *row = &ring__rows[op->row];
    int rc;

    if (row->traits & RING__BLOCKS && !wait)
        return RING__WOULD_BLOCK;
    for (;;) {
        rc = attempts[op->row](op, wait);
        if (!wait || (rc != -EINTR && rc != -EAGAIN))
            return rc;
        if (rc == -EAGAIN) {
            if (row->ready == 0 || (row->traits & RING__MSG && op->how & MSG_DONTWAIT))
                return rc;
            poll_one(op->fd, row->ready, -1);
        }
    }
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
    op->state &= (uint8_t)~RING__OFFLOADED;
    return op;
}

static void job_done(struct weft_job *job)
{
    struct ring__job *j = weft__container(job, struct ring__job, job);
    struct ring__engine *engine = j->engine;
    int res = j->res;
    struct ring_op *op = free_job(j);

    start_jobs(engine);
    ring__finish(engine, op, res, 0);
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
    op->state &= (uint8_t)~RING__OFFLOADED;
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
