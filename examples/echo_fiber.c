/* needs: fibers
 * echo_fiber.c: a TCP echo server in direct style: one fiber per connection, written as if each had
 * the machine to itself. echo_promise.c is the same server in the other style.
 */
#include "program.h"

#define IDLE_SECONDS 60

/* One connection. The buffer lies on the fiber's own stack, so it needs no freeing. */
static int64_t echo(void *arg)
{
    int fd = (int)(intptr_t)arg, received;
    char buffer[4096];

    while ((received =
                fiber_recv(fd, buffer, sizeof buffer, 0, weft_after(WEFT_SEC(IDLE_SECONDS)))) > 0) {
        if (fiber_send_all(fd, buffer, (size_t)received, 0, NULL,
                           weft_after(WEFT_SEC(IDLE_SECONDS))) < 0)
            break;
    }
    fiber_close(fd);
    return received;
}

/* Accepts until it is cancelled, which it is when main returns. */
static int64_t serve(void *arg)
{
    struct program *program = arg;
    int fd, error = 0;

    while (error != -ECANCELED) {
        error = fd = fiber_accept(program->listener, NULL, NULL, 0, WEFT_FOREVER);
        if (fd >= 0 && (error = fiber_detach(echo, (void *)(intptr_t)fd)) < 0)
            fiber_close(fd);
        /* Out of descriptors or memory: the connection stays in the backlog, and trying again at
         * once would only spin. Those who are connected are served meanwhile. */
        if (error < 0 && error != -ECONNABORTED && error != -ECANCELED)
            error = fiber_sleep(WEFT_MS(50));
    }
    return 0;
}

static int run(void *arg)
{
    struct program *program = arg;
    int error = fiber_detach(serve, program);

    /* The first signal ends main, and with it all fibers: each wait returns -ECANCELED, and each
     * connection is closed by its own fiber. */
    if (error == 0)
        error = fiber_signals_wait(program->signals, NULL, WEFT_FOREVER);
    return error < 0 ? error : 0;
}

int main(int argc, char **argv)
{
    struct program program;
    int status;

    program_init(&program, "Sends back what it receives. One fiber per connection.");
    program_read_settings(&program, argc, argv);
    status = program_open(&program);
    return status != 0 ? status : program_end(&program, weft_run(run, &program, NULL));
}
