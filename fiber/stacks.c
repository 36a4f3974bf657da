/* stacks.c: slabs of stacks, their guards, and giving memory back. See stacks.h. */
#include "stacks.h"

#include "context.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#if defined(__has_include)
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#endif
#endif
#ifndef VALGRIND_STACK_REGISTER
#define RUNNING_ON_VALGRIND                0
#define VALGRIND_STACK_REGISTER(low, high) 0
#define VALGRIND_STACK_DEREGISTER(id)      ((void)(id))
#endif

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102 /* Linux 6.13 */
#endif
#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
#ifndef PIDFD_SELF
#define PIDFD_SELF (-10000) /* Linux 6.14: names the calling thread without a descriptor */
#endif

#define SLAB_MIN_STACKS 64
#define SLAB_MAX_BYTES  ((size_t)1 << 30) /* of address space, unless one batch is larger */
#define BATCH_MIN       8
#define BATCH_MAX       256
#define KEEP_HOT        64 /* free stacks that are never trimmed */
/* Colours use as much of a page as leaves about 1 KiB in it for the fiber and its first frames. With
 * fewer, 100 fibers already fight for the first-level cache: its sets repeat every page. */
#define COLOURS     48
#define COLOUR_STEP 64 /* a cache line */

static size_t class_size(int class)
{
    return (size_t)1 << class;
}

int fiber__stacks_class(size_t size)
{
    int class = 0;

    if (size > STACKS_MAX_SIZE)
        return -EINVAL;
    if (size < STACKS_MIN_SIZE)
        size = STACKS_MIN_SIZE;
    while (class_size(class) < size)
        class ++;
    return class;
}

/* Each one put back may be one more dirty stack, if it is not the same all along. */
static ssize_t spare(const struct stacks *stacks, int class)
{
    size_t stays = stacks->watermark >> class;

    return (ssize_t)(stays > KEEP_HOT ? stays : KEEP_HOT) + 1;
}

void fiber__stacks_init(struct stacks *stacks, struct weft_runtime *rt, size_t fiber_size)
{
    memset(stacks, 0, sizeof *stacks);
    stacks->rt = rt;
    stacks->fiber_size = fiber_size;
    stacks->page = (size_t)sysconf(_SC_PAGESIZE);
    stacks->watermark = rt->options.stack_watermark;
    stacks->on_valgrind = RUNNING_ON_VALGRIND != 0;
    for (int class = 0; class < STACKS_CLASSES; class ++)
        stacks->pools[class].spare = spare(stacks, class);
    stacks->vectors = !stacks->on_valgrind; /* until the kernel says otherwise; valgrind lacks it */
}

void fiber__stacks_finish(struct stacks *stacks)
{
    for (int class = 0; class < STACKS_CLASSES; class ++) {
        struct stack_slab *slab = stacks->pools[class].slabs;

        while (slab != NULL) {
            struct stack_slab *next = slab->next;

            if (stacks->on_valgrind)
                for (size_t i = 0; i < slab->cut; i++)
                    VALGRIND_STACK_DEREGISTER(slab->stacks[i].valgrind_id);
#ifdef WEFT__ASAN
            __asan_unpoison_memory_region(slab->base, slab->bytes);
#endif
#ifdef WEFT__TSAN
            for (size_t i = 0; i < slab->cut; i++)
                if (slab->stacks[i].tsan != NULL)
                    __tsan_destroy_fiber(slab->stacks[i].tsan);
#endif
            munmap(slab->base, slab->bytes);
            weft__release(stacks->rt, slab->cut);
            free(slab);
            slab = next;
        }
    }
    memset(stacks->pools, 0, sizeof stacks->pools);
}

/* One advice for many ranges. The first failure turns vectors off, if it is the kernel that doesn't
 * know them. 0 or a negative errno; what was done before a failure stays done. */
static int advise(struct stacks *stacks, struct iovec *ranges, size_t count, int advice)
{
    size_t done = 0;

    while (stacks->vectors && count - done > 1) {
        size_t want = 0, some = count - done < 512 ? count - done : 512;
        ssize_t got;

        for (size_t i = 0; i < some; i++)
            want += ranges[done + i].iov_len;
        got = syscall(SYS_process_madvise, PIDFD_SELF, ranges + done, some, advice, 0);
        if (got == (ssize_t)want) {
            done += some;
            continue;
        }
        if (got < 0 && errno != EAGAIN && errno != EINTR && errno != ENOMEM)
            stacks->vectors = false; /* EBADF: no PIDFD_SELF; EINVAL, EPERM: not this advice */
        break;                       /* finish one by one: all of these advices may be repeated */
    }
    for (; done < count; done++) {
        int rc;

        do
            rc = madvise(ranges[done].iov_base, ranges[done].iov_len, advice);
        while (rc < 0 && (errno == EINTR || errno == EAGAIN));
        if (rc < 0)
            return -errno;
    }
    return 0;
}

