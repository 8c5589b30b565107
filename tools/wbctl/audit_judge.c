/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/audit_judge.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "proto/base/log.h"
#include "proto/base/parse.h"

#define HEAD_MAX_BYTES 256u

static int take_key(struct audit_trust *t, const char *path)
{
        _cleanup_(p256_freep) struct p256_key *key = NULL;
        _cleanup_free_ char *text = NULL;
        struct audit_hash *keys;
        size_t n = 0;
        int r = io_read_file(path, P256_PEM_MAX_BYTES, &text, &n);

        if (r == 0)
                r = p256_read_public(text, n, &key);
        if (r == -EBADMSG)
                log_error("%s is no public key of P-256 (the broker's is audit.pub in its state_dir)", path);
        else if (r < 0)
                (void)log_errno(r, "cannot read %s", path);
        if (r < 0)
                return r;
        keys = realloc(t->keys, (t->keys_n + 1) * sizeof(*keys));
        if (!keys)
                return log_oom();
        t->keys = keys;
        p256_fingerprint(key, keys[t->keys_n++].bytes);
        return 0;
}

static int take_head(struct audit_trust *t, const char *path)
{
        _cleanup_free_ char *text = NULL;
        size_t n = 0;
        char *space;
        int r = io_read_file(path, HEAD_MAX_BYTES, &text, &n);

        if (r < 0)
                return log_errno(r, "cannot read %s", path);
        space = strchr(text, ' ');
        if (space && n && text[n - 1] == '\n') {
                *space = '\0';
                if (parse_u64(text, UINT64_MAX, &t->head_seq) == 0 &&
                        audit_hash_parse(space + 1, (size_t)(text + n - 1 - (space + 1)), &t->head_hash) == 0) {
                        t->has_head = true;
                        return 0;
                }
        }
        log_error("%s is no audit.head of a broker's state_dir", path);
        return -EBADMSG;
}

int audit_trust_take(const struct audit_trust_options *o, bool is_default, struct audit_trust *ret)
{
        static const char pub[] = AUDIT_STATE_DIR "/audit.pub", head[] = AUDIT_STATE_DIR "/audit.head";
        int r = 0;

        is_default = is_default && !o->keys.n && !o->head;
        ret->partial = o->partial;
        for (size_t i = 0; i < o->keys.n && r == 0; i++)
                r = take_key(ret, o->keys.items[i]);
        if (r == 0 && o->head)
                r = take_head(ret, o->head);
        if (is_default && access(pub, R_OK) == 0)
                r = take_key(ret, pub);
        if (r == 0 && is_default && access(head, R_OK) == 0)
                r = take_head(ret, head);
        return r;
}

void audit_trust_done(struct audit_trust *t)
{
        free(t->keys);
}

int audit_judge(const struct audit_trust *t, struct audit_reader *reader, finding_handler on_finding,
        audit_text_handler on_text, void *userdata, struct audit_summary *ret)
{
        const struct audit_check_options options = {.keys = t->keys,
                .keys_n = t->keys_n,
                .partial = t->partial,
                .has_head = t->has_head,
                .head_seq = t->head_seq,
                .head_hash = t->head_hash};
        struct audit_check *check;
        struct audit_text text;
        int r = audit_check_new(&options, on_finding, userdata, &check);

        if (r < 0)
                return log_oom();
        while ((r = audit_reader_next(reader, &text)) == AUDIT_READER_E_LINE) {
                audit_check_line(check, &text);
                if (on_text)
                        on_text(userdata, &text);
        }
        if (r < 0) {
                (void)log_errno(r, "cannot read %s", text.file);
        } else {
                audit_check_end(check);
                *ret = *audit_check_summary(check);
        }
        audit_check_free(check);
        return r;
}

void audit_verdict(const struct audit_summary *s, size_t files_n, char ret_text[AUDIT_VERDICT_BYTES])
{
        char fingerprint[SHA256_TEXT_BYTES], signed_text[256];

        (void)snprintf(signed_text, sizeof(signed_text), "nothing is signed");
        if (s->checkpoints_n) {
                sha256_text(s->key.bytes, fingerprint);
                (void)snprintf(signed_text, sizeof(signed_text),
                        "signed up to record %" PRIu64 " at %s by the key SHA256:%s", s->signed_seq, s->signed_ts,
                        fingerprint);
        }
        (void)snprintf(ret_text, AUDIT_VERDICT_BYTES,
                "%s: %" PRIu64 " records (%" PRIu64 " to %" PRIu64 ") in %zu file%s, %s",
                s->findings_n ? "NOT whole and unaltered" : "whole and unaltered", s->records_n, s->first_seq,
                s->last_seq, files_n, files_n == 1 ? "" : "s", signed_text);
}

static bool note_key(const struct audit_summary *s, const struct audit_trust *t, char *ret_text)
{
        if (t->keys_n || !s->checkpoints_n)
                return false;
        (void)snprintf(ret_text, AUDIT_VERDICT_BYTES,
                "no --key was given: whoever alters a log can sign it with a key of their own. Compare the key's SHA256 with "
                "`openssl pkey -pubin -in audit.pub -outform DER | sha256sum` at the broker's state_dir");
        return true;
}

static bool note_head(const struct audit_summary *s, const struct audit_trust *t, char *ret_text)
{
        if (t->has_head || !s->records_n)
                return false;
        (void)snprintf(ret_text, AUDIT_VERDICT_BYTES,
                "no --head was given: that later records were cut off the end can be seen only by the broker's audit.head");
        return true;
}

static bool note_unsigned(const struct audit_summary *s, const struct audit_trust *t, char *ret_text)
{
        (void)t;
        if (!s->unsigned_n)
                return false;
        (void)snprintf(ret_text, AUDIT_VERDICT_BYTES, "unsigned tail: %" PRIu64 " record%s behind the last checkpoint",
                s->unsigned_n, s->unsigned_n == 1 ? "" : "s");
        return true;
}

static bool note_crashes(const struct audit_summary *s, const struct audit_trust *t, char *ret_text)
{
        (void)t;
        if (!s->crashes_n)
                return false;
        (void)snprintf(ret_text, AUDIT_VERDICT_BYTES,
                "the broker started %" PRIu64 " time%s without having stopped before: it was killed, or its machine",
                s->crashes_n, s->crashes_n == 1 ? "" : "s");
        return true;
}

static bool note_unchecked(const struct audit_summary *s, const struct audit_trust *t, char *ret_text)
{
        (void)t;
        if (!s->unchecked_n)
                return false;
        (void)snprintf(ret_text, AUDIT_VERDICT_BYTES,
                "%" PRIu64 " record%s can be checked only with the one before, which is not here", s->unchecked_n,
                s->unchecked_n == 1 ? "" : "s");
        return true;
}

bool audit_note(
        const struct audit_summary *s, const struct audit_trust *t, size_t i, char ret_text[AUDIT_VERDICT_BYTES])
{
        static bool (*const notes[])(const struct audit_summary *, const struct audit_trust *, char *) = {
                note_unsigned, note_crashes, note_unchecked, note_key, note_head};

        for (size_t at = 0; at < sizeof(notes) / sizeof(*notes); at++)
                if (notes[at](s, t, ret_text) && i-- == 0)
                        return true;
        return false;
}
