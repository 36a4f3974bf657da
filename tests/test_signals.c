/* needs: fibers
 * Signals, waited for by fibers. */
#include "allocations.h"
#include "fiber_internal.h"
#include "io_support.h"
#include "source.h"

#include <weft/io.h>
#include <weft/signals.h>

#include <criterion/criterion.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define ON_EACH_SETUP(main)                                                               \
    EACH_IO_SETUP(setup)                                                                  \
    {                                                                                     \
        cr_assert_eq(run_on(setup, main, NULL), 0, "%s: %s", setup->name, report_text()); \
    }

static bool is_blocked(int signal)
{
    sigset_t now;

    pthread_sigmask(SIG_BLOCK, NULL, &now);
    return sigismember(&now, signal);
}

static void send_here(int signal)
{
    cr_assert_eq(kill(getpid(), signal), 0);
}

static struct weft_signals *hold(int signal)
{
    struct weft_signals *signals;
    int rc = weft_signals_create(&signals, &signal, 1);

    cr_assert_eq(rc, 0, "%d", rc);
    return signals;
}

static volatile sig_atomic_t handled;

static void handle(int signal)
{
    (void)signal;
    handled++;
}

/* ---- one waiter ---- */

static int wait_main(void *unused)
{
    const int some[] = {SIGUSR1, SIGUSR2, SIGHUP};
    struct signalfd_siginfo info;
    struct weft_signals *signals;
    int before = open_descriptors();
    size_t allocated;

    (void)unused;
    cr_assert_eq(weft_signals_create(&signals, some, 3), 0);
    cr_assert_eq(fiber_signals_wait(signals, NULL, WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert_eq(fiber_signals_wait(signals, &info, weft_after(WEFT_US(1))), -ETIMEDOUT);
    allocated = allocations;
    cr_assert_eq(fiber_signals_wait(signals, &info, weft_after(WEFT_MS(2))), -ETIMEDOUT);
    cr_assert_eq(allocations, allocated, "a wait allocates nothing");

    /* before anybody waits: it stays, and is not noted twice */
    send_here(SIGUSR1);
    send_here(SIGUSR1);
    cr_assert_eq(fiber_signals_wait(signals, &info, WEFT_NOWAIT), SIGUSR1);
    cr_assert_eq(info.ssi_signo, SIGUSR1);
    cr_assert_eq(info.ssi_pid, (uint32_t)getpid());
    cr_assert_eq(fiber_signals_wait(signals, NULL, WEFT_NOWAIT), -ETIMEDOUT);

    /* several kinds, and one for the thread alone */
    send_here(SIGUSR2);
    pthread_kill(pthread_self(), SIGHUP);
    cr_assert_eq(fiber_signals_wait(signals, NULL, WEFT_FOREVER) +
                     fiber_signals_wait(signals, NULL, WEFT_FOREVER),
                 SIGUSR2 + SIGHUP);
    weft_signals_destroy(signals);
    while (weft__rt->engine->in_flight > 0) /* the poll of the wait that was given up */
        fiber_yield();
    cr_assert_eq(open_descriptors(), before);
    return 0;
}

Test(signals, wait)
{
    ON_EACH_SETUP(wait_main);
}

/* Real-time signals queue, in order, with what was sent along. */
static int queue_main(void *unused)
{
    struct weft_signals *signals = hold(SIGRTMIN + 3);
    struct signalfd_siginfo info;

    (void)unused;
    for (int i = 0; i < 20; i++)
        cr_assert_eq(sigqueue(getpid(), SIGRTMIN + 3, (union sigval){.sival_int = i}), 0);
    for (int i = 0; i < 20; i++) {
        cr_assert_eq(fiber_signals_wait(signals, &info, WEFT_FOREVER), SIGRTMIN + 3);
        cr_assert_eq(info.ssi_int, i);
    }
    cr_assert_eq(fiber_signals_wait(signals, &info, WEFT_NOWAIT), -ETIMEDOUT);
    weft_signals_destroy(signals);
    return 0;
}

Test(signals, queue)
{
    ON_EACH_SETUP(queue_main);
}

/* ---- several waiters ---- */

struct waiter {
    struct weft_signals *signals;
    struct signalfd_siginfo info;
    struct fiber *self;
    weft_time deadline;
    int result;
    bool ended;
};

static int64_t wait_fiber(void *arg)
{
    struct waiter *w = arg;

    w->self = fiber_self();
    w->result = fiber_signals_wait(w->signals, &w->info, w->deadline);
    w->ended = true;
    return 0;
}

static void start_waiter(struct waiter *w, struct weft_signals *signals)
{
    *w = (struct waiter){.signals = signals, .deadline = WEFT_FOREVER};
    cr_assert_eq(fiber_detach(wait_fiber, w), 0);
}

static void until(bool *ended)
{
    while (!*ended)
        fiber_yield();
}

static int several_main(void *unused)
{
    struct weft_signals *signals = hold(SIGRTMIN);
    struct waiter w[4];

    (void)unused;
    for (int i = 0; i < 4; i++)
        start_waiter(&w[i], signals);
    fiber_yield();
    fiber_nop(WEFT_FOREVER);
    fiber__cancel(weft__rt, w[1].self);
    until(&w[1].ended);
    cr_assert_eq(w[1].result, -ECANCELED);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}), 0);
    until(&w[0].ended);
    until(&w[2].ended);
    cr_assert(w[0].result == SIGRTMIN && w[0].info.ssi_int == 0, "first come, first served");
    cr_assert(w[2].result == SIGRTMIN && w[2].info.ssi_int == 1);
    cr_assert(!w[3].ended);
    /* who comes later doesn't overtake */
    cr_assert_eq(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 2}), 0);
    cr_assert_eq(fiber_signals_wait(signals, NULL, WEFT_NOWAIT), -ETIMEDOUT);
    until(&w[3].ended);
    cr_assert_eq(w[3].info.ssi_int, 2);
    weft_signals_destroy(signals);
    return 0;
}

