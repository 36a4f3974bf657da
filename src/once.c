/* once.c: a value that is made once. While it is being made one owner is at it; when that gives up,
 * the first who waits becomes the owner. */
#include "sync_core.h"

_Static_assert(sizeof(struct weft_once) == 64, "part of the ABI");

enum { NEW, MAKING, MADE };

int weft__once_begin(struct weft_once *once, void *self)
{
    switch (once->state) {
    case MADE:
        return once->status;
    case MAKING:
        return once->owner == self && self != WEFT__ANYBODY ? -EDEADLK : WEFT__WAITS;
    default:
        once->state = MAKING;
        once->owner = self;
        return WEFT__RUNS;
    }
}

void weft__once_enter(struct weft_once *once, struct weft__wait *wait)
{
    wait->object = once;
    weft__enter(&once->waits, wait);
}

bool weft__once_leave(struct weft__wait *wait, int why)
{
    (void)why;
    weft__remove(&((struct weft_once *)wait->object)->waits, wait);
    return true;
}

void weft__once_made(struct weft_once *once, int status, union weft_value value)
{
    struct weft__wait *wait;

    once->owner = NULL;
    if (status == -ECANCELED) {
        if (once->waits == NULL) {
            once->state = NEW;
            return;
        }
        wait = weft__pop(&once->waits);
        once->owner = wait->owner;
        weft__wake(wait, WEFT__RUNS);
        return;
    }
    once->state = MADE;
    once->status = status;
    once->value = value;
    while (once->waits != NULL) {
        wait = weft__pop(&once->waits);
        wait->value = value;
        weft__wake(wait, status);
    }
}

void weft_once_init(struct weft_once *once, void (*destroy)(void *ptr))
{
    if (once != NULL)
        *once = (struct weft_once){.destroy = destroy};
}

int weft_once_reset(struct weft_once *once)
{
    bool has_value;

    if (once == NULL)
        return -EINVAL;
    if (once->state == MAKING)
        return -EBUSY;
    has_value = once->state == MADE && once->status == 0;
    once->state = NEW;
    if (has_value && once->destroy != NULL)
        once->destroy(once->value.ptr);
    return 0;
}

void weft_once_finish(struct weft_once *once)
{
    if (once == NULL)
        return;
    weft__finish_waits(&once->waits);
    (void)weft_once_reset(once);
}

int weft_once_peek(const struct weft_once *once, union weft_value *value)
{
    if (once == NULL)
        return -EINVAL;
    if (once->state != MADE)
        return -EAGAIN;
    if (once->status == 0 && value != NULL)
        *value = once->value;
    return once->status;
}
