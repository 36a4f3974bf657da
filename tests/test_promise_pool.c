/* Pools. */
#include "promise_support.h"

#include <weft/promise_sync.h>

#include <criterion/criterion.h>

/* Members are numbers: 1, 2, ... in the order of their creation. */
static int created, create_error, validate_error, dispose_error;
static int64_t invalid; /* that member isn't valid */
static bool check_answer;
static struct promise *create_waits, *validate_waits, *dispose_waits;

static struct promise *outcome(struct promise *waits, int err, int64_t value)
{
    if (waits != NULL)
        return promise_ref(waits);
    return err < 0 ? promise_rejected(err) : promise_fulfilled(weft_num(value));
}

static struct promise *create(void *ctx)
{
    (void)ctx;
    note("c");
    note_number(created + 1);
    if (create_waits == NULL && create_error < 0)
        return promise_rejected(create_error);
    created++;
    return outcome(create_waits, 0, created);
}

static struct promise *validate(union weft_value member, void *ctx)
{
    (void)ctx;
    note("v");
    note_number(member.num);
    return outcome(validate_waits, validate_error, member.num != invalid);
}

static bool check(union weft_value member, void *ctx)
{
    (void)ctx;
    note("k");
    note_number(member.num);
    return check_answer;
}

static struct promise *dispose(union weft_value member, void *ctx)
{
    (void)ctx;
    note("d");
    note_number(member.num);
    return outcome(dispose_waits, dispose_error, 0);
}

static struct promise_pool *make(size_t max)
{
    struct promise_pool_options options = PROMISE_POOL_OPTIONS_INIT;
    struct promise_pool *pool;

    created = create_error = validate_error = dispose_error = 0;
    invalid = 0;
    check_answer = false;
    create_waits = validate_waits = dispose_waits = NULL;
    options.create = create;
    options.validate = validate;
    options.check = check;
    options.dispose = dispose;
    pool = promise_pool_create(max, &options);
    cr_assert_not_null(pool);
    return pool;
}

/* A use that ends with its ctx's outcome. */
static struct promise *use(union weft_value member, void *ctx)
{
    note("u");
    note_number(member.num);
    return promise_ref(ctx);
}

static struct promise *use_value(union weft_value member, void *ctx)
{
    (void)ctx;
    note("u");
    note_number(member.num);
    return promise_fulfilled(weft_num(member.num * 10));
}

static struct promise *use_error(union weft_value member, void *ctx)
{
    (void)ctx;
    note("u");
    note_number(member.num);
    return promise_rejected(-EIO);
}

static struct promise *reuse_body(void)
{
    struct promise_pool *pool = make(2);

    take_value(promise_pool_use(pool, use_value, NULL), 10);
    assert_trace("c1 u1 ");
    take_value(promise_pool_use(pool, use_value, NULL), 10);
    assert_trace("v1 u1 ");
    promise_pool_destroy(pool);
    assert_trace("d1 ");
    return NULL;
}

Test(promise_pool, members_are_made_on_demand_and_used_again)
{
    run_promises(reuse_body);
}

static struct promise *limit_body(void)
{
    struct promise_pool *pool = make(2);
    struct promise *a = promise_create(), *b = promise_create(), *ua, *ub, *uc, *ud;

    ua = promise_pool_use(pool, use, a);
    ub = promise_pool_use(pool, use, b);
    uc = promise_pool_use(pool, use_value, NULL);
    ud = promise_pool_use(pool, use_value, NULL);
    assert_trace("c1 u1 c2 u2 ");
    cr_assert_eq(promise_pool_waiting(pool), 2);
    watch(ub, "ub");
    promise_resolve(b, weft_num(0));
    assert_trace("ub=0 v2 u2 v2 u2 "); /* in order, with the one given back */
    take_value(uc, 20);
    take_value(ud, 20);
    cr_assert_eq(promise_pool_waiting(pool), 0);
    promise_resolve(a, weft_num(0));
    take_value(promise_pool_use(pool, use_value, NULL), 20); /* free for longest */
    promise_unref(ua);
    promise_unref(ub);
    promise_unref(a);
    promise_unref(b);
    promise_pool_destroy(pool);
    return NULL;
}

Test(promise_pool, uses_beyond_the_limit_wait_in_order)
{
    run_promises(limit_body);
}

static struct promise *create_error_body(void)
{
    struct promise_pool *pool = make(1);
    struct promise *p, *q;

