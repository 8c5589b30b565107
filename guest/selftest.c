/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/selftest.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "guest/clock.h"
#include "guest/network.h"
#include "guest/resume.h"
#include "guest/vmclock.h"
#include "proto/base/cleanup.h"
#include "proto/base/io.h"

enum need {
        NEED_REQUIRED,
        NEED_RECOMMENDED, /* something of what is promised is not there */
        NEED_OPTIONAL,    /* there is another way */
};
static const char *const need_names[] = {
        [NEED_REQUIRED] = "required",
        [NEED_RECOMMENDED] = "recommended",
        [NEED_OPTIONAL] = "optional",
};

#define DETAIL_BYTES 160

/* ---- what is looked at; each says what it found, printable */

static void say(char detail[DETAIL_BYTES], const char *text)
{
        (void)snprintf(detail, DETAIL_BYTES, "%s", text);
        for (char *p = detail; *p; p++)
                if ((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f || *p == '"' || *p == '\\')
                        *p = '?';
}

static bool found(char detail[DETAIL_BYTES], bool is_there, const char *what)
{
        say(detail, what);
        return is_there;
}

/* Is the word a line's, or the last of one? */
static bool file_has_word(const char *path, const char *word)
{
        _cleanup_free_ char *text = NULL;
        size_t n = strlen(word);

        if (io_read_file(path, 1024u * 1024u, &text, NULL) < 0)
                return false;
        for (const char *p = text; (p = strstr(p, word)); p += n)
                if ((p == text || strchr(" \t\n", p[-1])) && (!p[n] || strchr(" \t\n", p[n])))
                        return true;
        return false;
}

/* The kernel knows the call, whatever it says to these arguments. */
static bool knows(long r)
{
        if (r >= 0)
                (void)close((int)r);
        return r >= 0 || errno != ENOSYS;
}

static bool check_kernel(char detail[DETAIL_BYTES])
{
        struct utsname u;
        char *rest;
        long major, minor;

        if (uname(&u) < 0)
                return false;
        say(detail, u.release);
        major = strtol(u.release, &rest, 10);
        minor = *rest == '.' ? strtol(rest + 1, NULL, 10) : 0;
        return major > 5 || (major == 5 && minor >= 10);
}

static bool check_proc(char detail[DETAIL_BYTES])
{
        return found(detail, access("/proc/self/stat", R_OK) == 0, "/proc");
}

static bool check_dev(char detail[DETAIL_BYTES])
{
        return found(detail, access("/dev/null", R_OK | W_OK) == 0 && access("/dev/urandom", R_OK | W_OK) == 0,
                "/dev/null, /dev/urandom");
}

static bool check_pty(char detail[DETAIL_BYTES])
{
        return found(
                detail, access("/dev/ptmx", R_OK | W_OK) == 0 && access("/dev/pts", X_OK) == 0, "/dev/ptmx, /dev/pts");
}

/* Without a socket: the machine may be one where none of vsock is to be opened. */
static bool check_vsock(char detail[DETAIL_BYTES])
{
        return found(detail, access("/dev/vsock", F_OK) == 0, "/dev/vsock");
}

static bool check_capability(char detail[DETAIL_BYTES])
{
        return found(detail, geteuid() == 0 && prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN) == 1, "root, CAP_SYS_ADMIN");
}

static bool check_run(char detail[DETAIL_BYTES])
{
        return found(detail, access("/run", W_OK) == 0, "/run");
}

static bool check_tmpfs(char detail[DETAIL_BYTES])
{
        return found(detail, file_has_word("/proc/filesystems", "tmpfs"), "tmpfs");
}

static bool check_passwd(char detail[DETAIL_BYTES])
{
        _cleanup_free_ char *text = NULL;

        say(detail, "/etc/passwd");
        return io_read_file("/etc/passwd", 1024u * 1024u, &text, NULL) == 0 &&
               (strncmp(text, "root:", 5) == 0 || strstr(text, "\nroot:"));
}

static bool check_openat2(char detail[DETAIL_BYTES])
{
        struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};

        return found(detail, knows(syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof(how))), "openat2(2)");
}

static bool check_fsopen(char detail[DETAIL_BYTES])
{
        return found(detail, knows(syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC)), "fsopen(2)");
}

static bool check_memfd_secret(char detail[DETAIL_BYTES])
{
        return found(detail, knows(syscall(SYS_memfd_secret, O_CLOEXEC)), "memfd_secret(2)");
}

static bool check_seccomp(char detail[DETAIL_BYTES])
{
        return found(detail, prctl(PR_GET_SECCOMP, 0, 0, 0, 0) >= 0, "seccomp filters");
}

static bool check_cgroup(char detail[DETAIL_BYTES])
{
        return found(detail, file_has_word("/proc/filesystems", "cgroup2"), "cgroup v2");
}

/* Of the mount at its usual place, or of a version 1 that keeps it for itself. */
static bool has_controller(char detail[DETAIL_BYTES], const char *name)
{
        (void)snprintf(detail, DETAIL_BYTES, "%s controller", name);
        return file_has_word("/sys/fs/cgroup/cgroup.controllers", name);
}

static bool check_memory(char detail[DETAIL_BYTES])
{
        return has_controller(detail, "memory");
}

static bool check_memory_plug(char detail[DETAIL_BYTES])
{
        return found(detail, access("/sys/devices/system/memory/auto_online_blocks", F_OK) == 0, "memory hotplug");
}

static bool check_pids(char detail[DETAIL_BYTES])
{
        return has_controller(detail, "pids");
}

static bool check_cpu(char detail[DETAIL_BYTES])
{
        return has_controller(detail, "cpu");
}

