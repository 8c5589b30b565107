/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/audit_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/cleanup.h"
#include "tests/support/suite.h"

/* A log in memory, written as the broker writes it, and then mangled. */

#define LINES_MAX 64u
#define FILE_1    "d/audit.log"

struct log {
        char *lines[LINES_MAX]; /* without newlines */
        size_t n;
        uint64_t seq;
        struct audit_hash hash;
        uint64_t signed_seq;
        struct audit_hash signed_hash;
        const struct p256_key *key;
};

static struct p256_key *key, *other_key;

static void seal(struct log *l, char *text, size_t n)
{
        struct audit_hash hash;

        CU_ASSERT_EQUAL_FATAL(audit_record_hash(&l->hash, text, n, &hash), 0);
        audit_record_tail(&hash, text + n);
        text[n + AUDIT_TAIL_BYTES - 1] = '\0';
        l->hash = hash;
        l->seq++;
        CU_ASSERT_TRUE_FATAL(l->n < LINES_MAX);
        l->lines[l->n++] = strdup(text);
}

static void add(struct log *l, enum audit_event event, const char *host)
{
        struct audit_record record = AUDIT_RECORD_INIT(event);
        char text[4096];
        size_t n = audit_record_head(l->seq + 1, UINT64_C(1700000000000000000) + l->seq, text);

        record.host = host;
        n += audit_record_body(&record, text + n);
        seal(l, text, n);
}

static void add_checkpoint(struct log *l)
{
        struct audit_checkpoint c = {
                .seq = l->seq + 1, .previous = l->hash, .after = l->signed_seq, .after_hash = l->signed_hash};
        char text[AUDIT_CHECKPOINT_MAX_BYTES + AUDIT_TAIL_BYTES];

        clock_format(UINT64_C(1700000000000000000), c.ts);
        CU_ASSERT_EQUAL_FATAL(audit_checkpoint_sign(&c, l->key), 0);
        l->signed_seq = l->seq;
        l->signed_hash = l->hash;
        seal(l, text, audit_checkpoint_line(&c, text));
}

/* start, checkpoint, three denials, checkpoint, a denial, stop: records 1 to 8, and checkpoint 9. */
static struct log make_log(void)
{
        struct log l = {.key = key};

        add(&l, AUDIT_START, NULL);
        add_checkpoint(&l);
        add(&l, AUDIT_EGRESS_DENY, "a.example.org");
        add(&l, AUDIT_EGRESS_DENY, "b.example.org");
        add(&l, AUDIT_EGRESS_DENY, "c\",\"hash\":\"x");
        add_checkpoint(&l);
        add(&l, AUDIT_EGRESS_DENY, "d.example.org");
        add(&l, AUDIT_STOP, NULL);
        add_checkpoint(&l);
        return l;
}

static void log_done(struct log *l)
{
        while (l->n)
                free(l->lines[--l->n]);
}

/* What was found: how often each, and where first. */
struct found {
        unsigned n[FINDING_MAX_];
        uint64_t line[FINDING_MAX_];
        struct audit_summary summary;
};

static void on_finding(void *userdata, const struct finding *f)
{
        struct found *found = userdata;

        CU_ASSERT_TRUE(*f->text);
        if (found->n[f->kind]++ == 0)
                found->line[f->kind] = f->line;
}

static struct found check_files(
        const struct audit_check_options *o, const char *const *files, char *const *lines, size_t n)
{
        static const struct audit_check_options none;
        struct found found = {0};
        struct audit_check *c;
        uint64_t at = 0;

        CU_ASSERT_EQUAL_FATAL(audit_check_new(o ? o : &none, on_finding, &found, &c), 0);
        for (size_t i = 0; i < n; i++) {
                struct audit_text text = {.file = files ? files[i] : FILE_1, .text = lines[i], .n = strlen(lines[i])};

                at = i && strcmp(text.file, files ? files[i - 1] : FILE_1) ? 1 : at + 1;
                text.line = at;
                audit_check_line(c, &text);
        }
        audit_check_end(c);
        found.summary = *audit_check_summary(c);
        audit_check_free(c);
        return found;
}

