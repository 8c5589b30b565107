/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>

#include "proto/base/log.h"
#include "tools/wbctl/audit_command.h"
#include "tools/wbctl/audit_filter.h"
#include "tools/wbctl/command.h"

struct query_options {
        const char *dir;
        struct audit_filter filter;
        uint64_t limit;
        bool json;
};

#define FILTER(member) offsetof(struct query_options, filter) + offsetof(struct audit_filter, member)

static const struct option_spec specs[] = {
        {"vm", 0, OPTION_STRINGS, FILTER(vms), "NAME", "of this VM (repeatable)"},
        {"event", 0, OPTION_STRING, FILTER(event), "E",
                "of this kind: egress_open, egress_close, egress_deny, request, dns, ..."},
        {"decision", 0, OPTION_STRING, FILTER(decision), "D", "allow or deny"},
        {"reason", 0, OPTION_STRING, FILTER(reason), "R", "no_rule, floor_address, ..."},
        {"host", 0, OPTION_STRING, FILTER(host), "H",
                "a name, *.NAME (below it), **.NAME (and itself), an address or a CIDR"},
        {"since", 0, OPTION_STRING, FILTER(since), "T",
                "2026-01-02T03:04:05Z or a beginning of it, in UTC; or 15m: so long ago"},
        {"until", 0, OPTION_STRING, FILTER(until), "T", "before this time"},
        {"limit", 0, OPTION_U64, offsetof(struct query_options, limit), "N", "the first N of them"},
        {"dir", 0, OPTION_STRING, offsetof(struct query_options, dir), "DIR",
                "the audit's dir (" AUDIT_DEFAULT_DIR ")"},
        {"json", 0, OPTION_FLAG, offsetof(struct query_options, json), NULL, "the records as they stand in the log"},
};

static const struct option_table table = {
        .usage = "wbctl audit query [--vm NAME]... [--event E] [--decision D] [--reason R] [--host H]\n"
                 "                         [--since T] [--until T] [--limit N] [--json] [--dir DIR | FILE...]",
        .summary = "Shows the records that all of the options fit, oldest first, over all of the log's files.",
        .example = "wbctl audit query --vm demo --decision deny --since 24h",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(*specs),
        .intermixed = true,
};

struct found {
        const struct query_options *options;
        uint64_t left;
};

static bool on_record(void *userdata, const struct audit_text *text, const struct audit_line *line)
{
        struct found *found = userdata;

        if (!audit_filter_passes(&found->options->filter, line))
                return true;
        if (found->options->json)
                audit_print_line(text, line);
        else
                audit_print_row(line);
        return --found->left > 0 && !ferror(stdout);
}

static int query(struct query_options *o, struct audit_reader *reader)
{
        struct found found = {.options = o, .left = o->limit};
        uint64_t bad_n = 0;
        int r = 0;

        if (!o->json)
                audit_print_head();
        if (o->limit)
                r = audit_each(reader, on_record, &found, &bad_n);
        if (r == 0 && fflush(stdout) != 0 && errno != EPIPE)
                r = log_errno(-errno, "cannot answer");
        audit_say_bad(bad_n);
        return r < 0 ? EXIT_FAILED : 0;
}

int audit_query(int argc, char **argv)
{
        struct query_options o = {.limit = UINT64_MAX};
        char error[AUDIT_FILTER_ERROR_BYTES];
        struct audit_reader *reader = NULL;
        char **rest;
        size_t rest_n;
        int r = options_parse(&table, argc, argv, &o, &rest, &rest_n), status;

        if (r == OPTIONS_E_HELP)
                return 0;
        if (r == 0 && audit_filter_prepare(&o.filter, clock_realtime_ns(), error) < 0)
                r = options_usage_error(&table, "%s", error);
        if (r == 0)
                r = audit_open(&table, o.dir, rest, rest_n, &reader);
        status = r == OPTIONS_E_USAGE ? EXIT_USAGE : r < 0 ? EXIT_FAILED : query(&o, reader);
        audit_reader_free(reader);
        option_strings_done(&o.filter.vms);
        return status;
}
