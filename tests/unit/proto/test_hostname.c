/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/wire/hostname.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/cleanup.h"
#include "tests/support/cases.h"

static const char *const kinds[] = {[HOST_NAME] = "name", [HOST_IPV4] = "ipv4", [HOST_IPV6] = "ipv6"};

static void test_hosts_of_the_contract(void)
{
        CASES_FOREACH ("hosts.json", c) {
                size_t n;
                _cleanup_free_ char *input = case_bytes(c, "input", &n);
                struct hostname host;
                uint16_t port;
                int r = hostname_parse_with_port(input, n, &host, &port);

                CASE_CHECK(c, r == (case_text(c, "error") ? HOSTNAME_E_MALFORMED : 0));
                if (r != 0 || case_text(c, "error"))
                        continue;
                CASE_CHECK(c, case_is_one_of(c, "host", host.text));
                CASE_CHECK(c, host.length == strlen(host.text));
                CASE_CHECK(c, strcmp(case_text(c, "kind"), kinds[host.kind]) == 0);
                CASE_CHECK(c, port == json_integer_value(json_object_get(c, "port")));
        }
}

/* What was canonicalised once stays as it is: nothing downstream can get another spelling out of it. */
static void test_canonical_is_a_fixed_point(void)
{
        CASES_FOREACH ("hosts.json", c) {
                size_t n;
                _cleanup_free_ char *input = case_bytes(c, "input", &n);
                struct hostname host, again;
                char bracketed[HOSTNAME_MAX_BYTES + 3];
                uint16_t port;

                if (hostname_parse_with_port(input, n, &host, &port) != 0)
                        continue;
                (void)snprintf(bracketed, sizeof(bracketed), host.kind == HOST_IPV6 ? "[%s]" : "%s", host.text);
                CASE_CHECK(c, hostname_parse(bracketed, strlen(bracketed), &again) == 0);
                CASE_CHECK(c, memcmp(&host, &again, sizeof(host)) == 0);
        }
}

static void test_failure_leaves_the_result(void)
{
        struct hostname host, before;
        uint16_t port = 7;

        memset(&host, 0xa5, sizeof(host));
        before = host;
        CU_ASSERT_EQUAL(hostname_parse_with_port("example.org:0", 13, &host, &port), HOSTNAME_E_MALFORMED);
        CU_ASSERT_EQUAL(hostname_parse_with_port("exa mple.org:80", 15, &host, &port), HOSTNAME_E_MALFORMED);
        CU_ASSERT_EQUAL(hostname_parse_with_port("", 0, &host, &port), HOSTNAME_E_MALFORMED);
        CU_ASSERT_EQUAL(memcmp(&host, &before, sizeof(host)), 0);
        CU_ASSERT_EQUAL(port, 7);
}

static void test_addresses_have_no_old_forms(void)
{
        static const struct {
                const char *text, *want;
        } table[] = {
                {"203.0.114.7", "203.0.114.7"},
                {"2001:DB8:0:0::1", "2001:db8::1"},
                {"::ffff:203.0.114.7", "::ffff:203.0.114.7"},
                {"::8.8.8.8", "::808:808"},
                {"127.1", NULL},
                {"010.0.0.1", NULL},
                {"0x7f.0.0.1", NULL},
                {"1.2.3.4.", NULL},
                {"1.2.3.4 ", NULL},
                {"[::1]", NULL},
                {"fe80::1%lo", NULL},
                {"example.org", NULL},
                {"", NULL},
        };

        for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
                struct hostname host;
                int r = hostname_parse_address(table[i].text, strlen(table[i].text), &host);

                CU_ASSERT_EQUAL(r, table[i].want ? 0 : HOSTNAME_E_MALFORMED);
                if (table[i].want && r == 0)
                        CU_ASSERT_STRING_EQUAL(host.text, table[i].want);
        }
}

/* The bytes behind n are not the host's. */
static void test_reads_no_further_than_told(void)
{
        struct hostname host;

        CU_ASSERT_EQUAL(hostname_parse("127.0.0.1.example.org", 9, &host), 0);
        CU_ASSERT_STRING_EQUAL(host.text, "127.0.0.1");
        CU_ASSERT_EQUAL(hostname_parse_address("10.0.0.1/8", 8, &host), 0);
        CU_ASSERT_STRING_EQUAL(host.text, "10.0.0.1");
}

static void test_ipv6_is_written_as_rfc_5952(void)
{
        static const char *const same[] = {"::", "::1", "1::", "1::2:0:0:3", "1:0:0:2::", "0:1:0:1:0:1:0:1",
                "1:2:3:4:5:6:7:0", "::ffff:0.0.0.0", "::ffff:0:0:0", "64:ff9b::808:808", "::1:0:0",
                "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"};

        for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++) {
                struct hostname host;

                CU_ASSERT_EQUAL_FATAL(hostname_parse_address(same[i], strlen(same[i]), &host), 0);
                CU_ASSERT_STRING_EQUAL(host.text, same[i]);
        }
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"hosts of the contract", test_hosts_of_the_contract},
                {"canonical is a fixed point", test_canonical_is_a_fixed_point},
                {"failure leaves the result", test_failure_leaves_the_result},
                {"addresses have no old forms", test_addresses_have_no_old_forms},
                {"reads no further than told", test_reads_no_further_than_told},
                {"IPv6 is written as in RFC 5952", test_ipv6_is_written_as_rfc_5952},
                CU_TEST_INFO_NULL,
        };

        return cases_run("hostname", tests);
}
