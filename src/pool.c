/* pool.c: a pool's members and places, and who waits for either.
 *
 * `count` is the places taken: by members, free or in use, and by uses that are about to make one.
 * While somebody waits no member is free and all places are taken. A place that becomes free goes to
 * the first who waits, which then makes its member itself: so an error of that reaches the use that
 * it concerns, and a cancellation too.
 *
 * Free members are used, and withdrawn, oldest first, and a member of an earlier generation doesn't become
 * free: so those that a clear has found free and not yet come to stand before all others.
 */
#include "sync_core.h"

#include <stdlib.h>

/* Takes a place, and makes room for its member, so that giving it back can't fail. */
static int take_place(struct weft_pool *pool)
{
    if (pool->count == pool->room) {
        size_t room = pool->room == 0 ? 4 : pool->room * 2;
        union weft_value *ring = room > pool->room ? calloc(room, sizeof *ring) : NULL;

        if (ring == NULL)
            return -ENOMEM;
        for (size_t i = 0; i < pool->free_count; i++)
            ring[i] = pool->free[(pool->free_first + i) % pool->room];
        free(pool->free);
        pool->free = ring;
        pool->free_first = 0;
        pool->room = room;
    }
    pool->count++;
    return WEFT__RUNS;
}

int weft__pool_take(struct weft_pool *pool, union weft_value *member)
{
    if (pool->destroyed)
        return -ECANCELED;
    if (pool->free_count > 0) {
        int rc = pool->stale > 0 ? WEFT__STALE : 0;

        (void)weft__pool_withdraw(pool, member);
        return rc;
    }
    return pool->count < pool->max ? take_place(pool) : WEFT__WAITS;
}

void weft__pool_enter(struct weft_pool *pool, struct weft__wait *wait)
{
    wait->object = pool;
    pool->waiting++;
    weft__enter(&pool->waits, wait);
}

bool weft__pool_leave(struct weft__wait *wait, int why)
{
    struct weft_pool *pool = wait->object;

    (void)why;
    pool->waiting--;
    weft__remove(&pool->waits, wait);
    return true;
}

void weft__pool_give(struct weft_pool *pool, union weft_value member)
{
    struct weft__wait *wait;

    if (pool->waits == NULL) {
        pool->free[(pool->free_first + pool->free_count++) % pool->room] = member;
        return;
    }
    wait = weft__pop(&pool->waits);
    pool->waiting--;
    wait->value = member;
    weft__wake(wait, 0);
}

void weft__pool_leave_place(struct weft_pool *pool)
{
    if (pool->waits == NULL) {
        pool->count--;
        return;
    }
    pool->waiting--;
    weft__wake(weft__pop(&pool->waits), WEFT__RUNS);
}

bool weft__pool_withdraw(struct weft_pool *pool, union weft_value *member)
{
    if (pool->free_count == 0)
        return false;
    *member = pool->free[pool->free_first];
    pool->free_first = (pool->free_first + 1) % pool->room;
    pool->free_count--;
    if (pool->stale > 0)
        pool->stale--;
    return true;
}

void weft__pool_renew(struct weft_pool *pool)
{
    pool->generation++;
    pool->stale = pool->free_count;
}

void weft__pool_unref(struct weft_pool *pool)
{
    if (--pool->refs > 0)
        return;
    free(pool->free);
    free(pool);
}

struct weft_pool *weft_pool_create(size_t max)
{
    struct weft_pool *pool = max > 0 ? calloc(1, sizeof *pool) : NULL;

    if (pool != NULL) {
        pool->max = max;
        pool->refs = 1;
    }
    return pool;
}

void weft_pool_destroy(struct weft_pool *pool)
{
    if (pool == NULL)
        return;
    pool->destroyed = true;
    pool->generation++;
    pool->waiting = 0;
    weft__finish_waits(&pool->waits);
    weft__pool_unref(pool);
}

size_t weft_pool_waiting(const struct weft_pool *pool)
{
    return pool != NULL ? pool->waiting : 0;
}

size_t weft_pool_free(const struct weft_pool *pool)
{
    return pool != NULL ? pool->free_count : 0;
}

size_t weft_pool_count(const struct weft_pool *pool)
{
    return pool != NULL ? pool->count : 0;
}
