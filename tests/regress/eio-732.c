/* ocaml-multicore/eio#732: a signal that came while a submission was handed over in the same call that
 * waits: the call returned the count of submissions, a wrapper waited again, and the handler's work was
 * not seen until something else happened.
 *
 * Each round has one operation to hand over, and one signal, whose handler posts a task: the turn ends,
 * and the task runs, with nothing else ever happening. (A lost one runs into the time limit.)
 */
#include "io_support.h"
#include "runtime_internal.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

#define ROUNDS (slow_tools() ? 50 : 2000)

static struct weft_inbox *inbox;
static struct weft_task posted;
static pthread_t target;
static sem_t begun;
static int runs;

static void run_posted(struct weft_task *task)
{
    (void)task;
    runs++;
}

static void post(int signal)
{
    (void)signal;
    weft_post(inbox, &posted);
}

static void *send_signals(void *unused)
{
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        while (sem_wait(&begun) < 0)
            ;
        for (int n = i % 7; n > 0; n--)
            sched_yield(); /* before, at and after the call */
        pthread_kill(target, SIGUSR1);
    }
    return NULL;
}

static void signals_body(void)
{
    const struct sigaction action = {.sa_handler = post, .sa_flags = SA_RESTART};
    struct kept receive;
    pthread_t thread;
    int pair[2];
    char buf[1];

    make_pair(pair);
    runs = 0;
    posted.run = run_posted;
    sem_init(&begun, 0, 0);
    inbox = weft_inbox_ref();
    target = pthread_self();
    sigaction(SIGUSR1, &action, NULL);
    cr_assert_eq(pthread_create(&thread, NULL, send_signals, NULL), 0);
    for (int i = 0; i < ROUNDS; i++) {
        cr_assert_eq(ring_recv(&keep(&receive)->op, pair[0], buf, 1, 0), 0);
        sem_post(&begun);
        while (runs == i)
            turn();
        cr_assert_eq(receive.calls, 0);
        ring_cancel(&receive.op);
        cr_assert_eq(result_of(&receive), -ECANCELED);
    }
    pthread_join(thread, NULL);
    weft_inbox_unref(inbox);
    close_pair(pair);
}

Test(eio_732, a_signal_is_seen_while_work_is_handed_over)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, signals_body), 0, "%s", setup->name);
    }
}
