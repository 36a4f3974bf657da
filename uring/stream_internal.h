/* stream_internal.h: streams and their buffers from the inside.
 *
 * A stream has at most one operation in flight. While it is armed, results come; what nobody has
 * taken yet is kept in the stream: descriptors in an array, received buffers in a list through the
 * pool's records, events in one word.
 */
#ifndef STREAM_INTERNAL_H
#define STREAM_INTERNAL_H

#include <weft/ring_stream.h>

#include "ring_internal.h"

/* ---- buffers (buffers.c) ---- */

#define RING__NO_BUFFER UINT32_MAX

struct ring__record {
    uint32_t len;  /* bytes received */
    uint32_t next; /* of a stream's items, or of the free ones; RING__NO_BUFFER: none */
};

struct ring_buffers {
    struct weft_runtime *rt;
    char *memory;
    size_t size;
    unsigned count, used;
    unsigned promised; /* streams armed that have bytes to receive and no buffer yet */
    unsigned refs;     /* the owner's, one a stream, one an item that was taken */
    struct ring__record *records;
    uint32_t free; /* the kernel doesn't have them */
    /* Streams that wait for a buffer, FIFO: those that somebody reads, and the others. */
    struct ring__line {
        struct ring_stream *first, **tail;
    } wanted, unread;

    /* The kernel has the free buffers: a ring of them that both sides share. */
    bool shared;
    uint16_t group, tail;
    unsigned mask;
    void *ring;
};

static inline char *ring__buffer(const struct ring_buffers *buffers, uint32_t index)
{
    return buffers->memory + (size_t)index * buffers->size;
}

/* A free buffer of a pool that the kernel has none of; RING__NO_BUFFER: all are in use. */
uint32_t ring__buffer_take(struct ring_buffers *buffers);

/* Free again. */
void ring__buffer_give(struct ring_buffers *buffers, uint32_t index);

void ring__buffers_release(struct ring_buffers *buffers);

/* Arms streams from the heads of the lines, as long as there may be buffers for them: when it returns,
 * nobody stands in line or all buffers are used or promised; a few are left for streams that somebody
 * reads. May call readers. */
void ring__buffers_serve(struct ring_buffers *buffers);

/* What the io_uring engine does for a pool: 0, or a negative errno: then the pool does without.
 * (engine_uring.c) */
int ring__buffers_share(struct ring_buffers *buffers);
void ring__buffers_unshare(struct ring_buffers *buffers);
void ring__buffers_add(struct ring_buffers *buffers, uint32_t index);

/* ---- streams (stream.c) ---- */

/* Who waits for the next item. ready() is called once, and takes it: there is one, or the stream has
 * ended. NULL: the stream is closed. */
struct ring__reader {
    void (*ready)(struct ring__reader *reader, struct ring_stream *stream);
};

#define RING__NOTHING INT_MIN

/* For ring_stream_accept, beside its flags: asks for a connection when there is none kept, no sooner: so
 * at most one is taken from the backlog that nobody is ready for. */
#define RING__ONE_BY_ONE (1 << 30)

/* The next item, as fiber_stream_next returns it, or RING__NOTHING. */
int ring__stream_take(struct ring_stream *stream, struct ring_item *item);

/* 0: an item may be taken or waited for; -EFAULT for a NULL; -EBUSY: somebody waits already. */
int ring__stream_check(const struct ring_stream *stream, const struct ring_item *item);

void ring__stream_wait(struct ring_stream *stream, struct ring__reader *reader);
void ring__stream_leave(struct ring_stream *stream);

/* The descriptor, for reports. */
int ring__stream_fd(const struct ring_stream *stream);

#endif
