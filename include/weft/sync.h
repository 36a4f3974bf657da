/* weft/sync.h: what fibers and promises wait for each other with: mutex, condition, read-write lock,
 * semaphore, event, barrier, once, pool; channels; and waiting for one of several things.
 *
 * An object belongs to neither style. What never waits is called weft_..., and is for fibers and
 * callbacks alike. Waiting comes in two forms: fiber_... suspends the calling fiber, promise_... gives
 * a promise and suspends nobody. Both stand in the same queue and are served in the order in which
 * they came; nobody overtakes who waits.
 *
 *     struct weft_channel channel;
 *     weft_channel_init(&channel, NULL, 0, NULL);
 *     fiber_detach(worker, &channel);
 *     rc = fiber_channel_send(&channel, weft_ptr(job), weft_after(WEFT_SEC(1)));
 *
 * Whoever is handed something (a lock, units, an item) has it from that moment on, even before it
 * runs: a deadline or a cancellation that comes afterwards is too late. A wait that ends otherwise
 * leaves its queue at once, and has taken nothing.
 *
 * fiber_ functions: all are FIBER_SUSPENDS; waiting allocates nothing. What can be had at once is had
 * without a switch. The deadline comes last; WEFT_NOWAIT: now or not at all. Each returns 0, or
 *   -ETIMEDOUT  the deadline has passed first, or it would have had to wait (WEFT_NOWAIT)
 *   -ECANCELED  the fiber is cancelled, already at the call or while it waited; or the object was
 *               finished
 *   -EDEADLK    on the base stack, or when it would wait for itself
 *   -EINVAL     NULL, a bad number, or no runtime
 * and what its own comment adds.
 *
 * promise_ functions: the promise is never NULL. It is fulfilled (with 0 if nothing is said), or
 * rejected with what the fiber form returns, or -ENOMEM. Canceling it ends the wait. A promise has no
 * deadline: see promise_with_timeout. Callbacks run when the outermost settlement is through, and
 * when a fiber causes it, before the call that causes it returns.
 *
 * try_ functions return 0, -EAGAIN when it would have to wait, -EINVAL for NULL or without a runtime.
 *
 * Life cycle. init and finish work on the caller's memory, which must not move in between; they don't
 * allocate. Memory of zeroes is a fresh object too: a free lock, an event not set. create returns NULL
 * without memory; destroy takes NULL. finish and destroy end the waits of those who still wait, with
 * -ECANCELED. All of it belongs to one runtime, and ends before it or with it.
 *
 * Unless a comment says otherwise: called on the runtime's thread; NULL does nothing; since 0.1. All
 * fields are private but where it is said. In a lean build there are no fiber_ functions.
 */
#ifndef WEFT_SYNC_H
#define WEFT_SYNC_H

#include <weft/base.h>

WEFT_BEGIN_DECLS

struct promise;
struct weft_link;

/* ---- Mutex ------------------------------------------------------------------------------------ */

/* A lock for stretches of code that wait in between; others are alone anyway. Unlocking hands it to
 * the first who waits, without its being free in between.
 *
 * What a fiber has locked is that fiber's, and nobody else can unlock it. What a promise (or
 * try_lock in a callback) has locked is nobody's in particular. */
struct weft_mutex {
    struct weft_link *waits;
    void *owner;
    bool poisoned;
    void *reserved[1];
};

/* A free mutex; its end. See "Life cycle". */
WEFT_API void weft_mutex_init(struct weft_mutex *mutex);
WEFT_API void weft_mutex_finish(struct weft_mutex *mutex);
WEFT_API WEFT_NODISCARD struct weft_mutex *weft_mutex_create(void);
WEFT_API void weft_mutex_destroy(struct weft_mutex *mutex);

/* Takes the mutex if it is free. Also -EDEADLK, -EOWNERDEAD as below. */
WEFT_API WEFT_NODISCARD int weft_mutex_try_lock(struct weft_mutex *mutex);

/* Unlocks it, or hands it to the first who waits. Returns 0; -EPERM: it isn't locked, or another
 * fiber's; -EINVAL for NULL. */
