/* needs: fibers
 * mixed.c: both styles in one process, on one run queue and one ring.
 *
 *     GET /        a page with a value from upstream
 *     GET /slow    sleeps for a second, and holds up nobody
 *     GET /stats   counters
 *
 * Connections are fibers: a handler below reads from top to bottom, and waits where it waits. What
 * goes on beside them is promise style: the fetch from upstream and its cache, and the statistics.
 * They meet in one place: a fiber awaits a promise. All fibers that need the upstream's value at a
 * time await the same one, so a thousand of them cause one fetch.
 *
 * The upstream is a second server of this process, on a port of its own.
 */
#include "http_server.h"
#include "program.h"

#include <http_parser.h>

struct mixed {
    struct program program;
    struct http_server front, upstream;
    long cache_ms, fetch_ms, upstream_ms, slow_ms, report_ms, drain_ms;

    /* The upstream's value. One promise, for the fetch while it goes on and for its result. */
    struct promise *value; /* NULL: never fetched */
    weft_time fresh_until;

    /* The fetch under way; there is one at most. */
    int fd;
    weft_time fetch_deadline;
    http_parser parser;
    bool complete;
    int64_t tick;
    char port[8], buffer[512];

    uint64_t ticks; /* the upstream's: how often it has been asked */
    uint64_t fetches, waiters, waiters_max, slow, reported_requests;
};

/* ---- the upstream ---------------------------------------------------------------------------- */

static void answer_upstream(struct http_connection *c, void *context)
{
    struct mixed *m = context;
    char text[32];
    int length = snprintf(text, sizeof text, "%llu", (unsigned long long)++m->ticks);

    fiber_sleep(WEFT_MS(m->upstream_ms)); /* it has work to do */
    http_respond(c, HTTP_STATUS_OK, (struct text){text, (size_t)length});
}

/* ---- the fetch, in promise style ------------------------------------------------------------- */

static int on_upstream_body(http_parser *parser, const char *at, size_t length)
{
    struct mixed *m = parser->data;

    for (size_t i = 0; i < length; i++) {
        if (at[i] < '0' || at[i] > '9' || m->tick > INT64_MAX / 10 - 1)
            return -1;
        m->tick = 10 * m->tick + (at[i] - '0');
    }
    return 0;
}

static int on_upstream_complete(http_parser *parser)
{
    struct mixed *m = parser->data;

    m->complete = true;
    return 0;
}

static const http_parser_settings upstream_settings = {
    .on_body = on_upstream_body,
    .on_message_complete = on_upstream_complete,
};

static struct promise *receive_reply(union weft_value ignored, void *ctx);

static struct promise *received_reply(union weft_value bytes, void *ctx)
{
    struct mixed *m = ctx;

    /* The end of the stream, 0 bytes, is news to the parser too. */
    http_parser_execute(&m->parser, &upstream_settings, m->buffer, (size_t)bytes.num);
    if (m->complete && m->parser.status_code == HTTP_STATUS_OK)
        return promise_fulfilled(weft_num(m->tick));
    if (m->complete || bytes.num == 0 || HTTP_PARSER_ERRNO(&m->parser) != HPE_OK)
        return promise_rejected(-EBADMSG);
    return receive_reply(weft_num(0), m);
}

static struct promise *receive_reply(union weft_value ignored, void *ctx)
{
    struct mixed *m = ctx;

    (void)ignored;
    return promise_bind(promise_recv(m->fd, m->buffer, sizeof m->buffer, 0, m->fetch_deadline),
                        received_reply, m);
}

static struct promise *send_request(union weft_value fd, void *ctx)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: upstream\r\nConnection: close\r\n\r\n";
    struct mixed *m = ctx;

    m->fd = (int)fd.num;
    return promise_bind(
        promise_send_all(m->fd, request, sizeof request - 1, 0, NULL, m->fetch_deadline),
        receive_reply, m);
}

static struct promise *hang_up(void *ctx)
{
    struct mixed *m = ctx;

    return m->fd < 0 ? promise_fulfilled(weft_num(0)) : promise_close(m->fd);
}

static int fetched(union weft_value tick, void *ctx)
{
    struct mixed *m = ctx;

    (void)tick;
    m->fresh_until = weft_after(WEFT_MS(m->cache_ms));
    return 0;
}

/* The upstream's value: a promise that many may hold, one reference of which is the caller's. */
static struct promise *upstream_value(struct mixed *m)
{
    enum promise_state state = m->value != NULL ? promise_state(m->value) : PROMISE_REJECTED;

