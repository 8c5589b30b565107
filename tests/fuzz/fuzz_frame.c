/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of frames: the same payloads in the same order whatever the pieces, and memory by what came, not by what was
 * announced. */
#include <errno.h>
#include <string.h>

#include "proto/wire/frame.h"
#include "proto/wire/limits.h"
#include "tests/fuzz/fuzz.h"

struct outcome {
        int r;
        size_t frames;
        size_t bytes;
        uint64_t sum; /* of lengths and payloads, in order (FNV-1a) */
};

static void add(struct outcome *o, const uint8_t *payload, size_t n)
{
        o->frames++;
        o->bytes += n;
        o->sum = (o->sum ^ n) * UINT64_C(1099511628211);
        for (size_t i = 0; i < n; i++)
                o->sum = (o->sum ^ payload[i]) * UINT64_C(1099511628211);
}

static struct outcome read_all(const uint8_t *data, size_t n, size_t piece)
{
        struct frame_reader reader = {0};
        struct outcome o = {0};
        size_t at = 0;

        do {
                size_t k = min_size(piece, n - at);
                const uint8_t *p = data + at, *payload;
                size_t payload_n;

                at += k;
                while (!(o.r = frame_read(&reader, &p, &k, &payload, &payload_n))) {
                        MUST(payload_n <= WB_FRAME_MAX_BYTES);
                        add(&o, payload, payload_n);
                }
                MUST(o.r == -EMSGSIZE || (o.r == FRAME_E_MORE && !k));
                MUST(reader.room <= 2 * n + 1024);
        } while (at < n && o.r == FRAME_E_MORE);
        frame_reader_done(&reader);
        return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
        struct outcome whole = read_all(data, n, SIZE_MAX), pieces = read_all(data, n, 5), bytes = read_all(data, n, 1);

        MUST(whole.r == bytes.r && whole.frames == bytes.frames && whole.bytes == bytes.bytes &&
                whole.sum == bytes.sum);
        MUST(whole.r == pieces.r && whole.frames == pieces.frames && whole.bytes == pieces.bytes &&
                whole.sum == pieces.sum);
        return 0;
}
