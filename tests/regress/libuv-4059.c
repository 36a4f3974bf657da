/* needs: fibers */
/* libuv/libuv#4059, #3964: a file closed by the ring was not closed yet when its completion came: a
 * program just written was "text file busy".
 *
 * A program is written, closed in each of the ways there are, and executed at once.
 *
 * But with plain flags and COOP_TASKRUN one of the kernel's threads that has done a write puts the
 * completion into the queue first and lets go of the file a moment later (io_req_complete_post): there the
 * file may be busy for that long, however it is closed.
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
static bool may_lag;

static void close_in_the_ring(void *fd)
{
    cr_assert_eq(ring_close(&keep(&raw)->op, (int)(intptr_t)fd), 0);
}

static int write_main(void *unused)
{
    int rc;

    (void)unused;
    for (int i = 0; i < 12; i++) {
        int fd = fiber_openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0700, WEFT_FOREVER);

        cr_assert(fd >= 0, "%d", fd);
        cr_assert_eq(fiber_write_all(fd, program, program_size, -1, NULL, WEFT_FOREVER), 0);
        switch (i % 3) {
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
    EACH_IO_SETUP(setup)
    {
        may_lag = setup->flags == WEFT_RING_PLAIN || setup->flags == WEFT_RING_COOP;
        cr_assert_eq(run_on(setup, write_main, NULL), 0, "%s: %s", setup->name, report_text());
    }
    free(program);
}
