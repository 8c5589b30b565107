/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/policy_lint.h"

#include "proto/base/cleanup.h"
#include "tests/support/random_policy.h"
#include "tests/support/suite.h"
#include "tools/wbctl/policy_diff.h"

DEFINE_CLEANUP(struct policy *, policy_unref);

#define RULES "network: allowlist_domain\negress_rules:\n"

/* What is found in a policy: "LINE:COLUMN code[!]" each, a note without the mark. */
static void describe(const char *text, char *to, size_t room)
{
        _cleanup_(policy_unrefp) struct policy *policy = random_load(text);
        struct lint l;
        size_t n = 0;

        CU_ASSERT_EQUAL_FATAL(policy_lint(policy, &l), 0);
        to[0] = '\0';
        for (size_t i = 0; i < l.n && n < room; i++) {
                const struct lint_finding *f = &l.findings[i];

                n += (size_t)snprintf(to + n, room - n, "%s%u:%u %s%s", i ? " " : "", f->place.line, f->place.column,
                        lint_code_name(f->code), f->is_note ? "" : "!");
                CU_ASSERT_TRUE(strlen(f->message) > 20 && strlen(f->message) < sizeof(f->message) - 1);
        }
        policy_lint_done(&l);
}

static const struct {
        const char *policy, *expect;
} rows[] = {
        {RULES "  - {pattern: a.org}\n", ""},
        {"network: none\n", ""},
        {"network: public\nisolation: hostile\n", ""},
        {RULES "  - {pattern: '**.a.org', ports: [443]}\n  - {pattern: x.a.org, ports: [443], quota_bytes: 9}\n", ""},
        {RULES "  - {pattern: '**.a.org'}\n  - {pattern: x.a.org, action: deny}\n", ""},
        /* network: none */
        {"network: none\negress_rules:\n  - {pattern: a.org}\n", "1:10 network_none!"},
        {"egress_rules:\n  - {pattern: a.org}\n", "2:3 network_none!"},
        /* without effect */
        {RULES "  - {pattern: a.org}\n  - {pattern: a.org, action: deny}\n", "3:15 never_decides!"},
        {RULES "  - {pattern: '**.a.org'}\n  - {pattern: x.a.org}\n", "4:15 no_effect!"},
        {RULES "  - {pattern: '**.a.org'}\n  - {pattern: x.a.org, ports: [443], protocol: tls}\n", "4:15 no_effect!"},
        {RULES "  - {pattern: a.org, action: deny}\n", "3:15 no_effect!"},
        {"network: public\nisolation: hostile\negress_rules:\n  - {pattern: a.org, protocol: tcp, ports: [22]}\n",
                "4:15 no_effect!"},
        {RULES "  - {pattern: 8.0.0.0/8}\n  - {pattern: 8.0.0.0/9}\n  - {pattern: 8.128.0.0/9}\n",
                "3:15 never_decides! 4:15 no_effect! 5:15 no_effect!"},
        /* twice */
        {RULES "  - {pattern: a.org}\n  - {pattern: a.org, ports: [443, 80]}\n", "4:15 duplicate!"},
        {RULES "  - {pattern: a.org, ports: [443, 443]}\n", "3:29 duplicate!"},
        {RULES "  - {pattern: a.org, protocol: http, http_methods: [GET, GET]}\n", "3:52 duplicate!"},
        {RULES "  - {pattern: a.org, protocol: http, http_paths: [\"/a/b\", \"/a/*\"]}\n", "3:50 duplicate!"},
        {RULES "  - {pattern: '*.a.org'}\n  - {pattern: a.org}\n", "4:15 split_wildcard!"},
        /* the floor */
        {RULES "  - {pattern: 10.1.0.0/16}\n", "3:15 in_floor!"},
        {RULES "  - {pattern: mirror.internal}\n", "3:15 in_floor!"},
        {RULES "  - {pattern: '*.home.arpa', action: deny}\n", "3:15 in_floor!"},
        /* TLS that nobody looks into */
        {RULES "  - {pattern: a.org}\n  - {pattern: a.org, http_methods: [GET]}\n", "4:36 opaque!"},
        {RULES "  - {pattern: '**.a.org'}\n  - {pattern: x.a.org, http_paths: ['/a']}\n", "4:36 opaque!"},
        {RULES "  - {pattern: a.org}\n  - {pattern: a.org, action: deny, http_methods: [PUT]}\n", "4:50 opaque!"},
        {RULES "  - {pattern: '**.a.org', http_methods: [GET]}\n  - {pattern: x.a.org, max_connections: 1}\n",
                "3:41 opaque"},
        {RULES "  - {pattern: a.org, ports: [443], http_methods: [GET]}\n", "3:50 needs_interception"},
        {RULES "  - {pattern: a.org, protocol: http, http_methods: [GET]}\n", ""},
        {RULES "  - {pattern: a.org, protocol: tls}\n  - {pattern: a.org, protocol: http, http_methods: [GET]}\n", ""},
        {"network: public\nisolation: hostile\negress_rules:\n  - {pattern: a.org, protocol: http, http_methods: [GET]}\n",
                "4:15 public_narrows"},
        /* protocol: tcp */
        {RULES "  - {pattern: a.org, protocol: tcp}\n", "3:32 tcp_on_web_port!"},
        {RULES "  - {pattern: a.org, protocol: tcp, ports: [22, 80]}\n", "3:32 tcp_on_web_port!"},
        {RULES "  - {pattern: a.org, protocol: tcp, ports: [22]}\n", ""},
        /* limits */
        {RULES "  - {pattern: a.org, burst_bytes: 100000}\n", "3:35 limit!"},
        {RULES "  - {pattern: a.org, rate_bps: 9000, burst_bytes: 1499}\n", "3:51 limit!"},
        {RULES "  - {pattern: a.org, rate_bps: 9000, burst_bytes: 9000, quota_bytes: 8999}\n", "3:51 limit!"},
        {RULES "  - {pattern: a.org, rate_bps: 9000, quota_bytes: 8999}\n", ""},
        {RULES "  - {pattern: a.org, quota_bytes: 0}\n", "3:35 limit!"},
        {"network: public\nisolation: hostile\nlimits:\n  burst_bytes: 5\n", "4:16 limit!"},
        {"limits: {rate_bps: 9, max_connections: 3}\n" RULES "  - {pattern: a.org, rate_bps: 10, max_connections: 4}\n",
                "4:32 limit! 4:53 limit!"},
        {RULES "  - {pattern: '**.a.org'}\n  - {pattern: x.a.org, action: deny, quota_bytes: 5}\n", "4:15 limit!"},
        /* wide */
        {RULES "  - {pattern: 8.0.0.0/7}\n", "3:15 wide!"},
        {RULES "  - {pattern: 8.0.0.0/8}\n", ""},
        {RULES "  - {pattern: '2000::/3'}\n", "3:15 wide!"},
        {RULES "  - {pattern: '*.amazonaws.com'}\n", "3:15 wide!"},
        {RULES "  - {pattern: '*.windows.net'}\n", "3:15 wide!"},
        {RULES "  - {pattern: '*.x.windows.net'}\n", ""},
        {RULES "  - {pattern: 'amazonaws.com'}\n", ""},
        {"isolation: trusted\nnetwork: public\n", "1:12 weak_wall!"},
        {"network: public\n", "1:10 weak_wall"},
        {"isolation: trusted\nrequire_isolation: microvm\nnetwork: public\n", ""},
        {"isolation: trusted\n" RULES "  - {pattern: 8.0.0.0/7}\n", "1:12 weak_wall! 4:15 wide!"},
};

