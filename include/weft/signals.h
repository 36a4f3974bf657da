/* weft/signals.h: signals as events: waited for in fibers and by promises, never handled in a signal
 * handler.
 *
 *     struct weft_signals *stop;
 *     weft_signals_create(&stop, NULL, 0);              in main, before there are other threads
 *     ...
 *     fiber_signals_wait(stop, NULL, WEFT_FOREVER);     SIGINT or SIGTERM has come
 *
 * A signal that is held is blocked in the thread, and so stays pending until somebody waits for it:
 * none is lost between weft_signals_create and a wait, nor between two waits. As always, a signal
 * below SIGRTMIN that is pending already is not noted a second time; those from SIGRTMIN on queue.
 *
 * Threads. The kernel gives a signal sent to the process to any thread that doesn't block it, and
 * there its default action, or its handler, takes it. So all threads must block it: create the
 * weft_signals before other threads are started, since they inherit what is blocked. (The threads of
 * workers and of blocking calls block all but those of a thread's own faults.) Programs started with
 * weft_process_spawn have no signal blocked; with fork and exec they inherit it.
 */
#ifndef WEFT_SIGNALS_H
#define WEFT_SIGNALS_H

#include <weft/base.h>

#include <sys/signalfd.h>

WEFT_BEGIN_DECLS

struct promise;
struct weft_signals;

/* Holds signals: blocks them in the calling thread, to be waited for. signals: `count` signal
 * numbers, copied; none: SIGINT and SIGTERM, with which programs are asked to end. out: receives the
 * object, or NULL. A thread may have several; a signal held by more than one goes to one of them.
 *
 * Returns 0; -EINVAL for a NULL `out`, a number that is no signal, or a signal that cannot be waited
 * for: SIGKILL, SIGSTOP, and those by which a thread is told of its own faults (SIGSEGV, SIGBUS,
 * SIGFPE, SIGILL); -EMFILE, -ENFILE, -ENOMEM. After an error nothing is blocked that wasn't before.
 * Any thread, with or without a runtime; doesn't suspend. Since 0.1. */
WEFT_API WEFT_NODISCARD int weft_signals_create(struct weft_signals **out, const int *signals,
                                                size_t count);

/* Lets go of the signals: each that no other weft_signals of the thread holds, and that wasn't blocked
 * before, is unblocked. One that is still pending is then delivered: its action is taken as if it had
 * been sent now. Those who still wait get -ECANCELED. NULL is fine. On another thread than the one
 * that created it, what is blocked there stays blocked. Doesn't suspend. Since 0.1. */
WEFT_API void weft_signals_destroy(struct weft_signals *signals);

#if WEFT_HAS_FIBERS
/* Waits for one of the signals, and takes it. Several waiters are served in the order they came, each
 * with a signal of its own. info: receives what signalfd(2) tells (who sent it, ...); may be NULL.
 *
 * Returns the signal's number; -ETIMEDOUT when the deadline passed first (WEFT_NOWAIT: none is
 * pending); -ECANCELED when the fiber is cancelled, or the object destroyed; -ENOSYS when the engine
 * does no I/O; -EDEADLK on the base stack; -EINVAL without a runtime, or for NULL.
 * Fiber only, on the thread that created it. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_signals_wait(struct weft_signals *signals,
                                               struct signalfd_siginfo *info, weft_time deadline);
#endif

/* The same as a promise, fulfilled with the signal's number. `info` (may be NULL) is the operation's
 * until the promise is settled. Never NULL; a failure (-ENOMEM too) is a rejected promise. Canceling
 * it rejects it at once, and takes no signal; merely dropped, it takes one. Runtime's thread, callbacks
 * too; doesn't suspend. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *promise_signals_wait(struct weft_signals *signals,
                                                             struct signalfd_siginfo *info,
                                                             weft_time deadline);

WEFT_END_DECLS

#endif
