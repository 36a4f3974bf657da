/* yield_ring.h: a yield without a library, whatever the switch: an array of strands and a position in it.
 * Who includes this has defined struct strand, which is placed at the top of its own stack (slab.h).
 *
 * The loop's state is reached through a global pointer that is read anew after each switch. A
 * static struct might be kept in registers across the switch; a pointer in a local variable comes
 * back from the resumed stack, and then each switch would have to wait for the cache misses of the
 * last one.
 */
#ifndef BENCH_PEERS_YIELD_RING_H
#define BENCH_PEERS_YIELD_RING_H

#include "slab.h"
#include "yield.h"

struct ring {
    struct strand **at, **end, **first; /* some entries past the end repeat the first ones */
    struct strand outside;
    struct yield_plan plan;
};
#define RING_LOOKAHEAD 2

static struct ring *volatile the_ring;

static inline struct strand *ring_advance(struct ring *ring)
{
    if (++ring->at == ring->end)
        ring->at = ring->first;
    __builtin_prefetch(ring->at[1]);
    return *ring->at;
}

/* Makes the_ring of as many strands as the arguments say; prepare() makes one ready, whose stack is from
 * `low` to where the strand itself begins. */
static inline struct ring *ring_create(int argc, char **argv,
                                       void (*prepare)(struct strand *strand, char *low))
{
    struct ring *ring = calloc(1, sizeof(*ring));
    char *slab;

    if (ring == NULL)
        bench_die("out of memory");
    yield_plan_read(&ring->plan, argc, argv);
    the_ring = ring;
    slab = slab_create(ring->plan.fibers);
    ring->first = calloc((size_t)ring->plan.fibers + RING_LOOKAHEAD, sizeof(*ring->first));
    if (slab == NULL || ring->first == NULL)
        yield_skip("no memory for the stacks");

    for (long i = 0; i < ring->plan.fibers; i++) {
        ring->first[i] = (struct strand *)(void *)slab_top(slab, i, sizeof(struct strand));
        prepare(ring->first[i], slab_low(slab, i));
    }
    for (long i = 0; i < RING_LOOKAHEAD; i++)
        ring->first[ring->plan.fibers + i] = ring->first[i % ring->plan.fibers];
    ring->at = ring->first;
    ring->end = ring->first + ring->plan.fibers;
    return ring;
}

#endif
