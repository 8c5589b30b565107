/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/exec_world.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/keeper.h"
#include "proto/base/cleanup.h"
#include "tests/fuzz/fuzz.h"

#define CGROUPS 256 /* of one run; ids are not used again */

struct command world_commands[WORLD_COMMANDS];

static struct {
        bool with_cgroups;
        pid_t last_pid;
        struct {
                char name[EXEC_ID_BYTES];
                bool there;
        } cgroups[CGROUPS];
        size_t cgroups_n;
        char made[EXEC_ID_BYTES]; /* the last one: what is spawned next is born there */
} world;

void world_start(bool with_cgroups)
{
        memset(&world, 0, sizeof(world));
        world.with_cgroups = with_cgroups;
        world.last_pid = 1000;
}

struct command *world_command_of(pid_t pid)
{
        for (size_t i = 0; i < WORLD_COMMANDS; i++)
                if (world_commands[i].there && world_commands[i].pid == pid)
                        return &world_commands[i];
        return NULL;
}

uint8_t world_byte(int stream, uint64_t offset)
{
        return (uint8_t)(offset * 31 + (offset >> 8) + (unsigned)stream * 101);
}

/* ---- what the agent calls */

static int keep(int fd)
{
        int kept = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);

        MUST(fd < 0 || kept >= 0);
        return kept;
}

int spawn_status_pipe(int *ret_read, int *ret_write)
{
        int ends[2];

        if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
                return -errno;
        *ret_read = ends[0];
        *ret_write = ends[1];
        return 0;
}

int spawn(const struct spawn *spec, int status_fd, pid_t *ret_pid)
{
        struct command *c = NULL;

        MUST(spec->argv[0] && spec->env && spec->search && spec->who);
        for (size_t i = 0; i < WORLD_COMMANDS && !c; i++)
                if (!world_commands[i].there)
                        c = &world_commands[i];
        if (!c)
                return -EAGAIN;
        *c = (struct command){.there = true, .pid = ++world.last_pid, .terminal = spec->terminal};
        c->status_fd = keep(status_fd);
        c->report_fd = keep(spec->report_fd);
        for (int i = 0; i < 3; i++) {
                c->stdio[i] = keep(spec->stdio[i]);
                (void)fcntl(c->stdio[i], F_SETFL, O_NONBLOCK); /* nothing here may wait */
        }
        *ret_pid = c->pid;
        MUST((spec->cgroup_fd >= 0) == world.with_cgroups && (spec->report_fd >= 0) != world.with_cgroups);
        if (world.with_cgroups) {
                memcpy(c->cgroup, world.made, sizeof(c->cgroup));
        } else {
                *ret_pid = c->keeper = ++world.last_pid;
        }
        return 0;
}

/* Of the C library: nothing but the fake is ever signalled, and where the agent itself waits for the leader, no pid
 * that may be another's by now. */
int kill(pid_t pid, int signal)
{
        MUST(pid > 1000 || pid < -1000);
        for (size_t i = 0; i < WORLD_COMMANDS; i++) {
                struct command *c = &world_commands[i];

                if (!c->there)
                        continue;
                if (pid == c->keeper && c->keeper) {
                        c->killed |= signal == KEEPER_KILL;
                        return 0;
                }
                if (pid == c->pid || pid == -c->pid) {
                        MUST(c->keeper || !c->leader_ended);
                        c->killed |= signal == SIGKILL;
                        return 0;
                }
        }
        errno = ESRCH;
        return -1;
}

int cgroup_tree_new(struct cgroup_tree **ret)
{
        static int tree;

        if (!world.with_cgroups)
                return -EOPNOTSUPP;
        *ret = (struct cgroup_tree *)(void *)&tree;
        return 0;
}

void cgroup_tree_free(struct cgroup_tree *t)
{
        (void)t;
}

const char *cgroup_missing(const struct cgroup_tree *t, const struct cgroup_limits *limits)
{
        return limits->io_bps || (!t && limits->memory_bytes) ? "io" : NULL;
}

unsigned cgroup_limits_asked(const struct cgroup_limits *limits)
{
        return limits->memory_bytes ? CGROUP_LIMIT_MEMORY : 0;
}

int cgroup_limit(struct cgroup_tree *t, const char *name, unsigned which, const struct cgroup_limits *to,
        const struct cgroup_limits *from, const char **ret_which)
{
        (void)t, (void)name, (void)which, (void)from;
        if (to->memory_bytes != 1)
                return 0;
        *ret_which = "memory";
        return CGROUP_E_REFUSED;
}

struct cgroup_limits cgroup_limits_in_force(struct cgroup_tree *t, const char *name)
{
        (void)t, (void)name;
        return (struct cgroup_limits){0};
}

int cgroup_tree_ceiling(struct cgroup_tree *t, uint64_t bytes)
{
        (void)t, (void)bytes;
        return 0;
}

int cgroup_tree_freeze(struct cgroup_tree *t, bool frozen)
{
        (void)t, (void)frozen;
        return 0;
}

int cgroup_make(struct cgroup_tree *t, const char *name, const struct cgroup_limits *limits, int *ret_fd,
        const char **ret_which)
{
        int fd;

        if (cgroup_limit(t, name, 0, limits, limits, ret_which) != 0)
                return CGROUP_E_REFUSED;
        if (world.cgroups_n == CGROUPS)
                return -ENOSPC;
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        MUST(fd >= 0);
        (void)snprintf(world.made, sizeof(world.made), "%s", name);
        memcpy(world.cgroups[world.cgroups_n].name, world.made, sizeof(world.made));
        world.cgroups[world.cgroups_n++].there = true;
        *ret_fd = fd;
        return 0;
}

