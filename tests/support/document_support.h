/* document_support.h: documents that name tests, and the sources that have them. */
#ifndef WEFT_TEST_DOCUMENT_SUPPORT_H
#define WEFT_TEST_DOCUMENT_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>

#define TEST_NAME "abcdefghijklmnopqrstuvwxyz0123456789_"

/* The text of a file, which must exist; free it. */
char *read_document(const char *path);

/* The path of a file by its place in tests/; valid until the next call. */
const char *in_tests(const char *name);

/* Whether a test of that name is declared in tests/ or tests/regress/. */
bool test_exists(const char *suite, const char *name);

/* Calls visit for each `suite/name` in the text; how many there were. */
size_t each_test_named(const char *text, void (*visit)(const char *suite, const char *name));

#endif
