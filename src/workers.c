/* workers.c: pools: a cluster of runtimes that serve, and a queue of calls for it.
 *
 * A job is a call (call.h) that waits in the pool's queue until a worker has room for its weight; then
 * it goes there as any call, under the pool's lock: a job that is not in the queue is on its way, or
 * there. When it is over, and before it goes back, its weight is taken off the worker, and the next ones
 * are sent. Jobs are queued through their own memory, so nothing is allocated and nothing can fail
 * between submitting and running.
 *
 * The pool's memory is counted: by its owner, and by each job until it is back, since a job may be
 * cancelled until then.
 *
 * The process's own pool is made when it is first wanted. When the process exits it is taken down if it
 * is idle, else left to the process's end. In a child of fork there is none, until one is wanted.
 */
#include "workers.h"

#include "cluster.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(void *) != 8 || sizeof(struct weft_workers_options) == 88, "part of the ABI");

#define LIMIT   1024
#define SENDS   16 /* at a time under the lock */
#define NOWHERE UINT32_MAX
#define GONE    1000u /* a load that leaves no room */

struct weft_workers {
    pthread_mutex_t lock;
    pthread_cond_t idle;
    atomic_size_t refs;
    struct weft_cluster *cluster;
    unsigned forks; /* whose process it is of */
    unsigned limit, count;
    struct weft__work *first, **tail;
    size_t queued, running;
    size_t stored; /* queued, and nobody waits for them */
    bool ending;
    unsigned turn; /* the worker to be looked at first */
    unsigned gone; /* workers that a job has stopped */
    unsigned load[];
};

static struct {
    pthread_mutex_t lock;
    pthread_once_t once;
    struct weft_workers *pool;
} own = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_ONCE_INIT, NULL};

static atomic_uint all_workers; /* of all pools */

/* ---- the queue; locked ---- */

static void enqueue(struct weft_workers *workers, struct weft__work *work)
{
    work->next = NULL;
    work->link = workers->tail;
    *workers->tail = work;
    workers->tail = &work->next;
    workers->queued++;
    workers->stored += !work->waited_for;
}

static void dequeue(struct weft_workers *workers, struct weft__work *work)
{
    *work->link = work->next;
    if (work->next != NULL)
        work->next->link = work->link;
    else
        workers->tail = work->link;
    work->link = NULL;
    workers->queued--;
    workers->stored -= !work->waited_for;
}

/* The least loaded worker that has room, beginning with another one each time; or NOWHERE. */
static unsigned find_worker(const struct weft_workers *workers, unsigned weight)
{
    unsigned best = NOWHERE;

    for (unsigned i = 0; i < workers->count; i++) {
        unsigned worker = (workers->turn + i) % workers->count;

        if (workers->load[worker] + weight <= 100 &&
            (best == NOWHERE || workers->load[worker] < workers->load[best]))
            best = worker;
    }
    return best;
}

/* Sends the first job to a worker that has room for it. Returns that one's inbox, to be nudged; NULL:
 * there is no job, or no room. */
static struct weft_inbox *send_first(struct weft_workers *workers)
{
    struct weft__work *work = workers->first;

    while (work != NULL) {
        unsigned worker = find_worker(workers, work->weight);
        struct weft_inbox *inbox;

        if (worker == NOWHERE)
            return NULL;
        inbox = weft_cluster_inbox(workers->cluster, worker);
        if (weft__call_push(work->call, inbox) == 0) {
            dequeue(workers, work); /* it can't be over before the lock is left */
            work->worker = worker;
            workers->load[worker] += work->weight;
            workers->running++;
            workers->turn = worker + 1;
            return inbox;
        }
        workers->load[worker] = GONE;
        workers->gone++;
    }
    return NULL;
}

/* For who waits until all is done. */
static void tell_if_idle(struct weft_workers *workers)
{
    if (workers->ending && workers->running == 0 && workers->queued == 0)
        pthread_cond_broadcast(&workers->idle);
}

/* Takes out all that have not been sent. */
static struct weft__work *take_all(struct weft_workers *workers)
{
    struct weft__work *all = NULL, **last = &all;

    while (workers->first != NULL) {
        struct weft__work *work = workers->first;

        dequeue(workers, work);
        work->next = NULL;
        *last = work;
        last = &work->next;
    }
    tell_if_idle(workers);
    return all;
}

/* ---- sending and giving back; not locked ---- */

static void give_back(struct weft__work *all)
{
    while (all != NULL) {
        struct weft__work *work = all;

        all = work->next;
        weft__call_return(work->call, -ESHUTDOWN);
    }
}