    /* A failure concerns those who waited for it; the next to ask tries again. */
    if (state == PROMISE_REJECTED || (state == PROMISE_FULFILLED && weft_now() >= m->fresh_until)) {
        promise_unref(m->value);
        m->fetches++;
        m->fd = -1;
        m->tick = 0;
        m->complete = false;
        m->fetch_deadline = weft_after(WEFT_MS(m->fetch_ms)); /* one for all the steps */
        http_parser_init(&m->parser, HTTP_RESPONSE);
        m->parser.data = m;
        m->value = promise_finalize(
            promise_bind(promise_connect_host("127.0.0.1", m->port, m->fetch_deadline),
                         send_request, m),
            hang_up, m);
        promise_on_success(m->value, fetched, m);
    }
    return promise_ref(m->value);
}

/* ---- the handlers, in direct style ----------------------------------------------------------- */

static struct text stats_text(struct mixed *m, char *buffer, size_t size)
{
    struct weft_stats s = {.size = sizeof s};
    uint64_t requests = m->front.requests;
    int length;

    (void)weft_stats(&s);
    length = snprintf(buffer, size,
                      "requests %llu\n"
                      "connections %zu\n"
                      "connections_accepted %llu\n"
                      "slow %llu\n"
                      "fibers %llu\n"
                      "upstream_fetches %llu\n"
                      "upstream_waiters_max %llu\n"
                      "engine %s\n"
                      "passes %llu\n"
                      "switches %llu\n"
                      "enters %llu\n"
                      "submitted %llu\n"
                      "completed %llu\n"
                      "in_flight %llu\n"
                      "overflows %llu\n"
                      "timers %llu\n"
                      "promises %llu\n"
                      "enters_per_request %.3f\n",
                      (unsigned long long)requests, m->front.tcp.connections,
                      (unsigned long long)m->front.tcp.accepted, (unsigned long long)m->slow,
                      (unsigned long long)s.fibers, (unsigned long long)m->fetches,
                      (unsigned long long)m->waiters_max, weft_engine_name(),
                      (unsigned long long)s.passes, (unsigned long long)s.switches,
                      (unsigned long long)s.enters, (unsigned long long)s.submitted,
                      (unsigned long long)s.completed, (unsigned long long)s.in_flight,
                      (unsigned long long)s.overflows, (unsigned long long)s.timers,
                      (unsigned long long)s.promises,
                      requests > 0 ? (double)s.enters / (double)requests : 0.0);
    return (struct text){buffer, (size_t)length};
}

static void answer_page(struct http_connection *c, struct mixed *m)
{
    char page[512];
    union weft_value tick;
    int error, length;

    /* Here the styles meet. No deadline: the fetch has one. */
    if (++m->waiters > m->waiters_max)
        m->waiters_max = m->waiters;
    error = fiber_await(upstream_value(m), &tick, WEFT_FOREVER);
    m->waiters--;

    length = snprintf(page, sizeof page,
                      "Each connection is a fiber; the value below is a promise that all of them "
                      "share.\n\n"
                      "  /       this page\n"
                      "  /slow   sleeps for %ld ms, and holds up nobody\n"
                      "  /stats  counters\n\n",
                      m->slow_ms);
    if (error == 0)
        length += snprintf(page + length, sizeof page - (size_t)length, "upstream: tick %lld\n",
                           (long long)tick.num);
    else
        length += snprintf(page + length, sizeof page - (size_t)length,
                           "upstream: not available (%s)\n", strerror(-error));
    http_respond(c, HTTP_STATUS_OK, (struct text){page, (size_t)length});
}

static void answer_slow(struct http_connection *c, struct mixed *m)
{
    char text[64];
    weft_time began = weft_now();
    int length;

    http_flush(c); /* the answers to what was pipelined ahead need not wait with this one */
    m->slow++;
    fiber_sleep(WEFT_MS(m->slow_ms));
    m->slow--;
    length = snprintf(text, sizeof text, "that took %lld ms\n",
                      (long long)((weft_now() - began) / WEFT_MS(1)));
    http_respond(c, HTTP_STATUS_OK, (struct text){text, (size_t)length});
}

static void answer(struct http_connection *c, void *context)
{
    struct mixed *m = context;
    char text[512];
    bool page = http_path_is(c, TEXT("/")), slow = http_path_is(c, TEXT("/slow"));

    if (!page && !slow && !http_path_is(c, TEXT("/stats")))
        http_respond(c, HTTP_STATUS_NOT_FOUND, TEXT("not found\n"));
    else if (c->method != HTTP_GET && c->method != HTTP_HEAD)
        http_respond_method(c, TEXT("Allow: GET, HEAD\r\n"));
    else if (page)
        answer_page(c, m);
    else if (slow)
        answer_slow(c, m);
    else
        http_respond(c, HTTP_STATUS_OK, stats_text(m, text, sizeof text));
}

/* ---- the statistics, in promise style -------------------------------------------------------- */

static struct promise *report_later(struct mixed *m);

