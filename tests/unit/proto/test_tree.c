/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/cleanup.h"
#include "proto/tree/name.h"
#include "proto/tree/reader.h"
#include "proto/tree/writer.h"
#include "tests/support/suite.h"

/* ---- names */

static bool is_good(const char *text)
{
        return tree_name_is_good(text, strlen(text));
}

static void test_names(void)
{
        static const char *const good[] = {"a", "a/b", "...", "a/..b", ".a", "a b\n\xff"};
        static const char *const bad[] = {
                "", "/", "/a", "a/", "a//b", ".", "..", "./a", "a/.", "a/..", "../a", "a/../b", "a/./b"};

        for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
                CU_ASSERT_TRUE(is_good(good[i]));
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                CU_ASSERT_FALSE(is_good(bad[i]));
        CU_ASSERT_FALSE(tree_name_is_good("a\0b", 3));
}

static void test_names_have_limits(void)
{
        char text[2 * TREE_DEPTH_MAX + 4];
        char name[TREE_NAME_MAX + 2];

        memset(name, 'n', sizeof(name));
        CU_ASSERT_TRUE(tree_name_is_good(name, TREE_NAME_MAX));
        CU_ASSERT_FALSE(tree_name_is_good(name, TREE_NAME_MAX + 1));
        for (size_t i = 0; i < sizeof(text); i++)
                text[i] = i % 2 ? '/' : 'd';
        CU_ASSERT_TRUE(tree_name_is_good(text, 2 * TREE_DEPTH_MAX - 1));
        CU_ASSERT_FALSE(tree_name_is_good(text, 2 * TREE_DEPTH_MAX + 1));
}

static void test_every_error_has_a_word(void)
{
        CU_ASSERT_STRING_EQUAL(tree_error_reason(-ENOENT), "not_found");
        CU_ASSERT_STRING_EQUAL(tree_error_reason(-ENOSPC), "no_space");
        CU_ASSERT_STRING_EQUAL(tree_error_reason(-EXFULL), "failed");
}

/* ---- the writer */

struct world {
        char path[64];
        int dir;
};

static void world_start(struct world *w)
{
        (void)snprintf(w->path, sizeof(w->path), "/tmp/wb-tree-XXXXXX");
        CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(w->path));
        w->dir = open(w->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CU_ASSERT_TRUE_FATAL(w->dir >= 0);
}

static void world_stop(struct world *w)
{
        char command[128];

        (void)close(w->dir);
        (void)snprintf(command, sizeof(command), "rm -rf %s", w->path);
        CU_ASSERT_EQUAL(system(command), 0);
}

static struct tree_writer *new_writer(struct world *w, const char *name)
{
        struct tree_writer_options options = {.uid = (uid_t)-1, .gid = (gid_t)-1, .mask = 022};
        struct tree_writer *writer;

        CU_ASSERT_EQUAL_FATAL(tree_writer_new(w->dir, name, &options, &writer), 0);
        return writer;
}

static int put(struct tree_writer *writer, const char *path, Wb__FileType type, uint32_t mode, uint64_t size)
{
        Wb__FileEntry e = WB__FILE_ENTRY__INIT;

        e.path = (ProtobufCBinaryData){.len = strlen(path), .data = (uint8_t *)(uintptr_t)path};
        e.type = type;
        e.mode = mode;
        e.size = size;
        e.mtime_s = 1000000000;
        e.link = (ProtobufCBinaryData){.len = 1, .data = (uint8_t *)"/"};
        return tree_writer_entry(writer, &e);
}

static int data(struct tree_writer *writer, uint64_t offset, const char *text)
{
        return tree_writer_data(writer, offset, (const uint8_t *)text, strlen(text));
}

