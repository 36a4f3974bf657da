/* soak_cluster.c: runtimes that have to do with each other at random, for a long time.
 *
 *     soak_cluster SEED COUNT [ENGINE]
 *
 * COUNT actions or a few more, of fibers in three runtimes: calls on another runtime, waited for, with a
 * deadline, cancelled, or left alone, and calls in calls; jobs for a pool of workers; items through a
 * channel that all share, and two plain threads; items that come when a thread's deadline does;
 * connections to a port on which every runtime listens, and whose accepted descriptors are handed on, by a
 * call or through a channel. Every third cluster is stopped in the middle of it.
 *
 * What must hold: a call that has returned is not running there; each item arrives once, or its sender
 * still has it, or it is destroyed with its channel; whatever a call owns is freed once; every connection
 * is answered; no descriptor is left.
 * Whatever is wrong ends the program with status 1. Plain, since Criterion doesn't run under
 * ThreadSanitizer. */
#include <weft/weft.h>

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RUNTIMES   3
#define ACTORS     4   /* fibers in each */
#define PER_ROUND  400 /* actions of a cluster */
#define PER_THREAD 400 /* items that a thread sends */
#define LEVELS     2   /* calls in calls */
#define RACES      60  /* deadlines of a thread that come when an item does */
#define RACE_EVERY WEFT_US(200)

#define CHECK(condition, ...)                                                                   \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr,                                                                     \
                    "soak_cluster: seed %llu, round %u, line %d: ", (unsigned long long)s.seed, \
                    s.round, __LINE__);                                                         \
            fprintf(stderr, __VA_ARGS__);                                                       \
            fprintf(stderr, "\n");                                                              \
            _exit(1);                                                                           \
        }                                                                                       \
    } while (0)

struct actor {
    uint64_t random;
    int level;
    bool strict; /* nobody cancels it but the end of the cluster */
    bool
        in_pool; /* no work for the pool in the pool, nor anything with a cluster that may be gone */
};

static struct {
    uint64_t seed;
    unsigned round;
    struct weft_options options;
    struct weft_workers *workers;
    struct weft_shared_channel *items, *handed, *finish, *raced;
    weft_time races; /* when they begin */
    struct sockaddr_in address;
    atomic_int actions_left, actors_left;
    atomic_bool ending; /* from now on anything may be cut short */
    struct actor actors[RUNTIMES][ACTORS];

    /* the model */
    atomic_uchar *sent, *received; /* of each item */
    atomic_uint next_item;
    unsigned max_items;
    atomic_long made, gone; /* what calls own */
    atomic_long done[8];    /* for the summary */
} s;

static uint64_t draw(struct actor *a, uint64_t below)
{
    a->random ^= a->random << 13;
    a->random ^= a->random >> 7;
    a->random ^= a->random << 17;
    return (a->random >> 11) % below;
}

static weft_time some_deadline(struct actor *a)
{
    switch (draw(a, 4)) {
    case 0:
        return WEFT_NOWAIT;
    case 1:
        return WEFT_FOREVER;
    default:
        return weft_after((int64_t)draw(a, WEFT_US(300)));
    }
}

static weft_time short_deadline(struct actor *a)
{
    return weft_after((int64_t)draw(a, WEFT_US(300)));
}

static bool lenient(const struct actor *a)
{
    return !a->strict || atomic_load(&s.ending);
}

static int wait_for(void *promise)
{
    return fiber_await(promise, NULL, WEFT_FOREVER);
}

static int await_shielded(struct promise *promise)
{
    return fiber_shield(wait_for, promise);
}

static void linger(struct actor *a)
{
    if (draw(a, 2))
        fiber_yield();
    else
        fiber_sleep((int64_t)draw(a, WEFT_US(100)));
}

static struct weft_inbox *somewhere(struct actor *a)
{
    return weft_cluster_inbox(weft_cluster_current(), (unsigned)draw(a, RUNTIMES));
}

/* ---- items ---- */

static bool new_item(union weft_value *item)
{
    unsigned id = atomic_fetch_add(&s.next_item, 1);

    item->num = (int64_t)id + 1;
    return id < s.max_items;
}

