/* needs: fibers */
/* soak_sync: locks, channels and fiber_select under random load, checked against what must hold.
 *
 *     soak_sync [SEED [ROUNDS [ENGINE]]]
 *
 * A dozen fibers do ROUNDS things in all at the same few objects: in either style, with all kinds of
 * deadlines, each in a scope of its own. Main cancels scopes at random, and looks at every object
 * between two passes. What must hold:
 *
 *   - nobody is alone with what is not its own (locks), no more units are taken than there are
 *   - an item sent is received once, one not sent never
 *   - no wake-up is lost: nobody stands in a queue for what could be had (check_objects)
 *   - in the end no promise, timer or operation is left, and nobody in any queue
 *
 * One seed gives the same choices each time, and on one engine, but for times and descriptors, the
 * same course. */
#include "fiber_internal.h"
#include "promise_internal.h"
#include "sync_core.h"

#include <weft/weft.h>

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "soak_sync: seed %" PRIu64 ", %ld rounds left: %s:%d: %s\n", the_seed, \
                    rounds_left, __FILE__, __LINE__, #condition);                                  \
            fprintf(stderr, " " __VA_ARGS__);                                                      \
            fprintf(stderr, "\n");                                                                 \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

enum { WORKERS = 12, MUTEXES = 2, CHANNELS = 3, UNITS = 4, PARTIES = 3, MEMBERS = 2 };

static uint64_t the_seed, state, switches;
static long rounds_left;

static uint64_t random64(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * UINT64_C(0x2545f4914f6cdd1d);
}

static unsigned below(unsigned n)
{
    return (unsigned)((random64() >> 32) * n >> 32);
}

static bool one_in(unsigned n)
{
    return below(n) == 0;
}

static weft_time some_deadline(void)
{
    switch (below(8)) {
    case 0:
        return WEFT_NOWAIT;
    case 1:
        return 1; /* long past, but worth a wait */
    case 2:
    case 3:
        return weft_after(below(20000));
    default:
        return WEFT_FOREVER;
    }
}

/* ---- what the fibers share ---- */

static struct weft_mutex mutexes[MUTEXES];
static int in_mutex[MUTEXES];
static struct weft_condition condition; /* with mutexes[0] */
static struct weft_rwlock rwlock;
static int reading, writing;
static struct weft_semaphore semaphore;
static int64_t units_taken;
static struct weft_event event;
static struct weft_barrier barrier;
static struct weft_once once;
static bool making;
static struct weft_pool *pool;
static bool member_in_use[1024];
static int members_made, members_alive;
static int channel_pipe[2];

static struct shared_channel {
    struct weft_channel channel;
    union weft_value room[4];
    int users;
} channels[CHANNELS];
static const size_t capacities[CHANNELS] = {0, 1, 3};

static struct worker {
    struct fiber_scope scope;
    bool cancellable;
} workers[WORKERS];

/* ---- items ---- */

enum { OFFERED = 1, SENT = 2, KEPT = 4, RECEIVED = 8 };

static uint8_t *items;
static size_t items_count, items_room;

static union weft_value new_item(void)
{
    if (items_count == items_room) {
        items_room = items_room == 0 ? 1024 : items_room * 2;
        items = realloc(items, items_room);
        CHECK(items != NULL);
    }
    items[items_count] = OFFERED;
    return weft_num((int64_t)items_count++);
}

static void item_sent(union weft_value item, bool sent)
{
    CHECK(!(items[item.num] & (SENT | KEPT)));
    CHECK(sent || !(items[item.num] & RECEIVED), "item %" PRId64 " was received", item.num);
    items[item.num] |= sent ? SENT : KEPT;
}

static void item_received(union weft_value item)
{
    CHECK(item.num >= 0 && (size_t)item.num < items_count);
    CHECK(!(items[item.num] & (RECEIVED | KEPT)), "item %" PRId64, item.num);
    items[item.num] |= RECEIVED;
}

static void check_items(void)
{
    for (size_t i = 0; i < items_count; i++)
        CHECK(items[i] == (OFFERED | SENT | RECEIVED) || items[i] == (OFFERED | KEPT),
              "item %zu: %x", i, items[i]);
}

