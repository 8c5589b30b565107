/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/audit_again.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/policy_load.h"
#include "proto/base/clock.h"
#include "tests/support/suite.h"
#include "tools/wbctl/audit_filter.h"
#include "tools/wbctl/audit_tally.h"
#include "tools/wbctl/html.h"

#define HEAD "{\"seq\":1,\"ts\":\"2026-01-02T03:04:05.678901Z\",\"vm\":\"v\","

static const char policy_text[] = "network: allowlist_domain\n"
                                  "egress_rules:\n"
                                  "  - {pattern: \"*.example.org\"}\n"
                                  "  - {pattern: bad.example.org, action: deny}\n"
                                  "  - {pattern: api.example.com, http_methods: [GET]}\n"
                                  "  - {pattern: tcp.example.com, ports: [22], protocol: tcp}\n"
                                  "  - {pattern: mirror.internal}\n"
                                  "  - {pattern: 1.1.1.0/24}\n";

struct again_case {
        const char *members;
        enum again want;
        enum reason reason; /* REASON_MAX_: none is answered */
};

#define OPEN         "\"event\":\"egress_open\",\"decision\":\"allow\",\"reason\":\"allowed\",\"via\":\"connect\","
#define DENY(reason) "\"event\":\"egress_deny\",\"decision\":\"deny\",\"reason\":\"" reason "\",\"via\":\"connect\","

static const struct again_case cases[] = {
        {OPEN "\"host\":\"a.example.org\",\"port\":443", AGAIN_SAME, REASON_ALLOWED},
        {OPEN "\"host\":\"a.example.net\",\"port\":443", AGAIN_DENIED, REASON_NO_RULE},
        {OPEN "\"host\":\"bad.example.org\",\"port\":443", AGAIN_DENIED, REASON_DENY_RULE},
        {OPEN "\"host\":\"a.example.org\",\"port\":8443", AGAIN_DENIED, REASON_PORT_NOT_ALLOWED},
        {OPEN "\"host\":\"1.1.1.1\",\"port\":443", AGAIN_SAME, REASON_ALLOWED},
        {OPEN "\"host\":\"2606:4700::1111\",\"port\":443", AGAIN_DENIED, REASON_IP_LITERAL},
        /* Every request in it would be judged, and none is told of. */
        {OPEN "\"host\":\"api.example.com\",\"port\":443", AGAIN_INSIDE, REASON_ALLOWED},
        {"\"event\":\"request\",\"decision\":\"allow\",\"reason\":\"allowed\",\"via\":\"http\",\"host\":\"api.example.com\",\"port\":80,"
         "\"method\":\"POST\",\"path\":\"/\"",
                AGAIN_DENIED, REASON_METHOD_NOT_ALLOWED},
        {"\"event\":\"request\",\"decision\":\"allow\",\"reason\":\"allowed\",\"via\":\"inspect\",\"host\":\"api.example.com\",\"port\":443,"
         "\"method\":\"GET\",\"path\":\"/\"",
                AGAIN_SAME, REASON_ALLOWED},
        /* An operator's service: it was allowed though the floor is against its name, or its address. */
        {OPEN "\"host\":\"mirror.internal\",\"port\":443", AGAIN_SAME, REASON_ALLOWED},
        {OPEN "\"host\":\"a.example.org\",\"port\":443,\"addr\":\"10.0.0.5\"", AGAIN_SAME, REASON_ALLOWED},
        {OPEN "\"host\":\"other.internal\",\"port\":443", AGAIN_DENIED, REASON_NO_RULE},

        {DENY("no_rule") "\"host\":\"a.example.org\",\"port\":443", AGAIN_ALLOWED, REASON_ALLOWED},
        {DENY("no_rule") "\"host\":\"a.example.net\",\"port\":443", AGAIN_SAME, REASON_NO_RULE},
        {DENY("network_none") "\"host\":\"a.example.net\",\"port\":443", AGAIN_SAME, REASON_NO_RULE},
        {DENY("floor_address") "\"host\":\"a.example.org\",\"port\":443", AGAIN_SAME, REASON_ALLOWED},
        {DENY("floor_name") "\"host\":\"mirror.internal\",\"port\":443", AGAIN_SAME, REASON_FLOOR_NAME},
        {DENY("protocol_not_allowed") "\"host\":\"a.example.org\",\"port\":443", AGAIN_INSIDE, REASON_ALLOWED},
        {DENY("protocol_not_allowed") "\"host\":\"a.example.net\",\"port\":443", AGAIN_SAME, REASON_NO_RULE},
        {DENY("inspection_required") "\"host\":\"api.example.com\",\"port\":443", AGAIN_INSIDE, REASON_ALLOWED},
        {"\"event\":\"egress_deny\",\"decision\":\"deny\",\"reason\":\"protocol_not_allowed\",\"via\":\"http\","
         "\"host\":\"a.example.org\",\"port\":80,\"method\":\"GET\",\"path\":\"/\"",
                AGAIN_ALLOWED, REASON_ALLOWED},
        {DENY("rate_limited") "\"host\":\"a.example.org\",\"port\":443", AGAIN_OUT_OF_REACH, REASON_MAX_},
        {DENY("upstream_refused") "\"host\":\"a.example.org\",\"port\":443", AGAIN_OUT_OF_REACH, REASON_MAX_},
        {DENY("dns_failure") "\"host\":\"a.example.org\",\"port\":443", AGAIN_OUT_OF_REACH, REASON_MAX_},
        {DENY("malformed_request") "\"port\":443", AGAIN_OUT_OF_REACH, REASON_MAX_},
        {DENY("no_rule") "\"host\":\"a b\",\"port\":443", AGAIN_OUT_OF_REACH, REASON_MAX_},
        {DENY("no_rule") "\"host\":\"a.example.org\"", AGAIN_OUT_OF_REACH, REASON_MAX_},

        {"\"event\":\"dns\",\"decision\":\"deny\",\"reason\":\"no_rule\",\"via\":\"dns\",\"host\":\"a.example.org\"",
                AGAIN_ALLOWED, REASON_ALLOWED},
        {"\"event\":\"dns\",\"decision\":\"allow\",\"reason\":\"allowed\",\"via\":\"dns\",\"host\":\"tcp.example.com\"",
                AGAIN_SAME, REASON_ALLOWED},
        {"\"event\":\"dns\",\"decision\":\"allow\",\"reason\":\"allowed\",\"via\":\"dns\",\"host\":\"api.example.com\"",
                AGAIN_SAME, REASON_ALLOWED},

        {"\"event\":\"egress_close\",\"host\":\"a.example.org\",\"port\":443", AGAIN_OTHER, REASON_MAX_},
        {"\"event\":\"vm_add\",\"decision\":\"allow\",\"reason\":\"allowed\"", AGAIN_OTHER, REASON_MAX_},
};

