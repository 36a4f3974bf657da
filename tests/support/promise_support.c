/* promise_support.c: see promise_support.h. */
#include "promise_support.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char trace[8192];
int destroyed;

struct test_run {
    struct promise *(*body)(void);
    size_t own, left;
};

static struct promise *count_left(union weft_value value, void *arg)
{
    struct test_run *run = arg;

    (void)value;
    run->left = promise__live();
    return promise_fulfilled(weft_num(0));
}

static struct promise *pause_once(union weft_value value, void *arg)
{
    (void)value;
    (void)arg;
    return promise_pause();
}

/* In the end only the main promise's own blocks are alive: as many as with an empty body. */
static struct promise *test_main(void *arg)
{
    struct test_run *run = arg;
    struct promise *p = run->body != NULL ? run->body() : NULL;

    p = promise_bind(p != NULL ? p : promise_pause(), pause_once, NULL);
    return promise_bind(p, count_left, run);
}

static void run_one(struct test_run *run, const struct setup *setup)
{
    struct weft_options options = setup_options(setup);
    int rc = promise_run(test_main, run, &options, NULL);

    cr_assert_eq(rc, 0, "%s: %d %s", setup->name, rc, report_text());
}

void run_promises(struct promise *(*body)(void))
{
    EACH_ENGINE(setup)
    {
        struct test_run empty = {NULL, 0, 0}, run = {body, 0, 0};

        run_one(&empty, setup);
        trace[0] = '\0';
        destroyed = 0;
        run_one(&run, setup);
        cr_assert_eq(run.left, empty.left, "%s: %zu promises left", setup->name,
                     run.left - empty.left);
    }
}

void note(const char *what)
{
    strncat(trace, what, sizeof trace - strlen(trace) - 1);
}

void note_number(int64_t number)
{
    char text[32];

    snprintf(text, sizeof text, "%" PRId64 " ", number);
    note(text);
}

void assert_trace(const char *expected)
{
    cr_assert_str_eq(trace, expected);
    trace[0] = '\0';
}

void assert_pending(struct promise *p)
{
    cr_assert_eq(promise_state(p), PROMISE_PENDING);
}

void assert_value(struct promise *p, int64_t value)
{
    union weft_value actual = weft_num(-1);
    int err = 0;

    cr_assert_eq(promise_poll(p, &actual, &err), PROMISE_FULFILLED, "error %d", err);
    cr_assert_eq(actual.num, value, "%" PRId64 ", not %" PRId64, actual.num, value);
}

void assert_error(struct promise *p, int err)
{
    int actual = 0;

    cr_assert_eq(promise_poll(p, NULL, &actual), PROMISE_REJECTED);
    cr_assert_eq(actual, err, "%d, not %d", actual, err);
}

void take_value(struct promise *p, int64_t value)
{
    assert_value(p, value);
    promise_unref(p);
}

void take_error(struct promise *p, int err)
{
    assert_error(p, err);
    promise_unref(p);
}

void take_values(struct promise *p, const char *expected)
{
    char text[512] = "";
    union weft_value value;
    const struct promise_values *values;
    int err = 0;

    cr_assert_eq(promise_poll(p, &value, &err), PROMISE_FULFILLED, "error %d", err);
    values = value.ptr;
    for (size_t i = 0; i < values->count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%" PRId64, i > 0 ? " " : "",
                 values->value[i].num);
    cr_assert_str_eq(text, expected);
    promise_unref(p);
}

static int watch_success(union weft_value value, void *ctx)
{
    note(ctx);
    note("=");
    note_number(value.num);
    return 0;
}

static int watch_failure(int err, void *ctx)
{
    note(ctx);
    note("!");
    note_number(err);
    return 0;
}

void watch(struct promise *p, const char *name)
{
    cr_assert_eq(promise_on_any(p, watch_success, watch_failure, (void *)(uintptr_t)name), 0);
}

void *boxed(int64_t number)
{
    int64_t *box = malloc(sizeof *box);

    *box = number;
    return box;
}

int64_t unboxed(void *box)
{
    int64_t number = *(int64_t *)box;

    free(box);
    return number;
}

void destroy_box(void *box)
{
    destroyed++;
    free(box);
}
