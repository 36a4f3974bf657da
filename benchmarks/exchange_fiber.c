/* exchange_fiber.c: the exchange in direct style: a fiber for each side. */
#include "exchange_weft.h"

#include <weft/fiber.h>
#include <weft/io.h>

#include <stdlib.h>

struct talk {
    const struct exchange *exchange;
    const struct exchange_side *side;
};

struct run {
    const struct exchange *exchange;
    struct exchange_result *result;
    struct talk *talks;
    struct promise **ends;
};

static int64_t client(void *arg)
{
    const struct talk *talk = arg;
    const struct exchange_side *side = talk->side;
    const size_t bytes = talk->exchange->bytes;
    int rc = 0;

    for (long left = talk->exchange->trips; left > 0 && rc == 0; left--) {
        rc = fiber_send_all(side->fd, side->buffer, bytes, 0, NULL, WEFT_FOREVER);
        if (rc == 0)
            rc = fiber_recv_all(side->fd, side->buffer, bytes, 0, NULL, WEFT_FOREVER);
    }
    return rc;
}

static int64_t server(void *arg)
{
    const struct talk *talk = arg;
    const struct exchange_side *side = talk->side;
    const size_t bytes = talk->exchange->bytes;
    int rc = 0;

    for (long left = talk->exchange->trips; left > 0 && rc == 0; left--) {
        rc = fiber_recv_all(side->fd, side->buffer, bytes, 0, NULL, WEFT_FOREVER);
        if (rc == 0)
            rc = fiber_send_all(side->fd, side->buffer, bytes, 0, NULL, WEFT_FOREVER);
    }
    return rc;
}

static int run_all(void *arg)
{
    const struct run *run = arg;
    const int count = 2 * run->exchange->pairs;
    int rc = 0;

    exchange_begin(run->result);
    for (int i = 0; i < count; i++) {
        struct talk *talk = &run->talks[i];

        *talk = (struct talk){run->exchange, &run->exchange->sides[i]};
        run->ends[i] = fiber_spawn(talk->side->client ? client : server, talk);
    }
    for (int i = 0; i < count && rc == 0; i++)
        rc = fiber_await(run->ends[i], NULL, WEFT_FOREVER);
    exchange_end(run->result);
    return rc;
}

void exchange_fiber(const struct exchange *exchange, const struct exchange_impl *impl,
                    struct exchange_result *result)
{
    const struct weft_options options = exchange_options(impl, result);
    const size_t count = 2 * (size_t)exchange->pairs;
    struct run run = {exchange, result, calloc(count, sizeof(*run.talks)),
                      calloc(count, sizeof(struct promise *))};

    if (run.talks == NULL || run.ends == NULL)
        bench_die("out of memory");
    exchange_check(weft_run(run_all, &run, &options), result);
    free(run.talks);
    free(run.ends);
}
