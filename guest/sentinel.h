/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A connection to the host over which nothing is said: when the vsock device drops all connections at once, as it does
 * in a machine that was resumed, this one tells of it, whoever else speaks with the host at that moment. Only where a
 * broker listens (WB_PORT_SERVICE), and never over the unix transport. It needs no hypervisor's device, as the other
 * sources of guest/resume.h do.
 */

struct agent;
struct sentinel;

/* 0 or -ENOMEM. */
int sentinel_new(struct agent *agent, struct sentinel **ret);
void sentinel_free(struct sentinel *s); /* takes NULL */

/* A connection of this life, in the place of the one before; if the host takes none, there is none. A broker that goes
 * away later is dialled again now and then. */
void sentinel_post(struct sentinel *s);

/* Looks now, as resume_look() does. */
void sentinel_look(struct sentinel *s);

/* Before a snapshot: the connection is closed. */
void sentinel_withdraw(struct sentinel *s);
