/* scenarios.c: what may happen to channels, messages, connections, files, streams and timers. Each
 * scenario leaves nothing behind, cancelled or not. */
#include "soak.h"

/* ---- bytes through a channel, both ends at once ---- */

struct side {
    struct channel *channel;
    struct random random;
    uint64_t total; /* bytes that go through; 0: who knows */
    unsigned steps; /* operations, if nobody knows */
    struct side *other;
    bool over;
};

static int64_t write_side(void *arg)
{
    struct side *s = arg;
    struct channel *c = s->channel;

    while (fiber_check() == 0 && (s->total > 0 ? c->written < s->total : s->steps-- > 0)) {
        size_t most = s->total > 0 ? (size_t)(s->total - c->written) : SIZE_MAX;
        int res = channel_write(&s->random, c, s->total > 0, most);

        CHECK(res > 0 || is_passing(res), "write: %d", res);
        if (one_in(&s->random, 4))
            linger(&s->random);
    }
    s->over = true;
    return 0;
}

static void poll_once(struct random *r, int fd, short events, bool certain)
{
    struct operation op = {.what = OP_poll, .fd = fd, .flags = events, .certain = certain};
    int res = perform(r, &op);

    CHECK(res > 0 || is_passing(res), "poll: %d", res);
}

static int64_t read_side(void *arg)
{
    struct side *s = arg;
    struct channel *c = s->channel;

    while (fiber_check() == 0 && (s->total > 0 ? c->read < s->total : s->steps-- > 0)) {
        size_t most = s->total > 0 ? (size_t)(s->total - c->read) : SIZE_MAX;
        int res;

        if (one_in(&s->random, 6))
            poll_once(&s->random, c->in, POLLIN,
                      s->total > 0 || (c->written > c->read && !c->two_hops));
        res = channel_read(&s->random, c, s->total > 0, most);
        CHECK(res > 0 || is_passing(res), "read: %d", res);
        if (one_in(&s->random, 4))
            linger(&s->random);
    }
    s->over = true;
    return 0;
}

/* The scope of a scenario: sometimes with a deadline, sometimes cancelled. */
static bool open_scope(struct random *r, struct fiber_scope *scope)
{
    bool limited = one_in(r, 3);

    fiber_scope_open(scope, limited ? weft_after(below(r, 3000) * 1000) : WEFT_FOREVER);
    return limited;
}

static void close_scope(struct random *r, struct fiber_scope *scope)
{
    int rc;

    if (one_in(r, 4)) {
        linger(r);
        fiber_scope_cancel(scope);
    }
    rc = fiber_scope_close(scope, 0);
    CHECK(rc == 0 || is_passing(rc), "scope: %d", rc);
}

static void bytes(struct random *r, bool to_the_end)
{
    struct channel c;
    struct side reader = {.channel = &c}, writer = {.channel = &c};
    struct fiber_scope scope;

    channel_open(r, &c);
    reader.random = fork_random(r);
    writer.random = fork_random(r);
    reader.steps = 1 + below(r, 20);
    writer.steps = 1 + below(r, 20);
    if (to_the_end)
        reader.total = writer.total = 1 + below(r, 20000);
    open_scope(r, &scope);
    fiber_scope_spawn(&scope, read_side, &reader);
    fiber_scope_spawn(&scope, write_side, &writer);
    close_scope(r, &scope);
    channel_close(r, &c);
}

static void disturbed_bytes(struct random *r)
{
    bytes(r, false);
}

static void all_bytes(struct random *r)
{
    bytes(r, true);
}

/* ---- sent from a file ---- */

static void bytes_of_a_file(struct random *r)
{
    static unsigned names;
    char path[128], content[3000];
    struct channel c;
    struct side reader = {.channel = &c}, writer = {.channel = &c};
    struct fiber_scope scope;
    uint64_t total = 1 + below(r, 20000);

    channel_open(r, &c);
    snprintf(path, sizeof path, "%s/sent-%u", soak.directory, names++);
    c.file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(c.file > 0, "open: %s", strerror(errno));
    unlink(path);
    for (; c.written < total; c.written += sizeof content) {
        channel_fill(&c, content, sizeof content);
        CHECK(pwrite(c.file, content, sizeof content, (off_t)c.written) == sizeof content,
              "pwrite: %s", strerror(errno));
    }
    c.written = 0;
    reader.random = fork_random(r);
    writer.random = fork_random(r);
    reader.total = writer.total = total;
    open_scope(r, &scope);
    fiber_scope_spawn(&scope, read_side, &reader);
    fiber_scope_spawn(&scope, write_side, &writer);
    close_scope(r, &scope);
    close_somehow(r, c.file);
    channel_close(r, &c);
}

