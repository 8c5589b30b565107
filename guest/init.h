/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* PID 1: puts a bare kernel's world in order before the agent serves, and ends it. (Reaping is the agent's SIGCHLD
 * handler.) */

/* The memory filesystems that were mounted with the kernel's own share of memory. */
struct init_memory {
        const char *paths[3]; /* static */
        size_t n;
};

/*
 * Mounts what is not mounted yet, console, modules, loopback. What fails is logged. own_kernel: false for a container's
 * first process, whose runtime has made its world: there only the kernel's filesystems are mounted where they lack.
 * Memory that is plugged in is used at once.
 */
void init_prepare(bool own_kernel, struct init_memory *ret);

enum init_end {
        INIT_POWER_OFF,
        INIT_REBOOT,
};

/* All processes end, filesystems are synced and read-only, then the machine ends. Answers only where the kernel refuses
 * (a container). */
void init_finish(enum init_end end);

/* From a service: has the system's own init do the same. 0 or a negative errno. */
int init_ask(enum init_end end);
