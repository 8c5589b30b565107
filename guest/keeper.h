/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where there is no cgroup to hold an exec's processes, a keeper does: a small process of the agent's own between it
 * and the command, the subreaper of all that the command starts (prctl(2)), setsid or not. It says how the command
 * ended, stays until the last of them is gone, and kills them all when it is told to, or when the agent goes.
 */

#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "guest/spawn.h"

/* Over the report pipe: first the command's pid, before it is executed; then its end. */
struct keeper_report {
        pid_t pid;
        bool ended;
        int wait_status;
        struct rusage usage;
};

/* What the agent sends to the keeper's pid to have all killed. */
#define KEEPER_KILL SIGUSR1

/* In the child that becomes the keeper, with all signals blocked; never returns. */
_Noreturn void keeper_run(const struct spawn *spec, int status_fd);