/* ---- what must hold at any time ---- */

static size_t length(const struct weft_link *queue)
{
    const struct weft_link *link = queue;
    size_t n = 0;

    if (queue == NULL)
        return 0;
    do {
        CHECK(link->next->prev == link && link->prev->next == link);
        CHECK(n++ < 2 * WORKERS * 5);
        link = link->next;
    } while (link != queue);
    return n;
}

static const struct weft__wait *first(const struct weft_link *queue)
{
    return weft__container(queue, const struct weft__wait, waiter.link);
}

static void check_channel(const struct weft_channel *c)
{
    CHECK(length(c->senders) + length(c->receivers) <= WORKERS * 5);
    CHECK(c->count <= c->capacity);
    if (c->closed)
        CHECK(c->senders == NULL && c->receivers == NULL);
    if (c->senders != NULL)
        CHECK(c->count == c->capacity);
    if (c->receivers != NULL)
        CHECK(c->count == 0 && (c->senders == NULL || c->capacity == 0));
}

static void check_objects(void)
{
    for (int i = 0; i < MUTEXES; i++) {
        length(mutexes[i].waits);
        CHECK(mutexes[i].owner != NULL || mutexes[i].waits == NULL);
    }
    length(condition.waits);
    length(rwlock.waits);
    if (rwlock.waits != NULL)
        CHECK(rwlock.writer != NULL ||
              (rwlock.readers > 0 && first(rwlock.waits)->waiter.link.flags & WEFT__WRITES));
    CHECK(rwlock.writer == NULL || rwlock.readers == 0);
    length(semaphore.waits);
    if (semaphore.waits != NULL)
        CHECK(first(semaphore.waits)->value.num > semaphore.units);
    CHECK(length(event.waits) == 0 || !event.set);
    CHECK(length(barrier.waits) == barrier.arrived && barrier.arrived < PARTIES);
    CHECK(length(once.waits) == 0 || making || once.owner != NULL);
    CHECK(length(pool->waits) == pool->waiting);
    if (pool->waits != NULL)
        CHECK(pool->free_count == 0 && pool->count == pool->max);
    for (int i = 0; i < CHANNELS; i++)
        check_channel(&channels[i].channel);
}

/* ---- waiting, in either style ---- */

/* Awaits a promise with a deadline, and cancels it if that didn't settle it; what was settled in spite
 * of it counts. */
static int await(struct promise *promise, union weft_value *value, weft_time deadline)
{
    int rc = fiber_await(promise_ref(promise), value, deadline);

    if (promise_state(promise) == PROMISE_PENDING) {
        promise_cancel(promise);
        if (promise_state(promise) == PROMISE_PENDING) { /* it wants its mutex back first */
            struct fiber_scope shield;

            CHECK(fiber_scope_open(&shield, WEFT_FOREVER) == 0);
            while (promise_state(promise) == PROMISE_PENDING)
                fiber_yield();
            (void)fiber_scope_close(&shield, 0);
        }
    }
    switch (promise_poll(promise, value, &rc)) {
    case PROMISE_FULFILLED:
        rc = 0;
        break;
    case PROMISE_REJECTED:
        break;
    default:
        CHECK(false, "still pending");
    }
    promise_unref(promise);
    return rc;
}

/* Every way to fail that has nothing to do with the object. */
static bool gave_up(int rc)
{
    return rc == -ETIMEDOUT || rc == -ECANCELED;
}

static void hold(void)
{
    for (unsigned n = below(4); n > 0; n--)
        (void)fiber_yield();
}

/* ---- what the fibers do ---- */

static void use_mutex(void)
{
    int i = (int)below(MUTEXES);
    union weft_value value;
    int rc;

    if (one_in(8))
        rc = weft_mutex_try_lock(&mutexes[i]);
    else if (one_in(3))
        rc = await(promise_mutex_lock(&mutexes[i]), &value, some_deadline());
    else
        rc = fiber_mutex_lock(&mutexes[i], some_deadline());
    CHECK(rc == 0 || gave_up(rc) || rc == -EAGAIN || rc == -EOWNERDEAD, "%d", rc);
    if (rc < 0)
        return;
    CHECK(in_mutex[i]++ == 0);
    hold();
    CHECK(in_mutex[i]-- == 1);
    if (one_in(50)) {
        weft_mutex_poison(&mutexes[i]);
        (void)fiber_yield();
        weft_mutex_clear(&mutexes[i]);
    }
    CHECK(weft_mutex_unlock(&mutexes[i]) == 0);
}