    create_error = -EMFILE;
    take_error(promise_pool_use(pool, use_value, NULL), -EMFILE);
    take_error(promise_pool_use(pool, use_value, NULL), -EMFILE); /* the place is free again */
    create_error = 0;
    take_value(promise_pool_use(pool, use_value, NULL), 10);
    promise_pool_destroy(pool);

    pool = make(1);
    create_waits = promise_create();
    p = promise_pool_use(pool, use_value, NULL);
    q = promise_pool_use(pool, use_value, NULL);
    assert_pending(q);
    promise_reject(create_waits, -EMFILE);
    promise_unref(create_waits);
    take_error(p, -EMFILE);
    take_error(q, -EMFILE); /* the next in turn has tried itself */
    promise_pool_destroy(pool);
    return NULL;
}

Test(promise_pool, a_failing_creation_frees_its_place)
{
    run_promises(create_error_body);
}

static struct promise *invalid_body(void)
{
    struct promise_pool *pool = make(1);

    promise_unref(promise_pool_use(pool, use_value, NULL));
    assert_trace("c1 u1 ");
    invalid = 1;
    take_value(promise_pool_use(pool, use_value, NULL), 20);
    assert_trace("v1 d1 c2 u2 ");
    promise_pool_destroy(pool);
    return NULL;
}

Test(promise_pool, an_invalid_member_is_disposed_of_and_replaced)
{
    run_promises(invalid_body);
}

static struct promise *validate_error_body(void)
{
    struct promise_pool *pool = make(1);
    struct promise *p, *q;

    promise_unref(promise_pool_use(pool, use_value, NULL));
    assert_trace("c1 u1 ");
    validate_waits = promise_create();
    p = promise_pool_use(pool, use_value, NULL);
    q = promise_pool_use(pool, use_value, NULL);
    assert_trace("v1 ");
    promise_reject(validate_waits, -EPROTO);
    promise_unref(validate_waits);
    validate_waits = NULL;
    take_error(p, -EPROTO); /* reaches the user */
    take_value(q, 20);      /* the next gets a new one */
    assert_trace("d1 c2 u2 ");
    promise_pool_destroy(pool);
    return NULL;
}

Test(promise_pool, a_failing_validation_reaches_the_user_and_the_next_gets_a_new_member)
{
    run_promises(validate_error_body);
}

static struct promise *replacement_error_body(void)
{
    struct promise_pool *pool = make(1);
    struct promise *p, *q;

    promise_unref(promise_pool_use(pool, use_value, NULL));
    validate_waits = promise_create();
    p = promise_pool_use(pool, use_value, NULL);
    q = promise_pool_use(pool, use_value, NULL);
    create_error = -EMFILE;
    promise_reject(validate_waits, -EPROTO);
    promise_unref(validate_waits);
    validate_waits = NULL;
    take_error(p, -EPROTO);
    take_error(q, -EMFILE);
    create_error = 0;
    take_value(promise_pool_use(pool, use_value, NULL), 20);
    promise_pool_destroy(pool);
    return NULL;
}

Test(promise_pool, the_next_gets_the_error_of_creating_its_member)
{
    run_promises(replacement_error_body);
}

static struct promise *check_body(void)
{
    struct promise_pool *pool = make(1);

    check_answer = true;
    take_error(promise_pool_use(pool, use_error, NULL), -EIO);
    assert_trace("c1 u1 k1 ");
    check_answer = false;
    take_error(promise_pool_use(pool, use_error, NULL), -EIO);
    assert_trace("v1 u1 k1 d1 ");
    take_value(promise_pool_use(pool, use_value, NULL), 20);
    assert_trace("c2 u2 ");
    promise_pool_destroy(pool);
    return NULL;
}

Test(promise_pool, a_member_is_checked_after_a_failed_use)
{
    run_promises(check_body);
}

static struct promise *check_waiter_body(void)
{
    struct promise_pool *pool = make(1);
    struct promise *a = promise_create(), *p, *q;

    p = promise_pool_use(pool, use, a);
    q = promise_pool_use(pool, use_value, NULL);
    promise_reject(a, -EIO);
    take_error(p, -EIO);
    take_value(q, 20); /* the place of the member disposed of */
    assert_trace("c1 u1 k1 d1 c2 u2 ");
    promise_unref(a);
    promise_pool_destroy(pool);
    return NULL;
}

Test(promise_pool, who_waits_gets_the_place_of_a_bad_member)
{
    run_promises(check_waiter_body);
}

static struct promise *dispose_error_body(void)
{
    struct promise_pool *pool = make(1);

