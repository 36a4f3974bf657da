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

static int converse(int fd, void *ctx)
{
    int length;
    char received[LINE_MAX_BYTES + 2], answers[4096], *line;
    struct fiber_reader in;
    struct fiber_writer out;
    weft_time deadline;

    (void)ctx;
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
    return length == -ENODATA || length == -EMSGSIZE ? 0 : length;
}

static int run(void *arg)
{
    struct weft_server server = program_server(arg);

    server.ends_reading = true; /* the lines that are here are answered, and that is all */
    return fiber_serve(&server, converse);
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
