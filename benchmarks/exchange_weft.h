/* exchange_weft.h: what exchange_fiber.c and exchange_promise.c have in common: a runtime's set-up. */
#ifndef BENCH_EXCHANGE_WEFT_H
#define BENCH_EXCHANGE_WEFT_H

#include "exchange.h"

#include <weft/runtime.h>

#include <stdio.h>
#include <string.h>

/* The first line that a runtime reports is the reason why it does not run. */
static inline void exchange_report(void *result, const char *line)
{
    struct exchange_result *to = result;

    if (to->remark[0] == '\0')
        snprintf(to->remark, sizeof(to->remark), "%s", line);
}

static inline struct weft_options exchange_options(const struct exchange_impl *impl,
                                                   struct exchange_result *result)
{
    struct weft_options options = WEFT_OPTIONS_INIT;

    options.engine = impl->engine;
    if (impl->mode != NULL && strcmp(impl->mode, "coop") == 0)
        options.ring_flags = WEFT_RING_COOP;
    options.report = exchange_report;
    options.report_ctx = result;
    return options;
}

/* With io_uring these are all the system calls there are; other engines make more than they count. */
static inline uint64_t exchange_calls(void)
{
    struct weft_stats stats = {.size = sizeof(stats)};

    return strcmp(weft_engine_name(), "uring") == 0 && weft_stats(&stats) == 0 ? stats.enters : 0;
}

/* In the runtime, right before and right after. */
static inline void exchange_begin(struct exchange_result *result)
{
    result->calls = exchange_calls();
    result->ns = bench_now();
}

static inline void exchange_end(struct exchange_result *result)
{
    result->ns = bench_now() - result->ns;
    result->calls = exchange_calls() - result->calls;
}

static inline void exchange_check(int rc, const struct exchange_result *result)
{
    if (rc < 0 && result->remark[0] == '\0')
        bench_die("weft: %s", strerror(-rc));
}

#endif
