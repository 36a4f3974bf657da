/* ring_internal.h: operations from the inside: how they are made from the table, and what every
 * engine that does I/O keeps about those in flight.
 *
 * An operation in flight (taken by submit, not yet reported) is on the list of its descriptor, so
 * that closing the descriptor finds it. The lists are the buckets of a fixed table: keeping track
 * costs a few stores and never allocates.
 */
#ifndef RING_INTERNAL_H
#define RING_INTERNAL_H

#include <weft/ring.h>

#include "attempt.h"
#include "runtime_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/openat2.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

/* ---- the table, as types ---- */

enum ring__traits {
    RING__ON_FD = 1,
    RING__MAKES_FD = 2,
    RING__MSG = 4,
    RING__ONCE = 8,
    RING__MULTI = 16,
    RING__CHOSEN = 32,
    RING__BLOCKS = 64,
    RING__WIDE = 128,
    RING__LONG = 256,
    RING__MAKES_PAIR = 512,
    RING__TAKES_FDS = 1024,

    RING__MAKES = RING__MAKES_FD | RING__MAKES_PAIR | RING__TAKES_FDS,
};

/* What done() gets as `flags` of a stream's operation; else 0. */
#define RING__BUFFER       1u /* its index: flags >> RING__BUFFER_SHIFT */
#define RING__MORE         2u /* this was not the last result */
#define RING__BUFFER_SHIFT 16

#define RING__DATASYNC 1u /* op.how of fsync */

/* op.how of splice: out of a pipe of the library's own, into what is on no disk: no end need be looked
 * at. */
#define RING__FROM_PIPE (1u << 29)

enum ring__row {
#define OPERATION(name, ...) RING__ROW_##name,
#include "operations.def"
    RING__ROWS,
    RING__ODD = RING__ROW_waitid,     /* from here on see ring__finish */
    RING__TWO_FDS = RING__ROW_splice, /* from here on see ring__second_fd */
};

struct ring__row_info {
    const char *name;
    short ready;
    uint16_t traits;
};
extern const struct ring__row_info ring__rows[RING__ROWS];

/* ring_op.state; the bits 4 to 64, and from 512, are the engine's own. */
enum {
    RING__CANCELLING = 1,   /* an end has been asked for: no repetition any more */
    RING__HELD = 2,         /* queued: not yet handed to the kernel, or not yet attempted */
    RING__CONNECTING = 256, /* for ring__attempt: the connect has begun */
    RING__SECOND = 256,     /* of two descriptors, the second is waited for */
    RING__OFFLOADED = 128,  /* it is the pool's */
};

/* ---- preparing: fills in everything but `done` ---- */

#define RING__PTR(p)     ((uint64_t)(uintptr_t)(p))
#define RING__FIRST(...) __VA_ARGS__ __VA_OPT__(, )
#define RING__AFTER(...) __VA_OPT__(, ) __VA_ARGS__

/* The kernel moves at most INT_MAX rounded down to a page at a time. */
static inline uint32_t ring__length(size_t len)
{
    return len < INT_MAX ? (uint32_t)len : INT_MAX;
}

/* The kernel takes so many pieces at a time. What is negative stays wrong. */
static inline uint32_t ring__pieces(int count)
{
    return count < IOV_MAX ? (uint32_t)count : IOV_MAX;
}

/* Its place in the entry has 16 bits; no address is nearly so long. */
static inline uint32_t ring__address_length(socklen_t len)
{
    return len < UINT16_MAX ? len : UINT16_MAX;
}

/* For what is not a transfer, and so must not be cut: the part that fits the entry. */
static inline uint32_t ring__long(struct ring_op *op, uint64_t len)
{
    op->more[0] = len;
    return (uint32_t)len;
}

