/* writer_fiber.c: writing through a buffer.
 *
 * What is to be sent, in order: the pieces [0, count), each in the buffer or the caller's, then the
 * loose bytes [loose, at) of the buffer. The pieces in the buffer are one range in their order,
 * [unsent, loose). Invariants:
 *   - A byte leaves the queue only when the sink has said that it took it, so a wait that ends early
 *     loses none and repeats none.
 *   - While a fiber waits in the sink, and after an error, limit == at: the inline functions find no
 *     room and come here, where they are told why. Nothing moves meanwhile.
 */
#include "buffered_fiber.h"

#include <stdio.h>
#include <string.h>

static int init(struct fiber_writer *w, void *buf, size_t size)
{
    if (w == NULL || buf == NULL)
        return -EFAULT;
    if (size == 0 || size > INT_MAX)
        return -EINVAL;
    memset(w, 0, offsetof(struct fiber_writer, pieces));
    w->base = w->unsent = w->loose = w->at = buf;
    w->limit = w->base + size;
    w->size = size;
    w->offset = -1;
    w->fd = -1;
    return 0;
}

int fiber_writer_init(struct fiber_writer *w, int fd, int64_t offset, void *buf, size_t size)
{
    int rc = offset < -1 ? -EINVAL : init(w, buf, size);

    if (rc == 0) {
        w->fd = fd;
        w->offset = offset;
        w->kind = offset < 0 ? FIBER__SOCKET_OR_FILE : FIBER__FILE;
    }
    return rc;
}

int fiber_writer_init_sink(struct fiber_writer *w, fiber_sink_fn *sink, void *ctx, void *buf,
                           size_t size)
{
    int rc = sink == NULL ? -EFAULT : init(w, buf, size);

    if (rc == 0) {
        w->sink = sink;
        w->ctx = ctx;
    }
    return rc;
}

int64_t fiber_writer_finish(struct fiber_writer *w)
{
    int64_t left = (int64_t)fiber_writer_pending(w);

    if (w->busy)
        return -EBUSY;
    w->at = w->limit = w->unsent = w->loose = w->base;
    w->size = 0;
    w->queued = 0;
    w->count = 0;
    return left;
}

/* ---- errors ---- */

/* What the inline functions see. */
static void show_room(struct fiber_writer *w)
{
    w->limit = w->error != 0 || w->busy ? w->at : w->base + w->size;
}

static void set_error(struct fiber_writer *w, int error, bool refused)
{
    w->error = error;
    w->refused = refused;
    show_room(w);
}

/* A write is refused: so is what follows, lest something be missing in the middle. */
static int refuse(struct fiber_writer *w, int error)
{
    if (w->error == 0)
        set_error(w, error, true);
    return error;
}

int fiber_writer_clear(struct fiber_writer *w)
{
    int error = w->error;

    set_error(w, 0, false);
    return error;
}

/* Whether the writer takes anything: 0, or why not. */
static inline int may_write(const struct fiber_writer *w)
{
    if (w->busy)
        return -EBUSY;
    return w->size == 0 ? -EINVAL : w->error;
}

/* ---- sending ---- */

static bool is_inside(const struct fiber_writer *w, const void *p)
{
    return (uintptr_t)p - (uintptr_t)w->base < w->size;
}

/* The loose bytes become a piece, or a part of the last one if that is in the buffer: so there is
 * one piece at most behind the last of the caller's. */
static void close_piece(struct fiber_writer *w)
{
    size_t len = (size_t)(w->at - w->loose);

    if (len == 0)
        return;
    if (w->count > 0 && is_inside(w, w->pieces[w->count - 1].iov_base))
        w->pieces[w->count - 1].iov_len += len;
    else
        w->pieces[w->count++] = (struct iovec){w->loose, len};
    w->queued += len;
    w->loose = w->at;
}

