/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/audit_check.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/parse.h"
#include "tools/wbctl/audit_sealed.h"

/* Hashes that are remembered, for what a later signature says of them: more than lie between two checkpoints. */
#define RECENT_MAX (4 * AUDIT_CHECKPOINT_RECORDS)

/* Records that the broker may have asked a signature for and not have written down: enough for a row of crashes. */
#define ASKED_MAX 256u

struct recent {
        uint64_t seq; /* 0: none */
        struct audit_hash hash;
};

/* Where the chain stands: behind the record with the greatest seq so far. */
struct chain {
        uint64_t seq;
        struct audit_hash hash;  /* as that record has it */
        bool is_known;           /* false where what stands before is not there */
        bool has_other;          /* the record's hash may also have been this, which is already told of */
        struct audit_hash other; /* see above */
        uint64_t gap_begin;      /* records that were not there when they should have been: from here */
        uint64_t gap_end;        /* to before here */
};

struct audit_check {
        struct audit_check_options options;
        finding_handler handler;
        void *userdata;
        struct audit_summary summary;
        struct chain chain;
        const struct audit_text *text; /* that is looked at */
        const char *file;              /* that was read last */
        uint64_t file_last_seq;
        bool stopped; /* the last record that is no checkpoint is a stop */
        uint64_t vouched_seq;
        struct audit_hash vouched;
        struct recent asked[ASKED_MAX]; /* a ring */
        size_t asked_n;
        bool head_differs;
        struct recent recent[RECENT_MAX];
};

static const char *const finding_names[] = {
        [FINDING_NOT_A_RECORD] = "not_a_record",
        [FINDING_TOO_LONG] = "too_long",
        [FINDING_TORN] = "torn",
        [FINDING_ALTERED] = "altered",
        [FINDING_MISSING] = "missing",
        [FINDING_DUPLICATE] = "duplicate",
        [FINDING_INSERTED] = "inserted",
        [FINDING_REORDERED] = "reordered",
        [FINDING_FILE_NAME] = "file_name",
        [FINDING_BAD_SIGNATURE] = "bad_signature",
        [FINDING_WRONG_KEY] = "wrong_key",
        [FINDING_REPLACED] = "replaced",
        [FINDING_TRUNCATED] = "truncated",
        [FINDING_UNSIGNED] = "unsigned",
};
static_assert(sizeof(finding_names) / sizeof(*finding_names) == FINDING_MAX_, "a kind has no name");

const char *finding_name(enum finding_kind kind)
{
        assert(kind < FINDING_MAX_);
        return finding_names[kind];
}

