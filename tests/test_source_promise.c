/* Processes, signals and file events as promises; works in a build without fibers. */
#include "process_support.h"
#include "promise_internal.h"
#include "source.h"

#include <weft/promise.h>
#include <weft/promise_time.h>
#include <weft/signals.h>
#include <weft/watch.h>

#include <criterion/criterion.h>
#include <signal.h>

static bool does_io(void)
{
    return strcmp(weft_engine_name(), "null") != 0;
}

static struct weft_signals *hold(int signal)
{
    struct weft_signals *signals;

    cr_assert_eq(weft_signals_create(&signals, &signal, 1), 0);
    return signals;
}

/* ---- processes ---- */

static void process_body(void)
{
    int before = open_descriptors();
    struct weft_process process;
    struct promise *p, *several[3];

    spawn_shell(&process, "exit 6");
    cr_assert_eq(WEXITSTATUS(outcome_of(promise_process_wait(&process, WEFT_FOREVER))), 6);
    p = promise_process_wait(&process, WEFT_NOWAIT);
    cr_assert_eq(promise_state(p), PROMISE_FULFILLED, "it is kept");
    cr_assert_eq(WEXITSTATUS(outcome_of(p)), 6);
    weft_process_finish(&process);

    spawn_waiting(&process);
    cr_assert_eq(outcome_of(promise_process_wait(&process, WEFT_NOWAIT)), -ETIMEDOUT);
    cr_assert_eq(outcome_of(promise_process_wait(&process, weft_after(WEFT_MS(2)))), -ETIMEDOUT);
    p = promise_process_wait(&process, WEFT_FOREVER);
    promise_cancel(p);
    cr_assert_eq(promise_state(p), PROMISE_REJECTED, "at once");
    cr_assert_eq(outcome_of(p), -ECANCELED);
    for (int i = 0; i < 3; i++)
        several[i] = promise_process_wait(&process, weft_after(WEFT_SEC(1000)));
    promise_unref(promise_process_wait(&process, WEFT_FOREVER)); /* dropped: nobody is told */
    cr_assert_eq(weft_process_kill(&process, SIGKILL), 0);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(WTERMSIG(outcome_of(several[i])), SIGKILL);
    close(process.in);
    cr_assert_null(weft__rt->timers, "no deadline is left behind");
    weft_process_finish(&process);
    cr_assert_eq(outcome_of(promise_process_wait(&process, WEFT_FOREVER)), -EINVAL);
    cr_assert_eq(outcome_of(promise_process_wait(NULL, WEFT_FOREVER)), -EINVAL);

    /* whoever has let go of the process may let a promise reap it */
    spawn_waiting(&process);
    p = promise_process_wait(&process, WEFT_FOREVER);
    close(process.in);
    cr_assert_eq(WEXITSTATUS(outcome_of(p)), 3);
    weft_process_finish(&process);
    while (weft__rt->engine->in_flight > 0)
        turn();
    cr_assert_eq(open_descriptors(), before);
}

Test(source_promise, processes)
{
    EACH_PROCESS_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, process_body), 0, "%s", setup->name);
    }
}

/* Callbacks wait again, let others leave, and finish the process, all while it is told of its end. */
static struct weft_process busy;
static struct promise *other;
static int calls, again, others;

static struct promise *ended(union weft_value status, void *ctx)
{
    (void)ctx;
    calls++;
    cr_assert_eq(WEXITSTATUS((int)status.num), 3);
    promise_cancel(other);
    again = outcome_of(promise_process_wait(&busy, WEFT_FOREVER));
    weft_process_finish(&busy);
    return promise_fulfilled(status);
}

static int note_other(int error, void *ctx)
{
    (void)ctx;
    others = error;
    return 0;
}

static void busy_body(void)
{
    struct promise *first, *last;

    calls = again = others = 0;
    spawn_waiting(&busy);
    first = promise_bind(promise_process_wait(&busy, WEFT_FOREVER), ended, NULL);
    other = promise_process_wait(&busy, WEFT_FOREVER);
    cr_assert_eq(promise_on_failure(other, note_other, NULL), 0);
    last = promise_process_wait(&busy, WEFT_FOREVER);
    close(busy.in);
    cr_assert_eq(WEXITSTATUS(outcome_of(first)), 3);
    cr_assert_eq(calls, 1);
    cr_assert_eq(WEXITSTATUS(again), 3);
    cr_assert_eq(others, -ECANCELED);
    cr_assert_eq(outcome_of(last), -ECANCELED, "it was finished before its turn");
    promise_unref(other);
}