static bool exists(struct world *w, const char *name)
{
        return faccessat(w->dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void test_a_file_is_there_once_it_is_whole(void)
{
        struct tree_writer_report report;
        struct tree_writer *writer;
        struct world w;
        struct stat st;

        world_start(&w);
        writer = new_writer(&w, "f");
        CU_ASSERT_EQUAL(put(writer, "", WB__FILE_TYPE__REGULAR, 06777, 100), 0);
        CU_ASSERT_EQUAL(data(writer, 10, "hole before"), 0);
        CU_ASSERT_FALSE(exists(&w, "f"));
        CU_ASSERT_EQUAL(tree_writer_end(writer, &report), 0);
        tree_writer_free(writer);
        CU_ASSERT_EQUAL_FATAL(fstatat(w.dir, "f", &st, 0), 0);
        CU_ASSERT_EQUAL(st.st_size, 100);
        CU_ASSERT_EQUAL(st.st_mode & 07777, 0755); /* no set-user-ID, and the mask */
        CU_ASSERT_EQUAL(st.st_mtim.tv_sec, 1000000000);
        CU_ASSERT_EQUAL(report.bytes, 11);
        world_stop(&w);
}

static void test_what_is_abandoned_leaves_nothing(void)
{
        struct tree_writer *writer;
        struct world w;
        char command[128];

        world_start(&w);
        writer = new_writer(&w, "f");
        CU_ASSERT_EQUAL(put(writer, "", WB__FILE_TYPE__REGULAR, 0644, 100), 0);
        CU_ASSERT_EQUAL(data(writer, 0, "half"), 0);
        tree_writer_free(writer);
        (void)snprintf(command, sizeof(command), "test -z \"$(ls -A %s)\"", w.path);
        CU_ASSERT_EQUAL(system(command), 0);
        world_stop(&w);
}

static void test_data_keeps_its_place(void)
{
        struct tree_writer *writer;
        struct world w;

        world_start(&w);
        writer = new_writer(&w, "f");
        CU_ASSERT_EQUAL(data(writer, 0, "of nothing"), TREE_E_REFUSED);
        tree_writer_free(writer);
        writer = new_writer(&w, "f");
        CU_ASSERT_EQUAL(put(writer, "", WB__FILE_TYPE__REGULAR, 0644, 10), 0);
        CU_ASSERT_EQUAL(data(writer, 5, "abc"), 0);
        CU_ASSERT_EQUAL(data(writer, 7, "x"), TREE_E_REFUSED);
        tree_writer_free(writer);
        writer = new_writer(&w, "f");
        CU_ASSERT_EQUAL(put(writer, "", WB__FILE_TYPE__REGULAR, 0644, 10), 0);
        CU_ASSERT_EQUAL(data(writer, 8, "abc"), TREE_E_REFUSED);
        tree_writer_free(writer);
        writer = new_writer(&w, "f");
        CU_ASSERT_EQUAL(put(writer, "", WB__FILE_TYPE__REGULAR, 0644, UINT64_MAX), -EFBIG);
        tree_writer_free(writer);
        writer = new_writer(&w, "f");
        CU_ASSERT_EQUAL(put(writer, "", WB__FILE_TYPE__REGULAR, 0644, INT64_MAX), 0);
        CU_ASSERT_EQUAL(data(writer, UINT64_MAX, "x"), TREE_E_REFUSED);
        tree_writer_free(writer);
        world_stop(&w);
}

/* The stream makes a link and then goes through it; or it is there already. */
static void test_no_link_is_gone_through(void)
{
        struct tree_writer *writer;
        struct world w;

        world_start(&w);
        CU_ASSERT_EQUAL(mkdirat(w.dir, "outside", 0755), 0);
        CU_ASSERT_EQUAL(mkdirat(w.dir, "t", 0755), 0);
        CU_ASSERT_EQUAL(symlinkat("../outside", w.dir, "t/there"), 0);
        writer = new_writer(&w, "t");
        CU_ASSERT_EQUAL(put(writer, "", WB__FILE_TYPE__DIRECTORY, 0755, 0), 0);
        CU_ASSERT_EQUAL(put(writer, "there/f", WB__FILE_TYPE__REGULAR, 0644, 0), -EEXIST);
        tree_writer_free(writer);
        writer = new_writer(&w, "t");
        CU_ASSERT_EQUAL(put(writer, "l", WB__FILE_TYPE__SYMLINK, 0, 0), 0);
        CU_ASSERT_TRUE(put(writer, "l/f", WB__FILE_TYPE__REGULAR, 0644, 0) < 0);
        tree_writer_free(writer);
        CU_ASSERT_FALSE(exists(&w, "outside/f"));
        /* A file in the place of a link replaces the link. */
        writer = new_writer(&w, "t");
        CU_ASSERT_EQUAL(put(writer, "there", WB__FILE_TYPE__REGULAR, 0644, 0), 0);
        CU_ASSERT_EQUAL(tree_writer_end(writer, &(struct tree_writer_report){0}), 0);
        tree_writer_free(writer);
        CU_ASSERT_TRUE(exists(&w, "outside") && exists(&w, "t/there"));
        world_stop(&w);
}

static void test_a_folders_mode_comes_last(void)
{
        struct tree_writer_report report;
        struct tree_writer *writer;
        struct world w;
        struct stat st;

        world_start(&w);
        writer = new_writer(&w, NULL);
        CU_ASSERT_EQUAL(put(writer, "a", WB__FILE_TYPE__DIRECTORY, 0500, 0), 0);
        CU_ASSERT_EQUAL(put(writer, "a/b/c/f", WB__FILE_TYPE__REGULAR, 0644, 0), 0); /* what is missing is made */
        CU_ASSERT_EQUAL(put(writer, "a/g", WB__FILE_TYPE__REGULAR, 0644, 0), 0);
        CU_ASSERT_EQUAL(put(writer, "ab", WB__FILE_TYPE__REGULAR, 0644, 0), 0); /* beside a, not in it */
        CU_ASSERT_EQUAL(put(writer, "x", WB__FILE_TYPE__CHARACTER_DEVICE, 0666, 0), 0);
        CU_ASSERT_EQUAL(tree_writer_end(writer, &report), 0);
        tree_writer_free(writer);
        CU_ASSERT_EQUAL(report.entries, 4);
        CU_ASSERT_EQUAL(report.skipped, 1);
        CU_ASSERT_EQUAL_FATAL(fstatat(w.dir, "a", &st, 0), 0);
        CU_ASSERT_EQUAL(st.st_mode & 07777, 0500);
        CU_ASSERT_EQUAL(st.st_mtim.tv_sec, 1000000000);
        CU_ASSERT_TRUE(exists(&w, "a/b/c/f") && exists(&w, "a/g") && exists(&w, "ab") && !exists(&w, "x"));
        world_stop(&w);
}

/* ---- from the reader into the writer */

static int on_entry(void *userdata, const Wb__FileEntry *e)
{
        return tree_writer_entry(userdata, e);
}

static int on_data(void *userdata, uint64_t offset, const uint8_t *bytes, size_t n)
{
        return tree_writer_data(userdata, offset, bytes, n);
}

static void test_what_is_read_can_be_written(void)
{
        static const struct tree_reader_handler handler = {on_entry, on_data};
        struct tree_reader_options options = {.recursive = true};
        struct tree_reader_report read;
        struct tree_writer_report written;
        struct tree_writer *writer;
        char command[512];
        struct world w;
        int fd;

        world_start(&w);
        (void)snprintf(command, sizeof(command),
                "cd %s && mkdir -p from/a/b from/empty && head -c 200000 /dev/urandom >from/a/random && ln -s ../x from/a/l "
                "&& truncate -s 100M from/a/b/hole && echo end >>from/a/b/hole",
                w.path);
        CU_ASSERT_EQUAL_FATAL(system(command), 0);
        fd = openat(w.dir, "from", O_RDONLY | O_CLOEXEC);
        writer = new_writer(&w, "to");
        CU_ASSERT_EQUAL(tree_read(fd, &options, &handler, writer, &read), 0);
        CU_ASSERT_EQUAL(tree_writer_end(writer, &written), 0);
        tree_writer_free(writer);
        CU_ASSERT_EQUAL(read.entries, written.entries);
        CU_ASSERT_EQUAL(read.entries, 7);
        CU_ASSERT_TRUE(read.bytes < 1000000);
        (void)snprintf(command, sizeof(command),
                "cd %s && diff -r --no-dereference from to && test $(stat -c %%b to/a/b/hole) -lt 1000", w.path);
        CU_ASSERT_EQUAL(system(command), 0);
        options.recursive = false;
        CU_ASSERT_EQUAL(tree_read(fd, &options, &handler, NULL, &read), -EISDIR);
        (void)close(fd);
        world_stop(&w);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"names", test_names},
                {"names have limits", test_names_have_limits},
                {"errors have words", test_every_error_has_a_word},
                {"a file is there once it is whole", test_a_file_is_there_once_it_is_whole},
                {"what is abandoned leaves nothing", test_what_is_abandoned_leaves_nothing},
                {"data keeps its place", test_data_keeps_its_place},
                {"no link is gone through", test_no_link_is_gone_through},
                {"a folder's mode comes last", test_a_folders_mode_comes_last},
                {"what is read can be written", test_what_is_read_can_be_written},
                CU_TEST_INFO_NULL,
        };

        return suite_run("tree", tests);
}
