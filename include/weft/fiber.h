/* weft/fiber.h: direct style: fibers, and waiting in them.
 *
 * A fiber has a small stack of its own (64 KiB by default, lazily touched, guarded) and runs until
 * it waits. Only functions marked FIBER_SUSPENDS ever suspend, and only the calling fiber. Fibers
 * never move between threads; errno, thread-locals and locks held across a wait are the thread's, not
 * the fiber's. x87 and SSE control words (rounding, exceptions) are per thread with the native
 * context switch and per fiber with the fcontext one: restore what you change before you wait.
 * longjmp only within one fiber. C++ exceptions too: one that leaves a fiber's function ends the process
 * (std::terminate); don't wait in a handler (catch), since those being handled are the thread's. Signal
 * handlers need SA_ONSTACK: a fiber's stack is small.
 *
 * Not in a lean build (WEFT_FIBERS=OFF).
 */
#ifndef WEFT_FIBER_H
#define WEFT_FIBER_H

#include <weft/base.h>
#include <weft/offload.h>

WEFT_BEGIN_DECLS

struct fiber;
struct promise;

/* What a fiber runs. The result >= 0 fulfils its promise with that number (a pointer cast to
 * intptr_t will do); a negative errno rejects it. */
typedef int64_t fiber_fn(void *arg);

/* How a fiber is started. Zero-initialise, set `size`, then what you need:
 *     struct fiber_options o = FIBER_OPTIONS_INIT;
 * All fields are public, and only read during the call. */
struct fiber_options {
    size_t size;       /* sizeof(struct fiber_options), for later growth */
    const char *name;  /* copied, cut at 23 bytes; NULL: none */
    size_t stack_size; /* bytes; 0: the runtime's default */
    const char *where; /* who spawned it, a string that outlives the fiber: WEFT_HERE */
    uint64_t reserved[4];
};
/* clang-format off */
#define FIBER_OPTIONS_INIT {.size = sizeof(struct fiber_options)}
/* clang-format on */

/* Starts a fiber that runs fn(arg) in the next pass, at the tail of the run queue, and returns a
 * promise of its result (one reference, the caller's). Never NULL: a failure (-ENOMEM, -EINVAL
 * without a runtime, -ECANCELED while stopping) is a rejected promise. Dropping the promise does not
 * stop the fiber; promise_cancel cancels it. A failure that nobody can see any more is reported (that
 * is none: -ECANCELED of a fiber that has been cancelled). Local values are inherited. Runtime's thread, callbacks too; doesn't suspend.
 * Since 0.1. */
#define fiber_spawn(fn, arg) fiber_spawn_at((fn), (arg), WEFT_HERE)
WEFT_API WEFT_NODISCARD struct promise *fiber_spawn_at(fiber_fn *fn, void *arg, const char *where);
WEFT_API WEFT_NODISCARD struct promise *fiber_spawn_with(fiber_fn *fn, void *arg,
                                                         const struct fiber_options *options);

/* The same without any promise: the cheapest way to start work; the result is dropped, a failure is
 * reported with the fiber's name and `where`.
 * Returns 0, -ENOMEM, -EINVAL, -ECANCELED, and then nothing is started. Runtime's thread, callbacks too;
 * doesn't suspend. Since 0.1. */
#define fiber_detach(fn, arg) fiber_detach_at((fn), (arg), WEFT_HERE)
WEFT_API int fiber_detach_at(fiber_fn *fn, void *arg, const char *where);
WEFT_API int fiber_detach_with(fiber_fn *fn, void *arg, const struct fiber_options *options);

