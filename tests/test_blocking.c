/* needs: fibers
 * Fibers that wait for calls on pool threads. */
#include "allocations.h"
#include "fiber_internal.h"
#include "io_support.h"
#include "offload.h"
#include "ring_internal.h"

#include <weft/fiber.h>
#include <weft/promise.h>

#include <criterion/criterion.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>

#define ON_EACH_SETUP(main)                                                               \
    for (const struct setup *setup = setups; setup < setups + setups_count; setup++) {    \
        cr_assert_eq(run_on(setup, main, NULL), 0, "%s: %s", setup->name, report_text()); \
    }

static void down(sem_t *sem)
{
    while (sem_wait(sem) < 0)
        ;
}

/* ---- results ---- */

static int echo(void *arg)
{
    errno = 33;
    return *(int *)arg;
}

static int results_main(void *unused)
{
    static const struct {
        int returned, expected;
    } results[] = {{0, 0},         {1, 1},           {INT_MAX, INT_MAX}, {-1, -1},
                   {-4095, -4095}, {-4096, -EINVAL}, {INT_MIN, -EINVAL}, {-ETIMEDOUT, -ETIMEDOUT}};

    (void)unused;
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        int returned = results[i].returned, rc, *owned;

        errno = 12345;
        rc = fiber_blocking(echo, &returned, WEFT_FOREVER);
        cr_assert_eq(rc, results[i].expected, "%d: %d", returned, rc);
        cr_assert_eq(errno, 12345, "errno is the thread's, not the call's");
        owned = malloc(sizeof *owned);
        *owned = returned;
        rc = fiber_blocking_owned(echo, owned, free, WEFT_FOREVER);
        cr_assert_eq(rc, results[i].expected, "%d: %d", returned, rc);
        if (rc >= 0)
            free(owned);
    }
    return 0;
}

Test(blocking, results)
{
    ON_EACH_SETUP(results_main);
}

/* ---- where it runs ---- */

struct place {
    pthread_t thread;
    struct weft_runtime *runtime;
    sigset_t mask;
    int sum;
};

static int look_around(void *arg)
{
    struct place *place = arg;
    volatile char deep[768 * 1024];

    for (size_t i = 0; i < sizeof deep; i += 4096)
        deep[i] = (char)i;
    place->sum = deep[4096];
    place->thread = pthread_self();
    place->runtime = weft_current();
    pthread_sigmask(SIG_BLOCK, NULL, &place->mask);
    return 7;
}

/* Blocked, it would end the process without the program's handler. */
static bool is_fault(int signal)
{
    return signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL ||
           signal == SIGTRAP || signal == SIGSYS;
}

static int place_main(void *unused)
{
    struct weft_stats before = {.size = sizeof before}, after = before;
    struct place place;
    size_t allocated;

    (void)unused;
    cr_assert_eq(fiber_blocking(look_around, &place, WEFT_FOREVER), 7);
    cr_assert(!pthread_equal(place.thread, pthread_self()));
    cr_assert_null(place.runtime);
    for (int i = 1; i < NSIG; i++)
        if (i != SIGKILL && i != SIGSTOP && (i < 32 || i > 33))
            cr_assert_eq(sigismember(&place.mask, i), !is_fault(i), "%d", i);
    cr_assert_eq(weft_stats(&before), 0);
    cr_assert_geq(before.pool_threads, 1);
    allocated = allocations;
    cr_assert_eq(fiber_blocking(look_around, &place, weft_after(WEFT_SEC(1000))), 7);
    cr_assert_eq(allocations, allocated, "no allocation");
    cr_assert_eq(weft_stats(&after), 0);
    cr_assert_eq(after.pool_threads, before.pool_threads, "the thread is used again");
    cr_assert(after.pool_queued == 0);
    return 0;
}

Test(blocking, place)
{
    ON_EACH_SETUP(place_main);
}

/* ---- many, and the bound ---- */

static atomic_int inside, most;

static int count_inside(void *arg)
{
    int now = atomic_fetch_add(&inside, 1) + 1, seen = atomic_load(&most);

    while (now > seen && !atomic_compare_exchange_weak(&most, &seen, now))
        ;
    sched_yield();
    atomic_fetch_sub(&inside, 1);
    return *(int *)arg;
}

static int left;

static int64_t call_fiber(void *arg)
{
    int number = (int)(intptr_t)arg;

    cr_assert_eq(fiber_blocking(count_inside, &number, WEFT_FOREVER), number);
    left--;
    return 0;
}

