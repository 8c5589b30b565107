/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Maps the guest's memory from the descriptors that come with SET_MEM_TABLE. */

#include "tools/wbvsock/memory.h"
#include "tools/wbvsock/message.h"

struct mapping {
        struct memory memory;
        struct {
                void *at;
                size_t n;
        } maps[MEMORY_REGIONS_MAX];
        size_t maps_n;
};

/*
 * Replaces what is mapped by regions_n regions, one descriptor each, which stay the caller's. 0; or a negative errno,
 * and then nothing is mapped: -EINVAL for regions that overlap, wrap, or reach beyond their file (touching that would
 * be a SIGBUS).
 */
int mapping_replace(struct mapping *m, const struct message_mapping *regions, const int *fds, size_t regions_n);

void mapping_done(struct mapping *m);
