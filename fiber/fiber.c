/* fiber.c: fibers: starting, switching, yielding, parking, ending.
 *
 * A fiber that gives way pops the next entry itself. If it is a fiber, it switches there directly.
 * When the pass is over, what comes between two passes is called on the base stack; the base stack
 * is switched to only when the next entry is a task that runs there, or when there is none.
 *
 * Who runs is rt->strand. The base stack's context is saved only while fibers run; whichever fiber
 * returns to it continues the loop in resume().
 */
#include "fiber_internal.h"

#include "timer.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(void *) != 8 || sizeof(struct fiber_options) == 64, "part of the ABI");

static const struct weft__layer_hooks fiber_hooks;

/* ---- switching ---- */

#if CONTEXT_HAS_CALL

static void resume(struct weft_task *task)
{
    struct weft_runtime *rt = weft__rt;
    struct fiber_layer *layer = rt->layer[WEFT__LAYER_FIBER];
    struct fiber *fiber = (struct fiber *)(void *)task;

    rt->strand = &fiber->strand;
    context_switch(&layer->base, &fiber->context, fiber->cancelled);
    rt->strand = &rt->base;
}

/* The base stack is not left by a switch: the function runs below where the loop stands in resume. */
static void call_on_base(struct weft_runtime *rt, void (*fn)(void *arg), void *arg)
{
    struct fiber_layer *layer = rt->layer[WEFT__LAYER_FIBER];
    struct weft__strand *self = rt->strand, *pinned = rt->pinned;

    rt->strand = rt->pinned = &rt->base;
    context_call(&layer->base, fn, arg);
    rt->strand = self;
    rt->pinned = pinned;
}

#else

static void resume(struct weft_task *task)
{
    struct weft_runtime *rt = weft__rt;
    struct fiber_layer *layer = rt->layer[WEFT__LAYER_FIBER];
    struct fiber *fiber = (struct fiber *)(void *)task;

    for (;;) {
        void (*call)(void *arg);

        rt->strand = &fiber->strand;
        context_switch(&layer->base, &fiber->context, fiber->cancelled);
        rt->strand = &rt->base;
        call = layer->call;
        if (call == NULL)
            return;
        /* not a fiber giving way, but one that wants something run here */
        layer->call = NULL;
        fiber = layer->caller;
        call(layer->call_arg);
    }
}

static void call_on_base(struct weft_runtime *rt, void (*fn)(void *arg), void *arg)
{
    struct fiber_layer *layer = rt->layer[WEFT__LAYER_FIBER];
    struct fiber *self = fiber__current(rt);
    struct weft__strand *pinned = rt->pinned;

    layer->call = fn;
    layer->call_arg = arg;
    layer->caller = self;
    rt->pinned = &rt->base;
    context_switch(&self->context, &layer->base, 0);
    rt->pinned = pinned;
}

#endif

static int switch_to_base(struct weft_runtime *rt, struct fiber *self)
{
    return context_switch(&self->context,
                          &((struct fiber_layer *)rt->layer[WEFT__LAYER_FIBER])->base, 0);
}

/* Gives way to something else than a fiber that has run before. */
static __attribute__((noinline)) int switch_to_other(struct weft_runtime *rt, struct fiber *self,
                                                     uintptr_t *head)
{
    struct fiber *next;

    if (*head & WEFT__ON_BASE)
        return switch_to_base(rt, self);
    rt->head = head + 1;
    next = (struct fiber *)(*head & ~WEFT__TAGS);
    rt->strand = &next->strand;
    return context_switch_start(&self->context, &next->context);
}

/* Gives way to the entry at `head`. The prefetch is for the one after next: by then its line is here
 * (entries past the end are 0 or stale, and a prefetch of those does no harm). */
static inline __attribute__((always_inline)) int switch_to_next(struct weft_runtime *rt,
                                                                struct fiber *self, uintptr_t *head)
{
    uintptr_t entry = *head;
    struct fiber *next;

    if (weft__unlikely(entry & WEFT__TAGS))
        return switch_to_other(rt, self, head);
    __builtin_prefetch((const void *)head[2]);
    rt->head = head + 1;
    next = (struct fiber *)entry;
    rt->strand = &next->strand;
    return context_switch(&self->context, &next->context, next->cancelled);
}

#if CONTEXT_HAS_CALL
static void next_pass(void *rt)
{
    weft__next_pass(rt);
}
#endif

