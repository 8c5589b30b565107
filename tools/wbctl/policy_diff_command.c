/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "broker/isolation.h"
#include "proto/base/cleanup.h"
#include "proto/base/log.h"
#include "proto/base/options.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/policy_command.h"
#include "tools/wbctl/policy_diff.h"

DEFINE_CLEANUP(struct policy *, policy_unref);

#define PORTS_TOLD_MOST 8u

struct diff_options {
        bool json;
};

static const struct option_spec specs[] = {
        {"json", 0, OPTION_FLAG, offsetof(struct diff_options, json), NULL, "one JSON object instead of text"},
};

static const struct option_table table = {
        .usage = "wbctl policy diff [--json] A B",
        .summary =
                "Says what policy B allows that A does not (+) and the reverse (-), by what the broker would decide and "
                "not by how they are written: exit 0 the same, 1 different, 2 invalid.",
        .example = "wbctl policy diff old.yaml new.yaml",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(*specs),
        .intermixed = true,
};

static const struct {
        const char *mark, *word;
} changes[] = {
        [CHANGE_ALLOWS] = {"+", "allows"},
        [CHANGE_DENIES] = {"-", "denies"},
        [CHANGE_INTERCEPTS] = {"~", "intercepts"},
        [CHANGE_PASSES] = {"~", "passes"},
};

static const char *const schemes[] = {
        [PROTOCOL_AUTO] = "connect",
        [PROTOCOL_TLS] = "https",
        [PROTOCOL_HTTP] = "http",
        [PROTOCOL_TCP] = "tcp",
};

/* ---- for people */

static void print_where(const struct policy_difference *d)
{
        static const char *const others[] = {
                [HOST_NAME] = "(every other name)",
                [HOST_IPV4] = "(every other IPv4 address)",
                [HOST_IPV6] = "(every other IPv6 address)",
        };
        char text[PATTERN_TEXT_BYTES];

        if (!d->has_pattern) {
                printf("%s", others[d->host.kind]);
                return;
        }
        pattern_format(&d->pattern, text);
        printf(strchr(text, ':') ? "[%s]" : "%s", text);
}

static bool is_default_port(const struct policy_difference *d)
{
        return !d->any_port && d->ports_n == 1 &&
               ((d->protocols == PROTOCOL_BIT(PROTOCOL_TLS) && d->ports[0] == 443) ||
                       (d->protocols == PROTOCOL_BIT(PROTOCOL_HTTP) && d->ports[0] == 80));
}

static void print_ports(const struct policy_difference *d)
{
        if (is_default_port(d))
                return;
        if (d->any_port) {
                printf(":(every other port)");
                return;
        }
        for (size_t i = 0; i < d->ports_n && i < PORTS_TOLD_MOST; i++)
                printf("%s%u", i ? "," : ":", d->ports[i]);
        if (d->ports_n > PORTS_TOLD_MOST)
                printf(",(%zu more)", d->ports_n - PORTS_TOLD_MOST);
}

static void print_path(const struct policy_difference *d)
{
        if (d->path)
                printf("%s%s", *d->path == '*' ? " " : "", d->path_pattern ? d->path_pattern : d->path);
        else if (!(d->protocols & (PROTOCOL_BIT(PROTOCOL_TCP) | PROTOCOL_BIT(PROTOCOL_AUTO))))
                printf("/...");
}

static void print_notes(const struct policy_difference *d)
{
        char text[PATTERN_TEXT_BYTES] = "";

        if (d->has_pattern)
                pattern_format(&d->pattern, text);
        if (strcmp(text, d->host.text) != 0)
                printf("   (such as %s)", d->host.text);
        if (d->in_floor)
                printf("   (only as a service of the operator: the floor denies the name)");
        if (d->path && !d->path_pattern)
                printf("   (and paths that the rules cannot tell from it)");
        if (d->unseen)
                printf("   (in TLS nobody looks: neither policy has it intercepted here)");
}

static void print_difference(const struct policy_difference *d)
{
        const char *between = "";

        printf("%s %-10s ", changes[d->change].mark, changes[d->change].word);
        if (d->is_dns) {
                printf("the look-up of ");
                print_where(d);
        } else {
                if (d->method && !d->every_method)
                        printf("%s ", d->any_method ? "(any other method)" : d->method);
                for (int p = 0; p < PROTOCOL_MAX_; p++)
                        if (d->protocols & PROTOCOL_BIT(p)) {
                                printf("%s%s", between, schemes[p]);
                                between = "|";
                        }
                printf("://");
                print_where(d);
                print_ports(d);
                print_path(d);
        }
        print_notes(d);
        printf("\n");
}

