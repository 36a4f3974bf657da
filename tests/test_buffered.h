/* test_buffered.h: what the tests of readers and writers share: reproducible chance, and running them. */
#ifndef WEFT_TEST_BUFFERED_H
#define WEFT_TEST_BUFFERED_H

#include "allocations.h"
#include "fiber_internal.h"
#include "io_support.h"
#include "ring_internal.h"

#include <weft/buffered.h>
#include <weft/io.h>
#include <weft/promise.h>

#include <criterion/criterion.h>

#define ON_EACH_SETUP(main)                                                               \
    EACH_IO_SETUP(setup)                                                                  \
    {                                                                                     \
        cr_assert_eq(run_on(setup, main, NULL), 0, "%s: %s", setup->name, report_text()); \
    }

/* On the first set-up, whose engine does no I/O: for sources and sinks of one's own. */
#define WITHOUT_IO(main) cr_assert_eq(run_on(&setups[0], main, NULL), 0, "%s", report_text())

struct chance {
    uint64_t state;
};

static inline uint64_t draw(struct chance *c)
{
    c->state = c->state * 6364136223846793005u + 1442695040888963407u;
    return c->state >> 33;
}

/* 0 to `below` - 1 */
static inline size_t below(struct chance *c, size_t below)
{
    return (size_t)(draw(c) % below);
}

static inline struct chance seeded(uint64_t seed)
{
    struct chance c = {seed * 0x9e3779b97f4a7c15u + 1};

    draw(&c);
    return c;
}

/* In turn, with a chance of one in four: now or never. */
static inline weft_time some_deadline(struct chance *c)
{
    return below(c, 4) == 0 ? WEFT_NOWAIT : WEFT_FOREVER;
}

#endif
