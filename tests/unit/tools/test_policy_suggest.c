/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/policy_suggest.h"

#include "broker/audit_record.h"
#include "proto/base/cleanup.h"
#include "tests/support/random_policy.h"
#include "tests/support/suite.h"

DEFINE_CLEANUP(struct policy *, policy_unref);
DEFINE_CLEANUP(struct policy_suggest *, policy_suggest_free);

#define TS_NS UINT64_C(1767323045000000000) /* 2026-01-02T03:04:05Z */

/* As the broker writes it and the command reads it. */
static void take(struct policy_suggest *s, const struct audit_record *record)
{
        static char text[64 * 1024];
        struct audit_line line;
        size_t n = audit_record_head(1, TS_NS, text);

        CU_ASSERT_TRUE_FATAL(audit_record_room(record) + AUDIT_HEAD_MAX_BYTES < sizeof(text));
        n += audit_record_body(record, text + n);
        text[n++] = '}';
        if (audit_line_parse(text, n, &line) != 0) {
                policy_suggest_count_malformed(s);
                return;
        }
        CU_ASSERT_EQUAL(policy_suggest_take(s, &line), 0);
        audit_line_done(&line);
}

static struct audit_record record_of(
        enum audit_event event, enum reason reason, enum via via, const char *host, uint16_t port)
{
        struct audit_record record = AUDIT_RECORD_INIT(event);

        record.has_decision = true;
        record.reason = reason;
        record.has_via = true;
        record.via = via;
        record.host = host;
        record.port = port;
        return record;
}

static void deny(struct policy_suggest *s, enum reason reason, const char *host, uint16_t port)
{
        struct audit_record record = record_of(AUDIT_EGRESS_DENY, reason, VIA_CONNECT, host, port);

        take(s, &record);
}

static void request(struct policy_suggest *s, enum reason reason, enum via via, const char *host, uint16_t port,
        const char *method, const char *path)
{
        struct audit_record record =
                record_of(reason == REASON_ALLOWED ? AUDIT_REQUEST : AUDIT_EGRESS_DENY, reason, via, host, port);

        record.method = method;
        record.path = path;
        take(s, &record);
}

static char *write_text(const struct policy_suggest *s, const char *known)
{
        char *text = NULL;
        size_t n = 0;
        FILE *to = open_memstream(&text, &n);

        policy_suggest_write(s, known, to);
        (void)fclose(to);
        return text;
}

static bool allows(const struct policy *p, const char *host, uint16_t port, enum protocol protocol, const char *method,
        const char *path)
{
        static const struct floor floor;
        struct request r = {.protocol = protocol, .port = port, .method = method, .path = path};
        struct decision d;

        if (hostname_parse_address(host, strlen(host), &r.host) != 0 &&
                hostname_parse(host, strlen(host), &r.host) != 0)
                abort();
        policy_decide(p, &floor, &r, false, &d);
        return d.reason == REASON_ALLOWED;
}

