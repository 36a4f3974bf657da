/* allocations.h: counts this thread's calls of the allocator, and lets them fail, by standing in front
 * of it. Included by one file of a program. Under ASan and TSan, which stand there themselves, the
 * count stays 0 and nothing fails. */
#ifndef WEFT_TEST_ALLOCATIONS_H
#define WEFT_TEST_ALLOCATIONS_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ALLOCATIONS_HIDDEN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ALLOCATIONS_HIDDEN 1
#endif

#ifdef ALLOCATIONS_HIDDEN
#define allocations          ((size_t)0)
#define allocations_left     allocations_unused
#define ALLOCATIONS_CAN_FAIL 0
static size_t allocations_left __attribute__((unused));
#else
#define ALLOCATIONS_CAN_FAIL 1
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static _Thread_local size_t allocations;
static _Thread_local size_t allocations_left = SIZE_MAX; /* then they fail */

static inline int allocation_may_be(void)
{
    allocations++;
    if (allocations_left == 0)
        return 0;
    if (allocations_left != SIZE_MAX)
        allocations_left--;
    return 1;
}

void *malloc(size_t size)
{
    return allocation_may_be() ? __libc_malloc(size) : NULL;
}

void *calloc(size_t count, size_t size)
{
    return allocation_may_be() ? __libc_calloc(count, size) : NULL;
}

void *realloc(void *old, size_t size)
{
    return allocation_may_be() ? __libc_realloc(old, size) : NULL;
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return allocation_may_be() ? __libc_memalign(alignment, size) : NULL;
}
#endif

#endif