static void send_jobs(struct weft_workers *workers)
{
    struct weft_inbox *woken[SENDS];
    struct weft__work *left = NULL;
    unsigned count;

    do {
        count = 0;
        pthread_mutex_lock(&workers->lock);
        while (count < SENDS && (woken[count] = send_first(workers)) != NULL)
            count++;
        if (workers->gone == workers->count)
            left = take_all(workers);
        pthread_mutex_unlock(&workers->lock);
        for (unsigned i = 0; i < count; i++)
            weft__inbox_nudge(woken[i]);
    } while (count == SENDS);
    give_back(left);
}

static void unref(struct weft_workers *workers)
{
    if (atomic_fetch_sub(&workers->refs, 1) > 1)
        return;
    pthread_cond_destroy(&workers->idle);
    pthread_mutex_destroy(&workers->lock);
    free(workers);
}

/* ---- jobs ---- */

static void left(struct weft__call *call)
{
    struct weft__work *work = call->job;
    struct weft_workers *workers = work->workers;

    pthread_mutex_lock(&workers->lock);
    if (workers->load[work->worker] != GONE)
        workers->load[work->worker] -= work->weight;
    workers->running--;
    tell_if_idle(workers);
    pthread_mutex_unlock(&workers->lock);
    send_jobs(workers);
}

static void back(struct weft__call *call)
{
    unref(((struct weft__work *)call->job)->workers);
}

static const struct weft__call_route route = {.left = left, .back = back};

static int own_pool(struct weft_workers **workers);

int weft__work_submit(struct weft_runtime *rt, struct weft_workers *workers, unsigned weight,
                      struct weft__call *call, struct weft__work *work, bool waited_for)
{
    int rc;

    if (weight < 1 || weight > 100)
        return -EINVAL;
    rc = workers == NULL ? own_pool(&workers) : 0;
    if (rc < 0)
        return rc;
    if (workers->forks != weft__forks)
        return -ECHILD;
    rc = weft__call_prepare(rt, call, true);
    if (rc < 0)
        return rc;
    atomic_fetch_add(&workers->refs, 1);
    call->route = &route;
    call->job = work;
    *work = (struct weft__work){
        .workers = workers, .call = call, .weight = weight, .waited_for = waited_for};
    pthread_mutex_lock(&workers->lock);
    if (workers->ending || workers->gone == workers->count)
        rc = -ESHUTDOWN;
    else if (!waited_for && workers->stored >= workers->limit)
        rc = -EAGAIN;
    else
        enqueue(workers, work);
    pthread_mutex_unlock(&workers->lock);
    if (rc < 0)
        weft__call_discard(call);
    else
        send_jobs(workers);
    return rc;
}

void weft__work_cancel(struct weft__call *call)
{
    struct weft__work *work = call->job;
    struct weft_workers *workers = work->workers;
    bool waits;

    pthread_mutex_lock(&workers->lock);
    waits = work->link != NULL;
    if (waits) {
        dequeue(workers, work);
        tell_if_idle(workers);
    }
    pthread_mutex_unlock(&workers->lock);
    if (!waits) {
        weft__call_cancel(call);
        return;
    }
    atomic_fetch_add(&workers->refs, 1); /* the job's goes with it */
    weft__call_return(call, -ECANCELED);
    send_jobs(workers); /* there may be room for the next one */
    unref(workers);
}

/* ---- pools ---- */

/* The parent's threads are not here, and its pool is nothing but memory. */
static void forget_all(void)
{
    pthread_mutex_init(&own.lock, NULL);
    own.pool = NULL;
    atomic_store(&all_workers, 0);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget_all);
}

static void warn_of_too_many(const struct weft_workers_options *options, unsigned all)
{
    unsigned cpus = weft_cpu_count();

    if (all > cpus)
        weft__report_to(options->runtime,
                        "%u worker threads on %u cpus: one pool of workers a process is enough, "
                        "and weft_workers_options.count need not be more than the cpus",
                        all, cpus);
}

static int set_options(struct weft_workers_options *to, const struct weft_workers_options *from)
{
    const struct weft_workers_options none = WEFT_WORKERS_OPTIONS_INIT;

    if (from == NULL)
        from = &none;
    memset(to, 0, sizeof *to);
    if (from->size < offsetof(struct weft_workers_options, count) || from->size > sizeof *to) {
        weft__report_to(NULL,
                        "weft_workers_options.size is %zu, this library knows up to %zu: set it to "
                        "sizeof(struct weft_workers_options), with the headers of this version",
                        from->size, sizeof *to);
        return -EINVAL;
    }
    memcpy(to, from, from->size);
    if (to->limit == 0)
        to->limit = LIMIT;
    if (to->name == NULL)
        to->name = "work";
    return 0;
}

