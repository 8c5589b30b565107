/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/http1_body.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define CHUNK_CLOSE_BYTES (sizeof(HTTP1_CHUNK_CLOSE) - 1)
#define CHUNK_LAST_BYTES  (sizeof(HTTP1_CHUNK_LAST) - 1)

static_assert(HTTP1_TRANSFER_ROOM_MIN > HTTP1_CHUNK_OPEN_MAX + CHUNK_CLOSE_BYTES + CHUNK_LAST_BYTES, "progress");

/* Where in a chunked body the next byte stands. Other framings know DATA and END alone. */
enum body_state {
        BODY_DATA,
        BODY_SIZE_FIRST, /* at least one digit */
        BODY_SIZE,
        BODY_EXTENSION,
        BODY_SIZE_LF,
        BODY_DATA_CR,
        BODY_DATA_LF,
        BODY_TRAILER_FIRST, /* a trailer's name or the CR of the end */
        BODY_TRAILER_NAME,
        BODY_TRAILER_VALUE,
        BODY_TRAILER_LF,
        BODY_END_LF,
        BODY_END,
        BODY_MALFORMED,
};

void http1_body_init(struct http1_body *b, enum http1_framing framing, uint64_t length_bytes)
{
        *b = (struct http1_body){.framing = framing};
        switch (framing) {
        case HTTP1_FRAMING_NONE: b->state = BODY_END; break;
        case HTTP1_FRAMING_LENGTH:
                b->left = length_bytes;
                b->state = length_bytes ? BODY_DATA : BODY_END;
                break;
        case HTTP1_FRAMING_CHUNKED: b->state = BODY_SIZE_FIRST; break;
        case HTTP1_FRAMING_UNTIL_CLOSE:
                b->left = UINT64_MAX;
                b->state = BODY_DATA;
                break;
        }
}

static int hex_digit(uint8_t byte)
{
        if (byte >= '0' && byte <= '9')
                return byte - '0';
        if (byte >= 'a' && byte <= 'f')
                return byte - 'a' + 10;
        if (byte >= 'A' && byte <= 'F')
                return byte - 'A' + 10;
        return -1;
}

/* What may stand in a field's value or an extension: no control byte but HTAB (RFC 9110 5.5). */
static bool is_text(uint8_t byte)
{
        return byte == '\t' || (byte >= ' ' && byte != 0x7f);
}

/* 1*HEXDIG, then ";" or CR. A size is at most INT64_MAX. */
static enum body_state after_size(struct http1_body *b, uint8_t byte)
{
        int digit = hex_digit(byte);

        if (digit >= 0) {
                if (b->left > INT64_MAX >> 4)
                        return BODY_MALFORMED;
                b->left = b->left << 4 | (uint64_t)digit;
                return BODY_SIZE;
        }
        if (b->state == BODY_SIZE_FIRST)
                return BODY_MALFORMED;
        if (byte == '\r')
                return BODY_SIZE_LF;
        return byte == ';' ? BODY_EXTENSION : BODY_MALFORMED;
}

static enum body_state after_extension(struct http1_body *b, uint8_t byte)
{
        if (byte == '\r')
                return BODY_SIZE_LF;
        if (!is_text(byte) || ++b->extensions_bytes > HTTP1_EXTENSIONS_MAX_BYTES)
                return BODY_MALFORMED;
        return BODY_EXTENSION;
}

static enum body_state after_size_line(struct http1_body *b, uint8_t byte)
{
        if (byte != '\n')
                return BODY_MALFORMED;
        b->line_bytes = 0;
        return b->left ? BODY_DATA : BODY_TRAILER_FIRST;
}

/* A trailer is a field line, as strict as in a head. */
static enum body_state after_trailer(struct http1_body *b, uint8_t byte)
{
        if (++b->trailers_bytes > HTTP1_TRAILERS_MAX_BYTES)
                return BODY_MALFORMED;
        if (b->state == BODY_TRAILER_LF)
                return byte == '\n' ? BODY_TRAILER_FIRST : BODY_MALFORMED;
        if (b->state == BODY_TRAILER_VALUE) {
                if (byte == '\r')
                        return BODY_TRAILER_LF;
                return is_text(byte) ? BODY_TRAILER_VALUE : BODY_MALFORMED;
        }
        if (b->state == BODY_TRAILER_FIRST && byte == '\r')
                return BODY_END_LF;
        if (b->state == BODY_TRAILER_NAME && byte == ':')
                return BODY_TRAILER_VALUE;
        return http1_is_token(byte) ? BODY_TRAILER_NAME : BODY_MALFORMED;
}

/* The state behind one byte of framing. */
static enum body_state after(struct http1_body *b, uint8_t byte)
{
        switch ((enum body_state)b->state) {
        case BODY_SIZE_FIRST:
        case BODY_SIZE: return ++b->line_bytes > HTTP1_CHUNK_LINE_MAX_BYTES ? BODY_MALFORMED : after_size(b, byte);
        case BODY_EXTENSION:
                return ++b->line_bytes > HTTP1_CHUNK_LINE_MAX_BYTES ? BODY_MALFORMED : after_extension(b, byte);
        case BODY_SIZE_LF: return after_size_line(b, byte);
        case BODY_DATA_CR: return byte == '\r' ? BODY_DATA_LF : BODY_MALFORMED;
        case BODY_DATA_LF: return byte == '\n' ? BODY_SIZE_FIRST : BODY_MALFORMED;
        case BODY_TRAILER_FIRST:
        case BODY_TRAILER_NAME:
        case BODY_TRAILER_VALUE:
        case BODY_TRAILER_LF: return after_trailer(b, byte);
        case BODY_END_LF: return byte == '\n' ? BODY_END : BODY_MALFORMED;
        case BODY_DATA:
        case BODY_END:
        case BODY_MALFORMED: break;
        }
        assert(false);
        return BODY_MALFORMED;
}

