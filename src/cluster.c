/* cluster.c: runtimes on several threads: starting all or none, stopping, and the end.
 *
 * Starting. Each thread makes its runtime, and then its main (or, in one that serves, its first task)
 * reports that it is there and waits, on a condition variable, for the verdict: go when all are there,
 * don't when one could not start. Only then is any main called.
 *
 * Rest. A runtime with nothing to do but to wait for its inbox rests. It says so under the lock, and
 * when it has woken takes it back before it looks into its inbox. If all that have not ended rest, and
 * no inbox has anything in it, nobody runs who could post: the cluster is done. A reference from
 * outside, a call to or from another cluster for instance, keeps its runtime from resting (nothing_left
 * in runtime.c). Inside the cluster none is counted. That is a deadlock for a main that waits; servers,
 * and runtimes that run until nothing is left (lean builds), end. They are told by a post, since
 * one that rests need not sleep yet.
 *
 * The cluster's lock is only taken at starts, at ends and by runtimes that have nothing in flight and
 * no timer; never by a post.
 */
#include "cluster.h"
#include "inbox.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(void *) != 8 || sizeof(struct weft_cluster_options) == 96, "part of the ABI");

#define COUNT_MAX 1024

enum verdict { UNDECIDED, GO, NO };

/* A set that can be of any size. */
struct cpus {
    unsigned count;
    size_t size;
    cpu_set_t *set;
};

struct weft_cluster {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    weft_cluster_main_fn *main;
    void *arg;
    struct weft_cluster_options options;
    char name[11];
    int pid; /* whose threads these are */
    struct cpus cpus;
    bool quiet; /* its threads take no signals */

    enum verdict verdict;
    unsigned present; /* runtimes that have started */
    unsigned alive;   /* not ended */
    unsigned mains;   /* of those, with a main */
    unsigned resting;
    bool attended; /* who has started it may still post */
    bool done;     /* all rested */
    int error;     /* the first failure */

    atomic_uint next; /* of weft_cluster_next */
    unsigned count;
    struct weft__member member[];
};

_Thread_local struct weft__member *weft__member;

int (*weft__thread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *),
                           void *) = pthread_create;

/* ---- cpus ---- */

/* What the calling thread had before its cluster pinned it; NULL: it is not pinned. */
static const struct cpus *before_pin(void)
{
    return weft__member != NULL && weft__member->cluster->options.pin ? &weft__member->cluster->cpus
                                                                      : NULL;
}

static int copy_cpus(struct cpus *to, const struct cpus *from)
{
    *to = *from;
    to->set = malloc(from->size);
    if (to->set == NULL)
        return -ENOMEM;
    memcpy(to->set, from->set, from->size);
    return 0;
}

static int read_cpus(struct cpus *cpus)
{
    size_t size = CPU_ALLOC_SIZE(CPU_SETSIZE);
    cpu_set_t *set = NULL;
    int rc;

    if (before_pin() != NULL)
        return copy_cpus(cpus, before_pin());
    for (;; size *= 2) {
        set = malloc(size);
        if (set == NULL)
            return -ENOMEM;
        rc = sched_getaffinity(0, size, set) < 0 ? -errno : 0;
        if (rc == 0)
            break;
        free(set);
        if (rc != -EINVAL || size > (size_t)1 << 20) /* EINVAL: the kernel's set is larger */
            return rc;
    }
    *cpus = (struct cpus){(unsigned)CPU_COUNT_S(size, set), size, set};
    return 0;
}

unsigned weft_cpu_count(void)
{
    struct cpus cpus;
    int saved = errno, rc = read_cpus(&cpus);

    errno = saved;
    if (rc < 0)
        return 1;
    free(cpus.set);
    return cpus.count > 0 ? cpus.count : 1;
}

