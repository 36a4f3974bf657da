/* Each function of weft/promise_sequence.h, and changes to a sequence while it is gone through. */
#include "test_promise_modules.h"

#include <weft/promise_sequence.h>

struct letter {
    char name;
    struct promise_node node;
};

static struct letter letters[6];
static struct promise_sequence sequence;

static struct letter *letter_of(struct promise_node *node)
{
    return PROMISE_NODE_OF(node, struct letter, node);
}

/* abcdef, in the sequence. */
static void fill(void)
{
    promise_sequence_init(&sequence);
    for (int i = 0; i < 6; i++) {
        letters[i].name = (char)('a' + i);
        promise_node_init(&letters[i].node);
        promise_sequence_add_r(&sequence, &letters[i].node);
    }
    test_log[0] = '\0';
}

static void tell(struct promise_node *node, void *ctx)
{
    (void)ctx;
    say("%c", letter_of(node)->name);
}

#define holds(list, expected)                        \
    do {                                             \
        promise_sequence_iter_l((list), tell, NULL); \
        told(expected);                              \
    } while (0)

Test(promise_sequence, empty)
{
    promise_sequence_init(&sequence);
    cr_assert(promise_sequence_empty(&sequence));
    cr_assert_eq(promise_sequence_length(&sequence), 0);
    cr_assert_null(promise_sequence_take_l(&sequence));
    cr_assert_null(promise_sequence_take_r(&sequence));
    holds(&sequence, "");
    fill();
    cr_assert_not(promise_sequence_empty(&sequence));
}

Test(promise_sequence, length)
{
    fill();
    cr_assert_eq(promise_sequence_length(&sequence), 6);
    promise_sequence_take_l(&sequence);
    cr_assert_eq(promise_sequence_length(&sequence), 5);
}

Test(promise_sequence, add_l)
{
    struct letter x = {.name = 'x'}, y = {.name = 'y'};

    fill();
    promise_sequence_add_l(&sequence, &x.node);
    promise_sequence_add_l(&sequence, &y.node);
    holds(&sequence, "yxabcdef");
}

Test(promise_sequence, add_r)
{
    struct letter x = {.name = 'x'}, y = {.name = 'y'};

    fill();
    promise_sequence_add_r(&sequence, &x.node);
    promise_sequence_add_r(&sequence, &y.node);
    holds(&sequence, "abcdefxy");
}

Test(promise_sequence, take_l)
{
    fill();
    for (int i = 0; i < 6; i++)
        cr_assert_eq(promise_sequence_take_l(&sequence), &letters[i].node);
    cr_assert_null(promise_sequence_take_l(&sequence));
    cr_assert(promise_sequence_empty(&sequence));
}

Test(promise_sequence, take_r)
{
    fill();
    for (int i = 5; i >= 0; i--)
        cr_assert_eq(promise_sequence_take_r(&sequence), &letters[i].node);
    cr_assert_null(promise_sequence_take_r(&sequence));
}

Test(promise_sequence, remove)
{
    fill();
    promise_sequence_remove(&letters[2].node);
    cr_assert_not(promise_node_linked(&letters[2].node));
    cr_assert(promise_node_linked(&letters[3].node));
    promise_sequence_remove(&letters[2].node); /* does nothing */
    promise_sequence_remove(NULL);
    holds(&sequence, "abdef");
    promise_sequence_add_l(&sequence, &letters[2].node);
    holds(&sequence, "cabdef");
}

Test(promise_sequence, transfer_l)
{
    struct promise_sequence to;
    struct letter x = {.name = 'x'};

    fill();
    promise_sequence_init(&to);
    promise_sequence_add_l(&to, &x.node);
    promise_sequence_transfer_l(&sequence, &to);
    holds(&to, "abcdefx");
    cr_assert(promise_sequence_empty(&sequence));
    promise_sequence_transfer_l(&sequence, &to); /* nothing to move */
    promise_sequence_transfer_l(&to, &to);
    holds(&to, "abcdefx");
    promise_sequence_transfer_l(&to, &sequence);
    holds(&sequence, "abcdefx");
}

