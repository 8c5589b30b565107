/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * An opaque connection: bytes go both ways between two peers, through a borrowed pipe with splice(2), or through a
 * buffer where a socket cannot splice. Each side's FIN is passed on by itself once everything before it has been.
 * Nothing is held but what is in the pipe; who does not read stops who writes.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/limits.h"
#include "broker/peer.h"
#include "broker/pipe_pool.h"

struct relay_direction {
        struct peer *from;
        struct peer *to;
        struct pipe pipe; /* borrowed while it holds bytes */
        bool copies;      /* cannot splice */
        bool ended;       /* the FIN is passed on, or nothing can be */
        struct limits_waiter waiter;
        uint64_t wait_ns;     /* a limit: nothing may be read for so long after the last pump */
        uint64_t moved_bytes; /* read from `from` since the relay began */
};

struct relay {
        struct relay_direction up; /* client to server */
        struct relay_direction down;
        struct pipe_pool *pool;
        struct limits *limits;
        int rule; /* the owner changes it with the policy */
};

enum relay_outcome {
        RELAY_GOES_ON,
        RELAY_ENDED,     /* both directions, or the client is gone: close both */
        RELAY_QUOTA,     /* the quota is used up: close both */
        RELAY_NO_MEMORY, /* of the VM's budget, or no pipe: close both */
};

/* Bytes already in client->in go first; those in either out are written first of all. 0, or -ENOBUFS, -ENOMEM. */
int relay_init(struct relay *r, struct peer *client, struct peer *server, struct pipe_pool *pool, struct limits *limits,
        int rule);
void relay_done(struct relay *r); /* idempotent; takes a zeroed one */

/* Before its limits change or go; it waits anew with the next pump. */
void relay_leave_limits(struct relay *r);

/* wake(userdata) is called when a limit that holds bytes back lets some pass sooner than relay_want() told. */
void relay_on_turn(struct relay *r, void (*wake)(void *userdata), void *userdata);

/* Moves what can be moved, bounded. */
enum relay_outcome relay_pump(struct relay *r, uint64_t now_ns);

/* Sets what the peers wait for. The time until a limit lets more pass, 0: no such wait. */
uint64_t relay_want(struct relay *r);
