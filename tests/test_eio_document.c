/* docs/eio.md: every test it names exists, and no number is missing. (That functions exist, here and in the
 * other pages, is checked by scripts/documents.sh.) */
#include "document_support.h"

#include <criterion/criterion.h>
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