WEFT_API int weft_mutex_unlock(struct weft_mutex *mutex);

/* Says that what the mutex guards may be half done: from now on whoever wants to lock it gets
 * -EOWNERDEAD and not the mutex, those who wait too, until weft_mutex_clear. Doesn't unlock. For the
 * owner to call when something fails under the lock; nothing poisons a mutex by itself. */
WEFT_API void weft_mutex_poison(struct weft_mutex *mutex);
WEFT_API void weft_mutex_clear(struct weft_mutex *mutex);

/* How it is just now; NULL: false. */
WEFT_API bool weft_mutex_is_locked(const struct weft_mutex *mutex);
WEFT_API bool weft_mutex_is_awaited(const struct weft_mutex *mutex); /* somebody waits for it */
WEFT_API bool weft_mutex_is_poisoned(const struct weft_mutex *mutex);

/* Takes the mutex. -EDEADLK if the fiber has it already; -EOWNERDEAD if it is poisoned. */
WEFT_API WEFT_NODISCARD struct promise *promise_mutex_lock(struct weft_mutex *mutex);

/* Takes the mutex, calls fn(ctx), and unlocks when the promise that fn returns (consumed) is
 * settled, whatever its outcome, which is the result's. Canceling the result cancels the wait for
 * the mutex, or what fn returned; in both cases the mutex is unlocked when it has to be, and only
 * then. */
WEFT_API WEFT_NODISCARD struct promise *
promise_mutex_with_lock(struct weft_mutex *mutex, struct promise *(*fn)(void *ctx), void *ctx);

#if WEFT_HAS_FIBERS
/* As promise_mutex_lock: 0: the mutex is the fiber's. */
FIBER_SUSPENDS WEFT_API WEFT_NODISCARD int fiber_mutex_lock(struct weft_mutex *mutex,
                                                            weft_time deadline);

/* Takes the mutex, calls fn(arg), unlocks it; returns what fn returned. The deadline is for the lock
 * alone. */
FIBER_SUSPENDS WEFT_API int fiber_mutex_with_lock(struct weft_mutex *mutex, int (*fn)(void *arg),
                                                  void *arg, weft_time deadline);
#endif

/* ---- Condition -------------------------------------------------------------------------------- */

/* Where one waits to be told something. A signal that finds nobody is not remembered. */
struct weft_condition {
    struct weft_link *waits;
    void *reserved[3];
};

/* A condition for which nobody waits; its end. */
WEFT_API void weft_condition_init(struct weft_condition *condition);
WEFT_API void weft_condition_finish(struct weft_condition *condition);
WEFT_API WEFT_NODISCARD struct weft_condition *weft_condition_create(void);
WEFT_API void weft_condition_destroy(struct weft_condition *condition);

/* Wakes the first who waits; all who wait now, in their order. Whoever waits with a mutex goes on
 * when it has that again. */
WEFT_API void weft_condition_signal(struct weft_condition *condition);
WEFT_API void weft_condition_broadcast(struct weft_condition *condition);

/* Gives up `mutex`, which must be the caller's (NULL: none), waits for a signal, and takes the mutex
 * again, whatever has ended the wait: a deadline and a cancellation can't interrupt that, nor can
 * poison, and the mutex is the caller's when the function returns or the promise settles. -EPERM if
 * the mutex isn't the caller's. What ends at the call (also with WEFT_NOWAIT) leaves it locked. */
WEFT_API WEFT_NODISCARD struct promise *promise_condition_wait(struct weft_condition *condition,
                                                               struct weft_mutex *mutex);
#if WEFT_HAS_FIBERS
/* As the promise form. */
FIBER_SUSPENDS WEFT_API int fiber_condition_wait(struct weft_condition *condition,
                                                 struct weft_mutex *mutex, weft_time deadline);
#endif

/* The same with something to tell: promises are fulfilled with `value` (borrowed); or the waits end
 * with `err`, a negative errno (anything else counts as -EINVAL), those of fibers too. */
