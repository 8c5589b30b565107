/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/policy_diff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/cleanup.h"
#include "tests/support/random_policy.h"
#include "tests/support/suite.h"

DEFINE_CLEANUP(struct policy *, policy_unref);

/* ---- random policies and requests */

/* The second is the first with a rule more, or with a word changed, or another altogether. */
static void make_pair(struct random_text *a, struct random_text *b, unsigned *seed)
{
        random_policy(a, seed);
        if (random_often(seed, 4)) {
                random_policy(b, seed);
                return;
        }
        *b = *a;
        if (strstr(a->bytes, "egress_rules") && random_often(seed, 7))
                random_rule(b, seed);
}

static bool decides_alike(
        const struct policy *a, const struct policy *b, const struct request *request, bool is_service)
{
        static const struct floor floor;
        struct decision da, db;

        policy_decide(a, &floor, request, is_service, &da);
        policy_decide(b, &floor, request, is_service, &db);
        return (da.reason == REASON_ALLOWED) == (db.reason == REASON_ALLOWED) && da.inspect == db.inspect;
}

/* Each difference is one, on the whole policies, for each of its ports and protocols. */
static bool is_real(const struct policy *a, const struct policy *b, const struct policy_difference *d)
{
        static const struct floor floor;

        for (int p = 0; p < PROTOCOL_MAX_; p++)
                for (size_t i = 0; i < d->ports_n; i++) {
                        struct request request = {.protocol = (enum protocol)p,
                                .host = d->host,
                                .port = d->ports[i],
                                .method = d->method,
                                .path = d->path};
                        struct decision da, db;
                        bool a_allows, b_allows, is;

                        if (!(d->protocols & PROTOCOL_BIT(p)))
                                continue;
                        policy_decide(a, &floor, &request, d->in_floor, &da);
                        policy_decide(b, &floor, &request, d->in_floor, &db);
                        a_allows = da.reason == REASON_ALLOWED;
                        b_allows = db.reason == REASON_ALLOWED;
                        is = d->change == CHANGE_ALLOWS       ? !a_allows && b_allows
                             : d->change == CHANGE_DENIES     ? a_allows && !b_allows
                             : d->change == CHANGE_INTERCEPTS ? a_allows && b_allows && db.inspect && !da.inspect
                                                              : a_allows && b_allows && da.inspect && !db.inspect;
                        if (!is || (d->has_pattern && !pattern_matches(&d->pattern, &d->host)))
                                return false;
                }
        return d->protocols != 0 && d->ports_n > 0;
}

/* Is anything told of the request's host and port? A DNS question may be told by its ports. */
static bool is_told(const struct policy_diff *d, const struct request *request)
{
        for (size_t i = 0; i < d->differences_n; i++) {
                const struct policy_difference *one = &d->differences[i];
                bool has_port = one->any_port || !request->port;

                for (size_t k = 0; k < one->ports_n; k++)
                        has_port = has_port || one->ports[k] == request->port;
                if (has_port && (one->has_pattern ? pattern_matches(&one->pattern, &request->host)
                                                  : one->host.kind == request->host.kind))
                        return true;
        }
        return false;
}

/*
 * The promise: what differs for any request is not called the same, and what is told differs. More: it is told of
 * that host and port.
 */
static void test_random_pairs(void)
{
        static struct random_text ta, tb;
        unsigned seed = 4711;
        size_t same = 0, different = 0, found = 0;

        for (int round = 0; round < 500; round++) {
                struct policy_diff d;
                bool is_same;

                make_pair(&ta, &tb, &seed);
                _cleanup_(policy_unrefp) struct policy *a = random_load(ta.bytes);
                _cleanup_(policy_unrefp) struct policy *b = random_load(tb.bytes);
                CU_ASSERT_EQUAL_FATAL(policy_diff(a, b, &d), 0);
                CU_ASSERT_TRUE(d.complete);
                is_same = policy_diff_is_same(&d);
                same += is_same;
                different += !is_same;
                for (size_t i = 0; i < d.differences_n; i++)
                        if (!is_real(a, b, &d.differences[i])) {
                                printf("\n%s\n%s\n%s is not different", ta.bytes, tb.bytes, d.differences[i].host.text);
                                CU_FAIL_FATAL("a difference that is none");
                        }
                for (int i = 0; i < 300; i++) {
                        struct request request;

                        random_request(&seed, &request);
                        if (decides_alike(a, b, &request, false) &&
                                (request.host.kind != HOST_NAME || decides_alike(a, b, &request, true)))
                                continue;
                        found++;
                        if (!is_told(&d, &request)) {
                                printf("\n%s\n%s\n%s:%u %s %s %s", ta.bytes, tb.bytes, request.host.text, request.port,
                                        protocol_name(request.protocol), request.method ? request.method : "-",
                                        request.path ? request.path : "-");
                                CU_FAIL_FATAL("a difference that was not found");
                        }
                }
                policy_diff_done(&d);
        }
        printf(" (%zu same, %zu different, %zu requests differed) ", same, different, found);
        CU_ASSERT_TRUE(same > 100 && different > 200 && found > 10000);
}

