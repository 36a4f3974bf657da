/* storage.c: local values. A storage is an immutable list of bindings, newest first, shared by
 * reference: a snapshot is one reference, and binding never disturbs who took one before. */
#include "runtime_internal.h"

#include <errno.h>
#include <stdlib.h>

_Static_assert(sizeof(void *) != 8 || sizeof(struct weft_key) == 16, "part of the ABI");

void weft__storage_drop(struct weft__storage *s)
{
    while (s != NULL && --s->refs == 0) {
        struct weft__storage *rest = s->rest;

        free(s);
        s = rest;
    }
}

void *weft__storage_get(const struct weft__storage *s, const struct weft_key *key)
{
    for (; s != NULL; s = s->rest)
        if (s->key == key)
            return s->value;
    return NULL;
}

/* The bindings above `end` whose keys have all of `flags`, copied onto `rest`; -ENOMEM leaves nothing
 * behind. */
static int copy_to(const struct weft__storage *s, const struct weft__storage *end, unsigned flags,
                   struct weft__storage *rest, struct weft__storage **out)
{
    struct weft__storage *first = NULL, **link = &first;

    for (; s != end; s = s->rest) {
        struct weft__storage *copy;

        if ((s->key->flags & flags) != flags)
            continue;
        copy = malloc(sizeof *copy);
        if (copy == NULL) {
            *link = NULL;
            weft__storage_drop(first);
            return -ENOMEM;
        }
        copy->key = s->key;
        copy->value = s->value;
        copy->refs = 1;
        *link = copy;
        link = &copy->rest;
    }
    *link = weft__storage_ref(rest);
    *out = first;
    return 0;
}

int weft__storage_export(const struct weft__storage *s, struct weft__storage **out)
{
    return copy_to(s, NULL, WEFT_KEY_SHARED, NULL, out);
}

int weft__storage_bind(struct weft__storage *s, const struct weft_key *key, void *value,
                       struct weft__storage **out)
{
    struct weft__storage *old = s, *below = NULL, *binding;
    int rc = 0;

    /* the key's old binding goes, so that a loop of weft_set keeps the list short */
    while (old != NULL && old->key != key)
        old = old->rest;
    if (old != NULL)
        rc = copy_to(s, old, 0, old->rest, &below);
    else
        below = weft__storage_ref(s);
    if (rc < 0)
        return rc;
    if (value == NULL) {
        *out = below;
        return 0;
    }
    binding = malloc(sizeof *binding);
    if (binding == NULL) {
        weft__storage_unref(below);
        return -ENOMEM;
    }
    binding->rest = below;
    binding->key = key;
    binding->value = value;
    binding->refs = 1;
    *out = binding;
    return 0;
}

void *weft_get(const struct weft_key *key)
{
    return weft__rt == NULL ? NULL : weft__storage_get(weft__rt->strand->storage, key);
}

int weft_set(const struct weft_key *key, void *value)
{
    struct weft__storage **here, *storage;
    int rc;

    if (weft__rt == NULL || key == NULL)
        return -EINVAL;
    here = &weft__rt->strand->storage;
    rc = weft__storage_bind(*here, key, value, &storage);
    if (rc < 0)
        return rc;
    weft__storage_unref(*here);
    *here = storage;
    return 0;
}
