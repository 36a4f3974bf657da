/* pipe.c: the pipe that a file goes through on its way to a socket. System calls that never wait. */
#include "ring_internal.h"

#include <sys/stat.h>
#include <unistd.h>

#define PIPE_SIZE ((size_t)64 << 10)  /* what a pipe holds by itself */
#define PIPE_MORE ((size_t)256 << 10) /* for longer files, if this user may have it */

int ring__sendfile_begin(int out, int in, size_t len, int64_t *offset, int pipe[2])
{
    int saved = errno, rc = 0;
    off_t position = lseek(in, 0, SEEK_CUR);
    struct stat about;

    if (position < 0 || fstat(out, &about) < 0)
        rc = -errno;
    else if (*offset < -1)
        rc = -EINVAL;
    else if (pipe2(pipe, O_CLOEXEC) < 0)
        rc = -errno;
    else if (len > PIPE_SIZE)
        (void)fcntl(pipe[1], F_SETPIPE_SZ, (int)PIPE_MORE);
    if (*offset == -1)
        *offset = position;
    errno = saved;
    if (rc < 0)
        return rc;
    return S_ISREG(about.st_mode) || S_ISBLK(about.st_mode) ? 0 : (int)RING__FROM_PIPE;
}

void ring__sendfile_end(int in, int64_t offset, int64_t end, const int pipe[2])
{
    int saved = errno;

    ring__close(weft__rt, pipe[0]);
    ring__close(weft__rt, pipe[1]);
    if (offset == -1)
        lseek(in, end, SEEK_SET);
    errno = saved;
}