static int many_main(void *unused)
{
    int before = weft_offload_limit(3);

    (void)unused;
    cr_assert(before > 3);
    atomic_store(&most, 0);
    left = 1000;
    for (intptr_t i = 0; i < 1000; i++)
        cr_assert_eq(fiber_detach(call_fiber, (void *)i), 0);
    while (left > 0)
        fiber_sleep(WEFT_US(100));
    cr_assert_leq(atomic_load(&most), 3);
    cr_assert_geq(atomic_load(&most), 1);
    cr_assert_eq(weft_offload_limit((unsigned)before), 3);
    return 0;
}

Test(blocking, a_thousand_calls)
{
    ON_EACH_SETUP(many_main);
}

/* As many at once as the bound says, and a bound that is raised takes effect at once. */
static sem_t gate, arrived;

static int wait_at_gate(void *arg)
{
    (void)arg;
    sem_post(&arrived);
    down(&gate);
    return 5;
}

static int64_t gate_fiber(void *arg)
{
    (void)arg;
    cr_assert_eq(fiber_blocking(wait_at_gate, NULL, WEFT_FOREVER), 5);
    left--;
    return 0;
}

static int bound_main(void *unused)
{
    struct weft_stats stats = {.size = sizeof stats};
    int before = weft_offload_limit(2);

    (void)unused;
    sem_init(&gate, 0, 0);
    sem_init(&arrived, 0, 0);
    left = 5;
    for (int i = 0; i < 5; i++)
        cr_assert_eq(fiber_detach(gate_fiber, NULL), 0);
    fiber_yield();
    down(&arrived);
    down(&arrived);
    cr_assert_eq(weft_stats(&stats), 0);
    cr_assert_eq(stats.pool_running, 2);
    cr_assert_eq(stats.pool_queued, 3);
    cr_assert_eq(weft_offload_limit(4), 2);
    down(&arrived);
    down(&arrived);
    cr_assert_eq(sem_trywait(&arrived), -1);
    /* lowered below those at work: they end, and no other begins until there are fewer */
    cr_assert_eq(weft_offload_limit(1), 4);
    for (int i = 0; i < 3; i++)
        sem_post(&gate);
    while (left > 2)
        fiber_sleep(WEFT_US(50));
    cr_assert_eq(weft_stats(&stats), 0);
    cr_assert_eq(stats.pool_queued, 1, "one is at work, and that is all there may be");
    sem_post(&gate);
    down(&arrived);
    sem_post(&gate);
    while (left > 0)
        fiber_sleep(WEFT_US(50));
    cr_assert_eq(weft_offload_limit((unsigned)before), 1);
    return 0;
}

Test(blocking, the_bound)
{
    ON_EACH_SETUP(bound_main);
}

/* Calls that never come back keep neither weft's own work nor lookups waiting, nor the other way
 * round. */
struct other_work {
    struct weft_job job;
    bool done;
};

static void other_run(struct weft_job *job)
{
    (void)job;
}

static void other_done(struct weft_job *job)
{
    weft__container(job, struct other_work, job)->done = true;
}

static int kinds_main(void *unused)
{
    static struct other_work works[2];
    int limit = weft_offload_limit(2);

    (void)unused;
    sem_init(&gate, 0, 0);
    sem_init(&arrived, 0, 0);
    left = 6;
    for (int i = 0; i < 6; i++)
        cr_assert_eq(fiber_detach(gate_fiber, NULL), 0);
    fiber_yield();
    for (int i = 0; i < 2; i++) {
        works[i] = (struct other_work){.job = {.run = other_run, .done = other_done}};
        cr_assert_eq(weft__offload(weft__rt, &works[i].job, i ? WEFT__JOB_WORK : WEFT__JOB_LOOKUP),
                     0);
    }
    while (!works[0].done || !works[1].done)
        fiber_sleep(WEFT_US(50));
    cr_assert_eq(left, 6);
    for (int i = 0; i < 6; i++)
        sem_post(&gate);
    while (left > 0)
        fiber_sleep(WEFT_US(50));
    weft_offload_limit((unsigned)limit);
    return 0;
}

Test(blocking, each_kind_has_its_own_bound)
{
    ON_EACH_SETUP(kinds_main);
}

/* Threads end when there is nothing to do, and are started again. */
static int retire_main(void *unused)
{
    struct weft_stats stats = {.size = sizeof stats};
    int number = 9;

    (void)unused;
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(fiber_blocking(echo, &number, WEFT_FOREVER), 9);
        do {
            fiber_sleep(WEFT_MS(1));
            cr_assert_eq(weft_stats(&stats), 0);
        } while (stats.pool_threads > 0);
    }
    return 0;
}

