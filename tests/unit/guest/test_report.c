/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/report.h"

#include <errno.h>
#include <string.h>

#include "tests/support/suite.h"

static void test_texts_are_cut_and_facts_bounded(void)
{
        struct report r = {.name = "notify"};
        char longer[400];

        memset(longer, 'x', sizeof(longer) - 1);
        longer[sizeof(longer) - 1] = '\0';
        report_detail(&r, "%s", longer);
        CU_ASSERT_EQUAL(strlen(r.detail), sizeof(r.detail) - 1);
        for (int i = 0; i < 100; i++)
                report_fact(&r, "hook", "%s", longer);
        CU_ASSERT_EQUAL(r.facts_n, REPORT_FACTS_MAX);
        CU_ASSERT_EQUAL(strlen(r.facts[0].value), sizeof(r.facts[0].value) - 1);
}

static void test_control_bytes_do_not_leave(void)
{
        struct report r = {.name = "notify"};

        report_detail(&r, "a\nb\x1b[0m\xff");
        CU_ASSERT_STRING_EQUAL(r.detail, "a?b?[0m?");
}

static void test_errno_is_told(void)
{
        struct report r = {.name = "clock"};

        CU_ASSERT_EQUAL(report_errno(&r, -EPERM, "clock_%s", "settime"), -EPERM);
        CU_ASSERT_STRING_EQUAL(r.detail, "clock_settime: Operation not permitted");
}

static void test_message_holds_it_all(void)
{
        struct report r = {.name = "entropy", .ok = true, .duration_ns = 42};
        struct report_message m;

        report_fact(&r, "seed_bytes", "%d", 64);
        report_fact(&r, "ready", "yes");
        report_to_message(&r, &m);
        CU_ASSERT_STRING_EQUAL(m.step.name, "entropy");
        CU_ASSERT_TRUE(m.step.ok);
        CU_ASSERT_EQUAL(m.step.duration_ns, 42);
        CU_ASSERT_EQUAL(m.step.n_evidence, 2);
        CU_ASSERT_STRING_EQUAL(m.step.evidence[1]->name, "ready");
        CU_ASSERT_STRING_EQUAL(m.step.evidence[0]->value, "64");
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"texts are cut and facts bounded", test_texts_are_cut_and_facts_bounded},
                {"control bytes do not leave", test_control_bytes_do_not_leave},
                {"an errno is told", test_errno_is_told},
                {"the message holds it all", test_message_holds_it_all},
                CU_TEST_INFO_NULL,
        };

        return suite_run("report", tests);
}
