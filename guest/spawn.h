/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Starts a workload's process. The parent prepares everything; the child (spawn_child.c) makes system calls only, from
 * a clean slate: default signals, its own session, no descriptor but those named, and what the request asks for. It
 * never blocks the agent: whether the command was executed comes through a pipe that execve(2) closes.
 */

#include <linux/filter.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "guest/users.h"

#define SPAWN_FDS_MAX 64 /* one for each secret (WB_SECRETS_MAX) */

struct spawn_rlimit {
        int resource;
        struct rlimit value;
};

struct spawn {
        char *const *argv;
        char *const *env;
        const char *search; /* PATH, for an argv[0] without a slash */
        const char *cwd;    /* NULL: the user's home if it can be entered, else "/" */
        const struct identity *who;
        int stdio[3];
        bool terminal;  /* stdio[0] is to become the controlling terminal */
        const int *fds; /* become 3, 4, ... */
        size_t fds_n;
        int secrets_fd; /* of guest/secret_mount.h; -1: none */
        mode_t umask;
        int nice;
        bool nice_asked; /* else a failure to set it does not matter */
        const struct spawn_rlimit *rlimits;
        size_t rlimits_n;
        bool no_new_privs;
        bool caps_set;
        uint64_t caps;                    /* bit n: capability n of linux/capability.h */
        const struct sock_filter *filter; /* of system calls: in force before privileges go, after no_new_privs */
        size_t filter_n;                  /* 0: none */
        bool filter_asked;                /* else an agent that may not set one goes without */
        int cgroup_fd;                    /* -1: none */
        bool signals_cleared;             /* set by spawn(): no handler of the agent's is left, only what it ignores */
        int report_fd; /* not -1: a keeper stands between, and reports there (guest/keeper.h); the pid is the keeper's
                        */
};

/* Where the child failed. */
enum spawn_stage {
        SPAWN_INTERNAL, /* descriptors, session, terminal */
        SPAWN_CGROUP,
        SPAWN_FILES, /* the mount of secrets */
        SPAWN_NICE,
        SPAWN_RLIMIT, /* index: the resource */
        SPAWN_USER,   /* ids and groups */
        SPAWN_CAPS,
        SPAWN_SECCOMP,
        SPAWN_CWD,
        SPAWN_EXEC,
        SPAWN_INTERPRETER, /* the file is there, what it names as its interpreter is not */
};

struct spawn_failure {
        int stage; /* enum spawn_stage */
        int error; /* errno, positive */
        int index;
};

/*
 * The pipe through which a child tells: a struct spawn_failure, or the end of file once the command was executed. Made
 * before the child, so that its parent has little left to do afterwards: what either writes while both share their
 * memory is copied. *ret_read is non-blocking.
 */
int spawn_status_pipe(int *ret_read, int *ret_write);

/* status_fd is the pipe's end to write to; all descriptors stay the caller's. 0 or a negative errno. */
int spawn(const struct spawn *spec, int status_fd, pid_t *ret_pid);

/* In the child; never returns. */
_Noreturn void spawn_child(const struct spawn *spec, int status_fd);
