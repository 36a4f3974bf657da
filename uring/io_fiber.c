/* io_fiber.c: the operations for fibers: each parks the caller until its own last completion.
 *
 * The operation, the wait and the deadline's timer live on the fiber's stack, so a call returns only
 * when the kernel is through with all of it: never on the answer to a request for its end. Deadline
 * and cancellation are such requests; whichever comes first names the error if the operation comes
 * back undone.
 */
#include <weft/io.h>

#include "fiber_internal.h"
#include "ring_internal.h"
#include "timer.h"

struct transfer {
    struct ring_op op;
    struct fiber_wait wait;
    struct weft_runtime *rt;
    struct fiber *fiber;
    int res;
    int reason; /* why its end was asked for: -ETIMEDOUT, -ECANCELED; 0: it was not */
    struct weft_timer deadline;
};

static void transfer_done(struct ring_op *op, int res, unsigned flags)
{
    struct transfer *t = weft__container(op, struct transfer, op);

    (void)flags;
    t->res = res;
    fiber__wake(t->rt, t->fiber);
}

/* With a deadline: its timer must not fire between completion and the fiber's turn. */
static void transfer_done_in_time(struct ring_op *op, int res, unsigned flags)
{
    struct transfer *t = weft__container(op, struct transfer, op);

    weft__timer_stop(t->rt, &t->deadline);
    transfer_done(op, res, flags);
}

static void transfer_end(struct transfer *t, int reason)
{
    if (t->reason == 0)
        t->reason = reason;
    ring__cancel(t->rt, &t->op);
}

static void transfer_cancel(struct fiber_wait *wait)
{
    struct transfer *t = weft__container(wait, struct transfer, wait);

    transfer_end(t, t->fiber->cancelled);
}

static void transfer_expire(struct weft_timer *timer)
{
    transfer_end(weft__container(timer, struct transfer, deadline), -ETIMEDOUT);
}

/* Whether the caller may wait: 0, -EINVAL, -EDEADLK, -ECANCELED. */
static inline __attribute__((always_inline)) int enter_wait(struct weft_runtime *rt)
{
    const struct fiber *self = fiber__self(rt);

    return self == NULL ? fiber__cannot_wait(rt) : self->cancelled;
}

/* A prepared operation, from its submission to its result. op.done is set. */
static inline __attribute__((always_inline)) int
perform_with(struct weft_runtime *rt, struct transfer *t, const char *name, weft_time deadline)
{
    struct fiber *self = fiber__current(rt);
    int rc;

    t->rt = rt;
    t->fiber = self;
    t->reason = 0;
    t->wait.cancel = transfer_cancel;
    t->wait.what = name;
    t->wait.detail = t->op.fd;
    rc = ring__submit(rt, &t->op);
    if (weft__unlikely(rc < 0))
        return rc;
    if (deadline != WEFT_FOREVER) {
        weft_timer_init(&t->deadline, transfer_expire);
        if (deadline > WEFT_NOWAIT)
            weft__timer_start(rt, &t->deadline, deadline);
        else /* in one batch: what can be done at once is done */
            transfer_end(t, -ETIMEDOUT);
    }
    fiber__park(rt, self, &t->wait);
    if (weft__unlikely(t->reason != 0) && (t->res == -ECANCELED || t->res == -EINTR))
        return t->reason;
    return t->res;
}

/* All in one function: what returns to whom after another fiber has run is mispredicted, and each call
 * less is a misprediction less. */
static inline __attribute__((always_inline)) int
perform(struct weft_runtime *rt, struct transfer *t, const char *name, weft_time deadline)
{
    t->op.done = deadline == WEFT_FOREVER ? transfer_done : transfer_done_in_time;
    return perform_with(rt, t, name, deadline);
}

