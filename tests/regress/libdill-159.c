/* needs: fibers */
/* sustrik/libdill#159: a thread's destructors ran after the library's own data for it were freed, and
 * used them. (RichieSams/FiberTaskingLib#8: a thread ended on another stack than its own.)
 *
 * A runtime ends with weft_run, on the stack it began on, and leaves the thread nothing to be destroyed:
 * destructors of the thread find no runtime, and an inbox kept so long refuses.
 */
#include "io_support.h"
#include "runtime_internal.h"

#include <weft/io.h>
#include <weft/promise.h>

#include <criterion/criterion.h>
#include <pthread.h>

static pthread_key_t key;
static int destroyed;
static const struct setup *on;

struct left {
    struct weft_inbox *inbox;
    struct weft_task task;
    char *stack;
};

static void never(struct weft_task *task)
{
    (void)task;
    abort();
}

static void destroy(void *arg)
{
    struct left *left = arg;

    if (destroyed++ % 2 == 0) { /* once more, after whatever else this thread destroys */
        pthread_setspecific(key, left);
        return;
    }
    cr_assert_null(weft_current());
    cr_assert_eq(fiber_yield(), -EINVAL);
    cr_assert_eq(fiber_sleep(1), -EINVAL);
    promise_unref(promise_fulfilled(weft_num(1)));
    left->task.run = never;
    cr_assert_eq(weft_post(left->inbox, &left->task), -ESHUTDOWN);
    weft_inbox_unref(left->inbox);
    free(left);
}

static int64_t sleep_for_ever(void *unused)
{
    (void)unused;
    return fiber_sleep_until(WEFT_FOREVER);
}

static int leave_main(void *arg)
{
    struct left *left = arg;

    left->inbox = weft_inbox_ref();
    for (int i = 0; i < 3; i++)
        cr_assert_eq(fiber_detach(sleep_for_ever, NULL), 0);
    promise_unref(promise_sleep(WEFT_SEC(1000)));
    fiber_nop(WEFT_FOREVER);
    return 7;
}

static void *run_and_exit(void *unused)
{
    struct left *left = calloc(1, sizeof *left);
    char here;

    (void)unused;
    left->stack = &here;
    pthread_setspecific(key, left);
    cr_assert_eq(run_on(on, leave_main, left), 7);
    cr_assert_eq(left->stack, &here);
    if (on->sq_entries != 0)
        pthread_exit(NULL);
    return NULL;
}

Test(libdill_159, nothing_is_left_to_the_end_of_the_thread)
{
    int setups_run = 0;

    cr_assert_eq(pthread_key_create(&key, destroy), 0);
    EACH_IO_SETUP(setup)
    {
        pthread_t thread;

        on = setup;
        cr_assert_eq(pthread_create(&thread, NULL, run_and_exit, NULL), 0);
        pthread_join(thread, NULL);
        setups_run++;
    }
    cr_assert_eq(destroyed, 2 * setups_run);
}
