/* sync.c: the objects that count: semaphore, event, barrier; and the end of any object's waits. */
#include "sync_core.h"

_Static_assert(sizeof(struct weft_semaphore) == 32 && sizeof(struct weft_event) == 32 &&
                   sizeof(struct weft_barrier) == 32,
               "part of the ABI");

void weft__finish_waits(struct weft_link **queue)
{
    struct weft_runtime *rt = weft__rt;

    if (rt == NULL) { /* it has ended, and what waited with it */
        *queue = NULL;
        return;
    }
    weft__wake_all(queue, -ECANCELED);
    weft__after_wakes(rt);
}

/* ---- semaphore ---- */

/* The first who waits has its units as soon as they are there; those behind it wait for that. */
static void grant(struct weft_semaphore *semaphore)
{
    while (semaphore->waits != NULL &&
           weft__first(semaphore->waits)->value.num <= semaphore->units) {
        struct weft__wait *wait = weft__pop(&semaphore->waits);

        semaphore->units -= wait->value.num;
        wait->value.num = 0;
        weft__wake(wait, 0);
    }
}

bool weft__semaphore_leave(struct weft__wait *wait, int why)
{
    struct weft_semaphore *semaphore = wait->object;

    (void)why;
    weft__remove(&semaphore->waits, wait);
    grant(semaphore); /* it may have been what the others waited behind */
    return true;
}

void weft_semaphore_init(struct weft_semaphore *semaphore, int64_t units)
{
    if (semaphore != NULL)
        *semaphore = (struct weft_semaphore){.units = units > 0 ? units : 0};
}

void weft_semaphore_finish(struct weft_semaphore *semaphore)
{
    if (semaphore != NULL)
        weft__finish_waits(&semaphore->waits);
}

int weft_semaphore_try_acquire(struct weft_semaphore *semaphore, int64_t units)
{
    int rc =
        semaphore == NULL || weft__rt == NULL ? -EINVAL : weft__semaphore_acquire(semaphore, units);

    return rc == WEFT__WAITS ? -EAGAIN : rc;
}

int weft_semaphore_release(struct weft_semaphore *semaphore, int64_t units)
{
    struct weft_runtime *rt = weft__rt;

    if (weft__unlikely(rt == NULL || semaphore == NULL || units < 1))
        return -EINVAL;
    if (weft__unlikely(units > INT64_MAX - semaphore->units))
        return -EOVERFLOW;
    semaphore->units += units;
    if (semaphore->waits != NULL) {
        grant(semaphore);
        weft__after_wakes(rt);
    }
    return 0;
}

int64_t weft_semaphore_units(const struct weft_semaphore *semaphore)
{
    return semaphore != NULL ? semaphore->units : 0;
}

/* ---- event ---- */

bool weft__event_leave(struct weft__wait *wait, int why)
{
    (void)why;
    weft__remove(&((struct weft_event *)wait->object)->waits, wait);
    return true;
}

void weft_event_init(struct weft_event *event)
{
    if (event != NULL)
        *event = (struct weft_event){0};
}

void weft_event_finish(struct weft_event *event)
{
    if (event != NULL)
        weft__finish_waits(&event->waits);
}

void weft_event_set(struct weft_event *event)
{
    struct weft_runtime *rt = weft__rt;

    if (rt == NULL || event == NULL)
        return;
    event->set = true;
    if (event->waits != NULL) {
        weft__wake_all(&event->waits, 0);
        weft__after_wakes(rt);
    }
}

void weft_event_reset(struct weft_event *event)
{
    if (event != NULL)
        event->set = false;
}

bool weft_event_is_set(const struct weft_event *event)
{
    return event != NULL && event->set;
}

/* ---- barrier ---- */

int weft__barrier_arrive(struct weft_barrier *barrier)
{
    if (barrier->parties == 0)
        return -EINVAL;
    if (barrier->arrived + 1 < barrier->parties)
        return WEFT__WAITS;
    barrier->arrived = 0;
    weft__wake_all(&barrier->waits, 0);
    return 0;
}

void weft__barrier_enter(struct weft_barrier *barrier, struct weft__wait *wait)
{
    wait->object = barrier;
    wait->value.num = 0;
    barrier->arrived++;
    weft__enter(&barrier->waits, wait);
}

bool weft__barrier_leave(struct weft__wait *wait, int why)
{
    struct weft_barrier *barrier = wait->object;

    (void)why;
    weft__remove(&barrier->waits, wait);
    barrier->arrived--;
    return true;
}

void weft_barrier_init(struct weft_barrier *barrier, size_t parties)
{
    if (barrier != NULL)
        *barrier = (struct weft_barrier){.parties = parties};
}

void weft_barrier_finish(struct weft_barrier *barrier)
{
    if (barrier == NULL)
        return;
    barrier->arrived = 0;
    weft__finish_waits(&barrier->waits);
}