/* The calling thread onto the `index`-th cpu of the cluster's, going round. */
static int pin(const struct cpus *cpus, unsigned index)
{
    cpu_set_t *one = malloc(cpus->size);
    int rc;

    if (one == NULL)
        return -ENOMEM;
    CPU_ZERO_S(cpus->size, one);
    index %= cpus->count;
    for (int cpu = 0;; cpu++)
        if (CPU_ISSET_S((size_t)cpu, cpus->size, cpus->set) && index-- == 0) {
            CPU_SET_S((size_t)cpu, cpus->size, one);
            break;
        }
    rc = pthread_setaffinity_np(pthread_self(), cpus->size, one);
    free(one);
    return -rc;
}

static void unpin(const struct cpus *cpus)
{
    pthread_setaffinity_np(pthread_self(), cpus->size, cpus->set);
}

/* All, but those by which a thread is told of its own faults: blocked, they would end the process without
 * the program's handler. */
static void block_signals(sigset_t *before)
{
    const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t set;

    sigfillset(&set);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&set, faults[i]);
    pthread_sigmask(SIG_BLOCK, &set, before);
}

int weft__thread_start(pthread_t *thread, pthread_attr_t *attributes, bool quiet,
                       void *(*run)(void *), void *arg)
{
    const struct cpus *before = before_pin();
    sigset_t signals;
    int rc;

    if (before != NULL)
        pthread_attr_setaffinity_np(attributes, before->size, before->set);
    if (quiet)
        block_signals(&signals);
    rc = weft__thread_create(thread, attributes, run, arg);
    if (rc == EINVAL && before != NULL) { /* they have been taken from the process since */
        pthread_attr_setaffinity_np(attributes, 0, before->set);
        rc = weft__thread_create(thread, attributes, run, arg);
    }
    if (quiet)
        pthread_sigmask(SIG_SETMASK, &signals, NULL);
    return -rc;
}

/* ---- a member's life ---- */

static void post_to(struct weft__member *member, struct weft_task *task)
{
    struct weft_inbox *inbox = atomic_load(&member->inbox);

    if (inbox != NULL)
        weft_post(inbox, task); /* if it has ended, that is all that was wanted */
}

static void run_stop(struct weft_task *task)
{
    (void)task;
    weft_stop();
}

static void run_rouse(struct weft_task *task)
{
    (void)task;
}

void weft_cluster_stop(struct weft_cluster *cluster)
{
    for (unsigned i = 0; cluster != NULL && i < cluster->count; i++) {
        struct weft__member *member = &cluster->member[i];

        if (!atomic_flag_test_and_set(&member->stopped))
            post_to(member, &member->stop);
    }
}

/* If all rest, and nothing is on its way, then for good. Locked. */
static void look_for_rest(struct weft_cluster *cluster)
{
    if (cluster->done || cluster->attended || cluster->resting < cluster->alive)
        return;
    for (unsigned i = 0; i < cluster->count; i++) {
        struct weft__member *member = &cluster->member[i];

        if (!atomic_load(&member->ended) && weft__inbox_pending(atomic_load(&member->inbox)))
            return;
    }
    cluster->done = true;
    for (unsigned i = 0; i < cluster->count; i++)
        post_to(&cluster->member[i], &cluster->member[i].rouse);
}

bool weft__cluster_rests(struct weft_runtime *rt)
{
    struct weft__member *member = rt->member;
    struct weft_cluster *cluster;
    bool done;

    if (member == NULL)
        return true;
    cluster = member->cluster;
    pthread_mutex_lock(&cluster->lock);
    if (!member->resting) {
        member->resting = true;
        cluster->resting++;
    }
    look_for_rest(cluster);
    done = cluster->done;
    pthread_mutex_unlock(&cluster->lock);
    return done && weft__cluster_roused(member);
}

bool weft__cluster_roused(struct weft__member *member)
{
    struct weft_cluster *cluster = member->cluster;
    bool done;

    pthread_mutex_lock(&cluster->lock);
    member->resting = false;
    cluster->resting--;
    done = cluster->done;
    pthread_mutex_unlock(&cluster->lock);
    return done;
}

