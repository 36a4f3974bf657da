/* needs: fibers */
/* tokio-rs/tokio-uring#102: the runtime's end waited for ever for an accept that was still pending.
 *
 * Here it ends with accepts, receives, sleeps, a request for an end and a job in the pool all pending:
 * each of them in fibers and as promises. It waits for none of them, and leaves no descriptor. */
#include "fiber_internal.h"
#include "io_support.h"
#include "offload.h"

#include <weft/io.h>
#include <weft/promise.h>

#include <criterion/criterion.h>
#include <semaphore.h>

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

Test(tokio_uring_102, the_end_with_everything_pending)
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
