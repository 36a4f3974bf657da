/* exchange_libuv.c: the exchange with libuv, as its documentation has one write an echo server, and
 * quick: reading is started once and never stopped; a message is sent with uv_try_write, and with
 * uv_write only what the socket doesn't take at once; a read has room for one byte more than can be
 * there, which spares libuv the read that would find nothing.
 */
#include "../exchange.h"

#include <uv.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct side {
    const struct exchange *exchange;
    const struct exchange_side *io;
    union {
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } handle;
    uv_write_t write;
    size_t got;
    long left; /* round trips */
    int *unfinished;
};

static void check(int result, const char *what)
{
    if (result < 0)
        bench_die("%s: %s", what, uv_strerror(result));
}

static void round_over(struct side *side)
{
    if (--side->left == 0 && --*side->unfinished == 0)
        uv_stop(side->handle.stream.loop);
}

static void sent(struct side *side)
{
    if (!side->io->client)
        round_over(side);
}

static void written(uv_write_t *write, int status)
{
    check(status, "uv_write");
    sent(write->data);
}

static void send_message(struct side *side)
{
    uv_buf_t buffer = uv_buf_init(side->io->buffer, (unsigned)side->exchange->bytes);
    const int result = uv_try_write(&side->handle.stream, &buffer, 1);

    if (result == (int)side->exchange->bytes) {
        sent(side);
        return;
    }
    if (result != UV_EAGAIN)
        check(result, "uv_try_write");
    if (result > 0) {
        buffer.base += result;
        buffer.len -= (size_t)result;
    }
    side->write.data = side;
    check(uv_write(&side->write, &side->handle.stream, &buffer, 1, written), "uv_write");
}

static void give_room(uv_handle_t *handle, size_t suggested, uv_buf_t *room)
{
    const struct side *side = handle->data;

    (void)suggested;
    room->base = side->io->buffer + side->got;
    room->len = side->exchange->bytes - side->got + EXCHANGE_SLACK;
}

static void received(uv_stream_t *stream, ssize_t count, const uv_buf_t *room)
{
    struct side *side = stream->data;

    (void)room;
    if (count == 0)
        return;
    check((int)count, "uv_read");
    side->got += (size_t)count;
    if (side->got < side->exchange->bytes)
        return;
    side->got = 0;
    if (side->io->client)
        round_over(side);
    if (side->left > 0)
        send_message(side);
}

static void open_side(uv_loop_t *loop, struct side *side)
{
    const int fd = dup(side->io->fd); /* libuv closes it */

    if (side->exchange->tcp) {
        check(uv_tcp_init(loop, &side->handle.tcp), "uv_tcp_init");
        check(uv_tcp_open(&side->handle.tcp, fd), "uv_tcp_open");
    } else {
        check(uv_pipe_init(loop, &side->handle.pipe, 0), "uv_pipe_init");
        check(uv_pipe_open(&side->handle.pipe, fd), "uv_pipe_open");
    }
    side->handle.stream.data = side;
    check(uv_read_start(&side->handle.stream, give_room, received), "uv_read_start");
}

void exchange_libuv(const struct exchange *exchange, const struct exchange_impl *impl,
                    struct exchange_result *result)
{
    const int count = 2 * exchange->pairs;
    struct side *sides = calloc((size_t)count, sizeof(*sides));
    int unfinished = count;
    uv_loop_t loop;

    (void)impl;
    if (sides == NULL)
        bench_die("out of memory");
    check(uv_loop_init(&loop), "uv_loop_init");
    for (int i = 0; i < count; i++) {
        sides[i].exchange = exchange;
        sides[i].io = &exchange->sides[i];
        sides[i].left = exchange->trips;
        sides[i].unfinished = &unfinished;
        open_side(&loop, &sides[i]);
    }
    result->ns = bench_now();
    for (int i = 0; i < count; i++)
        if (sides[i].io->client)
            send_message(&sides[i]);
    uv_run(&loop, UV_RUN_DEFAULT);
    result->ns = bench_now() - result->ns;
    for (int i = 0; i < count; i++)
        uv_close((uv_handle_t *)&sides[i].handle, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    check(uv_loop_close(&loop), "uv_loop_close");
    free(sides);
}
