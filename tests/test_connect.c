/* Names and connecting: the raw form of a lookup, and all of it as promises; without fibers. */
#include "io_support.h"

#include <weft/io.h>
#include <weft/promise.h>

#include "inbox.h"
#include "ring_internal.h"
#include "timer.h"

#include <criterion/criterion.h>

/* ---- the form ---- */

struct flow {
    struct promise *p;
    struct ring_addresses *list;
    bool is_search;
};

static void begin_search(struct flow *flow, const char *host, const char *service, unsigned flags,
                         weft_time deadline)
{
    *flow =
        (struct flow){.p = promise_resolve_host(host, service, flags, deadline), .is_search = true};
}

static void begin_host(struct flow *flow, const char *host, const char *service, weft_time deadline)
{
    *flow = (struct flow){.p = promise_connect_host(host, service, deadline)};
}

static void begin_any(struct flow *flow, struct ring_addresses *list, weft_time deadline)
{
    *flow = (struct flow){.p = promise_connect_any(list, deadline)};
}

static void cancel(struct flow *flow)
{
    promise_cancel(flow->p);
}

static void step(void)
{
    struct weft_runtime *rt = weft__rt;

    cr_assert_eq(rt->engine->class->turn(rt->engine, WEFT_NOWAIT), 0);
    weft__inbox_run(rt->inbox);
    if (rt->timers != NULL)
        weft__timers_fire(rt, weft_now());
}

static int result(struct flow *flow)
{
    union weft_value value;
    int error = 0;

    while (promise_state(flow->p) == PROMISE_PENDING)
        turn();
    if (promise_poll(flow->p, &value, &error) == PROMISE_FULFILLED) {
        if (flow->is_search)
            flow->list = ring__addresses_ref(value.ptr);
        else
            error = (int)value.num;
    }
    promise_unref(flow->p);
    return error;
}

#include "connect_suite.h"

#define ON_EACH_SETUP(body)                                                              \
    EACH_IO_SETUP(setup)                                                                 \
    {                                                                                    \
        cr_assert_eq(run_by_hand(setup, body), 0, "%s: %s", setup->name, report_text()); \
    }

/* ---- in numbers: at once, without a thread ---- */

static void not_done(struct ring_resolve *resolve, int res)
{
    (void)resolve;
    (void)res;
    abort();
}

static int at_once(const char *host, const char *service, unsigned flags, struct addrinfo *info)
{
    struct ring_resolve resolve;
    int rc;

    memset(&resolve, 0xa5, sizeof resolve); /* it needs no initialisation */
    resolve.done = not_done;
    rc = ring_resolve_host(&resolve, host, service, flags);
    cr_assert((rc == 0) == (resolve.list != NULL), "%s %s: %d", host, service, rc);
    if (rc == 0) {
        *info = *ring_addresses_first(resolve.list);
        cr_assert_eq(info->ai_next, NULL);
        cr_assert_eq(info->ai_canonname, NULL);
        info->ai_addr = memcpy(malloc(info->ai_addrlen), info->ai_addr, info->ai_addrlen);
        ring_addresses_destroy(resolve.list);
    }
    ring_resolve_cancel(&resolve); /* after an answer: harmless */
    return rc;
}

