/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include <jansson.h>

#include "proto/base/cleanup.h"
#include "proto/base/log.h"
#include "tools/wbctl/audit_again.h"
#include "tools/wbctl/audit_command.h"
#include "tools/wbctl/audit_filter.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/policy_file.h"
#include "tools/wbctl/printable.h"

DEFINE_CLEANUP(struct policy *, policy_unref);

struct replay_options {
        const char *policy;
        const char *dir;
        struct audit_filter filter;
        bool json;
};

#define FILTER(member) offsetof(struct replay_options, filter) + offsetof(struct audit_filter, member)

static const struct option_spec specs[] = {
        {"policy", 'p', OPTION_STRING, offsetof(struct replay_options, policy), "FILE", "the policy to judge by"},
        {"vm", 0, OPTION_STRINGS, FILTER(vms), "NAME", "what this VM asked for (repeatable; all)"},
        {"since", 0, OPTION_STRING, FILTER(since), "T",
                "2026-01-02T03:04:05Z or a beginning of it, in UTC; or 15m: so long ago"},
        {"until", 0, OPTION_STRING, FILTER(until), "T", "before this time"},
        {"dir", 0, OPTION_STRING, offsetof(struct replay_options, dir), "DIR",
                "the audit's dir (" AUDIT_DEFAULT_DIR ")"},
        {"json", 0, OPTION_FLAG, offsetof(struct replay_options, json), NULL,
                "an object a line for each that differs, and one with the counts"},
};

static const struct option_table table = {
        .usage = "wbctl audit replay --policy FILE [--vm NAME]... [--since T] [--until T] [--json]\n"
                 "                          [--dir DIR | FILE...]",
        .summary = "What another policy would have decided, by the broker's own code, where it differs from what was:\n"
                   "exit 1 if anything does.",
        .example = "wbctl audit replay --policy tighter.yaml --vm demo --since 24h",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(*specs),
        .intermixed = true,
};

struct replay {
        const struct replay_options *options;
        const struct policy *policy;
        uint64_t counts[AGAIN_MAX_];
};

static void print_row(const struct audit_line *line, enum again again, enum reason reason)
{
        char vm[80], target[320], request[200] = "", method[32], path[160];

        printable(line->vm ? line->vm : "-", vm, sizeof(vm));
        audit_format_target(line, target, sizeof(target));
        if (line->method) {
                printable(line->method, method, sizeof(method));
                printable(line->path ? line->path : "", path, sizeof(path));
                (void)snprintf(request, sizeof(request), "  %s %s", method, path);
        }
        printf("%-27s %-16s %-13s %-36s %s -> %s%s\n", line->ts, vm,
                again == AGAIN_ALLOWED ? "deny->allow" : "allow->deny", target, reason_info(line->reason)->name,
                reason_info(reason)->name, request);
}

static void print_json(const struct audit_line *line, enum again again, enum reason reason)
{
        _cleanup_(json_decrefp) json_t *o = json_pack("{s:s, s:s, s:s, s:O}", "was",
                again == AGAIN_ALLOWED ? "deny" : "allow", "decision", again == AGAIN_ALLOWED ? "allow" : "deny",
                "reason", reason_info(reason)->name, "record", line->record);

        if (o)
                (void)audit_print_json(o);
}

static bool on_record(void *userdata, const struct audit_text *text, const struct audit_line *line)
{
        struct replay *r = userdata;
        enum reason reason;
        enum again again;

        (void)text;
        if (!audit_filter_passes(&r->options->filter, line))
                return true;
        again = audit_again(r->policy, line, &reason);
        r->counts[again]++;
        if ((again == AGAIN_ALLOWED || again == AGAIN_DENIED) && r->options->json)
                print_json(line, again, reason);
        else if (again == AGAIN_ALLOWED || again == AGAIN_DENIED)
                print_row(line, again, reason);
        return true;
}

static void print_counts(const struct replay *r)
{
        const uint64_t *n = r->counts;

        if (r->options->json) {
                printf("{\"allow_to_deny\":%" PRIu64 ",\"deny_to_allow\":%" PRIu64 ",\"same\":%" PRIu64
                       ",\"not_decided_by_policy\":%" PRIu64 ",\"depends_on_content\":%" PRIu64 "}\n",
                        n[AGAIN_DENIED], n[AGAIN_ALLOWED], n[AGAIN_SAME], n[AGAIN_OUT_OF_REACH], n[AGAIN_INSIDE]);
                return;
        }
        printf("allow->deny: %" PRIu64 ", deny->allow: %" PRIu64 ", the same: %" PRIu64 "\n", n[AGAIN_DENIED],
                n[AGAIN_ALLOWED], n[AGAIN_SAME]);
        if (n[AGAIN_OUT_OF_REACH])
                printf("not replayed: %" PRIu64
                       " that no policy decided (limits, failures on the way, malformed requests)\n",
                        n[AGAIN_OUT_OF_REACH]);
        if (n[AGAIN_INSIDE])
                printf("not replayed: %" PRIu64 " that hang on what the tunnel carried, which they do not tell\n",
                        n[AGAIN_INSIDE]);
}

static int replay(const struct replay_options *o, const struct policy *policy, struct audit_reader *reader)
{
        struct replay state = {.options = o, .policy = policy};
        uint64_t bad_n = 0;
        int r = audit_each(reader, on_record, &state, &bad_n);

        if (r == 0)
                print_counts(&state);
        audit_say_bad(bad_n);
        if (r == 0 && fflush(stdout) != 0)
                r = log_errno(-errno, "cannot answer");
        return r < 0 ? EXIT_FAILED : state.counts[AGAIN_DENIED] + state.counts[AGAIN_ALLOWED] ? EXIT_NO : 0;
}

/* 0, OPTIONS_E_USAGE for what is invalid, or a negative errno; each has been said. */
static int load_policy(const char *path, struct policy **ret)
{
        struct yaml_error error = {0};
        int r = policy_file_load(path, ret, &error);

        if (r == YAML_E_INVALID) {
                yaml_error_print(&error);
                yaml_error_done(&error);
                return OPTIONS_E_USAGE;
        }
        return r < 0 ? log_errno(r, "%s", path) : 0;
}

int audit_replay(int argc, char **argv)
{
        _cleanup_(policy_unrefp) struct policy *policy = NULL;
        char error[AUDIT_FILTER_ERROR_BYTES], **rest;
        struct audit_reader *reader = NULL;
        struct replay_options o = {0};
        size_t rest_n;
        int r = options_parse(&table, argc, argv, &o, &rest, &rest_n), status;

        if (r == OPTIONS_E_HELP)
                return 0;
        if (r == 0 && !o.policy)
                r = options_usage_error(&table, "--policy FILE is missing");
        if (r == 0 && audit_filter_prepare(&o.filter, clock_realtime_ns(), error) < 0)
                r = options_usage_error(&table, "%s", error);
        if (r == 0)
                r = load_policy(o.policy, &policy);
        if (r == 0)
                r = audit_open(&table, o.dir, rest, rest_n, &reader);
        status = r == OPTIONS_E_USAGE ? EXIT_USAGE : r < 0 ? EXIT_FAILED : replay(&o, policy, reader);
        audit_reader_free(reader);
        option_strings_done(&o.filter.vms);
        return status;
}