/* The struct open_how of openat2, in the operation itself. */
static inline uint64_t ring__how(struct ring_op *op, uint64_t flags, uint64_t mode,
                                 uint64_t resolve)
{
    _Static_assert(sizeof(struct open_how) == sizeof op->more, "it has just the room");
    op->more[0] = flags | O_CLOEXEC;
    op->more[1] = mode;
    op->more[2] = resolve;
    return RING__PTR(op->more);
}

/* Whether open(2) would use a mode: openat2 refuses one that is not used. */
static inline bool ring__creates(int flags)
{
    return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
}

/* FUTEX2_SIZE_U32, FUTEX2_PRIVATE */
static inline int ring__futex_flags(bool shared)
{
    return shared ? 2 : 2 | 128;
}

#define OPERATION(name, opcode, ready, traits, parameters, arguments, ...)            \
    static inline int ring__prepare_##name(struct ring_op *op RING__AFTER parameters) \
    {                                                                                 \
        RING__PREPARE(name, __VA_ARGS__)                                              \
        return 0;                                                                     \
    }
#define WIDE_OPERATION(name, opcode, ready, traits, parameters, arguments, valid, fd_, addr_, \
                       off_, len_, how_, addr3_, extra_)                                      \
    static inline int ring__prepare_##name(struct ring_op *op RING__AFTER parameters)         \
    {                                                                                         \
        RING__PREPARE(name, valid, fd_, addr_, off_, len_, how_)                              \
        op->more[0] = addr3_;                                                                 \
        op->own.extra = extra_;                                                               \
        return 0;                                                                             \
    }
#define RING__PREPARE(name, valid, fd_, addr_, off_, len_, how_) \
    if (weft__unlikely(!(valid)))                                \
        return -EFAULT;                                          \
    op->addr = addr_;                                            \
    op->off = off_;                                              \
    op->fd = fd_;                                                \
    op->len = len_;                                              \
    op->how = how_;                                              \
    op->row = RING__ROW_##name;
#include "operations.def"

/* ---- lists through ring_op.next ---- */

static inline void ring__append(struct ring_op ***tail, struct ring_op *op)
{
    op->next = NULL;
    op->next_link = *tail;
    **tail = op;
    *tail = &op->next;
}

static inline void ring__remove(struct ring_op ***tail, struct ring_op *op)
{
    *op->next_link = op->next;
    if (op->next != NULL)
        op->next->next_link = op->next_link;
    else
        *tail = op->next_link;
}

/* ---- what an engine that does I/O begins with ---- */

/* Faults on purpose, for tests. */
struct ring__faults {
    int enter;        /* so many times entering the kernel fails ... */
    int enter_error;  /* ... with this */
    int result;       /* so many operations complete with ... */
    int result_error; /* ... this, undone */
    int short_io;     /* so many transfers are cut to one byte */
    int no_room;      /* io_uring: so many times there is no free submission entry */
    int no_watch;     /* epoll: so many times the kernel watches no further descriptor */
};

/* A descriptor that is being closed: operations on it are refused, and `clear` is called, on the
 * base stack, when the last one in flight has been reported. */
struct ring__closing {
    struct ring__closing *next;
    void (*clear)(struct ring__closing *closing);
    int fd;
};

#define RING__RESTING 64 /* a power of two */

struct ring__engine {
    struct weft__engine base;
    struct ring_op **buckets;
    unsigned bucket_mask;
    union { /* reasons for a closer look; who sets one sets *left to 0 */
        struct {
            bool
                ended; /* cancel_all was called: no new operations, and nobody takes results any more */
            bool faulty; /* faults are being injected */
            bool closes; /* `closing` is not empty */
        };
        uint32_t rare;
    };
    struct ring__closing *closing;
    const volatile uint8_t *alive; /* in a page that a child of fork, which shares the kernel's
                                    * objects, finds zeroed; so is the next */
    unsigned *left; /* so many submissions need no closer look, for an engine that keeps to it */
    uint64_t enters, submitted, completed;

    int wake_fd; /* an eventfd, written by wake() */

