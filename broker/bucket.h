/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Token bucket over bytes.
 *
 * A bucket fills at rate_bps bytes per second up to burst_bytes and is drawn from as bytes are forwarded. It is pure:
 * the caller passes the time, which must never go backwards (CLOCK_MONOTONIC, nanoseconds). It is meant to be embedded;
 * a zeroed bucket is unlimited.
 *
 * Buckets form a chain (rule -> VM): bytes may pass when every bucket of the chain grants them. A parent must outlive
 * its children.
 */

#include <stdint.h>

/* Larger rates and bursts are refused by policy_load; keeps products below 2^63. */
#define BUCKET_RATE_MAX_BPS    (UINT64_C(1) << 40)
#define BUCKET_BURST_MAX_BYTES (UINT64_C(1) << 40)

struct bucket {
        struct bucket *parent; /* NULL at the root */
        uint64_t rate_bps;     /* 0: unlimited */
        uint64_t burst_bytes;
        uint64_t level_bytes; /* what may pass now */
        uint64_t residue;     /* of a byte, in 1/NSEC_PER_SEC */
        uint64_t updated_ns;
};

/* Starts full. rate_bps 0 makes it unlimited; burst_bytes must not be 0 otherwise. */
void bucket_init(struct bucket *b, struct bucket *parent, uint64_t rate_bps, uint64_t burst_bytes, uint64_t now_ns);

/* How many of want_bytes may pass now; takes nothing. 0 means wait: see bucket_wait_ns(). */
uint64_t bucket_peek(struct bucket *b, uint64_t want_bytes, uint64_t now_ns);

/* Draws bytes that bucket_peek() granted at the same now_ns, from the whole chain. */
void bucket_draw(struct bucket *b, uint64_t bytes);

/*
 * How long until at least want_bytes may pass; a bucket whose burst is smaller is asked for its burst. 0 if they may
 * pass now.
 */
uint64_t bucket_wait_ns(struct bucket *b, uint64_t want_bytes, uint64_t now_ns);
