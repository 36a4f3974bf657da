/* axboe/liburing#705: as long as new operations were handed over, completions that had not found room in
 * the completion queue were never moved into it.
 *
 * Operations that begin themselves again, far more than the smallest queue has room for, keep the engine
 * busy; each of them goes on completing, and so does one that came before the crowd.
 */
#include "io_support.h"
#include "ring_internal.h"

#include <criterion/criterion.h>

#define CROWD 100
#define EACH  50

struct member {
    struct ring_op op;
    int completed;
};

static struct member crowd[CROWD];
static int over;

static void again(struct ring_op *op, int res, unsigned flags)
{
    struct member *m = weft__container(op, struct member, op);

    cr_assert(res == 0 && flags == 0);
    m->completed++;
    over += m->completed == EACH;
    if (over < CROWD) /* also those that have done their part: nobody gets a pause */
        cr_assert_eq(ring_nop(op), 0);
}

static void crowd_body(void)
{
    struct kept first;
    int pair[2], turns = 0;
    char buf[4];

    make_pair(pair);
    over = 0;
    cr_assert_eq(ring_recv(&keep(&first)->op, pair[0], buf, sizeof buf, 0), 0);
    for (int i = 0; i < CROWD; i++) {
        crowd[i].completed = 0;
        crowd[i].op.done = again;
        cr_assert_eq(ring_nop(&crowd[i].op), 0);
    }
    cr_assert_eq(write(pair[1], "here", 4), 4);
    for (; over < CROWD; turns++) {
        cr_assert_lt(turns, 100000, "some never complete: %d of %d have", over, CROWD);
        turn();
    }
    cr_assert_eq(first.calls, 1, "the crowd kept out who came first");
    cr_assert_eq(first.res, 4);
    while (weft__rt->engine->in_flight > 0)
        turn();
    close_pair(pair);
}

Test(liburing_705, submissions_do_not_keep_completions_out)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, crowd_body), 0, "%s", setup->name);
    }
}
