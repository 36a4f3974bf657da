/* Lwt's core suite, the groups about several promises: every combination of up to three operands,
 * settled at the call or in every order later, against what the rules say. */
#include "test_promise.h"

#include <errno.h>
#include <stdlib.h>

/* What an operand is at the call, and becomes. */
enum { NOW_OK, NOW_BAD, THEN_OK, THEN_BAD, NEVER, KINDS };

static const char *const kind_names[] = {"F", "R", "P->F", "P->R", "P"};

enum { JOIN, ALL, BOTH, CHOOSE, PICK, NCHOOSE, NPICK, SPLIT, OPS };

static const char *const op_names[] = {"join", "all",     "both",  "choose",
                                       "pick", "nchoose", "npick", "nchoose_split"};

#define MOST 3

struct scene {
    int op, count;
    int kind[MOST], order[MOST]; /* order: which operand settles first, second, third */
    bool twice;                  /* the last operand is the first one */
    struct promise *p[MOST], *q;
    int error[MOST]; /* each operand's own */
    const char *name;
};

static char scene_name[128];

static const char *name_scene(const struct scene *s)
{
    int used = snprintf(scene_name, sizeof scene_name, "%s%s of", op_names[s->op],
                        s->twice ? " (the first one again)" : "");

    for (int i = 0; i < s->count; i++)
        used += snprintf(scene_name + used, sizeof scene_name - (size_t)used, " %s",
                         kind_names[s->kind[i]]);
    used += snprintf(scene_name + used, sizeof scene_name - (size_t)used, ", order");
    for (int i = 0; i < s->count; i++)
        used += snprintf(scene_name + used, sizeof scene_name - (size_t)used, " %d", s->order[i]);
    return scene_name;
}

static struct promise *combine(struct scene *s)
{
    struct promise *list[MOST + 1];
    size_t count = 0;

    for (int i = 0; i < s->count; i++)
        list[count++] = promise_ref(s->p[i]);
    if (s->twice)
        list[count++] = promise_ref(s->p[0]);
    switch (s->op) {
    case JOIN:
        return promise_join(list, count);
    case ALL:
        return promise_all(list, count);
    case BOTH:
        return promise_both(list[0], list[1]);
    case CHOOSE:
        return promise_choose(list, count);
    case PICK:
        return promise_pick(list, count);
    case NCHOOSE:
        return promise_nchoose(list, count);
    case NPICK:
        return promise_npick(list, count);
    default:
        return promise_nchoose_split(list, count);
    }
}

/* Operand i's value is 10 + i, its error -(i + 1). */
static void make_operands(struct scene *s)
{
    for (int i = 0; i < s->count; i++) {
        switch (s->kind[i]) {
        case NOW_OK:
            s->p[i] = promise_fulfilled(weft_num(10 + i));
            break;
        case NOW_BAD:
            s->p[i] = promise_rejected(-(i + 1));
            break;
        default:
            s->p[i] = promise_create_task();
        }
    }
}

static void settle(const struct scene *s, int i)
{
    if (s->kind[i] == THEN_OK)
        promise_resolve(s->p[i], weft_num(10 + i));
    else if (s->kind[i] == THEN_BAD)
        promise_reject(s->p[i], -(i + 1));
}

static bool races(const struct scene *s)
{
    return s->op >= CHOOSE;
}

#define want(condition) cr_assert((condition), "%s: %s", s->name, #condition)

/* The values in the result, in the operands' order. */
static void want_values(const struct scene *s, const struct promise_values *values,
                        const bool present[])
{
    size_t at = 0;

    for (int i = 0; i < s->count + s->twice; i++) {
        int which = i == s->count ? 0 : i;

        if (!present[which])
            continue;
        want(at < values->count);
        want(values->value[at].num == 10 + which);
        at++;
    }
    want(at == values->count);
}

/* join, all, both: `first_error` of those that have settled so far. */
static void want_gathered(const struct scene *s, int first_error, bool all_settled)
{
    static const bool everyone[MOST] = {true, true, true};

    if (!all_settled) {
        want(is_pending(s->q));
    } else if (first_error < 0) {
        want(error_of(s->q) == first_error);
    } else if (s->op == JOIN) {
        want(value_of_promise(s->q) == 0);
    } else {
        want_values(s, (const void *)(intptr_t)value_of_promise(s->q), everyone);
    }
}

static void gather(struct scene *s)
{
    int error = 0, left = 0;

    s->q = combine(s);
    for (int i = 0; i < s->count; i++) {
        if (s->kind[i] == NOW_BAD && error == 0)
            error = -(i + 1);
        left += s->kind[i] >= THEN_OK;
    }
    want_gathered(s, error, left == 0);
    for (int n = 0; n < s->count; n++) {
        int i = s->order[n];

        if (s->kind[i] != THEN_OK && s->kind[i] != THEN_BAD)
            continue;
        settle(s, i);
        left--;
        if (s->kind[i] == THEN_BAD && error == 0)
            error = -(i + 1);
        want_gathered(s, error, left == 0);
    }
}

