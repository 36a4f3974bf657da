/* list.c: promise_iter, map, filter, ...: one callback over many elements.
 *
 * A walk is one such call. Elements are called by lanes: a lane calls the next element that nobody
 * has called, takes what is settled on the spot, and waits (promise__follow) for what is not. One
 * lane is a serial walk, and its promise the result; `max` lanes over one walk are a bounded one;
 * the questions' parallel form has as many lanes as there are pending elements. The other parallel
 * forms need no lane: they call all elements, and wait for the pending ones at once.
 *
 * A walk is counted: by each lane, and by what finishes it. A lane that is dropped while it waits
 * has failed (or will never end), so no more elements are called after it.
 *
 * A callback may settle what another lane of its walk waits for, and that lane then calls the next
 * element inside the first's callback. Beyond a depth it pauses instead, so the stack is bounded.
 */
#include <weft/promise_list.h>

#include "follow.h"

#include <stdlib.h>

_Static_assert(sizeof(void *) != 8 || sizeof(struct promise_partition) == 48, "part of the ABI");

#define DEPTH_MAX 32

enum op { ITER, MAP, FILTER_MAP, FILTER, PARTITION, FOLD_LEFT, FOLD_RIGHT, EXISTS, FOR_ALL, FIND };

struct items {
    const void *base;
    size_t count, size;
};

struct walk {
    struct promise__step step; /* finishes it */
    enum op op;
    unsigned depth; /* callbacks running */
    bool lone;      /* a single lane, which gives the result */
    bool every;     /* each element is called, whatever the others give */
    bool starting;  /* start_lanes is not through */
    bool over;      /* failed or decided */
    size_t refs;
    size_t next;    /* how many elements have been called */
    size_t running; /* lanes that are not through */
    struct items items;
    union {
        promise_item_fn *item;
        promise_fold_fn *fold;
    } fn;
    void *ctx;
    unsigned char *yes;            /* FILTER, PARTITION: by element */
    struct promise_values *values; /* MAP, FILTER_MAP: by element */
    struct promise *so_far;        /* FOLD: settled */
    struct promise *end;           /* questions: what lanes that know nothing are one with */
    size_t *waited;                /* parallel: which elements are waited for */
};

struct lane {
    struct promise__step step;
    struct walk *walk;
    size_t index; /* of the element it waits for; SIZE_MAX: none, it pauses */
};

static bool is_fold(enum op op)
{
    return op == FOLD_LEFT || op == FOLD_RIGHT;
}

static bool is_question(enum op op)
{
    return op >= EXISTS;
}

/* ---- a walk's memory ---- */

static void walk_unref(struct walk *walk)
{
    if (--walk->refs > 0)
        return;
    free(walk->yes);
    free(walk->waited);
    promise_values_destroy(walk->values);
    promise_unref(walk->so_far);
    promise_unref(walk->end);
    free(walk);
}

static void drop_walk(struct promise__step *step)
{
    walk_unref((struct walk *)(void *)step);
}

/* `count` values, 0 and without source. */
static struct promise_values *new_values(size_t count)
{
    struct promise_values *values;
    const size_t each = sizeof(union weft_value) + sizeof(struct promise *);

    if (count > (SIZE_MAX - sizeof *values) / each)
        return NULL;
    values = calloc(1, sizeof *values + count * each);
    if (values == NULL)
        return NULL;
    values->count = count;
    values->value = (union weft_value *)(void *)(values + 1);
    values->source = (struct promise **)(void *)(values->value + count);
    return values;
}

static struct walk *new_walk(enum op op, const struct items *items, void *ctx)
{
    struct walk *walk = calloc(1, sizeof *walk);
    bool failed = false;

    if (walk == NULL)
        return NULL;
    walk->op = op;
    walk->refs = 1;
    walk->items = *items;
    walk->ctx = ctx;
    if (op == MAP || op == FILTER_MAP) {
        walk->values = new_values(items->count);
        failed = walk->values == NULL;
    } else if (op == FILTER || op == PARTITION) {
        walk->yes = calloc(items->count + (items->count == 0), 1);
        failed = walk->yes == NULL;
    } else if (is_question(op)) {
        walk->end = promise_create();
        failed = promise__immediate(walk->end);
    }
    if (failed) {
        walk_unref(walk);
        return NULL;
    }
    return walk;
}

