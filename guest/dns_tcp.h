/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * DNS over TCP on the loopback (RFC 7766): messages with their size before them, several at a time. Bounded: few
 * connections, each with room for one question; one that is idle, or does not read its answers, is closed.
 */

#include <stddef.h>
#include <stdint.h>

struct dns_tcp;
struct dns_tcp_connection;
struct event_base;

struct dns_tcp_handler {
        void (*message)(void *userdata, struct dns_tcp_connection *c, const uint8_t *message, size_t n);
        void (*closed)(void *userdata, struct dns_tcp_connection *c); /* c is gone after it */
};

/* userdata lives as long as the process. 0 or -ENOMEM. */
int dns_tcp_new(struct event_base *base, const struct dns_tcp_handler *handler, void *userdata, struct dns_tcp **ret);

/* Takes over a connection that was accepted; the oldest one makes room. */
void dns_tcp_open(struct dns_tcp *t, int fd);

/* One message. A connection that does not take it is closed soon, from the loop. */
void dns_tcp_send(struct dns_tcp_connection *c, const uint8_t *message, size_t n);
