/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/bucket.h"

#include "proto/base/clock.h"
#include "tests/support/cases.h"

static void test_zeroed_is_unlimited(void)
{
        struct bucket b = {0};

        CU_ASSERT_EQUAL(bucket_peek(&b, UINT64_MAX, 5), UINT64_MAX);
        CU_ASSERT_EQUAL(bucket_wait_ns(&b, UINT64_MAX, 5), 0);
}

static void test_burst_then_rate(void)
{
        struct bucket b;

        bucket_init(&b, NULL, 1000, 100, 0);
        CU_ASSERT_EQUAL(bucket_peek(&b, 5000, 0), 100);
        bucket_draw(&b, 100);
        CU_ASSERT_EQUAL(bucket_peek(&b, 1, 0), 0);
        CU_ASSERT_EQUAL(bucket_wait_ns(&b, 10, 0), 10 * NSEC_PER_MSEC);
        CU_ASSERT_EQUAL(bucket_peek(&b, 5000, 10 * NSEC_PER_MSEC), 10);
        CU_ASSERT_EQUAL(bucket_peek(&b, 5000, 60 * NSEC_PER_SEC), 100);
}

/* A bucket slower than the polling must still deliver its rate exactly. */
static void test_polling_loses_nothing(void)
{
        struct bucket b;
        uint64_t passed_bytes = 0;

        bucket_init(&b, NULL, 7, 7, 0);
        bucket_draw(&b, 7);
        for (uint64_t now_ns = 0; now_ns <= 100 * NSEC_PER_SEC; now_ns += 3 * NSEC_PER_MSEC) {
                uint64_t n = bucket_peek(&b, 7, now_ns);
                bucket_draw(&b, n);
                passed_bytes += n;
        }
        CU_ASSERT_EQUAL(passed_bytes, 699); /* the last poll is at 99.999 s */
}

static void test_waiting_that_long_suffices(void)
{
        struct bucket b;

        bucket_init(&b, NULL, 3, 1000, 0);
        bucket_draw(&b, 1000);
        for (uint64_t now_ns = 0, i = 0; i < 1000; i++) {
                now_ns += bucket_wait_ns(&b, 1, now_ns);
                CU_ASSERT_EQUAL_FATAL(bucket_peek(&b, 1, now_ns), 1);
                bucket_draw(&b, 1);
        }
}

static void test_chain_grants_the_least(void)
{
        struct bucket vm, rule;

        bucket_init(&vm, NULL, 1000, 50, 0);
        bucket_init(&rule, &vm, 1000, 500, 0);
        CU_ASSERT_EQUAL(bucket_peek(&rule, 400, 0), 50);
        bucket_draw(&rule, 50);
        CU_ASSERT_EQUAL(vm.level_bytes, 0);
        CU_ASSERT_EQUAL(rule.level_bytes, 450);
        CU_ASSERT_EQUAL(bucket_wait_ns(&rule, 20, 0), 20 * NSEC_PER_MSEC);
}

static void test_largest_values_do_not_overflow(void)
{
        struct bucket b;

        bucket_init(&b, NULL, BUCKET_RATE_MAX_BPS, BUCKET_BURST_MAX_BYTES, 0);
        bucket_draw(&b, BUCKET_BURST_MAX_BYTES);
        CU_ASSERT_EQUAL(bucket_wait_ns(&b, UINT64_MAX, 0), NSEC_PER_SEC);
        CU_ASSERT_EQUAL(bucket_peek(&b, UINT64_MAX, NSEC_PER_SEC), BUCKET_BURST_MAX_BYTES);
        CU_ASSERT_EQUAL(bucket_peek(&b, UINT64_MAX, UINT64_MAX), BUCKET_BURST_MAX_BYTES);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"a zeroed bucket is unlimited", test_zeroed_is_unlimited},
                {"burst, then rate", test_burst_then_rate},
                {"frequent polling loses nothing", test_polling_loses_nothing},
                {"waiting as told suffices", test_waiting_that_long_suffices},
                {"a chain grants the least", test_chain_grants_the_least},
                {"the largest values do not overflow", test_largest_values_do_not_overflow},
                CU_TEST_INFO_NULL,
        };

        return cases_run("bucket", tests);
}
