/* pause.c: tasks that wait for the next poll, for a time, or in a queue.
 *
 * A queued task's block is linked into its queue, which holds a reference on it; whatever settles
 * the task takes it out first. When such a task becomes one with another promise, that one takes
 * its place.
 */
#include "promise_internal.h"

/* ---- queues ---- */

struct queue {
    struct promise *first, *last;
    void *unused;
};
_Static_assert(sizeof(struct queue) == sizeof(struct promise_queue), "the public face of a queue");

static struct promise *neighbour(struct weft_link *link)
{
    return link == NULL ? NULL : promise__of_link(link);
}

static void set_first(struct promise_queue *queue, struct promise *p)
{
    queue->reserved[0] = p;
}

static void set_last(struct promise_queue *queue, struct promise *p)
{
    queue->reserved[1] = p;
}

static struct promise *first(const struct promise_queue *queue)
{
    return queue->reserved[0];
}

static void queue_add(struct promise_queue *queue, struct promise *p, bool front)
{
    struct promise *before = front ? NULL : queue->reserved[1];
    struct promise *after = front ? first(queue) : NULL;

    p->ctx = queue;
    p->link.prev = before != NULL ? &before->link : NULL;
    p->link.next = after != NULL ? &after->link : NULL;
    if (before != NULL)
        before->link.next = &p->link;
    else
        set_first(queue, p);
    if (after != NULL)
        after->link.prev = &p->link;
    else
        set_last(queue, p);
}

static void queue_remove(struct promise *p)
{
    struct promise_queue *queue = p->ctx;

    if (p->link.prev != NULL)
        p->link.prev->next = p->link.next;
    else
        set_first(queue, neighbour(p->link.next));
    if (p->link.next != NULL)
        p->link.next->prev = p->link.prev;
    else
        set_last(queue, neighbour(p->link.prev));
    p->link.next = NULL;
    p->link.kind = PROMISE__TASK;
}

void promise__queue_leave(struct promise__state *st, struct promise *p)
{
    queue_remove(p);
    promise__release(st, p);
}

void promise__queue_replace(struct promise *old, struct promise *p)
{
    struct promise_queue *queue = old->ctx;

    p->link.prev = old->link.prev;
    p->link.next = old->link.next;
    if (p->link.prev != NULL)
        p->link.prev->next = &p->link;
    else
        set_first(queue, p);
    if (p->link.next != NULL)
        p->link.next->prev = &p->link;
    else
        set_last(queue, p);
    old->link.next = NULL;
    old->link.count--; /* the queue's */
    p->link.count++;
}

/* Lets go of the first: it stays pending, a task that nobody will settle. */
static void queue_abandon(struct promise__state *st, struct promise_queue *queue)
{
    struct promise *p;

    while ((p = first(queue)) != NULL)
        promise__queue_leave(st, p);
}

void promise_queue_init(struct promise_queue *queue)
{
    *queue = (struct promise_queue){{NULL, NULL, NULL}};
}

void promise_queue_finish(struct promise_queue *queue)
{
    if (promise__tls != NULL)
        queue_abandon(promise__tls, queue);
}

bool promise_queue_empty(const struct promise_queue *queue)
{
    return first(queue) == NULL;
}

PROMISE__ENTRY struct promise *queue_wait(struct promise_queue *queue, bool front)
{
    struct promise__state *st = promise__state_get();
    struct promise *p;

    if (st == NULL || queue == NULL)
        return st == NULL ? promise__no_state() : promise__einval;
    PROMISE__ENTER(st);
    p = promise__new(st, PROMISE__QUEUED, PROMISE__PENDING | PROMISE__RESOLVER);
    if (p == NULL)
        return promise__enomem;
    p->link.count = 2;
    queue_add(queue, p, front);
    return p;
}

struct promise *promise_queue_append(struct promise_queue *queue)
{
    return queue_wait(queue, false);
}

struct promise *promise_queue_prepend(struct promise_queue *queue)
{
    return queue_wait(queue, true);
}

struct promise *promise_queue_take(struct promise_queue *queue)
{
    struct promise *p = first(queue);

    if (p != NULL) {
        queue_remove(p);
        p->link.flags |= PROMISE__RESOLVER; /* the caller settles it, whatever it was one with */
    }
    return p;
}

/* ---- pause ---- */

