/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/capacity.h"

#include "tests/support/suite.h"

static struct capacity_share divide(uint64_t fds, uint64_t bytes, size_t vms_n, size_t workers_n)
{
        const struct capacity c = {.fds = fds, .bytes = bytes};
        struct capacity_share share;

        capacity_divide(&c, vms_n, workers_n, &share);
        return share;
}

/* All shares together, with the pipes, are never more than there is. */
static void test_shares_fit(void)
{
        for (uint64_t fds = 1024; fds <= 1 << 20; fds *= 2)
                for (size_t vms_n = 1; vms_n <= 64; vms_n++) {
                        struct capacity_share s = divide(fds, UINT64_C(1) << 34, vms_n, 4);

                        CU_ASSERT(s.sessions * vms_n * 2 + s.relay_pipes * 4 * 2 + vms_n * 4 <= fds);
                        CU_ASSERT(s.bytes * vms_n <= UINT64_C(1) << 33);
                        CU_ASSERT(s.sessions >= 1 && s.relay_pipes >= 1);
                }
}

static void test_bounds(void)
{
        struct capacity_share plenty = divide(UINT64_MAX, UINT64_MAX, 1, 1), little = divide(16, 1 << 20, 1000, 8);

        CU_ASSERT_EQUAL(plenty.sessions, CAPACITY_SESSIONS_MAX);
        CU_ASSERT_EQUAL(plenty.bytes, CAPACITY_BYTES_MAX);
        CU_ASSERT_EQUAL(little.sessions, 1);
        CU_ASSERT(little.bytes >= 65536);
}

static void test_measured(void)
{
        struct capacity c;

        capacity_measure(&c);
        CU_ASSERT(c.fds >= 64);
        CU_ASSERT(c.bytes >= 1 << 20 && c.bytes < UINT64_MAX);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"shares fit", test_shares_fit},
                {"bounds", test_bounds},
                {"measured", test_measured},
                CU_TEST_INFO_NULL,
        };

        return suite_run("capacity", tests);
}
