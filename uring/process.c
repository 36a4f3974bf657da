/* process.c: child processes.
 *
 * A process is waited for by its pidfd, which names it and no other, whatever becomes of its number.
 * Where there is none (an old kernel, a seccomp profile, no descriptor left), its number does: that
 * is not used again before the process has been waited for.
 *
 * Processes let go before they have ended are kept in a list of the whole program, `orphans`, and are
 * reaped when the list is looked through: at each spawn and each letting go. Room in it is reserved
 * when a process is started, so that letting go cannot fail.
 *
 * The child is made by posix_spawn: the C library knows best how to run code between fork and exec
 * in a program with threads, and the parent's memory is not copied.
 */
#include <weft/process.h>

#include "source.h"

#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

_Static_assert(sizeof(void *) != 8 || sizeof(struct weft_process_options) == 104,
               "part of the ABI");

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#define BY_PIDFD ((idtype_t)3) /* P_PIDFD */

struct ring__process {
    struct ring__source source; /* fd: the pidfd */
    pid_t pid;
    int status; /* -EAGAIN: it hasn't been waited for */
};

bool ring__no_pidfd;

/* ---- ends ---- */

/* A pidfd of an own child that hasn't been waited for, or -1. */
static int open_pidfd(pid_t pid)
{
    return ring__no_pidfd ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
}

static int status_of(const siginfo_t *info)
{
    switch (info->si_code) {
    case CLD_EXITED:
        return (info->si_status & 0xff) << 8;
    case CLD_DUMPED:
        return info->si_status | 0x80;
    default:
        return info->si_status;
    }
}

/* Waits for an end, if it has come: the status, -EAGAIN, or -ECHILD: somebody else has done so. */
static int reap(pid_t pid, int pidfd)
{
    siginfo_t info;
    int rc;

    do {
        info.si_pid = 0;
        rc = pidfd < 0 ? -1 : waitid(BY_PIDFD, (id_t)pidfd, &info, WEXITED | WNOHANG);
        if (pidfd < 0 || (rc < 0 && errno == EINVAL)) /* 5.3: no waiting by pidfd yet */
            rc = waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG);
    } while (rc < 0 && errno == EINTR);
    if (rc < 0)
        return -errno;
    return info.si_pid == 0 ? -EAGAIN : status_of(&info);
}

static int take_status(struct ring__source *source, void *unused)
{
    struct ring__process *process = weft__container(source, struct ring__process, source);
    int saved = errno;

    (void)unused;
    if (process->status == -EAGAIN)
        process->status = reap(process->pid, source->fd);
    errno = saved;
    return process->status;
}

/* ---- orphans ---- */

struct orphan {
    pid_t pid;
    int pidfd; /* or -1 */
};

static struct {
    pthread_mutex_t lock;
    struct orphan *list;
    size_t count, reserved, room;
} orphans = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* What the parent let go is no child of this process. Its descriptors are shared with nobody. */
static void disown(void)
{
    pthread_mutex_init(&orphans.lock, NULL);
    for (size_t i = 0; i < orphans.count; i++)
        if (orphans.list[i].pidfd >= 0)
            close(orphans.list[i].pidfd);
    orphans.reserved -= orphans.count;
    orphans.count = 0;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, disown);
}

/* Reaps those that have ended. Locked. */
static void reap_orphans(void)
{
    size_t left = 0;

    for (size_t i = 0; i < orphans.count; i++) {
        struct orphan orphan = orphans.list[i];

        if (reap(orphan.pid, orphan.pidfd) == -EAGAIN) {
            orphans.list[left++] = orphan;
        } else if (orphan.pidfd >= 0) {
            close(orphan.pidfd);
        }
    }
    orphans.reserved -= orphans.count - left;
    orphans.count = left;
}

/* 0 or -ENOMEM. */
static int reserve_orphan(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int rc = 0;

    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&orphans.lock);
    reap_orphans();
    if (orphans.reserved == orphans.room) {
        size_t room = orphans.room == 0 ? 16 : orphans.room * 2;
        struct orphan *list = realloc(orphans.list, room * sizeof *list);

        if (list == NULL) {
            rc = -ENOMEM;
        } else {
            orphans.list = list;
            orphans.room = room;
        }
    }
    if (rc == 0)
        orphans.reserved++;
    pthread_mutex_unlock(&orphans.lock);
    return rc;
}

/* Uses a place that was reserved, or gives it back. */
static void leave_to_orphans(const struct orphan *orphan)
{
    pthread_mutex_lock(&orphans.lock);
    if (orphan != NULL)
        orphans.list[orphans.count++] = *orphan;
    else
        orphans.reserved--;
    reap_orphans();
    pthread_mutex_unlock(&orphans.lock);
}

__attribute__((destructor)) static void free_orphans(void)
{
    free(orphans.list);
    orphans.list = NULL;
    orphans.count = orphans.reserved = orphans.room = 0;
}

/* ---- letting go ---- */

