/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/fake_pool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/clock.h"
#include "tests/support/suite.h"

#define QUIET_NS (FAKE_POOL_QUIET_S * NSEC_PER_SEC)

static struct hostname name_of(unsigned i)
{
        struct hostname h;
        char text[32];

        (void)snprintf(text, sizeof(text), "n%u.example.org", i);
        CU_ASSERT_EQUAL_FATAL(hostname_parse(text, strlen(text), &h), 0);
        return h;
}

static uint32_t give(struct fake_pool *p, unsigned i, uint64_t now_ns)
{
        struct hostname h = name_of(i);
        uint32_t address = 0;

        CU_ASSERT_EQUAL(fake_pool_give(p, &h, now_ns, &address), 0);
        CU_ASSERT_TRUE(fake_pool_has(address));
        return address;
}

static void test_stable_and_distinct(void)
{
        struct fake_pool *p;
        uint32_t *all = calloc(FAKE_POOL_NAMES_MAX, sizeof(*all));
        char name[32];

        CU_ASSERT_EQUAL_FATAL(fake_pool_new(FAKE_POOL_NAMES_MAX, &p), 0);
        for (unsigned i = 0; i < FAKE_POOL_NAMES_MAX; i++)
                all[i] = give(p, i, 1);
        for (unsigned i = 0; i < FAKE_POOL_NAMES_MAX; i++) {
                (void)snprintf(name, sizeof(name), "n%u.example.org", i);
                CU_ASSERT_EQUAL(give(p, i, 2), all[i]);
                CU_ASSERT_STRING_EQUAL(fake_pool_name(p, all[i]), name);
        }
        fake_pool_free(p);
        CU_ASSERT_EQUAL_FATAL(fake_pool_new(4, &p), 0); /* another life, the same address */
        CU_ASSERT_EQUAL(give(p, 0, 1), all[0]);
        fake_pool_free(p);
        free(all);
}

static void test_least_recently_used_goes(void)
{
        struct hostname h = name_of(9);
        struct fake_pool *p;
        uint32_t a[3], address;

        CU_ASSERT_EQUAL_FATAL(fake_pool_new(3, &p), 0);
        for (unsigned i = 0; i < 3; i++)
                a[i] = give(p, i, i);
        CU_ASSERT_EQUAL(fake_pool_give(p, &h, QUIET_NS - 1, &address), -ENOSPC); /* clients may know all three */
        (void)give(p, 0, QUIET_NS);
        (void)give(p, 9, QUIET_NS + 2);
        CU_ASSERT_PTR_NULL(fake_pool_name(p, a[1]));
        CU_ASSERT_PTR_NOT_NULL(fake_pool_name(p, a[0]));
        CU_ASSERT_PTR_NOT_NULL(fake_pool_name(p, a[2]));
        fake_pool_free(p);
}

static void test_a_living_connection_keeps_its_name(void)
{
        struct hostname h = name_of(9);
        struct fake_pool *p;
        uint32_t a, b, address;

        CU_ASSERT_EQUAL_FATAL(fake_pool_new(2, &p), 0);
        a = give(p, 0, 0);
        b = give(p, 1, 0);
        CU_ASSERT_STRING_EQUAL(fake_pool_hold(p, a, 1), "n0.example.org");
        CU_ASSERT_STRING_EQUAL(fake_pool_hold(p, a, 1), "n0.example.org");
        CU_ASSERT_STRING_EQUAL(fake_pool_hold(p, b, 2), "n1.example.org");
        fake_pool_release(p, a);
        CU_ASSERT_EQUAL(fake_pool_give(p, &h, 1000 * QUIET_NS, &address), -ENOSPC);
        fake_pool_release(p, b);
        CU_ASSERT_EQUAL(fake_pool_give(p, &h, 1000 * QUIET_NS, &address), 0);
        CU_ASSERT_STRING_EQUAL(fake_pool_name(p, a), "n0.example.org");
        CU_ASSERT_PTR_NULL(fake_pool_hold(p, b, 0));
        fake_pool_release(p, a);
        fake_pool_free(p);
}

static void test_the_range(void)
{
        CU_ASSERT_TRUE(fake_pool_has(0xc6120000) && fake_pool_has(0xc613ffff));
        CU_ASSERT_FALSE(fake_pool_has(0xc611ffff) || fake_pool_has(0xc6140000) || fake_pool_has(0x7f000001));
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"stable and distinct", test_stable_and_distinct},
                {"the least recently used goes", test_least_recently_used_goes},
                {"a living connection keeps its name", test_a_living_connection_keeps_its_name},
                {"the range", test_the_range},
                CU_TEST_INFO_NULL,
        };

        return suite_run("fake_pool", tests);
}
