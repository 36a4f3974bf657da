/* needs: fibers */
/* Readers: every function against a model on memory, with every way to cut the bytes into pieces;
 * limits, ends, deadlines and cancellation in the midst; misuse. */
#include "test_buffered.h"

#include <ctype.h>

/* ---- a source of one's own ---- */

struct script {
    const char *text;
    size_t len, at;
    size_t chunk; /* bytes at a time; 0: by chance */
    struct chance chance;
    bool stalls;   /* by chance it has nothing yet */
    int fail_with; /* once, in place of bytes; 0: not */
    int calls;
    void *last; /* where it put its last bytes */
    size_t room;
};

static int script_read(void *ctx, void *buf, size_t len, weft_time deadline)
{
    struct script *s = ctx;
    size_t n = s->len - s->at;

    cr_assert(len > 0);
    s->calls++;
    s->last = buf;
    s->room = len;
    if (s->fail_with != 0) {
        int error = s->fail_with;

        s->fail_with = 0;
        return error;
    }
    if (s->stalls && deadline == WEFT_NOWAIT && below(&s->chance, 2))
        return -ETIMEDOUT;
    if (s->chunk > 0 && n > s->chunk)
        n = s->chunk;
    if (s->chunk == 0 && n > 0)
        n = 1 + below(&s->chance, n < 20 ? n : 20);
    if (n > len)
        n = len;
    memcpy(buf, s->text + s->at, n);
    s->at += n;
    return (int)n;
}

static struct script script(const char *text, size_t chunk)
{
    return (struct script){.text = text, .len = strlen(text), .chunk = chunk};
}

/* ---- against a model ---- */

/* What the reader reads is `text`; the next byte is at `at`. Beside it are the buffer's size, and what
 * a full buffer means: a token that needs all of it, or more, cannot be seen to end. */
struct model {
    const char *text;
    size_t len, at, size;
    struct chance chance;
    struct fiber_reader *reader;
    bool waits; /* what comes, comes from another fiber */
};

/* Repeats what ended too early, as it may: nothing was lost. */
#define EVENTUALLY(m, rc, deadline, call)                 \
    do {                                                  \
        weft_time deadline = some_deadline(&(m)->chance); \
        while (((rc) = (call)) == -ETIMEDOUT) {           \
            cr_assert_eq(deadline, WEFT_NOWAIT);          \
            check_position(m);                            \
            if ((m)->waits)                               \
                fiber_nop(WEFT_FOREVER);                  \
            deadline = some_deadline(&(m)->chance);       \
        }                                                 \
    } while (0)

static void check_position(const struct model *m)
{
    const void *data;
    size_t buffered = fiber_reader_buffered(m->reader, &data);

    cr_assert_eq(fiber_reader_position(m->reader), m->at);
    cr_assert(buffered <= m->len - m->at && buffered <= m->size);
    cr_assert(memcmp(data, m->text + m->at, buffered) == 0);
}

/* A token of `len` bytes and `more` has been taken, or the same error came. */
static void check_token(struct model *m, int rc, int expected, const char *token, size_t more,
                        bool nul)
{
    cr_assert_eq(rc, expected, "%d, not %d", rc, expected);
    if (rc < 0)
        return;
    cr_assert(memcmp(token, m->text + m->at, (size_t)rc) == 0);
    cr_assert(!nul || token[rc] == '\0');
    m->at += (size_t)rc + more;
}

static size_t some_max(struct model *m, size_t *limit)
{
    size_t max = below(&m->chance, 3) == 0 ? 1 + below(&m->chance, m->size + 4) : 0;

    *limit = max == 0 || max > m->size ? m->size : max;
    return max;
}

static void try_line(struct model *m)
{
    size_t left = m->len - m->at, limit, max = some_max(m, &limit), more = 0, len = left;
    const char *lf = memchr(m->text + m->at, '\n', left);
    char *token = NULL;
    int rc, expected;

    if (lf != NULL) {
        len = (size_t)(lf - m->text) - m->at;
        more = 1;
        if (len > 0 && lf[-1] == '\r') {
            len--;
            more++;
        }
    }
    if (lf == NULL && left == 0)
        expected = -ENODATA;
    else if (len > limit || (lf != NULL ? len + more > m->size : len >= m->size))
        expected = -EMSGSIZE;
    else
        expected = (int)len;
    EVENTUALLY(m, rc, deadline, fiber_reader_line(m->reader, max, &token, deadline));
    check_token(m, rc, expected, token, more, true);
}

static void try_until(struct model *m)
{
    static const char *const delimiters[] = {"\n", "\r\n", "ab", "aab", "abab", ":"};
    const char *delimiter = delimiters[below(&m->chance, 6)];
    size_t left = m->len - m->at, limit, max = some_max(m, &limit), n = strlen(delimiter), len;
    const char *found = memmem(m->text + m->at, left, delimiter, n);
    char *token = NULL;
    int rc, expected;

    len = found != NULL ? (size_t)(found - m->text) - m->at : left;
    if (found != NULL)
        expected = len > limit || len + n > m->size ? -EMSGSIZE : (int)len;
    else
        expected = left >= m->size || (left >= n && left - (n - 1) > limit) ? -EMSGSIZE : -ENODATA;
    EVENTUALLY(m, rc, deadline, fiber_reader_until(m->reader, delimiter, n, max, &token, deadline));
    check_token(m, rc, expected, token, n, true);
}

static void try_take_while(struct model *m)
{
    size_t left = m->len - m->at, limit, max = some_max(m, &limit), len = 0;
    char *token = NULL;
    int rc, expected;

    while (len < left && isalpha((unsigned char)m->text[m->at + len]))
        len++;
    expected = left == 0 ? -ENODATA : len > limit || len >= m->size ? -EMSGSIZE : (int)len;
    EVENTUALLY(m, rc, deadline, fiber_reader_take_while(m->reader, isalpha, max, &token, deadline));
    check_token(m, rc, expected, token, 0, false);
}

