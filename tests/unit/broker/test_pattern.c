/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/pattern.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/cases.h"

/* Does the message have one of the words that the case asks for? */
static bool says(const json_t *c, const char *message)
{
        const json_t *say = json_object_get(c, "say");

        if (!say)
                return true;
        if (json_is_string(say))
                return strstr(message, json_string_value(say));
        for (size_t i = 0; i < json_array_size(say); i++)
                if (strstr(message, json_string_value(json_array_get(say, i))))
                        return true;
        return false;
}

static void test_patterns_of_the_contract(void)
{
        CASES_FOREACH ("patterns.json", c) {
                const char *text = case_text(c, "pattern"), *host_text = case_text(c, "host");
                char message[PATTERN_MESSAGE_BYTES] = "";
                struct pattern pattern;
                struct hostname host;
                char formatted[PATTERN_TEXT_BYTES];
                int r = pattern_parse(text, strlen(text), &pattern, message, sizeof(message));

                CASE_CHECK(c, r == (host_text ? 0 : PATTERN_E_INVALID));
                CASE_CHECK(c, host_text || says(c, message));
                if (r != 0 || !host_text)
                        continue;
                CASE_CHECK(c, hostname_parse(host_text, strlen(host_text), &host) == 0);
                CASE_CHECK(c, pattern_matches(&pattern, &host) == json_is_true(json_object_get(c, "match")));
                pattern_format(&pattern, formatted);
                CASE_CHECK(c, strcmp(formatted, text) == 0);
        }
}

static const struct {
        const char *text, *say; /* say: NULL where it is accepted */
} spellings[] = {
        {"::ffff:0:0/96", NULL},
        {"::ffff:0.0.0.0/96", NULL},
        {"::ffff:1.2.3.4", NULL},
        {"::ffff:102:304", NULL},
        {"64:ff9b::/96", NULL},
        {"64:ff9b::808:808", NULL},
        {"64:ff9b::8.8.8.8", NULL},
        {"203.0.114.7/32", NULL},
        {"10.0.0.0/8", NULL},
        {"localhost", NULL},
        {"xn--", NULL},
        {"xn--a.example.org", NULL},
        {"a-.-b.example.org", NULL},
        {"2606:4700::8.8.8.8", "write 2606:4700::808:808"},
        {"2606:4700:0::/48", "write 2606:4700::/48"},
        {"127.1/8", "write 127.0.0.0/8"},
        {"203.0.114.0/024", "CIDR"},
        {"[2606:4700::1111]", "write 2606:4700::1111"},
        {"[2606:4700::1111]:443", "write 2606:4700::1111"},
        {"https://User@WWW.Example.org:8443/a/b?c", "write www.example.org"},
        {"https://*.Example.org./x", "write *.example.org"},
        {"https://203.0.114.7/x", "write 203.0.114.7"},
        {"fa\xc3\x9f.de", "write xn--fa-hia.de"},
        {"\xef\xbc\xa5xample.org", "write example.org"},
        {"example\xe3\x80\x82org", "write example.org"},
        {"\xe2\x84\xaa"
         "elvin.example.org",
                "write kelvin.example.org"},
        {"*.\xe5\x85\xac\xe5\x8f\xb8.cn", "public suffix"},
        {"**.B\xc3\xbc"
         "cher.Example",
                "write **.xn--bcher-kva.example"},
        {"\xff\xfe", "A-label"},
        {"*.localhost", "public suffix"},
        {"*.203.0.114.7", "CIDR"},
        {"**", "network: public"},
        {"**.", "network: public"},
        {"*", "network: public"},
        {"", "empty"},
        {"*.example.org/24", "write *.example.org"},
        {"a\\b.org", "labels"},
        {"08", "address"},
        {"1.2.3.4.5.6", "address"},
        {"example.0x1f", "number"},
        {"::1%lo", "address"},
        {"a:b", "port"},
        {"/24", "path"},
};

static void test_right_spelling_is_in_the_message(void)
{
        for (size_t i = 0; i < sizeof(spellings) / sizeof(*spellings); i++) {
                char message[PATTERN_MESSAGE_BYTES] = "";
                struct pattern pattern;
                int r = pattern_parse(spellings[i].text, strlen(spellings[i].text), &pattern, message, sizeof(message));

                if ((r == 0) != (spellings[i].say == NULL) || (r != 0 && !strstr(message, spellings[i].say))) {
                        printf("\n%s: %s", spellings[i].text, message);
                        CU_FAIL("another answer");
                }
        }
}

