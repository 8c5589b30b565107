/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The agent's own process: undoes what a careless supervisor left, and protects itself from its workloads. */

#include <sys/resource.h>

/*
 * Signals, umask, priority, groups, folder, descriptors: as a program that was started well would find them. What
 * cannot be had is left. Where descriptors 0 to 2 are closed they become /dev/null. *ret_nofile is the descriptor limit
 * that was inherited; the agent's own is raised.
 */
void self_normalise(struct rlimit *ret_nofile);

/* What it ignores, and a child is not to. */
#define SELF_IGNORED_N 2
extern const int self_ignored[SELF_IGNORED_N];

/*
 * glibc raises these thresholds by itself when large blocks come and go, and then keeps what was freed; a guest wants
 * its memory back.
 */
void self_bound_heap(void);

/* Out of reach of the OOM killer as far as allowed, and of ptrace and /proc/PID reads of any other user. */
void self_protect(void);

/*
 * Wipes the environment, also as /proc/PID/environ shows it, but for what the agent needs of it: NOTIFY_SOCKET, which
 * *ret_notify_socket points at (or NULL) and the caller frees.
 */
void self_forget_environment(char **ret_notify_socket);

/* sd_notify(3): "READY=1" to the service manager's socket; nothing without one. */
void self_notify(const char *notify_socket, const char *state);