Test(promise_sequence, transfer_r)
{
    struct promise_sequence to;
    struct letter x = {.name = 'x'};

    fill();
    promise_sequence_init(&to);
    promise_sequence_add_l(&to, &x.node);
    promise_sequence_transfer_r(&sequence, &to);
    holds(&to, "xabcdef");
    cr_assert(promise_sequence_empty(&sequence));
    promise_sequence_transfer_r(&sequence, &to);
    promise_sequence_transfer_r(&to, &to);
    holds(&to, "xabcdef");
}

Test(promise_sequence, iter_l)
{
    fill();
    promise_sequence_iter_l(&sequence, tell, NULL);
    told("abcdef");
}

Test(promise_sequence, iter_r)
{
    fill();
    promise_sequence_iter_r(&sequence, tell, NULL);
    told("fedcba");
}

static union weft_value number(union weft_value so_far, struct promise_node *node, void *ctx)
{
    return weft_num(so_far.num * *(int *)ctx + letter_of(node)->name - 'a');
}

Test(promise_sequence, fold_l)
{
    int ten = 10;

    fill();
    cr_assert_eq(promise_sequence_fold_l(&sequence, number, weft_num(7), &ten).num, 7012345);
}

Test(promise_sequence, fold_r)
{
    int ten = 10;

    fill();
    cr_assert_eq(promise_sequence_fold_r(&sequence, number, weft_num(7), &ten).num, 7543210);
}

static bool after(struct promise_node *node, void *ctx)
{
    say("%c", letter_of(node)->name);
    return letter_of(node)->name > *(char *)ctx;
}

Test(promise_sequence, find_l)
{
    char c = 'c', z = 'z';

    fill();
    cr_assert_eq(promise_sequence_find_l(&sequence, after, &c), &letters[3].node);
    told("abcd");
    cr_assert_null(promise_sequence_find_l(&sequence, after, &z));
    told("abcdef");
    holds(&sequence, "abcdef"); /* no marker is left behind */
    cr_assert_eq(sequence.head.next, &letters[0].node);
    cr_assert_eq(sequence.head.prev, &letters[5].node);
}

Test(promise_sequence, find_r)
{
    char c = 'c', z = 'z';

    fill();
    cr_assert_eq(promise_sequence_find_r(&sequence, after, &c), &letters[5].node);
    told("f");
    cr_assert_null(promise_sequence_find_r(&sequence, after, &z));
    told("fedcba");
    cr_assert_eq(letters[2].node.next, &letters[3].node);
}

/* ---- while it is gone through ---- */

struct removal {
    char at;
    const char *what;
};

/* At a letter removes others, and wipes them, as if they had been freed. */
static void remove_at(struct promise_node *node, void *ctx)
{
    const struct removal *removal = ctx;

    tell(node, NULL);
    if (letter_of(node)->name != removal->at)
        return;
    for (const char *c = removal->what; *c != '\0'; c++) {
        promise_sequence_remove(&letters[*c - 'a'].node);
        memset(&letters[*c - 'a'].node, 0xee, sizeof letters[0].node);
    }
}

static void removals(void (*iter)(struct promise_sequence *, promise_node_fn *, void *), char at,
                     const char *what, const char *visited, const char *left)
{
    struct removal removal = {at, what};

    fill();
    iter(&sequence, remove_at, &removal);
    told(visited);
    holds(&sequence, left);
}

Test(promise_sequence, remove_the_current_node)
{
    removals(promise_sequence_iter_l, 'c', "c", "abcdef", "abdef");
    removals(promise_sequence_iter_r, 'c', "c", "fedcba", "abdef");
    removals(promise_sequence_iter_l, 'a', "a", "abcdef", "bcdef");
    removals(promise_sequence_iter_l, 'f', "f", "abcdef", "abcde");
    removals(promise_sequence_iter_r, 'a', "a", "fedcba", "bcdef");
    removals(promise_sequence_iter_r, 'f', "f", "fedcba", "abcde");
}

