/* needs: fibers */
/* Every course of events of a certain length at one or two channels, compared with a simple model.
 *
 * Three actors, which are fibers that send, receive or select, or promises that send or receive. A course
 * is a list of steps: an idle actor begins something; one that waits is cancelled; somebody tries to
 * send or to receive; a channel is closed; a promise that some select from is settled; all run that can.
 * Only beginning runs the others at once, so that a hand-over is met by a cancellation, or by closing,
 * before its receiver runs. All courses are enumerated, by what the model says can be done next, and
 * each is run from the start.
 *
 * WEFT_STATES_DEPTH sets the length. */
#include "test_sync.h"

#include <stdlib.h>

enum { ACTORS = 3, CHANNELS = 2, CASES = 2, MAX_DEPTH = 12 };

enum what { SEND = 1, RECV, SETTLED }; /* 0: no more cases */

/* What an actor can do: one thing, or the first of two that can happen. */
struct kind {
    const char *name;
    bool by_promise;
    struct {
        enum what what;
        int channel;
    } cases[CASES];
};

static const struct kind one_channel[] = {
    {"send", false, {{SEND, 0}}},
    {"receive", false, {{RECV, 0}}},
    {"select (send, receive)", false, {{SEND, 0}, {RECV, 0}}},
    {"promise to send", true, {{SEND, 0}}},
    {"promise to receive", true, {{RECV, 0}}},
};

static const struct kind two_channels[] = {
    {"send on A", false, {{SEND, 0}}},
    {"receive from A", false, {{RECV, 0}}},
    {"promise to send on B", true, {{SEND, 1}}},
    {"promise to receive from B", true, {{RECV, 1}}},
    {"select (receive from A, receive from B)", false, {{RECV, 0}, {RECV, 1}}},
    {"select (send on A, send on B)", false, {{SEND, 0}, {SEND, 1}}},
    {"select (receive from A, send on B)", false, {{RECV, 0}, {SEND, 1}}},
    {"select (send on A, promise)", false, {{SEND, 0}, {SETTLED, 0}}},
    {"select (promise, receive from B)", false, {{SETTLED, 0}, {RECV, 1}}},
};

static const struct kind *kinds;
static int kinds_count, channels_count;

/* ---- the model: lists, and loops over them ---- */

#define NOTHING  INT64_C(-1000) /* an outcome that isn't there yet */
#define PROMISED INT64_C(1000)  /* the outcome of the promise */

struct model_channel {
    int capacity, count;
    bool closed;
    int64_t buffer[2];
};

struct model {
    struct model_channel channel[CHANNELS];
    bool settled;
    int waiting; /* actors that wait, in their order */
    int queue[ACTORS];
    bool busy[ACTORS]; /* between beginning and being looked at */
    const struct kind *kind[ACTORS];
    int64_t item[ACTORS];
    int64_t outcome[ACTORS]; /* an item received, 0 sent, PROMISED, a negative errno */
    int64_t next_item, tried;
};

static void model_leave(struct model *m, int place)
{
    for (m->waiting--; place < m->waiting; place++)
        m->queue[place] = m->queue[place + 1];
}

/* The first who waits and would do that: it does, and is gone. -1: nobody. */
static int model_first(struct model *m, enum what what, int channel, int64_t value)
{
    for (int i = 0; i < m->waiting; i++) {
        int actor = m->queue[i];

        for (int c = 0; c < CASES; c++)
            if (m->kind[actor]->cases[c].what == what &&
                m->kind[actor]->cases[c].channel == channel) {
                model_leave(m, i);
                m->outcome[actor] = value;
                return actor;
            }
    }
    return -1;
}

static int64_t model_send(struct model *m, int channel, int64_t item)
{
    struct model_channel *mc = &m->channel[channel];

    if (mc->closed)
        return -EPIPE;
    if (model_first(m, RECV, channel, item) >= 0)
        return 0;
    if (mc->count == mc->capacity)
        return NOTHING;
    mc->buffer[mc->count++] = item;
    return 0;
}

static int64_t model_recv(struct model *m, int channel)
{
    struct model_channel *mc = &m->channel[channel];
    int64_t item = mc->buffer[0];
    int sender;

    if (mc->count == 0) {
        sender = mc->closed ? -1 : model_first(m, SEND, channel, 0);
        return sender >= 0 ? m->item[sender] : mc->closed ? -ENODATA : NOTHING;
    }
    mc->buffer[0] = mc->buffer[1];
    mc->count--;
    sender = model_first(m, SEND, channel, 0);
    if (sender >= 0)
        mc->buffer[mc->count++] = m->item[sender];
    return item;
}

static int64_t model_try(struct model *m, enum what what, int channel, int64_t item)
{
    switch (what) {
    case SEND:
        return model_send(m, channel, item);
    case RECV:
        return model_recv(m, channel);
    case SETTLED:
        return m->settled ? PROMISED : NOTHING;
    default:
        return NOTHING;
    }
}