static void name_limit(struct stacks *stacks, const char *call, size_t bytes)
{
    size_t mapped = 0;

    if (stacks->reported)
        return;
    stacks->reported = true;
    for (int class = 0; class < STACKS_CLASSES; class ++)
        mapped += stacks->pools[class].mapped;
    weft__report(stacks->rt,
                 "no more fiber stacks: %s of %zu bytes failed with %zu stacks mapped; %s", call,
                 bytes, mapped,
                 stacks->guard == STACK_GUARD_MPROTECT
                     ? "the limit is vm.max_map_count (each guarded stack takes two mappings) or "
                       "RLIMIT_AS"
                     : "the limit is memory, RLIMIT_AS or vm.overcommit_memory");
}

static int guard_batch(struct stacks *stacks, struct stack *first, size_t count)
{
    struct iovec ranges[BATCH_MAX];
    int rc;

    if (stacks->guard != STACK_GUARD_MPROTECT) {
        for (size_t i = 0; i < count; i++) {
            ranges[i].iov_base = first[i].low - stacks->page;
            ranges[i].iov_len = stacks->page;
        }
        if (stacks->guard == STACK_GUARD_UNKNOWN) {
            rc =
                madvise(ranges[0].iov_base, ranges[0].iov_len, MADV_GUARD_INSTALL) < 0 ? -errno : 0;
            /* a guard that a tool pretends to have installed guards nothing: ask for a write */
            if (rc == 0 && madvise(ranges[0].iov_base, stacks->page, MADV_POPULATE_WRITE) == 0)
                rc = -EINVAL;
            stacks->guard = rc == 0 ? STACK_GUARD_MADVISE : STACK_GUARD_MPROTECT;
        }
    }
    if (stacks->guard == STACK_GUARD_MADVISE)
        return advise(stacks, ranges, count, MADV_GUARD_INSTALL);
    for (size_t i = 0; i < count; i++)
        if (mprotect(first[i].low - stacks->page, stacks->page, PROT_NONE) < 0)
            return -errno;
    return 0;
}

