/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/wbctl/audit_reader.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/audit_record.h"
#include "proto/base/cleanup.h"
#include "tests/support/suite.h"

#define ROTATED(n) "audit.log.000000000000000000" n

static char dir[64];

static char *path_of(const char *name)
{
        static char paths[4][sizeof(dir) + NAME_MAX + 1];
        static unsigned next;
        char *path = paths[next++ % 4];

        (void)snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
        return path;
}

static void write_file(const char *name, const char *text)
{
        FILE *f = fopen(path_of(name), "w");

        CU_ASSERT_PTR_NOT_NULL_FATAL(f);
        CU_ASSERT_TRUE(fputs(text, f) >= 0);
        (void)fclose(f);
}

static void empty_dir(void)
{
        DIR *d = opendir(dir);

        for (struct dirent *e = readdir(d); e; e = readdir(d))
                (void)unlink(path_of(e->d_name));
        (void)closedir(d);
}

/* All that is read, "FILE:LINE:text" each with its end; torn ones with '~', too long ones with '!'. */
static void read_all(struct audit_reader *r, char *ret_text, size_t room)
{
        struct audit_text t;
        int error;

        *ret_text = '\0';
        while ((error = audit_reader_next(r, &t)) == AUDIT_READER_E_LINE) {
                size_t n = strlen(ret_text);

                CU_ASSERT_EQUAL(t.text[t.n], '\0');
                (void)snprintf(ret_text + n, room - n, "%s:%" PRIu64 ":%.20s%s", strrchr(t.file, '/') + 1, t.line,
                        t.text,
                        t.kind == AUDIT_TEXT_TORN       ? "~"
                        : t.kind == AUDIT_TEXT_TOO_LONG ? "!"
                                                        : ";");
        }
        CU_ASSERT_EQUAL(error, 0);
        audit_reader_free(r);
}

static void expect_dir(const char *want)
{
        struct audit_reader *r = NULL;
        char text[1024];

        CU_ASSERT_EQUAL_FATAL(audit_reader_open_dir(dir, &r), 0);
        read_all(r, text, sizeof(text));
        CU_ASSERT_STRING_EQUAL(text, want);
}

static void test_files_in_order(void)
{
        struct audit_reader *r = NULL;

        CU_ASSERT_EQUAL(audit_reader_open_dir(dir, &r), -ENOENT);
        CU_ASSERT_EQUAL(audit_reader_open_dir("/nowhere/at/all", &r), -ENOENT);
        write_file("audit.log", "e\nf\n");
        write_file(ROTATED("10"), "c\nd\n");
        write_file(ROTATED("09"), "a\n\nb\n");
        write_file("audit.log.1", "other\n");
        write_file("audit.log.0000000000000000000x", "other\n");
        expect_dir(ROTATED("09") ":1:a;" ROTATED("09") ":2:;" ROTATED("09") ":3:b;" ROTATED("10") ":1:c;" ROTATED(
                "10") ":2:d;"
                      "audit.log:1:e;audit.log:2:f;");
        CU_ASSERT_EQUAL(unlink(path_of("audit.log")), 0);
        write_file(ROTATED("10"), "");
        expect_dir(ROTATED("09") ":1:a;" ROTATED("09") ":2:;" ROTATED("09") ":3:b;");
        empty_dir();
}

/* Put aside after it was opened: it is read once, and in its place. */
static void test_rotation_meanwhile(void)
{
        struct audit_reader *r = NULL;
        char text[1024];

        write_file(ROTATED("01"), "a\n");
        write_file("audit.log", "b\n");
        CU_ASSERT_EQUAL_FATAL(audit_reader_open_dir(dir, &r), 0);
        CU_ASSERT_EQUAL(audit_reader_files_n(r), 2);
        CU_ASSERT_EQUAL(rename(path_of("audit.log"), path_of(ROTATED("02"))), 0);
        write_file("audit.log", "c\n");
        read_all(r, text, sizeof(text));
        CU_ASSERT_STRING_EQUAL(text, ROTATED("01") ":1:a;audit.log:1:b;");

        /* Between the opening and the list: both names are the same file. */
        CU_ASSERT_EQUAL(unlink(path_of("audit.log")), 0);
        CU_ASSERT_EQUAL(link(path_of(ROTATED("02")), path_of("audit.log")), 0);
        expect_dir(ROTATED("01") ":1:a;" ROTATED("02") ":1:b;");
        empty_dir();
}

static void test_files_by_their_first_record(void)
{
        struct audit_reader *r = NULL;
        char *paths[3], text[1024];

        write_file("x", "{\"seq\":10,\n");
        write_file("y", "{\"seq\":9,\n");
        write_file("z", "");
        paths[0] = path_of("x");
        paths[1] = path_of("y");
        paths[2] = path_of("z");
        CU_ASSERT_EQUAL_FATAL(audit_reader_open_files(paths, 2, &r), 0);
        read_all(r, text, sizeof(text));
        CU_ASSERT_STRING_EQUAL(text, "y:1:{\"seq\":9,;x:1:{\"seq\":10,;");
        /* One of them does not say: as they were given. */
        CU_ASSERT_EQUAL_FATAL(audit_reader_open_files(paths, 3, &r), 0);
        read_all(r, text, sizeof(text));
        CU_ASSERT_STRING_EQUAL(text, "x:1:{\"seq\":10,;y:1:{\"seq\":9,;");
        paths[1] = path_of("nowhere");
        CU_ASSERT_EQUAL(audit_reader_open_files(paths, 2, &r), -ENOENT);
        empty_dir();
}

