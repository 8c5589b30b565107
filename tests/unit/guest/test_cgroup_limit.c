/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/cgroup_internal.h"
#include "proto/base/cleanup.h"
#include "tests/support/suite.h"

static void test_the_kernels_texts(void)
{
        CU_ASSERT_EQUAL(cgroup_parse_max("max\n"), 0);
        CU_ASSERT_EQUAL(cgroup_parse_max("268435456\n"), 268435456);
        CU_ASSERT_EQUAL(cgroup_parse_cpu("max 100000\n"), 0);
        CU_ASSERT_EQUAL(cgroup_parse_cpu("80000 100000\n"), 80);
        CU_ASSERT_EQUAL(cgroup_parse_cpu("25001 50000\n"), 51);
        CU_ASSERT_EQUAL(cgroup_parse_cpu("80000\n"), 0);
        CU_ASSERT_EQUAL(cgroup_parse_cpu("80000 0\n"), 0);
        CU_ASSERT_EQUAL(cgroup_parse_cpu(""), 0);
        CU_ASSERT_EQUAL(cgroup_parse_io(""), 0);
        CU_ASSERT_EQUAL(cgroup_parse_io("254:0 rbps=max wbps=2000 riops=max wiops=max\n"
                                        "254:16 rbps=1000 wbps=max riops=5 wiops=max\n"),
                1000);
        CU_ASSERT_EQUAL(cgroup_parse_io("254:0 rbps=max wbps=max riops=7 wiops=max\n"), 0);
}

/* ---- plain files in the place of a cgroup's: what is written is seen, and a file that is not there refuses */

struct fake {
        char dir[32];
        struct cgroup_tree tree;
};

static void put(struct fake *f, const char *file, const char *text)
{
        int fd = openat(f->tree.exec_fd, cgroup_in_exec("x", file).text, O_WRONLY | O_CREAT | O_TRUNC, 0600);

        CU_ASSERT_FATAL(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
        close_fd(fd);
}

/* A plain file keeps what a shorter text did not overwrite. */
static bool holds(struct fake *f, const char *file, const char *text)
{
        char is[CGROUP_FILE_BYTES];

        return cgroup_read_exec(&f->tree, "x", file, is) == 0 && strncmp(is, text, strlen(text)) == 0;
}

static void fake_new(struct fake *f)
{
        *f = (struct fake){.dir = "/tmp/wb-cgroup-XXXXXX", .tree.has = {true, true, true, false}};
        CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(f->dir));
        f->tree.exec_fd = open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CU_ASSERT_FATAL(f->tree.exec_fd >= 0 && mkdirat(f->tree.exec_fd, "x", 0700) == 0);
        put(f, "pids.max", "--------------------");
        put(f, "cpu.max", "--------------------");
        put(f, "memory.max", "--------------------");
}

static void fake_done(struct fake *f)
{
        static const char *const files[] = {"pids.max", "cpu.max", "memory.max", "memory.swap.max"};

        for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
                (void)unlinkat(f->tree.exec_fd, cgroup_in_exec("x", files[i]).text, 0);
        (void)unlinkat(f->tree.exec_fd, "x", AT_REMOVEDIR);
        close_fd(f->tree.exec_fd);
        (void)rmdir(f->dir);
}

static void test_only_those_asked_for(void)
{
        const struct cgroup_limits to = {.memory_bytes = 4096, .pids = 7, .cpu_percent = 50}, from = {0};
        const char *which = NULL;
        struct fake f;

        fake_new(&f);
        CU_ASSERT_EQUAL(cgroup_limit(&f.tree, "x", CGROUP_LIMIT_CPU, &to, &from, &which), 0);
        CU_ASSERT_TRUE(holds(&f, "cpu.max", "50000 100000"));
        CU_ASSERT_TRUE(holds(&f, "pids.max", "---") && holds(&f, "memory.max", "---"));
        CU_ASSERT_EQUAL(cgroup_limit(&f.tree, "x", CGROUP_LIMIT_CPU, &from, &to, &which), 0);
        CU_ASSERT_TRUE(holds(&f, "cpu.max", "max 100000"));
        CU_ASSERT_EQUAL(cgroup_limit(&f.tree, "x", CGROUP_LIMIT_IO, &to, &from, &which), 0); /* no controller */
        CU_ASSERT_PTR_NULL(which);
        fake_done(&f);
}

static void test_nothing_is_half_applied(void)
{
        const struct cgroup_limits from = {.pids = 9, .cpu_percent = 10},
                                   to = {.memory_bytes = 4096, .pids = 7, .cpu_percent = 50};
        const char *which = NULL;
        struct fake f;

        fake_new(&f);
        (void)unlinkat(f.tree.exec_fd, "x/memory.max", 0);
        CU_ASSERT_EQUAL(cgroup_limit(&f.tree, "x", cgroup_limits_asked(&to), &to, &from, &which), CGROUP_E_REFUSED);
        CU_ASSERT_STRING_EQUAL(which, "memory");
        CU_ASSERT_TRUE(holds(&f, "pids.max", "9") && holds(&f, "cpu.max", "10000 100000"));
        fake_done(&f);
}

static void test_swap_goes_with_memory(void)
{
        const struct cgroup_limits to = {.memory_bytes = 4096}, from = {0};
        const char *which = NULL;
        struct fake f;

        fake_new(&f);
        put(&f, "memory.swap.max", "---");
        CU_ASSERT_EQUAL(cgroup_limit(&f.tree, "x", CGROUP_LIMIT_MEMORY, &to, &from, &which), 0);
        CU_ASSERT_TRUE(holds(&f, "memory.max", "4096") && holds(&f, "memory.swap.max", "0"));
        CU_ASSERT_EQUAL(cgroup_limits_in_force(&f.tree, "x").memory_bytes, 4096);
        CU_ASSERT_EQUAL(cgroup_limit(&f.tree, "x", CGROUP_LIMIT_MEMORY, &from, &to, &which), 0);
        CU_ASSERT_TRUE(holds(&f, "memory.max", "max") && holds(&f, "memory.swap.max", "max"));
        CU_ASSERT_EQUAL(cgroup_limits_in_force(&f.tree, "x").memory_bytes, 0);
        fake_done(&f);
}

static void test_what_is_missing(void)
{
        const struct cgroup_limits io = {.io_bps = 1}, none = {0};
        struct cgroup_tree tree = {.has = {true, true, true, false}};

        CU_ASSERT_STRING_EQUAL(cgroup_missing(&tree, &io), "io");
        CU_ASSERT_STRING_EQUAL(cgroup_missing(NULL, &io), "io");
        CU_ASSERT_PTR_NULL(cgroup_missing(NULL, &none));
        CU_ASSERT_EQUAL(cgroup_tree_ceiling(NULL, 1), -EOPNOTSUPP);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"the kernel's texts", test_the_kernels_texts},
                {"only those asked for", test_only_those_asked_for},
                {"nothing is half applied", test_nothing_is_half_applied},
                {"swap goes with memory", test_swap_goes_with_memory},
                {"what is missing", test_what_is_missing},
                CU_TEST_INFO_NULL,
        };

        return suite_run("cgroup_limit", tests);
}
