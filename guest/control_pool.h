/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What all conversations share, between control.c (one of them) and control_server.c (which accepts them). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/wb.pb-c.h"

struct agent;
struct control;

/* What a conversation may keep of its reader's memory between frames, and what all readers may hold together. */
#define CONTROL_READER_KEEP_BYTES (16u * 1024u)
#define CONTROL_READERS_MAX_BYTES (8u * 1024u * 1024u)

struct control_pool {
        struct agent *agent;
        int (*open)(struct control *c, const Wb__ToAgent *m); /* guest/opening */
        struct control *oldest, *newest;
        size_t n;
        size_t reader_bytes;
        uint8_t buffer[64 * 1024]; /* what recv() filled last: conversations take turns */
};

/* fd is the conversation's, if this succeeds. 0 or -ENOMEM. */
int control_new(struct control_pool *pool, int fd);
void control_free(struct control *c);

bool control_is_silent(const struct control *c); /* has not said anything yet */
struct control *control_newer(const struct control *c);
