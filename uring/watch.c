/* watch.c: file events, read from an inotify descriptor by the bufferful and handed out one by one. */
#include <weft/watch.h>

#include "source.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(void *) != 8 || sizeof(struct weft_watch_event) == 272, "part of the ABI");

#define BUFFER_SIZE 4096 /* some 100 events of average names */

struct weft_watch {
    struct ring__source source;
    size_t used, filled;
    char buffer[BUFFER_SIZE] __attribute__((aligned(__alignof__(struct inotify_event))));
};

static int fill(struct weft_watch *watch)
{
    int saved = errno, rc = 0;
    ssize_t size;

    do
        size = read(watch->source.fd, watch->buffer, sizeof watch->buffer);
    while (size < 0 && errno == EINTR);
    if (size < 0)
        rc = -errno;
    errno = saved;
    watch->used = 0;
    watch->filled = size < 0 ? 0 : (size_t)size;
    return rc;
}

static void copy_out(struct weft_watch_event *out, const struct inotify_event *event)
{
    size_t length = event->len == 0 ? 0 : strnlen(event->name, event->len);

    *out = (struct weft_watch_event){.wd = event->wd, .mask = event->mask, .cookie = event->cookie};
    if (length >= sizeof out->name) {
        length = sizeof out->name - 1;
        out->mask |= WEFT_WATCH_CUT;
    }
    memcpy(out->name, event->name, length);
    out->length = (uint32_t)length;
}

static int take_event(struct ring__source *source, void *out)
{
    struct weft_watch *watch = weft__container(source, struct weft_watch, source);
    const struct inotify_event *event;

    if (watch->used == watch->filled) {
        int rc = fill(watch);

        if (rc < 0)
            return rc;
    }
    event = (const struct inotify_event *)(const void *)(watch->buffer + watch->used);
    watch->used += sizeof *event + event->len;
    if (out != NULL)
        copy_out(out, event);
    return 0;
}

static void free_watch(struct ring__source *source)
{
    ring__close_now(source->fd);
    free(weft__container(source, struct weft_watch, source));
}

static const struct ring__source_class watch_class = {
    .what = "a file event",
    .take = take_event,
    .free = free_watch,
};

int weft_watch_create(struct weft_watch **out)
{
    struct weft_watch *watch;
    int saved = errno, fd, rc;

    if (out == NULL)
        return -EINVAL;
    *out = NULL;
    watch = malloc(sizeof *watch);
    if (watch == NULL) {
        errno = saved;
        return -ENOMEM;
    }
    fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    rc = fd < 0 ? -errno : 0;
    errno = saved;
    if (rc < 0) {
        free(watch);
        return rc;
    }
    ring__source_init(&watch->source, &watch_class, fd);
    watch->used = watch->filled = 0;
    *out = watch;
    return 0;
}

void weft_watch_destroy(struct weft_watch *watch)
{
    if (watch != NULL)
        ring__source_close(&watch->source);
}

int weft_watch_add(struct weft_watch *watch, const char *path, uint32_t mask)
{
    int saved = errno, rc;

    if (watch == NULL || path == NULL)
        return -EINVAL;
    rc = inotify_add_watch(watch->source.fd, path, mask);
    if (rc < 0)
        rc = -errno;
    errno = saved;
    return rc;
}

int weft_watch_remove(struct weft_watch *watch, int wd)
{
    int saved = errno, rc;

    if (watch == NULL)
        return -EINVAL;
    rc = inotify_rm_watch(watch->source.fd, wd) < 0 ? -errno : 0;
    errno = saved;
    return rc;
}

struct ring__source *ring__watch_source(struct weft_watch *watch)
{
    return watch == NULL ? NULL : &watch->source;
}
