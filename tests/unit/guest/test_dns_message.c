/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/dns_message.h"

#include <stdbool.h>
#include <string.h>

#include "tests/support/suite.h"

/* A literal's bytes without the NUL behind them. */
#define BYTES(text) (const uint8_t *)(text), sizeof(text) - 1

#define HEAD(counts)  "\x12\x34\x01\x00" counts
#define ONE           "\0\1\0\0\0\0\0\0"
#define ONE_AND_OPT   "\0\1\0\0\0\0\0\1"
#define NAME          "\3WwW\7eXample\3org\0"
#define QUESTION      NAME "\0\1\0\1"
#define OPT(size, do) "\0\0\x29" size "\0\0" do "\0\0\0"

static struct dns_query parse(const uint8_t *bytes, size_t n)
{
        enum dns_rcode rcode;
        struct dns_query q = {0};

        CU_ASSERT_EQUAL_FATAL(dns_parse(bytes, n, &q, &rcode), 0);
        return q;
}

/* The rcode of what is refused, or -1 if it is dropped. */
static int refusal(const uint8_t *bytes, size_t n)
{
        enum dns_rcode rcode;
        struct dns_query q;
        int r = dns_parse(bytes, n, &q, &rcode);

        CU_ASSERT_NOT_EQUAL(r, 0);
        return r == DNS_E_DROP ? -1 : (int)rcode;
}

static void test_question(void)
{
        struct dns_query q = parse(BYTES(HEAD(ONE) QUESTION));
        char text[DNS_TEXT_BYTES];

        CU_ASSERT_EQUAL(q.id, 0x1234);
        CU_ASSERT_TRUE(q.recursion_desired && !q.has_edns);
        CU_ASSERT_TRUE(q.type == DNS_TYPE_A && q.class == DNS_CLASS_IN);
        CU_ASSERT_TRUE(dns_query_text(&q, text));
        CU_ASSERT_STRING_EQUAL(text, "WwW.eXample.org");
        CU_ASSERT_EQUAL(dns_query_udp_room(&q), 512);
}

static void test_edns(void)
{
        struct dns_query q = parse(BYTES(HEAD(ONE_AND_OPT) QUESTION OPT("\x04\xd0", "\x80")));

        CU_ASSERT_TRUE(q.has_edns && q.dnssec_ok);
        CU_ASSERT_EQUAL(dns_query_udp_room(&q), 1232);
        q = parse(BYTES(HEAD(ONE_AND_OPT) QUESTION "\0\0\x29\x03\x00\0\0\0\0\0\6\0\x0a\0\2ab")); /* with an option */
        CU_ASSERT_TRUE(!q.dnssec_ok && dns_query_udp_room(&q) == 768);
        q = parse(BYTES(HEAD("\0\1\0\0\0\0\0\2") QUESTION "\xc0\x0c\0\1\0\1\0\0\0\0\0\4abcd" OPT("\x04\xd0", "\0")));
        CU_ASSERT_TRUE(q.has_edns); /* a record that is none of ours, its owner a pointer */
}

