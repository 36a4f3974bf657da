/* nodejs/node#8436: lookups that nobody answered filled the thread pool, and file work waited for minutes.
 *
 * 64 lookups are stuck: other work goes on, as much of it at once as ever. (The same with name servers that
 * don't answer, from outside: test_connect: lookups_nobody_answers_hold_up_nothing_else.)
 */
#include "io_support.h"
#include "offload.h"

#include <criterion/criterion.h>
#include <semaphore.h>

struct work {
    struct weft_job job;
    sem_t *wait; /* NULL: runs through */
    int *left;
};

static void run_work(struct weft_job *job)
{
    sem_t *wait = weft__container(job, struct work, job)->wait;

    if (wait != NULL)
        while (sem_wait(wait) < 0)
            ;
}

static void work_done(struct weft_job *job)
{
    --*weft__container(job, struct work, job)->left;
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

static void stuck_body(void)
{
    static struct work lookups[64], works[16], last;
    int stuck = 0, waiting = 0, left = 0;
    unsigned jobs;
    sem_t answer, go;

    sem_init(&answer, 0, 0);
    sem_init(&go, 0, 0);
    for (int i = 0; i < 64; i++)
        start(&lookups[i], &answer, WEFT__JOB_LOOKUP, &stuck);
    start(&last, NULL, WEFT__JOB_WORK, &left);
    while (left > 0)
        turn();
    cr_assert_eq(stuck, 64);
    cr_assert_leq(weft__offload_threads(&jobs), 20);
    /* all threads that work may have, at once: each waits for the last one */
    for (int i = 0; i < 15; i++)
        start(&works[i], &go, WEFT__JOB_WORK, &waiting);
    start(&last, NULL, WEFT__JOB_WORK, &left);
    while (left > 0)
        turn();
    cr_assert_eq(waiting, 15);
    for (int i = 0; i < 15; i++)
        sem_post(&go);
    for (int i = 0; i < 64; i++)
        sem_post(&answer);
    while (stuck > 0 || waiting > 0)
        turn();
}

Test(node_8436, stuck_lookups_hold_up_lookups_only)
{
    for (const struct setup *s = setups; s < setups + setups_count; s++)
        cr_assert_eq(run_by_hand(s, stuck_body), 0, "%s", s->name);
}