static struct found check(const struct log *l)
{
        return check_files(NULL, NULL, l->lines, l->n);
}

/* Nothing but these, each once. */
static void expect(const struct found *found, const enum finding_kind *kinds, size_t n)
{
        unsigned want[FINDING_MAX_] = {0};

        for (size_t i = 0; i < n; i++)
                want[kinds[i]]++;
        for (size_t i = 0; i < FINDING_MAX_; i++) {
                if (want[i] != found->n[i])
                        fprintf(stderr, "%s: %u, not %u\n", finding_name((enum finding_kind)i), found->n[i], want[i]);
                CU_ASSERT_EQUAL(found->n[i], want[i]);
        }
        CU_ASSERT_EQUAL(found->summary.findings_n, n);
}
#define EXPECT(found, ...)                                                                                             \
        expect(found, (const enum finding_kind[]){__VA_ARGS__},                                                        \
                sizeof((const enum finding_kind[]){__VA_ARGS__}) / sizeof(enum finding_kind))

static void remove_line(struct log *l, size_t i)
{
        free(l->lines[i]);
        memmove(l->lines + i, l->lines + i + 1, (--l->n - i) * sizeof(*l->lines));
}

static void insert_line(struct log *l, size_t i, const char *line)
{
        memmove(l->lines + i + 1, l->lines + i, (l->n++ - i) * sizeof(*l->lines));
        l->lines[i] = strdup(line);
}

static void swap(struct log *l, size_t i, size_t j)
{
        char *line = l->lines[i];

        l->lines[i] = l->lines[j];
        l->lines[j] = line;
}

static void change(char *line, const char *from, const char *to)
{
        char *at = strstr(line, from);

        CU_ASSERT_PTR_NOT_NULL_FATAL(at);
        memcpy(at, to, strlen(to));
}

/* Hashes anew from line i on, as somebody would who has no key. */
static void rechain(struct log *l, size_t i)
{
        struct audit_hash hash = {0}, own;
        size_t n;

        for (size_t at = 0; at < l->n; at++) {
                CU_ASSERT_EQUAL_FATAL(audit_record_split(l->lines[at], strlen(l->lines[at]), &n, &own), 0);
                if (at >= i) {
                        char tail[AUDIT_TAIL_BYTES];

                        CU_ASSERT_EQUAL(audit_record_hash(&hash, l->lines[at], n, &own), 0);
                        audit_record_tail(&own, tail);
                        memcpy(l->lines[at] + n, tail, AUDIT_TAIL_BYTES - 1);
                }
                hash = own;
        }
}

/* ---- tests */

static void test_whole(void)
{
        struct log l = make_log();
        struct found f = check(&l);
        struct audit_hash id;
        struct audit_check_options o = {.keys = &id, .keys_n = 1, .has_head = true, .head_seq = 8};

        EXPECT(&f);
        CU_ASSERT_EQUAL(f.summary.records_n, 9);
        CU_ASSERT_EQUAL(f.summary.checkpoints_n, 3);
        CU_ASSERT_EQUAL(f.summary.signed_seq, 9);
        CU_ASSERT_EQUAL(f.summary.unsigned_n, 0);
        CU_ASSERT_EQUAL(f.summary.crashes_n, 0);
        p256_fingerprint(key, id.bytes);
        o.head_hash = l.signed_hash;
        f = check_files(&o, NULL, l.lines, l.n);
        EXPECT(&f);
        add(&l, AUDIT_START, NULL);
        add(&l, AUDIT_START, NULL);
        f = check_files(&o, NULL, l.lines, l.n);
        EXPECT(&f);
        CU_ASSERT_EQUAL(f.summary.unsigned_n, 2);
        CU_ASSERT_EQUAL(f.summary.crashes_n, 1);
        log_done(&l);
}

