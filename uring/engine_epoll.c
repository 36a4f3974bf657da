/* engine_epoll.c: the engine on epoll(7), for where io_uring is not to be had.
 *
 * It looks like a ring from outside: operations are queued by submit, and a turn attempts them in
 * order, by the system calls of attempt.c, and reports what they did. What has to wait for its
 * descriptor stands in one of the descriptor's queues until epoll says that it is ready; what has to
 * wait for a disk goes to the pool. Invariants:
 *   - An operation in flight is in one place: the queue of those to attempt (HELD), a queue of its
 *     descriptor, or with the pool (OFFLOADED). The operations are the queues' nodes.
 *   - A descriptor's queues are FIFO: one for each direction, so that a receive and a send wait side
 *     by side, and two receives are served in the order they were begun. What waits for something
 *     else (polls, out-of-band data) stands in a third queue and holds up nobody.
 *   - done() may submit, cancel and close. Submitting and cancelling only append to the queue of
 *     those to attempt; so whoever calls done() must hold no pointer to any operation.
 *   - Nothing allocates after create(), but for the table of descriptors, when a larger descriptor
 *     than ever is first used.
 *
 * Registrations are edge-triggered, one a descriptor, and stay: an operation costs no epoll_ctl. An
 * operation first attempts, then waits; data that come in between are an edge already. Interest in a
 * direction is taken away when events come twice that nobody waits for.
 *
 * A registration is the file's, not the number's. If a descriptor is closed elsewhere than through
 * weft, and its number is another file's now, what stands here is wrong: the kernel has dropped the
 * registration, or (when a duplicate keeps the file open) reports a file nobody knows any more. So
 * an operation that waits on a registration that was there already merely TRUSTs it, until one
 * EPOLL_CTL_MOD confirms it, which also looks whether the file is ready. That is done before the engine
 * sleeps, and after VERIFY_AFTER if it never does; most waits are over before. If the kernel says
 * ENOENT, the file is another one: what waits for the old file ends with -ECANCELED.
 * Events of files nobody knows (ghosts) are told by the slot's generation; only a new epoll instance
 * is rid of them, and is made when there are many.
 */
#include "ring_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif

#define ENTRIES      4096 /* operations in flight that are found quickly */
#define EVENTS       256  /* taken at a time */
#define GHOSTS       32   /* so many events of files nobody knows are too many */
#define VERIFY_AFTER WEFT_MS(2)
#define STALL        WEFT_MS(1) /* until an operation is attempted again that no event will announce */
#define LOOK_EVERY   WEFT_US(10) /* how long passes may go on without asking the kernel */

#define IN  (EPOLLIN | EPOLLRDNORM | EPOLLRDBAND | EPOLLPRI | EPOLLRDHUP)
#define OUT (EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND)

/* ring_op.state */
enum {
    TRUSTING = 4, /* waits on a registration not confirmed since: in `young` or `old` */
    STALLED = 8,  /* waits, but for the clock: in `stalled` */
    GONE = 16,    /* the file it waited for is another one now: it ends, unattempted */
};

struct queue {
    struct ring_op *head, **tail;
};

/* What is known of one descriptor. */
struct slot {
    struct queue in, out, any;
    uint32_t generation; /* in the events of its registration */
    uint32_t changed;    /* the look during which the registration was last changed */
    uint32_t interest;   /* the events registered */
    uint8_t unwanted;    /* directions in which an event came that nobody waited for: UNWANTED_* */
    bool registered;
    bool is_stream; /* a receive that comes short has taken all there is */
    bool drained;   /* nothing to receive, until an event says otherwise */
};

enum { UNWANTED_IN = 1, UNWANTED_OUT = 2 };

#define CHUNK 256u /* slots allocated together; they never move */

struct epoll {
    struct ring__engine io; /* must be first */

    struct queue held;                  /* to be attempted in the next turn */
    struct queue receiving;             /* after those: they find what is sent in the same turn */
    struct ring_op *young, *old;        /* TRUSTING, through ring_op.other */
    struct ring_op *stalled;            /* the same way */
    weft_time verify_at, stalled_until; /* when `old`, `stalled` are due */
    weft_time looked_at;                /* when the kernel was last asked for events */
    size_t waiting;                     /* operations in queues of descriptors */
    uint32_t looks;                     /* times the kernel was asked for events */
    unsigned ghosts;
    int fd;
    bool has_pwait2;
    bool has_more; /* the last look filled the array */
    bool woken;    /* the wake-up was among this turn's events */