static void use_condition(void)
{
    union weft_value value;
    int rc = fiber_mutex_lock(&mutexes[0], some_deadline());

    if (rc < 0)
        return;
    CHECK(in_mutex[0]++ == 0);
    hold();
    in_mutex[0]--;
    if (one_in(3))
        rc = await(promise_condition_wait(&condition, &mutexes[0]), &value, some_deadline());
    else
        rc = fiber_condition_wait(&condition, &mutexes[0], some_deadline());
    CHECK(rc == 0 || gave_up(rc) || rc == -EPROTO, "%d", rc);
    CHECK(in_mutex[0]++ == 0, "after %d", rc);
    hold();
    CHECK(in_mutex[0]-- == 1);
    CHECK(weft_mutex_unlock(&mutexes[0]) == 0, "it must be the fiber's, after %d", rc);
}

static void signal_condition(void)
{
    if (one_in(5))
        weft_condition_broadcast(&condition);
    else if (one_in(5))
        promise_condition_broadcast_error(&condition, -EPROTO);
    else
        weft_condition_signal(&condition);
}

static void use_rwlock(void)
{
    bool writes = one_in(3);
    union weft_value value;
    int rc;

    if (one_in(3))
        rc = await(writes ? promise_rwlock_write(&rwlock) : promise_rwlock_read(&rwlock), &value,
                   some_deadline());
    else
        rc = writes ? fiber_rwlock_write(&rwlock, some_deadline())
                    : fiber_rwlock_read(&rwlock, some_deadline());
    CHECK(rc == 0 || gave_up(rc), "%d", rc);
    if (rc < 0)
        return;
    CHECK(writing == 0 && (!writes || reading == 0));
    *(writes ? &writing : &reading) += 1;
    hold();
    CHECK(writes ? writing == 1 && reading == 0 : writing == 0 && reading > 0);
    if (writes && one_in(3)) {
        writing--;
        reading++;
        writes = false;
        CHECK(weft_rwlock_downgrade(&rwlock) == 0);
        hold();
    }
    *(writes ? &writing : &reading) -= 1;
    CHECK(weft_rwlock_unlock(&rwlock) == 0);
}

static void use_semaphore(void)
{
    int64_t units = 1 + below(3);
    union weft_value value;
    int rc;

    if (one_in(8))
        rc = weft_semaphore_try_acquire(&semaphore, units);
    else if (one_in(3))
        rc = await(promise_semaphore_acquire(&semaphore, units), &value, some_deadline());
    else
        rc = fiber_semaphore_acquire(&semaphore, units, some_deadline());
    CHECK(rc == 0 || gave_up(rc) || rc == -EAGAIN, "%d", rc);
    if (rc < 0)
        return;
    units_taken += units;
    CHECK(units_taken <= UNITS);
    hold();
    units_taken -= units;
    CHECK(weft_semaphore_release(&semaphore, units) == 0);
}

static void use_event(void)
{
    union weft_value value;
    int rc = 0;

    switch (below(4)) {
    case 0:
        weft_event_set(&event);
        break;
    case 1:
        weft_event_reset(&event);
        break;
    case 2:
        rc = await(promise_event_wait(&event), &value, some_deadline());
        break;
    default:
        rc = fiber_event_wait(&event, some_deadline());
    }
    CHECK(rc == 0 || gave_up(rc), "%d", rc);
}

static void use_barrier(void)
{
    union weft_value value;
    int rc = one_in(3) ? await(promise_barrier_wait(&barrier), &value, some_deadline())
                       : fiber_barrier_wait(&barrier, some_deadline());

    CHECK(rc == 0 || rc == 1 || gave_up(rc), "%d", rc);
}