static void test_altered(void)
{
        struct log l = make_log();
        struct found f;

        change(l.lines[3], "b.example", "x.example");
        f = check(&l);
        EXPECT(&f, FINDING_ALTERED);
        CU_ASSERT_EQUAL(f.line[FINDING_ALTERED], 4);
        log_done(&l);

        /* The hash alone: it is that line which is told, once. */
        l = make_log();
        l.lines[3][strlen(l.lines[3]) - 5] ^= 1;
        f = check(&l);
        if (f.n[FINDING_NOT_A_RECORD] == 0)
                EXPECT(&f, FINDING_ALTERED);
        log_done(&l);

        /* All hashes made anew: the next signature does not fit. */
        l = make_log();
        change(l.lines[3], "b.example", "x.example");
        rechain(&l, 3);
        f = check(&l);
        CU_ASSERT_TRUE(f.n[FINDING_ALTERED] >= 1);
        CU_ASSERT_EQUAL(f.line[FINDING_ALTERED], 6);
        log_done(&l);
}

/* And the checkpoint's `previous` too: then it is the signature. */
static void test_a_signature_cannot_be_adapted(void)
{
        struct log l = make_log();
        char digits[SHA256_TEXT_BYTES];
        struct audit_hash before;
        size_t n;
        struct found f;

        change(l.lines[3], "b.example", "x.example");
        rechain(&l, 3);
        CU_ASSERT_EQUAL(audit_record_split(l.lines[4], strlen(l.lines[4]), &n, &before), 0);
        sha256_text(before.bytes, digits);
        memcpy(strstr(l.lines[5], "\"previous\":\"") + 12, digits, 64);
        rechain(&l, 5);
        f = check(&l);
        CU_ASSERT_EQUAL(f.n[FINDING_BAD_SIGNATURE], 1);
        CU_ASSERT_EQUAL(f.line[FINDING_BAD_SIGNATURE], 6);
        log_done(&l);
}

static void test_removed_and_inserted(void)
{
        struct log l = make_log(), other;
        struct found f;

        remove_line(&l, 3);
        f = check(&l);
        EXPECT(&f, FINDING_MISSING);
        CU_ASSERT_EQUAL(f.line[FINDING_MISSING], 4);
        log_done(&l);

        l = make_log();
        remove_line(&l, 0);
        f = check(&l);
        EXPECT(&f, FINDING_MISSING);
        log_done(&l);

        l = make_log();
        insert_line(&l, 4, l.lines[3]);
        f = check(&l);
        EXPECT(&f, FINDING_DUPLICATE);
        CU_ASSERT_EQUAL(f.line[FINDING_DUPLICATE], 5);
        log_done(&l);

        /* A forged record 4 that follows 3 correctly, before the real one. */
        l = make_log();
        other = make_log();
        change(other.lines[3], "b.example", "x.example");
        rechain(&other, 3);
        insert_line(&l, 3, other.lines[3]);
        f = check(&l);
        EXPECT(&f, FINDING_INSERTED);
        CU_ASSERT_EQUAL(f.line[FINDING_INSERTED], 5);
        log_done(&l);
        log_done(&other);
}

static void test_reordered(void)
{
        struct log l = make_log();
        struct found f;

        swap(&l, 3, 4);
        f = check(&l);
        EXPECT(&f, FINDING_MISSING, FINDING_REORDERED);
        CU_ASSERT_EQUAL(f.line[FINDING_MISSING], 4);
        CU_ASSERT_EQUAL(f.line[FINDING_REORDERED], 5);
        log_done(&l);
}

