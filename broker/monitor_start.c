/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/monitor_start.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "broker/broker.h"
#include "proto/base/cleanup.h"
#include "proto/base/log.h"

#define CONTROL_BACKLOG  64
#define LOCKED_MAX_BYTES (256ul * 1024 * 1024)
#define ALIVE_LOOKS      20
#define ALIVE_PAUSE_NS   50000000

int broker_identity_find(const char *user, struct broker_identity *ret)
{
        struct broker_identity id = {.uid = geteuid(), .gid = getegid(), .groups_n = 64};
        const struct passwd *pw;

        if (user && geteuid() != 0)
                log_info("started without root; the user '%s' of the configuration is not switched to", user);
        if (user && geteuid() == 0) {
                errno = 0;
                pw = getpwnam(user);
                if (!pw && errno)
                        return log_errno(-errno, "user '%s' of the configuration", user);
                if (!pw) {
                        log_error("there is no user '%s', which the configuration names", user);
                        return -ENOENT;
                }
                id.drop = true;
                id.uid = pw->pw_uid;
                id.gid = pw->pw_gid;
                if (getgrouplist(user, id.gid, id.groups, &id.groups_n) < 0)
                        return log_errno(-E2BIG, "groups of user '%s'", user);
        }
        *ret = id;
        return 0;
}

static bool is_empty(int dir_fd)
{
        int copy = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *dir = copy < 0 ? NULL : fdopendir(copy);
        size_t n = 0;

        if (!dir) {
                close_fd(copy);
                return false;
        }
        while (readdir(dir))
                n++;
        (void)closedir(dir);
        return n <= 2; /* `.` and `..` */
}

static int make_directory(const char *path, mode_t mode, const struct broker_identity *owner, mode_t *ret_mode)
{
        _cleanup_close_ int fd = -1;
        bool made = mkdir(path, mode) == 0;
        struct stat st;

        if (!made && errno != EEXIST)
                return log_errno(-errno, "cannot make %s", path);
        fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0)
                return log_errno(-errno, "cannot open %s", path);
        /* While it is ours: the unit's CAP_CHOWN gives it away, and only CAP_FOWNER could still change it then. */
        if (made && fchmod(fd, mode) < 0)
                return log_errno(-errno, "cannot set the mode of %s", path);
        /* Made here, or made for it by whoever installed it; what holds somebody's files is left alone. */
        if (owner->drop && (made || (st.st_uid == geteuid() && is_empty(fd))) && fchown(fd, owner->uid, owner->gid) < 0)
                return log_errno(-errno, "cannot give %s to the broker's user", path);
        *ret_mode = made ? mode : st.st_mode & 07777;
        return 0;
}

/* Keys lie there, which the broker's process is not to have. A directory that is plainly somebody else's, such as /tmp,
 * is not made private but refused. */
static int check_private(const char *path, mode_t mode)
{
        struct stat st;

        if (stat(path, &st) < 0)
                return log_errno(-errno, "cannot look at %s", path);
        if (st.st_uid != geteuid() && (mode & S_ISVTX || chown(path, geteuid(), (gid_t)-1) < 0))
                return log_errno(-EPERM, "state_dir %s is another user's", path);
        if (!(mode & 077))
                return 0;
        if (mode & S_ISVTX)
                return log_errno(-EPERM, "state_dir %s is shared; give the broker a directory of its own", path);
        log_warning("state_dir %s was open to others; its mode is set to 0700", path);
        return chmod(path, 0700) < 0 ? log_errno(-errno, "cannot set the mode of %s", path) : 0;
}

int monitor_make_directories(const struct config *config, const struct broker_identity *identity)
{
        static const struct broker_identity stays = {.drop = false};
        mode_t mode = 0;
        int r = make_directory(config->state_dir, 0700, &stays, &mode);

        if (r == 0)
                r = check_private(config->state_dir, mode);
        if (r == 0)
                r = make_directory(config->run_dir, 0755, &stays, &mode);
        if (r == 0)
                r = make_directory(config->audit_dir, 0750, identity, &mode);
        return r;
}

/* Does anybody listen there? */
static bool is_alive(const struct sockaddr_un *address)
{
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        return fd >= 0 && (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 || errno == EAGAIN);
}

