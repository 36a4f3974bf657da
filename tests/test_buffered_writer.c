/* needs: fibers */
/* Writers: whatever is written in whatever way, however little the sink takes at a time and however
 * often it is cut short, the same bytes come out; what is refused is reported; misuse. */
#include "test_buffered.h"

#include <signal.h>

/* ---- a sink of one's own ---- */

struct script {
    char *out;
    size_t len;
    size_t chunk; /* bytes at a time; 0: by chance; SIZE_MAX: all */
    struct chance chance;
    bool stalls;   /* by chance it takes nothing now */
    int fail_with; /* once, in place of taking bytes; 0: not */
    int calls, pieces;
    const void *last; /* the last piece of the last call */
};

static int script_write(void *ctx, const struct iovec *pieces, int count, weft_time deadline)
{
    struct script *s = ctx;
    size_t most = 0, taken = 0, n;

    s->calls++;
    s->pieces = count;
    s->last = pieces[count - 1].iov_base;
    cr_assert(count > 0 && count <= FIBER_WRITER_PIECES + 2);
    for (int i = 0; i < count; i++) {
        cr_assert(pieces[i].iov_len > 0);
        most += pieces[i].iov_len;
    }
    if (s->fail_with != 0) {
        int error = s->fail_with;

        s->fail_with = 0;
        return error == 1 ? (int)most + 1 : error == 2 ? 0 : error;
    }
    if (s->stalls && deadline == WEFT_NOWAIT && below(&s->chance, 2))
        return -ETIMEDOUT;
    if (s->chunk == 0)
        most = 1 + below(&s->chance, most);
    else if (most > s->chunk)
        most = s->chunk;
    for (int i = 0; taken < most; i++, taken += n) {
        n = pieces[i].iov_len < most - taken ? pieces[i].iov_len : most - taken;
        memcpy(s->out + s->len, pieces[i].iov_base, n);
        s->len += n;
    }
    return (int)taken;
}

/* ---- against a model ---- */

enum { MOST = 6000 };

/* All that was written, in order: what is to come out, and stays where scheduled pieces lie. */
struct model {
    char text[MOST];
    size_t len;
    size_t size; /* the buffer's */
    struct chance chance;
    struct fiber_writer *writer;
    struct script *script; /* NULL: a descriptor */
    bool waits;
};

static void check_pending(struct model *m)
{
    if (m->script == NULL)
        return;
    cr_assert_eq(fiber_writer_pending(m->writer), m->len - m->script->len);
    cr_assert(memcmp(m->script->out, m->text, m->script->len) == 0);
}

