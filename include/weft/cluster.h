/* weft/cluster.h: many cores: runtimes on threads of their own, and calls from one to another.
 *
 *     static int serve(struct weft_cluster *cluster, unsigned index, void *arg)
 *     {
 *         ...                         runs in every runtime, as the main function of weft_run does
 *     }
 *     rc = weft_cluster_run(serve, arg, NULL);
 *
 * What belongs to a runtime stays on its thread: fibers never migrate, and fibers, promises, scopes,
 * timers and operations are not to be touched from another thread. What runtimes have to say to each
 * other goes through their inboxes: a call on another runtime (below), an item in a channel that they
 * share (weft/shared_channel.h), work for whoever has time (weft/workers.h), or a task (weft_post).
 *
 * A cluster is to runtimes what a scope is to fibers: the first failure of a main function stops all,
 * and whoever joins sees it; nothing is left running.
 */
#ifndef WEFT_CLUSTER_H
#define WEFT_CLUSTER_H

#include <weft/base.h>
#include <weft/runtime.h>

WEFT_BEGIN_DECLS

struct promise;

/* ---- Clusters --------------------------------------------------------------------------------- */

struct weft_cluster;

/* The main function of one runtime of a cluster, number `index`. */
typedef int weft_cluster_main_fn(struct weft_cluster *cluster, unsigned index, void *arg);

/* How a cluster is set up. Zero-initialise, set `size`, then what you need:
 *     struct weft_cluster_options o = WEFT_CLUSTER_OPTIONS_INIT;
 * A field of 0 or NULL means the default. All fields are public. */
struct weft_cluster_options {
    size_t size;    /* sizeof(struct weft_cluster_options), for later growth */
    unsigned count; /* how many runtimes, at most 1024; default: weft_cpu_count() */
    unsigned mains; /* how many of them, from number 0 on, call main; default: all. The others
                     * serve: they run what comes to them, and stop when the last main is over */
    bool pin; /* each thread on one cpu of those that the starting thread may use; threads that the
                * library starts from there (workers, offloaded calls) may use them all */
    const char *name; /* of the threads ("weft-0", ...), copied, cut at 10 bytes; default "weft" */
    const struct weft_options *runtime; /* of every runtime */
    /* Changes the options of one runtime; called on the starting thread. */
    void (*set_up)(unsigned index, struct weft_options *options, void *arg);
    uint64_t reserved[6];
};
#define WEFT_CLUSTER_OPTIONS_INIT                   \
    {                                               \
        .size = sizeof(struct weft_cluster_options) \
    }

/* Runs main(cluster, index, arg) in every runtime of a new cluster, number 0 on the calling thread,
 * the others on threads of their own, until all have ended. A runtime ends as weft_run says, when its
 * main has returned. When one fails (main returns a negative errno but -ECANCELED, or the runtime
 * itself does) all are stopped.
 *
 * Either all runtimes start, or no main is called: where a thread or a ring can't be had, all is taken
 * down again, and a sentence to `report` says which and why. (`report` may be called on several threads
 * at a time.)
 *
 * Returns 0, or the first failure: a main's; what weft_run returns when a runtime can't start;
 * -EAGAIN, -ENOMEM: no thread; -EINVAL: options, NULL; -EBUSY in a runtime. -EDEADLK when in no runtime
 * anything is runnable, in flight or set to fire, no inbox is held by anybody outside, and a main still
 * waits: each runtime reports its parked fibers. (In a lean build this is how a cluster ends: as
 * weft_run does when nothing is left.)
 * Any thread without a runtime. Since 0.1. */
WEFT_API int weft_cluster_run(weft_cluster_main_fn *main, void *arg,
                              const struct weft_cluster_options *options);

/* The same on new threads only. Returns when all runtimes have started, with 0 and *cluster, to be
 * joined; or an error as above, and nothing is left. main: NULL: all runtimes serve, until they are
 * stopped. Any thread. Since 0.1. */
WEFT_API int weft_cluster_start(struct weft_cluster **cluster, weft_cluster_main_fn *main,
                                void *arg, const struct weft_cluster_options *options);

/* Stops every runtime, in order, as weft_stop does; without waiting for it. Any thread, signal
 * handlers too; NULL is fine. Since 0.1. */
WEFT_API void weft_cluster_stop(struct weft_cluster *cluster);

/* Waits until every runtime has ended, and frees the cluster. From this call on a deadlock is seen:
 * until then whoever has started the cluster may still post. If no runtime has a main (they all serve)
 * they end as soon as nothing is left to be done.
 * Returns what weft_cluster_run returns; -EDEADLK on a thread of the cluster itself, -ECHILD in a
 * child of fork, which has none of its threads, -EINVAL: nothing is done. Blocks the calling thread.
 * For one thread, once. Since 0.1. */
