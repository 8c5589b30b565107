/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/limits.h"

#include <string.h>

#include "proto/base/clock.h"
#include "tests/support/suite.h"

static void set_pattern(struct policy_rule *rule, const char *name)
{
        rule->pattern.kind = PATTERN_EXACT;
        rule->pattern.name_n = (uint8_t)strlen(name);
        memcpy(rule->pattern.name, name, strlen(name) + 1);
}

static void test_connections_of_rule_and_vm(void)
{
        struct policy_rule rules[2] = {{.limits = {.max_connections = 1}}};
        struct policy policy = {.rules = rules, .rules_n = 2, .limits.max_connections = 2};
        struct limits l;

        CU_ASSERT_EQUAL_FATAL(limits_init(&l, &policy, 0), 0);
        CU_ASSERT_EQUAL(limits_enter(&l, 0), REASON_ALLOWED);
        CU_ASSERT_EQUAL(limits_enter(&l, 0), REASON_CONNECTION_LIMIT);
        CU_ASSERT_EQUAL(limits_enter(&l, 1), REASON_ALLOWED);
        CU_ASSERT_EQUAL(limits_enter(&l, DECISION_NO_RULE), REASON_CONNECTION_LIMIT);
        limits_leave(&l, 0);
        CU_ASSERT_EQUAL(limits_enter(&l, DECISION_NO_RULE), REASON_ALLOWED);
        limits_leave(&l, DECISION_NO_RULE);
        limits_leave(&l, 1);
        CU_ASSERT_EQUAL(l.vm.connections, 0);
        limits_done(&l);
}

static void test_requests(void)
{
        struct policy_rule rules[1] = {{.limits = {.requests_per_s = 2}}};
        struct policy policy = {.rules = rules, .rules_n = 1};
        struct limits l;
        uint64_t wait_ns = 0;

        CU_ASSERT_EQUAL_FATAL(limits_init(&l, &policy, 0), 0);
        CU_ASSERT_EQUAL(limits_request(&l, 0, 0, &wait_ns), REASON_ALLOWED);
        CU_ASSERT_EQUAL(limits_request(&l, 0, 0, &wait_ns), REASON_ALLOWED);
        CU_ASSERT_EQUAL(limits_request(&l, 0, 0, &wait_ns), REASON_RATE_LIMITED);
        CU_ASSERT_EQUAL(wait_ns, NSEC_PER_SEC / 2);
        CU_ASSERT_EQUAL(limits_request(&l, DECISION_NO_RULE, 0, &wait_ns), REASON_ALLOWED);
        CU_ASSERT_EQUAL(limits_request(&l, 0, wait_ns, &wait_ns), REASON_ALLOWED);
        limits_done(&l);
}

/* 10 s of two greedy connections: exact within 5 %, never beyond the burst. */
static void test_rate_is_shared_and_exact(void)
{
        struct policy_rule rules[1] = {{.limits = {.rate_bps = 100000, .burst_bytes = 65536}}};
        struct policy policy = {.rules = rules, .rules_n = 1};
        struct limits l;
        uint64_t passed = 0, wait_ns = 0;
        size_t n;

        CU_ASSERT_EQUAL_FATAL(limits_init(&l, &policy, 0), 0);
        for (uint64_t now_ns = 0; now_ns < 10 * NSEC_PER_SEC; now_ns += NSEC_PER_MSEC)
                for (unsigned connection = 0; connection < 2; connection++)
                        if (limits_grant(&l, 0, LIMITS_DOWN, NULL, 16384, now_ns, &n, &wait_ns) == 0) {
                                limits_spend(&l, 0, LIMITS_DOWN, n);
                                passed += n;
                                CU_ASSERT(passed <= 65536 + now_ns / 10000 + 1);
                        }
        CU_ASSERT(passed >= 65536 + 950000 && passed <= 65536 + 1000000);
        CU_ASSERT_EQUAL(limits_grant(&l, 0, LIMITS_UP, NULL, 16384, 10 * NSEC_PER_SEC, &n, &wait_ns), 0);
        CU_ASSERT_EQUAL(n, 16384);
        limits_done(&l);
}

