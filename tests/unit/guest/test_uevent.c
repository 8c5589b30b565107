/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/uevent.h"

#include <string.h>

#include "tests/support/suite.h"

#define MESSAGE(text) text, sizeof(text)
#define PATH          "/devices/pci0000:00/0000:00:01.0/0000:01:00.0/virtio0"
#define VSOCK         "\0SUBSYSTEM=virtio\0MODALIAS=virtio:d00000013v00001AF4"

#define BLOCK "/devices/system/memory/memory34"

static void test_messages(void)
{
        static const struct {
                const char *bytes;
                size_t n;
                unsigned says;
        } rows[] = {
                {MESSAGE("change@/devices/platform/VMGENCTR:00\0ACTION=change\0SUBSYSTEM=platform\0NEW_VMGENID=1\0SEQNUM=9"),
                        UEVENT_GENERATION},
                {MESSAGE("NEW_VMGENID=1"), UEVENT_GENERATION},
                {"NEW_VMGENID=1", 13, UEVENT_GENERATION}, /* cut off before its NUL */
                {"NEW_VMGENID=1", 12, 0},
                {MESSAGE("change@/devices/x\0ACTION=change\0SYNTH_UUID=0\0SYNTH_ARG_NEW_VMGENID=1"), 0},
                {MESSAGE("add@/devices/NEW_VMGENID=1\0ACTION=add"), 0},
                {MESSAGE("x\0NEW_VMGENID=11"), 0},
                {MESSAGE("x\0NEW_VMGENID="), 0},
                {"\0\0\0\0", 4, 0},
                {"", 0, 0},
                {MESSAGE("remove@" PATH "\0ACTION=remove\0DEVPATH=" PATH VSOCK "\0SEQNUM=1"), UEVENT_VSOCK_GONE},
                {MESSAGE("unbind@" PATH "\0ACTION=unbind\0DEVPATH=" PATH VSOCK "\0SEQNUM=1"), UEVENT_VSOCK_GONE},
                {MESSAGE("ACTION=remove" VSOCK), UEVENT_VSOCK_GONE},
                {MESSAGE("add@" PATH "\0ACTION=add\0DEVPATH=" PATH VSOCK "\0SEQNUM=1"), 0},
                {MESSAGE("bind@" PATH "\0ACTION=bind\0DEVPATH=" PATH VSOCK "\0SEQNUM=1"), 0},
                {MESSAGE("remove@" PATH "\0ACTION=remove\0SYNTH_UUID=0" VSOCK "\0SEQNUM=1"), 0},
                {MESSAGE("ACTION=remove\0SUBSYSTEM=virtio\0MODALIAS=virtio:d00000002v00001AF4"), 0}, /* a disk */
                {MESSAGE("ACTION=remove\0SUBSYSTEM=virtio\0MODALIAS=virtio:d00000013"), 0},
                {MESSAGE("ACTION=removed" VSOCK), 0},
                {MESSAGE("online@" BLOCK "\0ACTION=online\0DEVPATH=" BLOCK "\0SUBSYSTEM=memory\0SEQNUM=1"),
                        UEVENT_MEMORY},
                {MESSAGE("offline@" BLOCK "\0SUBSYSTEM=memory\0ACTION=offline"), UEVENT_MEMORY},
                {MESSAGE("add@" BLOCK "\0ACTION=add\0SUBSYSTEM=memory"), 0}, /* not to be used yet */
                {MESSAGE("online@" BLOCK "\0ACTION=online\0SUBSYSTEM=memory\0SYNTH_UUID=0"), 0},
                {MESSAGE("online@/devices/system/cpu/cpu1\0ACTION=online\0SUBSYSTEM=cpu"), 0},
                {MESSAGE("x\0ACTION=online\0SUBSYSTEM=memory2"), 0},
                {"ACTION=online\0SUBSYSTEM=memory", 29, 0},
        };

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
                CU_ASSERT_EQUAL(uevent_read(rows[i].bytes, rows[i].n), rows[i].says);
}

int main(void)
{
        CU_TestInfo tests[] = {{"messages", test_messages}, CU_TEST_INFO_NULL};

        return suite_run("uevent", tests);
}
