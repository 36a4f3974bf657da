/* on_valgrind.h: what valgrind can't see for itself, told to it. Costs one test of a flag elsewhere.
 *
 * It doesn't know that the kernel writes an operation's memory long after the system call, and (3.19)
 * that io_uring_enter may block: while a thread waits there, no other one runs.
 */
#ifndef RING_ON_VALGRIND_H
#define RING_ON_VALGRIND_H

#include "ring_internal.h"

#include <sys/stat.h>
#include <sys/uio.h>

#if defined(__has_include)
#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#endif
#endif
#ifndef RUNNING_ON_VALGRIND
#define RUNNING_ON_VALGRIND 0
#endif
#ifndef VALGRIND_MAKE_MEM_DEFINED
#define VALGRIND_MAKE_MEM_DEFINED(addr, len) ((void)(addr), (void)(len))
#endif

/* The memory that an operation with that result has written. */
static inline void ring__tell_valgrind(const struct ring_op *op, int res)
{
    char *at = (char *)(uintptr_t)op->addr;
    const struct iovec *iov = (const struct iovec *)(uintptr_t)op->addr;
    size_t left = res > 0 ? (size_t)res : 0;

    if (res < 0)
        return;
    switch (op->row) {
    case RING__ROW_read:
    case RING__ROW_recv:
        VALGRIND_MAKE_MEM_DEFINED(at, left);
        break;
    case RING__ROW_readv:
        for (; left > 0; iov++) {
            size_t some = left < iov->iov_len ? left : iov->iov_len;

            VALGRIND_MAKE_MEM_DEFINED(iov->iov_base, some);
            left -= some;
        }
        break;
    case RING__ROW_accept:
        if (at != NULL) {
            socklen_t *len = (socklen_t *)(uintptr_t)op->off;

            VALGRIND_MAKE_MEM_DEFINED(len, sizeof *len);
            VALGRIND_MAKE_MEM_DEFINED(at, *len);
        }
        break;
    case RING__ROW_statx:
        VALGRIND_MAKE_MEM_DEFINED((char *)(uintptr_t)op->off, sizeof(struct statx));
        break;
    default:
        break;
    }
}

#endif
