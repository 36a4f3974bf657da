/* context.h: the one place where stacks are switched.
 *
 * Two switchers stand behind one interface: native (context_native.c, x86-64 and aarch64), which
 * saves what the ABI calls callee-saved and nothing else, and fcontext (libboost-context), which
 * also saves the floating point control words. ASan, TSan and valgrind learn about every switch here.
 *
 * A switch hands an int over to the side that resumes: whoever resumes a context says what its
 * context_switch returns.
 */
#ifndef WEFT_CONTEXT_H
#define WEFT_CONTEXT_H

#include "sanitizers.h"

#include <stddef.h>
#include <stdint.h>

struct context;

/* Who runs next, and with what, when a context has ended. */
struct context_next {
    struct context *to;
    int value;
};

typedef struct context_next context_entry(void *arg);

struct context {
    void *sp; /* native: the stack pointer, saved registers above it; fcontext: its handle */
#ifdef WEFT_CONTEXT_FCONTEXT
    struct context *to; /* set by who leaves: whom it resumes, and with what */
    int value;
    context_entry *entry; /* of a context that has not started */
    void *arg;
#endif
#ifdef WEFT__ASAN
    void *fake_stack;
    const void *bottom;
    size_t size;
#endif
#ifdef WEFT__TSAN
    void *tsan;
#endif
};

/* ---- the switchers ---- */

#ifdef WEFT_CONTEXT_NATIVE

#define CONTEXT_NAME "native"

/* Saves the running context in *from, resumes `to`, which sees `value`. In context_native.c. */
int fiber__context_jump(struct context *from, struct context *to, int value);

/* The same, for a `to` that has not started yet. */
#if defined(__x86_64__)
int fiber__context_jump_start(struct context *from, struct context *to);
#else
static inline int fiber__context_jump_start(struct context *from, struct context *to)
{
    return fiber__context_jump(from, to, 0);
}
#endif

/* Calls fn(arg) on the stack of `other`, a context that is not running, below what it has in use. */
void fiber__context_call(struct context *other, void (*fn)(void *arg), void *arg);

/* Where a new context starts; finds its entry and argument in callee-saved registers. */
void fiber__context_start(void);

/* Lays out what fiber__context_jump pops. Registers that nobody reads keep what was there. */
static inline void fiber__context_make(struct context *context, void *top, context_entry *entry,
                                       void *arg)
{
    /* the stack pointer is a multiple of 16 in fiber__context_start, as at any call instruction */
    uintptr_t *sp = (uintptr_t *)((uintptr_t)top & ~(uintptr_t)15);

#if defined(__x86_64__)
    sp -= 7; /* r15 r14 r13 r12 rbx rbp, then where to return to */
    sp[3] = (uintptr_t)entry;
    sp[4] = (uintptr_t)arg;
    sp[5] = 0; /* whoever follows frame pointers stops here */
    sp[6] = (uintptr_t)fiber__context_start;
#elif defined(__aarch64__)
    sp -= 20; /* x29 x30 x19 x20 ... x28 d8 ... d15 */
    sp[0] = 0;
    sp[1] = (uintptr_t)fiber__context_start;
    sp[2] = (uintptr_t)arg;
    sp[3] = (uintptr_t)entry;
#else
#error "no native context switch for this processor: configure with -DWEFT_CONTEXT=fcontext"
#endif
    context->sp = sp;
}

#else

#define CONTEXT_NAME "fcontext"

/* Boost's C interface to its assembly; since 1.87 only the C++ names are exported. */
struct fiber__context_transfer {
    void *handle;
    void *data;
};
#ifdef WEFT_FCONTEXT_MANGLED
#define CONTEXT__SYMBOL(c_name, mangled) __asm__(mangled)
#else
#define CONTEXT__SYMBOL(c_name, mangled) __asm__(c_name)
#endif
extern struct fiber__context_transfer fiber__context_jump_fcontext(void *to, void *data)
    CONTEXT__SYMBOL("jump_fcontext", "_ZN5boost7context6detail13jump_fcontextEPvS2_");
