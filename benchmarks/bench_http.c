/* bench_http: the CPU time that a plaintext HTTP request costs a server. needs: fibers
 *
 *   weft  examples/http_hello.c: direct style, a fiber a connection, http-parser, deadlines, Date
 *   raw   raw_http.c: liburing by hand, no parser, no deadlines
 *
 * wrk loads each server in turn over loopback (one thread, 64 connections, keep-alive, no
 * pipelining). On a small machine wrk is the limit, not the server; so the figure is the server's
 * own CPU time, user and system, divided by the requests that wrk counted.
 *
 * Why it is fair: both are processes of their own that live through all rounds, they alternate,
 * they send responses of the same size (checked), and each first serves a short load that isn't
 * measured. CPU time is sampled before and after each load from /proc/PID/stat, so wrk's and the
 * kernel's asynchronous work outside of the process count for neither.
 */
#include "harness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WARM_LOAD "-d1s"
#define LOAD      "-d3s"
#define SERVERS   2

struct server {
    const char *impl, *program;
    pid_t pid;
    int output; /* its stdout, which stays open as long as it runs */
    int port;
    long response_size;
    struct bench_cell cpu, rate;
};

/* ---- servers ------------------------------------------------------------------------------ */

/* Starts a server on a port of its choice; `bytes`: the responses' size, 0 for its own. */
static void start(struct server *server, long bytes)
{
    static const char said[] = "listening on 127.0.0.1:";
    char *path = bench_sibling(server->program);
    char size[24], text[512];
    char *argv[] = {path, "--port", "0", NULL, NULL, NULL};

    snprintf(size, sizeof(size), "%ld", bytes);
    if (bytes > 0) {
        argv[3] = "--bytes";
        argv[4] = size;
    }
    server->pid = bench_start(argv, &server->output);
    if (!bench_read(server->output, text, sizeof(text), "\n", 10) ||
        strncmp(text, said, strlen(said)) != 0)
        bench_die("%s has not said where it listens", server->program);
    server->port = (int)strtol(text + strlen(said), NULL, 10);
    free(path);
}

static void stop(struct server *server)
{
    bench_stop(server->pid);
    close(server->output);
}

/* The size of the response to a GET, as it comes over the wire. */
static long measure_response(const struct server *server)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    static const char field[] = "\r\nContent-Length:";
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)server->port)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char text[4096];
    const char *end, *length;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        write(fd, request, strlen(request)) != (ssize_t)strlen(request))
        bench_die("%s: %s", server->program, strerror(errno));
    if (!bench_read(fd, text, sizeof(text), "\r\n\r\n", 10))
        bench_die("%s gave no response", server->program);
    close(fd);
    end = strstr(text, "\r\n\r\n");
    length = strcasestr(text, field);
    if (strncmp(text, "HTTP/1.1 200", 12) != 0 || length == NULL || length > end)
        bench_die("%s gave an unexpected response", server->program);
    return (long)(end + 4 - text) + strtol(length + strlen(field), NULL, 10);
}

/* Both, with responses of the same size. */
static void start_all(struct server servers[], int count)
{
    long size = 0;

    for (int i = 0; i < count; i++) {
        start(&servers[i], i > 0 ? size : 0);
        servers[i].response_size = measure_response(&servers[i]);
        if (i > 0 && servers[i].response_size != size)
            bench_die("the servers' responses differ in size: %ld and %ld bytes", size,
                      servers[i].response_size);
        size = servers[i].response_size;
    }
}

