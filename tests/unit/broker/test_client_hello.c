/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tunnel's first bytes: the handed cases (client_hello.json), whole, in pieces of 5 and byte by byte, and lies that
 * they leave out, made by changing a right hello at every byte and length.
 */
#include "broker/client_hello.h"

#include <stdlib.h>
#include <string.h>

#include "broker/http1.h"
#include "tests/support/cases.h"
#include "tests/support/wire_bytes.h"

/* Shows ever more of the bytes, as they would arrive; *ret_at is how many were there at the verdict. */
static int read_hello(struct client_hello *h, const uint8_t *raw, size_t n, size_t piece, size_t *ret_at)
{
        int r = CLIENT_HELLO_E_MORE;
        size_t at = 0;

        memset(h, 0, sizeof(*h));
        while (at < n && r == CLIENT_HELLO_E_MORE) {
                at += n - at < piece ? n - at : piece;
                /* A copy of exactly what came, so that a sanitizer sees a read behind it. */
                uint8_t *came = malloc(at);

                memcpy(came, raw, at);
                r = client_hello_parse(h, came, at);
                free(came);
        }
        *ret_at = at;
        return r;
}

static bool expects(const json_t *c, const char *verdict)
{
        return case_is_one_of(c, "expect", verdict);
}

/* "close" stands for any refusal. */
static bool expects_refusal(const json_t *c, const char *reason)
{
        return expects(c, reason) || expects(c, "close");
}

/* Is it the bytes that decide? Not where the rule's protocol does, before any hello is looked at, nor where only time
 * is the offence. */
static bool is_for_parsers(const json_t *c)
{
        const char *target = case_text(c, "target");

        return !strstr(target, ".tcp.") && !strstr(target, ".http.") && strcmp(case_text(c, "id"), "hello-drip") != 0;
}

/* In one record it is the same hello, and no longer than it was. */
static void check_joined(const json_t *c, const struct client_hello *h, const uint8_t *raw)
{
        uint8_t *one = malloc(h->raw_bytes);
        struct client_hello again = {0};
        size_t n = client_hello_join(h, raw, one);

        CASE_CHECK(c, n <= h->raw_bytes && (size_t)(one[3] << 8 | one[4]) + 5 == n);
        CASE_CHECK(c, client_hello_parse(&again, one, n) == 0 && again.raw_bytes == n);
        CASE_CHECK(c, again.name_n == h->name_n && !memcmp(again.name, h->name, sizeof(h->name)));
        free(one);
}

static void check_tls(const json_t *c, const uint8_t *raw, size_t n, size_t piece)
{
        struct hostname target;
        struct client_hello h;
        size_t at;
        uint16_t port;
        const char *text = case_text(c, "target");
        int r = read_hello(&h, raw, n, piece, &at);

        CASE_CHECK(c, !hostname_parse_with_port(text, strlen(text), &target, &port));
        if (r == CLIENT_HELLO_E_MALFORMED) {
                CASE_CHECK(c, expects_refusal(c, "protocol_not_allowed"));
                return;
        }
        if (r == CLIENT_HELLO_E_MORE) {
                CASE_CHECK(c, expects(c, "close"));
                return;
        }

        enum reason reason = client_hello_judge(&h, &target);

        check_joined(c, &h, raw);
        CASE_CHECK(c, reason == REASON_ALLOWED ? expects(c, "allow") : expects_refusal(c, reason_info(reason)->name));
        CASE_CHECK(c, h.raw_bytes <= at && h.raw_bytes <= n);
        CASE_CHECK(c, h.ech == (strstr(case_text(c, "id"), "ech") != NULL));
}

static void check_http(const json_t *c, const uint8_t *raw, size_t n)
{
        struct http1_request *r = malloc(sizeof(*r));
        const char *text = case_text(c, "target");
        struct hostname target;
        uint16_t port;
        size_t taken;

        CASE_CHECK(c, !hostname_parse_with_port(text, strlen(text), &target, &port));
        http1_request_init(
                r, &(struct http1_context){.place = HTTP1_IN_TUNNEL, .host = &target, .port = port, .first = true});
        CASE_CHECK(c, (http1_request_feed(r, raw, n, &taken) == 0) == (expects(c, "allow") || strstr(text, ".tls.")));
        free(r);
}

static void check_case(const json_t *c, size_t piece)
{
        size_t n;
        uint8_t *raw = wire_bytes(c, "hello", &n);

        CASE_CHECK(c, raw);
        if (is_for_parsers(c))
                switch (first_byte_of(raw[0])) {
                case FIRST_BYTE_TLS: check_tls(c, raw, n, piece); break;
                case FIRST_BYTE_HTTP: check_http(c, raw, n); break;
                case FIRST_BYTE_OTHER: CASE_CHECK(c, expects(c, "protocol_not_allowed"));
                }
        free(raw);
}