    struct slot **chunks;
    unsigned chunks_count;

    struct epoll_event events[EVENTS];
};

#define WAKE UINT64_MAX /* epoll_event.data of the wake-up descriptor */

static inline struct epoll *self(struct weft__engine *engine)
{
    return (struct epoll *)(void *)engine;
}

/* ---- the table of descriptors ---- */

static inline struct slot *slot_of(const struct epoll *e, int fd)
{
    unsigned chunk = (unsigned)fd / CHUNK;

    if (weft__unlikely(chunk >= e->chunks_count || e->chunks[chunk] == NULL))
        return NULL;
    return &e->chunks[chunk][(unsigned)fd % CHUNK];
}

static void init_queue(struct queue *queue)
{
    queue->head = NULL;
    queue->tail = &queue->head;
}

/* Makes a slot for `fd`. 0 or -ENOMEM. */
static int make_slot(struct epoll *e, int fd)
{
    unsigned chunk = (unsigned)fd / CHUNK, count = e->chunks_count;
    struct slot *slots;

    if (chunk >= count) {
        struct slot **chunks;

        while (count <= chunk)
            count = count == 0 ? 4 : count * 2;
        chunks = realloc(e->chunks, count * sizeof(struct slot *));
        if (chunks == NULL)
            return -ENOMEM;
        memset(chunks + e->chunks_count, 0, (count - e->chunks_count) * sizeof(struct slot *));
        e->chunks = chunks;
        e->chunks_count = count;
    }
    slots = calloc(CHUNK, sizeof *slots);
    if (slots == NULL)
        return -ENOMEM;
    for (unsigned i = 0; i < CHUNK; i++) {
        init_queue(&slots[i].in);
        init_queue(&slots[i].out);
        init_queue(&slots[i].any);
    }
    e->chunks[chunk] = slots;
    return 0;
}

/* ---- where an operation waits ---- */

static bool is_poll(const struct ring_op *op)
{
    return op->row == RING__ROW_poll;
}

static inline bool has_flag(const struct ring_op *op, unsigned flag)
{
    return ring__rows[op->row].traits & RING__MSG && op->how & flag;
}

static inline bool is_odd(const struct ring_op *op)
{
    return weft__unlikely(op->row >= RING__ODD);
}

/* The descriptor whose queue an operation stands in. */
static inline int fd_of(const struct ring_op *op)
{
    short events;
    int fd = op->fd;

    if (is_odd(op))
        ring__awaited(op, &fd, &events);
    return fd;
}

static struct queue *queue_of(struct slot *slot, const struct ring_op *op)
{
    if (is_poll(op) || is_odd(op) || has_flag(op, MSG_OOB | MSG_ERRQUEUE))
        return &slot->any;
    return ring__rows[op->row].ready & POLLOUT ? &slot->out : &slot->in;
}

static uint32_t interest_of(const struct ring_op *op)
{
    short ready = ring__rows[op->row].ready;
    unsigned events;
    int fd;

    if (is_odd(op))
        ring__awaited(op, &fd, &ready);
    events = is_poll(op) ? op->how : (unsigned short)ready;
    return (events & IN ? (uint32_t)IN : 0) | (events & OUT ? (uint32_t)OUT : 0);
}

static void link_other(struct ring_op **list, struct ring_op *op)
{
    op->own.other = *list;
    op->own.other_link = list;
    if (*list != NULL)
        (*list)->own.other_link = &op->own.other;
    *list = op;
}

static void unlink_other(struct ring_op *op)
{
    *op->own.other_link = op->own.other;
    if (op->own.other != NULL)
        op->own.other->own.other_link = op->own.other_link;
}

/* Takes a whole list over; those on it can still be unlinked. */
static void splice_other(struct ring_op **to, struct ring_op **from)
{
    *to = *from;
    if (*to != NULL)
        (*to)->own.other_link = to;
    *from = NULL;
}

static void hold(struct epoll *e, struct ring_op *op)
{
    op->state |= RING__HELD;
    ring__append(ring__rows[op->row].ready == POLLIN ? &e->receiving.tail : &e->held.tail, op);
}

