/* SPDX-License-Identifier: Apache-2.0 */
/* The greeting and request of SOCKS5: the handed cases (socks5.json), whole and byte by byte, and what they leave out.
 */
#include "broker/socks5.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/cases.h"
#include "tests/support/wire_bytes.h"

/* What a client on the other end would have seen by the bytes n. */
struct outcome {
        int method; /* -1: none was sent */
        enum socks5_event event;
        size_t taken;
};

static struct outcome read_stream(struct socks5 *s, const uint8_t *bytes, size_t n, size_t piece)
{
        struct outcome o = {.method = -1, .event = SOCKS5_MORE};

        memset(s, 0, sizeof(*s));
        while (o.taken < n && (o.event == SOCKS5_MORE || o.event == SOCKS5_METHOD)) {
                size_t k = n - o.taken < piece ? n - o.taken : piece, taken;

                o.event = socks5_feed(s, bytes + o.taken, k, &taken);
                o.taken += taken;
                if (o.event == SOCKS5_METHOD)
                        o.method = (uint8_t)SOCKS5_METHOD_NONE[1];
                else if (o.event == SOCKS5_NO_METHOD)
                        o.method = (uint8_t)SOCKS5_METHOD_REFUSED[1];
        }
        return o;
}

static bool allows(const json_t *want, json_int_t number)
{
        if (json_is_integer(want))
                return json_integer_value(want) == number;
        for (size_t i = 0; i < json_array_size(want); i++)
                if (json_integer_value(json_array_get(want, i)) == number && json_is_integer(json_array_get(want, i)))
                        return true;
        return false;
}

/* A reply that policy, resolver or dialler give is none of the parser's: then the request must be complete. */
static void check_case(const json_t *c, size_t piece)
{
        const json_t *expect = json_object_get(c, "expect"), *reply = json_object_get(expect, "reply");
        const char *host = case_text(expect, "host");
        struct outcome o;
        struct socks5 s;
        size_t n;
        uint8_t *bytes = wire_bytes(c, "bytes", &n);

        o = read_stream(&s, bytes, n, piece);
        if (o.method >= 0)
                CASE_CHECK(c, allows(json_object_get(expect, "method"), o.method));
        switch (o.event) {
        case SOCKS5_REQUEST:
                CASE_CHECK(c, !case_is_one_of(expect, "reason", "malformed_request"));
                CASE_CHECK(c, reply && !allows(reply, 7) && !allows(reply, 8));
                CASE_CHECK(c, !host || !strcmp(host, s.host.text));
                CASE_CHECK(c, !host || json_integer_value(json_object_get(expect, "port")) == s.port);
                break;
        case SOCKS5_REFUSED:
                CASE_CHECK(c, allows(reply, s.reply));
                CASE_CHECK(c,
                        !case_text(expect, "reason") || case_is_one_of(expect, "reason", reason_info(s.reason)->name));
                CASE_CHECK(c, (s.reply == SOCKS5_REPLY_FAILURE) == (s.reason == REASON_MALFORMED_REQUEST));
                break;
        case SOCKS5_NO_METHOD: CASE_CHECK(c, !reply); break;
        case SOCKS5_MORE: CASE_CHECK(c, !reply || case_is_one_of(expect, "reply", "close")); break;
        case SOCKS5_METHOD:
        case SOCKS5_NOT_SOCKS: CASE_CHECK(c, false);
        }
        free(bytes);
}

static void test_cases(void)
{
        CASES_FOREACH ("socks5.json", c) {
                check_case(c, SIZE_MAX);
                check_case(c, 3);
                check_case(c, 1);
        }
}

#define STREAM(text) (const uint8_t *)(text), sizeof(text) - 1

static void test_stops_behind_the_request(void)
{
        struct socks5 s;
        struct outcome o = read_stream(&s, STREAM("\x05\x01\x00\x05\x01\x00\x01\x05\x05\x05\x02\x01\xbbTLS"), SIZE_MAX);

        CU_ASSERT_EQUAL(o.event, SOCKS5_REQUEST);
        CU_ASSERT_EQUAL(o.taken, 13);
        CU_ASSERT_STRING_EQUAL(s.host.text, "5.5.5.2");
        CU_ASSERT_EQUAL(s.port, 443);
}

