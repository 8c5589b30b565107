/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/init.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/module.h>
#include <linux/reboot.h>

#include "guest/filesystems.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/io.h"
#include "proto/base/log.h"

#define MODULES_FILE       "/etc/wbagent/modules" /* one path a line, in the order to load; # begins a comment */
#define TERM_GRACE_NS      (2 * NSEC_PER_SEC)     /* between SIGTERM and SIGKILL to what still runs */
/* ACPI 6.5, 5.2.6: the header of every table. The id is Firecracker's (src/acpi-tables). */
#define ACPI_OEM_ID_OFFSET 10
#define ACPI_OEM_ID_BYTES  6
#define FIRECRACKER_OEM_ID "FIRECK"

#define DEFAULT_HOSTNAME "guest"
#define SYSTEMD_RUNS     "/run/systemd/system" /* sd_booted(3) */
#define SIGRTMIN_KERNEL  34                    /* glibc's SIGRTMIN: systemd(1), SIGRTMIN+4 power-off, +5 reboot */

static const struct {
        const char *source, *target, *type, *options;
        unsigned long flags;
        mode_t mode;
} mounts[] = {
        {"proc", "/proc", "proc", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC, 0555},
        {"sysfs", "/sys", "sysfs", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC, 0555},
        {"devtmpfs", "/dev", "devtmpfs", "mode=0755", MS_NOSUID, 0755},
        {"devpts", "/dev/pts", "devpts", "mode=0620,gid=5,ptmxmode=0666", MS_NOSUID | MS_NOEXEC, 0755},
        {"tmpfs", "/dev/shm", "tmpfs", "mode=1777", MS_NOSUID | MS_NODEV, 01777},
        {"tmpfs", "/run", "tmpfs", "mode=0755", MS_NOSUID | MS_NODEV, 0755},
        {"tmpfs", "/tmp", "tmpfs", "mode=1777", MS_NOSUID | MS_NODEV, 01777},
        {"cgroup2", "/sys/fs/cgroup", "cgroup2", "nsdelegate", MS_NOSUID | MS_NODEV | MS_NOEXEC, 0755},
};

/* What devtmpfs leaves to user space. */
static const struct {
        const char *at, *to;
} links[] = {
        {"/dev/fd", "/proc/self/fd"},
        {"/dev/stdin", "/proc/self/fd/0"},
        {"/dev/stdout", "/proc/self/fd/1"},
        {"/dev/stderr", "/proc/self/fd/2"},
};

/* A folder on another device than its parent's is a mount; /dev and /run of an initramfs may well be mounted by whoever
 * ran before us. */
static int is_mounted(const char *path)
{
        char parent[64];
        struct stat at, above;

        (void)snprintf(parent, sizeof(parent), "%s/..", path);
        return stat(path, &at) == 0 && stat(parent, &above) == 0 && at.st_dev != above.st_dev;
}

static void remember(const char *path, struct init_memory *memory)
{
        if (memory->n < sizeof(memory->paths) / sizeof(memory->paths[0]))
                memory->paths[memory->n++] = path;
}

static void mount_all(bool own_kernel, struct init_memory *memory)
{
        for (size_t i = 0; i < sizeof(mounts) / sizeof(mounts[0]); i++) {
                (void)mkdir(mounts[i].target, mounts[i].mode);
                if (is_mounted(mounts[i].target) || (!own_kernel && strcmp(mounts[i].type, "tmpfs") == 0))
                        continue;
                if (mount(mounts[i].source, mounts[i].target, mounts[i].type, mounts[i].flags, mounts[i].options) < 0)
                        (void)log_write_errno(LOG_LEVEL_WARNING, -errno, "cannot mount %s", mounts[i].target);
                else if (strcmp(mounts[i].type, "tmpfs") == 0)
                        remember(mounts[i].target, memory);
        }
        for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
                if (symlink(links[i].to, links[i].at) < 0 && errno != EEXIST)
                        (void)log_write_errno(LOG_LEVEL_WARNING, -errno, "cannot link %s", links[i].at);
}

