/* sequence_list.c: promise_sequence: an intrusive list, circular through its head.
 *
 * Whoever goes through a sequence has a marker in it, a node on the stack that stands right after
 * the node being visited. Nodes come and go around the marker as around any node, so the walk needs
 * no other protection; all else skips markers. A removed node's next is NULL.
 *
 * A task's node lives behind its promise (promise__create_operation), as an alarm: a cancel rejects
 * the promise and takes the node out. Taken out otherwise, the promise becomes an ordinary task.
 */
#include <weft/promise_sequence.h>

#include "promise_internal.h"

_Static_assert(sizeof(struct promise_node) == 3 * sizeof(void *) &&
                   sizeof(struct promise_sequence) == sizeof(struct promise_node),
               "part of the ABI");

enum kind { ITEM, HEAD, MARKER, TASK };

static void link_between(struct promise_node *prev, struct promise_node *node,
                         struct promise_node *next)
{
    node->prev = prev;
    node->next = next;
    prev->next = node;
    next->prev = node;
}

static void unlink_node(struct promise_node *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    node->next = node->prev = NULL;
}

static struct promise_node *step(const struct promise_node *node, bool left_to_right)
{
    return left_to_right ? node->next : node->prev;
}

/* The first node that isn't a marker, from `node` on; NULL at the end. */
static struct promise_node *visible(struct promise_node *node, bool left_to_right)
{
    while (node->kind == MARKER)
        node = step(node, left_to_right);
    return node->kind == HEAD ? NULL : node;
}

void promise_node_init(struct promise_node *node)
{
    *node = (struct promise_node){NULL, NULL, ITEM};
}

bool promise_node_linked(const struct promise_node *node)
{
    return node->next != NULL;
}

void promise_sequence_init(struct promise_sequence *sequence)
{
    sequence->head = (struct promise_node){&sequence->head, &sequence->head, HEAD};
}

bool promise_sequence_empty(const struct promise_sequence *sequence)
{
    return visible(sequence->head.next, true) == NULL;
}

size_t promise_sequence_length(const struct promise_sequence *sequence)
{
    const struct promise_node *node;
    size_t length = 0;

    for (node = sequence->head.next; node->kind != HEAD; node = node->next)
        length += node->kind != MARKER;
    return length;
}

void promise_sequence_add_l(struct promise_sequence *sequence, struct promise_node *node)
{
    link_between(&sequence->head, node, sequence->head.next);
}

void promise_sequence_add_r(struct promise_sequence *sequence, struct promise_node *node)
{
    link_between(sequence->head.prev, node, &sequence->head);
}

/* ---- tasks ---- */

static struct promise *task_of(struct promise_node *node)
{
    return promise__of_extra(node);
}

/* The task's node is out: from now on its holder may settle it. */
static void release_task(struct promise_node *node)
{
    struct promise *p = task_of(node), *x = promise__under(promise__tls, p);

    if (promise__flags(x) == PROMISE__PENDING)
        x->link.kind = PROMISE__TASK;
    p->link.flags |= PROMISE__RESOLVER;
}

static void cancel_task(struct promise *p)
{
    unlink_node(promise__extra(p));
}

static struct promise *add_task(struct promise_sequence *sequence, bool left)
{
    struct promise__state *st = promise__state_get();
    struct promise_node *node;
    struct promise *p;
    void *extra;

    if (st == NULL || sequence == NULL)
        return st == NULL ? promise__no_state() : promise__einval;
    PROMISE__ENTER(st);
    p = promise__create_operation(st->rt, sizeof *node, cancel_task, &extra);
    if (extra == NULL)
        return p;
    p->link.kind = PROMISE__ALARM;
    node = extra;
    node->kind = TASK;
    if (left)
        promise_sequence_add_l(sequence, node);
    else
        promise_sequence_add_r(sequence, node);
    return p;
}

struct promise *promise_sequence_add_task_l(struct promise_sequence *sequence)
{
    return add_task(sequence, true);
}

struct promise *promise_sequence_add_task_r(struct promise_sequence *sequence)
{
    return add_task(sequence, false);
}

struct promise *promise_node_task(struct promise_node *node)
{
    return node != NULL && node->kind == TASK ? task_of(node) : NULL;
}

/* ---- taking out ---- */

