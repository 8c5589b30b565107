/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/filesystems_hold.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest/agent.h"
#include "guest/child.h"
#include "guest/filesystems.h"
#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "proto/base/log.h"

#define FD_AGENT 3

struct answer {
        int error; /* negative, or 0 */
        unsigned frozen;
};

/* ---- the process */

void filesystems_hold_serve(int fd)
{
        struct answer answer = {0};
        char byte;

        sync();
        answer.error = filesystems_freeze(&answer.frozen);
        (void)io_write_full(fd, &answer, sizeof(answer)); /* an agent that has not waited is told nothing */
        while (read(fd, &byte, 1) < 0 && errno == EINTR)
                ;
        (void)filesystems_thaw();
}

int filesystems_main(void)
{
        static const int ignored[] = {SIGHUP, SIGINT, SIGTERM, SIGPIPE};

        log_setup("wbagent-filesystems", LOG_LEVEL_INFO);
        (void)prctl(PR_SET_NAME, "wbagent-disks");
        for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
                (void)signal(ignored[i], SIG_IGN); /* it goes when the agent lets it */
        filesystems_hold_serve(FD_AGENT);
        return EXIT_SUCCESS;
}

/* ---- the agent */

static void on_ended(struct child *child, int wait_status)
{
        (void)wait_status;
        free(child);
}

static int start(struct agent *agent, int fd)
{
        static const char *const argv[] = {"wbagent-filesystems", FILESYSTEMS_ARGUMENT, NULL}, *const env[] = {NULL};
        struct child_spec spec = {
                .path = "/proc/self/exe",
                .argv = (char *const *)(uintptr_t)argv,
                .env = (char *const *)(uintptr_t)env,
                .fds = &fd,
                .fds_n = 1,
        };
        struct child *child = calloc(1, sizeof(*child));
        int r = child ? child_spawn(agent, &spec, on_ended, child) : -ENOMEM;

        if (r < 0)
                free(child);
        return r;
}

/* The loop stands still meanwhile, as everything else in the guest does. */
static int wait_for_answer(int fd)
{
        struct pollfd p = {.fd = fd, .events = POLLIN};
        struct answer answer;
        int n, r;

        do
                n = poll(&p, 1, FILESYSTEMS_LIMIT_MS);
        while (n < 0 && errno == EINTR);
        if (n <= 0)
                return n < 0 ? -errno : -ETIMEDOUT;
        r = io_read_full(fd, &answer, sizeof(answer));
        if (r == 0 && answer.error == 0)
                log_info("%u filesystems are frozen", answer.frozen);
        return r < 0 ? r : answer.error;
}

int filesystems_hold(struct agent *agent)
{
        _cleanup_close_ int ours = -1, theirs = -1;
        int ends[2], r;

        if (agent->transport.kind == TRANSPORT_UNIX) {
                sync();
                return 0;
        }
        (void)filesystems_release(agent);
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
                return -errno;
        ours = ends[0];
        theirs = ends[1];
        r = start(agent, theirs);
        (void)close_fd(steal_fd(&theirs)); /* so that its death is heard of */
        if (r == 0)
                r = wait_for_answer(ours);
        if (r < 0)
                return r;
        agent->disks_held = true;
        agent->disks_fd = steal_fd(&ours);
        return 0;
}

unsigned filesystems_release(struct agent *agent)
{
        unsigned n;

        if (agent->transport.kind == TRANSPORT_UNIX)
                return 0;
        n = filesystems_thaw(); /* at once: what comes next writes */
        if (agent->disks_held)
                (void)close_fd(agent->disks_fd);
        agent->disks_held = false;
        return n;
}
