/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One vsock connection as the packets tell it: its state, its credit in both directions, and what is still to be said
 * to the guest. Pure: it knows no descriptor. stream.h owns the socket and does what connection_receive() answers.
 *
 *                 guest's REQUEST                        host's CONNECT line
 *                       |                                        |
 *                    DIALING --connection_dialed()--> OPEN <--RESPONSE-- REQUESTED
 *                                                      |
 *                     connection_host_closed(): ENDING -+- RST, or the guest has shut both ways
 *                                                   \   |
 *                                                   CLOSED   (from every state, by connection_close() too)
 *
 * What is to be said is a set of bits, not a queue, so that no guest can make it grow.
 *
 * Credit (virtio 1.2, 5.10.6.3) is counted in free-running 32-bit numbers, as the headers carry them.
 */

#include <stdbool.h>
#include <stdint.h>

#include "tools/wbvsock/packet.h"

enum connection_state {
        CONNECTION_DIALING,   /* the guest asked; the host's socket is being reached */
        CONNECTION_REQUESTED, /* the host asked; the guest has not answered */
        CONNECTION_OPEN,
        CONNECTION_ENDING, /* the host is gone and the guest knows: its RST is awaited */
        CONNECTION_CLOSED, /* at most a RST is still to be sent */
};

struct connection {
        uint32_t guest_port;
        uint32_t host_port;
        enum connection_state state;
        unsigned pending;   /* private: what is still to be said */
        uint8_t guest_shut; /* VIRTIO_VSOCK_SHUTDOWN_*: what the guest does no more */
        uint8_t host_shut;  /* the same of the host, as the guest is told */
        bool credit_asked;

        /* Guest to host. */
        uint32_t buf_alloc; /* what we hold at most */
        uint32_t received;  /* bytes that came */
        uint32_t forwarded; /* bytes of these that the host has taken */
        uint32_t told_forwarded;

        /* Host to guest. */
        uint32_t peer_buf_alloc;
        uint32_t peer_forwarded;
        uint32_t sent;
};

/* What the holder of the socket has to do after a packet. */
enum connection_action {
        CONNECTION_DO_NOTHING,
        CONNECTION_DO_ANSWER, /* now OPEN: the host gets its OK line */
        CONNECTION_DO_DATA,   /* p->len bytes are the host's; report them with connection_forwarded() */
        CONNECTION_DO_SHUT,   /* guest_shut has changed */
        CONNECTION_DO_CLOSE,  /* now CLOSED: what has come is still the host's, then close */
        CONNECTION_DO_ABORT,  /* now CLOSED: the guest broke the rules */
};

/* From the guest's REQUEST: DIALING. */
void connection_init_guest(struct connection *c, const struct packet *request, uint32_t buf_alloc);

/* From a host's CONNECT line: REQUESTED. */
void connection_init_host(struct connection *c, uint32_t guest_port, uint32_t host_port, uint32_t buf_alloc);

/* A packet that packet_check() let pass, of this connection. */
enum connection_action connection_receive(struct connection *c, const struct packet *p);

void connection_dialed(struct connection *c);

/* The host sends no more / takes no more: VIRTIO_VSOCK_SHUTDOWN_SEND, _RCV. Only in OPEN; else nothing. */
void connection_host_shut(struct connection *c, uint8_t flags);

/* The host is gone: OPEN becomes ENDING, the rest CLOSED. */
void connection_host_closed(struct connection *c);

/* Gives up: CLOSED, the guest is told by RST. */
void connection_close(struct connection *c);

/* The host has taken n more of the received bytes. */
void connection_forwarded(struct connection *c, uint32_t n);

/* How many bytes the guest can take. Asks the guest for an update, once, where it is none. */
uint32_t connection_credit(struct connection *c);

/* Whether host bytes may go to the guest at all, credit aside. */
bool connection_may_send(const struct connection *c);

/* Whether connection_control() has something. */
bool connection_has_control(const struct connection *c);

/* The next packet without payload, complete but for the guest's CID as destination; false: there is none. */
bool connection_control(struct connection *c, struct packet *ret);

/* The header for n bytes of payload that go to the guest, which are counted as sent. */
void connection_data(struct connection *c, uint32_t n, struct packet *ret);