static int make(void *unused, union weft_value *value)
{
    int rc = 0;

    (void)unused;
    CHECK(!making);
    making = true;
    for (unsigned n = below(4); n > 0 && rc == 0; n--)
        rc = fiber_yield();
    making = false;
    *value = weft_num(42);
    return rc < 0 ? rc : one_in(5) ? -EIO : 0;
}

static void use_once(void)
{
    union weft_value value = weft_num(0);
    int rc;

    if (one_in(4)) {
        rc = weft_once_reset(&once);
        CHECK(rc == 0 || rc == -EBUSY);
        return;
    }
    rc = fiber_once_get(&once, make, NULL, &value, some_deadline());
    CHECK(rc == 0 ? value.num == 42 : gave_up(rc) || rc == -EIO, "%d", rc);
}

static int make_member(void *unused, union weft_value *member)
{
    (void)unused;
    hold();
    if (fiber_check() < 0 || one_in(5))
        return -EIO;
    *member = weft_num(members_made++ % 1024);
    members_alive++;
    CHECK(members_alive <= MEMBERS, "%d members", members_alive);
    return 0;
}

static bool is_valid(void *unused, union weft_value member)
{
    (void)unused;
    CHECK(!member_in_use[member.num]);
    return !one_in(10);
}

static void end_member(void *unused, union weft_value member)
{
    (void)unused;
    CHECK(!member_in_use[member.num]);
    CHECK(fiber_yield() == 0);
    members_alive--;
}

static const struct fiber_pool_options pool_options = {
    .size = sizeof pool_options,
    .create = make_member,
    .validate = is_valid,
    .dispose = end_member,
};

static int use_member(union weft_value member, void *unused)
{
    (void)unused;
    CHECK(!member_in_use[member.num]);
    member_in_use[member.num] = true;
    hold();
    member_in_use[member.num] = false;
    return 7;
}

static void use_pool(void)
{
    int rc;

    if (one_in(20)) {
        CHECK(fiber_pool_clear(pool, &pool_options) == 0);
        return;
    }
    rc = fiber_pool_use(pool, &pool_options, use_member, NULL, some_deadline());
    CHECK(rc == 7 || gave_up(rc) || rc == -EIO, "%d", rc);
}

/* ---- channels ---- */

static void send_item(struct weft_channel *c)
{
    union weft_value item = new_item(), value;
    int rc;

    if (one_in(8))
        rc = weft_channel_try_send(c, item);
    else if (one_in(3))
        rc = await(promise_channel_send(c, item), &value, some_deadline());
    else
        rc = fiber_channel_send(c, item, some_deadline());
    CHECK(rc == 0 || gave_up(rc) || rc == -EAGAIN || rc == -EPIPE, "%d", rc);
    item_sent(item, rc == 0);
}

static void receive_item(struct weft_channel *c)
{
    union weft_value item;
    int rc;

    if (one_in(8))
        rc = weft_channel_try_recv(c, &item);
    else if (one_in(3))
        rc = await(promise_channel_recv(c), &item, some_deadline());
    else
        rc = fiber_channel_recv(c, &item, some_deadline());
    CHECK(rc == 0 || gave_up(rc) || rc == -EAGAIN || rc == -ENODATA, "%d", rc);
    if (rc == 0)
        item_received(item);
}

static void use_channel(void)
{
    struct shared_channel *s = &channels[below(CHANNELS)];

    s->users++;
    if (one_in(2))
        send_item(&s->channel);
    else
        receive_item(&s->channel);
    s->users--;
}

/* Closes it, and opens it again once nobody is at it any more. */
static void close_channel(void)
{
    struct shared_channel *s = &channels[below(CHANNELS)];
    union weft_value item;

    if (s->channel.closed || !one_in(10))
        return;
    weft_channel_close(&s->channel);
    while (s->users > 0)
        (void)fiber_yield();
    if (!s->channel.closed)
        return;
    while (weft_channel_try_recv(&s->channel, &item) == 0)
        item_received(item);
    weft_channel_init(&s->channel, s->room, (size_t)(s->channel.capacity), NULL);
}

/* ---- select ---- */

