/* Setting a ring up where that is hard, and what is said where it is impossible. */
#include "denied.h"
#include "io_support.h"
#include "ring_internal.h"

#include <criterion/criterion.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static const struct setup plain_uring = {"uring", "uring", 0, 0, 0};

static void nop_body(void)
{
    struct kept nop;

    cr_assert_eq(ring_nop(&keep(&nop)->op), 0);
    cr_assert_eq(result_of(&nop), 0);
}

/* Sizes that are no powers of two, that are too large, that contradict each other. */
Test(ring_setup, odd_sizes)
{
    static const struct {
        unsigned sq, cq;
    } sizes[] = {{1, 1}, {3, 5}, {256, 8}, {1, 100000}, {1u << 20, 1u << 20}, {4, 4}};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct setup setup = plain_uring;

        setup.sq_entries = sizes[i].sq;
        setup.cq_entries = sizes[i].cq;
        cr_assert_eq(run_by_hand(&setup, nop_body), 0, "%u, %u: %s", sizes[i].sq, sizes[i].cq,
                     report_text());
    }
}

/* ---- too little lockable memory: the limit counts for ordinary users only (pitfall 2) ---- */

/* Whether this kernel charges rings at all. */
static int run_as_ordinary(rlim_t limit)
{
    if (slow_tools() || !become_ordinary(limit)) /* the tools want the user they began with */
        return 1;
    return run_by_hand(&plain_uring, nop_body);
}

Test(ring_setup, no_lockable_memory_is_explained)
{
    int rc = run_as_ordinary(0);

    if (rc == 0 || rc == 1)
        return; /* a kernel that doesn't charge, or no ordinary user to be had */
    cr_assert_eq(rc, -ENOMEM);
    cr_assert(report_contains("RLIMIT_MEMLOCK, is 0 KiB"), "%s", report_text());
    cr_assert(report_contains("ulimit -l"), "%s", report_text());
}

Test(ring_setup, little_lockable_memory_makes_a_smaller_ring)
{
    int rc = run_as_ordinary(32 << 10); /* the default ring needs more than twice that */

    cr_assert(rc == 0 || rc == 1, "%d: %s", rc, report_text());
}

/* ---- forbidden, and absent (pitfall 1) ---- */

Test(ring_setup, a_forbidden_ring_is_explained)
{
    deny_call(SYS_io_uring_setup, EPERM);
    cr_assert_eq(run_by_hand(&plain_uring, nop_body), -EPERM);
    cr_assert(report_contains("EPERM"), "%s", report_text());
    cr_assert(report_contains("seccomp") || report_contains("io_uring_disabled"), "%s",
              report_text());
}

Test(ring_setup, a_kernel_without_rings_is_explained)
{
    deny_call(SYS_io_uring_setup, ENOSYS);
    cr_assert_eq(run_by_hand(&plain_uring, nop_body), -ENOSYS);
    cr_assert(report_contains("ENOSYS") && report_contains("Linux 5.11"), "%s", report_text());
}

/* An older kernel knows only the older flags: the newer are left out one after the other (pitfall 3). */
Test(ring_setup, flags_the_kernel_does_not_know)
{
    int before = open_descriptors();

    for (unsigned bit = 7; bit <= 13; bit++) { /* SUBMIT_ALL to DEFER_TASKRUN */
        ring__refused_flags = 1u << bit;
        cr_assert_eq(run_by_hand(&plain_uring, nop_body), 0, "bit %u: %s", bit, report_text());
    }
    ring__refused_flags = ~0u;
    cr_assert_eq(run_by_hand(&plain_uring, nop_body), -EINVAL);
    cr_assert(report_contains("cannot be set up"), "%s", report_text());
    cr_assert_eq(open_descriptors(), before);
}

Test(ring_setup, no_descriptor_left_is_explained)
{
    int fds[64], count = 0;
    struct rlimit before, none;

    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    do
        fds[count] = dup(0);
    while (fds[count] >= 0 && ++count < 8);
    none = before;
    none.rlim_cur = (rlim_t)fds[0];
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    cr_assert_eq(run_by_hand(&plain_uring, nop_body), -EMFILE);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    while (count > 0)
        close(fds[--count]);
    cr_assert(report_contains("ulimit -n"), "%s", report_text());
}

/* ---- fork (pitfalls 6, 7) ---- */

static void fork_body(void)
{
    struct weft__engine *engine = weft__rt->engine;
    struct kept receive;
    int pair[2], status;
    char buf[8];
    pid_t child;

    make_pair(pair);
    cr_assert_eq(ring_recv(&keep(&receive)->op, pair[0], buf, sizeof buf, 0), 0);
    cr_assert_eq(engine->class->turn(engine, WEFT_NOWAIT), 0);
    child = fork();
    cr_assert(child >= 0);
    if (child == 0) {
        struct kept nop;
        int wrong = 0;

        wrong |= engine->class->submit(engine, &keep(&nop)->op) != -ECHILD;
        wrong |= engine->class->turn(engine, WEFT_NOWAIT) != -ECHILD;
        wrong |= !report_contains("child of fork");
        wrong |= nop.calls != 0 || receive.calls != 0;
        _exit(wrong);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    /* the parent's ring is as it was */
    cr_assert_eq(receive.calls, 0);
    cr_assert_eq(write(pair[1], "hello", 5), 5);
    cr_assert_eq(result_of(&receive), 5);
    close_pair(pair);
}

Test(ring_setup, a_child_of_fork_is_refused)
{
    EACH_IO_SETUP(setup)
    {
        cr_assert_eq(run_by_hand(setup, fork_body), 0, "%s", setup->name);
    }
}

/* Nothing of the library survives exec. */
static void exec_body(void)
{
    char path[64], target[64];

    for (int fd = 0; fd < 64; fd++) {
        ssize_t n;

        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        n = readlink(path, target, sizeof target - 1);
        if (n < 0)
            continue;
        target[n] = '\0';
        if (strstr(target, "io_uring") != NULL || strstr(target, "event") != NULL)
            cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC, "%d is %s", fd, target);
    }
}

Test(ring_setup, descriptors_close_on_exec)
{
    EACH_IO_SETUP(setup)
    cr_assert_eq(run_by_hand(setup, exec_body), 0, "%s", setup->name);
}

/* Engines come and go without a trace. */
Test(ring_setup, nothing_is_left_behind)
{
    EACH_IO_SETUP(setup)
    {
        int before = open_descriptors();

        for (int i = 0; i < 20; i++)
            cr_assert_eq(run_by_hand(setup, nop_body), 0, "%s", setup->name);
        cr_assert_eq(open_descriptors(), before, "%s", setup->name);
    }
}