/* Ends the pass and begins the next one; true: it has an entry. By a call, which returns to where the
 * processor expects it; switching to the base stack and on to the next fiber is dearer. */
static bool begin_next_pass(struct weft_runtime *rt)
{
    if (weft__next_pass_quietly(rt))
        return true;
#if CONTEXT_HAS_CALL
    call_on_base(rt, next_pass, rt);
#endif
    return rt->head != rt->end;
}

/* The pass is over, and the caller is queued in the next one or parked. */
static __attribute__((noinline)) int switch_to_next_pass(struct weft_runtime *rt,
                                                         struct fiber *self)
{
    if (!begin_next_pass(rt))
        return switch_to_base(rt, self);
    if (*rt->head == (uintptr_t)&self->strand.task) { /* nobody else */
        rt->head++;
        return self->cancelled;
    }
    return switch_to_next(rt, self, rt->head);
}

__attribute__((noinline, cold)) int fiber__refuse(struct weft_runtime *rt, const void *call)
{
    Dl_info info = {0};
    bool known;

    if (rt == NULL)
        return -EINVAL;
    if (rt->region == NULL)
        return -EDEADLK;
    known = dladdr(call, &info) != 0 && info.dli_sname != NULL;
    weft__report(rt, "a call that would suspend, at %p (%s), in WEFT_NO_SUSPEND at %s", call,
                 known ? info.dli_sname : "an unknown function", rt->region->where);
#ifndef NDEBUG
    abort();
#endif
    return -EDEADLK;
}

int fiber_yield(void)
{
    struct weft_runtime *rt = weft__rt;
    struct fiber *self;
    uintptr_t *head;

    if (weft__unlikely(rt == NULL || rt->strand == rt->pinned))
        return fiber__cannot_wait(rt);
    self = fiber__current(rt);
    weft__queue_entry(rt, (uintptr_t)&self->strand.task);
    head = rt->head;
    if (weft__unlikely(head == rt->end))
        return switch_to_next_pass(rt, self);
    return switch_to_next(rt, self, head);
}

/* Who parks has done something, and many others meanwhile, since the next but one ran: where it stands on
 * its stack has left the cache. 100 connections' echo is 1 % quicker with this. */
static inline void prefetch_stack(const struct weft_runtime *rt, const uintptr_t *head)
{
    const char *top;

    if (head + 1 == rt->end || head[1] & WEFT__TAGS)
        return;
    top = ((const struct fiber *)head[1])->context.sp;
    for (int line = 0; line < 4; line++)
        __builtin_prefetch(top + 64 * line);
}

void fiber__park(struct weft_runtime *rt, struct fiber *self, struct fiber_wait *wait)
{
    uintptr_t *head = rt->head;

    self->wait = wait;
    if (weft__unlikely(head == rt->end)) {
        switch_to_next_pass(rt, self);
        return;
    }
    prefetch_stack(rt, head);
    switch_to_next(rt, self, head);
}

/* ---- starting and ending ---- */

static __attribute__((noinline, cold, noreturn)) void returned_in_child(const struct fiber *self)
{
    weft__report_to(NULL,
                    "fiber \"%s\" (spawned at %s) returned in a forked child, where its runtime "
                    "does not exist: end the child with exec or _exit",
                    self->name, self->where != NULL ? self->where : "an unknown place");
    abort();
}

/* The scope's memory is about to go, and fibers know it. */
static __attribute__((noinline, cold, noreturn)) void left_open(struct weft_runtime *rt,
                                                                const struct fiber *self)
{
    weft__report(rt, "fiber \"%s\" (spawned at %s) ends with a scope open: close it first",
                 self->name, self->where != NULL ? self->where : "an unknown place");
    abort();
}

__attribute__((noinline, cold)) void fiber__report_failure(struct weft_runtime *rt,
                                                           const struct fiber *self, int error)
{
    weft__report(rt, "fiber \"%s\" (spawned at %s), whose result nobody sees, failed: %s (%d)",
                 self->name, self->where != NULL ? self->where : "an unknown place",
                 weft_strerror(error), error);
}

static struct context_next fiber_main(void *arg)
{
    struct fiber *self = arg, *next;
    struct weft_runtime *rt;
    struct fiber_layer *layer;
    uintptr_t entry;
    int64_t result;

