/* needs: fibers */
/* tokio-rs/tokio-uring#129 (and 207): an accept was given up after it had begun; the kernel accepted a
 * connection later, and nobody closed its descriptor.
 *
 * Clients connect at each point of an accept that is cancelled, or whose promise is dropped: either the
 * descriptor is told, or the connection is still in the listener's queue, or it is closed. */
#include "fiber_internal.h"
#include "io_support.h"
#include "ring_internal.h"

#include <weft/io.h>
#include <weft/promise.h>

#include <criterion/criterion.h>

struct acceptor {
    struct fiber *self;
    int listener, result;
    bool ended;
};

static int64_t accept_fiber(void *arg)
{
    struct acceptor *a = arg;

    a->self = fiber_self();
    a->result = fiber_accept(a->listener, NULL, NULL, 0, WEFT_FOREVER);
    a->ended = true;
    return 0;
}

static int rounds;

/* A client that connects at each point of a cancelled accept's life. */
static int race_main(void *unused)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[64];
    int before, won = 0;
    struct acceptor a;
    socklen_t len;

    (void)unused;
    snprintf(name, sizeof name, "@weft-race-%d", (int)getpid());
    len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    strcpy(address.sun_path, name);
    address.sun_path[0] = '\0';
    a.listener = ring_listen_unix(name, 16);
    cr_assert(a.listener >= 0);
    before = open_descriptors();
    for (int i = 0; i < rounds; i++) {
        int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        a.ended = false;
        cr_assert_eq(fiber_detach(accept_fiber, &a), 0);
        fiber_yield();
        if (i % 2)
            fiber_nop(WEFT_FOREVER);
        if (i % 3 == 0)
            cr_assert_eq(connect(client, (struct sockaddr *)&address, len), 0);
        fiber__cancel(weft__rt, a.self);
        if (i % 3 == 1)
            cr_assert_eq(connect(client, (struct sockaddr *)&address, len), 0);
        while (!a.ended)
            fiber_yield();
        if (a.result >= 0) {
            won++;
            close(a.result);
        } else {
            cr_assert_eq(a.result, -ECANCELED);
            if (i % 3 != 2) { /* it is still in the listener's queue */
                int fd = fiber_accept(a.listener, NULL, NULL, 0, WEFT_NOWAIT);

                cr_assert(fd >= 0, "%d: %d", i, fd);
                close(fd);
            }
        }
        close(client);
    }
    cr_assert_eq(open_descriptors(), before);
    close(a.listener);
    return won > 0 ? 0 : -1;
}

Test(tokio_uring_129, accept_races_cancel, .timeout = 300)
{
    rounds = slow_tools() ? 1000 : 10000;
    run_on_each_io_setup(race_main);
}

/* The same as promises that are dropped: what comes for nobody is closed. */
static int dropped_main(void *unused)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int before = open_descriptors(), listener;
    char name[64];
    socklen_t len;

    (void)unused;
    snprintf(name, sizeof name, "@weft-drop-%d", (int)getpid());
    len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    strcpy(address.sun_path, name);
    address.sun_path[0] = '\0';
    listener = ring_listen_unix(name, 16);
    for (int i = 0; i < rounds; i++) {
        struct promise *p = promise_accept(listener, NULL, NULL, 0, WEFT_FOREVER);
        int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), fd;

        if (i % 2)
            fiber_nop(WEFT_FOREVER);
        if (i % 4 == 3)
            promise_cancel(p);
        promise_unref(p);
        cr_assert_eq(connect(client, (struct sockaddr *)&address, len), 0);
        while (weft__rt->engine->in_flight > 0)
            fiber_nop(WEFT_FOREVER);
        fd = fiber_accept(listener, NULL, NULL, 0, WEFT_NOWAIT);
        cr_assert(fd >= 0 || fd == -ETIMEDOUT);
        if (fd >= 0)
            close(fd);
        close(client);
    }
    close(listener);
    while (weft__rt->engine->in_flight > 0)
        fiber_nop(WEFT_FOREVER);
    cr_assert_eq(open_descriptors(), before);
    return 0;
}

Test(tokio_uring_129, a_connection_for_nobody_is_closed, .timeout = 300)
{
    rounds = slow_tools() ? 200 : 2000;
    run_on_each_io_setup(dropped_main);
}