/* The member's runtime is there. Waits for the others: 0, or -ECANCELED: it is all off. */
static int come_in(struct weft__member *member)
{
    struct weft_cluster *cluster = member->cluster;
    int rc;

    weft__inbox_retain(weft__rt->inbox);
    atomic_store(&member->inbox, weft__rt->inbox);
    pthread_mutex_lock(&cluster->lock);
    if (++cluster->present == cluster->count && cluster->verdict == UNDECIDED) {
        cluster->verdict = GO;
        pthread_cond_broadcast(&cluster->changed);
    }
    while (cluster->verdict == UNDECIDED)
        pthread_cond_wait(&cluster->changed, &cluster->lock);
    rc = cluster->verdict == GO ? 0 : -ECANCELED;
    pthread_mutex_unlock(&cluster->lock);
    return rc;
}

/* Remembers the first failure; true: it is one. Locked. */
static bool note_failure(struct weft_cluster *cluster, int rc)
{
    if (rc >= 0 || rc == -ECANCELED)
        return false;
    if (cluster->error == 0)
        cluster->error = rc;
    return true;
}

static int call_main(void *arg)
{
    struct weft__member *member = arg;
    struct weft_cluster *cluster = member->cluster;
    bool failed;
    int rc = come_in(member);

    if (rc < 0)
        return rc;
    rc = cluster->main(cluster, member->index, cluster->arg);
    if (rc < 0) { /* now, since in a lean build the runtime goes on */
        pthread_mutex_lock(&cluster->lock);
        failed = note_failure(cluster, rc);
        pthread_mutex_unlock(&cluster->lock);
        if (failed)
            weft_cluster_stop(cluster);
    }
    return rc;
}

static void serve(struct weft_runtime *rt, void *arg)
{
    if (come_in(arg) < 0)
        weft__main_ended(rt, -ECANCELED);
    else
        weft__run_until_idle(rt);
}

static void report_start(const struct weft__member *member, const char *what, int error)
{
    weft__report_to(&member->options, "cannot start runtime %u of %u: %s: %s", member->index + 1,
                    member->cluster->count, what, strerror(-error));
}

/* The member is over, or has not come to be. */
static void leave(struct weft__member *member, int rc)
{
    struct weft_cluster *cluster = member->cluster;
    bool stop;

    pthread_mutex_lock(&cluster->lock);
    stop = note_failure(cluster, rc);
    if (cluster->verdict == UNDECIDED) {
        cluster->verdict = NO;
        pthread_cond_broadcast(&cluster->changed);
    }
    atomic_store(&member->ended, true);
    cluster->alive--;
    if (!member->serves && --cluster->mains == 0)
        stop = true;
    look_for_rest(cluster);
    pthread_mutex_unlock(&cluster->lock);
    if (stop)
        weft_cluster_stop(cluster);
}

/* Runs the member's runtime on the calling thread, from its start to its end. */
static void run_member(struct weft__member *member)
{
    struct weft_cluster *cluster = member->cluster;
    int rc = 0;

    if (cluster->options.pin) {
        rc = pin(&cluster->cpus, member->index);
        if (rc < 0)
            report_start(member, "its thread can't be pinned to a cpu", rc);
    }
    if (rc == 0) {
        weft__member = member;
        rc = member->serves ? weft__run(serve, member, &member->options)
                            : weft_run(call_main, member, &member->options);
        weft__member = NULL;
    }
    leave(member, rc);
}

static void *run_thread(void *arg)
{
    struct weft__member *member = arg;
    char name[16];

    snprintf(name, sizeof name, "%s-%u", member->cluster->name, member->index);
    pthread_setname_np(pthread_self(), name);
    run_member(member);
    return NULL;
}

/* ---- starting and ending ---- */

static void destroy(struct weft_cluster *cluster)
{
    for (unsigned i = 0; i < cluster->count; i++) {
        struct weft_inbox *inbox = atomic_load(&cluster->member[i].inbox);

        if (inbox != NULL)
            weft__inbox_release(inbox);
    }
    pthread_cond_destroy(&cluster->changed);
    pthread_mutex_destroy(&cluster->lock);
    free(cluster->cpus.set);
    free(cluster);
}

