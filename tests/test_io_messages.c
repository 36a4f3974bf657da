/* Descriptors in messages, and pairs of them, belong to somebody at every moment: none is left when
 * the operation is cancelled, the promise dropped, or the runtime at its end. And addresses. */
#include "io_support.h"
#include "letter.h"
#include "ring_internal.h"

#include <weft/io.h>
#include <weft/promise.h>

#include <criterion/criterion.h>

#define COMMA_BEFORE(...) __VA_ARGS__ __VA_OPT__(, )
#define DO(name, ...)     outcome_of(promise_##name(COMMA_BEFORE(__VA_ARGS__) WEFT_FOREVER))

#define ON_EACH_SETUP(body)                                           \
    EACH_IO_SETUP(setup)                                              \
    {                                                                 \
        cr_assert_eq(run_by_hand(setup, body), 0, "%s", setup->name); \
    }

static void drain(void)
{
    while (weft__rt->engine->in_flight > 0)
        turn();
}

/* The last argument of the body below: what becomes of the promise. */
enum fate { KEPT, DROPPED, CANCELLED, DROPPED_CANCELLED, FATES };

/* Receives a message with two descriptors that is there before, or comes after, the receive. */
static void pass(int pair[2], enum fate fate, bool before, bool in_kernel)
{
    int passed[2], got[4], count = 0, res;
    struct letter l, out;
    struct promise *p;

    make_pipe(passed);
    if (before)
        cr_assert_eq(sendmsg(pair[0], letter_with(&out, "hello", passed, 2), 0), 5);
    p = promise_recvmsg(pair[1], letter_to_fill(&l), 0, WEFT_FOREVER);
    if (in_kernel)
        cr_assert_eq(weft__rt->engine->class->turn(weft__rt->engine, WEFT_NOWAIT), 0);
    if (!before)
        cr_assert_eq(sendmsg(pair[0], letter_with(&out, "hello", passed, 2), 0), 5);
    if (fate == CANCELLED || fate == DROPPED_CANCELLED)
        promise_cancel(p);
    if (promise_state(p) == PROMISE_FULFILLED)
        fate = KEPT; /* it is the holder's already */
    if (fate == DROPPED || fate == DROPPED_CANCELLED) {
        promise_unref(p);
        drain();
    } else {
        res = outcome_of(p);
        cr_assert(res == 5 || (fate == CANCELLED && res == -ECANCELED), "%d", res);
        if (res == 5) {
            count = (int)letter_fds(&l, got);
            cr_assert_eq(count, 2, "completion beats a cancel, descriptors and all");
        }
    }
    if (fate != KEPT && count == 0) /* nobody shall find them in there */
        cr_assert(l.header.msg_controllen == 0 || l.header.msg_controllen == sizeof l.control);
    while (count > 0)
        close(got[--count]);
    /* if it was cancelled in time, the message is still there, with its descriptors */
    if (recvmsg(pair[1], letter_to_fill(&l), MSG_DONTWAIT) == 5)
        for (count = (int)letter_fds(&l, got); count > 0;)
            close(got[--count]);
    close_pair(passed);
}

static void pass_body(void)
{
    int before = open_descriptors(), pair[2];

    make_pair(pair);
    for (int i = 0; i < 50; i++)
        for (int fate = 0; fate < FATES; fate++)
            for (int how = 0; how < 4; how++)
                pass(pair, (enum fate)fate, how & 1, how & 2);
    close_pair(pair);
    cr_assert_eq(open_descriptors(), before);
}

Test(io_messages, no_descriptor_is_lost)
{
    ON_EACH_SETUP(pass_body);
}

/* The same at the end of the runtime: a promise that somebody holds, but nobody looks at any more. */
static int end_pair[2], end_count;
static struct letter end_letters[4];
static struct promise *end_promises[4];

static void end_body(void)
{
    int passed[2];
    struct letter out;

    make_pair(end_pair);
    make_pipe(passed);
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(sendmsg(end_pair[0], letter_with(&out, "hello", passed, 2), 0), 5);
        end_promises[i] =
            promise_recvmsg(end_pair[1], letter_to_fill(&end_letters[i]), 0, WEFT_FOREVER);
        if (i % 2)
            promise_unref(end_promises[i]);
    }
    close_pair(passed);
}

Test(io_messages, the_end_closes_what_came)
{
    EACH_IO_SETUP(setup)
    {
        int before = open_descriptors();

        cr_assert_eq(run_by_hand(setup, end_body), 0, "%s", setup->name);
        close_pair(end_pair);
        cr_assert_eq(open_descriptors(), before, "%s", setup->name);
        for (int i = 0; i < 4; i++)
            cr_assert_eq(letter_fds(&end_letters[i], &end_count), 0);
    }
}

