/* cluster_support.c: see cluster_support.h. */
#include "cluster_support.h"

#include <dirent.h>
#include <sched.h>

struct weft_cluster_options cluster_options(const struct setup *setup, unsigned count)
{
    static struct weft_options runtime;
    struct weft_cluster_options options = WEFT_CLUSTER_OPTIONS_INIT;

    runtime = setup_options(setup);
    options.count = count;
    options.runtime = &runtime;
    return options;
}

int threads(void)
{
    DIR *directory = opendir("/proc/self/task");
    int count = -2; /* . and .. */

    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

void await_threads(int count)
{
    while (threads() != count)
        sched_yield();
}
