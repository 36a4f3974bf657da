/* needs: fibers
 * Child processes, waited for by fibers. */
#include "allocations.h"
#include "fiber_internal.h"
#include "process_support.h"
#include "source.h"

#include <weft/io.h>

#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>

#define ON_EACH_SETUP(main)                                                               \
    EACH_PROCESS_SETUP(setup)                                                             \
    {                                                                                     \
        cr_assert_eq(run_on(setup, main, NULL), 0, "%s: %s", setup->name, report_text()); \
    }

/* valgrind runs what posix_spawn does in the child in a copy of the memory: errors don't come back */
#define NEEDS_SPAWN_ERRORS() \
    do {                     \
        if (on_valgrind())   \
            return;          \
    } while (0)

/* Everything in one run where the engine does I/O. */
static bool does_io(void)
{
    return strcmp(weft_engine_name(), "null") != 0;
}

/* All that comes out of it, up to its end; closes it. */
static char *read_all(int fd)
{
    static char text[4096];
    size_t size = 0;
    ssize_t n;

    while ((n = read(fd, text + size, sizeof text - 1 - size)) > 0)
        size += (size_t)n;
    cr_assert_eq(n, 0);
    text[size] = '\0';
    close(fd);
    return text;
}

/* ---- status ---- */

static int wait_and_finish(struct weft_process *process)
{
    int status = fiber_process_wait(process, WEFT_FOREVER);

    cr_assert_eq(weft_process_status(process), status);
    cr_assert_eq(fiber_process_wait(process, WEFT_NOWAIT), status, "it is kept");
    cr_assert(!is_child(process->pid), "it has been reaped");
    weft_process_finish(process);
    cr_assert_null(process->inside);
    return status;
}

static int status_main(void *unused)
{
    struct weft_process process;
    int before = open_descriptors(), status;

    (void)unused;
    spawn_shell(&process, "exit 0");
    cr_assert_eq(wait_and_finish(&process), 0);
    spawn_shell(&process, "exit 7");
    status = wait_and_finish(&process);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 7, "%d", status);
    spawn_shell(&process, "exit 255");
    status = wait_and_finish(&process);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 255, "%d", status);
    spawn_shell(&process, "kill -TERM $$");
    status = wait_and_finish(&process);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "%d", status);

    spawn_waiting(&process);
    cr_assert_eq(weft_process_status(&process), -EAGAIN);
    cr_assert_eq(weft_process_kill(&process, 0), 0);
    cr_assert_eq(kill(process.pid, SIGKILL), 0, "by somebody else");
    close(process.in);
    status = wait_and_finish(&process);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%d", status);

    spawn_waiting(&process);
    close(process.in);
    until_ended(process.pid);
    status = fiber_process_wait(&process, WEFT_NOWAIT);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 3, "it is there at once: %d", status);
    cr_assert_eq(wait_and_finish(&process), status);
    cr_assert_eq(open_descriptors(), before);
    return 0;
}

Test(process, status)
{
    ON_EACH_SETUP(status_main);
}

/* A dump of core is a bit beside the signal. */
static int core_main(void *unused)
{
    const struct rlimit none = {0, 0};
    struct weft_process process;
    int status;

    (void)unused;
    setrlimit(RLIMIT_CORE, &none);
    spawn_shell(&process, "kill -ABRT $$");
    status = wait_and_finish(&process);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%d", status);
    return 0;
}

Test(process, ended_by_abort)
{
    ON_EACH_SETUP(core_main);
}

/* ---- waiting ---- */

struct waiter {
    struct weft_process *process;
    struct fiber *self;
    weft_time deadline;
    int result;
    bool ended;
};

static int64_t wait_fiber(void *arg)
{
    struct waiter *w = arg;

    w->self = fiber_self();
    w->result = fiber_process_wait(w->process, w->deadline);
    w->ended = true;
    return 0;
}

static void start_waiter(struct waiter *w, struct weft_process *process)
{
    *w = (struct waiter){.process = process, .deadline = WEFT_FOREVER};
    cr_assert_eq(fiber_detach(wait_fiber, w), 0);
}

static void until(bool *ended)
{
    while (!*ended)
        fiber_yield();
}

