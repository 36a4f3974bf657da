/* select_fiber.c: a descriptor as a case of fiber_select: a poll of the engine. The operation is in
 * the case, so a case that is not the one to happen is detached when the poll's end has been
 * reported. */
#include <weft/io.h>

#include "ring_internal.h"
#include "select.h"

static bool ready(struct fiber_case *c)
{
    const struct ring_op *op = FIBER__CASE_ROOM(c, struct ring_op);
    struct pollfd pollfd = {.fd = op->fd, .events = (short)op->how};

    if (poll(&pollfd, 1, 0) <= 0)
        return false;
    c->result = pollfd.revents & POLLNVAL ? -EBADF : pollfd.revents;
    return true;
}

static void happen(struct fiber_case *c)
{
    (void)c; /* ready() has set the result */
}

static void done(struct ring_op *op, int res, unsigned flags)
{
    struct fiber_case *c = fiber__case_of(op);

    (void)flags;
    if (c->busy) {
        c->busy = false;
        c->result = res;
        fiber__case_happened(c);
    } else {
        fiber__case_detached(c);
    }
}

static int attach(struct fiber_case *c)
{
    struct ring_op *op = FIBER__CASE_ROOM(c, struct ring_op);

    op->done = done;
    c->busy = true; /* it hasn't been told to end */
    return ring__submit(c->selection->rt, op);
}

static bool detach(struct fiber_case *c)
{
    c->busy = false;
    ring__cancel(c->selection->rt, FIBER__CASE_ROOM(c, struct ring_op));
    return false;
}

void fiber_case_poll(struct fiber_case *c, int fd, short events)
{
    static const struct fiber_case_kind kind = {
        .ready = ready,
        .happen = happen,
        .attach = attach,
        .detach = detach,
        .costly = true,
    };

    if (fiber__case_set(c, &kind, NULL))
        ring__prepare_poll(FIBER__CASE_ROOM(c, struct ring_op), fd, events);
}
