/* The script interpreter on the directed cases and the corpus: every trace must be Lwt's, byte for
 * byte. */
int promise_script_main(int argc, char **argv);

#define main promise_script_main
#include "promise_script.c"
#undef main

#include <criterion/criterion.h>

/* The files stand beside this one. */
static int run_file_named(const char *file, const char *option)
{
    char path[4096],
        *argv[5] = {(char *)(intptr_t) "promise_script", (char *)(intptr_t) "--quiet", NULL};
    const char *here = __FILE__, *slash = strrchr(here, '/');
    int argc = 2;

    snprintf(path, sizeof path, "%.*s/oracle/%s", slash != NULL ? (int)(slash - here) : 1,
             slash != NULL ? here : ".", file);
    if (option != NULL)
        argv[argc++] = (char *)(intptr_t)option;
    argv[argc++] = path;
    return promise_script_main(argc, argv);
}

Test(oracle, directed)
{
    cr_assert_eq(run_file_named("directed.txt", NULL), 0);
}

Test(oracle, corpus)
{
    cr_assert_eq(run_file_named("corpus.txt", NULL), 0);
}

Test(oracle, directed_in_a_fiber)
{
    cr_assert_eq(run_file_named("directed.txt", "--fiber"), WEFT_HAS_FIBERS ? 0 : 2);
}

Test(oracle, corpus_in_a_fiber)
{
    cr_assert_eq(run_file_named("corpus.txt", "--fiber"), WEFT_HAS_FIBERS ? 0 : 2);
}
