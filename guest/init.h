/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* PID 1: puts a bare kernel's world in order before the agent serves, and ends it. (Reaping is the agent's SIGCHLD
 * handler.) */

/* Mounts what is not mounted yet, console, modules, loopback. What fails is logged: a container as PID 1 may have none
 * of the rights. */
void init_prepare(void);

enum init_end {
        INIT_POWER_OFF,
        INIT_REBOOT,
};

/* All processes end, filesystems are synced and read-only, then the machine ends. Answers only where the kernel refuses
 * (a container). */
void init_finish(enum init_end end);

/* From a service: has the system's own init do the same. 0 or a negative errno. */
int init_ask(enum init_end end);