/* An initramfs without /dev/console starts PID 1 without descriptors; self_normalise() has put /dev/null, or nothing,
 * there. */
static void open_console(void)
{
        struct stat st;
        _cleanup_close_ int fd = -1;

        if (fstat(STDERR_FILENO, &st) == 0 && !(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3)))
                return;
        fd = open("/dev/console", O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (fd < 0)
                return;
        for (int i = 0; i <= STDERR_FILENO; i++)
                (void)dup2(fd, i);
        if (fd <= STDERR_FILENO)
                (void)steal_fd(&fd);
}

/* ---- modules */

static int ends_with(const char *text, const char *end)
{
        size_t n = strlen(text), m = strlen(end);

        return n >= m && strcmp(text + n - m, end) == 0;
}

static void load_module(const char *path)
{
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        int flags = ends_with(path, ".ko") ? 0 : MODULE_INIT_COMPRESSED_FILE;
        bool has_no_device;

        if (fd >= 0 && (syscall(SYS_finit_module, fd, "", flags) == 0 || errno == EEXIST))
                return;
        /* An image brings drivers for what some VMMs have and others have not: ptp_kvm under software emulation. */
        has_no_device = errno == ENODEV || errno == EOPNOTSUPP;
        (void)log_write_errno(
                has_no_device ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARNING, -errno, "cannot load module %s", path);
}

/* So that an image needs no shell and no modprobe for the drivers of its own connection. */
static void load_modules(void)
{
        _cleanup_free_ char *text = NULL;
        char *rest = NULL;

        if (io_read_file(MODULES_FILE, 64 * 1024, &text, NULL) < 0)
                return;
        for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
                if (*line == '/')
                        load_module(line);
}

static void raise_loopback(void)
{
        _cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct ifreq request = {.ifr_name = "lo"};

        if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &request) < 0)
                return;
        if (request.ifr_flags & IFF_UP)
                return;
        request.ifr_flags |= IFF_UP;
        if (ioctl(fd, SIOCSIFFLAGS, &request) < 0)
                (void)log_write_errno(LOG_LEVEL_WARNING, -errno, "cannot raise the loopback interface");
}

/* ---- memory (Documentation/admin-guide/mm/memory-hotplug.rst) */

#define MEMORY_BLOCKS "/sys/devices/system/memory"

/* Many a kernel leaves what is plugged in, before the boot or after it, unused until somebody says so. */
static void use_memory(void)
{
        DIR *dir = opendir(MEMORY_BLOCKS);
        struct dirent *e;

        if (!dir)
                return; /* a kernel that cannot plug */
        (void)io_write_file(MEMORY_BLOCKS "/auto_online_blocks", "online");
        while ((e = readdir(dir))) {
                char path[sizeof(MEMORY_BLOCKS) + sizeof(e->d_name) + sizeof("/state")];
                _cleanup_free_ char *state = NULL;

                if (strncmp(e->d_name, "memory", 6) != 0)
                        continue;
                (void)snprintf(path, sizeof(path), MEMORY_BLOCKS "/%s/state", e->d_name);
                if (io_read_file(path, 64, &state, NULL) == 0 && strcmp(state, "offline\n") == 0)
                        (void)io_write_file(path, "online");
        }
        (void)closedir(dir);
}

/* Until an activation gives a name: the image's own, or one that shows that there is none. */
static void set_hostname(void)
{
        _cleanup_free_ char *text = NULL;
        const char *name = DEFAULT_HOSTNAME;

        if (io_read_file("/etc/hostname", 4096, &text, NULL) == 0) {
                text[strcspn(text, " \t\r\n")] = '\0';
                if (*text)
                        name = text;
        }
        if (sethostname(name, strlen(name)) < 0)
                (void)log_write_errno(LOG_LEVEL_WARNING, -errno, "cannot set the host's name");
}

