/* signals.c: signals, read from a signalfd by the thread that blocks them.
 *
 * What is blocked is the thread's, and shared by all objects that hold a signal there: each signal is
 * counted, and unblocked by the last to let go if it was blocked by the first.
 */
#include <weft/signals.h>

#include "source.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

struct held {
    uint32_t count[_NSIG];
    bool was_open[_NSIG]; /* not blocked before somebody held it */
};

static _Thread_local struct held held;

struct weft_signals {
    struct ring__source source;
    sigset_t set;
    struct held *held; /* of the thread that created it */
};

/* ---- what is blocked ---- */

static void hold(const sigset_t *set)
{
    sigset_t before;

    pthread_sigmask(SIG_BLOCK, set, &before);
    for (int i = 1; i < _NSIG; i++)
        if (sigismember(set, i) == 1 && held.count[i]++ == 0)
            held.was_open[i] = sigismember(&before, i) == 0;
}

static void let_go(const sigset_t *set)
{
    sigset_t open;

    sigemptyset(&open);
    for (int i = 1; i < _NSIG; i++)
        if (sigismember(set, i) == 1 && --held.count[i] == 0 && held.was_open[i])
            sigaddset(&open, i);
    pthread_sigmask(SIG_UNBLOCK, &open, NULL);
}

/* ---- the object ---- */

static int take_signal(struct ring__source *source, void *out)
{
    struct signalfd_siginfo here, *info = out != NULL ? out : &here;
    int saved = errno, rc;
    ssize_t size;

    do
        size = read(source->fd, info, sizeof *info);
    while (size < 0 && errno == EINTR);
    rc = size < 0 ? -errno : (int)info->ssi_signo;
    errno = saved;
    return rc;
}

static void free_signals(struct ring__source *source)
{
    ring__close_now(source->fd);
    free(weft__container(source, struct weft_signals, source));
}

static const struct ring__source_class signals_class = {
    .what = "a signal",
    .take = take_signal,
    .free = free_signals,
};

static bool can_be_held(int signal)
{
    switch (signal) {
    case SIGKILL:
    case SIGSTOP:
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
        return false;
    default:
        return true;
    }
}

/* 0 or -EINVAL. */
static int make_set(sigset_t *set, const int *signals, size_t count)
{
    static const int stop[] = {SIGINT, SIGTERM};

    if (count == 0) {
        signals = stop;
        count = 2;
    }
    sigemptyset(set);
    for (size_t i = 0; i < count; i++)
        if (!can_be_held(signals[i]) || sigaddset(set, signals[i]) < 0)
            return -EINVAL;
    return 0;
}

static int create(struct weft_signals **out, const int *signals, size_t count)
{
    struct weft_signals *created;
    sigset_t set;
    int fd, rc;

    rc = make_set(&set, signals, count);
    if (rc < 0)
        return rc;
    created = malloc(sizeof *created);
    if (created == NULL)
        return -ENOMEM;
    hold(&set);
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0) {
        rc = -errno;
        let_go(&set);
        free(created);
        return rc;
    }
    ring__source_init(&created->source, &signals_class, fd);
    created->set = set;
    created->held = &held;
    *out = created;
    return 0;
}

int weft_signals_create(struct weft_signals **out, const int *signals, size_t count)
{
    int saved = errno, rc;

    if (out == NULL)
        return -EINVAL;
    *out = NULL;
    rc = signals == NULL && count > 0 ? -EINVAL : create(out, signals, count);
    errno = saved;
    return rc;
}

void weft_signals_destroy(struct weft_signals *signals)
{
    if (signals == NULL)
        return;
    if (signals->held == &held)
        let_go(&signals->set);
    ring__source_close(&signals->source);
}

struct ring__source *ring__signals_source(struct weft_signals *signals)
{
    return signals == NULL ? NULL : &signals->source;
}