enum { SENDS, RECEIVES, EVENT, TIME, PROMISE, POLL, CASE_KINDS };

struct choice {
    int kind;
    struct shared_channel *channel;
    struct promise *promise;
    union weft_value item;
};

static void set_case(struct fiber_case *c, struct choice *choice)
{
    choice->kind = (int)below(strcmp(weft_engine_name(), "null") == 0 ? POLL : CASE_KINDS);
    choice->promise = NULL;
    choice->channel = NULL;
    switch (choice->kind) {
    case SENDS:
        choice->channel = &channels[below(CHANNELS)];
        choice->item = new_item();
        fiber_case_send(c, &choice->channel->channel, choice->item);
        break;
    case RECEIVES:
        choice->channel = &channels[below(CHANNELS)];
        fiber_case_recv(c, &choice->channel->channel);
        break;
    case EVENT:
        fiber_case_event(c, &event);
        break;
    case TIME:
        fiber_case_time(c, weft_after(below(20000)));
        break;
    case PROMISE:
        choice->promise = promise_semaphore_acquire(&semaphore, 1);
        fiber_case_promise(c, choice->promise);
        break;
    default:
        fiber_case_poll(c, channel_pipe[one_in(8)], POLLIN);
    }
    if (choice->channel != NULL)
        choice->channel->users++;
}

static void end_case(const struct fiber_case *c, struct choice *choice, bool happened)
{
    if (choice->kind == SENDS) {
        CHECK(!happened || c->result == 0 || c->result == -EPIPE);
        item_sent(choice->item, happened && c->result == 0);
    } else if (choice->kind == RECEIVES && happened) {
        CHECK(c->result == 0 || c->result == -ENODATA);
        if (c->result == 0)
            item_received(c->value);
    } else if (choice->kind == EVENT || choice->kind == TIME || choice->kind == PROMISE) {
        CHECK(!happened || c->result == 0, "%d", c->result);
    } else if (choice->kind == POLL) {
        CHECK(!happened || c->result > 0, "%d", c->result);
    }
    if (choice->channel != NULL)
        choice->channel->users--;
    if (choice->promise != NULL) {
        union weft_value value;
        int rc = await(choice->promise, &value, WEFT_NOWAIT);

        CHECK(rc == 0 || gave_up(rc));
        CHECK(!happened || rc == 0);
        if (rc == 0)
            CHECK(weft_semaphore_release(&semaphore, 1) == 0);
    }
}

static void use_select(void)
{
    struct fiber_case cases[5];
    struct choice choices[5];
    int count = 1 + (int)below(5), which;

    for (int i = 0; i < count; i++)
        set_case(&cases[i], &choices[i]);
    which = one_in(3) ? fiber_select_in_order(cases, (size_t)count, some_deadline())
                      : fiber_select(cases, (size_t)count, some_deadline());
    CHECK(which < count && (which >= 0 || gave_up(which)), "%d", which);
    for (int i = 0; i < count; i++)
        end_case(&cases[i], &choices[i], i == which);
}

static void use_pipe(void)
{
    char byte = 'x';

    if (one_in(2))
        CHECK(write(channel_pipe[1], &byte, 1) == 1 || errno == EAGAIN);
    else
        CHECK(read(channel_pipe[0], &byte, 1) == 1 || errno == EAGAIN);
}

/* ---- the fibers ---- */

static int64_t short_lived(void *unused)
{
    (void)unused;
    use_channel();
    use_semaphore();
    return 0;
}

static void spawn_some(void)
{
    struct promise *p = fiber_spawn(short_lived, NULL);
    union weft_value value;

    if (one_in(2))
        (void)fiber_yield();
    if (one_in(2))
        promise_cancel(p);
    /* others may have to end what it waits for */
    for (int tries = 0; tries < 100 && promise_state(p) == PROMISE_PENDING; tries++)
        (void)fiber_yield();
    promise_cancel(p);
    while (promise_state(p) == PROMISE_PENDING)
        (void)fiber_yield();
    CHECK(fiber_await(p, &value, WEFT_FOREVER) == 0);
}

