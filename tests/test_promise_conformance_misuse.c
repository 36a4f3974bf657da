/* Misuse: what every build answers with an error, and what a debug build finds out and reports,
 * without ever disturbing other promises. */
#include "harness.h"
#include "test_promise.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

/* ---- in every build ---- */

PROMISE_TEST(misuse, settled_twice)
{
    struct promise *p = promise_create(), *q = promise_create_task(), *end;
    static char owned[1];

    end = promise_both(promise_bind(promise_ref(p), tell_bind, "p"),
                       promise_catch(promise_ref(q), tell_catch, "q"));
    cr_assert_eq(promise_resolve(p, weft_num(1)), 0);
    cr_assert_eq(promise_reject(q, -EIO), 0);
    for (int i = 0; i < 2; i++) {
        struct promise *again = i == 0 ? p : q;

        cr_assert_eq(promise_resolve(again, weft_num(2)), -EALREADY);
        cr_assert_eq(promise_reject(again, -EPERM), -EALREADY);
        cr_assert_eq(promise_resolve_later(again, weft_num(2)), -EALREADY);
        cr_assert_eq(promise_reject_later(again, -EPERM), -EALREADY);
        cr_assert_eq(promise_resolve_owned(again, owned, free), -EALREADY);
        cr_assert_eq(promise_resolve_later_owned(again, owned, free), -EALREADY);
    }
    told("p(1) q!-5 ");
    cr_value(p, 1);
    cr_rejected(q, -EIO);
    cr_assert_eq(promise_state(end), PROMISE_FULFILLED);
    promise_unref(p);
    promise_unref(q);
    promise_unref(end);
}

static struct promise *settle_results(void *arg)
{
    struct promise *p = promise_create(), *q,
                   *const results[] = {
                       promise_bind(promise_ref(p), tell_bind, ""),
                       promise_map(promise_ref(p), tell_map, ""),
                       promise_protected(promise_ref(p)),
                       promise_join((struct promise *const[]){promise_ref(p)}, 1),
                       promise_pick((struct promise *const[]){promise_ref(p)}, 1),
                       promise_pause(),
                       promise_sleep(WEFT_SEC(1000)),
                       promise_fulfilled(weft_num(0)),
                   };

    (void)arg;
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        q = results[i];
        cr_assert_eq(promise_resolve(q, weft_num(1)), -EINVAL);
        cr_assert(report_contains("alone may settle it"));
        cr_assert_eq(promise_reject_later(q, -EIO), -EINVAL);
        if (i < 7)
            cr_pending(q);
        promise_cancel(q);
        promise_unref(q);
    }
    promise_unref(p);
    return promise_fulfilled(weft_num(0));
}

Test(misuse, settling_a_result)
{
    struct weft_options options = setup_options(&setups[0]);

    cr_assert_eq(promise_run(settle_results, NULL, &options, NULL), 0);
    test_log[0] = '\0';
}

/* What only the one who waits holds may be settled all the same. */
static struct promise *given_away;

static int settle_given_away(void *ctx)
{
    (void)ctx;
    cr_assert_eq(promise_resolve(given_away, weft_num(3)), 0);
    return 0;
}

static struct promise *give_away(void *ctx)
{
    struct promise *later = promise_pause();

    given_away = promise_create();
    promise_on_termination(later, settle_given_away, ctx);
    promise_unref(later);
    return given_away;
}

Test(misuse, settled_by_who_has_given_it_away)
{
    union weft_value value = weft_num(0);

    cr_assert_eq(promise_run(give_away, NULL, NULL, &value), 0);
    cr_assert_eq(value.num, 3);
}

static void *without_a_runtime(void *arg)
{
    struct promise *p = arg;

    cr_assert_eq(promise_resolve(p, weft_num(1)), -EINVAL);
    cr_assert_eq(promise_reject_later(p, -EIO), -EINVAL);
    cr_assert_eq(promise_on_success(p, tell_success, "never"), -EINVAL);
    promise_cancel(p);
    promise_unref(p);
    cr_assert_eq(promise_state(promise_create()), PROMISE_REJECTED);
    return NULL;
}

PROMISE_TEST(misuse, from_a_thread_without_a_runtime)
{
    struct promise *p = promise_create_task();
    pthread_t thread;

    cr_assert_eq(pthread_create(&thread, NULL, without_a_runtime, p), 0);
    pthread_join(thread, NULL);
    cr_pending(p);
    cr_assert_eq(promise_resolve(p, weft_num(2)), 0);
    told("");
    promise_unref(p);
}