/* What a race gives once `present` are fulfilled and `failed` rejected, `winner` having run last. */
static void want_won(const struct scene *s, const bool present[], const bool failed[], int winner)
{
    int64_t result;

    if (s->op == CHOOSE || s->op == PICK) {
        if (failed[winner])
            want(error_of(s->q) == -(winner + 1));
        else
            want(value_of_promise(s->q) == 10 + winner);
        return;
    }
    for (int i = 0; i < s->count; i++)
        if (failed[i]) { /* the first one in the list */
            want(error_of(s->q) == -(i + 1));
            return;
        }
    result = value_of_promise(s->q);
    if (s->op == SPLIT) {
        const struct promise_split *split = (const void *)(intptr_t)result;
        size_t pending = 0;

        want_values(s, &split->values, present);
        for (int i = 0; i < s->count; i++)
            pending += (!present[i]) * (i == 0 && s->twice ? 2u : 1u);
        want(split->pending_count == pending);
        for (size_t i = 0; i < pending; i++)
            want(is_pending(split->pending[i]));
    } else {
        want_values(s, (const void *)(intptr_t)result, present);
    }
}

static void race(struct scene *s)
{
    bool present[MOST] = {false}, failed[MOST] = {false}, cancels = s->op == PICK || s->op == NPICK;
    int winner = -1;

    for (int i = 0; i < s->count; i++) {
        present[i] = s->kind[i] == NOW_OK;
        failed[i] = s->kind[i] == NOW_BAD;
    }
    for (int i = s->count - 1; i >= 0; i--)
        if (present[i])
            winner = i;
    for (int i = s->count - 1; i >= 0; i--)
        if (failed[i])
            winner = i;
    if (s->op == PICK && s->twice && winner >= 0 && !failed[winner] && !present[0] &&
        s->kind[0] >= THEN_OK)
        return; /* its second mention may be found canceled: rules, r26 */
    s->q = combine(s);
    for (int n = 0; winner < 0 && n < s->count; n++) {
        int i = s->order[n];

        want(is_pending(s->q));
        settle(s, i);
        present[i] = s->kind[i] == THEN_OK;
        failed[i] = s->kind[i] == THEN_BAD;
        if (present[i] || failed[i])
            winner = i;
    }
    if (winner < 0) {
        want(is_pending(s->q));
        return;
    }
    want_won(s, present, failed, winner);
    for (int i = 0; i < s->count; i++) { /* the losers */
        if (present[i] || failed[i])
            continue;
        if (cancels) {
            want(error_of(s->p[i]) == -ECANCELED);
        } else {
            want(is_pending(s->p[i]));
            want(s->p[i]->waiters == NULL);
        }
    }
    for (int n = 0; n < s->count; n++) /* those that come later change nothing */
        if (!present[s->order[n]] && !failed[s->order[n]])
            settle(s, s->order[n]);
    if (s->op != SPLIT)
        want_won(s, present, failed, winner);
}

static size_t scenes;

static void play(struct scene *s)
{
    size_t before = promise__live();

    s->name = name_scene(s);
    make_operands(s);
    s->q = NULL;
    if (races(s))
        race(s);
    else
        gather(s);
    promise_unref(s->q);
    for (int i = 0; i < s->count; i++)
        promise_unref(s->p[i]);
    scenes++;
    promise__collect(promise__tls); /* a pick of what never settles, given up */
    want(promise__live() == before);
}

