/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "tools/wbctl/audit_command.h"
#include "tools/wbctl/audit_judge.h"
#include "tools/wbctl/audit_tally.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/html.h"

#define VMS_MAX      10000u /* that are told apart */
#define HOSTS_MAX    100000u
#define HOSTS_SHOWN  50u
#define DENIALS_MAX  200u /* the last ones */
#define FINDINGS_MAX 200u

struct report_options {
        const char *dir;
        const char *out;
        struct audit_trust_options trust;
};

#define TRUST(member) offsetof(struct report_options, trust) + offsetof(struct audit_trust_options, member)

static const struct option_spec specs[] = {
        {"out", 'o', OPTION_STRING, offsetof(struct report_options, out), "FILE",
                "where to write it (standard output)"},
        {"dir", 0, OPTION_STRING, offsetof(struct report_options, dir), "DIR",
                "the audit's dir (" AUDIT_DEFAULT_DIR ")"},
        {"key", 0, OPTION_STRINGS, TRUST(keys), "PUB", "the broker's audit.pub: who may have signed (repeatable)"},
        {"head", 0, OPTION_STRING, TRUST(head), "FILE", "the broker's audit.head: the log must reach at least as far"},
        {"partial", 0, OPTION_FLAG, TRUST(partial), NULL, "older files are kept elsewhere"},
};

static const struct option_table table = {
        .usage = "wbctl audit report [--out FILE] [--dir DIR | FILE...] [--key PUB]... [--head FILE] [--partial]",
        .summary = "One HTML page of the audit log, without scripts: is it whole; what each VM did; reasons, hosts,\n"
                   "denials. Exit 1 where the log is not whole; the page is written all the same and says so.",
        .example = "wbctl audit report --dir /var/log/wbbroker --key audit.pub --out report.html",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(*specs),
        .intermixed = true,
};

/* Columns of the tallies. A VM has all of them, a host the first two and the bytes, a reason the first alone. */
enum column {
        COLUMN_OPENED,
        COLUMN_DENIED,
        COLUMN_REQUESTS,
        COLUMN_NAMES,
        COLUMN_BYTES_UP,
        COLUMN_BYTES_DOWN,
};

struct denial {
        char ts[CLOCK_TEXT_BYTES];
        char *vm, *target, *reason, *detail;
};

struct report {
        struct tally vms;
        struct tally hosts;
        struct tally reasons;
        struct denial denials[DENIALS_MAX]; /* a ring */
        uint64_t denials_n;
        struct finding *findings; /* FINDINGS_MAX */
        uint64_t findings_n;
        char first_ts[CLOCK_TEXT_BYTES], last_ts[CLOCK_TEXT_BYTES];
};

/* ---- gathering */

static void denial_done(struct denial *d)
{
        free(d->vm);
        free(d->target);
        free(d->reason);
        free(d->detail);
}

static void report_done(struct report *r)
{
        tally_done(&r->vms);
        tally_done(&r->hosts);
        tally_done(&r->reasons);
        for (size_t i = 0; i < DENIALS_MAX; i++)
                denial_done(&r->denials[i]);
        free(r->findings);
}

static void on_finding(void *userdata, const struct finding *f)
{
        struct report *r = userdata;

        if (r->findings_n < FINDINGS_MAX)
                r->findings[r->findings_n] = *f;
        r->findings_n++;
}

static char *cut(const char *text)
{
        return strndup(text ? text : "", 300);
}

static void take_denial(struct report *r, const struct audit_line *line)
{
        struct denial *d = &r->denials[r->denials_n++ % DENIALS_MAX];
        char target[320];

        denial_done(d);
        audit_format_target(line, target, sizeof(target));
        (void)snprintf(d->ts, sizeof(d->ts), "%s", line->ts);
        d->vm = cut(line->vm);
        d->target = cut(target);
        d->reason = cut(reason_info(line->reason)->name);
        d->detail = cut(line->detail);
}

/* A refused name or request has a record of the same kind as an allowed one. */
static bool is_denial(const struct audit_line *line)
{
        return line->event == AUDIT_EGRESS_DENY || ((line->event == AUDIT_REQUEST || line->event == AUDIT_DNS) &&
                                                           line->has_decision && line->reason != REASON_ALLOWED);
}

static void take_counts(struct report *r, const struct audit_line *line)
{
        const char *vm = line->vm ? line->vm : "-", *host = line->host ? line->host : "-";

        if (line->event == AUDIT_EGRESS_OPEN) {
                tally_row(&r->vms, vm)->n[COLUMN_OPENED]++;
                tally_row(&r->hosts, host)->n[COLUMN_OPENED]++;
        }
        if (line->event == AUDIT_REQUEST)
                tally_row(&r->vms, vm)->n[COLUMN_REQUESTS]++;
        if (line->event == AUDIT_DNS)
                tally_row(&r->vms, vm)->n[COLUMN_NAMES]++;
        if (is_denial(line)) {
                tally_row(&r->vms, vm)->n[COLUMN_DENIED]++;
                tally_row(&r->hosts, host)->n[COLUMN_DENIED]++;
                tally_row(&r->reasons, reason_info(line->reason)->name)->n[COLUMN_OPENED]++;
        }
}

