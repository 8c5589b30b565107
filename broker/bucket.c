/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/bucket.h"

#include <assert.h>

#include "proto/base/clock.h"

static uint64_t min_u64(uint64_t a, uint64_t b)
{
        return a < b ? a : b;
}

/*
 * Whole seconds and the rest are added apart, and the fraction of a byte is
 * kept: a slow bucket polled often would otherwise never fill.
 */
static void refill(struct bucket *b, uint64_t now_ns)
{
        assert(now_ns >= b->updated_ns);

        uint64_t elapsed_ns = now_ns - b->updated_ns;
        uint64_t elapsed_s = elapsed_ns / NSEC_PER_SEC;
        uint64_t missing_bytes = b->burst_bytes - b->level_bytes;

        b->updated_ns = now_ns;
        if (elapsed_s > missing_bytes / b->rate_bps) {
                b->level_bytes = b->burst_bytes;
                b->residue = 0;
                return;
        }

        /* rate < 2^40 and rest < 2^30, so the product needs 128 bits. */
        unsigned __int128 part = (unsigned __int128)b->rate_bps * (elapsed_ns % NSEC_PER_SEC) + b->residue;
        uint64_t gained_bytes = elapsed_s * b->rate_bps + (uint64_t)(part / NSEC_PER_SEC);

        b->residue = (uint64_t)(part % NSEC_PER_SEC);
        b->level_bytes += min_u64(gained_bytes, missing_bytes);
        if (b->level_bytes == b->burst_bytes)
                b->residue = 0;
}

void bucket_init(struct bucket *b, struct bucket *parent, uint64_t rate_bps, uint64_t burst_bytes, uint64_t now_ns)
{
        assert(rate_bps <= BUCKET_RATE_MAX_BPS && burst_bytes <= BUCKET_BURST_MAX_BYTES);
        assert(!rate_bps || burst_bytes);

        *b = (struct bucket){
                .parent = parent,
                .rate_bps = rate_bps,
                .burst_bytes = burst_bytes,
                .level_bytes = burst_bytes,
                .updated_ns = now_ns,
        };
}

uint64_t bucket_peek(struct bucket *b, uint64_t want_bytes, uint64_t now_ns)
{
        for (; b && want_bytes; b = b->parent) {
                if (!b->rate_bps)
                        continue;
                refill(b, now_ns);
                want_bytes = min_u64(want_bytes, b->level_bytes);
        }
        return want_bytes;
}

void bucket_draw(struct bucket *b, uint64_t bytes)
{
        for (; b; b = b->parent) {
                if (!b->rate_bps)
                        continue;
                assert(bytes <= b->level_bytes);
                b->level_bytes -= bytes;
        }
}

uint64_t bucket_wait_ns(struct bucket *b, uint64_t want_bytes, uint64_t now_ns)
{
        uint64_t wait_ns = 0;

        for (; b; b = b->parent) {
                if (!b->rate_bps)
                        continue;
                refill(b, now_ns);

                uint64_t goal_bytes = min_u64(want_bytes, b->burst_bytes);
                if (goal_bytes <= b->level_bytes)
                        continue;

                unsigned __int128 need = (unsigned __int128)(goal_bytes - b->level_bytes) * NSEC_PER_SEC - b->residue;
                uint64_t ns = (uint64_t)((need + b->rate_bps - 1) / b->rate_bps);
                if (ns > wait_ns)
                        wait_ns = ns;
        }
        return wait_ns;
}
