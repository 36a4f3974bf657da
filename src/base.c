/* base.c: time and version. */
#include <weft/base.h>

#include <time.h>

weft_time weft_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (weft_time)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

weft_time weft_after(int64_t ns)
{
    weft_time now = weft_now();

    if (ns <= 0)
        return now;
    return ns > WEFT_FOREVER - now ? WEFT_FOREVER : now + ns;
}

const char *weft_version(void)
{
    return WEFT_VERSION_STRING;
}