Test(blocking, idle_threads_end)
{
    atomic_store(&weft__offload_patience, WEFT_MS(1));
    ON_EACH_SETUP(retire_main);
}

/* ---- deadline and cancellation ---- */

struct caller {
    struct fiber *self;
    weft_time deadline;
    bool owned;
    int result;
    bool ended;
};

static atomic_int called, freed;

static int note_call(void *arg)
{
    (void)arg;
    atomic_fetch_add(&called, 1);
    return 11;
}

static int note_call_at_gate(void *arg)
{
    atomic_fetch_add(&called, 1);
    return wait_at_gate(arg);
}

static int fail_at_gate(void *arg)
{
    wait_at_gate(arg);
    return -EXDEV;
}

static void note_free(void *arg)
{
    free(arg);
    atomic_fetch_add(&freed, 1);
}

static weft_blocking_fn *caller_fn;

static int64_t caller_fiber(void *arg)
{
    struct caller *c = arg;

    c->self = fiber_self();
    if (c->owned) {
        void *memory = malloc(16);

        c->result = fiber_blocking_owned(caller_fn, memory, note_free, c->deadline);
        if (c->result >= 0)
            free(memory);
    } else {
        c->result = fiber_blocking(caller_fn, c, c->deadline);
    }
    c->ended = true;
    return 0;
}

static void start_caller(struct caller *c, bool owned, weft_blocking_fn *fn, weft_time deadline)
{
    *c = (struct caller){.owned = owned, .deadline = deadline};
    caller_fn = fn;
    cr_assert_eq(fiber_detach(caller_fiber, c), 0);
    fiber_yield();
}

static void until(bool *ended)
{
    while (!*ended)
        fiber_sleep(WEFT_US(20));
}

static void until_freed(int count)
{
    while (atomic_load(&freed) < count)
        fiber_sleep(WEFT_US(20));
    cr_assert_eq(atomic_load(&freed), count);
}

/* What has not begun never begins. */
static int queued_main(void *unused)
{
    int limit = weft_offload_limit(1);

    (void)unused;
    sem_init(&gate, 0, 0);
    sem_init(&arrived, 0, 0);
    for (int owned = 0; owned < 2; owned++) {
        struct caller busy, cancelled, late;

        atomic_store(&called, 0);
        atomic_store(&freed, 0);
        start_caller(&busy, false, wait_at_gate, WEFT_FOREVER);
        down(&arrived);
        start_caller(&cancelled, owned, note_call, WEFT_FOREVER);
        start_caller(&late, owned, note_call, weft_after(WEFT_MS(2)));
        fiber__cancel(weft__rt, cancelled.self);
        until(&cancelled.ended);
        cr_assert_eq(cancelled.result, -ECANCELED);
        until(&late.ended);
        cr_assert_eq(late.result, -ETIMEDOUT);
        cr_assert_eq(atomic_load(&freed), owned ? 2 : 0);
        cr_assert(!busy.ended);
        sem_post(&gate);
        until(&busy.ended);
        cr_assert_eq(busy.result, 5);
        cr_assert_eq(atomic_load(&called), 0);
    }
    weft_offload_limit((unsigned)limit);
    return 0;
}

Test(blocking, given_up_before_it_begins)
{
    ON_EACH_SETUP(queued_main);
}

/* A call that has begun before its deadline, which is soon. */
static void begin_with_deadline(struct caller *c, bool owned, weft_blocking_fn *fn)
{
    do {
        atomic_store(&freed, 0);
        start_caller(c, owned, fn, weft_after(WEFT_MS(20)));
        while (!c->ended && sem_trywait(&arrived) < 0)
            sched_yield();
    } while (c->ended); /* this machine is busy */
}

static void begin(struct caller *c, bool owned, weft_blocking_fn *fn)
{
    atomic_store(&freed, 0);
    start_caller(c, owned, fn, WEFT_FOREVER);
    down(&arrived);
}

/* What has begun is waited for ... */
static int running_main(void *unused)
{
    struct caller c;

    (void)unused;
    sem_init(&gate, 0, 0);
    sem_init(&arrived, 0, 0);
    for (int how = 0; how < 2; how++) {
        if (how) {
            begin_with_deadline(&c, false, wait_at_gate);
            fiber_sleep(WEFT_MS(21));
        } else {
            begin(&c, false, wait_at_gate);
            fiber__cancel(weft__rt, c.self);
        }
        for (int i = 0; i < 5; i++)
            fiber_yield();
        cr_assert(!c.ended);
        sem_post(&gate);
        until(&c.ended);
        cr_assert_eq(c.result, 5, "completion beats both");
    }
    return 0;
}

