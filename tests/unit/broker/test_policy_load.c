/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/policy_load.h"

#include <stdlib.h>
#include <string.h>

#include "broker/isolation.h"
#include "proto/base/cleanup.h"
#include "tests/support/cases.h"

DEFINE_CLEANUP(struct policy *, policy_unref);

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

static bool is_number_or_one_of(const json_t *want, unsigned got)
{
        if (!want || json_is_integer(want))
                return !want || json_integer_value(want) == got;
        for (size_t i = 0; i < json_array_size(want); i++)
                if (json_integer_value(json_array_get(want, i)) == got)
                        return true;
        return false;
}

static bool says(const json_t *c, const char *message)
{
        const json_t *word = json_object_get(c, "word");

        if (!word || json_is_string(word))
                return !word || strstr(message, json_string_value(word));
        for (size_t i = 0; i < json_array_size(word); i++)
                if (strstr(message, json_string_value(json_array_get(word, i))))
                        return true;
        return false;
}

static void test_bad_policies_of_the_contract(void)
{
        CASES_FOREACH ("bad_policies.json", c) {
                _cleanup_(policy_unrefp) struct policy *policy = NULL;
                size_t n;
                _cleanup_free_ char *text = case_bytes(c, "policy", &n);
                struct yaml_error e = {0};
                bool ok = json_is_true(json_object_get(c, "ok"));
                int r = policy_load("f", text, n, &policy, &e);

                CASE_CHECK(c, r == (ok ? 0 : YAML_E_INVALID));
                if (r != YAML_E_INVALID)
                        continue;
                CASE_CHECK(c, is_number_or_one_of(json_object_get(c, "line"), e.line));
                CASE_CHECK(c, is_number_or_one_of(json_object_get(c, "column"), e.column));
                CASE_CHECK(c, says(c, e.message));
                CASE_CHECK(c, strcmp(e.file, "f") == 0);
                yaml_error_done(&e);
        }
}

static struct policy *load(const char *text)
{
        struct policy *policy = NULL;
        struct yaml_error e = {0};

        if (policy_load("f", text, strlen(text), &policy, &e) != 0) {
                yaml_error_print(&e);
                abort();
        }
        return policy;
}

static void test_defaults(void)
{
        _cleanup_(policy_unrefp) struct policy *empty = load("{}\n");
        _cleanup_(policy_unrefp) struct policy *policy = load("network: public\negress_rules:\n"
                                                              "  - pattern: a.example.org\n"
                                                              "  - {pattern: b.example.org, action: deny}\n");

        CU_ASSERT_EQUAL(empty->network, NETWORK_NONE);
        CU_ASSERT_EQUAL(empty->isolation, CLASS_STANDARD);
        CU_ASSERT_EQUAL(empty->require_isolation, -1);
        CU_ASSERT_EQUAL(empty->rules_n, 0);
        CU_ASSERT_EQUAL(policy->rules_n, 2);
        CU_ASSERT_FALSE(policy->rules[0].deny);
        CU_ASSERT_EQUAL(policy->rules[0].ports_n, 2);
        CU_ASSERT_EQUAL(policy->rules[0].ports[0], 80);
        CU_ASSERT_EQUAL(policy->rules[0].ports[1], 443);
        CU_ASSERT_EQUAL(policy->rules[0].protocol, PROTOCOL_AUTO);
        CU_ASSERT_EQUAL(policy->rules[0].limits.rate_bps, 0);
        CU_ASSERT_FALSE(policy->rules[0].limits.quota_set);
        CU_ASSERT_EQUAL(policy->rules[0].line, 3);
        CU_ASSERT_TRUE(policy->rules[1].deny);
        CU_ASSERT_EQUAL(policy->rules[1].ports_n, 0);
}

