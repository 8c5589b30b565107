/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/dns_cache.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/clock.h"
#include "tests/support/suite.h"

static struct hostname name_of(const char *text)
{
        struct hostname h;

        CU_ASSERT_EQUAL_FATAL(hostname_parse(text, strlen(text), &h), 0);
        return h;
}

static const struct dns_answer failure = {.reason = REASON_DNS_FAILURE};

static void test_lifetime(void)
{
        struct dns_answer good = {.reason = REASON_ALLOWED, .addresses_n = 1};

        CU_ASSERT_EQUAL(dns_cache_lifetime_ns(&good, 0, 300), 0);
        CU_ASSERT_EQUAL(dns_cache_lifetime_ns(&good, 1, 300), DNS_TTL_FLOOR_S * NSEC_PER_SEC);
        CU_ASSERT_EQUAL(dns_cache_lifetime_ns(&good, 60, 300), 60 * NSEC_PER_SEC);
        CU_ASSERT_EQUAL(dns_cache_lifetime_ns(&good, UINT32_MAX, 300), 300 * NSEC_PER_SEC);
        CU_ASSERT_EQUAL(dns_cache_lifetime_ns(&good, 60, 0), 0);
        CU_ASSERT_EQUAL(dns_cache_lifetime_ns(&failure, UINT32_MAX, 300), DNS_TTL_NEGATIVE_S * NSEC_PER_SEC);
        CU_ASSERT_EQUAL(dns_cache_lifetime_ns(&failure, UINT32_MAX, 1), NSEC_PER_SEC);
}

static void test_expires(void)
{
        struct dns_cache *c;
        struct hostname a = name_of("a.example.org"), b = name_of("b.example.org");

        CU_ASSERT_EQUAL_FATAL(dns_cache_new(8, 1, &c), 0);
        CU_ASSERT_EQUAL(dns_cache_put(c, &a, &failure, 100), 0);
        CU_ASSERT_PTR_NULL(dns_cache_get(c, &b, 0));
        CU_ASSERT_PTR_NOT_NULL(dns_cache_get(c, &a, 99));
        CU_ASSERT_PTR_NULL(dns_cache_get(c, &a, 100));
        CU_ASSERT_EQUAL(dns_cache_count(c), 0);
        dns_cache_free(c);
}

static void test_bound_drops_the_least_recently_used(void)
{
        struct dns_cache *c;
        struct hostname first = name_of("n0.example.org"), second = name_of("n1.example.org");
        char text[32];

        CU_ASSERT_EQUAL_FATAL(dns_cache_new(8, 7, &c), 0);
        for (unsigned i = 0; i < 8; i++) {
                struct hostname h;

                (void)snprintf(text, sizeof(text), "n%u.example.org", i);
                h = name_of(text);
                CU_ASSERT_EQUAL(dns_cache_put(c, &h, &failure, 100), 0);
        }
        CU_ASSERT_PTR_NOT_NULL(dns_cache_get(c, &first, 1));

        struct hostname more = name_of("more.example.org");
        CU_ASSERT_EQUAL(dns_cache_put(c, &more, &failure, 100), 0);
        CU_ASSERT_EQUAL(dns_cache_count(c), 8);
        CU_ASSERT_PTR_NOT_NULL(dns_cache_get(c, &first, 1));
        CU_ASSERT_PTR_NULL(dns_cache_get(c, &second, 1));
        dns_cache_free(c);
}

static void test_replaces(void)
{
        struct {
                struct dns_answer answer;
                struct dns_address addresses[2];
        } two = {.answer = {.reason = REASON_ALLOWED, .addresses_n = 2}};
        struct dns_cache *c;
        struct hostname a = name_of("a.example.org");

        CU_ASSERT_EQUAL_FATAL(dns_cache_new(8, 1, &c), 0);
        CU_ASSERT_EQUAL(dns_cache_put(c, &a, &failure, 100), 0);
        CU_ASSERT_EQUAL(dns_cache_put(c, &a, &two.answer, 200), 0);
        CU_ASSERT_EQUAL(dns_cache_count(c), 1);

        const struct dns_answer *got = dns_cache_get(c, &a, 150);
        CU_ASSERT_PTR_NOT_NULL_FATAL(got);
        CU_ASSERT_EQUAL(got->reason, REASON_ALLOWED);
        CU_ASSERT_EQUAL(got->addresses_n, 2);
        dns_cache_free(c);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"how long an answer is kept", test_lifetime},
                {"answers expire", test_expires},
                {"the least recently used goes first", test_bound_drops_the_least_recently_used},
                {"a newer answer replaces", test_replaces},
                CU_TEST_INFO_NULL,
        };

        return suite_run("dns_cache", tests);
}
