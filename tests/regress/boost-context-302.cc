/* needs: fibers */
/* boostorg/context#302, #303, ClickHouse/silk#98: a C++ runtime keeps the exceptions being handled per
 * thread; after a switch inside of a handler those of several coroutines were mixed up.
 *
 * What weft promises (weft/fiber.h): exceptions are thrown and caught inside of a fiber, around waits, like
 * anywhere else; a handler doesn't wait, but takes what it needs and waits when it is left; and an exception
 * that would leave a fiber's function ends the process, and doesn't go on into whatever stands below.
 */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow" /* of a struct and a function with one name */
#include <weft/weft.h>
#pragma GCC diagnostic pop

#include <criterion/criterion.h>
extern "C" {
#include "harness.h"
}
#include <csignal>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace
{

struct counted {
    static int alive;
    counted()
    {
        alive++;
    }
    counted(const counted &)
    {
        alive++;
    }
    ~counted()
    {
        alive--;
    }
};
int counted::alive;

struct failure : std::runtime_error {
    counted guard;
    int number;

    explicit failure(int n) : std::runtime_error("failure"), number(n)
    {
    }
};

void throw_deep(int number, int levels)
{
    counted guard;
    std::string text(100, 'x');

    fiber_yield();
    if (levels == 0)
        throw failure(number);
    throw_deep(number, levels - 1);
}

int64_t throw_and_catch(void *arg)
{
    int number = static_cast<int>(reinterpret_cast<intptr_t>(arg));

    for (int i = 0; i < 20; i++) {
        int caught = -1;
        std::exception_ptr kept;

        try {
            throw_deep(number + i, 3);
        } catch (const failure &f) {
            caught = f.number;
            kept = std::current_exception();
        }
        fiber_yield(); /* out of the handler: here one may wait */
        cr_assert_eq(caught, number + i);
        cr_assert_eq(std::uncaught_exceptions(), 0);
        try {
            std::rethrow_exception(kept);
        } catch (const std::runtime_error &e) {
            cr_assert_eq(static_cast<const failure &>(e).number, number + i);
        }
    }
    return 0;
}

int throw_main(void *)
{
    struct promise *fibers[8];

    for (intptr_t i = 0; i < 8; i++)
        fibers[i] = fiber_spawn(throw_and_catch, reinterpret_cast<void *>(i * 100));
    return fiber_await(promise_join(fibers, 8), nullptr, WEFT_FOREVER);
}

int64_t throw_out(void *)
{
    fiber_yield();
    throw failure(1);
}

int escape_main(void *)
{
    try {
        return fiber_await(fiber_spawn(throw_out, nullptr), nullptr, WEFT_FOREVER);
    } catch (...) { /* another fiber's */
        _exit(3);
    }
}

void swallow(void *, const char *)
{
}

} // namespace

Test(boost_context_302, exceptions_inside_of_fibers)
{
    cr_assert_eq(weft_run(throw_main, nullptr, nullptr), 0);
    cr_assert_eq(counted::alive, 0);
}

Test(boost_context_302, an_exception_that_leaves_a_fiber_ends_the_process)
{
    weft_options options{};
    int status;
    pid_t child;

    if (on_valgrind())
        cr_skip_test("it reports what the child leaves behind");
    options.size = sizeof options;
    options.report = swallow;
    child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        fclose(stderr);
        weft_run(escape_main, nullptr, &options);
        _exit(4);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%x", status);
}