/* ---- spliced from a pipe to a socket, or the other way ---- */

struct relay {
    int from, to;
    struct random random;
    bool certain;
    const bool *over; /* nobody writes any more */
};

static int64_t splice_on(void *arg)
{
    struct relay *relay = arg;
    struct random *r = &relay->random;
    int res;

    do {
        struct operation op = {.what = OP_splice, .fd = relay->to, .from = relay->from};

        op.len = 1 + below(r, 5000);
        res = perform(r, &op);
        CHECK(res > 0 || is_passing(res), "splice: %d", res);
    } while (fiber_check() == 0 && (res > 0 || !*relay->over || !one_in(r, 10)));
    return 0;
}

/* What stands in the first half goes on to the second, as far as that has room. 0: at the end. */
static ssize_t splice_rest(const struct relay *relay)
{
    ssize_t n;

    do
        n = splice(relay->from, NULL, relay->to, NULL, 65536, SPLICE_F_NONBLOCK);
    while (n > 0 || (n < 0 && errno == EINTR));
    CHECK(n == 0 || errno == EAGAIN, "splice: %s", strerror(errno));
    return n;
}

static void spliced_bytes(struct random *r)
{
    struct channel first, second;
    struct side reader = {.channel = &first}, writer = {.channel = &first};
    struct relay relay = {.over = &writer.over};
    struct fiber_scope scope;
    char buf[1000];
    ssize_t n, left;

    do {
        channel_open(r, &first);
        channel_open(r, &second);
        if (first.is_socket == second.is_socket) {
            channel_close(r, &first);
            channel_close(r, &second);
        }
    } while (first.is_socket == second.is_socket);
    relay.from = first.in;
    relay.to = second.out;
    first.in = second.in; /* the model is of both together */
    channel_forget(&second);
    first.two_hops = true;
    reader.random = fork_random(r);
    writer.random = fork_random(r);
    relay.random = fork_random(r);
    reader.steps = 1 + below(r, 20);
    writer.steps = 1 + below(r, 20);
    open_scope(r, &scope);
    if (fiber_scope_spawn(&scope, write_side, &writer) < 0)
        writer.over = true;
    fiber_scope_spawn(&scope, splice_on, &relay);
    fiber_scope_spawn(&scope, read_side, &reader);
    close_scope(r, &scope);
    close_somehow(r, first.out);
    fcntl(relay.from, F_SETFL, O_NONBLOCK);
    fcntl(relay.to, F_SETFL, O_NONBLOCK);
    fcntl(first.in, F_SETFL, O_NONBLOCK);
    do {
        left = splice_rest(&relay);
        while ((n = read(first.in, buf, sizeof buf)) > 0)
            channel_check(&first, buf, (size_t)n);
    } while (left != 0);
    close_somehow(r, relay.from);
    first.out = relay.to;
    channel_close(r, &first);
}

/* ---- the same as a loop of promises ---- */

struct loop {
    struct channel *channel;
    struct random random;
    struct operation op;
    char buf[700];
    unsigned steps;
};

static struct promise *read_again(struct loop *l);

static struct promise *loop_read(union weft_value n, void *arg)
{
    struct loop *l = arg;

    channel_check(l->channel, l->buf, (size_t)n.num);
    return read_again(l);
}

static struct promise *loop_failed(int error, void *arg)
{
    struct loop *l = arg;

    CHECK(is_passing(error), "a read in a loop: %d", error);
    return error == -ECANCELED ? promise_rejected(error) : read_again(l);
}

static struct promise *read_again(struct loop *l)
{
    struct operation *op = &l->op;

    if (l->steps-- == 0 || weft_stopping())
        return promise_fulfilled(weft_num(0));
    count_operation();
    disturb(&l->random);
    op->what = one_in(&l->random, 2) ? OP_read : OP_readv;
    op->len = 1 + below(&l->random, sizeof l->buf);
    op->deadline = weft_after(below(&l->random, 300) * 1000);
    op->buf = l->buf;
    op->iov[0] = (struct iovec){l->buf, op->len};
    op->pieces = 1;
    return promise_try_bind(as_promise(op), loop_read, loop_failed, l);
}

static void promised_bytes(struct random *r)
{
    struct channel c;
    struct loop loop = {.channel = &c, .random = fork_random(r), .steps = 1 + below(r, 30)};
    struct side writer = {.channel = &c, .random = fork_random(r), .steps = 1 + below(r, 20)};
    struct fiber_scope scope;
    struct promise *p;

    channel_open(r, &c);
    loop.op.fd = c.in;
    loop.op.offset = -1;
    fiber_scope_open(&scope, WEFT_FOREVER);
    fiber_scope_spawn(&scope, write_side, &writer);
    p = read_again(&loop);
    if (one_in(r, 3)) {
        linger(r);
        promise_cancel(p);
    }
    await_shielded(p, NULL);
    close_scope(r, &scope);
    channel_close(r, &c);
}

