/* soak_io.c: random operations, on purpose disturbed, for a long time.
 *
 *     soak_io SEED COUNT [ENGINE]
 *
 * begins COUNT operations or a few more, in scenarios of which several are under way at a time: reads,
 * writes, messages, connections, files, streams and sleeps; directly, in fibers of their own, as
 * promises and by callbacks; with deadlines, cancellations and closes in between; with faults between
 * the engine and the kernel, and a thread that sends signals. Each scenario has a model of what must
 * come of it. Then the same again, shorter, in runtimes that end in the middle of it. At the end
 * descriptors and memory must be as they were. Whatever is wrong ends the program with status 1 and
 * the state of all fibers; so does a time without progress.
 */
#include "soak.h"

#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/time.h>

#include "offload.h"
#include "ring_internal.h"

#define ACTORS      30    /* scenarios at a time, at most */
#define STUCK_AFTER 15    /* seconds without an operation begun */
#define LAST_ONES   50000 /* operations that scenarios under way may need to come to their end */
#define SHORT_RUNS  8
#define SHORT_COUNT 300

/* What the allocator keeps of what is free, and counts as allocated. */
#define CACHES ((size_t)512 * 1024)

struct soak soak;

/* ---- the end, when something is wrong ---- */

static void list_operations(const struct ring__engine *engine)
{
    for (unsigned i = 0; i <= engine->bucket_mask + 1; i++)
        for (const struct ring_op *op = engine->buckets[i]; op != NULL; op = op->same)
            fprintf(stderr, "  operation %p: %s on %d, state %x\n", (const void *)op,
                    ring__rows[op->row].name, op->fd, op->state);
}

static void state(void)
{
    struct weft_stats stats = {.size = sizeof stats};

    fprintf(stderr, "seed %llu: after %llu operations\n", (unsigned long long)soak.seed,
            (unsigned long long)soak.operations);
    if (weft_stats(&stats) == 0)
        fprintf(stderr, "in flight %llu, fibers %llu, promises %llu, timers %llu\n",
                (unsigned long long)stats.in_flight, (unsigned long long)stats.fibers,
                (unsigned long long)stats.promises, (unsigned long long)stats.timers);
    list_channels();
    fiber_dump();
    if (weft__rt != NULL && weft__rt->engine->class->submit != NULL)
        list_operations((const struct ring__engine *)(const void *)weft__rt->engine);
}

void fail(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fprintf(stderr, "soak_io: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    state();
    _exit(1);
}

void count_operation(void)
{
    soak.operations++;
    if (soak.operations > soak.count + LAST_ONES)
        fail("scenarios go on and on");
}

/* ---- the watchdog ---- */

static struct weft_inbox *volatile inbox;
static struct weft_task dump_task;
static volatile uint64_t last_seen;
static volatile sig_atomic_t quiet_ticks;

static void dump_stuck(struct weft_task *task)
{
    (void)task;
    fail("no operation was begun for %d seconds", STUCK_AFTER);
}

static void tick(int signal)
{
    static const char words[] = "soak_io: the loop itself is stuck\n";

    (void)signal;
    if (last_seen != soak.operations) {
        last_seen = soak.operations;
        quiet_ticks = 0;
        return;
    }
    quiet_ticks = quiet_ticks + 1;
    if (quiet_ticks == STUCK_AFTER && inbox != NULL) {
        dump_task.run = dump_stuck;
        weft_post(inbox, &dump_task);
    } else if (quiet_ticks > STUCK_AFTER + 5) {
        if (write(2, words, sizeof words - 1) < 0)
            quiet_ticks = 0;
        abort();
    }
}

static void watch(void)
{
    const struct itimerval second = {{1, 0}, {1, 0}};
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_ONSTACK | SA_RESTART};
    static char stack[64 * 1024];
    const stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};

    sigaltstack(&alternate, NULL);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &second, NULL);
}

/* ---- signals ---- */

static pthread_t runner;
static atomic_bool calm;

static struct weft_task ping;
static volatile sig_atomic_t pinged;

static void answer(struct weft_task *task)
{
    (void)task;
    pinged = 0;
}

static void post(int signal)
{
    (void)signal;
    if (inbox == NULL || pinged)
        return;
    ping.run = answer;
    pinged = weft_post(inbox, &ping) == 0;
}

