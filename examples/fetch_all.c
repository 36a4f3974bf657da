/* needs: fibers
 * fetch_all.c: fetches many URLs, so many at a time, and says what became of each:
 *
 *     $ fetch_all --parallel 8 http://127.0.0.1:8080/ http://127.0.0.1:8080/none
 *     200       13 bytes  http://127.0.0.1:8080/
 *     404       10 bytes  http://127.0.0.1:8080/none
 *
 * There is a scope for the whole, with the deadline for all, and one for each attempt, with its own:
 * none of the functions below knows how much time there is, they simply wait. An attempt that fails
 * for a reason that may pass is made again, after a pause that doubles. SIGINT ends it early, and
 * what has been fetched by then is told all the same.
 */
#include "program.h"

#include <http_parser.h>

enum { HOST_MAX = 256, URL_MAX = 4000, REQUEST_MAX = 4096 + HOST_MAX };

struct fetch_all {
    struct program program;
    long parallel, attempt_ms, total_ms, retries, pause_ms, body_max;
    struct fetch *fetches;
    size_t count;
};

struct fetch {
    const char *url;
    int error; /* the last attempt's; -ECANCELED: there was none */
    int status;
    unsigned attempts;
    uint64_t bytes;
};

/* ---- one attempt --------------------------------------------------------------------------- */

struct attempt {
    struct fetch *fetch;
    const struct fetch_all *all;
    char host[HOST_MAX], port[8], request[REQUEST_MAX];
    int request_length;
    int fd;
    bool complete;
    http_parser parser;
    struct fiber_resource socket;
};

static int on_body(http_parser *parser, const char *at, size_t length)
{
    struct attempt *a = parser->data;

    (void)at;
    a->fetch->bytes += length;
    return a->fetch->bytes > (uint64_t)a->all->body_max ? -1 : 0;
}

static int on_complete(http_parser *parser)
{
    struct attempt *a = parser->data;

    /* "100 Continue" and the like announce the answer, and aren't it. */
    a->complete = parser->status_code >= 200;
    return 0;
}

static const http_parser_settings settings = {
    .on_body = on_body,
    .on_message_complete = on_complete,
};

/* Takes the URL apart, and makes the request of it. 0, or -EINVAL for what is no http URL. */
static int prepare(struct attempt *a)
{
    const char *url = a->fetch->url, *path = "/", *host, *open, *close;
    int path_length = 1;
    struct http_parser_url parts;

    http_parser_url_init(&parts);
    /* The parser counts in 16 bits: of a longer URL it would take another host. */
    if (strlen(url) > URL_MAX || http_parser_parse_url(url, strlen(url), 0, &parts) != 0 ||
        strncasecmp(url, "http://", 7) != 0 || parts.field_data[UF_HOST].len >= sizeof a->host ||
        parts.field_set & (1 << UF_USERINFO))
        return -EINVAL;
    host = url + parts.field_data[UF_HOST].off;
    memcpy(a->host, host, parts.field_data[UF_HOST].len);
    a->host[parts.field_data[UF_HOST].len] = '\0';
    snprintf(a->port, sizeof a->port, "%u", parts.field_set & (1 << UF_PORT) ? parts.port : 80U);
    if (parts.field_set & (1 << UF_PATH | 1 << UF_QUERY)) {
        unsigned first = parts.field_set & (1 << UF_PATH) ? UF_PATH : UF_QUERY;
        const char *end = url + strcspn(url, "#");

        path = url + parts.field_data[first].off - (first == UF_QUERY);
        path_length = (int)(end - path);
    }
    /* An address with colons stands in brackets. */
    open = strchr(a->host, ':') != NULL ? "[" : "";
    close = *open != '\0' ? "]" : "";
    a->request_length =
        snprintf(a->request, sizeof a->request,
                 "GET %s%.*s HTTP/1.1\r\nHost: %s%s%s:%s\r\nConnection: close\r\n\r\n",
                 *path == '?' ? "/" : "", path_length, path, open, a->host, close, a->port);
    return a->request_length < (int)sizeof a->request ? 0 : -EINVAL;
}

static int converse(struct attempt *a)
{
    char buffer[4096];
    int received;

    received = fiber_send_all(a->fd, a->request, (size_t)a->request_length, 0, NULL, WEFT_FOREVER);
    if (received < 0)
        return received;
    http_parser_init(&a->parser, HTTP_RESPONSE);
    a->parser.data = a;
    do {
        received = fiber_recv(a->fd, buffer, sizeof buffer, 0, WEFT_FOREVER);
        if (received < 0)
            return received;
        /* 0 bytes, the end, is news to the parser too: some answers last until then. */
        http_parser_execute(&a->parser, &settings, buffer, (size_t)received);
        if (a->fetch->bytes > (uint64_t)a->all->body_max)
            return -EFBIG;
        if (a->complete) {
            a->fetch->status = a->parser.status_code;
            return 0;
        }
        if (HTTP_PARSER_ERRNO(&a->parser) != HPE_OK)
            return -EBADMSG;
    } while (received > 0);
    return -ENODATA; /* cut short */
}

static void close_socket(void *arg)
{
    fiber_close(*(int *)arg);
}

