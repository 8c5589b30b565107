/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Frames: a 4-byte big-endian length and that many bytes of payload, at most WB_FRAME_MAX_BYTES. Pure: bytes in,
 * payloads out, no descriptor.
 */

#include <stddef.h>
#include <stdint.h>

#define FRAME_HEADER_BYTES 4u

void frame_header(size_t payload_bytes, uint8_t ret_header[FRAME_HEADER_BYTES]);

/* A zeroed reader is ready. It holds at most one frame's bytes; its memory grows with what came, not with what was
 * announced. */
struct frame_reader {
        uint8_t *bytes;
        size_t used; /* of bytes */
        size_t room;
};

#define FRAME_E_MORE 1 /* all was taken and no frame is complete */

/*
 * Takes bytes at *p up to the end of the next frame and moves *p and *n behind them. When a frame is complete,
 * *ret_payload points at it until the next call. 0, FRAME_E_MORE, -EMSGSIZE (announced too large: end the connection),
 * -ENOMEM.
 */
int frame_read(struct frame_reader *reader, const uint8_t **p, size_t *n, const uint8_t **ret_payload, size_t *ret_n);

void frame_reader_done(struct frame_reader *reader);
