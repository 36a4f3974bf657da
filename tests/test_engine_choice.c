/* Which engine a runtime gets: by name, by environment, and where io_uring is not to be had. */
#include "denied.h"
#include "io_support.h"
#include "ring_internal.h"

#include <criterion/criterion.h>
#include <sys/syscall.h>

static char engine[16], reason[512];

/* A message through a socket that must be waited for, and a file. */
static void serve_body(void)
{
    struct kept receive, send, open;
    char buf[8];
    int pair[2];

    snprintf(engine, sizeof engine, "%s", weft_engine_name());
    snprintf(reason, sizeof reason, "%s", weft_engine_reason() != NULL ? weft_engine_reason() : "");
    make_pair(pair);
    cr_assert_eq(ring_recv(&keep(&receive)->op, pair[0], buf, sizeof buf, 0), 0);
    cr_assert_eq(weft__rt->engine->class->turn(weft__rt->engine, WEFT_NOWAIT), 0);
    cr_assert_eq(ring_send(&keep(&send)->op, pair[1], "hello", 5, 0), 0);
    cr_assert_eq(result_of(&receive), 5);
    cr_assert_eq(result_of(&send), 5);
    cr_assert_eq(ring_openat(&keep(&open)->op, AT_FDCWD, "/dev/null", O_RDONLY, 0), 0);
    cr_assert(result_of(&open) >= 0);
    close(open.res);
    close_pair(pair);
}

/* An engine without I/O starts, and is told from the others by what the operations say. */
static void start_body(void)
{
    struct kept nop;

    if (ring_nop(&keep(&nop)->op) == 0) {
        cr_assert_eq(result_of(&nop), 0);
        serve_body();
    } else {
        weft__main_ended(weft__rt, -ENOSYS);
    }
}

static int serve_on(const char *name)
{
    struct weft_options options = setup_options(&setups[0]);

    options.engine = name;
    engine[0] = reason[0] = '\0';
    return run_by_hand_with(&options, start_body);
}

/* ---- denied ---- */

static void takes_over(const char *cause)
{
    cr_assert_eq(serve_on(NULL), 0, "%s", report_text());
    cr_assert_str_eq(engine, "epoll");
    cr_assert(report_contains("the epoll engine takes over (WEFT_ENGINE=epoll"), "%s",
              report_text());
    cr_assert(report_contains(cause), "%s", report_text());
    cr_assert_not_null(strstr(reason, cause), "%s", reason);
    cr_assert_null(weft_engine_reason());

    cr_assert_eq(serve_on("auto"), 0);
    cr_assert_str_eq(engine, "epoll");
    cr_assert(report_contains(cause));
}

static void speaks_of_it_only_if_asked(const char *cause)
{
    cr_assert_eq(serve_on("epoll"), 0);
    cr_assert_str_eq(engine, "epoll");
    cr_assert_str_eq(report_text(), "", "chosen by name: nothing to say");
    cr_assert_str_eq(reason, "");

    cr_assert_eq(serve_on("uring,epoll"), 0);
    cr_assert_str_eq(engine, "epoll");
    cr_assert_str_eq(report_text(), "", "the second choice is a choice");
    cr_assert_not_null(strstr(reason, cause), "%s", reason);
}

static void fails_if_forced(int error, const char *cause)
{
    cr_assert_eq(serve_on("uring"), error);
    cr_assert(report_contains("cannot start") && report_contains(cause), "%s", report_text());
    cr_assert(report_contains("WEFT_ENGINE=auto"), "and the way out: %s", report_text());
}

Test(engine_choice, forbidden_by_a_filter)
{
    deny_call(SYS_io_uring_setup, EPERM);
    takes_over("EPERM");
    speaks_of_it_only_if_asked("EPERM");
    fails_if_forced(-EPERM, "EPERM");
}

Test(engine_choice, hidden_by_a_filter)
{
    deny_call(SYS_io_uring_setup, ENOSYS);
    takes_over("ENOSYS");
    speaks_of_it_only_if_asked("ENOSYS");
    fails_if_forced(-ENOSYS, "ENOSYS");
}

/* An old kernel's: every set-up is refused. */
Test(engine_choice, no_setup_is_accepted)
{
    ring__refused_flags = ~0u;
    takes_over("cannot be set up");
    fails_if_forced(-EINVAL, "cannot be set up");
}

