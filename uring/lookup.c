/* lookup.c: where a host is. What is written in numbers needs no lookup and no thread; the rest is
 * getaddrinfo's, on a thread of the pool.
 *
 * A list of addresses is also its own lookup, so that one block does for both. Its memory is shared:
 * by whoever asked, who then has the list; by the pool while the lookup is under way; by operations
 * that walk the list. Whoever is the last to let go frees it, so that nobody need wait for a name
 * server that never answers. A lookup given up before its turn is taken back from the pool.
 *
 * All but `holders`, and what look_up writes before the job is done, is the runtime's thread's alone.
 */
#include "ring_internal.h"

#include "offload.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ring_addresses {
    struct weft_job job;
    atomic_uint holders;
    struct ring_resolve *owner; /* who waits for the lookup; NULL: nobody (any more) */
    int result;                 /* of the lookup: 0 or a negative errno */
    struct addrinfo hints;
    struct addrinfo *found; /* getaddrinfo's; NULL: the addresses are in `own` */
    char *service;          /* for getaddrinfo; it and the host stand in place of `own` */
    struct ring__entry own[];
};

#define HOST_LIMIT    1024u /* longer than any name, NI_MAXHOST */
#define SERVICE_LIMIT 32u   /* NI_MAXSERV */

int (*ring__getaddrinfo)(const char *host, const char *service, const struct addrinfo *hints,
                         struct addrinfo **list) = getaddrinfo;

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
    bool is_number = true;
    int port = 0;

    if (service == NULL)
        return 0;
    if (*service == '\0' || strlen(service) >= SERVICE_LIMIT)
        return -EINVAL;
    for (const char *s = service; *s != '\0' && is_number; s++) {
        is_number = *s >= '0' && *s <= '9';
        if (port <= UINT16_MAX)
            port = port * 10 + (*s - '0');
    }
    if (is_number)
        return port <= UINT16_MAX ? port : -EINVAL;
    for (size_t i = 0; i < sizeof services / sizeof services[0]; i++)
        if (strcmp(service, services[i].name) == 0)
            return services[i].port;
    return -ENOENT;
}

/* ---- lists ---- */

void ring__entry_set(struct ring__entry *entry, const struct sockaddr *address, socklen_t len)
{
    memcpy(&entry->address, address, len);
    entry->info.ai_family = address->sa_family;
    entry->info.ai_addr = &entry->address.any;
    entry->info.ai_addrlen = len;
}

static void set_kind(struct addrinfo *info, int family, unsigned flags)
{
    info->ai_family = family;
    info->ai_socktype = flags & RING_DATAGRAM ? SOCK_DGRAM : SOCK_STREAM;
    info->ai_protocol = flags & RING_DATAGRAM ? IPPROTO_UDP : IPPROTO_TCP;
}

static struct ring_addresses *create(size_t room)
{
    struct ring_addresses *list = calloc(1, sizeof *list + room);

    if (list != NULL)
        atomic_init(&list->holders, 1);
    return list;
}

struct ring_addresses *ring__addresses_create(size_t count, struct ring__entry **entries)
{
    struct ring_addresses *list = create(count * sizeof list->own[0]);

    if (list == NULL)
        return NULL;
    for (size_t i = 1; i < count; i++)
        list->own[i - 1].info.ai_next = &list->own[i].info;
    *entries = list->own;
    return list;
}

struct ring_addresses *ring__addresses_ref(struct ring_addresses *list)
{
    atomic_fetch_add(&list->holders, 1);
    return list;
}

void ring_addresses_destroy(struct ring_addresses *list)
{
    if (list != NULL && atomic_fetch_sub(&list->holders, 1) == 1) {
        if (list->found != NULL)
            freeaddrinfo(list->found);
        free(list);
    }
}

const struct addrinfo *ring_addresses_first(const struct ring_addresses *list)
{
    return list->found != NULL ? list->found : &list->own[0].info;
}

/* ---- in numbers ---- */

/* A zone by its interface's name or number; 0: there is none. */
static uint32_t zone_index(const char *zone)
{
    int saved = errno;
    unsigned long index = if_nametoindex(zone);
    char *end;

    if (index == 0) {
        index = strtoul(zone, &end, 10);
        if (*zone < '0' || *zone > '9' || *end != '\0' || index > UINT32_MAX)
            index = 0;
    }
    errno = saved;
    return (uint32_t)index;
}

/* "127.0.0.1", "::1", "fe80::1%eth0". False if it isn't one. */
static bool read_address(const char *host, int port, struct ring__entry *entry)
{
    char bare[INET6_ADDRSTRLEN];
    const char *percent = strchr(host, '%');
    size_t size = percent == NULL ? strlen(host) : (size_t)(percent - host);
    union ring__address address;

    memset(&address, 0, sizeof address);
    if (inet_pton(AF_INET, host, &address.v4.sin_addr) == 1) {
        address.v4.sin_family = AF_INET;
        address.v4.sin_port = htons((uint16_t)port);
        ring__entry_set(entry, &address.any, sizeof address.v4);
        return true;
    }
    if (size >= sizeof bare)
        return false;
    memcpy(bare, host, size);
    bare[size] = '\0';
    if (inet_pton(AF_INET6, bare, &address.v6.sin6_addr) != 1)
        return false;
    if (percent != NULL) {
        address.v6.sin6_scope_id = zone_index(percent + 1);
        if (address.v6.sin6_scope_id == 0)
            return false;
    }
    address.v6.sin6_family = AF_INET6;
    address.v6.sin6_port = htons((uint16_t)port);
    ring__entry_set(entry, &address.any, sizeof address.v6);
    return true;
}

