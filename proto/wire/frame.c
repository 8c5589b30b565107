/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/wire/frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire/limits.h"

/* What a reader allocates first: most frames of a conversation are smaller. */
#define FIRST_ROOM 512u

void frame_header(size_t payload_bytes, uint8_t ret_header[FRAME_HEADER_BYTES])
{
        ret_header[0] = (uint8_t)(payload_bytes >> 24);
        ret_header[1] = (uint8_t)(payload_bytes >> 16);
        ret_header[2] = (uint8_t)(payload_bytes >> 8);
        ret_header[3] = (uint8_t)payload_bytes;
}

static size_t announced(const uint8_t *header)
{
        return (size_t)header[0] << 24 | (size_t)header[1] << 16 | (size_t)header[2] << 8 | header[3];
}

static void wipe(struct frame_reader *reader)
{
        if (reader->room)
                explicit_bzero(reader->bytes, reader->room);
}

/* Not realloc(): what is outgrown may have held a secret, and is wiped. */
static int make_room(struct frame_reader *reader, size_t needed)
{
        size_t room = reader->room ? reader->room : FIRST_ROOM;
        uint8_t *larger;

        if (needed <= reader->room)
                return 0;
        while (room < needed)
                room *= 2;
        larger = malloc(room);
        if (!larger)
                return -ENOMEM;
        if (reader->used)
                memcpy(larger, reader->bytes, reader->used);
        wipe(reader);
        free(reader->bytes);
        reader->bytes = larger;
        reader->room = room;
        return 0;
}

static int take(struct frame_reader *reader, const uint8_t **p, size_t *n, size_t goal)
{
        size_t part = goal - reader->used < *n ? goal - reader->used : *n;
        int r = make_room(reader, reader->used + part);

        if (r < 0)
                return r;
        if (part)
                memcpy(reader->bytes + reader->used, *p, part);
        reader->used += part;
        *p += part;
        *n -= part;
        return reader->used < goal ? FRAME_E_MORE : 0;
}

int frame_read(struct frame_reader *reader, const uint8_t **p, size_t *n, const uint8_t **ret_payload, size_t *ret_n)
{
        size_t payload_bytes;
        int r;

        if (reader->used < FRAME_HEADER_BYTES) {
                r = take(reader, p, n, FRAME_HEADER_BYTES);
                if (r != 0)
                        return r;
        }
        payload_bytes = announced(reader->bytes);
        if (payload_bytes > WB_FRAME_MAX_BYTES)
                return -EMSGSIZE;
        r = take(reader, p, n, FRAME_HEADER_BYTES + payload_bytes);
        if (r != 0)
                return r;
        reader->used = 0;
        *ret_payload = reader->bytes + FRAME_HEADER_BYTES;
        *ret_n = payload_bytes;
        return 0;
}

void frame_reader_done(struct frame_reader *reader)
{
        wipe(reader);
        free(reader->bytes);
        *reader = (struct frame_reader){0};
}