#define OPERATION(name, opcode, ready, traits, parameters, arguments, ...)     \
    int fiber_##name(RING__FIRST parameters weft_time deadline)                \
    {                                                                          \
        struct weft_runtime *rt = weft__rt;                                    \
        struct transfer t;                                                     \
        int rc = enter_wait(rt);                                               \
                                                                               \
        if (weft__unlikely(rc < 0))                                            \
            return rc;                                                         \
        rc = ring__prepare_##name(&t.op RING__AFTER arguments);                \
        return weft__unlikely(rc < 0) ? rc : perform(rt, &t, #name, deadline); \
    }
#define RAW_OPERATION(...)    /* close has a form of its own, below */
#define STREAM_OPERATION(...) /* stream_fiber.c */
#include "operations.def"

int fiber_recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *addr,
                   socklen_t *addrlen, weft_time deadline)
{
    struct iovec piece = {buf, len};
    struct msghdr message = {.msg_name = addr, .msg_iov = &piece, .msg_iovlen = 1};
    int rc = enter_wait(weft__rt);

    if (rc < 0)
        return rc;
    if ((buf == NULL && len > 0) || (addr != NULL && addrlen == NULL))
        return -EFAULT;
    if (addr != NULL)
        message.msg_namelen = *addrlen;
    rc = fiber_recvmsg(fd, &message, flags, deadline);
    if (rc >= 0 && addrlen != NULL)
        *addrlen = message.msg_namelen;
    return rc;
}

/* ---- exactly so many bytes ---- */

struct exact {
    struct transfer transfer; /* must be first */
    size_t len, moved;
    bool advances; /* at an explicit offset */
    bool now;      /* only what can be done at once */
};

/* The rest is begun here, not in the fiber's turn: else nothing would be in flight on the descriptor
 * meanwhile, who closes it would not end this, and the rest would go to whatever file has its number
 * then. True: it has been. */
static __attribute__((noinline)) bool exact_go_on(struct exact *e, int *res)
{
    struct transfer *t = &e->transfer;
    struct ring_op *op = &t->op;
    int moved = *res;

    if (t->reason != 0 && !e->now)
        return false;
    op->addr += (uint64_t)moved;
    op->len = ring__length(e->len - e->moved);
    if (e->advances)
        op->off += (uint64_t)moved;
    *res = ring__submit(t->rt, op);
    if (*res == 0 && e->now)
        ring__cancel(t->rt, op);
    if (*res == -EBADF) /* being closed */
        *res = -ECANCELED;
    return *res == 0;
}

static void exact_done(struct ring_op *op, int res, unsigned flags)
{
    struct exact *e = weft__container(op, struct exact, transfer.op);

    if (weft__likely(res > 0)) {
        e->moved += (size_t)res;
        if (weft__unlikely(e->moved < e->len) && exact_go_on(e, &res))
            return;
    }
    transfer_done(op, res, flags);
}

static void exact_done_in_time(struct ring_op *op, int res, unsigned flags)
{
    struct exact *e = weft__container(op, struct exact, transfer.op);

    if (res > 0) {
        e->moved += (size_t)res;
        if (e->moved < e->len && exact_go_on(e, &res))
            return;
    }
    transfer_done_in_time(op, res, flags);
}

/* A prepared operation (rc: what preparing it said) until `len` bytes are moved. */
static inline __attribute__((always_inline)) int
perform_all(struct weft_runtime *rt, struct exact *e, int rc, const char *name, size_t len,
            bool advances, size_t *done, weft_time deadline)
{
    e->len = len;
    e->moved = 0;
    e->advances = advances;
    e->now = deadline <= WEFT_NOWAIT;
    e->transfer.op.done = deadline == WEFT_FOREVER ? exact_done : exact_done_in_time;
    if (weft__likely(rc == 0 && len > 0))
        rc = perform_with(rt, &e->transfer, name, deadline);
    if (done != NULL)
        *done = e->moved;
    if (weft__likely(rc >= 0 && e->moved == len))
        return 0;
    return rc < 0 ? rc : rc == 0 ? -ENODATA : e->transfer.reason;
}

