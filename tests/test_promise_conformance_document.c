/* docs/conformance.md: every test it names exists, no rule and no function is missing, and the numbers
 * add up. */
#include "document_support.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *document(void)
{
    return read_document(in_tests("../docs/conformance.md"));
}

static size_t others;

static void check_test(const char *suite, const char *name)
{
    if (strcmp(suite, "suite") == 0)
        others++;
    else
        cr_expect(test_exists(suite, name), "%s/%s", suite, name);
}

Test(document, every_test_named_exists)
{
    char *text = document();

    cr_assert_gt(each_test_named(text, check_test) - others, 250);
    free(text);
}

Test(document, every_function_has_its_test)
{
    char *header = read_document(in_tests("../include/weft/promise.h")), *text = document();
    size_t count = 0;

    for (char *at = header; (at = strstr(at, "\nWEFT_API ")) != NULL; at++) {
        char *name = strstr(at, "promise_"), row[256];
        size_t length = strspn(name, TEST_NAME);

        if (name[length] != '(') { /* the result's type */
            name = strstr(name + length, "promise_");
            length = strspn(name, TEST_NAME);
        }
        cr_assert_eq(name[length], '(', "%.60s", at);
        name[length] = '\0';
        snprintf(row, sizeof row, "\n| `%s` | `api/%s` |", name, name + strlen("promise_"));
        cr_expect_not_null(strstr(text, row), "%s is not in the table", name);
        cr_expect(test_exists("api", name + strlen("promise_")), "%s has no test", name);
        name[length] = '(';
        count++;
    }
    cr_assert_gt(count, 50);
    free(header);
    free(text);
}

Test(document, every_rule_has_its_test)
{
    char *rules = read_document(in_tests("../docs/promises.md")), *text = document();

    for (int i = 1; i <= 40; i++) {
        char rule[64], row[64];

        snprintf(rule, sizeof rule, "\n- R%d. ", i);
        snprintf(row, sizeof row, "\n| R%d | `rules/r%02d_", i, i);
        cr_expect_not_null(strstr(rules, rule), "rule %d is not stated", i);
        cr_expect_not_null(strstr(text, row), "rule %d has no test", i);
    }
    free(rules);
    free(text);
}

/* The second column of the table below `heading`, added up; how many rows. */
static int add_up(const char *text, const char *heading, int *rows)
{
    const char *at = strstr(text, heading);
    int sum = 0;

    cr_assert_not_null(at, "%s", heading);
    at = strstr(at, "|---|");
    cr_assert_not_null(at);
    *rows = 0;
    while ((at = strchr(at, '\n')) != NULL && at[1] == '|') {
        at = strchr(at + 2, '|');
        sum += atoi(at + 1);
        ++*rows;
    }
    return sum;
}

Test(document, the_cases_add_up)
{
    char *text = document();
    int rows;

    cr_assert_eq(add_up(text, "### core/test_lwt: 57 groups", &rows), 448);
    cr_assert_eq(rows, 57);
    cr_assert_eq(add_up(text, "### All core programs", &rows), 705);
    cr_assert_eq(rows, 11);
    free(text);
}