static void try_skip_while(struct model *m)
{
    uint64_t skipped = 0;
    size_t len = 0;
    int rc;

    while (m->at + len < m->len && isalpha((unsigned char)m->text[m->at + len]))
        len++;
    len += m->at; /* where it will have got */
    do {
        rc = fiber_reader_skip_while(m->reader, isalpha, &skipped, some_deadline(&m->chance));
        m->at += skipped;
        check_position(m);
        if (rc == -ETIMEDOUT && m->waits)
            fiber_nop(WEFT_FOREVER);
    } while (rc == -ETIMEDOUT);
    cr_assert_eq(rc, m->at == m->len ? -ENODATA : 0);
    cr_assert_eq(m->at, len);
}

static void try_byte(struct model *m)
{
    int rc, peeked;

    EVENTUALLY(m, peeked, deadline, fiber_reader_peek_byte(m->reader, deadline));
    check_position(m);
    EVENTUALLY(m, rc, deadline, fiber_reader_byte(m->reader, deadline));
    cr_assert_eq(rc, peeked);
    cr_assert_eq(rc, m->at == m->len ? -ENODATA : (unsigned char)m->text[m->at]);
    m->at += rc >= 0;
}

static void try_read(struct model *m)
{
    size_t len = 1 + below(&m->chance, 2 * m->size);
    char buf[200];
    int rc;

    EVENTUALLY(m, rc, deadline, fiber_reader_read(m->reader, buf, len, deadline));
    cr_assert(rc >= 0 && (rc > 0) == (m->at < m->len) && (size_t)rc <= len);
    cr_assert(memcmp(buf, m->text + m->at, (size_t)rc) == 0);
    m->at += (size_t)rc;
}

static void try_read_all(struct model *m)
{
    size_t want = below(&m->chance, 3 * m->size), got = 0, done, before = m->at;
    char buf[300];
    int rc;

    do {
        rc = fiber_reader_read_all(m->reader, buf + got, want - got, &done,
                                   some_deadline(&m->chance));
        cr_assert(done <= want - got);
        cr_assert(rc == 0 || want - got > m->size || done == 0, "a little is all or nothing");
        got += done;
        m->at += done;
        check_position(m);
        if (rc == -ETIMEDOUT && m->waits)
            fiber_nop(WEFT_FOREVER);
    } while (rc == -ETIMEDOUT);
    cr_assert_eq(rc, want <= m->len - before ? 0 : -ENODATA);
    cr_assert(memcmp(buf, m->text + before, got) == 0);
    cr_assert_eq(rc == 0, got == want);
}

static void try_peek(struct model *m)
{
    size_t len = below(&m->chance, m->size + 2), left = m->len - m->at;
    const void *data = NULL;
    int rc;

    EVENTUALLY(m, rc, deadline, fiber_reader_peek(m->reader, len, &data, deadline));
    cr_assert_eq(rc, len > m->size ? -EMSGSIZE : len > left ? -ENODATA : 0);
    if (rc == 0) {
        cr_assert(memcmp(data, m->text + m->at, len) == 0);
        cr_assert(fiber_reader_buffered(m->reader, NULL) >= len);
        len = below(&m->chance, len + 1);
        cr_assert_eq(fiber_reader_consume(m->reader, len), 0);
        m->at += len;
    }
    len = fiber_reader_buffered(m->reader, NULL);
    cr_assert_eq(fiber_reader_consume(m->reader, len + 1), -EINVAL);
}

static void try_skip(struct model *m)
{
    uint64_t want = below(&m->chance, 3 * m->size), done;
    size_t left = m->len - m->at;
    bool enough = want <= left;
    int rc;

    do {
        rc = fiber_reader_skip(m->reader, want, &done, some_deadline(&m->chance));
        want -= done;
        m->at += done;
        check_position(m);
        if (rc == -ETIMEDOUT && m->waits)
            fiber_nop(WEFT_FOREVER);
    } while (rc == -ETIMEDOUT);
    cr_assert_eq(rc, enough ? 0 : -ENODATA);
    cr_assert(enough ? want == 0 : m->at == m->len);
}

