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

/* ---- between activations; pure */

/* RFC 5905, STEPT: what is further off is stepped. At the kernel's 500 ppm slewing it away takes four minutes. */
#define CLOCK_SLEW_MOST_NS UINT64_C(128000000)

enum clock_action {
        CLOCK_LEAVE, /* it is as near as can be told */
        CLOCK_SLEW,
        CLOCK_STEP,
};
const char *clock_action_name(enum clock_action action);

/* How the clock stood after the last check; zeroed: there was none. */
struct clock_mark {
        bool set;
        uint64_t at_ns;      /* CLOCK_MONOTONIC */
        int64_t residual_ns; /* the part of the offset that nothing was done about */
        uint64_t bound_ns;
};

struct clock_finding {
        struct clock_offset offset;
        enum clock_action action;
        bool drift_known;
        int64_t drift_ppb; /* what the guest's clock gains on the host's, in ns a second */
        uint64_t drift_bound_ppb;
};

/* left_ns is what the kernel has still to slew of what it was told before. */
struct clock_finding clock_find(
        const struct clock_mark *mark, const struct clock_offset *offset, int64_t left_ns, uint64_t now_ns);
struct clock_mark clock_mark_after(enum clock_action done, const struct clock_offset *offset, uint64_t now_ns);

/* ---- the machine's clocks */

/* Moves CLOCK_REALTIME by offset_ns at once. 0 or a negative errno. */
int clock_step(int64_t offset_ns);

bool clock_has_ptp(void);

/* The offset to ptp_kvm's clock. -ENODEV where there is none. *ret_name: "ptp0". */
#define CLOCK_PTP_NAME_BYTES 32
int clock_read_ptp(struct clock_offset *ret, char ret_name[CLOCK_PTP_NAME_BYTES]);

/* Steps CLOCK_REALTIME if the offset is larger than its bound, and tells the report. */
int clock_apply(const struct clock_offset *offset, const char *source, struct report *report);