    context_entered();
    result = self->fn(self->arg);
    rt = weft__rt;
    if (weft__unlikely(rt == NULL || fiber__current(rt) != self))
        returned_in_child(self);
    if (weft__unlikely(self->scope != self->birth))
        left_open(rt, self);
    if (self->ended != NULL)
        self->ended(rt, self, result);
    else if (weft__unlikely(fiber__error(self, result) != 0))
        fiber__report_failure(rt, self, fiber__error(self, result));
    if (weft__unlikely(self->strand.storage != NULL))
        weft__storage_drop(self->strand.storage);
    layer = rt->layer[WEFT__LAYER_FIBER];
    layer->alive--;
    /* nobody takes the stack before this fiber has left it: only what runs now could */
    stacks_put(&layer->stacks, self->stack);

    if (rt->head == rt->end && !weft__next_pass_quietly(rt))
        return context_leave(&self->context, &layer->base, 0);
    entry = *rt->head;
    if (entry & WEFT__ON_BASE)
        return context_leave(&self->context, &layer->base, 0);
    rt->head++;
    next = (struct fiber *)(entry & ~WEFT__TAGS);
    rt->strand = &next->strand;
    return context_leave(&self->context, &next->context, next->cancelled);
}

static int create_layer(struct weft_runtime *rt, struct fiber_layer **out)
{
    struct fiber_layer *layer;
    size_t size = rt->options.stack_size;
    int class;

    if (size == 0) {
        size = (size_t)64 * 1024;
#ifdef WEFT__ASAN
        size *= 2; /* frames with red zones are several times larger */
#endif
    }
    class = fiber__stacks_class(size);
    if (class < 0) {
        weft__report(rt, "weft_options.stack_size is %zu: at most %zu will do", size,
                     STACKS_MAX_SIZE);
        return class;
    }
    layer = calloc(1, sizeof *layer);
    if (layer == NULL)
        return -ENOMEM;
    layer->default_class = class;
    fiber__context_init_thread(&layer->base);
    fiber__stacks_init(&layer->stacks, rt, sizeof(struct fiber));
    rt->call_on_base = call_on_base;
    weft__layer_register(rt, WEFT__LAYER_FIBER, layer, &fiber_hooks);
    *out = layer;
    return 0;
}

static inline int get_layer(struct weft_runtime *rt, struct fiber_layer **out)
{
    *out = rt->layer[WEFT__LAYER_FIBER];
    return weft__likely(*out != NULL) ? 0 : create_layer(rt, out);
}

static void set_name(struct fiber *fiber, const char *name)
{
    size_t n = name == NULL ? 0 : strnlen(name, sizeof fiber->name - 1);

    if (n > 0)
        memcpy(fiber->name, name, n);
    fiber->name[n] = '\0';
}

/* Makes and queues a fiber on `stack`. */
static inline __attribute__((always_inline)) struct fiber *start(struct weft_runtime *rt,
                                                                 struct fiber_layer *layer,
                                                                 struct stack *stack, fiber_fn *fn,
                                                                 void *arg, const char *where)
{
    struct fiber *fiber = stack->fiber;

    context_init(&fiber->context, stack->low, fiber, fiber_main, fiber);
#ifdef WEFT__TSAN
    if (stack->tsan != NULL)
        __tsan_destroy_fiber(stack->tsan);
    stack->tsan = fiber->context.tsan;
#endif
    fiber->strand.task.run = resume;
    fiber->strand.storage = weft__storage_ref(rt->strand->storage);
    fiber->cancelled = 0;
    fiber->is_cancelled = false;
    fiber->scope = fiber->birth = NULL;
    fiber->wait = NULL;
    fiber->fn = fn;
    fiber->arg = arg;
    fiber->ended = NULL;
    fiber->where = where;
    fiber->stack = stack;
    fiber->name[0] = '\0';
    layer->alive++;
    weft__queue_entry(rt, (uintptr_t)&fiber->strand.task | WEFT__START);
    return fiber;
}

