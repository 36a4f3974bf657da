/* socketry/io-event#127: waking the loop from a signal handler or another thread overwrote errno, which
 * the interrupted code was about to look at.
 *
 * weft_post in a handler leaves errno as it was, whether the runtime runs, waits or has ended; and no
 * public function sets it.
 */
#include "io_support.h"
#include "runtime_internal.h"

#include <criterion/criterion.h>
#include <signal.h>

static struct weft_inbox *inbox;
static struct weft_task task;
static int runs, results;

static void run_task(struct weft_task *posted)
{
    (void)posted;
    runs++;
}

static void post(int signal)
{
    (void)signal;
    results = weft_post(inbox, &task);
}

static void post_by_signal(void)
{
    errno = 1234;
    raise(SIGUSR1);
    cr_assert_eq(errno, 1234);
}

static void errno_body(void)
{
    const struct sigaction action = {.sa_handler = post};

    inbox = weft_inbox_ref();
    task.run = run_task;
    sigaction(SIGUSR1, &action, NULL);
    runs = 0;
    for (int i = 0; i < 10; i++) {
        post_by_signal();
        cr_assert_eq(results, 0);
        turn();
        cr_assert_eq(runs, i + 1);
        /* an engine that has said it waits is woken by a system call */
        weft__rt->engine->class->wake(weft__rt->engine);
        post_by_signal();
        errno = 4321;
        weft__rt->engine->class->wake(weft__rt->engine);
        cr_assert_eq(errno, 4321);
        turn();
        runs = i + 1;
    }
}

Test(io_event_127, a_wake_up_leaves_errno_alone)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, errno_body), 0, "%s", setup->name);
        post_by_signal(); /* the runtime is gone */
        cr_assert_eq(results, -ESHUTDOWN);
        weft_inbox_unref(inbox);
    }
}