static void test_what_was_seen_and_no_more(void)
{
        _cleanup_(policy_suggest_freep) struct policy_suggest *s = NULL;

        CU_ASSERT_EQUAL_FATAL(policy_suggest_new(NULL, &s), 0);
        deny(s, REASON_NO_RULE, "a.org", 443);
        deny(s, REASON_NO_RULE, "a.org", 443);
        deny(s, REASON_PORT_NOT_ALLOWED, "a.org", 8443);
        deny(s, REASON_IP_LITERAL, "8.8.8.8", 443);
        deny(s, REASON_IP_LITERAL, "2001:4860::1", 443);
        request(s, REASON_METHOD_NOT_ALLOWED, VIA_HTTP, "b.org", 80, "PUT", "/x\"y");
        request(s, REASON_ALLOWED, VIA_HTTP, "b.org", 80, "GET", "/a%2Fb");
        deny(s, REASON_ALLOWED, "c.org", 443);
        request(s, REASON_PATH_NOT_ALLOWED, VIA_INSPECT, "c.org", 443, "GET", "/p");

        _cleanup_free_ char *text = write_text(s, NULL);
        _cleanup_(policy_unrefp) struct policy *p = random_load(text);
        CU_ASSERT_PTR_NOT_NULL(
                strstr(text, "# port 443: denied 2 times (no_rule), last 2026-01-02T03:04:05.000000Z\n"));
        CU_ASSERT_PTR_NOT_NULL(strstr(text, "ports: [443, 8443]"));
        CU_ASSERT_TRUE(allows(p, "a.org", 443, PROTOCOL_TLS, NULL, NULL));
        CU_ASSERT_TRUE(allows(p, "a.org", 8443, PROTOCOL_TLS, NULL, NULL));
        CU_ASSERT_FALSE(allows(p, "a.org", 80, PROTOCOL_HTTP, NULL, NULL));
        CU_ASSERT_FALSE(allows(p, "a.org", 443, PROTOCOL_TCP, NULL, NULL));
        CU_ASSERT_FALSE(allows(p, "x.a.org", 443, PROTOCOL_TLS, NULL, NULL));
        CU_ASSERT_TRUE(allows(p, "8.8.8.8", 443, PROTOCOL_TLS, NULL, NULL));
        CU_ASSERT_TRUE(allows(p, "2001:4860::1", 443, PROTOCOL_TLS, NULL, NULL));
        CU_ASSERT_TRUE(allows(p, "b.org", 80, PROTOCOL_HTTP, "PUT", "/x\"y"));
        CU_ASSERT_TRUE(allows(p, "b.org", 80, PROTOCOL_HTTP, "GET", "/a%2Fb"));
        CU_ASSERT_FALSE(allows(p, "b.org", 80, PROTOCOL_TLS, "GET", "/a%2Fb"));
        CU_ASSERT_FALSE(allows(p, "b.org", 80, PROTOCOL_HTTP, "POST", "/a%2Fb"));
        CU_ASSERT_TRUE(allows(p, "c.org", 443, PROTOCOL_TLS, "GET", "/p"));
        CU_ASSERT_FALSE(allows(p, "c.org", 443, PROTOCOL_TLS, "GET", "/q"));
}

/* Opaque only where the broker saw that it was, and no text of a guest can say so. */
static void test_tcp(void)
{
        static const struct {
                const char *detail;
                bool allowed;
        } rows[] = {
                {"For a.org, rule 0 (line 1, a.org) allows protocol: auto, not tcp. It would take protocol: tcp there. A retry will not help.",
                        true},
                {"For a.org, rule 0 (line 1, a.org) allows protocol: tls, not http. It would take protocol: auto there. A retry will not help.",
                        false},
                {NULL, false},
        };

        for (size_t i = 0; i < RANDOM_COUNT(rows); i++) {
                _cleanup_(policy_suggest_freep) struct policy_suggest *s = NULL;
                struct audit_record record =
                        record_of(AUDIT_EGRESS_DENY, REASON_PROTOCOL_NOT_ALLOWED, VIA_CONNECT, "a.org", 22);

                record.detail = rows[i].detail;
                CU_ASSERT_EQUAL_FATAL(policy_suggest_new(NULL, &s), 0);
                take(s, &record);

                _cleanup_free_ char *text = write_text(s, NULL);
                _cleanup_(policy_unrefp) struct policy *p = random_load(text);
                CU_ASSERT_EQUAL(allows(p, "a.org", 22, PROTOCOL_TCP, NULL, NULL), rows[i].allowed);
        }
}

