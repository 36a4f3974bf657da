/* weft/buffered.h: bytes in and out of fibers through a buffer: a parser takes byte by byte and
 * waits only when the buffer is empty; a serializer puts piece by piece and sends them together.
 *
 *     char buffer[4096], *line;
 *     struct fiber_reader in;
 *     fiber_reader_init(&in, fd, -1, buffer, sizeof buffer);
 *     while ((length = fiber_reader_line(&in, 0, &line, weft_after(WEFT_SEC(30)))) >= 0)
 *         ...
 *
 * The rules of both:
 *   - Struct and buffer are the caller's, on the fiber's stack if it likes; neither may move until
 *     finish. Nothing here allocates, and nothing grows: the buffer's size is the limit of what
 *     needs the buffer.
 *   - What needs no waiting is done at once, anywhere, be there a deadline, a cancellation or no
 *     fiber at all. What does need it (see FIBER_SUSPENDS) has the errors of weft/io.h, and these:
 *     -EBUSY: another fiber is waiting in it; -EINVAL: it isn't initialised, or finished; -EIO: the
 *     source or sink gave a result that it must not give.
 *   - After -ETIMEDOUT and -ECANCELED nothing is lost and nothing twice: the same call again, later,
 *     goes on where this one stopped. Every other error of the source or sink, and the end of the
 *     source, is remembered: the calls that follow report it again and ask no more, until clear().
 *     (A reset socket would else look like one that has ended in order.)
 *   - Descriptors: sockets of streams, pipes, terminals, files. They stay the caller's to close.
 *   - On the runtime's thread. One fiber at a time. Reader and writer are apart: one fiber may read a
 *     socket while another writes it.
 *   - A socket whose peer is gone is -EPIPE and no signal; a pipe nobody reads is both, as ever.
 *
 * Not in a lean build (WEFT_FIBERS=OFF).
 */
#ifndef WEFT_BUFFERED_H
#define WEFT_BUFFERED_H

#include <weft/base.h>

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/uio.h>

WEFT_BEGIN_DECLS

struct fiber_writer;

/* ---- Reading ------------------------------------------------------------------------------ */

/* Where bytes come from, when it isn't a descriptor: TLS, decompression, a test. Puts up to `len`
 * (> 0) bytes into `buf`. Returns how many; 0 at the end; or a negative errno, -ETIMEDOUT once the
 * deadline has passed. Called in the fiber that reads; it may suspend, and must not use the reader. */
typedef int fiber_source_fn(void *ctx, void *buf, size_t len, weft_time deadline);

/* All fields are private. */
struct fiber_reader {
    unsigned char *at, *end; /* what is buffered; nothing while a fiber waits in it */
    unsigned char *base;
    size_t size;
    fiber_source_fn *source; /* NULL: the descriptor */
    void *ctx;
    struct fiber_writer *tied;
    int64_t offset;
    uint64_t received;
    int32_t fd;
    int32_t status; /* -ENODATA at the end, or the source's error */
    uint8_t kind;
    bool busy;
    uint8_t reserved0[6];
    uint64_t reserved[4];
};

#ifdef __cplusplus
static_assert(sizeof(struct fiber_reader) == 15 * 8, "part of the ABI");
#else
_Static_assert(sizeof(struct fiber_reader) == 15 * 8, "part of the ABI");
#endif

/* Prepares to read a descriptor. offset: bytes from the file's start, its position stays as it is;
 * -1: from the file's own position, and for what has none. buf: `size` bytes (1 to INT_MAX), the
 * reader's until finish.
 * Returns 0, -EINVAL or -EFAULT. Doesn't suspend. Since 0.1. */
WEFT_API int fiber_reader_init(struct fiber_reader *reader, int fd, int64_t offset, void *buf,
                               size_t size);

/* The same for a source of one's own. Since 0.1. */
WEFT_API int fiber_reader_init_source(struct fiber_reader *reader, fiber_source_fn *source,
                                      void *ctx, void *buf, size_t size);

/* Ends the reader's use of its buffer. Returns the bytes received and not taken, which are dropped
 * (0: none); -EBUSY while a fiber waits in it: it goes on. Doesn't suspend. Since 0.1. */
WEFT_API int fiber_reader_finish(struct fiber_reader *reader);

