/* weft/runtime.h: the runtime: one run queue and one engine on one thread.
 *
 * weft_run() makes a runtime on the calling thread, runs until its main function has ended, and
 * takes everything down again. Inside, "the runtime's thread" is that thread; "base stack" is its
 * ordinary stack, where callbacks and completions run; fibers have stacks of their own.
 */
#ifndef WEFT_RUNTIME_H
#define WEFT_RUNTIME_H

#include <weft/base.h>

WEFT_BEGIN_DECLS

struct weft_runtime;

/* How a runtime is set up. Zero-initialise, set `size`, then what you need:
 *     struct weft_options o = WEFT_OPTIONS_INIT;
 * A field of 0 or NULL means the default. All fields are public. */
struct weft_options {
    size_t size;            /* sizeof(struct weft_options), for later growth */
    const char *engine;     /* see weft_engine_name; NULL: $WEFT_ENGINE, else "auto" */
    unsigned sq_entries;    /* submission queue entries, a power of two; default 256 */
    unsigned cq_entries;    /* completion queue entries; default 4096 */
    unsigned ring_flags;    /* WEFT_RING_* bits: leave out what the kernel offers (for tests) */
    size_t stack_size;      /* bytes of a fiber's stack; default 64 KiB (doubled under ASan) */
    size_t stack_watermark; /* bytes of free fiber stacks kept warm; default 64 MiB */
    void (*report)(void *ctx, const char *line); /* where diagnostics go; default stderr */
    void *report_ctx;
    unsigned registered_files; /* how many may be known beforehand: ring_register_fd; default 0 */
    unsigned reserved0;
    uint64_t reserved[5];
};
#define WEFT_OPTIONS_INIT                   \
    {                                       \
        .size = sizeof(struct weft_options) \
    }

#define WEFT_RING_PLAIN 1u /* no SINGLE_ISSUER, DEFER_TASKRUN or other set-up flag */
#define WEFT_RING_COOP  2u /* COOP_TASKRUN in place of DEFER_TASKRUN */

typedef int weft_main_fn(void *arg);

/* Runs `main(arg)` on a new runtime, on the calling thread, until it has ended.
 *
 * main runs as the first fiber. When it returns, the fibers still alive are cancelled: what they
 * wait for returns -ECANCELED, and so does each later wait; they are waited for, and operations in
 * flight are drained. In a lean build (no fibers) main runs as a callback on the base stack, and the
 * runtime goes on until nothing is queued, in flight, or set to fire.
 *
 * Returns what main returned; or, when the runtime could not start, -ENOMEM, -ENOSYS, -EPERM,
 * -EMFILE, -EINVAL (bad options), with a sentence to `report` that names the cause and the way out;
 * -EBUSY inside another weft_run of this thread; -EDEADLK when nothing is runnable, in flight or set
 * to fire, no inbox is held by others, and main still waits: every parked fiber is then reported. When
 * the engine itself fails for good (somebody has closed its descriptor, say: -EBADF), that error, with
 * a sentence to `report`. Then no fiber and no callback runs again, for nobody knows any more which of
 * their memory the kernel still uses: nothing of theirs is released, and what was handed to a fiber
 * that has not run since (a channel's item, a promise's value, an accepted descriptor) is lost with
 * it. Let the process end.
 *
 * Any thread without a runtime. Since 0.1. */
WEFT_API int weft_run(weft_main_fn *main, void *arg, const struct weft_options *options);

/* The calling thread's runtime, or NULL. Any thread; doesn't suspend. Since 0.1. */
WEFT_API struct weft_runtime *weft_current(void);

/* Ends the runtime in order, as if main had returned: every fiber, main included, is cancelled and
 * waited for. weft_run then returns what main returns. Runtime's thread, callbacks too; doesn't
 * suspend. Returns 0, or -EINVAL without a runtime. Since 0.1. */
WEFT_API int weft_stop(void);

/* True from weft_stop() or main's end on; false without a runtime. Runtime's thread, callbacks too;
 * doesn't suspend. Since 0.1. */
WEFT_API bool weft_stopping(void);

/* The engine in use; NULL without a runtime. Engines do the I/O, all with the same results:
 *   "uring"  io_uring
 *   "epoll"  epoll(7) and plain system calls, for where io_uring is forbidden or absent
 *   "null"   no I/O (-ENOSYS): timers, promises, fibers and inboxes alone
 * Which it is to be is said by weft_options.engine, or else by the environment variable WEFT_ENGINE:
 * one name, or several, in order, separated by commas ("uring,epoll"): the first that works serves.
 * "auto", or nothing, is the same as "uring,epoll", but says so in one line to `report`, with the
 * cause and the way out, if it is not the first (on stderr once a process). A lack of descriptors or
 * memory is no reason to go on to the next. Any thread; doesn't suspend. Since 0.1. */
