/* connect_suite.h: what looking a name up and connecting do, whatever the form. Included by a test of
 * one form, which defines before, for one operation under way at a time or several:
 *   struct flow          with a member `list`: what a search has found, the caller's to destroy
 *   void begin_search(struct flow *, host, service, flags, deadline)
 *   void begin_host(struct flow *, host, service, deadline)
 *   void begin_any(struct flow *, list, deadline)
 *   void cancel(struct flow *)
 *   void step(void)      lets the loop go round without waiting
 *   int result(struct flow *)
 */
#ifndef WEFT_TEST_CONNECT_SUITE_H
#define WEFT_TEST_CONNECT_SUITE_H

#include "io_support.h"
#include "offload.h"
#include "ring_internal.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netdb.h>
#include <semaphore.h>
#include <sys/resource.h>

/* ---- addresses that behave ---- */

enum behaviour { ACCEPTS, REFUSES, HANGS, BEHAVIOURS };

struct place {
    struct sockaddr_storage address;
    socklen_t len;
    int fds[3]; /* the listener, and what fills its queue */
    int port;
};

static int connect_plainly(const struct place *place)
{
    int fd = socket(place->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    cr_assert_eq(connect(fd, (const struct sockaddr *)&place->address, place->len), 0);
    return fd;
}

static void open_place(struct place *place, enum behaviour behaviour, bool v6)
{
    const char *host = v6 ? "::1" : "127.0.0.1";

    place->fds[1] = place->fds[2] = -1;
    if (behaviour == REFUSES) { /* the port is taken, so that nobody else listens on it */
        socklen_t len = loopback(&place->address, v6, 0);

        place->fds[0] = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        cr_assert_eq(bind(place->fds[0], (struct sockaddr *)&place->address, len), 0);
    } else {
        place->fds[0] = ring_listen(host, "0", behaviour == HANGS ? 1 : 64);
        cr_assert(place->fds[0] >= 0, "%d", place->fds[0]);
        fcntl(place->fds[0], F_SETFL, O_NONBLOCK);
    }
    place->port = ring_local_port(place->fds[0]);
    place->len = loopback(&place->address, v6, place->port);
    if (behaviour == HANGS) /* a listener whose queue is full answers nobody */
        for (int i = 1; i <= 2; i++)
            place->fds[i] = connect_plainly(place);
}

static void close_place(struct place *place)
{
    for (int i = 0; i < 3; i++)
        if (place->fds[i] >= 0)
            close(place->fds[i]);
}

/* Takes what has connected and resets it, so that no port stays behind; returns how many. */
static int reset_connections(struct place *place)
{
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    int count = 0, fd;

    while ((fd = accept4(place->fds[0], NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        close(fd);
        count++;
    }
    return count;
}

static struct ring_addresses *list_of(struct place *const places[], size_t count)
{
    struct ring__entry *entries;
    struct ring_addresses *list = ring__addresses_create(count, &entries);

    cr_assert(list != NULL);
    for (size_t i = 0; i < count; i++)
        ring__entry_set(&entries[i], (struct sockaddr *)&places[i]->address, places[i]->len);
    return list;
}

#define LIST(...)                                 \
    list_of((struct place *const[]){__VA_ARGS__}, \
            sizeof((struct place *const[]){__VA_ARGS__}) / sizeof(void *))

static int peer_port(int fd)
{
    struct sockaddr_storage address;
    socklen_t len = sizeof address;

    cr_assert_eq(getpeername(fd, (struct sockaddr *)&address, &len), 0);
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

/* Connects to the list, which goes. */
static int any(struct ring_addresses *list, weft_time deadline)
{
    struct flow flow;
    int rc;

    begin_any(&flow, list, deadline);
    rc = result(&flow);
    ring_addresses_destroy(list);
    return rc;
}

static int host(const char *name, const char *service, weft_time deadline)
{
    struct flow flow;

    begin_host(&flow, name, service, deadline);
    return result(&flow);
}

static int search(const char *name, const char *service, unsigned flags,
                  struct ring_addresses **list)
{
    struct flow flow;
    int rc;

    begin_search(&flow, name, service, flags, WEFT_FOREVER);
    rc = result(&flow);
    cr_assert((rc == 0) == (flow.list != NULL), "%d", rc);
    *list = flow.list;
    return rc;
}

static void expect_connected(struct ring_addresses *list, const struct place *place)
{
    int fd = any(list, WEFT_FOREVER);

    cr_assert(fd >= 0, "%d", fd);
    cr_assert_eq(peer_port(fd), place->port);
    cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
}

/* ---- name servers that behave ---- */

static struct {
    int eai, eai_errno; /* what it says; 0: */
    struct place *places[8];
    sem_t asked, answer; /* before it answers: what it waits for, if it does */
    bool waits;
    atomic_int calls;
    char service[40];
    struct addrinfo hints;
} server;

/* In glibc's own memory, for freeaddrinfo. */
static struct addrinfo *info_of(const struct place *place)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *info = NULL;
    char port[16];

    snprintf(port, sizeof port, "%d", place->port);
    if (getaddrinfo(place->address.ss_family == AF_INET6 ? "::1" : "127.0.0.1", port, &hints,
                    &info) != 0)
        abort();
    return info;
}

static int answer(const char *name, const char *service, const struct addrinfo *hints,
                  struct addrinfo **list)
{
    (void)name;
    atomic_fetch_add(&server.calls, 1);
    snprintf(server.service, sizeof server.service, "%s", service);
    server.hints = *hints;
    if (server.waits) {
        sem_post(&server.asked);
        while (sem_wait(&server.answer) < 0)
            ;
    }
    if (server.eai != 0) {
        errno = server.eai_errno;
        return server.eai;
    }
    for (int i = 0; server.places[i] != NULL; i++) {
        *list = info_of(server.places[i]);
        list = &(*list)->ai_next;
    }
    return 0;
}

static void set_server(void)
{
    memset(&server, 0, sizeof server);
    sem_init(&server.asked, 0, 0);
    sem_init(&server.answer, 0, 0);
    ring__getaddrinfo = answer;
}

static void wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore) < 0)
        ;
}

