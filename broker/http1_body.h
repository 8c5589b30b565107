/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A body on its way through: where its payload lies in the bytes that come in, when it ends, and how it is framed anew
 * (RFC 9112 6, 7). Pure, embedded, no allocation. Chunk extensions and trailers are parsed strictly, bounded and
 * dropped.
 *
 *     for (;;) {
 *             event = http1_body_scan(&body, p, n, &skip);      framing bytes, not payload
 *             p += skip, n -= skip;
 *             if (event != HTTP1_BODY_DATA)
 *                     break;
 *             k = min(n, http1_body_left(&body), what the other side takes);
 *             forward k bytes at p (or splice them: nothing has to look at them), framed by http1_chunk_open() and
 * HTTP1_CHUNK_CLOSE where the other side gets chunks http1_body_consume(&body, k); p += k, n -= k;
 *     }
 *
 * or http1_body_transfer(), which does all that between two buffers.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/http1.h"

#define HTTP1_CHUNK_LINE_MAX_BYTES 1024u         /* a chunk's size with its extensions */
#define HTTP1_EXTENSIONS_MAX_BYTES (16u * 1024u) /* of all chunks of a body together */
#define HTTP1_TRAILERS_MAX_BYTES   (8u * 1024u)

enum http1_body_event {
        HTTP1_BODY_MORE,      /* all bytes were framing and more must come */
        HTTP1_BODY_DATA,      /* http1_body_left() bytes of payload come next */
        HTTP1_BODY_END,       /* the body has ended; what follows is the next message's */
        HTTP1_BODY_MALFORMED, /* both connections must be closed, without an end of the forwarded body */
};

struct http1_body {
        enum http1_framing framing;
        uint8_t state;       /* private */
        bool ended;          /* HTTP1_BODY_END was said */
        uint16_t line_bytes; /* of the chunk line that is coming in */
        uint32_t extensions_bytes;
        uint32_t trailers_bytes;
        uint64_t left; /* of the payload, or of the chunk */
};

/* length_bytes with HTTP1_FRAMING_LENGTH, else 0. */
void http1_body_init(struct http1_body *b, enum http1_framing framing, uint64_t length_bytes);

/* Takes framing bytes up to the next payload byte: *ret_taken of n (0 where payload is due). END and MALFORMED stay. */
enum http1_body_event http1_body_scan(struct http1_body *b, const uint8_t *bytes, size_t n, size_t *ret_taken);

/* Payload bytes that come next without framing between them; UINT64_MAX with HTTP1_FRAMING_UNTIL_CLOSE. */
uint64_t http1_body_left(const struct http1_body *b);

/* k bytes of payload were moved; at most http1_body_left(). */
void http1_body_consume(struct http1_body *b, uint64_t k);

/* The sender's connection ended. HTTP1_BODY_END if the body is whole, else HTTP1_BODY_MALFORMED: it was cut short. */
enum http1_body_event http1_body_eof(struct http1_body *b);

/* "1a2b\r\n" before a chunk of n > 0 bytes, HTTP1_CHUNK_CLOSE behind it, HTTP1_CHUNK_LAST at the end. Bytes written. */
#define HTTP1_CHUNK_OPEN_MAX 18u
#define HTTP1_CHUNK_CLOSE    "\r\n"
#define HTTP1_CHUNK_LAST     "0\r\n\r\n"
size_t http1_chunk_open(uint64_t n, char ret_text[HTTP1_CHUNK_OPEN_MAX]);

/*
 * Moves what can be moved from bytes to ret_out, as chunks where chunked is set. *ret_taken of n were used, *ret_n of
 * room written (room at least HTTP1_TRANSFER_ROOM_MIN to make progress). MORE: give more bytes; DATA: give more room;
 * END: all of it, the last chunk included, is in ret_out; MALFORMED: what was written before may still be forwarded.
 * With HTTP1_FRAMING_UNTIL_CLOSE the end comes from http1_body_eof(); where chunked is set, call once more after it,
 * with no bytes.
 */
#define HTTP1_TRANSFER_ROOM_MIN 64u
enum http1_body_event http1_body_transfer(struct http1_body *b, const uint8_t *bytes, size_t n, size_t *ret_taken,
        bool chunked, uint8_t *ret_out, size_t room, size_t *ret_n);