static void test_everything(void)
{
        _cleanup_(policy_unrefp) struct policy *p =
                load("version: 1\nisolation: wasm\nrequire_isolation: gvisor\n"
                     "network: allowlist_domain\negress_rules:\n"
                     "  - pattern: '*.example.org'\n"
                     "    action: allow\n    ports: [8443, 443]\n    protocol: tls\n"
                     "    http_methods: [GET, M-SEARCH]\n    http_paths: ['/a/*', /b]\n"
                     "    rate_bps: 1048576\n    quota_bytes: 0\n"
                     "    max_connections: 64\n    requests_per_s: 20\n"
                     "limits:\n  rate_bps: 100\n  burst_bytes: 7\n");
        const struct policy_rule *r = &p->rules[0];

        CU_ASSERT_EQUAL(p->isolation, CLASS_WASM);
        CU_ASSERT_EQUAL(p->require_isolation, TIER_GVISOR);
        CU_ASSERT_EQUAL(p->network, NETWORK_ALLOWLIST_DOMAIN);
        CU_ASSERT_EQUAL(r->ports_n, 2);
        CU_ASSERT_EQUAL(r->ports[0], 8443);
        CU_ASSERT_EQUAL(r->protocol, PROTOCOL_TLS);
        CU_ASSERT_EQUAL(r->methods_n, 2);
        CU_ASSERT_STRING_EQUAL(r->methods[1], "M-SEARCH");
        CU_ASSERT_EQUAL(r->paths_n, 2);
        CU_ASSERT_STRING_EQUAL(r->paths[0], "/a/*");
        CU_ASSERT_EQUAL(r->limits.rate_bps, 1048576);
        CU_ASSERT_EQUAL(r->limits.burst_bytes, 262144);
        CU_ASSERT_TRUE(r->limits.quota_set);
        CU_ASSERT_EQUAL(r->limits.quota_bytes, 0);
        CU_ASSERT_EQUAL(r->limits.max_connections, 64);
        CU_ASSERT_EQUAL(r->limits.requests_per_s, 20);
        CU_ASSERT_EQUAL(p->limits.burst_bytes, 7);
        CU_ASSERT_FALSE(p->limits.quota_set);
}

static void test_least_burst(void)
{
        _cleanup_(policy_unrefp) struct policy *p = load("limits: {rate_bps: 1000}\n");

        CU_ASSERT_EQUAL(p->limits.burst_bytes, 65536);
}

/* What an auditor computes with sha256sum. */
static void test_hash_is_of_the_bytes(void)
{
        static const uint8_t want[] = {0x72, 0xd1, 0xc7, 0xbb, 0x10, 0xdc, 0xd7, 0x12};
        _cleanup_(policy_unrefp) struct policy *a = load("network: none\n");
        _cleanup_(policy_unrefp) struct policy *b = load("network: none \n");

        CU_ASSERT_EQUAL(memcmp(a->sha256, want, sizeof(want)), 0);
        CU_ASSERT_NOT_EQUAL(memcmp(a->sha256, b->sha256, sizeof(a->sha256)), 0);
}

#define RULE "network: allowlist_domain\negress_rules:\n  - pattern: example.org\n    "

static const struct {
        const char *text;
        unsigned line, column;
        const char *say;
} bads[] = {
        {"\xef\xbb\xbfnetwrok: none\n", 1, 1, "network"},
        {"network: none\r\nlimits:\r\n  rate: 5\r\n", 3, 3, "rate"},
        {"kind: x\nmeta: {network: [1]}\nspec:\n  network: off\n", 4, 12, "public"},
        {"spec: {network: none, egress_rules: [{pattern: 'A.org'}]}\n", 1, 48, "a.org"},
        {"spec: ~\n", 1, 7, "spec"},
        {"'spec': {spec: {}}\n", 1, 10, "spec"},
        {"network: none\nlimits: {}\negress_rules: []\n", 3, 15, "empty"},
        {"egress_rules:\n", 1, 14, "list"},
        {"version: 1.0\n", 1, 10, "version"},
        {"version: '1'\n", 1, 10, "version"},
        {"isolation: Hostile\n", 1, 12, "hostile"},
        {"require_isolation: ~\n", 1, 20, "gvisor"},
        {RULE "ports: [443, 65536]\n", 4, 18, "65536"},
        {RULE "ports: [443, 0443]\n", 4, 18, "plain digits"},
        {RULE "ports: [0x1bb]\n", 4, 13, "plain digits"},
        {RULE "ports: [22:22]\n", 4, 13, "plain digits"},
        {RULE "ports: [~]\n", 4, 13, "null"},
        {RULE "ports: [443, ]\n    ports: [80]\n", 5, 5, "duplicate"},
        {RULE "protocol: TLS\n", 4, 15, "tls"},
        {RULE "action: yes\n", 4, 13, "allow or deny"},
        {RULE "http_methods: [GET, Post]\n", 4, 25, "write POST"},
        {RULE "http_methods: [GET, on]\n", 4, 25, "boolean"},
        {RULE "http_methods: ['*']\n", 4, 20, "any"},
        {RULE "http_methods: ['G\xc3\x89T', 'get']\n", 4, 20, "no method"},
        {RULE "http_paths: ['*']\n", 4, 18, "/*"},
        {RULE "http_paths: ['/a', '/b#c']\n", 4, 24, "fragment"},
        {RULE "http_paths: ['/\xc3\xa9', x]\n", 4, 18, "percent-encode"},
        {RULE "http_paths: ['/a b']\n", 4, 18, "percent-encode"},
        {RULE "protocol: tcp\n    http_paths: ['/a']\n", 4, 15, "tcp"},
        {RULE "rate_bps: 1099511627777\n", 4, 15, "1099511627776"},
        {RULE "burst_bytes: 0\n", 4, 18, "burst_bytes"},
        {RULE "quota_bytes: 1e9\n", 4, 18, "plain digits"},
        {RULE "max_connections: 4294967296\n", 4, 22, "max_connections"},
        {RULE "http_methods: &m [GET]\n  - pattern: b.org\n    http_methods: *m\n", 6, 19, "alias"},
        {RULE "<<: {ports: [1]}\n", 4, 5, "unknown key"},
        {"network: allowlist_domain\negress_rules:\n  - pattern: !!str example.org\n", 3, 14, "tags"},
        {"network: allowlist_domain\negress_rules:\n  - pattern: yes\n", 3, 14, "boolean"},
        {"network: allowlist_domain\negress_rules:\n  - pattern: |\n      example.org\n", 3, 14, "control"},
        {"network: allowlist_domain\negress_rules:\n  - {ports: [443], pattern: \"\xc3\xa9.org\"}\n", 3, 29,
                "xn--9ca.org"},
        {"network: allowlist_domain\negress_rules:\n  - {http_paths: [\"/\"], \"pattern\": 'A'}\n", 3, 36, "write a"},
        {"network: none\nnetwork\n", 3, 1, "expected"},
};

