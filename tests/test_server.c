/* needs: fibers
 * Servers: in both styles, the same tests. */
#include "fiber_internal.h"
#include "io_support.h"

#include <weft/io.h>
#include <weft/promise.h>
#include <weft/scope.h>
#include <weft/server.h>
#include <weft/signals.h>

#include <criterion/criterion.h>
#include <signal.h>
#include <sys/resource.h>

/* ---- the server: it echoes bytes, but for some, which are orders ---- */

static struct test {
    struct weft_server server;
    struct promise *result;
    struct promise *held; /* waited for, whatever happens, at the end of who said 'h' */
    bool in_promises;
    int port, begun, stops, failures, failed_fd, last_error;
} test;

/* 1: go on; else the result. */
static int obey(char order)
{
    switch (order) {
    case 'f':
        return -EBADMSG;
    case 'r':
        return -ECONNRESET;
    case 's':
        weft_server_stop(&test.server);
        return 1;
    case 'q':
        return 0;
    default:
        return 1;
    }
}

static int wait_for_held(void *unused)
{
    (void)unused;
    return fiber_await(promise_ref(test.held), NULL, WEFT_FOREVER);
}

static int serve(int fd, void *ctx)
{
    char byte = 0;
    int rc;

    cr_assert_eq(ctx, &test);
    test.begun++;
    while ((rc = fiber_recv(fd, &byte, 1, 0, WEFT_FOREVER)) == 1) {
        rc = obey(byte);
        if (rc != 1)
            return rc;
        rc = fiber_send(fd, &byte, 1, 0, WEFT_FOREVER);
        if (rc != 1)
            return rc;
    }
    if (byte == 'h')
        cr_assert_eq(fiber_shield(wait_for_held, NULL), 0);
    return rc;
}

static struct talk {
    int fd;
    char byte;
} talks[4096]; /* by descriptor: the runtime's end frees nothing of ours */

static struct promise *receive(union weft_value ignored, void *ctx);

static struct promise *received(union weft_value bytes, void *ctx)
{
    struct talk *talk = ctx;
    int rc = bytes.num == 0 ? 0 : obey(talk->byte);

    if (rc != 1)
        return promise_from_result(rc);
    return promise_bind(promise_send(talk->fd, &talk->byte, 1, 0, WEFT_FOREVER), receive, talk);
}

static struct promise *receive(union weft_value ignored, void *ctx)
{
    struct talk *talk = ctx;

    (void)ignored;
    return promise_bind(promise_recv(talk->fd, &talk->byte, 1, 0, WEFT_FOREVER), received, talk);
}

static struct promise *end_talk(void *ctx)
{
    const struct talk *talk = ctx;

    return talk->byte == 'h' ? promise_ref(test.held) : promise_fulfilled(weft_num(0));
}

static struct promise *serve_in_promises(int fd, void *ctx)
{
    cr_assert_eq(ctx, &test);
    cr_assert_lt(fd, 4096);
    test.begun++;
    talks[fd].fd = fd;
    talks[fd].byte = 0;
    return promise_finalize(receive(weft_num(0), &talks[fd]), end_talk, &talks[fd]);
}

static int64_t run_server(void *unused)
{
    (void)unused;
    return fiber_serve(&test.server, serve);
}

static void count_stop(void *ctx)
{
    cr_assert_eq(ctx, &test);
    cr_assert(test.server.stopping);
    test.stops++;
}

static void count_failure(int fd, int error, void *ctx)
{
    cr_assert_eq(ctx, &test);
    test.failures++;
    test.failed_fd = fcntl(fd, F_GETFD) >= 0 ? fd : -1;
    test.last_error = error;
}

/* Fields of test.server may be set before start(). */
static void prepare(void)
{
    bool in_promises = test.in_promises;

    memset(&test, 0, sizeof test);
    test.in_promises = in_promises;
    test.server = (struct weft_server)WEFT_SERVER_INIT;
    test.server.listener = ring_listen("127.0.0.1", "0", SOMAXCONN);
    cr_assert_geq(test.server.listener, 0);
    test.port = ring_local_port(test.server.listener);
    test.server.ctx = &test;
    test.server.on_stop = count_stop;
    test.server.grace = -1;
    test.server.ignores_signals = true;
}