static void enqueue(struct epoll *e, struct slot *slot, struct ring_op *op)
{
    ring__append(&queue_of(slot, op)->tail, op);
    e->waiting++;
}

static void dequeue(struct epoll *e, struct slot *slot, struct ring_op *op)
{
    ring__remove(&queue_of(slot, op)->tail, op);
    if (op->state & (TRUSTING | STALLED)) {
        unlink_other(op);
        op->state &= (uint16_t) ~(TRUSTING | STALLED);
    }
    e->waiting--;
}

static void trust(struct epoll *e, struct ring_op *op)
{
    if (e->young == NULL && e->old == NULL)
        e->verify_at = weft_after(VERIFY_AFTER);
    op->state |= TRUSTING;
    link_other(&e->young, op);
}

static void stall(struct epoll *e, struct ring_op *op)
{
    if (op->state & (TRUSTING | STALLED))
        return;
    if (e->stalled == NULL)
        e->stalled_until = weft_after(STALL);
    op->state |= STALLED;
    link_other(&e->stalled, op);
}

/* ---- registrations ---- */

static int control(struct epoll *e, int how, int fd, uint32_t interest, uint64_t data)
{
    struct epoll_event event = {.events = interest | EPOLLET, .data.u64 = data};

    /* of a registration that is there, the kernel never lacks room to change it */
    if (weft__unlikely(e->io.faulty) && how == EPOLL_CTL_ADD && e->io.faults.no_watch > 0) {
        e->io.faults.no_watch--;
        return -ENOSPC;
    }
    return epoll_ctl(e->fd, how, fd, &event) < 0 ? -errno : 0;
}

static void forget_slot(struct epoll *e, struct slot *slot)
{
    slot->registered = slot->is_stream = slot->drained = false;
    slot->interest = 0;
    slot->generation++;
    slot->changed = e->looks;
}

/* What waits in this queue for a file that is not the descriptor's any more. Those that TRUST are
 * younger, or at least may be. */
static void evict(struct epoll *e, struct slot *slot, struct queue *queue, bool all)
{
    struct ring_op *op = queue->head, *next;

    for (; op != NULL; op = next) {
        next = op->next;
        if (all || !(op->state & TRUSTING)) {
            dequeue(e, slot, op);
            op->state |= GONE;
            hold(e, op);
        }
    }
}

static void evict_slot(struct epoll *e, struct slot *slot, bool all)
{
    forget_slot(e, slot);
    evict(e, slot, &slot->in, all);
    evict(e, slot, &slot->out, all);
    evict(e, slot, &slot->any, all);
}

/* Asks the kernel to watch a descriptor for `wanted` besides what it is watched for already, and to
 * look at once. 0, or what epoll_ctl said: -EPERM: the file is always ready, or never; -EBADF; -ENOMEM,
 * -ENOSPC: not now. */
static int watch(struct epoll *e, struct slot *slot, int fd, uint32_t wanted)
{
    uint32_t interest = slot->interest | wanted;
    int rc;

    if (slot->registered) {
        rc = control(e, EPOLL_CTL_MOD, fd, interest,
                     (uint64_t)slot->generation << 32 | (unsigned)fd);
        if (rc == 0)
            slot->interest = interest;
        if (rc != -ENOENT)
            return rc;
        evict_slot(e, slot, false);
    }
    forget_slot(e, slot);
    rc = control(e, EPOLL_CTL_ADD, fd, interest, (uint64_t)slot->generation << 32 | (unsigned)fd);
    if (rc == -EEXIST) /* closed and made again by duplicating: the file is as it was */
        rc = control(e, EPOLL_CTL_MOD, fd, interest,
                     (uint64_t)slot->generation << 32 | (unsigned)fd);
    if (rc == 0) {
        slot->registered = true;
        slot->interest = interest;
        slot->unwanted = 0;
    }
    return rc;
}

/* ---- attempts ---- */

/* All of it, in as many calls as that takes: MSG_WAITALL is the loop's here, since each call must not
 * wait. What has been moved is the operation's whatever comes next. */
