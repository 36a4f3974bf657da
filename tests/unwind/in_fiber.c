/* in_fiber.c: a program for a debugger to stop in: a known chain of calls inside a fiber. */
#include <weft/weft.h>

#include <stdio.h>

void deepest(volatile int *depth);

__attribute__((noinline)) void deepest(volatile int *depth)
{
    printf("depth %d\n", *depth);
}

static __attribute__((noinline)) void middle(volatile int *depth)
{
    ++*depth;
    deepest(depth);
    ++*depth;
}

static int64_t body(void *arg)
{
    volatile int depth = 1;

    (void)arg;
    fiber_yield(); /* so that the stack has been switched to, not only started */
    middle(&depth);
    return depth;
}

static int run(void *arg)
{
    (void)arg;
    return fiber_await(fiber_spawn(body, NULL), NULL, WEFT_FOREVER);
}

int main(void)
{
    struct weft_options options = WEFT_OPTIONS_INIT;

    options.engine = "null";
    return weft_run(run, NULL, &options) != 0;
}
