/* Waiting for a futex, for a child, for either end of a splice; and the end of all that waits on a
 * descriptor. Works in a build without fibers. */
#include "io_support.h"
#include "ring_internal.h"

#include <weft/io.h>
#include <weft/promise.h>

#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define ON_EACH_SETUP(body)                                           \
    EACH_IO_SETUP(setup)                                              \
    {                                                                 \
        lacks_opcodes = is_plain(setup);                              \
        cr_assert_eq(run_by_hand(setup, body), 0, "%s", setup->name); \
    }

static bool lacks_opcodes;

/* Turns until the kernel has all that was submitted. */
static void hand_over(void)
{
    for (int i = 0; i < 10; i++)
        cr_assert_eq(weft__rt->engine->class->turn(weft__rt->engine, WEFT_NOWAIT), 0);
}

/* ---- futexes ---- */

static uint32_t own_word;
static uint32_t *shared_word;

static void *wake_words(void *unused)
{
    (void)unused;
    __atomic_store_n(&own_word, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &own_word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
    return NULL;
}

static void futex_body(void)
{
    struct kept wait, other, wake;
    pthread_t thread;
    pid_t child;

    own_word = 0;
    *shared_word = 0;
    cr_assert_eq(ring_futex_wait(&keep(&wait)->op, &own_word, 0, false), 0);
    if (lacks_opcodes) {
        cr_assert_eq(result_of(&wait), -ENOTSUP);
        return;
    }
    /* another thread's system call */
    hand_over();
    cr_assert_eq(pthread_create(&thread, NULL, wake_words, NULL), 0);
    cr_assert_eq(result_of(&wait), 0);
    pthread_join(thread, NULL);
    cr_assert_eq(ring_futex_wait(&keep(&wait)->op, &own_word, 0, false), 0);
    cr_assert_eq(result_of(&wait), -EAGAIN, "it has changed before");
    /* among operations; as many as asked for */
    cr_assert_eq(ring_futex_wait(&keep(&wait)->op, &own_word, 1, false), 0);
    cr_assert_eq(ring_futex_wait(&keep(&other)->op, &own_word, 1, false), 0);
    cr_assert_eq(ring_futex_wake(&keep(&wake)->op, &own_word, 1, false), 0);
    cr_assert_eq(result_of(&wake), 1);
    while (wait.calls + other.calls == 0)
        turn();
    cr_assert_eq(wait.calls + other.calls, 1);
    cr_assert_eq(ring_futex_wake(&keep(&wake)->op, &own_word, UINT_MAX, false), 0);
    cr_assert_eq(result_of(&wake), 1);
    cr_assert_eq(result_of(&wait), 0);
    cr_assert_eq(result_of(&other), 0);
    /* another process's */
    cr_assert_eq(ring_futex_wait(&keep(&wait)->op, shared_word, 0, true), 0);
    hand_over();
    child = fork();
    if (child == 0) {
        *shared_word = 1;
        _exit(syscall(SYS_futex, shared_word, FUTEX_WAKE, 1, NULL, NULL, 0) == 1 ? 0 : 1);
    }
    cr_assert_eq(result_of(&wait), 0);
    cr_assert_eq(waitpid(child, NULL, 0), child);
    /* ends */
    cr_assert_eq(ring_futex_wait(&keep(&wait)->op, &own_word, 1, false), 0);
    hand_over();
    ring_cancel(&wait.op);
    cr_assert_eq(result_of(&wait), -ECANCELED);
    cr_assert_eq(outcome_of(promise_futex_wait(&own_word, 1, false, weft_after(WEFT_MS(1)))),
                 -ETIMEDOUT);
    cr_assert_eq(outcome_of(promise_futex_wait(&own_word, 1, false, WEFT_NOWAIT)), -ETIMEDOUT);
    cr_assert_eq(ring_futex_wake(&keep(&wake)->op, &own_word, 1, false), 0);
    cr_assert_eq(result_of(&wake), 0, "nobody is left behind");
}

Test(io_waits, futexes)
{
    shared_word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ON_EACH_SETUP(futex_body);
    munmap(shared_word, 4096);
}

/* ---- children ---- */

static pid_t spawn_waiting(int *ends)
{
    pid_t child;

    make_pipe(ends);
    child = fork();
    if (child == 0) {
        char byte;

        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 1 ? byte : 1);
    }
    return child;
}

