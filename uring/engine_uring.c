/* engine_uring.c: the engine on io_uring.
 *
 * One io_uring_enter a turn hands over what was queued, runs the kernel's deferred work, and, only
 * if there is nothing else to do, waits. Invariants:
 *   - An operation is in one place: a list of those without room, the submission queue, or the
 *     kernel; or, as long as plain system calls do it, the plain list, the pool, or in a poll in the
 *     kernel. What is in flight is counted by operation, never inferred from what entering returns: a
 *     call may submit part of the queue, or all of it and still fail.
 *   - The queues are FIFO, but that what receives goes to the kernel after all else: so a receive
 *     whose data is sent in the same turn finds it at once, without a poll and a second attempt. The
 *     entries of those that receive are filled from the array's back, the others' from its front; the
 *     kernel is told of an entry by its number, of the former when it is about to be entered and all
 *     else is queued. An entry is used again only when the kernel has taken all that it was told of.
 *   - A request for an operation's end is handed over after the operation, and before the operation's
 *     memory can come back as another operation; so an address is identity enough. Such requests
 *     have guaranteed room: the op itself is the list's node.
 *   - Nothing allocates after create().
 *   - While the engine waits, the read of the wake-up descriptor is in the kernel.
 *   - A child of fork shares the rings' memory: the page `alive` reads 0 there (MADV_WIPEONFORK),
 *     and the rings are not touched.
 */
#include "on_valgrind.h"
#include "registered.h"
#include "stream_internal.h"

#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Newer than the oldest liburing this is built with. */
#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1U << 12)
#endif
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_DEFER_TASKRUN (1U << 13)
#endif
#ifndef IORING_ENTER_REGISTERED_RING
#define IORING_ENTER_REGISTERED_RING (1U << 4)
#endif
#ifndef IORING_CQE_F_NOTIF
#define IORING_CQE_F_NOTIF (1U << 3)
#endif
/* These are enumerators where they are known. */
#define IORING_OP_FSETXATTR  41
#define IORING_OP_SETXATTR   42
#define IORING_OP_FGETXATTR  43
#define IORING_OP_GETXATTR   44
#define IORING_OP_SOCKET     45
#define IORING_OP_SEND_ZC    47
#define IORING_OP_WAITID     50
#define IORING_OP_FUTEX_WAIT 51
#define IORING_OP_FUTEX_WAKE 52
#define IORING_OP_FTRUNCATE  55
#define IORING_OP_BIND       56
#define IORING_OP_LISTEN     57

#define ERESTARTSYS 512 /* the kernel's own; there are some more behind it */

#define SQ_ENTRIES   256u
#define CQ_ENTRIES   4096u
#define SQ_FLOOR     8u         /* fewer entries than this are not worth having */
#define FLUSH_ROUNDS 16         /* of an overflown completion queue, in one turn */
#define RETRY_WAIT   WEFT_MS(1) /* when the kernel refuses submissions and completes nothing */

/* ring_op.state */
enum {
    RING__CANCEL_HELD = 4, /* queued: the request for its end is not yet handed over */
    RING__POLLING = 8,     /* a poll stands in for it until its descriptor is ready */
    RING__REPEATED = 16,
    RING__FAULTED = 32,   /* what the kernel sees is a no-op; see struct ring__faults */
    RING__LOST = 64,      /* the kernel did not find it when its end was asked for, see ask_again */
    RING__SENT = 512,     /* zero copy: all but the end, for which nothing can be done */
    RING__FIXED = 1024,   /* it uses a registered buffer */
    RING__CLOSELY = 2048, /* there is more to its end than its report */
};

/* user_data: an operation's address; or one with a tag in the low bits: this engine's, or that of an
 * operation whose end is asked for, with the number of its bucket in place of the highest bits. */
enum { TAG_OP, TAG_WAKE, TAG_CANCEL, TAG_MASK = 7 };

#define BUCKET_SHIFT 48
#define ADDRESS_BITS (((uint64_t)1 << BUCKET_SHIFT) - 1 - TAG_MASK)

struct uring {
    struct ring__engine io; /* must be first */

    /* the way of every operation */
    struct io_uring_sqe *sqes;
    unsigned *sq_numbers;
    unsigned sq_tail; /* what the kernel's tail will be when it is next entered */
    unsigned sq_mask, sq_entries;
    unsigned front, back; /* entries in use: the first ones, and the last ones, of which ... */
    unsigned back_told;   /* ... the kernel will be told of so many */
    unsigned back_most;   /* so that there always is one at the front */
    unsigned cq_mask;
    const struct io_uring_cqe *cqes;
    unsigned *cq_khead, *sq_ktail;
    const unsigned *cq_ktail, *sq_kflags, *sq_khead;
    unsigned sq_head; /* the kernel's head as last seen */
    int enter_fd;
    unsigned enter_flags;
    bool on_valgrind;
    bool armed;           /* the read of `wake_fd` is queued or in the kernel */
    uint8_t cancel_flags; /* of the SQE of a request for an operation's end */
    uint16_t kinds[RING__ROWS];

    struct ring__registered registered;

    /* FIFO of operations without room, of those that receive and have none, of those whose end is to be
     * asked for, of those to be attempted by plain system calls, and of those that the kernel did not
     * find: to be asked for again at `ask_at` */
    struct ring_op *pending, **pending_tail;
    struct ring_op *receiving, **receiving_tail;
    struct ring_op *cancels, **cancels_tail;
    struct ring_op *plain, **plain_tail;
    struct ring_op *lost, **lost_tail;
    weft_time ask_at;

    uint64_t wake_value;

    uint64_t overflows;
    uint16_t buffer_groups; /* numbers given out */
    struct io_uring ring;
};

/* uring.kinds: an opcode, and: */
enum {
    KIND_OPCODE = 0xff,
    KIND_RARE = 0x100, /* not done by an entry's five usual fields, or by what usually follows */
    KIND_RECEIVES = 0x200, /* goes to the kernel after all else */
    KIND_PLAIN = 0x400,    /* the kernel does not know it; rare too */
};

enum { OPCODE_NONE = 0xff };
#define IORING_OP_NONE OPCODE_NONE

static const uint8_t opcodes[RING__ROWS] = {
#define OPERATION(name, opcode, ...) [RING__ROW_##name] = IORING_OP_##opcode,
#include "operations.def"
};

static inline struct uring *self(struct weft__engine *engine)
{
    return (struct uring *)(void *)engine;
}

/* ---- filling submission entries ---- */

static inline bool has_room(struct uring *u)
{
    if (weft__unlikely(u->io.faulty) && u->io.faults.no_room > 0) {
        u->io.faults.no_room--;
        return false;
    }
    return u->front + u->back < u->sq_entries;
}

