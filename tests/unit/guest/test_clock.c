/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/clock.h"

#include <errno.h>

#include "proto/base/clock.h"
#include "tests/support/suite.h"

#define T2026 (UINT64_C(1767225600) * NSEC_PER_SEC)

/* The guest is 75 h behind; the host read its clock in the middle of a round trip of 2 ms. */
static void test_offset_takes_the_round_trip_into_account(void)
{
        struct clock_exchanges e = {0};
        uint64_t behind_ns = 75 * 3600 * NSEC_PER_SEC;

        CU_ASSERT_EQUAL(
                clock_exchange_add(&e, 5000, 5000 + 2 * NSEC_PER_MSEC, T2026, T2026 + behind_ns - NSEC_PER_MSEC), 0);
        CU_ASSERT_EQUAL(e.best.offset_ns, (int64_t)behind_ns);
        CU_ASSERT_EQUAL(e.best.bound_ns, NSEC_PER_MSEC);
}

static void test_least_round_trip_wins(void)
{
        struct clock_exchanges e = {0};

        CU_ASSERT_EQUAL(clock_exchange_add(&e, 0, 9000, T2026, T2026 + 700), 0);
        CU_ASSERT_EQUAL(clock_exchange_add(&e, 0, 100, T2026, T2026 + 50), 0);
        CU_ASSERT_EQUAL(clock_exchange_add(&e, 0, 5000, T2026, T2026 + 900), 0);
        CU_ASSERT_EQUAL(e.done, 3);
        CU_ASSERT_EQUAL(e.best.offset_ns, 100);
        CU_ASSERT_EQUAL(e.best.bound_ns, 50);
}

/* Wherever in the round trip the host read its clock, the true offset is within the bound. */
static void test_bound_holds_at_both_ends(void)
{
        const int64_t truth_ns = -123456789;

        for (uint64_t at_ns = 0; at_ns <= 1001; at_ns++) {
                struct clock_exchanges e = {0};
                uint64_t guest_at_received_ns = T2026 + 1001;
                uint64_t host_ns = (uint64_t)((int64_t)(T2026 + at_ns) + truth_ns);
                int64_t error_ns;

                CU_ASSERT_EQUAL_FATAL(clock_exchange_add(&e, 0, 1001, guest_at_received_ns, host_ns), 0);
                error_ns = e.best.offset_ns - truth_ns;
                CU_ASSERT_TRUE_FATAL(error_ns <= (int64_t)e.best.bound_ns && -error_ns <= (int64_t)e.best.bound_ns);
        }
}

static void test_a_guest_at_1980_is_no_error(void)
{
        struct clock_exchanges e = {0};
        uint64_t guest_ns = UINT64_C(315532800) * NSEC_PER_SEC;

        CU_ASSERT_EQUAL(clock_exchange_add(&e, 0, 0, guest_ns, T2026), 0);
        CU_ASSERT_EQUAL(e.best.offset_ns, (int64_t)(T2026 - guest_ns));
}

static void test_times_that_cannot_be_are_refused(void)
{
        struct clock_exchanges e = {0};

        CU_ASSERT_EQUAL(clock_exchange_add(&e, 10, 9, T2026, T2026), -ERANGE);
        CU_ASSERT_EQUAL(clock_exchange_add(&e, 0, 61 * NSEC_PER_SEC, T2026, T2026), -ERANGE);
        CU_ASSERT_EQUAL(clock_exchange_add(&e, 0, 1, T2026, 0), -ERANGE);
        CU_ASSERT_EQUAL(clock_exchange_add(&e, 0, 1, T2026, UINT64_MAX), -ERANGE);
        CU_ASSERT_EQUAL(clock_exchange_add(&e, 0, 1, UINT64_MAX, T2026), -ERANGE);
        CU_ASSERT_EQUAL(e.done, 0);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"the offset takes the round trip into account", test_offset_takes_the_round_trip_into_account},
                {"the least round trip wins", test_least_round_trip_wins},
                {"the bound holds at both ends", test_bound_holds_at_both_ends},
                {"a guest at 1980 is no error", test_a_guest_at_1980_is_no_error},
                {"times that cannot be are refused", test_times_that_cannot_be_are_refused},
                CU_TEST_INFO_NULL,
        };

        return suite_run("clock", tests);
}
