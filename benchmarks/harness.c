/* harness.c: clock, options, child processes and results of the benchmark programs. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHILD_SECONDS 120 /* no cell takes as long; a child that does hangs */

int64_t bench_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void bench_die(const char *format, ...)
{
    va_list args;

    fflush(stdout);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

/* ---- options ------------------------------------------------------------------------------ */

static void usage(FILE *out, const struct bench_options *options, const char *about)
{
    fprintf(out,
            "usage: %s [OPTION...]\n"
            "%s\n"
            "  --rounds N       rounds, of which each minimum is kept (%d)\n"
            "  --impl NAME,...  only these implementations\n",
            program_invocation_short_name, about, options->rounds);
    if (options->count > 0)
        fprintf(out, "  --fibers N,...   only these counts\n");
    if (options->thread_count > 0)
        fprintf(out, "  --threads N,...  so many threads at a time\n");
    if (options->size_count > 0)
        fprintf(out, "  --bytes N,...    only these sizes\n");
    fprintf(out, "  --json           one JSON object a line in place of the table\n");
}

static long positive(const char *text, char **end)
{
    long value;

    errno = 0;
    value = strtol(text, end, 10);
    if (errno != 0 || *end == text || value <= 0)
        bench_die("'%s' is no positive number", text);
    return value;
}

/* What --`name` gives, in place of the default; where there is none it doesn't apply. */
static void parse_counts(const char *name, long *counts, int *count, const char *text)
{
    char *end;

    if (*count == 0)
        bench_die("--%s does not apply here", name);
    *count = 0;
    for (;;) {
        if (*count == BENCH_MAX_COUNTS)
            bench_die("at most %d counts", BENCH_MAX_COUNTS);
        counts[(*count)++] = positive(text, &end);
        if (*end == '\0')
            return;
        if (*end != ',')
            bench_die("'%s' is no list of numbers", text);
        text = end + 1;
    }
}

void bench_options_parse(struct bench_options *options, int argc, char **argv, const char *about)
{
    static const struct option known[] = {
        {"rounds", required_argument, NULL, 'r'}, {"impl", required_argument, NULL, 'i'},
        {"fibers", required_argument, NULL, 'f'}, {"threads", required_argument, NULL, 't'},
        {"bytes", required_argument, NULL, 'b'},  {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0},
    };
    const int most = (int)(sizeof(((struct bench_cell *)0)->values) / sizeof(double));
    char *end;
    int option;
    long rounds;

    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (option) {
        case 'r':
            rounds = positive(optarg, &end);
            if (*end != '\0' || rounds > most)
                bench_die("--rounds takes a number up to %d", most);
            options->rounds = (int)rounds;
            break;
        case 'i':
            options->impl = optarg;
            break;
        case 'f':
            parse_counts("fibers", options->counts, &options->count, optarg);
            break;
        case 't':
            parse_counts("threads", options->threads, &options->thread_count, optarg);
            break;
        case 'b':
            parse_counts("bytes", options->sizes, &options->size_count, optarg);
            break;
        case 'j':
            options->json = true;
            break;
        case 'h':
            usage(stdout, options, about);
            exit(0);
        default:
            usage(stderr, options, about);
            exit(2);
        }
    }
    if (optind != argc) {
        usage(stderr, options, about);
        exit(2);
    }
}

bool bench_wanted(const struct bench_options *options, const char *impl)
{
    const size_t length = strlen(impl);
    const char *name = options->impl;

    if (name == NULL)
        return true;
    for (;;) {
        const size_t span = strcspn(name, ",");

        if (span == length && strncmp(name, impl, length) == 0)
            return true;
        if (name[span] == '\0')
            return false;
        name += span + 1;
    }
}

/* ---- children ----------------------------------------------------------------------------- */

char *bench_sibling(const char *name)
{
    char self[PATH_MAX], *path, *slash;
    const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (length < 0)
        bench_die("/proc/self/exe: %s", strerror(errno));
    self[length] = '\0';
    slash = strrchr(self, '/');
    if (slash != NULL)
        *slash = '\0';
    if (asprintf(&path, "%s/%s", self, name) < 0)
        bench_die("out of memory");
    return path;
}

/* Children not reaped yet, for the exit paths that nobody planned. */
static volatile sig_atomic_t live[8];
static const int live_count = (int)(sizeof(live) / sizeof(live[0]));

static void kill_live(void)
{
    for (int i = 0; i < live_count; i++) {
        if (live[i] != 0) {
            kill((pid_t)live[i], SIGKILL);
            waitpid((pid_t)live[i], NULL, 0);
            live[i] = 0;
        }
    }
}

static void on_signal(int number)
{
    kill_live();
    signal(number, SIG_DFL);
    raise(number);
}

static void watch_exits(void)
{
    static bool watching;

    if (watching)
        return;
    watching = true;
    atexit(kill_live);
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    signal(SIGHUP, on_signal);
}

