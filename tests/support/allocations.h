/* allocations.h: counts this thread's calls of the allocator by standing in front of it. Included by
 * one file of a program. Under ASan and TSan, which stand there themselves, the count stays 0. */
#ifndef WEFT_TEST_ALLOCATIONS_H
#define WEFT_TEST_ALLOCATIONS_H

#include <stddef.h>
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
#define allocations ((size_t)0)
#else
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static _Thread_local size_t allocations;

void *malloc(size_t size)
{
    allocations++;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    allocations++;
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    allocations++;
    return __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    allocations++;
    return __libc_memalign(alignment, size);
}
#endif

#endif