/* The family asked for, or AF_UNSPEC. */
static int wanted_family(unsigned flags)
{
    return (flags & (RING_IPV4 | RING_IPV6)) == RING_IPV4   ? AF_INET
           : (flags & (RING_IPV4 | RING_IPV6)) == RING_IPV6 ? AF_INET6
                                                            : AF_UNSPEC;
}

int ring__resolve_numeric(const char *host, const char *service, unsigned flags,
                          struct ring__entry *entry)
{
    int port = ring__service_port(service), family = wanted_family(flags);

    if (host == NULL || *host == '\0' || port == -EINVAL ||
        flags & ~(RING_IPV4 | RING_IPV6 | RING_DATAGRAM))
        return -EINVAL;
    if (strlen(host) > HOST_LIMIT)
        return -ENAMETOOLONG;
    memset(&entry->info, 0, sizeof entry->info);
    if (port < 0 || !read_address(host, port, entry))
        return 1;
    set_kind(&entry->info, entry->info.ai_family, flags);
    return family == AF_UNSPEC || family == entry->info.ai_family ? 0 : -ENOENT;
}

/* ---- by name ---- */

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

static void look_up(struct weft_job *job)
{
    struct ring_addresses *list = weft__container(job, struct ring_addresses, job);
    struct addrinfo *found = NULL;
    int eai;

    errno = 0;
    eai = ring__getaddrinfo((const char *)list->own, list->service, &list->hints, &found);
    list->result = error_of(eai, errno);
    list->found = eai == 0 ? found : NULL;
}

static void looked_up(struct weft_job *job)
{
    struct ring_addresses *list = weft__container(job, struct ring_addresses, job);
    struct ring_resolve *owner = list->owner;
    int result = list->result;

    list->owner = NULL;
    ring_addresses_destroy(list); /* the pool's share */
    if (owner == NULL)
        return;
    owner->pending = NULL;
    if (result == 0)
        owner->list = list;
    else
        ring_addresses_destroy(list);
    owner->done(owner, result);
}

/* The runtime has ended. Who still waits has gone with it, and lets go by not being there. */
static void runtime_ended(struct weft_job *job)
{
    struct ring_addresses *list = weft__container(job, struct ring_addresses, job);
    bool has_owner = list->owner != NULL;

    ring_addresses_destroy(list);
    if (has_owner)
        ring_addresses_destroy(list);
}

int ring__look_up(struct weft_runtime *rt, struct ring_resolve *resolve, const char *host,
                  const char *service, unsigned flags)
{
    size_t host_size = strlen(host) + 1;
    struct ring_addresses *list = create(host_size + SERVICE_LIMIT);
    int port = ring__service_port(service), rc;

    if (list == NULL)
        return -ENOMEM;
    set_kind(&list->hints, wanted_family(flags), flags);
    memcpy(list->own, host, host_size);
    list->service = (char *)list->own + host_size;
    if (port >= 0) { /* a system may know fewer services */
        snprintf(list->service, SERVICE_LIMIT, "%d", port);
        list->hints.ai_flags = AI_NUMERICSERV;
    } else {
        strcpy(list->service, service);
    }
    list->owner = resolve;
    list->job = (struct weft_job){.run = look_up, .done = looked_up, .drop = runtime_ended};
    atomic_store(&list->holders, 2);
    rc = weft__offload(rt, &list->job, WEFT__JOB_LOOKUP);
    if (rc < 0) {
        free(list);
        return rc;
    }
    resolve->pending = list;
    return -EINPROGRESS;
}

int ring_resolve_host(struct ring_resolve *resolve, const char *host, const char *service,
                      unsigned flags)
{
    struct weft_runtime *rt = weft__rt;
    struct ring__entry entry, *own;
    int rc;

    resolve->list = resolve->pending = NULL;
    if (rt == NULL)
        return -EINVAL;
    rc = ring__resolve_numeric(host, service, flags, &entry);
    if (rc > 0)
        return ring__look_up(rt, resolve, host, service, flags);
    if (rc < 0)
        return rc;
    resolve->list = ring__addresses_create(1, &own);
    if (resolve->list == NULL)
        return -ENOMEM;
    *own = entry;
    own->info.ai_addr = &own->address.any;
    return 0;
}

void ring_resolve_cancel(struct ring_resolve *resolve)
{
    struct ring_addresses *list = resolve->pending;

    if (list == NULL)
        return;
    resolve->pending = NULL;
    list->owner = NULL;
    if (weft_offload_withdraw(&list->job)) /* its turn had not come: the pool lets go, too */
        ring_addresses_destroy(list);
    ring_addresses_destroy(list);
}
