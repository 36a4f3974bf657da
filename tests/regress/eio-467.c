/* needs: fibers */
/* ocaml-multicore/eio#467: all fibers were done, but a request for an operation's end was still in the ring
 * when it was taken down.
 *
 * Fibers that begin, are cancelled and end, up to the end of the runtime and beyond, time and again. */
#include "fiber_internal.h"
#include "io_support.h"

#include <weft/io.h>
#include <weft/promise.h>

#include <criterion/criterion.h>

static int listener;

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

/* Fibers that begin, are cancelled and end, up to the end of the runtime and beyond. */
static int flurry_main(void *unused)
{
    (void)unused;
    for (int i = 0; i < 50; i++) {
        struct acceptor a = {.listener = listener};

        cr_assert_eq(fiber_detach(accept_fiber, &a), 0);
        fiber_yield();
        fiber__cancel(weft__rt, a.self);
        if (i == 49)
            while (!a.ended)
                fiber_yield();
        else
            while (!a.ended)
                fiber_nop(WEFT_FOREVER);
    }
    return 0;
}

Test(eio_467, cancels_at_the_end)
{
    listener = ring_listen("127.0.0.1", "0", 4);
    for (int i = 0; i < 20; i++)
        run_on_each_io_setup(flurry_main);
    close(listener);
}
