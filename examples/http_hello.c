/* needs: fibers
 * http_hello.c: a small and fast HTTP/1.1 server in direct style.
 *
 *     GET  /       Hello, World!
 *     POST /count  the length of the body sent
 *
 * The protocol is in http_server.h; here is what makes it this server.
 */
#include "http_server.h"
#include "program.h"

#include <http_parser.h>

static void answer(struct http_connection *c, void *context)
{
    char text[64];
    int length;

    (void)context;
    if (http_path_is(c, TEXT("/"))) {
        if (c->method == HTTP_GET || c->method == HTTP_HEAD)
            http_respond(c, HTTP_STATUS_OK, TEXT("Hello, World!"));
        else
            http_respond_method(c, TEXT("Allow: GET, HEAD\r\n"));
    } else if (http_path_is(c, TEXT("/count"))) {
        if (c->method == HTTP_POST) {
            length =
                snprintf(text, sizeof text, "%llu bytes\n", (unsigned long long)c->body_length);
            http_respond(c, HTTP_STATUS_OK, (struct text){text, (size_t)length});
        } else {
            http_respond_method(c, TEXT("Allow: POST\r\n"));
        }
    } else {
        http_respond(c, HTTP_STATUS_NOT_FOUND, TEXT("not found\n"));
    }
}

struct hello {
    struct program program;
    struct http_server server;
    long drain_ms;
};

static int run(void *arg)
{
    struct hello *hello = arg;
    int result = http_serve(&hello->server);

    printf("%llu requests on %llu connections\n", (unsigned long long)hello->server.requests,
           (unsigned long long)hello->server.tcp.accepted);
    return result;
}

int main(int argc, char **argv)
{
    static struct hello hello;
    int status;

    program_init(&hello.program, "Answers \"Hello, World!\" to GET / as fast as it can.");
    http_server_init(&hello.server, answer, NULL);
    http_server_settings(&hello.server, &hello.program);
    hello.drain_ms = 5000;
    program_setting(&hello.program, "drain-ms", "how long open requests may take when stopping",
                    &hello.drain_ms, 0, 3600000);
    program_read_settings(&hello.program, argc, argv);

    status = program_open(&hello.program);
    if (status != 0)
        return status;
    hello.server.tcp = program_server(&hello.program);
    hello.server.tcp.grace = WEFT_MS(hello.drain_ms);
    return program_end(&hello.program, weft_run(run, &hello, NULL));
}
