/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/handshake_join.h"

#include <errno.h>
#include <string.h>

#define RECORD_HANDSHAKE     22u
#define RECORD_ALERT         21u
#define RECORD_HEADER_BYTES  5u
#define RECORD_MAX_BYTES     (HANDSHAKE_JOIN_MESSAGE_MAX + 2048u) /* RFC 5246 6.2.3; in clear text less */
#define MESSAGE_HEADER_BYTES 4u

void handshake_join_init(struct handshake_join *j, struct budget *budget)
{
        *j = (struct handshake_join){0};
        buffer_init(&j->message, budget);
}

void handshake_join_done(struct handshake_join *j)
{
        buffer_done(&j->message);
}

static size_t least(size_t a, size_t b)
{
        return a < b ? a : b;
}

/* The message's length with its header; of one whose header is not here yet, as much as that. */
static size_t message_bytes(const struct handshake_join *j)
{
        const uint8_t *m = buffer_data(&j->message);

        if (buffer_used(&j->message) < MESSAGE_HEADER_BYTES)
                return MESSAGE_HEADER_BYTES;
        return MESSAGE_HEADER_BYTES + ((size_t)m[1] << 16 | (size_t)m[2] << 8 | m[3]);
}

/* The header is whole: what begins with it? */
static int begin_record(struct handshake_join *j, struct buffer *out)
{
        j->record_left = (size_t)j->header[3] << 8 | j->header[4];
        if (j->header[0] == RECORD_HANDSHAKE)
                return j->record_left == 0 || j->record_left > RECORD_MAX_BYTES ? -EPROTO : 0;
        if (buffer_used(&j->message)) /* RFC 8446 5.1: nothing comes between */
                return -EPROTO;
        j->over = j->header[0] != RECORD_ALERT;
        return buffer_append(out, j->header, sizeof(j->header));
}

static int emit_message(struct handshake_join *j, struct buffer *out)
{
        size_t n = buffer_used(&j->message);
        const uint8_t header[] = {RECORD_HANDSHAKE, j->header[1], j->header[2], (uint8_t)(n >> 8), (uint8_t)n};
        int r = buffer_append(out, header, sizeof(header));

        if (r == 0)
                r = buffer_append(out, buffer_data(&j->message), n);
        if (r == 0)
                buffer_done(&j->message);
        return r;
}

/* Up to the end of the message's header, or of the message. */
static int take_payload(struct handshake_join *j, const uint8_t *bytes, size_t n, struct buffer *out, size_t *ret_taken)
{
        size_t wanted = message_bytes(j), taken = least(n, wanted - buffer_used(&j->message));
        int r = buffer_append(&j->message, bytes, taken);

        if (r < 0)
                return r;
        wanted = message_bytes(j);
        if (wanted > HANDSHAKE_JOIN_MESSAGE_MAX)
                return -EPROTO;
        *ret_taken = taken;
        return buffer_used(&j->message) >= MESSAGE_HEADER_BYTES && buffer_used(&j->message) == wanted
                       ? emit_message(j, out)
                       : 0;
}

static int take_record(struct handshake_join *j, const uint8_t *bytes, size_t n, struct buffer *out, size_t *ret_taken)
{
        int r;

        n = least(n, j->record_left);
        *ret_taken = n;
        r = j->header[0] == RECORD_HANDSHAKE ? take_payload(j, bytes, n, out, ret_taken) : buffer_append(out, bytes, n);
        j->record_left -= *ret_taken;
        return r;
}

static int take_header(struct handshake_join *j, const uint8_t *bytes, size_t n, struct buffer *out, size_t *ret_taken)
{
        size_t taken = least(n, RECORD_HEADER_BYTES - j->header_n);

        memcpy(j->header + j->header_n, bytes, taken);
        j->header_n += taken;
        *ret_taken = taken;
        if (j->header_n < RECORD_HEADER_BYTES)
                return 0;
        j->header_n = 0;
        return begin_record(j, out);
}

int handshake_join_feed(struct handshake_join *j, const uint8_t *bytes, size_t n, struct buffer *out)
{
        int r = 0;

        while (n && r == 0) {
                size_t taken = n;

                if (j->over)
                        return buffer_append(out, bytes, n);
                r = j->record_left ? take_record(j, bytes, n, out, &taken) : take_header(j, bytes, n, out, &taken);
                bytes += taken;
                n -= taken;
        }
        return r;
}
