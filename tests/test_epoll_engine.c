/* What is the epoll engine's own: lines of those who wait, registrations that stay, descriptors that
 * are closed behind its back, and files that are never ready. What all engines do alike is tested on
 * each of them elsewhere. */
#include "denied.h"
#include "io_support.h"
#include "ring_internal.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static const struct setup epoll = {"epoll", "epoll", 0, 0, 0};

#define EPOLL_TEST(name)                                                        \
    static void name##_body(void);                                              \
    Test(epoll_engine, name)                                                    \
    {                                                                           \
        cr_assert_eq(run_by_hand(&epoll, name##_body), 0, "%s", report_text()); \
    }                                                                           \
    static void name##_body(void)

static void turn_once(void)
{
    cr_assert_eq(weft__rt->engine->class->turn(weft__rt->engine, WEFT_NOWAIT), 0);
}

/* Lets the engine go to sleep: registrations are confirmed. */
static void sleep_once(void)
{
    cr_assert_eq(weft__rt->engine->class->turn(weft__rt->engine, weft_after(WEFT_US(100))), 0);
}

static uint64_t enters(void)
{
    struct weft_stats stats = {.size = sizeof stats};

    cr_assert_eq(weft_stats(&stats), 0);
    return stats.enters;
}

/* What the engine's epoll instance watches, as the kernel tells it: the number of descriptors, and
 * the events of `fd`, 0 if it is not among them. (The framework has an older instance.) */
static int watched(int fd, unsigned *events)
{
    char path[64], line[256];
    int count = 0, newest = -1;
    FILE *info;

    for (int i = 0; i < 64; i++) {
        ssize_t n;

        snprintf(path, sizeof path, "/proc/self/fd/%d", i);
        n = readlink(path, line, sizeof line - 1);
        line[n > 0 ? n : 0] = '\0';
        if (strcmp(line, "anon_inode:[eventpoll]") == 0)
            newest = i;
    }
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", newest);
    info = fopen(path, "re");
    cr_assert_not_null(info);
    *events = 0;
    while (fgets(line, sizeof line, info) != NULL) {
        unsigned mask;
        int target;

        if (sscanf(line, "tfd: %d events: %x", &target, &mask) == 2) {
            count++;
            if (target == fd)
                *events = mask;
        }
    }
    fclose(info);
    return count;
}

static void start_recv(struct kept *kept, int fd, void *buf, size_t len)
{
    cr_assert_eq(ring_recv(&keep(kept)->op, fd, buf, len, 0), 0);
}

/* ---- lines ---- */

/* Two receives are served in the order they began; sends stand in a line of their own. */
EPOLL_TEST(receives_are_served_in_order)
{
    struct kept receives[4], send;
    char bytes[4][2];
    int pair[2];

    make_pair(pair);
    for (int i = 0; i < 4; i++)
        start_recv(&receives[i], pair[0], bytes[i], 2);
    turn_once();
    cr_assert_eq(ring_send(&keep(&send)->op, pair[0], "out", 3, 0), 0);
    cr_assert_eq(result_of(&send), 3, "the other direction is free");
    cr_assert_eq(write(pair[1], "0", 1), 1);
    cr_assert_eq(result_of(&receives[0]), 1);
    cr_assert_eq(receives[1].calls, 0);
    /* one more byte than two of them take: the last one waits on */
    cr_assert_eq(write(pair[1], "1122", 4), 4);
    cr_assert_eq(result_of(&receives[1]), 2);
    cr_assert_eq(result_of(&receives[2]), 2);
    cr_assert_eq(receives[3].calls, 0);
    /* what is not to wait goes behind those that do */
    cr_assert_eq(write(pair[1], "33", 2), 2);
    cr_assert_eq(ring_recv(&keep(&receives[0])->op, pair[0], bytes[0], 2, MSG_DONTWAIT), 0);
    cr_assert_eq(result_of(&receives[0]), -EAGAIN);
    cr_assert_eq(receives[3].calls, 1);
    cr_assert(memcmp(bytes[1], "11", 2) == 0 && memcmp(bytes[2], "22", 2) == 0 &&
              memcmp(bytes[3], "33", 2) == 0);
    start_recv(&receives[3], pair[0], bytes[3], 2);
    turn_once();
    cr_assert_eq(write(pair[1], "4", 1), 1);
    start_recv(&receives[0], pair[0], bytes[0], 2);
    ring_cancel(&receives[0].op);
    cr_assert_eq(result_of(&receives[0]), -ECANCELED, "the byte is the other one's");
    cr_assert_eq(receives[3].calls, 1);
    /* and yet does what it can at once */
    start_recv(&receives[3], pair[0], bytes[3], 2);
    turn_once();
    cr_assert_eq(write(pair[1], "5566", 4), 4);
    cr_assert_eq(ring_recv(&keep(&receives[0])->op, pair[0], bytes[0], 2, MSG_DONTWAIT), 0);
    cr_assert_eq(result_of(&receives[0]), 2);
    cr_assert_eq(receives[3].calls, 1);
    cr_assert(memcmp(bytes[3], "55", 2) == 0 && memcmp(bytes[0], "66", 2) == 0);
    /* one that comes when there are bytes for the one before it */
    start_recv(&receives[3], pair[0], bytes[3], 2);
    turn_once();
    cr_assert_eq(write(pair[1], "7", 1), 1);
    start_recv(&receives[0], pair[0], bytes[0], 2);
    turn_once();
    cr_assert(receives[3].calls == 1 && receives[0].calls == 0);
    cr_assert_eq(write(pair[1], "8", 1), 1);
    cr_assert_eq(result_of(&receives[0]), 1);
    cr_assert(bytes[3][0] == '7' && bytes[0][0] == '8');
    close_pair(pair);
}

/* The same on what is no stream socket. */
EPOLL_TEST(reads_of_a_pipe_are_served_in_order)
{
    struct kept reads[3];
    char bytes[3];
    int ends[2];

    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(ring_read(&keep(&reads[i])->op, ends[0], &bytes[i], 1, -1), 0);
    turn_once();
    cr_assert_eq(write(ends[1], "ab", 2), 2);
    cr_assert_eq(ring_read(&keep(&reads[2])->op, ends[0], &bytes[2], 1, -1), 0);
    cr_assert_eq(result_of(&reads[0]), 1);
    cr_assert_eq(result_of(&reads[1]), 1);
    cr_assert_eq(reads[2].calls, 0);
    cr_assert(bytes[0] == 'a' && bytes[1] == 'b');
    cr_assert_eq(write(ends[1], "c", 1), 1);
    cr_assert_eq(result_of(&reads[2]), 1);
    close_pair(ends);
}

static char block[1 << 16];

/* Sends that wait are continued in order: the bytes of two never mix. */
EPOLL_TEST(sends_are_served_in_order)
{
    struct kept first, second;
    char buf[4096];
    int pair[2], seen = 0;
    ssize_t n;

    make_pair(pair);
    while (send(pair[0], block, sizeof block, MSG_DONTWAIT) > 0)
        ;
    cr_assert_eq(ring_send(&keep(&first)->op, pair[0], "1", 1, 0), 0);
    cr_assert_eq(ring_send(&keep(&second)->op, pair[0], "2", 1, 0), 0);
    turn_once();
    cr_assert(first.calls == 0 && second.calls == 0);
    while (first.calls == 0 || second.calls == 0) {
        while ((n = recv(pair[1], buf, sizeof buf, MSG_DONTWAIT)) > 0)
            seen += buf[n - 1] == '2' && n > 1 ? buf[n - 2] == '1' ? 2 : -100 : 0;
        turn();
    }
    n = recv(pair[1], buf, sizeof buf, MSG_DONTWAIT);
    cr_assert(seen == 2 || (n == 2 && memcmp(buf, "12", 2) == 0), "%d, %zd", seen, n);
    close_pair(pair);
}

/* What waits for something else holds up nobody: out-of-band data, errors, polls. */
EPOLL_TEST(urgent_data_and_errors_have_no_line)
{
    struct kept error, urgent, poll_urgent, poll_end, receive;
    char buf[8], byte;
    int tcp[2];

    make_tcp(tcp);
    cr_assert_eq(ring_poll(&keep(&poll_urgent)->op, tcp[0], POLLPRI), 0);
    cr_assert_eq(ring_poll(&keep(&poll_end)->op, tcp[0], POLLRDHUP), 0);
    cr_assert_eq(ring_recv(&keep(&error)->op, tcp[0], buf, 8, MSG_ERRQUEUE), 0);
    start_recv(&receive, tcp[0], buf, sizeof buf);
    turn_once();
    cr_assert_eq(write(tcp[1], "data", 4), 4);
    cr_assert_eq(result_of(&receive), 4);
    cr_assert(poll_urgent.calls == 0 && poll_end.calls == 0 && error.calls == 0);
    cr_assert_eq(send(tcp[1], "!", 1, MSG_OOB), 1);
    cr_assert_eq(result_of(&poll_urgent), POLLPRI);
    cr_assert_eq(ring_recv(&keep(&urgent)->op, tcp[0], &byte, 1, MSG_OOB), 0);
    cr_assert_eq(result_of(&urgent), 1);
    cr_assert_eq(byte, '!');
    cr_assert_eq(shutdown(tcp[1], SHUT_WR), 0);
    cr_assert_eq(result_of(&poll_end), POLLRDHUP);
    ring_cancel(&error.op);
    cr_assert_eq(result_of(&error), -ECANCELED);
    close_pair(tcp);
}

/* ---- edges ---- */

#define ROUNDS (slow_tools() ? 300 : 20000)

static int edge_pair[2];
static atomic_int answered;

static void *send_often(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        while (atomic_load(&answered) < i)
            sched_yield();
        for (int spin = 0; spin < i % 97; spin++)
            atomic_load(&answered);
        if (send(edge_pair[1], "x", 1, 0) != 1)
            return NULL;
    }
    return unused;
}

/* Data that come at any moment of the way from the attempt to the wait are seen, whether the
 * registration is made, is there, or is confirmed meanwhile. A lost edge is a hang. */
EPOLL_TEST(no_edge_is_lost)
{
    struct kept receive;
    pthread_t thread;
    char byte;

    make_pair(edge_pair);
    atomic_store(&answered, 0);
    cr_assert_eq(pthread_create(&thread, NULL, send_often, NULL), 0);
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 64 == 0) { /* registers anew */
            int copy = dup(edge_pair[0]);

            weft__rt->engine->class->forget(weft__rt->engine, edge_pair[0]);
            close(edge_pair[0]);
            edge_pair[0] = dup(copy);
            close(copy);
        }
        start_recv(&receive, edge_pair[0], &byte, 1);
        atomic_store(&answered, i);
        cr_assert_eq(result_of(&receive), 1);
    }
    pthread_join(thread, NULL);
    close_pair(edge_pair);
}