static void model_begin(struct model *m, int actor, const struct kind *kind)
{
    int64_t outcome = NOTHING;

    m->busy[actor] = true;
    m->kind[actor] = kind;
    m->item[actor] = m->next_item++;
    for (int c = 0; c < CASES && outcome == NOTHING; c++)
        outcome = model_try(m, kind->cases[c].what, kind->cases[c].channel, m->item[actor]);
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

static void model_close(struct model *m, int channel)
{
    m->channel[channel].closed = true;
    while (model_first(m, SEND, channel, -EPIPE) >= 0)
        ;
    while (model_first(m, RECV, channel, -ENODATA) >= 0)
        ;
}

static void model_settle(struct model *m)
{
    m->settled = true;
    while (model_first(m, SETTLED, 0, PROMISED) >= 0)
        ;
}

/* ---- the real thing ---- */

static struct weft_channel channels[CHANNELS];
static union weft_value room[CHANNELS][2];
static struct promise *the_promise;

static struct actor {
    struct weft_event go;
    struct fiber_scope scope;
    const struct kind *kind;
    int64_t item, outcome;
    struct promise *promise;
    bool ends;
} actors[ACTORS];

static int64_t act_alone(const struct actor *a)
{
    struct weft_channel *channel = &channels[a->kind->cases[0].channel];
    union weft_value value = weft_num(0);
    int rc = a->kind->cases[0].what == SEND
                 ? fiber_channel_send(channel, weft_num(a->item), WEFT_FOREVER)
                 : fiber_channel_recv(channel, &value, WEFT_FOREVER);

    return rc < 0 ? rc : value.num;
}

static int64_t act_select(const struct actor *a)
{
    struct fiber_case cases[CASES];
    int which;

    for (int i = 0; i < CASES; i++) {
        struct weft_channel *channel = &channels[a->kind->cases[i].channel];

        if (a->kind->cases[i].what == SEND)
            fiber_case_send(&cases[i], channel, weft_num(a->item));
        else if (a->kind->cases[i].what == RECV)
            fiber_case_recv(&cases[i], channel);
        else
            fiber_case_promise(&cases[i], the_promise);
    }
    which = fiber_select_in_order(cases, CASES, WEFT_FOREVER);
    if (which < 0)
        return which;
    return cases[which].result < 0 || a->kind->cases[which].what == SEND ? cases[which].result
                                                                         : cases[which].value.num;
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
        a->outcome = a->kind->cases[1].what != 0 ? act_select(a) : act_alone(a);
        (void)fiber_scope_close(&a->scope, 0);
    }
}

static void real_begin(struct actor *a, const struct kind *kind, int64_t item)
{
    struct weft_channel *channel = &channels[kind->cases[0].channel];

    a->kind = kind;
    a->item = item;
    a->outcome = NOTHING;
    a->promise = NULL;
    if (!kind->by_promise)
        weft_event_set(&a->go);
    else if (kind->cases[0].what == SEND)
        a->promise = promise_channel_send(channel, weft_num(item));
    else
        a->promise = promise_channel_recv(channel);
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

enum { BEGIN, CANCEL, TRY_SEND, TRY_RECV, CLOSE, SETTLE, RUN };

struct step {
    int what, which; /* which actor, or which channel */
    const struct kind *kind;
};

static struct step course[MAX_DEPTH];
static int depth;
static uint64_t courses;

static const char *course_text(void)
{
    static const char *const steps[] = {"",      "cancel", "try to send", "try to receive",
                                        "close", "settle", "run"};
    static char text[1024];
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < depth && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %d; ",
                                 course[i].what == BEGIN ? course[i].kind->name : "",
                                 steps[course[i].what], course[i].which);
    return text;
}