/* A fresh slab for at least one batch. */
static int slab_add(struct stacks *stacks, int class)
{
    struct stack_pool *pool = &stacks->pools[class];
    size_t stride = class_size(class) + stacks->page;
    size_t count = pool->mapped;
    struct stack_slab *slab;

    if (count > SLAB_MAX_BYTES / stride)
        count = SLAB_MAX_BYTES / stride;
    if (count < SLAB_MIN_STACKS)
        count = stride > SLAB_MAX_BYTES / SLAB_MIN_STACKS ? 1 : SLAB_MIN_STACKS;
    slab = calloc(1, sizeof *slab + count * sizeof slab->stacks[0]);
    if (slab == NULL)
        return -ENOMEM;
    slab->bytes = count * stride;
    slab->count = count;
    slab->base = mmap(NULL, slab->bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (slab->base == MAP_FAILED) {
        name_limit(stacks, "mmap", slab->bytes);
        free(slab);
        return -ENOMEM;
    }
    /* one touched page a stack is the point; a huge page would be 30 stacks' worth */
    madvise(slab->base, slab->bytes, MADV_NOHUGEPAGE);
    slab->next = pool->slabs;
    pool->slabs = slab;
    return 0;
}

/* Cuts the next stacks off the newest slab, at most `count` of them. */
static int slab_cut(struct stacks *stacks, int class, size_t count)
{
    struct stack_pool *pool = &stacks->pools[class];
    struct stack_slab *slab = pool->slabs;
    size_t size = class_size(class), stride = size + stacks->page;
    struct stack *first;
    struct iovec tops[BATCH_MAX];
    int rc;

    if (slab == NULL || slab->cut == slab->count) {
        rc = slab_add(stacks, class);
        if (rc < 0)
            return rc;
        slab = pool->slabs;
    }
    if (count > slab->count - slab->cut)
        count = slab->count - slab->cut;
    if (count > BATCH_MAX)
        count = BATCH_MAX;
    first = &slab->stacks[slab->cut];
    for (size_t i = 0; i < count; i++) {
        first[i].low = slab->base + (slab->cut + i) * stride + stacks->page;
        first[i].class = (uint8_t) class;
        first[i].fiber = (struct fiber *)(void *)(first[i].low + size - stacks->fiber_size -
                                                  (slab->cut + i) % COLOURS * COLOUR_STEP);
        tops[i].iov_base = first[i].low + size - stacks->page;
        tops[i].iov_len = stacks->page;
    }
    rc = weft__reserve(stacks->rt, count);
    if (rc < 0)
        return rc;
    rc = guard_batch(stacks, first, count);
    if (rc < 0) {
        name_limit(stacks, stacks->guard == STACK_GUARD_MADVISE ? "madvise" : "mprotect",
                   stacks->page);
        weft__release(stacks->rt, count);
        return -ENOMEM;
    }
    /* a page fault each saved; if the kernel won't, the faults come later */
    advise(stacks, tops, count, MADV_POPULATE_WRITE);
    slab->cut += count;
    pool->mapped += count;
    for (size_t i = count; i-- > 0;) { /* so that the list goes up in memory */
        if (stacks->on_valgrind)
            first[i].valgrind_id = VALGRIND_STACK_REGISTER(first[i].low, first[i].low + size - 1);
        first[i].state = STACK_TRIMMED;
        first[i].next = pool->free;
        pool->free = &first[i];
    }
    return (int)count;
}

int fiber__stacks_grow(struct stacks *stacks, int class, size_t count)
{
    struct stack_pool *pool = &stacks->pools[class];

    stacks->used |= UINT64_C(1) << class;
    if (pool->batch < BATCH_MIN)
        pool->batch = BATCH_MIN;
    while (count > 0) {
        int got = slab_cut(stacks, class, count > pool->batch ? count : pool->batch);

        if (got < 0)
            return got;
        count -= (size_t)got < count ? (size_t)got : count;
        if (pool->batch < BATCH_MAX)
            pool->batch *= 2;
    }
    return 0;
}

size_t fiber__stacks_free(const struct stacks *stacks, int class, size_t enough)
{
    size_t count = 0;

    for (struct stack *stack = stacks->pools[class].free; stack != NULL && count < enough;
         stack = stack->next)
        count++;
    return count;
}

static void trim_pool(struct stacks *stacks, struct stack_pool *pool, int class)
{
    struct iovec ranges[BATCH_MAX];
    size_t size = class_size(class), kept = 0, pages = 0, count = 0;

    for (struct stack *stack = pool->free; stack != NULL; stack = stack->next) {
        bool whole;

        if (++kept <= KEEP_HOT || stack->state == STACK_COLD)
            continue;
        whole = ++pages * stacks->page > stacks->watermark;
        if (!whole && stack->state == STACK_TRIMMED)
            continue;
        stack->state = whole ? STACK_COLD : STACK_TRIMMED;
        ranges[count].iov_base = stack->low;
        ranges[count].iov_len = whole ? size : size - stacks->page;
        if (++count == BATCH_MAX) {
            advise(stacks, ranges, count, MADV_DONTNEED);
            count = 0;
        }
    }
    if (count > 0)
        advise(stacks, ranges, count, MADV_DONTNEED);
}

void fiber__stacks_trim(struct stacks *stacks)
{
    for (uint64_t rest = stacks->used; rest != 0; rest &= rest - 1) {
        const int class = __builtin_ctzll(rest);
        struct stack_pool *pool = &stacks->pools[class];

        if (pool->spare <= 0) {
            trim_pool(stacks, pool, class);
            pool->spare = spare(stacks, class);
        }
    }
}

void fiber__context_init_thread(struct context *context)
{
    memset(context, 0, sizeof *context);
#ifdef WEFT__ASAN
    {
        pthread_attr_t attr;
        void *low = NULL;
        size_t size = 0;

        if (pthread_getattr_np(pthread_self(), &attr) == 0) {
            pthread_attr_getstack(&attr, &low, &size);
            pthread_attr_destroy(&attr);
        }
        context->bottom = low;
        context->size = size;
    }
#endif
#ifdef WEFT__TSAN
    context->tsan = __tsan_get_current_fiber();
#endif
}