static void test_what_is_no_file(void)
{
        struct audit_reader *r = NULL;
        struct audit_text t = {0};

        CU_ASSERT_EQUAL(mkfifo(path_of("audit.log"), 0600), 0);
        CU_ASSERT_EQUAL(audit_reader_open_dir(dir, &r), -EINVAL);
        CU_ASSERT_EQUAL(unlink(path_of("audit.log")), 0);
        CU_ASSERT_EQUAL(symlink("/dev/zero", path_of(ROTATED("01"))), 0);
        CU_ASSERT_EQUAL_FATAL(audit_reader_open_dir(dir, &r), 0);
        CU_ASSERT_EQUAL(audit_reader_next(r, &t), -EINVAL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(t.file);
        CU_ASSERT_STRING_EQUAL(strrchr(t.file, '/') + 1, ROTATED("01"));
        audit_reader_free(r);
        empty_dir();
}

static void test_torn(void)
{
        write_file(ROTATED("01"), "a\nb");
        write_file("audit.log", "c\n{\"x");
        expect_dir(ROTATED("01") ":1:a;" ROTATED("01") ":2:b~audit.log:1:c;audit.log:2:{\"x~");
        empty_dir();
}

static void *finish_line(void *userdata)
{
        int *fd = userdata;

        usleep(60000);
        CU_ASSERT_EQUAL(write(*fd, "tail\nd", 6), 6);
        usleep(60000);
        CU_ASSERT_EQUAL(write(*fd, "\n", 1), 1);
        return NULL;
}

/* A broker's write that is seen half done is waited for. */
static void test_half_a_write(void)
{
        pthread_t thread;
        int fd;

        write_file("audit.log", "half ");
        fd = open(path_of("audit.log"), O_WRONLY | O_APPEND | O_CLOEXEC);
        pthread_create(&thread, NULL, finish_line, &fd);
        expect_dir("audit.log:1:half tail;audit.log:2:d;");
        pthread_join(thread, NULL);
        close_fd(fd);
        empty_dir();
}

static void fill(FILE *f, size_t n)
{
        for (size_t i = 0; i < n; i++)
                (void)putc('x', f);
}

/* The longest, one byte more, and much more: what stands behind is read on. */
static void test_long_lines(void)
{
        FILE *f = fopen(path_of("audit.log"), "w");

        fill(f, AUDIT_LINE_MAX_BYTES);
        fputs("\nb\n", f);
        fill(f, AUDIT_LINE_MAX_BYTES + 1);
        fputs("\nd\n", f);
        fill(f, (size_t)5 * AUDIT_LINE_MAX_BYTES);
        fputs("\nf\n", f);
        fill(f, (size_t)3 * AUDIT_LINE_MAX_BYTES);
        (void)fclose(f);
        expect_dir(
                "audit.log:1:xxxxxxxxxxxxxxxxxxxx;audit.log:2:b;audit.log:3:!audit.log:4:d;audit.log:5:!audit.log:6:f;"
                "audit.log:7:!");
        empty_dir();
}

static void test_many_lines(void)
{
        FILE *f = fopen(path_of("audit.log"), "w");
        struct audit_reader *r = NULL;
        struct audit_text t;
        uint64_t n = 0;

        for (int i = 1; i <= 300000; i++)
                fprintf(f, "line %d\n", i);
        (void)fclose(f);
        CU_ASSERT_EQUAL_FATAL(audit_reader_open_dir(dir, &r), 0);
        while (audit_reader_next(r, &t) == AUDIT_READER_E_LINE) {
                char want[32];

                (void)snprintf(want, sizeof(want), "line %" PRIu64, ++n);
                if (strcmp(want, t.text) != 0)
                        break;
        }
        CU_ASSERT_EQUAL(n, 300000);
        CU_ASSERT_EQUAL(t.line, 300000);
        audit_reader_free(r);
        empty_dir();
}

int main(void)
{
        CU_TestInfo tests[] = {
                {"files in order", test_files_in_order},
                {"rotation meanwhile", test_rotation_meanwhile},
                {"files by their first record", test_files_by_their_first_record},
                {"what is no file", test_what_is_no_file},
                {"torn", test_torn},
                {"half a write", test_half_a_write},
                {"long lines", test_long_lines},
                {"many lines", test_many_lines},
                CU_TEST_INFO_NULL,
        };
        int r;

        (void)snprintf(dir, sizeof(dir), "/tmp/wb-test-reader-XXXXXX");
        if (!mkdtemp(dir))
                return 1;
        r = suite_run("audit_reader", tests);
        (void)rmdir(dir);
        return r;
}
