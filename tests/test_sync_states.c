/* needs: fibers */
/* Every course of events of a certain length at one channel, compared with a simple model.
 *
 * Three actors, which are fibers that send, receive or select between both, or promises that do. A
 * course is a list of steps: an idle actor begins something; one that waits is cancelled; somebody tries
 * to send or to receive; the channel is closed; all run that can. Only beginning runs the others at
 * once, so that a hand-over is met by a cancellation, or by closing, before its receiver runs. All
 * courses are enumerated, by what the model says can be done next, and each is run from the start.
 *
 * WEFT_STATES_DEPTH sets the length. */
#include "test_sync.h"

#include <stdlib.h>

enum { ACTORS = 3, MAX_DEPTH = 12 };

enum kind { SEND, RECV, SELECT, PROMISE_SEND, PROMISE_RECV, KINDS };

static bool sends(enum kind kind)
{
    return kind == SEND || kind == SELECT || kind == PROMISE_SEND;
}

static bool receives(enum kind kind)
{
    return kind == RECV || kind == SELECT || kind == PROMISE_RECV;
}

/* ---- the model: lists, and loops over them ---- */

#define NOTHING INT64_C(-1000) /* an outcome that isn't there yet */

struct model {
    int capacity, count;
    bool closed;
    int64_t buffer[2];
    int waiting; /* actors that wait, in their order */
    int queue[ACTORS];
    bool busy[ACTORS]; /* between beginning and being looked at */
    enum kind kind[ACTORS];
    int64_t item[ACTORS];
    int64_t outcome[ACTORS]; /* an item received, 0 sent, a negative errno */
    int64_t next_item, tried;
};

static void model_leave(struct model *m, int place)
{
    for (m->waiting--; place < m->waiting; place++)
        m->queue[place] = m->queue[place + 1];
}

/* The first who waits and would send (or receive): it does, and is gone. -1: nobody. */
static int model_first(struct model *m, bool (*does)(enum kind), int64_t value)
{
    for (int i = 0; i < m->waiting; i++) {
        int actor = m->queue[i];

        if (does(m->kind[actor])) {
            model_leave(m, i);
            m->outcome[actor] = value;
            return actor;
        }
    }
    return -1;
}

static int64_t model_send(struct model *m, int64_t item)
{
    if (m->closed)
        return -EPIPE;
    if (model_first(m, receives, item) >= 0)
        return 0;
    if (m->count == m->capacity)
        return NOTHING;
    m->buffer[m->count++] = item;
    return 0;
}

static int64_t model_recv(struct model *m)
{
    int64_t item = m->buffer[0];
    int sender;

    if (m->count == 0) {
        sender = m->closed ? -1 : model_first(m, sends, 0);
        return sender >= 0 ? m->item[sender] : m->closed ? -ENODATA : NOTHING;
    }
    m->buffer[0] = m->buffer[1];
    m->count--;
    sender = model_first(m, sends, 0);
    if (sender >= 0)
        m->buffer[m->count++] = m->item[sender];
    return item;
}

static void model_begin(struct model *m, int actor, enum kind kind)
{
    int64_t outcome = NOTHING;

    m->busy[actor] = true;
    m->kind[actor] = kind;
    m->item[actor] = m->next_item++;
    if (sends(kind))
        outcome = model_send(m, m->item[actor]);
    if (outcome == NOTHING && receives(kind))
        outcome = model_recv(m);
    m->outcome[actor] = outcome;
    if (outcome == NOTHING)
        m->queue[m->waiting++] = actor;
}

static void model_cancel(struct model *m, int actor)
{
    for (int i = 0; i < m->waiting; i++)
        if (m->queue[i] == actor) {
            model_leave(m, i);
            m->outcome[actor] = -ECANCELED;
            return;
        }
}

static void model_close(struct model *m)
{
    m->closed = true;
    while (model_first(m, sends, -EPIPE) >= 0)
        ;
    while (model_first(m, receives, -ENODATA) >= 0)
        ;
}

/* ---- the real thing ---- */

static struct weft_channel channel;
static union weft_value room[2];

static struct actor {
    struct weft_event go;
    struct fiber_scope scope;
    enum kind kind;
    int64_t item, outcome;
    struct promise *promise;
    bool ends;
} actors[ACTORS];