/* ---- by hand */

#define RULES "network: allowlist_domain\negress_rules:\n"

static void compare(const char *a_text, const char *b_text, struct policy_diff *ret)
{
        _cleanup_(policy_unrefp) struct policy *a = random_load(a_text);
        _cleanup_(policy_unrefp) struct policy *b = random_load(b_text);

        CU_ASSERT_EQUAL_FATAL(policy_diff(a, b, ret), 0);
}

/* Written differently, and the same. */
static void test_the_same(void)
{
        static const char *const pairs[][2] = {
                {RULES "  - {pattern: a.org}\n", RULES "  - {pattern: a.org, ports: [443, 80, 80], protocol: auto}\n"},
                {RULES "  - {pattern: a.org}\n  - {pattern: b.org}\n",
                        RULES "  - {pattern: b.org}\n  - {pattern: a.org}\n"},
                {RULES "  - {pattern: '**.a.org'}\n", RULES "  - {pattern: '*.a.org'}\n  - {pattern: a.org}\n"},
                {RULES "  - {pattern: '**.a.org'}\n",
                        RULES "  - {pattern: '**.a.org'}\n  - {pattern: x.a.org, http_methods: [GET]}\n"},
                {"network: none\n", RULES "  - {pattern: 10.0.0.0/8}\n"},
                {"network: none\n", RULES "  - {pattern: a.org}\n  - {pattern: '**.a.org', action: deny}\n"},
                {RULES "  - {pattern: 8.0.0.0/7}\n", RULES "  - {pattern: 8.0.0.0/8}\n  - {pattern: 9.0.0.0/8}\n"},
                {RULES "  - {pattern: a.org, http_paths: ['/a*', '/ab']}\n",
                        RULES "  - {pattern: a.org, http_paths: ['/a*']}\n"},
                {"network: public\n", "network: public\negress_rules:\n  - {pattern: 10.1.0.0/16, action: deny}\n"},
        };

        for (size_t i = 0; i < RANDOM_COUNT(pairs); i++) {
                struct policy_diff d;

                compare(pairs[i][0], pairs[i][1], &d);
                if (!policy_diff_is_same(&d))
                        printf("\n%s\n%s: %zu, %zu limits", pairs[i][0], pairs[i][1], d.differences_n, d.limits_n);
                CU_ASSERT_TRUE(policy_diff_is_same(&d));
                policy_diff_done(&d);
        }
}

static void test_one_line_each(void)
{
        static const struct {
                const char *a, *b;
                enum policy_change change;
                const char *host, *method, *path_pattern;
                uint16_t port;
                unsigned protocols;
        } rows[] = {
                {"network: none\n", RULES "  - {pattern: a.org, ports: [443], protocol: tls}\n", CHANGE_ALLOWS, "a.org",
                        NULL, NULL, 443, PROTOCOL_BIT(PROTOCOL_TLS)},
                {RULES "  - {pattern: a.org, ports: [22], protocol: tcp}\n", "network: none\n", CHANGE_DENIES, "a.org",
                        NULL, NULL, 22,
                        PROTOCOL_BIT(PROTOCOL_TLS) | PROTOCOL_BIT(PROTOCOL_HTTP) | PROTOCOL_BIT(PROTOCOL_TCP)},
                {RULES "  - {pattern: a.org, http_methods: [GET]}\n",
                        RULES "  - {pattern: a.org, http_methods: [GET, PUT]}\n", CHANGE_ALLOWS, "a.org", "PUT", NULL,
                        80, PROTOCOL_BIT(PROTOCOL_TLS) | PROTOCOL_BIT(PROTOCOL_HTTP)},
                {RULES "  - {pattern: a.org, http_paths: ['/a/*'], ports: [80]}\n",
                        RULES "  - {pattern: a.org, http_paths: ['/a/*', '/b/*'], ports: [80]}\n", CHANGE_ALLOWS,
                        "a.org", NULL, "/b/*", 80, PROTOCOL_BIT(PROTOCOL_TLS) | PROTOCOL_BIT(PROTOCOL_HTTP)},
                {RULES "  - {pattern: '*.a.org', ports: [443]}\n  - {pattern: any.a.org, ports: [443]}\n",
                        RULES "  - {pattern: any.a.org, ports: [443]}\n", CHANGE_DENIES, "a.a.org", NULL, NULL, 443,
                        PROTOCOL_BIT(PROTOCOL_TLS) | PROTOCOL_BIT(PROTOCOL_HTTP)},
        };

        for (size_t i = 0; i < RANDOM_COUNT(rows); i++) {
                const struct policy_difference *first;
                struct policy_diff d;

                compare(rows[i].a, rows[i].b, &d);
                CU_ASSERT_EQUAL_FATAL(d.differences_n, 1);
                first = &d.differences[0];
                CU_ASSERT_EQUAL(first->change, rows[i].change);
                CU_ASSERT_STRING_EQUAL(first->host.text, rows[i].host);
                CU_ASSERT_EQUAL(first->ports[0], rows[i].port);
                CU_ASSERT_EQUAL(first->protocols, rows[i].protocols);
                CU_ASSERT_TRUE(rows[i].method ? first->method && !strcmp(first->method, rows[i].method)
                                              : !first->method || first->every_method);
                CU_ASSERT_TRUE(rows[i].path_pattern
                                       ? first->path_pattern && !strcmp(first->path_pattern, rows[i].path_pattern)
                                       : !first->path_pattern);
                CU_ASSERT_FALSE(policy_diff_is_same(&d));
                policy_diff_done(&d);
        }
}

