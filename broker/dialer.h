/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Connects to one of several addresses: families interleaved, a further attempt every 250 ms or as soon as one fails,
 * the first that stands wins (RFC 8305). Dials exactly what it is given.
 */

#include <event2/event.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/dns_cache.h"
#include "broker/reason.h"

#define DIALER_STAGGER_MS 250u /* RFC 8305 8 */

struct dialer;

/*
 * Called once, from the loop, never from within dialer_start(). REASON_ALLOWED with a connected, non-blocking socket,
 * which is the callee's, and the address it is connected to (NULL: a unix socket); else REASON_UPSTREAM_* and -1. The
 * callee frees the dialer.
 */
typedef void (*dialer_done_fn)(void *userdata, enum reason reason, int fd, const struct dns_address *address);

/* addresses are copied; at least one. 0, -ENOMEM. */
int dialer_start(struct event_base *base, const struct dns_address *addresses, size_t addresses_n, uint16_t port,
        uint64_t timeout_ms, dialer_done_fn done, void *userdata, struct dialer **ret);

/* The same to a unix socket. path is copied. 0, -ENOMEM, -ENAMETOOLONG. */
int dialer_start_unix(struct event_base *base, const char *path, uint64_t timeout_ms, dialer_done_fn done,
        void *userdata, struct dialer **ret);

/* Gives up whatever is under way. Takes NULL. */
void dialer_free(struct dialer *d);