/* Nor is a wake-up that comes before the engine sleeps: it looks for events twice. */
EPOLL_TEST(no_wake_up_is_lost)
{
    struct weft__engine *engine = weft__rt->engine;
    struct kept receive;
    int pair[2];
    char byte;

    make_pair(pair);
    for (int i = 0; i < 2; i++) { /* the second time its registration is to be confirmed */
        start_recv(&receive, pair[0], &byte, 1);
        engine->class->wake(engine);
        cr_assert_eq(engine->class->turn(engine, WEFT_FOREVER), 0);
        cr_assert_eq(receive.calls, 0);
        ring_cancel(&receive.op);
        cr_assert_eq(result_of(&receive), -ECANCELED);
    }
    close_pair(pair);
}

/* A registration costs one call, once; and what nobody waits for is taken off it. */
EPOLL_TEST(registrations_stay_and_shrink)
{
    struct kept receive;
    unsigned events;
    uint64_t before;
    char byte;
    int pair[2], other[2];

    make_pair(pair);
    make_pair(other);
    start_recv(&receive, pair[0], &byte, 1);
    turn_once();
    cr_assert_eq(watched(pair[0], &events), 2, "the wake-up's, too");
    cr_assert(events & EPOLLIN && events & EPOLLRDHUP && events & EPOLLET);
    cr_assert(!(events & EPOLLOUT), "nobody sends");
    cr_assert_eq(write(pair[1], "x", 1), 1);
    cr_assert_eq(result_of(&receive), 1);
    watched(pair[0], &events);
    cr_assert(events & EPOLLIN, "it stays");

    /* somebody waits elsewhere, so that events are looked for */
    start_recv(&receive, other[0], &byte, 1);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(write(pair[1], "x", 1), 1);
        turn_once();
    }
    watched(pair[0], &events);
    cr_assert(!(events & EPOLLIN), "%x", events);
    /* so it doesn't wake the engine any more, but the next one who waits is told */
    before = enters();
    for (int i = 0; i < 100; i++)
        cr_assert_eq(write(pair[1], "x", 1), 1);
    send_soon(other[1], "x");
    cr_assert_eq(result_of(&receive), 1);
    join_sender();
    cr_assert_leq(enters(), before + 4);
    for (int i = 0; i < 103; i++) {
        start_recv(&receive, pair[0], &byte, 1);
        cr_assert_eq(result_of(&receive), 1);
    }
    start_recv(&receive, pair[0], &byte, 1);
    turn_once();
    cr_assert_eq(write(pair[1], "y", 1), 1);
    cr_assert_eq(result_of(&receive), 1);
    cr_assert_eq(byte, 'y');
    close_pair(pair);
    close_pair(other);
}