/* ---- elements ---- */

static void *address(const struct walk *walk, size_t i)
{
    if (walk->items.base == NULL)
        return NULL;
    return (void *)((uintptr_t)walk->items.base + i * walk->items.size);
}

static union weft_value element(const struct walk *walk, size_t i)
{
    return walk->items.base != NULL ? weft_ptr(address(walk, i)) : weft_num((int64_t)i);
}

static struct promise *call(struct promise__state *st, struct walk *walk, size_t i)
{
    struct promise *p;

    walk->depth++;
    if (is_fold(walk->op)) {
        struct promise *before = walk->so_far;
        union weft_value so_far = weft_num(0);

        if (walk->op == FOLD_RIGHT)
            i = walk->items.count - 1 - i;
        walk->so_far = NULL;
        (void)promise__take(st, before, &so_far);
        p = walk->fn.fold(so_far, i, address(walk, i), walk->ctx);
    } else {
        p = walk->fn.item(i, address(walk, i), walk->ctx);
    }
    walk->depth--;
    return p != NULL ? p : promise__einval;
}

static bool says_yes(struct promise__state *st, struct promise *p)
{
    union weft_value value = weft_num(0);

    (void)promise__outcome(st, p, &value);
    promise__release(st, p);
    return value.num != 0;
}

static void keep_value(struct promise__state *st, struct promise_values *values, size_t i,
                       struct promise *p)
{
    struct promise room, *x = promise__look(st, p, &room);

    values->value[i] = x->value;
    if (x->destroy != NULL || x->source != NULL) {
        promise__retain(x);
        values->source[i] = x;
    }
    promise__release(st, p);
}

/* What fulfilled `p` says of element `i`. True: it decides a question. */
static bool take(struct promise__state *st, struct walk *walk, size_t i, struct promise *p)
{
    switch (walk->op) {
    case MAP:
    case FILTER_MAP:
        keep_value(st, walk->values, i, p);
        return false;
    case FILTER:
    case PARTITION:
        walk->yes[i] = says_yes(st, p);
        return false;
    case FOLD_LEFT:
    case FOLD_RIGHT:
        walk->so_far = p;
        return false;
    case EXISTS:
    case FIND:
        return says_yes(st, p);
    case FOR_ALL:
        return !says_yes(st, p);
    default:
        promise__release(st, p);
        return false;
    }
}

/* The result of a question that element `i` decides. */
static struct promise *answer(const struct walk *walk, size_t i)
{
    if (walk->op == FIND)
        return promise_fulfilled(element(walk, i));
    return promise_fulfilled(weft_num(walk->op == EXISTS));
}

/* ---- the result, when all elements are through ---- */

static void compact(struct promise_values *values)
{
    size_t kept = 0;

    for (size_t i = 0; i < values->count; i++) {
        if (values->value[i].num == 0) {
            promise_unref(values->source[i]);
            continue;
        }
        values->value[kept] = values->value[i];
        values->source[kept++] = values->source[i];
    }
    values->count = kept;
}

static size_t count_yes(const struct walk *walk)
{
    size_t count = 0;

    for (size_t i = 0; i < walk->items.count; i++)
        count += walk->yes[i];
    return count;
}

static struct promise *filtered(const struct walk *walk)
{
    struct promise_values *values = new_values(count_yes(walk));
    size_t n = 0;

    if (values == NULL)
        return promise__enomem;
    for (size_t i = 0; i < walk->items.count; i++)
        if (walk->yes[i])
            values->value[n++] = element(walk, i);
    return promise_fulfilled_owned(values, promise_values_destroy);
}

void promise_partition_destroy(void *partition)
{
    free(partition); /* elements are not owned, and have no sources */
}

static struct promise *partitioned(const struct walk *walk)
{
    const size_t each = sizeof(union weft_value) + sizeof(struct promise *);
    size_t count = walk->items.count;
    struct promise_partition *partition = NULL;