    dispose_error = -EPERM;
    take_error(promise_pool_use(pool, use_error, NULL), -EPERM);
    take_value(promise_pool_use(pool, use_value, NULL), 20);
    invalid = 2;
    take_error(promise_pool_use(pool, use_value, NULL), -EPERM);
    dispose_error = 0;
    take_value(promise_pool_use(pool, use_value, NULL), 30);
    promise_pool_destroy(pool);
    return NULL;
}

Test(promise_pool, a_failing_disposal_is_the_result)
{
    run_promises(dispose_error_body);
}

static struct promise *clear_body(void)
{
    struct promise_pool *pool = make(3);
    struct promise *a = promise_create(), *b = promise_create(), *ua, *ub;

    ua = promise_pool_use(pool, use, a);
    ub = promise_pool_use(pool, use, b);
    promise_unref(promise_pool_use(pool, use_value, NULL));
    promise_resolve(a, weft_num(0));
    assert_trace("c1 u1 c2 u2 c3 u3 ");
    take_value(promise_pool_clear(pool), 0);
    assert_trace("d3 d1 ");
    promise_resolve(b, weft_num(0));
    assert_trace("d2 "); /* in use when the pool was cleared */
    take_value(ub, 0);
    take_value(promise_pool_use(pool, use_value, NULL), 40);
    promise_unref(ua);
    promise_unref(a);
    promise_unref(b);
    promise_pool_destroy(pool);
    return NULL;
}

Test(promise_pool, clear_disposes_of_free_members_and_marks_those_in_use)
{
    run_promises(clear_body);
}

static struct promise *clear_failed_body(void)
{
    struct promise_pool *pool = make(1);
    struct promise *a = promise_create(), *ua;

    check_answer = true;
    ua = promise_pool_use(pool, use, a);
    take_value(promise_pool_clear(pool), 0);
    promise_reject(a, -EIO);
    take_error(ua, -EIO);
    assert_trace("c1 u1 k1 d1 "); /* checked and good, but from before */
    promise_unref(a);
    promise_pool_destroy(pool);
    return NULL;
}

Test(promise_pool, clear_also_concerns_uses_that_fail)
{
    run_promises(clear_failed_body);
}

static struct promise *clear_wait_body(void)
{
    struct promise_pool *pool = make(1);
    struct promise *cleared, *p;

    promise_unref(promise_pool_use(pool, use_value, NULL));
    dispose_waits = promise_create();
    cleared = promise_pool_clear(pool);
    assert_pending(cleared);
    p = promise_pool_use(pool, use_value, NULL);
    assert_pending(p); /* the place isn't free yet */
    promise_resolve(dispose_waits, weft_num(0));
    take_value(cleared, 0);
    take_value(p, 20);
    promise_unref(dispose_waits);
    dispose_waits = NULL;
    promise_pool_destroy(pool);
    return NULL;
}

Test(promise_pool, clear_waits_for_the_disposals)
{
    run_promises(clear_wait_body);
}

static struct promise *cancel_body(void)
{
    struct promise_pool *pool = make(1);
    struct promise *task = promise_create_task(), *p, *q;

    p = promise_pool_use(pool, use, task);
    q = promise_pool_use(pool, use_value, NULL);
    promise_cancel(q); /* in the queue */
    take_error(q, -ECANCELED);
    cr_assert_eq(promise_pool_waiting(pool), 0);
    promise_cancel(p); /* in use */
    take_error(p, -ECANCELED);
    assert_trace("c1 u1 k1 d1 ");
    create_waits = promise_create_task();
    p = promise_pool_use(pool, use_value, NULL);
    promise_cancel(p); /* being created */
    take_error(p, -ECANCELED);
    promise_unref(create_waits);
    create_waits = NULL;
    promise_unref(task);
    promise_pool_destroy(pool);
    return NULL;
}

Test(promise_pool, uses_can_be_canceled_at_each_stage)
{
    run_promises(cancel_body);
}

static struct promise *destroy_body(void)
{
    struct promise_pool *pool = make(2);
    struct promise *a = promise_create(), *p, *q, *r;

    p = promise_pool_use(pool, use, a);
    q = promise_pool_use(pool, use, a);
    r = promise_pool_use(pool, use_value, NULL);
    promise_pool_destroy(pool);
    take_error(r, -ECANCELED);
    assert_pending(p);
    promise_resolve(a, weft_num(3));
    take_value(p, 3);
    take_value(q, 3);
    assert_trace("c1 u1 c2 u2 d2 d1 ");
    promise_unref(a);
    promise_pool_destroy(NULL);
    take_error(promise_pool_use(NULL, use, NULL), -EINVAL);
    return NULL;
}

