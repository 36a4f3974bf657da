/* weft/io.h: I/O for fibers (fiber_recv) and as promises (promise_recv): the same operations, with
 * the same arguments and results, each with a deadline.
 *
 * The rules of every fiber_ operation:
 *   - It suspends the calling fiber until the operation is over, and returns its result: >= 0, or a
 *     negative errno. Memory given to it is the caller's again when it returns, and not before.
 *   - deadline: when to give up, -ETIMEDOUT; WEFT_FOREVER: never; WEFT_NOWAIT: do it only if that is
 *     possible now. What was done is reported all the same: completion beats deadline and
 *     cancellation. File I/O that the disk has begun ends when it ends.
 *   - It is a cancellation point: -ECANCELED. A fiber cancelled before starts no I/O at all.
 *   - Descriptors it makes are close-on-exec. A descriptor with O_NONBLOCK waits all the same;
 *     MSG_DONTWAIT in `flags` doesn't (-EAGAIN).
 *   - Lengths above INT_MAX, and pieces above IOV_MAX (readv, writev), are cut; any read or write may be
 *     short. fiber_*_all loop until done.
 *   - No operation allocates memory.
 *   - Errors beside the operation's own: -EDEADLK on the base stack (a callback must not wait),
 *     -EINVAL without a runtime, -ENOSYS when the runtime's engine does no I/O, -EFAULT for a NULL
 *     that must not be one, -EBADF for a descriptor that is bad or being closed, -ECHILD in a child
 *     of fork.
 *
 * The rules of every promise_ operation:
 *   - It never suspends. It returns a promise, one reference, the caller's; never NULL: a failure is
 *     a rejected promise. Fulfilled, its number (union weft_value.num) is the result >= 0; rejected,
 *     its status is the negative errno.
 *   - Memory given to it belongs to the operation until the promise is settled, dropped or not.
 *   - Dropping the promise neither stops nor speeds the operation. promise_cancel asks for its end:
 *     it is then rejected with -ECANCELED, or fulfilled with what it did. If it makes a descriptor
 *     and nobody holds the promise when it comes, the descriptor is closed.
 *   - deadline and descriptors: as above. One allocation: the promise's.
 *   - Errors: as above, without -EDEADLK; and -ENOMEM.
 *
 * All are called on the runtime's thread; the promise_ ones in fibers and in callbacks alike.
 */
#ifndef WEFT_IO_H
#define WEFT_IO_H

#include <weft/base.h>
#include <weft/ring.h>
#include <weft/ring_stream.h>
#if WEFT_HAS_FIBERS
#include <weft/fiber.h>
#endif

WEFT_BEGIN_DECLS

struct promise;
struct epoll_event;
struct open_how;

#if WEFT_HAS_FIBERS
/* ---- In fibers -------------------------------------------------------------------------------- */

