/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FIFREEZE and FITHAW on a real filesystem: ext4 on a loop device, in a mount namespace that is left with nothing else:
 * the machine's own disks are unmounted there before anything is frozen, or nothing is. Ends with 77 where that cannot
 * be had (no root, no loop device, no mkfs.ext4).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/filesystems.h"
#include "guest/filesystems_hold.h"
#include "proto/base/io.h"

#define SKIP      77
#define IMAGE     "/disk.img"
#define DISK_SIZE (16 << 20)

#define MUST(condition)                                                                                                \
        do {                                                                                                           \
                if (!(condition)) {                                                                                    \
                        fprintf(stderr, "line %d: not so: %s (errno %d)\n", __LINE__, #condition, errno);              \
                        _exit(1);                                                                                      \
                }                                                                                                      \
        } while (0)

static void skip(const char *why)
{
        printf("skipped: %s: %s\n", why, strerror(errno));
        _exit(SKIP);
}

/* A loop device over a file in the new root; it goes with its last user. Its number, as a device node needs it. */
static int open_loop(const char *image)
{
        struct loop_info64 info = {.lo_flags = LO_FLAGS_AUTOCLEAR};
        int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), file = open(image, O_RDWR | O_CLOEXEC), n, loop;
        char path[32];

        if (control < 0 || file < 0)
                skip("/dev/loop-control");
        n = ioctl(control, LOOP_CTL_GET_FREE);
        (void)snprintf(path, sizeof(path), "/dev/loop%d", n);
        loop = open(path, O_RDWR | O_CLOEXEC);
        if (n < 0 || loop < 0 || ioctl(loop, LOOP_SET_FD, file) < 0)
                skip("a loop device");
        (void)ioctl(loop, LOOP_SET_STATUS64, &info);
        return n; /* loop stays open until it is mounted */
}

/* From here on there is a tmpfs, with the disk at /disk, and nothing else in this namespace. */
static void enter_world(const char *root)
{
        char path[64], command[128];
        int n, fd;

        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                skip("a mount namespace");
        MUST(mount("tmpfs", root, "tmpfs", 0, "size=64m") == 0 && chdir(root) == 0);
        (void)snprintf(path, sizeof(path), "%s" IMAGE, root);
        fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        MUST(fd >= 0 && ftruncate(fd, DISK_SIZE) == 0 && close(fd) == 0);
        (void)snprintf(command, sizeof(command), "mkfs.ext4 -q %s", path);
        if (system(command) != 0)
                skip("mkfs.ext4");
        n = open_loop(path);
        MUST(mkdir("disk", 0755) == 0 && mkdir("proc", 0755) == 0 && mkdir("old", 0755) == 0);
        MUST(mkdir("dev", 0755) == 0 && mknod("dev/disk", S_IFBLK | 0600, makedev(7, (unsigned)n)) == 0);
        MUST(syscall(SYS_pivot_root, ".", "old") == 0 && chdir("/") == 0);
        MUST(mount("proc", "/proc", "proc", 0, NULL) == 0 && umount2("/old", MNT_DETACH) == 0);
        MUST(mount("/dev/disk", "/disk", "ext4", 0, NULL) == 0);
}

/* What would be frozen, before it is: our disk, and it alone. */
static void check_that_nothing_else_is_there(void)
{
        static struct filesystem found[FILESYSTEMS_MAX];
        char *text;

        MUST(io_read_file("/proc/self/mountinfo", 1 << 20, &text, NULL) == 0);
        MUST(filesystems_find(text, found) == 1 && strcmp(found[0].path, "/disk") == 0);
        MUST(strncmp(found[0].device, "7:", 2) == 0);
        free(text);
}

static pid_t start_writer(void)
{
        pid_t pid = fork();

        if (pid == 0) {
                int fd;

                (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
                (void)close_range(3, ~0u, 0); /* not to hold what the holder waits for the end of */
                fd = open("/disk/written", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
                _exit(fd >= 0 && write(fd, "x", 1) == 1 ? 0 : 1);
        }
        return pid;
}

static bool ends_within(pid_t pid, int ms)
{
        for (; ms > 0; ms -= 10) {
                int status;

                if (waitpid(pid, &status, WNOHANG) == pid) {
                        MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
                        return true;
                }
                (void)usleep(10000);
        }
        return false;
}

static void test_frozen_is_frozen(void)
{
        unsigned n = 0;
        pid_t pid;

        MUST(filesystems_freeze(&n) == 0 && n == 1);
        pid = start_writer();
        MUST(!ends_within(pid, 300));
        MUST(filesystems_freeze(&n) == 0 && n == 0); /* it is already */
        MUST(filesystems_thaw() == 1);
        MUST(ends_within(pid, 5000));
        MUST(filesystems_thaw() == 0);
}

/* A process holds it: until the other end is closed, as it is by the agent's death. */
static void test_held_until_let_go(void)
{
        struct {
                int error;
                unsigned frozen;
        } answer;
        pid_t holder, writer;
        int ends[2];

        MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
        holder = fork();
        if (holder == 0) {
                (void)close(ends[0]);
                filesystems_hold_serve(ends[1]);
                _exit(0);
        }
        (void)close(ends[1]);
        MUST(io_read_full(ends[0], &answer, sizeof(answer)) == 0 && answer.error == 0 && answer.frozen == 1);
        writer = start_writer();
        MUST(!ends_within(writer, 300) && !ends_within(holder, 10));
        (void)close(ends[0]);
        MUST(ends_within(holder, 5000) && ends_within(writer, 5000));
}

static void test_trim(void)
{
        MUST(filesystems_trim() > 0); /* most of it is free */
}

int main(void)
{
        char root[] = "/tmp/wb-freeze-XXXXXX";
        pid_t pid;
        int status;

        if (geteuid() != 0)
                return SKIP;
        MUST(mkdtemp(root));
        (void)setvbuf(stdout, NULL, _IOLBF, 0);
        pid = fork(); /* the namespace is the child's */
        if (pid == 0) {
                enter_world(root);
                check_that_nothing_else_is_there();
                test_frozen_is_frozen();
                test_held_until_let_go();
                test_trim();
                (void)umount2("/disk", MNT_DETACH);
                puts("3 passed");
                _exit(0);
        }
        MUST(waitpid(pid, &status, 0) == pid);
        (void)rmdir(root);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