int fiber__start(struct weft_runtime *rt, fiber_fn *fn, void *arg,
                 const struct fiber_options *options, const char *where, fiber_ended *ended,
                 void *owner, struct fiber **started)
{
    struct fiber_layer *layer;
    struct fiber *fiber;
    struct stack *stack;
    int class, rc;

    if (weft__unlikely(rt == NULL || fn == NULL))
        return -EINVAL;
    if (weft__unlikely(rt->stopping))
        return -ECANCELED;
    rc = get_layer(rt, &layer);
    if (weft__unlikely(rc < 0))
        return rc;
    class = layer->default_class;
    if (options != NULL) {
        if (options->size < offsetof(struct fiber_options, name) || options->size > sizeof *options)
            return -EINVAL;
        if (options->size >= offsetof(struct fiber_options, where) && options->stack_size != 0)
            class = fiber__stacks_class(options->stack_size);
        if (class < 0)
            return class;
        if (options->size >= offsetof(struct fiber_options, reserved) && options->where != NULL)
            where = options->where;
    }
    stack = stacks_get(&layer->stacks, class);
    if (weft__unlikely(stack == NULL)) {
        rc = fiber__stacks_grow(&layer->stacks, class, 1);
        if (rc < 0)
            return rc;
        stack = stacks_get(&layer->stacks, class);
    }
    fiber = start(rt, layer, stack, fn, arg, where);
    fiber->ended = ended;
    fiber->owner = owner;
    if (options != NULL && options->size >= offsetof(struct fiber_options, stack_size))
        set_name(fiber, options->name);
    if (started != NULL)
        *started = fiber;
    return 0;
}

int fiber_detach_at(fiber_fn *fn, void *arg, const char *where)
{
    struct weft_runtime *rt = weft__rt;
    struct fiber_layer *layer;
    struct stack *stack;

    /* the usual case without a call, so without a frame */
    if (weft__unlikely(rt == NULL || fn == NULL || rt->stopping ||
                       (layer = rt->layer[WEFT__LAYER_FIBER]) == NULL ||
                       (stack = stacks_get(&layer->stacks, layer->default_class)) == NULL))
        return fiber__start(rt, fn, arg, NULL, where, NULL, NULL, NULL);
    start(rt, layer, stack, fn, arg, where);
    return 0;
}

int fiber_detach_with(fiber_fn *fn, void *arg, const struct fiber_options *options)
{
    return fiber__start(weft__rt, fn, arg, options, NULL, NULL, NULL, NULL);
}

int fiber_prefill(size_t count)
{
    struct fiber_layer *layer;
    size_t free;
    int rc;

    if (weft__rt == NULL)
        return -EINVAL;
    rc = get_layer(weft__rt, &layer);
    if (rc < 0)
        return rc;
    free = fiber__stacks_free(&layer->stacks, layer->default_class, count);
    return free >= count ? 0
                         : fiber__stacks_grow(&layer->stacks, layer->default_class, count - free);
}

/* ---- the first fiber ---- */

static int64_t main_fiber(void *arg)
{
    struct weft_runtime *rt = arg;

    return rt->main(rt->main_arg);
}

static void main_ended(struct weft_runtime *rt, struct fiber *fiber, int64_t result)
{
    (void)fiber;
    weft__main_ended(rt, (int)result);
}

int fiber__launch_main(struct weft_runtime *rt);

int fiber__launch_main(struct weft_runtime *rt)
{
    const struct fiber_options options = {.size = sizeof options, .name = "main"};

    return fiber__start(rt, main_fiber, rt, &options, "weft_run", main_ended, NULL, NULL);
}

/* ---- sleeping ---- */

struct sleeper {
    struct fiber_wait wait;
    struct weft_timer timer;
    struct weft_runtime *rt;
    struct fiber *fiber;
    int result;
};

static void sleep_over(struct weft_timer *timer)
{
    struct sleeper *sleeper = weft__container(timer, struct sleeper, timer);

    fiber__wake(sleeper->rt, sleeper->fiber);
}

static void sleep_cancel(struct fiber_wait *wait)
{
    struct sleeper *sleeper = weft__container(wait, struct sleeper, wait);

    weft__timer_stop(sleeper->rt, &sleeper->timer);
    sleeper->result = -ECANCELED;
    fiber__wake(sleeper->rt, sleeper->fiber);
}

int fiber_sleep_until(weft_time at)
{
    struct weft_runtime *rt = weft__rt;
    struct sleeper sleeper;

    if (fiber__self(rt) == NULL)
        return fiber__cannot_wait(rt);
    sleeper.fiber = fiber__current(rt);
    if (sleeper.fiber->cancelled)
        return fiber_yield();
    sleeper.rt = rt;
    sleeper.result = 0;
    sleeper.wait = (struct fiber_wait){.cancel = sleep_cancel, .what = "sleep", .detail = -1};
    weft_timer_init(&sleeper.timer, sleep_over);
    if (at != WEFT_FOREVER)
        weft__timer_start(rt, &sleeper.timer, at);
    fiber__park(rt, sleeper.fiber, &sleeper.wait);
    return sleeper.result;
}

int fiber_sleep(int64_t ns)
{
    return fiber_sleep_until(ns == WEFT_FOREVER ? WEFT_FOREVER : weft_after(ns));
}