WEFT_API const char *weft_engine_name(void);

/* Why a better engine is not in use: a sentence that names the cause and the way out, valid as long
 * as the runtime; NULL: it is the first choice, or there is no runtime. Any thread; doesn't suspend.
 * Since 0.1. */
WEFT_API const char *weft_engine_reason(void);

/* ---- Regions that must not suspend ------------------------------------------------------------ */

/* A stretch of code that others must not see half done, an update of shared state for instance:
 *
 *     WEFT_NO_SUSPEND {
 *         from->balance -= sum;
 *         to->balance += sum;
 *     }
 *
 * A call in it that would suspend (FIBER_SUSPENDS), however deep, gives -EDEADLK instead and tells
 * the runtime's `report` both places; a debug build of weft aborts. Code that doesn't suspend needs
 * nothing else for being alone: this keeps it so when somebody changes it. May be left by break,
 * return and goto, and nested. In fibers and callbacks; costs a few ns. Since 0.1. */
#define WEFT_NO_SUSPEND   WEFT__NO_SUSPEND(WEFT__JOIN(weft_region_, __LINE__))
#define WEFT__JOIN(a, b)  WEFT__JOIN2(a, b)
#define WEFT__JOIN2(a, b) a##b
#define WEFT__NO_SUSPEND(region)                                             \
    for (struct weft_region region                                           \
         __attribute__((cleanup(weft_region_leave))) = {.where = WEFT_HERE}; \
         weft_region_once(&region);)

/* What WEFT_NO_SUSPEND is made of; use that. All fields are private. */
struct weft_region {
    const char *where;
    struct weft_runtime *runtime; /* NULL: not in force */
    struct weft_region *outer;
    void *pinned;
    bool left;
};

/* The first time, true: the region, zero-initialised but for `where`, is in force from here on; the
 * second time it is left, and false. Without a runtime it is never in force. Runtime's thread,
 * callbacks too; doesn't suspend. Since 0.1. */
WEFT_API bool weft_region_once(struct weft_region *region);

/* Ends it, as a variable's cleanup: the region around it is in force again. A second time, or on another
 * runtime than it was begun on: nothing. Runtime's thread, callbacks too; doesn't suspend. Since 0.1. */
WEFT_API void weft_region_leave(struct weft_region *region);

/* ---- Tasks -------------------------------------------------------------------------------- */

/* A unit of work: embed it, and find your object from its address. `run` is public and set by
 * weft_task_init; the rest is private. A task is queued at most once at a time. */
struct weft_task {
    void (*run)(struct weft_task *task);
    struct weft_task *next;
};

/* Prepares a task and reserves its place in the run queue, so that queueing never allocates or
 * fails. Returns 0, -ENOMEM, or -EINVAL: NULL, or no runtime. Runtime's thread, callbacks too;
 * doesn't suspend. Since 0.1. */
WEFT_API int weft_task_init(struct weft_task *task, void (*run)(struct weft_task *task));

/* Queues a task to run on the base stack, after all that is queued now. It must not be queued
 * already: when more is queued than was reserved, the process is aborted with a report. Does nothing
 * without a runtime. Runtime's thread, callbacks too; doesn't suspend. Since 0.1. */
WEFT_API void weft_task_queue(struct weft_task *task);

/* Gives the reserved place back. The task must not be queued. Does nothing without a runtime. Runtime's
 * thread, callbacks too; doesn't suspend. Since 0.1. */
WEFT_API void weft_task_finish(struct weft_task *task);

/* ---- Timers ------------------------------------------------------------------------------- */

/* Calls `fire` on the base stack once the time has come. All fields but `fire` are private. */
struct weft_timer {
    void (*fire)(struct weft_timer *timer);
    weft_time at;
    uint64_t order;
    struct weft_timer *child, *next, *prev;
};

/* init: no allocation, cannot fail. start: does nothing if the timer is running already, or without a
 * runtime; a time past fires at the next poll. stop: does nothing unless running. A timer must be
 * stopped before its memory goes; those still running when the runtime ends never fire. running: true
 * from its start until it is stopped or fires. O(1) to start; O(log n) amortised to fire or stop.
 * Runtime's thread, callbacks too; none suspends. Since 0.1. */
WEFT_API void weft_timer_init(struct weft_timer *timer, void (*fire)(struct weft_timer *timer));
WEFT_API void weft_timer_start(struct weft_timer *timer, weft_time at);
WEFT_API void weft_timer_stop(struct weft_timer *timer);
WEFT_API bool weft_timer_running(const struct weft_timer *timer);