/* ---- messages: many readers and writers of one socket ---- */

#define KINDS 16

struct messages {
    int in, out;
    int kinds[KINDS]; /* of each kind, sent and not received */
    int underway;     /* sends whose result is not known */
};

struct mailer {
    struct messages *messages;
    struct random random;
    bool sends;
};

static void count_received(struct messages *m, unsigned char kind)
{
    CHECK(kind < KINDS, "a message that nobody sent: %d", kind);
    m->kinds[kind]--;
}

static int64_t mail(void *arg)
{
    struct mailer *mailer = arg;
    struct messages *m = mailer->messages;
    struct random *r = &mailer->random;

    for (unsigned i = 1 + below(r, 12); i > 0 && fiber_check() == 0; i--) {
        unsigned char kind = (unsigned char)below(r, KINDS);
        struct operation op = {.len = 1, .offset = -1};
        int res;

        op.buf = (char *)&kind;
        op.iov[0] = (struct iovec){&kind, 1};
        op.pieces = 1;
        if (mailer->sends) {
            static const enum what ways[] = {OP_send, OP_write, OP_writev};

            op.fd = m->out;
            op.what = ways[below(r, 3)];
            m->underway++;
            res = perform(r, &op);
            m->underway--;
            if (res == 1)
                m->kinds[kind]++;
        } else {
            static const enum what ways[] = {OP_recv, OP_read, OP_readv};

            op.fd = m->in;
            op.what = ways[below(r, 3)];
            kind = 255;
            res = perform(r, &op);
            if (res == 1)
                count_received(m, kind);
        }
        CHECK(res == 1 || is_passing(res), "a message: %d", res);
    }
    return 0;
}

static void messages(struct random *r)
{
    struct messages m = {0};
    struct mailer mailers[6];
    struct fiber_scope scope;
    unsigned char kind;
    int fds[2], type = one_in(r, 2) ? SOCK_DGRAM : SOCK_SEQPACKET;

    CHECK(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds) == 0, "socketpair: %s", strerror(errno));
    m.in = fds[0];
    m.out = fds[1];
    for (int i = 0; i < 2; i++)
        if (one_in(r, 3))
            fcntl(fds[i], F_SETFL, O_NONBLOCK);
    open_scope(r, &scope);
    for (int i = 0; i < 6; i++) {
        mailers[i] = (struct mailer){&m, fork_random(r), i % 2 == 0};
        fiber_scope_spawn(&scope, mail, &mailers[i]);
    }
    close_scope(r, &scope);
    while (recv(m.in, &kind, 1, MSG_DONTWAIT) == 1)
        count_received(&m, kind);
    for (int i = 0; i < KINDS; i++)
        CHECK(m.kinds[i] == 0, "%d messages of kind %d are missing", m.kinds[i], i);
    close_somehow(r, m.in);
    close_somehow(r, m.out);
}

/* ---- closing what is in use ---- */

struct user {
    struct operation op;
    struct random random;
    struct channel *channel;
    char buf[64];
    bool begun;
    bool exact;
    int result;
};

static int64_t use(void *arg)
{
    struct user *u = arg;

    u->begun = true;
    if (u->op.what == OP_poll)
        u->result = fiber_poll(u->op.fd, (short)u->op.flags, u->op.deadline);
    else if (u->op.what == OP_read_all)
        u->result =
            fiber_read_all(u->op.fd, u->buf, sizeof u->buf, -1, &u->op.moved, u->op.deadline);
    else
        u->result = fiber_read(u->op.fd, u->buf, sizeof u->buf, -1, u->op.deadline);
    return 0;
}

static void closing(struct random *r)
{
    static const enum what ways[] = {OP_read, OP_read_all, OP_poll};
    struct user users[5];
    struct promise *promises[5];
    struct channel c;
    unsigned count = 1 + below(r, 5);
    char one = 1;

    channel_open(r, &c);
    for (unsigned i = 0; i < count; i++) {
        struct user *u = &users[i];

        memset(u, 0, sizeof *u);
        u->op.what = ways[below(r, 3)];
        u->op.fd = c.in;
        u->op.flags = POLLIN;
        u->op.offset = -1;
        u->op.buf = u->buf;
        u->op.len = sizeof u->buf;
        u->op.deadline = one_in(r, 3) ? weft_after(below(r, 300) * 1000) : WEFT_FOREVER;
        count_operation();
        if (one_in(r, 2)) {
            promises[i] = fiber_spawn(use, u);
            while (!u->begun && promise_state(promises[i]) == PROMISE_PENDING && fiber_yield() == 0)
                ;
            u->begun = true;
        } else {
            promises[i] = as_promise(&u->op);
        }
    }
    disturb(r);
    if (one_in(r, 2))
        CHECK(write(c.out, &one, 1) == 1, "write: %s", strerror(errno));
    linger(r);
    close_somehow(r, c.in);
    for (unsigned i = 0; i < count; i++) {
        union weft_value value = {.num = 0};
        int rc = await_shielded(promises[i], &value);

        if (rc == 0 && users[i].begun)
            rc = users[i].result;
        CHECK(rc >= 0 || is_passing(rc) || rc == -EBADF, "an operation under a close: %d", rc);
    }
    close_somehow(r, c.out);
    channel_forget(&c);
}

