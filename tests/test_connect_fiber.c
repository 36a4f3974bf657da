/* needs: fibers */
/* Names and connecting in fibers. */
#include "fiber_internal.h"
#include "io_support.h"
#include "ring_internal.h"

#include <weft/io.h>
#include <weft/promise.h>

#include <criterion/criterion.h>

/* ---- the form: each operation in a fiber of its own, so that it can be cancelled ---- */

struct flow {
    enum { SEARCH, BY_NAME, ANY } kind;
    const char *host, *service;
    unsigned flags;
    struct ring_addresses *list;
    weft_time deadline;
    struct promise *ended;
    struct fiber *self;
};

static int64_t flow_fiber(void *arg)
{
    struct flow *flow = arg;

    flow->self = fiber_self();
    switch (flow->kind) {
    case SEARCH:
        return fiber_resolve_host(flow->host, flow->service, flow->flags, &flow->list,
                                  flow->deadline);
    case BY_NAME:
        return fiber_connect_host(flow->host, flow->service, flow->deadline);
    default:
        return fiber_connect_any(flow->list, flow->deadline);
    }
}

static void begin(struct flow *flow)
{
    flow->ended = fiber_spawn(flow_fiber, flow);
    fiber_yield();
}

static void begin_search(struct flow *flow, const char *host, const char *service, unsigned flags,
                         weft_time deadline)
{
    *flow = (struct flow){.kind = SEARCH,
                          .host = host,
                          .service = service,
                          .flags = flags,
                          .list = (void *)flow, /* it is overwritten in any case */
                          .deadline = deadline};
    begin(flow);
}

static void begin_host(struct flow *flow, const char *host, const char *service, weft_time deadline)
{
    *flow = (struct flow){.kind = BY_NAME, .host = host, .service = service, .deadline = deadline};
    begin(flow);
}

static void begin_any(struct flow *flow, struct ring_addresses *list, weft_time deadline)
{
    *flow = (struct flow){.kind = ANY, .list = list, .deadline = deadline};
    begin(flow);
}

static void cancel(struct flow *flow)
{
    if (promise_state(flow->ended) == PROMISE_PENDING)
        fiber__cancel(weft__rt, flow->self);
}

static void step(void)
{
    cr_assert_eq(fiber_yield(), 0);
}

static int result(struct flow *flow)
{
    union weft_value value;
    int rc = fiber_await(flow->ended, &value, WEFT_FOREVER);

    return rc < 0 ? rc : (int)value.num;
}

#include "connect_suite.h"

#define ON_EACH_SETUP(body)                                                                   \
    EACH_IO_SETUP(setup)                                                                      \
    {                                                                                         \
        cr_assert_eq(run_on(setup, in_fiber, body), 0, "%s: %s", setup->name, report_text()); \
    }

static int in_fiber(void *body)
{
    ((void (*)(void))body)();
    return 0;
}

Test(connect_fiber, names)
{
    ON_EACH_SETUP(names_suite);
}

Test(connect_fiber, errors_of_lookups)
{
    ON_EACH_SETUP(errors_suite);
}

Test(connect_fiber, one_after_the_other)
{
    ON_EACH_SETUP(sequence_suite);
}

Test(connect_fiber, no_descriptor_left)
{
    ON_EACH_SETUP(shortage_suite);
}

Test(connect_fiber, families_take_turns)
{
    need_v6();
    ON_EACH_SETUP(turns_suite);
}

static void race_4(void)
{
    race_suite(false);
}

static void race_6(void)
{
    race_suite(true);
}

Test(connect_fiber, who_hangs_is_not_waited_for)
{
    ON_EACH_SETUP(race_4);
}

Test(connect_fiber, a_family_that_hangs_is_not_waited_for)
{
    need_v6();
    ON_EACH_SETUP(race_6);
}

Test(connect_fiber, deadlines)
{
    ON_EACH_SETUP(deadline_suite);
}

Test(connect_fiber, cancels_in_each_phase)
{
    ON_EACH_SETUP(cancel_suite);
}

Test(connect_fiber, cancels_at_random, .timeout = 300)
{
    rounds = slow_tools() ? 1000 : 10000;
    ON_EACH_SETUP(random_suite);
}

Test(connect_fiber, lookups_nobody_answers_hold_up_nothing_else)
{
    ON_EACH_SETUP(stuck_suite);
}

Test(connect_fiber, localhost)
{
    need_localhost();
    ON_EACH_SETUP(localhost_suite);
}

/* ---- where they may not be called, and the end ---- */

static struct weft_task callback;
static bool called;

static void call_from_base(struct weft_task *task)
{
    struct ring_addresses *list;

    (void)task;
    cr_assert_eq(fiber_resolve_host("::1", "1", 0, &list, WEFT_FOREVER), -EDEADLK);
    cr_assert_eq(fiber_connect_any(NULL, WEFT_FOREVER), -EDEADLK);
    called = true;
}

static void callers_body(void)
{
    called = false;
    cr_assert_eq(fiber_resolve_host("::1", "1", 0, NULL, WEFT_FOREVER), -EFAULT);
    cr_assert_eq(weft_task_init(&callback, call_from_base), 0);
    weft_task_queue(&callback);
    while (!called)
        step();
    weft_task_finish(&callback);
}

Test(connect_fiber, callers_that_cannot_wait)
{
    struct ring_addresses *list;

    cr_assert_eq(fiber_resolve_host("::1", "1", 0, &list, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_connect_any(NULL, WEFT_FOREVER), -EINVAL);
    ON_EACH_SETUP(callers_body);
}

/* A fiber cancelled before it begins starts nothing. */
static int64_t cancelled_fiber(void *list)
{
    struct ring_addresses *found;

    fiber_sleep_until(WEFT_FOREVER);
    cr_assert_eq(fiber_resolve_host("::1", "1", 0, &found, WEFT_FOREVER), -ECANCELED);
    cr_assert_eq(fiber_connect_any(list, WEFT_FOREVER), -ECANCELED);
    cr_assert_eq(weft__rt->engine->in_flight, 0);
    return 0;
}

static struct place end_good, end_hangs;

static void left_body(void)
{
    static struct flow flows[4];
    struct ring_addresses *list = LIST(&end_hangs, &end_good, &end_hangs);

    cr_assert_eq(fiber_detach(cancelled_fiber, list), 0);
    ring__connect_delay = WEFT_FOREVER;
    begin_search(&flows[0], "name", "1", 0, WEFT_FOREVER);
    begin_host(&flows[1], "name", "1", weft_after(WEFT_SEC(1000)));
    begin_any(&flows[2], list, WEFT_FOREVER);
    step();
    begin_any(&flows[3], list, weft_after(WEFT_SEC(1000)));
    for (int i = 0; i < 4; i++)
        promise_unref(flows[i].ended);
    ring_addresses_destroy(list);
}

Test(connect_fiber, the_end_with_everything_pending)
{
    int before;

    set_server();
    server.waits = true;
    open_place(&end_good, ACCEPTS, false);
    open_place(&end_hangs, HANGS, false);
    server.places[0] = &end_hangs;
    before = open_descriptors();
    ON_EACH_SETUP(left_body);
    for (int j = 0; j < 100; j++)
        sem_post(&server.answer);
    cr_assert_eq(open_descriptors(), before);
    close_place(&end_good);
    close_place(&end_hangs);
}