static inline bool has_room_to_receive(struct uring *u)
{
    return has_room(u) && u->back < u->back_most;
}

/* The next free entry, of which there must be one: of those that go to the kernel in this order ... */
static inline struct io_uring_sqe *front_sqe(struct uring *u)
{
    unsigned number = u->front++;

    u->sq_numbers[u->sq_tail++ & u->sq_mask] = number;
    return &u->sqes[number];
}

/* ... and of those that receive. */
static inline struct io_uring_sqe *back_sqe(struct uring *u)
{
    return &u->sqes[u->sq_entries - ++u->back];
}

/* An entry has been taken by other ways than uring_submit's. */
static inline void taken(struct uring *u)
{
    if (*u->io.left > 0)
        --*u->io.left;
}

/* From now on nothing goes to the kernel before what receives now. */
static inline void tell_of_back(struct uring *u)
{
    while (u->back_told != u->back)
        u->sq_numbers[u->sq_tail++ & u->sq_mask] = u->sq_entries - ++u->back_told;
}

static inline void fill_sqe(struct io_uring_sqe *sqe, uint8_t opcode, int fd, uint64_t off,
                            uint64_t addr, uint32_t len, uint32_t how, uint64_t user_data)
{
    /* Word by word, whatever the optimiser thinks: they have just been stored one by one, and a load of
     * two at once would wait until they have reached the cache. */
    __asm__("" : "+r"(off), "+r"(addr), "+r"(len), "+r"(how));
    sqe->opcode = opcode;
    sqe->flags = 0;
    sqe->ioprio = 0;
    sqe->fd = fd;
    sqe->off = off;
    sqe->addr = addr;
    sqe->len = len;
    sqe->rw_flags = (__kernel_rwf_t)how;
    sqe->user_data = user_data;
    sqe->buf_index = 0;
    sqe->personality = 0;
    sqe->file_index = 0;
    sqe->addr3 = 0;
    sqe->__pad2[0] = 0;
}

static inline void fill_usual(struct io_uring_sqe *sqe, uint8_t opcode, const struct ring_op *op)
{
    fill_sqe(sqe, opcode, op->fd, op->off, op->addr, op->len, op->how, (uintptr_t)op);
}

static inline uint32_t poll_mask(uint32_t events)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    events = events << 16 | events >> 16; /* the kernel's halves are the other way round */
#endif
    return events;
}

/* What a stream's operation needs beside the table's fields. */
static void fill_stream(const struct ring_op *op, struct io_uring_sqe *sqe)
{
    if (op->row == RING__ROW_poll_multi)
        sqe->len = IORING_POLL_ADD_MULTI;
    else if (op->row == RING__ROW_accept_multi)
        sqe->ioprio = IORING_ACCEPT_MULTISHOT;
    else if (op->row == RING__ROW_recv_multi)
        sqe->ioprio = IORING_RECV_MULTISHOT;
    if (ring__rows[op->row].traits & RING__CHOSEN) {
        sqe->flags |= IOSQE_BUFFER_SELECT;
        sqe->buf_group = (uint16_t)op->how;
        sqe->msg_flags = 0;
    }
}

/* What of it is registered. */
static void fill_registered(struct uring *u, struct ring_op *op, struct io_uring_sqe *sqe)
{
    struct ring__registered *r = &u->registered;
    int slot = -1, region = -1;

    if (ring__rows[op->row].traits & RING__ON_FD && op->row < RING__TWO_FDS)
        slot = ring__slot(r, op->fd);
    if (slot >= 0) {
        sqe->fd = slot;
        sqe->flags |= IOSQE_FIXED_FILE;
    }
    if (op->row == RING__ROW_read || op->row == RING__ROW_write || op->row == RING__ROW_send_zc)
        region = ring__region_of(r, op->addr, op->len);
    if (region < 0)
        return;
    if (op->row == RING__ROW_send_zc)
        sqe->ioprio = IORING_RECVSEND_FIXED_BUF;
    else
        sqe->opcode = op->row == RING__ROW_read ? IORING_OP_READ_FIXED : IORING_OP_WRITE_FIXED;
    sqe->buf_index = (uint16_t)region;
    op->state |= RING__FIXED;
    r->busy++;
}

/* What few operations need. */
static void fill_rest(struct uring *u, struct ring_op *op, struct io_uring_sqe *sqe)
{
    uint16_t traits = ring__rows[op->row].traits;

    if (traits & (RING__MULTI | RING__CHOSEN)) {
        fill_stream(op, sqe);
    } else if (traits & RING__WIDE) {
        sqe->addr3 = op->more[0];
        sqe->file_index = op->own.extra;
    }
    fill_registered(u, op, sqe);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    if (op->row == RING__ROW_poll || op->row == RING__ROW_poll_multi)
        sqe->poll32_events = poll_mask(op->how);
    if (op->row == RING__ROW_sendto) /* 16 bits there */
        sqe->file_index <<= 16;
#endif
}

/* The poll that stands in for an operation until its descriptor is ready. */
static void fill_poll(struct uring *u, const struct ring_op *op)
{
    short events;
    int fd;

    ring__awaited(op, &fd, &events);
    fill_sqe(front_sqe(u), IORING_OP_POLL_ADD, fd, 0, 0, 0, poll_mask((uint16_t)events),
             (uintptr_t)op);
}

static void fill_faulty(struct uring *u, struct ring_op *op, struct io_uring_sqe *sqe)
{
    if (u->io.faults.result > 0) {
        u->io.faults.result--;
        op->state |= RING__FAULTED;
        sqe->opcode = IORING_OP_NOP;
        sqe->off = sqe->addr = sqe->len = 0;
        sqe->rw_flags = 0;
    } else if (u->io.faults.short_io > 0 && op->len > 1 &&
               (op->row == RING__ROW_read || op->row == RING__ROW_write ||
                op->row == RING__ROW_recv || op->row == RING__ROW_send)) {
        u->io.faults.short_io--;
        sqe->len = 1;
    }
}

/* There is room. */
static void fill(struct uring *u, struct ring_op *op)
{
    unsigned kind = u->kinds[op->row];
    struct io_uring_sqe *sqe;

    u->io.submitted++;
    taken(u);
    if (op->state & RING__POLLING) {
        fill_poll(u, op);
        return;
    }
    sqe = kind & KIND_RECEIVES ? back_sqe(u) : front_sqe(u);
    fill_usual(sqe, (uint8_t)kind, op);
    if (kind & KIND_RARE)
        fill_rest(u, op, sqe);
    if (weft__unlikely(u->io.faulty))
        fill_faulty(u, op, sqe);
}

