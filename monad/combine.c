/* combine.c: several promises at once: join, all, both; choose, pick, nchoose, npick,
 * nchoose_split.
 *
 * On promises that are not settled yet, the result and a group are made. The group has a slot per
 * operand, which stands in the operand's list and holds the operand's handle. A race leaves all
 * lists when its first slot fires, in O(1) each, so the losers keep nothing of it. All memory that
 * settling needs, the array of the values included, is allocated here, at the call.
 *
 * Which references a group keeps once nobody observes its result: pick and npick those on all
 * operands, for they still have to cancel them, and nchoose and nchoose_split, for they still look
 * at them. join and choose need none, all only those of operands that are settled.
 */
#include "promise_internal.h"

#include <stdlib.h>

_Static_assert(sizeof(void *) != 8 ||
                   (sizeof(struct promise_values) == 24 && sizeof(struct promise_split) == 40),
               "part of the ABI");

static bool is_race(enum promise__op op)
{
    return op >= PROMISE__CHOOSE;
}

/* ---- values ---- */

static void init_values(struct promise_values *values, void *memory, size_t capacity)
{
    values->count = 0;
    values->value = memory;
    values->source = (struct promise **)(void *)((union weft_value *)memory + capacity);
}

static struct promise_values *new_values(struct promise__state *st, size_t capacity)
{
    struct promise_values *values;

    if (st->fail && st->fail_after == 0)
        return NULL;
    values =
        malloc(sizeof *values + capacity * (sizeof(union weft_value) + sizeof(struct promise *)));
    if (values != NULL)
        init_values(values, values + 1, capacity);
    return values;
}

static struct promise_split *new_split(struct promise__state *st, size_t capacity)
{
    struct promise_split *split;

    if (st->fail && st->fail_after == 0)
        return NULL;
    split = malloc(sizeof *split +
                   capacity * (sizeof(union weft_value) + 2 * sizeof(struct promise *)));
    if (split == NULL)
        return NULL;
    init_values(&split->values, split + 1, capacity);
    split->pending_count = 0;
    split->pending = split->values.source + capacity;
    return split;
}

/* The value of fulfilled `p`, which is retained. */
static void add_value(struct promise__state *st, struct promise_values *values, struct promise *p)
{
    struct promise *owner = promise__handle(st, p);

    promise__retain(owner);
    (void)promise__outcome(st, owner, &values->value[values->count]);
    values->source[values->count++] = owner;
}

void promise_values_destroy(void *memory)
{
    struct promise_values *values = memory;

    if (values == NULL)
        return;
    for (size_t i = 0; i < values->count; i++)
        promise_unref(values->source[i]);
    free(values);
}

void promise_split_destroy(void *memory)
{
    struct promise_split *split = memory;

    if (split == NULL)
        return;
    for (size_t i = 0; i < split->values.count; i++)
        promise_unref(split->values.source[i]);
    for (size_t i = 0; i < split->pending_count; i++)
        promise_unref(split->pending[i]);
    free(split);
}

static void *new_payload(struct promise__state *st, enum promise__op op, size_t count, bool *failed)
{
    void *payload = NULL;

    *failed = false;
    if (op == PROMISE__SPLIT)
        payload = new_split(st, count);
    else if (op == PROMISE__ALL || op == PROMISE__NCHOOSE || op == PROMISE__NPICK)
        payload = new_values(st, count);
    else
        return NULL;
    *failed = payload == NULL;
    return payload;
}

static void (*payload_destructor(enum promise__op op))(void *)
{
    return op == PROMISE__SPLIT ? promise_split_destroy : promise_values_destroy;
}

/* ---- what operands there are ---- */

struct operands {
    struct promise *const *promise;
    size_t count;
};

static struct promise *operand(const struct operands *from, size_t i)
{
    return promise__or_invalid(from->promise[i]);
}

static void release_all(struct promise__state *st, const struct operands *from, size_t except)
{
    for (size_t i = 0; i < from->count; i++)
        if (i != except)
            promise__release(st, operand(from, i));
}