enum http1_body_event http1_body_scan(struct http1_body *b, const uint8_t *bytes, size_t n, size_t *ret_taken)
{
        size_t i = 0;

        while (i < n && b->state != BODY_DATA && b->state != BODY_END && b->state != BODY_MALFORMED)
                b->state = (uint8_t)after(b, bytes[i++]);

        *ret_taken = i;
        switch ((enum body_state)b->state) {
        case BODY_DATA: return HTTP1_BODY_DATA;
        case BODY_END: return HTTP1_BODY_END;
        case BODY_MALFORMED: return HTTP1_BODY_MALFORMED;
        case BODY_SIZE_FIRST:
        case BODY_SIZE:
        case BODY_EXTENSION:
        case BODY_SIZE_LF:
        case BODY_DATA_CR:
        case BODY_DATA_LF:
        case BODY_TRAILER_FIRST:
        case BODY_TRAILER_NAME:
        case BODY_TRAILER_VALUE:
        case BODY_TRAILER_LF:
        case BODY_END_LF: break;
        }
        return HTTP1_BODY_MORE;
}

uint64_t http1_body_left(const struct http1_body *b)
{
        return b->state == BODY_DATA ? b->left : 0;
}

void http1_body_consume(struct http1_body *b, uint64_t k)
{
        assert(k <= http1_body_left(b));
        if (!k || b->framing == HTTP1_FRAMING_UNTIL_CLOSE)
                return;
        b->left -= k;
        if (!b->left)
                b->state = b->framing == HTTP1_FRAMING_CHUNKED ? BODY_DATA_CR : BODY_END;
}

enum http1_body_event http1_body_eof(struct http1_body *b)
{
        if (b->state == BODY_DATA && b->framing == HTTP1_FRAMING_UNTIL_CLOSE)
                b->state = BODY_END;
        if (b->state != BODY_END)
                b->state = BODY_MALFORMED;
        return b->state == BODY_END ? HTTP1_BODY_END : HTTP1_BODY_MALFORMED;
}

size_t http1_chunk_open(uint64_t n, char ret_text[HTTP1_CHUNK_OPEN_MAX])
{
        char text[HTTP1_CHUNK_OPEN_MAX + 1];
        int length = snprintf(text, sizeof(text), "%llx\r\n", (unsigned long long)n);

        assert(n && length > 0 && (size_t)length <= HTTP1_CHUNK_OPEN_MAX);
        memcpy(ret_text, text, (size_t)length);
        return (size_t)length;
}

/* What is written, in the caller's room. */
struct output {
        uint8_t *to;
        size_t room;
        size_t used;
        bool chunked;
};

static void put(struct output *out, const void *bytes, size_t n)
{
        memcpy(out->to + out->used, bytes, n);
        out->used += n;
}

/* Moves as much payload of the n bytes as there is room for, as one chunk or as it is. How many. */
static size_t move(struct http1_body *b, struct output *out, const uint8_t *bytes, size_t n)
{
        const size_t frame_bytes = out->chunked ? HTTP1_CHUNK_OPEN_MAX + CHUNK_CLOSE_BYTES : 0;
        size_t space = out->room - out->used, k = n;
        char open[HTTP1_CHUNK_OPEN_MAX];

        if (space <= frame_bytes)
                return 0;
        if (k > space - frame_bytes)
                k = space - frame_bytes;
        if (k > http1_body_left(b))
                k = (size_t)http1_body_left(b);
        if (out->chunked) {
                size_t open_n = http1_chunk_open(k, open);

                put(out, open, open_n);
        }
        put(out, bytes, k);
        if (out->chunked)
                put(out, HTTP1_CHUNK_CLOSE, CHUNK_CLOSE_BYTES);
        http1_body_consume(b, k);
        return k;
}

/* The end is told once its mark is in the output too. */
static enum http1_body_event end(struct http1_body *b, struct output *out)
{
        if (out->chunked && !b->ended) {
                if (out->room - out->used < CHUNK_LAST_BYTES)
                        return HTTP1_BODY_DATA;
                put(out, HTTP1_CHUNK_LAST, CHUNK_LAST_BYTES);
        }
        b->ended = true;
        return HTTP1_BODY_END;
}

enum http1_body_event http1_body_transfer(struct http1_body *b, const uint8_t *bytes, size_t n, size_t *ret_taken,
        bool chunked, uint8_t *ret_out, size_t room, size_t *ret_n)
{
        struct output out = {.to = ret_out, .room = room, .chunked = chunked};
        enum http1_body_event event;
        size_t taken = 0, step;

        for (;;) {
                event = http1_body_scan(b, bytes + taken, n - taken, &step);
                taken += step;
                if (event != HTTP1_BODY_DATA)
                        break;
                if (taken == n) {
                        event = HTTP1_BODY_MORE;
                        break;
                }
                step = move(b, &out, bytes + taken, n - taken);
                taken += step;
                if (!step)
                        break;
        }
        if (event == HTTP1_BODY_END)
                event = end(b, &out);
        *ret_taken = taken;
        *ret_n = out.used;
        return event;
}
