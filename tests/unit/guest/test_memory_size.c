/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/memory_size.h"

#include "tests/support/suite.h"

#define MIB  UINT64_C(0x100000)
#define PAGE UINT64_C(4096)

static void test_reserve(void)
{
        static const struct {
                uint64_t total_bytes, used_before_bytes, reserve_bytes;
        } rows[] = {
                {64 * MIB, 10 * MIB, 18 * MIB},      /* the margin's least */
                {256 * MIB, 40 * MIB, 56 * MIB},     /* a sixteenth */
                {16384 * MIB, 100 * MIB, 228 * MIB}, /* its most */
                {2048 * MIB, 100 * MIB, 228 * MIB},  /* just that */
                {64 * MIB, 24 * MIB, 32 * MIB},      /* half, just */
                {64 * MIB, 25 * MIB, 32 * MIB},      /* half is for the commands, whatever is used */
                {64 * MIB, 60 * MIB, 32 * MIB},      /* a balloon took what there was */
                {64 * MIB, UINT64_MAX, 32 * MIB},
                {8 * MIB, 0, 4 * MIB},
                {0, 0, 0},
        };

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
                CU_ASSERT_EQUAL(
                        memory_size_reserve(rows[i].total_bytes, rows[i].used_before_bytes), rows[i].reserve_bytes);
}

static void test_ceiling(void)
{
        CU_ASSERT_EQUAL(memory_size_ceiling(256 * MIB, 40 * MIB, PAGE), 200 * MIB);
        CU_ASSERT_EQUAL(memory_size_ceiling(256 * MIB, 40 * MIB + 1, PAGE), 200 * MIB - PAGE);
        CU_ASSERT_EQUAL(memory_size_ceiling(512 * MIB, 40 * MIB, PAGE), 440 * MIB);
        CU_ASSERT_EQUAL(memory_size_ceiling(0, 40 * MIB, PAGE), 0);
}

/* As mm/shmem.c counts: whole pages of the whole. */
static void test_shares(void)
{
        CU_ASSERT_EQUAL(memory_size_of_percent(256 * MIB, 50, PAGE), 128 * MIB);
        CU_ASSERT_EQUAL(memory_size_of_percent(3 * PAGE, 50, PAGE), PAGE);
        CU_ASSERT_EQUAL(memory_size_of_percent(3 * PAGE, 100, PAGE), 3 * PAGE);
        CU_ASSERT_EQUAL(memory_size_of_percent(199 * PAGE, 1, PAGE), PAGE);
        CU_ASSERT_EQUAL(memory_size_of_percent(UINT64_MAX, 100, PAGE), UINT64_MAX / PAGE * PAGE);
        CU_ASSERT_EQUAL(memory_size_inodes(256 * MIB, 50, PAGE), 32768);
        CU_ASSERT_EQUAL(memory_size_inodes(256 * MIB, 0, PAGE), 0);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"reserve", test_reserve},
                {"ceiling", test_ceiling},
                {"shares", test_shares},
                CU_TEST_INFO_NULL,
        };

        return suite_run("memory_size", tests);
}
