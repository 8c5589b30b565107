/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Between streams.c, which holds the table, and stream.c, which holds one socket. */

#include "tools/wbvsock/stream.h"

/* --max-connections at most: two of each fit into the descriptors that Linux gives to a process (fs.nr_open). */
#define STREAMS_MOST 65536u

/* Charged against the origin's bound; in no list but `all`. 0, -EUSERS, -ENOMEM. */
int streams_new(struct streams *ss, enum stream_origin origin, struct stream **ret);
void streams_free(struct stream *s);

/* Into and out of the table, by the connection's ports. */
void streams_enter(struct stream *s);
void streams_leave(struct stream *s);

void streams_ready(struct stream *s);
void streams_unready(struct stream *s);

/* A port for a connection from the host that no other one to guest_port has. */
uint32_t streams_pick_host_port(struct streams *ss, uint32_t guest_port);

/* A warning that a guest can provoke: not more than one in ten seconds. */
void streams_complain(struct streams *ss, int error, const char *what);

/* Closes the socket and forgets the backlog; idempotent. */
void stream_close_socket(struct stream *s);