#define TRY_NUMBER(bits, name, step, first)                                                        \
    static void try_##name(struct model *m)                                                        \
    {                                                                                              \
        uint##bits##_t value = 0, expected = 0;                                                    \
        size_t left = m->len - m->at;                                                              \
        int rc;                                                                                    \
                                                                                                   \
        if (m->size < 8)                                                                           \
            return;                                                                                \
        for (int i = 0, at = first; i < bits / 8 && (size_t)i < left; i++, at += step)             \
            expected |=                                                                            \
                (uint##bits##_t)((uint64_t)(unsigned char)m->text[m->at + (size_t)i] << (8 * at)); \
        EVENTUALLY(m, rc, deadline, fiber_reader_##name(m->reader, &value, deadline));             \
        cr_assert_eq(rc, left < bits / 8 ? -ENODATA : 0);                                          \
        if (rc == 0) {                                                                             \
            cr_assert_eq(value, expected);                                                         \
            m->at += bits / 8;                                                                     \
        }                                                                                          \
    }
TRY_NUMBER(16, u16be, -1, 1)
TRY_NUMBER(32, u32be, -1, 3)
TRY_NUMBER(64, u64be, -1, 7)
TRY_NUMBER(16, u16le, 1, 0)
TRY_NUMBER(32, u32le, 1, 0)
TRY_NUMBER(64, u64le, 1, 0)

static void (*const tries[])(struct model *m) = {
    try_line,     try_until, try_take_while, try_skip_while, try_byte,  try_read,
    try_read_all, try_peek,  try_skip,       try_u16be,      try_u32be, try_u64be,
    try_u16le,    try_u32le, try_u64le,      try_line,       try_until, try_take_while,
};

static void try_rest(struct model *m)
{
    size_t want = below(&m->chance, m->len - m->at + 3), left = m->len - m->at, got = 0, done;
    char buf[2048];
    int rc;

    do {
        rc = fiber_reader_read_rest(m->reader, buf + got, want - got, &done,
                                    some_deadline(&m->chance));
        cr_assert(memcmp(buf + got, m->text + m->at, done) == 0);
        got += done;
        m->at += done;
        check_position(m);
        if (rc == -ETIMEDOUT && m->waits)
            fiber_nop(WEFT_FOREVER);
    } while (rc == -ETIMEDOUT);
    cr_assert_eq(rc, left > want ? -EMSGSIZE : 0);
    cr_assert_eq(got, left > want ? want : left);
}

/* A text of lines, words and delimiters, most of them short. */
static size_t make_text(struct chance *c, char *text, size_t most)
{
    static const char letters[] = "aaabbb\n\n:\r";
    size_t len = below(c, most);
    bool crlf = below(c, 2);

    for (size_t i = 0; i < len; i++) {
        text[i] = letters[below(c, below(c, 3) ? sizeof letters - 1 : 4)];
        if (text[i] == '\n' && crlf && i + 1 < len) {
            text[i++] = '\r';
            text[i] = '\n';
        }
    }
    return len;
}

static void try_everything(struct model *m)
{
    int idle = 0;

    while (m->at < m->len || idle++ < 6) {
        tries[below(&m->chance, sizeof tries / sizeof tries[0])](m);
        check_position(m);
        if (below(&m->chance, 60) == 0)
            try_rest(m);
    }
    cr_assert_eq(fiber_reader_position(m->reader), m->len);
}

static void check_script(uint64_t seed)
{
    struct chance c = seeded(seed);
    char text[1000], buffer[64];
    struct fiber_reader reader;
    struct script s = {.text = text, .chance = seeded(seed + 1), .stalls = true};
    struct model m = {.text = text, .chance = c, .reader = &reader};

    m.len = s.len = make_text(&m.chance, text, sizeof text);
    m.size = 1 + below(&m.chance, below(&m.chance, 3) ? sizeof buffer : 10);
    s.chunk = below(&m.chance, 3) ? 0 : 1;
    cr_assert_eq(fiber_reader_init_source(&reader, script_read, &s, buffer, m.size), 0);
    try_everything(&m);
    cr_assert_eq(fiber_reader_finish(&reader), 0);
}

static int script_main(void *unused)
{
    const uint64_t seeds = slow_tools() ? 150 : 4000;

    (void)unused;
    for (uint64_t seed = 1; seed <= seeds; seed++)
        check_script(seed);
    return 0;
}

Test(buffered_reader, as_the_model_whatever_the_pieces)
{
    WITHOUT_IO(script_main);
}

/* The same from descriptors. */

struct feed {
    const char *text;
    size_t len;
    int fd;
    struct chance chance;
};

static int64_t feed_fiber(void *arg)
{
    struct feed *f = arg;
    size_t most = below(&f->chance, 2) ? 30 : 1, at = 0;

    while (at < f->len) {
        size_t n = 1 + below(&f->chance, most);

        if (n > f->len - at)
            n = f->len - at;
        cr_assert_eq(fiber_write_all(f->fd, f->text + at, n, -1, NULL, WEFT_FOREVER), 0);
        at += n;
        if (below(&f->chance, 3) == 0)
            fiber_yield();
    }
    return fiber_close(f->fd);
}

enum { SOCKET, PIPE, FILE_POSITION, FILE_OFFSET, KINDS };

static void check_descriptor(uint64_t seed, int kind)
{
    struct chance c = seeded(seed);
    char text[1000], buffer[64], path[] = "/tmp/weft-test-XXXXXX";
    struct fiber_reader reader;
    struct feed f = {.text = text, .chance = seeded(seed + 1)};
    struct model m = {.text = text, .chance = c, .reader = &reader, .waits = true};
    const int64_t offset = kind == FILE_OFFSET ? 7 : -1;
    struct promise *fed = NULL;
    int ends[2];

    m.len = f.len = make_text(&m.chance, text, sizeof text);
    m.size = 1 + below(&m.chance, sizeof buffer);
    if (kind <= PIPE) {
        cr_assert_eq(kind == PIPE ? pipe2(ends, O_CLOEXEC)
                                  : socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends),
                     0);
        f.fd = ends[1];
        fed = fiber_spawn(feed_fiber, &f);
    } else {
        ends[0] = mkstemp(path);
        unlink(path);
        cr_assert_eq(pwrite(ends[0], text, m.len, offset < 0 ? 0 : offset), (ssize_t)m.len);
    }
    cr_assert_eq(fiber_reader_init(&reader, ends[0], offset, buffer, m.size), 0);
    try_everything(&m);
    cr_assert_eq(fiber_reader_finish(&reader), 0);
    if (kind > PIPE) /* an explicit offset leaves the position alone */
        cr_assert_eq(lseek(ends[0], 0, SEEK_CUR), offset < 0 ? (off_t)m.len : 0);
    if (fed != NULL)
        cr_assert_eq(fiber_await(fed, NULL, WEFT_FOREVER), 0);
    close(ends[0]);
}

static int descriptor_main(void *unused)
{
    const uint64_t seeds = slow_tools() ? 5 : 60;
    int before = open_descriptors();

    (void)unused;
    for (uint64_t seed = 1; seed <= seeds; seed++)
        for (int kind = 0; kind < KINDS; kind++)
            check_descriptor(seed, kind);
    cr_assert_eq(open_descriptors(), before);
    return 0;
}

Test(buffered_reader, as_the_model_from_descriptors)
{
    ON_EACH_SETUP(descriptor_main);
}

/* ---- by hand: limits and ends ---- */

static int lines_main(void *unused)
{
    char buffer[8], *line;
    struct fiber_reader r;

    (void)unused;
    for (size_t chunk = 1; chunk < 4; chunk++) {
        struct script s = script("abc\r\n\r\n\nabcd\nab\rc\n", chunk);

        fiber_reader_init_source(&r, script_read, &s, buffer, sizeof buffer);
        cr_assert_eq(fiber_reader_line(&r, 3, &line, WEFT_FOREVER), 3, "the limit is without CRLF");
        cr_assert_str_eq(line, "abc");
        cr_assert_eq(fiber_reader_line(&r, 3, &line, WEFT_FOREVER), 0);
        cr_assert_str_eq(line, "");
        cr_assert_eq(fiber_reader_line(&r, 3, NULL, WEFT_FOREVER), 0);
        cr_assert_eq(fiber_reader_line(&r, 3, &line, WEFT_FOREVER), -EMSGSIZE);
        cr_assert_eq(fiber_reader_line(&r, 3, &line, WEFT_FOREVER), -EMSGSIZE, "it stays");
        cr_assert_eq(fiber_reader_line(&r, 4, &line, WEFT_FOREVER), 4);
        cr_assert_str_eq(line, "abcd");
        cr_assert_eq(fiber_reader_line(&r, 0, &line, WEFT_FOREVER), 4, "only CRLF counts");
        cr_assert_str_eq(line, "ab\rc");
        cr_assert_eq(fiber_reader_line(&r, 0, &line, WEFT_FOREVER), -ENODATA);
        cr_assert_eq(fiber_reader_finish(&r), 0);
    }
    /* certain to be too long: nothing more is asked for */
    struct script s = script("abcdefgh", 4);
    fiber_reader_init_source(&r, script_read, &s, buffer, sizeof buffer);
    cr_assert_eq(fiber_reader_line(&r, 3, &line, WEFT_FOREVER), -EMSGSIZE);
    cr_assert_eq(s.calls, 1);
    /* ... and a CR may still be the CR of its end */
    s = script("abc\rdef", 1);
    fiber_reader_init_source(&r, script_read, &s, buffer, sizeof buffer);
    cr_assert_eq(fiber_reader_line(&r, 3, &line, WEFT_FOREVER), -EMSGSIZE);
    cr_assert_eq(s.calls, 5);
    return 0;
}

Test(buffered_reader, lines_and_their_limits)
{
    WITHOUT_IO(lines_main);
}

/* The buffer is the limit: a token, delimiter included, fits it exactly or not at all. */
static int full_main(void *unused)
{
    char buffer[8], *token;
    struct fiber_reader r;
    struct script s;

    (void)unused;
    s = script("1234567\nabcdefg\n12345678", 3);
    fiber_reader_init_source(&r, script_read, &s, buffer, sizeof buffer);
    cr_assert_eq(fiber_reader_line(&r, 0, &token, WEFT_FOREVER), 7);
    cr_assert_str_eq(token, "1234567");
    cr_assert_eq(fiber_reader_until(&r, "fg\n", 3, 0, &token, WEFT_FOREVER), 5);
    cr_assert_str_eq(token, "abcde");
    cr_assert_eq(fiber_reader_line(&r, 0, &token, WEFT_FOREVER), -EMSGSIZE);
    cr_assert_eq(fiber_reader_until(&r, "\n", 1, 0, &token, WEFT_FOREVER), -EMSGSIZE);
    cr_assert_eq(fiber_reader_take_while(&r, isdigit, 0, &token, WEFT_FOREVER), -EMSGSIZE);
    cr_assert_eq(fiber_reader_until(&r, "123456789", 9, 0, &token, WEFT_FOREVER), -EMSGSIZE);
    cr_assert_eq(fiber_reader_byte(&r, WEFT_FOREVER), '1');
    cr_assert_eq(fiber_reader_line(&r, 0, &token, WEFT_FOREVER), 7, "the last one has no end");
    cr_assert_str_eq(token, "2345678");
    /* a last line at the very end of the buffer: its NUL must have room */
    s = script("x\nabcdef", 8);
    fiber_reader_init_source(&r, script_read, &s, buffer, sizeof buffer);
    cr_assert_eq(fiber_reader_line(&r, 0, &token, WEFT_FOREVER), 1);
    cr_assert_eq(fiber_reader_line(&r, 0, &token, WEFT_FOREVER), 6);
    cr_assert_str_eq(token, "abcdef");
    return 0;
}

Test(buffered_reader, the_buffer_is_the_limit)
{
    WITHOUT_IO(full_main);
}

/* The end, and errors, are remembered; what came before is given out first. */
static int ends_main(void *unused)
{
    char buffer[8], big[20], *token;
    struct script s = script("ab", 0);
    struct fiber_reader r;
    uint64_t skipped;
    uint32_t number = 77;
    const void *data;
    size_t done;

    (void)unused;
    s.chunk = 2;
    fiber_reader_init_source(&r, script_read, &s, buffer, sizeof buffer);
    cr_assert_eq(fiber_reader_u32be(&r, &number, WEFT_FOREVER), -ENODATA);
    cr_assert_eq(number, 77);
    cr_assert_eq(s.calls, 2);
    cr_assert_eq(fiber_reader_peek(&r, 3, &data, WEFT_FOREVER), -ENODATA);
    cr_assert_eq(fiber_reader_until(&r, "c", 1, 0, &token, WEFT_FOREVER), -ENODATA);
    cr_assert_eq(fiber_reader_read_all(&r, big, 3, &done, WEFT_FOREVER), -ENODATA);
    cr_assert_eq(done, 0);
    cr_assert_eq(s.calls, 2, "it is asked no more");
    cr_assert_eq(fiber_reader_take_while(&r, isalpha, 0, &token, WEFT_FOREVER), 2);
    cr_assert_eq(fiber_reader_take_while(&r, isalpha, 0, &token, WEFT_FOREVER), -ENODATA);
    cr_assert_eq(fiber_reader_skip_while(&r, isalpha, &skipped, WEFT_FOREVER), -ENODATA);
    cr_assert_eq(fiber_reader_read(&r, big, 1, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_reader_read(&r, big, sizeof big, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_reader_read_rest(&r, big, sizeof big, &done, WEFT_FOREVER), 0);
    cr_assert_eq(done, 0);
    cr_assert_eq(fiber_reader_read_all(&r, big, 0, &done, WEFT_FOREVER), 0);
    cr_assert_eq(s.calls, 2);
    /* it grows */
    s.text = "abcd";
    s.len = 4;
    cr_assert_eq(fiber_reader_clear(&r), -ENODATA);
    cr_assert_eq(fiber_reader_clear(&r), 0);
    cr_assert_eq(fiber_reader_line(&r, 0, &token, WEFT_FOREVER), 2);
    cr_assert_str_eq(token, "cd");
    cr_assert_eq(fiber_reader_position(&r), 4);
    /* an error */
    s = script("abcd", 2);
    fiber_reader_init_source(&r, script_read, &s, buffer, sizeof buffer);
    cr_assert_eq(fiber_reader_byte(&r, WEFT_FOREVER), 'a');
    s.fail_with = -ECONNRESET;
    cr_assert_eq(fiber_reader_line(&r, 0, &token, WEFT_FOREVER), -ECONNRESET);
    cr_assert_eq(fiber_reader_line(&r, 0, &token, WEFT_FOREVER), -ECONNRESET);
    cr_assert_eq(fiber_reader_byte(&r, WEFT_FOREVER), 'b');
    cr_assert_eq(fiber_reader_byte(&r, WEFT_FOREVER), -ECONNRESET);
    cr_assert_eq(fiber_reader_read(&r, big, 1, WEFT_FOREVER), -ECONNRESET);
    cr_assert_eq(fiber_reader_read_rest(&r, big, 9, &done, WEFT_FOREVER), -ECONNRESET);
    cr_assert_eq(fiber_reader_skip(&r, 1, NULL, WEFT_FOREVER), -ECONNRESET);
    /* a time-out that is not the deadline's is the connection's end */
    fiber_reader_clear(&r);
    s.fail_with = -ETIMEDOUT;
    cr_assert_eq(fiber_reader_byte(&r, weft_after(WEFT_SEC(1000))), -ETIMEDOUT);
    cr_assert_eq(fiber_reader_byte(&r, WEFT_FOREVER), -ETIMEDOUT);
    cr_assert_eq(fiber_reader_clear(&r), -ETIMEDOUT);
    s.fail_with = -ETIMEDOUT;
    cr_assert_eq(fiber_reader_byte(&r, WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert_eq(fiber_reader_byte(&r, WEFT_FOREVER), 'c');
    /* a source that lies */
    s.fail_with = 9;
    cr_assert_eq(fiber_reader_skip(&r, 2, NULL, WEFT_FOREVER), -EIO);
    cr_assert_eq(fiber_reader_byte(&r, WEFT_FOREVER), -EIO);
    return 0;
}

Test(buffered_reader, ends_and_errors_are_remembered)
{
    WITHOUT_IO(ends_main);
}

/* What is as long as the buffer, and longer, goes past it. */
static int bypass_main(void *unused)
{
    char buffer[8], big[64];
    struct script s = script("0123456789012345678901234567890123456789", 100);
    struct fiber_reader r;
    size_t done;

    (void)unused;
    fiber_reader_init_source(&r, script_read, &s, buffer, sizeof buffer);
    cr_assert_eq(fiber_reader_read(&r, big, 8, WEFT_FOREVER), 8);
    cr_assert_eq(s.last, big);
    cr_assert_eq(fiber_reader_read(&r, big, 7, WEFT_FOREVER), 7);
    cr_assert_eq(s.last, buffer);
    cr_assert_eq(fiber_reader_read(&r, big, sizeof big, WEFT_FOREVER), 1, "what is buffered first");
    s.calls = 0;
    cr_assert_eq(fiber_reader_read_all(&r, big, 12, &done, WEFT_FOREVER), 0);
    cr_assert_eq(s.last, big);
    cr_assert_eq(s.calls, 1);
    cr_assert_arr_eq(big, "678901234567", 12);
    cr_assert_eq(fiber_reader_position(&r), 28);
    cr_assert_eq(fiber_reader_read_rest(&r, big, sizeof big, &done, WEFT_FOREVER), 0);
    cr_assert_eq(done, 12);
    /* no more than an int counts is asked for at a time */
    s.at = s.calls = 0;
    fiber_reader_clear(&r);
    cr_assert_eq(fiber_reader_read(&r, big, SIZE_MAX, WEFT_FOREVER), 40);
    cr_assert_eq(s.room, INT_MAX);
    return 0;
}

Test(buffered_reader, much_goes_past_the_buffer)
{
    WITHOUT_IO(bypass_main);
}

/* ---- arguments and misuse ---- */

static int arguments_main(void *unused)
{
    char buffer[8], byte, *token;
    struct script s = script("abc", 1);
    struct fiber_reader r;
    const void *data;
    size_t done;

    (void)unused;
    cr_assert_eq(fiber_reader_init(NULL, 0, -1, buffer, 8), -EFAULT);
    cr_assert_eq(fiber_reader_init(&r, 0, -1, NULL, 8), -EFAULT);
    cr_assert_eq(fiber_reader_init(&r, 0, -1, buffer, 0), -EINVAL);
    cr_assert_eq(fiber_reader_init(&r, 0, -1, buffer, (size_t)INT_MAX + 1), -EINVAL);
    cr_assert_eq(fiber_reader_init(&r, 0, -2, buffer, 8), -EINVAL);
    cr_assert_eq(fiber_reader_init_source(&r, NULL, NULL, buffer, 8), -EFAULT);
    cr_assert_eq(fiber_reader_init_source(&r, script_read, &s, buffer, 8), 0);
    cr_assert_eq(fiber_reader_read(&r, NULL, 0, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_reader_read(&r, NULL, 1, WEFT_FOREVER), -EFAULT);
    cr_assert_eq(fiber_reader_read_all(&r, NULL, 0, NULL, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_reader_read_all(&r, NULL, 9, NULL, WEFT_FOREVER), -EFAULT);
    cr_assert_eq(fiber_reader_read_rest(&r, NULL, 1, &done, WEFT_FOREVER), -EFAULT);
    cr_assert_eq(fiber_reader_read_rest(&r, &byte, 1, NULL, WEFT_FOREVER), -EFAULT);
    cr_assert_eq(fiber_reader_until(&r, NULL, 1, 0, &token, WEFT_FOREVER), -EFAULT);
    cr_assert_eq(fiber_reader_until(&r, "", 0, 0, &token, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_reader_take_while(&r, NULL, 0, &token, WEFT_FOREVER), -EFAULT);
    cr_assert_eq(fiber_reader_skip_while(&r, NULL, NULL, WEFT_FOREVER), -EFAULT);
    cr_assert_eq(fiber_reader_peek(&r, SIZE_MAX, &data, WEFT_FOREVER), -EMSGSIZE);
    cr_assert_eq(fiber_reader_peek(&r, 0, &data, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_reader_skip(&r, 0, NULL, WEFT_FOREVER), 0);
    cr_assert_eq(s.calls, 0);
    cr_assert_eq(fiber_reader_read_rest(&r, NULL, 0, &done, WEFT_FOREVER), -EMSGSIZE);
    cr_assert_eq(fiber_reader_finish(&r), 1, "that byte is dropped");
    cr_assert_eq(fiber_reader_finish(&r), 0);
    cr_assert_eq(fiber_reader_byte(&r, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_reader_line(&r, 0, &token, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_reader_until(&r, "\n", 1, 0, &token, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_reader_peek(&r, 1, &data, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_reader_read_all(&r, &byte, 1, NULL, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_reader_init(&r, -1, -1, buffer, 8), 0);
    cr_assert_eq(fiber_reader_byte(&r, WEFT_FOREVER), -ENOSYS, "this engine does no I/O");
    memset(&r, 0, sizeof r);
    cr_assert_eq(fiber_reader_line(&r, 0, &token, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_reader_read(&r, &byte, 1, WEFT_FOREVER), -EINVAL);
    return 0;
}

Test(buffered_reader, arguments)
{
    WITHOUT_IO(arguments_main);
}

/* On the base stack, and without a runtime: what is buffered can be had. */
static struct fiber_reader elsewhere;
static struct weft_task task;
static int called;

static void read_on_base(struct weft_task *unused)
{
    char *line;

    (void)unused;
    cr_assert_eq(fiber_reader_byte(&elsewhere, WEFT_FOREVER), 'a');
    cr_assert_eq(fiber_reader_line(&elsewhere, 0, &line, WEFT_FOREVER), 1);
    cr_assert_eq(fiber_reader_line(&elsewhere, 0, &line, WEFT_FOREVER), -EDEADLK);
    cr_assert_eq(fiber_reader_byte(&elsewhere, WEFT_NOWAIT), -EDEADLK);
    called = 1;
}

static int elsewhere_main(void *unused)
{
    (void)unused;
    cr_assert_eq(fiber_reader_peek_byte(&elsewhere, WEFT_FOREVER), 'a');
    cr_assert_eq(weft_task_init(&task, read_on_base), 0);
    weft_task_queue(&task);
    while (!called)
        fiber_yield();
    weft_task_finish(&task);
    return 0;
}

Test(buffered_reader, callers_that_cannot_wait)
{
    struct script s = script("ab\ncd", 3);
    char buffer[8];

    cr_assert_eq(fiber_reader_init_source(&elsewhere, script_read, &s, buffer, 8), 0);
    cr_assert_eq(fiber_reader_byte(&elsewhere, WEFT_FOREVER), -EINVAL);
    WITHOUT_IO(elsewhere_main);
    cr_assert_eq(fiber_reader_byte(&elsewhere, WEFT_FOREVER), -EINVAL, "not remembered");
    cr_assert_eq(fiber_reader_clear(&elsewhere), 0);
}

/* ---- deadlines, cancellation, two fibers ---- */

struct waiting {
    struct fiber_reader *reader;
    struct fiber *self;
    int result;
    bool ended;
    char *line;
};

static int64_t line_fiber(void *arg)
{
    struct waiting *w = arg;

    w->self = fiber_self();
    w->result = fiber_reader_line(w->reader, 0, &w->line, WEFT_FOREVER);
    w->ended = true;
    return 0;
}

static int interrupted_main(void *unused)
{
    char buffer[32], big[64], *line;
    struct waiting w = {0};
    struct fiber_reader r;
    const void *data;
    size_t done;
    int pair[2];

    (void)unused;
    make_pair(pair);
    cr_assert_eq(fiber_reader_init(&r, pair[0], -1, buffer, sizeof buffer), 0);
    cr_assert_eq(fiber_reader_line(&r, 0, &line, WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert_eq(write(pair[1], "de", 2), 2);
    cr_assert_eq(fiber_reader_line(&r, 0, &line, WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert_eq(fiber_reader_buffered(&r, &data), 2, "what could be had now it has");
    cr_assert_eq(write(pair[1], "ad", 2), 2);
    cr_assert_eq(fiber_reader_line(&r, 0, &line, weft_after(WEFT_MS(1))), -ETIMEDOUT);
    cr_assert_eq(fiber_reader_peek(&r, 32, &data, weft_after(1)), -ETIMEDOUT);

    /* the same line, in a fiber that is cancelled */
    w.reader = &r;
    cr_assert_eq(fiber_detach(line_fiber, &w), 0);
    fiber_yield();
    cr_assert_eq(write(pair[1], "li", 2), 2);
    while (fiber_nop(WEFT_FOREVER), r.received < 6) /* it has received it, and waits again */
        ;
    fiber_nop(WEFT_FOREVER);
    /* meanwhile nobody else may, and nothing is to be seen */
    cr_assert_eq(fiber_reader_buffered(&r, NULL), 0);
    cr_assert_eq(fiber_reader_byte(&r, WEFT_FOREVER), -EBUSY);
    cr_assert_eq(fiber_reader_peek_byte(&r, WEFT_NOWAIT), -EBUSY);
    cr_assert_eq(fiber_reader_line(&r, 0, &line, WEFT_NOWAIT), -EBUSY);
    cr_assert_eq(fiber_reader_until(&r, "x", 1, 0, &line, WEFT_NOWAIT), -EBUSY);
    cr_assert_eq(fiber_reader_take_while(&r, isalpha, 0, &line, WEFT_NOWAIT), -EBUSY);
    cr_assert_eq(fiber_reader_read(&r, big, 1, WEFT_NOWAIT), -EBUSY);
    cr_assert_eq(fiber_reader_read(&r, big, sizeof big, WEFT_NOWAIT), -EBUSY);
    cr_assert_eq(fiber_reader_read_all(&r, big, sizeof big, &done, WEFT_NOWAIT), -EBUSY);
    cr_assert_eq(fiber_reader_read_rest(&r, big, sizeof big, &done, WEFT_NOWAIT), -EBUSY);
    cr_assert_eq(fiber_reader_skip(&r, 1, NULL, WEFT_NOWAIT), -EBUSY);
    cr_assert_eq(fiber_reader_finish(&r), -EBUSY);
    fiber__cancel(weft__rt, w.self);
    while (!w.ended)
        fiber_yield();
    cr_assert_eq(w.result, -ECANCELED);
    cr_assert_eq(fiber_reader_buffered(&r, &data), 6);
    cr_assert_arr_eq(data, "deadli", 6);

    cr_assert_eq(write(pair[1], "ne\nrest", 7), 7);
    cr_assert_eq(fiber_reader_line(&r, 0, &line, weft_after(WEFT_SEC(1000))), 8);
    cr_assert_str_eq(line, "deadline");
    /* past the buffer: the bytes moved are told */
    cr_assert_eq(fiber_reader_read_all(&r, big, sizeof big, &done, weft_after(1)), -ETIMEDOUT);
    cr_assert_eq(done, 4);
    cr_assert_eq(write(pair[1], " of it", 6), 6);
    close(pair[1]);
    cr_assert_eq(fiber_reader_read_rest(&r, big + 4, sizeof big - 4, &done, WEFT_FOREVER), 0);
    cr_assert_eq(done, 6);
    cr_assert_arr_eq(big, "rest of it", 10);
    cr_assert_eq(fiber_reader_finish(&r), 0);
    cr_assert(weft__rt->timers == NULL);
    close(pair[0]);
    return 0;
}

Test(buffered_reader, deadline_cancel_and_a_second_fiber_lose_nothing)
{
    ON_EACH_SETUP(interrupted_main);
}

/* A fiber cancelled before: it has what is buffered, and asks for no more. */
static int64_t cancelled_fiber(void *arg)
{
    struct waiting *w = arg;

    fiber__cancel(weft__rt, fiber_self());
    cr_assert_eq(fiber_reader_byte(w->reader, WEFT_FOREVER), 'x');
    cr_assert_eq(fiber_reader_byte(w->reader, WEFT_FOREVER), -ECANCELED);
    w->ended = true;
    return 0;
}

static int cancelled_main(void *unused)
{
    struct script s = script("xy", 1);
    struct fiber_reader r;
    struct waiting w = {.reader = &r};
    char buffer[4];

    (void)unused;
    fiber_reader_init_source(&r, script_read, &s, buffer, sizeof buffer);
    cr_assert_eq(fiber_reader_peek_byte(&r, WEFT_FOREVER), 'x');
    cr_assert_eq(fiber_detach(cancelled_fiber, &w), 0);
    while (!w.ended)
        fiber_yield();
    cr_assert_eq(s.calls, 1);
    cr_assert_eq(fiber_reader_byte(&r, WEFT_FOREVER), 'y');
    return 0;
}

Test(buffered_reader, a_cancelled_fiber_has_what_is_buffered)
{
    WITHOUT_IO(cancelled_main);
}

/* A connection that is reset in the midst of a line must not look like one that has ended. */
static int reset_main(void *unused)
{
    const struct linger linger = {1, 0};
    struct fiber_reader r;
    char buffer[32], *line;
    int tcp[2], rc;

    (void)unused;
    make_tcp(tcp);
    cr_assert_eq(write(tcp[1], "half a li", 9), 9);
    cr_assert_eq(fiber_reader_init(&r, tcp[0], -1, buffer, sizeof buffer), 0);
    cr_assert_eq(fiber_reader_byte(&r, WEFT_FOREVER), 'h');
    setsockopt(tcp[1], SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    close(tcp[1]);
    for (int i = 0; i < 3; i++) {
        rc = fiber_reader_line(&r, 0, &line, WEFT_FOREVER);
        cr_assert_eq(rc, -ECONNRESET, "%d", rc);
    }
    cr_assert_eq(fiber_reader_clear(&r), -ECONNRESET);
    cr_assert_eq(fiber_reader_finish(&r), 8);
    close(tcp[0]);
    return 0;
}

Test(buffered_reader, a_reset_is_no_end)
{
    ON_EACH_SETUP(reset_main);
}

/* An operation that fails loses nothing either. */
static int fault_main(void *unused)
{
    struct fiber_reader r;
    char buffer[32], *line;
    int pair[2];

    (void)unused;
    make_pair(pair);
    cr_assert_eq(write(pair[1], "on\n", 3), 3);
    fiber_reader_init(&r, pair[0], -1, buffer, sizeof buffer);
    ring__faults(weft__rt)->short_io = 2;
    cr_assert_eq(fiber_reader_peek_byte(&r, WEFT_FOREVER), 'o');
    ring__faults(weft__rt)->short_io = 0;
    ring__faults(weft__rt)->result_error = -ENOBUFS;
    ring__faults(weft__rt)->result = 1;
    cr_assert_eq(fiber_reader_line(&r, 0, &line, WEFT_FOREVER), -ENOBUFS);
    cr_assert_eq(fiber_reader_line(&r, 0, &line, WEFT_FOREVER), -ENOBUFS);
    cr_assert_eq(fiber_reader_clear(&r), -ENOBUFS);
    cr_assert_eq(fiber_reader_line(&r, 0, &line, WEFT_FOREVER), 2);
    cr_assert_str_eq(line, "on");
    /* somebody closes it */
    close_pair(pair);
    cr_assert_eq(fiber_reader_byte(&r, WEFT_FOREVER), -EBADF);
    return 0;
}

Test(buffered_reader, a_failed_read_loses_nothing)
{
    ON_EACH_SETUP(fault_main);
}

/* ---- tied to a writer ---- */

struct answers {
    char text[200];
    size_t len;
    int calls;
};

static int answers_write(void *ctx, const struct iovec *pieces, int count, weft_time deadline)
{
    struct answers *a = ctx;
    size_t before = a->len;

    (void)deadline;
    a->calls++;
    for (int i = 0; i < count; i++) {
        memcpy(a->text + a->len, pieces[i].iov_base, pieces[i].iov_len);
        a->len += pieces[i].iov_len;
    }
    return (int)(a->len - before);
}

static int tied_main(void *unused)
{
    char in[32], out[64], *line;
    struct answers a = {0};
    struct script s = script("one\ntwo\nthree\nfour\n", 14);
    struct fiber_reader r;
    struct fiber_writer w;

    (void)unused;
    fiber_reader_init_source(&r, script_read, &s, in, sizeof in);
    fiber_writer_init_sink(&w, answers_write, &a, out, sizeof out);
    fiber_reader_tie(&r, &w);
    while (fiber_reader_line(&r, 0, &line, WEFT_FOREVER) > 0) {
        cr_assert_eq(a.calls, s.calls - 1, "answers leave only when there is nothing to read");
        cr_assert_eq(fiber_writer_printf(&w, WEFT_FOREVER, "<%s>", line), 0);
    }
    cr_assert_eq(a.calls, 2);
    cr_assert_eq(a.len, 23);
    cr_assert_arr_eq(a.text, "<one><two><three><four>", 23);
    fiber_reader_tie(&r, NULL);
    fiber_writer_byte(&w, '!', WEFT_FOREVER);
    fiber_reader_clear(&r);
    cr_assert_eq(fiber_reader_byte(&r, WEFT_FOREVER), -ENODATA);
    cr_assert_eq(a.calls, 2);
    cr_assert_eq(fiber_writer_finish(&w), 1);
    return 0;
}

Test(buffered_reader, a_tied_writer_is_flushed_before_a_wait)
{
    WITHOUT_IO(tied_main);
}

/* ---- memory ---- */

static int alloc_main(void *unused)
{
    char in[32], *line, big[100];
    struct fiber_reader r;
    size_t before = 0, done;
    int pair[2];

    (void)unused;
    make_pair(pair);
    for (int i = 0; i < 20; i++) {
        if (i == 2)
            before = allocations;
        fiber_reader_init(&r, pair[0], -1, in, sizeof in);
        cr_assert_eq(write(pair[1], "a line\nand an end;", 18), 18);
        cr_assert_eq(fiber_reader_line(&r, 0, &line, WEFT_FOREVER), 6);
        cr_assert_eq(fiber_reader_until(&r, ";", 1, 0, &line, weft_after(WEFT_SEC(1000))), 10);
        cr_assert_eq(fiber_reader_read_all(&r, big, 100, &done, WEFT_NOWAIT), -ETIMEDOUT);
        cr_assert_eq(fiber_reader_finish(&r), 0);
    }
    cr_assert_eq(allocations, before);
    close_pair(pair);
    return 0;
}

Test(buffered_reader, allocates_nothing)
{
    ON_EACH_SETUP(alloc_main);
}