static const struct {
        const char *name;
        size_t offset;
} limit_names[] = {
        {"rate_bps", offsetof(struct policy_limits, rate_bps)},
        {"burst_bytes", offsetof(struct policy_limits, burst_bytes)},
        {"quota_bytes", offsetof(struct policy_limits, quota_bytes)},
        {"max_connections", offsetof(struct policy_limits, max_connections)},
        {"requests_per_s", offsetof(struct policy_limits, requests_per_s)},
};
#define LIMITS_N (sizeof(limit_names) / sizeof(*limit_names))

static uint64_t limit_of(const struct policy_limits *l, size_t i)
{
        return *(const uint64_t *)(const void *)((const char *)l + limit_names[i].offset);
}

static bool limit_is_set(const struct policy_limits *l, size_t i)
{
        return limit_of(l, i) || (i == LIMIT_QUOTA && l->quota_set);
}

static void print_limit(const struct policy_limits *l, size_t i)
{
        if (limit_is_set(l, i))
                printf("%" PRIu64, limit_of(l, i));
        else
                printf("none");
}

static void print_limits(const struct policy_limits *a, const struct policy_limits *b)
{
        const char *between = "";

        for (size_t i = 0; i < LIMITS_N; i++) {
                if (limit_of(a, i) == limit_of(b, i) && limit_is_set(a, i) == limit_is_set(b, i))
                        continue;
                printf("%s%s ", between, limit_names[i].name);
                print_limit(a, i);
                printf(" -> ");
                print_limit(b, i);
                between = ", ";
        }
        printf("\n");
}

static const struct policy_limits *rule_limits(const struct policy *p, int rule)
{
        static const struct policy_limits none;

        return rule < 0 ? &none : &p->rules[rule].limits;
}

static void print_limit_change(const struct policy *a, const struct policy *b, const struct policy_limit_change *change)
{
        printf("~ limits     %s:%u: ", change->host.text, change->port);
        if (change->is_split)
                printf("alike, but not shared with the same rules: rule %d and rule %d\n", change->a_rule,
                        change->b_rule);
        else
                print_limits(rule_limits(a, change->a_rule), rule_limits(b, change->b_rule));
}

static void print_text(const struct policy *a, const struct policy *b, const struct policy_diff *d)
{
        for (int change = 0; change < CHANGE_MAX_; change++)
                for (size_t i = 0; i < d->differences_n; i++)
                        if (d->differences[i].change == (enum policy_change)change)
                                print_difference(&d->differences[i]);
        if (d->left_out)
                printf("  ... and %zu paths more\n", d->left_out);
        for (size_t i = 0; i < d->limits_n; i++)
                print_limit_change(a, b, &d->limits[i]);
        if (d->vm_limits) {
                printf("~ limits     of the whole VM: ");
                print_limits(&a->limits, &b->limits);
        }
        if (d->isolation)
                printf("~ isolation  %s (at least %s) -> %s (at least %s)\n", isolation_class_name(a->isolation),
                        isolation_tier_name(isolation_needed(a, false)), isolation_class_name(b->isolation),
                        isolation_tier_name(isolation_needed(b, false)));
        if (!d->complete)
                printf("? too large to be compared wholly: what is said is so, but there may be more\n");
        if (policy_diff_is_same(d))
                printf("the same: both decide alike, whatever is asked\n");
}

/* ---- for programs */

static json_t *text_or_null(const char *text)
{
        return text ? json_string(text) : json_null();
}

