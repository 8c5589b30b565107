/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/snapshot_memory.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "tests/support/suite.h"

#define MIB   (UINT64_C(1) << 20)
#define BYTES (160 * MIB) /* more than one part */

/* A file without a name. */
static int new_file(void)
{
        char path[] = "/tmp/wb-test-memory.XXXXXX";
        int fd = mkstemp(path);

        CU_ASSERT_FATAL(fd >= 0);
        (void)unlink(path);
        return fd;
}

static int new_memory(void)
{
        int fd = -1;

        CU_ASSERT_FATAL(snapshot_memory_new(BYTES, &fd) == 0);
        return fd;
}

static uint64_t used_bytes(int fd)
{
        struct stat st;

        CU_ASSERT_FATAL(fstat(fd, &st) == 0);
        return (uint64_t)st.st_blocks * 512;
}

static void put(int fd, uint64_t offset, const char *text)
{
        CU_ASSERT(pwrite(fd, text, strlen(text), (off_t)offset) == (ssize_t)strlen(text));
}

static bool has(int fd, uint64_t offset, const char *text)
{
        char found[64] = "";
        ssize_t n = (ssize_t)strlen(text);

        return pread(fd, found, (size_t)n, (off_t)offset) == n && memcmp(found, text, (size_t)n) == 0;
}

static int read_all(int from, int to, unsigned *ret_parts)
{
        uint64_t offset = 0;
        int r = 0;

        for (*ret_parts = 0; r == 0 && offset < BYTES; (*ret_parts)++) {
                uint64_t before = offset;

                r = snapshot_memory_read_some(from, BYTES, to, &offset);
                CU_ASSERT_FATAL(r < 0 || (offset > before && offset <= BYTES));
        }
        return r;
}

static void test_there_and_back(void)
{
        static const uint64_t places[] = {0, 4096 * 5 + 17, 63 * MIB - 3, 64 * MIB + 4090, 127 * MIB, BYTES - 10};
        _cleanup_close_ int memory = new_memory();
        _cleanup_close_ int file = new_file();
        _cleanup_close_ int clone = new_memory();
        struct stat st;
        unsigned parts;

        for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
                put(memory, places[i], "somewhere");
        CU_ASSERT(snapshot_memory_write(memory, BYTES, file) == 0);
        CU_ASSERT(fstat(file, &st) == 0 && (uint64_t)st.st_size == BYTES);
        CU_ASSERT(read_all(file, clone, &parts) == 0 && parts > 1);
        for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
                CU_ASSERT(has(file, places[i], "somewhere"));
                CU_ASSERT(has(clone, places[i], "somewhere"));
        }
        CU_ASSERT(used_bytes(file) < 20 * 4096 && used_bytes(clone) < 20 * 4096);
}

static void test_what_was_written_and_is_zero_becomes_a_hole(void)
{
        _cleanup_close_ int memory = new_memory();
        _cleanup_close_ int file = new_file();
        _cleanup_free_ char *zeros = calloc(1, 8 * MIB);

        CU_ASSERT_FATAL(zeros != NULL);
        CU_ASSERT(pwrite(memory, zeros, 8 * MIB, 0) == (ssize_t)(8 * MIB));
        CU_ASSERT(used_bytes(memory) >= 8 * MIB);
        put(memory, 3 * MIB, "data");
        CU_ASSERT(snapshot_memory_write(memory, BYTES, file) == 0);
        CU_ASSERT(used_bytes(file) < MIB && has(file, 3 * MIB, "data"));
}

static void test_full_memory(void)
{
        _cleanup_close_ int memory = new_memory();
        _cleanup_close_ int file = new_file();
        _cleanup_close_ int clone = new_memory();
        _cleanup_free_ char *pattern = malloc(MIB);
        _cleanup_free_ char *found = malloc(MIB);
        unsigned parts;

        CU_ASSERT_FATAL(pattern && found);
        for (uint64_t at = 0; at < BYTES; at += MIB) {
                memset(pattern, (int)(1 + at / MIB), MIB);
                CU_ASSERT_FATAL(pwrite(memory, pattern, MIB, (off_t)at) == (ssize_t)MIB);
        }
        CU_ASSERT(snapshot_memory_write(memory, BYTES, file) == 0 && read_all(file, clone, &parts) == 0);
        for (uint64_t at = 0; at < BYTES; at += MIB) {
                memset(pattern, (int)(1 + at / MIB), MIB);
                CU_ASSERT(pread(clone, found, MIB, (off_t)at) == (ssize_t)MIB && memcmp(found, pattern, MIB) == 0);
        }
}

static void test_its_size_stays(void)
{
        _cleanup_close_ int memory = new_memory();

        CU_ASSERT(ftruncate(memory, 0) < 0 && errno == EPERM);
        CU_ASSERT(ftruncate(memory, (off_t)(2 * BYTES)) < 0 && errno == EPERM);
        CU_ASSERT(ftruncate(memory, (off_t)BYTES) == 0); /* QEMU does */
}

static void test_a_file_that_ends_early(void)
{
        _cleanup_close_ int file = new_file();
        _cleanup_close_ int clone = new_memory();
        unsigned parts;

        put(file, MIB - 10, "the end is within a page"); /* and the rest of that page is missing */
        CU_ASSERT(read_all(file, clone, &parts) == -EPIPE);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"there and back", test_there_and_back},
                {"what was written and is zero becomes a hole", test_what_was_written_and_is_zero_becomes_a_hole},
                {"full memory", test_full_memory},
                {"its size stays", test_its_size_stays},
                {"a file that ends early", test_a_file_that_ends_early},
                CU_TEST_INFO_NULL,
        };

        return suite_run("snapshot_memory", tests);
}
