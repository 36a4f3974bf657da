/* The inbox in every order in which its steps can happen: threads post and give their references
 * back while the runtime goes to sleep, wakes and ends. What was accepted runs, once, in order; nobody
 * sleeps for ever; nothing is touched once it is gone.
 *
 * src/inbox.c itself is compiled in here, on operations that give way before each access. Two of its
 * loads and stores are relaxed. A relaxed load of the list gives each value that the list had since the
 * thread last looked; the relaxed store of `asleep` may come late, up to the thread's next operation
 * that isn't relaxed. */
#include "harness.h"
#include "interleavings.h"
#include "runtime_internal.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <string.h>

/* ---- the shared world ---- */

#define POSTERS  3
#define TASKS    2 /* a poster's, at most */
#define VERSIONS 24

struct note {
    struct weft_task task;
    unsigned char poster, number, runs;
    signed char rc; /* 1: not posted yet */
};

static struct world {
    _Alignas(64) unsigned char inbox[512]; /* the inbox's memory */
    bool inbox_freed;
    struct weft__engine engine;
    bool engine_gone;
    unsigned wakes;
    struct note note[POSTERS][TASKS];
    unsigned char last[POSTERS]; /* the number of the poster's last task that has run */
    unsigned ran;

    /* of the runtime, which alone uses them: values that the list has had since it last looked, the
     * newest last; asleep = false is still to come */
    struct weft_task *head[VERSIONS];
    unsigned char newest;
    bool late_store;
} world;

static struct weft_runtime runtime;
static bool exploring;

static void *world_calloc(size_t count, size_t size)
{
    cr_assert_leq(count * size, sizeof world.inbox);
    memset(world.inbox, 0, sizeof world.inbox);
    return world.inbox;
}

static void world_free(void *memory)
{
    (void)memory;
    if (world.inbox_freed)
        interleave_fail("the inbox is freed twice");
    world.inbox_freed = true;
}

static bool inbox_has_no_users(void);

/* ---- operations that give way ---- */

#define RUNTIME 0 /* the thread */

static void store_late(void);

/* Those before `kept`. */
static void forget_versions(unsigned kept)
{
    world.newest = (unsigned char)(world.newest - kept);
    memmove(world.head, world.head + kept, (world.newest + 1u) * sizeof world.head[0]);
    memset(world.head + world.newest + 1, 0, (VERSIONS - world.newest - 1u) * sizeof world.head[0]);
}

static void access_strong(void)
{
    if (!exploring)
        return;
    interleave_step();
    if (world.inbox_freed)
        interleave_fail("the inbox is used after it was freed");
    if (interleave_self() == RUNTIME) {
        forget_versions(world.newest);
        if (world.late_store)
            store_late();
    }
}

static void changed_head(struct weft_task *head)
{
    if (!exploring)
        return;
    if (world.newest + 1 == VERSIONS)
        interleave_fail("more versions than there is room for");
    world.head[++world.newest] = head;
    if (interleave_self() == RUNTIME)
        forget_versions(world.newest);
}

static struct weft_task *stale_head(void)
{
    forget_versions(interleave_choose(world.newest + 1u));
    return world.head[0];
}

static void saw(uint64_t value)
{
    if (exploring)
        interleave_saw(value);
}

#define LOAD(name, type)                                   \
    static inline type name##_load(const _Atomic(type) *p) \
    {                                                      \
        type value;                                        \
        access_strong();                                   \
        value = atomic_load(p);                            \
        saw((uint64_t)value);                              \
        return value;                                      \
    }
#define STORE(name, type)                                     \
    static inline void name##_store(_Atomic(type) *p, type v) \
    {                                                         \
        access_strong();                                      \
        atomic_store(p, v);                                   \
    }
#define EXCHANGE(name, type)                                     \
    static inline type name##_exchange(_Atomic(type) *p, type v) \
    {                                                            \
        type old;                                                \
        access_strong();                                         \
        old = atomic_exchange(p, v);                             \
        saw((uint64_t)old);                                      \
        return old;                                              \
    }

LOAD(flag, bool)
STORE(flag, bool)
EXCHANGE(flag, bool)
LOAD(number, size_t)
STORE(number, size_t)
LOAD(word, unsigned)
STORE(word, unsigned)
LOAD(list, struct weft_task *)
EXCHANGE(list, struct weft_task *)

static inline size_t number_add(_Atomic(size_t) *p, size_t by)
{
    size_t old;

    access_strong();
    old = atomic_fetch_add(p, by);
    saw(old);
    return old;
}

static inline struct weft_task *head_exchange(_Atomic(struct weft_task *) *p,
                                              struct weft_task *value)
{
    struct weft_task *old = list_exchange(p, value);

    changed_head(value);
    return old;
}

