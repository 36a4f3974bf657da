/* runtime.c: the scheduler's loop, and a runtime's life.
 *
 * A lap is: run the pass; then, between passes, poll the engine once, run what other threads posted,
 * fire the timers that are due, and run what asked for "after the poll" (promise_pause). Completions
 * come before timers, so that an operation that did something beats its deadline. The engine is
 * asked to wait only if nothing is queued. What comes between passes is begun by the loop, or by the
 * fiber that finds the pass over.
 *
 * The end: main is over -> layers stop in order, each waited for (fibers are cancelled and unwind;
 * then promises fall silent) -> operations in flight are cancelled and reaped -> the inbox closes ->
 * the engine goes -> layers free what they have.
 */
#include "cluster.h"
#include "inbox.h"
#include "offload.h"
#include "runtime_internal.h"
#include "timer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(void *) != 8 ||
                   (sizeof(struct weft_options) == 112 && sizeof(struct weft_stats) == 128 &&
                    sizeof(struct weft_task) == 16 && sizeof(struct weft_region) == 40),
               "part of the ABI");

#define TASKS_MIN     64
#define LINGER_REPORT WEFT_SEC(5) /* how long fibers may ignore their cancellation in silence */

_Thread_local struct weft_runtime *weft__rt;
unsigned weft__forks;

/* ---- reports ---- */

static void report_line(const struct weft_options *options, const char *format, va_list args)
{
    char line[512];

    vsnprintf(line, sizeof line, format, args);
    if (options != NULL && options->report != NULL)
        options->report(options->report_ctx, line);
    else
        fprintf(stderr, "weft: %s\n", line);
}

void weft__report(const struct weft_runtime *rt, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    report_line(&rt->options, format, args);
    va_end(args);
}

void weft__report_to(const struct weft_options *options, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    report_line(options, format, args);
    va_end(args);
}

/* ---- run queue ---- */

int weft__reserve_slow(struct weft_runtime *rt, size_t count)
{
    size_t capacity = rt->capacity, done = (size_t)(rt->head - rt->pass_array);
    size_t left = (size_t)(rt->end - rt->head), next = (size_t)(rt->tail - rt->next_array);
    uintptr_t *pass, *queue;

    while (capacity - rt->reserved < count) {
        if (capacity > SIZE_MAX / 4 / sizeof *pass)
            return -ENOMEM;
        capacity = capacity == 0 ? TASKS_MIN : capacity * 2;
    }
    pass = calloc(capacity + WEFT__LOOKAHEAD, sizeof *pass);
    queue = calloc(capacity + WEFT__LOOKAHEAD, sizeof *queue);
    if (pass == NULL || queue == NULL) {
        free(pass);
        free(queue);
        return -ENOMEM;
    }
    if (rt->capacity > 0) {
        memcpy(pass + done, rt->head, left * sizeof *pass);
        memcpy(queue, rt->next_array, next * sizeof *queue);
    }
    free(rt->pass_array);
    free(rt->next_array);
    rt->pass_array = pass;
    rt->head = pass + done;
    rt->end = rt->head + left;
    rt->next_array = queue;
    rt->tail = queue + next;
    rt->capacity = capacity;
    rt->reserved += count;
    return 0;
}

static inline bool queued(const struct weft_runtime *rt)
{
    return rt->tail != rt->next_array;
}

static inline void begin_pass(struct weft_runtime *rt)
{
    uintptr_t *array = rt->pass_array;

    rt->switches += (uint64_t)(rt->end - array); /* of the pass that is over */
    rt->end = rt->tail;
    rt->head = rt->pass_array = rt->next_array;
    rt->tail = rt->next_array = array;
    rt->passes++;
}

bool weft__begin_queued_quietly(struct weft_runtime *rt)
{
    if (rt->timers != NULL || rt->after_poll != NULL || rt->stopping ||
        weft__inbox_pending(rt->inbox) || !rt->engine->class->quiet(rt->engine))
        return false;
    begin_pass(rt);
    return true;
}

static void run_after_poll(struct weft_runtime *rt)
{
    struct weft_task *task = rt->after_poll;

    rt->after_poll = NULL;
    rt->after_poll_tail = &rt->after_poll;
    while (task != NULL) {
        struct weft_task *next = task->next;

        task->run(task);
        weft__forget_locals(rt);
        task = next;
    }
}

