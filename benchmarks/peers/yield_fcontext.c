/* yield_fcontext.c: what a yield costs with Boost.Context's fcontext jumps and no library.
 *
 * The floor's loop (yield_floor.c) with the other switch: the array of contexts, coloured stack
 * tops and the prefetch are the same, so this is the floor of weft-fcontext. A context's handle is
 * known only to the side that resumes, which stores it into the context that left. fcontext saves
 * the floating point control words; weft's native switch does not.
 *
 * fcontext is called and resumes by a jump, so the processor's predictions of where calls return to
 * are off by one afterwards: the function that contains the jump returns mispredicted, which is
 * most of the cost. A loop with the jump inlined never returns and would hide that (6 ns instead of
 * 15); so the yield is a function here too.
 */
#include "slab.h"
#include "yield.h"

struct transfer {
    void *handle;
    void *data;
};
#ifdef WEFT_FCONTEXT_MANGLED /* Boost 1.87 and later export the C++ names only */
#define SYMBOL(c_name, mangled) __asm__(mangled)
#else
#define SYMBOL(c_name, mangled) __asm__(c_name)
#endif
extern struct transfer jump(void *to, void *data)
    SYMBOL("jump_fcontext", "_ZN5boost7context6detail13jump_fcontextEPvS2_");
extern void *make(void *top, size_t size, void (*entry)(struct transfer))
    SYMBOL("make_fcontext", "_ZN5boost7context6detail13make_fcontextEPvmPFvNS1_10transfer_tEE");

struct strand {
    void *handle;
};

struct ring {
    struct strand **at, **end, **first; /* some entries past the end repeat the first ones */
    struct strand outside;
    struct yield_plan plan;
};
#define LOOKAHEAD 2

/* Read anew after each switch: yield_floor.c says why. */
static struct ring *volatile the_ring;

static inline void switch_to(struct strand *self, struct strand *next)
{
    const struct transfer transfer = jump(next->handle, self);

    ((struct strand *)transfer.data)->handle = transfer.handle;
}

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
    struct strand *self = *ring->at, *next = advance(ring);

    /* fcontext cannot jump to the running context: its handle doesn't exist. A lone context goes
     * out and comes back, which counts as the one yield that it is. */
    if (next == self)
        next = &ring->outside;
    switch_to(self, next);
}

static void fiber_main(struct transfer transfer)
{
    struct ring *ring = the_ring;

    ((struct strand *)transfer.data)->handle = transfer.handle;
    YIELD_FIBER(&ring->plan, give_way());
    if (ring->plan.finished == ring->plan.fibers)
        switch_to(*ring->at, &ring->outside);
    else
        switch_to(*ring->at, advance(ring));
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

        ring->first[i] = (struct strand *)(void *)top;
        ring->first[i]->handle = make(top, (size_t)(top - slab_low(slab, i)), fiber_main);
    }
    for (long i = 0; i < LOOKAHEAD; i++)
        ring->first[ring->plan.fibers + i] = ring->first[i % ring->plan.fibers];
    ring->at = ring->first;
    ring->end = ring->first + ring->plan.fibers;
    do
        switch_to(&ring->outside, ring->first[0]);
    while (ring->plan.finished != ring->plan.fibers);
    return yield_plan_print(&ring->plan);
}
