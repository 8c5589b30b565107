/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "proto/base/cleanup.h"
#include "proto/base/log.h"
#include "tools/wbctl/audit_command.h"
#include "tools/wbctl/audit_judge.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/printable.h"

#define FINDINGS_MAX 1000u /* that are told; all are counted */

struct verify_options {
        const char *dir;
        struct audit_trust_options trust;
        bool json;
};

#define TRUST(member) offsetof(struct verify_options, trust) + offsetof(struct audit_trust_options, member)

static const struct option_spec specs[] = {
        {"dir", 0, OPTION_STRING, offsetof(struct verify_options, dir), "DIR",
                "the audit's dir (" AUDIT_DEFAULT_DIR ")"},
        {"key", 0, OPTION_STRINGS, TRUST(keys), "PUB", "the broker's audit.pub: who may have signed (repeatable)"},
        {"head", 0, OPTION_STRING, TRUST(head), "FILE", "the broker's audit.head: the log must reach at least as far"},
        {"partial", 0, OPTION_FLAG, TRUST(partial), NULL, "older files are kept elsewhere"},
        {"json", 0, OPTION_FLAG, offsetof(struct verify_options, json), NULL, "one JSON object instead of text"},
};

static const struct option_table table = {
        .usage = "wbctl audit verify [--dir DIR | FILE...] [--key PUB]... [--head FILE] [--partial] [--json]",
        .summary = "Is the audit log whole and unaltered? Says FILE:LINE of what is not; exit 0 yes, 1 no. Without\n"
                   "options the broker's own log is checked by the audit.pub and audit.head of " AUDIT_STATE_DIR ".",
        .example = "wbctl audit verify --dir /var/log/wbbroker --key audit.pub",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(*specs),
        .intermixed = true,
};

struct told {
        bool json;
        uint64_t n;
        json_t *list; /* NULL: printed as they come */
};

static void print_finding(const struct finding *f)
{
        char file[1024];

        printable(f->file, file, sizeof(file));
        if (f->line)
                printf("%s:%" PRIu64 ": %s: %s\n", file, f->line, finding_name(f->kind), f->text);
        else
                printf("%s: %s: %s\n", file, finding_name(f->kind), f->text);
}

static void on_finding(void *userdata, const struct finding *f)
{
        struct told *told = userdata;

        if (told->n++ >= FINDINGS_MAX)
                return;
        if (told->json) {
                json_t *file = json_string(f->file); /* NULL where it is no UTF-8 */

                (void)json_array_append_new(
                        told->list, json_pack("{s:o, s:I, s:s, s:s}", "file", file ? file : json_null(), "line",
                                            (json_int_t)f->line, "kind", finding_name(f->kind), "message", f->text));
        } else {
                print_finding(f);
        }
}

static json_t *list_notes(const struct audit_summary *s, const struct audit_trust *trust)
{
        json_t *list = json_array();
        char text[AUDIT_VERDICT_BYTES];

        for (size_t i = 0; audit_note(s, trust, i, text); i++)
                (void)json_array_append_new(list, json_string(text));
        return list;
}

static int print_json(const struct audit_summary *s, const struct audit_trust *trust, size_t files_n, json_t *findings)
{
        char fingerprint[SHA256_TEXT_BYTES] = "";
        _cleanup_(json_decrefp) json_t *o = NULL;

        if (s->checkpoints_n)
                sha256_text(s->key.bytes, fingerprint);
        o = json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s*, s:s*, s:b, s:I, s:O, s:o}", "ok",
                (int)(s->findings_n == 0), "files", (json_int_t)files_n, "records", (json_int_t)s->records_n,
                "first_seq", (json_int_t)s->first_seq, "last_seq", (json_int_t)s->last_seq, "checkpoints",
                (json_int_t)s->checkpoints_n, "signed_seq", (json_int_t)s->signed_seq, "unsigned_tail",
                (json_int_t)s->unsigned_n, "crashes", (json_int_t)s->crashes_n, "signed_ts",
                s->checkpoints_n ? s->signed_ts : NULL, "key", s->checkpoints_n ? fingerprint : NULL, "key_given",
                (int)(trust->keys_n > 0), "findings_total", (json_int_t)s->findings_n, "findings", findings, "notes",
                list_notes(s, trust));
        return !o || audit_print_json(o) < 0 ? log_errno(-EIO, "cannot answer") : 0;
}

static void print_text(const struct audit_summary *s, const struct audit_trust *trust, size_t files_n)
{
        char text[AUDIT_VERDICT_BYTES];

        if (s->findings_n > FINDINGS_MAX)
                printf("... and %" PRIu64 " more\n", s->findings_n - FINDINGS_MAX);
        audit_verdict(s, files_n, text);
        printf("%s\n", text);
        for (size_t i = 0; audit_note(s, trust, i, text); i++)
                printf("note: %s\n", text);
}

static int verify(const struct verify_options *o, const struct audit_trust *trust, struct audit_reader *reader)
{
        _cleanup_(json_decrefp) json_t *list = json_array();
        struct told told = {.json = o->json, .list = list};
        struct audit_summary summary = {0};
        int r = list ? audit_judge(trust, reader, on_finding, NULL, &told, &summary) : log_oom();

        if (r == 0 && o->json)
                r = print_json(&summary, trust, audit_reader_files_n(reader), list);
        else if (r == 0)
                print_text(&summary, trust, audit_reader_files_n(reader));
        if (r == 0 && fflush(stdout) != 0)
                r = log_errno(-errno, "cannot answer");
        return r < 0 ? EXIT_FAILED : summary.findings_n ? EXIT_NO : 0;
}

int audit_verify(int argc, char **argv)
{
        struct verify_options o = {0};
        struct audit_trust trust = {0};
        struct audit_reader *reader = NULL;
        char **rest;
        size_t rest_n;
        int r = options_parse(&table, argc, argv, &o, &rest, &rest_n), status;

        if (r == OPTIONS_E_HELP)
                return 0;
        if (r == 0)
                r = audit_trust_take(&o.trust, !o.dir && !rest_n, &trust) < 0 ? OPTIONS_E_USAGE
                                                                              : 0; /* an invalid file */
        if (r == 0)
                r = audit_open(&table, o.dir, rest, rest_n, &reader);
        status = r == OPTIONS_E_USAGE ? EXIT_USAGE : r < 0 ? EXIT_FAILED : verify(&o, &trust, reader);
        audit_reader_free(reader);
        audit_trust_done(&trust);
        option_strings_done(&o.trust.keys);
        return status;
}
