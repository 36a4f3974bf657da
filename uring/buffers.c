/* buffers.c: pools of buffers for streams that receive.
 *
 * A buffer is free, in use by an item, or on its way: filled by the kernel, with the completion not
 * reaped yet. Free ones are in the ring that the kernel takes them from, or, where it has no such
 * ring, in a list here.
 */
#include "stream_internal.h"

#include <stdlib.h>

_Static_assert(sizeof(void *) != 8 || sizeof(struct ring_item) == 32, "part of the ABI");

#define MAX_COUNT 32768u
#define MAX_SIZE  ((size_t)1 << 30)

int ring_buffers_create(struct ring_buffers **out, unsigned count, size_t size)
{
    struct weft_runtime *rt = weft__rt;
    struct ring_buffers *buffers;

    if (rt == NULL || out == NULL || count == 0 || count > MAX_COUNT || size == 0 ||
        size > MAX_SIZE)
        return -EINVAL;
    buffers = calloc(1, sizeof *buffers);
    if (buffers == NULL)
        return -ENOMEM;
    buffers->rt = rt;
    buffers->count = count;
    buffers->size = size;
    buffers->refs = 1;
    buffers->free = RING__NO_BUFFER;
    buffers->wanted.tail = &buffers->wanted.first;
    buffers->unread.tail = &buffers->unread.first;
    buffers->records = calloc(count, sizeof *buffers->records);
    buffers->memory = calloc(count, size);
    if (buffers->records == NULL || buffers->memory == NULL) {
        free(buffers->records);
        free(buffers->memory);
        free(buffers);
        return -ENOMEM;
    }
    buffers->shared = ring__buffers_share(buffers) == 0;
    for (uint32_t i = count; i-- > 0;) {
        if (buffers->shared) {
            ring__buffers_add(buffers, i);
        } else {
            buffers->records[i].next = buffers->free;
            buffers->free = i;
        }
    }
    *out = buffers;
    return 0;
}

void ring__buffers_release(struct ring_buffers *buffers)
{
    if (--buffers->refs > 0)
        return;
    if (buffers->shared)
        ring__buffers_unshare(buffers);
    free(buffers->records);
    free(buffers->memory);
    free(buffers);
}

void ring_buffers_destroy(struct ring_buffers *buffers)
{
    if (buffers != NULL)
        ring__buffers_release(buffers);
}

unsigned ring_buffers_used(const struct ring_buffers *buffers)
{
    return buffers != NULL ? buffers->used : 0;
}

uint32_t ring__buffer_take(struct ring_buffers *buffers)
{
    uint32_t index = buffers->free;

    if (index != RING__NO_BUFFER) {
        buffers->free = buffers->records[index].next;
        buffers->used++;
    }
    return index;
}

void ring__buffer_give(struct ring_buffers *buffers, uint32_t index)
{
    buffers->used--;
    if (buffers->shared) {
        ring__buffers_add(buffers, index);
    } else {
        buffers->records[index].next = buffers->free;
        buffers->free = index;
    }
}

void ring_item_release(struct ring_item *item)
{
    struct ring_buffers *buffers;

    if (item == NULL || item->buffers == NULL)
        return;
    buffers = item->buffers;
    item->buffers = NULL;
    item->data = NULL;
    item->len = 0;
    ring__buffer_give(buffers, item->index);
    ring__buffers_serve(buffers);
    ring__buffers_release(buffers);
}