Test(signals, several_waiters)
{
    ON_EACH_SETUP(several_main);
}

/* A wait that is given up at the moment when the signal comes takes nothing. */
static int lose_nothing_main(void *unused)
{
    struct weft_signals *signals = hold(SIGUSR1);

    (void)unused;
    for (int i = 0; i < 30; i++) {
        struct waiter w;
        int taken = 0;

        start_waiter(&w, signals);
        if (i % 2)
            w.deadline = weft_after(WEFT_US(50));
        fiber_yield();
        if (i % 3)
            fiber_nop(WEFT_FOREVER);
        if (i % 4 < 2)
            send_here(SIGUSR1);
        fiber__cancel(weft__rt, w.self);
        if (i % 4 >= 2)
            send_here(SIGUSR1);
        until(&w.ended);
        cr_assert(w.result == SIGUSR1 || w.result == -ECANCELED || w.result == -ETIMEDOUT);
        taken = w.result == SIGUSR1;
        cr_assert_eq(fiber_signals_wait(signals, NULL, WEFT_NOWAIT), taken ? -ETIMEDOUT : SIGUSR1,
                     "%d", i);
    }
    weft_signals_destroy(signals);
    return 0;
}

Test(signals, a_wait_given_up_takes_nothing)
{
    ON_EACH_SETUP(lose_nothing_main);
}

/* ---- what is blocked ---- */

Test(signals, mask)
{
    const int both[] = {SIGUSR1, SIGUSR2};
    struct weft_signals *a, *b, *c;
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    a = hold(SIGUSR1);
    cr_assert(is_blocked(SIGUSR1) && !is_blocked(SIGUSR2));
    cr_assert_eq(weft_signals_create(&b, both, 2), 0);
    cr_assert(is_blocked(SIGUSR1) && is_blocked(SIGUSR2));
    c = hold(SIGHUP);
    weft_signals_destroy(a); /* not in the order in which they were made */
    cr_assert(is_blocked(SIGUSR1) && is_blocked(SIGUSR2));
    weft_signals_destroy(b);
    cr_assert(!is_blocked(SIGUSR1) && !is_blocked(SIGUSR2));
    weft_signals_destroy(c);
    cr_assert(is_blocked(SIGHUP), "it was before");
    weft_signals_destroy(NULL);

    cr_assert_eq(weft_signals_create(&a, NULL, 0), 0);
    cr_assert(is_blocked(SIGINT) && is_blocked(SIGTERM) && !is_blocked(SIGUSR1));
    weft_signals_destroy(a);
    cr_assert(!is_blocked(SIGINT) && !is_blocked(SIGTERM));
}

/* What nobody has waited for is delivered in the end. */
static int deliver_main(void *unused)
{
    struct weft_signals *signals;

    (void)unused;
    handled = 0;
    signal(SIGUSR1, handle);
    signals = hold(SIGUSR1);
    send_here(SIGUSR1);
    cr_assert_eq(fiber_signals_wait(signals, NULL, WEFT_FOREVER), SIGUSR1);
    cr_assert_eq(handled, 0, "taken, not handled");
    send_here(SIGUSR1);
    cr_assert_eq(handled, 0);
    weft_signals_destroy(signals);
    cr_assert_eq(handled, 1);
    return 0;
}

Test(signals, what_is_left_is_delivered)
{
    ON_EACH_SETUP(deliver_main);
}

static void *destroy_elsewhere(void *signals)
{
    weft_signals_destroy(signals);
    return is_blocked(SIGUSR1) ? signals : NULL;
}

