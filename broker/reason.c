/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/reason.h"

#include <assert.h>
#include <stddef.h>

#define REQUEST_DENIED "http_request_denied"
#define IP_PROHIBITED  "destination_ip_prohibited"
#define REQUEST_ERROR  "http_request_error"
#define LIMIT_REACHED  "connection_limit_reached"
#define CONFIGURATION  "proxy_configuration_error"

/* The table of INTERFACES.md, Reasons. */
static const struct reason_info infos[] = {
        [REASON_ALLOWED] = {"allowed", "Allowed", NULL, 200, 0},
        [REASON_NETWORK_NONE] = {"network_none", "This VM has no network", REQUEST_DENIED, 403, 2},
        [REASON_NO_RULE] = {"no_rule", "No rule allows this host", REQUEST_DENIED, 403, 2},
        [REASON_DENY_RULE] = {"deny_rule", "A rule denies this host", REQUEST_DENIED, 403, 2},
        [REASON_PORT_NOT_ALLOWED] = {"port_not_allowed", "No rule allows this port", REQUEST_DENIED, 403, 2},
        [REASON_PROTOCOL_NOT_ALLOWED] = {"protocol_not_allowed", "No rule allows this protocol", REQUEST_DENIED, 403,
                2},
        [REASON_METHOD_NOT_ALLOWED] = {"method_not_allowed", "No rule allows this method", REQUEST_DENIED, 403, 2},
        [REASON_PATH_NOT_ALLOWED] = {"path_not_allowed", "No rule allows this path", REQUEST_DENIED, 403, 2},
        [REASON_INSPECTION_REQUIRED] = {"inspection_required", "The rule needs TLS interception", REQUEST_DENIED, 403,
                2},
        [REASON_IP_LITERAL] = {"ip_literal", "No rule allows this address", IP_PROHIBITED, 403, 2},
        [REASON_FLOOR_NAME] = {"floor_name", "Names of this kind are never reachable", IP_PROHIBITED, 403, 2},
        [REASON_FLOOR_ADDRESS] = {"floor_address", "Addresses of this kind are never reachable", IP_PROHIBITED, 403, 2},
        [REASON_SNI_MISSING] = {"sni_missing", "TLS without a server name", NULL, 0, 0},
        [REASON_SNI_MISMATCH] = {"sni_mismatch", "The TLS server name is not the target", NULL, 0, 0},
        [REASON_HOST_MISMATCH] = {"host_mismatch", "Host is not the target", REQUEST_ERROR, 400, 1},
        [REASON_MALFORMED_REQUEST] = {"malformed_request", "Malformed request", REQUEST_ERROR, 400, 1},
        [REASON_RATE_LIMITED] = {"rate_limited", "Too many requests", LIMIT_REACHED, 429, 2},
        [REASON_CONNECTION_LIMIT] = {"connection_limit", "Too many connections", LIMIT_REACHED, 429, 2},
        [REASON_QUOTA_EXCEEDED] = {"quota_exceeded", "The quota is used up", LIMIT_REACHED, 429, 2},
        [REASON_DNS_FAILURE] = {"dns_failure", "The name does not resolve", "dns_error", 502, 4},
        [REASON_DNS_TIMEOUT] = {"dns_timeout", "The name did not resolve in time", "dns_timeout", 504, 4},
        [REASON_UPSTREAM_REFUSED] = {"upstream_refused", "The server refused the connection", "connection_refused", 502,
                5},
        [REASON_UPSTREAM_UNREACHABLE] = {"upstream_unreachable", "The server is unreachable",
                "destination_ip_unroutable", 502, 3},
        [REASON_UPSTREAM_TIMEOUT] = {"upstream_timeout", "The server did not answer in time", "connection_timeout", 504,
                4},
        [REASON_UPSTREAM_TLS] = {"upstream_tls", "The server's certificate is not good", "tls_certificate_error", 502,
                0},
        [REASON_UPSTREAM_PROTOCOL] = {"upstream_protocol", "The server did not answer in HTTP", "http_protocol_error",
                502, 0},
        [REASON_NOT_READY] = {"not_ready", "This VM is not activated", CONFIGURATION, 503, 1},
        [REASON_REVOKED] = {"revoked", "This VM's network access was revoked", CONFIGURATION, 503, 1},
        [REASON_ISOLATION_UNKNOWN] = {"isolation_unknown", "The isolation of this VM is not proven", CONFIGURATION, 503,
                1},
        [REASON_ISOLATION_TOO_WEAK] = {"isolation_too_weak", "The isolation of this VM is weaker than its policy asks",
                CONFIGURATION, 503, 1},
        [REASON_AUDIT_UNAVAILABLE] = {"audit_unavailable", "The audit log cannot be written", CONFIGURATION, 503, 1},
};
static_assert(sizeof(infos) / sizeof(*infos) == REASON_MAX_, "a reason has no row");

const struct reason_info *reason_info(enum reason reason)
{
        assert(reason < REASON_MAX_);
        return &infos[reason];
}
