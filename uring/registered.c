/* registered.c: see registered.h. */
#include "registered.h"

#include <stdlib.h>
#include <string.h>

/* ---- files ---- */

/* A table without files. Kernels before 5.19 want to be given one. */
static int make_table(struct io_uring *ring, unsigned files)
{
    int rc = io_uring_register_files_sparse(ring, files), *none;

    if (rc != -EINVAL)
        return rc;
    none = malloc(files * sizeof *none);
    if (none == NULL)
        return -ENOMEM;
    memset(none, 0xff, files * sizeof *none);
    rc = io_uring_register_files(ring, none, files);
    free(none);
    return rc;
}

int ring__registered_init(struct ring__registered *r, struct io_uring *ring, unsigned files)
{
    int rc;

    if (files == 0)
        return 0;
    if (files > UINT16_MAX - 1)
        return -EINVAL;
    r->free = malloc(files * sizeof *r->free);
    if (r->free == NULL)
        return -ENOMEM;
    rc = make_table(ring, files);
    if (rc < 0) {
        free(r->free);
        r->free = NULL;
        return rc;
    }
    for (unsigned i = 0; i < files; i++)
        r->free[i] = (uint16_t)(files - 1 - i);
    r->free_count = files;
    return 0;
}

void ring__registered_finish(struct ring__registered *r)
{
    free(r->slots);
    free(r->free);
    free(r->regions);
}

/* Makes room for a descriptor. */
static int reach(struct ring__registered *r, int fd)
{
    unsigned count = r->slots_count == 0 ? 64 : r->slots_count;
    uint16_t *slots;

    if ((unsigned)fd < r->slots_count)
        return 0;
    while (count <= (unsigned)fd)
        count *= 2;
    slots = realloc(r->slots, count * sizeof *slots);
    if (slots == NULL)
        return -ENOMEM;
    memset(slots + r->slots_count, 0, (count - r->slots_count) * sizeof *slots);
    r->slots = slots;
    r->slots_count = count;
    return 0;
}

int ring__registered_add(struct ring__registered *r, struct io_uring *ring, int fd)
{
    int rc;

    if (r->free_count == 0)
        return -ENFILE;
    rc = reach(r, fd);
    if (rc == 0)
        rc = io_uring_register_files_update(ring, r->free[r->free_count - 1], &fd, 1);
    if (rc < 0)
        return rc;
    r->slots[fd] = (uint16_t)(r->free[--r->free_count] + 1);
    return 0;
}

void ring__registered_remove(struct ring__registered *r, struct io_uring *ring, int fd)
{
    const int none = -1;

    r->free[r->free_count] = (uint16_t)(r->slots[fd] - 1);
    io_uring_register_files_update(ring, r->free[r->free_count++], (int *)(uintptr_t)&none, 1);
    r->slots[fd] = 0;
}

/* ---- buffers ---- */

int ring__region_of(const struct ring__registered *r, uint64_t addr, uint32_t len)
{
    for (unsigned i = 0; i < r->regions_count; i++)
        if (addr >= r->regions[i].begin && addr <= r->regions[i].end &&
            len <= r->regions[i].end - addr)
            return (int)i;
    return -1;
}

int ring__regions_add(struct ring__registered *r, struct io_uring *ring, const struct iovec *iov,
                      unsigned count)
{
    struct ring__region *regions = malloc(count * sizeof *regions);
    int rc;

    if (regions == NULL)
        return -ENOMEM;
    rc = io_uring_register_buffers(ring, iov, count);
    if (rc < 0) {
        free(regions);
        return rc;
    }
    for (unsigned i = 0; i < count; i++) {
        regions[i].begin = (uintptr_t)iov[i].iov_base;
        regions[i].end = regions[i].begin + iov[i].iov_len;
    }
    r->regions = regions;
    r->regions_count = count;
    return 0;
}

int ring__regions_remove(struct ring__registered *r, struct io_uring *ring)
{
    int rc = io_uring_unregister_buffers(ring);

    if (rc < 0)
        return rc;
    free(r->regions);
    r->regions = NULL;
    r->regions_count = 0;
    return 0;
}
