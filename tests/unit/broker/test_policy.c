/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/policy.h"

#include <stdlib.h>
#include <string.h>

#include "broker/policy_load.h"
#include "proto/base/cleanup.h"
#include "tests/support/cases.h"

DEFINE_CLEANUP(struct policy *, policy_unref);

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

static const struct floor builtin_floor;

static struct policy *load(const char *text)
{
        struct policy *policy = NULL;
        struct yaml_error error = {0};

        if (policy_load("test", text, strlen(text), &policy, &error) != 0) {
                yaml_error_print(&error);
                abort();
        }
        return policy;
}

/* A question as the tables below write it. */
struct question {
        const char *host;
        uint16_t port;
        const char *method, *path;
        enum protocol protocol;
        enum via via;
};

static void ask(const struct policy *policy, const struct question *q, struct decision *ret)
{
        struct request request = {
                .via = q->via, .protocol = q->protocol, .port = q->port, .method = q->method, .path = q->path};

        if (hostname_parse(q->host, strlen(q->host), &request.host) != 0)
                abort();
        policy_decide(policy, &builtin_floor, &request, false, ret);
}

static enum via via_of(const char *text)
{
        for (int via = 0; text && via < VIA_MAX_; via++)
                if (strcmp(text, via_name((enum via)via)) == 0)
                        return (enum via)via;
        return VIA_CONNECT;
}

/* As a session does: the name first, its addresses when it was allowed. */
static void decide_case(const struct policy *policy, const json_t *q, struct decision *ret)
{
        const json_t *port = json_object_get(q, "port"), *addresses = json_object_get(q, "addrs");
        const char *host = case_text(q, "host"), *path = case_text(q, "path");
        _cleanup_free_ char *path_copy = path ? strndup(path, strcspn(path, "?")) : NULL;
        struct request request = {
                .via = via_of(case_text(q, "via")), .method = case_text(q, "method"), .path = path_copy};
        json_int_t number = port ? json_integer_value(port) : 443;

        *ret = (struct decision){.reason = REASON_MALFORMED_REQUEST, .rule = DECISION_NO_RULE};
        if (hostname_parse(host, strlen(host), &request.host) != 0 || number < 1 || number > UINT16_MAX)
                return;
        request.port = request.via == VIA_DNS ? 0 : (uint16_t)number;
        request.protocol = request.via == VIA_HTTP ? PROTOCOL_HTTP : PROTOCOL_AUTO;
        policy_decide(policy, &builtin_floor, &request, false, ret);
        for (size_t i = 0; i < json_array_size(addresses) && ret->reason == REASON_ALLOWED; i++) {
                const char *text = json_string_value(json_array_get(addresses, i));
                struct hostname address;

                CASE_CHECK(q, hostname_parse_address(text, strlen(text), &address) == 0);
                ret->reason = policy_decide_addresses(&builtin_floor, &address, 1, &ret->floor);
        }
}

static void test_decisions_of_the_contract(void)
{
        CASES_FOREACH ("decisions.json", c) {
                _cleanup_(policy_unrefp) struct policy *policy = load(case_text(c, "policy"));
                const json_t *expect = json_object_get(c, "expect");
                const json_t *rule = json_object_get(expect, "rule"), *inspect = json_object_get(expect, "inspect");
                struct decision d;

                decide_case(policy, json_object_get(c, "request"), &d);
                CASE_CHECK(c, strcmp(reason_info(d.reason)->name, case_text(expect, "reason")) == 0);
                CASE_CHECK(c, !json_is_null(rule) || d.rule == DECISION_NO_RULE);
                CASE_CHECK(c, !json_is_integer(rule) || d.rule == json_integer_value(rule));
                CASE_CHECK(c, !inspect || d.inspect == json_is_true(inspect));
        }
}