static int64_t act(struct actor *a)
{
    union weft_value value = weft_num(0);
    struct fiber_case cases[2];
    int rc;

    switch (a->kind) {
    case SEND:
        return fiber_channel_send(&channel, weft_num(a->item), WEFT_FOREVER);
    case RECV:
        rc = fiber_channel_recv(&channel, &value, WEFT_FOREVER);
        return rc < 0 ? rc : value.num;
    default:
        fiber_case_send(&cases[0], &channel, weft_num(a->item));
        fiber_case_recv(&cases[1], &channel);
        rc = fiber_select_in_order(cases, 2, WEFT_FOREVER);
        if (rc < 0)
            return rc;
        return rc == 0 || cases[1].result < 0 ? cases[rc].result : cases[1].value.num;
    }
}

static int64_t play(void *arg)
{
    struct actor *a = arg;

    for (;;) {
        cr_assert_eq(fiber_event_wait(&a->go, WEFT_FOREVER), 0);
        weft_event_reset(&a->go);
        if (a->ends)
            return 0;
        cr_assert_eq(fiber_scope_open(&a->scope, WEFT_FOREVER), 0);
        a->outcome = act(a);
        (void)fiber_scope_close(&a->scope, 0);
    }
}

static void real_begin(struct actor *a, enum kind kind, int64_t item)
{
    a->kind = kind;
    a->item = item;
    a->outcome = NOTHING;
    a->promise = NULL;
    if (kind == PROMISE_SEND)
        a->promise = promise_channel_send(&channel, weft_num(item));
    else if (kind == PROMISE_RECV)
        a->promise = promise_channel_recv(&channel);
    else
        weft_event_set(&a->go);
    fiber_yield();
    fiber_yield();
}

static void real_cancel(struct actor *a)
{
    if (a->promise != NULL)
        promise_cancel(a->promise);
    else
        fiber_scope_cancel(&a->scope);
}

static int64_t real_outcome(const struct actor *a)
{
    union weft_value value;
    int err;

    if (a->promise == NULL)
        return a->outcome;
    switch (promise_poll(a->promise, &value, &err)) {
    case PROMISE_FULFILLED:
        return value.num;
    case PROMISE_REJECTED:
        return err;
    default:
        return NOTHING;
    }
}

/* ---- courses ---- */

enum { BEGIN, CANCEL, TRY_SEND, TRY_RECV, CLOSE, RUN };

struct step {
    int what, actor;
    enum kind kind;
};

static struct step course[MAX_DEPTH];
static int depth;
static uint64_t courses;

static const char *course_text(void)
{
    static const char *const kinds[] = {"send", "recv", "select", "promise send", "promise recv"};
    static const char *const steps[] = {"", "cancel", "try send", "try recv", "close", "run"};
    static char text[512];
    size_t used = 0;

    for (int i = 0; i < depth; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %d; ",
                                 course[i].what == BEGIN ? kinds[course[i].kind] : "",
                                 steps[course[i].what], course[i].actor);
    return text;
}

/* After all have run. */
static void compare(struct model *m)
{
    fiber_yield();
    fiber_yield();
    fiber_yield();
    cr_assert_eq((int)weft_channel_count(&channel), m->count, "%s: %d items are in it, not %d",
                 course_text(), (int)weft_channel_count(&channel), m->count);
    cr_assert_eq(weft_channel_is_closed(&channel), m->closed);
    for (int i = 0; i < ACTORS; i++) {
        int64_t outcome;

        if (!m->busy[i])
            continue;
        outcome = real_outcome(&actors[i]);
        cr_assert_eq(outcome, m->outcome[i], "capacity %d: %s: actor %d has %lld, should have %lld",
                     m->capacity, course_text(), i, (long long)outcome, (long long)m->outcome[i]);
        if (outcome == NOTHING)
            continue;
        m->busy[i] = false;
        promise_unref(actors[i].promise);
        actors[i].promise = NULL;
    }
}

