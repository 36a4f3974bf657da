/* weft/ring_stream.h: what keeps coming on one descriptor: connections, received bytes, readiness.
 *
 *     struct ring_stream *connections;
 *     rc = ring_stream_accept(&connections, listener, 0);
 *     while ((fd = fiber_stream_next(connections, NULL, WEFT_FOREVER)) >= 0)
 *         ...
 *     ring_stream_close(connections);
 *
 * A stream is one request to the engine that brings many results (io_uring's multishot operations,
 * where the kernel has them; else the request is repeated). Results are kept, in order, until
 * somebody takes them; a stream that nobody reads stops asking for more after a while, and goes on
 * when it is read again. So nothing is lost and nothing piles up.
 *
 * Received bytes come in buffers of a pool that many streams share (struct ring_buffers): a
 * connection that is silent holds no buffer. When all buffers are in use, streams wait in line for
 * one to be given back; the bytes wait in the socket.
 *
 * Streams and pools belong to the runtime that made them, and are used on its thread, in fibers and
 * callbacks alike. Those not closed when the runtime ends are leaked. Since 0.1.
 */
#ifndef WEFT_RING_STREAM_H
#define WEFT_RING_STREAM_H

#include <weft/base.h>

WEFT_BEGIN_DECLS

/* ---- Buffers ---------------------------------------------------------------------------------- */

/* A pool of equal buffers. */
struct ring_buffers;

/* Makes a pool of `count` buffers (1 to 32768) of `size` bytes (1 to 1 GiB). Where the kernel can
 * choose buffers itself (Linux 5.19) they are handed to it, which locks their list in memory (16
 * bytes a buffer). Returns 0 and *buffers; -EINVAL for a bad number or without a runtime; -ENOMEM.
 * Never suspends. Since 0.1. */
WEFT_API int ring_buffers_create(struct ring_buffers **buffers, unsigned count, size_t size);

/* Gives the pool up. Its memory goes once all streams on it are closed and all items are released.
 * NULL is fine. Never suspends. Since 0.1. */
WEFT_API void ring_buffers_destroy(struct ring_buffers *buffers);

/* Buffers that are in use: their items not released, or not yet taken from a stream. Since 0.1. */
WEFT_API unsigned ring_buffers_used(const struct ring_buffers *buffers);

/* Bytes received, in a buffer of a pool. data and len are public and may be changed, to take bytes
 * off the front for instance; the rest is private. */
struct ring_item {
    char *data;
    size_t len;
    struct ring_buffers *buffers;
    unsigned index;
    unsigned reserved;
};

/* Gives an item's buffer back, from which moment its bytes must not be touched. An item without a
 * buffer is fine, and so is one released already. Never suspends. Since 0.1. */
WEFT_API void ring_item_release(struct ring_item *item);

/* ---- Streams ---------------------------------------------------------------------------------- */

struct ring_stream;

/* Streams of a descriptor, which stays the caller's, to be closed after the stream (or before: the
 * stream ends, as operations do when their descriptor is closed).
 *
 * accept: connections. flags: SOCK_NONBLOCK or 0; SOCK_CLOEXEC is always added. A connection that
 *   failed before it was accepted is skipped. When there is no descriptor for another one (EMFILE,
 *   ENFILE) the stream says so to the runtime's report, once a minute at most, and waits until a
 *   descriptor is closed by this runtime, or some time has passed; the connections wait in the
 *   listener's backlog.
 * recv: bytes received from a socket, in buffers of the pool, at most one buffer an item.
 * poll: `events` of poll(2) when they come about, as epoll's EPOLLET tells them: having taken an
 *   item, go on until -EAGAIN. An item may repeat events that are known already.
 *
 * Return 0 and *stream, which begins at once; -EINVAL without a runtime, -ENOSYS when the engine
 * does no I/O, -EBADF for a negative or closing descriptor, -ENOMEM. What the descriptor can't do is
 * told by the first item. Never suspend. Since 0.1. */
WEFT_API int ring_stream_accept(struct ring_stream **stream, int fd, int flags);
WEFT_API int ring_stream_recv(struct ring_stream **stream, int fd, struct ring_buffers *buffers);
WEFT_API int ring_stream_poll(struct ring_stream **stream, int fd, short events);

/* Ends a stream. What came and was not taken is given up: descriptors are closed, buffers given
 * back. Who waits for an item gets -ECANCELED. The memory is freed when the kernel is through with
 * it. NULL is fine. Never suspends. Since 0.1. */
WEFT_API void ring_stream_close(struct ring_stream *stream);

/* The next item if there is one: what fiber_stream_next (weft/io.h) returns, or -EAGAIN. Never
 * suspends. Since 0.1. */
WEFT_API int ring_stream_try(struct ring_stream *stream, struct ring_item *item);

WEFT_END_DECLS

#endif
