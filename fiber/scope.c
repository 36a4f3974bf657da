/* scope.c: scopes: a tree of what may be cancelled together.
 *
 * A fiber is a member of its innermost scope: the one it opened last, else the one it was spawned
 * into, else of none. `cancelled` of a scope says that it or one around it is cancelled, no shield
 * being in between; a member's `cancelled` repeats it. So nothing is looked for when a fiber waits.
 * Cancelling marks the whole subtree first, and only then ends waits: whoever runs because of one
 * finds all the others cancelled too.
 *
 * A scope doesn't end before its fibers have, and an open scope's owner can't end: so the tree is
 * always whole, and all of it lives on the stacks of those in it.
 */
#include "scope.h"

#include "timer.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(void *) != 8 ||
                   (sizeof(struct fiber_scope) == 336 && sizeof(struct fiber_resource) == 40 &&
                    sizeof(struct fiber_failure) == 40),
               "part of the ABI");

/* ---- members ---- */

static void join(struct fiber *fiber, struct fiber_scope *scope)
{
    fiber->scope = scope;
    if (scope == NULL)
        return;
    fiber->next_member = scope->members;
    fiber->member_link = &scope->members;
    if (scope->members != NULL)
        scope->members->member_link = &fiber->next_member;
    scope->members = fiber;
}

static void leave(struct fiber *fiber)
{
    if (fiber->scope == NULL)
        return;
    *fiber->member_link = fiber->next_member;
    if (fiber->next_member != NULL)
        fiber->next_member->member_link = fiber->member_link;
    fiber->scope = NULL;
}

/* ---- cancelling ---- */

static bool reaches(const struct fiber_scope *scope)
{
    return !scope->shielded;
}

/* The next scope of the subtree of `top` in which `top`'s cancellation has effect. */
static struct fiber_scope *next_in(const struct fiber_scope *top, struct fiber_scope *scope,
                                   bool descend)
{
    struct fiber_scope *next = descend ? scope->children : NULL;

    for (;;) {
        while (next != NULL && !reaches(next))
            next = next->next;
        if (next != NULL || scope == top)
            return next;
        next = scope->next;
        scope = scope->parent;
    }
}

/* Ends what a cancelled fiber waits for. */
static void interrupt(struct fiber *fiber)
{
    struct fiber_wait *wait = fiber->wait;
    void (*cancel)(struct fiber_wait *);

    if (wait == NULL || wait->cancel == NULL)
        return;
    cancel = wait->cancel;
    wait->cancel = NULL; /* once only; the wait may end later */
    cancel(wait);
}

static void cancel_tree(struct fiber_scope *top)
{
    for (struct fiber_scope *s = top; s != NULL; s = next_in(top, s, true)) {
        s->cancelled = true;
        for (struct fiber *f = s->members; f != NULL; f = f->next_member)
            f->cancelled = -ECANCELED;
    }
    for (struct fiber_scope *s = top; s != NULL; s = next_in(top, s, true))
        for (struct fiber *f = s->members; f != NULL; f = f->next_member)
            interrupt(f);
}

static void cancel(struct fiber_scope *scope, int reason)
{
    /* From outside it is already: then that is why, whatever comes afterwards. */
    if (scope->reason != 0 || scope->cancelled || scope->closing)
        return;
    scope->reason = reason;
    cancel_tree(scope);
}

void fiber__cancel(struct weft_runtime *rt, struct fiber *fiber)
{
    struct fiber_scope *outermost = fiber->scope;

    (void)rt;
    if (fiber->is_cancelled)
        return;
    fiber->is_cancelled = true;
    if (outermost == fiber->birth) {
        fiber->cancelled = -ECANCELED;
        interrupt(fiber);
        return;
    }
    while (outermost->parent != fiber->birth)
        outermost = outermost->parent;
    if (reaches(outermost) && !outermost->cancelled)
        cancel_tree(outermost);
}

void fiber_scope_cancel(struct fiber_scope *scope)
{
    if (scope != NULL && scope->owner != NULL)
        cancel(scope, -ECANCELED);
}

bool fiber_scope_cancelled(const struct fiber_scope *scope)
{
    return scope != NULL && (scope->cancelled || scope->reason != 0);
}

static void expire(struct weft_timer *timer)
{
    cancel(weft__container(timer, struct fiber_scope, deadline), -ETIMEDOUT);
}

int fiber_cancel_reason(void)
{
    struct fiber *self = fiber__running(weft__rt);

    if (self == NULL || self->cancelled == 0)
        return 0;
    for (const struct fiber_scope *s = self->scope; s != NULL && reaches(s); s = s->parent)
        if (s->reason != 0)
            return s->reason;
    return self->cancelled;
}

/* ---- failures ---- */

static void fail(struct fiber_scope *scope, const struct fiber *fiber, int error)
{
    if (scope->failure_count < FIBER_SCOPE_FAILURES) {
        struct fiber_failure *failure = &scope->failures[scope->failure_count];

        failure->error = error;
        failure->where = fiber != NULL ? fiber->where : NULL;
        memcpy(failure->name, fiber != NULL ? fiber->name : "",
               fiber != NULL ? FIBER_NAME_SIZE : 1);
    }
    scope->failure_count++;
    if (scope->error == 0 || (scope->error == -ECANCELED && error != -ECANCELED))
        scope->error = error;
    cancel(scope, error);
}