static void test_again(void)
{
        struct policy *policy = NULL;
        struct yaml_error error = {0};

        CU_ASSERT_EQUAL_FATAL(policy_load("p", policy_text, strlen(policy_text), &policy, &error), 0);
        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
                struct audit_line line;
                enum reason reason;
                enum again again;
                char text[1024];
                int n = snprintf(text, sizeof(text), HEAD "%s}", cases[i].members);

                CU_ASSERT_EQUAL_FATAL(audit_line_parse(text, (size_t)n, &line), 0);
                again = audit_again(policy, &line, &reason);
                if (again != cases[i].want || reason != cases[i].reason)
                        fprintf(stderr, "%s: %d, reason %d\n", cases[i].members, (int)again, (int)reason);
                CU_ASSERT_EQUAL(again, cases[i].want);
                CU_ASSERT_EQUAL(reason, cases[i].reason);
                audit_line_done(&line);
        }
        policy_unref(policy);
}

/* ---- the filter */

static bool passes(struct audit_filter *f, const char *members)
{
        char error[AUDIT_FILTER_ERROR_BYTES], text[1024];
        struct audit_line line;
        int n = snprintf(text, sizeof(text), HEAD "%s}", members);
        bool is;

        CU_ASSERT_EQUAL_FATAL(audit_filter_prepare(f, UINT64_C(1767323045) * NSEC_PER_SEC, error), 0);
        CU_ASSERT_EQUAL_FATAL(audit_line_parse(text, (size_t)n, &line), 0);
        is = audit_filter_passes(f, &line);
        audit_line_done(&line);
        return is;
}
#define PASSES(members, ...) passes(&(struct audit_filter){__VA_ARGS__}, members)