static void take_bytes(const struct audit_line *line, struct tally_row *row)
{
        row->n[COLUMN_BYTES_UP] += line->bytes_up;
        row->n[COLUMN_BYTES_DOWN] += line->bytes_down;
}

static void on_text(void *userdata, const struct audit_text *text)
{
        struct report *r = userdata;
        struct audit_line line;

        if (text->kind != AUDIT_TEXT_LINE || audit_line_parse(text->text, text->n, &line) != 0)
                return;
        if (!*r->first_ts)
                (void)snprintf(r->first_ts, sizeof(r->first_ts), "%s", line.ts);
        (void)snprintf(r->last_ts, sizeof(r->last_ts), "%s", line.ts);
        take_counts(r, &line);
        if (is_denial(&line))
                take_denial(r, &line);
        if (line.event == AUDIT_EGRESS_CLOSE) {
                take_bytes(&line, tally_row(&r->vms, line.vm ? line.vm : "-"));
                take_bytes(&line, tally_row(&r->hosts, line.host ? line.host : "-"));
        }
        audit_line_done(&line);
}

/* ---- writing */

static const char page_head[] =
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        "<title>wbbroker audit report</title>\n<style>\n"
        "body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em;color:#222;background:#fff}\n"
        "h2{margin-top:2em}table{border-collapse:collapse;width:100%}\n"
        "th,td{text-align:left;padding:.25em .8em .25em 0;border-bottom:1px solid #ddd;vertical-align:top;overflow-wrap:anywhere}\n"
        "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}.ok{color:#064}.bad{color:#a00;font-weight:bold}\n"
        "</style></head><body>\n<h1>Audit report</h1>\n";

static void cell_text(FILE *to, const char *text)
{
        fprintf(to, "<td>");
        html_text(to, text ? text : "");
        fprintf(to, "</td>");
}

static void cell_number(FILE *to, uint64_t n)
{
        fprintf(to, "<td class=\"n\">%" PRIu64 "</td>", n);
}

struct heading {
        const char *text;
        enum column column;
};

static void write_row(FILE *to, const char *name, const struct tally_row *row, const struct heading *headings, size_t n)
{
        fprintf(to, "<tr>");
        cell_text(to, name);
        for (size_t i = 0; i < n; i++)
                cell_number(to, row->n[headings[i].column]);
        fprintf(to, "</tr>\n");
}

static void write_tally(FILE *to, const char *title, const char *name, struct tally *t, const struct heading *headings,
        size_t n, size_t most)
{
        fprintf(to, "<h2>%s</h2>\n<table><tr><th>%s</th>", title, name);
        for (size_t i = 0; i < n; i++)
                fprintf(to, "<th class=\"n\">%s</th>", headings[i].text);
        fprintf(to, "</tr>\n");
        tally_sort(t, COLUMN_BYTES_UP);
        for (size_t i = 0; i < t->rows_n && i < most; i++)
                write_row(to, t->rows[i].name, &t->rows[i], headings, n);
        if (t->others_n)
                write_row(to, "(all others)", &t->others, headings, n);
        fprintf(to, "</table>\n");
        if (t->rows_n > most)
                fprintf(to, "<p>and %zu more</p>\n", t->rows_n - most);
}

static void write_tallies(FILE *to, struct report *r)
{
        static const struct heading vms[] = {{"opened", COLUMN_OPENED}, {"denied", COLUMN_DENIED},
                {"requests", COLUMN_REQUESTS}, {"names asked", COLUMN_NAMES}, {"bytes up", COLUMN_BYTES_UP},
                {"bytes down", COLUMN_BYTES_DOWN}};
        static const struct heading hosts[] = {{"opened", COLUMN_OPENED}, {"denied", COLUMN_DENIED},
                {"bytes up", COLUMN_BYTES_UP}, {"bytes down", COLUMN_BYTES_DOWN}};
        static const struct heading reasons[] = {{"denials", COLUMN_OPENED}};

        write_tally(to, "VMs", "VM", &r->vms, vms, sizeof(vms) / sizeof(*vms), VMS_MAX);
        write_tally(to, "Reasons of denials", "reason", &r->reasons, reasons, 1, REASON_MAX_);
        write_tally(to, "Hosts", "host", &r->hosts, hosts, sizeof(hosts) / sizeof(*hosts), HOSTS_SHOWN);
}

