/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which records are meant. Pure but for the time that "15m" counts back from. */

#include <stdbool.h>
#include <stdint.h>

#include "broker/pattern.h"
#include "proto/base/clock.h"
#include "proto/base/options.h"
#include "tools/wbctl/audit_line.h"

/* As on the command line; NULL: whatever. Texts are borrowed. */
struct audit_filter {
        struct option_strings vms; /* any of them */
        const char *event;
        const char *decision;
        const char *reason;
        const char *host;
        const char *since;
        const char *until;

        /* Made of the above by audit_filter_prepare(). */
        bool has_pattern;
        struct pattern pattern;
        uint64_t since_ns; /* 0: from the beginning */
        uint64_t until_ns; /* 0: to the end */
};

/* Checks what was given. 0, or -EINVAL with what is wrong in ret_error. */
#define AUDIT_FILTER_ERROR_BYTES 256
int audit_filter_prepare(struct audit_filter *filter, uint64_t now_ns, char ret_error[AUDIT_FILTER_ERROR_BYTES]);

bool audit_filter_passes(const struct audit_filter *filter, const struct audit_line *line);

/* A record's host, an IPv6 address without brackets. 0 or -EBADMSG. */
int audit_parse_host(const char *text, struct hostname *ret);

/* "2026-01-02", "2026-01-02T03:04", "...:05", "...:05.678901", each also with Z, in UTC; or "15m": so long before now.
 * 0 or -EINVAL. */
int audit_parse_time(const char *text, uint64_t now_ns, uint64_t *ret_ns);
