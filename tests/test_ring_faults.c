/* What goes wrong between the engine and the kernel, made to happen. */
#include "io_support.h"
#include "ring_internal.h"

#include <criterion/criterion.h>

#define EACH_FAULT_TEST(body)                                         \
    EACH_IO_SETUP(setup)                                              \
    {                                                                 \
        cr_assert_eq(run_by_hand(setup, body), 0, "%s", setup->name); \
    }

/* No submission entry is free, time and again (pitfall 8). */
static void no_room_body(void)
{
    struct ring__faults *faults = ring__faults(weft__rt);
    struct kept nops[20], receive;
    int pair[2];
    char buf[1];

    make_pair(pair);
    for (int round = 0; round < 20; round++) {
        faults->no_room = round;
        cr_assert_eq(ring_recv(&keep(&receive)->op, pair[0], buf, 1, 0), 0);
        for (int i = 0; i < 20; i++)
            cr_assert_eq(ring_nop(&keep(&nops[i])->op), 0);
        faults->no_room += round;
        ring_cancel(&receive.op); /* there is room for it, always */
        for (int i = 0; i < 20; i++)
            cr_assert_eq(result_of(&nops[i]), 0);
        cr_assert_eq(result_of(&receive), -ECANCELED);
    }
    close_pair(pair);
}

Test(ring_faults, no_submission_entry)
{
    EACH_FAULT_TEST(no_room_body);
}

/* An operation that waits for room, and whose end is asked for before it gets any, does what it can
 * do at once. */
static void held_cancel_body(void)
{
    struct ring__faults *faults = ring__faults(weft__rt);
    struct kept ready, never;
    int pair[2];
    char buf[1];

    make_pair(pair);
    cr_assert_eq(write(pair[1], "x", 1), 1);
    faults->no_room = 2;
    cr_assert_eq(ring_recv(&keep(&ready)->op, pair[0], buf, 1, 0), 0);
    ring_cancel(&ready.op);
    cr_assert_eq(ring_recv(&keep(&never)->op, pair[1], buf, 1, 0), 0);
    ring_cancel(&never.op);
    cr_assert_eq(result_of(&ready), 1);
    cr_assert_eq(result_of(&never), -ECANCELED);
    close_pair(pair);
}

Test(ring_faults, a_cancel_waits_for_its_operation)
{
    EACH_FAULT_TEST(held_cancel_body);
}

/* Entering the kernel fails: nothing is lost, nothing is done twice (pitfalls 9, 11, 13). */
static void enter_body(void)
{
    static const int errors[] = {-EINTR, -EBUSY, -EAGAIN, -ETIME};
    struct ring__faults *faults = ring__faults(weft__rt);
    struct kept send, receive;
    int pair[2];
    char buf[8];

    make_pair(pair);
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        for (int times = 1; times < 5; times++) {
            faults->enter = times;
            faults->enter_error = errors[i];
            cr_assert_eq(ring_recv(&keep(&receive)->op, pair[0], buf, sizeof buf, 0), 0);
            cr_assert_eq(ring_send(&keep(&send)->op, pair[1], "once", 4, 0), 0);
            cr_assert_eq(result_of(&send), 4);
            cr_assert_eq(result_of(&receive), 4);
        }
    }
    close_pair(pair);
}

Test(ring_faults, entering_the_kernel_fails)
{
    EACH_FAULT_TEST(enter_body);
}

/* One that is no passing trouble ends the runtime, with its name. */
static void fatal_body(void)
{
    struct weft__engine *engine = weft__rt->engine;
    struct ring__faults *faults = ring__faults(weft__rt);
    struct kept receive;
    int pair[2];
    char buf[1];

    make_pair(pair);
    faults->enter = 1;
    faults->enter_error = -ENXIO;
    cr_assert_eq(ring_recv(&keep(&receive)->op, pair[0], buf, 1, 0), 0);
    cr_assert_eq(engine->class->turn(engine, WEFT_NOWAIT), -ENXIO);
    cr_assert_eq(write(pair[1], "x", 1), 1);
    cr_assert_eq(result_of(&receive), 1);
    close_pair(pair);
}

Test(ring_faults, a_fatal_error_is_passed_on)
{
    EACH_FAULT_TEST(fatal_body);
}

/* EINTR or EAGAIN in a completion: the operation is repeated, unless its end was asked for (19). */
static void repeat_body(void)
{
    static const int errors[] = {-EINTR, -EAGAIN};
    struct ring__faults *faults = ring__faults(weft__rt);
    struct kept op;
    int pair[2];
    char buf[8];

    make_pair(pair);
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        faults->result = 3;
        faults->result_error = errors[i];
        cr_assert_eq(write(pair[1], "data", 4), 4);
        cr_assert_eq(ring_recv(&keep(&op)->op, pair[0], buf, sizeof buf, 0), 0);
        cr_assert_eq(result_of(&op), 4);
        cr_assert_eq(faults->result, 0);

        faults->result = 1;
        cr_assert_eq(ring_recv(&keep(&op)->op, pair[0], buf, sizeof buf, 0), 0);
        ring_cancel(&op.op);
        cr_assert_eq(result_of(&op), -ECANCELED, "the end was asked for: no repetition");

        /* nothing there yet: it waits in a poll meanwhile, which can be canceled, too */
        faults->result = 1;
        cr_assert_eq(ring_recv(&keep(&op)->op, pair[0], buf, sizeof buf, 0), 0);
        while (faults->result > 0 || weft__rt->engine->class->quiet(weft__rt->engine) == false)
            cr_assert_eq(weft__rt->engine->class->turn(weft__rt->engine, WEFT_NOWAIT), 0);
        ring_cancel(&op.op);
        cr_assert_eq(result_of(&op), -ECANCELED);
    }
    /* asked for by the caller, it is a result */
    cr_assert_eq(ring_recv(&keep(&op)->op, pair[0], buf, sizeof buf, MSG_DONTWAIT), 0);
    cr_assert_eq(result_of(&op), -EAGAIN);
    close_pair(pair);
}

Test(ring_faults, a_disturbed_operation_is_repeated)
{
    EACH_FAULT_TEST(repeat_body);
}

/* Short transfers are results like any other. */
static void short_body(void)
{
    struct ring__faults *faults = ring__faults(weft__rt);
    struct kept op;
    int pair[2];
    char buf[8];

    make_pair(pair);
    faults->short_io = 2;
    cr_assert_eq(ring_send(&keep(&op)->op, pair[0], "hello", 5, 0), 0);
    cr_assert_eq(result_of(&op), 1);
    cr_assert_eq(ring_recv(&keep(&op)->op, pair[1], buf, sizeof buf, 0), 0);
    cr_assert_eq(result_of(&op), 1);
    cr_assert_eq(faults->short_io, 0);
    close_pair(pair);
}

Test(ring_faults, short_transfers)
{
    EACH_FAULT_TEST(short_body);
}
