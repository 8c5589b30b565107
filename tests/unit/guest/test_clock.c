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

#define PPM INT64_C(1000)

static void test_what_is_done_about_it(void)
{
        static const struct {
                int64_t offset_ns;
                uint64_t bound_ns;
                enum clock_action action;
        } rows[] = {
                {0, 0, CLOCK_LEAVE},
                {500, 500, CLOCK_LEAVE},
                {-500, 500, CLOCK_LEAVE},
                {-501, 500, CLOCK_SLEW},
                {(int64_t)CLOCK_SLEW_MOST_NS, 500, CLOCK_SLEW},
                {-(int64_t)CLOCK_SLEW_MOST_NS, 500, CLOCK_SLEW},
                {-(int64_t)CLOCK_SLEW_MOST_NS - 1, 500, CLOCK_STEP},
                {INT64_MIN, 500, CLOCK_STEP},
                {INT64_MAX, UINT64_MAX, CLOCK_LEAVE},
        };

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                struct clock_offset offset = {rows[i].offset_ns, rows[i].bound_ns};
                struct clock_mark none = {0};

                CU_ASSERT_EQUAL(clock_find(&none, &offset, 0, 0).action, rows[i].action);
                CU_ASSERT_FALSE(clock_find(&none, &offset, 0, UINT64_MAX).drift_known);
                CU_ASSERT_PTR_NOT_NULL(clock_action_name(rows[i].action));
        }
}

/* A clock that gains 20 ppm, looked at each minute, whatever is done about it. */
static void test_drift(void)
{
        const uint64_t minute_ns = 60 * NSEC_PER_SEC;
        const int64_t gain_ns = (int64_t)minute_ns / 1000000000 * 20 * PPM;
        struct clock_offset start = {12345678, 1000}, after = {-gain_ns, 1000};
        struct clock_mark mark = clock_mark_after(CLOCK_STEP, &start, 0);
        struct clock_finding f = clock_find(&mark, &after, 0, minute_ns);

        CU_ASSERT_TRUE(f.drift_known);
        CU_ASSERT_EQUAL(f.drift_ppb, 20 * PPM);
        CU_ASSERT_EQUAL(f.drift_bound_ppb, 33); /* 2 us in a minute */
        CU_ASSERT_EQUAL(f.action, CLOCK_SLEW);

        /* What was left alone is there still, beside what came. */
        mark = clock_mark_after(CLOCK_LEAVE, &start, 0);
        after.offset_ns = start.offset_ns - gain_ns;
        CU_ASSERT_EQUAL(clock_find(&mark, &after, 0, minute_ns).drift_ppb, 20 * PPM);

        /* A slew that is half done: the other half is part of the offset. */
        mark = clock_mark_after(CLOCK_SLEW, &start, 0);
        after.offset_ns = start.offset_ns / 2 - gain_ns;
        CU_ASSERT_EQUAL(clock_find(&mark, &after, start.offset_ns / 2, minute_ns).drift_ppb, 20 * PPM);

        CU_ASSERT_FALSE(clock_find(&mark, &after, 0, NSEC_PER_SEC - 1).drift_known);
        after.offset_ns = INT64_MIN;
        CU_ASSERT_FALSE(clock_find(&mark, &after, 0, minute_ns).drift_known); /* a clock that was set is no drift */
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"the offset takes the round trip into account", test_offset_takes_the_round_trip_into_account},
                {"the least round trip wins", test_least_round_trip_wins},
                {"the bound holds at both ends", test_bound_holds_at_both_ends},
                {"a guest at 1980 is no error", test_a_guest_at_1980_is_no_error},
                {"times that cannot be are refused", test_times_that_cannot_be_are_refused},
                {"what is done about it", test_what_is_done_about_it},
                {"drift", test_drift},
                CU_TEST_INFO_NULL,
        };

        return suite_run("clock", tests);
}
