/* io_promise.c: the operations as promises. The operation and its deadline's timer live behind the
 * promise in its block; the completion settles it.
 *
 * A descriptor never gets lost: one that comes when nobody has the promise any more, or when the
 * runtime is at its end and calls nobody, is closed here.
 */
#include <weft/io.h>

#include "promise_internal.h"
#include "ring_internal.h"
#include "timer.h"

/* ---- one operation ---- */

struct request {
    struct ring_op op;
    struct weft_runtime *rt;
    int reason; /* why its end was asked for: -ETIMEDOUT, -ECANCELED; 0: it was not */
    bool now;   /* only what can be done at once */
    struct weft_timer deadline;
};

/* Whether nobody will take what the operation has made. */
static bool is_for_nobody(const struct weft_runtime *rt, void *extra)
{
    return promise__is_abandoned(promise__of_extra(extra)) || ring__ended(rt);
}

static void settle(void *extra, int res)
{
    promise__settle(promise__of_extra(extra), res < 0 ? res : 0, weft_num(res));
}

/* With a descriptor of our own making. */
static void settle_fd(struct weft_runtime *rt, void *extra, int res)
{
    if (res >= 0 && is_for_nobody(rt, extra)) {
        ring__close(rt, res);
        res = -ECANCELED;
    }
    settle(extra, res);
}

static int outcome(const struct request *r, int res)
{
    return r->reason != 0 && (res == -ECANCELED || res == -EINTR) ? r->reason : res;
}

static void request_finish(struct request *r, int res)
{
    weft__timer_stop(r->rt, &r->deadline);
    if (weft__unlikely(ring__rows[r->op.row].traits & RING__MAKES) && is_for_nobody(r->rt, r) &&
        ring__discard(r->rt, &r->op, res))
        res = -ECANCELED;
    settle(r, outcome(r, res));
}

static void request_done(struct ring_op *op, int res, unsigned flags)
{
    (void)flags;
    request_finish(weft__container(op, struct request, op), res);
}

static void request_end(struct request *r, int reason)
{
    if (r->reason == 0)
        r->reason = reason;
    ring__cancel(r->rt, &r->op);
}

static void request_cancel(struct promise *p)
{
    request_end(promise__extra(p), -ECANCELED);
}

static void request_expire(struct weft_timer *timer)
{
    request_end(weft__container(timer, struct request, deadline), -ETIMEDOUT);
}

/* A new pending promise with `size` bytes of request, or a rejected one and *r is NULL. */
static struct promise *request_create(struct request **r, size_t size)
{
    struct weft_runtime *rt = weft__rt;
    void *extra = NULL;
    struct promise *p;

    *r = NULL;
    if (rt == NULL)
        return promise_rejected(-EINVAL);
    p = promise__create_operation(rt, size, request_cancel, &extra);
    *r = extra;
    if (extra != NULL) {
        (*r)->op.done = request_done;
        (*r)->rt = rt;
        (*r)->reason = 0;
        (*r)->now = false;
        weft_timer_init(&(*r)->deadline, request_expire);
    }
    return p;
}

/* After its (first) operation has been submitted. */
static void request_under_way(struct request *r, weft_time deadline)
{
    if (deadline <= WEFT_NOWAIT) { /* in one batch: what can be done at once is done */
        r->now = true;
        request_end(r, -ETIMEDOUT);
    } else if (deadline != WEFT_FOREVER) {
        weft__timer_start(r->rt, &r->deadline, deadline);
    }
}

/* One of several operations: whether the next may be submitted, and after it has been. */
static bool goes_on(const struct request *r)
{
    return r->reason == 0 || r->now;
}

static void request_hasten(struct request *r)
{
    if (r->now)
        ring__cancel(r->rt, &r->op);
}

/* Submits a prepared operation (rc: what preparing it said); rejects the promise if that cannot be. */
static void request_start(struct request *r, int rc, weft_time deadline)
{
    if (rc == 0)
        rc = ring__submit(r->rt, &r->op);
    if (rc < 0)
        promise__settle(promise__of_extra(r), rc, weft_num(0));
    else
        request_under_way(r, deadline);
}