Test(promise_sequence, remove_a_neighbour)
{
    removals(promise_sequence_iter_l, 'c', "d", "abcef", "abcef");
    removals(promise_sequence_iter_l, 'c', "b", "abcdef", "acdef");
    removals(promise_sequence_iter_r, 'c', "b", "fedca", "acdef");
    removals(promise_sequence_iter_r, 'c', "d", "fedcba", "abcef");
}

Test(promise_sequence, remove_the_node_and_both_neighbours)
{
    removals(promise_sequence_iter_l, 'c', "bcd", "abcef", "aef");
    removals(promise_sequence_iter_l, 'c', "cdb", "abcef", "aef");
    removals(promise_sequence_iter_r, 'c', "bcd", "fedca", "aef");
    removals(promise_sequence_iter_r, 'c', "dcb", "fedca", "aef");
}

Test(promise_sequence, remove_everything)
{
    removals(promise_sequence_iter_l, 'c', "abcdef", "abc", "");
    removals(promise_sequence_iter_r, 'c', "fedcba", "fedc", "");
}

static union weft_value fold_removing(union weft_value so_far, struct promise_node *node, void *ctx)
{
    remove_at(node, ctx);
    return weft_num(so_far.num + 1);
}

static bool find_removing(struct promise_node *node, void *ctx)
{
    char c = letter_of(node)->name;

    remove_at(node, ctx);
    return c == 'e';
}

Test(promise_sequence, remove_in_fold_and_find)
{
    struct removal removal = {'c', "bcd"};

    fill();
    cr_assert_eq(promise_sequence_fold_l(&sequence, fold_removing, weft_num(0), &removal).num, 5);
    fill();
    cr_assert_eq(promise_sequence_fold_r(&sequence, fold_removing, weft_num(0), &removal).num, 5);
    fill();
    cr_assert_eq(promise_sequence_find_l(&sequence, find_removing, &removal), &letters[4].node);
    told("abce");
    holds(&sequence, "aef");
}

static void add_at(struct promise_node *node, void *ctx)
{
    struct letter *added = ctx;

    tell(node, NULL);
    if (letter_of(node)->name == 'c') {
        promise_sequence_add_l(&sequence, &added[0].node);
        promise_sequence_add_r(&sequence, &added[1].node);
    }
}

Test(promise_sequence, add_while_iterating)
{
    struct letter added[2] = {{.name = 'x'}, {.name = 'y'}};

    fill();
    promise_sequence_iter_l(&sequence, add_at, added);
    told("abcdefy");
    holds(&sequence, "xabcdefy");
}

static void nested(struct promise_node *node, void *ctx)
{
    (void)ctx;
    tell(node, NULL);
    cr_assert_not(promise_sequence_empty(&sequence));
    if (letter_of(node)->name == 'b') {
        cr_assert_eq(promise_sequence_length(&sequence), 6);
        promise_sequence_iter_r(&sequence, tell, NULL);
        cr_assert_eq(promise_sequence_take_l(&sequence), &letters[0].node);
        cr_assert_eq(promise_sequence_take_l(&sequence), &letters[1].node);
        cr_assert_eq(promise_sequence_take_l(&sequence), &letters[2].node);
        say(".");
    }
    if (letter_of(node)->name == 'f') {
        while (promise_sequence_take_r(&sequence) != NULL)
            ;
        cr_assert_eq(promise_sequence_length(&sequence), 0);
        promise_sequence_add_l(&sequence, node);
    }
}

Test(promise_sequence, markers_are_invisible)
{
    fill();
    promise_sequence_iter_l(&sequence, nested, NULL);
    told("abfedcba.def");
    holds(&sequence, "f");
}

/* ---- tasks ---- */