static void was_sent(union weft_value item)
{
    atomic_fetch_add(&s.sent[item.num - 1], 1);
}

static void was_received(void *ptr)
{
    intptr_t id = (intptr_t)ptr - 1;

    CHECK(id >= 0 && id < (intptr_t)s.max_items, "no item: %ld", (long)id);
    CHECK(atomic_fetch_add(&s.received[id], 1) == 0, "item %ld comes twice", (long)id);
}

static void expect_transfer(const struct actor *a, int rc)
{
    CHECK(rc == 0 || rc == -ETIMEDOUT || lenient(a), "an item: %s", weft_strerror(rc));
}

static void act_item(struct actor *a)
{
    struct promise *promise;
    union weft_value item;
    bool sends = draw(a, 2);
    int rc;

    if (sends && !new_item(&item))
        return;
    switch (draw(a, 3)) {
    case 0: /* a promise that is cancelled, in time or not; if it has an item, that goes with it */
        promise = sends ? promise_shared_channel_send(s.items, item)
                        : promise_shared_channel_recv(s.items);
        linger(a);
        promise_cancel(promise);
        rc = await_shielded(promise);
        CHECK(rc == 0 || rc == -ECANCELED || lenient(a), "a promise: %s", weft_strerror(rc));
        if (sends && rc == 0)
            was_sent(item);
        return;
    case 1: /* one that is waited for, and then left alone */
        if (!sends) {
            expect_transfer(
                a, fiber_await(promise_shared_channel_recv(s.items), NULL, short_deadline(a)));
            return;
        } /* fall through */
    default:
        rc = sends ? fiber_shared_channel_send(s.items, item, short_deadline(a))
                   : fiber_shared_channel_recv(s.items, &item, short_deadline(a));
        expect_transfer(a, rc);
        if (rc == 0 && sends)
            was_sent(item);
        else if (rc == 0)
            was_received(item.ptr);
    }
}

static void *send_items(void *actor)
{
    union weft_value item;
    int rc = 0;

    for (int i = 0; i < PER_THREAD && rc != -EPIPE && new_item(&item); i++) {
        rc = weft_shared_channel_send(s.items, item, short_deadline(actor));
        CHECK(rc == 0 || rc == -ETIMEDOUT || rc == -EPIPE, "%s", weft_strerror(rc));
        if (rc == 0)
            was_sent(item);
    }
    return NULL;
}

static void *receive_items(void *actor)
{
    union weft_value item;
    int rc;

    do {
        rc = weft_shared_channel_recv(s.items, &item, short_deadline(actor));
        CHECK(rc == 0 || rc == -ETIMEDOUT || rc == -ENODATA, "%s", weft_strerror(rc));
        if (rc == 0)
            was_received(item.ptr);
    } while (rc != -ENODATA);
    return NULL;
}

/* ---- deadlines at the same time as items ---- */

/* A thread that waits until each of the times, ... */
static void *wait_in_race(void *actor)
{
    bool sends = ((struct actor *)actor)->strict;
    union weft_value item;

    for (int i = 0; i < RACES && (!sends || new_item(&item)); i++) {
        weft_time deadline = s.races + i * RACE_EVERY;
        int rc = sends ? weft_shared_channel_send(s.raced, item, deadline)
                       : weft_shared_channel_recv(s.raced, &item, deadline);

        CHECK(rc == 0 || rc == -ETIMEDOUT, "%s", weft_strerror(rc));
        if (rc == 0 && sends)
            was_sent(item);
        else if (rc == 0)
            was_received(item.ptr);
    }
    return NULL;
}

/* ... and one that does the other half a little later, when that one is about to wake or has just woken:
 * a kernel's timers are late by some 50 us. */
static void *hit_in_race(void *actor)
{
    struct actor *a = actor;
    union weft_value item;

    for (int i = 0; i < RACES && (a->strict || new_item(&item)); i++) {
        weft_time at = s.races + i * RACE_EVERY + (int64_t)draw(a, WEFT_US(150));

        while (weft_now() < at)
            sched_yield();
        if (a->strict && weft_shared_channel_try_recv(s.raced, &item) == 0)
            was_received(item.ptr);
        else if (!a->strict && weft_shared_channel_try_send(s.raced, item) == 0)
            was_sent(item);
    }
    return NULL;
}

