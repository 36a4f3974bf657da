/* scope.c: promises that belong together: the first failure cancels the others. */
#include "promise_wait.h"

#include <weft/promise_sync.h>

#include <stdlib.h>

struct member {
    struct member *next, **link;
    struct promise_scope *scope;
    struct promise *promise; /* counted */
    bool asked;              /* to be canceled */
};

struct promise_scope {
    struct promise *self;
    struct member *members;
    struct promise *result; /* an operation's, made beforehand, so that closing can't fail */
    int error;              /* the first failure */
    bool closed;
    bool canceled; /* from outside, or by a failure */
    unsigned busy; /* somebody goes through the members */
};

/* If it is closed, and all are through, that is the end of it. */
static void end_if_over(struct promise_scope *scope)
{
    struct promise *result = scope->result;
    int error = scope->error != 0 ? scope->error : scope->canceled ? -ECANCELED : 0;

    if (!scope->closed || scope->members != NULL || scope->busy > 0)
        return;
    promise__object_release(scope->self);
    promise__settle(result, error, weft_num(0));
}

/* Cancels all members. Each cancel may settle any of them, and so change the list. */
static void cancel_members(struct promise_scope *scope)
{
    struct member *member = scope->members;

    scope->canceled = true;
    scope->busy++;
    while (member != NULL) {
        if (member->asked) {
            member = member->next;
            continue;
        }
        member->asked = true;
        promise_cancel(member->promise);
        member = scope->members;
    }
    scope->busy--;
}

static int settled(void *ctx)
{
    struct member *member = ctx;
    struct promise_scope *scope = member->scope;
    int error = 0;

    (void)promise_poll(member->promise, NULL, &error);
    if (error < 0 && error != -ECANCELED && scope->error == 0) {
        scope->error = error;
        member->asked = true;
        cancel_members(scope);
    } else if (error == -ECANCELED && !member->asked) {
        scope->canceled = true; /* somebody else did it: the sum isn't complete */
    }
    *member->link = member->next;
    if (member->next != NULL)
        member->next->link = member->link;
    promise_unref(member->promise);
    free(member);
    end_if_over(scope);
    return 0;
}

/* Over; or the runtime has ended before: then it may still have members. */
static void destroy(void *object)
{
    struct promise_scope *scope = object;

    while (scope->members != NULL) {
        struct member *member = scope->members;

        scope->members = member->next;
        free(member);
    }
    free(scope);
}

static void cancel_result(struct promise *result)
{
    cancel_members(*(struct promise_scope **)promise__extra(result));
}

struct promise_scope *promise_scope_create(void)
{
    struct promise__state *st = promise__state_get();
    struct promise_scope *scope = st != NULL ? calloc(1, sizeof *scope) : NULL;
    void *extra;

    if (scope == NULL)
        return NULL;
    PROMISE__ENTER(st);
    scope->self = promise__object(st, scope, destroy);
    if (scope->self == NULL) {
        free(scope);
        return NULL;
    }
    scope->result = promise__create_operation(st->rt, sizeof scope, cancel_result, &extra);
    if (extra == NULL) {
        promise__object_release(scope->self);
        return NULL;
    }
    *(struct promise_scope **)extra = scope;
    return scope;
}

int promise_scope_add(struct promise_scope *scope, struct promise *promise)
{
    struct member *member;
    int rc;

    if (scope == NULL || promise == NULL) {
        promise_cancel(promise);
        promise_unref(promise);
        return -EINVAL;
    }
    member = calloc(1, sizeof *member);
    if (member == NULL) {
        promise_cancel(promise);
        promise_unref(promise);
        return -ENOMEM;
    }
    member->scope = scope;
    member->promise = promise;
    member->next = scope->members;
    member->link = &scope->members;
    if (member->next != NULL)
        member->next->link = &member->next;
    scope->members = member;
    if (scope->canceled) {
        member->asked = true;
        promise_cancel(promise);
    }
    rc = promise_on_termination(promise, settled, member);
    if (rc < 0) {
        *member->link = member->next;
        if (member->next != NULL)
            member->next->link = member->link;
        free(member);
        promise_cancel(promise);
        promise_unref(promise);
    }
    return rc;
}

void promise_scope_cancel(struct promise_scope *scope)
{
    if (scope == NULL)
        return;
    cancel_members(scope);
    end_if_over(scope); /* a member's callback has closed it */
}

struct promise *promise_scope_close(struct promise_scope *scope)
{
    struct promise__state *st = promise__state_get();
    struct promise *result;

    if (scope == NULL || st == NULL)
        return promise__einval;
    PROMISE__ENTER(st);
    result = scope->result;
    scope->closed = true;
    end_if_over(scope);
    return PROMISE__MADE(result);
}
