/* echo_promise.c: a TCP echo server in promise style: no fiber, no stack, just what happens next.
 * echo_fiber.c is the same server in the other style.
 *
 * Each loop is a function that starts an operation and binds itself, by way of other steps, to the
 * result. Such a loop takes neither stack nor memory, however often it goes round.
 */
#include "program.h"

#define IDLE_SECONDS 60

/* What a fiber would keep on its stack between two waits lies here. */
struct echo {
    int fd;
    char buffer[4096];
};

/* ---- one connection: receive, send, again -------------------------------------------------- */

static struct promise *receive(union weft_value sent, void *ctx);

static struct promise *received(union weft_value bytes, void *ctx)
{
    struct echo *echo = ctx;

    if (bytes.num == 0)
        return promise_fulfilled(weft_num(0));
    return promise_bind(promise_send_all(echo->fd, echo->buffer, (size_t)bytes.num, 0, NULL,
                                         weft_after(WEFT_SEC(IDLE_SECONDS))),
                        receive, echo);
}

static struct promise *receive(union weft_value sent, void *ctx)
{
    struct echo *echo = ctx;

    (void)sent;
    return promise_bind(promise_recv(echo->fd, echo->buffer, sizeof echo->buffer, 0,
                                     weft_after(WEFT_SEC(IDLE_SECONDS))),
                        received, echo);
}

/* Runs when the conversation is over, whatever ended it. */
static struct promise *forget(void *ctx)
{
    free(ctx);
    return promise_fulfilled(weft_num(0));
}

static struct promise *converse(int fd, void *ctx)
{
    struct echo *echo = malloc(sizeof *echo);

    (void)ctx;
    if (echo == NULL)
        return promise_rejected(-ENOMEM);
    echo->fd = fd;
    return promise_finalize(receive(weft_num(0), echo), forget, echo);
}

/* ---- the program --------------------------------------------------------------------------- */

static struct promise *run(void *server)
{
    return promise_serve(server, converse);
}

int main(int argc, char **argv)
{
    struct program program;
    struct weft_server server;
    int status;

    program_init(&program, "Sends back what it receives. Promises alone, no fibers.");
    program_read_settings(&program, argc, argv);
    status = program_open(&program);
    if (status != 0)
        return status;
    server = program_server(&program);
    server.ends_reading = true; /* whoever waits for the client's next word is through */
    return program_end(&program, promise_run(run, &server, NULL, NULL));
}