static void find(struct audit_check *c, enum finding_kind kind, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

static void find(struct audit_check *c, enum finding_kind kind, const char *format, ...)
{
        struct finding f = {.kind = kind, .file = c->file ? c->file : "the log", .line = c->text ? c->text->line : 0};
        va_list ap;

        va_start(ap, format);
        (void)vsnprintf(f.text, sizeof(f.text), format, ap);
        va_end(ap);
        c->summary.findings_n++;
        c->handler(c->userdata, &f);
}

static bool same_hash(const struct audit_hash *a, const struct audit_hash *b)
{
        return memcmp(a, b, sizeof(*a)) == 0;
}

static void remember(struct audit_check *c, uint64_t seq, const struct audit_hash *hash)
{
        c->recent[seq % RECENT_MAX] = (struct recent){.seq = seq, .hash = *hash};
}

/* NULL where it is too long ago, or was never there. */
static const struct audit_hash *recall(const struct audit_check *c, uint64_t seq)
{
        const struct recent *r = &c->recent[seq % RECENT_MAX];

        return seq && r->seq == seq ? &r->hash : NULL;
}

/* The record that the chain stands at may have been signed, and the signature lost. */
static void remember_asked(struct audit_check *c)
{
        if (c->chain.is_known && c->chain.seq)
                c->asked[c->asked_n++ % ASKED_MAX] = (struct recent){.seq = c->chain.seq, .hash = c->chain.hash};
}

/* As far as it is known: the record's hash that a signature is said to have vouched for. */
static const struct audit_hash *recall_signed(const struct audit_check *c, uint64_t seq)
{
        if (seq && seq == c->vouched_seq)
                return &c->vouched;
        for (size_t i = 0; i < ASKED_MAX; i++)
                if (seq && c->asked[i].seq == seq)
                        return &c->asked[i].hash;
        return recall(c, seq);
}

/* ---- the chain */

static bool follows(const struct audit_sealed *r, const struct audit_hash *before, struct audit_hash *ret_own)
{
        return audit_record_hash(before, r->body, r->body_n, ret_own) == 0 && same_hash(ret_own, &r->hash);
}

/* The next record is there. Is it what was written behind the one before? */
static void link_next(struct audit_check *c, const struct audit_sealed *r)
{
        struct chain *chain = &c->chain;
        bool known = chain->is_known, other = chain->has_other;
        struct audit_hash own, ignored;

        chain->has_other = false;
        /* Where the record before is not there, a checkpoint still says what its hash was. */
        if (!known && r->is_checkpoint)
                chain->hash = r->checkpoint.previous;
        if (!known && !r->is_checkpoint) {
                c->summary.unchecked_n++;
                return;
        }
        if (follows(r, &chain->hash, &own) || (other && follows(r, &chain->other, &ignored)))
                return;
        find(c, FINDING_ALTERED,
                "record %" PRIu64 " is not what was written here, or does not belong behind the one before", r->seq);
        chain->has_other = true; /* its text may be right and its hash wrong */
        chain->other = own;
}

static void advance(struct audit_check *c, const struct audit_sealed *r)
{
        c->chain.seq = r->seq;
        c->chain.hash = r->hash;
        c->chain.is_known = true;
        remember(c, r->seq, &r->hash);
        if (c->options.has_head && r->seq == c->options.head_seq)
                c->head_differs = !same_hash(&r->hash, &c->options.head_hash);
}

static void take_first(struct audit_check *c, const struct audit_sealed *r)
{
        c->summary.first_seq = r->seq;
        c->chain.is_known = r->seq == 1;
        if (r->seq > 1 && !c->options.partial) {
                c->chain.gap_begin = 1;
                c->chain.gap_end = r->seq;
                find(c, FINDING_MISSING, "records 1 to %" PRIu64 " are missing: the log does not begin here",
                        r->seq - 1);
        }
}

static void take_gap(struct audit_check *c, const struct audit_sealed *r, bool new_file)
{
        struct chain *chain = &c->chain;

        chain->gap_begin = chain->seq + 1;
        chain->gap_end = r->seq;
        chain->is_known = false;
        chain->has_other = false;
        find(c, FINDING_MISSING, "records %" PRIu64 " to %" PRIu64 " are missing before record %" PRIu64 "%s",
                chain->gap_begin, chain->gap_end - 1, r->seq, new_file ? ": a file, or the end of the one before" : "");
}

/* A record whose number was passed. The chain stays where it is. */
static void take_old(struct audit_check *c, const struct audit_sealed *r)
{
        const struct audit_hash *there = recall(c, r->seq);
        struct chain *chain = &c->chain;

        if (there && same_hash(there, &r->hash)) {
                find(c, FINDING_DUPLICATE, "record %" PRIu64 " stands here again", r->seq);
        } else if (!there && r->seq >= chain->gap_begin && r->seq < chain->gap_end) {
                find(c, FINDING_REORDERED, "record %" PRIu64 " stands behind record %" PRIu64, r->seq, chain->seq);
                remember(c, r->seq, &r->hash);
        } else {
                find(c, FINDING_INSERTED, "another record %" PRIu64 " stands behind record %" PRIu64, r->seq,
                        chain->seq);
        }
        if (r->seq == chain->seq) {
                chain->has_other = true; /* either of the two may be the one that the next belongs to */
                chain->other = r->hash;
        }
}

/* ---- checkpoints */

static void check_key(struct audit_check *c, const struct audit_checkpoint *p, const struct audit_hash *key)
{
        const struct audit_check_options *o = &c->options;
        char text[SHA256_TEXT_BYTES];
        bool ok = o->keys_n == 0 && (c->summary.checkpoints_n == 0 || same_hash(&c->summary.key, key));

        for (size_t i = 0; i < o->keys_n && !ok; i++)
                ok = same_hash(&o->keys[i], key);
        sha256_text(key->bytes, text);
        if (!ok)
                find(c, FINDING_WRONG_KEY, "checkpoint %" PRIu64 " is signed by the key SHA256:%s, %s", p->seq, text,
                        o->keys_n ? "which is none that was given" : "those before it by another");
        if (c->summary.checkpoints_n == 0)
                c->summary.key = *key;
}

/* The signer's own memory: what it vouched for before must be in this log. */
static void check_after(struct audit_check *c, const struct audit_checkpoint *p)
{
        const struct audit_hash *there = recall_signed(c, p->after);
        bool first = c->summary.checkpoints_n == 0;

        if (p->after == 0 && first)
                return;
        if (p->after == 0)
                find(c, FINDING_REPLACED,
                        "checkpoint %" PRIu64 " knows of none before it: the broker's state_dir was lost or replaced",
                        p->seq);
        else if (p->after >= p->seq)
                find(c, FINDING_REPLACED,
                        "before checkpoint %" PRIu64 " the broker had signed up to record %" PRIu64
                        ": the log's end was cut off, or the log begun anew",
                        p->seq, p->after);
        else if (there && !same_hash(there, &p->after_hash))
                find(c, FINDING_REPLACED,
                        "before checkpoint %" PRIu64 " the broker had signed another record %" PRIu64
                        " than the one that is here",
                        p->seq, p->after);
        else if (!there && p->after >= c->summary.first_seq)
                find(c, FINDING_REPLACED,
                        "before checkpoint %" PRIu64 " the broker had signed record %" PRIu64
                        ", and it cannot be told whether it is the one that is here",
                        p->seq, p->after);
}

/* before: where the chain stood in front of it. */
static void take_checkpoint(struct audit_check *c, const struct audit_sealed *r, const struct chain *before)
{
        const struct audit_checkpoint *p = &r->checkpoint;
        struct audit_summary *s = &c->summary;
        struct audit_hash key;

        if (audit_checkpoint_check(p, key.bytes) < 0) {
                find(c, FINDING_BAD_SIGNATURE, "the signature of checkpoint %" PRIu64 " does not fit what stands there",
                        p->seq);
                return;
        }
        check_key(c, p, &key);
        if (before->is_known && before->seq + 1 == p->seq && !same_hash(&before->hash, &p->previous) &&
                !(before->has_other && same_hash(&before->other, &p->previous)))
                find(c, FINDING_ALTERED,
                        "checkpoint %" PRIu64 " vouches for another record %" PRIu64 " than the one before it", p->seq,
                        p->seq - 1);
        check_after(c, p);
        c->vouched_seq = p->seq - 1;
        c->vouched = p->previous;
        s->checkpoints_n++;
        s->signed_seq = p->seq;
        memcpy(s->signed_ts, p->ts, sizeof(s->signed_ts));
}

/* ---- lines */

static void take_record(struct audit_check *c, const struct audit_sealed *r, bool new_file)
{
        struct chain before;

        if (c->summary.first_seq == 0)
                take_first(c, r);
        else if (r->seq > c->chain.seq + 1)
                take_gap(c, r, new_file);
        before = c->chain;
        if (c->chain.seq && r->seq <= c->chain.seq) {
                take_old(c, r);
                return;
        }
        if (r->is_start || (r->is_checkpoint && !r->checkpoint.signature_n))
                remember_asked(c);
        link_next(c, r);
        if (r->is_checkpoint && r->checkpoint.signature_n)
                take_checkpoint(c, r, &before);
        advance(c, r);
        c->file_last_seq = r->seq;
}

static void count_crash(struct audit_check *c, const struct audit_sealed *r)
{
        if (r->is_start && !c->stopped && r->seq != c->summary.first_seq)
                c->summary.crashes_n++;
        if (!r->is_checkpoint)
                c->stopped = r->is_stop;
}

/* A file that was put aside says by its name which record is its last. */
static void end_file(struct audit_check *c)
{
        const char *name = c->file ? strrchr(c->file, '/') : NULL, *digits;
        uint64_t seq;

        name = name ? name + 1 : c->file;
        if (!name || strncmp(name, "audit.log.", 10) != 0 || c->file_last_seq == 0)
                return;
        digits = name + 10;
        if (strlen(digits) != 20 || parse_u64(digits, UINT64_MAX, &seq) < 0 || seq == c->file_last_seq)
                return;
        find(c, FINDING_FILE_NAME, "its last record is %" PRIu64 ", and by its name it should be %" PRIu64,
                c->file_last_seq, seq);
}

static bool take_file(struct audit_check *c, const char *file)
{
        if (c->file && strcmp(c->file, file) == 0)
                return false;
        c->text = NULL;
        end_file(c);
        c->file = file;
        c->file_last_seq = 0;
        return true;
}

void audit_check_line(struct audit_check *c, const struct audit_text *text)
{
        bool new_file = take_file(c, text->file);
        struct audit_sealed r;

        c->text = text;
        if (text->kind == AUDIT_TEXT_TOO_LONG) {
                find(c, FINDING_TOO_LONG, "longer than any record: more than %u bytes", AUDIT_LINE_MAX_BYTES);
        } else if (text->kind == AUDIT_TEXT_TORN) {
                find(c, FINDING_TORN, "half a record: %zu bytes without an end", text->n);
        } else if (audit_sealed_parse(text->text, text->n, &r) < 0) {
                find(c, FINDING_NOT_A_RECORD, "not a record");
        } else {
                c->summary.records_n++;
                take_record(c, &r, new_file);
                count_crash(c, &r);
        }
        c->text = NULL;
}

static void check_head(struct audit_check *c)
{
        const struct audit_check_options *o = &c->options;
        if (!o->has_head || o->head_seq == 0)
                return;
        if (c->chain.seq < o->head_seq)
                find(c, FINDING_TRUNCATED,
                        "the broker signed up to record %" PRIu64 ", the log ends at record %" PRIu64, o->head_seq,
                        c->chain.seq);
        else if (c->head_differs)
                find(c, FINDING_REPLACED, "the broker signed another record %" PRIu64 " than the one that is here",
                        o->head_seq);
}

void audit_check_end(struct audit_check *c)
{
        struct audit_summary *s = &c->summary;

        end_file(c);
        s->last_seq = c->chain.seq;
        s->unsigned_n = s->checkpoints_n ? s->last_seq - s->signed_seq : s->records_n;
        if (s->records_n == 0)
                find(c, FINDING_TRUNCATED, "there is no record in it, and a broker that starts writes one");
        else if (s->checkpoints_n == 0 && c->options.keys_n)
                find(c, FINDING_UNSIGNED, "nothing in it is signed");
        check_head(c);
}

int audit_check_new(
        const struct audit_check_options *options, finding_handler handler, void *userdata, struct audit_check **ret)
{
        struct audit_check *c = calloc(1, sizeof(*c));

        if (!c)
                return -ENOMEM;
        c->options = *options;
        c->handler = handler;
        c->userdata = userdata;
        *ret = c;
        return 0;
}

void audit_check_free(struct audit_check *c)
{
        free(c);
}

const struct audit_summary *audit_check_summary(const struct audit_check *c)
{
        return &c->summary;
}
