/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "guest/cgroup_internal.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/io.h"
#include "proto/base/log.h"
#include "proto/base/parse.h"

#define AGENT_LEAF      "wbagent"
#define EXEC_PARENT     "exec"
#define FREEZE_LIMIT_NS (500 * NSEC_PER_MSEC)
#define KILL_ROUNDS     64 /* one by one: forks may go on meanwhile */

const char *const cgroup_controller_names[CONTROLLERS] = {"memory", "pids", "cpu", "io"};

/* ---- small files */

int cgroup_write_at(int dir_fd, const char *path, const char *text)
{
        _cleanup_close_ int fd = openat(dir_fd, path, O_WRONLY | O_CLOEXEC);

        if (fd < 0)
                return -errno;
        return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

int cgroup_read_at(int dir_fd, const char *path, char text[CGROUP_FILE_BYTES])
{
        _cleanup_close_ int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC);
        ssize_t n;

        if (fd < 0)
                return -errno;
        n = read(fd, text, CGROUP_FILE_BYTES - 1);
        if (n < 0)
                return -errno;
        text[n] = '\0';
        return 0;
}

struct cgroup_path cgroup_in_exec(const char *name, const char *file)
{
        struct cgroup_path p;

        (void)snprintf(p.text, sizeof(p.text), "%s/%s", name, file);
        return p;
}

int cgroup_write_exec(struct cgroup_tree *t, const char *name, const char *file, const char *text)
{
        return cgroup_write_at(t->exec_fd, cgroup_in_exec(name, file).text, text);
}

int cgroup_read_exec(struct cgroup_tree *t, const char *name, const char *file, char text[CGROUP_FILE_BYTES])
{
        return cgroup_read_at(t->exec_fd, cgroup_in_exec(name, file).text, text);
}

/* The number behind "key " at the start of a line. */
static uint64_t value_of(const char *text, const char *key)
{
        size_t key_n = strlen(key);

        for (const char *line = text; line; line = strchr(line, '\n')) {
                line += *line == '\n';
                if (strncmp(line, key, key_n) == 0 && line[key_n] == ' ')
                        return strtoull(line + key_n + 1, NULL, 10);
        }
        return 0;
}