/* ---- pairs of descriptors ---- */

static void pairs(struct random *r)
{
    for (unsigned i = 1 + below(r, 6); i > 0; i--) {
        struct operation op = {.certain = true, .pair = {-1, -1}};
        int res;

        op.what = one_in(r, 2) ? OP_pipe : OP_socketpair;
        res = perform(r, &op);
        CHECK(res == 0 || is_passing(res), "a pair: %d", res);
        CHECK((res == 0) == (op.pair[0] >= 0), "a pair: %d, and the descriptors %d and %d", res,
              op.pair[0], op.pair[1]);
        if (res == 0) {
            close_somehow(r, op.pair[0]);
            close_somehow(r, op.pair[1]);
        }
    }
}

/* ---- connections ---- */

struct meeting {
    int listener;
    union address address;
    socklen_t address_len;
    struct random random;
    struct ring_stream *stream;
};

static void greet(struct random *r, int fd, bool first)
{
    char byte = 1;
    struct operation op = {.what = first ? OP_send : OP_recv, .fd = fd, .buf = &byte, .len = 1};
    int res = perform(r, &op);

    CHECK(res >= 0 || is_passing(res) || res == -EPIPE || res == -ECONNRESET, "greeting: %d", res);
    close_somehow(r, fd);
}

static int64_t accept_some(void *arg)
{
    struct meeting *m = arg;
    struct random *r = &m->random;

    for (unsigned i = 1 + below(r, 6); i > 0 && fiber_check() == 0; i--) {
        struct operation op = {.what = OP_accept, .fd = m->listener};
        int res;

        if (m->stream == NULL) {
            res = perform(r, &op);
        } else {
            disturb(r);
            count_operation();
            res = fiber_stream_next(m->stream, NULL, weft_after(below(r, 500) * 1000));
            if (res < 0 && !is_passing(res))
                break;
        }
        CHECK(res >= 0 || is_passing(res), "accept: %d", res);
        if (res >= 0)
            greet(r, res, true);
    }
    return 0;
}

static int64_t connect_some(void *arg)
{
    struct meeting *m = arg;
    struct random *r = &m->random;

    for (unsigned i = 1 + below(r, 6); i > 0 && fiber_check() == 0; i--) {
        struct operation op = {.what = OP_socket};
        int res;

        op.address = m->address;
        op.address_len = m->address_len;
        res = perform(r, &op);
        CHECK(res >= 0 || is_passing(res), "socket: %d", res);
        if (res < 0)
            continue;
        op.fd = res;
        if (one_in(r, 3))
            fcntl(op.fd, F_SETFL, O_NONBLOCK);
        op.what = OP_connect;
        res = perform(r, &op);
        CHECK(res >= 0 || is_passing(res) || res == -EALREADY || res == -EISCONN, "connect: %d",
              res);
        if (res == 0)
            greet(r, op.fd, false);
        else
            close_somehow(r, op.fd);
    }
    return 0;
}

static void listen_somewhere(struct random *r, struct meeting *m)
{
    static unsigned names;
    char name[64];

    if (one_in(r, 2)) {
        m->listener = ring_listen("127.0.0.1", "0", 1 + (int)below(r, 4));
        m->address.v4 =
            (struct sockaddr_in){.sin_family = AF_INET,
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                 .sin_port = htons((uint16_t)ring_local_port(m->listener))};
        m->address_len = sizeof m->address.v4;
    } else {
        snprintf(name, sizeof name, "@weft-soak-%d-%u", (int)getpid(), names++);
        m->listener = ring_listen_unix(name, 1 + (int)below(r, 4));
        m->address.local.sun_family = AF_UNIX;
        memcpy(m->address.local.sun_path, name, strlen(name));
        m->address.local.sun_path[0] = '\0';
        m->address_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    }
    CHECK(m->listener >= 0, "listen: %d", m->listener);
    if (one_in(r, 3))
        fcntl(m->listener, F_SETFL, O_NONBLOCK);
}