void fiber_scope_fail(struct fiber_scope *scope, int error)
{
    if (scope != NULL && scope->owner != NULL)
        fail(scope, fiber__running(weft__rt), error < 0 ? error : -EINVAL);
}

unsigned fiber_scope_failure_count(const struct fiber_scope *scope)
{
    return scope != NULL ? scope->failure_count : 0;
}

int fiber_scope_failure(const struct fiber_scope *scope, unsigned index,
                        struct fiber_failure *failure)
{
    if (scope == NULL || index >= scope->failure_count || index >= FIBER_SCOPE_FAILURES)
        return -ENOENT;
    if (failure != NULL)
        *failure = scope->failures[index];
    return 0;
}

/* ---- opening and closing ---- */

static void open_scope(struct weft_runtime *rt, struct fiber *self, struct fiber_scope *scope,
                       weft_time deadline, bool shielded)
{
    memset(scope, 0, sizeof *scope);
    scope->owner = self;
    scope->shielded = shielded;
    scope->parent = self->scope;
    if (scope->parent != NULL) {
        scope->next = scope->parent->children;
        scope->link = &scope->parent->children;
        if (scope->next != NULL)
            scope->next->link = &scope->next;
        scope->parent->children = scope;
    }
    leave(self);
    join(self, scope);
    scope->cancelled = self->cancelled != 0 && !shielded;
    if (shielded)
        self->cancelled = 0;
    weft_timer_init(&scope->deadline, expire);
    if (deadline != WEFT_FOREVER)
        weft__timer_start(rt, &scope->deadline, deadline);
}

/* Its memory may be about to go, and what is around it would be taken for its parent. */
static __attribute__((noinline, cold, noreturn)) void left_open(struct weft_runtime *rt,
                                                                const struct fiber *self)
{
    weft__report(rt,
                 "fiber \"%s\" (spawned at %s): a function called by fiber_shield, or to release a "
                 "resource, has left a scope open: close it there",
                 self->name, self->where != NULL ? self->where : "an unknown place");
    abort();
}

static void close_scope(struct weft_runtime *rt, struct fiber *self, struct fiber_scope *scope)
{
    struct fiber_scope *parent = scope->parent;

    if (weft__unlikely(self->scope != scope))
        left_open(rt, self);
    weft__timer_stop(rt, &scope->deadline);
    if (parent != NULL) {
        *scope->link = scope->next;
        if (scope->next != NULL)
            scope->next->link = scope->link;
    }
    leave(self);
    join(self, parent);
    scope->owner = NULL;
    self->cancelled =
        (parent != NULL && parent->cancelled) || (parent == self->birth && self->is_cancelled)
            ? -ECANCELED
            : 0;
}

int fiber_scope_open(struct fiber_scope *scope, weft_time deadline)
{
    struct weft_runtime *rt = weft__rt;
    struct fiber *self = fiber__running(rt);

    if (self == NULL)
        return fiber__none(rt);
    if (scope == NULL)
        return -EINVAL;
    open_scope(rt, self, scope, deadline, false);
    return 0;
}

/* Waits until *left is 0. It can't be cut short: the fibers are what is cancelled. */
static void wait_for_fibers(struct weft_runtime *rt, struct fiber *self, struct fiber_scope *scope,
                            const size_t *left)
{
    while (*left > 0) {
        struct fiber_wait wait = {.what = "the fibers of a scope", .detail = (int64_t)*left};

        scope->closer = self;
        fiber__park(rt, self, &wait);
    }
}

static void release_all(struct fiber *self, struct fiber_scope *scope)
{
    struct fiber_resource *resource;

    scope->closing = true;
    if (scope->newest == NULL)
        return;
    scope->shielded = true;
    scope->cancelled = false;
    self->cancelled = 0;
    while ((resource = scope->newest) != NULL)
        fiber_resource_release(resource);
}

int fiber_scope_close(struct fiber_scope *scope, int result)
{
    struct weft_runtime *rt = weft__rt;
    struct fiber *self = fiber__self(rt);

    if (self == NULL)
        return fiber__cannot_wait(rt);
    if (scope == NULL || scope->owner != self || self->scope != scope) {
        weft__report(rt, "fiber_scope_close: scope %p is not the one that this fiber opened last",
                     (void *)scope);
        return -EINVAL;
    }
    if (fiber__error(self, result) != 0)
        fail(scope, self, fiber__error(self, result));
    else if (result < 0)
        scope->interrupted = true;
    wait_for_fibers(rt, self, scope, &scope->fibers);
    if (scope->daemons > 0) {
        bool was_interrupted = scope->interrupted;

        cancel_tree(scope);
        wait_for_fibers(rt, self, scope, &scope->daemons);
        scope->interrupted = was_interrupted;
    }
    release_all(self, scope);
    close_scope(rt, self, scope);
    if (scope->error != 0)
        return scope->error;
    if (!scope->interrupted)
        return result;
    if (scope->reason == -ETIMEDOUT)
        return -ETIMEDOUT;
    return result == -ECANCELED || scope->reason == 0 ? -ECANCELED : result;
}