/* A write that came too late is refused as a whole, and so is the next; then it is done again. */
static bool is_late(struct model *m, int rc)
{
    if (rc != -ETIMEDOUT) {
        cr_assert_eq(rc, 0, "%d", rc);
        return false;
    }
    check_pending(m);
    cr_assert_eq(fiber_writer_byte(m->writer, 'X', WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert_eq(fiber_writer_schedule(m->writer, m, 1, WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert_eq(fiber_writer_u32be(m->writer, 1, WEFT_NOWAIT), -ETIMEDOUT);
    check_pending(m);
    cr_assert_eq(fiber_writer_clear(m->writer), -ETIMEDOUT);
    if (m->waits)
        fiber_nop(WEFT_FOREVER);
    return true;
}

#define SOON(m) some_deadline(&(m)->chance)

static size_t add(struct model *m, size_t len)
{
    for (size_t i = 0; i < len; i++)
        m->text[m->len + i] = (char)('a' + below(&m->chance, 26));
    return len;
}

static void put_byte(struct model *m)
{
    add(m, 1);
    while (is_late(m, fiber_writer_byte(m->writer, (unsigned char)m->text[m->len], SOON(m))))
        ;
    m->len++;
}

static void put_bytes(struct model *m)
{
    size_t len = add(m, below(&m->chance, below(&m->chance, 3) ? 20 : 300)), done;
    char copy[300];
    int rc;

    /* what was written may be changed at once */
    memcpy(copy, m->text + m->len, len);
    for (;;) {
        rc = fiber_writer_write(m->writer, copy, len, &done, SOON(m));
        cr_assert(rc == 0 ? done == len : done < len);
        cr_assert(rc == 0 || len > m->size || done == 0, "a little is all or nothing");
        memset(copy, 'X', done);
        memmove(copy, copy + done, len - done);
        len -= done;
        m->len += done;
        if (!is_late(m, rc))
            return;
    }
}

static void put_string(struct model *m)
{
    char text[8] = "";
    size_t len = add(m, below(&m->chance, m->size < 7 ? m->size + 1 : 8));

    memcpy(text, m->text + m->len, len);
    while (is_late(m, fiber_writer_string(m->writer, text, SOON(m))))
        ;
    m->len += len;
}

static void put_printf(struct model *m)
{
    unsigned number = (unsigned)draw(&m->chance);
    char text[32];
    int len = snprintf(text, sizeof text, "<%u|%s>", number, "x");

    if ((size_t)len >= m->size) {
        cr_assert_eq(fiber_writer_printf(m->writer, WEFT_FOREVER, "<%u|%s>", number, "x"),
                     -EMSGSIZE);
        cr_assert_eq(fiber_writer_clear(m->writer), -EMSGSIZE);
        check_pending(m);
        return;
    }
    memcpy(m->text + m->len, text, (size_t)len);
    while (is_late(m, fiber_writer_printf(m->writer, SOON(m), "<%u|%s>", number, "x")))
        ;
    m->len += (size_t)len;
}

static void put_piece(struct model *m)
{
    size_t len = add(m, below(&m->chance, 100));

    while (is_late(m, fiber_writer_schedule(m->writer, m->text + m->len, len, SOON(m))))
        ;
    m->len += len;
}

static void put_room(struct model *m)
{
    size_t len = below(&m->chance, m->size + 1), used;
    void *room;
    int rc;

    while (is_late(m, rc = fiber_writer_reserve(m->writer, len, &room, SOON(m))))
        ;
    used = add(m, below(&m->chance, len + 1));
    memcpy(room, m->text + m->len, used);
    cr_assert_eq(fiber_writer_commit(m->writer, m->size + 1), -EINVAL);
    cr_assert_eq(fiber_writer_commit(m->writer, used), 0);
    m->len += used;
}

#define PUT_NUMBER(bits, name, step, first)                                                 \
    static void put_##name(struct model *m)                                                 \
    {                                                                                       \
        uint##bits##_t value = (uint##bits##_t)(draw(&m->chance) << 31 ^ draw(&m->chance)); \
                                                                                            \
        if (m->size < 8)                                                                    \
            return;                                                                         \
        for (int i = 0, at = first; i < bits / 8; i++, at += step)                          \
            m->text[m->len + (size_t)i] = (char)(value >> (8 * at));                        \
        while (is_late(m, fiber_writer_##name(m->writer, value, SOON(m))))                  \
            ;                                                                               \
        m->len += bits / 8;                                                                 \
    }
PUT_NUMBER(16, u16be, -1, 1)
PUT_NUMBER(32, u32be, -1, 3)
PUT_NUMBER(64, u64be, -1, 7)
PUT_NUMBER(16, u16le, 1, 0)
PUT_NUMBER(32, u32le, 1, 0)
PUT_NUMBER(64, u64le, 1, 0)

static void put_flush(struct model *m)
{
    int rc = fiber_writer_flush(m->writer, SOON(m));

    check_pending(m);
    cr_assert(rc == 0 || rc == -ETIMEDOUT, "%d", rc);
    cr_assert_eq(fiber_writer_clear(m->writer), 0, "nothing was refused: nothing to remember");
    cr_assert(rc < 0 || fiber_writer_pending(m->writer) == 0);
}

static void (*const puts_[])(struct model *m) = {
    put_byte,  put_bytes, put_string, put_printf, put_piece, put_room,  put_u16be,
    put_u32be, put_u64be, put_u16le,  put_u32le,  put_u64le, put_flush, put_piece,
};

static void put_everything(struct model *m)
{
    /* Many short pieces without a flush between them, or everything. */
    bool pieces = below(&m->chance, 4) == 0;

    while (m->len < MOST - 400) {
        if (pieces && below(&m->chance, 30) > 0)
            (below(&m->chance, 3) ? put_piece : put_byte)(m);
        else
            puts_[below(&m->chance, sizeof puts_ / sizeof puts_[0])](m);
        check_pending(m);
        if (below(&m->chance, 40) == 0)
            break;
    }
    cr_assert_eq(fiber_writer_flush(m->writer, WEFT_FOREVER), 0);
}

static void check_script(uint64_t seed)
{
    static struct model m;
    char buffer[64], out[MOST];
    struct fiber_writer w;
    struct script s = {.out = out, .chance = seeded(seed + 1), .stalls = true};

    m = (struct model){.chance = seeded(seed), .writer = &w, .script = &s};
    m.size = 1 + below(&m.chance, below(&m.chance, 3) ? sizeof buffer : 10);
    s.chunk = below(&m.chance, 3) ? 0 : below(&m.chance, 2) ? 1 : SIZE_MAX;
    cr_assert_eq(fiber_writer_init_sink(&w, script_write, &s, buffer, m.size), 0);
    put_everything(&m);
    cr_assert_eq(fiber_writer_finish(&w), 0);
    cr_assert_eq(s.len, m.len);
    cr_assert(memcmp(out, m.text, m.len) == 0);
}

static int script_main(void *unused)
{
    const uint64_t seeds = slow_tools() ? 150 : 4000;

    (void)unused;
    for (uint64_t seed = 1; seed <= seeds; seed++)
        check_script(seed);
    return 0;
}

Test(buffered_writer, what_is_written_comes_out)
{
    WITHOUT_IO(script_main);
}

/* The same through descriptors, read slowly at the other end. */

struct drain {
    int fd;
    char text[MOST];
    size_t len;
    struct chance chance;
};

static int64_t drain_fiber(void *arg)
{
    struct drain *d = arg;
    int n;

    do {
        n = fiber_read(d->fd, d->text + d->len, 1 + below(&d->chance, 40), -1, WEFT_FOREVER);
        cr_assert(n >= 0, "%d", n);
        d->len += (size_t)n;
        if (below(&d->chance, 3) == 0)
            fiber_nop(WEFT_FOREVER);
    } while (n > 0);
    return fiber_close(d->fd);
}

enum { SOCKET, PIPE, FILE_POSITION, FILE_OFFSET, KINDS };

static void check_descriptor(uint64_t seed, int kind)
{
    static struct drain d;
    static struct model m;
    const int64_t offset = kind == FILE_OFFSET ? 7 : -1;
    char buffer[64], path[] = "/tmp/weft-test-XXXXXX";
    struct fiber_writer w;
    struct promise *drained = NULL;
    int ends[2], small = 1;

    d = (struct drain){.chance = seeded(seed + 1)};
    m = (struct model){.chance = seeded(seed), .writer = &w, .waits = true};
    m.size = 1 + below(&m.chance, sizeof buffer);
    if (kind <= PIPE) {
        cr_assert_eq(kind == PIPE ? pipe2(ends, O_CLOEXEC)
                                  : socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends),
                     0);
        setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
        fcntl(ends[1], F_SETPIPE_SZ, 4096);
        d.fd = ends[0];
        drained = fiber_spawn(drain_fiber, &d);
    } else {
        ends[1] = mkstemp(path);
        unlink(path);
    }
    cr_assert_eq(fiber_writer_init(&w, ends[1], offset, buffer, m.size), 0);
    put_everything(&m);
    cr_assert_eq(fiber_writer_finish(&w), 0);
    if (drained == NULL) {
        cr_assert_eq(lseek(ends[1], 0, SEEK_CUR), offset < 0 ? (off_t)m.len : 0);
        d.len = (size_t)pread(ends[1], d.text, MOST, offset < 0 ? 0 : offset);
    }
    close(ends[1]);
    if (drained != NULL)
        cr_assert_eq(fiber_await(drained, NULL, WEFT_FOREVER), 0);
    cr_assert_eq(d.len, m.len);
    cr_assert(memcmp(d.text, m.text, m.len) == 0);
}

static int descriptor_main(void *unused)
{
    const uint64_t seeds = slow_tools() ? 3 : 30;
    int before = open_descriptors();

    (void)unused;
    for (uint64_t seed = 1; seed <= seeds; seed++)
        for (int kind = 0; kind < KINDS; kind++)
            check_descriptor(seed, kind);
    cr_assert_eq(open_descriptors(), before);
    return 0;
}

Test(buffered_writer, what_is_written_comes_out_of_descriptors)
{
    ON_EACH_SETUP(descriptor_main);
}

/* ---- together, and without a copy ---- */

static int together_main(void *unused)
{
    static const char big[100] = "big";
    char buffer[16], out[2000];
    struct script s = {.out = out, .chunk = SIZE_MAX};
    struct fiber_writer w;
    size_t done;

    (void)unused;
    fiber_writer_init_sink(&w, script_write, &s, buffer, sizeof buffer);
    cr_assert_eq(fiber_writer_string(&w, "head", WEFT_FOREVER), 0);
    cr_assert_eq(fiber_writer_schedule(&w, big, sizeof big, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_writer_string(&w, "tail", WEFT_FOREVER), 0);
    cr_assert_eq(fiber_writer_pending(&w), 108);
    cr_assert_eq(s.calls, 0);
    cr_assert_eq(fiber_writer_flush(&w, WEFT_FOREVER), 0);
    cr_assert_eq(s.calls, 1, "one operation for all");
    cr_assert_eq(s.pieces, 3);
    cr_assert_eq(fiber_writer_flush(&w, WEFT_FOREVER), 0);
    cr_assert_eq(s.calls, 1, "and none for nothing");
    /* a big one goes with what waits, and isn't copied */
    cr_assert_eq(fiber_writer_byte(&w, '!', WEFT_FOREVER), 0);
    cr_assert_eq(fiber_writer_write(&w, big, sizeof big, &done, WEFT_FOREVER), 0);
    cr_assert_eq(s.calls, 2);
    cr_assert_eq(s.last, big);
    cr_assert_eq(fiber_writer_pending(&w), 0);
    /* more pieces than it has places for */
    for (int i = 0; i < FIBER_WRITER_PIECES; i++)
        cr_assert_eq(fiber_writer_schedule(&w, big, 1, WEFT_FOREVER), 0);
    cr_assert_eq(s.calls, 2);
    cr_assert_eq(fiber_writer_byte(&w, '.', WEFT_FOREVER), 0);
    cr_assert_eq(fiber_writer_schedule(&w, big, 1, WEFT_FOREVER), 0);
    cr_assert_eq(s.calls, 3);
    cr_assert_eq(s.pieces, FIBER_WRITER_PIECES + 1);
    /* all places taken, bytes behind them, and a flush that fails in between: still no more pieces */
    fiber_writer_flush(&w, WEFT_FOREVER);
    for (int i = 0; i < FIBER_WRITER_PIECES; i++)
        cr_assert_eq(fiber_writer_schedule(&w, big, 1, WEFT_FOREVER), 0);
    for (int i = 0; i < 16; i++) {
        cr_assert_eq(fiber_writer_byte(&w, '-', WEFT_FOREVER), 0);
        s.fail_with = -ETIMEDOUT;
        cr_assert_eq(fiber_writer_flush(&w, WEFT_NOWAIT), -ETIMEDOUT);
        cr_assert_eq(s.pieces, FIBER_WRITER_PIECES + 1);
    }
    cr_assert_eq(fiber_writer_write(&w, big, sizeof big, NULL, WEFT_FOREVER), 0);
    cr_assert_eq(s.pieces, FIBER_WRITER_PIECES + 2);
    cr_assert_eq(fiber_writer_finish(&w), 0);
    return 0;
}

Test(buffered_writer, pieces_go_together)
{
    WITHOUT_IO(together_main);
}

/* ---- errors ---- */

static int errors_main(void *unused)
{
    char buffer[8], out[100];
    struct script s = {.out = out, .chunk = 1};
    struct fiber_writer w;
    size_t done = 77;

    (void)unused;
    /* one who looks at the flush alone: nothing is missing in the middle */
    fiber_writer_init_sink(&w, script_write, &s, buffer, sizeof buffer);
    cr_assert_eq(fiber_writer_string(&w, "12345678", WEFT_NOWAIT), 0);
    s.fail_with = -ETIMEDOUT;
    cr_assert_eq(fiber_writer_string(&w, "lost", WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert_eq(fiber_writer_byte(&w, 'x', WEFT_FOREVER), -ETIMEDOUT,
                 "refused, as the one before");
    cr_assert_eq(fiber_writer_flush(&w, WEFT_FOREVER), -ETIMEDOUT, "sent, and reported");
    cr_assert_eq(s.len, 8);
    cr_assert_eq(fiber_writer_pending(&w), 0);
    cr_assert_eq(fiber_writer_byte(&w, 'x', WEFT_FOREVER), -ETIMEDOUT, "there is room now");
    cr_assert_eq(fiber_writer_commit(&w, 1), -EINVAL);
    cr_assert_eq(fiber_writer_flush(&w, WEFT_FOREVER), -ETIMEDOUT);
    cr_assert_eq(fiber_writer_clear(&w), -ETIMEDOUT);
    cr_assert_eq(fiber_writer_clear(&w), 0);
    cr_assert_eq(fiber_writer_string(&w, "found", WEFT_FOREVER), 0);
    cr_assert_eq(fiber_writer_flush(&w, WEFT_FOREVER), 0);
    cr_assert_eq(s.len, 13);
    cr_assert_arr_eq(out, "12345678found", 13);

    /* the sink's error: it is asked no more, until clear; what was not sent is kept */
    s.fail_with = -EPIPE;
    s.len = 0;
    s.calls = 0;
    cr_assert_eq(fiber_writer_string(&w, "abc", WEFT_FOREVER), 0);
    cr_assert_eq(fiber_writer_flush(&w, WEFT_FOREVER), -EPIPE);
    cr_assert_eq(fiber_writer_flush(&w, WEFT_FOREVER), -EPIPE);
    cr_assert_eq(fiber_writer_byte(&w, 'd', WEFT_FOREVER), -EPIPE);
    cr_assert_eq(fiber_writer_u16be(&w, 1, WEFT_FOREVER), -EPIPE);
    cr_assert_eq(fiber_writer_printf(&w, WEFT_FOREVER, "d"), -EPIPE);
    cr_assert_eq(fiber_writer_schedule(&w, "d", 1, WEFT_FOREVER), -EPIPE);
    cr_assert_eq(fiber_writer_reserve(&w, 1, &(void *){NULL}, WEFT_FOREVER), -EPIPE);
    cr_assert_eq(fiber_writer_write(&w, "d", 1, &done, WEFT_FOREVER), -EPIPE);
    cr_assert_eq(done, 0);
    cr_assert_eq(s.calls, 1);
    cr_assert_eq(fiber_writer_pending(&w), 3);
    cr_assert_eq(fiber_writer_clear(&w), -EPIPE);
    cr_assert_eq(fiber_writer_flush(&w, WEFT_FOREVER), 0);
    cr_assert_arr_eq(out, "abc", 3);

    /* in the midst of a big write: so much was taken */
    s.chunk = 5;
    s.len = 0;
    s.fail_with = 0;
    cr_assert_eq(fiber_writer_write(&w, "0123456789abcdefghij", 20, &done, WEFT_FOREVER), 0);
    cr_assert_eq(done, 20);
    cr_assert_eq(fiber_writer_pending(&w), 5, "the rest had room");
    s.fail_with = -ENOSPC;
    cr_assert_eq(fiber_writer_write(&w, "0123456789abcdefghij", 20, &done, WEFT_FOREVER), -ENOSPC);
    cr_assert_eq(done, 0);
    cr_assert_eq(fiber_writer_finish(&w), 5, "never sent");

    /* a time-out that is not the deadline's is the connection's end */
    fiber_writer_init_sink(&w, script_write, &s, buffer, sizeof buffer);
    cr_assert_eq(fiber_writer_byte(&w, 'x', WEFT_FOREVER), 0);
    s.fail_with = -ETIMEDOUT;
    cr_assert_eq(fiber_writer_flush(&w, weft_after(WEFT_SEC(1000))), -ETIMEDOUT);
    cr_assert_eq(fiber_writer_clear(&w), -ETIMEDOUT);
    /* sinks that lie */
    for (int lie = 1; lie < 3; lie++) {
        s.fail_with = lie;
        cr_assert_eq(fiber_writer_flush(&w, WEFT_FOREVER), -EIO);
        cr_assert_eq(fiber_writer_clear(&w), -EIO);
    }
    cr_assert_eq(fiber_writer_finish(&w), 1);
    return 0;
}

Test(buffered_writer, errors_are_remembered)
{
    WITHOUT_IO(errors_main);
}

static int arguments_main(void *unused)
{
    char buffer[8], out[64];
    struct script s = {.out = out, .chunk = SIZE_MAX};
    struct fiber_writer w;
    void *room;

    (void)unused;
    cr_assert_eq(fiber_writer_init(NULL, 1, -1, buffer, 8), -EFAULT);
    cr_assert_eq(fiber_writer_init(&w, 1, -1, NULL, 8), -EFAULT);
    cr_assert_eq(fiber_writer_init(&w, 1, -1, buffer, 0), -EINVAL);
    cr_assert_eq(fiber_writer_init(&w, 1, -1, buffer, (size_t)INT_MAX + 1), -EINVAL);
    cr_assert_eq(fiber_writer_init(&w, 1, -2, buffer, 8), -EINVAL);
    cr_assert_eq(fiber_writer_init_sink(&w, NULL, NULL, buffer, 8), -EFAULT);
    cr_assert_eq(fiber_writer_init_sink(&w, script_write, &s, buffer, 8), 0);
    cr_assert_eq(fiber_writer_write(&w, NULL, 0, NULL, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_writer_schedule(&w, NULL, 0, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_writer_string(&w, "", WEFT_FOREVER), 0);
    cr_assert_eq(fiber_writer_printf(&w, WEFT_FOREVER, "%s", ""), 0);
    cr_assert_eq(fiber_writer_reserve(&w, 0, &room, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_writer_flush(&w, WEFT_FOREVER), 0);
    cr_assert_eq(s.calls, 0);
    /* each refuses, and says so until told to forget it */
    cr_assert_eq(fiber_writer_write(&w, NULL, 1, NULL, WEFT_FOREVER), -EFAULT);
    cr_assert_eq(fiber_writer_clear(&w), -EFAULT);
    cr_assert_eq(fiber_writer_string(&w, NULL, WEFT_FOREVER), -EFAULT);
    cr_assert_eq(fiber_writer_clear(&w), -EFAULT);
    cr_assert_eq(fiber_writer_schedule(&w, NULL, 1, WEFT_FOREVER), -EFAULT);
    cr_assert_eq(fiber_writer_clear(&w), -EFAULT);
    cr_assert_eq(fiber_writer_schedule(&w, out, SIZE_MAX, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_writer_clear(&w), -EINVAL);
    cr_assert_eq(fiber_writer_reserve(&w, 1, NULL, WEFT_FOREVER), -EFAULT);
    cr_assert_eq(fiber_writer_clear(&w), -EFAULT);
    cr_assert_eq(fiber_writer_reserve(&w, 9, &room, WEFT_FOREVER), -EMSGSIZE);
    cr_assert_eq(fiber_writer_clear(&w), -EMSGSIZE);
    cr_assert_eq(fiber_writer_printf(&w, WEFT_FOREVER, "%s", "12345678"), -EMSGSIZE);
    cr_assert_eq(fiber_writer_flush(&w, WEFT_FOREVER), -EMSGSIZE);
    cr_assert_eq(fiber_writer_clear(&w), -EMSGSIZE);
    cr_assert_eq(fiber_writer_printf(&w, WEFT_FOREVER, "%s", "1234567"), 0);
    cr_assert_eq(fiber_writer_finish(&w), 7);
    cr_assert_eq(fiber_writer_finish(&w), 0);
    cr_assert_eq(fiber_writer_byte(&w, 'x', WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_writer_u64le(&w, 1, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_writer_printf(&w, WEFT_FOREVER, "x"), -EINVAL);
    cr_assert_eq(fiber_writer_schedule(&w, "x", 1, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_writer_reserve(&w, 0, &room, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_writer_flush(&w, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(s.calls, 0);
    cr_assert_eq(fiber_writer_init(&w, -1, -1, buffer, 8), 0);
    cr_assert_eq(fiber_writer_byte(&w, 'x', WEFT_FOREVER), 0);
    cr_assert_eq(fiber_writer_flush(&w, WEFT_FOREVER), -ENOSYS, "this engine does no I/O");
    cr_assert_eq(fiber_writer_finish(&w), 1);
    memset(&w, 0, sizeof w);
    cr_assert_eq(fiber_writer_byte(&w, 'x', WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_writer_flush(&w, WEFT_FOREVER), -EINVAL);
    return 0;
}

Test(buffered_writer, arguments)
{
    WITHOUT_IO(arguments_main);
}

/* On the base stack, and without a runtime: what has room can be written. */
static struct fiber_writer elsewhere;
static struct weft_task task;
static int called;

static void write_on_base(struct weft_task *unused)
{
    (void)unused;
    cr_assert_eq(fiber_writer_string(&elsewhere, "cd", WEFT_FOREVER), 0);
    cr_assert_eq(fiber_writer_flush(&elsewhere, WEFT_FOREVER), -EDEADLK);
    cr_assert_eq(fiber_writer_byte(&elsewhere, 'x', WEFT_FOREVER), -EDEADLK);
    cr_assert_eq(fiber_writer_clear(&elsewhere), -EDEADLK);
    called = 1;
}

static int elsewhere_main(void *unused)
{
    (void)unused;
    cr_assert_eq(weft_task_init(&task, write_on_base), 0);
    weft_task_queue(&task);
    while (!called)
        fiber_yield();
    weft_task_finish(&task);
    return fiber_writer_flush(&elsewhere, WEFT_FOREVER);
}

Test(buffered_writer, callers_that_cannot_wait)
{
    char buffer[4], out[8];
    struct script s = {.out = out, .chunk = SIZE_MAX};

    cr_assert_eq(fiber_writer_init_sink(&elsewhere, script_write, &s, buffer, sizeof buffer), 0);
    cr_assert_eq(fiber_writer_string(&elsewhere, "ab", WEFT_FOREVER), 0);
    cr_assert_eq(fiber_writer_flush(&elsewhere, WEFT_FOREVER), -EINVAL);
    WITHOUT_IO(elsewhere_main);
    cr_assert_eq(s.len, 4);
    cr_assert_arr_eq(out, "abcd", 4);
}

/* ---- deadlines, cancellation, two fibers, on a socket that takes no more ---- */

enum { LOT = 1 << 20 };

static char lot[LOT], received[LOT + 100];

struct flushing {
    struct fiber_writer *writer;
    struct fiber *self;
    int result;
    bool ended;
};

static int64_t flush_fiber(void *arg)
{
    struct flushing *f = arg;

    f->self = fiber_self();
    f->result = fiber_writer_flush(f->writer, WEFT_FOREVER);
    f->ended = true;
    return 0;
}

static int64_t receive_fiber(void *arg)
{
    int fd = (int)(intptr_t)arg, n;
    int64_t len = 0;

    while ((n = fiber_recv(fd, received + len, 7777, 0, WEFT_FOREVER)) > 0)
        len += n;
    return n < 0 ? n : len;
}

static int interrupted_main(void *unused)
{
    char buffer[16];
    struct flushing f = {0};
    struct fiber_writer w;
    struct promise *end;
    union weft_value len;
    uint64_t pending;
    size_t done;
    void *room;
    int pair[2];

    (void)unused;
    for (int i = 0; i < LOT; i++)
        lot[i] = (char)(i * 31 >> 3);
    make_pair(pair);
    cr_assert_eq(fiber_writer_init(&w, pair[1], -1, buffer, sizeof buffer), 0);
    cr_assert_eq(fiber_writer_string(&w, "head", WEFT_NOWAIT), 0);
    cr_assert_eq(fiber_writer_schedule(&w, lot, LOT / 2, WEFT_NOWAIT), 0);
    cr_assert_eq(fiber_writer_string(&w, "middle", WEFT_NOWAIT), 0);
    cr_assert_eq(fiber_writer_flush(&w, WEFT_NOWAIT), -ETIMEDOUT);
    pending = fiber_writer_pending(&w);
    cr_assert(pending > 6 && pending < LOT / 2, "what could be sent now it has sent");
    cr_assert_eq(fiber_writer_flush(&w, weft_after(WEFT_MS(1))), -ETIMEDOUT);
    cr_assert_eq(fiber_writer_flush(&w, weft_after(1)), -ETIMEDOUT);

    f.writer = &w;
    cr_assert_eq(fiber_detach(flush_fiber, &f), 0);
    fiber_yield();
    fiber_nop(WEFT_FOREVER);
    /* meanwhile nobody else may, not even where there is room */
    cr_assert_eq(fiber_writer_byte(&w, 'x', WEFT_FOREVER), -EBUSY);
    cr_assert_eq(fiber_writer_u32be(&w, 1, WEFT_FOREVER), -EBUSY);
    cr_assert_eq(fiber_writer_write(&w, lot, LOT, &done, WEFT_FOREVER), -EBUSY);
    cr_assert_eq(fiber_writer_schedule(&w, lot, 1, WEFT_FOREVER), -EBUSY);
    cr_assert_eq(fiber_writer_printf(&w, WEFT_FOREVER, "x"), -EBUSY);
    cr_assert_eq(fiber_writer_reserve(&w, 1, &room, WEFT_FOREVER), -EBUSY);
    cr_assert_eq(fiber_writer_commit(&w, 1), -EINVAL);
    cr_assert_eq(fiber_writer_flush(&w, WEFT_FOREVER), -EBUSY);
    cr_assert_eq(fiber_writer_finish(&w), -EBUSY);
    fiber__cancel(weft__rt, f.self);
    while (!f.ended)
        fiber_yield();
    cr_assert_eq(f.result, -ECANCELED);
    cr_assert_eq(fiber_writer_pending(&w), pending);
    cr_assert_eq(fiber_writer_clear(&w), 0, "nothing was refused");

    /* on where it stopped, to the byte */
    end = fiber_spawn(receive_fiber, (void *)(intptr_t)pair[0]);
    cr_assert_eq(fiber_writer_write(&w, lot + LOT / 2, LOT / 2, &done, weft_after(WEFT_SEC(1000))),
                 0);
    cr_assert_eq(done, LOT / 2);
    cr_assert_eq(fiber_writer_string(&w, "tail", WEFT_FOREVER), 0);
    cr_assert_eq(fiber_writer_flush(&w, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_writer_finish(&w), 0);
    close(pair[1]);
    cr_assert_eq(fiber_await(end, &len, WEFT_FOREVER), 0);
    cr_assert_eq(len.num, LOT + 14);
    cr_assert_arr_eq(received, "head", 4);
    cr_assert(memcmp(received + 4, lot, LOT / 2) == 0);
    cr_assert_arr_eq(received + 4 + LOT / 2, "middle", 6);
    cr_assert(memcmp(received + 10 + LOT / 2, lot + LOT / 2, LOT / 2) == 0);
    cr_assert_arr_eq(received + 10 + LOT, "tail", 4);
    cr_assert(weft__rt->timers == NULL);
    close(pair[0]);
    return 0;
}

Test(buffered_writer, deadline_cancel_and_a_second_fiber_lose_nothing)
{
    ON_EACH_SETUP(interrupted_main);
}

/* A big write that is cut short tells what was taken; from there it goes on. */
static int big_main(void *unused)
{
    struct fiber_writer w;
    struct promise *end;
    union weft_value len;
    char buffer[16];
    size_t done, at;
    int pair[2];

    (void)unused;
    make_pair(pair);
    fiber_writer_init(&w, pair[1], -1, buffer, sizeof buffer);
    cr_assert_eq(fiber_writer_write(&w, lot, LOT, &at, WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert(at > 0 && at < LOT);
    cr_assert_eq(fiber_writer_write(&w, lot + at, LOT - at, &done, weft_after(1)), -ETIMEDOUT);
    cr_assert_eq(done, 0);
    cr_assert_eq(fiber_writer_clear(&w), -ETIMEDOUT);
    end = fiber_spawn(receive_fiber, (void *)(intptr_t)pair[0]);
    cr_assert_eq(fiber_writer_write(&w, lot + at, LOT - at, &done, WEFT_FOREVER), 0);
    cr_assert_eq(done, LOT - at);
    cr_assert_eq(fiber_writer_flush(&w, WEFT_FOREVER), 0);
    close(pair[1]);
    cr_assert_eq(fiber_await(end, &len, WEFT_FOREVER), 0);
    cr_assert_eq(len.num, LOT);
    cr_assert(memcmp(received, lot, LOT) == 0);
    close(pair[0]);
    return 0;
}

Test(buffered_writer, a_big_write_goes_on)
{
    ON_EACH_SETUP(big_main);
}

/* A peer that is gone is an error, not a signal. */
static int gone_main(void *unused)
{
    struct fiber_writer w;
    char buffer[16];
    int pair[2];

    (void)unused;
    signal(SIGPIPE, SIG_DFL);
    for (int pieces = 0; pieces < 2; pieces++) {
        make_pair(pair);
        close(pair[0]);
        fiber_writer_init(&w, pair[1], -1, buffer, sizeof buffer);
        cr_assert_eq(fiber_writer_string(&w, "any", WEFT_FOREVER), 0);
        if (pieces)
            cr_assert_eq(fiber_writer_schedule(&w, "body", 4, WEFT_FOREVER), 0);
        cr_assert_eq(fiber_writer_flush(&w, WEFT_FOREVER), -EPIPE);
        cr_assert_eq(fiber_writer_byte(&w, 'x', WEFT_FOREVER), -EPIPE);
        cr_assert_eq(fiber_writer_finish(&w), pieces ? 7 : 3);
        close(pair[1]);
    }
    /* an operation that fails loses nothing */
    make_pair(pair);
    fiber_writer_init(&w, pair[1], -1, buffer, sizeof buffer);
    cr_assert_eq(fiber_writer_string(&w, "any", WEFT_FOREVER), 0);
    ring__faults(weft__rt)->result_error = -ENOBUFS;
    ring__faults(weft__rt)->result = 1;
    cr_assert_eq(fiber_writer_flush(&w, WEFT_FOREVER), -ENOBUFS);
    cr_assert_eq(fiber_writer_flush(&w, WEFT_FOREVER), -ENOBUFS);
    cr_assert_eq(fiber_writer_clear(&w), -ENOBUFS);
    ring__faults(weft__rt)->short_io = 1;
    cr_assert_eq(fiber_writer_flush(&w, WEFT_FOREVER), 0);
    cr_assert_eq(recv(pair[0], buffer, sizeof buffer, 0), 3);
    cr_assert_arr_eq(buffer, "any", 3);
    close_pair(pair);
    return 0;
}

Test(buffered_writer, a_peer_that_is_gone)
{
    ON_EACH_SETUP(gone_main);
}

/* ---- memory ---- */

static int alloc_main(void *unused)
{
    char buffer[16], out[200];
    struct fiber_writer w;
    size_t before = 0;
    int pair[2];

    (void)unused;
    make_pair(pair);
    for (int i = 0; i < 20; i++) {
        if (i == 2)
            before = allocations;
        fiber_writer_init(&w, pair[1], -1, buffer, sizeof buffer);
        cr_assert_eq(fiber_writer_string(&w, "a long enough line", WEFT_FOREVER), 0);
        cr_assert_eq(fiber_writer_printf(&w, WEFT_FOREVER, "%d%s", i, "..."), 0);
        cr_assert_eq(fiber_writer_schedule(&w, lot, 100, WEFT_FOREVER), 0);
        cr_assert_eq(fiber_writer_flush(&w, weft_after(WEFT_SEC(1000))), 0);
        cr_assert_eq(fiber_writer_finish(&w), 0);
        cr_assert(recv(pair[0], out, sizeof out, 0) > 100);
    }
    cr_assert_eq(allocations, before);
    close_pair(pair);
    return 0;
}

Test(buffered_writer, allocates_nothing)
{
    ON_EACH_SETUP(alloc_main);
}