    if (count <= (SIZE_MAX - sizeof *partition) / each)
        partition = calloc(1, sizeof *partition + count * each);
    if (partition == NULL)
        return promise__enomem;
    partition->yes.value = (union weft_value *)(void *)(partition + 1);
    partition->no.value = partition->yes.value + count_yes(walk);
    partition->yes.source = (struct promise **)(void *)(partition->yes.value + count);
    partition->no.source = partition->yes.source + count_yes(walk);
    for (size_t i = 0; i < count; i++) {
        struct promise_values *side = walk->yes[i] ? &partition->yes : &partition->no;

        side->value[side->count++] = element(walk, i);
    }
    return promise_fulfilled_owned(partition, promise_partition_destroy);
}

static struct promise *finish(struct walk *walk)
{
    struct promise_values *values = walk->values;
    struct promise *so_far = walk->so_far;

    switch (walk->op) {
    case FILTER_MAP:
        compact(values);
        /* fall through */
    case MAP:
        walk->values = NULL;
        return promise_fulfilled_owned(values, promise_values_destroy);
    case FILTER:
        return filtered(walk);
    case PARTITION:
        return partitioned(walk);
    case FOLD_LEFT:
    case FOLD_RIGHT:
        walk->so_far = NULL;
        return so_far;
    case FOR_ALL:
        return promise_fulfilled(weft_num(1));
    case FIND:
        return promise_rejected(-ENOENT);
    default:
        return promise_fulfilled(weft_num(0));
    }
}

static struct promise *finish_walk(struct promise__step *step, struct promise *settled)
{
    struct walk *walk = (struct walk *)(void *)step;
    struct promise *result = finish(walk);

    promise_unref(settled);
    walk_unref(walk);
    return result;
}

/* ---- growing arrays of promises ---- */

struct gathered {
    struct promise **promise;
    size_t count, capacity;
};

/* Consumes `p`. */
static bool gather(struct gathered *to, struct promise *p)
{
    if (to->count == to->capacity) {
        size_t capacity = to->capacity * 2 + 8;
        struct promise **larger = realloc(to->promise, capacity * sizeof *larger);

        if (larger == NULL) {
            promise_unref(p);
            return false;
        }
        to->promise = larger;
        to->capacity = capacity;
    }
    to->promise[to->count++] = p;
    return true;
}

static void forget(struct gathered *all)
{
    for (size_t i = 0; i < all->count; i++)
        promise_unref(all->promise[i]);
    free(all->promise);
}

/* ---- lanes ---- */

static void end_lane(struct lane *lane)
{
    struct walk *walk = lane->walk;

    free(lane);
    walk_unref(walk);
}

static void drop_lane(struct promise__step *step)
{
    struct lane *lane = (struct lane *)(void *)step;

    lane->walk->over = true;
    end_lane(lane);
}

/* No element is left for this lane. */
static struct promise *lane_through(struct lane *lane)
{
    struct walk *walk = lane->walk;
    struct promise *result;

    walk->running--;
    if (walk->lone ||
        (is_question(walk->op) && walk->running == 0 && !walk->over && !walk->starting))
        result = finish(walk);
    else if (is_question(walk->op))
        result = promise_ref(walk->end);
    else
        result = promise_fulfilled(weft_num(0));
    end_lane(lane);
    return result;
}

static struct promise *decided(struct lane *lane, size_t i)
{
    struct promise *result = answer(lane->walk, i);

    drop_lane(&lane->step);
    return result;
}

static struct promise *run_lane(struct promise__state *st, struct lane *lane)
{
    struct walk *walk = lane->walk;

    while (walk->next < walk->items.count && (walk->every || !walk->over)) {
        struct promise *p;

        if (walk->depth >= DEPTH_MAX) {
            lane->index = SIZE_MAX;
            return promise__follow(st, promise_pause(), &lane->step, false);
        }
        lane->index = walk->next++;
        p = call(st, walk, lane->index);
        if (promise__pending(st, p))
            return promise__follow(st, p, &lane->step, false);
        if (promise_state(p) == PROMISE_REJECTED) {
            drop_lane(&lane->step);
            return p;
        }
        if (take(st, walk, lane->index, p))
            return decided(lane, lane->index);
    }
    return lane_through(lane);
}

static struct promise *resume_lane(struct promise__step *step, struct promise *settled)
{
    struct promise__state *st = promise__tls;
    struct lane *lane = (struct lane *)(void *)step;