#ifndef NDEBUG
/* ---- a debug build's reports ---- */

/* Everything that can be done to promise `p`, which it must be told is no promise of ours. */
static void do_everything(struct promise *p, const char *what)
{
    union weft_value value = weft_num(5);
    struct promise *q, *task = promise_create_task(), *list[2];
    size_t live = promise__live();
    int err = 0;

    cr_assert_eq(promise_resolve(p, weft_num(1)), -EINVAL);
    cr_assert(report_contains("promise_resolve"), "%s", report_text());
    cr_assert(report_contains(what), "%s", report_text());
    cr_assert_eq(promise_reject(p, -EIO), -EINVAL);
    cr_assert_eq(promise_resolve_later(p, weft_num(1)), -EINVAL);
    cr_assert_eq(promise_poll(p, &value, &err), PROMISE_REJECTED);
    cr_assert_eq(err, -EINVAL);
    cr_assert_eq(value.num, 5);
    cr_assert_eq(promise_ref(p), p);
    cr_assert_eq(promise_on_success(p, tell_success, "never"), -EINVAL);
    cr_assert_eq(promise_on_cancel(p, tell_done, "never"), -EINVAL);
    promise_cancel(p);
    promise_unref(p);
    q = promise_bind(p, tell_bind, "never");
    cr_rejected(q, -EINVAL);
    q = promise_map(p, tell_map, "never");
    cr_rejected(q, -EINVAL);
    q = promise_catch(p, tell_catch, "never");
    cr_rejected(q, -EINVAL);
    q = promise_try_bind(p, tell_bind, tell_catch, "never");
    cr_rejected(q, -EINVAL);
    q = promise_finalize(p, tell_thunk, "never");
    cr_rejected(q, -EINVAL);
    q = promise_protected(p);
    cr_rejected(q, -EINVAL);
    list[0] = promise_ref(task);
    list[1] = p;
    q = promise_join(list, 2);
    cr_rejected(q, -EINVAL);
    list[0] = promise_ref(task);
    q = promise_pick(list, 2);
    cr_rejected(q, -EINVAL);
    q = promise_both(promise_ref(task), p);
    cr_rejected(q, -EINVAL);
    cr_assert_eq(promise_ignore_result(p), -EINVAL);
    told("");
    cr_assert_eq(promise__live(), live);
    cr_pending(task);
    cr_assert_eq(task->link.count, 1);
    promise_unref(task);
}

static struct promise *use_after_release(void *arg)
{
    struct promise *p = promise_create(), *others[600];

    (void)arg;
    promise_unref(p);
    do_everything(p, "has been freed");
#if !PROMISE__ASAN
    for (size_t i = sizeof p->link; i < sizeof *p; i++)
        cr_assert_eq(((const unsigned char *)p)[i], 0xdb);
#endif
    for (int i = 0; i < 200; i++) /* nor soon after */
        promise_unref(promise_create());
    do_everything(p, "has been freed");
    for (int i = 0; i < 600; i++) /* nobody gets it twice */
        others[i] = promise_bind(promise_create_task(), tell_bind, "never");
    for (int i = 0; i < 600; i++) {
        promise_cancel(others[i]);
        cr_rejected(others[i], -ECANCELED);
        promise_unref(others[i]);
    }
    cr_assert_eq(promise__live(), 0);
    return promise_fulfilled(weft_num(0));
}

Test(misuse, use_after_release)
{
    struct weft_options options = setup_options(&setups[0]);

    cr_assert_eq(promise_run(use_after_release, NULL, &options, NULL), 0);
    cr_assert(!report_contains("still held"), "%s", report_text());
}

/* A callback that returns a promise it has no reference of. */
static struct promise *give_freed(union weft_value value, void *ctx)
{
    struct promise *p = promise_create();

    (void)value;
    (void)ctx;
    promise_unref(p);
    return p;
}

static struct promise *return_freed(void *arg)
{
    struct promise *p = promise_create(), *q = promise_bind(promise_ref(p), give_freed, arg);

    promise_resolve(p, weft_num(0));
    cr_rejected(q, -EINVAL);
    promise_unref(p);
    promise_unref(q);
    cr_assert_eq(promise__live(), 0);
    return promise_fulfilled(weft_num(0));
}