static void run_pass(struct weft_runtime *rt)
{
    while (rt->head != rt->end) {
        struct weft_task *task = (struct weft_task *)(*rt->head++ & ~WEFT__TAGS);

        task->run(task);
        weft__forget_locals(rt);
    }
}

/* ---- layers ---- */

void weft__layer_register(struct weft_runtime *rt, enum weft__layer layer, void *state,
                          const struct weft__layer_hooks *hooks)
{
    rt->layer[layer] = state;
    rt->hooks[layer] = hooks;
}

static size_t alive(struct weft_runtime *rt, int layer)
{
    const struct weft__layer_hooks *hooks = rt->hooks[layer];

    return hooks == NULL || hooks->alive == NULL ? 0 : hooks->alive(rt);
}

/* ---- the loop ---- */

static __attribute__((noinline)) void tidy(struct weft_runtime *rt)
{
    rt->untidy = false;
    for (int i = 0; i < WEFT__LAYER_COUNT; i++)
        if (rt->hooks[i] != NULL && rt->hooks[i]->idle != NULL)
            rt->hooks[i]->idle(rt);
}

/* Waits in the engine where others may post meanwhile, or nothing can wake it. True: the runtime rested,
 * and its cluster has come to its end. */
static __attribute__((noinline)) bool sleep_with_others(struct weft_runtime *rt, weft_time until,
                                                        int *rc)
{
    bool rests = weft__cluster_is_resting(rt);
    bool lonely = rt->timers == NULL && rt->engine->in_flight == 0 && !rt->stopping && !rests;

    if (weft__inbox_held(rt->inbox) || rt->member != NULL)
        weft__inbox_tell(rt->inbox);
    if (weft__inbox_sleep(rt->inbox, lonely)) {
        *rc = rt->engine->class->turn(rt->engine, until);
        weft__inbox_awake(rt->inbox);
    } else {
        *rc = rt->engine->class->turn(rt->engine, WEFT_NOWAIT);
    }
    return rests && weft__cluster_roused(rt->member);
}

/* Waits in the engine, but not beyond `limit`. Apart, so that a pass with work to do doesn't pay for it. */
static __attribute__((noinline)) bool sleep_in_engine(struct weft_runtime *rt, weft_time limit,
                                                      int *rc)
{
    struct weft__engine *engine = rt->engine;
    weft_time until = rt->timers == NULL || rt->timers->at > limit ? limit : rt->timers->at;

    if (weft__unlikely(rt->untidy))
        tidy(rt);
    if (weft__unlikely((rt->timers == NULL && engine->in_flight == 0) ||
                       !weft__inbox_sleep_alone(rt->inbox)))
        return sleep_with_others(rt, until, rc);
    *rc = engine->class->turn(engine, until);
    weft__inbox_awake(rt->inbox);
    return false;
}

static inline void after_turn(struct weft_runtime *rt)
{
    if (weft__unlikely(weft__inbox_pending(rt->inbox)))
        weft__inbox_run(rt->inbox);
    if (rt->timers != NULL)
        weft__timers_fire(rt, weft_now());
    if (rt->after_poll != NULL)
        run_after_poll(rt);
}

/* The poll between two passes; waits if nothing is queued, but not beyond `limit`. If the runtime
 * rested, and its cluster has come to its end, what others have posted because of that waits. */
static inline int poll_engine(struct weft_runtime *rt, weft_time limit)
{
    int rc = 0;

    if (queued(rt) || rt->after_poll != NULL || limit == WEFT_NOWAIT) {
        if (!rt->engine->class->quiet(rt->engine))
            rc = rt->engine->class->turn(rt->engine, WEFT_NOWAIT);
    } else if (weft__unlikely(sleep_in_engine(rt, limit, &rc))) {
        rt->at_end = true;
        return rc;
    }
    after_turn(rt);
    return rc;
}

/* Nothing is queued, in flight or set to fire, and nobody else can post but those of the same cluster:
 * unless one of them does, nothing will ever happen. */
static inline bool nothing_left(const struct weft_runtime *rt)
{
    return rt->engine->in_flight == 0 && !queued(rt) && rt->timers == NULL &&
           rt->after_poll == NULL && !weft__inbox_pending(rt->inbox) &&
           !weft__inbox_held(rt->inbox);
}