static void test_what_is_no_record(void)
{
        static const char *const bad[] = {"", "{}", "[1]", "nothing", "{\"seq\":3}", "{\"seq\":3,\"event\":\"dns\"}",
                "{\"event\":\"dns\",\"seq\":3,\"hash\":\"0000000000000000000000000000000000000000000000000000000000000000\"}",
                "{\"seq\":3,\"event\":\"dns\",\"hash\":\"000000000000000000000000000000000000000000000000000000000000000G\"}",
                "{\"seq\":0,\"event\":\"dns\",\"hash\":\"0000000000000000000000000000000000000000000000000000000000000000\"}",
                "{\"seq\":3,\"seq\":3,\"event\":\"dns\",\"hash\":\"0000000000000000000000000000000000000000000000000000000000000000\"}",
                "{\"seq\":3,\"event\":\"checkpoint\",\"hash\":\"0000000000000000000000000000000000000000000000000000000000000000\"}"};

        for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
                struct log l = make_log();
                struct found f;

                insert_line(&l, 2, bad[i]);
                f = check(&l);
                EXPECT(&f, FINDING_NOT_A_RECORD);
                CU_ASSERT_EQUAL(f.line[FINDING_NOT_A_RECORD], 3);
                log_done(&l);
        }
}

static void test_keys(void)
{
        struct log l = {.key = key};
        struct audit_hash ids[2];
        struct audit_check_options o = {.keys = ids, .keys_n = 1};
        struct found f;

        p256_fingerprint(key, ids[0].bytes);
        p256_fingerprint(other_key, ids[1].bytes);
        add(&l, AUDIT_START, NULL);
        add_checkpoint(&l);
        l.key = other_key;
        add(&l, AUDIT_STOP, NULL);
        add_checkpoint(&l);
        f = check(&l);
        EXPECT(&f, FINDING_WRONG_KEY);
        CU_ASSERT_EQUAL(f.line[FINDING_WRONG_KEY], 4);
        f = check_files(&o, NULL, l.lines, l.n);
        EXPECT(&f, FINDING_WRONG_KEY);
        o.keys_n = 2;
        f = check_files(&o, NULL, l.lines, l.n);
        EXPECT(&f);
        log_done(&l);

        /* With a key, a log that nobody signed is no good. */
        l.key = key;
        l.seq = 0;
        l.hash = (struct audit_hash){{0}};
        add(&l, AUDIT_START, NULL);
        f = check_files(&o, NULL, l.lines, l.n);
        EXPECT(&f, FINDING_UNSIGNED);
        f = check(&l);
        EXPECT(&f);
        CU_ASSERT_EQUAL(f.summary.unsigned_n, 1);
        log_done(&l);
}

/* Whoever can have anything signed, and nothing else: the notary names what it signed before. */
static void test_history_cannot_be_replaced(void)
{
        struct log l = make_log(), forged;
        struct found f;

        /* The same broker writes another history and has its end signed. */
        forged = (struct log){.key = key};
        for (int i = 0; i < 12; i++)
                add(&forged, AUDIT_EGRESS_DENY, "innocent.example.org");
        forged.signed_seq = l.signed_seq;
        forged.signed_hash = l.signed_hash;
        add_checkpoint(&forged);
        f = check(&forged);
        EXPECT(&f, FINDING_REPLACED);
        log_done(&forged);

        /* Begun anew, or its end cut off and written again. */
        forged = (struct log){.key = key, .signed_seq = l.signed_seq, .signed_hash = l.signed_hash};
        add(&forged, AUDIT_START, NULL);
        add_checkpoint(&forged);
        f = check(&forged);
        EXPECT(&f, FINDING_REPLACED);
        log_done(&forged);

        /* The signer's memory is gone. */
        l.signed_seq = 0;
        l.signed_hash = (struct audit_hash){{0}};
        add(&l, AUDIT_START, NULL);
        add_checkpoint(&l);
        f = check(&l);
        EXPECT(&f, FINDING_REPLACED);
        log_done(&l);
}

/* A crash between the signature and its record: what was signed is there, and the next signature names it. */
static void test_a_lost_checkpoint_is_no_finding(void)
{
        struct log l = {.key = key};
        struct found f;

        add(&l, AUDIT_START, NULL);
        add_checkpoint(&l);
        add(&l, AUDIT_EGRESS_DENY, "a.example.org");
        l.signed_seq = l.seq;
        l.signed_hash = l.hash;
        add(&l, AUDIT_START, NULL);
        add(&l, AUDIT_EGRESS_DENY, "b.example.org");
        add_checkpoint(&l);
        f = check(&l);
        EXPECT(&f);
        CU_ASSERT_EQUAL(f.summary.crashes_n, 1);
        log_done(&l);
}