/* False, and everything released, if an operand is no promise of this runtime; debug builds see. */
static inline bool all_valid(struct promise__state *st, const struct operands *from,
                             const char *function)
{
    for (size_t bad = 0; bad < from->count; bad++) {
        if (PROMISE__VALID(st, operand(from, bad), function))
            continue;
        for (size_t i = 0; i < from->count; i++)
            if (i != bad && PROMISE__VALID(st, operand(from, i), function))
                promise__release(st, operand(from, i));
        return false;
    }
    return true;
}

/* ---- groups ---- */

static size_t group_bytes(size_t count)
{
    return sizeof(struct promise__group) + count * sizeof(struct promise__slot);
}

/* The group's memory, and what it holds; its slots stand in no list any more. */
static void free_group(struct promise__state *st, struct promise__group *group)
{
    if (group->link.flags & PROMISE__SUSPECT && st->suspects > 0)
        st->suspects--;
    for (uint32_t i = 0; i < group->size; i++)
        if (group->slot[i].operand != NULL)
            promise__release(st, group->slot[i].operand);
    promise__block_free(st, &group->link);
}

static enum promise__op op_of(const struct promise__group *group)
{
    return (enum promise__op)(group->link.flags & PROMISE__OP);
}

static void leave_lists(struct promise__state *st, struct promise__group *group)
{
    for (uint32_t i = 0; i < group->size && group->link.count > 0; i++)
        if (group->slot[i].link.next != NULL) {
            group->link.count--;
            promise__unlink(st, &group->slot[i].link);
        }
}

void promise__group_discard(struct promise__group *group)
{
    if (op_of(group) != PROMISE__PICK)
        free(group->payload); /* the promises it may name are freed as well */
}

/* Nothing will settle the result any more, and nobody holds it. */
static void dissolve(struct promise__state *st, struct promise__group *group)
{
    struct promise *q = group->result;

    q->link.kind = PROMISE__PLAIN;
    q->link.count++;
    group->link.count++; /* so that no removal of a slot ends it first */
    leave_lists(st, group);
    promise__group_discard(group);
    free_group(st, group);
    promise__release(st, q);
}

void promise__group_operand_died(struct promise__state *st, struct promise__slot *slot)
{
    struct promise__group *group = promise__slot_group(slot);

    slot->operand = NULL; /* it was not counted */
    if (--group->link.count == 0 || !is_race(op_of(group)))
        dissolve(st, group);
}

/* The result `q`, pending, has no counted reference left. */
void promise__group_unobserved(struct promise__state *st, struct promise *q)
{
    struct promise__group *group = q->fn.group;
    enum promise__op op = op_of(group);

    if (q->waiters == NULL && op != PROMISE__PICK && op != PROMISE__NPICK) {
        dissolve(st, group);
        return;
    }
    if (op > PROMISE__CHOOSE) {
        if (!(group->link.flags & PROMISE__SUSPECT)) {
            group->link.flags |= PROMISE__SUSPECT; /* may be a circle now */
            st->suspects++;
        }
        return;
    }
    for (uint32_t i = 0; i < group->size; i++) {
        struct promise *p = group->slot[i].operand;

        if (p != NULL && group->slot[i].link.next != NULL) {
            group->slot[i].operand = NULL;
            promise__release(st, p);
        }
    }
}

/* The result of `op` on operands of which some are pending. */
static struct promise *new_group(struct promise__state *st, enum promise__op op,
                                 const struct operands *from, int status)
{
    struct promise *q = promise__new(st, PROMISE__PLAIN, PROMISE__PENDING);
    struct promise__group *group = NULL;
    void *payload = NULL;
    bool failed = q == NULL || from->count > UINT32_MAX;

    if (!failed)
        payload = new_payload(st, op, from->count, &failed);
    if (!failed) {
        group = promise__block_sized(st, group_bytes(from->count));
        failed = group == NULL;
    }
    if (failed) {
        free(payload);
        if (q != NULL)
            promise__block_free(st, &q->link);
        release_all(st, from, SIZE_MAX);
        return promise__enomem;
    }
    q->link.kind = PROMISE__GROUPED;
    q->fn.group = group;
    group->link.next = NULL;
    group->link.count = 0;
    group->link.kind = PROMISE__GROUP;
    group->link.flags = (uint8_t)op;
    group->result = q;
    group->size = (uint32_t)from->count;
    group->cursor = 0;
    group->status = status;
    group->payload = payload;
    group->epoch = 0;
    for (uint32_t i = 0; i < group->size; i++) {
        struct promise__slot *slot = &group->slot[i];
        struct promise *p = operand(from, i);

        slot->link.kind = PROMISE__SLOT;
        slot->link.flags = 0;
        slot->link.count = i;
        slot->link.next = NULL;
        slot->operand = p;
        if (promise__pending(st, p)) {
            struct promise *x = promise__under(st, p);

            promise__list_push(x, &slot->link);
            x->link.flags |= PROMISE__ACTIVE;
            group->link.count++;
        } else if (op == PROMISE__JOIN) {
            slot->operand = NULL;
            promise__release(st, p);
        }
    }
    return q;
}