static void (*const things[])(void) = {
    use_mutex,   use_mutex,   use_condition, use_condition, signal_condition,
    use_rwlock,  use_rwlock,  use_semaphore, use_semaphore, use_event,
    use_event,   use_barrier, use_once,      use_pool,      use_pool,
    use_channel, use_channel, use_channel,   use_channel,   use_select,
    use_select,  use_select,  close_channel, use_pipe,      spawn_some,
};

static int64_t work(void *arg)
{
    struct worker *w = arg;

    while (rounds_left > 0) {
        rounds_left--;
        CHECK(fiber_scope_open(&w->scope, WEFT_FOREVER) == 0);
        w->cancellable = true;
        things[below(sizeof things / sizeof things[0])]();
        w->cancellable = false;
        (void)fiber_scope_close(&w->scope, 0);
        if (one_in(2)) /* else the others see little of it */
            (void)fiber_yield();
    }
    return 0;
}

static size_t fibers_alive(void)
{
    struct weft_stats stats = {.size = sizeof stats};

    CHECK(weft_stats(&stats) == 0);
    return (size_t)stats.fibers;
}

static void check_end(size_t promises)
{
    union weft_value item;

    for (int i = 0; i < CHANNELS; i++) {
        CHECK(channels[i].users == 0);
        while (weft_channel_try_recv(&channels[i].channel, &item) == 0)
            item_received(item);
        CHECK(channels[i].channel.senders == NULL && channels[i].channel.receivers == NULL);
    }
    check_items();
    CHECK(fiber_pool_clear(pool, &pool_options) == 0);
    CHECK(members_alive == 0 && weft_pool_count(pool) == 0);
    weft_pool_destroy(pool);
    for (int i = 0; i < MUTEXES; i++)
        CHECK(mutexes[i].owner == NULL && mutexes[i].waits == NULL);
    CHECK(condition.waits == NULL && rwlock.waits == NULL && semaphore.waits == NULL &&
          event.waits == NULL && barrier.waits == NULL && once.waits == NULL);
    CHECK(weft_semaphore_units(&semaphore) == UNITS);
    CHECK(promise__live() == promises, "%zu promises are left", promise__live() - promises);
    CHECK(weft__rt->timers == NULL);
    CHECK(weft__rt->engine->in_flight == 0);
}

static int soak(void *unused)
{
    size_t promises;

    (void)unused;
    CHECK(promise__state_get() != NULL);
    promises = promise__live();
    weft_semaphore_init(&semaphore, UNITS);
    weft_barrier_init(&barrier, PARTIES);
    weft_once_init(&once, NULL);
    pool = weft_pool_create(MEMBERS);
    for (int i = 0; i < CHANNELS; i++)
        weft_channel_init(&channels[i].channel, channels[i].room, capacities[i], NULL);
    CHECK(pipe2(channel_pipe, O_CLOEXEC | O_NONBLOCK) == 0);
    for (int i = 0; i < WORKERS; i++)
        CHECK(fiber_detach(work, &workers[i]) == 0);
    while (fibers_alive() > 1) {
        struct worker *w = &workers[below(WORKERS)];

        if (one_in(8) && w->cancellable)
            fiber_scope_cancel(&w->scope);
        check_objects();
        fiber_yield();
    }
    check_end(promises);
    switches = weft__rt->switches;
    close(channel_pipe[0]);
    close(channel_pipe[1]);
    free(items);
    return 0;
}

int main(int argc, char **argv)
{
    struct weft_options options = WEFT_OPTIONS_INIT;
    long rounds;
    int rc;

    the_seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    rounds_left = rounds = argc > 2 ? strtol(argv[2], NULL, 10) : 20000;
    if (argc > 3)
        options.engine = argv[3];
    state = (the_seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
    rc = weft_run(soak, NULL, &options);
    if (rc < 0) {
        fprintf(stderr, "soak_sync: seed %" PRIu64 ": weft_run: %s\n", the_seed, strerror(-rc));
        return 1;
    }
    printf("seed %" PRIu64 ": %ld rounds, %zu items, %" PRIu64 " switches\n", the_seed, rounds,
           items_count, switches);
    return 0;
}
