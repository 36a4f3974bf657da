/* weft/shared_channel.h: channels between runtimes, for fibers, promises and plain threads alike.
 *
 *     struct weft_shared_channel *jobs = weft_shared_channel_create(NULL, 100, free);
 *     rc = fiber_shared_channel_send(jobs, weft_ptr(job), weft_after(WEFT_SEC(1)));      in one runtime
 *     rc = fiber_shared_channel_recv(jobs, &value, WEFT_FOREVER);                        in another
 *
 * They work as the channels of one runtime do, and cost a lock and, when somebody waits, a post.
 * Any number of senders and receivers; items arrive in the order in which they were sent, each at one
 * receiver; who waits is served in turn. An item is the channel's when the send has returned 0, and
 * until then, and otherwise, the sender's: a send or a receive that a deadline or a cancellation ends has
 * moved nothing, and one that has moved an item says so, however late it is. What an item points to
 * goes over to another thread: the sender must not touch it any more.
 *
 * Reference counted: each thread that uses it needs one reference that lasts meanwhile.
 */
#ifndef WEFT_SHARED_CHANNEL_H
#define WEFT_SHARED_CHANNEL_H

#include <weft/base.h>
#include <weft/cluster.h>

WEFT_BEGIN_DECLS

struct promise;

struct weft_shared_channel;

/* A channel with room for `capacity` items; 0: a send waits until a receiver takes the item. destroy
 * (NULL: none) is for items that nobody has received at the end; on any thread.
 *
 * cluster: NULL: every thread may use it, and a runtime that waits for it is never taken for
 * deadlocked. Else only that cluster's runtimes may (others, and threads, get -EPERM), and waiting for
 * it is nothing that could come from outside: so a deadlock of the cluster is seen.
 *
 * Returns one reference, or NULL without memory. Any thread. Since 0.1. */
WEFT_API WEFT_NODISCARD struct weft_shared_channel *
weft_shared_channel_create(const struct weft_cluster *cluster, size_t capacity,
                           void (*destroy)(void *ptr));

/* One more reference, for somebody else; returns the channel. One less: the last one frees it, and
 * destroys the items in it. Any thread; NULL is fine. Since 0.1. */
WEFT_API struct weft_shared_channel *weft_shared_channel_ref(struct weft_shared_channel *channel);
WEFT_API void weft_shared_channel_unref(struct weft_shared_channel *channel);

/* Nothing can be sent any more, and those who wait to send get -EPIPE. What is in the channel can
 * still be received, then there is -ENODATA, which those who wait to receive get now. Twice is fine.
 * Any thread. Since 0.1. */
WEFT_API void weft_shared_channel_close(struct weft_shared_channel *channel);

/* How it is just now. Any thread. Since 0.1. */
WEFT_API bool weft_shared_channel_is_closed(struct weft_shared_channel *channel);
WEFT_API size_t weft_shared_channel_count(struct weft_shared_channel *channel); /* items in it */

/* Send or receive if that can be done at once. Return 0; -EAGAIN if not; -EPIPE, -ENODATA as below;
 * -EPERM, -EINVAL for NULL. Any thread, with a runtime or without; they don't suspend. Since 0.1. */
WEFT_API WEFT_NODISCARD int weft_shared_channel_try_send(struct weft_shared_channel *channel,
                                                         union weft_value value);
WEFT_API WEFT_NODISCARD int weft_shared_channel_try_recv(struct weft_shared_channel *channel,
                                                         union weft_value *value);

/* Send or receive on a thread without a runtime: block it until that is done. *value is set when the
 * result is 0. Return 0; -EPIPE, -ENODATA as below; -ETIMEDOUT when the deadline has passed first, or it
 * would have had to wait (WEFT_NOWAIT); -EPERM for a channel of a cluster; -EINVAL for NULL; -EDEADLK
 * on a runtime's thread, all of which would stand still. Any other thread. Since 0.1. */
WEFT_API WEFT_NODISCARD int weft_shared_channel_send(struct weft_shared_channel *channel,
                                                     union weft_value value, weft_time deadline);
WEFT_API WEFT_NODISCARD int weft_shared_channel_recv(struct weft_shared_channel *channel,
                                                     union weft_value *value, weft_time deadline);

/* Sends an item: fulfilled with 0 when the channel has it; -EPIPE: it is closed. Canceling ends the
 * wait, and the item is still the sender's. Also -EPERM, -ENOMEM, -EINVAL. Never NULL. Runtime's
 * thread, callbacks too; doesn't suspend. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *
promise_shared_channel_send(struct weft_shared_channel *channel, union weft_value value);

/* Receives an item: the promise's value, which it owns if the channel has a destroy. -ENODATA: the
 * channel is closed and empty. Canceling ends the wait, and no item is taken; a promise that is only
 * dropped takes its item all the same. The rest as above. Since 0.1. */
WEFT_API WEFT_NODISCARD struct promise *
promise_shared_channel_recv(struct weft_shared_channel *channel);

#if WEFT_HAS_FIBERS
/* The same for fibers; waiting allocates nothing. *value is set when the result is 0.
 * Return 0; -EPIPE, -ENODATA; -ETIMEDOUT when the deadline has passed first, or it would have had to
 * wait (WEFT_NOWAIT); -ECANCELED when the fiber is cancelled, already at the call or while it waited;
 * -EPERM; -EINVAL for NULL or without a runtime; -EDEADLK on the base stack. Fiber only. Since 0.1. */
FIBER_SUSPENDS WEFT_API WEFT_NODISCARD int
fiber_shared_channel_send(struct weft_shared_channel *channel, union weft_value value,
                          weft_time deadline);
FIBER_SUSPENDS WEFT_API WEFT_NODISCARD int
fiber_shared_channel_recv(struct weft_shared_channel *channel, union weft_value *value,
                          weft_time deadline);
#endif

WEFT_END_DECLS

#endif