Test(promise_pool, goes_when_its_last_use_has_ended)
{
    run_promises(destroy_body);
}

static struct promise *flat_body(void)
{
    int rounds = slow_tools() ? 5000 : 200000;
    struct promise_pool_options options = PROMISE_POOL_OPTIONS_INIT;
    struct promise_pool *pool;
    size_t before;

    options.create = create;
    created = 0;
    create_waits = NULL;
    create_error = 0;
    pool = promise_pool_create(1, &options);
    before = promise__live();
    for (int i = 0; i < rounds; i++) {
        struct promise *a = promise_create(), *p, *q, *r;

        p = promise_pool_use(pool, use, a);
        q = promise_pool_use(pool, use, a);
        r = promise_pool_use(pool, use, a);
        promise_cancel(q);
        promise_resolve(a, weft_num(0));
        promise_unref(p);
        promise_unref(q);
        promise_unref(r);
        promise_unref(a);
    }
    cr_assert_eq(promise__live(), before);
    cr_assert_eq(created, 1);
    promise_pool_destroy(pool);
    return NULL;
}

Test(promise_pool, memory_stays_flat)
{
    run_promises(flat_body);
}

static struct promise *no_memory_body(void)
{
    struct promise_pool *pool = make(1);

    for (size_t i = 0;; i++) { /* wherever memory fails, no place is lost */
        struct promise *p;
        bool done;

        promise__fail_after(i);
        p = promise_pool_use(pool, use_value, NULL);
        done = promise_state(p) == PROMISE_FULFILLED;
        promise__fail_after(SIZE_MAX);
        promise_unref(p);
        if (done)
            break;
    }
    cr_assert_eq(promise_state(promise_pool_use(NULL, use, NULL)), PROMISE_REJECTED);
    promise_unref(promise_pool_use(pool, use_value, NULL));
    promise_pool_destroy(pool);
    return NULL;
}

Test(promise_pool, without_memory_no_place_is_lost)
{
    run_promises(no_memory_body);
}

static struct promise *destroy_early_body(void)
{
    struct promise *gate, *p;
    struct promise_pool *pool = make(1);

    gate = create_waits = promise_create();
    p = promise_pool_use(pool, use_value, NULL);
    promise_pool_destroy(pool); /* while the member is made */
    promise_resolve(gate, weft_num(1));
    promise_unref(gate);
    promise_unref(p);
    assert_trace("c1 u1 d1 ");

    pool = make(1);
    promise_unref(promise_pool_use(pool, use_value, NULL));
    gate = validate_waits = promise_create();
    p = promise_pool_use(pool, use_value, NULL);
    promise_pool_destroy(pool); /* while it is validated */
    promise_resolve(gate, weft_num(1));
    promise_unref(gate);
    promise_unref(p);
    assert_trace("c1 u1 v1 u1 d1 ");

    pool = make(1);
    promise_unref(promise_pool_use(pool, use_value, NULL));
    gate = validate_waits = promise_create();
    p = promise_pool_use(pool, use_value, NULL);
    take_value(promise_pool_clear(pool), 0); /* likewise: it is in use */
    promise_resolve(gate, weft_num(1));
    promise_unref(gate);
    promise_unref(p);
    assert_trace("c1 u1 v1 u1 d1 ");
    promise_pool_destroy(pool);
    return NULL;
}

Test(promise_pool, a_use_that_has_just_begun_when_the_pool_ends_gives_its_member_up)
{
    run_promises(destroy_early_body);
}

static struct promise *destroy_no_memory_body(void)
{
    struct promise_pool *pool = make(2);
    struct promise *gate = promise_create(), *p = promise_pool_use(pool, use, gate);

    promise_unref(promise_pool_use(pool, use_value, NULL));
    promise_resolve(gate, weft_num(0));
    promise_unref(gate);
    promise_unref(p);
    promise__fail_after(0);
    promise_pool_destroy(pool);
    promise__fail_after(SIZE_MAX);
    assert_trace("c1 u1 c2 u2 d2 d1 ");
    pool = make(1);
    promise__fail_after(0);
    promise_pool_destroy(pool); /* and there is no error to report */
    promise__fail_after(SIZE_MAX);
    return NULL;
}

Test(promise_pool, without_memory_the_end_still_disposes_of_all)
{
    run_promises(destroy_no_memory_body);
}
