/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest/files_internal.h"
#include "guest/seccomp_program.h"

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

/* Files by descriptor and name: no program, no socket, no other process. */
static const int allowed[] = {
        SYS_read,
        SYS_pread64,
        SYS_pwrite64,
        SYS_lseek,
        SYS_openat,
        SYS_openat2,
        SYS_fstat,
        SYS_newfstatat,
        SYS_getdents64,
        SYS_readlinkat,
        SYS_mkdirat,
        SYS_mknodat,
        SYS_symlinkat,
        SYS_linkat,
        SYS_unlinkat,
#ifdef SYS_renameat
        SYS_renameat,
#endif
        SYS_renameat2,
        SYS_fchown,
        SYS_fchownat,
        SYS_fchmod,
        SYS_utimensat,
        SYS_ftruncate,
        SYS_fsync,
        SYS_syncfs,
        SYS_sync,
        SYS_inotify_init1,
        SYS_inotify_add_watch,
        SYS_getrandom,
        SYS_geteuid,
};

static int filter_syscalls(void)
{
        const struct seccomp_exception trim = {SYS_ioctl, 1, (uint32_t)FITRIM};

        return seccomp_allow_only(allowed, sizeof(allowed) / sizeof(allowed[0]), &trim, SECCOMP_REFUSE(EPERM));
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
