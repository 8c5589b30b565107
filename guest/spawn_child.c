/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between fork and execve(2). System calls only: no allocation, no locale, no log. Order matters throughout: what needs
 * privileges before they are dropped, what a limit would hinder before the limit, the working directory as the user who
 * is to work there.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest/secret_mount.h"
#include "guest/self.h"
#include "guest/spawn.h"

#define STDIO_FDS 3
#define FDS_MAX   1024 /* what is closed where there is no close_range(2) (Linux before 5.11) */

struct child {
        const struct spawn *spec;
        int status_fd;
};

static _Noreturn void fail_at(const struct child *c, enum spawn_stage stage, int index)
{
        struct spawn_failure failure = {.stage = (int)stage, .error = errno, .index = index};
        ssize_t put = write(c->status_fd, &failure, sizeof(failure));

        _exit(put == (ssize_t)sizeof(failure) ? 127 : 126);
}

static _Noreturn void fail(const struct child *c, enum spawn_stage stage)
{
        fail_at(c, stage, 0);
}

static void reset_signals(const struct child *c)
{
        struct sigaction by_default;

        memset(&by_default, 0, sizeof(by_default));
        by_default.sa_handler = SIG_DFL;
        if (c->spec->signals_cleared) {
                for (size_t i = 0; i < SELF_IGNORED_N; i++)
                        (void)syscall(SYS_rt_sigaction, self_ignored[i], &by_default, NULL, 8);
                return;
        }
        for (int i = 1; i <= 64; i++)
                (void)syscall(SYS_rt_sigaction, i, &by_default, NULL, 8); /* also the two that libc keeps to itself */
}

/* A copy of fd above all that will be given away; close-on-exec. */
static int move_up(const struct child *c, int fd, int least)
{
        int moved = fcntl(fd, F_DUPFD_CLOEXEC, least);

        if (moved < 0)
                fail(c, SPAWN_INTERNAL);
        return moved;
}

static void close_on_exec_from(int first)
{
        if (syscall(SYS_close_range, (unsigned)first, ~0u, CLOSE_RANGE_CLOEXEC) == 0)
                return;
        for (int fd = first; fd < FDS_MAX; fd++)
                (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/*
 * stdio becomes 0, 1, 2 and fds become 3, 4, ...; all others go with execve(2). A source may stand where a target goes,
 * so all are moved out of the way first.
 */
static void place_descriptors(struct child *c)
{
        const struct spawn *s = c->spec;
        int n = STDIO_FDS + (int)s->fds_n, moved[STDIO_FDS + SPAWN_FDS_MAX];

        if (s->fds_n > SPAWN_FDS_MAX) {
                errno = E2BIG;
                fail(c, SPAWN_INTERNAL);
        }
        c->status_fd = move_up(c, c->status_fd, n);
        for (int i = 0; i < n; i++)
                moved[i] = move_up(c, i < STDIO_FDS ? s->stdio[i] : s->fds[i - STDIO_FDS], n);
        for (int i = 0; i < n; i++)
                if (dup2(moved[i], i) < 0)
                        fail(c, SPAWN_INTERNAL);
        close_on_exec_from(n);
}

static void join_cgroup(const struct child *c)
{
        int fd;

        if (c->spec->cgroup_fd < 0)
                return;
        fd = openat(c->spec->cgroup_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, "0", 1) < 0)
                fail(c, SPAWN_CGROUP);
        (void)close(fd);
}

/* What the agent has for itself, and its children must not. */
static void reset_priority(const struct child *c)
{
        const struct sched_param none = {0};
        int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

        if (fd >= 0) {
                ssize_t put = write(fd, "0", 1);

                (void)put; /* nothing that depends on it */
                (void)close(fd);
        }
        (void)syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &none);
        if (setpriority(PRIO_PROCESS, 0, c->spec->nice) < 0 && c->spec->nice_asked)
                fail(c, SPAWN_NICE);
}

static void mount_secrets(const struct child *c)
{
        int r = c->spec->secrets_fd < 0 ? 0 : secret_mount_attach(c->spec->secrets_fd);

        if (r < 0) {
                errno = -r;
                fail(c, SPAWN_FILES);
        }
}

static void set_rlimits(const struct child *c)
{
        for (size_t i = 0; i < c->spec->rlimits_n; i++)
                if (setrlimit((__rlimit_resource_t)c->spec->rlimits[i].resource, &c->spec->rlimits[i].value) < 0)
                        fail_at(c, SPAWN_RLIMIT, c->spec->rlimits[i].resource);
}

static int set_caps(uint64_t permitted, uint64_t inheritable)
{
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct data[2];

        for (int i = 0; i < 2; i++) {
                data[i].permitted = data[i].effective = (uint32_t)(permitted >> 32 * i);
                data[i].inheritable = (uint32_t)(inheritable >> 32 * i);
        }
        return (int)syscall(SYS_capset, &header, data);
}

