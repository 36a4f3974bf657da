/* needs: fibers
 * File events, waited for by fibers. */
#include "allocations.h"
#include "fiber_internal.h"
#include "io_support.h"
#include "source.h"

#include <weft/io.h>
#include <weft/watch.h>

#include <criterion/criterion.h>
#include <sys/resource.h>

#define ON_EACH_SETUP(main)                                                               \
    EACH_IO_SETUP(setup)                                                                  \
    {                                                                                     \
        cr_assert_eq(run_on(setup, main, NULL), 0, "%s: %s", setup->name, report_text()); \
    }

/* ---- a directory ---- */

static char directory[64];

static const char *in_directory(const char *name)
{
    static char path[2][512];
    static int turn;

    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", directory, name);
    return path[turn];
}

static void make(const char *name)
{
    int fd = open(in_directory(name), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

    cr_assert(fd >= 0);
    close(fd);
}

static void drop(const char *name)
{
    cr_assert_eq(unlink(in_directory(name)), 0);
}

/* A watched, empty directory. */
static struct weft_watch *watch_directory(uint32_t mask, int *wd)
{
    struct weft_watch *watch;
    int rc;

    strcpy(directory, "/tmp/weft-test-XXXXXX");
    cr_assert_not_null(mkdtemp(directory));
    cr_assert_eq(weft_watch_create(&watch), 0);
    rc = weft_watch_add(watch, directory, mask);
    cr_assert(rc > 0, "%d", rc);
    if (wd != NULL)
        *wd = rc;
    return watch;
}

static void finish(struct weft_watch *watch)
{
    weft_watch_destroy(watch);
    cr_assert_eq(rmdir(directory), 0);
}

static void expect(struct weft_watch *watch, uint32_t mask, const char *name)
{
    struct weft_watch_event event;
    int rc;

    memset(&event, 0xa5, sizeof event);
    rc = fiber_watch_next(watch, &event, WEFT_FOREVER);
    cr_assert_eq(rc, 0, "%d", rc);
    cr_assert_eq(event.mask, mask, "%x, not %x: %s", event.mask, mask, event.name);
    cr_assert_str_eq(event.name, name);
    cr_assert_eq(event.length, strlen(name));
}

/* ---- events ---- */

static int events_main(void *unused)
{
    struct weft_watch_event from, to;
    struct weft_watch *watch;
    char longest[256];
    int before = open_descriptors(), wd, own;
    size_t allocated;

    (void)unused;
    watch = watch_directory(IN_CREATE | IN_DELETE | IN_MOVE, &wd);
    cr_assert_eq(fiber_watch_next(watch, NULL, WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert_eq(fiber_watch_next(watch, &from, weft_after(WEFT_US(1))), -ETIMEDOUT);
    allocated = allocations;
    cr_assert_eq(fiber_watch_next(watch, &from, weft_after(WEFT_MS(2))), -ETIMEDOUT);
    cr_assert_eq(allocations, allocated, "a wait allocates nothing");

    make("a");
    make("b");
    drop("a");
    expect(watch, IN_CREATE, "a");
    expect(watch, IN_CREATE, "b");
    expect(watch, IN_DELETE, "a");
    cr_assert_eq(fiber_watch_next(watch, &from, WEFT_NOWAIT), -ETIMEDOUT);

    cr_assert_eq(rename(in_directory("b"), in_directory("c")), 0);
    cr_assert_eq(fiber_watch_next(watch, &from, WEFT_FOREVER), 0);
    cr_assert_eq(fiber_watch_next(watch, &to, WEFT_FOREVER), 0);
    cr_assert(from.mask == IN_MOVED_FROM && to.mask == IN_MOVED_TO);
    cr_assert(from.cookie == to.cookie && from.cookie != 0);
    cr_assert(from.wd == wd && to.wd == wd);
    cr_assert_str_eq(from.name, "b");
    cr_assert_str_eq(to.name, "c");

    /* what is watched itself has no name */
    own = weft_watch_add(watch, in_directory("c"), IN_ATTRIB | IN_DELETE_SELF);
    cr_assert(own > 0 && own != wd);
    cr_assert_eq(chmod(in_directory("c"), 0400), 0);
    expect(watch, IN_ATTRIB, "");

    memset(longest, 'x', 255);
    longest[255] = '\0';
    make(longest);
    expect(watch, IN_CREATE, longest);
    drop(longest);
    expect(watch, IN_DELETE, longest);

    /* no longer, and why */
    cr_assert_eq(weft_watch_remove(watch, own), 0);
    expect(watch, IN_IGNORED, "");
    cr_assert_eq(weft_watch_remove(watch, own), -EINVAL);
    drop("c");
    expect(watch, IN_DELETE, "c");
    make("unseen");
    drop("unseen");
    finish(watch);
    while (weft__rt->engine->in_flight > 0) /* the poll of the wait that was given up */
        fiber_yield();
    cr_assert_eq(open_descriptors(), before);
    return 0;
}

Test(watch, events)
{
    ON_EACH_SETUP(events_main);
}

/* More than a buffer holds. */
static int many_main(void *unused)
{
    struct weft_watch *watch = watch_directory(IN_CREATE, NULL);
    char name[128];

    (void)unused;
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "%0*d", 1 + i % 100, i);
        make(name);
    }
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "%0*d", 1 + i % 100, i);
        expect(watch, IN_CREATE, name);
        drop(name);
    }
    cr_assert_eq(fiber_watch_next(watch, NULL, WEFT_NOWAIT), -ETIMEDOUT);
    finish(watch);
    return 0;
}

