/* needs: fibers */
/* Pools: members made when they are wanted, used in turn, and ended when they are no good. */
#include "test_sync.h"

#include "allocations.h"

#include <weft/promise_sync.h>

static struct weft_pool *pool;
static int next_member, alive, create_error;
static bool invalid, fails_check;
static struct weft_event go; /* uses wait for it; set: they don't */
static struct weft_event may_create;

static int create(void *ctx, union weft_value *member)
{
    int rc = fiber_event_wait(&may_create, WEFT_FOREVER);

    cr_assert_eq(ctx, &next_member);
    if (rc == 0)
        rc = create_error;
    if (rc < 0)
        return rc;
    *member = weft_num(++next_member);
    alive++;
    tell("+%d ", next_member);
    return 0;
}

static bool validate(void *ctx, union weft_value member)
{
    (void)ctx;
    (void)member;
    return !invalid;
}

static bool check(void *ctx, union weft_value member, int error)
{
    (void)ctx;
    (void)member;
    cr_assert_lt(error, 0);
    return !fails_check;
}

static void dispose(void *ctx, union weft_value member)
{
    (void)ctx;
    cr_assert_eq(fiber_yield(), 0, "it is shielded");
    alive--;
    tell("-%d ", (int)member.num);
}

static struct fiber_pool_options options = {
    .size = sizeof options,
    .create = create,
    .validate = validate,
    .check = check,
    .dispose = dispose,
    .ctx = &next_member,
};

static void begin(size_t max)
{
    next_member = alive = create_error = 0;
    invalid = fails_check = false;
    weft_event_init(&go);
    weft_event_init(&may_create);
    weft_event_set(&may_create);
    pool = weft_pool_create(max);
}

static void finish(void)
{
    cr_assert_eq(fiber_pool_clear(pool, &options), 0);
    cr_assert_eq(alive, 0);
    cr_assert_eq(weft_pool_count(pool), 0);
    weft_pool_destroy(pool);
    told[0] = '\0';
}

struct use {
    const char *name;
    int rc;
    weft_time deadline;
};

static int use_member(union weft_value member, void *arg)
{
    struct use *u = arg;
    int rc = fiber_event_wait(&go, WEFT_FOREVER);

    tell("%s%d ", u->name, (int)member.num);
    return rc < 0 ? rc : u->rc;
}

static int64_t use(void *arg)
{
    struct use *u = arg;

    return fiber_pool_use(pool, &options, use_member, u, u->deadline);
}

static struct promise *start(struct use *u)
{
    struct promise *p = fiber_spawn(use, u);

    settle();
    return p;
}

static struct use a = {"a", 1, WEFT_FOREVER}, b = {"b", 2, WEFT_FOREVER},
                  c = {"c", 3, WEFT_FOREVER}, d = {"d", 4, WEFT_FOREVER};

SYNC_TEST(sync_pool, members_are_made_when_wanted_and_used_in_turn)
{
    struct promise *pa, *pb, *pc, *pd;

    begin(2);
    pa = start(&a);
    pb = start(&b);
    pc = start(&c);
    pd = start(&d);
    expect("+1 +2 ");
    cr_assert_eq(weft_pool_waiting(pool), 2);
    cr_assert_eq(weft_pool_count(pool), 2);
    weft_event_set(&go);
    cr_assert_eq(outcome(pa), 1);
    cr_assert_eq(outcome(pb), 2);
    cr_assert_eq(outcome(pc), 3);
    cr_assert_eq(outcome(pd), 4);
    expect("a1 b2 c1 d2 ");
    cr_assert_eq(weft_pool_free(pool), 2);
    cr_assert_eq(use(&a), 1);
    expect("a1 "); /* the one that has been free for longest */
    cr_assert_eq(use(&b), 2);
    expect("b2 ");
    finish();
}

SYNC_TEST(sync_pool, a_use_can_give_up_waiting)
{
    struct use soon = {"soon", 0, weft_after(WEFT_MS(1))}, never = {"never", 0, WEFT_NOWAIT};
    struct promise *pa, *pb, *pc;

    begin(1);
    pa = start(&a);
    pb = start(&b);
    pc = start(&c);
    cr_assert_eq(use(&never), -ETIMEDOUT);
    cr_assert_eq(use(&soon), -ETIMEDOUT);
    cr_assert_eq(cancelled(pb), -ECANCELED);
    cr_assert_eq(weft_pool_waiting(pool), 1);
    weft_event_set(&go);
    cr_assert_eq(outcome(pa), 1);
    cr_assert_eq(outcome(pc), 3);
    expect("+1 a1 c1 ");
    finish();
}

