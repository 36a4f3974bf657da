/* reader_fiber.c: reading through a buffer.
 *
 * What is buffered is [at, end) of [base, base + size). Invariants:
 *   - A byte leaves the buffer only in the call that gives it to the caller. What ends a wait early
 *     takes nothing, so the next call finds everything that has come.
 *   - While a fiber waits in the source, at == end: the inline functions find nothing and come
 *     here, where the second fiber is told -EBUSY.
 *   - Before the source is asked for more, what is buffered is moved to the base: the free room is
 *     one piece, and as large as can be. That costs one move of a token at most, for until it is
 *     taken it lies at the base.
 */
#include <weft/buffered.h>

#include "buffered_fiber.h"

#include <string.h>

static int init(struct fiber_reader *r, void *buf, size_t size)
{
    if (r == NULL || buf == NULL)
        return -EFAULT;
    if (size == 0 || size > INT_MAX)
        return -EINVAL;
    memset(r, 0, sizeof *r);
    r->base = r->at = r->end = buf;
    r->size = size;
    r->offset = -1;
    r->fd = -1;
    return 0;
}

int fiber_reader_init(struct fiber_reader *r, int fd, int64_t offset, void *buf, size_t size)
{
    int rc = offset < -1 ? -EINVAL : init(r, buf, size);

    if (rc == 0) {
        r->fd = fd;
        r->offset = offset;
        r->kind = offset < 0 ? FIBER__SOCKET_OR_FILE : FIBER__FILE;
    }
    return rc;
}

int fiber_reader_init_source(struct fiber_reader *r, fiber_source_fn *source, void *ctx, void *buf,
                             size_t size)
{
    int rc = source == NULL ? -EFAULT : init(r, buf, size);

    if (rc == 0) {
        r->source = source;
        r->ctx = ctx;
    }
    return rc;
}

int fiber_reader_finish(struct fiber_reader *r)
{
    int left = (int)(r->end - r->at);

    if (r->busy)
        return -EBUSY;
    r->at = r->end = r->base;
    r->size = 0;
    return left;
}

void fiber_reader_tie(struct fiber_reader *r, struct fiber_writer *writer)
{
    r->tied = writer;
}

int fiber_reader_clear(struct fiber_reader *r)
{
    int status = r->status;

    r->status = 0;
    return status;
}

/* ---- asking the source ---- */

static inline size_t buffered(const struct fiber_reader *r)
{
    return (size_t)(r->end - r->at);
}

/* Whether the source can be asked for more: 0, or why not. */
static int may_ask(const struct fiber_reader *r)
{
    if (r->busy)
        return -EBUSY;
    if (r->size == 0)
        return -EINVAL;
    return r->status != 0 ? r->status : fiber_check();
}

static int read_file(struct fiber_reader *r, void *buf, size_t len, weft_time deadline)
{
    int n = fiber_read(r->fd, buf, len, r->offset, deadline);

    if (n > 0 && r->offset >= 0)
        r->offset += n;
    return n;
}

/* When the descriptor is closed between what it brings and this fiber's turn, that is the end of it: the
 * number may be another file's. */
static int read_descriptor(struct fiber_reader *r, void *buf, size_t len, weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    struct ring__hold hold;
    int n = -ENOTSOCK;

    ring__hold(rt, &hold, r->fd);
    if (r->kind != FIBER__FILE)
        n = fiber_recv(r->fd, buf, len, 0, deadline);
    if (n == -ENOTSOCK && !hold.closed) {
        r->kind = FIBER__FILE;
        n = read_file(r, buf, len, deadline);
    }
    if (ring__let_go(rt, &hold)) {
        r->status = -ECANCELED;
        if (n < 0)
            n = -ECANCELED;
    }
    return n;
}

/* One read of the source into memory that is not in use. Returns the bytes, -ENODATA at the end, or
 * its error. May be asked, says may_ask. */
static int ask(struct fiber_reader *r, void *buf, size_t len, weft_time deadline)
{
    unsigned char *at = r->at;
    int n;

    r->at = r->end;
    r->busy = true;
    if (r->tied != NULL && fiber_writer_pending(r->tied) > 0)
        (void)fiber_writer_flush(r->tied, deadline);
    len = ring__length(len);
    n = r->source != NULL ? r->source(r->ctx, buf, len, deadline)
                          : read_descriptor(r, buf, len, deadline);
    r->busy = false;
    r->at = at;
    if (n > 0 && (size_t)n <= len) {
        r->received += (uint64_t)n;
        return n;
    }
    n = n == 0 ? -ENODATA : n > 0 ? -EIO : n;
    if (!fiber__is_passing(n, deadline))
        r->status = n;
    return n;
}

