/* needs: fibers
 * echo_fiber.c: a TCP echo server in direct style: one fiber per connection, written as if each had
 * the machine to itself. echo_promise.c is the same server in the other style.
 */
#include "program.h"

#define IDLE_SECONDS 60

/* One connection. The buffer lies on the fiber's own stack, so it needs no freeing. */
static int echo(int fd, void *ctx)
{
    char buffer[4096];
    int received, error;

    (void)ctx;
    while ((received =
                fiber_recv(fd, buffer, sizeof buffer, 0, weft_after(WEFT_SEC(IDLE_SECONDS)))) > 0) {
        error = fiber_send_all(fd, buffer, (size_t)received, 0, NULL,
                               weft_after(WEFT_SEC(IDLE_SECONDS)));
        if (error < 0)
            return error;
    }
    return received;
}

static int run(void *arg)
{
    struct weft_server server = program_server(arg);

    server.ends_reading = true; /* whoever waits for the client's next word is through */
    return fiber_serve(&server, echo);
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