Test(source_promise, callbacks_in_the_middle)
{
    EACH_PROCESS_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, busy_body), 0, "%s", setup->name);
    }
}

/* Promises that nothing settles before the runtime ends; the process is usable afterwards. */
static struct weft_process lasting;
static struct weft_signals *lasting_signals;
static struct weft_watch *lasting_watch;

static void leave_body(void)
{
    for (int i = 0; i < 3; i++) {
        promise_unref(
            promise_process_wait(&lasting, i ? WEFT_FOREVER : weft_after(WEFT_SEC(1000))));
        if (does_io()) {
            promise_unref(promise_signals_wait(lasting_signals, NULL, WEFT_FOREVER));
            promise_unref(promise_watch_next(lasting_watch, NULL, weft_after(WEFT_SEC(1000))));
        }
    }
}

static void find_body(void)
{
    close(lasting.in);
    cr_assert_eq(WEXITSTATUS(outcome_of(promise_process_wait(&lasting, WEFT_FOREVER))), 3);
    if (does_io()) {
        struct promise *p = promise_signals_wait(lasting_signals, NULL, WEFT_FOREVER);

        kill(getpid(), SIGUSR1);
        cr_assert_eq(outcome_of(p), SIGUSR1);
    }
}

Test(source_promise, left_at_the_end)
{
    EACH_PROCESS_SETUP(setup)
    {
        int before = open_descriptors();

        spawn_waiting(&lasting);
        lasting_signals = hold(SIGUSR1);
        cr_assert_eq(weft_watch_create(&lasting_watch), 0);
        cr_assert(weft_watch_add(lasting_watch, "/tmp", IN_DELETE_SELF) > 0);
        cr_assert_eq(run_by_hand(setup, leave_body), 0, "%s", setup->name);
        cr_assert_eq(run_by_hand(setup, find_body), 0, "%s", setup->name);
        weft_process_finish(&lasting);
        weft_signals_destroy(lasting_signals);
        weft_watch_destroy(lasting_watch);
        cr_assert_eq(open_descriptors(), before);
    }
}

/* ---- signals ---- */

static void signals_body(void)
{
    struct weft_signals *signals = hold(SIGUSR1);
    struct signalfd_siginfo info = {0};
    struct promise *p, *first[2];

    cr_assert_eq(outcome_of(promise_signals_wait(signals, NULL, WEFT_NOWAIT)), -ETIMEDOUT);
    cr_assert_eq(outcome_of(promise_signals_wait(signals, NULL, weft_after(WEFT_MS(2)))),
                 -ETIMEDOUT);
    kill(getpid(), SIGUSR1);
    p = promise_signals_wait(signals, &info, WEFT_NOWAIT);
    cr_assert_eq(promise_state(p), PROMISE_FULFILLED, "it is there");
    cr_assert_eq(outcome_of(p), SIGUSR1);
    cr_assert_eq(info.ssi_pid, (uint32_t)getpid());

    p = promise_signals_wait(signals, NULL, WEFT_FOREVER);
    promise_cancel(p);
    cr_assert_eq(promise_state(p), PROMISE_REJECTED, "at once");
    cr_assert_eq(outcome_of(p), -ECANCELED);
    /* a race lost takes none */
    first[0] = promise_sleep(WEFT_US(100));
    first[1] = promise_signals_wait(signals, NULL, WEFT_FOREVER);
    cr_assert_eq(outcome_of(promise_pick(first, 2)), 0);
    kill(getpid(), SIGUSR1);
    cr_assert_eq(outcome_of(promise_signals_wait(signals, NULL, WEFT_FOREVER)), SIGUSR1);

    p = promise_signals_wait(signals, NULL, WEFT_FOREVER);
    first[0] = promise_signals_wait(signals, NULL, WEFT_FOREVER);
    kill(getpid(), SIGUSR1);
    cr_assert_eq(outcome_of(p), SIGUSR1);
    cr_assert_eq(promise_state(first[0]), PROMISE_PENDING);
    weft_signals_destroy(signals);
    cr_assert_eq(outcome_of(first[0]), -ECANCELED);
    cr_assert_eq(outcome_of(promise_signals_wait(NULL, NULL, WEFT_FOREVER)), -EINVAL);
}

