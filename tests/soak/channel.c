/* channel.c: a way for bytes, and the model of what is in it. */
#include "soak.h"

static char byte_at(const struct channel *c, uint64_t position)
{
    return (char)(position * 31 + (position >> 8) * 7 + (position >> 16) + c->id * 59u);
}

void channel_fill(const struct channel *c, char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = byte_at(c, c->written + i);
}

static struct channel *channels;

static void describe(const struct channel *c)
{
    fprintf(stderr,
            "  channel %d -> %d: %llu bytes written and %zu perhaps, last by %s; %llu read, last "
            "by %s\n",
            c->out, c->in, (unsigned long long)c->written, c->writing, c->last_write,
            (unsigned long long)c->read, c->last_read);
    if (c->reader != NULL)
        fprintf(stderr, "    reads: %s\n", c->reader->text);
}

void list_channels(void)
{
    for (const struct channel *c = channels; c != NULL; c = c->next)
        describe(c);
}

static void wrong(const struct channel *c, const char *what)
{
    describe(c);
    fail("channel %d -> %d: %s", c->out, c->in, what);
}

void channel_check(struct channel *c, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != byte_at(c, c->read + i))
            wrong(c, "a byte is not the one that was written");
    c->read += len;
    if (c->read > c->written + c->writing)
        wrong(c, "more is read than was written");
}

static void open_tcp(struct channel *c)
{
    int listener = ring_listen("127.0.0.1", "0", 1);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    CHECK(listener >= 0, "ring_listen: %d", listener);
    address.sin_port = htons((uint16_t)ring_local_port(listener));
    c->out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(connect(c->out, (struct sockaddr *)&address, sizeof address) == 0, "connect: %s",
          strerror(errno));
    c->in = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(c->in >= 0, "accept: %s", strerror(errno));
    close(listener);
}

void channel_open(struct random *r, struct channel *c)
{
    const int small = 4096;
    int fds[2];

    memset(c, 0, sizeof *c);
    c->next = channels;
    c->link = &channels;
    if (c->next != NULL)
        c->next->link = &c->next;
    channels = c;
    c->id = (uint8_t)below(r, 256);
    c->is_socket = true;
    switch (below(r, 3)) {
    case 0:
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0, "socketpair: %s",
              strerror(errno));
        c->in = fds[0];
        c->out = fds[1];
        break;
    case 1:
        open_tcp(c);
        break;
    default:
        CHECK(pipe2(fds, O_CLOEXEC) == 0, "pipe: %s", strerror(errno));
        c->in = fds[0];
        c->out = fds[1];
        c->is_socket = false;
        break;
    }
    /* so that writers have to wait */
    if (!c->is_socket)
        fcntl(c->out, F_SETPIPE_SZ, small);
    else if (one_in(r, 2))
        setsockopt(c->out, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    if (one_in(r, 3))
        fcntl(c->in, F_SETFL, O_NONBLOCK);
    if (one_in(r, 3))
        fcntl(c->out, F_SETFL, O_NONBLOCK);
}

void channel_forget(struct channel *c)
{
    *c->link = c->next;
    if (c->next != NULL)
        c->next->link = c->link;
}

/* Memory whose bytes stay what they are, once the operation is over. */
#define POISON 0x5d

static void poison(struct random *r, char *buf, size_t len)
{
    memset(buf, POISON, len);
    if (one_in(r, 4)) {
        linger(r);
        for (size_t i = 0; i < len; i++)
            CHECK(buf[i] == POISON, "memory was written to after the operation was over");
    }
}

#define ALWAYS_ROOM 30000 /* bytes that a socket takes that nobody reads */

static size_t random_length(struct random *r, size_t most)
{
    size_t len = one_in(r, 8) ? 1 + below(r, 30000) : 1 + below(r, 300);

    return len < most ? len : most;
}

static void split(struct random *r, struct operation *op)
{
    char *at = op->buf;
    size_t left = op->len;

    op->pieces = 1 + (int)below(r, 3);
    for (int i = 0; i < op->pieces; i++) {
        size_t len = i + 1 == op->pieces ? left : below(r, (unsigned)left + 1);

        op->iov[i] = (struct iovec){at, len};
        at += len;
        left -= len;
    }
    op->message = (struct msghdr){.msg_iov = op->iov, .msg_iovlen = (size_t)op->pieces};
}

/* A buffer of the heap, or on the calling fiber's stack. */
static int transfer(struct random *r, struct operation *op, struct channel *c,
                    int (*with_buffer)(struct random *, struct operation *, struct channel *))
{
    char here[512];
    int res;

    if (op->len <= sizeof here && one_in(r, 2)) {
        op->buf = here;
        res = with_buffer(r, op, c);
        poison(r, here, op->len);
    } else {
        op->buf = malloc(op->len);
        CHECK(op->buf != NULL, "no memory");
        res = with_buffer(r, op, c);
        poison(r, op->buf, op->len);
        free(op->buf);
    }
    return res;
}

