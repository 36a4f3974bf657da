/* The scripts with Lwt's traces on each engine, at the base stack and in a fiber. */
int promise_script_main(int argc, char **argv);

#define main promise_script_main
#include "promise_script.c"
#undef main

#include <criterion/criterion.h>

static struct promise *say_engine(void *name)
{
    return promise_from_result(strcmp(weft_engine_name(), name) == 0 ? 0 : -ERANGE);
}

/* Both files; they stand beside this one. */
static void run_both(const char *engine, const char *option)
{
    const char *const files[] = {"directed.txt", "corpus.txt"};
    const char *here = __FILE__, *slash = strrchr(here, '/');

    setenv("WEFT_ENGINE", engine, 1);
    cr_assert_eq(promise_run(say_engine, (void *)(intptr_t)engine, NULL, NULL), 0);
    for (int i = 0; i < 2; i++) {
        char path[4096],
            *argv[5] = {(char *)(intptr_t) "promise_script", (char *)(intptr_t) "--quiet", NULL};
        int argc = 2;

        snprintf(path, sizeof path, "%.*s/oracle/%s", slash != NULL ? (int)(slash - here) : 1,
                 slash != NULL ? here : ".", files[i]);
        if (option != NULL)
            argv[argc++] = (char *)(intptr_t)option;
        argv[argc++] = path;
        memset(&run, 0, sizeof run);
        cr_assert_eq(promise_script_main(argc, argv), 0, "%s on %s", files[i], engine);
        cr_assert_gt(run.cases, 100);
    }
}

Test(engines, null)
{
    run_both("null", NULL);
}

Test(engines, uring)
{
    run_both("uring", NULL);
}

Test(engines, epoll)
{
    run_both("epoll", NULL);
}

#if WEFT_HAS_FIBERS
Test(engines, null_in_a_fiber)
{
    run_both("null", "--fiber");
}

Test(engines, uring_in_a_fiber)
{
    run_both("uring", "--fiber");
}

Test(engines, epoll_in_a_fiber)
{
    run_both("epoll", "--fiber");
}
#endif