static void real_step(struct model *m, const struct step *step)
{
    union weft_value value = weft_num(0);
    int64_t rc = 0;

    switch (step->what) {
    case BEGIN:
        real_begin(&actors[step->actor], step->kind, m->item[step->actor]);
        break;
    case CANCEL:
        real_cancel(&actors[step->actor]);
        break;
    case TRY_SEND:
        rc = weft_channel_try_send(&channel, weft_num(m->next_item - 1));
        break;
    case TRY_RECV:
        rc = weft_channel_try_recv(&channel, &value);
        rc = rc < 0 ? rc : value.num;
        break;
    case CLOSE:
        weft_channel_close(&channel);
        break;
    default:
        compare(m);
    }
    if (step->what == TRY_SEND || step->what == TRY_RECV)
        cr_assert_eq(rc, m->tried == NOTHING ? -EAGAIN : m->tried, "%s: gave %lld", course_text(),
                     (long long)rc);
}

static void model_step(struct model *m, const struct step *step)
{
    switch (step->what) {
    case BEGIN:
        model_begin(m, step->actor, step->kind);
        break;
    case CANCEL:
        model_cancel(m, step->actor);
        break;
    case TRY_SEND:
        m->tried = model_send(m, m->next_item++);
        break;
    case TRY_RECV:
        m->tried = model_recv(m);
        break;
    case CLOSE:
        model_close(m);
        break;
    default: /* whoever is through can begin again */
        break;
    }
}

/* In the model alone: an actor that is through is idle once all have run. */
static void model_look(struct model *m)
{
    for (int i = 0; i < ACTORS; i++)
        if (m->busy[i] && m->outcome[i] != NOTHING)
            m->busy[i] = false;
}

static struct model fresh_model(int capacity)
{
    return (struct model){.capacity = capacity, .next_item = 1};
}

static void run_course(int capacity)
{
    struct model m = fresh_model(capacity);

    courses++;
    weft_channel_init(&channel, room, (size_t)capacity, NULL);
    for (int i = 0; i < depth; i++) {
        model_step(&m, &course[i]);
        real_step(&m, &course[i]);
    }
    compare(&m);
    for (int i = 0; i < ACTORS; i++)
        if (m.busy[i]) {
            model_cancel(&m, i);
            real_cancel(&actors[i]);
        }
    compare(&m);
    cr_assert(channel.senders == NULL && channel.receivers == NULL, "%s: somebody is left",
              course_text());
}

static void explore(struct model *m, int at);

static void explore_step(const struct model *m, int at, int what, int actor, enum kind kind)
{
    struct model next = *m;

    course[at] = (struct step){what, actor, kind};
    model_step(&next, &course[at]);
    if (what == RUN)
        model_look(&next);
    explore(&next, at + 1);
}

static void explore(struct model *m, int at)
{
    if (at == depth) {
        run_course(m->capacity);
        return;
    }
    for (int i = 0; i < ACTORS; i++)
        if (!m->busy[i]) { /* it doesn't matter which idle one */
            for (int kind = 0; kind < KINDS; kind++)
                explore_step(m, at, BEGIN, i, (enum kind)kind);
            break;
        }
    for (int i = 0; i < ACTORS; i++)
        if (m->busy[i])
            explore_step(m, at, CANCEL, i, SEND);
    explore_step(m, at, TRY_SEND, 0, SEND);
    explore_step(m, at, TRY_RECV, 0, SEND);
    if (!m->closed)
        explore_step(m, at, CLOSE, 0, SEND);
    if (at > 0 && course[at - 1].what != RUN)
        explore_step(m, at, RUN, 0, SEND);
}

static void explore_all(void)
{
    struct promise *fibers[ACTORS];

    for (int i = 0; i < ACTORS; i++) {
        actors[i].ends = false;
        weft_event_init(&actors[i].go);
        fibers[i] = fiber_spawn(play, &actors[i]);
    }
    settle();
    for (int capacity = 0; capacity <= 2; capacity++) {
        struct model m = fresh_model(capacity);

        explore(&m, 0);
    }
    for (int i = 0; i < ACTORS; i++) {
        actors[i].ends = true;
        weft_event_set(&actors[i].go);
        cr_assert_eq(outcome(fibers[i]), 0);
    }
}

Test(sync_states, each_course_goes_as_in_the_model)
{
    const char *wanted = getenv("WEFT_STATES_DEPTH");

    depth = wanted != NULL ? atoi(wanted) : slow_tools() ? 4 : 6;
    cr_assert(depth > 0 && depth <= MAX_DEPTH);
    courses = 0;
    cr_assert_eq(run_on(&setups[0], run_sync_body, (void *)(uintptr_t)(void (*)(void))explore_all),
                 0, "%s", report_text());
    cr_assert(courses > 1000);
}
