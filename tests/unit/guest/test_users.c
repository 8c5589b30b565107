/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/users.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/suite.h"

static const char passwd[] = "root:x:0:0:root:/root:/bin/bash\n"
                             "# a comment\n"
                             "broken\n"
                             "half:x:12\n"
                             ":x:77:77::/nameless:/bin/sh\n"
                             "wbtest:x:4242:4242:test user:/home/wbtest:/bin/sh\n"
                             "nohome:x:50:51:::\n"
                             "minus:x:-1:0::/:/bin/sh\n"
                             "wbtest:x:1:1:second of its name:/:/bin/sh\n"
                             "last:x:60:60::/last:/bin/sh"; /* no newline */
static const char group[] = "root:x:0:\n"
                            "adm:x:4:root,syslog\n"
                            "tests:x:4243:awbtest,wbtestb,wbtest\n"
                            "more:x:4244:nobody,wbtest\n"
                            "own:x:4242:wbtest\n"
                            "short:x\n"
                            "users:x:100:\n";

/* "uid gid groups... name home" or the fault in brackets. */
static const char *find(const char *spec)
{
        static char text[512];
        struct identity who;
        char *fault = NULL;
        int r = users_find(passwd, group, spec, &who, &fault);
        size_t n;

        if (r != 0) {
                (void)snprintf(text, sizeof(text), "%d(%s)", r, fault ? fault : "");
                free(fault);
                return text;
        }
        n = (size_t)snprintf(text, sizeof(text), "%u %u", who.uid, who.gid);
        for (size_t i = 0; i < who.groups_n; i++)
                n += (size_t)snprintf(text + n, sizeof(text) - n, "%c%u", i ? ',' : ' ', who.groups[i]);
        (void)snprintf(text + n, sizeof(text) - n, " %s %s", who.name, who.home);
        return text;
}

static void test_a_name_brings_its_groups(void)
{
        CU_ASSERT_STRING_EQUAL(find("wbtest"), "4242 4242 4242,4243,4244 wbtest /home/wbtest");
        CU_ASSERT_STRING_EQUAL(find("4242"), "4242 4242 4242,4243,4244 wbtest /home/wbtest");
        CU_ASSERT_STRING_EQUAL(find("last"), "60 60 60 last /last");
}

static void test_nobody_asked_for_is_root(void)
{
        CU_ASSERT_STRING_EQUAL(find(""), "0 0 0,4 root /root");
        CU_ASSERT_STRING_EQUAL(find("root"), "0 0 0,4 root /root");
}

static void test_numbers_are_taken_as_they_are(void)
{
        CU_ASSERT_STRING_EQUAL(find("1234"), "1234 1234 1234 1234 /");
        CU_ASSERT_STRING_EQUAL(find("1234:2345"), "1234 2345 2345 1234 /");
        CU_ASSERT_STRING_EQUAL(find("1234:2345,7,8,7"), "1234 2345 2345,7,8 1234 /");
        CU_ASSERT_STRING_EQUAL(find("4294967294"), "4294967294 4294967294 4294967294 4294967294 /");
}

static void test_a_group_named_leaves_no_other(void)
{
        CU_ASSERT_STRING_EQUAL(find("wbtest:users"), "4242 100 100 wbtest /home/wbtest");
        CU_ASSERT_STRING_EQUAL(find("wbtest:100,more"), "4242 100 100,4244 wbtest /home/wbtest");
        CU_ASSERT_STRING_EQUAL(find("0:0"), "0 0 0 root /root");
        CU_ASSERT_STRING_EQUAL(find("wbtest,9"), "4242 4242 4242,4243,4244,9 wbtest /home/wbtest");
}

static void test_what_is_not_there_is_named(void)
{
        CU_ASSERT_STRING_EQUAL(find("no_such"), "1(no_such)");
        CU_ASSERT_STRING_EQUAL(find("no_such:users"), "1(no_such)");
        CU_ASSERT_STRING_EQUAL(find("wbtest:no_group"), "1(no_group)");
        CU_ASSERT_STRING_EQUAL(find("wbtest:users,no_other"), "1(no_other)");
        CU_ASSERT_STRING_EQUAL(find("wbtest:"), "1()");
        CU_ASSERT_STRING_EQUAL(find(":users"), "1()");
        CU_ASSERT_STRING_EQUAL(find("wbtest,"), "1()");
        CU_ASSERT_STRING_EQUAL(find("1234:5:6"), "1(5:6)");
}

/* -1 means "leave it as it is" to setresuid(2): a workload would stay root. */
static void test_minus_one_is_nobody(void)
{
        CU_ASSERT_STRING_EQUAL(find("4294967295"), "1(4294967295)");
        CU_ASSERT_STRING_EQUAL(find("4294967296"), "1(4294967296)");
        CU_ASSERT_STRING_EQUAL(find("1234:4294967295"), "1(4294967295)");
        CU_ASSERT_STRING_EQUAL(find("-1"), "1(-1)");
        CU_ASSERT_STRING_EQUAL(find("minus"), "1(minus)");
}

static void test_broken_lines_are_nobody(void)
{
        CU_ASSERT_STRING_EQUAL(find("broken"), "1(broken)");
        CU_ASSERT_STRING_EQUAL(find("half"), "1(half)");
        CU_ASSERT_STRING_EQUAL(find("nohome"), "50 51 51 nohome /");
        CU_ASSERT_STRING_EQUAL(find("77"), "77 77 77 77 /");
}

static void test_without_files_root_is_root(void)
{
        struct identity who;
        char *fault = NULL;

        CU_ASSERT_EQUAL_FATAL(users_find("", "", "", &who, &fault), 0);
        CU_ASSERT_EQUAL(who.uid, 0);
        CU_ASSERT_STRING_EQUAL(who.name, "root");
        CU_ASSERT_STRING_EQUAL(who.home, "/root");
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"a name brings its groups", test_a_name_brings_its_groups},
                {"nobody asked for is root", test_nobody_asked_for_is_root},
                {"numbers are taken as they are", test_numbers_are_taken_as_they_are},
                {"a group named leaves no other", test_a_group_named_leaves_no_other},
                {"what is not there is named", test_what_is_not_there_is_named},
                {"minus one is nobody", test_minus_one_is_nobody},
                {"broken lines are nobody", test_broken_lines_are_nobody},
                {"without files root is root", test_without_files_root_is_root},
                CU_TEST_INFO_NULL,
        };

        return suite_run("users", tests);
}
