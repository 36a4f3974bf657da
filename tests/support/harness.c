/* harness.c: see harness.h. */
#include "harness.h"

#include "ring_internal.h"

#include <pthread.h>
#include <string.h>

#if defined(__has_include)
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#endif
#endif
#ifndef RUNNING_ON_VALGRIND
#define RUNNING_ON_VALGRIND 0
#endif

const struct setup setups[] = {
    {"null", "null", 0, 0, 0},
    {"uring", "uring", 0, 0, 0},
    {"uring, plain flags", "uring", WEFT_RING_PLAIN, 0, 0},
    {"uring, cooperative", "uring", WEFT_RING_COOP, 0, 0},
    {"uring, 4 submissions", "uring", 0, 4, 0},
    {"uring, 8 completions", "uring", 0, 4, 8},
    {"uring, without opcodes", "uring", SETUP_PLAIN, 0, 0},
    {"epoll", "epoll", 0, 0, 0},
};
const size_t setups_count = sizeof setups / sizeof setups[0];

static char reported[16384];
static pthread_mutex_t reporting = PTHREAD_MUTEX_INITIALIZER; /* runtimes report on their threads */

static void keep_report(void *ctx, const char *line)
{
    size_t used, n = strlen(line);

    (void)ctx;
    pthread_mutex_lock(&reporting);
    used = strlen(reported);
    if (used + n + 2 <= sizeof reported) {
        memcpy(reported + used, line, n);
        reported[used + n] = '\n';
        reported[used + n + 1] = '\0';
    }
    pthread_mutex_unlock(&reporting);
}

struct weft_options setup_options(const struct setup *setup)
{
    struct weft_options options = WEFT_OPTIONS_INIT;

    reported[0] = '\0';
    memset(ring__refused_rows, setup->flags & SETUP_PLAIN ? 1 : 0, sizeof ring__refused_rows);
    options.engine = setup->engine;
    options.ring_flags = setup->flags & ~SETUP_PLAIN;
    options.sq_entries = setup->sq_entries;
    options.cq_entries = setup->cq_entries;
    options.report = keep_report;
    return options;
}

bool is_plain(const struct setup *setup)
{
    return setup->flags & SETUP_PLAIN || strcmp(setup->engine, "epoll") == 0;
}

int run_on(const struct setup *setup, weft_main_fn *main, void *arg)
{
    struct weft_options options = setup_options(setup);

    return weft_run(main, arg, &options);
}

int report_contains(const char *text)
{
    return strstr(reported, text) != NULL;
}

const char *report_text(void)
{
    return reported;
}

int slow_tools(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 1;
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    return 1;
#endif
#endif
    return on_valgrind();
}

int on_valgrind(void)
{
    return RUNNING_ON_VALGRIND != 0;
}
