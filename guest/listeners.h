/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The sockets on the loopback that the forwarder serves. The agent opens and keeps them, so that nobody is refused
 * while a forwarder restarts: the proxy's, and where the guest network is to be transparent, the DNS stub's and those
 * that get the connections to the pool's addresses.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guest/forwarder.h"
#include "guest/report.h"

/* Where the kernel cannot bring all ports of the pool to one listener, so many have one each. */
#define LISTENERS_PORTS_MAX 16u

struct listeners {
        int fds[FORWARDER_SOCKETS_MAX];
        char roles[FORWARDER_SOCKETS_MAX + 1]; /* a letter for each of fds */
        size_t n;
        int steer_fd;   /* -1: none; see guest/steer, guest/redirect */
        bool has_names; /* the DNS stub can be reached */
};
#define LISTENERS_NONE ((struct listeners){.steer_fd = -1})

/*
 * What cannot be had of the transparent network is said in the report, and the proxy is there without it. 0, or a
 * negative errno (nothing is open then).
 */
int listeners_open(struct listeners *l, bool transparent, const uint16_t *ports, size_t ports_n, struct report *report);

/* Idempotent. */
void listeners_close(struct listeners *l);
