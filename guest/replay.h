/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The last bytes of an output stream, addressed by their offset since its start. It is both what is still to be sent
 * and what can be replayed: one copy of the bytes, between start and end. Memory grows with what came, up to
 * REPLAY_MAX_BYTES. Pure.
 */

#include <stddef.h>
#include <stdint.h>

#define REPLAY_MAX_BYTES  (256u * 1024u) /* while an exec lives */
#define REPLAY_KEPT_BYTES (64u * 1024u)  /* of an ended one (cases/README-exec.md) */

/* A zeroed one is empty. */
struct replay {
        uint8_t *bytes; /* mapped; room bytes, a power of two */
        size_t room;
        uint64_t start; /* of the oldest byte that is there */
        uint64_t end;   /* of the stream so far */
};

/*
 * Room for the next bytes: at most want (not 0), in one piece, fewer where the ring wraps or is full-grown. The oldest
 * bytes make way: the caller asks for no more than may be lost. 0 or -ENOMEM.
 */
int replay_space(struct replay *r, size_t want, uint8_t **ret_at, size_t *ret_n);

/* n bytes have been written there. */
void replay_commit(struct replay *r, size_t n);

/* Bytes from offset on, in one piece; NULL and 0 where offset is the end. offset lies within [start, end]. */
const uint8_t *replay_at(const struct replay *r, uint64_t offset, size_t *ret_n);

/* Keeps the last REPLAY_KEPT_BYTES, in as little memory as they need. If there is none for the copy, all stays as it
 * is. */
void replay_trim(struct replay *r);

void replay_done(struct replay *r);
