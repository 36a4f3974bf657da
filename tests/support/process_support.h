/* process_support.h: children to test with. */
#ifndef WEFT_TEST_PROCESS_SUPPORT_H
#define WEFT_TEST_PROCESS_SUPPORT_H

#include "io_support.h"

#include <weft/process.h>

/* Options for `sh -c script`, valid until the next call. */
struct weft_process_options shell(const char *script);

/* A child that ends when its standard input (process->in) is closed; and one by script. */
void spawn_waiting(struct weft_process *process);
void spawn_shell(struct weft_process *process, const char *script);

/* Waits, as a foreign observer, until the child has ended; it stays a zombie. */
void until_ended(pid_t pid);

/* Whether it is a child of this process, running or not yet waited for. */
bool is_child(pid_t pid);

/* Where processes are waited for differently: each set-up, with pidfds and without. */
#define EACH_PROCESS_SETUP(s)                                            \
    for (int without = 0; without < 2; without++)                        \
        for (const struct setup *s = (ring__no_pidfd = without, setups); \
             s < setups + setups_count; s++)                             \
            if (!without || strcmp(s->engine, "null") != 0)

#endif
