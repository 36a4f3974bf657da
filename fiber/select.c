/* select.c: waiting for one of several: the selection, and its cases that need nothing but the core.
 *
 * The evenness: each call begins to look at another place. The places follow a Weyl sequence, which
 * visits each of n cases about equally often, and takes a multiplication and no state but a counter.
 */
#include "select.h"
#include "sync_core.h"

#include <limits.h>

_Static_assert(sizeof(struct fiber_case) == 152, "part of the ABI");

#define UNDECIDED INT_MAX
#define WEYL_STEP 0x9e3779b9u /* 2^32 divided by the golden ratio */

/* ---- deciding ---- */

/* Detaches all that are attached but `except`. */
static void detach_all(struct fiber_selection *s, const struct fiber_case *except)
{
    for (size_t i = 0; i < s->count; i++) {
        struct fiber_case *c = &s->cases[i];

        if (c != except && !c->kind->detach(c))
            s->detaching++;
    }
    s->count = 0;
}

static void decide(struct fiber_selection *s, int outcome, const struct fiber_case *winner)
{
    if (s->outcome != UNDECIDED)
        return;
    s->outcome = outcome;
    s->park.cancel = NULL;
    if (s->timer.prev != NULL) /* running */
        weft__timer_stop(s->rt, &s->timer);
    detach_all(s, winner);
    if (s->detaching == 0)
        fiber__wake(s->rt, s->fiber);
}

void fiber__case_happened(struct fiber_case *c)
{
    struct fiber_selection *s = c->selection;

    decide(s, (int)(c - s->cases), c);
}

void fiber__case_detached(struct fiber_case *c)
{
    struct fiber_selection *s = c->selection;

    if (--s->detaching == 0)
        fiber__wake(s->rt, s->fiber);
}

static void expired(struct weft_timer *timer)
{
    decide(weft__container(timer, struct fiber_selection, timer), -ETIMEDOUT, NULL);
}

static void cancelled(struct fiber_wait *park)
{
    decide(weft__container(park, struct fiber_selection, park), -ECANCELED, NULL);
}

/* ---- nothing: a case of NULL, or of zeroes, can't be waited for ---- */

static bool invalid_ready(struct fiber_case *c)
{
    (void)c;
    return true;
}

static void invalid_happen(struct fiber_case *c)
{
    c->result = -EINVAL;
}

static const struct fiber_case_kind invalid = {.ready = invalid_ready, .happen = invalid_happen};

/* ---- selecting ---- */

static inline struct fiber_case *at(struct fiber_case *cases, size_t count, size_t first, size_t i)
{
    i += first;
    return &cases[i < count ? i : i - count];
}

static struct fiber_case *first_costly(struct fiber_case *cases, size_t count, size_t first,
                                       size_t end)
{
    for (size_t i = 0; i < end; i++) {
        struct fiber_case *c = at(cases, count, first, i);

        if (c->kind->costly && c->kind->ready(c))
            return c;
    }
    return NULL;
}

/* The first case, from `first` on, that can happen now; NULL: there is none. */
static struct fiber_case *find(struct fiber_case *cases, size_t count, size_t first, bool all)
{
    struct fiber_case *c, *before;
    bool costly = false;
    size_t i;

    for (i = 0; i < count; i++) {
        c = at(cases, count, first, i);
        if (weft__unlikely(c->kind == NULL))
            c->kind = &invalid;
        if (c->kind->costly)
            costly = true;
        else if (c->kind->ready(c))
            break;
    }
    if (weft__likely(!costly))
        return i < count ? c : NULL;
    if (i == count && !all) /* they will be attached, which is cheaper than asking */
        return NULL;
    before = first_costly(cases, count, first, i);
    return before != NULL ? before : i < count ? c : NULL;
}

static int park(struct fiber_selection *s, weft_time deadline)
{
    s->park = (struct fiber_wait){.cancel = cancelled, .what = "one of several", .detail = -1};
    weft_timer_init(&s->timer, expired);
    if (s->outcome == UNDECIDED) {
        if (deadline != WEFT_FOREVER)
            weft__timer_start(s->rt, &s->timer, deadline);
    } else { /* what is attached must be detached first */
        s->park.cancel = NULL;
        detach_all(s, NULL);
        if (s->detaching == 0)
            return s->outcome;
    }
    fiber__park(s->rt, s->fiber, &s->park);
    return s->outcome;
}

static int wait_for_one(struct weft_runtime *rt, struct fiber *self, struct fiber_case *cases,
                        size_t count, weft_time deadline)
{
    struct fiber_selection s;

    s.rt = rt;
    s.fiber = self;
    s.cases = cases;
    s.detaching = 0;
    s.outcome = UNDECIDED;
    for (s.count = 0; s.count < count; s.count++) {
        struct fiber_case *c = &cases[s.count];
        int rc;

        c->selection = &s;
        rc = c->kind->attach(c);
        if (rc < 0) {
            c->result = rc;
            s.outcome = (int)s.count;
            break;
        }
    }
    return park(&s, deadline);
}

static inline __attribute__((always_inline)) int select_from(struct fiber_case *cases, size_t count,
                                                             bool in_order, weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    struct fiber *self = fiber__self(rt);
    struct fiber_case *c;
    size_t first = 0;

    if (self == NULL)
        return fiber__cannot_wait(rt);
    if ((cases == NULL && count > 0) || count > INT_MAX - 1)
        return -EINVAL;
    if (self->cancelled)
        return self->cancelled;
    if (!in_order) {
        rt->select_turn += WEYL_STEP;
        first = (size_t)(((uint64_t)rt->select_turn * count) >> 32);
    }
    c = find(cases, count, first, deadline <= WEFT_NOWAIT);
    if (c == NULL)
        return deadline <= WEFT_NOWAIT ? -ETIMEDOUT
                                       : wait_for_one(rt, self, cases, count, deadline);
    c->kind->happen(c);
    weft__after_wakes(rt);
    return (int)(c - cases);
}

