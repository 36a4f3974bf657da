/* threads.c: everything of a runtime that other threads touch, for ThreadSanitizer: posts, dropped
 * inboxes, a wait for both, a lookup and calls in the pool, given up or left behind, fibers switching
 * all the while. Plain, since Criterion doesn't run under that sanitizer. */
#include <weft/weft.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 2
#define POSTS   20000

static struct weft_inbox *inboxes[THREADS];
static struct promise *all_came;
static long came;

static void run_post(struct weft_task *task)
{
    free(task);
    if (++came == THREADS * POSTS)
        promise_resolve(all_came, weft_num(came));
}

static void *post(void *inbox)
{
    struct weft_stats stats = {.size = sizeof stats}, before = stats;

    for (int i = 0; i < POSTS; i++) {
        if (weft_inbox_stats(inbox, &stats) == 0) {
            if (stats.passes < before.passes || stats.switches < before.switches)
                abort();
            before = stats;
        }
    }
    for (int i = 0; i < POSTS; i++) {
        struct weft_task *task = calloc(1, sizeof *task);

        if (task == NULL)
            abort();
        task->run = run_post;
        if (weft_post(inbox, task) < 0)
            abort();
    }
    weft_inbox_unref(inbox);
    return NULL;
}

static int64_t yields(void *arg)
{
    for (int i = 0; i < 1000; i++)
        fiber_yield();
    return (int64_t)(intptr_t)arg;
}

static int add(void *arg)
{
    return ++*(int *)arg;
}

/* Calls that end, that are given up before or after they begin, and that outlive the runtime. */
static int64_t calls(void *arg)
{
    int here = 0;

    (void)arg;
    for (int i = 0; i < 200; i++) {
        struct promise *p = promise_blocking(add, calloc(1, sizeof here), free);
        int *there = calloc(1, sizeof here);

        if (fiber_blocking(add, &here, WEFT_FOREVER) != i + 1)
            return -EIO;
        if (i % 2)
            promise_cancel(p);
        promise_unref(p);
        if (fiber_blocking_owned(add, there, free, weft_after(WEFT_US(20))) >= 0)
            free(there);
    }
    return here;
}

#define LEFT 50
static atomic_int freed;

static void free_left(void *memory)
{
    free(memory);
    atomic_fetch_add(&freed, 1);
}

static int run(void *arg)
{
    pthread_t threads[THREADS];
    struct promise *fibers[10];
    union weft_value value = weft_num(0);
    int fd;

    (void)arg;
    all_came = promise_create();
    for (int i = 0; i < THREADS; i++)
        inboxes[i] = weft_inbox_ref();
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, post, inboxes[i]) != 0)
            return 1;
    for (int i = 0; i < 10; i++)
        fibers[i] = fiber_spawn(yields, (void *)(intptr_t)i);
    for (int i = 0; i < 10; i++)
        if (fiber_await(fibers[i], &value, WEFT_FOREVER) != 0 || value.num != i)
            return 2;
    if (fiber_await(all_came, &value, WEFT_FOREVER) != 0 || value.num != THREADS * POSTS)
        return 3;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    if (fiber_await(fiber_spawn(calls, NULL), &value, WEFT_FOREVER) != 0 || value.num != 200)
        return 4;
    /* whether or not somebody listens there, the name is looked up on a pool thread */
    fd = fiber_connect_host("localhost", "1", weft_after(WEFT_SEC(5)));
    if (fd >= 0)
        fiber_close(fd);
    for (int i = 0; i < LEFT; i++)
        promise_unref(promise_blocking(add, calloc(1, sizeof fd), free_left)); /* left behind */
    return 0;
}

int main(void)
{
    int status = weft_run(run, NULL, NULL);

    /* Each is freed, run or not. (An exit waits for no call: its thread would be reported as leaked.) */
    while (atomic_load(&freed) < LEFT)
        sched_yield();
    printf("%ld posts, status %d\n", came, status);
    return status != 0;
}
