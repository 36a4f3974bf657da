/* sustrik/libdill#66: a handle's 255th duplicate made its counter overflow, and the object was freed
 * under the others.
 *
 * References to promises and inboxes are counted in 32 bits and more: far more than 65535 at a time are
 * nothing special.
 */
#include "harness.h"
#include "promise_internal.h"

#include <weft/promise.h>

#include <criterion/criterion.h>

#define MANY 300000

static int refs_main(void *unused)
{
    struct promise *p = promise_create(), *all[10];
    struct weft_inbox *inbox = weft_inbox_ref();

    (void)unused;
    for (int i = 0; i < MANY; i++)
        cr_assert_eq(promise_ref(p), p);
    for (int i = 0; i < 10; i++)
        all[i] = promise_ref(p);
    for (int i = 0; i < MANY; i++)
        promise_unref(p);
    cr_assert_eq(promise_state(p), PROMISE_PENDING);
    cr_assert_eq(promise_resolve(p, weft_num(66)), 0);
    promise_unref(p);
    for (int i = 0; i < 10; i++) {
        union weft_value value;

        cr_assert_eq(promise_poll(all[i], &value, NULL), PROMISE_FULFILLED);
        cr_assert_eq(value.num, 66);
        promise_unref(all[i]);
    }
    for (int i = 0; i < MANY; i++)
        cr_assert_eq(weft_inbox_ref(), inbox);
    for (int i = 0; i <= MANY; i++)
        weft_inbox_unref(inbox);
    return 0;
}

Test(libdill_66, many_references_are_nothing_special)
{
    cr_assert_eq(run_on(&setups[0], refs_main, NULL), 0, "%s", report_text());
}