static const int orders[6][MOST] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                    {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

/* Every scene of `op` with 1 to 3 operands, with and without the first one once more. */
static void every_scene(int op)
{
    scenes = 0;
    for (int count = op == BOTH ? 2 : 1; count <= (op == BOTH ? 2 : MOST); count++)
        for (int kinds = 0; kinds < KINDS * KINDS * KINDS; kinds++)
            for (int order = 0; order < 6; order++)
                for (int twice = 0; twice <= (op != BOTH); twice++) {
                    struct scene s = {.op = op, .count = count, .twice = twice != 0};
                    int rest = kinds, used = 0;

                    for (int i = 0; i < count; i++, rest /= KINDS)
                        s.kind[i] = rest % KINDS;
                    if (rest != 0)
                        continue;
                    for (int i = 0; i < MOST; i++)
                        if (orders[order][i] < count)
                            s.order[used++] = orders[order][i];
                    play(&s);
                }
    cr_assert_geq(scenes, 150);
}

static void no_operands_is_an_error(struct promise *(*op)(struct promise *const[], size_t))
{
    struct promise *q = op(NULL, 0);

    cr_rejected(q, -EINVAL);
    promise_unref(q);
}

/* The same promise in each place: q settles with it. */
static struct promise *twice(struct promise *(*op)(struct promise *const[], size_t),
                             struct promise *p)
{
    struct promise *const list[] = {promise_ref(p), promise_ref(p)};

    return op(list, 2);
}

PROMISE_TEST(conformance, join)
{
    struct promise *q = promise_join(NULL, 0), *p = promise_create();

    cr_value(q, 0);
    promise_unref(q);
    every_scene(JOIN);
    q = twice(promise_join, p);
    promise_reject(p, -EIO);
    cr_rejected(q, -EIO);
    promise_unref(p);
    promise_unref(q);
}

PROMISE_TEST(conformance, all)
{
    const size_t counts[] = {0, 1, 2, 3, 10, 5000};

    every_scene(ALL);
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        size_t n = counts[k];
        struct promise **p = calloc(n + 1, sizeof *p), *q;
        const struct promise_values *values;

        for (size_t i = 0; i < n; i++)
            p[i] = i % 3 ? promise_create() : promise_fulfilled(weft_num((int64_t)i));
        for (size_t i = 0; i < n; i++)
            promise_ref(p[i]);
        q = promise_all(p, n);
        for (size_t i = n; i-- > 0;)
            if (i % 3)
                promise_resolve(p[i], weft_num((int64_t)i));
        values = (const void *)(intptr_t)value_of_promise(q);
        cr_assert_eq(values->count, n);
        for (size_t i = 0; i < n; i++) {
            cr_assert_eq(values->value[i].num, (int64_t)i);
            promise_unref(p[i]);
        }
        promise_unref(q);
        free(p);
    }
}

PROMISE_TEST(conformance, both)
{
    struct promise *p = promise_create(), *q;

    every_scene(BOTH);
    q = promise_both(promise_ref(p), promise_ref(p)); /* one promise twice */
    promise_reject(p, -EIO);
    cr_rejected(q, -EIO);
    promise_unref(q);
    promise_unref(p);
}

PROMISE_TEST(conformance, choose)
{
    no_operands_is_an_error(promise_choose);
    every_scene(CHOOSE);
}

PROMISE_TEST(conformance, pick)
{
    struct promise *p = promise_create_task(), *q;

    no_operands_is_an_error(promise_pick);
    every_scene(PICK);
    q = twice(promise_pick, p); /* one promise twice */
    promise_cancel(q);
    cr_rejected(p, -ECANCELED);
    cr_rejected(q, -ECANCELED);
    promise_unref(p);
    promise_unref(q);
}

PROMISE_TEST(conformance, nchoose)
{
    no_operands_is_an_error(promise_nchoose);
    every_scene(NCHOOSE);
}

PROMISE_TEST(conformance, npick)
{
    no_operands_is_an_error(promise_npick);
    every_scene(NPICK);
}

PROMISE_TEST(conformance, nchoose_split)
{
    no_operands_is_an_error(promise_nchoose_split);
    every_scene(SPLIT);
}

static int tell_whether_settled(void *ctx)
{
    say("%s ", is_pending(ctx) ? "pending" : "settled");
    return 0;
}

/* The losers' callbacks run before the result's, at the call and later, for pick and npick. */
PROMISE_TEST(conformance, losers_run_before_the_result)
{
    struct promise *(*const ops[])(struct promise *const[], size_t) = {promise_pick, promise_npick};

    for (int op = 0; op < 2; op++)
        for (int now = 0; now < 2; now++) {
            struct promise *winner = promise_create(), *loser = promise_create_task(), *q;
            struct promise *list[] = {promise_ref(loser), promise_ref(winner)};

            promise_on_termination(loser, tell_done, "loser");
            if (now)
                promise_resolve(winner, weft_num(1));
            q = ops[op](list, 2);
            promise_on_termination(q, tell_done, "result");
            if (!now) {
                promise_on_termination(loser, tell_whether_settled, q);
                promise_resolve(winner, weft_num(1));
            }
            told(now ? "loser result " : "pending loser result ");
            promise_unref(winner);
            promise_unref(loser);
            promise_unref(q);
        }
}

PROMISE_TEST(conformance, the_loser_does_not_retain_the_winner)
{
    struct promise *(*const ops[])(struct promise *const[], size_t) = {
        promise_choose, promise_nchoose, promise_nchoose_split, promise_pick, promise_npick};

    for (size_t op = 0; op < sizeof ops / sizeof *ops; op++) {
        struct promise *loser = promise_create(), *winner = promise_create();
        struct promise *list[] = {promise_ref(loser), promise_ref(winner)}, *q = ops[op](list, 2);

        promise_resolve(winner, weft_num(1));
        promise_unref(winner);
        promise_unref(q);
        cr_assert_eq(promise__live(), 1);
        cr_pending(loser);
        promise_unref(loser);
    }
}