static json_t *difference_json(const struct policy_difference *d)
{
        json_t *ports = json_array(), *protocols = json_array();
        char pattern[PATTERN_TEXT_BYTES];

        for (size_t i = 0; i < d->ports_n; i++)
                (void)json_array_append_new(ports, json_integer(d->ports[i]));
        for (int p = 0; p < PROTOCOL_MAX_; p++)
                if (d->protocols & PROTOCOL_BIT(p))
                        (void)json_array_append_new(protocols, json_string(protocol_name((enum protocol)p)));
        if (d->has_pattern)
                pattern_format(&d->pattern, pattern);
        return json_pack("{s:s, s:o, s:s, s:o, s:b, s:o, s:o, s:b, s:b, s:o, s:o, s:b, s:b, s:b}", "change",
                changes[d->change].word, "pattern", text_or_null(d->has_pattern ? pattern : NULL), "host", d->host.text,
                "ports", ports, "any_other_port", d->any_port, "protocols", protocols, "method",
                text_or_null(d->method), "every_method", d->every_method, "any_other_method", d->any_method, "path",
                text_or_null(d->path), "path_pattern", text_or_null(d->path_pattern), "dns", d->is_dns, "service_only",
                d->in_floor, "unseen", d->unseen);
}

static json_t *limits_json(const struct policy_limits *l)
{
        json_t *o = json_object();

        for (size_t i = 0; i < LIMITS_N; i++)
                if (limit_is_set(l, i))
                        (void)json_object_set_new(o, limit_names[i].name, json_integer((json_int_t)limit_of(l, i)));
        return o;
}

static json_t *rule_or_null(int rule)
{
        return rule < 0 ? json_null() : json_integer(rule);
}

static json_t *answer_json(const struct policy *a, const struct policy *b, const struct policy_diff *d)
{
        json_t *differences = json_array(), *limits = json_array(), *answer;

        for (size_t i = 0; i < d->differences_n; i++)
                (void)json_array_append_new(differences, difference_json(&d->differences[i]));
        for (size_t i = 0; i < d->limits_n; i++) {
                const struct policy_limit_change *l = &d->limits[i];

                (void)json_array_append_new(
                        limits, json_pack("{s:s, s:i, s:o, s:o, s:o, s:o, s:b}", "host", l->host.text, "port", l->port,
                                        "a_rule", rule_or_null(l->a_rule), "b_rule", rule_or_null(l->b_rule), "a",
                                        limits_json(rule_limits(a, l->a_rule)), "b",
                                        limits_json(rule_limits(b, l->b_rule)), "split", l->is_split));
        }
        answer = json_pack("{s:b, s:b, s:o, s:I, s:o}", "same", policy_diff_is_same(d), "complete", d->complete,
                "differences", differences, "left_out", (json_int_t)d->left_out, "limits", limits);
        if (d->vm_limits)
                (void)json_object_set_new(answer, "vm_limits",
                        json_pack("{s:o, s:o}", "a", limits_json(&a->limits), "b", limits_json(&b->limits)));
        if (d->isolation)
                (void)json_object_set_new(answer, "isolation",
                        json_pack("{s:s, s:s, s:s, s:s}", "a", isolation_class_name(a->isolation), "a_needs",
                                isolation_tier_name(isolation_needed(a, false)), "b",
                                isolation_class_name(b->isolation), "b_needs",
                                isolation_tier_name(isolation_needed(b, false))));
        return answer;
}

static int diff(const struct diff_options *o, char **files)
{
        _cleanup_(policy_unrefp) struct policy *a = NULL;
        _cleanup_(policy_unrefp) struct policy *b = NULL;
        struct policy_diff d = {0};
        int r = policy_command_load(files[0], o->json, &a), status;

        if (r == 0)
                r = policy_command_load(files[1], o->json, &b);
        if (r != 0)
                return r;
        r = policy_diff(a, b, &d);
        if (r < 0) {
                log_errno(r, "the policies cannot be compared");
                return EXIT_FAILED;
        }
        status = policy_diff_is_same(&d) ? 0 : EXIT_NO;
        if (o->json)
                r = policy_command_print(answer_json(a, b, &d));
        else
                print_text(a, b, &d);
        policy_diff_done(&d);
        return r != 0 || fflush(stdout) != 0 ? EXIT_FAILED : status;
}

int policy_command_diff(int argc, char **argv)
{
        struct diff_options o = {0};
        char **rest;
        size_t rest_n;
        int r = options_parse(&table, argc, argv, &o, &rest, &rest_n);

        if (r == OPTIONS_E_HELP)
                return 0;
        if (r == 0 && rest_n != 2)
                r = options_usage_error(&table, "two files are wanted, A and B");
        if (r != 0)
                return r == OPTIONS_E_USAGE ? EXIT_USAGE : EXIT_FAILED;
        return diff(&o, rest);
}