/* The result is to be settled: it has no role any more, and is held by the caller. */
static struct promise *take_result(struct promise__group *group)
{
    struct promise *q = group->result;

    q->link.kind = PROMISE__PLAIN;
    q->link.count++;
    return q;
}

static void settle_payload(struct promise__stack *stack, struct promise *q, enum promise__op op,
                           void *payload, int status)
{
    if (status < 0) {
        payload_destructor(op)(payload);
        promise__settle_error(stack, q, status);
    } else {
        promise__settle_value(stack, q, weft_ptr(payload), payload_destructor(op));
    }
}

/* ---- join, all, both ---- */

static void fire_gather(struct promise__state *st, struct promise__stack *stack, struct promise *p,
                        struct promise__group *group, struct promise__slot *slot)
{
    enum promise__op op = op_of(group);
    struct promise *q;

    if (group->status == 0 && promise__flags(p) == PROMISE__REJECTED)
        group->status = p->status;
    if (op == PROMISE__JOIN && slot->operand != NULL) {
        promise__release(st, slot->operand);
        slot->operand = NULL;
    } else if (op == PROMISE__ALL && slot->operand == NULL) {
        p->link.count++;
        slot->operand = p;
    }
    if (group->link.count > 0)
        return;
    q = take_result(group);
    if (op == PROMISE__ALL) {
        if (group->status == 0)
            for (uint32_t i = 0; i < group->size; i++)
                add_value(st, group->payload, group->slot[i].operand);
        settle_payload(stack, q, op, group->payload, group->status);
    } else if (group->status < 0) {
        promise__settle_error(stack, q, group->status);
    } else {
        promise__settle_value(stack, q, weft_num(0), NULL);
    }
    free_group(st, group);
    promise__release(st, q);
}

PROMISE__ENTRY struct promise *gather(enum promise__op op, struct promise *const promises[],
                                      size_t count, const char *function)
{
    struct operands from = {promises, count};
    struct promise__state *st = promise__state_get();
    struct promise_values *values;
    bool pending = false;
    int status = 0;

    if (st == NULL)
        return promise__no_state();
    PROMISE__ENTER(st);
    if (promises == NULL && count > 0)
        return PROMISE__MADE(promise_rejected(-EINVAL));
    if (!all_valid(st, &from, function))
        return promise__einval;
    for (size_t i = 0; i < count; i++) {
        struct promise room, *x = promise__look(st, operand(&from, i), &room);

        if (promise__flags(x) == PROMISE__PENDING)
            pending = true;
        else if (promise__flags(x) == PROMISE__REJECTED && status == 0)
            status = x->status;
    }
    if (pending)
        return new_group(st, op, &from, status);
    if (status < 0 || op == PROMISE__JOIN) {
        release_all(st, &from, SIZE_MAX);
        return PROMISE__MADE(status < 0 ? promise_rejected(status)
                                        : promise_fulfilled(weft_num(0)));
    }
    values = new_values(st, count);
    if (values != NULL)
        for (size_t i = 0; i < count; i++)
            add_value(st, values, operand(&from, i));
    release_all(st, &from, SIZE_MAX);
    return PROMISE__MADE(values != NULL ? promise_fulfilled_owned(values, promise_values_destroy)
                                        : promise__enomem);
}

struct promise *promise_join(struct promise *const promises[], size_t count)
{
    return gather(PROMISE__JOIN, promises, count, __func__);
}

struct promise *promise_all(struct promise *const promises[], size_t count)
{
    return gather(PROMISE__ALL, promises, count, __func__);
}

