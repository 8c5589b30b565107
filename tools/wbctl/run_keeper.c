/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/run_keeper.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/io.h"

#define START_WAIT_MS        10000 /* for a program's socket, on a busy machine */
#define END_WAIT_MS          3000  /* from SIGTERM to SIGKILL: the broker writes its last records */
#define CHILDREN_MAX_BYTES   (1024u * 1024u)
#define FILES_AT_A_TIME      16         /* nftw(): descriptors */
#define KEEPER_STATUS_FAILED (127 << 8) /* as waitpid() says it: exit status 127 */

/* What the keeper says to wbctl; one packet each. */
struct event {
        enum keeper_slot slot;
        pid_t pid;
        bool ended;
        int status;
};

struct program_state {
        pid_t pid;
        bool ended;
        int status;
};

struct keeper {
        pid_t pid;
        int fd;
        char *directory;
        struct program_state programs[KEEPER_SLOTS];
};

/* The keeper's own side, in its process. */
struct keeping {
        const struct keeper_plan *plan;
        int fd;        /* to wbctl; its end is wbctl's end */
        int signal_fd; /* SIGCHLD */
        struct program_state programs[KEEPER_SLOTS];
};

static const char *const slot_names[] = {
        [KEEPER_BROKER] = "wbbroker",
        [KEEPER_VSOCK] = "wbvsock",
        [KEEPER_MACHINE] = "QEMU",
};
static_assert(sizeof(slot_names) / sizeof(slot_names[0]) == KEEPER_SLOTS, "a name for each slot");

const char *keeper_slot_name(enum keeper_slot slot)
{
        return slot_names[slot];
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
        (void)st;
        (void)type;
        (void)ftw;
        (void)remove(path);
        return 0;
}

/* What cannot be removed is left: nobody is there any more to be told. */
static void remove_directory(const char *path)
{
        (void)nftw(path, remove_entry, FILES_AT_A_TIME, FTW_DEPTH | FTW_PHYS);
}

/* ---- a program, between fork and exec */

static int leave_privileges(const struct keeper_plan *plan)
{
        size_t groups_n = plan->extra_gid == (gid_t)-1 ? 0 : 1;

        if (geteuid() != 0)
                return 0;
        /* QEMU and wbvsock talk through unix sockets alone; a kernel without network namespaces is no reason to refuse.
         */
        if (unshare(CLONE_NEWNET) < 0 && errno != EINVAL && errno != EPERM)
                return -errno;
        if (plan->uid == 0)
                return 0;
        if (setgroups(groups_n, &plan->extra_gid) < 0 || setresgid(plan->gid, plan->gid, plan->gid) < 0 ||
                setresuid(plan->uid, plan->uid, plan->uid) < 0)
                return -errno;
        return 0;
}

static int redirect_output(const char *log_path)
{
        _cleanup_close_ int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        _cleanup_close_ int log = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

        if (null < 0 || log < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 ||
                dup2(log, STDERR_FILENO) < 0)
                return -errno;
        return 0;
}

static int prepare_program(const struct keeper_plan *plan, const struct keeper_program *program, pid_t keeper_pid)
{
        sigset_t none;
        int r = redirect_output(program->log_path);

        if (r < 0)
                return r;
        for (size_t i = 0; i < program->fds_n; i++)
                if (fcntl(program->fds[i], F_SETFD, 0) < 0)
                        return -errno;
        if (program->confined && (r = leave_privileges(plan)) < 0)
                return r;
        /* Behind the change of user, which clears it. A keeper that died meanwhile sends no signal any more. */
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
                return -errno;
        if (getppid() != keeper_pid)
                return -ESRCH;
        for (int number = 1; number < NSIG; number++)
                (void)signal(number, SIG_DFL);
        sigemptyset(&none);
        return sigprocmask(SIG_SETMASK, &none, NULL) < 0 ? -errno : 0;
}

