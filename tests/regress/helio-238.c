/* needs: fibers */
/* romange/helio#238: a fiber that waited for operation B was resumed by the completion of operation A,
 * which it had begun before, and took A's result for B's.
 *
 * Whatever else of a fiber comes to its end meanwhile, only what it waits for resumes it.
 */
#include "fiber_internal.h"
#include "io_support.h"

#include <weft/io.h>
#include <weft/promise.h>

#include <criterion/criterion.h>

static int64_t answer(void *arg)
{
    const int *fds = arg;

    for (int i = 0; i < 3; i++)
        fiber_nop(WEFT_FOREVER);
    cr_assert_eq(write(fds[0], "first", 5), 5); /* what was begun first, ends first */
    for (int i = 0; i < 3; i++)
        fiber_nop(WEFT_FOREVER);
    cr_assert_eq(write(fds[1], "second!", 7), 7);
    return 0;
}

static int two_main(void *unused)
{
    (void)unused;
    for (int i = 0; i < 100; i++) {
        int a[2], b[2], ends[2];
        char one[16] = "", two[16] = "";
        union weft_value value;
        struct promise *first, *other;

        make_pair(a);
        make_pair(b);
        ends[0] = a[1];
        ends[1] = b[1];
        first = promise_recv(a[0], one, sizeof one, 0, WEFT_FOREVER);
        other = fiber_spawn(answer, ends);
        switch (i % 3) {
        case 0:
            cr_assert_eq(fiber_recv(b[0], two, sizeof two, 0, WEFT_FOREVER), 7);
            break;
        case 1: /* B is a promise too */
            cr_assert_eq(fiber_await(promise_recv(b[0], two, sizeof two, 0, WEFT_FOREVER), &value,
                                     WEFT_FOREVER),
                         0);
            cr_assert_eq(value.num, 7);
            break;
        default: /* with a deadline, which never comes */
            cr_assert_eq(fiber_recv(b[0], two, sizeof two, 0, weft_after(WEFT_SEC(1000))), 7);
            break;
        }
        cr_assert_str_eq(two, "second!");
        cr_assert_eq(promise_poll(first, &value, NULL), PROMISE_FULFILLED);
        cr_assert_eq(value.num, 5);
        cr_assert_str_eq(one, "first");
        promise_unref(first);
        cr_assert_eq(fiber_await(other, NULL, WEFT_FOREVER), 0);
        close_pair(a);
        close_pair(b);
    }
    return 0;
}

Test(helio_238, only_what_it_waits_for_resumes_a_fiber)
{
    run_on_each_io_setup(two_main);
}
