/* operation.c: the raw form of every operation, and what becomes of what it has made. */
#include "ring_internal.h"

#include <string.h>

#define RING__SCM_PIDFD 4 /* since 6.5 */

const struct ring__row_info ring__rows[RING__ROWS] = {
#define OPERATION(name, opcode, ready, traits, ...) [RING__ROW_##name] = {#name, ready, traits},
#include "operations.def"
};

#define STREAM_OPERATION(...) /* streams submit them */
#define OPERATION(name, opcode, ready, traits, parameters, arguments, ...) \
    int ring_##name(struct ring_op *op RING__AFTER parameters)             \
    {                                                                      \
        struct weft_runtime *rt = weft__rt;                                \
        int error;                                                         \
                                                                           \
        if (weft__unlikely(rt == NULL))                                    \
            return -EINVAL;                                                \
        error = ring__prepare_##name(op RING__AFTER arguments);            \
        return error != 0 ? error : ring__submit(rt, op);                  \
    }
#include "operations.def"

void ring_cancel(struct ring_op *op)
{
    ring__cancel(weft__rt, op);
}

/* ---- descriptors that operations make ---- */

/* Descriptors that came with a message stand in its control data. Whoever looks at the message later
 * must not find them there. */
static bool discard_received(struct weft_runtime *rt, struct msghdr *message)
{
    bool any = false;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (c->cmsg_level != SOL_SOCKET ||
            (c->cmsg_type != SCM_RIGHTS && c->cmsg_type != RING__SCM_PIDFD))
            continue;
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (fd >= 0)
                ring__close(rt, fd);
            any = true;
        }
    }
    if (any)
        message->msg_controllen = 0;
    return any;
}

bool ring__discard(struct weft_runtime *rt, const struct ring_op *op, int res)
{
    uint16_t traits = ring__rows[op->row].traits;
    int *pair = (int *)(uintptr_t)op->addr;

    if (res < 0)
        return false;
    if (op->row == RING__ROW_recvmsg)
        return discard_received(rt, (struct msghdr *)(uintptr_t)op->addr);
    if (traits & RING__MAKES_FD)
        ring__close(rt, res);
    if (traits & RING__MAKES_PAIR) {
        ring__close(rt, pair[0]);
        ring__close(rt, pair[1]);
    }
    return traits & (RING__MAKES_FD | RING__MAKES_PAIR);
}