static void move_to_base(struct fiber_reader *r)
{
    size_t len = buffered(r);

    if (r->at != r->base) {
        memmove(r->base, r->at, len);
        r->at = r->base;
        r->end = r->base + len;
    }
}

/* Gets more into the buffer, which isn't full. Returns 0, -ENODATA at the end, or an error. */
static int fill(struct fiber_reader *r, weft_time deadline)
{
    int n = may_ask(r);

    if (n < 0)
        return n;
    move_to_base(r);
    n = ask(r, r->end, r->size - buffered(r), deadline);
    if (n < 0)
        return n;
    r->end += n;
    return 0;
}

/* Gets so much into the buffer that there are `len` bytes, which it can hold. */
static int need(struct fiber_reader *r, size_t len, weft_time deadline)
{
    int rc = 0;

    while (rc == 0 && buffered(r) < len)
        rc = fill(r, deadline);
    return rc;
}

/* ---- so many bytes ---- */

/* Moves up to `len` buffered bytes; how many. */
static size_t take(struct fiber_reader *r, void *buf, size_t len)
{
    if (len > buffered(r))
        len = buffered(r);
    if (len > 0)
        memcpy(buf, r->at, len);
    r->at += len;
    return len;
}

int fiber_reader_read(struct fiber_reader *r, void *buf, size_t len, weft_time deadline)
{
    int rc;

    if (len == 0)
        return 0;
    if (buf == NULL)
        return -EFAULT;
    if (buffered(r) == 0) {
        if (len < r->size) {
            rc = fill(r, deadline);
        } else {
            rc = may_ask(r);
            if (rc == 0)
                rc = ask(r, buf, len, deadline);
        }
        if (rc != 0)
            return rc == -ENODATA ? 0 : rc;
    }
    return (int)take(r, buf, len);
}

int fiber_reader_read_all(struct fiber_reader *r, void *buf, size_t len, size_t *done,
                          weft_time deadline)
{
    size_t moved = 0;
    int rc = buf == NULL && len > 0 ? -EFAULT : 0;

    /* As long as the rest is longer than the buffer, past it. */
    while (rc >= 0 && len - moved > r->size) {
        if (buffered(r) > 0) {
            moved += take(r, (char *)buf + moved, len - moved);
            continue;
        }
        rc = may_ask(r);
        if (rc == 0)
            rc = ask(r, (char *)buf + moved, len - moved, deadline);
        if (rc > 0)
            moved += (size_t)rc;
    }
    if (rc >= 0)
        rc = need(r, len - moved, deadline);
    if (rc >= 0)
        moved += take(r, (char *)buf + moved, len - moved);
    if (done != NULL)
        *done = moved;
    return rc < 0 ? rc : 0;
}

int fiber_reader_read_rest(struct fiber_reader *r, void *buf, size_t size, size_t *done,
                           weft_time deadline)
{
    size_t moved;
    int rc;

    if (done == NULL || (buf == NULL && size > 0))
        return -EFAULT;
    moved = take(r, buf, size);
    while (moved < size) {
        rc = may_ask(r);
        if (rc == 0)
            rc = ask(r, (char *)buf + moved, size - moved, deadline);
        if (rc < 0) {
            *done = moved;
            return rc == -ENODATA ? 0 : rc;
        }
        moved += (size_t)rc;
    }
    *done = moved;
    rc = need(r, 1, deadline);
    return rc == 0 ? -EMSGSIZE : rc == -ENODATA ? 0 : rc;
}

int fiber_reader_peek(struct fiber_reader *r, size_t len, const void **data, weft_time deadline)
{
    int rc = len <= r->size || r->size == 0 ? need(r, len, deadline) : -EMSGSIZE;

    if (rc == 0 && data != NULL)
        *data = r->at;
    return rc;
}

