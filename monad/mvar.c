/* mvar.c: a mailbox for one value. Takers wait only while it is empty, writers only while it is
 * full. */
#include "promise_wait.h"

#include <weft/promise_sync.h>

#include <stdlib.h>

struct mvar {
    struct promise__waits takers, writers; /* a writer's wait carries what it wants to put */
    union weft_value value;
    void (*destroy)(void *ptr);
    bool full;
};
_Static_assert(sizeof(struct mvar) <= sizeof(struct promise_mvar), "the public face of a mailbox");

static struct mvar *mvar_of(struct promise_mvar *mvar)
{
    return (struct mvar *)(void *)mvar;
}

static const struct mvar *const_mvar_of(const struct promise_mvar *mvar)
{
    return (const struct mvar *)(const void *)mvar;
}

void promise_mvar_init(struct promise_mvar *mvar, void (*destroy)(void *ptr))
{
    struct mvar *m = mvar_of(mvar);

    promise__waits_init(&m->takers);
    promise__waits_init(&m->writers);
    m->destroy = destroy;
    m->full = false;
}

void promise_mvar_finish(struct promise_mvar *mvar)
{
    struct mvar *m = mvar_of(mvar);
    bool full = m->full;

    m->full = false;
    if (full && m->destroy != NULL)
        m->destroy(m->value.ptr);
    if (promise__tls == NULL)
        return;
    if (m->destroy != NULL)
        for (struct promise__wait *writer = promise__waits_first(&m->writers); writer != NULL;
             writer = promise__waits_first(&m->writers)) {
            void *ptr = writer->value.ptr;

            promise__wake(writer, -ECANCELED, weft_num(0), NULL);
            m->destroy(ptr);
        }
    promise__waits_finish(&m->writers);
    promise__waits_finish(&m->takers);
    promise__flush(promise__tls);
}

struct promise_mvar *promise_mvar_create(void (*destroy)(void *ptr))
{
    struct promise_mvar *mvar = malloc(sizeof *mvar);

    if (mvar != NULL)
        promise_mvar_init(mvar, destroy);
    return mvar;
}

void promise_mvar_destroy(struct promise_mvar *mvar)
{
    if (mvar == NULL)
        return;
    promise_mvar_finish(mvar);
    free(mvar);
}

struct promise *promise_mvar_put(struct promise_mvar *mvar, union weft_value value)
{
    struct promise__state *st = promise__state_get();
    struct mvar *m = mvar_of(mvar);
    struct promise__wait *wait;
    struct promise *p;

    if (st == NULL || m == NULL)
        return st == NULL ? promise__no_state() : promise__einval;
    PROMISE__ENTER(st);
    if (m->full) {
        p = promise__wait_make(st, sizeof *wait, NULL, &wait);
        if (wait != NULL) {
            wait->value = value;
            promise__waits_append(&m->writers, wait);
        }
        return p;
    }
    p = promise__cell(st, weft_num(0), NULL);
    if (p == NULL)
        return promise__enomem;
    wait = promise__waits_first(&m->takers);
    if (wait != NULL) {
        promise__wake(wait, 0, value, m->destroy);
        promise__flush(st);
    } else {
        m->value = value;
        m->full = true;
    }
    return p;
}

/* The value, and the first writer's takes its place. */
static union weft_value take(struct mvar *m)
{
    struct promise__wait *writer = promise__waits_first(&m->writers);
    union weft_value value = m->value;

    if (writer != NULL) {
        m->value = writer->value;
        promise__wake(writer, 0, weft_num(0), NULL);
    } else {
        m->full = false;
    }
    return value;
}

struct promise *promise_mvar_take(struct promise_mvar *mvar)
{
    struct promise__state *st = promise__state_get();
    struct mvar *m = mvar_of(mvar);
    struct promise *p;

    if (st == NULL || m == NULL)
        return st == NULL ? promise__no_state() : promise__einval;
    PROMISE__ENTER(st);
    if (!m->full)
        return promise__wait_create(st, &m->takers);
    p = promise__cell(st, weft_num(0), m->destroy);
    if (p == NULL)
        return promise__enomem;
    p->value = take(m);
    promise__flush(st);
    return p;
}

bool promise_mvar_take_available(struct promise_mvar *mvar, union weft_value *value)
{
    struct mvar *m = mvar_of(mvar);

    if (m == NULL || !m->full)
        return false;
    *value = take(m);
    if (promise__tls != NULL)
        promise__flush(promise__tls);
    return true;
}

bool promise_mvar_is_empty(const struct promise_mvar *mvar)
{
    return mvar == NULL || !const_mvar_of(mvar)->full;
}
