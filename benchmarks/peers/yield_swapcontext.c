/* yield_swapcontext.c: what a yield costs with swapcontext(3) and no library.
 *
 * The floor's loop (yield_floor.c) on the same stacks with the C library's switch, which saves and
 * restores the signal mask with a system call each time.
 */
#include <ucontext.h>

struct strand {
    ucontext_t context;
};

#include "yield_ring.h"

static __attribute__((noinline)) void give_way(void)
{
    struct ring *ring = the_ring;
    struct strand *self = *ring->at;

    swapcontext(&self->context, &ring_advance(ring)->context);
}

static void fiber_main(void)
{
    struct ring *ring = the_ring;

    YIELD_FIBER(&ring->plan, give_way());
    if (ring->plan.finished == ring->plan.fibers)
        setcontext(&ring->outside.context);
    setcontext(&ring_advance(ring)->context);
}

static void prepare(struct strand *strand, char *low)
{
    ucontext_t *context = &strand->context;

    if (getcontext(context) != 0)
        bench_die("getcontext failed");
    context->uc_stack.ss_sp = low;
    context->uc_stack.ss_size = (size_t)((char *)strand - low);
    context->uc_link = NULL;
    makecontext(context, fiber_main, 0);
}

int main(int argc, char **argv)
{
    struct ring *ring = ring_create(argc, argv, prepare);

    swapcontext(&ring->outside.context, &ring->first[0]->context);
    return yield_plan_print(&ring->plan);
}