static void test_method_is_told_before_the_request(void)
{
        struct socks5 s = {0};
        size_t taken;

        CU_ASSERT_EQUAL(socks5_feed(&s, STREAM("\x05\x02\x02\x00\x05\x01"), &taken), SOCKS5_METHOD);
        CU_ASSERT_EQUAL(taken, 4);
}

static void test_another_version_is_not_socks(void)
{
        struct socks5 s;

        CU_ASSERT_EQUAL(read_stream(&s, STREAM("\x04\x01\x00\x50"), SIZE_MAX).event, SOCKS5_NOT_SOCKS);
}

static void test_reserved_byte_is_zero(void)
{
        struct socks5 s;
        struct outcome o = read_stream(&s, STREAM("\x05\x01\x00\x05\x01\x01\x01\x05\x05\x05\x02\x01\xbb"), SIZE_MAX);

        CU_ASSERT_EQUAL(o.event, SOCKS5_REFUSED);
        CU_ASSERT_EQUAL(s.reply, SOCKS5_REPLY_FAILURE);
}

/* Whoever asks for a command that is not spoken in a form that is not known still reads 7. */
static void test_command_is_judged_before_the_address(void)
{
        struct socks5 s;
        struct outcome o = read_stream(&s, STREAM("\x05\x01\x00\x05\x02\x00\x09"), SIZE_MAX);

        CU_ASSERT_EQUAL(o.event, SOCKS5_REFUSED);
        CU_ASSERT_EQUAL(s.reply, SOCKS5_REPLY_COMMAND_NOT_SUPPORTED);
}

static void test_longest_name_fits(void)
{
        struct socks5 s;
        uint8_t bytes[3 + 5 + 254 + 2] = "\x05\x01\x00\x05\x01\x00\x03\xfe";

        for (size_t i = 0; i < 254; i++)
                bytes[8 + i] = i % 2 ? '.' : 'a'; /* 253 bytes and the root's dot */
        bytes[263] = 80;
        CU_ASSERT_EQUAL(read_stream(&s, bytes, sizeof(bytes), SIZE_MAX).event, SOCKS5_REQUEST);
        CU_ASSERT_EQUAL(s.host.length, 253);
}

static void test_replies(void)
{
        uint8_t reply[SOCKS5_REPLY_MAX_BYTES];
        struct hostname address;

        CU_ASSERT_EQUAL(socks5_reply(2, NULL, 0, reply), 10);
        CU_ASSERT_EQUAL(memcmp(reply, "\x05\x02\x00\x01\0\0\0\0\0\0", 10), 0);
        hostname_from_address(HOST_IPV4, (const uint8_t *)"\x05\x05\x05\x02", &address);
        CU_ASSERT_EQUAL(socks5_reply(0, &address, 443, reply), 10);
        CU_ASSERT_EQUAL(memcmp(reply, "\x05\x00\x00\x01\x05\x05\x05\x02\x01\xbb", 10), 0);
        hostname_from_address(HOST_IPV6, (const uint8_t *)"\x2a\x0f\x55\x55\0\0\0\0\0\0\0\0\0\0\0\x02", &address);
        CU_ASSERT_EQUAL(socks5_reply(0, &address, 80, reply), 22);
        CU_ASSERT_EQUAL(memcmp(reply, "\x05\x00\x00\x04\x2a\x0f\x55\x55\0\0\0\0\0\0\0\0\0\0\0\x02\x00\x50", 22), 0);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"the handed cases", test_cases},
                {"the request ends where it ends", test_stops_behind_the_request},
                {"the method is told before the request", test_method_is_told_before_the_request},
                {"another version is not SOCKS5", test_another_version_is_not_socks},
                {"the reserved byte is zero", test_reserved_byte_is_zero},
                {"the command is judged before the address", test_command_is_judged_before_the_address},
                {"the longest name fits", test_longest_name_fits},
                {"replies", test_replies},
                CU_TEST_INFO_NULL,
        };

        return cases_run("socks5", tests);
}