static void free_process(struct ring__source *source)
{
    struct ring__process *process = weft__container(source, struct ring__process, source);
    struct orphan orphan = {process->pid, source->fd};
    int saved = errno;

    if (process->status == -EAGAIN) {
        leave_to_orphans(&orphan);
    } else {
        if (source->fd >= 0)
            close(source->fd);
        leave_to_orphans(NULL);
    }
    errno = saved;
    free(process);
}

static const struct ring__source_class process_class = {
    .what = "a process",
    .timed = true,
    .take = take_status,
    .free = free_process,
};

static void clear(struct weft_process *process)
{
    *process = (struct weft_process){.in = -1, .out = -1, .err = -1};
}

void weft_process_finish(struct weft_process *process)
{
    struct ring__process *inside = process == NULL ? NULL : process->inside;

    if (inside != NULL) {
        clear(process);
        ring__source_close(&inside->source);
    }
}

/* ---- starting ---- */

enum { STDIO = 3, TARGETS = STDIO + WEFT_PROCESS_FDS_MAX };

/* What a child is given: source[i] becomes its descriptor i. */
struct plan {
    int count;                                 /* of targets */
    int source[TARGETS];                       /* -1: as it is */
    int opened[TARGETS + STDIO], opened_count; /* to be closed here, whatever comes */
    int ours[STDIO];                           /* this process's ends of pipes, or -1 */
};

/* Remembers a descriptor that is closed when the plan is carried out. A negative errno passes. */
static int keep(struct plan *plan, int fd)
{
    if (fd < 0)
        return -errno;
    plan->opened[plan->opened_count++] = fd;
    return fd;
}

static int plan_stdio(struct plan *plan, int target, int wanted)
{
    int ends[2], theirs = target == STDIN_FILENO ? 0 : 1;

    switch (wanted) {
    case WEFT_PROCESS_INHERIT:
        return 0;
    case WEFT_PROCESS_NULL:
        wanted = keep(plan, open("/dev/null", O_RDWR | O_CLOEXEC));
        if (wanted < 0)
            return wanted;
        break;
    case WEFT_PROCESS_PIPE:
        if (pipe2(ends, O_CLOEXEC) < 0)
            return -errno;
        plan->ours[target] = ends[!theirs];
        wanted = keep(plan, ends[theirs]);
        break;
    case WEFT_PROCESS_OUT:
        wanted = plan->source[STDOUT_FILENO] >= 0 ? plan->source[STDOUT_FILENO] : STDOUT_FILENO;
        break;
    }
    plan->source[target] = wanted;
    return 0;
}