static int attempt_all(struct ring_op *op)
{
    struct ring_op rest = *op;
    int type, rc;
    socklen_t size = sizeof type;

    do {
        rest.addr = op->addr + op->own.moved;
        rest.len = op->len - op->own.moved;
        rc = ring__attempt(&rest, false);
        if (rc > 0)
            op->own.moved += (uint32_t)rc;
    } while (rc > 0 && op->own.moved < op->len &&
             getsockopt(op->fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM);
    return rc == -EAGAIN || op->own.moved == 0 ? rc : (int)op->own.moved;
}

static bool is_to_be_all(const struct ring_op *op)
{
    return (op->row == RING__ROW_recv || op->row == RING__ROW_send) &&
           !has_flag(op, MSG_DONTWAIT | MSG_PEEK | MSG_TRUNC);
}

/* What an attempt came to; -EAGAIN: it has to wait for its descriptor. */
static int attempt(struct epoll *e, struct ring_op *op)
{
    int rc;

    if (weft__unlikely(op->state & GONE))
        return -ECANCELED;
    if (weft__unlikely(e->io.faulty))
        rc = ring__attempt_faulty(&e->io, op);
    else if (weft__unlikely(has_flag(op, MSG_WAITALL)) && is_to_be_all(op))
        rc = attempt_all(op);
    else
        rc = ring__attempt(op, false);
    if (rc == -EINPROGRESS && op->row == RING__ROW_connect) {
        op->state |= RING__CONNECTING;
        rc = -EAGAIN;
    }
    return rc;
}

static bool receives(const struct ring_op *op)
{
    return (op->row == RING__ROW_recv || op->row == RING__ROW_read) && op->len > 0;
}

/* Whether a socket's bytes come as a stream. */
static bool is_stream(int fd)
{
    int type;
    socklen_t size = sizeof type;

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

/* After an attempt to receive. If it has left nothing, the next one need not even be attempted before
 * an event comes: what comes later is an edge. (Where that is wrong, at an urgent mark, confirming the
 * registration shows it.) */
static void note_drained(struct slot *slot, const struct ring_op *op, int res)
{
    if (receives(op))
        slot->drained = slot->is_stream && !has_flag(op, MSG_PEEK | MSG_TRUNC) &&
                        (res == -EAGAIN || (res > 0 && (uint32_t)res < op->len));
}

static bool may_wait(const struct ring_op *op)
{
    return is_poll(op) || ring__may_wait(op);
}

/* A descriptor has been made, so its number was free: what stands here of it is of another file. */
static void note_new(struct epoll *e, int fd)
{
    struct slot *slot = slot_of(e, fd);

    if (slot != NULL)
        evict_slot(e, slot, true);
}

static void note_made(struct epoll *e, const struct ring_op *op, int res)
{
    const int *pair = (const int *)(uintptr_t)op->addr;

    if (ring__rows[op->row].traits & RING__MAKES_PAIR) {
        note_new(e, pair[0]);
        note_new(e, pair[1]);
    } else {
        note_new(e, res);
    }
}

/* After an attempt that need not, or must not, wait. The operation is in no queue. */
static void settle(struct epoll *e, struct ring_op *op, int res)
{
    bool cancelling = op->state & RING__CANCELLING;

    if (res == RING__WOULD_BLOCK && !cancelling) {
        ring__offload(&e->io, op);
        return;
    }
    if (res == -EINTR && !cancelling) {
        hold(e, op);
        return;
    }
    if (res == RING__WOULD_BLOCK || res == -EINTR || (res == -EAGAIN && may_wait(op)))
        res = -ECANCELED;
    if (res == -ECANCELED && ring__rows[op->row].traits & RING__MSG && op->own.moved > 0)
        res = (int)op->own.moved;
    if (ring__rows[op->row].traits & (RING__MAKES_FD | RING__MAKES_PAIR) && res >= 0)
        note_made(e, op, res);
    ring__finish(&e->io, op, res, 0);
}

/* An attempt found nothing: into the descriptor's queue, with the kernel watching. */
static void wait_for(struct epoll *e, struct ring_op *op)
{
    int rc = ring__await(op), fd = fd_of(op);
    uint32_t wanted = interest_of(op);
    struct slot *slot;

    if (rc == 0 && slot_of(e, fd) == NULL) /* it was no descriptor at submission, or is another */
        rc = make_slot(e, fd);
    if (rc < 0) {
        ring__finish(&e->io, op, rc, 0);
        return;
    }
    slot = slot_of(e, fd);
    slot->unwanted &=
        (uint8_t) ~((wanted & IN ? UNWANTED_IN : 0) | (wanted & OUT ? UNWANTED_OUT : 0));
    if (slot->registered && (slot->interest & wanted) == wanted) {
        enqueue(e, slot, op);
        trust(e, op);
        return;
    }
    rc = watch(e, slot, fd, wanted);
    if (rc == 0) {
        if (receives(op))
            slot->is_stream = is_stream(op->fd);
        enqueue(e, slot, op);
    } else if (rc == -ENOMEM || rc == -ENOSPC) {
        enqueue(e, slot, op);
        stall(e, op);
    } else if (rc == -EPERM) {
        ring__offload(&e->io, op);
    } else {
        ring__finish(&e->io, op, rc, 0);
    }
}

/* A queue's descriptor may be ready: attempts what waits in it, in order, until one has to wait on. That
 * one stalls if the descriptor polls as ready even so, for then no event need ever come: an
 * unconnected datagram socket does, and a local one whose listener's queue is full. */
static void serve(struct epoll *e, struct slot *slot, struct queue *queue)
{
    while (queue->head != NULL) {
        struct ring_op *op = queue->head;
        int res = attempt(e, op);

        note_drained(slot, op, res);
        if (res == -EAGAIN && may_wait(op)) {
            if (ring__poll_now(op->fd, ring__rows[op->row].ready) > 0)
                stall(e, op);
            return;
        }
        dequeue(e, slot, op);
        settle(e, op, res);
    }
}

/* The third queue: each for itself. */
static void serve_any(struct epoll *e, struct slot *slot)
{
    unsigned count = 0;

    for (const struct ring_op *op = slot->any.head; op != NULL; op = op->next)
        count++;
    for (; count > 0 && slot->any.head != NULL; count--) {
        struct ring_op *op = slot->any.head;
        int res = attempt(e, op);

        if (res == -EAGAIN && may_wait(op) && !is_odd(op)) { /* to the end of the queue */
            ring__remove(&slot->any.tail, op);
            ring__append(&slot->any.tail, op);
            if (weft__unlikely(e->io.faulty))
                stall(e, op); /* perhaps that was not true, and no further event will come */
        } else if (res == -EAGAIN && may_wait(op)) { /* perhaps for another descriptor */
            dequeue(e, slot, op);
            wait_for(e, op);
        } else {
            dequeue(e, slot, op);
            settle(e, op, res);
        }
    }
}

/* A descriptor is about to be closed by an operation. What waits on it loses its file. */
static void leave(struct epoll *e, int fd)
{
    struct slot *slot = slot_of(e, fd);

    if (slot == NULL)
        return;
    if (slot->registered)
        control(e, EPOLL_CTL_DEL, fd, 0, 0);
    evict_slot(e, slot, true);
}

/* The first of those to be attempted. It stands in line behind those that wait for the same; if it is
 * not to wait at all, they go first, as far as they can. */
static void begin(struct epoll *e, struct queue *from)
{
    struct ring_op *op = from->head;
    struct slot *slot = ring__rows[op->row].ready != 0 && !is_odd(op) ? slot_of(e, op->fd) : NULL;
    struct queue *line = slot != NULL ? queue_of(slot, op) : NULL;
    bool patient = !(op->state & RING__CANCELLING) && !has_flag(op, MSG_DONTWAIT);
    int res;

    if (line != NULL && (line == &slot->any || op->state & GONE))
        line = NULL;
    if (line != NULL && !patient)
        serve(e, slot, line);
    ring__remove(&from->tail, op);
    op->state &= (uint16_t)~RING__HELD;
    if (op->row == RING__ROW_close)
        leave(e, op->fd);
    if (line != NULL &&
        (line->head != NULL || (slot->drained && patient && receives(op) && !e->io.faulty))) {
        res = -EAGAIN;
    } else {
        res = attempt(e, op);
        if (line != NULL)
            note_drained(slot, op, res);
    }
    if (res == -EAGAIN && may_wait(op) && !(op->state & RING__CANCELLING))
        wait_for(e, op);
    else
        settle(e, op, res);
}

static struct ring_op *last_of(const struct queue *queue)
{
    return queue->head == NULL ? NULL : weft__container(queue->tail, struct ring_op, next);
}

static void begin_until(struct epoll *e, struct queue *held, const struct ring_op *last)
{
    const struct ring_op *op = NULL;

    while (op != last) {
        op = held->head;
        begin(e, held);
    }
}

/* Those that are held now, but not what is added meanwhile: a receive that follows a send would only
 * find that its answer hasn't come. */
static void begin_all(struct epoll *e)
{
    const struct ring_op *last = last_of(&e->held), *last_receiving = last_of(&e->receiving);

    begin_until(e, &e->held, last);
    begin_until(e, &e->receiving, last_receiving);
}

static bool has_held(const struct epoll *e)
{
    return e->held.head != NULL || e->receiving.head != NULL;
}

/* ---- operations that don't wait for an event ---- */

/* Has the kernel confirm the registrations that the operations of a list wait on. */
static void verify(struct epoll *e, struct ring_op **list)
{
    struct ring_op *trusting, *op;

    splice_other(&trusting, list);
    while ((op = trusting) != NULL) {
        int fd = fd_of(op), rc;
        struct slot *slot = slot_of(e, fd);

        rc = watch(e, slot, fd, interest_of(op));

        unlink_other(op);
        op->state &= (uint16_t)~TRUSTING;
        if (rc == -ENOMEM || rc == -ENOSPC) {
            stall(e, op);
        } else if (rc < 0) {
            dequeue(e, slot, op);
            settle(e, op, rc == -EPERM ? RING__WOULD_BLOCK : rc);
        }
    }
}

/* Operations that have trusted for long, while the engine never slept. */
static void verify_some(struct epoll *e)
{
    verify(e, &e->old);
    splice_other(&e->old, &e->young);
    e->verify_at = weft_after(VERIFY_AFTER);
}

static void retry_stalled(struct epoll *e)
{
    struct ring_op *stalled, *op;

    splice_other(&stalled, &e->stalled);
    while ((op = stalled) != NULL) {
        struct slot *slot = slot_of(e, fd_of(op));
        struct queue *queue = queue_of(slot, op);

        unlink_other(op);
        op->state &= (uint16_t)~STALLED;
        trust(e, op); /* perhaps the kernel has never been asked to watch */
        if (queue == &slot->any)
            serve_any(e, slot);
        else
            serve(e, slot, queue);
    }
}

/* ---- asking the kernel ---- */

static int watch_wakes(const struct epoll *e, int fd)
{
    /* each write is an edge, so that it need never be read */
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = WAKE};

    return epoll_ctl(fd, EPOLL_CTL_ADD, e->io.wake_fd, &event) < 0 ? -errno : 0;
}

/* A new epoll instance, in which no file is that nobody knows. If none is to be had, later perhaps. */
static void rebuild(struct epoll *e)
{
    int fd = epoll_create1(EPOLL_CLOEXEC);

    e->ghosts = 0;
    if (fd < 0)
        return;
    if (watch_wakes(e, fd) < 0) {
        close(fd);
        return;
    }
    close(e->fd);
    e->fd = fd;
    for (unsigned i = 0; i < e->chunks_count; i++)
        for (unsigned j = 0; e->chunks[i] != NULL && j < CHUNK; j++)
            if (e->chunks[i][j].registered)
                forget_slot(e, &e->chunks[i][j]);
    for (unsigned i = 0; i <= e->io.bucket_mask + 1; i++)
        for (struct ring_op *op = e->io.buckets[i]; op != NULL; op = op->same)
            if (!(op->state & (RING__HELD | RING__OFFLOADED | TRUSTING | STALLED)))
                trust(e, op);
}

/* An event nobody waited for. The second time, the kernel need not tell any more. */
static void decline(struct epoll *e, struct slot *slot, int fd, uint32_t direction)
{
    uint8_t bit = direction == IN ? UNWANTED_IN : UNWANTED_OUT;
    uint32_t interest = slot->interest & ~direction;

    if (!slot->registered || interest == slot->interest)
        return;
    if (!(slot->unwanted & bit)) {
        slot->unwanted |= bit;
    } else if (control(e, EPOLL_CTL_MOD, fd, interest,
                       (uint64_t)slot->generation << 32 | (unsigned)fd) == 0) {
        slot->interest = interest;
        slot->unwanted &= (uint8_t)~bit;
    } else { /* closed, and yet it speaks */
        forget_slot(e, slot);
        e->ghosts++;
    }
}

static void take_event(struct epoll *e, const struct epoll_event *event)
{
    uint32_t events = event->events;
    bool in = events & (IN | EPOLLERR | EPOLLHUP), out = events & (OUT | EPOLLERR | EPOLLHUP);
    int fd = (int)(uint32_t)event->data.u64;
    struct slot *slot;

    if (event->data.u64 == WAKE) {
        e->woken = true;
        return;
    }
    slot = slot_of(e, fd);
    if (!slot->registered || event->data.u64 >> 32 != slot->generation) {
        /* if it has changed since the kernel was asked, the event is merely late */
        if (slot->changed != e->looks)
            e->ghosts++;
        return;
    }
    slot->drained = slot->drained && !in;
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) /* no edge announces the end a second time */
        slot->is_stream = false;
    if (slot->any.head == NULL) {
        if (events & IN && slot->in.head == NULL)
            decline(e, slot, fd, IN);
        if (events & OUT && slot->out.head == NULL)
            decline(e, slot, fd, OUT);
    }
    if (in)
        serve(e, slot, &slot->in);
    if (out)
        serve(e, slot, &slot->out);
    serve_any(e, slot);
}

