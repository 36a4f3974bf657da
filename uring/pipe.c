/* pipe.c: the pipe that a file goes through on its way to a socket. System calls that never wait. */
#include "ring_internal.h"

#include <sys/stat.h>
#include <unistd.h>

#define PIPE_SIZE ((size_t)64 << 10)  /* what a pipe holds by itself */
#define PIPE_MORE ((size_t)256 << 10) /* for longer files, if this user may have it */

int ring__sendfile_begin(struct weft_runtime *rt, struct ring__sendfile *s, int out, int in,
                         int64_t offset, size_t len)
{
    int saved = errno, rc = 0;
    off_t position = lseek(in, 0, SEEK_CUR);
    struct stat about;

    if (position < 0 || fstat(out, &about) < 0)
        rc = -errno;
    else if (offset < -1)
        rc = -EINVAL;
    else if (pipe2(s->pipe, O_CLOEXEC) < 0)
        rc = -errno;
    else if (len > PIPE_SIZE)
        (void)fcntl(s->pipe[1], F_SETPIPE_SZ, (int)PIPE_MORE);
    errno = saved;
    if (rc < 0)
        return rc;
    s->how = S_ISREG(about.st_mode) || S_ISBLK(about.st_mode) ? 0 : RING__FROM_PIPE;
    s->offset = offset;
    s->from = offset == -1 ? position : offset;
    ring__hold(rt, &s->out, out);
    ring__hold(rt, &s->in, in);
    return 0;
}

int ring__sendfile_prepare(struct weft_runtime *rt, const struct ring__sendfile *s,
                           struct ring_op *op, size_t moved, size_t filled, size_t len)
{
    const struct ring__engine *engine = (const struct ring__engine *)(const void *)rt->engine;
    int rc;

    if (rt->engine->class->submit == NULL)
        return -ENOSYS;
    if (s->out.closed || s->in.closed)
        return -ECANCELED;
    if (filled > 0) {
        rc = ring__prepare_splice(op, s->pipe[0], -1, s->out.fd, -1, filled, 0);
        op->how |= s->how;
    } else {
        rc = ring__prepare_splice(op, s->in.fd, s->from + (int64_t)moved, s->pipe[1], -1, len, 0);
    }
    return rc == 0 && ring__is_closing(engine, op) ? -ECANCELED : rc;
}

void ring__sendfile_end(struct weft_runtime *rt, struct ring__sendfile *s, size_t moved)
{
    int saved = errno;

    ring__close(rt, s->pipe[0]);
    ring__close(rt, s->pipe[1]);
    ring__let_go(rt, &s->out);
    if (!ring__let_go(rt, &s->in) && s->offset == -1)
        lseek(s->in.fd, s->from + (int64_t)moved, SEEK_SET);
    errno = saved;
}