/* By the operation's address: it is handed over in time, so that it names no later operation. */
static void fill_cancel(struct uring *u, const struct ring_op *op)
{
    uint64_t bucket = (uint64_t)(ring__bucket_of(&u->io, op) - u->io.buckets);
    struct io_uring_sqe *sqe = front_sqe(u);

    taken(u);
    fill_sqe(sqe, IORING_OP_ASYNC_CANCEL, -1, 0, (uintptr_t)op, 0, 0,
             bucket << BUCKET_SHIFT | ((uintptr_t)op & ADDRESS_BITS) | TAG_CANCEL);
    sqe->flags = u->cancel_flags;
}

static inline bool has_held(const struct uring *u)
{
    return u->pending != NULL || u->receiving != NULL || u->cancels != NULL;
}

/* What comes next needs a closer look: something is not as usual. */
static inline void look_closely(struct uring *u)
{
    *u->io.left = 0;
}

/* Unless everything is as usual again. */
static void look(struct uring *u)
{
    bool usual = u->io.rare == 0 && u->armed && !has_held(u) && u->plain == NULL && u->lost == NULL;

    unsigned left = u->sq_entries - u->front - u->back, receives = u->back_most - u->back;

    *u->io.left = !usual || !*u->io.alive ? 0 : left < receives ? left : receives;
}

/* Takes an operation that is held off its list and into the submission queue. */
static void fill_held(struct uring *u, struct ring_op ***tail, struct ring_op *op)
{
    ring__remove(tail, op);
    op->state &= (uint16_t)~RING__HELD;
    fill(u, op);
    if (op->state & RING__CANCELLING) {
        op->state |= RING__CANCEL_HELD;
        ring__append(&u->cancels_tail, op);
    }
}

/* Moves all that is held into the submission queue, as far as there is room. */
static void feed(struct uring *u)
{
    if (!u->armed && has_room(u)) {
        fill_sqe(front_sqe(u), IORING_OP_READ, u->io.wake_fd, 0, (uintptr_t)&u->wake_value,
                 sizeof u->wake_value, 0, (uintptr_t)u | TAG_WAKE);
        taken(u);
        u->armed = true;
    }
    while (u->pending != NULL && has_room(u))
        fill_held(u, &u->pending_tail, u->pending);
    while (u->receiving != NULL && has_room_to_receive(u))
        fill_held(u, &u->receiving_tail, u->receiving);
    tell_of_back(u);
    while (u->cancels != NULL && has_room(u)) {
        struct ring_op *op = u->cancels;

        ring__remove(&u->cancels_tail, op);
        op->state &= (uint16_t)~RING__CANCEL_HELD;
        fill_cancel(u, op);
    }
}

/* ---- entering the kernel ---- */

static inline unsigned kernel_flags(const struct uring *u)
{
    return __atomic_load_n(u->sq_kflags, __ATOMIC_RELAXED);
}

static inline int enter(struct uring *u, unsigned to_submit, unsigned wait, unsigned flags,
                        void *arg, size_t arg_size)
{
    int rc;

    u->io.enters++;
    if (weft__unlikely(u->io.faulty) && u->io.faults.enter > 0) {
        u->io.faults.enter--;
        return u->io.faults.enter_error;
    }
    /* release: the entries before the tail */
    __atomic_store_n(u->sq_ktail, u->sq_tail, __ATOMIC_RELEASE);
    rc = io_uring_enter2((unsigned)u->enter_fd, to_submit, wait, flags | u->enter_flags, arg,
                         arg_size);
    u->sq_head = __atomic_load_n(u->sq_khead, __ATOMIC_ACQUIRE);
    if (weft__likely(u->sq_head == u->sq_tail)) {
        u->front = 0;
        if (weft__likely(u->back_told == u->back)) {
            u->back = u->back_told = 0;
            if (weft__likely(*u->io.left != 0))
                *u->io.left = u->back_most;
        }
    }
    return rc;
}

/* Submits, and looks for completions without waiting. */
static __attribute__((noinline)) int enter_now(struct uring *u, unsigned to_submit)
{
    return enter(u, to_submit, 0, IORING_ENTER_GETEVENTS, NULL, 0);
}

/* Entries that the kernel has not taken. */
static inline unsigned queued(const struct uring *u)
{
    return u->sq_tail - u->sq_head;
}

/* Hands over what is queued, now. */
static void hand_over(struct uring *u)
{
    tell_of_back(u);
    if (queued(u) > 0)
        enter(u, queued(u), 0, 0, NULL, 0);
}

static inline bool has_completions(const struct uring *u)
{
    return *u->cq_khead != __atomic_load_n(u->cq_ktail, __ATOMIC_ACQUIRE);
}

/* Waiting under valgrind, where no other thread runs while one waits in the ring: looks, sleeps a little
 * elsewhere, returns early. (poll(2) of the ring would not do: with DEFER_TASKRUN, work that comes
 * later wakes only who waits in io_uring_enter.) */
static int enter_and_doze(struct uring *u, unsigned to_submit, weft_time until)
{
    int rc = enter_now(u, to_submit);
    int64_t left = until == WEFT_FOREVER ? RETRY_WAIT : until - weft_now();
    struct timespec doze = {.tv_nsec = left < RETRY_WAIT ? left : RETRY_WAIT};

    if (rc >= 0 && left > 0 && !has_completions(u) && ppoll(NULL, 0, &doze, NULL) < 0)
        rc = -errno;
    return rc;
}

static __attribute__((noinline)) int enter_until(struct uring *u, unsigned to_submit,
                                                 weft_time until)
{
    int64_t left = until - weft_now();
    struct __kernel_timespec timeout = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    struct io_uring_getevents_arg arg = {.ts = (uintptr_t)&timeout};

    if (left <= 0)
        return enter_now(u, to_submit);
    return enter(u, to_submit, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &arg, sizeof arg);
}

/* Waits, in the same call that submits, for a completion or until `until`. */
static inline int enter_and_wait(struct uring *u, unsigned to_submit, weft_time until)
{
    if (weft__unlikely(u->on_valgrind))
        return enter_and_doze(u, to_submit, until);
    if (until != WEFT_FOREVER)
        return enter_until(u, to_submit, until);
    return enter(u, to_submit, 1, IORING_ENTER_GETEVENTS, NULL, 0);
}

/* ---- completions ---- */

/* Whether plain system calls do it: there is no opcode, or an entry's length is too short. */
static inline bool is_plain(const struct uring *u, const struct ring_op *op)
{
    unsigned kind = u->kinds[op->row];

    return kind & KIND_RARE && (kind & KIND_PLAIN || (ring__rows[op->row].traits & RING__LONG &&
                                                      op->more[0] > UINT32_MAX));
}