static void test_filter(void)
{
        static const char deny[] = DENY("no_rule") "\"host\":\"a.example.com\",\"port\":443";
        static const char *names[] = {"w", "v"};

        CU_ASSERT_TRUE(PASSES(deny, 0));
        CU_ASSERT_TRUE(PASSES(deny, .vms = {.items = names, .n = 2}));
        CU_ASSERT_FALSE(PASSES(deny, .vms = {.items = names, .n = 1}));
        CU_ASSERT_TRUE(PASSES(deny, .event = "egress_deny", .decision = "deny", .reason = "no_rule"));
        CU_ASSERT_FALSE(PASSES(deny, .event = "egress_open"));
        CU_ASSERT_FALSE(PASSES(deny, .decision = "allow"));
        CU_ASSERT_FALSE(PASSES(deny, .reason = "ip_literal"));
        CU_ASSERT_FALSE(PASSES("\"event\":\"start\"", .decision = "allow"));
        CU_ASSERT_FALSE(PASSES("\"event\":\"start\"", .reason = "allowed"));
        CU_ASSERT_FALSE(PASSES("\"event\":\"start\"", .host = "a.example.com"));
        CU_ASSERT_TRUE(PASSES(deny, .host = "A.Example.COM."));
        CU_ASSERT_TRUE(PASSES(deny, .host = "*.example.com"));
        CU_ASSERT_TRUE(PASSES(deny, .host = "*.com"));
        CU_ASSERT_TRUE(PASSES(deny, .host = "**.a.example.com"));
        CU_ASSERT_FALSE(PASSES(deny, .host = "*.a.example.com"));
        CU_ASSERT_FALSE(PASSES(deny, .host = "example.com"));
        CU_ASSERT_FALSE(PASSES(deny, .host = "0.0.0.0/0"));
        CU_ASSERT_TRUE(PASSES(DENY("ip_literal") "\"host\":\"10.1.2.3\",\"port\":1", .host = "10.0.0.0/8"));
        CU_ASSERT_TRUE(PASSES(DENY("ip_literal") "\"host\":\"2001:db8::1\",\"port\":1", .host = "2001:db8::1"));
        CU_ASSERT_TRUE(PASSES(deny, .since = "2026-01-02"));
        CU_ASSERT_TRUE(PASSES(deny, .since = "2026-01-02T03:04:05.678901Z"));
        CU_ASSERT_FALSE(PASSES(deny, .since = "2026-01-02T03:04:05.678902"));
        CU_ASSERT_FALSE(PASSES(deny, .since = "2026-01-02T03:05"));
        CU_ASSERT_FALSE(PASSES(deny, .until = "2026-01-02T03:04:05.678901Z"));
        CU_ASSERT_TRUE(PASSES(deny, .until = "2026-01-03"));
        CU_ASSERT_TRUE(PASSES(deny, .since = "1h"));
        CU_ASSERT_FALSE(PASSES(deny, .until = "1s"));
}

static void test_filter_refuses(void)
{
        static const struct audit_filter bad[] = {{.event = "nope"}, {.event = ""}, {.decision = "maybe"},
                {.reason = "x"}, {.host = ""}, {.host = "a b"}, {.host = "*"}, {.host = "*.*.a"}, {.host = "*.1.2.3.4"},
                {.host = "10.0.0.1/8"}, {.since = ""}, {.since = "yesterday"}, {.since = "2026-02-30"},
                {.since = "2026-01-02T03"}, {.since = "2026-01-02T03:04:05."}, {.until = "2026-01-02T03:04:05+01:00"},
                {.until = "-1h"}, {.until = "2026-01-02Zx"}};

        for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
                struct audit_filter f = bad[i];
                char error[AUDIT_FILTER_ERROR_BYTES] = "";

                CU_ASSERT_EQUAL(audit_filter_prepare(&f, NSEC_PER_SEC, error), -22);
                CU_ASSERT_TRUE(*error);
        }
}

/* ---- the report's parts */

static void test_html(void)
{
        char *text = NULL;
        size_t n;
        FILE *f = open_memstream(&text, &n);

        html_text(f, "a<script>\"'`&\n\x1b\x7f\xe2\x80\xae\xff.");
        (void)fclose(f);
        CU_ASSERT_STRING_EQUAL(text, "a&#60;script&#62;&#34;&#39;&#96;&#38;\\x0a\\x1b\\x7f\\xe2\\x80\\xae\\xff.");
        free(text);
}

static void test_tally(void)
{
        struct tally t = {.most = 2};

        tally_row(&t, "a")->n[0]++;
        tally_row(&t, "b")->n[0] += 2;
        tally_row(&t, "c")->n[0] += 3;
        tally_row(&t, "d")->n[0] += 4;
        tally_row(&t, "a")->n[1]++;
        CU_ASSERT_EQUAL(t.rows_n, 2);
        CU_ASSERT_EQUAL(t.others.n[0], 7);
        CU_ASSERT_EQUAL(t.others_n, 2);
        tally_sort(&t, 1);
        CU_ASSERT_STRING_EQUAL(t.rows[0].name, "b");
        tally_sort(&t, 2);
        CU_ASSERT_STRING_EQUAL(t.rows[0].name, "a"); /* as many, and the first by name */
        tally_done(&t);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"decisions made again", test_again},
                {"filter", test_filter},
                {"filter: what it refuses", test_filter_refuses},
                {"html", test_html},
                {"tally", test_tally},
                CU_TEST_INFO_NULL,
        };

        return suite_run("audit_again", tests);
}