static const char rules[] = "network: allowlist_domain\n"
                            "egress_rules:\n"
                            "  - {pattern: '**.example.org'}\n"                                          /* 0 */
                            "  - {pattern: '**.example.org', action: deny, ports: [22, 443]}\n"          /* 1 */
                            "  - {pattern: 'post.example.net', ports: [80, 443]}\n"                      /* 2 */
                            "  - {pattern: 'post.example.net', action: deny, http_methods: [DELETE]}\n"  /* 3 */
                            "  - {pattern: 'plain.example.net', protocol: auto}\n"                       /* 4 */
                            "  - {pattern: 'plain.example.net', action: deny, protocol: http}\n"         /* 5 */
                            "  - {pattern: 'p.example.net', http_paths: ['/a/*', '/g/x%2Fy/*']}\n"       /* 6 */
                            "  - {pattern: '*.example.net', ports: [8080]}\n"                            /* 7 */
                            "  - {pattern: 'adm.example.net'}\n"                                         /* 8 */
                            "  - {pattern: 'adm.example.net', action: deny, http_paths: ['/admin/*']}\n" /* 9 */
                            "  - {pattern: 'both.example.net', protocol: tls, http_methods: [GET]}\n"    /* 10 */
                            "  - {pattern: 'both.example.net', protocol: http}\n"                        /* 11 */
                            "  - {pattern: 'git.example.net', protocol: tcp, ports: [22]}\n"             /* 12 */
                            "  - {pattern: 'shut.example.net', ports: [443]}\n"                          /* 13 */
                            "  - {pattern: 'shut.example.net', action: deny, ports: [443, 8080]}\n";     /* 14 */

