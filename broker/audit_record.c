/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/audit_record.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "broker/json_escape.h"
#include "proto/base/clock.h"

#define HASH_KEY    ",\"hash\":\""
#define HASH_END    "\"}\n"
#define HASH_DIGITS (2 * sizeof(struct audit_hash))
static_assert(sizeof(HASH_KEY) - 1 + HASH_DIGITS + sizeof(HASH_END) - 1 == AUDIT_TAIL_BYTES, "the tail's length");

/* All numbers, names and punctuation of a record together, the policy's digest included. */
#define FIXED_BYTES 1024u

static const char *const event_names[] = {
        [AUDIT_EGRESS_OPEN] = "egress_open",
        [AUDIT_EGRESS_CLOSE] = "egress_close",
        [AUDIT_EGRESS_DENY] = "egress_deny",
        [AUDIT_REQUEST] = "request",
        [AUDIT_DNS] = "dns",
        [AUDIT_VM_ADD] = "vm_add",
        [AUDIT_VM_RM] = "vm_rm",
        [AUDIT_ACTIVATE] = "activate",
        [AUDIT_QUIESCE] = "quiesce",
        [AUDIT_POLICY_LOAD] = "policy_load",
        [AUDIT_REVOKE] = "revoke",
        [AUDIT_SECRET_PUT] = "secret_put",
        [AUDIT_SECRET_USE] = "secret_use",
        [AUDIT_START] = "start",
        [AUDIT_STOP] = "stop",
        [AUDIT_CHECKPOINT] = "checkpoint",
};
static_assert(sizeof(event_names) / sizeof(*event_names) == AUDIT_EVENT_MAX_, "an event has no name");

const char *audit_event_name(enum audit_event event)
{
        assert(event < AUDIT_EVENT_MAX_);
        return event_names[event];
}

static size_t text_room(const char *text)
{
        return text ? strlen(text) * JSON_ESCAPE_FACTOR : 0;
}

size_t audit_record_room(const struct audit_record *record)
{
        return FIXED_BYTES + text_room(record->vm) + text_room(record->host) + text_room(record->address) +
               text_room(record->method) + text_room(record->path) + text_room(record->detail);
}

static char *put(char *to, const char *text)
{
        return stpcpy(to, text);
}

static char *put_key(char *to, const char *key)
{
        to = put(to, ",\"");
        to = put(to, key);
        return put(to, "\":");
}

static char *put_text(char *to, const char *key, const char *text)
{
        if (!text)
                return to;
        to = put_key(to, key);
        *to++ = '"';
        to += json_escape(to, text, strlen(text));
        *to++ = '"';
        return to;
}

static char *put_number(char *to, const char *key, uint64_t value)
{
        to = put_key(to, key);
        return to + sprintf(to, "%" PRIu64, value);
}

static char *put_number_if(char *to, const char *key, uint64_t value)
{
        return value ? put_number(to, key, value) : to;
}

static char *put_digest(char *to, const char *key, const uint8_t *digest)
{
        if (!digest)
                return to;
        to = put_key(to, key);
        *to++ = '"';
        sha256_text(digest, to);
        to += HASH_DIGITS;
        *to++ = '"';
        return to;
}