Test(watch, more_than_a_buffer)
{
    ON_EACH_SETUP(many_main);
}

/* What the kernel had no room for is said once. */
static int overflow_main(void *unused)
{
    FILE *file = fopen("/proc/sys/fs/inotify/max_queued_events", "r");
    struct weft_watch *watch = watch_directory(IN_OPEN, NULL);
    struct weft_watch_event event = {0};
    int bound = 0, seen = 0;

    (void)unused;
    cr_assert(file != NULL && fscanf(file, "%d", &bound) == 1);
    fclose(file);
    make("a");
    make("b");
    for (int i = 0; i < bound + 100; i++)
        close(open(in_directory(i % 2 ? "a" : "b"), O_RDONLY | O_CLOEXEC));
    while (fiber_watch_next(watch, &event, WEFT_NOWAIT) == 0 && !(event.mask & IN_Q_OVERFLOW))
        seen++;
    cr_assert(event.mask & IN_Q_OVERFLOW);
    cr_assert_eq(event.wd, -1);
    cr_assert_eq(seen, bound);
    cr_assert_eq(fiber_watch_next(watch, &event, WEFT_NOWAIT), -ETIMEDOUT);
    close(open(in_directory("a"), O_RDONLY | O_CLOEXEC));
    expect(watch, IN_OPEN, "a");
    drop("a");
    drop("b");
    finish(watch);
    return 0;
}

Test(watch, overflow)
{
    cr_assert_eq(run_on(&setups[1], overflow_main, NULL), 0);
}

/* A name longer than file systems usually allow, as the kernel would tell of it. */
static int cut_main(void *unused)
{
    const struct inotify_event head = {.wd = 7, .mask = IN_CREATE, .len = 400};
    char told[sizeof head + 400] = "";
    struct weft_watch_event event;
    struct weft_watch *watch;
    int pipes[2];

    (void)unused;
    memcpy(told, &head, sizeof head);
    memset(told + sizeof head, 'y', 300);
    cr_assert_eq(weft_watch_create(&watch), 0);
    cr_assert_eq(pipe2(pipes, O_CLOEXEC | O_NONBLOCK), 0);
    cr_assert(dup2(pipes[0], ring__watch_source(watch)->fd) >= 0);
    cr_assert_eq(write(pipes[1], told, sizeof told), sizeof told);
    cr_assert_eq(fiber_watch_next(watch, &event, WEFT_FOREVER), 0);
    cr_assert_eq(event.mask, IN_CREATE | WEFT_WATCH_CUT);
    cr_assert_eq(event.length, 255);
    cr_assert_eq(strspn(event.name, "y"), 255);
    cr_assert_eq(event.name[255], '\0');
    close_pair(pipes);
    weft_watch_destroy(watch);
    return 0;
}

Test(watch, a_name_too_long_is_cut)
{
    cr_assert_eq(run_on(&setups[1], cut_main, NULL), 0);
}

/* ---- several waiters ---- */

struct waiter {
    struct weft_watch *watch;
    struct weft_watch_event event;
    struct fiber *self;
    int result;
    bool ended;
};

static int64_t wait_fiber(void *arg)
{
    struct waiter *w = arg;

    w->self = fiber_self();
    w->result = fiber_watch_next(w->watch, &w->event, WEFT_FOREVER);
    w->ended = true;
    return 0;
}

static void start_waiter(struct waiter *w, struct weft_watch *watch)
{
    *w = (struct waiter){.watch = watch};
    cr_assert_eq(fiber_detach(wait_fiber, w), 0);
}

static void until(bool *ended)
{
    while (!*ended)
        fiber_yield();
}

