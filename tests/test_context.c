/* needs: fibers */
/* The context switch alone: values handed over, registers kept, alignment, ending. */
#include "context.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>

#define STACK_SIZE 65536

static struct context thread, one, two;
static int seen[8], seen_count;
static uintptr_t alignment;

static struct context_next record(void *arg)
{
    _Alignas(16) volatile char local[16];

    context_entered();
    alignment = (uintptr_t)&local & 15;
    (void)arg;
    seen[seen_count++] = 100;
    seen[seen_count++] = context_switch(&one, &thread, 1);
    seen[seen_count++] = context_switch(&one, &thread, 2);
    return context_leave(&one, &thread, 3);
}

Test(context, hands_values_over_both_ways)
{
    char *stack = malloc(STACK_SIZE);

    fiber__context_init_thread(&thread);
    context_init(&one, stack, stack + STACK_SIZE, record, NULL);
    cr_assert_eq(context_switch(&thread, &one, 7), 1);
    cr_assert_eq(context_switch(&thread, &one, 8), 2);
    cr_assert_eq(context_switch(&thread, &one, 9), 3);
    cr_assert_eq(seen_count, 3);
    cr_assert_eq(seen[0], 100);
    cr_assert_eq(seen[1], 8);
    cr_assert_eq(seen[2], 9);
    cr_assert_eq(alignment, 0);
    free(stack);
}

Test(context, any_top_will_do)
{
    for (size_t odd = 0; odd < 64; odd += 7) {
        char *stack = malloc(STACK_SIZE);

        seen_count = 0;
        memset(&one, 0, sizeof one);
        fiber__context_init_thread(&thread);
        context_init(&one, stack, stack + STACK_SIZE - odd, record, NULL);
        for (int i = 1; i <= 3; i++)
            cr_assert_eq(context_switch(&thread, &one, i), i);
        cr_assert_eq(alignment, 0);
        free(stack);
    }
}

static struct context_next second(void *arg)
{
    context_entered();
    seen[seen_count++] = (int)(intptr_t)arg;
    return context_leave(&two, &thread, 42);
}

static struct context_next first(void *arg)
{
    context_entered();
    seen[seen_count++] = (int)(intptr_t)arg;
    /* a context that ends may name one that has not started */
    return context_leave(&one, &two, 0);
}

Test(context, one_that_ends_starts_another)
{
    char *a = malloc(STACK_SIZE), *b = malloc(STACK_SIZE);

    fiber__context_init_thread(&thread);
    context_init(&one, a, a + STACK_SIZE, first, (void *)1);
    context_init(&two, b, b + STACK_SIZE, second, (void *)2);
    cr_assert_eq(context_switch_start(&thread, &one), 42);
    cr_assert_eq(seen_count, 2);
    cr_assert_eq(seen[0], 1);
    cr_assert_eq(seen[1], 2);
    free(a);
    free(b);
}

/* Enough live values to fill every callee-saved register, on both sides of many switches. */
static uint64_t mix(uint64_t seed, struct context *me, struct context *other)
{
    uint64_t a = seed, b = seed * 3, c = seed * 5, d = seed * 7, e = seed * 11, f = seed * 13;
    double x = (double)seed, y = x * 1.5;

    for (int i = 0; i < 1000; i++) {
        context_switch(me, other, 0);
        a = a * 6364136223846793005u + 1;
        b ^= a >> 13;
        c += b;
        d ^= c << 7;
        e += d ^ a;
        f = f * 31 + e;
        x += y;
        y *= 1.0000001;
    }
    return a ^ b ^ c ^ d ^ e ^ f ^ (uint64_t)x ^ (uint64_t)y;
}

static uint64_t mixed_in_context;

static struct context_next mix_entry(void *arg)
{
    (void)arg;
    context_entered();
    mixed_in_context = mix(17, &one, &thread);
    for (;;)
        context_switch(&one, &thread, 0);
    return context_leave(&one, &thread, 0);
}

static struct context_next idle_entry(void *arg)
{
    (void)arg;
    context_entered();
    for (;;)
        context_switch(&two, &thread, 0);
    return context_leave(&two, &thread, 0);
}

Test(context, callee_saved_registers_survive)
{
    char *a = malloc(STACK_SIZE), *b = malloc(STACK_SIZE);
    uint64_t here, alone;

    fiber__context_init_thread(&thread);
    context_init(&one, a, a + STACK_SIZE, mix_entry, NULL);
    context_init(&two, b, b + STACK_SIZE, idle_entry, NULL);
    here = mix(17, &thread, &one);
    while (mixed_in_context == 0)
        context_switch(&thread, &one, 0);
    alone = mix(17, &thread, &two);
    cr_assert_eq(here, alone);
    cr_assert_eq(mixed_in_context, alone);
    free(a);
    free(b);
}