int fiber_reader_skip(struct fiber_reader *r, uint64_t len, uint64_t *done, weft_time deadline)
{
    uint64_t moved = 0;
    int rc = 0;

    while (moved < len && (rc = need(r, 1, deadline)) == 0) {
        size_t n = len - moved < buffered(r) ? (size_t)(len - moved) : buffered(r);

        r->at += n;
        moved += n;
    }
    if (done != NULL)
        *done = moved;
    return rc;
}

/* ---- tokens ---- */

/* Takes a token of `len` bytes and the `more` behind it; its length. */
static int take_token(struct fiber_reader *r, size_t len, size_t more, char **token)
{
    if (token != NULL)
        *token = (char *)r->at;
    r->at += len + more;
    return (int)len;
}

/* The same with a NUL in the first byte behind it. */
static int take_text(struct fiber_reader *r, size_t len, size_t more, char **token)
{
    r->at[len] = '\0';
    return take_token(r, len, more, token);
}

/* A token's length has a limit, the caller's or the buffer's. */
static size_t limit(const struct fiber_reader *r, size_t max)
{
    return max == 0 || max > r->size ? r->size : max;
}

int fiber_reader_line(struct fiber_reader *r, size_t max, char **token, weft_time deadline)
{
    size_t seen = 0, have;
    int rc;

    for (max = limit(r, max);; seen = have) {
        const unsigned char *lf;

        have = buffered(r);
        lf = have > seen ? memchr(r->at + seen, '\n', have - seen) : NULL;
        if (lf != NULL) {
            size_t len = (size_t)(lf - r->at), ending = 1;

            if (len > 0 && lf[-1] == '\r') {
                len--;
                ending++;
            }
            return len > max ? -EMSGSIZE : take_text(r, len, ending, token);
        }
        /* One byte more than the limit may be the CR of its end. */
        if (have > max && (have > max + 1 || r->at[max] != '\r'))
            return -EMSGSIZE;
        if (have > 0 && have == r->size)
            return -EMSGSIZE;
        rc = fill(r, deadline);
        /* The end ends a line too. It came when there was room for more: for the NUL. */
        if (rc == -ENODATA && have > 0)
            return have > max ? -EMSGSIZE : take_text(r, have, 0, token);
        if (rc < 0)
            return rc;
    }
}

int fiber_reader_until(struct fiber_reader *r, const void *delimiter, size_t len, size_t max,
                       char **token, weft_time deadline)
{
    size_t seen = 0, have;
    int rc;

    if (delimiter == NULL)
        return -EFAULT;
    if (len == 0)
        return -EINVAL;
    for (max = limit(r, max);; seen = have < len ? 0 : have - (len - 1)) {
        const unsigned char *found;

        have = buffered(r);
        found = have > seen ? memmem(r->at + seen, have - seen, delimiter, len) : NULL;
        if (found != NULL) {
            if ((size_t)(found - r->at) > max)
                return -EMSGSIZE;
            return take_text(r, (size_t)(found - r->at), len, token);
        }
        /* Where it isn't yet, it may begin with the last len - 1 bytes at the earliest. */
        if ((have >= len && have - (len - 1) > max) || (have > 0 && have == r->size))
            return -EMSGSIZE;
        rc = fill(r, deadline);
        if (rc < 0)
            return rc;
    }
}

int fiber_reader_take_while(struct fiber_reader *r, int (*matches)(int byte), size_t max,
                            char **token, weft_time deadline)
{
    size_t len = 0;
    int rc;

    if (matches == NULL)
        return -EFAULT;
    for (max = limit(r, max);;) {
        while (len < buffered(r) && matches(r->at[len])) {
            if (len++ == max)
                return -EMSGSIZE;
        }
        if (len < buffered(r))
            return take_token(r, len, 0, token);
        if (len > 0 && len == r->size)
            return -EMSGSIZE;
        rc = fill(r, deadline);
        if (rc < 0)
            return rc == -ENODATA && len > 0 ? take_token(r, len, 0, token) : rc;
    }
}

int fiber_reader_skip_while(struct fiber_reader *r, int (*matches)(int byte), uint64_t *done,
                            weft_time deadline)
{
    uint64_t skipped = 0;
    int rc = matches == NULL ? -EFAULT : 0;

    while (rc == 0 && (rc = need(r, 1, deadline)) == 0 && matches(*r->at)) {
        r->at++;
        skipped++;
    }
    if (done != NULL)
        *done = skipped;
    return rc;
}
