/* runtime_internal.h: the runtime's state, and what the other layers may do with it.
 *
 * The core knows no fiber, no promise and no ring. It offers them:
 *   - the run queue:      weft__queue, weft__reserve, weft__release
 *   - the base stack:     weft__on_base (callbacks run there, whoever causes them)
 *   - the next poll:      weft__after_poll (promise_pause)
 *   - layers' own state:  rt->layer[], torn down by their hooks
 *
 * The run queue is two arrays. A pass consumes one (head..end) while what is queued meanwhile goes
 * to the other (tail); when the pass is over they swap. This is the FIFO ring buffer of any
 * scheduler, cut where a pass ends: the end of the pass and an empty queue are one comparison, and
 * no index is masked, which together were worth a third of a yield (docs/scheduling.md).
 * Each array holds as many entries as tasks are reserved, and a task is queued at most once, so
 * queueing never allocates and never fails.
 *
 * An entry of a strand that has run before is its task's address: another strand may switch to it
 * directly. Two low bits mark the other two kinds: WEFT__START a strand that has not run yet (it may be
 * switched to as well; starting has a quicker way in), WEFT__ON_BASE a task that needs the base stack.
 */
#ifndef WEFT_RUNTIME_INTERNAL_H
#define WEFT_RUNTIME_INTERNAL_H

#include <weft/runtime.h>

#include "engine.h"

#include <pthread.h>
#include <stdatomic.h>

#define weft__likely(x)                    __builtin_expect(!!(x), 1)
#define weft__unlikely(x)                  __builtin_expect(!!(x), 0)
#define weft__container(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#define WEFT__ON_BASE   ((uintptr_t)1)
#define WEFT__START     ((uintptr_t)2)
#define WEFT__TAGS      (WEFT__ON_BASE | WEFT__START)
#define WEFT__LOOKAHEAD 4 /* entries past an array's end that a prefetch may read */

/* A line of control: a fiber, or the base stack. */
struct weft__strand {
    struct weft_task task;         /* must be first: a queue entry is its address */
    struct weft__storage *storage; /* local values bound here; NULL: none */
};

enum weft__layer { WEFT__LAYER_FIBER, WEFT__LAYER_PROMISE, WEFT__LAYER_COUNT };

/* A layer's part in the runtime's life. Registered at most once a layer and runtime, on first use. */
struct weft__layer_hooks {
    /* Ask everything of this layer to end. Layers stop in order: fibers are cancelled when stopping
     * begins, and promises work on for them; when no fiber is left the promise layer stops, and
     * from then on no promise callback runs, whatever still completes. May be NULL. */
    void (*stop)(struct weft_runtime *rt);
    /* What is still alive that must end before the runtime does. May be NULL. */
    size_t (*alive)(struct weft_runtime *rt);
    /* The runtime is about to sleep, and rt->untidy: a good time to give memory back. May be NULL. */
    void (*idle)(struct weft_runtime *rt);
    /* Describes what is still waiting, line by line with weft__report. May be NULL. */
    void (*dump)(struct weft_runtime *rt);
    /* Adds this layer's counters. May be NULL. */
    void (*stats)(const struct weft_runtime *rt, struct weft_stats *stats);
    /* Last: free everything. Runs after the engine has been drained and destroyed. */
    void (*finish)(struct weft_runtime *rt);
};

/* Something here that another thread has to do with, or that does with it. At the runtime's end, when
 * promises have fallen silent (or the engine has failed), evict is called, once: the guest leaves now,
 * by weft__guest_remove, or soon, because of a task that is posted or will be. */
struct weft__guest {
    struct weft__guest *next, **link; /* link NULL: on no list */
    void (*evict)(struct weft__guest *guest);
};

struct weft__member;

