/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a server says in a handshake, joined. Properties: what comes out does not depend on the pieces; it is joined
 * already, so that joining it again changes nothing; the messages' bytes are those that came in, in order; nothing is
 * held but a part of one message.
 */
#include <string.h>

#include "broker/handshake_join.h"
#include "tests/fuzz/fuzz.h"

static int join(
        const uint8_t *data, size_t n, size_t piece, struct budget *budget, struct buffer *ret_out, size_t *ret_held)
{
        struct handshake_join j;
        int r = 0;

        handshake_join_init(&j, budget);
        for (size_t at = 0; at < n && r == 0;) {
                size_t taken = min_size(piece, n - at);

                r = handshake_join_feed(&j, data + at, taken, ret_out);
                at += taken;
        }
        *ret_held = buffer_used(&j.message);
        MUST(*ret_held < HANDSHAKE_JOIN_MESSAGE_MAX);
        handshake_join_done(&j);
        return r;
}

/* The payloads of the handshake records up to the first record that is neither that nor an alert. */
static size_t collect(const uint8_t *data, size_t n, uint8_t *ret)
{
        size_t got = 0;

        for (size_t at = 0; n - at >= 5 && (data[at] == 21 || data[at] == 22);) {
                size_t record = min_size((size_t)data[at + 3] << 8 | data[at + 4], n - at - 5);

                if (data[at] == 22) {
                        memcpy(ret + got, data + at + 5, record);
                        got += record;
                }
                at += 5 + record;
        }
        return got;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
        static const size_t pieces[] = {1, 7, 4096};
        struct budget budget = {.most_bytes = 64u << 20};
        struct buffer whole, pieced, again;
        size_t held, pieced_held, again_held;

        buffer_init(&whole, &budget);
        buffer_init(&again, &budget);
        int r = join(data, n, SIZE_MAX, &budget, &whole, &held);

        for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++) {
                buffer_init(&pieced, &budget);
                MUST(join(data, n, pieces[i], &budget, &pieced, &pieced_held) == r);
                MUST(buffer_used(&pieced) == buffer_used(&whole) && pieced_held == held);
                MUST(!memcmp(buffer_data(&pieced), buffer_data(&whole), buffer_used(&whole)));
                buffer_done(&pieced);
        }
        MUST(!join(buffer_data(&whole), buffer_used(&whole), SIZE_MAX, &budget, &again, &again_held) &&
                again_held == 0);
        MUST(buffer_used(&again) == buffer_used(&whole));
        MUST(!memcmp(buffer_data(&again), buffer_data(&whole), buffer_used(&whole)));
        if (r == 0) {
                uint8_t *in = malloc(n + 1), *out = malloc(buffer_used(&whole) + 1);
                size_t in_n = collect(data, n, in), out_n = collect(buffer_data(&whole), buffer_used(&whole), out);

                MUST(in_n == out_n + held && !memcmp(in, out, out_n));
                free(in);
                free(out);
        }
        buffer_done(&whole);
        buffer_done(&again);
        MUST(budget.used_bytes == 0);
        return 0;
}
