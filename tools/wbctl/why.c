/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/cleanup.h"
#include "proto/base/log.h"
#include "proto/base/options.h"
#include "tools/wbctl/command.h"
#include "tools/wbctl/offline.h"
#include "tools/wbctl/policy_file.h"

DEFINE_CLEANUP(struct policy *, policy_unref);

#define DEFAULT_PORT 443

struct why_options {
        const char *policy;
        const char *method;
        const char *path;
        const char *via;
        struct option_strings addresses;
        bool json;
};

static const struct option_spec specs[] = {
        {"policy", 'p', OPTION_STRING, offsetof(struct why_options, policy), "FILE", "the policy to judge by"},
        {"method", 0, OPTION_STRING, offsetof(struct why_options, method), "METHOD",
                "of a request inside the connection"},
        {"path", 0, OPTION_STRING, offsetof(struct why_options, path), "PATH", "of a request inside the connection"},
        {"addr", 0, OPTION_STRINGS, offsetof(struct why_options, addresses), "IP",
                "what the name resolves to (repeatable)"},
        {"via", 0, OPTION_STRING, offsetof(struct why_options, via), "WAY", "connect (default), http, socks5 or dns"},
        {"json", 0, OPTION_FLAG, offsetof(struct why_options, json), NULL, "one JSON object instead of text"},
};

static const struct option_table table = {
        .usage = "wbctl why --policy FILE [--method M] [--path P] [--addr IP]... [--via WAY] [--json] HOST[:PORT]",
        .summary = "Says what the broker would decide, by its own code and without a broker: exit 0 allow, 1 deny.",
        .example = "wbctl why --policy demo.yaml --method POST --path /w/api.php en.wikipedia.org:443",
        .specs = specs,
        .specs_n = sizeof(specs) / sizeof(*specs),
        .intermixed = true,
};

/* The request and what was made of it. */
struct question {
        const char *text; /* HOST[:PORT] as given */
        struct request request;
        char *path; /* without the query; request.path points at it */
        struct hostname *addresses;
        size_t addresses_n;
        bool is_malformed;
        struct decision decision;
};

static void question_done(struct question *q)
{
        free(q->path);
        free(q->addresses);
}

static int parse_via(const char *text, enum via *ret)
{
        static const enum via ways[] = {VIA_CONNECT, VIA_HTTP, VIA_SOCKS5, VIA_DNS};

        for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++)
                if (strcmp(text, via_name(ways[i])) == 0) {
                        *ret = ways[i];
                        return 0;
                }
        return options_usage_error(&table, "--via is connect, http, socks5 or dns, not '%s'", text);
}

static int parse_addresses(const struct option_strings *texts, struct question *q)
{
        q->addresses = calloc(texts->n ? texts->n : 1, sizeof(*q->addresses));
        if (!q->addresses)
                return -ENOMEM;
        for (; q->addresses_n < texts->n; q->addresses_n++) {
                const char *text = texts->items[q->addresses_n];

                if (hostname_parse_address(text, strlen(text), &q->addresses[q->addresses_n]) != 0)
                        return options_usage_error(&table, "--addr wants an IP address, not '%s'", text);
        }
        return 0;
}

/* What is wrong with the options is wrong usage; what is wrong with the request is an answer. */
static int parse_question(const struct why_options *o, const char *target, struct question *q)
{
        int r = o->via ? parse_via(o->via, &q->request.via) : 0;

        if (r == 0)
                r = parse_addresses(&o->addresses, q);
        if (r != 0)
                return r;
        q->text = target;
        q->is_malformed = hostname_parse_with_port(target, strlen(target), &q->request.host, &q->request.port) != 0;
        if (!q->request.port)
                q->request.port = DEFAULT_PORT;
        if (q->request.via == VIA_HTTP)
                q->request.protocol = PROTOCOL_HTTP; /* absolute-form is a request in the clear */
        if (o->method) {
                q->request.method = o->method;
                q->is_malformed = q->is_malformed || !request_is_method(o->method, strlen(o->method));
        }
        if (o->path) {
                q->path = strndup(o->path, strcspn(o->path, "?"));
                if (!q->path)
                        return -ENOMEM;
                q->request.path = q->path;
                q->is_malformed = q->is_malformed || !request_is_path(q->path, strlen(q->path));
        }
        return 0;
}