static void *send_signals(void *unused)
{
    struct random r = {soak.seed};

    (void)unused;
    while (!atomic_load(&calm)) {
        const struct timespec pause = {.tv_nsec = below(&r, 3000000)};

        pthread_kill(runner, SIGUSR1);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

/* ---- a run ---- */

static int64_t act(void *arg)
{
    struct random r = {(uint64_t)(uintptr_t)arg};

    while (!is_over() && fiber_check() == 0)
        scenario(&r);
    return 0;
}

static int run(void *abrupt)
{
    struct weft_stats before = {.size = sizeof before}, after = before;
    struct random r = {soak.seed * 31 + soak.operations};
    struct promise *actors[ACTORS];
    size_t count = 1 + below(&r, ACTORS);
    struct weft_inbox *held;

    inbox = weft_inbox_ref();
    weft_stats(&before);
    for (size_t i = 0; i < count; i++)
        actors[i] = fiber_spawn(act, (void *)(uintptr_t)random_next(&r));
    if (abrupt != NULL) {
        while (!is_over())
            fiber_nop(WEFT_FOREVER);
        for (size_t i = 0; i < count; i++)
            promise_unref(actors[i]);
    } else {
        fiber_await(promise_join(actors, count), NULL, WEFT_FOREVER);
        do { /* what closed streams still have in the kernel */
            fiber_nop(WEFT_FOREVER);
            weft_stats(&after);
        } while (after.in_flight > 0);
        CHECK(after.promises == before.promises && after.fibers == before.fibers &&
                  after.timers == before.timers,
              "left: %lld promises, %lld fibers, %lld timers",
              (long long)(after.promises - before.promises),
              (long long)(after.fibers - before.fibers), (long long)(after.timers - before.timers));
    }
    held = inbox;
    inbox = NULL; /* before a signal handler can find it gone */
    weft_inbox_unref(held);
    return 0;
}

static void run_once(uint64_t count, const char *engine, bool abrupt)
{
    struct weft_options options = WEFT_OPTIONS_INIT;
    struct random r = {soak.seed + soak.operations};
    int rc;

    options.engine = engine;
    switch (below(&r, 4)) { /* rings for which it is harder */
    case 0:
        options.ring_flags = WEFT_RING_PLAIN;
        break;
    case 1:
        options.ring_flags = WEFT_RING_COOP;
        options.sq_entries = 4;
        break;
    case 2:
        options.sq_entries = 4;
        options.cq_entries = 8;
        break;
    default:
        break;
    }
    soak.count = soak.operations + count;
    rc = weft_run(run, abrupt ? &options : NULL, &options);
    CHECK(rc == 0, "weft_run: %d", rc);
}

static int open_descriptors(void)
{
    unsigned jobs;
    int count = 0;
    DIR *directory;

    while (weft__offload_threads(&jobs), jobs > 0)
        sched_yield();
    directory = opendir("/proc/self/fd");
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

static void list_descriptors(void)
{
    for (int fd = 0; fd < 200; fd++) {
        char path[64], target[256];
        ssize_t n;

        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        n = readlink(path, target, sizeof target - 1);
        if (n > 0)
            fprintf(stderr, "  %d: %.*s\n", fd, (int)n, target);
    }
}

int main(int argc, char **argv)
{
    const char *engine = argc > 3 ? argv[3] : NULL;
    const struct sigaction posting = {.sa_handler = post, .sa_flags = SA_ONSTACK | SA_RESTART};
    struct mallinfo2 memory;
    uint64_t count;
    pthread_t thread;
    int descriptors;

    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: soak_io SEED COUNT [ENGINE]\n");
        return 2;
    }
    soak.seed = strtoull(argv[1], NULL, 0);
    count = strtoull(argv[2], NULL, 0);
    snprintf(soak.directory, sizeof soak.directory, "/tmp/weft-soak-XXXXXX");
    CHECK(mkdtemp(soak.directory) != NULL, "mkdtemp: %s", strerror(errno));
    printf("soak_io %llu %llu %s\n", (unsigned long long)soak.seed, (unsigned long long)count,
           engine != NULL ? engine : "");
    fflush(stdout);

    signal(SIGPIPE, SIG_IGN); /* write(2) to a pipe or a socket that nobody reads */
    watch();
    runner = pthread_self();
    sigaction(SIGUSR1, &posting, NULL);
    CHECK(pthread_create(&thread, NULL, send_signals, NULL) == 0, "no thread");
    run_once(200, engine, false); /* what is made once, is made */
    descriptors = open_descriptors();
    memory = mallinfo2();

    run_once(count, engine, false);
    for (int i = 0; i < SHORT_RUNS; i++)
        run_once(SHORT_COUNT, engine, true);

    if (open_descriptors() != descriptors) {
        list_descriptors();
        fail("%d descriptors, at first %d", open_descriptors(), descriptors);
    }
    CHECK(mallinfo2().uordblks <= memory.uordblks + CACHES, "%zu bytes allocated, at first %zu",
          mallinfo2().uordblks, memory.uordblks);
    atomic_store(&calm, true);
    pthread_join(thread, NULL);
    rmdir(soak.directory);
    printf("%llu operations in %llu scenarios, %llu with a fault set: %llu done, %llu timed out, "
           "%llu cancelled, %llu otherwise\n",
           (unsigned long long)soak.operations, (unsigned long long)soak.scenarios,
           (unsigned long long)soak.disturbed, (unsigned long long)soak.ended[0],
           (unsigned long long)soak.ended[1], (unsigned long long)soak.ended[2],
           (unsigned long long)soak.ended[3]);
    return 0;
}
