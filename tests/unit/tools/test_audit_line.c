/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/audit_line.h"

#include <string.h>

#include "broker/audit_record.h"
#include "proto/base/clock.h"
#include "tests/support/suite.h"

#define HEAD "{\"seq\":7,\"ts\":\"2026-01-02T03:04:05.678901Z\""

/* 2026-01-02T03:04:05.678901Z */
#define TS_NS (UINT64_C(1767323045) * NSEC_PER_SEC + 678901 * NSEC_PER_USEC)

static int parse(const char *text, struct audit_line *ret)
{
        return audit_line_parse(text, strlen(text), ret);
}

/* What the broker writes is what is read, hostile texts included. */
static void test_a_record_comes_back(void)
{
        struct audit_record record = AUDIT_RECORD_INIT(AUDIT_EGRESS_DENY);
        char text[8192];
        struct audit_line line;
        size_t n;

        record.vm = "demo";
        record.generation = 3;
        record.session = 9;
        record.has_decision = true;
        record.reason = REASON_PATH_NOT_ALLOWED;
        record.rule = 0;
        record.has_via = true;
        record.via = VIA_HTTP;
        record.host = "x.example.org";
        record.port = 80;
        record.method = "GET";
        record.path = "/a\"\n\x7f\xc3\xa9";
        record.status = 403;
        record.has_bytes = true;
        record.bytes_up = 11;
        record.duration_ms = 5;
        n = audit_record_head(7, TS_NS, text);
        n += audit_record_body(&record, text + n);
        audit_record_tail(&(struct audit_hash){.bytes = {0xab}}, text + n);
        n += AUDIT_TAIL_BYTES;
        CU_ASSERT_EQUAL_FATAL(audit_line_parse(text, n - 1, &line), 0);
        CU_ASSERT_NSTRING_EQUAL(line.hash, "ab00", 4);
        CU_ASSERT_EQUAL(line.seq, 7);
        CU_ASSERT_EQUAL(line.ts_ns, TS_NS);
        CU_ASSERT_EQUAL(line.event, AUDIT_EGRESS_DENY);
        CU_ASSERT_TRUE(line.has_decision);
        CU_ASSERT_EQUAL(line.reason, REASON_PATH_NOT_ALLOWED);
        CU_ASSERT_EQUAL(line.rule, 0);
        CU_ASSERT_TRUE(line.has_via);
        CU_ASSERT_EQUAL(line.via, VIA_HTTP);
        CU_ASSERT_STRING_EQUAL(line.vm, "demo");
        CU_ASSERT_STRING_EQUAL(line.host, "x.example.org");
        CU_ASSERT_EQUAL(line.port, 80);
        CU_ASSERT_STRING_EQUAL(line.method, "GET");
        CU_ASSERT_STRING_EQUAL(line.path, record.path);
        CU_ASSERT_EQUAL(line.status, 403);
        CU_ASSERT_EQUAL(line.gen, 3);
        CU_ASSERT_EQUAL(line.session, 9);
        CU_ASSERT_EQUAL(line.bytes_up, 11);
        CU_ASSERT_EQUAL(line.bytes_down, 0);
        CU_ASSERT_EQUAL(line.duration_ms, 5);
        CU_ASSERT_PTR_NULL(line.addr);
        audit_line_done(&line);
}

static void test_all_events_reasons_and_ways(void)
{
        char text[256];
        struct audit_line line;

        for (int i = 0; i < AUDIT_EVENT_MAX_; i++) {
                (void)snprintf(text, sizeof(text), HEAD ",\"event\":\"%s\"}", audit_event_name((enum audit_event)i));
                CU_ASSERT_EQUAL_FATAL(parse(text, &line), 0);
                CU_ASSERT_EQUAL(line.event, (enum audit_event)i);
                CU_ASSERT_FALSE(line.has_decision);
                CU_ASSERT_EQUAL(line.rule, -1);
                audit_line_done(&line);
        }
        for (int i = 0; i < REASON_MAX_; i++) {
                (void)snprintf(text, sizeof(text), HEAD ",\"event\":\"dns\",\"decision\":\"%s\",\"reason\":\"%s\"}",
                        i == REASON_ALLOWED ? "allow" : "deny", reason_info((enum reason)i)->name);
                CU_ASSERT_EQUAL_FATAL(parse(text, &line), 0);
                CU_ASSERT_EQUAL(line.reason, (enum reason)i);
                audit_line_done(&line);
        }
        for (int i = 0; i < VIA_MAX_; i++) {
                (void)snprintf(text, sizeof(text), HEAD ",\"event\":\"dns\",\"via\":\"%s\"}", via_name((enum via)i));
                CU_ASSERT_EQUAL_FATAL(parse(text, &line), 0);
                CU_ASSERT_EQUAL(line.via, (enum via)i);
                audit_line_done(&line);
        }
}