static void hold(struct uring *u, struct ring_op ***tail, struct ring_op *op)
{
    op->state |= RING__HELD;
    ring__append(tail, op);
    look_closely(u);
}

static void queue(struct uring *u, struct ring_op *op)
{
    bool polls = op->state & RING__POLLING;

    if (is_plain(u, op) && !polls) {
        hold(u, &u->plain_tail, op);
    } else if (u->kinds[op->row] & KIND_RECEIVES && !polls) {
        if (u->receiving == NULL && has_room_to_receive(u))
            fill(u, op);
        else
            hold(u, &u->receiving_tail, op);
    } else {
        /* a full queue is handed over here and now: the kernel takes it in one call in any case */
        if (u->pending == NULL && !has_room(u))
            enter(u, queued(u), 0, 0, NULL, 0);
        if (u->pending == NULL && has_room(u))
            fill(u, op);
        else
            hold(u, &u->pending_tail, op);
    }
}

static void uring_cancel(struct weft__engine *engine, struct ring_op *op);

/* Zero copy where it cannot be had: of this kernel, of this socket, or of the memory that may be
 * locked. */
static bool is_copied_instead(struct ring_op *op, int res)
{
    if (op->row != RING__ROW_send_zc ||
        (res != -EOPNOTSUPP && res != -EINVAL && res != -ENOMEM && res != -ENOBUFS))
        return false;
    op->row = RING__ROW_send;
    return true;
}

/* Makes a new attempt, or the first one of the same thing by other means. A request for its end that
 * has met the last one comes after it: what the operation can do at once it does. */
static void attempt_again(struct uring *u, struct ring_op *op)
{
    bool cancelling = op->state & RING__CANCELLING;

    op->state = RING__REPEATED | (op->state & (RING__SECOND | RING__CONNECTING | RING__CLOSELY));
    queue(u, op);
    if (cancelling)
        uring_cancel(&u->io.base, op);
}

/* A kernel before 6.2 sends to no address. If that is what EINVAL means, plain system calls do. */
static int send_plainly(struct uring *u, const struct ring_op *op)
{
    int res = ring__attempt(op, false);

    if (res != -EINVAL)
        u->kinds[op->row] |= KIND_RARE | KIND_PLAIN;
    return res;
}

/* An attempt that came to nothing is repeated, unless somebody wants the operation to end: a signal
 * cut it short (EINTR, from a kernel worker), or it found nothing on a descriptor with O_NONBLOCK,
 * where the kernel doesn't wait by itself (EAGAIN): then it waits until the descriptor is ready. */
static bool is_repeated(struct uring *u, struct ring_op *op, int *res)
{
    int rc;

    if ((op->state & RING__POLLING && *res >= 0) || is_copied_instead(op, *res)) {
        attempt_again(u, op);
        return true;
    }
    if (weft__unlikely(*res == -EINVAL && op->row == RING__ROW_sendto && !is_plain(u, op)))
        *res = send_plainly(u, op);
    if (op->state & RING__CANCELLING && (*res == -EINTR || (*res == -EAGAIN && ring__may_wait(op))))
        *res = -ECANCELED;
    if (*res >= 0 || op->state & RING__CANCELLING)
        return false;
    if (*res == -EINPROGRESS && is_plain(u, op)) {
        op->state |= RING__POLLING | RING__CONNECTING;
    } else if (*res == -EAGAIN && ring__may_wait(op)) {
        if (ring__rows[op->row].traits & RING__ONCE && op->state & RING__REPEATED)
            return false;
        rc = ring__await(op);
        if (rc < 0) {
            *res = rc;
            return false;
        }
        op->state |= RING__POLLING;
    } else if (*res != -EINTR) {
        return false;
    }
    op->state |= RING__REPEATED;
    queue(u, op);
    return true;
}

/* A completion that is not the only one of its operation. A stream has many, with a result each. Zero
 * copy has two: its result, and, if that says so, word later that the kernel has let go of the bytes,
 * which is its end. True if there are more to come. */
static __attribute__((noinline)) bool complete_part(struct uring *u, struct ring_op *op, int *res,
                                                    unsigned flags)
{
    if (op->row == RING__ROW_send_zc) {
        if (flags & IORING_CQE_F_MORE) {
            op->own.moved = (uint32_t)*res;
            op->state |= RING__SENT;
            return true;
        }
        op->state &= (uint16_t)~RING__SENT;
        *res = (int)op->own.moved;
    } else if (flags & IORING_CQE_F_MORE) {
        u->io.completed++;
        op->done(op, *res, flags);
        weft__forget_locals(weft__rt);
        return true;
    }
    return false;
}

/* A completion that may be anything but an operation's usual end. */
static __attribute__((noinline)) void complete(struct uring *u, struct ring_op *op, int res,
                                               unsigned flags)
{
    if (flags & (IORING_CQE_F_MORE | IORING_CQE_F_NOTIF) && complete_part(u, op, &res, flags))
        return;
    if (op->state & RING__FAULTED) {
        op->state &= (uint16_t)~RING__FAULTED;
        res = u->io.faults.result_error;
    }
    if (op->state & RING__FIXED) {
        op->state &= (uint16_t)~RING__FIXED;
        u->registered.busy--;
    }
    if (op->state & RING__CANCEL_HELD) {
        ring__remove(&u->cancels_tail, op);
        op->state &= (uint16_t)~RING__CANCEL_HELD;
    } else if (op->state & RING__LOST) {
        ring__remove(&u->lost_tail, op);
        op->state &= (uint16_t)~RING__LOST;
    }
    if (res <= -ERESTARTSYS) /* what splice, for one, has for a signal */
        res = -EINTR;
    if ((res < 0 || op->state & RING__POLLING) && is_repeated(u, op, &res))
        return;
    if (u->on_valgrind)
        ring__tell_valgrind(op, res);
    ring__finish(&u->io, op, res, flags & IORING_CQE_F_BUFFER ? flags : 0);
}

/* Goes on with what an attempt by plain system calls has come to; true if that is the result. */
static bool go_on_plainly(struct uring *u, struct ring_op *op, int res)
{
    size_t before = u->io.completed;

    if (res == RING__WOULD_BLOCK && !(op->state & RING__CANCELLING)) {
        ring__offload(&u->io, op);
        return false;
    }
    if (op->state & RING__CANCELLING && (res == RING__WOULD_BLOCK || res == -EINPROGRESS))
        res = -ECANCELED;
    complete(u, op, res, 0);
    return u->io.completed != before;
}