Test(blocking, what_has_begun_is_waited_for)
{
    ON_EACH_SETUP(running_main);
}

/* ... or left to itself, with the memory that was handed over. */
static int left_main(void *unused)
{
    struct caller c;

    (void)unused;
    sem_init(&gate, 0, 0);
    sem_init(&arrived, 0, 0);
    for (int how = 0; how < 4; how++) {
        weft_blocking_fn *fn = how < 2 ? wait_at_gate : fail_at_gate;

        if (how % 2) {
            begin_with_deadline(&c, true, fn);
        } else {
            begin(&c, true, fn);
            fiber__cancel(weft__rt, c.self);
        }
        until(&c.ended);
        cr_assert_eq(c.result, how % 2 ? -ETIMEDOUT : -ECANCELED);
        cr_assert_eq(atomic_load(&freed), 0, "it is still in use");
        sem_post(&gate);
        until_freed(1);
    }
    /* a failure of the call frees it too */
    atomic_store(&freed, 0);
    start_caller(&c, true, fail_at_gate, WEFT_FOREVER);
    sem_post(&gate);
    until(&c.ended);
    cr_assert_eq(c.result, -EXDEV);
    cr_assert_eq(atomic_load(&freed), 1);
    down(&arrived);
    return 0;
}

Test(blocking, left_to_itself)
{
    ON_EACH_SETUP(left_main);
}

/* A deadline past, and a fiber that is cancelled already: nothing is called. */
static int64_t cancelled_fiber(void *arg)
{
    struct caller *c = arg;

    c->self = fiber_self();
    fiber_sleep_until(WEFT_FOREVER);
    return caller_fiber(arg);
}

static int at_once_main(void *unused)
{
    (void)unused;
    atomic_store(&called, 0);
    for (int owned = 0; owned < 2; owned++) {
        struct caller c = {.owned = owned, .deadline = WEFT_FOREVER};

        atomic_store(&freed, 0);
        caller_fn = note_call;
        cr_assert_eq(fiber_detach(cancelled_fiber, &c), 0);
        fiber_yield();
        fiber__cancel(weft__rt, c.self);
        until(&c.ended);
        cr_assert_eq(c.result, -ECANCELED);
        start_caller(&c, owned, note_call, WEFT_NOWAIT);
        until(&c.ended);
        cr_assert_eq(c.result, -ETIMEDOUT);
        cr_assert_eq(atomic_load(&freed), owned ? 2 : 0);
    }
    cr_assert_eq(atomic_load(&called), 0);
    return 0;
}

Test(blocking, given_up_at_once)
{
    ON_EACH_SETUP(at_once_main);
}

/* ---- misuse, and want ---- */

static int from_base[2];

static void call_on_base(struct weft_task *task)
{
    (void)task;
    from_base[0] = fiber_blocking(note_call, NULL, WEFT_FOREVER);
    from_base[1] = fiber_blocking_owned(note_call, malloc(1), note_free, WEFT_FOREVER);
}

