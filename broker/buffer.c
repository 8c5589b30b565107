/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/buffer.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_LEAST_BYTES 2048u

bool budget_charge(struct budget *b, uint64_t n)
{
        if (n > b->most_bytes - b->used_bytes)
                return false;
        b->used_bytes += n;
        return true;
}

void budget_return(struct budget *b, uint64_t n)
{
        assert(n <= b->used_bytes);
        b->used_bytes -= n;
}

void buffer_init(struct buffer *b, struct budget *budget)
{
        *b = (struct buffer){.budget = budget};
}

void buffer_done(struct buffer *b)
{
        if (b->bytes)
                budget_return(b->budget, b->room);
        free(b->bytes);
        *b = (struct buffer){.budget = b->budget};
}

static int grow(struct buffer *b, size_t least)
{
        size_t room = b->room ? b->room : ROOM_LEAST_BYTES;

        while (room < least)
                room *= 2;
        if (!budget_charge(b->budget, room - b->room))
                return -ENOBUFS;

        uint8_t *bytes = realloc(b->bytes, room);
        if (!bytes) {
                budget_return(b->budget, room - b->room);
                return -ENOMEM;
        }
        b->bytes = bytes;
        b->room = room;
        return 0;
}

int buffer_reserve(struct buffer *b, size_t n, uint8_t **ret_tail)
{
        size_t used = buffer_used(b);

        if (b->room - b->end < n) {
                if (b->start)
                        memmove(b->bytes, b->bytes + b->start, used);
                b->start = 0;
                b->end = used;
                if (b->room - used < n) {
                        int r = grow(b, used + n);
                        if (r < 0)
                                return r;
                }
        }
        *ret_tail = b->bytes + b->end;
        return 0;
}

void buffer_commit(struct buffer *b, size_t n)
{
        assert(n <= b->room - b->end);
        b->end += n;
}

void buffer_consume(struct buffer *b, size_t n)
{
        assert(n <= buffer_used(b));
        b->start += n;
        if (b->start == b->end)
                buffer_done(b);
}

int buffer_append(struct buffer *b, const void *data, size_t n)
{
        uint8_t *tail;
        int r = buffer_reserve(b, n, &tail);

        if (r < 0)
                return r;
        if (n)
                memcpy(tail, data, n);
        buffer_commit(b, n);
        return 0;
}

int buffer_printf(struct buffer *b, const char *format, ...)
{
        uint8_t *tail;
        va_list args;

        va_start(args, format);
        int n = vsnprintf(NULL, 0, format, args);
        va_end(args);
        if (n < 0)
                return -EINVAL;

        int r = buffer_reserve(b, (size_t)n + 1, &tail);
        if (r < 0)
                return r;
        va_start(args, format);
        (void)vsnprintf((char *)tail, (size_t)n + 1, format, args);
        va_end(args);
        buffer_commit(b, (size_t)n);
        return 0;
}

int buffer_move(struct buffer *b, struct buffer *from)
{
        assert(b->budget == from->budget);

        if (!buffer_used(b)) {
                buffer_done(b);
                *b = *from;
                *from = (struct buffer){.budget = b->budget};
                return 0;
        }

        int r = buffer_append(b, buffer_data(from), buffer_used(from));
        if (r < 0)
                return r;
        buffer_done(from);
        return 0;
}