struct weft_runtime {
    /* the yield path's line */
    struct weft__strand *strand; /* who is running: a fiber's strand or &base */
    struct weft__strand *pinned; /* who must not suspend: &base, or a fiber in WEFT_NO_SUSPEND */
    uintptr_t *head;             /* next entry of this pass */
    uintptr_t *end;              /* this pass ends here */
    uintptr_t *tail;             /* where the next pass's next entry goes */
    uintptr_t *pass_array, *next_array;
    struct weft__engine *engine;
    struct weft_timer *timers; /* pairing heap's root; NULL: none */

    /* Runs fn(arg) on the base stack on behalf of the running strand; set by whoever switches. */
    void (*call_on_base)(struct weft_runtime *rt, void (*fn)(void *arg), void *arg);

    struct weft_region *region; /* the innermost one of WEFT_NO_SUSPEND; NULL: none */
    struct weft__strand base;
    size_t reserved, capacity;
    void (*after_wakes)(struct weft_runtime *rt);    /* sync_core.h; NULL: nothing to do */
    struct weft_task *after_poll, **after_poll_tail; /* run once after the next poll */
    struct weft_inbox *inbox;
    struct weft__guest *guests, *leaving;
    struct weft__member *member; /* of a cluster; NULL: of none */

    void *layer[WEFT__LAYER_COUNT];
    const struct weft__layer_hooks *hooks[WEFT__LAYER_COUNT];

    struct weft_options options;
    char *engine_reason; /* why a better engine is not in use; NULL: it is, or nobody knows */
    struct weft_task main_task;
    weft_main_fn *main;
    void *main_arg;
    int main_result;
    int failed; /* the engine has: its error; else 0 */
    union {     /* reasons for a closer look between two passes */
        struct {
            bool stopping;
            bool at_end; /* nothing will ever happen any more */
            bool untidy; /* a layer has something to do before the runtime sleeps */
        };
        uint32_t rare;
    };
    bool main_ended;
    bool running_until_idle; /* lean weft_run: ends when nothing is left */
    uint32_t select_turn;    /* where the next fiber_select begins */
    uint64_t serial;         /* no other runtime of the process has, or had, the same; never 0 */
    uint64_t passes;
    uint64_t switches;
    uint64_t timers_started, timers_stopped;
    weft_time firing; /* the time for which timers are firing; -1: they are not */
    pthread_t thread;
};

/* The calling thread's runtime. Initial-exec: one load off the thread pointer. Read it once at a
 * public function's entry and pass `rt` on; runtimes never move between threads. */
extern _Thread_local struct weft_runtime *weft__rt;

/* How often the process has been forked to here, from the first runtime on. */
extern unsigned weft__forks;

/* ---- run queue ---- */

static inline void weft__queue_entry(struct weft_runtime *rt, uintptr_t entry)
{
    *rt->tail++ = entry;
}

static inline void weft__queue(struct weft_runtime *rt, struct weft_task *task)
{
    weft__queue_entry(rt, (uintptr_t)task | WEFT__ON_BASE);
}

/* Room for `count` more tasks. 0 or -ENOMEM. */
int weft__reserve_slow(struct weft_runtime *rt, size_t count);

static inline int weft__reserve(struct weft_runtime *rt, size_t count)
{
    if (weft__unlikely(rt->capacity - rt->reserved < count))
        return weft__reserve_slow(rt, count);
    rt->reserved += count;
    return 0;
}

static inline void weft__release(struct weft_runtime *rt, size_t count)
{
    rt->reserved -= count;
}

/* Starts the next pass if that needs neither the kernel, nor the clock, nor a callback: then there
 * is a next entry at rt->head and true is returned. May be called on any strand. */
bool weft__begin_queued_quietly(struct weft_runtime *rt);

static inline bool weft__next_pass_quietly(struct weft_runtime *rt)
{
    return rt->tail != rt->next_array && weft__begin_queued_quietly(rt);
}

/* Ends the pass: polls the engine, which may wait and call anybody, and begins the next one, which may be
 * empty. On the base stack. False: the loop has to decide how to go on. */
