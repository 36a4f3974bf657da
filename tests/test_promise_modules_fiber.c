/* needs: fibers */
/* Mutexes, pools, streams, events used from fibers: what they call runs on the base stack. */
#include "fiber_internal.h"
#include "harness.h"
#include "promise_internal.h"

#include <weft/promise_stream.h>
#include <weft/promise_sync.h>
#include <weft/react.h>

#include <criterion/criterion.h>

static const struct weft_key key = {.name = "key"};
static struct weft_mutex mutex;
static int inside, most, calls;

static void on_base_stack(void)
{
    calls++;
    cr_assert_null(fiber_self(), "a callback ran on a fiber's stack");
    cr_assert_eq(weft_get(&key), &key, "not the local values of the caller");
    cr_assert_eq(fiber_await(promise_pause(), NULL, WEFT_FOREVER), -EDEADLK);
}

static int64_t locks(void *arg)
{
    (void)arg;
    cr_assert_eq(fiber_await(promise_mutex_lock(&mutex), NULL, WEFT_FOREVER), 0);
    if (++inside > most)
        most = inside;
    fiber_yield();
    inside--;
    weft_mutex_unlock(&mutex);
    return 0;
}

static struct promise *in_lock(void *ctx)
{
    on_base_stack();
    return promise_fulfilled(weft_num((intptr_t)ctx));
}

static struct promise *make_member(void *ctx)
{
    (void)ctx;
    on_base_stack();
    return promise_fulfilled(weft_num(7));
}

static struct promise *use_member(union weft_value value, void *ctx)
{
    (void)ctx;
    on_base_stack();
    return promise_fulfilled(value);
}

static int number(void *ctx, union weft_value *out)
{
    on_base_stack();
    *out = weft_num(++*(int *)ctx);
    return *(int *)ctx > 5 ? -ENODATA : 0;
}

static bool small(union weft_value value, void *ctx)
{
    (void)ctx;
    on_base_stack();
    return value.num < 3;
}

static int add_one(union weft_value in, void *ctx, union weft_value *out)
{
    (void)ctx;
    on_base_stack();
    *out = weft_num(in.num + 1);
    return 0;
}

static void observe(union weft_value value, void *ctx)
{
    on_base_stack();
    *(int64_t *)ctx = value.num;
}

static struct promise *hook(void *ctx)
{
    (void)ctx;
    on_base_stack();
    return promise_fulfilled(weft_num(0));
}

static int64_t pushes(void *stream)
{
    for (int i = 1; i <= 3; i++)
        cr_assert_eq(fiber_await(promise_stream_push_wait(stream, weft_num(i)), NULL, WEFT_FOREVER),
                     0);
    cr_assert_eq(promise_stream_close(stream), 0);
    promise_stream_unref(stream);
    return 0;
}

static int64_t resets(void *signal)
{
    promise_signal_set(signal, weft_num(41));
    return 0;
}

static int everything(void *arg)
{
    struct promise_pool_options options = PROMISE_POOL_OPTIONS_INIT;
    struct promise_switch *sw;
    struct promise_pool *pool;
    struct promise_stream *s;
    struct promise_signal *signal, *next;
    struct promise_event *seen;
    union weft_value value = weft_num(0);
    int64_t observed = 0;
    int n = 0;

    (void)arg;
    weft_set(&key, (void *)(uintptr_t)&key);
    weft_mutex_init(&mutex);
    inside = most = 0;
    for (int i = 0; i < 10; i++)
        fiber_detach(locks, NULL);
    for (int i = 0; i < 30; i++)
        fiber_yield();
    cr_assert_eq(most, 1);
    cr_assert(!weft_mutex_is_locked(&mutex));
    cr_assert_eq(
        fiber_await(promise_mutex_with_lock(&mutex, in_lock, (void *)3), &value, WEFT_FOREVER), 0);
    cr_assert_eq(value.num, 3);
    weft_mutex_finish(&mutex);

    options.create = make_member;
    options.validate = use_member;
    pool = promise_pool_create(1, &options);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(fiber_await(promise_pool_use(pool, use_member, NULL), &value, WEFT_FOREVER),
                     0);
    cr_assert_eq(value.num, 7);
    promise_pool_destroy(pool);

    sw = promise_switch_create();
    promise_switch_add_hook(sw, hook, NULL);
    cr_assert_eq(fiber_await(promise_switch_turn_off(sw), NULL, WEFT_FOREVER), 0);
    promise_switch_unref(sw);

    s = promise_stream_filter(
        promise_stream_map(promise_stream_from_direct(number, &n, NULL, NULL), add_one, NULL),
        small, NULL);
    cr_assert_eq(fiber_await(promise_stream_get(s), &value, WEFT_FOREVER), 0);
    cr_assert_eq(value.num, 2);
    cr_assert_eq(fiber_await(promise_stream_get(s), &value, WEFT_FOREVER), -ENODATA);
    promise_stream_unref(s);

    s = promise_stream_create_bounded(1, NULL);
    fiber_detach(pushes, promise_stream_ref(s));
    for (int i = 1; i <= 3; i++) {
        cr_assert_eq(fiber_await(promise_stream_get(s), &value, WEFT_FOREVER), 0);
        cr_assert_eq(value.num, i);
    }
    cr_assert_eq(fiber_await(promise_stream_get(s), &value, WEFT_FOREVER), -ENODATA);
    promise_stream_unref(s);
    s = promise_stream_create(NULL);
    promise_unref(promise_stream_get_while(s, small, NULL));
    promise_stream_push(s, weft_num(1)); /* tests what is there */
    promise_stream_unref(s);

    signal = promise_signal_create(weft_num(1), NULL, NULL);
    next = promise_signal_map(promise_signal_ref(signal), add_one, NULL, NULL);
    seen =
        promise_event_observe(promise_signal_changes(promise_signal_ref(next)), observe, &observed);
    fiber_detach(resets, signal);
    cr_assert_eq(fiber_await(promise_event_next(seen), NULL, WEFT_FOREVER), 0);
    cr_assert_eq(observed, 42);
    promise_event_unref(seen);
    promise_signal_unref(next);
    promise_signal_unref(signal);
    return 0;
}

static size_t left;

static int guarded(void *arg)
{
    int rc = everything(arg);

    left = promise__live();
    return rc;
}

Test(promise_modules, are_used_from_fibers)
{
    for (const struct setup *setup = setups; setup < setups + setups_count; setup++) {
        calls = 0;
        cr_assert_eq(run_on(setup, guarded, NULL), 0, "%s", report_text());
        cr_assert_geq(calls, 15);
        cr_assert_eq(left, 0, "%s: %zu promises left", setup->name, left);
    }
}