static void uring_attempted(struct ring__engine *engine, struct ring_op *op, int res)
{
    go_on_plainly(self(&engine->base), op, res);
}

/* Attempts what is on the plain list now. */
static unsigned attempt_list(struct uring *u, struct ring_op *op)
{
    struct ring_op *next;
    unsigned reported = 0;
    int res;

    for (; op != NULL; op = next) {
        next = op->next;
        op->state &= (uint16_t)~RING__HELD;
        res = weft__unlikely(u->io.faulty) ? ring__attempt_faulty(&u->io, op)
                                           : ring__attempt(op, false);
        reported += go_on_plainly(u, op, res);
    }
    return reported;
}

/* Those that receive last, as elsewhere. */
static unsigned attempt_plain(struct uring *u)
{
    struct ring_op *next, *op = u->plain;
    struct ring_op *receiving = NULL, **receiving_tail = &receiving;
    struct ring_op *others = NULL, **others_tail = &others;
    unsigned reported;

    u->plain = NULL;
    u->plain_tail = &u->plain;
    for (; op != NULL; op = next) {
        next = op->next;
        ring__append(ring__rows[op->row].ready == POLLIN ? &receiving_tail : &others_tail, op);
    }
    reported = attempt_list(u, others);
    return reported + attempt_list(u, receiving);
}

/* The kernel did not end the operation whose end was asked for. Most often it is over (-ENOENT), or about
 * to be (-EALREADY). But one that has found its descriptor ready when it was to wait for it, and one that
 * waits for a page of a file, is where no request finds it (6.18); and one that one of the kernel's own
 * threads is about to block in has used up the signal when it blocks. It would never end. So if it is
 * still in flight, its end is asked for again, a little later. The operation is compared, never looked
 * at, unless it is there. */
static void ask_again(struct uring *u, uint64_t user_data)
{
    struct ring_op *op = u->io.buckets[user_data >> BUCKET_SHIFT];

    while (op != NULL && ((uintptr_t)op ^ user_data) & ADDRESS_BITS)
        op = op->same;
    if (op == NULL || (op->state & (RING__CANCELLING | RING__HELD | RING__CANCEL_HELD | RING__LOST |
                                    RING__SENT | RING__OFFLOADED)) != RING__CANCELLING)
        return;
    if (u->lost == NULL)
        u->ask_at = weft_after(RETRY_WAIT);
    op->state |= RING__LOST;
    ring__append(&u->lost_tail, op);
    look_closely(u);
}

/* When it is time to ask again: asks. Else the engine must not wait longer than until then. */
static weft_time ask_for_lost(struct uring *u, weft_time until)
{
    if (weft__likely(u->lost == NULL))
        return until;
    if (weft_now() < u->ask_at)
        return until < u->ask_at ? until : u->ask_at;
    while (u->lost != NULL) {
        struct ring_op *op = u->lost;

        ring__remove(&u->lost_tail, op);
        op->state ^= RING__LOST | RING__CANCEL_HELD;
        ring__append(&u->cancels_tail, op);
    }
    return until;
}

/* Else the answer to such a request says nothing: the operation itself does. */
static void complete_internal(struct uring *u, uint64_t user_data, int res)
{
    if ((user_data & TAG_MASK) == TAG_WAKE) {
        u->armed = false;
        look_closely(u);
    } else if ((res == -ENOENT || res == -EALREADY) &&
               user_data >> BUCKET_SHIFT <= u->io.bucket_mask + 1) {
        ask_again(u, user_data);
    }
}

/* Completions with these are not an operation's usual end. */
#define USUAL_NOT (IORING_CQE_F_BUFFER | IORING_CQE_F_MORE | IORING_CQE_F_NOTIF)

/* Reports what the completion queue holds now, but not what is added meanwhile. Returns how much there
 * was for which a turn must not wait: a wake-up counts, since it comes once for each time the runtime
 * says that it sleeps. */
static inline __attribute__((always_inline)) unsigned reap_inline(struct uring *u)
{
    struct weft_runtime *rt = weft__rt;
    unsigned head = *u->cq_khead, reported = 0;
    unsigned tail = __atomic_load_n(u->cq_ktail, __ATOMIC_ACQUIRE);

    while (head != tail) {
        const struct io_uring_cqe *cqe = &u->cqes[head & u->cq_mask];
        uint64_t user_data = cqe->user_data;
        int res = cqe->res;
        unsigned flags = cqe->flags;
        struct ring_op *op = (struct ring_op *)(uintptr_t)user_data;

        /* before the report, which may enter the kernel to make room for submissions */
        __atomic_store_n(u->cq_khead, ++head, __ATOMIC_RELEASE);
        if (weft__unlikely((user_data & TAG_MASK) != TAG_OP)) {
            complete_internal(u, user_data, res);
            reported += (user_data & TAG_MASK) == TAG_WAKE;
            continue;
        }
        reported++;
        if (weft__likely((op->state | (flags & USUAL_NOT) | u->io.rare) == 0 && res >= 0))
            ring__report(&u->io, rt, op, res, 0);
        else
            complete(u, op, res, flags);
    }
    return reported;
}

static __attribute__((noinline)) unsigned reap(struct uring *u)
{
    return reap_inline(u);
}

/* An overflown queue: the kernel keeps the rest on a list, which looks like an empty queue, and moves
 * it over when entered. */
static __attribute__((noinline)) void flush(struct uring *u)
{
    u->overflows++;
    for (int i = 0; i < FLUSH_ROUNDS && kernel_flags(u) & IORING_SQ_CQ_OVERFLOW; i++) {
        enter_now(u, 0);
        reap(u);
    }
}

/* ---- what is registered ---- */

/* Rows that are looked at more closely when they are filled in, see fill_rest. */
static void mark_row(struct uring *u, int row)
{
    u->kinds[row] |= KIND_RARE;
}

/* What is in the queue still names the slot: it goes first. */
static void leave_table(struct uring *u, int fd)
{
    if (ring__slot(&u->registered, fd) < 0)
        return;
    hand_over(u);
    ring__registered_remove(&u->registered, &u->ring, fd);
}

static void uring_forget(struct weft__engine *engine, int fd)
{
    struct uring *u = self(engine);

    if (weft__unlikely(u->registered.slots_count > 0) && *u->io.alive)
        leave_table(u, fd);
}

/* The calling thread's ring, or NULL and *error is what to return: 0 where it would be of no use. */
static struct uring *ring_to_register_with(int *error)
{
    struct weft_runtime *rt = weft__rt;
    struct uring *u = rt == NULL ? NULL : self(rt->engine);