static int wait_until(struct epoll *e, weft_time until)
{
    int64_t left = until - weft_now(), ms;

    if (left < 0)
        left = 0;
    if (e->has_pwait2) {
        const struct timespec timeout = {.tv_sec = (time_t)(left / 1000000000),
                                         .tv_nsec = left % 1000000000};
        int n = (int)syscall(SYS_epoll_pwait2, e->fd, e->events, EVENTS, &timeout, NULL, (size_t)0);

        if (n >= 0 || errno != ENOSYS)
            return n;
        e->has_pwait2 = false; /* before 5.11: milliseconds, rounded up */
    }
    ms = (left + 999999) / 1000000;
    return epoll_wait(e->fd, e->events, EVENTS, ms < INT_MAX ? (int)ms : INT_MAX);
}

/* Asks for events, waits for them until `until`, and serves whoever waits for them. 0, or an error. */
static int look(struct epoll *e, weft_time until)
{
    int n;

    e->io.enters++;
    e->looks++;
    if (weft__unlikely(e->io.faulty) && e->io.faults.enter > 0) {
        e->io.faults.enter--;
        return e->io.faults.enter_error;
    }
    if (until == WEFT_NOWAIT || until == WEFT_FOREVER)
        n = epoll_wait(e->fd, e->events, EVENTS, until == WEFT_NOWAIT ? 0 : -1);
    else
        n = wait_until(e, until);
    if (n < 0)
        return -errno;
    e->has_more = n == EVENTS;
    e->looked_at = weft_now();
    for (int i = 0; i < n; i++)
        take_event(e, &e->events[i]);
    if (weft__unlikely(e->ghosts > GHOSTS))
        rebuild(e);
    return 0;
}

