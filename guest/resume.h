/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A resume that nobody announced: looks at what a machine can know of it (VMClock, what the kernel's vmgenid driver
 * says, the vsock device) and brings the guest to a standstill at once. What counts is judged in resume_judge.h.
 */

#include <stdbool.h>
#include <stddef.h>

struct agent;
struct resume_watch;

/*
 * vmclock_path is where VMClock is to be looked for, NULL for nowhere. What this machine has not got is not watched,
 * and over the unix transport, in somebody else's kernel, VMClock alone is. 0 or -ENOMEM.
 */
int resume_watch_new(struct agent *agent, const char *vmclock_path, struct resume_watch **ret);
void resume_watch_free(struct resume_watch *w); /* takes NULL */

/* Has the kernel a driver for a generation id (ACPI's, or the device tree's)? */
bool resume_has_vmgenid(void);

/* Looks now. To be called before anything is begun that must not happen in a clone; it is cheap. */
void resume_look(struct resume_watch *w);

/* The same for an activation that is about to thaw: true if what it put in order is not the machine that it runs in.
 * The guest stands still then, and the activation fails. */
bool resume_came_meanwhile(struct resume_watch *w);

/*
 * A connection with the host broke: recv(2) answered error (errno) for fd. A vsock peer that closes, or dies, or
 * refuses ends our reading in order; an error is pending only where the device dropped all connections at once, as it
 * does when the machine is resumed (virtio 1.2, 5.10.6.7).
 */
void resume_connection_broke(struct resume_watch *w, int fd, int error);

/* An activation begins: what has been told by now is of the past. */
void resume_take_note(struct resume_watch *w);

/* What is watched; and how often it told, by what the last time. For `wbctl info`. */
void resume_describe(const struct resume_watch *w, char *sources, size_t sources_room, char *seen, size_t seen_room);
