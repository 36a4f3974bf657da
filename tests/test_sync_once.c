/* needs: fibers */
/* Once: made once, by whoever comes first, and by the next if that one gives up. */
#include "test_sync.h"

static struct weft_once once;
static struct weft_event go; /* makers wait for it */
static int made, destroyed;

static void begin(void)
{
    weft_once_init(&once, NULL);
    weft_event_init(&go);
    made = destroyed = 0;
}

struct maker {
    const char *name;
    int rc;
    int64_t value;
    weft_time deadline;
};

static int make(void *arg, union weft_value *value)
{
    struct maker *m = arg;
    int rc;

    tell("%s{ ", m->name);
    made++;
    rc = fiber_event_wait(&go, WEFT_FOREVER);
    tell("} ");
    if (rc < 0)
        return rc;
    *value = weft_num(m->value);
    return m->rc;
}

static int64_t get(void *arg)
{
    struct maker *m = arg;
    union weft_value value = weft_num(-1);
    int rc = fiber_once_get(&once, make, m, &value, m->deadline);

    tell("%s:%d,%d ", m->name, rc, (int)value.num);
    return rc;
}

static struct promise *start(struct maker *m)
{
    struct promise *p = fiber_spawn(get, m);

    settle();
    return p;
}

static struct promise *go_made(union weft_value unused, void *arg)
{
    const struct maker *m = arg;

    (void)unused;
    tell("} ");
    return m->rc < 0 ? promise_rejected(m->rc) : promise_fulfilled(weft_num(m->value));
}

static struct promise *promise_make(void *arg)
{
    tell("%s{ ", ((struct maker *)arg)->name);
    made++;
    return promise_bind(promise_event_wait(&go), go_made, arg);
}

static struct maker a = {"a", 0, 1, WEFT_FOREVER}, b = {"b", 0, 2, WEFT_FOREVER},
                    c = {"c", 0, 3, WEFT_FOREVER};

SYNC_TEST(sync_once, is_made_once_for_all)
{
    struct promise *pa, *pb, *q;
    union weft_value value;

    begin();
    cr_assert_eq(weft_once_peek(&once, &value), -EAGAIN);
    pa = start(&a);
    pb = start(&b);
    q = promise_once_get(&once, promise_make, &c);
    cr_assert_eq(weft_once_peek(&once, &value), -EAGAIN);
    cr_assert_eq(weft_once_reset(&once), -EBUSY);
    weft_event_set(&go);
    cr_assert_eq(outcome(pa), 0);
    cr_assert_eq(outcome(pb), 0);
    cr_assert_eq(outcome(q), 1);
    expect("a{ } a:0,1 b:0,1 ");
    cr_assert_eq(made, 1);
    cr_assert_eq(weft_once_peek(&once, &value), 0);
    cr_assert_eq(value.num, 1);
    cr_assert_eq(weft_once_peek(&once, NULL), 0);
    cr_assert_eq(fiber_once_get(&once, make, &c, &value, WEFT_NOWAIT), 0);
    cr_assert_eq(fiber_once_get(&once, make, &c, NULL, WEFT_NOWAIT), 0);
    cr_assert_eq(outcome(promise_once_get(&once, promise_make, &c)), 1);
    cr_assert_eq(weft_once_reset(&once), 0);
    cr_assert_eq(weft_once_peek(&once, &value), -EAGAIN);
    cr_assert_eq(outcome(promise_once_get(&once, promise_make, &c)), 3);
    expect("c{ } ");
    weft_once_finish(&once);
}

SYNC_TEST(sync_once, a_failure_is_the_outcome_for_all)
{
    struct maker bad = {"bad", -EIO, 0, WEFT_FOREVER};
    struct promise *p, *q, *r;

    for (int by_promise = 0; by_promise < 2; by_promise++) {
        begin();
        p = by_promise ? promise_once_get(&once, promise_make, &bad) : start(&bad);
        q = promise_once_get(&once, promise_make, &b);
        r = start(&c);
        weft_event_set(&go);
        cr_assert_eq(outcome(p), -EIO);
        cr_assert_eq(outcome(q), -EIO);
        cr_assert_eq(outcome(r), -EIO);
        cr_assert_eq(weft_once_peek(&once, NULL), -EIO);
        cr_assert_eq(made, 1);
        weft_once_finish(&once);
        told[0] = '\0';
    }
}

/* Whoever makes it is cancelled: the next in the queue does, of either style. */
SYNC_TEST(sync_once, the_next_makes_it_if_the_first_gives_up)
{
    struct promise *pa, *pb, *pc, *q;

    begin();
    pa = start(&a);
    q = promise_once_get(&once, promise_make, &b);
    pc = start(&c);
    cr_assert_eq(cancelled(pa), -ECANCELED);
    expect("a{ } b{ a:-125,-1 ");
    cr_assert_eq(cancelled(q), -ECANCELED);
    settle();
    expect("c{ ");
    pb = start(&b);
    weft_event_set(&go);
    cr_assert_eq(outcome(pc), 0);
    cr_assert_eq(outcome(pb), 0);
    expect("} c:0,3 b:0,3 ");

    begin();
    pa = start(&a);
    cr_assert_eq(cancelled(pa), -ECANCELED);
    cr_assert_eq(weft_once_peek(&once, NULL), -EAGAIN, "nobody is at it");
    weft_event_set(&go);
    cr_assert_eq(outcome(start(&b)), 0);
    told[0] = '\0';
}

