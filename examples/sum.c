/* needs: fibers
 * sum.c: a server that is spoken to in lines: each holds numbers, and is answered with their sum.
 *
 *     1 2 3
 *     6
 *
 * A connection is a fiber with a reader and a writer. They are tied: the answers leave when there
 * is no whole line left to read, so a client that sends a thousand lines at a time is answered with
 * a few sends, and one that waits for each answer gets it at once.
 */
#include "program.h"

#define LINE_MAX_BYTES 1000
#define IDLE_SECONDS   60

/* Writes may wait, and fail; there is no need to look at each: the first error makes the writer
 * refuse the rest, and the last flush tells. */
static void answer(struct fiber_writer *out, const char *line, weft_time deadline)
{
    long long sum = 0, number;
    const char *at = line;
    char *end;

    for (;;) {
        at += strspn(at, " \t");
        if (*at == '\0')
            break;
        errno = 0;
        number = strtoll(at, &end, 10);
        if (end == at || errno != 0 || __builtin_add_overflow(sum, number, &sum)) {
            fiber_writer_printf(out, deadline, "error: no sum from byte %td on\n", at - line);
            return;
        }
        at = end;
    }
    fiber_writer_printf(out, deadline, "%lld\n", sum);
}

static int64_t converse(void *arg)
{
    int fd = (int)(intptr_t)arg, length;
    char received[LINE_MAX_BYTES + 2], answers[4096], *line;
    struct fiber_reader in;
    struct fiber_writer out;
    weft_time deadline;

    fiber_reader_init(&in, fd, -1, received, sizeof received);
    fiber_writer_init(&out, fd, -1, answers, sizeof answers);
    fiber_reader_tie(&in, &out);
    for (;;) {
        deadline = weft_after(WEFT_SEC(IDLE_SECONDS));
        length = fiber_reader_line(&in, LINE_MAX_BYTES, &line, deadline);
        if (length < 0)
            break;
        answer(&out, line, deadline);
    }
    if (length == -EMSGSIZE)
        fiber_writer_printf(&out, deadline, "error: more than %d bytes\n", LINE_MAX_BYTES);
    fiber_writer_flush(&out, deadline);
    /* Closing with bytes unread would reset the connection, which can destroy the last answer. */
    if (length == -EMSGSIZE && fiber_shutdown(fd, SHUT_WR, deadline) == 0)
        fiber_reader_skip(&in, UINT64_MAX, NULL, weft_after(WEFT_SEC(1)));
    fiber_writer_finish(&out);
    fiber_reader_finish(&in);
    fiber_close(fd);
    return length;
}

/* Accepts until it is cancelled, which it is when main returns. */
static int64_t serve(void *arg)
{
    struct program *program = arg;
    int fd, error = 0;

    while (error != -ECANCELED) {
        error = fd = fiber_accept(program->listener, NULL, NULL, 0, WEFT_FOREVER);
        if (fd >= 0 && (error = fiber_detach(converse, (void *)(intptr_t)fd)) < 0)
            fiber_close(fd);
        /* Out of descriptors or memory: as in echo_fiber.c. */
        if (error < 0 && error != -ECONNABORTED && error != -ECANCELED)
            error = fiber_sleep(WEFT_MS(50));
    }
    return 0;
}

static int run(void *arg)
{
    struct program *program = arg;
    int error = fiber_detach(serve, program);

    if (error == 0)
        error = fiber_signals_wait(program->signals, NULL, WEFT_FOREVER);
    return error < 0 ? error : 0;
}

int main(int argc, char **argv)
{
    struct program program;
    int status;

    program_init(&program, "Answers each line of numbers with their sum.");
    program_read_settings(&program, argc, argv);
    status = program_open(&program);
    return status != 0 ? status : program_end(&program, weft_run(run, &program, NULL));
}
