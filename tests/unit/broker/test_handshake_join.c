/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/handshake_join.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/suite.h"

#define M3 "\x02\0\0\x03" /* a message's header: three bytes follow */
#define M0 "\x0e\0\0\0"

static const struct {
        const char *what;
        const char *in;
        size_t in_n;
        const char *out;
        size_t out_n;
        int r;
} cases[] = {
#define BYTES(text) (text), sizeof(text) - 1
        {"whole", BYTES("\x16\3\3\0\7" M3 "abc"), BYTES("\x16\3\3\0\7" M3 "abc"), 0},
        {"cut in its body", BYTES("\x16\3\3\0\5" M3 "a\x16\3\3\0\2bc"), BYTES("\x16\3\3\0\7" M3 "abc"), 0},
        {"cut in its header", BYTES("\x16\3\3\0\1\x02\x16\3\3\0\6\0\0\3abc"), BYTES("\x16\3\3\0\7" M3 "abc"), 0},
        {"two in a record", BYTES("\x16\3\3\0\x0b" M3 "abc" M0), BYTES("\x16\3\3\0\7" M3 "abc\x16\3\3\0\4" M0), 0},
        {"one and a half", BYTES("\x16\3\3\0\x09" M3 "abc\x0e\0\x16\3\3\0\2\0\0"),
                BYTES("\x16\3\3\0\7" M3 "abc\x16\3\3\0\4" M0), 0},
        {"an alert before", BYTES("\x15\3\3\0\2\1\x70\x16\3\3\0\4" M0), BYTES("\x15\3\3\0\2\1\x70\x16\3\3\0\4" M0), 0},
        {"an alert between", BYTES("\x16\3\3\0\1\x02\x15\3\3\0\2\1\x70"), BYTES(""), -EPROTO},
        {"the rest is left", BYTES("\x16\3\3\0\4" M0 "\x14\3\3\0\1\1\x16\3\3\0\1x"),
                BYTES("\x16\3\3\0\4" M0 "\x14\3\3\0\1\1\x16\3\3\0\1x"), 0},
        {"no TLS", BYTES("HTTP/1.1 400 Bad Request"), BYTES("HTTP/1.1 400 Bad Request"), 0},
        {"an empty record", BYTES("\x16\3\3\0\0"), BYTES(""), -EPROTO},
        {"longer than a record can be", BYTES("\x16\3\3\xff\xff"), BYTES(""), -EPROTO},
        {"a message too long", BYTES("\x16\3\3\0\4\x0b\0\x40\0"), BYTES(""), -EPROTO},
        {"half a header", BYTES("\x16\3"), BYTES(""), 0},
};

static void check(size_t i, size_t piece)
{
        struct budget budget = {.most_bytes = 1 << 20};
        struct handshake_join j;
        struct buffer out;
        int r = 0;

        handshake_join_init(&j, &budget);
        buffer_init(&out, &budget);
        for (size_t at = 0; at < cases[i].in_n && r == 0; at += piece) {
                size_t n = cases[i].in_n - at < piece ? cases[i].in_n - at : piece;

                r = handshake_join_feed(&j, (const uint8_t *)cases[i].in + at, n, &out);
        }
        if (r != cases[i].r || buffer_used(&out) != cases[i].out_n ||
                memcmp(buffer_data(&out), cases[i].out, cases[i].out_n) != 0) {
                printf("%s, by %zu: %d, %zu bytes\n", cases[i].what, piece, r, buffer_used(&out));
                CU_FAIL("not as it should be");
        }
        buffer_done(&out);
        handshake_join_done(&j);
        CU_ASSERT_EQUAL(budget.used_bytes, 0);
}

static void test_cases(void)
{
        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
                for (size_t piece = 1; piece < 40; piece++)
                        check(i, piece);
}

/* The largest message in records of one byte. */
static void test_the_largest(void)
{
        struct budget budget = {.most_bytes = 1 << 20};
        uint8_t record[] = {22, 3, 3, 0, 1, 11};
        struct handshake_join j;
        struct buffer out;

        handshake_join_init(&j, &budget);
        buffer_init(&out, &budget);
        for (size_t i = 0; i < HANDSHAKE_JOIN_MESSAGE_MAX; i++) {
                record[5] = i == 0 ? 11 : i == 2 ? 0x3f : i == 3 ? 0xfc : 0;
                CU_ASSERT_EQUAL(buffer_used(&out), 0);
                CU_ASSERT_EQUAL_FATAL(handshake_join_feed(&j, record, sizeof(record), &out), 0);
        }
        CU_ASSERT_EQUAL(buffer_used(&out), HANDSHAKE_JOIN_MESSAGE_MAX + 5);
        CU_ASSERT_EQUAL(memcmp(buffer_data(&out), "\x16\3\3\x40\0\x0b", 6), 0);
        buffer_done(&out);
        handshake_join_done(&j);
}

static void test_the_budget(void)
{
        struct budget budget = {.most_bytes = 1024};
        struct handshake_join j;
        struct buffer out;

        handshake_join_init(&j, &budget);
        buffer_init(&out, &budget);
        CU_ASSERT_EQUAL(handshake_join_feed(&j, (const uint8_t *)"\x16\3\3\0\4" M0, 9, &out), -ENOBUFS);
        buffer_done(&out);
        handshake_join_done(&j);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"cases in pieces of every size", test_cases},
                {"the largest message", test_the_largest},
                {"the budget", test_the_budget},
                CU_TEST_INFO_NULL,
        };

        return suite_run("handshake_join", tests);
}