static void test_what_no_rule_opens(void)
{
        _cleanup_(policy_suggest_freep) struct policy_suggest *s = NULL;

        CU_ASSERT_EQUAL_FATAL(policy_suggest_new(NULL, &s), 0);
        for (int reason = 0; reason < REASON_MAX_; reason++)
                switch (reason) {
                case REASON_ALLOWED:
                case REASON_NETWORK_NONE:
                case REASON_NO_RULE:
                case REASON_PORT_NOT_ALLOWED:
                case REASON_PROTOCOL_NOT_ALLOWED:
                case REASON_METHOD_NOT_ALLOWED:
                case REASON_PATH_NOT_ALLOWED:
                case REASON_IP_LITERAL: break;
                default: deny(s, (enum reason)reason, "a.org", 443); break;
                }
        deny(s, REASON_IP_LITERAL, "10.0.0.1", 443);
        deny(s, REASON_NO_RULE, "x.internal", 443);

        _cleanup_free_ char *text = write_text(s, NULL);
        _cleanup_(policy_unrefp) struct policy *p = random_load(text);
        CU_ASSERT_EQUAL(p->rules_n, 0);
        CU_ASSERT_PTR_NOT_NULL(strstr(text, "deny_rule 1"));
        CU_ASSERT_PTR_NOT_NULL(strstr(text, "floor_address 2"));
        CU_ASSERT_PTR_NOT_NULL(strstr(text, "floor_name 2"));
}

static void test_hostile_texts(void)
{
        static const char *const hosts[] = {"A.org", "a.org.", "", "a..org", "a.org\n  - pattern: evil.org", "*.org",
                "**.a.org", "[8.8.8.8]", "08.8.8.8", "\"", "a.org\"]", "a b.org", "\xc3\xa9.org", "a.org#", "127.1"};
        static const char *const methods[] = {"get", "G T", "", "GET\"]", "*", "G\nT"};
        static const char *const paths[] = {
                "x", "", "/*", "/a*b", "/a?b", "/a#b", "/a b", "/../a", "/a\nb", "/\xc3\xa9", "/a\\b", "/%2e%2e/"};
        _cleanup_(policy_suggest_freep) struct policy_suggest *s = NULL;
        char say[200];

        CU_ASSERT_EQUAL_FATAL(policy_suggest_new(NULL, &s), 0);
        for (size_t i = 0; i < RANDOM_COUNT(hosts); i++)
                deny(s, REASON_NO_RULE, hosts[i], 443);
        for (size_t i = 0; i < RANDOM_COUNT(methods); i++)
                request(s, REASON_NO_RULE, VIA_HTTP, "a.org", 80, methods[i], "/");
        for (size_t i = 0; i < RANDOM_COUNT(paths); i++)
                request(s, REASON_NO_RULE, VIA_HTTP, "a.org", 80, "GET", paths[i]);
        deny(s, REASON_NO_RULE, "a.org", 0);
        policy_suggest_count_malformed(s);

        _cleanup_free_ char *text = write_text(s, "evil\n- x\xc3");
        _cleanup_(policy_unrefp) struct policy *p = random_load(text);
        CU_ASSERT_EQUAL(p->rules_n, 0);
        (void)snprintf(say, sizeof(say), "host, method or path: %zu records",
                RANDOM_COUNT(hosts) + RANDOM_COUNT(methods) + RANDOM_COUNT(paths) + 1);
        CU_ASSERT_PTR_NOT_NULL(strstr(text, say));
        CU_ASSERT_PTR_NOT_NULL(strstr(text, "skipped: 1 lines"));
}

static void test_siblings(void)
{
        _cleanup_(policy_suggest_freep) struct policy_suggest *s = NULL;
        char host[64];

        CU_ASSERT_EQUAL_FATAL(policy_suggest_new(NULL, &s), 0);
        for (int i = 0; i < 4; i++) {
                (void)snprintf(host, sizeof(host), "h%d.a.org", i);
                deny(s, REASON_NO_RULE, host, 443);
                (void)snprintf(host, sizeof(host), "h%d.github.io", i);
                deny(s, REASON_NO_RULE, host, 443);
                (void)snprintf(host, sizeof(host), "h%d.org", i);
                deny(s, REASON_NO_RULE, host, 443);
                (void)snprintf(host, sizeof(host), "h%d.b.org", i % 2);
                deny(s, REASON_NO_RULE, host, 443);
        }

        _cleanup_free_ char *text = write_text(s, NULL);
        CU_ASSERT_PTR_NOT_NULL(
                strstr(text, "# 4 of the hosts could be one pattern, if all of it is to be trusted: \"*.a.org\"\n"));
        CU_ASSERT_PTR_NULL(strstr(text, "\"*.github.io\""));
        CU_ASSERT_PTR_NULL(strstr(text, "\"*.org\""));
        CU_ASSERT_PTR_NULL(strstr(text, "\"*.b.org\""));
}

