/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest/keeper.h"

/*
 * A fork, with its own copy of the (small) address space: a child that hangs before execve(2), on a dead network
 * filesystem say, holds up nobody. Born in its cgroup where the kernel can do that (Linux 5.7); elsewhere *ret_joined
 * is false and the child joins by itself.
 */
static pid_t make_child(int cgroup_fd, bool *ret_joined)
{
        struct clone_args args = {
                .flags = CLONE_INTO_CGROUP | CLONE_CLEAR_SIGHAND,
                .exit_signal = SIGCHLD,
                .cgroup = (uint64_t)cgroup_fd,
        };
        long pid = -1;

        *ret_joined = false;
        if (cgroup_fd >= 0) {
                pid = syscall(SYS_clone3, &args, sizeof(args));
                if (pid >= 0) {
                        *ret_joined = true;
                        return (pid_t)pid;
                }
                if (errno != ENOSYS && errno != EINVAL && errno != E2BIG && errno != EPERM)
                        return -1;
        }
        return fork();
}

int spawn_status_pipe(int *ret_read, int *ret_write)
{
        int ends[2];

        /* The child's few bytes find room: it writes once. */
        if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
                return -errno;
        *ret_read = ends[0];
        *ret_write = ends[1];
        return 0;
}

int spawn(const struct spawn *spec, int status_fd, pid_t *ret_pid)
{
        sigset_t all, before;
        bool joined;
        pid_t pid;
        int error;

        /* No handler of the agent may run in the child. */
        (void)sigfillset(&all);
        (void)sigprocmask(SIG_BLOCK, &all, &before);
        pid = make_child(spec->cgroup_fd, &joined);
        if (pid == 0) {
                struct spawn child = *spec;

                if (joined)
                        child.cgroup_fd = -1;
                child.signals_cleared = joined;
                if (spec->report_fd >= 0)
                        keeper_run(&child, status_fd);
                spawn_child(&child, status_fd);
        }
        error = errno;
        (void)sigprocmask(SIG_SETMASK, &before, NULL);
        if (pid < 0)
                return -error;
        *ret_pid = pid;
        return 0;
}
