/* sync_weft.c: what locks, channels and fiber_select cost with weft; one program for each of its
 * context switches. Defaults throughout. See peers/sync.h.
 */
#include "peers/sync.h"

#include <weft/fiber.h>
#include <weft/runtime.h>
#include <weft/scope.h>
#include <weft/sync.h>

struct work {
    long ops; /* of one fiber */
    int64_t sum;
    struct weft_channel there, back;
    struct weft_mutex mutex;
    struct weft_semaphore semaphore;
    union weft_value room[SYNC_ROOM];
};

static void must(int result, const char *what)
{
    if (result < 0)
        bench_die("%s: %s", what, strerror(-result));
}

/* ---- channels ---- */

static int64_t ping(void *arg)
{
    struct work *work = arg;
    union weft_value item;

    for (long i = 0; i < work->ops; i++) {
        must(fiber_channel_send(&work->there, weft_num(i), WEFT_FOREVER), "send");
        must(fiber_channel_recv(&work->back, &item, WEFT_FOREVER), "recv");
        work->sum += item.num;
    }
    return 0;
}

static int64_t pong(void *arg)
{
    struct work *work = arg;
    union weft_value item;

    for (long i = 0; i < work->ops; i++) {
        must(fiber_channel_recv(&work->there, &item, WEFT_FOREVER), "recv");
        must(fiber_channel_send(&work->back, item, WEFT_FOREVER), "send");
    }
    return 0;
}

static int64_t produce(void *arg)
{
    struct work *work = arg;

    for (long i = 0; i < work->ops; i++)
        must(fiber_channel_send(&work->there, weft_num(i), WEFT_FOREVER), "send");
    return 0;
}

static int64_t produce_back(void *arg)
{
    struct work *work = arg;

    for (long i = 0; i < work->ops; i++)
        must(fiber_channel_send(&work->back, weft_num(i), WEFT_FOREVER), "send");
    return 0;
}

static int64_t consume(void *arg)
{
    struct work *work = arg;
    union weft_value item;

    for (long i = 0; i < work->ops; i++) {
        must(fiber_channel_recv(&work->there, &item, WEFT_FOREVER), "recv");
        work->sum += item.num;
    }
    return 0;
}

static int64_t consume_either(void *arg)
{
    struct work *work = arg;

    for (long i = 0; i < 2 * work->ops; i++) {
        struct fiber_case cases[2];
        int which;

        fiber_case_recv(&cases[0], &work->there);
        fiber_case_recv(&cases[1], &work->back);
        which = fiber_select(cases, 2, WEFT_FOREVER);
        must(which, "select");
        work->sum += cases[which].value.num;
    }
    return 0;
}

/* ---- locks ---- */

static int64_t lock_and_yield(void *arg)
{
    struct work *work = arg;

    for (long i = 0; i < work->ops; i++) {
        must(fiber_mutex_lock(&work->mutex, WEFT_FOREVER), "lock");
        work->sum++;
        fiber_yield();
        weft_mutex_unlock(&work->mutex);
    }
    return 0;
}

static int64_t lock_free(void *arg)
{
    struct work *work = arg;

    for (long i = 0; i < work->ops; i++) {
        must(fiber_mutex_lock(&work->mutex, WEFT_FOREVER), "lock");
        work->sum++;
        weft_mutex_unlock(&work->mutex);
    }
    return 0;
}

static int64_t take_a_unit(void *arg)
{
    struct work *work = arg;

    for (long i = 0; i < work->ops; i++) {
        must(fiber_semaphore_acquire(&work->semaphore, 1, WEFT_FOREVER), "acquire");
        work->sum++;
        fiber_yield();
        weft_semaphore_release(&work->semaphore, 1);
    }
    return 0;
}

/* ---- modes ---- */

static int64_t sum_to(long count)
{
    return (int64_t)count * (count - 1) / 2;
}

static void spawn(struct fiber_scope *scope, fiber_fn *fn, struct work *work, int count)
{
    for (int i = 0; i < count; i++)
        must(fiber_scope_spawn(scope, fn, work), "spawn");
}

static void run(const struct sync_plan *plan, long ops)
{
    static struct work work;
    struct fiber_scope scope;
    int64_t expected;

    memset(&work, 0, sizeof(work));
    must(fiber_scope_open(&scope, WEFT_FOREVER), "scope");
    if (sync_is(plan, "channel-pingpong")) {
        work.ops = ops / 2;
        spawn(&scope, ping, &work, 1);
        spawn(&scope, pong, &work, 1);
        expected = sum_to(work.ops);
    } else if (sync_is(plan, "channel-buffered")) {
        work.ops = ops;
        weft_channel_init(&work.there, work.room, SYNC_ROOM, NULL);
        spawn(&scope, produce, &work, 1);
        spawn(&scope, consume, &work, 1);
        expected = sum_to(work.ops);
    } else if (sync_is(plan, "mutex-handover")) {
        work.ops = ops / SYNC_LOCKERS;
        spawn(&scope, lock_and_yield, &work, SYNC_LOCKERS);
        expected = ops;
    } else if (sync_is(plan, "mutex-free")) {
        work.ops = ops;
        spawn(&scope, lock_free, &work, 1);
        expected = ops;
    } else if (sync_is(plan, "semaphore")) {
        work.ops = ops / SYNC_TAKERS;
        weft_semaphore_init(&work.semaphore, SYNC_UNITS);
        spawn(&scope, take_a_unit, &work, SYNC_TAKERS);
        expected = ops;
    } else if (sync_is(plan, "select-two")) {
        work.ops = ops / 2;
        spawn(&scope, consume_either, &work, 1);
        spawn(&scope, produce, &work, 1);
        spawn(&scope, produce_back, &work, 1);
        expected = 2 * sum_to(work.ops);
    } else {
        sync_skip("no such mode");
    }
    must(fiber_scope_close(&scope, 0), "close");
    sync_check(plan->mode, work.sum, expected);
}

static int weft_main(void *arg)
{
    const struct sync_plan *plan = arg;
    int64_t began;

    run(plan, plan->ops / 10);
    began = bench_now();
    run(plan, plan->ops);
    return sync_print(bench_now() - began, plan->ops);
}

int main(int argc, char **argv)
{
    static struct sync_plan plan;
    int result;

    sync_plan_read(&plan, argc, argv);
    result = weft_run(weft_main, &plan, NULL);
    bench_die("weft_run: %s", strerror(-result));
}
