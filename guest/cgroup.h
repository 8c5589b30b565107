/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The agent's part of the cgroup v2 tree. The agent moves itself to a leaf beside the workloads, so that the cgroup it
 * was started in may hand controllers down:
 *
 *     where it was started/wbagent         the agent and its own children
 *     where it was started/exec/ID         one for each exec
 *
 * An exec's cgroup is named, not held: it may outlive its exec without costing a descriptor.
 */

#include <stdbool.h>
#include <stdint.h>

struct cgroup_tree;

/* 0 is no limit. */
struct cgroup_limits {
        uint64_t memory_bytes;
        uint64_t pids;
        uint32_t cpu_percent; /* of one core */
        uint64_t io_bps;      /* bytes a second, read and written each, of each disk */
};

struct cgroup_usage {
        uint64_t oom_kills;
        uint64_t memory_bytes;      /* now */
        uint64_t pids;              /* now */
        uint64_t peak_memory_bytes; /* 0: this kernel does not say */
        uint64_t user_ns;
        uint64_t system_ns;
};

/* 0; -EOPNOTSUPP where no cgroup v2 can be written to (said in the log). */
int cgroup_tree_new(struct cgroup_tree **ret);
void cgroup_tree_free(struct cgroup_tree *t);

/* What of these limits cannot be set here ("memory", "pids", "cpu", "io"), or NULL. t may be NULL. */
const char *cgroup_missing(const struct cgroup_tree *t, const struct cgroup_limits *limits);

/* Bits, in the order in which they are set: memory comes last, since a limit below what is used kills at once. */
enum {
        CGROUP_LIMIT_PIDS = 1 << 0,
        CGROUP_LIMIT_CPU = 1 << 1,
        CGROUP_LIMIT_IO = 1 << 2,
        CGROUP_LIMIT_MEMORY = 1 << 3,
};

/* The bits of those that are not 0. */
unsigned cgroup_limits_asked(const struct cgroup_limits *limits);

#define CGROUP_E_REFUSED 1

/*
 * Sets those of to that which names; 0 lifts. Those whose controller is not there are passed over: cgroup_missing()
 * tells before. CGROUP_E_REFUSED: the kernel does not take a value, *ret_which names the limit, and all are as in from
 * again.
 */
int cgroup_limit(struct cgroup_tree *t, const char *name, unsigned which, const struct cgroup_limits *to,
        const struct cgroup_limits *from, const char **ret_which);

/* What the kernel has in force for it now. */
struct cgroup_limits cgroup_limits_in_force(struct cgroup_tree *t, const char *name);

/* Of all execs together; 0: none. 0, -EOPNOTSUPP (no memory controller; t may be NULL), or a negative errno. What is
 * used above it is reclaimed, or killed, before this answers. */
int cgroup_tree_ceiling(struct cgroup_tree *t, uint64_t bytes);

/*
 * Makes the cgroup and limits it. *ret_fd, close-on-exec, is for clone3(2) and the caller's to close. CGROUP_E_REFUSED:
 * the kernel does not take a value, and *ret_which names the limit.
 */
int cgroup_make(struct cgroup_tree *t, const char *name, const struct cgroup_limits *limits, int *ret_fd,
        const char **ret_which);

/* SIGKILL to all that is in it: at once by cgroup.kill, else (Linux before 5.14) frozen first and one by one. 0 or a
 * negative errno. */
int cgroup_kill(struct cgroup_tree *t, const char *name);

/* Sends signal to those of its processes whose process group is pgid. 0, -ESRCH (none), or a negative errno. */
int cgroup_signal_group(struct cgroup_tree *t, const char *name, int pgid, int signal);

/* 0; -EBUSY as long as a process lives in it; or another negative errno. */
int cgroup_remove(struct cgroup_tree *t, const char *name);

/* What is not told stays 0. */
void cgroup_usage(struct cgroup_tree *t, const char *name, struct cgroup_usage *ret);

/* An inotify(7) watch on the cgroup becoming empty; the descriptor is the caller's. The watch descriptor or a negative
 * errno. */
int cgroup_watch(struct cgroup_tree *t, const char *name, int inotify_fd);

/* All execs at once; returns when the kernel says it is so, or -ETIMEDOUT after 500 ms. */
int cgroup_tree_freeze(struct cgroup_tree *t, bool frozen);