/* ---- names ---- */

static void names_suite(void)
{
    struct ring_addresses *list;
    struct place place;

    ring__getaddrinfo = getaddrinfo;
    cr_assert_eq(search("127.0.0.1", "http", 0, &list), 0);
    cr_assert_eq(ring_addresses_first(list)->ai_family, AF_INET);
    cr_assert_eq(ring_addresses_first(list)->ai_next, NULL);
    ring_addresses_destroy(list);
    cr_assert_eq(search(NULL, "1", 0, &list), -EINVAL);
    cr_assert_eq(search("127.0.0.1", "no such service", 0, &list), -EINVAL);
    cr_assert_eq(host("127.0.0.1", NULL, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(host(NULL, "1", WEFT_FOREVER), -EINVAL);
    cr_assert_eq(host("127.0.0.1", "65536", WEFT_FOREVER), -EINVAL);
    cr_assert_eq(any(NULL, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(search("127.0.0.1", "1", RING_DATAGRAM, &list), 0);
    cr_assert_eq(any(list, WEFT_FOREVER), -EINVAL, "a connection is no datagram's");

    /* a name is looked up; what the server says is what there is */
    set_server();
    open_place(&place, ACCEPTS, false);
    server.places[0] = server.places[1] = &place;
    cr_assert_eq(search("name", "https", RING_IPV4 | RING_DATAGRAM, &list), 0);
    cr_assert_str_eq(server.service, "443", "a well-known service is no question");
    cr_assert(server.hints.ai_flags & AI_NUMERICSERV);
    cr_assert_eq(server.hints.ai_family, AF_INET);
    cr_assert_eq(server.hints.ai_socktype, SOCK_DGRAM);
    cr_assert_neq(ring_addresses_first(list)->ai_next, NULL);
    cr_assert_eq(ring_addresses_first(list)->ai_next->ai_next, NULL);
    expect_connected(list, &place);
    cr_assert_eq(search("name", "what", RING_IPV6, &list), 0);
    cr_assert_str_eq(server.service, "what");
    cr_assert_eq(server.hints.ai_family, AF_INET6);
    cr_assert_eq(server.hints.ai_socktype, SOCK_STREAM);
    ring_addresses_destroy(list);
    close_place(&place);
}

static void errors_suite(void)
{
    static const struct {
        int eai, eai_errno, error;
    } errors[] = {
        {EAI_NONAME, 0, -ENOENT},   {EAI_NODATA, 0, -ENOENT},      {EAI_ADDRFAMILY, 0, -ENOENT},
        {EAI_AGAIN, 0, -EAGAIN},    {EAI_MEMORY, 0, -ENOMEM},      {EAI_SERVICE, 0, -EINVAL},
        {EAI_SOCKTYPE, 0, -EINVAL}, {EAI_FAMILY, 0, -EINVAL},      {EAI_BADFLAGS, 0, -EINVAL},
        {EAI_FAIL, 0, -EIO},        {EAI_SYSTEM, EMFILE, -EMFILE}, {EAI_SYSTEM, 0, -EIO},
    };
    struct ring_addresses *list;

    set_server();
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        server.eai = errors[i].eai;
        server.eai_errno = errors[i].eai_errno;
        cr_assert_eq(search("name", "1", 0, &list), errors[i].error, "%d", errors[i].eai);
        cr_assert_eq(host("name", "1", weft_after(WEFT_SEC(100))), errors[i].error);
    }
    cr_assert(weft__rt->timers == NULL);
}

/* ---- one after the other ---- */

static void sequence_suite(void)
{
    struct ring__faults *faults = ring__faults(weft__rt);
    int before = open_descriptors();
    struct place good, refuses, hangs;
    struct ring_addresses *list;
    struct flow flow;
    char service[16];
    int fd;

    ring__connect_delay = WEFT_FOREVER; /* whatever works here works at once */
    open_place(&good, ACCEPTS, false);
    open_place(&refuses, REFUSES, false);
    open_place(&hangs, HANGS, false);
    snprintf(service, sizeof service, "%d", good.port);
    fd = host("127.0.0.1", service, WEFT_FOREVER);
    cr_assert(fd >= 0, "%d", fd);
    close(fd);
    expect_connected(LIST(&good), &good);
    expect_connected(LIST(&good, &hangs), &good);
    expect_connected(LIST(&refuses, &good, &hangs), &good);
    expect_connected(
        LIST(&refuses, &refuses, &refuses, &refuses, &refuses, &refuses, &refuses, &refuses, &good),
        &good);
    cr_assert_eq(any(LIST(&refuses), WEFT_FOREVER), -ECONNREFUSED);
    cr_assert_eq(any(LIST(&refuses, &refuses, &refuses), WEFT_FOREVER), -ECONNREFUSED);
    if (faults != NULL) { /* which error it is */
        static const struct {
            int first, error; /* and then it is refused */
        } cases[] = {
            {-ENETUNREACH, -ECONNREFUSED},
            {-EADDRNOTAVAIL, -ECONNREFUSED},
            {-EHOSTUNREACH, -EHOSTUNREACH},
            {-ENOBUFS, -ENOBUFS},
        };

        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            faults->result = 1;
            faults->result_error = cases[i].first;
            cr_assert_eq(any(LIST(&good, &refuses), WEFT_FOREVER), cases[i].error);
        }
        if (strcmp(weft_engine_name(), "uring") == 0 &&
            !ring__refused_rows[RING__ROW_connect]) { /* the others try only in their turn */
            list = LIST(&refuses, &good);
            begin_any(&flow, list, WEFT_FOREVER);
            faults->result = 1; /* the second attempt's, after a refusal */
            faults->result_error = -ENOBUFS;
            cr_assert_eq(result(&flow), -ENOBUFS);
            ring_addresses_destroy(list);
        }
        faults->result = 2;
        faults->result_error = -ENETUNREACH;
        cr_assert_eq(any(LIST(&good, &good), WEFT_FOREVER), -ENETUNREACH);
        faults->result = 2;
        faults->result_error = -EINTR; /* of no interest: it is tried again */
        expect_connected(LIST(&good), &good);
    }
    reset_connections(&good);
    close_place(&good);
    close_place(&refuses);
    close_place(&hangs);
    cr_assert_eq(open_descriptors(), before);
    cr_assert(weft__rt->timers == NULL);
    cr_assert_eq(weft__rt->engine->in_flight, 0);
}

/* Without a descriptor to try with. */
static void shortage_suite(void)
{
    struct rlimit limit, none;
    struct place good;
    int rc;

    open_place(&good, ACCEPTS, false);
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    rc = any(LIST(&good, &good), WEFT_FOREVER);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_assert_eq(rc, -EMFILE, "%d", rc);
    close_place(&good);
}

/* The families take turns: the list's second address would hang for ever. */
static void turns_suite(void)
{
    struct place refuses6, hangs6, good4, good6, refuses4, hangs4;

    ring__connect_delay = WEFT_FOREVER;
    open_place(&refuses6, REFUSES, true);
    open_place(&hangs6, HANGS, true);
    open_place(&good6, ACCEPTS, true);
    open_place(&refuses4, REFUSES, false);
    open_place(&hangs4, HANGS, false);
    open_place(&good4, ACCEPTS, false);
    expect_connected(LIST(&refuses6, &hangs6, &good4), &good4);
    expect_connected(LIST(&refuses4, &hangs4, &hangs4, &good6), &good6);
    expect_connected(LIST(&refuses6, &good6, &hangs6, &refuses4, &hangs4), &good6);
    expect_connected(LIST(&refuses6, &refuses6, &good6, &refuses4), &good6);
    expect_connected(LIST(&good6, &hangs4), &good6);
    expect_connected(LIST(&good4, &hangs6), &good4);
    close_place(&refuses6);
    close_place(&hangs6);
    close_place(&good6);
    close_place(&refuses4);
    close_place(&hangs4);
    close_place(&good4);
}

/* ---- side by side ---- */

static void race_suite(bool v6)
{
    int before = open_descriptors();
    struct place good, refuses, hangs;
    struct flow flow;
    int fd;

    open_place(&good, ACCEPTS, false);
    open_place(&refuses, REFUSES, false);
    open_place(&hangs, HANGS, v6);
    /* who hangs is not waited for */
    ring__connect_delay = WEFT_MS(1);
    expect_connected(LIST(&hangs, &good), &good);
    expect_connected(LIST(&hangs, &hangs, &refuses, &good), &good);
    /* ... by name, too */
    set_server();
    server.places[0] = &hangs;
    server.places[1] = &good;
    fd = host("name", "1", WEFT_FOREVER);
    cr_assert(fd >= 0, "%d", fd);
    cr_assert_eq(peer_port(fd), good.port);
    close(fd);
    /* more of them than are tried at a time: the oldest makes room */
    expect_connected(
        LIST(&hangs, &hangs, &hangs, &hangs, &hangs, &hangs, &hangs, &hangs, &hangs, &good), &good);
    reset_connections(&good);
    /* nobody is tried before its time */
    ring__connect_delay = WEFT_FOREVER;
    cr_assert_eq(any(LIST(&hangs, &good), weft_after(WEFT_MS(5))), -ETIMEDOUT);
    begin_any(&flow, NULL, 0);
    cr_assert_eq(result(&flow), -EINVAL);
    cr_assert_eq(reset_connections(&good), 0);
    /* several that work: one connection is the caller's, no other one stays */
    ring__connect_delay = 0;
    for (int i = 0; i < 100; i++) {
        fd = any(LIST(&good, &good, &good), WEFT_FOREVER);
        cr_assert(fd >= 0, "%d", fd);
        reset_connections(&good);
        close(fd);
    }
    close_place(&good);
    close_place(&refuses);
    close_place(&hangs);
    cr_assert_eq(open_descriptors(), before);
    cr_assert(weft__rt->timers == NULL);
    cr_assert_eq(weft__rt->engine->in_flight, 0);
}

/* ---- deadlines ---- */

static void deadline_suite(void)
{
    int before = open_descriptors();
    struct place good, refuses, hangs;
    struct flow flow;
    int fd, rc;

    ring__connect_delay = WEFT_MS(1);
    open_place(&good, ACCEPTS, false);
    open_place(&refuses, REFUSES, false);
    open_place(&hangs, HANGS, false);
    cr_assert_eq(any(LIST(&hangs), weft_after(WEFT_MS(1))), -ETIMEDOUT);
    cr_assert_eq(any(LIST(&hangs, &hangs, &refuses), weft_after(WEFT_MS(5))), -ETIMEDOUT);
    cr_assert_eq(any(LIST(&refuses, &hangs), weft_after(WEFT_MS(1))), -ETIMEDOUT);
    cr_assert_eq(any(LIST(&hangs, &hangs), weft_now() - 1), -ETIMEDOUT);
    cr_assert_eq(any(LIST(&hangs, &hangs), 1), -ETIMEDOUT);
    cr_assert_eq(any(LIST(&hangs, &good), WEFT_NOWAIT), -ETIMEDOUT);
    rc = any(LIST(&refuses, &refuses), WEFT_NOWAIT); /* there and then, or not */
    cr_assert(rc == -ECONNREFUSED || rc == -ETIMEDOUT, "%d", rc);
    fd = any(LIST(&refuses, &good), WEFT_NOWAIT);
    cr_assert(fd >= 0 || fd == -ETIMEDOUT, "%d", fd);
    if (fd >= 0)
        close(fd);
    /* while the name is looked up */
    set_server();
    server.waits = true;
    cr_assert_eq(host("name", "1", WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert_eq(host("name", "1", weft_after(WEFT_MS(1))), -ETIMEDOUT);
    begin_search(&flow, "name", "1", 0, weft_after(WEFT_MS(1)));
    cr_assert_eq(result(&flow), -ETIMEDOUT);
    cr_assert_eq(flow.list, NULL);
    begin_search(&flow, "name", "1", 0, WEFT_NOWAIT);
    cr_assert_eq(result(&flow), -ETIMEDOUT);
    for (int i = 0; i < 4; i++)
        sem_post(&server.answer);
    close_place(&good);
    close_place(&refuses);
    close_place(&hangs);
    cr_assert_eq(open_descriptors(), before);
    cr_assert(weft__rt->timers == NULL);
    cr_assert_eq(weft__rt->engine->in_flight, 0);
}

/* ---- cancels ---- */

/* In each phase: the lookup, the first attempt, the race. */
static void cancel_suite(void)
{
    int before = open_descriptors();
    struct ring_addresses *list;
    struct place hangs;
    struct flow flow;

    ring__connect_delay = WEFT_MS(1);
    open_place(&hangs, HANGS, false);
    set_server();
    server.waits = true;
    server.places[0] = server.places[1] = server.places[2] = &hangs;
    for (int deadline = 0; deadline < 2; deadline++) {
        weft_time at = deadline ? weft_after(WEFT_SEC(1000)) : WEFT_FOREVER;

        /* the lookup: queued, under way */
        begin_host(&flow, "name", "1", at);
        cancel(&flow);
        cr_assert_eq(result(&flow), -ECANCELED);
        sem_post(&server.answer); /* if it was asked */
        begin_host(&flow, "name", "1", at);
        wait_for(&server.asked);
        cancel(&flow);
        cr_assert_eq(result(&flow), -ECANCELED);
        begin_search(&flow, "name", "1", 0, at);
        cancel(&flow);
        cr_assert_eq(result(&flow), -ECANCELED);
        cr_assert_eq(flow.list, NULL);
        sem_post(&server.answer);
        sem_post(&server.answer);
        open_descriptors(); /* waits for the pool */
        while (sem_trywait(&server.answer) == 0 || sem_trywait(&server.asked) == 0)
            ;
        /* the first attempt: queued, in the kernel */
        list = LIST(&hangs, &hangs, &hangs);
        for (int i = 0; i < 2; i++) {
            begin_any(&flow, list, at);
            if (i)
                step();
            cancel(&flow);
            cr_assert_eq(result(&flow), -ECANCELED);
        }
        /* the race: from the list, and by name */
        for (unsigned active = 2; active <= 3; active++) {
            begin_any(&flow, list, at);
            while (weft__rt->engine->in_flight < active)
                step();
            cancel(&flow);
            cr_assert_eq(result(&flow), -ECANCELED);
        }
        sem_post(&server.answer);
        begin_host(&flow, "name", "1", at);
        while (weft__rt->engine->in_flight < 3)
            step();
        cancel(&flow);
        cr_assert_eq(result(&flow), -ECANCELED);
        ring_addresses_destroy(list);
        cr_assert(weft__rt->timers == NULL);
        cr_assert_eq(weft__rt->engine->in_flight, 0);
    }
    close_place(&hangs);
    cr_assert_eq(open_descriptors(), before);
}

static uint32_t random_below(uint32_t n)
{
    static uint32_t state = 1;

    state = state * 1664525 + 1013904223;
    return (state >> 8) % n;
}

static int rounds;

/* Cancelled whenever: every outcome is one of the two, and nothing stays. */
static void random_suite(void)
{
    int before = open_descriptors(), won = 0, cancelled = 0, inside, fd;
    int met[3] = {0}; /* the lookup, or the end; one attempt; several */
    struct place places[BEHAVIOURS];
    struct ring_addresses *lists[32];
    struct flow flow;

    for (int i = 0; i < BEHAVIOURS; i++)
        open_place(&places[i], (enum behaviour)i, false);
    for (int i = 0; i < 32; i++) {
        struct place *of[8];
        size_t count = 1 + random_below(8);

        for (size_t j = 0; j < count; j++)
            of[j] = &places[random_below(BEHAVIOURS)];
        of[count - 1] = &places[HANGS]; /* so that only a cancel or a connection ends it */
        lists[i] = list_of(of, count);
    }
    set_server();
    server.places[0] = &places[HANGS];
    server.places[1] = &places[ACCEPTS];
    server.places[2] = &places[REFUSES];
    inside = open_descriptors();
    for (int i = 0; i < rounds; i++) {
        weft_time deadline = random_below(2) ? WEFT_FOREVER : weft_after(WEFT_SEC(1000));

        ring__connect_delay = random_below(4) == 0 ? 0 : WEFT_US(random_below(50));
        if (random_below(8) == 0)
            begin_host(&flow, "name", "1", deadline);
        else
            begin_any(&flow, lists[random_below(32)], deadline);
        for (uint32_t steps = random_below(8); steps > 0; steps--)
            step();
        met[weft__rt->engine->in_flight < 2 ? weft__rt->engine->in_flight : 2]++;
        cancel(&flow);
        fd = result(&flow);
        reset_connections(&places[ACCEPTS]);
        if (fd >= 0) {
            won++;
            close(fd);
        } else {
            cr_assert_eq(fd, -ECANCELED, "%d", fd);
            cancelled++;
        }
        cr_assert(weft__rt->timers == NULL);
        cr_assert_eq(weft__rt->engine->in_flight, 0);
        if (i % 1000 == 999)
            cr_assert_eq(open_descriptors(), inside);
    }
    cr_assert(won > 0 && cancelled > 0, "%d won, %d cancelled", won, cancelled);
    cr_assert(met[0] > 0 && met[1] > 0 && met[2] > 0, "%d, %d, %d", met[0], met[1], met[2]);
    for (int i = 0; i < 32; i++)
        ring_addresses_destroy(lists[i]);
    for (int i = 0; i < BEHAVIOURS; i++)
        close_place(&places[i]);
    cr_assert_eq(open_descriptors(), before);
}

/* ---- lookups that nobody answers (nodejs 8436) ---- */

enum { STUCK = 64 };

struct other_work {
    struct weft_job job;
    struct stat about;
    bool done;
};

static void stat_root(struct weft_job *job)
{
    if (stat("/", &weft__container(job, struct other_work, job)->about) < 0)
        abort();
}

static void stat_done(struct weft_job *job)
{
    weft__container(job, struct other_work, job)->done = true;
}

static void stat_dropped(struct weft_job *job)
{
    (void)job;
    abort();
}

static void stuck_suite(void)
{
    struct other_work work = {.job = {.run = stat_root, .done = stat_done, .drop = stat_dropped}};
    static struct flow flows[STUCK];
    struct ring_addresses *list;
    int calls;

    set_server();
    server.waits = true;
    for (int i = 0; i < STUCK; i++)
        if (i % 2)
            begin_search(&flows[i], "name", "1", 0, WEFT_FOREVER);
        else
            begin_host(&flows[i], "name", "1", WEFT_FOREVER);
    wait_for(&server.asked);
    cr_assert_eq(weft__offload(weft__rt, &work.job, WEFT__JOB_WORK), 0);
    while (!work.done)
        step();
    cr_assert(S_ISDIR(work.about.st_mode));
    /* what is written in numbers isn't held up either */
    cr_assert_eq(search("::1", "domain", 0, &list), 0);
    ring_addresses_destroy(list);
    /* those given up in the queue are never begun */
    for (int i = 0; i < STUCK; i++) {
        cancel(&flows[i]);
        cr_assert_eq(result(&flows[i]), -ECANCELED);
    }
    for (int i = 0; i < STUCK; i++)
        sem_post(&server.answer);
    open_descriptors(); /* waits for the pool, where one may have been taken, but not begun */
    calls = atomic_load(&server.calls);
    cr_assert(calls < 16, "%d", calls);
}

/* ---- localhost, as the system has it ---- */

static void localhost_suite(void)
{
    struct ring_addresses *list;
    struct place good;
    char service[16];
    int fd;

    open_place(&good, ACCEPTS, false);
    snprintf(service, sizeof service, "%d", good.port);
    cr_assert_eq(search("localhost", service, RING_IPV4, &list), 0);
    expect_connected(list, &good);
    fd = host("localhost", service, weft_after(WEFT_SEC(100)));
    cr_assert(fd >= 0, "%d", fd);
    cr_assert_eq(peer_port(fd), good.port);
    close(fd);
    close_place(&good);
    cr_assert_eq(host("localhost", service, WEFT_FOREVER), -ECONNREFUSED);
}

/* The test is skipped, and says why, on a system without them. */
static void need_localhost(void)
{
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list;
    int eai = getaddrinfo("localhost", NULL, &hints, &list);

    if (eai != 0)
        cr_skip_test("no IPv4 address for localhost: %s", gai_strerror(eai));
    freeaddrinfo(list);
}

static void need_v6(void)
{
    int fd = ring_listen("::1", "0", 1);

    if (fd < 0)
        cr_skip_test("no IPv6 loopback: %s", strerror(-fd));
    close(fd);
}

#endif
