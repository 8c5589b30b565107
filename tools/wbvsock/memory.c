/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbvsock/memory.h"

#include <errno.h>
#include <stdbool.h>

/* Neither range wraps: memory_add() has seen to that. */
static bool overlap(uint64_t a, uint64_t a_n, uint64_t b, uint64_t b_n)
{
        return a < b + b_n && b < a + a_n;
}

int memory_add(struct memory *m, const struct memory_region *region)
{
        uint64_t n = region->size_bytes;

        if (m->regions_n == MEMORY_REGIONS_MAX)
                return -ENOSPC;
        if (n == 0 || region->guest_addr > UINT64_MAX - n || region->user_addr > UINT64_MAX - n)
                return -EINVAL;
        for (size_t i = 0; i < m->regions_n; i++) {
                const struct memory_region *r = &m->regions[i];

                if (overlap(r->guest_addr, r->size_bytes, region->guest_addr, n) ||
                        overlap(r->user_addr, r->size_bytes, region->user_addr, n))
                        return -EINVAL;
        }
        m->regions[m->regions_n++] = *region;
        return 0;
}

void *memory_from_guest(const struct memory *m, uint64_t guest_addr, uint64_t want, uint64_t *ret_n)
{
        for (size_t i = 0; i < m->regions_n; i++) {
                const struct memory_region *r = &m->regions[i];
                uint64_t offset = guest_addr - r->guest_addr;

                /* An address below the region wraps to an offset beyond its size. */
                if (offset >= r->size_bytes)
                        continue;
                *ret_n = want < r->size_bytes - offset ? want : r->size_bytes - offset;
                return r->at + offset;
        }
        return NULL;
}

void *memory_from_user(const struct memory *m, uint64_t user_addr, uint64_t n)
{
        for (size_t i = 0; i < m->regions_n; i++) {
                const struct memory_region *r = &m->regions[i];
                uint64_t offset = user_addr - r->user_addr;

                if (offset < r->size_bytes && n <= r->size_bytes - offset)
                        return r->at + offset;
        }
        return NULL;
}