/* The broker of a monitor that was just killed may take a moment to be gone with all its threads. */
static bool stays_alive(const struct sockaddr_un *address)
{
        const struct timespec pause = {.tv_nsec = ALIVE_PAUSE_NS};

        for (int i = 0; i < ALIVE_LOOKS; i++) {
                if (!is_alive(address))
                        return false;
                (void)nanosleep(&pause, NULL);
        }
        return true;
}

int monitor_listen_control(const struct config *config, const struct broker_identity *identity, int *ret_fd)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        int n = snprintf(address.sun_path, sizeof(address.sun_path), "%s/control.sock", config->run_dir);
        mode_t old_umask;
        int r = 0;

        if (fd < 0)
                return log_errno(-errno, "cannot make a socket");
        if (n < 0 || (size_t)n >= sizeof(address.sun_path))
                return log_errno(-ENAMETOOLONG, "%s/control.sock", config->run_dir);
        if (stays_alive(&address))
                return log_errno(-EADDRINUSE, "another broker listens at %s", address.sun_path);
        if (unlink(address.sun_path) < 0 && errno != ENOENT)
                return log_errno(-errno, "cannot replace %s", address.sun_path);
        old_umask = umask(0117);
        if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, CONTROL_BACKLOG) < 0)
                r = -errno;
        (void)umask(old_umask);
        if (r == 0 && identity->drop && lchown(address.sun_path, (uid_t)-1, identity->gid) < 0)
                r = -errno;
        if (r < 0)
                return log_errno(r, "cannot listen at %s", address.sun_path);
        *ret_fd = steal_fd(&fd);
        return 0;
}

/* Each connection of a guest takes two descriptors and a pipe; the soft limit is for programs that use select(). */
static void raise_descriptor_limit(void)
{
        struct rlimit limit;

        if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
                return;
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* Secrets are kept in locked memory; what a VM may have of it is bounded (broker/secret_store.h). Before the switch of
 * users, behind which only the soft limit can be raised. */
static void raise_lock_limit(void)
{
        struct rlimit limit = {.rlim_cur = LOCKED_MAX_BYTES, .rlim_max = LOCKED_MAX_BYTES}, now;

        if (getrlimit(RLIMIT_MEMLOCK, &now) < 0)
                return;
        if (now.rlim_max < limit.rlim_max && setrlimit(RLIMIT_MEMLOCK, &limit) == 0)
                return;
        now.rlim_cur = now.rlim_max < limit.rlim_max ? now.rlim_max : limit.rlim_max;
        (void)setrlimit(RLIMIT_MEMLOCK, &now);
}

/* In the child. Never returns. */
static void become_broker(const struct broker_identity *id, int sock, pid_t parent)
{
        static char name[] = "wbbroker", argument[] = BROKER_PROCESS_ARGUMENT;
        char *const argv[] = {name, argument, NULL};
        sigset_t none;

        raise_lock_limit();
        if (id->drop && (setgroups((size_t)id->groups_n, id->groups) < 0 || setresgid(id->gid, id->gid, id->gid) < 0 ||
                                setresuid(id->uid, id->uid, id->uid) < 0)) {
                (void)log_errno(-errno, "cannot become the broker's user");
                _exit(EXIT_FAILURE);
        }
        /* Behind the switch of users, which clears it. */
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
                _exit(EXIT_FAILURE);
        raise_descriptor_limit();
        sigemptyset(&none);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
        (void)unsetenv("NOTIFY_SOCKET");
        if (sock == BROKER_MONITOR_FD ? fcntl(sock, F_SETFD, 0) < 0 : dup3(sock, BROKER_MONITOR_FD, 0) < 0)
                _exit(EXIT_FAILURE);
        /* A new image: nothing of the monitor's memory, nor where things lie in it, is known to the broker. */
        (void)execv("/proc/self/exe", argv);
        (void)log_errno(-errno, "cannot start the broker");
        _exit(EXIT_FAILURE);
}

int monitor_start_broker(const struct broker_identity *identity, int sock, pid_t *ret_pid, int *ret_pidfd)
{
        pid_t parent = getpid(), pid;
        int pidfd;

        pid = fork();
        if (pid < 0)
                return log_errno(-errno, "cannot fork");
        if (pid == 0)
                become_broker(identity, sock, parent);
        pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        if (pidfd < 0)
                return log_errno(-errno, "cannot watch the broker");
        *ret_pid = pid;
        *ret_pidfd = pidfd;
        return 0;
}
