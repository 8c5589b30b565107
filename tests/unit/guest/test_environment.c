/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/environment.h"

#include <string.h>

#include "guest/names.h"
#include "tests/support/suite.h"

static void add(struct environment *e, const char *text)
{
        CU_ASSERT_EQUAL_FATAL(environment_add(e, text, strlen(text)), 0);
}

static void test_the_last_of_a_name_counts(void)
{
        struct environment e = {0};

        add(&e, "A=1");
        add(&e, "AB=2");
        add(&e, "A=3");
        add(&e, "B=");
        add(&e, "A=");
        CU_ASSERT_EQUAL(environment_set(&e, "C", "x\ny=z", 5), 0);
        CU_ASSERT_EQUAL(environment_finish(&e), 0);
        CU_ASSERT_EQUAL(e.n, 4);
        CU_ASSERT_PTR_NULL(e.texts[4]);
        CU_ASSERT_STRING_EQUAL(environment_get(&e, "A"), "");
        CU_ASSERT_STRING_EQUAL(environment_get(&e, "AB"), "2");
        CU_ASSERT_STRING_EQUAL(environment_get(&e, "B"), "");
        CU_ASSERT_STRING_EQUAL(environment_get(&e, "C"), "x\ny=z");
        CU_ASSERT_PTR_NULL(environment_get(&e, "D"));
        environment_done(&e);
}

/* Many of one name, as a hostile or careless host might send, cost no more than their number. */
static void test_many_of_a_name_are_one(void)
{
        struct environment e = {0};

        for (int i = 0; i < 20000; i++)
                add(&e, i == 19999 ? "SAME=last" : "SAME=x");
        CU_ASSERT_EQUAL(environment_finish(&e), 0);
        CU_ASSERT_EQUAL(e.n, 1);
        CU_ASSERT_STRING_EQUAL(e.texts[0], "SAME=last");
        environment_done(&e);
}

static void test_an_empty_one_is_a_list(void)
{
        struct environment e = {0};

        CU_ASSERT_EQUAL(environment_finish(&e), 0);
        CU_ASSERT_PTR_NOT_NULL_FATAL(e.texts);
        CU_ASSERT_PTR_NULL(e.texts[0]);
        environment_done(&e);
}

static void test_names_have_the_kernels_numbers(void)
{
        CU_ASSERT_EQUAL(capability_number("chown"), 0);
        CU_ASSERT_EQUAL(capability_number("net_bind_service"), 10);
        CU_ASSERT_EQUAL(capability_number("checkpoint_restore"), 40);
        CU_ASSERT_EQUAL(capability_number("CHOWN"), -1);
        CU_ASSERT_EQUAL(capability_number("cap_chown"), -1);
        CU_ASSERT_EQUAL(capability_number(""), -1);
        CU_ASSERT_EQUAL(rlimit_number("nofile"), 7);
        CU_ASSERT_EQUAL(rlimit_number("core"), 4);
        CU_ASSERT_EQUAL(rlimit_number("nofiles"), -1);
        for (int i = 0; i < 16; i++)
                CU_ASSERT_EQUAL(rlimit_number(rlimit_name(i)), i);
        CU_ASSERT_STRING_EQUAL(rlimit_name(16), "?");
        CU_ASSERT_STRING_EQUAL(rlimit_name(-1), "?");
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"the last of a name counts", test_the_last_of_a_name_counts},
                {"many of a name are one", test_many_of_a_name_are_one},
                {"an empty one is a list", test_an_empty_one_is_a_list},
                {"names have the kernel's numbers", test_names_have_the_kernels_numbers},
                CU_TEST_INFO_NULL,
        };

        return suite_run("environment", tests);
}
