/* program.h: what every server here does before and after its real work: read its settings, open
 * its listener, say where it listens, and take SIGINT and SIGTERM as ordinary input.
 *
 * Nothing in it needs fibers. Each example includes it once.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <weft/weft.h>

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- settings ------------------------------------------------------------------------------ */

/* One "--name N": a number within bounds, at its default until the command line says otherwise. Or, if
 * `text` is set, any word. */
struct setting {
    const char *name, *meaning;
    long *value, least, most;
    const char **text;
};

enum { PROGRAM_SETTINGS_MAX = 16 };

struct program {
    const char *purpose;  /* one line for --help */
    const char *operands; /* what else it takes, for --help; NULL: nothing, and it is a server */
    const char *host;     /* a server's --host */
    const char *port;     /* a server's --port; "0": any free one */
    struct setting settings[PROGRAM_SETTINGS_MAX];
    int settings_count;
    int listener;                 /* once program_open has returned 0 */
    struct weft_signals *signals; /* SIGINT and SIGTERM; the same */
};

static inline void program_init(struct program *program, const char *purpose)
{
    memset(program, 0, sizeof *program);
    program->purpose = purpose;
    program->host = "127.0.0.1";
    program->port = "8080";
    program->listener = -1;
}

/* Adds a setting; `*value` is its default. */
static inline void program_setting(struct program *program, const char *name, const char *meaning,
                                   long *value, long least, long most)
{
    if (program->settings_count == PROGRAM_SETTINGS_MAX)
        abort();
    program->settings[program->settings_count++] =
        (struct setting){name, meaning, value, least, most, NULL};
}

/* The same for a word. */
static inline void program_word(struct program *program, const char *name, const char *meaning,
                                const char **text)
{
    program_setting(program, name, meaning, NULL, 0, 0);
    program->settings[program->settings_count - 1].text = text;
}

static inline void program_usage(FILE *out, const char *name, const struct program *program)
{
    fprintf(out, "usage: %s [OPTION...] %s\n%s\n\n", name,
            program->operands != NULL ? program->operands : "", program->purpose);
    if (program->operands == NULL) {
        fprintf(out, "  --%-20s %s (%s)\n", "host ADDRESS", "where to listen", program->host);
        fprintf(out, "  --%-20s %s (%s)\n", "port N", "0: any free port", program->port);
    }
    for (int i = 0; i < program->settings_count; i++) {
        const struct setting *s = &program->settings[i];
        int room = 18 - (int)strlen(s->name);

        if (s->text != NULL)
            fprintf(out, "  --%s X%*s %s (%s)\n", s->name, room, "", s->meaning, *s->text);
        else
            fprintf(out, "  --%s N%*s %s (%ld)\n", s->name, room, "", s->meaning, *s->value);
    }
    fprintf(out, "  --%-20s %s\n", "help", "this text");
}

/* True if `text` is a number from `least` to `most`, none of which is negative, and nothing else; it then
 * is in `*value`. (strtol would skip spaces and signs, which ports, for one, can't have.) */
static inline bool program_number(const char *text, long least, long most, long *value)
{
    char *end;
    long number;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    number = strtol(text, &end, 10);
    if (errno != 0 || *end != '\0' || number < least || number > most)
        return false;
    *value = number;
    return true;
}

/* Opens those of the three standard descriptors that were closed: else a socket would take the number, and
 * get what is meant for the terminal. */
