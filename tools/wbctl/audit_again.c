/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/audit_again.h"

#include <assert.h>
#include <string.h>

#include "tools/wbctl/audit_filter.h"
#include "tools/wbctl/offline.h"

/* Whether another policy could have decided otherwise. */
enum origin {
        ORIGIN_ELSEWHERE, /* not the policy's decision */
        ORIGIN_POLICY,
        ORIGIN_INSIDE, /* the policy's, on what was seen inside of the tunnel */
        ORIGIN_FLOOR,  /* stands whatever the policy */
};

static enum origin origin_of(enum reason reason)
{
        switch (reason) {
        case REASON_ALLOWED:
        case REASON_NETWORK_NONE:
        case REASON_NO_RULE:
        case REASON_DENY_RULE:
        case REASON_PORT_NOT_ALLOWED:
        case REASON_METHOD_NOT_ALLOWED:
        case REASON_PATH_NOT_ALLOWED:
        case REASON_IP_LITERAL: return ORIGIN_POLICY;
        case REASON_PROTOCOL_NOT_ALLOWED:
        case REASON_INSPECTION_REQUIRED: return ORIGIN_INSIDE;
        case REASON_FLOOR_NAME:
        case REASON_FLOOR_ADDRESS: return ORIGIN_FLOOR;
        case REASON_SNI_MISSING:
        case REASON_SNI_MISMATCH:
        case REASON_HOST_MISMATCH:
        case REASON_MALFORMED_REQUEST:
        case REASON_RATE_LIMITED:
        case REASON_CONNECTION_LIMIT:
        case REASON_QUOTA_EXCEEDED:
        case REASON_DNS_FAILURE:
        case REASON_DNS_TIMEOUT:
        case REASON_UPSTREAM_REFUSED:
        case REASON_UPSTREAM_UNREACHABLE:
        case REASON_UPSTREAM_TIMEOUT:
        case REASON_UPSTREAM_TLS:
        case REASON_UPSTREAM_PROTOCOL:
        case REASON_NOT_READY:
        case REASON_REVOKED:
        case REASON_ISOLATION_UNKNOWN:
        case REASON_ISOLATION_TOO_WEAK:
        case REASON_AUDIT_UNAVAILABLE:
        case REASON_MAX_: break;
        }
        return ORIGIN_ELSEWHERE;
}

/* The request as far as the record tells it; false where it does not tell enough. */
static bool rebuild(const struct audit_line *line, struct request *ret)
{
        struct request r = {.via = line->via, .port = line->port, .method = line->method, .path = line->path};

        if (!line->has_via || !line->host || audit_parse_host(line->host, &r.host) < 0)
                return false;
        if (r.via != VIA_DNS && r.port == 0)
                return false;
        if (r.via == VIA_INSPECT)
                r.protocol = PROTOCOL_TLS;
        else if (r.via == VIA_HTTP || r.method)
                r.protocol = PROTOCOL_HTTP;
        *ret = r;
        return true;
}

static bool is_decision(const struct audit_line *line)
{
        return line->has_decision && (line->event == AUDIT_EGRESS_OPEN || line->event == AUDIT_EGRESS_DENY ||
                                             line->event == AUDIT_REQUEST || line->event == AUDIT_DNS);
}

/*
 * What was allowed although the floor is against it is one of the operator's services: the floor does not apply to
 * those.
 */
static void decide(const struct policy *policy, const struct request *request, const struct audit_line *line,
        bool was_allowed, struct decision *ret)
{
        const char *text = line->addr;
        struct hostname address;
        size_t n = text && hostname_parse_address(text, strlen(text), &address) == 0;

        offline_decide(policy, request, false, &address, n, ret);
        if (was_allowed && origin_of(ret->reason) == ORIGIN_FLOOR)
                offline_decide(policy, request, true, &address, n, ret);
}

enum again audit_again(const struct policy *policy, const struct audit_line *line, enum reason *ret_reason)
{
        enum origin origin = origin_of(line->reason);
        bool was_allowed = line->reason == REASON_ALLOWED, allowed;
        struct request request;
        struct decision d;

        *ret_reason = REASON_MAX_;
        if (!is_decision(line))
                return AGAIN_OTHER;
        if (origin == ORIGIN_ELSEWHERE || !rebuild(line, &request))
                return AGAIN_OUT_OF_REACH;
        decide(policy, &request, line, was_allowed, &d);
        *ret_reason = d.reason;
        allowed = d.reason == REASON_ALLOWED;
        if (origin == ORIGIN_FLOOR)
                return AGAIN_SAME;
        if (allowed && (d.inspect || (origin == ORIGIN_INSIDE && request.protocol == PROTOCOL_AUTO)) &&
                !request.method && request.via != VIA_DNS)
                return AGAIN_INSIDE;
        return allowed == was_allowed ? AGAIN_SAME : allowed ? AGAIN_ALLOWED : AGAIN_DENIED;
}
