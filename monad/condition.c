/* condition.c: promises that wait to be told something, with or without a mutex. */
#include "promise_wait.h"

#include <weft/promise_sync.h>

#include <stdlib.h>

_Static_assert(sizeof(struct promise__waits) <= sizeof(struct promise_condition),
               "the public face of a condition");

static struct promise__waits *waits_of(struct promise_condition *condition)
{
    return (struct promise__waits *)(void *)condition;
}

void promise_condition_init(struct promise_condition *condition)
{
    promise__waits_init(waits_of(condition));
}

void promise_condition_finish(struct promise_condition *condition)
{
    promise__waits_finish(waits_of(condition));
    if (promise__tls != NULL)
        promise__flush(promise__tls);
}

struct promise_condition *promise_condition_create(void)
{
    struct promise_condition *condition = malloc(sizeof *condition);

    if (condition != NULL)
        promise_condition_init(condition);
    return condition;
}

void promise_condition_destroy(struct promise_condition *condition)
{
    if (condition == NULL)
        return;
    promise_condition_finish(condition);
    free(condition);
}

/* Not to be canceled: whoever waited with the mutex relies on having it afterwards. */
static struct promise *lock_again(void *mutex)
{
    return promise_no_cancel(promise_mutex_lock(mutex));
}

struct promise *promise_condition_wait(struct promise_condition *condition,
                                       struct promise_mutex *mutex)
{
    struct promise__state *st = promise__state_get();
    struct promise__wait *wait;
    struct promise *p;

    if (st == NULL || condition == NULL)
        return st == NULL ? promise__no_state() : promise__einval;
    PROMISE__ENTER(st);
    p = promise__wait_make(st, sizeof *wait, NULL, &wait);
    if (wait == NULL)
        return p;
    if (mutex != NULL) {
        p = promise_finalize(p, lock_again, mutex);
        if (p == promise__enomem) {
            promise__release(st, promise__of_extra(wait)); /* nobody's: gone */
            return p;
        }
    }
    promise__waits_append(waits_of(condition), wait);
    promise_mutex_unlock(mutex);
    return p;
}

void promise_condition_signal(struct promise_condition *condition, union weft_value value)
{
    struct promise__state *st = promise__tls;
    struct promise__wait *first;

    if (st == NULL || condition == NULL)
        return;
    first = promise__waits_first(waits_of(condition));
    if (first == NULL)
        return;
    promise__wake(first, 0, value, NULL);
    promise__flush(st);
}

static void wake_all(struct promise_condition *condition, int status, union weft_value value)
{
    struct promise__state *st = promise__tls;
    struct promise__wait *wait;

    if (st == NULL || condition == NULL)
        return;
    /* No callback runs before the flush, so nobody can come back in between. */
    while ((wait = promise__waits_first(waits_of(condition))) != NULL)
        promise__wake(wait, status, value, NULL);
    promise__flush(st);
}

void promise_condition_broadcast(struct promise_condition *condition, union weft_value value)
{
    wake_all(condition, 0, value);
}

void promise_condition_broadcast_error(struct promise_condition *condition, int err)
{
    wake_all(condition, err < 0 ? err : -EINVAL, weft_num(0));
}