static void bound_caps(const struct child *c)
{
        if (!c->spec->caps_set)
                return;
        for (int cap = 0; prctl(PR_CAPBSET_READ, cap) >= 0; cap++)
                if (!(c->spec->caps >> cap & 1) && prctl(PR_CAPBSET_DROP, cap) < 0)
                        fail(c, SPAWN_CAPS);
        if (c->spec->who->uid != 0 && c->spec->caps && prctl(PR_SET_KEEPCAPS, 1) < 0)
                fail(c, SPAWN_CAPS);
}

/* Root holds by being root, within the bounding set; another user holds what it was given, by the ambient set. */
static void hold_caps(const struct child *c)
{
        uint64_t caps = c->spec->caps;

        if (!c->spec->caps_set)
                return;
        if (set_caps(caps, c->spec->who->uid == 0 ? 0 : caps) < 0)
                fail(c, SPAWN_CAPS);
        if (c->spec->who->uid == 0)
                return;
        for (int cap = 0; cap < 64; cap++)
                if (caps >> cap & 1 && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) < 0)
                        fail(c, SPAWN_CAPS);
}

/*
 * While the agent's privileges are there, which setting a filter takes; or else, where nothing can be gained any more,
 * as the last thing.
 */
static void filter_calls(const struct child *c)
{
        struct sock_fprog program = {
                .len = (unsigned short)c->spec->filter_n,
                .filter = (struct sock_filter *)(uintptr_t)c->spec->filter,
        };

        if (c->spec->filter_n == 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0)
                return;
        if (c->spec->filter_asked || (errno != EACCES && errno != EINVAL)) /* EINVAL: the kernel has none */
                fail(c, SPAWN_SECCOMP);
}

/* By system call: libc's wrappers would look for threads to tell. */
static void become_user(const struct child *c)
{
        const struct identity *who = c->spec->who;

        (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        bound_caps(c);
        if (!c->spec->no_new_privs)
                filter_calls(c);
        if (syscall(SYS_setgroups, who->groups_n, who->groups) < 0 ||
                syscall(SYS_setresgid, who->gid, who->gid, who->gid) < 0 ||
                syscall(SYS_setresuid, who->uid, who->uid, who->uid) < 0)
                fail(c, SPAWN_USER);
        hold_caps(c);
        if (c->spec->no_new_privs && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                fail(c, SPAWN_CAPS);
}

static void enter_directory(const struct child *c)
{
        if (c->spec->cwd) {
                if (chdir(c->spec->cwd) < 0)
                        fail(c, SPAWN_CWD);
        } else if (chdir(c->spec->who->home) < 0 && chdir("/") < 0) {
                fail(c, SPAWN_CWD);
        }
}

/*
 * The search of execvp(3), but for its last resort: a file that is no program is not handed to a shell. Returns with
 * errno when there is nothing to execute; what is found and may not be executed is told rather than what was not found.
 */
static void execute_searched(const struct spawn *s)
{
        size_t name_n = strlen(s->argv[0]);
        int seen = ENOENT;
        const char *next;

        for (const char *p = s->search; p; p = next) {
                const char *stop = strchrnul(p, ':');
                size_t n = (size_t)(stop - p);
                char path[PATH_MAX];

                next = *stop ? stop + 1 : NULL;
                if (n + 1 + name_n + 1 > sizeof(path))
                        continue;
                memcpy(path, p, n);
                path[n] = '/';
                memcpy(path + n + (n > 0), s->argv[0], name_n + 1);
                (void)execve(path, s->argv, s->env);
                if (errno == EACCES)
                        seen = EACCES;
                else if (errno != ENOENT && errno != ENOTDIR && errno != ENODEV && errno != ESTALE &&
                         errno != ETIMEDOUT)
                        return;
        }
        errno = seen;
}

static _Noreturn void execute(const struct child *c)
{
        const struct spawn *s = c->spec;

        if (!s->argv[0][0]) {
                errno = ENOENT;
        } else if (strchr(s->argv[0], '/')) {
                int error;

                (void)execve(s->argv[0], s->argv, s->env);
                error = errno;
                if (error == ENOENT && access(s->argv[0], F_OK) == 0)
                        fail(c, SPAWN_INTERPRETER);
                errno = error;
        } else {
                execute_searched(s);
        }
        fail(c, SPAWN_EXEC);
}

_Noreturn void spawn_child(const struct spawn *spec, int status_fd)
{
        struct child c = {.spec = spec, .status_fd = status_fd};
        sigset_t none;

        reset_signals(&c);
        if (setsid() < 0)
                fail(&c, SPAWN_INTERNAL);
        join_cgroup(&c);
        mount_secrets(&c);
        place_descriptors(&c);
        if (spec->terminal && ioctl(0, TIOCSCTTY, 0) < 0)
                fail(&c, SPAWN_INTERNAL);
        reset_priority(&c);
        (void)umask(spec->umask);
        set_rlimits(&c);
        become_user(&c);
        enter_directory(&c);
        (void)sigemptyset(&none);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
        if (spec->no_new_privs)
                filter_calls(&c);
        execute(&c);
}