/* Goes once through the engine and back. Returns 0. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_nop(weft_time deadline);

/* Reads up to `len` bytes into `buf`. offset: bytes from the file's start; -1: the file's own
 * position, and for what has none (sockets, pipes). Returns bytes; 0 at the end. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_read(int fd, void *buf, size_t len, int64_t offset,
                                       weft_time deadline);

/* Writes up to `len` bytes from `buf`; offset as in fiber_read. Returns bytes. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_write(int fd, const void *buf, size_t len, int64_t offset,
                                        weft_time deadline);

/* fiber_read into `iovcnt` pieces. Returns bytes; 0 at the end. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_readv(int fd, const struct iovec *iov, int iovcnt, int64_t offset,
                                        weft_time deadline);

/* fiber_write from `iovcnt` pieces. Returns bytes. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_writev(int fd, const struct iovec *iov, int iovcnt,
                                         int64_t offset, weft_time deadline);

/* Receives up to `len` bytes from a socket. flags: MSG_* of recv(2). Returns bytes; 0: the peer has
 * ended. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_recv(int fd, void *buf, size_t len, int flags,
                                       weft_time deadline);

/* Sends up to `len` bytes. flags: MSG_* of send(2); MSG_NOSIGNAL is always added. Returns bytes.
 * Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_send(int fd, const void *buf, size_t len, int flags,
                                       weft_time deadline);

/* Sends up to `len` bytes to an address, and receives up to `len` bytes with the sender's, as
 * sendto(2) and recvfrom(2): for sockets without a connection. addr, addrlen: both may be NULL (0).
 * Returns bytes. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_sendto(int fd, const void *buf, size_t len, int flags,
                                         const struct sockaddr *addr, socklen_t addrlen,
                                         weft_time deadline);
FIBER_SUSPENDS WEFT_API int fiber_recvfrom(int fd, void *buf, size_t len, int flags,
                                           struct sockaddr *addr, socklen_t *addrlen,
                                           weft_time deadline);

/* Receives a message, as recvmsg(2). Descriptors that come with it are close-on-exec
 * (MSG_CMSG_CLOEXEC is always added) and the caller's to close: whenever the result is >= 0, however
 * late or cancelled, they are in the control data. Returns bytes; 0: the peer has ended. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_recvmsg(int fd, struct msghdr *message, int flags,
                                          weft_time deadline);

/* Sends a message, as sendmsg(2); MSG_NOSIGNAL is always added. Descriptors in its control data stay
 * the caller's. Returns bytes. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_sendmsg(int fd, const struct msghdr *message, int flags,
                                          weft_time deadline);

/* fiber_send without a copy of the bytes, where kernel and socket can do that. It returns when `buf`
 * is the caller's again: once bytes are on their way, that is when the peer has acknowledged them,
 * whatever the deadline (TCP_USER_TIMEOUT bounds it, for peers that stop reading). Worth while from
 * some 10 KiB on. Returns bytes. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_send_zc(int fd, const void *buf, size_t len, int flags,
                                          weft_time deadline);

/* Moves up to `len` bytes between a pipe and another descriptor, as splice(2). The offsets: -1, and
 * always for pipes: the descriptor's own position. flags: SPLICE_F_*; without SPLICE_F_NONBLOCK it
 * waits for either end. It never raises SIGPIPE. A socket in blocking mode is put into non-blocking mode
 * at moments, which who shares it may notice. Returns bytes; 0 at the end. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_splice(int in, int64_t in_offset, int out, int64_t out_offset,
                                         size_t len, unsigned flags, weft_time deadline);

/* Copies up to `len` bytes from one pipe to another, as tee(2). Returns bytes; 0 at the end.
 * Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_tee(int in, int out, size_t len, unsigned flags,
                                      weft_time deadline);

/* Accepts a connection. addr, addrlen: receive the peer's address as in accept(2); both may be NULL.
 * flags: SOCK_NONBLOCK or 0; SOCK_CLOEXEC is always added. Returns the new descriptor, the caller's
 * to close. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_accept(int fd, struct sockaddr *addr, socklen_t *addrlen,
                                         int flags, weft_time deadline);

/* Connects a socket to an address. Returns 0; after an error the socket is of no more use, close it.
 * Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_connect(int fd, const struct sockaddr *addr, socklen_t addrlen,
                                          weft_time deadline);

/* Makes a socket, as socket(2); SOCK_CLOEXEC is always added. Returns the new descriptor, the
 * caller's to close. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_socket(int domain, int type, int protocol, weft_time deadline);

/* Makes two connected sockets, as socketpair(2), or a pipe, as pipe2(2), with close-on-exec always.
 * fds: receives them, the caller's to close. Returns 0. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_socketpair(int domain, int type, int protocol, int fds[2],
                                             weft_time deadline);
FIBER_SUSPENDS WEFT_API int fiber_pipe(int fds[2], int flags, weft_time deadline);

/* Binds a socket to an address; lets a bound socket listen, as listen(2) (ring_listen does all of
 * it). Return 0. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_bind_fd(int fd, const struct sockaddr *addr, socklen_t addrlen,
                                          weft_time deadline);
FIBER_SUSPENDS WEFT_API int fiber_listen_fd(int fd, int backlog, weft_time deadline);

/* Closes a descriptor. What other fibers and promises of this runtime have in flight on it ends
 * first, with -ECANCELED or with what it did, and new operations on it fail with -EBADF meanwhile:
 * no operation can reach a later file with the same number. Neither deadline nor cancellation: it is
 * always done.
 * Returns 0, or a negative errno; the descriptor is gone in either case, but for -EBADF, -EDEADLK
 * and -EINVAL. On the base stack use promise_close. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_close(int fd);

/* Shuts a socket down. how: SHUT_RD, SHUT_WR or SHUT_RDWR. Returns 0. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_shutdown(int fd, int how, weft_time deadline);

/* Opens a file, as openat(2); dirfd: a directory's, or AT_FDCWD; O_CLOEXEC is always added. Returns
 * the new descriptor, the caller's to close. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_openat(int dirfd, const char *path, int flags, mode_t mode,
                                         weft_time deadline);

/* Opens a file, as openat2(2); O_CLOEXEC is always added. Returns the new descriptor, the caller's to
 * close; -EXDEV: the path leads out of what `how->resolve` allows; -EAGAIN: somebody moves
 * directories meanwhile, try again. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_openat2(int dirfd, const char *path, const struct open_how *how,
                                          weft_time deadline);

/* Opens a file below a directory and nowhere else: `dirfd` as a capability. Neither "..", nor an
 * absolute path, nor a symbolic link leads out of it (RESOLVE_BENEATH): -EXDEV. Otherwise as
 * fiber_openat2. mode: counts only if the file is made. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_open_beneath(int dirfd, const char *path, int flags, mode_t mode,
                                               weft_time deadline);

/* Writes a file's data to the disk. datasync: without metadata not needed to read it, as
 * fdatasync(2). Returns 0. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_fsync(int fd, bool datasync, weft_time deadline);

/* Begins to write a part of a file to the disk, or waits for that, as sync_file_range(2). len 0: to
 * the end. flags: SYNC_FILE_RANGE_*. Returns 0. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_sync_file_range(int fd, int64_t offset, size_t len,
                                                  unsigned flags, weft_time deadline);

/* Gives a part of a file its place on the disk, or takes it, as fallocate(2); sets a file's length,
 * as ftruncate(2). Return 0. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_fallocate(int fd, int mode, int64_t offset, int64_t len,
                                            weft_time deadline);
FIBER_SUSPENDS WEFT_API int fiber_ftruncate(int fd, int64_t len, weft_time deadline);

/* Says how a part of a file, or of memory, will be used, as posix_fadvise(2) and madvise(2).
 * Return 0. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_fadvise(int fd, int64_t offset, size_t len, int advice,
                                          weft_time deadline);
FIBER_SUSPENDS WEFT_API int fiber_madvise(void *addr, size_t len, int advice, weft_time deadline);

/* What happens to names, as unlinkat(2), renameat2(2), mkdirat(2), linkat(2) and symlinkat(2).
 * flags: AT_REMOVEDIR; RENAME_*; AT_SYMLINK_FOLLOW, AT_EMPTY_PATH. Return 0. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_unlinkat(int dirfd, const char *path, int flags,
                                           weft_time deadline);
FIBER_SUSPENDS WEFT_API int fiber_renameat(int olddirfd, const char *oldpath, int newdirfd,
                                           const char *newpath, unsigned flags, weft_time deadline);
FIBER_SUSPENDS WEFT_API int fiber_mkdirat(int dirfd, const char *path, mode_t mode,
                                          weft_time deadline);
FIBER_SUSPENDS WEFT_API int fiber_linkat(int olddirfd, const char *oldpath, int newdirfd,
                                         const char *newpath, int flags, weft_time deadline);
FIBER_SUSPENDS WEFT_API int fiber_symlinkat(const char *target, int dirfd, const char *path,
                                            weft_time deadline);

/* Reads and sets an extended attribute of a file, as fgetxattr(2) and its kin. Return a value's size,
 * or 0; -ERANGE: it is above `size`; -ENODATA: there is none. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_fgetxattr(int fd, const char *name, void *value, size_t size,
                                            weft_time deadline);
FIBER_SUSPENDS WEFT_API int fiber_fsetxattr(int fd, const char *name, const void *value,
                                            size_t size, int flags, weft_time deadline);
FIBER_SUSPENDS WEFT_API int fiber_getxattr(const char *path, const char *name, void *value,
                                           size_t size, weft_time deadline);
FIBER_SUSPENDS WEFT_API int fiber_setxattr(const char *path, const char *name, const void *value,
                                           size_t size, int flags, weft_time deadline);

/* Describes a file, as statx(2). flags: AT_*; mask: STATX_*; out: receives the description.
 * Returns 0. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_statx(int dirfd, const char *path, int flags, unsigned mask,
                                        struct statx *out, weft_time deadline);

/* Waits until one of `events` (POLLIN, POLLOUT, ... of poll(2)) holds. Returns the events that hold,
 * POLLERR and POLLHUP among them. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_poll(int fd, short events, weft_time deadline);

/* Changes what an epoll instance looks at, as epoll_ctl(2). what: EPOLL_CTL_*. Returns 0.
 * Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_epoll_ctl(int epfd, int what, int fd, struct epoll_event *event,
                                            weft_time deadline);

/* Waits while `*word` is `value`, until somebody wakes it. shared: with other processes. Returns 0
 * when woken, which may be for nothing; -EAGAIN: `*word` was another value at the start; -ENOTSUP:
 * this kernel (before 6.7), or this engine, cannot. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_futex_wait(uint32_t *word, uint32_t value, bool shared,
                                             weft_time deadline);

/* Wakes up to `count` who wait at `word`, in this or in other ways. Returns how many. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_futex_wake(uint32_t *word, unsigned count, bool shared,
                                             weft_time deadline);

/* Waits for a change of a child process, as waitid(2). which: P_PID, P_PIDFD, P_PGID or P_ALL; info:
 * a siginfo_t that receives what happened, or NULL; options: WEXITED, WSTOPPED, ... Returns 0;
 * -ECHILD: there is no such child; -ENOTSUP: this kernel (before 6.7), or this engine, waits for the
 * end of one process only. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_waitid(int which, int id, void *info, int options,
                                         weft_time deadline);

/* Exactly `len` bytes, in as many operations as it takes, before one deadline. `done` (may be NULL)
 * receives the bytes moved, also when the result is an error.
 * Returns 0; -ENODATA when the end (or the peer's end) came before `len` bytes; or what fiber_read,
 * fiber_write, fiber_recv, fiber_send return. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_read_all(int fd, void *buf, size_t len, int64_t offset,
                                           size_t *done, weft_time deadline);
FIBER_SUSPENDS WEFT_API int fiber_write_all(int fd, const void *buf, size_t len, int64_t offset,
                                            size_t *done, weft_time deadline);
FIBER_SUSPENDS WEFT_API int fiber_recv_all(int fd, void *buf, size_t len, int flags, size_t *done,
                                           weft_time deadline);
FIBER_SUSPENDS WEFT_API int fiber_send_all(int fd, const void *buf, size_t len, int flags,
                                           size_t *done, weft_time deadline);

/* Sends `len` bytes of a file to a socket, or to a pipe, without a copy of them in this process.
 * offset: from the file's start; -1: from its own position, which moves by what was sent. len:
 * SIZE_MAX: all, to the file's end. `done` (may be NULL) receives the bytes sent, also when the
 * result is an error: none but these has left the file, so that the rest can be sent later. A
 * socket in blocking mode is put into non-blocking mode at moments, which who shares it may notice.
 * Returns 0; -ENODATA: the file ended before `len` bytes; -ESPIPE: `in` is no file; -EPIPE: the
 * peer is gone; -EMFILE, -ENFILE: no room for the pipe it takes. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_sendfile(int out, int in, int64_t offset, size_t len,
                                           size_t *done, weft_time deadline);

/* Finds out where a host is: host, service, flags and errors as of ring_resolve_host. list: receives
 * the addresses, the caller's to free with ring_addresses_destroy; NULL if there is an error. A
 * lookup that is given up, for the deadline or a cancellation, keeps nothing of the caller's.
 * Allocates the list. Returns 0, or a negative errno. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_resolve_host(const char *host, const char *service,
                                               unsigned flags, struct ring_addresses **list,
                                               weft_time deadline);

/* Connects a new TCP socket to a host by name: to the first of its addresses that answers. host,
 * service: as of ring_resolve_host, but service must not be NULL.
 *
 * The addresses are tried as RFC 8305 ("happy eyeballs") says: in the order of preference, but IPv6
 * and IPv4 in turns; one that has not answered after 250 ms goes on while the next is tried beside
 * it, one that fails makes room for the next at once. At most 6 are tried at a time: then the one
 * tried longest is given up (-ETIMEDOUT). The first connection wins; all other attempts are over and
 * their sockets closed when the call returns. The deadline is for the whole.
 *
 * A numeric address needs no memory, a name that of its addresses.
 * Returns the descriptor, the caller's to close; an error of ring_resolve_host; or, when every
 * address has failed, the first error that tells most: what this process lacks (-EMFILE, -ENFILE,
 * -ENOBUFS, -ENOMEM) before an answer from the way there (-ECONNREFUSED, -EHOSTUNREACH, ...) before
 * the lack of any way (-ENETUNREACH, -EADDRNOTAVAIL, -EAFNOSUPPORT). Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_connect_host(const char *host, const char *service,
                                               weft_time deadline);

/* fiber_connect_host to addresses known already. list: of stream addresses; lent.
 * -EINVAL for NULL, or addresses for datagrams. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_connect_any(struct ring_addresses *list, weft_time deadline);

/* Connects a new local socket. path: the socket's file, or "@name" in the abstract namespace.
 * Returns the descriptor, the caller's to close; -EINVAL for NULL or "", -ENAMETOOLONG; or what
 * fiber_connect returns. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_connect_unix(const char *path, weft_time deadline);

/* Takes the next item of a stream, waiting for it if need be. Returns
 *   accept: a descriptor, the caller's to close;
 *   recv: the number of bytes, and *item, to be given back with ring_item_release; 0: the peer has
 *     ended. `item` must not be NULL (-EFAULT);
 *   poll: the events;
 * -ETIMEDOUT, -ECANCELED: nothing was taken; -EBUSY: somebody else waits for the next item; or what
 * ended the stream, after all that came before it, and again at each call. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_stream_next(struct ring_stream *stream, struct ring_item *item,
                                              weft_time deadline);
#endif

/* ---- As promises: see the fiber_ function of the same name -------------------------------------- */