SYNC_TEST(sync_once, who_waits_can_leave)
{
    struct maker soon = {"soon", 0, 9, weft_after(WEFT_MS(1))};
    struct maker never = {"never", 0, 9, WEFT_NOWAIT};
    struct promise *pa, *pb, *pc, *q;

    begin();
    pa = start(&a);
    pb = start(&b);
    pc = fiber_spawn(get, &soon);
    q = promise_once_get(&once, promise_make, &c);
    cr_assert_eq(outcome(start(&never)), -ETIMEDOUT);
    cr_assert_eq(outcome(pc), -ETIMEDOUT);
    cr_assert_eq(cancelled(pb), -ECANCELED);
    cr_assert_eq(cancelled(q), -ECANCELED);
    weft_event_set(&go);
    cr_assert_eq(outcome(pa), 0);
    cr_assert_eq(made, 1);
    told[0] = '\0';
}

/* Cancelled between being told to make it and running: it is told all the same, and passes it on. */
SYNC_TEST(sync_once, a_maker_to_be_that_is_cancelled_passes_it_on)
{
    struct promise *pa, *pb, *pc;

    begin();
    pa = start(&a);
    pb = start(&b);
    pc = start(&c);
    promise_cancel(pa);
    fiber_yield(); /* a has given up, and b has been told */
    promise_cancel(pb);
    settle();
    weft_event_set(&go);
    cr_assert_eq(outcome(pa), -ECANCELED);
    cr_assert_eq(outcome(pb), -ECANCELED);
    cr_assert_eq(outcome(pc), 0);
    expect("a{ } a:-125,-1 b{ } b:-125,-1 c{ } c:0,3 ");
}

static int make_with_itself(void *arg, union weft_value *value)
{
    return fiber_once_get(&once, make_with_itself, arg, value, WEFT_FOREVER);
}

static int get_on_base(void)
{
    return fiber_once_get(&once, make, &a, NULL, WEFT_FOREVER);
}

static int make_at_once(void *arg, union weft_value *value)
{
    *value = weft_ptr(arg);
    return 5; /* as good as 0 */
}

static void count_destroyed(void *ptr)
{
    cr_assert_eq(ptr, &made);
    destroyed++;
}

static struct promise *fulfilled(void *ptr)
{
    return promise_fulfilled_owned(ptr, count_destroyed);
}

SYNC_TEST(sync_once, odd_calls_and_the_end)
{
    union weft_value value;
    struct promise *pa, *q;

    begin();
    cr_assert_eq(fiber_once_get(&once, make_with_itself, NULL, NULL, WEFT_FOREVER), -EDEADLK);
    cr_assert_eq(weft_once_peek(&once, NULL), -EDEADLK, "that is what making it gave");
    cr_assert_eq(on_base(get_on_base), -EDEADLK);
    cr_assert_eq(fiber_once_get(NULL, make, &a, NULL, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_once_get(&once, NULL, &a, NULL, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(outcome(promise_once_get(NULL, promise_make, &a)), -EINVAL);
    cr_assert_eq(outcome(promise_once_get(&once, NULL, &a)), -EINVAL);
    cr_assert_eq(weft_once_peek(NULL, NULL), -EINVAL);
    cr_assert_eq(weft_once_reset(NULL), -EINVAL);
    weft_once_init(NULL, NULL);
    weft_once_finish(NULL);

    weft_once_init(&once, count_destroyed);
    cr_assert_eq(fiber_once_get(&once, make_at_once, &made, &value, WEFT_FOREVER), 0);
    cr_assert_eq(value.ptr, &made);
    cr_assert_eq(weft_once_reset(&once), 0);
    cr_assert_eq(destroyed, 1);
    /* the value is the object's, not the promise's */
    cr_assert_eq(outcome(promise_once_get(&once, fulfilled, &made)), (int64_t)(intptr_t)&made);
    cr_assert_eq(outcome(promise_once_get(&once, fulfilled, &made)), (int64_t)(intptr_t)&made);
    cr_assert_eq(destroyed, 1);
    weft_once_finish(&once);
    cr_assert_eq(destroyed, 2);
    weft_once_finish(&once);
    cr_assert_eq(destroyed, 2);

    begin();
    pa = start(&a);
    q = promise_once_get(&once, promise_make, &b);
    weft_event_set(&go);
    cr_assert_eq(outcome(pa), 0);
    cr_assert_eq(outcome(q), 1);
    told[0] = '\0';
}

/* Without memory for it, nothing has begun. */
SYNC_TEST(sync_once, no_memory)
{
    begin();
    weft_event_set(&go);
    promise__fail_after(0);
    cr_assert_eq(outcome(promise_once_get(&once, promise_make, &a)), -ENOMEM);
    promise__fail_after(SIZE_MAX);
    cr_assert_eq(weft_once_peek(&once, NULL), -EAGAIN);
    cr_assert_eq(outcome(promise_once_get(&once, promise_make, &a)), 1);
    told[0] = '\0';
}
