/* cluster_support.h: clusters to test with. */
#ifndef WEFT_TEST_CLUSTER_SUPPORT_H
#define WEFT_TEST_CLUSTER_SUPPORT_H

#include "harness.h"
#include "io_support.h"

#include <weft/cluster.h>

#define EACH_SETUP(s) for (const struct setup *s = setups; s < setups + setups_count; s++)

/* `count` runtimes of that set-up, with reports kept as run_on keeps them. */
struct weft_cluster_options cluster_options(const struct setup *setup, unsigned count);

/* The threads of this process; and until there are so many: one that has been joined may be listed for
 * a moment. If others are left, the test runs into its time limit. */
int threads(void);
void await_threads(int count);

#endif