static int several_main(void *unused)
{
    struct weft_watch *watch = watch_directory(IN_CREATE, NULL);
    struct waiter w[4];

    (void)unused;
    for (int i = 0; i < 4; i++)
        start_waiter(&w[i], watch);
    fiber_yield();
    fiber_nop(WEFT_FOREVER);
    make("a");
    make("b");
    fiber__cancel(weft__rt, w[0].self);
    until(&w[0].ended);
    cr_assert_eq(w[0].result, -ECANCELED);
    until(&w[1].ended);
    until(&w[2].ended);
    cr_assert_str_eq(w[1].event.name, "a", "who gave up has taken none");
    cr_assert_str_eq(w[2].event.name, "b");
    cr_assert(!w[3].ended);
    make("c");
    until(&w[3].ended);
    cr_assert_str_eq(w[3].event.name, "c");
    drop("a");
    drop("b");
    drop("c");
    finish(watch);
    return 0;
}

Test(watch, several_waiters)
{
    ON_EACH_SETUP(several_main);
}

static int under_waiters_main(void *unused)
{
    int before = open_descriptors();

    (void)unused;
    for (int i = 0; i < 4; i++) {
        struct weft_watch *watch = watch_directory(IN_CREATE, NULL);
        struct waiter a, b;

        start_waiter(&a, watch);
        start_waiter(&b, watch);
        fiber_yield();
        if (i % 2)
            fiber_nop(WEFT_FOREVER);
        if (i >= 2)
            make("a");
        weft_watch_destroy(watch);
        until(&a.ended);
        until(&b.ended);
        cr_assert(a.result == -ECANCELED && b.result == -ECANCELED, "%d %d", a.result, b.result);
        if (i >= 2)
            drop("a");
        cr_assert_eq(rmdir(directory), 0);
        while (weft__rt->engine->in_flight > 0)
            fiber_yield();
        cr_assert_eq(open_descriptors(), before);
    }
    return 0;
}

Test(watch, destroyed_under_waiters)
{
    ON_EACH_SETUP(under_waiters_main);
}

/* ---- misuse, and want ---- */

static struct weft_watch *misused;
static int from_base;

static void wait_on_base(struct weft_task *task)
{
    (void)task;
    from_base = fiber_watch_next(misused, NULL, WEFT_FOREVER);
}

static int misuse_main(void *unused)
{
    static struct weft_task task;

    (void)unused;
    cr_assert_eq(fiber_watch_next(NULL, NULL, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(weft_watch_create(&misused), 0);
    cr_assert_eq(weft_task_init(&task, wait_on_base), 0);
    weft_task_queue(&task);
    fiber_yield();
    fiber_yield();
    cr_assert_eq(from_base, -EDEADLK);
    weft_task_finish(&task);
    weft_watch_destroy(misused);
    return 0;
}

static int no_io_main(void *unused)
{
    struct weft_watch *watch = watch_directory(IN_CREATE, NULL);

    (void)unused;
    cr_assert_eq(fiber_watch_next(watch, NULL, WEFT_FOREVER), -ENOSYS);
    make("a");
    expect(watch, IN_CREATE, "a");
    drop("a");
    finish(watch);
    return 0;
}

Test(watch, misuse)
{
    struct weft_watch *watch;

    cr_assert_eq(weft_watch_create(NULL), -EINVAL);
    weft_watch_destroy(NULL);
    cr_assert_eq(weft_watch_add(NULL, "/", IN_CREATE), -EINVAL);
    cr_assert_eq(weft_watch_remove(NULL, 1), -EINVAL);
    cr_assert_eq(weft_watch_create(&watch), 0);
    errno = 12345;
    cr_assert_eq(weft_watch_add(watch, NULL, IN_CREATE), -EINVAL);
    cr_assert_eq(weft_watch_add(watch, "/tmp", 0), -EINVAL);
    cr_assert_eq(weft_watch_add(watch, "/nonexistent", IN_CREATE), -ENOENT);
    cr_assert_eq(weft_watch_add(watch, "/etc/passwd", IN_CREATE | IN_ONLYDIR), -ENOTDIR);
    cr_assert_eq(weft_watch_remove(watch, 1), -EINVAL);
    cr_assert_eq(weft_watch_remove(watch, -1), -EINVAL);
    cr_assert_eq(fiber_watch_next(watch, NULL, WEFT_NOWAIT), -EINVAL, "without a runtime");
    cr_assert_eq(errno, 12345);
    weft_watch_destroy(watch);
    cr_assert_eq(run_on(&setups[0], no_io_main, NULL), 0);
    ON_EACH_SETUP(misuse_main);
}

Test(watch, no_room)
{
    struct weft_watch *watch = (struct weft_watch *)(void *)directory;
    struct rlimit before, none;
    int rc;

    getrlimit(RLIMIT_NOFILE, &before);
    none = before;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
    rc = weft_watch_create(&watch);
    setrlimit(RLIMIT_NOFILE, &before);
    cr_assert_eq(rc, -EMFILE);
    cr_assert_null(watch);
    if (!slow_tools()) {
        allocations_fail_after(0);
        rc = weft_watch_create(&watch);
        allocations_fail_after(SIZE_MAX);
        cr_assert_eq(rc, -ENOMEM);
    }
}
