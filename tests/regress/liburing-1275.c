/* needs: fibers */
/* axboe/liburing#1275: without a buffer, a receive into provided buffers fails at once; who begins it again
 * at once spins. (#758: one connection can take all buffers.)
 *
 * One buffer, held for a while: the other connection waits without spinning, loses nothing, and has its
 * turn although the first one always has something to say. What is counted is the runtime's passes.
 */
#include "io_support.h"

#include <weft/io.h>

#include <criterion/criterion.h>

static void put(int fd, const char *text)
{
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static void expect_text(struct ring_stream *stream, const char *text)
{
    while (*text != '\0') {
        struct ring_item item;
        int n = fiber_stream_next(stream, &item, WEFT_FOREVER);

        cr_assert_gt(n, 0, "%d", n);
        cr_assert_eq(memcmp(item.data, text, item.len), 0);
        text += n;
        ring_item_release(&item);
    }
}

static int one_buffer_main(void *unused)
{
    struct weft_stats stats = {.size = sizeof stats};
    struct ring_stream *busy, *quiet;
    struct ring_buffers *buffers;
    struct ring_item item, other;
    int a[2], b[2];
    uint64_t passes;

    (void)unused;
    make_pair(a);
    make_pair(b);
    cr_assert_eq(ring_buffers_create(&buffers, 1, 4), 0);
    cr_assert_eq(ring_stream_recv(&busy, a[0], buffers), 0);
    cr_assert_eq(ring_stream_recv(&quiet, b[0], buffers), 0);
    put(a[1], "busy busy busy busy busy busy busy busy ");
    cr_assert_eq(fiber_stream_next(busy, &item, WEFT_FOREVER), 4);
    put(b[1], "quietest");
    cr_assert_eq(fiber_stream_next(quiet, &other, weft_after(WEFT_MS(10))), -ETIMEDOUT);
    cr_assert_eq(weft_stats(&stats), 0);
    passes = stats.passes;
    cr_assert_eq(fiber_stream_next(quiet, &other, weft_after(WEFT_MS(100))), -ETIMEDOUT);
    cr_assert_eq(weft_stats(&stats), 0);
    if (!on_valgrind()) /* where every wait is made of short ones */
        cr_assert_lt(stats.passes - passes, 50, "it spins");
    ring_item_release(&item);
    for (int i = 0; i < 2; i++) { /* in turn */
        cr_assert_eq(fiber_stream_next(quiet, &other, WEFT_FOREVER), 4);
        cr_assert_eq(memcmp(other.data, &"quietest"[4 * i], 4), 0);
        ring_item_release(&other);
        cr_assert_eq(fiber_stream_next(busy, &item, WEFT_FOREVER), 4);
        cr_assert_eq(memcmp(item.data, i == 0 ? " bus" : "y bu", 4), 0);
        ring_item_release(&item);
    }
    ring_stream_close(busy);
    put(b[1], "and again");
    expect_text(quiet, "and again");
    ring_stream_close(quiet);
    ring_buffers_destroy(buffers);
    close_pair(a);
    close_pair(b);
    return 0;
}

Test(liburing_1275, one_buffer_goes_round)
{
    run_on_each_io_setup(one_buffer_main);
}
