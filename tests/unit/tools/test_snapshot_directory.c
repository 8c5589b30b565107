/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/snapshot_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/base/io.h"
#include "tests/support/suite.h"
#include "tools/wbctl/run_machine.h"
#include "tools/wbctl/snapshot_memory.h"

#define STATE "what QEMU wrote"

/* A directory of the test's own with the place for a snapshot in it; the working directory. */
static char top[] = "/tmp/wb-test-snapshot.XXXXXX";

static struct snapshot_machine machine_of(uint64_t memory_bytes)
{
        return (struct snapshot_machine){
                .qemu = "7.2.22",
                .machine = "q35",
                .cpu = "max",
                .processor = "Some Processor",
                .cpus = 1,
                .memory_bytes = memory_bytes,
        };
}

static int write_snapshot(const char *path)
{
        struct snapshot_machine machine = machine_of(MACHINE_MEMORY_MIN_BYTES);
        _cleanup_close_ int state = memfd_create("state", MFD_CLOEXEC);
        _cleanup_close_ int memory = -1;

        CU_ASSERT_FATAL(snapshot_memory_new(machine.memory_bytes, &memory) == 0);
        CU_ASSERT(pwrite(memory, "data", 4, 5 << 20) == 4);
        CU_ASSERT(io_write_full(state, STATE, strlen(STATE)) == 0);
        return snapshot_directory_write(path, &machine, memory, state);
}

static void remove_snapshot(void)
{
        (void)unlink("saved/machine");
        (void)unlink("saved/state");
        (void)unlink("saved/memory");
        (void)rmdir("saved");
        CU_ASSERT(access("saved", F_OK) < 0);
}

/* Nothing is left beside what is named. */
static bool is_alone(const char *name)
{
        struct stat st;

        /* ".", ".." and one directory more. */
        return stat(".", &st) == 0 && st.st_nlink == 2u + (access(name, F_OK) == 0);
}

static int open_result(void)
{
        struct snapshot s = SNAPSHOT_NONE;
        int r = snapshot_directory_open("saved", &s);

        snapshot_close(&s);
        return r;
}

static void test_written_and_opened(void)
{
        struct snapshot s = SNAPSHOT_NONE;
        struct stat st;
        char text[64] = "";

        CU_ASSERT(snapshot_directory_check("saved") == 0);
        CU_ASSERT_FATAL(write_snapshot("saved") == 0);
        CU_ASSERT(stat("saved", &st) == 0 && (st.st_mode & 07777) == 0700);
        CU_ASSERT(is_alone("saved"));
        CU_ASSERT_FATAL(snapshot_directory_open("saved", &s) == 0);
        CU_ASSERT_STRING_EQUAL(s.machine.qemu, "7.2.22");
        CU_ASSERT(read(s.state_fd, text, sizeof(text)) == (ssize_t)strlen(STATE));
        CU_ASSERT_STRING_EQUAL(text, STATE);
        CU_ASSERT(pwrite(s.state_fd, "x", 1, 0) < 0 && errno == EPERM);
        CU_ASSERT(pread(s.memory_fd, text, 4, 5 << 20) == 4 && memcmp(text, "data", 4) == 0);
        snapshot_close(&s);
        remove_snapshot();
}

static void test_what_is_there_is_not_replaced(void)
{
        CU_ASSERT(mkdir("saved", 0700) == 0);
        CU_ASSERT(snapshot_directory_check("saved") == -EEXIST && write_snapshot("saved") == -EEXIST);
        CU_ASSERT(is_alone("saved"));
        CU_ASSERT(rmdir("saved") == 0); /* still empty */
        CU_ASSERT(symlink("nowhere", "saved") == 0);
        CU_ASSERT(snapshot_directory_check("saved") == -EEXIST && write_snapshot("saved") == -EEXIST);
        CU_ASSERT(unlink("saved") == 0);
        CU_ASSERT(snapshot_directory_check("no/such/place") == -ENOENT && write_snapshot("no/such/place") == -ENOENT);
        CU_ASSERT(snapshot_directory_check("") == -ENOENT);
        CU_ASSERT(snapshot_directory_check("/dev/null/saved") == -ENOTDIR);
        CU_ASSERT(is_alone("saved"));
}

static void test_slashes_at_the_end(void)
{
        CU_ASSERT(snapshot_directory_check("saved//") == 0);
        CU_ASSERT_FATAL(write_snapshot("saved//") == 0);
        CU_ASSERT(open_result() == 0);
        remove_snapshot();
}

static void test_no_state_is_no_snapshot(void)
{
        struct snapshot_machine machine = machine_of(MACHINE_MEMORY_MIN_BYTES);
        _cleanup_close_ int state = memfd_create("state", MFD_CLOEXEC);
        _cleanup_close_ int memory = -1;

        CU_ASSERT_FATAL(snapshot_memory_new(machine.memory_bytes, &memory) == 0);
        CU_ASSERT(snapshot_directory_write("saved", &machine, memory, state) == -ENODATA);
        CU_ASSERT(ftruncate(state, (off_t)SNAPSHOT_STATE_MAX_BYTES + 1) == 0);
        CU_ASSERT(snapshot_directory_write("saved", &machine, memory, state) == -EFBIG);
        CU_ASSERT(access("saved", F_OK) < 0 && is_alone("saved"));
}

/* Each time from a whole one. */
static void test_altered_files(void)
{
        static const char *const names[] = {"saved/machine", "saved/state", "saved/memory"};

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
                CU_ASSERT_FATAL(write_snapshot("saved") == 0 && open_result() == 0);
                CU_ASSERT(rename(names[i], "aside") == 0 && open_result() == -ENOENT);
                CU_ASSERT(symlink("../aside", names[i]) == 0 && open_result() == -EINVAL);
                CU_ASSERT(unlink(names[i]) == 0 && mkfifo(names[i], 0600) == 0 && open_result() == -EINVAL);
                CU_ASSERT(unlink(names[i]) == 0 && rename("aside", names[i]) == 0 && open_result() == 0);

                _cleanup_close_ int fd = open(names[i], O_WRONLY | O_APPEND | O_CLOEXEC);

                CU_ASSERT(write(fd, "x", 1) == 1 && open_result() == -EINVAL);
                CU_ASSERT(ftruncate(fd, 0) == 0 && open_result() == -EINVAL);
                remove_snapshot();
        }
}

static void test_a_large_machine_file(void)
{
        CU_ASSERT_FATAL(write_snapshot("saved") == 0);
        CU_ASSERT(truncate("saved/machine", 1 << 20) == 0 && open_result() == -EFBIG);
        remove_snapshot();
        CU_ASSERT(open_result() == -ENOENT);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"written and opened", test_written_and_opened},
                {"what is there is not replaced", test_what_is_there_is_not_replaced},
                {"slashes at the end", test_slashes_at_the_end},
                {"no state is no snapshot", test_no_state_is_no_snapshot},
                {"altered files", test_altered_files},
                {"a large machine file", test_a_large_machine_file},
                CU_TEST_INFO_NULL,
        };
        int r;

        if (!mkdtemp(top) || chdir(top) < 0)
                return 1;
        r = suite_run("snapshot_directory", tests);
        (void)rmdir(top);
        return r;
}
