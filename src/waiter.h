/* waiter.h: the one way to wait for something: an intrusive node on the waiting side's own memory.
 *
 * A list owner wakes a waiter by taking it off the list and calling wake. Removal is O(1) and
 * leaves nothing behind; a waiter that is on no list can be removed again without harm.
 *
 * A weft_link is what stands in a list. Besides the two pointers it has room that its owner uses as
 * it likes, so that a promise, which is itself a waiter, spends no byte on being one.
 */
#ifndef WEFT_WAITER_H
#define WEFT_WAITER_H

#include <stddef.h>
#include <stdint.h>

struct weft_link {
    struct weft_link *next, *prev; /* next == NULL: on no list */
    uint32_t count;                /* the owner's: references, or an index */
    uint16_t size;                 /* the owner's: a block's size class */
    uint8_t kind;                  /* the owner's: what this is; 0: a struct weft_waiter */
    uint8_t flags;                 /* the owner's */
};

/* Zero-initialise, set wake. wake is called on any strand, must not run user code or suspend; it
 * may end the memory of the waiter. */
struct weft_waiter {
    struct weft_link link;
    void (*wake)(struct weft_waiter *waiter);
};

#endif