    struct ring_stream *starved;                /* streams that wait for a descriptor to be free */
    struct ring_stream *resting[RING__RESTING]; /* streams with nothing in flight, by descriptor */
    unsigned resting_count;

    struct ring__faults faults;
    const struct weft_options *options; /* the runtime's */
    struct ring__offload offload;
    /* What the pool's attempt has come to. */
    void (*attempted)(struct ring__engine *engine, struct ring_op *op, int res);
};

/* entries: about as many operations may be in flight. 0, or a negative errno and, in `why`, perhaps a
 * sentence. */
int ring__engine_init(struct ring__engine *engine, unsigned entries,
                      const struct weft_options *options, char *why, size_t why_size);
void ring__engine_finish(struct ring__engine *engine);

/* Of the class, the same for all: */
void ring__wake(struct weft__engine *engine);
void ring__engine_stats(const struct weft__engine *engine, struct weft_stats *stats);

/* What a turn says in a child of fork: -ECHILD, with a report. */
int ring__refuse_fork(const struct ring__engine *engine);

/* The sentence for a descriptor that could not be had. */
void ring__explain_descriptors(int error, char *why, size_t size);

static inline struct ring_op **ring__bucket(const struct ring__engine *engine, int fd)
{
    return &engine->buckets[(unsigned)fd & engine->bucket_mask];
}

/* Operations on two descriptors are in a bucket of their own, the last. */
static inline struct ring_op **ring__bucket_of(const struct ring__engine *engine,
                                               const struct ring_op *op)
{
    return weft__unlikely(op->row >= RING__TWO_FDS) ? &engine->buckets[engine->bucket_mask + 1]
                                                    : ring__bucket(engine, op->fd);
}

/* The other descriptor of an operation that has two; else -1. */
static inline int ring__second_fd(const struct ring_op *op)
{
    return weft__unlikely(op->row >= RING__TWO_FDS) ? (int)op->own.extra : -1;
}

/* Operations that don't wait on a descriptor are never looked for by one. */
static inline bool ring__is_on(const struct ring_op *op, int fd)
{
    return (op->fd == fd || (op->row >= RING__TWO_FDS && ring__second_fd(op) == fd)) &&
           ring__rows[op->row].traits & RING__ON_FD;
}

bool ring__is_closing(const struct ring__engine *engine, const struct ring_op *op);

/* Whether anything is in flight on a descriptor. */
bool ring__is_busy(const struct ring__engine *engine, int fd);

/* Into flight, and out of it. An engine calls these from submit(), and before it calls `done`. */
static inline void ring__begin_in(struct ring__engine *engine, struct ring_op **bucket,
                                  struct ring_op *op, uint16_t state)
{
    op->state = state;
    op->same = *bucket;
    op->same_link = bucket;
    if (*bucket != NULL)
        (*bucket)->same_link = &op->same;
    *bucket = op;
    engine->base.in_flight++;
}

static inline void ring__begin(struct ring__engine *engine, struct ring_op *op)
{
    ring__begin_in(engine, ring__bucket_of(engine, op), op, 0);
}

static inline void ring__end(struct ring__engine *engine, struct ring_op *op)
{
    *op->same_link = op->same;
    if (op->same != NULL)
        op->same->same_link = op->same_link;
    engine->base.in_flight--;
}

/* After an operation on `fd` has been reported: tells who waits to close it. */
void ring__reported_slow(struct ring__engine *engine, int fd);

static inline void ring__reported(struct ring__engine *engine, int fd, int second_fd)
{
    if (weft__unlikely(engine->closes)) {
        ring__reported_slow(engine, fd);
        if (second_fd >= 0)
            ring__reported_slow(engine, second_fd);
    }
}

/* Frees what attempts have made; returns the second descriptor, or -1. */
int ring__end_odd(struct ring__engine *engine, const struct ring_op *op);

/* An operation is over: one of a usual row, while nothing is being closed. Nothing of the engine may be
 * in use that `done` could change. */