/* Cancelled between being handed a member and running: the member goes to the next. */
SYNC_TEST(sync_pool, a_member_handed_to_a_cancelled_fiber_is_not_lost)
{
    struct promise *pa, *pb, *pc;

    begin(1);
    pa = start(&a);
    pb = start(&b);
    pc = start(&c);
    weft_event_set(&go);
    fiber_yield(); /* a is through, and b has the member */
    cr_assert_eq(weft_pool_waiting(pool), 1);
    promise_cancel(pb);
    cr_assert_eq(outcome(pa), 1);
    cr_assert_eq(outcome(pb), -ECANCELED);
    cr_assert_eq(outcome(pc), 3);
    expect("+1 a1 c1 ");
    finish();
}

SYNC_TEST(sync_pool, a_place_without_a_member_goes_to_the_next)
{
    struct promise *pa, *pb, *pc, *pd;

    /* its creation fails, or is cancelled, or the waiter that it went to is */
    begin(1);
    weft_event_reset(&may_create);
    pa = start(&a);
    pb = start(&b);
    pc = start(&c);
    pd = start(&d);
    cr_assert_eq(cancelled(pa), -ECANCELED);
    settle();
    create_error = -EIO;
    weft_event_set(&may_create);
    fiber_yield(); /* b has failed, and c has its place */
    promise_cancel(pc);
    cr_assert_eq(outcome(pb), -EIO);
    cr_assert_eq(outcome(pc), -ECANCELED);
    cr_assert_eq(outcome(pd), -EIO);
    cr_assert_eq(weft_pool_count(pool), 0);
    create_error = 0;
    weft_event_set(&go);
    cr_assert_eq(use(&a), 1);
    expect("+1 a1 ");
    finish();
}

SYNC_TEST(sync_pool, members_that_are_no_good_are_replaced)
{
    struct use bad = {"bad", -EPROTO, WEFT_FOREVER};
    struct promise *pa, *pb, *pc;

    begin(1);
    weft_event_set(&go);
    cr_assert_eq(use(&a), 1);
    invalid = true;
    cr_assert_eq(use(&b), 2);
    expect("+1 a1 -1 +2 b2 ");
    invalid = false;
    cr_assert_eq(use(&bad), -EPROTO);
    cr_assert_eq(use(&a), 1);
    expect("bad2 a2 "); /* the failure wasn't the member's */
    fails_check = true;
    weft_event_reset(&go);
    pa = start(&bad);
    pb = start(&b);
    pc = start(&c);
    weft_event_set(&go);
    cr_assert_eq(outcome(pa), -EPROTO);
    cr_assert_eq(outcome(pb), 2);
    cr_assert_eq(outcome(pc), 3);
    expect("bad2 -2 +3 b3 c3 ");
    /* nothing to replace it with */
    invalid = true;
    create_error = -EIO;
    cr_assert_eq(use(&a), -EIO);
    cr_assert_eq(weft_pool_count(pool), 0);
    finish();
}

SYNC_TEST(sync_pool, clear_ends_all_members)
{
    struct promise *pa, *pb, *pc;

    begin(2);
    pa = start(&a);
    pb = start(&b);
    weft_event_set(&go);
    cr_assert_eq(outcome(pa), 1);
    cr_assert_eq(outcome(pb), 2);
    weft_event_reset(&go);
    pa = start(&a); /* has 1 */
    cr_assert_eq(fiber_pool_clear(pool, &options), 0);
    expect("+1 +2 a1 b2 -2 ");
    pb = start(&b);
    pc = start(&c);
    weft_event_set(&go);
    cr_assert_eq(outcome(pa), 1);
    cr_assert_eq(outcome(pb), 2);
    cr_assert_eq(outcome(pc), 3);
    expect("+3 a1 b3 -1 c3 ");
    cr_assert_eq(weft_pool_free(pool), 1);
    finish();
}

SYNC_TEST(sync_pool, destroy_while_in_use)
{
    struct promise *pa, *pb;

    begin(1);
    pa = start(&a);
    pb = start(&b);
    weft_pool_destroy(pool);
    cr_assert_eq(outcome(pb), -ECANCELED);
    weft_event_set(&go);
    cr_assert_eq(outcome(pa), 1);
    expect("+1 a1 -1 ");
    cr_assert_eq(alive, 0);
    weft_pool_destroy(NULL);
}

static int64_t clear(void *unused)
{
    (void)unused;
    return fiber_pool_clear(pool, &options);
}