static void test_a_known_policy(void)
{
        _cleanup_(policy_unrefp) struct policy *known = random_load("network: allowlist_domain\n"
                                                                    "egress_rules:\n"
                                                                    "  - {pattern: a.org}\n"
                                                                    "  - {pattern: unused.org}\n"
                                                                    "  - {pattern: bad.org, action: deny}\n");
        _cleanup_(policy_suggest_freep) struct policy_suggest *s = NULL;
        struct audit_record dns = record_of(AUDIT_DNS, REASON_NO_RULE, VIA_DNS, "looked-up.org", 0);

        CU_ASSERT_EQUAL_FATAL(policy_suggest_new(known, &s), 0);
        deny(s, REASON_NO_RULE, "a.org", 443); /* the policy has been mended since */
        deny(s, REASON_NO_RULE, "new.org", 443);
        deny(s, REASON_DENY_RULE, "bad.org", 443);
        take(s, &dns);
        dns.host = "new.org";
        take(s, &dns);

        _cleanup_free_ char *text = write_text(s, "f.yaml");
        _cleanup_(policy_unrefp) struct policy *p = random_load(text);
        CU_ASSERT_EQUAL(p->rules_n, 1);
        CU_ASSERT_TRUE(allows(p, "new.org", 443, PROTOCOL_TLS, NULL, NULL));
        CU_ASSERT_PTR_NOT_NULL(strstr(text, "#  - {pattern: \"looked-up.org\", ports: [443]}"));
        CU_ASSERT_PTR_NULL(strstr(text, "#  - {pattern: \"new.org\""));
        CU_ASSERT_PTR_NOT_NULL(strstr(text, "in f.yaml:\n#   line 4: rule 1: allow unused.org\n"));
        CU_ASSERT_PTR_NULL(strstr(text, "rule 0:"));
        CU_ASSERT_PTR_NULL(strstr(text, "rule 2:"));
}

/* A guest that tries everything: what is kept and written stays small, and loads. */
static void test_bounds(void)
{
        _cleanup_(policy_suggest_freep) struct policy_suggest *s = NULL;
        char text[64];

        CU_ASSERT_EQUAL_FATAL(policy_suggest_new(NULL, &s), 0);
        for (unsigned i = 0; i < 200; i++)
                deny(s, REASON_PORT_NOT_ALLOWED, "ports.org", (uint16_t)(1 + i));
        for (unsigned i = 0; i < 200; i++) {
                (void)snprintf(text, sizeof(text), "/%u", i);
                request(s, REASON_NO_RULE, VIA_HTTP, "paths.org", 80, "GET", text);
        }
        for (unsigned i = 0; i < 6000; i++) {
                (void)snprintf(text, sizeof(text), "h%u.many.org", i);
                deny(s, REASON_NO_RULE, text, 443);
        }

        _cleanup_free_ char *out = write_text(s, NULL);
        _cleanup_(policy_unrefp) struct policy *p = random_load(out);
        CU_ASSERT_TRUE(p->rules_n > 3000 && p->rules_n <= 4096);
        CU_ASSERT_PTR_NOT_NULL(strstr(out, "and 168 more ports of ports.org"));
        CU_ASSERT_PTR_NOT_NULL(strstr(out, "168 requests had more methods or paths"));
        CU_ASSERT_PTR_NOT_NULL(strstr(out, "there are too many hosts: 2105 records"));
        CU_ASSERT_TRUE(allows(p, "paths.org", 80, PROTOCOL_HTTP, "GET", "/31"));
        CU_ASSERT_FALSE(allows(p, "paths.org", 80, PROTOCOL_HTTP, "GET", "/32"));
}

static const struct floor builtin_floor;

