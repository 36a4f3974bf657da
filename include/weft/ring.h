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
 *   - Lengths above INT_MAX, and pieces above IOV_MAX, are cut: such an operation is a short one. Any read
 *     or write may be.
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

struct epoll_event;
struct open_how;
struct statx;
struct addrinfo;

WEFT_BEGIN_DECLS

/* Private. */
struct ring_own {
    struct ring_op *other, **other_link;
    uint32_t moved, extra;
};

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
    uint16_t state;
    uint8_t row, reserved0;

    /* Its place among the operations on its descriptor, and in an engine's queue. */
    struct ring_op *same, **same_link;
    struct ring_op *next, **next_link;

    /* What few operations have, and what an engine has of those that wait. */
    union {
        struct ring_own own;
        uint64_t more[3];
    };
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

/* Asks for the end of everything that this runtime has in flight on a descriptor, whatever its form:
 * ring_cancel for each. Closes nothing, and doesn't wait. Returns how many operations were asked, 0
 * or more; -EINVAL without a runtime, -ENOSYS when its engine does no I/O, -EBADF for a negative
 * number. Runtime's thread, callbacks too; doesn't suspend. Since 0.1. */
WEFT_API int ring_cancel_fd(int fd);

/* ---- Files and buffers that the ring knows beforehand ------------------------------------------ */

/* Lets the ring keep hold of a descriptor's file (weft_options.registered_files says of how many), so
 * that operations on it, which are called as ever, need not look it up. That saves some time where
 * several threads of the process run; measure. While it is registered, close the descriptor with
 * weft's functions only, which end that by themselves, and not with close(2): the file would stay
 * open, and operations go to it still when the number is another file's.
 * Returns 0, also when it is registered already, and where it is of no use (another engine, no
 * registered_files); -EBADF for what is no descriptor, -ENFILE when all places are taken, -ENOMEM,
 * -EINVAL without a runtime, -ENOSYS when its engine does no I/O, -ECHILD in a child of fork.
 * Runtime's thread, callbacks too; doesn't suspend. Since 0.1. */
WEFT_API int ring_register_fd(int fd);

/* The end of that. Returns 0, also for one that is not registered; -EBUSY while operations are in
 * flight on it (see ring_cancel_fd); -EBADF for a negative number; and the others as above.
 * Since 0.1. */
WEFT_API int ring_unregister_fd(int fd);

/* Lets the ring keep hold of the pages of up to 64 buffers, so that reads, writes and zero-copy sends
 * within one of them need not pin them each time: it pays for large ones that go past the page cache
 * (O_DIRECT), or to the network without a copy. iov: copied; the memory must stay until they are
 * unregistered, or the runtime has ended, and counts against RLIMIT_MEMLOCK.
 * Returns 0, also where it is of no use; -EFAULT for NULL, -EINVAL for none or too many, -EBUSY when
 * there are some already, -ENOMEM; and the others as above. Since 0.1. */
WEFT_API int ring_register_buffers(const struct iovec *iov, unsigned count);

/* The end of that. Returns 0, also when there are none; -EBUSY while operations in flight use them.
 * Since 0.1. */
WEFT_API int ring_unregister_buffers(void);

/* ---- Operations ------------------------------------------------------------------------------- */

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