/* Disposing takes time, in which a use gets none of those that are to go, nor a promise. */
SYNC_TEST(sync_pool, nobody_uses_what_a_clear_has_not_come_to)
{
    struct promise *pa, *pb, *clearing;

    begin(3);
    pa = start(&a);
    pb = start(&b);
    weft_event_set(&go);
    cr_assert_eq(outcome(pa), 1);
    cr_assert_eq(outcome(pb), 2);
    weft_event_reset(&go);
    clearing = fiber_spawn(clear, NULL);
    pa = start(&a); /* when that is at the first one */
    cr_assert_eq(outcome(clearing), 0);
    weft_event_set(&go);
    cr_assert_eq(outcome(pa), 1);
    expect("+1 +2 a1 b2 -1 -2 +3 a3 ");
    cr_assert_eq(weft_pool_free(pool), 1, "the new one is not concerned");
    finish();
}

/* Clearing comes to an end, though members are given back all the time. */
static int64_t use_again_and_again(void *stop)
{
    for (int i = 0; i < 50 && !*(bool *)stop; i++) {
        cr_assert_eq(use(&a), 1);
        fiber_yield();
    }
    return 0;
}

SYNC_TEST(sync_pool, clear_is_through_with_those_it_found)
{
    struct promise *users[2];
    bool stop = false;

    begin(4);
    weft_event_set(&go);
    for (int i = 0; i < 2; i++)
        users[i] = fiber_spawn(use_again_and_again, &stop);
    settle();
    cr_assert_eq(fiber_pool_clear(pool, &options), 0);
    cr_assert_leq(next_member, 6, "%d were made", next_member);
    stop = true;
    for (int i = 0; i < 2; i++)
        cr_assert_eq(outcome(users[i]), 0);
    finish();
}

/* A place that was handed over makes no member for a pool that is no more. */
SYNC_TEST(sync_pool, a_place_handed_over_before_the_end_stays_empty)
{
    struct promise *pa, *pb;

    begin(1);
    create_error = -EIO;
    weft_event_reset(&may_create);
    pa = start(&a);
    pb = start(&b);
    weft_event_set(&may_create);
    fiber_yield(); /* a's has failed, and b hasn't run yet */
    create_error = 0;
    cr_assert_eq(weft_pool_waiting(pool), 0);
    weft_pool_destroy(pool);
    cr_assert_eq(outcome(pa), -EIO);
    cr_assert_eq(outcome(pb), -ECANCELED);
    expect("");
    cr_assert_eq(alive, 0);
}

/* A cancelled use disposes of its member in peace. */
SYNC_TEST(sync_pool, a_cancelled_use_gives_its_member_back)
{
    struct promise *p;

    begin(1);
    p = start(&a);
    cr_assert_eq(cancelled(p), -ECANCELED);
    cr_assert_eq(weft_pool_free(pool), 1);
    fails_check = true;
    p = start(&b);
    cr_assert_eq(cancelled(p), -ECANCELED);
    expect("+1 a1 b1 -1 ");
    finish();
}

static int use_on_base(void)
{
    return fiber_pool_use(pool, &options, use_member, &a, WEFT_FOREVER);
}

static int clear_on_base(void)
{
    return fiber_pool_clear(pool, &options);
}

