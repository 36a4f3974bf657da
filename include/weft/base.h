/* weft/base.h: what every other weft header builds on: time, values, attributes.
 *
 * Results throughout weft are as an io_uring completion has them: >= 0, or a negative errno.
 * Public functions neither set nor read errno.
 */
#ifndef WEFT_BASE_H
#define WEFT_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weft/config.h>

#ifdef __cplusplus
#define WEFT_BEGIN_DECLS extern "C" {
#define WEFT_END_DECLS   }
#else
#define WEFT_BEGIN_DECLS
#define WEFT_END_DECLS
#endif

#define WEFT_API       __attribute__((visibility("default")))
#define WEFT_NODISCARD __attribute__((warn_unused_result))

/* Marks, for the reader, the functions that may suspend the calling fiber. No other function does. */
#define FIBER_SUSPENDS

/* "file.c:12": the place in the user's source that made an object, kept for reports. */
#define WEFT__STRING2(x) #x
#define WEFT__STRING(x)  WEFT__STRING2(x)
#define WEFT_HERE        __FILE__ ":" WEFT__STRING(__LINE__)

WEFT_BEGIN_DECLS

/* A point in time: absolute nanoseconds of CLOCK_MONOTONIC (clock_gettime(2)). */
typedef int64_t weft_time;

/* A deadline that never comes, and one that has come already (try, but don't wait). */
#define WEFT_FOREVER ((weft_time)INT64_MAX)
#define WEFT_NOWAIT  ((weft_time)0)

#define WEFT_US(n)  ((int64_t)(n)*1000)
#define WEFT_MS(n)  ((int64_t)(n)*1000000)
#define WEFT_SEC(n) ((int64_t)(n)*1000000000)

/* The time now. Any thread. Costs one clock_gettime (about 25 ns); never suspends. Since 0.1. */
WEFT_API weft_time weft_now(void);

/* The time `ns` nanoseconds from now, saturating at WEFT_FOREVER; a negative ns counts as 0.
 * Any thread; never suspends. Since 0.1. */
WEFT_API weft_time weft_after(int64_t ns);

/* What a settled promise holds: a pointer or a 64-bit number. */
union weft_value {
    void *ptr;
    int64_t num;
};

/* A pointer, or a number, as a value: what goes into promises and channels. Any thread; never suspend.
 * Since 0.1. */
static inline union weft_value weft_ptr(void *ptr)
{
    union weft_value v;

    v.num = 0;
    v.ptr = ptr;
    return v;
}

static inline union weft_value weft_num(int64_t num)
{
    union weft_value v;

    v.num = num;
    return v;
}

/* What a negative errno means as a result of this library: a sentence without a full stop, constant.
 * A number >= 0 is "success". Any thread; never suspends. Since 0.1. */
WEFT_API const char *weft_strerror(int err);

/* The library's version at run time, "0.1.0" (WEFT_VERSION_STRING is the headers'). Constant. Any thread;
 * never suspends. Since 0.1. */
WEFT_API const char *weft_version(void);

WEFT_END_DECLS

#endif