static void test_malformed(void)
{
        CU_ASSERT_EQUAL(refusal(BYTES("")), -1);
        CU_ASSERT_EQUAL(refusal(BYTES("\x12\x34\x01\x00\0\1\0\0\0\0\0")), -1);
        CU_ASSERT_EQUAL(refusal(BYTES("\x12\x34\x81\x00" ONE QUESTION)), -1); /* an answer */
        CU_ASSERT_EQUAL(refusal(BYTES("\x12\x34\x28\x00" ONE QUESTION)), DNS_NOTIMP);
        CU_ASSERT_EQUAL(refusal(BYTES(HEAD("\0\0\0\0\0\0\0\0"))), DNS_FORMERR);
        CU_ASSERT_EQUAL(refusal(BYTES(HEAD("\0\2\0\0\0\0\0\0") QUESTION QUESTION)), DNS_FORMERR);
        CU_ASSERT_EQUAL(refusal(BYTES(HEAD("\0\1\0\1\0\0\0\0") QUESTION)), DNS_FORMERR);
        CU_ASSERT_EQUAL(refusal(BYTES(HEAD("\0\1\0\0\0\0\xff\xff") QUESTION)), DNS_FORMERR);
        CU_ASSERT_EQUAL(refusal(BYTES(HEAD(ONE) "\3www\0\0\1\0")), DNS_FORMERR);
        CU_ASSERT_EQUAL(refusal(BYTES(HEAD(ONE) QUESTION "x")), DNS_FORMERR);
        CU_ASSERT_EQUAL(refusal(BYTES(HEAD(ONE) "\xc0\x0c\0\1\0\1")), DNS_FORMERR); /* points at itself */
        CU_ASSERT_EQUAL(refusal(BYTES(HEAD(ONE) "\xc0\x04\0\1\0\1")), DNS_FORMERR); /* into the header */
        CU_ASSERT_EQUAL(refusal(BYTES(HEAD(ONE) "\x40"
                                                "a\0\0\1\0\1")),
                DNS_FORMERR);
        CU_ASSERT_EQUAL(refusal(BYTES(HEAD(ONE_AND_OPT) QUESTION)), DNS_FORMERR);
        CU_ASSERT_EQUAL(refusal(BYTES(HEAD("\0\1\0\0\0\0\0\2") QUESTION OPT("\x04\xd0", "\0") OPT("\x04\xd0", "\0"))),
                DNS_FORMERR);
        CU_ASSERT_EQUAL(refusal(BYTES(HEAD(ONE_AND_OPT) QUESTION "\1a\0\0\x29\x04\xd0\0\0\0\0\0\0")), DNS_FORMERR);
        CU_ASSERT_EQUAL(
                refusal(BYTES(HEAD(ONE_AND_OPT) QUESTION "\0\0\x29\x04\xd0\0\0\0\0\0\5\0\x0a\0\2a")), DNS_FORMERR);
        CU_ASSERT_EQUAL(refusal(BYTES(HEAD(ONE_AND_OPT) QUESTION "\0\0\x29\x04\xd0\0\1\0\0\0\0")), DNS_BADVERS);
        CU_ASSERT_EQUAL(
                refusal(BYTES(HEAD(ONE_AND_OPT) QUESTION "\xc0\x21\0\1\0\1\0\0\0\0\0\0")), DNS_FORMERR); /* forward */
}

static void test_long_names(void)
{
        uint8_t bytes[400] = HEAD(ONE);
        struct dns_query q;
        enum dns_rcode rcode;
        size_t n = 12;

        for (int i = 0; i < 4; i++) {
                bytes[n] = (uint8_t)(i < 3 ? 63 : 61);
                memset(bytes + n + 1, 'a', 63);
                n += 1u + bytes[n];
        }
        bytes[n] = 0;
        memcpy(bytes + n + 1, "\0\1\0\1", 4);
        CU_ASSERT_EQUAL(dns_parse(bytes, n + 5, &q, &rcode), 0); /* 255 bytes */
        CU_ASSERT_EQUAL(q.name_n, 255);
        bytes[12 + 3 * 64] = 62;
        bytes[n + 1] = 0;
        CU_ASSERT_EQUAL(dns_parse(bytes, n + 6, &q, &rcode), DNS_E_RCODE);
        CU_ASSERT_EQUAL(rcode, DNS_FORMERR);
}

static void test_odd_labels_are_no_text(void)
{
        struct dns_query q = parse(BYTES(HEAD(ONE) "\3a.b\3org\0\0\1\0\1"));
        char text[DNS_TEXT_BYTES];

        CU_ASSERT_FALSE(dns_query_text(&q, text)); /* else it would be taken for a.b.org */
        q = parse(BYTES(HEAD(ONE) "\2a\xff\0\0\1\0\1"));
        CU_ASSERT_FALSE(dns_query_text(&q, text));
        q = parse(BYTES(HEAD(ONE) "\0\0\1\0\1"));
        CU_ASSERT_TRUE(dns_query_text(&q, text));
        CU_ASSERT_STRING_EQUAL(text, "");
}