/* Before the reader waits for its source, it flushes `writer`, before the same deadline: the
 * answers to all requests that came together leave together, and none waits for the next request.
 * An error of that flush is the writer's: its next call tells. NULL: no more; untie before the
 * writer's memory goes. Doesn't suspend. Since 0.1. */
WEFT_API void fiber_reader_tie(struct fiber_reader *reader, struct fiber_writer *writer);

/* Forgets the end, or the error: the source is asked again (a file that grows, a terminal).
 * Returns what was forgotten: -ENODATA for the end, 0 for nothing. Doesn't suspend. Since 0.1. */
WEFT_API int fiber_reader_clear(struct fiber_reader *reader);

/* What is buffered: its length, and its place in *data (may be NULL), valid until the next call
 * that may suspend. Doesn't suspend. Since 0.1. */
static inline size_t fiber_reader_buffered(const struct fiber_reader *reader, const void **data)
{
    if (data != NULL)
        *data = reader->at;
    return (size_t)(reader->end - reader->at);
}

/* Takes `len` bytes of what is buffered. Returns 0; -EINVAL when there are fewer. Doesn't suspend.
 * Since 0.1. */
static inline int fiber_reader_consume(struct fiber_reader *reader, size_t len)
{
    if (len > (size_t)(reader->end - reader->at))
        return -EINVAL;
    reader->at += len;
    return 0;
}

/* How many bytes have been taken since init, for "error at byte N". Doesn't suspend. Since 0.1. */
static inline uint64_t fiber_reader_position(const struct fiber_reader *reader)
{
    return reader->received - (uint64_t)(reader->end - reader->at);
}

/* Waits until `len` bytes are buffered, and shows them in *data (may be NULL), without taking them;
 * valid until the next call that may suspend.
 * Returns 0; -EMSGSIZE for more than the buffer's size; -ENODATA when the end comes before. Since
 * 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_reader_peek(struct fiber_reader *reader, size_t len,
                                              const void **data, weft_time deadline);

/* Says which byte is next, without taking it. Returns it, 0 to 255; -ENODATA at the end. Since
 * 0.1. */
FIBER_SUSPENDS static inline int fiber_reader_peek_byte(struct fiber_reader *reader,
                                                        weft_time deadline)
{
    if (__builtin_expect(reader->at == reader->end, 0)) {
        const int rc = fiber_reader_peek(reader, 1, NULL, deadline);

        if (rc < 0)
            return rc;
    }
    return *reader->at;
}

/* Takes a byte. Returns it, 0 to 255; -ENODATA at the end. Since 0.1. */
FIBER_SUSPENDS static inline int fiber_reader_byte(struct fiber_reader *reader, weft_time deadline)
{
    const int byte = fiber_reader_peek_byte(reader, deadline);

    if (__builtin_expect(byte >= 0, 1))
        reader->at++;
    return byte;
}

/* Takes up to `len` bytes: what is buffered, or what one read of the source brings. With nothing
 * buffered, a `len` of the buffer's size or more is read right into `buf`. len is cut at INT_MAX.
 * Returns bytes; 0 at the end. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_reader_read(struct fiber_reader *reader, void *buf, size_t len,
                                              weft_time deadline);

/* Takes exactly `len` bytes. What is longer than the buffer is read right into `buf`; `done` (may be
 * NULL) receives the bytes moved, also when the result is an error. What is not longer is taken
 * whole or not at all: if it fails, 0 are moved and what has come stays buffered.
 * Returns 0; -ENODATA when the end came before. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_reader_read_all(struct fiber_reader *reader, void *buf,
                                                  size_t len, size_t *done, weft_time deadline);

/* Takes everything up to the end, which may be up to `size` bytes. `done` receives the bytes moved,
 * also when the result is an error.
 * Returns 0 at the end; -EMSGSIZE when there are more than `size`: the rest stays. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_reader_read_rest(struct fiber_reader *reader, void *buf,
                                                   size_t size, size_t *done, weft_time deadline);

/* Takes and drops exactly `len` bytes, any number. `done` (may be NULL) receives how many, also when
 * the result is an error. Returns 0; -ENODATA when the end came before. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_reader_skip(struct fiber_reader *reader, uint64_t len,
                                              uint64_t *done, weft_time deadline);

/* What the next four have in common. They find the next token and take it: *token (may be NULL)
 * receives its place in the buffer, valid until the next call that may suspend. `max` is how many
 * bytes it may have; 0: as many as the buffer holds, its delimiter included.
 * They return its length; -EMSGSIZE as soon as it is certain that it is longer; -ENODATA at the end.
 * If they fail they take nothing. */

