/* block.c: a runtime's promise state, and the memory of promises.
 *
 * Blocks of 64 * n bytes, n < 9, are cut from slabs and return to a list per size; larger ones come
 * from the system and return to it. Each begins with a struct weft_link: `size` is n (0: a large
 * one), `kind` says what it is, PROMISE__FREE included, so that all blocks of a runtime can be
 * enumerated. Slabs are cut bit by bit, so that memory is touched only when it is used, and are
 * freed with the runtime.
 */
#include "block.h"
#include "promise_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#if PROMISE__ASAN
#include <sanitizer/asan_interface.h>
#define POISON(block, size) \
    ASAN_POISON_MEMORY_REGION((char *)(block) + sizeof *(block), (size) - sizeof *(block))
#define UNPOISON(block, size) ASAN_UNPOISON_MEMORY_REGION((block), (size))
#else
#define POISON(block, size)   ((void)0)
#define UNPOISON(block, size) ((void)0)
#endif

_Thread_local struct promise__state *promise__tls;

/* ---- blocks ---- */

#define QUARANTINE \
    256 /* checked builds: blocks of a size that stay free, so that old handles show */

static int new_slab(struct promise__state *st, size_t class)
{
    const bool first = st->spare == st->spare_end;
    struct promise__slab *slab;

    if (first) {
        char *slabs = aligned_alloc(PROMISE__SLAB_SIZE, PROMISE__SLABS * PROMISE__SLAB_SIZE);

        if (slabs == NULL)
            return -ENOMEM;
        st->spare = slabs;
        st->spare_end = slabs + PROMISE__SLABS * PROMISE__SLAB_SIZE;
    }
    slab = (struct promise__slab *)(void *)st->spare;
    st->spare += PROMISE__SLAB_SIZE;
    slab->first = first;
    slab->next = st->slabs;
    slab->block_size = class * 64;
    slab->used = 0;
    slab->scratch = NULL;
    st->slabs = slab;
    st->fresh_slab[class] = slab;
    st->fresh[class] = (char *)slab + PROMISE__SLAB_HEADER;
    st->fresh_end[class] = (char *)slab + PROMISE__SLAB_SIZE;
    return 0;
}

/* Blocks that counting can't free are looked for when memory would grow, and only if there may be
 * some in proportion to what has to be looked at. */
static bool worth_tracing(const struct promise__state *st)
{
    return weft__unlikely(st->suspects > 1024 && st->suspects > st->live / 4);
}

static bool has_free(const struct promise__state *st, size_t class)
{
#if PROMISE__CHECKED_BLOCKS
    return st->free_count[class] > QUARANTINE;
#else
    return st->free[class] != NULL;
#endif
}

struct weft_link *promise__block_slow(struct promise__state *st, size_t class)
{
    struct weft_link *block;

    if (st->fail && st->fail_after == 0)
        return NULL;
    if (!has_free(st, class) && worth_tracing(st))
        promise__collect(st);
    if (has_free(st, class)) {
        block = st->free[class];
        st->free[class] = block->next;
#if PROMISE__CHECKED_BLOCKS
        st->free_count[class]--;
#endif
        UNPOISON(block, class * 64);
    } else {
        if ((size_t)(st->fresh_end[class] - st->fresh[class]) < class * 64 &&
            new_slab(st, class) < 0)
            return NULL;
        block = (struct weft_link *)(void *)st->fresh[class];
        block->size = (uint16_t) class;
        st->fresh[class] += class * 64;
        st->fresh_slab[class]->used++;
    }
    if (st->fail)
        st->fail_after--;
    st->live++;
    return block;
}

void *promise__block_sized(struct promise__state *st, size_t size)
{
    struct promise__large *large;

    if (size > SIZE_MAX / 2)
        return NULL;
    if (PROMISE__CLASS(size) < PROMISE__CLASSES)
        return promise__block(st, PROMISE__CLASS(size));
    if (st->fail && st->fail_after == 0)
        return NULL;
    large = aligned_alloc(64, (sizeof *large + size + 63) / 64 * 64);
    if (large == NULL)
        return NULL;
    if (st->fail)
        st->fail_after--;
    large->next = st->large;
    large->link = &st->large;
    if (large->next != NULL)
        large->next->link = &large->next;
    st->large = large;
    st->live++;
    promise__large_block(large)->size = 0;
    return promise__large_block(large);
}

void promise__block_free_slow(struct promise__state *st, struct weft_link *block)
{
    st->live--;
    if (block->size == 0) {
        struct promise__large *large = promise__large_of(block);

        *large->link = large->next;
        if (large->next != NULL)
            large->next->link = large->link;
        free(large);
        return;
    }
    block->kind = PROMISE__FREE;
#ifndef NDEBUG
    memset((char *)block + sizeof *block, 0xdb, (size_t)block->size * 64 - sizeof *block);
#endif
#if PROMISE__CHECKED_BLOCKS
    block->next = NULL;
    if (st->free[block->size] == NULL)
        st->free[block->size] = block;
    else
        st->free_last[block->size]->next = block;
    st->free_last[block->size] = block;
    st->free_count[block->size]++;
#else
    block->next = st->free[block->size];
    st->free[block->size] = block;
#endif
    POISON(block, (size_t)block->size * 64);
}

