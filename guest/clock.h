/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The guest's CLOCK_REALTIME against the host's: an offset with a bound that is proven, not hoped for. Sources, the
 * better first: the host's clock through ptp_kvm; exchanges over the conversation, of which the one with the least
 * round trip counts, with half of it as the bound (RFC 5905's delta / 2).
 */

#include <stdbool.h>
#include <stdint.h>

#include "guest/report.h"

#define CLOCK_EXCHANGES 4

struct clock_offset {
        int64_t offset_ns; /* what is to be added to the guest's clock */
        uint64_t bound_ns; /* the true offset is no further away than this */
};

/* ---- exchanges; pure */

struct clock_exchanges {
        unsigned done;
        struct clock_offset best;
};

/*
 * One exchange: asked at sent_ns and answered at received_ns (CLOCK_MONOTONIC), when the guest's CLOCK_REALTIME was
 * guest_ns; the host's was host_ns at some time between. -ERANGE (times that cannot be), else 0.
 */
int clock_exchange_add(
        struct clock_exchanges *e, uint64_t sent_ns, uint64_t received_ns, uint64_t guest_ns, uint64_t host_ns);

/* ---- the machine's clocks */

/* The offset to ptp_kvm's clock. -ENODEV where there is none. *ret_name: "ptp0". */
#define CLOCK_PTP_NAME_BYTES 32
int clock_read_ptp(struct clock_offset *ret, char ret_name[CLOCK_PTP_NAME_BYTES]);

/* Steps CLOCK_REALTIME if the offset is larger than its bound, and tells the report. */
int clock_apply(const struct clock_offset *offset, const char *source, struct report *report);