static void test_cases(void)
{
        CASES_FOREACH ("client_hello.json", c)
                check_case(c, SIZE_MAX);
}

static void test_cases_in_pieces(void)
{
        CASES_FOREACH ("client_hello.json", c) {
                check_case(c, 5);
                check_case(c, 1000);
        }
}

/* The copies make it quadratic, so the large ones are left to the pieces. */
static void test_cases_by_byte(void)
{
        CASES_FOREACH ("client_hello.json", c) {
                size_t n;
                uint8_t *raw = wire_bytes(c, "hello", &n);

                if (n < 4096)
                        check_case(c, 1);
                free(raw);
        }
}

/* A right hello for "ab.example" in one record: 43 bytes to the session id, one suite, null compression, SNI alone. */
static const uint8_t hello[] = "\x16\x03\x01\x00\x42\x01\x00\x00\x3e\x03\x03"
                               "0123456789abcdef0123456789abcdef"
                               "\x00\x00\x02\x13\x01\x01\x00\x00\x13"
                               "\x00\x00\x00\x0f\x00\x0d\x00\x00\x0a"
                               "ab.example";
#define HELLO_BYTES (sizeof(hello) - 1)

static int judge(const uint8_t *raw, size_t n, struct client_hello *ret)
{
        size_t at;

        return read_hello(ret, raw, n, SIZE_MAX, &at);
}

static void test_smallest_is_read(void)
{
        struct client_hello h;
        struct hostname target;

        CU_ASSERT_EQUAL_FATAL(judge(hello, HELLO_BYTES, &h), 0);
        CU_ASSERT_EQUAL(h.sni, CLIENT_HELLO_SNI_ONE);
        CU_ASSERT_STRING_EQUAL(h.name, "ab.example");
        CU_ASSERT_EQUAL(h.raw_bytes, HELLO_BYTES);
        CU_ASSERT_FALSE(hostname_parse("AB.example.", 11, &target));
        CU_ASSERT_EQUAL(client_hello_judge(&h, &target), REASON_ALLOWED);
}

/* With any length changed by any amount the name is not found, be it that the hello is malformed or that the name
 * became something else. */
static void test_no_changed_length_keeps_the_name(void)
{
        static const size_t lengths[] = {3, 4, 6, 7, 8, 43, 44, 45, 48, 50, 51, 54, 55, 56, 57, 59, 60};

        for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
                for (unsigned delta = 1; delta < 256; delta++) {
                        uint8_t changed[HELLO_BYTES];
                        struct client_hello h;

                        memcpy(changed, hello, HELLO_BYTES);
                        changed[lengths[i]] = (uint8_t)(changed[lengths[i]] + delta);
                        if (judge(changed, HELLO_BYTES, &h) == 0)
                                CU_ASSERT_NOT_EQUAL(h.sni, CLIENT_HELLO_SNI_ONE);
                }
}

static void test_every_truncation_waits(void)
{
        struct client_hello h;

        for (size_t n = 1; n < HELLO_BYTES; n++)
                CU_ASSERT_EQUAL(judge(hello, n, &h), CLIENT_HELLO_E_MORE);
}

static void test_second_message_in_the_record_is_refused(void)
{
        uint8_t longer[HELLO_BYTES + 4];
        struct client_hello h;

        memcpy(longer, hello, HELLO_BYTES);
        memcpy(longer + HELLO_BYTES, "\x01\x00\x00\x00", 4);
        longer[4] += 4;
        CU_ASSERT_EQUAL(judge(longer, sizeof(longer), &h), CLIENT_HELLO_E_MALFORMED);
}

/* The hello with n more extensions of no content behind SNI, the first of type first, each of the next one's type. */
static int judge_with_extensions(uint16_t first, uint16_t step, size_t n, struct client_hello *ret)
{
        uint8_t raw[HELLO_BYTES + 4 * 200];
        size_t extra = 4 * n;

        memcpy(raw, hello, HELLO_BYTES);
        for (size_t i = 0; i < n; i++) {
                uint16_t type = (uint16_t)(first + step * i);

                memcpy(raw + HELLO_BYTES + 4 * i, (uint8_t[]){(uint8_t)(type >> 8), (uint8_t)type, 0, 0}, 4);
        }
        for (size_t i = 0; i < 3; i++) { /* of the record, the message, the extensions */
                static const size_t lengths[] = {3, 7, 50};
                uint8_t *length = raw + lengths[i];
                size_t sum = ((size_t)length[0] << 8 | length[1]) + extra;

                length[0] = (uint8_t)(sum >> 8);
                length[1] = (uint8_t)sum;
        }
        return judge(raw, HELLO_BYTES + extra, ret);
}

