/* harness.h: running a test's body in a runtime, on each set-up that must behave the same. */
#ifndef WEFT_TEST_HARNESS_H
#define WEFT_TEST_HARNESS_H

#include <weft/runtime.h>

#include <string.h>

/* One way to set a runtime up. */
struct setup {
    const char *name;
    const char *engine;
    unsigned flags, sq_entries, cq_entries; /* flags: WEFT_RING_*, SETUP_PLAIN */
};

#define SETUP_PLAIN (1u << 31) /* the kernel is made to know no opcode for any operation */

/* Whether plain system calls do all operations there. */
bool is_plain(const struct setup *setup);

/* Every engine, and the odd rings: plain flags, a tiny submission queue, a tiny completion queue, no
 * opcodes. */
extern const struct setup setups[];
extern const size_t setups_count;

/* The engines, each as it comes by default. */
#define EACH_ENGINE(s)                                                   \
    for (const struct setup *s = setups; s < setups + setups_count; s++) \
        if (strcmp(s->name, s->engine) == 0)

/* weft_run on that set-up, its reports kept for report_contains. */
int run_on(const struct setup *setup, weft_main_fn *main, void *arg);

/* The options of that set-up with reports kept, to change before weft_run. */
struct weft_options setup_options(const struct setup *setup);

/* Whether one line reported since the last run_on or setup_options contains `text`. */
int report_contains(const char *text);
const char *report_text(void);

/* True under ASan, TSan or valgrind: make the big tests smaller. */
int slow_tools(void);
int on_valgrind(void);

#endif