static void test_reverse(void)
{
        struct dns_query q = parse(BYTES(HEAD(ONE) "\1"
                                                   "7\1"
                                                   "0\2"
                                                   "18\3"
                                                   "198\7in-ADDR\4arpa\0\0\x0c\0\1"));
        uint32_t address = 0;

        CU_ASSERT_TRUE(dns_query_reverse_ipv4(&q, &address));
        CU_ASSERT_EQUAL(address, 0xc6120007);
        q = parse(BYTES(HEAD(ONE) "\2"
                                  "07\1"
                                  "0\2"
                                  "18\3"
                                  "198\7in-addr\4arpa\0\0\x0c\0\1"));
        CU_ASSERT_FALSE(dns_query_reverse_ipv4(&q, &address));
        q = parse(BYTES(HEAD(ONE) "\3"
                                  "256\1"
                                  "0\2"
                                  "18\3"
                                  "198\7in-addr\4arpa\0\0\x0c\0\1"));
        CU_ASSERT_FALSE(dns_query_reverse_ipv4(&q, &address));
        q = parse(BYTES(HEAD(ONE) "\2"
                                  "18\3"
                                  "198\7in-addr\4arpa\0\0\x0c\0\1"));
        CU_ASSERT_FALSE(dns_query_reverse_ipv4(&q, &address));
}

static void expect(const struct dns_query *q, const struct dns_reply *r, size_t room, const uint8_t *bytes, size_t n)
{
        uint8_t to[DNS_REPLY_MAX_BYTES];

        CU_ASSERT_EQUAL(dns_build(q, r, to, room), n);
        CU_ASSERT_EQUAL(memcmp(to, bytes, n), 0);
}

static void test_answers(void)
{
        struct dns_query q = parse(BYTES(HEAD(ONE) QUESTION));
        struct dns_query edns = parse(BYTES(HEAD(ONE_AND_OPT) QUESTION OPT("\x04\xd0", "\x80")));
        struct dns_reply a = {.has_address = true, .address = 0xc6120102, .ttl_s = 10};
        struct dns_reply no = {
                .rcode = DNS_NXDOMAIN, .has_error = true, .error = DNS_EDE_BLOCKED, .error_text = "no_rule"};

        expect(&q, &a, 512,
                BYTES("\x12\x34\x81\x80\0\1\0\1\0\0\0\0" QUESTION "\xc0\x0c\0\1\0\1\0\0\0\x0a\0\4\xc6\x12\1\2"));
        expect(&q, &no, 512, BYTES("\x12\x34\x81\x83\0\1\0\0\0\0\0\0" QUESTION));
        expect(&edns, &no, 512,
                BYTES("\x12\x34\x81\x83\0\1\0\0\0\0\0\1" QUESTION
                      "\0\0\x29\x04\xd0\0\0\x80\0\0\x0d\0\x0f\0\x09\0\x0fno_rule"));
        expect(&edns, &(struct dns_reply){.rcode = DNS_BADVERS}, 512,
                BYTES("\x12\x34\x81\x80\0\1\0\0\0\0\0\1" QUESTION "\0\0\x29\x04\xd0\1\0\x80\0\0\0"));
        expect(&q, &(struct dns_reply){.ptr = "a.bc", .ttl_s = 1}, 512,
                BYTES("\x12\x34\x81\x80\0\1\0\1\0\0\0\0" QUESTION "\xc0\x0c\0\x0c\0\1\0\0\0\1\0\6\1a\2bc\0"));
}

static void test_what_does_not_fit(void)
{
        char text[600];
        uint8_t to[512];
        struct dns_query q = parse(BYTES(HEAD(ONE_AND_OPT) QUESTION OPT("\x02\x00", "\0")));
        struct dns_reply no = {
                .rcode = DNS_NXDOMAIN, .has_error = true, .error = DNS_EDE_BLOCKED, .error_text = "no_rule"};
        size_t n;

        memset(text, 'x', sizeof(text) - 1);
        text[sizeof(text) - 1] = '\0';
        n = dns_build(&q, &no, to, sizeof(to));
        no.more_text = text;
        CU_ASSERT_EQUAL(dns_build(&q, &no, to, sizeof(to)), n); /* the explanation is left out, the reason stays */
        CU_ASSERT_EQUAL(to[2] & 2, 0);
        n = dns_build(&q, &(struct dns_reply){.ptr = text}, to, sizeof(to));
        CU_ASSERT_TRUE(n < sizeof(to) && (to[2] & 2) && to[7] == 0 && to[11] == 1); /* TC, no record, the OPT */
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"question", test_question},
                {"edns", test_edns},
                {"malformed", test_malformed},
                {"long names", test_long_names},
                {"odd labels are no text", test_odd_labels_are_no_text},
                {"reverse", test_reverse},
                {"answers", test_answers},
                {"what does not fit", test_what_does_not_fit},
                CU_TEST_INFO_NULL,
        };

        return suite_run("dns_message", tests);
}