static void write_finding(FILE *to, const struct finding *f)
{
        fprintf(to, "<li>");
        html_text(to, f->file);
        if (f->line)
                fprintf(to, ":%" PRIu64, f->line);
        fprintf(to, ": %s: ", finding_name(f->kind));
        html_text(to, f->text);
        fprintf(to, "</li>\n");
}

static void write_verdict(FILE *to, const struct report *r, const struct audit_summary *s,
        const struct audit_trust *trust, size_t files_n)
{
        char text[AUDIT_VERDICT_BYTES], now[CLOCK_TEXT_BYTES];

        clock_format(clock_realtime_ns(), now);
        fprintf(to, "<p>Made %s; records from ", now);
        html_text(to, *r->first_ts ? r->first_ts : "-");
        fprintf(to, " to ");
        html_text(to, *r->last_ts ? r->last_ts : "-");
        audit_verdict(s, files_n, text);
        fprintf(to, ".</p>\n<p class=\"%s\">The log is ", s->findings_n ? "bad" : "ok");
        html_text(to, text);
        fprintf(to, ".</p>\n<ul>\n");
        for (uint64_t i = 0; i < r->findings_n && i < FINDINGS_MAX; i++)
                write_finding(to, &r->findings[i]);
        if (r->findings_n > FINDINGS_MAX)
                fprintf(to, "<li>and %" PRIu64 " more</li>\n", r->findings_n - FINDINGS_MAX);
        for (size_t i = 0; audit_note(s, trust, i, text); i++) {
                fprintf(to, "<li>note: ");
                html_text(to, text);
                fprintf(to, "</li>\n");
        }
        fprintf(to, "</ul>\n");
}

static void write_denials(FILE *to, const struct report *r)
{
        uint64_t n = r->denials_n < DENIALS_MAX ? r->denials_n : DENIALS_MAX;

        fprintf(to,
                "<h2>Denials</h2>\n<p>The last %" PRIu64 " of %" PRIu64 ", newest first.</p>\n<table>"
                "<tr><th>time</th><th>VM</th><th>target</th><th>reason</th><th>detail</th></tr>\n",
                n, r->denials_n);
        for (uint64_t i = 0; i < n; i++) {
                const struct denial *d = &r->denials[(r->denials_n - 1 - i) % DENIALS_MAX];

                fprintf(to, "<tr>");
                cell_text(to, d->ts);
                cell_text(to, d->vm);
                cell_text(to, d->target);
                cell_text(to, d->reason);
                cell_text(to, d->detail);
                fprintf(to, "</tr>\n");
        }
        fprintf(to, "</table>\n");
}

static int write_page(const char *path, struct report *r, const struct audit_summary *s,
        const struct audit_trust *trust, size_t files_n)
{
        FILE *to = path ? fopen(path, "we") : stdout;
        int error;

        if (!to)
                return log_errno(-errno, "cannot write %s", path);
        fputs(page_head, to);
        write_verdict(to, r, s, trust, files_n);
        write_tallies(to, r);
        write_denials(to, r);
        fprintf(to, "</body></html>\n");
        error = fflush(to) != 0 || ferror(to) ? (errno ? -errno : -EIO) : 0;
        if (path && fclose(to) != 0 && error == 0)
                error = -errno;
        return error < 0 ? log_errno(error, "cannot write %s", path ? path : "the report") : 0;
}

static int report(const struct report_options *o, const struct audit_trust *trust, struct audit_reader *reader)
{
        struct report r = {.vms.most = VMS_MAX,
                .hosts.most = HOSTS_MAX,
                .reasons.most = REASON_MAX_,
                .findings = calloc(FINDINGS_MAX, sizeof(struct finding))};
        struct audit_summary summary = {0};
        int error = r.findings ? audit_judge(trust, reader, on_finding, on_text, &r, &summary) : log_oom();

        if (error == 0)
                error = write_page(o->out, &r, &summary, trust, audit_reader_files_n(reader));
        report_done(&r);
        return error < 0 ? EXIT_FAILED : summary.findings_n ? EXIT_NO : 0;
}

int audit_report(int argc, char **argv)
{
        struct report_options o = {0};
        struct audit_trust trust = {0};
        struct audit_reader *reader = NULL;
        char **rest;
        size_t rest_n;
        int r = options_parse(&table, argc, argv, &o, &rest, &rest_n), status;

        if (r == OPTIONS_E_HELP)
                return 0;
        if (r == 0 && audit_trust_take(&o.trust, !o.dir && !rest_n, &trust) < 0)
                r = OPTIONS_E_USAGE; /* an invalid file */
        if (r == 0)
                r = audit_open(&table, o.dir, rest, rest_n, &reader);
        status = r == OPTIONS_E_USAGE ? EXIT_USAGE : r < 0 ? EXIT_FAILED : report(&o, &trust, reader);
        audit_reader_free(reader);
        audit_trust_done(&trust);
        option_strings_done(&o.trust.keys);
        return status;
}