/* Fulfilled with 0, once through the engine and back. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_nop(weft_time deadline);

/* Fulfilled with the bytes read; 0 at the end. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_read(int fd, void *buf, size_t len, int64_t offset,
                                                     weft_time deadline);

/* Fulfilled with the bytes written. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_write(int fd, const void *buf, size_t len,
                                                      int64_t offset, weft_time deadline);

/* Fulfilled with the bytes read; 0 at the end. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_readv(int fd, const struct iovec *iov, int iovcnt,
                                                      int64_t offset, weft_time deadline);

/* Fulfilled with the bytes written. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_writev(int fd, const struct iovec *iov, int iovcnt,
                                                       int64_t offset, weft_time deadline);

/* Fulfilled with the bytes received; 0: the peer has ended. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_recv(int fd, void *buf, size_t len, int flags,
                                                     weft_time deadline);

/* Fulfilled with the bytes sent. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_send(int fd, const void *buf, size_t len, int flags,
                                                     weft_time deadline);

/* Fulfilled with the bytes sent, or received; `addr` and `addrlen` belong to the operation as `buf`
 * does. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_sendto(int fd, const void *buf, size_t len,
                                                       int flags, const struct sockaddr *addr,
                                                       socklen_t addrlen, weft_time deadline);
WEFT_API WEFT_NODISCARD struct promise *promise_recvfrom(int fd, void *buf, size_t len, int flags,
                                                         struct sockaddr *addr, socklen_t *addrlen,
                                                         weft_time deadline);

/* Fulfilled with the bytes received; 0: the peer has ended. Descriptors in the control data are then
 * whoever's to close that has the promise; if nobody has, they are closed and `msg_controllen` is 0.
 * Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_recvmsg(int fd, struct msghdr *message, int flags,
                                                        weft_time deadline);

/* Fulfilled with the bytes sent; descriptors in the control data must stay open until then.
 * Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_sendmsg(int fd, const struct msghdr *message,
                                                        int flags, weft_time deadline);

/* Fulfilled with the bytes sent, when `buf` is the caller's again. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_send_zc(int fd, const void *buf, size_t len,
                                                        int flags, weft_time deadline);

/* Fulfilled with the bytes moved; 0 at the end. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_splice(int in, int64_t in_offset, int out,
                                                       int64_t out_offset, size_t len,
                                                       unsigned flags, weft_time deadline);
WEFT_API WEFT_NODISCARD struct promise *promise_tee(int in, int out, size_t len, unsigned flags,
                                                    weft_time deadline);

/* Fulfilled with the new connection's descriptor. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *
promise_accept(int fd, struct sockaddr *addr, socklen_t *addrlen, int flags, weft_time deadline);

/* Fulfilled with 0 when connected. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_connect(int fd, const struct sockaddr *addr,
                                                        socklen_t addrlen, weft_time deadline);

/* Fulfilled with the new socket's descriptor. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_socket(int domain, int type, int protocol,
                                                       weft_time deadline);

/* Fulfilled with 0 when `fds` has received the new descriptors; if nobody has the promise then, they
 * are closed. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_socketpair(int domain, int type, int protocol,
                                                           int fds[2], weft_time deadline);
WEFT_API WEFT_NODISCARD struct promise *promise_pipe(int fds[2], int flags, weft_time deadline);

/* Fulfilled with 0. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_bind_fd(int fd, const struct sockaddr *addr,
                                                        socklen_t addrlen, weft_time deadline);
WEFT_API WEFT_NODISCARD struct promise *promise_listen_fd(int fd, int backlog, weft_time deadline);

/* Fulfilled with 0 when the descriptor is closed: what was in flight on it has ended. It cannot be
 * cancelled. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_close(int fd);

/* Fulfilled with 0. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_shutdown(int fd, int how, weft_time deadline);

/* Fulfilled with the new descriptor. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_openat(int dirfd, const char *path, int flags,
                                                       mode_t mode, weft_time deadline);

/* Fulfilled with the new descriptor. `how` is copied. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *
promise_openat2(int dirfd, const char *path, const struct open_how *how, weft_time deadline);
WEFT_API WEFT_NODISCARD struct promise *promise_open_beneath(int dirfd, const char *path, int flags,
                                                             mode_t mode, weft_time deadline);

/* Fulfilled with 0. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_sync_file_range(int fd, int64_t offset, size_t len,
                                                                unsigned flags, weft_time deadline);
WEFT_API WEFT_NODISCARD struct promise *promise_fallocate(int fd, int mode, int64_t offset,
                                                          int64_t len, weft_time deadline);
WEFT_API WEFT_NODISCARD struct promise *promise_ftruncate(int fd, int64_t len, weft_time deadline);
WEFT_API WEFT_NODISCARD struct promise *promise_fadvise(int fd, int64_t offset, size_t len,
                                                        int advice, weft_time deadline);
WEFT_API WEFT_NODISCARD struct promise *promise_madvise(void *addr, size_t len, int advice,
                                                        weft_time deadline);
WEFT_API WEFT_NODISCARD struct promise *promise_unlinkat(int dirfd, const char *path, int flags,
                                                         weft_time deadline);
WEFT_API WEFT_NODISCARD struct promise *promise_renameat(int olddirfd, const char *oldpath,
                                                         int newdirfd, const char *newpath,
                                                         unsigned flags, weft_time deadline);
WEFT_API WEFT_NODISCARD struct promise *promise_mkdirat(int dirfd, const char *path, mode_t mode,
                                                        weft_time deadline);
WEFT_API WEFT_NODISCARD struct promise *promise_linkat(int olddirfd, const char *oldpath,
                                                       int newdirfd, const char *newpath, int flags,
                                                       weft_time deadline);
WEFT_API WEFT_NODISCARD struct promise *promise_symlinkat(const char *target, int dirfd,
                                                          const char *path, weft_time deadline);

/* Fulfilled with the value's size, or with 0. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_fgetxattr(int fd, const char *name, void *value,
                                                          size_t size, weft_time deadline);
WEFT_API WEFT_NODISCARD struct promise *promise_fsetxattr(int fd, const char *name,
                                                          const void *value, size_t size, int flags,
                                                          weft_time deadline);
WEFT_API WEFT_NODISCARD struct promise *
promise_getxattr(const char *path, const char *name, void *value, size_t size, weft_time deadline);
WEFT_API WEFT_NODISCARD struct promise *promise_setxattr(const char *path, const char *name,
                                                         const void *value, size_t size, int flags,
                                                         weft_time deadline);

/* Fulfilled with 0 when the data are on the disk. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_fsync(int fd, bool datasync, weft_time deadline);

/* Fulfilled with 0 when `out` is filled. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_statx(int dirfd, const char *path, int flags,
                                                      unsigned mask, struct statx *out,
                                                      weft_time deadline);

/* Fulfilled with the events of `fd` that hold: fiber_poll as a promise (promise_poll looks at a
 * promise). Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_poll_fd(int fd, short events, weft_time deadline);

/* Fulfilled with 0. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *
promise_epoll_ctl(int epfd, int what, int fd, struct epoll_event *event, weft_time deadline);

/* Fulfilled with 0 when woken; with how many were woken. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_futex_wait(uint32_t *word, uint32_t value,
                                                           bool shared, weft_time deadline);
WEFT_API WEFT_NODISCARD struct promise *promise_futex_wake(uint32_t *word, unsigned count,
                                                           bool shared, weft_time deadline);

/* Fulfilled with 0 when `info` is filled. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_waitid(int which, int id, void *info, int options,
                                                       weft_time deadline);

/* Exactly `len` bytes, before one deadline: fulfilled with `len`, rejected with -ENODATA when the
 * end came before. `done` (may be NULL) belongs to the operation as `buf` does, and has received the
 * bytes moved when the promise is settled, rejected or not. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *
promise_read_all(int fd, void *buf, size_t len, int64_t offset, size_t *done, weft_time deadline);
WEFT_API WEFT_NODISCARD struct promise *promise_write_all(int fd, const void *buf, size_t len,
                                                          int64_t offset, size_t *done,
                                                          weft_time deadline);
WEFT_API WEFT_NODISCARD struct promise *promise_recv_all(int fd, void *buf, size_t len, int flags,
                                                         size_t *done, weft_time deadline);
WEFT_API WEFT_NODISCARD struct promise *
promise_send_all(int fd, const void *buf, size_t len, int flags, size_t *done, weft_time deadline);

/* Fulfilled with the bytes sent; `done` as above. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *
promise_sendfile(int out, int in, int64_t offset, size_t len, size_t *done, weft_time deadline);

/* Fulfilled with a pointer (union weft_value.ptr), the struct ring_addresses, which the promise
 * destroys unless somebody takes it with the last reference, as fiber_await does. host, service:
 * copied. promise_cancel ends it at once. Allocates the list, too. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_resolve_host(const char *host, const char *service,
                                                             unsigned flags, weft_time deadline);

/* Fulfilled with a connected socket's descriptor. host, service: copied. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_connect_host(const char *host, const char *service,
                                                             weft_time deadline);

/* Fulfilled with a connected socket's descriptor. list: shared, may be destroyed at once. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_connect_any(struct ring_addresses *list,
                                                            weft_time deadline);

/* Fulfilled with a connected socket's descriptor. path: copied. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_connect_unix(const char *path, weft_time deadline);

/* Fulfilled with what fiber_stream_next returns. `item` belongs to the operation until the promise is
 * settled. An item that comes when nobody holds the promise any more stays in the stream; the
 * promise's settlement is when it is taken, so an item is never taken and lost. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *
promise_ring_stream_next(struct ring_stream *stream, struct ring_item *item, weft_time deadline);

WEFT_END_DECLS

#endif
