/* compose.c: which engines and which way to start main this build has. The one place of the core
 * that names parts of other folders, and only their names. */
#include "engine.h"

#include <stddef.h>

/* best first; the last is taken only when asked for by name */
const struct weft__engine_class *const weft__engines[] = {
    &weft__engine_uring,
    &weft__engine_epoll,
    &weft__engine_null,
    NULL,
};

#if WEFT_HAS_FIBERS
int fiber__launch_main(struct weft_runtime *rt);
int (*const weft__launch_main)(struct weft_runtime *rt) = fiber__launch_main;
#else
int (*const weft__launch_main)(struct weft_runtime *rt) = NULL;
#endif
