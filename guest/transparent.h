/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Connections of programs that know of no proxy: who connects to an address of the pool means a name, and for that the
 * host's proxy is asked with a CONNECT. When it agrees the two are carried on as any pair. When it does not, a client
 * that speaks HTTP gets the proxy's own answer, so that the person sees why; one that speaks TLS an alert; and all
 * others a reset.
 */

struct carrier;
struct fake_pool;

/* fd, which is taken over, was accepted by a listener that gets the pool's connections. 0 or a negative errno. */
int transparent_open(struct carrier *c, struct fake_pool *pool, int fd);
