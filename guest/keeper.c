/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/keeper.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUND_NS                                                                                                       \
        5000000L /* between two rounds of killing: for the killed to be reaped, and their children to come to us */

struct process {
        pid_t pid;
        pid_t parent;
        bool is_ours;
};

struct processes {
        struct process *list;
        size_t n;
        size_t room;
};

/* The fourth field of /proc/PID/stat; the second is in parentheses and may hold anything (proc(5)). */
static pid_t parent_of(const char *pid_text)
{
        char path[64], text[512], *after;
        int fd;
        ssize_t n;

        (void)snprintf(path, sizeof(path), "/proc/%s/stat", pid_text);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return 0;
        n = read(fd, text, sizeof(text) - 1);
        (void)close(fd);
        if (n <= 0)
                return 0;
        text[n] = '\0';
        after = strrchr(text, ')');
        return after && strlen(after) > 4 ? (pid_t)strtol(after + 4, NULL, 10) : 0; /* ") S PARENT" */
}

static bool add(struct processes *all, pid_t pid, pid_t parent)
{
        if (all->n == all->room) {
                size_t room = all->room ? all->room * 2 : 256;
                struct process *larger = realloc(all->list, room * sizeof(*larger));

                if (!larger)
                        return false;
                all->list = larger;
                all->room = room;
        }
        all->list[all->n++] = (struct process){.pid = pid, .parent = parent};
        return true;
}

static void list_all(struct processes *all)
{
        DIR *proc = opendir("/proc");
        struct dirent *e;

        all->n = 0;
        if (!proc)
                return;
        while ((e = readdir(proc)))
                if (e->d_name[0] >= '1' && e->d_name[0] <= '9' &&
                        !add(all, (pid_t)strtol(e->d_name, NULL, 10), parent_of(e->d_name)))
                        break;
        (void)closedir(proc);
}

static bool is_marked(const struct processes *all, pid_t pid)
{
        for (size_t i = 0; i < all->n; i++)
                if (all->list[i].pid == pid)
                        return all->list[i].is_ours;
        return false;
}

/* Our children, their children, and so on, until no more are found. */
static void mark_descendants(struct processes *all)
{
        pid_t self = getpid();
        bool found = true;

        while (found) {
                found = false;
                for (size_t i = 0; i < all->n; i++) {
                        struct process *p = &all->list[i];

                        if (p->is_ours || (p->parent != self && !is_marked(all, p->parent)))
                                continue;
                        p->is_ours = found = true;
                }
        }
}

static void signal_descendants(struct processes *all, int signal)
{
        list_all(all);
        mark_descendants(all);
        for (size_t i = 0; i < all->n; i++)
                if (all->list[i].is_ours)
                        (void)kill(all->list[i].pid, signal);
}

/* Stopped first, so that what forks has less of a head start. */
static void kill_descendants(struct processes *all)
{
        signal_descendants(all, SIGSTOP);
        signal_descendants(all, SIGKILL);
}

static void report(const struct keeper_report *r)
{
        ssize_t put = write(STDIN_FILENO, r, sizeof(*r));

        (void)put; /* an agent that is gone needs no report */
}

/* True once nobody is left. */
static bool reap(pid_t leader)
{
        for (;;) {
                struct keeper_report r = {.pid = leader, .ended = true};
                pid_t pid = wait4(-1, &r.wait_status, WNOHANG | __WALL, &r.usage);

                if (pid == leader)
                        report(&r);
                if (pid == 0)
                        return false;
                if (pid < 0 && errno != EINTR)
                        return true;
        }
}

static _Noreturn void keep(pid_t leader)
{
        const struct timespec round = {.tv_nsec = ROUND_NS};
        struct processes all = {0};
        bool killing = false;
        sigset_t waited;

        (void)sigemptyset(&waited);
        (void)sigaddset(&waited, SIGCHLD);
        (void)sigaddset(&waited, KEEPER_KILL);
        while (!reap(leader)) {
                int signal = killing ? sigtimedwait(&waited, NULL, &round) : sigwaitinfo(&waited, NULL);

                killing |= signal == KEEPER_KILL;
                if (killing)
                        kill_descendants(&all);
        }
        _exit(0);
}

static _Noreturn void start_command(const struct spawn *spec, int status_fd)
{
        struct keeper_report r = {.pid = getpid()};
        ssize_t put = write(spec->report_fd, &r, sizeof(r));

        (void)put;
        (void)prctl(PR_SET_PDEATHSIG, 0);
        spawn_child(spec, status_fd);
}

_Noreturn void keeper_run(const struct spawn *spec, int status_fd)
{
        struct spawn_failure failure = {.stage = SPAWN_INTERNAL};
        pid_t leader;

        (void)prctl(PR_SET_NAME, "wbagent-keeper");
        (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
        (void)prctl(PR_SET_PDEATHSIG, KEEPER_KILL);
        (void)setsid();
        leader = fork();
        if (leader == 0)
                start_command(spec, status_fd);
        if (leader < 0) {
                ssize_t put;

                failure.error = errno;
                put = write(status_fd, &failure, sizeof(failure));
                _exit(put < 0 ? 1 : 0);
        }
        for (char *const *text = spec->env; *text; text++) /* our copy; there may be secrets in it */
                explicit_bzero(*text, strlen(*text));
        /* The pipe to the agent as the one descriptor that is left: what the command's streams are must close with
         * them. */
        if (dup2(spec->report_fd, STDIN_FILENO) < 0)
                _exit(1);
        (void)syscall(SYS_close_range, 1u, ~0u, 0u);
        keep(leader);
}