/* After a receive that came short the next one isn't even attempted, for nothing is there: unless it
 * is, since the end came with the data, or an urgent byte stands in between. */
EPOLL_TEST(what_is_left_after_a_short_receive)
{
    struct kept receive;
    char buf[8];
    int tcp[2];

    make_tcp(tcp);
    start_recv(&receive, tcp[0], buf, sizeof buf);
    turn_once();
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(send(tcp[1], "abc", 3, 0), 3);
        cr_assert_eq(result_of(&receive), 3);
        start_recv(&receive, tcp[0], buf, sizeof buf);
        turn_once();
        cr_assert_eq(receive.calls, 0);
    }
    cr_assert_eq(send(tcp[1], "de", 2, 0), 2);
    cr_assert_eq(send(tcp[1], "!", 1, MSG_OOB), 1);
    cr_assert_eq(send(tcp[1], "fg", 2, 0), 2);
    cr_assert_eq(result_of(&receive), 2, "up to the mark");
    start_recv(&receive, tcp[0], buf, sizeof buf);
    cr_assert_eq(result_of(&receive), 2, "and beyond");
    start_recv(&receive, tcp[0], buf, sizeof buf);
    turn_once();
    cr_assert_eq(send(tcp[1], "end", 3, 0), 3);
    shutdown(tcp[1], SHUT_WR);
    cr_assert_eq(result_of(&receive), 3);
    start_recv(&receive, tcp[0], buf, sizeof buf);
    cr_assert_eq(result_of(&receive), 0);
    start_recv(&receive, tcp[0], buf, sizeof buf);
    cr_assert_eq(result_of(&receive), 0, "and again");
    close_pair(tcp);
}