static inline void program_open_standard(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

/* Reads the command line; operands begin at argv[optind]. Exits on --help (0) and on anything it doesn't
 * understand (2). To be called before anything is opened. */
static inline void program_read_settings(struct program *program, int argc, char **argv)
{
    enum { HELP = 256, HOST, PORT, FIRST };
    struct option options[PROGRAM_SETTINGS_MAX + 4] = {
        {"help", no_argument, NULL, HELP},
        {"host", required_argument, NULL, HOST},
        {"port", required_argument, NULL, PORT},
    };
    const char *name = strrchr(argv[0], '/') != NULL ? strrchr(argv[0], '/') + 1 : argv[0];
    long number;
    int option;

    program_open_standard();
    for (int i = 0; i < program->settings_count; i++) {
        options[3 + i] =
            (struct option){program->settings[i].name, required_argument, NULL, FIRST + i};
    }
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        const struct setting *s = option >= FIRST ? &program->settings[option - FIRST] : NULL;

        if (option == HELP) {
            program_usage(stdout, name, program);
            exit(0);
        } else if (option == HOST) {
            program->host = optarg;
        } else if (option == PORT && program_number(optarg, 0, 65535, &number)) {
            program->port = optarg;
        } else if (s != NULL && s->text != NULL) {
            *s->text = optarg;
        } else if (s == NULL || !program_number(optarg, s->least, s->most, s->value)) {
            if (option == PORT)
                fprintf(stderr, "%s: --port takes a number from 0 to 65535\n", name);
            else if (s != NULL)
                fprintf(stderr, "%s: --%s takes a number from %ld to %ld\n", name, s->name,
                        s->least, s->most);
            else
                program_usage(stderr, name, program); /* getopt_long has said what is wrong */
            exit(2);
        }
    }
    if (optind < argc && program->operands == NULL) {
        fprintf(stderr, "%s: what is '%s'?\n", name, argv[optind]);
        program_usage(stderr, name, program);
        exit(2);
    }
}

/* ---- descriptors --------------------------------------------------------------------------- */

/* Raises the soft limit on descriptors to the hard one; returns how many there may be. One
 * connection is one descriptor, and the usual soft limit of 1024 was made for select(2). */
static inline long program_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 1024;
    if (limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
        (void)getrlimit(RLIMIT_NOFILE, &limit);
    }
    return limit.rlim_cur > 1000000 ? 1000000 : (long)limit.rlim_cur;
}

/* Opens the listener, holds the signals, and prints where the server listens. Call it before
 * weft_run: threads inherit the mask of blocked signals from whoever starts them.
 * Returns 0; or 1, the program's exit status, when it has said what went wrong. */
static inline int program_open(struct program *program)
{
    int port, yes = 1, error;
    bool v6;

    /* A peer that has gone is an error of the send in question (-EPIPE), not of the process; the
     * terminal's reader may have gone too. */
    signal(SIGPIPE, SIG_IGN);

    program->listener = ring_listen(program->host, program->port, SOMAXCONN);
    if (program->listener == -EADDRINUSE) {
        fprintf(stderr,
                "port %s of %s is in use by another program; choose one with --port, or "
                "--port 0 for any free one\n",
                program->port, program->host);
        return 1;
    }
    if (program->listener == -EINVAL) {
        fprintf(stderr,
                "'%s' is no address; --host takes a numeric one, such as 127.0.0.1 or ::1\n",
                program->host);
        return 1;
    }
    if (program->listener < 0) {
        fprintf(stderr, "cannot listen on port %s of %s: %s\n", program->port, program->host,
                strerror(-program->listener));
        return 1;
    }
    /* Accepted sockets inherit it: one call here in place of one a connection. Answers leave in
     * one piece, so there is nothing to wait for. */
    (void)setsockopt(program->listener, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);

    /* From here on SIGINT and SIGTERM are input like any other. */
    error = weft_signals_create(&program->signals, NULL, 0);
    if (error < 0) {
        fprintf(stderr, "cannot wait for signals: %s\n", strerror(-error));
        return 1;
    }

    port = ring_local_port(program->listener);
    v6 = strchr(program->host, ':') != NULL;
    printf("listening on %s%s%s:%d\n", v6 ? "[" : "", program->host, v6 ? "]" : "", port);
    fflush(stdout);
    return 0;
}

/* A server on the program's listener, which the signals stop. */
static inline struct weft_server program_server(const struct program *program)
{
    struct weft_server server = WEFT_SERVER_INIT;

    server.listener = program->listener;
    server.signals = program->signals;
    return server;
}

/* Lets go of the signals. Returns the exit status for what weft_run returned. */
static inline int program_end(struct program *program, int result)
{
    weft_signals_destroy(program->signals);
    if (result < 0 && result != -ECANCELED) {
        fprintf(stderr, "ended by an error: %s\n", strerror(-result));
        return 1;
    }
    return 0;
}

#endif