struct promise *promise_both(struct promise *first, struct promise *second)
{
    struct promise *const both[] = {first, second};

    return gather(PROMISE__ALL, both, 2, __func__);
}

/* ---- races ---- */

/* The settled ones among promises of which at least one is: 0 and their values (with op SPLIT also
 * the pending ones), or the error of the first rejected one. */
static int look(struct promise__state *st, enum promise__op op, struct promise *const *promise,
                size_t stride, size_t count, void *payload)
{
    struct promise_split *split = payload;
    struct promise_values *values = op == PROMISE__SPLIT ? &split->values : payload;

    for (size_t i = 0; i < count; i++) {
        struct promise *p = promise__or_invalid(promise[i * stride]);
        struct promise room, *x = promise__look(st, p, &room);

        if (promise__flags(x) == PROMISE__REJECTED)
            return x->status;
        if (promise__flags(x) == PROMISE__FULFILLED) {
            add_value(st, values, p);
        } else if (op == PROMISE__SPLIT) {
            promise__retain(p);
            split->pending[split->pending_count++] = p;
        }
    }
    return 0;
}

static void fire_race(struct promise__state *st, struct promise__stack *stack, struct promise *p,
                      struct promise__group *group)
{
    enum promise__op op = op_of(group);
    struct promise *q;

    group->link.count++;
    leave_lists(st, group);
    switch (op) {
    case PROMISE__PICK:
    case PROMISE__NPICK:
        group->link.flags |= PROMISE__FIRED;
        group->result->link.count++;
        if (op == PROMISE__PICK) {
            p->link.count++;
            group->payload = p;
        } else {
            group->status =
                look(st, op, &group->slot[0].operand, sizeof group->slot[0] / sizeof(void *),
                     group->size, group->payload);
        }
        group->link.next = stack->top; /* to cancel the others */
        stack->top = &group->link;
        return;
    case PROMISE__CHOOSE:
        q = take_result(group);
        for (uint32_t i = 0; i < group->size; i++)
            if (group->slot[i].operand != NULL) {
                promise__release(st, group->slot[i].operand);
                group->slot[i].operand = NULL;
            }
        promise__settle_like(st, stack, q, p, p->link.count == 1 && p->waiters == NULL);
        break;
    default:
        q = take_result(group);
        group->status = look(st, op, &group->slot[0].operand,
                             sizeof group->slot[0] / sizeof(void *), group->size, group->payload);
        settle_payload(stack, q, op, group->payload, group->status);
        break;
    }
    free_group(st, group);
    promise__release(st, q);
}

/* A pick that has a winner: cancels one operand after the other, then settles the result. */
void promise__group_step(struct promise__state *st, struct promise__stack *stack,
                         struct promise__group *group)
{
    struct promise *q, *winner;

    if (group->cursor < group->size) {
        promise__search(st, stack, group->slot[group->cursor++].operand);
        return;
    }
    stack->top = group->link.next;
    q = group->result;
    q->link.kind = PROMISE__PLAIN;
    if (op_of(group) == PROMISE__NPICK) {
        settle_payload(stack, q, PROMISE__NPICK, group->payload, group->status);
    } else {
        winner = group->payload;
        for (uint32_t i = 0; i < group->size; i++) {
            promise__release(st, group->slot[i].operand);
            group->slot[i].operand = NULL;
        }
        promise__settle_like(st, stack, q, winner,
                             winner->link.count == 1 && winner->waiters == NULL);
        promise__release(st, winner);
    }
    free_group(st, group);
    promise__release(st, q);
}

void promise__fire_slot(struct promise__state *st, struct promise__stack *stack, struct promise *p,
                        struct promise__slot *slot)
{
    struct promise__group *group = promise__slot_group(slot);

    group->link.count--;
    if (is_race(op_of(group)))
        fire_race(st, stack, p, group);
    else
        fire_gather(st, stack, p, group, slot);
}

/* Some operand is settled at the call: promise_pick, promise_npick cancel, on the base stack. */
struct race_call {
    struct promise__state *st;
    enum promise__op op;
    struct operands from;
    size_t rejected; /* index of the first one, or SIZE_MAX */
    size_t first;    /* index of the first settled one */
    struct promise *result;
};

static struct promise *keep(struct race_call *call, size_t i)
{
    struct promise *p = operand(&call->from, i);

