/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A record's decision made again by another policy. Pure. */

#include "broker/policy.h"
#include "tools/wbctl/audit_line.h"

enum again {
        AGAIN_OTHER,        /* no decision on egress: not asked */
        AGAIN_SAME,         /* allowed again, or denied again */
        AGAIN_DENIED,       /* was allowed */
        AGAIN_ALLOWED,      /* was denied */
        AGAIN_OUT_OF_REACH, /* no policy decided it: a limit, an upstream that failed, a malformed request, ... */
        AGAIN_INSIDE,       /* hangs on what the tunnel carried, which the record does not tell */
        AGAIN_MAX_,
};

/* *ret_reason is that of the other policy; of AGAIN_OTHER and AGAIN_OUT_OF_REACH it is REASON_MAX_. */
enum again audit_again(const struct policy *policy, const struct audit_line *line, enum reason *ret_reason);
