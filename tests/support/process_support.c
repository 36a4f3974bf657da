/* process_support.c: see process_support.h. */
#include "process_support.h"

#include <criterion/criterion.h>
#include <sys/wait.h>

struct weft_process_options shell(const char *script)
{
    static _Thread_local char *argv[4];
    struct weft_process_options options = WEFT_PROCESS_OPTIONS_INIT;

    argv[0] = (char *)(uintptr_t) "sh";
    argv[1] = (char *)(uintptr_t) "-c";
    argv[2] = (char *)(uintptr_t)script;
    options.program = "/bin/sh";
    options.argv = argv;
    return options;
}

void spawn_shell(struct weft_process *process, const char *script)
{
    struct weft_process_options options = shell(script);
    int rc = weft_process_spawn(process, &options);

    cr_assert_eq(rc, 0, "spawn: %d", rc);
    cr_assert(process->pid > 0);
}

void spawn_waiting(struct weft_process *process)
{
    struct weft_process_options options = shell("cat >/dev/null; exit 3");
    int rc;

    options.in = WEFT_PROCESS_PIPE;
    rc = weft_process_spawn(process, &options);
    cr_assert_eq(rc, 0, "spawn: %d", rc);
    cr_assert(process->in >= 0 && process->out == -1 && process->err == -1);
}

void until_ended(pid_t pid)
{
    siginfo_t info;

    while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) < 0)
        cr_assert_eq(errno, EINTR);
}

bool is_child(pid_t pid)
{
    siginfo_t info;

    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | WNOHANG) == 0;
}
