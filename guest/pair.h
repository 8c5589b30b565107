/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Carries bytes between a workload's connection and one of the host's, each direction by itself, and looks at none of
 * them. Also who counts: all connections of this process together are bounded.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/wire/transport.h"

struct event_base;

#define CARRIER_CONNECTIONS_MAX 512u /* Firecracker allows a guest 1,023; the rest wait in the backlog */
#define CARRIER_DIAL_LIMIT_MS   10000u

/* What the connections of this process share. */
struct carrier {
        struct event_base *base;
        struct transport transport;
        size_t connections;
        void (*room_changed)(struct carrier *c, bool has_room); /* may another be accepted? */
};

void carrier_enter(struct carrier *c);
void carrier_leave(struct carrier *c);

/*
 * For the connection of a workload at fd, which is taken over, one to the host's egress port is made. 0 or a negative
 * errno.
 */
int pair_open(struct carrier *c, int fd);

/*
 * Two that are connected, both taken over, and the place that carrier_enter() gave; n bytes that the host has sent
 * already are passed on first. ended is called once, from the loop or from here. 0, or -ENOMEM (then all is undone).
 */
#define PAIR_FIRST_MAX_BYTES (32u * 1024u)
int pair_adopt(struct carrier *c, int inner_fd, int outer_fd, const void *first, size_t n,
        void (*ended)(void *userdata), void *userdata);

/* Closes so that the peer sees a reset. Answers -1. */
int pair_reset_fd(int fd);