/* ---- descriptors closed behind the engine's back ---- */

/* Another file under the same number: `fd` is closed and is one end of a new pair. */
static int replace(int fd)
{
    int pair[2];

    make_pair(pair);
    cr_assert_eq(dup3(pair[0], fd, O_CLOEXEC), fd);
    close(pair[0]);
    return pair[1];
}

EPOLL_TEST(a_number_used_again)
{
    struct kept receive, old;
    int pair[2], peer;
    char byte;

    make_pair(pair);
    for (int i = 0; i < 20; i++) {
        start_recv(&receive, pair[0], &byte, 1);
        turn_once();
        cr_assert_eq(write(pair[1], "1", 1), 1);
        cr_assert_eq(result_of(&receive), 1);
        /* registered, and nobody waits */
        peer = replace(pair[0]);
        close(pair[1]);
        pair[1] = peer;
        start_recv(&receive, pair[0], &byte, 1);
        turn_once();
        if (i % 2) /* it learns of that when it sleeps, or when it has not slept for long */
            send_soon(pair[1], "2");
        else
            cr_assert_eq(write(pair[1], "2", 1), 1);
        while (receive.calls == 0 && i % 4 == 0)
            turn_once();
        cr_assert_eq(result_of(&receive), 1);
        join_sender();
        cr_assert_eq(byte, '2');
    }
    /* somebody waits for the file that is gone */
    start_recv(&old, pair[0], &byte, 1);
    start_recv(&receive, pair[0], &byte, 1);
    sleep_once();
    ring_cancel(&receive.op);
    cr_assert_eq(result_of(&receive), -ECANCELED);
    peer = replace(pair[0]);
    close(pair[1]);
    pair[1] = peer;
    start_recv(&receive, pair[0], &byte, 1);
    send_soon(pair[1], "4");
    cr_assert_eq(result_of(&receive), 1, "the new file's bytes are for who waits for them");
    cr_assert_eq(result_of(&old), -ECANCELED);
    join_sender();
    close_pair(pair);
}