static void dump(struct weft_runtime *rt)
{
    for (int i = 0; i < WEFT__LAYER_COUNT; i++)
        if (rt->hooks[i] != NULL && rt->hooks[i]->dump != NULL)
            rt->hooks[i]->dump(rt);
}

static void begin_stop(struct weft_runtime *rt)
{
    if (rt->stopping)
        return;
    rt->stopping = true;
    if (rt->hooks[0] != NULL && rt->hooks[0]->stop != NULL)
        rt->hooks[0]->stop(rt);
}

void weft__main_ended(struct weft_runtime *rt, int result)
{
    if (rt->main_ended)
        return;
    rt->main_ended = true;
    rt->main_result = result;
    begin_stop(rt);
}

void weft__run_until_idle(struct weft_runtime *rt)
{
    rt->running_until_idle = true;
}

int weft_stop(void)
{
    if (weft__rt == NULL)
        return -EINVAL;
    begin_stop(weft__rt);
    return 0;
}

bool weft_stopping(void)
{
    return weft__rt != NULL && weft__rt->stopping;
}

static __attribute__((noinline)) bool next_pass_closely(struct weft_runtime *rt)
{
    if (rt->stopping || rt->at_end || nothing_left(rt))
        return false;
    rt->failed = poll_engine(rt, WEFT_FOREVER);
    if (weft__unlikely(rt->failed < 0))
        return false;
    begin_pass(rt);
    return true;
}

/* Nearly always there is nothing to do but to wait in the engine. */
bool weft__next_pass(struct weft_runtime *rt)
{
    struct weft__engine *engine = rt->engine;

    if (weft__unlikely(rt->rare != 0 || queued(rt) || rt->timers != NULL ||
                       rt->after_poll != NULL || engine->in_flight == 0 ||
                       !weft__inbox_sleep_alone(rt->inbox)))
        return next_pass_closely(rt);
    rt->failed = engine->class->turn(engine, WEFT_FOREVER);
    weft__inbox_awake(rt->inbox);
    if (weft__unlikely(rt->failed < 0))
        return false;
    after_turn(rt);
    begin_pass(rt);
    return true;
}

/* Until main has ended and no fiber is left. 0 or the error that ends the runtime. */
static int run_main(struct weft_runtime *rt)
{
    weft_time lingering = WEFT_FOREVER;
    int deadlock = 0;

    for (;;) {
        do
            run_pass(rt);
        while (weft__likely(rt->failed == 0) && weft__next_pass(rt));
        if (rt->stopping && alive(rt, 0) == 0) {
            if (!rt->main_ended) /* main is a promise: it is given up, as if cancelled */
                weft__main_ended(rt, -ECANCELED);
            return deadlock;
        }
        if (nothing_left(rt) && !rt->stopping && weft__cluster_rests(rt))
            rt->at_end = true;
        if (rt->at_end && !rt->stopping) {
            if (rt->running_until_idle) {
                weft__main_ended(rt, rt->main_result);
                continue;
            }
            weft__report(rt,
                         "deadlock: nothing is runnable, in flight or set to fire%s, "
                         "and main still waits",
                         rt->member != NULL ? " in any runtime of the cluster" : "");
            dump(rt);
            deadlock = -EDEADLK;
            begin_stop(rt);
            continue;
        }
        if (rt->stopping) {
            weft_time now = weft_now();

            if (lingering == WEFT_FOREVER) {
                lingering = now + LINGER_REPORT;
            } else if (now > lingering) {
                weft__report(rt, "still stopping: these ignore their cancellation");
                dump(rt);
                lingering = WEFT_FOREVER - 1;
            }
        }
        if (rt->failed == 0)
            rt->failed = poll_engine(rt, lingering < WEFT_FOREVER - 1 ? lingering : WEFT_FOREVER);
        if (rt->failed < 0) {
            weft__report(rt, "the %s engine failed: %s", rt->engine->class->name,
                         strerror(-rt->failed));
            return rt->failed;
        }
        begin_pass(rt);
    }
}

/* Sees guests off. True: all have left. */
static bool evict_guests(struct weft_runtime *rt)
{
    struct weft__guest *guest;

    while ((guest = rt->guests) != NULL) {
        weft__guest_remove(guest);
        weft__guest_link(&rt->leaving, guest);
        guest->evict(guest);
    }
    return rt->leaving == NULL;
}

