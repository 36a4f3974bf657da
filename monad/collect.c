/* collect.c: tracing: frees promises that keep each other alive in a circle.
 *
 * Counting frees all but two shapes: an unobserved pick, npick, nchoose or nchoose_split all of
 * whose operands were given up (it holds them, and their lists hold it), and a promise that depends
 * on itself. So when many references have been dropped that may have left such a circle, and memory
 * is about to grow, all blocks are looked at. A promise with more references than other promises
 * hold on it is held from outside: by the user, an operation, a queue, a frame. What can be reached
 * from those, down the lists and up the operands, stays; the rest goes.
 */
#include "block.h"

#include <stdlib.h>

#ifndef NDEBUG
#include <dlfcn.h>
#endif

/* A block's number: first the references on it by other promises; then MARKED or not. */
#define MARKED UINT32_MAX

static uint32_t *number(struct weft_link *block)
{
    struct promise__slab *slab;

    if (block->size == 0)
        return &promise__large_of(block)->scratch;
    slab = (struct promise__slab *)((uintptr_t)block & ~(PROMISE__SLAB_SIZE - 1));
    return &slab->scratch[((size_t)((char *)block - (char *)slab) - PROMISE__SLAB_HEADER) /
                          slab->block_size];
}

static bool is_promise(const struct weft_link *block)
{
    return block->kind >= PROMISE__PLAIN && block->kind <= PROMISE__GROUPED;
}

/* Calls visit for each promise that `p` holds a reference on. */
static void each_reference(struct promise *p, void (*visit)(void *arg, struct promise *to),
                           void *arg)
{
    switch (promise__flags(p)) {
    case PROMISE__PROXY:
        visit(arg, p->target);
        return;
    case PROMISE__PENDING:
        break;
    default:
        if (p->source != NULL)
            visit(arg, p->source);
        return;
    }
    switch (p->link.kind) {
    case PROMISE__CLEANUP:
        visit(arg, p->ctx);
        /* fall through */
    case PROMISE__BIND:
    case PROMISE__MAP:
    case PROMISE__CATCH:
    case PROMISE__TRY:
    case PROMISE__FINALIZE:
    case PROMISE__WRAP:
        if (p->operand != NULL)
            visit(arg, p->operand);
        break;
    case PROMISE__GROUPED:
        for (uint32_t i = 0; i < p->fn.group->size; i++)
            if (p->fn.group->slot[i].operand != NULL)
                visit(arg, p->fn.group->slot[i].operand);
        break;
    default:
        break;
    }
}

struct tracing {
    struct promise__state *st;
    struct promise **stack;
    size_t depth;
};

static void count_reference(void *arg, struct promise *to)
{
    (void)arg;
    if (!promise__immediate(to))
        ++*number(&to->link);
}

static void reach(void *arg, struct promise *p)
{
    struct tracing *tracing = arg;
    uint32_t *mark;

    if (promise__immediate(p))
        return;
    mark = number(&p->link);
    if (*mark != MARKED) {
        *mark = MARKED;
        tracing->stack[tracing->depth++] = p;
    }
}

static void reach_waiters(struct tracing *tracing, struct promise *p)
{
    struct weft_link *node = p->waiters;

    if (promise__flags(p) == PROMISE__PROXY)
        return;
    for (; node != NULL; node = promise__tagged(node->next) ? NULL : node->next) {
        if (node->kind == PROMISE__SLOT)
            reach(tracing, promise__slot_group((struct promise__slot *)(void *)node)->result);
        else if (node->kind != PROMISE__WAITER && is_promise(node))
            reach(tracing, promise__of_link(node));
    }
}

static void free_scratch(struct promise__state *st)
{
    for (struct promise__slab *slab = st->slabs; slab != NULL; slab = slab->next) {
        free(slab->scratch);
        slab->scratch = NULL;
    }
}

static bool make_scratch(struct promise__state *st)
{
    for (struct promise__slab *slab = st->slabs; slab != NULL; slab = slab->next) {
        slab->scratch = calloc(slab->used + 1, sizeof *slab->scratch);
        if (slab->scratch == NULL) {
            free_scratch(st);
            return false;
        }
    }
    for (struct promise__large *large = st->large; large != NULL; large = large->next)
        large->scratch = 0;
    return true;
}

/* Counts the references that promises hold on promises. */
static void count_references(struct tracing *tracing)
{
    struct promise__block_iterator it = {0};
    struct weft_link *block;

    while ((block = promise__next_block(tracing->st, &it)) != NULL)
        if (is_promise(block))
            each_reference(promise__of_link(block), count_reference, tracing);
}

/* References of `p` from outside, after count_references. */
static size_t outside(struct promise *p)
{
    return p->link.count - *number(&p->link);
}

/* An unreachable promise holds a reachable one: only then is that reference given back. */
static void give_back(void *arg, struct promise *to)
{
    struct tracing *tracing = arg;

    if (!promise__immediate(to) && *number(&to->link) == MARKED)
        tracing->stack[tracing->depth++] = to;
}

/* What waits for `p`, unreachable: other unreachable promises, callbacks, and reachable ones that
 * it would have settled. */
static void free_waiters(struct promise__state *st, struct promise *p)
{
    if (promise__flags(p) == PROMISE__PROXY)
        return;
    while (p->waiters != NULL) {
        struct weft_link *node = promise__list_pop(p);
        struct promise *q = NULL;

        if (node->kind == PROMISE__SLOT)
            q = promise__slot_group((struct promise__slot *)(void *)node)->result;
        else if (is_promise(node))
            q = promise__of_link(node);
        if (q == NULL || *number(&q->link) == MARKED)
            promise__abandon(st, node);
    }
}

