/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/address.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/cleanup.h"
#include "tests/support/cases.h"

static void test_floor_of_the_contract(void)
{
        static const struct floor floor = {0};

        CASES_FOREACH ("floor.json", c) {
                const char *text = case_text(c, "host") ? case_text(c, "host") : case_text(c, "address");
                const char *want = case_text(c, "range");
                struct hostname host;
                const char *got;
                int r = case_text(c, "host") ? hostname_parse(text, strlen(text), &host)
                                             : hostname_parse_address(text, strlen(text), &host);

                CASE_CHECK(c, r == 0);
                if (r != 0)
                        continue;
                got = host.kind == HOST_NAME ? floor_denies_name(&floor, &host) : floor_denies_address(&floor, &host);
                CASE_CHECK(c, (want == NULL) == (got == NULL));
                CASE_CHECK(c, !want || (got && strcmp(got, want) == 0));
                CASE_CHECK(c, (want != NULL) == json_is_true(json_object_get(c, "floor")));
        }
}

/* Each range's text is the range: a table with a slip in a byte would deny elsewhere. */
static void test_floor_texts_are_their_ranges(void)
{
        static const struct floor floor = {0};

        CASES_FOREACH ("floor.json", c) {
                const char *range = case_text(c, "range");
                struct prefix p;
                struct hostname first;

                if (!range || !strchr(range, '/'))
                        continue;
                CASE_CHECK(c, prefix_parse(range, strlen(range), &p) == 0);
                hostname_from_address(p.kind, p.address, &first);
                CASE_CHECK(c, strcmp(floor_denies_address(&floor, &first), range) == 0);
                for (unsigned bit = p.bits; bit < (p.kind == HOST_IPV4 ? 32u : 128u); bit++)
                        first.address[bit / 8] |= (uint8_t)(0x80 >> bit % 8);
                CASE_CHECK(c, strcmp(floor_denies_address(&floor, &first), range) == 0);
        }
}

static void test_prefixes(void)
{
        static const struct {
                const char *text;
                int r;
                const char *canonical;
        } table[] = {
                {"203.0.114.0/24", 0, "203.0.114.0/24"},
                {"203.0.114.7", 0, "203.0.114.7"},
                {"203.0.114.7/32", 0, "203.0.114.7"},
                {"0.0.0.0/0", 0, "0.0.0.0/0"},
                {"::/0", 0, "::/0"},
                {"2001:4860::/32", 0, "2001:4860::/32"},
                {"2606:4700:8000::/33", 0, "2606:4700:8000::/33"},
                {"10.0.0.1/8", PREFIX_E_HOST_PART, "10.0.0.0/8"},
                {"10.255.255.255/9", PREFIX_E_HOST_PART, "10.128.0.0/9"},
                {"1.2.3.4/0", PREFIX_E_HOST_PART, "0.0.0.0/0"},
                {"2001:4860::8888/32", PREFIX_E_HOST_PART, "2001:4860::/32"},
                {"2001:4860::1/127", PREFIX_E_HOST_PART, "2001:4860::/127"},
                {"10.0.0.0/33", PREFIX_E_MALFORMED, NULL},
                {"::/129", PREFIX_E_MALFORMED, NULL},
                {"10.0.0.0/08", PREFIX_E_MALFORMED, NULL},
                {"10.0.0.0/", PREFIX_E_MALFORMED, NULL},
                {"10.0.0.0/+8", PREFIX_E_MALFORMED, NULL},
                {"10.0.0.0/8/8", PREFIX_E_MALFORMED, NULL},
                {"10.0/8", PREFIX_E_MALFORMED, NULL},
                {"/8", PREFIX_E_MALFORMED, NULL},
                {"", PREFIX_E_MALFORMED, NULL},
                {"[::]/0", PREFIX_E_MALFORMED, NULL},
                {"example.org/24", PREFIX_E_MALFORMED, NULL},
        };

        for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
                struct prefix p;
                char text[PREFIX_TEXT_MAX];
                int r = prefix_parse(table[i].text, strlen(table[i].text), &p);

                CU_ASSERT_EQUAL(r, table[i].r);
                if (r == PREFIX_E_MALFORMED || !table[i].canonical)
                        continue;
                prefix_format(&p, text);
                CU_ASSERT_STRING_EQUAL(text, table[i].canonical);
        }
}

/* An operator who forbids all of IPv6 has said nothing of IPv4. */
static void test_families_are_apart(void)
{
        struct prefix all4, all6;
        struct hostname four, six;

        CU_ASSERT_EQUAL_FATAL(prefix_parse("0.0.0.0/0", 9, &all4), 0);
        CU_ASSERT_EQUAL_FATAL(prefix_parse("::/0", 4, &all6), 0);
        CU_ASSERT_EQUAL_FATAL(hostname_parse_address("8.8.8.8", 7, &four), 0);
        CU_ASSERT_EQUAL_FATAL(hostname_parse_address("::ffff:8.8.8.8", 14, &six), 0);
        CU_ASSERT_TRUE(prefix_contains(&all4, &four));
        CU_ASSERT_TRUE(prefix_contains(&all6, &six));
        CU_ASSERT_FALSE(prefix_contains(&all4, &six));
        CU_ASSERT_FALSE(prefix_contains(&all6, &four));
}

static void test_an_operator_adds_to_the_floor(void)
{
        struct floor floor = {0};
        struct prefix range;
        struct hostname name, below, address, other;

        CU_ASSERT_EQUAL_FATAL(prefix_parse("203.0.114.0/24", 14, &range), 0);
        CU_ASSERT_EQUAL_FATAL(hostname_parse("corp.example", 12, &name), 0);
        CU_ASSERT_EQUAL_FATAL(hostname_parse("db.corp.example", 15, &below), 0);
        CU_ASSERT_EQUAL_FATAL(hostname_parse("mycorp.example", 14, &other), 0);
        CU_ASSERT_EQUAL_FATAL(hostname_parse_address("203.0.114.9", 11, &address), 0);
        CU_ASSERT_PTR_NULL(floor_denies_address(&floor, &address));
        CU_ASSERT_PTR_NULL(floor_denies_name(&floor, &below));
        CU_ASSERT_EQUAL_FATAL(floor_add_range(&floor, &range), 0);
        CU_ASSERT_EQUAL_FATAL(floor_add_name(&floor, &name), 0);
        CU_ASSERT_STRING_EQUAL(floor_denies_address(&floor, &address), "203.0.114.0/24");
        CU_ASSERT_STRING_EQUAL(floor_denies_name(&floor, &below), "corp.example");
        CU_ASSERT_STRING_EQUAL(floor_denies_name(&floor, &name), "corp.example");
        CU_ASSERT_PTR_NULL(floor_denies_name(&floor, &other));
        floor_done(&floor);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"the floor of the contract", test_floor_of_the_contract},
                {"floor texts are their ranges", test_floor_texts_are_their_ranges},
                {"prefixes", test_prefixes},
                {"families are apart", test_families_are_apart},
                {"an operator adds to the floor", test_an_operator_adds_to_the_floor},
                CU_TEST_INFO_NULL,
        };

        return cases_run("address", tests);
}