WEFT_API int weft_cluster_join(struct weft_cluster *cluster);

/* How many runtimes it has; NULL: 0. Any thread, until it is joined. Since 0.1. */
WEFT_API unsigned weft_cluster_count(const struct weft_cluster *cluster);

/* The inbox of a runtime; NULL: there is none of that number. Borrowed: it lasts until the cluster is
 * joined, and counts as no outside reference. For the threads of the cluster's runtimes, and for who has
 * started it until he joins; doesn't suspend. Since 0.1. */
WEFT_API struct weft_inbox *weft_cluster_inbox(const struct weft_cluster *cluster, unsigned index);

/* The inboxes of those that have not ended, in turn, whoever asks; NULL: all have ended. Borrowed, and called
 * on the same threads, as weft_cluster_inbox. Doesn't suspend. Since 0.1. */
WEFT_API struct weft_inbox *weft_cluster_next(struct weft_cluster *cluster);

/* The cluster of the calling thread's runtime, NULL: none; its number there, -EINVAL: none. Any thread;
 * don't suspend. Since 0.1. */
WEFT_API struct weft_cluster *weft_cluster_current(void);
WEFT_API int weft_cluster_index(void);

/* The cpus that the calling thread may use (sched_getaffinity(2)), 1 at least; on a thread that its
 * cluster has pinned, those that the cluster may use. Any thread. Since 0.1. */
WEFT_API unsigned weft_cpu_count(void);

/* ---- Calls on another runtime ----------------------------------------------------------------- */

/* `there` is the inbox of another runtime, of the same cluster or not, or of the caller's own. Who has
 * called doesn't take itself for deadlocked meanwhile, nor does who is called.
 *
 * Local values (weft_get) whose keys have WEFT_KEY_SHARED are inherited: those bound here now are bound
 * there. What they point to is then shared between threads.
 *
 * Errors beside those that fn gives:
 *   -ESHUTDOWN  the runtime there has ended, or stops: fn was not called. (A call of promises is
 *               also given up with it when the runtime there ends before its promise is settled.)
 *   -ENOMEM     no memory here, or there for a fiber: fn was not called
 *   -EINVAL     no runtime here; NULL
 *
 * Runtime's thread, callbacks too unless they suspend. Since 0.1. */

/* Calls fn(ctx) there, on the base stack, and follows the promise that it returns (consumed): the
 * promise here is fulfilled with its value, or rejected with its error. Never NULL.
 *
 * A value with a destructor goes over to the promise here, if the promise there has no other holder;
 * it is then destroyed here (or there, if the runtime here has ended). A borrowed value is handed
 * over as it is.
 *
 * free_ctx(ctx) (NULL: nothing) is called exactly once in every case, when the promise here is settled,
 * after it; here, or, if the runtime here ends before, on any thread.
 *
 * Canceling cancels the promise there; the promise here follows it. Dropping it changes nothing, and
 * so does the end of the runtime here. */
WEFT_API WEFT_NODISCARD struct promise *promise_call_on(struct weft_inbox *there,
                                                        struct promise *(*fn)(void *ctx), void *ctx,
                                                        void (*free_ctx)(void *ctx));

#if WEFT_HAS_FIBERS
/* Runs fn(arg) in a fiber there, and waits for its result. When the deadline has passed, or the calling
 * fiber is cancelled, the fiber there is cancelled and waited for, so arg may be on the caller's stack:
 * it is the caller's again when the call returns. No allocation here.
 * Returns what fn returned, or an error as above; -ETIMEDOUT, -ECANCELED: fn was cut short (it
 * returned -ECANCELED), or was not called (the deadline is WEFT_NOWAIT, the caller cancelled already);
 * -EDEADLK on the base stack. Fiber only. */
#define fiber_call_on(there, fn, arg, deadline) \
    fiber_call_on_at((there), (fn), (arg), (deadline), WEFT_HERE)
FIBER_SUSPENDS WEFT_API int64_t fiber_call_on_at(struct weft_inbox *there, int64_t (*fn)(void *arg),
                                                 void *arg, weft_time deadline, const char *where);

/* The same as a promise of the result, never NULL; promise_cancel cancels the fiber there. free_arg as
 * free_ctx above. Dropping the promise, or the end of the runtime here, doesn't stop the fiber. */
#define fiber_spawn_on(there, fn, arg, free_arg) \
    fiber_spawn_on_at((there), (fn), (arg), (free_arg), WEFT_HERE)
WEFT_API WEFT_NODISCARD struct promise *fiber_spawn_on_at(struct weft_inbox *there,
                                                          int64_t (*fn)(void *arg), void *arg,
                                                          void (*free_arg)(void *arg),
                                                          const char *where);
#endif

WEFT_END_DECLS

#endif
