/* engine.h: what the scheduler asks of an engine. An engine does I/O and sleeping; nothing else.
 *
 * An engine reports completions by calling functions from turn(), on the base stack.
 */
#ifndef WEFT_ENGINE_H
#define WEFT_ENGINE_H

#include <weft/runtime.h>

struct weft__engine;
struct ring_op;

/* First what every turn and every operation needs, in one cache line. */
struct weft__engine_class {
    /* True if a turn that doesn't wait would find nothing to do; no system call. */
    bool (*quiet)(struct weft__engine *engine);
    /* Submits what is queued, reports what is complete. If nothing was reported waits for the next
     * completion, for wake(), or until `until`; WEFT_NOWAIT: doesn't wait. At most one wait; may
     * return early for any reason (a signal). 0, or a negative errno that ends the runtime. */
    int (*turn)(struct weft__engine *engine, weft_time until);
    /* I/O; both NULL: the engine does none, and begins with a bare struct weft__engine. Takes an
     * operation in: 0, and turn() reports it, or a negative errno. Never calls back. */
    int (*submit)(struct weft__engine *engine, struct ring_op *op);
    /* Asks for the end of an operation that submit() took and turn() has not reported. */
    void (*cancel)(struct weft__engine *engine, struct ring_op *op);

    const char *name;
    /* Makes an engine for the calling thread. On failure returns a negative errno with a readable
     * sentence in `why`: the cause and the way out. */
    int (*create)(struct weft__engine **engine, const struct weft_options *options, char *why,
                  size_t why_size);
    /* Frees an engine that has been drained. */
    void (*destroy)(struct weft__engine *engine);
    /* Ends a wait, or makes the next one end at once. Called at most once a wait, since the inbox sees
     * to it. Any thread, signal handlers too. */
    void (*wake)(struct weft__engine *engine);
    /* The end: asks for the cancellation of everything in flight, which turn() then reports, and
     * takes in nothing more (-ECANCELED). */
    void (*cancel_all)(struct weft__engine *engine);
    /* Adds this engine's counters. */
    void (*stats)(const struct weft__engine *engine, struct weft_stats *stats);
    /* A descriptor is about to be closed; NULL: the engine keeps nothing about descriptors. */
    void (*forget)(struct weft__engine *engine, int fd);
} __attribute__((aligned(64)));

/* What every engine begins with. */
struct weft__engine {
    const struct weft__engine_class *class;
    size_t in_flight; /* operations not reported yet; the runtime goes on while there are any */
};

/* The engines of this build, best first, NULL at the end. Defined by compose.c. */
extern const struct weft__engine_class *const weft__engines[];

/* Starts main as this build does: as a fiber, or (NULL) as a callback. Defined by compose.c. */
extern int (*const weft__launch_main)(struct weft_runtime *rt);

extern const struct weft__engine_class weft__engine_null;  /* src/engine_null.c */
extern const struct weft__engine_class weft__engine_uring; /* uring/engine_uring.c */
extern const struct weft__engine_class weft__engine_epoll; /* uring/engine_epoll.c */

#endif
