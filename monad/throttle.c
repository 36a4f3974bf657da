/* throttle.c: promise_throttle.
 *
 * Keys are found in a tree (tsearch(3): no key, chosen by whom ever, makes it slow), and stand in a
 * line in the order in which their periods end, which is the order in which they began. At the head
 * of the line are those that are over: who waits there begins a new period, at the end of the line;
 * a key for which nobody waits goes. The timer, on while anybody waits, is set to the end of the
 * first.
 *
 * Who waits is an alarm (promise_internal.h) with a place in its key's sequence. Settling runs
 * callbacks, which may do anything to the throttle; so those whose turn has come are first moved to
 * a sequence on the stack, and the throttle isn't touched afterwards.
 */
#include <weft/promise_sequence.h>
#include <weft/promise_throttle.h>

#include "promise_internal.h"

#include <search.h>
#include <stdlib.h>

struct key {
    const char *name; /* NULL: a number */
    uint64_t number;
};

struct line_entry {
    struct key key;           /* first: what the tree compares */
    struct promise_node line; /* its place in the line */
    struct promise_sequence waiting;
    uint64_t passed; /* in this period */
    weft_time until; /* when that ends */
    char name[];
};

struct promise_throttle {
    struct weft_timer timer;
    uint64_t rate;
    int64_t period;
    size_t max, waiting, keys;
    void *tree;
    struct promise_sequence line;
};

/* Behind the promise of one who waits. */
struct place {
    struct promise_node node;
    struct promise_throttle *throttle; /* NULL: its turn has come */
};

/* ---- keys ---- */

static int compare(const void *left, const void *right)
{
    const struct key *a = left, *b = right;

    if (a->name != NULL && b->name != NULL)
        return strcmp(a->name, b->name);
    if (a->name != NULL || b->name != NULL)
        return a->name != NULL ? 1 : -1;
    return a->number < b->number ? -1 : a->number > b->number;
}

static struct line_entry *first_in_line(struct promise_throttle *t)
{
    struct promise_node *node = t->line.head.next;

    return node != &t->line.head ? weft__container(node, struct line_entry, line) : NULL;
}

/* A new period begins. */
static void begin(struct promise_throttle *t, struct line_entry *entry, weft_time now)
{
    promise_sequence_remove(&entry->line);
    promise_sequence_add_r(&t->line, &entry->line);
    entry->passed = 0;
    entry->until = now > INT64_MAX - t->period ? WEFT_FOREVER : now + t->period;
}

static void remove_key(struct promise_throttle *t, struct line_entry *entry)
{
    (void)tdelete(&entry->key, &t->tree, compare);
    promise_sequence_remove(&entry->line);
    free(entry);
    t->keys--;
}

static struct line_entry *new_key(struct promise_throttle *t, const struct key *key, weft_time now)
{
    size_t length = key->name != NULL ? strlen(key->name) + 1 : 0;
    struct line_entry *entry = calloc(1, sizeof *entry + length);

    if (entry == NULL)
        return NULL;
    entry->key.number = key->number;
    if (key->name != NULL)
        entry->key.name = memcpy(entry->name, key->name, length);
    promise_sequence_init(&entry->waiting);
    if (tsearch(&entry->key, &t->tree, compare) == NULL) {
        free(entry);
        return NULL;
    }
    t->keys++;
    begin(t, entry, now);
    return entry;
}

static struct line_entry *find_key(struct promise_throttle *t, const struct key *key)
{
    struct key *const *found = tfind(key, &t->tree, compare);

    return found != NULL ? weft__container(*found, struct line_entry, key) : NULL;
}

/* ---- turns ---- */

static void set_timer(struct promise_throttle *t)
{
    struct line_entry *first = first_in_line(t);

    weft_timer_stop(&t->timer);
    if (t->waiting > 0 && first != NULL)
        weft_timer_start(&t->timer, first->until);
}

static void settle_all(struct promise_sequence *turn, int status)
{
    struct promise_node *node;

    while ((node = promise_sequence_take_l(turn)) != NULL)
        promise__settle(promise__of_extra(weft__container(node, struct place, node)), status,
                        weft_num(1));
}

/* Moves up to `count` of those who wait for `entry`. */
static void move(struct promise_throttle *t, struct line_entry *entry, uint64_t count,
                 struct promise_sequence *turn)
{
    struct promise_node *node;

