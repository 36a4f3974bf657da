/* stacks.h: where fibers' stacks come from.
 *
 * Stacks are cut from slabs: one mapping of many strides, each a guard page (low end) and a stack.
 * The stride is a power of two plus a page and the tops are coloured, so that the hot ends of
 * different stacks don't share cache sets. A slab is cut in batches: a batch's guards and first
 * pages cost one system call each where the kernel takes vectors (process_madvise on oneself).
 *
 * Free stacks wait in a list, last in first out. They keep the pages they touched until
 * fiber__stacks_trim, which the runtime calls before it sleeps once so many were put back, finds more
 * than the watermark there.
 */
#ifndef WEFT_STACKS_H
#define WEFT_STACKS_H

#include "runtime_internal.h"
#include "sanitizers.h"

#include <stdbool.h>
#include <sys/types.h>

#define STACKS_CLASSES  48
#define STACKS_MIN_SIZE ((size_t)16 * 1024)
#define STACKS_MAX_SIZE ((size_t)1 << 40)

struct fiber;

enum stack_state {
    STACK_LIVE,    /* a fiber runs on it */
    STACK_DIRTY,   /* free; may hold any number of pages */
    STACK_TRIMMED, /* free; holds at most its first page */
    STACK_COLD,    /* free; holds nothing */
};

/* One stack. Its fiber lives at the top of the stack itself. */
struct stack {
    struct stack *next;  /* free list */
    struct fiber *fiber; /* at the stack's top, below what its colour takes */
    char *low;           /* lowest usable byte; the guard page is below */
    uint8_t class;       /* log2 of its size */
    uint8_t state;       /* enum stack_state */
    unsigned valgrind_id;
#ifdef WEFT__TSAN
    void *tsan; /* the last user's, who could not destroy it while it ran on it; NULL: none */
#endif
};

struct stack_slab {
    struct stack_slab *next;
    char *base;
    size_t bytes, count, cut;
    struct stack stacks[];
};

struct stack_pool {
    struct stack *free;
    struct stack_slab *slabs; /* newest first; only the newest has stacks not cut yet */
    size_t mapped;            /* stacks cut */
    ssize_t spare;            /* times a stack may still be put back before a trim is worth it */
    size_t batch;             /* how many to cut next */
};

enum stack_guard { STACK_GUARD_UNKNOWN, STACK_GUARD_MADVISE, STACK_GUARD_MPROTECT };

struct stacks {
    struct weft_runtime *rt;
    struct stack_pool pools[STACKS_CLASSES];
    uint64_t used; /* bit n: class n has stacks */
    size_t page;
    size_t watermark;  /* bytes */
    size_t fiber_size; /* what is kept free at a stack's top */
    enum stack_guard guard;
    bool vectors; /* process_madvise works on oneself */
    bool on_valgrind;
    bool reported; /* the limit has been named */
};

void fiber__stacks_init(struct stacks *stacks, struct weft_runtime *rt, size_t fiber_size);

/* Unmaps everything; no stack may be in use, unless abandoned for good. */
void fiber__stacks_finish(struct stacks *stacks);

/* The class of a size in bytes, or -EINVAL. */
int fiber__stacks_class(size_t size);

/* Cuts more stacks into the free list: at least `count`. Also reserves a place in the run queue for
 * each. 0, or -ENOMEM with the limit named in a report. */
int fiber__stacks_grow(struct stacks *stacks, int class, size_t count);

/* A free stack, or NULL: then fiber__stacks_grow first. */
static inline struct stack *stacks_get(struct stacks *stacks, int class)
{
    struct stack_pool *pool = &stacks->pools[class];
    struct stack *stack = pool->free;

    if (weft__unlikely(stack == NULL))
        return NULL;
    pool->free = stack->next;
    stack->state = STACK_LIVE;
    return stack;
}

/* The caller may still be running on it, as long as nothing else does before it has left. */
static inline void stacks_put(struct stacks *stacks, struct stack *stack)
{
    struct stack_pool *pool = &stacks->pools[stack->class];

    stack->state = STACK_DIRTY;
    stack->next = pool->free;
    pool->free = stack;
    if (weft__unlikely(--pool->spare == 0))
        stacks->rt->untidy = true;
}

/* Free stacks of a class, counted up to `enough`. */
size_t fiber__stacks_free(const struct stacks *stacks, int class, size_t enough);

/* Gives memory above the watermark back to the kernel. On the base stack only. */
void fiber__stacks_trim(struct stacks *stacks);

#endif
