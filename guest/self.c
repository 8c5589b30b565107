/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/self.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/oom.h>
#include <malloc.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "proto/base/log.h"

/* Conversations (CONTROL_MAX), a handful for each exec, and what files and forwarding need. */
#define DESCRIPTORS_WANTED 16384

/* Above a frame with a chunk of output, which comes and goes too often to be mapped each time. */
#define HEAP_BLOCK_BYTES (128 * 1024)
#define HEAP_SLACK_BYTES (512 * 1024)

#define OOM_SCORE_FILE "/proc/self/oom_score_adj"
#define OOM_SCORE_STEP 10

const int self_ignored[SELF_IGNORED_N] = {SIGPIPE, SIGHUP};

static void reset_signals(void)
{
        struct sigaction dfl = {.sa_handler = SIG_DFL}, ign = {.sa_handler = SIG_IGN};
        sigset_t none;

        for (int i = 1; i < NSIG; i++)
                (void)sigaction(i, &dfl, NULL);
        for (size_t i = 0; i < SELF_IGNORED_N; i++)
                (void)sigaction(self_ignored[i], &ign, NULL);
        (void)sigemptyset(&none);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static void fix_descriptors(void)
{
        int null = open("/dev/null", O_RDWR | O_NOCTTY); /* itself the lowest that was closed, if one was */

        for (int fd = 0; null >= 0 && fd <= STDERR_FILENO; fd++)
                if (fcntl(fd, F_GETFD) < 0)
                        (void)dup2(null, fd);
        (void)close_range(STDERR_FILENO + 1, ~0u, 0);
}

void self_normalise(struct rlimit *ret_nofile)
{
        struct rlimit own;

        reset_signals();
        (void)umask(022);
        (void)setpriority(PRIO_PROCESS, 0, 0);
        (void)setgroups(0, NULL);
        (void)!chdir("/");
        fix_descriptors();
        if (getrlimit(RLIMIT_NOFILE, ret_nofile) < 0)
                *ret_nofile = (struct rlimit){1024, 4096};
        own = *ret_nofile;
        if (own.rlim_cur < DESCRIPTORS_WANTED) {
                own.rlim_cur = own.rlim_max < DESCRIPTORS_WANTED ? own.rlim_max : DESCRIPTORS_WANTED;
                (void)setrlimit(RLIMIT_NOFILE, &own);
        }
}

void self_bound_heap(void)
{
        (void)mallopt(M_MMAP_THRESHOLD, HEAP_BLOCK_BYTES);
        (void)mallopt(M_TRIM_THRESHOLD, HEAP_SLACK_BYTES);
}

/* Without CAP_SYS_RESOURCE the kernel takes no score below the lowest that somebody with it has set, so the lowest that
 * it takes is searched. */
static void lower_oom_score(void)
{
        _cleanup_free_ char *text = NULL;
        long current;

        if (io_read_file(OOM_SCORE_FILE, 64, &text, NULL) < 0)
                return;
        current = strtol(text, NULL, 10);
        for (int score = OOM_SCORE_ADJ_MIN; score < current; score += OOM_SCORE_STEP) {
                char next[16];

                (void)snprintf(next, sizeof(next), "%d", score);
                if (io_write_file(OOM_SCORE_FILE, next) == 0)
                        return;
        }
}

void self_protect(void)
{
        lower_oom_score();
        if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
                (void)log_errno(-errno, "cannot keep other users from reading the agent");
}

void self_forget_environment(char **ret_notify_socket)
{
        const char *notify = getenv("NOTIFY_SOCKET");

        *ret_notify_socket = notify && (notify[0] == '/' || notify[0] == '@') ? strdup(notify) : NULL;
        for (char **e = environ; *e; e++)
                explicit_bzero(*e, strlen(*e));
        *environ = NULL;
}

void self_notify(const char *notify_socket, const char *state)
{
        _cleanup_close_ int fd = -1;
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        size_t n = notify_socket ? strlen(notify_socket) : 0;

        if (n == 0 || n >= sizeof(a.sun_path))
                return;
        memcpy(a.sun_path, notify_socket, n);
        if (a.sun_path[0] == '@')
                a.sun_path[0] = '\0';
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return;
        if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&a,
                    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
                log_warning("cannot tell the service manager: %s", strerrordesc_np(errno));
}
