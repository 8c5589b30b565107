/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Programs that the agent runs for itself: the forwarder and the activation hooks. (Workloads are guest/exec.) They
 * start with default signals, a session of their own, no inherited descriptors but those named, and the environment
 * given. The agent's SIGCHLD handler reaps.
 */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct agent;

/* Embedded in its owner; in the agent's list from child_spawn() until ended() or child_kill(). A zeroed one is not
 * running. */
struct child {
        struct agent *agent;
        pid_t pid;
        void (*ended)(struct child *child, int wait_status);
        struct child *next;
};

struct child_spec {
        const char *path;
        char *const *argv;
        char *const *env;
        const int *fds; /* become 3, 4, ... in the child; the caller keeps its own */
        size_t fds_n;   /* at most CHILD_FDS_MAX */
};
#define CHILD_FDS_MAX 24

/* 0 or a negative errno, also of the child's execve(). ended() is called from the loop, once. */
int child_spawn(
        struct agent *agent, const struct child_spec *spec, void (*ended)(struct child *, int), struct child *child);

/* SIGKILL to its whole session; ended() is not called any more. Does nothing if it is not running. */
void child_kill(struct child *child);

bool child_is_running(const struct child *child);

/* From the SIGCHLD handler: true if pid was one of these. */
bool child_reaped(struct agent *agent, pid_t pid, int wait_status);
