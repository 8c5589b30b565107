/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where the two sides meet (INTERFACES.md, Transports): vsock (AF_VSOCK), hybrid (unix socket PATH with a CONNECT line;
 * what a guest dials arrives at PATH_PORT), unix (DIR/PORT).
 */

#include <stdbool.h>
#include <stdint.h>

enum transport_kind {
        TRANSPORT_UNIX,
        TRANSPORT_HYBRID,
        TRANSPORT_VSOCK,
};

struct transport {
        enum transport_kind kind;
        const char *path; /* unix: the directory; hybrid: the base path; vsock: NULL. Borrowed. */
        uint32_t cid;     /* vsock: of the guest */
};

/*
 * Listening sockets, non-blocking and close-on-exec. A unix socket that nobody listens on any more is replaced, a
 * living one is -EADDRINUSE. *ret_fd is the caller's. host side: unix DIR/port, hybrid PATH_port, vsock port on any
 * CID. guest side (transport_listen_guest): unix DIR/port, vsock port; hybrid is vsock inside.
 */
int transport_listen_host(const struct transport *t, uint32_t port, int *ret_fd);
int transport_listen_guest(const struct transport *t, uint32_t port, int *ret_fd);

/*
 * Dials a port of the guest from the host; blocking, until deadline (CLOCK_MONOTONIC). Retries what heals by itself: no
 * socket yet, the guest's driver or listener not up (hybrid closes without a word), a full backlog. *ret_fd is a
 * non-blocking socket at the first byte of the conversation. 0, -ETIMEDOUT with what was last wrong in *ret_last (a
 * negative errno), or what cannot heal (-EACCES, -EINVAL, -ENAMETOOLONG).
 */
int transport_dial_guest(const struct transport *t, uint32_t port, uint64_t deadline_ns, int *ret_fd, int *ret_last);

/* Dials a port of the host from inside the guest; non-blocking: *ret_fd may be connecting still. 0 or a negative errno.
 */
int transport_dial_host(const struct transport *t, uint32_t port, int *ret_fd);

/*
 * The same as transport_dial_guest() for an event loop: one attempt as a state machine that never blocks.
 *     transport_dial_start(); then, while it answers TRANSPORT_E_AGAIN, wait for *ret_events (POLLIN or POLLOUT) on
 * d->fd and call transport_dial_continue(). 0: connected, take the descriptor with transport_dial_steal(). A negative
 * errno: failed and closed; transport_error_heals() tells whether to start again.
 */
struct transport_dial {
        struct transport transport;
        uint32_t port;
        int fd;
        int state;         /* private, as is what follows */
        unsigned char got; /* of the OK line */
        char line[32];
};
#define TRANSPORT_E_AGAIN 1
int transport_dial_start(struct transport_dial *d, const struct transport *t, uint32_t port, short *ret_events);

/* The same from behind the connect(): fd, which is the dial's from here on, is a connected unix socket of the target.
 */
int transport_dial_adopt(struct transport_dial *d, const struct transport *t, uint32_t port, int fd, short *ret_events);
int transport_dial_continue(struct transport_dial *d, short *ret_events);
int transport_dial_steal(struct transport_dial *d);
void transport_dial_done(struct transport_dial *d);

/* Does a failed attempt to dial heal by itself (socket, driver, listener not up yet; backlog full)? error is a negative
 * errno. */
bool transport_error_heals(int error);

/* The CID of a vsock peer (getpeername); 0 or a negative errno. */
int transport_peer_cid(int fd, uint32_t *ret_cid);
