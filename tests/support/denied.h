/* denied.h: taking from this process, for good, what an engine needs. For a test that runs in a
 * process of its own. */
#ifndef WEFT_TEST_DENIED_H
#define WEFT_TEST_DENIED_H

#include <stdbool.h>
#include <sys/resource.h>

/* A system call fails with `error` from now on, as under a container's seccomp profile. */
void deny_call(int number, int error);

/* No longer root, with so many bytes of memory that may be locked. False: that cannot be. */
bool become_ordinary(rlim_t memlock);

#endif
