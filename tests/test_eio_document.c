/* docs/eio.md: every test and every function it names exists, and no number is missing. */
#include "document_support.h"

#include <criterion/criterion.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_test(const char *suite, const char *name)
{
    cr_expect(test_exists(suite, name), "%s/%s", suite, name);
}

Test(eio_document, every_test_named_exists)
{
    char *text = read_document(in_tests("../docs/eio.md"));

    cr_assert_gt(each_test_named(text, check_test), 90);
    free(text);
}

/* All public headers in one text. */
static char *headers(void)
{
    char *all = calloc(1, 1);
    glob_t found;

    cr_assert_eq(glob(in_tests("../include/weft/*.h"), 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char *one = read_document(found.gl_pathv[i]);

        all = realloc(all, strlen(all) + strlen(one) + 1);
        cr_assert_not_null(all);
        strcat(all, one);
        free(one);
    }
    globfree(&found);
    return all;
}

static bool is_declared(const char *all, const char *name, size_t length)
{
    for (const char *at = all; (at = strstr(at, name)) != NULL; at++)
        if (strchr(" *\n", at[-1]) != NULL && at[length] == '(')
            return true;
    return false;
}

/* What stands as `fiber_...`, `promise_...`, `ring_...` or `weft_...` is a function or a macro. */
Test(eio_document, every_function_named_exists)
{
    static const char *const prefixes[] = {"`fiber_", "`promise_", "`ring_", "`weft_"};
    char *text = read_document(in_tests("../docs/eio.md")), *all = headers();
    size_t count = 0;

    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        for (const char *at = text; (at = strstr(at, prefixes[i])) != NULL; at++) {
            char name[64];
            size_t length = strspn(at + 1, TEST_NAME);

            if (strchr("`(", at[1 + length]) == NULL) /* a test's name */
                continue;
            cr_assert_lt(length, sizeof name);
            snprintf(name, sizeof name, "%.*s", (int)length, at + 1);
            cr_expect(is_declared(all, name, length), "%s", name);
            count++;
        }
    }
    cr_assert_gt(count, 80);
    free(text);
    free(all);
}

/* Rows that begin with 1, 2, 3, ... as far as they go, from one heading to another. */
static int count_rows(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from), *end = to != NULL ? strstr(text, to) : text + strlen(text);
    int count = 0, number;

    cr_assert(at != NULL && end != NULL, "%s", from);
    for (; (at = strstr(at, "\n| ")) != NULL && at < end; at++) {
        if (sscanf(at, "\n| %d |", &number) != 1)
            continue;
        count++;
        cr_expect_eq(number, count, "%d is missing", count);
    }
    return count;
}

Test(eio_document, no_number_is_missing)
{
    char *text = read_document(in_tests("../docs/eio.md"));

    cr_expect_eq(count_rows(text, "\n## Fibers, ", "\n## I/O"), 28);
    cr_expect_eq(count_rows(text, "\n## What Eio's tracker", NULL), 36);
    free(text);
}
