/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/cleanup.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "proto/base/options.h"
#include "proto/base/parse.h"
#include "tools/wbctl/audit_line.h"
#include "tools/wbctl/audit_log.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/policy_command.h"
#include "tools/wbctl/policy_suggest.h"

DEFINE_CLEANUP(struct policy *, policy_unref);
DEFINE_CLEANUP(struct policy_suggest *, policy_suggest_free);

#define DEFAULT_DIR "/var/log/wbbroker"

struct suggest_options {
        const char *vm;
        const char *since;
        const char *dir;
        const char *policy;
};

static const struct option_spec specs[] = {
        {"vm", 0, OPTION_STRING, offsetof(struct suggest_options, vm), "NAME", "the records of one VM"},
        {"since", 0, OPTION_STRING, offsetof(struct suggest_options, since), "T",
                "how far back (24h), or a time (2026-01-02T03:04:05Z)"},
        {"dir", 0, OPTION_STRING, offsetof(struct suggest_options, dir), "DIR",
                "the audit's dir, with its rotated logs (" DEFAULT_DIR ")"},
        {"policy", 'p', OPTION_STRING, offsetof(struct suggest_options, policy), "FILE",
                "leave out what this policy allows, and list its rules that nothing used"},
};

static const struct option_table table = {
        .usage = "wbctl policy suggest [--vm NAME] [--since T] [--policy FILE] [LOG... | --dir DIR]",
        .summary =
                "Writes a policy that would allow what the audit log says was denied for want of a rule, or allowed and "
                "used: no more than was seen, with comments that say how often.",
        .example = "wbctl policy suggest --vm demo --since 24h --policy demo.yaml",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(*specs),
        .intermixed = true,
};

struct reading {
        struct policy_suggest *suggest;
        const char *vm;
        uint64_t since_ns;
        int error; /* sticky */
};

static void take_line(void *userdata, char *text)
{
        struct reading *r = userdata;
        struct audit_line line;

        if (r->error)
                return;
        if (audit_line_parse(text, strlen(text), &line) != 0) {
                policy_suggest_count_malformed(r->suggest);
                return;
        }
        if (line.ts_ns >= r->since_ns && (!r->vm || (line.vm && strcmp(line.vm, r->vm) == 0)))
                r->error = policy_suggest_take(r->suggest, &line);
        audit_line_done(&line);
}

static int read_log(const char *path, struct reading *reading)
{
        int r = audit_log_file(path, take_line, reading);

        if (r < 0)
                fprintf(stderr, "wbctl: %s: %s\n", path, strerrordesc_np(-r));
        return r < 0 ? r : reading->error;
}

static int read_dir(const char *dir, struct reading *reading)
{
        struct audit_log_place place = {0};
        int r = audit_log_more(dir, &place, take_line, reading);

        if (r == 0 && !place.inode)
                r = -ENOENT;
        if (r < 0)
                fprintf(stderr, "wbctl: the audit log in %s: %s\n", dir, strerrordesc_np(-r));
        return r < 0 ? r : reading->error;
}

static int parse_since(const char *text, uint64_t *ret_ns)
{
        uint64_t ms, now_ns = clock_realtime_ns();

        if (parse_duration_ms(text, &ms) == 0) {
                *ret_ns = now_ns > ms * NSEC_PER_MSEC ? now_ns - ms * NSEC_PER_MSEC : 0;
                return 0;
        }
        if (audit_line_parse_time(text, ret_ns) == 0)
                return 0;
        return options_usage_error(
                &table, "--since is a duration such as 24h or a time such as 2026-01-02T03:04:05Z, not '%s'", text);
}

static int suggest(const struct suggest_options *o, char **logs, size_t logs_n)
{
        _cleanup_(policy_unrefp) struct policy *known = NULL;
        _cleanup_(policy_suggest_freep) struct policy_suggest *s = NULL;
        struct reading reading = {.vm = o->vm};
        int r = o->since ? parse_since(o->since, &reading.since_ns) : 0;

        if (r == 0 && o->policy)
                r = policy_command_load(o->policy, false, &known);
        if (r != 0)
                return r;
        r = policy_suggest_new(known, &s);
        reading.suggest = s;
        for (size_t i = 0; i < logs_n && r == 0; i++)
                r = read_log(logs[i], &reading);
        if (logs_n == 0 && r == 0)
                r = read_dir(o->dir ? o->dir : DEFAULT_DIR, &reading);
        if (r == -ENOMEM)
                log_errno(r, "the log cannot be read");
        if (r < 0)
                return EXIT_FAILED;
        policy_suggest_write(s, o->policy, stdout);
        return fflush(stdout) != 0 ? EXIT_FAILED : 0;
}

int policy_command_suggest(int argc, char **argv)
{
        struct suggest_options o = {0};
        char **rest;
        size_t rest_n;
        int r = options_parse(&table, argc, argv, &o, &rest, &rest_n);

        if (r == OPTIONS_E_HELP)
                return 0;
        if (r == 0 && rest_n && o.dir)
                r = options_usage_error(&table, "logs or --dir, not both");
        if (r != 0)
                return r == OPTIONS_E_USAGE ? EXIT_USAGE : EXIT_FAILED;
        return suggest(&o, rest, rest_n);
}