/* After all have run. */
static void compare(struct model *m)
{
    fiber_yield();
    fiber_yield();
    fiber_yield();
    for (int i = 0; i < channels_count; i++) {
        cr_assert_eq((int)weft_channel_count(&channels[i]), m->channel[i].count,
                     "%s: %d items are in channel %d, not %d", course_text(),
                     (int)weft_channel_count(&channels[i]), i, m->channel[i].count);
        cr_assert_eq(weft_channel_is_closed(&channels[i]), m->channel[i].closed);
    }
    for (int i = 0; i < ACTORS; i++) {
        int64_t outcome;

        if (!m->busy[i])
            continue;
        outcome = real_outcome(&actors[i]);
        cr_assert_eq(outcome, m->outcome[i],
                     "capacities %d, %d: %s: actor %d has %lld, should have %lld",
                     m->channel[0].capacity, m->channel[1].capacity, course_text(), i,
                     (long long)outcome, (long long)m->outcome[i]);
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
        real_begin(&actors[step->which], step->kind, m->item[step->which]);
        break;
    case CANCEL:
        real_cancel(&actors[step->which]);
        break;
    case TRY_SEND:
        rc = weft_channel_try_send(&channels[step->which], weft_num(m->next_item - 1));
        break;
    case TRY_RECV:
        rc = weft_channel_try_recv(&channels[step->which], &value);
        rc = rc < 0 ? rc : value.num;
        break;
    case CLOSE:
        weft_channel_close(&channels[step->which]);
        break;
    case SETTLE:
        promise_resolve(the_promise, weft_num(PROMISED));
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
        model_begin(m, step->which, step->kind);
        break;
    case CANCEL:
        model_cancel(m, step->which);
        break;
    case TRY_SEND:
        m->tried = model_send(m, step->which, m->next_item++);
        break;
    case TRY_RECV:
        m->tried = model_recv(m, step->which);
        break;
    case CLOSE:
        model_close(m, step->which);
        break;
    case SETTLE:
        model_settle(m);
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

static void run_course(const struct model *fresh)
{
    struct model m = *fresh;

    courses++;
    for (int i = 0; i < channels_count; i++)
        weft_channel_init(&channels[i], room[i], (size_t)m.channel[i].capacity, NULL);
    the_promise = promise_create();
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
    for (int i = 0; i < channels_count; i++)
        cr_assert(channels[i].senders == NULL && channels[i].receivers == NULL,
                  "%s: somebody is left", course_text());
    promise_unref(the_promise);
}

static void explore(const struct model *fresh, const struct model *m, int at);

static void explore_step(const struct model *fresh, const struct model *m, int at, struct step step)
{
    struct model next = *m;

    course[at] = step;
    model_step(&next, &step);
    if (step.what == RUN)
        model_look(&next);
    explore(fresh, &next, at + 1);
}

static void explore(const struct model *fresh, const struct model *m, int at)
{
    if (at == depth) {
        run_course(fresh);
        return;
    }
    for (int i = 0; i < ACTORS; i++)
        if (!m->busy[i]) { /* it doesn't matter which idle one */
            for (int kind = 0; kind < kinds_count; kind++)
                explore_step(fresh, m, at, (struct step){BEGIN, i, &kinds[kind]});
            break;
        }
    for (int i = 0; i < ACTORS; i++)
        if (m->busy[i])
            explore_step(fresh, m, at, (struct step){CANCEL, i, NULL});
    for (int i = 0; i < channels_count; i++) {
        explore_step(fresh, m, at, (struct step){TRY_SEND, i, NULL});
        explore_step(fresh, m, at, (struct step){TRY_RECV, i, NULL});
        if (!m->channel[i].closed)
            explore_step(fresh, m, at, (struct step){CLOSE, i, NULL});
    }
    if (channels_count > 1 && !m->settled)
        explore_step(fresh, m, at, (struct step){SETTLE, 0, NULL});
    if (at > 0 && course[at - 1].what != RUN)
        explore_step(fresh, m, at, (struct step){RUN, 0, NULL});
}

static void explore_capacities(int a, int b)
{
    struct model fresh = {.channel = {{.capacity = a}, {.capacity = b}}, .next_item = 1};

    explore(&fresh, &fresh, 0);
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
    for (int a = 0; a <= 2; a++) {
        if (channels_count == 1)
            explore_capacities(a, 0);
        else if (a < 2)
            for (int b = 0; b < 2; b++)
                explore_capacities(a, b);
    }
    for (int i = 0; i < ACTORS; i++) {
        actors[i].ends = true;
        weft_event_set(&actors[i].go);
        cr_assert_eq(outcome(fibers[i]), 0);
    }
}

static void explore_with(int usual_depth)
{
    const char *wanted = getenv("WEFT_STATES_DEPTH");

    depth = wanted != NULL ? atoi(wanted) : usual_depth;
    cr_assert(depth > 0 && depth <= MAX_DEPTH);
    courses = 0;
    cr_assert_eq(run_on(&setups[0], run_sync_body, (void *)(uintptr_t)(void (*)(void))explore_all),
                 0, "%s", report_text());
    if (wanted != NULL)
        fprintf(stderr, "%llu courses of %d steps\n", (unsigned long long)courses, depth);
    cr_assert(courses > 1000);
}

Test(sync_states, each_course_at_a_channel_goes_as_in_the_model)
{
    kinds = one_channel;
    kinds_count = sizeof one_channel / sizeof one_channel[0];
    channels_count = 1;
    explore_with(slow_tools() ? 4 : 6);
}

Test(sync_states, each_course_at_two_channels_and_a_promise_goes_as_in_the_model)
{
    kinds = two_channels;
    kinds_count = sizeof two_channels / sizeof two_channels[0];
    channels_count = 2;
    explore_with(slow_tools() ? 3 : 5);
}