static void test_findings(void)
{
        for (size_t i = 0; i < RANDOM_COUNT(rows); i++) {
                char found[1024];

                describe(rows[i].policy, found, sizeof(found));
                if (strcmp(found, rows[i].expect) != 0)
                        printf("\n%s-> %s, not %s\n", rows[i].policy, found, rows[i].expect);
                CU_ASSERT_STRING_EQUAL(found, rows[i].expect);
        }
}

/* The policy's text without its n-th rule, each of which is a line. */
static void without_rule(const struct random_text *t, size_t n, struct random_text *ret)
{
        size_t at = 0;

        ret->n = 0;
        for (const char *line = t->bytes; *line; line = strchr(line, '\n') + 1) {
                size_t bytes = (size_t)(strchr(line, '\n') + 1 - line);

                if (strncmp(line, "  - ", 4) == 0 && at++ == n)
                        continue;
                random_add(ret, "%.*s", (int)bytes, line);
        }
        if (at == 1) /* an empty list is none */
                *strstr(ret->bytes, "egress_rules") = '\0';
}

static bool has_code(const struct lint *l, int rule, enum lint_code code)
{
        for (size_t i = 0; i < l->n; i++)
                if ((rule < 0 || l->findings[i].rule == rule) && l->findings[i].code == code && !l->findings[i].is_note)
                        return true;
        return false;
}

/* What is said to have no effect has none; what is not said to have none has one, if nothing else is said of it. */
static void test_no_effect_is_none(void)
{
        static struct random_text t, fewer;
        static const struct floor floor;
        unsigned seed = 815;
        size_t none = 0, some = 0;

        for (int round = 0; round < 800; round++) {
                struct lint l;

                random_policy(&t, &seed);
                _cleanup_(policy_unrefp) struct policy *policy = random_load(t.bytes);
                CU_ASSERT_EQUAL_FATAL(policy_lint(policy, &l), 0);
                for (size_t i = 0; i < policy->rules_n && policy->network != NETWORK_NONE; i++) {
                        bool never = has_code(&l, (int)i, LINT_NEVER_DECIDES),
                             no_effect = has_code(&l, (int)i, LINT_NO_EFFECT);
                        struct policy_diff d;

                        if (!never && !no_effect &&
                                (has_code(&l, (int)i, LINT_IN_FLOOR) || has_code(&l, (int)i, LINT_OPAQUE) ||
                                        has_code(&l, -1, LINT_DUPLICATE)))
                                continue;
                        without_rule(&t, i, &fewer);
                        _cleanup_(policy_unrefp) struct policy *other = random_load(fewer.bytes);
                        CU_ASSERT_EQUAL_FATAL(policy_diff(policy, other, &d), 0);
                        if ((never || no_effect) != (d.differences_n == 0 && d.limits_n == 0)) {
                                printf("\n%s: rule %zu: %d %d, %zu differences", t.bytes, i, never, no_effect,
                                        d.differences_n);
                                CU_FAIL_FATAL("an effect that is none, or none that is");
                        }
                        none += never || no_effect;
                        some += !never && !no_effect;
                        for (int k = 0; k < 100 && never; k++) {
                                struct request request;
                                struct decision decision;

                                random_request(&seed, &request);
                                policy_decide(policy, &floor, &request, false, &decision);
                                CU_ASSERT_NOT_EQUAL(decision.rule, (int)i);
                        }
                        policy_diff_done(&d);
                }
                policy_lint_done(&l);
        }
        printf(" (%zu without effect, %zu with) ", none, some);
        CU_ASSERT_TRUE(none > 100 && some > 100);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"findings", test_findings},
                {"no effect is none", test_no_effect_is_none},
                CU_TEST_INFO_NULL,
        };

        return suite_run("policy_lint", tests);
}