static const struct {
        struct question q;
        enum reason reason;
        int rule;
        bool inspect;
} decisions[] = {
        /* a deny rule with ports denies those */
        {{"www.example.org", 443, NULL, NULL, 0, 0}, REASON_DENY_RULE, 1, false},
        {{"www.example.org", 80, NULL, NULL, 0, 0}, REASON_ALLOWED, 0, false},
        {{"www.example.org", 22, NULL, NULL, 0, 0}, REASON_DENY_RULE, 1, false},
        {{"www.example.org", 25, NULL, NULL, 0, 0}, REASON_PORT_NOT_ALLOWED, -1, false},
        /* one with methods denies when the method is known */
        {{"post.example.net", 80, NULL, NULL, 0, 0}, REASON_ALLOWED, 2, false},
        {{"post.example.net", 80, "GET", "/", PROTOCOL_HTTP, VIA_HTTP}, REASON_ALLOWED, 2, false},
        {{"post.example.net", 80, "DELETE", "/", PROTOCOL_HTTP, VIA_HTTP}, REASON_DENY_RULE, 3, false},
        /* one with a protocol when that is known */
        {{"plain.example.net", 80, NULL, NULL, 0, 0}, REASON_ALLOWED, 4, false},
        {{"plain.example.net", 80, NULL, NULL, PROTOCOL_TLS, 0}, REASON_ALLOWED, 4, false},
        {{"plain.example.net", 80, NULL, NULL, PROTOCOL_HTTP, 0}, REASON_DENY_RULE, 5, false},
        {{"plain.example.net", 80, NULL, NULL, PROTOCOL_TCP, 0}, REASON_PROTOCOL_NOT_ALLOWED, -1, false},
        /* paths that servers read in more than one way */
        {{"p.example.net", 443, "GET", "/a/b", 0, 0}, REASON_ALLOWED, 6, true},
        {{"p.example.net", 443, "GET", "/a/", 0, 0}, REASON_ALLOWED, 6, true},
        {{"p.example.net", 443, "GET", "/a/...", 0, 0}, REASON_ALLOWED, 6, true},
        {{"p.example.net", 443, "GET", "/a/.b", 0, 0}, REASON_ALLOWED, 6, true},
        {{"p.example.net", 443, "GET", "/a/../b", 0, 0}, REASON_MALFORMED_REQUEST, -1, false},
        {{"p.example.net", 443, "GET", "/a/b/..", 0, 0}, REASON_MALFORMED_REQUEST, -1, false},
        {{"p.example.net", 443, "GET", "/a/./b", 0, 0}, REASON_MALFORMED_REQUEST, -1, false},
        {{"p.example.net", 443, "GET", "/a/%2e%2E/b", 0, 0}, REASON_MALFORMED_REQUEST, -1, false},
        {{"p.example.net", 443, "GET", "/a/.%2e", 0, 0}, REASON_MALFORMED_REQUEST, -1, false},
        {{"p.example.net", 443, "GET", "/a\\b", 0, 0}, REASON_MALFORMED_REQUEST, -1, false},
        {{"p.example.net", 443, "GET", "/b/%5C", 0, 0}, REASON_MALFORMED_REQUEST, -1, false},
        {{"p.example.net", 443, "GET", "/a/x%2fy", 0, 0}, REASON_MALFORMED_REQUEST, -1, false},
        {{"p.example.net", 443, "GET", "/g/x%2Fy/z", 0, 0}, REASON_ALLOWED, 6, true},
        {{"p.example.net", 443, "GET", "/g/x%2Fy/z%2F", 0, 0}, REASON_MALFORMED_REQUEST, -1, false},
        {{"p.example.net", 443, "GET", "/g/x%2Fy/..%2Fz", 0, 0}, REASON_MALFORMED_REQUEST, -1, false},
        {{"p.example.net", 443, "GET", "/g/x%2fy/z", 0, 0}, REASON_PATH_NOT_ALLOWED, -1, false},
        /* only where a path rule is for that port */
        {{"p.example.net", 8080, "GET", "/a/../b", 0, 0}, REASON_ALLOWED, 7, false},
        {{"post.example.net", 80, "GET", "/a/../b", 0, 0}, REASON_ALLOWED, 2, false},
        /* and a deny rule's paths cannot be walked around */
        {{"adm.example.net", 80, "GET", "/x", 0, 0}, REASON_ALLOWED, 8, false},
        {{"adm.example.net", 80, "GET", "/admin/x", 0, 0}, REASON_DENY_RULE, 9, false},
        {{"adm.example.net", 80, "GET", "/x/../admin/x", 0, 0}, REASON_MALFORMED_REQUEST, -1, false},
        {{"adm.example.net", 80, "GET", "/admin%2Fx", 0, 0}, REASON_MALFORMED_REQUEST, -1, false},
        /* a rule for plain HTTP lets no TLS pass uninspected */
        {{"both.example.net", 443, NULL, NULL, 0, 0}, REASON_ALLOWED, 10, true},
        {{"both.example.net", 443, "PUT", "/", PROTOCOL_TLS, 0}, REASON_METHOD_NOT_ALLOWED, -1, false},
        {{"both.example.net", 443, "PUT", "/", PROTOCOL_HTTP, 0}, REASON_ALLOWED, 11, true},
        /* opaque takes everything */
        {{"git.example.net", 22, NULL, NULL, PROTOCOL_TCP, 0}, REASON_ALLOWED, 12, false},
        {{"git.example.net", 22, NULL, NULL, PROTOCOL_TLS, 0}, REASON_ALLOWED, 12, false},
        /* DNS: some port would be allowed */
        {{"www.example.org", 0, NULL, NULL, 0, VIA_DNS}, REASON_ALLOWED, 0, false},
        {{"git.example.net", 0, NULL, NULL, 0, VIA_DNS}, REASON_ALLOWED, 12, false},
        {{"x.example.net", 0, NULL, NULL, 0, VIA_DNS}, REASON_ALLOWED, 7, false},
        {{"shut.example.net", 0, NULL, NULL, 0, VIA_DNS}, REASON_DENY_RULE, 14, false},
        {{"example.com", 0, NULL, NULL, 0, VIA_DNS}, REASON_NO_RULE, -1, false},
};

