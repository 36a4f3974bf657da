/* docs/conformance.md: every test it names exists, no rule and no function is missing, and the numbers
 * add up. */
#include <criterion/criterion.h>

#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *read_all(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text;
    long size;

    cr_assert_not_null(file, "%s", path);
    cr_assert_eq(fseek(file, 0, SEEK_END), 0);
    size = ftell(file);
    rewind(file);
    text = malloc((size_t)size + 1);
    cr_assert_not_null(text);
    cr_assert_eq(fread(text, 1, (size_t)size, file), (size_t)size);
    text[size] = '\0';
    fclose(file);
    return text;
}

/* A path beside this file's folder. */
static char *beside(const char *name)
{
    const char *here = __FILE__, *slash = strrchr(here, '/');
    static char path[4096];

    snprintf(path, sizeof path, "%.*s/%s", slash != NULL ? (int)(slash - here) : 1,
             slash != NULL ? here : ".", name);
    return path;
}

static char *document(void)
{
    return read_all(beside("../docs/conformance.md"));
}

static char *sources[256];

static void read_sources(void)
{
    glob_t found;

    cr_assert_eq(glob(beside("test_*.c"), 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc && i < 255; i++)
        sources[i] = read_all(found.gl_pathv[i]);
    globfree(&found);
}

static bool test_exists(const char *suite, const char *name)
{
    char declared[256];

    if (strcmp(suite, "promise_fiber") == 0)
        snprintf(declared, sizeof declared, "FIBER_TEST(%s)", name);
    else
        snprintf(declared, sizeof declared, "(%s, %s)\n", suite, name);
    for (size_t i = 0; sources[i] != NULL; i++)
        if (strstr(sources[i], declared) != NULL)
            return true;
    return false;
}

#define NAME "abcdefghijklmnopqrstuvwxyz0123456789_"

Test(document, every_test_named_exists)
{
    char *text = document();
    size_t count = 0;

    read_sources();
    for (char *at = text; (at = strchr(at, '`')) != NULL; at++) { /* `suite/name` */
        char suite[128], name[128];
        size_t first = strspn(at + 1, NAME), second;

        if (first == 0 || first >= sizeof suite || at[1 + first] != '/')
            continue;
        second = strspn(at + 2 + first, NAME);
        if (second == 0 || second >= sizeof name || at[2 + first + second] != '`')
            continue;
        snprintf(suite, sizeof suite, "%.*s", (int)first, at + 1);
        snprintf(name, sizeof name, "%.*s", (int)second, at + 2 + first);
        if (strcmp(suite, "suite") != 0) {
            cr_expect(test_exists(suite, name), "%s/%s", suite, name);
            count++;
        }
    }
    cr_assert_gt(count, 250);
    free(text);
}

Test(document, every_function_has_its_test)
{
    char *header = read_all(beside("../include/weft/promise.h")), *text = document();
    size_t count = 0;

    read_sources();
    for (char *at = header; (at = strstr(at, "\nWEFT_API ")) != NULL; at++) {
        char *name = strstr(at, "promise_"), row[256];
        size_t length = strspn(name, NAME);

        if (name[length] != '(') { /* the result's type */
            name = strstr(name + length, "promise_");
            length = strspn(name, NAME);
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
    char *rules = read_all(beside("../docs/promises.md")), *text = document();

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
