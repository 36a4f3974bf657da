/* inbox.c: a lock-free stack of posted tasks, taken whole and reversed by the runtime.
 *
 * No wake-up is lost: a poster pushes and then looks at `asleep`; the runtime sets `asleep` and then
 * looks at the stack. Both are sequentially consistent, so at least one sees the other. A post wakes
 * the engine at most once a sleep. The same holds for who gives the last reference back.
 * (tests/test_inbox_interleavings.c goes through all the orders in which this can happen.)
 *
 * The engine outlives every poster that can still call its wake: a poster counts itself in `users`
 * before it pushes, and closing waits for users to go.
 */
#include "inbox.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define CLOSED ((struct weft_task *)1)

static void tell(struct weft_task *task);

struct weft_inbox *weft__inbox_create(struct weft__engine *engine)
{
    struct weft_inbox *inbox = calloc(1, sizeof *inbox);

    if (inbox != NULL) {
        atomic_init(&inbox->head, NULL);
        atomic_init(&inbox->asleep, false);
        atomic_init(&inbox->users, 0);
        atomic_init(&inbox->refs, 1);
        atomic_init(&inbox->holders, 0);
        atomic_init(&inbox->told, 0);
        atomic_init(&inbox->asked, false);
        inbox->tell.run = tell;
        inbox->engine = engine;
    }
    return inbox;
}

struct weft_inbox *weft_inbox_ref(void)
{
    if (weft__rt == NULL)
        return NULL;
    weft__inbox_hold(weft__rt->inbox);
    return weft__rt->inbox;
}

static void wake(struct weft_inbox *inbox)
{
    if (atomic_load(&inbox->asleep) && atomic_exchange(&inbox->asleep, false))
        inbox->engine->class->wake(inbox->engine);
}

void weft__inbox_retain(struct weft_inbox *inbox)
{
    atomic_fetch_add(&inbox->refs, 1);
}

void weft__inbox_release(struct weft_inbox *inbox)
{
    if (atomic_fetch_sub(&inbox->refs, 1) == 1)
        free(inbox);
}

void weft__inbox_hold(struct weft_inbox *inbox)
{
    weft__inbox_retain(inbox);
    atomic_fetch_add(&inbox->holders, 1);
}

void weft_inbox_unref(struct weft_inbox *inbox)
{
    if (inbox == NULL)
        return;
    atomic_fetch_add(&inbox->users, 1);
    /* a runtime that slept because of this reference alone has come to a deadlock: let it see */
    if (atomic_fetch_sub(&inbox->holders, 1) == 1 && atomic_load(&inbox->head) != CLOSED)
        wake(inbox);
    atomic_fetch_sub(&inbox->users, 1);
    weft__inbox_release(inbox);
}

int weft__inbox_push(struct weft_inbox *inbox, struct weft_task *task)
{
    struct weft_task *head;

    atomic_fetch_add(&inbox->users, 1);
    head = atomic_load(&inbox->head);
    do {
        if (head == CLOSED) {
            atomic_fetch_sub(&inbox->users, 1);
            return -ESHUTDOWN;
        }
        task->next = head;
    } while (!atomic_compare_exchange_weak(&inbox->head, &head, task));
    return 0;
}

void weft__inbox_nudge(struct weft_inbox *inbox)
{
    wake(inbox);
    atomic_fetch_sub(&inbox->users, 1);
}

int weft_post(struct weft_inbox *inbox, struct weft_task *task)
{
    int rc = weft__inbox_push(inbox, task);

    if (rc == 0)
        weft__inbox_nudge(inbox);
    return rc;
}

bool weft__inbox_sleep(struct weft_inbox *inbox, bool lonely)
{
    atomic_store(&inbox->asleep, true);
    /* a last reference given back before this, too, has woken nobody */
    if (atomic_load(&inbox->head) == NULL && (!lonely || weft__inbox_held(inbox)))
        return true;
    atomic_store(&inbox->asleep, false);
    return false;
}

bool weft__inbox_run(struct weft_inbox *inbox)
{
    struct weft_task *task, *list = NULL;

    if (!weft__inbox_pending(inbox))
        return false;
    task = atomic_exchange(&inbox->head, NULL);
    while (task != NULL) { /* newest first: turn it round */
        struct weft_task *next = task->next;

        task->next = list;
        list = task;
        task = next;
    }
    while (list != NULL) {
        task = list;
        list = task->next;
        task->run(task);
        weft__forget_locals(weft__rt);
    }
    return true;
}

bool weft__inbox_close(struct weft_inbox *inbox)
{
    struct weft_task *none = NULL;

    if (!atomic_compare_exchange_strong(&inbox->head, &none, CLOSED))
        return false;
    while (atomic_load(&inbox->users) > 0)
        sched_yield();
    return true;
}

/* ---- counters, told to other threads ----
 *
 * One writer. Readers that meet it half way look again: the counters are words of their own, and
 * `told` is changed before the first and after the last of them. */

void weft__inbox_tell(struct weft_inbox *inbox)
{
    struct weft_stats stats = {.size = sizeof stats};
    uint64_t words[sizeof stats / sizeof(uint64_t)];
    unsigned told = atomic_load_explicit(&inbox->told, memory_order_relaxed);

    if (weft_stats(&stats) < 0)
        return;
    memcpy(words, &stats, sizeof stats);
    atomic_store_explicit(&inbox->told, told + 1, memory_order_relaxed);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        atomic_store_explicit(&inbox->counters[i], words[i], memory_order_release);
    atomic_store_explicit(&inbox->told, told + 2 == 0 ? 2 : told + 2, memory_order_release);
}

static void tell(struct weft_task *task)
{
    struct weft_inbox *inbox = weft__container(task, struct weft_inbox, tell);

    atomic_store(&inbox->asked, false);
    weft__inbox_tell(inbox);
}

static bool listen(struct weft_inbox *inbox, uint64_t *words, size_t count)
{
    unsigned told = atomic_load_explicit(&inbox->told, memory_order_acquire);

    /* acquire: who sees a word of a later telling sees that it has begun */
    for (size_t i = 0; i < count; i++)
        words[i] = atomic_load_explicit(&inbox->counters[i], memory_order_acquire);
    return told % 2 == 0 && told == atomic_load_explicit(&inbox->told, memory_order_relaxed);
}

int weft_inbox_stats(struct weft_inbox *inbox, struct weft_stats *stats)
{
    uint64_t words[sizeof *stats / sizeof(uint64_t)];
    size_t size;

    if (inbox == NULL || stats == NULL || stats->size < sizeof stats->size ||
        stats->size > sizeof *stats)
        return -EINVAL;
    if (!atomic_exchange(&inbox->asked, true) && weft_post(inbox, &inbox->tell) < 0)
        atomic_store(&inbox->asked, false); /* it has ended: what it told last stands */
    if (atomic_load(&inbox->told) == 0)
        return -EAGAIN;
    while (!listen(inbox, words, sizeof words / sizeof *words))
        sched_yield();
    size = stats->size;
    memcpy(stats, words, size);
    stats->size = size;
    return 0;
}