/* More descriptors than there is room for: the kernel closes the rest, and says so. */
static void cut_body(void)
{
    int before = open_descriptors(), pair[2], many[3], got[4];
    struct letter l, out;

    make_pair(pair);
    for (int i = 0; i < 3; i++)
        many[i] = dup(pair[0]);
    cr_assert_eq(sendmsg(pair[0], letter_with(&out, "x", many, 3), 0), 1);
    letter_to_fill(&l)->msg_controllen = CMSG_SPACE(2 * sizeof(int));
    cr_assert_eq(DO(recvmsg, pair[1], &l.header, 0), 1);
    cr_assert(l.header.msg_flags & MSG_CTRUNC);
    cr_assert_eq(letter_fds(&l, got), 2);
    close_pair(got);
    /* and dropped */
    cr_assert_eq(sendmsg(pair[0], letter_with(&out, "x", many, 3), 0), 1);
    letter_to_fill(&l)->msg_controllen = CMSG_SPACE(2 * sizeof(int));
    promise_unref(promise_recvmsg(pair[1], &l.header, 0, WEFT_FOREVER));
    drain();
    for (int i = 0; i < 3; i++)
        close(many[i]);
    close_pair(pair);
    cr_assert_eq(open_descriptors(), before);
}

Test(io_messages, more_descriptors_than_room)
{
    ON_EACH_SETUP(cut_body);
}

/* Pairs that nobody takes. */
static int pairs[40][2];

static void pairs_body(void)
{
    for (int i = 0; i < 40; i++) {
        struct promise *p =
            i % 2 ? promise_pipe(pairs[i], 0, WEFT_FOREVER)
                  : promise_socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i], WEFT_FOREVER);

        if (i % 3 == 0)
            promise_cancel(p);
        promise_unref(p);
        if (i == 29)
            drain(); /* the others meet the end */
    }
}

Test(io_messages, pairs_for_nobody_are_closed)
{
    EACH_IO_SETUP(setup)
    {
        int before = open_descriptors();

        cr_assert_eq(run_by_hand(setup, pairs_body), 0, "%s", setup->name);
        cr_assert_eq(open_descriptors(), before, "%s", setup->name);
    }
}

/* recvfrom: where the datagram came from; a buffer or an address that is too short */
static void recvfrom_body(void)
{
    struct sockaddr_storage to, from;
    socklen_t len = loopback(&to, false, 0), from_len;
    int a = DO(socket, AF_INET, SOCK_DGRAM, 0), b = DO(socket, AF_INET, SOCK_DGRAM, 0), pair[2];
    struct promise *p;
    char buf[8];

    cr_assert_eq(DO(bind_fd, a, (struct sockaddr *)&to, len), 0);
    cr_assert_eq(DO(bind_fd, b, (struct sockaddr *)&to, len), 0);
    loopback(&to, false, ring_local_port(b));
    for (int waits = 0; waits < 2; waits++) {
        if (!waits)
            cr_assert_eq(DO(sendto, a, "ping", 4, 0, (struct sockaddr *)&to, len), 4);
        from_len = sizeof from;
        p = promise_recvfrom(b, buf, sizeof buf, 0, (struct sockaddr *)&from, &from_len,
                             WEFT_FOREVER);
        if (waits)
            cr_assert_eq(DO(sendto, a, "ping", 4, 0, (struct sockaddr *)&to, len), 4);
        cr_assert_eq(outcome_of(p), 4);
        cr_assert_eq(from_len, len);
        cr_assert_eq(ntohs(((struct sockaddr_in *)&from)->sin_port), ring_local_port(a));
    }
    cr_assert_eq(DO(sendto, a, "ping", 4, 0, (struct sockaddr *)&to, len), 4);
    from_len = 2;
    cr_assert_eq(DO(recvfrom, b, buf, 2, 0, (struct sockaddr *)&from, &from_len), 2);
    cr_assert_eq(from_len, len, "as long as it would be");
    cr_assert_eq(DO(sendto, a, "ping", 4, 0, (struct sockaddr *)&to, len), 4);
    cr_assert_eq(DO(recvfrom, b, buf, sizeof buf, 0, NULL, NULL), 4);
    cr_assert_eq(DO(recvfrom, b, buf, sizeof buf, MSG_DONTWAIT, NULL, NULL), -EAGAIN);
    cr_assert_eq(DO(recvfrom, b, NULL, 1, 0, NULL, NULL), -EFAULT);
    cr_assert_eq(DO(recvfrom, b, buf, 1, 0, (struct sockaddr *)&from, NULL), -EFAULT);
    cr_assert_eq(DO(recvfrom, -1, buf, 1, 0, NULL, NULL), -EBADF);
    make_pair(pair);
    close(pair[1]);
    cr_assert_eq(DO(recvfrom, pair[0], buf, 1, 0, NULL, NULL), 0);
    close(pair[0]);
    close(a);
    close(b);
}

Test(io_messages, where_a_datagram_came_from)
{
    ON_EACH_SETUP(recvfrom_body);
}