static void test_decisions_beyond(void)
{
        _cleanup_(policy_unrefp) struct policy *policy = load(rules);

        for (size_t i = 0; i < COUNT(decisions); i++) {
                struct decision d;

                ask(policy, &decisions[i].q, &d);
                if (d.reason != decisions[i].reason || d.rule != decisions[i].rule ||
                        d.inspect != decisions[i].inspect) {
                        printf("\n%zu: %s:%u %s: %s %d %d", i, decisions[i].q.host, decisions[i].q.port,
                                decisions[i].q.path ? decisions[i].q.path : "", reason_info(d.reason)->name, d.rule,
                                d.inspect);
                        CU_FAIL("another decision");
                }
        }
}

static void test_dns_in_a_public_network(void)
{
        _cleanup_(policy_unrefp) struct policy *policy =
                load("network: public\n"
                     "egress_rules:\n"
                     "  - {pattern: a.example.org, action: deny, ports: [443]}\n"
                     "  - {pattern: b.example.org, action: deny}\n"
                     "  - {pattern: c.example.org, ports: [443]}\n"
                     "  - {pattern: c.example.org, action: deny, ports: [443]}\n");
        static const struct {
                const char *host;
                enum reason reason;
                int rule;
        } table[] = {
                {"a.example.org", REASON_ALLOWED, -1},
                {"b.example.org", REASON_DENY_RULE, 1},
                {"c.example.org", REASON_ALLOWED, -1},
                {"d.example.org", REASON_ALLOWED, -1},
        };

        for (size_t i = 0; i < COUNT(table); i++) {
                struct question q = {.host = table[i].host, .via = VIA_DNS};
                struct decision d;

                ask(policy, &q, &d);
                CU_ASSERT_EQUAL(d.reason, table[i].reason);
                CU_ASSERT_EQUAL(d.rule, table[i].rule);
        }
}

/* A rule governs its host and port; for the rest of them the network is public. */
static void test_a_rule_governs_in_a_public_network(void)
{
        _cleanup_(policy_unrefp) struct policy *policy = load(
                "network: public\negress_rules:\n  - {pattern: a.example.org, protocol: tls, http_methods: [GET]}\n");
        static const struct {
                struct question q;
                enum reason reason;
        } table[] = {
                {{"a.example.org", 443, "GET", "/", 0, 0}, REASON_ALLOWED},
                {{"a.example.org", 443, "PUT", "/", 0, 0}, REASON_METHOD_NOT_ALLOWED},
                {{"a.example.org", 80, NULL, NULL, PROTOCOL_HTTP, VIA_HTTP}, REASON_PROTOCOL_NOT_ALLOWED},
                {{"a.example.org", 8080, "PUT", "/", PROTOCOL_HTTP, VIA_HTTP}, REASON_ALLOWED},
                {{"b.example.org", 22, NULL, NULL, PROTOCOL_TCP, 0}, REASON_ALLOWED},
        };

        for (size_t i = 0; i < COUNT(table); i++) {
                struct decision d;

                ask(policy, &table[i].q, &d);
                CU_ASSERT_EQUAL(d.reason, table[i].reason);
        }
}

static void test_an_operators_service_is_not_judged_by_the_floor(void)
{
        _cleanup_(policy_unrefp) struct policy *policy =
                load("network: allowlist_domain\negress_rules: [{pattern: mirror.example.internal}]\n");
        struct request request = {.port = 443};
        struct decision d;

        CU_ASSERT_EQUAL_FATAL(hostname_parse("mirror.example.internal", 23, &request.host), 0);
        policy_decide(policy, &builtin_floor, &request, false, &d);
        CU_ASSERT_EQUAL(d.reason, REASON_FLOOR_NAME);
        CU_ASSERT_STRING_EQUAL(d.floor, "internal");
        policy_decide(policy, &builtin_floor, &request, true, &d);
        CU_ASSERT_EQUAL(d.reason, REASON_ALLOWED);
        CU_ASSERT_EQUAL(d.rule, 0);
        request.port = 25;
        policy_decide(policy, &builtin_floor, &request, true, &d);
        CU_ASSERT_EQUAL(d.reason, REASON_PORT_NOT_ALLOWED);
}