/* ---- fibers of a scope ---- */

void fiber__scope_left(struct weft_runtime *rt, struct fiber *fiber, int error, bool interrupted)
{
    struct fiber_scope *scope = fiber->birth;
    size_t *left = fiber->is_daemon ? &scope->daemons : &scope->fibers;

    leave(fiber);
    if (error != 0)
        fail(scope, fiber, error);
    else if (interrupted)
        scope->interrupted |= scope->cancelled; /* else it alone was */
    if (--*left == 0 && scope->closer != NULL) {
        struct fiber *closer = scope->closer;

        scope->closer = NULL;
        fiber__wake(rt, closer);
    }
}

static void ended(struct weft_runtime *rt, struct fiber *fiber, int64_t result)
{
    fiber__scope_left(rt, fiber, fiber__error(fiber, result), result == -ECANCELED);
}

static int start(struct fiber_scope *scope, fiber_fn *fn, void *arg,
                 const struct fiber_options *options, const char *where, fiber_ended *at_end,
                 void *owner, bool daemon, struct fiber **started)
{
    struct weft_runtime *rt = weft__rt;
    struct fiber *fiber;
    int rc;

    if (rt == NULL || scope == NULL || scope->owner == NULL || fn == NULL)
        return -EINVAL;
    if (fiber_scope_cancelled(scope) || scope->closing)
        return -ECANCELED;
    rc = fiber__start(rt, fn, arg, options, where, at_end, owner, &fiber);
    if (rc < 0)
        return rc;
    fiber->birth = scope;
    fiber->is_daemon = daemon;
    join(fiber, scope);
    if (daemon)
        scope->daemons++;
    else
        scope->fibers++;
    if (started != NULL)
        *started = fiber;
    return 0;
}

int fiber__scope_start(struct fiber_scope *scope, fiber_fn *fn, void *arg,
                       const struct fiber_options *options, const char *where, fiber_ended *at_end,
                       void *owner, struct fiber **started)
{
    return start(scope, fn, arg, options, where, at_end, owner, false, started);
}

int fiber_scope_spawn_at(struct fiber_scope *scope, fiber_fn *fn, void *arg, const char *where)
{
    return start(scope, fn, arg, NULL, where, ended, NULL, false, NULL);
}

int fiber_scope_daemon_at(struct fiber_scope *scope, fiber_fn *fn, void *arg, const char *where)
{
    return start(scope, fn, arg, NULL, where, ended, NULL, true, NULL);
}

int fiber_scope_spawn_with(struct fiber_scope *scope, fiber_fn *fn, void *arg,
                           const struct fiber_options *options)
{
    return start(scope, fn, arg, options, NULL, ended, NULL, false, NULL);
}

/* ---- resources ---- */

void fiber_scope_attach(struct fiber_scope *scope, struct fiber_resource *resource,
                        void (*release)(void *arg), void *arg)
{
    if (scope == NULL || resource == NULL || release == NULL || scope->owner == NULL)
        return;
    resource->release = release;
    resource->arg = arg;
    resource->scope = scope;
    resource->newer = NULL;
    resource->older = scope->newest;
    if (scope->newest != NULL)
        scope->newest->newer = resource;
    scope->newest = resource;
}

void fiber_scope_attach_memory(struct fiber_scope *scope, struct fiber_resource *resource,
                               void *memory)
{
    fiber_scope_attach(scope, resource, free, memory);
}

void fiber_resource_detach(struct fiber_resource *resource)
{
    if (resource == NULL || resource->scope == NULL)
        return;
    if (resource->newer != NULL)
        resource->newer->older = resource->older;
    else
        resource->scope->newest = resource->older;
    if (resource->older != NULL)
        resource->older->newer = resource->newer;
    resource->scope = NULL;
}

void fiber_resource_move(struct fiber_resource *resource, struct fiber_scope *scope)
{
    if (resource == NULL || resource->scope == NULL || scope == NULL || scope->owner == NULL)
        return;
    fiber_resource_detach(resource);
    fiber_scope_attach(scope, resource, resource->release, resource->arg);
}

void fiber_resource_release(struct fiber_resource *resource)
{
    if (resource == NULL || resource->scope == NULL)
        return;
    fiber_resource_detach(resource);
    resource->release(resource->arg); /* may free the resource's own memory */
}

/* ---- shields ---- */

int fiber_shield(int (*fn)(void *arg), void *arg)
{
    struct weft_runtime *rt = weft__rt;
    struct fiber *self = fiber__self(rt);
    struct fiber_scope scope;
    int result;

    if (self == NULL)
        return fiber__cannot_wait(rt);
    if (fn == NULL)
        return -EINVAL;
    open_scope(rt, self, &scope, WEFT_FOREVER, true);
    result = fn(arg);
    close_scope(rt, self, &scope);
    return result;
}