void promise_sequence_remove(struct promise_node *node)
{
    if (node == NULL || node->next == NULL)
        return;
    unlink_node(node);
    if (node->kind == TASK)
        release_task(node);
}

struct promise_node *promise_sequence_take_l(struct promise_sequence *sequence)
{
    struct promise_node *node = visible(sequence->head.next, true);

    promise_sequence_remove(node);
    return node;
}

struct promise_node *promise_sequence_take_r(struct promise_sequence *sequence)
{
    struct promise_node *node = visible(sequence->head.prev, false);

    promise_sequence_remove(node);
    return node;
}

/* Moves what is in `from` to between `prev` and `next`. */
static void transfer(struct promise_sequence *from, struct promise_node *prev,
                     struct promise_node *next)
{
    struct promise_node *first = from->head.next, *last = from->head.prev;

    if (first->kind == HEAD)
        return;
    prev->next = first;
    first->prev = prev;
    last->next = next;
    next->prev = last;
    promise_sequence_init(from);
}

void promise_sequence_transfer_l(struct promise_sequence *from, struct promise_sequence *to)
{
    if (from != to)
        transfer(from, &to->head, to->head.next);
}

void promise_sequence_transfer_r(struct promise_sequence *from, struct promise_sequence *to)
{
    if (from != to)
        transfer(from, to->head.prev, &to->head);
}

/* ---- going through ---- */

/* Moves the marker past the next node and returns that; NULL at the end, with the marker gone. */
static struct promise_node *next_node(struct promise_node *marker, bool left_to_right)
{
    struct promise_node *node = visible(step(marker, left_to_right), left_to_right);

    unlink_node(marker);
    if (node == NULL)
        return NULL;
    if (left_to_right)
        link_between(node, marker, node->next);
    else
        link_between(node->prev, marker, node);
    return node;
}

static void start_marker(struct promise_node *marker, struct promise_sequence *sequence,
                         bool left_to_right)
{
    marker->kind = MARKER;
    if (left_to_right)
        promise_sequence_add_l(sequence, marker);
    else
        promise_sequence_add_r(sequence, marker);
}

static void iter(struct promise_sequence *sequence, promise_node_fn *fn, void *ctx,
                 bool left_to_right)
{
    struct promise_node marker, *node;

    start_marker(&marker, sequence, left_to_right);
    while ((node = next_node(&marker, left_to_right)) != NULL)
        fn(node, ctx);
}

static union weft_value fold(struct promise_sequence *sequence, promise_node_fold_fn *fn,
                             union weft_value so_far, void *ctx, bool left_to_right)
{
    struct promise_node marker, *node;

    start_marker(&marker, sequence, left_to_right);
    while ((node = next_node(&marker, left_to_right)) != NULL)
        so_far = fn(so_far, node, ctx);
    return so_far;
}

static struct promise_node *find(struct promise_sequence *sequence, promise_node_test_fn *test,
                                 void *ctx, bool left_to_right)
{
    struct promise_node marker, *node;

    start_marker(&marker, sequence, left_to_right);
    while ((node = next_node(&marker, left_to_right)) != NULL)
        if (test(node, ctx)) {
            unlink_node(&marker);
            break;
        }
    return node;
}

void promise_sequence_iter_l(struct promise_sequence *sequence, promise_node_fn *fn, void *ctx)
{
    iter(sequence, fn, ctx, true);
}

void promise_sequence_iter_r(struct promise_sequence *sequence, promise_node_fn *fn, void *ctx)
{
    iter(sequence, fn, ctx, false);
}

union weft_value promise_sequence_fold_l(struct promise_sequence *sequence,
                                         promise_node_fold_fn *fn, union weft_value initial,
                                         void *ctx)
{
    return fold(sequence, fn, initial, ctx, true);
}

union weft_value promise_sequence_fold_r(struct promise_sequence *sequence,
                                         promise_node_fold_fn *fn, union weft_value initial,
                                         void *ctx)
{
    return fold(sequence, fn, initial, ctx, false);
}

struct promise_node *promise_sequence_find_l(struct promise_sequence *sequence,
                                             promise_node_test_fn *test, void *ctx)
{
    return find(sequence, test, ctx, true);
}

struct promise_node *promise_sequence_find_r(struct promise_sequence *sequence,
                                             promise_node_test_fn *test, void *ctx)
{
    return find(sequence, test, ctx, false);
}