static struct command *command_in(const char *name)
{
        for (size_t i = 0; i < WORLD_COMMANDS; i++)
                if (world_commands[i].there && strcmp(world_commands[i].cgroup, name) == 0)
                        return &world_commands[i];
        return NULL;
}

int cgroup_kill(struct cgroup_tree *t, const char *name)
{
        struct command *c = command_in(name);

        (void)t;
        if (c)
                c->killed = true;
        return 0;
}

int cgroup_signal_group(struct cgroup_tree *t, const char *name, int pgid, int signal)
{
        struct command *c = command_in(name);

        (void)t, (void)pgid;
        if (!c)
                return -ESRCH;
        c->killed |= signal == SIGKILL;
        return 0;
}

int cgroup_remove(struct cgroup_tree *t, const char *name)
{
        (void)t;
        if (command_in(name))
                return -EBUSY;
        for (size_t i = 0; i < world.cgroups_n; i++)
                if (world.cgroups[i].there && strcmp(world.cgroups[i].name, name) == 0) {
                        world.cgroups[i].there = false;
                        return 0;
                }
        MUST(!"a cgroup that is not there is removed");
        return -ENOENT;
}

void cgroup_usage(struct cgroup_tree *t, const char *name, struct cgroup_usage *ret)
{
        (void)t;
        *ret = (struct cgroup_usage){.oom_kills = name[1] == '3'};
}

int cgroup_watch(struct cgroup_tree *t, const char *name, int inotify_fd)
{
        (void)t, (void)name, (void)inotify_fd;
        return 1;
}

/* ---- what commands do */

/* The keeper tells the command's pid before it is executed. */
void world_executed(struct command *c)
{
        struct keeper_report report = {.pid = c->pid};

        if (c->status_fd >= 0 && c->report_fd >= 0)
                MUST(write(c->report_fd, &report, sizeof(report)) == (ssize_t)sizeof(report));
        c->status_fd = close_fd(c->status_fd);
}

void world_keeper_dies(struct command *c)
{
        if (!c->keeper)
                return;
        c->status_fd = close_fd(c->status_fd);
        c->report_fd = close_fd(c->report_fd);
        for (int i = 0; i < 3; i++)
                world_close(c, i);
}

void world_write(struct command *c, int stream, size_t n)
{
        uint8_t bytes[8192];
        ssize_t put;

        n = min_size(n, sizeof(bytes));
        if (c->status_fd >= 0 || c->stdio[stream] < 0)
                return; /* it is not the command's yet, or any more */
        for (size_t i = 0; i < n; i++)
                bytes[i] = world_byte(stream, c->written[stream - 1] + i);
        put = write(c->stdio[stream], bytes, n);
        if (put > 0)
                c->written[stream - 1] += (uint64_t)put;
}

void world_read(struct command *c, size_t n)
{
        uint8_t bytes[8192];
        ssize_t got = c->stdio[0] < 0 ? -1 : read(c->stdio[0], bytes, min_size(n, sizeof(bytes)));

        for (ssize_t i = 0; i < got && !c->terminal; i++)
                MUST(bytes[i] == world_byte(0, c->read + (uint64_t)i));
        if (got > 0)
                c->read += (uint64_t)got;
}

void world_close(struct command *c, int stream)
{
        c->stdio[stream] = close_fd(c->stdio[stream]);
}

void world_leader_ends(struct exec_table *t, struct command *c, int wait_status)
{
        const struct rusage usage = {0};

        if (c->leader_ended)
                return;
        world_executed(c);
        c->leader_ended = true;
        if (c->keeper) {
                struct keeper_report report = {.pid = c->pid, .ended = true, .wait_status = wait_status};

                (void)!write(c->report_fd, &report, sizeof(report)); /* the agent may have closed it */
        } else {
                MUST(exec_table_reaped(t, c->pid, wait_status, &usage));
        }
}

/* A keeper whose command's end was not told is one that was killed itself. */
void world_all_gone(struct exec_table *t, struct command *c)
{
        const struct rusage usage = {0};
        pid_t keeper = c->keeper;

        for (int i = 0; i < 3; i++)
                world_close(c, i);
        if (keeper)
                world_keeper_dies(c);
        else
                world_leader_ends(t, c, 0);
        c->report_fd = close_fd(c->report_fd);
        c->there = false;
        if (keeper)
                MUST(exec_table_reaped(t, keeper, SIGKILL, &usage));
}

void world_failed(struct exec_table *t, struct command *c, int stage, int error)
{
        struct spawn_failure failure = {.stage = stage, .error = error};

        if (c->status_fd < 0)
                return;
        MUST(write(c->status_fd, &failure, sizeof(failure)) == (ssize_t)sizeof(failure));
        world_leader_ends(t, c, 127 << 8);
        world_all_gone(t, c);
}

void world_reap(struct exec_table *t)
{
        for (size_t i = 0; i < WORLD_COMMANDS; i++) {
                struct command *c = &world_commands[i];

                if (!c->there || !c->killed)
                        continue;
                world_leader_ends(t, c, SIGKILL);
                world_all_gone(t, c);
        }
}