/* `strict` says who of the two sends. What is in the channel afterwards stays there. */
static void race(struct actor *a, size_t capacity)
{
    struct actor waiter = {draw(a, UINT64_MAX) | 1, 0, draw(a, 2), false}, hitter = waiter;
    pthread_t waiting, hitting;
    union weft_value item;

    s.raced = weft_shared_channel_create(NULL, capacity, was_received);
    CHECK(s.raced != NULL, "no memory");
    s.races = weft_after(RACE_EVERY);
    pthread_create(&waiting, NULL, wait_in_race, &waiter);
    pthread_create(&hitting, NULL, hit_in_race, &hitter);
    pthread_join(waiting, NULL);
    pthread_join(hitting, NULL);
    while (new_item(&item) && weft_shared_channel_try_send(s.raced, item) == 0)
        was_sent(item);
    if (draw(a, 2))
        weft_shared_channel_close(s.raced);
    weft_shared_channel_unref(s.raced);
}

/* ---- calls and jobs ---- */

static void act(struct actor *a);

struct job {
    struct actor actor;
    atomic_int begun, ended;
    int64_t answer;
};

static void set_job(struct job *job, struct actor *a, bool in_pool)
{
    memset(job, 0, sizeof *job);
    job->actor = (struct actor){draw(a, UINT64_MAX) | 1, a->level - 1, false, in_pool};
    job->answer = (int64_t)draw(a, 1000000);
}

static int64_t run_job(void *arg)
{
    struct job *job = arg;
    int rc;

    CHECK(atomic_fetch_add(&job->begun, 1) == 0, "a call twice");
    if (draw(&job->actor, 2))
        act(&job->actor);
    else
        linger(&job->actor);
    rc = fiber_check();
    atomic_fetch_add(&job->ended, 1);
    return rc < 0 ? rc : job->answer;
}

static void free_job(void *job)
{
    CHECK(atomic_load(&((struct job *)job)->begun) == atomic_load(&((struct job *)job)->ended),
          "freed while it runs");
    atomic_fetch_add(&s.gone, 1);
    free(job);
}

static struct job *own_job(struct actor *a, bool in_pool)
{
    struct job *job = malloc(sizeof *job);

    CHECK(job != NULL, "no memory");
    set_job(job, a, in_pool);
    atomic_fetch_add(&s.made, 1);
    return job;
}

static void act_call(struct actor *a)
{
    weft_time deadline = some_deadline(a);
    bool pool = !a->in_pool && draw(a, 3) == 0;
    const unsigned weights[] = {5, 50, WEFT_CPU};
    struct job job;
    int64_t rc;
    int begun;

    set_job(&job, a, pool);
    rc = pool ? fiber_work(s.workers, weights[draw(a, 3)], run_job, &job, deadline)
              : fiber_call_on(somewhere(a), run_job, &job, deadline);
    begun = atomic_load(&job.begun);
    CHECK(begun == atomic_load(&job.ended), "it returned, and it runs");
    CHECK(rc < 0 || (begun == 1 && rc == job.answer), "another answer");
    CHECK(rc >= 0 || (rc == -ETIMEDOUT && deadline != WEFT_FOREVER) || lenient(a), "a call: %s",
          weft_strerror((int)rc));
    CHECK(rc != -ESHUTDOWN || begun == 0, "called, and refused");
}