struct notify_call {
    struct promise__state *st;
};

static void notify(void *arg)
{
    struct promise__state *st = ((struct notify_call *)arg)->st;

    st->notifier(st->paused_count, st->notifier_ctx);
}

struct promise *promise_pause(void)
{
    struct promise__state *st = promise__state_get();
    struct promise *p;

    if (weft__unlikely(st == NULL))
        return promise__no_state();
    PROMISE__ENTER(st);
    p = promise__new(st, PROMISE__QUEUED, PROMISE__PENDING);
    if (weft__unlikely(p == NULL))
        return promise__enomem;
    p->link.count = 2;
    queue_add(&st->paused, p, false);
    st->paused_count++;
    if (!st->wake_registered) {
        st->wake_registered = true;
        weft__after_poll(st->rt, &st->wake_paused);
    }
    if (weft__unlikely(st->notifier != NULL)) {
        struct notify_call call = {st};

        if (weft__is_base(st->rt))
            notify(&call);
        else
            promise__on_base(st, notify, &call);
    }
    return p;
}

size_t promise_paused_count(void)
{
    return promise__tls != NULL ? promise__tls->paused_count : 0;
}

int promise_set_pause_notifier(promise_count_fn *notifier, void *ctx)
{
    struct promise__state *st = promise__state_get();

    if (st == NULL)
        return promise__no_state_error();
    st->notifier = notifier;
    st->notifier_ctx = ctx;
    return 0;
}

static void wake_generation(void *arg)
{
    struct promise__state *st = arg;
    struct promise_queue generation;
    struct promise *p = first(&st->paused);

    st->paused_count = 0;
    if (p->link.next == NULL) { /* one alone: nobody can take it out meanwhile */
        queue_remove(p);
        promise__settle(p, 0, weft_num(0));
        return;
    }
    generation = st->paused;
    promise_queue_init(&st->paused);
    for (; p != NULL; p = neighbour(p->link.next))
        p->ctx = &generation;
    while ((p = first(&generation)) != NULL) {
        /* The queue's reference becomes promise__settle's. */
        queue_remove(p);
        promise__settle(p, 0, weft_num(0));
    }
}

static inline void wakeup_paused(struct promise__state *st)
{
    if (weft__unlikely(st->stopped))
        queue_abandon(st, &st->paused);
    else if (first(&st->paused) == NULL)
        st->paused_count = 0;
    else if (weft__is_base(st->rt))
        wake_generation(st);
    else
        promise__on_base(st, wake_generation, st);
}

static void wake_paused(struct weft_task *task)
{
    struct promise__state *st = weft__container(task, struct promise__state, wake_paused);

    st->wake_registered = false;
    wakeup_paused(st);
}

void promise__pause_init(struct promise__state *st)
{
    promise_queue_init(&st->paused);
    st->wake_paused.run = wake_paused;
}

void promise_wakeup_paused(void)
{
    if (promise__tls != NULL)
        wakeup_paused(promise__tls);
}

void promise_abandon_paused(void)
{
    struct promise__state *st = promise__tls;

    if (st == NULL)
        return;
    queue_abandon(st, &st->paused);
    st->paused_count = 0;
}

/* ---- sleep ---- */

static void wake_sleeper(struct weft_timer *timer)
{
    promise__settle(promise__of_extra(timer), 0, weft_num(0));
}

static void stop_timer(struct promise *p)
{
    weft_timer_stop(promise__extra(p));
}

struct promise *promise__alarm(struct promise__state *st, weft_time at,
                               void (*fire)(struct weft_timer *timer))
{
    void *timer;
    struct promise *p =
        promise__create_operation(st->rt, sizeof(struct weft_timer), stop_timer, &timer);

    if (timer == NULL)
        return p;
    p->link.kind = PROMISE__ALARM;
    weft_timer_init(timer, fire);
    weft_timer_start(timer, at);
    return p;
}

struct promise *promise_sleep_until(weft_time at)
{
    struct promise__state *st = promise__state_get();

    if (st == NULL)
        return promise__no_state();
    PROMISE__ENTER(st);
    return PROMISE__MADE(promise__alarm(st, at, wake_sleeper));
}

struct promise *promise_sleep(int64_t ns)
{
    return PROMISE__MADE(promise_sleep_until(weft_after(ns)));
}
