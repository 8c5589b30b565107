/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A frame's payload, in both directions: what is accepted can be packed into a frame, and packed a second time gives
 * the same bytes. (It may then be refused: protobuf-c keeps unknown fields, and a field number 0 that was spelled in
 * two bytes is written in one.)
 */
#include <stdbool.h>
#include <string.h>

#include "proto/wire/codec.h"
#include "proto/wire/frame.h"
#include "proto/wire/limits.h"
#include "tests/fuzz/fuzz.h"

struct packed {
        uint8_t *frame;
        size_t n;
};

static void check_packed(const struct packed *p)
{
        uint8_t header[FRAME_HEADER_BYTES];

        MUST(p->n >= FRAME_HEADER_BYTES && p->n - FRAME_HEADER_BYTES <= WB_FRAME_MAX_BYTES);
        frame_header(p->n - FRAME_HEADER_BYTES, header);
        MUST(!memcmp(header, p->frame, FRAME_HEADER_BYTES));
}

/* true: accepted, and *ret is its frame. */
static bool pack_to_agent(const uint8_t *data, size_t n, struct packed *ret)
{
        Wb__ToAgent *m;

        if (codec_unpack_to_agent(data, n, &m))
                return false;
        MUST(!codec_pack_to_agent(m, &ret->frame, &ret->n));
        codec_free_to_agent(m);
        return true;
}

static bool pack_from_agent(const uint8_t *data, size_t n, struct packed *ret)
{
        Wb__FromAgent *m;

        if (codec_unpack_from_agent(data, n, &m))
                return false;
        MUST(!codec_pack_from_agent(m, &ret->frame, &ret->n));
        codec_free_from_agent(m);
        return true;
}

static bool pack_service_request(const uint8_t *data, size_t n, struct packed *ret)
{
        Wb__ServiceRequest *m;

        if (codec_unpack_service_request(data, n, &m))
                return false;
        MUST(!codec_pack_service_request(m, &ret->frame, &ret->n));
        codec_free_service_request(m);
        return true;
}

static bool pack_service_answer(const uint8_t *data, size_t n, struct packed *ret)
{
        Wb__ServiceAnswer *m;

        if (codec_unpack_service_answer(data, n, &m))
                return false;
        MUST(!codec_pack_service_answer(m, &ret->frame, &ret->n));
        codec_free_service_answer(m);
        return true;
}

static void check(const uint8_t *data, size_t n, bool (*pack)(const uint8_t *, size_t, struct packed *))
{
        struct packed once, twice;

        if (!pack(data, n, &once))
                return;
        check_packed(&once);
        if (pack(once.frame + FRAME_HEADER_BYTES, once.n - FRAME_HEADER_BYTES, &twice)) {
                MUST(twice.n == once.n && !memcmp(twice.frame, once.frame, once.n));
                free(twice.frame);
        }
        free(once.frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
        if (n <= WB_FRAME_MAX_BYTES) {
                check(data, n, pack_to_agent);
                check(data, n, pack_from_agent);
                check(data, n, pack_service_request);
                check(data, n, pack_service_answer);
        }
        return 0;
}