Test(signals, destroyed_on_another_thread)
{
    struct weft_signals *signals = hold(SIGUSR1);
    int before = open_descriptors();
    pthread_t thread;
    void *blocked;

    cr_assert_eq(pthread_create(&thread, NULL, destroy_elsewhere, signals), 0);
    pthread_join(thread, &blocked);
    cr_assert(blocked != NULL, "inherited, and left alone");
    cr_assert(is_blocked(SIGUSR1));
    cr_assert_eq(open_descriptors(), before - 1);
}

/* ---- misuse, and want ---- */

static struct weft_signals *misused;
static int from_base;

static void wait_on_base(struct weft_task *task)
{
    (void)task;
    from_base = fiber_signals_wait(misused, NULL, WEFT_FOREVER);
}

static int misuse_main(void *unused)
{
    static struct weft_task task;

    (void)unused;
    cr_assert_eq(fiber_signals_wait(NULL, NULL, WEFT_FOREVER), -EINVAL);
    misused = hold(SIGUSR1);
    cr_assert_eq(weft_task_init(&task, wait_on_base), 0);
    weft_task_queue(&task);
    fiber_yield();
    fiber_yield();
    cr_assert_eq(from_base, -EDEADLK);
    weft_task_finish(&task);
    weft_signals_destroy(misused);
    return 0;
}

static int no_io_main(void *unused)
{
    struct weft_signals *signals = hold(SIGUSR1);

    (void)unused;
    cr_assert_eq(fiber_signals_wait(signals, NULL, WEFT_FOREVER), -ENOSYS);
    cr_assert_eq(fiber_signals_wait(signals, NULL, WEFT_NOWAIT), -ETIMEDOUT);
    send_here(SIGUSR1);
    cr_assert_eq(fiber_signals_wait(signals, NULL, WEFT_FOREVER), SIGUSR1, "it is there");
    weft_signals_destroy(signals);
    return 0;
}

Test(signals, misuse)
{
    static const int bad[] = {0, -1, SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, 32, 1000};
    struct weft_signals *signals;
    sigset_t before, after;

    pthread_sigmask(SIG_BLOCK, NULL, &before);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const int some[] = {SIGUSR1, bad[i]};

        signals = (struct weft_signals *)(void *)&before;
        errno = 12345;
        cr_assert_eq(weft_signals_create(&signals, some, 2), -EINVAL, "%d", bad[i]);
        cr_assert_eq(errno, 12345);
        cr_assert_null(signals);
    }
    cr_assert_eq(weft_signals_create(&signals, NULL, 1), -EINVAL);
    cr_assert_eq(weft_signals_create(NULL, NULL, 0), -EINVAL);
    pthread_sigmask(SIG_BLOCK, NULL, &after);
    for (int i = 1; i < NSIG; i++)
        cr_assert_eq(sigismember(&before, i), sigismember(&after, i), "nothing has been blocked");
    signals = hold(SIGUSR1);
    cr_assert_eq(fiber_signals_wait(signals, NULL, WEFT_NOWAIT), -EINVAL, "without a runtime");
    weft_signals_destroy(signals);
    cr_assert_eq(run_on(&setups[0], no_io_main, NULL), 0);
    ON_EACH_SETUP(misuse_main);
}

Test(signals, no_room)
{
    const int one = SIGUSR1;
    struct weft_signals *signals;
    struct rlimit before, none;

    getrlimit(RLIMIT_NOFILE, &before);
    none = before;
    none.rlim_cur = 0;
    handled = 0;
    signal(SIGUSR1, handle);
    setrlimit(RLIMIT_NOFILE, &none);
    cr_assert_eq(weft_signals_create(&signals, &one, 1), -EMFILE);
    setrlimit(RLIMIT_NOFILE, &before);
    cr_assert_null(signals);
    cr_assert(!is_blocked(SIGUSR1));
    if (!slow_tools()) {
        int rc;

        allocations_fail_after(0);
        rc = weft_signals_create(&signals, &one, 1);
        allocations_fail_after(SIZE_MAX);
        cr_assert_eq(rc, -ENOMEM);
        cr_assert(!is_blocked(SIGUSR1));
    }
    send_here(SIGUSR1);
    cr_assert_eq(handled, 1);
}

/* ---- the end ---- */