/* After the engine has failed: nobody wakes this thread any more. */
static void drain_without_engine(struct weft_runtime *rt)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    while (!evict_guests(rt) || !weft__inbox_close(rt->inbox))
        if (!weft__inbox_run(rt->inbox))
            nanosleep(&pause, NULL);
}

/* Every operation's last completion comes before anything is freed, and whatever another thread still
 * has of this runtime comes back. */
static int drain(struct weft_runtime *rt)
{
    int rc = 0;

    for (int i = 1; i < WEFT__LAYER_COUNT; i++)
        if (rt->hooks[i] != NULL && rt->hooks[i]->stop != NULL)
            rt->hooks[i]->stop(rt);
    /* No timer fires any more, but an operation's last completion may still stop its own. */
    rt->after_poll = NULL;
    rt->after_poll_tail = &rt->after_poll;
    while (rc >= 0) {
        if (rt->engine->in_flight > 0) {
            rt->engine->class->cancel_all(rt->engine);
            while (rt->engine->in_flight > 0 && rc >= 0) {
                if (weft__inbox_sleep(rt->inbox, false))
                    rc = rt->engine->class->turn(rt->engine, WEFT_FOREVER);
                weft__inbox_awake(rt->inbox);
                weft__inbox_run(rt->inbox);
            }
        }
        weft__inbox_run(rt->inbox);
        if (rt->engine->in_flight == 0 && evict_guests(rt) && weft__inbox_close(rt->inbox))
            return 0;
    }
    drain_without_engine(rt);
    return rc;
}

/* ---- starting ---- */

static int set_options(struct weft_runtime *rt, const struct weft_options *options)
{
    const struct weft_options none = WEFT_OPTIONS_INIT;

    if (options == NULL)
        options = &none;
    if (options->size < offsetof(struct weft_options, engine) ||
        options->size > sizeof(struct weft_options)) {
        weft__report_to(NULL,
                        "weft_options.size is %zu, this library knows up to %zu: set it to "
                        "sizeof(struct weft_options), with the headers of this version",
                        options->size, sizeof(struct weft_options));
        return -EINVAL;
    }
    memcpy(&rt->options, options, options->size);
    rt->options.size = sizeof rt->options;
    if (rt->options.stack_watermark == 0)
        rt->options.stack_watermark = (size_t)64 << 20;
    return 0;
}

#define ENGINES_MAX 8

/* The engines that may serve, in order, by option or environment; else all but the last, which is for
 * those who ask for it. Returns how many, or -EINVAL for a name that is none. */
static int wanted_engines(struct weft_runtime *rt, const struct weft__engine_class **wanted,
                          bool *automatic)
{
    const char *names = rt->options.engine != NULL ? rt->options.engine : getenv("WEFT_ENGINE");
    int count = 0;

    *automatic = names == NULL || *names == '\0' || strcmp(names, "auto") == 0;
    if (*automatic) {
        while (weft__engines[count + 1] != NULL) {
            wanted[count] = weft__engines[count];
            count++;
        }
        return count;
    }
    while (count < ENGINES_MAX) {
        size_t size = strcspn(names, ",");
        int i = 0;

        while (weft__engines[i] != NULL && (strncmp(weft__engines[i]->name, names, size) != 0 ||
                                            weft__engines[i]->name[size] != '\0'))
            i++;
        if (weft__engines[i] == NULL) {
            weft__report(rt, "cannot start: there is no engine named \"%.*s\"", (int)size, names);
            return -EINVAL;
        }
        wanted[count++] = weft__engines[i];
        if (names[size] == '\0')
            break;
        names += size + 1;
    }
    return count;
}

/* Says that another engine has taken over; on stderr once a process. */
static void report_engine(const struct weft_runtime *rt, const char *why)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;

    if (rt->options.report != NULL || !atomic_flag_test_and_set(&said))
        weft__report(rt, "%s; the %s engine takes over (WEFT_ENGINE=%s chooses it in silence)", why,
                     rt->engine->class->name, rt->engine->class->name);
}

/* The first engine that works. Another one takes over when it is denied or absent; not when there is
 * too little of what every engine needs, memory or descriptors. */