/* A line, without the LF or CRLF that ends it; a NUL stands in that place. What is left at the end
 * is a line too (to tell: use fiber_reader_until), and -ENODATA comes next. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_reader_line(struct fiber_reader *reader, size_t max, char **token,
                                              weft_time deadline);

/* Up to a delimiter, which is taken too; a NUL stands in its place. delimiter: `len` bytes.
 * -ENODATA also when the end comes before the delimiter: what there is stays. -EINVAL for a `len`
 * of 0. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_reader_until(struct fiber_reader *reader, const void *delimiter,
                                               size_t len, size_t max, char **token,
                                               weft_time deadline);

/* The bytes for which matches(byte) isn't 0: isdigit and its kin will do. No NUL. 0: the next byte
 * doesn't match; -ENODATA: there is none. `matches` must not use the reader. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_reader_take_while(struct fiber_reader *reader,
                                                    int (*matches)(int byte), size_t max,
                                                    char **token, weft_time deadline);

/* Takes and drops the bytes for which matches(byte) isn't 0, any number: `done` (may be NULL)
 * receives how many, also when the result is an error.
 * Returns 0 when the next byte doesn't match; -ENODATA when there is none. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_reader_skip_while(struct fiber_reader *reader,
                                                    int (*matches)(int byte), uint64_t *done,
                                                    weft_time deadline);

/* Takes an unsigned number of 16, 32 or 64 bits: big endian (be), the network's order, or little
 * endian (le). Returns 0; -ENODATA when the end comes before it is complete. If they fail they take
 * nothing (of a buffer of 8 bytes or more). Since 0.1. */
FIBER_SUSPENDS static inline int fiber_reader_u16be(struct fiber_reader *reader, uint16_t *value,
                                                    weft_time deadline);
FIBER_SUSPENDS static inline int fiber_reader_u32be(struct fiber_reader *reader, uint32_t *value,
                                                    weft_time deadline);
FIBER_SUSPENDS static inline int fiber_reader_u64be(struct fiber_reader *reader, uint64_t *value,
                                                    weft_time deadline);
FIBER_SUSPENDS static inline int fiber_reader_u16le(struct fiber_reader *reader, uint16_t *value,
                                                    weft_time deadline);
FIBER_SUSPENDS static inline int fiber_reader_u32le(struct fiber_reader *reader, uint32_t *value,
                                                    weft_time deadline);
FIBER_SUSPENDS static inline int fiber_reader_u64le(struct fiber_reader *reader, uint64_t *value,
                                                    weft_time deadline);

/* ---- Writing ------------------------------------------------------------------------------ */

/* Where bytes go, when it isn't a descriptor. Takes bytes from the pieces in order. Returns how
 * many it took (> 0); or a negative errno, -ETIMEDOUT once the deadline has passed. Called in the
 * fiber that writes; it may suspend, and must not use the writer. */
typedef int fiber_sink_fn(void *ctx, const struct iovec *pieces, int count, weft_time deadline);

#define FIBER_WRITER_PIECES 30

/* All fields are private. */
struct fiber_writer {
    unsigned char *at, *limit; /* room in the buffer; none while a fiber waits, or after an error */
    unsigned char *base;
    size_t size;
    unsigned char *unsent; /* the first byte in the buffer that is still needed */
    unsigned char *loose;  /* from here to `at`: not in a piece yet */
    fiber_sink_fn *sink;   /* NULL: the descriptor */
    void *ctx;
    int64_t offset;
    uint64_t queued; /* bytes in the pieces */
    int32_t fd;
    int32_t error;
    uint16_t count;
    uint8_t kind;
    bool busy;
    bool refused; /* the error is a write's, not the sink's: what was taken can be sent */
    uint8_t reserved0[3];
    uint64_t reserved[4];
    /* What is to be sent, in order, each in the buffer or the caller's; two more while sending. */
    struct iovec pieces[FIBER_WRITER_PIECES + 2];
};

