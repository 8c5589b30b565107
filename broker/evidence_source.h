/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The sources of evidence, one file each; for evidence_gather.c. proc_fd is /proc/PID, opened: once the process has
 * ended nothing can be read through it, whoever has the number then. Each sets its own error. */

#include "broker/evidence.h"

void evidence_read_threads(int proc_fd, struct evidence_threads *ret);

/* Of a gVisor sandbox: is it one, and what runs below it? Behind evidence_read_threads(). */
void evidence_read_sandbox(int proc_fd, struct evidence_threads *t);

void evidence_read_cgroup(int proc_fd, struct evidence_cgroup *ret);

/* The same from texts: where the process is, where the monitor is, what is mounted where. */
struct cgroup_sources {
        const char *theirs;   /* /proc/PID/cgroup */
        const char *monitors; /* /proc/self/cgroup */
        const char *mounts;   /* /proc/self/mountinfo */
};
void evidence_find_cgroup(const struct cgroup_sources *sources, struct evidence_cgroup *ret);

void evidence_read_memory(int proc_fd, struct evidence_memory *ret);

/* The number at *text, behind blanks; moves *text behind it. False if none stands there, or too large a one. */
bool evidence_take_number(const char **text, int base, uint64_t *ret);

/* A file below a directory, as text. 0 or a negative errno; the caller frees *ret_text. */
int evidence_read_file(int dir_fd, const char *name, char **ret_text);