static int create_engine(struct weft_runtime *rt)
{
    const struct weft__engine_class *wanted[ENGINES_MAX];
    char why[400], first[400] = "";
    bool automatic, next = true;
    int count = wanted_engines(rt, wanted, &automatic), rc = count;

    for (int i = 0; i < count && next; i++) {
        why[0] = '\0';
        rc = wanted[i]->create(&rt->engine, &rt->options, why, sizeof why);
        if (rc == 0)
            break;
        next = why[0] != '\0' && rc != -EMFILE && rc != -ENFILE;
        if (first[0] == '\0')
            snprintf(first, sizeof first, "%s", why[0] != '\0' ? why : strerror(-rc));
    }
    if (rc == 0 && first[0] != '\0') {
        rt->engine_reason = strdup(first);
        if (automatic)
            report_engine(rt, first);
    } else if (rc < 0 && first[0] != '\0') {
        weft__report(rt, "cannot start: %s%s", first,
                     next && !automatic ? ", or let another engine take over (WEFT_ENGINE=auto)"
                                        : "");
    }
    return rc;
}

static void free_runtime(struct weft_runtime *rt)
{
    for (int i = 0; i < WEFT__LAYER_COUNT; i++)
        if (rt->hooks[i] != NULL && rt->hooks[i]->finish != NULL)
            rt->hooks[i]->finish(rt);
    weft__storage_unref(rt->base.storage);
    if (rt->inbox != NULL)
        weft__inbox_release(rt->inbox);
    if (rt->engine != NULL)
        rt->engine->class->destroy(rt->engine);
    free(rt->engine_reason);
    free(rt->pass_array);
    free(rt->next_array);
    free(rt);
}

static int create_runtime(struct weft_runtime **out, const struct weft_options *options)
{
    static _Atomic uint64_t serial;
    struct weft_runtime *rt = NULL;
    int rc;

    rc = posix_memalign((void **)&rt, 64, sizeof *rt);
    if (rc != 0)
        return -rc;
    memset(rt, 0, sizeof *rt);
    rt->strand = rt->pinned = &rt->base;
    rt->after_poll_tail = &rt->after_poll;
    rt->firing = -1;
    rt->serial = atomic_fetch_add(&serial, 1) + 1;
    rt->thread = pthread_self();
    rt->member = weft__member;
    rc = set_options(rt, options);
    if (rc == 0)
        rc = weft__reserve(rt, 1); /* main's */
    if (rc == 0)
        rc = create_engine(rt);
    if (rc == 0 && (rt->inbox = weft__inbox_create(rt->engine)) == NULL)
        rc = -ENOMEM;
    if (rc == 0 && rt->member != NULL)
        rt->inbox->cluster = rt->member->cluster;
    if (rc < 0) {
        if (rc == -ENOMEM && rt->engine != NULL)
            weft__report(rt, "cannot start: out of memory");
        free_runtime(rt);
        return rc;
    }
    *out = rt;
    return 0;
}

/* A forked child shares nothing with its parent's runtime: here it has none. The ring is not
 * touched, not even closed; its descriptor goes with exec. */
static void after_fork_in_child(void)
{
    weft__rt = NULL;
    weft__member = NULL;
    weft__forks++;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

static int run_to_end(struct weft_runtime *rt)
{
    int rc, drained;

    rc = run_main(rt);
    weft__inbox_tell(rt->inbox);
    drained = drain(rt);
    if (rc == 0)
        rc = drained;
    if (rc == 0)
        rc = rt->main_result;
    /* the engine first: promises may still be referred to by operations until it is gone */
    rt->engine->class->destroy(rt->engine);
    rt->engine = NULL;
    /* What values own is ended as without a runtime: there is nobody to wake any more. */
    weft__rt = NULL;
    free_runtime(rt);
    return rc;
}

static int enter(struct weft_runtime **rt, const struct weft_options *options)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int rc;

    if (weft__rt != NULL) {
        weft__report(weft__rt,
                     "weft_run inside weft_run: this thread's runtime (engine %s) is "
                     "running already; spawn a fiber or bind a promise in it instead",
                     weft__rt->engine->class->name);
        return -EBUSY;
    }
    pthread_once(&once, watch_forks);
    rc = create_runtime(rt, options);
    if (rc == 0)
        weft__rt = *rt;
    return rc;
}

