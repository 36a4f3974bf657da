/* A request that the kernel cannot find when its end is asked for goes on, and its end must be asked
 * for again. Connecting to a local socket whose backlog is full is such a request: its descriptor is
 * always ready to be written to, so the kernel tries again and again, and between two tries the request
 * stands in no list. */
#include "io_support.h"
#include "ring_internal.h"

#include <criterion/criterion.h>

#define COUNT 40

static struct sockaddr_un address;
static socklen_t address_len;
static int listener, waiting[16], waiting_count;
static bool plain;

static void fill_backlog(void)
{
    char name[64];

    snprintf(name, sizeof name, "@weft-lost-%d", (int)getpid());
    listener = ring_listen_unix(name, 1);
    cr_assert(listener >= 0);
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, name, strlen(name));
    address.sun_path[0] = '\0';
    address_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    for (waiting_count = 0; waiting_count < 16; waiting_count++) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        if (connect(fd, (struct sockaddr *)&address, address_len) < 0) {
            cr_assert_eq(errno, EAGAIN);
            close(fd);
            return;
        }
        waiting[waiting_count] = fd;
    }
    cr_assert_fail("the backlog is never full");
}

static void free_backlog(void)
{
    for (int i = 0; i < waiting_count; i++)
        close(waiting[i]);
    close(listener);
}

static void cancels_body(void)
{
    struct kept op;

    for (int i = 0; i < COUNT; i++) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | (i % 4 == 3 ? SOCK_NONBLOCK : 0), 0);

        cr_assert_eq(ring_connect(&keep(&op)->op, fd, (struct sockaddr *)&address, address_len), 0);
        for (int turns = i % 3; turns > 0; turns--)
            weft__rt->engine->class->turn(weft__rt->engine, WEFT_NOWAIT);
        if (op.calls == 0)
            ring_cancel(&op.op);
        /* a non-blocking descriptor, and plain system calls, try twice */
        cr_assert(result_of(&op) == -ECANCELED || (op.res == -EAGAIN && (plain || i % 4 == 3)));
        close(fd);
    }
}

Test(lost_cancel, ends_all_the_same)
{
    fill_backlog();
    EACH_IO_SETUP(setup)
    {
        plain = setup->flags == SETUP_PLAIN;
        cr_assert_eq(run_by_hand(setup, cancels_body), 0, "%s", setup->name);
    }
    free_backlog();
}

/* The same at the end of the runtime. */
static struct kept left[COUNT];
static int left_fds[COUNT];

static void leave_body(void)
{
    for (int i = 0; i < COUNT; i++) {
        left_fds[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        cr_assert_eq(ring_connect(&keep(&left[i])->op, left_fds[i], (struct sockaddr *)&address,
                                  address_len),
                     0);
    }
}

Test(lost_cancel, ends_with_the_runtime)
{
    fill_backlog();
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, leave_body), 0, "%s", setup->name);
        for (int i = 0; i < COUNT; i++) {
            cr_assert_eq(left[i].calls, 1);
            cr_assert_eq(left[i].res, -ECANCELED, "%s: %d", setup->name, left[i].res);
            close(left_fds[i]);
        }
    }
    free_backlog();
}