#define DEFINE_ALL(name, parameters, arguments, advances)                           \
    int fiber_##name##_all(RING__FIRST parameters size_t *done, weft_time deadline) \
    {                                                                               \
        struct weft_runtime *rt = weft__rt;                                         \
        struct exact e;                                                             \
        int rc = enter_wait(rt);                                                    \
                                                                                    \
        if (weft__likely(rc == 0))                                                  \
            rc = ring__prepare_##name(&e.transfer.op RING__AFTER arguments);        \
        return perform_all(rt, &e, rc, #name, len, advances, done, deadline);       \
    }

DEFINE_ALL(read, (int fd, void *buf, size_t len, int64_t offset), (fd, buf, len, offset),
           offset >= 0)
DEFINE_ALL(write, (int fd, const void *buf, size_t len, int64_t offset), (fd, buf, len, offset),
           offset >= 0)
DEFINE_ALL(recv, (int fd, void *buf, size_t len, int flags), (fd, buf, len, flags), false)
DEFINE_ALL(send, (int fd, const void *buf, size_t len, int flags), (fd, buf, len, flags), false)

/* ---- a file through a pipe ---- */

static int empty(const int pipe[2], int out, size_t len, uint32_t how, weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    struct transfer t;
    int rc = enter_wait(rt);

    if (rc < 0)
        return rc;
    rc = ring__prepare_splice(&t.op, pipe[0], -1, out, -1, len, 0);
    t.op.how |= how;
    return rc < 0 ? rc : perform(rt, &t, "splice", deadline);
}

/* Sends from an explicit offset: what is in the pipe when it ends early has not left the file. */
static int send_through(const int pipe[2], int out, uint32_t how, int in, int64_t offset,
                        size_t len, size_t *moved, weft_time deadline)
{
    while (*moved < len) {
        int rc, filled = fiber_splice(in, offset + (int64_t)*moved, pipe[1], -1, len - *moved, 0,
                                      deadline);

        if (filled <= 0)
            return filled == 0 && len != SIZE_MAX ? -ENODATA : filled;
        for (; filled > 0; filled -= rc) {
            rc = empty(pipe, out, (size_t)filled, how, deadline);
            if (rc <= 0)
                return rc == 0 ? -EIO : rc;
            *moved += (size_t)rc;
        }
    }
    return 0;
}

int fiber_sendfile(int out, int in, int64_t offset, size_t len, size_t *done, weft_time deadline)
{
    size_t moved = 0;
    int64_t from = offset;
    int pipe[2], rc = enter_wait(weft__rt);

    if (rc == 0)
        rc = ring__sendfile_begin(out, in, len, &from, pipe);
    if (rc >= 0) {
        rc = send_through(pipe, out, (uint32_t)rc, in, from, len, &moved, deadline);
        ring__sendfile_end(in, offset, from + (int64_t)moved, pipe);
    }
    if (done != NULL)
        *done = moved;
    return rc;
}

/* ---- close ---- */

struct closer {
    struct ring__closing closing;
    struct fiber_wait wait;
    struct weft_runtime *rt;
    struct fiber *fiber;
};

static void closer_clear(struct ring__closing *closing)
{
    struct closer *c = weft__container(closing, struct closer, closing);

    fiber__wake(c->rt, c->fiber);
}

int fiber_close(int fd)
{
    struct weft_runtime *rt = weft__rt;
    struct fiber *self = fiber__self(rt);
    struct closer c = {.closing = {.fd = fd, .clear = closer_clear}, .rt = rt, .fiber = self};
    int rc;

    if (self == NULL)
        return fiber__cannot_wait(rt);
    rc = ring__close_begin(rt, &c.closing);
    if (rc < 0)
        return rc;
    if (rc > 0) {
        c.wait = (struct fiber_wait){.what = "close", .detail = fd};
        fiber__park(rt, self, &c.wait);
    }
    ring__close_finish(rt, &c.closing);
    rc = ring__close(rt, fd);
    ring__closed(rt, fd);
    return rc;
}

/* ---- names ---- */

struct search {
    struct ring_resolve resolve;
    struct fiber_wait wait;
    struct weft_timer deadline;
    struct weft_runtime *rt;
    struct fiber *fiber;
    int result;
};

/* Ends the wait; who else could end it is made unable to first. */
static void search_wake(struct search *s, int result)
{
    s->result = result;
    ring_resolve_cancel(&s->resolve);
    weft__timer_stop(s->rt, &s->deadline);
    fiber__wake(s->rt, s->fiber);
}

static void search_done(struct ring_resolve *resolve, int result)
{
    search_wake(weft__container(resolve, struct search, resolve), result);
}

static void search_cancel(struct fiber_wait *wait)
{
    struct search *s = weft__container(wait, struct search, wait);

    search_wake(s, s->fiber->cancelled);
}

static void search_expire(struct weft_timer *timer)
{
    search_wake(weft__container(timer, struct search, deadline), -ETIMEDOUT);
}

int fiber_resolve_host(const char *host, const char *service, unsigned flags,
                       struct ring_addresses **list, weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    struct search s = {.resolve.done = search_done, .rt = rt, .fiber = fiber__self(rt)};
    int rc = enter_wait(rt);

    if (list == NULL)
        return rc < 0 ? rc : -EFAULT;
    *list = NULL;
    if (rc == 0)
        rc = ring_resolve_host(&s.resolve, host, service, flags);
    if (rc == -EINPROGRESS && deadline <= WEFT_NOWAIT) {
        ring_resolve_cancel(&s.resolve);
        return -ETIMEDOUT;
    }
    if (rc == -EINPROGRESS) {
        weft_timer_init(&s.deadline, search_expire);
        if (deadline != WEFT_FOREVER)
            weft__timer_start(rt, &s.deadline, deadline);
        s.wait = (struct fiber_wait){.cancel = search_cancel, .what = "lookup", .detail = -1};
        fiber__park(rt, s.fiber, &s.wait);
        rc = s.result;
    }
    if (rc == 0)
        *list = s.resolve.list;
    return rc;
}

/* ---- connecting by name ---- */

struct connecting {
    struct ring__connect connect;
    struct fiber_wait wait;
    struct fiber *fiber;
    int result;
};

static void connecting_done(struct ring__connect *connect, int result)
{
    struct connecting *c = weft__container(connect, struct connecting, connect);

    c->result = result;
    fiber__wake(connect->rt, c->fiber);
}

static void connecting_cancel(struct fiber_wait *wait)
{
    struct connecting *c = weft__container(wait, struct connecting, wait);

    ring__connect_end(&c->connect, c->fiber->cancelled);
}

/* The result of what has started with `rc`. */
static int wait_connected(struct weft_runtime *rt, struct connecting *c, int rc)
{
    if (rc != -EINPROGRESS)
        return rc;
    c->fiber = fiber__current(rt);
    c->wait = (struct fiber_wait){.cancel = connecting_cancel, .what = "connect", .detail = -1};
    fiber__park(rt, c->fiber, &c->wait);
    return c->result;
}

#define CONNECT(start, ...)                            \
    struct weft_runtime *rt = weft__rt;                \
    struct connecting c;                               \
    int rc = enter_wait(rt);                           \
                                                       \
    if (rc < 0)                                        \
        return rc;                                     \
    c.connect.done = connecting_done;                  \
    rc = start(rt, &c.connect, __VA_ARGS__, deadline); \
    return wait_connected(rt, &c, rc)

int fiber_connect_host(const char *host, const char *service, weft_time deadline)
{
    CONNECT(ring__connect_host, host, service);
}

int fiber_connect_any(struct ring_addresses *list, weft_time deadline)
{
    CONNECT(ring__connect_any, list);
}

int fiber_connect_unix(const char *path, weft_time deadline)
{
    CONNECT(ring__connect_local, path);
}
