/* weft/ring.h: I/O as the engine does it: an operation on your own memory and a function that is
 * called when it is over. Nothing here suspends or knows a fiber or a promise, and but for lists of
 * addresses nothing allocates; the two front ends in weft/io.h are made of this.
 *
 *     struct echo { struct ring_op op; ... };
 *     echo->op.done = echo_received;
 *     int error = ring_recv(&echo->op, fd, echo->buffer, sizeof echo->buffer, 0);
 *
 * The rules of every ring_ operation:
 *   - Set `op->done`, then call. A return of 0 means that `done` will be called, later, from the
 *     runtime's loop, exactly once; a negative errno means that it will not.
 *   - The op, and all memory that its arguments point to, belongs to the operation until `done` is
 *     called, and is the caller's again from that moment. `done` may reuse or free the op.
 *   - Operations are handed to the kernel together, when the runtime next polls. Order of submission
 *     is kept; order of completion is not.
 *   - Descriptors made by an operation are close-on-exec. A descriptor with O_NONBLOCK waits all the
 *     same; MSG_DONTWAIT in `flags` doesn't.
 *   - Lengths above INT_MAX are cut: such an operation is a short one. Any read or write may be.
 *   - Errors at the call: -EINVAL without a runtime, -ENOSYS when the runtime's engine does no I/O,
 *     -EFAULT for a NULL that must not be one, -EBADF for a descriptor that is being closed,
 *     -ECHILD in a child of fork (the ring is the parent's).
 *   - They are called on the runtime's thread: in fibers, in callbacks and in `done` alike.
 */
#ifndef WEFT_RING_H
#define WEFT_RING_H

#include <weft/base.h>

#include <sys/socket.h>
#include <sys/types.h>

struct statx;
struct addrinfo;

WEFT_BEGIN_DECLS

/* One operation. `done` is public and the caller's to set; all else is private and needs no
 * initialisation.
 *
 * done(op, res, flags) is called on the base stack. res: >= 0, or a negative errno: -ECANCELED after
 * ring_cancel (or when somebody closed the descriptor); what the operation did it reports, cancelled
 * or not. flags: reserved, 0. */
struct ring_op {
    void (*done)(struct ring_op *op, int res, unsigned flags);

    /* What to do, in no engine's terms. */
    uint64_t addr;
    uint64_t off;
    int32_t fd;
    uint32_t len;
    uint32_t how;
    uint8_t row;
    uint8_t state;
    uint16_t reserved0;

    /* Its place among the operations on its descriptor, and in an engine's queue. */
    struct ring_op *same, **same_link;
    struct ring_op *next, **next_link;

    /* An engine's own. */
    struct ring_op *other, **other_link;
    uint64_t moved;
};

#ifdef __cplusplus
static_assert(sizeof(struct ring_op) == 96, "part of the ABI");
#else
_Static_assert(sizeof(struct ring_op) == 96, "part of the ABI");
#endif

/* Asks for the end of an operation in flight; a request, not an end: `done` still comes, with
 * -ECANCELED or with what the operation did before the request reached it. File I/O that the disk
 * has begun cannot be cut short. Asking twice is harmless; an op that isn't in flight must not be
 * passed. Runtime's thread, callbacks too; doesn't suspend, cannot fail. Since 0.1. */
WEFT_API void ring_cancel(struct ring_op *op);