#define DEFINE(function, name, parameters, arguments)                                   \
    struct promise *function(RING__FIRST parameters weft_time deadline)                 \
    {                                                                                   \
        struct request *r;                                                              \
        struct promise *p = request_create(&r, sizeof *r);                              \
                                                                                        \
        if (r == NULL)                                                                  \
            return p;                                                                   \
        request_start(r, ring__prepare_##name(&r->op RING__AFTER arguments), deadline); \
        return p;                                                                       \
    }
#define OPERATION(name, opcode, ready, traits, parameters, arguments, ...) \
    DEFINE(promise_##name, name, parameters, arguments)
#define POLL_OPERATION(name, opcode, ready, traits, parameters, arguments, ...) \
    DEFINE(promise_##name##_fd, name, parameters, arguments) /* promise_poll is taken */
#define RAW_OPERATION(...)    /* close has a form of its own, below */
#define STREAM_OPERATION(...) /* stream_promise.c */
#include "operations.def"

/* ---- with the sender's address ---- */

struct recvfrom_request {
    struct request request; /* must be first */
    struct msghdr message;
    struct iovec piece;
    socklen_t *addrlen;
};

static void recvfrom_done(struct ring_op *op, int res, unsigned flags)
{
    struct recvfrom_request *r = weft__container(op, struct recvfrom_request, request.op);

    if (res >= 0 && r->addrlen != NULL)
        *r->addrlen = r->message.msg_namelen;
    request_done(op, res, flags);
}

struct promise *promise_recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *addr,
                                 socklen_t *addrlen, weft_time deadline)
{
    struct request *request;
    struct promise *p = request_create(&request, sizeof(struct recvfrom_request));
    struct recvfrom_request *r = (struct recvfrom_request *)(void *)request;
    bool valid = (buf != NULL || len == 0) && (addr == NULL || addrlen != NULL);

    if (request == NULL)
        return p;
    request->op.done = recvfrom_done;
    r->piece = (struct iovec){buf, len};
    r->message = (struct msghdr){.msg_name = addr, .msg_iov = &r->piece, .msg_iovlen = 1};
    r->addrlen = addrlen;
    if (valid && addr != NULL)
        r->message.msg_namelen = *addrlen;
    request_start(request,
                  valid ? ring__prepare_recvmsg(&request->op, fd, &r->message, flags) : -EFAULT,
                  deadline);
    return p;
}

/* ---- exactly so many bytes ---- */

struct exact {
    struct request request; /* must be first */
    size_t len, moved, *done;
    bool advances; /* at an explicit offset */
};

static void exact_finish(struct exact *e, int res)
{
    if (e->done != NULL)
        *e->done = e->moved;
    weft__timer_stop(e->request.rt, &e->request.deadline);
    res = outcome(&e->request, res);
    promise__settle(promise__of_extra(e), res, weft_num((int64_t)e->moved));
}

static void exact_done(struct ring_op *op, int res, unsigned flags)
{
    struct exact *e = weft__container(op, struct exact, request.op);

    (void)flags;
    if (res <= 0) {
        exact_finish(e, res == 0 ? -ENODATA : res);
        return;
    }
    e->moved += (size_t)res;
    if (e->moved == e->len) {
        exact_finish(e, 0);
    } else if (!goes_on(&e->request)) {
        exact_finish(e, -ECANCELED);
    } else {
        op->addr += (uint64_t)res;
        op->len = ring__length(e->len - e->moved);
        if (e->advances)
            op->off += (uint64_t)res;
        res = ring__submit(e->request.rt, op);
        if (res < 0) /* -EBADF: being closed */
            exact_finish(e, res == -EBADF ? -ECANCELED : res);
        else
            request_hasten(&e->request);
    }
}

static void exact_start(struct request *r, int rc, size_t len, bool advances, size_t *done,
                        weft_time deadline)
{
    struct exact *e = (struct exact *)(void *)r;

    e->len = len;
    e->moved = 0;
    e->done = done;
    e->advances = advances;
    if (done != NULL)
        *done = 0;
    r->op.done = exact_done;
    if (len == 0)
        promise__settle(promise__of_extra(e), 0, weft_num(0));
    else
        request_start(r, rc, deadline);
}

#define DEFINE_EXACT(name, parameters, arguments, advances)                                       \
    struct promise *promise_##name##_all(RING__FIRST parameters size_t *done, weft_time deadline) \
    {                                                                                             \
        struct request *r;                                                                        \
        struct promise *p = request_create(&r, sizeof(struct exact));                             \
                                                                                                  \
        if (r != NULL)                                                                            \
            exact_start(r, ring__prepare_##name(&r->op RING__AFTER arguments), len, advances,     \
                        done, deadline);                                                          \
        return p;                                                                                 \
    }

DEFINE_EXACT(read, (int fd, void *buf, size_t len, int64_t offset), (fd, buf, len, offset),
             offset >= 0)
DEFINE_EXACT(write, (int fd, const void *buf, size_t len, int64_t offset), (fd, buf, len, offset),
             offset >= 0)
DEFINE_EXACT(recv, (int fd, void *buf, size_t len, int flags), (fd, buf, len, flags), false)
DEFINE_EXACT(send, (int fd, const void *buf, size_t len, int flags), (fd, buf, len, flags), false)

/* ---- a file through a pipe ---- */

/* Sends from an explicit offset: what is in the pipe when it ends early has not left the file. */
struct sendfile_request {
    struct request request; /* must be first */
    struct ring__sendfile way;
    size_t len, moved, filled, *done;
};

static void sendfile_finish(struct sendfile_request *s, int res)
{
    ring__sendfile_end(s->request.rt, &s->way, s->moved);
    if (s->done != NULL)
        *s->done = s->moved;
    weft__timer_stop(s->request.rt, &s->request.deadline);
    promise__settle(promise__of_extra(s), outcome(&s->request, res), weft_num((int64_t)s->moved));
}

static int sendfile_step(struct sendfile_request *s)
{
    struct request *r = &s->request;
    int rc = ring__sendfile_prepare(r->rt, &s->way, &r->op, s->moved, s->filled, s->len - s->moved);

    return rc == 0 ? ring__submit(r->rt, &r->op) : rc;
}

static void sendfile_done(struct ring_op *op, int res, unsigned flags)
{
    struct sendfile_request *s = weft__container(op, struct sendfile_request, request.op);

    (void)flags;
    if (res < 0 || (res == 0 && s->filled > 0)) {
        sendfile_finish(s, res == 0 ? -EIO : res);
        return;
    }
    if (s->filled > 0) {
        s->filled -= (size_t)res;
        s->moved += (size_t)res;
    } else if (res > 0) {
        s->filled = (size_t)res;
    } else {
        sendfile_finish(s, s->len == SIZE_MAX ? 0 : -ENODATA);
        return;
    }
    if (s->moved == s->len)
        res = 0;
    else if (goes_on(&s->request))
        res = sendfile_step(s);
    else
        res = -ECANCELED;
    if (res < 0 || s->moved == s->len)
        sendfile_finish(s, res);
    else
        request_hasten(&s->request);
}

struct promise *promise_sendfile(int out, int in, int64_t offset, size_t len, size_t *done,
                                 weft_time deadline)
{
    struct request *r;
    struct promise *p = request_create(&r, sizeof(struct sendfile_request));
    struct sendfile_request *s = (struct sendfile_request *)(void *)r;
    int rc;

    if (r == NULL)
        return p;
    s->len = len;
    s->moved = s->filled = 0;
    s->done = done;
    if (done != NULL)
        *done = 0;
    r->op.done = sendfile_done;
    rc = ring__sendfile_begin(r->rt, &s->way, out, in, offset, len);
    if (rc < 0) {
        settle(s, rc);
        return p;
    }
    rc = len == 0 ? 0 : sendfile_step(s);
    if (len == 0 || rc < 0)
        sendfile_finish(s, rc);
    else
        request_under_way(r, deadline);
    return p;
}

/* ---- close ---- */

struct close_request {
    struct ring__closing closing;
    struct weft_runtime *rt;
    int fd;
};

static void close_finish(struct ring__closing *closing)
{
    struct close_request *c = weft__container(closing, struct close_request, closing);
    struct weft_runtime *rt = c->rt;

    int rc;

    ring__close_finish(rt, closing);
    rc = ring__close(rt, c->fd);
    ring__closed(rt, c->fd);
    settle(c, rc);
}

struct promise *promise_close(int fd)
{
    struct weft_runtime *rt = weft__rt;
    struct close_request *c;
    struct promise *p;
    void *extra = NULL;
    int rc;

    if (rt == NULL)
        return promise_rejected(-EINVAL);
    p = promise__create_operation(rt, sizeof *c, NULL, &extra);
    if (extra == NULL)
        return p;
    c = extra;
    *c = (struct close_request){.closing = {.fd = fd, .clear = close_finish}, .rt = rt, .fd = fd};
    rc = ring__close_begin(rt, &c->closing);
    if (rc < 0)
        settle(c, rc);
    else if (rc == 0)
        close_finish(&c->closing);
    return p;
}

/* ---- names ---- */

struct search {
    struct ring_resolve resolve;
    struct weft_runtime *rt;
    struct weft_timer deadline;
};

static void destroy_addresses(void *list)
{
    ring_addresses_destroy(list);
}

static void search_finish(struct search *s, int result)
{
    struct promise *p = promise__of_extra(s);

    ring_resolve_cancel(&s->resolve);
    weft__timer_stop(s->rt, &s->deadline);
    if (result == 0)
        promise__settle_owned(p, s->resolve.list, destroy_addresses);
    else
        promise__settle(p, result, weft_num(0));
}

static void search_done(struct ring_resolve *resolve, int result)
{
    search_finish(weft__container(resolve, struct search, resolve), result);
}

static void search_cancel(struct promise *p)
{
    search_finish(promise__extra(p), -ECANCELED);
}

static void search_expire(struct weft_timer *timer)
{
    search_finish(weft__container(timer, struct search, deadline), -ETIMEDOUT);
}

struct promise *promise_resolve_host(const char *host, const char *service, unsigned flags,
                                     weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    void *extra = NULL;
    struct search *s;
    struct promise *p;
    int rc;

    if (rt == NULL)
        return promise_rejected(-EINVAL);
    p = promise__create_operation(rt, sizeof *s, search_cancel, &extra);
    if (extra == NULL)
        return p;
    s = extra;
    s->resolve.done = search_done;
    s->rt = rt;
    weft_timer_init(&s->deadline, search_expire);
    rc = ring_resolve_host(&s->resolve, host, service, flags);
    if (rc != -EINPROGRESS)
        search_finish(s, rc);
    else if (deadline <= WEFT_NOWAIT)
        search_finish(s, -ETIMEDOUT);
    else if (deadline != WEFT_FOREVER)
        weft__timer_start(rt, &s->deadline, deadline);
    return p;
}

/* ---- connecting by name ---- */

static void connecting_done(struct ring__connect *connect, int result)
{
    settle_fd(connect->rt, connect, result);
}

static void connecting_cancel(struct promise *p)
{
    ring__connect_end(promise__extra(p), -ECANCELED);
}

#define CONNECT(start, ...)                                                        \
    struct weft_runtime *rt = weft__rt;                                            \
    struct ring__connect *connect;                                                 \
    void *extra = NULL;                                                            \
    struct promise *p;                                                             \
    int rc;                                                                        \
                                                                                   \
    if (rt == NULL)                                                                \
        return promise_rejected(-EINVAL);                                          \
    p = promise__create_operation(rt, sizeof *connect, connecting_cancel, &extra); \
    if (extra == NULL)                                                             \
        return p;                                                                  \
    connect = extra;                                                               \
    connect->done = connecting_done;                                               \
    rc = start(rt, connect, __VA_ARGS__, deadline);                                \
    if (rc != -EINPROGRESS)                                                        \
        settle_fd(rt, connect, rc);                                                \
    return p

struct promise *promise_connect_host(const char *host, const char *service, weft_time deadline)
{
    CONNECT(ring__connect_host, host, service);
}

struct promise *promise_connect_any(struct ring_addresses *list, weft_time deadline)
{
    CONNECT(ring__connect_any, list);
}

struct promise *promise_connect_unix(const char *path, weft_time deadline)
{
    CONNECT(ring__connect_local, path);
}