static void test_extensions_are_counted(void)
{
        struct client_hello h;

        CU_ASSERT_EQUAL(judge_with_extensions(1000, 1, 127, &h), 0);
        CU_ASSERT_EQUAL(h.sni, CLIENT_HELLO_SNI_ONE);
        CU_ASSERT_EQUAL(judge_with_extensions(1000, 1, 128, &h), CLIENT_HELLO_E_MALFORMED);
}

/* RFC 8446 4.2: whichever it is. */
static void test_extension_twice_is_refused(void)
{
        struct client_hello h;

        CU_ASSERT_EQUAL(judge_with_extensions(1000, 0, 2, &h), CLIENT_HELLO_E_MALFORMED);
        CU_ASSERT_EQUAL(judge_with_extensions(0, 0, 1, &h), CLIENT_HELLO_E_MALFORMED); /* a second SNI, of no content */
}

static void test_ech_is_noted(void)
{
        struct client_hello h;

        CU_ASSERT_EQUAL(judge_with_extensions(0xfe0d, 0, 1, &h), 0);
        CU_ASSERT_TRUE(h.ech);
        CU_ASSERT_EQUAL(judge_with_extensions(0xfe0c, 0, 1, &h), 0);
        CU_ASSERT_FALSE(h.ech);
}

/* Whatever is wrong with the first bytes is told without waiting for more. */
static void test_wrong_first_bytes_are_told_at_once(void)
{
        static const struct {
                const char *bytes;
                size_t n;
        } wrong[] = {{"\x15", 1}, {"\x16\x02", 2}, {"\x16\x03\x01\x00\x00", 5}, {"\x16\x03\x01\x40\x01", 5},
                {"\x16\x03\x01\x00\x20\x02", 6}, {"\x16\x03\x01\x00\x20\x01\x00\x3f\xfd", 9}};
        struct client_hello h;

        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
                CU_ASSERT_EQUAL(judge((const uint8_t *)wrong[i].bytes, wrong[i].n, &h), CLIENT_HELLO_E_MALFORMED);
}

/* Records of one byte swell a hello sixfold; the caller's buffer has an end. */
static void test_raw_bytes_are_bounded(void)
{
        size_t n = 0, at;
        uint8_t *raw = calloc(8192, 6);
        struct client_hello h;

        for (size_t i = 0; i < 8192; i++, n += 6)
                memcpy(raw + n,
                        i == 0   ? "\x16\x03\x01\x00\x01\x01"
                        : i == 2 ? "\x16\x03\x01\x00\x01\x20"
                                 : "\x16\x03\x01\x00\x01",
                        6);
        CU_ASSERT_EQUAL(read_hello(&h, raw, n, 6, &at), CLIENT_HELLO_E_MALFORMED);
        CU_ASSERT_TRUE(at <= CLIENT_HELLO_RAW_MAX_BYTES + 6);
        free(raw);
}

static void test_verdicts_stay(void)
{
        struct client_hello h = {0};

        CU_ASSERT_EQUAL(client_hello_parse(&h, hello, HELLO_BYTES), 0);
        CU_ASSERT_EQUAL(client_hello_parse(&h, hello, HELLO_BYTES), 0);
}

static void test_first_bytes(void)
{
        CU_ASSERT_EQUAL(first_byte_of(0x16), FIRST_BYTE_TLS);
        CU_ASSERT_EQUAL(first_byte_of('G'), FIRST_BYTE_HTTP);
        CU_ASSERT_EQUAL(first_byte_of('\r'), FIRST_BYTE_HTTP);
        CU_ASSERT_EQUAL(first_byte_of('\0'), FIRST_BYTE_OTHER);
        CU_ASSERT_EQUAL(first_byte_of('{'), FIRST_BYTE_OTHER);
        CU_ASSERT_EQUAL(first_byte_of(0x80), FIRST_BYTE_OTHER);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"the handed cases, whole", test_cases},
                {"the handed cases, in pieces", test_cases_in_pieces},
                {"the handed cases, byte by byte", test_cases_by_byte},
                {"the smallest hello is read", test_smallest_is_read},
                {"no changed length keeps the name", test_no_changed_length_keeps_the_name},
                {"every truncation waits for more", test_every_truncation_waits},
                {"a second message in the record is refused", test_second_message_in_the_record_is_refused},
                {"extensions are counted", test_extensions_are_counted},
                {"an extension twice is refused", test_extension_twice_is_refused},
                {"ECH is noted", test_ech_is_noted},
                {"wrong first bytes are told at once", test_wrong_first_bytes_are_told_at_once},
                {"raw bytes are bounded", test_raw_bytes_are_bounded},
                {"verdicts stay", test_verdicts_stay},
                {"first bytes", test_first_bytes},
                CU_TEST_INFO_NULL,
        };

        return cases_run("client_hello", tests);
}
