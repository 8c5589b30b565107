/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/uevent.h"

#include <string.h>

#include "tests/support/suite.h"

#define MESSAGE(text) text, sizeof(text)

static void test_messages(void)
{
        static const struct {
                const char *bytes;
                size_t n;
                bool is;
        } rows[] = {
                {MESSAGE("change@/devices/platform/VMGENCTR:00\0ACTION=change\0SUBSYSTEM=platform\0NEW_VMGENID=1\0SEQNUM=9"),
                        true},
                {MESSAGE("NEW_VMGENID=1"), true},
                {"NEW_VMGENID=1", 13, true}, /* cut off before its NUL */
                {"NEW_VMGENID=1", 12, false},
                {MESSAGE("change@/devices/x\0ACTION=change\0SYNTH_UUID=0\0SYNTH_ARG_NEW_VMGENID=1"), false},
                {MESSAGE("add@/devices/NEW_VMGENID=1\0ACTION=add"), false},
                {MESSAGE("x\0NEW_VMGENID=11"), false},
                {MESSAGE("x\0NEW_VMGENID="), false},
                {"\0\0\0\0", 4, false},
                {"", 0, false},
        };

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
                CU_ASSERT_EQUAL(uevent_is_generation(rows[i].bytes, rows[i].n), rows[i].is);
}

int main(void)
{
        CU_TestInfo tests[] = {{"messages", test_messages}, CU_TEST_INFO_NULL};

        return suite_run("uevent", tests);
}