    *error = rt == NULL ? -EINVAL : rt->engine->class->submit == NULL ? -ENOSYS : 0;
    if (*error < 0 || rt->engine->class != &weft__engine_uring)
        return NULL;
    *error = *u->io.alive ? 0 : -ECHILD;
    return *error < 0 ? NULL : u;
}

int ring_register_fd(int fd)
{
    int error, saved = errno, flags = fcntl(fd, F_GETFD);
    struct uring *u = ring_to_register_with(&error);

    errno = saved;
    if (error < 0)
        return error;
    if (flags < 0)
        return -EBADF;
    if (u == NULL || u->registered.free == NULL || ring__slot(&u->registered, fd) >= 0)
        return 0;
    return ring__registered_add(&u->registered, &u->ring, fd);
}

int ring_unregister_fd(int fd)
{
    int error;
    struct uring *u = ring_to_register_with(&error);

    if (error < 0)
        return error;
    if (fd < 0)
        return -EBADF;
    if (ring__is_busy((const struct ring__engine *)(const void *)weft__rt->engine, fd))
        return -EBUSY;
    if (u != NULL && ring__slot(&u->registered, fd) >= 0)
        ring__registered_remove(&u->registered, &u->ring, fd);
    return 0;
}

int ring_register_buffers(const struct iovec *iov, unsigned count)
{
    int error;
    struct uring *u = ring_to_register_with(&error);

    if (error < 0)
        return error;
    if (iov == NULL)
        return -EFAULT;
    if (count == 0 || count > RING__REGIONS_MAX)
        return -EINVAL;
    if (u == NULL)
        return 0;
    if (u->registered.regions != NULL)
        return -EBUSY;
    error = ring__regions_add(&u->registered, &u->ring, iov, count);
    if (error == 0) {
        mark_row(u, RING__ROW_read);
        mark_row(u, RING__ROW_write);
        mark_row(u, RING__ROW_send_zc);
    }
    return error;
}

int ring_unregister_buffers(void)
{
    int error;
    struct uring *u = ring_to_register_with(&error);

    if (u == NULL || u->registered.regions == NULL)
        return error;
    return u->registered.busy > 0 ? -EBUSY : ring__regions_remove(&u->registered, &u->ring);
}

/* ---- the engine's class ---- */

static __attribute__((noinline)) int submit_closely(struct uring *u, struct ring_op *op)
{
    bool closely = u->on_valgrind || op->row >= RING__ODD;

    if (!*u->io.alive)
        return -ECHILD;
    if (u->io.ended)
        return -ECANCELED;
    if (u->io.closing != NULL && ring__is_closing(&u->io, op))
        return -EBADF;
    ring__begin(&u->io, op);
    op->state = closely ? RING__CLOSELY : 0;
    if (op->row == RING__ROW_close)
        leave_table(u, op->fd);
    queue(u, op);
    look(u);
    return 0;
}

static int uring_submit(struct weft__engine *engine, struct ring_op *op)
{
    struct uring *u = self(engine);
    unsigned kind, left = *u->io.left;

    if (weft__unlikely(left == 0))
        return submit_closely(u, op);
    kind = u->kinds[op->row];
    if (weft__unlikely(kind & KIND_RARE))
        return submit_closely(u, op);
    *u->io.left = left - 1;
    ring__begin_in(&u->io, ring__bucket(&u->io, op->fd), op, 0);
    u->io.submitted++;
    fill_usual(kind & KIND_RECEIVES ? back_sqe(u) : front_sqe(u), (uint8_t)kind, op);
    return 0;
}

static void uring_cancel(struct weft__engine *engine, struct ring_op *op)
{
    struct uring *u = self(engine);

    if (!*u->io.alive || op->state & RING__CANCELLING)
        return;
    op->state |= RING__CANCELLING;
    if (op->state & RING__OFFLOADED) {
        if (ring__offload_withdraw(&u->io, op))
            hold(u, &u->plain_tail, op);
        return;
    }
    if (op->state & RING__HELD)
        return; /* follows when the operation is handed over: what it can do at once it does */
    if (u->cancels == NULL && u->back_told == u->back && has_room(u)) {
        fill_cancel(u, op);
    } else {
        op->state |= RING__CANCEL_HELD;
        ring__append(&u->cancels_tail, op);
        look_closely(u);
    }
}

static void uring_cancel_all(struct weft__engine *engine)
{
    struct uring *u = self(engine);

    u->io.ended = true;
    look_closely(u);
    for (unsigned i = 0; i <= u->io.bucket_mask + 1; i++)
        for (struct ring_op *op = u->io.buckets[i]; op != NULL; op = op->same)
            uring_cancel(engine, op);
}

static bool uring_quiet(struct weft__engine *engine)
{
    struct uring *u = self(engine);

    return queued(u) == 0 && u->back == 0 && !has_completions(u) &&
           !(kernel_flags(u) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) && !has_held(u) &&
           u->lost == NULL && u->plain == NULL;
}

static __attribute__((noinline)) int turn_closely(struct uring *u, weft_time until)
{
    unsigned reported = 0;
    int rc = 0;

    if (!*u->io.alive)
        return ring__refuse_fork(&u->io);
    if (has_completions(u))
        reported = reap(u);
    if (u->plain != NULL)
        reported += attempt_plain(u);
    for (;;) {
        unsigned head = u->sq_head;
        bool crowded;

        until = ask_for_lost(u, until);
        feed(u);
        crowded = has_held(u) || !u->armed || u->plain != NULL;
        if (reported == 0 && until != WEFT_NOWAIT && !crowded)
            rc = enter_and_wait(u, queued(u), until);
        else if (queued(u) > 0 || kernel_flags(u) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW))
            rc = enter_now(u, queued(u));
        else
            rc = 0;
        reported += reap(u);
        /* once more only for what there was no room for, and only while the kernel takes it */
        if (rc < 0 || !crowded || u->sq_head == head)
            break;
    }
    if (rc == -EBUSY || rc == -EAGAIN) {
        /* Completions must be reaped first, or memory is short: nothing was lost, the rest stays in
         * the queue. Wait a little for completions if there were none. */
        if (reported == 0 && until != WEFT_NOWAIT) {
            weft_time soon = weft_after(RETRY_WAIT);

            enter_and_wait(u, 0, until < soon ? until : soon);
            reported += reap(u);
        }
        rc = 0;
    } else if (rc >= 0 || rc == -ETIME || rc == -EINTR) {
        /* whatever it says: what happened stands in the completion queue */
        rc = 0;
    }
    if (kernel_flags(u) & IORING_SQ_CQ_OVERFLOW)
        flush(u);
    look(u);
    return rc;
}

