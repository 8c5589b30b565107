/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One side of a session: a non-blocking stream socket, what came from it and is not used up, what goes to it and is not
 * written. Between the two there may be TLS; then the buffers hold what is inside it. What the loop waits for is set by
 * peer_want() alone.
 */

#include <event2/event.h>
#include <event2/event_struct.h>
#include <stdbool.h>
#include <stddef.h>

#include "broker/buffer.h"
#include "broker/tls.h"

struct peer {
        int fd;          /* -1: not attached */
        struct tls *tls; /* its own; NULL: none */
        struct event readable;
        struct event writable;
        bool wants_read;
        bool wants_write;
        bool eof;      /* it sent its FIN, or reading failed: nothing more comes */
        bool reset;    /* reading failed: what came before may not be all */
        bool finished; /* our FIN is sent */
        bool broken;   /* writing failed: what goes to it is lost */
        struct buffer in;
        struct buffer out;
};

void peer_init(struct peer *p, struct budget *budget);

/* Owns fd from here on. step(fd, what, userdata) is called whenever something that was wanted is possible. */
void peer_attach(struct peer *p, struct event_base *base, int fd, event_callback_fn step, void *userdata);

/* tls is of this peer's fd, and the peer's from here on. Nothing may be buffered. */
void peer_set_tls(struct peer *p, struct tls *tls);

/* Closes; what is buffered is dropped. Idempotent; the peer can be attached again. */
void peer_close(struct peer *p);

void peer_want(struct peer *p, bool read, bool write);

/*
 * One read of at most `most` bytes into `in`. The bytes that came; 0 if none are there now or at the end (eof is set);
 * -ENOBUFS, -ENOMEM.
 */
ssize_t peer_fill(struct peer *p, size_t most);

/* Writes what it takes of `out`. The bytes written; broken is set where writing fails, and `out` is dropped. */
size_t peer_flush(struct peer *p);

/* Sends our FIN, in TLS a close_notify before it; idempotent. false: not yet, it has to be writable. */
bool peer_finish(struct peer *p);

/* Has the other end closed altogether (not only its direction)? Seen on unix and vsock sockets; a TCP peer shows it on
 * writing. */
bool peer_hung_up(const struct peer *p);
