/* registered.h: files and buffers that the ring knows beforehand: it need not look a file up and count
 * its user, nor pin a buffer's pages, for each operation.
 *
 * A file stands in a slot of a table of the ring's for as long as its descriptor is registered here, and
 * is kept open by it; so whoever closes the descriptor must take it out first. Operations take the
 * slot, or the buffer's index, when they are put into the submission queue; a slot is given up only
 * when none in the queue names it.
 */
#ifndef RING_REGISTERED_H
#define RING_REGISTERED_H

#include "ring_internal.h"

#include <liburing.h>

#define RING__REGIONS_MAX 64 /* each is looked at for each operation */

struct ring__registered {
    uint16_t *slots; /* by descriptor: its slot plus 1; 0: none */
    unsigned slots_count;
    uint16_t *free; /* slots; NULL: there is no table */
    unsigned free_count;

    struct ring__region {
        uintptr_t begin, end;
    } * regions; /* the buffers, by index; NULL: none */
    unsigned regions_count;
    unsigned busy; /* operations in flight that use one */
};

/* Makes a table of so many slots, if the kernel has room for it. 0, or a negative errno: no table. */
int ring__registered_init(struct ring__registered *r, struct io_uring *ring, unsigned files);
void ring__registered_finish(struct ring__registered *r);

/* The slot of a descriptor, or -1. */
static inline int ring__slot(const struct ring__registered *r, int fd)
{
    return (unsigned)fd < r->slots_count ? (int)r->slots[fd] - 1 : -1;
}

/* -ENFILE: all slots are taken; -ENOMEM; or what the kernel says: -EBADF. */
int ring__registered_add(struct ring__registered *r, struct io_uring *ring, int fd);

/* Of a descriptor that has a slot. */
void ring__registered_remove(struct ring__registered *r, struct io_uring *ring, int fd);

/* The index of the buffer that has all of these bytes; -1: none. */
int ring__region_of(const struct ring__registered *r, uint64_t addr, uint32_t len);

int ring__regions_add(struct ring__registered *r, struct io_uring *ring, const struct iovec *iov,
                      unsigned count);
int ring__regions_remove(struct ring__registered *r, struct io_uring *ring);

#endif