    if (lane->index == SIZE_MAX)
        promise__release(st, settled);
    else if (take(st, lane->walk, lane->index, settled))
        return decided(lane, lane->index);
    return run_lane(st, lane);
}

static struct promise *start_lane(struct promise__state *st, struct walk *walk)
{
    struct lane *lane = malloc(sizeof *lane);

    if (lane == NULL) {
        walk->over = true;
        walk->every = false;
        return promise__enomem;
    }
    *lane = (struct lane){{resume_lane, drop_lane}, walk, SIZE_MAX};
    walk->refs++;
    walk->running++;
    return run_lane(st, lane);
}

/* A walk by at most `max` lanes. Consumes the walk. */
static struct promise *start_lanes(struct promise__state *st, struct walk *walk, size_t max)
{
    struct gathered lanes = {NULL, 0, 0};
    struct promise *result = NULL;
    bool rejected = false, answered = false, failed = false;

    walk->starting = true;
    for (size_t started = 0; started < max && !failed; started++) {
        struct promise *p = start_lane(st, walk);

        if (max == 1) {
            result = p;
            break;
        }
        /* Of those settled now only the first of a kind can matter. */
        if (promise_state(p) == PROMISE_PENDING ||
            (promise_state(p) == PROMISE_REJECTED && !rejected) ||
            (is_question(walk->op) && promise_state(p) == PROMISE_FULFILLED && !answered)) {
            rejected = rejected || promise_state(p) == PROMISE_REJECTED;
            answered = answered || promise_state(p) == PROMISE_FULFILLED;
            failed = !gather(&lanes, p);
        } else {
            promise__release(st, p);
        }
        if (walk->next == walk->items.count || (walk->over && !walk->every))
            break;
    }
    walk->starting = false;
    if (failed) {
        walk->over = true;
        walk->every = false;
        forget(&lanes);
        walk_unref(walk);
        return promise__enomem;
    }
    if (result == NULL) {
        if (lanes.count == 0 || (is_question(walk->op) && walk->running == 0 && !walk->over)) {
            result = finish(walk);
            for (size_t i = 0; i < lanes.count; i++)
                promise__release(st, lanes.promise[i]);
        } else if (is_question(walk->op)) {
            result = promise_choose(lanes.promise, lanes.count);
        } else {
            result = promise_join(lanes.promise, lanes.count);
            if (walk->op != ITER) {
                walk->refs++;
                result = promise__follow(st, result, &walk->step, false);
            }
        }
    }
    free(lanes.promise);
    walk_unref(walk);
    return result;
}

/* ---- all at once ---- */

static struct promise *finish_waited(struct promise__step *step, struct promise *settled)
{
    struct promise__state *st = promise__tls;
    struct walk *walk = (struct walk *)(void *)step;
    struct promise_values *values;
    union weft_value value = weft_ptr(NULL);

    (void)promise__take(st, settled, &value); /* the last reference */
    values = value.ptr;
    for (size_t i = 0; i < values->count; i++)
        (void)take(st, walk, walk->waited[i], values->source[i]);
    values->count = 0;
    promise_values_destroy(values);
    return finish_walk(step, NULL);
}

static bool note_waited(struct walk *walk, size_t *capacity, size_t count, size_t i)
{
    if (count == *capacity) {
        size_t larger = *capacity * 2 + 8;
        size_t *waited = realloc(walk->waited, larger * sizeof *waited);

        if (waited == NULL)
            return false;
        walk->waited = waited;
        *capacity = larger;
    }
    walk->waited[count] = i;
    return true;
}

/* Calls all elements; consumes the walk. */
static struct promise *start_all(struct promise__state *st, struct walk *walk)
{
    struct gathered pending = {NULL, 0, 0};
    struct promise *result;
    size_t capacity = 0;
    bool rejected = false;

