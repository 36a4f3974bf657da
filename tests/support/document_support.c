/* document_support.c: see document_support.h. */
#include "document_support.h"

#include <criterion/criterion.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *read_document(const char *path)
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

const char *in_tests(const char *name)
{
    const char *here = __FILE__, *slash = strstr(here, "support/document_support.c");
    static char path[4096];

    snprintf(path, sizeof path, "%.*s%s", slash != NULL ? (int)(slash - here) : 0, here, name);
    return path;
}

static char *sources[512];

static void read_sources(const char *pattern)
{
    static size_t count;
    glob_t found;

    cr_assert_eq(glob(in_tests(pattern), 0, NULL, &found), 0, "%s", pattern);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        cr_assert_lt(count, sizeof sources / sizeof sources[0] - 1);
        sources[count++] = read_document(found.gl_pathv[i]);
    }
    globfree(&found);
}

bool test_exists(const char *suite, const char *name)
{
    char declared[256];

    if (sources[0] == NULL) {
        read_sources("test_*.c");
        read_sources("regress/*.c*");
    }
    if (strcmp(suite, "promise_fiber") == 0)
        snprintf(declared, sizeof declared, "FIBER_TEST(%s)", name);
    else
        snprintf(declared, sizeof declared, "(%s, %s", suite, name);
    for (size_t i = 0; sources[i] != NULL; i++)
        for (const char *at = sources[i]; (at = strstr(at, declared)) != NULL; at++) {
            char next = at[strlen(declared)];

            if (declared[0] == 'F' ||
                ((next == ')' || next == ',') && at > sources[i] && strchr("TtSs", at[-1]) != NULL))
                return true;
        }
    return false;
}

size_t each_test_named(const char *text, void (*visit)(const char *suite, const char *name))
{
    size_t count = 0;

    for (const char *at = text; (at = strchr(at, '`')) != NULL; at++) {
        char suite[128], name[128];
        size_t first = strspn(at + 1, TEST_NAME), second;

        if (first == 0 || first >= sizeof suite || at[1 + first] != '/')
            continue;
        second = strspn(at + 2 + first, TEST_NAME);
        if (second == 0 || second >= sizeof name || at[2 + first + second] != '`')
            continue;
        snprintf(suite, sizeof suite, "%.*s", (int)first, at + 1);
        snprintf(name, sizeof name, "%.*s", (int)second, at + 2 + first);
        visit(suite, name);
        count++;
    }
    return count;
}