WEFT_API void promise_condition_signal(struct weft_condition *condition, union weft_value value);
WEFT_API void promise_condition_broadcast(struct weft_condition *condition, union weft_value value);
WEFT_API void promise_condition_broadcast_error(struct weft_condition *condition, int err);

/* ---- Read-write lock -------------------------------------------------------------------------- */

/* For many readers or one writer. Fair: who comes after a waiting writer waits behind it. So a fiber
 * that reads must not ask to read once more; nobody could tell it that it waits for itself. */
struct weft_rwlock {
    struct weft_link *waits;
    void *writer;
    size_t readers;
    void *reserved[1];
};

/* A free lock; its end. */
WEFT_API void weft_rwlock_init(struct weft_rwlock *lock);
WEFT_API void weft_rwlock_finish(struct weft_rwlock *lock);

/* Takes it for reading, or for writing, if nobody has to be waited for. Also -EDEADLK as below. */
WEFT_API WEFT_NODISCARD int weft_rwlock_try_read(struct weft_rwlock *lock);
WEFT_API WEFT_NODISCARD int weft_rwlock_try_write(struct weft_rwlock *lock);

/* Gives up what the caller has, reading or writing. Returns 0, or -EPERM: it isn't locked, or another
 * fiber writes. */
WEFT_API int weft_rwlock_unlock(struct weft_rwlock *lock);

/* Goes from writing to reading; other readers may join at once. Returns 0, or -EPERM: the caller
 * doesn't write. */
WEFT_API int weft_rwlock_downgrade(struct weft_rwlock *lock);

/* Takes it for reading, with others; for writing, alone. -EDEADLK if the fiber writes already. */
WEFT_API WEFT_NODISCARD struct promise *promise_rwlock_read(struct weft_rwlock *lock);
WEFT_API WEFT_NODISCARD struct promise *promise_rwlock_write(struct weft_rwlock *lock);
#if WEFT_HAS_FIBERS
/* As the promise forms. */
FIBER_SUSPENDS WEFT_API WEFT_NODISCARD int fiber_rwlock_read(struct weft_rwlock *lock,
                                                             weft_time deadline);
FIBER_SUSPENDS WEFT_API WEFT_NODISCARD int fiber_rwlock_write(struct weft_rwlock *lock,
                                                              weft_time deadline);
#endif

/* ---- Semaphore -------------------------------------------------------------------------------- */

/* A number of units. Who wants more than there are waits, and who comes later waits behind. */
struct weft_semaphore {
    struct weft_link *waits;
    int64_t units;
    void *reserved[2];
};

/* A semaphore that has `units` to begin with (less than 0 counts as 0); its end. */
WEFT_API void weft_semaphore_init(struct weft_semaphore *semaphore, int64_t units);
WEFT_API void weft_semaphore_finish(struct weft_semaphore *semaphore);

/* Takes so many units, 1 at least, if they are there and nobody waits. */
WEFT_API WEFT_NODISCARD int weft_semaphore_try_acquire(struct weft_semaphore *semaphore,
                                                       int64_t units);

/* Adds units, whoever may have had them. Returns 0; -EOVERFLOW: more than there can be, or -EINVAL:
 * less than 1, and nothing is done. */
WEFT_API int weft_semaphore_release(struct weft_semaphore *semaphore, int64_t units);

/* Units that are free just now; NULL: 0. */
WEFT_API int64_t weft_semaphore_units(const struct weft_semaphore *semaphore);

/* Takes so many units, 1 at least, all at once. */
WEFT_API WEFT_NODISCARD struct promise *promise_semaphore_acquire(struct weft_semaphore *semaphore,
                                                                  int64_t units);
#if WEFT_HAS_FIBERS
/* As the promise form. */
FIBER_SUSPENDS WEFT_API WEFT_NODISCARD int
fiber_semaphore_acquire(struct weft_semaphore *semaphore, int64_t units, weft_time deadline);
#endif

/* ---- Event ------------------------------------------------------------------------------------ */

/* Something that has happened, or not yet. Stays set until it is reset. (A promise_event of react.h
 * is another thing.) */