int fiber_select(struct fiber_case *cases, size_t count, weft_time deadline)
{
    return select_from(cases, count, false, deadline);
}

int fiber_select_in_order(struct fiber_case *cases, size_t count, weft_time deadline)
{
    return select_from(cases, count, true, deadline);
}

/* ---- channels and events ---- */

static void happened(struct weft_waiter *waiter)
{
    struct weft__wait *wait = weft__container(waiter, struct weft__wait, waiter);
    struct fiber_case *c = fiber__case_of(wait);

    c->result = wait->status;
    fiber__case_happened(c);
}

static void received(struct weft_waiter *waiter)
{
    struct weft__wait *wait = weft__container(waiter, struct weft__wait, waiter);

    if (wait->status == 0)
        fiber__case_of(wait)->value = wait->value;
    happened(waiter);
}

static inline struct weft__wait *wait_of(struct fiber_case *c)
{
    return FIBER__CASE_ROOM(c, struct weft__wait);
}

static bool send_ready(struct fiber_case *c)
{
    return weft__channel_can_send(c->object);
}

static void send_happen(struct fiber_case *c)
{
    c->result = weft__channel_send(c->object, c->value);
}

static int send_attach(struct fiber_case *c)
{
    wait_of(c)->waiter.wake = happened;
    weft__channel_enter_send(c->object, wait_of(c), c->value);
    return 0;
}

static bool send_detach(struct fiber_case *c)
{
    return weft__channel_leave_send(wait_of(c), 0);
}

static bool recv_ready(struct fiber_case *c)
{
    return weft__channel_can_recv(c->object);
}

static void recv_happen(struct fiber_case *c)
{
    c->result = weft__channel_recv(c->object, &c->value);
}

static int recv_attach(struct fiber_case *c)
{
    wait_of(c)->waiter.wake = received;
    weft__channel_enter_recv(c->object, wait_of(c));
    return 0;
}

static bool recv_detach(struct fiber_case *c)
{
    return weft__channel_leave_recv(wait_of(c), 0);
}

static bool event_ready(struct fiber_case *c)
{
    return ((struct weft_event *)c->object)->set;
}

static void event_happen(struct fiber_case *c)
{
    c->result = 0;
}

static int event_attach(struct fiber_case *c)
{
    wait_of(c)->waiter.wake = happened;
    weft__event_enter(c->object, wait_of(c));
    return 0;
}

static bool event_detach(struct fiber_case *c)
{
    return weft__event_leave(wait_of(c), 0);
}

/* ---- times ---- */

struct alarm {
    struct weft_timer timer;
    weft_time at;
};

static bool time_ready(struct fiber_case *c)
{
    weft_time at = FIBER__CASE_ROOM(c, struct alarm)->at;

    return at <= WEFT_NOWAIT || (at != WEFT_FOREVER && weft_now() >= at);
}

static void time_happen(struct fiber_case *c)
{
    c->result = 0;
}

static void time_fire(struct weft_timer *timer)
{
    fiber__case_happened(fiber__case_of(weft__container(timer, struct alarm, timer)));
}

static int time_attach(struct fiber_case *c)
{
    struct alarm *alarm = FIBER__CASE_ROOM(c, struct alarm);

    weft_timer_init(&alarm->timer, time_fire);
    if (alarm->at != WEFT_FOREVER)
        weft__timer_start(c->selection->rt, &alarm->timer, alarm->at);
    return 0;
}

static bool time_detach(struct fiber_case *c)
{
    weft__timer_stop(c->selection->rt, &FIBER__CASE_ROOM(c, struct alarm)->timer);
    return true;
}

/* ---- setting up ---- */

static bool set(struct fiber_case *c, const struct fiber_case_kind *kind, void *object)
{
    return fiber__case_set(c, weft__likely(object != NULL) ? kind : &invalid, object);
}

void fiber_case_send(struct fiber_case *c, struct weft_channel *channel, union weft_value value)
{
    static const struct fiber_case_kind kind = {
        .ready = send_ready,
        .happen = send_happen,
        .attach = send_attach,
        .detach = send_detach,
    };

    if (set(c, &kind, channel))
        c->value = value;
}

void fiber_case_recv(struct fiber_case *c, struct weft_channel *channel)
{
    static const struct fiber_case_kind kind = {
        .ready = recv_ready,
        .happen = recv_happen,
        .attach = recv_attach,
        .detach = recv_detach,
    };

    (void)set(c, &kind, channel);
}

void fiber_case_event(struct fiber_case *c, struct weft_event *event)
{
    static const struct fiber_case_kind kind = {
        .ready = event_ready,
        .happen = event_happen,
        .attach = event_attach,
        .detach = event_detach,
    };

    (void)set(c, &kind, event);
}

void fiber_case_time(struct fiber_case *c, weft_time at)
{
    static const struct fiber_case_kind kind = {
        .ready = time_ready,
        .happen = time_happen,
        .attach = time_attach,
        .detach = time_detach,
        .costly = true,
    };

    if (fiber__case_set(c, &kind, NULL))
        FIBER__CASE_ROOM(c, struct alarm)->at = at;
}