static void test_bad_policies_beyond(void)
{
        for (size_t i = 0; i < COUNT(bads); i++) {
                struct policy *policy = NULL;
                struct yaml_error e = {0};
                int r = policy_load("f", bads[i].text, strlen(bads[i].text), &policy, &e);

                CU_ASSERT_EQUAL(r, YAML_E_INVALID);
                if (r != YAML_E_INVALID || e.line != bads[i].line || e.column != bads[i].column ||
                        !strstr(e.message, bads[i].say)) {
                        printf("\n%s -> %u:%u: %s; expected %u:%u: %s", bads[i].text, e.line, e.column, e.message,
                                bads[i].line, bads[i].column, bads[i].say);
                        CU_FAIL("elsewhere or otherwise");
                }
                CU_ASSERT_PTR_NULL(policy);
                policy_unref(policy);
                yaml_error_done(&e);
        }
}

static void check_place(const struct policy_place *place, unsigned line, unsigned column)
{
        CU_ASSERT_EQUAL(place->line, line);
        CU_ASSERT_EQUAL(place->column, column);
}

static void test_places(void)
{
        static const char text[] = "spec:\n"
                                   "  network: public\n"
                                   "  limits: {quota_bytes: 5}\n"
                                   "  egress_rules:\n"
                                   "    - pattern: \"a.org\"\n"
                                   "      burst_bytes: 9\n"
                                   "    - {ports: [1], pattern: b.org}\n";
        struct policy *policy = NULL;
        struct yaml_error e = {0};

        CU_ASSERT_EQUAL_FATAL(policy_load("f", text, strlen(text), &policy, &e), 0);
        check_place(&policy->places[POLICY_NETWORK], 2, 12);
        check_place(&policy->places[POLICY_ISOLATION], 0, 0);
        check_place(&policy->limit_places[LIMIT_QUOTA], 3, 25);
        check_place(&policy->limit_places[LIMIT_RATE], 0, 0);
        CU_ASSERT_EQUAL(policy->rules[0].line, 5);
        CU_ASSERT_EQUAL(policy->rules[0].column, 7);
        check_place(&policy->rules[0].places[RULE_PATTERN], 5, 16);
        check_place(&policy->rules[0].places[RULE_LIMITS + LIMIT_BURST], 6, 20);
        check_place(&policy->rules[0].places[RULE_PORTS], 0, 0);
        check_place(&policy->rules[1].places[RULE_PORTS], 7, 15);
        check_place(&policy->rules[1].places[RULE_PATTERN], 7, 29);
        policy_unref(policy);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"bad policies of the contract", test_bad_policies_of_the_contract},
                {"bad policies beyond", test_bad_policies_beyond},
                {"defaults", test_defaults},
                {"everything", test_everything},
                {"least burst", test_least_burst},
                {"places", test_places},
                {"the hash is of the bytes", test_hash_is_of_the_bytes},
                CU_TEST_INFO_NULL,
        };

        return cases_run("policy_load", tests);
}