size_t audit_record_body(const struct audit_record *record, char *to)
{
        const struct audit_record *r = record;
        const char *start = to;

        to = put_text(to, "vm", r->vm);
        to = put_number_if(to, "gen", r->generation);
        to = put_number_if(to, "session", r->session);
        to = put_text(to, "event", audit_event_name(r->event));
        if (r->has_decision) {
                to = put_text(to, "decision", r->reason == REASON_ALLOWED ? "allow" : "deny");
                to = put_text(to, "reason", reason_info(r->reason)->name);
        }
        if (r->rule >= 0)
                to = put_number(to, "rule", (uint64_t)r->rule);
        to = put_text(to, "via", r->has_via ? via_name(r->via) : NULL);
        to = put_text(to, "host", r->host);
        to = put_number_if(to, "port", r->port);
        to = put_text(to, "addr", r->address);
        to = put_text(to, "method", r->method);
        to = put_text(to, "path", r->path);
        if (r->status > 0)
                to = put_number(to, "status", (uint64_t)r->status);
        if (r->has_bytes) {
                to = put_number(to, "bytes_up", r->bytes_up);
                to = put_number(to, "bytes_down", r->bytes_down);
                to = put_number(to, "duration_ms", r->duration_ms);
        } else {
                to = put_number_if(to, "duration_ms", r->duration_ms);
        }
        if (r->ech)
                to = put(put_key(to, "ech"), "true");
        to = put_digest(to, "policy", r->policy_sha256);
        to = put_text(to, "detail", r->detail);
        return (size_t)(to - start);
}

size_t audit_record_head(uint64_t seq, uint64_t realtime_ns, char to[AUDIT_HEAD_MAX_BYTES])
{
        char ts[CLOCK_TEXT_BYTES];

        clock_format(realtime_ns, ts);
        return (size_t)snprintf(to, AUDIT_HEAD_MAX_BYTES, "{\"seq\":%" PRIu64 ",\"ts\":\"%s\"", seq, ts);
}

int audit_record_seq(const char *line, size_t n, uint64_t *ret)
{
        static const char begin[] = "{\"seq\":";
        uint64_t value = 0;
        size_t i = sizeof(begin) - 1;

        if (n <= i || memcmp(line, begin, i) != 0 || line[i] < '0' || line[i] > '9')
                return -EBADMSG;
        for (; i < n && line[i] >= '0' && line[i] <= '9'; i++)
                if (__builtin_mul_overflow(value, 10, &value) ||
                        __builtin_add_overflow(value, (uint64_t)(line[i] - '0'), &value))
                        return -EBADMSG;
        if (i == n || line[i] != ',')
                return -EBADMSG;
        *ret = value;
        return 0;
}

int audit_record_hash(const struct audit_hash *before, const char *text, size_t n, struct audit_hash *ret)
{
        char head[SHA256_TEXT_BYTES];
        const struct iovec parts[] = {
                {.iov_base = head, .iov_len = sizeof(head)}, {.iov_base = (char *)(uintptr_t)text, .iov_len = n}};

        sha256_text(before->bytes, head);
        head[HASH_DIGITS] = '\n';
        return sha256_parts(parts, 2, ret->bytes);
}

void audit_record_tail(const struct audit_hash *hash, char *to)
{
        memcpy(to, HASH_KEY, sizeof(HASH_KEY) - 1);
        sha256_text(hash->bytes, to + sizeof(HASH_KEY) - 1);
        memcpy(to + sizeof(HASH_KEY) - 1 + HASH_DIGITS, HASH_END, sizeof(HASH_END) - 1);
}

int audit_record_split(const char *line, size_t n, size_t *ret_n, struct audit_hash *ret_hash)
{
        const char *tail;

        if (n < AUDIT_TAIL_BYTES - 1)
                return -EBADMSG;
        tail = line + n - (AUDIT_TAIL_BYTES - 1);
        if (memcmp(tail, HASH_KEY, sizeof(HASH_KEY) - 1) != 0 || memcmp(line + n - 2, HASH_END, 2) != 0 ||
                audit_hash_parse(tail + sizeof(HASH_KEY) - 1, HASH_DIGITS, ret_hash) < 0)
                return -EBADMSG;
        *ret_n = (size_t)(tail - line);
        return 0;
}

int audit_hash_parse(const char *text, size_t n, struct audit_hash *ret)
{
        struct audit_hash hash = {{0}};

        if (n != HASH_DIGITS || sha256_parse(text, hash.bytes) < 0)
                return -EBADMSG;
        *ret = hash;
        return 0;
}
