/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/evidence_gather.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "broker/evidence_source.h"
#include "proto/base/cleanup.h"
#include "proto/base/sha256.h"

#define PROGRAM_MAX_BYTES (512 << 20)
#define PF_KTHREAD        0x00200000u /* linux/sched.h */
#define DESCRIPTORS_MAX   (1u << 20)  /* fs.nr_open's default */

/* ---- KVM */

static void count_descriptor(DIR *dir, const char *name, struct evidence_kvm *kvm)
{
        char target[64];
        ssize_t n = readlinkat(dirfd(dir), name, target, sizeof(target) - 1);

        if (n < 0) {
                /* One that was closed meanwhile says nothing. */
                if (errno != ENOENT && errno != EINVAL)
                        kvm->error = errno;
                return;
        }
        target[n] = '\0';
        kvm->vms += strcmp(target, "anon_inode:kvm-vm") == 0;
        kvm->vcpus += strncmp(target, "anon_inode:kvm-vcpu", strlen("anon_inode:kvm-vcpu")) == 0;
}

/* No file can be named so: a path begins with a slash. */
static void read_kvm(int proc_fd, struct evidence_kvm *ret)
{
        int dir_fd = openat(proc_fd, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *dir = dir_fd < 0 ? NULL : fdopendir(dir_fd);
        const struct dirent *entry;

        if (!dir) {
                ret->error = errno;
                close_fd(dir_fd);
                return;
        }
        for (uint32_t n = 0; !ret->error && (errno = 0, entry = readdir(dir)) != NULL; n++) {
                if (n > DESCRIPTORS_MAX)
                        ret->error = E2BIG;
                else if (entry->d_name[0] != '.')
                        count_descriptor(dir, entry->d_name, ret);
        }
        if (!ret->error && errno)
                ret->error = errno;
        (void)closedir(dir);
}

/* ---- the program */

/* The kernel lets nobody write to a program that runs, so a digest holds as long as the file's identity does. */
static int find_digest(struct evidence_digests *digests, int fd, uint8_t ret_sha256[32])
{
        struct statfs fs;
        struct stat st;
        uint64_t bytes;
        unsigned i;
        int r;

        if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
                return -errno;
        /* Whoever serves such a file can show us another one than runs. */
        if (fs.f_type == FUSE_SUPER_MAGIC)
                return -EOPNOTSUPP;
        if (!S_ISREG(st.st_mode) || st.st_size > PROGRAM_MAX_BYTES)
                return -EFBIG;
        for (i = 0; i < sizeof(digests->known) / sizeof(*digests->known); i++)
                if (digests->known[i].inode == st.st_ino && digests->known[i].device == st.st_dev &&
                        digests->known[i].size == st.st_size &&
                        memcmp(&digests->known[i].changed, &st.st_ctim, sizeof(st.st_ctim)) == 0) {
                        memcpy(ret_sha256, digests->known[i].sha256, sizeof(digests->known[i].sha256));
                        return 0;
                }
        r = sha256_file(fd, PROGRAM_MAX_BYTES, -1, ret_sha256, &bytes);
        if (r < 0)
                return r;
        i = digests->next++ % (sizeof(digests->known) / sizeof(*digests->known));
        digests->known[i].device = st.st_dev;
        digests->known[i].inode = st.st_ino;
        digests->known[i].size = st.st_size;
        digests->known[i].changed = st.st_ctim;
        memcpy(digests->known[i].sha256, ret_sha256, sizeof(digests->known[i].sha256));
        return 0;
}

static void read_program(struct evidence_digests *digests, int proc_fd, struct evidence_program *ret)
{
        static const char deleted[] = " (deleted)"; /* replaced by an update while it runs; fs/d_path.c */
        ssize_t n = readlinkat(proc_fd, "exe", ret->path, sizeof(ret->path) - 1);
        _cleanup_close_ int fd = -1;
        size_t length;
        int r;

        if (n < 0) {
                ret->error = errno;
                return;
        }
        ret->path[n] = '\0';
        length = strlen(ret->path);
        if (length >= sizeof(deleted) && strcmp(ret->path + length - (sizeof(deleted) - 1), deleted) == 0)
                ret->path[length - (sizeof(deleted) - 1)] = '\0';
        fd = openat(proc_fd, "exe", O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        r = fd < 0 ? -errno : find_digest(digests, fd, ret->sha256);
        ret->digest_error = -r;
}

/* ---- root and namespaces */

static bool same_file(const struct stat *a, const struct stat *b)
{
        return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* kthreadd, which is the host's by its nature; in a pid namespace of its own the monitor sees some other process 2.
 * PID (NAME) STATE PPID PGRP SESSION TTY TPGID FLAGS ... (proc(5)) */
static bool is_kernel_thread(int pid)
{
        _cleanup_free_ char *text = NULL;
        const char *at;
        char path[32];
        uint64_t flags;

        (void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
        if (evidence_read_file(AT_FDCWD, path, &text) < 0 || !text)
                return false;
        at = strrchr(text, ')');
        for (int i = 0; i < 7 && at; i++)
                at = strchr(at + 1, ' ');
        return at && evidence_take_number(&at, 10, &flags) && (flags & PF_KTHREAD);
}

/* The host's, as process 1 or the kernel's own threads have it. */
static bool find_hosts(const char *name, struct stat *ret)
{
        char path[64];

        (void)snprintf(path, sizeof(path), "/proc/1/%s", name);
        if (stat(path, ret) == 0)
                return true;
        (void)snprintf(path, sizeof(path), "/proc/2/%s", name);
        return is_kernel_thread(2) && stat(path, ret) == 0;
}

/*
 * Compared with the monitor's own and with the host's: the monitor can be confined itself, and what has only left the
 * monitor's namespace may stand in the host's.
 */
static void compare(int proc_fd, const char *name, struct evidence_own *ret)
{
        struct stat theirs, own, hosts;
        char path[64];

        (void)snprintf(path, sizeof(path), "/proc/self/%s", name);
        if (fstatat(proc_fd, name, &theirs, 0) < 0 || stat(path, &own) < 0) {
                ret->error = errno;
                return;
        }
        ret->host_unseen = !find_hosts(name, &hosts);
        ret->own = !same_file(&theirs, &own) && (ret->host_unseen || !same_file(&theirs, &hosts));
}

static void read_namespaces(int proc_fd, struct evidence_own ret[NAMESPACE_MAX_])
{
        static const char *const names[] = {
                [NAMESPACE_NET] = "ns/net",
                [NAMESPACE_MOUNT] = "ns/mnt",
                [NAMESPACE_PID] = "ns/pid",
                [NAMESPACE_USER] = "ns/user",
        };

        static_assert(sizeof(names) / sizeof(*names) == NAMESPACE_MAX_, "a namespace has no file");
        for (int i = 0; i < NAMESPACE_MAX_; i++)
                compare(proc_fd, names[i], &ret[i]);
}

/* ---- the process */

static int open_process(int pid)
{
        char path[32];

        (void)snprintf(path, sizeof(path), "/proc/%d", pid);
        return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static bool has_ended(int pidfd)
{
        struct pollfd p = {.fd = pidfd, .events = POLLIN};

        return poll(&p, 1, 0) != 0;
}

static void read_all(struct evidence_digests *digests, int proc_fd, struct evidence *e)
{
        read_program(digests, proc_fd, &e->program);
        read_kvm(proc_fd, &e->kvm);
        evidence_read_threads(proc_fd, &e->threads);
        if (!e->program.error && !e->threads.error && strncmp(evidence_program_name(e), "runsc", strlen("runsc")) == 0)
                evidence_read_sandbox(proc_fd, &e->threads);
        compare(proc_fd, "root", &e->root);
        read_namespaces(proc_fd, e->namespaces);
        evidence_read_cgroup(proc_fd, &e->cgroup);
        evidence_read_memory(proc_fd, &e->memory);
}

/* A /proc that hides processes (hidepid) is no sign that there is none. */
static void cannot_open(int error, struct evidence *e)
{
        e->program.error = e->kvm.error = e->threads.error = e->root.error = error;
        for (int i = 0; i < NAMESPACE_MAX_; i++)
                e->namespaces[i].error = error;
        e->cgroup.error = e->memory.error = error;
}

int evidence_gather(struct evidence_digests *digests, int pid, struct evidence *ret, int *ret_pidfd)
{
        _cleanup_close_ int pidfd = (int)syscall(SYS_pidfd_open, pid, 0), proc_fd = -1;
        struct evidence e = {.exists = true, .pid = pid};

        if (pidfd < 0 && errno != ESRCH && errno != EINVAL)
                return -errno;
        if (pidfd >= 0) {
                proc_fd = open_process(pid);
                if (proc_fd < 0)
                        cannot_open(errno, &e);
                else
                        read_all(digests, proc_fd, &e);
        }
        /* Only now is it known whose evidence it is. */
        if (pidfd < 0 || has_ended(pidfd)) {
                e = (struct evidence){.pid = pid};
                pidfd = close_fd(pidfd);
        }
        *ret = e;
        *ret_pidfd = steal_fd(&pidfd);
        return 0;
}