static int waiting_main(void *unused)
{
    struct weft_process process;
    struct waiter a, b, c;
    size_t allocated;

    (void)unused;
    spawn_waiting(&process);
    cr_assert_eq(fiber_process_wait(&process, WEFT_NOWAIT), -ETIMEDOUT);
    cr_assert_eq(fiber_process_wait(&process, weft_now() - 1), -ETIMEDOUT);
    cr_assert_eq(fiber_process_wait(&process, weft_after(WEFT_US(1))), -ETIMEDOUT);
    allocated = allocations;
    cr_assert_eq(fiber_process_wait(&process, weft_after(WEFT_MS(3))), -ETIMEDOUT);
    cr_assert_eq(allocations, allocated, "a wait allocates nothing");
    cr_assert_eq(weft_process_status(&process), -EAGAIN);

    start_waiter(&a, &process);
    start_waiter(&b, &process);
    start_waiter(&c, &process);
    fiber_yield();
    fiber__cancel(weft__rt, b.self);
    until(&b.ended);
    cr_assert_eq(b.result, -ECANCELED);
    cr_assert(!a.ended && !c.ended);
    close(process.in);
    until(&a.ended);
    until(&c.ended);
    cr_assert(WIFEXITED(a.result) && WEXITSTATUS(a.result) == 3, "%d", a.result);
    cr_assert_eq(c.result, a.result);
    weft_process_finish(&process);
    return 0;
}

Test(process, waiting)
{
    ON_EACH_SETUP(waiting_main);
}

/* The last waiter leaves, and another comes before the kernel has answered. */
static int leave_main(void *unused)
{
    struct weft_process process;
    struct waiter a;

    (void)unused;
    spawn_waiting(&process);
    for (int i = 0; i < 20; i++) {
        start_waiter(&a, &process);
        fiber_yield();
        if (i % 2 && does_io())
            fiber_nop(WEFT_FOREVER);
        fiber__cancel(weft__rt, a.self);
        if (i % 3)
            until(&a.ended);
        else
            while (!a.ended)
                cr_assert_eq(fiber_process_wait(&process, weft_after(WEFT_US(1))), -ETIMEDOUT);
        cr_assert_eq(a.result, -ECANCELED);
    }
    start_waiter(&a, &process);
    fiber_yield();
    close(process.in);
    until(&a.ended);
    cr_assert_eq(WEXITSTATUS(a.result), 3);
    weft_process_finish(&process);
    return 0;
}

Test(process, waiters_come_and_go)
{
    ON_EACH_SETUP(leave_main);
}

/* A fiber that is cancelled already waits for nothing, but is told what is known. */
static int64_t cancelled_fiber(void *arg)
{
    struct waiter *w = arg;

    w->self = fiber_self();
    fiber_sleep_until(WEFT_FOREVER);
    return wait_fiber(w);
}

static int cancelled_main(void *unused)
{
    struct weft_process process;

    (void)unused;
    spawn_waiting(&process);
    for (int known = 0; known < 2; known++) {
        struct waiter w = {.process = &process, .deadline = WEFT_FOREVER};

        cr_assert_eq(fiber_detach(cancelled_fiber, &w), 0);
        fiber_yield();
        fiber__cancel(weft__rt, w.self);
        until(&w.ended);
        if (known) {
            cr_assert_eq(WEXITSTATUS(w.result), 3);
            break;
        }
        cr_assert_eq(w.result, -ECANCELED);
        close(process.in);
        cr_assert_eq(WEXITSTATUS(fiber_process_wait(&process, WEFT_FOREVER)), 3);
    }
    weft_process_finish(&process);
    return 0;
}

Test(process, of_a_cancelled_fiber)
{
    ON_EACH_SETUP(cancelled_main);
}

/* ---- misuse ---- */

static struct weft_process misused;
static int from_base;

static void wait_on_base(struct weft_task *task)
{
    (void)task;
    from_base = fiber_process_wait(&misused, WEFT_FOREVER);
}