void init_prepare(bool own_kernel, struct init_memory *ret)
{
        *ret = (struct init_memory){0};
        mount_all(own_kernel, ret);
        raise_loopback();
        (void)setsid();
        if (!own_kernel)
                return;
        open_console();
        set_hostname();
        /* Ctrl-Alt-Del, which a VMM's orderly stop may be, is SIGINT to PID 1 instead of an instant reset. */
        (void)reboot(LINUX_REBOOT_CMD_CAD_OFF);
        load_modules();
        use_memory();
}

/* ---- the end */

static void wait_for_all(uint64_t deadline_ns)
{
        while (clock_monotonic_ns() < deadline_ns) {
                pid_t pid = waitpid(-1, NULL, WNOHANG);

                if (pid < 0 && errno == ECHILD)
                        return;
                if (pid == 0)
                        (void)nanosleep(&(struct timespec){.tv_nsec = 10 * (long)NSEC_PER_MSEC}, NULL);
        }
}

static void end_all_processes(void)
{
        (void)kill(-1, SIGTERM);
        (void)kill(-1, SIGCONT);
        wait_for_all(clock_monotonic_ns() + TERM_GRACE_NS);
        (void)kill(-1, SIGKILL);
        wait_for_all(clock_monotonic_ns() + TERM_GRACE_NS);
}

/*
 * A VMM that emulates ACPI's S5 or PSCI ends at a power-off. Firecracker on x86 has neither, though since 1.8 it has
 * ACPI tables: the kernel would halt the processor for ever, and no call comes back to try another. There a reboot,
 * which it takes for the end, is the power-off.
 */
static bool power_off_would_hang(void)
{
        uint8_t fadt[ACPI_OEM_ID_OFFSET + ACPI_OEM_ID_BYTES];
        _cleanup_close_ int fd = open("/sys/firmware/acpi/tables/FACP", O_RDONLY | O_CLOEXEC);

        if (access("/sys/firmware/devicetree/base/psci", F_OK) == 0)
                return false;
        if (fd < 0 || io_read_full(fd, fadt, sizeof(fadt)) < 0)
                return true;
        return memcmp(fadt + ACPI_OEM_ID_OFFSET, FIRECRACKER_OEM_ID, ACPI_OEM_ID_BYTES) == 0;
}

/* Nobody writes any more. What is read-only has nothing left in its journal; what cannot be made so has been written at
 * least. */
static void close_filesystems(void)
{
        _cleanup_free_ struct filesystem *list = NULL;

        sync();
        for (size_t i = filesystems_list(&list); i-- > 0;)
                (void)mount(NULL, list[i].path, NULL, MS_REMOUNT | MS_RDONLY, NULL);
}

void init_finish(enum init_end end)
{
        end_all_processes();
        close_filesystems();
        if (end == INIT_POWER_OFF && !power_off_would_hang())
                (void)reboot(LINUX_REBOOT_CMD_POWER_OFF);
        (void)reboot(LINUX_REBOOT_CMD_RESTART);
        (void)log_errno(-errno, "the kernel does not end");
}

int init_ask(enum init_end end)
{
        static const char *const programs[] = {[INIT_POWER_OFF] = "/sbin/poweroff", [INIT_REBOOT] = "/sbin/reboot"};
        pid_t pid;

        if (access(SYSTEMD_RUNS, F_OK) == 0)
                return kill(1, SIGRTMIN_KERNEL + (end == INIT_REBOOT ? 5 : 4)) < 0 ? -errno : 0;
        if (access(programs[end], X_OK) < 0)
                return -errno;
        pid = fork();
        if (pid == 0) {
                char *argv[] = {(char *)(uintptr_t)programs[end], NULL}, *env[] = {NULL};

                (void)execve(programs[end], argv, env);
                _exit(127);
        }
        return pid < 0 ? -errno : 0;
}
