/* cluster.h: a runtime as a member of a cluster. See cluster.c. */
#ifndef WEFT_CLUSTER_INTERNAL_H
#define WEFT_CLUSTER_INTERNAL_H

#include <weft/cluster.h>

#include "runtime_internal.h"

struct weft__member {
    struct weft_cluster *cluster;
    unsigned index;
    bool has_thread;
    bool serves; /* has no main */
    pthread_t thread;
    struct weft_options options;
    _Atomic(struct weft_inbox *) inbox; /* the cluster's reference; NULL: it has not started yet */
    atomic_bool ended;
    atomic_flag stopped; /* `stop` is posted */
    struct weft_task stop, rouse;
    bool resting; /* changed by its own thread, under the cluster's lock */
};

/* The member that the calling thread runs; NULL: none. */
extern _Thread_local struct weft__member *weft__member;

/* Nothing is left that this runtime could do by itself. True: nor can another one have something for
 * it, for it is of no cluster, or all the others are as far. False: it may sleep; when it wakes it must
 * call weft__cluster_roused before it looks into its inbox, and not look if that says true, which is
 * then the answer. */
bool weft__cluster_rests(struct weft_runtime *rt);
bool weft__cluster_roused(struct weft__member *member);

static inline bool weft__cluster_is_resting(const struct weft_runtime *rt)
{
    return rt->member != NULL && rt->member->resting;
}

/* pthread_create, but for tests of what happens when it fails. */
extern int (*weft__thread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

#endif