/* Closed, and not used again: a cancel ends what waits; a new operation is refused. */
EPOLL_TEST(a_number_used_no_more)
{
    struct kept receive, waits;
    int pair[2];
    char byte;

    make_pair(pair);
    start_recv(&waits, pair[0], &byte, 1);
    turn_once();
    close_pair(pair);
    turn_once();
    cr_assert_eq(waits.calls, 0);
    start_recv(&receive, pair[0], &byte, 1);
    ring_cancel(&waits.op);
    cr_assert_eq(result_of(&receive), -EBADF);
    cr_assert(result_of(&waits) == -ECANCELED || waits.res == -EBADF);
    cr_assert_eq(weft__rt->engine->in_flight, 0);
}

/* The same, but the old file lives on under another number, and has much to say: the kernel reports
 * it as the new one, until the engine is rid of it. */
EPOLL_TEST(a_number_used_again_whose_file_lives_on)
{
    struct kept receive;
    int pair[2], copy, peer, old_peer;
    unsigned events;
    char byte;

    make_pair(pair);
    copy = dup(pair[0]);
    start_recv(&receive, pair[0], &byte, 1);
    turn_once();
    cr_assert_eq(write(pair[1], "1", 1), 1);
    cr_assert_eq(result_of(&receive), 1);
    old_peer = pair[1];
    peer = replace(pair[0]);
    start_recv(&receive, pair[0], &byte, 1);
    sleep_once();
    cr_assert_eq(watched(pair[0], &events), 3, "the wake-up's, the new one and the old");
    cr_assert_eq(write(peer, "2", 1), 1);
    cr_assert_eq(result_of(&receive), 1);
    start_recv(&receive, pair[0], &byte, 1);
    for (int i = 0; i < 200; i++) {
        cr_assert_eq(write(old_peer, "x", 1), 1);
        turn_once();
    }
    cr_assert_eq(receive.calls, 0);
    send_soon(peer, "3");
    cr_assert_eq(result_of(&receive), 1);
    join_sender();
    cr_assert_eq(watched(pair[0], &events), 2, "the old one is not watched any more");
    start_recv(&receive, copy, &byte, 1);
    cr_assert_eq(result_of(&receive), 1, "its bytes are where they were");
    cr_assert_eq(byte, 'x');
    close(copy);
    close(old_peer);
    close(peer);
    close(pair[0]);
}