/* A random request as a session would see it; false: one that no log tells of. */
static bool random_seen(unsigned *seed, struct request *r)
{
        random_request(seed, r);
        if (!r->port || r->protocol == PROTOCOL_TCP || !r->method != !r->path)
                return false;
        /* A method is seen in plain HTTP, or in TLS that is looked into. */
        r->via = !r->method ? VIA_CONNECT : r->protocol == PROTOCOL_HTTP ? VIA_HTTP : VIA_INSPECT;
        r->protocol = r->via == VIA_CONNECT ? PROTOCOL_AUTO : r->via == VIA_HTTP ? PROTOCOL_HTTP : PROTOCOL_TLS;
        return true;
}

static bool is_for_a_rule(const struct request *r, enum reason reason)
{
        bool in_floor = r->host.kind == HOST_NAME ? floor_denies_name(&builtin_floor, &r->host) != NULL
                                                  : floor_denies_address(&builtin_floor, &r->host) != NULL;
        bool is_for_one = reason == REASON_ALLOWED || reason == REASON_NO_RULE || reason == REASON_NETWORK_NONE ||
                          reason == REASON_IP_LITERAL ||
                          (reason >= REASON_PORT_NOT_ALLOWED && reason <= REASON_PATH_NOT_ALLOWED);

        return is_for_one && !in_floor && !(r->path && (*r->path == '*' || request_path_is_ambiguous(r->path)));
}

/* Judges it by the policy and puts that into the log. */
static bool log_request(struct policy_suggest *s, const struct policy *policy, const struct request *r)
{
        struct audit_record record;
        struct decision d;

        policy_decide(policy, &builtin_floor, r, false, &d);
        record = record_of(d.reason == REASON_ALLOWED ? AUDIT_REQUEST : AUDIT_EGRESS_DENY, d.reason, r->via,
                r->host.text, r->port);
        record.method = r->method;
        record.path = r->path;
        take(s, &record);
        return is_for_a_rule(r, d.reason);
}

/* What random requests were denied by a random policy for want of a rule, the suggestion allows. */
static void test_random_logs(void)
{
        enum { REQUESTS = 20 };
        static struct random_text t;
        unsigned seed = 99;
        size_t checked = 0;

        for (int round = 0; round < 200; round++) {
                _cleanup_(policy_suggest_freep) struct policy_suggest *s = NULL;
                struct request requests[REQUESTS];
                bool suggested[REQUESTS] = {false};

                random_policy(&t, &seed);
                _cleanup_(policy_unrefp) struct policy *policy = random_load(t.bytes);
                CU_ASSERT_EQUAL_FATAL(policy_suggest_new(NULL, &s), 0);
                for (size_t i = 0; i < REQUESTS; i++)
                        suggested[i] = random_seen(&seed, &requests[i]) && log_request(s, policy, &requests[i]);

                _cleanup_free_ char *text = write_text(s, NULL);
                _cleanup_(policy_unrefp) struct policy *p = random_load(text);
                for (size_t i = 0; i < REQUESTS; i++) {
                        struct decision d;

                        if (!suggested[i])
                                continue;
                        policy_decide(p, &builtin_floor, &requests[i], false, &d);
                        if (d.reason != REASON_ALLOWED)
                                printf("\n%s\n%s:%u %s %s", text, requests[i].host.text, requests[i].port,
                                        requests[i].method ? requests[i].method : "-",
                                        requests[i].path ? requests[i].path : "-");
                        CU_ASSERT_EQUAL_FATAL(d.reason, REASON_ALLOWED);
                        checked++;
                }
        }
        CU_ASSERT_TRUE(checked > 500);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"what was seen and no more", test_what_was_seen_and_no_more},
                {"tcp", test_tcp},
                {"what no rule opens", test_what_no_rule_opens},
                {"hostile texts", test_hostile_texts},
                {"siblings", test_siblings},
                {"a known policy", test_a_known_policy},
                {"bounds", test_bounds},
                {"random logs", test_random_logs},
                CU_TEST_INFO_NULL,
        };

        return suite_run("policy_suggest", tests);
}
