/* io_suite_files.h: the part of io_suite.h about files and their names, futexes and children. */
#ifndef WEFT_TEST_IO_SUITE_FILES_H
#define WEFT_TEST_IO_SUITE_FILES_H

#include "io_support.h"

#include <weft/io.h>

#include <criterion/criterion.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <sys/xattr.h>

static int64_t size_of(int fd)
{
    struct stat about;

    return fstat(fd, &about) == 0 ? about.st_size : -1;
}

/* fallocate, ftruncate, sync_file_range, fadvise, madvise */
static void suite_space(void)
{
    int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    char buf[4];
    void *page;

    cr_assert_eq(DO(fallocate, fd, 0, 4096, 4096), 0);
    cr_assert_eq(size_of(fd), 8192);
    cr_assert_eq(DO(fallocate, fd, FALLOC_FL_KEEP_SIZE, 8192, 4096), 0);
    cr_assert_eq(size_of(fd), 8192);
    cr_assert_eq(DO(ftruncate, fd, 10), 0);
    cr_assert_eq(size_of(fd), 10);
    cr_assert_eq(DO(ftruncate, fd, INT64_C(5) << 32), 0);
    cr_assert_eq(size_of(fd), INT64_C(5) << 32);
    cr_assert_eq(pwrite(fd, "data", 4, 0), 4);
    cr_assert_eq(DO(sync_file_range, fd, 0, 4, SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER),
                 0);
    /* more than fits 32 bits is not cut */
    cr_assert_eq(DO(sync_file_range, fd, 0, (size_t)5 << 32, SYNC_FILE_RANGE_WRITE), 0);
    cr_assert_eq(DO(fadvise, fd, 0, (size_t)5 << 32, POSIX_FADV_DONTNEED), 0);
    cr_assert_eq(DO(fadvise, fd, 0, 0, POSIX_FADV_SEQUENTIAL), 0);
    cr_assert_eq(DO(fadvise, fd, 0, 0, 12345), -EINVAL);
    cr_assert_eq(DO(sync_file_range, fd, 0, 0, ~0u), -EINVAL);
    cr_assert_eq(DO(fallocate, fd, 0, -1, 1), -EINVAL);
    cr_assert_eq(DO(fallocate, fd, 0, 0, 0), -EINVAL);
    cr_assert_eq(DO(ftruncate, fd, -1), -EINVAL);
    cr_assert_eq(pread(fd, buf, 4, 0), 4);
    cr_assert_arr_eq(buf, "data", 4);
    close(fd);
    cr_assert_eq(DO(fallocate, -1, 0, 0, 1), -EBADF);
    cr_assert_eq(DO(ftruncate, -1, 0), -EBADF);
    cr_assert_eq(DO(sync_file_range, -1, 0, 0, 0), -EBADF);
    cr_assert_eq(DO(fadvise, -1, 0, 0, 0), -EBADF);

    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *(char *)page = 'x';
    cr_assert_eq(DO(madvise, page, 4096, MADV_DONTNEED), 0);
    cr_assert_eq(*(char *)page, 0);
    cr_assert_eq(DO(madvise, page, 4096, 12345), -EINVAL);
    munmap(page, 4096);
    cr_assert_eq(DO(madvise, page, 4096, MADV_NORMAL), -ENOMEM);
    /* all of it, or nothing: the last page of 5 GiB is not there */
    page =
        mmap(NULL, (size_t)5 << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    cr_assert_neq(page, MAP_FAILED);
    munmap((char *)page + ((size_t)5 << 30) - 4096, 4096);
    cr_assert_eq(DO(madvise, page, (size_t)5 << 30, MADV_NORMAL), -ENOMEM);
    munmap(page, ((size_t)5 << 30) - 4096);
}

/* mkdirat, linkat, symlinkat, renameat, unlinkat */
static void suite_names(void)
{
    char root[] = "/tmp/weft-test-XXXXXX", target[8] = "";
    struct stat about;
    int dir;

    cr_assert_neq(mkdtemp(root), NULL);
    dir = open(root, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    close(openat(dir, "file", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    cr_assert_eq(DO(mkdirat, dir, "sub", 0700), 0);
    cr_assert_eq(DO(mkdirat, dir, "sub", 0700), -EEXIST);
    cr_assert_eq(DO(linkat, dir, "file", dir, "sub/link", 0), 0);
    cr_assert(fstatat(dir, "sub/link", &about, 0) == 0 && about.st_nlink == 2);
    cr_assert_eq(DO(linkat, dir, "none", dir, "other", 0), -ENOENT);
    cr_assert_eq(DO(symlinkat, "sub", dir, "way"), 0);
    cr_assert_eq(readlinkat(dir, "way", target, sizeof target), 3);
    cr_assert_eq(DO(symlinkat, "sub", dir, "way"), -EEXIST);
    cr_assert_eq(DO(renameat, dir, "way/link", dir, "moved", 0), 0);
    cr_assert_eq(DO(renameat, dir, "file", dir, "moved", RENAME_NOREPLACE), -EEXIST);
    cr_assert_eq(DO(renameat, dir, "moved", dir, "sub", RENAME_EXCHANGE), 0);
    cr_assert_eq(fstatat(dir, "sub", &about, 0), 0);
    cr_assert(S_ISREG(about.st_mode));
    cr_assert_eq(DO(unlinkat, dir, "moved", 0), -EISDIR);
    cr_assert_eq(DO(unlinkat, dir, "moved", AT_REMOVEDIR), 0);
    cr_assert_eq(DO(unlinkat, dir, "sub", 0), 0);
    cr_assert_eq(DO(unlinkat, dir, "way", 0), 0);
    cr_assert_eq(DO(unlinkat, dir, "file", 0), 0);
    cr_assert_eq(DO(unlinkat, dir, "file", 0), -ENOENT);
    cr_assert_eq(DO(unlinkat, AT_FDCWD, root, AT_REMOVEDIR), 0, "by its whole name; it is empty");
    cr_assert_eq(DO(mkdirat, dir, "more", 0700), -ENOENT, "it is gone");
    close(dir);
    cr_assert_eq(DO(mkdirat, -1, "more", 0700), -EBADF);
    cr_assert_eq(DO(unlinkat, AT_FDCWD, NULL, 0), -EFAULT);
    cr_assert_eq(DO(mkdirat, AT_FDCWD, NULL, 0), -EFAULT);
    cr_assert_eq(DO(renameat, AT_FDCWD, NULL, AT_FDCWD, "x", 0), -EFAULT);
    cr_assert_eq(DO(renameat, AT_FDCWD, "x", AT_FDCWD, NULL, 0), -EFAULT);
    cr_assert_eq(DO(linkat, AT_FDCWD, NULL, AT_FDCWD, "x", 0), -EFAULT);
    cr_assert_eq(DO(linkat, AT_FDCWD, "x", AT_FDCWD, NULL, 0), -EFAULT);
    cr_assert_eq(DO(symlinkat, NULL, AT_FDCWD, "x"), -EFAULT);
    cr_assert_eq(DO(symlinkat, "x", AT_FDCWD, NULL), -EFAULT);
}

/* openat2, open_beneath: a directory that nothing climbs out of */
static void suite_beneath(void)
{
    static const char *const ways_out[] = {
        "..", "../x", "/etc/passwd", "sub/../../x", "away/passwd", "up", "/"};
    const struct open_how read_only = {.flags = O_RDONLY};
    const struct open_how no_links = {.flags = O_RDONLY, .resolve = RESOLVE_NO_SYMLINKS};
    const struct open_how wrong = {.flags = O_RDONLY, .resolve = 1 << 20};
    char root[] = "/tmp/weft-test-XXXXXX";
    int dir, fd;

    cr_assert_neq(mkdtemp(root), NULL);
    dir = open(root, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    cr_assert_eq(mkdirat(dir, "sub", 0700), 0);
    cr_assert_eq(symlinkat("/etc", dir, "away"), 0);
    cr_assert_eq(symlinkat("..", dir, "up"), 0);
    cr_assert_eq(symlinkat("sub", dir, "within"), 0);
    fd = DO(openat2, dir, "sub", &read_only);
    if (on_valgrind() && fd == -ENOSYS)
        goto unknown; /* the system call, to valgrind */
    cr_assert(fd >= 0, "%d", fd);
    close(fd);
    for (size_t i = 0; i < sizeof ways_out / sizeof ways_out[0]; i++)
        cr_assert_eq(DO(open_beneath, dir, ways_out[i], O_RDONLY, 0), -EXDEV, "%s", ways_out[i]);
    fd = DO(open_beneath, dir, "within/../sub/new", O_RDWR | O_CREAT | O_EXCL, 0640);
    cr_assert(fd >= 0, "%d", fd);
    cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    cr_assert_eq(write(fd, "x", 1), 1);
    close(fd);
    cr_assert_eq(DO(open_beneath, dir, "sub/new", O_RDWR | O_CREAT | O_EXCL, 0640), -EEXIST);
    fd = DO(open_beneath, dir, "sub/new", O_RDONLY, 0777);
    cr_assert(fd >= 0, "a mode that is of no use does no harm: %d", fd);
    close(fd);
    fd = DO(open_beneath, dir, "sub", O_RDWR | O_TMPFILE, 0600);
    cr_assert(fd >= 0, "%d", fd);
    close(fd);
    cr_assert_eq(DO(open_beneath, dir, "none", O_RDONLY, 0), -ENOENT);

    fd = DO(openat2, dir, "within/new", &read_only);
    cr_assert(fd >= 0, "%d", fd);
    cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    cr_assert_eq(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    close(fd);
    cr_assert_eq(DO(openat2, dir, "within/new", &no_links), -ELOOP);
    cr_assert_eq(DO(openat2, dir, "sub/new", &wrong), -EINVAL);
    cr_assert_eq(DO(openat2, -1, "sub/new", &read_only), -EBADF);
    cr_assert_eq(DO(openat2, dir, NULL, &read_only), -EFAULT);
    cr_assert_eq(DO(openat2, dir, "sub/new", NULL), -EFAULT);
    cr_assert_eq(DO(open_beneath, dir, NULL, O_RDONLY, 0), -EFAULT);
    cr_assert_eq(DO(open_beneath, -1, "sub/new", O_RDONLY, 0), -EBADF);
unknown:
    unlinkat(dir, "sub/new", 0);
    unlinkat(dir, "sub", AT_REMOVEDIR);
    unlinkat(dir, "away", 0);
    unlinkat(dir, "up", 0);
    unlinkat(dir, "within", 0);
    close(dir);
    rmdir(root);
}

/* The four of extended attributes; not every file system has them. */
static void suite_attributes(void)
{
    char path[] = "/tmp/weft-test-XXXXXX", value[8] = "";
    int fd = mkostemp(path, O_CLOEXEC);

    cr_assert(fd >= 0);
    if (fsetxattr(fd, "user.probe", "", 0, 0) == 0) {
        cr_assert_eq(DO(fsetxattr, fd, "user.weft", "fiber", 5, XATTR_CREATE), 0);
        cr_assert_eq(DO(fsetxattr, fd, "user.weft", "x", 1, XATTR_CREATE), -EEXIST);
        cr_assert_eq(DO(fgetxattr, fd, "user.weft", value, sizeof value), 5);
        cr_assert_arr_eq(value, "fiber", 5);
        cr_assert_eq(DO(fgetxattr, fd, "user.weft", NULL, 0), 5);
        cr_assert_eq(DO(fgetxattr, fd, "user.weft", value, 2), -ERANGE);
        cr_assert_eq(DO(fgetxattr, fd, "user.none", value, sizeof value), -ENODATA);
        cr_assert_eq(DO(setxattr, path, "user.weft", "yarn", 4, XATTR_REPLACE), 0);
        cr_assert_eq(DO(setxattr, path, "user.none", "x", 1, XATTR_REPLACE), -ENODATA);
        cr_assert_eq(DO(getxattr, path, "user.weft", value, sizeof value), 4);
        cr_assert_arr_eq(value, "yarn", 4);
    }
    unlink(path);
    cr_assert_eq(DO(getxattr, path, "user.weft", value, sizeof value), -ENOENT);
    cr_assert_eq(DO(setxattr, path, "user.weft", "x", 1, 0), -ENOENT);
    cr_assert_eq(DO(fgetxattr, -1, "user.weft", value, 1), -EBADF);
    cr_assert_eq(DO(fsetxattr, -1, "user.weft", "x", 1, 0), -EBADF);
    cr_assert_eq(DO(fgetxattr, fd, NULL, value, 1), -EFAULT);
    cr_assert_eq(DO(fgetxattr, fd, "user.weft", NULL, 1), -EFAULT);
    cr_assert_eq(DO(fsetxattr, fd, NULL, "x", 1, 0), -EFAULT);
    cr_assert_eq(DO(fsetxattr, fd, "user.weft", NULL, 1, 0), -EFAULT);
    cr_assert_eq(DO(getxattr, NULL, "user.weft", value, 1), -EFAULT);
    cr_assert_eq(DO(getxattr, path, NULL, value, 1), -EFAULT);
    cr_assert_eq(DO(setxattr, NULL, "user.weft", "x", 1, 0), -EFAULT);
    cr_assert_eq(DO(setxattr, path, "user.weft", NULL, 1, 0), -EFAULT);
    close(fd);
}

/* What needs nobody else; waiting is tested in test_io_waits. */
static void suite_futex(void)
{
    uint32_t word = 7;

    cr_assert_eq(DO(futex_wait, &word, 8, false), -EAGAIN, "another value");
    cr_assert_eq(DO(futex_wait, &word, 8, true), -EAGAIN);
    cr_assert_eq(DO(futex_wait, NULL, 8, false), -EFAULT);
    cr_assert_eq(DO(futex_wake, &word, 1, false), 0, "nobody waits");
    cr_assert_eq(DO(futex_wake, &word, UINT_MAX, true), 0);
    cr_assert_eq(DO(futex_wake, &word, 0, false), 0);
    cr_assert_eq(DO(futex_wake, NULL, 1, false), -EFAULT);
}

static void suite_waitid(void)
{
    pid_t child = fork();
    siginfo_t info;
    int rc;

    if (child == 0)
        for (;;)
            pause();
    memset(&info, 0xff, sizeof info);
    cr_assert_eq(DO(waitid, P_PID, child, &info, WEXITED | WNOHANG), 0, "not yet");
    cr_assert_eq(info.si_pid, 0);
    cr_assert_eq(kill(child, SIGKILL), 0);
    rc = DO(waitid, P_PID, child, &info, WEXITED | WNOWAIT);
    if (on_valgrind() && rc == -ENOTSUP) { /* it knows no pidfd */
        cr_assert_eq(waitpid(child, NULL, 0), child);
        return;
    }
    cr_assert_eq(rc, 0);
    cr_assert(info.si_pid == child && info.si_code == CLD_KILLED && info.si_status == SIGKILL,
              "%d (%d): %d, %d", (int)info.si_pid, (int)child, info.si_code, info.si_status);
    cr_assert_eq(DO(waitid, P_PID, child, NULL, WEXITED), 0);
    cr_assert_eq(DO(waitid, P_PID, child, &info, WEXITED), -ECHILD, "once");
    cr_assert_eq(DO(waitid, P_PID, getpid(), &info, WEXITED), -ECHILD, "a stranger");
    cr_assert_eq(DO(waitid, 77, child, &info, WEXITED), -EINVAL);
    cr_assert_eq(DO(waitid, P_PID, child, &info, 0), -EINVAL);
}

#endif
