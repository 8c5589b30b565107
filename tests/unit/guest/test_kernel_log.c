/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/kernel_log.h"

#include <string.h>

#include "tests/support/suite.h"

#define SAYS "random: crng reseeded due to virtual machine fork"

static void test_records(void)
{
        static const struct {
                const char *record;
                bool is;
        } rows[] = {
                {"5,339,5140900,-;" SAYS "\n", true},
                {"5,339,5140900,-;" SAYS "\n SUBSYSTEM=acpi\n DEVICE=+acpi:VMGENCTR\n", true},
                {"0,1,2,-,caller=T1;" SAYS "\n", true},
                {"5,339,5140900,-;" SAYS, true},
                {"12,339,5140900,-;" SAYS "\n", false}, /* a program's: facility 1 */
                {"13,339,5140900,-;" SAYS "\n", false},
                {"8,339,5140900,-;" SAYS "\n", false},
                {"5,339,5140900,-;x" SAYS "\n", false},
                {"5,339,5140900,-;" SAYS " \n", false},
                {"5,339,5140900,-;random: crng reseeded on system resumption\n", false},
                {"5,339,5140900,-;random: crng init done\n " SAYS "\n", false},
                {"5,339;5140900,-;" SAYS "\n", false},
                {";" SAYS "\n", false},
                {"5;" SAYS "\n", false},
                {"5", false},
                {"", false},
        };

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
                CU_ASSERT_EQUAL(kernel_log_is_generation(rows[i].record, strlen(rows[i].record)), rows[i].is);
        for (size_t n = 0; n < strlen(rows[0].record) - 1; n++) /* cut off anywhere */
                CU_ASSERT_FALSE(kernel_log_is_generation(rows[0].record, n));
}

int main(void)
{
        CU_TestInfo tests[] = {{"records", test_records}, CU_TEST_INFO_NULL};

        return suite_run("kernel_log", tests);
}