static void child_body(void)
{
    int before = open_descriptors(), ends[2], other_ends[2], pidfd, rc;
    pid_t child = spawn_waiting(ends), other = spawn_waiting(other_ends);
    struct kept wait, any;
    siginfo_t info = {0};

    /* not before it ends, and not for another one's end */
    cr_assert_eq(ring_waitid(&keep(&wait)->op, P_PID, child, &info, WEXITED), 0);
    hand_over();
    cr_assert_eq(write(other_ends[1], "\7", 1), 1);
    cr_assert_eq(outcome_of(promise_waitid(P_PID, other, NULL, WEXITED, WEFT_FOREVER)), 0);
    close_pair(other_ends);
    hand_over();
    cr_assert_eq(wait.calls, 0);
    /* ended by a request, by a deadline: the child is not touched */
    ring_cancel(&wait.op);
    cr_assert_eq(result_of(&wait), -ECANCELED);
    cr_assert_eq(outcome_of(promise_waitid(P_PID, child, &info, WEXITED, weft_after(WEFT_MS(1)))),
                 -ETIMEDOUT);
    cr_assert_eq(outcome_of(promise_waitid(P_PID, child, &info, WEXITED, WEFT_NOWAIT)), -ETIMEDOUT);
    /* by a descriptor */
    pidfd = (int)syscall(SYS_pidfd_open, child, 0);
    cr_assert(pidfd >= 0);
    cr_assert_eq(ring_waitid(&keep(&wait)->op, 3 /* P_PIDFD */, pidfd, &info, WEXITED | WNOWAIT),
                 0);
    hand_over();
    cr_assert_eq(write(ends[1], "\52", 1), 1);
    cr_assert_eq(result_of(&wait), 0);
    cr_assert(info.si_pid == child && info.si_status == 42);
    /* any child: where one process's end is all that can be waited for, it says so */
    cr_assert_eq(ring_waitid(&keep(&any)->op, P_ALL, 0, &info, WEXITED), 0);
    cr_assert_eq(result_of(&any), 0, "there is one to be had at once");
    cr_assert_eq(ring_waitid(&keep(&any)->op, P_ALL, 0, &info, WEXITED), 0);
    cr_assert_eq(result_of(&any), -ECHILD);
    close(pidfd);
    close_pair(ends);

    child = spawn_waiting(ends);
    cr_assert_eq(ring_waitid(&keep(&wait)->op, P_PID, child, &info, WSTOPPED), 0);
    hand_over();
    cr_assert_eq(kill(child, SIGSTOP), 0);
    rc = result_of(&wait);
    cr_assert_eq(rc, lacks_opcodes ? -ENOTSUP : 0);
    cr_assert(rc != 0 || (info.si_code == CLD_STOPPED && info.si_status == SIGSTOP));
    cr_assert_eq(kill(child, SIGKILL), 0);
    cr_assert_eq(outcome_of(promise_waitid(P_PID, child, &info, WEXITED, WEFT_FOREVER)), 0);
    cr_assert_eq(info.si_code, CLD_KILLED);
    close_pair(ends);
    cr_assert_eq(open_descriptors(), before);
}

Test(io_waits, children)
{
    if (on_valgrind())
        cr_skip_test("valgrind knows no pidfd");
    ON_EACH_SETUP(child_body);
}

/* ---- two ends ---- */

static void ends_body(void)
{
    struct weft_stats stats = {.size = sizeof stats};
    struct kept splice, tee, other;
    int a[2], b[2];
    uint64_t before;
    char buf[8];

    make_pipe(a);
    make_pipe(b);
    for (int nonblocking = 0; nonblocking < 2; nonblocking++) {
        for (int i = 0; nonblocking && i < 2; i++) {
            fcntl(a[i], F_SETFL, O_NONBLOCK);
            fcntl(b[i], F_SETFL, O_NONBLOCK);
        }
        /* nothing in the first and no room in the second: both must come */
        fill_up(b[1]);
        cr_assert_eq(ring_splice(&keep(&splice)->op, a[0], -1, b[1], -1, 3, 0), 0);
        hand_over();
        cr_assert_eq(write(a[1], "abc", 3), 3);
        hand_over();
        cr_assert_eq(splice.calls, 0, "there is no room yet");
        weft_stats(&stats);
        before = stats.submitted;
        for (int i = 0; i < 100; i++)
            hand_over();
        weft_stats(&stats);
        cr_assert(stats.submitted < before + 50, "it waits for the wrong end: %llu attempts",
                  (unsigned long long)(stats.submitted - before));
        do {
            fcntl(b[0], F_SETFL, O_NONBLOCK);
            while (read(b[0], buf, 1) == 1 && !(buf[0] == 'a'))
                ;
            hand_over();
        } while (splice.calls == 0);
        cr_assert_eq(splice.res, 3);
        while (buf[0] != 'c')
            if (read(b[0], buf, 1) < 0)
                hand_over();
        /* tee, then the bytes are still in the first */
        fcntl(b[0], F_SETFL, nonblocking ? O_NONBLOCK : 0);
        cr_assert_eq(ring_tee(&keep(&tee)->op, a[0], b[1], 8, 0), 0);
        hand_over();
        cr_assert_eq(write(a[1], "xyz", 3), 3);
        cr_assert_eq(result_of(&tee), 3);
        cr_assert_eq(read(a[0], buf, 8), 3);
        cr_assert_eq(read(b[0], buf, 8), 3);
        cr_assert_arr_eq(buf, "xyz", 3);
    }
    /* while it waits on two descriptors, closing finds it by either */
    for (int which = 0; which < 2; which++) {
        struct promise *p = promise_splice(a[0], -1, b[1], -1, 1, 0, WEFT_FOREVER);

        hand_over();
        cr_assert_eq(outcome_of(promise_close(which ? a[0] : b[1])), 0);
        cr_assert_eq(outcome_of(p), -ECANCELED);
        if (which == 0) {
            close(b[0]);
            make_pipe(b);
        }
    }
    cr_assert_eq(ring_splice(&keep(&other)->op, a[0], -1, b[1], -1, 1, 0), 0);
    cr_assert_eq(result_of(&other), -EBADF);
    close(a[1]);
    close_pair(b);
}

