/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/netlink.h>
#include <sched.h>
#include <seccomp.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/log.h"

/* Newer than the headers of Debian 12; linux/landlock.h of 6.2 and 6.7. */
#ifndef LANDLOCK_ACCESS_FS_TRUNCATE
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14)
#endif
#define NET_BIND_TCP (1ULL << 0)

struct ruleset_attributes {
        uint64_t handled_access_fs;
        uint64_t handled_access_net; /* from ABI 4 on */
};

#define FS_ABI_1 ((LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1)
#define FS_ABI_2 (FS_ABI_1 | LANDLOCK_ACCESS_FS_REFER)
#define FS_ABI_3 (FS_ABI_2 | LANDLOCK_ACCESS_FS_TRUNCATE)
#define AUDIT_DIR_ABI_1                                                                                                \
        (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_WRITE_FILE |                  \
                LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_FILE)

static int restrict_files(const char *audit_dir)
{
        int abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
        struct ruleset_attributes attributes = {.handled_access_fs = abi >= 3   ? FS_ABI_3
                                                                     : abi == 2 ? FS_ABI_2
                                                                                : FS_ABI_1};
        struct landlock_path_beneath_attr beneath = {.allowed_access = AUDIT_DIR_ABI_1};
        _cleanup_close_ int ruleset = -1, dir = -1;

        if (abi < 0) {
                log_warning(
                        "this kernel has no Landlock; the broker's process is not kept from files that its user may touch");
                return 0;
        }
        if (abi >= 3)
                beneath.allowed_access |= LANDLOCK_ACCESS_FS_TRUNCATE;
        if (abi >= 4)
                attributes.handled_access_net = NET_BIND_TCP;
        ruleset = (int)syscall(SYS_landlock_create_ruleset, &attributes,
                abi >= 4 ? sizeof(attributes) : sizeof(attributes.handled_access_fs), 0);
        if (ruleset < 0)
                return log_errno(-errno, "cannot make a Landlock ruleset");
        dir = open(audit_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (dir < 0)
                return log_errno(-errno, "cannot open %s", audit_dir);
        beneath.parent_fd = dir;
        if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) < 0 ||
                syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
                return log_errno(-errno, "cannot enter Landlock");
        return 0;
}

/* By what they are for. Memory and threads; waiting; descriptors; sockets; the audit's files; time, randomness, ending.
 */
static const char *const allowed_calls[] = {
        "brk",
        "munmap",
        "mremap",
        "madvise",
        "mlock",
        "futex",
        "rseq",
        "set_robust_list",
        "get_robust_list",
        "sched_yield",
        "sched_getaffinity",
        "membarrier",
        "gettid",
        "getpid",
        "getppid",
        "prctl",
        "arch_prctl",
        "rt_sigaction",
        "rt_sigprocmask",
        "rt_sigreturn",
        "sigaltstack",
        "restart_syscall",

        "epoll_create1",
        "epoll_ctl",
        "epoll_wait",
        "epoll_pwait",
        "epoll_pwait2",
        "poll",
        "ppoll",
        "select",
        "pselect6",
        "eventfd2",
        "timerfd_create",
        "timerfd_settime",
        "timerfd_gettime",

        "read",
        "write",
        "readv",
        "writev",
        "pread64",
        "pwrite64",
        "close",
        "close_range",
        "dup",
        "dup3",
        "fcntl",
        "ioctl",
        "pipe2",
        "splice",
        "tee",
        "lseek",

        "connect",
        "accept4",
        "bind",
        "shutdown",
        "getsockname",
        "getpeername",
        "getsockopt",
        "setsockopt",
        "sendto",
        "recvfrom",
        "sendmsg",
        "recvmsg",
        "sendmmsg",
        "recvmmsg",

        "openat",
        "newfstatat",
        "fstat",
        "statx",
        "flock",
        "renameat",
        "renameat2",
        "ftruncate",
        "fallocate",
        "fdatasync",
        "fsync",
        "getdents64",
        "unlinkat",

        "clock_gettime",
        "clock_getres",
        "clock_nanosleep",
        "nanosleep",
        "gettimeofday",
        "getrandom",
        "getuid",
        "geteuid",
        "getgid",
        "getegid",
        "getrlimit",
        "prlimit64",
        "uname",
        "sysinfo",
        "exit",
        "exit_group",
        "tgkill",
};

