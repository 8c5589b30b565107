/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/files_internal.h"
#include "tests/support/suite.h"

static int normalize(const char *text, char ret[PLACE_PATH_MAX])
{
        ProtobufCBinaryData path = {.len = strlen(text), .data = (uint8_t *)(uintptr_t)text};

        return place_normalize(&path, ret);
}

static void test_normal_paths(void)
{
        static const struct {
                const char *text, *normal;
        } cases[] = {{"/", "."}, {"//", "."}, {"/.", "."}, {"/a", "a"}, {"/a/", "a"}, {"//a///b/./c/", "a/b/c"},
                {"/...", "..."}, {"/a/..b", "a/..b"}};
        char path[PLACE_PATH_MAX];

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                CU_ASSERT_EQUAL(normalize(cases[i].text, path), 0);
                CU_ASSERT_STRING_EQUAL(path, cases[i].normal);
        }
}

static void test_paths_that_are_refused(void)
{
        static const char *const bad[] = {"", "a", "./a", "..", "/..", "/a/..", "/a/../b"};
        char path[PLACE_PATH_MAX], name[TREE_NAME_MAX + 3];

        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                CU_ASSERT_EQUAL(normalize(bad[i], path), -EINVAL);
        memset(name, 'n', sizeof(name));
        name[0] = '/';
        name[sizeof(name) - 1] = '\0';
        CU_ASSERT_EQUAL(normalize(name, path), -ENAMETOOLONG);
}

/* Which links are followed: those in folders that root alone may write, and which are root's; needs root. */
static int open_text(const char *root, const char *text)
{
        Wb__FilePlace place = WB__FILE_PLACE__INIT;
        int fd, r;

        place.path = (ProtobufCBinaryData){.len = strlen(text), .data = (uint8_t *)(uintptr_t)text};
        place.root = (ProtobufCBinaryData){.len = strlen(root), .data = (uint8_t *)(uintptr_t)root};
        r = place_open(&place, &fd);
        if (r == 0)
                (void)close(fd);
        return r;
}

static void test_links(void)
{
        char top[] = "/run/wb-place-XXXXXX", path[160], link[128];

        if (geteuid() != 0 || !mkdtemp(top))
                return;
        (void)chmod(top, 0755);
        (void)snprintf(path, sizeof(path), "%s/file", top);
        (void)close(open(path, O_CREAT | O_WRONLY, 0644));
        (void)snprintf(link, sizeof(link), "%s/link", top);
        CU_ASSERT_EQUAL(symlink(path, link), 0);
        CU_ASSERT_EQUAL(open_text("", link), 0);
        CU_ASSERT_EQUAL(open_text(top, "/link"), -ENOENT); /* within the root there is no such path */
        CU_ASSERT_EQUAL(lchown(link, 1000, 1000), 0);
        CU_ASSERT_EQUAL(open_text("", link), -ELOOP);
        CU_ASSERT_EQUAL(lchown(link, 0, 0), 0);
        (void)chmod(top, 01777);
        CU_ASSERT_EQUAL(open_text("", link), -ELOOP);
        (void)chmod(top, 0755);
        (void)unlink(link);
        CU_ASSERT_EQUAL(symlink(link, link), 0);
        CU_ASSERT_EQUAL(open_text("", link), -ELOOP); /* and it ends */
        (void)unlink(link);
        CU_ASSERT_EQUAL(symlink("../../../..", link), 0);
        (void)snprintf(path, sizeof(path), "%s/etc", link);
        CU_ASSERT_EQUAL(open_text("", path), 0);
        CU_ASSERT_EQUAL(open_text(top, "/link/etc"), -ENOENT);
        CU_ASSERT_EQUAL(open_text(top, "/link/file"), 0);
        (void)unlink(link);
        (void)snprintf(path, sizeof(path), "%s/file", top);
        (void)unlink(path);
        CU_ASSERT_EQUAL(rmdir(top), 0);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"normal paths", test_normal_paths},
                {"paths that are refused", test_paths_that_are_refused},
                {"links", test_links},
                CU_TEST_INFO_NULL,
        };

        return suite_run("files_place", tests);
}
