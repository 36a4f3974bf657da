/* timer.c: timers, in a pairing heap threaded through the timers themselves, ordered by time and
 * then by start.
 *
 * Starting one allocates nothing and is O(1); so is stopping one that nothing was melded under, as
 * almost every I/O deadline is. A timer's `prev` is its left sibling, or its parent if it is the
 * first child; the root's is itself, which is how a running timer is told from one that is not.
 */
#include "timer.h"

_Static_assert(sizeof(void *) != 8 || sizeof(struct weft_timer) == 48, "part of the ABI");

static bool before(const struct weft_timer *a, const struct weft_timer *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static struct weft_timer *meld(struct weft_timer *a, struct weft_timer *b)
{
    if (before(b, a)) {
        struct weft_timer *t = a;

        a = b;
        b = t;
    }
    b->prev = a;
    b->next = a->child;
    if (a->child != NULL)
        a->child->prev = b;
    a->child = b;
    return a;
}

/* Melds a list of siblings into one heap: pairs from left to right, then all from right to left. */
static struct weft_timer *meld_siblings(struct weft_timer *first)
{
    struct weft_timer *pairs = NULL, *root = NULL;

    while (first != NULL) {
        struct weft_timer *a = first, *b = a->next;

        if (b != NULL) {
            first = b->next;
            a->next = b->next = NULL;
            a = meld(a, b);
        } else {
            first = NULL;
        }
        a->next = pairs;
        pairs = a;
    }
    while (pairs != NULL) {
        struct weft_timer *a = pairs;

        pairs = a->next;
        a->next = NULL;
        root = root == NULL ? a : meld(root, a);
    }
    return root;
}

void weft_timer_init(struct weft_timer *timer, void (*fire)(struct weft_timer *timer))
{
    timer->fire = fire;
    timer->at = WEFT_FOREVER;
    timer->order = 0;
    timer->child = timer->next = timer->prev = NULL;
}

bool weft_timer_running(const struct weft_timer *timer)
{
    return timer->prev != NULL;
}

void weft__timer_start(struct weft_runtime *rt, struct weft_timer *timer, weft_time at)
{
    /* one that starts itself again for a time already past must not keep the loop: next poll */
    if (at <= rt->firing)
        at = rt->firing + 1;
    timer->at = at;
    timer->order = rt->timers_started++;
    timer->child = timer->next = NULL;
    rt->timers = rt->timers == NULL ? timer : meld(rt->timers, timer);
    rt->timers->prev = rt->timers;
    rt->timers->next = NULL;
}

static void set_root(struct weft_runtime *rt, struct weft_timer *root)
{
    rt->timers = root;
    if (root != NULL) {
        root->prev = root;
        root->next = NULL;
    }
}

void weft__timer_stop(struct weft_runtime *rt, struct weft_timer *timer)
{
    struct weft_timer *children;

    if (timer->prev == NULL)
        return;
    rt->timers_stopped++;
    children = meld_siblings(timer->child);
    if (rt->timers == timer) {
        set_root(rt, children);
    } else {
        if (timer->prev->child == timer)
            timer->prev->child = timer->next;
        else
            timer->prev->next = timer->next;
        if (timer->next != NULL)
            timer->next->prev = timer->prev;
        if (children != NULL)
            set_root(rt, meld(rt->timers, children));
    }
    timer->child = timer->next = timer->prev = NULL;
}

void weft__timers_fire(struct weft_runtime *rt, weft_time now)
{
    rt->firing = now;
    while (rt->timers != NULL && rt->timers->at <= now) {
        struct weft_timer *timer = rt->timers;

        weft__timer_stop(rt, timer);
        timer->fire(timer);
        weft__forget_locals(rt);
    }
    rt->firing = -1;
}

void weft_timer_start(struct weft_timer *timer, weft_time at)
{
    if (weft__rt != NULL && timer->prev == NULL)
        weft__timer_start(weft__rt, timer, at);
}

void weft_timer_stop(struct weft_timer *timer)
{
    if (weft__rt != NULL)
        weft__timer_stop(weft__rt, timer);
}