/* ---- the engine's class ---- */

static int engine_submit(struct weft__engine *engine, struct ring_op *op)
{
    struct epoll *e = self(engine);

    if (weft__unlikely(!*e->io.alive))
        return -ECHILD;
    if (ring__rows[op->row].traits & (RING__MULTI | RING__CHOSEN))
        return -EOPNOTSUPP; /* streams do without */
    if (weft__unlikely(e->io.ended))
        return -ECANCELED;
    if (weft__unlikely(e->io.closing != NULL) && ring__is_closing(&e->io, op))
        return -EBADF;
    if (ring__rows[op->row].traits & RING__ON_FD && op->fd >= 0 && slot_of(e, op->fd) == NULL &&
        fcntl(op->fd, F_GETFD) >= 0 && make_slot(e, op->fd) < 0)
        return -ENOMEM;
    ring__begin(&e->io, op);
    if (ring__rows[op->row].traits & RING__MSG)
        op->own.moved = 0;
    e->io.submitted++;
    hold(e, op);
    return 0;
}

static void engine_cancel(struct weft__engine *engine, struct ring_op *op)
{
    struct epoll *e = self(engine);

    if (!*e->io.alive || op->state & RING__CANCELLING)
        return;
    op->state |= RING__CANCELLING;
    if (op->state & RING__HELD)
        return; /* it is attempted all the same, once */
    if (!(op->state & RING__OFFLOADED))
        dequeue(e, slot_of(e, fd_of(op)), op);
    else if (!ring__offload_withdraw(&e->io, op))
        return;
    hold(e, op);
}