/* ring_send to an address: for sockets without a connection. addr: NULL with addrlen 0 is ring_send.
 * res: bytes. (recvfrom(2) is ring_recvmsg with a msg_name.) Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_sendto(struct ring_op *op, int fd, const void *buf, size_t len,
                                        int flags, const struct sockaddr *addr, socklen_t addrlen);

/* Receives a message, as recvmsg(2); `message`, and what it points to, belongs to the operation.
 * Descriptors that come with it are close-on-exec (MSG_CMSG_CLOEXEC is always added) and, like the
 * bytes, are there whenever res >= 0, cancelled or not: they are `done`'s to close. res: bytes.
 * Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_recvmsg(struct ring_op *op, int fd, struct msghdr *message,
                                         int flags);

/* Sends a message, as sendmsg(2); MSG_NOSIGNAL is always added. Descriptors in its control data may
 * be closed when it is over. res: bytes. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_sendmsg(struct ring_op *op, int fd, const struct msghdr *message,
                                         int flags);

/* ring_send without a copy of the bytes, where kernel and socket can do that; else it is ring_send.
 * It is over when `buf` is the caller's again, which may take until the peer has acknowledged the
 * bytes: a request for its end doesn't hasten that once they are on their way. Worth while from some
 * 10 KiB on. res: bytes. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_send_zc(struct ring_op *op, int fd, const void *buf, size_t len,
                                         int flags);

/* Moves up to `len` bytes between a pipe and another descriptor, as splice(2). The offsets: -1, and
 * always for pipes: the descriptor's own position. flags: SPLICE_F_*; without SPLICE_F_NONBLOCK it
 * waits for either end. It never raises SIGPIPE. A socket in blocking mode is put into non-blocking mode
 * at moments, which who shares it may notice. res: bytes; 0 at the end. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_splice(struct ring_op *op, int in, int64_t in_offset, int out,
                                        int64_t out_offset, size_t len, unsigned flags);

/* Copies up to `len` bytes from one pipe to another, as tee(2): they stay in the first. res: bytes;
 * 0 at the end. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_tee(struct ring_op *op, int in, int out, size_t len,
                                     unsigned flags);

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

/* Makes two connected sockets, as socketpair(2), or a pipe, as pipe2(2), with close-on-exec always;
 * `fds` receives them. res: 0. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_socketpair(struct ring_op *op, int domain, int type, int protocol,
                                            int fds[2]);
WEFT_API WEFT_NODISCARD int ring_pipe(struct ring_op *op, int fds[2], int flags);

/* Binds a socket to an address; lets a bound socket listen, as listen(2) (ring_listen below does
 * both, and makes the socket). res: 0. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_bind_fd(struct ring_op *op, int fd, const struct sockaddr *addr,
                                         socklen_t addrlen);
WEFT_API WEFT_NODISCARD int ring_listen_fd(struct ring_op *op, int fd, int backlog);

/* Closes a descriptor, and nothing more: what is in flight on it stays in flight, and keeps the file
 * open. fiber_close and promise_close end that first. res: 0. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_close(struct ring_op *op, int fd);

/* Shuts a socket down. how: SHUT_RD, SHUT_WR or SHUT_RDWR. res: 0. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_shutdown(struct ring_op *op, int fd, int how);

/* Opens a file, as openat(2); O_CLOEXEC is always added. res: the new descriptor. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_openat(struct ring_op *op, int dirfd, const char *path, int flags,
                                        mode_t mode);

/* Opens a file, as openat2(2); O_CLOEXEC is always added. `how` is copied. res: the new descriptor;
 * -EXDEV: the path leads out of what `how->resolve` allows; -EAGAIN: somebody moves directories
 * meanwhile, try again. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_openat2(struct ring_op *op, int dirfd, const char *path,
                                         const struct open_how *how);

/* Opens a file below a directory and nowhere else: `dirfd` as a capability. Neither "..", nor an
 * absolute path, nor a symbolic link leads out of it (RESOLVE_BENEATH): -EXDEV. Otherwise as
 * ring_openat2. mode: counts only if the file is made. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_open_beneath(struct ring_op *op, int dirfd, const char *path,
                                              int flags, mode_t mode);

/* Writes a file's data to the disk. datasync: without metadata not needed to read it, as
 * fdatasync(2). res: 0. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_fsync(struct ring_op *op, int fd, bool datasync);

/* Begins to write a part of a file to the disk, or waits for that, as sync_file_range(2). len 0: to
 * the end. flags: SYNC_FILE_RANGE_*. res: 0. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_sync_file_range(struct ring_op *op, int fd, int64_t offset,
                                                 size_t len, unsigned flags);

/* Gives a part of a file its place on the disk, or takes it, as fallocate(2); sets a file's length,
 * as ftruncate(2). res: 0. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_fallocate(struct ring_op *op, int fd, int mode, int64_t offset,
                                           int64_t len);
WEFT_API WEFT_NODISCARD int ring_ftruncate(struct ring_op *op, int fd, int64_t len);

/* Says how a part of a file, or of memory, will be used, as posix_fadvise(2) and madvise(2). res: 0.
 * Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_fadvise(struct ring_op *op, int fd, int64_t offset, size_t len,
                                         int advice);
WEFT_API WEFT_NODISCARD int ring_madvise(struct ring_op *op, void *addr, size_t len, int advice);

/* What happens to names, as unlinkat(2), renameat2(2), mkdirat(2), linkat(2) and symlinkat(2).
 * flags: AT_REMOVEDIR; RENAME_*; AT_SYMLINK_FOLLOW, AT_EMPTY_PATH. res: 0. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_unlinkat(struct ring_op *op, int dirfd, const char *path,
                                          int flags);
WEFT_API WEFT_NODISCARD int ring_renameat(struct ring_op *op, int olddirfd, const char *oldpath,
                                          int newdirfd, const char *newpath, unsigned flags);
WEFT_API WEFT_NODISCARD int ring_mkdirat(struct ring_op *op, int dirfd, const char *path,
                                         mode_t mode);
WEFT_API WEFT_NODISCARD int ring_linkat(struct ring_op *op, int olddirfd, const char *oldpath,
                                        int newdirfd, const char *newpath, int flags);
WEFT_API WEFT_NODISCARD int ring_symlinkat(struct ring_op *op, const char *target, int dirfd,
                                           const char *path);

/* Reads and sets an extended attribute of a file, as fgetxattr(2) and its kin. res: of a read, the
 * value's size, with `size` 0 too; -ERANGE: it is above `size`; -ENODATA: there is none; of a write,
 * 0. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_fgetxattr(struct ring_op *op, int fd, const char *name,
                                           void *value, size_t size);
WEFT_API WEFT_NODISCARD int ring_fsetxattr(struct ring_op *op, int fd, const char *name,
                                           const void *value, size_t size, int flags);
WEFT_API WEFT_NODISCARD int ring_getxattr(struct ring_op *op, const char *path, const char *name,
                                          void *value, size_t size);
WEFT_API WEFT_NODISCARD int ring_setxattr(struct ring_op *op, const char *path, const char *name,
                                          const void *value, size_t size, int flags);

/* Describes a file, as statx(2). flags: AT_*; mask: STATX_*. res: 0. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_statx(struct ring_op *op, int dirfd, const char *path, int flags,
                                       unsigned mask, struct statx *out);

/* Waits until one of `events` (POLLIN, POLLOUT, ... of poll(2)) holds. res: the events that hold.
 * Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_poll(struct ring_op *op, int fd, short events);

/* Changes what an epoll instance looks at, as epoll_ctl(2). what: EPOLL_CTL_*. res: 0. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_epoll_ctl(struct ring_op *op, int epfd, int what, int fd,
                                           struct epoll_event *event);

/* Waits while `*word` is `value`, until ring_futex_wake or the system call wakes it: the way to wait
 * for a thread, or (shared) for another process, that keeps a futex. res: 0 when woken, which may be
 * for nothing; -EAGAIN: `*word` was another value at the start; -ENOTSUP: this kernel (before 6.7), or
 * this engine, cannot. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_futex_wait(struct ring_op *op, uint32_t *word, uint32_t value,
                                            bool shared);

/* Wakes up to `count` who wait at `word`. res: how many. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_futex_wake(struct ring_op *op, uint32_t *word, unsigned count,
                                            bool shared);

/* Waits for a change of a child process, as waitid(2). which: P_PID, P_PIDFD, P_PGID or P_ALL; info:
 * a siginfo_t that receives what happened, or NULL; options: WEXITED, WSTOPPED, ... res: 0; -ECHILD:
 * there is no such child; -ENOTSUP: this kernel (before 6.7), or this engine, waits for the end of
 * one process only. Since 0.1. */
WEFT_API WEFT_NODISCARD int ring_waitid(struct ring_op *op, int which, int id, void *info,
                                        int options);

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