static void numeric_body(void)
{
    static const struct {
        const char *host, *service;
        unsigned flags;
        int result, port;
    } cases[] = {
        {"127.0.0.1", "80", 0, AF_INET, 80},
        {"127.0.0.1", NULL, 0, AF_INET, 0},
        {"127.0.0.1", "0", RING_IPV4, AF_INET, 0},
        {"255.255.255.255", "65535", RING_IPV4 | RING_IPV6, AF_INET, 65535},
        {"::1", "00443", RING_DATAGRAM, AF_INET6, 443},
        {"2001:db8::192.0.2.1", "http", RING_IPV6 | RING_DATAGRAM, AF_INET6, 80},
        {"fe80::1%1", "1", 0, AF_INET6, 1},
        {"fe80::1%lo", "1", 0, AF_INET6, 1},
        {"127.0.0.1", "1", RING_IPV6, -ENOENT, 0},
        {"::1", "1", RING_IPV4 | RING_DATAGRAM, -ENOENT, 0},
        {NULL, "1", 0, -EINVAL, 0},
        {"", "1", 0, -EINVAL, 0},
        {"::1", "", 0, -EINVAL, 0},
        {"::1", "65536", 0, -EINVAL, 0},
        {"::1", "99999999999999999999", 0, -EINVAL, 0},
        {"::1", "999999999999999999999999999999999999999999999", 0, -EINVAL, 0},
        {"a name", "a service of a length that none has", 0, -EINVAL, 0},
        {"::1", "1", 8, -EINVAL, 0},
    };
    static const struct {
        const char *name;
        int port;
    } services[] = {{"http", 80}, {"https", 443}, {"domain", 53}, {"ssh", 22}, {"ntp", 123}};
    static char long_name[1026];
    struct addrinfo info;
    unsigned jobs;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *host = cases[i].host, *service = cases[i].service;
        int rc = at_once(host, service, cases[i].flags, &info), stream, port;

        if (cases[i].result < 0) {
            cr_assert_eq(rc, cases[i].result, "%s %s: %d", host, service, rc);
            continue;
        }
        cr_assert_eq(rc, 0, "%s %s: %d", host, service, rc);
        stream = !(cases[i].flags & RING_DATAGRAM);
        port = info.ai_family == AF_INET ? ((struct sockaddr_in *)info.ai_addr)->sin_port
                                         : ((struct sockaddr_in6 *)info.ai_addr)->sin6_port;
        cr_assert_eq(info.ai_family, cases[i].result);
        cr_assert_eq(info.ai_addr->sa_family, cases[i].result);
        cr_assert_eq(info.ai_socktype, stream ? SOCK_STREAM : SOCK_DGRAM);
        cr_assert_eq(info.ai_protocol, stream ? IPPROTO_TCP : IPPROTO_UDP);
        cr_assert_eq(ntohs((uint16_t)port), cases[i].port);
        if (strchr(host, '%') != NULL)
            cr_assert_eq(((struct sockaddr_in6 *)info.ai_addr)->sin6_scope_id, 1);
        free(info.ai_addr);
    }
    for (size_t i = 0; i < sizeof services / sizeof services[0]; i++) {
        cr_assert_eq(at_once("192.0.2.1", services[i].name, 0, &info), 0);
        cr_assert_eq(ntohs(((struct sockaddr_in *)info.ai_addr)->sin_port), services[i].port);
        free(info.ai_addr);
    }
    memset(long_name, 'a', sizeof long_name - 1);
    cr_assert_eq(at_once(long_name, "1", 0, &info), -ENAMETOOLONG);
    cr_assert_eq(weft__offload_threads(&jobs), 0);
}

Test(connect, what_is_written_in_numbers_needs_no_lookup)
{
    struct ring_resolve resolve = {.done = not_done};

    cr_assert_eq(ring_resolve_host(&resolve, "::1", "1", 0), -EINVAL, "there is no runtime");
    ring_addresses_destroy(NULL);
    for (const struct setup *setup = setups; setup < setups + setups_count; setup++)
        cr_assert_eq(run_by_hand(setup, numeric_body), 0, "%s", setup->name);
}

/* ---- the raw form of a lookup ---- */

struct raw_search {
    struct ring_resolve resolve;
    int calls, result;
};

static void raw_done(struct ring_resolve *resolve, int res)
{
    struct raw_search *s = weft__container(resolve, struct raw_search, resolve);

    cr_assert(weft__is_base(weft__rt));
    s->calls++;
    s->result = res;
}

static void raw_body(void)
{
    struct place place = {.port = 1, .address.ss_family = AF_INET};
    struct raw_search search = {.resolve.done = raw_done}, gone = search;

    set_server();
    server.places[0] = &place;
    cr_assert_eq(ring_resolve_host(&search.resolve, "name", "1", 0), -EINPROGRESS);
    while (search.calls == 0)
        turn();
    cr_assert_eq(search.result, 0);
    cr_assert_eq(ring_addresses_first(search.resolve.list)->ai_family, AF_INET);
    ring_resolve_cancel(&search.resolve);
    ring_addresses_destroy(search.resolve.list);
    server.eai = EAI_AGAIN;
    cr_assert_eq(ring_resolve_host(&search.resolve, "name", "1", 0), -EINPROGRESS);
    while (search.calls == 1)
        turn();
    cr_assert_eq(search.result, -EAGAIN);
    cr_assert_eq(search.resolve.list, NULL);

    /* given up while it waits for an answer: the struct may go at once */
    server.waits = true;
    server.eai = 0;
    cr_assert_eq(ring_resolve_host(&gone.resolve, "name", "1", 0), -EINPROGRESS);
    wait_for(&server.asked);
    ring_resolve_cancel(&gone.resolve);
    ring_resolve_cancel(&gone.resolve);
    memset(&gone.resolve, 0xa5, sizeof gone.resolve);
    sem_post(&server.answer);
    server.waits = false;
    cr_assert_eq(ring_resolve_host(&search.resolve, "name", "1", 0), -EINPROGRESS);
    while (search.calls == 2)
        turn();
    ring_addresses_destroy(search.resolve.list);
    cr_assert_eq(gone.calls, 0);
}

Test(connect, raw_lookups)
{
    for (const struct setup *setup = setups; setup < setups + setups_count; setup++)
        cr_assert_eq(run_by_hand(setup, raw_body), 0, "%s", setup->name);
}

/* ---- the suites ---- */

Test(connect, names)
{
    ON_EACH_SETUP(names_suite);
}

Test(connect, errors_of_lookups)
{
    ON_EACH_SETUP(errors_suite);
}

Test(connect, one_after_the_other)
{
    cr_assert_eq(ring__connect_delay, WEFT_MS(250), "as RFC 8305 recommends");
    ON_EACH_SETUP(sequence_suite);
}