Test(misuse, a_callback_returns_a_freed_promise)
{
    struct weft_options options = setup_options(&setups[0]);

    cr_assert_eq(promise_run(return_freed, NULL, &options, NULL), 0);
    cr_assert(report_contains("the result of a callback: "));
    cr_assert(report_contains("has been freed"));
}

static struct promise *with_anothers(void *arg)
{
    do_everything(arg, "belongs to another thread's runtime");
    return promise_fulfilled(weft_num(0));
}

static void *another_runtime(void *arg)
{
    struct weft_options options = setup_options(&setups[0]);

    cr_assert_eq(promise_run(with_anothers, arg, &options, NULL), 0);
    return NULL;
}

PROMISE_TEST(misuse, from_another_threads_runtime)
{
    struct promise *p = promise_create_task();
    pthread_t thread;

    cr_assert_eq(pthread_create(&thread, NULL, another_runtime, p), 0);
    pthread_join(thread, NULL);
    cr_pending(p);
    cr_assert_eq(p->link.count, 1);
    cr_assert_null(p->waiters);
    promise_unref(p);
}

/* ---- what is left at the end ---- */

/* What a handle can't hold, so that there is something left. */
static __attribute__((noinline)) struct promise *make(int way)
{
    static struct promise_queue queue; /* outlives the runtime */
    struct promise *pending, *list[2];

    promise_queue_init(&queue);
    switch (way) {
    case 0:
        return promise_create();
    case 1:
        return promise_create_task();
    case 2:
        return promise_fulfilled(weft_num(INT64_MAX));
    case 3:
        return promise_fulfilled_owned(malloc(1), free);
    case 4:
        return promise_from_result(INT64_MAX);
    case 5:
        return promise_map(promise_fulfilled(weft_num(INT64_MAX - 1)), tell_map, "m");
    case 6:
        return promise_all(NULL, 0);
    case 7:
        list[0] = promise_fulfilled(weft_num(0));
        list[1] = promise_create();
        return promise_nchoose(list, 2);
    case 8:
        return promise_pause();
    case 9:
        return promise_sleep(WEFT_SEC(1000));
    case 10:
        return promise_sleep_until(weft_after(WEFT_SEC(1000)));
    case 11:
        return promise_queue_append(&queue);
    case 12:
        return promise_queue_prepend(&queue);
    case 13:
        pending = promise_create();
        (void)!promise_protected(pending); /* two are left */
        return NULL;
    case 14:
        pending = promise_create();
        (void)!promise_finalize(promise_bind(pending, tell_bind, ""), tell_thunk, "");
        return NULL;
    default:
        return NULL;
    }
}

static struct promise *leave_some(void *way)
{
    struct promise *p = make(*(int *)way);

    test_log[0] = '\0';
    (void)p;
    return promise_fulfilled(weft_num(0));
}

/* Every place named in the report is in make(). */
static size_t places(void)
{
    size_t count = 0;
    Dl_info info;
    void *from;
    struct promise *(*maker)(int) = make;

    memcpy(&from, &maker, sizeof from);
    cr_assert_neq(dladdr(from, &info), 0);
    for (const char *at = report_text(); (at = strstr(at, "made at ")) != NULL; at++) {
        const char *plus = strstr(at, "+0x");
        uintptr_t place = (uintptr_t)info.dli_fbase;

        cr_assert_not_null(plus, "%s", at);
        place += strtoull(plus + 1, NULL, 16);
        cr_assert_gt(place, (uintptr_t)from, "%s", at);
        cr_assert_lt(place, (uintptr_t)from + 4096, "%s", at);
        count++;
    }
    return count;
}

Test(misuse, promises_left_are_listed_with_their_place)
{
    for (int way = 0; way <= 14; way++) {
        struct weft_options options = setup_options(&setups[0]);

        cr_assert_eq(promise_run(leave_some, &way, &options, NULL), 0);
        cr_assert(report_contains("still held when the runtime ended"), "%d: %s", way,
                  report_text());
        cr_assert_geq(places(), 1, "%d: %s", way, report_text());
    }
}

static struct promise *wait_for_nothing(void *arg)
{
    (void)arg;
    return make(1);
}

Test(misuse, a_deadlock_names_the_pending_ones)
{
    struct weft_options options = setup_options(&setups[0]);

    cr_assert_eq(promise_run(wait_for_nothing, NULL, &options, NULL), -EDEADLK);
    cr_assert(report_contains("deadlock"), "%s", report_text());
    cr_assert(report_contains("(pending)"), "%s", report_text());
    cr_assert_geq(places(), 1, "%s", report_text());
}
#endif
