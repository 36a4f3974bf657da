/* interleavings.c: see interleavings.h. */
#include "interleavings.h"

#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#if defined(__has_include)
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#endif
#endif
#ifndef VALGRIND_STACK_REGISTER
#define VALGRIND_STACK_REGISTER(low, high) 0
#define VALGRIND_STACK_DEREGISTER(id)      ((void)(id))
#endif

#define STACK_SIZE    (128 * 1024)
#define DECISIONS_MAX 512

enum standing { RUNS, WAITS, OVER };

static struct {
    const struct interleave_case *c;
    struct interleave_result result;

    struct thread {
        ucontext_t context;
        char *stack;
        unsigned valgrind_id;
        enum standing standing;
        bool (*ready)(void);
        uint64_t seen; /* a hash of all it has seen */
    } thread[INTERLEAVE_THREADS];
    unsigned count, current;
    ucontext_t search;
    bool over; /* this run */

    struct decision {
        unsigned taken, of;
    } decision[DECISIONS_MAX];
    size_t depth, known; /* in this run; of those, repeated from the one before */

    uint64_t *states; /* a hash set; 0: free */
    size_t states_size;
} x;

/* ---- states ---- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

/* chooser: whose choice it is; 0: who goes on. */
static uint64_t state(unsigned chooser)
{
    const unsigned char *byte = x.c->shared;
    uint64_t hash = chooser, word;
    size_t i;

    for (i = 0; i + sizeof word <= x.c->size; i += sizeof word) {
        memcpy(&word, byte + i, sizeof word);
        hash = mix(hash, word);
    }
    for (; i < x.c->size; i++)
        hash = mix(hash, byte[i]);
    for (unsigned t = 0; t < x.count; t++)
        hash = mix(mix(hash, x.thread[t].seen), x.thread[t].standing);
    return hash == 0 ? 1 : hash;
}

static bool add(uint64_t hash)
{
    size_t at = hash & (x.states_size - 1);

    while (x.states[at] != 0) {
        if (x.states[at] == hash)
            return false;
        at = (at + 1) & (x.states_size - 1);
    }
    x.states[at] = hash;
    x.result.states++;
    return true;
}

static void grow(void)
{
    uint64_t *old = x.states;
    size_t size = x.states_size;

    if (size > 0 && (size_t)x.result.states < size / 2)
        return;
    x.states_size = size == 0 ? 1u << 16 : size * 2;
    x.states = calloc(x.states_size, sizeof *x.states);
    if (x.states == NULL)
        abort();
    x.result.states = 0;
    for (size_t i = 0; i < size; i++)
        if (old[i] != 0)
            add(old[i]);
    free(old);
}

/* ---- decisions ---- */

/* One of `of`; the run is over if all that can follow is known. */
static unsigned decide(unsigned of, unsigned chooser)
{
    struct decision *d;

    if (x.depth == DECISIONS_MAX)
        abort();
    d = &x.decision[x.depth];
    if (x.depth++ < x.known)
        return d->taken;
    grow();
    if (!add(state(chooser))) {
        x.depth--;
        x.over = true;
        return 0;
    }
    *d = (struct decision){0, of};
    return 0;
}

static bool next_run(void)
{
    while (x.depth > 0) {
        struct decision *d = &x.decision[x.depth - 1];

        if (++d->taken < d->of)
            break;
        x.depth--;
    }
    x.known = x.depth;
    x.depth = 0;
    return x.known > 0;
}

/* ---- threads ---- */

static bool can_run(struct thread *thread)
{
    return thread->standing == RUNS || (thread->standing == WAITS && thread->ready());
}

/* Who goes on, or the search if nobody does. */
static void give_way(void)
{
    struct thread *self = &x.thread[x.current], *next;
    unsigned able[INTERLEAVE_THREADS], count = 0, over = 0;

    for (unsigned t = 0; t < x.count; t++) {
        if (can_run(&x.thread[t]))
            able[count++] = t;
        over += x.thread[t].standing == OVER;
    }
    if (count == 0) {
        x.over = true;
        if (over < x.count)
            x.result.stuck = true;
    } else {
        x.current = able[count == 1 ? 0 : decide(count, 0)];
    }
    if (x.over) {
        swapcontext(&self->context, &x.search);
        return;
    }
    next = &x.thread[x.current];
    next->standing = RUNS;
    if (next != self)
        swapcontext(&self->context, &next->context);
}

static void run_thread(void)
{
    x.c->thread[x.current]();
    x.thread[x.current].standing = OVER;
    give_way();
}

void interleave_step(void)
{
    interleave_saw(0); /* where a thread is, too, is what it has seen */
    give_way();
}

void interleave_saw(uint64_t value)
{
    struct thread *self = &x.thread[x.current];

    self->seen = mix(self->seen, value + 1);
}

void interleave_forget(uint64_t place)
{
    x.thread[x.current].seen = mix(0, place);
}

void interleave_wait(bool (*ready)(void))
{
    struct thread *self = &x.thread[x.current];

    self->standing = WAITS;
    self->ready = ready;
    interleave_saw(0);
    give_way();
}

unsigned interleave_choose(unsigned count)
{
    unsigned chosen;

    if (count < 2)
        return 0;
    interleave_saw(count);
    chosen = decide(count, x.current + 1);
    if (x.over)
        swapcontext(&x.thread[x.current].context, &x.search);
    interleave_saw(chosen);
    return chosen;
}

unsigned interleave_self(void)
{
    return x.current;
}

void interleave_fail(const char *what)
{
    x.result.wrong = true;
    x.result.what = what;
    x.over = true;
    swapcontext(&x.thread[x.current].context, &x.search);
    abort();
}

/* ---- the search ---- */

static void run(void)
{
    x.over = false;
    x.c->begin();
    for (unsigned t = 0; t < x.count; t++) {
        struct thread *thread = &x.thread[t];

        getcontext(&thread->context);
        thread->context.uc_stack.ss_sp = thread->stack;
        thread->context.uc_stack.ss_size = STACK_SIZE;
        thread->context.uc_link = NULL;
        makecontext(&thread->context, run_thread, 0);
        thread->standing = RUNS;
        thread->seen = 0;
    }
    x.current = decide(x.count, 0);
    if (!x.over)
        swapcontext(&x.search, &x.thread[x.current].context);
    x.result.runs++;
}

struct interleave_result interleave(const struct interleave_case *c)
{
    memset(&x, 0, sizeof x);
    x.c = c;
    while (x.count < INTERLEAVE_THREADS && c->thread[x.count] != NULL) {
        char *stack = malloc(STACK_SIZE);

        if (stack == NULL)
            abort();
        x.thread[x.count].stack = stack;
        x.thread[x.count++].valgrind_id = VALGRIND_STACK_REGISTER(stack, stack + STACK_SIZE - 1);
    }
    do {
        bool finished = true;

        run();
        for (unsigned t = 0; t < x.count; t++)
            finished &= x.thread[t].standing == OVER;
        if (finished && !x.result.wrong) {
            x.result.what = c->end();
            x.result.wrong = x.result.what != NULL;
        }
    } while (!x.result.stuck && !x.result.wrong && next_run());
    for (unsigned t = 0; t < x.count; t++) {
        VALGRIND_STACK_DEREGISTER(x.thread[t].valgrind_id);
        free(x.thread[t].stack);
    }
    free(x.states);
    return x.result;
}
