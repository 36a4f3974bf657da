/* weft/scope.h: structured concurrency: scopes, in which fibers and resources live, and cancellation.
 *
 *     struct fiber_scope scope;
 *     fiber_scope_open(&scope, weft_after(WEFT_SEC(5)));
 *     fiber_scope_spawn(&scope, serve, &one);
 *     fiber_scope_spawn(&scope, serve, &other);
 *     rc = fiber_scope_close(&scope, 0);
 *
 * A scope is opened and closed by one fiber, like a pair of brackets; scopes nest. Closing waits for
 * every fiber spawned into it. When one of them fails (its function returns a negative errno), the
 * others are cancelled, and the first failure is what closing returns. So a function that opens a
 * scope and closes it leaves nothing running behind, and no failure is lost.
 *
 * Which scope a fiber is spawned into is always said. There is no "current" one: a function that is
 * given no scope can't leave a fiber behind in its caller's. fiber_spawn and fiber_detach start
 * fibers that belong to no scope but the runtime.
 *
 * Cancellation. A cancelled fiber's waits end with -ECANCELED, and so does each later one, before it
 * begins anything: it is a state, not an event. What was done is reported all the same. Cancelling a
 * scope cancels the fiber inside it (the one that opened it) and the fibers in it, and all scopes
 * opened in it; a shield keeps it out. Cancelling a fiber (its promise: promise_cancel, the
 * runtime's end) cancels the scopes it has open.
 *
 * A fiber that has been cancelled and ends with -ECANCELED has not failed. One that ends so though
 * nobody cancelled it (what it waited for was) has: nothing fails silently. But any other failure of the
 * scope, earlier or later, tells more, and is what closing returns.
 *
 * Unless a comment says otherwise: called in a fiber; doesn't suspend; since 0.1. Not in a lean
 * build.
 */
#ifndef WEFT_SCOPE_H
#define WEFT_SCOPE_H

#include <weft/base.h>
#include <weft/fiber.h>
#include <weft/runtime.h>

WEFT_BEGIN_DECLS

struct fiber_scope;

/* ---- Failures and resources ------------------------------------------------------------------- */

/* Who failed, and with what. All fields are to be read. */
struct fiber_failure {
    int error;
    const char *where; /* the place that spawned the fiber */
    char name[24];     /* the fiber's name; "": none */
};

/* Something to be given back when a scope is closed, whatever the outcome. The memory is the
 * caller's, as long as it is attached. All fields are private. */
struct fiber_resource {
    void (*release)(void *arg);
    void *arg;
    struct fiber_scope *scope;
    struct fiber_resource *older, *newer;
};

/* ---- Scopes ----------------------------------------------------------------------------------- */

#define FIBER_SCOPE_FAILURES 4 /* kept with all they say */

/* The memory is the caller's, most often on the fiber's stack. All fields are private. */
struct fiber_scope {
    struct fiber_scope *parent;
    struct fiber_scope *children, *next, **link;
    struct fiber *owner;
    struct fiber *members; /* whose innermost scope it is */
    struct fiber *closer;  /* its owner waits in fiber_scope_close */
    struct fiber_resource *newest;
    size_t fibers, daemons;
    int reason; /* why it was cancelled; 0: it was not, or from outside */
    int error;  /* the first failure */
    unsigned failure_count;
    bool cancelled, shielded, interrupted, closing;
    struct weft_timer deadline;
    struct fiber_failure failures[FIBER_SCOPE_FAILURES];
    void *reserved[4];
};

/* Opens a scope: from here on the calling fiber is inside it. deadline: when it is cancelled;
 * WEFT_FOREVER: never. The deadlines of scopes around it and of single calls count as well, the
 * earliest first. A scope opened in a cancelled one is cancelled.
 * Returns 0, -EDEADLK on the base stack, -EINVAL. */
WEFT_API int fiber_scope_open(struct fiber_scope *scope, weft_time deadline);

/* Closes the scope that the calling fiber opened last: waits for its fibers, then cancels the daemons
 * and waits for them, then releases its resources, newest first, shielded from cancellation. result:
 * the caller's own; negative: a failure as any other.
 *
 * Returns the first failure; or -ETIMEDOUT if the scope's deadline has cut something short,
 * -ECANCELED if a cancellation from outside has; or `result`. -EINVAL, and nothing is done, if it is
 * not the innermost scope of the calling fiber. */
FIBER_SUSPENDS WEFT_API int fiber_scope_close(struct fiber_scope *scope, int result);

/* Starts a fiber in the scope, as fiber_detach does. A negative result fails the scope. A daemon
 * doesn't keep the scope open: it is cancelled when only daemons are left.
 * Returns 0; -ECANCELED if the scope is cancelled, or releases its resources already, nothing is
 * started; -ENOMEM, -EINVAL.
 * Runtime's thread, callbacks too, as long as the scope is open. */
#define fiber_scope_spawn(scope, fn, arg)  fiber_scope_spawn_at((scope), (fn), (arg), WEFT_HERE)
#define fiber_scope_daemon(scope, fn, arg) fiber_scope_daemon_at((scope), (fn), (arg), WEFT_HERE)
WEFT_API int fiber_scope_spawn_at(struct fiber_scope *scope, fiber_fn *fn, void *arg,
                                  const char *where);
WEFT_API int fiber_scope_daemon_at(struct fiber_scope *scope, fiber_fn *fn, void *arg,
                                   const char *where);