/* Seconds of CPU that a process has used so far. */
static double cpu_seconds(pid_t pid)
{
    char path[64], text[1024];
    const char *after_name;
    unsigned long user, system;
    size_t length;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (file == NULL)
        bench_die("%s: %s", path, strerror(errno));
    length = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[length] = '\0';
    after_name = strrchr(text, ')');
    if (after_name == NULL ||
        sscanf(after_name + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
               &system) != 2)
        bench_die("%s has an unexpected form", path);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

/* ---- load --------------------------------------------------------------------------------- */

/* Lets wrk load a server; returns the requests answered, sets their rate. */
static double load(const struct server *server, char *duration, double *rate)
{
    char url[64], text[4096];
    char *argv[] = {"wrk", "-t1", "-c64", duration, url, NULL};
    const char *per_second, *count;
    int output, status;
    pid_t pid;

    snprintf(url, sizeof(url), "http://127.0.0.1:%d/", server->port);
    pid = bench_start(argv, &output);
    if (!bench_read(output, text, sizeof(text), NULL, 30))
        bench_die("wrk does not end");
    close(output);
    status = bench_reap(pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        bench_die("needs wrk");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        bench_die("wrk failed");
    if (strstr(text, "Socket errors") != NULL || strstr(text, "Non-2xx") != NULL)
        bench_die("%s failed under load:\n%s", server->program, text);
    per_second = strstr(text, "Requests/sec:");
    count = strstr(text, " requests in ");
    if (per_second == NULL || count == NULL)
        bench_die("cannot read what wrk says:\n%s", text);
    *rate = strtod(per_second + strlen("Requests/sec:"), NULL);
    while (count > text && count[-1] != ' ' && count[-1] != '\n')
        count--;
    return strtod(count, NULL);
}

static void measure(struct server *server)
{
    double before, after, requests, rate;

    before = cpu_seconds(server->pid);
    requests = load(server, LOAD, &rate);
    after = cpu_seconds(server->pid);
    if (requests < 1)
        bench_die("%s answered nothing", server->program);
    bench_add(&server->cpu, (after - before) * 1e6 / requests);
    bench_add(&server->rate, rate);
    server->cpu.ops += (long)requests;
    server->rate.ops += (long)requests;
}

/* ---- the driver --------------------------------------------------------------------------- */

static void print_table(const struct server servers[], int count)
{
    const struct server *raw = NULL;

    for (int i = 0; i < count; i++)
        if (strcmp(servers[i].impl, "raw") == 0)
            raw = &servers[i];
    printf("  %-6s %22s %9s %9s %9s %12s %12s %7s\n", "", "CPU us a request: min", "median",
           "min / raw", "median", "requests/s", "bytes each", "rounds");
    for (int i = 0; i < count; i++) {
        const struct server *server = &servers[i];

        printf("  %-6s %22.2f %9.2f", server->impl, server->cpu.best, bench_median(&server->cpu));
        if (raw != NULL)
            printf(" %9.2f %9.2f", server->cpu.best / raw->cpu.best,
                   bench_median(&server->cpu) / bench_median(&raw->cpu));
        else
            printf(" %9s %9s", "-", "-");
        printf(" %12.0f %12ld %7d\n", bench_median(&server->rate), server->response_size,
               server->cpu.rounds);
    }
}

int main(int argc, char **argv)
{
    static struct server known[SERVERS] = {
        {.impl = "weft", .program = "http_hello"},
        {.impl = "raw", .program = "raw_http"},
    };
    struct bench_options options = {.rounds = 5};
    struct server servers[SERVERS];
    double rate;
    int count = 0;

    bench_options_parse(&options, argc, argv,
                        "Measures the CPU time an HTTP request costs a server, in us (needs wrk).");
    for (int i = 0; i < SERVERS; i++) {
        if (!bench_wanted(&options, known[i].impl))
            continue;
        known[i].cpu.impl = known[i].rate.impl = known[i].impl;
        known[i].cpu.mode = "cpu";
        known[i].rate.mode = "throughput";
        known[i].rate.most = true;
        servers[count++] = known[i];
    }
    if (count == 0)
        bench_die("no implementation '%s'", options.impl);

    start_all(servers, count);
    for (int i = 0; i < count; i++)
        load(&servers[i], WARM_LOAD, &rate);
    for (int round = 0; round < options.rounds; round++)
        for (int i = 0; i < count; i++)
            measure(&servers[i]);
    for (int i = 0; i < count; i++)
        stop(&servers[i]);

    if (!options.json) {
        print_table(servers, count);
        return 0;
    }
    for (int i = 0; i < count; i++) {
        bench_json("http", &servers[i].cpu, "us_per_op");
        bench_json("http", &servers[i].rate, "ops_per_s");
    }
    return 0;
}
