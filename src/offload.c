/* offload.c: the thread pool, one a process, shared by its runtimes.
 *
 * It grows by one thread whenever a job finds none idle, up to the bound of the job's kind; an idle
 * thread retires after a while. A job belongs to its queue, then to the thread that runs it, then to
 * the inbox of its runtime. A runtime that ends leaves its jobs behind: a post is refused then, and
 * the job is dropped. When the process exits (or the library is unloaded), idle threads are joined;
 * one that is stuck in a job is left to the process's end.
 *
 * Retired threads are joined one behind the other: each joins its predecessor as its last act.
 */
#include "offload.h"

#include "cluster.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#define STACK_SIZE ((size_t)1 << 20) /* touched lazily; who blocks is seldom frugal */
#define LIMIT_MAX  4096

_Atomic int64_t weft__offload_patience = WEFT_SEC(5);

struct queue {
    struct weft_job *head, **tail;
    unsigned queued, running;
};

/* The bounds outlive a fork. */
static unsigned limits[WEFT__JOB_KINDS] = {
    [WEFT__JOB_WORK] = 16, [WEFT__JOB_LOOKUP] = 4, [WEFT__JOB_CALL] = 32};

static struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work, gone;
    struct queue queues[WEFT__JOB_KINDS];
    unsigned threads, idle, starting; /* of threads: those that have, or will soon have, time */
    unsigned finishing;               /* ... once they have handed their job back */
    unsigned turn;                    /* the kind to be looked at first */
    bool ending, has_retired;
    pthread_t retired;
    int pid; /* whose threads these are; after fork they are the parent's */
} pool;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void reset_queue(struct queue *queue)
{
    queue->head = NULL;
    queue->tail = &queue->head;
    queue->queued = queue->running = 0;
}

static void reset_pool(void)
{
    pthread_condattr_t monotonic;

    pthread_mutex_init(&pool.lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&pool.work, &monotonic);
    pthread_cond_init(&pool.gone, NULL);
    pthread_condattr_destroy(&monotonic);
    for (int i = 0; i < WEFT__JOB_KINDS; i++)
        reset_queue(&pool.queues[i]);
    pool.threads = pool.idle = pool.starting = pool.finishing = 0;
    pool.ending = pool.has_retired = false;
    pool.pid = (int)getpid();
}

/* The child of a fork has the pool's memory, but no thread of it. Its jobs are the parent's. */
static void make_pool(void)
{
    reset_pool();
    pthread_atfork(NULL, NULL, reset_pool);
}

/* Takes a job off its queue. Locked. */
static void unqueue(struct queue *queue, struct weft_job *job)
{
    *job->link = job->next;
    if (job->next != NULL)
        job->next->link = job->link;
    else
        queue->tail = job->link;
    job->link = NULL;
    queue->queued--;
}

/* A job that may run now, off its queue; NULL: none. The kinds take turns, which matters when no more
 * threads can be had. Locked. */
static struct weft_job *take_job(void)
{
    for (unsigned i = 0; i < WEFT__JOB_KINDS; i++) {
        unsigned kind = pool.turn++ % WEFT__JOB_KINDS;
        struct queue *queue = &pool.queues[kind];
        struct weft_job *job = queue->head;

        if (job != NULL && queue->running < limits[kind]) {
            unqueue(queue, job);
            queue->running++;
            return job;
        }
    }
    return NULL;
}

static void run_done(struct weft_task *task)
{
    struct weft_job *job = weft__container(task, struct weft_job, task);

    weft_inbox_unref(job->inbox);
    job->done(job);
}

/* Hands a job back; it may be freed by then. */
static void hand_back(struct weft_job *job)
{
    struct weft_inbox *inbox = job->inbox;

    job->task.run = run_done;
    if (weft_post(inbox, &job->task) < 0) {
        weft_inbox_unref(inbox);
        if (job->drop != NULL)
            job->drop(job);
    }
}

static struct timespec in(int64_t ns)
{
    weft_time at = weft_after(ns);

    return (struct timespec){.tv_sec = (time_t)(at / 1000000000), .tv_nsec = at % 1000000000};
}

/* Locked; unlocks. */
static void retire(void)
{
    bool has_predecessor = pool.has_retired;
    pthread_t predecessor = pool.retired;

    pool.retired = pthread_self();
    pool.has_retired = true;
    pool.threads--;
    pthread_cond_signal(&pool.gone);
    pthread_mutex_unlock(&pool.lock);
    if (has_predecessor)
        pthread_join(predecessor, NULL);
}

static void *work(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&pool.lock);
    pool.starting--;
    for (;;) {
        struct timespec limit = in(weft__offload_patience);
        struct weft_job *job = NULL;
        int rc = 0, kind;

        while (!pool.ending && (job = take_job()) == NULL && rc == 0) {
            pool.idle++;
            rc = pthread_cond_timedwait(&pool.work, &pool.lock, &limit);
            pool.idle--;
        }
        if (job == NULL)
            break;
        kind = job->kind;
        pthread_mutex_unlock(&pool.lock);
        job->run(job);
        /* from here on it is a thread for the next job: who learns of this one's end and hands the
         * next one over at once shall not start another thread */
        pthread_mutex_lock(&pool.lock);
        pool.queues[kind].running--;
        pool.finishing++;
        pthread_mutex_unlock(&pool.lock);
        hand_back(job);
        pthread_mutex_lock(&pool.lock);
        pool.finishing--;
    }
    retire();
    return NULL;
}

