/*
 * Faults on purpose, one per test. Run by scripts/planted.sh, which passes if the checker reports
 * the fault: it proves that the suite under valgrind and the sanitizers can fail at all.
 */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdlib.h>

static char *volatile block;

Test(planted, overflow)
{
    block = malloc(8);
    cr_assert(block);
    block[8] = 1;
    free(block);
}

Test(planted, leak)
{
    block = malloc(8);
    cr_assert(block);
    block = NULL;
}

static void lose(void)
{
    block = malloc(8);
    block = NULL;
}

/* After the body Criterion has its result already. */
Test(planted, late_leak, .fini = lose)
{
    cr_assert(1);
}

/* The report must not go where the test's own stderr goes. */
Test(planted, hidden_leak)
{
    cr_redirect_stderr();
    lose();
}
