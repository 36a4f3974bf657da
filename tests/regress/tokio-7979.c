/* needs: fibers */
/* tokio-rs/tokio#7979: an open that is cancelled may succeed all the same; the descriptor it made was
 * dropped and never closed.
 *
 * O_CREAT makes the kernel open the file on a worker, so that cancels come before, while and after; what
 * is opened for nobody is closed, and what is opened in time is told.
 */
#include "fiber_internal.h"
#include "io_support.h"
#include "ring_internal.h"

#include <weft/io.h>
#include <weft/promise.h>

#include <criterion/criterion.h>

static char path[64];

struct opener {
    struct fiber *self;
    weft_time deadline;
    int result;
};

static int64_t open_file(void *arg)
{
    struct opener *o = arg;

    o->self = fiber_self();
    o->result = fiber_openat(AT_FDCWD, path, O_RDWR | O_CREAT, 0600, o->deadline);
    return 0;
}

static void wait_a_while(int i)
{
    if (i % 3 == 1)
        fiber_yield();
    else if (i % 3 == 2)
        fiber_nop(WEFT_FOREVER);
}

static void close_if_made(int result)
{
    cr_assert(result >= 0 || result == -ECANCELED || result == -ETIMEDOUT, "%d", result);
    if (result >= 0)
        cr_assert_eq(close(result), 0);
}

static int open_main(void *unused)
{
    int rounds = slow_tools() ? 200 : 1000, before = open_descriptors();

    (void)unused;
    for (int i = 0; i < rounds; i++) {
        struct opener o = {.deadline = i % 2 ? WEFT_FOREVER : WEFT_NOWAIT};
        struct promise *fiber = fiber_spawn(open_file, &o), *kept, *dropped, *made;
        union weft_value value;
        int rc;

        kept = promise_openat(AT_FDCWD, path, O_RDWR | O_CREAT, 0600, WEFT_FOREVER);
        dropped = promise_openat(AT_FDCWD, path, O_RDWR | O_CREAT, 0600, WEFT_FOREVER);
        made = promise_socket(AF_INET, SOCK_STREAM, 0, WEFT_FOREVER);
        fiber_yield();
        wait_a_while(i);
        if (o.deadline == WEFT_FOREVER)
            promise_cancel(fiber);
        promise_cancel(kept);
        if (promise_state(dropped) == PROMISE_FULFILLED)
            close_if_made(fiber_await(promise_ref(dropped), &value, WEFT_FOREVER) == 0
                              ? (int)value.num
                              : -ECANCELED);
        promise_unref(dropped);
        if (promise_poll(made, &value, NULL) == PROMISE_FULFILLED)
            close_if_made((int)value.num);
        promise_unref(made);
        cr_assert_eq(fiber_await(fiber, NULL, WEFT_FOREVER), 0);
        close_if_made(o.result);
        rc = fiber_await(kept, &value, WEFT_FOREVER);
        close_if_made(rc < 0 ? rc : (int)value.num);
    }
    while (weft__rt->engine->in_flight > 0)
        fiber_nop(WEFT_FOREVER);
    cr_assert_eq(open_descriptors(), before);
    return 0;
}

Test(tokio_7979, a_cancelled_open_leaves_no_descriptor, .timeout = 300)
{
    snprintf(path, sizeof path, "/tmp/weft-7979-%d", (int)getpid());
    run_on_each_io_setup(open_main);
    unlink(path);
}