static void connections(struct random *r)
{
    struct meeting meetings[6] = {0};
    struct ring_stream *stream = NULL;
    struct fiber_scope scope;

    listen_somewhere(r, &meetings[0]);
    if (one_in(r, 3) && ring_stream_accept(&stream, meetings[0].listener, 0) < 0)
        stream = NULL;
    open_scope(r, &scope);
    for (int i = 0; i < 6; i++) {
        meetings[i] = meetings[0];
        meetings[i].random = fork_random(r);
        meetings[i].stream = i == 0 ? stream : NULL;
        if (i % 2 == 0 && i > 0 && stream != NULL)
            continue; /* one reader a stream */
        fiber_scope_spawn(&scope, i % 2 == 0 ? accept_some : connect_some, &meetings[i]);
    }
    close_scope(r, &scope);
    if (one_in(r, 2)) {
        ring_stream_close(stream);
        close_somehow(r, meetings[0].listener);
    } else {
        close_somehow(r, meetings[0].listener);
        ring_stream_close(stream);
    }
}

/* ---- a file, and a model of its content ---- */

#define FILE_SIZE 5000

static void file_step(struct random *r, int fd, char *model, size_t *size)
{
    char buf[1500];
    struct operation op = {.fd = fd, .buf = buf, .certain = true};
    int res;

    op.offset = below(r, (unsigned)*size + 1);
    op.len = 1 + below(r, sizeof buf);
    if ((size_t)op.offset + op.len > FILE_SIZE)
        op.len = FILE_SIZE - (size_t)op.offset;
    op.iov[0] = (struct iovec){buf, op.len / 2};
    op.iov[1] = (struct iovec){buf + op.len / 2, op.len - op.len / 2};
    op.pieces = 2;
    switch (below(r, 4)) {
    case 0:
    case 1: {
        static const enum what ways[] = {OP_write, OP_writev, OP_write_all};

        for (size_t i = 0; i < op.len; i++)
            buf[i] = (char)below(r, 256);
        op.what = ways[below(r, 3)];
        res = perform(r, &op);
        CHECK(res >= 0 || is_passing(res), "write to a file: %d", res);
        if (res > 0) {
            memcpy(model + op.offset, buf, (size_t)res);
            if ((size_t)op.offset + (size_t)res > *size)
                *size = (size_t)op.offset + (size_t)res;
        }
        break;
    }
    case 2: {
        static const enum what ways[] = {OP_read, OP_readv, OP_read_all};

        op.what = ways[below(r, 3)];
        res = perform(r, &op);
        CHECK(res >= 0 || is_passing(res) || res == -ENODATA, "read of a file: %d", res);
        if (res > 0) {
            CHECK((size_t)op.offset + (size_t)res <= *size, "read beyond the end of a file");
            CHECK(memcmp(model + op.offset, buf, (size_t)res) == 0, "a file has other bytes");
        }
        break;
    }
    default:
        if (one_in(r, 2)) {
            op.what = OP_ftruncate;
            res = perform(r, &op);
            CHECK(res == 0 || is_passing(res), "ftruncate: %d", res);
            if (res == 0) {
                memset(model + op.offset, 0, FILE_SIZE - (size_t)op.offset);
                *size = (size_t)op.offset;
            }
        } else {
            op.what = OP_fsync;
            op.flags = (int)below(r, 2);
            res = perform(r, &op);
            CHECK(res == 0 || is_passing(res), "fsync: %d", res);
        }
        break;
    }
}

static void file(struct random *r)
{
    static unsigned names;
    char path[128], model[FILE_SIZE], content[FILE_SIZE + 1];
    struct operation op = {.what = OP_openat, .path = path, .certain = true};
    size_t size = 0;
    int fd;
    ssize_t n;

    snprintf(path, sizeof path, "%s/%u", soak.directory, names++);
    op.flags = O_RDWR | O_CREAT;
    for (unsigned i = 1 + below(r, 4); i > 0; i--) {
        fd = perform(r, &op);
        CHECK(fd >= 0 || is_passing(fd), "openat: %d", fd);
        if (fd < 0)
            continue;
        for (unsigned steps = below(r, 10); steps > 0 && fiber_check() == 0; steps--)
            file_step(r, fd, model, &size);
        n = pread(fd, content, sizeof content, 0);
        CHECK(n == (ssize_t)size && memcmp(content, model, size) == 0,
              "a file has %zd bytes, the model %zu, or they differ", n, size);
        close_somehow(r, fd);
    }
    op.what = OP_statx;
    fd = perform(r, &op);
    CHECK(fd == 0 || is_passing(fd) || fd == -ENOENT, "statx: %d", fd);
    CHECK(fd != 0 || op.statx.stx_size == size, "statx: a file of %llu bytes, the model's %zu",
          (unsigned long long)op.statx.stx_size, size);
    unlink(path);
}

