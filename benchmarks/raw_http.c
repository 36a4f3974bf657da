/* raw_http.c: an HTTP plaintext server written on liburing by hand, the measure for http_hello.
 *
 * What somebody who knows io_uring would write with single-shot operations: one thread, one ring,
 * one io_uring_submit_and_wait per turn of the loop. A request costs one receive and one send,
 * which go to the kernel together: the response is constant, so the next receive need not wait for
 * the send, and a send that succeeds posts no completion. There is no parser: a request is whatever
 * ends with an empty line, so keep-alive and pipelining work, and methods, bodies and limits do not
 * exist. Multishot receives with provided buffers would make a different, quicker server;
 * http_hello uses single-shot ones, so they are what it is measured by.
 *
 * Prints "listening on 127.0.0.1:PORT" and runs until it is killed.
 */
#include <liburing.h>

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SQ_ENTRIES 1024
#define CQ_ENTRIES 4096
#define REPEATS    64 /* responses that one send may carry */

struct connection {
    int fd;
    unsigned newlines; /* of an empty line, seen at the end of what was received */
    char in[4096];
};

struct server {
    struct io_uring ring;
    int listener;
    char *responses; /* REPEATS of them in a row */
    size_t response_size;
};

static void die(const char *what, int error)
{
    fprintf(stderr, "raw_http: %s: %s\n", what, strerror(error));
    exit(1);
}

/* When the queue is full, what is in it is submitted early. */
static struct io_uring_sqe *next_sqe(struct server *server)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&server->ring);

    while (sqe == NULL) {
        const int result = io_uring_submit(&server->ring);

        if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY)
            die("io_uring_submit", -result);
        sqe = io_uring_get_sqe(&server->ring);
    }
    return sqe;
}

static void queue_accept(struct server *server)
{
    struct io_uring_sqe *sqe = next_sqe(server);

    io_uring_prep_multishot_accept(sqe, server->listener, NULL, NULL, SOCK_CLOEXEC);
    io_uring_sqe_set_data(sqe, server);
}

/* Nothing can be there yet: the client waits for the response that goes out at the same time. So
 * the kernel need not look before it waits. */
static void queue_receive(struct server *server, struct connection *connection)
{
    struct io_uring_sqe *sqe = next_sqe(server);

    io_uring_prep_recv(sqe, connection->fd, connection->in, sizeof(connection->in), 0);
    sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
    io_uring_sqe_set_data(sqe, connection);
}

/* Responses to `count` requests. A send that fails needs no handling: the receive fails as well. */
static void queue_responses(struct server *server, struct connection *connection, size_t count)
{
    struct io_uring_sqe *sqe;
    const size_t some = count < REPEATS ? count : REPEATS;

    /* sends on one socket keep their order only in a chain */
    sqe = next_sqe(server);
    io_uring_prep_send(sqe, connection->fd, server->responses, some * server->response_size,
                       MSG_NOSIGNAL | MSG_WAITALL);
    io_uring_sqe_set_flags(sqe, IOSQE_CQE_SKIP_SUCCESS | (some < count ? IOSQE_IO_LINK : 0));
    io_uring_sqe_set_data(sqe, NULL);
    if (some < count)
        queue_responses(server, connection, count - some);
}

/* Requests that end in what was just received. */
static size_t count_requests(struct connection *connection, size_t length)
{
    const char *at = connection->in, *const end = at + length;
    size_t count = 0;

    while (at < end) {
        if (connection->newlines == 0) { /* the common case goes from line to line */
            at = memchr(at, '\n', (size_t)(end - at));
            if (at == NULL)
                break;
            at++;
            connection->newlines = 1;
        } else if (*at == '\n') {
            at++;
            connection->newlines = 0;
            count++;
        } else if (*at == '\r') {
            at++;
        } else {
            connection->newlines = 0;
        }
    }
    return count;
}

