/* needs: fibers */
/* Read-write locks: who is in together, who waits behind whom. */
#include "test_sync.h"

static struct weft_rwlock rwlock;

struct visitor {
    const char *name;
    bool writes;
    weft_time deadline;
    struct weft_event leave; /* it stays in until this is set */
};

static int64_t visit(void *arg)
{
    struct visitor *v = arg;
    int rc = v->writes ? fiber_rwlock_write(&rwlock, v->deadline)
                       : fiber_rwlock_read(&rwlock, v->deadline);

    tell("%s%s ", v->name, rc == 0 ? "" : "!");
    if (rc < 0)
        return rc;
    cr_assert_eq(fiber_event_wait(&v->leave, WEFT_FOREVER), 0);
    cr_assert_eq(weft_rwlock_unlock(&rwlock), 0);
    return 0;
}

#define READER(who)                                            \
    (struct visitor)                                           \
    {                                                          \
        .name = who, .writes = false, .deadline = WEFT_FOREVER \
    }
#define WRITER(who)                                           \
    (struct visitor)                                          \
    {                                                         \
        .name = who, .writes = true, .deadline = WEFT_FOREVER \
    }

static struct promise *enter(struct visitor *v)
{
    struct promise *p = fiber_spawn(visit, v);

    settle();
    return p;
}

static void leave(struct visitor *v, struct promise *p)
{
    weft_event_set(&v->leave);
    cr_assert_eq(outcome(p), 0);
    settle();
}

SYNC_TEST(sync_rwlock, readers_together_writers_alone_nobody_overtakes)
{
    struct visitor v[] = {READER("r1"), READER("r2"), WRITER("w1"), READER("r3"),
                          READER("r4"), WRITER("w2"), READER("r5")};
    struct promise *p[7];

    weft_rwlock_init(&rwlock);
    for (int i = 0; i < 7; i++)
        p[i] = enter(&v[i]);
    expect("r1 r2 ");
    cr_assert_eq(weft_rwlock_try_read(&rwlock), -EAGAIN, "a writer waits");
    cr_assert_eq(weft_rwlock_try_write(&rwlock), -EAGAIN);
    leave(&v[0], p[0]);
    expect("");
    leave(&v[1], p[1]);
    expect("w1 ");
    cr_assert_eq(weft_rwlock_unlock(&rwlock), -EPERM, "another fiber writes");
    cr_assert_eq(weft_rwlock_downgrade(&rwlock), -EPERM);
    leave(&v[2], p[2]);
    expect("r3 r4 ");
    leave(&v[4], p[4]);
    leave(&v[3], p[3]);
    expect("w2 ");
    leave(&v[5], p[5]);
    expect("r5 ");
    cr_assert_eq(weft_rwlock_try_read(&rwlock), 0, "nobody waits");
    leave(&v[6], p[6]);
    cr_assert_eq(weft_rwlock_try_write(&rwlock), -EAGAIN);
    cr_assert_eq(weft_rwlock_unlock(&rwlock), 0);
    cr_assert_eq(weft_rwlock_unlock(&rwlock), -EPERM);
    cr_assert_eq(weft_rwlock_try_write(&rwlock), 0);
    cr_assert_eq(fiber_rwlock_write(&rwlock, WEFT_FOREVER), -EDEADLK);
    cr_assert_eq(fiber_rwlock_read(&rwlock, WEFT_FOREVER), -EDEADLK);
    cr_assert_eq(weft_rwlock_try_read(&rwlock), -EDEADLK);
    cr_assert_eq(weft_rwlock_unlock(&rwlock), 0);
}

/* A writer that gives up waiting lets those in who waited behind it: by cancellation, deadline, and
 * as a promise. */
