/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Execs: commands that the host runs in the guest, from request to result. exec_table owns all of them; each has a
 * cgroup of its own, its streams, and a result that is kept until it is taken or pushed out by EXEC_KEPT_MAX newer
 * ones.
 */

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "guest/control.h"

struct exec_table;

/* One exec's part of the statistics, and what it points at. */
struct exec_statistics {
        Wb__ExecStatistics message;
        Wb__ExecLimits limits;
};

#define EXEC_KEPT_MAX 64 /* ended execs whose status is kept (cases/README-exec.md) */

/* Called by control.c for the opening message of a conversation; the exec takes the conversation over
 * (control_set_handler). */
void exec_open_start(struct exec_table *t, struct control *c, const Wb__ExecStart *m);
void exec_open_attach(struct exec_table *t, struct control *c, const Wb__ExecAttach *m);
void exec_open_kill(struct exec_table *t, struct control *c, const Wb__ExecKill *m);
void exec_open_list(struct exec_table *t, struct control *c);
void exec_open_limit(struct exec_table *t, struct control *c, const Wb__ExecLimit *m);

/* base is the agent's loop. The table reaps its own children; a PID 1 reaps the rest (guest/init). */
int exec_table_new(struct agent *agent, struct exec_table **ret);
void exec_table_free(struct exec_table *t); /* kills all */

/* Workloads as a whole, for activation and quiesce: the parent cgroup's freezer. 0, -EOPNOTSUPP without cgroups, or a
 * negative errno. */
int exec_table_freeze(struct exec_table *t);
int exec_table_thaw(struct exec_table *t);

/* The memory of all execs together, 0 for no ceiling; see cgroup_tree_ceiling(). */
int exec_table_ceiling(struct exec_table *t, uint64_t bytes);

/* Takes the file of this secret away from those that have it mounted. */
void exec_table_forget_secret(struct exec_table *t, const char *name);

unsigned exec_table_running(const struct exec_table *t);

/* Those that have processes now, at most room of them, oldest first; texts are the table's, and live until the loop
 * goes on. Answers how many. */
size_t exec_table_statistics(const struct exec_table *t, struct exec_statistics *ret, size_t room);

/* An ended child that is not the agent's own otherwise: called by the SIGCHLD handler with what waitid() said. True if
 * it was an exec's leader. */
bool exec_table_reaped(struct exec_table *t, pid_t pid, int wait_status, const struct rusage *usage);