static void test_interception(void)
{
        struct policy_diff d;

        /* Nothing else differs: every path is allowed by both, but for what cannot be judged. */
        compare(RULES "  - {pattern: a.org, ports: [443], http_methods: [GET]}\n",
                RULES "  - {pattern: a.org, ports: [443], http_methods: [GET]}\n  - {pattern: a.org, ports: [443]}\n",
                &d);
        bool passes = false;
        for (size_t i = 0; i < d.differences_n; i++)
                passes = passes || d.differences[i].change == CHANGE_PASSES;
        CU_ASSERT_TRUE(passes);
        policy_diff_done(&d);
}

static void test_limits(void)
{
        struct policy_diff d;

        compare(RULES "  - {pattern: a.org, rate_bps: 1000000}\n", RULES "  - {pattern: a.org, rate_bps: 2000000}\n",
                &d);
        CU_ASSERT_EQUAL(d.differences_n, 0);
        CU_ASSERT_EQUAL_FATAL(d.limits_n, 1);
        CU_ASSERT_FALSE(d.limits[0].is_split);
        policy_diff_done(&d);

        /* Each request sees the same limit, but two rules have twice as much as one. */
        compare(RULES "  - {pattern: '**.a.org', quota_bytes: 5}\n",
                RULES "  - {pattern: '**.a.org', quota_bytes: 5}\n  - {pattern: x.a.org, quota_bytes: 5}\n", &d);
        CU_ASSERT_EQUAL(d.differences_n, 0);
        CU_ASSERT_EQUAL_FATAL(d.limits_n, 2);
        CU_ASSERT_TRUE(d.limits[0].is_split && d.limits[1].is_split);
        CU_ASSERT_FALSE(policy_diff_is_same(&d));
        policy_diff_done(&d);

        compare("network: public\nlimits: {quota_bytes: 0}\n", "network: public\n", &d);
        CU_ASSERT_TRUE(d.vm_limits);
        CU_ASSERT_FALSE(policy_diff_is_same(&d));
        policy_diff_done(&d);

        compare("isolation: hostile\n", "isolation: standard\nrequire_isolation: microvm\n", &d);
        CU_ASSERT_TRUE(d.isolation);
        policy_diff_done(&d);
}

/* A name in the floor can be a service of the operator: then what the policy says of it counts. */
static void test_services(void)
{
        struct policy_diff d;

        compare("network: none\n", RULES "  - {pattern: mirror.internal, ports: [443]}\n", &d);
        CU_ASSERT_EQUAL_FATAL(d.differences_n, 1);
        CU_ASSERT_TRUE(d.differences[0].in_floor);
        policy_diff_done(&d);
}

/* Too large for a whole comparison: it says so, in bounded time, and does not say "the same". */
static void test_too_large(void)
{
        struct random_text *t = calloc(1, sizeof(*t));
        struct policy_diff d;

        random_add(t, RULES "  - pattern: a.org\n    http_paths:\n");
        for (char c = 'a'; c < 'o'; c++)
                random_add(t, "      - '/*%c*%c*'\n", c, (char)(c + 1));
        compare(t->bytes, t->bytes, &d);
        CU_ASSERT_FALSE(d.complete);
        CU_ASSERT_EQUAL(d.differences_n, 0);
        CU_ASSERT_FALSE(policy_diff_is_same(&d));
        policy_diff_done(&d);
        free(t);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"the same, written differently", test_the_same},
                {"one line each", test_one_line_each},
                {"interception", test_interception},
                {"limits", test_limits},
                {"services", test_services},
                {"too large", test_too_large},
                {"random pairs", test_random_pairs},
                CU_TEST_INFO_NULL,
        };

        return suite_run("policy_diff", tests);
}