/* Completes with 0 in the next turn of the loop. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_nop(struct ring_op *op);

/* Reads into, or writes from, `len` bytes at `buf`. offset: bytes from the file's start; -1: the
 * file's own position, and for what has none (sockets, pipes). res: bytes; a read's 0 is the end.
 * Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_read(struct ring_op *op, int fd, void *buf, size_t len,
                                      int64_t offset);
WEFT_API WEFT_NODISCARD int ring_write(struct ring_op *op, int fd, const void *buf, size_t len,
                                       int64_t offset);

/* The same with `iovcnt` pieces; the array belongs to the operation as the buffers do. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_readv(struct ring_op *op, int fd, const struct iovec *iov,
                                       int iovcnt, int64_t offset);
WEFT_API WEFT_NODISCARD int ring_writev(struct ring_op *op, int fd, const struct iovec *iov,
                                        int iovcnt, int64_t offset);

/* Receives up to `len` bytes from a socket. flags: MSG_* of recv(2). res: bytes; 0: the peer has
 * ended. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_recv(struct ring_op *op, int fd, void *buf, size_t len, int flags);

/* Sends up to `len` bytes. flags: MSG_* of send(2); MSG_NOSIGNAL is always added. res: bytes.
 * Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_send(struct ring_op *op, int fd, const void *buf, size_t len,
                                      int flags);

/* Sends a message, as sendmsg(2); MSG_NOSIGNAL is always added. Descriptors in its control data may
 * be closed when it is over. res: bytes. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_sendmsg(struct ring_op *op, int fd, const struct msghdr *message,
                                         int flags);

/* Accepts a connection. addr, addrlen: receive the peer's address as in accept(2); both may be NULL.
 * flags: SOCK_NONBLOCK or 0; SOCK_CLOEXEC is always added. res: the new descriptor, which is
 * `done`'s to close. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_accept(struct ring_op *op, int fd, struct sockaddr *addr,
                                        socklen_t *addrlen, int flags);

/* Connects a socket. res: 0. After an error the socket is of no more use. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_connect(struct ring_op *op, int fd, const struct sockaddr *addr,
                                         socklen_t addrlen);

/* Makes a socket, as socket(2); SOCK_CLOEXEC is always added. res: the new descriptor. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_socket(struct ring_op *op, int domain, int type, int protocol);

/* Closes a descriptor, and nothing more: what is in flight on it stays in flight, and keeps the file
 * open. fiber_close and promise_close end that first. res: 0. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_close(struct ring_op *op, int fd);

/* Shuts a socket down. how: SHUT_RD, SHUT_WR or SHUT_RDWR. res: 0. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_shutdown(struct ring_op *op, int fd, int how);

/* Opens a file, as openat(2); O_CLOEXEC is always added. res: the new descriptor. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_openat(struct ring_op *op, int dirfd, const char *path, int flags,
                                        mode_t mode);

/* Writes a file's data to the disk. datasync: without metadata not needed to read it, as
 * fdatasync(2). res: 0. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_fsync(struct ring_op *op, int fd, bool datasync);

/* Describes a file, as statx(2). flags: AT_*; mask: STATX_*. res: 0. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_statx(struct ring_op *op, int dirfd, const char *path, int flags,
                                       unsigned mask, struct statx *out);

/* Waits until one of `events` (POLLIN, POLLOUT, ... of poll(2)) holds. res: the events that hold.
 * Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_poll(struct ring_op *op, int fd, short events);

/* ---- Where a host is -------------------------------------------------------------------------- */

/* The addresses of a host: a list that is never empty and never changes. */
struct ring_addresses;

/* The first address, the one that RFC 6724 prefers; the others follow by ai_next. Each has what
 * socket(2) and connect(2) want: ai_family, ai_socktype, ai_protocol, ai_addr, ai_addrlen (see
 * <netdb.h>); ai_canonname is NULL. They live as long as the list. Any thread. Since 0.1. */
WEFT_API const struct addrinfo *ring_addresses_first(const struct ring_addresses *list);

/* Frees a list. NULL is fine. Any thread. Since 0.1. */
WEFT_API void ring_addresses_destroy(struct ring_addresses *list);

/* What to look for: bits, 0: addresses of both families for a stream (TCP). */
#define RING_IPV4     1u /* IPv4 addresses; with RING_IPV6, or without either: both families */
#define RING_IPV6     2u /* IPv6 addresses */
#define RING_DATAGRAM 4u /* for datagrams (UDP): a service's number, ai_socktype and ai_protocol */

/* A lookup under way. Set `done`, the caller's; `list` is read-only; the rest is private and needs no
 * initialisation.
 *
 * done(resolve, result) is called on the base stack: 0, and `list` is what was found; or a negative
 * errno, and it is NULL. It may free or reuse the struct. */
struct ring_resolve {
    void (*done)(struct ring_resolve *resolve, int result);
    struct ring_addresses *list;    /* the caller's to destroy */
    struct ring_addresses *pending; /* private */
    uint64_t reserved[3];
};