static void test_any_address_in_the_floor_denies(void)
{
        static const char *const texts[] = {"8.8.8.8", "2606:4700::1111", "10.0.0.1"};
        struct hostname addresses[3];
        const char *floor = NULL;

        for (size_t i = 0; i < 3; i++)
                CU_ASSERT_EQUAL_FATAL(hostname_parse_address(texts[i], strlen(texts[i]), &addresses[i]), 0);
        CU_ASSERT_EQUAL(policy_decide_addresses(&builtin_floor, addresses, 2, &floor), REASON_ALLOWED);
        CU_ASSERT_PTR_NULL(floor);
        CU_ASSERT_EQUAL(policy_decide_addresses(&builtin_floor, addresses, 3, &floor), REASON_FLOOR_ADDRESS);
        CU_ASSERT_STRING_EQUAL(floor, "10.0.0.0/8");
}

static void test_protocols_that_may_follow(void)
{
        _cleanup_(policy_unrefp) struct policy *policy = load(rules);
        static const struct {
                const char *host;
                uint16_t port;
                bool tls, http, tcp;
        } table[] = {
                {"git.example.net", 22, true, true, true},
                {"post.example.net", 80, true, true, false},
                {"plain.example.net", 80, true, false, false},
                {"both.example.net", 443, true, true, false},
                {"nobody.example.com", 443, false, false, false},
        };

        for (size_t i = 0; i < COUNT(table); i++) {
                struct request request = {.port = table[i].port};
                bool allowed[PROTOCOL_MAX_];

                CU_ASSERT_EQUAL_FATAL(hostname_parse(table[i].host, strlen(table[i].host), &request.host), 0);
                policy_protocols(policy, &request, allowed);
                CU_ASSERT_EQUAL(allowed[PROTOCOL_TLS], table[i].tls);
                CU_ASSERT_EQUAL(allowed[PROTOCOL_HTTP], table[i].http);
                CU_ASSERT_EQUAL(allowed[PROTOCOL_TCP], table[i].tcp);
                CU_ASSERT_EQUAL(allowed[PROTOCOL_AUTO], table[i].tls || table[i].http || table[i].tcp);
        }
}

static bool is_printable(const char *text)
{
        for (; *text; text++)
                if (*text < 0x20 || *text > 0x7e)
                        return false;
        return true;
}

