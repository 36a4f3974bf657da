/* weft/watch.h: what happens to files and directories, as a stream of events: inotify(7).
 *
 *     struct weft_watch *watch;
 *     struct weft_watch_event event;
 *     weft_watch_create(&watch);
 *     weft_watch_add(watch, "/etc/app", IN_CLOSE_WRITE | IN_MOVED_TO);
 *     while (fiber_watch_next(watch, &event, WEFT_FOREVER) == 0)
 *         reload(event.name);
 *
 * The kernel queues events from weft_watch_add on, so none is lost between two waits, up to its
 * bound (fs.inotify.max_queued_events). Beyond it the kernel drops events and says so by one with
 * IN_Q_OVERFLOW: then look at the files themselves.
 */
#ifndef WEFT_WATCH_H
#define WEFT_WATCH_H

#include <weft/base.h>

#include <sys/inotify.h>

WEFT_BEGIN_DECLS

struct promise;
struct weft_watch;

#define WEFT_WATCH_CUT 0x00100000u /* in `mask`: the name is longer, and cut; see below */

/* One event, in the caller's memory. */
struct weft_watch_event {
    int wd;          /* whose: what weft_watch_add returned; -1: IN_Q_OVERFLOW */
    uint32_t mask;   /* what has happened: IN_* of inotify(7) */
    uint32_t cookie; /* the same in the two events of a renaming */
    uint32_t length; /* of the name */
    /* Of the file in the watched directory; "" if the event is about what is watched itself. Some file
     * systems have names longer than 255 bytes. */
    char name[256];
};

/* Makes an object that watches nothing yet. out: receives it, or NULL.
 * Returns 0; -EMFILE when the user's bound (fs.inotify.max_user_instances) or the process's on
 * descriptors is reached; -ENFILE, -ENOMEM; -EINVAL for NULL. Any thread, with or without a runtime;
 * doesn't suspend. Since 0.1. */
WEFT_API WEFT_NODISCARD int weft_watch_create(struct weft_watch **out);

/* Ends it. Events not yet taken are gone; those who still wait get -ECANCELED. NULL is fine. The
 * thread it belongs to, callbacks too; doesn't suspend. Since 0.1. */
WEFT_API void weft_watch_destroy(struct weft_watch *watch);

/* Watches a path: a file, or a directory and what is directly in it. mask: IN_* of inotify(7); a path
 * (an inode) that is watched already has its mask replaced, or with IN_MASK_ADD widened, and its
 * number stays.
 * Returns its number, > 0; -ENOENT, -EACCES, -ENOTDIR and what else finding a path may say; -ENOSPC
 * when the user's bound (fs.inotify.max_user_watches) is reached; -EEXIST for IN_MASK_CREATE; -ENOMEM;
 * -EINVAL for an empty mask, or for NULL. The thread it belongs to, callbacks too; doesn't suspend.
 * Since 0.1. */
WEFT_API int weft_watch_add(struct weft_watch *watch, const char *path, uint32_t mask);

/* Stops watching it. What has happened before stays to be taken, and an IN_IGNORED comes last.
 * Returns 0, or -EINVAL for a number that isn't (or no longer) in use, or for NULL. The thread it
 * belongs to, callbacks too; doesn't suspend. Since 0.1. */
WEFT_API int weft_watch_remove(struct weft_watch *watch, int wd);

#if WEFT_HAS_FIBERS
/* Waits for the next event, and takes it. Several waiters are served in the order they came, each
 * with an event of its own. event: receives it; may be NULL.
 *
 * Returns 0; -ETIMEDOUT when the deadline passed first (WEFT_NOWAIT: there is none); -ECANCELED when
 * the fiber is cancelled, or the object destroyed; -ENOSYS when the engine does no I/O; -EDEADLK on the
 * base stack; -EINVAL without a runtime, or for NULL. Fiber only. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_watch_next(struct weft_watch *watch,
                                             struct weft_watch_event *event, weft_time deadline);
#endif

/* The same as a promise, fulfilled with 0. `event` (may be NULL) is the operation's until the promise
 * is settled. Never NULL; a failure (-ENOMEM too) is a rejected promise. Canceling it rejects it at
 * once, and takes no event; merely dropped, it takes one. Runtime's thread, callbacks too; doesn't
 * suspend. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *
promise_watch_next(struct weft_watch *watch, struct weft_watch_event *event, weft_time deadline);

WEFT_END_DECLS

#endif