static int write_from(struct random *r, struct operation *op, struct channel *c)
{
    int res;

    channel_fill(c, op->buf, op->len);
    split(r, op);
    c->writing = op->len;
    res = perform(r, op);
    c->writing = 0;
    memcpy(c->last_write, op->text, sizeof c->last_write);
    if (res > 0) {
        CHECK((size_t)res <= op->len, "%d bytes of %zu written", res, op->len);
        c->written += (unsigned)res;
    }
    return res;
}

/* The file has the channel's bytes from its beginning on. */
static int send_from_file(struct random *r, struct operation *op, struct channel *c)
{
    int res;

    op->what = OP_sendfile;
    op->from = c->file;
    op->offset = (int64_t)c->written;
    c->writing = op->len;
    res = perform(r, op);
    c->writing = 0;
    memcpy(c->last_write, op->text, sizeof c->last_write);
    if (res > 0) {
        CHECK((size_t)res <= op->len, "%d bytes of %zu sent", res, op->len);
        c->written += (unsigned)res;
    }
    return res;
}

int channel_write(struct random *r, struct channel *c, bool certain, size_t most)
{
    static const enum what on_sockets[] = {OP_send,     OP_write,     OP_writev,  OP_send_all,
                                           OP_send_all, OP_write_all, OP_sendmsg, OP_send_zc};
    static const enum what on_pipes[] = {OP_write, OP_writev, OP_write_all};
    struct operation op = {.fd = c->out, .offset = -1, .certain = certain};

    op.len = random_length(r, most);
    if (c->file > 0 && one_in(r, 2))
        return send_from_file(r, &op, c);
    op.what = c->is_socket && !c->two_hops ? on_sockets[below(r, 8)] : on_pipes[below(r, 3)];
    /* it is over when the peer has the bytes, which needs room there: nobody may be reading */
    if (op.what == OP_send_zc && c->written + op.len > c->read + ALWAYS_ROOM)
        op.what = OP_send;
    if ((op.what == OP_send || op.what == OP_send_all) && one_in(r, 6))
        op.flags = MSG_DONTWAIT;
    return transfer(r, &op, c, write_from);
}

static int read_into(struct random *r, struct operation *op, struct channel *c)
{
    int res;

    memset(op->buf, 0, op->len);
    split(r, op);
    c->reader = op;
    res = perform(r, op);
    c->reader = NULL;
    memcpy(c->last_read, op->text, sizeof c->last_read);
    if (res > 0) {
        CHECK((size_t)res <= op->len, "%d bytes of %zu read", res, op->len);
        channel_check(c, op->buf, (size_t)res);
        if (op->flags & MSG_PEEK)
            c->read -= (unsigned)res;
    }
    return res;
}

int channel_read(struct random *r, struct channel *c, bool certain, size_t most)
{
    static const enum what on_sockets[] = {OP_recv,     OP_read,     OP_readv,
                                           OP_recv_all, OP_read_all, OP_recvmsg};
    static const enum what on_pipes[] = {OP_read, OP_readv, OP_read_all};
    struct operation op = {.fd = c->in, .offset = -1};
    uint64_t there = c->written > c->read ? c->written - c->read : 0;

    op.len = random_length(r, most);
    op.what = c->is_socket && !c->two_hops ? on_sockets[below(r, 6)] : on_pipes[below(r, 3)];
    if (c->two_hops) /* there is another hop in between */
        there = 0;
    op.certain = certain || (op.what < OP_exact ? there > 0 : there >= op.len);
    if (op.what == OP_recv || op.what == OP_recv_all) {
        switch (below(r, 8)) {
        case 0:
            op.flags = MSG_DONTWAIT;
            break;
        case 1:
            op.flags = MSG_WAITALL;
            op.certain = certain || there >= op.len;
            break;
        case 2:
            op.flags = op.what == OP_recv ? MSG_PEEK : 0;
            break;
        default:
            break;
        }
    }
    return transfer(r, &op, c, read_into);
}

void channel_close(struct random *r, struct channel *c)
{
    char buf[4096];
    int n;

    close_somehow(r, c->out);
    fcntl(c->in, F_SETFL, 0);
    while ((n = (int)read(c->in, buf, sizeof buf)) != 0) {
        CHECK(n > 0 || errno == EINTR, "channel %d: the rest cannot be read: %s", c->in,
              strerror(errno));
        if (n > 0)
            channel_check(c, buf, (size_t)n);
    }
    if (c->read != c->written)
        wrong(c, "not all that was written can be read");
    close_somehow(r, c->in);
    channel_forget(c);
}
