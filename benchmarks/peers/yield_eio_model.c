/* yield_eio_model.c: a C model of how Eio schedules a yield. A model, not Eio.
 *
 * What it takes over from Eio's Linux backend: a fiber that yields returns to the scheduler (there:
 * performs an effect), which allocates a closure that resumes the fiber and pushes it on a
 * lock-free queue with many producers and one consumer (a stack that is pushed to by
 * compare-and-set, and taken over and reversed when the consumer's own list is empty); then it pops
 * the next closure and calls it. Once a pass an item for I/O comes up, which reads the clock, as
 * Eio does to look for due timers, and is pushed again.
 *
 * What it leaves out, all in Eio's favour: the ring, cancellation contexts, tracing, the several
 * blocks that OCaml allocates where the model allocates one. OCaml allocates from its minor heap,
 * which costs less than malloc. The switch is weft's native one, stacks as weft's (slab.h).
 */
#include "slab.h"
#include "yield.h"

#include "context.h"

#include <stdatomic.h>

struct closure {
    struct closure *rest;
    void (*run)(struct closure *self);
    struct strand *strand;
};

struct strand {
    struct context context;
    struct scheduler *scheduler;
    bool ended;
};

struct scheduler {
    struct closure *head;
    _Atomic(struct closure *) tail;
    struct context context;
    struct yield_plan plan;
    int64_t now;
    char *slab;
};

static void push(struct scheduler *scheduler, struct closure *closure)
{
    closure->rest = atomic_load(&scheduler->tail);
    while (!atomic_compare_exchange_weak(&scheduler->tail, &closure->rest, closure))
        ;
}

static struct closure *pop(struct scheduler *scheduler)
{
    struct closure *closure = scheduler->head;

    if (closure == NULL) {
        struct closure *taken = atomic_exchange(&scheduler->tail, NULL);

        while (taken != NULL) {
            struct closure *const rest = taken->rest;

            taken->rest = closure;
            closure = taken;
            taken = rest;
        }
    }
    scheduler->head = closure != NULL ? closure->rest : NULL;
    return closure;
}

static void enqueue(struct scheduler *scheduler, struct strand *strand,
                    void (*run)(struct closure *))
{
    struct closure *closure = malloc(sizeof(*closure));

    if (closure == NULL)
        bench_die("out of memory");
    closure->run = run;
    closure->strand = strand;
    push(scheduler, closure);
}

/* Continues a fiber until it yields or ends. */
static void resume(struct closure *self)
{
    struct strand *strand = self->strand;
    struct scheduler *scheduler = strand->scheduler;

    free(self);
    context_switch(&scheduler->context, &strand->context, 0);
    if (!strand->ended)
        enqueue(scheduler, strand, resume);
}

/* A function, as in the other programs: see yield_floor.c. */
static __attribute__((noinline)) void give_way(struct strand *self)
{
    context_switch(&self->context, &self->scheduler->context, 0);
}

static struct context_next fiber_main(void *arg)
{
    struct strand *self = arg;
    struct scheduler *scheduler = self->scheduler;

    context_entered();
    YIELD_FIBER(&scheduler->plan, give_way(self));
    self->ended = true;
    return context_leave(&self->context, &scheduler->context, 0);
}

static void start(struct scheduler *scheduler, long index)
{
    struct strand *strand = slab_top(scheduler->slab, index, sizeof(*strand));

    strand->scheduler = scheduler;
    strand->ended = false;
    context_init(&strand->context, slab_low(scheduler->slab, index), strand, fiber_main, strand);
    enqueue(scheduler, strand, resume);
}

int main(int argc, char **argv)
{
    struct scheduler *scheduler = calloc(1, sizeof(*scheduler));
    struct closure io = {.run = NULL}, *next;

    if (scheduler == NULL)
        bench_die("out of memory");
    yield_plan_read(&scheduler->plan, argc, argv);
    scheduler->slab = slab_create(scheduler->plan.fibers);
    if (scheduler->slab == NULL)
        yield_skip("no memory for the stacks");
    for (long i = 0; i < scheduler->plan.fibers; i++)
        start(scheduler, i);
    push(scheduler, &io);

    while (scheduler->plan.finished != scheduler->plan.fibers) {
        next = pop(scheduler);
        if (next == &io) {
            scheduler->now = bench_now();
            push(scheduler, &io);
        } else {
            next->run(next);
        }
    }
    return yield_plan_print(&scheduler->plan);
}
