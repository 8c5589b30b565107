/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/files.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "guest/agent.h"
#include "guest/child.h"
#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/io.h"
#include "proto/base/log.h"
#include "proto/wire/codec.h"

/* An opening holds a few paths: it fits into a pipe that nobody reads yet. */
#define OPENING_MAX_BYTES (60u * 1024u)

#define STOP_LIMIT_MS 500 /* for all together to die */

struct helper {
        LIST_ENTRY(helper) entry;
        struct files *files;
        struct child child;
};

struct files {
        struct agent *agent;
        LIST_HEAD(, helper) helpers;
        unsigned n;
};

int files_new(struct agent *agent, struct files **ret)
{
        struct files *files = calloc(1, sizeof(*files));

        if (!files)
                return -ENOMEM;
        files->agent = agent;
        LIST_INIT(&files->helpers);
        *ret = files;
        return 0;
}

static void free_helper(struct helper *h)
{
        LIST_REMOVE(h, entry);
        h->files->n--;
        free(h);
}

/* It has ended, and waits to be reaped. */
static bool is_over(const struct helper *h)
{
        siginfo_t info = {0};

        return waitid(P_PID, (id_t)h->child.pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == h->child.pid;
}

/*
 * One that hangs in a filesystem (a workload's own, say, which is frozen) does not die before that lets it go: it is
 * not waited for any longer, has nothing to say any more, and is reaped when it ends.
 */
void files_stop(struct files *files)
{
        uint64_t end_ns = clock_monotonic_ns() + STOP_LIMIT_MS * NSEC_PER_MSEC;
        struct helper *h, *next;

        LIST_FOREACH (h, &files->helpers, entry)
                (void)kill(-h->child.pid, SIGKILL);
        for (h = LIST_FIRST(&files->helpers); h; h = next) {
                while (!is_over(h) && clock_monotonic_ns() < end_ns)
                        (void)nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
                next = LIST_NEXT(h, entry);
                if (!is_over(h))
                        continue;
                child_kill(&h->child); /* reaps it */
                free_helper(h);
        }
}

void files_free(struct files *files)
{
        if (!files)
                return;
        files_stop(files);
        if (LIST_EMPTY(&files->helpers)) /* else they are in the agent's list of children, until its end */
                free(files);
}

static void on_ended(struct child *child, int wait_status)
{
        (void)wait_status; /* the host has been told, or finds its connection closed */
        free_helper((struct helper *)(void *)((char *)child - offsetof(struct helper, child)));
}

/* A pipe with the message in it as a frame. *ret_fd is its reading end. */
static int pipe_opening(const Wb__ToAgent *m, int *ret_fd)
{
        _cleanup_close_ int read_end = -1, write_end = -1;
        _cleanup_free_ uint8_t *frame = NULL;
        size_t n;
        int ends[2], r = codec_pack_to_agent(m, &frame, &n);

        if (r < 0)
                return r;
        if (n > OPENING_MAX_BYTES)
                return -EMSGSIZE;
        if (pipe2(ends, O_CLOEXEC) < 0)
                return -errno;
        read_end = ends[0];
        write_end = ends[1];
        r = io_write_full(write_end, frame, n);
        if (r == 0)
                *ret_fd = steal_fd(&read_end);
        return r;
}

static int start(struct files *files, int conversation, const Wb__ToAgent *m)
{
        static const char *const argv[] = {"wbagent-files", FILES_ARGUMENT, NULL}, *const env[] = {NULL};
        _cleanup_close_ int opening = -1;
        struct child_spec spec = {
                .path = "/proc/self/exe",
                .argv = (char *const *)(uintptr_t)argv,
                .env = (char *const *)(uintptr_t)env,
                .fds_n = 2,
        };
        struct helper *h;
        int fds[2], r = pipe_opening(m, &opening);

        if (r < 0)
                return r;
        h = calloc(1, sizeof(*h));
        if (!h)
                return -ENOMEM;
        fds[0] = conversation;
        fds[1] = opening;
        spec.fds = fds;
        r = child_spawn(files->agent, &spec, on_ended, &h->child);
        if (r < 0) {
                free(h);
                return r;
        }
        h->files = files;
        LIST_INSERT_HEAD(&files->helpers, h, entry);
        files->n++;
        return 0;
}

static void refuse(struct control *c, const char *reason, const char *detail)
{
        (void)control_send_error(c, reason, detail);
        control_finish(c);
}

/* Of a container the disks are the host's, and so is what is free on them. */
static bool trims_what_is_not_ours(const struct agent *agent, const Wb__ToAgent *m)
{
        return m->body_case == WB__TO_AGENT__BODY_SYNC && m->sync->trim && agent->transport.kind == TRANSPORT_UNIX;
}

void files_open(struct files *files, struct control *c, const Wb__ToAgent *m)
{
        int fd = control_descriptor(c), r;

        if (fd < 0) {
                refuse(c, "protocol", "more was sent than the opening");
                return;
        }
        if (trims_what_is_not_ours(files->agent, m)) {
                refuse(c, "unsupported", "this guest has no disks of its own to trim");
                return;
        }
        if (files->n == FILES_MAX) {
                refuse(c, "busy", "too many conversations about files at a time");
                return;
        }
        r = start(files, fd, m);
        if (r < 0) {
                (void)log_errno(r, "cannot start a process for files");
                refuse(c, "internal", "no process can be started for it");
                return;
        }
        control_hand_over(c);
}
