/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Answers the workloads' DNS questions: a name is put to the host's policy, and one that is allowed gets an address of
 * the pool. Nothing is forwarded anywhere. Part of the unprivileged process (guest/forwarder).
 */

#include "proto/wire/transport.h"

struct dns_stub;
struct event_base;
struct fake_pool;

/*
 * transport and pool live as long as the process. forbidden is called when the host's socket is not ours to connect to.
 * 0 or a negative errno.
 */
int dns_stub_new(struct event_base *base, const struct transport *transport, struct fake_pool *pool,
        void (*forbidden)(void *userdata), void *userdata, struct dns_stub **ret);

/* A bound UDP socket is served from here on. 0 or -ENOMEM. */
int dns_stub_serve_udp(struct dns_stub *s, int fd);

/* Takes over an accepted connection. */
void dns_stub_open_tcp(struct dns_stub *s, int fd);