/* Whatever ends it, its scope closes the socket. */
static int attempt(struct fetch *fetch, const struct fetch_all *all)
{
    struct attempt a = {.fetch = fetch, .all = all};
    struct fiber_scope scope;
    int rc = prepare(&a);

    fetch->status = 0;
    fetch->bytes = 0;
    if (rc < 0)
        return rc;
    fiber_scope_open(&scope, weft_after(WEFT_MS(all->attempt_ms)));
    a.fd = fiber_connect_host(a.host, a.port, WEFT_FOREVER);
    rc = a.fd;
    if (rc >= 0) {
        fiber_scope_attach(&scope, &a.socket, close_socket, &a.fd);
        rc = converse(&a);
    }
    return fiber_scope_close(&scope, rc); /* -ETIMEDOUT, if that is what cut it short */
}

/* ---- one URL ------------------------------------------------------------------------------- */

/* Whether the next attempt may go better. */
static bool may_pass(const struct fetch *fetch)
{
    switch (fetch->error) {
    case 0:
        return fetch->status == HTTP_STATUS_TOO_MANY_REQUESTS ||
               fetch->status == HTTP_STATUS_BAD_GATEWAY ||
               fetch->status == HTTP_STATUS_SERVICE_UNAVAILABLE ||
               fetch->status == HTTP_STATUS_GATEWAY_TIMEOUT;
    case -EINVAL:
    case -EFBIG:
    case -ECANCELED:
        return false;
    default:
        return true;
    }
}

/* Doubles from try to try. Half of it is by chance: those who failed together don't come back
 * together. */
static int64_t pause_after(const struct fetch *fetch, const struct fetch_all *all)
{
    int64_t most = WEFT_MS(all->pause_ms) << (fetch->attempts < 10 ? fetch->attempts : 10);

    return most / 2 + (int64_t)((double)most / 2 * drand48());
}

/* How it went stands in the item: one that fails doesn't end the others. */
static int fetch_one(size_t index, void *item, void *ctx)
{
    const struct fetch_all *all = ctx;
    struct fetch *fetch = item;

    (void)index;
    do {
        fetch->attempts++;
        fetch->error = attempt(fetch, all);
    } while (may_pass(fetch) && fetch->attempts <= (unsigned)all->retries &&
             fiber_sleep(pause_after(fetch, all)) == 0);
    return 0;
}

/* ---- all ----------------------------------------------------------------------------------- */

static int64_t stop_at_signal(void *arg)
{
    struct weft_signals *signals;
    int rc = weft_signals_create(&signals, NULL, 0);

    if (rc < 0)
        return rc;
    rc = fiber_signals_wait(signals, NULL, WEFT_FOREVER);
    weft_signals_destroy(signals);
    if (rc > 0)
        fiber_scope_cancel(arg);
    return rc;
}

/* Returns how many failed. */
static int tell(const struct fetch_all *all)
{
    int failed = 0;

    for (size_t i = 0; i < all->count; i++) {
        const struct fetch *f = &all->fetches[i];

        if (f->error == 0)
            printf("%d %8llu bytes  %s\n", f->status, (unsigned long long)f->bytes, f->url);
        else
            printf("--- %s (%u attempts)  %s\n",
                   f->attempts == 0 ? "not begun" : weft_strerror(f->error), f->attempts, f->url);
        failed += f->error != 0 || f->status >= 400;
    }
    return failed;
}

static int run(void *arg)
{
    struct fetch_all *all = arg;
    struct fiber_scope scope;
    int rc;

    fiber_scope_open(&scope, weft_after(WEFT_MS(all->total_ms)));
    rc = fiber_scope_daemon(&scope, stop_at_signal, &scope);
    if (rc == 0)
        rc = fiber_map(fetch_one, all->fetches, all->count, sizeof *all->fetches, all,
                       (size_t)all->parallel);
    rc = fiber_scope_close(&scope, rc);
    if (rc < 0)
        fprintf(stderr, "not all were fetched: %s\n", weft_strerror(rc));
    return tell(all);
}

int main(int argc, char **argv)
{
    static struct fetch_all all = {.parallel = 8,
                                   .attempt_ms = 10000,
                                   .total_ms = 3600000,
                                   .retries = 3,
                                   .pause_ms = 250,
                                   .body_max = 64 << 20};
    struct program *program = &all.program;
    int failed;

    program_init(program, "Fetches URLs, and tells how that went.");
    program->operands = "URL...";
    program_setting(program, "parallel", "how many at a time", &all.parallel, 1, 10000);
    program_setting(program, "attempt-ms", "how long an attempt may take", &all.attempt_ms, 1,
                    3600000);
    program_setting(program, "total-ms", "how long all may take", &all.total_ms, 1, 86400000);
    program_setting(program, "retries", "how often one is tried again", &all.retries, 0, 1000);
    program_setting(program, "pause-ms", "before that, doubling each time", &all.pause_ms, 0,
                    60000);
    program_setting(program, "body-max", "bytes of an answer's body", &all.body_max, 0, 1L << 40);
    program_read_settings(program, argc, argv);

    signal(SIGPIPE, SIG_IGN);
    srand48((long)weft_now());
    all.count = (size_t)(argc - optind);
    all.fetches = calloc(all.count + 1, sizeof *all.fetches);
    if (all.fetches == NULL)
        return 1;
    for (size_t i = 0; i < all.count; i++)
        all.fetches[i] = (struct fetch){.url = argv[optind + (int)i], .error = -ECANCELED};
    failed = weft_run(run, &all, NULL);
    free(all.fetches);
    if (failed < 0)
        fprintf(stderr, "ended by an error: %s\n", weft_strerror(failed));
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "cannot write: %s\n", strerror(errno));
        return 1;
    }
    return failed != 0;
}