static inline bool head_compare_exchange(_Atomic(struct weft_task *) *p,
                                         struct weft_task **expected, struct weft_task *value)
{
    bool done;

    access_strong();
    done = atomic_compare_exchange_strong(p, expected, value);
    saw((uint64_t)*expected + done);
    if (done)
        changed_head(value);
    return done;
}

static inline struct weft_task *head_load_relaxed(const _Atomic(struct weft_task *) *p)
{
    struct weft_task *value;

    if (!exploring)
        return atomic_load(p);
    interleave_step();
    value = stale_head();
    interleave_saw((uint64_t)value);
    return value;
}

static inline void flag_store_relaxed(_Atomic(bool) *p, bool value)
{
    if (exploring && !value && interleave_choose(2) == 1) {
        world.late_store = true;
        return;
    }
    flag_store(p, value);
}

#undef atomic_load
#undef atomic_store
#undef atomic_exchange
#undef atomic_fetch_add
#undef atomic_fetch_sub
#undef atomic_compare_exchange_weak
#undef atomic_compare_exchange_strong
#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_init
/* clang-format off */
#define atomic_init(p, v) (*(p) = (v))
#define atomic_load(p) _Generic((p), \
    atomic_bool *: flag_load, const atomic_bool *: flag_load, \
    atomic_size_t *: number_load, const atomic_size_t *: number_load, \
    atomic_uint *: word_load, const atomic_uint *: word_load, \
    _Atomic(struct weft_task *) *: list_load)(p)
#define atomic_store(p, v) _Generic((p), atomic_bool *: flag_store)(p, v)
#define atomic_exchange(p, v) _Generic((p), \
    atomic_bool *: flag_exchange, \
    _Atomic(struct weft_task *) *: head_exchange)(p, v)
#define atomic_fetch_add(p, v) number_add(p, v)
#define atomic_fetch_sub(p, v) number_add(p, (size_t)0 - (size_t)(v))
#define atomic_compare_exchange_weak(p, e, v) head_compare_exchange(p, e, v)
#define atomic_compare_exchange_strong(p, e, v) head_compare_exchange(p, e, v)
/* also of counters, which nobody else looks at here */
#define atomic_load_explicit(p, order) _Generic((p), \
    const _Atomic(struct weft_task *) *: head_load_relaxed, \
    atomic_size_t *: number_load, const atomic_size_t *: number_load, \
    atomic_uint *: word_load)(p)
#define atomic_store_explicit(p, v, order) _Generic((p), \
    atomic_bool *: flag_store_relaxed, \
    atomic_size_t *: number_store, \
    atomic_uint *: word_store)(p, v)
/* clang-format on */
#define calloc(count, size) world_calloc(count, size)
#define free(memory)        world_free(memory)
#define sched_yield()       interleave_wait(inbox_has_no_users)

#include "inbox.c"

#undef calloc
#undef free
#undef sched_yield

_Static_assert(sizeof(struct weft_inbox) <= sizeof world.inbox, "it has room for one");

static struct weft_inbox *the_inbox(void)
{
    return (struct weft_inbox *)(void *)world.inbox;
}

static void store_late(void)
{
    world.late_store = false;
    *(bool *)(void *)&the_inbox()->asleep = false;
}

static bool inbox_has_no_users(void)
{
    return *(const size_t *)(const void *)&the_inbox()->users == 0;
}

/* ---- the engine: sleeps until somebody has called wake ---- */

static void engine_wake(struct weft__engine *engine)
{
    (void)engine;
    interleave_step();
    if (world.engine_gone)
        interleave_fail("an engine is woken that is gone");
    world.wakes++;
}

static bool engine_woken(void)
{
    return world.wakes > 0;
}

static void engine_sleep(void)
{
    interleave_wait(engine_woken);
    world.wakes--;
    forget_versions(world.newest); /* who wakes has posted before */
}

static const struct weft__engine_class engine_class = {.name = "model", .wake = engine_wake};

/* ---- the threads ---- */

static unsigned posters, posts, ends_after;
static enum { WHOLE, LOOKS_FOR_NOTHING, LOOKS_FOR_POSTS } looks; /* before it sleeps */

static void run_note(struct weft_task *task)
{
    struct note *note = weft__container(task, struct note, task);

    if (++note->runs > 1)
        interleave_fail("a task runs twice");
    if (note->number != world.last[note->poster])
        interleave_fail("a poster's tasks run out of order");
    world.last[note->poster]++;
    world.ran++;
}

static bool may_sleep(struct weft_inbox *inbox)
{
    if (looks == LOOKS_FOR_NOTHING) {
        atomic_store(&inbox->asleep, true);
        return true;
    }
    return weft__inbox_sleep(inbox, looks == WHOLE);
}