/* Nearly always there is nothing to do but to hand over what is queued, and to wait for what comes. */
static int uring_turn(struct weft__engine *engine, weft_time until)
{
    struct uring *u = self(engine);
    int rc;

    if (weft__unlikely(*u->io.left == 0 || until == WEFT_NOWAIT || has_completions(u)))
        return turn_closely(u, until);
    tell_of_back(u);
    rc = enter_and_wait(u, queued(u), until);
    if (weft__unlikely(rc < 0 && rc != -ETIME && rc != -EINTR))
        return turn_closely(u, until);
    reap_inline(u);
    if (weft__unlikely(kernel_flags(u) & IORING_SQ_CQ_OVERFLOW))
        flush(u);
    return 0;
}

static void uring_stats(const struct weft__engine *engine, struct weft_stats *stats)
{
    ring__engine_stats(engine, stats);
    stats->overflows += ((const struct uring *)(const void *)engine)->overflows;
}

static unsigned round_up(unsigned n)
{
    unsigned power = 1;

    while (power < n && power < 1u << 15)
        power *= 2;
    return power;
}

/* ---- pools of buffers that the kernel chooses from ---- */

_Static_assert(RING__BUFFER == IORING_CQE_F_BUFFER && RING__MORE == IORING_CQE_F_MORE &&
                   RING__BUFFER_SHIFT == IORING_CQE_BUFFER_SHIFT,
               "completion flags are handed on as they are");

int ring__buffers_share(struct ring_buffers *buffers)
{
    struct uring *u = self(buffers->rt->engine);
    struct io_uring_buf_reg reg = {0};
    unsigned entries = round_up(buffers->count);
    void *ring;
    int rc;

    if (buffers->rt->engine->class != &weft__engine_uring || !*u->io.alive)
        return -EOPNOTSUPP;
    if (u->buffer_groups == UINT16_MAX)
        return -ENOSPC;
    ring = mmap(NULL, entries * sizeof(struct io_uring_buf), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ring == MAP_FAILED)
        return -ENOMEM;
    madvise(ring, entries * sizeof(struct io_uring_buf), MADV_DONTFORK);
    reg.ring_addr = (uintptr_t)ring;
    reg.ring_entries = entries;
    reg.bgid = u->buffer_groups;
    rc = io_uring_register_buf_ring(&u->ring, &reg, 0);
    if (rc < 0) {
        munmap(ring, entries * sizeof(struct io_uring_buf));
        return rc;
    }
    buffers->group = u->buffer_groups++;
    buffers->ring = ring;
    buffers->mask = entries - 1;
    buffers->tail = 0;
    return 0;
}

void ring__buffers_unshare(struct ring_buffers *buffers)
{
    struct uring *u = self(buffers->rt->engine);

    if (*u->io.alive)
        io_uring_unregister_buf_ring(&u->ring, buffers->group);
    munmap(buffers->ring, (buffers->mask + 1) * sizeof(struct io_uring_buf));
}

void ring__buffers_add(struct ring_buffers *buffers, uint32_t index)
{
    struct io_uring_buf_ring *ring = buffers->ring;
    struct io_uring_buf *entry = &ring->bufs[buffers->tail & buffers->mask];

    /* field by field: the first entry's reserved field is the ring's tail */
    entry->addr = (uintptr_t)ring__buffer(buffers, index);
    entry->len = (uint32_t)buffers->size;
    entry->bid = (uint16_t)index;
    __atomic_store_n(&ring->tail, ++buffers->tail, __ATOMIC_RELEASE);
}

/* ---- life ---- */

static void uring_destroy(struct weft__engine *engine)
{
    struct uring *u = self(engine);

    if (*u->io.alive) {
        /* the kernel must not write into freed memory: end the one operation that always waits */
        for (int i = 0; u->armed && i < 1000; i++) {
            if (u->front + u->back < u->sq_entries)
                fill_sqe(front_sqe(u), IORING_OP_ASYNC_CANCEL, -1, 0, (uintptr_t)u | TAG_WAKE, 0, 0,
                         TAG_CANCEL);
            enter(u, queued(u), 1, IORING_ENTER_GETEVENTS, NULL, 0);
            reap(u);
        }
        io_uring_queue_exit(&u->ring);
    } else {
        close(u->ring.ring_fd);
    }
    ring__registered_finish(&u->registered);
    ring__engine_finish(&u->io);
    free(u);
}

/* What a ring may be set up with, dearest first; each later one needs less of the kernel. */
static const unsigned setups[] = {
    /* 6.1 */
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
        IORING_SETUP_SUBMIT_ALL,
    /* 6.0 */
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
        IORING_SETUP_SUBMIT_ALL,
    /* 5.19 */
    IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
    /* 5.18 */
    IORING_SETUP_SUBMIT_ALL,
    0,
};
enum { SETUP_BEST = 0, SETUP_COOP = 1, SETUP_PLAIN = 4 };

/* Bytes of locked memory that a ring takes, about: entries, an index each, completions, headers. */
static size_t need(unsigned sq_entries, unsigned cq_entries)
{
    return sq_entries * (sizeof(struct io_uring_sqe) + sizeof(unsigned)) +
           cq_entries * sizeof(struct io_uring_cqe) + 4096;
}

unsigned ring__refused_flags;

static int set_up(struct uring *u, const struct weft_options *options, unsigned *sq, unsigned *cq)
{
    unsigned i = options->ring_flags & WEFT_RING_PLAIN  ? SETUP_PLAIN
                 : options->ring_flags & WEFT_RING_COOP ? SETUP_COOP
                                                        : SETUP_BEST;
    int rc;

    for (;;) {
        struct io_uring_params params = {
            .flags = setups[i] | IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE,
            .cq_entries = *cq,
        };

        rc = params.flags & ring__refused_flags
                 ? -EINVAL
                 : io_uring_queue_init_params(*sq, &u->ring, &params);
        if (rc == -EINVAL && i + 1 < sizeof setups / sizeof setups[0]) {
            i++;
        } else if (rc == -ENOMEM && *sq / 2 >= SQ_FLOOR) {
            *sq /= 2;
            *cq = *cq / 2 > *sq ? *cq / 2 : *sq;
        } else {
            return rc;
        }
    }
}

/* The sysctl that forbids io_uring: 0 or absent: doesn't; 1: but for a group; 2: for everybody. */
static char sysctl_disabled(void)
{
    FILE *file = fopen("/proc/sys/kernel/io_uring_disabled", "re");
    int c = file == NULL ? '0' : fgetc(file);

    if (file != NULL)
        fclose(file);
    return c == EOF ? '0' : (char)c;
}

