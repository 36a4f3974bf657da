/* needs: fibers */
/* Ends that race: accept against cancel and deadline, close against what is in flight, a runtime that
 * ends with everything pending. */
#include "fiber_internal.h"
#include "io_support.h"
#include "offload.h"
#include "ring_internal.h"

#include <weft/io.h>
#include <weft/promise.h>

#include <criterion/criterion.h>
#include <semaphore.h>

#define ON_EACH_SETUP(main)                                                               \
    EACH_IO_SETUP(setup)                                                                  \
    {                                                                                     \
        cr_assert_eq(run_on(setup, main, NULL), 0, "%s: %s", setup->name, report_text()); \
    }

/* ---- accept, cancelled while a client connects: no descriptor is lost (tokio-uring 129) ---- */

struct acceptor {
    struct fiber *self;
    int listener, result;
    bool ended;
};

static int64_t accept_fiber(void *arg)
{
    struct acceptor *a = arg;

    a->self = fiber_self();
    a->result = fiber_accept(a->listener, NULL, NULL, 0, WEFT_FOREVER);
    a->ended = true;
    return 0;
}

static int rounds;

/* A client that connects at each point of a cancelled accept's life. */
static int race_main(void *unused)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[64];
    int before, won = 0;
    struct acceptor a;
    socklen_t len;

    (void)unused;
    snprintf(name, sizeof name, "@weft-race-%d", (int)getpid());
    len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    strcpy(address.sun_path, name);
    address.sun_path[0] = '\0';
    a.listener = ring_listen_unix(name, 16);
    cr_assert(a.listener >= 0);
    before = open_descriptors();
    for (int i = 0; i < rounds; i++) {
        int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        a.ended = false;
        cr_assert_eq(fiber_detach(accept_fiber, &a), 0);
        fiber_yield();
        if (i % 2)
            fiber_nop(WEFT_FOREVER);
        if (i % 3 == 0)
            cr_assert_eq(connect(client, (struct sockaddr *)&address, len), 0);
        fiber__cancel(weft__rt, a.self);
        if (i % 3 == 1)
            cr_assert_eq(connect(client, (struct sockaddr *)&address, len), 0);
        while (!a.ended)
            fiber_yield();
        if (a.result >= 0) {
            won++;
            close(a.result);
        } else {
            cr_assert_eq(a.result, -ECANCELED);
            if (i % 3 != 2) { /* it is still in the listener's queue */
                int fd = fiber_accept(a.listener, NULL, NULL, 0, WEFT_NOWAIT);

                cr_assert(fd >= 0, "%d: %d", i, fd);
                close(fd);
            }
        }
        close(client);
    }
    cr_assert_eq(open_descriptors(), before);
    close(a.listener);
    return won > 0 ? 0 : -1;
}

Test(io_cancel, accept_races_cancel, .timeout = 300)
{
    rounds = slow_tools() ? 1000 : 10000;
    ON_EACH_SETUP(race_main);
}

/* The same as promises that are dropped: what comes for nobody is closed. */
static int dropped_main(void *unused)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int before = open_descriptors(), listener;
    char name[64];
    socklen_t len;

    (void)unused;
    snprintf(name, sizeof name, "@weft-drop-%d", (int)getpid());
    len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    strcpy(address.sun_path, name);
    address.sun_path[0] = '\0';
    listener = ring_listen_unix(name, 16);
    for (int i = 0; i < rounds; i++) {
        struct promise *p = promise_accept(listener, NULL, NULL, 0, WEFT_FOREVER);
        int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), fd;

        if (i % 2)
            fiber_nop(WEFT_FOREVER);
        if (i % 4 == 3)
            promise_cancel(p);
        promise_unref(p);
        cr_assert_eq(connect(client, (struct sockaddr *)&address, len), 0);
        while (weft__rt->engine->in_flight > 0)
            fiber_nop(WEFT_FOREVER);
        fd = fiber_accept(listener, NULL, NULL, 0, WEFT_NOWAIT);
        cr_assert(fd >= 0 || fd == -ETIMEDOUT);
        if (fd >= 0)
            close(fd);
        close(client);
    }
    close(listener);
    for (int i = 0; i < 20; i++) {
        promise_unref(promise_openat(AT_FDCWD, "/dev/null", O_RDONLY, 0, WEFT_FOREVER));
        promise_unref(promise_socket(AF_INET, SOCK_STREAM, 0, WEFT_FOREVER));
        if (i % 2)
            fiber_nop(WEFT_FOREVER);
    }
    while (weft__rt->engine->in_flight > 0)
        fiber_nop(WEFT_FOREVER);
    cr_assert_eq(open_descriptors(), before);
    return 0;
}