static void become_program(const struct keeper_plan *plan, const struct keeper_program *program, pid_t keeper_pid)
{
        /* By descriptor too: root's builds are often below a home where the program's user may not walk. */
        _cleanup_close_ int file = open(program->argv[0], O_PATH | O_CLOEXEC);
        int r = prepare_program(plan, program, keeper_pid);

        if (r == 0) {
                execvp(program->argv[0], program->argv);
                r = -errno;
        }
        if (r == -EACCES && file >= 0 && strchr(program->argv[0], '/'))
                (void)execveat(file, "", program->argv, environ, AT_EMPTY_PATH);
        fprintf(stderr, "cannot start %s: %s\n", program->argv[0], strerror(-r));
        fflush(stderr);
        _exit(127);
}

/* ---- the keeper's process */

static void tell(const struct keeping *k, enum keeper_slot slot)
{
        const struct program_state *program = &k->programs[slot];
        struct event event = {.slot = slot, .pid = program->pid, .ended = program->ended, .status = program->status};

        /* Nobody hears it: then the end of file on the same socket says so. */
        (void)send(k->fd, &event, sizeof(event), MSG_NOSIGNAL);
}

static void note_end(struct keeping *k, pid_t pid, int status)
{
        for (size_t i = 0; i < KEEPER_SLOTS; i++) {
                struct program_state *program = &k->programs[i];

                if (program->pid == pid && !program->ended) {
                        program->ended = true;
                        program->status = status;
                        tell(k, (enum keeper_slot)i);
                }
        }
}

static void reap(struct keeping *k)
{
        struct signalfd_siginfo info;
        int status;

        while (read(k->signal_fd, &info, sizeof(info)) > 0)
                ;
        for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
                note_end(k, pid, status);
}

/* Waits at most timeout_ms for something to happen. False when wbctl is gone or says stop. */
static bool keep_for(struct keeping *k, int timeout_ms)
{
        struct pollfd fds[] = {{.fd = k->fd, .events = POLLIN}, {.fd = k->signal_fd, .events = POLLIN}};

        (void)poll(fds, 2, timeout_ms);
        if (fds[1].revents)
                reap(k);
        return !fds[0].revents;
}

/* A socket's file is there when its program has bound it. False when wbctl is gone. */
static bool wait_for_path(struct keeping *k, const char *path)
{
        uint64_t deadline_ns = clock_monotonic_ns() + START_WAIT_MS * NSEC_PER_MSEC;

        while (access(path, F_OK) < 0) {
                if (clock_monotonic_ns() >= deadline_ns || k->programs[KEEPER_VSOCK].ended)
                        return true;
                if (!keep_for(k, 5))
                        return false;
        }
        return true;
}

static void start_program(struct keeping *k, enum keeper_slot slot)
{
        const struct keeper_program *program = &k->plan->programs[slot];
        pid_t keeper_pid = getpid();
        int fds[2] = {-1, -1};
        pid_t pid = pipe2(fds, O_CLOEXEC) < 0 ? -1 : fork();
        char none;

        if (pid == 0)
                become_program(k->plan, program, keeper_pid);
        /* Told of only when it is the program: the broker looks at what runs there. exec() or the end closes the pipe.
         */
        close_fd(fds[1]);
        while (pid > 0 && read(fds[0], &none, 1) < 0 && errno == EINTR)
                ;
        close_fd(fds[0]);
        k->programs[slot].pid = pid;
        if (pid < 0)
                k->programs[slot] = (struct program_state){.ended = true, .status = KEEPER_STATUS_FAILED};
        tell(k, slot);
}

static bool start_programs(struct keeping *k)
{
        for (size_t i = 0; i < KEEPER_SLOTS; i++) {
                const struct keeper_program *program = &k->plan->programs[i];

                if (!program->argv)
                        continue;
                if (program->wait_path && !wait_for_path(k, program->wait_path))
                        return false;
                start_program(k, (enum keeper_slot)i);
        }
        return true;
}

static void end_program(struct keeping *k, enum keeper_slot slot)
{
        struct program_state *program = &k->programs[slot];
        uint64_t deadline_ns = clock_monotonic_ns() + END_WAIT_MS * NSEC_PER_MSEC;

        if (program->pid <= 0 || program->ended)
                return;
        /* A VM of a run keeps nothing, so there is nothing that QEMU could put in order. */
        (void)kill(program->pid, slot == KEEPER_MACHINE ? SIGKILL : SIGTERM);
        while (!program->ended && clock_monotonic_ns() < deadline_ns) {
                struct pollfd fd = {.fd = k->signal_fd, .events = POLLIN};

                (void)poll(&fd, 1, 100);
                reap(k);
        }
        if (!program->ended) {
                (void)kill(program->pid, SIGKILL);
                (void)waitpid(program->pid, &program->status, 0);
                program->ended = true;
        }
}