static void test_what_the_broker_does_not_write(void)
{
        static const char *const bad[] = {
                "",
                "[]",
                "null",
                "{}",
                HEAD,
                HEAD "}",
                HEAD ",\"event\":\"nonsense\"}",
                HEAD ",\"event\":1}",
                HEAD ",\"event\":\"dns\"} x",
                HEAD ",\"event\":\"dns\",\"event\":\"dns\"}",
                HEAD ",\"event\":\"dns\",\"host\":1}",
                HEAD ",\"event\":\"dns\",\"host\":null}",
                HEAD ",\"event\":\"dns\",\"host\":\"a\\u0000b\"}",
                HEAD ",\"event\":\"dns\",\"host\":\"\xff\"}",
                HEAD ",\"event\":\"dns\",\"port\":65536}",
                HEAD ",\"event\":\"dns\",\"port\":-1}",
                HEAD ",\"event\":\"dns\",\"port\":80.0}",
                HEAD ",\"event\":\"dns\",\"port\":\"80\"}",
                HEAD ",\"event\":\"dns\",\"rule\":-1}",
                HEAD ",\"event\":\"dns\",\"bytes_up\":-1}",
                HEAD ",\"event\":\"dns\",\"bytes_up\":99999999999999999999}",
                HEAD ",\"event\":\"dns\",\"decision\":\"allow\"}",
                HEAD ",\"event\":\"dns\",\"reason\":\"no_rule\"}",
                HEAD ",\"event\":\"dns\",\"decision\":\"allow\",\"reason\":\"no_rule\"}",
                HEAD ",\"event\":\"dns\",\"decision\":\"deny\",\"reason\":\"allowed\"}",
                HEAD ",\"event\":\"dns\",\"decision\":1,\"reason\":\"no_rule\"}",
                HEAD ",\"event\":\"dns\",\"via\":\"pigeon\"}",
                "{\"ts\":\"2026-01-02T03:04:05Z\",\"event\":\"dns\"}",
                "{\"seq\":1,\"event\":\"dns\"}",
                "{\"seq\":1,\"ts\":\"yesterday\",\"event\":\"dns\"}",
        };
        struct audit_line line;

        for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
                int r = parse(bad[i], &line);

                if (r != AUDIT_LINE_E_MALFORMED)
                        printf("\n%s\n", bad[i]);
                CU_ASSERT_EQUAL(r, AUDIT_LINE_E_MALFORMED);
                if (r == 0)
                        audit_line_done(&line);
        }
        CU_ASSERT_EQUAL_FATAL(parse(HEAD ",\"event\":\"dns\",\"hash\":\"ab\",\"new\":[1]}", &line), 0);
        CU_ASSERT_STRING_EQUAL(line.hash, "ab");
        audit_line_done(&line);
}

static void test_too_long(void)
{
        static char text[AUDIT_LINE_MAX_BYTES + 64];
        struct audit_line line;
        size_t n = (size_t)sprintf(text, "%s", HEAD ",\"event\":\"dns\",\"detail\":\"");

        memset(text + n, 'a', sizeof(text) - n);
        memcpy(text + AUDIT_LINE_MAX_BYTES - 2, "\"}", 2);
        CU_ASSERT_EQUAL_FATAL(audit_line_parse(text, AUDIT_LINE_MAX_BYTES, &line), 0);
        audit_line_done(&line);
        memcpy(text + AUDIT_LINE_MAX_BYTES - 2, "a\"}", 3);
        CU_ASSERT_EQUAL(audit_line_parse(text, AUDIT_LINE_MAX_BYTES + 1, &line), AUDIT_LINE_E_MALFORMED);
}

static void test_times(void)
{
        static const char *const bad[] = {"", "2026-01-02", "2026-01-02T03:04:05", "2026-13-02T03:04:05Z",
                "2026-02-30T03:04:05Z", "2026-01-02T24:04:05Z", "2026-01-02T03:04:60Z", "2026-01-02T03:04:05.6Z",
                "2026-01-02T03:04:05+00:00", "2026-01-02 03:04:05Z", "2026-1-02T03:04:05Z", "1969-12-31T23:59:59Z",
                "2026-01-02T03:04:05Zx", "+026-01-02T03:04:05Z"};
        char text[CLOCK_TEXT_BYTES];
        uint64_t ns = 0;

        for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
                CU_ASSERT_EQUAL(audit_line_parse_time(bad[i], &ns), AUDIT_LINE_E_MALFORMED);
        CU_ASSERT_EQUAL(ns, 0);
        CU_ASSERT_EQUAL(audit_line_parse_time("2024-02-29T23:59:59.999999Z", &ns), 0);
        clock_format(ns, text);
        CU_ASSERT_STRING_EQUAL(text, "2024-02-29T23:59:59.999999Z");
        CU_ASSERT_EQUAL(audit_line_parse_time("1970-01-01T00:00:01Z", &ns), 0);
        CU_ASSERT_EQUAL(ns, NSEC_PER_SEC);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"a record comes back", test_a_record_comes_back},
                {"all events, reasons and ways", test_all_events_reasons_and_ways},
                {"what the broker does not write", test_what_the_broker_does_not_write},
                {"too long", test_too_long},
                {"times", test_times},
                CU_TEST_INFO_NULL,
        };

        return suite_run("audit_line", tests);
}