WEFT_API int fiber_scope_spawn_with(struct fiber_scope *scope, fiber_fn *fn, void *arg,
                                    const struct fiber_options *options);

/* The same, with the result as a promise (one reference, the caller's), which takes a failure
 * instead of the scope. Never NULL. */
#define fiber_scope_promise(scope, fn, arg) fiber_scope_promise_at((scope), (fn), (arg), WEFT_HERE)
WEFT_API WEFT_NODISCARD struct promise *
fiber_scope_promise_at(struct fiber_scope *scope, fiber_fn *fn, void *arg, const char *where);

/* Makes a promise (consumed) belong to the scope: closing waits for it, its rejection fails the
 * scope, and cancelling the scope cancels it. Returns what fiber_scope_spawn returns; on an error
 * the promise is cancelled. */
#define fiber_scope_hold(scope, promise) fiber_scope_hold_at((scope), (promise), WEFT_HERE)
WEFT_API int fiber_scope_hold_at(struct fiber_scope *scope, struct promise *promise,
                                 const char *where);

/* Cancels a scope: at once, for good; the second time does nothing. `fail` gives it a failure too
 * (a negative errno, else -EINVAL), in the calling fiber's name. Runtime's thread, callbacks too. */
WEFT_API void fiber_scope_cancel(struct fiber_scope *scope);
WEFT_API void fiber_scope_fail(struct fiber_scope *scope, int error);

/* True if it is cancelled, by itself or with one around it. */
WEFT_API bool fiber_scope_cancelled(const struct fiber_scope *scope);

/* How many failures there were; the first FIBER_SCOPE_FAILURES can be read, the first one first:
 * into *failure (may be NULL); -ENOENT if there is none of that number. Also after closing. */
WEFT_API unsigned fiber_scope_failure_count(const struct fiber_scope *scope);
WEFT_API int fiber_scope_failure(const struct fiber_scope *scope, unsigned index,
                                 struct fiber_failure *failure);

/* ---- Resources of a scope --------------------------------------------------------------------- */

/* release(arg) is called when the scope is closed, in the closing fiber, which may wait in it and
 * can't be cancelled meanwhile. NULL for any argument but arg: nothing is done. */
WEFT_API void fiber_scope_attach(struct fiber_scope *scope, struct fiber_resource *resource,
                                 void (*release)(void *arg), void *arg);

/* The same for memory of malloc: release is free. */
WEFT_API void fiber_scope_attach_memory(struct fiber_scope *scope, struct fiber_resource *resource,
                                        void *memory);

/* Takes a resource out of its scope, unreleased: it is the caller's again. Not attached: nothing. */
WEFT_API void fiber_resource_detach(struct fiber_resource *resource);

/* Makes it the newest resource of another scope. */
WEFT_API void fiber_resource_move(struct fiber_resource *resource, struct fiber_scope *scope);

/* Takes it out and releases it now. */
FIBER_SUSPENDS WEFT_API void fiber_resource_release(struct fiber_resource *resource);

/* ---- Cancellation ----------------------------------------------------------------------------- */

/* Calls fn(arg), and returns its result; what cancels the calling fiber meanwhile reaches it
 * afterwards. For clean-up: a cancelled fiber can wait in it. */
FIBER_SUSPENDS WEFT_API int fiber_shield(int (*fn)(void *arg), void *arg);

/* Why the calling fiber is cancelled: -ETIMEDOUT if the deadline of a scope has passed, the failure
 * of a scope that has failed, else -ECANCELED; 0 if it isn't. */
WEFT_API int fiber_cancel_reason(void);

/* ---- Several at once -------------------------------------------------------------------------- */

/* A function to be run as a fiber, and its result. fn and arg are the caller's to set; result is
 * what fn returned, or -ECANCELED if it was not begun. */
struct fiber_call {
    fiber_fn *fn;
    void *arg;
    int64_t result;
};

/* Runs all, at most `at_once` at a time (0: all), and waits for them. When one fails the others are
 * cancelled and no more are begun. Returns 0 if all have ended well; or the first failure; -ECANCELED,
 * -ENOMEM, -EINVAL. */
FIBER_SUSPENDS WEFT_API int fiber_all(struct fiber_call *calls, size_t count, size_t at_once);

/* Runs both; as fiber_all. */
FIBER_SUSPENDS WEFT_API int fiber_both(fiber_fn *first, void *first_arg, fiber_fn *second,
                                       void *second_arg);

/* Runs all; the first to end, well or not, cancels the others, which are waited for. Returns its
 * index. Others may have ended well too: the results tell. -ECANCELED, -ENOMEM, -EINVAL. */
FIBER_SUSPENDS WEFT_API int fiber_first(struct fiber_call *calls, size_t count);

/* The same, but failures don't count as long as others run. Returns the index of the first to end
 * well; if all failed, the first failure; if some were cancelled, -ECANCELED. */
FIBER_SUSPENDS WEFT_API int fiber_any(struct fiber_call *calls, size_t count);

/* Calls fn(index, item, ctx) for each of `count` items of `size` bytes, in fibers, at most `at_once`
 * at a time (0: all); never starts more fibers than that. As fiber_all. */
typedef int fiber_item_fn(size_t index, void *item, void *ctx);
FIBER_SUSPENDS WEFT_API int fiber_map(fiber_item_fn *fn, void *items, size_t count, size_t size,
                                      void *ctx, size_t at_once);

WEFT_END_DECLS

#endif