/* Moves sources out of the way of targets, so that none is overwritten before it is used. */
static int plan_moves(struct plan *plan)
{
    for (int i = 0; i < plan->count; i++) {
        int fd = plan->source[i];

        if (fd < 0 || fd == i || fd >= plan->count)
            continue;
        fd = keep(plan, fcntl(fd, F_DUPFD_CLOEXEC, plan->count));
        if (fd < 0)
            return fd == -EINVAL ? -EMFILE : fd; /* the limit is below the first one wanted */
        plan->source[i] = fd;
    }
    return 0;
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

/* Before anything is opened, which might get the very number that is bad. */
static int check_descriptors(const struct weft_process_options *o)
{
    const int wanted[STDIO] = {o->in, o->out, o->err};

    for (int i = 0; i < STDIO; i++)
        if (wanted[i] != WEFT_PROCESS_INHERIT && wanted[i] != WEFT_PROCESS_NULL &&
            wanted[i] != WEFT_PROCESS_PIPE &&
            !(wanted[i] == WEFT_PROCESS_OUT && i == STDERR_FILENO) && !is_open(wanted[i]))
            return -EBADF;
    for (size_t i = 0; i < o->fd_count; i++)
        if (!is_open(o->fds[i]))
            return -EBADF;
    return 0;
}

static int make_plan(struct plan *plan, const struct weft_process_options *o)
{
    const int wanted[STDIO] = {o->in, o->out, o->err};
    int rc = check_descriptors(o);

    plan->count = STDIO + (int)o->fd_count;
    plan->opened_count = 0;
    for (int i = 0; i < STDIO; i++)
        plan->source[i] = plan->ours[i] = -1;
    for (int i = 0; i < STDIO && rc == 0; i++)
        rc = plan_stdio(plan, i, wanted[i]);
    for (size_t i = 0; i < o->fd_count; i++)
        plan->source[STDIO + i] = o->fds[i];
    return rc == 0 ? plan_moves(plan) : rc;
}

static void finish_plan(struct plan *plan)
{
    for (int i = 0; i < plan->opened_count; i++)
        close(plan->opened[i]);
}

static int set_actions(posix_spawn_file_actions_t *actions, const struct plan *plan,
                       const char *cwd)
{
    int rc = 0;

    /* one that is in its place already only loses its close-on-exec */
    for (int i = 0; i < plan->count && rc == 0; i++)
        if (plan->source[i] >= 0)
            rc = posix_spawn_file_actions_adddup2(actions, plan->source[i], i);
    if (rc == 0)
        rc = posix_spawn_file_actions_addclosefrom_np(actions, plan->count);
    if (rc == 0 && cwd != NULL)
        rc = posix_spawn_file_actions_addchdir_np(actions, cwd);
    return rc;
}

static int set_attributes(posix_spawnattr_t *attributes, unsigned wanted)
{
    short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
    sigset_t none, pipe;
    int rc;

    sigemptyset(&none);
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    if (wanted & WEFT_PROCESS_SESSION)
        flags |= POSIX_SPAWN_SETSID;
    else if (wanted & WEFT_PROCESS_GROUP)
        flags |= POSIX_SPAWN_SETPGROUP; /* 0, the default: its own */
    rc = posix_spawnattr_setflags(attributes, flags);
    if (rc == 0)
        rc = posix_spawnattr_setsigmask(attributes, &none);
    return rc == 0 ? posix_spawnattr_setsigdefault(attributes, &pipe) : rc;
}

/* 0 and *pid, or a negative errno. */
static int execute(const struct plan *plan, const struct weft_process_options *o, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int rc;

    rc = posix_spawn_file_actions_init(&actions);
    if (rc != 0)
        return -rc;
    rc = posix_spawnattr_init(&attributes);
    if (rc == 0) {
        rc = set_actions(&actions, plan, o->cwd);
        if (rc == 0)
            rc = set_attributes(&attributes, o->flags);
        if (rc == 0)
            rc = posix_spawnp(pid, o->program != NULL ? o->program : o->argv[0], &actions,
                              &attributes, o->argv, o->env != NULL ? o->env : environ);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return -rc;
}

/* With a place among the orphans reserved. */
static int start(struct weft_process *process, const struct weft_process_options *o)
{
    struct ring__process *inside = malloc(sizeof *inside);
    struct plan plan;
    pid_t pid;
    int rc;

    if (inside == NULL)
        return -ENOMEM;
    rc = make_plan(&plan, o);
    if (rc == 0)
        rc = execute(&plan, o, &pid);
    finish_plan(&plan);
    if (rc < 0) {
        for (int i = 0; i < STDIO; i++)
            if (plan.ours[i] >= 0)
                close(plan.ours[i]);
        free(inside);
        return rc;
    }
    ring__source_init(&inside->source, &process_class, open_pidfd(pid));
    inside->pid = pid;
    inside->status = -EAGAIN;
    *process = (struct weft_process){
        .pid = pid, .in = plan.ours[0], .out = plan.ours[1], .err = plan.ours[2], .inside = inside};
    return 0;
}

int weft_process_spawn(struct weft_process *process, const struct weft_process_options *options)
{
    struct weft_process_options o = {0};
    int saved = errno, rc = -EINVAL;

    if (process == NULL)
        return -EINVAL;
    clear(process);
    if (options == NULL || options->size < offsetof(struct weft_process_options, program) ||
        options->size > sizeof o)
        return -EINVAL;
    memcpy(&o, options, options->size);
    if (o.argv == NULL || o.argv[0] == NULL || o.fd_count > WEFT_PROCESS_FDS_MAX ||
        (o.fds == NULL && o.fd_count > 0) ||
        (o.flags & ~(WEFT_PROCESS_GROUP | WEFT_PROCESS_SESSION)) != 0)
        return -EINVAL;
    rc = reserve_orphan();
    if (rc == 0) {
        rc = start(process, &o);
        if (rc < 0)
            leave_to_orphans(NULL);
    }
    errno = saved;
    return rc;
}

/* ---- looking, and signals ---- */

int weft_process_status(struct weft_process *process)
{
    return process == NULL || process->inside == NULL ? -EINVAL
                                                      : take_status(&process->inside->source, NULL);
}

int ring__process_known(const struct weft_process *process)
{
    return process == NULL || process->inside == NULL ? -EINVAL : process->inside->status;
}

struct ring__source *ring__process_source(struct weft_process *process)
{
    return process == NULL || process->inside == NULL ? NULL : &process->inside->source;
}

static int send_by_pidfd(const struct ring__process *process, int signal)
{
    if (process->source.fd < 0)
        return -ENOSYS;
    return syscall(SYS_pidfd_send_signal, process->source.fd, signal, NULL, 0) < 0 ? -errno : 0;
}

int weft_process_kill(struct weft_process *process, int signal)
{
    int known = ring__process_known(process), saved = errno, rc;

    if (known != -EAGAIN)
        return known == -EINVAL ? -EINVAL : -ESRCH;
    rc = send_by_pidfd(process->inside, signal);
    if (rc == -ENOSYS || rc == -EPERM) /* EPERM: perhaps it is only this call that is forbidden */
        rc = kill(process->pid, signal) == 0 ? 0 : -errno;
    errno = saved;
    return rc;
}

int weft_process_kill_group(struct weft_process *process, int signal)
{
    int known = ring__process_known(process), saved = errno, rc;

    if (known != -EAGAIN)
        return known == -EINVAL ? -EINVAL : -ESRCH;
    rc = kill(-process->pid, signal) == 0 ? 0 : -errno;
    errno = saved;
    return rc;
}