/* ---- streams that share few buffers ---- */

struct listener_side {
    struct channel channel;
    struct ring_stream *stream;
    struct random random;
    struct side writer;
    bool ended;
};

static int next_item(struct random *r, struct ring_stream *stream, struct ring_item *item)
{
    weft_time deadline = one_in(r, 4) ? WEFT_NOWAIT : weft_after(below(r, 600) * 1000);
    union weft_value value;
    struct promise *p;
    int rc;

    count_operation();
    disturb(r);
    if (one_in(r, 2))
        return fiber_stream_next(stream, item, deadline);
    p = promise_ring_stream_next(stream, item, deadline);
    if (one_in(r, 4)) {
        linger(r);
        promise_cancel(p);
    }
    rc = await_shielded(p, &value);
    return rc < 0 ? rc : (int)value.num;
}

static int64_t take_items(void *arg)
{
    struct listener_side *l = arg;
    struct random *r = &l->random;

    while (fiber_check() == 0) {
        struct ring_item item = {0};
        int res = next_item(r, l->stream, &item);

        if (res > 0) {
            channel_check(&l->channel, item.data, item.len);
            CHECK((size_t)res == item.len, "an item of %zu bytes told as %d", item.len, res);
            if (one_in(r, 3))
                linger(r);
            ring_item_release(&item);
            continue;
        }
        if (res == 0 || (res == -ENOMEM)) {
            l->ended = res == 0;
            break;
        }
        CHECK(is_passing(res), "an item: %d", res);
        if (l->writer.over && one_in(r, 20)) /* given up: the rest is lost with the stream */
            break;
    }
    return 0;
}

static int64_t write_and_end(void *arg)
{
    struct listener_side *l = arg;

    write_side(&l->writer);
    shutdown(l->channel.out, SHUT_WR);
    return 0;
}

static void streams(struct random *r)
{
    unsigned count = 1 + below(r, 4);
    struct listener_side sides[4];
    struct ring_buffers *buffers;
    struct fiber_scope scope;
    int rc = ring_buffers_create(&buffers, 1 + below(r, 6), 1 + below(r, 200));

    CHECK(rc == 0, "buffers: %d", rc);
    open_scope(r, &scope);
    for (unsigned i = 0; i < count; i++) {
        struct listener_side *l = &sides[i];

        memset(l, 0, sizeof *l);
        do { /* streams receive from sockets */
            if (l->channel.id != 0) {
                close(l->channel.in);
                close(l->channel.out);
                channel_forget(&l->channel);
            }
            channel_open(r, &l->channel);
            l->channel.id |= 1;
        } while (!l->channel.is_socket);
        l->random = fork_random(r);
        l->writer =
            (struct side){.channel = &l->channel, .random = fork_random(r), .steps = below(r, 12)};
        rc = ring_stream_recv(&l->stream, l->channel.in, buffers);
        CHECK(rc == 0, "a stream: %d", rc);
        fiber_scope_spawn(&scope, take_items, l);
        fiber_scope_spawn(&scope, write_and_end, l);
    }
    close_scope(r, &scope);
    for (unsigned i = 0; i < count; i++) {
        struct listener_side *l = &sides[i];

        CHECK(!l->ended || l->channel.read == l->channel.written,
              "a stream ended after %llu of %llu bytes", (unsigned long long)l->channel.read,
              (unsigned long long)l->channel.written);
        if (one_in(r, 2)) {
            ring_stream_close(l->stream);
            close_somehow(r, l->channel.in);
        } else {
            close_somehow(r, l->channel.in);
            ring_stream_close(l->stream);
        }
        close_somehow(r, l->channel.out);
        channel_forget(&l->channel);
    }
    CHECK(ring_buffers_used(buffers) == 0, "%u buffers are in use by nobody",
          ring_buffers_used(buffers));
    ring_buffers_destroy(buffers);
}

/* ---- readiness, told once each time it comes about ---- */

static int64_t write_all_of_it(void *arg)
{
    struct side *s = arg;

    while (fiber_check() == 0 && s->channel->written < s->total) {
        int res =
            channel_write(&s->random, s->channel, false, (size_t)(s->total - s->channel->written));

        CHECK(res > 0 || is_passing(res), "write: %d", res);
    }
    return 0;
}

