/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the broker's process takes from itself before it reads a guest's first byte, and before it starts a thread: new
 * privileges, dumps, the file system (Landlock: the audit's directory and nothing else; no TCP listener), and system
 * calls that it has no use for (seccomp).
 */

/* 0, or a negative errno that has been logged. A kernel without Landlock is a warning. */
int sandbox_enter(const char *audit_dir);

/* No core dump, and nobody of the same user may look into this process; part of sandbox_enter(), and for the monitor.
 */
void sandbox_forbid_dumps(void);
