/*
 * A user's program, built against the installed library: the headers and the library belong
 * together, and the runtime starts, runs and ends.
 */
#include <weft/weft.h>

#include <stdio.h>
#include <string.h>

static int count(void *arg)
{
    int *runs = arg;

#if WEFT_HAS_FIBERS
    if (fiber_yield() < 0)
        return -1;
#endif
    (*runs)++;
    return 7;
}

int main(void)
{
    int runs = 0;
    int result;

    if (strcmp(weft_version(), WEFT_VERSION_STRING) != 0) {
        fprintf(stderr, "headers of %s, library of %s\n", WEFT_VERSION_STRING, weft_version());
        return 1;
    }
    result = weft_run(count, &runs, NULL);
    if (result != 7 || runs != 1) {
        fprintf(stderr, "weft_run returned %d after %d runs\n", result, runs);
        return 1;
    }
    return 0;
}
