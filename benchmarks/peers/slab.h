/* slab.h: stacks for the loops without a library, laid out as weft lays out its own.
 *
 * One mapping; every 68 KiB a guard page and above it a stack of 64 KiB. The stride is no power of
 * two, yet all stacks are page-aligned, so their tops would fall into the same few sets of the
 * cache: each top is moved down by its colour, a number of cache lines. What a fiber keeps beside
 * its registers goes to the top of its own stack, into the lines that a switch touches anyway.
 */
#ifndef BENCH_PEERS_SLAB_H
#define BENCH_PEERS_SLAB_H

#include <stddef.h>
#include <sys/mman.h>

#define SLAB_GUARD   4096
#define SLAB_STRIDE  (64 * 1024 + SLAB_GUARD)
#define SLAB_LINE    64
#define SLAB_COLOURS 56 /* the lowest colour leaves 512 bytes of the topmost page */

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

/* `count` stacks, their topmost pages touched; NULL if there is no memory. */
static inline char *slab_create(long count)
{
    const size_t size = (size_t)count * SLAB_STRIDE;
    char *slab = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);

    if (slab == MAP_FAILED)
        return NULL;
    madvise(slab, size, MADV_NOHUGEPAGE);
    for (long i = 0; i < count; i++) {
        /* a kernel before 6.13 has no such guards; one mapping for each would be too many */
        madvise(slab + i * SLAB_STRIDE, SLAB_GUARD, MADV_GUARD_INSTALL);
        slab[(i + 1) * SLAB_STRIDE - 1] = 0;
    }
    return slab;
}

/* The lowest byte of a stack. */
static inline char *slab_low(char *slab, long index)
{
    return slab + index * SLAB_STRIDE + SLAB_GUARD;
}

/* The end of a stack, coloured, with `size` bytes left above it for the fiber's own struct. */
static inline void *slab_top(char *slab, long index, size_t size)
{
    const long colour = index * 3 % SLAB_COLOURS;
    char *const end = slab + (index + 1) * SLAB_STRIDE - colour * SLAB_LINE;

    return end - (size + SLAB_LINE - 1) / SLAB_LINE * SLAB_LINE;
}

#endif
