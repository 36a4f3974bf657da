/* weft/process.h: child processes: starting one, waiting for its end, sending it signals.
 *
 *     char *argv[] = {"gzip", "-c", NULL};
 *     struct weft_process_options o = WEFT_PROCESS_OPTIONS_INIT;
 *     struct weft_process gzip;
 *     o.argv = argv, o.in = file, o.out = WEFT_PROCESS_PIPE;
 *     int error = weft_process_spawn(&gzip, &o);
 *     ... fiber_read(gzip.out, ...) until it returns 0, fiber_close(gzip.out) ...
 *     int status = fiber_process_wait(&gzip, WEFT_FOREVER);
 *     weft_process_finish(&gzip);
 *
 * Only processes started here are ever waited for, each by itself: there is no handler of SIGCHLD
 * and no wait for "any child", so children of other parts of the program, and of other runtimes, are
 * left alone. If the program ignores SIGCHLD, or another part of it waits for any child, the status
 * of a process may be gone before it is asked for: then it is -ECHILD.
 *
 * A process belongs to one thread at a time.
 */
#ifndef WEFT_PROCESS_H
#define WEFT_PROCESS_H

#include <weft/base.h>

#include <sys/types.h>
#include <sys/wait.h>

WEFT_BEGIN_DECLS

struct promise;
struct ring__process;

/* A child process, in the caller's memory. `pid` is public and read-only. `in`, `out` and `err` are
 * this process's ends of the pipes that were asked for, else -1: blocking, close-on-exec, and the
 * caller's to close. `inside` is private. */
struct weft_process {
    pid_t pid;
    int in, out, err;
    struct ring__process *inside;
    uint64_t reserved[2];
};

#ifdef __cplusplus
static_assert(sizeof(void *) != 8 || sizeof(struct weft_process) == 40, "part of the ABI");
#else
_Static_assert(sizeof(void *) != 8 || sizeof(struct weft_process) == 40, "part of the ABI");
#endif

/* What a process may have as standard input, output and error, besides a descriptor. */
#define WEFT_PROCESS_INHERIT 0        /* what this process has there */
#define WEFT_PROCESS_NULL    (-65536) /* /dev/null */
#define WEFT_PROCESS_PIPE    (-65537) /* a new pipe: see struct weft_process */
#define WEFT_PROCESS_OUT     (-65538) /* `err` only: where `out` goes */

#define WEFT_PROCESS_GROUP   1u /* the leader of a new process group */
#define WEFT_PROCESS_SESSION 2u /* the leader of a new session, and so of a new group */

#define WEFT_PROCESS_FDS_MAX 64

/* What to start. Zero-initialise, set `size` and `argv`, then what you need. All fields are public,
 * and are only read during the call. */
struct weft_process_options {
    size_t size;         /* sizeof(struct weft_process_options), for later growth */
    char *const *argv;   /* the arguments, NULL at the end; argv[0] is the name it goes by */
    const char *program; /* the file to execute; without a slash it is looked for in this process's
                          * PATH; NULL: argv[0] */
    char *const *env;    /* "NAME=value", NULL at the end; NULL: this process's environment */
    const char *cwd;     /* its working directory; a relative program is looked for there;
                          * NULL: this process's */
    int in, out, err;    /* descriptors, which stay the caller's, or WEFT_PROCESS_* */
    unsigned flags;      /* WEFT_PROCESS_GROUP, WEFT_PROCESS_SESSION */
    const int *fds;      /* descriptors that it gets beside these, as 3, 4, ... */
    size_t fd_count;     /* at most WEFT_PROCESS_FDS_MAX */
    uint64_t reserved[4];
};
#define WEFT_PROCESS_OPTIONS_INIT                   \
    {                                               \
        .size = sizeof(struct weft_process_options) \
    }

