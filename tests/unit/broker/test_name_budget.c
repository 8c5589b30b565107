/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/name_budget.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/clock.h"
#include "tests/support/suite.h"

static struct hostname name_of(unsigned i)
{
        struct hostname h;
        char text[32];

        (void)snprintf(text, sizeof(text), "n%u.example.org", i);
        CU_ASSERT_EQUAL_FATAL(hostname_parse(text, strlen(text), &h), 0);
        return h;
}

static void test_questions_are_counted(void)
{
        struct hostname h = name_of(0);
        struct name_budget b;
        bool first = false;

        name_budget_init(&b, NAME_BUDGET_QUERIES, NAME_BUDGET_NAMES, 1, 0);
        for (unsigned i = 0; i < NAME_BUDGET_QUERIES; i++)
                CU_ASSERT_TRUE(name_budget_take(&b, i % 2 ? &h : NULL, i, &first));
        CU_ASSERT_FALSE(name_budget_take(&b, &h, 59 * NSEC_PER_SEC, &first));
        CU_ASSERT_TRUE(first);
        CU_ASSERT_FALSE(name_budget_take(&b, NULL, 59 * NSEC_PER_SEC, &first));
        CU_ASSERT_FALSE(first);
        CU_ASSERT_TRUE(name_budget_take(&b, &h, 60 * NSEC_PER_SEC, &first));
}

static void test_different_names_are_counted(void)
{
        struct name_budget b;
        struct hostname h;
        bool first = false;

        name_budget_init(&b, NAME_BUDGET_QUERIES, NAME_BUDGET_NAMES, 1, 0);
        for (unsigned i = 0; i < NAME_BUDGET_NAMES; i++) {
                h = name_of(i);
                CU_ASSERT_TRUE(name_budget_take(&b, &h, i, &first));
        }
        h = name_of(NAME_BUDGET_NAMES);
        CU_ASSERT_FALSE(name_budget_take(&b, &h, 1000, &first));
        CU_ASSERT_EQUAL(name_budget_wait_ns(&b, 20 * NSEC_PER_SEC), 40 * NSEC_PER_SEC);
        h = name_of(7);
        CU_ASSERT_TRUE(name_budget_take(&b, &h, 1000, &first)); /* an old one goes on */
        h = name_of(NAME_BUDGET_NAMES);
        CU_ASSERT_TRUE(name_budget_take(&b, &h, 61 * NSEC_PER_SEC, &first));
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"questions are counted", test_questions_are_counted},
                {"different names are counted", test_different_names_are_counted},
                CU_TEST_INFO_NULL,
        };

        return suite_run("name_budget", tests);
}