SYNC_TEST(sync_pool, misuse)
{
    struct fiber_pool_options bad = FIBER_POOL_OPTIONS_INIT;

    begin(1);
    cr_assert_eq(on_base(use_on_base), -EDEADLK);
    cr_assert_eq(on_base(clear_on_base), -EDEADLK);
    cr_assert_eq(fiber_pool_use(NULL, &options, use_member, &a, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_pool_use(pool, NULL, use_member, &a, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_pool_use(pool, &options, NULL, &a, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_pool_use(pool, &bad, use_member, &a, WEFT_FOREVER), -EINVAL);
    bad.create = create;
    bad.size = 0;
    cr_assert_eq(fiber_pool_use(pool, &bad, use_member, &a, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_pool_clear(NULL, &options), -EINVAL);
    cr_assert_eq(fiber_pool_clear(pool, &bad), -EINVAL);
    cr_assert_null(weft_pool_create(0));
    cr_assert_eq(weft_pool_waiting(NULL) + weft_pool_free(NULL) + weft_pool_count(NULL), 0);
    finish();
}

/* Without memory for a member's place no place is taken, and nobody who comes later waits for it. */
SYNC_TEST(sync_pool, no_memory)
{
    int rc;

    if (!ALLOCATIONS_CAN_FAIL)
        return;
    begin(1);
    weft_event_set(&go);
    allocations_fail_after(0);
    rc = fiber_pool_use(pool, &options, use_member, &a, WEFT_NOWAIT);
    allocations_fail_after(SIZE_MAX);
    cr_assert_eq(rc, -ENOMEM);
    expect("");
    cr_assert_eq(weft_pool_count(pool), 0);
    cr_assert_eq(fiber_pool_use(pool, &options, use_member, &a, WEFT_NOWAIT), 1);
    expect("+1 a1 ");
    finish();
}

/* ---- with promises ---- */

static struct promise *promise_creates(void *ctx)
{
    (void)ctx;
    tell("+%d ", ++next_member);
    alive++;
    return promise_fulfilled(weft_num(next_member));
}

static struct promise *promise_disposes(union weft_value member, void *ctx)
{
    (void)ctx;
    tell("-%d ", (int)member.num);
    alive--;
    return promise_fulfilled(weft_num(0));
}

static struct promise *used(union weft_value value, void *arg)
{
    (void)value;
    (void)arg;
    return promise_fulfilled(weft_num(50));
}

static struct promise *promise_uses(union weft_value member, void *name)
{
    tell("%s%d ", (char *)name, (int)member.num);
    return promise_bind(promise_event_wait(&go), used, NULL);
}

/* In place of the fibers' pool: a promise's, whose members fibers use too. */
static struct promise_pool *begin_shared(size_t max)
{
    struct promise_pool_options how = PROMISE_POOL_OPTIONS_INIT;
    struct promise_pool *shared;

    weft_pool_destroy(pool);
    how.create = promise_creates;
    how.dispose = promise_disposes;
    shared = promise_pool_create(max, &how);
    pool = promise_pool_members(shared);
    return shared;
}

SYNC_TEST(sync_pool, fibers_and_promises_use_the_same_members)
{
    struct promise_pool *shared;
    struct promise *pa, *p, *pb, *q;

    begin(1);
    shared = begin_shared(1);
    pa = start(&a);
    p = promise_pool_use(shared, promise_uses, "p");
    pb = start(&b);
    q = promise_pool_use(shared, promise_uses, "q");
    cr_assert_eq(weft_pool_waiting(pool), 3);
    cr_assert_eq(promise_pool_waiting(shared), 3);
    weft_event_set(&go);
    cr_assert_eq(outcome(pa), 1);
    cr_assert_eq(outcome(p), 50);
    cr_assert_eq(outcome(pb), 2);
    cr_assert_eq(outcome(q), 50);
    expect("+1 a1 p1 b1 q1 ");
    /* the promise's pool goes while a fiber uses it */
    weft_event_reset(&go);
    pa = start(&a);
    pb = start(&b);
    promise_pool_destroy(shared);
    cr_assert_eq(outcome(pb), -ECANCELED);
    weft_event_set(&go);
    cr_assert_eq(outcome(pa), 1);
    expect("a1 -1 ");
    cr_assert_eq(alive, 0);
    cr_assert_null(promise_pool_members(NULL));
}

/* A promise's use ends what a fiber's clear has not come to, too. */
SYNC_TEST(sync_pool, a_promise_does_not_use_what_is_to_go)
{
    struct promise_pool *shared;
    struct promise *pa, *pb, *clearing, *p;

    begin(1);
    shared = begin_shared(3);
    pa = start(&a);
    pb = start(&b);
    weft_event_set(&go);
    cr_assert_eq(outcome(pa), 1);
    cr_assert_eq(outcome(pb), 2);
    clearing = fiber_spawn(clear, NULL);
    fiber_yield();
    p = promise_pool_use(shared, promise_uses, "p");
    cr_assert_eq(outcome(clearing), 0);
    cr_assert_eq(outcome(p), 50);
    expect("+1 +2 a1 b2 -2 +3 p3 -1 ");
    cr_assert_eq(weft_pool_free(pool), 1);
    promise_pool_destroy(shared);
    cr_assert_eq(alive, 0);
    expect("-3 ");
}

static int64_t use_many(void *arg)
{
    for (int i = 0; i < 20; i++)
        cr_assert_eq(use(arg), ((struct use *)arg)->rc);
    return 0;
}

static int use_and_yield(union weft_value member, void *unused)
{
    (void)member;
    (void)unused;
    return fiber_yield();
}

static int64_t yield_many(void *unused)
{
    for (int i = 0; i < 20; i++)
        cr_assert_eq(fiber_pool_use(pool, &options, use_and_yield, unused, WEFT_FOREVER), 0);
    return 0;
}

SYNC_TEST(sync_pool, waiting_allocates_nothing)
{
    struct promise *p, *q;
    size_t before;

    begin(1);
    weft_event_set(&go);
    cr_assert_eq(use_many(&a), 0);
    p = fiber_spawn(yield_many, NULL);
    q = fiber_spawn(yield_many, NULL);
    before = allocations;
    for (int i = 0; i < 100; i++)
        fiber_yield();
    cr_assert_eq(allocations, before);
    cr_assert_eq(outcome(p), 0);
    cr_assert_eq(outcome(q), 0);
    finish();
}