static int misuse_main(void *unused)
{
    static struct weft_task task;

    (void)unused;
    atomic_store(&freed, 0);
    atomic_store(&called, 0);
    cr_assert_eq(fiber_blocking(NULL, NULL, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_blocking_owned(NULL, malloc(1), note_free, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(weft_task_init(&task, call_on_base), 0);
    weft_task_queue(&task);
    fiber_yield();
    fiber_yield();
    cr_assert(from_base[0] == -EDEADLK && from_base[1] == -EDEADLK);
    weft_task_finish(&task);
    cr_assert_eq(atomic_load(&freed), 2);
    cr_assert_eq(atomic_load(&called), 0);
    return 0;
}

Test(blocking, misuse)
{
    cr_assert_eq(fiber_blocking(note_call, NULL, WEFT_FOREVER), -EINVAL, "without a runtime");
    cr_assert_eq(weft_offload_limit(0), -EINVAL);
    cr_assert_eq(weft_offload_limit(4097), -EINVAL);
    cr_assert_eq(weft_offload_limit(4096), 32);
    cr_assert_eq(weft_offload_limit(32), 4096);
    ON_EACH_SETUP(misuse_main);
}

static int no_memory_main(void *unused)
{
    void *memory = malloc(1);
    int rc;

    (void)unused;
    atomic_store(&freed, 0);
    allocations_fail_after(0);
    rc = fiber_blocking_owned(note_call, memory, note_free, WEFT_FOREVER);
    allocations_fail_after(SIZE_MAX);
    cr_assert_eq(rc, -ENOMEM);
    cr_assert_eq(atomic_load(&freed), 1);
    return 0;
}

Test(blocking, no_memory)
{
    if (slow_tools())
        return;
    ON_EACH_SETUP(no_memory_main);
}

/* ---- the end ---- */

static struct caller at_end[4];

/* Main returns while calls run: those with memory handed over are left behind, the others waited for. */
static int end_main(void *unused)
{
    (void)unused;
    for (int i = 0; i < 4; i++)
        start_caller(&at_end[i], i != 3, note_call_at_gate, WEFT_FOREVER);
    for (int i = 0; i < 4; i++)
        down(&arrived);
    sem_post(&gate); /* one of them ends, whichever */
    return 0;
}

static void *open_gate(void *unused)
{
    (void)unused;
    for (int i = 0; i < 3; i++)
        sem_post(&gate);
    return NULL;
}

Test(blocking, the_end_of_the_runtime)
{
    for (const struct setup *setup = setups; setup < setups + setups_count; setup++) {
        struct weft_options options = setup_options(setup);
        pthread_t opener;
        unsigned jobs;

        sem_init(&gate, 0, 0);
        sem_init(&arrived, 0, 0);
        atomic_store(&freed, 0);
        memset(at_end, 0, sizeof at_end);
        cr_assert_eq(pthread_create(&opener, NULL, open_gate, NULL), 0);
        cr_assert_eq(weft_run(end_main, NULL, &options), 0, "%s", setup->name);
        pthread_join(opener, NULL);
        while (weft__offload_threads(&jobs), jobs > 0)
            sched_yield();
        for (int i = 0; i < 4; i++)
            cr_assert(at_end[i].ended);
        cr_assert(at_end[3].result == 5, "what is on the fiber's stack is waited for");
        for (int i = 0, handed_over = 0; i < 3; i++) {
            handed_over += at_end[i].result < 0;
            cr_assert(at_end[i].result == 5 || at_end[i].result == -ECANCELED);
            if (i == 2)
                while (atomic_load(&freed) < handed_over)
                    sched_yield();
        }
    }
}

/* An engine that fails ends the runtime under its fibers: not before the calls on their stacks. */
static sem_t failed;

static void note_failure(void *ctx, const char *line)
{
    (void)ctx;
    if (strstr(line, "engine failed") != NULL)
        sem_post(&failed);
}

static void *open_gate_after_failure(void *unused)
{
    (void)unused;
    down(&failed);
    for (int i = 0; i < 20000; i++) /* time enough for a runtime that doesn't wait to be gone */
        sched_yield();
    sem_post(&gate);
    return NULL;
}

static int failing_main(void *unused)
{
    struct ring__faults *faults = ring__faults(weft__rt);

    (void)unused;
    start_caller(&at_end[0], false, wait_at_gate, WEFT_FOREVER);
    down(&arrived);
    faults->enter = INT_MAX;
    faults->enter_error = -EIO;
    fiber_sleep_until(WEFT_FOREVER);
    return 0;
}

Test(blocking, an_engine_that_fails)
{
    EACH_IO_SETUP(setup)
    {
        struct weft_options options = setup_options(setup);
        pthread_t opener;
        unsigned jobs;

        options.report = note_failure;
        sem_init(&gate, 0, 0);
        sem_init(&arrived, 0, 0);
        sem_init(&failed, 0, 0);
        cr_assert_eq(pthread_create(&opener, NULL, open_gate_after_failure, NULL), 0);
        cr_assert_eq(weft_run(failing_main, NULL, &options), -EIO, "%s", setup->name);
        pthread_join(opener, NULL);
        cr_assert(!at_end[0].ended);
        cr_assert_eq(at_end[0].result, 0);
        while (weft__offload_threads(&jobs), jobs > 0)
            sched_yield();
    }
}

/* The child of a fork has threads of its own, and its parent's bound. */
static int fork_main(void *unused)
{
    int number = 3;

    (void)unused;
    return fiber_blocking(echo, &number, WEFT_FOREVER) == 3 ? 0 : -1;
}

Test(blocking, after_fork)
{
    pid_t child;
    int status;

    if (slow_tools())
        return; /* to them, the threads that a fork leaves behind are leaks of the child */
    cr_assert_eq(run_on(&setups[0], fork_main, NULL), 0);
    cr_assert_eq(weft_offload_limit(6), 32);
    child = fork();
    if (child == 0)
        _exit(run_on(&setups[1], fork_main, NULL) != 0 || weft_offload_limit(6) != 6);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
