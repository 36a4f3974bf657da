/* needs: fibers */
/* joyent/libuv#887: one loop reaped the children of another, which then waited for ever.
 *
 * Two runtimes in two threads, each with children of its own, and a child of neither: each gets the statuses
 * of its own, in whatever order it asks, and the foreign one is left alone. (That a status which others
 * have taken is a value, socketry/io-event#201, is test_process: a_status_taken_by_others.)
 */
#include "process_support.h"
#include "source.h"

#include <weft/io.h>

#include <criterion/criterion.h>
#include <pthread.h>
#include <sys/wait.h>

struct family {
    const struct setup *setup;
    int first, second, result;
};

static int family_main(void *arg)
{
    struct family *f = arg;

    for (int i = 0; i < 10; i++) {
        struct weft_process a, b;
        char script[32];
        int status;

        snprintf(script, sizeof script, "exit %d", f->first + i);
        spawn_shell(&a, script);
        snprintf(script, sizeof script, "exit %d", f->second + i);
        spawn_shell(&b, script);
        status = fiber_process_wait(&b, WEFT_FOREVER);
        if (WEXITSTATUS(status) != f->second + i)
            return -1;
        status = fiber_process_wait(&a, WEFT_FOREVER);
        if (WEXITSTATUS(status) != f->first + i)
            return -1;
        weft_process_finish(&a);
        weft_process_finish(&b);
    }
    return 0;
}

static void *family_thread(void *arg)
{
    struct family *f = arg;
    struct weft_options options = WEFT_OPTIONS_INIT;

    options.engine = f->setup->engine;
    options.ring_flags = f->setup->flags;
    f->result = weft_run(family_main, f, &options);
    return NULL;
}

Test(libuv_887, two_runtimes_and_a_foreign_child)
{
    EACH_PROCESS_SETUP(setup)
    {
        struct family a = {setup, 10, 30, -1}, b = {setup, 50, 70, -1};
        pid_t foreign = fork();
        pthread_t thread;
        int status;

        if (foreign == 0)
            _exit(99);
        until_ended(foreign);
        cr_assert_eq(pthread_create(&thread, NULL, family_thread, &a), 0);
        family_thread(&b);
        pthread_join(thread, NULL);
        cr_assert_eq(a.result, 0, "%s: %d", setup->name, a.result);
        cr_assert_eq(b.result, 0, "%s: %d", setup->name, b.result);
        cr_assert_eq(waitpid(foreign, &status, 0), foreign, "it has been left alone");
        cr_assert_eq(WEXITSTATUS(status), 99);
    }
}