static int under_waiters_main(void *unused)
{
    int before = open_descriptors();

    (void)unused;
    for (int i = 0; i < 4; i++) {
        struct weft_signals *signals = hold(SIGUSR1);
        struct waiter a, b;

        start_waiter(&a, signals);
        start_waiter(&b, signals);
        fiber_yield();
        if (i % 2)
            fiber_nop(WEFT_FOREVER);
        handled = 0;
        signal(SIGUSR1, handle);
        if (i >= 2)
            send_here(SIGUSR1);
        weft_signals_destroy(signals);
        cr_assert_eq(handled, i >= 2, "not taken, so delivered");
        until(&a.ended);
        until(&b.ended);
        cr_assert(a.result == -ECANCELED && b.result == -ECANCELED, "%d %d", a.result, b.result);
        cr_assert(!is_blocked(SIGUSR1));
        while (weft__rt->engine->in_flight > 0)
            fiber_yield();
        cr_assert_eq(open_descriptors(), before);
    }
    return 0;
}

Test(signals, destroyed_under_waiters)
{
    ON_EACH_SETUP(under_waiters_main);
}

/* Held before there is a runtime, and through two of them. */
static struct weft_signals *lasting;

static int leave_main(void *unused)
{
    static struct waiter w;

    (void)unused;
    start_waiter(&w, lasting);
    fiber_yield();
    return 0;
}

static int64_t send_later(void *unused)
{
    (void)unused;
    for (int i = 0; i < 3; i++)
        fiber_nop(WEFT_FOREVER);
    send_here(SIGTERM);
    return 0;
}

static int wait_and_take_main(void *unused)
{
    cr_assert_eq(fiber_detach(send_later, NULL), 0);
    return fiber_signals_wait(lasting, unused, WEFT_FOREVER) == SIGTERM ? 0 : -1;
}

static int take_main(void *unused)
{
    (void)unused;
    return fiber_signals_wait(lasting, NULL, WEFT_FOREVER) == SIGTERM ? 0 : -1;
}

/* The engine of the first one fails under a waiter. */
static int fail_main(void *unused)
{
    struct ring__faults *faults = ring__faults(weft__rt);
    static struct waiter w;

    (void)unused;
    start_waiter(&w, lasting);
    fiber_nop(WEFT_FOREVER);
    faults->enter = INT_MAX; /* for good */
    faults->enter_error = -ENXIO;
    return fiber_nop(WEFT_FOREVER);
}

Test(signals, after_a_runtime_that_failed)
{
    cr_assert_eq(weft_signals_create(&lasting, NULL, 0), 0);
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_on(setup, fail_main, NULL), -ENXIO, "%s", setup->name);
        cr_assert_eq(run_on(setup, wait_and_take_main, NULL), 0, "%s", setup->name);
    }
    weft_signals_destroy(lasting);
}

Test(signals, one_runtime_after_the_other)
{
    cr_assert_eq(weft_signals_create(&lasting, NULL, 0), 0);
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_on(setup, leave_main, NULL), 0, "%s", setup->name);
        send_here(SIGTERM);
        cr_assert_eq(run_on(setup, take_main, NULL), 0, "%s", setup->name);
    }
    weft_signals_destroy(lasting);
}

/* Two threads, a runtime each: a signal for one of the threads is that one's. */

struct side {
    const struct setup *setup;
    pthread_t thread;
    pthread_barrier_t *both;
    int number, result;
};

static int side_main(void *arg)
{
    struct side *side = arg;
    struct weft_signals *signals = hold(SIGRTMIN + 1);
    struct signalfd_siginfo info;
    int rc = 0;

    side->thread = pthread_self();
    pthread_barrier_wait(side->both);
    for (int i = 0; i < 10 && rc == 0; i++) {
        pthread_sigqueue(side->thread, SIGRTMIN + 1, (union sigval){.sival_int = side->number + i});
        rc = fiber_signals_wait(signals, &info, WEFT_FOREVER) == SIGRTMIN + 1 &&
                     info.ssi_int == side->number + i
                 ? 0
                 : -1;
    }
    pthread_barrier_wait(side->both);
    weft_signals_destroy(signals);
    return rc;
}

static void *side_thread(void *arg)
{
    struct side *side = arg;
    struct weft_options options = WEFT_OPTIONS_INIT;

    options.engine = side->setup->engine;
    options.ring_flags = side->setup->flags;
    side->result = weft_run(side_main, side, &options);
    return NULL;
}

Test(signals, two_runtimes)
{
    EACH_IO_SETUP(setup)
    {
        pthread_barrier_t both;
        struct side a = {.setup = setup, .both = &both, .number = 100};
        struct side b = {.setup = setup, .both = &both, .number = 200};
        pthread_t thread;

        pthread_barrier_init(&both, NULL, 2);
        cr_assert_eq(pthread_create(&thread, NULL, side_thread, &a), 0);
        side_thread(&b);
        pthread_join(thread, NULL);
        pthread_barrier_destroy(&both);
        cr_assert(a.result == 0 && b.result == 0, "%s: %d %d", setup->name, a.result, b.result);
    }
}
