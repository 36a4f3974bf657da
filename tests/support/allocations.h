/* allocations.h: counts this thread's calls of the allocator by standing in front of it, and lets
 * those fail that come after allocations_fail_after(how many); SIZE_MAX: none. Included by one file of
 * a program. Under ASan, TSan and valgrind, which stand there themselves, the count stays 0 and none
 * fails: ALLOCATIONS_CAN_FAIL is false (harness.h). */
#ifndef WEFT_TEST_ALLOCATIONS_H
#define WEFT_TEST_ALLOCATIONS_H

#include <stdbool.h>
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
#define ALLOCATIONS_CAN_FAIL false
#define allocations          ((size_t)0)
static inline void allocations_fail_after(size_t count)
{
    (void)count;
}
#else
#define ALLOCATIONS_CAN_FAIL (!on_valgrind())

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static _Thread_local size_t allocations, allocations_last = SIZE_MAX;

static inline void allocations_fail_after(size_t count)
{
    allocations_last = count == SIZE_MAX ? SIZE_MAX : allocations + count;
}

/* Counts one. True: it may succeed. */
static bool allocation_counted(void)
{
    return ++allocations <= allocations_last;
}

void *malloc(size_t size)
{
    return allocation_counted() ? __libc_malloc(size) : NULL;
}

void *calloc(size_t count, size_t size)
{
    return allocation_counted() ? __libc_calloc(count, size) : NULL;
}

void *realloc(void *old, size_t size)
{
    return allocation_counted() ? __libc_realloc(old, size) : NULL;
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return allocation_counted() ? __libc_memalign(alignment, size) : NULL;
}
#endif

#endif