/* ---- the layer's hooks ---- */

/* Calls visit for each live fiber, oldest slab last. visit may wake fibers, but not start any. */
static void each_fiber(struct weft_runtime *rt,
                       void (*visit)(struct weft_runtime *, struct fiber *))
{
    struct fiber_layer *layer = rt->layer[WEFT__LAYER_FIBER];

    for (int class = 0; class < STACKS_CLASSES; class ++)
        for (struct stack_slab *slab = layer->stacks.pools[class].slabs; slab != NULL;
             slab = slab->next)
            for (size_t i = 0; i < slab->cut; i++)
                if (slab->stacks[i].state == STACK_LIVE)
                    visit(rt, slab->stacks[i].fiber);
}

static void layer_stop(struct weft_runtime *rt)
{
    each_fiber(rt, fiber__cancel);
}

static size_t layer_alive(struct weft_runtime *rt)
{
    return ((struct fiber_layer *)rt->layer[WEFT__LAYER_FIBER])->alive;
}

static void layer_idle(struct weft_runtime *rt)
{
    fiber__stacks_trim(&((struct fiber_layer *)rt->layer[WEFT__LAYER_FIBER])->stacks);
}

static void dump_fiber(struct weft_runtime *rt, struct fiber *fiber)
{
    const char *where = fiber->where != NULL ? fiber->where : "an unknown place";
    const char *cancelled = fiber->cancelled ? ", cancelled" : "";
    char name[sizeof fiber->name + 4] = "";

    if (fiber->name[0] != '\0')
        snprintf(name, sizeof name, " \"%s\"", fiber->name);
    if (fiber->wait == NULL)
        weft__report(rt, "  fiber %p%s, spawned at %s, is %s%s", (void *)fiber, name, where,
                     rt->strand == &fiber->strand ? "running" : "runnable", cancelled);
    else if (fiber->wait->detail >= 0)
        weft__report(rt, "  fiber %p%s, spawned at %s, waits for %s %lld%s", (void *)fiber, name,
                     where, fiber->wait->what, (long long)fiber->wait->detail, cancelled);
    else
        weft__report(rt, "  fiber %p%s, spawned at %s, waits for %s%s", (void *)fiber, name, where,
                     fiber->wait->what, cancelled);
}

static void layer_dump(struct weft_runtime *rt)
{
    each_fiber(rt, dump_fiber);
}

static void layer_stats(const struct weft_runtime *rt, struct weft_stats *stats)
{
    const struct fiber_layer *layer = rt->layer[WEFT__LAYER_FIBER];

    stats->fibers += layer->alive;
    for (int class = 0; class < STACKS_CLASSES; class ++)
        stats->stacks += layer->stacks.pools[class].mapped;
}

static void layer_finish(struct weft_runtime *rt)
{
    struct fiber_layer *layer = rt->layer[WEFT__LAYER_FIBER];

    /* none, unless the engine failed: then pool threads may still be at work on these stacks */
    while (atomic_load(&layer->calls) > 0)
        sched_yield();
    fiber__stacks_finish(&layer->stacks);
    free(layer);
    rt->layer[WEFT__LAYER_FIBER] = NULL;
}

static const struct weft__layer_hooks fiber_hooks = {
    .stop = layer_stop,
    .alive = layer_alive,
    .idle = layer_idle,
    .dump = layer_dump,
    .stats = layer_stats,
    .finish = layer_finish,
};

/* ---- about fibers ---- */

struct fiber *fiber_self(void)
{
    return fiber__running(weft__rt);
}

int fiber_set_name(const char *name)
{
    struct fiber *self = fiber__running(weft__rt);

    if (self == NULL)
        return -EINVAL;
    set_name(self, name);
    return 0;
}

const char *fiber_name(const struct fiber *fiber)
{
    return fiber == NULL ? "" : fiber->name;
}

int fiber_check(void)
{
    struct fiber *self = fiber__running(weft__rt);

    return self == NULL ? fiber__none(weft__rt) : self->cancelled;
}

size_t fiber_stack_left(void)
{
    struct fiber *self = fiber__running(weft__rt);
    char *here = __builtin_frame_address(0);

    return self == NULL ? 0 : (size_t)(here - self->stack->low);
}

void fiber_dump(void)
{
    if (weft__rt != NULL && weft__rt->layer[WEFT__LAYER_FIBER] != NULL)
        layer_dump(weft__rt);
}
