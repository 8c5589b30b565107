/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/evidence.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/base/cleanup.h"

static int open_process(int pid)
{
        char path[32];
        int fd;

        (void)snprintf(path, sizeof(path), "/proc/%d", pid);
        fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

/* virt/kvm/kvm_main.c names the inode of a VM so. */
static bool holds_kvm_vm(int proc_fd, bool *ret_readable)
{
        int dir_fd = openat(proc_fd, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *dir = dir_fd < 0 ? NULL : fdopendir(dir_fd);
        bool found = false;

        *ret_readable = dir != NULL;
        if (!dir) {
                close_fd(dir_fd);
                return false;
        }
        for (struct dirent *e = readdir(dir); e && !found; e = readdir(dir)) {
                char target[64];
                ssize_t n = readlinkat(dirfd(dir), e->d_name, target, sizeof(target) - 1);

                found = n > 0 && (target[n] = '\0', strcmp(target, "anon_inode:kvm-vm") == 0);
        }
        (void)closedir(dir);
        return found;
}

static bool has_own_namespace(int proc_fd, const char *name)
{
        char own[64];
        struct stat theirs, ours;

        (void)snprintf(own, sizeof(own), "/proc/self/%s", name);
        return fstatat(proc_fd, name, &theirs, 0) == 0 && stat(own, &ours) == 0 &&
               (theirs.st_dev != ours.st_dev || theirs.st_ino != ours.st_ino);
}

static bool has_ended(int pidfd)
{
        struct pollfd p = {.fd = pidfd, .events = POLLIN};

        return poll(&p, 1, 0) != 0;
}

int evidence_gather(int pid, struct evidence *ret, int *ret_pidfd)
{
        _cleanup_close_ int pidfd = (int)syscall(SYS_pidfd_open, pid, 0), proc_fd = -1;
        struct evidence e = {.exists = true};
        struct stat st;
        ssize_t n;

        if (pidfd < 0 && errno != ESRCH && errno != EINVAL)
                return -errno;
        if (pidfd >= 0)
                proc_fd = open_process(pid);
        if (proc_fd < 0 || fstat(proc_fd, &st) < 0) {
                *ret = (struct evidence){0};
                *ret_pidfd = -1;
                return 0;
        }
        e.uid = st.st_uid;
        e.kvm_vm = holds_kvm_vm(proc_fd, &e.readable);
        e.own_mount_namespace = has_own_namespace(proc_fd, "ns/mnt");
        n = readlinkat(proc_fd, "exe", e.program, sizeof(e.program) - 1);
        e.readable = e.readable && n > 0;
        if (has_ended(pidfd)) {
                e = (struct evidence){0};
                pidfd = close_fd(pidfd);
        }
        *ret = e;
        *ret_pidfd = steal_fd(&pidfd);
        return 0;
}

/* What a backend's process must be for its declaration to be believed. */
static const struct {
        const char *program; /* what its file's name begins with; NULL: any */
        bool kvm;
        bool namespace;
} expected[] = {
        [BACKEND_FIRECRACKER] = {.program = "firecracker", .kvm = true},
        [BACKEND_CLOUD_HYPERVISOR] = {.program = "cloud-hypervisor", .kvm = true},
        [BACKEND_QEMU] = {.program = "qemu-", .kvm = true},
        [BACKEND_GVISOR] = {.program = "runsc"},
        [BACKEND_RUNC] = {.namespace = true},
        [BACKEND_OTHER] = {0},
};
static_assert(sizeof(expected) / sizeof(*expected) == BACKEND_MAX_, "a backend has no row");

enum isolation_tier evidence_tier(enum backend backend, const struct evidence *e, const char **ret_why)
{
        const char *slash = strrchr(e->program, '/');
        const char *program = slash ? slash + 1 : e->program;
        const char *want = expected[backend].program;
        const char *why = NULL;

        if (!e->exists)
                why = "no such process";
        else if (!e->readable)
                why = "the process cannot be looked at";
        else if (want && strncmp(program, want, strlen(want)) != 0)
                why = "the process runs another program";
        else if (expected[backend].kvm && !e->kvm_vm)
                why = "the process holds no KVM VM";
        else if (expected[backend].namespace && !e->own_mount_namespace)
                why = "the process shares the host's mounts";
        else if (backend_declares(backend) == TIER_UNKNOWN)
                why = "a backend of this kind declares nothing";
        *ret_why = why;
        return why ? TIER_UNKNOWN : backend_declares(backend);
}
