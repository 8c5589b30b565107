/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/audit_sealed.h"

#include <errno.h>
#include <string.h>

#include <jansson.h>

#include "proto/base/cleanup.h"

/* NULL where there is none, or one that is no text. */
static const char *text_of(const json_t *o, const char *key)
{
        return json_string_value(json_object_get(o, key));
}

static int take_hash(const json_t *o, const char *key, struct audit_hash *ret)
{
        const char *text = text_of(o, key);

        return text ? audit_hash_parse(text, strlen(text), ret) : -EBADMSG;
}

static int take_signature(const json_t *o, struct audit_checkpoint *c)
{
        const char *key = text_of(o, "key"), *signature = text_of(o, "sig");
        const json_t *after = json_object_get(o, "after");

        if (!key || strlen(key) != sizeof(c->key) - 1 || !signature || !*signature || !json_is_integer(after) ||
                json_integer_value(after) < 0)
                return -EBADMSG;
        memcpy(c->key, key, sizeof(c->key));
        c->after = (uint64_t)json_integer_value(after);
        return take_hash(o, "after_hash", &c->after_hash) < 0 ? -EBADMSG
                                                              : audit_checkpoint_parse_signature(signature, c);
}

static int take_checkpoint(const json_t *o, uint64_t seq, struct audit_checkpoint *ret)
{
        struct audit_checkpoint c = {.seq = seq};
        const char *ts = text_of(o, "ts");
        bool is_signed = json_object_get(o, "sig") || json_object_get(o, "key") || json_object_get(o, "after") ||
                         json_object_get(o, "after_hash");

        if (!ts || strlen(ts) != sizeof(c.ts) - 1 || take_hash(o, "previous", &c.previous) < 0)
                return -EBADMSG;
        memcpy(c.ts, ts, sizeof(c.ts));
        if (is_signed && take_signature(o, &c) < 0)
                return -EBADMSG;
        *ret = c;
        return 0;
}

int audit_sealed_parse(const char *text, size_t n, struct audit_sealed *ret)
{
        _cleanup_(json_decrefp) json_t *o =
                n <= AUDIT_LINE_MAX_BYTES ? json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL) : NULL;
        const char *event = text_of(o, "event");
        struct audit_sealed s = {.body = text};
        int r;

        if (!json_is_object(o) || !event || audit_record_seq(text, n, &s.seq) < 0 || s.seq == 0)
                return -EBADMSG;
        r = audit_record_split(text, n, &s.body_n, &s.hash);
        s.is_start = strcmp(event, audit_event_name(AUDIT_START)) == 0;
        s.is_stop = strcmp(event, audit_event_name(AUDIT_STOP)) == 0;
        s.is_checkpoint = strcmp(event, audit_event_name(AUDIT_CHECKPOINT)) == 0;
        if (r == 0 && s.is_checkpoint)
                r = take_checkpoint(o, s.seq, &s.checkpoint);
        if (r == 0)
                *ret = s;
        return r;
}
