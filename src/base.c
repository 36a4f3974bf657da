/* base.c: time and version. */
#include <weft/base.h>

#include <errno.h>
#include <string.h>
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

const char *weft_strerror(int err)
{
    const char *text;

    switch (err) {
    case -ECANCELED:
        return "cancelled";
    case -ETIMEDOUT:
        return "the deadline has passed";
    case -EDEADLK:
        return "a deadlock: nothing can end this wait, or nothing may wait here";
    case -EALREADY:
        return "the promise is settled already";
    case -ESHUTDOWN:
        return "the runtime it belongs to has ended";
    case -ENODATA:
        return "the end came before all data";
    case -ECHILD:
        return "there is no such child; or this is a child of fork, and the runtime its parent's";
    default:
        break;
    }
    if (err >= 0)
        return "success";
    text = strerrordesc_np(-err); /* constant, unlike strerror's */
    return text != NULL ? text : "an unknown error";
}

const char *weft_version(void)
{
    return WEFT_VERSION_STRING;
}
