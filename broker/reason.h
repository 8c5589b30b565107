/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The reasons of INTERFACES.md: one code, the same in the HTTP answer, the SOCKS5 answer, DNS, the audit and `wbctl
 * why`. Pure. */

enum reason {
        REASON_ALLOWED,
        REASON_NETWORK_NONE,
        REASON_NO_RULE,
        REASON_DENY_RULE,
        REASON_PORT_NOT_ALLOWED,
        REASON_PROTOCOL_NOT_ALLOWED,
        REASON_METHOD_NOT_ALLOWED,
        REASON_PATH_NOT_ALLOWED,
        REASON_INSPECTION_REQUIRED,
        REASON_IP_LITERAL,
        REASON_FLOOR_NAME,
        REASON_FLOOR_ADDRESS,
        REASON_SNI_MISSING,
        REASON_SNI_MISMATCH,
        REASON_HOST_MISMATCH,
        REASON_MALFORMED_REQUEST,
        REASON_RATE_LIMITED,
        REASON_CONNECTION_LIMIT,
        REASON_QUOTA_EXCEEDED,
        REASON_DNS_FAILURE,
        REASON_DNS_TIMEOUT,
        REASON_UPSTREAM_REFUSED,
        REASON_UPSTREAM_UNREACHABLE,
        REASON_UPSTREAM_TIMEOUT,
        REASON_UPSTREAM_TLS,
        REASON_UPSTREAM_PROTOCOL,
        REASON_NOT_READY,
        REASON_REVOKED,
        REASON_ISOLATION_UNKNOWN,
        REASON_ISOLATION_TOO_WEAK,
        REASON_AUDIT_UNAVAILABLE,
        REASON_MAX_, /* count */
};

struct reason_info {
        const char *name;         /* "no_rule" */
        const char *title;        /* for a person, one line */
        const char *proxy_status; /* RFC 9209 error; NULL where no HTTP answer exists */
        int http_status;          /* 0: none, the connection is closed (TLS alert) */
        int socks5_reply;         /* RFC 1928; 0: none */
};

/* Never NULL for a reason below REASON_MAX_. */
const struct reason_info *reason_info(enum reason reason);
