/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/reply.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/cleanup.h"

#define CHANGE_POLICY "This is policy, not a fault: do not retry; ask the operator for a rule if the access is needed."
#define TRY_LATER     "This may pass: retry later."

static const char *const details[] = {
        [REASON_ALLOWED] = "Allowed.",
        [REASON_NETWORK_NONE] = "The policy of this VM gives it no network at all. " CHANGE_POLICY,
        [REASON_NO_RULE] = "No rule of this VM's policy allows this host. " CHANGE_POLICY,
        [REASON_DENY_RULE] = "A rule of this VM's policy denies this host. " CHANGE_POLICY,
        [REASON_PORT_NOT_ALLOWED] = "Rules allow this host, but not this port. " CHANGE_POLICY,
        [REASON_PROTOCOL_NOT_ALLOWED] = "Rules allow this host, but not this protocol. " CHANGE_POLICY,
        [REASON_METHOD_NOT_ALLOWED] = "Rules allow this host, but not this method. " CHANGE_POLICY,
        [REASON_PATH_NOT_ALLOWED] = "Rules allow this host, but not this path. " CHANGE_POLICY,
        [REASON_INSPECTION_REQUIRED] =
                "The rule restricts methods or paths, which TLS hides, and interception is not available. " CHANGE_POLICY,
        [REASON_IP_LITERAL] =
                "No rule covers this address; rules for names do not. Use the name, or ask for a CIDR rule.",
        [REASON_FLOOR_NAME] = "Names of this kind are never reachable, whatever the policy. Do not retry.",
        [REASON_FLOOR_ADDRESS] = "Addresses of this kind are never reachable, whatever the policy. Do not retry.",
        [REASON_SNI_MISSING] = "TLS to a name must carry that name as its server name (SNI).",
        [REASON_SNI_MISMATCH] = "The TLS server name (SNI) must be the host that the connection was opened to.",
        [REASON_HOST_MISMATCH] = "The Host header must name the request's target.",
        [REASON_MALFORMED_REQUEST] = "The request is not well-formed HTTP/1.1 or SOCKS5 to a proxy.",
        [REASON_RATE_LIMITED] =
                "This VM makes more requests a second than its policy allows. Retry after the time given.",
        [REASON_CONNECTION_LIMIT] = "As many connections are open as the policy of this VM allows. Close one first.",
        [REASON_QUOTA_EXCEEDED] = "The bytes that the policy of this VM allows are used up. Do not retry.",
        [REASON_DNS_FAILURE] = "The policy allows this host, but its name does not resolve to an address.",
        [REASON_DNS_TIMEOUT] = "The policy allows this host, but no name server answered in time. " TRY_LATER,
        [REASON_UPSTREAM_REFUSED] = "The policy allows this host, but nothing listens on that port there.",
        [REASON_UPSTREAM_UNREACHABLE] = "The policy allows this host, but there is no route to it. " TRY_LATER,
        [REASON_UPSTREAM_TIMEOUT] = "The policy allows this host, but it did not answer in time. " TRY_LATER,
        [REASON_UPSTREAM_TLS] = "The policy allows this host, but its certificate is not one that the broker trusts.",
        [REASON_UPSTREAM_PROTOCOL] = "The policy allows this host, but what it answered is not HTTP, or nothing.",
        [REASON_NOT_READY] = "This VM's network opens when the VM is activated. Retry after that.",
        [REASON_REVOKED] = "The operator revoked this VM's network access. Do not retry.",
        [REASON_ISOLATION_UNKNOWN] = "The isolation of this VM is not proven, and its policy asks for proof.",
        [REASON_ISOLATION_TOO_WEAK] = "The isolation of this VM is weaker than its policy asks for.",
        [REASON_AUDIT_UNAVAILABLE] = "The audit log cannot be written, and nothing passes unrecorded. " TRY_LATER,
};
static_assert(sizeof(details) / sizeof(*details) == REASON_MAX_, "a reason has no detail");

static const struct status_phrase {
        int status;
        const char *phrase;
} phrases[] = {
        {400, "Bad Request"},
        {403, "Forbidden"},
        {429, "Too Many Requests"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
};

const char *reply_detail(enum reason reason)
{
        assert(reason < REASON_MAX_);
        return details[reason];
}

static const char *phrase_of(int status)
{
        for (size_t i = 0; i < sizeof(phrases) / sizeof(*phrases); i++)
                if (phrases[i].status == status)
                        return phrases[i].phrase;
        return "Error";
}

/* The caller frees *ret with free(). */
static int problem_body(const struct reply_problem *p, char **ret)
{
        const struct reason_info *info = reason_info(p->reason);
        const char *detail = p->detail && *p->detail ? p->detail : reply_detail(p->reason);
        json_t *detail_json = json_string(detail);

        if (!detail_json) /* not UTF-8 */
                detail_json = json_string(reply_detail(p->reason));

        json_t *body = json_pack("{s:i, s:s, s:o, s:s}", "status", info->http_status, "title", info->title, "detail",
                detail_json, "reason", info->name);
        if (!body)
                return -ENOMEM;
        if (p->host)
                json_object_set_new(body, "host", json_string(p->host));
        if (p->port)
                json_object_set_new(body, "port", json_integer(p->port));
        char *text = json_dumps(body, JSON_COMPACT);
        json_decref(body);
        if (!text)
                return -ENOMEM;
        *ret = text;
        return 0;
}

int reply_problem(struct buffer *out, const struct reply_problem *p)
{
        const struct reason_info *info = reason_info(p->reason);
        _cleanup_free_ char *body = NULL;
        char retry_after[48] = "";

        int r = problem_body(p, &body);
        if (r < 0)
                return r;
        if (p->retry_after_s)
                (void)snprintf(retry_after, sizeof(retry_after), "Retry-After: %" PRIu64 "\r\n", p->retry_after_s);
        return buffer_printf(out,
                "HTTP/1.1 %d %s\r\n"
                "Content-Type: application/problem+json\r\n"
                "Content-Length: %zu\r\n"
                "Proxy-Status: wbbroker; error=%s; details=\"%s\"\r\n"
                "%s%s\r\n"
                "%s%s",
                info->http_status, phrase_of(info->http_status), strlen(body) + 1, info->proxy_status, info->name,
                retry_after, p->close ? "Connection: close\r\n" : "", p->head ? "" : body, p->head ? "" : "\n");
}

int reply_established(struct buffer *out)
{
        return buffer_printf(out, "HTTP/1.1 200 Connection established\r\n\r\n");
}

int reply_head_timeout(struct buffer *out)
{
        return buffer_printf(out, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
}

int reply_alert(struct buffer *out, enum reply_alert alert)
{
        const uint8_t record[] = {21 /* alert */, 3, 3, 0, 2, 2 /* fatal */, (uint8_t)alert};

        return buffer_append(out, record, sizeof(record));
}