/* No answer in time, and signed all the same; long before the next signature. */
static void test_a_late_signature_is_no_finding(void)
{
        static const struct audit_check_options none;
        struct log l = {.key = key};
        struct audit_checkpoint asked = {0};
        char text[AUDIT_CHECKPOINT_MAX_BYTES + AUDIT_TAIL_BYTES];
        struct found f = {0};
        struct audit_check *c;

        CU_ASSERT_EQUAL_FATAL(audit_check_new(&none, on_finding, &f, &c), 0);
        for (int i = 0; i < 30000; i++) {
                if (i == 1 || i == 29999) {
                        add_checkpoint(&l);
                } else if (i == 5) {
                        asked = (struct audit_checkpoint){.seq = l.seq + 1, .previous = l.hash};
                        clock_format(UINT64_C(1700000000000000000), asked.ts);
                        l.signed_seq = l.seq;
                        l.signed_hash = l.hash;
                        seal(&l, text, audit_checkpoint_line(&asked, text));
                } else {
                        add(&l, AUDIT_EGRESS_DENY, "a.example.org");
                }
                audit_check_line(c,
                        &(struct audit_text){
                                .file = FILE_1, .line = (uint64_t)i + 1, .text = l.lines[0], .n = strlen(l.lines[0])});
                log_done(&l);
        }
        audit_check_end(c);
        f.summary = *audit_check_summary(c);
        EXPECT(&f);
        CU_ASSERT_EQUAL(f.summary.checkpoints_n, 2);
        audit_check_free(c);
}

static void test_the_end(void)
{
        struct log l = make_log();
        struct audit_check_options o = {.has_head = true, .head_seq = l.signed_seq, .head_hash = l.signed_hash};
        struct found f;

        remove_line(&l, 8);
        remove_line(&l, 7);
        f = check(&l);
        EXPECT(&f);
        CU_ASSERT_EQUAL(f.summary.unsigned_n, 1);
        f = check_files(&o, NULL, l.lines, l.n);
        EXPECT(&f, FINDING_TRUNCATED);
        f = check_files(NULL, NULL, l.lines, 0);
        EXPECT(&f, FINDING_TRUNCATED);
        log_done(&l);
}

static void test_files(void)
{
        struct log l = make_log();
        static const char *const files[] = {"d/audit.log.00000000000000000003", "d/audit.log.00000000000000000003",
                "d/audit.log.00000000000000000003", "d/audit.log.00000000000000000005",
                "d/audit.log.00000000000000000005", FILE_1, FILE_1, FILE_1, FILE_1};
        struct audit_check_options partial = {.partial = true};
        struct found f = check_files(NULL, files, l.lines, l.n);

        EXPECT(&f);
        f = check_files(NULL, files + 5, l.lines + 5, l.n - 5);
        EXPECT(&f, FINDING_MISSING);
        CU_ASSERT_EQUAL(f.line[FINDING_MISSING], 1);
        /* A file that begins with a checkpoint can be checked by itself. */
        f = check_files(&partial, files + 5, l.lines + 5, l.n - 5);
        EXPECT(&f);
        CU_ASSERT_EQUAL(f.summary.unchecked_n, 0);
        change(l.lines[5], "\"ts\":\"2", "\"ts\":\"3");
        f = check_files(&partial, files + 5, l.lines + 5, l.n - 5);
        CU_ASSERT_EQUAL(f.n[FINDING_ALTERED], 1);
        log_done(&l);

        /* A file's end, and a file. */
        l = make_log();
        remove_line(&l, 2);
        f = check_files(NULL, files + 1, l.lines, l.n);
        EXPECT(&f, FINDING_FILE_NAME, FINDING_MISSING);
        CU_ASSERT_EQUAL(f.line[FINDING_FILE_NAME], 0);
        log_done(&l);
}

