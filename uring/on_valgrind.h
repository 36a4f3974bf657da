/* on_valgrind.h: what valgrind can't see for itself, told to it. Costs one test of a flag elsewhere.
 *
 * It doesn't know that the kernel writes an operation's memory long after the system call, and (3.19)
 * that io_uring_enter may block: while a thread waits there, no other one runs.
 */
#ifndef RING_ON_VALGRIND_H
#define RING_ON_VALGRIND_H

#include "ring_internal.h"

#include <signal.h>
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

/* Of a datagram that was cut, `left` may be longer than the pieces (MSG_TRUNC). */
static inline void ring__tell_pieces(const struct iovec *iov, size_t count, size_t left)
{
    for (; count > 0 && left > 0; count--, iov++) {
        size_t some = left < iov->iov_len ? left : iov->iov_len;

        VALGRIND_MAKE_MEM_DEFINED(iov->iov_base, some);
        left -= some;
    }
}

static inline void ring__tell_message(struct msghdr *message, size_t left)
{
    VALGRIND_MAKE_MEM_DEFINED(message, sizeof *message);
    VALGRIND_MAKE_MEM_DEFINED(message->msg_name, message->msg_namelen);
    VALGRIND_MAKE_MEM_DEFINED(message->msg_control, message->msg_controllen);
    ring__tell_pieces(message->msg_iov, message->msg_iovlen, left);
}

/* The memory that an operation with that result has written. */
static inline void ring__tell_valgrind(const struct ring_op *op, int res)
{
    char *at = (char *)(uintptr_t)op->addr, *off = (char *)(uintptr_t)op->off;
    size_t left = res > 0 ? (size_t)res : 0;

    if (res < 0)
        return;
    switch (op->row) {
    case RING__ROW_read:
    case RING__ROW_recv:
        VALGRIND_MAKE_MEM_DEFINED(at, left);
        break;
    case RING__ROW_readv:
        ring__tell_pieces((const struct iovec *)(void *)at, op->len, left);
        break;
    case RING__ROW_recvmsg:
        ring__tell_message((struct msghdr *)(void *)at, left);
        break;
    case RING__ROW_fgetxattr:
    case RING__ROW_getxattr:
        VALGRIND_MAKE_MEM_DEFINED(off, left < op->len ? left : op->len);
        break;
    case RING__ROW_waitid:
        if (off != NULL)
            VALGRIND_MAKE_MEM_DEFINED(off, sizeof(siginfo_t));
        break;
    case RING__ROW_accept:
        if (at != NULL) {
            socklen_t *len = (socklen_t *)(void *)off;

            VALGRIND_MAKE_MEM_DEFINED(len, sizeof *len);
            VALGRIND_MAKE_MEM_DEFINED(at, *len);
        }
        break;
    case RING__ROW_statx:
        VALGRIND_MAKE_MEM_DEFINED(off, sizeof(struct statx));
        break;
    default:
        break;
    }
}

#endif