static int misuse_main(void *unused)
{
    static struct weft_task task;
    struct weft_process none = {0};

    (void)unused;
    cr_assert_eq(fiber_process_wait(NULL, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(fiber_process_wait(&none, WEFT_FOREVER), -EINVAL);
    cr_assert_eq(weft_process_status(NULL), -EINVAL);
    cr_assert_eq(weft_process_kill(&none, SIGTERM), -EINVAL);
    cr_assert_eq(weft_process_kill_group(NULL, SIGTERM), -EINVAL);
    weft_process_finish(NULL);
    weft_process_finish(&none);
    spawn_waiting(&misused);
    cr_assert_eq(weft_task_init(&task, wait_on_base), 0);
    weft_task_queue(&task);
    fiber_yield();
    fiber_yield();
    cr_assert_eq(from_base, -EDEADLK);
    weft_task_finish(&task);
    cr_assert_eq(weft_process_kill(&misused, 1000), -EINVAL);
    cr_assert_eq(weft_process_kill(&misused, -1), -EINVAL);
    close(misused.in);
    cr_assert_eq(WEXITSTATUS(fiber_process_wait(&misused, WEFT_FOREVER)), 3);
    cr_assert_eq(weft_process_kill(&misused, SIGTERM), -ESRCH, "its number may be another's now");
    cr_assert_eq(weft_process_kill_group(&misused, SIGTERM), -ESRCH);
    weft_process_finish(&misused);
    weft_process_finish(&misused);
    cr_assert_eq(fiber_process_wait(&misused, WEFT_FOREVER), -EINVAL);
    return 0;
}

Test(process, misuse)
{
    cr_assert_eq(fiber_process_wait(&misused, WEFT_FOREVER), -EINVAL, "without a runtime");
    ON_EACH_SETUP(misuse_main);
}

/* ---- what cannot be started ---- */

static void expect_refused(const struct weft_process_options *options, int error, const char *what)
{
    struct weft_process process;
    int before = open_descriptors(), rc;
    siginfo_t info;

    memset(&process, 0xa5, sizeof process);
    errno = 12345;
    rc = weft_process_spawn(&process, options);
    cr_assert_eq(errno, 12345, "errno is the caller's");
    cr_assert_eq(rc, error, "%s: %d", what, rc);
    cr_assert(process.inside == NULL && process.in == -1 && process.out == -1 && process.err == -1);
    weft_process_finish(&process);
    cr_assert_eq(open_descriptors(), before, "%s", what);
    cr_assert(waitid(P_ALL, 0, &info, WEXITED | WNOHANG) < 0 && errno == ECHILD, "%s", what);
}

Test(process, refused)
{
    char *empty[] = {NULL};
    const int bad[] = {0, -1}, many[WEFT_PROCESS_FDS_MAX + 1] = {0};
    struct weft_process_options o = shell("exit 0"), good = o;
    struct weft_process process;

    expect_refused(NULL, -EINVAL, "no options");
    o.size = 0;
    expect_refused(&o, -EINVAL, "size");
    o.size = sizeof o + 8;
    expect_refused(&o, -EINVAL, "size");
    o = good, o.argv = NULL;
    expect_refused(&o, -EINVAL, "no arguments");
    o = good, o.argv = empty;
    expect_refused(&o, -EINVAL, "no name");
    o = good, o.flags = 4;
    expect_refused(&o, -EINVAL, "flags");
    o = good, o.fds = many, o.fd_count = WEFT_PROCESS_FDS_MAX + 1;
    expect_refused(&o, -EINVAL, "too many");
    o = good, o.fd_count = 1;
    expect_refused(&o, -EINVAL, "none in place of some");
    o = good, o.fds = bad, o.fd_count = 2;
    expect_refused(&o, -EBADF, "fds");
    o = good, o.in = -1, o.out = WEFT_PROCESS_PIPE;
    expect_refused(&o, -EBADF, "in");
    o = good, o.in = WEFT_PROCESS_PIPE, o.out = -EMFILE;
    expect_refused(&o, -EBADF, "the error of whoever should have made it");
    o = good, o.err = 1 << 20;
    expect_refused(&o, -EBADF, "err");
    o = good, o.out = WEFT_PROCESS_OUT;
    expect_refused(&o, -EBADF, "out");
    o = good, o.err = INT_MIN;
    expect_refused(&o, -EBADF, "err");
    cr_assert_eq(weft_process_spawn(NULL, &good), -EINVAL);

    NEEDS_SPAWN_ERRORS();
    o = good, o.program = "/nonexistent/program", o.in = o.out = o.err = WEFT_PROCESS_PIPE;
    expect_refused(&o, -ENOENT, "program");
    o = good, o.program = "weft-no-such-program";
    expect_refused(&o, -ENOENT, "not in PATH");
    o = good, o.program = "/etc/passwd";
    expect_refused(&o, -EACCES, "not executable");
    o = good, o.program = "/";
    expect_refused(&o, -EACCES, "a directory");
    o = good, o.cwd = "/nonexistent";
    expect_refused(&o, -ENOENT, "cwd");
    o = good, o.cwd = "/etc/passwd";
    expect_refused(&o, -ENOTDIR, "cwd");
    o = good, o.out = 2, o.err = dup(1);
    close(o.err);
    expect_refused(&o, -EBADF, "closed");
    cr_assert_eq(weft_process_spawn(&process, &good), 0);
    until_ended(process.pid);
    cr_assert_eq(weft_process_status(&process), 0, "without a runtime");
    weft_process_finish(&process);
}

Test(process, no_executable_format)
{
    char path[] = "/tmp/weft-test-XXXXXX";
    struct weft_process_options o = shell("exit 0");
    int fd = mkstemp(path);

    NEEDS_SPAWN_ERRORS();
    cr_assert_eq(write(fd, "no program", 10), 10);
    fchmod(fd, 0700);
    close(fd);
    o.program = path;
    expect_refused(&o, -ENOEXEC, "a text");
    unlink(path);
}

/* No room for descriptors, at each point where one is made; and none for the pidfd is no error. */
static int no_descriptors_main(void *unused)
{
    struct weft_process_options o = shell("exit 4");
    struct weft_process process;
    struct rlimit before, tight;
    int used = open_descriptors(), refused = 0, rc = 0;

    (void)unused;
    o.in = o.out = WEFT_PROCESS_PIPE;
    o.err = WEFT_PROCESS_NULL;
    getrlimit(RLIMIT_NOFILE, &before);
    tight = before;
    for (rlim_t room = 1; room < 64 && rc == 0; room++) {
        bool leaves_room;

        tight.rlim_cur = room;
        setrlimit(RLIMIT_NOFILE, &tight);
        rc = weft_process_spawn(&process, &o);
        leaves_room = rc == 0;
        setrlimit(RLIMIT_NOFILE, &before);
        if (leaves_room) {
            cr_assert_eq(WEXITSTATUS(fiber_process_wait(&process, WEFT_FOREVER)), 4);
            close(process.in);
            close(process.out);
            weft_process_finish(&process);
            break;
        }
        cr_assert_eq(rc, -EMFILE, "%d: %d", (int)room, rc);
        refused++;
        rc = 0;
    }
    cr_assert(refused > 3 && refused < 60, "%d", refused);
    cr_assert_eq(open_descriptors(), used);

    /* nothing to open but the pidfd */
    o = shell("exit 5");
    tight.rlim_cur = 4;
    setrlimit(RLIMIT_NOFILE, &tight);
    rc = weft_process_spawn(&process, &o);
    setrlimit(RLIMIT_NOFILE, &before);
    cr_assert_eq(rc, 0, "%d", rc);
    cr_assert_eq(WEXITSTATUS(fiber_process_wait(&process, WEFT_FOREVER)), 5);
    weft_process_finish(&process);
    cr_assert_eq(open_descriptors(), used);
    return 0;
}

Test(process, no_room_for_descriptors)
{
    if (on_valgrind())
        return; /* it keeps descriptors of its own above the limit */
    ON_EACH_SETUP(no_descriptors_main);
}

Test(process, no_memory)
{
    struct weft_process_options o = shell("exit 4");
    struct weft_process process;
    int before = open_descriptors(), rc = -ENOMEM;
    size_t room;

    if (slow_tools())
        return;
    o.in = o.out = WEFT_PROCESS_PIPE;
    for (room = 0; room < 100 && rc != 0; room++) {
        allocations_fail_after(room);
        rc = weft_process_spawn(&process, &o);
        allocations_fail_after(SIZE_MAX);
        cr_assert(rc == 0 || rc == -ENOMEM, "%zu: %d", room, rc);
    }
    cr_assert(room > 2 && room < 100, "%zu", room);
    close(process.in);
    close(process.out);
    until_ended(process.pid);
    cr_assert_eq(WEXITSTATUS(weft_process_status(&process)), 4);
    weft_process_finish(&process);
    cr_assert_eq(open_descriptors(), before);
}

/* ---- what a child is given ---- */

/* Its output. `o` asks for a pipe. */
static char *output_of(const struct weft_process_options *o)
{
    struct weft_process process;
    char *text;
    int rc;

    rc = weft_process_spawn(&process, o);
    cr_assert_eq(rc, 0, "%d", rc);
    text = read_all(process.out);
    until_ended(process.pid);
    cr_assert_eq(weft_process_status(&process), 0, "%s", text);
    weft_process_finish(&process);
    return text;
}

Test(process, pipes)
{
    struct weft_process_options o = shell("cat; echo problem >&2");
    struct weft_process process;

    o.in = o.out = o.err = WEFT_PROCESS_PIPE;
    cr_assert_eq(weft_process_spawn(&process, &o), 0);
    cr_assert(fcntl(process.in, F_GETFD) & FD_CLOEXEC);
    cr_assert(fcntl(process.out, F_GETFD) & FD_CLOEXEC);
    cr_assert(!(fcntl(process.out, F_GETFL) & O_NONBLOCK));
    cr_assert_eq(write(process.in, "hello", 5), 5);
    close(process.in);
    cr_assert_str_eq(read_all(process.out), "hello");
    cr_assert_str_eq(read_all(process.err), "problem\n");
    until_ended(process.pid);
    weft_process_finish(&process);

    o = shell("echo one; echo two >&2; echo three");
    o.out = WEFT_PROCESS_PIPE;
    o.err = WEFT_PROCESS_OUT;
    cr_assert_str_eq(output_of(&o), "one\ntwo\nthree\n");
    o = shell("cat; echo end; echo nothing >&2");
    o.in = o.err = WEFT_PROCESS_NULL;
    o.out = WEFT_PROCESS_PIPE;
    cr_assert_str_eq(output_of(&o), "end\n");
}

/* Descriptors that are given crosswise, twice, and in each other's place. In a process of its own,
 * where low numbers are nobody's. */
static int crosswise(void)
{
    static const char *const texts[] = {"to-out\nto-err\n", "to-3\n", "to-4\n", "to-5\n"};
    struct weft_process_options o =
        shell("echo to-out; echo to-err >&2; echo to-3 >&3; echo to-4 >&4; echo to-5 >&5");
    struct weft_process process;
    int read_end[4], write_end[4], fds[3], status;

    for (int i = 0; i < 4; i++) {
        int pipes[2];

        if (pipe(pipes) < 0)
            return 1;
        read_end[i] = fcntl(pipes[0], F_DUPFD, 200);
        write_end[i] = fcntl(pipes[1], F_DUPFD, 200);
        close(pipes[0]);
        close(pipes[1]);
    }
    fds[0] = dup2(write_end[1], 4); /* 3 is to be what is 4, and so on round */
    fds[1] = dup2(write_end[2], 5);
    fds[2] = dup2(write_end[3], 3);
    o.out = o.err = dup2(write_end[0], 1); /* in its place already */
    o.fds = fds;
    o.fd_count = 3;
    if (weft_process_spawn(&process, &o) != 0)
        return 2;
    until_ended(process.pid);
    status = weft_process_status(&process);
    weft_process_finish(&process);
    if (status != 0)
        return 3;
    close(1);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
    for (int i = 0; i < 4; i++)
        close(write_end[i]);
    for (int i = 0; i < 4; i++)
        if (strcmp(read_all(read_end[i]), texts[i]) != 0)
            return 4 + i;
    return 0;
}

Test(process, descriptors_crosswise)
{
    pid_t child = fork();
    int status;

    if (child == 0)
        _exit(crosswise());
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%x", status);
}

Test(process, nothing_else_is_inherited)
{
    char *argv[] = {(char *)(uintptr_t) "ls", (char *)(uintptr_t) "/proc/self/fd", NULL};
    struct weft_process_options o = WEFT_PROCESS_OPTIONS_INIT;
    int leaks[40], given[1];

    if (on_valgrind())
        return; /* its own descriptors are the child's, too */
    for (int i = 0; i < 40; i++)
        leaks[i] = open("/dev/null", O_RDONLY); /* not close-on-exec */
    fcntl(leaks[7], F_DUPFD, 900);
    o.argv = argv;
    o.out = WEFT_PROCESS_PIPE;
    cr_assert_str_eq(output_of(&o), "0\n1\n2\n3\n", "and 3 is the directory");
    given[0] = leaks[5];
    o.fds = given;
    o.fd_count = 1;
    cr_assert_str_eq(output_of(&o), "0\n1\n2\n3\n4\n");
    given[0] = 1; /* close-on-exec or not */
    fcntl(1, F_SETFD, FD_CLOEXEC);
    cr_assert_str_eq(output_of(&o), "0\n1\n2\n3\n4\n");
    fcntl(1, F_SETFD, 0);
}

Test(process, directory_and_environment)
{
    char *env[] = {(char *)(uintptr_t) "WEFT=yes", NULL};
    struct weft_process_options o = shell("pwd; echo $WEFT $HOME");
    char directory[] = "/tmp/weft-test-XXXXXX", script[64], here[4096], *text;
    FILE *file;

    cr_assert_not_null(mkdtemp(directory));
    cr_assert_not_null(getcwd(here, sizeof here));
    setenv("HOME", "/home/weft", 1);
    setenv("WEFT", "inherited", 1);
    o.out = WEFT_PROCESS_PIPE;
    text = output_of(&o);
    cr_assert(strncmp(text, here, strlen(here)) == 0 &&
                  strstr(text, "\ninherited /home/weft\n") != NULL,
              "%s", text);
    o.cwd = directory;
    o.env = env;
    text = output_of(&o);
    cr_assert(strncmp(text, directory, strlen(directory)) == 0 && strstr(text, "\nyes\n") != NULL,
              "%s", text);

    /* a relative program is looked for in the directory */
    snprintf(script, sizeof script, "%s/program", directory);
    file = fopen(script, "w");
    fputs("#!/bin/sh\necho $0 $1\n", file);
    fclose(file);
    chmod(script, 0700);
    o = shell("given");
    o.program = "./program";
    o.cwd = directory;
    o.out = WEFT_PROCESS_PIPE;
    if (!on_valgrind())
        cr_assert_str_eq(output_of(&o), "./program -c\n");
    unlink(script);
    rmdir(directory);
}

/* Signals blocked or ignored here are not there. */
Test(process, signals_of_a_child)
{
    struct weft_process_options o = shell("grep -E 'SigBlk|SigIgn' /proc/self/status");
    unsigned long long blocked, ignored;
    sigset_t all, before;
    char *text;

    sigfillset(&all);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    o.out = WEFT_PROCESS_PIPE;
    text = output_of(&o);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    cr_assert_eq(sscanf(text, "SigBlk: %llx SigIgn: %llx", &blocked, &ignored), 2, "%s", text);
    cr_assert_eq(blocked, 0);
    cr_assert(!(ignored >> (SIGPIPE - 1) & 1));
    cr_assert(ignored >> (SIGHUP - 1) & 1, "nohup is the user's wish");
}

Test(process, groups_and_sessions)
{
    const struct {
        unsigned flags;
        bool group, session;
    } kinds[] = {{0, false, false},
                 {WEFT_PROCESS_GROUP, true, false},
                 {WEFT_PROCESS_SESSION, true, true},
                 {WEFT_PROCESS_SESSION | WEFT_PROCESS_GROUP, true, true}};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct weft_process_options o = shell("cat <&4 & wait");
        struct weft_process process;
        int pipes[2], block[2], fds[2], status;
        char byte;

        /* its child, too, has the pipe's end: only when both are gone is that closed */
        cr_assert_eq(pipe2(pipes, O_CLOEXEC), 0);
        cr_assert_eq(pipe2(block, O_CLOEXEC), 0);
        fds[0] = pipes[1];
        fds[1] = block[0];
        o.fds = fds;
        o.fd_count = 2;
        o.flags = kinds[i].flags;
        cr_assert_eq(weft_process_spawn(&process, &o), 0);
        close(pipes[1]);
        cr_assert_eq(getpgid(process.pid) == process.pid, kinds[i].group, "%zu", i);
        cr_assert_eq(getsid(process.pid) == process.pid, kinds[i].session, "%zu", i);
        if (kinds[i].group) {
            cr_assert_eq(weft_process_kill_group(&process, SIGTERM), 0);
            cr_assert_eq(read(pipes[0], &byte, 1), 0, "grandchildren have ended");
            until_ended(process.pid);
            cr_assert_eq(weft_process_kill_group(&process, 0), 0, "nobody has waited for it yet");
            cr_assert_eq(WTERMSIG(weft_process_status(&process)), SIGTERM);
        } else {
            cr_assert_eq(weft_process_kill_group(&process, SIGTERM), -ESRCH, "it leads none");
            cr_assert_eq(weft_process_kill(&process, SIGKILL), 0);
            until_ended(process.pid);
            status = weft_process_status(&process);
            cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%d", status);
        }
        close(pipes[0]);
        close_pair(block);
        weft_process_finish(&process);
    }
}

/* ---- whose children ---- */

/* A status that somebody else has taken is a value. */
static int taken_main(void *unused)
{
    struct weft_process process;
    struct waiter w;
    int status;

    (void)unused;
    spawn_waiting(&process);
    close(process.in);
    cr_assert_eq(waitpid(process.pid, &status, 0), process.pid);
    cr_assert_eq(weft_process_kill(&process, 0), -ESRCH);
    cr_assert_eq(fiber_process_wait(&process, WEFT_FOREVER), -ECHILD);
    cr_assert_eq(fiber_process_wait(&process, WEFT_NOWAIT), -ECHILD);
    weft_process_finish(&process);

    /* while it is waited for */
    signal(SIGCHLD, SIG_IGN);
    spawn_waiting(&process);
    start_waiter(&w, &process);
    fiber_yield();
    if (does_io())
        fiber_nop(WEFT_FOREVER);
    close(process.in);
    until(&w.ended);
    cr_assert_eq(w.result, -ECHILD);
    signal(SIGCHLD, SIG_DFL);
    weft_process_finish(&process);
    return 0;
}

Test(process, a_status_taken_by_others)
{
    ON_EACH_SETUP(taken_main);
}

/* One that a debugger holds has ended, but cannot be waited for: that is no reason to spin. */
static int traced_main(void *unused)
{
    struct weft_process process;
    struct weft_stats before = {.size = sizeof before}, after = before;
    int ready[2], go[2];
    pid_t tracer;
    char byte;

    (void)unused;
    spawn_waiting(&process);
    cr_assert_eq(pipe2(ready, O_CLOEXEC), 0);
    cr_assert_eq(pipe2(go, O_CLOEXEC), 0);
    tracer = fork();
    if (tracer == 0) {
        close(go[1]);
        byte = ptrace(PTRACE_SEIZE, process.pid, NULL, NULL) == 0;
        if (write(ready[1], &byte, 1) != 1 || read(go[0], &byte, 1) < 0)
            _exit(1);
        _exit(0); /* lets go of it */
    }
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    if (byte) {
        cr_assert_eq(weft_process_kill(&process, SIGKILL), 0);
        cr_assert_eq(weft_stats(&before), 0);
        cr_assert_eq(fiber_process_wait(&process, weft_after(WEFT_MS(60))), -ETIMEDOUT);
        cr_assert_eq(weft_stats(&after), 0);
        cr_assert(after.passes - before.passes < 30, "%d", (int)(after.passes - before.passes));
    } else {
        cr_assert_eq(weft_process_kill(&process, SIGKILL), 0); /* forbidden here */
    }
    close(go[1]);
    cr_assert_eq(WTERMSIG(fiber_process_wait(&process, WEFT_FOREVER)), SIGKILL);
    cr_assert_eq(waitpid(tracer, NULL, 0), tracer);
    close(ready[0]);
    close(ready[1]);
    close(go[0]);
    close(process.in);
    weft_process_finish(&process);
    return 0;
}

Test(process, held_by_a_debugger)
{
    if (slow_tools())
        return; /* a fork without exec */
    ON_EACH_SETUP(traced_main);
}

/* ---- letting go ---- */

static int let_go_main(void *unused)
{
    int before = open_descriptors();
    struct weft_process process, other;
    pid_t pids[20];
    int in[20];

    (void)unused;
    /* ended, but not waited for */
    spawn_shell(&process, "exit 0");
    until_ended(process.pid);
    pids[0] = process.pid;
    weft_process_finish(&process);
    cr_assert(!is_child(pids[0]), "reaped at once");
    cr_assert_eq(open_descriptors(), before);
    /* running on */
    for (int i = 0; i < 20; i++) {
        spawn_waiting(&process);
        pids[i] = process.pid;
        in[i] = process.in;
        weft_process_finish(&process);
        cr_assert(is_child(pids[i]));
    }
    for (int i = 0; i < 20; i += 2)
        close(in[i]);
    for (int i = 0; i < 20; i += 2)
        until_ended(pids[i]);
    spawn_shell(&other, "exit 0"); /* looks through them */
    for (int i = 0; i < 20; i++)
        cr_assert_eq(is_child(pids[i]), i % 2 == 1, "%d", i);
    for (int i = 1; i < 20; i += 2)
        close(in[i]);
    for (int i = 1; i < 20; i += 2)
        until_ended(pids[i]);
    cr_assert_eq(fiber_process_wait(&other, WEFT_FOREVER), 0);
    weft_process_finish(&other);
    for (int i = 0; i < 20; i++)
        cr_assert(!is_child(pids[i]), "%d", i);
    cr_assert_eq(open_descriptors(), before);
    return 0;
}

Test(process, let_go)
{
    ON_EACH_SETUP(let_go_main);
}

/* Under waiters: they are told, and nothing is left of it. */
static int under_waiters_main(void *unused)
{
    int before = open_descriptors();

    (void)unused;
    for (int i = 0; i < 4; i++) {
        struct weft_process process;
        struct waiter a, b;
        int in;

        spawn_waiting(&process);
        in = process.in;
        start_waiter(&a, &process);
        start_waiter(&b, &process);
        fiber_yield();
        if (i % 2 && does_io())
            fiber_nop(WEFT_FOREVER); /* the poll is the kernel's */
        if (i >= 2) {
            close(in); /* it ends at the same time */
            until_ended(process.pid);
        }
        weft_process_finish(&process);
        until(&a.ended);
        until(&b.ended);
        cr_assert(a.result == -ECANCELED && b.result == -ECANCELED, "%d %d", a.result, b.result);
        if (i < 2)
            close(in);
        while (weft__rt->engine->in_flight > 0)
            fiber_yield();
    }
    /* the last of them may run on for a moment */
    while (open_descriptors() > before) {
        struct weft_process process;

        spawn_shell(&process, "exit 0");
        cr_assert_eq(fiber_process_wait(&process, WEFT_FOREVER), 0);
        weft_process_finish(&process);
    }
    return 0;
}

Test(process, finished_under_waiters)
{
    ON_EACH_SETUP(under_waiters_main);
}

/* The child of a fork has its parent's objects, but not its children. */
static int fork_main(void *unused)
{
    struct weft_process process, dropped;
    int status, in;
    pid_t child;

    (void)unused;
    spawn_waiting(&process);
    spawn_waiting(&dropped);
    in = dropped.in;
    weft_process_finish(&dropped);
    child = fork();
    if (child == 0) {
        struct weft_process own;
        int wrong = weft_process_status(&process) != -ECHILD;

        weft_process_finish(&process);
        spawn_shell(&own, "exit 9");
        until_ended(own.pid);
        wrong |= WEXITSTATUS(weft_process_status(&own)) != 9;
        weft_process_finish(&own);
        _exit(wrong);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%d", status);
    close(process.in);
    close(in);
    cr_assert_eq(WEXITSTATUS(fiber_process_wait(&process, WEFT_FOREVER)), 3);
    weft_process_finish(&process);
    return 0;
}

Test(process, after_fork)
{
    if (slow_tools())
        return;
    ON_EACH_SETUP(fork_main);
}

/* A process outlives the runtime in which it was waited for. */
static struct weft_process lasting;

static int first_main(void *unused)
{
    static struct waiter w;

    (void)unused;
    start_waiter(&w, &lasting);
    fiber_yield();
    return 0;
}

static int second_main(void *unused)
{
    (void)unused;
    cr_assert_eq(fiber_process_wait(&lasting, weft_after(WEFT_MS(1))), -ETIMEDOUT);
    close(lasting.in);
    cr_assert_eq(WEXITSTATUS(fiber_process_wait(&lasting, WEFT_FOREVER)), 3);
    return 0;
}

Test(process, one_runtime_after_the_other)
{
    EACH_PROCESS_SETUP(setup)
    {
        spawn_waiting(&lasting);
        cr_assert_eq(run_on(setup, first_main, NULL), 0, "%s", setup->name);
        cr_assert_eq(run_on(setup, second_main, NULL), 0, "%s", setup->name);
        weft_process_finish(&lasting);
    }
}