SYNC_TEST(sync_rwlock, a_writer_that_gives_up_holds_up_nobody)
{
    for (int how = 0; how < 3; how++) {
        struct visitor in = READER("in"), w = WRITER("w"), r = READER("r");
        struct promise *pin, *pw, *pr, *q;

        weft_rwlock_init(&rwlock);
        pin = enter(&in);
        if (how == 1)
            w.deadline = weft_after(WEFT_MS(1));
        if (how == 2)
            pw = promise_rwlock_write(&rwlock);
        else
            pw = enter(&w);
        pr = enter(&r);
        q = promise_rwlock_read(&rwlock);
        if (how != 1) {
            expect("in ");
            cr_assert_eq(promise_state(q), PROMISE_PENDING);
        }
        if (how == 1)
            cr_assert_eq(outcome(pw), -ETIMEDOUT);
        else
            cr_assert_eq(cancelled(pw), -ECANCELED);
        settle();
        cr_assert_eq(outcome(q), 0);
        cr_assert_eq(rwlock.readers, 3);
        leave(&in, pin);
        leave(&r, pr);
        cr_assert_eq(weft_rwlock_unlock(&rwlock), 0);
        cr_assert_eq(weft_rwlock_unlock(&rwlock), -EPERM);
        told[0] = '\0';
    }
}

static int note_reader(void *unused)
{
    (void)unused;
    tell("q ");
    return 0;
}

/* The promise's callback must run though its turn came from a cancellation. */
SYNC_TEST(sync_rwlock, a_cancelled_fiber_lets_promises_in)
{
    struct visitor in = READER("in"), w = WRITER("w");
    struct promise *pin, *pw, *q;

    weft_rwlock_init(&rwlock);
    pin = enter(&in);
    pw = enter(&w);
    q = promise_rwlock_read(&rwlock);
    promise_on_termination(q, note_reader, NULL);
    promise_cancel(pw);
    settle();
    expect("in q w! ");
    cr_assert_eq(outcome(pw), -ECANCELED);
    cr_assert_eq(outcome(q), 0);
    leave(&in, pin);
    cr_assert_eq(weft_rwlock_unlock(&rwlock), 0);
}

SYNC_TEST(sync_rwlock, a_writer_can_go_on_reading)
{
    struct visitor r = READER("r"), w = WRITER("w");
    struct promise *pr, *pw, *q;

    weft_rwlock_init(&rwlock);
    cr_assert_eq(fiber_rwlock_write(&rwlock, WEFT_NOWAIT), 0);
    pr = enter(&r);
    pw = enter(&w);
    cr_assert_eq(weft_rwlock_downgrade(&rwlock), 0);
    settle();
    expect("r ");
    cr_assert_eq(weft_rwlock_downgrade(&rwlock), -EPERM);
    leave(&r, pr);
    cr_assert_eq(weft_rwlock_unlock(&rwlock), 0);
    settle();
    expect("w ");
    q = promise_rwlock_write(&rwlock);
    leave(&w, pw);
    cr_assert_eq(outcome(q), 0);
    cr_assert_eq(weft_rwlock_downgrade(&rwlock), 0, "nobody's in particular");
    cr_assert_eq(weft_rwlock_unlock(&rwlock), 0);
}

static int read_on_base(void)
{
    return fiber_rwlock_read(&rwlock, WEFT_FOREVER);
}

SYNC_TEST(sync_rwlock, errors_and_the_end)
{
    struct promise *p, *q;
    struct visitor w = WRITER("w");

    weft_rwlock_init(&rwlock);
    cr_assert_eq(on_base(read_on_base), -EDEADLK);
    cr_assert_eq(fiber_rwlock_read(NULL, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_rwlock_write(NULL, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(outcome(promise_rwlock_read(NULL)), -EINVAL);
    cr_assert_eq(outcome(promise_rwlock_write(NULL)), -EINVAL);
    cr_assert_eq(weft_rwlock_try_read(NULL), -EINVAL);
    cr_assert_eq(weft_rwlock_unlock(NULL), -EINVAL);
    cr_assert_eq(weft_rwlock_downgrade(NULL), -EINVAL);
    cr_assert_eq(weft_rwlock_try_read(&rwlock), 0);
    cr_assert_eq(fiber_rwlock_write(&rwlock, WEFT_NOWAIT), -ETIMEDOUT);
    p = enter(&w);
    q = promise_rwlock_read(&rwlock);
    weft_rwlock_finish(&rwlock);
    cr_assert_eq(outcome(p), -ECANCELED);
    cr_assert_eq(outcome(q), -ECANCELED);
    weft_rwlock_init(NULL);
    weft_rwlock_finish(NULL);
    told[0] = '\0';
}