static void engine_cancel_all(struct weft__engine *engine)
{
    struct epoll *e = self(engine);

    e->io.ended = true;
    for (unsigned i = 0; i <= e->io.bucket_mask + 1; i++)
        for (struct ring_op *op = e->io.buckets[i]; op != NULL; op = op->same)
            engine_cancel(engine, op);
}

static void engine_forget(struct weft__engine *engine, int fd)
{
    struct epoll *e = self(engine);
    struct slot *slot = slot_of(e, fd);

    if (slot != NULL && slot->registered && *e->io.alive) {
        control(e, EPOLL_CTL_DEL, fd, 0, 0);
        forget_slot(e, slot);
    }
}

/* The pool has made an attempt. Only a splice waits for its descriptors after one. */
static void engine_attempted(struct ring__engine *engine, struct ring_op *op, int res)
{
    struct epoll *e = self(&engine->base);

    if (res == -EAGAIN && is_odd(op) && may_wait(op) && !(op->state & RING__CANCELLING))
        wait_for(e, op);
    else
        settle(e, op, res);
}

static bool engine_quiet(struct weft__engine *engine)
{
    struct epoll *e = self(engine);

    return !has_held(e) &&
           (e->waiting == 0 || (!e->has_more && weft_now() - e->looked_at < LOOK_EVERY));
}

