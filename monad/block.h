/* block.h: enumerating a runtime's blocks (block.c, collect.c). */
#ifndef PROMISE_BLOCK_H
#define PROMISE_BLOCK_H

#include "promise_internal.h"

struct promise__slab {
    struct promise__slab *next;
    size_t block_size;
    size_t used;       /* blocks ever handed out: the first ones */
    uint32_t *scratch; /* one number a block, while tracing */
    bool first;        /* of those that were had at once: it is what is to be freed */
};
#define PROMISE__SLAB_HEADER ((size_t)64)
#define PROMISE__SLAB_SIZE   ((size_t)64 << 10) /* and its alignment */
#define PROMISE__SLABS       ((size_t)16) /* had at once: aligned memory costs pages each time */

static inline struct weft_link *promise__slab_block(struct promise__slab *slab, size_t index)
{
    return (struct weft_link *)(void *)((char *)slab + PROMISE__SLAB_HEADER +
                                        index * slab->block_size);
}

/* In front of a large block. */
struct promise__large {
    struct promise__large *next, **link;
    uint32_t scratch;
    char pad[64 - 2 * sizeof(void *) - sizeof(uint32_t)];
};

static inline struct weft_link *promise__large_block(struct promise__large *large)
{
    return (struct weft_link *)(void *)(large + 1);
}

static inline struct promise__large *promise__large_of(struct weft_link *block)
{
    return (struct promise__large *)(void *)block - 1;
}

struct promise__block_iterator {
    bool begun;
    struct promise__slab *slab;
    size_t index;
    struct promise__large *large;
};

/* The next block in use, or NULL. Blocks may be freed meanwhile, large ones excepted. */
struct weft_link *promise__next_block(struct promise__state *st,
                                      struct promise__block_iterator *it);

/* The promise that `node` waited for, and that has taken it off its list, will never settle. */
void promise__abandon(struct promise__state *st, struct weft_link *node);

/* Frees what is to be freed, destructors last (promise.c). */
void promise__take_all_down(struct promise__state *st);

/* True if a pending promise's role uses `storage`. */
static inline bool promise__has_storage(const struct promise *p)
{
    return p->link.kind >= PROMISE__BIND && p->link.kind <= PROMISE__CLEANUP;
}

/* True if `p` is a job's that isn't through; it may have become one with another promise. */
static inline bool promise__has_job(const struct promise *p)
{
    return p->link.kind == PROMISE__JOB &&
           (promise__flags(p) == PROMISE__PENDING || promise__flags(p) == PROMISE__PROXY);
}

#endif
