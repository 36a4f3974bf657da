/* Waking an engine that waits: from threads, from signal handlers, and by signals alone. No wake-up
 * is lost (pitfalls 11, 31); a lost one makes these tests run into their time limit. */
#include "io_support.h"
#include "runtime_internal.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

#define ROUNDS (slow_tools() ? 30 : 2000)

static struct weft_inbox *inbox;
static struct weft_task posted;
static sem_t seen;
static int runs;

static void run_posted(struct weft_task *task)
{
    (void)task;
    runs++;
    sem_post(&seen);
}

/* One post at a time, each as soon as the last was seen: at every point of the engine's way to sleep. */
static void *post_often(void *unused)
{
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        posted.run = run_posted;
        cr_assert_eq(weft_post(inbox, &posted), 0);
        while (sem_wait(&seen) < 0)
            ;
    }
    return NULL;
}

static void wait_for_posts(void *(*poster)(void *))
{
    pthread_t thread;

    runs = 0;
    sem_init(&seen, 0, 0);
    inbox = weft_inbox_ref();
    cr_assert_eq(pthread_create(&thread, NULL, poster, NULL), 0);
    while (runs < ROUNDS)
        turn();
    pthread_join(thread, NULL);
    weft_inbox_unref(inbox);
}

static void threads_body(void)
{
    wait_for_posts(post_often);
}

Test(ring_wake, posts_of_another_thread)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, threads_body), 0, "%s", setup->name);
    }
}

/* The same from signal handlers, on the runtime's own thread. */
static pthread_t target;

static void post_in_handler(int signal)
{
    (void)signal;
    posted.run = run_posted;
    weft_post(inbox, &posted);
}

static void *signal_often(void *unused)
{
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_kill(target, SIGUSR1);
        while (sem_wait(&seen) < 0)
            ;
    }
    return NULL;
}

static void handlers_body(void)
{
    const struct sigaction action = {.sa_handler = post_in_handler, .sa_flags = SA_RESTART};

    target = pthread_self();
    sigaction(SIGUSR1, &action, NULL);
    wait_for_posts(signal_often);
}

Test(ring_wake, posts_of_a_signal_handler)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, handlers_body), 0, "%s", setup->name);
    }
}

/* The engine's own flag, without the inbox's in front of it. */
static atomic_int turns_ended;

static void *wake_often(void *engine)
{
    struct weft__engine *e = engine;

    for (int i = 0; i < ROUNDS; i++) {
        int before = atomic_load(&turns_ended);

        e->class->wake(e);
        while (atomic_load(&turns_ended) == before)
            sched_yield();
    }
    return NULL;
}

static void bare_body(void)
{
    struct weft__engine *engine = weft__rt->engine;
    pthread_t thread;

    atomic_store(&turns_ended, 0);
    cr_assert_eq(pthread_create(&thread, NULL, wake_often, engine), 0);
    while (atomic_load(&turns_ended) < ROUNDS) {
        cr_assert_eq(engine->class->turn(engine, WEFT_FOREVER), 0);
        atomic_fetch_add(&turns_ended, 1);
    }
    /* the thread may need a few more, if a turn ended for another reason */
    while (pthread_tryjoin_np(thread, NULL) != 0) {
        atomic_fetch_add(&turns_ended, 1);
        sched_yield();
    }
}

Test(ring_wake, a_wake_ends_this_wait_or_the_next)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, bare_body), 0, "%s", setup->name);
    }
}

/* A wake-up that has come through before the wait begins: it is not only cleared away. */
static void early_body(void)
{
    struct weft__engine *engine = weft__rt->engine;

    for (int i = 0; i < 10; i++) {
        cr_assert_eq(engine->class->turn(engine, WEFT_NOWAIT), 0); /* it listens now */
        engine->class->wake(engine);
        cr_assert_eq(engine->class->turn(engine, WEFT_FOREVER), 0);
    }
}

Test(ring_wake, a_wake_before_the_wait_ends_it)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, early_body), 0, "%s", setup->name);
    }
}

/* A storm of signals changes nothing but the time it takes. */
static atomic_bool calm;
static volatile sig_atomic_t signals;

static void count_signal(int signal)
{
    (void)signal;
    signals++;
}

static void *storm(void *unused)
{
    (void)unused;
    while (!atomic_load(&calm)) {
        pthread_kill(target, SIGUSR1);
        sched_yield();
    }
    return NULL;
}

static void storm_body(void)
{
    const struct sigaction action = {.sa_handler = count_signal};
    struct kept receive, send;
    pthread_t thread;
    int pair[2];
    char buf[8];

    make_pair(pair);
    signals = 0;
    atomic_store(&calm, false);
    target = pthread_self();
    sigaction(SIGUSR1, &action, NULL);
    cr_assert_eq(pthread_create(&thread, NULL, storm, NULL), 0);
    for (int i = 0; i < ROUNDS / 2 || signals == 0; i++) {
        cr_assert_eq(ring_recv(&keep(&receive)->op, pair[0], buf, sizeof buf, 0), 0);
        turn(); /* waits with the operation in the kernel until a signal comes */
        cr_assert_eq(receive.calls, 0);
        cr_assert_eq(ring_send(&keep(&send)->op, pair[1], "x", 1, 0), 0);
        cr_assert_eq(result_of(&receive), 1);
        cr_assert_eq(result_of(&send), 1);
    }
    atomic_store(&calm, true);
    pthread_join(thread, NULL);
    close_pair(pair);
}

Test(ring_wake, a_storm_of_signals)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, storm_body), 0, "%s", setup->name);
    }
}