static int engine_turn(struct weft__engine *engine, weft_time until)
{
    struct epoll *e = self(engine);
    uint64_t before = e->io.completed;
    bool wait;
    int rc = 0;

    if (weft__unlikely(!*e->io.alive))
        return ring__refuse_fork(&e->io);
    e->woken = false;
    begin_all(e);
    if (e->stalled != NULL && weft_now() >= e->stalled_until)
        retry_stalled(e);
    if ((e->young != NULL || e->old != NULL) && weft_now() >= e->verify_at)
        verify_some(e);

    wait = until != WEFT_NOWAIT && e->io.completed == before && !has_held(e);
    /* before going to sleep: if something is ready, nothing needs to be verified yet */
    if (e->waiting > 0 && (!wait || e->young != NULL || e->old != NULL))
        rc = look(e, WEFT_NOWAIT);
    if (wait && rc == 0 && !e->woken && e->io.completed == before) {
        verify(e, &e->old);
        verify(e, &e->young);
        if (e->io.completed == before && !has_held(e))
            rc = look(e, e->stalled != NULL && e->stalled_until < until ? e->stalled_until : until);
    }
    return rc == -EINTR || rc == -EAGAIN || rc == -EBUSY || rc == -ETIME ? 0 : rc;
}

/* ---- life ---- */

static void engine_destroy(struct weft__engine *engine)
{
    struct epoll *e = self(engine);

    close(e->fd);
    for (unsigned i = 0; i < e->chunks_count; i++)
        free(e->chunks[i]);
    free(e->chunks);
    ring__engine_finish(&e->io);
    free(e);
}

static int engine_create(struct weft__engine **engine, const struct weft_options *options,
                         char *why, size_t why_size)
{
    struct epoll *e = calloc(1, sizeof *e);
    int rc;

    if (e == NULL)
        return -ENOMEM;
    e->io.base.class = &weft__engine_epoll;
    e->has_pwait2 = true;
    init_queue(&e->held);
    init_queue(&e->receiving);
    rc = ring__engine_init(&e->io, ENTRIES, options, why, why_size);
    if (rc < 0)
        goto no_engine;
    e->io.attempted = engine_attempted;
    e->fd = epoll_create1(EPOLL_CLOEXEC);
    rc = e->fd < 0 ? -errno : watch_wakes(e, e->fd);
    if (rc < 0) {
        ring__explain_descriptors(rc, why, why_size);
        goto no_epoll;
    }
    *engine = &e->io.base;
    return 0;

no_epoll:
    if (e->fd >= 0)
        close(e->fd);
    ring__engine_finish(&e->io);
no_engine:
    free(e);
    return rc;
}

const struct weft__engine_class weft__engine_epoll = {
    .name = "epoll",
    .create = engine_create,
    .destroy = engine_destroy,
    .quiet = engine_quiet,
    .turn = engine_turn,
    .wake = ring__wake,
    .cancel_all = engine_cancel_all,
    .stats = ring__engine_stats,
    .submit = engine_submit,
    .cancel = engine_cancel,
    .forget = engine_forget,
};
