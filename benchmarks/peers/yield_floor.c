/* yield_floor.c: what a yield costs without any library: the floor.
 *
 * An array of contexts and a position in it; a yield takes the next one, prefetches the one after
 * and switches with weft's own native switch function. There is no queue, no state of a fiber, no
 * end of a pass, nobody to poll. Stacks are laid out as weft's (slab.h).
 *
 * The loop's state is reached through a global pointer that is read anew after each switch. A
 * static struct might be kept in registers across the switch; a pointer in a local variable comes
 * back from the resumed stack, and then each switch would have to wait for the cache misses of the
 * last one.
 *
 * A yield is a function, not inlined, as every library's is. (For this switch that makes no
 * difference; for one that doesn't keep calls and returns paired, see yield_fcontext.c, it makes
 * most of the cost.)
 *
 * A lone context switches to itself: all of the switch's work, and none of its cache misses. (A
 * library may be below that, if it sees that there is nobody to switch to.)
 */
#include "slab.h"
#include "yield.h"

#include "context.h"

struct strand {
    struct context context;
};

struct ring {
    struct strand **at, **end, **first; /* some entries past the end repeat the first ones */
    struct context outside;
    struct yield_plan plan;
};
#define LOOKAHEAD 2

static struct ring *volatile the_ring;

static inline struct strand *advance(struct ring *ring)
{
    if (++ring->at == ring->end)
        ring->at = ring->first;
    __builtin_prefetch(ring->at[1]);
    return *ring->at;
}

static __attribute__((noinline)) void give_way(void)
{
    struct ring *ring = the_ring;
    struct strand *self = *ring->at;

    context_switch(&self->context, &advance(ring)->context, 0);
}

static struct context_next fiber_main(void *arg)
{
    struct ring *ring = arg;
    struct strand *self;

    context_entered();
    YIELD_FIBER(&ring->plan, give_way());
    self = *ring->at;
    if (ring->plan.finished == ring->plan.fibers)
        return context_leave(&self->context, &ring->outside, 0);
    return context_leave(&self->context, &advance(ring)->context, 0);
}

int main(int argc, char **argv)
{
    struct ring *ring = calloc(1, sizeof(*ring));
    char *slab;

    if (ring == NULL)
        bench_die("out of memory");
    yield_plan_read(&ring->plan, argc, argv);
    the_ring = ring;
    slab = slab_create(ring->plan.fibers);
    ring->first = calloc((size_t)ring->plan.fibers + LOOKAHEAD, sizeof(*ring->first));
    if (slab == NULL || ring->first == NULL)
        yield_skip("no memory for the stacks");

    for (long i = 0; i < ring->plan.fibers; i++) {
        void *top = slab_top(slab, i, sizeof(struct strand));

        ring->first[i] = top;
        context_init(&ring->first[i]->context, slab_low(slab, i), top, fiber_main, ring);
    }
    for (long i = 0; i < LOOKAHEAD; i++)
        ring->first[ring->plan.fibers + i] = ring->first[i % ring->plan.fibers];
    ring->at = ring->first;
    ring->end = ring->first + ring->plan.fibers;
    context_switch(&ring->outside, &ring->first[0]->context, 0);
    return yield_plan_print(&ring->plan);
}
