/* connect.c: connecting to the first of several addresses that answers (RFC 8305, "happy eyeballs").
 *
 * The state machine of every connect by name, whatever the front end; it allocates nothing but what
 * a lookup takes. Phases: the name is looked up (`resolve` is pending, nothing is in the ring); then
 * attempts, at most RING__RACERS at a time. Something happens: an attempt ends, the timer fires, an
 * end is asked for; then go_on() alone decides what follows. Invariants:
 *   - An attempt's socket belongs to its operation, and is closed, or is the result, when that has
 *     been reported: never before.
 *   - While the outcome is open (no connection, no reason to end) and attempts are under way, the
 *     timer runs if there is anything to wait for. Once it is settled, the end of every attempt has
 *     been asked for.
 *   - The outcome is told when no attempt is left; nothing of the machine is used any more then.
 * So a connection waits for the losers' last completions, one turn of the loop, and whoever owns the
 * memory (a fiber's stack, a promise's block) has it back with the result.
 */
#include "ring_internal.h"

#include "timer.h"

#include <string.h>

int64_t ring__connect_delay = WEFT_MS(250);

/* ---- which address is next ---- */

static const struct addrinfo *skip(const struct addrinfo *info, int family, bool same)
{
    while (info != NULL && (info->ai_family == family) != same)
        info = info->ai_next;
    return info;
}

static void set_addresses(struct ring__connect *c, const struct addrinfo *first)
{
    c->family = first->ai_family;
    c->next[0] = first;
    c->next[1] = skip(first, c->family, false);
}

static bool has_more(const struct ring__connect *c)
{
    return c->next[0] != NULL || c->next[1] != NULL;
}

/* In the order of the list, but the first one's family and the others in turns. */
static const struct addrinfo *take_next(struct ring__connect *c)
{
    unsigned turn = c->next[c->turn] != NULL ? c->turn : 1 - c->turn;
    const struct addrinfo *info = c->next[turn];

    c->next[turn] = skip(info->ai_next, c->family, turn == 0);
    c->turn = 1 - turn;
    return info;
}

/* ---- outcome ---- */

static bool is_open(const struct ring__connect *c)
{
    return c->fd < 0 && c->reason == 0;
}

/* How much an error tells. */
static int weight(int error)
{
    switch (error) {
    case 0:
        return -1;
    case -ENETUNREACH: /* there is no way from here */
    case -EADDRNOTAVAIL:
    case -EAFNOSUPPORT:
        return 0;
    case -EMFILE: /* it is this process that cannot */
    case -ENFILE:
    case -ENOBUFS:
    case -ENOMEM:
        return 2;
    default:
        return 1;
    }
}

static void note_error(struct ring__connect *c, int error)
{
    if (weight(error) > weight(c->error))
        c->error = error;
}

/* The outcome, told once. */
static int conclude(struct ring__connect *c)
{
    ring_addresses_destroy(c->list);
    return c->fd >= 0 ? c->fd : c->reason != 0 ? c->reason : c->error;
}

/* ---- attempts ---- */

static void attempt_done(struct ring_op *op, int res, unsigned flags);

static struct ring__racer *free_attempt(struct ring__connect *c)
{
    for (int i = 0; i < RING__RACERS; i++)
        if (c->racers[i].fd < 0)
            return &c->racers[i];
    return NULL;
}

/* Tries the next address. True if that is under way; else the error is noted. */
static bool begin_attempt(struct ring__connect *c)
{
    struct ring__racer *a = free_attempt(c);
    const struct addrinfo *info = take_next(c);
    int fd = ring__stream_socket(info->ai_family), rc;

    if (fd < 0) {
        note_error(c, fd);
        return false;
    }
    a->op.done = attempt_done;
    rc = ring__prepare_connect(&a->op, fd, info->ai_addr, info->ai_addrlen);
    if (rc == 0)
        rc = ring__submit(c->rt, &a->op);
    if (rc < 0) { /* the engine takes nothing: so it is with every address */
        ring__close(c->rt, fd);
        c->reason = rc;
        return false;
    }
    a->fd = fd;
    a->number = c->started++;
    a->is_given_up = false;
    c->active++;
    if (c->deadline <= WEFT_NOWAIT) /* in one batch: what can be done at once is done */
        ring__cancel(c->rt, &a->op);
    return true;
}

static void end_attempts(struct ring__connect *c)
{
    for (int i = 0; i < RING__RACERS; i++)
        if (c->racers[i].fd >= 0)
            ring__cancel(c->rt, &c->racers[i].op);
}

/* Makes room: the end of the oldest attempt starts another one. */
static void give_up_oldest(struct ring__connect *c)
{
    struct ring__racer *oldest = &c->racers[0];

    for (int i = 1; i < RING__RACERS; i++)
        if (c->racers[i].number < oldest->number)
            oldest = &c->racers[i];
    oldest->is_given_up = true;
    ring__cancel(c->rt, &oldest->op);
}

/* ---- events ---- */

/* Until the deadline, or `also`. */
static void start_timer(struct ring__connect *c, weft_time also)
{
    weft_time at = also < c->deadline ? also : c->deadline;

    if (at > WEFT_NOWAIT && at != WEFT_FOREVER)
        weft__timer_start(c->rt, &c->timer, at);
}

