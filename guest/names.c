/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/names.h"

#include <assert.h>
#include <linux/capability.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>

static const char *const capabilities[] = {
        [CAP_CHOWN] = "chown",
        [CAP_DAC_OVERRIDE] = "dac_override",
        [CAP_DAC_READ_SEARCH] = "dac_read_search",
        [CAP_FOWNER] = "fowner",
        [CAP_FSETID] = "fsetid",
        [CAP_KILL] = "kill",
        [CAP_SETGID] = "setgid",
        [CAP_SETUID] = "setuid",
        [CAP_SETPCAP] = "setpcap",
        [CAP_LINUX_IMMUTABLE] = "linux_immutable",
        [CAP_NET_BIND_SERVICE] = "net_bind_service",
        [CAP_NET_BROADCAST] = "net_broadcast",
        [CAP_NET_ADMIN] = "net_admin",
        [CAP_NET_RAW] = "net_raw",
        [CAP_IPC_LOCK] = "ipc_lock",
        [CAP_IPC_OWNER] = "ipc_owner",
        [CAP_SYS_MODULE] = "sys_module",
        [CAP_SYS_RAWIO] = "sys_rawio",
        [CAP_SYS_CHROOT] = "sys_chroot",
        [CAP_SYS_PTRACE] = "sys_ptrace",
        [CAP_SYS_PACCT] = "sys_pacct",
        [CAP_SYS_ADMIN] = "sys_admin",
        [CAP_SYS_BOOT] = "sys_boot",
        [CAP_SYS_NICE] = "sys_nice",
        [CAP_SYS_RESOURCE] = "sys_resource",
        [CAP_SYS_TIME] = "sys_time",
        [CAP_SYS_TTY_CONFIG] = "sys_tty_config",
        [CAP_MKNOD] = "mknod",
        [CAP_LEASE] = "lease",
        [CAP_AUDIT_WRITE] = "audit_write",
        [CAP_AUDIT_CONTROL] = "audit_control",
        [CAP_SETFCAP] = "setfcap",
        [CAP_MAC_OVERRIDE] = "mac_override",
        [CAP_MAC_ADMIN] = "mac_admin",
        [CAP_SYSLOG] = "syslog",
        [CAP_WAKE_ALARM] = "wake_alarm",
        [CAP_BLOCK_SUSPEND] = "block_suspend",
        [CAP_AUDIT_READ] = "audit_read",
        [CAP_PERFMON] = "perfmon",
        [CAP_BPF] = "bpf",
        [CAP_CHECKPOINT_RESTORE] = "checkpoint_restore",
};
static_assert(sizeof(capabilities) / sizeof(*capabilities) == CAP_CHECKPOINT_RESTORE + 1, "a name for each capability");

static const char *const rlimits[RLIM_NLIMITS] = {
        [RLIMIT_AS] = "as",
        [RLIMIT_CORE] = "core",
        [RLIMIT_CPU] = "cpu",
        [RLIMIT_DATA] = "data",
        [RLIMIT_FSIZE] = "fsize",
        [RLIMIT_LOCKS] = "locks",
        [RLIMIT_MEMLOCK] = "memlock",
        [RLIMIT_MSGQUEUE] = "msgqueue",
        [RLIMIT_NICE] = "nice",
        [RLIMIT_NOFILE] = "nofile",
        [RLIMIT_NPROC] = "nproc",
        [RLIMIT_RSS] = "rss",
        [RLIMIT_RTPRIO] = "rtprio",
        [RLIMIT_RTTIME] = "rttime",
        [RLIMIT_SIGPENDING] = "sigpending",
        [RLIMIT_STACK] = "stack",
};

static int find(const char *const *names, size_t n, const char *name)
{
        for (size_t i = 0; i < n; i++)
                if (names[i] && strcmp(names[i], name) == 0)
                        return (int)i;
        return -1;
}

int capability_number(const char *name)
{
        return find(capabilities, sizeof(capabilities) / sizeof(*capabilities), name);
}

int rlimit_number(const char *name)
{
        return find(rlimits, RLIM_NLIMITS, name);
}

const char *rlimit_name(int resource)
{
        return resource >= 0 && resource < (int)RLIM_NLIMITS && rlimits[resource] ? rlimits[resource] : "?";
}