extern void *fiber__context_make_fcontext(void *top, size_t size,
                                          void (*entry)(struct fiber__context_transfer))
    CONTEXT__SYMBOL("make_fcontext",
                    "_ZN5boost7context6detail13make_fcontextEPvmPFvNS1_10transfer_tEE");

/* The side that resumes stores the handle of the side that left: fcontext knows it only then. */
static inline int fiber__context_left(struct fiber__context_transfer transfer)
{
    struct context *left = transfer.data;

    left->sp = transfer.handle;
    return left->value;
}

static inline int fiber__context_jump(struct context *from, struct context *to, int value)
{
    from->to = to;
    from->value = value;
    return fiber__context_left(fiber__context_jump_fcontext(to->sp, from));
}

static inline int fiber__context_jump_start(struct context *from, struct context *to)
{
    return fiber__context_jump(from, to, 0);
}

void fiber__context_make(struct context *context, void *top, context_entry *entry, void *arg);

#endif

/* ---- the interface ---- */

/* Makes `context` start entry(arg) on the stack [low, top). top need not be aligned. The entry
 * function calls context_entered first and ends with context_leave. */
static inline void context_init(struct context *context, void *low, void *top, context_entry *entry,
                                void *arg)
{
    fiber__context_make(context, top, entry, arg);
#ifdef WEFT__ASAN
    /* frames of the stack's last user may have left poison behind */
    __asan_unpoison_memory_region(low, (size_t)((char *)top - (char *)low));
    context->fake_stack = NULL;
    context->bottom = low;
    context->size = (size_t)((char *)top - (char *)low);
#else
    (void)low;
#endif
#ifdef WEFT__TSAN
    context->tsan = __tsan_create_fiber(0);
#endif
}

/* Makes `context` stand for the calling thread's own stack. In stacks.c. */
void fiber__context_init_thread(struct context *context);

/* The first thing a new context does. */
static inline void context_entered(void)
{
#ifdef WEFT__ASAN
    __sanitizer_finish_switch_fiber(NULL, NULL, NULL);
#endif
}

/* Leaves `from`, resumes `to`. Returns when somebody resumes `from`, with the value they give. */
static inline __attribute__((always_inline)) int context_switch(struct context *from,
                                                                struct context *to, int value)
{
#ifdef WEFT__TSAN
    __tsan_switch_to_fiber(to->tsan, 0);
#endif
#ifdef WEFT__ASAN
    __sanitizer_start_switch_fiber(&from->fake_stack, to->bottom, to->size);
    value = fiber__context_jump(from, to, value);
    __sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL);
    return value;
#else
    return fiber__context_jump(from, to, value);
#endif
}

/* The same, for a `to` that has not started yet. */
static inline __attribute__((always_inline)) int context_switch_start(struct context *from,
                                                                      struct context *to)
{
#if defined(WEFT__ASAN) || defined(WEFT__TSAN)
    return context_switch(from, to, 0);
#else
    return fiber__context_jump_start(from, to);
#endif
}

/* Whether context_call is there: it is the native switcher's, and sanitizers want whole switches. */
#if defined(WEFT_CONTEXT_NATIVE) && !defined(WEFT__ASAN) && !defined(WEFT__TSAN)
#define CONTEXT_HAS_CALL 1
static inline void context_call(struct context *other, void (*fn)(void *arg), void *arg)
{
    fiber__context_call(other, fn, arg);
}
#else
#define CONTEXT_HAS_CALL 0
#endif

/* What an entry function ends with: `return context_leave(...)`. Nobody resumes `from` again. */
static inline struct context_next context_leave(struct context *from, struct context *to, int value)
{
#ifdef WEFT__TSAN
    __tsan_switch_to_fiber(to->tsan, 0);
#endif
#ifdef WEFT__ASAN
    __sanitizer_start_switch_fiber(NULL, to->bottom, to->size);
#endif
#if CONTEXT_HAS_CALL
    (void)from;
    return (struct context_next){.to = to, .value = value};
#else
    fiber__context_jump(from, to, value);
    __builtin_unreachable();
#endif
}

#endif