static bool has_word(const char *text, const char *word)
{
        size_t n = strlen(word);

        for (const char *p = text; (p = strstr(p, word)); p += n)
                if ((p == text || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\n' || p[n] == '\0'))
                        return true;
        return false;
}

/* ---- the tree */

/*
 * Where cgroup2 is mounted, from a line of mountinfo (proc(5)): "ID PARENT MAJOR:MINOR ROOT MOUNTPOINT OPTIONS
 * FIELDS... - TYPE SOURCE ...". False for any other line.
 */
static bool mount_of_line(char *line, char **ret_root, char **ret_point)
{
        char *fields[5], *rest, *type = strstr(line, " - cgroup2 ");

        if (!type)
                return false;
        rest = line;
        for (int i = 0; i < 5; i++) {
                fields[i] = strsep(&rest, " ");
                if (!rest)
                        return false;
        }
        *ret_root = fields[3];
        *ret_point = fields[4];
        return true;
}

/* The directory of the cgroup that this process is in; the caller frees *ret. */
static int own_directory(char **ret)
{
        _cleanup_free_ char *mounts = NULL, *groups = NULL;
        char *line, *rest, *root = NULL, *point = NULL, *own, *dir;
        int r = io_read_file("/proc/self/mountinfo", 1024u * 1024u, &mounts, NULL);

        if (r == 0)
                r = io_read_file("/proc/self/cgroup", 65536, &groups, NULL);
        if (r < 0 || !groups)
                return r;
        for (rest = mounts; !point && (line = strsep(&rest, "\n"));)
                (void)mount_of_line(line, &root, &point);
        own = strncmp(groups, "0::", 3) == 0 ? groups : strstr(groups, "\n0::");
        if (!point || !own)
                return -EOPNOTSUPP;
        own = strchr(own, '/');
        if (!own)
                return -EOPNOTSUPP;
        own[strcspn(own, "\n")] = '\0';
        /* A mount of a subtree shows it as its root. */
        if (root[1] && strncmp(own, root, strlen(root)) == 0)
                own += strlen(root);
        if (asprintf(&dir, "%s%s", point, own) < 0)
                return -ENOMEM;
        *ret = dir;
        return 0;
}

static int make_directory(int dir_fd, const char *name)
{
        return mkdirat(dir_fd, name, 0755) < 0 && errno != EEXIST ? -errno : 0;
}

/* Hands a controller down; false where it is not there, or cannot be. */
static bool enable(int dir_fd, const char *path, const char *controller)
{
        char plus[16], text[CGROUP_FILE_BYTES];

        (void)snprintf(plus, sizeof(plus), "+%s", controller);
        (void)cgroup_write_at(dir_fd, path, plus);
        return cgroup_read_at(dir_fd, path, text) == 0 && has_word(text, controller);
}

static int set_up(struct cgroup_tree *t, int own_fd)
{
        int r = make_directory(own_fd, AGENT_LEAF);

        if (r == 0)
                r = cgroup_write_at(own_fd, AGENT_LEAF "/cgroup.procs", "0");
        if (r == 0)
                r = make_directory(own_fd, EXEC_PARENT);
        if (r < 0)
                return r;
        for (int i = 0; i < CONTROLLERS; i++)
                t->has[i] = enable(own_fd, "cgroup.subtree_control", cgroup_controller_names[i]) &&
                            enable(own_fd, EXEC_PARENT "/cgroup.subtree_control", cgroup_controller_names[i]);
        t->exec_fd = openat(own_fd, EXEC_PARENT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return t->exec_fd < 0 ? -errno : 0;
}

int cgroup_tree_new(struct cgroup_tree **ret)
{
        _cleanup_free_ char *dir = NULL;
        _cleanup_close_ int own_fd = -1;
        struct cgroup_tree *t;
        int r = own_directory(&dir);

        if (r == 0) {
                own_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (own_fd < 0)
                        r = -errno;
        }
        t = calloc(1, sizeof(*t));
        if (!t)
                return -ENOMEM;
        t->exec_fd = -1;
        if (r == 0)
                r = set_up(t, own_fd);
        if (r < 0) {
                log_write_errno(
                        LOG_LEVEL_WARNING, r, "no cgroups for execs: %s", dir ? dir : "cgroup v2 is not mounted");
                cgroup_tree_free(t);
                return r == -ENOMEM ? r : -EOPNOTSUPP;
        }
        *ret = t;
        return 0;
}

void cgroup_tree_free(struct cgroup_tree *t)
{
        if (!t)
                return;
        close_fd(t->exec_fd);
        free(t);
}

/* Frozen or not is a line of cgroup.events; the kernel gets there in its own time. */
int cgroup_tree_freeze(struct cgroup_tree *t, bool frozen)
{
        uint64_t deadline_ns = clock_monotonic_ns() + FREEZE_LIMIT_NS;
        char text[CGROUP_FILE_BYTES] = "";
        int r = cgroup_write_at(t->exec_fd, "cgroup.freeze", frozen ? "1" : "0");

        while (r == 0) {
                r = cgroup_read_at(t->exec_fd, "cgroup.events", text);
                if (r < 0 || value_of(text, "frozen") == (frozen ? 1u : 0u))
                        break;
                if (clock_monotonic_ns() > deadline_ns)
                        return -ETIMEDOUT;
                (void)nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
        }
        return r;
}

/* ---- one exec's */

/* Whatever runs out of memory first, the exec's limit, the ceiling of all or the machine, the exec goes as a whole:
 * half of a workload is no workload. The kernel takes the highest cgroup with this below the one that ran out. */
static int group_oom(struct cgroup_tree *t, const char *name)
{
        return t->has[CONTROLLER_MEMORY] ? cgroup_write_exec(t, name, "memory.oom.group", "1") : 0;
}

int cgroup_make(struct cgroup_tree *t, const char *name, const struct cgroup_limits *limits, int *ret_fd,
        const char **ret_which)
{
        static const struct cgroup_limits none;
        _cleanup_close_ int fd = -1;
        int r = 0;

        if (mkdirat(t->exec_fd, name, 0755) < 0)
                return -errno;
        r = group_oom(t, name);
        if (r == 0)
                r = cgroup_limit(t, name, cgroup_limits_asked(limits), limits, &none, ret_which);
        if (r == 0) {
                fd = openat(t->exec_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (fd < 0)
                        r = -errno;
        }
        if (r != 0) {
                (void)cgroup_remove(t, name);
                return r;
        }
        *ret_fd = steal_fd(&fd);
        return 0;
}

/* Calls act for each process of the cgroup; how many there were, or a negative errno. */
static int each_process(struct cgroup_tree *t, const char *name, void (*act)(pid_t pid, void *userdata), void *userdata)
{
        _cleanup_close_ int fd = openat(t->exec_fd, cgroup_in_exec(name, "cgroup.procs").text, O_RDONLY | O_CLOEXEC);
        _cleanup_free_ char *text = NULL;
        char *rest, *line;
        int r, n = 0;

        if (fd < 0)
                return -errno;
        r = io_read_fd(fd, 16u * 1024u * 1024u, &text, NULL);
        if (r < 0)
                return r;
        for (rest = text; (line = strsep(&rest, "\n"));) {
                uint64_t pid;

                if (parse_u64(line, INT32_MAX, &pid) < 0 || pid == 0)
                        continue;
                act((pid_t)pid, userdata);
                n++;
        }
        return n;
}

static void kill_one(pid_t pid, void *userdata)
{
        (void)userdata;
        (void)kill(pid, SIGKILL);
}

int cgroup_kill(struct cgroup_tree *t, const char *name)
{
        int r = cgroup_write_exec(t, name, "cgroup.kill", "1");

        if (r == 0)
                return 0;
        if (faccessat(t->exec_fd, cgroup_in_exec(name, "cgroup.kill").text, F_OK, 0) == 0)
                return r;
        (void)cgroup_write_exec(t, name, "cgroup.freeze", "1");
        for (int round = 0; round < KILL_ROUNDS; round++) {
                r = each_process(t, name, kill_one, NULL);
                if (r <= 0)
                        break;
                (void)cgroup_write_exec(t, name, "cgroup.freeze", "0");
        }
        return r < 0 ? r : 0;
}

struct group_signal {
        int pgid;
        int signal;
        int sent;
};

static void signal_member(pid_t pid, void *userdata)
{
        struct group_signal *g = userdata;

        if (getpgid(pid) == g->pgid && kill(pid, g->signal) == 0)
                g->sent++;
}

int cgroup_signal_group(struct cgroup_tree *t, const char *name, int pgid, int signal)
{
        struct group_signal g = {.pgid = pgid, .signal = signal};
        int r = each_process(t, name, signal_member, &g);

        if (r < 0)
                return r;
        return g.sent ? 0 : -ESRCH;
}

int cgroup_remove(struct cgroup_tree *t, const char *name)
{
        return unlinkat(t->exec_fd, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

void cgroup_usage(struct cgroup_tree *t, const char *name, struct cgroup_usage *ret)
{
        char text[CGROUP_FILE_BYTES] = "";

        *ret = (struct cgroup_usage){0};
        if (t->has[CONTROLLER_MEMORY]) {
                if (cgroup_read_exec(t, name, "memory.events", text) == 0)
                        ret->oom_kills = value_of(text, "oom_kill");
                if (cgroup_read_exec(t, name, "memory.current", text) == 0)
                        ret->memory_bytes = strtoull(text, NULL, 10);
                if (cgroup_read_exec(t, name, "memory.peak", text) == 0)
                        ret->peak_memory_bytes = strtoull(text, NULL, 10);
        }
        if (t->has[CONTROLLER_PIDS] && cgroup_read_exec(t, name, "pids.current", text) == 0)
                ret->pids = strtoull(text, NULL, 10);
        if (cgroup_read_exec(t, name, "cpu.stat", text) == 0) {
                ret->user_ns = value_of(text, "user_usec") * NSEC_PER_USEC;
                ret->system_ns = value_of(text, "system_usec") * NSEC_PER_USEC;
        }
}

int cgroup_watch(struct cgroup_tree *t, const char *name, int inotify_fd)
{
        _cleanup_close_ int fd = openat(t->exec_fd, cgroup_in_exec(name, "cgroup.events").text, O_PATH | O_CLOEXEC);
        char path[64];
        int watch;

        if (fd < 0)
                return -errno;
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        watch = inotify_add_watch(inotify_fd, path, IN_MODIFY);
        return watch < 0 ? -errno : watch;
}
