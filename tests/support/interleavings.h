/* interleavings.h: runs a few short threads in every order in which their steps can happen.
 *
 * A step is one access to memory that threads share. The threads are coroutines of one real thread;
 * each calls interleave_step() before such an access and interleave_saw() with what it read, and is
 * then, or is not, the one that goes on. A run is one order; the next one differs in the last decision
 * that has an alternative left. A state that was met before is not gone on from: a thread is where it is
 * because of what it has seen, so what the threads have seen and the shared memory make a state.
 *
 * The code under test is the library's own: its file is included with these instead of the operations
 * of stdatomic.h, see test_inbox_interleavings.c. */
#ifndef WEFT_TEST_INTERLEAVINGS_H
#define WEFT_TEST_INTERLEAVINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INTERLEAVE_THREADS 4

struct interleave_case {
    void (*thread[INTERLEAVE_THREADS])(void); /* NULL at the end */
    void *shared;                             /* all that they share, padding excepted */
    size_t size;
    void (*begin)(void);      /* sets it up anew for each run */
    const char *(*end)(void); /* all threads are over: what is wrong then; NULL: nothing */
};

struct interleave_result {
    long runs, states;
    bool stuck; /* a run came to where nobody could go on; the search ended there */
    bool wrong; /* `end` or interleave_fail said so; the same */
    const char *what;
};

struct interleave_result interleave(const struct interleave_case *c);

/* ---- in the threads ---- */

void interleave_step(void);
void interleave_saw(uint64_t value);

/* All that matters from here on is the place: what was seen is in no variable any more. */
void interleave_forget(uint64_t place);

/* Goes on once `ready` says so; others must make it so. */
void interleave_wait(bool (*ready)(void));

/* A number below `count`, each in turn. */
unsigned interleave_choose(unsigned count);

unsigned interleave_self(void); /* the thread's index */
void interleave_fail(const char *what) __attribute__((noreturn));

#endif