Test(source_promise, signals)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, signals_body), 0, "%s", setup->name);
    }
}

/* ---- file events ---- */

static void watch_body(void)
{
    char path[] = "/tmp/weft-test-XXXXXX";
    struct weft_watch_event event = {0};
    struct weft_watch *watch;
    struct promise *p, *later;
    int fd = mkstemp(path);

    cr_assert_eq(weft_watch_create(&watch), 0);
    cr_assert(weft_watch_add(watch, path, IN_MODIFY | IN_ATTRIB) > 0);
    cr_assert_eq(outcome_of(promise_watch_next(watch, NULL, WEFT_NOWAIT)), -ETIMEDOUT);
    p = promise_watch_next(watch, &event, WEFT_FOREVER);
    cr_assert_eq(write(fd, "x", 1), 1);
    cr_assert_eq(outcome_of(p), 0);
    cr_assert_eq(event.mask, IN_MODIFY);
    cr_assert_str_eq(event.name, "");
    p = promise_watch_next(watch, &event, weft_after(WEFT_SEC(1000)));
    later = promise_watch_next(watch, &event, WEFT_FOREVER);
    fchmod(fd, 0400);
    promise_cancel(p);
    cr_assert_eq(outcome_of(p), -ECANCELED);
    cr_assert_eq(outcome_of(later), 0);
    cr_assert_eq(event.mask, IN_ATTRIB, "who was canceled has taken none");
    p = promise_watch_next(watch, &event, WEFT_FOREVER);
    weft_watch_destroy(watch);
    cr_assert_eq(outcome_of(p), -ECANCELED);
    cr_assert_eq(outcome_of(promise_watch_next(NULL, NULL, WEFT_FOREVER)), -EINVAL);
    close(fd);
    unlink(path);
}

Test(source_promise, file_events)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, watch_body), 0, "%s", setup->name);
    }
}

/* ---- want ---- */

static void no_memory_body(void)
{
    struct weft_process process;
    struct weft_signals *signals = hold(SIGUSR1);
    struct promise *p;

    spawn_waiting(&process);
    promise_unref(promise_pause()); /* there is a state */
    promise__fail_after(0);
    p = promise_process_wait(&process, WEFT_FOREVER);
    cr_assert_eq(outcome_of(p), -ENOMEM);
    cr_assert_eq(outcome_of(promise_signals_wait(signals, NULL, WEFT_FOREVER)), -ENOMEM);
    promise__fail_after(SIZE_MAX);
    kill(getpid(), SIGUSR1);
    cr_assert_eq(outcome_of(promise_signals_wait(signals, NULL, WEFT_FOREVER)), SIGUSR1,
                 "it has not been lost");
    close(process.in);
    cr_assert_eq(WEXITSTATUS(outcome_of(promise_process_wait(&process, WEFT_FOREVER))), 3);
    weft_process_finish(&process);
    weft_signals_destroy(signals);
}

Test(source_promise, no_memory)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, no_memory_body), 0, "%s", setup->name);
    }
}

static void no_io_body(void)
{
    struct weft_signals *signals = hold(SIGUSR1);
    struct weft_watch *watch;

    cr_assert_eq(weft_watch_create(&watch), 0);
    cr_assert_eq(outcome_of(promise_signals_wait(signals, NULL, WEFT_FOREVER)), -ENOSYS);
    cr_assert_eq(outcome_of(promise_watch_next(watch, NULL, WEFT_FOREVER)), -ENOSYS);
    weft_signals_destroy(signals);
    weft_watch_destroy(watch);
}

Test(source_promise, without_an_engine)
{
    struct weft_process process;

    spawn_shell(&process, "exit 0");
    cr_assert_eq(outcome_of(promise_process_wait(&process, WEFT_FOREVER)), -EINVAL);
    until_ended(process.pid);
    cr_assert_eq(weft_process_status(&process), 0);
    weft_process_finish(&process);
    cr_assert_eq(run_by_hand(&setups[0], no_io_body), 0);
}
