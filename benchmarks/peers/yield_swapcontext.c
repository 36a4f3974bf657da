/* yield_swapcontext.c: what a yield costs with swapcontext(3) and no library.
 *
 * The floor's loop (yield_floor.c) on the same stacks with the C library's switch, which saves and
 * restores the signal mask with a system call each time.
 */
#include "slab.h"
#include "yield.h"

#include <ucontext.h>

struct strand {
    ucontext_t context;
};

struct ring {
    struct strand **at, **end, **first; /* some entries past the end repeat the first ones */
    struct strand outside;
    struct yield_plan plan;
};
#define LOOKAHEAD 2

/* Read anew after each switch: yield_floor.c says why. */
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

    swapcontext(&self->context, &advance(ring)->context);
}

static void fiber_main(void)
{
    struct ring *ring = the_ring;

    YIELD_FIBER(&ring->plan, give_way());
    if (ring->plan.finished == ring->plan.fibers)
        setcontext(&ring->outside.context);
    setcontext(&advance(ring)->context);
}

int main(int argc, char **argv)
{
    struct ring *ring = calloc(1, sizeof(*ring));
    char *slab;

    if (ring == NULL)
        bench_die("out of memory");
    yield_plan_read(&ring->plan, argc, argv);
    slab = slab_create(ring->plan.fibers);
    ring->first = calloc((size_t)ring->plan.fibers + LOOKAHEAD, sizeof(*ring->first));
    if (slab == NULL || ring->first == NULL)
        yield_skip("no memory for the stacks");

    the_ring = ring;
    for (long i = 0; i < ring->plan.fibers; i++) {
        char *top = slab_top(slab, i, sizeof(struct strand));
        ucontext_t *context;

        ring->first[i] = (struct strand *)(void *)top;
        context = &ring->first[i]->context;
        if (getcontext(context) != 0)
            bench_die("getcontext failed");
        context->uc_stack.ss_sp = slab_low(slab, i);
        context->uc_stack.ss_size = (size_t)(top - slab_low(slab, i));
        context->uc_link = NULL;
        makecontext(context, fiber_main, 0);
    }
    for (long i = 0; i < LOOKAHEAD; i++)
        ring->first[ring->plan.fibers + i] = ring->first[i % ring->plan.fibers];
    ring->at = ring->first;
    ring->end = ring->first + ring->plan.fibers;
    swapcontext(&ring->outside.context, &ring->first[0]->context);
    return yield_plan_print(&ring->plan);
}
