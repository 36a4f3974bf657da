/* lookup.c: where a host is. What is written in numbers needs no lookup and no thread; the rest is
 * getaddrinfo's, on a thread of the pool.
 *
 * A lookup's memory is shared: by whoever asked, and, while it is under way, by the pool. Whoever is
 * the last to let go frees it, so that a fiber need not wait for a name server that never answers.
 */
#include "ring_internal.h"

#include "offload.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct ring__lookup {
    struct weft_job job;
    atomic_int holders;
    void (*found)(struct ring__lookup *lookup, void *owner); /* NULL: nobody waits any more */
    void *owner;
    int result; /* 0 or a negative errno */
    int port;
    union ring__address numeric;
    socklen_t numeric_len; /* 0: not a numeric one, or taken already */
    struct addrinfo *list, *next;
    const char *service;
    char host[];
};

/* The services a program is likely to name; the same numbers everywhere, by RFC 6335. */
static const struct {
    const char *name;
    int port;
} services[] = {
    {"ftp", 21},    {"ssh", 22},    {"telnet", 23},  {"smtp", 25},
    {"domain", 53}, {"http", 80},   {"pop3", 110},   {"ntp", 123},
    {"imap", 143},  {"ldap", 389},  {"https", 443},  {"ldaps", 636},
    {"imaps", 993}, {"pop3s", 995}, {"mysql", 3306}, {"postgresql", 5432},
};

int ring__service_port(const char *service)
{
    int port = 0;

    if (service == NULL)
        return 0;
    for (size_t i = 0; i < sizeof services / sizeof services[0]; i++)
        if (strcmp(service, services[i].name) == 0)
            return services[i].port;
    if (*service == '\0')
        return -ENOENT;
    for (const char *s = service; *s != '\0'; s++) {
        if (*s < '0' || *s > '9')
            return -ENOENT;
        port = port * 10 + (*s - '0');
        if (port > UINT16_MAX)
            return -ENOENT;
    }
    return port;
}

bool ring__numeric_address(const char *host, int port, union ring__address *address, socklen_t *len)
{
    char bare[INET6_ADDRSTRLEN];
    const char *percent = strchr(host, '%');
    size_t size = percent == NULL ? strlen(host) : (size_t)(percent - host);

    memset(address, 0, sizeof *address);
    if (percent == NULL && inet_pton(AF_INET, host, &address->v4.sin_addr) == 1) {
        address->v4.sin_family = AF_INET;
        address->v4.sin_port = htons((uint16_t)port);
        *len = sizeof address->v4;
        return true;
    }
    if (size >= sizeof bare)
        return false;
    memcpy(bare, host, size);
    bare[size] = '\0';
    if (inet_pton(AF_INET6, bare, &address->v6.sin6_addr) != 1)
        return false;
    if (percent != NULL && (address->v6.sin6_scope_id = if_nametoindex(percent + 1)) == 0)
        address->v6.sin6_scope_id = (uint32_t)strtoul(percent + 1, NULL, 10);
    address->v6.sin6_family = AF_INET6;
    address->v6.sin6_port = htons((uint16_t)port);
    *len = sizeof address->v6;
    return true;
}

static int error_of(int eai, int saved_errno)
{
    switch (eai) {
    case 0:
        return 0;
    case EAI_NONAME:
#ifdef EAI_NODATA
    case EAI_NODATA:
#endif
#ifdef EAI_ADDRFAMILY
    case EAI_ADDRFAMILY:
#endif
        return -ENOENT;
    case EAI_AGAIN:
        return -EAGAIN;
    case EAI_MEMORY:
        return -ENOMEM;
    case EAI_SERVICE:
    case EAI_SOCKTYPE:
    case EAI_FAMILY:
    case EAI_BADFLAGS:
        return -EINVAL;
    case EAI_SYSTEM:
        return saved_errno != 0 ? -saved_errno : -EIO;
    default:
        return -EIO;
    }
}

static void let_go(struct ring__lookup *lookup)
{
    if (atomic_fetch_sub(&lookup->holders, 1) == 1) {
        if (lookup->list != NULL)
            freeaddrinfo(lookup->list);
        free(lookup);
    }
}

static void look_up(struct weft_job *job)
{
    struct ring__lookup *lookup = weft__container(job, struct ring__lookup, job);
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    int eai;

    errno = 0;
    eai = getaddrinfo(lookup->host, lookup->service, &hints, &lookup->list);
    if (eai != 0)
        lookup->list = NULL;
    lookup->result = error_of(eai, errno);
    lookup->next = lookup->list;
}

static void looked_up(struct weft_job *job)
{
    struct ring__lookup *lookup = weft__container(job, struct ring__lookup, job);

    if (lookup->found != NULL)
        lookup->found(lookup, lookup->owner);
    let_go(lookup);
}

/* The runtime has ended. A promise that still waits has gone with it, and lets go by not being there. */
static void runtime_ended(struct weft_job *job)
{
    struct ring__lookup *lookup = weft__container(job, struct ring__lookup, job);
    bool has_owner = lookup->found != NULL;

    let_go(lookup);
    if (has_owner)
        let_go(lookup);
}

struct ring__lookup *ring__lookup_start(struct weft_runtime *rt, const char *host,
                                        const char *service,
                                        void (*found)(struct ring__lookup *, void *owner),
                                        void *owner, int *started)
{
    int port = ring__service_port(service);
    struct ring__lookup *lookup;
    size_t host_size, service_size;

    if (host == NULL || service == NULL || *host == '\0') {
        *started = -EINVAL;
        return NULL;
    }
    host_size = strlen(host) + 1;
    service_size = strlen(service) + 1;
    lookup = malloc(sizeof *lookup + host_size + service_size);
    if (lookup == NULL) {
        *started = -ENOMEM;
        return NULL;
    }
    lookup->found = found;
    lookup->owner = owner;
    lookup->result = 0;
    lookup->list = lookup->next = NULL;
    lookup->numeric_len = 0;
    memcpy(lookup->host, host, host_size);
    lookup->service = memcpy(lookup->host + host_size, service, service_size);
    atomic_init(&lookup->holders, 1);
    if (port >= 0 && ring__numeric_address(host, port, &lookup->numeric, &lookup->numeric_len)) {
        *started = 0;
        return lookup;
    }
    lookup->numeric_len = 0;
    lookup->job = (struct weft_job){.run = look_up, .done = looked_up, .drop = runtime_ended};
    atomic_store(&lookup->holders, 2);
    *started = weft__offload(rt, &lookup->job, WEFT__JOB_LOOKUP);
    if (*started < 0) {
        free(lookup);
        return NULL;
    }
    *started = 1;
    return lookup;
}

int ring__lookup_result(const struct ring__lookup *lookup)
{
    return lookup->result;
}

const struct sockaddr *ring__lookup_next(struct ring__lookup *lookup, socklen_t *len)
{
    const struct addrinfo *info = lookup->next;

    if (lookup->numeric_len != 0) {
        *len = lookup->numeric_len;
        lookup->numeric_len = 0;
        return &lookup->numeric.any;
    }
    if (info == NULL)
        return NULL;
    lookup->next = info->ai_next;
    *len = info->ai_addrlen;
    return info->ai_addr;
}

void ring__lookup_give_up(struct ring__lookup *lookup)
{
    lookup->found = NULL;
}

void ring__lookup_finish(struct ring__lookup *lookup)
{
    if (lookup != NULL) {
        lookup->found = NULL;
        let_go(lookup);
    }
}
