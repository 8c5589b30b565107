/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest/files_internal.h"

/* What root may do to any file, and no more of what root may do. MKNOD and SYS_ADMIN where they are asked for alone. */
static const unsigned kept[] = {CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_FSETID};

static bool wants_devices(const Wb__ToAgent *m)
{
        return m->body_case == WB__TO_AGENT__BODY_FILE_PUT && m->file_put->special;
}

static int drop_capabilities(const Wb__ToAgent *m)
{
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct now[_LINUX_CAPABILITY_U32S_3], data[_LINUX_CAPABILITY_U32S_3] = {{0}};

        if (syscall(SYS_capget, &header, now) < 0)
                return -errno;
        for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
                data[CAP_TO_INDEX(kept[i])].permitted |= CAP_TO_MASK(kept[i]);
        if (wants_devices(m))
                data[CAP_TO_INDEX(CAP_MKNOD)].permitted |= CAP_TO_MASK(CAP_MKNOD);
        if (m->body_case == WB__TO_AGENT__BODY_SYNC)
                data[CAP_TO_INDEX(CAP_SYS_ADMIN)].permitted |= CAP_TO_MASK(CAP_SYS_ADMIN);
        for (size_t i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
                data[i].permitted &= now[i].permitted;
                data[i].effective = data[i].permitted;
        }
        return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

/* Files by descriptor and name, the conversation, and glibc's allocator: no program, no socket, no other process. */
static const int allowed[] = {
        SCMP_SYS(read),
        SCMP_SYS(write),
        SCMP_SYS(pread64),
        SCMP_SYS(pwrite64),
        SCMP_SYS(lseek),
        SCMP_SYS(openat),
        SCMP_SYS(openat2),
        SCMP_SYS(close),
        SCMP_SYS(fcntl),
        SCMP_SYS(fstat),
        SCMP_SYS(newfstatat),
        SCMP_SYS(getdents64),
        SCMP_SYS(readlinkat),
        SCMP_SYS(mkdirat),
        SCMP_SYS(mknodat),
        SCMP_SYS(symlinkat),
        SCMP_SYS(linkat),
        SCMP_SYS(unlinkat),
        SCMP_SYS(renameat),
        SCMP_SYS(renameat2),
        SCMP_SYS(fchown),
        SCMP_SYS(fchownat),
        SCMP_SYS(fchmod),
        SCMP_SYS(utimensat),
        SCMP_SYS(ftruncate),
        SCMP_SYS(fsync),
        SCMP_SYS(syncfs),
        SCMP_SYS(sync),
        SCMP_SYS(inotify_init1),
        SCMP_SYS(inotify_add_watch),
        SCMP_SYS(recvfrom),
        SCMP_SYS(sendto),
        SCMP_SYS(shutdown),
        SCMP_SYS(poll),
        SCMP_SYS(ppoll),
        SCMP_SYS(getrandom),
        SCMP_SYS(geteuid),
        SCMP_SYS(brk),
        SCMP_SYS(mmap),
        SCMP_SYS(munmap),
        SCMP_SYS(mremap),
        SCMP_SYS(madvise),
        SCMP_SYS(clock_gettime),
        SCMP_SYS(gettimeofday),
        SCMP_SYS(futex),
        SCMP_SYS(rt_sigreturn),
        SCMP_SYS(rt_sigprocmask),
        SCMP_SYS(restart_syscall),
        SCMP_SYS(exit_group),
        SCMP_SYS(getpid),
        SCMP_SYS(gettid),
        SCMP_SYS(tgkill),
};

static int filter_syscalls(void)
{
        scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
        int r = ctx ? 0 : -ENOMEM;

        for (size_t i = 0; r == 0 && i < sizeof(allowed) / sizeof(allowed[0]); i++)
                r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed[i], 0);
        if (r == 0)
                r = seccomp_rule_add(
                        ctx, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1, SCMP_A1_32(SCMP_CMP_EQ, (unsigned)FITRIM, 0));
        if (r == 0)
                r = seccomp_load(ctx);
        seccomp_release(ctx);
        return r;
}

int files_enter_sandbox(const Wb__ToAgent *m)
{
        int r = drop_capabilities(m);

        if (r == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                r = -errno;
#ifdef __SANITIZE_ADDRESS__
        return r; /* the leak checker needs more calls, at the end */
#endif
        return r < 0 ? r : filter_syscalls();
}
