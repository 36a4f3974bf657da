/* The pool for work that must block; on every engine, without fibers. */
#include "io_support.h"
#include "offload.h"

#include <criterion/criterion.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>

#define EACH_SETUP(s) for (const struct setup *s = setups; s < setups + setups_count; s++)

struct work {
    struct weft_job job;
    sem_t *wait; /* NULL: runs through */
    pthread_t ran_on;
    bool blocked_signals;
    int *left;
};

static void run_work(struct weft_job *job)
{
    struct work *work = weft__container(job, struct work, job);
    sigset_t mask;

    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    work->blocked_signals = sigismember(&mask, SIGINT) && sigismember(&mask, SIGUSR1);
    work->ran_on = pthread_self();
    if (work->wait != NULL)
        while (sem_wait(work->wait) < 0)
            ;
}

static void work_done(struct weft_job *job)
{
    struct work *work = weft__container(job, struct work, job);

    cr_assert(pthread_equal(pthread_self(), weft__rt->thread));
    cr_assert(weft__is_base(weft__rt));
    cr_assert(!pthread_equal(work->ran_on, pthread_self()));
    cr_assert(work->blocked_signals);
    --*work->left;
}

static void not_dropped(struct weft_job *job)
{
    (void)job;
    abort();
}

static void start(struct work *work, sem_t *wait, enum weft__job_kind kind, int *left)
{
    *work = (struct work){.job = {.run = run_work, .done = work_done, .drop = not_dropped},
                          .wait = wait,
                          .left = left};
    ++*left;
    cr_assert_eq(weft__offload(weft__rt, &work->job, kind), 0);
}

/* Far more jobs than threads: all are done, on few threads. */
static void many_body(void)
{
    static struct work works[500];
    unsigned jobs;
    int left = 0;

    for (int i = 0; i < 500; i++)
        start(&works[i], NULL, i % 3 ? WEFT__JOB_WORK : WEFT__JOB_LOOKUP, &left);
    while (left > 0)
        turn();
    cr_assert_leq(weft__offload_threads(&jobs), 20);
}

Test(offload, many_jobs)
{
    EACH_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, many_body), 0, "%s", setup->name);
    }
}

/* A runtime that has nothing else to do waits for its jobs: that is no deadlock. */
static int waiting_left;
static struct work waiting_work;

static void end_when_done(struct weft_job *job)
{
    work_done(job);
    weft__main_ended(weft__rt, 3);
}

static void start_waiting(struct weft_runtime *rt, void *unused)
{
    (void)unused;
    (void)rt;
    waiting_work =
        (struct work){.job = {.run = run_work, .done = end_when_done, .drop = not_dropped},
                      .left = &waiting_left};
    waiting_left = 1;
    cr_assert_eq(weft__offload(rt, &waiting_work.job, WEFT__JOB_WORK), 0);
}

Test(offload, a_job_under_way_is_no_deadlock)
{
    EACH_SETUP(setup)
    {
        struct weft_options options = setup_options(setup);

        cr_assert_eq(weft__run(start_waiting, NULL, &options), 3, "%s", setup->name);
    }
}

/* A runtime that ends leaves its jobs behind; each is told. */
static sem_t release, dropped;
static struct work left_behind[40];
static int never_done;

static void note_drop(struct weft_job *job)
{
    (void)job;
    sem_post(&dropped);
}

static void leave_body(void)
{
    for (int i = 0; i < 40; i++) {
        start(&left_behind[i], &release, WEFT__JOB_WORK, &never_done);
        left_behind[i].job.drop = note_drop;
    }
}

Test(offload, the_end_of_a_runtime_waits_for_no_job)
{
    EACH_SETUP(setup)
    {
        sem_init(&release, 0, 0);
        sem_init(&dropped, 0, 0);
        never_done = 0;
        cr_assert_eq(run_by_hand(setup, leave_body), 0, "%s", setup->name);
        for (int i = 0; i < 40; i++)
            sem_post(&release);
        for (int i = 0; i < 40; i++)
            while (sem_wait(&dropped) < 0)
                ;
        cr_assert_eq(never_done, 40);
    }
}

/* The child of a fork has a pool of its own. */
static void one_body(void)
{
    struct work work;
    int left = 0;

    start(&work, NULL, WEFT__JOB_WORK, &left);
    while (left > 0)
        turn();
}

Test(offload, after_fork)
{
    unsigned jobs;
    int status;
    pid_t child;

    if (slow_tools())
        return; /* to them, the threads that a fork leaves behind are leaks of the child */
    cr_assert_eq(run_by_hand(&setups[0], one_body), 0);
    cr_assert_geq(weft__offload_threads(&jobs), 1);
    child = fork();
    if (child == 0) {
        int wrong = weft__offload_threads(&jobs) != 0;

        wrong |= run_by_hand(&setups[0], one_body) != 0;
        _exit(wrong);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
