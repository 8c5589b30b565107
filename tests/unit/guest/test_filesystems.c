/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/filesystems.h"

#include <string.h>

#include "tests/support/suite.h"

static void test_writable_disks_each_once(void)
{
        static const char text[] = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
                                   "23 22 0:20 / /proc rw,nosuid - proc proc rw\n"
                                   "24 22 254:16 / /mnt/with\\040space rw - xfs /dev/vdb rw\n"
                                   "25 22 254:0 /var /srv rw master:1 shared:2 - ext4 /dev/vda rw\n"
                                   "26 22 254:32 / /ro ro,relatime - ext4 /dev/vdc ro\n"
                                   "27 22 7:0 / /loop rw - ext4 /dev/loop0 rw\n"
                                   "28 22 0:40 / /fuse rw - fuseblk /dev/sdb1 rw\n"
                                   "29 22 0:41 / /shm rw - tmpfs tmpfs rw\n"
                                   "30 22 254:48 / /last rw - btrfs /dev/vdd rw";
        struct filesystem found[FILESYSTEMS_MAX];

        CU_ASSERT_EQUAL_FATAL(filesystems_find(text, found), 3);
        CU_ASSERT_STRING_EQUAL(found[0].path, "/");
        CU_ASSERT_STRING_EQUAL(found[0].device, "254:0");
        CU_ASSERT_STRING_EQUAL(found[1].path, "/mnt/with space");
        CU_ASSERT_STRING_EQUAL(found[2].path, "/last");
}

static void test_those_in_memory(void)
{
        static const char text[] = "1 1 0:2 / / rw - rootfs rootfs rw\n"
                                   "22 1 254:0 / /disk rw,relatime shared:1 - ext4 /dev/vda rw\n"
                                   "23 1 0:30 / /tmp rw,nosuid - tmpfs tmpfs rw\n"
                                   "24 1 0:30 /x /srv rw - tmpfs tmpfs rw\n"
                                   "25 1 0:31 / /ro ro - tmpfs tmpfs ro\n"
                                   "26 1 0:5 / /dev rw - devtmpfs devtmpfs rw\n"
                                   "27 1 0:32 / /shm rw - tmpfs - rw";
        struct filesystem found[FILESYSTEMS_MAX];

        CU_ASSERT_EQUAL_FATAL(filesystems_find_memory(text, found), 3);
        CU_ASSERT_STRING_EQUAL(found[0].path, "/");
        CU_ASSERT_STRING_EQUAL(found[1].path, "/tmp");
        CU_ASSERT_STRING_EQUAL(found[2].path, "/shm");
        CU_ASSERT_EQUAL(filesystems_find(text, found), 1);
}

/* A workload that may mount chooses what stands here. */
static void test_lines_that_are_none(void)
{
        static const char *const texts[] = {"", "\n\n\n", "x", " ", "- - - - - - - - -", "22 1 254:0 / /",
                "22 1 254:0 / / rw", "22 1 254:0 / / rw -", "22 1 254:0 / / rw - ext4", "22 1 254:0 / / rw - ext4 /dev",
                "22 1 254:0 / / rw shared:1 /dev/vda", "22 1 254:0 / \\04 rwx - ext4 /dev/vda rw",
                "22 1 1234567890:1234567890 / / rw - ext4 /dev/vda rw"};
        struct filesystem found[FILESYSTEMS_MAX];

        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
                CU_ASSERT_EQUAL(filesystems_find(texts[i], found), 0);
}

static void test_more_than_there_is_room_for(void)
{
        char text[8192];
        struct filesystem found[FILESYSTEMS_MAX];
        size_t n = 0;

        for (unsigned i = 0; i < FILESYSTEMS_MAX + 5; i++)
                n += (size_t)sprintf(text + n, "22 1 254:%u / /m%u rw - ext4 /dev/vda%u rw\n", i, i, i);
        CU_ASSERT_EQUAL(filesystems_find(text, found), FILESYSTEMS_MAX);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"writable disks, each once", test_writable_disks_each_once},
                {"those in memory", test_those_in_memory},
                {"lines that are none", test_lines_that_are_none},
                {"more than there is room for", test_more_than_there_is_room_for},
                CU_TEST_INFO_NULL,
        };

        return suite_run("filesystems", tests);
}