static void decide(const struct policy *policy, struct question *q)
{
        if (q->is_malformed)
                q->decision = (struct decision){.reason = REASON_MALFORMED_REQUEST, .rule = DECISION_NO_RULE};
        else
                offline_decide(policy, &q->request, false, q->addresses, q->addresses_n, &q->decision);
}

/* The host in its canonical spelling; a malformed one as given, with what is not printable ASCII escaped. */
static void format_host(const struct question *q, char *ret_text, size_t room)
{
        size_t at = 0;

        if (q->request.host.length) {
                (void)snprintf(ret_text, room, "%s", q->request.host.text);
                return;
        }
        for (const char *p = q->text; *p && at + 5 <= room; p++) {
                unsigned char c = (unsigned char)*p;

                if (c >= 0x20 && c < 0x7f)
                        ret_text[at++] = *p;
                else
                        at += (size_t)sprintf(ret_text + at, "\\x%02x", c);
        }
        ret_text[at] = '\0';
}

static int print_json(const struct question *q, const char *host)
{
        const struct decision *d = &q->decision;
        bool is_allowed = d->reason == REASON_ALLOWED;
        _cleanup_(json_decrefp) json_t *rule = d->rule >= 0 ? json_integer(d->rule) : json_null();
        _cleanup_(json_decrefp) json_t *answer = json_pack("{s:s, s:s, s:O, s:s, s:i, s:b}", "decision",
                is_allowed ? "allow" : "deny", "reason", reason_info(d->reason)->name, "rule", rule, "host", host,
                "port", (int)q->request.port, "inspect", (int)d->inspect);

        if (!answer || json_dumpf(answer, stdout, JSON_COMPACT) < 0)
                return -EIO;
        printf("\n");
        return 0;
}

static void print_text(const struct policy *policy, const struct question *q, const char *host)
{
        const struct decision *d = &q->decision;
        const char *brackets = q->request.host.kind == HOST_IPV6 ? "[]" : "";
        char detail[POLICY_EXPLAIN_BYTES];

        printf("%-5s  ", d->reason == REASON_ALLOWED ? "allow" : "deny");
        if (q->request.host.length && q->request.via != VIA_DNS)
                printf("%.1s%s%s:%u", brackets, host, *brackets ? "]" : "", q->request.port);
        else
                printf("%s", host);
        printf("  %s\n", reason_info(d->reason)->name);
        policy_explain(policy, &q->request, d, detail, sizeof(detail));
        printf("       %s\n", detail);
}

static int answer(const struct why_options *o, const char *target, struct question *q)
{
        _cleanup_(policy_unrefp) struct policy *policy = NULL;
        struct yaml_error error = {0};
        char host[1024];
        int r = parse_question(o, target, q);

        if (r == OPTIONS_E_USAGE)
                return EXIT_USAGE;
        if (r == 0)
                r = policy_file_load(o->policy, &policy, &error);
        if (r == YAML_E_INVALID) {
                yaml_error_print(&error);
                yaml_error_done(&error);
                return EXIT_USAGE;
        }
        if (r == 0) {
                decide(policy, q);
                format_host(q, host, sizeof(host));
                if (o->json)
                        r = print_json(q, host);
                else
                        print_text(policy, q, host);
        }
        if (r == 0 && fflush(stdout) != 0)
                r = -errno;
        if (r < 0) {
                log_errno(r, "cannot answer");
                return EXIT_FAILED;
        }
        return q->decision.reason == REASON_ALLOWED ? 0 : EXIT_NO;
}

int command_why(int argc, char **argv)
{
        struct why_options o = {0};
        struct question q = {0};
        char **rest;
        size_t rest_n;
        int r = options_parse(&table, argc, argv, &o, &rest, &rest_n);

        if (r == OPTIONS_E_HELP)
                return 0;
        if (r == 0 && !o.policy)
                r = options_usage_error(&table, "--policy FILE is missing");
        if (r == 0 && rest_n != 1)
                r = options_usage_error(&table, "one HOST[:PORT] is wanted");
        r = r == 0 ? answer(&o, rest[0], &q) : r == OPTIONS_E_USAGE ? EXIT_USAGE : EXIT_FAILED;
        question_done(&q);
        option_strings_done(&o.addresses);
        return r;
}