struct weft_event {
    struct weft_link *waits;
    bool set;
    void *reserved[2];
};

/* An event that is not set; its end. */
WEFT_API void weft_event_init(struct weft_event *event);
WEFT_API void weft_event_finish(struct weft_event *event);

/* Sets it, and wakes all who wait; a second time nothing. Resets it: who comes from now on waits. */
WEFT_API void weft_event_set(struct weft_event *event);
WEFT_API void weft_event_reset(struct weft_event *event);

/* How it is just now; NULL: false. */
WEFT_API bool weft_event_is_set(const struct weft_event *event);

/* Waits until it is set: who has waited then goes on, also if it is reset again at once. */
WEFT_API WEFT_NODISCARD struct promise *promise_event_wait(struct weft_event *event);
#if WEFT_HAS_FIBERS
/* As the promise form. */
FIBER_SUSPENDS WEFT_API WEFT_NODISCARD int fiber_event_wait(struct weft_event *event,
                                                            weft_time deadline);
#endif

/* ---- Barrier ---------------------------------------------------------------------------------- */

/* Where `parties` wait for each other; then the next round begins. */
struct weft_barrier {
    struct weft_link *waits;
    size_t parties, arrived;
    void *reserved[1];
};

/* A barrier for `parties`, none of which has come; its end. */
WEFT_API void weft_barrier_init(struct weft_barrier *barrier, size_t parties);
WEFT_API void weft_barrier_finish(struct weft_barrier *barrier);

/* Waits until all are there. Gives 1 to the one who came last, which doesn't wait, and 0 to the
 * others. Who gives up waiting has not come. -EINVAL: for no parties. */
WEFT_API WEFT_NODISCARD struct promise *promise_barrier_wait(struct weft_barrier *barrier);
#if WEFT_HAS_FIBERS
/* As the promise form: returns 1 or 0. */
FIBER_SUSPENDS WEFT_API WEFT_NODISCARD int fiber_barrier_wait(struct weft_barrier *barrier,
                                                              weft_time deadline);
#endif

/* ---- Once ------------------------------------------------------------------------------------- */

/* A value that is made when it is first wanted, once, whoever wants it meanwhile. */
struct weft_once {
    struct weft_link *waits;
    void *owner;
    union weft_value value;
    void (*destroy)(void *ptr);
    int status;
    unsigned char state;
    void *reserved[3];
};

/* destroy (NULL: none) is called with the value at the end, or when it is reset. The end must not come
 * while the value is being made. */
WEFT_API void weft_once_init(struct weft_once *once, void (*destroy)(void *ptr));
WEFT_API void weft_once_finish(struct weft_once *once);

/* Forgets the outcome: the next who wants it makes it anew. Returns 0, -EBUSY while it is being
 * made. */
WEFT_API int weft_once_reset(struct weft_once *once);

/* Whether it is there: 0 and *value (may be NULL), the error of its making, or -EAGAIN. */
WEFT_API int weft_once_peek(const struct weft_once *once, union weft_value *value);

/* Gives the value, which stays the object's; makes it with fn if nobody has, waits if somebody is at
 * it. The outcome of fn, an error too, is the outcome for all. Only -ECANCELED is not: whoever was
 * making it has given up, and the first who waits makes it in its place, with its own fn. The deadline
 * is for waiting, not for fn. -EDEADLK if a fiber's fn wants the value itself; of a promise that waits
 * for itself nobody can tell. A value that fn's promise owns must be owned by it alone: it becomes the
 * object's. */
WEFT_API WEFT_NODISCARD struct promise *
promise_once_get(struct weft_once *once, struct promise *(*fn)(void *ctx), void *ctx);
#if WEFT_HAS_FIBERS
/* As the promise form; fn(arg, value) sets *value and returns 0, or a negative errno, and may wait. *value
 * (may be NULL) receives the value if the result is 0. */
FIBER_SUSPENDS WEFT_API int fiber_once_get(struct weft_once *once,
                                           int (*fn)(void *arg, union weft_value *value), void *arg,
                                           union weft_value *value, weft_time deadline);
#endif