static inline void ring__report(struct ring__engine *engine, struct weft_runtime *rt,
                                struct ring_op *op, int res, unsigned flags)
{
    engine->completed++;
    ring__end(engine, op);
    op->done(op, res, flags);
    weft__forget_locals(rt);
}

/* The same for any operation. */
static inline void ring__finish(struct ring__engine *engine, struct ring_op *op, int res,
                                unsigned flags)
{
    int fd = op->fd, second_fd = -1;

    if (weft__unlikely(op->row >= RING__ODD))
        second_fd = ring__end_odd(engine, op);
    ring__report(engine, weft__rt, op, res, flags);
    ring__reported(engine, fd, second_fd);
}

/* ---- what the front ends call ---- */

/* Hands a prepared operation over: 0, and `done` will be called; or a negative errno. */
static inline int ring__submit(struct weft_runtime *rt, struct ring_op *op)
{
    const struct weft__engine_class *class = rt->engine->class;

    if (weft__unlikely(class->submit == NULL))
        return -ENOSYS;
    return class->submit(rt->engine, op);
}

static inline void ring__cancel(struct weft_runtime *rt, struct ring_op *op)
{
    rt->engine->class->cancel(rt->engine, op);
}

/* True when the runtime is at its end and only reaps what is in flight. */
static inline bool ring__ended(const struct weft_runtime *rt)
{
    return rt->engine->class->submit != NULL &&
           ((const struct ring__engine *)(const void *)rt->engine)->ended;
}

/* Begins to close a descriptor: asks for the end of what is in flight on it. `clear` and `fd` are
 * set. Returns 0: nothing is in flight, close it now; 1: clear() will be called; -EBADF: somebody
 * else is closing it already, or it is negative. Unless negative, ring__close_finish must follow,
 * right before the close. */
int ring__close_begin(struct weft_runtime *rt, struct ring__closing *closing);
void ring__close_finish(struct weft_runtime *rt, struct ring__closing *closing);

/* Closes a descriptor on which nothing is in flight; its result. Whoever closes what operations may
 * have been on closes it so: the engine forgets what it knows of it. */
int ring__close(struct weft_runtime *rt, int fd);

/* The same for who closes it in another way, right after this. */
void ring__forget(struct weft_runtime *rt, int fd);

/* close(2), with its result. */
int ring__close_now(int fd);

/* Closes the descriptors that an operation has made, its result was `res`, if nobody will. True if
 * it made any. */
bool ring__discard(struct weft_runtime *rt, const struct ring_op *op, int res);

/* A file on its way to a socket goes through a pipe. begin() makes it; `offset` -1 becomes the file's
 * position. Returns what to add to op.how when it is emptied, or a negative errno: -ESPIPE, -EBADF,
 * -EINVAL, -EMFILE, -ENFILE. end() closes it; if `offset`, as the caller gave it, is -1, the file's
 * position becomes `end`. */
int ring__sendfile_begin(int out, int in, size_t len, int64_t *offset, int pipe[2]);
void ring__sendfile_end(int in, int64_t offset, int64_t end, const int pipe[2]);
/* Descriptor `fd` has been closed: streams of it end, and there is one for those that wait for one. May
 * call anybody. */
void ring__closed_slow(struct ring__engine *engine, int fd);
static inline void ring__closed(struct weft_runtime *rt, int fd)
{
    struct ring__engine *engine = (struct ring__engine *)(void *)rt->engine;

    if (rt->engine->class->submit != NULL &&
        weft__unlikely(engine->starved != NULL || engine->resting_count > 0))
        ring__closed_slow(engine, fd);
}

/* Whether the time to try has passed. */
static inline bool ring__is_late(weft_time deadline)
{
    return deadline != WEFT_FOREVER && (deadline <= WEFT_NOWAIT || weft_now() >= deadline);
}

/* ---- addresses ---- */

union ring__address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un local;
};

/* The address of a local socket. 0, -EINVAL or -ENAMETOOLONG. */
int ring__local_address(const char *path, union ring__address *address, socklen_t *len);

