/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A connection to the host over which nothing is said: when the vsock device drops all connections at once, as it does
 * in a machine that was resumed, this one tells of it, whoever else speaks with the host at that moment. Only where a
 * broker listens (WB_PORT_SERVICE), and never over the unix transport.
 */

struct agent;
struct sentinel;

/* 0 or -ENOMEM. */
int sentinel_new(struct agent *agent, struct sentinel **ret);
void sentinel_free(struct sentinel *s); /* takes NULL */

/* A connection of this life, in the place of the one before; if the host takes none, there is none. */
void sentinel_post(struct sentinel *s);

/* Before a snapshot: the connection is closed. */
void sentinel_withdraw(struct sentinel *s);