static struct promise *report(union weft_value ignored, void *ctx)
{
    struct mixed *m = ctx;
    uint64_t requests = m->front.requests - m->reported_requests;

    (void)ignored;
    if (requests > 0) {
        printf("%.0f requests/s, %zu connections, %llu upstream fetches\n",
               (double)requests * 1000 / (double)m->report_ms, m->front.tcp.connections,
               (unsigned long long)m->fetches);
        fflush(stdout);
    }
    m->reported_requests = m->front.requests;
    return report_later(m);
}

/* A loop without an end: each round binds the next. Canceling its promise ends it. */
static struct promise *report_later(struct mixed *m)
{
    return promise_bind(promise_sleep(WEFT_MS(m->report_ms)), report, m);
}

/* ---- the program ------------------------------------------------------------------------------ */

static int64_t serve_upstream(void *arg)
{
    struct mixed *m = arg;

    return http_serve(&m->upstream);
}

static void stopping(void *arg)
{
    struct http_server *front = arg;

    http_end_idle(front);
    printf("stopping: finishing %zu connections; again to stop at once\n", front->tcp.connections);
    fflush(stdout);
}

static int run(void *arg)
{
    struct mixed *m = arg;
    struct promise *statistics;
    struct fiber_scope scope;
    char text[512];
    int result;

    fiber_scope_open(&scope, WEFT_FOREVER);
    result = fiber_scope_spawn(&scope, serve_upstream, m);
    statistics = report_later(m);
    if (result == 0)
        result = http_serve(&m->front);
    promise_cancel(statistics);
    promise_unref(statistics);
    promise_cancel(m->value);
    promise_unref(m->value);
    m->value = NULL;
    /* The upstream last: what the front still answered may have needed it. Now nobody does. */
    weft_server_stop(&m->upstream.tcp);
    result = fiber_scope_close(&scope, result);

    fputs(stats_text(m, text, sizeof text).start, stdout);
    return result;
}

/* Defaults and the command line. */
static void read_settings(struct mixed *m, int argc, char **argv)
{
    program_init(&m->program, "Serves HTTP with fibers and promises in one process.");
    http_server_init(&m->front, answer, m);
    http_server_init(&m->upstream, answer_upstream, m);
    http_server_settings(&m->front, &m->program);
    m->cache_ms = 1000;
    m->fetch_ms = 5000;
    m->upstream_ms = 100;
    m->slow_ms = 1000;
    m->report_ms = 5000;
    m->drain_ms = 10000;
    program_setting(&m->program, "cache-ms", "how long the upstream's value is fresh", &m->cache_ms,
                    0, 3600000);
    program_setting(&m->program, "fetch-ms", "how long a fetch may take", &m->fetch_ms, 1, 3600000);
    program_setting(&m->program, "upstream-ms", "how long the upstream takes to answer",
                    &m->upstream_ms, 0, 3600000);
    program_setting(&m->program, "slow-ms", "how long /slow takes", &m->slow_ms, 0, 3600000);
    program_setting(&m->program, "report-ms", "between two lines of statistics", &m->report_ms, 1,
                    3600000);
    program_setting(&m->program, "drain-ms", "how long open requests may take when stopping",
                    &m->drain_ms, 0, 3600000);
    program_read_settings(&m->program, argc, argv);
}

int main(int argc, char **argv)
{
    static struct mixed m;
    const char *host;
    int port, status;

    read_settings(&m, argc, argv);
    m.upstream.tcp.ignores_signals = true; /* the front's end is its end */
    m.upstream.tcp.grace = 0;
    m.upstream.tcp.listener = ring_listen("127.0.0.1", "0", 0);
    if (m.upstream.tcp.listener < 0) {
        fprintf(stderr, "cannot listen for the upstream: %s\n", strerror(-m.upstream.tcp.listener));
        return 1;
    }
    snprintf(m.port, sizeof m.port, "%d", ring_local_port(m.upstream.tcp.listener));

    status = program_open(&m.program);
    if (status != 0)
        return status;
    m.front.tcp = program_server(&m.program);
    m.front.tcp.grace = WEFT_MS(m.drain_ms);
    m.front.tcp.on_stop = stopping;
    host = m.program.host;
    port = ring_local_port(m.program.listener);
    printf("try: curl http://%s:%d/       and /stats\n"
           "     curl http://%s:%d/slow   which holds up nobody\n"
           "stop with Ctrl-C\n",
           host, port, host, port);
    fflush(stdout);

    status = program_end(&m.program, weft_run(run, &m, NULL));
    if (status == 0 && m.front.tcp.signal_count > 1 && m.front.tcp.cancelled > 0) {
        fprintf(stderr, "stopped at once, with %zu connections open\n", m.front.tcp.cancelled);
        status = 1;
    }
    return status;
}
