/* echo_promise.c: a TCP echo server in promise style: no fiber, no stack, just what happens next.
 * echo_fiber.c is the same server in the other style.
 *
 * Each loop is a function that starts an operation and binds itself, by way of other steps, to the
 * result. Such a loop takes neither stack nor memory, however often it goes round.
 */
#include "program.h"

#define IDLE_SECONDS 60

struct server {
    struct program program;
    struct echo *open;     /* the connections */
    struct promise *empty; /* once stopping: pending until there is none */
};

/* What a fiber would keep on its stack between two waits lies here. */
struct echo {
    struct server *server;
    struct echo *next, **link;
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

static struct promise *forget(union weft_value closed, void *ctx)
{
    struct echo *echo = ctx;
    struct server *server = echo->server;

    *echo->link = echo->next;
    if (echo->next != NULL)
        echo->next->link = echo->link;
    free(echo);
    if (server->open == NULL && server->empty != NULL)
        promise_resolve(server->empty, weft_num(0));
    return promise_fulfilled(closed);
}

/* Runs when the conversation is over, whatever ended it. */
static struct promise *hang_up(void *ctx)
{
    struct echo *echo = ctx;

    return promise_bind(promise_close(echo->fd), forget, echo);
}

/* A connection that failed concerns nobody else. */
static void ignore(int error, void *ctx)
{
    (void)error;
    (void)ctx;
}

/* ---- all connections ----------------------------------------------------------------------- */

static struct promise *accept_next(union weft_value ignored, void *ctx);

static struct promise *accepted(union weft_value fd, void *ctx)
{
    struct server *server = ctx;
    struct echo *echo = malloc(sizeof *echo);

    if (echo == NULL)
        return promise_bind(promise_close((int)fd.num), accept_next, server);
    echo->server = server;
    echo->fd = (int)fd.num;
    echo->next = server->open;
    echo->link = &server->open;
    if (echo->next != NULL)
        echo->next->link = &echo->next;
    server->open = echo;
    /* Nobody waits for this promise: the conversation goes on beside the next accept. */
    promise_dont_wait(promise_finalize(receive(weft_num(0), echo), hang_up, echo), ignore, NULL);
    return accept_next(weft_num(0), server);
}

static struct promise *not_accepted(int error, void *ctx)
{
    if (error == -ECANCELED)
        return promise_rejected(error);
    if (error == -ECONNABORTED)
        return accept_next(weft_num(0), ctx);
    /* Out of descriptors or memory: the connection stays in the backlog, and trying again at once
     * would only spin. Those who are connected are served meanwhile. */
    return promise_bind(promise_sleep(WEFT_MS(50)), accept_next, ctx);
}

static struct promise *accept_next(union weft_value ignored, void *ctx)
{
    struct server *server = ctx;

    (void)ignored;
    return promise_try_bind(promise_accept(server->program.listener, NULL, NULL, 0, WEFT_FOREVER),
                            accepted, not_accepted, server);
}

/* ---- the program --------------------------------------------------------------------------- */

/* The signal has come: each connection sees its end, as if its client had sent it. */
static struct promise *stop(union weft_value ignored, void *ctx)
{
    struct server *server = ctx;

    (void)ignored;
    if (server->open == NULL)
        return promise_fulfilled(weft_num(0));
    for (struct echo *echo = server->open; echo != NULL; echo = echo->next)
        (void)shutdown(echo->fd, SHUT_RDWR);
    server->empty = promise_create();
    return promise_ref(server->empty);
}

static struct promise *run(void *arg)
{
    struct server *server = arg;
    /* The first to settle wins, and the other is canceled: the signal ends accepting. */
    struct promise *first[] = {
        promise_signals_wait(server->program.signals, NULL, WEFT_FOREVER),
        accept_next(weft_num(0), server),
    };

    return promise_bind(promise_pick(first, 2), stop, server);
}

int main(int argc, char **argv)
{
    static struct server server;
    int status;

    program_init(&server.program, "Sends back what it receives. Promises alone, no fibers.");
    program_read_settings(&server.program, argc, argv);
    status = program_open(&server.program);
    if (status != 0)
        return status;
    return program_end(&server.program, promise_run(run, &server, NULL, NULL));
}
