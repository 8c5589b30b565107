/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbvsock/memory.h"

#include <CUnit/Basic.h>
#include <errno.h>

static uint8_t low[4096], high[4096];

/* Two regions that follow each other in the guest and nowhere else. */
static struct memory two_regions(void)
{
        struct memory m = {0};
        struct memory_region a = {.guest_addr = 0x1000, .user_addr = 0x70000000, .size_bytes = 4096, .at = low};
        struct memory_region b = {.guest_addr = 0x2000, .user_addr = 0x90000000, .size_bytes = 4096, .at = high};

        CU_ASSERT_EQUAL_FATAL(memory_add(&m, &a), 0);
        CU_ASSERT_EQUAL_FATAL(memory_add(&m, &b), 0);
        return m;
}

static void test_finds_guest_addresses(void)
{
        struct memory m = two_regions();
        uint64_t n = 0;

        CU_ASSERT_PTR_EQUAL(memory_from_guest(&m, 0x1000, 1, &n), low);
        CU_ASSERT_EQUAL(n, 1);
        CU_ASSERT_PTR_EQUAL(memory_from_guest(&m, 0x1ff0, 100, &n), low + 0xff0);
        CU_ASSERT_EQUAL(n, 16);
        CU_ASSERT_PTR_EQUAL(memory_from_guest(&m, 0x2000, UINT64_MAX, &n), high);
        CU_ASSERT_EQUAL(n, 4096);
        CU_ASSERT_PTR_NULL(memory_from_guest(&m, 0xfff, 2, &n));
        CU_ASSERT_PTR_NULL(memory_from_guest(&m, 0x3000, 1, &n));
        CU_ASSERT_PTR_NULL(memory_from_guest(&m, UINT64_MAX, 1, &n));
}

static void test_user_ranges_lie_in_one_region(void)
{
        struct memory m = two_regions();

        CU_ASSERT_PTR_EQUAL(memory_from_user(&m, 0x70000000, 4096), low);
        CU_ASSERT_PTR_EQUAL(memory_from_user(&m, 0x90000fff, 1), high + 4095);
        CU_ASSERT_PTR_NULL(memory_from_user(&m, 0x70000000, 4097));
        CU_ASSERT_PTR_NULL(memory_from_user(&m, 0x70000fff, 2));
        CU_ASSERT_PTR_NULL(memory_from_user(&m, 0x70000001, UINT64_MAX));
        CU_ASSERT_PTR_NULL(memory_from_user(&m, 0x1000, 1));
}

static void test_refuses_bad_regions(void)
{
        static const struct {
                struct memory_region region;
                int error;
        } cases[] = {
                {{.guest_addr = 0, .user_addr = 0, .size_bytes = 0}, -EINVAL},
                {{.guest_addr = UINT64_MAX - 2, .user_addr = 0, .size_bytes = 2}, 0},
                {{.guest_addr = UINT64_MAX - 1, .user_addr = 0, .size_bytes = 2}, -EINVAL},
                {{.guest_addr = 0, .user_addr = UINT64_MAX, .size_bytes = 2}, -EINVAL},
                {{.guest_addr = 0x1fff, .user_addr = 0, .size_bytes = 1}, -EINVAL},
                {{.guest_addr = 0, .user_addr = 0, .size_bytes = 0x1001}, -EINVAL},
                {{.guest_addr = 0, .user_addr = 0, .size_bytes = 0x1000}, 0},
                {{.guest_addr = 0x3000, .user_addr = 0x70000fff, .size_bytes = 1}, -EINVAL},
        };

        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
                struct memory m = two_regions();

                CU_ASSERT_EQUAL(memory_add(&m, &cases[i].region), cases[i].error);
        }
}

static void test_table_is_bounded(void)
{
        struct memory m = {0};

        for (uint64_t i = 0; i <= MEMORY_REGIONS_MAX; i++) {
                struct memory_region r = {.guest_addr = i << 20, .user_addr = i << 20, .size_bytes = 1, .at = low};

                CU_ASSERT_EQUAL(memory_add(&m, &r), i < MEMORY_REGIONS_MAX ? 0 : -ENOSPC);
        }
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"finds guest addresses", test_finds_guest_addresses},
                {"user ranges lie in one region", test_user_ranges_lie_in_one_region},
                {"refuses bad regions", test_refuses_bad_regions},
                {"the table is bounded", test_table_is_bounded},
                CU_TEST_INFO_NULL,
        };
        CU_SuiteInfo suites[] = {{"wbvsock memory", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

        if (CU_initialize_registry() || CU_register_suites(suites))
                return CU_get_error();
        CU_basic_set_mode(CU_BRM_VERBOSE);
        CU_basic_run_tests();

        unsigned failed = CU_get_number_of_failures();
        CU_cleanup_registry();
        return failed ? 1 : 0;
}