MODULE_TEST(promise_sequence, add_task_r)
{
    struct promise *p, *q, *r, *task;
    struct promise_node *node;

    promise_sequence_init(&sequence);
    p = promise_sequence_add_task_r(&sequence);
    q = promise_sequence_add_task_r(&sequence);
    r = promise_sequence_add_task_r(&sequence);
    cr_assert_eq(promise_sequence_length(&sequence), 3);
    cr_assert_eq(promise_resolve(p, weft_num(1)), -EINVAL); /* not while it waits */
    promise_cancel(q);
    cr_rejected(q, -ECANCELED);
    cr_assert_eq(promise_sequence_length(&sequence), 2);
    node = promise_sequence_take_l(&sequence);
    task = promise_node_task(node);
    cr_assert_eq(task, p);
    cr_assert_eq(promise_resolve(task, weft_num(1)), 0);
    promise_unref(task);
    cr_value(p, 1);
    /* taken, and canceled before it is settled */
    task = promise_node_task(promise_sequence_take_r(&sequence));
    promise_cancel(r);
    cr_assert_eq(promise_resolve(task, weft_num(1)), 0);
    promise_unref(task);
    cr_rejected(r, -ECANCELED);
    cr_assert(promise_sequence_empty(&sequence));
    return NULL;
}

MODULE_TEST(promise_sequence, add_task_l)
{
    struct promise *p, *q, *task;

    promise_sequence_init(&sequence);
    p = promise_sequence_add_task_l(&sequence);
    q = promise_sequence_add_task_l(&sequence);
    task = promise_node_task(promise_sequence_take_l(&sequence));
    cr_assert_eq(task, q);
    promise_reject(task, -EIO);
    promise_unref(task);
    cr_rejected(q, -EIO);
    promise_cancel(p);
    cr_assert(promise_sequence_empty(&sequence));
    cr_rejected(p, -ECANCELED);
    cr_assert_null(promise_node_task(NULL));
    fill();
    cr_assert_null(promise_node_task(&letters[0].node));
    cr_rejected(promise_sequence_add_task_l(NULL), -EINVAL);
    return NULL;
}

static struct promise *wait_in_line(union weft_value value, void *ctx)
{
    (void)value;
    (void)ctx;
    return promise_sequence_add_task_r(&sequence);
}

/* The task is one with the result of a bind: a cancel, and a settlement, go through that. */
MODULE_TEST(promise_sequence, a_task_that_became_one_with_another)
{
    struct promise *start = promise_create(), *p, *q, *task;

    promise_sequence_init(&sequence);
    p = promise_bind(promise_ref(start), wait_in_line, NULL);
    q = promise_bind(promise_ref(start), wait_in_line, NULL);
    promise_resolve(start, weft_num(0));
    promise_unref(start);
    cr_assert_eq(promise_sequence_length(&sequence), 2);
    promise_cancel(p);
    cr_rejected(p, -ECANCELED);
    cr_assert_eq(promise_sequence_length(&sequence), 1);
    task = promise_node_task(promise_sequence_take_l(&sequence));
    promise_resolve(task, weft_num(4));
    promise_unref(task);
    cr_value(q, 4);
    return NULL;
}

static void collect_tasks(struct promise_node *node, void *ctx)
{
    (void)ctx;
    promise_sequence_remove(node);
    promise_resolve(promise_node_task(node), weft_num(1));
    promise_unref(promise_node_task(node));
}

MODULE_TEST(promise_sequence, waking_all_tasks_while_iterating)
{
    struct promise *p[100];

    promise_sequence_init(&sequence);
    for (int i = 0; i < 100; i++)
        p[i] = promise_sequence_add_task_l(&sequence);
    promise_cancel(p[50]);
    promise_sequence_iter_r(&sequence, collect_tasks, NULL);
    for (int i = 0; i < 100; i++)
        if (i == 50)
            cr_rejected(p[i], -ECANCELED);
        else
            cr_value(p[i], 1);
    cr_assert(promise_sequence_empty(&sequence));
    promise__fail_after(0);
    cr_rejected(promise_sequence_add_task_l(&sequence), -ENOMEM);
    promise__fail_after(SIZE_MAX);
    return NULL;
}
