/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/replay.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define FIRST_BYTES 4096u

static size_t index_of(const struct replay *r, uint64_t offset)
{
        return (size_t)offset & (r->room - 1);
}

/* Mapped rather than allocated: a big ring goes back to the system with its exec, whatever else was allocated
 * meanwhile. */
static int resize(struct replay *r, size_t room)
{
        uint8_t *bytes = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        struct replay larger = {.bytes = bytes, .room = room, .start = r->start, .end = r->end};

        if (bytes == MAP_FAILED)
                return -ENOMEM;
        for (uint64_t at = r->start; at < r->end;) {
                size_t n, there = room - index_of(&larger, at);
                const uint8_t *from = replay_at(r, at, &n);

                n = n < there ? n : there;
                memcpy(bytes + index_of(&larger, at), from, n);
                at += n;
        }
        replay_done(r);
        *r = larger;
        return 0;
}

static size_t room_for(uint64_t bytes)
{
        size_t room = FIRST_BYTES;

        while (room < bytes && room < REPLAY_MAX_BYTES)
                room *= 2;
        return room;
}

int replay_space(struct replay *r, size_t want, uint8_t **ret_at, size_t *ret_n)
{
        uint64_t held = r->end - r->start;
        size_t n;

        assert(want > 0);
        if (room_for(held + want) > r->room) {
                int error = resize(r, room_for(held + want));

                if (error < 0 && !r->room)
                        return error;
        }
        n = r->room - index_of(r, r->end);
        if (n > want)
                n = want;
        if (held + n > r->room)
                r->start = r->end + n - r->room;
        *ret_at = r->bytes + index_of(r, r->end);
        *ret_n = n;
        return 0;
}

void replay_commit(struct replay *r, size_t n)
{
        r->end += n;
        assert(r->end - r->start <= r->room);
}

const uint8_t *replay_at(const struct replay *r, uint64_t offset, size_t *ret_n)
{
        uint64_t left = r->end - offset;
        size_t n;

        assert(offset >= r->start && offset <= r->end);
        if (!left) {
                *ret_n = 0;
                return NULL;
        }
        n = r->room - index_of(r, offset);
        *ret_n = left < n ? (size_t)left : n;
        return r->bytes + index_of(r, offset);
}

void replay_trim(struct replay *r)
{
        uint64_t held = r->end - r->start;

        if (held > REPLAY_KEPT_BYTES)
                held = REPLAY_KEPT_BYTES;
        r->start = r->end - held;
        if (!held)
                replay_done(r);
        else if (room_for(held) < r->room)
                (void)resize(r, room_for(held));
}

void replay_done(struct replay *r)
{
        if (r->bytes)
                (void)munmap(r->bytes, r->room);
        r->bytes = NULL;
        r->room = 0;
}
