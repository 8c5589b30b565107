/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Between control.c (one conversation) and control_server.c (all of them). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <event2/event_struct.h>

#include "guest/control.h"
#include "proto/wire/frame.h"

/* What a conversation may keep of its reader's memory between frames, and what all readers may hold together. */
#define CONTROL_READER_KEEP_BYTES (16u * 1024u)
#define CONTROL_READERS_MAX_BYTES (8u * 1024u * 1024u)

struct control_server {
        struct agent *agent;
        int listen_fd;
        int vsock_fd; /* /dev/vsock, to ask for our own CID; -1 where there is none */
        struct event acceptable, retry;
        struct control *oldest, *newest;
        size_t n;
        size_t reader_bytes;
        uint8_t buffer[64 * 1024]; /* what recv() filled last: conversations take turns */
};

int control_new(struct control_server *server, int fd, struct control **ret);
void control_free(struct control *c);
bool control_is_silent(const struct control *c);
struct control *control_newer(const struct control *c);

/* A conversation's Shutdown. */
void control_shutdown(struct control *c, const Wb__Shutdown *m);

/* Counts a reader that now holds `room`; *charged is what it held before. -ENOBUFS if that is too much for all
 * together. */
int control_server_charge(struct control_server *server, size_t *charged, size_t room);
void control_server_unlink(struct control_server *server, size_t charged);
