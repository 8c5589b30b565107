/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/vmclock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "tests/support/suite.h"

/* A page as a hypervisor writes it: by the offsets of the ABI, not by a struct of ours. */
static void put(uint8_t *page, size_t at, size_t n, uint64_t value)
{
        for (size_t i = 0; i < n; i++)
                page[at + i] = (uint8_t)(value >> 8 * i);
}

static void make_page(uint8_t page[4096], uint64_t flags)
{
        memset(page, 0, 4096);
        put(page, 0, 4, 0x4b4c4356);
        put(page, 4, 4, 4096);
        put(page, 8, 2, 1);
        put(page, 12, 4, 6);
        put(page, 16, 8, 0x1111);
        put(page, 24, 8, flags);
        put(page, 104, 8, 0x2222);
}

static void test_which_marker(void)
{
        uint64_t marker = 0;
        uint8_t page[4096];

        make_page(page, 0);
        CU_ASSERT_EQUAL(vmclock_parse(page, sizeof(page), &marker), 0);
        CU_ASSERT_EQUAL(marker, 0x1111);
        make_page(page, 1u << 8);
        CU_ASSERT_EQUAL(vmclock_parse(page, sizeof(page), &marker), 0);
        CU_ASSERT_EQUAL(marker, 0x2222);
        put(page, 4, 4, 104); /* it says that it is too short for that */
        CU_ASSERT_EQUAL(vmclock_parse(page, sizeof(page), &marker), 0);
        CU_ASSERT_EQUAL(marker, 0x1111);
        CU_ASSERT_EQUAL(vmclock_parse(page, 104, &marker), 0);
}

static void test_what_is_none(void)
{
        uint64_t marker = 7;
        uint8_t page[4096];

        make_page(page, 0);
        CU_ASSERT_EQUAL(vmclock_parse(page, 103, &marker), -EPROTO);
        put(page, 12, 4, 7);
        CU_ASSERT_EQUAL(vmclock_parse(page, sizeof(page), &marker), -EAGAIN);
        put(page, 8, 2, 2);
        CU_ASSERT_EQUAL(vmclock_parse(page, sizeof(page), &marker), -EPROTO);
        memset(page, 0, sizeof(page));
        CU_ASSERT_EQUAL(vmclock_parse(page, sizeof(page), &marker), -EPROTO);
        CU_ASSERT_EQUAL(marker, 7);
}

static void test_a_mapped_page(void)
{
        char path[] = "/tmp/wb-vmclock-XXXXXX";
        _cleanup_close_ int fd = mkstemp(path);
        struct vmclock *v = NULL;
        uint8_t page[4096];

        CU_ASSERT_FATAL(fd >= 0);
        CU_ASSERT_EQUAL(vmclock_open(path, &v), -EPROTO); /* shorter than a page */
        make_page(page, 0);
        CU_ASSERT_EQUAL(pwrite(fd, page, sizeof(page), 0), sizeof(page));
        CU_ASSERT_EQUAL_FATAL(vmclock_open(path, &v), 0);
        CU_ASSERT_EQUAL(vmclock_marker(v), 0x1111);
        put(page, 16, 8, 0x3333);
        CU_ASSERT_EQUAL(pwrite(fd, page, sizeof(page), 0), sizeof(page));
        CU_ASSERT_EQUAL(vmclock_marker(v), 0x3333);
        put(page, 12, 4, 7); /* never finished: the last good one stands */
        put(page, 16, 8, 0x4444);
        CU_ASSERT_EQUAL(pwrite(fd, page, sizeof(page), 0), sizeof(page));
        CU_ASSERT_EQUAL(vmclock_marker(v), 0x3333);
        vmclock_close(v);
        (void)unlink(path);
        CU_ASSERT_EQUAL(vmclock_open(path, &v), -ENOENT);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"which marker", test_which_marker},
                {"what is none", test_what_is_none},
                {"a mapped page", test_a_mapped_page},
                CU_TEST_INFO_NULL,
        };

        return suite_run("vmclock", tests);
}