static void start(void)
{
    test.result = test.in_promises ? promise_serve(&test.server, serve_in_promises)
                                   : fiber_spawn(run_server, NULL);
}

static int64_t result(void)
{
    union weft_value value;
    int rc = fiber_await(test.result, &value, WEFT_FOREVER);

    test.result = NULL;
    if (rc == 0)
        cr_assert_eq(test.server.connections, 0);
    return rc < 0 ? rc : value.num;
}

static void finish(int64_t expected)
{
    int64_t got = result();

    cr_assert_eq(got, expected, "%lld instead of %lld: %s", (long long)got, (long long)expected,
                 report_text());
    cr_assert_eq(test.stops, 1);
    cr_assert_eq(test.server.listener, -1);
}

#define UNTIL(condition)                                                      \
    while (!(condition)) {                                                    \
        cr_assert_eq(fiber_yield(), 0);                                       \
        cr_assert(promise_state(test.result) == PROMISE_PENDING, #condition); \
    }

/* ---- clients ---- */

/* The backlog takes it, if nobody else does. A negative errno if it is refused. */
static int try_client(void)
{
    struct sockaddr_storage address;
    socklen_t len = loopback(&address, false, test.port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    cr_assert_geq(fd, 0);
    if (connect(fd, (struct sockaddr *)&address, len) == 0)
        return fd;
    close(fd);
    return -errno;
}

static int client(void)
{
    int fd = try_client();

    cr_assert_geq(fd, 0, "%d", fd);
    return fd;
}

static void say(int fd, const char *text)
{
    cr_assert_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

static void hear(int fd, const char *text)
{
    char heard[16];
    size_t done;
    int rc = fiber_recv_all(fd, heard, strlen(text), 0, &done, WEFT_FOREVER);

    cr_assert_eq(rc, 0, "%zu bytes of '%s', and %d", done, text, rc);
    cr_assert_arr_eq(heard, text, strlen(text));
}

static void ask(int fd, const char *text)
{
    say(fd, text);
    hear(fd, text);
}

static void sees_the_end(int fd)
{
    char byte;

    cr_assert_eq(fiber_recv(fd, &byte, 1, 0, WEFT_FOREVER), 0);
    close(fd);
}

/* On each set-up, in each style. */
static void in_each_style(weft_main_fn *main)
{
    EACH_IO_SETUP(setup)
    {
        for (int style = 0; style < 2; style++) {
            int before = open_descriptors(), rc;

            test.in_promises = style == 1;
            rc = run_on(setup, main, NULL);
            cr_assert_eq(rc, 0, "%s, style %d: %d: %s", setup->name, style, rc, report_text());
            cr_assert_eq(open_descriptors(), before, "%s, style %d: descriptors are left",
                         setup->name, style);
        }
    }
}

/* ---- an orderly end ---- */

static int idle_main(void *unused)
{
    int fds[20];

    (void)unused;
    prepare();
    start();
    for (int i = 0; i < 20; i++)
        fds[i] = client();
    for (int i = 19; i >= 0; i--)
        ask(fds[i], "ab");
    cr_assert_eq(test.server.accepted, 20);
    cr_assert_eq(test.server.connections, 20);
    for (int i = 0; i < 20; i++)
        close(fds[i]);
    UNTIL(test.server.connections == 0);
    weft_server_stop(&test.server);
    weft_server_stop(&test.server);
    finish(0);
    cr_assert_eq(test.begun, 20);
    cr_assert_eq(test.server.failed, 0);
    cr_assert_str_empty(report_text());

    /* nobody ever came; and the memory can be used again */
    prepare();
    start();
    fiber_yield();
    fiber_yield();
    weft_server_stop(&test.server);
    finish(0);
    return 0;
}

Test(server, stops_while_idle)
{
    in_each_style(idle_main);
}

static int connections_main(void *unused)
{
    int a, b;

    (void)unused;
    prepare();
    start();
    a = client();
    b = client();
    ask(a, "a");
    ask(b, "b");
    weft_server_stop(&test.server);
    ask(a, "a");
    ask(b, "b");
    UNTIL(test.server.listener == -1);
    cr_assert_eq(try_client(), -ECONNREFUSED);
    close(a);
    UNTIL(test.server.connections == 1);
    ask(b, "b");
    close(b);
    finish(0);
    cr_assert_eq(test.server.accepted, 2);
    return 0;
}

Test(server, stopping_lets_connections_finish)
{
    in_each_style(connections_main);
}

static int from_inside_main(void *unused)
{
    int a, b;

    (void)unused;
    prepare();
    start();
    a = client();
    b = client();
    ask(b, "b");
    ask(a, "s");
    cr_assert(test.server.stopping);
    ask(b, "b");
    say(b, "q");
    sees_the_end(b);
    say(a, "q");
    sees_the_end(a);
    finish(0);
    return 0;
}

Test(server, a_connection_can_stop_it)
{
    in_each_style(from_inside_main);
}

static int ends_reading_main(void *unused)
{
    int a, b;

    (void)unused;
    prepare();
    test.server.ends_reading = true;
    start();
    a = client();
    b = client();
    ask(a, "a");
    ask(b, "b");
    say(b, "12345678901234567890"); /* is answered first */
    weft_server_stop(&test.server);
    sees_the_end(a);
    hear(b, "1234567890");
    hear(b, "1234567890");
    sees_the_end(b);
    finish(0);
    return 0;
}

Test(server, stopping_can_end_what_they_read)
{
    in_each_style(ends_reading_main);
}

static int grace_main(void *unused)
{
    int a, b;

    (void)unused;
    prepare();
    test.server.grace = WEFT_MS(10);
    start();
    a = client();
    b = client();
    ask(a, "a");
    ask(b, "b");
    weft_server_stop(&test.server);
    sees_the_end(a);
    sees_the_end(b);
    finish(2);
    cr_assert_eq(test.server.cancelled, 2);
    cr_assert_eq(test.server.failed, 0);

    /* no time at all */
    prepare();
    test.server.grace = 0;
    start();
    a = client();
    ask(a, "a");
    weft_server_stop(&test.server);
    sees_the_end(a);
    finish(1);
    return 0;
}

Test(server, after_the_grace_connections_are_cancelled)
{
    in_each_style(grace_main);
}

/* ---- bounds ---- */

static bool backlog_is_empty(void)
{
    struct pollfd poll_listener = {.fd = test.server.listener, .events = POLLIN};

    return poll(&poll_listener, 1, 0) == 0;
}

static int bound_main(void *unused)
{
    int a, b, c;

    (void)unused;
    prepare();
    test.server.max_connections = 1;
    start();
    a = client();
    ask(a, "a");
    b = client();
    say(b, "b");
    for (int i = 0; i < 20; i++) {
        ask(a, "a");
        cr_assert_eq(test.server.connections, 1);
    }
    cr_assert_eq(test.begun, 1);
    close(a);
    hear(b, "b");
    cr_assert_eq(test.server.connections, 1);

    /* those accepted already are served to their end */
    c = client();
    say(c, "c");
    UNTIL(backlog_is_empty());
    ask(b, "b");
    cr_assert_eq(test.begun, 2);
    weft_server_stop(&test.server);
    hear(c, "c");
    close(b);
    close(c);
    finish(0);
    cr_assert_eq(test.begun, 3);

    prepare();
    start();
    a = client();
    ask(a, "a");
    weft_server_stop(&test.server);
    close(a);
    finish(0);
    cr_assert_eq(test.server.max_connections, 0, "another time the limit may be another one");
    return 0;
}

Test(server, max_connections)
{
    in_each_style(bound_main);
}

/* Without a descriptor for another one, those who are connected are served, and the others wait. */
static int starved_main(void *unused)
{
    struct rlimit limit, small;
    int fds[24], highest = 0;

    (void)unused;
    prepare();
    for (int i = 0; i < 24; i++) {
        fds[i] = client();
        highest = fds[i];
    }
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    small = limit;
    small.rlim_cur = (rlim_t)highest + 1 + 8;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &small), 0);
    test.server.max_connections = 1000;
    start();
    UNTIL(report_contains("new connections wait until one is closed"));
    for (int i = 0; i < test.begun; i++)
        ask(fds[i], "a");
    cr_assert_lt(test.begun, 24);
    cr_assert_eq(fiber_poll(fds[23], POLLIN, WEFT_NOWAIT), -ETIMEDOUT);
    for (int i = 0; i < 24; i++) { /* each makes room for another one */
        ask(fds[i], "b");
        say(fds[i], "q");
        sees_the_end(fds[i]);
    }
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    UNTIL(test.server.connections == 0);
    weft_server_stop(&test.server);
    finish(0);
    cr_assert_eq(test.begun, 24);
    return 0;
}

Test(server, without_descriptors_connections_wait)
{
    if (on_valgrind())
        cr_skip_test("valgrind tells the kernel no limit of descriptors");
    in_each_style(starved_main);
}

/* ---- failures ---- */

static int failure_main(void *unused)
{
    int a, b, other;

    (void)unused;
    prepare();
    test.server.name = "guest";
    start();
    other = client();
    ask(other, "o");
    a = client();
    ask(a, "a");
    say(a, "r");
    sees_the_end(a);
    cr_assert_eq(test.server.failed, 1);
    cr_assert_str_empty(report_text(), "a peer's doing");
    b = client();
    say(b, "f");
    sees_the_end(b);
    cr_assert_eq(test.server.failed, 2);
    cr_assert(report_contains("guest from 127.0.0.1:"), "%s", report_text());
    cr_assert(report_contains(strerror(EBADMSG)), "%s", report_text());
    cr_assert(report_contains(test.in_promises ? "promise_serve" : "test_server.c"));
    ask(other, "o");
    close(other);
    UNTIL(test.server.connections == 0);
    weft_server_stop(&test.server);
    finish(0);

    prepare();
    test.server.on_failure = count_failure;
    start();
    a = client();
    say(a, "r");
    sees_the_end(a);
    cr_assert_eq(test.failures, 1);
    cr_assert_geq(test.failed_fd, 0, "it is still open then");
    cr_assert_eq(test.last_error, -ECONNRESET);
    other = client();
    ask(other, "o");
    weft_server_stop(&test.server);
    close(other);
    finish(0);
    cr_assert_eq(test.failures, 1);
    return 0;
}

Test(server, failures_are_told_and_end_nothing_else)
{
    in_each_style(failure_main);
}

/* Leaves room for `more` bytes; returns what the limit was. */
static struct rlimit limit_memory(size_t more)
{
    struct rlimit before, limit;
    unsigned long pages;
    FILE *statm = fopen("/proc/self/statm", "r");

    cr_assert_not_null(statm);
    cr_assert_eq(fscanf(statm, "%lu", &pages), 1);
    fclose(statm);
    cr_assert_eq(getrlimit(RLIMIT_AS, &before), 0);
    limit = before;
    limit.rlim_cur = pages * (size_t)sysconf(_SC_PAGESIZE) + more;
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    return before;
}

static int memory_main(void *unused)
{
    const char *told;
    struct rlimit before;
    int fds[5];

    (void)unused;
    if (test.in_promises)
        return 0;
    prepare();
    test.server.stack_size = 256 << 20;
    start();
    before = limit_memory(64 << 20);
    for (int i = 0; i < 5; i++)
        fds[i] = client();
    for (int i = 0; i < 5; i++)
        sees_the_end(fds[i]);
    cr_assert_eq(setrlimit(RLIMIT_AS, &before), 0);
    cr_assert_eq(test.server.failed, 5);
    told = strstr(report_text(), "connection from");
    cr_assert_not_null(told, "%s", report_text());
    cr_assert_null(strstr(told + 1, "connection from"), "told for each: %s", report_text());
    weft_server_stop(&test.server);
    finish(0);
    return 0;
}

Test(server, the_lack_of_memory_is_told_once)
{
    in_each_style(memory_main);
}

static int listener_main(void *unused)
{
    int a, ends[2];

    (void)unused;
    prepare();
    start();
    a = client();
    ask(a, "a");
    cr_assert_eq(fiber_close(test.server.listener), 0);
    ends[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    UNTIL(test.server.stopping);
    ask(a, "a"); /* an orderly end */
    close(a);
    cr_assert_eq(result(), -EBADF);
    cr_assert_eq(test.stops, 1);
    cr_assert_eq(close(ends[0]), 0, "not closed by the server, whatever its number");

    prepare();
    start();
    a = client();
    ask(a, "a");
    cr_assert_eq(shutdown(test.server.listener, SHUT_RDWR), 0);
    UNTIL(test.server.stopping);
    close(a);
    cr_assert_eq(result(), -EINVAL);

    prepare();
    close(test.server.listener);
    make_pipe(ends);
    test.server.listener = ends[0];
    start();
    cr_assert_eq(result(), -ENOTSOCK);
    close(ends[1]);

    prepare();
    close(test.server.listener);
    test.server.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    start();
    cr_assert_eq(result(), -EINVAL, "it doesn't listen");
    cr_assert_eq(test.server.listener, -1);
    return 0;
}

Test(server, the_listeners_end_is_an_orderly_one)
{
    in_each_style(listener_main);
}

/* ---- cancelling ---- */

static int cancel_main(void *unused)
{
    int a, b, c;

    (void)unused;
    prepare();
    test.server.max_connections = 2;
    start();
    a = client();
    b = client();
    ask(a, "a");
    ask(b, "b");
    c = client();
    promise_cancel(test.result);
    sees_the_end(a);
    sees_the_end(b);
    cr_assert_eq(result(), -ECANCELED);
    cr_assert_eq(test.server.connections, 0);
    cr_assert_eq(test.server.listener, -1);
    close(c);

    /* while it waits for a connection; while it stops; before it has begun */
    for (int i = 0; i < 3; i++) {
        prepare();
        start();
        if (i < 2) {
            a = client();
            ask(a, "a");
        }
        if (i == 1)
            weft_server_stop(&test.server);
        promise_cancel(test.result);
        cr_assert_eq(result(), -ECANCELED);
        if (i < 2)
            sees_the_end(a);
    }
    return 0;
}

Test(server, canceling_it_cancels_the_connections)
{
    in_each_style(cancel_main);
}

/* Left running when the runtime ends. */
static int left_main(void *unused)
{
    (void)unused;
    prepare();
    test.server.ignores_signals = false;
    start();
    for (int i = 0; i < 5; i++)
        cr_assert_eq(fiber_yield(), 0);
    promise_unref(test.result);
    return 0;
}

Test(server, the_runtimes_end_is_its_end)
{
    in_each_style(left_main);
}

/* The same while it has no room for more, and so doesn't wait for any; and while it is stopping. */
static bool is_stopped;

static int left_full_main(void *unused)
{
    int stays;

    (void)unused;
    prepare();
    test.server.ignores_signals = false;
    test.server.max_connections = 1;
    start();
    stays = client();
    ask(stays, "a");
    if (is_stopped)
        weft_server_stop(&test.server);
    for (int i = 0; i < 5; i++)
        cr_assert_eq(fiber_yield(), 0);
    promise_unref(test.result);
    close(stays); /* nobody is told before the end */
    return 0;
}

Test(server, the_runtimes_end_is_its_end_when_it_is_full)
{
    in_each_style(left_full_main);
    is_stopped = true;
    in_each_style(left_full_main);
}

/* ---- signals ---- */

static bool is_blocked(int signal)
{
    sigset_t now;

    pthread_sigmask(SIG_BLOCK, NULL, &now);
    return sigismember(&now, signal);
}

static int signal_main(void *unused)
{
    const int own = SIGUSR1;
    struct weft_signals *signals;
    int a;

    (void)unused;
    for (int i = 0; i < 2; i++) {
        prepare();
        test.server.ignores_signals = false;
        start();
        a = client();
        ask(a, "a");
        cr_assert(is_blocked(SIGINT) && is_blocked(SIGTERM));
        cr_assert_eq(kill(getpid(), i == 0 ? SIGINT : SIGTERM), 0);
        UNTIL(test.server.stopping);
        ask(a, "a"); /* grace is for ever */
        cr_assert_eq(test.server.signal_count, 1);
        if (i == 0) {
            close(a);
            finish(0);
        } else { /* the second one is not that patient */
            cr_assert_eq(kill(getpid(), SIGINT), 0);
            sees_the_end(a);
            finish(1);
            cr_assert_eq(test.server.signal_count, 2);
        }
        cr_assert(!is_blocked(SIGINT) && !is_blocked(SIGTERM));
    }

    cr_assert_eq(weft_signals_create(&signals, &own, 1), 0);
    prepare();
    test.server.ignores_signals = false;
    test.server.signals = signals;
    start();
    a = client();
    ask(a, "a");
    cr_assert(!is_blocked(SIGINT));
    cr_assert_eq(kill(getpid(), own), 0);
    UNTIL(test.server.stopping);
    close(a);
    finish(0);
    cr_assert(is_blocked(own), "they are only lent");
    weft_signals_destroy(signals);
    return 0;
}

Test(server, signals_stop_it)
{
    in_each_style(signal_main);
}

/* They are cancelled, and one takes its time; then the grace is over, too. */
static int patience_main(void *unused)
{
    weft_time over;
    int a, b;

    (void)unused;
    prepare();
    test.server.ignores_signals = false;
    test.server.grace = WEFT_MS(20);
    test.held = promise_create();
    start();
    a = client();
    b = client();
    ask(a, "a");
    ask(b, "bh");
    cr_assert_eq(kill(getpid(), SIGINT), 0);
    UNTIL(test.server.stopping);
    over = weft_after(test.server.grace);
    cr_assert_eq(kill(getpid(), SIGINT), 0);
    UNTIL(test.server.connections == 1);
    cr_assert_eq(test.server.signal_count, 2);
    cr_assert_eq(fiber_sleep_until(over), 0); /* the server's timer is the earlier one */
    cr_assert_eq(fiber_yield(), 0);
    cr_assert_eq(promise_resolve(test.held, weft_num(0)), 0);
    sees_the_end(a);
    sees_the_end(b);
    finish(2);
    promise_unref(test.held);
    return 0;
}

Test(server, what_was_cancelled_is_counted_once)
{
    in_each_style(patience_main);
}

/* ---- misuse ---- */

static int64_t call_result(struct weft_server *server, bool with_serve)
{
    union weft_value value;
    int rc;

    if (!test.in_promises)
        return fiber_serve(server, with_serve ? serve : NULL);
    rc = fiber_await(promise_serve(server, with_serve ? serve_in_promises : NULL), &value,
                     WEFT_FOREVER);
    return rc < 0 ? rc : value.num;
}

static int misuse_main(void *unused)
{
    struct weft_server bad = WEFT_SERVER_INIT;

    (void)unused;
    weft_server_stop(NULL);
    weft_server_stop(&bad);
    cr_assert_eq(call_result(NULL, true), -EINVAL);
    cr_assert_eq(call_result(&bad, true), -EBADF);
    cr_assert_eq(call_result(&bad, false), -EINVAL);
    prepare();
    test.server.size = 1;
    cr_assert_eq(call_result(&test.server, true), -EINVAL);
    cr_assert_geq(fcntl(test.server.listener, F_GETFD), 0);
    test.server.size = sizeof test.server;
    start();
    UNTIL(test.server.reserved[0] != NULL);
    cr_assert_eq(call_result(&test.server, true), -EINVAL, "it runs already");
    weft_server_stop(&test.server);
    finish(0);
    return 0;
}

Test(server, misuse)
{
    in_each_style(misuse_main);
}

static void on_base_stack(void)
{
    cr_assert_eq(fiber_serve(&test.server, serve), -EDEADLK);
}

Test(server, callers)
{
    cr_assert_eq(fiber_serve(&test.server, serve), -EINVAL, "no runtime");
    cr_assert(promise_state(promise_serve(&test.server, serve_in_promises)) == PROMISE_REJECTED);
    cr_assert_eq(run_by_hand(&setups[1], on_base_stack), 0);
}
