/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One connection to a port of the host, begun and waited for in the loop. A unix listener whose backlog is full says so
 * at once, where others would have us wait: then it is tried again until the time is up.
 */

#include <stdint.h>

#include <event2/event_struct.h>

#include "proto/wire/transport.h"

/* Embedded; a zeroed one is idle. */
struct host_dial {
        struct event_base *base;
        const struct transport *transport;
        uint32_t port;
        int fd; /* -1 unless it connects */
        struct event event;
        uint64_t deadline_ns;
        void (*done)(struct host_dial *d, int result);
};

/*
 * done is called from the loop, once: result is the connected descriptor, the callee's, or a negative errno. 0, or a
 * negative errno and done is not called. base, transport, port and done are to be set before.
 */
int host_dial_start(struct host_dial *d, unsigned limit_ms);

/* done is not called any more. Idempotent. */
void host_dial_stop(struct host_dial *d);
