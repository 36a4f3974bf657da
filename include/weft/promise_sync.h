/* weft/promise_sync.h: what promises wait for each other with: mailbox, pool, switch, scope; and,
 * from sync.h, what they share with fibers.
 *
 * The behaviour is that of Lwt's modules of these names (docs/modules-sync.md). Where somebody is
 * handed something (the lock, a message, a pool's member), its promise is settled as by
 * promise_resolve_later: at once, and its callbacks run when the outermost settlement is through.
 * From then on a cancel comes too late: the promise is fulfilled, and whoever waits for it has what
 * it was given. Those who wait are served in the order in which they came, and a canceled one
 * leaves its queue at once.
 *
 * Life cycle. init and finish work on the caller's memory, which must not move in between, and
 * don't allocate; create and destroy allocate, create returns NULL without memory, destroy takes
 * NULL. finish and destroy cancel those who still wait. All of it belongs to one runtime, and ends
 * before it or with it.
 *
 * Unless a comment says otherwise: called on the runtime's thread, callbacks and fibers alike;
 * never suspends; since 0.1. Functions that give a promise never return NULL: without memory it is
 * rejected with -ENOMEM, and with -EINVAL if the object is NULL or there is no runtime.
 */
#ifndef WEFT_PROMISE_SYNC_H
#define WEFT_PROMISE_SYNC_H

#include <weft/base.h>
#include <weft/promise.h>
#include <weft/sync.h>

WEFT_BEGIN_DECLS

/* ---- Mailbox ------------------------------------------------------------------------------ */

/* A place for one value, which is put and taken in turn. All fields are private. */
struct promise_mvar {
    void *reserved[10];
};

/* An empty mailbox. `destroy` (NULL: values need none) is what its values are destroyed with:
 * those that finish finds in it and in its writers' hands, and those that a taker's promise
 * owns. */
WEFT_API void promise_mvar_init(struct promise_mvar *mvar, void (*destroy)(void *ptr));
WEFT_API void promise_mvar_finish(struct promise_mvar *mvar);
WEFT_API WEFT_NODISCARD struct promise_mvar *promise_mvar_create(void (*destroy)(void *ptr));
WEFT_API void promise_mvar_destroy(struct promise_mvar *mvar);

/* Hands `value` to the first taker, or leaves it in the empty mailbox, or waits until there is
 * room; a task. Returns a promise fulfilled (with 0) when the value has been put, from when on
 * it is not the caller's; or rejected, -ECANCELED too: the value was not put and is the caller's
 * as before. (The exception is finish, which destroys it.) */
WEFT_API WEFT_NODISCARD struct promise *promise_mvar_put(struct promise_mvar *mvar,
                                                         union weft_value value);

/* Takes the value, and lets the first writer in; waits until there is one; a task.
 * Returns a promise fulfilled with the value, which it owns if the mailbox has a destroy
 * function. */
WEFT_API WEFT_NODISCARD struct promise *promise_mvar_take(struct promise_mvar *mvar);

/* The same, if there is a value now: true, and it is in *value, the caller's. */
WEFT_API bool promise_mvar_take_available(struct promise_mvar *mvar, union weft_value *value);

/* True if a take would have to wait. NULL: true. */
WEFT_API bool promise_mvar_is_empty(const struct promise_mvar *mvar);

/* ---- Pool --------------------------------------------------------------------------------- */

struct promise_pool;

/* Looks at `member` after a use of it has failed: true if it can be used again. */
typedef bool promise_pool_check_fn(union weft_value member, void *ctx);

/* What a pool does with its members. Zero-initialise, set `size`, then `create` and what else you
 * need:
 *     struct promise_pool_options o = PROMISE_POOL_OPTIONS_INIT;
 * All fields are public. The functions are called on the base stack; promises they return are
 * consumed. What validate gives is 0 if the member is no good any more, else another number. */
struct promise_pool_options {
    size_t size;                  /* sizeof(struct promise_pool_options), for later growth */
    promise_thunk_fn *create;     /* gives a new member, which is the pool's */
    promise_bind_fn *validate;    /* before each use of an old member; NULL: all are good */
    promise_pool_check_fn *check; /* after a failed use; NULL: all can be used again */
    promise_bind_fn *dispose;     /* the end of a member; NULL: there is nothing to do */
    void *ctx;                    /* handed to all four */
    void *reserved[4];
};
/* clang-format off */
#define PROMISE_POOL_OPTIONS_INIT {.size = sizeof(struct promise_pool_options)}
/* clang-format on */

/* A pool of up to `max` members, made when they are needed. Copies the options.
 * Returns NULL without memory or runtime, and if max is 0 or there is no create. */
WEFT_API WEFT_NODISCARD struct promise_pool *
promise_pool_create(size_t max, const struct promise_pool_options *options);

/* Cancels those who wait, disposes of the free members, and lets the pool go when the uses that
 * are going on have ended; their members are then disposed of. An error of disposing of a free
 * member goes to the error hook. NULL is fine. The options' functions and ctx must stay until
 * then. */
WEFT_API void promise_pool_destroy(struct promise_pool *pool);

