/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One connection to a forwarded port: from accept() to the agent's conversation and to both ends. Between forward.c,
 * which listens, and forward_link.c.
 */

#include <stdbool.h>
#include <stdint.h>

#include <event2/event.h>

#include "proto/wire/transport.h"

struct forward_link;

struct forward_links {
        struct event_base *base;
        const struct transport *target;
        uint16_t guest_port;
        uint64_t connect_ms;
        unsigned n;
        void (*freed)(struct forward_links *links); /* one more may be taken */
};

/* fd is the link's from here on, also when this fails. It frees itself. 0 or a negative errno. */
int forward_link_new(struct forward_links *links, int fd);