#ifdef __cplusplus
static_assert(sizeof(struct fiber_writer) ==
                  16 * 8 + (FIBER_WRITER_PIECES + 2) * sizeof(struct iovec),
              "part of the ABI");
#else
_Static_assert(sizeof(struct fiber_writer) ==
                   16 * 8 + (FIBER_WRITER_PIECES + 2) * sizeof(struct iovec),
               "part of the ABI");
#endif

/* Prepares to write to a descriptor. offset, buf, size: as in fiber_reader_init.
 * Returns 0, -EINVAL or -EFAULT. Doesn't suspend. Since 0.1. */
WEFT_API int fiber_writer_init(struct fiber_writer *writer, int fd, int64_t offset, void *buf,
                               size_t size);

/* The same for a sink of one's own. Since 0.1. */
WEFT_API int fiber_writer_init_sink(struct fiber_writer *writer, fiber_sink_fn *sink, void *ctx,
                                    void *buf, size_t size);

/* Ends the writer's use of its memory. It doesn't flush, so that it never waits.
 * Returns the bytes that were written and not sent, which are dropped (0: none); -EBUSY while a
 * fiber waits in it: it goes on. Doesn't suspend. Since 0.1. */
WEFT_API int64_t fiber_writer_finish(struct fiber_writer *writer);

/* Bytes written and not sent yet. Doesn't suspend. Since 0.1. */
static inline uint64_t fiber_writer_pending(const struct fiber_writer *writer)
{
    return writer->queued + (uint64_t)(writer->at - writer->loose);
}

/* The rules of the functions that write. They put bytes into the buffer, and only when it has no
 * room for them do they send, as much as it takes. A write that fails is refused: none of it is
 * taken (but see fiber_writer_write). That too is remembered, -ETIMEDOUT and -ECANCELED included:
 * what follows is refused with the same error, and a flush sends what was taken before, and then
 * reports it. So one may write without a look at each result: if the flush returns 0, all of it is
 * out; if not, nothing is missing in the middle. To go on with the refused write, clear() first. */

/* Writes `len` bytes; they are copied, or sent, when it returns. `done` (may be NULL) receives the
 * bytes taken, also when the result is an error: `len` or, unless `len` exceeds the buffer's size, 0.
 * Returns 0. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_writer_write(struct fiber_writer *writer, const void *data,
                                               size_t len, size_t *done, weft_time deadline);

/* Writes a byte. Returns 0. Since 0.1. */
FIBER_SUSPENDS static inline int fiber_writer_byte(struct fiber_writer *writer, unsigned char byte,
                                                   weft_time deadline)
{
    if (__builtin_expect(writer->at == writer->limit, 0))
        return fiber_writer_write(writer, &byte, 1, NULL, deadline);
    *writer->at++ = byte;
    return 0;
}

/* Writes the characters of `text`, without its NUL. As fiber_writer_write. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_writer_string(struct fiber_writer *writer, const char *text,
                                                weft_time deadline);

/* Writes what printf(3) would. -EMSGSIZE when that isn't shorter than the buffer; -EINVAL for a
 * format it cannot follow. Mind the fiber's stack: printing a double takes several KiB. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_writer_printf(struct fiber_writer *writer, weft_time deadline,
                                                const char *format, ...)
    __attribute__((format(printf, 3, 4)));
FIBER_SUSPENDS WEFT_API int fiber_writer_vprintf(struct fiber_writer *writer, weft_time deadline,
                                                 const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

/* Writes `len` bytes without a copy: `data` must stay as it is until a flush has returned 0, or
 * finish has been called. Sends first when FIBER_WRITER_PIECES pieces wait already. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_writer_schedule(struct fiber_writer *writer, const void *data,
                                                  size_t len, weft_time deadline);

/* Makes room for `len` bytes in the buffer, and shows it in *room: fill in, then commit what you
 * filled in, before any other call. -EMSGSIZE for more than the buffer's size. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_writer_reserve(struct fiber_writer *writer, size_t len,
                                                 void **room, weft_time deadline);

/* Writes the first `len` bytes of the room. Returns 0; -EINVAL when there is less. Doesn't suspend.
 * Since 0.1. */