/* Two numbers of one file: each waits, one gets the data. */
EPOLL_TEST(a_duplicated_descriptor)
{
    struct kept one, two;
    char buf[2];
    int pair[2], copy;

    make_pair(pair);
    copy = dup(pair[0]);
    start_recv(&one, pair[0], &buf[0], 1);
    start_recv(&two, copy, &buf[1], 1);
    turn_once();
    cr_assert_eq(write(pair[1], "x", 1), 1);
    while (one.calls + two.calls == 0)
        turn();
    cr_assert_eq(one.calls + two.calls, 1);
    cr_assert_eq(write(pair[1], "y", 1), 1);
    cr_assert_eq(result_of(&one), 1);
    cr_assert_eq(result_of(&two), 1);
    close(copy);
    close_pair(pair);
}

/* ring_close ends what waits; the next file of that number is another matter. */
EPOLL_TEST(closing_with_somebody_waiting)
{
    struct kept receive, poll, closing;
    int pair[2];
    char byte;

    make_pair(pair);
    start_recv(&receive, pair[0], &byte, 1);
    cr_assert_eq(ring_poll(&keep(&poll)->op, pair[0], POLLIN), 0);
    turn_once();
    cr_assert_eq(ring_close(&keep(&closing)->op, pair[0]), 0);
    cr_assert_eq(result_of(&closing), 0);
    cr_assert_eq(read(pair[1], &byte, 1), 0, "the peer sees the end");
    cr_assert_eq(result_of(&receive), -ECANCELED);
    cr_assert_eq(result_of(&poll), -ECANCELED);
    close(pair[1]);
}

/* ---- where no event comes ---- */

/* The kernel watches no further descriptor: those who wait get what they wait for, a little later. */
EPOLL_TEST(no_room_for_a_registration)
{
    struct ring__faults *faults = ring__faults(weft__rt);
    struct kept receive, poll, other;
    char byte;
    int pair[2];

    make_pair(pair);
    for (int i = 0; i < 5; i++) {
        faults->no_watch = i;
        start_recv(&receive, pair[0], &byte, 1);
        turn_once();
        cr_assert_eq(faults->no_watch, i == 0 ? 0 : i - 1);
        send_soon(pair[1], "x");
        cr_assert_eq(result_of(&receive), 1);
        join_sender();
        weft__rt->engine->class->forget(weft__rt->engine, pair[0]);
    }
    /* and each for itself */
    faults->no_watch = 1000000;
    start_recv(&receive, pair[0], &byte, 1);
    cr_assert_eq(ring_poll(&keep(&poll)->op, pair[0], POLLRDHUP), 0);
    cr_assert_eq(ring_poll(&keep(&other)->op, pair[0], POLLOUT | POLLIN), 0);
    cr_assert_eq(result_of(&other), POLLOUT);
    cr_assert_eq(ring_poll(&keep(&other)->op, pair[0], POLLIN), 0);
    turn_once();
    ring_cancel(&receive.op);
    cr_assert_eq(result_of(&receive), -ECANCELED);
    send_soon(pair[1], "x");
    cr_assert_eq(result_of(&other), POLLIN);
    join_sender();
    cr_assert_eq(poll.calls, 0);
    ring_cancel(&poll.op);
    cr_assert_eq(result_of(&poll), -ECANCELED);
    close_pair(pair);
}

/* A local listener whose queue is full: a connect waits for room, which no event announces. */
EPOLL_TEST(connecting_to_a_full_queue)
{
    struct kept connects[3], accept;
    union ring__address address;
    char name[64];
    int listener, fds[3];
    socklen_t len;

    snprintf(name, sizeof name, "@weft-full-%d", (int)getpid());
    listener = ring_listen_unix(name, 1);
    cr_assert(listener >= 0);
    cr_assert_eq(ring__local_address(name, &address, &len), 0);
    for (int i = 0; i < 3; i++) {
        fds[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | (i == 2 ? SOCK_NONBLOCK : 0), 0);
        cr_assert_eq(ring_connect(&keep(&connects[i])->op, fds[i], &address.any, len), 0);
    }
    cr_assert_eq(result_of(&connects[0]), 0);
    cr_assert_eq(result_of(&connects[1]), 0);
    for (int i = 0; i < 5; i++)
        turn(); /* comes back: it is attempted again */
    cr_assert_eq(connects[2].calls, 0);
    cr_assert_eq(ring_accept(&keep(&accept)->op, listener, NULL, NULL, 0), 0);
    cr_assert(result_of(&accept) >= 0);
    cr_assert_eq(result_of(&connects[2]), 0);
    close(accept.res);
    close(listener);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
}

