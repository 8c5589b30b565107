/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/ca_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/suite.h"

struct world {
        char dir[64];
        char path[128];
        char next[128];
};

static void world_open(struct world *w)
{
        *w = (struct world){.dir = "/tmp/wb-ca-file-XXXXXX"};
        CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(w->dir));
        (void)snprintf(w->path, sizeof(w->path), "%s/ca.pem", w->dir);
        (void)snprintf(w->next, sizeof(w->next), "%s/ca.pem.next", w->dir);
}

static void world_close(struct world *w)
{
        (void)unlink(w->path);
        (void)unlink(w->next);
        CU_ASSERT_EQUAL(rmdir(w->dir), 0);
}

static char *get(const struct world *w, bool anew)
{
        char *text = NULL;
        size_t n = 0;

        CU_ASSERT_EQUAL_FATAL(ca_file_get(w->dir, anew, &text, &n), 0);
        CU_ASSERT_EQUAL(strlen(text), n);
        return text;
}

static int fault(const char *dir)
{
        char *text = NULL;
        size_t n;
        int r = ca_file_get(dir, false, &text, &n);

        CU_ASSERT_PTR_NULL(text);
        return r;
}

static void test_made_once_and_again_when_asked(void)
{
        struct world w;
        struct stat st;
        char *first, *same, *other, *kept;

        world_open(&w);
        CU_ASSERT_EQUAL(mkdir(w.next, 0700), 0); /* in the way */
        CU_ASSERT(fault(w.dir) < 0);
        CU_ASSERT_EQUAL(rmdir(w.next), 0);
        CU_ASSERT_EQUAL(symlink("/tmp/nowhere", w.next), 0); /* not followed */
        first = get(&w, false);
        CU_ASSERT_EQUAL(stat(w.path, &st), 0);
        CU_ASSERT_EQUAL(st.st_mode & 0777, 0600);
        same = get(&w, false);
        CU_ASSERT_STRING_EQUAL(first, same);
        other = get(&w, true);
        CU_ASSERT_STRING_NOT_EQUAL(first, other);
        kept = get(&w, false);
        CU_ASSERT_STRING_EQUAL(other, kept);
        CU_ASSERT_EQUAL(access("/tmp/nowhere", F_OK), -1);
        free(first);
        free(same);
        free(other);
        free(kept);
        world_close(&w);
}

static void test_what_is_there_is_not_replaced_in_silence(void)
{
        struct world w;
        char *text;

        world_open(&w);
        text = get(&w, false);
        CU_ASSERT_EQUAL(chmod(w.path, 0640), 0);
        CU_ASSERT_EQUAL(fault(w.dir), -EPERM);
        CU_ASSERT_EQUAL(chmod(w.path, 0600), 0);
        CU_ASSERT_EQUAL(truncate(w.path, 100), 0);
        CU_ASSERT_EQUAL(fault(w.dir), -EBADMSG);
        CU_ASSERT_EQUAL(unlink(w.path), 0);
        CU_ASSERT_EQUAL(symlink("/dev/null", w.path), 0);
        CU_ASSERT_EQUAL(fault(w.dir), -ELOOP);
        CU_ASSERT_EQUAL(unlink(w.path), 0);
        CU_ASSERT_EQUAL(mkfifo(w.path, 0600), 0); /* nor waited for */
        CU_ASSERT_EQUAL(fault(w.dir), -EPERM);
        CU_ASSERT_EQUAL(fault("/tmp/wb-no-such-directory"), -ENOENT);
        free(text);
        world_close(&w);
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"made once, and again when asked", test_made_once_and_again_when_asked},
                {"what is there is not replaced in silence", test_what_is_there_is_not_replaced_in_silence},
                CU_TEST_INFO_NULL,
        };

        return suite_run("ca_file", tests);
}