/* Marks what can be reached from promises that are held from outside. */
static void mark_living(struct tracing *tracing)
{
    struct promise__block_iterator it = {0};
    struct weft_link *block;

    while ((block = promise__next_block(tracing->st, &it)) != NULL)
        if (is_promise(block) && *number(block) != MARKED && outside(promise__of_link(block)) > 0)
            reach(tracing, promise__of_link(block));
    while (tracing->depth > 0) {
        struct promise *p = tracing->stack[--tracing->depth];

        each_reference(p, reach, tracing);
        reach_waiters(tracing, p);
    }
}

/* What an unreachable promise's role has besides references. */
static void free_role(struct promise__state *st, struct promise *p)
{
    if (promise__flags(p) != PROMISE__PENDING)
        return;
    if (p->link.kind == PROMISE__TRY)
        promise__block_free(st, &p->fn.pair->link);
    if (promise__has_storage(p))
        weft__storage_unref(p->storage);
    if (p->link.kind == PROMISE__GROUPED) {
        promise__group_discard(p->fn.group);
        promise__block_free(st, &p->fn.group->link);
    }
}

/* The promise itself; a value that it owns is destroyed later, since its destructor is the user's. */
static void free_promise(struct promise__state *st, struct promise *p)
{
    if (promise__flags(p) == PROMISE__FULFILLED && p->destroy != NULL) {
        p->link.next = st->doomed != NULL ? &st->doomed->link : NULL;
        st->doomed = p;
    } else {
        promise__block_free(st, &p->link);
    }
}

size_t promise__collect(struct promise__state *st)
{
    struct tracing tracing = {st, NULL, 0};
    struct promise__block_iterator it = {0};
    struct weft_link *block;
    struct promise **dead;
    size_t before = st->live, dead_count = 0, references = 0;

    st->suspects = 0;
    if (st->dropping || st->live == 0 || !make_scratch(st))
        return 0;
    count_references(&tracing);
    while ((block = promise__next_block(st, &it)) != NULL)
        if (is_promise(block))
            references += *number(block);
    tracing.stack = malloc((st->live + references + 1) * sizeof(struct promise *));
    dead = malloc((st->live + 1) * sizeof(struct promise *));
    if (tracing.stack == NULL || dead == NULL) {
        free(tracing.stack);
        free(dead);
        free_scratch(st);
        return 0;
    }
    mark_living(&tracing);
    it = (struct promise__block_iterator){0};
    while ((block = promise__next_block(st, &it)) != NULL)
        if (is_promise(block) && *number(block) != MARKED)
            dead[dead_count++] = promise__of_link(block);

    /* First all references out, then all lists, then what the roles have, then the blocks. */
    for (size_t i = 0; i < dead_count; i++)
        each_reference(dead[i], give_back, &tracing);
    for (size_t i = 0; i < dead_count; i++)
        free_waiters(st, dead[i]);
    for (size_t i = 0; i < dead_count; i++)
        free_role(st, dead[i]);
    for (size_t i = 0; i < dead_count; i++)
        free_promise(st, dead[i]);
    free_scratch(st);
    free(dead);
    while (tracing.depth > 0)
        promise__release(st, tracing.stack[--tracing.depth]);
    free(tracing.stack);
    promise__take_all_down(st);
    st->collected += before - st->live;
    return before - st->live;
}

/* ---- reports ---- */

#ifndef NDEBUG
static void report(struct promise__state *st, struct promise *p)
{
    const char *const states[] = {"pending", "fulfilled", "rejected", "merged"};
    Dl_info info;
    bool known = dladdr(p->where, &info) != 0 && info.dli_fname != NULL;
    bool named = known && info.dli_sname != NULL;

    weft__report(st->rt, "  promise %p (%s), held %zu times, made at %s(%s+%#zx)", (void *)p,
                 states[promise__flags(p)], outside(p), known ? info.dli_fname : "?",
                 named ? info.dli_sname : "",
                 (size_t)((uintptr_t)p->where - (uintptr_t)(named   ? info.dli_saddr
                                                            : known ? info.dli_fbase
                                                                    : NULL)));
}
#endif

void promise__report_live(struct promise__state *st, bool pending_only)
{
    struct tracing tracing = {st, NULL, 0};
    struct promise__block_iterator it = {0};
    struct weft_link *block;
    size_t count = 0;

    if (st->live == 0 || !make_scratch(st))
        return;
    count_references(&tracing);
    while ((block = promise__next_block(st, &it)) != NULL) {
        struct promise *p = promise__of_link(block);
        size_t own;

        if (!is_promise(block) || (pending_only && promise__flags(p) != PROMISE__PENDING))
            continue;
        own = p->link.kind == PROMISE__QUEUED || p->link.kind == PROMISE__OPERATION ||
              p->link.kind == PROMISE__ALARM || p->link.kind == PROMISE__JOB;
        if (outside(p) <= (pending_only ? 0 : own))
            continue;
        count++;
#ifndef NDEBUG
        if (count <= 20)
            report(st, p);
#endif
    }
    free_scratch(st);
    if (count > 0)
        weft__report(st->rt, "%zu promises %s", count,
                     pending_only ? "are pending" : "were still held when the runtime ended");
}
