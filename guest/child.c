/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/child.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/agent.h"
#include "proto/base/cleanup.h"
#include "proto/base/io.h"

#define FIRST_FD 3

static void reset_signals(void)
{
        struct sigaction dfl = {.sa_handler = SIG_DFL};
        sigset_t none;

        for (int i = 1; i < NSIG; i++)
                (void)sigaction(i, &dfl, NULL);
        (void)sigemptyset(&none);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Puts the descriptors at 3 and up, by way of numbers that none of them has. */
static int place_fds(const struct child_spec *spec, int report)
{
        int high[CHILD_FDS_MAX + 1];
        size_t n = spec->fds_n;

        for (size_t i = 0; i <= n; i++) {
                high[i] = fcntl(i < n ? spec->fds[i] : report, F_DUPFD_CLOEXEC, FIRST_FD + CHILD_FDS_MAX + 1);
                if (high[i] < 0)
                        return -errno;
        }
        for (size_t i = 0; i < n; i++)
                if (dup2(high[i], FIRST_FD + (int)i) < 0)
                        return -errno;
        /* The report's descriptor stays until execve() closes it. */
        if (dup3(high[n], FIRST_FD + (int)n, O_CLOEXEC) < 0)
                return -errno;
        (void)close_range((unsigned)(FIRST_FD + (int)n + 1), ~0u, 0);
        return FIRST_FD + (int)n;
}

__attribute__((noreturn)) static void become(struct agent *agent, const struct child_spec *spec, int report)
{
        int r;

        reset_signals();
        (void)setsid();
        (void)io_write_file("/proc/self/oom_score_adj", "0");
        (void)setrlimit(RLIMIT_NOFILE, &agent->inherited_nofile);
        r = place_fds(spec, report);
        if (r >= 0) {
                report = r;
                (void)execve(spec->path, spec->argv, spec->env);
                r = -errno;
        }
        (void)io_write_full(report, &r, sizeof(r));
        _exit(127);
}

static void link_child(struct agent *agent, struct child *child)
{
        child->next = agent->children;
        agent->children = child;
}

static void unlink_child(struct child *child)
{
        struct child **at = &child->agent->children;

        while (*at != child)
                at = &(*at)->next;
        *at = child->next;
        child->pid = 0;
}

int child_spawn(
        struct agent *agent, const struct child_spec *spec, void (*ended)(struct child *, int), struct child *child)
{
        _cleanup_close_ int read_end = -1, write_end = -1;
        sigset_t all, before;
        int report[2], error;
        pid_t pid;

        assert(spec->fds_n <= CHILD_FDS_MAX && !child_is_running(child));
        if (pipe2(report, O_CLOEXEC) < 0)
                return -errno;
        read_end = report[0];
        write_end = report[1];

        /* Blocked until the child has default handlers: the loop's would write into the loop's own pipe. */
        (void)sigfillset(&all);
        (void)sigprocmask(SIG_BLOCK, &all, &before);
        pid = fork();
        if (pid == 0)
                become(agent, spec, write_end);
        error = errno;
        (void)sigprocmask(SIG_SETMASK, &before, NULL);
        if (pid < 0)
                return -error;

        (void)close_fd(steal_fd(&write_end)); /* so that the child's death ends the report */
        if (io_read_full(read_end, &error, sizeof(error)) == 0) {
                (void)waitpid(pid, NULL, 0);
                return error;
        }
        *child = (struct child){.agent = agent, .pid = pid, .ended = ended};
        link_child(agent, child);
        return 0;
}

void child_kill(struct child *child)
{
        if (!child_is_running(child))
                return;
        (void)kill(-child->pid, SIGKILL);
        (void)kill(child->pid, SIGKILL);
        while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
                ;
        unlink_child(child);
}

bool child_is_running(const struct child *child)
{
        return child->pid > 0;
}

bool child_reaped(struct agent *agent, pid_t pid, int wait_status)
{
        for (struct child *c = agent->children; c; c = c->next) {
                if (c->pid != pid)
                        continue;
                unlink_child(c);
                c->ended(c, wait_status);
                return true;
        }
        return false;
}