/* Children that a program left behind have become the keeper's (PR_SET_CHILD_SUBREAPER). */
static void end_orphans(void)
{
        char path[64];

        (void)snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
        for (int round = 0; round < 100; round++) {
                _cleanup_free_ char *children = NULL;
                char *rest;

                if (io_read_file(path, CHILDREN_MAX_BYTES, &children, NULL) < 0)
                        return;
                for (pid_t pid = (pid_t)strtol(children, &rest, 10); pid > 0; pid = (pid_t)strtol(rest, &rest, 10))
                        (void)kill(pid, SIGKILL);
                if (waitpid(-1, NULL, 0) < 0)
                        return;
        }
}

static void keep(struct keeping *k)
{
        const struct keeper_plan *plan = k->plan;

        if (start_programs(k))
                while (keep_for(k, -1))
                        ;
        if (plan->farewell)
                plan->farewell(plan->userdata);
        for (size_t i = KEEPER_SLOTS; i-- > 0;)
                end_program(k, (enum keeper_slot)i);
        end_orphans();
        remove_directory(plan->directory);
}

static void become_keeper(const struct keeper_plan *plan, int fd)
{
        sigset_t all;
        sigset_t child;

        (void)prctl(PR_SET_NAME, "wbctl-keeper");
        (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
        (void)setsid();
        sigfillset(&all);
        (void)sigprocmask(SIG_SETMASK, &all, NULL);
        sigemptyset(&child);
        sigaddset(&child, SIGCHLD);

        /* The caller's reader of stdout or stderr must see the end with wbctl, not with the keeper. */
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        for (int i = 0; null >= 0 && i <= STDERR_FILENO; i++)
                (void)dup2(null, i);

        struct keeping k = {.plan = plan, .fd = fd, .signal_fd = signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC)};

        keep(&k);
        _exit(0);
}

/* ---- wbctl's side */

int keeper_start(const struct keeper_plan *plan, struct keeper **ret)
{
        _cleanup_free_ struct keeper *k = calloc(1, sizeof(*k));
        _cleanup_free_ char *directory = strdup(plan->directory);
        int fds[2];

        if (!k || !directory || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0) {
                int r = k && directory ? -errno : -ENOMEM;

                remove_directory(plan->directory);
                return r;
        }
        k->pid = fork();
        if (k->pid == 0) {
                close_fd(fds[0]);
                become_keeper(plan, fds[1]);
        }
        close_fd(fds[1]);
        k->fd = fds[0];
        if (k->pid < 0) {
                int r = -errno;

                close_fd(k->fd);
                remove_directory(plan->directory);
                return r;
        }
        k->directory = STEAL(directory);
        *ret = STEAL(k);
        return 0;
}

void keeper_stop(struct keeper *k)
{
        if (!k)
                return;
        close_fd(k->fd);
        while (waitpid(k->pid, NULL, 0) < 0 && errno == EINTR)
                ;
        remove_directory(k->directory); /* a keeper that was killed did not */
        free(k->directory);
        free(k);
}

int keeper_fd(const struct keeper *k)
{
        return k->fd;
}

int keeper_update(struct keeper *k)
{
        for (;;) {
                struct event event;
                ssize_t n = recv(k->fd, &event, sizeof(event), MSG_DONTWAIT);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN)
                        return 0;
                if (n != sizeof(event))
                        return -EPIPE;
                k->programs[event.slot] =
                        (struct program_state){.pid = event.pid, .ended = event.ended, .status = event.status};
        }
}

pid_t keeper_pid(const struct keeper *k, enum keeper_slot slot)
{
        return k->programs[slot].pid;
}

bool keeper_ended(const struct keeper *k, enum keeper_slot slot, int *ret_status)
{
        if (!k->programs[slot].ended)
                return false;
        *ret_status = k->programs[slot].status;
        return true;
}