static int allow_sockets(scmp_filter_ctx filter)
{
        static const uint64_t families[] = {AF_UNIX, AF_INET, AF_INET6, AF_VSOCK};
        int r = 0;

        for (size_t i = 0; i < sizeof(families) / sizeof(*families) && r == 0; i++)
                r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1, SCMP_A0(SCMP_CMP_EQ, families[i]));
        /* For the host's own addresses. */
        if (r == 0)
                r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 2, SCMP_A0(SCMP_CMP_EQ, AF_NETLINK),
                        SCMP_A2(SCMP_CMP_EQ, NETLINK_ROUTE));
        if (r == 0)
                r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socketpair), 1, SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
        return r;
}

/* Threads, but no processes and no namespaces; memory, but none that could become code. glibc falls back from clone3().
 */
static int allow_threads_and_memory(scmp_filter_ctx filter)
{
        int r = seccomp_rule_add(
                filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1, SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));

        if (r == 0)
                r = seccomp_rule_add(
                        filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
        if (r == 0)
                r = seccomp_rule_add(
                        filter, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
        return r;
}

/*
 * What only somebody who has taken the process over would call: it ends. Any other call that is not allowed fails with
 * ENOSYS, as on a kernel that does not have it, so that a newer C library finds its way.
 */
static const char *const fatal_calls[] = {
        "execve",
        "execveat",
        "fork",
        "vfork",
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
        "unshare",
        "setns",
        "mount",
        "umount2",
        "pivot_root",
        "chroot",
        "open_tree",
        "move_mount",
        "fsopen",
        "init_module",
        "finit_module",
        "delete_module",
        "kexec_load",
        "bpf",
        "perf_event_open",
        "userfaultfd",
        "io_uring_setup",
        "keyctl",
        "add_key",
        "request_key",
        "personality",
        "setuid",
        "setgid",
        "setreuid",
        "setregid",
        "setresuid",
        "setresgid",
        "setgroups",
        "capset",
        "kill",
        "tkill",
        "pidfd_getfd",
        "memfd_create",
        "chmod",
        "fchmod",
        "fchmodat",
        "chown",
        "fchown",
        "fchownat",
        "lchown",
        "link",
        "linkat",
        "symlink",
        "symlinkat",
        "mknod",
        "mknodat",
};

static int add_calls(scmp_filter_ctx filter, uint32_t action, const char *const *names, size_t n)
{
        int r = 0;

        for (size_t i = 0; i < n && r == 0; i++) {
                int call = seccomp_syscall_resolve_name(names[i]);

                /* Some exist on other machines only. */
                if (call != __NR_SCMP_ERROR && call >= 0)
                        r = seccomp_rule_add(filter, action, call, 0);
        }
        return r;
}

static int fill_filter(scmp_filter_ctx filter)
{
        int r = allow_sockets(filter);

        if (r == 0)
                r = allow_threads_and_memory(filter);
        if (r == 0)
                r = add_calls(filter, SCMP_ACT_ALLOW, allowed_calls, sizeof(allowed_calls) / sizeof(*allowed_calls));
        if (r == 0)
                r = add_calls(filter, SCMP_ACT_KILL_PROCESS, fatal_calls, sizeof(fatal_calls) / sizeof(*fatal_calls));
        return r;
}

static int restrict_calls(void)
{
        scmp_filter_ctx filter;
        int r;

        filter = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
        if (!filter)
                return log_oom();
        r = fill_filter(filter);
        if (r == 0)
                r = seccomp_load(filter);
        seccomp_release(filter);
        return r < 0 ? log_errno(r, "cannot enter seccomp") : 0;
}

void sandbox_forbid_dumps(void)
{
        /* The leak checker looks at its own process as a tracer would. */
#ifndef __SANITIZE_ADDRESS__
        (void)prctl(PR_SET_DUMPABLE, 0);
#endif
}

int sandbox_enter(const char *audit_dir)
{
        int r;

#ifdef __SANITIZE_ADDRESS__
        log_warning(
                "built with sanitizers, which look into /proc and need more system calls: the broker's process is not confined");
        return 0;
#endif
        sandbox_forbid_dumps();
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return log_errno(-errno, "cannot give up new privileges");
        r = restrict_files(audit_dir);
        return r < 0 ? r : restrict_calls();
}