/* What the loop in runtime.c does with its inbox. */
static void run_runtime(void)
{
    struct weft_inbox *inbox = the_inbox();

    while (world.ran < ends_after) {
        interleave_forget(1);
        if (!weft__inbox_pending(inbox) && !weft__inbox_held(inbox))
            break;
        if (may_sleep(inbox))
            engine_sleep();
        weft__inbox_awake(inbox);
        weft__inbox_run(inbox);
    }
    interleave_forget(2);
    while (!weft__inbox_close(inbox)) {
        weft__inbox_run(inbox);
        interleave_forget(2);
    }
    world.engine_gone = true;
    weft__inbox_release(inbox);
}

static void post_all(unsigned poster)
{
    struct weft_inbox *inbox = the_inbox();

    for (unsigned i = 0; i < posts; i++) {
        struct note *note = &world.note[poster][i];
        int rc;

        interleave_forget(i);
        rc = weft_post(inbox, &note->task);

        note->rc = rc == 0 ? 0 : -1;
        if (rc != 0 && rc != -ESHUTDOWN)
            interleave_fail("weft_post gives an odd error");
    }
    interleave_forget(posts);
    weft_inbox_unref(inbox);
}

static void poster0(void)
{
    post_all(0);
}

static void poster1(void)
{
    post_all(1);
}

static void poster2(void)
{
    post_all(2);
}

static void begin(void)
{
    exploring = false;
    memset(&world, 0, sizeof world);
    memset(&runtime, 0, sizeof runtime);
    world.engine.class = &engine_class;
    weft__rt = &runtime;
    runtime.inbox = weft__inbox_create(&world.engine);
    for (unsigned p = 0; p < posters; p++) {
        weft_inbox_ref();
        for (unsigned i = 0; i < posts; i++)
            world.note[p][i] = (struct note){.task = {.run = run_note},
                                             .poster = (unsigned char)p,
                                             .number = (unsigned char)i,
                                             .rc = 1};
    }
    exploring = true;
}

static const char *end(void)
{
    for (unsigned p = 0; p < posters; p++)
        for (unsigned i = 0; i < posts; i++) {
            const struct note *note = &world.note[p][i];

            if (note->rc == 0 && note->runs != 1)
                return "an accepted task has not run";
            if (note->rc != 0 && note->runs != 0)
                return "a refused task has run";
            if (note->rc != 0 && ends_after == UINT32_MAX)
                return "a task is refused by a runtime that goes on";
        }
    if (!world.inbox_freed)
        return "the inbox is not freed";
    return NULL;
}

static struct interleave_result search(unsigned with_posters, unsigned with_posts, unsigned until)
{
    static void (*const all[POSTERS])(void) = {poster0, poster1, poster2};
    struct interleave_case c = {
        .thread = {run_runtime},
        .shared = &world,
        .size = sizeof world,
        .begin = begin,
        .end = end,
    };
    struct interleave_result result;

    posters = with_posters;
    posts = with_posts;
    ends_after = until;
    for (unsigned p = 0; p < posters; p++)
        c.thread[1 + p] = all[p];
    result = interleave(&c);
    weft__rt = NULL;
    exploring = false;
    return result;
}

static void check(unsigned with_posters, unsigned with_posts, unsigned until)
{
    struct interleave_result result = search(with_posters, with_posts, until);

    cr_log_info("%u posters, %u posts, end after %u: %ld runs, %ld states", with_posters,
                with_posts, until, result.runs, result.states);
    cr_assert(!result.wrong, "%s", result.what);
    cr_assert(!result.stuck, "somebody sleeps for ever");
    cr_assert_gt(result.runs, 10);
}

/* The runtime goes on until nobody can post any more: it must see each post, and see that. */
Test(inbox_interleavings, a_runtime_that_waits_for_posts)
{
    check(1, 0, UINT32_MAX);
    check(1, 1, UINT32_MAX);
    check(1, 2, UINT32_MAX);
    check(2, 0, UINT32_MAX);
    if (!slow_tools())
        check(2, 1, UINT32_MAX);
}

/* It ends while others post: each task is either run or refused. */
Test(inbox_interleavings, a_runtime_that_ends)
{
    check(1, 1, 0);
    check(1, 2, 0);
    check(1, 2, 1);
    check(2, 1, 0);
    if (!slow_tools())
        check(2, 1, 1);
}

/* The search finds what it looks for: here the runtime doesn't look again before it sleeps. */
Test(inbox_interleavings, a_lost_wakeup_is_found)
{
    looks = LOOKS_FOR_NOTHING;
    cr_assert(search(1, 1, UINT32_MAX).stuck);
    looks = LOOKS_FOR_POSTS;
    cr_assert(search(1, 0, UINT32_MAX).stuck);
    looks = WHOLE;
    cr_assert(!search(1, 0, UINT32_MAX).stuck);
}
