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
#include <stddef.h>

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

#include "yield_ring.h"

static inline void switch_to(struct strand *self, struct strand *next)
{
    const struct transfer transfer = jump(next->handle, self);

    ((struct strand *)transfer.data)->handle = transfer.handle;
}

static __attribute__((noinline)) void give_way(void)
{
    struct ring *ring = the_ring;
    struct strand *self = *ring->at, *next = ring_advance(ring);

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
        switch_to(*ring->at, ring_advance(ring));
}

static void prepare(struct strand *strand, char *low)
{
    strand->handle = make(strand, (size_t)((char *)strand - low), fiber_main);
}

int main(int argc, char **argv)
{
    struct ring *ring = ring_create(argc, argv, prepare);

    do
        switch_to(&ring->outside, ring->first[0]);
    while (ring->plan.finished != ring->plan.fibers);
    return yield_plan_print(&ring->plan);
}