/* ---- Channels --------------------------------------------------------------------------------- */

/* A queue of items from those who send to those who receive: in order, each item to one receiver.
 * With room for no item, a send waits until a receiver takes the item. An item is the channel's when
 * the send has returned 0, and until then, and otherwise, the sender's. */
struct weft_channel {
    struct weft_link *senders, *receivers;
    union weft_value *items;
    void (*destroy)(void *ptr);
    size_t capacity, first, count;
    bool closed;
    void *reserved[4];
};

/* items: room for `capacity` items, the caller's memory; capacity 0: NULL. destroy (NULL: none) is
 * for items that nobody has received at the end. */
WEFT_API void weft_channel_init(struct weft_channel *channel, union weft_value *items,
                                size_t capacity, void (*destroy)(void *ptr));
WEFT_API void weft_channel_finish(struct weft_channel *channel);
WEFT_API WEFT_NODISCARD struct weft_channel *weft_channel_create(size_t capacity,
                                                                 void (*destroy)(void *ptr));
WEFT_API void weft_channel_destroy(struct weft_channel *channel);

/* Nothing can be sent any more, and those who wait to send get -EPIPE. What is in the channel can
 * still be received, then there is -ENODATA, which those who wait to receive get now. Twice is
 * fine. */
WEFT_API void weft_channel_close(struct weft_channel *channel);

/* How it is just now: whether it is closed (NULL: true); the items in it (NULL: 0). */
WEFT_API bool weft_channel_is_closed(const struct weft_channel *channel);
WEFT_API size_t weft_channel_count(const struct weft_channel *channel);

/* Sends, or receives into *value, if that needs no waiting. Also -EPIPE and -ENODATA as below. */
WEFT_API WEFT_NODISCARD int weft_channel_try_send(struct weft_channel *channel,
                                                  union weft_value value);
WEFT_API WEFT_NODISCARD int weft_channel_try_recv(struct weft_channel *channel,
                                                  union weft_value *value);

/* Sends an item. -EPIPE: the channel is closed. */
WEFT_API WEFT_NODISCARD struct promise *promise_channel_send(struct weft_channel *channel,
                                                             union weft_value value);

/* Receives an item, which is the caller's; the promise owns it if the channel has a destroy.
 * -ENODATA: the channel is closed and empty. */
WEFT_API WEFT_NODISCARD struct promise *promise_channel_recv(struct weft_channel *channel);

#if WEFT_HAS_FIBERS
/* As the promise forms. *value is set if the result is 0. */
FIBER_SUSPENDS WEFT_API WEFT_NODISCARD int
fiber_channel_send(struct weft_channel *channel, union weft_value value, weft_time deadline);
FIBER_SUSPENDS WEFT_API WEFT_NODISCARD int
fiber_channel_recv(struct weft_channel *channel, union weft_value *value, weft_time deadline);
#endif

/* ---- Pool ------------------------------------------------------------------------------------- */

/* Up to `max` members that are used in turn, made when they are needed. How they are made and ended
 * is said by each style for itself: here for fibers, in promise_sync.h for promises, and both can use
 * the same pool. */
struct weft_pool;

/* NULL without memory, and if max is 0. */
WEFT_API WEFT_NODISCARD struct weft_pool *weft_pool_create(size_t max);

/* Ends the waits, with -ECANCELED. The free members must be gone (fiber_pool_clear) and none be in
 * use; what is left is not disposed of. */
WEFT_API void weft_pool_destroy(struct weft_pool *pool);

/* How it is just now; NULL: 0. */
WEFT_API size_t weft_pool_waiting(const struct weft_pool *pool); /* uses that wait */
WEFT_API size_t weft_pool_free(const struct weft_pool *pool);    /* members that are not in use */
WEFT_API size_t weft_pool_count(const struct weft_pool *pool);   /* all members */

#if WEFT_HAS_FIBERS
/* How fibers make and end members. Zero-initialise, set `size`, then `create` and what else you need.
 * All fields are public. The functions are called in the fiber that uses the pool, and may wait. */