static void readiness(struct random *r)
{
    struct channel c;
    struct side writer = {.channel = &c, .random = fork_random(r), .total = 1 + below(r, 5000)};
    struct ring_stream *stream;
    struct fiber_scope scope;
    int rc;

    channel_open(r, &c);
    fcntl(c.in, F_SETFL, O_NONBLOCK);
    rc = ring_stream_poll(&stream, c.in, POLLIN);
    CHECK(rc == 0, "a stream of events: %d", rc);
    open_scope(r, &scope);
    rc = fiber_scope_spawn(&scope, write_all_of_it, &writer);
    while (rc == 0 && c.read < writer.total) {
        char buf[300];
        ssize_t n;

        count_operation();
        disturb(r);
        rc = fiber_stream_next(stream, NULL,
                               one_in(r, 2) ? WEFT_FOREVER : weft_after(below(r, 300000)));
        CHECK(rc >= 0 || is_passing(rc), "an event: %d", rc);
        rc = rc == -ETIMEDOUT ? 0 : rc > 0 ? 0 : rc;
        while (rc == 0 && (n = read(c.in, buf, sizeof buf)) > 0)
            channel_check(&c, buf, (size_t)n);
    }
    if (rc < 0) /* the stream has ended, and nobody reads any more */
        fiber_scope_cancel(&scope);
    close_scope(r, &scope);
    if (one_in(r, 2)) {
        ring_stream_close(stream);
        channel_close(r, &c);
    } else {
        channel_close(r, &c);
        ring_stream_close(stream);
    }
}

/* ---- through buffers ---- */

static weft_time soon(struct random *r)
{
    count_operation();
    disturb(r);
    return one_in(r, 5) ? WEFT_NOWAIT : weft_after(below(r, 600000));
}

static int64_t write_buffered(void *arg)
{
    struct side *s = arg;
    struct channel *c = s->channel;
    struct random *r = &s->random;
    char buffer[300], data[700];
    struct fiber_writer writer;
    int64_t left;
    int rc = fiber_writer_init(&writer, c->out, -1, buffer, 1 + below(r, sizeof buffer));

    CHECK(rc == 0, "fiber_writer_init: %d", rc);
    while (fiber_check() == 0 && s->steps-- > 0) {
        size_t len = 1 + below(r, sizeof data), done = 0;
        void *room;

        channel_fill(c, data, sizeof data);
        c->writing = len;
        switch (below(r, 4)) {
        case 0:
            rc = fiber_writer_byte(&writer, (unsigned char)data[0], soon(r));
            done = rc == 0;
            break;
        case 1:
            len = 1 + len % 40;
            rc = fiber_writer_reserve(&writer, len, &room, soon(r));
            if (rc == 0) {
                memcpy(room, data, len);
                CHECK(fiber_writer_commit(&writer, len) == 0, "there is less room than was told");
                done = len;
            }
            break;
        case 2:
            rc = fiber_writer_flush(&writer, soon(r));
            CHECK(rc < 0 || fiber_writer_pending(&writer) == 0, "flushed, and bytes are left");
            break;
        default:
            rc = fiber_writer_write(&writer, data, len, &done, soon(r));
            CHECK(done <= len && (rc < 0 || done == len), "%zu of %zu bytes taken: %d", done, len,
                  rc);
            break;
        }
        c->writing = 0;
        c->written += done;
        CHECK(rc == 0 || is_passing(rc) || rc == -EMSGSIZE, "a buffered write: %d", rc);
        if (rc < 0)
            fiber_writer_clear(&writer);
    }
    left = fiber_writer_finish(&writer);
    CHECK(left >= 0 && (uint64_t)left <= c->written, "fiber_writer_finish: %lld", (long long)left);
    c->written -= (uint64_t)left;
    return 0;
}

static int64_t read_buffered(void *arg)
{
    struct side *s = arg;
    struct channel *c = s->channel;
    struct random *r = &s->random;
    char buffer[300], data[700];
    struct fiber_reader reader;
    int rc = fiber_reader_init(&reader, c->in, -1, buffer, 1 + below(r, sizeof buffer));

    CHECK(rc == 0, "fiber_reader_init: %d", rc);
    while (fiber_check() == 0 && s->steps-- > 0) {
        size_t len = 1 + below(r, sizeof data), done = 0;
        const void *seen;

        switch (below(r, 4)) {
        case 0:
            rc = fiber_reader_byte(&reader, soon(r));
            data[0] = (char)rc;
            done = rc >= 0;
            break;
        case 1:
            len = 1 + len % 40;
            rc = fiber_reader_peek(&reader, len, &seen, soon(r));
            if (rc == 0) {
                memcpy(data, seen, len);
                CHECK(fiber_reader_consume(&reader, len) == 0,
                      "there are fewer bytes than were shown");
                done = len;
            }
            break;
        case 2:
            rc = fiber_reader_read(&reader, data, len, soon(r));
            done = rc > 0 ? (size_t)rc : 0;
            break;
        default:
            rc = fiber_reader_read_all(&reader, data, len, &done, soon(r));
            CHECK(done <= len && (rc < 0 || done == len), "%zu of %zu bytes taken: %d", done, len,
                  rc);
            break;
        }
        channel_check(c, data, done);
        CHECK(c->read == fiber_reader_position(&reader), "a reader's position is wrong");
        CHECK(rc >= 0 || is_passing(rc) || rc == -EMSGSIZE, "a buffered read: %d", rc);
        if (rc < 0)
            fiber_reader_clear(&reader);
    }
    rc = fiber_reader_finish(&reader);
    CHECK(rc >= 0, "fiber_reader_finish: %d", rc);
    c->read += (unsigned)rc;
    return 0;
}