/* Takes `len` sent bytes from the front of the queue. */
static void drop(struct fiber_writer *w, size_t len)
{
    struct iovec *piece = w->pieces;
    size_t n;

    w->queued -= len;
    for (; len > 0; len -= n) {
        n = piece->iov_len < len ? piece->iov_len : len;
        if (is_inside(w, piece->iov_base))
            w->unsent += n;
        piece->iov_base = (char *)piece->iov_base + n;
        piece->iov_len -= n;
        if (piece->iov_len == 0)
            piece++;
    }
    w->count = (uint16_t)(w->count - (piece - w->pieces));
    memmove(w->pieces, piece, w->count * sizeof *piece);
    if (w->unsent == w->loose && w->loose == w->at)
        w->unsent = w->loose = w->at = w->base;
}

/* Moves what is in the buffer to its front: all room is in one place. */
static void move_to_base(struct fiber_writer *w)
{
    ptrdiff_t by = w->unsent - w->base;

    if (by == 0)
        return;
    memmove(w->base, w->unsent, (size_t)(w->at - w->unsent));
    for (int i = 0; i < w->count; i++)
        if (is_inside(w, w->pieces[i].iov_base))
            w->pieces[i].iov_base = (char *)w->pieces[i].iov_base - by;
    w->unsent -= by;
    w->loose -= by;
    w->at -= by;
}

static int write_socket(const struct fiber_writer *w, struct iovec *pieces, int count,
                        weft_time deadline)
{
    const struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)count};

    return count == 1 ? fiber_send(w->fd, pieces->iov_base, pieces->iov_len, 0, deadline)
                      : fiber_sendmsg(w->fd, &message, 0, deadline);
}

static int write_file(struct fiber_writer *w, struct iovec *pieces, int count, weft_time deadline)
{
    int n = count == 1 ? fiber_write(w->fd, pieces->iov_base, pieces->iov_len, w->offset, deadline)
                       : fiber_writev(w->fd, pieces, count, w->offset, deadline);

    if (n > 0 && w->offset >= 0)
        w->offset += n;
    return n;
}

/* When the descriptor is closed between what it takes and this fiber's turn, that is the end of it: the
 * number may be another file's. */
static int write_descriptor(struct fiber_writer *w, struct iovec *pieces, int count,
                            weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    struct ring__hold hold;
    int n = -ENOTSOCK;

    ring__hold(rt, &hold, w->fd);
    if (w->kind != FIBER__FILE)
        n = write_socket(w, pieces, count, deadline);
    if (n == -ENOTSOCK && !hold.closed) {
        w->kind = FIBER__FILE;
        n = write_file(w, pieces, count, deadline);
    }
    if (ring__let_go(rt, &hold)) {
        set_error(w, -ECANCELED, false);
        if (n < 0)
            n = -ECANCELED;
    }
    return n;
}

/* One operation for all that is queued (something is), and for `len` bytes at `data` behind it.
 * Returns how many of these were sent, or an error. */
static int64_t send_some(struct fiber_writer *w, const void *data, size_t len, weft_time deadline)
{
    int count, n = fiber_check();
    uint64_t queued;

    if (n == 0 && !w->refused)
        n = w->error;
    if (n < 0)
        return n;
    close_piece(w);
    count = w->count;
    len = ring__length(len);
    if (len > 0)
        w->pieces[count++] = (struct iovec){(void *)(uintptr_t)data, len};
    w->busy = true;
    show_room(w);
    n = w->sink != NULL ? w->sink(w->ctx, w->pieces, count, deadline)
                        : write_descriptor(w, w->pieces, count, deadline);
    w->busy = false;
    queued = w->queued;
    if (n > 0 && (uint64_t)n <= queued + len) {
        drop(w, (uint64_t)n < queued ? (size_t)n : (size_t)queued);
    } else {
        n = n >= 0 ? -EIO : n;
        if (!fiber__is_passing(n, deadline))
            set_error(w, n, false);
    }
    show_room(w);
    return n < 0 ? n : (uint64_t)n > queued ? n - (int64_t)queued : 0;
}

int fiber_writer_flush(struct fiber_writer *w, weft_time deadline)
{
    int rc = may_write(w);

    if (rc < 0 && (rc != w->error || !w->refused))
        return rc;
    while (fiber_writer_pending(w) > 0) {
        int64_t sent = send_some(w, NULL, 0, deadline);

        if (sent < 0)
            return (int)sent;
    }
    return w->refused ? w->error : 0;
}

