/* cancel.c: canceling: the search for tasks, and the three wrappers that limit it.
 *
 * A cancel goes from a promise back to what will settle it, through operands and groups, and
 * rejects all tasks it finds before any callback runs; then their callbacks run, last found first.
 * The search goes along single operands in a loop and keeps its place in groups in the groups
 * themselves. A group or job is searched once in a search: a second visit could find nothing, and a
 * circle ends.
 */
#include "promise_wait.h"

/* Rejects pending `x`, a task of some kind, and pushes its frame. */
static void reject(struct promise__state *st, struct promise__stack *stack, struct promise *x)
{
    struct promise *source = NULL, *alarm;

    switch (x->link.kind) {
    case PROMISE__QUEUED:
        promise__queue_leave(st, x);
        break;
    case PROMISE__PROTECTED:
        promise__unlink(st, &x->link);
        break;
    case PROMISE__WRAP:
        promise__unlink(st, &x->link);
        source = x->operand; /* to be canceled after x's own cancel callbacks: promise__run */
        break;
    case PROMISE__ALARM:
    case PROMISE__REQUEST:
        alarm = x->link.kind == PROMISE__ALARM ? x : x->operand;
        alarm->fn.cancel(alarm);
        promise__release(st, alarm); /* the alarm's own */
        break;
    default:
        break;
    }
    x->value = weft_num(0);
    x->destroy = NULL;
    x->source = source;
    x->status = -ECANCELED;
    promise__set_state(x, PROMISE__REJECTED);
    if (source == NULL)
        x->link.kind = PROMISE__PLAIN;
    if (x->waiters != NULL || source != NULL)
        promise__push(stack, x);
}

static void request(struct promise__state *st, struct promise *operation)
{
    void (*cancel)(struct promise *) = operation->fn.cancel;

    (void)st;
    if (cancel == NULL)
        return;
    operation->fn.cancel = NULL;
    cancel(operation);
}

/* What a job waits for; NULL: nothing, or this search has been here. */
static struct promise *awaited_by(const struct promise__state *st, struct promise *p)
{
    struct promise__job *job = promise__extra(p);

    if (job->epoch == st->epoch)
        return NULL;
    job->epoch = st->epoch;
    return job->awaited;
}

/* Searches from `p` along single operands. Returns the group met on the way that is to be
 * searched. */
static struct promise__group *search_line(struct promise__state *st, struct promise__stack *stack,
                                          struct promise *p)
{
    size_t steps = st->live; /* more than that: it depends on itself */

    for (;;) {
        struct promise *x;

        if (!promise__pending(st, p))
            return NULL;
        x = promise__under(st, p);
        switch (x->link.kind) {
        case PROMISE__TASK:
        case PROMISE__QUEUED:
        case PROMISE__ALARM:
        case PROMISE__PROTECTED:
        case PROMISE__WRAP:
            reject(st, stack, x);
            return NULL;
        case PROMISE__OPERATION:
            request(st, x);
            return NULL;
        case PROMISE__JOB:
            p = awaited_by(st, x);
            break;
        case PROMISE__REQUEST:
            if (x->operand->link.kind == PROMISE__JOB) {
                p = awaited_by(st, x->operand);
                break;
            }
            if (x->operand->link.kind == PROMISE__ALARM)
                reject(st, stack, x);
            else
                request(st, x->operand);
            return NULL;
        case PROMISE__BIND:
        case PROMISE__MAP:
        case PROMISE__CATCH:
        case PROMISE__TRY:
        case PROMISE__FINALIZE:
        case PROMISE__CLEANUP:
            p = x->operand;
            break;
        case PROMISE__GROUPED:
            if (x->fn.group->epoch == st->epoch)
                return NULL;
            x->fn.group->epoch = st->epoch;
            return x->fn.group;
        default:
            return NULL;
        }
        if (p == NULL || steps-- == 0)
            return NULL;
    }
}

/* Where a group being searched names the one outside it. That of a pick that has fired stands on the
 * stack of frames, and its slots stand in no list. */
static struct weft_link **outer_group(struct promise__group *group)
{
    return group->link.flags & PROMISE__FIRED ? &group->slot[0].link.prev : &group->link.next;
}

void promise__search(struct promise__state *st, struct promise__stack *stack, struct promise *p)
{
    struct promise__stack *outer = st->search;
    struct promise__group *group;
    struct weft_link *groups = NULL; /* those being searched, innermost first */

    st->search = stack;
    st->epoch++;
    for (;;) {
        group = search_line(st, stack, p);
        if (group != NULL) {
            group->searched = 0;
            *outer_group(group) = groups;
            groups = &group->link;
        }
        p = NULL;
        while (groups != NULL && p == NULL) {
            group = (struct promise__group *)(void *)groups;
            while (group->searched < group->size && p == NULL)
                p = group->slot[group->searched++].operand;
            if (p == NULL)
                groups = *outer_group(group);
        }
        if (p == NULL)
            break;
    }
    st->search = outer;
}

struct cancel_call {
    struct promise__state *st;
    struct promise *p;
};

static void cancel(void *arg)
{
    struct cancel_call *call = arg;
    struct promise__stack stack = {NULL};

    promise__search(call->st, &stack, call->p);
    if (stack.top != NULL)
        promise__run(call->st, &stack);
}

void promise_cancel(struct promise *promise)
{
    struct promise__state *st = promise__tls;
    struct cancel_call call = {st, promise};

    if (st == NULL || promise == NULL || !PROMISE__VALID(st, promise, __func__) ||
        !promise__pending(st, promise))
        return;
    if (weft__unlikely(st->search != NULL)) /* a cancel function cancels something else */
        promise__search(st, st->search, promise);
    else if (weft__is_base(st->rt))
        cancel(&call);
    else
        promise__on_base(st, cancel, &call);
}

/* ---- wrappers ---- */

PROMISE__ENTRY struct promise *wrap(enum promise__kind kind, struct promise *p,
                                    const char *function)
{
    struct promise__state *st = promise__state_get();
    struct promise *x, *q;

    if (p == NULL)
        return promise__einval;
    if (st == NULL)
        return promise__no_state();
    PROMISE__ENTER(st);
    if (!PROMISE__VALID(st, p, function))
        return promise__einval;
    if (!promise__pending(st, p))
        return p;
    x = promise__under(st, p);
    q = promise__new(st, kind, PROMISE__PENDING);
    if (weft__unlikely(q == NULL)) {
        promise__release(st, p);
        return promise__enomem;
    }
    q->operand = NULL;
    promise__list_push(x, &q->link);
    x->link.flags |= PROMISE__ACTIVE;
    if (kind == PROMISE__WRAP)
        q->operand = p;
    else
        promise__release(st, p);
    return q;
}

struct promise *promise_protected(struct promise *promise)
{
    return wrap(PROMISE__PROTECTED, promise, __func__);
}

struct promise *promise_no_cancel(struct promise *promise)
{
    return wrap(PROMISE__NO_CANCEL, promise, __func__);
}

struct promise *promise_wrap_in_cancelable(struct promise *promise)
{
    return wrap(PROMISE__WRAP, promise, __func__);
}
