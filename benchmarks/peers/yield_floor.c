/* yield_floor.c: what a yield costs without any library: the floor.
 *
 * An array of contexts and a position in it; a yield takes the next one, prefetches the one after
 * and switches with weft's own native switch function. There is no queue, no state of a fiber, no
 * end of a pass, nobody to poll (yield_ring.h). Stacks are laid out as weft's (slab.h).
 *
 * A yield is a function, not inlined, as every library's is. (For this switch that makes no
 * difference; for one that doesn't keep calls and returns paired, see yield_fcontext.c, it makes
 * most of the cost.)
 *
 * A lone context switches to itself: all of the switch's work, and none of its cache misses. (A
 * library may be below that, if it sees that there is nobody to switch to.)
 */
#include "context.h"

struct strand {
    struct context context;
};

#include "yield_ring.h"

static __attribute__((noinline)) void give_way(void)
{
    struct ring *ring = the_ring;
    struct strand *self = *ring->at;

    context_switch(&self->context, &ring_advance(ring)->context, 0);
}

static struct context_next fiber_main(void *arg)
{
    struct ring *ring = arg;
    struct strand *self;

    context_entered();
    YIELD_FIBER(&ring->plan, give_way());
    self = *ring->at;
    if (ring->plan.finished == ring->plan.fibers)
        return context_leave(&self->context, &ring->outside.context, 0);
    return context_leave(&self->context, &ring_advance(ring)->context, 0);
}

static void prepare(struct strand *strand, char *low)
{
    context_init(&strand->context, low, strand, fiber_main, the_ring);
}

int main(int argc, char **argv)
{
    struct ring *ring = ring_create(argc, argv, prepare);

    context_switch(&ring->outside.context, &ring->first[0]->context, 0);
    return yield_plan_print(&ring->plan);
}
