/* http_server.h: an HTTP/1.1 server in direct style, used by http_hello.c and mixed.c.
 *
 * One fiber per connection: it receives, parses, lets the program's handler answer, and sends, in
 * a loop that reads like the protocol. Parsing is http-parser's; it is a plain C library that knows
 * nothing of fibers.
 *
 * What makes it fast: everything a connection needs lies in one struct on its fiber's stack; a
 * request allocates nothing; all requests that came with one receive are answered by one send.
 *
 * What makes it safe: every wait has a deadline; the size of everything a client sends is bounded;
 * a connection that ends early takes only itself down.
 */
#ifndef HTTP_SERVER_H
#define HTTP_SERVER_H

#include "program.h"

#include <http_parser.h>
#include <time.h>

enum {
    HTTP_TARGET_MAX = 2048, /* longer: 414 */
    HTTP_HEAD_MAX = 16384,  /* request line and fields together; longer: 431 */
    HTTP_RECEIVE = 8192,
    HTTP_SEND = 8192,
    HTTP_DATE = 37, /* "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n" */
};

/* A piece of text whose length nobody has to measure again. */
struct text {
    const char *start;
    size_t length;
};
#define TEXT(literal) ((struct text){(literal), sizeof(literal) - 1})

struct http_connection;

/* Answers the request in connection->path, ->method, ... with exactly one http_respond. It runs on
 * the connection's fiber and may wait for whatever it likes: nobody else waits with it. */
typedef void http_handler(struct http_connection *connection, void *context);

struct http_server {
    /* set by http_server_init, and the program's to change */
    struct weft_server tcp; /* listener, signals, grace */
    http_handler *handler;
    void *context;
    long connections_max; /* further ones wait in the kernel's backlog */
    long body_max;        /* bytes; longer: 413 */
    long request_ms;      /* from a request's first byte to its last; later: 408 */
    long idle_ms;         /* between requests; later: closed */

    uint64_t requests; /* for the program to read */

    /* private */
    struct http_connection *open; /* the connections, to find the idle ones when stopping */
    time_t date_second;
    char date[HTTP_DATE + 1];
};

struct http_connection {
    /* for the handler to read */
    struct http_server *server;
    struct text path; /* without the query */
    enum http_method method;
    uint64_t body_length; /* the body is counted and dropped */

    /* private */
    int fd;
    int refusal;   /* status that ends the connection; 0: none */
    int broken;    /* a send failed: there is nobody to talk to */
    bool idle;     /* waits between two requests: nothing is lost by closing */
    bool begun;    /* some of a request has arrived */
    bool complete; /* all of it has, and it waits for its answer */
    bool last;     /* nothing has been received behind it */
    bool keep_alive, http10, head, expects_continue;
    weft_time due; /* when the request begun must be complete; 0: not set yet */
    struct http_connection *next, **link;

    http_parser parser;
    unsigned hosts;        /* Host fields seen */
    unsigned field_length; /* of the field's name so far; its first bytes are in `field` */
    char field[8];
    unsigned target_length, out_length;
    char target[HTTP_TARGET_MAX];
    char out[HTTP_SEND];
    char in[HTTP_RECEIVE];
};

/* ---- sending ------------------------------------------------------------------------------- */

/* Sends what has been put. Suspends. */
static inline void http_flush(struct http_connection *c)
{
    unsigned length = c->out_length;
    int result;

    c->out_length = 0;
    if (length == 0 || c->broken != 0)
        return;
    /* A client that doesn't read must not hold a fiber for ever: the idle limit holds here too. */
    result =
        fiber_send_all(c->fd, c->out, length, 0, NULL, weft_after(WEFT_MS(c->server->idle_ms)));
    if (result < 0)
        c->broken = result;
}

static inline void http_put(struct http_connection *c, const char *data, size_t length)
{
    while (length > sizeof c->out - c->out_length) {
        size_t room = sizeof c->out - c->out_length;

        memcpy(c->out + c->out_length, data, room);
        c->out_length += (unsigned)room;
        data += room;
        length -= room;
        http_flush(c);
    }
    memcpy(c->out + c->out_length, data, length);
    c->out_length += (unsigned)length;
}

static inline void http_put_text(struct http_connection *c, struct text text)
{
    http_put(c, text.start, text.length);
}

static inline void http_put_number(struct http_connection *c, uint64_t number)
{
    char digits[20], *first = digits + sizeof digits;

    do
        *--first = (char)('0' + number % 10);
    while ((number /= 10) != 0);
    http_put(c, first, (size_t)(digits + sizeof digits - first));
}