Test(io_cancel, descriptors_for_nobody_are_closed, .timeout = 300)
{
    rounds = slow_tools() ? 200 : 2000;
    ON_EACH_SETUP(dropped_main);
}

/* ---- close (pitfall 27) ---- */

struct reader {
    int fd, result;
    bool ended;
};

static int64_t recv_fiber(void *arg)
{
    struct reader *r = arg;
    char buf[8];

    r->result = fiber_recv(r->fd, buf, sizeof buf, 0, WEFT_FOREVER);
    r->ended = true;
    return 0;
}

/* Starts its receive again and again, as long as there is no error but a cancel. */
static int64_t stubborn_fiber(void *arg)
{
    struct reader *r = arg;
    char buf[8];

    do
        r->result = fiber_recv(r->fd, buf, sizeof buf, 0, WEFT_FOREVER);
    while (r->result == -ECANCELED);
    r->ended = true;
    return 0;
}

static int close_main(void *unused)
{
    (void)unused;
    for (int i = 0; i < 6; i++) {
        struct reader a = {.fd = -1}, b = a, stubborn = a;
        struct promise *p;
        int tcp[2], rc;
        char buf[1];

        make_tcp(tcp);
        a.fd = b.fd = stubborn.fd = tcp[0];
        cr_assert_eq(fiber_detach(recv_fiber, &a), 0);
        cr_assert_eq(fiber_detach(recv_fiber, &b), 0);
        cr_assert_eq(fiber_detach(stubborn_fiber, &stubborn), 0);
        fiber_yield();
        if (i % 2)
            fiber_nop(WEFT_FOREVER);
        p = promise_poll_fd(tcp[0], POLLIN, WEFT_FOREVER);
        rc = i < 4 ? fiber_close(tcp[0]) : fiber_await(promise_close(tcp[0]), NULL, WEFT_FOREVER);
        cr_assert_eq(rc, 0);
        cr_assert_eq(fcntl(tcp[0], F_GETFD), -1);
        cr_assert_eq(recv(tcp[1], buf, 1, 0), 0, "the peer sees the end at once");
        while (!a.ended || !b.ended || !stubborn.ended)
            fiber_yield();
        cr_assert(a.result == -ECANCELED && b.result == -ECANCELED, "%d %d", a.result, b.result);
        cr_assert_eq(stubborn.result, -EBADF);
        cr_assert_eq(fiber_await(p, NULL, WEFT_FOREVER), -ECANCELED);
        close(tcp[1]);
    }
    return 0;
}

Test(io_cancel, close_ends_what_is_in_flight)
{
    ON_EACH_SETUP(close_main);
}

/* A cancelled fiber still closes. */
struct closer {
    struct fiber *self;
    int fd, result;
    bool ended;
};

static int64_t close_fiber(void *arg)
{
    struct closer *c = arg;

    c->self = fiber_self();
    fiber_sleep_until(WEFT_FOREVER);
    c->result = fiber_close(c->fd);
    c->ended = true;
    return 0;
}

static int shielded_main(void *unused)
{
    struct closer c = {0};
    struct reader r = {0};
    int pair[2];

    (void)unused;
    make_pair(pair);
    c.fd = r.fd = pair[0];
    cr_assert_eq(fiber_detach(recv_fiber, &r), 0);
    cr_assert_eq(fiber_detach(close_fiber, &c), 0);
    fiber_yield();
    fiber__cancel(weft__rt, c.self);
    while (!c.ended || !r.ended)
        fiber_yield();
    cr_assert_eq(c.result, 0);
    cr_assert_eq(r.result, -ECANCELED);
    cr_assert_eq(fcntl(pair[0], F_GETFD), -1);
    close(pair[1]);
    return 0;
}

Test(io_cancel, close_is_shielded)
{
    ON_EACH_SETUP(shielded_main);
}

/* ---- the end of a runtime, with everything pending (tokio-uring 102, eio 467) ---- */