/* Forty connections that always want more, asking when they are told to: each gets its share, and none more at once. */
static void test_turns(void)
{
        enum { N = 40 };
        struct policy_rule rules[1] = {{.limits = {.rate_bps = 200000, .burst_bytes = 4000}}};
        struct policy policy = {.rules = rules, .rules_n = 1};
        struct limits_waiter waiters[N + 1] = {0};
        uint64_t due_ns[N] = {0}, got[N] = {0}, wait_ns, total = 0;
        struct limits l;
        size_t n;

        CU_ASSERT_EQUAL_FATAL(limits_init(&l, &policy, 0), 0);
        while (limits_grant(&l, 0, LIMITS_DOWN, &waiters[N], 65536, 0, &n, &wait_ns) == 0)
                limits_spend(&l, 0, LIMITS_DOWN, n);
        CU_ASSERT_PTR_NOT_NULL(waiters[N].queue); /* and never asks again: that holds nobody up for long */
        for (uint64_t now_ns = 0; now_ns < 20 * NSEC_PER_SEC; now_ns += NSEC_PER_MSEC)
                for (unsigned i = 0; i < N; i++) {
                        if (now_ns < due_ns[i])
                                continue;
                        if (limits_grant(&l, 0, LIMITS_DOWN, &waiters[i], 65536, now_ns, &n, &wait_ns)) {
                                CU_ASSERT(wait_ns > 0);
                                due_ns[i] = now_ns + wait_ns;
                                continue;
                        }
                        limits_spend(&l, 0, LIMITS_DOWN, n);
                        got[i] += n;
                        total += n;
                        i--; /* it wants more at once */
                }
        CU_ASSERT(total > 200000 * 20 * 95 / 100 && total < 200000 * 20 + 4000);
        for (unsigned i = 0; i < N; i++) {
                CU_ASSERT(got[i] > total / N * 9 / 10 && got[i] < total / N * 11 / 10);
                limits_forget(&waiters[i]);
        }
        limits_forget(&waiters[N]);
        limits_done(&l);
}

static void test_quota_counts_both_directions(void)
{
        struct policy_rule rules[1] = {{.limits = {.quota_bytes = 100}}};
        struct policy policy = {.rules = rules, .rules_n = 1};
        struct limits l;
        uint64_t wait_ns = 0;
        size_t n = 0;

        CU_ASSERT_EQUAL_FATAL(limits_init(&l, &policy, 0), 0);
        CU_ASSERT_EQUAL(limits_enter(&l, 0), REASON_ALLOWED);
        CU_ASSERT_EQUAL(limits_grant(&l, 0, LIMITS_UP, NULL, 60, 0, &n, &wait_ns), 0);
        limits_spend(&l, 0, LIMITS_UP, 60);
        CU_ASSERT_EQUAL(limits_grant(&l, 0, LIMITS_DOWN, NULL, 60, 0, &n, &wait_ns), 0);
        CU_ASSERT_EQUAL(n, 40);
        limits_spend(&l, 0, LIMITS_DOWN, 40);
        CU_ASSERT_EQUAL(limits_grant(&l, 0, LIMITS_DOWN, NULL, 60, 0, &n, &wait_ns), LIMITS_E_QUOTA);
        CU_ASSERT_EQUAL(limits_enter(&l, 0), REASON_QUOTA_EXCEEDED);
        CU_ASSERT_EQUAL(limits_enter(&l, DECISION_NO_RULE), REASON_ALLOWED);
        limits_done(&l);
}

static void test_quota_of_nothing(void)
{
        struct policy policy = {.limits.quota_set = true};
        struct limits l;

        CU_ASSERT_EQUAL_FATAL(limits_init(&l, &policy, 0), 0);
        CU_ASSERT_EQUAL(limits_enter(&l, DECISION_NO_RULE), REASON_QUOTA_EXCEEDED);
        limits_done(&l);
}

/* What was used stays used when the policy is edited, also when rules change their places. */
static void test_replacing_keeps_what_was_used(void)
{
        struct policy_rule before[2] = {{.limits = {.quota_bytes = 100}}, {.limits = {.quota_bytes = 50}}};
        struct policy_rule after[2] = {{.line = 1}};
        struct policy old = {.rules = before, .rules_n = 2}, new = {.rules = after, .rules_n = 2};
        struct limits l;

        set_pattern(&before[0], "a.example.org");
        set_pattern(&before[1], "b.example.org");
        set_pattern(&after[0], "c.example.org");
        set_pattern(&after[1], "a.example.org");
        after[0].limits.quota_bytes = after[1].limits.quota_bytes = 100;
        CU_ASSERT_EQUAL_FATAL(limits_init(&l, &old, 0), 0);
        CU_ASSERT_EQUAL(limits_enter(&l, 0), REASON_ALLOWED);
        limits_spend(&l, 0, LIMITS_UP, 100);
        limits_leave(&l, 0);
        CU_ASSERT_EQUAL(limits_replace(&l, &old, &new, 0), 0);
        CU_ASSERT_EQUAL(limits_enter(&l, 1), REASON_QUOTA_EXCEEDED);
        CU_ASSERT_EQUAL(limits_enter(&l, 0), REASON_ALLOWED);
        CU_ASSERT_EQUAL(l.vm.quota_used_bytes, 100);
        limits_done(&l);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"connections of the rule and of the VM", test_connections_of_rule_and_vm},
                {"requests a second", test_requests},
                {"a rate is shared and exact", test_rate_is_shared_and_exact},
                {"those who wait take turns", test_turns},
                {"a quota counts both directions", test_quota_counts_both_directions},
                {"a quota of nothing", test_quota_of_nothing},
                {"a new policy keeps what was used", test_replacing_keeps_what_was_used},
                CU_TEST_INFO_NULL,
        };

        return suite_run("limits", tests);
}