Test(io_waits, either_end_of_a_splice)
{
    ON_EACH_SETUP(ends_body);
}

/* ---- all that waits on a descriptor ---- */

static void cancel_fd_body(void)
{
    struct kept receive[10], poll, splice, other, nop;
    int pair[2], ends[2];
    struct promise *p;
    char buf[1];

    make_pair(pair);
    make_pipe(ends);
    for (int i = 0; i < 10; i++)
        cr_assert_eq(ring_recv(&keep(&receive[i])->op, pair[0], buf, 1, 0), 0);
    cr_assert_eq(ring_poll(&keep(&poll)->op, pair[0], POLLIN), 0);
    cr_assert_eq(ring_splice(&keep(&splice)->op, ends[0], -1, pair[0], -1, 1, 0), 0);
    cr_assert_eq(ring_recv(&keep(&other)->op, pair[1], buf, 1, 0), 0);
    p = promise_recv(pair[0], buf, 1, 0, weft_after(WEFT_SEC(99)));
    hand_over();
    cr_assert_eq(ring_cancel_fd(ends[1]), 0);
    cr_assert_eq(ring_cancel_fd(pair[0]), 13);
    for (int i = 0; i < 10; i++)
        cr_assert_eq(result_of(&receive[i]), -ECANCELED);
    cr_assert_eq(result_of(&poll), -ECANCELED);
    cr_assert_eq(result_of(&splice), -ECANCELED);
    cr_assert_eq(outcome_of(p), -ECANCELED);
    cr_assert_eq(other.calls, 0);
    cr_assert_eq(ring_cancel_fd(pair[0]), 0);
    /* by its other descriptor; it is usable afterwards */
    cr_assert_eq(ring_splice(&keep(&splice)->op, ends[0], -1, pair[0], -1, 1, 0), 0);
    cr_assert_eq(ring_cancel_fd(ends[0]), 1);
    cr_assert_eq(result_of(&splice), -ECANCELED);
    cr_assert_eq(write(pair[0], "x", 1), 1);
    cr_assert_eq(result_of(&other), 1);
    /* what is no descriptor is not found */
    cr_assert_eq(ring_nop(&keep(&nop)->op), 0);
    cr_assert_eq(ring_cancel_fd(-1), -EBADF);
    cr_assert_eq(result_of(&nop), 0);
    close_pair(ends);
    close_pair(pair);
}

static void no_io_body(void)
{
    cr_assert_eq(ring_cancel_fd(0), -ENOSYS);
}

Test(io_waits, cancel_by_descriptor)
{
    cr_assert_eq(ring_cancel_fd(0), -EINVAL);
    cr_assert_eq(run_by_hand(&setups[0], no_io_body), 0);
    ON_EACH_SETUP(cancel_fd_body);
}

/* A descriptor in non-blocking mode, the end asked for at once: what is there is taken, and what is
 * not there is not EAGAIN. */
static void now_body(void)
{
    int pair[2];
    char buf[8];

    make_pair(pair);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    cr_assert_eq(outcome_of(promise_recv(pair[0], buf, 8, 0, WEFT_NOWAIT)), -ETIMEDOUT);
    cr_assert_eq(outcome_of(promise_recv(pair[0], buf, 8, MSG_DONTWAIT, WEFT_NOWAIT)), -EAGAIN);
    cr_assert_eq(write(pair[1], "x", 1), 1);
    cr_assert_eq(outcome_of(promise_recv(pair[0], buf, 8, 0, WEFT_NOWAIT)), 1);
    close_pair(pair);
}

Test(io_waits, now_or_never_in_non_blocking_mode)
{
    ON_EACH_SETUP(now_body);
}