/* Starts a process. It gets the descriptors asked for and no others, close-on-exec or not; no signal
 * blocked; and SIGPIPE at its default (other ignored signals stay ignored). Waits until the program
 * is executing, so a program that cannot be executed is this call's error, and no child is left.
 *
 * process: receives the process; it must be finished with weft_process_finish.
 * Returns 0; -ENOENT, -EACCES, -ENOEXEC and what else execve(2) and chdir(2) say; -EBADF for a
 * descriptor that is none; -EMFILE, -ENFILE, -ENOMEM, -EAGAIN when there is no room for a pipe, or
 * for a process; -EINVAL for NULL, no argv[0], unknown flags or sizes, and more than
 * WEFT_PROCESS_FDS_MAX descriptors. After an error `process` is as one finished.
 * Any thread, with or without a runtime; blocks the thread until the program is executing (usually
 * less than a millisecond, unless its file is slow to read); doesn't suspend. Since 0.1. */
WEFT_API WEFT_NODISCARD int weft_process_spawn(struct weft_process *process,
                                               const struct weft_process_options *options);

/* Sends a signal (0: only looks whether it is there): to the process, or to the process group that
 * it leads (WEFT_PROCESS_GROUP or WEFT_PROCESS_SESSION). It can hit no other: a number is not used
 * again as long as its end has not been waited for, and then nothing is sent.
 * Returns 0, also if it has ended but nobody has seen that yet; -ESRCH when its end has been waited
 * for; -EPERM; -EINVAL for a bad signal, and for a process that is finished.
 * The thread it belongs to, callbacks too; doesn't suspend. Since 0.1. */
WEFT_API int weft_process_kill(struct weft_process *process, int signal);
WEFT_API int weft_process_kill_group(struct weft_process *process, int signal);

/* Looks whether it has ended, and doesn't wait. Returns the status as fiber_process_wait does, or
 * -EAGAIN while it runs. The thread it belongs to; needs no runtime; doesn't suspend. Since 0.1. */
WEFT_API int weft_process_status(struct weft_process *process);

/* Lets go of a process. Its pipes stay the caller's. Those who still wait for it get -ECANCELED.
 * If it runs on, it does so by itself: it is not killed. When it has ended it is reaped by a later
 * weft_process_spawn or weft_process_finish of any thread, so at most those stay behind as zombies
 * that have ended since; to have it reaped at once, wait for it (a dropped promise_process_wait
 * will do). Does nothing for NULL and for a process that is zero-initialised or finished.
 * The thread it belongs to, callbacks too; doesn't suspend. Since 0.1. */
WEFT_API void weft_process_finish(struct weft_process *process);

#if WEFT_HAS_FIBERS
/* Waits until the process has ended.
 *
 * Returns its status as waitpid(2) gives it, >= 0: 0 is success, else take it apart with WIFEXITED,
 * WEXITSTATUS, WIFSIGNALED and WTERMSIG of sys/wait.h. It is kept: waiting again gives it again, and
 * any number may wait. -ECHILD: it has ended, and somebody else has taken its status.
 * -ETIMEDOUT when the deadline passed first; -ECANCELED when the fiber is cancelled, or the process
 * finished; -EDEADLK on the base stack; -EINVAL without a runtime, or for a process that is
 * finished. A status that is there is returned before deadline and cancellation count.
 * Works with every engine. Where the kernel has no pidfd (before 5.3, or forbidden), or the engine
 * does no I/O, the process is asked again and again: after 1 ms, and then in intervals that grow to
 * 50 ms. Fiber only. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_process_wait(struct weft_process *process, weft_time deadline);
#endif

/* The same as a promise, fulfilled with the status. Never NULL; a failure (-ENOMEM too) is a rejected
 * promise. Canceling it rejects it at once and leaves the process alone. Runtime's thread, callbacks
 * too; doesn't suspend. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_process_wait(struct weft_process *process,
                                                             weft_time deadline);

WEFT_END_DECLS

#endif