static int create(struct weft_workers **out, struct weft_cluster *cluster,
                  const struct weft_workers_options *options)
{
    unsigned count = weft_cluster_count(cluster);
    struct weft_workers *workers = calloc(1, sizeof *workers + count * sizeof workers->load[0]);

    if (workers == NULL)
        return -ENOMEM;
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->idle, NULL);
    atomic_init(&workers->refs, 1);
    workers->cluster = cluster;
    workers->forks = weft__forks;
    workers->limit = options->limit;
    workers->count = count;
    workers->tail = &workers->first;
    *out = workers;
    return 0;
}

int weft_workers_create(struct weft_workers **workers, const struct weft_workers_options *from)
{
    struct weft_cluster_options cluster_options = WEFT_CLUSTER_OPTIONS_INIT;
    struct weft_workers_options options;
    struct weft_cluster *cluster;
    int rc = workers == NULL ? -EINVAL : set_options(&options, from);

    if (rc < 0)
        return rc;
    pthread_once(&own.once, watch_forks);
    cluster_options.count = options.count;
    cluster_options.pin = options.pin;
    cluster_options.name = options.name;
    cluster_options.runtime = options.runtime;
    rc = weft__cluster_start(&cluster, NULL, NULL, &cluster_options, true);
    if (rc < 0)
        return rc;
    rc = create(workers, cluster, &options);
    if (rc < 0) {
        weft_cluster_stop(cluster);
        weft_cluster_join(cluster);
        return rc;
    }
    warn_of_too_many(&options,
                     atomic_fetch_add(&all_workers, (*workers)->count) + (*workers)->count);
    return 0;
}

int weft_workers_destroy(struct weft_workers *workers, enum weft_workers_end how)
{
    struct weft__work *dropped = NULL;

    if (workers == NULL || (how != WEFT_WORKERS_DRAIN && how != WEFT_WORKERS_CANCEL))
        return -EINVAL;
    if (workers->forks != weft__forks)
        return -ECHILD;
    if (weft__member != NULL && weft__member->cluster == workers->cluster)
        return -EDEADLK;
    pthread_mutex_lock(&workers->lock);
    workers->ending = true;
    if (how == WEFT_WORKERS_CANCEL)
        dropped = take_all(workers);
    else
        while (workers->queued > 0 || workers->running > 0)
            pthread_cond_wait(&workers->idle, &workers->lock);
    pthread_mutex_unlock(&workers->lock);
    give_back(dropped);
    weft_cluster_stop(workers->cluster);
    weft_cluster_join(workers->cluster);
    atomic_fetch_sub(&all_workers, workers->count);
    unref(workers);
    return 0;
}

/* ---- the process's own ---- */

static int own_pool(struct weft_workers **workers)
{
    int rc = 0;

    pthread_once(&own.once, watch_forks); /* before the lock is first held */
    pthread_mutex_lock(&own.lock);
    if (own.pool == NULL)
        rc = weft_workers_create(&own.pool, NULL);
    *workers = own.pool;
    pthread_mutex_unlock(&own.lock);
    return rc;
}

__attribute__((destructor)) static void end_own(void)
{
    struct weft_workers *workers = own.pool;

    own.pool = NULL;
    if (workers == NULL || workers->forks != weft__forks)
        return;
    if (weft_workers_waiting(workers) == 0 && weft_workers_running(workers) == 0)
        weft_workers_destroy(workers, WEFT_WORKERS_CANCEL);
}

/* ---- looking ---- */

unsigned weft_workers_count(struct weft_workers *workers)
{
    if (workers == NULL && own_pool(&workers) < 0)
        return 0;
    return workers->count;
}

static size_t look(struct weft_workers *workers, size_t offset)
{
    size_t value;

    if (workers == NULL) {
        pthread_mutex_lock(&own.lock);
        workers = own.pool;
        pthread_mutex_unlock(&own.lock);
    }
    if (workers == NULL)
        return 0;
    pthread_mutex_lock(&workers->lock);
    memcpy(&value, (const char *)workers + offset, sizeof value);
    pthread_mutex_unlock(&workers->lock);
    return value;
}

size_t weft_workers_waiting(struct weft_workers *workers)
{
    return look(workers, offsetof(struct weft_workers, queued));
}

size_t weft_workers_running(struct weft_workers *workers)
{
    return look(workers, offsetof(struct weft_workers, running));
}
