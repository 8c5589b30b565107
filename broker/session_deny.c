/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "broker/session_private.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"

/* What is written down of a session, and how a client is told no: in whatever it speaks at that moment. */

#define DETAIL_BYTES 1024u

void session_record(struct session *s, enum audit_event event, struct audit_record *ret_record)
{
        *ret_record = AUDIT_RECORD_INIT(event);
        ret_record->vm = s->vm->name;
        ret_record->generation = s->vm->generation;
        ret_record->session = s->id;
        ret_record->policy_sha256 = s->vm->policy->sha256;
        ret_record->ech = s->ech;
        if (!s->has_request)
                return;
        ret_record->has_via = true;
        ret_record->via = s->inspected && s->request.method ? VIA_INSPECT : s->request.via;
        ret_record->host = s->request.host.length ? s->request.host.text : NULL;
        ret_record->port = s->request.port;
        ret_record->method = s->request.method;
        ret_record->path = s->request.path;
}

void session_submit(struct session *s, const struct audit_record *record)
{
        int r = audit_submit(s->vm->context->audit, record, NULL, NULL);

        if (r < 0)
                log_write_errno(LOG_LEVEL_ERROR, r, "vm %s: an audit record is lost", s->vm->name);
}

void session_record_close(struct session *s)
{
        struct audit_record record;

        if (!s->recorded)
                return;
        s->recorded = false;
        session_record(s, AUDIT_EGRESS_CLOSE, &record);
        record.rule = s->counted ? s->counted_rule : s->decision.rule; /* the last decision may have been a denial */
        record.via = s->request.via;                                   /* of the connection, not of a request in it */
        record.method = record.path = NULL;
        record.status = s->status;
        record.has_bytes = true;
        record.bytes_up = s->bytes_up;
        record.bytes_down = s->bytes_down;
        record.duration_ms = (clock_monotonic_ns() - s->opened_ns) / NSEC_PER_MSEC;
        session_submit(s, &record);
        s->bytes_up = s->bytes_down = 0;
}

/* Reasons that policy_explain() knows more of than the reason. */
static bool policy_decided(const struct session *s, enum reason reason)
{
        return s->has_request && reason == s->decision.reason && reason <= REASON_FLOOR_ADDRESS;
}

static void write_detail(struct session *s, enum reason reason, const char *detail, char ret_text[DETAIL_BYTES])
{
        ret_text[0] = '\0';
        if (reason == REASON_INSPECTION_REQUIRED && s->vm->context->settings->trust && !s->vm->ca)
                (void)snprintf(ret_text, DETAIL_BYTES,
                        "The rule restricts methods or paths, which TLS hides, and this VM was not given the broker's "
                        "interception CA when it was activated: activate it again.");
        else if (detail)
                (void)snprintf(ret_text, DETAIL_BYTES, "%s (%s)", reply_detail(reason), detail);
        else if (policy_decided(s, reason))
                policy_explain(s->vm->policy, &s->request, &s->decision, ret_text, DETAIL_BYTES);
        if (!ret_text[0])
                (void)snprintf(ret_text, DETAIL_BYTES, "%s", reply_detail(reason));
}

/* The record of a request inside intercepted TLS is the same whether it was allowed or denied. What failed behind the
 * decision is a failure like any. */
static bool is_inspected_request(const struct session *s, enum reason reason)
{
        return s->inspected && s->state == SESSION_INNER_HEAD && s->request.method &&
               reason != REASON_PROTOCOL_NOT_ALLOWED;
}

static void record_denial(struct session *s, enum reason reason, const char *detail)
{
        struct audit_record record;

        session_record(s, is_inspected_request(s, reason) ? AUDIT_REQUEST : AUDIT_EGRESS_DENY, &record);
        record.has_decision = true;
        record.reason = reason;
        record.rule = reason == REASON_DENY_RULE ? s->decision.rule : DECISION_NO_RULE;
        record.status = s->speaks == SPEAKS_HTTP ? reason_info(reason)->http_status : 0;
        record.detail = detail;
        session_submit(s, &record);
        s->vm->stats.denied_total++;
}

/*
 * A refused request of a proxy's client, or in intercepted TLS, leaves the connection in order if it was understood and
 * has no body. A tunnel that lost its place in the limits must not stay.
 */
static bool may_keep(const struct session *s, enum reason reason)
{
        bool between = s->state == SESSION_HEAD || (s->state == SESSION_INNER_HEAD && s->inspected && s->counted);

        return between && s->head && !s->head->connect && s->head->framing == HTTP1_FRAMING_NONE &&
               s->head->keep_alive && reason != REASON_MALFORMED_REQUEST && reason != REASON_HOST_MISMATCH &&
               !s->vm->context->draining;
}

static bool failed_on_the_way(const struct session *s)
{
        return s->state == SESSION_RESOLVING || s->state == SESSION_DIALLING || s->state == SESSION_RECORDING;
}

static void deny_http(struct session *s, enum reason reason, const char *detail)
{
        bool keep = may_keep(s, reason);
        struct reply_problem problem = {
                .reason = reason,
                .host = s->has_request && s->request.host.length ? s->request.host.text : NULL,
                .port = s->has_request ? s->request.port : 0,
                .detail = detail,
                .retry_after_s = s->retry_after_s,
                .head = s->head && s->head->method && !strcmp(s->head->method, "HEAD"),
                .close = !keep,
        };

        if (reason_info(reason)->http_status && reply_problem(&s->client.out, &problem) < 0)
                keep = false;
        if (!keep) {
                session_linger(s);
                return;
        }
        (void)peer_flush(&s->client);
        if (!s->tunnel)
                session_close_server(s);
        session_drop_head(s);
        s->requests_seen = true;
        session_set_state(s, s->tunnel ? SESSION_INNER_HEAD : SESSION_HEAD);
}

static void deny_socks5(struct session *s, enum reason reason)
{
        uint8_t reply[SOCKS5_REPLY_MAX_BYTES];
        size_t n = socks5_reply((uint8_t)reason_info(reason)->socks5_reply, NULL, 0, reply);

        (void)buffer_append(&s->client.out, reply, n);
        session_linger(s);
}

static void deny_tls(struct session *s, enum reason reason)
{
        bool name = reason == REASON_SNI_MISSING || reason == REASON_SNI_MISMATCH;

        (void)reply_alert(&s->client.out, name ? REPLY_ALERT_UNRECOGNIZED_NAME : REPLY_ALERT_ACCESS_DENIED);
        session_linger(s);
}

void session_deny(struct session *s, enum reason reason, const char *detail)
{
        char text[DETAIL_BYTES];
        bool answered = s->exchange && s->exchange->answered;

        write_detail(s, reason, detail, text);
        record_denial(s, reason, text);
        if (s->exchange)
                s->exchange->told = true;
        if (failed_on_the_way(s)) {
                session_open_cancel(s);
                if (s->head && !s->head->connect)
                        session_set_state(s, SESSION_HEAD); /* the request failed, not the connection */
        }
        if (answered || s->speaks == SPEAKS_NOTHING)
                session_linger(s); /* an answer that has begun ends there: the client sees that it is cut short */
        else if (s->speaks == SPEAKS_HTTP)
                deny_http(s, reason, text);
        else if (s->speaks == SPEAKS_SOCKS5)
                deny_socks5(s, reason);
        else
                deny_tls(s, reason);
        s->retry_after_s = 0;
}