/* ---- sockets ---- */

static int flags_of(int fd)
{
    return fcntl(fd, F_GETFL) & O_NONBLOCK;
}

/* What is visible afterwards: a listener is left with O_NONBLOCK, a connected socket as it was. */
EPOLL_TEST(flags_that_are_changed)
{
    int listener = ring_listen("127.0.0.1", "0", 4), fds[2];
    struct sockaddr_storage address;
    struct kept connect, accept;
    socklen_t len = loopback(&address, false, ring_local_port(listener));

    cr_assert_eq(flags_of(listener), 0);
    for (int i = 0; i < 2; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | (i == 1 ? SOCK_NONBLOCK : 0), 0);
        cr_assert_eq(ring_accept(&keep(&accept)->op, listener, NULL, NULL, 0), 0);
        turn_once();
        cr_assert_eq(ring_connect(&keep(&connect)->op, fds[i], (struct sockaddr *)&address, len),
                     0);
        cr_assert_eq(result_of(&connect), 0);
        cr_assert(result_of(&accept) >= 0);
        cr_assert_eq(flags_of(accept.res), 0);
        cr_assert_eq(flags_of(fds[i]), i == 1 ? O_NONBLOCK : 0);
        close(accept.res);
        close(fds[i]);
    }
    cr_assert_eq(flags_of(listener), O_NONBLOCK);
    close(listener);
}

/* MSG_WAITALL: as much as was asked for, in however many pieces it comes; and what has come when the
 * wait is over. Datagrams stay what they are. */
EPOLL_TEST(all_or_what_there_is)
{
    struct kept receive, send;
    char buf[16];
    int pair[2];

    make_pair(pair);
    cr_assert_eq(ring_recv(&keep(&receive)->op, pair[0], buf, 10, MSG_WAITALL), 0);
    for (int i = 0; i < 10; i++) {
        turn_once();
        cr_assert_eq(receive.calls, 0);
        cr_assert_eq(write(pair[1], &"0123456789"[i], 1), 1);
    }
    cr_assert_eq(result_of(&receive), 10);
    cr_assert_arr_eq(buf, "0123456789", 10);

    cr_assert_eq(ring_recv(&keep(&receive)->op, pair[0], buf, 10, MSG_WAITALL), 0);
    turn_once();
    cr_assert_eq(write(pair[1], "abc", 3), 3);
    turn_once();
    cr_assert_eq(receive.calls, 0);
    ring_cancel(&receive.op);
    cr_assert_eq(result_of(&receive), 3, "completion beats cancellation");

    cr_assert_eq(ring_recv(&keep(&receive)->op, pair[0], buf, 10, MSG_WAITALL), 0);
    cr_assert_eq(write(pair[1], "end", 3), 3);
    turn_once();
    shutdown(pair[1], SHUT_WR);
    cr_assert_eq(result_of(&receive), 3);

    cr_assert_eq(ring_send(&keep(&send)->op, pair[0], block, sizeof block * 1, MSG_WAITALL), 0);
    cr_assert_eq(result_of(&send), sizeof block);
    close_pair(pair);

    cr_assert_eq(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair), 0);
    cr_assert_eq(write(pair[1], "one", 3), 3);
    cr_assert_eq(write(pair[1], "two", 3), 3);
    cr_assert_eq(ring_recv(&keep(&receive)->op, pair[0], buf, 10, MSG_WAITALL), 0);
    cr_assert_eq(result_of(&receive), 3);
    close_pair(pair);
}

