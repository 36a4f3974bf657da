/* Zero copy: the bytes are the caller's again when the operation is over, and not before. */
#include "io_support.h"
#include "ring_internal.h"

#include <criterion/criterion.h>

enum { SIZE = 4 << 20 };

static char out[SIZE], in[SIZE];
static int tcp[2];

static char byte_at(size_t i)
{
    return (char)(i * 31 >> 3 ^ i >> 11);
}

/* A connection whose sender holds a lot and whose receiver holds little. */
static void make_slow(void)
{
    const int much = 16 << 20, little = 1 << 17;

    make_tcp(tcp);
    setsockopt(tcp[0], SOL_SOCKET, SO_SNDBUF, &much, sizeof much);
    setsockopt(tcp[1], SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
}

/* Sends everything, in as many operations as it takes, each from a buffer that is poisoned as soon as
 * its operation is over; reads slowly meanwhile. */
static void poison_body(void)
{
    size_t sent = 0, received = 0, pieces = 0, good;
    struct kept send;

    make_slow();
    for (size_t i = 0; i < SIZE; i++)
        out[i] = byte_at(i);
    keep(&send);
    cr_assert_eq(ring_send_zc(&send.op, tcp[0], out, SIZE, 0), 0);
    while (received < SIZE) {
        ssize_t n;

        cr_assert_eq(weft__rt->engine->class->turn(weft__rt->engine, WEFT_NOWAIT), 0);
        if (send.calls > 0 && sent < SIZE) {
            cr_assert(send.res > 0, "%d", send.res);
            memset(out + sent, 0xee, (size_t)send.res);
            sent += (size_t)send.res;
            pieces++;
            keep(&send);
            if (sent < SIZE)
                cr_assert_eq(ring_send_zc(&send.op, tcp[0], out + sent, SIZE - sent, 0), 0);
        }
        n = recv(tcp[1], in + received, 10000, MSG_DONTWAIT);
        cr_assert(n > 0 || errno == EAGAIN);
        received += n > 0 ? (size_t)n : 0;
    }
    while (sent < SIZE) {
        sent += (size_t)result_of(&send);
        pieces++;
    }
    for (good = 0; good < SIZE && in[good] == byte_at(good); good++)
        ;
    cr_assert_eq(good, SIZE, "byte %zu, of %zu pieces", good, pieces);
    close_pair(tcp);
}

Test(io_zero_copy, a_buffer_is_given_back_when_it_is_over)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, poison_body), 0, "%s", setup->name);
    }
}

/* The result has come, the peer has not read: a request for the end doesn't give the buffer back. */
static bool is_copied;

static void turn_often(void)
{
    for (int i = 0; i < 100; i++)
        cr_assert_eq(weft__rt->engine->class->turn(weft__rt->engine, WEFT_NOWAIT), 0);
}

static void held_body(void)
{
    struct kept send;
    size_t received = 0;

    make_slow();
    memset(out, 'x', SIZE);
    cr_assert_eq(ring_send_zc(&keep(&send)->op, tcp[0], out, 1 << 20, 0), 0);
    turn_often();
    if (!is_copied) {
        cr_assert_eq(send.calls, 0);
        ring_cancel(&send.op);
        turn_often();
        cr_assert_eq(send.calls, 0);
    }
    while (send.calls == 0 || received < (size_t)send.res) {
        ssize_t n = recv(tcp[1], in, 1 << 16, MSG_DONTWAIT);

        cr_assert_eq(weft__rt->engine->class->turn(weft__rt->engine, WEFT_NOWAIT), 0);
        received += n > 0 ? (size_t)n : 0;
    }
    cr_assert_eq(send.res, (int)received, "what was done is told");
    close_pair(tcp);
}

Test(io_zero_copy, a_cancel_does_not_give_it_back)
{
    EACH_IO_SETUP(setup)
    {
        is_copied = is_plain(setup);
        cr_assert_eq(run_by_hand(setup, held_body), 0, "%s", setup->name);
    }
}
