/* io_support.c: see io_support.h. */
#include "io_support.h"

#include "inbox.h"
#include "offload.h"
#include "runtime_internal.h"
#include "timer.h"

#include <weft/promise.h>

#include <criterion/criterion.h>
#include <dirent.h>
#include <pthread.h>

void make_pair(int pair[2])
{
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
}

void close_pair(int pair[2])
{
    close(pair[0]);
    close(pair[1]);
}

void make_pipe(int ends[2])
{
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
}

void fill_up(int fd)
{
    static const char block[4096];
    int flags = fcntl(fd, F_GETFL);

    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    while (write(fd, block, sizeof block) > 0)
        ;
    fcntl(fd, F_SETFL, flags);
}

socklen_t loopback(struct sockaddr_storage *address, bool v6, int port)
{
    memset(address, 0, sizeof *address);
    if (v6) {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)address;

        in6->sin6_family = AF_INET6;
        in6->sin6_addr = in6addr_loopback;
        in6->sin6_port = htons((uint16_t)port);
        return sizeof *in6;
    }
    struct sockaddr_in *in4 = (struct sockaddr_in *)address;

    in4->sin_family = AF_INET;
    in4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    in4->sin_port = htons((uint16_t)port);
    return sizeof *in4;
}

void make_tcp(int tcp[2])
{
    int listener = ring_listen("127.0.0.1", "0", 1);
    struct sockaddr_storage address;
    socklen_t len;

    cr_assert(listener >= 0);
    len = loopback(&address, false, ring_local_port(listener));
    tcp[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(tcp[0], (struct sockaddr *)&address, len), 0);
    tcp[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    cr_assert(tcp[1] >= 0);
    close(listener);
}

/* ---- a sender ---- */

static struct {
    pthread_t thread;
    bool running;
    int fd;
    const char *text;
} sender;

static void *send_text(void *unused)
{
    (void)unused;
    sched_yield();
    if (write(sender.fd, sender.text, strlen(sender.text)) < 0)
        perror("write");
    return NULL;
}

void join_sender(void)
{
    if (sender.running)
        pthread_join(sender.thread, NULL);
    sender.running = false;
}

void send_soon(int fd, const char *text)
{
    join_sender();
    sender.fd = fd;
    sender.text = text;
    sender.running = pthread_create(&sender.thread, NULL, send_text, NULL) == 0;
    cr_assert(sender.running);
}

int open_descriptors(void)
{
    DIR *directory;
    unsigned jobs;
    int count = 0;

    while (weft__offload_threads(&jobs), jobs > 0)
        sched_yield();
    directory = opendir("/proc/self/fd");
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

void run_on_each_io_setup(weft_main_fn *main)
{
    EACH_IO_SETUP(setup)
    {
        int before = open_descriptors(), rc = run_on(setup, main, NULL);

        cr_assert_eq(rc, 0, "%s: %d: %s", setup->name, rc, report_text());
        cr_assert_eq(open_descriptors(), before, "%s: descriptors are left", setup->name);
    }
}

/* ---- by hand ---- */

static void (*by_hand)(void);

static void start_by_hand(struct weft_runtime *rt, void *unused)
{
    (void)unused;
    by_hand();
    weft__main_ended(rt, 0);
}

int run_by_hand_with(const struct weft_options *options, void (*body)(void))
{
    by_hand = body;
    return weft__run(start_by_hand, NULL, options);
}

int run_by_hand(const struct setup *setup, void (*body)(void))
{
    struct weft_options options = setup_options(setup);

    return run_by_hand_with(&options, body);
}

void turn(void)
{
    struct weft_runtime *rt = weft__rt;
    weft_time until = rt->timers != NULL ? rt->timers->at : WEFT_FOREVER;
    int rc;

    if (!weft__inbox_sleep(rt->inbox, false))
        until = WEFT_NOWAIT;
    rc = rt->engine->class->turn(rt->engine, until);
    cr_assert_eq(rc, 0, "turn: %d", rc);
    weft__inbox_awake(rt->inbox);
    weft__inbox_run(rt->inbox);
    if (rt->timers != NULL)
        weft__timers_fire(rt, weft_now());
}

static void keep_result(struct ring_op *op, int res, unsigned flags)
{
    struct kept *kept = weft__container(op, struct kept, op);

    cr_assert_eq(flags, 0);
    kept->res = res;
    kept->calls++;
}

struct kept *keep(struct kept *kept)
{
    memset(kept, 0xa5, sizeof *kept); /* the op needs no initialisation */
    kept->op.done = keep_result;
    kept->res = -1;
    kept->calls = 0;
    return kept;
}

int result_of(struct kept *kept)
{
    while (kept->calls == 0)
        turn();
    cr_assert_eq(kept->calls, 1);
    return kept->res;
}

int outcome_of(struct promise *p)
{
    union weft_value value;
    int error = 0;

    cr_assert(p != NULL);
    while (promise_state(p) == PROMISE_PENDING)
        turn();
    if (promise_poll(p, &value, &error) == PROMISE_FULFILLED)
        error = (int)value.num;
    promise_unref(p);
    return error;
}