static int set_options(struct weft_cluster_options *to, const struct weft_cluster_options *from)
{
    const struct weft_cluster_options none = WEFT_CLUSTER_OPTIONS_INIT;

    if (from == NULL)
        from = &none;
    memset(to, 0, sizeof *to);
    if (from->size < offsetof(struct weft_cluster_options, count) || from->size > sizeof *to) {
        weft__report_to(NULL,
                        "weft_cluster_options.size is %zu, this library knows up to %zu: set it to "
                        "sizeof(struct weft_cluster_options), with the headers of this version",
                        from->size, sizeof *to);
        return -EINVAL;
    }
    memcpy(to, from, from->size);
    if (to->count > COUNT_MAX || (to->count > 0 && to->mains > to->count)) {
        weft__report_to(to->runtime, "a cluster of %u runtimes, %u of them with a main: %s",
                        to->count, to->mains,
                        to->count > COUNT_MAX ? "at most 1024 will do" : "that is too many");
        return -EINVAL;
    }
    return 0;
}

/* As much of the caller's as he has; weft_run checks it. */
static void copy_options(struct weft_options *to, const struct weft_options *from)
{
    const struct weft_options plain = WEFT_OPTIONS_INIT;

    *to = plain;
    if (from != NULL)
        memcpy(to, from, from->size < sizeof *to ? from->size : sizeof *to);
}

static int create(struct weft_cluster **out, weft_cluster_main_fn *main, void *arg,
                  const struct weft_cluster_options *from)
{
    struct weft_cluster_options options;
    struct weft_cluster *cluster;
    struct cpus cpus;
    unsigned mains;
    int rc = set_options(&options, from);

    if (rc < 0)
        return rc;
    rc = read_cpus(&cpus);
    if (rc < 0)
        return rc;
    if (options.count == 0)
        options.count = cpus.count < COUNT_MAX ? cpus.count : COUNT_MAX;
    mains = main == NULL ? 0 : options.mains == 0 ? options.count : options.mains;
    cluster = calloc(1, sizeof *cluster + options.count * sizeof cluster->member[0]);
    if (cluster == NULL) {
        free(cpus.set);
        return -ENOMEM;
    }
    pthread_mutex_init(&cluster->lock, NULL);
    pthread_cond_init(&cluster->changed, NULL);
    cluster->main = main;
    cluster->arg = arg;
    cluster->options = options;
    snprintf(cluster->name, sizeof cluster->name, "%s",
             options.name != NULL ? options.name : "weft");
    cluster->pid = (int)getpid();
    cluster->cpus = cpus;
    cluster->count = cluster->alive = options.count;
    cluster->mains = mains < options.count ? mains : options.count;
    for (unsigned i = 0; i < cluster->count; i++) {
        struct weft__member *member = &cluster->member[i];

        member->cluster = cluster;
        member->index = i;
        member->serves = i >= cluster->mains;
        copy_options(&member->options, options.runtime);
        if (options.set_up != NULL)
            options.set_up(i, &member->options, arg);
        atomic_flag_clear(&member->stopped);
        member->stop.run = run_stop;
        member->rouse.run = run_rouse;
    }
    *out = cluster;
    return 0;
}

/* Threads for the members from number `first` on. A failure is a member's that leaves. */
static void start_threads(struct weft_cluster *cluster, unsigned first)
{
    pthread_attr_t attributes;
    int rc = 0;

    pthread_attr_init(&attributes);
    for (unsigned i = first; i < cluster->count; i++) {
        struct weft__member *member = &cluster->member[i];

        if (rc == 0) {
            rc = weft__thread_start(&member->thread, &attributes, cluster->quiet, run_thread,
                                    member);
            member->has_thread = rc == 0;
            if (rc < 0)
                report_start(member, "no thread (RLIMIT_NPROC, pids.max of the control group)", rc);
        }
        if (rc < 0)
            leave(member, rc);
    }
    pthread_attr_destroy(&attributes);
}