/* What follows from what has happened; begin: another attempt is due. True: it is over. */
static bool go_on(struct ring__connect *c, bool begin)
{
    weft__timer_stop(c->rt, &c->timer);
    while (begin && is_open(c) && has_more(c))
        begin = !begin_attempt(c);
    if (!is_open(c))
        end_attempts(c);
    else if (c->active > 0)
        start_timer(c, has_more(c) ? weft_after(ring__connect_delay) : WEFT_FOREVER);
    return c->active == 0;
}

static void proceed(struct ring__connect *c, bool begin)
{
    if (go_on(c, begin))
        c->done(c, conclude(c));
}

static void note_failure(struct ring__connect *c, const struct ring__racer *a, int res)
{
    if (res != -ECANCELED && res != -EINTR)
        note_error(c, res);
    else if (a->is_given_up)
        note_error(c, -ETIMEDOUT);
    else /* it could not be done at once; or the runtime ends */
        c->reason = c->deadline <= WEFT_NOWAIT ? -ETIMEDOUT : -ECANCELED;
}

static void attempt_done(struct ring_op *op, int res, unsigned flags)
{
    struct ring__racer *a = weft__container(op, struct ring__racer, op);
    struct ring__connect *c = a->connect;
    struct weft_runtime *rt = c->rt;
    bool wins = res == 0 && c->fd < 0;
    int fd = a->fd;

    (void)flags;
    a->fd = -1;
    c->active--;
    if (wins) {
        c->fd = fd;
    } else {
        ring__close(c->rt, fd);
        if (is_open(c))
            note_failure(c, a, res);
    }
    proceed(c, true);
    if (!wins)
        ring__closed(rt, fd);
}

static void timer_fired(struct weft_timer *timer)
{
    struct ring__connect *c = weft__container(timer, struct ring__connect, timer);

    if (timer->at >= c->deadline) {
        ring__connect_end(c, -ETIMEDOUT);
    } else if (free_attempt(c) != NULL) {
        proceed(c, true);
    } else {
        give_up_oldest(c);
        start_timer(c, WEFT_FOREVER);
    }
}

void ring__connect_end(struct ring__connect *c, int reason)
{
    if (c->reason == 0)
        c->reason = reason;
    ring_resolve_cancel(&c->resolve);
    proceed(c, false);
}

/* ---- the beginning ---- */

static void found(struct ring_resolve *resolve, int result)
{
    struct ring__connect *c = weft__container(resolve, struct ring__connect, resolve);

    if (result < 0) {
        c->reason = result;
    } else {
        c->list = resolve->list;
        set_addresses(c, ring_addresses_first(c->list));
    }
    proceed(c, true);
}

static void init(struct weft_runtime *rt, struct ring__connect *c, weft_time deadline)
{
    c->rt = rt;
    c->resolve.done = found;
    c->resolve.pending = NULL;
    c->list = NULL;
    c->next[0] = c->next[1] = NULL;
    weft_timer_init(&c->timer, timer_fired);
    c->deadline = deadline;
    c->turn = c->started = c->active = 0;
    c->fd = -1;
    c->reason = c->error = 0;
    for (int i = 0; i < RING__RACERS; i++) {
        c->racers[i].connect = c;
        c->racers[i].fd = -1;
    }
}

static int begin(struct ring__connect *c, const struct addrinfo *first)
{
    set_addresses(c, first);
    return go_on(c, true) ? conclude(c) : -EINPROGRESS;
}

int ring__connect_host(struct weft_runtime *rt, struct ring__connect *c, const char *host,
                       const char *service, weft_time deadline)
{
    int rc = service == NULL ? -EINVAL : ring__resolve_numeric(host, service, 0, &c->local);

    if (rc < 0)
        return rc;
    init(rt, c, deadline);
    if (rc == 0)
        return begin(c, &c->local.info);
    if (deadline <= WEFT_NOWAIT)
        return -ETIMEDOUT;
    rc = ring__look_up(rt, &c->resolve, host, service, 0);
    if (rc == -EINPROGRESS)
        start_timer(c, WEFT_FOREVER);
    return rc;
}

int ring__connect_any(struct weft_runtime *rt, struct ring__connect *c, struct ring_addresses *list,
                      weft_time deadline)
{
    if (list == NULL || ring_addresses_first(list)->ai_socktype == SOCK_DGRAM)
        return -EINVAL;
    init(rt, c, deadline);
    c->list = ring__addresses_ref(list);
    return begin(c, ring_addresses_first(list));
}

int ring__connect_local(struct weft_runtime *rt, struct ring__connect *c, const char *path,
                        weft_time deadline)
{
    socklen_t len;
    int rc = ring__local_address(path, &c->local.address, &len);

    if (rc < 0)
        return rc;
    init(rt, c, deadline);
    memset(&c->local.info, 0, sizeof c->local.info);
    c->local.info.ai_family = AF_UNIX;
    c->local.info.ai_addr = &c->local.address.any;
    c->local.info.ai_addrlen = len;
    return begin(c, &c->local.info);
}