    release_all(call->st, &call->from, i);
    return p;
}

static void cancel_from(struct race_call *call, size_t i)
{
    for (; i < call->from.count; i++)
        promise_cancel(operand(&call->from, i));
}

static struct promise *pick_settled(struct race_call *call)
{
    if (call->rejected != SIZE_MAX) {
        cancel_from(call, 0);
        return keep(call, call->rejected);
    }
    for (size_t i = 0; i < call->from.count; i++) {
        struct promise *p = operand(&call->from, i);

        if (promise__pending(call->st, p)) {
            promise_cancel(p);
        } else {
            cancel_from(call, i + 1);
            return keep(call, i);
        }
    }
    return keep(call, call->first); /* one is settled, and settled ones stay so */
}

static struct promise *look_settled(struct race_call *call)
{
    bool failed;
    void *payload = new_payload(call->st, call->op, call->from.count, &failed);
    struct promise *result = promise__enomem;

    if (!failed) {
        int status = look(call->st, call->op, call->from.promise, 1, call->from.count, payload);

        if (call->op == PROMISE__SPLIT) {
            struct promise_split *split = payload;

            for (size_t i = 0, n = split->pending_count; i < n / 2; i++) { /* as Lwt has it */
                struct promise *swap = split->pending[i];

                split->pending[i] = split->pending[n - 1 - i];
                split->pending[n - 1 - i] = swap;
            }
        }
        if (status < 0) {
            payload_destructor(call->op)(payload);
            result = promise_rejected(status);
        } else {
            result = promise_fulfilled_owned(payload, payload_destructor(call->op));
        }
    }
    if (call->op == PROMISE__NPICK)
        cancel_from(call, 0);
    release_all(call->st, &call->from, SIZE_MAX);
    return result;
}

static void race_settled(void *arg)
{
    struct race_call *call = arg;

    if (call->op == PROMISE__CHOOSE)
        call->result = keep(call, call->rejected != SIZE_MAX ? call->rejected : call->first);
    else if (call->op == PROMISE__PICK)
        call->result = pick_settled(call);
    else
        call->result = look_settled(call);
}

PROMISE__ENTRY struct promise *race(enum promise__op op, struct promise *const promises[],
                                    size_t count, const char *function)
{
    struct promise__state *st = promise__state_get();
    struct race_call call = {st, op, {promises, count}, SIZE_MAX, SIZE_MAX, NULL};

    if (st == NULL)
        return promise__no_state();
    PROMISE__ENTER(st);
    if (promises == NULL || count == 0)
        return PROMISE__MADE(promise_rejected(-EINVAL));
    if (!all_valid(st, &call.from, function))
        return promise__einval;
    for (size_t i = 0; i < count; i++) {
        struct promise room, *x = promise__look(st, operand(&call.from, i), &room);

        if (promise__flags(x) == PROMISE__PENDING)
            continue;
        if (call.first == SIZE_MAX)
            call.first = i;
        if (promise__flags(x) == PROMISE__REJECTED && call.rejected == SIZE_MAX)
            call.rejected = i;
    }
    if (call.first == SIZE_MAX)
        return new_group(st, op, &call.from, 0);
    if (weft__is_base(st->rt) || (op != PROMISE__PICK && op != PROMISE__NPICK))
        race_settled(&call);
    else
        promise__on_base(st, race_settled, &call);
    if (op > PROMISE__PICK) /* choose and pick give an operand */
        (void)PROMISE__MADE(call.result);
    return call.result;
}

struct promise *promise_choose(struct promise *const promises[], size_t count)
{
    return race(PROMISE__CHOOSE, promises, count, __func__);
}

struct promise *promise_pick(struct promise *const promises[], size_t count)
{
    return race(PROMISE__PICK, promises, count, __func__);
}

struct promise *promise_nchoose(struct promise *const promises[], size_t count)
{
    return race(PROMISE__NCHOOSE, promises, count, __func__);
}

struct promise *promise_npick(struct promise *const promises[], size_t count)
{
    return race(PROMISE__NPICK, promises, count, __func__);
}

struct promise *promise_nchoose_split(struct promise *const promises[], size_t count)
{
    return race(PROMISE__SPLIT, promises, count, __func__);
}