/* Waits for the threads. The first failure. */
static int finish(struct weft_cluster *cluster)
{
    int rc;

    for (unsigned i = 0; i < cluster->count; i++)
        if (cluster->member[i].has_thread)
            pthread_join(cluster->member[i].thread, NULL);
    rc = cluster->error;
    destroy(cluster);
    return rc;
}

int weft_cluster_run(weft_cluster_main_fn *main, void *arg,
                     const struct weft_cluster_options *options)
{
    struct weft_cluster *cluster;
    bool pinned;
    int rc;

    if (main == NULL)
        return -EINVAL;
    if (weft__rt != NULL) {
        weft__report(weft__rt, "weft_cluster_run in a runtime: this thread has one already; "
                               "weft_cluster_start makes a cluster beside it");
        return -EBUSY;
    }
    rc = create(&cluster, main, arg, options);
    if (rc < 0)
        return rc;
    pinned = cluster->options.pin;
    start_threads(cluster, 1);
    run_member(&cluster->member[0]);
    if (pinned)
        unpin(&cluster->cpus);
    return finish(cluster);
}

int weft__cluster_start(struct weft_cluster **out, weft_cluster_main_fn *main, void *arg,
                        const struct weft_cluster_options *options, bool quiet)
{
    struct weft_cluster *cluster;
    enum verdict verdict;
    int rc = create(&cluster, main, arg, options);

    if (rc < 0)
        return rc;
    cluster->attended = true;
    cluster->quiet = quiet;
    start_threads(cluster, 0);
    pthread_mutex_lock(&cluster->lock);
    while (cluster->verdict == UNDECIDED)
        pthread_cond_wait(&cluster->changed, &cluster->lock);
    verdict = cluster->verdict;
    pthread_mutex_unlock(&cluster->lock);
    if (verdict == NO)
        return finish(cluster);
    *out = cluster;
    return 0;
}

int weft_cluster_start(struct weft_cluster **cluster, weft_cluster_main_fn *main, void *arg,
                       const struct weft_cluster_options *options)
{
    return cluster == NULL ? -EINVAL : weft__cluster_start(cluster, main, arg, options, false);
}

int weft_cluster_join(struct weft_cluster *cluster)
{
    if (cluster == NULL)
        return -EINVAL;
    if (cluster->pid != (int)getpid())
        return -ECHILD;
    if (weft__member != NULL && weft__member->cluster == cluster)
        return -EDEADLK;
    pthread_mutex_lock(&cluster->lock);
    cluster->attended = false;
    look_for_rest(cluster);
    pthread_mutex_unlock(&cluster->lock);
    return finish(cluster);
}

/* ---- looking ---- */

unsigned weft_cluster_count(const struct weft_cluster *cluster)
{
    return cluster == NULL ? 0 : cluster->count;
}

struct weft_inbox *weft_cluster_inbox(const struct weft_cluster *cluster, unsigned index)
{
    return cluster == NULL || index >= cluster->count ? NULL
                                                      : atomic_load(&cluster->member[index].inbox);
}

struct weft_inbox *weft_cluster_next(struct weft_cluster *cluster)
{
    for (unsigned i = 0; cluster != NULL && i < cluster->count; i++) {
        unsigned index = atomic_fetch_add_explicit(&cluster->next, 1, memory_order_relaxed);
        struct weft__member *member = &cluster->member[index % cluster->count];

        if (!atomic_load(&member->ended))
            return atomic_load(&member->inbox);
    }
    return NULL;
}

struct weft_cluster *weft_cluster_current(void)
{
    return weft__rt == NULL || weft__rt->member == NULL ? NULL : weft__rt->member->cluster;
}

int weft_cluster_index(void)
{
    return weft__rt == NULL || weft__rt->member == NULL ? -EINVAL : (int)weft__rt->member->index;
}