    for (; count > 0 && (node = promise_sequence_take_l(&entry->waiting)) != NULL; count--) {
        weft__container(node, struct place, node)->throttle = NULL;
        promise_sequence_add_r(turn, node);
        t->waiting--;
        entry->passed++;
    }
}

static void period_over(struct weft_timer *timer)
{
    struct promise_throttle *t = weft__container(timer, struct promise_throttle, timer);
    struct promise_sequence turn;
    weft_time now = weft_now();
    struct line_entry *entry;

    promise_sequence_init(&turn);
    while ((entry = first_in_line(t)) != NULL && entry->until <= now) {
        if (promise_sequence_empty(&entry->waiting)) {
            remove_key(t, entry);
            continue;
        }
        begin(t, entry, now);
        move(t, entry, t->rate, &turn);
    }
    set_timer(t);
    settle_all(&turn, 0);
}

static void leave(struct promise *p)
{
    struct place *place = promise__extra(p);

    promise_sequence_remove(&place->node);
    if (place->throttle != NULL && --place->throttle->waiting == 0)
        weft_timer_stop(&place->throttle->timer);
}

static struct promise *queue(struct promise__state *st, struct promise_throttle *t,
                             struct line_entry *entry)
{
    struct place *place;
    struct promise *p;
    void *extra;

    p = promise__create_operation(st->rt, sizeof *place, leave, &extra);
    if (extra == NULL)
        return p;
    p->link.kind = PROMISE__ALARM;
    place = extra;
    promise_node_init(&place->node);
    place->throttle = t;
    promise_sequence_add_r(&entry->waiting, &place->node);
    if (t->waiting++ == 0)
        set_timer(t);
    return p;
}

static struct promise *ask(struct promise_throttle *t, const struct key *key)
{
    struct promise__state *st = promise__state_get();
    struct line_entry *entry;
    weft_time now;

    if (st == NULL)
        return promise__no_state();
    if (t == NULL)
        return promise_rejected(-EINVAL);
    PROMISE__ENTER(st);
    now = weft_now();
    while ((entry = first_in_line(t)) != NULL && entry->until <= now &&
           promise_sequence_empty(&entry->waiting))
        remove_key(t, entry);
    entry = find_key(t, key);
    if (entry == NULL)
        entry = new_key(t, key, now);
    else if (entry->until <= now && promise_sequence_empty(&entry->waiting))
        begin(t, entry, now);
    if (entry == NULL)
        return promise__enomem;
    if (entry->passed < t->rate && promise_sequence_empty(&entry->waiting)) {
        entry->passed++;
        return promise_fulfilled(weft_num(1));
    }
    if (t->waiting >= t->max)
        return promise_fulfilled(weft_num(0));
    return queue(st, t, entry);
}

/* ---- the calls ---- */

int promise_throttle_create(struct promise_throttle **throttle, uint64_t rate, int64_t period,
                            size_t max)
{
    struct promise_throttle *t;

    if (throttle == NULL || rate == 0 || period <= 0)
        return -EINVAL;
    t = calloc(1, sizeof *t);
    if (t == NULL)
        return -ENOMEM;
    weft_timer_init(&t->timer, period_over);
    promise_sequence_init(&t->line);
    t->rate = rate;
    t->period = period;
    t->max = max;
    *throttle = t;
    return 0;
}

void promise_throttle_destroy(struct promise_throttle *throttle)
{
    struct promise_sequence turn;
    struct line_entry *entry;

    if (throttle == NULL)
        return;
    promise_sequence_init(&turn);
    weft_timer_stop(&throttle->timer);
    while ((entry = first_in_line(throttle)) != NULL) {
        if (promise__tls != NULL) /* else they are gone with their runtime */
            move(throttle, entry, UINT64_MAX, &turn);
        remove_key(throttle, entry);
    }
    free(throttle);
    settle_all(&turn, -ECANCELED);
}

struct promise *promise_throttle_wait(struct promise_throttle *throttle, uint64_t key)
{
    return ask(throttle, &(struct key){NULL, key});
}

struct promise *promise_throttle_wait_name(struct promise_throttle *throttle, const char *name)
{
    if (name == NULL)
        return promise_rejected(-EINVAL);
    return ask(throttle, &(struct key){name, 0});
}

size_t promise_throttle_waiting(const struct promise_throttle *throttle)
{
    return throttle != NULL ? throttle->waiting : 0;
}

size_t promise_throttle_keys(const struct promise_throttle *throttle)
{
    return throttle != NULL ? throttle->keys : 0;
}