static inline int fiber_writer_commit(struct fiber_writer *writer, size_t len)
{
    if (len > (size_t)(writer->limit - writer->at))
        return -EINVAL;
    writer->at += len;
    return 0;
}

/* Writes an unsigned number of 16, 32 or 64 bits: big endian (be), the network's order, or little
 * endian (le). Returns 0. Since 0.1. */
FIBER_SUSPENDS static inline int fiber_writer_u16be(struct fiber_writer *writer, uint16_t value,
                                                    weft_time deadline);
FIBER_SUSPENDS static inline int fiber_writer_u32be(struct fiber_writer *writer, uint32_t value,
                                                    weft_time deadline);
FIBER_SUSPENDS static inline int fiber_writer_u64be(struct fiber_writer *writer, uint64_t value,
                                                    weft_time deadline);
FIBER_SUSPENDS static inline int fiber_writer_u16le(struct fiber_writer *writer, uint16_t value,
                                                    weft_time deadline);
FIBER_SUSPENDS static inline int fiber_writer_u32le(struct fiber_writer *writer, uint32_t value,
                                                    weft_time deadline);
FIBER_SUSPENDS static inline int fiber_writer_u64le(struct fiber_writer *writer, uint64_t value,
                                                    weft_time deadline);

/* Sends everything that has been written, pieces together, in as many operations as it takes.
 * Returns 0 when all of it is with the kernel or the sink; after an error what was not sent stays,
 * and a later flush goes on with the very next byte. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_writer_flush(struct fiber_writer *writer, weft_time deadline);

/* Forgets the error, so that one may write again, and try to send what was not sent.
 * Returns what was forgotten, 0 for nothing. Doesn't suspend. Since 0.1. */
WEFT_API int fiber_writer_clear(struct fiber_writer *writer);

/* ---- Numbers, inline ---------------------------------------------------------------------- */

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define FIBER__BE(bits, x) (x)
#define FIBER__LE(bits, x) __builtin_bswap##bits(x)
#else
#define FIBER__BE(bits, x) __builtin_bswap##bits(x)
#define FIBER__LE(bits, x) (x)
#endif

#define FIBER__NUMBER(bits, name, order)                                                      \
    static inline int fiber_reader_##name(struct fiber_reader *reader, uint##bits##_t *value, \
                                          weft_time deadline)                                 \
    {                                                                                         \
        uint##bits##_t raw;                                                                   \
        int rc = 0;                                                                           \
                                                                                              \
        if (__builtin_expect((size_t)(reader->end - reader->at) >= sizeof raw, 1)) {          \
            memcpy(&raw, reader->at, sizeof raw);                                             \
            reader->at += sizeof raw;                                                         \
        } else {                                                                              \
            rc = fiber_reader_read_all(reader, &raw, sizeof raw, NULL, deadline);             \
            if (rc < 0)                                                                       \
                return rc;                                                                    \
        }                                                                                     \
        *value = order(bits, raw);                                                            \
        return rc;                                                                            \
    }                                                                                         \
                                                                                              \
    static inline int fiber_writer_##name(struct fiber_writer *writer, uint##bits##_t value,  \
                                          weft_time deadline)                                 \
    {                                                                                         \
        const uint##bits##_t raw = order(bits, value);                                        \
                                                                                              \
        if (__builtin_expect((size_t)(writer->limit - writer->at) >= sizeof raw, 1)) {        \
            memcpy(writer->at, &raw, sizeof raw);                                             \
            writer->at += sizeof raw;                                                         \
            return 0;                                                                         \
        }                                                                                     \
        return fiber_writer_write(writer, &raw, sizeof raw, NULL, deadline);                  \
    }

FIBER__NUMBER(16, u16be, FIBER__BE)
FIBER__NUMBER(32, u32be, FIBER__BE)
FIBER__NUMBER(64, u64be, FIBER__BE)
FIBER__NUMBER(16, u16le, FIBER__LE)
FIBER__NUMBER(32, u32le, FIBER__LE)
FIBER__NUMBER(64, u64le, FIBER__LE)

#undef FIBER__NUMBER
#undef FIBER__BE
#undef FIBER__LE

WEFT_END_DECLS

#endif