/* Jobs that could run at once if there were threads for all. Locked. */
static unsigned runnable(void)
{
    unsigned count = 0;

    for (int i = 0; i < WEFT__JOB_KINDS; i++) {
        const struct queue *queue = &pool.queues[i];
        unsigned room = limits[i] > queue->running ? limits[i] - queue->running : 0;

        count += queue->queued < room ? queue->queued : room;
    }
    return count;
}

static int add_thread(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    int rc;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_SIZE);
    rc = weft__thread_start(&thread, &attributes, true, work, NULL);
    pthread_attr_destroy(&attributes);
    if (rc == 0) {
        pool.threads++;
        pool.starting++;
    }
    return rc;
}

/* Whether there is a job that could run, but for which no thread has time: each of those that have
 * will do one of the others. Locked. */
static bool lacks_thread(void)
{
    return runnable() > pool.idle + pool.starting + pool.finishing;
}

int weft__offload(struct weft_runtime *rt, struct weft_job *job, enum weft__job_kind kind)
{
    struct queue *queue = &pool.queues[kind];
    int rc = 0;

    (void)rt; /* the calling thread's; posts go to its inbox */
    pthread_once(&once, make_pool);
    job->kind = (int)kind;
    job->next = NULL;
    job->inbox = weft_inbox_ref();
    pthread_mutex_lock(&pool.lock);
    job->link = queue->tail;
    *queue->tail = job;
    queue->tail = &job->next;
    queue->queued++;
    if (lacks_thread())
        rc = add_thread();
    if (rc < 0 && pool.threads > 0)
        rc = 0; /* one of those there are will come to it */
    if (rc == 0) {
        pthread_cond_signal(&pool.work);
    } else {
        unqueue(queue, job); /* nobody has taken it: there is no thread */
    }
    pthread_mutex_unlock(&pool.lock);
    if (rc < 0)
        weft_inbox_unref(job->inbox);
    return rc;
}

int weft_offload(struct weft_job *job)
{
    if (weft__rt == NULL || job == NULL || job->run == NULL || job->done == NULL)
        return -EINVAL;
    return weft__offload(weft__rt, job, WEFT__JOB_CALL);
}

bool weft_offload_withdraw(struct weft_job *job)
{
    bool is_queued;

    pthread_mutex_lock(&pool.lock);
    is_queued = job->link != NULL;
    if (is_queued)
        unqueue(&pool.queues[job->kind], job);
    pthread_mutex_unlock(&pool.lock);
    if (is_queued)
        weft_inbox_unref(job->inbox);
    return is_queued;
}

int weft_offload_limit(unsigned threads)
{
    int before;

    if (threads == 0 || threads > LIMIT_MAX)
        return -EINVAL;
    pthread_once(&once, make_pool);
    pthread_mutex_lock(&pool.lock);
    before = (int)limits[WEFT__JOB_CALL];
    limits[WEFT__JOB_CALL] = threads;
    while (lacks_thread() && add_thread() == 0)
        ;
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.lock);
    return before;
}

/* Threads in a job. Locked. */
static unsigned at_work(void)
{
    unsigned running = 0;

    for (int i = 0; i < WEFT__JOB_KINDS; i++)
        running += pool.queues[i].running;
    return running;
}

void weft__offload_stats(struct weft_stats *stats)
{
    pthread_once(&once, make_pool);
    pthread_mutex_lock(&pool.lock);
    stats->pool_threads = pool.threads;
    stats->pool_running = at_work();
    for (int i = 0; i < WEFT__JOB_KINDS; i++)
        stats->pool_queued += pool.queues[i].queued;
    pthread_mutex_unlock(&pool.lock);
}

unsigned weft__offload_threads(unsigned *jobs)
{
    struct weft_stats stats = {.size = sizeof stats};

    weft__offload_stats(&stats);
    *jobs = (unsigned)(stats.pool_running + stats.pool_queued);
    return (unsigned)stats.pool_threads;
}

__attribute__((destructor)) static void end_pool(void)
{
    pthread_t last;
    bool has_last;

    if (pool.pid != (int)getpid())
        return; /* never used */
    pthread_mutex_lock(&pool.lock);
    pool.ending = true;
    pthread_cond_broadcast(&pool.work);
    while (pool.threads > at_work())
        pthread_cond_wait(&pool.gone, &pool.lock);
    last = pool.retired;
    has_last = pool.has_retired;
    pool.has_retired = false;
    pthread_mutex_unlock(&pool.lock);
    if (has_last)
        pthread_join(last, NULL);
}
