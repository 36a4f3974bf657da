/* exchange_promise.c: the exchange in promise style: a loop of binds for each side. */
#include "exchange_weft.h"

#include <weft/io.h>
#include <weft/promise.h>

#include <stdlib.h>

struct talk {
    const struct exchange *exchange;
    const struct exchange_side *side;
    long left;
};

struct run {
    const struct exchange *exchange;
    struct exchange_result *result;
    struct talk *talks;
    struct promise **ends;
};

static struct promise *speak(struct talk *talk);
static struct promise *hear(struct talk *talk);

static struct promise *spoken(union weft_value value, void *arg)
{
    struct talk *talk = arg;

    if (talk->side->client)
        return hear(talk);
    return --talk->left > 0 ? hear(talk) : promise_fulfilled(value);
}

static struct promise *heard(union weft_value value, void *arg)
{
    struct talk *talk = arg;

    if (!talk->side->client)
        return speak(talk);
    return --talk->left > 0 ? speak(talk) : promise_fulfilled(value);
}

static struct promise *speak(struct talk *talk)
{
    return promise_bind(promise_send_all(talk->side->fd, talk->side->buffer, talk->exchange->bytes,
                                         0, NULL, WEFT_FOREVER),
                        spoken, talk);
}

static struct promise *hear(struct talk *talk)
{
    return promise_bind(promise_recv_all(talk->side->fd, talk->side->buffer, talk->exchange->bytes,
                                         0, NULL, WEFT_FOREVER),
                        heard, talk);
}

static int all_ended(void *arg)
{
    exchange_end(((const struct run *)arg)->result);
    return 0;
}

static struct promise *run_all(void *arg)
{
    struct run *run = arg;
    const int count = 2 * run->exchange->pairs;
    struct promise *all;

    exchange_begin(run->result);
    for (int i = 0; i < count; i++) {
        struct talk *talk = &run->talks[i];

        *talk = (struct talk){run->exchange, &run->exchange->sides[i], run->exchange->trips};
        run->ends[i] = talk->side->client ? speak(talk) : hear(talk);
    }
    all = promise_join(run->ends, (size_t)count);
    if (promise_on_termination(all, all_ended, run) < 0)
        bench_die("out of memory");
    return all;
}

void exchange_promise(const struct exchange *exchange, const struct exchange_impl *impl,
                      struct exchange_result *result)
{
    const struct weft_options options = exchange_options(impl, result);
    const size_t count = 2 * (size_t)exchange->pairs;
    struct run run = {exchange, result, calloc(count, sizeof(*run.talks)),
                      calloc(count, sizeof(struct promise *))};

    if (run.talks == NULL || run.ends == NULL)
        bench_die("out of memory");
    exchange_check(promise_run(run_all, &run, &options, NULL), result);
    free(run.talks);
    free(run.ends);
}