pid_t bench_start(char *const argv[], int *output)
{
    const pid_t parent = getpid();
    int ends[2], slot = 0;
    pid_t pid;

    watch_exits();
    while (slot < live_count && live[slot] != 0)
        slot++;
    if (slot == live_count)
        bench_die("too many children");
    if (pipe2(ends, O_CLOEXEC) != 0)
        bench_die("pipe2: %s", strerror(errno));
    fflush(stdout);
    pid = fork();
    if (pid < 0)
        bench_die("fork: %s", strerror(errno));
    if (pid == 0) {
        /* Even a parent that is killed takes its children along. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        dup2(ends[1], STDOUT_FILENO);
        execvp(argv[0], argv);
        _exit(errno == ENOENT ? 127 : 126);
    }
    live[slot] = (sig_atomic_t)pid;
    close(ends[1]);
    *output = ends[0];
    return pid;
}

int bench_reap(pid_t pid)
{
    int status;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            bench_die("waitpid: %s", strerror(errno));
    for (int i = 0; i < live_count; i++)
        if (live[i] == (sig_atomic_t)pid)
            live[i] = 0;
    return status;
}

void bench_stop(pid_t pid)
{
    kill(pid, SIGKILL);
    bench_reap(pid);
}

bool bench_read(int output, char *text, size_t size, const char *until, int seconds)
{
    const int64_t deadline = bench_now() + seconds * INT64_C(1000000000);
    size_t length = 0;

    text[0] = '\0';
    while (length < size - 1) {
        struct pollfd readable = {.fd = output, .events = POLLIN};
        const int64_t left = deadline - bench_now();
        ssize_t got;

        if (left <= 0)
            return false;
        if (poll(&readable, 1, (int)(left / 1000000) + 1) <= 0)
            continue;
        got = read(output, text + length, size - 1 - length);
        if (got == 0)
            return until == NULL;
        if (got < 0 && errno != EINTR)
            return false;
        if (got > 0)
            length += (size_t)got;
        text[length] = '\0';
        if (until != NULL && strstr(text, until) != NULL)
            return true;
    }
    return until == NULL;
}

int bench_child(char *const argv[], double figures[BENCH_FIGURES], char *remark, size_t size)
{
    char text[512] = "", *at = text, *end;
    int output, status, count = 0;
    const pid_t pid = bench_start(argv, &output);
    const bool in_time = bench_read(output, text, sizeof(text), NULL, CHILD_SECONDS);

    if (!in_time)
        kill(pid, SIGKILL);
    close(output);
    status = bench_reap(pid);
    if (!in_time) {
        snprintf(remark, size, "gave no result within %d s", CHILD_SECONDS);
    } else if (WIFSIGNALED(status)) {
        snprintf(remark, size, "killed by signal %d", WTERMSIG(status));
    } else if (WEXITSTATUS(status) == 127) {
        snprintf(remark, size, "not built");
    } else if (WEXITSTATUS(status) == BENCH_SKIPPED) {
        text[strcspn(text, "\n")] = '\0';
        snprintf(remark, size, "skipped: %.*s", (int)size - 16, text);
    } else if (WEXITSTATUS(status) != 0) {
        snprintf(remark, size, "failed with status %d", WEXITSTATUS(status));
    } else {
        while (count < BENCH_FIGURES) {
            figures[count] = strtod(at, &end);
            if (end == at)
                break;
            at = end;
            count++;
        }
        if (count == 0)
            snprintf(remark, size, "printed no figure");
    }
    return count;
}

/* ---- results ------------------------------------------------------------------------------ */

void bench_add(struct bench_cell *cell, double value)
{
    if (cell->rounds == 0 || (cell->most ? value > cell->best : value < cell->best))
        cell->best = value;
    if (cell->rounds < (int)(sizeof(cell->values) / sizeof(cell->values[0])))
        cell->values[cell->rounds] = value;
    cell->rounds++;
}

void bench_measure(struct bench_cell *cell, const char *program, const char *first)
{
    char name[64], argument[24], ops[24];
    char *path, *argv[4];
    double figures[BENCH_FIGURES];
    const int64_t began = bench_now();

    snprintf(name, sizeof(name), "%s_%s", program, cell->impl);
    snprintf(argument, sizeof(argument), "%s", first);
    snprintf(ops, sizeof(ops), "%ld", cell->ops);
    path = bench_sibling(name);
    argv[0] = path;
    argv[1] = argument;
    argv[2] = ops;
    argv[3] = NULL;
    if (bench_child(argv, figures, cell->remark, sizeof(cell->remark)) > 0)
        bench_add(cell, figures[0]);
    free(path);
    cell->spent += bench_now() - began;
}

bool bench_again(const struct bench_cell *cell)
{
    return cell->remark[0] == '\0' && (cell->rounds < 2 || cell->spent < BENCH_CELL_NS);
}

static int ascending(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

double bench_median(const struct bench_cell *cell)
{
    double sorted[sizeof(cell->values) / sizeof(cell->values[0])];
    const int count = cell->rounds;

    if (count == 0)
        return 0;
    memcpy(sorted, cell->values, sizeof(double) * (size_t)count);
    qsort(sorted, (size_t)count, sizeof(double), ascending);
    return count % 2 != 0 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

void bench_json(const char *bench, const struct bench_cell *cell, const char *unit)
{
    if (cell->rounds == 0) {
        fprintf(stderr, "%s: %s%s%s", bench, cell->impl, cell->mode != NULL ? " " : "",
                cell->mode != NULL ? cell->mode : "");
        if (cell->fibers != 0)
            fprintf(stderr, " with %ld fibers", cell->fibers);
        if (cell->threads != 0)
            fprintf(stderr, " on %ld threads", cell->threads);
        if (cell->bytes != 0)
            fprintf(stderr, " with %ld bytes", cell->bytes);
        fprintf(stderr, ": %s\n", cell->remark[0] != '\0' ? cell->remark : "not measured");
        return;
    }
    printf("{\"bench\":\"%s\",\"impl\":\"%s\"", bench, cell->impl);
    if (cell->mode != NULL)
        printf(",\"mode\":\"%s\"", cell->mode);
    if (cell->fibers != 0)
        printf(",\"fibers\":%ld", cell->fibers);
    if (cell->threads != 0)
        printf(",\"threads\":%ld", cell->threads);
    if (cell->bytes != 0)
        printf(",\"bytes\":%ld", cell->bytes);
    printf(",\"ops\":%ld,\"%s\":%.2f,\"rounds\":%d}\n", cell->ops, unit, cell->best, cell->rounds);
}