struct stuck_job {
    struct weft_job job;
    sem_t *release, *gone;
};

static void stuck_run(struct weft_job *job)
{
    sem_wait(weft__container(job, struct stuck_job, job)->release);
}

static void stuck_done(struct weft_job *job)
{
    (void)job;
    abort(); /* the runtime has ended long since */
}

static void stuck_drop(struct weft_job *job)
{
    struct stuck_job *stuck = weft__container(job, struct stuck_job, job);
    sem_t *gone = stuck->gone;

    free(stuck);
    sem_post(gone);
}

static sem_t release_job, job_gone;
static int results[4];
static int end_pair[2], end_listener;

static int64_t pending_fiber(void *arg)
{
    int which = (int)(intptr_t)arg;
    char buf[8];

    switch (which) {
    case 0:
        results[0] = fiber_accept(end_listener, NULL, NULL, 0, WEFT_FOREVER);
        break;
    case 1:
        results[1] = fiber_recv(end_pair[0], buf, 8, 0, weft_after(WEFT_SEC(1000)));
        break;
    case 2:
        results[2] = fiber_sleep(WEFT_SEC(1000));
        break;
    default:
        results[3] = fiber_recv_all(end_pair[1], buf, 8, 0, NULL, WEFT_FOREVER);
        break;
    }
    return 0;
}

static int end_main(void *unused)
{
    static char buf[8];
    struct stuck_job *stuck = malloc(sizeof *stuck);

    (void)unused;
    stuck->job = (struct weft_job){.run = stuck_run, .done = stuck_done, .drop = stuck_drop};
    stuck->release = &release_job;
    stuck->gone = &job_gone;
    cr_assert_eq(weft__offload(weft__rt, &stuck->job, WEFT__JOB_WORK), 0);
    for (intptr_t i = 0; i < 4; i++)
        cr_assert_eq(fiber_detach(pending_fiber, (void *)i), 0);
    fiber_yield();
    for (int i = 0; i < 8; i++) {
        weft_time deadline = i % 2 ? WEFT_FOREVER : weft_after(WEFT_SEC(100 + i % 3));

        promise_unref(promise_recv(end_pair[0], buf, 8, 0, deadline));
        promise_unref(promise_recv_all(end_pair[1], buf, 8, 0, NULL, deadline));
        promise_unref(promise_accept(end_listener, NULL, NULL, 0, deadline));
        promise_unref(promise_sleep(WEFT_SEC(1000)));
    }
    promise_cancel(promise_recv(end_pair[0], buf, 8, 0, WEFT_FOREVER)); /* a request on its way */
    fiber_nop(WEFT_FOREVER);
    return 0;
}

Test(io_cancel, the_end_with_everything_pending)
{
    EACH_IO_SETUP(setup)
    {
        int before;

        sem_init(&release_job, 0, 0);
        sem_init(&job_gone, 0, 0);
        before = open_descriptors();
        make_pair(end_pair);
        end_listener = ring_listen("127.0.0.1", "0", 4);
        memset(results, 0, sizeof results);
        cr_assert_eq(run_on(setup, end_main, NULL), 0, "%s", setup->name);
        for (int i = 0; i < 4; i++)
            cr_assert_eq(results[i], -ECANCELED, "%s: %d: %d", setup->name, i, results[i]);
        sem_post(&release_job);
        while (sem_wait(&job_gone) < 0)
            ;
        close_pair(end_pair);
        close(end_listener);
        cr_assert_eq(open_descriptors(), before);
    }
}

/* Fibers that begin, are cancelled and end, up to the end of the runtime and beyond. */
static int flurry_main(void *unused)
{
    (void)unused;
    for (int i = 0; i < 50; i++) {
        struct acceptor a = {.listener = end_listener};

        cr_assert_eq(fiber_detach(accept_fiber, &a), 0);
        fiber_yield();
        fiber__cancel(weft__rt, a.self);
        if (i == 49)
            while (!a.ended)
                fiber_yield();
        else
            while (!a.ended)
                fiber_nop(WEFT_FOREVER);
    }
    return 0;
}

Test(io_cancel, cancels_at_the_end)
{
    end_listener = ring_listen("127.0.0.1", "0", 4);
    for (int i = 0; i < 20; i++)
        ON_EACH_SETUP(flurry_main);
    close(end_listener);
}
