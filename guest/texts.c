/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/texts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire/limits.h"

size_t texts_cost(const ProtobufCBinaryData *list, size_t n)
{
        size_t cost = n * WB_ARG_COST_BYTES;

        for (size_t i = 0; i < n; i++)
                cost += list[i].len;
        return cost;
}

static void drop(struct texts *t)
{
        if (t->bytes)
                explicit_bzero(t->bytes, t->used);
        free(t->bytes);
}

/* What is added once is most often all: then it has just the room that it needs. */
static int make_room(struct texts *t, size_t needed)
{
        size_t room = t->room && needed < 2 * t->room ? 2 * t->room : needed;
        char *larger;

        if (needed <= t->room)
                return 0;
        larger = malloc(room);
        if (!larger)
                return -ENOMEM;
        if (t->used)
                memcpy(larger, t->bytes, t->used);
        drop(t);
        t->bytes = larger;
        t->room = room;
        return 0;
}

int texts_add(struct texts *t, const ProtobufCBinaryData *list, size_t n)
{
        size_t bytes = n;
        int r;

        for (size_t i = 0; i < n; i++)
                bytes += list[i].len;
        r = make_room(t, t->used + bytes);
        if (r < 0)
                return r;
        for (size_t i = 0; i < n; i++) {
                if (list[i].len) /* protobuf-c has no memory for what is empty */
                        memcpy(t->bytes + t->used, list[i].data, list[i].len);
                t->used += list[i].len;
                t->bytes[t->used++] = '\0';
        }
        t->n += n;
        return 0;
}

const char *texts_first(const struct texts *t)
{
        return t->used ? t->bytes : NULL;
}

const char *texts_next(const struct texts *t, const char *text)
{
        text += strlen(text) + 1;
        return text < t->bytes + t->used ? text : NULL;
}

void texts_done(struct texts *t)
{
        drop(t);
        *t = (struct texts){0};
}
