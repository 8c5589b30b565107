/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/memory_size.h"

#define MIB                UINT64_C(0x100000)
#define MARGIN_SHARE       16
#define MARGIN_LEAST_BYTES (8 * MIB)
#define MARGIN_MOST_BYTES  (128 * MIB)

static uint64_t margin(uint64_t total_bytes)
{
        uint64_t share = total_bytes / MARGIN_SHARE;

        if (share < MARGIN_LEAST_BYTES)
                return MARGIN_LEAST_BYTES;
        return share > MARGIN_MOST_BYTES ? MARGIN_MOST_BYTES : share;
}

uint64_t memory_size_reserve(uint64_t total_bytes, uint64_t used_before_bytes)
{
        uint64_t half = total_bytes / 2, kept = margin(total_bytes);

        return used_before_bytes > half || kept > half - used_before_bytes ? half : used_before_bytes + kept;
}

uint64_t memory_size_ceiling(uint64_t total_bytes, uint64_t used_before_bytes, uint64_t page_bytes)
{
        return (total_bytes - memory_size_reserve(total_bytes, used_before_bytes)) / page_bytes * page_bytes;
}

uint64_t memory_size_inodes(uint64_t total_bytes, uint32_t percent, uint64_t page_bytes)
{
        uint64_t pages = total_bytes / page_bytes;

        return pages / 100 * percent + pages % 100 * percent / 100;
}

uint64_t memory_size_of_percent(uint64_t total_bytes, uint32_t percent, uint64_t page_bytes)
{
        return memory_size_inodes(total_bytes, percent, page_bytes) * page_bytes;
}