    for (size_t i = 0; i < walk->items.count; i++) {
        struct promise *p = call(st, walk, i);

        switch (promise_state(p)) {
        case PROMISE_FULFILLED:
            (void)take(st, walk, i, p);
            continue;
        case PROMISE_REJECTED:
            if (rejected) { /* the one before it comes first for good */
                promise__release(st, p);
                continue;
            }
            rejected = true;
            break;
        default:
            break;
        }
        if (!gather(&pending, p) || !note_waited(walk, &capacity, pending.count - 1, i)) {
            forget(&pending);
            walk_unref(walk);
            return promise__enomem;
        }
    }
    if (pending.count == 0) {
        result = finish_walk(&walk->step, NULL);
    } else if (walk->op == ITER) {
        result = promise_join(pending.promise, pending.count);
        walk_unref(walk);
    } else {
        walk->step.run = finish_waited;
        result =
            promise__follow(st, promise_all(pending.promise, pending.count), &walk->step, false);
    }
    free(pending.promise);
    return result;
}

/* ---- the calls ---- */

enum { SERIAL = 1, PARALLEL = 0 };

struct start {
    struct promise__state *st;
    struct walk *walk;
    size_t max; /* or PARALLEL */
};

static struct promise *start(void *arg)
{
    struct start *s = arg;

    if (s->max != PARALLEL)
        return start_lanes(s->st, s->walk, s->max);
    if (!is_question(s->walk->op))
        return start_all(s->st, s->walk);
    s->walk->every = true;
    return start_lanes(s->st, s->walk, SIZE_MAX);
}

static struct promise *walk_over(enum op op, size_t max, struct items items, promise_item_fn *fn,
                                 promise_fold_fn *fold, union weft_value initial, void *ctx)
{
    struct start s = {promise__state_get(), NULL, max};

    if (s.st == NULL)
        return promise__no_state();
    if (fn == NULL && fold == NULL)
        return promise_rejected(-EINVAL);
    s.walk = new_walk(op, &items, ctx);
    if (s.walk == NULL)
        return promise__enomem;
    s.walk->step.run = finish_walk;
    s.walk->step.drop = drop_walk;
    s.walk->lone = max == SERIAL;
    if (is_fold(op)) {
        s.walk->fn.fold = fold;
        s.walk->so_far = promise_fulfilled(initial);
        if (promise_state(s.walk->so_far) == PROMISE_REJECTED) {
            walk_unref(s.walk);
            return promise__enomem;
        }
    } else {
        s.walk->fn.item = fn;
    }
    return promise_call(start, &s);
}

struct promise *promise_fold_left_s(const void *items, size_t count, size_t size,
                                    promise_fold_fn *fn, union weft_value initial, void *ctx)
{
    return walk_over(FOLD_LEFT, SERIAL, (struct items){items, count, size}, NULL, fn, initial, ctx);
}

struct promise *promise_fold_right_s(const void *items, size_t count, size_t size,
                                     promise_fold_fn *fn, union weft_value initial, void *ctx)
{
    return walk_over(FOLD_RIGHT, SERIAL, (struct items){items, count, size}, NULL, fn, initial,
                     ctx);
}

#define FORMS(name, op)                                                                           \
    struct promise *promise_##name##_s(const void *items, size_t count, size_t size,              \
                                       promise_item_fn *fn, void *ctx)                            \
    {                                                                                             \
        return walk_over(op, SERIAL, (struct items){items, count, size}, fn, NULL, weft_num(0),   \
                         ctx);                                                                    \
    }                                                                                             \
    struct promise *promise_##name##_p(const void *items, size_t count, size_t size,              \
                                       promise_item_fn *fn, void *ctx)                            \
    {                                                                                             \
        return walk_over(op, PARALLEL, (struct items){items, count, size}, fn, NULL, weft_num(0), \
                         ctx);                                                                    \
    }                                                                                             \
    struct promise *promise_##name##_n(size_t max, const void *items, size_t count, size_t size,  \
                                       promise_item_fn *fn, void *ctx)                            \
    {                                                                                             \
        return walk_over(op, max, (struct items){items, count, size}, max > 0 ? fn : NULL, NULL,  \
                         weft_num(0), ctx);                                                       \
    }

FORMS(iter, ITER)
FORMS(map, MAP)
FORMS(filter_map, FILTER_MAP)
FORMS(filter, FILTER)
FORMS(partition, PARTITION)
FORMS(exists, EXISTS)
FORMS(for_all, FOR_ALL)
FORMS(find, FIND)
