/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/buffer.h"

#include <errno.h>
#include <string.h>

#include "tests/support/suite.h"

static void test_empty_holds_nothing(void)
{
        struct budget budget = {.most_bytes = 1 << 20};
        struct buffer b;

        buffer_init(&b, &budget);
        CU_ASSERT_EQUAL(buffer_append(&b, "abc", 3), 0);
        CU_ASSERT(budget.used_bytes >= 3);
        buffer_consume(&b, 2);
        CU_ASSERT_EQUAL(buffer_used(&b), 1);
        CU_ASSERT_EQUAL(*buffer_data(&b), 'c');
        buffer_consume(&b, 1);
        CU_ASSERT_EQUAL(budget.used_bytes, 0);
        buffer_done(&b);
}

static void test_budget_is_kept(void)
{
        struct budget budget = {.most_bytes = 4096};
        struct buffer a, b;
        uint8_t *tail;

        buffer_init(&a, &budget);
        buffer_init(&b, &budget);
        CU_ASSERT_EQUAL(buffer_append(&a, "x", 1), 0);
        CU_ASSERT_EQUAL(buffer_append(&b, "y", 1), 0);
        CU_ASSERT_EQUAL(buffer_reserve(&a, 3000, &tail), -ENOBUFS);
        CU_ASSERT_EQUAL(buffer_used(&a), 1);
        buffer_done(&b);
        CU_ASSERT_EQUAL(buffer_reserve(&a, 3000, &tail), 0);
        CU_ASSERT(budget.used_bytes <= budget.most_bytes);
        buffer_done(&a);
        CU_ASSERT_EQUAL(budget.used_bytes, 0);
}

/* Bytes come out in the order they went in, whatever the sizes. */
static void test_order_survives_growing_and_moving(void)
{
        struct budget budget = {.most_bytes = 1 << 20};
        struct buffer b;
        uint8_t next_in = 0, next_out = 0;

        buffer_init(&b, &budget);
        for (size_t round = 1; round < 400; round++) {
                for (size_t i = 0; i < round % 97; i++, next_in++)
                        CU_ASSERT_EQUAL_FATAL(buffer_append(&b, &next_in, 1), 0);
                for (size_t i = 0; i < round % 89 && buffer_used(&b); i++, next_out++) {
                        CU_ASSERT_EQUAL_FATAL(*buffer_data(&b), next_out);
                        buffer_consume(&b, 1);
                }
        }
        buffer_done(&b);
        CU_ASSERT_EQUAL(budget.used_bytes, 0);
}

static void test_move(void)
{
        struct budget budget = {.most_bytes = 1 << 20};
        struct buffer a, b;

        buffer_init(&a, &budget);
        buffer_init(&b, &budget);
        (void)buffer_append(&b, "first", 5);
        CU_ASSERT_EQUAL(buffer_move(&a, &b), 0);
        CU_ASSERT_EQUAL(buffer_used(&b), 0);
        (void)buffer_append(&b, "second", 6);
        CU_ASSERT_EQUAL(buffer_move(&a, &b), 0);
        CU_ASSERT_EQUAL_FATAL(buffer_used(&a), 11);
        CU_ASSERT_EQUAL(memcmp(buffer_data(&a), "firstsecond", 11), 0);
        buffer_done(&a);
        CU_ASSERT_EQUAL(budget.used_bytes, 0);
}

static void test_printf(void)
{
        struct budget budget = {.most_bytes = 1 << 20};
        struct buffer b;

        buffer_init(&b, &budget);
        CU_ASSERT_EQUAL(buffer_printf(&b, "%s %d", "HTTP/1.1", 200), 0);
        CU_ASSERT_EQUAL_FATAL(buffer_used(&b), 12);
        CU_ASSERT_EQUAL(memcmp(buffer_data(&b), "HTTP/1.1 200", 12), 0);
        buffer_done(&b);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"an empty buffer holds nothing", test_empty_holds_nothing},
                {"the budget is kept", test_budget_is_kept},
                {"order survives growing and moving", test_order_survives_growing_and_moving},
                {"moving", test_move},
                {"printf", test_printf},
                CU_TEST_INFO_NULL,
        };

        return suite_run("buffer", tests);
}