/* Takes a member: the one that has been free for longest, validated; else a new one, if there are
 * fewer than max; else the next to become free, in turn. Then calls fn(member, ctx), and when the
 * promise that it returns (consumed) is settled, gives the member back.
 *
 * A member that isn't valid is disposed of and replaced by a new one. If validating fails, its
 * error is the result, the member is disposed of, and the next in turn gets a new one. A member
 * whose use has failed is given back if check says so, else disposed of. Whenever a place becomes
 * free that way (also because a creation failed, whose error is the result of the use it was for),
 * the next in turn makes a new member. If disposing fails, its error is the result.
 *
 * Returns a promise with the outcome of fn. Canceling it cancels what it waits for: its turn, a
 * creation, a validation, a disposal, or what fn returned. */
WEFT_API WEFT_NODISCARD struct promise *promise_pool_use(struct promise_pool *pool,
                                                         promise_bind_fn *fn, void *ctx);

/* Disposes of all free members, one after the other, and of those in use once they are given back.
 * Returns a promise fulfilled (with 0) when the free ones are disposed of, or rejected with the
 * first error of that, the others being disposed of all the same. */
WEFT_API WEFT_NODISCARD struct promise *promise_pool_clear(struct promise_pool *pool);

/* How many uses wait for a member. NULL: 0. */
WEFT_API size_t promise_pool_waiting(const struct promise_pool *pool);

/* The pool itself, for fibers to use its members too (fiber_pool_use, with functions of their own).
 * Borrowed: it is there until promise_pool_destroy, and in uses until they end. NULL: NULL. */
WEFT_API struct weft_pool *promise_pool_members(struct promise_pool *pool);

/* ---- Switch ------------------------------------------------------------------------------- */

/* Something that is on until it is turned off, and then calls its hooks: what has to be cleaned
 * up together. Reference counted, because those who registered a hook may look at it later.
 * Where a switch is an argument, NULL stands for "none": it is always on, and hooks given to it
 * are dropped. */
struct promise_switch;

/* A switch that is on, one reference. NULL without memory or runtime. */
WEFT_API WEFT_NODISCARD struct promise_switch *promise_switch_create(void);

/* One reference more, which it returns, or less. The last one turns nothing off: hooks not
 * called by then never are. */
WEFT_API struct promise_switch *promise_switch_ref(struct promise_switch *sw);
WEFT_API void promise_switch_unref(struct promise_switch *sw);

/* True until it is turned off. NULL: true. */
WEFT_API bool promise_switch_is_on(const struct promise_switch *sw);

/* Has hook(ctx) called when the switch is turned off. Returns 0, or -ESHUTDOWN if it is off, or
 * -ENOMEM; then the hook will not be called. */
WEFT_API int promise_switch_add_hook(struct promise_switch *sw, promise_thunk_fn *hook, void *ctx);

/* The same, but if the switch is off, calls the hook now and returns what it returns. Else
 * fulfilled (with 0), or rejected with -ENOMEM. */
WEFT_API WEFT_NODISCARD struct promise *
promise_switch_add_hook_or_exec(struct promise_switch *sw, promise_thunk_fn *hook, void *ctx);

/* Turns the switch off: calls all hooks now, the newest first, also if some fail, and waits for the
 * promises that they return (consumed). Borrows the switch. NULL or off already: does nothing.
 * Returns a promise fulfilled (with 0) when all hooks are through, or rejected with the first
 * error; with -ENOMEM the switch may still be on. */
WEFT_API WEFT_NODISCARD struct promise *promise_switch_turn_off(struct promise_switch *sw);

typedef struct promise *promise_switch_fn(struct promise_switch *sw, void *ctx);

/* Calls fn(a new switch, ctx), and when the promise that it returns (consumed) is settled, turns
 * the switch off. The result is that promise's outcome, unless a hook failed: then it is the
 * hook's error. fn borrows the switch. */
WEFT_API WEFT_NODISCARD struct promise *promise_switch_with(promise_switch_fn *fn, void *ctx);

/* ---- Scope -------------------------------------------------------------------------------- */

/* Promises that belong together, as a fiber scope's fibers do (weft/scope.h): when one is rejected,
 * the others are canceled at once, and the first error is the scope's. (promise_join alone waits
 * for all, as Lwt does.) */
struct promise_scope;

/* An open scope; NULL without memory or a runtime. promise_scope_close must follow. */
WEFT_API WEFT_NODISCARD struct promise_scope *promise_scope_create(void);

/* Adds a promise (consumed in any case). In a canceled scope it is canceled, and waited for.
 * Returns 0, or -ENOMEM, -EINVAL, and the promise is canceled. */
WEFT_API int promise_scope_add(struct promise_scope *scope, struct promise *promise);

/* Cancels all promises in it, and those that will be added. */
WEFT_API void promise_scope_cancel(struct promise_scope *scope);

/* Ends the adding; the scope is not the caller's any more. Returns a promise, settled when all
 * promises of the scope are: fulfilled with 0, or rejected with the first error but -ECANCELED, or,
 * if it or a promise of it was canceled and none failed, with -ECANCELED. Canceling it cancels the
 * scope. Needs no memory. */
WEFT_API WEFT_NODISCARD struct promise *promise_scope_close(struct promise_scope *scope);

WEFT_END_DECLS

#endif
