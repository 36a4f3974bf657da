/* source.c: see source.h. */
#include "source.h"

#include "timer.h"

#define INTERVAL_MIN WEFT_MS(1)
#define INTERVAL_MAX WEFT_MS(50)

static bool is_awaited(const struct ring__source *source)
{
    return source->waits.next != &source->waits;
}

static void unlink_wait(struct ring__wait *wait)
{
    struct weft_link *link = &wait->waiter.link;

    link->prev->next = link->next;
    link->next->prev = link->prev;
    link->next = NULL;
}

static void deliver(struct ring__source *source, int error);

static void poll_done(struct ring_op *op, int res, unsigned flags)
{
    struct ring__source *source = weft__container(op, struct ring__source, op);

    (void)flags;
    source->polling = false;
    source->vain = res > 0;
    /* cancelled: whoever waits by now came later, and needs a new poll */
    deliver(source, res < 0 && res != -ECANCELED ? res : 0);
}

static void ask_again(struct weft_timer *timer)
{
    struct ring__source *source = weft__container(timer, struct ring__source, again);

    source->vain = false;
    deliver(source, 0);
}

/* Only while nobody waits, or those who did went with their runtime: what they stood in is gone. */
static void forget_waits(struct ring__source *source)
{
    source->waits.next = source->waits.prev = &source->waits;
    source->interval = 0;
    weft_timer_init(&source->again, ask_again);
}

void ring__source_init(struct ring__source *source, const struct ring__source_class *class, int fd)
{
    *source = (struct ring__source){.class = class, .op = {.done = poll_done}, .fd = fd};
    forget_waits(source);
}

static void come_from(struct ring__source *source, struct weft_runtime *rt)
{
    if (source->runtime != rt->serial) {
        forget_waits(source);
        source->polling = false; /* a poll can be left only by an engine that has failed */
        source->vain = false;
        source->runtime = rt->serial;
        source->rt = rt;
    }
}

/* Sees to it that deliver() will be called. 0 or a negative errno. */
static int arm(struct ring__source *source)
{
    int rc = -ENOSYS;

    if (source->polling || weft_timer_running(&source->again))
        return 0;
    /* where a poll has found something that could not be taken, the next would, too, at once */
    if (source->fd >= 0 && !(source->vain && source->class->timed)) {
        rc = ring__prepare_poll(&source->op, source->fd, POLLIN);
        if (rc == 0)
            rc = ring__submit(source->rt, &source->op);
        source->polling = rc == 0;
    }
    if (rc == -ENOSYS && source->class->timed) {
        source->interval = source->interval == 0                 ? INTERVAL_MIN
                           : source->interval < INTERVAL_MAX / 2 ? source->interval * 2
                                                                 : INTERVAL_MAX;
        weft__timer_start(source->rt, &source->again, weft_after(source->interval));
        rc = 0;
    }
    return rc;
}

static void disarm(struct ring__source *source)
{
    source->interval = 0;
    weft__timer_stop(source->rt, &source->again);
    if (source->polling)
        ring__cancel(source->rt, &source->op);
}

static bool is_of_this_runtime(const struct ring__source *source)
{
    return weft__rt != NULL && source->runtime == weft__rt->serial;
}

static void free_if_closed(struct ring__source *source)
{
    if (!source->closed || source->polling || source->delivering)
        return;
    if (source->fd >= 0 && is_of_this_runtime(source))
        ring__forget(weft__rt, source->fd);
    source->class->free(source);
}

/* Hands out what there is, or `error` to all. Who is woken may run code of the user's, which may wait
 * again, make others leave, and close the source. */
static void deliver(struct ring__source *source, int error)
{
    source->delivering = true;
    while (is_awaited(source)) {
        struct ring__wait *wait =
            weft__container(source->waits.next, struct ring__wait, waiter.link);
        int rc = source->closed ? -ECANCELED : error;

        if (rc == 0)
            rc = source->class->take(source, wait->out);
        if (rc == -EAGAIN) {
            rc = arm(source);
            if (rc == 0)
                break;
        }
        wait->res = rc;
        unlink_wait(wait);
        wait->waiter.wake(&wait->waiter);
    }
    source->delivering = false;
    free_if_closed(source);
}

int ring__source_try(struct weft_runtime *rt, struct ring__source *source, void *out)
{
    come_from(source, rt);
    return is_awaited(source) ? -EAGAIN : source->class->take(source, out);
}

int ring__source_wait(struct weft_runtime *rt, struct ring__source *source, struct ring__wait *wait)
{
    struct weft_link *link = &wait->waiter.link, *last;
    int rc;

    come_from(source, rt);
    last = source->waits.prev;
    link->prev = last;
    link->next = &source->waits;
    last->next = source->waits.prev = link;
    if (source->delivering) /* it will see this one too */
        return 0;
    rc = arm(source);
    if (rc < 0)
        unlink_wait(wait);
    return rc;
}

void ring__source_leave(struct ring__source *source, struct ring__wait *wait)
{
    unlink_wait(wait);
    if (!is_awaited(source))
        disarm(source);
}

void ring__source_close(struct ring__source *source)
{
    source->closed = true;
    if (is_of_this_runtime(source)) {
        disarm(source);
        if (!source->delivering) /* else whoever is at it sees it */
            deliver(source, 0);
        return;
    }
    free_if_closed(source);
}