Test(connect, no_descriptor_left)
{
    ON_EACH_SETUP(shortage_suite);
}

Test(connect, families_take_turns)
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

Test(connect, who_hangs_is_not_waited_for)
{
    ON_EACH_SETUP(race_4);
}

Test(connect, a_family_that_hangs_is_not_waited_for)
{
    need_v6();
    ON_EACH_SETUP(race_6);
}

Test(connect, deadlines)
{
    ON_EACH_SETUP(deadline_suite);
}

Test(connect, cancels_in_each_phase)
{
    ON_EACH_SETUP(cancel_suite);
}

Test(connect, cancels_at_random, .timeout = 300)
{
    rounds = slow_tools() ? 1000 : 10000;
    ON_EACH_SETUP(random_suite);
}

Test(connect, lookups_nobody_answers_hold_up_nothing_else)
{
    ON_EACH_SETUP(stuck_suite);
}

Test(connect, localhost)
{
    need_localhost();
    ON_EACH_SETUP(localhost_suite);
}

/* ---- what only promises do ---- */

/* Dropped promises: what comes for nobody is closed; a list may go before its operation. */
static void dropped_body(void)
{
    int before = open_descriptors();
    struct place good, hangs;
    struct flow flow;
    struct ring_addresses *list;

    ring__connect_delay = WEFT_MS(1);
    open_place(&good, ACCEPTS, false);
    open_place(&hangs, HANGS, false);
    set_server();
    server.places[0] = &hangs;
    server.places[1] = &good;
    list = LIST(&hangs, &good);
    begin_any(&flow, list, WEFT_FOREVER);
    promise_unref(promise_connect_any(list, WEFT_FOREVER));
    ring_addresses_destroy(list);
    promise_unref(promise_connect_host("name", "1", WEFT_FOREVER));
    promise_unref(promise_resolve_host("name", "1", 0, WEFT_FOREVER));
    promise_unref(promise_resolve_host("::1", "1", 0, WEFT_FOREVER));
    close(result(&flow));
    open_descriptors(); /* waits for the pool */
    step();
    while (weft__rt->engine->in_flight > 0)
        turn();
    close_place(&good);
    close_place(&hangs);
    cr_assert_eq(open_descriptors(), before);
}

Test(connect, connections_for_nobody_are_closed)
{
    ON_EACH_SETUP(dropped_body);
}

/* The end of a runtime in each phase. */
static struct place end_good, end_hangs;

static void left_body(void)
{
    weft_time far = weft_after(WEFT_SEC(1000));
    struct ring_addresses *list = LIST(&end_hangs, &end_good, &end_hangs);

    ring__connect_delay = WEFT_FOREVER;
    promise_unref(promise_resolve_host("name", "1", 0, far));
    promise_unref(promise_connect_host("name", "1", far));
    promise_unref(promise_connect_any(list, far));
    ring__connect_delay = 0;
    promise_unref(promise_connect_any(list, WEFT_FOREVER));
    step();
    promise_unref(promise_connect_any(list, far));
    ring_addresses_destroy(list);
}

Test(connect, the_end_with_everything_pending)
{
    int before;

    set_server();
    open_place(&end_good, ACCEPTS, false);
    open_place(&end_hangs, HANGS, false);
    server.places[0] = &end_hangs;
    server.places[1] = &end_good;
    before = open_descriptors();
    for (int i = 0; i < 20; i++) {
        server.waits = i % 2;
        ON_EACH_SETUP(left_body);
        for (int j = 0; server.waits && j < 100; j++)
            sem_post(&server.answer);
        cr_assert_eq(open_descriptors(), before);
        while (sem_trywait(&server.answer) == 0)
            ;
    }
    close_place(&end_good);
    close_place(&end_hangs);
}

static void no_io_body(void)
{
    struct place good;

    open_place(&good, ACCEPTS, false);
    cr_assert_eq(any(LIST(&good, &good), WEFT_FOREVER), -ENOSYS);
    cr_assert_eq(host("127.0.0.1", "1", WEFT_FOREVER), -ENOSYS);
    close_place(&good);
}

Test(connect, without_an_engine)
{
    struct ring__entry *entries;
    struct ring_addresses *list = ring__addresses_create(1, &entries);
    struct promise *p = promise_connect_any(list, WEFT_FOREVER);
    int error = 0;

    cr_assert_eq(promise_poll(p, NULL, &error), PROMISE_REJECTED);
    cr_assert_eq(error, -EINVAL);
    promise_unref(p);
    p = promise_resolve_host("::1", "1", 0, WEFT_FOREVER);
    cr_assert_eq(promise_poll(p, NULL, &error), PROMISE_REJECTED);
    cr_assert_eq(error, -EINVAL);
    promise_unref(p);
    ring_addresses_destroy(list);
    cr_assert_eq(run_by_hand(&setups[0], no_io_body), 0);
}
