/* context_fcontext.c: new contexts on libboost-context's fcontext. See context.h. */
#include "context.h"

#ifdef WEFT_CONTEXT_FCONTEXT

#include <stdint.h>

/* What fcontext starts. It is the outermost frame: the directive tells unwinders that nobody called
 * it, where fcontext's own frame below would lead them astray. */
static void fcontext_main(struct fiber__context_transfer transfer)
{
    struct context *self = ((struct context *)transfer.data)->to;

#if defined(__x86_64__)
    __asm__ volatile(".cfi_undefined rip");
#elif defined(__aarch64__)
    __asm__ volatile(".cfi_undefined x30");
#endif
    fiber__context_left(transfer);
    self->entry(self->arg); /* ends in context_leave */
    __builtin_trap();
}

void fiber__context_make(struct context *context, void *top, context_entry *entry, void *arg)
{
    context->entry = entry;
    context->arg = arg;
    /* the size is what make_fcontext is told for platforms that check it; Linux's don't */
    context->sp =
        fiber__context_make_fcontext((void *)((uintptr_t)top & ~(uintptr_t)15), 0, fcontext_main);
}

#endif