/* The caller waits, gives it up, or leaves it alone. */
static void finish_promise(struct actor *a, struct promise *promise, int64_t answer,
                           int may_be_refused)
{
    union weft_value value;
    int rc;

    switch (draw(a, 4)) {
    case 0:
        promise_unref(promise);
        return;
    case 1:
        linger(a);
        promise_cancel(promise);
        rc = await_shielded(promise);
        CHECK(rc == 0 || rc == -ECANCELED || rc == may_be_refused || lenient(a), "a promise: %s",
              weft_strerror(rc));
        return;
    case 2:
        fiber_await(promise, NULL, short_deadline(a));
        return;
    default:
        rc = fiber_await(promise_ref(promise), &value, WEFT_FOREVER);
        CHECK(rc == 0 || rc == may_be_refused || lenient(a), "a promise: %s", weft_strerror(rc));
        CHECK(rc < 0 || answer < 0 || value.num == answer, "another answer");
        promise_unref(promise);
    }
}

static void act_spawn(struct actor *a)
{
    bool pool = !a->in_pool && draw(a, 3) == 0;
    struct job *job = own_job(a, pool);
    int64_t answer = job->answer;

    finish_promise(a,
                   pool ? fiber_submit(s.workers, 50, run_job, job, free_job)
                        : fiber_spawn_on(somewhere(a), run_job, job, free_job),
                   answer, pool ? -EAGAIN : 0);
}

/* Owned values that cross over. */
static struct promise *give_job(void *arg)
{
    struct job *job = arg;

    if (draw(&job->actor, 2))
        return promise_sleep((int64_t)draw(&job->actor, WEFT_US(100)));
    return promise_fulfilled_owned(own_job(&job->actor, false), free_job);
}

static void act_promise(struct actor *a)
{
    bool pool = !a->in_pool && draw(a, 3) == 0;
    struct job *job = own_job(a, pool);

    finish_promise(a,
                   pool ? promise_submit(s.workers, 50, give_job, job, free_job)
                        : promise_call_on(somewhere(a), give_job, job, free_job),
                   -1, pool ? -EAGAIN : 0);
}

static int64_t run_actor(void *actor)
{
    act(actor);
    return 0;
}

/* A fiber here that is cancelled in whatever it does. */
static void act_cancel(struct actor *a)
{
    struct actor inner = {draw(a, UINT64_MAX) | 1, a->level - 1, false, a->in_pool};
    struct promise *promise = fiber_spawn(run_actor, &inner);

    linger(a);
    promise_cancel(promise);
    await_shielded(promise);
}

/* ---- connections ---- */

static void serve(int fd)
{
    char byte;

    if (fiber_recv(fd, &byte, 1, 0, WEFT_FOREVER) == 1)
        fiber_send(fd, &byte, 1, MSG_NOSIGNAL, WEFT_FOREVER);
    fiber_close(fd);
}

/* A descriptor on its way; whoever has it when it is given up closes it. */
static void close_handed(void *ptr)
{
    close((int)(intptr_t)ptr);
}

static int64_t serve_one(void *fd)
{
    serve(*(int *)fd);
    *(int *)fd = -1;
    return 0;
}

static void free_one(void *fd)
{
    if (*(int *)fd >= 0)
        close(*(int *)fd);
    atomic_fetch_add(&s.gone, 1);
    free(fd);
}

static int64_t serve_handed(void *unused)
{
    union weft_value value;

    (void)unused;
    while (fiber_shared_channel_recv(s.handed, &value, WEFT_FOREVER) == 0)
        serve((int)value.num);
    return 0;
}

static int64_t accept_all(void *listener)
{
    for (unsigned i = 0;; i++) {
        int fd = fiber_accept(*(int *)listener, NULL, NULL, SOCK_CLOEXEC, WEFT_FOREVER), *box;

        if (fd < 0)
            return lenient(&(struct actor){.strict = true}) ? 0 : fd;
        if (i % 2 == 0) {
            if (fiber_shared_channel_send(s.handed, weft_num(fd), WEFT_FOREVER) < 0)
                fiber_close(fd);
            continue;
        }
        box = malloc(sizeof *box);
        CHECK(box != NULL, "no memory");
        *box = fd;
        atomic_fetch_add(&s.made, 1);
        promise_unref(fiber_spawn_on(weft_cluster_inbox(weft_cluster_current(), i / 2 % RUNTIMES),
                                     serve_one, box, free_one));
    }
}