/* An ordinary user, with memory for no ring at all (pitfall 2). */
Test(engine_choice, no_lockable_memory)
{
    if (slow_tools() || !become_ordinary(0)) /* the tools want the user they began with */
        return;
    if (serve_on("uring") == 0)
        return; /* a kernel that doesn't charge */
    takes_over("RLIMIT_MEMLOCK");
    speaks_of_it_only_if_asked("RLIMIT_MEMLOCK");
    fails_if_forced(-ENOMEM, "RLIMIT_MEMLOCK");
}

/* A denial is not what takes a descriptor away: no engine would get far. */
Test(engine_choice, a_lack_of_descriptors_is_no_reason)
{
    static const char *const names[] = {"auto", "uring", "epoll", "uring,epoll", "epoll,uring"};
    const struct rlimit none = {(rlim_t)dup(0), 1 << 20};
    struct rlimit before;
    bool dup_free = close((int)none.rlim_cur) == 0;

    cr_assert(dup_free);
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        /* none at all, and one too few: the wake-up's, but not the engine's */
        for (rlim_t more = 0; more < 2; more++) {
            const struct rlimit few = {none.rlim_cur + more, before.rlim_max};
            int rc;

            cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
            rc = serve_on(names[i]);
            cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
            cr_assert_eq(rc, -EMFILE, "%s: %d", names[i], rc);
            cr_assert(report_contains("ulimit -n"), "%s", report_text());
        }
    }
}

/* Both denied: the first's cause is told. */
Test(engine_choice, nothing_works)
{
    deny_call(SYS_epoll_create1, EACCES);
    deny_call(SYS_io_uring_setup, EPERM);
    cr_assert_eq(serve_on(NULL), -EACCES);
    cr_assert(report_contains("cannot start: io_uring is forbidden"), "%s", report_text());
    cr_assert_eq(serve_on("epoll"), -EACCES);
    cr_assert(report_contains("cannot start") && report_contains("Permission"), "%s",
              report_text());
    cr_assert_eq(serve_on("null,epoll"), -ENOSYS, "it starts, and does no I/O");
}

/* To whom no report function is given, it is said on stderr, once a process. */
Test(engine_choice, said_once_on_stderr)
{
    struct weft_options options = WEFT_OPTIONS_INIT;
    FILE *said = tmpfile();
    int old = dup(2), lines = 0, c;

    deny_call(SYS_io_uring_setup, EPERM);
    unsetenv("WEFT_ENGINE");
    fflush(stderr);
    dup2(fileno(said), 2);
    for (int i = 0; i < 3; i++)
        cr_expect_eq(run_by_hand_with(&options, serve_body), 0);
    fflush(stderr);
    dup2(old, 2);
    close(old);
    rewind(said);
    while ((c = fgetc(said)) != EOF)
        lines += c == '\n';
    fclose(said);
    cr_assert_eq(lines, 1);
}

/* ---- named ---- */

Test(engine_choice, by_name_and_by_environment)
{
    unsetenv("WEFT_ENGINE");
    cr_assert_eq(serve_on(NULL), 0);
    cr_assert_str_eq(engine, "uring");
    cr_assert_str_eq(report_text(), "");
    cr_assert_eq(serve_on("epoll,uring"), 0);
    cr_assert_str_eq(engine, "epoll");
    cr_assert_str_eq(reason, "", "it is the first choice");
    setenv("WEFT_ENGINE", "epoll", 1);
    cr_assert_eq(serve_on(NULL), 0);
    cr_assert_str_eq(engine, "epoll");
    cr_assert_eq(serve_on("auto"), 0);
    cr_assert_str_eq(engine, "uring", "the option counts, not the environment");
    setenv("WEFT_ENGINE", "", 1);
    cr_assert_eq(serve_on(NULL), 0);
    cr_assert_str_eq(engine, "uring");
}

Test(engine_choice, names_that_are_none)
{
    static const char *const names[] = {"steam", "uring,steam", ",uring",    "uring,",
                                        "urin",  "uring2",      "auto,uring"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        cr_assert_eq(serve_on(names[i]), -EINVAL, "%s", names[i]);
        cr_assert(report_contains("no engine named"), "%s: %s", names[i], report_text());
        cr_assert_str_eq(engine, "", "%s", names[i]);
    }
}