/* More events than are taken at a time. */
EPOLL_TEST(ten_thousand_sockets)
{
    enum { MANY = 10000 };
    struct rlimit limit;
    struct kept *receives;
    int(*pairs)[2], count = 0;
    char byte;

    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    receives = calloc(MANY, sizeof *receives);
    pairs = calloc(MANY / 2, sizeof *pairs);
    while (count < MANY / 2 &&
           socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pairs[count]) == 0)
        count++;
    cr_assert_geq(count, 400, "too few descriptors to tell: %d", count * 2);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2 * count; i++)
            start_recv(&receives[i], pairs[i / 2][i % 2], &byte, 1);
        turn_once();
        for (int i = 0; i < 2 * count; i++)
            cr_assert_eq(write(pairs[i / 2][1 - i % 2], "x", 1), 1);
        for (int i = 0; i < 2 * count; i++)
            cr_assert_eq(result_of(&receives[i]), 1);
    }
    for (int i = 0; i < count; i++)
        close_pair(pairs[i]);
    free(receives);
    free(pairs);
}

/* A number far beyond all others, and one that is none. */
EPOLL_TEST(odd_numbers)
{
    struct rlimit limit = {0};
    struct kept receive;
    int pair[2], high;
    char byte;

    make_pair(pair);
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    high = fcntl(pair[0], F_DUPFD_CLOEXEC, (int)limit.rlim_cur - 1);
    cr_assert(high >= 0);
    start_recv(&receive, high, &byte, 1);
    turn_once();
    cr_assert_eq(write(pair[1], "x", 1), 1);
    cr_assert_eq(result_of(&receive), 1);
    start_recv(&receive, INT_MAX, &byte, 1);
    cr_assert_eq(result_of(&receive), -EBADF);
    start_recv(&receive, INT_MIN, &byte, 1);
    cr_assert_eq(result_of(&receive), -EBADF);
    close(high);
    close_pair(pair);
}

/* An older kernel has neither openat2 nor epoll_pwait2: waits are exact to the millisecond. */
static void older_body(void)
{
    struct kept receive, open;
    weft_time until;
    char byte;
    int pair[2];

    make_pair(pair);
    start_recv(&receive, pair[0], &byte, 1);
    until = weft_after(WEFT_US(1500));
    cr_assert_eq(weft__rt->engine->class->turn(weft__rt->engine, until), 0);
    cr_assert_geq(weft_now(), until, "rounded up");
    send_soon(pair[1], "x");
    while (receive.calls == 0)
        cr_assert_eq(weft__rt->engine->class->turn(weft__rt->engine, weft_after(WEFT_SEC(1000))),
                     0);
    join_sender();
    cr_assert_eq(ring_openat(&keep(&open)->op, AT_FDCWD, "/dev/null", O_RDONLY, 0), 0);
    cr_assert(result_of(&open) >= 0);
    close(open.res);
    close_pair(pair);
}

Test(epoll_engine, an_older_kernel)
{
    deny_call(SYS_epoll_pwait2, ENOSYS);
    deny_call(SYS_openat2, ENOSYS);
    cr_assert_eq(run_by_hand(&epoll, older_body), 0, "%s", report_text());
}

/* While others have something to do all the time, those who wait are not forgotten. */
static struct weft_task busy;
static struct kept awaited;
static uint64_t laps;

static void run_busy(struct weft_task *task)
{
    laps++;
    if (awaited.calls == 0)
        weft_task_queue(task);
    else
        weft__main_ended(weft__rt, awaited.res);
}

static int busy_pair[2];

static void start_busy(struct weft_runtime *rt, void *unused)
{
    static char byte;

    (void)rt;
    (void)unused;
    make_pair(busy_pair);
    start_recv(&awaited, busy_pair[0], &byte, 1);
    cr_assert_eq(weft_task_init(&busy, run_busy), 0);
    weft_task_queue(&busy);
    send_soon(busy_pair[1], "x");
}

Test(epoll_engine, a_busy_loop_starves_nobody)
{
    struct weft_options options = setup_options(&epoll);

    cr_assert_eq(weft__run(start_busy, NULL, &options), 1, "%s", report_text());
    join_sender();
    close_pair(busy_pair);
    cr_assert_gt(laps, 0);
}
