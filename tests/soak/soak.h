/* soak.h: the parts of soak_io: random numbers, operations in every form, channels with a model of
 * what is in them, scenarios, and the end of the program when something is wrong.
 *
 * Everything random comes from the seed. Each scenario has a stream of numbers of its own, so that
 * what it does depends only on its number; how scenarios interleave, the kernel decides.
 */
#ifndef WEFT_SOAK_H
#define WEFT_SOAK_H

#include <weft/weft.h>

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- random numbers ---- */

struct random {
    uint64_t state;
};

static inline uint64_t random_next(struct random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u; /* splitmix64 */

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline unsigned below(struct random *r, unsigned n)
{
    return (unsigned)(random_next(r) % n);
}

static inline bool one_in(struct random *r, unsigned n)
{
    return below(r, n) == 0;
}

/* A stream of its own for what is begun here. */
static inline struct random fork_random(struct random *r)
{
    return (struct random){random_next(r)};
}

/* ---- the program's state ---- */

extern struct soak {
    uint64_t seed, count;
    uint64_t operations; /* begun so far */
    uint64_t disturbed;  /* of them with a fault set */
    uint64_t ended[4];   /* done, timed out, cancelled, otherwise */
    uint64_t scenarios;
    char directory[64]; /* for files */
} soak;

static inline bool is_over(void)
{
    return soak.operations >= soak.count;
}

/* One operation more. */
void count_operation(void);

/* Says what is wrong, with the seed and the state of all fibers, and ends the process. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#define CHECK(condition, ...)  \
    do {                       \
        if (!(condition))      \
            fail(__VA_ARGS__); \
    } while (0)

/* ---- operations ---- */

/* name, arguments; without the deadline. The forms are fiber_name, promise_name and ring_name. */
#define EACH_OPERATION(X)                                   \
    X(nop, ())                                              \
    X(read, (op->fd, op->buf, op->len, op->offset))         \
    X(write, (op->fd, op->buf, op->len, op->offset))        \
    X(readv, (op->fd, op->iov, op->pieces, op->offset))     \
    X(writev, (op->fd, op->iov, op->pieces, op->offset))    \
    X(recv, (op->fd, op->buf, op->len, op->flags))          \
    X(send, (op->fd, op->buf, op->len, op->flags))          \
    X(accept, (op->fd, NULL, NULL, op->flags))              \
    X(connect, (op->fd, &op->address.any, op->address_len)) \
    X(socket, (op->address.any.sa_family, SOCK_STREAM, 0))  \
    X(shutdown, (op->fd, op->flags))                        \
    X(openat, (AT_FDCWD, op->path, op->flags, 0600))        \
    X(recvmsg, (op->fd, &op->message, op->flags))           \
    X(sendmsg, (op->fd, &op->message, op->flags))           \
    X(send_zc, (op->fd, op->buf, op->len, op->flags))       \
    X(splice, (op->from, -1, op->fd, -1, op->len, 0))       \
    X(socketpair, (AF_UNIX, SOCK_STREAM, 0, op->pair))      \
    X(pipe, (op->pair, 0))                                  \
    X(ftruncate, (op->fd, op->offset))                      \
    X(fsync, (op->fd, op->flags != 0))                      \
    X(statx, (AT_FDCWD, op->path, 0, STATX_SIZE, &op->statx))

/* The same, of which fibers and promises have a form that goes on until all is done. */
#define EACH_EXACT_OPERATION(X)                                      \
    X(read_all, (op->fd, op->buf, op->len, op->offset, &op->moved))  \
    X(write_all, (op->fd, op->buf, op->len, op->offset, &op->moved)) \
    X(recv_all, (op->fd, op->buf, op->len, op->flags, &op->moved))   \
    X(send_all, (op->fd, op->buf, op->len, op->flags, &op->moved))   \
    X(sendfile, (op->fd, op->from, op->offset, op->len, &op->moved))

enum what {
#define NAME(name, arguments) OP_##name,
    EACH_OPERATION(NAME) OP_poll,
    OP_exact,
    EACH_EXACT_OPERATION(NAME)
#undef NAME
};

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_un local;
};

struct operation {
    enum what what;
    int fd, from; /* from: what is spliced, or sent as a file */
    int pair[2];
    struct msghdr message;
    char *buf;
    size_t len;
    int64_t offset;
    int flags;
    const char *path;
    struct iovec iov[3];
    int pieces;
    union address address;
    socklen_t address_len;
    struct statx statx;
    bool certain;       /* it comes to an end by itself: others see to that */
    const bool *closed; /* its descriptor may be closed meanwhile: set when closing begins */

    size_t moved;
    weft_time deadline;
    bool ended;
    int result;
    char text[100]; /* what was done, for reports */
};

/* Performs the operation in a random form, with a random deadline or cancellation (if it isn't
 * certain, with one), now and then with a fault. When it returns the operation is over. The result is
 * one that the form may have, or the program ends; bytes moved, those of the exact ones too, or an
 * error. */
int perform(struct random *r, struct operation *op);

/* The same operation as a promise. */
struct promise *as_promise(struct operation *op);

/* Lets others run, for a random while. */
void linger(struct random *r);

/* Sets faults, now and then. */
void disturb(struct random *r);

/* Waits, cancelled or not. */
int await_shielded(struct promise *promise, union weft_value *value);

/* fiber_close, or another way to the same end. */
void close_somehow(struct random *r, int fd);

/* An error that stands for nothing done, and says nothing about the descriptor. */
bool is_passing(int res);

/* ---- channels ---- */

/* A way for bytes; the byte at each position is known. */
struct channel {
    int in, out; /* read from `in` what was written to `out` */
    int file;    /* from which what is written may be sent; 0: none */
    bool is_socket;
    bool two_hops; /* bytes are spliced on, if they are: only operations that pipes have too */
    uint8_t id;
    uint64_t written, read;
    size_t writing;                       /* bytes of a write whose result is not known yet */
    char last_write[100], last_read[100]; /* for reports */
    const struct operation *reader;       /* under way */
    struct channel *next, **link;         /* all that are open */
};

void list_channels(void);

void channel_open(struct random *r, struct channel *c);
/* Once its ends are closed otherwise. */
void channel_forget(struct channel *c);
/* Reads what is left and compares; closes both ends. */
void channel_close(struct random *r, struct channel *c);
/* One operation; the result. `most`: at most so many bytes. */
int channel_write(struct random *r, struct channel *c, bool certain, size_t most);
int channel_read(struct random *r, struct channel *c, bool certain, size_t most);
void channel_check(struct channel *c, const char *bytes, size_t len);
void channel_fill(const struct channel *c, char *bytes, size_t len);

/* ---- scenarios ---- */

/* Runs a random one, from its beginning to its end. The calling fiber may be cancelled meanwhile. */
void scenario(struct random *r);

#endif
