/* needs: fibers */
/* libuv/libuv#4059, #3964: a file closed by the ring was not closed yet when its completion came: a
 * program just written was "text file busy".
 *
 * A program is written, closed in each of the ways there are, and executed at once.
 *
 * Written by the ring, too, but then the file may be busy for a moment more, however it is closed: one of
 * the kernel's threads that has done a write reports it first and lets go of the file a little later
 * (io_wq_free_work). That is the write's doing, not the close's, and on rings only.
 */
#include "fiber_internal.h"
#include "io_support.h"
#include "ring_internal.h"

#include <weft/io.h>
#include <weft/promise.h>

#include <criterion/criterion.h>
#include <sys/wait.h>

static char path[64], *program;
static size_t program_size;

static void load_program(void)
{
    int fd = open("/bin/true", O_RDONLY | O_CLOEXEC);
    struct stat about;

    cr_assert(fd >= 0 && fstat(fd, &about) == 0);
    program_size = (size_t)about.st_size;
    program = malloc(program_size);
    cr_assert_eq(read(fd, program, program_size), (ssize_t)program_size);
    close(fd);
}

static int run_program(void)
{
    pid_t child = vfork();
    int status;

    if (child == 0) {
        execl(path, path, (char *)NULL);
        _exit(errno);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static struct kept raw;

static void close_in_the_ring(void *fd)
{
    cr_assert_eq(ring_close(&keep(&raw)->op, (int)(intptr_t)fd), 0);
}

static void write_program(int fd, bool in_the_ring)
{
    if (in_the_ring)
        cr_assert_eq(fiber_write_all(fd, program, program_size, -1, NULL, WEFT_FOREVER), 0);
    else
        cr_assert_eq(write(fd, program, program_size), (ssize_t)program_size);
}

static void close_program(int fd, int how)
{
    switch (how) {
    case 0:
        cr_assert_eq(fiber_close(fd), 0);
        break;
    case 1:
        cr_assert_eq(fiber_await(promise_close(fd), NULL, WEFT_FOREVER), 0);
        break;
    default:
        close_in_the_ring((void *)(intptr_t)fd);
        while (raw.calls == 0)
            fiber_nop(WEFT_FOREVER);
        cr_assert_eq(raw.res, 0);
        break;
    }
    cr_assert_lt(fcntl(fd, F_GETFD), 0);
}

static int write_main(void *unused)
{
    bool on_ring = strcmp(weft_engine_name(), "uring") == 0;

    (void)unused;
    for (int i = 0; i < 24; i++) {
        bool in_the_ring = i % 2, may_lag = in_the_ring && on_ring;
        int rc, fd = fiber_openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0700, WEFT_FOREVER);

        cr_assert(fd >= 0, "%d", fd);
        write_program(fd, in_the_ring);
        close_program(fd, i % 3);
        rc = run_program();
        for (int n = 0; n < 1000 && may_lag && rc == ETXTBSY; n++) {
            fiber_nop(WEFT_FOREVER);
            rc = run_program();
        }
        cr_assert_eq(rc, 0, "%d: %s", i, strerror(rc));
        unlink(path);
    }
    return 0;
}

Test(libuv_4059, what_is_closed_can_be_executed)
{
    if (slow_tools())
        cr_skip_test("they follow the child, or forbid vfork");
    snprintf(path, sizeof path, "/tmp/weft-4059-%d", (int)getpid());
    load_program();
    run_on_each_io_setup(write_main);
    free(program);
}
