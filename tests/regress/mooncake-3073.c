/* kvcache-ai/Mooncake#3073: completions of a batch that had been given up were matched to the next one,
 * whose operations had the same addresses.
 *
 * Here one operation's memory is used again and again, the last use ended by a request for its end that
 * comes too late, in time, or together with the operation: each completion, and each such request, is of
 * the use it was meant for.
 */
#include "io_support.h"
#include "ring_internal.h"

#include <criterion/criterion.h>

static void reuse_body(void)
{
    struct ring__faults *faults = ring__faults(weft__rt);
    struct kept op;
    int pair[2], rounds = slow_tools() ? 300 : 3000;
    char buf[16];

    make_pair(pair);
    for (int i = 0; i < rounds; i++) {
        int len = 1 + i % 13;

        /* one whose end is asked for: before, while and after it is with the kernel */
        cr_assert_eq(ring_recv(&keep(&op)->op, pair[0], buf, sizeof buf, 0), 0);
        if (i % 3 == 1)
            cr_assert_eq(weft__rt->engine->class->turn(weft__rt->engine, WEFT_NOWAIT), 0);
        if (i % 3 == 2)
            cr_assert_eq(write(pair[1], "0123456789abc", (size_t)len), len);
        faults->no_room = i % 5 == 4 ? 3 : 0;
        ring_cancel(&op.op);
        cr_assert(result_of(&op) == -ECANCELED || op.res == len, "%d: %d", i, op.res);
        if (i % 3 == 2 && op.res == -ECANCELED)
            cr_assert_eq(recv(pair[0], buf, sizeof buf, MSG_DONTWAIT), len);

        /* and at the same place one that nobody ends */
        cr_assert_eq(ring_recv(&keep(&op)->op, pair[0], buf, sizeof buf, 0), 0);
        cr_assert_eq(weft__rt->engine->class->turn(weft__rt->engine, WEFT_NOWAIT), 0);
        cr_assert_eq(op.calls, 0, "%d: the end of the last one: %d", i, op.res);
        cr_assert_eq(write(pair[1], "0123456789abc", (size_t)len), len);
        cr_assert_eq(result_of(&op), len, "%d: %d", i, op.res);
    }
    close_pair(pair);
}

Test(mooncake_3073, each_completion_is_of_its_own_use)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, reuse_body), 0, "%s", setup->name);
    }
}