struct fiber_pool_options {
    size_t size; /* sizeof(struct fiber_pool_options), for later growth */
    /* Makes a member: 0 and *member, or a negative errno. */
    int (*create)(void *ctx, union weft_value *member);
    /* Whether a member can be used: before each use of an old one. NULL: always. */
    bool (*validate)(void *ctx, union weft_value member);
    /* The same after a use that has failed with `error`. NULL: always. */
    bool (*check)(void *ctx, union weft_value member, int error);
    /* Ends a member; shielded from cancellation. NULL: there is nothing to do. */
    void (*dispose)(void *ctx, union weft_value member);
    void *ctx; /* handed to all four */
    void *reserved[4];
};
/* clang-format off */
#define FIBER_POOL_OPTIONS_INIT {.size = sizeof(struct fiber_pool_options)}
/* clang-format on */

/* Calls fn(member, arg) and returns what it returns. The member is the one that has been free for
 * longest and is valid; else a new one, if there are fewer than the pool's max; else the next to become
 * free, in turn. A member that is not valid, or whose use has failed and that doesn't pass the check,
 * is disposed of, and its place goes to the first who waits. The deadline is for waiting, not for what
 * the functions do. Also what create returns. */
FIBER_SUSPENDS WEFT_API int fiber_pool_use(struct weft_pool *pool,
                                           const struct fiber_pool_options *options,
                                           int (*fn)(union weft_value member, void *arg), void *arg,
                                           weft_time deadline);

/* Disposes of all free members, and of those in use when they are given back. Returns 0. */
FIBER_SUSPENDS WEFT_API int fiber_pool_clear(struct weft_pool *pool,
                                             const struct fiber_pool_options *options);

/* ---- One of several --------------------------------------------------------------------------- */

/* One of the things that fiber_select waits for. Set up by one of the functions below, for one
 * fiber_select at a time, and again for the next. result and value are public, and to be read when
 * the case has happened. */
struct fiber_case {
    int result;
    bool busy;
    union weft_value value;
    const struct fiber_case_kind *kind;
    void *object;
    struct fiber_selection *selection;
    uint64_t room[14];
};

/* Sends `value`: result 0, or -EPIPE. In a case that doesn't happen the item stays the caller's. */
WEFT_API void fiber_case_send(struct fiber_case *c, struct weft_channel *channel,
                              union weft_value value);

/* Receives an item into c->value: result 0, or -ENODATA. */
WEFT_API void fiber_case_recv(struct fiber_case *c, struct weft_channel *channel);

/* An event is set: result 0. */
WEFT_API void fiber_case_event(struct fiber_case *c, struct weft_event *event);

/* The time has come: result 0. */
WEFT_API void fiber_case_time(struct fiber_case *c, weft_time at);

/* A promise, which is borrowed, is settled: result is 0, with c->value its value (borrowed), or its
 * status. A case that doesn't happen leaves the promise as it is. */
WEFT_API void fiber_case_promise(struct fiber_case *c, struct promise *promise);

/* One of `events` of poll(2) holds on a descriptor: result is those that hold, or a negative errno as
 * fiber_poll gives. */
WEFT_API void fiber_case_poll(struct fiber_case *c, int fd, short events);

/* Waits until one of the cases can happen, lets exactly that one happen, and returns its index. Several
 * that can happen at once take turns evenly (each call begins to look at another place), so none is
 * starved; fiber_select_in_order takes the first of them. No allocation; all cases are the caller's
 * again when it returns. Without cases it waits for the deadline.
 * Returns the index; -ETIMEDOUT, -ECANCELED, -EDEADLK, -EINVAL: nothing has happened. A fiber that is
 * cancelled at the call lets nothing happen. */
FIBER_SUSPENDS WEFT_API WEFT_NODISCARD int fiber_select(struct fiber_case *cases, size_t count,
                                                        weft_time deadline);
FIBER_SUSPENDS WEFT_API WEFT_NODISCARD int fiber_select_in_order(struct fiber_case *cases,
                                                                 size_t count, weft_time deadline);
#endif

WEFT_END_DECLS

#endif
