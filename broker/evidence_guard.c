/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/evidence_guard.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/io.h"

#define REAP_TRIES    50
#define REAP_PAUSE_US 2000

/* The child's one message; the pidfd goes with it. */
struct answer {
        int result;
        struct evidence evidence;
        struct evidence_digests digests; /* with what the child has read anew */
};

static void answer_in_child(evidence_gather_fn *gather, const struct evidence_digests *digests, int pid, int sock)
        __attribute__((noreturn));
static void answer_in_child(evidence_gather_fn *gather, const struct evidence_digests *digests, int pid, int sock)
{
        struct answer a = {.digests = *digests};
        int pidfd = -1;

        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        a.result = gather(&a.digests, pid, &a.evidence, &pidfd);
        (void)io_send_fds(sock, &a, sizeof(a), &pidfd, pidfd >= 0);
        _exit(EXIT_SUCCESS);
}

/* 0 when there is something to read. */
static int wait_readable(int sock, uint64_t until_ns)
{
        for (;;) {
                struct pollfd p = {.fd = sock, .events = POLLIN};
                uint64_t now_ns = clock_monotonic_ns();
                int n = poll(&p, 1, now_ns < until_ns ? (int)((until_ns - now_ns) / NSEC_PER_MSEC + 1) : 0);

                if (n > 0)
                        return 0;
                if (n == 0)
                        return -ETIMEDOUT;
                if (errno != EINTR)
                        return -errno;
        }
}

static int take_answer(int sock, uint64_t until_ns, struct answer *ret, int *ret_pidfd)
{
        size_t fds_n = 1;
        int fd = -1, r = wait_readable(sock, until_ns);
        ssize_t n;

        if (r < 0)
                return r;
        n = io_recv_fds(sock, ret, sizeof(*ret), &fd, &fds_n);
        if (n != sizeof(*ret)) {
                if (fds_n)
                        close_fd(fd);
                return n < 0 ? (int)n : -EIO;
        }
        *ret_pidfd = fds_n ? fd : -1;
        return 0;
}

/* One that answered ends by itself. One that had to be killed can be stuck in the kernel until whoever serves the file
 * system answers; it is not waited for any longer than a killed process takes otherwise, and stays behind then. */
static void reap(pid_t child, bool killed)
{
        for (int tries = 0; waitpid(child, NULL, killed ? WNOHANG : 0) != child && tries < REAP_TRIES; tries++)
                (void)usleep(REAP_PAUSE_US);
}

int evidence_guard(evidence_gather_fn *gather, uint64_t limit_ns, struct evidence_digests *digests, int pid,
        struct evidence *ret, int *ret_pidfd)
{
        _cleanup_close_ int mine = -1;
        struct answer answer;
        int fds[2], pidfd = -1, r;
        pid_t child;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
                return -errno;
        mine = fds[0];
        child = fork();
        if (child == 0)
                answer_in_child(gather, digests, pid, fds[1]);
        /* So that its end without an answer is seen. */
        (void)close_fd(fds[1]);
        if (child < 0)
                return -errno;
        r = take_answer(mine, clock_monotonic_ns() + limit_ns, &answer, &pidfd);
        if (r < 0)
                (void)kill(child, SIGKILL);
        reap(child, r < 0);
        if (r < 0)
                return r;
        *digests = answer.digests;
        if (answer.result == 0) {
                *ret = answer.evidence;
                *ret_pidfd = pidfd;
        }
        return answer.result;
}
