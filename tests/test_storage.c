/* Local values: persistent lists, and weft_get/weft_set. */
#include "runtime_internal.h"

#include <criterion/criterion.h>
#include <errno.h>

static const struct weft_key a = {.name = "a"}, b = {.name = "b"};
static int one, two;

Test(storage, a_snapshot_is_not_disturbed)
{
    struct weft__storage *s1, *s2, *s3;

    cr_assert_eq(weft__storage_bind(NULL, &a, &one, &s1), 0);
    cr_assert_eq(weft__storage_bind(s1, &b, &two, &s2), 0);
    cr_assert_eq(weft__storage_bind(s2, &a, &two, &s3), 0);
    cr_assert_eq(weft__storage_get(s1, &a), &one);
    cr_assert_null(weft__storage_get(s1, &b));
    cr_assert_eq(weft__storage_get(s2, &a), &one);
    cr_assert_eq(weft__storage_get(s3, &a), &two);
    cr_assert_eq(weft__storage_get(s3, &b), &two);
    weft__storage_unref(s1);
    weft__storage_unref(s3);
    cr_assert_eq(weft__storage_get(s2, &a), &one);
    weft__storage_unref(s2);
}

Test(storage, binding_null_removes)
{
    struct weft__storage *s1, *s2;

    cr_assert_eq(weft__storage_bind(NULL, &a, &one, &s1), 0);
    cr_assert_eq(weft__storage_bind(s1, &a, NULL, &s2), 0);
    cr_assert_null(s2);
    cr_assert_eq(weft__storage_bind(NULL, &a, NULL, &s2), 0);
    cr_assert_null(s2);
    weft__storage_unref(s1);
}

Test(storage, rebinding_keeps_the_list_short)
{
    struct weft__storage *s = NULL;
    size_t length = 0;

    for (int i = 0; i < 1000; i++) {
        struct weft__storage *next;

        cr_assert_eq(weft__storage_bind(s, i % 2 ? &a : &b, &one, &next), 0);
        weft__storage_unref(s);
        s = next;
    }
    for (struct weft__storage *at = s; at != NULL; at = at->rest)
        length++;
    cr_assert_eq(length, 2);
    weft__storage_unref(s);
}

Test(storage, long_lists_are_released)
{
    static struct weft_key keys[1000];
    struct weft__storage *s = NULL;

    for (int i = 0; i < 1000; i++) {
        struct weft__storage *next;

        cr_assert_eq(weft__storage_bind(s, &keys[i], &one, &next), 0);
        weft__storage_unref(s);
        s = next;
    }
    weft__storage_unref(s);
}

Test(storage, without_a_runtime)
{
    cr_assert_null(weft_get(&a));
    cr_assert_eq(weft_set(&a, &one), -EINVAL);
}