static void test_long_texts_are_refused(void)
{
        size_t n = 1 << 20;
        char *text = malloc(n);
        char message[PATTERN_MESSAGE_BYTES];
        struct pattern pattern;

        CU_ASSERT_PTR_NOT_NULL_FATAL(text);
        memset(text, 'a', n);
        CU_ASSERT_EQUAL(pattern_parse(text, n, &pattern, message, sizeof(message)), PATTERN_E_INVALID);
        CU_ASSERT_EQUAL(pattern_parse(text, 300, &pattern, message, sizeof(message)), PATTERN_E_INVALID);
        CU_ASSERT_EQUAL(pattern_parse("a\0b", 3, &pattern, message, sizeof(message)), PATTERN_E_INVALID);
        CU_ASSERT_EQUAL(pattern_parse(text, n, &pattern, message, 3), PATTERN_E_INVALID);
        CU_ASSERT_EQUAL(strlen(message), 2);
        free(text);
}

/* Most specific first. */
static void test_order_of_specificity(void)
{
        static const char *const names[] = {
                "a.example.org", "*.a.example.org", "**.a.example.org", "*.example.org", "**.example.org"};
        static const char *const addresses[] = {"203.0.114.7", "203.0.114.0/24", "203.0.0.0/16", "0.0.0.0/0"};
        const struct {
                const char *const *texts;
                size_t n;
        } orders[] = {{names, 5}, {addresses, 4}};

        for (size_t o = 0; o < 2; o++)
                for (size_t i = 0; i < orders[o].n; i++)
                        for (size_t j = 0; j < orders[o].n; j++) {
                                const char *a_text = orders[o].texts[i], *b_text = orders[o].texts[j];
                                char message[PATTERN_MESSAGE_BYTES];
                                struct pattern a, b;
                                int order;

                                CU_ASSERT_EQUAL_FATAL(
                                        pattern_parse(a_text, strlen(a_text), &a, message, sizeof(message)), 0);
                                CU_ASSERT_EQUAL_FATAL(
                                        pattern_parse(b_text, strlen(b_text), &b, message, sizeof(message)), 0);
                                order = pattern_compare(&a, &b);
                                CU_ASSERT_EQUAL((order > 0) - (order < 0), (i < j) - (i > j));
                        }
}

static bool covers(const char *a_text, const char *b_text)
{
        char message[PATTERN_MESSAGE_BYTES];
        struct pattern a, b;

        CU_ASSERT_EQUAL_FATAL(pattern_parse(a_text, strlen(a_text), &a, message, sizeof(message)), 0);
        CU_ASSERT_EQUAL_FATAL(pattern_parse(b_text, strlen(b_text), &b, message, sizeof(message)), 0);
        return pattern_covers(&a, &b);
}

/* Each covers those behind it in its row and none of the other rows, but of equals. */
static void test_what_covers_what(void)
{
        static const char *const rows[][4] = {
                {"**.a.org", "*.a.org", "**.b.a.org", "x.b.a.org"},
                {"**.c.org", "c.org"},
                {"**.xa.org", "*.xa.org", "*.y.xa.org"},
                {"0.0.0.0/0", "8.0.0.0/8", "8.8.8.0/24", "8.8.8.8"},
                {"2000::/3", "2001:4860::/32", "2001:4860::8888"},
                {"::/3", "::/4"},
        };
        const size_t n = sizeof(rows) / sizeof(*rows);

        for (size_t r = 0; r < n; r++)
                for (size_t q = 0; q < n; q++)
                        for (size_t i = 0; i < 4 && rows[r][i]; i++)
                                for (size_t k = 0; k < 4 && rows[q][k]; k++)
                                        CU_ASSERT_EQUAL(covers(rows[r][i], rows[q][k]), r == q && i <= k);
        CU_ASSERT_FALSE(covers("*.a.org", "a.org"));
        CU_ASSERT_FALSE(covers("a.org", "*.a.org"));
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"patterns of the contract", test_patterns_of_the_contract},
                {"the right spelling is in the message", test_right_spelling_is_in_the_message},
                {"long texts are refused", test_long_texts_are_refused},
                {"order of specificity", test_order_of_specificity},
                {"what covers what", test_what_covers_what},
                CU_TEST_INFO_NULL,
        };

        return cases_run("pattern", tests);
}