static bool check_io(char detail[DETAIL_BYTES])
{
        return has_controller(detail, "io");
}

static bool check_ptp(char detail[DETAIL_BYTES])
{
        return found(detail, clock_has_ptp(), "ptp_kvm");
}

static bool check_vmgenid(char detail[DETAIL_BYTES])
{
        return found(detail, resume_has_vmgenid(), "the vmgenid driver");
}

static bool check_vmclock(char detail[DETAIL_BYTES])
{
        struct vmclock *v = NULL;
        bool is_there = vmclock_open(VMCLOCK_DEVICE, &v) == 0;

        vmclock_close(v);
        return found(detail, is_there, VMCLOCK_DEVICE);
}

static bool check_ca(char detail[DETAIL_BYTES])
{
        const char *path = network_image_bundle();

        say(detail, path ? path : "a bundle of certificates");
        return path != NULL;
}

static bool check_shell(char detail[DETAIL_BYTES])
{
        return found(detail, access("/bin/sh", X_OK) == 0, "/bin/sh");
}

/* ---- the table */

static const struct {
        const char *name;
        enum need need;
        bool (*check)(char detail[DETAIL_BYTES]);
        const char *consequence; /* of its lack */
} checks[] = {
        {"kernel", NEED_REQUIRED, check_kernel, "Linux before 5.10 has not been tried"},
        {"proc", NEED_REQUIRED, check_proc, "nothing can be known of processes; as PID 1 the agent mounts it"},
        {"dev", NEED_REQUIRED, check_dev,
                "commands have no stdin, the generator no seed; as PID 1 the agent mounts devtmpfs"},
        {"privileges", NEED_REQUIRED, check_capability,
                "no activation: the generator cannot be seeded, nor the clock set"},
        {"vsock", NEED_REQUIRED, check_vsock,
                "the host cannot reach the agent: load vmw_vsock_virtio_transport (over unix it does not matter)"},
        {"openat2", NEED_REQUIRED, check_openat2,
                "no copying of files: paths could not be kept from leading elsewhere"},
        {"run", NEED_REQUIRED, check_run, "no generation file, and no mounted secrets"},
        {"tmpfs", NEED_REQUIRED, check_tmpfs, "secrets cannot be mounted"},
        {"pty", NEED_RECOMMENDED, check_pty, "no exec with a terminal"},
        {"passwd", NEED_RECOMMENDED, check_passwd, "users are known by their numbers alone"},
        {"cgroup2", NEED_RECOMMENDED, check_cgroup,
                "nothing can be frozen around a snapshot or limited; a command's processes are found by searching"},
        {"memory", NEED_RECOMMENDED, check_memory,
                "exec --memory is refused; no peak memory, no reason oom, no ceiling of all commands together"},
        {"memory_plug", NEED_OPTIONAL, check_memory_plug,
                "memory that is plugged into the running machine is not used"},
        {"pids", NEED_RECOMMENDED, check_pids, "exec --pids is refused"},
        {"cpu", NEED_RECOMMENDED, check_cpu, "exec --cpu is refused"},
        {"io", NEED_OPTIONAL, check_io, "exec --io is refused"},
        {"seccomp", NEED_RECOMMENDED, check_seccomp,
                "commands of users are not filtered, nor the agent's own children"},
        {"fsopen", NEED_RECOMMENDED, check_fsopen, "exec --secret NAME:mount fails"},
        {"memfd_secret", NEED_OPTIONAL, check_memfd_secret,
                "secrets are in locked memory, which the kernel itself still maps"},
        {"vmgenid", NEED_RECOMMENDED, check_vmgenid,
                "the kernel's generator is not reseeded by a resume before the host activates"},
        {"vmclock", NEED_RECOMMENDED, check_vmclock,
                "a resume that nobody announces is found late, or without vmgenid (Linux 5.18), a vsock device that goes, or a broker not at all"},
        {"ptp_kvm", NEED_OPTIONAL, check_ptp,
                "the clock is set by exchanges over vsock: within a fraction of a millisecond, not microseconds"},
        {"certificates", NEED_RECOMMENDED, check_ca, "programs trust no TLS server, but for the broker's own CA"},
        {"shell", NEED_OPTIONAL, check_shell, "commands that want a shell do not run, nor hooks that are scripts"},
};

static void print_line(size_t i, bool ok, const char *detail)
{
        if (ok)
                printf("ok     %-13s %s\n", checks[i].name, detail);
        else
                printf("%-6s %-13s no %s: %s\n", checks[i].need == NEED_REQUIRED ? "LACKS" : "lacks", checks[i].name,
                        detail, checks[i].consequence);
}

static void print_object(size_t i, bool ok, const char *detail, bool last)
{
        printf("  {\"name\": \"%s\", \"ok\": %s, \"need\": \"%s\", \"detail\": \"%s\", \"consequence\": \"%s\"}%s\n",
                checks[i].name, ok ? "true" : "false", need_names[checks[i].need], detail, checks[i].consequence,
                last ? "" : ",");
}

int selftest_run(bool json)
{
        const size_t n = sizeof(checks) / sizeof(checks[0]);
        unsigned missing = 0, lacking = 0;

        if (json)
                printf("[\n");
        for (size_t i = 0; i < n; i++) {
                char detail[DETAIL_BYTES] = "";
                bool ok = checks[i].check(detail);

                missing += !ok && checks[i].need == NEED_REQUIRED;
                lacking += !ok;
                if (json)
                        print_object(i, ok, detail, i + 1 == n);
                else
                        print_line(i, ok, detail);
        }
        if (json)
                printf("]\n");
        else
                printf("%zu looked at, %u lacking, of these %u that the agent cannot do without\n", n, lacking,
                        missing);
        return missing ? 1 : 0;
}