static void accepted(struct server *server, int fd)
{
    struct connection *connection = malloc(sizeof(*connection));
    const int on = 1;

    if (connection == NULL) {
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    connection->fd = fd;
    connection->newlines = 0;
    queue_receive(server, connection);
}

static void received(struct server *server, struct connection *connection, int result)
{
    size_t count;

    if (result == -EINTR || result == -EAGAIN) {
        queue_receive(server, connection);
        return;
    }
    if (result <= 0) {
        close(connection->fd);
        free(connection);
        return;
    }
    count = count_requests(connection, (size_t)result);
    if (count > 0)
        queue_responses(server, connection, count);
    queue_receive(server, connection);
}

static void handle(struct server *server, const struct io_uring_cqe *cqe)
{
    void *data = io_uring_cqe_get_data(cqe);

    if (data == server) {
        if (cqe->res >= 0)
            accepted(server, cqe->res);
        if (!(cqe->flags & IORING_CQE_F_MORE))
            queue_accept(server);
    } else if (data != NULL) {
        received(server, data, cqe->res);
    }
}

static void serve(struct server *server)
{
    queue_accept(server);
    for (;;) {
        const int result = io_uring_submit_and_wait(&server->ring, 1);
        struct io_uring_cqe *cqe;
        unsigned head, seen = 0;

        if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY)
            die("io_uring_submit_and_wait", -result);
        io_uring_for_each_cqe(&server->ring, head, cqe)
        {
            handle(server, cqe);
            seen++;
        }
        io_uring_cq_advance(&server->ring, seen);
    }
}

/* A response of `size` bytes in all, REPEATS times; 0: "Hello, World!". */
static void make_responses(struct server *server, size_t size)
{
    static const char form[] = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
                               "Content-Length: %zu\r\n\r\n";
    static const char hello[] = "Hello, World!";
    size_t body = size == 0 ? sizeof(hello) - 1 : 0;
    char head[128];

    while (snprintf(head, sizeof(head), form, body) + body < size)
        body++;
    server->response_size = strlen(head) + body;
    if (size != 0 && server->response_size != size) {
        fprintf(stderr, "raw_http: no response has exactly %zu bytes\n", size);
        exit(1);
    }
    server->responses = malloc(REPEATS * server->response_size);
    if (server->responses == NULL)
        die("responses", ENOMEM);
    for (size_t i = 0; i < REPEATS; i++) {
        char *at = server->responses + i * server->response_size;

        memcpy(at, head, strlen(head));
        memset(at + strlen(head), '.', body);
        memcpy(at + strlen(head), hello, body < sizeof(hello) ? body : sizeof(hello) - 1);
    }
}

static void start_listening(struct server *server, uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    socklen_t length = sizeof(address);
    const int on = 1;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server->listener < 0)
        die("socket", errno);
    setsockopt(server->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(server->listener, (struct sockaddr *)&address, length) != 0)
        die("bind", errno);
    if (listen(server->listener, 1024) != 0)
        die("listen", errno);
    if (getsockname(server->listener, (struct sockaddr *)&address, &length) != 0)
        die("getsockname", errno);
    printf("listening on 127.0.0.1:%u\n", (unsigned)ntohs(address.sin_port));
    fflush(stdout);
}

static void usage(FILE *out)
{
    fputs("usage: raw_http [--port N] [--bytes N] [--coop|--defer]\n"
          "  --port N   listen on this port of 127.0.0.1 (any)\n"
          "  --bytes N  size of a whole response\n"
          "  --coop     IORING_SETUP_COOP_TASKRUN\n"
          "  --defer    IORING_SETUP_DEFER_TASKRUN (the default)\n",
          out);
}

int main(int argc, char **argv)
{
    static const struct option known[] = {
        {"port", required_argument, NULL, 'p'}, {"bytes", required_argument, NULL, 'b'},
        {"coop", no_argument, NULL, 'c'},       {"defer", no_argument, NULL, 'd'},
        {"help", no_argument, NULL, 'h'},       {NULL, 0, NULL, 0},
    };
    static struct server server;
    struct io_uring_params params = {.cq_entries = CQ_ENTRIES};
    bool coop = false;
    long port = 0, bytes = 0;
    int option, result;

    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (option) {
        case 'p':
            port = strtol(optarg, NULL, 10);
            break;
        case 'b':
            bytes = strtol(optarg, NULL, 10);
            break;
        case 'c':
        case 'd':
            coop = option == 'c';
            break;
        case 'h':
            usage(stdout);
            return 0;
        default:
            usage(stderr);
            return 2;
        }
    }
    if (port < 0 || port > 65535 || bytes < 0 || optind != argc) {
        usage(stderr);
        return 2;
    }
    params.flags = IORING_SETUP_CQSIZE | IORING_SETUP_SINGLE_ISSUER |
                   (coop ? IORING_SETUP_COOP_TASKRUN : IORING_SETUP_DEFER_TASKRUN);
    result = io_uring_queue_init_params(SQ_ENTRIES, &server.ring, &params);
    if (result < 0)
        die("io_uring_queue_init_params", -result);
    io_uring_register_ring_fd(&server.ring); /* saves a little; older kernels can't */
    make_responses(&server, (size_t)bytes);
    start_listening(&server, (uint16_t)port);
    serve(&server);
    return 0;
}