#ifdef __cplusplus
static_assert(sizeof(struct ring_resolve) == 48, "part of the ABI");
#else
_Static_assert(sizeof(struct ring_resolve) == 48, "part of the ABI");
#endif

/* Finds out where a host is. host: a name, or a numeric address ("192.0.2.1", "2001:db8::1",
 * "fe80::1%eth0"). service: a port number or a service's name ("http"); NULL: port 0. flags:
 * RING_IPV4, RING_IPV6, RING_DATAGRAM. host, service: copied.
 *
 * A numeric host, with a port number or a well-known service, is answered at once. All else is
 * getaddrinfo's (3), on a thread of the process's pool; a bounded number of such lookups runs at a
 * time, in the order in which they were asked for, and they hold up no other work. There is no cache
 * but the system's.
 *
 * Returns 0: `list` is the answer, `done` is not called. -EINPROGRESS: it will be, once, unless
 * ring_resolve_cancel or the runtime's end come first. Here, or to `done`:
 *     -EINVAL        NULL or "" for a host, an unknown service, a port above 65535, unknown flags,
 *                    no runtime
 *     -ENAMETOOLONG  a host of more than 1024 bytes
 *     -ENOENT        there is no such host, or it has no address of that family (EAI_NONAME,
 *                    EAI_NODATA, EAI_ADDRFAMILY)
 *     -EAGAIN        the name server doesn't answer (EAI_AGAIN), or no thread could be made
 *     -ENOMEM        EAI_MEMORY too
 *     -EIO           the name server failed (EAI_FAIL), or anything else
 *     EAI_SYSTEM is what errno said.
 * Allocates the list. Runtime's thread, callbacks too; doesn't suspend. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_resolve_host(struct ring_resolve *resolve, const char *host,
                                              const char *service, unsigned flags);

/* Gives a lookup up: `done` is not called any more, and the struct is the caller's at once; what the
 * name server may still say is dropped. Does nothing after an answer. Runtime's thread, callbacks
 * too; doesn't suspend, cannot fail. Since 0.1. */
WEFT_API void ring_resolve_cancel(struct ring_resolve *resolve);

/* ---- Bound sockets; any thread, with or without a runtime; they never suspend ------------------ */

/* How to bind: bits. */
#define RING_REUSEPORT \
    8u                  /* other sockets of this user may bind the same port, all with this flag:
                            * the kernel spreads connections (datagrams: peers) over them */
#define RING_V6ONLY 16u /* an IPv6 socket that takes no IPv4 */

/* Makes a TCP socket that listens. host: a numeric IPv4 or IPv6 address; NULL: every address of
 * both families (with RING_V6ONLY: every IPv6 address). service: a port number, or a name known
 * without a lookup ("http", "https"); "0" or NULL: any free port, see ring_local_port. backlog:
 * connections that may wait for accept; 0: the system's maximum. flags: RING_REUSEPORT, for a
 * listener in each of several threads or processes; RING_V6ONLY. SO_REUSEADDR and close-on-exec are
 * set.
 * Returns the descriptor, the caller's to close; -EINVAL for a host or service that isn't numeric,
 * unknown flags, RING_V6ONLY with an IPv4 address; or what socket, bind or listen say (-EADDRINUSE,
 * -EACCES). Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_listen_with(const char *host, const char *service, int backlog,
                                             unsigned flags);

/* The same without flags. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_listen(const char *host, const char *service, int backlog);

/* Makes a UDP socket bound to an address: host, service, flags and result as in ring_listen_with.
 * IPv4 peers of a socket for both families have mapped addresses ("::ffff:192.0.2.1"). Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_bind_udp(const char *host, const char *service, unsigned flags);

/* Listens on a local socket. path: of the file to make, which must not exist and stays when the
 * socket is closed; "@name": a name in the abstract namespace, which leaves nothing behind.
 * Returns the descriptor; -EINVAL for NULL or "", -ENAMETOOLONG, or what socket, bind or listen say.
 * Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_listen_unix(const char *path, int backlog);

/* The port a TCP or UDP socket is bound to. Returns 1 to 65535, 0 if it is bound to none;
 * -EAFNOSUPPORT for a socket of another family, or what getsockname says. Since 0.1. */
WEFT_API int ring_local_port(int fd);

WEFT_END_DECLS

#endif
