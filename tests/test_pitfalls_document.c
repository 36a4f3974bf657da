/* docs/pitfalls.md: every test it names exists, of the build too; no number is missing, and each has its
 * test or says why not; and every file of tests/regress/ stands in the table of reports. */
#include "document_support.h"

#include <criterion/criterion.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *document(void)
{
    return read_document(in_tests("../docs/pitfalls.md"));
}

static void check_test(const char *suite, const char *name)
{
    cr_expect(test_exists(suite, name), "%s/%s", suite, name);
}

Test(pitfalls, every_test_named_exists)
{
    char *text = document(), *build = read_document(in_tests("CMakeLists.txt"));
    size_t count = 0;

    cr_assert_gt(each_test_named(text, check_test), 130);
    for (const char *at = text; (at = strstr(at, "`ctest ")) != NULL; at++) {
        char added[128];

        snprintf(added, sizeof added, "add_test(NAME %.*s ", (int)strspn(at + 7, TEST_NAME),
                 at + 7);
        cr_expect_not_null(strstr(build, added), "%s", added);
        count++;
    }
    cr_assert_gt(count, 4);
    free(text);
    free(build);
}

/* The rows 1 to `count` of the table below `heading`. */
static void check_table(const char *text, const char *heading, int count)
{
    const char *at = strstr(text, heading);

    cr_assert_not_null(at, "%s", heading);
    at = strstr(at, "|---|");
    for (int i = 1; i <= count; i++) {
        char start[24];
        const char *end;

        snprintf(start, sizeof start, "\n| %d | ", i);
        at = strchr(at, '\n');
        cr_assert(at != NULL && strncmp(at, start, strlen(start)) == 0, "%s: %d is missing",
                  heading, i);
        end = strchr(at + 1, '\n');
        cr_expect(memmem(at, (size_t)(end - at), "`", 1) != NULL ||
                      memmem(at, (size_t)(end - at), "not apply", 9) != NULL,
                  "%s: %d has no test, and no reason", heading, i);
        at++;
    }
    at = strchr(at, '\n');
    cr_assert_neq(at[1], '|', "%s: there are more than %d", heading, count);
}

Test(pitfalls, no_number_is_missing)
{
    char *text = document();

    check_table(text, "\n## The ring\n", 33);
    check_table(text, "\n## Fibers\n", 29);
    free(text);
}

Test(pitfalls, every_report_has_its_file)
{
    char *text = document();
    size_t named = 0;
    glob_t found;

    cr_assert_eq(glob(in_tests("regress/*.c*"), 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char row[256];

        snprintf(row, sizeof row, "| `regress/%s` |", strrchr(found.gl_pathv[i], '/') + 1);
        cr_expect_not_null(strstr(text, row), "%s is not in the table", row);
    }
    for (const char *at = text; (at = strstr(at, "| `regress/")) != NULL; at++)
        named++;
    cr_expect_eq(named, found.gl_pathc, "%zu files are named, there are %zu", named,
                 found.gl_pathc);
    globfree(&found);
    free(text);
}