/* ---- writing ---- */

/* Makes room for `len` bytes, which the buffer can hold. May write, says may_write. */
static int make_room(struct fiber_writer *w, size_t len, weft_time deadline)
{
    int64_t rc = 0;

    while (rc >= 0 && (size_t)(w->limit - w->at) < len) {
        move_to_base(w);
        if ((size_t)(w->limit - w->at) < len)
            rc = send_some(w, NULL, 0, deadline);
    }
    return rc < 0 ? (int)rc : 0;
}

int fiber_writer_write(struct fiber_writer *w, const void *data, size_t len, size_t *done,
                       weft_time deadline)
{
    const unsigned char *rest = data;
    size_t left = len;
    int64_t rc;

    if (done != NULL)
        *done = 0;
    rc = may_write(w);
    if (rc < 0)
        return (int)rc;
    if (data == NULL && len > 0)
        return refuse(w, -EFAULT);
    /* What has no room is sent together with what waits, until the rest has room. */
    while (rc >= 0 && left > (size_t)(w->limit - w->at)) {
        move_to_base(w);
        if (left <= (size_t)(w->limit - w->at))
            break;
        rc = send_some(w, rest, left, deadline);
        if (rc > 0) {
            rest += rc;
            left -= (size_t)rc;
        }
    }
    if (rc >= 0) {
        if (left > 0)
            memcpy(w->at, rest, left);
        w->at += left;
        left = 0;
    }
    if (done != NULL)
        *done = len - left;
    return rc < 0 ? refuse(w, (int)rc) : 0;
}

int fiber_writer_string(struct fiber_writer *w, const char *text, weft_time deadline)
{
    return fiber_writer_write(w, text, text != NULL ? strlen(text) : 1, NULL, deadline);
}

int fiber_writer_vprintf(struct fiber_writer *w, weft_time deadline, const char *format,
                         va_list args)
{
    size_t room;
    va_list again;
    int rc = may_write(w), len;

    if (rc < 0)
        return rc;
    if (format == NULL)
        return refuse(w, -EFAULT);
    room = (size_t)(w->limit - w->at);
    va_copy(again, args);
    len = vsnprintf((char *)w->at, room, format, args);
    if (len < 0)
        rc = -EINVAL;
    else if ((size_t)len >= w->size)
        rc = -EMSGSIZE;
    else if ((size_t)len >= room && (rc = make_room(w, (size_t)len + 1, deadline)) == 0)
        len = vsnprintf((char *)w->at, (size_t)len + 1, format, again);
    va_end(again);
    if (rc < 0)
        return refuse(w, rc);
    w->at += len;
    return 0;
}

int fiber_writer_printf(struct fiber_writer *w, weft_time deadline, const char *format, ...)
{
    va_list args;
    int rc;

    va_start(args, format);
    rc = fiber_writer_vprintf(w, deadline, format, args);
    va_end(args);
    return rc;
}

int fiber_writer_schedule(struct fiber_writer *w, const void *data, size_t len, weft_time deadline)
{
    int64_t rc = may_write(w);

    if (rc < 0 || len == 0)
        return (int)rc;
    if (data == NULL)
        return refuse(w, -EFAULT);
    if (len > SSIZE_MAX)
        return refuse(w, -EINVAL);
    while (w->count + (w->at > w->loose) >= FIBER_WRITER_PIECES) {
        rc = send_some(w, NULL, 0, deadline);
        if (rc < 0)
            return refuse(w, (int)rc);
    }
    close_piece(w);
    w->pieces[w->count++] = (struct iovec){(void *)(uintptr_t)data, len};
    w->queued += len;
    return 0;
}

int fiber_writer_reserve(struct fiber_writer *w, size_t len, void **room, weft_time deadline)
{
    int rc = may_write(w);

    if (rc < 0)
        return rc;
    rc = room == NULL ? -EFAULT : len > w->size ? -EMSGSIZE : make_room(w, len, deadline);
    if (rc < 0)
        return refuse(w, rc);
    *room = w->at;
    return 0;
}