/* The Date field, made anew at most once a second. */
static inline void http_put_date(struct http_connection *c)
{
    struct http_server *server = c->server;
    time_t now = time(NULL);
    struct tm calendar;

    if (now != server->date_second) {
        server->date_second = now;
        gmtime_r(&now, &calendar);
        strftime(server->date, sizeof server->date, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n",
                 &calendar);
    }
    http_put(c, server->date, HTTP_DATE);
}

static inline struct text http_status_line(int status)
{
    switch (status) {
#define XX(number, name, phrase) \
    case number:                 \
        return TEXT("HTTP/1.1 " #number " " #phrase "\r\n");
        HTTP_STATUS_MAP(XX)
#undef XX
    default:
        return TEXT("HTTP/1.1 500 Internal Server Error\r\n");
    }
}

/* Puts one answer of plain text. `fields` are further header fields, each with its line end. */
static inline void http_respond_with(struct http_connection *c, int status, struct text fields,
                                     struct text body)
{
    /* While stopping, the last request received is the connection's last one. */
    if (c->server->tcp.stopping && c->last)
        c->keep_alive = false;
    http_put_text(c, http_status_line(status));
    http_put_date(c);
    http_put_text(c, fields);
    if (!c->keep_alive)
        http_put_text(c, TEXT("Connection: close\r\n"));
    else if (c->http10)
        http_put_text(c, TEXT("Connection: keep-alive\r\n"));
    http_put_text(c, TEXT("Content-Type: text/plain; charset=utf-8\r\nContent-Length: "));
    http_put_number(c, body.length);
    http_put_text(c, TEXT("\r\n\r\n"));
    if (!c->head)
        http_put_text(c, body);
}

static inline void http_respond(struct http_connection *c, int status, struct text body)
{
    http_respond_with(c, status, TEXT(""), body);
}

/* The answer to a method that the path doesn't take; `allow` is the whole Allow field. */
static inline void http_respond_method(struct http_connection *c, struct text allow)
{
    http_respond_with(c, HTTP_STATUS_METHOD_NOT_ALLOWED, allow, TEXT("method not allowed\n"));
}

/* ---- parsing ------------------------------------------------------------------------------- */

static inline bool http_path_is(const struct http_connection *c, struct text path)
{
    return c->path.length == path.length && memcmp(c->path.start, path.start, path.length) == 0;
}

/* Ends the connection with an answer of its own. Any return but 0 stops the parser; 1 and 2 mean
 * something else to it. */
static inline int http_refuse(struct http_connection *c, int status)
{
    c->refusal = status;
    return -1;
}

static inline int http_on_begin(http_parser *parser)
{
    struct http_connection *c = parser->data;

    c->begun = true;
    c->due = 0;
    c->http10 = c->head = c->expects_continue = false;
    c->hosts = c->field_length = c->target_length = 0;
    c->body_length = 0;
    return 0;
}

/* Each piece of the head may come in several calls, cut wherever a packet ended. */
static inline int http_on_url(http_parser *parser, const char *at, size_t length)
{
    struct http_connection *c = parser->data;

    if (length > sizeof c->target - c->target_length)
        return http_refuse(c, HTTP_STATUS_URI_TOO_LONG);
    memcpy(c->target + c->target_length, at, length);
    c->target_length += (unsigned)length;
    return 0;
}

static inline int http_on_field(http_parser *parser, const char *at, size_t length)
{
    struct http_connection *c = parser->data;

    for (size_t i = 0; i < length && c->field_length + i < sizeof c->field; i++)
        c->field[c->field_length + i] = (char)(at[i] | 0x20); /* lower case, of letters */
    c->field_length += (unsigned)length;
    return 0;
}

static inline int http_on_value(http_parser *parser, const char *at, size_t length)
{
    struct http_connection *c = parser->data;

    (void)at;
    (void)length;
    if (c->field_length == 4 && memcmp(c->field, "host", 4) == 0)
        c->hosts++;
    else if (c->field_length == 6 && memcmp(c->field, "expect", 6) == 0)
        c->expects_continue = true;
    c->field_length = 0; /* the next call for a name begins another field */
    return 0;
}

static inline int http_on_head(http_parser *parser)
{
    struct http_connection *c = parser->data;
    bool length_known = (parser->flags & F_CONTENTLENGTH) != 0;

    c->method = (enum http_method)parser->method;
    c->head = parser->method == HTTP_HEAD;
    c->http10 = parser->http_major == 1 && parser->http_minor == 0;
    if (parser->http_major != 1)
        return http_refuse(c, HTTP_STATUS_HTTP_VERSION_NOT_SUPPORTED);
    if (c->hosts > 1 || (c->hosts == 0 && !c->http10))
        return http_refuse(c, HTTP_STATUS_BAD_REQUEST);
    /* What follows a CONNECT is no HTTP, so the connection can only end. */
    if (parser->method == HTTP_CONNECT)
        return http_refuse(c, HTTP_STATUS_NOT_IMPLEMENTED);
    if (length_known && parser->content_length > (uint64_t)c->server->body_max)
        return http_refuse(c, HTTP_STATUS_PAYLOAD_TOO_LARGE);
    /* The client waits for a word before it sends the body. */
    if (c->expects_continue && !c->http10 &&
        (parser->flags & F_CHUNKED || (length_known && parser->content_length > 0)))
        http_put_text(c, TEXT("HTTP/1.1 100 Continue\r\n\r\n"));
    /* An offer to change protocols may be declined by ignoring it; else the parser would stop. */
    parser->upgrade = 0;
    return 0;
}

static inline int http_on_body(http_parser *parser, const char *at, size_t length)
{
    struct http_connection *c = parser->data;

    (void)at;
    c->body_length += length;
    if (c->body_length > (uint64_t)c->server->body_max)
        return http_refuse(c, HTTP_STATUS_PAYLOAD_TOO_LARGE);
    return 0;
}

/* Pauses the parser behind the request, so that the answer is made outside its callbacks, by code
 * that sees how much of the received data is left. */
static inline int http_on_complete(http_parser *parser)
{
    struct http_connection *c = parser->data;

    c->keep_alive = http_should_keep_alive(parser) != 0;
    c->begun = false;
    c->complete = true;
    http_parser_pause(parser, 1);
    return 0;
}

static const http_parser_settings http_settings = {
    .on_message_begin = http_on_begin,
    .on_url = http_on_url,
    .on_header_field = http_on_field,
    .on_header_value = http_on_value,
    .on_headers_complete = http_on_head,
    .on_body = http_on_body,
    .on_message_complete = http_on_complete,
};

/* The status for what the parser didn't like. `rest` is the data from the failed request on. */
static inline int http_parse_status(const struct http_connection *c, const char *rest,
                                    size_t length)
{
    size_t word = 0;

    if (c->refusal != 0)
        return c->refusal;
    switch (HTTP_PARSER_ERRNO(&c->parser)) {
    case HPE_HEADER_OVERFLOW:
        return HTTP_STATUS_REQUEST_HEADER_FIELDS_TOO_LARGE;
    case HPE_INVALID_METHOD:
        /* A well-formed method that the parser doesn't know, or just noise? */
        while (length > 0 && (*rest == '\r' || *rest == '\n')) {
            rest++;
            length--;
        }
        while (word < length && ((rest[word] >= 'A' && rest[word] <= 'Z') || rest[word] == '-'))
            word++;
        if (word > 0 && (word == length || rest[word] == ' '))
            return HTTP_STATUS_NOT_IMPLEMENTED;
        return HTTP_STATUS_BAD_REQUEST;
    default:
        return HTTP_STATUS_BAD_REQUEST;
    }
}

/* Finds the path in the target: up to the query, and behind "http://host" if the client took us
 * for a proxy, which HTTP/1.1 allows it to. */
static inline void http_find_path(struct http_connection *c)
{
    struct http_parser_url url;
    const char *query;

    c->path = (struct text){c->target, c->target_length};
    if (c->target_length == 1 && c->target[0] == '/')
        return;
    if (c->target_length > 0 && c->target[0] != '/') {
        http_parser_url_init(&url);
        if (http_parser_parse_url(c->target, c->target_length, 0, &url) == 0) {
            c->path = TEXT("/");
            if (url.field_set & (1 << UF_PATH))
                c->path = (struct text){c->target + url.field_data[UF_PATH].off,
                                        url.field_data[UF_PATH].len};
        }
        return;
    }
    query = memchr(c->target, '?', c->target_length);
    if (query != NULL)
        c->path.length = (size_t)(query - c->target);
}

/* ---- a connection -------------------------------------------------------------------------- */

/* Answers everything complete in the `length` bytes received. False: the connection ends. */
static inline bool http_feed(struct http_connection *c, size_t length)
{
    const char *data = c->in;
    size_t used;

    while (length > 0) {
        used = http_parser_execute(&c->parser, &http_settings, data, length);
        if (!c->complete) {
            if (HTTP_PARSER_ERRNO(&c->parser) == HPE_OK)
                return true; /* all used up, in the middle of a request or between two */
            c->refusal = http_parse_status(c, data, length);
            return false;
        }
        http_parser_pause(&c->parser, 0);
        c->complete = false;
        data += used;
        length -= used;

        c->last = length == 0;
        c->server->requests++;
        http_find_path(c);
        c->server->handler(c, c->server->context);
        if (!c->keep_alive || c->broken != 0)
            return false;
    }
    return true;
}

/* Closes our half and reads on until the client has closed the other. If we closed at once while
 * data of the client's is unread or under way, the kernel would send a reset, and that can destroy
 * the answer before the client has read it. Bounded, for there is no end to what one may send. */
static inline void http_linger(struct http_connection *c)
{
    weft_time deadline = weft_after(WEFT_SEC(1));

    if (shutdown(c->fd, SHUT_WR) != 0)
        return;
    while (fiber_recv(c->fd, c->in, sizeof c->in, 0, deadline) > 0)
        ;
}

static inline void http_converse(struct http_connection *c)
{
    struct http_server *server = c->server;
    struct text line;
    int received;

    do {
        /* One send for all the answers made since the last receive. */
        http_flush(c);
        if (c->broken != 0)
            return;
        if (server->tcp.stopping && !c->begun)
            (void)shutdown(c->fd, SHUT_RD); /* receive what is here already, and no more */
        if (c->begun && c->due == 0)
            c->due = weft_after(WEFT_MS(server->request_ms));

        c->idle = !c->begun;
        received = fiber_recv(c->fd, c->in, sizeof c->in, 0,
                              c->begun ? c->due : weft_after(WEFT_MS(server->idle_ms)));
        c->idle = false;
        if (received == -ETIMEDOUT && c->begun)
            c->refusal = HTTP_STATUS_REQUEST_TIMEOUT;
        else if (received <= 0)
            return; /* closed, reset, or idle too long: there is nothing to say */
    } while (c->refusal == 0 && http_feed(c, (size_t)received));

    if (c->refusal != 0) {
        c->keep_alive = false;
        /* "413 Payload Too Large\r\n" does for the body, too. */
        line = http_status_line(c->refusal);
        http_respond(c, c->refusal, (struct text){line.start + 9, line.length - 9});
    }
    http_flush(c);
    if (c->broken == 0)
        http_linger(c);
}

/* One connection, from its first byte to its close. */
static inline int http_serve_connection(int fd, void *context)
{
    struct http_server *server = context;
    /* The buffers need no zeroes: no byte is read before it has been written. */
    struct http_connection *c = malloc(sizeof *c);

    if (c == NULL)
        return -ENOMEM;
    memset(c, 0, offsetof(struct http_connection, target));
    c->server = server;
    c->fd = fd;
    http_parser_init(&c->parser, HTTP_REQUEST);
    c->parser.data = c;
    c->next = server->open;
    c->link = &server->open;
    if (c->next != NULL)
        c->next->link = &c->next;
    server->open = c;

    http_converse(c);

    *c->link = c->next;
    if (c->next != NULL)
        c->next->link = c->link;
    free(c);
    return 0;
}

/* ---- the server ---------------------------------------------------------------------------- */

static inline void http_server_init(struct http_server *server, http_handler *handler,
                                    void *context)
{
    long descriptors = program_descriptors() - 16; /* those of the program itself */

    memset(server, 0, sizeof *server);
    server->tcp = (struct weft_server)WEFT_SERVER_INIT;
    server->handler = handler;
    server->context = context;
    server->connections_max = descriptors > 1 ? descriptors : 1;
    server->body_max = 1 << 20;
    server->request_ms = 20000;
    server->idle_ms = 60000;
}

/* Makes the limits settings of the program. */
static inline void http_server_settings(struct http_server *server, struct program *program)
{
    program_setting(program, "connections", "how many at a time", &server->connections_max, 1,
                    1000000);
    program_setting(program, "body-max", "bytes of a request's body", &server->body_max, 0,
                    1L << 40);
    program_setting(program, "request-ms", "how long a request may take to arrive",
                    &server->request_ms, 1, 3600000);
    program_setting(program, "idle-ms", "how long a connection may rest", &server->idle_ms, 1,
                    3600000);
}

/* When it stops: those that wait between two requests see the client's end. The others answer what they
 * have received. */
static inline void http_end_idle(void *context)
{
    struct http_server *server = context;

    for (struct http_connection *c = server->open; c != NULL; c = c->next) {
        if (c->idle)
            (void)shutdown(c->fd, SHUT_RD);
    }
}

/* Serves until it is stopped; what fiber_serve returns. Suspends. */
static inline int http_serve(struct http_server *server)
{
    http_parser_set_max_header_size(HTTP_HEAD_MAX);
    server->tcp.name = "http";
    server->tcp.ctx = server;
    if (server->tcp.on_stop == NULL)
        server->tcp.on_stop = http_end_idle;
    server->tcp.max_connections = (size_t)server->connections_max;
    return fiber_serve(&server->tcp, http_serve_connection);
}

#endif