/* ---- Work from other threads -------------------------------------------------------------- */

/* A runtime's inbox: the one thing of it that other threads may touch. Reference counted; it may
 * outlive the runtime. While somebody outside holds a reference, a runtime with nothing else to do
 * waits for posts instead of reporting a deadlock. */
struct weft_inbox;

/* A new reference to the inbox of the calling thread's runtime, the caller's to give back; NULL without a
 * runtime. Runtime's thread, callbacks too; doesn't suspend. Since 0.1. */
WEFT_API struct weft_inbox *weft_inbox_ref(void);

/* Gives a reference back. NULL is fine. Any thread; doesn't suspend. Since 0.1. */
WEFT_API void weft_inbox_unref(struct weft_inbox *inbox);

/* Hands a task over: `run` is called on the runtime's base stack. Needs no weft_task_init: set
 * `run`, and leave the task alone until it runs. Tasks of one thread run in order.
 * Returns 0: it will run, even if the runtime is about to end; or -ESHUTDOWN: the runtime has ended,
 * it will not run. Any thread, signal handlers too; lock-free. Since 0.1. */
WEFT_API int weft_post(struct weft_inbox *inbox, struct weft_task *task);

/* ---- Local values ------------------------------------------------------------------------- */

/* A key; its address is its identity. A fiber sees its own values, inherited from whoever spawned
 * it; promise callbacks see those of the place that attached them. What runs on another runtime sees
 * those of its caller whose keys say that they may be shared between threads. */
struct weft_key {
    const char *name; /* for reports; may be NULL */
    unsigned flags;   /* WEFT_KEY_SHARED, or 0 */
};
#define WEFT_KEY_SHARED 1u

/* The value bound to `key` here, or NULL. Runtime's thread, callbacks too; doesn't suspend. Since 0.1. */
WEFT_API void *weft_get(const struct weft_key *key);

/* Binds `key` to `value` (NULL: unbinds) from here on: in a fiber for the rest of the fiber, in a
 * callback until it returns to the loop, or to the promise whose settlement called it. A callback
 * called at once, because its promise is settled already, is a part of its caller: it sees the
 * caller's values, and what it binds stays bound there. promise_with_value binds for a call.
 * Returns 0; -ENOMEM; -EINVAL for NULL or without a runtime. Runtime's thread, callbacks too; doesn't
 * suspend. Since 0.1. */
WEFT_API int weft_set(const struct weft_key *key, void *value);

/* ---- Counters ----------------------------------------------------------------------------- */

/* Begin with WEFT_STATS_INIT. All fields are public, and to be read but for `size`. */
struct weft_stats {
    size_t size;           /* set by the caller: sizeof(struct weft_stats) */
    uint64_t passes;       /* passes begun */
    uint64_t enters;       /* times the engine entered the kernel */
    uint64_t submitted;    /* operations handed to the kernel */
    uint64_t completed;    /* completions reaped */
    uint64_t in_flight;    /* operations not yet completed */
    uint64_t fibers;       /* fibers alive */
    uint64_t stacks;       /* stacks mapped, in use or pooled */
    uint64_t promises;     /* blocks of promises in use; one that is its own handle has none */
    uint64_t switches;     /* fibers resumed and tasks run, passes under way not counted */
    uint64_t timers;       /* timers running */
    uint64_t overflows;    /* times the kernel had more completions than the queue had room for */
    uint64_t pool_threads; /* threads of the pool for calls that block, which is the process's */
    uint64_t pool_running; /* calls under way there */
    uint64_t pool_queued;  /* calls that wait for a thread */
    uint64_t reserved[1];
};
/* clang-format off */
#define WEFT_STATS_INIT {.size = sizeof(struct weft_stats)}
/* clang-format on */

/* Fills `stats`, up to its `size`. Returns 0, or -EINVAL: NULL, a `size` that isn't known, or no runtime.
 * Runtime's thread, callbacks too; doesn't suspend. Since 0.1. */
WEFT_API int weft_stats(struct weft_stats *stats);

/* The same from outside: how things stood when the runtime last slept or was asked, or when it
 * ended. Asks it to say so anew, and doesn't wait for that: a second call, a little later, tells of a
 * busy runtime too. Returns 0, -EINVAL, or -EAGAIN when nothing has been told yet. Any thread that
 * holds a reference to the inbox. Since 0.1. */
WEFT_API int weft_inbox_stats(struct weft_inbox *inbox, struct weft_stats *stats);

WEFT_END_DECLS

#endif