/* The cause and the way out. */
static void explain(int error, unsigned sq, unsigned cq, char *why, size_t size)
{
    struct rlimit limit = {0};
    char disabled;

    switch (error) {
    case -ENOMEM:
        getrlimit(RLIMIT_MEMLOCK, &limit);
        snprintf(
            why, size,
            "io_uring: not enough memory may be locked (ENOMEM): the limit, RLIMIT_MEMLOCK, is "
            "%llu KiB for all rings of this user, and a ring of %u entries needs about %zu KiB: "
            "raise it (ulimit -l)",
            (unsigned long long)limit.rlim_cur / 1024, sq, (need(sq, cq) + 1023) / 1024);
        break;
    case -EPERM:
    case -EACCES:
        disabled = sysctl_disabled();
        if (disabled != '0')
            snprintf(why, size,
                     "io_uring is forbidden (EPERM) by the sysctl kernel.io_uring_disabled=%c: set "
                     "it to 0%s",
                     disabled, disabled == '1' ? ", or join the group kernel.io_uring_group" : "");
        else
            snprintf(why, size,
                     "io_uring is forbidden (EPERM), probably by a container's seccomp profile: "
                     "allow io_uring_setup, io_uring_enter and io_uring_register in it");
        break;
    case -ENOSYS:
        snprintf(why, size,
                 "this system has no io_uring (ENOSYS): use Linux 5.11 or later with "
                 "CONFIG_IO_URING, or a seccomp profile that doesn't hide io_uring_setup");
        break;
    case -EMFILE:
    case -ENFILE:
        ring__explain_descriptors(error, why, size);
        break;
    default:
        snprintf(why, size, "io_uring: a ring of %u entries, %u completions cannot be set up: %s",
                 sq, cq, strerror(-error));
        break;
    }
}

static void take_rings(struct uring *u)
{
    struct io_uring_sq *sq = &u->ring.sq;
    struct io_uring_cq *cq = &u->ring.cq;

    u->sqes = sq->sqes;
    u->sq_entries = *sq->kring_entries;
    u->sq_mask = *sq->kring_mask;
    u->sq_khead = sq->khead;
    u->sq_ktail = sq->ktail;
    u->sq_kflags = sq->kflags;
    u->sq_head = u->sq_tail = *sq->ktail;
    u->sq_numbers = sq->array;
    u->back_most = u->sq_entries > 1 ? u->sq_entries / 2 : 1;
    u->cqes = cq->cqes;
    u->cq_mask = *cq->kring_mask;
    u->cq_khead = cq->khead;
    u->cq_ktail = cq->ktail;
    u->enter_fd = u->ring.ring_fd;
    u->cancel_flags = u->ring.features & IORING_FEAT_CQE_SKIP ? IOSQE_CQE_SKIP_SUCCESS : 0;
    /* saves looking the descriptor up at each call; not there before 5.18 */
    if (io_uring_register_ring_fd(&u->ring) == 1) {
        u->enter_fd = u->ring.enter_ring_fd;
        u->enter_flags = IORING_ENTER_REGISTERED_RING;
    }
}

bool ring__refused_rows[RING__ROWS];

/* Which rows the kernel does. */
static void probe_rows(struct uring *u)
{
    struct io_uring_probe *probe = io_uring_get_probe_ring(&u->ring);

    for (int row = 0; row < RING__ROWS; row++) {
        uint8_t opcode = opcodes[row];
        uint16_t traits = ring__rows[row].traits;
        bool rare = u->on_valgrind || row >= RING__ODD ||
                    traits & (RING__WIDE | RING__LONG | RING__MULTI | RING__CHOSEN);
        bool refused = ring__refused_rows[row] && row != RING__ROW_poll &&
                       !(traits & (RING__MULTI | RING__CHOSEN));

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        rare |= row == RING__ROW_poll;
#endif
        u->kinds[row] = opcode;
        if (rare)
            u->kinds[row] |= KIND_RARE;
        if (ring__rows[row].ready == POLLIN)
            u->kinds[row] |= KIND_RECEIVES;
        /* those of 5.11, where it doesn't tell */
        if (opcode == OPCODE_NONE || refused ||
            (probe != NULL ? !io_uring_opcode_supported(probe, opcode)
                           : opcode > IORING_OP_UNLINKAT))
            u->kinds[row] |= KIND_RARE | KIND_PLAIN;
    }
    io_uring_free_probe(probe);
}

static int uring_create(struct weft__engine **engine, const struct weft_options *options, char *why,
                        size_t why_size)
{
    unsigned cq = options->cq_entries != 0 ? round_up(options->cq_entries) : CQ_ENTRIES;
    unsigned sq = options->sq_entries != 0 ? round_up(options->sq_entries) : SQ_ENTRIES;
    struct uring *u = calloc(1, sizeof *u);
    int rc;

    if (u == NULL)
        return -ENOMEM;
    u->io.base.class = &weft__engine_uring;
    u->on_valgrind = RUNNING_ON_VALGRIND != 0;
    u->pending_tail = &u->pending;
    u->receiving_tail = &u->receiving;
    u->cancels_tail = &u->cancels;
    u->plain_tail = &u->plain;
    u->lost_tail = &u->lost;
    if (sq > cq) /* the kernel wants it so */
        sq = cq;
    rc = ring__engine_init(&u->io, cq, options, why, why_size);
    if (rc < 0)
        goto no_engine;
    u->io.attempted = uring_attempted;
    rc = set_up(u, options, &sq, &cq);
    if (rc < 0) {
        explain(rc, sq, cq, why, why_size);
        goto no_ring;
    }
    if ((u->ring.features & (IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP)) !=
        (IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP)) {
        io_uring_queue_exit(&u->ring);
        rc = -ENOSYS;
        explain(rc, sq, cq, why, why_size);
        goto no_ring;
    }
    take_rings(u);
    probe_rows(u);
    /* without a table things merely go as they do without the option */
    if (ring__registered_init(&u->registered, &u->ring, options->registered_files) == 0 &&
        u->registered.free != NULL) {
        mark_row(u, RING__ROW_close);
        for (int row = 0; row < RING__ROWS; row++)
            if (ring__rows[row].traits & RING__ON_FD)
                mark_row(u, row);
    }
    *engine = &u->io.base;
    return 0;

no_ring:
    ring__engine_finish(&u->io);
no_engine:
    free(u);
    return rc;
}

const struct weft__engine_class weft__engine_uring = {
    .name = "uring",
    .create = uring_create,
    .destroy = uring_destroy,
    .quiet = uring_quiet,
    .turn = uring_turn,
    .wake = ring__wake,
    .cancel_all = uring_cancel_all,
    .stats = uring_stats,
    .submit = uring_submit,
    .cancel = uring_cancel,
    .forget = uring_forget,
};