static void test_torn_and_too_long(void)
{
        struct found f = {0};
        struct audit_check *c;
        static const struct audit_check_options none;

        CU_ASSERT_EQUAL_FATAL(audit_check_new(&none, on_finding, &f, &c), 0);
        audit_check_line(c, &(struct audit_text){.kind = AUDIT_TEXT_TOO_LONG, .file = FILE_1, .line = 1, .text = ""});
        audit_check_line(
                c, &(struct audit_text){.kind = AUDIT_TEXT_TORN, .file = FILE_1, .line = 2, .text = "{", .n = 1});
        audit_check_end(c);
        f.summary = *audit_check_summary(c);
        EXPECT(&f, FINDING_TOO_LONG, FINDING_TORN, FINDING_TRUNCATED);
        audit_check_free(c);
}

/* More records between two signatures than hashes are remembered, and a signature on the last of them. */
static void test_much_between_two_checkpoints(void)
{
        struct log l = {.key = key};
        static const struct audit_check_options none;
        struct found f = {0};
        struct audit_check *c;

        CU_ASSERT_EQUAL_FATAL(audit_check_new(&none, on_finding, &f, &c), 0);
        for (int i = 0; i < 40000; i++) {
                if (i % 20000 == 1 || i == 39999)
                        add_checkpoint(&l);
                else
                        add(&l, AUDIT_EGRESS_DENY, "a.example.org");
                audit_check_line(c,
                        &(struct audit_text){
                                .file = FILE_1, .line = (uint64_t)i + 1, .text = l.lines[0], .n = strlen(l.lines[0])});
                log_done(&l);
        }
        audit_check_end(c);
        f.summary = *audit_check_summary(c);
        EXPECT(&f);
        CU_ASSERT_EQUAL(f.summary.checkpoints_n, 3);
        audit_check_free(c);
}

/* Whatever bit of whatever byte: it is found. */
static void test_every_byte(void)
{
        struct log l = {.key = key};
        size_t flips = 0;

        add(&l, AUDIT_START, NULL);
        add(&l, AUDIT_EGRESS_DENY, "a.example.org");
        add_checkpoint(&l);
        add(&l, AUDIT_STOP, NULL);
        for (size_t i = 0; i < l.n; i++) {
                for (size_t j = 0; l.lines[i][j]; j++, flips++) {
                        char was = l.lines[i][j];
                        struct found f;

                        l.lines[i][j] = (char)(was ^ (1 << (flips % 7)));
                        if (l.lines[i][j] == '\0' || l.lines[i][j] == '\n')
                                l.lines[i][j] = (char)(was ^ 0x80);
                        f = check(&l);
                        if (f.summary.findings_n == 0)
                                fprintf(stderr, "line %zu byte %zu\n", i + 1, j);
                        CU_ASSERT_TRUE(f.summary.findings_n > 0);
                        l.lines[i][j] = was;
                }
        }
        CU_ASSERT_TRUE(flips > 900);
        log_done(&l);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"whole", test_whole},
                {"altered", test_altered},
                {"a signature cannot be adapted", test_a_signature_cannot_be_adapted},
                {"removed and inserted", test_removed_and_inserted},
                {"reordered", test_reordered},
                {"what is no record", test_what_is_no_record},
                {"keys", test_keys},
                {"history cannot be replaced", test_history_cannot_be_replaced},
                {"a lost checkpoint is no finding", test_a_lost_checkpoint_is_no_finding},
                {"a late signature is no finding", test_a_late_signature_is_no_finding},
                {"the end", test_the_end},
                {"files", test_files},
                {"torn and too long", test_torn_and_too_long},
                {"much between two checkpoints", test_much_between_two_checkpoints},
                {"every byte", test_every_byte},
                CU_TEST_INFO_NULL,
        };
        int r;

        if (p256_make(&key) < 0 || p256_make(&other_key) < 0)
                return 1;
        r = suite_run("audit_check", tests);
        p256_free(key);
        p256_free(other_key);
        return r;
}