struct weft_link *promise__next_block(struct promise__state *st, struct promise__block_iterator *it)
{
    if (!it->begun) {
        it->begun = true;
        it->slab = st->slabs;
        it->index = 0;
        it->large = st->large;
    }
    for (; it->slab != NULL; it->slab = it->slab->next, it->index = 0)
        while (it->index < it->slab->used) {
            struct weft_link *block = promise__slab_block(it->slab, it->index++);

            if (block->kind != PROMISE__FREE)
                return block;
        }
    if (it->large != NULL) {
        struct promise__large *large = it->large;

        it->large = large->next;
        return promise__large_block(large);
    }
    return NULL;
}

/* ---- the runtime's life ---- */

/* Main is over: nobody's callbacks run from now on. */
static void stop(struct weft_runtime *rt)
{
    struct promise__state *st = rt->layer[WEFT__LAYER_PROMISE];

    st->stopped = true;
}

static void dump(struct weft_runtime *rt)
{
    promise__report_live(rt->layer[WEFT__LAYER_PROMISE], true);
}

static void finish(struct weft_runtime *rt)
{
    struct promise__state *st = rt->layer[WEFT__LAYER_PROMISE];
    struct promise__block_iterator it = {0};
    struct weft_link *block;

#ifndef NDEBUG
    promise__report_live(st, false);
#endif
    /* Nothing is left in order from here on: a destructor that releases a promise finds no
     * state. */
    promise__tls = NULL;
    while ((block = promise__next_block(st, &it)) != NULL) {
        if (block->kind < PROMISE__GROUP) {
            struct promise *p = promise__of_link(block);

            if (promise__flags(p) == PROMISE__FULFILLED && p->destroy != NULL)
                p->destroy(p->value.ptr);
            else if (promise__has_job(p) ||
                     (promise__flags(p) == PROMISE__PENDING && promise__has_storage(p)))
                weft__storage_unref(p->storage);
        } else if (block->kind > PROMISE__PAIR) {
            weft__storage_unref(((struct promise__callback *)(void *)block)->storage);
        } else if (block->kind == PROMISE__GROUP) {
            promise__group_discard((struct promise__group *)(void *)block);
        }
    }
    while (st->large != NULL) {
        struct promise__large *next = st->large->next;

        free(st->large);
        st->large = next;
    }
    while (st->slabs != NULL) {
        struct promise__slab *next = st->slabs->next;

        UNPOISON((struct weft_link *)(void *)st->slabs, PROMISE__SLAB_SIZE);
        if (st->slabs->first) /* the last of its kin in this list: newest come first */
            free(st->slabs);
        st->slabs = next;
    }
    rt->layer[WEFT__LAYER_PROMISE] = NULL;
    free(st);
}

static void stats(const struct weft_runtime *rt, struct weft_stats *out)
{
    const struct promise__state *st = rt->layer[WEFT__LAYER_PROMISE];

    out->promises += st->live;
}

static const struct weft__layer_hooks hooks = {
    .stop = stop, .dump = dump, .stats = stats, .finish = finish};

static void after_fork_in_child(void)
{
    promise__tls = NULL; /* as the runtime */
}

static void at_fork(void)
{
    (void)pthread_atfork(NULL, NULL, after_fork_in_child);
}

struct promise__state *promise__state_slow(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct weft_runtime *rt = weft__rt;
    struct promise__state *st;

    if (rt == NULL || rt->hooks[WEFT__LAYER_PROMISE] != NULL) /* none yet, or finished already */
        return NULL;
    (void)pthread_once(&once, at_fork);
    st = calloc(1, sizeof *st);
    if (st == NULL)
        return NULL;
    st->rt = rt;
    weft__layer_register(rt, WEFT__LAYER_PROMISE, st, &hooks);
    promise__pause_init(st);
    promise__tls = st;
    return st;
}

int promise__no_state_error(void)
{
    return weft__rt != NULL ? -ENOMEM : -EINVAL;
}

struct promise *promise__no_state(void)
{
    return promise__error(promise__no_state_error());
}

#ifndef NDEBUG
bool promise__valid(struct promise__state *st, const struct promise *p, const char *function)
{
    const char *what;

    if (promise__immediate(p))
        return true;
    if (p->link.kind == PROMISE__FREE)
        what = "has been freed";
    else if (p->link.kind >= PROMISE__GROUP)
        what = "is none";
    else if (p->owner != st)
        what = "belongs to another thread's runtime";
    else if (p->link.count == 0)
        what = "is not yours: you have no reference to it";
    else
        return true;
    if (st != NULL)
        weft__report(st->rt, "%s: promise %p %s", function, (const void *)p, what);
    else
        fprintf(stderr, "weft: %s: promise %p %s\n", function, (const void *)p, what);
    return false;
}
#endif

/* ---- for tests ---- */

size_t promise__live(void)
{
    return promise__tls == NULL ? 0 : promise__tls->live;
}

void promise__fail_after(size_t count)
{
    struct promise__state *st = promise__state_get();

    if (st == NULL)
        return;
    st->fail = count != SIZE_MAX;
    st->fail_after = count;
}