struct starter {
    struct weft_task task;
    void (*start)(struct weft_runtime *rt, void *arg);
    void *arg;
};

static void run_starter(struct weft_task *task)
{
    struct starter *starter = weft__container(task, struct starter, task);

    starter->start(weft__rt, starter->arg);
}

int weft__run(void (*start)(struct weft_runtime *rt, void *arg), void *arg,
              const struct weft_options *options)
{
    struct starter starter = {.task = {.run = run_starter}, .start = start, .arg = arg};
    struct weft_runtime *rt;
    int rc = enter(&rt, options);

    if (rc < 0)
        return rc;
    weft__queue(rt, &starter.task);
    begin_pass(rt);
    return run_to_end(rt);
}

static void run_main_callback(struct weft_task *task)
{
    struct weft_runtime *rt = weft__container(task, struct weft_runtime, main_task);

    rt->running_until_idle = true;
    rt->main_result = rt->main(rt->main_arg);
}

int weft_run(weft_main_fn *main, void *arg, const struct weft_options *options)
{
    struct weft_runtime *rt;
    int rc;

    if (main == NULL)
        return -EINVAL;
    rc = enter(&rt, options);
    if (rc < 0)
        return rc;
    rt->main = main;
    rt->main_arg = arg;
    if (weft__launch_main != NULL) {
        rc = weft__launch_main(rt);
    } else {
        rt->main_task.run = run_main_callback;
        weft__queue(rt, &rt->main_task);
    }
    if (rc < 0)
        weft__main_ended(rt, rc);
    begin_pass(rt);
    return run_to_end(rt);
}

/* ---- the public rest ---- */

struct weft_runtime *weft_current(void)
{
    return weft__rt;
}

const char *weft_engine_name(void)
{
    return weft__rt == NULL ? NULL : weft__rt->engine->class->name;
}

const char *weft_engine_reason(void)
{
    return weft__rt == NULL ? NULL : weft__rt->engine_reason;
}

void weft_region_leave(struct weft_region *region)
{
    struct weft_runtime *rt = region->runtime;

    region->left = true;
    region->runtime = NULL;
    if (rt == NULL || rt != weft__rt)
        return;
    rt->region = region->outer;
    rt->pinned = region->pinned;
}

bool weft_region_once(struct weft_region *region)
{
    struct weft_runtime *rt = weft__rt;

    if (region->left || region->runtime != NULL) {
        weft_region_leave(region);
        return false;
    }
    region->left = true;
    region->runtime = rt;
    if (rt != NULL) {
        region->outer = rt->region;
        region->pinned = rt->pinned;
        rt->region = region;
        rt->pinned = rt->strand;
    }
    return true;
}

int weft_task_init(struct weft_task *task, void (*run)(struct weft_task *task))
{
    if (weft__rt == NULL || task == NULL || run == NULL)
        return -EINVAL;
    task->run = run;
    task->next = NULL;
    return weft__reserve(weft__rt, 1);
}

void weft_task_queue(struct weft_task *task)
{
    struct weft_runtime *rt = weft__rt;

    if (rt == NULL || task == NULL)
        return;
    if ((size_t)(rt->tail - rt->next_array) >= rt->reserved) {
        weft__report(rt, "weft_task_queue: a task is queued twice, or without weft_task_init");
        abort();
    }
    weft__queue(rt, task);
}

void weft_task_finish(struct weft_task *task)
{
    (void)task;
    if (weft__rt != NULL)
        weft__release(weft__rt, 1);
}

int weft_stats(struct weft_stats *stats)
{
    struct weft_stats all = {.size = sizeof all};
    struct weft_runtime *rt = weft__rt;

    if (rt == NULL || stats == NULL || stats->size < sizeof stats->size || stats->size > sizeof all)
        return -EINVAL;
    all.size = stats->size;
    all.passes = rt->passes;
    all.switches = rt->switches;
    all.timers = rt->timers_started - rt->timers_stopped;
    all.in_flight = rt->engine->in_flight;
    rt->engine->class->stats(rt->engine, &all);
    weft__offload_stats(&all);
    for (int i = 0; i < WEFT__LAYER_COUNT; i++)
        if (rt->hooks[i] != NULL && rt->hooks[i]->stats != NULL)
            rt->hooks[i]->stats(rt, &all);
    memcpy(stats, &all, stats->size);
    return 0;
}