static void buffered_bytes(struct random *r)
{
    struct channel c;
    struct side reader = {.channel = &c}, writer = {.channel = &c};
    struct fiber_scope scope;

    channel_open(r, &c);
    reader.random = fork_random(r);
    writer.random = fork_random(r);
    reader.steps = 1 + below(r, 30);
    writer.steps = 1 + below(r, 30);
    open_scope(r, &scope);
    fiber_scope_spawn(&scope, read_buffered, &reader);
    fiber_scope_spawn(&scope, write_buffered, &writer);
    close_scope(r, &scope);
    channel_close(r, &c);
}

/* ---- promises that nobody keeps ---- */

static void abandoned(struct random *r)
{
    struct meeting m = {0};
    char port[16], name[64], buf[6][64];
    struct channel c;

    channel_open(r, &c);
    listen_somewhere(r, &m);
    snprintf(port, sizeof port, "%d",
             m.address.any.sa_family == AF_INET ? ring_local_port(m.listener) : 1);
    snprintf(name, sizeof name, "@%.60s",
             m.address.any.sa_family == AF_UNIX ? m.address.local.sun_path + 1 : "nobody");
    for (int i = 0; i < 6; i++) {
        weft_time deadline = one_in(r, 3) ? soon(r) : WEFT_FOREVER;
        unsigned kind = below(r, 7);
        bool makes_fd = kind >= 2;
        union weft_value value;
        struct promise *p;

        count_operation();
        disturb(r);
        switch (kind) {
        case 0:
            p = promise_read(c.in, buf[i], sizeof buf[i], -1, deadline);
            break;
        case 1:
            p = promise_read_all(c.in, buf[i], sizeof buf[i], -1, NULL, deadline);
            break;
        case 2:
            p = promise_accept(m.listener, NULL, NULL, 0, deadline);
            break;
        case 3:
            p = promise_openat(AT_FDCWD, "/dev/null", O_RDONLY, 0, deadline);
            break;
        case 4:
            p = promise_socket(AF_INET, SOCK_STREAM, 0, deadline);
            break;
        case 5:
            p = promise_connect_unix(name, soon(r));
            break;
        default:
            p = promise_connect_host("127.0.0.1", port, soon(r));
            break;
        }
        linger(r);
        if (one_in(r, 3))
            promise_cancel(p);
        if (makes_fd && promise_poll(p, &value, NULL) == PROMISE_FULFILLED)
            close((int)value.num); /* it came in time */
        promise_unref(p);
        if (one_in(r, 4))
            CHECK(write(c.out, "x", 1) == 1, "write: %s", strerror(errno));
    }
    close_somehow(r, m.listener);
    close_somehow(r, c.in); /* now the buffers are nobody's but ours */
    close_somehow(r, c.out);
    channel_forget(&c);
}

/* ---- timers ---- */

static int64_t doze(void *arg)
{
    return fiber_sleep((int64_t)(intptr_t)arg);
}

static void timers(struct random *r)
{
    struct promise *promises[8];

    soak.operations += 8;
    for (int i = 0; i < 8; i++) {
        intptr_t ns = below(r, 2000000);

        promises[i] = one_in(r, 2) ? promise_sleep(ns) : fiber_spawn(doze, (void *)ns);
    }
    linger(r);
    for (int i = 0; i < 8; i++) {
        if (one_in(r, 2))
            promise_cancel(promises[i]);
        int rc = await_shielded(promises[i], NULL);
        CHECK(rc == 0 || rc == -ECANCELED, "a sleep: %d", rc);
    }
}

/* ---- all of them ---- */

void scenario(struct random *r)
{
    static void (*const all[])(struct random *) = {
        disturbed_bytes, all_bytes, promised_bytes, buffered_bytes, bytes_of_a_file,
        spliced_bytes,   messages,  closing,        pairs,          connections,
        abandoned,       file,      streams,        readiness,      timers,
    };

    soak.scenarios++;
    all[below(r, sizeof all / sizeof all[0])](r);
}