static void test_explanations_say_what_to_do(void)
{
        _cleanup_(policy_unrefp) struct policy *policy = load(rules);
        static const struct {
                struct question q;
                const char *say;
        } table[] = {
                {{"www.example.com", 8443, NULL, NULL, 0, 0}, "- {pattern: \"www.example.com\", ports: [8443]}"},
                {{"www.example.com", 443, NULL, NULL, 0, 0}, "- {pattern: \"www.example.com\"}"},
                {{"8.8.8.8", 443, NULL, NULL, 0, 0}, "Use the server's name"},
                {{"www.example.com", 22, NULL, NULL, 0, 0},
                        "- {pattern: \"www.example.com\", ports: [22], protocol: tcp}"},
                {{"www.example.org", 25, NULL, NULL, 0, 0},
                        "- {pattern: \"www.example.org\", ports: [25], protocol: tcp}"},
                {{"www.example.org", 8443, NULL, NULL, 0, 0}, "ports: [80, 443, 8443]"},
                {{"www.example.org", 443, NULL, NULL, 0, 0}, "rule 1 (line 4, **.example.org)"},
                {{"both.example.net", 443, "PUT", "/", PROTOCOL_TLS, 0}, "http_methods: [\"GET\", \"PUT\"]"},
                {{"p.example.net", 443, "GET", "/z\"\n\x1b", 0, 0}, "\"/z???\"]"},
                {{"p.example.net", 443, "GET", "/a/..", 0, 0}, "plain path"},
                {{"git.example.net", 22, NULL, NULL, 0, 0}, "Allowed by rule 12"},
                {{"169.254.169.254", 80, NULL, NULL, 0, 0}, "169.254.0.0/16"},
                {{"x.local", 80, NULL, NULL, 0, 0}, "no policy can open"},
        };

        for (size_t i = 0; i < COUNT(table); i++) {
                const struct question *q = &table[i].q;
                struct request request = {
                        .via = q->via, .protocol = q->protocol, .port = q->port, .method = q->method, .path = q->path};
                char text[POLICY_EXPLAIN_BYTES];
                struct decision d;

                ask(policy, q, &d);
                CU_ASSERT_EQUAL_FATAL(hostname_parse(q->host, strlen(q->host), &request.host), 0);
                policy_explain(policy, &request, &d, text, sizeof(text));
                if (!strstr(text, table[i].say)) {
                        printf("\n%s", text);
                        CU_FAIL("does not say it");
                }
                CU_ASSERT_TRUE(is_printable(text));
                CU_ASSERT_TRUE(d.reason == REASON_ALLOWED || strstr(text, "A retry will not help."));
                for (size_t room = 0; room < 40; room++) {
                        memset(text, 'x', sizeof(text));
                        policy_explain(policy, &request, &d, text, room);
                        CU_ASSERT_EQUAL(text[room], 'x');
                        CU_ASSERT_TRUE(room == 0 || memchr(text, '\0', room));
                }
        }
}

/* Whatever was decided has words, and they fit, also with the longest names and paths. */
static void test_every_reason_is_explained(void)
{
        _cleanup_(policy_unrefp) struct policy *policy = load(rules);
        char path[600];
        struct request request = {.port = 443, .method = path, .path = path};
        char text[POLICY_EXPLAIN_BYTES];

        memset(path, 'p', sizeof(path) - 1);
        path[0] = '/';
        path[sizeof(path) - 1] = '\0';
        CU_ASSERT_EQUAL_FATAL(hostname_parse("p.example.net", 13, &request.host), 0);
        for (int reason = 0; reason < REASON_MAX_; reason++) {
                struct decision d = {.reason = (enum reason)reason, .rule = DECISION_NO_RULE};

                policy_explain(policy, &request, &d, text, sizeof(text));
                CU_ASSERT_TRUE(strlen(text) > 20 && strlen(text) < sizeof(text) - 1);
                CU_ASSERT_TRUE(is_printable(text));
        }
}

static void test_references(void)
{
        struct policy *policy = load("network: none\n");

        CU_ASSERT_PTR_EQUAL(policy_ref(policy), policy);
        policy_unref(policy);
        CU_ASSERT_EQUAL(policy->network, NETWORK_NONE);
        policy_unref(policy);
        policy_unref(NULL);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"decisions of the contract", test_decisions_of_the_contract},
                {"decisions beyond", test_decisions_beyond},
                {"DNS in a public network", test_dns_in_a_public_network},
                {"a rule governs in a public network", test_a_rule_governs_in_a_public_network},
                {"an operator's service is not judged by the floor",
                        test_an_operators_service_is_not_judged_by_the_floor},
                {"any address in the floor denies", test_any_address_in_the_floor_denies},
                {"protocols that may follow", test_protocols_that_may_follow},
                {"explanations say what to do", test_explanations_say_what_to_do},
                {"every reason is explained", test_every_reason_is_explained},
                {"references", test_references},
                CU_TEST_INFO_NULL,
        };

        return cases_run("policy", tests);
}