/* Waits until `promise` is settled; consumes one reference to it in every case.
 *
 * `value` (may be NULL) receives the value if it is fulfilled. If the reference was the last one, a
 * value with a destructor is now the caller's; else it lives as long as somebody holds the promise.
 * Returns 0 or the promise's negative status; -ETIMEDOUT when the deadline passed first, -ECANCELED
 * when the fiber is cancelled; -EDEADLK on the base stack (a callback must not wait); -EINVAL for
 * NULL. A settled promise is returned without a switch, before deadline and cancellation count.
 * Fiber only. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_await(struct promise *promise, union weft_value *value,
                                        weft_time deadline);

/* Lets every other runnable fiber and task go first; a cancellation point.
 * Returns 0, or -ECANCELED when the fiber is cancelled (it has yielded all the same); -EDEADLK on
 * the base stack. Fiber only. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_yield(void);

/* Sleeps until the given time; WEFT_FOREVER waits for cancellation. Never early. Always yields.
 * Returns 0, -ECANCELED, -EDEADLK on the base stack. Fiber only. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_sleep_until(weft_time at);

/* The same, for `ns` nanoseconds from now; 0 or less: only yields. Fiber only. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_sleep(int64_t ns);

/* Calls fn(arg), which may block, on a thread of the pool (see weft/offload.h), and waits for its end.
 * Nothing is allocated, and arg may be on the fiber's stack: it is the caller's again when this
 * returns, and not before.
 *
 * Deadline and cancellation are for the time until it begins: a call that has not begun never begins;
 * one that has is waited for, since completion beats both.
 * Returns what fn returns (below -4095: -EINVAL); -ETIMEDOUT or -ECANCELED, and fn was not called;
 * -EAGAIN or -ENOMEM when there is no thread; -EDEADLK on the base stack; -EINVAL for NULL. Fiber
 * only. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_blocking(weft_blocking_fn *fn, void *arg, weft_time deadline);

/* The same, but the wait can be given up at any time: then a call that has begun goes on by itself.
 * So arg must not be on the fiber's stack, and is handed over: if the result is >= 0 the call has ended
 * and arg is the caller's again; if it is negative, whatever the reason, free_arg(arg) (NULL: nothing)
 * has been called, or will be, exactly once, when the call has ended: on this runtime's thread, or on
 * a pool thread if the runtime has ended meanwhile.
 * Returns what fn returns; -ETIMEDOUT or -ECANCELED, whether fn was called or not; the other errors
 * of fiber_blocking, and -ENOMEM: one allocation. Fiber only. Since 0.1. */
FIBER_SUSPENDS WEFT_API int fiber_blocking_owned(weft_blocking_fn *fn, void *arg,
                                                 void (*free_arg)(void *arg), weft_time deadline);

/* The running fiber, valid as long as it runs; NULL on the base stack. Any thread; doesn't suspend.
 * Since 0.1. */
WEFT_API struct fiber *fiber_self(void);

/* Names the running fiber: `name` is copied, cut at 23 bytes; NULL: none. Returns 0, or -EINVAL on the
 * base stack. Fiber only; doesn't suspend. Since 0.1. */
WEFT_API int fiber_set_name(const char *name);

/* The name of a live fiber of this thread, "" if it has none; valid until it is named anew or ends.
 * Runtime's thread, callbacks too; doesn't suspend. Since 0.1. */
WEFT_API const char *fiber_name(const struct fiber *fiber);

/* Whether the running fiber is cancelled, for loops that compute. Returns 0, or -ECANCELED if it is; -EDEADLK
 * on the base stack; -EINVAL without a runtime. Fiber only; doesn't suspend. Since 0.1. */
WEFT_API int fiber_check(void);

/* Bytes of stack left below the caller: how deep it may still go. 0 on the base stack.
 * Any thread; doesn't suspend. Since 0.1. */
WEFT_API size_t fiber_stack_left(void);

/* Reports every live fiber: name, state, where it was spawned, what it waits for. To the runtime's
 * `report`. Nothing without a runtime. Runtime's thread, callbacks too; doesn't suspend. Since 0.1. */
WEFT_API void fiber_dump(void);

/* Makes ready `count` more stacks of the default size, their first page touched in bulk, so that
 * the next spawns cost no page fault. Returns 0; -ENOMEM; -EINVAL without a runtime. Runtime's thread,
 * callbacks too; doesn't suspend. Since 0.1. */
WEFT_API int fiber_prefill(size_t count);

WEFT_END_DECLS

#endif