static void act_connect(struct actor *a)
{
    const struct linger at_once = {.l_onoff = 1}; /* leaves no port waiting */
    int fd = fiber_socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0, WEFT_FOREVER);
    char byte = (char)draw(a, 256), answer = 0;
    int rc = fd;

    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        rc = fiber_connect(fd, (const struct sockaddr *)&s.address, sizeof s.address, WEFT_FOREVER);
        if (rc == 0 && draw(a, 6) > 0) {
            rc = fiber_send(fd, &byte, 1, MSG_NOSIGNAL, WEFT_FOREVER);
            if (rc == 1)
                rc = fiber_recv(fd, &answer, 1, 0, WEFT_FOREVER);
            CHECK((rc == 1 && answer == byte) || lenient(a), "no answer: %s", weft_strerror(rc));
        }
        fiber_close(fd);
    }
    CHECK(rc >= 0 || lenient(a), "a connection: %s", weft_strerror(rc));
}

/* ---- actors ---- */

static void act(struct actor *a)
{
    void (*const acts[])(struct actor *) = {act_item,    act_item,   act_call,   act_spawn,
                                            act_promise, act_cancel, act_connect};
    unsigned which = (unsigned)draw(a, a->in_pool || a->level <= 0 ? 2 : 7);

    atomic_fetch_add_explicit(&s.done[which], 1, memory_order_relaxed);
    acts[which](a);
}

static int64_t be_actor(void *actor)
{
    struct actor *a = actor;

    while (fiber_check() == 0) {
        int left = atomic_fetch_sub(&s.actions_left, 1);

        if (left <= 0)
            break;
        if (s.round % 3 == 2 && left == PER_ROUND / 2) {
            atomic_store(&s.ending, true);
            weft_cluster_stop(weft_cluster_current());
        }
        act(a);
    }
    if (atomic_fetch_sub(&s.actors_left, 1) == 1) {
        atomic_store(&s.ending, true);
        weft_shared_channel_close(s.finish);
        weft_shared_channel_close(s.handed);
    }
    return 0;
}

static int run_runtime(struct weft_cluster *cluster, unsigned index, void *unused)
{
    static int listeners[RUNTIMES];
    struct promise *acceptor, *fibers[ACTORS + 2];
    union weft_value value;
    char port[8];

    (void)unused;
    (void)cluster;
    snprintf(port, sizeof port, "%d", ntohs(s.address.sin_port));
    listeners[index] = ring_listen_with("127.0.0.1", port, 0, RING_REUSEPORT);
    if (listeners[index] < 0)
        return listeners[index];
    acceptor = fiber_spawn(accept_all, &listeners[index]);
    for (int i = 0; i < ACTORS; i++)
        fibers[i] = fiber_spawn(be_actor, &s.actors[index][i]);
    fibers[ACTORS] = fiber_spawn(serve_handed, NULL);
    fibers[ACTORS + 1] = fiber_spawn(serve_handed, NULL);
    if (fiber_shared_channel_recv(s.finish, &value, WEFT_FOREVER) != -ENODATA)
        CHECK(atomic_load(&s.ending), "cancelled too early");
    for (int i = 0; i < ACTORS + 2; i++)
        await_shielded(fibers[i]);
    promise_cancel(acceptor);
    await_shielded(acceptor);
    fiber_close(listeners[index]);
    return 0;
}

/* ---- rounds ---- */

static int open_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;

    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

/* A port for whoever listens with SO_REUSEPORT; the socket keeps it, and takes no connection. */
static int take_port(void)
{
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t length = sizeof s.address;

    s.address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    CHECK(bind(fd, (struct sockaddr *)&s.address, length) == 0 &&
              getsockname(fd, (struct sockaddr *)&s.address, &length) == 0,
          "no port");
    return fd;
}

static void check_items(void)
{
    unsigned count = atomic_load(&s.next_item);

    for (unsigned i = 0; i < count && i < s.max_items; i++) {
        CHECK(s.sent[i] <= 1 && s.received[i] <= 1, "item %u twice", i);
        CHECK(s.sent[i] == s.received[i], "item %u is lost, or was never sent", i);
    }
}