/* The port a service has, known without a lookup: a number, or a well-known name; NULL: 0.
 * -ENOENT when a lookup must tell, -EINVAL for what is no service. */
int ring__service_port(const char *service);

/* One address, as getaddrinfo describes it. */
struct ring__entry {
    struct addrinfo info; /* ai_addr: `address` */
    union ring__address address;
};

/* Reads a host and a service that need no lookup. 0: *entry is the answer; 1: a lookup must tell; or
 * a negative errno of ring_resolve_host. */
int ring__resolve_numeric(const char *host, const char *service, unsigned flags,
                          struct ring__entry *entry);

/* Looks up what ring__resolve_numeric cannot tell: -EINPROGRESS or a negative errno. */
int ring__look_up(struct weft_runtime *rt, struct ring_resolve *resolve, const char *host,
                  const char *service, unsigned flags);

/* A list of that many addresses, zeroed, for ring__entry_set; NULL: no memory. */
struct ring_addresses *ring__addresses_create(size_t count, struct ring__entry **entries);
struct ring_addresses *ring__addresses_ref(struct ring_addresses *list);
void ring__entry_set(struct ring__entry *entry, const struct sockaddr *address, socklen_t len);

/* getaddrinfo(3); tests put their own here. */
extern int (*ring__getaddrinfo)(const char *host, const char *service, const struct addrinfo *hints,
                                struct addrinfo **list);

/* ---- connecting to the first of several addresses that answers: see connect.c ---- */

enum { RING__RACERS = 6 }; /* at a time */

struct ring__racer {
    struct ring_op op;
    struct ring__connect *connect;
    int fd;           /* -1: no attempt */
    unsigned number;  /* the how many-th it is */
    bool is_given_up; /* to make room for another address */
};

struct ring__connect {
    /* Called on the base stack, or by ring__connect_end; last: the memory is the caller's again. */
    void (*done)(struct ring__connect *connect, int result);
    struct weft_runtime *rt;
    struct ring_resolve resolve;
    struct ring_addresses *list;    /* what `next` points into; NULL: `local` */
    const struct addrinfo *next[2]; /* not yet tried: of the first address's family; of others */
    struct weft_timer timer;        /* until the next attempt, or the deadline */
    weft_time deadline;
    int family;
    unsigned turn; /* which of `next` is next */
    unsigned started, active;
    int fd;     /* the first connection; -1: none yet */
    int reason; /* why its end was asked for; 0: it was not */
    int error;  /* what has failed so far; 0: nothing */
    struct ring__entry local;
    struct ring__racer racers[RING__RACERS];
};

/* Starts: the result at once (a descriptor, or a negative errno), or -EINPROGRESS: `done`, which is
 * set, will be called. Strings and list may go at once. */
int ring__connect_host(struct weft_runtime *rt, struct ring__connect *connect, const char *host,
                       const char *service, weft_time deadline);
int ring__connect_any(struct weft_runtime *rt, struct ring__connect *connect,
                      struct ring_addresses *list, weft_time deadline);
int ring__connect_local(struct weft_runtime *rt, struct ring__connect *connect, const char *path,
                        weft_time deadline);

/* Asks for its end, for that reason: `done` is called, now or when the kernel is through with it. */
void ring__connect_end(struct ring__connect *connect, int reason);

/* How long an address has for itself. */
extern int64_t ring__connect_delay;

/* A stream socket of that family: a descriptor or a negative errno. */
int ring__stream_socket(int family);

/* ---- for tests ---- */

/* The faults of the runtime's engine; NULL if it does no I/O. */
struct ring__faults *ring__faults(struct weft_runtime *rt);

/* Set-up flags that the kernel is made not to know. */
extern unsigned ring__refused_flags;

/* Operations whose opcode the kernel is made not to know; but for poll, which is always there. */
extern bool ring__refused_rows[RING__ROWS];

#endif