bool weft__next_pass(struct weft_runtime *rt);

/* ---- base stack ---- */

static inline bool weft__is_base(const struct weft_runtime *rt)
{
    return rt->strand == &rt->base;
}

/* Runs fn(arg) on the base stack, now, and returns when it has returned. */
static inline void weft__on_base(struct weft_runtime *rt, void (*fn)(void *arg), void *arg)
{
    if (weft__is_base(rt))
        fn(arg);
    else
        rt->call_on_base(rt, fn, arg);
}

/* Runs `task` on the base stack once, right after the next poll of the engine and before the next
 * pass; the engine doesn't block meanwhile. Needs no reservation. Not twice at a time. */
static inline void weft__after_poll(struct weft_runtime *rt, struct weft_task *task)
{
    task->next = NULL;
    *rt->after_poll_tail = task;
    rt->after_poll_tail = &task->next;
}

/* ---- guests ---- */

static inline void weft__guest_link(struct weft__guest **list, struct weft__guest *guest)
{
    guest->next = *list;
    guest->link = list;
    if (guest->next != NULL)
        guest->next->link = &guest->next;
    *list = guest;
}

static inline void weft__guest_add(struct weft_runtime *rt, struct weft__guest *guest,
                                   void (*evict)(struct weft__guest *guest))
{
    guest->evict = evict;
    weft__guest_link(&rt->guests, guest);
}

static inline void weft__guest_remove(struct weft__guest *guest)
{
    *guest->link = guest->next;
    if (guest->next != NULL)
        guest->next->link = guest->link;
    guest->link = NULL;
}

/* ---- life ---- */

/* Makes `layer`'s state known; hooks are called as described. */
void weft__layer_register(struct weft_runtime *rt, enum weft__layer layer, void *state,
                          const struct weft__layer_hooks *hooks);

/* weft_run's inside, for promise_run: starts a runtime and calls start(arg) as its first task on
 * the base stack; goes on until weft__main_ended. */
int weft__run(void (*start)(struct weft_runtime *rt, void *arg), void *arg,
              const struct weft_options *options);

/* The main function (or promise) is over; the runtime ends in order. */
void weft__main_ended(struct weft_runtime *rt, int result);

/* Instead of a main: the runtime ends, with 0, when nothing is left. */
void weft__run_until_idle(struct weft_runtime *rt);

/* One diagnostic line (no newline) to the runtime's report function. */
void weft__report(const struct weft_runtime *rt, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same before there is a runtime. */
void weft__report_to(const struct weft_options *options, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- local values: persistent lists, shared by reference ---- */

struct weft__storage {
    struct weft__storage *rest;
    const struct weft_key *key;
    void *value;
    size_t refs;
};

static inline struct weft__storage *weft__storage_ref(struct weft__storage *s)
{
    if (s != NULL)
        s->refs++;
    return s;
}

void weft__storage_drop(struct weft__storage *s); /* one reference less, iteratively */

static inline void weft__storage_unref(struct weft__storage *s)
{
    if (s != NULL)
        weft__storage_drop(s);
}

/* What weft_set bound in a callback lasts until it returns: the loop forgets it after each. */
static inline void weft__forget_locals(struct weft_runtime *rt)
{
    if (weft__unlikely(rt->base.storage != NULL)) {
        weft__storage_drop(rt->base.storage);
        rt->base.storage = NULL;
    }
}

void *weft__storage_get(const struct weft__storage *s, const struct weft_key *key);

/* A copy for another thread, of the bindings whose keys may be shared. */
int weft__storage_export(const struct weft__storage *s, struct weft__storage **out);

/* A new storage with `key` bound to `value` (NULL: absent) above `s`; takes no reference of the
 * caller's on `s`. -ENOMEM leaves *out alone. */
int weft__storage_bind(struct weft__storage *s, const struct weft_key *key, void *value,
                       struct weft__storage **out);

#endif