static void run_round(struct actor *a)
{
    const size_t capacities[] = {0, 1, 2, 30};
    struct weft_workers_options workers = WEFT_WORKERS_OPTIONS_INIT;
    struct weft_cluster_options cluster = WEFT_CLUSTER_OPTIONS_INIT;
    struct actor sender = {draw(a, UINT64_MAX) | 1, 0, true, false}, receiver = sender;
    pthread_t sending, receiving;
    union weft_value item;
    int rc, port = take_port();

    receiver.random += 2;
    s.ending = false;
    s.actions_left = PER_ROUND;
    s.actors_left = RUNTIMES * ACTORS;
    s.next_item = 0;
    memset(s.sent, 0, s.max_items);
    memset(s.received, 0, s.max_items);
    for (int i = 0; i < RUNTIMES; i++)
        for (int j = 0; j < ACTORS; j++)
            s.actors[i][j] = (struct actor){draw(a, UINT64_MAX) | 1, LEVELS, true, false};
    s.items = weft_shared_channel_create(NULL, capacities[draw(a, 4)], was_received);
    s.handed = weft_shared_channel_create(NULL, capacities[draw(a, 4)], close_handed);
    s.finish = weft_shared_channel_create(NULL, 0, NULL);
    CHECK(s.items != NULL && s.handed != NULL && s.finish != NULL, "no memory");
    workers.count = 2;
    workers.limit = 3;
    workers.runtime = &s.options;
    CHECK(weft_workers_create(&s.workers, &workers) == 0, "no workers");
    pthread_create(&sending, NULL, send_items, &sender);
    pthread_create(&receiving, NULL, receive_items, &receiver);

    cluster.count = RUNTIMES;
    cluster.runtime = &s.options;
    rc = weft_cluster_run(run_runtime, NULL, &cluster);
    CHECK(rc == 0, "the cluster: %s", weft_strerror(rc));

    rc = weft_workers_destroy(s.workers, draw(a, 2) ? WEFT_WORKERS_DRAIN : WEFT_WORKERS_CANCEL);
    CHECK(rc == 0, "the workers: %s", weft_strerror(rc));
    weft_shared_channel_close(s.items);
    pthread_join(sending, NULL);
    pthread_join(receiving, NULL);
    CHECK(weft_shared_channel_try_recv(s.items, &item) == -ENODATA, "an item is left");
    weft_shared_channel_unref(s.items);
    weft_shared_channel_unref(s.handed);
    weft_shared_channel_unref(s.finish);
    race(a, capacities[draw(a, 4)]);
    close(port);
    check_items();
    CHECK(s.made == s.gone, "%ld made, %ld freed", s.made, s.gone);
}

int main(int argc, char **argv)
{
    const struct weft_options options = WEFT_OPTIONS_INIT;
    struct actor a = {.strict = true};
    long count;
    int before;

    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: soak_cluster SEED COUNT [ENGINE]\n");
        return 2;
    }
    s.seed = strtoull(argv[1], NULL, 10);
    a.random = s.seed * 0x9e3779b97f4a7c15 + 1;
    count = strtol(argv[2], NULL, 10);
    s.options = options;
    s.options.engine = argc > 3 ? argv[3] : NULL;
    s.max_items = 8 * PER_ROUND + PER_THREAD + 2 * RACES + 64;
    s.sent = calloc(s.max_items, sizeof *s.sent);
    s.received = calloc(s.max_items, sizeof *s.received);
    CHECK(s.sent != NULL && s.received != NULL, "no memory");
    before = open_descriptors();
    for (; count > 0; count -= PER_ROUND, s.round++) {
        run_round(&a);
        CHECK(open_descriptors() == before, "%d descriptors are left", open_descriptors() - before);
    }
    printf("%u rounds: items %ld, calls %ld, spawned %ld, promises %ld, cancelled %ld, "
           "connections %ld\n",
           s.round, s.done[0] + s.done[1], s.done[2], s.done[3], s.done[4], s.done[5], s.done[6]);
    free(s.sent);
    free(s.received);
    return 0;
}
